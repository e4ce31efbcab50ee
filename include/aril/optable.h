/* The op table: what every operation says of itself. */
#ifndef ARIL_OPTABLE_H
#define ARIL_OPTABLE_H

#include "aril/base.h"

ARIL_C_BEGIN

typedef struct aril_op_info {
    const char *name;
    const char *doc;      /* one line */
    const char *onnx;     /* ONNX operator, or NULL */
    const char *formula;  /* of an elementwise op, or NULL */
    const char *gradient; /* "formula", "rule", "decomposed" or "none" */
    int min_inputs;
    int max_inputs; /* -1: any number */
    int outputs;
    bool view;        /* the result shares memory with an input */
    bool random;      /* takes a key from a generator */
    bool backward;    /* a gradient of another op */
    const char *file; /* the source file that defines it, "src/ops/reduce/reduce.c" */
} aril_op_info;

/* How many ops there are, and the i-th of them. Names are valid while the process lives. */
ARIL_API int aril_op_count(void);
ARIL_API aril_op_info aril_op_at(int i);

ARIL_C_END

#endif
