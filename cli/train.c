/* aril train: trains a network of the zoo, or one trained before, on a dataset. */
#include "caffe.h"
#include "commands.h"
#include "datasets.h"
#include "fine_tune.h"
#include "results.h"

#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct options {
    const char *data, *task, *target, *skip, *optimizer, *schedule, *augment, *loss, *metrics,
        *device, *autocast, *log, *checkpoint, *out, *size, *weights, *root, *freeze;
    int64_t epochs, batch, warm_up, seed, workers, threads, every, samples, early_stop, accumulate;
    double lr, momentum, weight_decay, clip, validation_split, gamma;
    bool resume, fresh, nesterov, quiet, no_images;
    caffe_train_options caffe;
} options;

/* The parts of a run; freed by end(). */
typedef struct training {
    const options *o;
    model_file m;
    aril_splits data;
    aril_loader *batches, *val_batches;
    aril_model *model;
    best_model kept;
    int64_t height, width; /* from --size; 0: original image size */
    bool reading;          /* batches are being read: shape errors come from samples */
    char checkpoint[4096];
} training;

/* ---- data ---- */

/* How to open the dataset, from the options or as in the network's training. */
static aril_open_opts open_opts(const training *r)
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
static void print_task(const training *r)
{
    const char *const *names, *target;
    aril_dataset *d = r->data.train;
    if (r->o->quiet || aril_dataset_columns(d, NULL, &target) == 0 || !target) return;
    int n = aril_dataset_classes(d, &names);
    char line[512], name[256];
    size_t used = (size_t)snprintf(line, sizeof line, "target: column %s, ",
                                   printable(target, name, sizeof name));
    if (r->m.regression)
        snprintf(line + used, sizeof line - used, "numbers: regression%s",
                 r->o->task ? "" : " (for classification: --task classification)");
    else
        snprintf(line + used, sizeof line - used, "%d classes: classification%s", n,
                 r->o->task || !classes_are_numbers(n, names)
                     ? ""
                     : " (for regression: --task regression)");
    print_wrapped(stdout, line, 2);
}

static aril_dataset *resize_and_take(const training *r, aril_dataset *d, int64_t height,
                                     int64_t width)
{
    int64_t samples = r->o->samples;
    if (d && r->m.prepared) d = prepare_images(d, &r->m);
    if (d && height) d = resize_images(d, height, width);
    return d && samples ? aril_dataset_take(d, samples) : d;
}

/* Opens all splits, with images in the requested size or that of the network's training. */
static bool open_data(training *r, const char *what)
{
    const options *o = r->o;
    int64_t height = r->height, width = r->width;
    aril_splits *p = &r->data;
    r->m.seed = (uint64_t)o->seed;
    aril_splits_opts opts = { .open = open_opts(r),
                              .validation_split = o->validation_split,
                              .seed = r->m.seed };
    if (aril_splits_open(what, opts, p) != ARIL_OK) return false;
    r->m.held_out = p->held_out;
    int64_t rest = aril_dataset_size(p->train), tested = aril_dataset_size(p->val);
    if (rest == 0 || tested == 0) {
        aril_fail(
            ARIL_ERR_ARG,
            "expected at least one sample for training and one for validation, got %lld and %lld; "
            "--validation-split X sets the fraction for validation",
            (long long)rest, (long long)tested);
        return false;
    }
    if (!height && r->m.sized) height = r->m.input.dim[1], width = r->m.input.dim[2];
    if (height && !aril_dataset_has_images(p->train)) {
        aril_fail(ARIL_ERR_ARG, "--size is for images; %s has none", what);
        return false;
    }
    r->m.sized = height > 0;
    if (!aril_dataset_has_images(p->train)) r->m.prepared = false;
    bool test = p->test != NULL;
    p->train = resize_and_take(r, p->train, height, width);
    p->val = resize_and_take(r, p->val, height, width);
    if (test) p->test = resize_and_take(r, p->test, height, width);
    return p->train && p->val && (p->test || !test);
}

/* The number of outputs: classes, or values per target; determines the task. */
static bool read_targets(training *r, int64_t *outputs)
{
    aril_dataset *train = r->data.train;
    *outputs = aril_dataset_outputs(train, &r->m.regression);
    if (*outputs < 0) return false;
    print_task(r);
    if (!model_check_measures(&r->m, r->o->loss, r->o->metrics)) return false;
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

/* Mean and standard deviation of regression targets. */
static bool measure_targets(training *r)
{
    ARIL_SCOPE;
    aril_tensor *mean, *std;
    if (!r->m.regression) return true;
    aril_stats_opts opts = { .targets = true, .overall = true };
    if (aril_dataset_stats(r->data.train, opts, &mean, &std) != ARIL_OK) return false;
    if (!aril_nn_loss_is_difference(model_loss(&r->m, r->o->loss))) return true;
    r->m.target_scale[0] = aril_item(mean);
    r->m.target_scale[1] = aril_item(std);
    return aril_ok();
}

/* Standardizes columns and numeric targets to mean 0 and standard deviation 1, so that values of
 * any magnitude, such as prices and areas, are learned equally well. */
static bool measure_columns(training *r)
{
    enum { MAX_COLUMNS = 65536 };
    ARIL_SCOPE;
    model_file *m = &r->m;
    aril_tensor *mean, *std;
    if (!measure_targets(r)) return false;
    if (m->input.ndim != 1 || m->input.dim[0] > MAX_COLUMNS) return true;
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
static bool measure_channels(training *r)
{
    enum { ENOUGH = 4096 };
    ARIL_SCOPE;
    model_file *m = &r->m;
    aril_tensor *mean, *std;
    if (!aril_dataset_has_images(r->data.train) || m->input.ndim != 3 ||
        m->input.dim[0] > MAX_CHANNELS)
        return true;
    if (m->weights) { /* made for images that were normalized in their way */
        model_set_preprocess(m, aril_zoo_find(m->name));
        return aril_ok();
    }
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
static bool create_network(training *r, const char *name, aril_shape input, int64_t outputs)
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

static bool open_network(training *r, const char *name)
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

static bool has_option(const char *const *names, const char *name)
{
    while (names && *names && strcmp(*names, name) != 0) names++;
    return names && *names;
}

/* Reports a flag that the optimizer or schedule `chosen` does not have as an option, and those that
 * do. Returns false. */
static bool not_an_option(const char *flag, const char *field, const char *chosen,
                          const char *const *all,
                          const char *const *(*options_of)(const char *name))
{
    char names[512] = "";
    for (size_t n = 0; *all && n < sizeof names; all++)
        if (has_option(options_of(*all), field))
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", *all);
    aril_fail(ARIL_ERR_ARG, "%s is for %s, not for %s", flag, names, chosen);
    return false;
}

static aril_dtype autocast_of(const options *o)
{
    return !o->autocast ? 0 : strcmp(o->autocast, "f16") == 0 ? ARIL_F16 : ARIL_BF16;
}

static aril_optim *optimizer_of(const options *o)
{
    aril_optim_opts opts = { .lr = given(o->lr),
                             .momentum = given(o->momentum),
                             .weight_decay = given(o->weight_decay),
                             .nesterov = o->nesterov,
                             .clip_norm = o->clip };
    /* Gradient descent has no momentum by default; with it, the same epochs go further. */
    if (isnan(o->momentum) && has_option(aril_optim_option_names(o->optimizer), "nesterov") &&
        aril_optim_defaults(o->optimizer).momentum == 0)
        opts.momentum = 0.9;
    /* Small gradients are 0 in f16. */
    if (autocast_of(o) == ARIL_F16 &&
        has_option(aril_optim_option_names(o->optimizer), "loss_scale"))
        opts.loss_scale = 65536;
    return aril_optim_new(o->optimizer, NULL, opts);
}

/* The schedule over a whole training with that many updates per epoch. */
static aril_schedule *schedule_of(const options *o, int64_t updates)
{
    aril_schedule_opts opts = { .gamma = o->gamma, .warmup = o->warm_up };
    return aril_schedule_for_training(o->schedule, o->epochs, updates, opts);
}

static aril_optim *create_optimizer(const training *r)
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
static bool check_augmented_size(const training *r, aril_dataset *augmented)
{
    char have[64], want[64];
    shape_text(aril_dataset_shape(augmented), have, sizeof have);
    shape_text(r->m.input, want, sizeof want);
    if (!aril_ok()) return false;
    if (strcmp(have, want) == 0) return true;
    aril_fail(ARIL_ERR_SHAPE,
              "--augment produces images of shape %s, but validation images are %s; end it with a "
              "resize or crop to that size, or set --size",
              have, want);
    return false;
}

static bool create_loaders(training *r)
{
    const options *o = r->o;
    aril_transform *augment = o->augment ? aril_transform_parse(o->augment) : NULL, *batch = NULL;
    if (o->augment && !augment) return false;
    batch = augment ? aril_transform_take_batch(augment) : NULL;
    aril_dataset *train = augment
                              ? aril_dataset_transform(aril_dataset_keep(r->data.train), augment)
                              : aril_dataset_keep(r->data.train);
    if (!train || (augment && !check_augmented_size(r, train))) {
        aril_dataset_release(train);
        aril_transform_free(batch);
        return false;
    }
    aril_transform *normalize = model_normalize(&r->m);
    aril_transform *both[2] = { normalize, batch };
    aril_device device = device_option(o->device);
    aril_transform *change = normalize && batch ? aril_transform_list(2, both)
                             : normalize        ? normalize
                                                : batch;
    r->batches = aril_loader_new(train, (aril_loader_opts){ .batch = o->batch,
                                                            .shuffle = true,
                                                            .seed = (uint64_t)o->seed,
                                                            .workers = (int)o->workers,
                                                            .batch_transform = change,
                                                            .device = device });
    r->val_batches = aril_loader_new(aril_dataset_keep(r->data.val),
                                     (aril_loader_opts){ .batch = 256,
                                                         .workers = (int)o->workers,
                                                         .batch_transform = model_normalize(&r->m),
                                                         .device = device });
    return r->batches && r->val_batches;
}

static bool store_measures(training *r)
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

static bool compile(training *r)
{
    r->model = aril_model_new(aril_module_keep(r->m.scaled), r->m.input);
    aril_model_opts opts = { .optimizer = create_optimizer(r), .autocast = autocast_of(r->o) };
    if (opts.optimizer && r->model && store_measures(r))
        return model_compile(&r->m, r->model, NULL, NULL, opts) == ARIL_OK;
    aril_optim_free(opts.optimizer);
    return false;
}

static aril_history *fit(training *r)
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

static void training_free(training *r)
{
    aril_model_free(r->model);
    aril_loader_free(r->batches);
    aril_loader_free(r->val_batches);
    aril_splits_release(&r->data);
    model_close(&r->m);
}

/* The height for which the network is made, if it is more than the images have; otherwise 0. */
static int64_t larger_height(const training *r)
{
    const aril_zoo_entry *e = r->m.name ? aril_zoo_find(r->m.name) : NULL;
    bool images = e && e->input.ndim == 3 && r->m.input.ndim == 3;
    return images && e->input.dim[1] > r->m.input.dim[1] ? e->input.dim[1] : 0;
}

/* Advice after a shape error: images differ in size, or are too small for the network. */
static void advise_size(const training *r)
{
    bool differ = shapes_differ(r->data.train);
    int64_t height = larger_height(r);
    if (!differ && height)
        fprintf(stderr,
                "aril train: the images are %lld x %lld; %s is made for %lld x %lld: "
                "--size %lld resizes them\n",
                (long long)r->m.input.dim[1], (long long)r->m.input.dim[2], r->m.name,
                (long long)height, (long long)height, (long long)height);
    else if (differ || r->reading)
        fputs("aril train: the images differ in size; --size 64 resizes them to 64 x 64\n", stderr);
}

/* report(), plus advice when images do not fit or a checkpoint does not match. */
static int report_with_advice(const training *r)
{
    aril_status code = aril_error_code();
    int status = report("train");
    aril_dataset *train = r->data.train;
    if (code == ARIL_ERR_SHAPE && train && !r->m.sized && aril_dataset_has_images(train))
        advise_size(r);
    else if (code != ARIL_ERR_IO && r->o->resume && r->model &&
             aril_checkpoint_exists(r->checkpoint))
        fprintf(stderr,
                "aril train: if '%s' belongs to another training, start over with --fresh\n",
                r->checkpoint);
    return status;
}

/* Prints what is trained, on which data. */
static void print_start(training *r)
{
    const options *o = r->o;
    const aril_splits *p = &r->data;
    char text[128], device[64];
    if (o->quiet) return;
    char line[1024], data[512], counts[128] = "";
    size_t n = 0;
    if (!p->val_is_test)
        n = (size_t)snprintf(counts, sizeof counts, ", %lld for validation",
                             (long long)aril_dataset_size(p->val));
    if (p->test)
        snprintf(counts + n, sizeof counts - n, ", %lld for testing",
                 (long long)aril_dataset_size(p->test));
    aril_device_name(aril_device_of(aril_parameters(r->m.net)->at[0]), device, sizeof device);
    snprintf(line, sizeof line, "%s for inputs %s, %lld parameters, on %s: %lld samples%s, on %s",
             r->m.name, shape_text(r->m.input, text, sizeof text),
             (long long)aril_parameter_count(r->m.net), printable(o->data, data, sizeof data),
             (long long)aril_dataset_size(p->train), counts, device);
    print_wrapped(stdout, line, 2);
    fine_tune_print(&r->m, o->freeze);
    if (!p->test && p->held_out > 0) {
        snprintf(line, sizeof line,
                 "%s has no test split: %g %% of the samples are held out for validation "
                 "(--validation-split)",
                 data, 100 * p->held_out);
        print_wrapped(stdout, line, 2);
    }
    if (!r->m.regression && r->m.classes > aril_dataset_size(p->train)) {
        snprintf(
            line, sizeof line,
            "warning: there are more classes (%lld) than samples; if the targets are numbers, use "
            "--task regression",
            (long long)r->m.classes);
        print_wrapped(stdout, line, 2);
    }
    if (!r->m.regression && r->m.classes == 1)
        print_wrapped(
            stdout,
            "warning: there is only one class; a folder of images needs a subfolder for each "
            "class",
            2);
    fflush(stdout);
}

/* Reports that the loss became NaN, and which weights remain. */
static int print_diverged(const training *r)
{
    const options *o = r->o;
    fputs("aril train: the loss became NaN or infinite; ", stderr);
    if (r->kept.best.epoch >= 0)
        fprintf(stderr, "%s/model.safetensors has the weights of epoch %d\n", o->out,
                r->kept.best.epoch + 1);
    else
        fputs("no epoch had a finite loss, so no model was saved\n", stderr);
    fputs("aril train: a smaller --lr or --clip 1 may help", stderr);
    if (aril_checkpoint_exists(r->checkpoint))
        fputs("; --resume continues from the last checkpoint", stderr);
    fputs("\n", stderr);
    return EXIT_FAILED;
}

/* After a fit: writes images and prints the results. */
static int finish(training *r, aril_history *h)
{
    const options *o = r->o;
    const aril_splits *p = &r->data;
    bool diverged = aril_history_diverged(h);
    if (r->kept.best.epoch >= 0) {
        evaluated_on on = { p->val, p->test, p->held_out, p->val_is_test };
        results_load_best(&r->m, o->out);
        if (!o->no_images && aril_ok())
            results_draw(&r->m, h, p->test ? p->test : p->val, o->out, o->data);
        if (aril_ok() && !o->quiet) results_print(&r->m, &r->kept.best, &on, o->out, o->no_images);
    }
    if (!aril_ok()) return report("train");
    fflush(stdout);
    return diverged || r->kept.best.epoch < 0 ? print_diverged(r) : EXIT_DONE;
}

static int train(training *r, const char *name)
{
    const options *o = r->o;
    model_weights weights = { .file = o->weights, .root = o->root };
    if (model_is_file(name) ? !fine_tune_open(&r->m, name)
                            : !fine_tune_begin(&r->m, name, &weights, o->size != NULL))
        return report("train");
    if (!open_data(r, o->data) || !open_network(r, name) || !fine_tune_freeze(&r->m, o->freeze))
        return report_with_advice(r);
    free(r->m.data);
    r->m.data = strdup(o->data);
    if (o->device) aril_module_to(r->m.scaled, aril_device_named(o->device));
    if (!aril_ok() || !create_loaders(r) || !compile(r) || aril_folder_create(o->out) != ARIL_OK)
        return report("train");
    if (!o->resume && !o->fresh && aril_checkpoint_exists(r->checkpoint)) {
        fprintf(stderr,
                "aril train: '%s' has a checkpoint: continue with --resume or start over with "
                "--fresh\n",
                r->checkpoint);
        return EXIT_FAILED;
    }
    print_start(r);
    /* Each step changes the name of the weights file: the same name means that there was no step.
     */
    char before[4200] = "", after[4200] = "";
    bool resumes = o->resume && aril_checkpoint_exists(r->checkpoint) &&
                   aril_checkpoint_weights(r->checkpoint, before, sizeof before) == ARIL_OK;
    r->reading = true;
    aril_history *h = fit(r);
    if (!h) return report_with_advice(r);
    if (resumes && !o->quiet && !aril_history_diverged(h) &&
        aril_checkpoint_weights(r->checkpoint, after, sizeof after) == ARIL_OK &&
        strcmp(before, after) == 0)
        printf("all %d epochs are done; increase --epochs to continue\n", aril_history_epochs(h));
    if (aril_history_signal(h)) {
        char text[sizeof r->checkpoint + 64];
        snprintf(text, sizeof text, "stopped; continue from %s with the same command and --resume",
                 r->checkpoint);
        if (!o->quiet) fputc('\n', stdout);
        if (!o->quiet) print_wrapped(stdout, text, 2);
        return 128 + aril_history_signal(h);
    }
    return finish(r, h);
}

static bool check_optimizer(const options *o)
{
    const char *const *names = aril_optim_names(), *const *has =
                                                       aril_optim_option_names(o->optimizer);
    if (!isnan(o->momentum) && !has_option(has, "momentum"))
        return not_an_option("--momentum", "momentum", o->optimizer, names,
                             aril_optim_option_names);
    if (o->nesterov && !has_option(has, "nesterov"))
        return not_an_option("--nesterov", "nesterov", o->optimizer, names,
                             aril_optim_option_names);
    aril_optim_free(optimizer_of(o));
    return aril_ok();
}

static bool check_schedule(const options *o)
{
    if (!o->schedule) {
        const char *flag = o->gamma != 0 ? "--gamma" : o->warm_up > 0 ? "--warm-up" : NULL;
        if (flag) aril_fail(ARIL_ERR_ARG, "%s needs a --schedule, such as step", flag);
        return !flag;
    }
    if (o->gamma == 0 && aril_schedule_needs_gamma(o->schedule)) {
        aril_fail(ARIL_ERR_ARG, "--schedule %s needs --gamma, its decay factor", o->schedule);
        return false;
    }
    if (o->gamma != 0 && !has_option(aril_schedule_option_names(o->schedule), "gamma"))
        return not_an_option("--gamma", "gamma", o->schedule, aril_schedule_names(),
                             aril_schedule_option_names);
    aril_schedule_free(schedule_of(o, 1000));
    return aril_ok() || blame("--schedule");
}

/* Reports an output folder that is a file. */
static bool check_folder(const char *flag, const char *path)
{
    struct stat st;
    if (!path || stat(path, &st) != 0 || S_ISDIR(st.st_mode)) return true;
    aril_fail(ARIL_ERR_IO, "%s expects a folder, but '%s' is a file", flag, path);
    return false;
}

/* Checks the options that need no data. */
static bool check_options(const options *o, const char *model)
{
    const aril_zoo_entry *e = model_is_file(model) ? NULL : aril_zoo_find(model);
    if (!aril_ok()) return false;
    if (e && e->dtype == ARIL_I64) {
        aril_fail(ARIL_ERR_UNSUPPORTED,
                  "%s takes tokens, which no dataset of this command has; train it in a program "
                  "(aril_zoo_make)",
                  model);
        return false;
    }
    if (!o->data)
        aril_fail(ARIL_ERR_ARG, "expected a dataset, such as --data fashion-mnist");
    else if (!is_utf8(o->data))
        aril_fail(ARIL_ERR_ARG, "--data: the path is not UTF-8 text; rename it");
    else if (o->resume && o->fresh)
        aril_fail(ARIL_ERR_ARG, "--resume continues a training and --fresh starts over; set one");
    else if (o->validation_split >= 1)
        aril_fail(ARIL_ERR_ARG, "--validation-split expects a fraction below 1, got %g",
                  o->validation_split);
    model_weights weights = { .file = o->weights, .root = o->root };
    if (!aril_ok() || !fine_tune_check(model, &weights, o->freeze) || !check_optimizer(o) ||
        !check_schedule(o) || !check_device(o->device) || !check_folder("--out", o->out) ||
        !check_folder("--log", o->log) || !check_folder("--checkpoint", o->checkpoint))
        return false;
    if (o->augment) aril_transform_free(aril_transform_parse(o->augment));
    if (!aril_ok()) return blame("--augment");
    return measures_known(o->loss, o->metrics);
}

/* --size 64 or --size 48x64 */
static bool read_size(training *r, const char *text)
{
    aril_shape size;
    if (!shape_read(text, &size) || size.ndim > 2) {
        fprintf(stderr, "aril train: --size expects a size such as 64 or 48x64, got '%s'\n", text);
        return false;
    }
    r->height = size.dim[0];
    r->width = size.dim[size.ndim - 1];
    return true;
}

static int run(void *values, int n, char **argument)
{
    options *o = values;
    char out[4096], data[1024];
    training r = { .o = o, .kept.best.epoch = -1 };
    use_threads(o->threads);
    o->caffe.weights = o->weights;
    if (n == 0 && o->caffe.solver && check_device(o->device))
        return caffe_train(&o->caffe, o->device, o->workers, o->quiet);
    if (n == 0 || o->caffe.solver) {
        if (aril_ok())
            aril_fail(ARIL_ERR_ARG, "expected MODEL%s", n ? " or --solver, not both" : "");
        report("train");
        return EXIT_USAGE;
    }
    if (!caffe_is_unused(argument[0], o)) return EXIT_USAGE;
    if (!check_options(o, argument[0])) {
        report("train");
        return EXIT_USAGE;
    }
    if (o->size && !read_size(&r, o->size)) return EXIT_USAGE;
    if (!o->out) {
        dataset_base_name(o->data, data, sizeof data);
        snprintf(out, sizeof out, "%s-%s", model_is_name(argument[0]) ? argument[0] : "model",
                 data);
        o->out = out;
    }
    if (o->checkpoint)
        snprintf(r.checkpoint, sizeof r.checkpoint, "%s", o->checkpoint);
    else
        snprintf(r.checkpoint, sizeof r.checkpoint, "%s/checkpoint", o->out);
    aril_seed((uint64_t)o->seed);
    int status = train(&r, argument[0]);
    training_free(&r);
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

static const char *const *autocast_names(void)
{
    static const char *const names[] = { "bf16", "f16", NULL };
    return names;
}

static const char *const *task_names(void)
{
    static const char *const names[] = { "classification", "regression", NULL };
    return names;
}

static const char *const *freeze_names(void)
{
    static const char *const names[] = { "backbone", NULL };
    return names;
}

static const option table[] = {
    { .name = "data",
      .value = "DATASET",
      .kind = OPTION_DATASET,
      OPTION_AT(data),
      .choices = dataset_names,
      .help = "dataset, by name or path (`aril help datasets` lists them); each epoch is validated "
              "on its val "
              "split, otherwise on its test split, otherwise on a tenth of the training samples" },
    { .name = "task",
      .value = "NAME",
      .kind = OPTION_STRING,
      OPTION_AT(task),
      .choices = task_names,
      .only_choices = true,
      .by_default = "depends on the targets: text and a few small integers are classes",
      .help = "what to learn" },
    OPTION_TARGET("tables: target column, by name or number (default the last one)"),
    OPTION_SKIP,
    { .name = "epochs",
      .value = "N",
      .kind = OPTION_INTEGER,
      OPTION_AT(epochs),
      .min = 1,
      .max = INT_MAX,
      .help = "number of epochs" },
    { .name = "batch",
      .value = "N",
      .kind = OPTION_INTEGER,
      OPTION_AT(batch),
      .min = 1,
      .help = "batch size" },
    { .name = "out",
      .value = "DIR",
      .kind = OPTION_FOLDER,
      OPTION_AT(out),
      .by_default = "MODEL-DATASET",
      .help = "output folder for model, history, plots and checkpoints" },
    { .name = "size",
      .value = "SIZE",
      .kind = OPTION_STRING,
      OPTION_AT(size),
      .help = "resize all images to this size: 64 for 64 x 64, or height x width such as 48x64" },

    { .name = "", .help = "Fine-tuning:" },
    { .name = "weights",
      .value = "FILE",
      .kind = OPTION_FILE,
      OPTION_AT(weights),
      .help =
          "start from these weights, PyTorch's, safetensors or others; \"default\": from the "
          "published ones (`aril zoo get`). Images are resized, cropped and normalized as for "
          "those; the head is new if the number of classes differs. With --solver: caffemodels, "
          "separated by commas" },
    OPTION_ROOT,
    { .name = "freeze",
      .value = "PART",
      .kind = OPTION_STRING,
      OPTION_AT(freeze),
      .choices = freeze_names,
      .only_choices = true,
      .help = "do not train the backbone: all layers but the head, with their batch norm "
              "statistics" },

    { .name = "", .help = "Optimization:" },
    { .name = "optimizer",
      .value = "NAME",
      .kind = OPTION_STRING,
      OPTION_AT(optimizer),
      .choices = aril_optim_names,
      .only_choices = true,
      .by_default = "adam",
      .help = "optimizer" },
    { .name = "lr",
      .value = "X",
      .kind = OPTION_FLOAT,
      OPTION_AT(lr),
      .by_default = "depends on the optimizer",
      .help = "learning rate" },
    { .name = "momentum",
      .value = "X",
      .kind = OPTION_FLOAT,
      OPTION_AT(momentum),
      .by_default = "0.9 for sgd",
      .help = "momentum, for optimizers with this option" },
    { .name = "nesterov", OPTION_AT(nesterov), .help = "use Nesterov momentum (sgd)" },
    { .name = "weight-decay",
      .value = "X",
      .kind = OPTION_FLOAT,
      OPTION_AT(weight_decay),
      .by_default = "depends on the optimizer",
      .help = "weight decay" },
    { .name = "clip",
      .value = "X",
      .kind = OPTION_FLOAT,
      OPTION_AT(clip),
      .by_default = "no clipping",
      .help = "clip gradients to this global norm" },
    { .name = "schedule",
      .value = "NAME",
      .kind = OPTION_STRING,
      OPTION_AT(schedule),
      .choices = aril_schedule_names,
      .only_choices = true,
      .help = "learning rate schedule over the whole training (default none)" },
    { .name = "warm-up",
      .value = "N",
      .kind = OPTION_INTEGER,
      OPTION_AT(warm_up),
      .max = INT_MAX,
      .by_default = "0",
      .help = "epochs of linear learning rate warm-up before the schedule" },
    { .name = "gamma",
      .value = "X",
      .kind = OPTION_FLOAT,
      OPTION_AT(gamma),
      .min = -1,
      .by_default = "0.1 for step and multistep",
      .help = "decay factor of the schedules step, multistep, exponential, inverse and sigmoid" },
    { .name = "accumulate",
      .value = "N",
      .kind = OPTION_INTEGER,
      OPTION_AT(accumulate),
      .min = 1,
      .max = INT_MAX,
      .by_default = "1",
      .help = "gradient accumulation: batches per update" },
    { .name = "loss",
      .value = "NAME",
      .kind = OPTION_STRING,
      OPTION_AT(loss),
      .choices = loss_names,
      .by_default = "cross_entropy, or mse for regression",
      .help = "loss function" },
    { .name = "metrics",
      .value = "NAMES",
      .kind = OPTION_LIST,
      OPTION_AT(metrics),
      .choices = aril_metric_names,
      .by_default = "accuracy, or mae for regression",
      .help = "metrics, separated by commas" },
    { .name = "augment",
      .value = "TRANSFORMS",
      .kind = OPTION_LIST,
      OPTION_AT(augment),
      .help = "data augmentation, such as flip,crop=28:pad=2,rotate=10" },
    { .name = "early-stop",
      .value = "N",
      .kind = OPTION_INTEGER,
      OPTION_AT(early_stop),
      .min = 1,
      .max = INT_MAX,
      .help = "early stopping: stop after N epochs without improvement" },
    { .name = "seed",
      .value = "N",
      .kind = OPTION_INTEGER,
      OPTION_AT(seed),
      .by_default = "0",
      .help = "random seed of initialization, shuffling and augmentation" },

    { .name = "", .help = "Data loading and devices:" },
    OPTION_DEVICE("device to train on"),
    { .name = "autocast",
      .value = "DTYPE",
      .kind = OPTION_STRING,
      OPTION_AT(autocast),
      .choices = autocast_names,
      .only_choices = true,
      .help = "mixed precision: compute products and convolutions in this dtype; weights and loss "
              "stay f32" },
    OPTION_THREADS,
    OPTION_WORKERS,
    OPTION_SAMPLES,
    { .name = "validation-split",
      .value = "X",
      .kind = OPTION_FLOAT,
      OPTION_AT(validation_split),
      .help = "fraction of the training samples held out for validation; the test split, if any, "
              "is then evaluated once, at the end" },

    { .name = "", .help = "Logs and checkpoints:" },
    { .name = "log",
      .value = "DIR",
      .kind = OPTION_FOLDER,
      OPTION_AT(log),
      .help = "write TensorBoard logs to this folder" },
    { .name = "checkpoint",
      .value = "DIR",
      .kind = OPTION_FOLDER,
      OPTION_AT(checkpoint),
      .by_default = "OUT/checkpoint",
      .help = "folder for checkpoints" },
    { .name = "every",
      .value = "N",
      .kind = OPTION_INTEGER,
      OPTION_AT(every),
      .min = 1,
      .help = "also save a checkpoint every N batches, besides every epoch and every 30 seconds" },
    { .name = "resume",
      OPTION_AT(resume),
      .help = "resume from the checkpoint, if there is one, with its optimizer state and learning "
              "rate; --lr changes the learning rate" },
    { .name = "fresh", OPTION_AT(fresh), .help = "start over, even if there is a checkpoint" },
    { .name = "no-images",
      OPTION_AT(no_images),
      .help = "do not draw learning curves, confusion matrix and predictions" },
    { .name = "quiet", OPTION_AT(quiet), .help = "print errors only" },

    CAFFE_TRAIN_OPTIONS,
    { 0 },
};

static const example examples[] = {
    { "aril train lenet5 --data fashion-mnist",
      "five epochs with Adam; results go to lenet5-fashion-mnist/" },
    { "aril train convnet --data cifar10 --epochs 30 --schedule cosine --augment "
      "flip,crop=32:pad=4",
      "longer, with a cosine schedule and data augmentation" },
    { "aril train lenet5 --data fashion-mnist --resume", "continue after Ctrl-C or a crash" },
    { "aril train mlp --data houses.csv --target price", "regression on a table" },
    { "aril train resnet18 --weights default --freeze backbone --data ~/flowers",
      "a new head on published weights" },
    { "aril train --solver lenet_solver.prototxt", "a solver of Caffe" },
    { 0 },
};

const command command_train = {
    .name = "train",
    .summary = "train a network",
    .arguments = "[MODEL]",
    .about =
        "MODEL is the name of a network (`aril zoo` lists them), which is trained from scratch or "
        "from --weights, or a file or folder written by `aril train`, to train it further. Ctrl-C "
        "saves a checkpoint and stops; --resume continues from it. With --solver it trains a net "
        "of Caffe.",
    .options = table,
    .examples = examples,
    .size = sizeof(options),
    .defaults = &(const options){ .epochs = 5,
                                  .batch = 64,
                                  .optimizer = "adam",
                                  .lr = NAN,
                                  .momentum = NAN,
                                  .weight_decay = NAN },
    .min = 0,
    .max = 1,
    .choices = model_names,
    .run = run
};
