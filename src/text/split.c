#include "text/split.h"

#include "text/unicode.h"

#include <string.h>

/* The length of an English ending at an apostrophe, 0: there is none. */
static size_t contraction(const unsigned char *p, size_t n)
{
    static const char endings[][3] = { "s", "t", "re", "ve", "m", "ll", "d" };
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t k = strlen(endings[i]);
        if (n > k && memcmp(p + 1, endings[i], k) == 0) return k + 1;
    }
    return 0;
}

/* The end of the characters of one class from `at` on. */
static size_t run_of(aril__char_class class, const unsigned char *p, size_t n, size_t at)
{
    size_t length;
    while (at < n && aril__next_char(p + at, n - at, &length) == class) at += length;
    return at;
}

/* White space up to the end of the text, or all but its last character, which belongs to the next
 * word if that is a space. */
static size_t spaces(const unsigned char *p, size_t n)
{
    size_t at = 0, last = 0, length;
    while (at < n && aril__next_char(p + at, n - at, &length) == ARIL__CHAR_SPACE) {
        last = at;
        at += length;
    }
    return at == n || last == 0 ? at : last;
}

size_t aril__word_length(const unsigned char *p, size_t n)
{
    size_t length = *p == '\'' ? contraction(p, n) : 0;
    if (length) return length;
    size_t at = *p == ' ' && n > 1; /* a space in front belongs to a word */
    aril__char_class class = aril__next_char(p + at, n - at, &length);
    return class == ARIL__CHAR_SPACE ? spaces(p, n) : run_of(class, p, n, at + length);
}
