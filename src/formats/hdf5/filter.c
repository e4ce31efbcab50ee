/* Filters of chunks in HDF5 files: deflate, shuffle, and Fletcher's checksum. */
#include "formats/hdf5/inside.h"

#include "core/error.h"
#include "core/memory.h"
#include "formats/gzip.h"

#include <stdlib.h>
#include <string.h>

enum { DEFLATE = 1, SHUFFLE = 2, FLETCHER = 3, MAX_FILTERS = 32 };

/* ---- the filters ---- */

static uint32_t adler(const unsigned char *at, size_t n)
{
    uint32_t a = 1, b = 0;
    while (n > 0) {
        size_t part = n < 5552 ? n : 5552; /* as many as cannot overflow */
        for (size_t i = 0; i < part; i++) b += a += at[i];
        a %= 65521;
        b %= 65521;
        at += part;
        n -= part;
    }
    return b << 16 | a;
}

/* zlib's frame around a raw stream: two bytes, and a checksum. */
static h5_problem unpack(const aril__hdf5 *f, h5_cursor from, unsigned char *to, size_t want)
{
    if (from.left < 6 || (from.at[0] & 15) != 8 || (from.at[0] << 8 | from.at[1]) % 31 != 0 ||
        (from.at[1] & 32) != 0)
        return H5_FILTER;
    if (aril__inflate("HDF5", f->path, from.at + 2, from.left - 6, to, want) != ARIL_OK)
        return H5_REPORTED;
    return adler(to, want) == aril__be32(from.at + from.left - 4) ? H5_FINE : H5_FILTER;
}

/* Shuffled: first bytes of all elements, then second bytes ... and what does not fill an element.
 */
static void unshuffle(const unsigned char *from, unsigned char *to, size_t n, size_t element)
{
    size_t count = n / element;
    for (size_t k = 0; count > 0 && k < element; k++)
        for (size_t i = 0; i < count; i++) to[i * element + k] = from[k * count + i];
    if (n > count * element)
        memcpy(to + count * element, from + count * element, n - count * element);
}

static uint32_t fold(uint32_t x)
{
    return (x & 0xffff) + (x >> 16);
}

static uint32_t fletcher(const unsigned char *at, size_t n)
{
    uint32_t a = 0, b = 0;
    for (size_t words = n / 2; words > 0;) {
        size_t part = words < 360 ? words : 360;
        words -= part;
        for (; part > 0; part--, at += 2) {
            a += (uint32_t)(at[0] << 8 | at[1]);
            b += a;
        }
        a = fold(a);
        b = fold(b);
    }
    if (n % 2) {
        a += (uint32_t)(*at << 8);
        b += a;
        a = fold(a);
        b = fold(b);
    }
    return fold(b) << 16 | fold(a);
}

/* Old versions of the library swapped the bytes of each half. */
static bool fletcher_agrees(const unsigned char *at, size_t n, uint32_t stored)
{
    uint32_t sum = fletcher(at, n), swapped = (sum & 0x00ff00ff) << 8 | (sum & 0xff00ff00) >> 8;
    return stored == sum || stored == swapped;
}

/* ---- the pipeline ---- */

typedef struct pipeline {
    int n, id[MAX_FILTERS];
    uint32_t element[MAX_FILTERS]; /* shuffle's own size of an element; 0: not given */
} pipeline;

static h5_problem parse(h5_cursor c, pipeline *p)
{
    uint64_t version = aril__h5_number(&c, 1);
    *p = (pipeline){ .n = (int)aril__h5_number(&c, 1) };
    if (version == 1) aril__h5_bytes(&c, 6);
    if (c.bad || version < 1 || version > 2 || p->n > MAX_FILTERS) return H5_LAYOUT;
    for (int i = 0; i < p->n; i++) {
        p->id[i] = (int)aril__h5_number(&c, 2);
        uint64_t name = version == 1 || p->id[i] >= 256 ? aril__h5_number(&c, 2) : 0;
        aril__h5_bytes(&c, 2);
        uint64_t values = aril__h5_number(&c, 2);
        aril__h5_bytes(&c, version == 1 ? (name + 7) & ~UINT64_C(7) : name);
        for (uint64_t k = 0; k < values && !c.bad; k++) {
            uint32_t value = (uint32_t)aril__h5_number(&c, 4);
            if (k == 0) p->element[i] = value;
        }
        if (version == 1 && values % 2) aril__h5_bytes(&c, 4);
        if (c.bad) return H5_LAYOUT;
    }
    return H5_FINE;
}

/* Undoes one filter: *from becomes what it was made of, in `to`, or a part of it. */
static h5_problem undo(const aril__hdf5 *f, const pipeline *l, int i, size_t element,
                       h5_cursor *from, unsigned char *to, size_t want)
{
    if (l->id[i] == FLETCHER) {
        if (from->left < 4) return H5_FILTER;
        from->left -= 4;
        uint32_t stored = aril__le32(from->at + from->left);
        return fletcher_agrees(from->at, from->left, stored) ? H5_FINE : H5_FILTER;
    }
    /* What is unpacked may still hold the checksums of filters before it. */
    for (int k = 0; k < i; k++) want += l->id[k] == FLETCHER ? 4 : 0;
    if (l->id[i] == DEFLATE) {
        h5_problem p = unpack(f, *from, to, want);
        if (p != H5_FINE) return p;
    } else {
        size_t size = l->element[i] ? l->element[i] : element;
        if (from->left != want) return H5_FILTER;
        unshuffle(from->at, to, want, size);
    }
    *from = (h5_cursor){ .at = to, .left = want };
    return H5_FINE;
}

h5_problem aril__h5_unfilter(const aril__hdf5 *f, h5_cursor filters, uint32_t mask, size_t element,
                             h5_cursor from, unsigned char *to, size_t want)
{
    pipeline l;
    h5_problem p = filters.at ? parse(filters, &l) : H5_FINE;
    if (p != H5_FINE) return p;
    if (!filters.at) l.n = 0;
    int kept = 0;
    for (int i = 0; i < l.n; i++) {
        if (mask >> i & 1) continue;
        if (l.id[i] < DEFLATE || l.id[i] > FLETCHER) return H5_OTHER_FILTER;
        l.element[kept] = l.element[i];
        l.id[kept++] = l.id[i];
    }
    l.n = kept;
    /* Each step goes to the buffer that the one before did not use. */
    size_t room = want + 4 * (size_t)l.n;
    unsigned char *buffer[2] = { NULL, NULL };
    for (int i = l.n - 1, k = 0; i >= 0 && p == H5_FINE; i--) {
        if (l.id[i] != FLETCHER) {
            k = !k;
            if (!buffer[k]) buffer[k] = aril__malloc(room ? room : 1);
            if (!buffer[k]) p = H5_NO_MEMORY;
        }
        if (p == H5_FINE) p = undo(f, &l, i, element, &from, buffer[k], want);
    }
    if (p == H5_FINE && from.left != want) p = H5_FILTER;
    if (p == H5_FINE && want) memcpy(to, from.at, want);
    free(buffer[0]);
    free(buffer[1]);
    return p;
}
