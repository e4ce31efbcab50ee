/* Model files of other frameworks, as text. */
#include "formats/atomic_file.h"
#include "formats/schemas.h"
#include "support/temp.h"
#include "support/test.h"

#include <aril/aril.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char text[1 << 16];

/* What is printed of a file. */
static aril_status describe(const char *path)
{
    memset(text, 0, sizeof text);
    FILE *f = fmemopen(text, sizeof text - 1, "w");
    if (!f) return ARIL_ERR_IO;
    aril_status status = aril_describe_file(path, f);
    fclose(f);
    return status;
}

static void describe_text(const char *name, const char *contents)
{
    CHECK_INT(aril__file_replace(temp_path(name), contents, strlen(contents)), ARIL_OK);
    CHECK_MSG(describe(temp_path(name)) == ARIL_OK, "%s", aril_error());
}

TEST(a_net_and_a_solver)
{
    describe_text("net.prototxt",
                  "name: 'Small\\033[2J' input: 'data' input_shape { dim: 1 dim: 3 }\n"
                  "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' "
                  "blobs { shape { dim: 10 dim: 3 } data: [1, 2, 3] } }\n"
                  "layer { name: 'both' type: 'Split' bottom: 'ip' top: 'a' top: 'b' }");
    CHECK_STR(text, "Caffe net Small?[2J: 2 layers, 3 parameters\n"
                    "\n"
                    "inputs\n"
                    "  data               [1,3]\n"
                    "\n"
                    "layers\n"
                    "  InnerProduct       ip                   data -> ip  [10,3]\n"
                    "  Split              both                 ip -> a, b\n");
    describe_text("old.prototxt",
                  "input: 'x' input_dim: [1, 2, 3, 4]\n"
                  "layers { name: 'r' type: RELU bottom: 'x' top: 'x' }\n"
                  "layers { layer { name: 'c' type: 'conv' blobs { num: 1 } } top: 'y' }");
    CHECK_STR(text, "Caffe net in the older form: 2 layers\n"
                    "\n"
                    "inputs\n"
                    "  x                  [1,2,3,4]\n"
                    "\n"
                    "layers\n"
                    "  RELU               r                    x -> x\n"
                    "  conv               c                    -> y  [1,0,0,0]\n");
    describe_text("solver.prototxt", "# a solver\nnet: 'net.prototxt'\nbase_lr: 1e-2\n");
    CHECK_STR(text, "Caffe solver\n\nbase_lr: 0.01\nnet: \"net.prototxt\"\n");
}

/* A value of a graph: a float tensor [N,4]. */
static void add_value(aril__message *graph, const char *which, const char *name)
{
    aril__message *value = aril__message_add_sub(graph, which);
    aril__message_set_text(value, "name", name);
    aril__message *type =
        aril__message_set_sub(aril__message_set_sub(value, "type"), "tensor_type");
    aril__message_set_int(type, "elem_type", 1);
    aril__message *shape = aril__message_set_sub(type, "shape");
    aril__message_set_text(aril__message_add_sub(shape, "dim"), "dim_param", "N");
    aril__message_set_int(aril__message_add_sub(shape, "dim"), "dim_value", 4);
    aril__message_add_sub(shape, "dim");
}

static aril__message *add_node(aril__message *graph, const char *op, const char *a, const char *b,
                               const char *to)
{
    aril__message *node = aril__message_add_sub(graph, "node");
    aril__message_set_text(node, "op_type", op);
    if (a) aril__message_add_text(node, "input", a);
    if (b) aril__message_add_text(node, "input", b);
    aril__message_add_text(node, "output", to);
    return node;
}

TEST(an_onnx_model)
{
    aril__message *model = aril__message_new(&aril__onnx_ModelProto);
    aril__message_set_int(model, "ir_version", 8);
    aril__message_set_text(model, "producer_name", "test");
    aril__message_set_int(aril__message_add_sub(model, "opset_import"), "version", 17);
    aril__message *graph = aril__message_set_sub(model, "graph");
    aril__message_set_text(graph, "name", "main");
    add_value(graph, "input", "x");
    add_value(graph, "input", "w"); /* an initializer: not shown among the inputs */
    add_value(graph, "output", "y");
    aril__message *tensor = aril__message_add_sub(graph, "initializer");
    aril__message_set_text(tensor, "name", "w");
    aril__message_set_int(tensor, "data_type", 16);
    aril__message_set_ints(tensor, "dims", (const int64_t[]){ 4, 1000 }, 2);
    add_node(graph, "Product", "x", "w", "h");
    aril__message *node = add_node(graph, "If", "h", "", "y");
    for (int i = 0; i < 2; i++) {
        aril__message *attribute = aril__message_add_sub(node, "attribute");
        aril__message_set_text(attribute, "name", i ? "else_branch" : "then_branch");
        add_node(aril__message_set_sub(attribute, "g"), "Identity", "h", NULL, "z");
    }
    CHECK_INT(aril__message_save(model, temp_path("x.onnx")), ARIL_OK);
    aril__message_free(model);
    CHECK_MSG(describe(temp_path("x.onnx")) == ARIL_OK, "%s", aril_error());
    /* An operator that ONNX does not have: the types are the declared ones. */
    char *why = strstr(text, "\nTypes are those that the file declares: ");
    CHECK_MSG(why && strstr(why, "1 node is not supported: Product-17"), "%s", text);
    if (why) *why = '\0';
    CHECK_STR(text, "ONNX model, IR version 8, opset 17, from test\n"
                    "2 nodes and 2 nodes in their graphs, 1 initializer, 4,000 parameters\n"
                    "\n"
                    "graph main (\n"
                    "  %x[FLOAT, Nx4x?]\n"
                    ") optional inputs with matching initializers (\n"
                    "  %w[FLOAT, Nx4x?]\n"
                    ") {\n"
                    "  %h = Product(%x, %w)\n"
                    "  %y[FLOAT, Nx4x?] = If[then_branch=<graph >, else_branch=<graph >](%h, %)\n"
                    "  return %y\n"
                    "}\n"
                    "\n"
                    "graph () {\n"
                    "  %z = Identity(%h)\n"
                    "  return\n"
                    "}\n"
                    "\n"
                    "graph () {\n"
                    "  %z = Identity(%h)\n"
                    "  return\n"
                    "}\n");
}

TEST(wrong_files)
{
    CHECK(aril_describes_file("a.onnx") && aril_describes_file("a/b.prototxt"));
    CHECK(!aril_describes_file("a.safetensors") && !aril_describes_file(NULL));
    CHECK_INT(describe("a.safetensors"), ARIL_ERR_ARG);
    CHECK_INT(aril_describe_file("a.onnx", NULL), ARIL_ERR_ARG);
    CHECK_INT(aril_describe_file(NULL, stdout), ARIL_ERR_ARG);
    aril_clear_error();
    CHECK_INT(describe(temp_path("none.onnx")), ARIL_ERR_IO);
    aril_clear_error();
    CHECK_INT(aril__file_replace(temp_path("x.onnx"), "no model", 8), ARIL_OK);
    CHECK_INT(describe(temp_path("x.onnx")), ARIL_ERR_FORMAT);
    CHECK_MSG(strstr(aril_error(), "x.onnx: byte ") && strstr(aril_error(), "not a ModelProto"),
              "%s", aril_error());
    aril_clear_error();
    CHECK_INT(aril__file_replace(temp_path("x.prototxt"), "layer {\n  nam: 1", 16), ARIL_OK);
    CHECK_INT(describe(temp_path("x.prototxt")), ARIL_ERR_FORMAT);
    CHECK_MSG(strstr(aril_error(), "x.prototxt:2:3: LayerParameter has no field 'nam'; did you "
                                   "mean name?"),
              "%s", aril_error());
    aril_clear_error();
}

static int described;

static int visit(const char *path, const struct stat *st, int kind, struct FTW *f)
{
    (void)st, (void)f;
    if (kind != FTW_F || !aril_describes_file(path) || test_failed()) return 0;
    FILE *out = fopen("/dev/null", "w");
    if (!out || aril_describe_file(path, out) != ARIL_OK)
        test_fail(__FILE__, __LINE__, "%s: %s", path, aril_error());
    if (out) fclose(out);
    described++;
    return 0;
}

TEST(stored_models)
{
    const char *data = getenv("ARIL_TEST_DATA");
    described = 0;
    nftw(data ? data : "../shared/data", visit, 16, FTW_PHYS);
    if (!described) SKIP("no models");
    CHECK_MSG(described > 80, "%d", described);
}
