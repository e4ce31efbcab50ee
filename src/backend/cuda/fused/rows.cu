/* Fused ops: kernels that are generated from recipes (source.c), compiled by NVRTC when a recipe is
 * first used with inputs of some dtypes, and kept. Without NVRTC the rows decline, and the steps of
 * a recipe run one by one. */
#include "backend/cuda/fused/arguments.h"
#include "backend/cuda/fused/source.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/loops.cuh"
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

static const char *prepare(const aril_run *r, aril_plan *plan)
{
    aril_fused f;
    aril_cuda_fused_types types;
    if (!aril_cuda_host->fused(r, &f)) return "no recipe";
    memset(&types, 0, sizeof types);
    for (int i = 0; i < f.n_in; i++) {
        aril_host_number number;
        types.number[i] = aril_cuda_host->number(r, i, &number);
        types.dtype[i] = (uint8_t)aril_cuda_host->dtype(aril_cuda_in(r, i));
    }
    const char *why = aril_cuda_fused_refuses(&f, &types);
    if (why) return why;
    aril_cuda_device *d = aril_cuda_device_of(r);
    pthread_mutex_lock(&kernels.lock);
    kernel *k = find(f.id, d->index, types);
    if (!k) k = make(d, &f, types);
    pthread_mutex_unlock(&kernels.lock);
    if (!k) return "out of memory";
    if (!k->program) return k->why;
    plan->prepared = k;
    return nullptr;
}

/* ---- running ---- */

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
