/* Random ops take a key, a u64[2] tensor (seed, call number), as their first input. That tensor
 * holds all of the generator's state, so a mask can be regenerated on any device. */
#ifndef ARIL_OPS_RANDOM_H
#define ARIL_OPS_RANDOM_H

#include "ops/table/apply.h"

/* Ops that other files name. */
extern const aril__op aril__op_rand;

/* The key in a run's first input (host memory). */
static inline aril__rng_key aril__rng_key_of(const aril__run *r)
{
    const uint64_t *k = aril__ptr(r->in[0]);
    return (aril__rng_key){ k[0], k[1] };
}

/* The largest value of a dtype below `high`, which rounding must not produce. */
double aril__rng_largest_below(uint8_t dtype, double high);

/* The error for a probability that is not one. */
aril_status aril__probability_error(double p);

/* In shape inference: checks that in[0] is a key, and gives the call its device. */
aril_status aril__rng_check_key(aril__call *c);

#endif
