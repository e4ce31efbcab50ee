/* Fused ops: kernels that are generated from recipes (source.c), compiled by NVRTC when a recipe is
 * first used with inputs of some dtypes, and kept. Without NVRTC the rows decline, and the steps of
 * a recipe run one by one. */
#include "backend/cuda/fused/arguments.h"
#include "backend/cuda/fused/source.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/loops.cuh"
#include "backend/cuda/number.cuh"
#include "backend/cuda/rows.cuh"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static_assert(ARIL_CUDA_FUSED_DIMS >= ARIL_MAX_DIMS, "a loop has up to ARIL_MAX_DIMS dimensions");
static_assert((int)ARIL_CUDA_FUSED_OPERANDS <= (int)ARIL_CUDA_OPERANDS, "all operands of a kernel");
static_assert((int)ARIL_CUDA_FUSED_INPUTS == (int)ARIL_FUSED_INPUTS &&
                  (int)ARIL_CUDA_FUSED_OUTPUTS == (int)ARIL_FUSED_OUTPUTS,
              "those of a recipe");

/* ---- kernels ---- */

struct kernel {
    kernel *next;
    uint64_t recipe;
    int device;
    aril_cuda_fused_types types;
    aril_program *program; /* NULL: it does not exist, for the reason `why` */
    int width, n_in, n_out;
    bool by_rows;
    char why[256];
};

static struct {
    pthread_mutex_t lock;
    kernel *first;
} kernels = { PTHREAD_MUTEX_INITIALIZER, nullptr };

static kernel *find(uint64_t recipe, int device, const aril_cuda_fused_types &types)
{
    kernel *k = kernels.first;
    while (k && (k->recipe != recipe || k->device != device ||
                 memcmp(&k->types, &types, sizeof types) != 0))
        k = k->next;
    return k;
}

static kernel *make(aril_cuda_device *d, const aril_fused *f, const aril_cuda_fused_types &types)
{
    kernel *k = static_cast<kernel *>(calloc(1, sizeof(kernel)));
    if (!k) return nullptr;
    k->recipe = f->id;
    k->device = d->index;
    k->types = types;
    k->n_in = f->n_in;
    k->n_out = f->n_out;
    k->width = aril_cuda_fused_width(f, &types);
    k->by_rows = aril_cuda_fused_by_rows(f);
    char *source = aril_cuda_fused_source(f, &types);
    if (source)
        k->program =
            aril_cuda_compile_or_say(d, source, ARIL_CUDA_FUSED_OPTIONS, k->why, sizeof k->why);
    if (!k->program) aril_cuda_host->log("cuda: a fused kernel is not compiled: %s", k->why);
    free(source);
    k->next = kernels.first;
    kernels.first = k;
    return k;
}

/* ---- rows ---- */

/* The loop of a recipe by rows: the last axis, and the others. */
struct row_loop {
    int ndim; /* outermost dimension first */
    int64_t dim[ARIL_MAX_DIMS], stride[ARIL_CUDA_FUSED_OPERANDS][ARIL_MAX_DIMS];
    int64_t rows, length;
};

static bool over_rows(const aril_fused_output &o)
{
    return o.reduce == ARIL_FUSED_SUM || o.reduce == ARIL_FUSED_MEAN;
}

/* Strides of a tensor along the loop, 0 where it is repeated. Of a result by rows, the last axis
 * may be missing; a sum over rows has its last axis alone. */
static void set_strides(const row_loop &l, const aril_tensor *t, const aril_fused_output *o,
                        int64_t *stride)
{
    int ndim = aril_cuda_host->ndim(t);
    const int64_t *dim = aril_cuda_host->dims(t), *from = aril_cuda_host->strides(t);
    bool shorter = o && o->reduce == ARIL_FUSED_EACH_ROW && o->dropped;
    for (int d = 0; d < l.ndim; d++) {
        int at = d - (l.ndim - ndim) + (shorter ? 1 : 0);
        bool there = at >= 0 && at < ndim && dim[at] != 1;
        if (o && over_rows(*o)) there = there && d == l.ndim - 1;
        stride[d] = there ? from[at] : 0;
    }
}

static row_loop row_loop_of(const aril_run *r, const aril_fused &f,
                            const aril_cuda_fused_types &types)
{
    row_loop l = {};
    l.ndim = f.ndim;
    l.rows = 1;
    l.length = f.dim[f.ndim - 1];
    for (int d = 0; d < f.ndim; d++) l.dim[d] = f.dim[d];
    for (int d = 0; d < f.ndim - 1; d++) l.rows *= f.dim[d];
    for (int k = 0; k < f.n_out; k++) set_strides(l, aril_cuda_out(r, k), &f.out[k], l.stride[k]);
    for (int i = 0; i < f.n_in; i++)
        if (!types.number[i] && !f.is_key[i])
            set_strides(l, aril_cuda_in(r, i), nullptr, l.stride[ARIL_CUDA_FUSED_OUTPUTS + i]);
    return l;
}

/* Merges outer dimensions that are adjacent in all operands. */
static void merge(row_loop *l)
{
    int n = 0; /* of the outer dimensions that stay */
    for (int d = 0; d < l->ndim - 1; d++) {
        bool joins = n > 0;
        for (int j = 0; j < ARIL_CUDA_FUSED_OPERANDS && joins; j++)
            joins = l->stride[j][n - 1] == l->stride[j][d] * l->dim[d];
        int to = joins ? n - 1 : n++;
        l->dim[to] = joins ? l->dim[to] * l->dim[d] : l->dim[d];
        for (int j = 0; j < ARIL_CUDA_FUSED_OPERANDS; j++) l->stride[j][to] = l->stride[j][d];
    }
    l->dim[n] = l->dim[l->ndim - 1];
    for (int j = 0; j < ARIL_CUDA_FUSED_OPERANDS; j++) l->stride[j][n] = l->stride[j][l->ndim - 1];
    l->ndim = n + 1;
}

static bool is_small(const row_loop &l)
{
    if (l.rows >= INT32_MAX || l.length >= INT32_MAX) return false;
    for (int j = 0; j < ARIL_CUDA_FUSED_OPERANDS; j++)
        for (int d = 0; d < l.ndim; d++)
            if (l.stride[j][d] > INT32_MAX || l.stride[j][d] < -(int64_t)INT32_MAX) return false;
    return true;
}

/* Whether rows are contiguous and begin at multiples of `width` elements; with `base`, also in
 * memory. */
static bool takes_row_vectors(const row_loop &l, const aril_fused &f,
                              const aril_cuda_fused_types &types, int width, void *const *base)
{
    int last = l.ndim - 1;
    if (l.length % width) return false;
    for (int j = 0; j < ARIL_CUDA_FUSED_OUTPUTS + f.n_in; j++) {
        int i = j - ARIL_CUDA_FUSED_OUTPUTS;
        bool whole = i >= 0 ? !types.number[i] && !f.is_key[i] && !f.by_row[i]
                            : j < f.n_out && f.out[j].reduce == ARIL_FUSED_EACH;
        if (!whole) continue;
        int size = aril_cuda_size(i >= 0 ? types.dtype[i] : f.out[j].dtype);
        int bytes = width * size < 16 ? width * size : 16;
        if (l.stride[j][last] != 1 || (base && (uintptr_t)base[j] % (uintptr_t)bytes)) return false;
        for (int d = 0; d < last; d++)
            if (l.stride[j][d] % width) return false;
    }
    return true;
}

static bool has_sums(const aril_fused &f)
{
    for (int k = 0; k < f.n_out; k++)
        if (over_rows(f.out[k])) return true;
    return false;
}

/* Blocks of a kernel over rows. Those that take sums over rows are as many as run at once. */
static int64_t blocks_of(const aril_run *r, const aril_fused &f, const aril_cuda_fused_types &types,
                         int64_t rows)
{
    enum { THREADS_PER_SM = 768 };
    int block = aril_cuda_rows_block(&f, &types), side = block / types.threads;
    int64_t blocks = (rows + side - 1) / side;
    int64_t most = THREADS_PER_SM / block * (int64_t)aril_cuda_sms(r);
    return has_sums(f) && blocks > most ? most : blocks;
}

/* Bytes for what each of so many blocks has of result k. */
static size_t partial_bytes(const aril_fused &f, int k, int64_t blocks, int64_t length)
{
    if (!over_rows(f.out[k])) return 0;
    bool all = f.out[k].axes >> (f.ndim - 1) & 1;
    size_t size = f.out[k].dtype == ARIL_F64 ? sizeof(double) : sizeof(float);
    return ((size_t)blocks * (size_t)(all ? 1 : length) * size + 255) / 256 * 256;
}

static const char *prepare_rows(const aril_run *r, const aril_fused &f,
                                aril_cuda_fused_types *types, aril_plan *plan)
{
    row_loop l = row_loop_of(r, f, *types);
    int width = aril_cuda_fused_width(&f, types);
    if (!is_small(l)) return "too many elements";
    if (!takes_row_vectors(l, f, *types, width, nullptr)) width = 1;
    if (!aril_cuda_rows_class(&f, l.length, width, types)) return "long rows";
    int64_t blocks = blocks_of(r, f, *types, l.rows);
    aril_cuda_fused_types single = *types; /* for memory that is not aligned */
    if (width > 1 && aril_cuda_rows_class(&f, l.length, 1, &single)) {
        int64_t others = blocks_of(r, f, single, l.rows);
        if (others > blocks) blocks = others;
    }
    for (int k = 0; k < f.n_out; k++) plan->workspace += partial_bytes(f, k, blocks, l.length);
    return nullptr;
}

/* The kernel for a recipe and types; NULL: out of memory. */
static const kernel *kernel_of(aril_cuda_device *d, const aril_fused *f,
                               const aril_cuda_fused_types &types)
{
    pthread_mutex_lock(&kernels.lock);
    kernel *k = find(f->id, d->index, types);
    if (!k) k = make(d, f, types);
    pthread_mutex_unlock(&kernels.lock);
    return k;
}

static aril_cuda_fused_types types_of(const aril_run *r, const aril_fused &f)
{
    aril_cuda_fused_types types;
    memset(&types, 0, sizeof types);
    for (int i = 0; i < f.n_in; i++) {
        aril_host_number number;
        types.number[i] = !f.is_key[i] && aril_cuda_host->number(r, i, &number);
        types.dtype[i] = (uint8_t)aril_cuda_host->dtype(aril_cuda_in(r, i));
        types.by_row[i] = f.by_row[i];
    }
    return types;
}

static const char *prepare(const aril_run *r, aril_plan *plan)
{
    aril_fused f;
    if (!aril_cuda_host->fused(r, &f)) return "no recipe";
    aril_cuda_fused_types types = types_of(r, f);
    const char *why = aril_cuda_fused_refuses(&f, &types);
    if (!why && aril_cuda_fused_by_rows(&f)) why = prepare_rows(r, f, &types, plan);
    if (why) return why;
    const kernel *k = kernel_of(aril_cuda_device_of(r), &f, types);
    if (!k) return "out of memory";
    if (!k->program) return k->why;
    plan->prepared = const_cast<kernel *>(k);
    return nullptr;
}

/* ---- running by rows ---- */

static aril_status launch_rows(aril_run *r, const aril_fused &f, const kernel *k, const row_loop &l,
                               aril_cuda_fused_arguments a)
{
    int block = aril_cuda_rows_block(&f, &k->types);
    int64_t blocks = blocks_of(r, f, k->types, l.rows);
    bool sums = has_sums(f);
    char *workspace = static_cast<char *>(aril_cuda_host->workspace(r));
    for (int j = 0; j < f.n_out && sums; j++) {
        a.partial[j] = workspace;
        workspace += partial_bytes(f, j, blocks, l.length);
    }
    a.ndim = l.ndim;
    a.rows = (uint32_t)l.rows;
    a.length = (uint32_t)l.length;
    a.parts = (uint32_t)blocks;
    for (int d = 0; d < l.ndim; d++) {
        int from = l.ndim - 1 - d;
        aril_cuda_divisor by = aril_cuda_divisor_of(l.dim[from] ? l.dim[from] : 1);
        a.dim[d][0] = by.by;
        a.dim[d][1] = by.multiplier;
        a.dim[d][2] = by.shift;
        for (int j = 0; j < ARIL_CUDA_FUSED_OPERANDS; j++)
            a.stride[j][d] = (int32_t)l.stride[j][from];
    }
    void *args[] = { &a };
    aril_cuda_device *d = aril_cuda_device_of(r);
    aril_cuda_stream(r); /* recordings note what the run uses */
    d->last_op = aril_cuda_host->op(r);
    const uint32_t grid[3] = { (uint32_t)blocks, 1, 1 }, threads[3] = { (uint32_t)block, 1, 1 };
    aril_status s = ARIL_OK;
    if (blocks)
        s = aril_cuda_launch(d, aril_cuda_host->queue(r), k->program, "rows", grid, threads, 0,
                             args, 1);
    const uint32_t columns[3] = { (uint32_t)((l.length + 31) / 32), (uint32_t)f.n_out, 1 };
    const uint32_t finish[3] = { ARIL_CUDA_FINISH_THREADS, 1, 1 };
    if (s == ARIL_OK && sums)
        s = aril_cuda_launch(d, aril_cuda_host->queue(r), k->program, "finish", columns, finish, 0,
                             args, 1);
    return s;
}

static aril_status run_rows(aril_run *r, const kernel *k)
{
    aril_fused f;
    aril_cuda_fused_arguments a = {};
    if (!aril_cuda_host->fused(r, &f))
        return aril_cuda_host->fail(ARIL_ERR_INTERNAL, "%s: no recipe", aril_cuda_host->op(r));
    for (int j = 0; j < f.n_out; j++) a.base[j] = aril_cuda_data(aril_cuda_out(r, j));
    for (int i = 0; i < f.n_in; i++) {
        const aril_tensor *t = aril_cuda_in(r, i);
        if (f.is_key[i]) {
            aril_cuda_key key = aril_cuda_key_of(r, i);
            a.key[i] = { key.seed, key.call, key.at };
        } else if (k->types.number[i]) {
            memcpy(&a.number[i], aril_cuda_data(t), (size_t)aril_cuda_size(k->types.dtype[i]));
        } else {
            a.base[ARIL_CUDA_FUSED_OUTPUTS + i] = aril_cuda_data(t);
        }
    }
    row_loop l = row_loop_of(r, f, k->types);
    if (k->types.width > 1 && !takes_row_vectors(l, f, k->types, k->types.width, a.base)) {
        aril_cuda_fused_types types = k->types; /* memory that is not aligned: seldom */
        if (!aril_cuda_rows_class(&f, l.length, 1, &types))
            return aril_cuda_host->fail(ARIL_ERR_INTERNAL, "%s: long rows", aril_cuda_host->op(r));
        k = kernel_of(aril_cuda_device_of(r), &f, types);
        if (!k || !k->program)
            return aril_cuda_host->fail(ARIL_ERR_INTERNAL, "%s: %s", aril_cuda_host->op(r),
                                        k ? k->why : "out of memory");
    }
    merge(&l);
    return launch_rows(r, f, k, l, a);
}

/* ---- running by elements ---- */

/* Whether chunks of neighbours are contiguous and aligned for every operand, or one element. */
static bool takes_vectors(const aril_cuda_loops &l, const kernel *k,
                          const aril_cuda_fused_arguments &a, const int *size)
{
    int last = l.ndim - 1, width = k->width;
    if (l.ndim == 0 || (l.ndim > 1 && l.dim[last] % width)) return false;
    for (int j = 0; j < l.n; j++) {
        if (!a.base[j]) continue;
        bool splat = l.stride[j][last] == 0 && j >= ARIL_CUDA_FUSED_OUTPUTS;
        int bytes = width * size[j] < 16 ? width * size[j] : 16;
        if (splat) continue;
        if (l.stride[j][last] != 1 || (uintptr_t)a.base[j] % (uintptr_t)bytes) return false;
        for (int d = 0; d < last; d++)
            if (l.stride[j][d] % width) return false;
    }
    return true;
}

static aril_status launch(aril_run *r, const kernel *k, const aril_cuda_loops &piece,
                          aril_cuda_fused_arguments a, const int *size)
{
    a.n = (uint32_t)aril_cuda_loops_numel(&piece);
    a.ndim = piece.ndim;
    for (int j = 0; j < piece.n; j++)
        if (a.base[j]) a.base[j] = static_cast<char *>(a.base[j]) + piece.offset[j] * size[j];
    for (int d = 0; d < piece.ndim; d++) {
        int from = piece.ndim - 1 - d;
        aril_cuda_divisor by = aril_cuda_divisor_of(piece.dim[from]);
        a.dim[d][0] = by.by;
        a.dim[d][1] = by.multiplier;
        a.dim[d][2] = by.shift;
        for (int j = 0; j < piece.n; j++) a.stride[j][d] = (int32_t)piece.stride[j][from];
    }
    bool vectors = takes_vectors(piece, k, a, size);
    int64_t per_block = ARIL_CUDA_FUSED_THREADS * (vectors ? k->width : 1);
    const uint32_t grid[3] = { aril_cuda_blocks(r, a.n, per_block, 8), 1, 1 };
    const uint32_t block[3] = { ARIL_CUDA_FUSED_THREADS, 1, 1 };
    void *args[] = { &a };
    aril_cuda_device *d = aril_cuda_device_of(r);
    aril_cuda_stream(r); /* recordings note what the run uses */
    d->last_op = aril_cuda_host->op(r);
    return aril_cuda_launch(d, aril_cuda_host->queue(r), k->program, vectors ? "vectors" : "any",
                            grid, block, 0, args, 1);
}

static aril_status run(aril_run *r)
{
    const kernel *k = static_cast<const kernel *>(aril_cuda_host->prepared(r));
    if (k->by_rows) return run_rows(r, k);
    aril_cuda_fused_arguments a = {};
    int size[ARIL_CUDA_FUSED_OPERANDS] = {};
    aril_cuda_loops l = aril_cuda_loops_of(aril_cuda_out(r, 0));
    for (int j = 0; j < ARIL_CUDA_FUSED_OUTPUTS + k->n_in; j++) {
        int i = j - ARIL_CUDA_FUSED_OUTPUTS;
        const aril_tensor *t = i >= 0         ? aril_cuda_in(r, i)
                               : j < k->n_out ? aril_cuda_out(r, j)
                                              : nullptr;
        if (i >= 0 && k->types.number[i]) {
            memcpy(&a.number[i], aril_cuda_data(t), (size_t)aril_cuda_size(k->types.dtype[i]));
            t = nullptr;
        }
        aril_cuda_loops_add(&l, t);
        if (!t) continue;
        a.base[j] = aril_cuda_data(t);
        size[j] = aril_cuda_size(aril_cuda_host->dtype(t));
    }
    aril_cuda_loops_merge(&l, 0);
    return aril_cuda_each_piece(&l, [&](const aril_cuda_loops &piece) {
        return launch(r, k, piece, a, size);
    });
}

#define ROW(name_)                                                                          \
    {                                                                                       \
        .op = name_, .name = "cuda_fused", .dtypes = ARIL_CUDA_DT_COMPUTE, .strided = true, \
        .prepare = prepare, .run = run                                                      \
    }
const aril_row aril_cuda_fused_rows[] = {
    ROW("fused"), ROW("fused_2"), ROW("fused_3"), ROW("fused_4"), {},
};
