/* Characters of UTF-8 text, and their classes. */
#ifndef ARIL_TEXT_UNICODE_H
#define ARIL_TEXT_UNICODE_H

#include "aril/base.h"

typedef enum aril__char_class {
    ARIL__CHAR_OTHER,
    ARIL__CHAR_LETTER, /* categories L* */
    ARIL__CHAR_NUMBER, /* categories N* */
    ARIL__CHAR_SPACE,  /* White_Space */
} aril__char_class;

aril__char_class aril__class_of(uint32_t code);

/* The class of the character at p, of which at most n > 0 bytes may be read, and its length. A byte
 * that is not part of a valid character is a character of class OTHER. */
aril__char_class aril__next_char(const unsigned char *p, size_t n, size_t *length);

/* The length of the longest beginning of the n > 0 bytes at p that may begin a character, at least
 * 1; sets *size to the length of the whole character, 0 if p begins none. With *size above n and
 * the result equal to n, more bytes can complete it. */
size_t aril__utf8_part(const unsigned char *p, size_t n, size_t *size);

#endif
