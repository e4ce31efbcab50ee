#include "aril/ops.h"
#include "core/nest.h"
#include "ops/apply.h"
#include "ops/sample.h"

#include <string.h>

enum { BLOCK = 512 };

/* ---- nonzero ---- */

static aril_status nonzero_infer(aril__call *c)
{
    aril__meta *o = &c->out[0];
    o->dtype = ARIL_I64;
    o->ndim = 2;
    o->dim[0] = -1;
    o->dim[1] = c->in[0]->ndim;
    return ARIL_OK;
}

/* Elements from `at` on, up to a block, as truth values. */
static int64_t load_truth(const aril_tensor *t, int64_t at, uint8_t *truth)
{
    int64_t n = t->numel - at < BLOCK ? t->numel - at : BLOCK;
    double block[BLOCK];
    if (t->dtype == ARIL_BOOL || t->dtype == ARIL_U8) {
        memcpy(truth, (const uint8_t *)aril__ptr(t) + at, (size_t)n);
        return n;
    }
    aril__dtypes[t->dtype].load[ARIL__C_F64](block, aril__base(t), t->offset + at, 1, n);
    for (int64_t i = 0; i < n; i++) truth[i] = block[i] != 0;
    return n;
}

static aril_status nonzero_ref(aril__run *r)
{
    const aril_tensor *x = r->in[0];
    uint8_t truth[BLOCK];
    int64_t count = 0;
    for (int64_t at = 0, n; at < x->numel; at += n) {
        n = load_truth(x, at, truth);
        for (int64_t i = 0; i < n; i++) count += truth[i] != 0;
    }
    int64_t dim[2] = { count, x->ndim }, index[ARIL_MAX_DIMS] = { 0 };
    aril_status s = aril__run_alloc(r, 0, ARIL_I64, 2, dim);
    if (s < 0 || x->ndim == 0) return s;
    int64_t *out = aril__ptr(r->out[0]);
    for (int64_t at = 0, n; at < x->numel; at += n) {
        n = load_truth(x, at, truth);
        for (int64_t i = 0; i < n; i++) {
            for (int d = 0; truth[i] && d < x->ndim; d++) *out++ = index[d];
            for (int d = x->ndim - 1; d >= 0 && ++index[d] == x->dim[d] && d > 0; d--) index[d] = 0;
        }
    }
    return ARIL_OK;
}

static const aril__sample nonzero_samples[] = { { .in = { "b[3,4]" } },
                                                { .in = { "[5]" } },
                                                { .in = { "[]" } },
                                                { .in = { "[0,3]" } },
                                                SAMPLE_END };
OP(nonzero, .doc = "where a tensor is not 0", .onnx = "NonZero", .min_in = 1, .max_in = 1,
   .n_out = 1, .flags = NONDIFF | DYNAMIC | RAW, .types = DT_COMPUTE, .infer = nonzero_infer,
   .ref = nonzero_ref, .samples = nonzero_samples);

/* ---- public ---- */

aril_tensor *aril_nonzero(aril_tensor *x)
{
    return aril__op(&aril__op_nonzero, x);
}
