/* Nets of Caffe as models: predict and convert. */
#include "caffe.h"
#include "commands.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);
    return n > k && strcmp(text + n - k, end) == 0;
}

aril_module *caffe_open(const char *net, aril_caffe_opts opts, int64_t batch)
{
    enum { MOST_INPUTS = 64 };
    aril_shape shapes[MOST_INPUTS];
    aril_module *m = aril_caffe_net(net, opts);
    int n = m ? aril_caffe_inputs(m) : 0;
    if (!m || !batch || n > MOST_INPUTS) return m;
    bool differs = false;
    for (int i = 0; i < n; i++) {
        aril_caffe_blob b = aril_caffe_input(m, i);
        shapes[i] = b.known ? b.shape : (aril_shape){ 0 };
        if (!b.known || b.shape.ndim == 0 || b.shape.dim[0] == batch) continue;
        shapes[i].dim[0] = batch;
        differs = true;
    }
    if (!differs) return m;
    aril_module_release(m);
    opts.shapes = shapes;
    opts.n_shapes = n;
    return aril_caffe_net(net, opts);
}

void caffe_random(const char *what, const aril_module *net)
{
    if (!aril_module_built(net) || aril_caffe_params(net) < 1) return;
    fprintf(stderr, "aril %s: without --weights the net is random\n", what);
}

void caffe_report_weights(const char *what, const aril_module *net, bool ignored)
{
    const char *name;
    char text[512];
    for (int i = 0; ignored && (name = aril_caffe_weights_ignored(net, i)); i++)
        fprintf(stderr, "aril %s: Ignoring source layer %s\n", what,
                printable(name, text, sizeof text));
    for (int i = 0; (name = aril_caffe_weights_missing(net, i)); i++)
        fprintf(stderr, "aril %s: layer %s is not in the weights: its blobs stay as initialized\n",
                what, printable(name, text, sizeof text));
}

/* ---- single blobs ---- */

static bool is_array_file(const char *path)
{
    return ends_with(path, ".binaryproto") || ends_with(path, ".npy") || ends_with(path, ".npz") ||
           ends_with(path, ".h5");
}

/* The only array of a file. */
static aril_tensor *read_array(const char *path)
{
    if (ends_with(path, ".binaryproto")) return aril_caffe_blob_load(path);
    if (ends_with(path, ".npy")) return aril_npy_read(path);
    aril_weights *w = aril_weights_open(path, (aril_weights_opts){ .root = "" });
    int n = w ? aril_weights_count(w) : 0;
    aril_tensor *t = NULL;
    if (n == 1)
        t = aril_copy(aril_weights_tensor(w, 0));
    else if (w)
        aril_fail(ARIL_ERR_ARG, "%s has %d arrays; expected one", path, n);
    aril_weights_close(w);
    return t ? t : aril_zeros(ARIL_SHAPE(1), ARIL_F32, aril_cpu());
}

bool caffe_is_blob(const char *from, const char *to)
{
    return ends_with(from, ".binaryproto") || ends_with(to, ".binaryproto");
}

/* Caffe's blobs have four sizes, of which NumPy's programs leave out the first. */
int caffe_convert_blob(const char *from, const char *to)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    bool npy = ends_with(to, ".npy"), blob = ends_with(to, ".binaryproto");
    if (!npy && !blob && !weights_is_output(to)) {
        fprintf(stderr,
                "aril convert: expected a file .npy, .npz, .h5, .safetensors, .pt or .binaryproto "
                "to write, got '%s'\n",
                to);
        return EXIT_USAGE;
    }
    aril_tensor *t = read_array(from);
    if (!aril_ok()) return report("convert");
    if (!blob && aril_ndim(t) == 4 && aril_size(t, 0) == 1) t = aril_squeeze(t, ARIL_AXES(0));
    while (blob && aril_ndim(t) < 4) t = aril_unsqueeze(t, 0);
    if (blob)
        aril_caffe_blob_save(to, t);
    else if (npy)
        aril_npy_write(to, t);
    else
        aril_weights_save(to, &(aril_named){ .n = 1, .at = &t, .name = (const char *[]){ "mean" } },
                          (aril_weights_save_opts){ 0 });
    return aril_ok() ? EXIT_DONE : report("convert");
}

/* ---- predict ---- */

/* The first output as scores of classes: what is beside the first axis. */
static aril_tensor *scores(aril_module *self, aril_list in)
{
    const bool *softmax = aril_module_data(self);
    aril_tensor *y = aril_forward_n(aril_module_child(self, 0), in);
    if (aril_ndim(y) > 2) y = aril_flatten(y, 1, -1);
    return *softmax ? aril_softmax(y, -1) : y;
}

/* Whether scores are probabilities already, as of a net that ends with a Softmax layer. */
static bool are_probabilities(aril_tensor *y)
{
    return aril_item(aril_amin(y, ARIL_ALL)) >= 0 &&
           fabs(aril_item(aril_sum(y, ARIL_ALL)) - 1) < 1e-3;
}

bool caffe_model(const char *path, const caffe_predict_options *o, model_file *m)
{
    ARIL_SCOPE;
    ARIL_INFERENCE;
    *m = (model_file){ .path = strdup(path), .name = strdup("caffe") };
    m->net = caffe_open(path, (aril_caffe_opts){ .weights = o->weights }, 1);
    if (!m->net) return false;
    aril_caffe_blob in = aril_caffe_input(m->net, 0);
    if (aril_caffe_inputs(m->net) != 1 || !in.known || in.shape.ndim != 4 ||
        aril_caffe_outputs(m->net) < 1) {
        aril_fail(ARIL_ERR_ARG,
                  "expected a net with one image as input, whose shape the file gives, as a "
                  "deploy.prototxt does; %s has %d inputs and %d outputs",
                  path, aril_caffe_inputs(m->net), aril_caffe_outputs(m->net));
        return false;
    }
    if (o->weights)
        caffe_report_weights("predict", m->net, false);
    else
        caffe_random("predict", m->net);
    m->input = ARIL_SHAPE(in.shape.dim[1], in.shape.dim[2], in.shape.dim[3]);
    m->scaled = aril_module_new_n("Scores", sizeof(bool), scores);
    aril_module_add(m->scaled, "net", aril_module_keep(m->net));
    aril_module_eval(m->scaled);
    aril_tensor *y = aril_forward(m->scaled, aril_zeros(in.shape, ARIL_F32, aril_cpu()));
    if (!aril_ok()) return false;
    m->classes = aril_ndim(y) == 2 ? aril_size(y, 1) : 0;
    if (m->classes < 1) {
        aril_fail(ARIL_ERR_SHAPE, "the output '%s' of %s is no list of scores",
                  aril_caffe_output(m->net, 0).name, path);
        return false;
    }
    *(bool *)aril_module_data(m->scaled) = !are_probabilities(y);
    return aril_ok();
}

/* The image at the size before the crop: --resize, or that of the input. */
static aril_tensor *resized(const char *path, const image_options *o, int64_t channels,
                            int64_t height, int64_t width)
{
    aril_shape size = ARIL_SHAPE(height, width);
    if (o->resize && (!shape_read(o->resize, &size) || size.ndim > 2)) {
        aril_fail(ARIL_ERR_ARG, "--resize expects a size such as 256 or 240x320, got '%s'",
                  o->resize);
        return aril_zeros(ARIL_SHAPE(1), ARIL_F32, aril_cpu());
    }
    aril_tensor *x = aril_image_read(path, (aril_image_opts){ .channels = channels == 1 ? 1 : 3 });
    aril_transform *t =
        ARIL_TRANSFORMS(aril_transform_resize(size.dim[0], size.dim[size.ndim - 1],
                                              (aril_resize_opts){ .no_antialias = true }),
                        aril_transform_center_crop(height, width));
    x = t ? aril_transform_image(t, x, NULL) : x;
    aril_transform_free(t);
    return x;
}

/* The mean in a file: of the channels [C], or an image [1,C,H,W], [C,H,W] or [H,W], cropped. */
static aril_tensor *mean_from(const char *name, const char *path, int64_t channels, int64_t height,
                              int64_t width)
{
    aril_tensor *m = aril_cast(read_array(path), ARIL_F32);
    if (!aril_ok()) return m;
    if (aril_ndim(m) == 4 && aril_size(m, 0) == 1) m = aril_squeeze(m, ARIL_AXES(0));
    if (aril_ndim(m) == 1) m = aril_reshape(m, ARIL_SHAPE(-1, 1, 1));
    if (aril_ndim(m) == 2) m = aril_unsqueeze(m, 0);
    char have[64];
    if (aril_ndim(m) != 3 || aril_size(m, 0) != channels) {
        shape_text(aril_shape_of(m), have, sizeof have);
        aril_fail(ARIL_ERR_SHAPE, "%s: %s has an array of %s; expected a mean of %lld channels",
                  name, path, have, (long long)channels);
        return m;
    }
    if (aril_numel(m) == channels) return m;
    int64_t top = (aril_size(m, 1) - height) / 2, left = (aril_size(m, 2) - width) / 2;
    if (aril_size(m, 1) < height || aril_size(m, 2) < width)
        aril_fail(ARIL_ERR_SHAPE, "the mean in %s is smaller than the input", path);
    else
        m = aril_narrow(aril_narrow(m, 1, top, height), 2, left, width);
    return m;
}

/* Numbers of the channels [C,1,1], or the mean in a file. */
static aril_tensor *mean_of(const char *name, const char *text, int64_t channels, int64_t height,
                            int64_t width)
{
    float value[MAX_CHANNELS] = { 0 };
    if (is_array_file(text)) return mean_from(name, text, channels, height, width);
    double number[MAX_CHANNELS] = { 0 };
    read_channels(name, text, channels, number);
    for (int k = 0; k < MAX_CHANNELS; k++) value[k] = (float)number[k];
    return aril_from(value, ARIL_SHAPE(channels <= MAX_CHANNELS ? channels : 1, 1, 1), ARIL_F32,
                     aril_cpu());
}

aril_tensor *caffe_image(const model_file *m, const char *path, const caffe_predict_options *opts)
{
    const image_options *o = &opts->images;
    int64_t channels = m->input.dim[0], height = m->input.dim[1], width = m->input.dim[2];
    aril_tensor *x = resized(path, o, channels, height, width);
    if (!aril_ok()) return x;
    x = aril_cast(x, ARIL_F32);
    if (o->bgr && channels == 3) x = aril_flip(x, ARIL_AXES(0));
    if (o->mean) x = aril_sub(x, mean_of("--mean", o->mean, channels, height, width));
    if (o->std) x = aril_div(x, mean_of("--std", o->std, channels, height, width));
    if (o->scale != 0) x = aril_mul_scalar(x, o->scale);
    return aril_unsqueeze(x, 0);
}

/* ---- convert ---- */

/* Whether the sizes of all inputs are known; an error if not. */
static bool knows_inputs(const aril_module *net, const char *from, const char *to)
{
    for (int i = 0; i < aril_caffe_inputs(net) && aril_ok(); i++) {
        aril_caffe_blob b = aril_caffe_input(net, i);
        if (!b.known)
            aril_fail(ARIL_ERR_STATE,
                      "the shape of the input '%s' is not known from %s; give a net with Input "
                      "layers: aril convert deploy.prototxt %s --weights FILE",
                      b.name, from, to);
    }
    return aril_ok();
}

/* Inputs and outputs keep the names of their blobs. Not every layer can be written for a batch of
 * any size: losses divide by it, and the first axis of a sequence is the time. */
static void export_onnx(aril_module *net, const char *from, const char *to, aril_export_opts opts)
{
    ARIL_SCOPE;
    enum { MOST_INPUTS = 16, MOST_OUTPUTS = 63 };
    aril_tensor *in[MOST_INPUTS];
    const char *inputs[MOST_INPUTS], *outputs[MOST_OUTPUTS + 1];
    int n = aril_caffe_inputs(net), n_out = aril_caffe_outputs(net);
    if (n > MOST_INPUTS || n_out > MOST_OUTPUTS) {
        aril_fail(ARIL_ERR_UNSUPPORTED, "a net with %d inputs and %d outputs; at most %d and %d", n,
                  n_out, MOST_INPUTS, MOST_OUTPUTS);
        return;
    }
    for (int i = 0; i < n; i++) {
        aril_caffe_blob b = aril_caffe_input(net, i);
        inputs[i] = b.name;
        in[i] = aril_zeros(b.shape, ARIL_F32, aril_cpu());
    }
    for (int i = 0; i < n_out; i++) outputs[i] = aril_caffe_output(net, i).name;
    outputs[n_out] = "total_loss";
    opts.inputs = inputs;
    opts.outputs = outputs;
    if (!aril_ok()) return;
    aril_status s = aril_module_export(net, (aril_list){ .n = n, .at = in }, to, opts);
    if (s == ARIL_OK || !opts.batch) return;
    aril_clear_error();
    opts.batch = false;
    if (aril_module_export(net, (aril_list){ .n = n, .at = in }, to, opts) == ARIL_OK)
        fprintf(stderr,
                "aril convert: %s cannot be written for batches of any size: %s has the sizes of "
                "its inputs, as with --fixed\n",
                from, to);
}

/* The blobs of a caffemodel need no net. */
static int convert_blobs(const char *from, const char *to, const weights_options *o)
{
    if (ends_with(to, ".h5") && !ends_with(from, ".h5")) { /* as Caffe writes them */
        aril_caffe_upgrade(from, to, true);
        return aril_ok() ? EXIT_DONE : report("convert");
    }
    weights_options same = *o;
    same.all |= ends_with(to, ".h5") && !o->root; /* HDF5 keeps its names: data/conv1/0 */
    return weights_convert(from, to, &same);
}

static int convert_net(const char *from, const char *to, const char *weights, aril_export_opts opts)
{
    bool model = !ends_with(from, ".prototxt") && !ends_with(from, ".pbtxt");
    aril_caffe_opts of = { .weights = weights ? weights : model ? from : NULL };
    aril_module *net = caffe_open(from, of, 0);
    if (!net && model) { /* the net of a training, whose data layers are not for tests */
        char why[512];
        snprintf(why, sizeof why, "%s", aril_error());
        aril_status code = aril_error_code();
        aril_clear_error();
        aril_fail(code,
                  "%s. The net in the file is that of the training; give one with Input layers: "
                  "aril convert deploy.prototxt %s --weights %s",
                  why, to, from);
    }
    if (net && weights) caffe_report_weights("convert", net, false);
    if (net && !weights && !model) caffe_random("convert", net);
    if (net) aril_module_eval(net);
    if (net && knows_inputs(net, from, to)) {
        if (ends_with(to, ".onnx"))
            export_onnx(net, from, to, opts);
        else if (ends_with(to, ".caffemodel") || ends_with(to, ".h5"))
            aril_caffe_weights_save(net, to);
        else
            aril_save(net, to);
    }
    aril_module_release(net);
    return aril_ok() ? EXIT_DONE : report("convert");
}

/* Whether the net has sizes without data: its parameters are then known. */
static bool is_sized(const char *from)
{
    aril_module *net = caffe_open(from, (aril_caffe_opts){ 0 }, 0);
    bool sized = net && aril_module_built(net);
    aril_module_release(net);
    return sized;
}

bool caffe_keeps_blobs(const char *from, const char *to, const char *weights)
{
    bool net = ends_with(from, ".prototxt") || ends_with(from, ".pbtxt");
    const char *blobs = weights ? weights : from;
    if (!weights_is_output(to) || (net && !weights)) return false;
    if (ends_with(to, ".h5") && !ends_with(blobs, ".h5")) return false; /* as Caffe writes them */
    bool keeps = !net || !is_sized(from);
    aril_clear_error(); /* caffe_convert finds it again */
    return keeps;
}

int caffe_convert(const char *from, const char *to, const char *weights, aril_export_opts opts,
                  const weights_options *o)
{
    bool text = ends_with(to, ".prototxt"), onnx = ends_with(to, ".onnx"),
         caffe = ends_with(to, ".caffemodel");
    bool net = ends_with(from, ".prototxt") || ends_with(from, ".pbtxt");
    if (!onnx && !text && !caffe && !weights_is_output(to)) {
        fprintf(stderr,
                "aril convert: expected a file .onnx, .safetensors, .npz, .pt, .h5, .caffemodel or "
                ".prototxt to write, got '%s'\n",
                to);
        return EXIT_USAGE;
    }
    if (text || (caffe && !weights)) {
        aril_caffe_upgrade(from, to, !text);
        return aril_ok() ? EXIT_DONE : report("convert");
    }
    if (onnx || caffe) return convert_net(from, to, weights, opts);
    if (!net) return convert_blobs(weights ? weights : from, to, o);
    bool sized = is_sized(from);
    if (!aril_ok()) return report("convert");
    return sized || !weights ? convert_net(from, to, weights, opts) : convert_blobs(weights, to, o);
}
