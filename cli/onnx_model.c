/* Commands on whole models, of ONNX, of Caffe or of Aril: convert, draw and time. */
#include "caffe.h"
#include "commands.h"
#include "model_file.h"
#include "onnx_sizes.h"
#include "weights_file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* A model that can be run: a program, and an input for it. */
typedef struct runnable {
    model_file file;       /* of Aril; net is NULL for ONNX */
    aril_program *program; /* NULL until it is needed */
    aril_tensor *in[ONNX_INPUTS];
    int n_in;
    onnx_sizes sizes; /* of ONNX */
    /* Of a model of ONNX that takes or returns strings, sequences or maps: what it runs on. */
    aril_value *value[ONNX_INPUTS];
    bool on_values;
} runnable;

static void close_runnable(runnable *r)
{
    aril_program_free(r->program);
    model_close(&r->file);
}

static void forward(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = aril_forward(ctx, in[0]);
}

/* Zeros for one input: sizes that the model leaves open are `batch` if first, else 1. */
static aril_tensor *zeros_for(aril_shape shape, aril_dtype dtype, int64_t batch)
{
    for (int d = 0; d < shape.ndim; d++)
        if (shape.dim[d] < 0) shape.dim[d] = d == 0 ? batch : 1;
    return aril_zeros(shape, dtype, aril_cpu());
}

/* Empty strings. */
static aril_value *no_text(aril_shape shape)
{
    int64_t n = 1;
    for (int d = 0; d < shape.ndim; d++) n *= shape.dim[d];
    const char **text = calloc((size_t)n + 1, sizeof *text);
    for (int64_t i = 0; i < n && text; i++) text[i] = "";
    if (!text) aril_fail(ARIL_ERR_MEMORY, "out of memory");
    aril_value *v = text ? aril_value_text(shape, text) : NULL;
    free(text);
    return v;
}

/* Values of inputs, where some are no tensors: strings are empty, sequences and maps unknown. */
static void set_values(runnable *r)
{
    for (int i = 0; i < r->n_in; i++) {
        aril_value_kind kind = aril_program_input_kind(r->program, i);
        r->on_values |= kind != ARIL_VALUE_TENSOR;
        if (kind == ARIL_VALUE_TENSOR)
            r->value[i] = aril_value_of(r->in[i]);
        else if (kind == ARIL_VALUE_TEXT)
            r->value[i] = no_text(r->sizes.known[i]);
    }
    for (int i = 0; i < aril_program_outputs(r->program); i++)
        r->on_values |= aril_program_output_kind(r->program, i) != ARIL_VALUE_TENSOR;
}

static bool open_onnx(const char *path, int64_t batch, const char *sizes, runnable *r)
{
    r->program = aril_program_load(path, (aril_load_opts){ 0 });
    if (!r->program || !onnx_sizes_read(r->program, sizes, batch, &r->sizes)) return false;
    r->n_in = r->sizes.n;
    for (int i = 0; i < r->n_in; i++)
        r->in[i] =
            aril_zeros(r->sizes.known[i], aril_program_input_dtype(r->program, i), aril_cpu());
    set_values(r);
    return aril_ok();
}

/* Sets an input to one number, by "NAME=NUMBER". */
static bool set_number(runnable *r, const char *entry)
{
    const char *equal = strrchr(entry, '=');
    char *end = NULL;
    double number = equal ? strtod(equal + 1, &end) : 0;
    if (!equal || end == equal + 1 || *end)
        return aril_fail(ARIL_ERR_ARG, "--value: expected NAME=NUMBER, got '%s'", entry), false;
    for (int i = 0; i < r->n_in; i++) {
        const char *name = aril_program_input_name(r->program, i);
        if (strlen(name) != (size_t)(equal - entry) || strncmp(name, entry, strlen(name)) != 0)
            continue;
        if (aril_program_input_kind(r->program, i) != ARIL_VALUE_TENSOR)
            return aril_fail(ARIL_ERR_ARG, "--value: '%s' is not a tensor of numbers", name), false;
        r->in[i] = aril_full(r->sizes.known[i], number, aril_dtype_of(r->in[i]), aril_cpu());
        r->value[i] = aril_value_of(r->in[i]);
        return aril_ok();
    }
    return aril_fail(ARIL_ERR_ARG, "--value: the model has no input '%.*s'", (int)(equal - entry),
                     entry),
           false;
}

static bool set_numbers(runnable *r, const char *given)
{
    char *copy = strdup(given), *rest = copy, *entry;
    bool good = copy != NULL;
    if (!good) aril_fail(ARIL_ERR_MEMORY, "out of memory");
    while (good && (entry = strsep(&rest, ",")) != NULL) good = set_number(r, entry);
    free(copy);
    return good;
}

/* One run; of results that are tensors, or other values. */
static aril_status run_once(const runnable *r)
{
    enum { MOST = 1024 };
    ARIL_SCOPE;
    aril_tensor *out[64];
    if (!r->on_values) return aril_program_run(r->program, (aril_list){ r->n_in, r->in }, out);
    aril_value *values[MOST];
    for (int i = 0; i < r->n_in; i++)
        if (!r->value[i])
            return aril_fail(ARIL_ERR_UNSUPPORTED,
                             "input %s is a sequence, a map or an optional, of which nothing is "
                             "known to run the model on",
                             aril_program_input_name(r->program, i));
    if (aril_program_outputs(r->program) > MOST)
        return aril_fail(ARIL_ERR_UNSUPPORTED, "the model has more than %d outputs", MOST);
    return aril_program_run_values(r->program,
                                   (aril_values){ r->n_in, (aril_value *const *)r->value }, values);
}

/* Which weights a network of the zoo gets. */
typedef struct chosen_weights {
    model_weights w; /* file NULL: none were named */
    bool published;  /* without a file: the published ones, if they are in the cache */
} chosen_weights;

static bool open_by_name(const char *name, const chosen_weights *w, model_file *m)
{
    char path[4096];
    if (w->published && aril_zoo_weights_path(aril_zoo_find(name), path, sizeof path))
        return model_open_zoo(name, &w->w, m);
    return model_create(name, (aril_shape){ 0 }, 0, m) && model_scale(m);
}

static bool open_aril(const char *path, int64_t batch, const chosen_weights *w, runnable *r)
{
    model_file *m = &r->file;
    bool by_name = !w->w.file && model_is_name(path);
    if (by_name ? !open_by_name(path, w, m) : !model_open_with(path, &w->w, m)) return false;
    const aril_zoo_entry *e = model_is_name(m->name) ? aril_zoo_find(m->name) : NULL;
    aril_shape shape = { .ndim = m->input.ndim + 1, .dim = { -1 } };
    memcpy(shape.dim + 1, m->input.dim, (size_t)m->input.ndim * sizeof *shape.dim);
    aril_module_eval(m->scaled);
    r->program = aril_jit(forward, m->scaled, (aril_jit_opts){ .name = m->name });
    r->n_in = 1;
    r->in[0] = zeros_for(shape, e && e->dtype ? e->dtype : ARIL_F32, batch);
    return aril_ok();
}

static bool open_runnable(const char *path, int64_t batch, const char *sizes,
                          const chosen_weights *w, runnable *r)
{
    if (model_is_onnx(path) && !w->w.file) return open_onnx(path, batch, sizes, r);
    if (sizes) return aril_fail(ARIL_ERR_ARG, "--size is for models of ONNX"), false;
    return open_aril(path, batch, w, r);
}

/* ---- convert ---- */

typedef struct convert_options {
    const char *from, *size;
    int64_t opset;
    bool fixed, external;
    weights_options weights;
} convert_options;

/* Says that a network was written without trained weights. */
static void note_untrained(const model_file *m)
{
    const aril_zoo_entry *e = aril_zoo_find(m->name);
    fprintf(stderr, "aril convert: the weights of %s are new and untrained; ", m->name);
    if (e && e->weights.url)
        fprintf(stderr, "`aril zoo get %s` downloads published ones, ", m->name);
    fputs("--weights FILE sets others\n", stderr);
}

/* Refuses options that have no effect on what is written. */
static bool options_fit(const convert_options *o, const char *from, const char *to)
{
    const command *c = &command_convert;
    bool onnx = model_is_onnx(to), caffe = is_caffe(from);
    if (caffe_is_blob(from, to)) return arguments_without(c, o, "", false, "a single array");
    if (caffe && !arguments_without(c, o, "size ", true, "a net of Caffe")) return false;
    if (onnx && !arguments_without(c, o, "all rename dtype part ", true, "a model of ONNX"))
        return false;
    if (!onnx && !arguments_without(c, o, "opset fixed size external ", true,
                                    "a file that is not written as ONNX"))
        return false;
    if (caffe && !caffe_keeps_blobs(from, to, o->from))
        return arguments_without(c, o, "root all rename dtype part ", true,
                                 "a net of Caffe that is written whole");
    return caffe || !onnx || o->from ||
           arguments_without(c, o, "root ", true, "a model without --weights");
}

static int run_convert(void *values, int n, char **argument)
{
    (void)n;
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    const convert_options *o = values;
    runnable r = { 0 };
    if (!options_fit(o, argument[0], argument[1])) return EXIT_USAGE;
    if (caffe_is_blob(argument[0], argument[1]))
        return caffe_convert_blob(argument[0], argument[1]);
    if (is_caffe(argument[0]))
        return caffe_convert(argument[0], argument[1], o->from,
                             (aril_export_opts){ .opset = (int)o->opset,
                                                 .external_data = o->external,
                                                 .batch = !o->fixed },
                             &o->weights);
    if (weights_is_output(argument[1]) && o->from) {
        fprintf(stderr,
                "aril convert: --weights is for a network to write as ONNX; `aril convert %s %s` "
                "converts weights alone\n",
                o->from, argument[1]);
        return EXIT_USAGE;
    }
    if (weights_is_output(argument[1]))
        return weights_convert(argument[0], argument[1], &o->weights);
    if (!model_is_onnx(argument[1])) {
        fprintf(stderr,
                "aril convert: expected a file .onnx to write, or .safetensors, .pt, .pth, .bin, "
                ".th, .npz or .h5 for weights alone, got '%s'\n",
                argument[1]);
        return EXIT_USAGE;
    }
    aril_export_opts opts = { .opset = (int)o->opset, .external_data = o->external };
    chosen_weights chosen = { .w = { .file = o->from, .root = o->weights.root },
                              .published = true };
    if (open_runnable(argument[0], 1, o->size, &chosen, &r)) {
        if (!r.file.net) { /* what the model leaves open stays so */
            if (!o->fixed) {
                opts.sizes = r.sizes.open;
                opts.n_sizes = r.sizes.n;
                opts.size_names = r.sizes.names;
                opts.n_size_names = r.sizes.n_names;
            }
            aril_program_export(r.program, (aril_list){ r.n_in, r.in }, argument[1], opts);
        } else {
            opts.batch = !o->fixed;
            if (model_is_keras(&r.file))
                aril_module_export(r.file.net, (aril_list){ r.n_in, r.in }, argument[1], opts);
            else
                model_export(&r.file, (aril_list){ r.n_in, r.in }, argument[1], opts);
            if (aril_ok() && !r.file.path && !r.file.weights) note_untrained(&r.file);
        }
    }
    close_runnable(&r);
    return aril_ok() ? EXIT_DONE : report("convert");
}

typedef convert_options options;

static const option convert_table[] = {
    { .name = "opset",
      .value = "N",
      .kind = OPTION_INTEGER,
      OPTION_AT(opset),
      .min = 13,
      .max = 28,
      .help = "version of the operator set" },
    { .name = "fixed",
      OPTION_AT(fixed),
      .help = "write known sizes: 1 for those that are open and not given by --size" },
    OPTION_SIZE("sizes that ONNX leaves open, to be written as known: seq=7, or all of an input: "
                "ids=2x7,mask=2x7"),
    { .name = "external",
      OPTION_AT(external),
      .help = "write the parameters to a file OUT.data beside the model" },
    { .name = "weights",
      .value = "FILE",
      .kind = OPTION_FILE,
      OPTION_AT(from),
      .by_default = "the published ones if they are in the cache, else new ones",
      .help = "weights for a network of the zoo, \"default\" for the published ones; the "
              "caffemodel of a net of Caffe" },
    { .name = "", .help = "weights" },
    { .name = "root",
      .value = "PART",
      .kind = OPTION_STRING,
      OPTION_AT(weights.root),
      .by_default = "the weights of the model",
      .help = "the part of a checkpoint, or of --weights, to write, such as ema.model" },
    { .name = "all", OPTION_AT(weights.all), .help = "write all tensors of a checkpoint" },
    { .name = "rename",
      .value = "RULES",
      .kind = OPTION_LIST,
      OPTION_AT(weights.rename),
      .help = "rules FROM=TO, separated by commas, with * for any text: 'backbone.*=*'; an empty "
              "TO leaves tensors out" },
    { .name = "dtype",
      .value = "NAME",
      .kind = OPTION_STRING,
      OPTION_AT(weights.dtype),
      .by_default = "as they are",
      .help = "cast floats, such as to f16" },
    { .name = "part",
      .value = "SIZE",
      .kind = OPTION_STRING,
      OPTION_AT(weights.part),
      .by_default = "one file",
      .help = "split into files of at most SIZE, such as 5GB, with an index" },
    { 0 },
};

static const example convert_examples[] = {
    { "aril convert lenet5-mnist lenet5.onnx", "a trained network, for other programs" },
    { "aril convert old.onnx new.onnx --opset 21", "another operator set" },
    { "aril convert bert.onnx fixed.onnx --size seq=128", "one open size fixed, the others kept" },
    { "aril convert net.pth net.safetensors", "weights alone" },
    { "aril convert resnet18 net.onnx --weights net.pth", "a network of the zoo with its weights" },
    { "aril convert deploy.prototxt net.onnx --weights net.caffemodel", "a net of Caffe" },
    { 0 },
};

const command command_convert = {
    .name = "convert",
    .summary = "write a model as ONNX, weights or a Caffe net in another form",
    .arguments = "MODEL OUT",
    .about =
        "To OUT.onnx: MODEL is a file or folder written by `aril train`, the name of a network "
        "(`aril zoo` lists them), a net of Caffe, a whole network that Keras saved (.keras, .h5), "
        "or a model of ONNX, which is written in another "
        "operator set. With trained weights, a network by name takes images of pixels from 0 to 1, "
        "as those written by `aril train` do.\n\nTo OUT.safetensors, .pt, .pth, .bin, .npz or .h5: "
        "MODEL is a file of "
        "weights "
        "of any framework (`aril show` lists what it holds); dtypes are kept.\n\nA net of Caffe "
        "(.prototxt, .caffemodel) can also be written in the current form of its own format: "
        "OUT.prototxt, .caffemodel. A .binaryproto, such as a mean, becomes an array in a file "
        ".npy, "
        ".npz or .h5, and the other way round.",
    .options = convert_table,
    .examples = convert_examples,
    .size = sizeof(convert_options),
    .defaults = &(const convert_options){ .opset = 18 },
    .min = 2,
    .max = 2,
    .choices = model_names,
    .run = run_convert
};

/* ---- draw ---- */

typedef struct draw_options {
    const char *size;
    caffe_state caffe;
} draw_options;

/* What is drawn: a net of Caffe, by its layers, or a program. */
typedef struct drawn {
    aril_module *net;
    runnable model;
} drawn;

static bool open_drawn(const char *name, const draw_options *o, drawn *d)
{
    aril_tensor *out[64];
    if (is_caffe(name)) {
        caffe_stages stages;
        aril_caffe_opts opts = { 0 };
        if (caffe_state_opts(&o->caffe, ARIL_CAFFE_TRAIN, &stages, &opts))
            d->net = aril_caffe_net(name, opts);
        return d->net != NULL;
    }
    /* A model of ONNX is drawn as its file says. */
    if (open_runnable(name, 1, o->size, &(chosen_weights){ 0 }, &d->model) && d->model.file.net)
        aril_program_run(d->model.program, (aril_list){ d->model.n_in, d->model.in }, out);
    return aril_ok();
}

static aril_status draw_to(const drawn *d, const char *path)
{
    return d->net ? aril_caffe_draw(d->net, path)
                  : aril_program_draw(d->model.program, path, (aril_list){ 0 });
}

/* The path without OUT: in the current folder, the model's name with another ending. */
static void default_path(const char *model, const char *ending, char *path, size_t size)
{
    struct stat st;
    size_t n = strlen(model), begin;
    while (n > 1 && model[n - 1] == '/') n--;
    for (begin = n; begin > 0 && model[begin - 1] != '/';) begin--;
    const char *dot = strrchr(model + begin, '.');
    if (dot && dot > model + begin && stat(model, &st) == 0 && S_ISREG(st.st_mode))
        n = (size_t)(dot - model);
    snprintf(path, size, "%.*s%s", (int)(n - begin), model + begin, ending);
}

/* Draws to NET.svg or, without Graphviz, to NET.dot, and says which. */
static void draw_by_default(const drawn *d, const char *model)
{
    char path[4096];
    default_path(model, ".svg", path, sizeof path);
    bool no_graphviz = draw_to(d, path) == ARIL_ERR_UNSUPPORTED;
    if (no_graphviz) {
        aril_clear_error();
        default_path(model, ".dot", path, sizeof path);
        draw_to(d, path);
    }
    if (!aril_ok()) return;
    print_text(stdout, path);
    puts(no_graphviz ? ": in Graphviz's language, as its program 'dot' was not found" : "");
}

static int run_draw(void *values, int n, char **argument)
{
    const draw_options *o = values;
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    drawn d = { 0 };
    bool caffe = is_caffe(argument[0]);
    if (!arguments_without(&command_draw, o, caffe ? "size " : "phase stage level ", true,
                           caffe ? "a net of Caffe" : "a model that is no net of Caffe"))
        return EXIT_USAGE;
    if (open_drawn(argument[0], o, &d)) {
        if (n > 1)
            draw_to(&d, argument[1]);
        else
            draw_by_default(&d, argument[0]);
    }
    aril_module_release(d.net);
    close_runnable(&d.model);
    return aril_ok() ? EXIT_DONE : report("draw");
}

#undef OPTION_AT
#define OPTION_AT(field) .at = offsetof(draw_options, field)

static const option draw_table[] = {
    OPTION_SIZE("sizes that ONNX leaves open: seq=7, or all of an input: ids=2x7"),
    CAFFE_OPTION_PHASE(caffe, "TRAIN"),
    CAFFE_OPTION_STAGE(caffe),
    CAFFE_OPTION_LEVEL(caffe),
    { 0 },
};

static const example draw_examples[] = {
    { "aril draw resnet18 resnet18.svg", "the operations that run, within its modules" },
    { "aril draw model.onnx model.dot", "in Graphviz's language" },
    { "aril draw train_val.prototxt", "a net of Caffe, to train_val.svg" },
    { 0 },
};

const command command_draw = {
    .name = "draw",
    .summary = "draw the graph of a model",
    .arguments = "MODEL [OUT]",
    .about =
        "MODEL is as for `aril convert`. OUT ends in .dot, or in .svg, .png or .pdf, for which "
        "Graphviz must be installed. Without OUT it is the name of MODEL with .svg, in the current "
        "folder; .dot without Graphviz. A net of Caffe is drawn by its layers.",
    .options = draw_table,
    .examples = draw_examples,
    .size = sizeof(draw_options),
    .defaults = &(const draw_options){ 0 },
    .min = 1,
    .max = 2,
    .choices = model_names,
    .run = run_draw
};

/* ---- time ---- */

typedef struct time_options {
    const char *model, *size, *value;
    int64_t threads;
    bool nodes;
    caffe_time_options caffe; /* some of them are for all models */
} time_options;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The first size of the first input that has one. */
static int64_t batch_of(const runnable *r)
{
    for (int i = 0; i < r->n_in; i++)
        if (aril_ndim(r->in[i])) return aril_size(r->in[i], 0);
    return 1;
}

/* The sizes with names that the model leaves open, but for the batch. */
static void print_sizes(const runnable *r)
{
    bool printed[ONNX_SIZE_NAMES] = { false };
    for (int i = 0; i < r->sizes.n && r->program && !r->file.net; i++)
        for (int d = 0; d < r->sizes.known[i].ndim; d++) {
            const char *name = aril_program_input_size_name(r->program, i, d);
            int k = 0;
            while (name && k < r->sizes.n_names && strcmp(r->sizes.names[k], name) != 0) k++;
            if (!name || k >= ONNX_SIZE_NAMES || printed[k]) continue;
            printed[k] = true;
            if (d == 0) continue;
            fputs(", ", stdout);
            print_text(stdout, name);
            printf(" %lld", (long long)r->sizes.known[i].dim[d]);
        }
}

/* The median of runs that take `seconds` in all, after one that prepares. */
static void time_runs(runnable *r, const time_options *o)
{
    enum { MOST = 10000 };
    static double took[MOST];
    int n = 0;
    int64_t asked = o->caffe.iterations;
    for (double end = now() + o->caffe.seconds;
         aril_ok() && n < MOST && (asked ? n < asked : n < 3 || now() < end); n++) {
        double start = now();
        run_once(r);
        took[n] = now() - start;
    }
    if (!aril_ok()) return;
    qsort(took, (size_t)n, sizeof *took, by_value);
    bool short_run = took[n / 2] < 1e-4;
    double unit = short_run ? 1e6 : 1e3;
    const char *name = short_run ? "us" : "ms";
    printf("%.3f %s (median of %d runs, fastest %.3f %s), batch %lld", took[n / 2] * unit, name, n,
           took[0] * unit, name, (long long)batch_of(r));
    print_sizes(r);
    putchar('\n');
}

static int run_time(void *values, int n, char **argument)
{
    const time_options *o = values;
    const char *name = o->model ? o->model : n ? argument[0] : NULL;
    if (!name || (o->model && n)) {
        fprintf(stderr, "aril time: expected MODEL%s\n", name ? " or --model, not both" : "");
        return EXIT_USAGE;
    }
    if (o->threads) aril_set_threads((int)o->threads);
    if (is_caffe(name) && o->nodes) {
        fputs("aril time: --nodes is not for nets of Caffe, whose layers are listed\n", stderr);
        return EXIT_USAGE;
    }
    bool caffe = is_caffe(name);
    if (!arguments_without(&command_time, o, caffe ? "size value " : "device phase stage level ",
                           true, caffe ? "a net of Caffe" : "a model that is no net of Caffe"))
        return EXIT_USAGE;
    if (!check_device(o->caffe.device)) {
        report("time");
        return EXIT_USAGE;
    }
    if (caffe) return caffe_time(name, &o->caffe);
    int64_t batch = o->caffe.batch;
    ARIL_SCOPE;
    ARIL_INFERENCE;
    runnable r = { 0 };
    chosen_weights chosen = { .w.file = o->caffe.weights };
    bool opened = open_runnable(name, batch ? batch : 1, o->size, &chosen, &r);
    if (opened && batch && !o->size && batch_of(&r) != batch)
        aril_fail(ARIL_ERR_ARG, "--batch %lld: the model takes batches of %lld only",
                  (long long)batch, (long long)batch_of(&r));
    if (opened && o->value && r.file.net)
        aril_fail(ARIL_ERR_ARG, "--value is for models of ONNX");
    else if (opened && o->value)
        set_numbers(&r, o->value);
    if (aril_ok() && o->nodes && r.on_values)
        aril_fail(ARIL_ERR_UNSUPPORTED, "--nodes: the model does not work on tensors alone");
    if (aril_ok()) run_once(&r);
    if (aril_ok()) time_runs(&r, o);
    if (aril_ok() && o->nodes) aril_program_costs(r.program, (aril_list){ r.n_in, r.in }, stdout);
    close_runnable(&r);
    return aril_ok() ? EXIT_DONE : report("time");
}

#undef OPTION_AT
#define OPTION_AT(field) .at = offsetof(time_options, field)

static const option time_table[] = {
    { .name = "batch",
      .value = "N",
      .kind = OPTION_INTEGER,
      OPTION_AT(caffe.batch),
      .min = 1,
      .by_default = "1, or that of a Caffe net",
      .help = "batch size, where the model leaves it open" },
    OPTION_SIZE("sizes that ONNX leaves open: seq=7, or all of an input: ids=2x7"),
    { .name = "value",
      .value = "NUMBERS",
      .kind = OPTION_LIST,
      OPTION_AT(value),
      .by_default = "0",
      .help = "numbers for inputs of ONNX, such as a rate that decides on a branch: sr=16000" },
    { .name = "seconds",
      .value = "S",
      .kind = OPTION_FLOAT,
      OPTION_AT(caffe.seconds),
      .help = "how long to run" },
    { .name = "iterations",
      .value = "N",
      .kind = OPTION_INTEGER,
      OPTION_AT(caffe.iterations),
      .min = 1,
      .max = 10000,
      .by_default = "as many as --seconds allows",
      .help = "how many runs to time, of a Caffe net passes forward and backward" },
    { .name = "nodes", OPTION_AT(nodes), .help = "also list what each operation costs" },
    { .name = "model",
      .value = "MODEL",
      .kind = OPTION_FILE,
      OPTION_AT(model),
      .help = "the model, as MODEL" },
    { .name = "weights",
      .value = "FILE",
      .kind = OPTION_FILE,
      OPTION_AT(caffe.weights),
      .by_default = "random ones",
      .help = "weights for a network of the zoo, \"default\" for the published ones; the "
              "caffemodel of a net of Caffe" },
    CAFFE_OPTION_PHASE(caffe.state, "TRAIN"),
    CAFFE_OPTION_STAGE(caffe.state),
    CAFFE_OPTION_LEVEL(caffe.state),
    { .name = "device",
      .value = "NAME",
      .kind = OPTION_STRING,
      OPTION_AT(caffe.device),
      .by_default = "cpu",
      .help = "device for a Caffe net, such as cuda:0; `aril devices` lists them" },
    OPTION_THREADS,
    { 0 },
};

static const example time_examples[] = {
    { "aril time resnet50", "one image at a time" },
    { "aril time model.onnx --batch 8 --nodes", "with the most expensive operations first" },
    { 0 },
};

const command command_time = {
    .name = "time",
    .summary = "measure how long a model runs",
    .arguments = "MODEL",
    .about = "MODEL is as for `aril convert`. It runs on zeros, compiled; the time is that of a "
             "whole run. For a net of Caffe the times of its layers, forward and backward, come "
             "first; they are means of the fastest quarter of the passes.",
    .options = time_table,
    .examples = time_examples,
    .size = sizeof(time_options),
    .defaults = &(const time_options){ .caffe.seconds = 1 },
    .min = 0,
    .max = 1,
    .choices = model_names,
    .run = run_time
};
