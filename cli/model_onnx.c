/* Models of ONNX as networks, and networks as models of ONNX. */
#include "commands.h"
#include "model_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool model_is_onnx(const char *path)
{
    size_t n = strlen(path);
    return n > 5 && strcmp(path + n - 5, ".onnx") == 0;
}

/* A model that takes batches of one size only, as a module for batches of any. */
typedef struct batches {
    aril_module *net;
    int64_t size;
} batches;

/* The results of one batch of x, which is filled up with zeros where x ends. */
static aril_tensor *forward_part(const batches *b, aril_tensor *x, int64_t from)
{
    int64_t left = aril_size(x, 0) - from, n = left < b->size ? left : b->size;
    aril_tensor *part = aril_narrow(x, 0, from, n);
    if (n < b->size) {
        aril_shape rest = aril_shape_of(x);
        rest.dim[0] = b->size - n;
        aril_tensor *zeros = aril_zeros(rest, aril_dtype_of(x), aril_device_of(x));
        part = aril_cat(ARIL_LIST(part, zeros), 0);
    }
    return aril_narrow(aril_forward(b->net, part), 0, 0, n);
}

static aril_tensor *forward_batches(aril_module *self, aril_tensor *x)
{
    ARIL_SCOPE;
    const batches *b = aril_module_data(self);
    int64_t n = aril_size(x, 0), parts = (n + b->size - 1) / b->size;
    if (n == b->size || parts < 1) return aril_escape(aril_forward(b->net, x));
    aril_tensor **y = calloc((size_t)parts, sizeof *y);
    for (int64_t i = 0; i < parts && y; i++) y[i] = forward_part(b, x, i * b->size);
    if (!y) aril_fail(ARIL_ERR_MEMORY, "out of memory for a batch");
    aril_tensor *all = aril_cat((aril_list){ y ? (int)parts : 0, y }, 0);
    free(y);
    return aril_escape(all);
}

static aril_module *in_batches(aril_module *net, int64_t size)
{
    aril_module *m = aril_module_new("Batches", sizeof(batches), forward_batches);
    batches *b = m ? aril_module_data(m) : NULL;
    if (b)
        *b = (batches){ aril_module_add(m, "net", net), size };
    else
        aril_module_release(net);
    return m;
}

/* Whether scores are probabilities already, as of a model that ends with a softmax. */
static bool are_probabilities(aril_tensor *y)
{
    return aril_item(aril_amin(y, ARIL_ALL)) >= 0 &&
           aril_allclose(aril_sum(y, ARIL_AXES(1)), aril_ones(ARIL_SHAPE(1), ARIL_F32, aril_cpu()),
                         (aril_close_opts){ .atol = 1e-3 });
}

/* The logarithms of probabilities, of which softmax makes these again. */
static aril_tensor *forward_logs(aril_module *self, aril_tensor *x)
{
    return aril_log(aril_clamp_min(aril_forward(aril_module_child(self, 0), x), 1e-30));
}

bool model_set_scores(model_file *m, aril_tensor *y)
{
    bool logs = !m->regression && m->classes > 1 && are_probabilities(y);
    aril_module_release(m->scaled);
    m->scaled = logs ? aril_module_new("Logs", 0, forward_logs) : aril_module_keep(m->net);
    if (logs && m->scaled) aril_module_add(m->scaled, "net", aril_module_keep(m->net));
    return aril_ok();
}

static bool use_metadata(const aril_metadata *from, model_file *m)
{
    const char *name = NULL;
    for (int i = 0; i < from->n; i++)
        if (strcmp(from->key[i], "aril.model") == 0) name = from->value[i];
    if (!name) { /* not written by `aril convert`: images of any size are resized */
        m->sized = m->input.ndim == 3;
        return true;
    }
    if (model_is_name(name)) {
        free(m->name);
        m->name = strdup(name);
    }
    m->in_graph = true;
    if (!m->name || !m->data || !model_read_metadata(from, m)) return false;
    m->prepared &= strcmp(m->name, "onnx") != 0;
    return true;
}

/* One input, whose first size is the batch. */
static bool read_shape(const aril_program *p, model_file *m, aril_shape *shape)
{
    *shape = aril_program_input_shape(p, 0);
    bool fits = aril_program_inputs(p) == 1 && shape->ndim >= 2;
    for (int d = 1; d < shape->ndim && fits; d++) fits = shape->dim[d] > 0;
    if (!fits) {
        aril_fail(ARIL_ERR_UNSUPPORTED,
                  "'%s': expected a model with one input [batch, ...] of known sizes", m->path);
        return false;
    }
    m->input.ndim = shape->ndim - 1;
    memcpy(m->input.dim, shape->dim + 1, (size_t)m->input.ndim * sizeof *shape->dim);
    return true;
}

/* ---- scores ---- */

/* A result [batch, classes, 1, 1], as of a net that ends with a pooling, without the ones. */
static aril_tensor *forward_flat(aril_module *self, aril_tensor *x)
{
    return aril_flatten(aril_forward(aril_module_child(self, 0), x), 1, -1);
}

/* Owns net. */
static aril_module *flat(aril_module *net)
{
    aril_module *m = aril_module_new("Flat", 0, forward_flat);
    if (m)
        aril_module_add(m, "net", net);
    else
        aril_module_release(net);
    return m;
}

static bool is_flat(aril_tensor *y)
{
    bool is = aril_ndim(y) > 2;
    for (int d = 2; d < aril_ndim(y); d++) is = is && aril_size(y, d) == 1;
    return is;
}

/* A model one of whose results is a list of maps, from classes to scores: as a module that returns
 * [batch, classes]. */
typedef struct maps {
    aril_program *program;
    int output;
} maps;

enum { RESULTS = 64 };

/* The scores of one map, in its order. */
static aril_tensor *scores_of(const aril_value *map)
{
    aril_tensor *score[4096];
    int64_t n = aril_value_count(map);
    if (n > 4096) return aril_fail(ARIL_ERR_UNSUPPORTED, "more than 4096 classes in a map"), NULL;
    for (int64_t i = 0; i < n; i++)
        score[i] = aril_reshape(aril_cast(aril_value_tensor(aril_value_at(map, i)), ARIL_F32),
                                ARIL_SHAPE(1));
    return aril_cat((aril_list){ (int)n, score }, 0);
}

static void forward_maps(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                         aril_tensor **result)
{
    (void)n_in, (void)n_out;
    const maps *of = aril_module_data(self);
    aril_value *out[RESULTS] = { 0 };
    aril_tensor *all = NULL;
    if (aril_program_run_values(of->program, ARIL_VALUES(aril_value_of(in[0])), out) == ARIL_OK) {
        const aril_value *list = out[of->output];
        int64_t n = aril_value_count(list);
        aril_tensor **row = calloc((size_t)n + 1, sizeof *row);
        for (int64_t i = 0; i < n && row; i++) row[i] = scores_of(aril_value_at(list, i));
        if (row) all = aril_stack((aril_list){ (int)n, row }, 0);
        free(row);
    }
    result[0] = all;
}

static void free_maps(aril_module *self)
{
    aril_program_free(((maps *)aril_module_data(self))->program);
}

static const aril_module_class maps_class = { .type = "Maps",
                                              .size = sizeof(maps),
                                              .forward = forward_maps,
                                              .destroy = free_maps,
                                              .eager = "it works on maps" };

static bool is_scores(const aril_value *v)
{
    aril_tensor *t = v && aril_value_kind_of(v) == ARIL_VALUE_TENSOR ? aril_value_tensor(v) : NULL;
    return t && aril_dtype_is_float(aril_dtype_of(t)) && (aril_ndim(t) == 2 || is_flat(t));
}

static bool is_maps(const aril_value *v)
{
    return v && aril_value_kind_of(v) == ARIL_VALUE_SEQUENCE && aril_value_count(v) > 0 &&
           aril_value_kind_of(aril_value_at(v, 0)) == ARIL_VALUE_MAP;
}

/* The result that is looked at: scores, of several the first with more than one column; or maps.
 * -1: there is none. */
static int choose(int n, aril_value *const *out)
{
    int one = -1;
    for (int i = 0; i < n; i++) {
        if (is_maps(out[i])) return i;
        if (!is_scores(out[i])) continue;
        if (aril_size(aril_value_tensor(out[i]), 1) > 1) return i;
        if (one < 0) one = i;
    }
    return one;
}

/* Says what the results are instead. */
static void refuse_results(const model_file *m, const aril_program *p, int n,
                           aril_value *const *out)
{
    static const char *const kind[] = { [ARIL_VALUE_TENSOR] = "a tensor",
                                        [ARIL_VALUE_TEXT] = "strings",
                                        [ARIL_VALUE_SEQUENCE] = "a sequence",
                                        [ARIL_VALUE_MAP] = "a map",
                                        [ARIL_VALUE_OPTIONAL] = "an optional" };
    char text[600] = "";
    size_t used = 0;
    for (int i = 0; i < n && used < sizeof text; i++) {
        aril_shape s = aril_value_shape(out[i]);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%.60s is %s", i ? ", " : "",
                                 aril_program_output_name(p, i), kind[aril_value_kind_of(out[i])]);
        for (int d = 0; d < s.ndim && used < sizeof text; d++)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%lld%s", d ? "," : " [",
                                     (long long)s.dim[d], d + 1 < s.ndim ? "" : "]");
    }
    aril_fail(ARIL_ERR_UNSUPPORTED, "'%s': expected a result [batch, classes]: %s", m->path, text);
}

/* Classes have the names of a map's keys. */
static bool name_classes(model_file *m, const aril_value *map)
{
    aril_value *keys = aril_value_keys(map);
    int n = (int)aril_value_count(map);
    char number[32];
    char **name = calloc((size_t)n + 1, sizeof *name);
    bool good = name != NULL;
    const int64_t *at =
        aril_value_kind_of(keys) == ARIL_VALUE_TENSOR ? aril_data(aril_value_tensor(keys)) : NULL;
    for (int i = 0; i < n && good; i++) {
        snprintf(number, sizeof number, "%lld", at ? (long long)at[i] : 0);
        good = (name[i] = strdup(at ? number : aril_value_string(keys, i))) != NULL;
    }
    if (!good) aril_fail(ARIL_ERR_MEMORY, "out of memory");
    good = good && model_set_classes(m, n, (const char *const *)name);
    for (int i = 0; i < n && name; i++) free(name[i]);
    free(name);
    return good;
}

/* The module whose result are scores of classes; takes the program where it needs it. */
static bool open_scores(model_file *m, aril_program **p, aril_shape shape, bool fixed)
{
    aril_value *out[RESULTS] = { 0 };
    int n = aril_program_outputs(*p);
    if (n > RESULTS)
        return aril_fail(ARIL_ERR_UNSUPPORTED, "'%s': more than %d results", m->path, RESULTS),
               false;
    aril_tensor *x = aril_zeros(shape, aril_program_input_dtype(*p, 0), aril_cpu());
    if (aril_program_run_values(*p, ARIL_VALUES(aril_value_of(x)), out) < 0) return false;
    int k = choose(n, out);
    if (k < 0) return refuse_results(m, *p, n, out), false;
    const char *name = aril_program_output_name(*p, k);
    if (n > 1) fprintf(stderr, "aril: %s: looking at the result %s\n", m->path, name);
    if (is_maps(out[k])) {
        m->net = aril_module_make(&maps_class);
        if (!m->net) return false;
        *(maps *)aril_module_data(m->net) = (maps){ *p, k };
        *p = NULL;
        m->classes = aril_value_count(aril_value_at(out[k], 0));
        if (!name_classes(m, aril_value_at(out[k], 0))) return false;
    } else {
        m->net = aril_module_load(m->path, (aril_load_opts){ .output = k ? name : NULL });
        if (m->net && is_flat(aril_value_tensor(out[k]))) m->net = flat(m->net);
        m->classes = aril_size(aril_value_tensor(out[k]), 1);
    }
    if (m->net && fixed) m->net = in_batches(m->net, shape.dim[0]);
    return m->net != NULL;
}

bool model_read_onnx(model_file *m)
{
    ARIL_SCOPE;
    ARIL_INFERENCE;
    aril_shape shape;
    aril_program *p = aril_program_load(m->path, (aril_load_opts){ 0 });
    aril_metadata told = aril_program_metadata(p);
    bool good = p && read_shape(p, m, &shape);
    if (good) {
        bool fixed = shape.dim[0] > 0;
        shape.dim[0] = fixed ? shape.dim[0] : 1;
        aril_program *kept = p;
        good = open_scores(m, &p, shape, fixed);
        told = aril_program_metadata(kept);
        aril_tensor *y =
            good ? aril_forward(m->net, aril_zeros(shape, ARIL_F32, aril_cpu())) : NULL;
        m->name = strdup("onnx");
        m->data = strdup("");
        good = good && aril_ok() && m->name && m->data && use_metadata(&told, m);
        good = good && model_set_scores(m, y);
    }
    aril_program_free(p);
    return good && aril_ok();
}

/* ---- how images are prepared ---- */

bool image_options_given(const image_options *o)
{
    return o->mean || o->std || o->resize || o->bgr || o->scale != 0;
}

bool read_channels(const char *name, const char *text, int64_t channels, double *to)
{
    int n = 0;
    for (const char *at = text; n < MAX_CHANNELS; at++) {
        char *end;
        to[n++] = strtod(at, &end);
        if (end == at || (*end && *end != ',') || !isfinite(to[n - 1])) n = -1;
        if (n < 0 || !*end) break;
        at = end;
    }
    if (n == 1)
        while (n < channels && n < MAX_CHANNELS) to[n++] = to[0];
    if (n == channels) return true;
    aril_fail(ARIL_ERR_ARG, "%s expects a number for each of the %lld channels, got '%s'", name,
              (long long)channels, text);
    return false;
}

bool model_set_images(model_file *m, const image_options *o)
{
    double mean[MAX_CHANNELS] = { 0 }, std[MAX_CHANNELS] = { 1, 1, 1, 1 };
    int64_t channels = m->input.dim[0];
    if (m->input.ndim != 3 || channels > MAX_CHANNELS) {
        aril_fail(ARIL_ERR_ARG, "--mean, --std, --scale, --resize and --bgr are for images");
        return false;
    }
    if ((o->mean && !read_channels("--mean", o->mean, channels, mean)) ||
        (o->std && !read_channels("--std", o->std, channels, std)))
        return false;
    if (o->resize && (!shape_read(o->resize, &m->resize) || m->resize.ndim > 2)) {
        aril_fail(ARIL_ERR_ARG, "--resize expects a size such as 256 or 240x320, got '%s'",
                  o->resize);
        return false;
    }
    double scale = o->scale != 0 ? o->scale : o->mean || o->std ? 1 : 1 / 255.0;
    m->n_channels = (int)channels; /* pixels come from 0 to 1 */
    for (int k = 0; k < channels; k++) {
        m->mean[k] = mean[k] / 255;
        m->std[k] = std[k] / (255 * scale);
        if (std[k] > 0) continue;
        aril_fail(ARIL_ERR_ARG, "--std expects positive numbers, got '%s'", o->std);
        return false;
    }
    m->bgr = o->bgr;
    m->prepared |= o->resize || o->bgr;
    return true;
}

bool model_images_from(model_file *m, bool is_caffe, const image_options *o)
{
    if (is_caffe || !image_options_given(o)) return true;
    if (m->path && (model_is_onnx(m->path) || model_is_keras(m))) return model_set_images(m, o);
    aril_fail(ARIL_ERR_ARG,
              "--mean, --std, --scale, --resize and --bgr are for models of ONNX and Keras and "
              "nets of Caffe; this network knows how its images are prepared");
    return false;
}
