#include "ops/reduce/sort.h"

#include "aril/ops.h"
#include "core/memory.h"
#include "core/loops.h"
#include "core/parallel.h"
#include "ops/table/apply.h"
#include "ops/shape/like.h"
#include "ops/reduce/reduce.h"
#include "ops/table/sample.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- lines ---- */

enum {
    RUN = 16,
    GRAIN = 8 * 1024,
    DIGITS = 1 << 11,
    DIGIT_LEAST = 80,  /* minimum elements for radix sort */
    PIECE = 64 * 1024, /* minimum elements of a long line per thread */
};

typedef enum kind { SORT, TOPK, KTH, MEDIAN, NUMBERS, MODE } kind; /* NUMBERS: nanmedian */

typedef struct job job;
struct job {
    kind kind;
    bool down, wide; /* wide: keys may need 64 bits */
    int64_t n, k, out_n, pieces;
    const aril_tensor *t[3]; /* x, values, indices */
    int64_t stride[3], base[3];
    aril__loops lines;
    atomic_bool failed;
};

/* Fewer passes for long lines, fewer counters for short ones. */
static int digit_bits(int64_t n)
{
    return n < 8192 ? 8 : 11;
}

/* A key of up to 32 bits above its position. */
#define E           uint64_t
#define KEY(e)      ((uint32_t)((e) >> 32))
#define POSITION(e) ((uint32_t)(e))
#define K           uint32_t
#define BITS        32
#define NAME(x)     x##_32
#include "ops/reduce/sort.inc"

typedef struct keyed {
    uint64_t key;
    int64_t at;
} keyed;

#define E           keyed
#define KEY(e)      ((e).key)
#define POSITION(e) ((e).at)
#define K           uint64_t
#define BITS        64
#define NAME(x)     x##_64
#include "ops/reduce/sort.inc"

/* Keys order like values: NaN comes last, and -0 equals +0. */
static uint32_t key_f32(float v)
{
    uint32_t u = aril__f32_bits(v + 0.0f), sign = (uint32_t) - (int32_t)(u >> 31);
    return v != v ? UINT32_MAX : u ^ (sign | 0x80000000u);
}

static uint64_t key_f64(double v)
{
    uint64_t u, sign;
    v += 0.0;
    memcpy(&u, &v, sizeof u);
    sign = (uint64_t) - (int64_t)(u >> 63);
    return v != v ? UINT64_MAX : u ^ (sign | UINT64_C(1) << 63);
}

/* Keys of the values, which have ctype F32, or are integers relative to `least`. */
static void keys_32(const job *j, bool real, const void *values, uint64_t least, uint32_t *keys)
{
    uint32_t turn = j->down ? UINT32_MAX : 0;
    if (real)
        for (int64_t i = 0; i < j->n; i++) keys[i] = key_f32(((const float *)values)[i]) ^ turn;
    else
        for (int64_t i = 0; i < j->n; i++)
            keys[i] = (uint32_t)(((const uint64_t *)values)[i] - least) ^ turn;
}

/* The first k in sorted order, as elements at `p`: most keys are only compared with the last of
 * those found so far, a block at a time. */
static void scan_first_k(const uint32_t *keys, uint64_t *p, int64_t n, int64_t k)
{
    enum { SIDE = 32 };
    for (int64_t i = 0; i < k; i++) p[i] = (uint64_t)keys[i] << 32 | (uint64_t)i;
    for (int64_t i = k / 2 - 1; i >= 0; i--) sink_32(p, k, i);
    for (int64_t i = k; i < n; i += SIDE) {
        int64_t stop = n - i < SIDE ? n : i + SIDE;
        uint32_t last = (uint32_t)(p[0] >> 32), any = 0;
        for (int64_t l = i; l < stop; l++) any |= keys[l] < last;
        for (int64_t l = i; l < stop && any; l++) {
            if (keys[l] >= (uint32_t)(p[0] >> 32)) continue;
            p[0] = (uint64_t)keys[l] << 32 | (uint64_t)l;
            sink_32(p, k, 0);
        }
    }
    for (int64_t left = k - 1; left > 0; left--) {
        uint64_t last = p[0];
        p[0] = p[left];
        p[left] = last;
        sink_32(p, left, 0);
    }
}

/* Integers that differ by less than 2^32 get 32-bit keys, relative to the smallest. */
static bool fits_32(const job *j, const void *values, uint64_t *least)
{
    aril__ctype type = aril__dtypes[j->t[0]->dtype].ctype;
    uint64_t turn = type == ARIL__C_I64 ? UINT64_C(1) << 63 : 0, low = UINT64_MAX, high = 0;
    const uint64_t *v = values;
    for (int64_t i = 0; i < j->n; i++) {
        uint64_t x = v[i] ^ turn;
        low = x < low ? x : low;
        high = x > high ? x : high;
    }
    *least = low ^ turn;
    return high - low <= UINT32_MAX;
}

static void keys_64(const job *j, const void *values, keyed *p)
{
    aril__ctype type = aril__dtypes[j->t[0]->dtype].ctype;
    uint64_t turn = j->down ? UINT64_MAX : 0;
    for (int64_t i = 0; i < j->n; i++) {
        uint64_t v = type == ARIL__C_F64   ? key_f64(((const double *)values)[i])
                     : type == ARIL__C_F32 ? key_f64((double)((const float *)values)[i])
                                           : ((const uint64_t *)values)[i];
        if (type == ARIL__C_I64) v ^= UINT64_C(1) << 63;
        p[i] = (keyed){ v ^ turn, i };
    }
}

/* Stores the resulting values, of the ctype of `values`, and their indices. */
static void give(const job *j, const int64_t *offset, const int64_t *where, const void *values,
                 void *sorted)
{
    const aril_tensor *x = j->t[0];
    aril__ctype type = aril__dtypes[x->dtype].ctype;
    if (type == ARIL__C_F32)
        for (int64_t i = 0; i < j->out_n; i++)
            ((float *)sorted)[i] = ((const float *)values)[where[i]];
    else
        for (int64_t i = 0; i < j->out_n; i++)
            ((uint64_t *)sorted)[i] = ((const uint64_t *)values)[where[i]];
    aril__dtypes[j->t[1]->dtype].store[type](aril__base(j->t[1]), offset[1], j->stride[1], sorted,
                                             j->out_n);
    aril__dtypes[ARIL_I64].store[ARIL__C_I64](aril__base(j->t[2]), offset[2], j->stride[2], where,
                                              j->out_n);
}

static void line(const job *j, const int64_t *offset, char *scratch, void *room)
{
    int64_t n = j->n;
    const aril_tensor *x = j->t[0];
    aril__ctype type = aril__dtypes[x->dtype].ctype;
    bool real = aril__is_float((aril_dtype)x->dtype);
    uint64_t *values = (uint64_t *)(void *)scratch, *rest = values + n, least = 0;
    aril__dtypes[x->dtype].load[type](values, aril__base(x), offset[0], j->stride[0], n);
    if (n > UINT32_MAX || type == ARIL__C_F64 || (!real && !fits_32(j, values, &least))) {
        keyed *p = (keyed *)(void *)rest, *spare = p + n;
        keys_64(j, values, p);
        order_64(j, p, spare, real ? UINT64_MAX : 0, room, p);
        for (int64_t i = 0; i < j->out_n; i++) ((int64_t *)(void *)spare)[i] = p[i].at;
        give(j, offset, (int64_t *)(void *)spare, values, p);
        return;
    }
    uint64_t *p = rest, *spare = p + n;
    uint32_t *keys = (uint32_t *)(void *)spare;
    keys_32(j, real, values, least, keys);
    if (j->kind == TOPK && j->k < n / 8) {
        scan_first_k(keys, p, n, j->k);
    } else {
        for (int64_t i = 0; i < n; i++) p[i] = (uint64_t)keys[i] << 32 | (uint64_t)i;
        order_32(j, p, spare, real ? UINT32_MAX : 0, room, p);
    }
    for (int64_t i = 0; i < j->out_n; i++) spare[i] = (uint32_t)p[i];
    give(j, offset, (int64_t *)(void *)spare, values, p);
}

static void lines_range(void *ctx, int64_t begin, int64_t end)
{
    job *j = ctx;
    size_t each = j->wide ? 8 + 2 * sizeof(keyed) : 24; /* values, and keys twice */
    size_t room = j->n < DIGIT_LEAST ? 0 : (size_t)j->pieces * DIGITS * sizeof(int64_t);
    char *scratch = aril__malloc(room + (size_t)j->n * each);
    if (!scratch) {
        atomic_store(&j->failed, true);
        return;
    }
    aril__loops_at p;
    aril__loops_seek(&j->lines, &p, begin, j->base);
    for (; begin < end; begin++) {
        line(j, p.offset, scratch + room, room ? scratch : NULL);
        if (begin + 1 < end) aril__loops_move(&j->lines, &p, 1);
    }
    free(scratch);
}

static aril_status run(aril__run *r, kind what)
{
    const struct sort_attrs *a = r->attrs;
    const aril_tensor *x = r->in[0];
    int axis = (int)a->axis[0];
    job j = { .kind = what,
              .down = a->down[0],
              .n = x->ndim ? x->dim[axis] : 1,
              .k = a->k[0],
              .out_n = 1,
              .t = { x, r->out[0], r->out[1] },
              .lines = { .n = 3 } };
    if (x->numel == 0 || r->out[0]->numel == 0) return ARIL_OK;
    if (what == SORT)
        j.out_n = j.n;
    else if (what == TOPK)
        j.out_n = j.k;
    bool full = r->out[0]->ndim == x->ndim; /* the results keep the axis */
    for (int k = 0; k < 3; k++) {
        const aril_tensor *t = j.t[k];
        j.base[k] = t->offset;
        j.stride[k] = x->ndim && (k == 0 || full) ? t->stride[axis] : 1;
    }
    for (int d = 0; d < x->ndim; d++) {
        if (d == axis) continue;
        int at = j.lines.ndim++;
        j.lines.dim[at] = x->dim[d];
        for (int k = 0; k < 3; k++)
            j.lines.stride[k][at] = j.t[k]->stride[k == 0 || full || d < axis ? d : d - 1];
    }
    aril__loops_merge(&j.lines, 0);
    j.wide = aril__dtypes[x->dtype].bits > 32 || j.n > UINT32_MAX;
    /* Threads share the lines or, if there is only one, each pass over it. */
    j.pieces = x->numel == j.n ? aril__parallel_pieces(j.n, PIECE) : 1;
    if (j.pieces > 64) j.pieces = 64;
    aril__parallel_for(x->numel / j.n, GRAIN / j.n, lines_range, &j);
    if (atomic_load(&j.failed))
        return aril__fail(ARIL_ERR_MEMORY, "%s: no memory to sort lines of %lld", r->op->name,
                          (long long)j.n);
    return ARIL_OK;
}

bool aril__sort_order(int64_t *order, int64_t n, bool (*before)(const void *ctx, int64_t, int64_t),
                      const void *ctx)
{
    int64_t *from = order, *to = aril__malloc((size_t)(n > 0 ? n : 1) * sizeof *to), *spare = to;
    if (!to) return false;
    for (int64_t i = 0; i < n; i++) order[i] = i;
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t left = 0; left < n; left += 2 * width) {
            int64_t a = left, middle = left + width < n ? left + width : n;
            int64_t b = middle, end = left + 2 * width < n ? left + 2 * width : n;
            for (int64_t k = left; k < end; k++)
                to[k] = a < middle && (b == end || !before(ctx, from[b], from[a])) ? from[a++]
                                                                                   : from[b++];
        }
        int64_t *t = from;
        from = to;
        to = t;
    }
    if (from != order) memcpy(order, from, (size_t)n * sizeof *order);
    free(spare);
    return true;
}

/* ---- shape inference ---- */

ATTR_LIST(sort, SORT_ATTRS)

static void both_outputs(aril__call *c, int ndim, const int64_t *dim)
{
    c->out[0].dtype = (aril_dtype)c->in[0]->dtype;
    c->out[1].dtype = ARIL_I64;
    for (int k = 0; k < 2; k++) {
        c->out[k].ndim = ndim;
        memcpy(c->out[k].dim, dim, (size_t)ndim * sizeof *dim);
    }
}

static aril_status sort_infer(aril__call *c)
{
    both_outputs(c, c->in[0]->ndim, c->in[0]->dim);
    return ARIL_OK;
}

static aril_status topk_infer(aril__call *c)
{
    const struct sort_attrs *a = c->attrs;
    const aril_tensor *x = c->in[0];
    int64_t n = x->ndim ? x->dim[a->axis[0]] : 1;
    if (a->k[0] < (x->ndim ? 0 : 1) || (n >= 0 && a->k[0] > n)) {
        char text[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_ARG, "topk: k is %lld, but axis %d of %s has %lld elements",
                          (long long)a->k[0], (int)a->axis[0], aril__text(text, x), (long long)n);
    }
    both_outputs(c, x->ndim, x->dim);
    for (int i = 0; i < 2 && x->ndim; i++) c->out[i].dim[a->axis[0]] = a->k[0];
    return ARIL_OK;
}

/* Ops that select one element of each line. */
static aril_status one_infer(aril__call *c)
{
    const struct sort_attrs *a = c->attrs;
    const aril_tensor *x = c->in[0];
    int64_t dim[ARIL_MAX_DIMS], n = x->ndim ? x->dim[a->axis[0]] : 1;
    int ndim = 0;
    char text[ARIL__SHAPE_TEXT];
    if (n == 0)
        return aril__fail(ARIL_ERR_SHAPE, "%s: axis %d of %s has no elements", c->op->name,
                          (int)a->axis[0], aril__text(text, x));
    if (a->k[0] < 0 || (n > 0 && a->k[0] >= n))
        return aril__fail(ARIL_ERR_ARG, "%s: k is %lld, but axis %d of %s has %lld elements",
                          c->op->name, (long long)a->k[0] + 1, (int)a->axis[0], aril__text(text, x),
                          (long long)n);
    for (int d = 0; d < x->ndim; d++)
        if (d != a->axis[0])
            dim[ndim++] = x->dim[d];
        else if (a->keep[0])
            dim[ndim++] = 1;
    both_outputs(c, ndim, dim);
    return ARIL_OK;
}

static aril_status sort_ref(aril__run *r)
{
    return run(r, SORT);
}

static aril_status topk_ref(aril__run *r)
{
    return run(r, TOPK);
}

static aril_status kthvalue_ref(aril__run *r)
{
    return run(r, KTH);
}

static aril_status median_ref(aril__run *r)
{
    return run(r, MEDIAN);
}

static aril_status nanmedian_ref(aril__run *r)
{
    return run(r, NUMBERS);
}

static aril_status mode_ref(aril__run *r)
{
    return run(r, MODE);
}

VJP(sort)
{
    int axis = (int)((const struct sort_attrs *)c->attrs)->axis[0];
    if (c->g[0]) GRAD(0, aril__put_back(c->g[0], axis, c->y[1], c->x[0]));
}

VJP(one)
{
    const struct sort_attrs *a = c->attrs;
    if (!c->g[0]) return;
    struct reduce_attrs axis = { { c->x[0]->ndim ? 1 << a->axis[0] : 0 }, { a->keep[0] } };
    GRAD(0, aril__put_back(aril__unreduce(c->g[0], &axis), (int)a->axis[0],
                           aril__unreduce(c->y[1], &axis), c->x[0]));
}

/* ---- op table rows ---- */

static const aril__sample sort_samples[] = {
    { .in = { "d[2,5]" },
      .attrs = &(const struct sort_attrs){ .axis = { 1 } },
      .flags = SAMPLE_BATCH },
    { .in = { "d[4,2,3]" }, .attrs = &(const struct sort_attrs){ .axis = { 0 }, .down = { 1 } } },
    { .in = { "d[40]" }, .attrs = &(const struct sort_attrs){ .axis = { 0 } } },
    { .in = { "d[]" }, .attrs = &(const struct sort_attrs){ .axis = { 0 } } },
    { .in = { "d[0,3]" }, .attrs = &(const struct sort_attrs){ .axis = { 0 } } },
    SAMPLE_END
};
OP(sort, .doc = "in order along an axis, and from where", .min_in = 1, .max_in = 1, .n_out = 2,
   .flags = STRIDED, .types = DT_COMPUTE, .infer = sort_infer, .ref = sort_ref, .vjp = sort_vjp,
   .saves = { OUT(1) | LIKE(0) }, .samples = sort_samples, WITH_ATTRS(sort));

static const aril__sample topk_samples[] = {
    { .in = { "d[2,5]" },
      .attrs = &(const struct sort_attrs){ .axis = { 1 }, .down = { 1 }, .k = { 2 } },
      .flags = SAMPLE_BATCH },
    { .in = { "d[4,2,3]" }, .attrs = &(const struct sort_attrs){ .axis = { 0 }, .k = { 3 } } },
    { .in = { "d[30,2]" },
      .attrs = &(const struct sort_attrs){ .axis = { 0 }, .down = { 1 }, .k = { 3 } } },
    { .in = { "d[]" }, .attrs = &(const struct sort_attrs){ .axis = { 0 }, .k = { 1 } } },
    { .in = { "d[3]" }, .attrs = &(const struct sort_attrs){ .axis = { 0 }, .k = { 0 } } },
    SAMPLE_END
};
OP(topk, .doc = "the k largest or smallest along an axis, and where", .onnx = "TopK", .min_in = 1,
   .max_in = 1, .n_out = 2, .flags = STRIDED, .types = DT_COMPUTE, .infer = topk_infer,
   .ref = topk_ref, .vjp = sort_vjp, .saves = { OUT(1) | LIKE(0) }, .samples = topk_samples,
   WITH_ATTRS(sort));

static const aril__sample one_samples[] = {
    { .in = { "d[2,5]" },
      .attrs = &(const struct sort_attrs){ .axis = { 1 } },
      .flags = SAMPLE_BATCH },
    { .in = { "d[4,2,3]" }, .attrs = &(const struct sort_attrs){ .axis = { 0 }, .keep = { 1 } } },
    { .in = { "d[]" }, .attrs = &(const struct sort_attrs){ .axis = { 0 } } },
    { .in = { "d[0,3]" }, .attrs = &(const struct sort_attrs){ .axis = { 1 } } },
    SAMPLE_END
};
static const aril__sample kthvalue_samples[] = {
    { .in = { "d[2,5]" },
      .attrs = &(const struct sort_attrs){ .axis = { 1 }, .k = { 2 } },
      .flags = SAMPLE_BATCH },
    { .in = { "d[4,2,3]" },
      .attrs = &(const struct sort_attrs){ .axis = { 0 }, .k = { 3 }, .keep = { 1 } } },
    { .in = { "d[]" }, .attrs = &(const struct sort_attrs){ .axis = { 0 } } },
    SAMPLE_END
};
OP(kthvalue, .doc = "the k-th smallest along an axis, and where", .min_in = 1, .max_in = 1,
   .n_out = 2, .flags = STRIDED, .types = DT_COMPUTE, .infer = one_infer, .ref = kthvalue_ref,
   .vjp = one_vjp, .saves = { OUT(1) | LIKE(0) }, .samples = kthvalue_samples, WITH_ATTRS(sort));
OP(median, .doc = "the lower median along an axis, and where", .min_in = 1, .max_in = 1, .n_out = 2,
   .flags = STRIDED, .types = DT_COMPUTE, .infer = one_infer, .ref = median_ref, .vjp = one_vjp,
   .saves = { OUT(1) | LIKE(0) }, .samples = one_samples, WITH_ATTRS(sort));
OP(nanmedian, .doc = "the lower median of what is not NaN along an axis, and where", .min_in = 1,
   .max_in = 1, .n_out = 2, .flags = STRIDED, .types = DT_COMPUTE, .infer = one_infer,
   .ref = nanmedian_ref, .vjp = one_vjp, .saves = { OUT(1) | LIKE(0) }, .samples = one_samples,
   WITH_ATTRS(sort));
OP(mode, .doc = "the most frequent value along an axis, and where", .min_in = 1, .max_in = 1,
   .n_out = 2, .flags = STRIDED, .types = DT_COMPUTE, .infer = one_infer, .ref = mode_ref,
   .vjp = one_vjp, .saves = { OUT(1) | LIKE(0) }, .samples = one_samples, WITH_ATTRS(sort));

/* ---- public ---- */

static aril_tensor *along(const aril__op *op, aril_tensor *x, int axis, struct sort_attrs a,
                          aril_tensor **indices)
{
    aril_tensor *out[ARIL__MAX_OUT];
    bool fits = true;
    if (x && !aril__is_poison(x)) {
        a.axis[0] = aril__axis(op->name, axis, x->ndim);
        fits = a.axis[0] >= 0;
    }
    if (fits)
        aril__apply(op, 1, &x, &a, out);
    else
        aril__poison_all(2, out);
    if (indices) *indices = out[1];
    return out[0];
}

aril_tensor *aril_sort(aril_tensor *x, int axis, aril_sort_opts opts, aril_tensor **indices)
{
    return along(&aril__op_sort, x, axis, (struct sort_attrs){ .down = { opts.descending } },
                 indices);
}

aril_tensor *aril_argsort(aril_tensor *x, int axis, aril_sort_opts opts)
{
    aril_tensor *indices;
    aril_drop(aril_sort(x, axis, opts, &indices));
    return indices;
}

aril_tensor *aril_topk(aril_tensor *x, int64_t k, int axis, aril_topk_opts opts,
                       aril_tensor **indices)
{
    struct sort_attrs a = { .down = { !opts.smallest }, .k = { k } };
    if (k == 0 && x && x->ndim == 0) a.k[0] = 1; /* a 0-d result has one element, as in PyTorch */
    return along(&aril__op_topk, x, axis, a, indices);
}

/* One element of each line along an axis, or of the flattened tensor. */
static aril_tensor *one_of(const aril__op *op, aril_tensor *x, aril_axes axes, int64_t k,
                           aril_tensor **indices)
{
    struct reduce_attrs r; /* checks the axes */
    aril_tensor *where = NULL, *y;
    if (aril__reduce_attrs(op->name, x, axes, &r) < 0) {
        y = aril__poison();
        where = aril__poison();
    } else if (axes.n > 1) {
        aril__fail(ARIL_ERR_ARG, "%s: %d axes; takes one, or ARIL_ALL for the flattened tensor",
                   op->name, axes.n);
        y = aril__poison();
        where = aril__poison();
    } else if (axes.n == 1 || x->ndim == 0) {
        struct sort_attrs a = { .k = { k }, .keep = { axes.keepdim && x->ndim } };
        y = along(op, x, axes.n ? axes.axis[0] : 0, a, &where);
    } else {
        y = along(op, aril_reshape(x, ARIL_SHAPE(-1)), 0, (struct sort_attrs){ .k = { k } },
                  &where);
        struct reduce_attrs ones = { { r.mask[0] }, { 0 } };
        if (axes.keepdim) {
            y = aril__unreduce(y, &ones);
            where = aril__unreduce(where, &ones);
        }
    }
    if (indices) *indices = where;
    return y;
}

aril_tensor *aril_kthvalue(aril_tensor *x, int64_t k, aril_axes axis, aril_tensor **indices)
{
    return one_of(&aril__op_kthvalue, x, axis, k - 1, indices);
}

aril_tensor *aril_median(aril_tensor *x, aril_axes axis, aril_tensor **indices)
{
    return one_of(&aril__op_median, x, axis, 0, indices);
}

aril_tensor *aril_nanmedian(aril_tensor *x, aril_axes axis, aril_tensor **indices)
{
    return one_of(&aril__op_nanmedian, x, axis, 0, indices);
}

aril_tensor *aril_mode(aril_tensor *x, aril_axes axis, aril_tensor **indices)
{
    return one_of(&aril__op_mode, x, axis, 0, indices);
}

/* ---- quantile: interpolates between neighbors of the sorted axis ---- */

static aril_tensor *at_rank(aril_tensor *sorted, aril_tensor *rank, int axis)
{
    return aril_index_select(sorted, aril_cast(rank, ARIL_I64), axis);
}

/* sorted [..., n, ...], q [k] -> [..., k, ...] */
static aril_tensor *between(aril_tensor *sorted, aril_tensor *q, int axis, aril_quantile_mode how)
{
    aril_tensor *first = aril_slice(sorted, axis, 0, 1, 1);
    aril_tensor *last = aril_slice(sorted, axis, -1, ARIL_END, 1);
    aril_tensor *n = aril__count_like(sorted, first);
    aril_tensor *rank = aril_mul(q, aril_sub_scalar(n, 1)); /* [k] */
    aril_tensor *low = aril_floor(rank), *high = aril_ceil(rank), *y;
    if (how == ARIL_QUANTILE_NEAREST) {
        y = at_rank(sorted, aril_round(rank), axis);
    } else if (how == ARIL_QUANTILE_LOWER || how == ARIL_QUANTILE_HIGHER) {
        y = at_rank(sorted, how == ARIL_QUANTILE_LOWER ? low : high, axis);
    } else {
        aril_tensor *w =
            how == ARIL_QUANTILE_MIDPOINT ? aril_full_like(low, 0.5) : aril_sub(rank, low);
        for (int d = axis + 1; d < sorted->ndim; d++) w = aril_unsqueeze(w, -1);
        y = aril_lerp(at_rank(sorted, low, axis), at_rank(sorted, high, axis), w);
    }
    return aril_where(aril_isnan(last), aril_scalar(NAN), y);
}

aril_tensor *aril_quantile(aril_tensor *x, aril_tensor *q, aril_axes axis, aril_quantile_mode how)
{
    struct reduce_attrs r;
    if (!q) return aril__null_tensor("quantile");
    if (aril__is_poison(q)) return aril__pass_on(q);
    if (aril__reduce_attrs("quantile", x, axis, &r) < 0) return aril__poison();
    if (aril__is_poison(x)) return aril__pass_on(x);
    if (x->dtype != ARIL_F32 && x->dtype != ARIL_F64) {
        aril__fail(ARIL_ERR_DTYPE, "quantile: needs f32 or f64, got %s",
                   aril__dtypes[x->dtype].name);
        return aril__poison();
    }
    if (q->ndim > 1 || axis.n > 1 || x->numel == 0 || how > ARIL_QUANTILE_NEAREST) {
        char text[ARIL__SHAPE_TEXT];
        aril__fail(ARIL_ERR_ARG,
                   "quantile: takes one axis or ARIL_ALL (got %d) of a tensor that is "
                   "not empty (got %s), and q of 0 or 1 dimensions (got %d)",
                   axis.n, aril__text(text, x), q->ndim);
        return aril__poison();
    }
    if (aril__check_range("quantile", "q", q, 0, 1) < 0) return aril__poison();
    ARIL_SCOPE;
    bool flat = axis.n == 0 || x->ndim == 0;
    int at = flat ? 0 : aril__axis("quantile", axis.axis[0], x->ndim);
    aril_tensor *line = flat ? aril_reshape(x, ARIL_SHAPE(-1)) : x;
    aril_tensor *sorted = aril_sort(line, at, (aril_sort_opts){ 0 }, NULL);
    q = aril_cast(q, (aril_dtype)x->dtype);
    aril_tensor *y = between(sorted, q->ndim ? q : aril_unsqueeze(q, 0), at, how);
    /* Move the axis of q to the front; remove it if q is a scalar. */
    y = aril_movedim(y, ARIL_AXES(at), ARIL_AXES(0));
    if (axis.keepdim && flat)
        for (int d = 0; d < x->ndim; d++) y = aril_unsqueeze(y, -1);
    else if (axis.keepdim)
        y = aril_unsqueeze(y, at + 1);
    return aril_escape(q->ndim ? y : aril_select(y, 0, 0));
}
