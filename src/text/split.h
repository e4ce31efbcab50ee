/* GPT-2's words: the pieces of text in which a tokenizer merges bytes. */
#ifndef ARIL_TEXT_SPLIT_H
#define ARIL_TEXT_SPLIT_H

#include <stddef.h>

/* The length of the first word of the n > 0 bytes at p, at least 1. All words of a text are matches
 * of this regular expression, one after the other:
 *
 *     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
size_t aril__word_length(const unsigned char *p, size_t n);

#endif
