/* Convolutions by an engine of cuDNN: a graph of the convolution and, where an engine takes them,
 * its bias and activation. */
#include "backend/cuda/vision/conv_dnn.cuh"

#include "aril/activation.h"

#ifdef ARIL_CUDA_CUDNN

enum { X = 1, W, Y, BIAS, BETWEEN }; /* tensors of the graph; BETWEEN and more: within it */

/* ---- shapes ---- */

static cudnnDataType_t data_type(aril_dtype t)
{
    return t == ARIL_F64    ? CUDNN_DATA_DOUBLE
           : t == ARIL_F16  ? CUDNN_DATA_HALF
           : t == ARIL_BF16 ? CUDNN_DATA_BFLOAT16
                            : CUDNN_DATA_FLOAT;
}

/* An image or the weights as a tensor of the graph, in the order of the task. */
static aril_cuda_graph_tensor tensor_of(const aril_cuda_conv_task *t, int64_t id,
                                        const aril_cuda_image &m, int64_t pitch, int64_t alignment)
{
    aril_cuda_graph_tensor g = {};
    int skipped = 3 - t->spatial;
    g.id = id;
    g.type = data_type(t->type);
    g.n = 2 + t->spatial;
    g.alignment = alignment;
    for (int i = 0; i < g.n; i++) g.dim[i] = m.dim[i < 2 ? i : i + skipped];
    int64_t step = t->last ? pitch : 1;
    for (int i = g.n - 1; i >= 2; i--) {
        g.stride[i] = step;
        step *= g.dim[i];
    }
    g.stride[1] = t->last ? 1 : step;
    g.stride[0] = t->last ? step : step * g.dim[1];
    return g;
}

/* ---- the graph ---- */

static cudnnBackendDescriptor_t window_of(aril_cuda_graph *g, const aril_cuda_conv_task *t)
{
    const aril_cuda_conv &d = t->d;
    int skipped = 3 - t->spatial;
    int64_t n = t->spatial;
    cudnnDataType_t compute = t->type == ARIL_F64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    cudnnBackendDescriptor_t c = aril_cuda_graph_new(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    aril_cuda_graph_set(g, c, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    aril_cuda_graph_set(g, c, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1,
                        &mode);
    aril_cuda_graph_set(g, c, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &n);
    aril_cuda_graph_set(g, c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, n,
                        d.begin + skipped);
    aril_cuda_graph_set(g, c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, n,
                        t->end + skipped);
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

/* The convolution; its result stays within the graph, in f32, if other operations follow. */
static cudnnBackendDescriptor_t convolution_of(aril_cuda_graph *g, const aril_cuda_conv_task *t,
                                               int64_t alignment, cudnnBackendDescriptor_t y)
{
    names n = names_of(t->d.role);
    float one = 1, zero = 0;
    double wide_one = 1, wide_zero = 0;
    bool wide = t->type == ARIL_F64;
    cudnnBackendAttributeType_t scale = wide ? CUDNN_TYPE_DOUBLE : CUDNN_TYPE_FLOAT;
    aril_cuda_graph_tensor x = tensor_of(t, X, t->d.x, t->x_pitch, alignment);
    aril_cuda_graph_tensor w = tensor_of(t, W, t->d.w, t->d.w.dim[1], alignment);
    cudnnBackendDescriptor_t image = aril_cuda_graph_tensor_of(g, &x);
    cudnnBackendDescriptor_t weights = aril_cuda_graph_tensor_of(g, &w);
    cudnnBackendDescriptor_t window = window_of(g, t), op = aril_cuda_graph_new(g, n.type);
    set_descriptor(g, op, n.x, image);
    set_descriptor(g, op, n.w, weights);
    set_descriptor(g, op, n.y, y);
    set_descriptor(g, op, n.conv, window);
    aril_cuda_graph_set(g, op, n.alpha, scale, 1, wide ? (void *)&wide_one : (void *)&one);
    aril_cuda_graph_set(g, op, n.beta, scale, 1, wide ? (void *)&wide_zero : (void *)&zero);
    aril_cuda_graph_finish(g, op);
    return op;
}

/* A pointwise operation: to = mode(from, other), or mode(from) if `other` is NULL. */
static cudnnBackendDescriptor_t pointwise_of(aril_cuda_graph *g, cudnnPointwiseMode_t mode,
                                             cudnnBackendDescriptor_t from,
                                             cudnnBackendDescriptor_t other,
                                             cudnnBackendDescriptor_t to)
{
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t how = aril_cuda_graph_new(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    aril_cuda_graph_set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    aril_cuda_graph_set(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    aril_cuda_graph_finish(g, how);
    cudnnBackendDescriptor_t op =
        aril_cuda_graph_new(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, from);
    if (other) set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, other);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, to);
    aril_cuda_graph_finish(g, op);
    return op;
}

static cudnnBackendDescriptor_t bias_of(aril_cuda_graph *g, const aril_cuda_conv_task *t,
                                        int64_t alignment)
{
    aril_cuda_graph_tensor b = {};
    b.id = BIAS;
    b.type = data_type(t->type);
    b.n = 2 + t->spatial;
    b.alignment = alignment;
    for (int i = 0; i < b.n; i++) {
        b.dim[i] = i == 1 ? t->d.y.dim[1] : 1;
        b.stride[i] = i == 1 ? 1 : t->d.y.dim[1];
    }
    return aril_cuda_graph_tensor_of(g, &b);
}

enum { MAX_OPERATIONS = 3 };

/* The convolution and, if fused, its bias and activation. Returns how many operations it is. */
static int operations_of(aril_cuda_graph *g, const aril_cuda_conv_task *t, int64_t alignment,
                         bool fused, cudnnBackendDescriptor_t ops[MAX_OPERATIONS])
{
    bool bias = fused && t->d.has_bias;
    bool activated = fused && aril_cuda_conv_activates(t->d.activation);
    int n = 0, following = bias + activated;
    aril_cuda_graph_tensor y = tensor_of(t, Y, t->d.y, t->y_pitch, alignment), between = y;
    cudnnBackendDescriptor_t value[MAX_OPERATIONS];
    between.type = CUDNN_DATA_FLOAT;
    between.is_virtual = true;
    for (int i = 0; i <= following; i++) {
        between.id = BETWEEN + i;
        value[i] = aril_cuda_graph_tensor_of(g, i == following ? &y : &between);
    }
    ops[n++] = convolution_of(g, t, alignment, value[0]);
    if (bias) {
        ops[n] =
            pointwise_of(g, CUDNN_POINTWISE_ADD, value[n - 1], bias_of(g, t, alignment), value[n]);
        n++;
    }
    if (activated) {
        cudnnPointwiseMode_t mode =
            t->d.activation == ARIL_TANH ? CUDNN_POINTWISE_TANH_FWD : CUDNN_POINTWISE_SIGMOID_FWD;
        ops[n] = pointwise_of(g, mode, value[n - 1], nullptr, value[n]);
        n++;
    }
    return n;
}

/* ---- engines ---- */

int aril_cuda_conv_engines(const aril_cuda_conv_task *t, int64_t alignment, bool fused,
                           aril_cuda_engine to[ARIL_CUDA_CONV_ENGINES])
{
    cudnnHandle_t handle = aril_cuda_dnn_take(t->device);
    if (!handle) return 0;
    aril_cuda_graph g = { aril_cuda_dnn_library(nullptr), true, 0, {} };
    aril_cuda_engine_rules rules = { t->type == ARIL_F32 && !aril_cuda_tf32(),
                                     !aril_cuda_host->deterministic() };
    cudnnBackendDescriptor_t ops[MAX_OPERATIONS];
    int operations = operations_of(&g, t, alignment, fused, ops);
    int n =
        aril_cuda_graph_engines(&g, handle, operations, ops, &rules, to, ARIL_CUDA_CONV_ENGINES);
    aril_cuda_graph_end(&g);
    aril_cuda_dnn_give_back(t->device, handle);
    return n;
}

bool aril_cuda_conv_engine_build(const aril_cuda_conv_task *t, aril_cuda_engine *engine,
                                 int64_t workspace, aril_cuda_dnn_plan *to)
{
    cudnnHandle_t handle = aril_cuda_dnn_take(t->device);
    if (!handle) return false;
    bool built =
        aril_cuda_engine_build(aril_cuda_dnn_library(nullptr), handle, engine, workspace, to);
    aril_cuda_dnn_give_back(t->device, handle);
    return built;
}

const char *aril_cuda_conv_engine_run(const aril_run *r, const aril_cuda_conv_task *t,
                                      const aril_cuda_dnn_plan *plan, bool fused,
                                      const aril_cuda_conv &d, void *workspace)
{
    static const int64_t ids[] = { X, W, Y, BIAS };
    bool bias = fused && t->d.has_bias;
    void *addresses[] = { d.x.data, d.w.data, d.y.data, const_cast<void *>(d.bias) };
    const aril_cuda_dnn *lib = aril_cuda_dnn_library(nullptr);
    cudaStream_t stream = aril_cuda_stream(r);
    cudnnHandle_t handle = aril_cuda_dnn_take(t->device);
    if (!handle) return "cuDNN cannot be started";
    cudnnStatus_t s = lib->cudnnSetStream(handle, stream);
    if (s == CUDNN_STATUS_SUCCESS)
        s = aril_cuda_dnn_execute(lib, handle, plan, bias ? 4 : 3, ids, addresses, workspace);
    aril_cuda_dnn_give_back(t->device, handle);
    return s == CUDNN_STATUS_SUCCESS ? nullptr : lib->cudnnGetErrorString(s);
}

#endif
