#include "backend/cpu/elementwise.h"

#include "core/nest.h"
#include "core/parallel.h"
#include "ops/copy.h"

#include <string.h>

enum {
    OPERANDS = 6, /* up to five inputs, and the result */
    BLOCK = 512,  /* elements staged at a time: four operands of 8 bytes fit L1 */
    GRAIN = 32 * 1024,
};

#define TABLES(level)                                                             \
    {                                                                             \
        [ARIL__C_F32] = aril__ew_f32##level, [ARIL__C_F64] = aril__ew_f64##level, \
        [ARIL__C_I64] = aril__ew_i64##level, [ARIL__C_U64] = aril__ew_u64##level, \
    }
static aril__ew_fn *const *const tables[ARIL__CPU_LEVELS][ARIL__C_COUNT] = {
    [ARIL__CPU_BASELINE] = TABLES(),
#if ARIL__TARGETS
    [ARIL__CPU_AVX2] = TABLES(_avx2),
    [ARIL__CPU_AVX512] = TABLES(_avx512),
#endif
};
static const uint8_t ctype_dtype[ARIL__C_COUNT] = { [ARIL__C_F32] = ARIL_F32,
                                                    [ARIL__C_F64] = ARIL_F64,
                                                    [ARIL__C_I64] = ARIL_I64,
                                                    [ARIL__C_U64] = ARIL_U64 };

aril__ew_fn *aril__ew_kernel(int op, aril__ctype type)
{
    return tables[aril__cpu()][type][op];
}

typedef struct operand {
    char *base;
    int64_t offset;
    uint8_t dtype;
    bool used;
    bool direct;   /* elements lie one after another, in the kernel's type */
    bool constant; /* one element for all */
} operand;

typedef struct job {
    aril__ew_fn *fn;
    aril__ctype ctype;
    size_t size; /* of the ctype */
    const double *params;
    int n_in;
    aril__nest nest;
    operand op[OPERANDS]; /* the result is the last: op[n_in] */
    uint8_t result_dtype; /* what the kernel writes */
    atomic_int bad;
} job;

/* Copies m elements from linear position `at` between operand k and a dense block. */
static void stage(const job *j, int k, int64_t at, int64_t m, void *block, bool load,
                  aril__ctype ctype, size_t size)
{
    const operand *o = &j->op[k];
    const aril__dtype_row *row = &aril__dtypes[o->dtype];
    aril__nest one = { .ndim = j->nest.ndim, .n = 1 };
    memcpy(one.dim, j->nest.dim, sizeof one.dim);
    memcpy(one.stride[0], j->nest.stride[k], sizeof one.stride[0]);
    aril__nest_at p;
    aril__nest_seek(&one, &p, at, &o->offset);
    int64_t step = one.ndim ? one.stride[0][one.ndim - 1] : 0;
    for (int64_t done = 0; done < m;) {
        int64_t run = one.ndim ? aril__nest_run(&one, &p) : m;
        if (run > m - done) run = m - done;
        char *dense = (char *)block + (size_t)done * size;
        if (load)
            row->load[ctype](dense, o->base, p.offset[0], step, run);
        else
            row->store[ctype](o->base, p.offset[0], step, dense, run);
        done += run;
        aril__nest_move(&one, &p, run);
    }
}

static void run_range(void *ctx, int64_t begin, int64_t end)
{
    job *j = ctx;
    _Alignas(64) char block[OPERANDS][BLOCK * 8];
    const void *in[OPERANDS] = { 0 };
    const operand *result = &j->op[j->n_in];
    bool all_direct = result->direct;
    int bad = 0;
    for (int i = 0; i < j->n_in; i++) {
        const operand *o = &j->op[i];
        all_direct = all_direct && (o->direct || !o->used);
        if (o->used && o->constant) {
            int64_t m = end - begin < BLOCK ? end - begin : BLOCK;
            aril__dtypes[o->dtype].load[j->ctype](block[i], o->base, o->offset, 0, m);
            in[i] = block[i];
        }
    }
    size_t out_size = aril__dtype_bytes((aril_dtype)j->result_dtype, 1);
    int64_t step = all_direct ? end - begin : BLOCK;
    for (int64_t at = begin; at < end; at += step) {
        int64_t m = end - at < step ? end - at : step;
        for (int i = 0; i < j->n_in; i++) {
            const operand *o = &j->op[i];
            if (!o->used || (o->constant && !o->direct)) continue;
            if (o->direct) {
                in[i] = o->base + (size_t)(o->offset + at) * j->size;
            } else {
                stage(j, i, at, m, block[i], true, j->ctype, j->size);
                in[i] = block[i];
            }
        }
        if (result->direct) {
            j->fn(m, result->base + (size_t)(result->offset + at) * out_size, in, j->params, &bad);
        } else if (j->result_dtype == ARIL_BOOL) {
            /* A truth value on its way to another type or through strides. */
            uint8_t truth[BLOCK];
            int64_t whole[BLOCK];
            j->fn(m, truth, in, j->params, &bad);
            for (int64_t k = 0; k < m; k++) whole[k] = truth[k];
            stage(j, j->n_in, at, m, whole, false, ARIL__C_I64, sizeof *whole);
        } else {
            j->fn(m, block[j->n_in], in, j->params, &bad);
            stage(j, j->n_in, at, m, block[j->n_in], false, j->ctype, j->size);
        }
    }
    if (aril__unlikely(bad)) atomic_store(&j->bad, bad);
}

static aril_status report(const aril__run *r, int bad)
{
    if (!bad) return ARIL_OK;
    return aril__fail(ARIL_ERR_NUMBER,
                      bad == ARIL__BAD_DIVISOR
                          ? "%s: integer division by zero"
                          : "%s: integers cannot be raised to a negative power",
                      r->op->name);
}

/* An integer division or power that meets a bad number must leave its destination as it was: it
 * is tried in memory of its own first. */
static aril_status run_aside(aril__run *r)
{
    ARIL_SCOPE;
    aril__thread *th = aril__self();
    aril_tensor *out = r->out[0];
    aril_tensor *aside = aril__give(th, aril__tensor_new(th, (aril_dtype)out->dtype, out->ndim,
                                                         out->dim, r->device));
    aril_status s = aril_tensor_status(aside);
    if (s < 0) return s;
    aril__run first = *r;
    first.out = &aside;
    s = aril__cpu_elementwise(&first);
    if (s == ARIL_OK) aril__copy_elements(out, aside);
    return s;
}

/* True when the result lies over an input and the kernel may fail half-way. */
static bool may_spoil(const aril__run *r)
{
    int id = r->op->id;
    return (id == ARIL__OP_floor_div || id == ARIL__OP_remainder || id == ARIL__OP_fmod ||
            id == ARIL__OP_pow) &&
           !aril__is_float(r->type) && r->out[0]->storage == r->in[0]->storage;
}

aril_status aril__cpu_elementwise(aril__run *r)
{
    static const double no_params[ARIL__EW_PARAMS];
    const double *params = r->attrs ? ((const struct ew_attrs *)r->attrs)->p : no_params;
    aril_tensor *out = r->out[0];
    aril__ctype ctype = aril__dtypes[r->type].ctype;
    aril__ew_fn *fn = tables[aril__cpu()][ctype][r->op->id];
    if (aril__unlikely(!fn))
        return aril__fail(ARIL_ERR_DTYPE, "%s: not defined for %s", r->op->name,
                          aril__dtypes[r->type].name);
    if (aril__unlikely(ctype >= ARIL__C_I64) && may_spoil(r)) return run_aside(r);
    int64_t n = out->numel;
    uint8_t native = ctype_dtype[ctype];
    uint8_t result = r->op->formula->rule == ARIL__EW_CMP ? ARIL_BOOL : native;

    /* Small and dense, of one type and shape: straight to the kernel. */
    if (n <= BLOCK && out->dtype == result) {
        const void *in[OPERANDS];
        bool direct = n == 1 || aril__is_dense(out);
        for (int i = 0; i < r->n_in && direct; i++) {
            const aril_tensor *t = r->in[i];
            direct = !t || (t->dtype == native && t->numel == n && (n == 1 || aril__is_dense(t)));
            in[i] = t && direct ? aril__base(t) + (size_t)t->offset * (native == ARIL_F32 ? 4 : 8)
                                : NULL;
        }
        if (aril__likely(direct)) {
            int bad = 0;
            fn(n, aril__ptr(out), in, params, &bad);
            return aril__unlikely(bad) ? report(r, bad) : ARIL_OK;
        }
    }
    if (n == 0) return ARIL_OK;

    job j = { .fn = fn,
              .ctype = ctype,
              .size = aril__dtype_bytes((aril_dtype)native, 1),
              .params = params,
              .n_in = r->n_in,
              .nest = aril__nest_of(out->ndim, out->dim),
              .result_dtype = result };
    for (int i = 0; i <= r->n_in; i++) {
        const aril_tensor *t = i < r->n_in ? r->in[i] : out;
        operand *o = &j.op[i];
        aril__nest_add(&j.nest, t);
        if (t)
            *o = (operand){
                .base = aril__base(t), .offset = t->offset, .dtype = t->dtype, .used = true
            };
    }
    aril__nest_merge(&j.nest, r->n_in);
    for (int i = 0; i <= r->n_in; i++) {
        operand *o = &j.op[i];
        o->direct = o->used && o->dtype == (i == r->n_in ? result : native) &&
                    aril__nest_linear(&j.nest, i);
        o->constant = aril__nest_constant(&j.nest, i);
    }
    aril__parallel_for(n, GRAIN, run_range, &j);
    return report(r, atomic_load(&j.bad));
}
