/* Layers and containers: modules that come with Aril (aril/module.h).
 *
 *     aril_module *net = aril_nn_sequential(
 *         aril_nn_conv2d(0, 32, 3), aril_nn_relu(), aril_nn_max_pool2d(2),
 *         aril_nn_flatten(), aril_nn_linear(0, 10));
 *
 * A size of 0 is inferred from the first input. The short form takes the required arguments, the
 * `_with` form takes options too. Each returns a module that the caller owns, or NULL with an
 * error; parameters have PyTorch's names, shapes and default initialization, drawn from the
 * thread's generator. */
#ifndef ARIL_NN_H
#define ARIL_NN_H

#include "aril/conv.h"
#include "aril/embedding.h"
#include "aril/index.h"
#include "aril/loss.h"
#include "aril/module.h"
#include "aril/nn_loss.h"
#include "aril/nn_sequence.h"

ARIL_C_BEGIN

/* ---- linear ---- */

typedef struct aril_nn_linear_opts {
    bool no_bias;
} aril_nn_linear_opts;

/* y = x W^T + b: [...,in] -> [...,out]. weight [out,in], bias [out]. */
ARIL_API aril_module *aril_nn_linear(int64_t in, int64_t out);
ARIL_API aril_module *aril_nn_linear_with(int64_t in, int64_t out, aril_nn_linear_opts opts);

/* Bilinear layer of two inputs: y_o = x1^T W_o x2 + b_o, [...,in1] and [...,in2] -> [...,out].
 * weight [out,in1,in2], bias [out]. */
ARIL_API aril_module *aril_nn_bilinear(int64_t in1, int64_t in2, int64_t out);
ARIL_API aril_module *aril_nn_bilinear_with(int64_t in1, int64_t in2, int64_t out,
                                            aril_nn_linear_opts opts);

/* ---- convolution ---- */

/* Arrays have one entry for each spatial dimension, in order; a 0 after the first entry repeats the
 * first (ARIL_ZERO: an actual 0). */
typedef struct aril_nn_conv_opts {
    int64_t stride[3];          /* default 1 */
    int64_t padding[3];         /* before and after */
    int64_t dilation[3];        /* default 1 */
    int64_t groups;             /* default 1 */
    aril_padding mode;          /* ARIL_SAME, ARIL_VALID: override `padding` */
    aril_pad_mode padding_mode; /* the padding values; 0: zeros */
    bool no_bias;
    int64_t output_padding[3]; /* transposed: extra elements at the end */
    int64_t kernel[3];         /* non-square kernel sizes; then pass 0 as the `kernel` argument */
} aril_nn_conv_opts;

/* [N,in,spatial...] -> [N,out,spatial...]. weight [out,in/groups,kernel...], bias [out]. */
ARIL_API aril_module *aril_nn_conv1d(int64_t in, int64_t out, int64_t kernel);
ARIL_API aril_module *aril_nn_conv2d(int64_t in, int64_t out, int64_t kernel);
ARIL_API aril_module *aril_nn_conv3d(int64_t in, int64_t out, int64_t kernel);
ARIL_API aril_module *aril_nn_conv1d_with(int64_t in, int64_t out, int64_t kernel,
                                          aril_nn_conv_opts opts);
ARIL_API aril_module *aril_nn_conv2d_with(int64_t in, int64_t out, int64_t kernel,
                                          aril_nn_conv_opts opts);
ARIL_API aril_module *aril_nn_conv3d_with(int64_t in, int64_t out, int64_t kernel,
                                          aril_nn_conv_opts opts);

/* Transposed convolution. weight [in,out/groups,kernel...], bias [out]. */
ARIL_API aril_module *aril_nn_conv_transpose1d(int64_t in, int64_t out, int64_t kernel);
ARIL_API aril_module *aril_nn_conv_transpose2d(int64_t in, int64_t out, int64_t kernel);
ARIL_API aril_module *aril_nn_conv_transpose3d(int64_t in, int64_t out, int64_t kernel);
ARIL_API aril_module *aril_nn_conv_transpose1d_with(int64_t in, int64_t out, int64_t kernel,
                                                    aril_nn_conv_opts opts);
ARIL_API aril_module *aril_nn_conv_transpose2d_with(int64_t in, int64_t out, int64_t kernel,
                                                    aril_nn_conv_opts opts);
ARIL_API aril_module *aril_nn_conv_transpose3d_with(int64_t in, int64_t out, int64_t kernel,
                                                    aril_nn_conv_opts opts);

/* ---- pooling ---- */

/* As the functions in aril/conv.h; `opts.kernel` is used if `kernel` is 0, and a 0 in padding after
 * the first entry repeats the first (ARIL_ZERO: an actual 0). Max pooling returns the indices of
 * the largest elements as a second result when aril_forward_all requests it. */
ARIL_API aril_module *aril_nn_max_pool1d(int64_t kernel);
ARIL_API aril_module *aril_nn_max_pool2d(int64_t kernel);
ARIL_API aril_module *aril_nn_max_pool3d(int64_t kernel);
ARIL_API aril_module *aril_nn_max_pool1d_with(int64_t kernel, aril_pool_opts opts);
ARIL_API aril_module *aril_nn_max_pool2d_with(int64_t kernel, aril_pool_opts opts);
ARIL_API aril_module *aril_nn_max_pool3d_with(int64_t kernel, aril_pool_opts opts);
ARIL_API aril_module *aril_nn_avg_pool1d(int64_t kernel);
ARIL_API aril_module *aril_nn_avg_pool2d(int64_t kernel);
ARIL_API aril_module *aril_nn_avg_pool3d(int64_t kernel);
ARIL_API aril_module *aril_nn_avg_pool1d_with(int64_t kernel, aril_pool_opts opts);
ARIL_API aril_module *aril_nn_avg_pool2d_with(int64_t kernel, aril_pool_opts opts);
ARIL_API aril_module *aril_nn_avg_pool3d_with(int64_t kernel, aril_pool_opts opts);
ARIL_API aril_module *aril_nn_lp_pool1d(double p, int64_t kernel);
ARIL_API aril_module *aril_nn_lp_pool2d(double p, int64_t kernel);
ARIL_API aril_module *aril_nn_lp_pool3d(double p, int64_t kernel);
ARIL_API aril_module *aril_nn_lp_pool1d_with(double p, int64_t kernel, aril_pool_opts opts);
ARIL_API aril_module *aril_nn_lp_pool2d_with(double p, int64_t kernel, aril_pool_opts opts);
ARIL_API aril_module *aril_nn_lp_pool3d_with(double p, int64_t kernel, aril_pool_opts opts);

/* Inverse of max pooling: the inputs are values and their indices. */
ARIL_API aril_module *aril_nn_max_unpool1d(int64_t kernel);
ARIL_API aril_module *aril_nn_max_unpool2d(int64_t kernel);
ARIL_API aril_module *aril_nn_max_unpool3d(int64_t kernel);
ARIL_API aril_module *aril_nn_max_unpool1d_with(int64_t kernel, aril_pool_opts opts);
ARIL_API aril_module *aril_nn_max_unpool2d_with(int64_t kernel, aril_pool_opts opts);
ARIL_API aril_module *aril_nn_max_unpool3d_with(int64_t kernel, aril_pool_opts opts);

/* Adaptive pooling to a given output size for each spatial dimension: one size for all, or separate
 * sizes (-1: the input size). */
ARIL_API aril_module *aril_nn_adaptive_avg_pool1d(int64_t size);
ARIL_API aril_module *aril_nn_adaptive_avg_pool2d(int64_t size);
ARIL_API aril_module *aril_nn_adaptive_avg_pool3d(int64_t size);
ARIL_API aril_module *aril_nn_adaptive_max_pool1d(int64_t size);
ARIL_API aril_module *aril_nn_adaptive_max_pool2d(int64_t size);
ARIL_API aril_module *aril_nn_adaptive_max_pool3d(int64_t size);
ARIL_API aril_module *aril_nn_adaptive_avg_pool2d_with(aril_shape sizes);
ARIL_API aril_module *aril_nn_adaptive_avg_pool3d_with(aril_shape sizes);
ARIL_API aril_module *aril_nn_adaptive_max_pool2d_with(aril_shape sizes);
ARIL_API aril_module *aril_nn_adaptive_max_pool3d_with(aril_shape sizes);

/* Global pooling over all positions: [N,C,spatial...] -> [N,C,1...]. */
ARIL_API aril_module *aril_nn_global_avg_pool(void);
ARIL_API aril_module *aril_nn_global_max_pool(void);

/* im2col and col2im (aril_unfold, aril_fold): options give kernel, stride, padding, dilation. */
ARIL_API aril_module *aril_nn_unfold(int64_t kernel, aril_pool_opts opts);
ARIL_API aril_module *aril_nn_fold(aril_shape size, int64_t kernel, aril_pool_opts opts);

/* ---- normalization ---- */

typedef struct aril_nn_batch_norm_opts {
    double eps;      /* default 1e-5 */
    double momentum; /* weight of the new batch in the running statistics; default 0.1 */
    bool cumulative; /* running statistics are cumulative means over all batches */
    bool no_affine;  /* without weight and bias */
    bool no_bias;    /* weight only */
    bool no_running; /* no running statistics: use batch statistics even in evaluation */
} aril_nn_batch_norm_opts;

/* Batch normalization, each channel to mean 0 and variance 1: [N,C] or [N,C,L]; [N,C,H,W];
 * [N,C,D,H,W]. weight and bias [C]; buffers running_mean, running_var [C], num_batches_tracked
 * []. */
ARIL_API aril_module *aril_nn_batch_norm1d(int64_t channels);
ARIL_API aril_module *aril_nn_batch_norm2d(int64_t channels);
ARIL_API aril_module *aril_nn_batch_norm3d(int64_t channels);
ARIL_API aril_module *aril_nn_batch_norm1d_with(int64_t channels, aril_nn_batch_norm_opts opts);
ARIL_API aril_module *aril_nn_batch_norm2d_with(int64_t channels, aril_nn_batch_norm_opts opts);
ARIL_API aril_module *aril_nn_batch_norm3d_with(int64_t channels, aril_nn_batch_norm_opts opts);

typedef struct aril_nn_instance_norm_opts {
    double eps;      /* default 1e-5 */
    double momentum; /* default 0.1 */
    bool affine;     /* with weight and bias [C] */
    bool no_bias;    /* affine: weight only */
    bool running;    /* keep running statistics, used in evaluation */
} aril_nn_instance_norm_opts;

/* Instance normalization: the same for each sample separately; also unbatched. */
ARIL_API aril_module *aril_nn_instance_norm1d(int64_t channels);
ARIL_API aril_module *aril_nn_instance_norm2d(int64_t channels);
ARIL_API aril_module *aril_nn_instance_norm3d(int64_t channels);
ARIL_API aril_module *aril_nn_instance_norm1d_with(int64_t channels,
                                                   aril_nn_instance_norm_opts opts);
ARIL_API aril_module *aril_nn_instance_norm2d_with(int64_t channels,
                                                   aril_nn_instance_norm_opts opts);
ARIL_API aril_module *aril_nn_instance_norm3d_with(int64_t channels,
                                                   aril_nn_instance_norm_opts opts);

typedef struct aril_nn_norm_opts {
    double eps;     /* default 1e-5 (RMSNorm: the dtype's epsilon) */
    bool no_affine; /* without weight and bias */
    bool no_bias;   /* weight only */
} aril_nn_norm_opts;

/* Layer normalization: mean 0 and variance 1 over the last dimension, or over the last dimensions
 * given by `shape`. */
ARIL_API aril_module *aril_nn_layer_norm(int64_t size);
ARIL_API aril_module *aril_nn_layer_norm_with(aril_shape shape, aril_nn_norm_opts opts);
/* RMS normalization: divides by the root mean square; weight only. */
ARIL_API aril_module *aril_nn_rms_norm(int64_t size);
ARIL_API aril_module *aril_nn_rms_norm_with(aril_shape shape, aril_nn_norm_opts opts);
/* Group normalization over groups of adjacent channels; weight and bias [C]. */
ARIL_API aril_module *aril_nn_group_norm(int64_t groups, int64_t channels);
ARIL_API aril_module *aril_nn_group_norm_with(int64_t groups, int64_t channels,
                                              aril_nn_norm_opts opts);
/* Local response normalization across `size` adjacent channels (aril_local_response_norm). */
ARIL_API aril_module *aril_nn_local_response_norm(int64_t size);
ARIL_API aril_module *aril_nn_local_response_norm_with(int64_t size, aril_lrn_opts opts);

/* ---- dropout ---- */

/* In training each element (whole channels in the 1d, 2d, 3d and feature forms) becomes 0 with
 * probability p, or selu's negative saturation value in the alpha forms. An identity in evaluation
 * mode. */
ARIL_API aril_module *aril_nn_dropout(double p);
ARIL_API aril_module *aril_nn_dropout1d(double p);
ARIL_API aril_module *aril_nn_dropout2d(double p);
ARIL_API aril_module *aril_nn_dropout3d(double p);
ARIL_API aril_module *aril_nn_alpha_dropout(double p);
ARIL_API aril_module *aril_nn_feature_alpha_dropout(double p);

/* ---- activations ---- */

/* Elementwise functions, as in aril/math.h. */
ARIL_API aril_module *aril_nn_relu(void);
ARIL_API aril_module *aril_nn_relu6(void);
ARIL_API aril_module *aril_nn_sigmoid(void);
ARIL_API aril_module *aril_nn_tanh(void);
ARIL_API aril_module *aril_nn_logsigmoid(void);
ARIL_API aril_module *aril_nn_selu(void);
ARIL_API aril_module *aril_nn_gelu(void);
ARIL_API aril_module *aril_nn_gelu_tanh(void);
ARIL_API aril_module *aril_nn_silu(void);
ARIL_API aril_module *aril_nn_mish(void);
ARIL_API aril_module *aril_nn_softsign(void);
ARIL_API aril_module *aril_nn_hardsigmoid(void);
ARIL_API aril_module *aril_nn_hardswish(void);
ARIL_API aril_module *aril_nn_tanhshrink(void);

/* Activations with parameters; the short form uses PyTorch's defaults. */
ARIL_API aril_module *aril_nn_leaky_relu(void); /* slope 0.01 */
ARIL_API aril_module *aril_nn_leaky_relu_with(double slope);
ARIL_API aril_module *aril_nn_elu(void); /* alpha 1 */
ARIL_API aril_module *aril_nn_elu_with(double alpha);
ARIL_API aril_module *aril_nn_celu(void); /* alpha 1 */
ARIL_API aril_module *aril_nn_celu_with(double alpha);
ARIL_API aril_module *aril_nn_softplus(void); /* beta 1, threshold 20 */
ARIL_API aril_module *aril_nn_softplus_with(double beta, double threshold);
ARIL_API aril_module *aril_nn_hardtanh(void); /* from -1 to 1 */
ARIL_API aril_module *aril_nn_hardtanh_with(double low, double high);
ARIL_API aril_module *aril_nn_softshrink(void); /* 0.5 */
ARIL_API aril_module *aril_nn_softshrink_with(double lambd);
ARIL_API aril_module *aril_nn_hardshrink(void); /* 0.5 */
ARIL_API aril_module *aril_nn_hardshrink_with(double lambd);
ARIL_API aril_module *aril_nn_threshold(double threshold, double value);

/* x where positive, else slope * x; the slope is drawn uniformly from lower..upper for each element
 * in training, and is their mean in evaluation. Default 1/8 and 1/3. */
ARIL_API aril_module *aril_nn_rrelu(void);
ARIL_API aril_module *aril_nn_rrelu_with(double lower, double upper);

/* x where positive, else weight * x, with one slope for all channels or one per channel: weight
 * [n], initialized to 0.25. */
ARIL_API aril_module *aril_nn_prelu(void);
ARIL_API aril_module *aril_nn_prelu_with(int64_t n, double first);

/* Along an axis. glu: the first half times the sigmoid of the second. */
ARIL_API aril_module *aril_nn_softmax(int axis);
ARIL_API aril_module *aril_nn_log_softmax(int axis);
ARIL_API aril_module *aril_nn_softmin(int axis);
ARIL_API aril_module *aril_nn_softmax2d(void);
ARIL_API aril_module *aril_nn_glu(int axis);

/* ---- embeddings ---- */

typedef struct aril_nn_embedding_opts {
    int64_t padding_idx; /* a zero row without gradient; 0: none, ARIL_ZERO: row 0, -1: the last
                            row */
} aril_nn_embedding_opts;

/* Embedding table lookup: indices of any shape [...] -> [...,size]. weight [rows,size]. */
ARIL_API aril_module *aril_nn_embedding(int64_t rows, int64_t size);
ARIL_API aril_module *aril_nn_embedding_with(int64_t rows, int64_t size,
                                             aril_nn_embedding_opts opts);

typedef struct aril_nn_embedding_bag_opts {
    aril_reduction mode; /* ARIL_MEAN, ARIL_SUM or ARIL_MAX */
    int64_t padding_idx; /* as above */
    bool include_last_offset;
} aril_nn_embedding_bag_opts;

/* Embedding bag: the inputs are indices, offsets (or NULL) and a factor for each index (or NULL),
 * as for aril_embedding_bag. */
ARIL_API aril_module *aril_nn_embedding_bag(int64_t rows, int64_t size);
ARIL_API aril_module *aril_nn_embedding_bag_with(int64_t rows, int64_t size,
                                                 aril_nn_embedding_bag_opts opts);

/* ---- shapes ---- */

/* Flattens dimensions start to end (negative ones count from the end); by default all but the
 * first. */
ARIL_API aril_module *aril_nn_flatten(void);
ARIL_API aril_module *aril_nn_flatten_with(int start, int end);
/* Splits one dimension into several; one size may be -1. */
ARIL_API aril_module *aril_nn_unflatten(int axis, aril_shape sizes);
/* Reshapes all but the batch dimension to this shape; one size may be -1. */
ARIL_API aril_module *aril_nn_reshape(aril_shape shape);

/* Upsampling (aril_interpolate): by a scale factor with nearest neighbor; or with all options. */
ARIL_API aril_module *aril_nn_upsample(double scale);
ARIL_API aril_module *aril_nn_upsample_with(aril_interpolate_opts opts);
ARIL_API aril_module *aril_nn_pixel_shuffle(int64_t factor);
ARIL_API aril_module *aril_nn_pixel_unshuffle(int64_t factor);
ARIL_API aril_module *aril_nn_channel_shuffle(int64_t groups);

/* Padding: ARIL_PADS(before, after) for the last axis, the second-to-last axis ...; a single number
 * pads every side. */
ARIL_API aril_module *aril_nn_zero_pad1d(aril_pads pads);
ARIL_API aril_module *aril_nn_zero_pad2d(aril_pads pads);
ARIL_API aril_module *aril_nn_zero_pad3d(aril_pads pads);
ARIL_API aril_module *aril_nn_constant_pad1d(aril_pads pads, double value);
ARIL_API aril_module *aril_nn_constant_pad2d(aril_pads pads, double value);
ARIL_API aril_module *aril_nn_constant_pad3d(aril_pads pads, double value);
ARIL_API aril_module *aril_nn_reflection_pad1d(aril_pads pads);
ARIL_API aril_module *aril_nn_reflection_pad2d(aril_pads pads);
ARIL_API aril_module *aril_nn_reflection_pad3d(aril_pads pads);
ARIL_API aril_module *aril_nn_replication_pad1d(aril_pads pads);
ARIL_API aril_module *aril_nn_replication_pad2d(aril_pads pads);
ARIL_API aril_module *aril_nn_replication_pad3d(aril_pads pads);
ARIL_API aril_module *aril_nn_circular_pad1d(aril_pads pads);
ARIL_API aril_module *aril_nn_circular_pad2d(aril_pads pads);
ARIL_API aril_module *aril_nn_circular_pad3d(aril_pads pads);

/* ---- distances: two inputs ---- */

/* aril_cosine_similarity and aril_pairwise_distance of two inputs of the same shape. */
ARIL_API aril_module *aril_nn_cosine_similarity(int axis);
ARIL_API aril_module *aril_nn_pairwise_distance(aril_distance_opts opts);

/* ---- functions ---- */

/* Returns x unchanged. */
ARIL_API aril_module *aril_nn_identity(void);
/* Any function of one tensor. `ctx` is passed to it and must outlive the module. */
ARIL_API aril_module *aril_nn_lambda(aril_tensor *(*fn)(aril_tensor *x, void *ctx), void *ctx);

/* ---- containers ---- */

/* All take ownership of their children; if one is NULL, the others are released and the result is
 * NULL. */

/* Runs its children in sequence: aril_nn_sequential(a, b, c); children are named "0", "1", ...
 * aril_module_add appends more. Each intermediate value is released once the next is computed.
 * Unless a hook is in between, a convolution, linear layer or batch norm is fused with a following
 * activation: bit-identical for ReLU and similar, within 1 ulp for sigmoid and tanh. */
ARIL_API aril_module *aril_nn_sequential_of(int n, aril_module *const *layers);

/* Containers without a forward function: aril_nn_list(a, b) names its children "0", "1", ..., and
 * aril_nn_append adds more; fill a dictionary with aril_module_add. The module that contains one
 * calls its children itself. */
ARIL_API aril_module *aril_nn_list_of(int n, aril_module *const *modules);
ARIL_API aril_module *aril_nn_append(aril_module *list, aril_module *child);
ARIL_API aril_module *aril_nn_dict(void);

/* x + body(x); with a projection, projection(x) + body(x). The children are "body" and
 * "projection". */
ARIL_API aril_module *aril_nn_residual(aril_module *body);
ARIL_API aril_module *aril_nn_residual_with(aril_module *body, aril_module *projection);

/* Runs all children on the same input: aril_nn_concat(a, b) concatenates the results along axis 1,
 * aril_nn_sum(a, b) adds them. */
ARIL_API aril_module *aril_nn_concat_of(int n, aril_module *const *branches);
ARIL_API aril_module *aril_nn_concat_with(int axis, int n, aril_module *const *branches);
ARIL_API aril_module *aril_nn_sum_of(int n, aril_module *const *branches);

ARIL_C_END

#ifdef __cplusplus
#define ARIL__MODULES(name)                                \
    template <class... M> inline aril_module *name(M... m) \
    {                                                      \
        aril_module *const all[] = { nullptr, m... };      \
        return name##_of(int(sizeof...(m)), all + 1);      \
    }
ARIL__MODULES(aril_nn_sequential)
ARIL__MODULES(aril_nn_list)
ARIL__MODULES(aril_nn_concat)
ARIL__MODULES(aril_nn_sum)
#else
#define ARIL__MODULES(fn, ...)                                                            \
    fn((int)(sizeof((aril_module *[]){ NULL, __VA_ARGS__ }) / sizeof(aril_module *)) - 1, \
       (aril_module *[]){ NULL, __VA_ARGS__ } + 1)
#define aril_nn_sequential(...) ARIL__MODULES(aril_nn_sequential_of, __VA_ARGS__)
#define aril_nn_list(...)       ARIL__MODULES(aril_nn_list_of, __VA_ARGS__)
#define aril_nn_concat(...)     ARIL__MODULES(aril_nn_concat_of, __VA_ARGS__)
#define aril_nn_sum(...)        ARIL__MODULES(aril_nn_sum_of, __VA_ARGS__)
#endif

#endif
