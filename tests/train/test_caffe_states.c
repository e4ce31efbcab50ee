/* Caffe's solvers: the three files of a snapshot belong together, and a restore that fails changes
 * nothing. */
#include "aril/aril.h"
#include "formats/atomic_file.h"
#include "formats/bytes.h"
#include "support/temp.h"
#include "support/test.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const char net[] =
    "layer { name: 'x' type: 'DummyData' top: 'x' top: 't' dummy_data_param { "
    "shape { dim: 4 dim: 3 } shape { dim: 4 dim: 3 } data_filler { type: 'gaussian' } "
    "data_filler { type: 'gaussian' } } } "
    "layer { name: 'fc' type: 'InnerProduct' bottom: 'x' top: 'y' inner_product_param { "
    "num_output: 3 weight_filler { type: 'xavier' } } } "
    "layer { name: 'loss' type: 'EuclideanLoss' bottom: 'y' bottom: 't' top: 'loss' }";

/* A solver of that type, whose snapshots begin with "run". */
static aril_caffe_solver *open_solver(const char *type, int seed, const char *snapshot)
{
    char text[8192];
    snprintf(text, sizeof text,
             "solver_mode: CPU net_param { %s } base_lr: 0.01 lr_policy: 'fixed' type: '%s' "
             "max_iter: 40 random_seed: %d average_loss: 2000 snapshot_prefix: '%s' %s",
             net, type, seed, temp_path("run"),
             strcmp(type, "AdaGrad") && strcmp(type, "RMSProp") ? "momentum: 0.9" : "");
    return aril_caffe_solver_parse(text, strlen(text), NULL,
                                   (aril_caffe_solver_opts){ .snapshot = snapshot });
}

static aril_status copy_file(const char *from, const char *to)
{
    aril__bytes b = { 0 };
    aril_status status = aril__read_file("file", from, 0, &b);
    if (status == ARIL_OK) status = aril__file_replace(to, b.at, b.n);
    aril__bytes_free(&b);
    return status;
}

static bool same_bits(const aril_module *a, const aril_module *b)
{
    ARIL_SCOPE;
    int n = aril_caffe_params(a);
    bool same = n > 0 && n == aril_caffe_params(b);
    for (int i = 0; i < n && same; i++)
        same = aril_equal(aril_caffe_param_at(a, i).tensor, aril_caffe_param_at(b, i).tensor);
    return same;
}

/* Trains for two iterations and writes a snapshot. */
static void train(const char *type, int seed, char path[4096])
{
    aril_caffe_solver *s = open_solver(type, seed, NULL);
    CHECK_MSG(s, "%s", aril_error());
    CHECK_INT(aril_caffe_solver_step(s, 2), ARIL_OK);
    CHECK_MSG(aril_caffe_solver_snapshot(s, path, 4096) == ARIL_OK, "%s", aril_error());
    aril_caffe_solver_free(s);
}

static void is_refused(const char *type, const char *path, const char *words)
{
    aril_caffe_solver *s = open_solver(type, 1, path);
    CHECK_MSG(!s, "accepted, want: %s", words);
    CHECK_MSG(strstr(aril_error(), words), "%s\n  want: %s", aril_error(), words);
    aril_clear_error();
}

TEST(files_of_two_trainings_are_an_error)
{
    static const char *const names[] = { "run_iter_2.solverstate", "run_iter_2.caffemodel",
                                         "run_iter_2.solverstate.aril" };
    char path[4096], old[4096];
    train("SGD", 1, path);
    snprintf(old, sizeof old, "%s", temp_path("old"));
    CHECK_INT(copy_file(temp_path(names[0]), old), ARIL_OK);
    train("SGD", 2, path);
    aril_caffe_solver *s = open_solver("SGD", 1, path);
    CHECK_MSG(s, "%s", aril_error());
    aril_caffe_solver_free(s);
    /* The training was killed before its solverstate replaced the old one. */
    CHECK_INT(copy_file(old, temp_path(names[0])), ARIL_OK);
    is_refused("SGD", path, "files of two snapshots are mixed");
    /* Without the file of Aril, as with snapshots of Caffe, nothing is known about it. */
    CHECK_INT(remove(temp_path(names[2])), 0);
    s = open_solver("SGD", 1, path);
    CHECK_MSG(s, "%s", aril_error());
    aril_caffe_solver_free(s);
}

/* The disk is full when the second of the files is written: all are as they were. */
TEST(a_snapshot_that_cannot_be_written_replaces_none_of_the_files)
{
    char path[4096];
    train("SGD", 1, path);
    aril_caffe_solver *s = open_solver("SGD", 2, NULL);
    CHECK_MSG(s, "%s", aril_error());
    CHECK_INT(aril_caffe_solver_step(s, 2), ARIL_OK);
    struct rlimit before, small;
    CHECK_INT(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 8192; /* the .aril has 2000 losses */
    signal(SIGXFSZ, SIG_IGN);
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &small), 0);
    aril_status status = aril_caffe_solver_snapshot(s, NULL, 0);
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    CHECK_INT(status, ARIL_ERR_IO);
    CHECK_MSG(strstr(aril_error(), ".aril") &&
                  strstr(aril_error(), "the file that was there is as it was"),
              "%s", aril_error());
    aril_clear_error();
    CHECK_INT(temp_count(), 3);
    aril_caffe_solver *a = open_solver("SGD", 1, NULL);
    CHECK_MSG(a, "%s", aril_error());
    CHECK_INT(aril_caffe_solver_step(a, 2), ARIL_OK);
    aril_caffe_solver *b = open_solver("SGD", 3, path);
    CHECK_MSG(b, "%s", aril_error());
    CHECK(same_bits(aril_caffe_solver_net(a), aril_caffe_solver_net(b)));
    aril_caffe_solver_free(a);
    aril_caffe_solver_free(b);
    aril_caffe_solver_free(s);
}

TEST(a_folder_with_the_name_of_a_snapshot_is_noticed_at_the_start)
{
    static const char *const names[] = { "run_iter_40.caffemodel", "run_iter_40.solverstate",
                                         "run_iter_40.solverstate.aril" };
    for (int i = 0; i < 3; i++) {
        CHECK_INT(aril_folder_create(temp_path(names[i])), ARIL_OK);
        aril_caffe_solver *s = open_solver("SGD", 1, NULL);
        CHECK_MSG(s, "%s", aril_error());
        CHECK_INT(aril_caffe_solver_solve(s), ARIL_ERR_IO);
        CHECK_MSG(strstr(aril_error(), names[i]) && strstr(aril_error(), "is a folder"), "%s",
                  aril_error());
        aril_clear_error();
        CHECK_INT(aril_caffe_solver_iter(s), 0);
        aril_caffe_solver_free(s);
        CHECK_INT(rmdir(temp_path(names[i])), 0);
    }
}

/* ---- the file of Aril ---- */

/* Replaces numbers of the file. */
static void set_numbers(const char *path, const char *name, int64_t n, const int64_t *values)
{
    ARIL_SCOPE;
    aril_safetensors *f = aril_safetensors_open(path);
    CHECK_MSG(f, "%s", aril_error());
    aril_named all = *aril_safetensors_all(f);
    aril_tensor *at[32];
    CHECK(all.n <= 32);
    for (int i = 0; i < all.n; i++)
        at[i] = strcmp(all.name[i], name) == 0
                    ? aril_from(values, ARIL_SHAPE(n), ARIL_I64, aril_cpu())
                    : all.at[i];
    all.at = at;
    CHECK_MSG(aril_safetensors_save(path, &all, NULL) == ARIL_OK, "%s", aril_error());
    aril_safetensors_close(f);
}

TEST(numbers_of_losses_have_bounds)
{
    static const int64_t wrong[] = { INT64_MAX, INT64_MIN, -1, INT64_C(1) << 60 };
    char path[4096];
    train("SGD", 1, path);
    const char *extension = temp_path("run_iter_2.solverstate.aril");
    for (int i = 0; i < 4; i++) {
        set_numbers(extension, "n_losses", 1, &wrong[i]);
        is_refused("SGD", path, "does not fit this solver");
    }
    set_numbers(extension, "n_losses", 1, (const int64_t[]){ 4001 });
    aril_caffe_solver *s = open_solver("SGD", 1, path);
    CHECK_MSG(s, "%s", aril_error());
    CHECK_INT(aril_caffe_solver_step(s, 3), ARIL_OK);
    aril_caffe_solver_free(s);
}

static bool write_images(const char *folder)
{
    ARIL_SCOPE;
    aril_dataset *d = aril_dataset_images(aril_zeros(ARIL_SHAPE(6, 1, 2, 2), ARIL_U8, aril_cpu()),
                                          aril_zeros(ARIL_SHAPE(6), ARIL_I64, aril_cpu()));
    int64_t n = d ? aril_caffe_import(d, folder, (aril_caffe_import_opts){ 0 }) : -1;
    aril_dataset_release(d);
    return n == 6;
}

TEST(positions_beyond_the_data_name_file_and_layer)
{
    char text[12288], path[4096], db[4096], extension[4200];
    snprintf(db, sizeof db, "%s", temp_path("db"));
    CHECK_MSG(write_images(db), "%s", aril_error());
    snprintf(text, sizeof text,
             "solver_mode: CPU net_param { layer { name: 'images' type: 'Data' top: 'x' top: 't' "
             "data_param { source: '%s' backend: LMDB batch_size: 2 } } layer { name: 'fc' type: "
             "'InnerProduct' bottom: 'x' top: 'y' inner_product_param { num_output: 2 } } layer { "
             "name: 'l' type: 'SoftmaxWithLoss' bottom: 'y' bottom: 't' } } base_lr: 0.1 "
             "lr_policy: 'fixed' max_iter: 4 snapshot_prefix: '%s'",
             db, temp_path("run"));
    aril_caffe_solver *s =
        aril_caffe_solver_parse(text, strlen(text), NULL, (aril_caffe_solver_opts){ 0 });
    CHECK_MSG(s, "%s", aril_error());
    CHECK_INT(aril_caffe_solver_step(s, 2), ARIL_OK);
    CHECK_INT(aril_caffe_solver_snapshot(s, path, sizeof path), ARIL_OK);
    snprintf(extension, sizeof extension, "%s.aril", path);
    set_numbers(extension, "train", 3, (const int64_t[]){ 0, 0, 600000 });
    CHECK(aril_caffe_solver_restore(s, path) < 0);
    CHECK_MSG(strstr(aril_error(), extension) && strstr(aril_error(), "layer 'images'") &&
                  strstr(aril_error(), "batch 600000"),
              "%s", aril_error());
    aril_clear_error();
    CHECK_MSG(aril_caffe_solver_step(s, 2) == ARIL_OK, "%s", aril_error());
    aril_caffe_solver_free(s);
}

TEST(a_state_of_another_type_is_an_error)
{
    static const struct {
        const char *from, *to;
    } pairs[] = {
        { "SGD", "AdaGrad" }, { "SGD", "RMSProp" }, { "RMSProp", "SGD" }, { "Adam", "AdaDelta" }
    };
    for (int i = 0; i < 4; i++) {
        char path[4096], words[80];
        train(pairs[i].from, 1, path);
        snprintf(words, sizeof words, "is of a solver of type %s, not %s", pairs[i].from,
                 pairs[i].to);
        is_refused(pairs[i].to, path, words);
        CHECK_INT(remove(temp_path("run_iter_2.solverstate.aril")), 0);
        if (i != 2) is_refused(pairs[i].to, path, "squares");
    }
}

TEST(a_restore_that_fails_changes_nothing)
{
    char path[4096];
    train("SGD", 2, path);
    CHECK_INT(copy_file(temp_path("run_iter_2.solverstate"), temp_path("run_iter_9.caffemodel")),
              ARIL_OK);
    aril_caffe_solver *whole = open_solver("SGD", 1, NULL);
    CHECK_MSG(whole, "%s", aril_error());
    CHECK_INT(aril_caffe_solver_step(whole, 5), ARIL_OK);
    aril_caffe_solver *s = open_solver("SGD", 1, NULL);
    CHECK_MSG(s, "%s", aril_error());
    CHECK_INT(aril_caffe_solver_step(s, 3), ARIL_OK);
    CHECK_INT(aril__file_replace(temp_path("run_iter_2.caffemodel"), "x", 1), ARIL_OK);
    CHECK(aril_caffe_solver_restore(s, path) < 0);
    aril_clear_error();
    CHECK_INT(remove(temp_path("run_iter_2.solverstate.aril")), 0);
    CHECK(aril_caffe_solver_restore(s, path) < 0);
    aril_clear_error();
    CHECK_INT(aril_caffe_solver_iter(s), 3);
    CHECK_INT(aril_caffe_solver_step(s, 2), ARIL_OK);
    CHECK(same_bits(aril_caffe_solver_net(whole), aril_caffe_solver_net(s)));
    aril_caffe_solver_free(whole);
    aril_caffe_solver_free(s);
}

/* ---- what a solver says about itself ---- */

static aril_caffe_solver *open_with(const char *fields)
{
    char text[8192];
    snprintf(text, sizeof text,
             "solver_mode: CPU net_param { %s } base_lr: 0.1 max_iter: 9 snapshot_after_train: "
             "false\n%s",
             net, fields);
    const char *path = temp_path("s.prototxt");
    if (aril__file_replace(path, text, strlen(text)) != ARIL_OK) return NULL;
    return aril_caffe_solver_open(path, (aril_caffe_solver_opts){ 0 });
}

/* 1 - 0.5 t is 0 at iteration 2, and negative after it. */
TEST(a_learning_rate_that_is_none_is_an_error)
{
    static const char *const powers[] = { "0.75", "1" };
    for (int i = 0; i < 2; i++) {
        char fields[80];
        snprintf(fields, sizeof fields, "lr_policy: 'inv' gamma: -0.5 power: %s", powers[i]);
        aril_caffe_solver *s = open_with(fields);
        CHECK_MSG(s, "%s", aril_error());
        CHECK_INT(aril_caffe_solver_solve(s), ARIL_ERR_ARG);
        CHECK_MSG(strstr(aril_error(), "the learning rate is inf at iteration 2") &&
                      strstr(aril_error(), "lr_policy 'inv' with gamma -0.5"),
                  "%s", aril_error());
        aril_clear_error();
        CHECK_INT(aril_caffe_solver_iter(s), 2);
        aril_caffe_solver_free(s);
    }
}

TEST(weights_that_a_solver_names_are_on_a_line)
{
    CHECK(!open_with("lr_policy: 'fixed'\nweights: 'missing.caffemodel'"));
    CHECK_MSG(strstr(aril_error(), "s.prototxt: solver at line ") &&
                  strstr(aril_error(), ": weights: ") && strstr(aril_error(), "missing.caffemodel"),
              "%s", aril_error());
    aril_clear_error();
}

TEST(a_solver_has_so_many_test_nets_at_most)
{
    enum { TESTS = 301 };
    char fields[TESTS * 16 + 64] = "lr_policy: 'fixed' test_interval: 1 ";
    for (int i = 0; i < TESTS; i++) strcat(fields, "test_iter: 1 ");
    CHECK(!open_with(fields));
    CHECK_MSG(strstr(aril_error(), "301 test_iter: a solver has at most 256 test nets"), "%s",
              aril_error());
    aril_clear_error();
}

/* The optimizer would go on with the tensors that it has. */
TEST(a_net_that_is_trained_takes_no_blobs_of_another)
{
    aril_caffe_solver *a = open_solver("SGD", 1, NULL), *b = open_solver("SGD", 2, NULL);
    CHECK_MSG(a && b, "%s", aril_error());
    aril_module *net_a = aril_module_keep(aril_caffe_solver_net(a)),
                *net_b = aril_caffe_solver_net(b);
    CHECK_INT(aril_caffe_share(net_a, net_b), ARIL_ERR_STATE);
    CHECK_MSG(strstr(aril_error(), "is trained by a solver"), "%s", aril_error());
    aril_clear_error();
    CHECK(!same_bits(net_a, net_b));
    aril_caffe_solver_free(a);
    CHECK_MSG(aril_caffe_share(net_a, net_b) == ARIL_OK, "%s", aril_error());
    CHECK(same_bits(net_a, net_b));
    aril_module_release(net_a);
    aril_caffe_solver_free(b);
}
