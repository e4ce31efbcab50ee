#include "text/alphabet.h"

static bool stands_for_itself(unsigned c)
{
    return (c >= '!' && c <= '~') || (c >= 0xa1 && c <= 0xac) || c >= 0xae;
}

uint32_t aril__alphabet_code(unsigned char byte)
{
    if (stands_for_itself(byte)) return byte;
    /* In order: 0..32, 127..160, 173. */
    return byte <= 32 ? 0x100u + byte : byte < 173 ? 0x100u + 33 + byte - 127 : 0x100u + 67;
}

/* The byte of a code point; -1: not in the alphabet. */
static int byte_of(uint32_t code)
{
    if (code < 0x100) return stands_for_itself(code) ? (int)code : -1;
    uint32_t k = code - 0x100;
    return k < 33 ? (int)k : k < 67 ? (int)(k - 33 + 127) : k == 67 ? 173 : -1;
}

int64_t aril__alphabet_to_bytes(const char *text, size_t n, unsigned char *to)
{
    const unsigned char *p = (const unsigned char *)text;
    int64_t count = 0;
    for (size_t i = 0; i < n;) {
        int length = aril__utf8_length(p + i, n - i);
        if (length < 1 || length > 2) return -1;
        int byte = byte_of(length == 1 ? p[i] : (p[i] & 31u) << 6 | (p[i + 1] & 63u));
        if (byte < 0) return -1;
        to[count++] = (unsigned char)byte;
        i += (size_t)length;
    }
    return count;
}

void aril__alphabet_add(aril__bytes *to, const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t c = aril__alphabet_code(bytes[i]);
        unsigned char u[2] = { (unsigned char)(0xc0 | c >> 6), (unsigned char)(0x80 | (c & 63)) };
        if (c < 0x80) u[0] = (unsigned char)c;
        aril__bytes_add(to, u, c < 0x80 ? 1 : 2);
    }
}
