/* Caffe's solvers: what a snapshot needs to be resumed with the same bits. */
#include "aril/aril.h"
#include "formats/atomic_file.h"
#include "formats/bytes.h"
#include "support/temp.h"
#include "support/test.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Two layers have the same name. */
static const char net[] =
    "layer { name: 'x' type: 'DummyData' top: 'x' top: 't' dummy_data_param { "
    "shape { dim: 4 dim: 3 } shape { dim: 4 dim: 3 } data_filler { type: 'gaussian' } "
    "data_filler { type: 'gaussian' } } } "
    "layer { name: 'fc' type: 'InnerProduct' bottom: 'x' top: 'a' inner_product_param { "
    "num_output: 3 weight_filler { type: 'xavier' } } } "
    "layer { name: 'fc' type: 'InnerProduct' bottom: 'a' top: 'y' inner_product_param { "
    "num_output: 3 weight_filler { type: 'xavier' } } } "
    "layer { name: 'loss' type: 'EuclideanLoss' bottom: 'y' bottom: 't' top: 'loss' }";

static aril_caffe_solver *open_log(const char *format, const char *prefix, const char *snapshot,
                                   FILE *log)
{
    char text[4096];
    snprintf(text, sizeof text,
             "solver_mode: CPU net_param { %s } base_lr: 0.01 lr_policy: 'fixed' momentum: 0.9 "
             "max_iter: 40 random_seed: 1 snapshot_format: %s snapshot_prefix: '%s'",
             net, format, temp_path(prefix));
    return aril_caffe_solver_parse(text, strlen(text), NULL,
                                   (aril_caffe_solver_opts){ .snapshot = snapshot, .log = log });
}

static aril_caffe_solver *open_solver(const char *format, const char *prefix, const char *snapshot)
{
    return open_log(format, prefix, snapshot, NULL);
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

static void resume_in_the_middle(const char *format)
{
    char path[4096];
    aril_caffe_solver *whole = open_solver(format, "whole", NULL);
    CHECK_MSG(whole, "%s", aril_error());
    CHECK_INT(aril_caffe_solver_step(whole, 10), ARIL_OK);
    aril_status status = aril_caffe_solver_snapshot(whole, path, sizeof path);
    if (status < 0 && strstr(aril_error(), "without HDF5")) {
        aril_clear_error();
        aril_caffe_solver_free(whole);
        SKIP("no HDF5");
    }
    CHECK_MSG(status == ARIL_OK, "%s", aril_error());
    CHECK_INT(aril_caffe_solver_step(whole, 10), ARIL_OK);
    aril_caffe_solver *resumed = open_solver(format, "resumed", path);
    CHECK_MSG(resumed, "%s", aril_error());
    CHECK_INT(aril_caffe_solver_step(resumed, 10), ARIL_OK);
    CHECK(same_bits(aril_caffe_solver_net(whole), aril_caffe_solver_net(resumed)));
    aril_caffe_solver_free(whole);
    aril_caffe_solver_free(resumed);
}

TEST(layers_of_one_name_resume_with_the_same_bits)
{
    resume_in_the_middle("BINARYPROTO");
    resume_in_the_middle("HDF5");
}

/* ---- where snapshots go ---- */

/* Writes a solver file with these further fields. */
static const char *write_solver(const char *name, const char *fields)
{
    char text[4096];
    snprintf(text, sizeof text, "net_param { %s } base_lr: 0.01 lr_policy: 'fixed' max_iter: 2 %s",
             net, fields);
    const char *path = temp_path(name);
    return aril__file_replace(path, text, strlen(text)) == ARIL_OK ? path : "";
}

/* Trains, and returns whether a snapshot of that name was written. */
static bool writes(const char *solver, const char *name)
{
    aril_caffe_solver *s = aril_caffe_solver_open(solver, (aril_caffe_solver_opts){ 0 });
    bool good = s && aril_caffe_solver_solve(s) == ARIL_OK && aril_ok();
    if (!good) test_fail(__FILE__, __LINE__, "%s", aril_error());
    aril_caffe_solver_free(s);
    aril_clear_error();
    return access(temp_path(name), F_OK) == 0;
}

TEST(without_a_prefix_snapshots_are_named_as_the_solver)
{
    CHECK(writes(write_solver("my.solver.prototxt", ""), "my.solver_iter_2.solverstate"));
    CHECK(writes(write_solver("plain", ""), "plain_iter_2.caffemodel"));
}

TEST(a_prefix_that_is_a_folder_gets_the_name_of_the_solver)
{
    char fields[4200];
    static const char *const ends[] = { "", "/" };
    CHECK_INT(aril_folder_create(temp_path("snaps")), ARIL_OK);
    for (int i = 0; i < 2; i++) {
        snprintf(fields, sizeof fields, "snapshot_prefix: '%s%s'", temp_path("snaps"), ends[i]);
        CHECK(writes(write_solver(i ? "two.prototxt" : "one.prototxt", fields),
                     i ? "snaps/two_iter_2.solverstate" : "snaps/one_iter_2.solverstate"));
    }
    snprintf(fields, sizeof fields, "snapshot_prefix: '%s'", temp_path("snaps/run"));
    CHECK(writes(write_solver("one.prototxt", fields), "snaps/run_iter_2.solverstate"));
}

TEST(a_prefix_that_cannot_be_written_is_noticed_at_the_start)
{
    char fields[4200];
    CHECK_INT(aril__file_replace(temp_path("file"), "x", 1), ARIL_OK);
    snprintf(fields, sizeof fields, "snapshot_prefix: '%s'", temp_path("file/run"));
    const char *path = write_solver("s.prototxt", fields);
    aril_caffe_solver *s = aril_caffe_solver_open(path, (aril_caffe_solver_opts){ 0 });
    CHECK_MSG(s, "%s", aril_error());
    CHECK(aril_caffe_solver_solve(s) < 0);
    CHECK_MSG(strstr(aril_error(), "snapshot_prefix"), "%s", aril_error());
    aril_clear_error();
    CHECK_INT(aril_caffe_solver_iter(s), 0);
    aril_caffe_solver_free(s);
    /* Without snapshots it does not matter. */
    snprintf(fields, sizeof fields, "snapshot_prefix: '%s' snapshot_after_train: false",
             temp_path("file/run"));
    CHECK(!writes(write_solver("s.prototxt", fields), "file/run_iter_2.solverstate"));
}

TEST(a_path_that_has_no_room_is_an_error)
{
    char path[8] = "before", whole[4096];
    aril_caffe_solver *s = open_solver("BINARYPROTO", "run", NULL);
    CHECK_MSG(s, "%s", aril_error());
    CHECK_INT(aril_caffe_solver_snapshot(s, path, sizeof path), ARIL_ERR_ARG);
    CHECK_MSG(strstr(aril_error(), "the buffer 8"), "%s", aril_error());
    CHECK_STR(path, "before");
    aril_clear_error();
    CHECK(access(temp_path("run_iter_0.solverstate"), F_OK) != 0);
    CHECK_INT(aril_caffe_solver_snapshot(s, whole, strlen(temp_path("run")) + 19), ARIL_ERR_ARG);
    aril_clear_error();
    CHECK_INT(aril_caffe_solver_snapshot(s, whole, strlen(temp_path("run")) + 20), ARIL_OK);
    CHECK(access(whole, F_OK) == 0);
    CHECK_INT(aril_caffe_solver_snapshot(s, NULL, 0), ARIL_OK);
    aril_caffe_solver_free(s);
}

TEST(tests_need_a_score)
{
    double score[4];
    aril_caffe_solver *s = open_solver("BINARYPROTO", "run", NULL);
    CHECK_MSG(s, "%s", aril_error());
    CHECK(aril_caffe_solver_test(s, 0, NULL) < 0);
    CHECK_MSG(strstr(aril_error(), "the score is NULL"), "%s", aril_error());
    aril_clear_error();
    CHECK(aril_caffe_solver_test(s, 0, score) < 0);
    CHECK_MSG(strstr(aril_error(), "there is no test net 0; there are 0"), "%s", aril_error());
    aril_clear_error();
    aril_caffe_solver_free(s);
}

TEST(a_device_beyond_all_numbers_is_not_there)
{
    static const char *const ids[] = { "32767", "-1", "2147483647" };
    for (int i = 0; i < 3; i++) {
        char fields[64];
        snprintf(fields, sizeof fields, "solver_mode: GPU device_id: %s", ids[i]);
        CHECK(writes(write_solver("gpu.prototxt", fields), "gpu_iter_2.solverstate"));
    }
}

/* ---- weights that belong to a solverstate ---- */

static void copy_file(const char *from, const char *to)
{
    aril__bytes b = { 0 };
    CHECK_INT(aril__read_file("file", from, 0, &b), ARIL_OK);
    CHECK_INT(aril__file_replace(to, b.at, b.n), ARIL_OK);
    aril__bytes_free(&b);
}

TEST(weights_of_another_snapshot_are_an_error)
{
    char state[4096], weights[4096], other[4096], extension[4200];
    snprintf(weights, sizeof weights, "%s", temp_path("run_iter_2.caffemodel"));
    snprintf(other, sizeof other, "%s", temp_path("run_iter_4.caffemodel"));
    aril_caffe_solver *s = open_solver("BINARYPROTO", "run", NULL);
    CHECK_MSG(s, "%s", aril_error());
    CHECK_INT(aril_caffe_solver_step(s, 2), ARIL_OK);
    CHECK_INT(aril_caffe_solver_snapshot(s, state, sizeof state), ARIL_OK);
    CHECK_INT(aril_caffe_solver_step(s, 2), ARIL_OK);
    CHECK_INT(aril_caffe_solver_snapshot(s, NULL, 0), ARIL_OK);
    aril_caffe_solver_free(s);
    s = open_solver("BINARYPROTO", "run", state);
    CHECK_MSG(s, "%s", aril_error());
    aril_caffe_solver_free(s);
    copy_file(other, weights);
    CHECK(!open_solver("BINARYPROTO", "run", state));
    CHECK_MSG(strstr(aril_error(), "is not the file that was written with"), "%s", aril_error());
    aril_clear_error();
    /* Asked for by name they are used, and so where nothing is known about them. */
    char text[4096];
    snprintf(text, sizeof text,
             "solver_mode: CPU net_param { %s } base_lr: 0.01 lr_policy: 'fixed' momentum: 0.9 "
             "max_iter: 40",
             net);
    s = aril_caffe_solver_parse(text, strlen(text), NULL,
                                (aril_caffe_solver_opts){ .snapshot = state, .weights = weights });
    CHECK_MSG(s, "%s", aril_error());
    CHECK_INT(aril_caffe_solver_iter(s), 2);
    aril_caffe_solver_free(s);
    snprintf(extension, sizeof extension, "%s.aril", state);
    CHECK_INT(remove(extension), 0);
    s = open_solver("BINARYPROTO", "run", state);
    CHECK_MSG(s, "%s", aril_error());
    aril_caffe_solver_free(s);
}

/* ---- settings ---- */

TEST(settings_are_numbers)
{
    static const char *const fields[] = { "clip_gradients", "warmup_start_lr", "gamma",
                                          "power",          "base_lr",         "momentum",
                                          "weight_decay" };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        char text[4096], want[64];
        snprintf(text, sizeof text, "net_param { %s } %s lr_policy: 'fixed' max_iter: 2 %s: nan",
                 net, i == 4 ? "" : "base_lr: 0.1", fields[i]);
        snprintf(want, sizeof want, ": %s must be ", fields[i]);
        CHECK(!aril_caffe_solver_parse(text, strlen(text), NULL, (aril_caffe_solver_opts){ 0 }));
        CHECK_MSG(strstr(aril_error(), want), "%s", aril_error());
        aril_clear_error();
    }
}

TEST(a_list_of_weights_has_no_empty_names)
{
    char lists[4][8200], weights[4096];
    aril_caffe_solver *s = open_solver("BINARYPROTO", "w", NULL);
    CHECK_MSG(s, "%s", aril_error());
    snprintf(weights, sizeof weights, "%s", temp_path("w.caffemodel"));
    CHECK_INT(aril_caffe_weights_save(aril_caffe_solver_net(s), weights), ARIL_OK);
    aril_caffe_solver_free(s);
    snprintf(lists[0], sizeof *lists, "%s,%s", weights, weights);
    snprintf(lists[1], sizeof *lists, ",,");
    snprintf(lists[2], sizeof *lists, "%s,", weights);
    snprintf(lists[3], sizeof *lists, "%c", 0);
    for (int i = 0; i < 4; i++) {
        char text[4096];
        snprintf(text, sizeof text, "net_param { %s } base_lr: 0.1 lr_policy: 'fixed' max_iter: 2",
                 net);
        s = aril_caffe_solver_parse(text, strlen(text), NULL,
                                    (aril_caffe_solver_opts){ .weights = lists[i] });
        CHECK_MSG((s != NULL) == (i == 0), "%d: %s", i, aril_error());
        if (i) CHECK_MSG(strstr(aril_error(), "has an empty name"), "%s", aril_error());
        aril_clear_error();
        aril_caffe_solver_free(s);
    }
}
