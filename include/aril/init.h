/* First values of parameters. Each function fills t in place, unrecorded, from the thread's
 * generator (aril_seed), and returns t; on failure a poisoned tensor, and t is as it was. Layers
 * draw their first values themselves; these are for other choices:
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

/* Uniform in [low, high); normal; normal, drawn again where it would lie outside [low, high]. */
ARIL_API aril_tensor *aril_init_uniform(aril_tensor *t, double low, double high);
ARIL_API aril_tensor *aril_init_normal(aril_tensor *t, double mean, double std);
ARIL_API aril_tensor *aril_init_truncated_normal(aril_tensor *t, double mean, double std,
                                                 double low, double high);

/* A number everywhere; 1 on the diagonal of a matrix [n,m], else 0. */
ARIL_API aril_tensor *aril_init_constant(aril_tensor *t, double value);
ARIL_API aril_tensor *aril_init_zeros(aril_tensor *t);
ARIL_API aril_tensor *aril_init_ones(aril_tensor *t);
ARIL_API aril_tensor *aril_init_eye(aril_tensor *t);

/* The weight of a convolution [out,in,kernel...] that lets its inputs pass: 1 in the middle of
 * kernel (i,i) of each group, else 0. */
ARIL_API aril_tensor *aril_init_dirac(aril_tensor *t, int64_t groups);

/* How many inputs a result of the weight [out,in,kernel...] has, and how many results an input. */
ARIL_API aril_status aril_init_fans(const aril_tensor *t, int64_t *in, int64_t *out);

/* What to multiply deviations by before a function of this name: "linear", "conv2d" ..., "sigmoid",
 * "tanh", "relu", "leaky_relu" (of slope a), "selu". NaN, with an error, for others. */
ARIL_API double aril_init_gain(const char *nonlinearity, double a);

/* Xavier (Glorot): variance gain^2 * 2 / (inputs + outputs). A gain of 0 means 1. */
ARIL_API aril_tensor *aril_init_xavier_uniform(aril_tensor *t, double gain);
ARIL_API aril_tensor *aril_init_xavier_normal(aril_tensor *t, double gain);

typedef struct aril_kaiming_opts {
    bool fan_out;             /* by the results of an input instead of the inputs of a result */
    const char *nonlinearity; /* NULL: "leaky_relu" */
    double a;                 /* its slope; 0 is that of relu */
} aril_kaiming_opts;

/* Kaiming (He): variance gain^2 / inputs. */
ARIL_API aril_tensor *aril_init_kaiming_uniform(aril_tensor *t, aril_kaiming_opts opts);
ARIL_API aril_tensor *aril_init_kaiming_normal(aril_tensor *t, aril_kaiming_opts opts);

/* Rows (or columns, where there are fewer) of the matrix [dim 0, all others] orthogonal and of
 * length gain; 0 means 1. */
ARIL_API aril_tensor *aril_init_orthogonal(aril_tensor *t, double gain);

/* A matrix with this share of each column 0, the rest normal of that deviation. */
ARIL_API aril_tensor *aril_init_sparse(aril_tensor *t, double sparsity, double std);

/* What fn gives for each element, of which at[] are the indices. */
typedef double aril_init_element(const int64_t *at, int ndim, void *ctx);
ARIL_API aril_tensor *aril_init_from(aril_tensor *t, aril_init_element *fn, void *ctx);

/* Calls fn for each parameter below m whose full name fits the pattern, in which * stands for any
 * letters and ? for one. How many there were; an error, which lists names, where none fits. */
typedef void aril_init_fn(aril_tensor *t, const char *name, void *ctx);
ARIL_API int aril_module_init(aril_module *m, const char *pattern, aril_init_fn *fn, void *ctx);

ARIL_C_END

#endif
