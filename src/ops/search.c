#include "ops/search.h"

#include "aril/ops.h"
#include "core/parallel.h"
#include "ops/apply.h"
#include "ops/elementwise.h"
#include "ops/sample.h"

#include <string.h>

#define T       float
#define NAME(x) x##_f32
#include "ops/search.inc"
#undef T
#undef NAME
#define T       double
#define NAME(x) x##_f64
#include "ops/search.inc"
#undef T
#undef NAME
#define T       int64_t
#define NAME(x) x##_i64
#include "ops/search.inc"
#undef T
#undef NAME
#define T       uint64_t
#define NAME(x) x##_u64
#include "ops/search.inc"
#undef T
#undef NAME

enum { GRAIN = 4096 };

ATTR_LIST(searchsorted, SEARCHSORTED_ATTRS)

/* sorted [n] for values of any shape, or [..., n] for values [..., m]. */
static aril_status searchsorted_infer(aril__call *c)
{
    const aril_tensor *sorted = c->in[0], *values = c->in[1];
    aril__meta *o = &c->out[0];
    bool fits = sorted->ndim == 1 || (sorted->ndim > 0 && sorted->ndim == values->ndim);
    for (int d = 0; d + 1 < sorted->ndim && fits; d++)
        fits = sorted->dim[d] == values->dim[d] || sorted->dim[d] < 0 || values->dim[d] < 0;
    if (!fits) {
        char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_SHAPE, "searchsorted: sorted values of shape %s for values %s",
                          aril__text(a, sorted), aril__text(b, values));
    }
    if (sorted->dtype != values->dtype)
        return aril__fail(ARIL_ERR_DTYPE, "searchsorted: %s among %s",
                          aril__dtypes[values->dtype].name, aril__dtypes[sorted->dtype].name);
    o->dtype = ARIL_I64;
    o->ndim = values->ndim;
    memcpy(o->dim, values->dim, (size_t)o->ndim * sizeof *o->dim);
    return ARIL_OK;
}

typedef struct search_job {
    void (*search)(const void *sorted, int64_t n, const void *values, int64_t m, bool right,
                   int64_t *out);
    const char *sorted, *values;
    int64_t *out;
    int64_t n, m, bytes; /* m values for each n sorted ones */
    bool right;
} search_job;

static void search_range(void *ctx, int64_t begin, int64_t end)
{
    const search_job *j = ctx;
    while (begin < end) {
        int64_t row = begin / j->m, stop = (row + 1) * j->m;
        if (stop > end) stop = end;
        j->search(j->sorted + row * j->n * j->bytes, j->n, j->values + begin * j->bytes,
                  stop - begin, j->right, j->out + begin);
        begin = stop;
    }
}

static aril_status searchsorted_ref(aril__run *r)
{
    const aril_tensor *sorted = r->in[0], *values = r->in[1];
    if (values->numel == 0) return ARIL_OK;
    search_job j = {
        .search = r->type == ARIL_F32   ? search_f32
                  : r->type == ARIL_F64 ? search_f64
                  : r->type == ARIL_I64 ? search_i64
                                        : search_u64,
        .sorted = aril__ptr(sorted),
        .values = aril__ptr(values),
        .out = aril__ptr(r->out[0]),
        .n = sorted->dim[sorted->ndim - 1],
        .m = sorted->ndim == 1 ? values->numel : values->dim[values->ndim - 1],
        .bytes = aril__dtypes[r->type].bits / 8,
        .right = ((const struct searchsorted_attrs *)r->attrs)->right[0],
    };
    aril__parallel_for(values->numel, GRAIN, search_range, &j);
    return ARIL_OK;
}

static const aril__sample searchsorted_samples[] = {
    { .in = { "i9[1]", "i9[2,3]" }, .attrs = &(const struct searchsorted_attrs){ { 0 } } },
    { .in = { "i9[2,1]", "i9[2,3]" },
      .attrs = &(const struct searchsorted_attrs){ { 1 } },
      .flags = SAMPLE_BATCH },
    { .in = { "i9[0]", "i9[]" }, .attrs = &(const struct searchsorted_attrs){ { 0 } } },
    SAMPLE_END
};
OP(searchsorted, .doc = "where values would stand among sorted ones", .min_in = 2, .max_in = 2,
   .n_out = 1, .flags = NONDIFF, .types = DT_COMPUTE,
   .native = DT(ARIL_F32) | DT(ARIL_F64) | DT(ARIL_I64) | DT(ARIL_U64), .infer = searchsorted_infer,
   .ref = searchsorted_ref, .samples = searchsorted_samples, WITH_ATTRS(searchsorted));

/* ---- public ---- */

aril_tensor *aril_searchsorted(aril_tensor *sorted, aril_tensor *values, aril_search_opts opts)
{
    if (!sorted || !values) return aril__null_tensor("searchsorted");
    if ((sorted->flags | values->flags) & ARIL__POISON)
        return sorted->flags & ARIL__POISON ? sorted : values;
    ARIL_SCOPE;
    aril_dtype type = aril__result_type(2, (aril_tensor *[]){ sorted, values });
    struct searchsorted_attrs a = { { opts.right } };
    return aril_escape(aril__op_with(&a, &aril__op_searchsorted, aril_cast(sorted, type),
                                     aril_cast(values, type)));
}

aril_tensor *aril_bucketize(aril_tensor *x, aril_tensor *boundaries, aril_search_opts opts)
{
    return aril_searchsorted(boundaries, x, opts);
}
