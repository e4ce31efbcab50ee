/* What classifiers and regressors of ai.onnx.ml have in common: attributes, labels, scores. */
#ifndef ARIL_ONNX_ML_H
#define ARIL_ONNX_ML_H

#include "onnx/rules.h"

enum ml_transform { ML_NONE, ML_SOFTMAX, ML_LOGISTIC, ML_SOFTMAX_ZERO, ML_PROBIT };

/* The attribute post_transform. */
aril_status aril__ml_transform_of(onnx_call *c, enum ml_transform *to);
/* A row of n scores, in place. */
void aril__ml_transform(enum ml_transform how, double *score, int64_t n);

/* How the score of the only class of a classifier with two labels becomes two scores. */
enum ml_second {
    ML_COMPLEMENT, /* 1 - s and s */
    ML_OPPOSITE,   /* -s and s, or their logistic */
};
void aril__ml_two(enum ml_transform how, enum ml_second second, double s, double *to);

/* Numbers of an attribute: a list of floats, or NAME_as_tensor. n is -1 if there is none. */
aril_status aril__ml_numbers(onnx_call *c, const char *name, onnx_floats *to);

/* The labels of a classifier: classlabels_strings, or the first of the lists of integers that is
 * there. */
typedef struct ml_labels {
    const aril__message *strings; /* NULL: integers */
    onnx_ints ints;
    int64_t n;
} ml_labels;

aril_status aril__ml_labels_of(onnx_call *c, ml_labels *to);
/* Output 0: the label of each row, whose class is known; output 1: scores [rows,n]. */
aril_status aril__ml_give(onnx_call *c, const ml_labels *labels, const int64_t *at, int64_t rows,
                          const double *scores, int64_t n);

/* Input 0 as numbers on the host, in rows: one dimension is one row. */
aril_status aril__ml_rows(onnx_call *c, onnx_floats *x, int64_t *rows, int64_t *features);

#endif
