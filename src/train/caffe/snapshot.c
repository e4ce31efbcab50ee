/* Snapshots: PREFIX_iter_N.caffemodel, PREFIX_iter_N.solverstate, which Caffe reads too (in HDF5:
 * with .h5 after each), and that name with .aril, a safetensors file:
 *     iter, digest       of the solverstate that it belongs to (XXH64)
 *     type               of the solver
 *     weights            digest of the caffemodel that was written with it
 *     rng                seed and calls of the random number generator
 *     train, test        positions in the data: seed, epoch and batch of each data layer
 *     losses, n_losses   those that are averaged */
#include "aril/create.h"
#include "aril/formats.h"
#include "aril/rng.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "formats/atomic_file.h"
#include "formats/bytes.h"
#include "formats/safetensors.h"
#include "models/caffe/net.h"
#include "optim/optim.h"
#include "train/caffe/solver.h"
#include "train/caffe/solverstate.h"
#include "train/digest.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* How many tensors each blob has in the history: those of all blobs come first, then the second
 * ones. */
static int slots_of(const aril_caffe_solver *s)
{
    return strcmp(s->settings.type, "Adam") == 0 || strcmp(s->settings.type, "AdaDelta") == 0 ? 2
                                                                                              : 1;
}

/* The state of a blob; NULL: it has none, as it is not updated, or as there is no momentum. */
static aril_tensor *slot_of(const aril_caffe_solver *s, int blob, int slot)
{
    return s->index[blob] < 0 ? NULL : s->optim->params[s->index[blob]].slot[slot];
}

static aril_status slots_ready(aril_caffe_solver *s)
{
    aril_status status = ARIL_OK;
    for (int i = 0; s->optim && i < s->optim->n_params && status == ARIL_OK; i++)
        status = aril__slots_ready(s->optim, &s->optim->params[i]);
    return status;
}

static uint64_t digest_of(const void *data, size_t size)
{
    aril__digest d;
    aril__digest_start(&d);
    aril__digest_add(&d, data, size);
    return aril__digest_end(&d);
}

static aril_status digest_of_file(const char *path, uint64_t *digest)
{
    enum { PIECE = 1 << 20 };
    aril__digest d;
    aril__digest_start(&d);
    FILE *f = fopen(path, "rb");
    unsigned char *piece = f ? aril__malloc(PIECE) : NULL;
    size_t n = piece ? fread(piece, 1, PIECE, f) : 0;
    for (; n > 0; n = fread(piece, 1, PIECE, f)) aril__digest_add(&d, piece, n);
    aril_status status = ARIL_OK;
    if (!f || (piece && ferror(f)))
        status = aril__fail(ARIL_ERR_IO, "cannot read %s: %s", path, strerror(errno));
    else if (!piece)
        status = aril__fail(ARIL_ERR_MEMORY, "out of memory reading %s", path);
    free(piece);
    if (f) fclose(f);
    *digest = aril__digest_end(&d);
    return status;
}

/* ---- writing ---- */

/* Tensor i of the history on the CPU. */
static aril_tensor *history_of(const aril_caffe_solver *s, int i)
{
    int blob = i % s->n_params;
    aril_tensor *like = aril_caffe_param_at(s->train.net, blob).tensor;
    aril_tensor *t = slot_of(s, blob, i / s->n_params);
    return t ? aril_reshape(aril_to(t, aril_cpu()), aril_shape_of(like))
             : aril_zeros(aril_shape_of(like), ARIL_F32, aril_cpu());
}

static aril_status write_state(aril_caffe_solver *s, const char *weights, aril__bytes *to)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    /* As in Caffe, the step is that of the last iteration. */
    int64_t last = s->iter > 0 ? s->iter - 1 : 0;
    aril__solverstate state = { .iter = s->iter,
                                .step = aril__caffe_current_step(&s->settings, last),
                                .net = (char *)(uintptr_t)weights,
                                .n = slots_of(s) * s->n_params };
    aril_tensor **history = aril__malloc(((size_t)state.n + 1) * sizeof *history);
    aril_status status =
        history ? slots_ready(s) : aril__fail(ARIL_ERR_MEMORY, "solver: out of memory");
    for (int i = 0; i < state.n && status == ARIL_OK; i++)
        status = aril_tensor_status(history[i] = history_of(s, i));
    if (status == ARIL_OK) status = aril__solverstate_write(&state, history, s->settings.hdf5, to);
    free(history);
    return status;
}

static aril_status write_extension(const aril_caffe_solver *s, const char *path, uint64_t digest,
                                   uint64_t weights, aril__file *to)
{
    ARIL_SCOPE;
    aril__states all = { 0 };
    aril_rng_state rng = aril_generator_state(aril_default_generator());
    int n_train = 3 * aril__caffe_feed_loaders(s->train.feed), n_test;
    int64_t *train = aril__malloc(((size_t)n_train + 1) * sizeof *train);
    int64_t *test = aril__caffe_test_positions(s, &n_test);
    aril_status status = train && test ? ARIL_OK : aril__latest_status();
    if (!train) status = aril__fail(ARIL_ERR_MEMORY, "solver: out of memory");
    if (status == ARIL_OK) {
        aril__caffe_feed_tell(s->train.feed, train);
        status = aril__states_set_ints(&all, "iter", 1, &s->iter);
    }
    int64_t d = (int64_t)digest, w = (int64_t)weights,
            numbers[2] = { (int64_t)rng.seed, (int64_t)rng.calls };
    if (status == ARIL_OK) status = aril__states_set_ints(&all, "digest", 1, &d);
    if (status == ARIL_OK) status = aril__states_set_ints(&all, "weights", 1, &w);
    if (status == ARIL_OK) status = aril__states_set_text(&all, "type", s->settings.type);
    if (status == ARIL_OK) status = aril__states_set_ints(&all, "rng", 2, numbers);
    if (status == ARIL_OK) status = aril__states_set_ints(&all, "train", n_train, train);
    if (status == ARIL_OK)
        status =
            aril__states_set_ints(&all, "test", n_test, s->before_test ? s->before_test : test);
    if (status == ARIL_OK) status = aril__states_set_ints(&all, "n_losses", 1, &s->n_losses);
    if (status == ARIL_OK)
        status = aril__states_set_reals(&all, "losses", (int)s->settings.average_loss, s->loss);
    if (status == ARIL_OK) status = aril__safetensors_put(path, aril__states_view(&all), to);
    aril__states_clear(&all);
    free(train);
    free(test);
    return status;
}

/* The names of a snapshot's weights and solverstate. */
static aril_status name_files(const aril_caffe_solver *s, int64_t iter, char weights[PATH_MAX],
                              char state[PATH_MAX])
{
    const char *end = s->settings.hdf5 ? ".h5" : "";
    int a = snprintf(weights, PATH_MAX, "%s_iter_%lld.caffemodel%s", s->prefix, (long long)iter,
                     end),
        b = snprintf(state, PATH_MAX, "%s_iter_%lld.solverstate%s", s->prefix, (long long)iter,
                     end);
    return a < PATH_MAX && b < PATH_MAX
               ? ARIL_OK
               : aril__fail(ARIL_ERR_ARG, "solver: the path of snapshot_prefix is too long");
}

/* A folder may have the name of a file of a snapshot. */
static aril_status check_names(const aril_caffe_solver *s, int64_t iter)
{
    struct stat st;
    char weights[PATH_MAX], state[PATH_MAX], extension[PATH_MAX + 8];
    const char *const name[] = { weights, state, extension };
    aril_status status = name_files(s, iter, weights, state);
    if (status != ARIL_OK) return status;
    snprintf(extension, sizeof extension, "%s.aril", state);
    for (int i = 0; i < 3; i++)
        if (stat(name[i], &st) == 0 && S_ISDIR(st.st_mode))
            return aril__fail(ARIL_ERR_IO,
                              "%s is a folder, and the name of a snapshot; remove it, or choose "
                              "another snapshot_prefix",
                              name[i]);
    return ARIL_OK;
}

aril_status aril__caffe_check_prefix(const aril_caffe_solver *s)
{
    enum { MOST = 10000 };
    const aril__caffe_settings *c = &s->settings;
    char weights[PATH_MAX], state[PATH_MAX];
    aril_status status = name_files(s, c->max_iter, weights, state);
    if (status == ARIL_OK) status = aril__folder_create_for("snapshot_prefix", weights);
    if (status == ARIL_OK) status = check_names(s, c->max_iter);
    for (int64_t k = 1; k <= MOST && c->snapshot && status == ARIL_OK; k++) {
        int64_t iter = (s->iter / c->snapshot + k) * c->snapshot;
        if (iter >= c->max_iter) break;
        status = check_names(s, iter);
    }
    if (status != ARIL_OK) return status;
    aril__file *f = aril__file_begin(state);
    aril__file_abandon(f);
    return f ? ARIL_OK : aril__latest_status();
}

/* The weights, with what the last update subtracted from each if `snapshot_diff` asks for it. */
static aril_status write_weights(const aril_caffe_solver *s, aril__file *to)
{
    ARIL_SCOPE;
    bool hdf5 = s->settings.hdf5;
    if (!s->settings.snapshot_diff) return aril__caffe_weights_put(s->train.net, hdf5, NULL, to);
    aril_tensor **diff = aril__malloc(((size_t)s->n_params + 1) * sizeof *diff);
    aril_status status = diff ? ARIL_OK : aril__fail(ARIL_ERR_MEMORY, "solver: out of memory");
    for (int k = 0; k < s->n_params && status == ARIL_OK; k++)
        status = aril_tensor_status(diff[k] = aril__caffe_diff(s, k));
    if (status == ARIL_OK) status = aril__caffe_weights_put(s->train.net, hdf5, diff, to);
    free(diff);
    return status;
}

/* Writes the three files. The extension has digests of the other two. */
static aril_status write_files(aril_caffe_solver *s, const char *weights, const char *extension,
                               aril__file *const file[3])
{
    aril__bytes b = { 0 };
    uint64_t digest = 0;
    aril_status status = write_weights(s, file[0]);
    if (status == ARIL_OK) status = aril__file_store(file[0]);
    if (status == ARIL_OK) status = digest_of_file(aril__file_fresh(file[0]), &digest);
    if (status == ARIL_OK) status = write_state(s, weights, &b);
    if (status == ARIL_OK)
        status = write_extension(s, extension, digest_of(b.at, b.n), digest, file[1]);
    if (status == ARIL_OK) status = aril__file_store(file[1]);
    if (status == ARIL_OK) status = aril__file_write(file[2], b.at, b.n);
    if (status == ARIL_OK) status = aril__file_store(file[2]);
    aril__bytes_free(&b);
    return status;
}

aril_status aril_caffe_solver_snapshot(aril_caffe_solver *s, char *path, size_t size)
{
    char weights[PATH_MAX], state[PATH_MAX], extension[PATH_MAX + 8];
    if (!s) return aril__fail(ARIL_ERR_ARG, "caffe_solver_snapshot: the solver is NULL");
    aril_status status = name_files(s, s->iter, weights, state);
    if (status == ARIL_OK && path && strlen(state) >= size)
        status =
            aril__fail(ARIL_ERR_ARG,
                       "caffe_solver_snapshot: the path has %zu bytes with its NUL, the buffer "
                       "%zu",
                       strlen(state) + 1, size);
    if (status != ARIL_OK) return status;
    snprintf(extension, sizeof extension, "%s.aril", state);
    status = aril__folder_create_for("snapshot", weights);
    if (status == ARIL_OK) aril__caffe_log(s, "Snapshotting to %s", weights);
    /* All are on the disk before the first is replaced. The solverstate comes last: where it is,
     * the other files are complete. */
    const char *const name[3] = { weights, extension, state };
    aril__file *file[3] = { NULL };
    for (int i = 0; i < 3 && status == ARIL_OK; i++)
        if (!(file[i] = aril__file_begin(name[i]))) status = aril__latest_status();
    if (status == ARIL_OK) status = write_files(s, weights, extension, file);
    if (status == ARIL_OK) aril__caffe_log(s, "Snapshotting solver state to %s", state);
    for (int i = 0; i < 3; i++) {
        if (status == ARIL_OK)
            status = aril__file_commit(file[i]);
        else
            aril__file_abandon(file[i]);
    }
    if (status == ARIL_OK && path) snprintf(path, size, "%s", state);
    return status;
}

/* ---- restoring ---- */

/* Whether a part of the history is sums of squares, which are not negative. */
static bool is_squares(const char *type, int slot)
{
    if (strcmp(type, "Adam") == 0) return slot == 1;
    return strcmp(type, "AdaGrad") == 0 || strcmp(type, "RMSProp") == 0 ||
           strcmp(type, "AdaDelta") == 0;
}

/* Blob i of the history, checked, in the form of the optimizer. */
static aril_tensor *read_blob(const aril_caffe_solver *s, const char *path,
                              const aril__solverstate *from, int i)
{
    int blob = i % s->n_params, slot = i / s->n_params;
    aril_tensor *like = aril_caffe_param_at(s->train.net, blob).tensor;
    aril_tensor *to = slot_of(s, blob, slot);
    aril_tensor *t = aril__solverstate_history(from, path, i, aril_numel(like));
    const float *data = aril_data(t);
    if (!data && aril_numel(like) > 0) return aril__poison();
    for (int64_t k = 0; is_squares(s->settings.type, slot) && k < aril_numel(t); k++) {
        if (!(data[k] < 0)) continue;
        aril__fail(ARIL_ERR_FORMAT,
                   "%s: blob %d of its history has the value %g, but %s keeps means or sums of "
                   "squares there; it is of another solver type",
                   path, i, (double)data[k], s->settings.type);
        return aril__poison();
    }
    return to ? aril_to(aril_reshape(t, aril_shape_of(to)), aril_device_of(to)) : t;
}

static aril_status check_count(const aril_caffe_solver *s, const char *path,
                               const aril__solverstate *from)
{
    int want = slots_of(s) * s->n_params;
    if (from->n == want) return ARIL_OK;
    return aril__fail(ARIL_ERR_FORMAT,
                      "%s: its history has %d blobs, but %s of this net has %d; it is of "
                      "another net or solver type",
                      path, from->n, s->settings.type, want);
}

static aril_status read_history(aril_caffe_solver *s, const char *path,
                                const aril__solverstate *from, aril_tensor **history)
{
    aril_status status = slots_ready(s);
    for (int i = 0; i < from->n && status == ARIL_OK; i++)
        status = aril_tensor_status(history[i] = read_blob(s, path, from, i));
    return status;
}

static aril_status apply_history(aril_caffe_solver *s, aril_tensor *const *history)
{
    aril_status status = ARIL_OK;
    for (int i = 0; i < slots_of(s) * s->n_params && status == ARIL_OK; i++) {
        aril_tensor *to = slot_of(s, i % s->n_params, i / s->n_params);
        if (to) status = aril_tensor_status(aril_copy_(to, history[i]));
    }
    return status;
}

/* Finds a file beside the solverstate. */
static bool is_beside(const char *path, const char *name, int length, const char *end,
                      char found[PATH_MAX])
{
    struct stat st;
    const char *slash = strrchr(path, '/');
    int n = snprintf(found, PATH_MAX, "%.*s%.*s%s", slash ? (int)(slash - path) + 1 : 0, path,
                     length, name, end);
    return n < PATH_MAX && stat(found, &st) == 0;
}

/* Finds the weights of a snapshot: beside the solverstate, where they were written, or beside it
 * under the name of the solverstate. */
static aril_status find_weights(const char *path, const aril__solverstate *from,
                                char found[PATH_MAX])
{
    static const char *const ends[] = { ".caffemodel", ".caffemodel.h5" };
    struct stat st;
    const char *name = strrchr(from->net, '/'), *own = strrchr(path, '/');
    name = name ? name + 1 : from->net;
    own = own ? own + 1 : path;
    const char *dot = strstr(own, ".solverstate");
    if (is_beside(path, name, (int)strlen(name), "", found)) return ARIL_OK;
    if (stat(from->net, &st) == 0 && snprintf(found, PATH_MAX, "%s", from->net) < PATH_MAX)
        return ARIL_OK;
    for (int i = 0; i < 2 && dot && dot > own; i++)
        if (is_beside(path, own, (int)(dot - own), ends[i], found)) return ARIL_OK;
    return aril__fail(ARIL_ERR_IO,
                      "%s: its weights are neither in %s nor beside it; give them as weights", path,
                      from->net);
}

/* What the file beside the solverstate says. */
typedef struct extension {
    char name[PATH_MAX];
    bool found, has_weights;
    int64_t iter, digest, weights, rng[2], n_losses;
    int64_t *train, *test;
    double *losses;
} extension;

static void extension_free(extension *e)
{
    free(e->train);
    free(e->test);
    free(e->losses);
}

static bool parse_extension(const aril_caffe_solver *s, const aril__states *all, int n_train,
                            int n_test, extension *e)
{
    const int64_t most = INT64_C(1) << 53; /* no training reaches it */
    e->has_weights = aril__states_ints(all, "weights", 1, &e->weights);
    return aril__states_ints(all, "iter", 1, &e->iter) &&
           aril__states_ints(all, "digest", 1, &e->digest) &&
           aril__states_ints(all, "rng", 2, e->rng) &&
           aril__states_ints(all, "n_losses", 1, &e->n_losses) && e->n_losses >= 0 &&
           e->n_losses <= most && aril__states_ints(all, "train", n_train, e->train) &&
           aril__states_ints(all, "test", n_test, e->test) &&
           aril__states_reals(all, "losses", (int)s->settings.average_loss, e->losses);
}

/* Files of two snapshots under one name, of which the weights may be of either. */
static aril_status check_owner(const aril_caffe_solver *s, const char *path,
                               const aril__states *all, const extension *e, int64_t iter,
                               uint64_t digest)
{
    if (e->iter != iter || (uint64_t)e->digest != digest)
        return aril__fail(ARIL_ERR_FORMAT,
                          "%s was not written with %s: files of two snapshots are mixed; resume "
                          "from another one, or, where the weights and the solverstate belong "
                          "together, remove %s to let the data start over",
                          e->name, path, e->name);
    if (!aril__states_get(all, "type")) return ARIL_OK;
    char *type = aril__states_text(all, "type");
    aril_status status = ARIL_OK;
    if (!type)
        status = aril__fail(ARIL_ERR_FORMAT, "%s: the type of its solver cannot be read", e->name);
    else if (strcmp(type, s->settings.type) != 0)
        status = aril__fail(ARIL_ERR_FORMAT,
                            "%s is of a solver of type %.40s, not %s; to start from its weights "
                            "alone, give those as weights instead of a snapshot",
                            path, type, s->settings.type);
    free(type);
    return status;
}

/* Reads the file, if it is there: it must belong to a solverstate of that iteration and digest. */
static aril_status read_extension(aril_caffe_solver *s, const char *path, int64_t iter,
                                  uint64_t digest, extension *e)
{
    ARIL_SCOPE;
    struct stat st;
    int n_test, n_train = 3 * aril__caffe_feed_loaders(s->train.feed);
    if (snprintf(e->name, sizeof e->name, "%s.aril", path) >= PATH_MAX || stat(e->name, &st) != 0) {
        aril__caffe_log(s, "note: there is no %s, so the data start over", e->name);
        return ARIL_OK;
    }
    aril_safetensors *f = aril_safetensors_open(e->name);
    const aril_named *list = f ? aril_safetensors_all(f) : NULL;
    e->train = aril__calloc(((size_t)n_train + 1) * sizeof *e->train);
    e->test = aril__caffe_test_positions(s, &n_test);
    e->losses = aril__calloc((size_t)s->settings.average_loss * sizeof *e->losses);
    aril__states all = { 0 };
    aril_status status = list ? ARIL_OK : aril__latest_status();
    if (status == ARIL_OK && (!e->train || !e->test || !e->losses))
        status = aril__fail(ARIL_ERR_MEMORY, "out of memory reading %s", e->name);
    for (int i = 0; status == ARIL_OK && i < list->n; i++)
        status = aril__states_set(&all, list->name[i], list->at[i]);
    if (status == ARIL_OK && !parse_extension(s, &all, n_train, n_test, e))
        status = aril__fail(ARIL_ERR_FORMAT,
                            "%s does not fit this solver: its nets have other data layers, or "
                            "average_loss differs; remove it to let the data start over",
                            e->name);
    if (status == ARIL_OK) status = check_owner(s, path, &all, e, iter, digest);
    e->found = status == ARIL_OK;
    aril__states_clear(&all);
    aril_safetensors_close(f);
    return status;
}

/* Moves all feeds to these positions; `from` names their file. */
static aril_status seek(aril_caffe_solver *s, const int64_t *train, const int64_t *test,
                        const char *from)
{
    aril_status status = aril__caffe_feed_seek(s->train.feed, train, from);
    for (int i = 0; i < s->n_tests && status == ARIL_OK; i++) {
        status = aril__caffe_feed_seek(s->test[i].feed, test, from);
        test += 3 * aril__caffe_feed_loaders(s->test[i].feed);
    }
    return status;
}

/* Loads the weights of a snapshot, unless others are asked for. They must be those that were
 * written with it: the history belongs to them. */
static aril_status restore_weights(aril_caffe_solver *s, const char *path,
                                   const aril__solverstate *from, const extension *e)
{
    char weights[PATH_MAX];
    uint64_t digest;
    if (s->opts.weights || !from->net) return ARIL_OK;
    aril_status status = find_weights(path, from, weights);
    if (status == ARIL_OK && e->found && e->has_weights) {
        status = digest_of_file(weights, &digest);
        if (status == ARIL_OK && digest != (uint64_t)e->weights)
            status = aril__fail(ARIL_ERR_FORMAT,
                                "%s is not the file that was written with %s; to resume with it "
                                "all the same, give it as weights",
                                weights, path);
    }
    return status == ARIL_OK ? aril_caffe_weights_load(s->train.net, weights) : status;
}

/* Moves the feeds and loads the weights: both or neither. */
static aril_status restore_feeds(aril_caffe_solver *s, const char *path,
                                 const aril__solverstate *from, const extension *e)
{
    int n;
    if (!e->found) return restore_weights(s, path, from, e);
    int64_t *test = aril__caffe_test_positions(s, &n);
    int64_t *train =
        aril__malloc((3 * (size_t)aril__caffe_feed_loaders(s->train.feed) + 1) * sizeof *train);
    aril_status status = test ? ARIL_OK : aril__latest_status();
    if (status == ARIL_OK && !train) status = aril__fail(ARIL_ERR_MEMORY, "solver: out of memory");
    if (status == ARIL_OK) {
        aril__caffe_feed_tell(s->train.feed, train);
        status = seek(s, e->train, e->test, e->name);
        if (status == ARIL_OK) status = restore_weights(s, path, from, e);
        if (status != ARIL_OK) seek(s, train, test, "solver"); /* they were there before */
    }
    free(train);
    free(test);
    return status;
}

/* Everything is read and checked before the solver changes. */
static aril_status restore_all(aril_caffe_solver *s, const char *path, const aril__bytes *b,
                               const aril__solverstate *from, extension *e)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    int most = slots_of(s) * s->n_params;
    aril_tensor **history = aril__malloc(((size_t)most + 1) * sizeof *history);
    aril_status status =
        history ? check_count(s, path, from) : aril__fail(ARIL_ERR_MEMORY, "solver: out of memory");
    if (status == ARIL_OK) status = read_extension(s, path, from->iter, digest_of(b->at, b->n), e);
    if (status == ARIL_OK) status = read_history(s, path, from, history);
    if (status == ARIL_OK) status = restore_feeds(s, path, from, e);
    if (status == ARIL_OK) status = apply_history(s, history);
    free(history);
    if (status != ARIL_OK) return status;
    s->iter = from->iter;
    if (s->optim) aril__number_set(s->optim->step, (double)from->iter);
    if (!e->found) return ARIL_OK;
    aril_generator_set_state(aril_default_generator(),
                             (aril_rng_state){ (uint64_t)e->rng[0], (uint64_t)e->rng[1] });
    s->n_losses = e->n_losses;
    memcpy(s->loss, e->losses, (size_t)s->settings.average_loss * sizeof *s->loss);
    return ARIL_OK;
}

aril_status aril_caffe_solver_restore(aril_caffe_solver *s, const char *path)
{
    if (!s || !path)
        return aril__fail(ARIL_ERR_ARG, "caffe_solver_restore: the %s is NULL",
                          s ? "path" : "solver");
    aril__bytes b = { 0 };
    aril_status status = aril__read_file("solverstate", path, 0, &b);
    if (status != ARIL_OK) return status;
    aril__caffe_log(s, "Resuming from %s", path);
    s->updated = false;
    aril__solverstate from;
    status = aril__solverstate_read(path, &b, &from);
    if (status == ARIL_OK) {
        extension e = { 0 };
        status = restore_all(s, path, &b, &from, &e);
        extension_free(&e);
        aril__solverstate_free(&from);
    }
    aril__bytes_free(&b);
    return status;
}
