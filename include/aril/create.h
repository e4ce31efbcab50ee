/* Making tensors, and changing their dtype or device. */
#ifndef ARIL_CREATE_H
#define ARIL_CREATE_H

#include "aril/rng.h"
#include "aril/tensor.h"

ARIL_C_BEGIN

/* Memory that is not cleared; zeros; ones; a number everywhere. [shape] */
ARIL_API aril_tensor *aril_empty(aril_shape shape, aril_dtype dtype, aril_device device);
ARIL_API aril_tensor *aril_zeros(aril_shape shape, aril_dtype dtype, aril_device device);
ARIL_API aril_tensor *aril_ones(aril_shape shape, aril_dtype dtype, aril_device device);
ARIL_API aril_tensor *aril_full(aril_shape shape, aril_number value, aril_dtype dtype,
                                aril_device device);

/* The same in the shape, dtype and device of x. */
ARIL_API aril_tensor *aril_zeros_like(aril_tensor *x);
ARIL_API aril_tensor *aril_ones_like(aril_tensor *x);
ARIL_API aril_tensor *aril_full_like(aril_tensor *x, aril_number value);
ARIL_API aril_tensor *aril_empty_like(aril_tensor *x);

/* start, start + step, ... as long as they come before stop. [ceil((stop - start) / step)] */
ARIL_API aril_tensor *aril_arange(aril_number start, aril_number stop, aril_number step,
                                  aril_dtype dtype, aril_device device);

/* `steps` numbers from start to stop at equal distances, both included. [steps] */
ARIL_API aril_tensor *aril_linspace(double start, double stop, int64_t steps, aril_dtype dtype,
                                    aril_device device);

/* 1 on the diagonal, else 0; columns -1: as many as rows. [rows, columns] */
ARIL_API aril_tensor *aril_eye(int64_t rows, int64_t columns, aril_dtype dtype, aril_device device);

/* The lower, the upper triangle of matrices [..,n,m], with the diagonal-th diagonal (0: the main
 * one, 1: the one above it), and 0 elsewhere. */
ARIL_API aril_tensor *aril_tril(aril_tensor *x, int64_t diagonal);
ARIL_API aril_tensor *aril_triu(aril_tensor *x, int64_t diagonal);
ARIL_API aril_tensor *aril_tril_(aril_tensor *x, int64_t diagonal);
ARIL_API aril_tensor *aril_triu_(aril_tensor *x, int64_t diagonal);

/* The number everywhere in x; 0 everywhere. x is returned. */
ARIL_API aril_tensor *aril_fill_(aril_tensor *x, aril_number value);
ARIL_API aril_tensor *aril_zero_(aril_tensor *x);

/* ---- random numbers (aril/rng.h) ----
 *
 * Element i of a result depends on the generator's seed, the number of the call and i alone: f16
 * and bf16 results are the f32 ones rounded. Each call draws once from the thread's generator;
 * the `_from` forms draw from g (NULL: the thread's). No gradient flows through them, but it does
 * to the parameters of aril_normal and aril_uniform. */

/* Uniform in [0, 1); normal, of mean 0 and deviation 1. [shape], or the shape of x */
ARIL_API aril_tensor *aril_rand(aril_shape shape, aril_dtype dtype, aril_device device);
ARIL_API aril_tensor *aril_randn(aril_shape shape, aril_dtype dtype, aril_device device);
ARIL_API aril_tensor *aril_rand_like(aril_tensor *x);
ARIL_API aril_tensor *aril_randn_like(aril_tensor *x);
ARIL_API aril_tensor *aril_rand_from(aril_generator *g, aril_shape shape, aril_dtype dtype,
                                     aril_device device);
ARIL_API aril_tensor *aril_randn_from(aril_generator *g, aril_shape shape, aril_dtype dtype,
                                      aril_device device);

/* Whole numbers from low to high - 1, each as likely. [shape] */
ARIL_API aril_tensor *aril_randint(int64_t low, int64_t high, aril_shape shape, aril_dtype dtype,
                                   aril_device device);
ARIL_API aril_tensor *aril_randint_from(aril_generator *g, int64_t low, int64_t high,
                                        aril_shape shape, aril_dtype dtype, aril_device device);

/* The numbers 0 .. n - 1 in a random order. [n] */
ARIL_API aril_tensor *aril_randperm(int64_t n, aril_dtype dtype, aril_device device);
ARIL_API aril_tensor *aril_randperm_from(aril_generator *g, int64_t n, aril_dtype dtype,
                                         aril_device device);

/* 1 with the probability that stands in p, else 0: in p's shape and (floating point) dtype. With a
 * number for all: in the shape and dtype of x. */
ARIL_API aril_tensor *aril_bernoulli(aril_tensor *p);
ARIL_API aril_tensor *aril_bernoulli_from(aril_generator *g, aril_tensor *p);
ARIL_API aril_tensor *aril_bernoulli_like(aril_tensor *x, double p);

/* mean + std * noise, and low + (high - low) * noise; the parameters broadcast and get gradients
 * (aril_scalar(0) makes one of a number). */
ARIL_API aril_tensor *aril_normal(aril_tensor *mean, aril_tensor *std);
ARIL_API aril_tensor *aril_normal_from(aril_generator *g, aril_tensor *mean, aril_tensor *std);
ARIL_API aril_tensor *aril_uniform(aril_tensor *low, aril_tensor *high);
ARIL_API aril_tensor *aril_uniform_from(aril_generator *g, aril_tensor *low, aril_tensor *high);

/* Random numbers everywhere in x: uniform in [low, high), normal, 1 with probability p. x is
 * returned. */
ARIL_API aril_tensor *aril_uniform_(aril_tensor *x, double low, double high);
ARIL_API aril_tensor *aril_uniform_from_(aril_generator *g, aril_tensor *x, double low,
                                         double high);
ARIL_API aril_tensor *aril_normal_(aril_tensor *x, double mean, double std);
ARIL_API aril_tensor *aril_normal_from_(aril_generator *g, aril_tensor *x, double mean, double std);
ARIL_API aril_tensor *aril_bernoulli_(aril_tensor *x, double p);

/* ---- copies, dtypes, devices ---- */

/* A copy in memory of its own. aril_copy_ writes src, broadcast and cast, into dst. */
ARIL_API aril_tensor *aril_copy(aril_tensor *x);
ARIL_API aril_tensor *aril_copy_(aril_tensor *dst, aril_tensor *src);

/* x in another dtype; x itself when it has that dtype. Floats lose their fraction on the way to
 * integers; anything not 0 is true. */
ARIL_API aril_tensor *aril_cast(aril_tensor *x, aril_dtype dtype);

/* x on a device; x itself when it is there. */
ARIL_API aril_tensor *aril_to(aril_tensor *x, aril_device device);

/* x with its elements in logical order without gaps; x itself when they are. */
ARIL_API aril_tensor *aril_contiguous(aril_tensor *x);

/* x [N,C,spatial...] with its elements in the order N, spatial, C; x itself when they are. The
 * shape stays; elementwise functions give results in the same order. */
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
