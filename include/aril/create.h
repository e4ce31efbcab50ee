/* Creating tensors, and changing their dtype or device. */
#ifndef ARIL_CREATE_H
#define ARIL_CREATE_H

#include "aril/rng.h"
#include "aril/tensor.h"

ARIL_C_BEGIN

/* A new tensor: uninitialized; zeros; ones; filled with a number. [shape] */
ARIL_API aril_tensor *aril_empty(aril_shape shape, aril_dtype dtype, aril_device device);
ARIL_API aril_tensor *aril_zeros(aril_shape shape, aril_dtype dtype, aril_device device);
ARIL_API aril_tensor *aril_ones(aril_shape shape, aril_dtype dtype, aril_device device);
ARIL_API aril_tensor *aril_full(aril_shape shape, aril_number value, aril_dtype dtype,
                                aril_device device);

/* The same with the shape, dtype and device of x. */
ARIL_API aril_tensor *aril_zeros_like(aril_tensor *x);
ARIL_API aril_tensor *aril_ones_like(aril_tensor *x);
ARIL_API aril_tensor *aril_full_like(aril_tensor *x, aril_number value);
ARIL_API aril_tensor *aril_empty_like(aril_tensor *x);

/* start, start + step, ... up to but excluding stop. [ceil((stop - start) / step)] */
ARIL_API aril_tensor *aril_arange(aril_number start, aril_number stop, aril_number step,
                                  aril_dtype dtype, aril_device device);

/* `steps` evenly spaced numbers from start to stop, both included. [steps] */
ARIL_API aril_tensor *aril_linspace(double start, double stop, int64_t steps, aril_dtype dtype,
                                    aril_device device);

/* Powers of `base` with `steps` evenly spaced exponents from start to stop, both included.
 * [steps] */
ARIL_API aril_tensor *aril_logspace(double start, double stop, int64_t steps, double base,
                                    aril_dtype dtype, aril_device device);

/* 1 on the diagonal, else 0; columns -1: as many as rows. [rows, columns] */
ARIL_API aril_tensor *aril_eye(int64_t rows, int64_t columns, aril_dtype dtype, aril_device device);

/* The lower, the upper triangle of matrices [..,n,m], with the diagonal-th diagonal (0: the main
 * one, 1: the one above it), and 0 elsewhere. */
ARIL_API aril_tensor *aril_tril(aril_tensor *x, int64_t diagonal);
ARIL_API aril_tensor *aril_triu(aril_tensor *x, int64_t diagonal);
ARIL_API aril_tensor *aril_tril_(aril_tensor *x, int64_t diagonal);
ARIL_API aril_tensor *aril_triu_(aril_tensor *x, int64_t diagonal);

/* The indices of those triangles of a matrix [rows, columns], row by row: row numbers, then column
 * numbers. [2, k] */
ARIL_API aril_tensor *aril_tril_indices(int64_t rows, int64_t columns, int64_t diagonal,
                                        aril_dtype dtype, aril_device device);
ARIL_API aril_tensor *aril_triu_indices(int64_t rows, int64_t columns, int64_t diagonal,
                                        aril_dtype dtype, aril_device device);

/* A matrix with the elements of x [n] on its diagonal and 0 elsewhere, or the diagonal of x [n,m],
 * a view. aril_diag_embed makes matrices of the last axis of x, which lie in axes axis0 and axis1
 * of the result: [...,n] -> [...,n + |diagonal|,n + |diagonal|]. */
ARIL_API aril_tensor *aril_diag(aril_tensor *x, int64_t diagonal);
ARIL_API aril_tensor *aril_diag_embed(aril_tensor *x, int64_t diagonal, int axis0, int axis1);

/* Fills x with a number; with 0. Returns x. */
ARIL_API aril_tensor *aril_fill_(aril_tensor *x, aril_number value);
ARIL_API aril_tensor *aril_zero_(aril_tensor *x);

/* ---- random numbers (aril/rng.h) ----
 *
 * Element i of a result depends on the generator's seed, the number of the call and i alone: f16
 * and bf16 results are the f32 ones rounded. Each call advances the thread's generator once; the
 * `_from` forms draw from g (NULL: the thread's). They are not differentiable, except with respect
 * to the parameters of aril_normal and aril_uniform. */

/* Uniform in [0, 1); normal with mean 0 and standard deviation 1. [shape], or the shape of x */
ARIL_API aril_tensor *aril_rand(aril_shape shape, aril_dtype dtype, aril_device device);
ARIL_API aril_tensor *aril_randn(aril_shape shape, aril_dtype dtype, aril_device device);
ARIL_API aril_tensor *aril_rand_like(aril_tensor *x);
ARIL_API aril_tensor *aril_randn_like(aril_tensor *x);
ARIL_API aril_tensor *aril_rand_from(aril_generator *g, aril_shape shape, aril_dtype dtype,
                                     aril_device device);
ARIL_API aril_tensor *aril_randn_from(aril_generator *g, aril_shape shape, aril_dtype dtype,
                                      aril_device device);

/* Uniformly distributed integers from low to high - 1. [shape] */
ARIL_API aril_tensor *aril_randint(int64_t low, int64_t high, aril_shape shape, aril_dtype dtype,
                                   aril_device device);
ARIL_API aril_tensor *aril_randint_from(aril_generator *g, int64_t low, int64_t high,
                                        aril_shape shape, aril_dtype dtype, aril_device device);

/* A random permutation of 0 .. n - 1. [n] */
ARIL_API aril_tensor *aril_randperm(int64_t n, aril_dtype dtype, aril_device device);
ARIL_API aril_tensor *aril_randperm_from(aril_generator *g, int64_t n, aril_dtype dtype,
                                         aril_device device);

/* 1 with the probability given by each element of p, else 0: with p's shape and (float) dtype.
 * aril_bernoulli_like uses one probability, with the shape and dtype of x. */
ARIL_API aril_tensor *aril_bernoulli(aril_tensor *p);
ARIL_API aril_tensor *aril_bernoulli_from(aril_generator *g, aril_tensor *p);
ARIL_API aril_tensor *aril_bernoulli_like(aril_tensor *x, double p);

/* n indices of each row of weights [k] or [rows,k] (floats >= 0, of any sum above 0), drawn with
 * probabilities proportional to them: i64 [n] or [rows,n]. Without replacement no index occurs
 * twice in a row, and at least n weights must be positive. */
ARIL_API aril_tensor *aril_multinomial(aril_tensor *weights, int64_t n, bool replacement);
ARIL_API aril_tensor *aril_multinomial_from(aril_generator *g, aril_tensor *weights, int64_t n,
                                            bool replacement);

/* mean + std * noise, and low + (high - low) * noise; the parameters broadcast and receive
 * gradients (aril_scalar(0) turns a number into a tensor). */
ARIL_API aril_tensor *aril_normal(aril_tensor *mean, aril_tensor *std);
ARIL_API aril_tensor *aril_normal_from(aril_generator *g, aril_tensor *mean, aril_tensor *std);
ARIL_API aril_tensor *aril_uniform(aril_tensor *low, aril_tensor *high);
ARIL_API aril_tensor *aril_uniform_from(aril_generator *g, aril_tensor *low, aril_tensor *high);

/* Fills x with random numbers: uniform in [low, high); normal; 1 with probability p, else 0.
 * Returns x. */
ARIL_API aril_tensor *aril_uniform_(aril_tensor *x, double low, double high);
ARIL_API aril_tensor *aril_uniform_from_(aril_generator *g, aril_tensor *x, double low,
                                         double high);
ARIL_API aril_tensor *aril_normal_(aril_tensor *x, double mean, double std);
ARIL_API aril_tensor *aril_normal_from_(aril_generator *g, aril_tensor *x, double mean, double std);
ARIL_API aril_tensor *aril_bernoulli_(aril_tensor *x, double p);

/* ---- copies, dtypes, devices ---- */

/* A copy with its own memory. aril_copy_ writes src, broadcast and cast, into dst. */
ARIL_API aril_tensor *aril_copy(aril_tensor *x);
ARIL_API aril_tensor *aril_copy_(aril_tensor *dst, aril_tensor *src);

/* x cast to a dtype; x itself when it has that dtype. Float to integer truncates; any nonzero value
 * is true. */
ARIL_API aril_tensor *aril_cast(aril_tensor *x, aril_dtype dtype);

/* x moved to a device, in the same order in memory; x itself when it is already there. */
ARIL_API aril_tensor *aril_to(aril_tensor *x, aril_device device);

/* x with its elements contiguous in row-major order; x itself when it is contiguous. */
ARIL_API aril_tensor *aril_contiguous(aril_tensor *x);

/* x [N,C,spatial...] in channels-last memory order (N, spatial, C); x itself when it already is.
 * The shape stays the same; elementwise functions preserve the memory order. */
ARIL_API aril_tensor *aril_channels_last(aril_tensor *x);

ARIL_C_END

#ifndef __cplusplus
#define aril_full(shape, v, dtype, device) aril_full((shape), ARIL_NUMBER(v), (dtype), (device))
#define aril_full_like(x, v)               aril_full_like((x), ARIL_NUMBER(v))
#define aril_fill_(x, v)                   aril_fill_((x), ARIL_NUMBER(v))
#define aril_arange(start, stop, step, dtype, device) \
    aril_arange(ARIL_NUMBER(start), ARIL_NUMBER(stop), ARIL_NUMBER(step), (dtype), (device))
#endif

#endif
