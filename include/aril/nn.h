/* Layers and containers: modules that come with Aril (aril/module.h).
 *
 *     aril_module *net = aril_nn_sequential(
 *         aril_nn_conv2d(0, 32, 3), aril_nn_relu(), aril_nn_max_pool2d(2),
 *         aril_nn_flatten(), aril_nn_linear(0, 10));
 *
 * A size of 0 is taken from the first input. A short form takes what has to be said, the form with
 * `_with` takes options too. Each gives a module that the caller owns, or NULL with an error;
 * parameters have PyTorch's names, shapes and first values, drawn from the thread's generator. */
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

/* Of two inputs: y_o = x1^T W_o x2 + b_o, [...,in1] and [...,in2] -> [...,out]. weight
 * [out,in1,in2], bias [out]. */
ARIL_API aril_module *aril_nn_bilinear(int64_t in1, int64_t in2, int64_t out);
ARIL_API aril_module *aril_nn_bilinear_with(int64_t in1, int64_t in2, int64_t out,
                                            aril_nn_linear_opts opts);

/* ---- convolution ---- */

/* Numbers stand for the spatial dimensions in order; a 0 behind the first number repeats it
 * (ARIL_ZERO: a real 0). */
typedef struct aril_nn_conv_opts {
    int64_t stride[3];          /* 0: 1 */
    int64_t padding[3];         /* before and after */
    int64_t dilation[3];        /* 0: 1 */
    int64_t groups;             /* 0: 1 */
    aril_padding mode;          /* ARIL_SAME, ARIL_VALID: instead of numbers in `padding` */
    aril_pad_mode padding_mode; /* what stands in the padding; 0: zeros */
    bool no_bias;
    int64_t output_padding[3]; /* transposed: more elements at the end */
    int64_t kernel[3];         /* sizes that differ; then `kernel` of the call is 0 */
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

/* The transpose of that map. weight [in,out/groups,kernel...], bias [out]. */
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

/* As the functions in aril/conv.h; `opts.kernel` counts where `kernel` is 0, and a 0 in padding
 * behind the first number repeats it (ARIL_ZERO: a real 0). Max pooling gives the places of the
 * largest elements as a second result where aril_forward_all asks for it. */
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

/* The reverse of max pooling: inputs are values and the places they came from. */
ARIL_API aril_module *aril_nn_max_unpool1d(int64_t kernel);
ARIL_API aril_module *aril_nn_max_unpool2d(int64_t kernel);
ARIL_API aril_module *aril_nn_max_unpool3d(int64_t kernel);
ARIL_API aril_module *aril_nn_max_unpool1d_with(int64_t kernel, aril_pool_opts opts);
ARIL_API aril_module *aril_nn_max_unpool2d_with(int64_t kernel, aril_pool_opts opts);
ARIL_API aril_module *aril_nn_max_unpool3d_with(int64_t kernel, aril_pool_opts opts);

/* To a given number of results for each spatial dimension: the same number for all, or sizes (-1:
 * as many as there are). */
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

/* Over all positions: [N,C,spatial...] -> [N,C,1...]. */
ARIL_API aril_module *aril_nn_global_avg_pool(void);
ARIL_API aril_module *aril_nn_global_max_pool(void);

/* Windows as columns, and back (aril_unfold, aril_fold): options give kernel, stride, padding,
 * dilation. */
ARIL_API aril_module *aril_nn_unfold(int64_t kernel, aril_pool_opts opts);
ARIL_API aril_module *aril_nn_fold(aril_shape size, int64_t kernel, aril_pool_opts opts);

/* ---- normalisation ---- */

typedef struct aril_nn_batch_norm_opts {
    double eps;      /* 0: 1e-5 */
    double momentum; /* weight of the new batch in the running values; 0: 0.1 */
    bool cumulative; /* running values are plain means over all batches */
    bool no_affine;  /* without weight and bias */
    bool no_bias;    /* with weight alone */
    bool no_running; /* without running values: by the batch itself, also in evaluation */
} aril_nn_batch_norm_opts;

/* Each channel to mean 0 and variance 1: [N,C] or [N,C,L]; [N,C,H,W]; [N,C,D,H,W]. weight and bias
 * [C]; buffers running_mean, running_var [C], num_batches_tracked []. */
ARIL_API aril_module *aril_nn_batch_norm1d(int64_t channels);
ARIL_API aril_module *aril_nn_batch_norm2d(int64_t channels);
ARIL_API aril_module *aril_nn_batch_norm3d(int64_t channels);
ARIL_API aril_module *aril_nn_batch_norm1d_with(int64_t channels, aril_nn_batch_norm_opts opts);
ARIL_API aril_module *aril_nn_batch_norm2d_with(int64_t channels, aril_nn_batch_norm_opts opts);
ARIL_API aril_module *aril_nn_batch_norm3d_with(int64_t channels, aril_nn_batch_norm_opts opts);

typedef struct aril_nn_instance_norm_opts {
    double eps;      /* 0: 1e-5 */
    double momentum; /* 0: 0.1 */
    bool affine;     /* with weight and bias [C] */
    bool no_bias;    /* affine: with weight alone */
    bool running;    /* with running values, used in evaluation */
} aril_nn_instance_norm_opts;

/* The same for each sample by itself; also without the batch dimension. */
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
    double eps;     /* 0: 1e-5 (RMSNorm: the dtype's epsilon) */
    bool no_affine; /* without weight and bias */
    bool no_bias;   /* with weight alone */
} aril_nn_norm_opts;

/* Mean 0 and variance 1 over the last dimension, or over those last ones that `shape` names. */
ARIL_API aril_module *aril_nn_layer_norm(int64_t size);
ARIL_API aril_module *aril_nn_layer_norm_with(aril_shape shape, aril_nn_norm_opts opts);
/* By the root of the mean square; weight alone. */
ARIL_API aril_module *aril_nn_rms_norm(int64_t size);
ARIL_API aril_module *aril_nn_rms_norm_with(aril_shape shape, aril_nn_norm_opts opts);
/* Over groups of neighbouring channels; weight and bias [C]. */
ARIL_API aril_module *aril_nn_group_norm(int64_t groups, int64_t channels);
ARIL_API aril_module *aril_nn_group_norm_with(int64_t groups, int64_t channels,
                                              aril_nn_norm_opts opts);
/* Across `size` neighbouring channels (aril_local_response_norm). */
ARIL_API aril_module *aril_nn_local_response_norm(int64_t size);
ARIL_API aril_module *aril_nn_local_response_norm_with(int64_t size, aril_lrn_opts opts);

/* ---- dropout ---- */

/* In training each element (whole channels in the 1d, 2d, 3d and feature forms) becomes 0 with
 * probability p, or selu's lowest value in the alpha forms. In evaluation nothing changes. */
ARIL_API aril_module *aril_nn_dropout(double p);
ARIL_API aril_module *aril_nn_dropout1d(double p);
ARIL_API aril_module *aril_nn_dropout2d(double p);
ARIL_API aril_module *aril_nn_dropout3d(double p);
ARIL_API aril_module *aril_nn_alpha_dropout(double p);
ARIL_API aril_module *aril_nn_feature_alpha_dropout(double p);

/* ---- activations ---- */

/* Functions of one element, as in aril/math.h. */
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

/* With numbers; PyTorch's defaults stand for them in the short form. */
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

/* x where positive, else slope * x; the slope is drawn for each element from lower to upper in
 * training, and is their mean in evaluation. Short form: 1/8 and 1/3. */
ARIL_API aril_module *aril_nn_rrelu(void);
ARIL_API aril_module *aril_nn_rrelu_with(double lower, double upper);

/* x where positive, else weight * x, with a slope for all channels or one for each: weight [n], of
 * 0.25 at the start. */
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
    int64_t
        padding_idx; /* a row of zeros that gets no gradient; 0: none, ARIL_ZERO: 0, -1: the last */
} aril_nn_embedding_opts;

/* Rows of a table: indices of any shape [...] -> [...,size]. weight [rows,size]. */
ARIL_API aril_module *aril_nn_embedding(int64_t rows, int64_t size);
ARIL_API aril_module *aril_nn_embedding_with(int64_t rows, int64_t size,
                                             aril_nn_embedding_opts opts);

typedef struct aril_nn_embedding_bag_opts {
    aril_reduction mode; /* ARIL_MEAN, ARIL_SUM or ARIL_MAX */
    int64_t padding_idx; /* as above */
    bool include_last_offset;
} aril_nn_embedding_bag_opts;

/* Rows taken together: inputs are indices, offsets (or NULL) and a factor for each index (or NULL),
 * as aril_embedding_bag takes them. */
ARIL_API aril_module *aril_nn_embedding_bag(int64_t rows, int64_t size);
ARIL_API aril_module *aril_nn_embedding_bag_with(int64_t rows, int64_t size,
                                                 aril_nn_embedding_bag_opts opts);

/* ---- shapes ---- */

/* Dimensions start to end as one (negative ones count from the end); all but the first. */
ARIL_API aril_module *aril_nn_flatten(void);
ARIL_API aril_module *aril_nn_flatten_with(int start, int end);
/* One dimension as several; one size may be -1. */
ARIL_API aril_module *aril_nn_unflatten(int axis, aril_shape sizes);
/* The batch stays, the rest gets this shape; one size may be -1. */
ARIL_API aril_module *aril_nn_reshape(aril_shape shape);

/* Larger images (aril_interpolate): a factor, nearest neighbours; or all options. */
ARIL_API aril_module *aril_nn_upsample(double scale);
ARIL_API aril_module *aril_nn_upsample_with(aril_interpolate_opts opts);
ARIL_API aril_module *aril_nn_pixel_shuffle(int64_t factor);
ARIL_API aril_module *aril_nn_pixel_unshuffle(int64_t factor);
ARIL_API aril_module *aril_nn_channel_shuffle(int64_t groups);

/* More elements around images: ARIL_PADS(before, after) of the last axis, the one before it ...;
 * a single number stands for every side. */
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

/* aril_cosine_similarity and aril_pairwise_distance of two inputs of one shape. */
ARIL_API aril_module *aril_nn_cosine_similarity(int axis);
ARIL_API aril_module *aril_nn_pairwise_distance(aril_distance_opts opts);

/* ---- functions ---- */

/* x as it is. */
ARIL_API aril_module *aril_nn_identity(void);
/* Any function of one tensor. `ctx` is handed to it and must outlive the module. */
ARIL_API aril_module *aril_nn_lambda(aril_tensor *(*fn)(aril_tensor *x, void *ctx), void *ctx);

/* ---- containers ---- */

/* All take their children over; where one is NULL the others are released, and NULL comes back. */

/* One after the other: aril_nn_sequential(a, b, c); children are called "0", "1", ... More are put
 * at the end by aril_module_add. A value is dropped as soon as the next exists. Where no hook
 * stands between, a convolution, linear layer or batch norm applies a following activation to its
 * own result: the same numbers for ReLU and its kind, within the last place for sigmoid and
 * tanh. */
ARIL_API aril_module *aril_nn_sequential_of(int n, aril_module *const *layers);

/* Children without a forward function: aril_nn_list(a, b) calls them "0", "1", ..., and appends; a
 * dictionary is filled by aril_module_add. A module that contains one calls its children itself. */
ARIL_API aril_module *aril_nn_list_of(int n, aril_module *const *modules);
ARIL_API aril_module *aril_nn_append(aril_module *list, aril_module *child);
ARIL_API aril_module *aril_nn_dict(void);

/* x + body(x); with a projection, projection(x) + body(x). The children are "body" and
 * "projection". */
ARIL_API aril_module *aril_nn_residual(aril_module *body);
ARIL_API aril_module *aril_nn_residual_with(aril_module *body, aril_module *projection);

/* The results of all children for the same input: aril_nn_concat(a, b) side by side along axis 1,
 * aril_nn_sum(a, b) added up. */
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
