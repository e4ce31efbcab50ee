/* Small models with many kinds of nodes, and a function that runs one. */
#ifndef ARIL_TESTS_SMALL_MODELS_H
#define ARIL_TESTS_SMALL_MODELS_H

#include "onnx/onnx_text.h"
#include "onnx/program.h"

static const char *const models[] = {
    /* shapes */
    OPSET(13) "graph { node { op_type: \"Shape\" input: \"x\" output: \"s\" } node { op_type: "
              "\"Gather\" input: [\"s\", \"i\"] output: \"n\" } "
              "node { op_type: \"Concat\" input: [\"n\", \"m\"] output: \"to\" attribute { name: "
              "\"axis\" i: 0 type: INT } } node { op_type: \"Reshape\" input: [\"x\", \"to\"] "
              "output: \"r\" } "
              "node { op_type: \"Transpose\" input: \"r\" output: \"t\" attribute { name: \"perm\" "
              "ints: [1, 0] type: INTS } } node { op_type: \"Slice\" input: [\"t\", \"i\", \"e\"] "
              "output: \"y\" } "
              "initializer { name: \"i\" dims: 1 data_type: 7 int64_data: 0 } initializer { name: "
              "\"m\" dims: 1 data_type: 7 int64_data: -1 } initializer { name: \"e\" dims: 1 "
              "data_type: 7 int64_data: 2 } "
              "input " FLOATS("x", DIM(2) DIM(3) DIM(4)) "output " ANY("y") " }",
    /* a small convolutional network */
    OPSET(11) "graph { node { op_type: \"Conv\" input: [\"x\", \"w\", \"b\"] output: \"a\" "
              "attribute { name: \"pads\" ints: [1, 1, 1, 1] type: INTS } attribute { name: "
              "\"kernel_shape\" ints: [3, 3] type: INTS } } "
              "node { op_type: \"Relu\" input: \"a\" output: \"r\" } node { op_type: \"MaxPool\" "
              "input: \"r\" output: \"p\" attribute { name: \"kernel_shape\" ints: [2, 2] type: "
              "INTS } attribute { name: \"strides\" ints: [2, 2] type: INTS } } "
              "node { op_type: \"GlobalAveragePool\" input: \"p\" output: \"g\" } node { op_type: "
              "\"Flatten\" input: \"g\" output: \"f\" } node { op_type: \"Gemm\" input: [\"f\", "
              "\"v\"] output: \"o\" attribute { name: \"transB\" i: 1 type: INT } } "
              "node { op_type: \"Softmax\" input: \"o\" output: \"y\" } initializer { name: \"w\" "
              "dims: [2, 1, 3, 3] data_type: 1 float_data: [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, "
              "5, 6, 7, 8, 9] } "
              "initializer { name: \"b\" dims: 2 data_type: 1 float_data: [1, 2] } initializer { "
              "name: \"v\" dims: [2, 2] data_type: 1 float_data: [1, 2, 3, 4] } input " FLOATS(
                  "x", DIM(1) DIM(1) DIM(6) DIM(6)) "output " ANY("y") " }",
    /* control flow and a function */
    "ir_version: 10 opset_import { version: 18 } opset_import { domain: \"my\" version: 1 } "
    "functions { name: \"F\" domain: \"my\" opset_import { version: 18 } input: \"v\" output: "
    "\"w\" "
    "node { op_type: \"Elu\" input: \"v\" output: \"w\" attribute { name: \"alpha\" ref_attr_name: "
    "\"a\" type: FLOAT } } attribute: \"a\" } "
    "graph { node { op_type: \"F\" domain: \"my\" input: \"x\" output: \"f\" attribute { name: "
    "\"a\" f: 2 type: FLOAT } } node { op_type: \"Loop\" input: [\"n\", \"\", \"f\"] output: "
    "[\"l\", \"y\"] attribute { name: \"body\" type: GRAPH g { "
    "node { op_type: \"Identity\" input: \"c\" output: \"d\" } node { op_type: \"Add\" input: "
    "[\"s\", \"x\"] output: \"t\" } node { op_type: \"TopK\" input: [\"t\", \"k\"] output: [\"u\", "
    "\"\"] } "
    "input " TYPED("i", 7) "input " TYPED("c", 9) "input " ANY("s") "output " TYPED(
        "d",
        9) "output " ANY("t") "output " ANY("u") " } } } "
                                                 "initializer { name: \"n\" data_type: 7 "
                                                 "int64_data: 3 } initializer { name: \"k\" dims: "
                                                 "1 data_type: 7 int64_data: 1 } input " FLOATS(
                                                     "x", DIM(3)) "output " ANY("y") " }",
    /* indices, padding, reductions, a sequence */
    OPSET(18) "graph { node { op_type: \"Pad\" input: [\"x\", \"p\"] output: \"a\" attribute { "
              "name: \"mode\" s: \"reflect\" type: STRING } } node { op_type: \"ReduceSum\" input: "
              "[\"a\", \"i\"] output: \"b\" } "
              "node { op_type: \"SplitToSequence\" input: \"b\" output: \"q\" attribute { name: "
              "\"axis\" i: 1 type: INT } } node { op_type: \"SequenceAt\" input: [\"q\", \"z\"] "
              "output: \"c\" } "
              "node { op_type: \"ScatterElements\" input: [\"c\", \"j\", \"c\"] output: \"d\" } "
              "node { op_type: \"Resize\" input: [\"d\", \"\", \"s\"] output: \"e\" attribute { "
              "name: \"mode\" s: \"linear\" type: STRING } } node { op_type: \"CumSum\" input: "
              "[\"e\", \"z\"] output: \"y\" } "
              "initializer { name: \"p\" dims: 4 data_type: 7 int64_data: [1, 1, 0, 1] } "
              "initializer { name: \"i\" dims: 1 data_type: 7 int64_data: 0 } initializer { name: "
              "\"z\" data_type: 7 int64_data: 0 } initializer { name: \"j\" dims: [1, 1] "
              "data_type: 7 int64_data: 0 } "
              "initializer { name: \"s\" dims: 2 data_type: 1 float_data: [2, 3] } input " FLOATS(
                  "x", DIM(3) DIM(4)) "output " ANY("y") " }",
    /* recurrence, quantization */
    OPSET(19) "graph { node { op_type: \"LSTM\" input: [\"x\", \"w\", \"r\"] output: \"a\" "
              "attribute { name: \"hidden_size\" i: 2 type: INT } } node { op_type: "
              "\"QuantizeLinear\" input: [\"a\", \"s\", \"z\"] output: \"q\" } "
              "node { op_type: \"DequantizeLinear\" input: [\"q\", \"s\", \"z\"] output: \"y\" } "
              "initializer { name: \"w\" dims: [1, 8, 1] data_type: 1 float_data: [1, 2, 3, 4, 5, "
              "6, 7, 8] } "
              "initializer { name: \"r\" dims: [1, 8, 2] data_type: 1 float_data: [1, 2, 3, 4, 5, "
              "6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8] } initializer { name: \"s\" data_type: 1 "
              "float_data: 0.1 } initializer { name: \"z\" data_type: 3 int32_data: 3 } "
              "input " FLOATS("x", DIM(2) DIM(1) DIM(1)) "output " ANY("y") " }",
};
enum { MODELS = sizeof models / sizeof *models };

/* The wire form of model i, which the caller frees. */
static inline aril__bytes wire_of(int i)
{
    aril__bytes wire = { 0 };
    aril__message *m = aril__message_parse(&aril__onnx_ModelProto, models[i], strlen(models[i]),
                                           (aril__message_opts){ 0 });
    if (!m || aril__message_write(m, &wire) < 0)
        test_fail(__FILE__, __LINE__, "model %d: %s", i, aril_error());
    aril__message_free(m);
    return wire;
}

/* Infers the types of a model, and runs it on ones of the declared sizes. Large inputs are not
 * worth the time. */
static inline bool run_model(const void *data, size_t n)
{
    ARIL_SCOPE;
    aril_tensor *in[8], *out[8];
    onnx_model *m = aril__onnx_model_read(data, n, "fuzz", aril_cpu());
    onnx_types types;
    if (m && aril__onnx_infer(m, &types) < 0) aril_clear_error();
    if (m) {
        m->max_trips = 20;
        m->max_memory = 4 << 20;
    }
    aril_program *p = m ? aril__onnx_program(m) : NULL;
    int inputs = aril_program_inputs(p);
    bool fits = p && inputs <= 8 && aril_program_outputs(p) <= 8;
    for (int i = 0; i < inputs && fits; i++) {
        aril_shape shape = aril_program_input_shape(p, i);
        int64_t size = 1;
        for (int d = 0; d < shape.ndim; d++) {
            if (shape.dim[d] < 0) shape.dim[d] = 2;
            fits = fits && shape.dim[d] < 64 && (size *= shape.dim[d] ? shape.dim[d] : 1) < 4096;
        }
        if (fits) in[i] = aril_ones(shape, aril_program_input_dtype(p, i), aril_cpu());
    }
    bool good = fits && aril_program_run(p, (aril_list){ inputs, in }, out) == ARIL_OK;
    aril_program_free(p);
    return good;
}

#endif
