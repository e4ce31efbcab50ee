#include "backend/cpu/elementwise/elementwise.h"

#include "core/loops.h"
#include "core/parallel.h"
#include "core/stream.h"
#include "ops/shape/copy.h"
#include "ops/elementwise/formula.h"

#include <string.h>

enum {
    OPERANDS = 6,            /* up to five inputs, and the result */
    BLOCK = 512,             /* elements staged at a time, and of smaller types as many more */
    BLOCK_BYTES = 8 * BLOCK, /* four of them fit L1 */
    SPAN = 16384,            /* elements per kernel call: data read twice is still in L2 */
    MIN_CHUNK = 12288,       /* elements below which a second thread does not pay */
    SHORT = 24,              /* rows below this length are staged */
    MAX_CHUNK = 256 * 1024,  /* maximum elements per chunk, so that threads stay balanced */
};

#define TABLES(level)                                                                 \
    {                                                                                 \
        [ARIL__C_F32] = aril__ew_f32##level, [ARIL__C_F64] = aril__ew_f64##level,     \
        [ARIL__C_I64] = aril__ew_i64##level, [ARIL__C_U64] = aril__ew_u64##level,     \
        [ARIL__EW_BOOL8] = aril__ew_bool8##level, [ARIL__EW_U8] = aril__ew_u8##level, \
        [ARIL__EW_I8] = aril__ew_i8##level, [ARIL__EW_I16] = aril__ew_i16##level,     \
        [ARIL__EW_I32] = aril__ew_i32##level, [ARIL__EW_F16] = aril__ew_f16##level,   \
        [ARIL__EW_BF16] = aril__ew_bf16##level,                                       \
    }
static aril__ew_fn *const *const tables[ARIL__CPU_LEVELS][ARIL__EW_TYPES] = {
    [ARIL__CPU_BASELINE] = TABLES(),
#if ARIL__TARGETS
    [ARIL__CPU_AVX2] = TABLES(_avx2),
    [ARIL__CPU_AVX512] = TABLES(_avx512),
#endif
};
static const uint8_t type_dtype[ARIL__EW_TYPES] = {
    [ARIL__C_F32] = ARIL_F32,  [ARIL__C_F64] = ARIL_F64,     [ARIL__C_I64] = ARIL_I64,
    [ARIL__C_U64] = ARIL_U64,  [ARIL__EW_BOOL8] = ARIL_BOOL, [ARIL__EW_U8] = ARIL_U8,
    [ARIL__EW_I8] = ARIL_I8,   [ARIL__EW_I16] = ARIL_I16,    [ARIL__EW_I32] = ARIL_I32,
    [ARIL__EW_F16] = ARIL_F16, [ARIL__EW_BF16] = ARIL_BF16,
};

aril__ew_fn *aril__ew_kernel(int formula, aril__ctype type)
{
    return tables[aril__cpu()][type][formula];
}

/* How the elements of an operand reach the kernel. */
typedef enum feed {
    ABSENT,
    DIRECT,   /* contiguous, in the kernel's type */
    CONSTANT, /* one element for all: a block is filled with it once */
    PERIODIC, /* the same short row repeated: a block is filled with it once */
    LINEAR,   /* contiguous, in another type */
    STAGED,   /* everything else */
} feed;

typedef struct operand {
    char *base;
    int64_t offset;
    int64_t step; /* stride of the innermost dimension */
    uint8_t dtype;
    feed feed;
    aril__load_fn *load; /* to and from the kernel's type */
    aril__store_fn *store;
} operand;

typedef struct job {
    aril__ew_fn *fn;
    size_t size; /* of the kernel's type */
    const double *params;
    int n_in;
    aril__loops loops;
    int64_t inner;        /* elements of the innermost dimension */
    int64_t block;        /* elements staged at a time */
    operand op[OPERANDS]; /* the result is the last: op[n_in] */
    uint8_t result_dtype; /* the type that the kernel writes */
    size_t result_size;
    bool widen;  /* the kernel writes bool, which is converted from int64_t to the result's dtype */
    bool stream; /* the result bypasses the caches (non-temporal stores) */
    atomic_int bad;
} job;

/* ---- moving elements of the kernel's own dtype ---- */

#define MOVES(bits, X)                                                                         \
    static void load_##bits(void *dst, const void *base, int64_t offset, int64_t stride,       \
                            int64_t n)                                                         \
    {                                                                                          \
        X *restrict d = dst;                                                                   \
        const X *restrict b = (const X *)base + offset;                                        \
        if (stride == 1) {                                                                     \
            memcpy(d, b, (size_t)n * sizeof *d);                                               \
        } else if (stride == 0 && n > 0) {                                                     \
            X x = *b;                                                                          \
            for (int64_t i = 0; i < n; i++) d[i] = x;                                          \
        } else {                                                                               \
            for (int64_t i = 0; i < n; i++) d[i] = b[i * stride];                              \
        }                                                                                      \
    }                                                                                          \
    static void store_##bits(void *base, int64_t offset, int64_t stride, const void *src,      \
                             int64_t n)                                                        \
    {                                                                                          \
        X *restrict b = (X *)base + offset;                                                    \
        const X *restrict s = src;                                                             \
        if (stride == 1)                                                                       \
            memcpy(b, s, (size_t)n * sizeof *b);                                               \
        else                                                                                   \
            for (int64_t i = 0; i < n; i++) b[i * stride] = s[i];                              \
    }                                                                                          \
    /* From bool, whose bytes need not be 0 or 1 in memory from outside. */                    \
    static void load_truth_##bits(void *dst, const void *base, int64_t offset, int64_t stride, \
                                  int64_t n)                                                   \
    {                                                                                          \
        X *restrict d = dst;                                                                   \
        const uint8_t *restrict b = (const uint8_t *)base + offset;                            \
        for (int64_t i = 0; i < n; i++) d[i] = b[i * stride] != 0;                             \
    }
MOVES(8, uint8_t)
MOVES(16, uint16_t)
MOVES(32, uint32_t)

/* ---- one element for a whole row, by size and target ---- */

typedef void fill_fn(void *to, const void *one, int64_t n);

/* Whole vectors: up to 63 bytes more than n elements, for which blocks have room. */
#define FILL(TARGET, bits, level, X)                                                    \
    TARGET static void fill_##bits##level(void *to, const void *one, int64_t n)         \
    {                                                                                   \
        typedef X line __attribute__((vector_size(64), aligned(sizeof(X)), may_alias)); \
        line *restrict d = to;                                                          \
        const line x = *(const X *)one - (line){ 0 };                                   \
        const int64_t lines = (n * (int64_t)sizeof(X) + 63) / 64;                       \
        for (int64_t i = 0; i < lines; i++) d[i] = x;                                   \
    }
#define FILLS(TARGET, level)          \
    FILL(TARGET, 8, level, uint8_t)   \
    FILL(TARGET, 16, level, uint16_t) \
    FILL(TARGET, 32, level, uint32_t) \
    FILL(TARGET, 64, level, uint64_t)
#define FILLS_BY_BYTES(level)                                                                 \
    {                                                                                         \
        [1] = fill_8##level, [2] = fill_16##level, [4] = fill_32##level, [8] = fill_64##level \
    }
FILLS(, )
#if ARIL__TARGETS
FILLS(ARIL__AVX2, _avx2)
FILLS(ARIL__AVX512, _avx512)
#endif
static fill_fn *const fills[ARIL__CPU_LEVELS][9] = {
    [ARIL__CPU_BASELINE] = FILLS_BY_BYTES(),
#if ARIL__TARGETS
    [ARIL__CPU_AVX2] = FILLS_BY_BYTES(_avx2),
    [ARIL__CPU_AVX512] = FILLS_BY_BYTES(_avx512),
#endif
};

typedef struct narrow {
    uint8_t type; /* of the kernel; 0: there is none for that dtype */
    aril__load_fn *load, *load_truth;
    aril__store_fn *store;
} narrow;

static const narrow narrows[ARIL__DTYPE_COUNT] = {
    [ARIL_BOOL] = { ARIL__EW_BOOL8, load_8, load_truth_8, store_8 },
    [ARIL_U8] = { ARIL__EW_U8, load_8, load_truth_8, store_8 },
    [ARIL_I8] = { ARIL__EW_I8, load_8, load_truth_8, store_8 },
    [ARIL_I16] = { ARIL__EW_I16, load_16, load_truth_16, store_16 },
    [ARIL_I32] = { ARIL__EW_I32, load_32, load_truth_32, store_32 },
    [ARIL_F16] = { ARIL__EW_F16, load_16, NULL, store_16 },
    [ARIL_BF16] = { ARIL__EW_BF16, load_16, NULL, store_16 },
};

/* Reads a tensor of one element as an integer; false if it is none, or does not fit the dtype. */
static bool read_number(const aril_tensor *t, aril_dtype dtype, int64_t *value)
{
    if (t->numel != 1 || aril__is_float((aril_dtype)t->dtype) || t->dtype == ARIL_U64) return false;
    aril__dtypes[t->dtype].load[ARIL__C_I64](value, aril__base(t), t->offset, 0, 1);
    int64_t back;
    char kept[8];
    aril__dtypes[dtype].store[ARIL__C_I64](kept, 0, 1, value, 1);
    aril__dtypes[dtype].load[ARIL__C_I64](&back, kept, 0, 1, 1);
    return back == *value;
}

/* Whether the kernel can compute in the dtype of the operands, without conversions: each is of that
 * dtype, or, among integers, bool, or one number that fits it. */
static bool computes_in_own_dtype(const aril__run *r)
{
    const aril__formula *f = r->op->formula;
    bool compares = f->rule == ARIL__EW_CMP, is_float = aril__is_float(r->type);
    if (!narrows[r->type].type || r->out[0]->dtype != (compares ? ARIL_BOOL : r->type))
        return false;
    if (is_float && !tables[aril__cpu()][narrows[r->type].type][f->number]) return false;
    for (int i = 0; i < r->n_in; i++) {
        const aril_tensor *t = r->in[i];
        int64_t value;
        if (!t || t->dtype == r->type) continue;
        if (is_float || (t->dtype != ARIL_BOOL && !read_number(t, r->type, &value))) return false;
    }
    return !r->attrs; /* parameters may lie outside the dtype */
}

/* Scratch memory of one thread: PERIODIC operands may begin anywhere in their first row. */
typedef struct blocks {
    _Alignas(64) char of[OPERANDS][2 * BLOCK_BYTES];
} blocks;

/* Fills m elements at `to` with the first `have` of them, again and again. */
static void repeat(char *to, int64_t have, int64_t m, size_t size)
{
    for (; have < m; have *= 2)
        memcpy(to + (size_t)have * size, to, (size_t)(m - have < have ? m - have : have) * size);
}

/* Copies m elements from linear position `at` between operand k and a contiguous block. */
static void stage(const job *j, int k, int64_t at, int64_t m, void *block, bool load, size_t size)
{
    const operand *o = &j->op[k];
    if (o->feed == LINEAR || o->feed == DIRECT) {
        if (load)
            o->load(block, o->base, o->offset + at, 1, m);
        else
            o->store(o->base, o->offset + at, 1, block, m);
        return;
    }
    aril__loops one = { .ndim = j->loops.ndim, .n = 1 };
    memcpy(one.dim, j->loops.dim, sizeof one.dim);
    memcpy(one.stride[0], j->loops.stride[k], sizeof one.stride[0]);
    aril__loops_at p;
    aril__loops_seek(&one, &p, at, &o->offset);
    const int last = one.ndim - 1;
    bool repeats = load && last > 0 && one.stride[0][last - 1] == 0;
    for (int64_t done = 0; done < m;) {
        int64_t run = one.ndim ? aril__loops_run(&one, &p) : m;
        if (run > m - done) run = m - done;
        if (repeats && run == one.dim[last]) { /* the same row, several times */
            int64_t rows = one.dim[last - 1] - p.index[last - 1];
            if (rows > (m - done) / run) rows = (m - done) / run;
            char *dense = (char *)block + (size_t)done * size;
            o->load(dense, o->base, p.offset[0], o->step, run);
            repeat(dense, run, rows * run, size);
            done += rows * run;
            p.index[last - 1] += rows - 1;
            aril__loops_move(&one, &p, run);
            continue;
        }
        char *dense = (char *)block + (size_t)done * size;
        if (load && o->step == 0) {
            o->load(dense, o->base, p.offset[0], 0, 1);
            fills[aril__cpu()][size](dense, dense, run);
        } else if (load)
            o->load(dense, o->base, p.offset[0], o->step, run);
        else
            o->store(o->base, p.offset[0], o->step, dense, run);
        done += run;
        aril__loops_move(&one, &p, run);
    }
}

/* Fills the blocks that stay constant during a run, for at most m elements at a time. */
static void fill_blocks(const job *j, blocks *b, int64_t m)
{
    for (int i = 0; i < j->n_in; i++) {
        const operand *o = &j->op[i];
        if (o->feed == CONSTANT) o->load(b->of[i], o->base, o->offset, 0, m);
        if (o->feed != PERIODIC) continue;
        int64_t all = j->inner + m;
        o->load(b->of[i], o->base, o->offset, o->step, j->inner);
        repeat(b->of[i], j->inner, all, j->size);
    }
}

static void run_range(void *ctx, int64_t begin, int64_t end)
{
    job *j = ctx;
    blocks b;
    const void *in[OPERANDS] = { 0 };
    const operand *result = &j->op[j->n_in];
    bool flat = result->feed == DIRECT && !j->stream;
    int bad = 0;
    for (int i = 0; i < j->n_in; i++)
        flat = flat && (j->op[i].feed == DIRECT || j->op[i].feed == ABSENT);
    int64_t step = flat ? SPAN : j->block;
    if (!flat) fill_blocks(j, &b, end - begin < j->block ? end - begin : j->block);
    for (int64_t at = begin; at < end; at += step) {
        int64_t m = end - at < step ? end - at : step;
        for (int i = 0; i < j->n_in; i++) {
            const operand *o = &j->op[i];
            switch (o->feed) {
            case ABSENT: break;
            case DIRECT: in[i] = o->base + (size_t)(o->offset + at) * j->size; break;
            case CONSTANT: in[i] = b.of[i]; break;
            case PERIODIC: in[i] = b.of[i] + (size_t)(at % j->inner) * j->size; break;
            case LINEAR:
            case STAGED:
                stage(j, i, at, m, b.of[i], true, j->size);
                in[i] = b.of[i];
                break;
            }
        }
        if (result->feed == DIRECT) {
            char *out = result->base + (size_t)(result->offset + at) * j->result_size;
            j->fn(m, j->stream ? b.of[j->n_in] : out, in, j->params, &bad);
            if (j->stream) aril__stream_copy(out, b.of[j->n_in], (size_t)m * j->result_size);
        } else if (j->widen) {
            uint8_t truth[BLOCK];
            int64_t integers[BLOCK];
            j->fn(m, truth, in, j->params, &bad);
            for (int64_t k = 0; k < m; k++) integers[k] = truth[k];
            stage(j, j->n_in, at, m, integers, false, sizeof *integers);
        } else {
            j->fn(m, b.of[j->n_in], in, j->params, &bad);
            stage(j, j->n_in, at, m, b.of[j->n_in], false, j->result_size);
        }
    }
    if (j->stream) aril__stream_end();
    if (aril__unlikely(bad)) atomic_store(&j->bad, bad);
}

/* The same when every operand has the kernel's type and is contiguous or constant along a row: row
 * by row, without copies. */
static void run_rows(void *ctx, int64_t begin, int64_t end)
{
    job *j = ctx;
    blocks b;
    const void *in[OPERANDS] = { 0 };
    int64_t base[ARIL__NEST_OPERANDS];
    const int last = j->loops.ndim - 1, count = j->n_in + 1;
    size_t bytes[OPERANDS];               /* of an element */
    ptrdiff_t pitch[OPERANDS];            /* bytes from one row to the next */
    char *at[OPERANDS];                   /* the current row */
    const char *filled[OPERANDS] = { 0 }; /* the element that a block is filled with */
    fill_fn *fill = fills[aril__cpu()][j->size];
    int bad = 0;
    int64_t max = SPAN;
    for (int i = 0; i < count; i++) {
        base[i] = j->op[i].offset;
        bytes[i] = i == j->n_in ? j->result_size : j->size;
        pitch[i] = last > 0 ? (ptrdiff_t)bytes[i] * j->loops.stride[i][last - 1] : 0;
        if (j->op[i].feed != ABSENT && j->op[i].step == 0) max = j->block;
    }
    aril__loops_at p;
    aril__loops_seek(&j->loops, &p, begin, base);
    while (begin < end) {
        int64_t m = aril__loops_run(&j->loops, &p), rows = 1;
        if (m == j->inner && m <= max && last > 0) { /* whole rows */
            rows = j->loops.dim[last - 1] - p.index[last - 1];
            if (rows > (end - begin) / m) rows = (end - begin) / m;
        }
        if (rows < 1) rows = 1;
        if (m > end - begin) m = end - begin;
        if (m > max) m = max;
        for (int i = 0; i < count; i++) {
            if (j->op[i].feed == ABSENT) continue;
            at[i] = j->op[i].base + (ptrdiff_t)bytes[i] * p.offset[i];
        }
        for (int64_t row = 0; row < rows; row++) {
            for (int i = 0; i < j->n_in; i++) {
                const operand *o = &j->op[i];
                if (o->feed == ABSENT) continue;
                in[i] = at[i];
                if (!o->step) {
                    /* Fill the whole row's length, for later pieces of it. */
                    if (filled[i] != at[i])
                        fill(b.of[i], at[i], j->inner < j->block ? j->inner : j->block);
                    filled[i] = at[i];
                    in[i] = b.of[i];
                }
                at[i] += pitch[i];
            }
            j->fn(m, at[j->n_in], in, j->params, &bad);
            at[j->n_in] += pitch[j->n_in];
        }
        begin += m * rows;
        if (rows > 1) { /* all but the last row, then that */
            p.index[last - 1] += rows - 1;
            for (int i = 0; i < count; i++)
                p.offset[i] += (rows - 1) * j->loops.stride[i][last - 1];
        }
        aril__loops_move(&j->loops, &p, m);
    }
    if (aril__unlikely(bad)) atomic_store(&j->bad, bad);
}

/* Moves a dimension along which an input of one element for each row is constant next to the
 * innermost one, so that a row filled with it serves many rows. */
static void turn_loops(job *j)
{
    aril__loops *l = &j->loops;
    int last = l->ndim - 1;
    for (int i = 0; i < j->n_in; i++) {
        if (j->op[i].feed == ABSENT || l->stride[i][last] || last < 2 || !l->stride[i][last - 1])
            continue;
        int d = last - 2;
        while (d >= 0 && l->stride[i][d]) d--;
        if (d < 0) continue;
        for (; d < last - 1; d++) aril__loops_swap(l, d, d + 1);
        return;
    }
}

/* Chooses how each operand is fed; true when running row by row is better. */
static bool choose_feeds(job *j, uint8_t native)
{
    int last = j->loops.ndim - 1;
    j->inner = last >= 0 ? j->loops.dim[last] : 1;
    j->block = j->widen ? BLOCK : BLOCK_BYTES / (int64_t)j->size;
    bool rows = j->inner >= SHORT, simple = true;
    for (int i = 0; i <= j->n_in; i++) {
        operand *o = &j->op[i];
        if (o->feed == ABSENT) continue;
        bool same = o->dtype == (i == j->n_in ? j->result_dtype : native);
        o->step = last >= 0 ? j->loops.stride[i][last] : 0;
        bool outer = false; /* varies along an outer dimension */
        for (int d = 0; d < last; d++) outer = outer || j->loops.stride[i][d] != 0;
        if (aril__loops_linear(&j->loops, i))
            o->feed = same ? DIRECT : LINEAR;
        else if (i < j->n_in && !outer && o->step == 0)
            o->feed = CONSTANT;
        else if (i < j->n_in && !outer && j->inner <= j->block)
            o->feed = PERIODIC;
        simple = simple && o->feed != STAGED;
        rows = rows && same && (o->step == 1 || (o->step == 0 && i < j->n_in));
    }
    return rows && !simple;
}

aril_status aril__ew_failed(const char *op, int bad)
{
    return aril__fail(ARIL_ERR_NUMBER,
                      bad == ARIL__BAD_DIVISOR
                          ? "%s: integer division by zero"
                          : "%s: integers cannot be raised to a negative power",
                      op);
}

static aril_status report(const aril__run *r, int bad)
{
    return bad ? aril__ew_failed(r->op->name, bad) : ARIL_OK;
}

/* True when the result overlaps an input and the kernel may fail halfway. */
static bool may_spoil(const aril__run *r)
{
    return aril__formula_may_fail(r->op) && !aril__is_float(r->type) &&
           r->out[0]->storage == r->in[0]->storage;
}

size_t aril__cpu_elementwise_scratch(const aril__run *r)
{
    const aril_tensor *out = r->out[0];
    return may_spoil(r) ? aril__dtype_bytes((aril_dtype)out->dtype, out->numel) : 0;
}

/* An integer division or power that fails must leave its destination unchanged: compute into
 * scratch memory first. */
static aril_status run_aside(aril__run *r)
{
    aril__storage memory = { .data = r->workspace, .bytes = r->workspace_bytes };
    aril_tensor aside = *r->out[0];
    aside.storage = &memory;
    aside.offset = 0;
    aril__dense_strides(aside.ndim, aside.dim, aside.stride);
    aril__run first = *r;
    first.out = (aril_tensor *[]){ &aside };
    aril_status s = aril__cpu_elementwise(&first);
    if (s == ARIL_OK) aril__copy_elements(r->out[0], &aside);
    return s;
}

static const double *params_of(const aril__run *r)
{
    static const double none[ARIL__EW_PARAMS];
    return r->attrs ? ((const struct ew_attrs *)r->attrs)->p : none;
}

/* A few elements, of which apply knows that they are alike: most of the time is what leads here. */
static inline aril_status run_alike(aril__run *r, size_t size)
{
    const void *in[OPERANDS];
    for (int i = 0; i < r->n_in; i++) {
        const aril_tensor *t = r->in[i];
        in[i] = t ? aril__base(t) + (size_t)t->offset * size : NULL;
    }
    int bad = 0;
    aril_tensor *out = r->out[0];
    aril__ew_fn *fn = tables[aril__cpu()][aril__dtypes[r->type].ctype][r->op->formula->number];
    fn(out->numel, aril__base(out) + (size_t)out->offset * size, in, params_of(r), &bad);
    return ARIL_OK; /* floating-point formulas cannot fail */
}

extern const aril__op aril__op_pow;

typedef aril__ew_fn *power_fn(double exponent);

/* The kernel of pow where all elements are raised to one simple power; NULL: that of the table. */
static aril__ew_fn *kernel_of_power(const aril__run *r, aril__ctype type)
{
    static power_fn *const found[ARIL__CPU_LEVELS][2] = {
        [ARIL__CPU_BASELINE] = { aril__ew_power_f32, aril__ew_power_f64 },
#if ARIL__TARGETS
        [ARIL__CPU_AVX2] = { aril__ew_power_f32_avx2, aril__ew_power_f64_avx2 },
        [ARIL__CPU_AVX512] = { aril__ew_power_f32_avx512, aril__ew_power_f64_avx512 },
#endif
    };
    const aril_tensor *t = r->in[1];
    if (type > ARIL__C_F64 || t->numel != 1) return NULL;
    double exponent;
    aril__dtypes[t->dtype].load[ARIL__C_F64](&exponent, aril__base(t), t->offset, 0, 1);
    if (type == ARIL__C_F32) exponent = (double)(float)exponent;
    return found[aril__cpu()][type == ARIL__C_F64](exponent);
}

static void set_operand(operand *o, const aril_tensor *t)
{
    o->base = aril__base(t);
    o->offset = t->offset;
    o->dtype = t->dtype;
    o->feed = STAGED;
}

/* How operand i reaches a kernel that computes in the operands' own dtype; `number` has room for
 * its value. */
static void set_own_operand(operand *o, const aril_tensor *t, aril_dtype dtype, char *number)
{
    const narrow *n = &narrows[dtype];
    set_operand(o, t);
    o->load = t->dtype == dtype ? n->load : n->load_truth;
    o->store = n->store;
    if (t->dtype == dtype || t->dtype == ARIL_BOOL) return;
    int64_t value = 0;
    read_number(t, dtype, &value);
    aril__dtypes[dtype].store[ARIL__C_I64](number, 0, 1, &value, 1);
    *o = (operand){ .base = number, .dtype = (uint8_t)dtype, .feed = STAGED, .load = n->load };
}

static __attribute__((noinline)) aril_status run_any(aril__run *r)
{
    const double *params = params_of(r);
    aril_tensor *out = r->out[0];
    aril__ctype ctype = aril__dtypes[r->type].ctype;
    bool own = computes_in_own_dtype(r);
    int type = own ? narrows[r->type].type : (int)ctype;
    int formula = r->op->formula->number;
    aril__ew_fn *fn = r->op == &aril__op_pow ? kernel_of_power(r, ctype) : NULL;
    if (!fn) fn = tables[aril__cpu()][type][formula];
    if (aril__unlikely(!fn))
        return aril__fail(ARIL_ERR_DTYPE, "%s: not defined for %s", r->op->name,
                          aril__dtypes[r->type].name);
    if (aril__unlikely(ctype >= ARIL__C_I64) && may_spoil(r)) return run_aside(r);
    int64_t n = out->numel;
    uint8_t native = type_dtype[type];
    size_t size = aril__dtype_bytes((aril_dtype)native, 1);
    uint8_t result = r->op->formula->rule == ARIL__EW_CMP ? ARIL_BOOL : native;

    /* Small, contiguous, of one type and shape: call the kernel directly. */
    if (n <= BLOCK && out->dtype == result) {
        const void *in[OPERANDS];
        bool direct = n == 1 || aril__is_dense(out);
        for (int i = 0; i < r->n_in && direct; i++) {
            const aril_tensor *t = r->in[i];
            direct = !t || (t->dtype == native && t->numel == n && (n == 1 || aril__is_dense(t)));
            in[i] = t && direct ? aril__base(t) + (size_t)t->offset * size : NULL;
        }
        if (aril__likely(direct)) {
            int bad = 0;
            fn(n, aril__ptr(out), in, params, &bad);
            return aril__unlikely(bad) ? report(r, bad) : ARIL_OK;
        }
    }
    if (n == 0) return ARIL_OK;

    char number[OPERANDS][8];
    job j = { .fn = fn,
              .size = size,
              .params = params,
              .n_in = r->n_in,
              .loops = aril__loops_of(out->ndim, out->dim),
              .result_dtype = result,
              .result_size = aril__dtype_bytes((aril_dtype)result, 1),
              .widen = result == ARIL_BOOL && out->dtype != ARIL_BOOL };
    bool over_input = false;
    for (int i = 0; i <= r->n_in; i++) {
        const aril_tensor *t = i < r->n_in ? r->in[i] : out;
        aril__loops_add(&j.loops, t);
        if (!t) continue;
        if (own) {
            set_own_operand(&j.op[i], t, r->type, number[i]);
        } else {
            set_operand(&j.op[i], t);
            j.op[i].load = aril__dtypes[t->dtype].load[ctype];
            j.op[i].store = aril__dtypes[t->dtype].store[j.widen ? ARIL__C_I64 : ctype];
        }
        if (i == r->n_in && out->dtype == result && result == ARIL_BOOL) j.op[i].store = store_8;
        over_input = over_input || (i < r->n_in && t->storage == out->storage);
    }
    aril__loops_merge(&j.loops, r->n_in);
    bool rows = choose_feeds(&j, native);
    if (rows) turn_loops(&j);
    j.stream = !over_input && j.op[r->n_in].feed == DIRECT &&
               n * (int64_t)j.result_size >= ARIL__STREAM_COPIES_FROM &&
               aril__formula_is_quick(r->op);
    int64_t grain = n;
    if (n > MIN_CHUNK) {
        int64_t pieces = aril__parallel_pieces(n, MIN_CHUNK);
        if (pieces > 1) pieces *= 2;
        grain = ((n + pieces - 1) / pieces + 255) & ~(int64_t)255;
        if (grain > MAX_CHUNK) grain = MAX_CHUNK;
    }
    aril__parallel_for(n, grain, rows ? run_rows : run_range, &j);
    return report(r, atomic_load(&j.bad));
}

aril_status aril__cpu_elementwise(aril__run *r)
{
    if (r->alike && r->out[0]->numel <= BLOCK) {
        if (r->type == ARIL_F32) return run_alike(r, sizeof(float));
        if (r->type == ARIL_F64) return run_alike(r, sizeof(double));
    }
    return run_any(r);
}
