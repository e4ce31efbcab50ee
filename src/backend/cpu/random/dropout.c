#include "backend/cpu/random/random.h"
#include "core/parallel.h"
#include "ops/random/dropout.h"
#include "ops/random/random.h"
#include "core/vector/targets.h"

#include <math.h>

enum { GRAIN = 16 * 1024, STEP = 256 };

typedef struct dropout_job {
    const struct dropout_attrs *a;
    aril__rng_key key;
    const void *x;
    void *y;
    int64_t inner; /* elements that share one draw */
} dropout_job;

/* An element is kept if its draw, a multiple of 2^-24, is at least p. */
static void draw(const dropout_job *j, int64_t begin, int64_t n, float *u)
{
    aril__rng_uniform_f32(j->key, begin, begin + n, u);
}

#define TEMPLATE "backend/cpu/random/dropout.inc"
#include "core/vector/each_target.inc"

aril_status aril__cpu_dropout(aril__run *r)
{
    const struct dropout_attrs *a = r->attrs;
    const aril_tensor *x = r->in[1];
    dropout_job j = {
        .a = a, .key = aril__rng_key_of(r), .x = aril__ptr(x), .y = aril__ptr(r->out[0]), .inner = 1
    };
    for (int d = x->ndim - 1; a->lead[0] >= 0 && d >= a->lead[0]; d--) j.inner *= x->dim[d];
    if (x->numel == 0) return ARIL_OK;
    int64_t grain = GRAIN / j.inner;
    aril__parallel_for(x->numel / j.inner, grain > 1 ? grain : 1,
                       ARIL__PICK(range, r->type == ARIL_F64), &j);
    return ARIL_OK;
}
