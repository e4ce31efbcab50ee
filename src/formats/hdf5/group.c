/* Groups of HDF5 files: symbol tables, and link messages in headers and in fractal heaps. */
#include "formats/hdf5/inside.h"

#include <string.h>

/* ---- symbol tables ---- */

typedef struct symbols {
    const aril__hdf5 *file;
    h5_cursor names; /* the local heap's data */
    h5_each_link *each;
    void *ctx;
} symbols;

/* A text of the local heap, which ends with NUL inside it. */
static bool heap_text(const symbols *s, uint64_t at, const char **text, size_t *size)
{
    if (at >= s->names.left) return false;
    *text = (const char *)s->names.at + at;
    const char *end = memchr(*text, 0, s->names.left - (size_t)at);
    *size = end ? (size_t)(end - *text) : 0;
    return end && aril__h5_step(s->file, *size / 16);
}

static h5_problem symbol(const symbols *s, h5_cursor *c)
{
    uint64_t name = aril__h5_offset(s->file, c);
    h5_link link = { .address = aril__h5_offset(s->file, c) };
    uint64_t cache = aril__h5_number(c, 4);
    aril__h5_bytes(c, 4);
    uint64_t target = aril__h5_number(c, 4);
    aril__h5_bytes(c, 12);
    if (c->bad) return H5_SHORT;
    if (!heap_text(s, name, &link.name, &link.name_size)) return H5_LINKS;
    if (cache == 2 && !heap_text(s, target, &link.target, &link.target_size)) return H5_LINKS;
    return s->each(s->ctx, &link);
}

static h5_problem symbol_node(void *ctx, h5_cursor key, uint64_t child)
{
    const symbols *s = ctx;
    (void)key;
    h5_cursor c = aril__h5_from(s->file, child);
    if (!aril__h5_mark(&c, "SNOD")) return H5_LINKS;
    aril__h5_bytes(&c, 2);
    uint64_t n = aril__h5_number(&c, 2);
    h5_problem p = c.bad ? H5_SHORT : H5_FINE;
    for (uint64_t i = 0; p == H5_FINE && i < n; i++)
        p = aril__h5_step(s->file, 1) ? symbol(s, &c) : H5_ENDLESS;
    return p;
}

h5_problem aril__h5_symbols(const aril__hdf5 *f, h5_cursor message, h5_each_link *each, void *ctx)
{
    symbols s = { .file = f, .each = each, .ctx = ctx };
    uint64_t tree = aril__h5_offset(f, &message), heap = aril__h5_offset(f, &message);
    h5_cursor c = aril__h5_from(f, heap);
    if (message.bad || !aril__h5_mark(&c, "HEAP")) return H5_LINKS;
    aril__h5_bytes(&c, 4);
    uint64_t size = aril__h5_length(f, &c);
    aril__h5_length(f, &c);
    s.names = aril__h5_at(f, aril__h5_offset(f, &c), size);
    if (c.bad || s.names.bad) return H5_LINKS;
    return aril__h5_leaves(f, tree, 0, (size_t)f->length_size, symbol_node, &s);
}

/* ---- links ---- */

h5_problem aril__h5_link(const aril__hdf5 *f, h5_cursor c, h5_each_link *each, void *ctx)
{
    uint64_t version = aril__h5_number(&c, 1), flags = aril__h5_number(&c, 1);
    uint64_t type = flags & 8 ? aril__h5_number(&c, 1) : 0;
    aril__h5_bytes(&c, (flags & 4 ? 8u : 0) + (flags & 16 ? 1u : 0));
    h5_link link = { .name_size = (size_t)aril__h5_number(&c, 1 << (flags & 3)) };
    link.name = (const char *)aril__h5_bytes(&c, link.name_size);
    if (c.bad || version != 1) return H5_LINKS;
    if (type == 0) link.address = aril__h5_offset(f, &c);
    if (type == 1) {
        link.target_size = (size_t)aril__h5_number(&c, 2);
        link.target = (const char *)aril__h5_bytes(&c, link.target_size);
    }
    if (c.bad) return H5_LINKS;
    return type <= 1 ? each(ctx, &link) : H5_FINE; /* others lead to other files */
}

typedef struct heap_links {
    h5_heap heap;
    h5_each_link *each;
    void *ctx;
} heap_links;

static h5_problem heap_link(void *ctx, h5_cursor record)
{
    const heap_links *l = ctx;
    h5_cursor object;
    aril__h5_bytes(&record, 4); /* the hash of the name */
    h5_problem p = aril__h5_heap_find(&l->heap, record, &object);
    return p == H5_FINE ? aril__h5_link(l->heap.file, object, l->each, l->ctx) : p;
}

h5_problem aril__h5_link_info(const aril__hdf5 *f, h5_cursor c, h5_each_link *each, void *ctx)
{
    aril__h5_bytes(&c, 1);
    uint64_t flags = aril__h5_number(&c, 1);
    aril__h5_bytes(&c, flags & 1 ? 8 : 0);
    uint64_t heap = aril__h5_offset(f, &c), tree = aril__h5_offset(f, &c);
    if (c.bad) return H5_LINKS;
    if (heap == H5_NOWHERE) return H5_FINE; /* the links are messages of the header */
    heap_links l = { .each = each, .ctx = ctx };
    h5_problem p = aril__h5_heap_open(f, heap, &l.heap);
    return p == H5_FINE ? aril__h5_records(f, tree, 5, heap_link, &l) : p;
}
