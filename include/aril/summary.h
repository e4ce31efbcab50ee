/* What a module is made of and what it costs: Keras's table. */
#ifndef ARIL_SUMMARY_H
#define ARIL_SUMMARY_H

#include "aril/module.h"

#include <stdio.h>

ARIL_C_BEGIN

typedef struct aril_summary_opts {
    int64_t batch;    /* samples that memory is told for; 0: 32 */
    int width;        /* columns of the table; 0: the terminal's, 100 where `to` is none */
    int depth;        /* levels of modules that are shown, those below added up; 0: all */
    bool ascii;       /* no box drawing, even in a UTF-8 locale */
    aril_dtype dtype; /* of the input made of a shape: ARIL_I64 for indices; 0: the parameters' */
} aril_summary_opts;

/* Prints a line for each layer (its name, type, output shape with None for the batch, parameters,
 * FLOPs), then totals: parameters, those that are trained and not, FLOPs of a forward pass of one
 * sample, memory for a batch. The module is run once without changing it, in evaluation mode, on
 * zeros of shape [1, x...]; parameters whose sizes were not known are made by it. Weights that are
 * shared count once. `to` gets UTF-8 box drawing where the locale (LC_ALL, LC_CTYPE, LANG) is a
 * UTF-8 one, else ASCII. */
ARIL_API aril_status aril_summary(aril_module *m, aril_shape x, FILE *to);
ARIL_API aril_status aril_summary_with(aril_module *m, aril_shape x, FILE *to,
                                       aril_summary_opts opts);

/* The same for given inputs, of any number and dtype; the first size of the first one is the
 * batch. */
ARIL_API aril_status aril_summary_n(aril_module *m, aril_list in, FILE *to, aril_summary_opts opts);

/* The totals as numbers. */
typedef struct aril_cost {
    int64_t parameters, trainable, buffers; /* numbers in them, each tensor once */
    double parameter_bytes, trainable_bytes, buffer_bytes;
    /* Of one sample: operations of a forward pass (2 for a multiply-add of a product, 1 for an
     * element of others); bytes of the input; of what the pass keeps for the gradient; of the
     * largest op's input and result, as whose gradients they come again. */
    double flop, input_bytes, activation_bytes, working_bytes;
} aril_cost;
ARIL_API aril_status aril_module_cost(aril_module *m, aril_list in, aril_cost *cost);

/* About how many bytes a batch takes in training: parameters, buffers and gradients of parameters;
 * for each sample the input, activations and the gradients at work. The memory of an optimizer is
 * not counted. */
ARIL_API double aril_cost_training(const aril_cost *cost, int64_t batch);

ARIL_C_END

#endif
