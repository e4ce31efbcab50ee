#include "formats/sha256.h"

#include <string.h>
#include <strings.h>

static const uint32_t initial[8] = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                     0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 };

static const uint32_t round_constant[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2
};

static uint32_t turn(uint32_t x, int bits)
{
    return x >> bits | x << (32 - bits);
}

static uint32_t read_big(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* The message schedule: 64 words from the 16 of a block. */
static void expand(const unsigned char *block, uint32_t w[64])
{
    for (int i = 0; i < 16; i++) w[i] = read_big(block + 4 * i);
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + w[i - 7] +
               (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
    }
}

/* One round. The caller renames the eight words from round to round instead of moving them. */
static inline void turn_words(uint32_t a, uint32_t b, uint32_t c, uint32_t *d, uint32_t e,
                              uint32_t f, uint32_t g, uint32_t *h, uint32_t addend)
{
    uint32_t t = *h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + addend;
    *d += t;
    *h = t + (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
}

static void add_block(uint32_t state[8], const unsigned char *block)
{
    uint32_t w[64];
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    expand(block, w);
    for (int i = 0; i < 64; i++) w[i] += round_constant[i];
    for (int i = 0; i < 64; i += 8) {
        turn_words(a, b, c, &d, e, f, g, &h, w[i]);
        turn_words(h, a, b, &c, d, e, f, &g, w[i + 1]);
        turn_words(g, h, a, &b, c, d, e, &f, w[i + 2]);
        turn_words(f, g, h, &a, b, c, d, &e, w[i + 3]);
        turn_words(e, f, g, &h, a, b, c, &d, w[i + 4]);
        turn_words(d, e, f, &g, h, a, b, &c, w[i + 5]);
        turn_words(c, d, e, &f, g, h, a, &b, w[i + 6]);
        turn_words(b, c, d, &e, f, g, h, &a, w[i + 7]);
    }
    const uint32_t s[8] = { a, b, c, d, e, f, g, h };
    for (int i = 0; i < 8; i++) state[i] += s[i];
}

void aril__sha256_start(aril__sha256 *h)
{
    *h = (aril__sha256){ 0 };
    memcpy(h->state, initial, sizeof initial);
}

void aril__sha256_add(aril__sha256 *h, const void *data, size_t size)
{
    const unsigned char *p = data;
    size_t used = h->length % 64;
    h->length += size;
    if (used > 0) {
        size_t n = 64 - used < size ? 64 - used : size;
        memcpy(h->rest + used, p, n);
        if (used + n < 64) return;
        add_block(h->state, h->rest);
        p += n;
        size -= n;
    }
    for (; size >= 64; p += 64, size -= 64) add_block(h->state, p);
    if (size > 0) memcpy(h->rest, p, size);
}

void aril__sha256_text(const aril__sha256 *h, char text[ARIL__SHA256_HEX + 1])
{
    static const unsigned char padding[64] = { 0x80 };
    aril__sha256 end = *h;
    unsigned char bits[8];
    for (int i = 0; i < 8; i++) bits[i] = (unsigned char)(8 * h->length >> (56 - 8 * i));
    size_t used = h->length % 64;
    aril__sha256_add(&end, padding, used < 56 ? 56 - used : 120 - used);
    aril__sha256_add(&end, bits, sizeof bits);
    for (int i = 0; i < ARIL__SHA256_HEX; i++)
        text[i] = "0123456789abcdef"[end.state[i / 8] >> (28 - 4 * (i % 8)) & 15];
    text[ARIL__SHA256_HEX] = '\0';
}

bool aril__sha256_matches(const char *text, const char *published)
{
    size_t n = strlen(published);
    return n >= 8 && n <= ARIL__SHA256_HEX && strncasecmp(text, published, n) == 0;
}
