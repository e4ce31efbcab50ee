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

bool model_read_onnx(model_file *m)
{
    ARIL_SCOPE;
    ARIL_INFERENCE;
    aril_shape shape;
    aril_program *p = aril_program_load(m->path, (aril_load_opts){ 0 });
    bool good = p && read_shape(p, m, &shape);
    if (good) {
        bool fixed = shape.dim[0] > 0;
        shape.dim[0] = fixed ? shape.dim[0] : 1;
        m->net = aril_module_load(m->path, (aril_load_opts){ 0 });
        if (fixed) m->net = in_batches(m->net, shape.dim[0]);
        aril_tensor *y = aril_forward(m->net, aril_zeros(shape, ARIL_F32, aril_cpu()));
        m->classes = aril_ok() && aril_ndim(y) == 2 ? aril_size(y, 1) : 0;
        if (aril_ok() && m->classes < 1)
            aril_fail(ARIL_ERR_UNSUPPORTED, "'%s': expected a result [batch, classes]", m->path);
        m->name = strdup("onnx");
        m->data = strdup("");
        aril_metadata told = aril_program_metadata(p);
        good = aril_ok() && m->name && m->data && use_metadata(&told, m);
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
