/* What a model file of another framework contains, as text. */
#include "aril/formats.h"

#include "core/error.h"
#include "core/memory.h"
#include "formats/schemas.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- text ---- */

/* Prints text of a file: control characters, which could change a terminal, become '?'. */
static void put_text(FILE *out, const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    for (size_t n = strlen(text); n > 0;) {
        int length = aril__utf8_length(p, n);
        bool plain = length > 0 && *p >= 0x20 && *p != 0x7f && !(*p == 0xc2 && p[1] < 0xa0);
        if (plain)
            fwrite(p, 1, (size_t)length, out);
        else
            fputc('?', out);
        size_t used = length > 0 ? (size_t)length : 1;
        p += used;
        n -= used;
    }
}

/* The same in a column. */
static void put_column(FILE *out, const char *text, int width)
{
    put_text(out, text);
    fprintf(out, "%*s", (int)strlen(text) < width ? width - (int)strlen(text) : 0, "");
}

/* "1,234,567" */
static const char *with_commas(uint64_t n, char *buf, size_t size)
{
    char digits[32];
    int count = snprintf(digits, sizeof digits, "%" PRIu64, n);
    size_t used = 0;
    for (int i = 0; i < count && used + 2 < size; i++) {
        if (i > 0 && (count - i) % 3 == 0) buf[used++] = ',';
        buf[used++] = digits[i];
    }
    buf[used] = '\0';
    return buf;
}

static void put_count(FILE *out, uint64_t n, const char *one, const char *many)
{
    char buf[48];
    fprintf(out, "%s %s", with_commas(n, buf, sizeof buf), n == 1 ? one : many);
}

/* The product of sizes; 0 if it is not known. Capped, as sizes in files can be anything. */
static uint64_t product(const aril__message *m, const char *sizes)
{
    uint64_t n = 1;
    for (size_t i = 0; i < aril__message_count(m, sizes); i++) {
        int64_t size = aril__message_int_at(m, sizes, i);
        if (size <= 0 || n > UINT64_MAX / (uint64_t)size) return 0;
        n *= (uint64_t)size;
    }
    return n;
}

static void put_sizes(FILE *out, const aril__message *m, const char *sizes)
{
    fputc('[', out);
    for (size_t i = 0; i < aril__message_count(m, sizes); i++)
        fprintf(out, "%s%" PRId64, i ? "," : "", aril__message_int_at(m, sizes, i));
    fputc(']', out);
}

/* ---- ONNX ---- */

typedef struct onnx_names {
    const aril__message **tensor; /* initializers, sorted by name */
    size_t n;
} onnx_names;

static const char *name_of(const aril__message *tensor)
{
    return aril__message_text(tensor, "name");
}

static int by_name(const void *a, const void *b)
{
    return strcmp(name_of(*(const aril__message *const *)a),
                  name_of(*(const aril__message *const *)b));
}

static int to_name(const void *name, const void *b)
{
    return strcmp(name, name_of(*(const aril__message *const *)b));
}

static const aril__message *find_tensor(const onnx_names *names, const char *name)
{
    if (!names->n) return NULL;
    const aril__message **found =
        bsearch(name, names->tensor, names->n, sizeof *names->tensor, to_name);
    return found ? *found : NULL;
}

static void put_onnx_dtype(FILE *out, int64_t dtype)
{
    const aril__proto_value *v =
        aril__proto_value_numbered(&aril__onnx_TensorProto_DataType, (int32_t)dtype);
    if (!v) {
        fprintf(out, "type %" PRId64, dtype);
        return;
    }
    for (const char *c = v->name; *c; c++) fputc(*c >= 'A' && *c <= 'Z' ? *c | 32 : *c, out);
}

static void put_onnx_tensor(FILE *out, const aril__message *tensor)
{
    put_onnx_dtype(out, aril__message_int(tensor, "data_type"));
    put_sizes(out, tensor, "dims");
}

/* float[batch,3,224,224] */
static void put_onnx_tensor_type(FILE *out, const aril__message *tensor)
{
    put_onnx_dtype(out, aril__message_int(tensor, "elem_type"));
    if (!aril__message_has(tensor, "shape")) return;
    const aril__message *shape = aril__message_sub(tensor, "shape");
    fputc('[', out);
    for (size_t i = 0; i < aril__message_count(shape, "dim"); i++) {
        const aril__message *dim = aril__message_sub_at(shape, "dim", i);
        if (i) fputc(',', out);
        if (aril__message_has(dim, "dim_value"))
            fprintf(out, "%" PRId64, aril__message_int(dim, "dim_value"));
        else if (*aril__message_text(dim, "dim_param"))
            put_text(out, aril__message_text(dim, "dim_param"));
        else
            fputc('?', out);
    }
    fputc(']', out);
}

static void put_onnx_type(FILE *out, const aril__message *type)
{
    static const char *const nested[][2] = { { "sequence_type", "sequence of " },
                                             { "optional_type", "optional " } };
    for (int i = 0; i < 2; i++) {
        if (!aril__message_has(type, nested[i][0])) continue;
        fputs(nested[i][1], out);
        put_onnx_type(out, aril__message_sub(aril__message_sub(type, nested[i][0]), "elem_type"));
        return;
    }
    if (aril__message_has(type, "map_type")) {
        const aril__message *map = aril__message_sub(type, "map_type");
        fputs("map of ", out);
        put_onnx_dtype(out, aril__message_int(map, "key_type"));
        fputs(" to ", out);
        put_onnx_type(out, aril__message_sub(map, "value_type"));
    } else if (aril__message_has(type, "sparse_tensor_type")) {
        const aril__message *sparse = aril__message_sub(type, "sparse_tensor_type");
        fputs("sparse ", out);
        put_onnx_dtype(out, aril__message_int(sparse, "elem_type"));
    } else {
        put_onnx_tensor_type(out, aril__message_sub(type, "tensor_type"));
    }
}

static void put_onnx_values(FILE *out, const aril__message *graph, const char *which,
                            const onnx_names *names)
{
    fprintf(out, "\n%ss\n", which);
    for (size_t i = 0; i < aril__message_count(graph, which); i++) {
        const aril__message *value = aril__message_sub_at(graph, which, i);
        const char *name = aril__message_text(value, "name");
        /* In old files initializers are inputs too. */
        if (find_tensor(names, name)) continue;
        fputs("  ", out);
        put_column(out, name, 24);
        fputc(' ', out);
        put_onnx_type(out, aril__message_sub(value, "type"));
        fputc('\n', out);
    }
}

static void put_onnx_nodes(FILE *out, const aril__message *graph, const onnx_names *names,
                           int indent);

/* The graphs in attributes: the branches of If, the bodies of Loop and Scan. */
static void put_onnx_subgraphs(FILE *out, const aril__message *node, const onnx_names *names,
                               int indent)
{
    for (size_t i = 0; i < aril__message_count(node, "attribute"); i++) {
        const aril__message *attribute = aril__message_sub_at(node, "attribute", i);
        if (!aril__message_has(attribute, "g")) continue;
        fprintf(out, "%*s", indent, "");
        put_text(out, aril__message_text(attribute, "name"));
        fputs(":\n", out);
        put_onnx_nodes(out, aril__message_sub(attribute, "g"), names, indent + 2);
    }
}

static void put_onnx_input(FILE *out, const char *name, const onnx_names *names)
{
    const aril__message *tensor = find_tensor(names, name);
    put_text(out, *name ? name : "-");
    if (!tensor) return;
    fputc(' ', out);
    put_onnx_tensor(out, tensor);
}

/* The tensors in attributes, such as the value of Constant. */
static void put_onnx_attributes(FILE *out, const aril__message *node)
{
    for (size_t i = 0; i < aril__message_count(node, "attribute"); i++) {
        const aril__message *attribute = aril__message_sub_at(node, "attribute", i);
        if (!aril__message_has(attribute, "t")) continue;
        fputc(' ', out);
        put_text(out, aril__message_text(attribute, "name"));
        fputc('=', out);
        put_onnx_tensor(out, aril__message_sub(attribute, "t"));
    }
}

static void put_onnx_nodes(FILE *out, const aril__message *graph, const onnx_names *names,
                           int indent)
{
    for (size_t i = 0; i < aril__message_count(graph, "node"); i++) {
        const aril__message *node = aril__message_sub_at(graph, "node", i);
        fprintf(out, "%*s", indent, "");
        put_column(out, aril__message_text(node, "op_type"), 20);
        for (size_t k = 0; k < aril__message_count(node, "input"); k++) {
            fputs(k ? ", " : " ", out);
            put_onnx_input(out, aril__message_text_at(node, "input", k), names);
        }
        put_onnx_attributes(out, node);
        fputs(" ->", out);
        for (size_t k = 0; k < aril__message_count(node, "output"); k++) {
            const char *name = aril__message_text_at(node, "output", k);
            fputs(k ? ", " : " ", out);
            put_text(out, *name ? name : "-");
        }
        fputc('\n', out);
        put_onnx_subgraphs(out, node, names, indent + 2);
    }
}

static void put_onnx_head(FILE *out, const aril__message *model)
{
    fprintf(out, "ONNX model, IR version %" PRId64, aril__message_int(model, "ir_version"));
    for (size_t i = 0; i < aril__message_count(model, "opset_import"); i++) {
        const aril__message *set = aril__message_sub_at(model, "opset_import", i);
        const char *domain = aril__message_text(set, "domain");
        fprintf(out, ", opset %" PRId64, aril__message_int(set, "version"));
        if (!*domain) continue;
        fputs(" of ", out);
        put_text(out, domain);
    }
    if (*aril__message_text(model, "producer_name")) {
        fputs(", from ", out);
        put_text(out, aril__message_text(model, "producer_name"));
        if (*aril__message_text(model, "producer_version")) fputc(' ', out);
        put_text(out, aril__message_text(model, "producer_version"));
    }
    fputc('\n', out);
}

static aril_status describe_onnx(const char *path, FILE *out)
{
    aril__message *model = aril__message_load(&aril__onnx_ModelProto, path);
    if (!model) return aril__latest_status();
    const aril__message *graph = aril__message_sub(model, "graph");
    onnx_names names = { .n = aril__message_count(graph, "initializer") };
    names.tensor = aril__malloc((names.n + 1) * sizeof *names.tensor);
    if (!names.tensor) {
        aril__message_free(model);
        return aril__fail(ARIL_ERR_MEMORY, "out of memory for the tensors of %s", path);
    }
    uint64_t parameters = 0;
    for (size_t i = 0; i < names.n; i++) {
        names.tensor[i] = aril__message_sub_at(graph, "initializer", i);
        parameters += product(names.tensor[i], "dims");
    }
    if (names.n) qsort(names.tensor, names.n, sizeof *names.tensor, by_name);
    put_onnx_head(out, model);
    put_text(out, aril__message_text(graph, "name"));
    fputs(*aril__message_text(graph, "name") ? ": " : "", out);
    put_count(out, aril__message_count(graph, "node"), "node", "nodes");
    fputs(", ", out);
    put_count(out, names.n, "initializer", "initializers");
    fputs(", ", out);
    put_count(out, parameters, "parameter", "parameters");
    fputc('\n', out);
    put_onnx_values(out, graph, "input", &names);
    put_onnx_values(out, graph, "output", &(onnx_names){ 0 });
    fputs("\nnodes\n", out);
    put_onnx_nodes(out, graph, &names, 2);
    free(names.tensor);
    aril_status status = aril__message_check(model);
    aril__message_free(model);
    return status;
}

/* ---- Caffe ---- */

/* The shape of a blob: in its own message, or, in old files, four sizes. */
static void put_blob(FILE *out, const aril__message *blob)
{
    if (aril__message_has(blob, "shape")) {
        put_sizes(out, aril__message_sub(blob, "shape"), "dim");
        return;
    }
    fprintf(out, "[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "]",
            aril__message_int(blob, "num"), aril__message_int(blob, "channels"),
            aril__message_int(blob, "height"), aril__message_int(blob, "width"));
}

static size_t values_in(const aril__message *layer)
{
    size_t n = 0;
    for (size_t i = 0; i < aril__message_count(layer, "blobs"); i++) {
        const aril__message *blob = aril__message_sub_at(layer, "blobs", i);
        n += aril__message_count(blob, "data") + aril__message_count(blob, "double_data");
    }
    return n;
}

static void put_names(FILE *out, const aril__message *m, const char *which)
{
    for (size_t i = 0; i < aril__message_count(m, which); i++) {
        fputs(i ? ", " : " ", out);
        put_text(out, aril__message_text_at(m, which, i));
    }
}

/* A layer of any form; V0 layers are nested in V1 layers. */
static void put_layer(FILE *out, const aril__message *layer, bool old)
{
    const aril__message *inner =
        old && aril__message_has(layer, "layer") ? aril__message_sub(layer, "layer") : layer;
    const char *type = old && inner == layer ? aril__message_value(layer, "type")
                                             : aril__message_text(inner, "type");
    fputs("  ", out);
    put_column(out, type, 18);
    fputc(' ', out);
    put_column(out, aril__message_text(inner, "name"), 20);
    put_names(out, layer, "bottom");
    fputs(" ->", out);
    put_names(out, layer, "top");
    for (size_t i = 0; i < aril__message_count(inner, "blobs"); i++) {
        fputs(i ? " " : "  ", out);
        put_blob(out, aril__message_sub_at(inner, "blobs", i));
    }
    fputc('\n', out);
}

static void put_caffe_inputs(FILE *out, const aril__message *net)
{
    if (!aril__message_count(net, "input")) return;
    fputs("\ninputs\n", out);
    for (size_t i = 0; i < aril__message_count(net, "input"); i++) {
        const aril__message *shape = aril__message_sub_at(net, "input_shape", i);
        fputs("  ", out);
        put_column(out, aril__message_text_at(net, "input", i), 18);
        fputc(' ', out);
        if (shape) put_sizes(out, shape, "dim");
        for (size_t k = 0; !shape && k < 4; k++)
            fprintf(out, "%c%" PRId64 "%s", k ? ',' : '[',
                    aril__message_int_at(net, "input_dim", 4 * i + k), k == 3 ? "]" : "");
        fputc('\n', out);
    }
}

static void put_net(FILE *out, const aril__message *net)
{
    size_t current = aril__message_count(net, "layer"), old = aril__message_count(net, "layers");
    uint64_t values = 0;
    for (size_t i = 0; i < current; i++) values += values_in(aril__message_sub_at(net, "layer", i));
    for (size_t i = 0; i < old; i++) {
        const aril__message *layer = aril__message_sub_at(net, "layers", i);
        values += values_in(layer) + values_in(aril__message_sub(layer, "layer"));
    }
    fputs("Caffe net", out);
    if (*aril__message_text(net, "name")) fputc(' ', out);
    put_text(out, aril__message_text(net, "name"));
    fputs(old ? " in the older form: " : ": ", out);
    put_count(out, current + old, "layer", "layers");
    if (values) {
        fputs(", ", out);
        put_count(out, values, "parameter", "parameters");
    }
    fputc('\n', out);
    put_caffe_inputs(out, net);
    fputs("\nlayers\n", out);
    for (size_t i = 0; i < old; i++) put_layer(out, aril__message_sub_at(net, "layers", i), true);
    for (size_t i = 0; i < current; i++)
        put_layer(out, aril__message_sub_at(net, "layer", i), false);
}

static aril_status describe_caffemodel(const char *path, FILE *out)
{
    aril__message *net = aril__message_load(&aril__caffe_NetParameter, path);
    if (!net) return aril__latest_status();
    put_net(out, net);
    aril_status status = aril__message_check(net);
    aril__message_free(net);
    return status;
}

/* Whether the text sets a field that only solvers have. */
static bool is_solver(const char *path, aril__bytes *b)
{
    static const char *const words[] = { "base_lr", "max_iter", "lr_policy", "test_iter" };
    if (aril__read_file("model", path, 0, b) != ARIL_OK) return false;
    for (int i = 0; i < 4; i++)
        for (const char *p = (const char *)b->at; (p = strstr(p, words[i])) != NULL; p++)
            if (p == (const char *)b->at || p[-1] == '\n') return true;
    return false;
}

static aril_status describe_prototxt(const char *path, FILE *out)
{
    aril__bytes b = { 0 };
    bool solver = is_solver(path, &b);
    if (!b.at) return aril__latest_status();
    aril__message *m =
        aril__message_parse(solver ? &aril__caffe_SolverParameter : &aril__caffe_NetParameter,
                            (const char *)b.at, b.n, (aril__message_opts){ .name = path });
    aril__bytes_free(&b);
    if (!m) return aril__latest_status();
    aril_status status = ARIL_OK;
    if (solver) {
        fputs("Caffe solver\n\n", out);
        status = aril__message_print(m, &b);
        if (status == ARIL_OK && b.n) fwrite(b.at, 1, b.n, out);
        aril__bytes_free(&b);
    } else {
        put_net(out, m);
    }
    aril__message_free(m);
    return status;
}

/* ---- files ---- */

static const struct {
    const char *ending;
    aril_status (*describe)(const char *path, FILE *out);
} kinds[] = {
    { ".onnx", describe_onnx },
    { ".caffemodel", describe_caffemodel },
    { ".prototxt", describe_prototxt },
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static int kind_of(const char *path)
{
    size_t n = path ? strlen(path) : 0;
    for (int i = 0; i < KINDS; i++) {
        size_t length = strlen(kinds[i].ending);
        if (n >= length && strcmp(path + n - length, kinds[i].ending) == 0) return i;
    }
    return -1;
}

bool aril_describes_file(const char *path)
{
    return kind_of(path) >= 0;
}

aril_status aril_describe_file(const char *path, FILE *out)
{
    int kind = kind_of(path);
    if (!path || !out)
        return aril__fail(ARIL_ERR_ARG, "describe_file: expected a path and a file, got NULL");
    if (kind < 0)
        return aril__fail(ARIL_ERR_ARG,
                          "describe_file: expected a file named .onnx, .caffemodel or .prototxt, "
                          "got %s",
                          path);
    return kinds[kind].describe(path, out);
}
