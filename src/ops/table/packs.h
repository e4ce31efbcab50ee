/* Weights that a row packs.
 *
 * A row that keeps a form of its own of input i, a weight, at its first run (core/derived.h) and
 * reads nothing else of it later says so in its plan: the memory of the weight can then be freed.
 * The upper half of aril_plan.overlay holds a bit for each input. */
#ifndef ARIL_OPS_PACKS_H
#define ARIL_OPS_PACKS_H

#include "aril/plugin.h"

enum { ARIL__PACKED_INPUTS = 16 };

static inline void aril__plan_packs(aril_plan *plan, int i)
{
    plan->overlay |= 1u << (ARIL__PACKED_INPUTS + i);
}

static inline bool aril__plan_is_packed(const aril_plan *plan, int i)
{
    return plan && i < ARIL__PACKED_INPUTS && plan->overlay >> (ARIL__PACKED_INPUTS + i) & 1;
}

#endif
