#include "text/unicode.h"

typedef struct range {
    uint32_t first, last;
    aril__char_class class;
} range;

static const range ranges[] = {
#define LETTER(a, b) { a, b, ARIL__CHAR_LETTER },
#define NUMBER(a, b) { a, b, ARIL__CHAR_NUMBER },
#include "text/unicode.inc"
};
enum { RANGES = sizeof ranges / sizeof *ranges };

static bool is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

aril__char_class aril__class_of(uint32_t c)
{
    if (is_space(c)) return ARIL__CHAR_SPACE;
    if (c < 0x80) {
        if ((c | 32) >= 'a' && (c | 32) <= 'z') return ARIL__CHAR_LETTER;
        return c >= '0' && c <= '9' ? ARIL__CHAR_NUMBER : ARIL__CHAR_OTHER;
    }
    int low = 0, high = RANGES - 1;
    while (low <= high) {
        int mid = (low + high) / 2;
        if (c < ranges[mid].first)
            high = mid - 1;
        else if (c > ranges[mid].last)
            low = mid + 1;
        else
            return ranges[mid].class;
    }
    return ARIL__CHAR_OTHER;
}

size_t aril__utf8_part(const unsigned char *p, size_t n, size_t *size)
{
    unsigned char c = p[0], low = 0x80, high = 0xbf; /* limits of the second byte */
    *size = c < 0x80 ? 1 : c < 0xc2 || c > 0xf4 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    if (c == 0xe0) low = 0xa0; /* neither overlong forms nor surrogates nor beyond U+10FFFF */
    if (c == 0xed) high = 0x9f;
    if (c == 0xf0) low = 0x90;
    if (c == 0xf4) high = 0x8f;
    size_t k = 1;
    for (; k < *size && k < n; k++) {
        if (p[k] < low || p[k] > high) {
            *size = 0;
            break;
        }
        low = 0x80, high = 0xbf;
    }
    return k;
}

aril__char_class aril__next_char(const unsigned char *p, size_t n, size_t *length)
{
    if (*p < 0x80) {
        *length = 1;
        return aril__class_of(*p);
    }
    size_t size, k = aril__utf8_part(p, n, &size);
    if (size == 0 || size > k) {
        *length = 1;
        return ARIL__CHAR_OTHER;
    }
    uint32_t c = *p & (0x7fu >> size);
    for (size_t i = 1; i < size; i++) c = c << 6 | (p[i] & 63u);
    *length = size;
    return aril__class_of(c);
}
