/* Heaps of HDF5 files: fractal ones, of links and attributes, and global ones, of strings of
 * variable length. */
#include "formats/hdf5/inside.h"

#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

/* ---- fractal heaps ---- */

h5_problem aril__h5_heap_open(const aril__hdf5 *f, uint64_t address, h5_heap *heap)
{
    h5_cursor c = aril__h5_from(f, address);
    aril__h5_bytes(&c, 7);
    uint64_t filters = aril__h5_number(&c, 2);
    uint64_t size = 26 + 12 * (uint64_t)f->length_size + 3 * (uint64_t)f->offset_size;
    if (filters > 0) return H5_OTHER_FILTER; /* no program makes such heaps for links */
    h5_problem p = aril__h5_block(f, address, size, "FRHP", &c);
    if (p != H5_FINE) return p;
    *heap = (h5_heap){ .file = f };
    aril__h5_bytes(&c, 1);
    heap->id_size = (int)aril__h5_number(&c, 2);
    aril__h5_bytes(&c, 2);
    heap->flags = (int)aril__h5_number(&c, 1);
    uint64_t largest = aril__h5_number(&c, 4);
    aril__h5_length(f, &c);
    heap->huge_tree = aril__h5_offset(f, &c);
    aril__h5_length(f, &c);
    aril__h5_offset(f, &c);
    for (int i = 0; i < 8; i++) aril__h5_length(f, &c);
    heap->width = aril__h5_number(&c, 2);
    heap->start = aril__h5_length(f, &c);
    heap->max_direct = aril__h5_length(f, &c);
    heap->offset_bits = (int)aril__h5_number(&c, 2);
    aril__h5_bytes(&c, 2);
    heap->root = aril__h5_offset(f, &c);
    heap->rows = (int)aril__h5_number(&c, 2);
    if (c.bad || heap->offset_bits < 1 || heap->offset_bits > 64 || heap->rows > 64) return H5_HEAP;
    uint64_t powers[] = { heap->width, heap->start, heap->max_direct };
    for (int i = 0; i < 3; i++)
        if (powers[i] == 0 || (powers[i] & (powers[i] - 1)) != 0) return H5_HEAP;
    if (heap->max_direct < heap->start || heap->max_direct > UINT32_MAX) return H5_HEAP;
    heap->offset_size = (heap->offset_bits + 7) / 8;
    int direct = (aril__h5_log2(heap->max_direct) + 7) / 8, object = aril__h5_width(largest);
    heap->length_size = direct < object ? direct : object;
    return H5_FINE;
}

/* The size of the blocks of a row of an indirect block, and where the row begins. */
static bool row_at(const h5_heap *h, int row, uint64_t *size, uint64_t *begin)
{
    int shift = row > 1 ? row - 1 : 0, bits = aril__h5_log2(h->start) + aril__h5_log2(h->width);
    if (bits + shift >= 63) return false;
    *size = h->start << shift;
    *begin = row == 0 ? 0 : h->start * h->width << shift;
    return true;
}

/* Finds the direct block that holds offset `at` of the heap: its address, where it begins. */
static h5_problem direct_block(const h5_heap *h, uint64_t at, uint64_t *block, uint64_t *inside,
                               uint64_t *size)
{
    const aril__hdf5 *f = h->file;
    uint64_t address = h->root;
    int rows = h->rows;
    *size = h->start;
    while (rows > 0) {
        uint64_t row_size = 0, begin = 0;
        int row = 0;
        while (row < rows && row_at(h, row, &row_size, &begin) &&
               !(at >= begin && (at - begin) / row_size < h->width))
            row++;
        if (row == rows || !row_at(h, row, &row_size, &begin)) return H5_HEAP;
        if (!aril__h5_step(f, (uint64_t)rows)) return H5_ENDLESS;
        uint64_t child = (uint64_t)row * h->width + (at - begin) / row_size;
        uint64_t before = 5 + (uint64_t)f->offset_size + (uint64_t)h->offset_size;
        uint64_t all = (uint64_t)rows * h->width;
        h5_cursor c;
        h5_problem p =
            aril__h5_block(f, address, before + all * (uint64_t)f->offset_size + 4, "FHIB", &c);
        if (p != H5_FINE) return p;
        aril__h5_bytes(&c, before - 4 + child * (uint64_t)f->offset_size);
        address = aril__h5_offset(f, &c);
        at = (at - begin) % row_size;
        *size = row_size;
        if (row_size <= h->max_direct) break;
        int below = aril__h5_log2(row_size) - aril__h5_log2(h->start) - aril__h5_log2(h->width) + 1;
        if (below < 1) return H5_HEAP;
        rows = below;
    }
    *block = address;
    *inside = at;
    return H5_FINE;
}

static h5_problem managed(const h5_heap *h, h5_cursor id, h5_cursor *object)
{
    uint64_t at = aril__h5_number(&id, h->offset_size), n = aril__h5_number(&id, h->length_size);
    uint64_t block, inside, size;
    if (id.bad) return H5_HEAP;
    h5_problem p = direct_block(h, at, &block, &inside, &size);
    if (p != H5_FINE) return p;
    h5_cursor c = aril__h5_at(h->file, block, size);
    h5_cursor start = c;
    if (!aril__h5_mark(&start, "FHDB") || inside > size || n > size - inside) return H5_HEAP;
    aril__h5_bytes(&c, inside);
    *object = (h5_cursor){ .left = (size_t)n };
    object->at = aril__h5_bytes(&c, n);
    return c.bad ? H5_SHORT : H5_FINE;
}

typedef struct huge {
    const aril__hdf5 *file;
    uint64_t id;
    h5_cursor *object;
    bool found;
} huge;

static h5_problem take_huge(void *ctx, h5_cursor record)
{
    huge *h = ctx;
    uint64_t address = aril__h5_offset(h->file, &record), n = aril__h5_length(h->file, &record),
             id = aril__h5_length(h->file, &record);
    if (record.bad) return H5_HEAP;
    if (id != h->id) return H5_FINE;
    h->found = true;
    *h->object = aril__h5_at(h->file, address, n);
    return h->object->bad ? H5_SHORT : H5_FINE;
}

static h5_problem huge_object(const h5_heap *heap, h5_cursor id, h5_cursor *object)
{
    const aril__hdf5 *f = heap->file;
    if (heap->id_size - 1 >= f->offset_size + f->length_size) { /* the id says where it is */
        uint64_t address = aril__h5_offset(f, &id), n = aril__h5_length(f, &id);
        *object = aril__h5_at(f, address, n);
        return id.bad || object->bad ? H5_SHORT : H5_FINE;
    }
    int width = heap->id_size - 1 < f->length_size ? heap->id_size - 1 : f->length_size;
    huge h = { .file = f, .id = aril__h5_number(&id, width), .object = object };
    h5_problem p = id.bad ? H5_HEAP : aril__h5_records(f, heap->huge_tree, 1, take_huge, &h);
    return p != H5_FINE ? p : h.found ? H5_FINE : H5_HEAP;
}

h5_problem aril__h5_heap_find(const h5_heap *heap, h5_cursor id, h5_cursor *object)
{
    h5_cursor whole = id;
    id = (h5_cursor){ .left = (size_t)heap->id_size };
    id.at = aril__h5_bytes(&whole, id.left);
    uint64_t first = aril__h5_number(&id, 1);
    if (whole.bad || id.bad || first >> 6 != 0) return H5_HEAP;
    switch (first >> 4 & 3) {
    case 0: return managed(heap, id, object);
    case 1: return huge_object(heap, id, object);
    case 2: /* tiny: in the id itself */
        *object = (h5_cursor){ .left = (size_t)(first & 15) + 1 };
        object->at = aril__h5_bytes(&id, object->left);
        return id.bad ? H5_HEAP : H5_FINE;
    default: return H5_HEAP;
    }
}

/* ---- global heaps ---- */

static int by_index(const void *a, const void *b)
{
    unsigned x = ((const struct h5_heap_object *)a)->index,
             y = ((const struct h5_heap_object *)b)->index;
    return x < y ? -1 : x > y;
}

/* Lists the objects of a collection. Index 0 is the free space at its end. */
static h5_problem list(const aril__hdf5 *f, h5_collection *g)
{
    h5_cursor c = aril__h5_from(f, g->address);
    if (!aril__h5_mark(&c, "GCOL") || aril__h5_number(&c, 1) != 1) return H5_HEAP;
    aril__h5_bytes(&c, 3);
    uint64_t size = aril__h5_length(f, &c), head = 8 + (uint64_t)f->length_size;
    if (c.bad || size < head || size - head > c.left) return H5_HEAP;
    c.left = (size_t)(size - head);
    int capacity = 0;
    while (c.left >= head) {
        struct h5_heap_object o = { .index = (unsigned)aril__h5_number(&c, 2) };
        aril__h5_bytes(&c, 6);
        uint64_t n = aril__h5_length(f, &c);
        if (o.index == 0) break;
        if (!aril__h5_step(f, 2)) return H5_ENDLESS;
        if (n > c.left || g->n >= UINT16_MAX) return H5_HEAP;
        o.size = (size_t)n;
        uint64_t padded = (n + 7) & ~UINT64_C(7);
        o.at = aril__h5_bytes(&c, padded < c.left ? padded : c.left);
        if (g->n == capacity) {
            capacity = 2 * capacity + 16;
            struct h5_heap_object *grown = aril__realloc(g->at, (size_t)capacity * sizeof *grown);
            if (!grown) return H5_NO_MEMORY;
            g->at = grown;
        }
        g->at[g->n++] = o;
    }
    if (g->n) qsort(g->at, (size_t)g->n, sizeof *g->at, by_index);
    return H5_FINE;
}

static h5_problem collection(h5_globals *g, uint64_t address, const h5_collection **found)
{
    int low = 0, high = g->n;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (g->at[middle].address < address)
            low = middle + 1;
        else
            high = middle;
    }
    *found = low < g->n ? &g->at[low] : NULL;
    if (*found && (*found)->address == address) return H5_FINE;
    if (g->n == g->capacity) {
        int capacity = 2 * g->capacity + 8;
        h5_collection *grown = aril__realloc(g->at, (size_t)capacity * sizeof *grown);
        if (!grown) return H5_NO_MEMORY;
        g->at = grown;
        g->capacity = capacity;
    }
    h5_collection fresh = { .address = address };
    h5_problem p = list(g->file, &fresh);
    if (p == H5_FINE && !aril__h5_step(g->file, (uint64_t)(g->n - low))) p = H5_ENDLESS;
    if (p != H5_FINE) {
        free(fresh.at);
        return p;
    }
    memmove(&g->at[low + 1], &g->at[low], (size_t)(g->n - low) * sizeof *g->at);
    g->at[low] = fresh;
    g->n++;
    *found = &g->at[low];
    return H5_FINE;
}

h5_problem aril__h5_global(h5_globals *g, uint64_t address, uint64_t index, h5_cursor *object)
{
    const h5_collection *c;
    h5_problem p = collection(g, address, &c);
    if (p != H5_FINE) return p;
    struct h5_heap_object key = { .index = (unsigned)index };
    const struct h5_heap_object *o =
        c->n && index <= UINT16_MAX ? bsearch(&key, c->at, (size_t)c->n, sizeof *c->at, by_index)
                                    : NULL;
    if (!o) return H5_HEAP;
    *object = (h5_cursor){ .at = o->at, .left = o->size };
    return H5_FINE;
}

void aril__h5_globals_free(h5_globals *g)
{
    for (int i = 0; i < g->n; i++) free(g->at[i].at);
    free(g->at);
    *g = (h5_globals){ 0 };
}
