/* Strings numbered in order of first occurrence: labels, vocabularies. */
#ifndef ARIL_DATA_WORDS_H
#define ARIL_DATA_WORDS_H

#include "data/files.h"

typedef struct aril__words {
    aril__texts text; /* the i-th word */
    int64_t *count;   /* number of occurrences */
    int64_t *slot;    /* hash table: word numbers + 1, 0 if free */
    size_t slots;
} aril__words;

void aril__words_free(aril__words *w);

/* The number of a word of n bytes, -1 if it is unknown; aril__words_add adds it if needed (a
 * negative status when out of memory). */
int64_t aril__words_find(const aril__words *w, const char *word, size_t n);
int64_t aril__words_add(aril__words *w, const char *word, size_t n);

/* Sorts the words by `order(a, b)`, which is negative if a comes first, and sets number[i] (one
 * element per word) to the new number of the i-th. */
aril_status aril__words_sort(aril__words *w,
                             int (*order)(const aril__words *w, int64_t a, int64_t b),
                             int64_t *number);

#endif
