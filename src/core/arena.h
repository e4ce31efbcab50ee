/* Large blocks of host memory, allocated from one address range that is reserved at startup.
 *
 * Adjacent free blocks are merged, so that a program that allocates the same sizes in each step
 * reuses the same pages: a touched page stays with the process until aril__arena_trim returns it.
 * The range is backed by huge pages where the system has them.
 *
 * Not thread-safe: the device's lock guards it. */
#ifndef ARIL_CORE_ARENA_H
#define ARIL_CORE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

enum {
    ARIL__ARENA_PAGE = 4096,
    ARIL__ARENA_MIN = 64 * 1024, /* smaller blocks are not worth it */
};

typedef struct aril__arena aril__arena;

/* NULL if address space is limited or refused (not an error): blocks then come from malloc. */
aril__arena *aril__arena_new(void);
void aril__arena_delete(aril__arena *a);

/* A block of whole pages, aligned to a page and not cleared. *fresh gets the number of its bytes
 * that no block has used before (or since they were returned to the system). NULL when there is no
 * room. A block that will last (`lasting`) is placed at the other end of the range, so that it does
 * not part the pages that come and go at each step. */
void *aril__arena_alloc(aril__arena *a, size_t bytes, bool lasting, size_t *fresh);

/* Frees a block; returns its size in bytes. */
size_t aril__arena_free(aril__arena *a, void *p);

/* Whether the block came from here. */
bool aril__arena_owns(const aril__arena *a, const void *p);

/* Returns used pages of free blocks to the system, at least `bytes` if there are that many; returns
 * the number of bytes released. */
size_t aril__arena_trim(aril__arena *a, size_t bytes);

#endif
