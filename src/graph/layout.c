#include "core/blocks.h"
#include "graph/executor.h"

#include <stdlib.h>
#include <string.h>

/* Where places are in an arena: two that are in use at the same time do not overlap.
 *
 * The largest places are put first, each at the lowest offset where it fits between those that are
 * in use at the same time. That comes within a few percent of the largest sum of sizes in use at
 * once, and takes quadratic time: so of a graph with very many places, the small ones are behind
 * those, and share blocks of their size class. */

enum { MAX_FITTED = 2048, CLASSES = 8 * 64, MAX_APART = 64 << 20 };

typedef struct item {
    size_t bytes, offset;
    uint32_t first, last, place;
    uint32_t next; /* in the list of free blocks of its class: 1 + the item */
} item;

static int by_size(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

static int by_first(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

static size_t round_up(size_t bytes, size_t align)
{
    return (bytes + align - 1) / align * align;
}

/* ---- large places ---- */

/* Puts each item at the lowest offset that is free while it is used; returns the end of the last.
 * placed[n]: room for items by offset. */
static size_t fit(item *at, uint32_t n, const item **placed)
{
    size_t end = 0;
    for (uint32_t i = 0; i < n; i++) {
        item *x = &at[i];
        size_t offset = 0;
        for (uint32_t k = 0; k < i; k++) {
            const item *y = placed[k];
            if (y->last < x->first || x->last < y->first) continue;
            if (offset + x->bytes <= y->offset) break;
            if (y->offset + y->bytes > offset) offset = y->offset + y->bytes;
        }
        x->offset = offset;
        if (offset + x->bytes > end) end = offset + x->bytes;
        uint32_t k = i;
        for (; k > 0 && placed[k - 1]->offset > offset; k--) placed[k] = placed[k - 1];
        placed[k] = x;
    }
    return end;
}

/* One behind the other; returns the end, or 0 if that takes too much memory. */
static size_t put_apart(item *at, uint32_t n)
{
    size_t end = 0;
    for (uint32_t i = 0; i < n && end <= MAX_APART; i++) {
        at[i].offset = end;
        end += at[i].bytes;
    }
    return end <= MAX_APART ? end : 0;
}

/* ---- small places ---- */

/* Eight classes for each power of two; *rounded gets the size of the class. */
static uint32_t class_of(size_t bytes, size_t align, size_t *rounded)
{
    size_t units = round_up(bytes, align) / align;
    unsigned log = units < 8 ? 3 : 63u - (unsigned)__builtin_clzll(units);
    size_t step = (size_t)1 << (log - 3), up = (units + step - 1) / step;
    *rounded = up * step * align;
    return (uint32_t)((log - 3) * 8 + up) % CLASSES;
}

/* Items in the order of their first use: each gets a block that no one uses any more, or a new one.
 * Blocks are returned in the order in which their use ends: `heap` has room for all items. */
static size_t share(item *at, uint32_t n, size_t end, size_t align, uint32_t *heap)
{
    uint32_t list[CLASSES] = { 0 }, n_heap = 0;
    for (uint32_t i = 0; i < n; i++) {
        item *x = &at[i];
        while (n_heap && at[heap[0]].last < x->first) { /* the earliest end first */
            uint32_t freed = heap[0], last = heap[--n_heap], k = 0;
            for (uint32_t child; (child = 2 * k + 1) < n_heap; k = child) {
                if (child + 1 < n_heap && at[heap[child + 1]].last < at[heap[child]].last) child++;
                if (at[heap[child]].last >= at[last].last) break;
                heap[k] = heap[child];
            }
            heap[k] = last;
            size_t bytes;
            uint32_t of = class_of(at[freed].bytes, align, &bytes);
            at[freed].next = list[of];
            list[of] = 1 + freed;
        }
        size_t bytes;
        uint32_t of = class_of(x->bytes, align, &bytes);
        if (list[of]) {
            const item *free_block = &at[list[of] - 1];
            x->offset = free_block->offset;
            list[of] = free_block->next;
        } else {
            x->offset = end;
            end += bytes;
        }
        uint32_t k = n_heap++;
        for (; k > 0 && at[heap[(k - 1) / 2]].last > x->last; k = (k - 1) / 2)
            heap[k] = heap[(k - 1) / 2];
        heap[k] = i;
    }
    return end;
}

/* ---- arenas ---- */

static int arena_of(aril__instance *n, aril__device *device)
{
    for (int i = 0; i < n->n_arenas; i++)
        if (n->arena[i].device == device) return i;
    if (n->n_arenas == ARIL__MAX_ARENAS) return -1;
    n->arena[n->n_arenas] = (aril__arena_part){ .device = device };
    return n->n_arenas++;
}

/* The places in one arena. */
static bool lay_out(aril__instance *n, int arena)
{
    size_t align =
        n->arena[arena].device->host_memory ? ARIL__PLACE_ALIGN : ARIL__PLACE_ALIGN_DEVICE;
    uint32_t count = 0, n_fitted;
    item *at = aril__malloc(((size_t)n->n_places + 1) * sizeof *at);
    const item **placed = aril__malloc((MAX_FITTED + 1) * sizeof *placed);
    uint32_t *heap = aril__malloc(((size_t)n->n_places + 1) * sizeof *heap);
    bool fits = at && placed && heap;
    for (uint32_t i = 1; i < n->n_places && fits; i++) {
        const aril__place *p = &n->places[i];
        if (p->kind != ARIL__IN_ARENA || p->arena != arena || p->first == UINT32_MAX) continue;
        at[count++] = (item){ .bytes = round_up(p->bytes ? p->bytes : 1, align),
                              .first = p->first,
                              .last = p->last,
                              .place = i };
    }
    size_t end = fits && n->apart ? put_apart(at, count) : 0;
    n->arena[arena].bytes = end;
    if (fits && !end) {
        qsort(at, count, sizeof *at, by_size);
        n_fitted = count < MAX_FITTED ? count : MAX_FITTED;
        end = fit(at, n_fitted, placed);
        qsort(at + n_fitted, count - n_fitted, sizeof *at, by_first);
        n->arena[arena].bytes = share(at + n_fitted, count - n_fitted, end, align, heap);
    }
    for (uint32_t i = 0; i < count && fits; i++) n->places[at[i].place].offset = at[i].offset;
    free(at);
    free(placed);
    free(heap);
    return fits;
}

bool aril__layout(aril__instance *n)
{
    bool fits = true;
    for (uint32_t i = 1; i < n->n_places && fits; i++) {
        if (n->places[i].kind != ARIL__IN_ARENA) continue;
        int arena = arena_of(n, n->places[i].device);
        fits = arena >= 0;
        n->places[i].arena = (uint8_t)(fits ? arena : 0);
    }
    for (int i = 0; i < n->n_arenas && fits; i++) fits = lay_out(n, i);
    return fits;
}

aril_memory_plan aril__instance_memory(const aril__instance *n, const aril__device *device)
{
    aril_memory_plan m = { .unplanned = (int)n->n_unplanned };
    const size_t within = sizeof((aril__storage *)0)->small;
    for (int i = 0; i < n->n_arenas; i++)
        if (n->arena[i].device == device && n->arena[i].bytes)
            m.arena = (int64_t)aril__device_block(device, n->arena[i].bytes);
    for (uint32_t i = 1; i < n->n_places; i++) {
        const aril__place *p = &n->places[i];
        if (p->device != device) continue;
        if (p->kind == ARIL__IN_RESULT && !(p->bytes <= within && device->host_memory))
            m.results += (int64_t)aril__device_block(device, p->bytes);
    }
    m.peak = m.arena + m.results;
    return m;
}
