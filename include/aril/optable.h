/* The op table: a description of every operation. */
#ifndef ARIL_OPTABLE_H
#define ARIL_OPTABLE_H

#include "aril/base.h"

ARIL_C_BEGIN

typedef struct aril_op_info {
    const char *name;
    const char *doc;      /* one line */
    const char *onnx;     /* ONNX operator, or NULL */
    const char *formula;  /* of an elementwise op, or NULL */
    const char *autocast; /* what its inputs are cast to in a region: "low" (the region's dtype),
                             "f32", "widest", "by call" (depends on rank or options), or NULL */
    const char *gradient; /* "formula", "rule", "decomposed" or "none" */
    int min_inputs;
    int max_inputs; /* -1: any number */
    int outputs;
    bool view;        /* the result shares memory with an input */
    bool random;      /* draws from a generator */
    bool backward;    /* computes a gradient of another op */
    const char *file; /* the source file that defines it, "src/ops/reduce/reduce.c" */
} aril_op_info;

/* The number of ops, and the i-th one. Strings stay valid for the life of the process. */
ARIL_API int aril_op_count(void);
ARIL_API aril_op_info aril_op_at(int i);

/* Writes the attributes of the i-th op to `buf`, each with its type and number of elements, as the
 * `layout` of a plug-in's row declares them: "stride I64 3; groups I64 1; ". Returns `buf`; "" if
 * the op has none. */
ARIL_API const char *aril_op_layout(int i, char *buf, size_t size);

ARIL_C_END

#endif
