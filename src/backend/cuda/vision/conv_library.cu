/* Rows of convolutions through libraries. `prepare` chooses a way for the shapes, `run` follows it;
 * what the way leaves of bias, residual and activation follows in one pass over the result. */
#include "backend/cuda/vision/conv_library.cuh"

#include "backend/cuda/vision/conv_way.cuh"

#include <new>

enum { VARIANTS = 2 }; /* addresses in multiples of 16 bytes, and others */

struct variant {
    int made; /* atomic: the rest is valid */
    aril_cuda_conv_way way;
};

struct prepared {
    aril_cuda_conv_task task;
    bool transposed; /* conv_transpose */
    bool turn;       /* the gradient of the weights is turned to contiguous afterwards */
    size_t turned_bytes, workspace;
    pthread_mutex_t lock; /* guards ways, and making variants */
    variant at[VARIANTS];
};

/* ---- shapes ---- */

/* Whether memory is channels-last and not also contiguous. Strides of sizes 1 do not matter. */
static bool is_channels_last(const aril_cuda_image &m)
{
    static const int order[] = { 1, 4, 3, 2, 0 };
    int64_t step = 1;
    if (m.dim[1] == 1 || aril_cuda_area(m) == 1) return false;
    for (int d : order) {
        if (m.dim[d] != 1 && m.stride[d] != step) return false;
        step *= m.dim[d];
    }
    return true;
}

/* Channels-last with pixels that are P elements apart, more than there are channels: P; else 0. In
 * vectors of 16 bytes, which engines load. */
static int64_t pitch_of(const aril_cuda_image &m, int64_t element)
{
    int64_t pitch = m.dim[4] > 1 ? m.stride[4] : m.dim[3] > 1 ? m.stride[3] : 0, step = pitch;
    if (m.stride[1] != 1 || pitch <= m.dim[1] || pitch * element % 16) return 0;
    for (int d = 4; d != 1; d = d == 2 ? 0 : d == 0 ? 1 : d - 1) {
        if (m.dim[d] != 1 && m.stride[d] != step) return 0;
        step *= m.dim[d];
    }
    return pitch;
}

static bool is_contiguous(const aril_cuda_image &m)
{
    int64_t step = 1;
    for (int d = 4; d >= 0; d--) {
        if (m.dim[d] != 1 && m.stride[d] != step) return false;
        step *= m.dim[d];
    }
    return true;
}

/* The padding after an input for which cuDNN counts the same windows: that before it, if possible,
 * as more engines take it. False if the input is cut instead. */
static bool end_of(const aril_cuda_conv &d, int i, int64_t *end)
{
    int64_t span = (d.w.dim[2 + i] - 1) * d.dilation[i] + 1;
    int64_t least = (d.y.dim[2 + i] - 1) * d.stride[i] + span - d.x.dim[2 + i] - d.begin[i];
    int64_t most = least + d.stride[i] - 1;
    *end = d.begin[i] >= least && d.begin[i] <= most ? d.begin[i] : least > 0 ? least : 0;
    return d.begin[i] >= 0 && *end <= most;
}

/* ---- preparing ---- */

void aril_cuda_conv_library_destroy(void *given)
{
    prepared *q = static_cast<prepared *>(given);
    for (variant &v : q->at) aril_cuda_conv_way_end(&v.way);
    pthread_mutex_destroy(&q->lock);
    delete q;
}

/* The orders of operands: channels-last where tensor cores work, else that of the image. */
static void choose_orders(const aril_run *r, prepared *q, aril_plan *plan)
{
    bool wgrad = q->task.d.role == ARIL_CUDA_CONV_W,
         low = q->task.type == ARIL_F16 || q->task.type == ARIL_BF16;
    aril_cuda_image leading = aril_cuda_image_of(aril_cuda_in(r, wgrad ? 1 : 0));
    q->task.last =
        low || (q->task.type == ARIL_F32 && aril_cuda_tf32()) || is_channels_last(leading);
    uint8_t order = q->task.last ? ARIL_ORDER_CHANNELS_LAST : ARIL_ORDER_CONTIGUOUS;
    plan->in[0].order = plan->in[1].order = plan->out[0].order = order;
    if (q->task.d.has_bias) plan->in[2].order = ARIL_ORDER_CONTIGUOUS;
    if (q->task.d.has_z) plan->in[3].order = order;
    if (!wgrad || !q->task.last) return;
    /* The gradient of contiguous weights is contiguous, as everything that follows expects. */
    bool same = q->task.d.w.dim[1] == 1 || aril_cuda_area(q->task.d.w) == 1;
    q->turn = !same && !is_channels_last(aril_cuda_image_of(aril_cuda_in(r, 2)));
    if (same || q->turn) plan->out[0].order = ARIL_ORDER_CONTIGUOUS;
    if (q->turn)
        q->turned_bytes =
            (size_t)(aril_cuda_host->numel(aril_cuda_out(r, 0)) * aril_cuda_size(q->task.type) +
                     255) /
            256 * 256;
}

/* Inputs whose pixels are apart are taken as they are. False if there is none. */
static bool choose_pitches(prepared *q, aril_plan *plan)
{
    aril_cuda_conv_task *t = &q->task;
    aril_cuda_conv_role role = t->d.role;
    int64_t element = aril_cuda_size(t->type);
    t->x_pitch = t->d.x.dim[1];
    t->y_pitch = t->d.y.dim[1];
    if (!t->last) return false;
    int64_t x = role == ARIL_CUDA_CONV_X ? 0 : pitch_of(t->d.x, element);
    int64_t y = role == ARIL_CUDA_CONV_Y ? 0 : pitch_of(t->d.y, element);
    if (x) {
        t->x_pitch = x;
        plan->in[role == ARIL_CUDA_CONV_W ? 1 : 0].order = ARIL_ORDER_ANY;
    }
    if (y) {
        t->y_pitch = y;
        plan->in[0].order = ARIL_ORDER_ANY;
    }
    return x || y;
}

/* NULL, or why cuDNN cannot compute it. */
static const char *ask_cudnn(prepared *q)
{
    const char *why = "built without cuDNN";
#ifdef ARIL_CUDA_CUDNN
    if (aril_cuda_dnn_library(&why)) why = nullptr;
#endif
    /* In 16 bits, what such an activation gets must not be rounded before. */
    if (q->task.d.has_z && aril_cuda_conv_activates(q->task.d.activation))
        why = "a residual before this activation";
    for (int i = 0; i < 3 && !why; i++) {
        if (!end_of(q->task.d, i, &q->task.end[i])) why = "negative padding";
        /* cuDNN takes it, but some engines then give wrong gradients of the weights. */
        else if (q->task.d.role != ARIL_CUDA_CONV_Y && q->task.end[i] != q->task.d.begin[i])
            why = "asymmetric padding";
    }
    return why;
}

static const char *describe(const aril_run *r, prepared *q, aril_cuda_conv_role role,
                            aril_plan *plan)
{
    aril_cuda_conv_task *t = &q->task;
    t->device = aril_cuda_device_of(r);
    t->type = aril_cuda_host->type(r);
    t->d = aril_cuda_conv_of(r, role, q->transposed);
    t->spatial = t->d.spatial < 2 ? 2 : t->d.spatial;
    const char *why = ask_cudnn(q);
    t->library = !why;
    if (role == ARIL_CUDA_CONV_X && t->d.has_z && !aril_cuda_conv_is_product(t->d))
        return "not a product";
    bool acts = t->d.has_z && aril_cuda_conv_activates(t->d.activation);
    if (why && (acts || !aril_cuda_conv_is_product(t->d))) return why;
    choose_orders(r, q, plan);
    int image = role == ARIL_CUDA_CONV_W ? 1 : 0; /* the input that x is, if it is one */
    t->x_first = t->last && role != ARIL_CUDA_CONV_X && is_contiguous(t->d.x);
    bool found = choose_pitches(q, plan) && aril_cuda_conv_choose(r, t, &q->at[0].way);
    if (!found) { /* of packed inputs */
        t->x_pitch = t->d.x.dim[1];
        t->y_pitch = t->d.y.dim[1];
        choose_orders(r, q, plan);
        found = aril_cuda_conv_choose(r, t, &q->at[0].way);
    }
    if (!found) return why ? why : "cuDNN has no deterministic engine";
    q->at[0].made = 1;
    if (q->at[0].way.kind == ARIL_CUDA_CONV_PACKED && t->x_first)
        plan->in[image].order = ARIL_ORDER_CONTIGUOUS;
    q->workspace = q->at[0].way.workspace;
    plan->workspace = q->turned_bytes + q->workspace;
    return nullptr;
}

static const char *prepare(const aril_run *r, aril_plan *plan, aril_cuda_conv_role role,
                           bool transposed)
{
    if (aril_cuda_host->numel(aril_cuda_in(r, 0)) == 0 ||
        aril_cuda_host->numel(aril_cuda_in(r, 1)) == 0 ||
        aril_cuda_host->numel(aril_cuda_out(r, 0)) == 0)
        return "an empty tensor";
    prepared *q = new (std::nothrow) prepared();
    if (!q) return "out of memory";
    pthread_mutex_init(&q->lock, nullptr);
    q->transposed = transposed;
    aril_cuda_use(aril_cuda_device_of(r));
    const char *why = describe(r, q, role, plan);
    if (why)
        aril_cuda_conv_library_destroy(q);
    else
        plan->prepared = q;
    return why;
}

const char *aril_cuda_conv_library_prepare(const aril_run *r, aril_plan *plan)
{
    return prepare(r, plan, ARIL_CUDA_CONV_Y, false);
}

const char *aril_cuda_conv_dgrad_library_prepare(const aril_run *r, aril_plan *plan)
{
    return prepare(r, plan, ARIL_CUDA_CONV_X, false);
}

const char *aril_cuda_conv_wgrad_library_prepare(const aril_run *r, aril_plan *plan)
{
    return prepare(r, plan, ARIL_CUDA_CONV_W, false);
}

const char *aril_cuda_conv_transpose_library_prepare(const aril_run *r, aril_plan *plan)
{
    return prepare(r, plan, ARIL_CUDA_CONV_X, true);
}

/* ---- running ---- */

/* [k, area, c] to [k, c, area], as weights have it. */
template <typename S>
static __global__ void turn_weights(const S *from, S *to, int64_t n, int64_t c, int64_t area)
{
    ARIL_CUDA_LOOP(i, n)
    {
        int64_t p = i % area, channel = i / area % c, k = i / area / c;
        to[i] = from[(k * area + p) * c + channel];
    }
}

static aril_status turn(aril_run *r, const prepared *q, const void *from, void *to)
{
    int64_t n = aril_cuda_host->numel(aril_cuda_out(r, 0));
    unsigned blocks = aril_cuda_blocks(r, n, ARIL_CUDA_THREADS, 8);
    cudaStream_t s = aril_cuda_stream(r);
    ARIL_CUDA_SWITCH_SIZE(aril_cuda_size(q->task.type), S,
                          (turn_weights<S><<<blocks, ARIL_CUDA_THREADS, 0, s>>>(
                              static_cast<const S *>(from), static_cast<S *>(to), n,
                              q->task.d.w.dim[1], aril_cuda_area(q->task.d.w))));
    return aril_cuda_launched(r);
}

static aril_status run_plain(aril_run *r, const prepared *q)
{
    if (q->transposed) return aril_cuda_conv_transpose_run(r);
    if (q->task.d.role == ARIL_CUDA_CONV_Y) return aril_cuda_conv_run(r);
    return q->task.d.role == ARIL_CUDA_CONV_X ? aril_cuda_conv_dgrad_run(r)
                                              : aril_cuda_conv_wgrad_run(r);
}

static const variant *variant_of(prepared *q, uintptr_t addresses)
{
    int i = addresses % 16 == 0 ? 0 : 1;
    if (!__atomic_load_n(&q->at[i].made, __ATOMIC_ACQUIRE)) {
        pthread_mutex_lock(&q->lock);
        if (!q->at[i].made) {
            /* Engines read x channels-last: it is not, if it comes for packing. */
            bool as_asked = q->at[0].way.kind == ARIL_CUDA_CONV_PACKED && q->task.x_first;
            if (!as_asked) aril_cuda_conv_choose_unaligned(&q->task, q->workspace, &q->at[i].way);
            __atomic_store_n(&q->at[i].made, 1, __ATOMIC_RELEASE);
        }
        pthread_mutex_unlock(&q->lock);
    }
    return &q->at[i];
}

aril_status aril_cuda_conv_library_run(aril_run *r)
{
    prepared *q = static_cast<prepared *>(aril_cuda_host->prepared(r));
    aril_cuda_conv d = q->task.d;
    aril_cuda_conv_addresses(r, &d);
    const variant *v =
        variant_of(q, (uintptr_t)d.x.data | (uintptr_t)d.w.data | (uintptr_t)d.y.data |
                          (uintptr_t)d.bias | (uintptr_t)d.z.data);
    if (v->way.kind == ARIL_CUDA_CONV_NONE) return run_plain(r, q);
    char *memory = static_cast<char *>(aril_cuda_host->workspace(r));
    void *weights = d.w.data;
    if (q->turn) d.w.data = memory;
    pthread_mutex_lock(&q->lock);
    const char *why = aril_cuda_conv_way_run(r, &q->task, &v->way, d, memory + q->turned_bytes);
    pthread_mutex_unlock(&q->lock);
    if (why) return aril_cuda_host->fail(ARIL_ERR_DEVICE, "%s: %s", aril_cuda_host->op(r), why);
    return q->turn ? turn(r, q, memory, weights) : aril_cuda_launched(r);
}
