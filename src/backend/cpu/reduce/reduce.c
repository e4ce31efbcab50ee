#include "backend/cpu/reduce/reduce.h"

#include "backend/cpu/reduce/reduce_loop.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/concat.h"
#include "core/vector/targets.h"

#include <math.h>
#include <string.h>

/* ---- reducers ---- */

static void any_finish(const aril__reduce_params *p, void *state, int64_t plane, int64_t m)
{
    (void)p, (void)plane;
    for (int64_t i = 0; i < m; i++) ((int64_t *)state)[i] = ((int64_t *)state)[i] != 0;
}

static void all_finish(const aril__reduce_params *p, void *state, int64_t plane, int64_t m)
{
    (void)plane;
    for (int64_t i = 0; i < m; i++) ((int64_t *)state)[i] = ((int64_t *)state)[i] == p->count;
}

static void mean_finish(const aril__reduce_params *p, void *state, int64_t plane, int64_t m)
{
    (void)plane;
    for (int64_t i = 0; i < m; i++) ((double *)state)[i] /= (double)p->count;
}

enum { STRETCH = 2048 }; /* elements searched for a position at a time */

/* STATE(x) names the functions of the state, NAME(x) those that accumulate elements; those of
 * integers in their own dtype are the native fold of that name. */
#define REDUCER(name, n, in_, r0, r1, state, take, finish_, ordered_, fold)  \
    static const aril__reducer NAME(name) = { .planes = n,                   \
                                              .in = in_,                     \
                                              .out = { r0, r1 },             \
                                              .start = STATE(state##_start), \
                                              .across = NAME(take##_across), \
                                              .along = NAME(take##_along),   \
                                              .merge = STATE(state##_merge), \
                                              .finish = finish_,             \
                                              .ordered = ordered_,           \
                                              .native = ARIL__NATIVE_##fold }

#define T         double
#define LOWEST    (-INFINITY)
#define HIGHEST   INFINITY
#define NAME(x)   x##_real
#define IS_NAN(x) ((x) != (x))
#include "backend/cpu/reduce/reduce_states.inc"

#define T         int64_t
#define LOWEST    INT64_MIN
#define HIGHEST   INT64_MAX
#define NAME(x)   x##_i64
#define IS_NAN(x) false
#include "backend/cpu/reduce/reduce_states.inc"

#define T         uint64_t
#define LOWEST    0
#define HIGHEST   UINT64_MAX
#define NAME(x)   x##_u64
#define IS_NAN(x) false
#include "backend/cpu/reduce/reduce_states.inc"

#define T       int64_t
#define CT      ARIL__C_I64
#define NAME(x) x##_i64
#include "backend/cpu/reduce/reduce_whole.inc"

#define T       uint64_t
#define CT      ARIL__C_U64
#define NAME(x) x##_u64
#include "backend/cpu/reduce/reduce_whole.inc"

#define TEMPLATE "backend/cpu/reduce/reduce_real.inc"
#include "core/vector/each_target.inc"

/* The reducer `name` for x's dtype: double, float, or integer. */
#define FOR_DTYPE(x, name)                                                              \
    (aril__is_float((aril_dtype)(x)->dtype) ? ARIL__PICK(&name, (x)->dtype == ARIL_F64) \
     : (x)->dtype == ARIL_U64               ? &name##_u64                               \
                                            : &name##_i64)

/* Runs a reducer on the call's first input. */
static aril_status run(aril__run *r, double p, const aril__reducer *how)
{
    const struct reduce_attrs *a = r->attrs;
    return aril__reduce_run(how, (aril__reduce_params){ .p = p }, r->in[0], (unsigned)a->mask[0],
                            r->n_out, r->out, r->workspace);
}

static size_t scratch(const aril__run *r, const aril__reducer *how)
{
    const struct reduce_attrs *a = r->attrs;
    return aril__reduce_scratch(how, r->in[0], (unsigned)a->mask[0], r->n_out, r->out);
}

/* ---- the kernels ---- */

#define KERNEL_OF(op_, p_, reducer)                        \
    aril_status aril__cpu_##op_(aril__run *r)              \
    {                                                      \
        return run(r, (p_), FOR_DTYPE(r->in[0], reducer)); \
    }                                                      \
    size_t aril__cpu_##op_##_scratch(const aril__run *r)   \
    {                                                      \
        return scratch(r, FOR_DTYPE(r->in[0], reducer));   \
    }
KERNEL_OF(sum, 0, sum)
KERNEL_OF(prod, 0, prod)
KERNEL_OF(amax, 0, largest)
KERNEL_OF(amin, 0, smallest)
KERNEL_OF(max, 1, with_index)
KERNEL_OF(min, -1, with_index)
KERNEL_OF(argmax, 1, index)
KERNEL_OF(argmin, -1, index)
KERNEL_OF(any, 0, any)
KERNEL_OF(all, 0, all)
KERNEL_OF(count_nonzero, 0, count)

aril_status aril__cpu_mean(aril__run *r)
{
    return run(r, 0, ARIL__PICK(&mean, r->in[0]->dtype == ARIL_F64));
}

size_t aril__cpu_mean_scratch(const aril__run *r)
{
    return scratch(r, ARIL__PICK(&mean, r->in[0]->dtype == ARIL_F64));
}

/* For the sum of `in` over all dimensions that have size 1 in out or are missing there: the output
 * with the leading axes, over the same memory, and the mask of the dimensions. */
static unsigned summed(const aril_tensor *out, const aril_tensor *in, aril_tensor *full)
{
    int lead = in->ndim - out->ndim;
    unsigned mask = 0;
    *full = *out;
    full->ndim = in->ndim;
    for (int d = 0; d < in->ndim; d++) {
        full->dim[d] = d < lead ? 1 : out->dim[d - lead];
        full->stride[d] = d < lead ? 0 : out->stride[d - lead];
        if (full->dim[d] == 1 && in->dim[d] != 1) mask |= 1u << d;
    }
    return mask;
}

static aril_status sum_to(aril_tensor *out, const aril_tensor *in, void *space)
{
    aril_tensor full;
    unsigned mask = summed(out, in, &full);
    return aril__reduce_run(FOR_DTYPE(in, sum), (aril__reduce_params){ 0 }, in, mask, 1,
                            (aril_tensor *[]){ &full }, space);
}

static size_t sum_to_scratch(const aril_tensor *out, const aril_tensor *in)
{
    aril_tensor full;
    unsigned mask = summed(out, in, &full);
    return aril__reduce_scratch(FOR_DTYPE(in, sum), in, mask, 1, (aril_tensor *[]){ &full });
}

aril_status aril__cpu_sum_to_like(aril__run *r)
{
    return sum_to(r->out[0], r->in[0], r->workspace);
}

size_t aril__cpu_sum_to_like_scratch(const aril__run *r)
{
    return sum_to_scratch(r->out[0], r->in[0]);
}

static void repeat_blocks(const aril__run *r, aril_tensor *from, aril_tensor *to)
{
    const struct repeat_attrs *a = r->attrs;
    int64_t n = r->out[0]->dim[a->axis[0]];
    *from = aril__repeat_blocks(r->in[0], a, n, a->times[0]);
    *to = aril__repeat_blocks(r->out[0], a, n, 1);
}

aril_status aril__cpu_repeat_grad(aril__run *r)
{
    aril_tensor from, to;
    repeat_blocks(r, &from, &to);
    return sum_to(&to, &from, r->workspace);
}

size_t aril__cpu_repeat_grad_scratch(const aril__run *r)
{
    aril_tensor from, to;
    repeat_blocks(r, &from, &to);
    return sum_to_scratch(&to, &from);
}
