/* GPT-2's spelling of bytes in files: 256 printable characters, one for each byte. Printable bytes
 * of Latin-1 stand for themselves, the others are U+0100, U+0101 and so on, in order. */
#ifndef ARIL_TEXT_ALPHABET_H
#define ARIL_TEXT_ALPHABET_H

#include "formats/bytes.h"

/* The code point of a byte. */
uint32_t aril__alphabet_code(unsigned char byte);

/* Turns a token's text, valid UTF-8 of n bytes, into the bytes it stands for, in `to`, which has
 * room for n. Returns their number, or -1 if a character is not in the alphabet. */
int64_t aril__alphabet_to_bytes(const char *text, size_t n, unsigned char *to);

/* Appends the spelling of n bytes. */
void aril__alphabet_add(aril__bytes *to, const unsigned char *bytes, size_t n);

#endif
