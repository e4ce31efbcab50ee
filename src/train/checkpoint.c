#include "train/checkpoint.h"

#include "aril/autograd.h"
#include "aril/create.h"
#include "aril/rng.h"
#include "aril/scope.h"
#include "core/error.h"
#include "core/memory.h"
#include "formats/atomic_file.h"
#include "train/digest.h"
#include "train/owned.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static const char format[] = "aril checkpoint 1";
static const char state_name[] = "state.safetensors";

static aril_status path_in(const char *dir, const char *name, char *path)
{
    if (snprintf(path, PATH_MAX, "%s/%s", dir, name) < PATH_MAX) return ARIL_OK;
    return aril__fail(ARIL_ERR_ARG, "the path of the checkpoint '%.80s...' is too long", dir);
}

static aril_status need_dir(const char *dir)
{
    return dir != NULL && *dir != '\0'
               ? ARIL_OK
               : aril__fail(ARIL_ERR_ARG, "a checkpoint needs a folder, got %s",
                            dir == NULL ? "NULL" : "an empty name");
}

bool aril_checkpoint_exists(const char *dir)
{
    char path[PATH_MAX];
    return dir != NULL && snprintf(path, sizeof path, "%s/%s", dir, state_name) < PATH_MAX &&
           access(path, F_OK) == 0;
}

static bool is_kind(const char *kind) /* of any version */
{
    return kind != NULL && strncmp(kind, format, strlen(format) - 1) == 0;
}

static aril_safetensors *open_state(const char *dir)
{
    char path[PATH_MAX];
    if (need_dir(dir) != ARIL_OK || path_in(dir, state_name, path) != ARIL_OK) return NULL;
    if (!aril_checkpoint_exists(dir)) {
        aril__fail(ARIL_ERR_IO, "there is no checkpoint in '%s': '%s' is missing", dir, path);
        return NULL;
    }
    return aril_safetensors_open(path);
}

/* ---- writing ---- */

/* What the state file in a folder contains; zeros when there is none. */
struct present {
    char weights[NAME_MAX + 1];
    uint64_t digest;
    int64_t step;
};

/* ARIL_ERR_FORMAT when the state is damaged. */
static aril_status read_present(const char *dir, struct present *now)
{
    *now = (struct present){ 0 };
    if (!aril_checkpoint_exists(dir)) return ARIL_OK;
    aril_safetensors *f = open_state(dir);
    if (f == NULL) return aril__latest_status();
    const char *kind = aril_safetensors_get(f, "kind"), *name = aril_safetensors_get(f, "weights");
    const char *step = aril_safetensors_get(f, "step"),
               *digest = aril_safetensors_get(f, "weights_xxh64");
    aril_status status = ARIL_OK;
    if (!is_kind(kind))
        status = aril__fail(ARIL_ERR_STATE,
                            "'%s/%s' does not belong to a checkpoint and is not overwritten; save "
                            "to another folder, or move the file",
                            dir, state_name);
    if (name != NULL && aril__is_weights_name(name))
        snprintf(now->weights, sizeof now->weights, "%s", name);
    if (digest != NULL) now->digest = strtoull(digest, NULL, 16);
    if (step != NULL) now->step = strtoll(step, NULL, 10);
    aril_safetensors_close(f);
    return status;
}

/* Adds the gradients that were accumulated but not applied. */
static aril_status add_gradients(aril__states *state, aril_module *model)
{
    const aril_named *params = aril_parameters(model);
    if (params == NULL) return aril__latest_status();
    aril_status status = ARIL_OK;
    for (int i = 0; i < params->n && status == ARIL_OK; i++) {
        if (!aril_has_grad(params->at[i])) continue;
        aril_tensor *grad = aril_grad(params->at[i]);
        status = aril__states_copy(state, "gradient/", &(aril_named){ 1, &grad, &params->name[i] });
    }
    return status;
}

static aril_status gather(aril__states *state, aril_module *model, aril_optim *opt,
                          aril_loader *loader)
{
    aril_status status = add_gradients(state, model);
    if (status == ARIL_OK && opt != NULL)
        status = aril__states_copy(state, "optimizer/", aril_optim_state(opt));
    aril_rng_state rng = aril_generator_state(aril_default_generator());
    if (status == ARIL_OK)
        status = aril__states_set_ints(state, "rng", 2,
                                       (int64_t[]){ (int64_t)rng.seed, (int64_t)rng.calls });
    if (status == ARIL_OK && loader != NULL) {
        aril_loader_position at = aril_loader_tell(loader);
        status = aril__states_set_ints(state, "loader", 3,
                                       (int64_t[]){ (int64_t)at.seed, at.epoch, at.batch });
    }
    return status;
}

/* Locks the folder, so that no writer removes or replaces a file that another is about to reference
 * or a reader to open; -1 when the folder cannot be opened. */
static int lock(const char *dir, int how)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (fd >= 0 && flock(fd, how) != 0 && errno == EINTR) continue;
    return fd;
}

static void unlock(int fd)
{
    if (fd < 0) return;
    flock(fd, LOCK_UN); /* also when a forked child still has the folder open */
    close(fd);
}

/* A file name for the weights of that step: neither the current one, which the state references
 * until it is replaced, nor one of the user's files. */
static aril_status choose_name(const char *dir, const aril__owned *owned, const char *present,
                               int64_t step, char name[64])
{
    enum { MAX_TRIES = 1000 };
    for (int i = 0; i < MAX_TRIES; i++) {
        char again[24] = "";
        if (i == 1) snprintf(again, sizeof again, "-again");
        if (i > 1) snprintf(again, sizeof again, "-again-%d", i);
        snprintf(name, 64, "weights-%lld%s.safetensors", (long long)step, again);
        if (strcmp(name, present) != 0 && aril__owned_may_write(dir, owned, name)) return ARIL_OK;
    }
    return aril__fail(ARIL_ERR_IO,
                      "'%s' already has %d files named weights-%lld-*.safetensors; use another "
                      "folder, or remove some",
                      dir, MAX_TRIES, (long long)step);
}

static aril_status write_weights(const char *dir, const char *name, const aril_named *weights,
                                 const char *digest)
{
    char path[PATH_MAX];
    const char *const key[] = { "format", ARIL__OWNED_DIGEST }, *const value[] = { "pt", digest };
    aril_status status = path_in(dir, name, path);
    if (status != ARIL_OK) return status;
    return aril_safetensors_save(path, weights, &(aril_metadata){ 2, key, value });
}

static aril_status write_state(const char *dir, const aril_named *state, uint64_t state_digest,
                               const char *weights, const char *weights_digest, int64_t step,
                               const aril_optim *opt)
{
    char digest[24], number[24], path[PATH_MAX];
    snprintf(digest, sizeof digest, "%016llx", (unsigned long long)state_digest);
    snprintf(number, sizeof number, "%lld", (long long)step);
    const char *key[] = { "kind", "weights", "weights_xxh64", "state_xxh64", "step", "optimizer" };
    const char *value[] = { format, weights, weights_digest,
                            digest, number,  opt != NULL ? aril_optim_name(opt) : "" };
    aril_status status = path_in(dir, state_name, path);
    if (status != ARIL_OK) return status;
    return aril_safetensors_save(path, state, &(aril_metadata){ 6, key, value });
}

/* Writes both files, and adds to `owned` what may be removed afterwards. */
static aril_status write_both(const char *dir, aril_module *model, const aril_optim *opt,
                              aril__states *state, int64_t step, const struct present *now,
                              aril__owned *owned)
{
    const aril_named *weights = aril_state(model), *rest = aril__states_view(state);
    if (weights == NULL) return aril__latest_status();
    uint64_t weights_digest = 0, state_digest = 0;
    aril_status status = aril__digest_named(weights, &weights_digest);
    if (status == ARIL_OK) status = aril__digest_named(rest, &state_digest);
    if (status == ARIL_OK && now->weights[0] != '\0')
        status = aril__owned_add(owned, now->weights, now->digest);
    char name[64], digest[24];
    if (step <= 0) step = now->step < INT64_MAX ? now->step + 1 : 1;
    if (status == ARIL_OK) status = choose_name(dir, owned, now->weights, step, name);
    if (status == ARIL_OK) status = aril__owned_add(owned, name, weights_digest);
    if (status == ARIL_OK) status = aril__owned_write(dir, owned);
    if (status != ARIL_OK) return status;
    snprintf(digest, sizeof digest, "%016llx", (unsigned long long)weights_digest);
    status = write_weights(dir, name, weights, digest);
    if (status != ARIL_OK) return status;
    return write_state(dir, rest, state_digest, name, digest, step, opt);
}

static aril_status write_files(const char *dir, aril_module *model, const aril_optim *opt,
                               aril__states *state, int64_t step)
{
    struct present now;
    bool clean = aril_ok();
    aril_status status = read_present(dir, &now);
    if (status == ARIL_ERR_FORMAT) { /* damaged: it will be replaced */
        if (clean) aril_clear_error();
        status = ARIL_OK;
    }
    aril__owned owned = { 0 };
    if (status == ARIL_OK) status = aril__owned_read(dir, &owned);
    if (status == ARIL_OK) {
        status = write_both(dir, model, opt, state, step, &now, &owned);
        /* Whether that failed or not, the weights that the state now references are the checkpoint.
         * If it cannot be read, the list stays for the next save. */
        clean = aril_ok();
        if (read_present(dir, &now) == ARIL_OK)
            aril__owned_remove(dir, &owned, now.weights);
        else if (clean)
            aril_clear_error();
    }
    aril__owned_free(&owned);
    return status;
}

aril_status aril__checkpoint_write(const char *dir, aril_module *model, aril_optim *opt,
                                   aril_loader *loader, aril__states *state, int64_t step)
{
    aril_status status = need_dir(dir);
    if (status == ARIL_OK && model == NULL)
        status = aril__fail(ARIL_ERR_ARG, "a checkpoint needs a model, got NULL");
    if (status == ARIL_OK) status = gather(state, model, opt, loader);
    if (status == ARIL_OK) status = aril__folder_create("checkpoint", dir);
    if (status != ARIL_OK) return status;
    int locked = lock(dir, LOCK_EX);
    status = write_files(dir, model, opt, state, step);
    unlock(locked);
    return status;
}

aril_status aril_checkpoint_save_with(const char *dir, aril_module *model, aril_optim *opt,
                                      aril_loader *loader, aril_checkpoint_opts opts)
{
    aril__states state = { 0 };
    aril_status status =
        opts.extra != NULL ? aril__states_copy(&state, "extra/", opts.extra) : ARIL_OK;
    if (status == ARIL_OK)
        status = aril__checkpoint_write(dir, model, opt, loader, &state, opts.step);
    aril__states_clear(&state);
    return status;
}

aril_status aril_checkpoint_save(const char *dir, aril_module *model, aril_optim *opt,
                                 aril_loader *loader)
{
    return aril_checkpoint_save_with(dir, model, opt, loader, (aril_checkpoint_opts){ 0 });
}

/* ---- reading ---- */

/* The name of the weights file in an open state file; NULL, with an error, if it is not ours. */
static const char *weights_of(const char *dir, const aril_safetensors *f)
{
    const char *kind = aril_safetensors_get(f, "kind"), *name = aril_safetensors_get(f, "weights");
    if (!is_kind(kind))
        aril__fail(ARIL_ERR_FORMAT,
                   "'%s/%s' is a safetensors file, but not the state of a checkpoint", dir,
                   state_name);
    else if (strcmp(kind, format) != 0)
        aril__fail(ARIL_ERR_FORMAT,
                   "'%s/%s' was written by a later version of Aril (\"%s\", expected \"%s\")", dir,
                   state_name, kind, format);
    else if (name == NULL || !aril__is_weights_name(name))
        aril__fail(ARIL_ERR_FORMAT, "'%s/%s' does not name its weights", dir, state_name);
    else
        return name;
    return NULL;
}

aril_status aril_checkpoint_weights(const char *dir, char *buf, size_t size)
{
    aril_safetensors *f = open_state(dir);
    if (f == NULL) return aril__latest_status();
    const char *name = weights_of(dir, f);
    aril_status status = name == NULL ? aril__latest_status() : ARIL_OK;
    if (name != NULL && snprintf(buf, size, "%s/%s", dir, name) >= (int)size)
        status = aril__fail(ARIL_ERR_ARG,
                            "%zu bytes are too few for the path of the weights in '%s'", size, dir);
    aril_safetensors_close(f);
    return status;
}

/* All tensors of a file, if their digest matches. */
static const aril_named *read_verified(aril_safetensors *f, const char *path, const char *digest)
{
    const aril_named *all = aril_safetensors_all(f);
    uint64_t is = 0;
    if (all == NULL || aril__digest_named(all, &is) != ARIL_OK) return NULL;
    char *end;
    if (digest != NULL && is == strtoull(digest, &end, 16) && *end == '\0' && *digest != '\0')
        return all;
    aril__fail(ARIL_ERR_FORMAT, "'%s' is damaged: its contents do not match the digest %s", path,
               digest != NULL ? digest : "(none)");
    return NULL;
}

static aril_status read_files(const char *dir, aril__checkpoint *c)
{
    aril_safetensors *f = open_state(dir);
    if (f == NULL) return aril__latest_status();
    char state_path[PATH_MAX], path[PATH_MAX];
    const char *name = weights_of(dir, f);
    const aril_named *state = NULL;
    aril_status status =
        name == NULL ? aril__latest_status() : path_in(dir, state_name, state_path);
    if (status == ARIL_OK) {
        state = read_verified(f, state_path, aril_safetensors_get(f, "state_xxh64"));
        status = state == NULL ? aril__latest_status() : path_in(dir, name, path);
    }
    for (int i = 0; status == ARIL_OK && i < state->n; i++)
        status = aril__states_add(&c->state, state->name[i], state->at[i]); /* names are unique */
    if (status == ARIL_OK) {
        const char *step = aril_safetensors_get(f, "step");
        c->step = step != NULL ? strtoll(step, NULL, 10) : 0;
        const char *opt = aril_safetensors_get(f, "optimizer");
        snprintf(c->optimizer, sizeof c->optimizer, "%s", opt != NULL ? opt : "");
        c->weights = aril_safetensors_open(path);
        if (c->weights == NULL ||
            read_verified(c->weights, path, aril_safetensors_get(f, "weights_xxh64")) == NULL)
            status = aril__latest_status();
    }
    aril_safetensors_close(f);
    return status;
}

aril_status aril__checkpoint_open(const char *dir, aril__checkpoint *c)
{
    *c = (aril__checkpoint){ 0 };
    aril_status status = need_dir(dir);
    if (status != ARIL_OK) return status;
    int locked = lock(dir, LOCK_SH);
    status = read_files(dir, c);
    unlock(locked);
    if (status != ARIL_OK) aril__checkpoint_close(c);
    return status;
}

void aril__checkpoint_close(aril__checkpoint *c)
{
    if (c->weights != NULL) aril_safetensors_close(c->weights);
    c->weights = NULL;
    aril__states_clear(&c->state);
}

/* Drops all gradients, and sets those of the checkpoint. */
static aril_status put_gradients(const aril__states *state, aril_module *model)
{
    aril__states part = { 0 };
    aril_status status = aril__states_part(&part, state, "gradient/");
    aril_module_zero_grad(model);
    const aril_named *params = aril_parameters(model);
    if (params == NULL) status = aril__latest_status();
    for (int i = 0; status == ARIL_OK && i < params->n; i++) {
        ARIL_SCOPE;
        aril_tensor *grad = aril__states_get(&part, params->name[i]);
        if (grad != NULL)
            status = aril_set_grad(params->at[i], aril_to(grad, aril_device_of(params->at[i])));
    }
    aril__states_clear(&part);
    return status;
}

/* All checks that need no changes. */
static aril_status check(const char *dir, const aril__checkpoint *c, aril_module *model,
                         aril_optim *opt, aril_loader *loader)
{
    int64_t v[3];
    if (!aril__states_ints(&c->state, "rng", 2, v))
        return aril__fail(ARIL_ERR_FORMAT, "the checkpoint in '%s' has no random number generator",
                          dir);
    if (loader != NULL && !aril__states_ints(&c->state, "loader", 3, v))
        return aril__fail(
            ARIL_ERR_STATE,
            "the checkpoint in '%s' was saved without a loader: its position is unknown", dir);
    bool has = false;
    for (int i = 0; i < c->state.n && !has; i++)
        has = strncmp(c->state.name[i], "optimizer/", 10) == 0;
    if (opt != NULL && !has)
        return aril__fail(ARIL_ERR_STATE, "the checkpoint in '%s' was saved without an optimizer",
                          dir);
    if (opt != NULL && c->optimizer[0] != '\0' && strcmp(c->optimizer, aril_optim_name(opt)) != 0)
        return aril__fail(ARIL_ERR_STATE,
                          "the checkpoint in '%s' is for the optimizer %s; this optimizer is %s",
                          dir, c->optimizer, aril_optim_name(opt));
    const aril_named *params = aril_parameters(model);
    if (params == NULL) return aril__latest_status();
    for (int i = 0; i < params->n; i++) {
        char name[512];
        snprintf(name, sizeof name, "gradient/%s", params->name[i]);
        aril_tensor *grad = aril__states_get(&c->state, name);
        if (grad != NULL && aril_numel(grad) != aril_numel(params->at[i]))
            return aril__fail(ARIL_ERR_SHAPE,
                              "the checkpoint in '%s' has a gradient of a different shape for %s",
                              dir, params->name[i]);
    }
    return ARIL_OK;
}

/* Applies the weights, and the optimizer state and gradients in `state`. */
static aril_status give(const aril_named *weights, const aril__states *state, aril_module *model,
                        aril_optim *opt)
{
    aril__states part = { 0 };
    aril_status status = opt != NULL ? aril__states_part(&part, state, "optimizer/") : ARIL_OK;
    if (status == ARIL_OK && weights == NULL) status = aril__latest_status();
    if (status == ARIL_OK) status = aril_load_state(model, weights, (aril_load_state_opts){ 0 });
    if (status == ARIL_OK && opt != NULL)
        status = aril_optim_load_state(opt, aril__states_view(&part));
    if (status == ARIL_OK) status = put_gradients(state, model);
    aril__states_clear(&part);
    return status;
}

aril_status aril__checkpoint_apply(const char *dir, aril__checkpoint *c, aril_module *model,
                                   aril_optim *opt, aril_loader *loader)
{
    if (model == NULL)
        return aril__fail(ARIL_ERR_ARG, "expected a model to load the checkpoint into, got NULL");
    aril_status status = check(dir, c, model, opt, loader);
    if (status != ARIL_OK) return status;
    /* Backups to roll back to when a later step fails. */
    aril__states weights = { 0 }, rest = { 0 };
    aril_loader_position was =
        loader != NULL ? aril_loader_tell(loader) : (aril_loader_position){ 0 };
    status = aril__states_copy(&weights, "", aril_state(model));
    if (status == ARIL_OK) status = gather(&rest, model, opt, NULL);
    if (status == ARIL_OK && loader != NULL) {
        int64_t at[3] = { 0 };
        aril__states_ints(&c->state, "loader", 3, at);
        status = aril_loader_seek(loader, (aril_loader_position){ (uint64_t)at[0], at[1], at[2] });
    }
    if (status == ARIL_OK) {
        status = give(aril_safetensors_all(c->weights), &c->state, model, opt);
        if (status != ARIL_OK) {
            give(aril__states_view(&weights), &rest, model, opt);
            if (loader != NULL) aril_loader_seek(loader, was);
        }
    }
    if (status == ARIL_OK) {
        int64_t rng[2] = { 0 };
        aril__states_ints(&c->state, "rng", 2, rng);
        aril_generator_set_state(aril_default_generator(),
                                 (aril_rng_state){ (uint64_t)rng[0], (uint64_t)rng[1] });
    }
    aril__states_clear(&weights);
    aril__states_clear(&rest);
    return status;
}

/* Checks that all of the caller's tensors are present, with their shapes. */
static aril_status check_extra(const char *dir, const aril__states *part, const aril_named *extra)
{
    if (extra->n > 0 && extra->at == NULL)
        return aril__fail(ARIL_ERR_ARG, "expected %d tensors to load into, got NULL", extra->n);
    for (int i = 0; i < extra->n; i++) {
        char number[16];
        snprintf(number, sizeof number, "%d", i);
        const char *name = extra->name != NULL ? extra->name[i] : number;
        if (name == NULL)
            return aril__fail(ARIL_ERR_ARG, "tensor %d to load from a checkpoint has no name", i);
        aril_tensor *from = aril__states_get(part, name), *to = extra->at[i];
        aril_shape a = from != NULL ? aril_shape_of(from) : (aril_shape){ 0 },
                   b = aril_shape_of(to);
        if (from == NULL)
            return aril__fail(ARIL_ERR_FORMAT, "the checkpoint in '%s' has no tensor '%s'", dir,
                              name);
        if (a.ndim != b.ndim || memcmp(a.dim, b.dim, (size_t)a.ndim * sizeof *a.dim) != 0 ||
            aril_dtype_of(from) != aril_dtype_of(to))
            return aril__fail(ARIL_ERR_SHAPE,
                              "the checkpoint in '%s' has '%s' with a different shape or dtype",
                              dir, name);
    }
    return ARIL_OK;
}

aril_status aril_checkpoint_load_with(const char *dir, aril_module *model, aril_optim *opt,
                                      aril_loader *loader, aril_checkpoint_opts opts)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril__checkpoint c;
    aril_status status = aril__checkpoint_open(dir, &c);
    if (status != ARIL_OK) return status;
    aril__states part = { 0 };
    if (opts.extra != NULL) {
        status = aril__states_part(&part, &c.state, "extra/");
        if (status == ARIL_OK) status = check_extra(dir, &part, opts.extra);
    }
    if (status == ARIL_OK) status = aril__checkpoint_apply(dir, &c, model, opt, loader);
    for (int i = 0; opts.extra != NULL && i < opts.extra->n && status == ARIL_OK; i++) {
        char number[16];
        snprintf(number, sizeof number, "%d", i);
        const char *name = opts.extra->name != NULL ? opts.extra->name[i] : number;
        status = aril_tensor_status(aril_copy_(opts.extra->at[i], aril__states_get(&part, name)));
    }
    aril__states_clear(&part);
    aril__checkpoint_close(&c);
    return status;
}

aril_status aril_checkpoint_load(const char *dir, aril_module *model, aril_optim *opt,
                                 aril_loader *loader)
{
    return aril_checkpoint_load_with(dir, model, opt, loader, (aril_checkpoint_opts){ 0 });
}
