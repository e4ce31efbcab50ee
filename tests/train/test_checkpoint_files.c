/* The folder of a checkpoint: saves remove files of earlier saves, even of killed ones, and none of
 * the user's. */
#include "aril/aril.h"
#include "support/device.h"
#include "support/temp.h"
#include "support/test.h"
#include "train/digest.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *in(const char *dir, const char *name)
{
    static char path[4][600];
    static int turn;
    char *p = path[turn++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", dir, name);
    return p;
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    CHECK(f != NULL);
    fputs(text, f);
    fclose(f);
}

static bool holds(const char *path, const char *text)
{
    char is[512] = "";
    FILE *f = fopen(path, "r");
    if (f == NULL) return false;
    size_t n = fread(is, 1, sizeof is - 1, f);
    fclose(f);
    return n == strlen(text) && strcmp(is, text) == 0;
}

static aril_status save(const char *dir, aril_module *m, int64_t step)
{
    return aril_checkpoint_save_with(dir, m, NULL, NULL, (aril_checkpoint_opts){ .step = step });
}

static void loads(const char *dir, aril_module *m)
{
    CHECK_MSG(aril_checkpoint_load(dir, m, NULL, NULL) == ARIL_OK, "%s", aril_error());
}

TEST(user_files_are_kept)
{
    ARIL_SCOPE;
    const char *dir = temp_path("run");
    aril_module *m = aril_nn_linear(3, 4);
    static const char *const theirs[] = {
        "weights-best.safetensors",    "weights-2.safetensors",
        "weights-2-again.safetensors", ".weights-best.safetensors.new0",
        ".weights-3.safetensors.new",  "notes.txt"
    };
    CHECK_INT(save(dir, m, 1), ARIL_OK);
    for (int i = 0; i < 6; i++) write_text(in(dir, theirs[i]), theirs[i]);
    CHECK_INT(aril_save(m, in(dir, "weights-3.safetensors")), ARIL_OK);
    for (int step = 1; step < 6; step++) {
        CHECK_INT(save(dir, m, step), ARIL_OK);
        CHECK_INT(save(dir, m, step), ARIL_OK);
    }
    for (int i = 0; i < 6; i++) CHECK_MSG(holds(in(dir, theirs[i]), theirs[i]), "%s", theirs[i]);
    CHECK_STR(files_in(dir), ".weights-3.safetensors.new .weights-best.safetensors.new0 notes.txt "
                             "state.safetensors weights-2-again.safetensors weights-2.safetensors "
                             "weights-3.safetensors weights-5-again.safetensors "
                             "weights-best.safetensors ");
    loads(dir, m);
    aril_module_release(m);
}

TEST(best_weights_may_be_saved_in_the_checkpoint_folder)
{
    ARIL_SCOPE;
    const char *dir = temp_path("run");
    aril_tensor *x = aril_randn(ARIL_SHAPE(12, 3), ARIL_F32, aril_cpu()),
                *y = aril_randn(ARIL_SHAPE(12, 1), ARIL_F32, aril_cpu());
    aril_model *model = aril_model_new(aril_nn_linear(3, 1), ARIL_SHAPE(3));
    CHECK_INT(aril_model_compile(
                  model, (aril_model_opts){ .loss = "mse",
                                            .optimizer = aril_sgd(NULL, (aril_sgd_opts){ 0 }) }),
              ARIL_OK);
    CHECK(mkdir(dir, 0777) == 0);
    const char *best = in(dir, "weights-best.safetensors");
    aril_fit_opts opts = {
        .epochs = 3,
        .verbose = ARIL_SILENT,
        .checkpoint = { .dir = dir },
        .callbacks = ARIL_CALLBACKS(aril_save_best(best, (aril_monitor){ .name = "loss" })),
    };
    CHECK_MSG(aril_model_fit(model, x, y, opts) != NULL, "%s", aril_error());
    CHECK(access(best, F_OK) == 0);
    aril_model_free(model);
}

/* A state that a kill may leave: a list of weights that may or may not exist. */
TEST(files_of_a_killed_save_are_removed)
{
    ARIL_SCOPE;
    const char *dir = temp_path("run"), *aside = temp_path("aside");
    aril_module *m = aril_nn_linear(3, 4), *other = aril_nn_linear(3, 4);
    CHECK_INT(save(dir, m, 1), ARIL_OK);
    CHECK_INT(save(aside, other, 7), ARIL_OK);
    aril_safetensors *f = aril_safetensors_open(in(aside, "state.safetensors"));
    CHECK(f != NULL);
    char list[512];
    const char *digest = aril_safetensors_get(f, "weights_xxh64");
    snprintf(list, sizeof list,
             "%s weights-7.safetensors\n%s weights-8.safetensors\n%s weights-9.safetensors\n"
             "%s ../notes.safetensors\n%s notes.txt\nweights-best.safetensors\n",
             digest, digest, digest, digest, digest);
    aril_safetensors_close(f);
    CHECK(rename(in(aside, "weights-7.safetensors"), in(dir, "weights-7.safetensors")) == 0);
    write_text(in(dir, ".weights-8.safetensors.new3"), "half");
    /* a user's file took a name on the list after the kill */
    CHECK_INT(aril_save(m, in(dir, "weights-9.safetensors")), ARIL_OK);
    write_text(in(dir, "notes.txt"), "x");
    write_text(temp_path("notes.safetensors"), "x");
    write_text(in(dir, "weights-best.safetensors"), "x");
    write_text(in(dir, ".checkpoint-files"), list);
    loads(dir, m);
    CHECK_INT(save(dir, m, 2), ARIL_OK);
    CHECK_STR(files_in(dir), "notes.txt state.safetensors weights-2.safetensors "
                             "weights-9.safetensors weights-best.safetensors ");
    CHECK(access(temp_path("notes.safetensors"), F_OK) == 0);
    aril_module_release(m);
    aril_module_release(other);
}

TEST(killed_saves_leave_no_files_behind)
{
    ONLY_ON_CPU("a child process cannot use the parent's device");
    ARIL_SCOPE;
    const char *dir = temp_path("run");
    aril_module *m = aril_nn_linear(300, 400); /* half a megabyte: slow enough to be interrupted */
    CHECK_INT(save(dir, m, 1), ARIL_OK);
    write_text(in(dir, "weights-best.safetensors"), "theirs");
    for (int round = 0; round < 40; round++) {
        pid_t child = fork();
        if (child == 0) {
            for (int64_t step = 2 + 1000 * round;; step++)
                if (save(dir, m, step) != ARIL_OK) {
                    fprintf(stderr, "step %lld: %s\n", (long long)step, aril_error());
                    _exit(1);
                }
        }
        usleep((useconds_t)(2000 + 577 * round % 9000));
        kill(child, SIGKILL);
        int status;
        waitpid(child, &status, 0);
        CHECK_MSG(WIFSIGNALED(status), "round %d: a save failed", round);
        loads(dir, m);
        if (test_failed()) return;
    }
    CHECK_INT(save(dir, m, 77), ARIL_OK);
    CHECK_STR(files_in(dir), "state.safetensors weights-77.safetensors weights-best.safetensors ");
    CHECK(holds(in(dir, "weights-best.safetensors"), "theirs"));
    aril_module_release(m);
}

/* Version 0.1.0 wrote weights without a digest, as aril_save does. */
TEST(weights_of_an_earlier_version_are_loaded_and_removed)
{
    ARIL_SCOPE;
    const char *dir = temp_path("run");
    aril_module *m = aril_nn_linear(3, 4);
    CHECK_INT(save(dir, m, 41), ARIL_OK);
    CHECK_INT(aril_save(m, in(dir, "weights-41.safetensors")), ARIL_OK);
    loads(dir, m);
    CHECK_INT(save(dir, m, 0), ARIL_OK);
    CHECK_STR(files_in(dir), "state.safetensors weights-42.safetensors ");
    aril_module_release(m);
}

TEST(foreign_state_file_is_not_overwritten)
{
    ARIL_SCOPE;
    const char *dir = temp_path("run");
    aril_module *m = aril_nn_linear(3, 4);
    CHECK(mkdir(dir, 0777) == 0);
    CHECK_INT(aril_save(m, in(dir, "state.safetensors")), ARIL_OK);
    CHECK_INT(save(dir, m, 1), ARIL_ERR_STATE);
    CHECK_MSG(strstr(aril_error(), "not overwritten"), "%s", aril_error());
    aril_clear_error();
    CHECK_STR(files_in(dir), "state.safetensors ");
    CHECK_INT(aril_load_weights(m, in(dir, "state.safetensors"), (aril_load_weights_opts){ 0 }),
              ARIL_OK);
    write_text(in(dir, "state.safetensors"), "damaged"); /* as a failing disk may leave it */
    CHECK_INT(save(dir, m, 1), ARIL_OK);
    loads(dir, m);
    aril_module_release(m);
}

/* Names are not searched linearly: that would take minutes for a 20 MB file. */
TEST(state_with_many_names_is_read_quickly)
{
    ARIL_SCOPE;
    enum { MANY = 200000 };
    const char *dir = temp_path("run");
    aril_module *m = aril_nn_linear(3, 4);
    CHECK_INT(save(dir, m, 1), ARIL_OK);
    aril_safetensors *f = aril_safetensors_open(in(dir, "state.safetensors"));
    aril_metadata meta = aril_safetensors_metadata(f);
    const aril_named *had = aril_safetensors_all(f);
    CHECK(had != NULL && had->n < 100 && meta.n < 16);
    aril_tensor **at = calloc(MANY + 100, sizeof *at), *one = aril_scalar(1);
    const char **name = calloc(MANY + 100, sizeof *name), *value[16];
    char(*text)[16] = calloc(MANY, sizeof *text), digest[24];
    for (int i = 0; i < MANY; i++) {
        snprintf(text[i], sizeof text[i], "extra/%d", i);
        at[i] = one;
        name[i] = text[i];
    }
    for (int i = 0; i < had->n; i++) {
        at[MANY + i] = had->at[i];
        name[MANY + i] = had->name[i];
    }
    aril_named many = { MANY + had->n, at, name };
    uint64_t sum = 0;
    CHECK_INT(aril__digest_named(&many, &sum), ARIL_OK);
    snprintf(digest, sizeof digest, "%016llx", (unsigned long long)sum);
    for (int i = 0; i < meta.n; i++)
        value[i] = strcmp(meta.key[i], "state_xxh64") == 0 ? digest : meta.value[i];
    meta.value = value;
    CHECK_INT(aril_safetensors_save(in(dir, "state.safetensors"), &many, &meta), ARIL_OK);
    aril_safetensors_close(f);
    aril_named none = { 0 };
    clock_t before = clock(); /* CPU time of this process: others may be running */
    CHECK_MSG(aril_checkpoint_load_with(dir, m, NULL, NULL,
                                        (aril_checkpoint_opts){ .extra = &none }) == ARIL_OK,
              "%s", aril_error());
    double seconds = (double)(clock() - before) / CLOCKS_PER_SEC;
    CHECK_MSG(seconds < 5, "%g seconds", seconds);
    free(at);
    free(name);
    free(text);
    aril_module_release(m);
}
