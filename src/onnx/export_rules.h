/* Rows of ops, by group. */
#ifndef ARIL_ONNX_EXPORT_RULES_H
#define ARIL_ONNX_EXPORT_RULES_H

#include "onnx/export.h"

extern const export_rule aril__export_math_rules[], aril__export_shape_rules[],
    aril__export_reduce_rules[], aril__export_index_rules[], aril__export_vision_rules[],
    aril__export_nn_rules[], aril__export_other_rules[];

/* Rows of a table: an operator with the same inputs; by a function that writes it; in other ops. */
#define SAME(op_, from_, onnx_, types_)                                                      \
    {                                                                                        \
        .op = op_, .from = from_, .onnx = onnx_, .types = types_, .write = aril__export_same \
    }
#define WRITE(op_, from_, onnx_, fn)                         \
    {                                                        \
        .op = op_, .from = from_, .onnx = onnx_, .write = fn \
    }
#define WRITE_TYPES(op_, from_, onnx_, types_, fn)                            \
    {                                                                         \
        .op = op_, .from = from_, .onnx = onnx_, .types = types_, .write = fn \
    }
#define LOWER(op_, fn)                     \
    {                                      \
        .op = op_, .from = 13, .lower = fn \
    }

/* The operator of the row with the inputs of the op, in the dtype that it computes in, and its
 * attributes of one number. */
aril_status aril__export_same(export_call *c);

/* The dtype that an elementwise op computes in, and one of `types` that holds its values. */
aril_dtype aril__export_type(const export_call *c);
aril_dtype aril__export_wide(aril_dtype type, uint32_t types);

/* An operator on the inputs in a dtype, whose result, of the same dtype or BOOL, becomes that of
 * the op. */
aril_status aril__export_typed(export_call *c, const char *onnx, uint32_t types,
                               export_attrs attrs);

/* export_nn.c: a product of 8-bit integers whose first operand is `a`, by the operator for plain
 * sums or the one for results of a scale; and whether there is one. */
bool aril__export_integer_takes(const export_call *c);
aril_status aril__export_integer(export_call *c, const char *plain, const char *scaled,
                                 export_value *a, export_attrs attrs);

#endif
