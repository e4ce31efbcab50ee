/* What a model file of another framework contains, as text. */
#include "formats/describe.h"

#include "aril/create.h"
#include "aril/dtype.h"
#include "aril/formats.h"
#include "aril/scope.h"
#include "core/error.h"
#include "core/tensor.h"
#include "formats/hdf5.h"
#include "formats/schemas.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- text ---- */

void aril__put_text(FILE *out, const char *text, size_t n)
{
    const unsigned char *p = (const unsigned char *)text;
    while (n > 0) {
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

static void put_text(FILE *out, const char *text)
{
    aril__put_text(out, text, strlen(text));
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

void aril__put_count(FILE *out, uint64_t n, const char *one, const char *many)
{
    char buf[48];
    fprintf(out, "%s %s", with_commas(n, buf, sizeof buf), n == 1 ? one : many);
}

static void put_sizes(FILE *out, const aril__message *m, const char *sizes)
{
    fputc('[', out);
    for (size_t i = 0; i < aril__message_count(m, sizes); i++)
        fprintf(out, "%s%" PRId64, i ? "," : "", aril__message_int_at(m, sizes, i));
    fputc(']', out);
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
    aril__put_count(out, current + old, "layer", "layers");
    if (values) {
        fputs(", ", out);
        aril__put_count(out, values, "parameter", "parameters");
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

static void put_values(FILE *out, const aril__message *blob)
{
    put_blob(out, blob);
    fputs(aril__message_count(blob, "double_data") ? " f64" : " f32", out);
}

/* A single blob, such as a mean: with the mean of each channel. */
static aril_status describe_blob(const char *path, FILE *out)
{
    aril__message *blob = aril__message_load(&aril__caffe_BlobProto, path);
    if (!blob) return aril__latest_status();
    aril__proto_array f = aril__message_array(blob, "data"),
                      d = aril__message_array(blob, "double_data");
    size_t n = d.n ? d.n : f.n;
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        float one = 0;
        double two = 0;
        if (d.n)
            memcpy(&two, (const char *)d.at + 8 * i, 8);
        else
            memcpy(&one, (const char *)f.at + 4 * i, 4);
        sum += two + (double)one;
    }
    fputs("Caffe blob ", out);
    put_values(out, blob);
    if (n) fprintf(out, ", mean %g", sum / (double)n);
    fputc('\n', out);
    aril_status status = aril__message_check(blob);
    aril__message_free(blob);
    return status;
}

static void put_state(FILE *out, int64_t iter, int64_t step, const char *weights)
{
    fprintf(out, "Caffe solver state after iteration %" PRId64 ", step %" PRId64 ", weights ", iter,
            step);
    put_text(out, weights);
    fputs("\n\nhistory\n", out);
}

static aril_status describe_solverstate(const char *path, FILE *out)
{
    aril__message *state = aril__message_load(&aril__caffe_SolverState, path);
    if (!state) return aril__latest_status();
    size_t n = aril__message_count(state, "history");
    put_state(out, aril__message_int(state, "iter"), aril__message_int(state, "current_step"),
              aril__message_text(state, "learned_net"));
    for (size_t i = 0; i < n; i++) {
        fprintf(out, "  %zu ", i);
        put_values(out, aril__message_sub_at(state, "history", i));
        fputc('\n', out);
    }
    aril_status status = aril__message_check(state);
    aril__message_free(state);
    return status;
}

/* ---- the state of a solver in HDF5 ---- */

static bool has_integer(const aril__hdf5 *h, const char *name)
{
    int i = aril__hdf5_find(h, name);
    return i >= 0 && !aril_dtype_is_float(aril__hdf5_array_dtype(h, i));
}

static bool is_solverstate_hdf5(const char *path)
{
    if (!aril__hdf5_is(path)) return false;
    aril__saved_errors before = aril__errors_begin_quiet();
    aril__hdf5_texts history = { 0 };
    aril__hdf5 *h = aril__hdf5_open(path);
    bool is = h && has_integer(h, "iter") && has_integer(h, "current_step") &&
              aril__hdf5_group(h, "history", &history) == 0;
    aril__hdf5_texts_free(&history);
    aril__hdf5_close(h);
    aril__error_release(aril__errors_end(&before));
    return is;
}

static aril_status hdf5_integer(const aril__hdf5 *h, const char *path, const char *name,
                                int64_t *to)
{
    ARIL_SCOPE;
    aril_tensor *t = aril__hdf5_array(h, aril__hdf5_find(h, name));
    if (aril_tensor_status(t) != ARIL_OK) return aril_tensor_status(t);
    if (aril_numel(t) != 1)
        return aril__fail(ARIL_ERR_FORMAT, "%s: '%s' has %lld numbers, expected one", path, name,
                          (long long)aril_numel(t));
    *to = aril_item_int(t);
    return ARIL_OK;
}

static aril_status describe_solverstate_hdf5(const char *path, FILE *out)
{
    aril__hdf5_texts net = { 0 };
    int64_t iter = 0, step = 0;
    aril__hdf5 *h = aril__hdf5_open(path);
    if (!h) return aril__latest_status();
    aril_status status = aril__hdf5_text_array(h, "learned_net", &net);
    if (status == ARIL_OK) status = hdf5_integer(h, path, "iter", &iter);
    if (status == ARIL_OK) status = hdf5_integer(h, path, "current_step", &step);
    if (status == ARIL_OK) {
        put_state(out, iter, step, net.n ? net.at[0] : "");
        for (int k = 0;; k++) {
            char name[32], shape[ARIL__SHAPE_TEXT];
            snprintf(name, sizeof name, "history/%d", k);
            int i = aril__hdf5_find(h, name);
            if (i < 0) break;
            aril_shape s = aril__hdf5_array_shape(h, i);
            fprintf(out, "  %d %s %s\n", k, aril__shape_text(shape, s.ndim, s.dim),
                    aril_dtype_name(aril__hdf5_array_dtype(h, i)));
        }
    }
    aril__hdf5_texts_free(&net);
    aril__hdf5_close(h);
    return status;
}

/* ---- files ---- */

const aril__describer aril__binaryproto_describer = { ".binaryproto", .describe = describe_blob };
const aril__describer aril__solverstate_describer = { ".solverstate",
                                                      .describe = describe_solverstate };
const aril__describer aril__solverstate_hdf5_describer = { .is = is_solverstate_hdf5,
                                                           .describe = describe_solverstate_hdf5 };
const aril__describer aril__caffemodel_describer = { ".caffemodel",
                                                     .describe = describe_caffemodel };
const aril__describer aril__prototxt_describer = { ".prototxt", .describe = describe_prototxt };

/* The kind of a file by its contents, or by its name; NULL: none. One in HDF5 with another name is
 * a file of arrays. */
static const aril__describer *kind_of(const char *path)
{
    size_t n = path ? strlen(path) : 0;
    for (int i = 0; path && aril__describers[i]; i++) {
        const aril__describer *d = aril__describers[i];
        size_t length = d->ending ? strlen(d->ending) : 0;
        if (d->ending ? n >= length && strcmp(path + n - length, d->ending) == 0 : d->is(path))
            return d->ending && aril__hdf5_is(path) ? NULL : d;
    }
    return NULL;
}

bool aril_describes_file(const char *path)
{
    return kind_of(path) != NULL;
}

aril_status aril_describe_file(const char *path, FILE *out)
{
    const aril__describer *kind = kind_of(path);
    if (!path || !out)
        return aril__fail(ARIL_ERR_ARG, "describe_file: expected a path and a file, got NULL");
    if (!kind)
        return aril__fail(ARIL_ERR_ARG,
                          "describe_file: expected a file named .onnx, .caffemodel, .prototxt, "
                          ".binaryproto or .solverstate, got %s",
                          path);
    return kind->describe(path, out);
}
