/* What old versions of operators and of the format have that later ones lack, what files may leave
 * out, and nesting without end. */
#include "onnx/onnx_text.h"

#include <math.h>
#include <stdio.h>

static aril_tensor *floats(aril_shape shape, const float *at)
{
    return aril_from(at, shape, ARIL_F32, aril_cpu());
}

#define VALUES(...) ((const float[]){ __VA_ARGS__ })

/* The n results of a model; false after a failed check. */
static bool run(const char *head, const char *graph, aril_list in, aril_tensor **out)
{
    aril_program *p = load_text(head, graph);
    bool ran = p && aril_program_run(p, in, out) == ARIL_OK;
    if (!ran) test_fail(__FILE__, __LINE__, "%s", aril_error());
    aril_program_free(p);
    return ran;
}

static bool is(aril_tensor *t, aril_shape shape, const float *want)
{
    if (aril_ndim(t) != shape.ndim) return false;
    for (int i = 0; i < shape.ndim; i++)
        if (aril_size(t, i) != shape.dim[i]) return false;
    const float *got = aril_data(aril_cast(t, ARIL_F32));
    for (int64_t i = 0; i < aril_numel(t); i++)
        if (!(fabsf(got[i] - want[i]) < 1e-5F)) return false;
    return true;
}

#define OLD(v)            "ir_version: 3 opset_import { version: " #v " } "
#define INT(name, v)      "attribute { name: \"" name "\" i: " #v " type: INT } "
#define INTS(name, v)     "attribute { name: \"" name "\" ints: " v " type: INTS } "
#define NUMBER(name, v)   "attribute { name: \"" name "\" f: " #v " type: FLOAT } "
#define NODE(op, in, ...) "node { op_type: \"" op "\" input: " in " output: \"y\" " __VA_ARGS__ "} "
#define X_TO_Y            "input " ANY("x") "output " ANY("y")

/* ---- old attributes ---- */

/* Version 1 lists inputs whose memory a kernel may take: that changes nothing. */
TEST(consumed_inputs_are_ignored)
{
    ARIL_SCOPE;
    aril_tensor *y, *x = floats(ARIL_SHAPE(2), VALUES(-1, 4));
    CHECK(run(OLD(1), NODE("Relu", "\"x\"", INTS("consumed_inputs", "[1]")) X_TO_Y, ARIL_LIST(x),
              &y));
    CHECK(is(y, ARIL_SHAPE(2), VALUES(0, 4)));
    CHECK(is(x, ARIL_SHAPE(2), VALUES(-1, 4)));
    CHECK(run(OLD(1),
              NODE("Mul", "[\"x\", \"x\"]", INTS("consumed_inputs", "[0, 1]") INT("broadcast", 0))
                  X_TO_Y,
              ARIL_LIST(x), &y));
    CHECK(is(y, ARIL_SHAPE(2), VALUES(1, 16)));
}

/* Dropout and BatchNormalization before version 7 say by is_test that they do not train. */
TEST(is_test_of_version_6)
{
    ARIL_SCOPE;
    aril_tensor *y, *x = floats(ARIL_SHAPE(1, 1, 2), VALUES(3, 5));
    CHECK(run(OLD(6), NODE("Dropout", "\"x\"", INT("is_test", 1) NUMBER("ratio", 0.9)) X_TO_Y,
              ARIL_LIST(x), &y));
    CHECK(is(y, ARIL_SHAPE(1, 1, 2), VALUES(3, 5)));
    CHECK(run(OLD(6),
              NODE("BatchNormalization", "[\"x\", \"s\", \"b\", \"m\", \"v\"]",
                   INT("is_test", 1) NUMBER(
                       "epsilon",
                       0.0001)) "initializer { name: \"s\" dims: 1 data_type: 1 float_data: 2 } "
                                "initializer { name: \"b\" dims: 1 data_type: 1 float_data: 1 } "
                                "initializer { name: \"m\" dims: 1 data_type: 1 float_data: 3 } "
                                "initializer { name: \"v\" dims: 1 data_type: 1 float_data: 0.9999 "
                                "} " X_TO_Y,
              ARIL_LIST(x), &y));
    CHECK(is(y, ARIL_SHAPE(1, 1, 2), VALUES(1, 5)));
}

/* Sizes, paddings, limits and scales that became inputs later. */
TEST(attributes_that_became_inputs)
{
    ARIL_SCOPE;
    aril_tensor *y, *x = floats(ARIL_SHAPE(2, 3), VALUES(1, 2, 3, 4, 5, 6));
    aril_list in = ARIL_LIST(x);
    CHECK(run(OLD(1), NODE("Reshape", "\"x\"", INTS("shape", "[3, 0]")) X_TO_Y,
              ARIL_LIST(aril_reshape(x, ARIL_SHAPE(3, 2))), &y));
    CHECK(is(y, ARIL_SHAPE(3, 2), VALUES(1, 2, 3, 4, 5, 6)));
    CHECK(run(OLD(1),
              NODE("Pad", "\"x\"", INTS("paddings", "[0, 1, 0, 0]") NUMBER("value", 7)) X_TO_Y, in,
              &y));
    CHECK(is(y, ARIL_SHAPE(2, 4), VALUES(7, 1, 2, 3, 7, 4, 5, 6)));
    CHECK(run(OLD(9),
              NODE("Slice", "\"x\"", INTS("axes", "[1]") INTS("starts", "[1]") INTS("ends", "[9]"))
                  X_TO_Y,
              in, &y));
    CHECK(is(y, ARIL_SHAPE(2, 2), VALUES(2, 3, 5, 6)));
    CHECK(run(OLD(6), NODE("Clip", "\"x\"", NUMBER("min", 2) NUMBER("max", 5)) X_TO_Y, in, &y));
    CHECK(is(y, ARIL_SHAPE(2, 3), VALUES(2, 2, 3, 4, 5, 5)));
    CHECK(run(OLD(11), NODE("Squeeze", "\"x\"", INTS("axes", "[0]")) X_TO_Y,
              ARIL_LIST(aril_unsqueeze(x, 0)), &y));
    CHECK(is(y, ARIL_SHAPE(2, 3), VALUES(1, 2, 3, 4, 5, 6)));
    CHECK(run(
        OLD(1),
        NODE("Cast", "\"x\"", "attribute { name: \"to\" s: \"INT32\" type: STRING } ") "input " ANY(
            "x") "output " TYPED("y", 6),
        in, &y));
    CHECK_INT(aril_dtype_of(y), ARIL_I32);
    CHECK(run(OLD(7),
              NODE("Upsample", "\"x\"",
                   "attribute { name: \"scales\" floats: [1, 2] type: FLOATS } ") X_TO_Y,
              in, &y));
    CHECK(is(y, ARIL_SHAPE(2, 6), VALUES(1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6)));
    CHECK(run(OLD(1), NODE("TopK", "\"x\"", "output: \"i\" " INT("k", 1)) X_TO_Y, in, &y));
    CHECK(is(y, ARIL_SHAPE(2, 1), VALUES(3, 6)));
}

/* Before version 7, Gemm broadcasts only where it says so; axis counts from the left. */
TEST(broadcast_from_an_axis)
{
    ARIL_SCOPE;
    aril_tensor *y, *x = floats(ARIL_SHAPE(2, 2), VALUES(1, 2, 3, 4)),
                    *b = floats(ARIL_SHAPE(2), VALUES(10, 20));
    const char *two = "input " ANY("x") "input " ANY("b") "output " ANY("y");
    char text[1000];
    snprintf(text, sizeof text, "%s %s",
             NODE("Sub", "[\"x\", \"b\"]", INT("broadcast", 1) INT("axis", 0)), two);
    CHECK(run(OLD(6), text, ARIL_LIST(x, b), &y));
    CHECK(is(y, ARIL_SHAPE(2, 2), VALUES(-9, -8, -17, -16)));
    snprintf(text, sizeof text, "%s %s", NODE("Sub", "[\"x\", \"b\"]", INT("broadcast", 1)), two);
    CHECK(run(OLD(6), text, ARIL_LIST(x, b), &y));
    CHECK(is(y, ARIL_SHAPE(2, 2), VALUES(-9, -18, -7, -16)));
    snprintf(text, sizeof text, "%s %s", NODE("Gemm", "[\"x\", \"x\", \"b\"]", INT("broadcast", 1)),
             two);
    CHECK(run(OLD(6), text, ARIL_LIST(x, b), &y));
    CHECK(is(y, ARIL_SHAPE(2, 2), VALUES(17, 30, 25, 42)));
}

/* ---- initializers as inputs ---- */

#define WEIGHT "initializer { name: \"w\" dims: 2 data_type: 1 float_data: [5, 6] } "

/* Those that are inputs too may be given; from IR version 4 on, others are constants. */
TEST(initializers_are_overridden)
{
    ARIL_SCOPE;
    aril_tensor *x = floats(ARIL_SHAPE(2), VALUES(1, 2)), *w = floats(ARIL_SHAPE(2), VALUES(3, 4));
    static const char *const heads[] = { OLD(8), OPSET(13) };
    for (int i = 0; i < 2; i++) {
        aril_program *p = load_text(heads[i], NODE("Add", "[\"w\", \"x\"]", "") WEIGHT
                                    "input " FLOATS("w", DIM(2)) X_TO_Y);
        aril_value *y;
        CHECK(p != NULL);
        CHECK_INT(aril_program_run_values(p, ARIL_VALUES(aril_value_of(x)), &y), ARIL_OK);
        CHECK(is(aril_value_tensor(y), ARIL_SHAPE(2), VALUES(6, 8)));
        CHECK_INT(aril_program_run_values(p, ARIL_VALUES(aril_value_of(x), aril_value_of(w)), &y),
                  ARIL_OK);
        CHECK(is(aril_value_tensor(y), ARIL_SHAPE(2), VALUES(4, 6)));
        aril_program_free(p);
    }
    aril_program *p = load_text(OPSET(13), NODE("Add", "[\"w\", \"x\"]", "") WEIGHT X_TO_Y);
    aril_value *y;
    CHECK(p != NULL);
    CHECK(aril_program_run_values(p, ARIL_VALUES(aril_value_of(x), aril_value_of(w)), &y) < 0);
    CHECK(strstr(aril_error(), "got 2 inputs, expected 1") != NULL);
    aril_clear_error();
    aril_program_free(p);
}

/* Positions and values, in one index into the whole or one for each dimension. */
TEST(sparse_initializers)
{
    ARIL_SCOPE;
    aril_tensor *y, *x = aril_zeros(ARIL_SHAPE(2, 2), ARIL_F32, aril_cpu());
#define SPARSE(indices)                                                                        \
    NODE("Add", "[\"w\", \"x\"]", "")                                                          \
    "sparse_initializer { dims: [2, 2] values { name: \"w\" dims: 2 data_type: 1 float_data: " \
    "[5, 6] } indices { " indices " data_type: 7 } } " X_TO_Y
    CHECK(run(OPSET(13), SPARSE("dims: 2 int64_data: [1, 2]"), ARIL_LIST(x), &y));
    CHECK(is(y, ARIL_SHAPE(2, 2), VALUES(0, 5, 6, 0)));
    CHECK(run(OPSET(13), SPARSE("dims: [2, 2] int64_data: [0, 0, 1, 1]"), ARIL_LIST(x), &y));
    CHECK(is(y, ARIL_SHAPE(2, 2), VALUES(5, 0, 0, 6)));
    CHECK(load_text(OPSET(13), SPARSE("dims: 2 int64_data: [1, 4]")) == NULL);
    CHECK(!aril_ok());
    aril_clear_error();
}

/* ---- nesting ---- */

static void put_varint(unsigned char **at, size_t v)
{
    for (; v > 127; v >>= 7) *(*at)++ = (unsigned char)(v | 128);
    *(*at)++ = (unsigned char)v;
}

static size_t varint_size(size_t v)
{
    size_t n = 1;
    for (; v > 127; v >>= 7) n++;
    return n;
}

/* Graphs in attributes of nodes, 10,000 deep: an error, in little memory. */
TEST(ten_thousand_nested_graphs)
{
    enum { DEPTH = 10000 };
    static size_t size[3 * DEPTH + 1];
    size_t inner = 0;
    for (int i = 0; i < 3 * DEPTH; i++) { /* from the innermost message outwards */
        size[i] = inner;
        inner += 1 + varint_size(inner);
    }
    unsigned char *data = malloc(inner + 64), *at = data;
    CHECK(data != NULL);
    *at++ = 7 << 3 | 2; /* ModelProto.graph */
    put_varint(&at, inner);
    for (int i = 3 * DEPTH - 1; i >= 0; i--) {
        /* GraphProto.node, NodeProto.attribute, AttributeProto.g */
        *at++ = (unsigned char)((i % 3 == 2 ? 1 : i % 3 == 1 ? 5 : 6) << 3 | 2);
        put_varint(&at, size[i]);
    }
    const char *path = temp_path("nested.onnx");
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(data, 1, (size_t)(at - data), f) == (size_t)(at - data));
    fclose(f);
    free(data);
    CHECK(aril_program_load(path, (aril_load_opts){ 0 }) == NULL);
    CHECK_MSG(strstr(aril_error(), "deep") != NULL, "%s", aril_error());
    aril_clear_error();
}
