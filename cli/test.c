#include "commands.h"
#include "parts.h"

#include <aril/datasets.h>
#include <aril/draw.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct options {
    const char *data, *split, *target, *metrics, *loss, *confusion;
    int64_t batch, threads, samples, workers;
    bool json;
} options;

/* One line per class: number of samples, and how well they were classified. Narrow terminals show
 * only the recall. */
static void print_classes(const model_file *m, aril_tensor *table)
{
    enum { FIGURES = 40, NARROW = 55, NAME = 20 };
    ARIL_SCOPE;
    int64_t n = aril_size(table, 0);
    const double *count = aril_data(table);
    int room = terminal_width(stdout);
    bool narrow = room < NARROW;
    int width = room - (narrow ? 22 : FIGURES), longest = NAME; /* fitted to the names */
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
    char names[512], *rest = NULL;
    snprintf(names, sizeof names, "%s", metrics);
    printf("{\"loss\": %.9g", loss);
    for (char *name = strtok_r(names, ", ", &rest); name; name = strtok_r(NULL, ", ", &rest))
        printf(", \"%s\": %.9g", name, aril_model_value(model, name));
    puts("}");
}

static void print_figures(aril_model *model, const char *metrics, double loss)
{
    char names[512], *rest = NULL;
    snprintf(names, sizeof names, "%s", metrics);
    printf("loss %.4f", loss);
    for (char *name = strtok_r(names, ", ", &rest); name; name = strtok_r(NULL, ", ", &rest))
        printf("  %s %.4f", name, aril_model_value(model, name));
    puts("");
}

/* Checks that the samples suit the network. False after a message. */
static bool fits(const model_file *m, aril_dataset *d)
{
    ARIL_SCOPE;
    aril_sample first;
    char have[64], want[64];
    if (aril_dataset_get(d, 0, &first) < 0) return false;
    if (!first.y) return aril_fail(ARIL_ERR_ARG, "the samples have no targets"), false;
    shape_text(aril_shape_of(first.x), have, sizeof have);
    shape_text(m->input, want, sizeof want);
    if (strcmp(have, want) != 0)
        aril_fail(ARIL_ERR_SHAPE, "the network takes samples of %s, and these are %s", want, have);
    if (aril_ok() && !m->regression && aril_dtype_is_float(aril_dtype_of(first.y)))
        aril_fail(ARIL_ERR_DTYPE,
                  "the network tells %lld classes apart, and the targets are numbers",
                  (long long)m->classes);
    return aril_ok();
}

static int evaluate(const model_file *m, aril_dataset *d, const options *o)
{
    bool bar = !o->json && isatty(STDOUT_FILENO); /* the bar ends with the metrics */
    const char *metrics = model_metrics(m, o->metrics);
    aril_loader *l =
        aril_loader_new(d, (aril_loader_opts){ .batch = o->batch,
                                               .workers = (int)o->workers,
                                               .batch_transform = model_normalize(m) });
    aril_model *model = aril_model_new(aril_module_keep(m->scaled), m->input);
    aril_metric *confusion =
        m->regression ? NULL : aril_metric_new("confusion", (aril_metric_opts){ 0 });
    model_compile(m, model, o->loss, metrics, (aril_model_opts){ .own_metrics = { confusion } });
    double loss =
        aril_model_evaluate_loader(model, l, (aril_eval_opts){ .verbose = bar ? 0 : ARIL_SILENT });
    if (aril_ok() && o->json) print_json(model, metrics, loss);
    if (aril_ok() && !o->json && !bar) print_figures(model, metrics, loss);
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
    fputs("'; --data tells where that is now, or names another dataset\n", stderr);
    return status;
}

static int test(const model_file *m, const options *o)
{
    const char *what;
    aril_open_opts opts = model_open_opts(m);
    if (o->target) opts.target = o->target;
    aril_dataset *d = parts_to_test(o->data, o->split, opts, m, &what);
    if (!d) return report_no_data(m, o);
    if (m->sized && aril_dataset_has_images(d))
        d = parts_sized(d, m->input.dim[1], m->input.dim[2]);
    if (d && o->samples) d = aril_dataset_take(d, o->samples);
    if (!d || !fits(m, d)) {
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

static int run(void *values, int n, char **argument)
{
    (void)n;
    options *o = values;
    model_file m;
    use_threads(o->threads);
    if (!measures_known(o->loss, o->metrics)) {
        report("test");
        return EXIT_USAGE;
    }
    if (!model_open(argument[0], &m)) return report("test");
    if (!o->data && m.data && *m.data) o->data = m.data;
    int status = EXIT_USAGE;
    if (!o->data)
        fputs("aril test: --data says which dataset\n", stderr);
    else if (m.regression && o->confusion)
        fputs("aril test: --confusion is for classes, and this network tells numbers\n", stderr);
    else
        status = test(&m, o);
    model_close(&m);
    return status;
}

#define AT(field) .at = offsetof(options, field)

static const option table[] = {
    { .name = "data",
      .value = "DATASET",
      .kind = OPTION_DATA,
      AT(data),
      .words = dataset_names,
      .help = "a name or a path (aril help datasets lists them); what the model was trained on "
              "unless given" },
    { .name = "split",
      .value = "NAME",
      .kind = OPTION_TEXT,
      AT(split),
      .help =
          "test unless given; where there is none: the samples that the training held out, else "
          "val, else all" },
    { .name = "target",
      .value = "COLUMN",
      .kind = OPTION_TEXT,
      AT(target),
      .help = "of a table: the target's column, where it is not called as in the training" },
    { .name = "metrics",
      .value = "NAMES",
      .kind = OPTION_TEXT,
      AT(metrics),
      .words = aril_metric_names,
      .help = "what is measured, with commas between (aril help metrics lists them); as in the "
              "training unless given" },
    { .name = "loss",
      .value = "NAME",
      .kind = OPTION_TEXT,
      AT(loss),
      .help = "as in the training unless given" },
    { .name = "confusion",
      .value = "FILE",
      .kind = OPTION_FILE,
      AT(confusion),
      .help = "draws which classes are taken for which, as .png or .svg" },
    { .name = "batch",
      .value = "N",
      .kind = OPTION_WHOLE,
      AT(batch),
      .least = 1,
      .help = "samples at once; default 256" },
    { .name = "samples",
      .value = "N",
      .kind = OPTION_WHOLE,
      AT(samples),
      .least = 1,
      .help = "the first N samples only" },
    { .name = "workers",
      .value = "N",
      .kind = OPTION_WHOLE,
      AT(workers),
      .most = 1024,
      .help = "threads that load samples ahead; default 0" },
    { .name = "threads",
      .value = "N",
      .kind = OPTION_WHOLE,
      AT(threads),
      .least = 1,
      .help = "as many threads; all CPUs unless given" },
    { .name = "json", AT(json), .help = "prints the figures as JSON" },
    { 0 },
};

static const example examples[] = {
    { "aril test quickstart", "on the test images of what it was trained on" },
    { "aril test model.safetensors --data ~/flowers --split test --metrics accuracy,top5,f1",
      "on others, by other measures" },
    { 0 },
};

const command command_test = {
    .name = "test",
    .summary = "measures how good a trained network is",
    .arguments = "MODEL",
    .about = "MODEL is a file or folder that `aril train` has written. What the "
             "training knew is used again: the dataset, its target, columns "
             "and classes (matched by name), sizes, normalization, loss and "
             "metrics.",
    .options = table,
    .examples = examples,
    .size = sizeof(options),
    .defaults = &(const options){ .batch = 256 },
    .least = 1,
    .most = 1,
    .run = run
};
