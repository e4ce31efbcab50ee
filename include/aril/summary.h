/* Model summary: a table of the layers and their cost, as in Keras. */
#ifndef ARIL_SUMMARY_H
#define ARIL_SUMMARY_H

#include "aril/module.h"

#include <stdio.h>

ARIL_C_BEGIN

typedef struct aril_summary_opts {
    int64_t batch;    /* batch size for the memory estimate; default 32 */
    int width;        /* width of the table in columns; 0: the terminal's, or 100 if `to` is not a
                         terminal */
    int depth;        /* levels of modules to show, deeper ones summed; 0: all */
    bool ascii;       /* no box drawing, even in a UTF-8 locale */
    aril_dtype dtype; /* of the input created from a shape: ARIL_I64 for indices; 0: that of the
                         parameters */
} aril_summary_opts;

/* Prints a line for each layer (its name, type, output shape with None for the batch, parameters,
 * FLOPs), then totals: parameters, trainable and not, FLOPs of a forward pass of one sample, memory
 * for a batch. The module runs once in evaluation mode on zeros of shape [1, x...], without side
 * effects except that lazily sized parameters are created. Shared weights count once. Uses UTF-8
 * box drawing if the locale (LC_ALL, LC_CTYPE, LANG) is UTF-8, else ASCII. */
ARIL_API aril_status aril_summary(aril_module *m, aril_shape x, FILE *to);
ARIL_API aril_status aril_summary_with(aril_module *m, aril_shape x, FILE *to,
                                       aril_summary_opts opts);

/* The same for given inputs, of any number and dtype; the first dimension of the first input is the
 * batch. */
ARIL_API aril_status aril_summary_n(aril_module *m, aril_list in, FILE *to, aril_summary_opts opts);

/* The totals as numbers. */
typedef struct aril_cost {
    int64_t parameters, trainable, buffers; /* number of elements, each tensor once */
    double parameter_bytes, trainable_bytes, buffer_bytes;
    /* For one sample: FLOPs of a forward pass (2 per multiply-add of a product, 1 per element of
     * other ops); bytes of the input; bytes of activations saved for backward; bytes of the largest
     * op's inputs and results, which is the size of their gradients. */
    double flop, input_bytes, activation_bytes, working_bytes;
} aril_cost;
ARIL_API aril_status aril_module_cost(aril_module *m, aril_list in, aril_cost *cost);

/* Estimates the bytes that training on a batch needs: parameters, buffers and parameter gradients;
 * for each sample the input, activations and temporary gradients. Does not include optimizer
 * state. */
ARIL_API double aril_cost_training(const aril_cost *cost, int64_t batch);

ARIL_C_END

#endif
