#include "backend/cpu/reduce/sort.h"

#include "core/loops.h"
#include "core/parallel.h"
#include "ops/reduce/sort.h"

#include <string.h>

/* ---- lines ---- */

enum {
    RUN = 16,
    GRAIN = 8 * 1024,
    DIGITS = 1 << 11,
    DIGIT_MIN = 80,    /* minimum elements for radix sort */
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
    char *scratch;
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
#include "backend/cpu/reduce/sort.inc"

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
#include "backend/cpu/reduce/sort.inc"

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
static void keys_32(const job *j, bool real, const void *values, uint64_t min, uint32_t *keys)
{
    uint32_t turn = j->down ? UINT32_MAX : 0;
    if (real)
        for (int64_t i = 0; i < j->n; i++) keys[i] = key_f32(((const float *)values)[i]) ^ turn;
    else
        for (int64_t i = 0; i < j->n; i++)
            keys[i] = (uint32_t)(((const uint64_t *)values)[i] - min) ^ turn;
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
static bool fits_32(const job *j, const void *values, uint64_t *min)
{
    aril__ctype type = aril__dtypes[j->t[0]->dtype].ctype;
    uint64_t turn = type == ARIL__C_I64 ? UINT64_C(1) << 63 : 0, low = UINT64_MAX, high = 0;
    const uint64_t *v = values;
    for (int64_t i = 0; i < j->n; i++) {
        uint64_t x = v[i] ^ turn;
        low = x < low ? x : low;
        high = x > high ? x : high;
    }
    *min = low ^ turn;
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

static void line(const job *j, const int64_t *offset, char *scratch, void *buffer)
{
    int64_t n = j->n;
    const aril_tensor *x = j->t[0];
    aril__ctype type = aril__dtypes[x->dtype].ctype;
    bool real = aril__is_float((aril_dtype)x->dtype);
    uint64_t *values = (uint64_t *)(void *)scratch, *rest = values + n, min = 0;
    aril__dtypes[x->dtype].load[type](values, aril__base(x), offset[0], j->stride[0], n);
    if (n > UINT32_MAX || type == ARIL__C_F64 || (!real && !fits_32(j, values, &min))) {
        keyed *p = (keyed *)(void *)rest, *spare = p + n;
        keys_64(j, values, p);
        order_64(j, p, spare, real ? UINT64_MAX : 0, buffer, p);
        for (int64_t i = 0; i < j->out_n; i++) ((int64_t *)(void *)spare)[i] = p[i].at;
        give(j, offset, (int64_t *)(void *)spare, values, p);
        return;
    }
    uint64_t *p = rest, *spare = p + n;
    uint32_t *keys = (uint32_t *)(void *)spare;
    keys_32(j, real, values, min, keys);
    if (j->kind == TOPK && j->k < n / 8) {
        scan_first_k(keys, p, n, j->k);
    } else {
        for (int64_t i = 0; i < n; i++) p[i] = (uint64_t)keys[i] << 32 | (uint64_t)i;
        order_32(j, p, spare, real ? UINT32_MAX : 0, buffer, p);
    }
    for (int64_t i = 0; i < j->out_n; i++) spare[i] = (uint32_t)p[i];
    give(j, offset, (int64_t *)(void *)spare, values, p);
}

/* The scratch memory of a slot: counters of digits for each piece, then values and keys. */
static size_t buffer_bytes(const job *j)
{
    return j->n < DIGIT_MIN ? 0 : (size_t)j->pieces * DIGITS * sizeof(int64_t);
}

static size_t line_bytes(const job *j)
{
    size_t each = j->wide ? 8 + 2 * sizeof(keyed) : 24; /* values, and keys twice */
    return ((size_t)j->n * each + 63) / 64 * 64;
}

static void lines_range(void *ctx, int64_t begin, int64_t end, int slot)
{
    job *j = ctx;
    size_t buffer = buffer_bytes(j);
    char *scratch = j->scratch + (size_t)slot * (buffer + line_bytes(j));
    aril__loops_at p;
    aril__loops_seek(&j->lines, &p, begin, j->base);
    for (; begin < end; begin++) {
        line(j, p.offset, scratch + buffer, buffer ? scratch : NULL);
        if (begin + 1 < end) aril__loops_move(&j->lines, &p, 1);
    }
}

static void size_job(job *j, const aril_tensor *x, int axis)
{
    j->n = x->ndim ? x->dim[axis] : 1;
    j->wide = aril__dtypes[x->dtype].bits > 32 || j->n > UINT32_MAX;
    /* Threads share the lines or, if there is only one, each pass over it. */
    j->pieces = x->numel == j->n ? aril__parallel_pieces(j->n, PIECE) : 1;
    if (j->pieces > 64) j->pieces = 64;
}

size_t aril__cpu_sort_scratch(const aril__run *r)
{
    const aril_tensor *x = r->in[0];
    job j = { 0 };
    if (x->numel == 0) return 0;
    size_job(&j, x, (int)((const struct sort_attrs *)r->attrs)->axis[0]);
    return (size_t)aril__parallel_slots(x->numel / j.n, GRAIN / j.n) *
           (buffer_bytes(&j) + line_bytes(&j));
}

static aril_status run(aril__run *r, kind what)
{
    const struct sort_attrs *a = r->attrs;
    const aril_tensor *x = r->in[0];
    int axis = (int)a->axis[0];
    job j = { .kind = what,
              .down = a->down[0],
              .k = a->k[0],
              .out_n = 1,
              .t = { x, r->out[0], r->out[1] },
              .lines = { .n = 3 },
              .scratch = r->workspace };
    if (x->numel == 0 || r->out[0]->numel == 0) return ARIL_OK;
    size_job(&j, x, axis);
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
    while (j.pieces > 1 && buffer_bytes(&j) + line_bytes(&j) > r->workspace_bytes) j.pieces--;
    int slots = (int)(r->workspace_bytes / (buffer_bytes(&j) + line_bytes(&j)));
    aril__parallel_for_slots(x->numel / j.n, GRAIN / j.n, slots, lines_range, &j);
    return ARIL_OK;
}

/* ---- the kernels ---- */

aril_status aril__cpu_sort(aril__run *r)
{
    return run(r, SORT);
}

aril_status aril__cpu_topk(aril__run *r)
{
    return run(r, TOPK);
}

aril_status aril__cpu_kthvalue(aril__run *r)
{
    return run(r, KTH);
}

aril_status aril__cpu_median(aril__run *r)
{
    return run(r, MEDIAN);
}

aril_status aril__cpu_nanmedian(aril__run *r)
{
    return run(r, NUMBERS);
}

aril_status aril__cpu_mode(aril__run *r)
{
    return run(r, MODE);
}
