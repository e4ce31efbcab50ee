/* Opens solvers, and runs the loop of training. */
#include "aril/create.h"
#include "aril/device.h"
#include "aril/rng.h"
#include "aril/scope.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "formats/caffe/net.h"
#include "data/caffe/transform.h"
#include "models/caffe/net.h"
#include "nn/module.h"
#include "train/caffe/solver.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static aril_status no_memory(void)
{
    return aril__fail(ARIL_ERR_MEMORY, "solver: out of memory");
}

/* ---- nets ---- */

/* Where one net of the solver comes from: a message within it, or a file. */
typedef struct net_source {
    const aril__message *message, *state; /* state: train_state or test_state; NULL: none */
    const char *path;
} net_source;

/* Level and stages of a NetState; `stages` has room for them. */
static void put_state(const aril__message *state, const char **stages, aril_caffe_opts *opts)
{
    if (!state) return;
    opts->level = (int)aril__message_int(state, "level");
    opts->n_stages = (int)aril__message_count(state, "stage");
    for (int i = 0; i < opts->n_stages; i++)
        stages[i] = aril__message_text_at(state, "stage", (size_t)i);
    opts->stages = stages;
}

static char *path_of(const aril_caffe_solver *s, const char *path)
{
    return aril__caffe_source_path(s->root ? s->root : s->folder, path);
}

static void log_net(const aril_caffe_solver *s, const char *what, const char *name, bool train)
{
    if (train)
        aril__caffe_log(s, "Creating training net from %s%s", what, name);
    else
        aril__caffe_log(s, "Creating test net (#%d) specified by %s%s", s->n_tests - 1, what, name);
}

static aril_module *open_net(aril_caffe_solver *s, const net_source *from, bool train)
{
    size_t n = from->state ? aril__message_count(from->state, "stage") : 0;
    const char **stages = aril__malloc((n + 1) * sizeof *stages);
    char *path = from->message || !stages ? NULL : path_of(s, from->path);
    aril_module *net = NULL;
    if (!stages || (!from->message && !path)) {
        no_memory();
    } else {
        aril_caffe_opts opts = { .phase = train ? ARIL_CAFFE_TRAIN : ARIL_CAFFE_TEST,
                                 .root = s->root };
        put_state(from->state, stages, &opts);
        aril__message *file = from->message ? NULL : aril__caffe_net_load(path);
        const char *name = from->message ? "the solver's net" : path;
        const aril__message *message = from->message ? from->message : file;
        if (message) log_net(s, from->message ? "" : "net file: ", name, train);
        if (message) net = aril__caffe_net_from(message, name, opts);
        aril__message_free(file);
    }
    free(stages);
    free(path);
    return net;
}

/* The files of HDF5Output layers. */
static aril_status open_sink(aril_caffe_solver *s, aril__caffe_part *p)
{
    p->sink = aril_caffe_sink_new(p->net);
    if (!p->sink) return aril__latest_status();
    p->n_written = aril__caffe_sink_values(p->sink);
    return aril__caffe_sink_place(p->sink, s);
}

/* The batch size is known after the first batch: parameters are created from it. */
static aril_status build(aril__caffe_part *p)
{
    ARIL_SCOPE;
    aril_tensor *in[ARIL__CAFFE_OUTPUTS] = { NULL };
    int n = 3 * aril__caffe_feed_loaders(p->feed);
    int64_t *start = aril__malloc(((size_t)n + 1) * sizeof *start);
    if (!start) return no_memory();
    aril__caffe_feed_tell(p->feed, start);
    aril_status status = aril__caffe_feed_first(p->feed, in);
    if (status == ARIL_OK && !aril_module_built(p->net))
        status = aril_module_build_n(p->net, (aril_list){ .n = p->n_in, .at = in });
    if (status == ARIL_OK) status = aril__caffe_feed_seek(p->feed, start, "solver");
    free(start);
    return status;
}

static aril_status open_part(aril_caffe_solver *s, aril__caffe_part *p, const net_source *from,
                             bool train)
{
    p->solver = s;
    p->net = open_net(s, from, train);
    if (!p->net) return aril__latest_status();
    p->n_in = aril_caffe_inputs(p->net);
    p->n_out = aril_caffe_outputs(p->net);
    aril_status status = open_sink(s, p);
    if (status != ARIL_OK) return status;
    if (p->n_in > ARIL__CAFFE_OUTPUTS || p->n_out + p->n_written >= ARIL__CAFFE_OUTPUTS)
        return aril__fail(ARIL_ERR_UNSUPPORTED,
                          "solver: a net with %d inputs and %d outputs; at most %d are supported",
                          p->n_in, p->n_out, ARIL__CAFFE_OUTPUTS - 1);
    status = aril_module_to(p->net, s->device);
    if (status != ARIL_OK) return status;
    aril_caffe_feed_opts feed = { .root = s->root ? s->root : s->folder,
                                  .seed = (s->settings.seed < 0 ? 0 : (uint64_t)s->settings.seed),
                                  .workers = s->opts.workers == 0  ? 1
                                             : s->opts.workers < 0 ? 0
                                                                   : s->opts.workers,
                                  .train = train,
                                  .device = s->device };
    p->feed = aril_caffe_feed_new(p->net, feed);
    status = p->feed ? build(p) : aril__latest_status();
    if (status == ARIL_OK) aril__caffe_log_shapes(s, p->net);
    return status;
}

/* ---- which nets a solver has ---- */

static int n_set(const aril__message *m, const char *const *names, int n)
{
    int k = 0;
    for (int i = 0; i < n; i++) k += aril__message_has(m, names[i]);
    return k;
}

static aril_status train_source(const aril__message *m, const char *file, net_source *from)
{
    static const char *const names[] = { "net", "net_param", "train_net", "train_net_param" };
    int n = n_set(m, names, 4);
    if (n != 1)
        return aril__caffe_solver_bad(m, file, "net",
                                      "expected one of net, net_param, train_net and "
                                      "train_net_param, got %d of them",
                                      n);
    *from = (net_source){ 0 };
    if (aril__message_has(m, "net_param")) from->message = aril__message_sub(m, "net_param");
    if (aril__message_has(m, "train_net_param"))
        from->message = aril__message_sub(m, "train_net_param");
    if (!from->message)
        from->path = aril__message_text(m, aril__message_has(m, "net") ? "net" : "train_net");
    if (aril__message_has(m, "train_state")) from->state = aril__message_sub(m, "train_state");
    return ARIL_OK;
}

/* Test net i: first the messages of test_net_param, then the files of test_net, then the net that
 * is trained, in its test phase. */
static void test_source(const aril__message *m, size_t i, net_source *from)
{
    size_t params = aril__message_count(m, "test_net_param"),
           files = aril__message_count(m, "test_net");
    *from = (net_source){ 0 };
    if (aril__message_count(m, "test_state"))
        from->state = aril__message_sub_at(m, "test_state", i);
    if (i < params)
        from->message = aril__message_sub_at(m, "test_net_param", i);
    else if (i < params + files)
        from->path = aril__message_text_at(m, "test_net", i - params);
    else if (aril__message_has(m, "net_param"))
        from->message = aril__message_sub(m, "net_param");
    else
        from->path = aril__message_text(m, "net");
}

enum { MOST_TESTS = 256 };

static aril_status count_tests(const aril__message *m, const aril__caffe_settings *c, int *n)
{
    size_t own = aril__message_count(m, "test_net_param") + aril__message_count(m, "test_net");
    size_t iters = aril__message_count(m, "test_iter"),
           states = aril__message_count(m, "test_state");
    bool generic = aril__message_has(m, "net") || aril__message_has(m, "net_param");
    *n = 0;
    if (iters > MOST_TESTS)
        return aril__caffe_solver_bad(m, c->file, "test_iter",
                                      "%zu test_iter: a solver has at most %d test nets", iters,
                                      MOST_TESTS);
    if (iters < own || (!generic && iters != own))
        return aril__caffe_solver_bad(
            m, c->file, "test_iter",
            "test_iter must be given once for each test net: there are %zu "
            "nets and %zu test_iter",
            own, iters);
    if (states && states != iters)
        return aril__caffe_solver_bad(
            m, c->file, "test_state",
            "test_state must be given for each of the %zu test nets, or for "
            "none; got %zu",
            iters, states);
    if (iters && c->test_interval == 0)
        return aril__caffe_solver_bad(m, c->file, "test_interval",
                                      "test_iter needs a test_interval");
    for (size_t i = 0; i < iters; i++)
        if (aril__message_int_at(m, "test_iter", i) < 1)
            return aril__caffe_solver_bad(m, c->file, "test_iter",
                                          "test_iter must be at least 1, got %lld",
                                          (long long)aril__message_int_at(m, "test_iter", i));
    *n = (int)iters;
    return ARIL_OK;
}

static aril_status open_tests(aril_caffe_solver *s)
{
    int n;
    aril_status status = count_tests(s->message, &s->settings, &n);
    if (status != ARIL_OK || n == 0) return status;
    s->test = aril__calloc((size_t)n * sizeof *s->test);
    if (!s->test) return no_memory();
    for (int i = 0; i < n && status == ARIL_OK; i++) {
        net_source from;
        test_source(s->message, (size_t)i, &from);
        s->n_tests++;
        s->test[i].iterations = aril__message_int_at(s->message, "test_iter", (size_t)i);
        status = open_part(s, &s->test[i], &from, false);
        if (status == ARIL_OK) status = aril_caffe_share(s->test[i].net, s->train.net);
        if (status == ARIL_OK) aril_module_eval(s->test[i].net);
    }
    return status;
}

/* ---- opening ---- */

/* The first source of data in a net that is a part of the solver; NULL: there is none. */
static const char *first_source(const aril__message *net)
{
    static const char *const layers[] = { "layer", "layers" };
    static const char *const params[] = { "data_param", "image_data_param", "hdf5_data_param",
                                          "window_data_param" };
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < aril__message_count(net, layers[k]); i++)
            for (int p = 0; p < 4; p++) {
                const aril__message *layer = aril__message_sub_at(net, layers[k], i),
                                    *param = aril__message_sub(layer, params[p]);
                if (aril__message_has(param, "source")) return aril__message_text(param, "source");
            }
    return NULL;
}

/* The net was found: what it names may be beside it, as for `aril test`. */
static aril_status note_folder(aril_caffe_solver *s, const char *path)
{
    const char *slash = strrchr(path, '/');
    s->folder = aril__strdup(slash ? path : ".");
    if (s->folder && slash) s->folder[slash == path ? 1 : slash - path] = '\0';
    return s->folder ? ARIL_OK : no_memory();
}

/* The folder where the paths of a solver start; see the header. */
static aril_status find_root(aril_caffe_solver *s, const char *path, const net_source *from)
{
    char folder[PATH_MAX], try[2 * PATH_MAX];
    struct stat st;
    const char *slash = path ? strrchr(path, '/') : NULL;
    const char *sought = from->message ? first_source(from->message) : from->path;
    if (!sought || *sought == '/' || stat(sought, &st) == 0)
        return note_folder(s, from->message ? path : from->path);
    if (!slash)
        snprintf(folder, sizeof folder, ".");
    else if (snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path) >= PATH_MAX)
        return aril__fail(ARIL_ERR_ARG, "solver: the path '%.80s...' is too long", path);
    char *absolute = realpath(*folder ? folder : "/", NULL);
    if (!absolute) return ARIL_OK; /* the net will be reported as missing */
    s->root = aril__strdup(absolute);
    for (char *end = absolute + strlen(absolute); end; end = strrchr(absolute, '/')) {
        *end = '\0';
        snprintf(try, sizeof try, "%s/%s", absolute, sought);
        if (stat(try, &st) != 0) continue;
        free(s->root);
        s->root = aril__strdup(*absolute ? absolute : "/");
        break;
    }
    free(absolute);
    return s->root ? ARIL_OK : no_memory();
}

/* The folder of the file may have to be found like other paths. */
char *aril__caffe_output_path(const aril_caffe_solver *s, const char *path)
{
    const char *slash = strrchr(path, '/'), *in = *path == '/' || !s->root ? "" : s->root;
    struct stat st;
    char *found = NULL;
    if (*in && slash) {
        char *folder = aril__strdup(path);
        if (folder) folder[slash - path] = '\0';
        found = folder ? path_of(s, folder) : NULL;
        free(folder);
        if (!found) return no_memory(), NULL;
        if (stat(found, &st) == 0 && S_ISDIR(st.st_mode)) in = found;
    }
    const char *name = *in && slash ? slash + 1 : path;
    size_t size = strlen(in) + strlen(name) + 2;
    char *whole = aril__malloc(size);
    if (whole)
        snprintf(whole, size, "%s%s%s", in, *in ? "/" : "", name);
    else
        no_memory();
    free(found);
    return whole;
}

static aril_status given_prefix(aril_caffe_solver *s)
{
    s->prefix = aril__caffe_output_path(s, s->settings.prefix);
    return s->prefix ? ARIL_OK : aril__latest_status();
}

/* Without a prefix snapshots have the name of the solver's file (path), and are beside it; a prefix
 * that is a folder gets that name, as in Caffe's master. */
static aril_status find_prefix(aril_caffe_solver *s, const char *path)
{
    struct stat st;
    bool given = aril__message_has(s->message, "snapshot_prefix");
    aril_status status = given || !path ? given_prefix(s) : ARIL_OK;
    bool folder =
        status == ARIL_OK && s->prefix && stat(s->prefix, &st) == 0 && S_ISDIR(st.st_mode);
    if (status != ARIL_OK || !path || (given && !folder)) return status;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path,
               *dot = strrchr(name, '.');
    const char *from = folder ? name : path, *in = folder ? s->prefix : "";
    int length = (int)((dot && dot > name ? dot : name + strlen(name)) - from);
    bool open = folder && in[strlen(in) - 1] != '/';
    size_t size = strlen(in) + (size_t)length + 2;
    char *prefix = aril__malloc(size);
    if (prefix) snprintf(prefix, size, "%s%s%.*s", in, open ? "/" : "", length, from);
    free(s->prefix);
    s->prefix = prefix;
    if (prefix)
        aril__caffe_log(s, "note: snapshot_prefix is %s, so it is %s",
                        folder ? "a folder" : "not given", prefix);
    return prefix ? ARIL_OK : no_memory();
}

/* Returns whether there is no GPU where the solver asks for one. */
static bool choose_device(aril_caffe_solver *s)
{
    s->device = s->opts.has_device ? s->opts.device : aril_cpu();
    if (s->opts.has_device || !s->settings.gpu) return false;
    int index = s->settings.device;
    bool possible = index >= 0 && index < INT16_MAX; /* others are an error of aril_cuda */
    bool found = possible && aril_device_available(aril_cuda(index));
    if (found) s->device = aril_cuda(index);
    return !found && s->settings.says_gpu;
}

/* Loads caffemodels, whose names are separated by commas. */
static aril_status load_weights(aril_caffe_solver *s, const char *list, bool below_root)
{
    aril_status status = ARIL_OK;
    for (bool more = true; more && status == ARIL_OK;) {
        char name[PATH_MAX];
        size_t n = strcspn(list, ",");
        if (n == 0)
            return aril__fail(ARIL_ERR_ARG, "solver: the list of weights has an empty name");
        if (n >= sizeof name)
            return aril__fail(ARIL_ERR_ARG, "solver: the path '%.80s...' is too long", list);
        memcpy(name, list, n);
        name[n] = '\0';
        more = list[n] == ',';
        list += n + more;
        char *path = below_root ? path_of(s, name) : aril__strdup(name);
        if (!path) return no_memory();
        aril__caffe_log(s, "Finetuning from %s", path);
        status = aril_caffe_weights_load(s->train.net, path);
        if (status == ARIL_OK) aril__caffe_log_ignored(s);
        free(path);
    }
    return status;
}

/* Weights that the solver's own file names. */
static aril_status load_named(aril_caffe_solver *s, size_t i)
{
    char about[PATH_MAX + 64], place[40];
    const char *file = s->settings.file;
    bool was_ok = aril_ok();
    aril_status status = load_weights(s, aril__message_text_at(s->message, "weights", i), true);
    if (status == ARIL_OK || !was_ok) return status;
    snprintf(about, sizeof about, "%s%ssolver at %s: weights", file ? file : "", file ? ": " : "",
             aril__message_field_place(s->message, "weights", place, sizeof place));
    return aril__fail_about(status, about);
}

static aril_status initial_weights(aril_caffe_solver *s)
{
    aril_status status = ARIL_OK;
    if (s->opts.snapshot) status = aril_caffe_solver_restore(s, s->opts.snapshot);
    for (size_t i = 0;
         i < aril__message_count(s->message, "weights") && status == ARIL_OK && !s->opts.snapshot;
         i++)
        status = load_named(s, i);
    if (status == ARIL_OK && s->opts.weights) status = load_weights(s, s->opts.weights, false);
    bool loads = s->opts.weights || s->opts.snapshot || aril__message_count(s->message, "weights");
    if (status == ARIL_OK && loads) aril__caffe_log_missing(s);
    return status;
}

/* Level and stages that were asked for belong to the net in training alone. */
static aril_status add_state(aril_caffe_solver *s)
{
    const aril_caffe_solver_opts *o = &s->opts;
    if (o->n_stages < 0 || (o->n_stages > 0 && !o->stages))
        return aril__fail(ARIL_ERR_ARG, "solver: %d stages in a list that is %s", o->n_stages,
                          o->stages ? "there" : "NULL");
    if (o->level == 0 && o->n_stages == 0) return ARIL_OK;
    aril__message *state = aril__message_set_sub(s->message, "train_state");
    if (o->level) aril__message_set_int(state, "level", o->level);
    for (int i = 0; i < o->n_stages; i++) aril__message_add_text(state, "stage", o->stages[i]);
    size_t stages = aril__message_count(state, "stage");
    return state && stages >= (size_t)o->n_stages ? ARIL_OK : no_memory();
}

static aril_status set_up(aril_caffe_solver *s, const char *path)
{
    net_source from;
    aril_status status = aril__caffe_solver_upgrade(s->message, path ? path : "the solver");
    if (status == ARIL_OK) status = aril__caffe_settings_read(s->message, path, &s->settings);
    if (status == ARIL_OK) status = add_state(s);
    if (status == ARIL_OK) status = train_source(s->message, path, &from);
    if (status == ARIL_OK && path) status = find_root(s, path, &from);
    if (status == ARIL_OK) status = find_prefix(s, path);
    if (status != ARIL_OK) return status;
    s->loss = aril__calloc((size_t)s->settings.average_loss * sizeof *s->loss);
    if (!s->loss) return no_memory();
    bool no_gpu = choose_device(s);
    if (s->settings.seed >= 0) aril_seed((uint64_t)s->settings.seed);
    status = open_part(s, &s->train, &from, true);
    if (status == ARIL_OK) aril_module_train(s->train.net);
    if (status == ARIL_OK) status = aril__caffe_optimizer(s);
    if (status == ARIL_OK) aril__caffe_set_trained(s->train.net, true);
    if (status == ARIL_OK) status = open_tests(s);
    if (status == ARIL_OK) status = initial_weights(s);
    if (status == ARIL_OK && no_gpu)
        aril__caffe_log(s,
                        "warning: solver_mode is GPU, but there is no GPU %d: training on the CPU",
                        s->settings.device);
    return status;
}

static aril_caffe_solver *open_message(aril__message *m, const char *path, const char *root,
                                       aril_caffe_solver_opts opts)
{
    aril_caffe_solver *s = m ? aril__calloc(sizeof *s) : NULL;
    if (!s) {
        if (m) no_memory();
        aril__message_free(m);
        return NULL;
    }
    s->message = m;
    s->opts = opts;
    aril_status status = ARIL_OK;
    if (root && !(s->root = aril__strdup(root))) status = no_memory();
    if (status == ARIL_OK) status = set_up(s, path);
    s->opts.weights = s->opts.snapshot = NULL,
    s->opts.stages = NULL; /* borrowed during this call */
    s->settings.file = NULL;
    if (status == ARIL_OK) return s;
    aril_caffe_solver_free(s);
    return NULL;
}

aril_caffe_solver *aril_caffe_solver_open(const char *path, aril_caffe_solver_opts opts)
{
    if (!path) {
        aril__fail(ARIL_ERR_ARG, "caffe_solver_open: the path is NULL");
        return NULL;
    }
    return open_message(aril__caffe_solver_load(path), path, NULL, opts);
}

aril_caffe_solver *aril_caffe_solver_parse(const char *text, size_t size, const char *root,
                                           aril_caffe_solver_opts opts)
{
    if (!text) {
        aril__fail(ARIL_ERR_ARG, "caffe_solver_parse: the text is NULL");
        return NULL;
    }
    aril__message_opts how = { .name = "the solver" };
    return open_message(aril__message_parse(&aril__caffe_SolverParameter, text, size, how), NULL,
                        root, opts);
}

static void free_part(aril__caffe_part *p)
{
    aril__compiled_free(p->program);
    aril_caffe_feed_free(p->feed);
    aril_caffe_sink_free(p->sink);
    aril_module_release(p->net);
}

void aril_caffe_solver_free(aril_caffe_solver *s)
{
    if (!s) return;
    aril__compiled_free(s->train.program);
    s->train.program = NULL;
    for (int i = 0; i < s->n_tests; i++) free_part(&s->test[i]);
    aril_optim_free(s->optim);
    if (s->train.net) aril__caffe_set_trained(s->train.net, false);
    free_part(&s->train);
    aril__message_free(s->message);
    free(s->test);
    free(s->root);
    free(s->prefix);
    free(s->folder);
    free(s->lr_mult);
    free(s->index);
    free(s->decay);
    free(s->loss);
    free(s->before_test);
    for (int k = 0; s->before && k < s->n_params; k++) aril_release(s->before[k]);
    free(s->before);
    free(s);
}

/* ---- the loop ---- */

aril_status aril__caffe_ask(aril_caffe_solver *s)
{
    if (!s->opts.action) return ARIL_OK;
    switch (s->opts.action(s->opts.ctx)) {
    case ARIL_CAFFE_SNAPSHOT: return aril_caffe_solver_snapshot(s, NULL, 0);
    case ARIL_CAFFE_STOP: s->stopped = true; return ARIL_OK;
    default: return ARIL_OK;
    }
}

static void add_loss(aril_caffe_solver *s, double loss)
{
    s->loss[(uint64_t)s->n_losses++ % (uint64_t)s->settings.average_loss] = loss;
    if (isfinite(loss) || s->warned_nan) return;
    s->warned_nan = true;
    aril__caffe_log(s, "warning: the loss is %g at iteration %lld", aril__caffe_shown(loss),
                    (long long)s->iter);
}

static void print_progress(aril_caffe_solver *s, aril_tensor *const *out)
{
    ARIL_SCOPE;
    double now = aril__seconds(), took = now - s->since;
    int64_t n = s->iter - s->since_iter;
    char speed[64] = "";
    if (s->since > 0 && n > 0 && took > 0)
        snprintf(speed, sizeof speed, " (%.4g iter/s, %.4gs/%lld iters)", (double)n / took, took,
                 (long long)n);
    s->since = now;
    s->since_iter = s->iter;
    aril__caffe_log(s, "Iteration %lld%s, loss = %g", (long long)s->iter, speed,
                    aril__caffe_shown(aril_caffe_solver_loss(s)));
    int number = 0;
    for (int i = 0; i < s->train.n_out; i++) {
        aril_caffe_blob b = aril_caffe_output(s->train.net, i);
        aril_tensor *v = aril_cast(out[i], ARIL_F64);
        const double *at = aril_data(v);
        if (at)
            aril__caffe_log_values(s, "Train", b.name, b.loss_weight, aril_numel(v), at, &number);
    }
}

/* A step of the learning rate that multistep has just made. */
static void log_step(const aril_caffe_solver *s)
{
    if (s->settings.policy != ARIL__CAFFE_MULTISTEP || !s->opts.log) return;
    int64_t step = aril__caffe_current_step(&s->settings, s->iter),
            before = s->iter > 0 ? aril__caffe_current_step(&s->settings, s->iter - 1) : 0;
    if (step != before)
        aril__caffe_log(s, "MultiStep Status: Iteration %lld, step = %lld", (long long)s->iter,
                        (long long)step);
}

/* Negative rates are Caffe's too; an infinite one, or NaN, would destroy the weights. */
static aril_status check_rate(const aril_caffe_solver *s)
{
    const aril__caffe_settings *c = &s->settings;
    double rate = aril__caffe_rate(c, s->iter);
    if (isfinite(rate)) return ARIL_OK;
    return aril__caffe_solver_bad(c->message, c->file, "lr_policy",
                                  "the learning rate is %g at iteration %lld: lr_policy '%s' with "
                                  "gamma %g and power %g",
                                  rate, (long long)s->iter,
                                  aril__message_text(c->message, "lr_policy"), c->gamma, c->power);
}

static aril_status iterate(aril_caffe_solver *s)
{
    ARIL_SCOPE;
    const aril__caffe_settings *c = &s->settings;
    aril_tensor *out[ARIL__CAFFE_OUTPUTS];
    double loss, sum = 0;
    aril_status status = check_rate(s);
    if (status != ARIL_OK) return status;
    aril__caffe_set_rate(s);
    aril__caffe_clear_grads(s);
    s->debugs = c->debug && c->display && s->iter % c->display == 0;
    if (c->snapshot_diff || s->debugs) status = aril__caffe_keep_before(s);
    for (int64_t k = 0; k < c->iter_size && status == ARIL_OK; k++) {
        status = aril__caffe_pass(s, k + 1 == c->iter_size, &loss, out);
        sum += loss;
    }
    if (status != ARIL_OK) return status;
    s->updated = s->before != NULL;
    add_loss(s, sum / (double)c->iter_size);
    bool display = c->display && s->iter % c->display == 0;
    if (display) print_progress(s, out);
    log_step(s);
    if (display)
        aril__caffe_log(s, "Iteration %lld, lr = %g", (long long)s->iter,
                        aril__caffe_rate(c, s->iter));
    s->iter++;
    return ARIL_OK;
}

aril_status aril_caffe_solver_step(aril_caffe_solver *s, int64_t n)
{
    if (!s || n < 0)
        return aril__fail(ARIL_ERR_ARG, "caffe_solver_step: %s",
                          s ? "the number of iterations is negative" : "the solver is NULL");
    const aril__caffe_settings *c = &s->settings;
    aril_status status = ARIL_OK;
    s->stopped = false;
    for (int64_t i = 0; i < n && status == ARIL_OK; i++) {
        if (c->test_interval && s->iter % c->test_interval == 0 &&
            (s->iter > 0 || c->test_initialization))
            status = aril__caffe_test_all(s);
        if (status != ARIL_OK || s->stopped) break;
        status = iterate(s);
        if (status == ARIL_OK && c->snapshot && s->iter % c->snapshot == 0)
            status = aril_caffe_solver_snapshot(s, NULL, 0);
        if (status == ARIL_OK) status = aril__caffe_ask(s);
        if (s->stopped) break;
    }
    return status;
}

/* The loss after the last update, without another one. */
static aril_status last_loss(aril_caffe_solver *s)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_tensor *in[ARIL__CAFFE_OUTPUTS] = { NULL }, *out[ARIL__CAFFE_OUTPUTS] = { NULL };
    aril_status status = aril_caffe_feed_next(s->train.feed, in);
    if (status != ARIL_OK) return status;
    aril_list list = { .n = s->train.n_in, .at = in };
    aril_tensor *loss = aril__caffe_outputs(&s->train, list, out);
    if (aril_tensor_status(loss) == ARIL_OK) status = aril__caffe_write(&s->train, out);
    if (aril_tensor_status(loss) != ARIL_OK || status != ARIL_OK) return aril__latest_status();
    add_loss(s, aril_item(loss));
    aril__caffe_log(s, "Iteration %lld, loss = %g", (long long)s->iter,
                    aril__caffe_shown(aril_caffe_solver_loss(s)));
    return ARIL_OK;
}

aril_status aril_caffe_solver_solve(aril_caffe_solver *s)
{
    if (!s) return aril__fail(ARIL_ERR_ARG, "caffe_solver_solve: the solver is NULL");
    const aril__caffe_settings *c = &s->settings;
    aril__caffe_log(s, "Solving %s", aril_caffe_name(s->train.net));
    aril__caffe_log(s, "Learning rate policy: %s", aril__message_text(s->message, "lr_policy"));
    int64_t left = c->max_iter - s->iter;
    aril_status status = ARIL_OK;
    if (c->snapshot || c->snapshot_after_train) status = aril__caffe_check_prefix(s);
    if (status == ARIL_OK) status = aril_caffe_solver_step(s, left > 0 ? left : 0);
    if (status == ARIL_OK && c->snapshot_after_train &&
        (c->snapshot == 0 || s->iter % c->snapshot != 0))
        status = aril_caffe_solver_snapshot(s, NULL, 0);
    if (status != ARIL_OK) return status;
    if (s->stopped) {
        aril__caffe_log(s, "Optimization stopped early.");
        return ARIL_OK;
    }
    if (c->display && s->iter % c->display == 0) status = last_loss(s);
    if (status == ARIL_OK && c->test_interval && s->iter % c->test_interval == 0)
        status = aril__caffe_test_all(s);
    if (status == ARIL_OK) aril__caffe_log(s, "Optimization Done.");
    return status;
}

/* ---- queries ---- */

int64_t aril_caffe_solver_iter(const aril_caffe_solver *s)
{
    return s ? s->iter : 0;
}

int64_t aril_caffe_solver_max_iter(const aril_caffe_solver *s)
{
    return s ? s->settings.max_iter : 0;
}

double aril_caffe_solver_lr(const aril_caffe_solver *s)
{
    return s ? aril__caffe_rate(&s->settings, s->iter) : NAN;
}

double aril_caffe_solver_loss(const aril_caffe_solver *s)
{
    int64_t n = s ? s->n_losses : 0;
    if (s && n > s->settings.average_loss) n = s->settings.average_loss;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += s->loss[i];
    return n ? sum / (double)n : NAN;
}

aril_module *aril_caffe_solver_net(const aril_caffe_solver *s)
{
    return s ? s->train.net : NULL;
}

int aril_caffe_solver_tests(const aril_caffe_solver *s)
{
    return s ? s->n_tests : 0;
}

aril_module *aril_caffe_solver_test_net(const aril_caffe_solver *s, int i)
{
    return s && i >= 0 && i < s->n_tests ? s->test[i].net : NULL;
}

aril_caffe_feed *aril_caffe_solver_feed(const aril_caffe_solver *s, int i)
{
    if (!s) return NULL;
    return i < 0 ? s->train.feed : i < s->n_tests ? s->test[i].feed : NULL;
}

const char *aril_caffe_solver_eager_reason(const aril_caffe_solver *s)
{
    if (!s) return NULL;
    if (s->opts.eager) return "the solver was opened with .eager";
    if (!aril__compiling()) return "ARIL_JIT=0 in the environment";
    const char *why = aril__module_eager(s->train.net);
    return why ? why : s->train.program ? aril__compiled_reason(s->train.program) : NULL;
}
