/* Include this before a header of src/ops for its attribute structs: it stands in for
 * ops/table/op.h, which is C. */
#ifndef ARIL_CUDA_ATTRS_CUH
#define ARIL_CUDA_ATTRS_CUH

#include "aril/base.h"

#define ARIL_OPS_OP_H
typedef struct aril__op aril__op;
typedef struct aril__call aril__call;
typedef struct aril__grad aril__grad;
typedef struct aril__run aril__run;
typedef struct aril__sample aril__sample;

typedef int64_t aril__type_I64;
typedef double aril__type_F64;
#define ARIL__ATTR_FIELD(op, type, count, name, initial, onnx) aril__type_##type name[count];
#define ATTRS(op, LIST)        \
    struct op##_attrs {        \
        LIST(ARIL__ATTR_FIELD) \
    };

/* The layout text of an attribute list, for aril_row.layout. */
#define ARIL_CUDA_ATTR_TEXT(op, type, count, name, initial, onnx) #name " " #type " " #count "; "
#define ARIL_CUDA_LAYOUT(LIST)                                    LIST(ARIL_CUDA_ATTR_TEXT)

#endif
