#include "formats/crc32c.h"

#include <pthread.h>

/* Row k is for the byte that k others follow: eight bytes are taken at a time. */
static uint32_t table[8][256];

static void make_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = c & 1 ? c >> 1 ^ 0x82f63b78u : c >> 1;
        table[0][i] = c;
    }
    for (int k = 1; k < 8; k++)
        for (uint32_t i = 0; i < 256; i++)
            table[k][i] = table[k - 1][i] >> 8 ^ table[0][table[k - 1][i] & 0xff];
}

uint32_t aril__masked_crc32c(const void *data, size_t n)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const unsigned char *at = data;
    uint32_t c = 0xffffffffu;
    pthread_once(&once, make_table);
    for (; n >= 8; n -= 8, at += 8) {
        c ^= at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        c = table[7][c & 0xff] ^ table[6][c >> 8 & 0xff] ^ table[5][c >> 16 & 0xff] ^
            table[4][c >> 24] ^ table[3][at[4]] ^ table[2][at[5]] ^ table[1][at[6]] ^
            table[0][at[7]];
    }
    for (; n > 0; n--, at++) c = table[0][(c ^ *at) & 0xff] ^ c >> 8;
    c = ~c;
    return (c >> 15 | c << 17) + 0xa282ead8u;
}
