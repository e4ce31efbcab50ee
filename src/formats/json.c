#include "formats/json.h"

#include "formats/bytes.h"
#include "formats/number.h"

#include <stdlib.h>
#include <string.h>

enum { DEPTH = 64 }; /* maximum nesting */

bool aril__json_wrong(aril__json *j, const char *what)
{
    if (!j->wrong) j->wrong = what;
    return false;
}

char aril__json_peek(aril__json *j)
{
    if (j->wrong) return 0;
    while (j->at < j->size && memchr(" \t\r\n", j->text[j->at], 4)) j->at++;
    return j->at < j->size ? j->text[j->at] : 0;
}

static bool expect(aril__json *j, char c, const char *what)
{
    if (aril__json_peek(j) != c || j->wrong) return aril__json_wrong(j, what);
    j->at++;
    return true;
}

bool aril__json_enter(aril__json *j, char bracket)
{
    if (!expect(j, bracket, bracket == '{' ? "an object was expected" : "an array was expected"))
        return false;
    if (++j->depth > DEPTH) return aril__json_wrong(j, "brackets are nested too deep");
    if (aril__json_peek(j) == (bracket == '{' ? '}' : ']')) {
        j->at++;
        j->depth--;
        return false;
    }
    return !j->wrong;
}

bool aril__json_more(aril__json *j, char bracket)
{
    char c = aril__json_peek(j);
    if (j->wrong) return false;
    if (c == ',') {
        j->at++;
        return true;
    }
    if (c != bracket)
        return aril__json_wrong(j, bracket == '}' ? "',' or '}' was expected"
                                                  : "',' or ']' was expected");
    j->at++;
    j->depth--;
    return false;
}

static int hex(const char *p)
{
    int v = 0;
    for (int i = 0; i < 4; i++) {
        int c = p[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) return -1;
        v = v * 16 + digit;
    }
    return v;
}

static void add_character(aril__bytes *b, uint32_t c)
{
    unsigned char u[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6) u[i] = (unsigned char)(0x80 | (c & 63));
    u[0] = (unsigned char)(n == 1 ? c : (0xf00u >> n & 0xff) | c);
    aril__bytes_add(b, u, n);
}

/* Decodes the escape after the backslash at j->at - 1. */
static bool escape(aril__json *j, aril__bytes *b)
{
    char c = j->at < j->size ? j->text[j->at++] : 0;
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *known = c ? strchr(from, c) : NULL;
    if (known) {
        aril__bytes_add(b, to + (known - from), 1);
        return true;
    }
    int v = c == 'u' && j->size - j->at >= 4 ? hex(j->text + j->at) : -1;
    if (v < 0) return aril__json_wrong(j, "an unknown escape in a string");
    if (v == 0) return aril__json_wrong(j, "a 0 character in a string");
    j->at += 4;
    uint32_t code = (uint32_t)v;
    if (code >= 0xd800 && code < 0xe000) { /* half of a surrogate pair */
        int low = j->size - j->at >= 6 && j->text[j->at] == '\\' && j->text[j->at + 1] == 'u'
                      ? hex(j->text + j->at + 2)
                      : -1;
        if (code >= 0xdc00 || low < 0xdc00 || low >= 0xe000)
            return aril__json_wrong(j, "half of a surrogate pair in a string");
        j->at += 6;
        code = 0x10000 + ((code - 0xd800) << 10) + ((uint32_t)low - 0xdc00);
    }
    add_character(b, code);
    return true;
}

/* Skips a string; appends it to b if given. */
static bool string(aril__json *j, aril__bytes *b)
{
    if (!expect(j, '"', "a string was expected")) return false;
    const unsigned char *text = (const unsigned char *)j->text;
    while (j->at < j->size) {
        size_t begin = j->at;
        while (j->at < j->size && text[j->at] >= 0x20 && text[j->at] < 0x7f && text[j->at] != '"' &&
               text[j->at] != '\\')
            j->at++;
        if (b) aril__bytes_add(b, text + begin, j->at - begin);
        if (j->at == j->size) break;
        if (text[j->at] == '"') {
            j->at++;
            return true;
        }
        if (text[j->at] == '\\') {
            aril__bytes none = { .failed = true };
            j->at++;
            if (!escape(j, b ? b : &none)) return false;
            continue;
        }
        int length = text[j->at] < 0x20 ? 0 : aril__utf8_length(text + j->at, j->size - j->at);
        if (length == 0) return aril__json_wrong(j, "a string is not UTF-8 text");
        if (b) aril__bytes_add(b, text + j->at, (size_t)length);
        j->at += (size_t)length;
    }
    return aril__json_wrong(j, "a string without an end");
}

char *aril__json_string(aril__json *j)
{
    aril__bytes b = { 0 };
    aril__bytes_add(&b, "", 0); /* allocate memory even for an empty string */
    if (string(j, &b) && !b.failed) return (char *)b.at;
    if (b.failed && !j->wrong) {
        j->memory = true;
        aril__json_wrong(j, "memory is out");
    }
    aril__bytes_free(&b);
    return NULL;
}

char *aril__json_key(aril__json *j)
{
    char *key = aril__json_string(j);
    if (key && expect(j, ':', "':' was expected")) return key;
    free(key);
    return NULL;
}

static bool digits(aril__json *j)
{
    size_t begin = j->at;
    while (j->at < j->size && j->text[j->at] >= '0' && j->text[j->at] <= '9') j->at++;
    return j->at > begin;
}

/* Skips a number and returns where it began. */
static bool number(aril__json *j, size_t *begin)
{
    char c = aril__json_peek(j);
    *begin = j->at;
    if (c == '-') j->at++;
    size_t first = j->at;
    bool good = !j->wrong && digits(j) && !(j->text[first] == '0' && j->at > first + 1);
    if (good && j->at < j->size && j->text[j->at] == '.') {
        j->at++;
        good = digits(j);
    }
    if (good && j->at < j->size && (j->text[j->at] | 32) == 'e') {
        j->at++;
        if (j->at < j->size && (j->text[j->at] == '+' || j->text[j->at] == '-')) j->at++;
        good = digits(j);
    }
    return good || aril__json_wrong(j, "a number was expected");
}

bool aril__json_number(aril__json *j, double *value)
{
    size_t begin;
    if (!number(j, &begin)) return false;
    return aril__parse_number(j->text + begin, j->at - begin, value) ||
           aril__json_wrong(j, "a number of too many digits");
}

bool aril__json_unsigned(aril__json *j, uint64_t *value)
{
    size_t begin;
    if (!number(j, &begin)) return false;
    uint64_t v = 0;
    for (size_t i = begin; i < j->at; i++) {
        char c = j->text[i];
        if (c < '0' || c > '9') return aril__json_wrong(j, "an integer was expected");
        if (__builtin_mul_overflow(v, 10u, &v) ||
            __builtin_add_overflow(v, (uint64_t)(c - '0'), &v))
            return aril__json_wrong(j, "a number is too large");
    }
    *value = v;
    return true;
}

static bool word(aril__json *j, const char *text)
{
    size_t n = strlen(text);
    if (j->size - j->at < n || memcmp(j->text + j->at, text, n) != 0)
        return aril__json_wrong(j, "a value was expected");
    j->at += n;
    return true;
}

bool aril__json_skip(aril__json *j)
{
    size_t begin;
    char c = aril__json_peek(j);
    switch (c) {
    case '"': return string(j, NULL);
    case 't': return word(j, "true");
    case 'f': return word(j, "false");
    case 'n': return word(j, "null");
    case '[':
        for (bool more = aril__json_enter(j, '['); more; more = aril__json_more(j, ']'))
            aril__json_skip(j);
        return !j->wrong;
    case '{':
        for (bool more = aril__json_enter(j, '{'); more; more = aril__json_more(j, '}'))
            if (string(j, NULL) && expect(j, ':', "':' was expected")) aril__json_skip(j);
        return !j->wrong;
    default: return number(j, &begin);
    }
}

bool aril__json_end(aril__json *j)
{
    aril__json_peek(j);
    if (!j->wrong && j->at < j->size) aril__json_wrong(j, "something follows the end");
    return !j->wrong;
}
