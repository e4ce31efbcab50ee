/* Inferred types: the listing of a model, and for the models of cases.bin and of ONNX's backend
 * tests, with their sizes as declared and with all of them open, agreement with the results that
 * are stored beside them. */
#include "onnx/backend_data.h"
#include "onnx/onnx_text.h"

#include "formats/atomic_file.h"
#include "onnx/onnx.h"

#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>

/* ---- models and stored results ---- */

static const char *const fields[] = { "input", "output" };

/* Gives every size of the inputs above 1 a name: 5 becomes s5. Sizes of outputs are forgotten. */
static void open_sizes(aril__message *model)
{
    aril__message *graph = aril__message_set_sub(model, "graph");
    for (int f = 0; f < 2; f++)
        for (size_t i = 0; i < aril__message_count(graph, fields[f]); i++) {
            aril__message *value = aril__message_sub_at(graph, fields[f], i);
            aril__message *type = aril__message_set_sub(value, "type");
            if (!aril__message_has(type, "tensor_type")) continue;
            type = aril__message_set_sub(type, "tensor_type");
            if (!aril__message_has(type, "shape")) continue;
            aril__message *shape = aril__message_set_sub(type, "shape");
            for (size_t d = 0; d < aril__message_count(shape, "dim"); d++) {
                aril__message *dim = aril__message_sub_at(shape, "dim", d);
                char name[32];
                if (aril__message_int(dim, "dim_value") < 2) continue;
                snprintf(name, sizeof name, "s%lld",
                         (long long)aril__message_int(dim, "dim_value"));
                aril__message_clear(dim, "dim_value");
                if (f == 0) aril__message_set_text(dim, "dim_param", name);
            }
        }
}

typedef struct counts {
    int models, types, sizes, named; /* inferred types, sizes in them, and those with names */
} counts;

typedef struct inferred {
    onnx_model *model;
    onnx_types types;
} inferred;

static inferred infer_from(const aril__bytes *wire, bool open, const char *name)
{
    inferred r = { 0 };
    aril__message *m =
        aril__message_read(&aril__onnx_ModelProto, wire->at, wire->n, (aril__message_opts){ 0 });
    if (m && open) open_sizes(m);
    /* From a file, as the model refers to memory that is read. */
    if (m && aril__message_save(m, temp_path("typed.onnx")) == ARIL_OK)
        r.model = aril__onnx_model_load(temp_path("typed.onnx"), (aril_load_opts){ 0 }, false);
    aril__message_free(m);
    if (r.model && aril__onnx_infer(r.model, &r.types) != ARIL_OK) {
        test_fail(__FILE__, __LINE__, "%s: %s", name, aril_error());
        aril__onnx_model_free(r.model);
        r.model = NULL;
    }
    aril_clear_error();
    return r;
}

/* The type of output i against the tensor that a run gave. */
static void check_output(const inferred *r, int i, const aril__message *tensor, const char *name,
                         counts *c)
{
    if (i >= r->model->n_out) return;
    const onnx_type *t = &r->types.of[r->model->out[i].slot];
    if (t->kind != ONNX_TENSOR && t->kind != ONNX_TEXT) return;
    c->types++;
    if (t->elem != aril__message_int(tensor, "data_type") ||
        (size_t)t->ndim != aril__message_count(tensor, "dims")) {
        test_fail(__FILE__, __LINE__, "%s: output %d: type %d with %d dimensions", name, i, t->elem,
                  t->ndim);
        return;
    }
    for (int d = 0; d < t->ndim; d++) {
        int64_t size = aril__message_int_at(tensor, "dims", (size_t)d), is = t->dim[d];
        const char *of = is < 0 ? aril__onnx_size_name(&r->types, is) : NULL;
        c->sizes++;
        c->named += of != NULL;
        if (of) is = atoll(of + 1);
        if (is >= 0 && is != size)
            test_fail(__FILE__, __LINE__, "%s: output %d: size %d is %lld, inferred %lld", name, i,
                      d, (long long)size, (long long)is);
    }
}

/* ---- cases.bin ---- */

static uint32_t word_of(FILE *f)
{
    unsigned char b[4] = { 0 };
    if (fread(b, 1, 4, f) != 4) return 0;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static bool next_file(FILE *f, char *name, aril__bytes *data)
{
    uint32_t length = word_of(f), size = word_of(f);
    if (!length || length >= 256 || fread(name, 1, length, f) != length) return false;
    name[length] = '\0';
    data->n = 0;
    unsigned char *at = malloc(size + 1);
    bool read = at && fread(at, 1, size, f) == size;
    if (read) aril__bytes_add(data, at, size);
    free(at);
    return read;
}

/* The number of an output file, "output_0.pb"; -1: it is none. */
static int output_number(const char *name)
{
    const char *at = strstr(name, "test_data_set_0/output_");
    return at ? atoi(at + strlen("test_data_set_0/output_")) : -1;
}

static void check_stored(const inferred *r, const char *name, const aril__bytes *data, counts *c)
{
    int i = output_number(name);
    if (i < 0 || !r->model) return;
    aril__message *t =
        aril__message_read(&aril__onnx_TensorProto, data->at, data->n, (aril__message_opts){ 0 });
    if (t && aril__message_int(t, "data_type")) check_output(r, i, t, name, c);
    aril__message_free(t);
    aril_clear_error();
}

static counts check_cases(bool open)
{
    counts c = { 0 };
    char name[256];
    aril__bytes data = { 0 };
    inferred now = { 0 };
    FILE *f = fopen(ONNX_CASES, "rb");
    while (f && next_file(f, name, &data)) {
        if (strstr(name, "/model.onnx")) {
            aril__onnx_model_free(now.model);
            now = infer_from(&data, open, name);
            c.models += now.model != NULL;
        } else {
            check_stored(&now, name, &data, &c);
        }
    }
    if (f) fclose(f);
    aril__onnx_model_free(now.model);
    aril__bytes_free(&data);
    printf("%s sizes: %d models, %d types, %d of %d sizes with names\n", open ? "open" : "known",
           c.models, c.types, c.named, c.sizes);
    return c;
}

TEST(types_of_single_operators)
{
    counts c = check_cases(false);
    CHECK(c.models > 150 && c.types > 180);
}

TEST(types_of_single_operators_with_open_sizes)
{
    counts c = check_cases(true);
    CHECK(c.models > 150 && c.types > 90 && c.named > 190);
}

/* ---- ONNX's backend tests ---- */

static counts node_counts[2]; /* with sizes as declared, and open */

static void check_model(const char *model, const aril__bytes *wire, bool open)
{
    char path[4200];
    inferred r = infer_from(wire, open, model);
    node_counts[open].models += r.model != NULL;
    for (int i = 0; r.model && i < r.model->n_out; i++) {
        struct stat st;
        aril__bytes data = { 0 };
        snprintf(path, sizeof path, "%.*s/test_data_set_0/output_%d.pb",
                 (int)(strlen(model) - strlen("/model.onnx")), model, i);
        if (stat(path, &st) == 0 && aril__read_file("tensor", path, 0, &data) == ARIL_OK)
            check_stored(&r, path, &data, &node_counts[open]);
        aril__bytes_free(&data);
    }
    aril__onnx_model_free(r.model);
    aril_clear_error();
}

static int visit(const char *path, const struct stat *st, int kind, struct FTW *f)
{
    (void)st, (void)f;
    size_t n = strlen(path), m = strlen("/model.onnx");
    aril__bytes wire = { 0 };
    if (kind != FTW_F || n < m || strcmp(path + n - m, "/model.onnx") != 0) return 0;
    if (aril__read_file("model", path, 0, &wire) == ARIL_OK)
        for (int open = 0; open < 2; open++) check_model(path, &wire, open);
    aril__bytes_free(&wire);
    return 0;
}

TEST(types_of_backend_tests)
{
    const char *folder = unpacked("node");
    if (!folder) return;
    nftw(folder, visit, 16, FTW_PHYS);
    for (int open = 0; open < 2; open++) {
        const counts *c = &node_counts[open];
        printf("%s sizes: %d models, %d types, %d of %d sizes with names\n",
               open ? "open" : "known", c->models, c->types, c->named, c->sizes);
        CHECK(c->models > 1700);
        CHECK_MSG(c->types > (open ? 1250 : 1700), "%d", c->types);
    }
}

/* ---- the listing ---- */

static char text[1 << 14];

static void list(const char *model)
{
    memset(text, 0, sizeof text);
    FILE *f = fmemopen(text, sizeof text - 1, "w");
    if (!f || aril_describe_file(save_model(model), f) != ARIL_OK)
        test_fail(__FILE__, __LINE__, "%s", aril_error());
    if (f) fclose(f);
}

#define OPEN(name) "dim { dim_param: \"" name "\" } "

/* What a model computes from its sizes, named ones stay named; a function, and a branch. */
TEST(listing_of_a_model)
{
    list("ir_version: 10 producer_name: \"test\" opset_import { version: 18 } opset_import { "
         "domain: \"my\" version: 1 } "
         "functions { name: \"F\" domain: \"my\" opset_import { version: 18 } input: \"v\" "
         "output: \"w\" attribute: \"a\" node { op_type: \"Elu\" input: \"v\" output: \"w\" "
         "attribute { name: \"alpha\" ref_attr_name: \"a\" type: FLOAT } } } "
         "graph { name: \"main\" "
         "node { op_type: \"Conv\" input: [\"x\", \"w\"] output: \"a\" attribute { name: "
         "\"pads\" ints: [1, 1, 1, 1] type: INTS } attribute { name: \"auto_pad\" s: \"NOTSET\" "
         "type: STRING } } "
         "node { op_type: \"F\" domain: \"my\" input: \"a\" output: \"f\" attribute { name: "
         "\"a\" f: 0.1 type: FLOAT } } "
         "node { op_type: \"Shape\" input: \"f\" output: \"s\" attribute { name: \"end\" i: 1 "
         "type: INT } } "
         "node { op_type: \"Constant\" output: \"m\" attribute { name: \"value\" type: TENSOR t "
         "{ dims: 1 data_type: 7 int64_data: -1 } } } "
         "node { op_type: \"Concat\" input: [\"s\", \"m\"] output: \"to\" attribute { name: "
         "\"axis\" i: 0 type: INT } } "
         "node { op_type: \"Reshape\" input: [\"f\", \"to\"] output: \"r\" } "
         "node { op_type: \"Clip\" input: [\"r\", \"\", \"top\"] output: \"c\" } "
         "node { op_type: \"If\" input: \"yes\" output: \"y\" attribute { name: "
         "\"then_branch\" type: GRAPH g { name: \"then\" node { op_type: \"Relu\" input: \"c\" "
         "output: \"t\" } output " ANY(
             "t") "} } attribute { name: \"else_branch\" type: GRAPH g { "
                  "name: \"else\" node { op_type: \"Neg\" input: \"c\" output: \"e\" } output " ANY(
                      "e") "} } } "
                           "node { op_type: \"NonZero\" input: \"y\" output: \"z\" } "
                           "initializer { name: \"w\" dims: [2, 1, 3, 3] data_type: 1 float_data: "
                           "[1, 2, 3, 4, 5, 6, "
                           "7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9] } "
                           "initializer { name: \"top\" data_type: 1 float_data: 6 } "
                           "input " FLOATS("x", OPEN("batch") DIM(1) DIM(4) DIM(
                                                    6)) "input { name: \"yes\" type { tensor_type "
                                                        "{ elem_type: 9 shape { } } } } "
                                                        "output " ANY("y") "output " TYPED("z",
                                                                                           7) "}");
    CHECK_STR(text,
              "ONNX model, IR version 10, opset 18, opset 1 of my, from test\n"
              "9 nodes and 2 nodes in their graphs, 2 initializers, 19 parameters\n"
              "\n"
              "graph main (\n"
              "  %x[FLOAT, batchx1x4x6]\n"
              "  %yes[BOOL, scalar]\n"
              ") initializers (\n"
              "  %w[FLOAT, 2x1x3x3]\n"
              "  %top[FLOAT, scalar]\n"
              ") {\n"
              "  %a[FLOAT, batchx2x4x6] = Conv[pads=[1, 1, 1, 1], auto_pad='NOTSET'](%x, %w)\n"
              "  %f[FLOAT, batchx2x4x6] = my.F[a=0.1](%a)\n"
              "  %s[INT64, 1] = Shape[end=1](%f)\n"
              "  %m[INT64, 1] = Constant[value=<Tensor [INT64, 1]>]()\n"
              "  %to[INT64, 2] = Concat[axis=0](%s, %m)\n"
              "  %r[FLOAT, batchx48] = Reshape(%f, %to)\n"
              "  %c[FLOAT, batchx48] = Clip(%r, %, %top)\n"
              "  %y[FLOAT, batchx48] = If[then_branch=<graph then>, else_branch=<graph "
              "else>](%yes)\n"
              "  %z[INT64, 2x?] = NonZero(%y)\n"
              "  return %y, %z\n"
              "}\n"
              "\n"
              "graph then () {\n"
              "  %t[FLOAT, batchx48] = Relu(%c)\n"
              "  return %t\n"
              "}\n"
              "\n"
              "graph else () {\n"
              "  %e[FLOAT, batchx48] = Neg(%c)\n"
              "  return %e\n"
              "}\n"
              "\n"
              "function my.F[a] (%v) {\n"
              "  %w = Elu[alpha=@a](%v)\n"
              "  return %w\n"
              "}\n");
}

/* A file of a few bytes takes little memory: large values are not computed for their types. */
TEST(listing_of_large_constants)
{
#define LENGTH "initializer { name: \"n\" dims: 1 data_type: 7 int64_data: 1000000000 } "
#define LISTED(nodes)                                                                             \
    "ir_version: 8 opset_import { version: 18 } graph { " LENGTH nodes                            \
    "initializer { name: \"i\" dims: 1 data_type: 7 int64_data: 0 } initializer { name: \"one\" " \
    "data_type: 7 int64_data: 1 } initializer { name: \"zero\" data_type: 7 int64_data: 0 } "     \
    "initializer { name: \"end\" data_type: 7 int64_data: 1000000000 } output " ANY("y") "}"
    static const char *const large[] = {
        LISTED("node { op_type: \"ConstantOfShape\" input: \"n\" output: \"z\" } node { op_type: "
               "\"Neg\" input: \"z\" output: \"y\" } "),
        LISTED(
            "node { op_type: \"Range\" input: [\"zero\", \"end\", \"one\"] output: \"z\" } node { "
            "op_type: \"Neg\" input: \"z\" output: \"y\" } "),
        LISTED("node { op_type: \"Tile\" input: [\"i\", \"n\"] output: \"z\" } node { op_type: "
               "\"Neg\" input: \"z\" output: \"y\" } "),
        LISTED("sparse_initializer { dims: 1000000000 values { name: \"z\" dims: 1 data_type: 7 "
               "int64_data: 1 } indices { dims: 1 data_type: 7 int64_data: 5 } } node { op_type: "
               "\"Neg\" input: \"z\" output: \"y\" } "),
    };
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        aril_memory_reset_peak(aril_cpu());
        int64_t before = aril_memory(aril_cpu()).peak;
        list(large[i]);
        CHECK_MSG(strstr(text,
                         i ? "%y[INT64, 1000000000] = Neg(%z)" : "%y[FLOAT, 1000000000] = Neg(%z)"),
                  "%s", text);
        int64_t more = aril_memory(aril_cpu()).peak - before;
        CHECK_MSG(more < 1 << 20, "%lld bytes", (long long)more);
    }
}
