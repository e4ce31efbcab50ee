/* Large blocks of host memory, cut from one range of addresses that is reserved at the start.
 *
 * Free neighbours are joined, so that a program which asks for the same sizes in each step finds
 * them in the pages it had before: a page that was touched stays with the process until it is given
 * back by aril__arena_trim. The range is backed by huge pages where the system has them.
 *
 * Not locked: the device's lock guards it. */
#ifndef ARIL_CORE_ARENA_H
#define ARIL_CORE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

enum {
    ARIL__ARENA_PAGE = 4096,
    ARIL__ARENA_LEAST = 64 * 1024, /* smaller blocks are not worth it */
};

typedef struct aril__arena aril__arena;

/* NULL where addresses are limited or refused; that is no error, blocks then come from malloc. */
aril__arena *aril__arena_new(void);
void aril__arena_delete(aril__arena *a);

/* A block of whole pages, aligned to a page and not cleared. *fresh gets the bytes of it that no
 * block has used before (or since they were given back). NULL when there is no room. */
void *aril__arena_alloc(aril__arena *a, size_t bytes, size_t *fresh);

/* Takes a block back; its bytes. */
size_t aril__arena_free(aril__arena *a, void *p);

/* Whether the block came from here. */
bool aril__arena_owns(const aril__arena *a, const void *p);

/* Gives used pages of free blocks back to the system, at least `bytes` if there are so many; how
 * many bytes those were. */
size_t aril__arena_trim(aril__arena *a, size_t bytes);

#endif
