/* A streaming JSON reader: reads values one after the other, without building a tree.
 *
 *     aril__json j = { .text = text, .size = size };
 *     for (bool more = aril__json_enter(&j, '{'); more; more = aril__json_more(&j, '}')) {
 *         char *key = aril__json_key(&j);
 *         ... aril__json_skip(&j) ...
 *     }
 *     if (!aril__json_end(&j)) ... j.wrong and j.at say what is wrong, and where
 *
 * After the first error every call fails, so that loops end; check at the end. */
#ifndef ARIL_FORMATS_JSON_H
#define ARIL_FORMATS_JSON_H

#include "aril/base.h"

typedef struct aril__json {
    const char *text; /* need not be NUL-terminated */
    size_t size, at;
    const char *wrong; /* what is wrong at `at`; NULL: nothing so far */
    bool memory;       /* the error is out of memory */
    int depth;
} aril__json;

/* Enters an object ('{') or an array ('['). True if it is not empty. */
bool aril__json_enter(aril__json *j, char bracket);

/* After an element: true when another follows, false at the closing bracket ('}', ']'). */
bool aril__json_more(aril__json *j, char bracket);

/* Reads a string, which the caller frees; a string and the ':' after it. NULL on failure, which
 * includes a string with a NUL character. */
char *aril__json_string(aril__json *j);
char *aril__json_key(aril__json *j);

/* Reads a number; a non-negative integer. */
bool aril__json_number(aril__json *j, double *value);
bool aril__json_unsigned(aril__json *j, uint64_t *value);

/* Skips a value of any kind. */
bool aril__json_skip(aril__json *j);

/* The character that the next value begins with, 0 at the end: '{', '[', '"', 't', '-', '7' ... */
char aril__json_peek(aril__json *j);

/* True if only whitespace is left and there was no error. */
bool aril__json_end(aril__json *j);

/* Reports an error that JSON itself does not, unless there already is one. Returns false. */
bool aril__json_wrong(aril__json *j, const char *what);

#endif
