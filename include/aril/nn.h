/* Layers and containers: modules that come with Aril (aril/module.h).
 *
 *     aril_module *net = aril_nn_sequential(
 *         aril_nn_conv2d(0, 32, 3), aril_nn_relu(), aril_nn_max_pool2d(2),
 *         aril_nn_flatten(), aril_nn_linear(0, 10));
 *
 * A size of 0 is taken from the first input. A short form takes what has to be said, the form with `_with` takes
 * options too. Each gives a module that the caller owns, or NULL with an error; parameters have PyTorch's names,
 * shapes and first values, drawn from the thread's generator. */
#ifndef ARIL_NN_H
#define ARIL_NN_H

#include "aril/conv.h"
#include "aril/index.h"
#include "aril/module.h"

ARIL_C_BEGIN

/* ---- linear ---- */

typedef struct aril_nn_linear_opts {
    bool no_bias;
} aril_nn_linear_opts;

/* y = x W^T + b: [...,in] -> [...,out]. weight [out,in], bias [out]. */
ARIL_API aril_module *aril_nn_linear(int64_t in, int64_t out);
ARIL_API aril_module *aril_nn_linear_with(int64_t in, int64_t out, aril_nn_linear_opts opts);

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

/* As in aril/conv.h; `opts.kernel` counts where `kernel` is 0, and a 0 in padding behind the first number
 * repeats it (ARIL_ZERO: a real 0). */
ARIL_API aril_module *aril_nn_max_pool2d(int64_t kernel);
ARIL_API aril_module *aril_nn_max_pool2d_with(int64_t kernel, aril_pool_opts opts);

/* ---- activations ---- */

ARIL_API aril_module *aril_nn_relu(void);

/* ---- dropout ---- */

/* In training each element becomes 0 with probability p (aril_dropout). */
ARIL_API aril_module *aril_nn_dropout(double p);

/* ---- shapes ---- */

/* Dimensions start to end as one (negative ones count from the end); all but the first. */
ARIL_API aril_module *aril_nn_flatten(void);
ARIL_API aril_module *aril_nn_flatten_with(int start, int end);

/* ---- containers ---- */

/* One after the other: aril_nn_sequential(a, b, c), which takes them over; children are called "0", "1", ...
 * More are put at the end by aril_module_add. A value is dropped as soon as the next exists. Where no hook
 * stands between, a convolution, linear layer or batch norm applies a following ReLU to its own result. */
ARIL_API aril_module *aril_nn_sequential_of(int n, aril_module *const *layers);

ARIL_C_END

#ifdef __cplusplus
template <class... M> inline aril_module *aril_nn_sequential(M... m)
{
    aril_module *const all[] = { nullptr, m... };
    return aril_nn_sequential_of(int(sizeof...(m)), all + 1);
}
#else
#define ARIL__MODULES(fn, ...)                                                            \
    fn((int)(sizeof((aril_module *[]){ NULL, __VA_ARGS__ }) / sizeof(aril_module *)) - 1, \
       (aril_module *[]){ NULL, __VA_ARGS__ } + 1)
#define aril_nn_sequential(...) ARIL__MODULES(aril_nn_sequential_of, __VA_ARGS__)
#endif

#endif
