/* Random number generators.
 *
 * Generators are counter-based (Philox 4x32-10): a random op takes the generator's seed and call
 * count, and element i of its result depends only on (seed, call, i). Each random op advances its
 * generator by one, whatever its size. So the same seed gives the same numbers for any number of
 * threads, on every device (normals within 2 ulp), eager, compiled or recomputed, and a saved state
 * resumes exactly.
 *
 *     aril_generator *g = aril_generator_new(42);
 *     aril_rng_state here = aril_generator_state(g);
 *     ... random ops with g ...
 *     aril_generator_set_state(g, here);        the same numbers again
 *     aril_generator_free(g);
 *
 * Only one thread may use a generator at a time. Every thread has a default generator
 * (aril_seed). */
#ifndef ARIL_RNG_H
#define ARIL_RNG_H

#include "aril/base.h"

ARIL_C_BEGIN

typedef struct aril_generator aril_generator;

/* The full state of a generator: save it to resume a run. */
typedef struct aril_rng_state {
    uint64_t seed;
    uint64_t calls; /* the number of random ops so far */
} aril_rng_state;

/* Creates a generator at call 0. The caller frees it. NULL only when memory runs out. */
ARIL_API aril_generator *aril_generator_new(uint64_t seed);

/* Frees a generator; NULL is fine. */
ARIL_API void aril_generator_free(aril_generator *g);

/* Reseeds the generator, at call 0. A no-op when g is NULL. */
ARIL_API void aril_generator_seed(aril_generator *g, uint64_t seed);

/* The current state; {0, 0} when g is NULL. */
ARIL_API aril_rng_state aril_generator_state(const aril_generator *g);

/* Restores a state. A no-op when g is NULL. */
ARIL_API void aril_generator_set_state(aril_generator *g, aril_rng_state state);

/* Seeds this thread's default generator, and those of threads that first use Aril later. In a
 * traced function (graph.h), each run seeds the generator of its thread. */
ARIL_API void aril_seed(uint64_t seed);

/* This thread's default generator. */
ARIL_API aril_generator *aril_default_generator(void);

ARIL_C_END

#endif
