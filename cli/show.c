#include "commands.h"
#include "model_file.h"

typedef struct options {
    const char *input;
    int64_t classes, batch;
    bool tree;
} options;

static int run(void *values, int n, char **argument)
{
    (void)n;
    const options *o = values;
    bool by_name = model_is_name(argument[0]);
    model_file m = { 0 };
    aril_shape input = { 0 };
    char text[128];
    if (!by_name && (o->input || o->classes)) {
        fputs("aril show: --input and --classes are for networks by name\n", stderr);
        return EXIT_USAGE;
    }
    if (o->input && !shape_read(o->input, &input)) {
        fprintf(stderr, "aril show: --input takes sizes such as 3x224x224, not '%s'\n", o->input);
        return EXIT_USAGE;
    }
    if (by_name ? !model_create(argument[0], input, o->classes, &m)
                : !model_open(argument[0], &m)) {
        model_close(&m);
        return report("show");
    }
    if (m.path) {
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
        aril_summary_with(m.net, m.input, stdout, (aril_summary_opts){ .batch = o->batch });
    model_close(&m);
    return aril_ok() ? EXIT_DONE : report("show");
}

#define AT(field) .at = offsetof(options, field)

static const option table[] = {
    { .name = "batch",
      .value = "N",
      .kind = OPTION_WHOLE,
      AT(batch),
      .least = 1,
      .help = "memory for a batch of so many samples; default 1" },
    { .name = "input",
      .value = "SIZES",
      .kind = OPTION_TEXT,
      AT(input),
      .help = "shape of one sample, such as 3x32x32, for a network by name" },
    { .name = "classes",
      .value = "N",
      .kind = OPTION_WHOLE,
      AT(classes),
      .least = 1,
      .help = "results, for a network by name" },
    { .name = "tree", AT(tree), .help = "the modules as PyTorch prints them, instead" },
    { 0 },
};

static const example examples[] = {
    { "aril show lenet5", "the layers of LeNet-5, its parameters, FLOPs and memory" },
    { "aril show convnet --input 3x32x32 --batch 64",
      "the same of another network, for other images" },
    { 0 },
};

const command command_show = {
    .name = "show",
    .summary = "shows the layers of a network",
    .arguments = "MODEL",
    .about = "MODEL is a file or folder that `aril train` has written, or the name of a "
             "network (`aril zoo` lists them).",
    .options = table,
    .examples = examples,
    .size = sizeof(options),
    .defaults = &(const options){ .batch = 1 },
    .least = 1,
    .most = 1,
    .words = model_names,
    .run = run
};
