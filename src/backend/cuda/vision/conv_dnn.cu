/* Convolutions through cuDNN. `prepare` builds a plan for the shapes, `run` executes it; a bias and
 * an activation that the plan does not contain follow in one pass over the result. */
#include "backend/cuda/vision/conv_dnn.cuh"

#include "backend/cuda/linalg/epilogue.cuh"
#include "backend/cuda/vision/conv.cuh"
#include "backend/cuda/vision/dnn_graph.cuh"

#include <new>

#ifdef ARIL_CUDA_CUDNN

enum { X = 1, W, Y, BIAS, BEFORE_BIAS }; /* tensors of the graph */
enum { VARIANTS = 2 };                   /* addresses in multiples of 16 bytes, and others */
static const int64_t MAX_WORKSPACE = (int64_t)2 << 30;

struct variant {
    int made;  /* atomic: the rest is valid */
    bool bias; /* the plan adds it */
    aril_cuda_dnn_plan plan;
};

struct prepared {
    const aril_cuda_dnn *lib;
    aril_cuda_device *device;
    aril_cuda_conv d;
    bool transposed; /* conv_transpose */
    aril_dtype type;
    int spatial; /* of the graph: 2 or 3 */
    bool last;   /* channels-last */
    bool turn;   /* the gradient of the weights is turned to contiguous afterwards */
    size_t turned_bytes, workspace;
    int64_t end[3];
    pthread_mutex_t lock; /* guards executing, and making variants */
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

static cudnnDataType_t data_type(aril_dtype t)
{
    return t == ARIL_F64    ? CUDNN_DATA_DOUBLE
           : t == ARIL_F16  ? CUDNN_DATA_HALF
           : t == ARIL_BF16 ? CUDNN_DATA_BFLOAT16
                            : CUDNN_DATA_FLOAT;
}

/* An image or the weights as a tensor of the graph, packed in the order of the plan. */
static aril_cuda_graph_tensor tensor_of(const prepared *q, int64_t id, const aril_cuda_image &m,
                                        int64_t alignment)
{
    aril_cuda_graph_tensor t = {};
    int skipped = 3 - q->spatial;
    t.id = id;
    t.type = data_type(q->type);
    t.n = 2 + q->spatial;
    t.alignment = alignment;
    for (int i = 0; i < t.n; i++) t.dim[i] = m.dim[i < 2 ? i : i + skipped];
    int64_t step = q->last ? t.dim[1] : 1;
    for (int i = t.n - 1; i >= 2; i--) {
        t.stride[i] = step;
        step *= t.dim[i];
    }
    t.stride[1] = q->last ? 1 : step;
    t.stride[0] = q->last ? step : step * t.dim[1];
    return t;
}

/* ---- the graph ---- */

static cudnnBackendDescriptor_t window_of(aril_cuda_graph *g, const prepared *q)
{
    const aril_cuda_conv &d = q->d;
    int skipped = 3 - q->spatial;
    int64_t n = q->spatial;
    cudnnDataType_t compute = q->type == ARIL_F64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    cudnnBackendDescriptor_t c = aril_cuda_graph_new(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    aril_cuda_graph_set(g, c, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    aril_cuda_graph_set(g, c, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1,
                        &mode);
    aril_cuda_graph_set(g, c, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &n);
    aril_cuda_graph_set(g, c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, n,
                        d.begin + skipped);
    aril_cuda_graph_set(g, c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, n,
                        q->end + skipped);
    aril_cuda_graph_set(g, c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, n,
                        d.stride + skipped);
    aril_cuda_graph_set(g, c, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, n,
                        d.dilation + skipped);
    aril_cuda_graph_finish(g, c);
    return c;
}

/* The names of one kind of operation's attributes. */
struct names {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t x, w, y, conv, alpha, beta;
};

static names names_of(aril_cuda_conv_role role)
{
    if (role == ARIL_CUDA_CONV_Y)
        return { CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA };
    if (role == ARIL_CUDA_CONV_X)
        return { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA };
    return { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA };
}

static void set_descriptor(aril_cuda_graph *g, cudnnBackendDescriptor_t d,
                           cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value)
{
    aril_cuda_graph_set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

/* The convolution; with a bias its result stays within the graph, in f32. */
static cudnnBackendDescriptor_t convolution_of(aril_cuda_graph *g, const prepared *q,
                                               int64_t alignment, cudnnBackendDescriptor_t y)
{
    names n = names_of(q->d.role);
    float one = 1, zero = 0;
    double wide_one = 1, wide_zero = 0;
    bool wide = q->type == ARIL_F64;
    cudnnBackendAttributeType_t scale = wide ? CUDNN_TYPE_DOUBLE : CUDNN_TYPE_FLOAT;
    aril_cuda_graph_tensor x = tensor_of(q, X, q->d.x, alignment);
    aril_cuda_graph_tensor w = tensor_of(q, W, q->d.w, alignment);
    cudnnBackendDescriptor_t image = aril_cuda_graph_tensor_of(g, &x);
    cudnnBackendDescriptor_t weights = aril_cuda_graph_tensor_of(g, &w);
    cudnnBackendDescriptor_t window = window_of(g, q), op = aril_cuda_graph_new(g, n.type);
    set_descriptor(g, op, n.x, image);
    set_descriptor(g, op, n.w, weights);
    set_descriptor(g, op, n.y, y);
    set_descriptor(g, op, n.conv, window);
    aril_cuda_graph_set(g, op, n.alpha, scale, 1, wide ? (void *)&wide_one : (void *)&one);
    aril_cuda_graph_set(g, op, n.beta, scale, 1, wide ? (void *)&wide_zero : (void *)&zero);
    aril_cuda_graph_finish(g, op);
    return op;
}

/* y = before + bias */
static cudnnBackendDescriptor_t addition_of(aril_cuda_graph *g, const prepared *q,
                                            int64_t alignment, cudnnBackendDescriptor_t before,
                                            cudnnBackendDescriptor_t y)
{
    cudnnPointwiseMode_t mode = CUDNN_POINTWISE_ADD;
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    aril_cuda_graph_tensor b = {};
    b.id = BIAS;
    b.type = data_type(q->type);
    b.n = 2 + q->spatial;
    b.alignment = alignment;
    for (int i = 0; i < b.n; i++) {
        b.dim[i] = i == 1 ? q->d.y.dim[1] : 1;
        b.stride[i] = i == 1 ? 1 : q->d.y.dim[1];
    }
    cudnnBackendDescriptor_t bias = aril_cuda_graph_tensor_of(g, &b);
    cudnnBackendDescriptor_t how = aril_cuda_graph_new(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    aril_cuda_graph_set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    aril_cuda_graph_set(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    aril_cuda_graph_finish(g, how);
    cudnnBackendDescriptor_t op =
        aril_cuda_graph_new(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, before);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, bias);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    aril_cuda_graph_finish(g, op);
    return op;
}

static bool plan_graph(const prepared *q, cudnnHandle_t handle, int64_t alignment, bool bias,
                       int64_t workspace, aril_cuda_dnn_plan *plan)
{
    aril_cuda_graph g = { q->lib, true, 0, {} };
    aril_cuda_engine_rules rules = { q->type == ARIL_F32 && !aril_cuda_tf32(), workspace };
    aril_cuda_graph_tensor y = tensor_of(q, Y, q->d.y, alignment), before = y;
    cudnnBackendDescriptor_t result = aril_cuda_graph_tensor_of(&g, &y), ops[2];
    if (bias) {
        before.id = BEFORE_BIAS;
        before.type = CUDNN_DATA_FLOAT;
        before.is_virtual = true;
        cudnnBackendDescriptor_t between = aril_cuda_graph_tensor_of(&g, &before);
        ops[0] = convolution_of(&g, q, alignment, between);
        ops[1] = addition_of(&g, q, alignment, between, result);
    } else {
        ops[0] = convolution_of(&g, q, alignment, result);
    }
    bool found = aril_cuda_graph_plan(&g, handle, bias ? 2 : 1, ops, &rules, plan);
    aril_cuda_graph_end(&g);
    return found;
}

/* A plan for addresses of one alignment that uses at most that much workspace. */
static void make_variant(prepared *q, int i, int64_t workspace)
{
    variant *v = &q->at[i];
    int64_t size = q->type == ARIL_F64 ? 8 : q->type == ARIL_F32 ? 4 : 2;
    int64_t alignment = i == 0 ? 16 : size;
    cudnnHandle_t handle = aril_cuda_dnn_take(q->device);
    bool low = q->type == ARIL_F16 || q->type == ARIL_BF16;
    if (handle) {
        v->bias = low && i == 0 && q->d.role == ARIL_CUDA_CONV_Y && q->d.has_bias &&
                  !q->d.activation && plan_graph(q, handle, alignment, true, workspace, &v->plan);
        if (!v->bias) plan_graph(q, handle, alignment, false, workspace, &v->plan);
        aril_cuda_dnn_give_back(q->device, handle);
    }
    __atomic_store_n(&v->made, 1, __ATOMIC_RELEASE);
}

/* ---- preparing ---- */

void aril_cuda_dnn_conv_destroy(void *given)
{
    prepared *q = static_cast<prepared *>(given);
    for (variant &v : q->at) aril_cuda_dnn_plan_end(q->lib, &v.plan);
    pthread_mutex_destroy(&q->lock);
    delete q;
}

/* The orders of operands: channels-last where tensor cores work, else that of the image. */
static void choose_orders(const aril_run *r, prepared *q, aril_plan *plan)
{
    bool wgrad = q->d.role == ARIL_CUDA_CONV_W, low = q->type == ARIL_F16 || q->type == ARIL_BF16;
    aril_cuda_image leading = aril_cuda_image_of(aril_cuda_in(r, wgrad ? 1 : 0));
    q->last = low || (q->type == ARIL_F32 && aril_cuda_tf32()) || is_channels_last(leading);
    uint8_t order = q->last ? ARIL_ORDER_CHANNELS_LAST : ARIL_ORDER_CONTIGUOUS;
    plan->in[0].order = plan->in[1].order = plan->out[0].order = order;
    if (q->d.has_bias) plan->in[2].order = ARIL_ORDER_CONTIGUOUS;
    if (!wgrad || !q->last) return;
    /* The gradient of contiguous weights is contiguous, as everything that follows expects. */
    bool same = q->d.w.dim[1] == 1 || aril_cuda_area(q->d.w) == 1;
    q->turn = !same && !is_channels_last(aril_cuda_image_of(aril_cuda_in(r, 2)));
    if (same || q->turn) plan->out[0].order = ARIL_ORDER_CONTIGUOUS;
    if (q->turn)
        q->turned_bytes =
            (size_t)(aril_cuda_host->numel(aril_cuda_out(r, 0)) * aril_cuda_size(q->type) + 255) /
            256 * 256;
}

static const char *describe(const aril_run *r, prepared *q, aril_cuda_conv_role role,
                            aril_plan *plan)
{
    q->device = aril_cuda_device_of(r);
    q->type = aril_cuda_host->type(r);
    q->d = aril_cuda_conv_of(r, role, q->transposed);
    q->spatial = q->d.spatial < 2 ? 2 : q->d.spatial;
    for (int i = 0; i < 3; i++) {
        if (!end_of(q->d, i, &q->end[i])) return "negative padding";
        /* cuDNN takes it, but some engines then give wrong gradients of the weights. */
        if (role != ARIL_CUDA_CONV_Y && q->end[i] != q->d.begin[i]) return "asymmetric padding";
    }
    choose_orders(r, q, plan);
    make_variant(q, 0, MAX_WORKSPACE);
    if (!q->at[0].plan.plan) return "cuDNN has no deterministic engine";
    q->workspace = (size_t)q->at[0].plan.workspace;
    plan->workspace = q->turned_bytes + q->workspace;
    return nullptr;
}

static const char *prepare(const aril_run *r, aril_plan *plan, aril_cuda_conv_role role,
                           bool transposed)
{
    const char *why = nullptr;
    const aril_cuda_dnn *lib = aril_cuda_dnn_library(&why);
    if (!lib) return why;
    if (aril_cuda_host->numel(aril_cuda_in(r, 0)) == 0 ||
        aril_cuda_host->numel(aril_cuda_in(r, 1)) == 0 ||
        aril_cuda_host->numel(aril_cuda_out(r, 0)) == 0)
        return "an empty tensor";
    prepared *q = new (std::nothrow) prepared();
    if (!q) return "out of memory";
    pthread_mutex_init(&q->lock, nullptr);
    q->lib = lib;
    q->transposed = transposed;
    aril_cuda_use(aril_cuda_device_of(r));
    why = describe(r, q, role, plan);
    if (why)
        aril_cuda_dnn_conv_destroy(q);
    else
        plan->prepared = q;
    return why;
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
    ARIL_CUDA_SWITCH_SIZE(aril_cuda_size(q->type), S,
                          (turn_weights<S><<<blocks, ARIL_CUDA_THREADS, 0, s>>>(
                              static_cast<const S *>(from), static_cast<S *>(to), n, q->d.w.dim[1],
                              aril_cuda_area(q->d.w))));
    return aril_cuda_launched(r);
}

static aril_status run_plain(aril_run *r, const prepared *q)
{
    if (q->transposed) return aril_cuda_conv_transpose_run(r);
    if (q->d.role == ARIL_CUDA_CONV_Y) return aril_cuda_conv_run(r);
    return q->d.role == ARIL_CUDA_CONV_X ? aril_cuda_conv_dgrad_run(r)
                                         : aril_cuda_conv_wgrad_run(r);
}

/* Executes a plan; threads take turns. */
static aril_status execute(aril_run *r, prepared *q, const variant *v, const aril_cuda_conv &d,
                           void *workspace)
{
    static const int64_t ids[] = { X, W, Y, BIAS };
    void *addresses[] = { d.x.data, d.w.data, d.y.data, const_cast<void *>(d.bias) };
    cudaStream_t stream = aril_cuda_stream(r);
    cudnnHandle_t handle = aril_cuda_dnn_take(q->device);
    if (!handle)
        return aril_cuda_host->fail(ARIL_ERR_DEVICE, "%s: cuDNN cannot be started",
                                    aril_cuda_host->op(r));
    cudnnStatus_t s = q->lib->cudnnSetStream(handle, stream);
    pthread_mutex_lock(&q->lock);
    if (s == CUDNN_STATUS_SUCCESS)
        s = aril_cuda_dnn_execute(q->lib, handle, &v->plan, v->bias ? 4 : 3, ids, addresses,
                                  workspace);
    pthread_mutex_unlock(&q->lock);
    aril_cuda_dnn_give_back(q->device, handle);
    if (s == CUDNN_STATUS_SUCCESS) return ARIL_OK;
    return aril_cuda_host->fail(ARIL_ERR_DEVICE, "%s: cuDNN: %s", aril_cuda_host->op(r),
                                q->lib->cudnnGetErrorString(s));
}

/* The bias, unless the plan has added it, and the activation. */
static aril_status follow(aril_run *r, const prepared *q, const aril_cuda_conv &d, bool bias_done)
{
    const aril_cuda_image &to = d.role == ARIL_CUDA_CONV_Y ? d.y : d.x;
    aril_cuda_epilogue e = {};
    e.y = to.data;
    e.bias = bias_done ? nullptr : d.bias;
    e.bias_stride = 1;
    e.outer = q->last ? to.dim[0] * aril_cuda_area(to) : to.dim[0];
    e.channels = to.dim[1];
    e.inner = q->last ? 1 : aril_cuda_area(to);
    e.dtype = q->type;
    e.activation = d.activation;
    return aril_cuda_epilogue_run(r, &e);
}

static const variant *variant_of(prepared *q, uintptr_t addresses)
{
    int i = addresses % 16 == 0 ? 0 : 1;
    if (!__atomic_load_n(&q->at[i].made, __ATOMIC_ACQUIRE)) {
        pthread_mutex_lock(&q->lock);
        if (!q->at[i].made) make_variant(q, i, (int64_t)q->workspace);
        pthread_mutex_unlock(&q->lock);
    }
    return &q->at[i];
}

aril_status aril_cuda_dnn_conv_run(aril_run *r)
{
    prepared *q = static_cast<prepared *>(aril_cuda_host->prepared(r));
    aril_cuda_conv d = q->d;
    aril_cuda_conv_addresses(r, &d);
    const variant *v = variant_of(q, (uintptr_t)d.x.data | (uintptr_t)d.w.data |
                                         (uintptr_t)d.y.data | (uintptr_t)d.bias);
    if (!v->plan.plan) return run_plain(r, q);
    char *memory = static_cast<char *>(aril_cuda_host->workspace(r));
    void *weights = d.w.data;
    if (q->turn) d.w.data = memory;
    aril_status s = execute(r, q, v, d, memory + q->turned_bytes);
    if (s == ARIL_OK && q->turn) s = turn(r, q, memory, weights);
    if (s == ARIL_OK && d.role != ARIL_CUDA_CONV_W) s = follow(r, q, d, v->bias);
    return s == ARIL_OK ? aril_cuda_launched(r) : s;
}

#else

static const char *prepare(const aril_run *, aril_plan *, aril_cuda_conv_role, bool)
{
    return "built without cuDNN";
}

aril_status aril_cuda_dnn_conv_run(aril_run *r)
{
    return aril_cuda_host->fail(ARIL_ERR_DEVICE, "%s: built without cuDNN", aril_cuda_host->op(r));
}

void aril_cuda_dnn_conv_destroy(void *)
{
}

#endif

const char *aril_cuda_dnn_conv_prepare(const aril_run *r, aril_plan *plan)
{
    return prepare(r, plan, ARIL_CUDA_CONV_Y, false);
}

const char *aril_cuda_dnn_conv_dgrad_prepare(const aril_run *r, aril_plan *plan)
{
    return prepare(r, plan, ARIL_CUDA_CONV_X, false);
}

const char *aril_cuda_dnn_conv_wgrad_prepare(const aril_run *r, aril_plan *plan)
{
    return prepare(r, plan, ARIL_CUDA_CONV_W, false);
}

const char *aril_cuda_dnn_conv_transpose_prepare(const aril_run *r, aril_plan *plan)
{
    return prepare(r, plan, ARIL_CUDA_CONV_X, true);
}
