/* The chunks of arrays in HDF5 files, from their index: a B-tree, a fixed or extensible array, or
 * none. */
#include "formats/hdf5/inside.h"

#include "core/memory.h"

#include <stdlib.h>

/* Chunks do not overlap, and each place of the grid has one at most: so time and memory are limited
 * by the sizes of the file and of the array. */
static h5_problem add(h5_chunks *c, const h5_chunk *chunk)
{
    if (chunk->address == H5_NOWHERE) return H5_FINE; /* never written */
    for (int i = 0; i < c->data->shape.ndim; i++)
        if (chunk->at[i] >= c->grid[i]) return H5_FINE; /* the array was shrunk */
    if (c->n >= c->n_grid || chunk->size > c->file->n - c->stored) return H5_CHUNKS;
    c->stored += chunk->size;
    if (c->n == c->capacity) {
        size_t capacity = 2 * c->capacity + 16;
        h5_chunk *grown = aril__realloc(c->chunk, capacity * sizeof *grown);
        if (!grown) return H5_NO_MEMORY;
        c->chunk = grown;
        c->capacity = capacity;
    }
    c->chunk[c->n++] = *chunk;
    return H5_FINE;
}

/* ---- B-trees ---- */

static h5_problem old_chunk(void *ctx, h5_cursor key, uint64_t child)
{
    h5_chunks *c = ctx;
    h5_chunk chunk = { .address = child, .size = aril__h5_number(&key, 4) };
    chunk.mask = (uint32_t)aril__h5_number(&key, 4);
    for (int i = 0; i < c->data->shape.ndim; i++) {
        uint64_t at = aril__h5_number(&key, 8);
        if (at % c->dim[i]) return H5_CHUNKS;
        chunk.at[i] = at / c->dim[i];
    }
    return add(c, &chunk);
}

/* The bytes of a chunk's size in an index. */
static int size_width(const h5_chunks *c)
{
    int width = 1 + (aril__h5_log2(c->bytes) + 8) / 8;
    return width > 8 ? 8 : width;
}

static void element(h5_chunks *c, h5_cursor *from, h5_chunk *chunk)
{
    chunk->address = aril__h5_offset(c->file, from);
    chunk->size = c->is_filtered ? aril__h5_number(from, size_width(c)) : c->bytes;
    chunk->mask = c->is_filtered ? (uint32_t)aril__h5_number(from, 4) : 0;
}

static uint64_t element_size(const h5_chunks *c)
{
    return (uint64_t)c->file->offset_size + (c->is_filtered ? (uint64_t)size_width(c) + 4 : 0);
}

static h5_problem record(void *ctx, h5_cursor r)
{
    h5_chunks *c = ctx;
    h5_chunk chunk;
    element(c, &r, &chunk);
    for (int i = 0; i < c->data->shape.ndim; i++) chunk.at[i] = aril__h5_number(&r, 8);
    return r.bad ? H5_CHUNKS : add(c, &chunk);
}

/* ---- arrays of chunks, numbered in the grid of the largest shape ---- */

/* Where chunk `index` lies. An unlimited dimension varies slowest. */
static void place(const h5_chunks *c, uint64_t index, uint64_t *at)
{
    int n = c->data->shape.ndim, order[ARIL_MAX_DIMS], unlimited = 0;
    for (int i = 0; i < n; i++)
        if (c->data->most[i] == UINT64_MAX) unlimited = i;
    order[0] = unlimited;
    for (int i = 0, k = 1; i < n; i++)
        if (i != unlimited) order[k++] = i;
    for (int i = n - 1; i > 0; i--) {
        at[order[i]] = index % c->most[order[i]];
        index /= c->most[order[i]];
    }
    at[order[0]] = index;
}

/* Elements first ... of an array, as long as any chunk of the present grid may follow. */
static h5_problem elements(h5_chunks *c, h5_cursor *from, uint64_t first, uint64_t n)
{
    h5_problem p = H5_FINE;
    if (!aril__h5_step(c->file, n)) return H5_ENDLESS;
    for (uint64_t i = 0; i < n && p == H5_FINE; i++) {
        h5_chunk chunk;
        element(c, from, &chunk);
        place(c, first + i, chunk.at);
        p = from->bad ? H5_SHORT : add(c, &chunk);
    }
    return p;
}

static h5_problem implicit(h5_chunks *c)
{
    h5_problem p = H5_FINE;
    if (c->address == H5_NOWHERE) return H5_FINE;
    uint64_t all = 1;
    for (int i = 0; i < c->data->shape.ndim; i++)
        if (__builtin_mul_overflow(all, c->most[i], &all)) return H5_CHUNKS;
    if (all > c->file->n / c->bytes || !aril__h5_step(c->file, all)) return H5_CHUNKS;
    for (uint64_t i = 0; i < all && p == H5_FINE; i++) {
        h5_chunk chunk = { .address = c->address + i * c->bytes, .size = c->bytes };
        place(c, i, chunk.at);
        p = add(c, &chunk);
    }
    return p;
}

static bool bit(h5_cursor bits, uint64_t i)
{
    return i / 8 < bits.left && bits.at[i / 8] & 0x80 >> i % 8;
}

/* Pages of elements that follow each other, each with a checksum; those that were never written are
 * left out. */
static h5_problem pages(h5_chunks *c, uint64_t address, h5_cursor written, uint64_t bit_at,
                        uint64_t first, uint64_t n, uint64_t page)
{
    h5_problem p = H5_FINE;
    for (uint64_t i = 0; n > 0 && p == H5_FINE; i++) {
        uint64_t here = n < page ? n : page;
        h5_cursor from;
        if (!aril__h5_step(c->file, 1)) return H5_ENDLESS;
        if (bit(written, bit_at + i)) {
            p = aril__h5_block(c->file, address, here * element_size(c) + 4, "", &from);
            if (p == H5_FINE) p = elements(c, &from, first, here);
        }
        address += page * element_size(c) + 4;
        first += here;
        n -= here;
    }
    return p;
}

static h5_problem fixed_array(h5_chunks *c)
{
    h5_cursor from;
    uint64_t o = (uint64_t)c->file->offset_size;
    if (c->address == H5_NOWHERE) return H5_FINE;
    h5_problem p =
        aril__h5_block(c->file, c->address, 12 + (uint64_t)c->file->length_size + o, "FAHD", &from);
    if (p != H5_FINE) return p;
    aril__h5_bytes(&from, 2);
    uint64_t size = aril__h5_number(&from, 1), page_bits = aril__h5_number(&from, 1);
    uint64_t n = aril__h5_length(c->file, &from), block = aril__h5_offset(c->file, &from);
    if (from.bad || size != element_size(c) || page_bits > 30) return H5_CHUNKS;
    if (block == H5_NOWHERE) return H5_FINE;
    uint64_t page = UINT64_C(1) << page_bits, before = 6 + o;
    if (n <= page) {
        p = aril__h5_block(c->file, block, before + n * size + 4, "FADB", &from);
        aril__h5_bytes(&from, before - 4);
        return p == H5_FINE ? elements(c, &from, 0, n) : p;
    }
    if (n / page / 8 > c->file->n) return H5_CHUNKS;
    uint64_t bits = (n / page + (n % page != 0) + 7) / 8;
    p = aril__h5_block(c->file, block, before + bits + 4, "FADB", &from);
    if (p != H5_FINE) return p;
    aril__h5_bytes(&from, before - 4);
    return pages(c, block + before + bits + 4, from, 0, 0, n, page);
}

/* ---- extensible arrays ---- */

typedef struct extensible {
    uint64_t max_bits, index_elements, least, pointers, page, size;
    int number_size; /* of an element's number */
} extensible;

/* A super block holds `blocks` data blocks of `elements` each. */
static void super_block(const extensible *e, uint64_t u, uint64_t *blocks, uint64_t *n)
{
    *blocks = UINT64_C(1) << u / 2;
    *n = e->least << (u + 1) / 2;
}

static h5_problem data_block(h5_chunks *c, const extensible *e, uint64_t address, h5_cursor written,
                             uint64_t bit_at, uint64_t first, uint64_t n)
{
    h5_cursor from;
    uint64_t before = 6 + (uint64_t)c->file->offset_size + (uint64_t)e->number_size;
    if (address == H5_NOWHERE) return H5_FINE;
    if (n > c->file->n) return H5_CHUNKS;
    bool paged = n > e->page;
    h5_problem p =
        aril__h5_block(c->file, address, before + (paged ? 0 : n * e->size) + 4, "EADB", &from);
    if (p != H5_FINE) return p;
    if (paged) return pages(c, address + before + 4, written, bit_at, first, n, e->page);
    aril__h5_bytes(&from, before - 4);
    return elements(c, &from, first, n);
}

static h5_problem secondary(h5_chunks *c, const extensible *e, uint64_t address, uint64_t u,
                            uint64_t first)
{
    uint64_t blocks, n, o = (uint64_t)c->file->offset_size;
    super_block(e, u, &blocks, &n);
    if (blocks > c->file->n || n > c->file->n) return H5_CHUNKS;
    uint64_t before = 6 + o + (uint64_t)e->number_size;
    uint64_t block_bits = n > e->page ? (n / e->page + 7) / 8 : 0;
    h5_cursor from, bits;
    h5_problem p =
        aril__h5_block(c->file, address, before + blocks * (block_bits + o) + 4, "EASB", &from);
    if (p != H5_FINE) return p;
    aril__h5_bytes(&from, before - 4);
    bits = (h5_cursor){ .left = (size_t)(blocks * block_bits) };
    bits.at = aril__h5_bytes(&from, bits.left);
    if (from.bad) return H5_SHORT;
    for (uint64_t i = 0; i < blocks && p == H5_FINE; i++)
        p = data_block(c, e, aril__h5_offset(c->file, &from), bits, i * block_bits * 8,
                       first + i * n, n);
    return p;
}

/* The index block: elements, then addresses of the first data blocks, then of super blocks. */
static h5_problem index_block(h5_chunks *c, const extensible *e, uint64_t address)
{
    uint64_t o = (uint64_t)c->file->offset_size, first = e->index_elements;
    uint64_t supers = 1 + (e->max_bits - (uint64_t)aril__h5_log2(e->least));
    uint64_t direct = 2 * (uint64_t)aril__h5_log2(e->pointers);
    if (direct > supers) direct = supers;
    h5_cursor from, none = { 0 };
    uint64_t size =
        6 + o + e->index_elements * e->size + 2 * (e->pointers - 1) * o + (supers - direct) * o + 4;
    h5_problem p = aril__h5_block(c->file, address, size, "EAIB", &from);
    if (p != H5_FINE) return p;
    aril__h5_bytes(&from, 2 + o);
    p = elements(c, &from, 0, e->index_elements);
    for (uint64_t u = 0; u < supers && p == H5_FINE; u++) {
        uint64_t blocks, n;
        super_block(e, u, &blocks, &n);
        if (u >= direct) {
            uint64_t at = aril__h5_offset(c->file, &from);
            if (at != H5_NOWHERE) p = secondary(c, e, at, u, first);
        }
        for (uint64_t i = 0; u < direct && i < blocks && p == H5_FINE; i++)
            p = data_block(c, e, aril__h5_offset(c->file, &from), none, 0, first + i * n, n);
        first += blocks * n;
    }
    return p != H5_FINE ? p : from.bad ? H5_SHORT : H5_FINE;
}

static h5_problem extensible_array(h5_chunks *c)
{
    h5_cursor from;
    if (c->address == H5_NOWHERE) return H5_FINE;
    uint64_t l = (uint64_t)c->file->length_size, o = (uint64_t)c->file->offset_size;
    h5_problem p = aril__h5_block(c->file, c->address, 12 + 6 * l + o + 4, "EAHD", &from);
    if (p != H5_FINE) return p;
    extensible e = { 0 };
    aril__h5_bytes(&from, 2);
    e.size = aril__h5_number(&from, 1);
    e.max_bits = aril__h5_number(&from, 1);
    e.index_elements = aril__h5_number(&from, 1);
    e.least = aril__h5_number(&from, 1);
    e.pointers = aril__h5_number(&from, 1);
    uint64_t page_bits = aril__h5_number(&from, 1);
    aril__h5_bytes(&from, 6 * l);
    uint64_t block = aril__h5_offset(c->file, &from);
    if (from.bad || e.size != element_size(c) || e.max_bits < 1 || e.max_bits > 48 ||
        page_bits > 30 || e.least == 0 || (e.least & (e.least - 1)) != 0 || e.pointers < 1 ||
        (e.pointers & (e.pointers - 1)) != 0 || (uint64_t)aril__h5_log2(e.least) > e.max_bits)
        return H5_CHUNKS;
    e.page = UINT64_C(1) << page_bits;
    e.number_size = (int)(e.max_bits + 7) / 8;
    return block == H5_NOWHERE ? H5_FINE : index_block(c, &e, block);
}

/* ---- all ---- */

static h5_problem single(h5_chunks *c)
{
    h5_chunk chunk = { .address = c->address, .size = c->bytes };
    if (c->is_filtered) {
        chunk.size = aril__h5_length(c->file, &c->index);
        chunk.mask = (uint32_t)aril__h5_number(&c->index, 4);
    }
    return c->index.bad ? H5_LAYOUT : add(c, &chunk);
}

h5_problem aril__h5_chunk_list(h5_chunks *c)
{
    size_t key = 8 + 8 * ((size_t)c->data->shape.ndim + 1);
    switch (c->kind) {
    case 0: return aril__h5_leaves(c->file, c->address, 1, key, old_chunk, c);
    case 1: return single(c);
    case 2: return implicit(c);
    case 3: return fixed_array(c);
    case 4: return extensible_array(c);
    case 5: return aril__h5_records(c->file, c->address, c->is_filtered ? 11 : 10, record, c);
    default: return H5_LAYOUT;
    }
}
