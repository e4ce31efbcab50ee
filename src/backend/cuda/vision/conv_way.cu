#include "backend/cuda/vision/conv_way.cuh"

#include "aril/activation.h"
#include "backend/cuda/linalg/epilogue.cuh"
#include "backend/cuda/vision/conv_depthwise.cuh"
#include "backend/cuda/vision/conv_dnn.cuh"
#include "backend/cuda/vision/conv_implicit.cuh"
#include "backend/cuda/vision/conv_weights.cuh"

#include <new>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t MAX_WORKSPACE = (int64_t)2 << 30;

/* ---- running ---- */

void aril_cuda_conv_way_end(aril_cuda_conv_way *way)
{
#ifdef ARIL_CUDA_CUDNN
    if (way->kind == ARIL_CUDA_CONV_ENGINE || way->kind == ARIL_CUDA_CONV_PACKED)
        aril_cuda_dnn_plan_end(aril_cuda_dnn_library(nullptr), &way->plan);
#endif
    way->kind = ARIL_CUDA_CONV_NONE;
}

bool aril_cuda_conv_activates(int activation)
{
    return activation == ARIL_SIGMOID || activation == ARIL_TANH;
}

/* What a way leaves to be done after it. */
struct rest {
    bool bias, z, activation;
};

static rest rest_of(const aril_cuda_conv_way *way, const aril_cuda_conv &d)
{
    bool acts = d.activation != ARIL_NO_ACTIVATION;
    const aril_cuda_conv_product &p = way->product;
    if (d.role == ARIL_CUDA_CONV_W) return {};
    if (way->kind == ARIL_CUDA_CONV_PRODUCT)
        return { d.has_bias && !p.biased, d.has_z && !p.added, acts && !p.activated };
    bool activated = way->fused && aril_cuda_conv_activates(d.activation);
    return { d.has_bias && !way->fused, d.has_z, acts && !activated };
}

static aril_status follow(const aril_run *r, const aril_cuda_conv_task *t, const aril_cuda_conv &d,
                          const rest &todo)
{
    const aril_cuda_image &to = d.role == ARIL_CUDA_CONV_Y ? d.y : d.x;
    aril_cuda_epilogue e = {};
    e.y = to.data;
    e.bias = todo.bias ? d.bias : nullptr;
    e.z = todo.z ? d.z.data : nullptr;
    e.bias_stride = 1;
    e.outer = t->last ? to.dim[0] * aril_cuda_area(to) : to.dim[0];
    e.channels = to.dim[1];
    e.inner = t->last ? 1 : aril_cuda_area(to);
    e.dtype = t->type;
    e.activation = todo.activation ? d.activation : ARIL_NO_ACTIVATION;
    return aril_cuda_epilogue_run(r, &e);
}

#ifdef ARIL_CUDA_CUDNN

static const char *run_packed(const aril_run *r, const aril_cuda_conv_way *way,
                              const aril_cuda_conv &d, void *workspace)
{
    const aril_cuda_conv_packing *p = &way->packing;
    char *x = static_cast<char *>(workspace), *w = x + p->x_bytes;
    aril_cuda_conv inner = way->packed.d;
    bool forward = d.role == ARIL_CUDA_CONV_Y;
    inner.x.data = x;
    inner.w.data = w;
    inner.y.data = d.y.data;
    inner.bias = d.bias;
    aril_cuda_conv_pack_image(r, p, d.x.data, x);
    if (forward) aril_cuda_conv_pack_weights(r, p, d.w.data, w);
    const char *why =
        aril_cuda_conv_engine_run(r, &way->packed, &way->plan, way->fused, inner, w + p->w_bytes);
    if (!forward && !why) aril_cuda_conv_unpack_weights(r, p, w, d.w.data);
    return why;
}

static const char *run_engine(const aril_run *r, const aril_cuda_conv_task *t,
                              const aril_cuda_conv_way *way, const aril_cuda_conv &d,
                              void *workspace)
{
    if (way->kind == ARIL_CUDA_CONV_PACKED) return run_packed(r, way, d, workspace);
    return aril_cuda_conv_engine_run(r, t, &way->plan, way->fused, d, workspace);
}

#else

static const char *run_engine(const aril_run *, const aril_cuda_conv_task *,
                              const aril_cuda_conv_way *, const aril_cuda_conv &, void *)
{
    return "built without cuDNN";
}

#endif

const char *aril_cuda_conv_way_run(const aril_run *r, const aril_cuda_conv_task *t,
                                   const aril_cuda_conv_way *way, const aril_cuda_conv &d,
                                   void *workspace)
{
    const char *why = nullptr;
    switch (way->kind) {
    case ARIL_CUDA_CONV_PRODUCT:
        why = aril_cuda_conv_product_run(r, &way->product, d, workspace);
        break;
    case ARIL_CUDA_CONV_DEPTHWISE: aril_cuda_conv_depthwise_run(r, d, t->type, workspace); break;
    case ARIL_CUDA_CONV_WEIGHTS: aril_cuda_conv_weights_run(r, d, workspace); break;
    case ARIL_CUDA_CONV_IMPLICIT: aril_cuda_conv_implicit_run(r, d, workspace); break;
    default: why = run_engine(r, t, way, d, workspace);
    }
    if (why) return why;
    return follow(r, t, d, rest_of(way, d)) == ARIL_OK ? nullptr : "the bias cannot be added";
}

/* ---- making ---- */

static bool is_packed(const aril_cuda_conv_task *t)
{
    return t->x_pitch == t->d.x.dim[1] && t->y_pitch == t->d.y.dim[1];
}

static bool make_product(const aril_cuda_conv_task *t, int choice, aril_cuda_conv_way *way)
{
    if (!aril_cuda_conv_is_product(t->d) ||
        !aril_cuda_conv_product_make(t->device, t->d, t->type, t->last, t->x_pitch, t->y_pitch,
                                     choice, &way->product))
        return false;
    way->kind = ARIL_CUDA_CONV_PRODUCT;
    way->workspace = way->product.workspace;
    way->fused = false;
    snprintf(way->name, sizeof way->name, "product %d", choice);
    return true;
}

/* Kernels of our own: each takes convolutions that no other does. */
static bool make_own(const aril_cuda_conv_task *t, aril_cuda_conv_way *way)
{
    *way = {};
    if (is_packed(t) && aril_cuda_conv_is_depthwise(t->d, t->type, t->last)) {
        way->kind = ARIL_CUDA_CONV_DEPTHWISE;
        way->workspace = aril_cuda_conv_depthwise_workspace(t->device, t->d, t->type);
    } else if (aril_cuda_conv_is_weights(t->d, t->type, t->last)) {
        way->kind = ARIL_CUDA_CONV_WEIGHTS;
        way->workspace = aril_cuda_conv_weights_workspace(t->device, t->d);
    } else if (aril_cuda_conv_is_implicit(t->d, t->type, t->last)) {
        way->kind = ARIL_CUDA_CONV_IMPLICIT;
        way->workspace = aril_cuda_conv_implicit_workspace(t->device, t->d);
    }
    strcpy(way->name, "own");
    return way->kind != ARIL_CUDA_CONV_NONE && (int64_t)way->workspace <= MAX_WORKSPACE;
}

#ifdef ARIL_CUDA_CUDNN

/* The engines of a task, with bias and activation or without. */
struct engines {
    bool fused;
    int n;
    aril_cuda_engine at[ARIL_CUDA_CONV_ENGINES];
};

static engines *list_engines(const aril_cuda_conv_task *t, int64_t alignment, bool fused)
{
    engines *e = t->library ? new (std::nothrow) engines : nullptr;
    if (!e) return nullptr;
    e->fused = fused;
    e->n = aril_cuda_conv_engines(t, alignment, fused, e->at);
    return e;
}

static void end_engines(engines *e)
{
    if (e) aril_cuda_engines_end(aril_cuda_dnn_library(nullptr), e->at, e->n);
    delete e;
}

static bool make_engine(const aril_cuda_conv_task *t, engines *e, int i, int64_t workspace,
                        aril_cuda_conv_way *way)
{
    snprintf(way->name, sizeof way->name, "cudnn%s %s", e->fused ? " fused" : "", e->at[i].name);
    if (!aril_cuda_conv_engine_build(t, &e->at[i], workspace, &way->plan)) return false;
    way->kind = ARIL_CUDA_CONV_ENGINE;
    way->workspace = (size_t)way->plan.workspace;
    way->fused = e->fused;
    return true;
}

/* Without measurements: what was faster than the first choices of cuDNN's heuristics in f32, on an
 * H200. NULL: nothing in particular. Other versions of cuDNN may not have these engines. */
static const char *preferred(const aril_cuda_conv_task *t)
{
    const aril_cuda_conv &d = t->d;
    int64_t kernel = aril_cuda_area(d.w), stride = d.stride[1] * d.stride[2];
    int64_t m = d.y.dim[0] * aril_cuda_area(d.y), k = d.y.dim[1], sms = t->device->sms;
    if (t->type != ARIL_F32 || aril_cuda_tf32() || !aril_cuda_host->deterministic()) return nullptr;
    if (d.role == ARIL_CUDA_CONV_W) {
        /* Winograd's method, Fourier transforms: fast for many channels, and less exact. */
        bool many = d.x.dim[1] >= 16 && k >= 32;
        return !many || kernel == 1 ? nullptr : kernel >= 25 ? "e18" : "e17";
    }
    if (d.role == ARIL_CUDA_CONV_X) {
        if (stride > 1) return aril_cuda_area(d.x) <= 256 ? "e2,2=2" : "e2,2=1";
        if (d.x.dim[1] < 16) return "e2,2=1";
        return aril_cuda_area(d.x) >= 28 * 28 / 2 ? "e50" : "e74";
    }
    if (stride == 1 && kernel >= 25 && d.x.dim[1] >= 16) return "e3"; /* by Fourier transforms */
    /* Tiles of 128 x 128 where they fill the device; else smaller ones, which should not leave a
     * second round half empty. */
    int64_t large = (m + 127) / 128 * ((k + 127) / 128), small = (m + 63) / 64 * ((k + 63) / 64);
    if (10 * large >= 7 * sms) return "e70,2=4,18=0";
    int64_t rounds = (small + sms - 1) / sms;
    return 4 * small >= 3 * rounds * sms ? "e70,2=2,18=0" : "e70,2=12,18=0";
}

static bool begins_with(const char *name, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncmp(name, prefix, n) == 0 && (name[n] == ',' || name[n] == '\0');
}

/* Those that were several times slower than others wherever they were met. */
static bool is_slow(const aril_cuda_conv_task *t, const char *name)
{
    bool one = aril_cuda_area(t->d.w) == 1;
    return t->type == ARIL_F32 && !t->last &&
           (begins_with(name, "e0") || (!one && begins_with(name, "e67")));
}

/* The engine of that name; or, without one, the preferred engine, the first that is not slow, or
 * the first that builds. */
static bool find_engine(const aril_cuda_conv_task *t, int64_t alignment, bool fused,
                        const char *name, int64_t workspace, aril_cuda_conv_way *way)
{
    engines *e = list_engines(t, alignment, fused);
    const char *wanted = name ? nullptr : preferred(t);
    bool found = false;
    for (int round = name ? 2 : 0; round < 3 && !found; round++)
        for (int i = 0; e && i < e->n && !found; i++) {
            const char *at = e->at[i].name;
            bool fits = round == 0   ? wanted && begins_with(at, wanted)
                        : round == 1 ? !is_slow(t, at)
                                     : !name || strcmp(at, name) == 0;
            if (fits && e->at[i].config) found = make_engine(t, e, i, workspace, way);
        }
    end_engines(e);
    return found;
}

/* The same task over a packed image. */
static bool pack_task(const aril_cuda_conv_task *t, int which, aril_cuda_conv_way *way)
{
    aril_cuda_conv inner;
    if (!t->library || !t->last || !is_packed(t) ||
        !aril_cuda_conv_pack(t->d, t->type, t->x_first, which, &way->packing, &inner))
        return false;
    way->packed = *t;
    way->packed.d = inner;
    way->packed.x_pitch = inner.x.dim[1];
    way->packed.end[0] = way->packed.end[1] = way->packed.end[2] = 0;
    return true;
}

/* Makes an engine for the packed task the way. */
static void name_packed(int which, aril_cuda_conv_way *way)
{
    char name[sizeof way->name];
    snprintf(name, sizeof name, "packed %d %.200s", which, way->name);
    strcpy(way->name, name);
    way->kind = ARIL_CUDA_CONV_PACKED;
    way->workspace += way->packing.x_bytes + way->packing.w_bytes;
}

static bool find_packed(const aril_cuda_conv_task *t, int which, bool fused, const char *name,
                        aril_cuda_conv_way *way)
{
    if (!pack_task(t, which, way) ||
        !find_engine(&way->packed, 16, fused, name, MAX_WORKSPACE, way))
        return false;
    name_packed(which, way);
    return true;
}

#else

static bool find_engine(const aril_cuda_conv_task *, int64_t, bool, const char *, int64_t,
                        aril_cuda_conv_way *)
{
    return false;
}

static bool find_packed(const aril_cuda_conv_task *, int, bool, const char *, aril_cuda_conv_way *)
{
    return false;
}

#endif

static bool is_low(const aril_cuda_conv_task *t)
{
    return t->type == ARIL_F16 || t->type == ARIL_BF16;
}

/* Whether there is a bias or an activation that engines may do. */
static bool may_fuse(const aril_cuda_conv_task *t)
{
    const aril_cuda_conv &d = t->d;
    bool activates = aril_cuda_conv_activates(d.activation);
    bool known = d.activation == 0 || d.activation == ARIL_RELU || activates;
    return is_low(t) && d.role == ARIL_CUDA_CONV_Y && known && (d.has_bias || activates);
}

/* Whether they have to: what is rounded before such an activation differs too much after it. */
static bool must_fuse(const aril_cuda_conv_task *t)
{
    return is_low(t) && aril_cuda_conv_activates(t->d.activation);
}

/* The text after a prefix; NULL if it begins otherwise. */
static const char *after(const char *text, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncmp(text, prefix, n) == 0 ? text + n : nullptr;
}

/* The way of a name that was recorded; false if it is unknown here. */
static bool make_named(const aril_cuda_conv_task *t, const char *name, aril_cuda_conv_way *way)
{
    const char *rest;
    if ((rest = after(name, "product "))) return make_product(t, atoi(rest), way);
    if (strcmp(name, "own") == 0) return make_own(t, way);
    bool fused = strstr(name, "fused ") != nullptr;
    const char *engine = strstr(name, " e");
    if (!engine || (fused && !may_fuse(t))) return false;
    if ((rest = after(name, "packed "))) return find_packed(t, atoi(rest), fused, engine + 1, way);
    return find_engine(t, 16, fused, engine + 1, MAX_WORKSPACE, way);
}

/* An engine that does what follows too if there is one, else any. */
static bool make_engine_for(const aril_cuda_conv_task *t, aril_cuda_conv_way *way)
{
    return (may_fuse(t) && find_engine(t, 16, true, nullptr, MAX_WORKSPACE, way)) ||
           find_engine(t, 16, false, nullptr, MAX_WORKSPACE, way);
}

/* Whether a kernel of our own is likely to be faster than cuDNN. In f32, cuDNN has fast engines for
 * gradients of weights if windows are next to each other and channels are many (Winograd's method,
 * Fourier transforms), and does not cut the sums of small results. */
static bool likes_own(const aril_cuda_conv_task *t)
{
    const aril_cuda_conv &d = t->d;
    bool near = d.stride[1] * d.stride[2] == 1;
    if (t->type != ARIL_F32 || t->last) return d.groups > 1;
    if (aril_cuda_tf32()) return false;
    if (d.role == ARIL_CUDA_CONV_W) return !near || d.x.dim[1] < 16 || d.y.dim[1] < 32;
    const aril_cuda_image &to = d.role == ARIL_CUDA_CONV_Y ? d.y : d.x;
    int64_t m = to.dim[0] * aril_cuda_area(to), k = to.dim[1];
    return (m + 127) / 128 * ((k + 127) / 128) < t->device->sms && d.x.dim[1] >= 16 &&
           aril_cuda_area(d.w) < 25;
}

/* Whether a product is likely to be faster than cuDNN: it is in f32, unless many small products are
 * summed; in f16 and bf16 unless elements are copied first or something follows that cuBLASLt does
 * not do; and in TF32 where it adds another gradient. */
static bool likes_product(const aril_cuda_conv_task *t)
{
    const aril_cuda_conv &d = t->d;
    bool near = d.stride[0] * d.stride[1] * d.stride[2] == 1;
    if (t->type == ARIL_F32 && aril_cuda_tf32())
        return near && d.has_z && d.role == ARIL_CUDA_CONV_X;
    bool simple = !d.activation || d.activation == ARIL_RELU;
    bool plain = !d.has_bias && !d.has_z && !d.activation;
    if (is_low(t)) return near && (plain || (t->last && d.role == ARIL_CUDA_CONV_Y && simple));
    return t->last || d.role != ARIL_CUDA_CONV_W || aril_cuda_area(d.y) >= 100;
}

/* Without measurements. */
static bool make_likely(const aril_cuda_conv_task *t, aril_cuda_conv_way *way)
{
    if (likes_product(t) && make_product(t, 0, way)) return true;
    if (likes_own(t) && make_own(t, way)) return true;
    for (int i = 0; i < ARIL_CUDA_CONV_PACKINGS; i++)
        if ((may_fuse(t) && find_packed(t, i, true, nullptr, way)) ||
            find_packed(t, i, false, nullptr, way))
            return true;
    return make_engine_for(t, way);
}

bool aril_cuda_conv_choose_unaligned(const aril_cuda_conv_task *t, size_t workspace,
                                     aril_cuda_conv_way *way)
{
    return !must_fuse(t) &&
           find_engine(t, aril_cuda_size(t->type), false, nullptr, (int64_t)workspace, way);
}

/* ---- tuning ---- */

/* Everything that times depend on; false if it is too long. */
static bool key_of(const aril_run *r, const aril_cuda_conv_task *t, char *key, size_t size)
{
    const aril_cuda_conv &d = t->d;
    const aril_cuda_blas *lt = aril_cuda_blas_library(nullptr);
    size_t blas = lt ? lt->cublasLtGetVersion() : 0, dnn = 0;
#ifdef ARIL_CUDA_CUDNN
    const aril_cuda_dnn *lib = aril_cuda_dnn_library(nullptr);
    dnn = lib ? lib->version : 0;
#endif
    int n =
        snprintf(key, size, "%s %d%s", aril_cuda_host->op(r), (int)t->type, t->last ? " last" : "");
    const aril_cuda_image *images[] = { &d.x, &d.w, &d.y };
    for (const aril_cuda_image *m : images)
        for (int i = 0; i < 5 && n < (int)size; i++)
            n += snprintf(key + n, size - (size_t)n, "%c%lld", i ? 'x' : ' ', (long long)m->dim[i]);
    if (t->last && !is_packed(t) && n < (int)size)
        n += snprintf(key + n, size - (size_t)n, " pitch %lld,%lld", (long long)t->x_pitch,
                      (long long)t->y_pitch);
    for (int i = 0; i < 3 && n < (int)size; i++)
        n += snprintf(key + n, size - (size_t)n, " %lld/%lld/%lld", (long long)d.stride[i],
                      (long long)d.begin[i], (long long)d.dilation[i]);
    if (n < (int)size)
        n +=
            snprintf(key + n, size - (size_t)n, " b%d z%d a%d tf32=%d order=%d %s %d.%d %zu %zu %s",
                     d.has_bias, d.has_z, d.activation, t->type == ARIL_F32 && aril_cuda_tf32(),
                     aril_cuda_host->deterministic(), t->device->name, t->device->major,
                     t->device->minor, dnn, blas, aril_cuda_host->aril_version);
    return n < (int)size;
}

/* Memory in which ways are timed: nothing else reads or writes it. */
struct scratch {
    cudaStream_t stream;
    cudaEvent_t begin, end;
    aril_cuda_conv d; /* with addresses */
    void *workspace;
    size_t workspace_bytes;
};

static size_t bytes_of(const aril_cuda_conv_task *t, const aril_cuda_image &m, int64_t pitch)
{
    return (size_t)(m.dim[0] * pitch * aril_cuda_area(m) * aril_cuda_size(t->type));
}

static size_t bytes_of_result(const aril_cuda_conv_task *t)
{
    return t->d.role == ARIL_CUDA_CONV_X ? bytes_of(t, t->d.x, t->x_pitch)
                                         : bytes_of(t, t->d.y, t->y_pitch);
}

/* Bits of floats from 0.5 to 1 of both signs, as one f32 or two bf16: what is computed from other
 * data may take another time. */
static __global__ void scatter_bits(uint32_t *to, size_t n)
{
    ARIL_CUDA_LOOP(i, n)
    {
        uint32_t h = (uint32_t)i * 2654435761u;
        to[i] = ((h ^ h >> 15) & 0x807f807fu) | 0x3f003f00u;
    }
}

static bool allocate(const aril_run *r, void **to, size_t bytes, bool fill)
{
    if (cudaMalloc(to, bytes + 256) != cudaSuccess) {
        cudaGetLastError();
        *to = nullptr;
        return false;
    }
    if (fill)
        scatter_bits<<<1024, 256, 0, aril_cuda_stream(r)>>>(static_cast<uint32_t *>(*to),
                                                            bytes / 4);
    return true;
}

static bool begin_scratch(const aril_run *r, const aril_cuda_conv_task *t, scratch *s)
{
    void *bias = nullptr;
    *s = {};
    s->stream = aril_cuda_stream(r);
    s->d = t->d;
    bool ok =
        cudaEventCreate(&s->begin) == cudaSuccess && cudaEventCreate(&s->end) == cudaSuccess &&
        allocate(r, &s->d.x.data, bytes_of(t, t->d.x, t->x_pitch), true) &&
        allocate(r, &s->d.w.data, bytes_of(t, t->d.w, t->d.w.dim[1]), true) &&
        allocate(r, &s->d.y.data, bytes_of(t, t->d.y, t->y_pitch), true) &&
        (!t->d.has_bias || allocate(r, &bias, (size_t)(t->d.w.dim[0] * t->d.w.dim[1] * 8), true)) &&
        (!t->d.has_z || allocate(r, &s->d.z.data, bytes_of_result(t), true));
    s->d.bias = bias;
    return ok;
}

static void end_scratch(scratch *s)
{
    cudaStreamSynchronize(s->stream);
    if (s->begin) cudaEventDestroy(s->begin);
    if (s->end) cudaEventDestroy(s->end);
    cudaFree(s->d.x.data);
    cudaFree(s->d.w.data);
    cudaFree(s->d.y.data);
    cudaFree(const_cast<void *>(s->d.bias));
    cudaFree(s->d.z.data);
    cudaFree(s->workspace);
    cudaGetLastError();
}

/* Keeps the device busy while the host queues what is measured. */
static __global__ void spin(int64_t cycles)
{
    int64_t begin = clock64();
    while (clock64() - begin < cycles) {
    }
}

/* Microseconds of one run; negative if it fails. */
static float time_once(const aril_run *r, const aril_cuda_conv_task *t,
                       const aril_cuda_conv_way *way, scratch *s)
{
    float ms = -1;
    spin<<<1, 1, 0, s->stream>>>(60000);
    cudaEventRecord(s->begin, s->stream);
    const char *why = aril_cuda_conv_way_run(r, t, way, s->d, s->workspace);
    cudaEventRecord(s->end, s->stream);
    if (cudaEventSynchronize(s->end) != cudaSuccess || why) return -1;
    return cudaEventElapsedTime(&ms, s->begin, s->end) == cudaSuccess ? ms * 1000 : -1;
}

/* The least of a few runs after one that is not counted; slow ways are given up early. */
static float time_way(const aril_run *r, const aril_cuda_conv_task *t,
                      const aril_cuda_conv_way *way, scratch *s, float best)
{
    enum { RUNS = 5 };
    float least = -1;
    if (way->workspace > s->workspace_bytes) {
        cudaStreamSynchronize(s->stream);
        cudaFree(s->workspace);
        s->workspace_bytes = 0;
        if (!allocate(r, &s->workspace, way->workspace, false)) return -1;
        s->workspace_bytes = way->workspace;
    }
    if (time_once(r, t, way, s) < 0) return -1;
    for (int i = 0; i < RUNS; i++) {
        float us = time_once(r, t, way, s);
        if (us < 0) return -1;
        if (i == 0 || us < least) least = us;
        if (best > 0 && least > 1.3f * best) break;
    }
    return least;
}

/* The best so far. */
struct contest {
    const aril_run *r;
    const aril_cuda_conv_task *t;
    scratch memory;
    aril_cuda_conv_way way;
    float us; /* with what its workspace is worth */
};

/* What a workspace is worth in microseconds: programs that are short of memory would rather wait
 * that long. Small ones are taken from memory that is free anyway. */
static float price_of(const aril_cuda_conv_way *way)
{
    const size_t small = 16 << 20;
    return way->workspace > small ? (float)(way->workspace - small) / (1 << 20) : 0;
}

static void compete(contest *c, aril_cuda_conv_way *way)
{
    float us = time_way(c->r, c->t, way, &c->memory, c->us);
    aril_cuda_host->log("tuning: %s: %.1f us, %zu MiB of workspace", way->name, us,
                        way->workspace >> 20);
    if (us >= 0) us += price_of(way);
    if (us < 0 || (c->us > 0 && us >= c->us)) {
        aril_cuda_conv_way_end(way);
        return;
    }
    aril_cuda_conv_way_end(&c->way);
    c->way = *way;
    c->us = us;
}

#ifdef ARIL_CUDA_CUDNN

/* On tensor cores the heuristics order engines well, and building one takes long. */
static int engines_to_time(const aril_cuda_conv_task *t)
{
    bool exact = t->type == ARIL_F64 || (t->type == ARIL_F32 && !aril_cuda_tf32());
    if (exact) return ARIL_CUDA_CONV_ENGINES;
    return aril_cuda_conv_is_product(t->d) ? 4 : 12;
}

/* which: a packing of the image, or -1. */
static void compete_engines(contest *c, int which, bool fused)
{
    aril_cuda_conv_way way = {};
    if (which >= 0 && !pack_task(c->t, which, &way)) return;
    const aril_cuda_conv_task t = which >= 0 ? way.packed : *c->t;
    engines *e = list_engines(&t, 16, fused);
    int most = engines_to_time(&t);
    for (int i = 0; e && i < e->n && i < most; i++) {
        aril_cuda_conv_way one = way;
        if (!make_engine(&t, e, i, MAX_WORKSPACE, &one)) continue;
        if (which >= 0) name_packed(which, &one);
        compete(c, &one);
    }
    end_engines(e);
}

#else

static void compete_engines(contest *, int, bool)
{
}

#endif

/* Times all ways; false if memory or a kernel fails. */
static bool tune(const aril_run *r, const aril_cuda_conv_task *t, aril_cuda_conv_way *best)
{
    contest c = { r, t, {}, {}, -1 };
    cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
    cudaStreamIsCapturing(aril_cuda_stream(r), &capturing);
    if (capturing != cudaStreamCaptureStatusNone) return false;
    aril_cuda_synchronize(aril_cuda_device_of(r)); /* other work would disturb the times */
    if (begin_scratch(r, t, &c.memory)) {
        aril_cuda_conv_way own;
        if (make_own(t, &own)) compete(&c, &own);
        for (int i = 0; i < ARIL_CUDA_CONV_ALGORITHMS; i++) {
            aril_cuda_conv_way way = {};
            if (!make_product(t, i, &way)) break;
            compete(&c, &way);
        }
        for (int i = -1; i < ARIL_CUDA_CONV_PACKINGS; i++) {
            compete_engines(&c, i, false);
            if (may_fuse(t)) compete_engines(&c, i, true);
        }
    }
    end_scratch(&c.memory);
    *best = c.way;
    return c.way.kind != ARIL_CUDA_CONV_NONE;
}

bool aril_cuda_conv_choose(const aril_run *r, const aril_cuda_conv_task *t, aril_cuda_conv_way *way)
{
    char key[256], name[256];
    *way = {};
    if (must_fuse(t)) return may_fuse(t) && find_engine(t, 16, true, nullptr, MAX_WORKSPACE, way);
    bool has_key = key_of(r, t, key, sizeof key);
    if (has_key && aril_cuda_host->tuned(key, name, sizeof name) && make_named(t, name, way))
        return true;
    if (has_key && aril_cuda_host->tuning() && tune(r, t, way)) {
        aril_cuda_host->tune(key, way->name);
        return true;
    }
    *way = {};
    return make_likely(t, way);
}
