#include "core/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    HUGE_PAGE = 2 << 20,
    /* Small programs use small pages: the first touch of a huge page clears all of it. */
    SMALL_PAGES = 2 * HUGE_PAGE,
    BINS = 8 * 40, /* free lists: eight size classes per power of two */
    LOOK = 64,     /* blocks of a bin searched for the best fit */
};

typedef struct block {
    struct block *before, *after; /* by address */
    struct block *next, **link;   /* in the free list of its bin */
    size_t page, pages;
    bool free;
} block;

struct aril__arena {
    char *base;
    size_t pages;
    block *bin[BINS];
    uint64_t some[BINS / 64]; /* bit b: bin b is not empty */
    block *last;              /* by address */
    block *headers, *spare;   /* all headers, and the unused ones */
    size_t n_headers;
    block **at;        /* per page: the block in use that begins there */
    uint64_t *touched; /* bit p: page p has been used since it was last returned to the system */
};

static void *reserve(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* ---- free blocks by size ---- */

static size_t bin_of(size_t pages)
{
    if (pages < 8) return pages;
    unsigned log = 63u - (unsigned)__builtin_clzll(pages);
    return (size_t)(log - 2) * 8 + ((pages >> (log - 3)) & 7);
}

static void put_in_bin(aril__arena *a, block *b)
{
    size_t k = bin_of(b->pages);
    b->free = true;
    b->next = a->bin[k];
    b->link = &a->bin[k];
    if (b->next) b->next->link = &b->next;
    a->bin[k] = b;
    a->some[k / 64] |= (uint64_t)1 << k % 64;
}

static void take_from_bin(aril__arena *a, block *b)
{
    size_t k = bin_of(b->pages);
    *b->link = b->next;
    if (b->next) b->next->link = b->link;
    if (!a->bin[k]) a->some[k / 64] &= ~((uint64_t)1 << k % 64);
    b->free = false;
}

/* Returns the smallest block searched that is large enough; among equals the one freed last, which
 * is most likely still in cache. */
static block *best_of(const aril__arena *a, size_t k, size_t pages)
{
    block *best = NULL;
    int n = 0;
    for (block *b = a->bin[k]; b && n < LOOK; b = b->next, n++)
        if (b->pages >= pages && (!best || b->pages < best->pages)) best = b;
    return best;
}

static block *find(const aril__arena *a, size_t pages)
{
    size_t k = bin_of(pages);
    block *b = best_of(a, k, pages);
    while (!b && ++k < BINS) {
        uint64_t rest = a->some[k / 64] >> k % 64;
        if (!rest) {
            k |= 63; /* on to the next word */
            continue;
        }
        k += (size_t)__builtin_ctzll(rest);
        b = best_of(a, k, pages);
    }
    return b;
}

/* ---- pages that were touched ---- */

/* Sets or clears the bits of a range of pages; returns how many bits changed. */
static size_t set_touched(aril__arena *a, size_t page, size_t pages, bool value)
{
    size_t changed = 0;
    for (size_t end = page + pages; page < end;) {
        size_t first = page % 64, n = end - page < 64 - first ? end - page : 64 - first;
        uint64_t mask = (n == 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1) << first;
        uint64_t *word = &a->touched[page / 64], old = *word;
        *word = value ? old | mask : old & ~mask;
        changed += (size_t)__builtin_popcountll(old ^ *word);
        page += n;
    }
    return changed;
}

/* ---- blocks ---- */

static block *new_header(aril__arena *a)
{
    block *b = a->spare;
    if (b)
        a->spare = b->next;
    else
        b = &a->headers[a->n_headers++]; /* there is one for each page */
    return b;
}

static void drop_header(aril__arena *a, block *b)
{
    b->next = a->spare;
    a->spare = b;
}

/* Merges the block after b into b. */
static void join_after(aril__arena *a, block *b)
{
    block *gone = b->after;
    b->pages += gone->pages;
    b->after = gone->after;
    if (b->after)
        b->after->before = b;
    else
        a->last = b;
    drop_header(a, gone);
}

/* The largest free block, or nearly; NULL if there is none. */
static block *largest(const aril__arena *a)
{
    for (size_t word = BINS / 64; word-- > 0;)
        if (a->some[word]) return a->bin[word * 64 + 63 - (size_t)__builtin_clzll(a->some[word])];
    return NULL;
}

/* Makes the end of the largest free block a free block of its own. */
static void cut_end(aril__arena *a, size_t pages)
{
    block *b = largest(a);
    if (!b || b->pages <= pages) return;
    take_from_bin(a, b);
    block *end = new_header(a);
    b->pages -= pages;
    *end = (block){ .before = b, .after = b->after, .page = b->page + b->pages, .pages = pages };
    if (end->after)
        end->after->before = end;
    else
        a->last = end;
    b->after = end;
    put_in_bin(a, b);
    put_in_bin(a, end);
}

void *aril__arena_alloc(aril__arena *a, size_t bytes, bool lasting, size_t *fresh)
{
    size_t pages = (bytes + ARIL__ARENA_PAGE - 1) / ARIL__ARENA_PAGE;
    if (lasting && pages) cut_end(a, pages);
    block *b = pages ? find(a, pages) : NULL;
    if (!b) return NULL;
    take_from_bin(a, b);
    if (b->pages > pages) { /* the rest stays free */
        block *rest = new_header(a);
        *rest = (block){ .before = b, .after = b->after, .page = b->page + pages };
        rest->pages = b->pages - pages;
        if (rest->after)
            rest->after->before = rest;
        else
            a->last = rest;
        b->after = rest;
        b->pages = pages;
        put_in_bin(a, rest);
    }
    a->at[b->page] = b;
    *fresh = set_touched(a, b->page, pages, true) * ARIL__ARENA_PAGE;
    return a->base + b->page * ARIL__ARENA_PAGE;
}

size_t aril__arena_free(aril__arena *a, void *p)
{
    size_t page = (size_t)((char *)p - a->base) / ARIL__ARENA_PAGE;
    block *b = a->at[page];
    size_t bytes = b->pages * ARIL__ARENA_PAGE;
    a->at[page] = NULL;
    if (b->after && b->after->free) {
        take_from_bin(a, b->after);
        join_after(a, b);
    }
    if (b->before && b->before->free) {
        b = b->before;
        take_from_bin(a, b);
        join_after(a, b);
    }
    put_in_bin(a, b);
    return bytes;
}

bool aril__arena_owns(const aril__arena *a, const void *p)
{
    const char *at = p;
    return at >= a->base && at < a->base + a->pages * ARIL__ARENA_PAGE;
}

/* Starts at the highest address, so that the remaining pages stay together. */
size_t aril__arena_trim(aril__arena *a, size_t bytes)
{
    size_t done = 0;
    for (block *b = a->last; b && done < bytes; b = b->before) {
        if (!b->free) continue;
        size_t end = b->page + b->pages, touched = set_touched(a, b->page, b->pages, false);
        if (!touched) continue;
        madvise(a->base + b->page * ARIL__ARENA_PAGE, (end - b->page) * ARIL__ARENA_PAGE,
                MADV_DONTNEED);
        done += touched * ARIL__ARENA_PAGE;
    }
    return done;
}

/* ---- life ---- */

void aril__arena_delete(aril__arena *a)
{
    if (!a) return;
    if (a->base) munmap(a->base, a->pages * ARIL__ARENA_PAGE);
    if (a->at) munmap(a->at, a->pages * sizeof *a->at);
    if (a->touched) munmap(a->touched, a->pages / 8);
    if (a->headers) munmap(a->headers, a->pages * sizeof *a->headers);
    free(a);
}

static aril__arena *make(size_t pages)
{
    aril__arena *a = calloc(1, sizeof *a);
    if (!a) return NULL;
    a->pages = pages;
    a->base = reserve(pages * ARIL__ARENA_PAGE);
    a->at = reserve(pages * sizeof *a->at);
    a->touched = reserve(pages / 8);
    a->headers = reserve(pages * sizeof *a->headers);
    if (a->base && a->at && a->touched && a->headers) return a;
    aril__arena_delete(a);
    return NULL;
}

/* Address space is free unless it is limited (ulimit -v, ulimit -d). Under a limit, the reserved
 * range is missing elsewhere: malloc, thread stacks and libraries would fail despite free pages,
 * and a program could work with a small limit and fail with a larger one. So the range is used only
 * if as much address space again remains. */
static bool is_scarce(size_t bytes)
{
    static const int kinds[] = { RLIMIT_AS, RLIMIT_DATA };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct rlimit limit;
        if (getrlimit(kinds[i], &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
            limit.rlim_cur / 2 < bytes)
            return true;
    }
    return false;
}

aril__arena *aril__arena_new(void)
{
    long memory = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGE_SIZE);
    if (page <= 0 || page > ARIL__ARENA_PAGE) return NULL;
    size_t max = (size_t)(memory > 0 ? memory : 1 << 18) * (size_t)page / ARIL__ARENA_PAGE * 2;
    /* All or nothing: a system that refuses the range (strict overcommit) counts addresses too. */
    aril__arena *a = is_scarce(max * ARIL__ARENA_PAGE) ? NULL : make(max / 512 * 512);
    if (!a) return NULL;
    uintptr_t huge = ((uintptr_t)a->base + SMALL_PAGES + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    size_t before = huge - (uintptr_t)a->base;
    madvise(a->base + before, a->pages * ARIL__ARENA_PAGE - before, MADV_HUGEPAGE);
    block *all = new_header(a);
    *all = (block){ .pages = a->pages };
    a->last = all;
    put_in_bin(a, all);
    return a;
}
