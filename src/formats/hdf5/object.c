/* Object headers of HDF5 files: lists of messages, in blocks that refer to each other. */
#include "formats/hdf5/inside.h"

#include "core/memory.h"

#include <stdlib.h>

typedef struct block {
    uint64_t address, size;
} block;

typedef struct header {
    const aril__hdf5 *file;
    h5_each_message *each;
    void *ctx;
    bool has_order; /* version 2: messages have a creation order */
    bool nested;    /* the header was reached through a shared message: follow no others */
    int version;
    uint64_t messages; /* version 1: how many there are */
    block *at;         /* continuation blocks */
    size_t n, capacity;
    uint64_t bytes; /* of all blocks */
} header;

/* Blocks of a header do not overlap, so together they are no larger than the file. */
static h5_problem add_block(header *h, h5_cursor c)
{
    block b = { .address = aril__h5_offset(h->file, &c), .size = aril__h5_length(h->file, &c) };
    if (c.bad || b.size > h->file->n - h->bytes) return H5_HEADER;
    h->bytes += b.size;
    if (h->n == h->capacity) {
        size_t capacity = 2 * h->capacity + 8;
        block *grown = aril__realloc(h->at, capacity * sizeof *grown);
        if (!grown) return H5_NO_MEMORY;
        h->at = grown;
        h->capacity = capacity;
    }
    h->at[h->n++] = b;
    return H5_FINE;
}

/* The messages of one block; the rest of a block that is too small for one is a gap. */
static h5_problem messages(header *h, h5_cursor c)
{
    size_t least = h->version == 1 ? 8 : h->has_order ? 6 : 4;
    h5_problem p = H5_FINE;
    while (p == H5_FINE && c.left >= least && (h->version > 1 || h->messages > 0)) {
        int type = (int)aril__h5_number(&c, h->version == 1 ? 2 : 1);
        uint64_t size = aril__h5_number(&c, 2);
        int flags = (int)aril__h5_number(&c, 1);
        aril__h5_bytes(&c, h->version == 1 ? 3 : h->has_order ? 2 : 0);
        h5_cursor body = { .left = (size_t)size };
        body.at = aril__h5_bytes(&c, size);
        if (c.bad) return H5_HEADER;
        if (!aril__h5_step(h->file, 1)) return H5_ENDLESS;
        if (h->version == 1) h->messages--;
        if (type == H5_M_CONTINUATION)
            p = add_block(h, body);
        else if (type != 0 && !(h->nested && flags & 2)) {
            if (flags & 2) p = aril__h5_shared(h->file, type, &body);
            if (p == H5_FINE) p = h->each(h->ctx, type, body);
        }
    }
    return p;
}

static h5_problem continuation(header *h, block b)
{
    h5_cursor c = aril__h5_at(h->file, b.address, b.size);
    if (c.bad) return H5_SHORT;
    h5_problem p =
        h->version == 1 ? H5_FINE : aril__h5_block(h->file, b.address, b.size, "OCHK", &c);
    return p == H5_FINE ? messages(h, c) : p;
}

static h5_problem version_1(header *h, uint64_t address)
{
    h5_cursor c = aril__h5_at(h->file, address, 16);
    aril__h5_bytes(&c, 2);
    h->messages = aril__h5_number(&c, 2);
    aril__h5_bytes(&c, 4);
    uint64_t size = aril__h5_number(&c, 4);
    c = aril__h5_at(h->file, address + 16, size);
    return c.bad ? H5_SHORT : messages(h, c);
}

static h5_problem version_2(header *h, uint64_t address)
{
    h5_cursor c = aril__h5_from(h->file, address);
    aril__h5_bytes(&c, 4);
    uint64_t version = aril__h5_number(&c, 1);
    int flags = (int)aril__h5_number(&c, 1);
    size_t times = (flags & 32 ? 16u : 0) + (flags & 16 ? 4u : 0);
    aril__h5_bytes(&c, times);
    int width = 1 << (flags & 3);
    uint64_t size = aril__h5_number(&c, width), before = 6 + times + (uint64_t)width;
    if (c.bad || size > c.left || version != 2) return H5_HEADER;
    h->has_order = flags & 4;
    h5_problem p = aril__h5_block(h->file, address, before + size + 4, "OHDR", &c);
    if (p != H5_FINE) return p;
    aril__h5_bytes(&c, before - 4);
    return messages(h, c);
}

static h5_problem walk(const aril__hdf5 *f, uint64_t address, h5_each_message *each, void *ctx,
                       bool nested)
{
    header h = { .file = f, .each = each, .ctx = ctx, .nested = nested };
    h5_cursor c = aril__h5_from(f, address), first = c;
    h.version = aril__h5_mark(&c, "OHDR") ? 2 : 1;
    if (h.version == 1 && aril__h5_number(&first, 1) != 1) return H5_HEADER;
    if (!aril__h5_step(f, 4)) return H5_ENDLESS;
    h5_problem p = (h.version == 1 ? version_1 : version_2)(&h, address);
    for (size_t i = 0; p == H5_FINE && i < h.n; i++) p = continuation(&h, h.at[i]);
    free(h.at);
    return p;
}

h5_problem aril__h5_messages(const aril__hdf5 *f, uint64_t address, h5_each_message *each,
                             void *ctx)
{
    return walk(f, address, each, ctx, false);
}

/* ---- shared messages: a type that arrays have in common is an object of its own ---- */

typedef struct wanted {
    int type;
    h5_cursor *body;
    bool found;
} wanted;

static h5_problem take(void *ctx, int type, h5_cursor body)
{
    wanted *w = ctx;
    if (type == w->type && !w->found) *w->body = body;
    w->found |= type == w->type;
    return H5_FINE;
}

h5_problem aril__h5_shared(const aril__hdf5 *f, int type, h5_cursor *body)
{
    uint64_t version = aril__h5_number(body, 1), kind = aril__h5_number(body, 1);
    if (version == 1) aril__h5_bytes(body, 6);
    if (body->bad || version < 1 || version > 3) return H5_HEADER;
    if (type != H5_M_TYPE || (version == 3 && kind != 2)) return H5_SHARED;
    uint64_t address = aril__h5_offset(f, body);
    if (body->bad) return H5_HEADER;
    wanted w = { .type = type, .body = body };
    h5_problem p = walk(f, address, take, &w, true);
    return p != H5_FINE ? p : w.found ? H5_FINE : H5_HEADER;
}

/* ---- objects ---- */

static h5_problem collect(void *ctx, int type, h5_cursor body)
{
    h5_object *o = ctx;
    switch (type) {
    case H5_M_SPACE: o->space = body; break;
    case H5_M_TYPE: o->type = body; break;
    case H5_M_LAYOUT: o->layout = body; break;
    case H5_M_FILL: o->fill = body; break;
    case H5_M_OLD_FILL: o->old_fill = body; break;
    case H5_M_FILTERS: o->filters = body; break;
    case H5_M_EXTERNAL: o->is_external = true; break;
    case H5_M_LINK_INFO:
    case H5_M_LINK:
    case H5_M_SYMBOLS: o->is_group = true; break;
    default: break;
    }
    return H5_FINE;
}

h5_problem aril__h5_object(const aril__hdf5 *f, uint64_t address, h5_object *o)
{
    *o = (h5_object){ 0 };
    return aril__h5_messages(f, address, collect, o);
}
