/* aril train: trains a network of the zoo, or one trained before, on a dataset. */
#include "commands.h"
#include "parts.h"
#include "results.h"

#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct options {
    const char *data, *task, *target, *skip, *optimizer, *schedule, *augment, *loss, *metrics,
        *device, *log, *checkpoint, *out, *size;
    int64_t epochs, batch, warm_up, seed, workers, threads, every, samples, early_stop, accumulate;
    double lr, momentum, weight_decay, clip, validation_split, gamma;
    bool resume, fresh, nesterov, quiet, no_images;
} options;

/* The parts of a run; freed by end(). */
typedef struct run_parts {
    const options *o;
    model_file m;
    aril_splits data;
    aril_loader *batches, *val_batches;
    aril_model *model;
    best_model kept;
    int64_t height, width; /* from --size; 0: original image size */
    bool reading;          /* batches are being read: shape errors come from samples */
    char checkpoint[4096];
} run_parts;

/* ---- data ---- */

/* How to open the dataset, from the options or as in the network's training. */
static aril_open_opts open_opts(const run_parts *r)
{
    const options *o = r->o;
    aril_open_opts opts = model_open_opts(&r->m);
    if (o->target) opts.target = o->target;
    if (o->skip) opts.skip = o->skip;
    if (o->task) opts.real_target = strcmp(o->task, "regression") == 0;
    if (o->task) opts.class_target = !opts.real_target;
    if (opts.class_target) opts.real_target = false;
    return opts;
}

/* Whether all class names are numbers: then the classes could be a regression's numbers. */
static bool classes_are_numbers(int n, const char *const *names)
{
    for (int i = 0; i < n; i++) {
        char *end;
        strtod(names[i], &end);
        if (end == names[i] || *end) return false;
    }
    return n > 0;
}

/* Prints what is learned from a table, and how to change it. */
static void print_task(const run_parts *r)
{
    const char *const *names, *target;
    aril_dataset *d = r->data.train;
    if (r->o->quiet || aril_dataset_columns(d, NULL, &target) == 0 || !target) return;
    int n = aril_dataset_classes(d, &names);
    char line[512], name[256];
    size_t used = (size_t)snprintf(line, sizeof line, "target: column %s, ",
                                   printable(target, name, sizeof name));
    if (r->m.regression)
        snprintf(line + used, sizeof line - used, "a number: regression%s",
                 r->o->task ? "" : " (--task classification makes classes of its values)");
    else
        snprintf(line + used, sizeof line - used, "%d classes: classification%s", n,
                 r->o->task || !classes_are_numbers(n, names)
                     ? ""
                     : " (--task regression takes them as numbers)");
    print_wrapped(stdout, line, 2);
}

static aril_dataset *sized_and_taken(aril_dataset *d, int64_t height, int64_t width,
                                     int64_t samples)
{
    if (d && height) d = parts_sized(d, height, width);
    return d && samples ? aril_dataset_take(d, samples) : d;
}

/* Opens all splits, with images in the requested size or that of the network's training. */
static bool open_data(run_parts *r, const char *what)
{
    const options *o = r->o;
    int64_t height = r->height, width = r->width;
    aril_splits *p = &r->data;
    r->m.seed = (uint64_t)o->seed;
    aril_splits_opts opts = { .open = open_opts(r),
                              .validation_split = o->validation_split,
                              .seed = r->m.seed };
    if (aril_splits_open(what, opts, p) != ARIL_OK) return false;
    r->m.kept = p->held_out;
    int64_t rest = aril_dataset_size(p->train), tested = aril_dataset_size(p->val);
    if (rest == 0 || tested == 0) {
        aril_fail(ARIL_ERR_ARG,
                  "%lld samples to train on and %lld to test on are too few; --validation-split X "
                  "keeps another share than a tenth for the tests",
                  (long long)rest, (long long)tested);
        return false;
    }
    if (!height && r->m.sized) height = r->m.input.dim[1], width = r->m.input.dim[2];
    if (height && !aril_dataset_has_images(p->train)) {
        aril_fail(ARIL_ERR_ARG, "--size is for images, and %s has none", what);
        return false;
    }
    r->m.sized = height > 0;
    bool test = p->test != NULL;
    p->train = sized_and_taken(p->train, height, width, o->samples);
    p->val = sized_and_taken(p->val, height, width, o->samples);
    if (test) p->test = sized_and_taken(p->test, height, width, o->samples);
    return p->train && p->val && (p->test || !test);
}

/* The number of outputs: classes, or values per target; determines the task. */
static bool read_targets(run_parts *r, int64_t *outputs)
{
    aril_dataset *train = r->data.train;
    *outputs = aril_dataset_outputs(train, &r->m.regression);
    if (*outputs < 0) return false;
    print_task(r);
    ARIL_SCOPE;
    aril_sample s = { 0 };
    if (aril_dataset_get(train, 0, &s) < 0) return false;
    aril_dtype x = aril_dtype_of(s.x);
    if (!aril_dtype_is_float(x) && !aril_dataset_has_images(train))
        aril_fail(ARIL_ERR_DTYPE,
                  "the samples are %s; the networks of the zoo expect float inputs or images",
                  aril_dtype_name(x));
    return aril_ok();
}

/* ---- normalization ---- */

/* Losses on differences, which work with targets in any unit. */
static bool takes_any_unit(const char *loss)
{
    static const char *const names[] = { "mse", "l1", "mae", "huber", "smooth_l1" };
    for (size_t i = 0; loss && i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], loss) == 0) return true;
    return !loss;
}

/* Mean and standard deviation of regression targets. */
static bool measure_targets(run_parts *r)
{
    ARIL_SCOPE;
    aril_tensor *mean, *std;
    if (!r->m.regression) return true;
    aril_stats_opts opts = { .targets = true, .overall = true };
    if (aril_dataset_stats(r->data.train, opts, &mean, &std) != ARIL_OK) return false;
    if (!takes_any_unit(r->o->loss)) return true;
    r->m.target_scale[0] = aril_item(mean);
    r->m.target_scale[1] = aril_item(std);
    return aril_ok();
}

/* Standardizes columns and numeric targets to mean 0 and standard deviation 1, so that values of
 * any magnitude, such as prices and areas, are learned equally well. */
static bool measure_columns(run_parts *r)
{
    enum { MOST_COLUMNS = 65536 };
    ARIL_SCOPE;
    model_file *m = &r->m;
    aril_tensor *mean, *std;
    if (!measure_targets(r)) return false;
    if (m->input.ndim != 1 || m->input.dim[0] > MOST_COLUMNS) return true;
    size_t n = (size_t)m->input.dim[0];
    if (aril_dataset_stats(r->data.train, (aril_stats_opts){ 0 }, &mean, &std) != ARIL_OK)
        return false;
    const double *from[2] = { aril_data(mean), aril_data(std) };
    m->column_scale = calloc(2 * n, sizeof *m->column_scale);
    if (!m->column_scale || !from[0] || !from[1]) return false;
    memcpy(m->column_scale, from[0], n * sizeof **from);
    memcpy(m->column_scale + n, from[1], n * sizeof **from);
    return true;
}

/* Mean and standard deviation of each channel over a few thousand images, with four digits. */
static bool measure_channels(run_parts *r)
{
    enum { ENOUGH = 4096 };
    ARIL_SCOPE;
    model_file *m = &r->m;
    aril_tensor *mean, *std;
    if (!aril_dataset_has_images(r->data.train) || m->input.ndim != 3 ||
        m->input.dim[0] > MOST_CHANNELS)
        return true;
    if (aril_dataset_stats(r->data.train, (aril_stats_opts){ .samples = ENOUGH }, &mean, &std) !=
        ARIL_OK)
        return false;
    m->n_channels = (int)m->input.dim[0];
    for (int k = 0; k < m->n_channels; k++) {
        m->mean[k] = round(aril_item(aril_select(mean, 0, k)) * 1e4) / 1e4;
        m->std[k] = fmax(1e-3, round(aril_item(aril_select(std, 0, k)) * 1e4) / 1e4);
    }
    return aril_ok();
}

/* ---- the network ---- */

/* Creates a network of the zoo, with the metadata of the dataset. */
static bool create_network(run_parts *r, const char *name, aril_shape input, int64_t outputs)
{
    const char *const *names, *target;
    aril_dataset *train = r->data.train;
    if (!model_create(name, input, outputs, &r->m)) return false;
    int n = r->m.regression ? 0 : aril_dataset_classes(train, &names);
    if (n > 0 && !model_set_classes(&r->m, n, names)) return false;
    n = aril_dataset_columns(train, &names, &target);
    if (n > 0 && !model_set_columns(&r->m, n, names, target)) return false;
    r->reading = true;
    if (!measure_channels(r) || !measure_columns(r)) return false;
    r->reading = false;
    return model_scale(&r->m);
}

static bool open_network(run_parts *r, const char *name)
{
    int64_t outputs = 0;
    if (!read_targets(r, &outputs)) return false;
    aril_shape input = aril_dataset_shape(r->data.train);
    char have[64], want[64];
    if (!aril_ok()) return false;
    if (!model_is_file(name)) return create_network(r, name, input, outputs);
    shape_text(r->m.input, want, sizeof want);
    shape_text(input, have, sizeof have);
    if (strcmp(have, want) != 0 || r->m.classes != outputs) {
        aril_fail(ARIL_ERR_SHAPE,
                  "'%s' expects samples of %s and has %lld %s; the dataset has samples of %s and "
                  "%lld",
                  name, want, (long long)r->m.classes, r->m.regression ? "outputs" : "classes",
                  have, (long long)outputs);
        return false;
    }
    return true;
}

/* Converts an option, NAN if not given, to the library's form, where 0 means the default. */
static double given(double value)
{
    return isnan(value) ? 0 : value == 0 ? ARIL_ZERO : value;
}

static aril_optim *optimizer_of(const options *o)
{
    aril_optim_opts opts = { .lr = given(o->lr),
                             .momentum = given(o->momentum),
                             .weight_decay = given(o->weight_decay),
                             .nesterov = o->nesterov,
                             .clip_norm = o->clip };
    if (isnan(o->momentum) && strcmp(o->optimizer, "sgd") == 0) opts.momentum = 0.9;
    return aril_optim_new(o->optimizer, NULL, opts);
}

/* The schedule over a whole training with that many updates per epoch. */
static aril_schedule *schedule_of(const options *o, int64_t updates)
{
    aril_schedule_opts opts = { .gamma = o->gamma, .warmup = o->warm_up };
    return aril_schedule_for_training(o->schedule, o->epochs, updates, opts);
}

static aril_optim *create_optimizer(const run_parts *r)
{
    const options *o = r->o;
    aril_optim *opt = optimizer_of(o);
    if (!opt || !o->schedule) return opt;
    int64_t accumulate = o->accumulate > 1 ? o->accumulate : 1;
    int64_t updates = (aril_loader_length(r->batches) + accumulate - 1) / accumulate;
    if (aril_optim_schedule(opt, schedule_of(o, updates)) == ARIL_OK) return opt;
    aril_optim_free(opt);
    return NULL;
}

/* ---- the run ---- */

/* Augmentation must produce images of the network's input size. */
static bool fits(const run_parts *r, aril_dataset *augmented)
{
    char have[64], want[64];
    shape_text(aril_dataset_shape(augmented), have, sizeof have);
    shape_text(r->m.input, want, sizeof want);
    if (!aril_ok()) return false;
    if (strcmp(have, want) == 0) return true;
    aril_fail(ARIL_ERR_SHAPE,
              "--augment makes images of %s, and those to test on are %s: let it end in a size "
              "that fits, or let --size set that of all",
              have, want);
    return false;
}

static bool create_loaders(run_parts *r)
{
    const options *o = r->o;
    aril_transform *augment = o->augment ? aril_transform_parse(o->augment) : NULL, *batch = NULL;
    if (o->augment && !augment) return false;
    batch = augment ? aril_transform_take_batch(augment) : NULL;
    aril_dataset *train = augment
                              ? aril_dataset_transform(aril_dataset_keep(r->data.train), augment)
                              : aril_dataset_keep(r->data.train);
    if (!train || (augment && !fits(r, train))) {
        aril_dataset_release(train);
        aril_transform_free(batch);
        return false;
    }
    aril_transform *normalize = model_normalize(&r->m);
    aril_transform *both[2] = { normalize, batch };
    aril_transform *change = normalize && batch ? aril_transform_list(2, both)
                             : normalize        ? normalize
                                                : batch;
    r->batches = aril_loader_new(train, (aril_loader_opts){ .batch = o->batch,
                                                            .shuffle = true,
                                                            .seed = (uint64_t)o->seed,
                                                            .workers = (int)o->workers,
                                                            .batch_transform = change });
    r->val_batches =
        aril_loader_new(aril_dataset_keep(r->data.val),
                        (aril_loader_opts){ .batch = 256,
                                            .workers = (int)o->workers,
                                            .batch_transform = model_normalize(&r->m) });
    return r->batches && r->val_batches;
}

static bool remember_measures(run_parts *r)
{
    const options *o = r->o;
    char *loss = strdup(model_loss(&r->m, o->loss));
    char *metrics = strdup(model_metrics(&r->m, o->metrics));
    free(r->m.loss);
    free(r->m.metrics);
    r->m.loss = loss;
    r->m.metrics = metrics;
    return loss && metrics;
}

static bool compile(run_parts *r)
{
    r->model = aril_model_new(aril_module_keep(r->m.scaled), r->m.input);
    aril_model_opts opts = { .optimizer = create_optimizer(r) };
    if (opts.optimizer && r->model && remember_measures(r))
        return model_compile(&r->m, r->model, NULL, NULL, opts) == ARIL_OK;
    aril_optim_free(opts.optimizer);
    return false;
}

static aril_history *fit(run_parts *r)
{
    const options *o = r->o;
    aril_callback_list callbacks = { 0 };
    char path[4096];
    int n = 0;
    callbacks.at[n++] = aril_stop_on_nan();
    r->kept.m = &r->m;
    snprintf(r->kept.path, sizeof r->kept.path, "%s/model.safetensors", o->out);
    callbacks.at[n++] = results_keep_best(&r->kept);
    callbacks.at[n++] = results_choose_lr(o->lr, o->quiet);
    snprintf(path, sizeof path, "%s/history.csv", o->out);
    callbacks.at[n++] = aril_csv_log(path);
    if (o->log) {
        aril_tensorboard_opts shown = { .histograms_every = 1, .graph = true };
        callbacks.at[n++] = aril_tensorboard_log(o->log, shown);
        aril_optim *plain = optimizer_of(o); /* learning rate before any schedule */
        double lr = aril_item(aril_optim_lr(plain));
        aril_optim_free(plain);
        callbacks.at[n++] = results_hparams(o->log, &r->m, o->optimizer, lr, o->batch);
    }
    if (o->early_stop)
        callbacks.at[n++] = aril_early_stop(
            (aril_early_stop_opts){ .patience = (int)o->early_stop, .verbose = !o->quiet });
    callbacks.n = n;
    return aril_model_fit_loader(r->model, r->batches,
                                 (aril_fit_opts){ .epochs = (int)o->epochs,
                                                  .validation_loader = r->val_batches,
                                                  .callbacks = callbacks,
                                                  .accumulate = (int)o->accumulate,
                                                  .verbose = o->quiet ? ARIL_SILENT : 0,
                                                  .checkpoint = { .dir = r->checkpoint,
                                                                  .every_batches = o->every,
                                                                  .every_seconds = 30,
                                                                  .resume = o->resume,
                                                                  .on_signal = true } });
}

static void end(run_parts *r)
{
    aril_model_free(r->model);
    aril_loader_free(r->batches);
    aril_loader_free(r->val_batches);
    aril_splits_release(&r->data);
    model_close(&r->m);
}

/* report(), plus advice when images differ in size or a checkpoint does not match. */
static int report_with_advice(const run_parts *r)
{
    aril_status code = aril_error_code();
    int status = report("train");
    aril_dataset *train = r->data.train;
    if (code == ARIL_ERR_SHAPE && train && !r->m.sized && aril_dataset_has_images(train) &&
        (r->reading || parts_differ(train)))
        fputs("aril train: the images differ in size; --size 64 makes them 64 x 64\n", stderr);
    else if (code != ARIL_ERR_IO && r->o->resume && r->model &&
             aril_checkpoint_exists(r->checkpoint))
        fprintf(stderr, "aril train: if '%s' is of another training: --fresh begins anew\n",
                r->checkpoint);
    return status;
}

/* Prints what is trained, on which data. */
static void tell_start(run_parts *r)
{
    const options *o = r->o;
    const aril_splits *p = &r->data;
    char text[128], device[64];
    if (o->quiet) return;
    char line[1024], data[512], counts[128] = "";
    size_t n = 0;
    if (!p->val_is_test)
        n = (size_t)snprintf(counts, sizeof counts, ", %lld to validate",
                             (long long)aril_dataset_size(p->val));
    if (p->test)
        snprintf(counts + n, sizeof counts - n, ", %lld to test",
                 (long long)aril_dataset_size(p->test));
    aril_device_name(aril_device_of(aril_parameters(r->m.net)->at[0]), device, sizeof device);
    snprintf(line, sizeof line, "%s for %s, %lld parameters, on %s: %lld samples%s, %s", r->m.name,
             shape_text(r->m.input, text, sizeof text), (long long)aril_parameter_count(r->m.net),
             printable(o->data, data, sizeof data), (long long)aril_dataset_size(p->train), counts,
             device);
    print_wrapped(stdout, line, 2);
    if (!p->test && p->held_out > 0) {
        snprintf(line, sizeof line,
                 "%s has no part called test: %g %% of the samples are held out "
                 "(--validation-split)",
                 data, 100 * p->held_out);
        print_wrapped(stdout, line, 2);
    }
    if (!r->m.regression && r->m.classes > aril_dataset_size(p->train)) {
        snprintf(line, sizeof line,
                 "there are more classes, %lld, than samples; if the targets are numbers: --task "
                 "regression",
                 (long long)r->m.classes);
        print_wrapped(stdout, line, 2);
    }
    if (!r->m.regression && r->m.classes == 1)
        print_wrapped(stdout,
                      "there is only one class, so there is nothing to tell apart: a folder of "
                      "images has a folder for each class",
                      2);
    fflush(stdout);
}

/* Reports that the loss became NaN, and which weights remain. */
static int tell_diverged(const run_parts *r)
{
    const options *o = r->o;
    fputs("aril train: the loss became NaN or infinite; ", stderr);
    if (r->kept.best.epoch >= 0)
        fprintf(stderr, "%s/model.safetensors is that of epoch %d\n", o->out,
                r->kept.best.epoch + 1);
    else
        fputs("there is no good model to keep\n", stderr);
    fputs("aril train: a smaller --lr or --clip 1 may help", stderr);
    if (aril_checkpoint_exists(r->checkpoint))
        fputs("; with --resume it goes on from the last good epoch", stderr);
    fputs("\n", stderr);
    return EXIT_FAILED;
}

/* After a fit: writes images and prints the results. */
static int finish(run_parts *r, aril_history *h)
{
    const options *o = r->o;
    const aril_splits *p = &r->data;
    bool diverged = aril_history_diverged(h);
    if (r->kept.best.epoch >= 0) {
        measured_on on = { p->val, p->test, p->held_out, p->val_is_test };
        results_load_best(&r->m, o->out);
        if (!o->no_images && aril_ok())
            results_draw(&r->m, h, p->test ? p->test : p->val, o->out, o->data);
        if (aril_ok() && !o->quiet) results_tell(&r->m, &r->kept.best, &on, o->out, o->no_images);
    }
    if (!aril_ok()) return report("train");
    fflush(stdout);
    return diverged || r->kept.best.epoch < 0 ? tell_diverged(r) : EXIT_DONE;
}

static int train(run_parts *r, const char *name)
{
    const options *o = r->o;
    if (model_is_file(name) && !model_open(name, &r->m)) return report("train");
    if (!open_data(r, o->data) || !open_network(r, name)) return report_with_advice(r);
    free(r->m.data);
    r->m.data = strdup(o->data);
    if (o->device) aril_module_to(r->m.scaled, aril_device_named(o->device));
    if (!aril_ok() || !create_loaders(r) || !compile(r) || aril_folder_create(o->out) != ARIL_OK)
        return report("train");
    if (!o->resume && !o->fresh && aril_checkpoint_exists(r->checkpoint)) {
        fprintf(stderr,
                "aril train: '%s' holds a checkpoint: --resume goes on with it, "
                "--fresh begins anew\n",
                r->checkpoint);
        return EXIT_FAILED;
    }
    tell_start(r);
    /* Each step changes the name of the weights file: the same name means that no step was made. */
    char before[4200] = "", after[4200] = "";
    bool goes_on = o->resume && aril_checkpoint_exists(r->checkpoint) &&
                   aril_checkpoint_weights(r->checkpoint, before, sizeof before) == ARIL_OK;
    r->reading = true;
    aril_history *h = fit(r);
    if (!h) return report_with_advice(r);
    if (goes_on && !o->quiet && !aril_history_diverged(h) &&
        aril_checkpoint_weights(r->checkpoint, after, sizeof after) == ARIL_OK &&
        strcmp(before, after) == 0)
        printf("nothing was left to do after %d epochs; with more --epochs it goes on\n",
               aril_history_epochs(h));
    if (aril_history_signal(h)) {
        char text[sizeof r->checkpoint + 64];
        snprintf(text, sizeof text, "stopped; the same command with --resume goes on from %s",
                 r->checkpoint);
        if (!o->quiet) fputc('\n', stdout);
        if (!o->quiet) print_wrapped(stdout, text, 2);
        return 128 + aril_history_signal(h);
    }
    return finish(r, h);
}

/* "~/flowers/" -> "flowers", "iris.csv" -> "iris" */
static void name_of_data(const char *data, char *to, size_t size)
{
    size_t end = strlen(data);
    while (end > 0 && data[end - 1] == '/') end--;
    size_t begin = end;
    while (begin > 0 && data[begin - 1] != '/') begin--;
    snprintf(to, size, "%.*s", (int)(end - begin), data + begin);
    struct stat st;
    char *dot = strrchr(to, '.');
    if (dot && dot != to && stat(data, &st) == 0 && S_ISREG(st.st_mode)) *dot = '\0';
    if (!*to || strspn(to, ".") == strlen(to)) snprintf(to, size, "data");
}

/* Checks the options that need no data. */
static bool options_fit(const options *o)
{
    const char *const optimizer = o->optimizer;
    bool sgd = strcmp(optimizer, "sgd") == 0;
    bool moves = sgd || strcmp(optimizer, "rmsprop") == 0 || strcmp(optimizer, "lars") == 0;
    if (!o->data)
        aril_fail(ARIL_ERR_ARG, "--data says what to train on, such as --data fashion-mnist");
    else if (o->validation_split >= 1)
        aril_fail(ARIL_ERR_ARG, "--validation-split takes a share below 1, not %g",
                  o->validation_split);
    else if (!isnan(o->momentum) && !moves)
        aril_fail(ARIL_ERR_ARG, "--momentum is for sgd, rmsprop and lars, not for %s", optimizer);
    else if (o->nesterov && !sgd)
        aril_fail(ARIL_ERR_ARG, "--nesterov is for sgd, not for %s", optimizer);
    else if (o->gamma == 0 && o->schedule &&
             (strcmp(o->schedule, "exponential") == 0 || strcmp(o->schedule, "inverse") == 0 ||
              strcmp(o->schedule, "sigmoid") == 0))
        aril_fail(ARIL_ERR_ARG, "--schedule %s needs its factor, --gamma", o->schedule);
    if (!aril_ok()) return false;
    aril_optim_free(optimizer_of(o));
    if (o->schedule && aril_ok()) aril_schedule_free(schedule_of(o, 1000));
    if (o->augment && aril_ok()) aril_transform_free(aril_transform_parse(o->augment));
    return aril_ok() && measures_known(o->loss, o->metrics);
}

/* --size 64 or --size 48x64 */
static bool read_size(run_parts *r, const char *text)
{
    aril_shape size;
    if (!shape_read(text, &size) || size.ndim > 2) {
        fprintf(stderr, "aril train: --size takes a size such as 64 or 48x64, not '%s'\n", text);
        return false;
    }
    r->height = size.dim[0];
    r->width = size.dim[size.ndim - 1];
    return true;
}

static int run(void *values, int n, char **argument)
{
    (void)n;
    options *o = values;
    char out[4096], data[1024];
    run_parts r = { .o = o, .kept.best.epoch = -1 };
    if (!options_fit(o)) {
        report("train");
        return EXIT_USAGE;
    }
    if (o->size && !read_size(&r, o->size)) return EXIT_USAGE;
    if (!o->out) {
        name_of_data(o->data, data, sizeof data);
        snprintf(out, sizeof out, "%s-%s", model_is_name(argument[0]) ? argument[0] : "model",
                 data);
        o->out = out;
    }
    if (o->checkpoint)
        snprintf(r.checkpoint, sizeof r.checkpoint, "%s", o->checkpoint);
    else
        snprintf(r.checkpoint, sizeof r.checkpoint, "%s/checkpoint", o->out);
    use_threads(o->threads);
    aril_seed((uint64_t)o->seed);
    int status = train(&r, argument[0]);
    end(&r);
    return status;
}

static const char *const *loss_names(void)
{
    static const char *names[64];
    int n;
    const char *const *known = aril_nn_loss_names(&n);
    for (int i = 0; i < n && i < 63; i++) names[i] = known[i];
    return names;
}

static const char *const *task_names(void)
{
    static const char *const names[] = { "classification", "regression", NULL };
    return names;
}

#define AT(field) .at = offsetof(options, field)

static const option table[] = {
    { .name = "data",
      .value = "DATASET",
      .kind = OPTION_DATA,
      AT(data),
      .words = dataset_names,
      .help = "a name or a path (aril help datasets lists them); after each epoch its part called "
              "val is "
              "measured, else the one called test, else a tenth of the samples" },
    { .name = "task",
      .value = "NAME",
      .kind = OPTION_TEXT,
      AT(task),
      .words = task_names,
      .only_words = true,
      .help =
          "told from the targets unless given: text and a few small integers are classes, other "
          "numbers a regression:" },
    { .name = "target",
      .value = "COLUMN",
      .kind = OPTION_TEXT,
      AT(target),
      .help = "of a table: the column to learn, by name or number; default the last" },
    { .name = "skip",
      .value = "COLUMNS",
      .kind = OPTION_TEXT,
      AT(skip),
      .help = "of a table: columns to leave out, such as id,name" },
    { .name = "epochs",
      .value = "N",
      .kind = OPTION_WHOLE,
      AT(epochs),
      .most = INT_MAX,
      .least = 1,
      .help = "times through the data; default 5" },
    { .name = "batch",
      .value = "N",
      .kind = OPTION_WHOLE,
      AT(batch),
      .least = 1,
      .help = "samples for one update; default 64" },
    { .name = "out",
      .value = "DIR",
      .kind = OPTION_FOLDER,
      AT(out),
      .help = "where the results go: the model, its history, images, checkpoints; default "
              "MODEL-DATASET" },

    { .name = "size",
      .value = "SIZE",
      .kind = OPTION_TEXT,
      AT(size),
      .help = "makes all images as large, such as 64 or 48x64" },

    { .name = "", .help = "How it learns:" },
    { .name = "optimizer",
      .value = "NAME",
      .kind = OPTION_TEXT,
      AT(optimizer),
      .words = aril_optim_names,
      .only_words = true,
      .help = "adam unless given:" },
    { .name = "lr",
      .value = "X",
      .kind = OPTION_REAL,
      AT(lr),
      .help = "learning rate; default: what is usual for the optimizer" },
    { .name = "momentum",
      .value = "X",
      .kind = OPTION_REAL,
      AT(momentum),
      .help = "of sgd, rmsprop and lars; default 0.9 for sgd" },
    { .name = "nesterov", AT(nesterov), .help = "sgd looks ahead" },
    { .name = "weight-decay",
      .value = "X",
      .kind = OPTION_REAL,
      AT(weight_decay),
      .help = "pull of the weights towards 0" },
    { .name = "clip",
      .value = "X",
      .kind = OPTION_REAL,
      AT(clip),
      .help = "largest norm of all gradients together" },
    { .name = "schedule",
      .value = "NAME",
      .kind = OPTION_TEXT,
      AT(schedule),
      .words = aril_schedule_names,
      .only_words = true,
      .help = "how the learning rate changes:" },
    { .name = "warm-up",
      .value = "N",
      .kind = OPTION_WHOLE,
      AT(warm_up),
      .most = INT_MAX,
      .help = "epochs in which the rate rises before the schedule" },
    { .name = "gamma",
      .value = "X",
      .kind = OPTION_REAL,
      AT(gamma),
      .least = -1,
      .help = "factor of the schedules step, multistep, exponential, inverse and sigmoid" },
    { .name = "accumulate",
      .value = "N",
      .kind = OPTION_WHOLE,
      AT(accumulate),
      .most = INT_MAX,
      .least = 1,
      .help = "batches for one update; default 1" },
    { .name = "loss",
      .value = "NAME",
      .kind = OPTION_TEXT,
      AT(loss),
      .words = loss_names,
      .help = "cross_entropy, or mse for numbers, unless given" },
    { .name = "metrics",
      .value = "NAMES",
      .kind = OPTION_TEXT,
      AT(metrics),
      .words = aril_metric_names,
      .help = "what is measured, with commas between (aril help metrics lists them); default "
              "accuracy, or mae for numbers" },
    { .name = "augment",
      .value = "CHANGES",
      .kind = OPTION_TEXT,
      AT(augment),
      .help =
          "random changes to images, such as flip,crop=28:pad=2,rotate=10 (aril help transforms "
          "lists them)" },
    { .name = "early-stop",
      .value = "N",
      .kind = OPTION_WHOLE,
      AT(early_stop),
      .most = INT_MAX,
      .least = 1,
      .help = "ends when N epochs have brought nothing better" },
    { .name = "seed",
      .value = "N",
      .kind = OPTION_WHOLE,
      AT(seed),
      .help = "of weights, order and random changes; default 0" },

    { .name = "", .help = "Where and how fast:" },
    { .name = "device",
      .value = "NAME",
      .kind = OPTION_TEXT,
      AT(device),
      .help = "such as cuda:0; `aril devices` lists them" },
    { .name = "threads",
      .value = "N",
      .kind = OPTION_WHOLE,
      AT(threads),
      .least = 1,
      .help = "all CPUs unless given" },
    { .name = "workers",
      .value = "N",
      .kind = OPTION_WHOLE,
      AT(workers),
      .most = 1024,
      .help = "threads that load samples ahead; default 0" },
    { .name = "samples",
      .value = "N",
      .kind = OPTION_WHOLE,
      AT(samples),
      .least = 1,
      .help = "the first N samples only, for a try" },
    { .name = "validation-split",
      .value = "X",
      .kind = OPTION_REAL,
      AT(validation_split),
      .help = "share of the training samples that is held out to choose the best epoch; a part "
              "called test is then measured once, at the end" },

    { .name = "", .help = "What is kept:" },
    { .name = "log",
      .value = "DIR",
      .kind = OPTION_FOLDER,
      AT(log),
      .help = "logs for TensorBoard" },
    { .name = "checkpoint",
      .value = "DIR",
      .kind = OPTION_FOLDER,
      AT(checkpoint),
      .help =
          "where the state of the training is kept; default checkpoint in the folder of --out" },
    { .name = "every",
      .value = "N",
      .kind = OPTION_WHOLE,
      AT(every),
      .least = 1,
      .help = "batches between checkpoints; default an epoch, or half a minute" },
    { .name = "resume",
      AT(resume),
      .help = "goes on from the checkpoint, if there is one, as if it had never stopped: with the "
              "optimizer and the learning rate that it had, unless another --lr is given" },
    { .name = "fresh", AT(fresh), .help = "begins anew where there is a checkpoint" },
    { .name = "no-images",
      AT(no_images),
      .help = "draws no curves, confusion matrix and predictions" },
    { .name = "quiet", AT(quiet), .help = "prints nothing but errors" },
    { 0 },
};

static const example examples[] = {
    { "aril train lenet5 --data fashion-mnist",
      "five epochs with Adam, into lenet5-fashion-mnist/" },
    { "aril train convnet --data cifar10 --epochs 30 --schedule cosine --augment "
      "flip,crop=32:pad=4",
      "a longer training, with images that are flipped and moved" },
    { "aril train lenet5 --data fashion-mnist --resume", "goes on after Ctrl-C or a power cut" },
    { "aril train mlp --data houses.csv --target price", "numbers from the columns of a table" },
    { 0 },
};

const command command_train = {
    .name = "train",
    .summary = "trains a network",
    .arguments = "MODEL",
    .about = "MODEL is the name of a network (`aril zoo` lists them), which gets fresh weights, or "
             "a file or folder that "
             "`aril train` has written, which goes on from there. Ctrl-C saves the state and ends; "
             "--resume goes on from it.",
    .options = table,
    .examples = examples,
    .size = sizeof(options),
    .defaults = &(const options){ .epochs = 5,
                                  .batch = 64,
                                  .optimizer = "adam",
                                  .lr = NAN,
                                  .momentum = NAN,
                                  .weight_decay = NAN },
    .least = 1,
    .most = 1,
    .words = model_names,
    .run = run
};
