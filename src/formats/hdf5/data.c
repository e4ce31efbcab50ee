/* The data of arrays in HDF5 files: in the header, contiguous, or in chunks. */
#include "formats/hdf5/inside.h"

#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

/* Deflate compresses at most 1032 times. */
enum { MOST_TIMES = 1032, FREE_BYTES = 1 << 20 };

/* ---- elements that are not stored ---- */

static h5_cursor fill_value(const h5_object *o)
{
    h5_cursor c = o->fill, none = { 0 };
    if (!c.at) {
        c = o->old_fill;
        uint64_t size = c.at ? aril__h5_number(&c, 4) : 0;
        const unsigned char *at = c.at ? aril__h5_bytes(&c, size) : NULL;
        return at ? (h5_cursor){ .at = at, .left = (size_t)size } : none;
    }
    uint64_t version = aril__h5_number(&c, 1);
    bool defined;
    if (version < 3) {
        aril__h5_bytes(&c, 2);
        defined = aril__h5_number(&c, 1) != 0 || version == 1;
    } else {
        defined = aril__h5_number(&c, 1) & 32;
    }
    uint64_t size = defined ? aril__h5_number(&c, 4) : 0;
    const unsigned char *at = aril__h5_bytes(&c, size);
    return defined && at ? (h5_cursor){ .at = at, .left = (size_t)size } : none;
}

static void fill(const h5_data *d, unsigned char *to)
{
    h5_cursor value = fill_value(d->object);
    if (value.left != d->element) {
        memset(to, 0, d->bytes);
        return;
    }
    for (size_t i = 0; i < d->bytes; i += d->element) memcpy(to + i, value.at, d->element);
}

/* ---- chunks ---- */

/* Copies a chunk to its place, without what lies beyond the array. */
static void put(const h5_chunks *c, const h5_chunk *chunk, const unsigned char *from,
                unsigned char *to)
{
    const aril_shape *s = &c->data->shape;
    int last = s->ndim - 1;
    uint64_t begin[ARIL_MAX_DIMS], n[ARIL_MAX_DIMS], i[ARIL_MAX_DIMS] = { 0 };
    for (int k = 0; k < s->ndim; k++) {
        begin[k] = chunk->at[k] * c->dim[k];
        uint64_t rest = (uint64_t)s->dim[k] - begin[k];
        n[k] = rest < c->dim[k] ? rest : c->dim[k];
    }
    size_t element = c->data->element, row = (size_t)n[last] * element;
    for (;;) {
        uint64_t source = 0, target = 0;
        for (int k = 0; k < s->ndim; k++) {
            source = source * c->dim[k] + i[k];
            target = target * (uint64_t)s->dim[k] + begin[k] + i[k];
        }
        memcpy(to + target * element, from + source * element, row);
        int k = last - 1;
        while (k >= 0 && ++i[k] == n[k]) i[k--] = 0;
        if (k < 0) return;
    }
}

/* Is a chunk cut by the array's edge? */
static bool is_cut(const h5_chunks *c, const h5_chunk *chunk)
{
    for (int k = 0; k < c->data->shape.ndim; k++)
        if ((chunk->at[k] + 1) * c->dim[k] > (uint64_t)c->data->shape.dim[k]) return true;
    return false;
}

static h5_problem read_chunks(h5_chunks *c, unsigned char *to)
{
    h5_cursor none = { 0 };
    unsigned char *whole = c->n ? aril__malloc((size_t)c->bytes) : NULL;
    h5_problem p = c->n && !whole ? H5_NO_MEMORY : H5_FINE;
    fill(c->data, to);
    for (size_t i = 0; i < c->n && p == H5_FINE; i++) {
        const h5_chunk *chunk = &c->chunk[i];
        h5_cursor from = aril__h5_at(c->file, chunk->address, chunk->size);
        bool plain = c->whole_edges && is_cut(c, chunk);
        if (from.bad)
            p = H5_SHORT;
        else if (chunk->size > 0 && c->bytes / chunk->size > MOST_TIMES)
            p = H5_CLAIMED;
        else
            p = aril__h5_unfilter(c->file, plain ? none : c->data->object->filters, chunk->mask,
                                  c->data->element, from, whole, (size_t)c->bytes);
        if (p == H5_FINE) put(c, chunk, whole, to);
    }
    free(whole);
    return p;
}

/* The grid of chunks, and their size in bytes. */
static h5_problem measure(h5_chunks *c)
{
    const h5_data *d = c->data;
    c->bytes = d->element;
    c->n_grid = 1;
    for (int i = 0; i < d->shape.ndim; i++) {
        uint64_t size = (uint64_t)d->shape.dim[i], most = d->most[i];
        if (most == UINT64_MAX) most = size;
        if (c->dim[i] == 0 || c->dim[i] > UINT32_MAX) return H5_LAYOUT;
        c->grid[i] = size / c->dim[i] + (size % c->dim[i] != 0);
        c->most[i] = most / c->dim[i] + (most % c->dim[i] != 0);
        if (c->most[i] == 0) c->most[i] = 1;
        if (__builtin_mul_overflow(c->bytes, c->dim[i], &c->bytes) ||
            __builtin_mul_overflow(c->n_grid, c->grid[i], &c->n_grid))
            return H5_LAYOUT;
    }
    return c->bytes > UINT32_MAX ? H5_LAYOUT : H5_FINE;
}

static h5_problem chunked(h5_data *d, h5_chunks *c, void *to)
{
    c->file = d->file;
    c->data = d;
    h5_problem p = measure(c);
    if (p == H5_FINE && c->n_grid > 0) p = aril__h5_chunk_list(c);
    uint64_t stored = c->stored * MOST_TIMES + FREE_BYTES; /* stored <= the file's size */
    if (p == H5_FINE && d->bytes > stored) p = H5_CLAIMED;
    if (p == H5_FINE && to && d->bytes > 0) p = read_chunks(c, to);
    free(c->chunk);
    return p;
}

/* ---- layouts ---- */

static h5_problem contiguous(h5_data *d, uint64_t address, void *to)
{
    if (address == H5_NOWHERE) {
        if (d->bytes > FREE_BYTES) return H5_CLAIMED;
        if (to) fill(d, to);
        return H5_FINE;
    }
    h5_cursor c = aril__h5_at(d->file, address, d->bytes);
    if (c.bad) return H5_SHORT;
    if (to && d->bytes) memcpy(to, c.at, d->bytes);
    return H5_FINE;
}

static h5_problem compact(h5_data *d, h5_cursor c, uint64_t size, void *to)
{
    const unsigned char *at = aril__h5_bytes(&c, size);
    if (!at || size < d->bytes) return H5_LAYOUT;
    if (to && d->bytes) memcpy(to, at, d->bytes);
    return H5_FINE;
}

/* The sizes of a chunk, of which the last is an element's bytes. */
static bool sizes(h5_chunks *c, h5_data *d, h5_cursor *from, uint64_t n, int width)
{
    if (n != (uint64_t)d->shape.ndim + 1 || n < 2) return false;
    for (uint64_t i = 0; i + 1 < n; i++) c->dim[i] = aril__h5_number(from, width);
    return aril__h5_number(from, width) == d->element && !from->bad;
}

static h5_problem version_1(h5_data *d, h5_cursor c, void *to)
{
    h5_chunks chunks = { 0 };
    uint64_t n = aril__h5_number(&c, 1), class = aril__h5_number(&c, 1);
    aril__h5_bytes(&c, 5);
    if (class != 0) chunks.address = aril__h5_offset(d->file, &c);
    if (class == 2) return sizes(&chunks, d, &c, n, 4) ? chunked(d, &chunks, to) : H5_LAYOUT;
    aril__h5_bytes(&c, 4 * n);
    if (c.bad || class > 2) return H5_LAYOUT;
    if (class == 1) return contiguous(d, chunks.address, to);
    uint64_t size = aril__h5_number(&c, 4);
    return compact(d, c, size, to);
}

static h5_problem version_4(h5_data *d, h5_cursor c, void *to)
{
    h5_chunks chunks = { 0 };
    uint64_t flags = aril__h5_number(&c, 1), n = aril__h5_number(&c, 1);
    int width = (int)aril__h5_number(&c, 1);
    if (width < 1 || width > 8 || !sizes(&chunks, d, &c, n, width)) return H5_LAYOUT;
    chunks.kind = (int)aril__h5_number(&c, 1);
    chunks.whole_edges = flags & 1;
    static const unsigned char parameters[6] = { 0, 0, 0, 1, 5, 6 };
    if (chunks.kind < 1 || chunks.kind > 5) return H5_LAYOUT;
    chunks.is_filtered = chunks.kind == 1 ? flags & 2 : d->object->filters.at != NULL;
    chunks.index = c;
    if (chunks.kind == 1 && chunks.is_filtered)
        aril__h5_bytes(&c, (uint64_t)d->file->length_size + 4);
    aril__h5_bytes(&c, parameters[chunks.kind]);
    chunks.address = aril__h5_offset(d->file, &c);
    return c.bad ? H5_LAYOUT : chunked(d, &chunks, to);
}

static h5_problem version_3(h5_data *d, h5_cursor c, uint64_t version, void *to)
{
    uint64_t class = aril__h5_number(&c, 1);
    if (class == 0) {
        uint64_t size = aril__h5_number(&c, 2);
        return compact(d, c, size, to);
    }
    if (class == 3) return H5_OUTSIDE; /* virtual: made of arrays of other files */
    if (class > 3) return H5_LAYOUT;
    if (class == 2 && version == 4) return version_4(d, c, to);
    uint64_t n = class == 2 ? aril__h5_number(&c, 1) : 0;
    uint64_t address = aril__h5_offset(d->file, &c);
    if (c.bad) return H5_LAYOUT;
    if (class == 1) return contiguous(d, address, to);
    h5_chunks chunks = { .address = address };
    return sizes(&chunks, d, &c, n, 4) ? chunked(d, &chunks, to) : H5_LAYOUT;
}

h5_problem aril__h5_data(h5_data *d, void *to)
{
    h5_cursor c = d->object->layout;
    uint64_t version = aril__h5_number(&c, 1);
    if (d->object->is_external) return H5_OUTSIDE;
    if (!d->object->layout.at || version < 1) return H5_LAYOUT;
    if (version > 4) return H5_VERSION;
    return version <= 2 ? version_1(d, c, to) : version_3(d, c, version, to);
}
