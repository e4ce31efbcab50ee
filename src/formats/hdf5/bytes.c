/* Cursors over the bytes of an HDF5 file, checksums, and the superblock. */
#include "formats/hdf5/inside.h"

#include "core/error.h"

#include <string.h>

const char *aril__h5_text(h5_problem p)
{
    static const char *const texts[] = {
        "fine",
#define PROBLEM(id, status, text) text,
#include "formats/hdf5/problems.def"
#undef PROBLEM
    };
    return texts[p];
}

aril_status aril__h5_status(h5_problem p)
{
    static const aril_status all[] = {
        ARIL_OK,
#define PROBLEM(id, status, text) status,
#include "formats/hdf5/problems.def"
#undef PROBLEM
    };
    return all[p];
}

bool aril__h5_step(const aril__hdf5 *f, uint64_t n)
{
    if (n > INT32_MAX) return false;
    return atomic_fetch_sub_explicit(f->steps, (long long)n, memory_order_relaxed) > (long long)n;
}

/* ---- cursors ---- */

h5_cursor aril__h5_at(const aril__hdf5 *f, uint64_t address, uint64_t size)
{
    if (address > f->n || size > f->n - address) return (h5_cursor){ .bad = true };
    return (h5_cursor){ .at = f->at + address, .left = (size_t)size };
}

h5_cursor aril__h5_from(const aril__hdf5 *f, uint64_t address)
{
    return aril__h5_at(f, address, address > f->n ? 0 : f->n - address);
}

const unsigned char *aril__h5_bytes(h5_cursor *c, uint64_t n)
{
    if (c->bad || n > c->left) {
        *c = (h5_cursor){ .bad = true };
        return NULL;
    }
    const unsigned char *at = c->at;
    c->at += n;
    c->left -= (size_t)n;
    return at;
}

uint64_t aril__h5_number(h5_cursor *c, int size)
{
    const unsigned char *at = aril__h5_bytes(c, (uint64_t)size);
    uint64_t n = 0;
    for (int i = 0; at && i < size; i++) n |= (uint64_t)at[i] << 8 * i;
    return n;
}

uint64_t aril__h5_offset(const aril__hdf5 *f, h5_cursor *c)
{
    uint64_t n = aril__h5_number(c, f->offset_size), none = UINT64_MAX >> (64 - 8 * f->offset_size);
    return n == none ? H5_NOWHERE : n;
}

uint64_t aril__h5_length(const aril__hdf5 *f, h5_cursor *c)
{
    return aril__h5_number(c, f->length_size);
}

bool aril__h5_mark(h5_cursor *c, const char *text)
{
    const unsigned char *at = aril__h5_bytes(c, strlen(text));
    return at && memcmp(at, text, strlen(text)) == 0;
}

int aril__h5_log2(uint64_t n)
{
    return n ? 63 - __builtin_clzll(n) : 0;
}

int aril__h5_width(uint64_t limit)
{
    return aril__h5_log2(limit) / 8 + 1;
}

/* ---- checksums: Jenkins' lookup3 ---- */

bool aril__h5_ignore_checksums;

static uint32_t rotate(uint32_t x, int k)
{
    return x << k | x >> (32 - k);
}

static void mix(uint32_t s[3])
{
    static const int by[6] = { 4, 6, 8, 16, 19, 4 };
    for (int i = 0; i < 6; i++) { /* (a,b,c) in turn */
        uint32_t *a = &s[i % 3], *b = &s[(i + 1) % 3], *c = &s[(i + 2) % 3];
        *a -= *c;
        *a ^= rotate(*c, by[i]);
        *c += *b;
    }
}

static void finish(uint32_t s[3])
{
    static const int by[7] = { 14, 11, 25, 16, 4, 14, 24 };
    for (int i = 0; i < 7; i++) { /* c from b, a from c, b from a ... */
        uint32_t *to = &s[(i + 2) % 3], *from = &s[(i + 1) % 3];
        *to ^= *from;
        *to -= rotate(*from, by[i]);
    }
}

static uint32_t checksum(const unsigned char *at, size_t n)
{
    uint32_t s[3];
    s[0] = s[1] = s[2] = 0xdeadbeef + (uint32_t)n;
    for (; n > 12; at += 12, n -= 12) {
        for (int i = 0; i < 3; i++) s[i] += aril__le32(at + (size_t)4 * (size_t)i);
        mix(s);
    }
    if (n == 0) return s[2];
    for (size_t i = 0; i < n; i++) s[i / 4] += (uint32_t)at[i] << 8 * (i % 4);
    finish(s);
    return s[2];
}

h5_problem aril__h5_block(const aril__hdf5 *f, uint64_t address, uint64_t size, const char *mark,
                          h5_cursor *c)
{
    h5_cursor whole = aril__h5_at(f, address, size);
    if (whole.bad || size < 4 + strlen(mark)) return H5_SHORT;
    if (!aril__h5_step(f, size / 16 + 1)) return H5_ENDLESS;
    size_t n = whole.left - 4;
    *c = (h5_cursor){ .at = whole.at, .left = n };
    if (!aril__h5_mark(c, mark)) return H5_HEADER;
    if (checksum(whole.at, n) == aril__le32(whole.at + n)) return H5_FINE;
    return aril__h5_ignore_checksums ? H5_FINE : H5_CHECKSUM;
}

/* ---- the superblock ---- */

static h5_problem superblock(aril__hdf5 *f, const unsigned char *at, size_t n, size_t begin)
{
    h5_cursor c = { .at = at + begin, .left = n - begin };
    aril__h5_bytes(&c, 8);
    uint64_t version = aril__h5_number(&c, 1);
    if (version > 3) return H5_SUPERBLOCK;
    if (version < 2) aril__h5_bytes(&c, 4);
    f->offset_size = (int)aril__h5_number(&c, 1);
    f->length_size = (int)aril__h5_number(&c, 1);
    aril__h5_bytes(&c, version < 2 ? 9 + (version == 1 ? 4 : 0) : 1);
    for (int i = 0; i < 2; i++) {
        int size = i ? f->length_size : f->offset_size;
        if (size != 2 && size != 4 && size != 8) return H5_SUPERBLOCK;
    }
    /* Addresses are relative to the superblock, whatever the base address claims. */
    aril__h5_offset(f, &c);
    aril__h5_offset(f, &c);
    uint64_t end = aril__h5_offset(f, &c);
    if (version < 2) {
        aril__h5_offset(f, &c);
        aril__h5_offset(f, &c); /* the name of the first group */
    }
    f->root = aril__h5_offset(f, &c);
    const unsigned char *last = c.at;
    uint32_t sum = version < 2 ? 0 : (uint32_t)aril__h5_number(&c, 4);
    if (c.bad) return H5_SHORT;
    if (version >= 2 && sum != checksum(at + begin, (size_t)(last - at) - begin) &&
        !aril__h5_ignore_checksums)
        return H5_CHECKSUM;
    f->at = at + begin;
    f->n = n - begin;
    return end == H5_NOWHERE || end <= n ? H5_FINE : H5_SHORT; /* otherwise it was truncated */
}

size_t aril__hdf5_begin(const unsigned char *data, size_t n)
{
    static const unsigned char mark[8] = "\211HDF\r\n\032\n";
    for (size_t at = 0; at < n && n - at >= sizeof mark; at = at ? 2 * at : 512)
        if (memcmp(data + at, mark, sizeof mark) == 0) return at;
    return n;
}

h5_problem aril__h5_superblock(aril__hdf5 *f, const unsigned char *at, size_t n)
{
    size_t begin = aril__hdf5_begin(at, n);
    return begin < n ? superblock(f, at, n, begin) : H5_SUPERBLOCK;
}
