/* From a small run to its steps. */
#include "backend/cuda/small/small.cuh"

#include "backend/cuda/linalg/product.cuh"
#include "backend/cuda/loops.cuh"
#include "backend/cuda/number.cuh"
#include "ops/elementwise/numbers.h"

#include <stdio.h>
#include <string.h>

/* A block of threads computes as fast as kernels of their own up to about here. */
enum { MOST_ELEMENTS = 1024, MOST_TERMS = 1 << 12, MOST_PRODUCTS = 1 << 15 };

typedef aril_cuda_small_step step;

static bool is_f32(const aril_tensor *t)
{
    return t && aril_cuda_host->dtype(t) == ARIL_F32;
}

/* As many threads for an element as there are, but not more than it has terms. */
static uint8_t lanes_for(int64_t n, int64_t terms)
{
    uint8_t lanes = 0;
    while (lanes < 5 && n << (lanes + 1) <= ARIL_CUDA_SMALL_THREADS && 1 << lanes < terms) lanes++;
    return lanes;
}

/* ---- formulas ---- */

/* The number of an elementwise op; -1: it is none. */
static int formula_of(const char *op)
{
    static const char *const names[] = {
#define EW1(name, ...)  #name, #name "_grad",
#define EW1N(name, ...) #name,
#define EW2(name, ...)  #name, #name "_grad_a", #name "_grad_b",
#define EW2N(name, ...) #name,
#define EW3(name, ...)  #name, #name "_grad_a", #name "_grad_b", #name "_grad_c",
#include "ops/elementwise/elementwise.def"
    };
    static_assert(sizeof names / sizeof *names == ARIL__FORMULA_COUNT, "a name for each formula");
    for (int i = 0; i < ARIL__FORMULA_COUNT; i++)
        if (strcmp(names[i], op) == 0) return i;
    return -1;
}

/* Gives operand j of a step the strides of operand k of the loops. */
static bool take_strides(step *s, int j, const aril_cuda_loops &l, int k)
{
    if (l.ndim > ARIL_CUDA_SMALL_DIMS) return false;
    s->ndim = (uint8_t)l.ndim;
    for (int d = 0; d < l.ndim; d++) {
        int64_t stride = l.stride[k][l.ndim - 1 - d];
        if (stride > INT32_MAX || stride < INT32_MIN) return false;
        s->dim[d] = (uint32_t)l.dim[l.ndim - 1 - d];
        s->stride[j][d] = (int32_t)stride;
    }
    return true;
}

static bool describe_formula(const aril_run *r, int formula, step *s)
{
    const aril_tensor *out = aril_cuda_out(r, 0), *in[ARIL_CUDA_SMALL_INPUTS] = {};
    int n_in = aril_cuda_host->n_in(r);
    int64_t n = aril_cuda_host->numel(out);
    if (aril_cuda_host->type(r) != ARIL_F32 || !is_f32(out) || n < 1 || n > MOST_ELEMENTS ||
        n_in > ARIL_CUDA_SMALL_INPUTS)
        return false;
    s->kind = ARIL_CUDA_SMALL_FORMULA;
    s->formula = (uint16_t)formula;
    s->n = (uint32_t)n;
    aril_cuda_loops l = aril_cuda_loops_of(out);
    aril_cuda_loops_add(&l, out);
    for (int i = 0; i < n_in; i++) {
        const aril_tensor *t = aril_cuda_in(r, i);
        if (t && !aril_cuda_number<float>(r, i, &s->value[i])) in[i] = t;
        if (in[i] && !is_f32(t)) return false;
        aril_cuda_loops_add(&l, in[i]);
    }
    aril_cuda_loops_merge(&l, 0);
    const double *p = aril_cuda_host->attr_f64(r, "p");
    for (int k = 0; k < 3 && p; k++) s->p[k] = (float)p[k];
    s->out = static_cast<float *>(aril_cuda_data(out));
    if (!take_strides(s, 0, l, 0)) return false;
    for (int i = 0; i < n_in; i++) {
        if (!in[i]) continue;
        s->in[i] = static_cast<const float *>(aril_cuda_data(in[i]));
        if (!take_strides(s, 1 + i, l, 1 + i)) return false;
    }
    return true;
}

/* ---- fused runs ---- */

/* While a recipe is described. */
struct recipe {
    const aril_run *r;
    const aril_fused *f;
    const aril_cuda_loops *l; /* operands: results, then inputs */
    int64_t n;
};

static bool take_operand(const recipe &q, int operand, step *s, int i)
{
    int k = ARIL_FUSED_INDEX(operand);
    if (operand == ARIL_FUSED_NONE) return true;
    if (ARIL_FUSED_KIND(operand) == ARIL_FUSED_STEP(0)) {
        s->shared |= (uint8_t)(2 << i);
        s->in[i] = reinterpret_cast<const float *>((uintptr_t)(k * q.n * 4));
        return true;
    }
    if (ARIL_FUSED_KIND(operand) == ARIL_FUSED_CONSTANT(0)) {
        const aril_fused_constant *c = &q.f->constant[k];
        bool real = c->dtype == ARIL_F32 || c->dtype == ARIL_F64;
        s->value[i] = real ? (float)c->f64 : (float)c->i64;
        return real || c->dtype == ARIL_I64 || c->dtype == ARIL_BOOL;
    }
    if (aril_cuda_number<float>(q.r, k, &s->value[i])) return true;
    const aril_tensor *t = aril_cuda_in(q.r, k);
    s->in[i] = static_cast<const float *>(aril_cuda_data(t));
    return is_f32(t) && take_strides(s, 1 + i, *q.l, q.f->n_out + k);
}

static bool describe_part(const recipe &q, int part, step *s)
{
    const aril_fused_step *from = &q.f->step[part];
    bool cast = strcmp(from->op, "cast") == 0;
    int formula = cast ? -1 : formula_of(from->op);
    if (from->type != ARIL_F32 || from->n_in > ARIL_CUDA_SMALL_INPUTS || (!cast && formula < 0) ||
        (from->dtype != ARIL_F32 && !(from->dtype == ARIL_BOOL && from->compares)))
        return false;
    s->kind = cast ? ARIL_CUDA_SMALL_COPY : ARIL_CUDA_SMALL_FORMULA;
    s->formula = (uint16_t)(cast ? 0 : formula);
    s->n = (uint32_t)q.n;
    s->shared = 1;
    s->out = reinterpret_cast<float *>((uintptr_t)(part * q.n * 4));
    for (int k = 0; k < 3; k++) s->p[k] = (float)from->p[k];
    for (int i = 0; i < from->n_in; i++)
        if (!take_operand(q, from->in[i], s, i)) return false;
    return true;
}

/* Values of parts are in shared memory; results are copied when all inputs are read, since one of
 * them may be in the memory of an input. */
static int describe_fused(const aril_run *r, const aril_fused &f, step *to, int *shared)
{
    aril_cuda_loops l = {};
    l.ndim = f.ndim;
    memcpy(l.dim, f.dim, sizeof l.dim);
    int64_t n = aril_cuda_loops_numel(&l), bytes = n * 4 * f.n_steps;
    if (n < 1 || n > MOST_ELEMENTS || bytes > ARIL_CUDA_SMALL_SHARED ||
        f.n_steps + f.n_out > ARIL_CUDA_SMALL_STEPS)
        return 0;
    for (int k = 0; k < f.n_out; k++) {
        if (f.out[k].reduce != ARIL_FUSED_EACH || !is_f32(aril_cuda_out(r, k))) return 0;
        aril_cuda_loops_add(&l, aril_cuda_out(r, k));
    }
    for (int i = 0; i < f.n_in; i++) {
        float value;
        bool number = aril_cuda_number<float>(r, i, &value);
        aril_cuda_loops_add(&l, number ? nullptr : aril_cuda_in(r, i));
    }
    aril_cuda_loops_merge(&l, 0);
    recipe q = { r, &f, &l, n };
    for (int s = 0; s < f.n_steps; s++)
        if (!describe_part(q, s, &to[s])) return 0;
    for (int k = 0; k < f.n_out; k++) {
        step *s = &to[f.n_steps + k];
        s->kind = ARIL_CUDA_SMALL_COPY;
        s->n = (uint32_t)n;
        s->shared = 2;
        s->in[0] = reinterpret_cast<const float *>((uintptr_t)(f.out[k].step * n * 4));
        s->out = static_cast<float *>(aril_cuda_data(aril_cuda_out(r, k)));
        if (!take_strides(s, 0, l, k)) return 0;
    }
    if (bytes > *shared) *shared = (int)bytes;
    return f.n_steps + f.n_out;
}

/* ---- products ---- */

static bool describe_product(const aril_run *r, aril_cuda_product_op op, step *s)
{
    const aril_tensor *a = aril_cuda_in(r, 0), *b = aril_cuda_in(r, 1), *c = aril_cuda_out(r, 0);
    const bool as_it_is[3] = {};
    aril__product p;
    if (!is_f32(a) || !is_f32(b) || !is_f32(c) || !aril_cuda_product_of(r, op, as_it_is, &p))
        return false;
    const aril_tensor *bias = aril_cuda_product_bias(r, op);
    if (p.batch != 1 || p.m < 1 || p.n < 1 || p.k < 1 || p.m > MOST_ELEMENTS ||
        p.n > MOST_ELEMENTS || p.k > MOST_TERMS || p.m * p.n * p.k > MOST_PRODUCTS ||
        (bias && !is_f32(bias)))
        return false;
    const int64_t strides[] = { p.c_row, p.c_col, p.a_row, p.a_col, p.b_row, p.b_col };
    for (int i = 0; i < 6; i++) {
        if (strides[i] * MOST_TERMS > INT32_MAX || strides[i] * MOST_TERMS < INT32_MIN)
            return false;
        s->stride[i / 2][i % 2] = (int32_t)strides[i];
    }
    s->kind = ARIL_CUDA_SMALL_PRODUCT;
    s->activation = (uint8_t)aril_cuda_product_activation(r, op);
    s->dim[0] = (uint32_t)p.m;
    s->dim[1] = (uint32_t)p.n;
    s->n = (uint32_t)(p.m * p.n);
    s->terms = (uint32_t)p.k;
    s->lanes = lanes_for(p.m * p.n, p.k);
    s->in[0] = static_cast<const float *>(aril_cuda_data(a));
    s->in[1] = static_cast<const float *>(aril_cuda_data(b));
    s->out = static_cast<float *>(aril_cuda_data(c));
    if (!bias) return true;
    s->in[2] = static_cast<const float *>(aril_cuda_data(bias));
    s->stride[3][0] = (int32_t)aril_cuda_host->strides(bias)[0];
    return true;
}

/* ---- reductions ---- */

/* Up to two dimensions of the input, innermost first: those that stay, or those that go. */
struct dims {
    int n;
    int64_t dim[2], in[2], out[2];
};

static bool add_dim(dims *to, int64_t dim, int64_t in, int64_t out)
{
    if (dim == 1) return true;
    int last = to->n - 1;
    if (last >= 0 && in == to->in[last] * to->dim[last] && out == to->out[last] * to->dim[last]) {
        to->dim[last] *= dim;
        return true;
    }
    if (to->n == 2) return false;
    to->dim[to->n] = dim;
    to->in[to->n] = in;
    to->out[to->n++] = out;
    return true;
}

/* Sums over the axes of `mask`; those that are dropped have no dimension in the result. */
static bool describe_reduce(const aril_run *r, uint32_t mask, uint32_t dropped, bool mean, step *s)
{
    const aril_tensor *x = aril_cuda_in(r, 0), *y = aril_cuda_out(r, 0);
    int64_t n = aril_cuda_host->numel(x);
    if (!is_f32(x) || !is_f32(y) || n < 1 || n > MOST_TERMS) return false;
    const int64_t *dim = aril_cuda_host->dims(x), *in = aril_cuda_host->strides(x),
                  *out = aril_cuda_host->strides(y);
    dims stay = {}, go = {};
    int at = aril_cuda_host->ndim(y) - 1;
    for (int d = aril_cuda_host->ndim(x) - 1; d >= 0; d--) {
        bool goes = mask >> d & 1;
        if (in[d] > INT32_MAX / MOST_TERMS || in[d] < INT32_MIN / MOST_TERMS) return false;
        if (!add_dim(goes ? &go : &stay, dim[d], in[d], goes ? 0 : out[at])) return false;
        at -= !(dropped >> d & 1);
    }
    s->kind = ARIL_CUDA_SMALL_REDUCE;
    s->n = (uint32_t)aril_cuda_host->numel(y);
    s->terms = (uint32_t)(n / aril_cuda_host->numel(y));
    s->lanes = lanes_for(s->n, s->terms);
    s->divisor = mean ? (float)s->terms : 1.0f;
    s->in[0] = static_cast<const float *>(aril_cuda_data(x));
    s->out = static_cast<float *>(aril_cuda_data(y));
    for (int k = 0; k < 2; k++) {
        s->dim[k] = k < stay.n ? (uint32_t)stay.dim[k] : 1;
        s->dim[2 + k] = k < go.n ? (uint32_t)go.dim[k] : 1;
        s->stride[0][k] = k < stay.n ? (int32_t)stay.out[k] : 0;
        s->stride[1][k] = k < stay.n ? (int32_t)stay.in[k] : 0;
        s->stride[1][2 + k] = k < go.n ? (int32_t)go.in[k] : 0;
    }
    return true;
}

static bool describe_sum(const aril_run *r, bool mean, step *s)
{
    const int64_t *mask = aril_cuda_host->attr_i64(r, "mask");
    const int64_t *keep = aril_cuda_host->attr_i64(r, "keep");
    if (!mask || !keep) return false;
    return describe_reduce(r, (uint32_t)*mask, *keep ? 0 : (uint32_t)*mask, mean, s);
}

static bool describe_sum_to_like(const aril_run *r, step *s)
{
    const aril_tensor *x = aril_cuda_in(r, 0), *y = aril_cuda_out(r, 0);
    int lead = aril_cuda_host->ndim(x) - aril_cuda_host->ndim(y);
    uint32_t mask = 0, dropped = 0;
    for (int d = 0; d < aril_cuda_host->ndim(x); d++) {
        if (d < lead) dropped |= 1u << d;
        if (d < lead || aril_cuda_host->dims(y)[d - lead] != aril_cuda_host->dims(x)[d])
            mask |= 1u << d;
    }
    return describe_reduce(r, mask, dropped, false, s);
}

/* ---- the interface ---- */

size_t aril_cuda_small_bytes(int n)
{
    int chunks = (n + ARIL_CUDA_SMALL_CHUNK - 1) / ARIL_CUDA_SMALL_CHUNK;
    return sizeof(step) * (size_t)(chunks * ARIL_CUDA_SMALL_CHUNK);
}

/* A product or a sum as one step; *known: the op is one. */
static bool describe_rounding(const aril_run *r, const char *op, step *s, bool *known)
{
    static const struct {
        const char *op;
        aril_cuda_product_op product;
    } products[] = { { "linear", ARIL_CUDA_LINEAR },
                     { "matmul", ARIL_CUDA_MATMUL },
                     { "outer_sum", ARIL_CUDA_OUTER_SUM } };
    *known = true;
    for (const auto &p : products)
        if (strcmp(op, p.op) == 0) return describe_product(r, p.product, s);
    if (strcmp(op, "sum") == 0) return describe_sum(r, false, s);
    if (strcmp(op, "mean") == 0) return describe_sum(r, true, s);
    if (strcmp(op, "sum_to_like") == 0) return describe_sum_to_like(r, s);
    *known = false;
    return false;
}

int aril_cuda_small_describe(const aril_run *r, aril_cuda_small_step *to, int first, int *shared)
{
    const char *op = aril_cuda_host->op(r);
    step *s = to + first;
    aril_fused f;
    bool known;
    if (aril_cuda_host->n_out(r) < 1 || !aril_cuda_out(r, 0) ||
        aril_cuda_host->numel(aril_cuda_out(r, 0)) > MOST_PRODUCTS)
        return 0; /* as most runs of large networks */
    memset(s, 0, ARIL_CUDA_SMALL_STEPS * sizeof *s);
    if (strncmp(op, "fused", 5) == 0)
        return aril_cuda_host->fused(r, &f) ? describe_fused(r, f, s, shared) : 0;
    bool described = describe_rounding(r, op, s, &known);
    if (known) return described;
    int formula = formula_of(op);
    return formula >= 0 && describe_formula(r, formula, s);
}

const aril_cuda_small_step *aril_cuda_small_product(const aril_run *r)
{
    static thread_local step only;
    bool known;
    memset(&only, 0, sizeof only);
    return describe_rounding(r, aril_cuda_host->op(r), &only, &known) ? &only : nullptr;
}

/* Whether the elements of an operand of a formula are in the order of its loop, or one element. */
static bool is_in_line(const step *s, int j)
{
    return s->ndim == 0 || s->stride[j][0] == 1 || s->stride[j][0] == 0;
}

bool aril_cuda_small_follows(aril_cuda_small_step *steps, int at)
{
    step *s = steps + at, *before = s - 1;
    if (at % ARIL_CUDA_SMALL_CHUNK == 0 || before->kind != ARIL_CUDA_SMALL_PRODUCT ||
        before->followed || s->kind != ARIL_CUDA_SMALL_FORMULA || s->shared || s->ndim > 1 ||
        s->n != before->n || (s->n > 1 && s->stride[0][0] != 1))
        return false;
    bool contiguous = (before->dim[1] == 1 || before->stride[0][1] == 1) &&
                      (before->dim[0] == 1 || before->stride[0][0] == (int32_t)before->dim[1]);
    if (!contiguous) return false;
    const float *first = before->out, *end = first + before->n;
    if (s->out != first && s->out < end && s->out + s->n > first) return false;
    uint8_t follows = 0;
    for (int i = 0; i < ARIL_CUDA_SMALL_INPUTS; i++) {
        if (!s->in[i]) continue;
        bool same = s->in[i] == first && (s->n == 1 || s->stride[1 + i][0] == 1);
        bool apart = s->in[i] >= end || s->in[i] + s->n <= first;
        if (!is_in_line(s, 1 + i) || (!same && !apart)) return false;
        if (same) follows |= (uint8_t)(1 << i);
    }
    if (!follows) return false;
    s->follows = follows;
    before->followed = true;
    return true;
}

void aril_cuda_small_wait(aril_cuda_small_step *steps, int first)
{
    steps[first].wait = true;
}

bool aril_cuda_is_small(void *, const aril_run *r)
{
    static thread_local step room[ARIL_CUDA_SMALL_STEPS];
    int shared = 0;
    return aril_cuda_small_describe(r, room, 0, &shared) > 0;
}
