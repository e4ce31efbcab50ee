#include "caffe.h"
#include "commands.h"
#include "datasets.h"

#include <aril/datasets.h>
#include <aril/draw.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct options {
    const char *data, *split, *target, *metrics, *loss, *confusion, *device, *weights, *root,
        *labels;
    int64_t classes, batch, threads, samples, workers;
    bool json;
    image_options images;
    caffe_test_options caffe;
} options;

/* One line per class: number of samples, and how well they were classified. Narrow terminals show
 * only the recall. */
static void print_classes(const model_file *m, aril_tensor *table)
{
    enum { METRICS = 40, NARROW = 55, NAME = 20 };
    ARIL_SCOPE;
    int64_t n = aril_size(table, 0);
    const double *count = aril_data(table);
    int terminal = terminal_width(stdout);
    bool narrow = terminal < NARROW;
    int width = terminal - (narrow ? 22 : METRICS), longest = NAME; /* fitted to the names */
    if (!count) return;
    for (int64_t i = 0; i < n; i++) {
        char number[256];
        int wide = printed_width(model_class(m, i, number, sizeof number));
        if (wide > longest) longest = wide;
    }
    if (width > longest) width = longest;
    printf("\n  %-*s %8s", width, "class", "samples");
    if (narrow)
        printf(" %8s\n", "recall");
    else
        printf(" %9s %8s %8s\n", "precision", "recall", "F1");
    for (int64_t i = 0; i < n; i++) {
        char number[256];
        double samples = 0, said = 0, right = count[i * n + i];
        for (int64_t k = 0; k < n; k++) samples += count[i * n + k], said += count[k * n + i];
        double precision = said > 0 ? right / said : 0, recall = samples > 0 ? right / samples : 0;
        double f1 = precision + recall > 0 ? 2 * precision * recall / (precision + recall) : 0;
        printf("  ");
        print_padded(model_class(m, i, number, sizeof number), width);
        printf(" %8.0f", samples);
        if (narrow)
            printf(" %8.4f\n", recall);
        else
            printf(" %9.4f %8.4f %8.4f\n", precision, recall, f1);
    }
}

static void print_json(aril_model *model, const char *metrics, double loss)
{
    printf("{\"loss\": %.9g", loss);
    for (aril_metric *m; (m = next_metric(&metrics)); aril_metric_free(m))
        printf(", \"%s\": %.9g", aril_metric_label(m),
               aril_model_value(model, aril_metric_label(m)));
    puts("}");
}

static void print_metrics(aril_model *model, const char *metrics, double loss)
{
    printf("loss %.4f", loss);
    for (aril_metric *m; (m = next_metric(&metrics)); aril_metric_free(m))
        printf("  %s %.4f", aril_metric_label(m), aril_model_value(model, aril_metric_label(m)));
    puts("");
}

/* Checks that the samples suit the network. False after a message. */
static bool check_samples(const model_file *m, aril_dataset *d)
{
    ARIL_SCOPE;
    aril_sample first;
    char have[64], want[64];
    if (aril_dataset_get(d, 0, &first) < 0) return false;
    if (!first.y) return aril_fail(ARIL_ERR_ARG, "the samples have no targets"), false;
    shape_text(aril_shape_of(first.x), have, sizeof have);
    shape_text(m->input, want, sizeof want);
    if (strcmp(have, want) != 0)
        aril_fail(ARIL_ERR_SHAPE, "the network expects samples of shape %s, got %s", want, have);
    if (aril_ok() && !m->regression && aril_dtype_is_float(aril_dtype_of(first.y)))
        aril_fail(ARIL_ERR_DTYPE, "the network expects %lld classes as targets, got numbers",
                  (long long)m->classes);
    return aril_ok();
}

static int evaluate(const model_file *m, aril_dataset *d, const options *o)
{
    bool bar = !o->json && isatty(STDOUT_FILENO); /* the bar ends with the metrics */
    const char *metrics = model_metrics(m, o->metrics);
    aril_loader *l = aril_loader_new(d, (aril_loader_opts){ .batch = o->batch ? o->batch : 256,
                                                            .workers = (int)o->workers,
                                                            .batch_transform = model_normalize(m),
                                                            .device = device_option(o->device) });
    aril_model *model = aril_model_new(aril_module_keep(m->scaled), m->input);
    aril_metric *confusion =
        m->regression ? NULL : aril_metric_new("confusion", (aril_metric_opts){ 0 });
    model_compile(m, model, o->loss, metrics, (aril_model_opts){ .own_metrics = { confusion } });
    double loss =
        aril_model_evaluate_loader(model, l, (aril_eval_opts){ .verbose = bar ? 0 : ARIL_SILENT });
    if (aril_ok() && o->json) print_json(model, metrics, loss);
    if (aril_ok() && !o->json && !bar) print_metrics(model, metrics, loss);
    if (aril_ok() && !m->regression) {
        ARIL_SCOPE;
        aril_tensor *table = aril_metric_table(aril_model_metric(model, "confusion"));
        if (!o->json && m->classes <= 100) print_classes(m, table);
        if (o->confusion)
            aril_draw_confusion(o->confusion, table, (const char *const *)m->class_name,
                                (aril_draw_opts){ .title = o->data });
    }
    aril_model_free(model);
    aril_loader_free(l);
    return aril_ok() ? EXIT_DONE : report("test");
}

/* A path is stored as it was given; relative ones fail in another working directory. */
static int report_no_data(const model_file *m, const options *o)
{
    int status = report("test");
    if (o->data != m->data) return status;
    fputs("aril test: the network was trained on '", stderr);
    print_text(stderr, m->data);
    fputs("'; set --data to its current path or to another dataset\n", stderr);
    return status;
}

static int test(const model_file *m, const options *o)
{
    const char *what;
    aril_open_opts opts = model_open_opts(m);
    if (o->target) opts.target = o->target;
    aril_dataset *d = open_test_samples(o->data, o->split, opts, m, &what);
    if (!d) return report_no_data(m, o);
    if (m->sized && !m->prepared && aril_dataset_has_images(d))
        d = resize_images(d, m->input.dim[1], m->input.dim[2]);
    if (d && m->prepared && aril_dataset_has_images(d)) d = prepare_images(d, m);
    if (d && o->samples) d = aril_dataset_take(d, o->samples);
    if (!d || !model_check_classes(m, d) || !check_samples(m, d)) {
        aril_dataset_release(d);
        return report("test");
    }
    if (!o->json) {
        print_text(stdout, o->data);
        printf(", ");
        print_text(stdout, what);
        printf(": %lld samples\n", (long long)aril_dataset_size(d));
        fflush(stdout);
    }
    return evaluate(m, d, o);
}

/* Options that have no effect on the model. */
static bool fit_model(const options *o, bool caffe)
{
    if (caffe)
        return arguments_without(&command_test, o,
                                 "weights threads device model iterations memory stage level ",
                                 false, "a net of Caffe");
    return arguments_without(&command_test, o, "iterations memory stage level ", true,
                             "a model that is no net of Caffe");
}

static int run(void *values, int n, char **argument)
{
    options *o = values;
    model_file m;
    use_threads(o->threads);
    const char *name = o->caffe.model ? o->caffe.model : n ? argument[0] : NULL;
    if (!name || (o->caffe.model && n)) {
        fprintf(stderr, "aril test: expected MODEL%s\n", name ? " or --model, not both" : "");
        return EXIT_USAGE;
    }
    if (!measures_known(o->loss, o->metrics)) {
        report("test");
        return EXIT_USAGE;
    }
    if (!check_device(o->device)) {
        report("test");
        return EXIT_USAGE;
    }
    o->caffe.weights = o->weights;
    if (is_caffe(name) && image_options_given(&o->images)) {
        fputs("aril test: --mean, --std, --scale, --resize and --bgr are for models of ONNX; a net "
              "of Caffe has its own data layers\n",
              stderr);
        return EXIT_USAGE;
    }
    if (!fit_model(o, is_caffe(name))) return EXIT_USAGE;
    if (is_caffe(name)) return caffe_test(name, &o->caffe, o->device);
    model_weights weights = {
        .file = o->weights, .root = o->root, .labels = o->labels, .classes = o->classes
    };
    if (!model_open_with(name, &weights, &m)) return report("test");
    if (!model_score_keras(&m) || !model_images_from(&m, false, &o->images) ||
        (o->labels && !model_read_labels(&m, o->labels))) {
        model_close(&m);
        return report("test");
    }
    if (o->device) aril_module_to(m.scaled, device_option(o->device));
    if (!o->data && m.data && *m.data) o->data = m.data;
    int status = EXIT_USAGE;
    if (!model_check_measures(&m, o->loss, o->metrics))
        report("test");
    else if (!o->data)
        fputs("aril test: expected a dataset, such as --data fashion-mnist\n", stderr);
    else if (m.regression && o->confusion)
        fputs("aril test: --confusion is for classification; this network is a regression\n",
              stderr);
    else
        status = test(&m, o);
    model_close(&m);
    return status;
}

static const option table[] = {
    { .name = "data",
      .value = "DATASET",
      .kind = OPTION_DATASET,
      OPTION_AT(data),
      .choices = dataset_names,
      .by_default = "the one it was trained on",
      .help = "name or path of the dataset (`aril help datasets` lists them)" },
    OPTION_WEIGHTS,
    OPTION_ROOT,
    OPTION_CLASSES,
    OPTION_LABELS(labels),
    { .name = "split",
      .value = "NAME",
      .kind = OPTION_STRING,
      OPTION_AT(split),
      .by_default =
          "test, otherwise the samples held out in training, otherwise val, otherwise all",
      .help = "split to evaluate" },
    OPTION_TARGET("tables: target column, if its name differs from that in training"),
    { .name = "metrics",
      .value = "NAMES",
      .kind = OPTION_LIST,
      OPTION_AT(metrics),
      .choices = aril_metric_names,
      .by_default = "those of the training",
      .help = "metrics, separated by commas (`aril help metrics` lists them)" },
    { .name = "loss",
      .value = "NAME",
      .kind = OPTION_STRING,
      OPTION_AT(loss),
      .by_default = "that of the training",
      .help = "loss function" },
    { .name = "confusion",
      .value = "FILE",
      .kind = OPTION_FILE,
      OPTION_AT(confusion),
      .help = "draw the confusion matrix to this .png or .svg file" },
    { .name = "batch",
      .value = "N",
      .kind = OPTION_INTEGER,
      OPTION_AT(batch),
      .min = 1,
      .by_default = "256",
      .help = "batch size" },
    OPTION_SAMPLES,
    OPTION_WORKERS,
    OPTION_THREADS,
    OPTION_DEVICE("device to compute on"),
    { .name = "json", OPTION_AT(json), .help = "print the results as JSON" },

    { .name = "", .help = "Models of ONNX:" },
    OPTION_RESIZE(images),
    OPTION_MEAN(images),
    OPTION_STD(images),
    OPTION_SCALE(images),
    OPTION_BGR(images),

    { .name = "", .help = "Nets of Caffe:" },
    { .name = "model",
      .value = "NET",
      .kind = OPTION_FILE,
      OPTION_AT(caffe.model),
      .help = "the net, as MODEL" },
    { .name = "iterations",
      .value = "N",
      .kind = OPTION_INTEGER,
      OPTION_AT(caffe.iterations),
      .min = 1,
      .max = 2147483647,
      .help = "number of batches" },
    { .name = "memory",
      .value = "FILE",
      .kind = OPTION_FILE,
      OPTION_AT(caffe.memory),
      .help = CAFFE_MEMORY_HELP },
    CAFFE_OPTION_STAGE(caffe.state),
    CAFFE_OPTION_LEVEL(caffe.state),
    { 0 },
};

static const example examples[] = {
    { "aril test quickstart", "on the test split of the dataset it was trained on" },
    { "aril test model.safetensors --data ~/flowers --split test --metrics accuracy,top5,f1",
      "on another dataset, with other metrics" },
    { "aril test resnet20 --weights resnet20.th --data ~/cifar-10-batches-bin",
      "weights that PyTorch made" },
    { "aril test --model lenet_train_test.prototxt --weights lenet.caffemodel --iterations 100",
      "a net of Caffe on its own data" },
    { 0 },
};

const command command_test = {
    .name = "test",
    .summary = "evaluate a trained network",
    .arguments = "MODEL",
    .about =
        "MODEL is a file or folder written by `aril train`, the name of a network (with --weights, "
        "or its published weights), or a model of ONNX or Keras with one "
        "input and scores of classes. The latter two need --data. Dataset, target, columns, "
        "classes "
        "(matched by name), image size, normalization, loss and metrics are those of the "
        "training unless options say otherwise.\n\n"
        "A MODEL that ends in .prototxt is a net of Caffe: it runs in its test phase on its data "
        "layers, and the means of its outputs are printed.",
    .options = table,
    .examples = examples,
    .size = sizeof(options),
    .defaults = &(const options){ .caffe.iterations = 50 },
    .min = 0,
    .max = 1,
    .run = run
};
