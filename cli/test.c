#include "commands.h"
#include "parts.h"

#include <aril/datasets.h>
#include <aril/draw.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct options {
    const char *data, *split, *metrics, *loss, *confusion;
    int64_t batch, threads, samples, workers;
    bool json;
} options;

/* A line for each class: how many samples, and how well they were known. */
static void print_classes(const model_file *m, aril_tensor *table)
{
    ARIL_SCOPE;
    int64_t n = aril_size(table, 0);
    const double *count = aril_data(table);
    if (!count) return;
    printf("\n  %-20s %8s %10s %8s %8s\n", "class", "samples", "precision", "recall", "F1");
    for (int64_t i = 0; i < n; i++) {
        char number[32];
        double samples = 0, said = 0, right = count[i * n + i];
        for (int64_t k = 0; k < n; k++) samples += count[i * n + k], said += count[k * n + i];
        double precision = said > 0 ? right / said : 0, recall = samples > 0 ? right / samples : 0;
        double f1 = precision + recall > 0 ? 2 * precision * recall / (precision + recall) : 0;
        printf("  ");
        print_padded(model_class(m, i, number, sizeof number), 20);
        printf(" %8.0f %10.4f %8.4f %8.4f\n", samples, precision, recall, f1);
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

static int evaluate(const model_file *m, aril_dataset *d, const options *o)
{
    aril_sample first = { 0 };
    bool classes;
    {
        ARIL_SCOPE;
        if (aril_dataset_get(d, 0, &first) < 0 || !first.y) {
            if (aril_ok()) fputs("aril test: the samples have no targets\n", stderr);
            aril_dataset_release(d);
            return report("test");
        }
        classes = !aril_dtype_is_float(aril_dtype_of(first.y));
    }
    bool bar = !o->json && isatty(STDOUT_FILENO); /* which shows the figures at its end */
    const char *metrics = o->metrics ? o->metrics : classes ? "accuracy" : "mae";
    aril_loader *l = aril_loader_new(o->samples ? aril_dataset_take(d, o->samples) : d,
                                     (aril_loader_opts){ .batch = o->batch,
                                                         .workers = (int)o->workers,
                                                         .batch_transform = model_normalise(m) });
    aril_model *model = aril_model_new(aril_module_keep(m->net), m->input);
    aril_metric *confusion = classes ? aril_metric_new("confusion", (aril_metric_opts){ 0 }) : NULL;
    aril_model_compile(model, (aril_model_opts){ .loss = o->loss   ? o->loss
                                                         : classes ? "cross_entropy"
                                                                   : "mse",
                                                 .metrics = metrics,
                                                 .own_metrics = { confusion } });
    double loss =
        aril_model_evaluate_loader(model, l, (aril_eval_opts){ .verbose = bar ? 0 : ARIL_SILENT });
    if (aril_ok() && o->json) print_json(model, metrics, loss);
    if (aril_ok() && !o->json && !bar) print_figures(model, metrics, loss);
    if (aril_ok() && classes) {
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
    if (!o->data) {
        fputs("aril test: --data says which dataset\n", stderr);
    } else {
        aril_dataset *d = parts_to_test(o->data, o->split, &m);
        if (d && m.sized && aril_dataset_has_pictures(d))
            d = parts_sized(d, m.input.dim[1], m.input.dim[2]);
        status = d ? evaluate(&m, d, o) : report("test");
    }
    model_close(&m);
    return status;
}

#define AT(field) .at = offsetof(options, field)

static const option table[] = {
    { .name = "data",
      .value = "DATASET",
      .kind = OPTION_TEXT,
      AT(data),
      .words = dataset_names,
      .help = "a name or a path (`aril data --help`); what the model was trained on unless given" },
    { .name = "split",
      .value = "NAME",
      .kind = OPTION_TEXT,
      AT(split),
      .help = "test unless given, or the samples that the training kept apart" },
    { .name = "metrics",
      .value = "NAMES",
      .kind = OPTION_TEXT,
      AT(metrics),
      .words = aril_metric_names,
      .help = "what is measured, with commas between; accuracy, or mae for numbers" },
    { .name = "loss",
      .value = "NAME",
      .kind = OPTION_TEXT,
      AT(loss),
      .help = "cross_entropy, or mse for numbers" },
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
      .help = "samples at once; 256" },
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
      .help = "threads that load samples ahead; 0" },
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
    { "aril test quickstart", "on the test pictures of what it was trained on" },
    { "aril test model.safetensors --data ~/flowers --split test --metrics accuracy,top5,f1",
      "on others, by other measures" },
    { 0 },
};

const command command_test = { .name = "test",
                               .summary = "measures how good a trained network is",
                               .arguments = "MODEL",
                               .about = "MODEL is a file or folder that `aril train` has written.",
                               .options = table,
                               .examples = examples,
                               .size = sizeof(options),
                               .defaults = &(const options){ .batch = 256 },
                               .least = 1,
                               .most = 1,
                               .run = run };
