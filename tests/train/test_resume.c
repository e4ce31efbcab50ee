/* Interrupted fits: killed at any moment, by a handled signal, by a full disk. A resumed fit ends
 * with the same bits as an uninterrupted one. Fits run in child processes: this one never uses Aril
 * before it has forked. */
#include "aril/aril.h"
#include "core/clock.h"
#include "support/device.h"
#include "support/temp.h"
#include "support/test.h"
#include "train/digest.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { N = 100, D = 6, C = 3, EPOCHS = 6, BATCH = 9 };

/* A persistent path in the test's folder: temp_path has only a few buffers. */
static const char *path_of(const char *name)
{
    static char path[4][512];
    static const char *const known[] = { "want", "got", "run", "aside" };
    for (int i = 0; i < 4; i++)
        if (strcmp(known[i], name) == 0) {
            snprintf(path[i], sizeof path[i], "%s", temp_path(name));
            return path[i];
        }
    return NULL;
}

/* Options of the process that fits. */
typedef struct job {
    const char *dir;              /* NULL: no checkpoint */
    const char *result;           /* receives weights and history when the fit is done */
    int64_t every;                /* batches between checkpoints; 0: epochs */
    bool on_signal, raise_signal; /* the signal comes in the middle of an epoch */
    int accumulate, workers;
    bool full_disk; /* from the third epoch on */
} job;

static aril_status in_the_middle(aril_fit *fit, void *ctx)
{
    const job *j = ctx;
    if (aril_fit_resumed(fit)) return ARIL_OK;
    if (j->raise_signal && aril_fit_step(fit) == 17) raise(SIGTERM);
    if (j->full_disk && aril_fit_step(fit) == 25) {
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){ 100, 100 });
    }
    return ARIL_OK;
}

/* Dropout, shuffling, momentum, a schedule, metrics of every kind of state, stateful callbacks. 0:
 * done, 10: ended by a signal, 20: failed. */
static int fit(const job *j)
{
    aril_seed(21);
    aril_tensor *x = aril_randn(ARIL_SHAPE(N, D), ARIL_F32, aril_cpu());
    aril_tensor *y = aril_argmax(aril_matmul(x, aril_randn(ARIL_SHAPE(D, C), ARIL_F32, aril_cpu())),
                                 ARIL_AXES(1));
    aril_model *m = aril_model_new(aril_nn_sequential(aril_nn_linear(0, 12), aril_nn_relu(),
                                                      aril_nn_dropout(0.2), aril_nn_linear(0, C)),
                                   ARIL_SHAPE(D));
    aril_model_compile(m, (aril_model_opts){
                              .loss = "cross_entropy",
                              .metrics = "accuracy, f1, top2",
                              .optimizer = aril_adam(NULL, (aril_adam_opts){ .lr = 0.02 }),
                              .schedule =
                                  aril_cosine_schedule((aril_schedule_opts){ .total = EPOCHS }) });
    aril_history *h = aril_model_fit(
        m, x, y,
        (aril_fit_opts){
            .batch_size = BATCH,
            .epochs = EPOCHS,
            .verbose = ARIL_SILENT,
            .seed = 8,
            .validation_split = 0.2,
            .accumulate = j->accumulate,
            .workers = j->workers,
            .callbacks = ARIL_CALLBACKS(
                aril_early_stop((aril_early_stop_opts){
                    .monitor = { .name = "val_loss" }, .patience = 50, .restore_best = true }),
                aril_on_batch(in_the_middle, (void *)(uintptr_t)j)),
            .checkpoint = { .dir = j->dir,
                            .every_batches = j->every,
                            .resume = j->dir != NULL,
                            .on_signal = j->on_signal } });
    int code = h == NULL ? 20 : aril_history_signal(h) != 0 ? 10 : 0;
    if (h == NULL && !j->full_disk) aril_report(stderr);
    if (code == 0) { /* weights, and the history in a file next to them */
        char csv[512];
        snprintf(csv, sizeof csv, "%s.csv", j->result);
        if (aril_history_csv(h, csv) != ARIL_OK ||
            aril_safetensors_save(j->result, aril_state(aril_model_module(m)), NULL) != ARIL_OK)
            code = 20;
    }
    aril_model_free(m);
    return code;
}

/* The device is opened by the processes that use it: its threads would not survive a fork. */
void test_prepare(void)
{
}

static pid_t begin(const job *j)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        test_device();
        _exit(fit(j));
    }
    return pid;
}

/* The exit status of a process, -signal if one ended it. */
static int end(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* Whether it has ended; its status can still be waited for. */
static bool ended(pid_t pid)
{
    siginfo_t about = { 0 };
    return waitid(P_PID, (id_t)pid, &about, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           about.si_pid == pid;
}

static bool same_file(const char *a, const char *b)
{
    static char x[1 << 16], y[1 << 16];
    FILE *f = fopen(a, "rb"), *g = fopen(b, "rb");
    bool same = f != NULL && g != NULL;
    while (same) {
        size_t n = fread(x, 1, sizeof x, f), m = fread(y, 1, sizeof y, g);
        same = n == m && memcmp(x, y, n) == 0;
        if (n == 0) break;
    }
    if (f != NULL) fclose(f);
    if (g != NULL) fclose(g);
    return same;
}

/* Whether weights and history of both are the same. */
static bool same_results(const char *a, const char *b)
{
    char p[512], q[512];
    snprintf(p, sizeof p, "%s.csv", a);
    snprintf(q, sizeof q, "%s.csv", b);
    return same_file(a, b) && same_file(p, q);
}

static void remove_run(const char *dir)
{
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    if (system(command) != 0) test_fail(__FILE__, __LINE__, "%s", command);
}

/* Kills a run that takes about `seconds` at random moments. */
static void kill_often(int times, job j, double seconds, const char *want, unsigned *seed)
{
    int kills = 0, finished = 0;
    bool fresh = true; /* this fit starts from scratch */
    while (kills < times || finished == 0) {
        pid_t pid = begin(&j);
        CHECK(pid > 0);
        double begun = aril__seconds();
        double until = begun + (kills < times ? seconds * rand_r(seed) / RAND_MAX : 600);
        while (!ended(pid) && aril__seconds() < until) usleep(200);
        kill(pid, SIGKILL); /* no effect on one that has ended */
        int status = end(pid);
        if (status == -SIGKILL) {
            kills++;
            fresh = false;
            continue;
        }
        CHECK_MSG(status == 0, "the fit ended with %d after %d kills", status, kills);
        CHECK_MSG(same_results(j.result, want), "other bits after %d kills", kills);
        finished++;
        if (fresh)
            seconds = aril__seconds() - begun; /* its current duration: kills come before that */
        fresh = true;
        remove_run(j.dir); /* the next kills hit a fit from scratch */
    }
    printf("      %d kills, %d fits finished with the same bits\n", kills, finished);
}

TEST(killed_at_fifty_random_moments)
{
    unsigned seed = (unsigned)time(NULL);
    const char *fixed = getenv("ARIL_TEST_SEED");
    if (fixed != NULL) seed = (unsigned)strtoul(fixed, NULL, 10);
    printf("      ARIL_TEST_SEED=%u\n", seed);
    const char *want = path_of("want");
    double start = aril__seconds();
    CHECK_INT(end(begin(&(job){ .result = want })), 0);
    CHECK_INT(end(begin(&(job){ .result = path_of("got"), .dir = path_of("run"), .every = 2 })), 0);
    CHECK(same_results(path_of("got"), want)); /* checkpointing changes nothing */
    double seconds = aril__seconds() - start;
    remove_run(path_of("run"));
    kill_often(40, (job){ .result = path_of("got"), .dir = path_of("run"), .every = 1 }, seconds,
               want, &seed);
    kill_often(10, (job){ .result = path_of("got"), .dir = path_of("run"), .every = 0 }, seconds,
               want, &seed);
}

TEST(killed_with_accumulated_gradients_and_workers)
{
    unsigned seed = 5;
    const char *want = path_of("want");
    double start = aril__seconds();
    CHECK_INT(end(begin(&(job){ .result = want, .accumulate = 4 })), 0);
    double seconds = aril__seconds() - start;
    kill_often(8,
               (job){ .result = path_of("got"),
                      .dir = path_of("run"),
                      .every = 3,
                      .accumulate = 4,
                      .workers = 2 },
               2 * seconds, want, &seed);
}

static volatile sig_atomic_t own_calls;

static void own_handler(int sig)
{
    (void)sig;
    own_calls++;
}

/* In a child process: a signal saves and stops, the program's handler is restored, and the next fit
 * continues. */
static int signalled(const char *dir, const char *result)
{
    test_device();
    signal(SIGTERM, own_handler);
    job j = { .dir = dir, .result = result, .on_signal = true, .raise_signal = true };
    if (fit(&j) != 10 || own_calls != 0) return 1;
    if (!aril_checkpoint_exists(dir)) return 2;
    raise(SIGTERM);
    if (own_calls != 1) return 3;
    if (fit(&j) != 0) return 4;
    return own_calls == 1 ? 0 : 5;
}

TEST(signal_saves_and_stops)
{
    const char *want = path_of("want"), *got = path_of("got"), *dir = path_of("run");
    CHECK_INT(end(begin(&(job){ .result = want })), 0);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) _exit(signalled(dir, got));
    CHECK_INT(end(pid), 0);
    CHECK(same_results(got, want));
    /* not requested: the signal ends the process */
    CHECK_INT(end(begin(&(job){ .result = got, .raise_signal = true })), -SIGTERM);
}

TEST(full_disk_ends_the_fit_and_keeps_the_checkpoint)
{
    const char *want = path_of("want"), *got = path_of("got"), *dir = path_of("run");
    CHECK_INT(end(begin(&(job){ .result = want })), 0);
    CHECK_INT(end(begin(&(job){ .result = got, .dir = dir, .every = 1, .full_disk = true })), 20);
    CHECK_INT(end(begin(&(job){ .result = got, .dir = dir, .every = 1 })), 0);
    CHECK(same_results(got, want));
    /* resuming a finished run trains nothing, and gives the same result */
    unlink(got);
    CHECK_INT(end(begin(&(job){ .result = got, .dir = dir })), 0);
    CHECK(same_results(got, want));
}

/* ---- in this process, last: a checkpoint of another fit is rejected ---- */

static aril_history *fit_with(const char *metrics, int64_t batch, const char *dir)
{
    aril_seed(1);
    aril_tensor *x = aril_randn(ARIL_SHAPE(20, 3), ARIL_F32, aril_cpu());
    aril_model *m = aril_model_new(aril_nn_linear(3, 1), ARIL_SHAPE(3));
    aril_model_compile(m, (aril_model_opts){ .loss = "mse",
                                             .metrics = metrics,
                                             .optimizer =
                                                 aril_sgd(NULL, (aril_sgd_opts){ .lr = 0.1 }) });
    aril_history *h =
        aril_model_fit(m, x, aril_narrow(x, 1, 0, 1),
                       (aril_fit_opts){ .batch_size = batch,
                                        .verbose = ARIL_SILENT,
                                        .checkpoint = { .dir = dir, .resume = true } });
    aril_model_free(m); /* and the history with it */
    return h;
}

TEST(checkpoints_of_other_fits_are_rejected)
{
    ARIL_SCOPE;
    const char *dir = path_of("run");
    CHECK(fit_with("mae", 5, dir) != NULL);
    CHECK(fit_with("mae, r2", 5, dir) == NULL);
    CHECK_MSG(strstr(aril_error(),
                     "has the metrics loss, mae, lr; this fit has loss, mae, r2, lr") != NULL,
              "%s", aril_error());
    aril_clear_error();
    CHECK(fit_with("mae", 4, dir) == NULL);
    CHECK_MSG(strstr(aril_error(), "batches of 5; this fit has 20 in batches of 4") != NULL, "%s",
              aril_error());
    aril_clear_error();
    CHECK(fit_with("mae", 5, dir) != NULL);
}

/* Rewrites the state with another tensor of that name, and matching digests. */
static void change_state(const char *dir, const char *name, aril_tensor *to)
{
    ARIL_SCOPE;
    char path[600], digest[24];
    snprintf(path, sizeof path, "%s/state.safetensors", dir);
    aril_safetensors *f = aril_safetensors_open(path);
    CHECK(f != NULL);
    const aril_named *all = aril_safetensors_all(f);
    aril_metadata meta = aril_safetensors_metadata(f);
    aril_tensor *at[256];
    const char *value[16];
    CHECK(all != NULL && all->n <= 256 && meta.n <= 16);
    bool found = false;
    for (int i = 0; i < all->n; i++) {
        bool is = strcmp(all->name[i], name) == 0;
        at[i] = is ? to : all->at[i];
        found |= is;
    }
    aril_named changed = { all->n, at, all->name };
    uint64_t sum = 0;
    CHECK_INT(aril__digest_named(&changed, &sum), ARIL_OK);
    snprintf(digest, sizeof digest, "%016llx", (unsigned long long)sum);
    for (int i = 0; i < meta.n; i++)
        value[i] = strcmp(meta.key[i], "state_xxh64") == 0 ? digest : meta.value[i];
    meta.value = value;
    CHECK_INT(aril_safetensors_save(path, &changed, &meta), ARIL_OK);
    aril_safetensors_close(f);
    CHECK_MSG(found, "there is no %s", name);
}

TEST(unreachable_values_are_rejected)
{
    ARIL_SCOPE;
    static const int64_t far = INT64_C(1) << 32;
    const int64_t at[][5] = { { far, 0, 0, 0, 0 },
                              { -1, 0, 0, 0, 0 },
                              { 0, -1, 0, 0, 0 },
                              { 0, 0, -1, 0, 0 },
                              { 0, 0, 0, INT64_MIN, 0 } };
    const char *dir = path_of("run");
    for (int i = 0; i < 5; i++) {
        CHECK(fit_with("mae", 5, dir) != NULL);
        change_state(dir, "fit/at", aril_from(at[i], ARIL_SHAPE(5), ARIL_I64, aril_cpu()));
        CHECK_MSG(fit_with("mae", 5, dir) == NULL, "place %d was taken", i);
        CHECK_MSG(strstr(aril_error(), "not a valid position"), "%s", aril_error());
        aril_clear_error();
        unlink(temp_path("run/state.safetensors"));
    }
    CHECK(fit_with("mae", 5, dir) != NULL);
    change_state(dir, "fit/history.epoch", aril_from(&far, ARIL_SHAPE(1), ARIL_I64, aril_cpu()));
    CHECK(fit_with("mae", 5, dir) == NULL);
    CHECK_MSG(strstr(aril_error(), "epoch 4294967296"), "%s", aril_error());
    aril_clear_error();
}

/* Parameters whose sizes come from the first batch. */
static double fit_open(int epochs, const char *dir)
{
    ARIL_SCOPE;
    aril_seed(1);
    aril_tensor *x = aril_randn(ARIL_SHAPE(20, 3), ARIL_F32, aril_cpu());
    aril_model *m = aril_model_new(aril_nn_sequential(aril_nn_linear(0, 4), aril_nn_batch_norm1d(0),
                                                      aril_nn_linear(0, 1)),
                                   ARIL_SHAPE());
    aril_model_compile(m, (aril_model_opts){ .loss = "mse",
                                             .optimizer = aril_adam(NULL, (aril_adam_opts){ 0 }) });
    aril_history *h =
        aril_model_fit(m, x, aril_narrow(x, 1, 0, 1),
                       (aril_fit_opts){ .batch_size = 5,
                                        .epochs = epochs,
                                        .verbose = ARIL_SILENT,
                                        .checkpoint = { .dir = dir, .resume = dir != NULL } });
    double loss = h != NULL ? aril_history_at(h, "loss", -1) : NAN;
    aril_model_free(m);
    return loss;
}

TEST(model_with_lazy_sizes_resumes)
{
    const char *dir = path_of("run");
    double want = fit_open(3, NULL);
    CHECK(fit_open(1, dir) > 0 && aril_ok());
    double got = fit_open(3, dir);
    CHECK_MSG(got == want, "%g, not %g: %s", got, want, aril_ok() ? "" : aril_error());
}
