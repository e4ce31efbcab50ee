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
    parts data;
    aril_loader *batches, *val_batches;
    aril_model *model;
    best_epoch best;
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

/* Whether the target of the first sample is a number. False after an error too. */
static bool has_numbers(aril_dataset *d)
{
    ARIL_SCOPE;
    aril_sample s;
    if (aril_dataset_get(d, 0, &s) < 0) return false;
    if (!s.y) aril_fail(ARIL_ERR_ARG, "the samples have no targets");
    return aril_ok() && aril_dtype_is_float(aril_dtype_of(s.y));
}

/* Prints what is learned from a table, and how to change it. */
static void tell_task(const run_parts *r, aril_dataset *d, const char *target, bool numbers)
{
    const char *const *names;
    int n = aril_dataset_classes(d, &names);
    if (r->o->quiet) return;
    char line[512], name[256];
    size_t used = (size_t)snprintf(line, sizeof line, "target: column %s, ",
                                   printable(target, name, sizeof name));
    if (r->m.regression)
        snprintf(line + used, sizeof line - used, "a number: regression%s",
                 r->o->task ? "" : " (--task classification makes classes of its values)");
    else
        snprintf(line + used, sizeof line - used, "%d classes: classification%s", n,
                 r->o->task || !numbers ? "" : " (--task regression takes them as numbers)");
    print_wrapped(stdout, line, 2);
}

/* Opens the training samples and determines the task: from the type of the targets unless given. */
static aril_dataset *open_train(run_parts *r, const char *data, aril_open_opts *opts)
{
    const char *target;
    aril_dataset *d = parts_train(data, *opts);
    if (!d) return NULL;
    r->m.regression = has_numbers(d);
    bool table = aril_dataset_columns(d, NULL, &target) > 0 && target;
    /* Numbers used as classes get names, so that other tables can be matched by them. */
    if (aril_ok() && parts_lack_names(d)) {
        aril_dataset_release(d);
        opts->class_target = true;
        d = parts_train(data, *opts);
        if (!d) return NULL;
        aril_dataset_columns(d, NULL, &target);
    }
    if (aril_ok() && table) tell_task(r, d, target, opts->class_target);
    if (aril_ok()) return d;
    aril_dataset_release(d);
    return NULL;
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
    parts *p = &r->data;
    aril_open_opts opts = open_opts(r);
    r->m.seed = (uint64_t)o->seed;
    aril_dataset *train = open_train(r, what, &opts);
    if (!train || !parts_open(what, opts, o->validation_split, r->m.seed, train, p)) return false;
    r->m.kept = p->kept;
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

/* The number of classes, or of values per target. */
static bool look_at_targets(run_parts *r, int64_t *results)
{
    ARIL_SCOPE;
    aril_sample s = { 0 };
    aril_dataset *train = r->data.train;
    if (aril_dataset_get(train, 0, &s) < 0) return false;
    aril_dtype x = aril_dtype_of(s.x);
    if (!aril_dtype_is_float(x) && !aril_dataset_has_images(train))
        aril_fail(ARIL_ERR_DTYPE, "the samples are %s, and the networks of the zoo take floats",
                  aril_dtype_name(x));
    if (!aril_ok()) return false;
    *results = r->m.regression ? aril_numel(s.y) : aril_dataset_classes(train, NULL);
    if (*results > 0) return true;
    int64_t most = 0;
    for (int64_t i = 0; i < aril_dataset_size(train); i++) {
        ARIL_SCOPE;
        if (aril_dataset_get(train, i, &s) < 0) return false;
        int64_t label = aril_item_int(s.y);
        if (label > most) most = label;
    }
    *results = most + 1;
    return true;
}

/* ---- scales ---- */

/* Sums of values and of their squares. */
typedef struct sums {
    int64_t n; /* number of values per row */
    double count, *sum, *squares;
} sums;

/* Adds the rows of x [N,n]. */
static void add_rows(sums *s, aril_tensor *x)
{
    ARIL_SCOPE;
    aril_tensor *rows = aril_reshape(aril_cast(x, ARIL_F64), ARIL_SHAPE(-1, s->n));
    const double *sum = aril_data(aril_sum(rows, ARIL_AXES(0)));
    const double *squares = aril_data(aril_sum(aril_square(rows), ARIL_AXES(0)));
    for (int64_t i = 0; sum && squares && i < s->n; i++) {
        s->sum[i] += sum[i];
        s->squares[i] += squares[i];
    }
    s->count += (double)aril_size(rows, 0);
}

/* Mean and standard deviation of value i; 0 and 1 if it is constant. */
static void scale_of(const sums *s, int64_t i, double *mean, double *deviation)
{
    double m = s->sum[i] / s->count, variance = s->squares[i] / s->count - m * m;
    bool good = isfinite(m) && isfinite(variance) && variance > 1e-12 * m * m;
    *mean = good ? m : 0;
    *deviation = good ? sqrt(variance) : 1;
}

/* NaN in the data makes the loss NaN immediately, which looks like too large a learning rate. */
static bool sums_are_finite(const sums *s, const char *const *names, int n_names)
{
    for (int64_t i = 0; i < s->n; i++) {
        if (isfinite(s->sum[i])) continue;
        if (i < n_names && names[i])
            aril_fail(ARIL_ERR_NUMBER, "column %s holds NaN or infinite values", names[i]);
        else
            aril_fail(ARIL_ERR_NUMBER, "value %lld of the samples is NaN or infinite in some",
                      (long long)i + 1);
        return false;
    }
    return true;
}

/* Losses on differences, which work with targets in any unit. */
static bool takes_any_unit(const char *loss)
{
    static const char *const names[] = { "mse", "l1", "mae", "huber", "smooth_l1" };
    for (size_t i = 0; loss && i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], loss) == 0) return true;
    return !loss;
}

/* Scales columns and numeric targets to mean 0 and standard deviation 1, so that values of any
 * magnitude, such as prices and areas, are learned equally well. */
static bool measure_columns(run_parts *r)
{
    enum { MOST_COLUMNS = 65536 };
    model_file *m = &r->m;
    int64_t n = m->input.ndim == 1 && m->input.dim[0] <= MOST_COLUMNS ? m->input.dim[0] : 0;
    if (n == 0 && !m->regression) return true;
    double *room = calloc((size_t)(2 * n + 2), sizeof *room);
    m->column_scale = n ? calloc((size_t)(2 * n), sizeof *m->column_scale) : NULL;
    sums x = { .n = n, .sum = room, .squares = room ? room + n : NULL };
    sums y = { .n = 1,
               .sum = room ? room + 2 * n : NULL,
               .squares = room ? room + 2 * n + 1 : NULL };
    bool ok = room && (m->column_scale || n == 0);
    aril_loader *l =
        ok ? aril_loader_new(aril_dataset_keep(r->data.train), (aril_loader_opts){ .batch = 1024 })
           : NULL;
    for (aril_batch b; l && aril_loader_next(l, &b);) {
        if (n) add_rows(&x, b.x);
        if (m->regression) add_rows(&y, b.y);
    }
    aril_loader_free(l);
    const char *const *names = NULL, *target = NULL;
    int n_names = aril_dataset_columns(r->data.train, &names, &target);
    ok = ok && sums_are_finite(&x, names, n_names) &&
         (!m->regression || sums_are_finite(&y, &target, target ? 1 : 0));
    for (int64_t i = 0; ok && i < n; i++)
        scale_of(&x, i, &m->column_scale[i], &m->column_scale[n + i]);
    if (ok && m->regression && takes_any_unit(r->o->loss))
        scale_of(&y, 0, &m->target_scale[0], &m->target_scale[1]);
    free(room);
    return ok && aril_ok();
}

/* Mean and standard deviation of each channel over a few thousand images. */
static bool measure_channels(run_parts *r)
{
    enum { ENOUGH = 4096 };
    model_file *m = &r->m;
    double sum[MOST_CHANNELS] = { 0 }, squares[MOST_CHANNELS] = { 0 }, n = 0;
    int64_t seen = 0;
    if (!aril_dataset_has_images(r->data.train) || m->input.ndim != 3 ||
        m->input.dim[0] > MOST_CHANNELS)
        return true;
    aril_loader *l = aril_loader_new(aril_dataset_keep(r->data.train),
                                     (aril_loader_opts){ .batch = 128, .shuffle = true });
    for (aril_batch b; l && seen < ENOUGH && aril_loader_next(l, &b); seen += b.n) {
        ARIL_SCOPE;
        aril_tensor *x = aril_cast(b.x, ARIL_F64);
        for (int k = 0; k < (int)m->input.dim[0]; k++) {
            aril_tensor *part = aril_select(x, 1, k);
            sum[k] += aril_item(aril_sum(part, ARIL_ALL));
            squares[k] += aril_item(aril_sum(aril_square(part), ARIL_ALL));
        }
        n += (double)aril_numel(x) / (double)m->input.dim[0];
    }
    aril_loader_free(l);
    if (!aril_ok() || n == 0) return aril_ok();
    m->n_channels = (int)m->input.dim[0];
    for (int k = 0; k < m->n_channels; k++) {
        double mean = sum[k] / n, variance = squares[k] / n - mean * mean;
        m->mean[k] = round(mean * 1e4) / 1e4;
        m->std[k] = fmax(1e-3, round(sqrt(fmax(0, variance)) * 1e4) / 1e4);
    }
    return true;
}

/* ---- the network ---- */

/* Creates a network of the zoo, with the metadata of the dataset. */
static bool make_network(run_parts *r, const char *name, aril_shape input, int64_t results)
{
    const char *const *names, *target;
    aril_dataset *train = r->data.train;
    if (!model_make(name, input, results, &r->m)) return false;
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
    int64_t results = 0;
    if (!look_at_targets(r, &results)) return false;
    aril_shape input = aril_dataset_shape(r->data.train);
    char have[64], want[64];
    if (!aril_ok()) return false;
    if (!model_is_file(name)) return make_network(r, name, input, results);
    shape_text(r->m.input, want, sizeof want);
    shape_text(input, have, sizeof have);
    if (strcmp(have, want) != 0 || r->m.classes != results) {
        const char *kind = r->m.regression ? "numbers" : "classes apart";
        aril_fail(ARIL_ERR_SHAPE, "'%s' takes %s and tells %lld %s; the dataset has %s and %lld",
                  name, want, (long long)r->m.classes, kind, have, (long long)results);
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
    const char *const name = o->schedule;
    bool step = strcmp(name, "step") == 0, multistep = strcmp(name, "multistep") == 0;
    bool by_epoch =
        step || multistep || strcmp(name, "plateau") == 0 || strcmp(name, "exponential") == 0;
    int64_t count = by_epoch ? 1 : updates, total = o->epochs * count;
    aril_schedule_opts s = {
        .per_batch = !by_epoch, .gamma = o->gamma, .total = total, .warmup = o->warm_up * count
    };
    if (step) s.every = (o->epochs + 2) / 3;
    if (strcmp(name, "sigmoid") == 0) s.every = total / 2;
    if (multistep) s.at[0] = (o->epochs + 1) / 2;
    if (multistep && o->epochs * 3 / 4 > s.at[0]) s.at[1] = o->epochs * 3 / 4;
    if (strcmp(name, "constant") == 0) s.start = 1;
    if (strcmp(name, "linear") == 0) s.start = 1, s.end = ARIL_ZERO;
    if (!by_epoch && s.total > s.warmup) s.total -= s.warmup;
    return aril_schedule_new(name, s);
}

static aril_optim *make_optimizer(const run_parts *r)
{
    const options *o = r->o;
    aril_optim *opt = optimizer_of(o);
    if (!opt || !o->schedule) return opt;
    int64_t together = o->accumulate > 1 ? o->accumulate : 1;
    int64_t updates = (aril_loader_length(r->batches) + together - 1) / together;
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

static bool make_loaders(run_parts *r)
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
    aril_transform *normalise = model_normalise(&r->m);
    aril_transform *both[2] = { normalise, batch };
    aril_transform *change = normalise && batch ? aril_transform_list(2, both)
                             : normalise        ? normalise
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
                                            .batch_transform = model_normalise(&r->m) });
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
    aril_model_opts opts = { .optimizer = make_optimizer(r) };
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
    snprintf(path, sizeof path, "%s/model.safetensors", o->out);
    callbacks.at[n++] = results_keep_best(&r->m, path, o->lr, o->quiet, &r->best);
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
    parts_close(&r->data);
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
    const parts *p = &r->data;
    char text[128], device[64];
    if (o->quiet) return;
    char line[1024], data[512], counts[128] = "";
    size_t n = 0;
    if (!p->by_test)
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
    if (!p->test && p->kept > 0) {
        snprintf(line, sizeof line,
                 "%s has no part called test: %g %% of the samples are held out "
                 "(--validation-split)",
                 data, 100 * p->kept);
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
    if (r->best.epoch >= 0)
        fprintf(stderr, "%s/model.safetensors is that of epoch %d\n", o->out, r->best.epoch + 1);
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
    const parts *p = &r->data;
    bool diverged = aril_history_diverged(h);
    if (r->best.epoch >= 0) {
        measured_on on = { p->val, p->test, p->kept, p->by_test };
        results_load_best(&r->m, o->out);
        if (!o->no_images && aril_ok())
            results_draw(&r->m, h, p->test ? p->test : p->val, o->out, o->data);
        if (aril_ok() && !o->quiet) results_tell(&r->m, &r->best, &on, o->out, o->no_images);
    }
    if (!aril_ok()) return report("train");
    fflush(stdout);
    return diverged || r->best.epoch < 0 ? tell_diverged(r) : EXIT_DONE;
}

static int train(run_parts *r, const char *name)
{
    const options *o = r->o;
    if (model_is_file(name) && !model_open(name, &r->m)) return report("train");
    if (!open_data(r, o->data) || !open_network(r, name)) return report_with_advice(r);
    free(r->m.data);
    r->m.data = strdup(o->data);
    if (o->device) aril_module_to(r->m.scaled, aril_device_named(o->device));
    if (!aril_ok() || !make_loaders(r) || !compile(r) || aril_folder_create(o->out) != ARIL_OK)
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
    run_parts r = { .o = o, .best = { .epoch = -1 } };
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
      .help = "a name or a path (`aril data --help`); after each epoch its part called val is "
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
      .help = "what is measured, with commas between; default accuracy, or mae for numbers" },
    { .name = "augment",
      .value = "CHANGES",
      .kind = OPTION_TEXT,
      AT(augment),
      .help = "random changes to images, such as flip,crop=28:pad=2,rotate=10" },
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
