#include "caffe.h"
#include "commands.h"
#include "model_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct options {
    int64_t classes, top, threads;
    const char *device, *weights, *root, *labels;
    bool json, invert, is_caffe;
    caffe_predict_options caffe;
} options;

/* Resizes an image to the size that the network expects, unless it has it. */
static aril_tensor *fit_image(const model_file *m, aril_tensor *x)
{
    int64_t height = m->input.dim[1], width = m->input.dim[2];
    if (!m->prepared && aril_size(x, 1) == height && aril_size(x, 2) == width) return x;
    aril_transform *fit = m->prepared
                              ? model_prepare(m)
                              : aril_transform_resize(height, width, (aril_resize_opts){ 0 });
    x = aril_transform_image(fit, x, NULL);
    aril_transform_free(fit);
    return x;
}

/* Reads an image file as the network expects it: channels, size, normalization. [1,C,H,W] */
static aril_tensor *read_image(const model_file *m, const char *path, bool invert)
{
    aril_image_opts opts = { .channels = m->input.dim[0] == 1 ? 1 : 3 };
    if (!m->prepared) opts.min_height = m->input.dim[1], opts.min_width = m->input.dim[2];
    aril_tensor *x = fit_image(m, aril_image_read(path, opts));
    x = aril_div_scalar(aril_cast(x, ARIL_F32), 255);
    if (invert) x = aril_add_scalar(aril_neg(x), 1);
    aril_transform *normalize = model_normalize(m);
    if (normalize) x = aril_transform_image(normalize, x, NULL);
    aril_transform_free(normalize);
    return aril_unsqueeze(x, 0);
}

/* The prediction for one sample: the most likely classes, or numbers. */
typedef struct prediction {
    int64_t n;
    const int64_t *class; /* NULL: numbers */
    const float *value;   /* probabilities, or the predicted numbers */
} prediction;

static void print_json(const model_file *m, const char *path, int64_t row, const prediction *a,
                       bool first)
{
    printf("%s\n  {\"file\": ", first ? "" : ",");
    print_json_text(path);
    if (row) printf(", \"row\": %lld", (long long)row);
    if (a->class) {
        printf(", \"predictions\": [");
        for (int64_t i = 0; i < a->n; i++) {
            char number[32];
            printf("%s{\"class\": ", i ? ", " : "");
            if (m->class_name)
                print_json_text(m->class_name[a->class[i]]);
            else
                print_json_text(model_class(m, a->class[i], number, sizeof number));
            printf(", \"index\": %lld, \"probability\": %.6g}", (long long)a->class[i],
                   (double)a -> value[i]);
        }
        printf("]}");
        return;
    }
    printf(a->n > 1 ? ", \"prediction\": [" : ", \"prediction\": ");
    for (int64_t i = 0; i < a->n; i++) printf("%s%.7g", i ? ", " : "", (double)a->value[i]);
    printf(a->n > 1 ? "]}" : "}");
}

/* Prints the prediction of an image below its name; that of a row on one line. */
static void print_prediction(const model_file *m, int64_t row, const prediction *a)
{
    char name[256];
    if (row) printf("  %6lld  ", (long long)row);
    if (!a->class) {
        if (!row) printf("  ");
        if (m->target) printf("%s ", printable(m->target, name, sizeof name));
        for (int64_t i = 0; i < a->n; i++) printf("%s%.7g", i ? ", " : "", (double)a->value[i]);
        puts("");
        return;
    }
    for (int64_t i = 0; i < a->n; i++) {
        const char *class = model_class(m, a->class[i], name, sizeof name);
        double percent = 100 * (double)a->value[i];
        if (row)
            printf("%s%s %.1f %%", i ? ", " : "", class, percent);
        else
            printf("  %5.1f %%  %s\n", percent, class);
    }
    if (row) puts("");
}

/* Prints the predictions for a batch [N,...]; rows count from `row`, 0: it is an image. */
static bool predict_batch(const model_file *m, const char *path, aril_tensor *x, int64_t row,
                          const options *o, bool *first)
{
    ARIL_SCOPE;
    ARIL_INFERENCE;
    prediction a = { .n = m->regression ? m->classes : o->top < m->classes ? o->top : m->classes };
    aril_tensor *which = NULL, *y = aril_forward(m->scaled, aril_to(x, device_option(o->device)));
    if (!m->regression) {
        if (!o->is_caffe) y = aril_softmax(y, -1);
        y = aril_topk(y, a.n, -1, (aril_topk_opts){ 0 }, &which);
        a.class = aril_data(which);
    }
    a.value = aril_data(aril_cast(y, ARIL_F32));
    if (!a.value || (which && !a.class) || !aril_ok()) return false;
    for (int64_t i = 0; i < aril_size(x, 0); i++) {
        if (o->json)
            print_json(m, path, row ? row + i : 0, &a, *first);
        else
            print_prediction(m, row ? row + i : 0, &a);
        *first = false;
        a.value += a.n;
        if (a.class) a.class += a.n;
    }
    return true;
}

static void print_path(const char *path, const options *o)
{
    if (o->json) return;
    print_text(stdout, path);
    puts("");
}

static bool predict_image(const model_file *m, const char *path, const options *o, bool *first)
{
    ARIL_SCOPE;
    aril_tensor *x = o->is_caffe ? caffe_image(m, path, &o->caffe)
                                 : read_image(m, path, o->invert); /* [1,C,H,W] */
    if (!aril_ok()) return false;
    print_path(path, o);
    return predict_batch(m, path, x, 0, o, first);
}

/* Predicts the rows of a table: selects the columns used in training by name; ignores a target
 * column. */
static bool predict_rows(const model_file *m, const char *path, const options *o, bool *first)
{
    aril_open_opts opts = model_open_opts(m);
    opts.no_target = true;
    opts.target = NULL;
    aril_dataset *d = aril_dataset_open_with(path, NULL, opts);
    aril_shape shape = d ? aril_dataset_shape(d) : (aril_shape){ 0 };
    if (aril_ok() && (shape.ndim != 1 || shape.dim[0] != m->input.dim[0]))
        aril_fail(ARIL_ERR_SHAPE, "the network expects %lld columns, but %s has %lld",
                  (long long)m->input.dim[0], path, (long long)shape.dim[0]);
    if (!aril_ok()) {
        aril_dataset_release(d);
        return false;
    }
    aril_loader *l = aril_loader_new(d, (aril_loader_opts){ .batch = 1024 });
    int64_t row = 1;
    print_path(path, o);
    for (aril_batch b; l && aril_ok() && aril_loader_next(l, &b); row += b.n)
        predict_batch(m, path, b.x, row, o, first);
    aril_loader_free(l);
    return aril_ok();
}

static int run(void *values, int n, char **argument)
{
    options *o = values;
    model_file m;
    use_threads(o->threads);
    if (!check_device(o->device)) {
        report("predict");
        return EXIT_USAGE;
    }
    model_weights weights = {
        .file = o->weights, .root = o->root, .labels = o->labels, .classes = o->classes
    };
    o->is_caffe = is_caffe(argument[0]);
    o->caffe.weights = o->weights;
    if (o->is_caffe &&
        !arguments_without(&command_predict, o, "classes invert ", true, "a net of Caffe"))
        return EXIT_USAGE;
    if (o->is_caffe ? !caffe_model(argument[0], &o->caffe, &m)
                    : !model_open_with(argument[0], &weights, &m)) {
        if (o->is_caffe) model_close(&m);
        return report("predict");
    }
    if (!model_score_keras(&m) || !model_images_from(&m, o->is_caffe, &o->caffe.images) ||
        (o->labels && !model_read_labels(&m, o->labels))) {
        model_close(&m);
        return report("predict");
    }
    if (o->device) aril_module_to(m.scaled, device_option(o->device));
    bool rows = m.input.ndim == 1;
    if (!rows && m.input.ndim != 3) {
        fprintf(stderr, "aril predict: expected a network for images or tables, got '%s'\n",
                argument[0]);
        model_close(&m);
        return EXIT_FAILED;
    }
    aril_module_eval(m.scaled);
    int status = EXIT_DONE;
    bool first = true;
    if (!o->top) o->top = m.weights ? 5 : 3;
    if (o->json) printf("[");
    for (int i = 1; i < n; i++)
        if (!(rows ? predict_rows : predict_image)(&m, argument[i], o, &first))
            status = report("predict");
    if (o->json) puts("\n]");
    model_close(&m);
    return status;
}

static const option table[] = {
    { .name = "top",
      .value = "N",
      .kind = OPTION_INTEGER,
      OPTION_AT(top),
      .min = 1,
      .by_default = "3, or 5 for a network by name",
      .help = "number of classes to print for each image or row" },
    OPTION_WEIGHTS,
    OPTION_ROOT,
    OPTION_CLASSES,
    OPTION_LABELS(labels),
    { .name = "json", OPTION_AT(json), .help = "print the predictions as JSON" },
    { .name = "invert",
      OPTION_AT(invert),
      .help = "invert the brightness, for dark on white images where the network was trained on "
              "white on black" },
    OPTION_THREADS,
    OPTION_DEVICE("device to compute on"),

    { .name = "", .help = "Models of ONNX and nets of Caffe:" },
    OPTION_RESIZE(caffe.images),
    OPTION_MEAN(caffe.images),
    OPTION_STD(caffe.images),
    OPTION_SCALE(caffe.images),
    OPTION_BGR(caffe.images),
    { 0 },
};

static const example examples[] = {
    { "aril predict quickstart boot.png shirt.jpg", "the most likely classes of two images" },
    { "aril predict model.safetensors *.png --top 1 --json", "as JSON for other programs" },
    { "aril predict resnet50 dog.jpg", "by the published weights, the five most likely classes" },
    { "aril predict mlp-houses new.csv", "a price for each row of a table" },
    { "aril predict resnet18.onnx dog.jpg --mean 123.675,116.28,103.53 --std 58.395,57.12,57.375 "
      "--resize 256",
      "a model of ONNX, with the normalization that PyTorch's networks for ImageNet expect" },
    { "aril predict deploy.prototxt --weights net.caffemodel --mean 104,117,123 --bgr --labels "
      "synset_words.txt cat.jpg",
      "a net of Caffe" },
    { 0 },
};

const command command_predict = {
    .name = "predict",
    .summary = "predict classes or values of images or table rows",
    .arguments = "MODEL FILE...",
    .about =
        "MODEL is a file or folder written by `aril train`, the name of a network (with --weights, "
        "or its published weights, which `aril zoo get` downloads), a model of ONNX or Keras "
        "(.onnx, .keras, .h5) with one input and scores of classes, or a net of Caffe with one "
        "image as input. Images (JPEG, "
        "PNG) are resized and "
        "converted to the size and channels that the network expects. For a network trained on "
        "a table, the files are tables: columns are matched by name, others are ignored. Files "
        "that cannot be read are reported and skipped; the exit status is then 1.",
    .options = table,
    .examples = examples,
    .size = sizeof(options),
    .defaults = &(const options){ 0 },
    .min = 2,
    .max = -1,
    .run = run
};
