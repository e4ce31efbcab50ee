/* Reading JSON from memory, one value after the other, without building a tree of it.
 *
 *     aril__json j = { .text = text, .size = size };
 *     for (bool more = aril__json_enter(&j, '{'); more; more = aril__json_more(&j, '}')) {
 *         char *key = aril__json_key(&j);
 *         ... aril__json_skip(&j) ...
 *     }
 *     if (!aril__json_end(&j)) ... j.wrong and j.at say what is wrong, and where
 *
 * After the first mistake every call fails, so that loops end; check at the end. */
#ifndef ARIL_FORMATS_JSON_H
#define ARIL_FORMATS_JSON_H

#include "aril/base.h"

typedef struct aril__json {
    const char *text; /* need not end in 0 */
    size_t size, at;
    const char *wrong; /* what is wrong at `at`; NULL: nothing so far */
    bool memory;       /* what is wrong is that memory is out */
    int depth;
} aril__json;

/* Steps into an object ('{') or an array ('['). True when it has an element. */
bool aril__json_enter(aril__json *j, char bracket);

/* After an element: true when another follows, false at the closing bracket ('}', ']'). */
bool aril__json_more(aril__json *j, char bracket);

/* A string, which the caller frees; a string and the ':' after it. NULL on failure: a string that
 * holds a 0 character is one. */
char *aril__json_string(aril__json *j);
char *aril__json_key(aril__json *j);

/* A number; a whole number that is not negative. */
bool aril__json_number(aril__json *j, double *value);
bool aril__json_unsigned(aril__json *j, uint64_t *value);

/* Steps over a value of any kind. */
bool aril__json_skip(aril__json *j);

/* The character that the next value begins with, 0 at the end: '{', '[', '"', 't', '-', '7' ... */
char aril__json_peek(aril__json *j);

/* True when nothing but blanks is left, and nothing was wrong. */
bool aril__json_end(aril__json *j);

/* Notes a mistake (of a kind that JSON itself allows), if it is the first. Returns false. */
bool aril__json_wrong(aril__json *j, const char *what);

#endif
