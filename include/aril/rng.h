/* Random number generators.
 *
 * Numbers come from a counter, not from a sequence (Philox 4x32-10): a random op takes the
 * generator's seed and the number of its call, and element i of its result is a function of
 * (seed, call, i) alone. Each random op advances its generator by one, whatever its size. So
 * the same seed gives the same numbers for any number of threads, on every device (normals within
 * 2 ulp), eager, compiled or recomputed, and a saved state resumes exactly.
 *
 *     aril_generator *g = aril_generator_new(42);
 *     aril_rng_state here = aril_generator_state(g);
 *     ... random ops with g ...
 *     aril_generator_set_state(g, here);        the same numbers come again
 *     aril_generator_free(g);
 *
 * A generator belongs to one thread at a time. Every thread has a default one (aril_seed). */
#ifndef ARIL_RNG_H
#define ARIL_RNG_H

#include "aril/base.h"

ARIL_C_BEGIN

typedef struct aril_generator aril_generator;

/* All of a generator: what to save so that a run can resume. */
typedef struct aril_rng_state {
    uint64_t seed;
    uint64_t calls; /* random ops that have drawn from it */
} aril_rng_state;

/* Makes a generator at call 0. The caller frees it. NULL only when memory is out. */
ARIL_API aril_generator *aril_generator_new(uint64_t seed);

/* Frees a generator; NULL is fine. */
ARIL_API void aril_generator_free(aril_generator *g);

/* Starts again with another seed, at call 0. Does nothing when g is NULL. */
ARIL_API void aril_generator_seed(aril_generator *g, uint64_t seed);

/* The state now; {0, 0} when g is NULL. */
ARIL_API aril_rng_state aril_generator_state(const aril_generator *g);

/* Goes back (or ahead) to a state. Does nothing when g is NULL. */
ARIL_API void aril_generator_set_state(aril_generator *g, aril_rng_state state);

/* Seeds this thread's default generator, and those of threads that first use Aril after it. */
ARIL_API void aril_seed(uint64_t seed);

/* This thread's default generator. */
ARIL_API aril_generator *aril_default_generator(void);

ARIL_C_END

#endif
