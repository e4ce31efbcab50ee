/* Checkpoints: they restore everything, and no damaged, foreign or half-written file changes a
 * model. */
#include "aril/aril.h"
#include "support/device.h"
#include "support/temp.h"
#include "support/test.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 60, D = 4, C = 3 };

/* A network with buffers (running means) and dropout, its optimizer with a schedule, and a
 * loader. */
typedef struct run {
    aril_module *net;
    aril_optim *opt;
    aril_loader *batches;
} run;

static run start(int64_t hidden)
{
    aril_seed(11);
    run r;
    aril_tensor *x = aril_randn(ARIL_SHAPE(N, D), ARIL_F32, aril_cpu());
    aril_tensor *y = aril_randint(0, C, ARIL_SHAPE(N), ARIL_I64, aril_cpu());
    r.net = aril_nn_sequential(aril_nn_linear(D, hidden), aril_nn_relu(), aril_nn_dropout(0.3),
                               aril_nn_linear(hidden, C));
    aril_module_buffer(r.net, "seen", aril_zeros(ARIL_SHAPE(2), ARIL_F32, aril_cpu()));
    r.opt = aril_adam(aril_parameters(r.net), (aril_adam_opts){ .lr = 0.02 });
    aril_optim_schedule(r.opt, aril_cosine_schedule(
                                   (aril_schedule_opts){ .total = 40, .per_batch = true }));
    r.batches = aril_loader_new(aril_dataset_tensors(x, y),
                                (aril_loader_opts){ .batch = 7, .shuffle = true, .seed = 4 });
    return r;
}

static void stop(run *r)
{
    aril_loader_free(r->batches);
    aril_optim_free(r->opt);
    aril_module_release(r->net);
}

/* n batches of a hand-written loop; every second gradient accumulates into the next. */
static void train(run *r, int n, int *done)
{
    for (int i = 0; i < n;) {
        aril_batch b;
        if (!aril_loader_next(r->batches, &b)) continue;
        ARIL_SCOPE;
        aril_tensor *x = aril_to(b.x, test_device()), *y = aril_to(b.y, test_device());
        aril_backward(aril_cross_entropy(aril_forward(r->net, x), y));
        aril_tensor *seen = aril_buffers(r->net)->at[0];
        aril_add_scalar_(seen, 0.25);
        if (++*done % 2 == 0) aril_step(r->opt);
        i++;
    }
}

static bool same_named(const aril_named *p, const aril_named *q)
{
    if (p == NULL || q == NULL || p->n != q->n) return false;
    for (int i = 0; i < p->n; i++) {
        ARIL_SCOPE;
        size_t size = (size_t)aril_numel(p->at[i]) * aril_dtype_size(aril_dtype_of(p->at[i]));
        if (strcmp(p->name[i], q->name[i]) != 0 || aril_numel(p->at[i]) != aril_numel(q->at[i]) ||
            memcmp(aril_data(p->at[i]), aril_data(q->at[i]), size) != 0)
            return false;
    }
    return true;
}

static bool same(run *a, run *b)
{
    aril_loader_position p = aril_loader_tell(a->batches), q = aril_loader_tell(b->batches);
    return same_named(aril_state(a->net), aril_state(b->net)) &&
           same_named(aril_optim_state(a->opt), aril_optim_state(b->opt)) && p.seed == q.seed &&
           p.epoch == q.epoch && p.batch == q.batch;
}

/* Runs first: sanitizers cannot handle fork in a process with other threads. */
TEST(several_processes_write_one_folder)
{
    ONLY_ON_CPU("a device does not survive a fork");
    ARIL_SCOPE;
    const char *dir = temp_path("shared");
    aril_module *m = aril_nn_linear(30, 30);
    pid_t pid[3];
    fflush(stdout);
    for (int i = 0; i < 3; i++) {
        pid[i] = fork();
        if (pid[i] != 0) continue;
        aril_init_constant(aril_module_tensor(m, "weight"), i);
        int failed = 0;
        for (int k = 0; k < 30; k++) failed += aril_checkpoint_save(dir, m, NULL, NULL) != ARIL_OK;
        _exit(failed);
    }
    for (int i = 0; i < 3; i++) {
        int status = -1;
        waitpid(pid[i], &status, 0);
        CHECK_INT(status, 0);
    }
    CHECK_INT(aril_checkpoint_load(dir, m, NULL, NULL), ARIL_OK);
    aril_module_release(m);
}

TEST(manual_loop_resumes_bitwise)
{
    ARIL_SCOPE;
    for (int cut = 0; cut <= 20;
         cut += 3) { /* even and odd: with accumulated gradients, and at ends of epochs */
        int done = 0;
        run full = start(8);
        train(&full, 20, &done);
        aril_rng_state end = aril_generator_state(aril_default_generator());

        run first = start(8);
        done = 0;
        train(&first, cut, &done);
        CHECK_INT(aril_checkpoint_save(temp_path("run"), first.net, first.opt, first.batches),
                  ARIL_OK);
        stop(&first);

        run second = start(8);
        int other = 0;
        train(&second, 5, &other); /* its earlier training does not matter */
        aril_seed(999);
        CHECK_MSG(aril_checkpoint_load(temp_path("run"), second.net, second.opt, second.batches) ==
                      ARIL_OK,
                  "%s", aril_error());
        done = cut;
        train(&second, 20 - cut, &done);
        CHECK_MSG(same(&full, &second), "after %d batches", cut);
        aril_rng_state now = aril_generator_state(aril_default_generator());
        CHECK(now.seed == end.seed && now.calls == end.calls);
        stop(&full);
        stop(&second);
    }
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

TEST(checkpoint_consists_of_two_files)
{
    ARIL_SCOPE;
    run r = start(8);
    const char *dir = temp_path("deep/er/run");
    CHECK(!aril_checkpoint_exists(dir));
    CHECK_INT(aril_checkpoint_save_with(dir, r.net, r.opt, r.batches,
                                        (aril_checkpoint_opts){ .step = 41 }),
              ARIL_OK);
    CHECK(aril_checkpoint_exists(dir));
    CHECK_STR(files_in(dir), "state.safetensors weights-41.safetensors ");
    CHECK_INT(aril_checkpoint_save(dir, r.net, r.opt, r.batches), ARIL_OK);
    CHECK_STR(files_in(dir), "state.safetensors weights-42.safetensors ");
    /* saving the same step again must not overwrite the weights that the state refers to */
    for (int i = 0; i < 3; i++) {
        CHECK_INT(aril_checkpoint_save_with(dir, r.net, r.opt, r.batches,
                                            (aril_checkpoint_opts){ .step = 42 }),
                  ARIL_OK);
        CHECK_STR(files_in(dir), i % 2 == 0 ? "state.safetensors weights-42-again.safetensors "
                                            : "state.safetensors weights-42.safetensors ");
    }
    char path[512];
    CHECK_INT(aril_checkpoint_save(dir, r.net, r.opt, NULL), ARIL_OK);
    CHECK_STR(files_in(dir), "state.safetensors weights-43.safetensors ");
    CHECK_INT(aril_checkpoint_weights(dir, path, sizeof path), ARIL_OK);
    aril_safetensors *f = aril_safetensors_open(path);
    CHECK_MSG(f != NULL, "%s", aril_error());
    CHECK(same_named(aril_safetensors_all(f), aril_state(r.net)));
    aril_safetensors_close(f);
    stop(&r);
}

TEST(extra_tensors_are_saved)
{
    ARIL_SCOPE;
    run r = start(8);
    aril_tensor *best = aril_full(ARIL_SHAPE(3), 0.5, ARIL_F32, aril_cpu());
    const char *name = "best";
    aril_named extra = { 1, &best, &name };
    CHECK_INT(aril_checkpoint_save_with(temp_path("run"), r.net, NULL, NULL,
                                        (aril_checkpoint_opts){ .extra = &extra }),
              ARIL_OK);
    aril_zero_(best);
    CHECK_INT(aril_checkpoint_load_with(temp_path("run"), r.net, NULL, NULL,
                                        (aril_checkpoint_opts){ .extra = &extra }),
              ARIL_OK);
    CHECK_NEAR(aril_item(aril_sum(best, ARIL_ALL)), 1.5, 0);
    aril_tensor *other = aril_zeros(ARIL_SHAPE(4), ARIL_F32, aril_cpu());
    extra.at = &other;
    CHECK_INT(aril_checkpoint_load_with(temp_path("run"), r.net, NULL, NULL,
                                        (aril_checkpoint_opts){ .extra = &extra }),
              ARIL_ERR_SHAPE);
    aril_clear_error();
    name = "worst";
    CHECK(aril_checkpoint_load_with(temp_path("run"), r.net, NULL, NULL,
                                    (aril_checkpoint_opts){ .extra = &extra }) < 0);
    CHECK_MSG(strstr(aril_error(), "'worst'") != NULL, "%s", aril_error());
    aril_clear_error();
    /* parts that were not saved are reported */
    CHECK(aril_checkpoint_load(temp_path("run"), r.net, r.opt, NULL) < 0);
    CHECK_MSG(strstr(aril_error(), "without an optimizer") != NULL, "%s", aril_error());
    aril_clear_error();
    CHECK(aril_checkpoint_load(temp_path("run"), r.net, NULL, r.batches) < 0);
    CHECK_MSG(strstr(aril_error(), "without a loader") != NULL, "%s", aril_error());
    aril_clear_error();
    stop(&r);
}

/* ---- damage ---- */

/* The contents of a file; the caller frees them. */
static unsigned char *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    unsigned char *data = malloc(1 << 20);
    *n = f != NULL ? fread(data, 1, 1 << 20, f) : 0;
    if (f != NULL) fclose(f);
    return data;
}

static void write_file(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    if (f == NULL) return;
    fwrite(data, 1, n, f);
    fclose(f);
}

/* Loading fails with a message and changes nothing. */
static void fails(run *r, run *like, const char *dir, const char *what, size_t at)
{
    aril_status status = aril_checkpoint_load(dir, r->net, r->opt, r->batches);
    CHECK_MSG(status < 0, "%s at %zu was taken", what, at);
    CHECK_MSG(strlen(aril_error()) > 20, "%s at %zu: no message", what, at);
    aril_clear_error();
    CHECK_MSG(same(r, like), "%s at %zu changed the model", what, at);
}

TEST(corrupt_checkpoint_is_detected_and_changes_nothing)
{
    ARIL_SCOPE;
    const char *dir = temp_path("run");
    run r = start(8), like = start(8), saved = start(8);
    int done = 0;
    train(&saved, 9, &done);
    CHECK_INT(aril_checkpoint_save(dir, saved.net, saved.opt, saved.batches), ARIL_OK);
    char path[2][512];
    CHECK_INT(aril_checkpoint_weights(dir, path[0], sizeof path[0]), ARIL_OK);
    snprintf(path[1], sizeof path[1], "%s/state.safetensors", dir);
    for (int file = 0; file < 2 && !test_failed(); file++) {
        size_t n;
        unsigned char *data = read_file(path[file], &n);
        CHECK(n > 200);
        for (size_t at = 0; at < n && !test_failed(); at += 1 + at / 40) { /* truncated */
            write_file(path[file], data, at);
            fails(&r, &like, dir, "a cut", at);
        }
        for (size_t at = 0; at < n && !test_failed(); at += n > 4000 ? 13 : 5) { /* bit flip */
            data[at] ^= (unsigned char)(1 << at % 8);
            write_file(path[file], data, n);
            data[at] ^= (unsigned char)(1 << at % 8);
            /* padding spaces of the header, and the case of letters in names of unused metadata,
             * may differ */
            aril_status status = aril_checkpoint_load(dir, r.net, r.opt, r.batches);
            if (status == ARIL_OK) {
                CHECK_MSG(same(&r, &saved), "byte %zu of %s: other values were loaded", at,
                          path[file]);
                CHECK_INT(aril_load_state(r.net, aril_state(like.net), (aril_load_state_opts){ 0 }),
                          ARIL_OK);
                CHECK_INT(aril_optim_load_state(r.opt, aril_optim_state(like.opt)), ARIL_OK);
                CHECK_INT(aril_loader_seek(r.batches, aril_loader_tell(like.batches)), ARIL_OK);
            } else {
                aril_clear_error();
                CHECK_MSG(same(&r, &like), "byte %zu of %s changed the model", at, path[file]);
            }
        }
        /* foreign files: text, another safetensors file, the other of the two */
        write_file(path[file], "\x89PNG\r\n not a checkpoint at all, but long enough", 48);
        fails(&r, &like, dir, "an image", 0);
        size_t m;
        unsigned char *other = read_file(path[1 - file], &m);
        write_file(path[file], other, m);
        fails(&r, &like, dir, "the wrong file", 0);
        free(other);
        unlink(path[file]);
        fails(&r, &like, dir, "a missing file", 0);
        write_file(path[file], data, n);
        free(data);
    }
    CHECK_INT(aril_checkpoint_load(dir, r.net, r.opt, r.batches), ARIL_OK);
    CHECK(same(&r, &saved));
    stop(&r);
    stop(&like);
    stop(&saved);
}

TEST(checkpoint_of_another_model_is_rejected)
{
    ARIL_SCOPE;
    const char *dir = temp_path("run");
    run r = start(8), other = start(9), like = start(9);
    CHECK_INT(aril_checkpoint_save(dir, r.net, r.opt, r.batches), ARIL_OK);
    fails(&other, &like, dir, "another model", 0);
    /* a model that fits, with an optimizer that does not: the weights are restored */
    run fits = start(8);
    int done = 0;
    train(&fits, 4, &done);
    run before = start(8);
    done = 0;
    train(&before, 4, &done);
    aril_optim_free(fits.opt);
    fits.opt = aril_sgd(aril_parameters(fits.net), (aril_sgd_opts){ .lr = 0.1, .momentum = 0.9 });
    aril_optim_free(before.opt);
    before.opt =
        aril_sgd(aril_parameters(before.net), (aril_sgd_opts){ .lr = 0.1, .momentum = 0.9 });
    fails(&fits, &before, dir, "another optimizer", 0);
    CHECK(aril_checkpoint_load(temp_path("nowhere"), r.net, NULL, NULL) < 0);
    CHECK_MSG(strstr(aril_error(), "no checkpoint in") != NULL, "%s", aril_error());
    aril_clear_error();
    CHECK(aril_checkpoint_save(NULL, r.net, NULL, NULL) < 0);
    aril_clear_error();
    CHECK(aril_checkpoint_save(dir, NULL, NULL, NULL) < 0);
    aril_clear_error();
    write_file(temp_path("file"), "x", 1);
    CHECK_INT(aril_checkpoint_save(temp_path("file"), r.net, NULL, NULL), ARIL_ERR_IO);
    aril_clear_error();
    stop(&r);
    stop(&other);
    stop(&like);
    stop(&fits);
    stop(&before);
}

/* ---- a full disk: file size is limited ---- */

TEST(full_disk_keeps_the_old_checkpoint)
{
    ARIL_SCOPE;
    const char *dir = temp_path("run");
    run old = start(64), now = start(64), got = start(64);
    int done = 0;
    train(&old, 3, &done);
    CHECK_INT(aril_checkpoint_save(dir, old.net, old.opt, old.batches), ARIL_OK);
    train(&now, 8, &done);
    struct rlimit was, few;
    getrlimit(RLIMIT_FSIZE, &was);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    char path[512];
    aril_checkpoint_weights(dir, path, sizeof path);
    struct stat s;
    stat(path, &s);
    /* no room at all; room for half of the weights; for the weights but not for the state, which is
     * larger */
    const rlim_t limits[] = { 0, (rlim_t)s.st_size / 2, (rlim_t)s.st_size + 64 };
    for (int i = 0; i < 3; i++) {
        few = was;
        few.rlim_cur = limits[i];
        setrlimit(RLIMIT_FSIZE, &few);
        aril_status status = aril_checkpoint_save(dir, now.net, now.opt, now.batches);
        setrlimit(RLIMIT_FSIZE, &was);
        CHECK_MSG(status == ARIL_ERR_IO, "room %d: status %d", (int)limits[i], status);
        aril_clear_error();
        CHECK_STR(files_in(dir), "state.safetensors weights-1.safetensors ");
        CHECK_INT(aril_checkpoint_load(dir, got.net, got.opt, got.batches), ARIL_OK);
        CHECK(same(&got, &old));
    }
    signal(SIGXFSZ, handler);
    CHECK_INT(aril_checkpoint_save(dir, now.net, now.opt, now.batches), ARIL_OK);
    CHECK_INT(aril_checkpoint_load(dir, got.net, got.opt, got.batches), ARIL_OK);
    CHECK(same(&got, &now));
    stop(&old);
    stop(&now);
    stop(&got);
}

/* ---- between the two renames ---- */

TEST(weights_without_state_are_not_a_checkpoint)
{
    ARIL_SCOPE;
    const char *dir = temp_path("run");
    run a = start(8), b = start(8), got = start(8);
    int done = 0;
    train(&b, 6, &done);
    CHECK_INT(aril_checkpoint_save(dir, a.net, a.opt, a.batches), ARIL_OK);
    /* a second save, killed after renaming its weights: its state is missing */
    char path[512];
    const char *aside = temp_path("aside");
    CHECK_INT(aril_checkpoint_save_with(aside, b.net, b.opt, b.batches,
                                        (aril_checkpoint_opts){ .step = 2 }),
              ARIL_OK);
    aril_checkpoint_weights(aside, path, sizeof path);
    size_t n;
    unsigned char *data = read_file(path, &n);
    snprintf(path, sizeof path, "%s/weights-2.safetensors", dir);
    write_file(path, data, n);
    CHECK_INT(aril_checkpoint_load(dir, got.net, got.opt, got.batches), ARIL_OK);
    CHECK(same(&got, &a));
    /* weights of another run under the name in the state are detected */
    snprintf(path, sizeof path, "%s/weights-1.safetensors", dir);
    write_file(path, data, n);
    free(data);
    CHECK_INT(aril_checkpoint_load(dir, got.net, got.opt, got.batches), ARIL_ERR_FORMAT);
    CHECK_MSG(strstr(aril_error(), "digest") != NULL, "%s", aril_error());
    aril_clear_error();
    CHECK(same(&got, &a));
    stop(&a);
    stop(&b);
    stop(&got);
}

TEST(checkpoint_of_another_optimizer_is_rejected)
{
    ARIL_SCOPE;
    const char *dir = temp_path("adam");
    aril_module *m = aril_nn_linear(3, 3);
    aril_optim *adam = aril_adam(aril_parameters(m), (aril_adam_opts){ .lr = 0.25 });
    aril_optim *adamw = aril_adamw(aril_parameters(m), (aril_adamw_opts){ .lr = 0.5 });
    CHECK_INT(aril_checkpoint_save(dir, m, adam, NULL), ARIL_OK);
    CHECK_INT(aril_checkpoint_load(dir, m, adamw, NULL), ARIL_ERR_STATE);
    CHECK_MSG(strstr(aril_error(), "is for the optimizer adam; this optimizer is adamw") != NULL,
              "%s", aril_error());
    aril_clear_error();
    CHECK(aril_item(aril_optim_lr(adamw)) == 0.5);
    CHECK_INT(aril_checkpoint_load(dir, m, adam, NULL), ARIL_OK);
    aril_optim_free(adam);
    aril_optim_free(adamw);
    aril_module_release(m);
}
