/* Parameter initialization. Each function fills t in place from the thread's generator (aril_seed),
 * without recording gradients, and returns t; on failure it returns a poisoned tensor and leaves t
 * unchanged. Layers apply their default initialization themselves; use these to choose another:
 *
 *     static void weights(aril_tensor *t, const char *name, void *ctx)
 *     {
 *         aril_init_xavier_normal(t, 1);
 *     }
 *     ...
 *     aril_module_init(net, "*.weight", weights, NULL);
 */
#ifndef ARIL_INIT_H
#define ARIL_INIT_H

#include "aril/module.h"

ARIL_C_BEGIN

/* Uniform in [low, high); normal; truncated normal, redrawn while outside [low, high]. */
ARIL_API aril_tensor *aril_init_uniform(aril_tensor *t, double low, double high);
ARIL_API aril_tensor *aril_init_normal(aril_tensor *t, double mean, double std);
ARIL_API aril_tensor *aril_init_truncated_normal(aril_tensor *t, double mean, double std,
                                                 double low, double high);

/* A constant; zeros; ones; the identity: 1 on the diagonal of a matrix [n,m], else 0. */
ARIL_API aril_tensor *aril_init_constant(aril_tensor *t, double value);
ARIL_API aril_tensor *aril_init_zeros(aril_tensor *t);
ARIL_API aril_tensor *aril_init_ones(aril_tensor *t);
ARIL_API aril_tensor *aril_init_eye(aril_tensor *t);

/* Dirac: the weight of a convolution [out,in,kernel...] that preserves its input: 1 at the center
 * of kernel (i,i) of each group, else 0. */
ARIL_API aril_tensor *aril_init_dirac(aril_tensor *t, int64_t groups);

/* Fan-in and fan-out of the weight [out,in,kernel...]: the inputs per output, and the outputs per
 * input. */
ARIL_API aril_status aril_init_fans(const aril_tensor *t, int64_t *in, int64_t *out);

/* The recommended gain for a nonlinearity, a factor of the standard deviation: "linear", "conv2d"
 * ..., "sigmoid", "tanh", "relu", "leaky_relu" (with negative slope a), "selu". NaN, with an error,
 * for others. */
ARIL_API double aril_init_gain(const char *nonlinearity, double a);

/* Xavier (Glorot): variance gain^2 * 2 / (fan-in + fan-out). A gain of 0 means 1. */
ARIL_API aril_tensor *aril_init_xavier_uniform(aril_tensor *t, double gain);
ARIL_API aril_tensor *aril_init_xavier_normal(aril_tensor *t, double gain);

typedef struct aril_kaiming_opts {
    bool fan_out;             /* use fan-out instead of fan-in */
    const char *nonlinearity; /* NULL: "leaky_relu" */
    double a;                 /* its negative slope; 0 is that of relu */
} aril_kaiming_opts;

/* Kaiming (He): variance gain^2 / fan-in. */
ARIL_API aril_tensor *aril_init_kaiming_uniform(aril_tensor *t, aril_kaiming_opts opts);
ARIL_API aril_tensor *aril_init_kaiming_normal(aril_tensor *t, aril_kaiming_opts opts);

/* Orthogonal: the rows (or columns, if there are fewer) of the matrix [dim 0, all others] are
 * orthogonal with norm gain; 0 means 1. */
ARIL_API aril_tensor *aril_init_orthogonal(aril_tensor *t, double gain);

/* Sparse: this fraction of each column of a matrix is 0, the rest is normal with that standard
 * deviation. */
ARIL_API aril_tensor *aril_init_sparse(aril_tensor *t, double sparsity, double std);

/* Sets each element to the result of fn, whose at[] holds the element's indices. */
typedef double aril_init_element(const int64_t *at, int ndim, void *ctx);
ARIL_API aril_tensor *aril_init_from(aril_tensor *t, aril_init_element *fn, void *ctx);

/* Calls fn for each parameter of m and its children whose full name matches the pattern, in which *
 * matches any characters and ? one. Returns how many matched; if none does, an error that lists
 * names. */
typedef void aril_init_fn(aril_tensor *t, const char *name, void *ctx);
ARIL_API int aril_module_init(aril_module *m, const char *pattern, aril_init_fn *fn, void *ctx);

ARIL_C_END

#endif
