#include "caffe.h"
#include "commands.h"
#include "model_file.h"
#include "weights_file.h"

#include <string.h>

typedef struct options {
    const char *input;
    int64_t classes, batch;
    bool tree;
    weights_options weights;
    caffe_state caffe;
} options;

/* What the zoo says about a network. */
static void print_entry(const aril_zoo_entry *e)
{
    char path[4096];
    printf("%s: %s\n", e->name, e->about);
    if (e->paper) printf("Published as: %s, %d\n", e->paper, e->year);
    if (!e->weights.url) return;
    if (aril_zoo_weights_path(e, path, sizeof path))
        printf("Weights: %s\n", path);
    else
        printf("Weights: %s\n", e->weights.url);
}

/* From shapes alone: the largest networks would not fit in memory. */
static int show_entry(const char *name, const options *o, aril_shape input)
{
    const aril_zoo_entry *e = aril_zoo_find(name);
    aril_zoo_opts opts = { .input = input, .classes = o->classes };
    aril_cost cost; /* tells what is wrong with the input before anything is printed */
    if (!e || aril_zoo_cost(e, opts, &cost) < 0) return report("show");
    print_entry(e);
    if (o->tree)
        aril_zoo_print(e, opts, stdout);
    else
        aril_zoo_summary(e, opts, stdout, (aril_summary_opts){ .batch = o->batch });
    return aril_ok() ? EXIT_DONE : report("show");
}

static bool is_prototxt(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot && (strcmp(dot, ".prototxt") == 0 || strcmp(dot, ".pbtxt") == 0);
}

#define CAFFE_OPTIONS "phase stage level "

static int run(void *values, int n, char **argument)
{
    (void)n;
    const options *o = values;
    bool by_name = model_is_name(argument[0]);
    model_file m = { 0 };
    aril_shape input = { 0 };
    char text[128];
    if (!by_name && (o->input || o->classes)) {
        fputs("aril show: --input and --classes are only for networks of the zoo\n", stderr);
        return EXIT_USAGE;
    }
    if (o->input && !shape_read(o->input, &input)) {
        fprintf(stderr, "aril show: --input expects a shape such as 3x224x224, got '%s'\n",
                o->input);
        return EXIT_USAGE;
    }
    if (aril_describes_file(argument[0]) && o->tree) {
        fputs("aril show: --tree is only for networks of Aril\n", stderr);
        return EXIT_USAGE;
    }
    bool caffe = is_prototxt(argument[0]);
    if (!arguments_without(&command_show, o, CAFFE_OPTIONS, !caffe,
                           caffe ? "a net of Caffe" : "a model that is no .prototxt"))
        return EXIT_USAGE;
    int shown = caffe ? caffe_show(argument[0], &o->caffe) : -1;
    if (shown >= 0) return shown;
    if (aril_describes_file(argument[0]))
        return aril_describe_file(argument[0], stdout) == ARIL_OK ? EXIT_DONE : report("show");
    if (by_name) return show_entry(argument[0], o, input);
    if (!o->tree && weights_is_file(argument[0])) return weights_show(argument[0], &o->weights);
    if (aril_ok() &&
        !arguments_without(&command_show, o, "root all depth ", true, "a trained network"))
        return EXIT_USAGE;
    if (!aril_ok() || !model_open(argument[0], &m)) {
        model_close(&m);
        return report("show");
    }
    if (m.path && !model_is_keras(&m)) {
        print_text(stdout, m.path);
        printf(": %s for %s, %lld %s", m.name, shape_text(m.input, text, sizeof text),
               (long long)m.classes,
               m.regression ? (m.classes == 1 ? "number" : "numbers") : "classes");
        if (m.data && *m.data) printf(", trained on ");
        print_text(stdout, m.data);
        puts("");
    }
    if (o->tree)
        aril_module_print(m.net, stdout);
    else
        aril_summary_with(m.net, m.input, stdout,
                          (aril_summary_opts){ .batch = o->batch,
                                               .dtype = aril_zoo_find(m.name)->dtype });
    model_close(&m);
    return aril_ok() ? EXIT_DONE : report("show");
}

static const option table[] = {
    { .name = "batch",
      .value = "N",
      .kind = OPTION_INTEGER,
      OPTION_AT(batch),
      .min = 1,
      .help = "batch size for the memory estimate" },
    { .name = "input",
      .value = "SHAPE",
      .kind = OPTION_STRING,
      OPTION_AT(input),
      .by_default = "that of the network",
      .help = "shape of one sample, such as 3x32x32; for networks of the zoo" },
    { .name = "classes",
      .value = "N",
      .kind = OPTION_INTEGER,
      OPTION_AT(classes),
      .min = 1,
      .by_default = "that of the network",
      .help = "number of classes or outputs; for networks of the zoo" },
    { .name = "tree", OPTION_AT(tree), .help = "print the module tree instead, as PyTorch does" },
    { .name = "root",
      .value = "PART",
      .kind = OPTION_STRING,
      OPTION_AT(weights.root),
      .by_default = "the weights of the model",
      .help = "weights: the part of a checkpoint to list, such as optimizer.state" },
    { .name = "all", OPTION_AT(weights.all), .help = "weights: list everything in a checkpoint" },
    { .name = "depth",
      .value = "N",
      .kind = OPTION_INTEGER,
      OPTION_AT(weights.depth),
      .min = 1,
      .by_default = "every tensor",
      .help = "weights: one line for tensors whose names begin with the same N parts" },
    CAFFE_OPTION_PHASE(caffe, "TRAIN for a net with data layers, TEST for others"),
    CAFFE_OPTION_STAGE(caffe),
    CAFFE_OPTION_LEVEL(caffe),
    { 0 },
};

static const example examples[] = {
    { "aril show lenet5", "layers, parameters, FLOPs and memory of LeNet-5" },
    { "aril show train_val.prototxt --phase TEST",
      "layers, outputs and parameters of a Caffe net" },
    { "aril show model.onnx", "the graph of an ONNX model, with inferred sizes" },
    { "aril show resnet18.pth", "names, dtypes and shapes of the weights in a file" },
    { "aril show convnet --input 3x32x32 --batch 64", "for another input shape and batch size" },
    { 0 },
};

const command command_show = {
    .name = "show",
    .summary = "print the layers of a network, or the weights in a file",
    .arguments = "MODEL",
    .about = "MODEL is a file or folder written by `aril train`, the name of a network (`aril zoo` "
             "lists them), a model of ONNX (.onnx) or Caffe (.caffemodel, .prototxt), or a file of "
             "weights: of PyTorch, safetensors, NumPy and others, which is recognized by its "
             "contents.",
    .options = table,
    .examples = examples,
    .size = sizeof(options),
    .defaults = &(const options){ .batch = 1 },
    .min = 1,
    .max = 1,
    .choices = model_names,
    .run = run
};
