/* Texts that are numbered in the order in which they first come: labels, vocabularies. */
#ifndef ARIL_DATA_WORDS_H
#define ARIL_DATA_WORDS_H

#include "data/files.h"

typedef struct aril__words {
    aril__texts text; /* the i-th word */
    int64_t *count;   /* how often it came */
    int64_t *slot;    /* the table: numbers of words + 1, 0 where free */
    size_t slots;
} aril__words;

void aril__words_free(aril__words *w);

/* The number of a word of n bytes, -1 where it has none; the same, and it gets one (a negative
 * status when memory is out). */
int64_t aril__words_find(const aril__words *w, const char *word, size_t n);
int64_t aril__words_add(aril__words *w, const char *word, size_t n);

/* Puts the words in another order, `order(a, b)` being negative where a comes first, and tells in
 * number[i] (room for as many as there are words) what the i-th is now. */
aril_status aril__words_sort(aril__words *w,
                             int (*order)(const aril__words *w, int64_t a, int64_t b),
                             int64_t *number);

#endif
