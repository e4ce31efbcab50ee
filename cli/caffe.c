/* aril train --solver, aril test and aril features of Caffe's nets. */
#include "caffe.h"
#include "commands.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

bool is_caffe(const char *path)
{
    static const char *const ends[] = { ".prototxt", ".caffemodel", ".caffemodel.h5", ".pbtxt" };
    size_t n = strlen(path);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t k = strlen(ends[i]);
        if (n > k && strcmp(path + n - k, ends[i]) == 0) return true;
    }
    return false;
}

const char *caffe_folder(const char *path, char *buf, size_t size)
{
    const char *slash = strrchr(path, '/');
    snprintf(buf, size, "%.*s", slash ? (int)(slash - path) + (slash == path) : 1,
             slash ? path : ".");
    return buf;
}

/* ---- which layers a net has ---- */

const char *const *caffe_phases(void)
{
    static const char *const names[] = { "TRAIN", "TEST", NULL };
    return names;
}

/* Splits "a, b,c" in place, without the spaces around; returns how many. */
static int split(char *text, const char **part, int most)
{
    int n = 0;
    for (char *at = strtok(text, ","); at && n < most; at = strtok(NULL, ",")) {
        at += strspn(at, " ");
        size_t length = strlen(at);
        while (length > 0 && at[length - 1] == ' ') at[--length] = '\0';
        if (length > 0) part[n++] = at;
    }
    return n;
}

bool caffe_state_opts(const caffe_state *s, aril_caffe_phase by_default, caffe_stages *list,
                      aril_caffe_opts *opts)
{
    int length = snprintf(list->text, sizeof list->text, "%s", s->stage ? s->stage : "");
    opts->phase = !s->phase                       ? by_default
                  : strcmp(s->phase, "TEST") == 0 ? ARIL_CAFFE_TEST
                                                  : ARIL_CAFFE_TRAIN;
    opts->level = (int)s->level;
    opts->n_stages = split(list->text, list->at, CAFFE_STAGES);
    opts->stages = list->at;
    if (length < (int)sizeof list->text && opts->n_stages < CAFFE_STAGES) return true;
    aril_fail(ARIL_ERR_ARG, "--stage: too many stages; at most %d", CAFFE_STAGES - 1);
    return false;
}

/* ---- signals ---- */

static volatile sig_atomic_t interrupted, hung_up;

static void on_interrupt(int sig)
{
    (void)sig;
    interrupted = 1;
}

static void on_hangup(int sig)
{
    (void)sig;
    hung_up = 1;
}

typedef struct effects {
    aril_caffe_action interrupt, hangup;
} effects;

static aril_caffe_action asked(void *ctx)
{
    const effects *e = ctx;
    aril_caffe_action a = ARIL_CAFFE_GO_ON;
    if (hung_up) { /* each flag is cleared before what it asks for: none is lost */
        hung_up = 0;
        a = e->hangup;
    }
    if (interrupted) {
        interrupted = 0;
        if (a != ARIL_CAFFE_STOP) a = e->interrupt;
    }
    return a;
}

const char *const *caffe_effects(void)
{
    static const char *const names[] = { "stop", "snapshot", "none", NULL };
    return names;
}

/* Catches a signal, or ignores one that has no effect. One that is ignored already (nohup, a
 * script's background jobs) stays so unless its effect is asked for. */
static aril_caffe_action catch (int sig, const char *asked, const char *by_default,
                                void (*handler)(int sig))
{
    const char *effect = asked ? asked : by_default;
    bool none = strcmp(effect, "none") == 0;
    struct sigaction before,
        mine = { .sa_handler = none ? SIG_IGN : handler, .sa_flags = SA_RESTART };
    sigemptyset(&mine.sa_mask);
    if (asked || sigaction(sig, NULL, &before) != 0 || before.sa_handler != SIG_IGN)
        sigaction(sig, &mine, NULL);
    return none                          ? ARIL_CAFFE_GO_ON
           : strcmp(effect, "stop") == 0 ? ARIL_CAFFE_STOP
                                         : ARIL_CAFFE_SNAPSHOT;
}

/* ---- MemoryData layers ---- */

static aril_tensor *array_of(aril_weights *w, const char *name)
{
    int i = aril_weights_find(w, name);
    return i < 0 ? NULL : aril_weights_tensor(w, i);
}

/* Gives MemoryData layers the arrays of a file (.npz, .h5, .safetensors) that are named as their
 * tops; that of labels may be missing. False after an error. */
static bool set_memory(const aril_module *net, aril_caffe_feed *f, const char *file)
{
    ARIL_SCOPE;
    aril_weights *w = aril_weights_open(file, (aril_weights_opts){ .root = "" });
    int n = 0;
    for (int i = 0; w && aril_ok() && i < aril_caffe_layers(net); i++) {
        aril_caffe_layer l = aril_caffe_layer_at(net, i);
        if (!l.is_data || strcmp(l.type, "MemoryData") != 0) continue;
        aril_tensor *x = array_of(w, l.tops[0]), *y = array_of(w, l.tops[1]);
        n++;
        if (x)
            aril_caffe_feed_set(f, l.name, x, y);
        else
            aril_fail(ARIL_ERR_ARG, "%s has no array '%s' for the layer '%s'", file, l.tops[0],
                      l.name);
    }
    if (w && aril_ok() && !n)
        aril_fail(ARIL_ERR_ARG, "--memory %s: the net '%s' has no MemoryData layer", file,
                  aril_caffe_name(net));
    aril_weights_close(w);
    return aril_ok();
}

static bool set_solver_memory(aril_caffe_solver *s, const caffe_train_options *o)
{
    const char *test = o->test_memory ? o->test_memory : o->memory;
    bool ok = !o->memory ||
              set_memory(aril_caffe_solver_net(s), aril_caffe_solver_feed(s, -1), o->memory);
    for (int i = 0; ok && test && i < aril_caffe_solver_tests(s); i++)
        ok = set_memory(aril_caffe_solver_test_net(s, i), aril_caffe_solver_feed(s, i), test);
    return ok;
}

/* ---- train ---- */

int caffe_train(const caffe_train_options *o, const char *device, int64_t workers, bool quiet)
{
    effects e = { .interrupt = catch (SIGINT, o->sigint, "stop", on_interrupt),
                  .hangup = catch (SIGHUP, o->sighup, "snapshot", on_hangup) };
    caffe_stages stages;
    aril_caffe_opts net;
    if (!caffe_state_opts(&o->state, ARIL_CAFFE_TRAIN, &stages, &net)) return report("train");
    aril_caffe_solver_opts opts = { .weights = o->weights,
                                    .snapshot = o->snapshot,
                                    .has_device = device != NULL,
                                    .device = device_option(device),
                                    .workers = (int)workers,
                                    .log = quiet ? NULL : stdout,
                                    .glog = o->glog,
                                    .level = net.level,
                                    .stages = net.stages,
                                    .n_stages = net.n_stages,
                                    .action = asked,
                                    .ctx = &e };
    aril_caffe_solver *s = aril_caffe_solver_open(o->solver, opts);
    if (s && set_solver_memory(s, o)) aril_caffe_solver_solve(s);
    aril_caffe_solver_free(s);
    return aril_ok() ? EXIT_DONE : report("train");
}

bool caffe_is_unused(const char *model, const void *values)
{
    static const char options[] =
        "snapshot memory test-memory sigint-effect sighup-effect stage level glog ";
    if (!is_caffe(model))
        return arguments_without(&command_train, values, options, true,
                                 "a training without --solver");
    fprintf(stderr, "aril train: Caffe's solvers are given by --solver: aril train --solver %s\n",
            model);
    return false;
}

/* ---- nets and their data ---- */

typedef struct open_net {
    aril_module *net;
    aril_caffe_feed *feed;
} open_net;

/* Opens a net in the test phase, its data, and builds it. */
static bool open_fed(const char *path, const caffe_test_options *o, const char *device, open_net *n)
{
    ARIL_SCOPE;
    caffe_stages stages;
    aril_caffe_opts opts = { 0 };
    if (!caffe_state_opts(&o->state, ARIL_CAFFE_TEST, &stages, &opts)) return false;
    char folder[4096];
    aril_caffe_feed_opts feed = { .root = caffe_folder(path, folder, sizeof folder),
                                  .workers = 1,
                                  .device = device_option(device) };
    n->net = aril_caffe_net(path, opts);
    if (n->net && device) aril_module_to(n->net, device_option(device));
    if (n->net) n->feed = aril_caffe_feed_new(n->net, feed);
    if (!n->feed || (o->weights && aril_caffe_weights_load(n->net, o->weights) != ARIL_OK))
        return false;
    aril_module_eval(n->net);
    return o->memory ? set_memory(n->net, n->feed, o->memory) : aril_ok();
}

static void close_fed(open_net *n)
{
    aril_caffe_feed_free(n->feed);
    aril_module_release(n->net);
}

/* ---- test ---- */

enum { MOST_OUTPUTS = 64 };

typedef struct scores {
    double *sum[MOST_OUTPUTS];
    int64_t n[MOST_OUTPUTS];
    double loss;
} scores;

/* A value to print: a NaN without a sign. */
static double shown(double value)
{
    return isnan(value) ? fabs((double)NAN) : value;
}

static void add_scores(const open_net *f, int64_t k, aril_tensor **out, scores *s)
{
    int n = aril_caffe_outputs(f->net);
    for (int i = 0; i < n && aril_ok(); i++) {
        aril_tensor *v = aril_cast(out[i], ARIL_F64);
        const double *at = aril_data(v);
        if (!at) return;
        if (!s->sum[i]) {
            s->n[i] = aril_numel(v);
            s->sum[i] = calloc((size_t)s->n[i] + 1, sizeof(double));
        }
        for (int64_t j = 0; s->sum[i] && j < s->n[i] && j < aril_numel(v); j++) {
            s->sum[i][j] += at[j];
            if (s->n[i] <= 16)
                printf("Batch %lld, %s = %g\n", (long long)k, aril_caffe_output(f->net, i).name,
                       shown(at[j]));
        }
    }
    if (out[n]) s->loss += aril_item(out[n]); /* not every net has a loss */
}

static void print_scores(const open_net *f, int64_t iterations, const scores *s)
{
    double share = 1 / (double)iterations;
    printf("Loss: %g\n", shown(s->loss * share));
    for (int i = 0; i < aril_caffe_outputs(f->net); i++) {
        aril_caffe_blob b = aril_caffe_output(f->net, i);
        for (int64_t j = 0; s->sum[i] && j < s->n[i]; j++) {
            double mean = shown(s->sum[i][j] * share);
            printf("%s = %g", b.name, mean);
            if (b.loss_weight != 0)
                printf(" (* %g = %g loss)", b.loss_weight, shown(b.loss_weight * mean));
            puts("");
        }
    }
}

/* After the first run: then the net is built. */
static void check_weights(const open_net *f, const char *weights)
{
    if (weights)
        caffe_report_weights("test", f->net, true);
    else if (aril_caffe_params(f->net) > 0)
        aril_fail(ARIL_ERR_ARG, "need weights to score: --weights FILE");
}

static void run_test(const open_net *f, const char *weights, int64_t iterations, scores *s)
{
    int n_in = aril_caffe_inputs(f->net), n_out = aril_caffe_outputs(f->net);
    aril_tensor *in[MOST_OUTPUTS] = { NULL }, *out[MOST_OUTPUTS + 1] = { NULL };
    if (n_in > MOST_OUTPUTS || n_out > MOST_OUTPUTS) {
        aril_fail(ARIL_ERR_UNSUPPORTED, "a net with %d inputs and %d outputs; at most %d", n_in,
                  n_out, MOST_OUTPUTS);
        return;
    }
    aril_caffe_sink *sink = aril_caffe_sink_new(f->net); /* of HDF5Output layers */
    aril_module_jit(f->net);
    for (int64_t k = 0; k < iterations && aril_ok(); k++) {
        ARIL_SCOPE;
        ARIL_NO_GRAD;
        if (aril_caffe_feed_next(f->feed, in) == ARIL_OK &&
            aril_caffe_sink_add(sink, (aril_list){ .n = n_in, .at = in }, out) == ARIL_OK) {
            if (k == 0) check_weights(f, weights);
            if (aril_ok()) add_scores(f, k, out, s);
        }
    }
    if (aril_ok()) aril_caffe_sink_write(sink);
    aril_caffe_sink_free(sink);
}

int caffe_test(const char *net, const caffe_test_options *o, const char *device)
{
    open_net f = { 0 };
    scores s = { 0 };
    if (open_fed(net, o, device, &f)) run_test(&f, o->weights, o->iterations, &s);
    if (aril_ok()) print_scores(&f, o->iterations, &s);
    for (int i = 0; i < MOST_OUTPUTS; i++) free(s.sum[i]);
    close_fed(&f);
    return aril_ok() ? EXIT_DONE : report("test");
}

/* ---- features ---- */

typedef struct options {
    caffe_test_options test;
    const char *device;
    int64_t threads;
} options;

static int run_features(void *values, int n, char **argument)
{
    (void)n;
    const options *o = values;
    const char *blob[MOST_OUTPUTS], *to[MOST_OUTPUTS];
    int blobs = split(argument[1], blob, MOST_OUTPUTS),
        files = split(argument[2], to, MOST_OUTPUTS);
    if (blobs != files || blobs == 0) {
        fprintf(stderr, "aril features: expected one OUT for each blob, got %d for %d\n", files,
                blobs);
        return EXIT_USAGE;
    }
    use_threads(o->threads);
    if (!check_device(o->device)) {
        report("features");
        return EXIT_USAGE;
    }
    open_net f = { 0 };
    if (open_fed(argument[0], &o->test, o->device, &f))
        aril_caffe_features(f.net, f.feed, o->test.iterations, blobs, blob, to);
    if (aril_ok() && o->test.weights)
        caffe_report_weights("features", f.net, true);
    else if (aril_ok())
        caffe_random("features", f.net);
    close_fed(&f);
    return aril_ok() ? EXIT_DONE : report("features");
}

static const option table[] = {
    { .name = "weights",
      .value = "FILE",
      .kind = OPTION_FILE,
      OPTION_AT(test.weights),
      .help = "caffemodel with the weights" },
    { .name = "iterations",
      .value = "N",
      .kind = OPTION_INTEGER,
      OPTION_AT(test.iterations),
      .min = 1,
      .max = 2147483647,
      .help = "number of batches" },
    { .name = "memory",
      .value = "FILE",
      .kind = OPTION_FILE,
      OPTION_AT(test.memory),
      .help = CAFFE_MEMORY_HELP },
    CAFFE_OPTION_STAGE(test.state),
    CAFFE_OPTION_LEVEL(test.state),
    OPTION_THREADS,
    OPTION_DEVICE("device to compute on"),
    { 0 },
};

static const example examples[] = {
    { "aril features val.prototxt fc7 features_lmdb --weights net.caffemodel --iterations 100",
      "a database with a vector for each image" },
    { "aril features val.prototxt fc7,prob fc7.h5,prob.h5 --weights net.caffemodel", "as HDF5" },
    { 0 },
};

const command command_features = {
    .name = "features",
    .summary = "write the blobs of a Caffe net",
    .arguments = "NET BLOB,... OUT,...",
    .about = "Runs a net of Caffe in its test phase on its data layers, and writes the values of "
             "each BLOB to the OUT at the same place: an HDF5 file if it ends in .h5, otherwise an "
             "LMDB in that folder. It is an error if there is one already.",
    .options = table,
    .examples = examples,
    .size = sizeof(options),
    .defaults = &(const options){ .test.iterations = 50 },
    .min = 3,
    .max = 3,
    .run = run_features
};
