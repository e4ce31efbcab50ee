#include "backend/cpu/reduce/unique.h"

#include "backend/cpu/reduce/sort.h"
#include "ops/reduce/counting.h"
#include "ops/reduce/sort.h"
#include "ops/table/apply.h"

#include <string.h>

enum { BLOCK = 256 };

/* The compute type of the elements, which x's dtype and the sorted elements share. */
static aril_dtype wide(const aril_tensor *x)
{
    static const aril_dtype of[ARIL__C_COUNT] = { [ARIL__C_F32] = ARIL_F32,
                                                  [ARIL__C_F64] = ARIL_F64,
                                                  [ARIL__C_I64] = ARIL_I64,
                                                  [ARIL__C_U64] = ARIL_U64 };
    return of[aril__dtypes[x->dtype].ctype];
}

/* The elements of x in order, of its compute type, and their positions: by the kernel of sort. */
typedef struct sorting {
    aril_tensor flat, sorted, order;
    aril_tensor *in[1], *out[2];
    aril__storage of_sorted, of_order;
    struct sort_attrs attrs;
    aril__run run;
} sorting;

static void lay_out(sorting *s, const aril_tensor *x)
{
    s->flat = *x; /* contiguous */
    s->flat.ndim = 1;
    s->flat.dim[0] = x->numel;
    s->flat.stride[0] = 1;
    s->sorted = s->order = s->flat;
    s->sorted.dtype = (uint8_t)wide(x);
    s->sorted.offset = 0;
    s->order.dtype = ARIL_I64;
    s->order.offset = 0;
    s->sorted.storage = &s->of_sorted;
    s->order.storage = &s->of_order;
    s->in[0] = &s->flat;
    s->out[0] = &s->sorted;
    s->out[1] = &s->order;
    s->run = (aril__run){ .n_in = 1, .in = s->in, .n_out = 2, .out = s->out, .attrs = &s->attrs };
}

/* Slices of several elements are left to the reference. */
static bool of_slices(const aril__run *r)
{
    return ((const struct unique_attrs *)r->attrs)->axis[0] >= 0 && r->in[0]->ndim > 1;
}

/* Sorted elements and their order, and as much as the sort needs. */
size_t aril__cpu_unique_scratch(const aril__run *r)
{
    if (of_slices(r)) return r->op->workspace(r);
    sorting s = { 0 };
    lay_out(&s, r->in[0]);
    return (size_t)r->in[0]->numel * 16 + aril__cpu_sort_scratch(&s.run);
}

/* Memory for the results: y [groups], inverse of x's shape, count [groups]. */
static aril_status allocate(aril__run *r, int64_t groups)
{
    const aril_tensor *x = r->in[0];
    aril_status s = aril__run_alloc(r, 0, (aril_dtype)x->dtype, 1, &groups);
    if (s == ARIL_OK) s = aril__run_alloc(r, 1, ARIL_I64, x->ndim, x->dim);
    return s == ARIL_OK ? aril__run_alloc(r, 2, ARIL_I64, 1, &groups) : s;
}

/* ---- integers of a small range, by a table of counts ---- */

/* The smallest and the largest of the integers; unsigned ones are compared with the sign bit
 * turned. */
static void range_of(const aril_tensor *x, uint64_t turn, uint64_t *least, uint64_t *range)
{
    aril__load_fn *load = aril__dtypes[x->dtype].load[aril__dtypes[x->dtype].ctype];
    int64_t low = INT64_MAX, high = INT64_MIN;
    for (int64_t at = 0, m; at < x->numel; at += m) {
        uint64_t block[BLOCK];
        m = x->numel - at < BLOCK ? x->numel - at : BLOCK;
        load(block, aril__base(x), x->offset + at, 1, m);
        for (int64_t i = 0; i < m; i++) {
            int64_t v = (int64_t)(block[i] ^ turn);
            low = v < low ? v : low;
            high = v > high ? v : high;
        }
    }
    *least = (uint64_t)low ^ turn;
    *range = (uint64_t)high - (uint64_t)low;
}

static aril_status by_table(aril__run *r, uint64_t least, int64_t values)
{
    const aril_tensor *x = r->in[0];
    aril__ctype type = aril__dtypes[x->dtype].ctype;
    aril__load_fn *load = aril__dtypes[x->dtype].load[type];
    int64_t *table = r->workspace, groups = 0;
    memset(table, 0, (size_t)values * sizeof *table);
    for (int round = 0; round < 2; round++) { /* count; then look up */
        int64_t *inverse = round ? aril__ptr(r->out[1]) : NULL;
        for (int64_t at = 0, m; at < x->numel; at += m) {
            uint64_t block[BLOCK];
            m = x->numel - at < BLOCK ? x->numel - at : BLOCK;
            load(block, aril__base(x), x->offset + at, 1, m);
            for (int64_t i = 0; i < m && round == 0; i++) table[block[i] - least]++;
            for (int64_t i = 0; i < m && round == 1; i++) inverse[at + i] = table[block[i] - least];
        }
        if (round) break;
        for (int64_t v = 0; v < values; v++) groups += table[v] > 0;
        aril_status s = allocate(r, groups);
        if (s < 0) return s;
        aril_tensor *y = r->out[0];
        int64_t *count = aril__ptr(r->out[2]), g = 0;
        for (int64_t v = 0; v < values; v++) {
            if (table[v] == 0) continue;
            uint64_t value = least + (uint64_t)v;
            aril__dtypes[y->dtype].store[type](aril__base(y), y->offset + g, 1, &value, 1);
            count[g] = table[v];
            table[v] = g++; /* from now on its index */
        }
    }
    return ARIL_OK;
}

/* ---- by sorting ---- */

/* Keeps the first of each run of equal elements, the index of its run for each, and where runs
 * start in place of the order. Returns their number; NaN equals nothing. */
#define RUNS(name, T)                                                                       \
    static int64_t runs_##name(void *elements, int64_t *order, int64_t *inverse, int64_t n) \
    {                                                                                       \
        T *sorted = elements;                                                               \
        int64_t groups = 0;                                                                 \
        for (int64_t i = 0; i < n; i++) {                                                   \
            T x = sorted[i];                                                                \
            int64_t at = order[i];                                                          \
            if (groups == 0 || x != sorted[groups - 1]) {                                   \
                sorted[groups] = x;                                                         \
                order[groups++] = i;                                                        \
            }                                                                               \
            inverse[at] = groups - 1;                                                       \
        }                                                                                   \
        return groups;                                                                      \
    }
RUNS(f32, float)
RUNS(f64, double)
RUNS(integers, uint64_t)
#undef RUNS

static aril_status by_sorting(aril__run *r)
{
    const aril_tensor *x = r->in[0];
    aril__ctype type = aril__dtypes[x->dtype].ctype;
    int64_t n = x->numel, *order = (int64_t *)r->workspace + n;
    sorting s = { .of_sorted = { .data = r->workspace }, .of_order = { .data = order } };
    lay_out(&s, x);
    s.run.workspace = order + n;
    s.run.workspace_bytes = r->workspace_bytes - (size_t)n * 16;
    aril_status status = aril__cpu_sort(&s.run);
    /* The inverse is complete before the number of runs is known. */
    if (status == ARIL_OK) status = aril__run_alloc(r, 1, ARIL_I64, x->ndim, x->dim);
    if (status < 0) return status;
    int64_t *inverse = aril__ptr(r->out[1]);
    int64_t groups = type == ARIL__C_F32   ? runs_f32(r->workspace, order, inverse, n)
                     : type == ARIL__C_F64 ? runs_f64(r->workspace, order, inverse, n)
                                           : runs_integers(r->workspace, order, inverse, n);
    status = aril__run_alloc(r, 0, (aril_dtype)x->dtype, 1, &groups);
    if (status == ARIL_OK) status = aril__run_alloc(r, 2, ARIL_I64, 1, &groups);
    if (status < 0) return status;
    aril_tensor *y = r->out[0];
    aril__dtypes[y->dtype].store[type](aril__base(y), y->offset, 1, r->workspace, groups);
    int64_t *count = aril__ptr(r->out[2]);
    for (int64_t g = 0; g < groups; g++) count[g] = (g + 1 < groups ? order[g + 1] : n) - order[g];
    return ARIL_OK;
}

aril_status aril__cpu_unique(aril__run *r)
{
    const aril_tensor *x = r->in[0];
    if (of_slices(r)) return r->op->ref(r);
    if (x->numel == 0) return allocate(r, 0);
    if (!aril__is_float((aril_dtype)x->dtype)) {
        uint64_t turn = x->dtype == ARIL_U64 ? UINT64_C(1) << 63 : 0, least, range;
        range_of(x, turn, &least, &range);
        /* The table takes the place of sorted elements and their order. */
        if (range < 2 * (uint64_t)x->numel) return by_table(r, least, (int64_t)range + 1);
    }
    return by_sorting(r);
}
