/* Snapshots: PREFIX_iter_N.caffemodel, PREFIX_iter_N.solverstate, which Caffe reads too (in HDF5:
 * with .h5 after each), and that name with .aril, a safetensors file:
 *     iter, digest       of the solverstate that it belongs to (XXH64)
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
                                   uint64_t weights)
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
    if (status == ARIL_OK) status = aril__states_set_ints(&all, "rng", 2, numbers);
    if (status == ARIL_OK) status = aril__states_set_ints(&all, "train", n_train, train);
    if (status == ARIL_OK)
        status =
            aril__states_set_ints(&all, "test", n_test, s->before_test ? s->before_test : test);
    if (status == ARIL_OK) status = aril__states_set_ints(&all, "n_losses", 1, &s->n_losses);
    if (status == ARIL_OK)
        status = aril__states_set_reals(&all, "losses", (int)s->settings.average_loss, s->loss);
    if (status == ARIL_OK) status = aril_safetensors_save(path, aril__states_view(&all), NULL);
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

aril_status aril__caffe_check_prefix(const aril_caffe_solver *s)
{
    char weights[PATH_MAX], state[PATH_MAX];
    aril_status status = name_files(s, s->settings.max_iter, weights, state);
    if (status == ARIL_OK) status = aril__folder_create_for("snapshot_prefix", weights);
    if (status != ARIL_OK) return status;
    aril__file *f = aril__file_begin(state);
    aril__file_abandon(f);
    return f ? ARIL_OK : aril__latest_status();
}

/* The weights, and what the last update subtracted from each, as Caffe's diffs are. */
static aril_status write_with_diffs(const aril_caffe_solver *s, const char *path)
{
    ARIL_SCOPE;
    aril_tensor **diff = aril__malloc(((size_t)s->n_params + 1) * sizeof *diff);
    aril_status status = diff ? ARIL_OK : aril__fail(ARIL_ERR_MEMORY, "solver: out of memory");
    for (int k = 0; k < s->n_params && status == ARIL_OK; k++)
        status = aril_tensor_status(diff[k] = aril__caffe_diff(s, k));
    if (status == ARIL_OK) status = aril__caffe_weights_write(s->train.net, path, diff);
    free(diff);
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
    if (status == ARIL_OK) {
        aril__caffe_log(s, "Snapshotting to %s", weights);
        status = s->settings.snapshot_diff ? write_with_diffs(s, weights)
                                           : aril_caffe_weights_save(s->train.net, weights);
    }
    aril__bytes b = { 0 };
    uint64_t digest = 0;
    if (status == ARIL_OK) status = digest_of_file(weights, &digest);
    if (status == ARIL_OK) status = write_state(s, weights, &b);
    /* The solverstate is written last: where it is, the other files are complete. */
    if (status == ARIL_OK) status = write_extension(s, extension, digest_of(b.at, b.n), digest);
    if (status == ARIL_OK) {
        aril__caffe_log(s, "Snapshotting solver state to %s", state);
        status = aril__file_replace(state, b.at, b.n);
    }
    aril__bytes_free(&b);
    if (status == ARIL_OK && path) snprintf(path, size, "%s", state);
    return status;
}

/* ---- restoring ---- */

/* Reads blob i of the history: checks it, and with `write` stores it. */
static aril_status restore_blob(aril_caffe_solver *s, const char *path,
                                const aril__solverstate *from, int i, bool write)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    int blob = i % s->n_params, slot = i / s->n_params;
    aril_tensor *like = aril_caffe_param_at(s->train.net, blob).tensor;
    aril_tensor *to = slot_of(s, blob, slot);
    aril_tensor *t = aril__solverstate_history(from, path, i, aril_numel(like));
    if (aril_tensor_status(t) == ARIL_OK && write && to)
        t = aril_copy_(to, aril_to(aril_reshape(t, aril_shape_of(to)), aril_device_of(to)));
    return aril_tensor_status(t);
}

static aril_status restore_history(aril_caffe_solver *s, const char *path,
                                   const aril__solverstate *from)
{
    int want = slots_of(s) * s->n_params;
    if (from->n != want)
        return aril__fail(ARIL_ERR_FORMAT,
                          "%s: its history has %d blobs, but %s of this net has %d; it is of "
                          "another net or solver type",
                          path, from->n, s->settings.type, want);
    aril_status status = slots_ready(s);
    for (int write = 0; write < 2; write++)
        for (int i = 0; i < want && status == ARIL_OK; i++)
            status = restore_blob(s, path, from, i, write);
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
    e->has_weights = aril__states_ints(all, "weights", 1, &e->weights);
    return aril__states_ints(all, "iter", 1, &e->iter) &&
           aril__states_ints(all, "digest", 1, &e->digest) &&
           aril__states_ints(all, "rng", 2, e->rng) &&
           aril__states_ints(all, "n_losses", 1, &e->n_losses) && e->n_losses >= 0 &&
           aril__states_ints(all, "train", n_train, e->train) &&
           aril__states_ints(all, "test", n_test, e->test) &&
           aril__states_reals(all, "losses", (int)s->settings.average_loss, e->losses);
}

/* Reads the file, if it is there and belongs to a solverstate of that iteration and digest. */
static aril_status read_extension(aril_caffe_solver *s, const char *path, int64_t iter,
                                  uint64_t digest, extension *e)
{
    ARIL_SCOPE;
    char name[PATH_MAX];
    struct stat st;
    int n_test, n_train = 3 * aril__caffe_feed_loaders(s->train.feed);
    if (snprintf(name, sizeof name, "%s.aril", path) >= PATH_MAX || stat(name, &st) != 0) {
        aril__caffe_log(s, "note: there is no %s, so the data start over", name);
        return ARIL_OK;
    }
    aril_safetensors *f = aril_safetensors_open(name);
    const aril_named *list = f ? aril_safetensors_all(f) : NULL;
    *e =
        (extension){ .train = aril__calloc(((size_t)n_train + 1) * sizeof *e->train),
                     .test = aril__caffe_test_positions(s, &n_test),
                     .losses = aril__calloc((size_t)s->settings.average_loss * sizeof *e->losses) };
    aril__states all = { 0 };
    aril_status status = list ? ARIL_OK : aril__latest_status();
    if (status == ARIL_OK && (!e->train || !e->test || !e->losses))
        status = aril__fail(ARIL_ERR_MEMORY, "out of memory reading %s", name);
    for (int i = 0; status == ARIL_OK && i < list->n; i++)
        status = aril__states_set(&all, list->name[i], list->at[i]);
    if (status == ARIL_OK && !parse_extension(s, &all, n_train, n_test, e))
        status = aril__fail(ARIL_ERR_FORMAT,
                            "%s does not fit this solver: its nets have other data layers, or "
                            "average_loss differs; remove it to let the data start over",
                            name);
    e->found = status == ARIL_OK && e->iter == iter && (uint64_t)e->digest == digest;
    if (status == ARIL_OK && !e->found)
        aril__caffe_log(s, "note: %s belongs to another snapshot, so the data start over", name);
    aril__states_clear(&all);
    aril_safetensors_close(f);
    return status;
}

static aril_status apply_extension(aril_caffe_solver *s, const extension *e)
{
    aril_status status = aril__caffe_feed_seek(s->train.feed, e->train);
    const int64_t *at = e->test;
    for (int i = 0; i < s->n_tests && status == ARIL_OK; i++) {
        status = aril__caffe_feed_seek(s->test[i].feed, at);
        at += 3 * aril__caffe_feed_loaders(s->test[i].feed);
    }
    if (status != ARIL_OK) return status;
    aril_generator_set_state(aril_default_generator(),
                             (aril_rng_state){ (uint64_t)e->rng[0], (uint64_t)e->rng[1] });
    s->n_losses = e->n_losses;
    memcpy(s->loss, e->losses, (size_t)s->settings.average_loss * sizeof *s->loss);
    return ARIL_OK;
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

static aril_status restore_all(aril_caffe_solver *s, const char *path, const aril__bytes *b,
                               const aril__solverstate *from, extension *e)
{
    aril_status status = restore_history(s, path, from);
    if (status == ARIL_OK) status = read_extension(s, path, from->iter, digest_of(b->at, b->n), e);
    if (status == ARIL_OK) status = restore_weights(s, path, from, e);
    if (status != ARIL_OK) return status;
    s->iter = from->iter;
    if (s->optim) aril__number_set(s->optim->step, (double)from->iter);
    return e->found ? apply_extension(s, e) : ARIL_OK;
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
