#include "backend/cpu/shape/shape.h"

#include "core/parallel.h"
#include "ops/shape/create.h"

enum { BLOCK = 512, GRAIN = 32 * 1024 };

typedef struct steps {
    const struct create_attrs *attrs;
    aril_tensor *out;
    bool from_end; /* linspace: compute the second half backwards from the end */
} steps;

static void steps_range(void *ctx, int64_t begin, int64_t end)
{
    const steps *s = ctx;
    const struct create_attrs *a = s->attrs;
    const aril__dtype_row *row = &aril__dtypes[s->out->dtype];
    double block[BLOCK];
    int64_t *integer = (int64_t *)(void *)block, n = s->out->numel;
    for (int64_t at = begin; at < end; at += BLOCK) {
        int64_t m = end - at < BLOCK ? end - at : BLOCK;
        for (int64_t i = 0; i < m; i++) {
            if (a->integer[1])
                integer[i] = (int64_t)((uint64_t)a->integer[0] +
                                       (uint64_t)(at + i) * (uint64_t)a->integer[2]);
            else if (s->from_end && at + i >= n / 2 && n > 1)
                block[i] = a->value[1] - a->value[2] * (double)(n - 1 - at - i);
            else
                block[i] = a->value[0] + a->value[2] * (double)(at + i);
        }
        row->store[a->integer[1] ? ARIL__C_I64 : ARIL__C_F64](aril__base(s->out),
                                                              s->out->offset + at, 1, block, m);
    }
}

aril_status aril__cpu_arange(aril__run *r)
{
    steps s = { .attrs = r->attrs, .out = r->out[0] };
    aril__parallel_for(r->out[0]->numel, GRAIN, steps_range, &s);
    return ARIL_OK;
}

aril_status aril__cpu_linspace(aril__run *r)
{
    steps s = { .attrs = r->attrs, .out = r->out[0], .from_end = true };
    aril__parallel_for(r->out[0]->numel, GRAIN, steps_range, &s);
    return ARIL_OK;
}
