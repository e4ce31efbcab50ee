/* Text as BERT's tokenizers read it: cleaned, in lower case, without accents, cut into words. */
#ifndef ARIL_TEXT_NORMALIZE_H
#define ARIL_TEXT_NORMALIZE_H

#include "formats/bytes.h"

/* What is left as it is. All false: the tokenizer of bert-base-uncased. */
typedef struct aril__normalizer {
    bool keep_controls; /* control characters, and white space other than ' ' */
    bool keep_chinese;  /* Chinese characters are no words of their own */
    bool keep_accents;
    bool keep_case;
} aril__normalizer;

/* Appends the normalized text of p[0..n) as UTF-8. What is not UTF-8 reads as U+FFFD. */
void aril__normalize(const aril__normalizer *how, const unsigned char *p, size_t n,
                     aril__bytes *to);

/* The length of the white space at p[0..n), then *word, the length of the word behind it: a
 * punctuation mark, or all up to white space or a punctuation mark. 0 at the end. */
size_t aril__next_word(const unsigned char *p, size_t n, size_t *word);

#endif
