/* Caffe's solvers: what debug_info prints, and the diffs of snapshot_diff. */
#include "aril/aril.h"
#include "formats/hdf5.h"
#include "formats/schemas.h"
#include "support/temp.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rows of ones: w begins with zeros, and each step adds (2 - 3 w) / 10 to it. */
static const char ones[] =
    "net_param { layer { name: 'd' type: 'DummyData' top: 'x' top: 'y' dummy_data_param { "
    "shape { dim: 2 dim: 3 } shape { dim: 2 dim: 1 } data_filler { value: 1 } "
    "data_filler { value: 2 } } } "
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'x' top: 'ip' param { name: '%s' } "
    "inner_product_param { num_output: 1 bias_term: false } } "
    "layer { name: 'loss' type: 'EuclideanLoss' bottom: 'ip' bottom: 'y' top: 'loss' } } "
    "base_lr: 0.1 lr_policy: 'fixed' max_iter: 10 solver_mode: CPU test_iter: 1 test_interval: 100 "
    "test_initialization: false snapshot_prefix: '%s' %s";

static char printed[1 << 16];
static FILE *logs[4];
static int n_logs;

static void close_logs(void)
{
    while (n_logs > 0) fclose(logs[--n_logs]);
}

/* Runs n steps, and returns what was printed, without the other lines. */
static aril_caffe_solver *train(const char *text, int n)
{
    memset(printed, 0, sizeof printed);
    FILE *log = logs[n_logs++] = fmemopen(printed, sizeof printed - 1, "w");
    aril_caffe_solver *s =
        aril_caffe_solver_parse(text, strlen(text), NULL,
                                (aril_caffe_solver_opts){ .workers = -1, .log = log });
    if (!s || aril_caffe_solver_step(s, n) != ARIL_OK)
        test_fail(__FILE__, __LINE__, "%s", aril_error());
    fflush(log);
    return s;
}

static char *solver(const char *name, const char *rest)
{
    static char text[4096];
    snprintf(text, sizeof text, ones, name, temp_path("run"), rest);
    return text;
}

TEST(debug_info_prints_means_as_caffe)
{
    aril_caffe_solver *s = train(solver("", "debug_info: true display: 1"), 1);
    static const char want[] =
        "    [Forward] Layer d, top blob x data: 1\n"
        "    [Forward] Layer d, top blob y data: 2\n"
        "    [Forward] Layer ip, top blob ip data: 0\n"
        "    [Forward] Layer ip, param blob 0 data: 0\n"
        "    [Forward] Layer loss, top blob loss data: 2\n"
        "    [Backward] Layer loss, bottom blob ip diff: 1\n"
        "    [Backward] Layer ip, param blob 0 diff: 2\n"
        "    [Backward] All net params (data, diff): L1 norm = (0, 6); L2 norm = (0, 3.4641)\n"
        "    [Update] Layer ip, param 0 data: 0; diff: 0.2\n"
        "Iteration 0, loss = 2\n";
    const char *first = strstr(printed, "    [Forward]"); /* after the layers' shapes */
    CHECK_MSG(first && strncmp(first, want, strlen(want)) == 0, "%s", printed);
    aril_caffe_solver_free(s);
    /* iter_size does not change the gradients of a pass, which add up; names are used. */
    s = train(solver("w", "debug_info: true display: 2 iter_size: 2"), 2);
    CHECK_MSG(strstr(printed, "[Forward] Layer ip, param blob w data: 0\n"), "%s", printed);
    CHECK(strstr(printed, "[Backward] Layer loss, bottom blob ip diff: 1\n"));
    CHECK(strstr(printed, "[Backward] Layer ip, param blob w diff: 2\n"));
    CHECK(strstr(printed, "[Backward] Layer ip, param blob w diff: 4\n"));
    CHECK(strstr(printed, "[Update] Layer ip, param w data: 0; diff: 0.2\n"));
    /* Only iterations that are displayed are debugged. */
    const char *last = strstr(printed, "Iteration 0, lr");
    CHECK_MSG(last && !strstr(last, "[Forward]"), "%s", printed);
    aril_caffe_solver_free(s);
    s = train(solver("", "debug_info: true"), 1);
    CHECK_MSG(!strstr(printed, "[Forward]"), "%s", printed);
    double score[1];
    CHECK_INT(aril_caffe_solver_test(s, 0, score), ARIL_OK);
    CHECK_MSG(strstr(printed, "[Forward] Layer loss, top blob loss data: 0.98\n"), "%s", printed);
    CHECK(!strstr(printed, "[Backward]"));
    aril_caffe_solver_free(s);
    close_logs();
}

/* A blob that two layers read, in place and not, and a shared parameter. */
TEST(debug_info_of_shared_blobs)
{
    static const char text[] =
        "net_param { layer { name: 'd' type: 'DummyData' top: 'x' top: 'y' dummy_data_param { "
        "shape { dim: 2 dim: 2 } shape { dim: 2 dim: 2 } data_filler { value: 1 } "
        "data_filler { value: 2 } } } "
        "layer { name: 'a' type: 'InnerProduct' bottom: 'x' top: 'a' param { name: 'w' } "
        "inner_product_param { num_output: 2 bias_term: false weight_filler { value: 0.5 } } } "
        "layer { name: 'r' type: 'ReLU' bottom: 'a' top: 'a' } "
        "layer { name: 'b' type: 'InnerProduct' bottom: 'a' top: 'b' param { name: 'w' } "
        "inner_product_param { num_output: 2 bias_term: false weight_filler { value: 0.5 } } } "
        "layer { name: 'sum' type: 'Eltwise' bottom: 'a' bottom: 'b' top: 'sum' } "
        "layer { name: 'loss' type: 'EuclideanLoss' bottom: 'sum' bottom: 'y' top: 'loss' } } "
        "base_lr: 0.1 lr_policy: 'fixed' max_iter: 10 solver_mode: CPU ";
    char whole[4096];
    snprintf(whole, sizeof whole, "%s weight_decay: 0.1 momentum: 0.5 debug_info: true display: 1",
             text);
    aril_caffe_solver *s = train(whole, 3);
    /* sum = 2, as y: then all gradients are 0 but those of the weight decay. */
    CHECK_MSG(strstr(printed, "[Forward] Layer sum, top blob sum data: 2\n"), "%s", printed);
    CHECK(strstr(printed, "[Backward] Layer sum, bottom blob a diff: 0\n"
                          "    [Backward] Layer sum, bottom blob b diff: 0\n"
                          "    [Backward] Layer b, bottom blob a diff: 0\n"
                          "    [Backward] Layer b, param blob w diff: 0\n"
                          "    [Backward] Layer r, bottom blob a diff: 0\n"
                          "    [Backward] Layer a, param blob w diff: 0\n"));
    CHECK_MSG(strstr(printed,
                     "[Update] Layer a, param w data: 0.5; diff: 0.005\n"
                     "    [Update] Layer b, param blob w (owned by layer a, param w) diff: "
                     "0.005\n"),
              "%s", printed);
    /* The numbers are those of a training without it. */
    snprintf(whole, sizeof whole, "%s weight_decay: 0.1 momentum: 0.5", text);
    aril_caffe_solver *plain = train(whole, 3);
    ARIL_SCOPE;
    CHECK(aril_equal(aril_detach(aril_caffe_param_at(aril_caffe_solver_net(s), 0).tensor),
                     aril_detach(aril_caffe_param_at(aril_caffe_solver_net(plain), 0).tensor)));
    aril_caffe_solver_free(s);
    aril_caffe_solver_free(plain);
    close_logs();
}

/* The diffs of blob 0 of layer ip in a snapshot. */
static void check_diffs(const char *path, bool hdf5, double want)
{
    const float *at = NULL;
    ARIL_SCOPE;
    if (hdf5) {
        aril_tensor *t = aril_hdf5_read(path, "diff/ip/0");
        CHECK_MSG(aril_tensor_status(t) == ARIL_OK, "%s", aril_error());
        at = aril_data(t);
        for (int i = 0; i < 3; i++) CHECK_NEAR(at[i], want, 1e-6);
        aril_weights *w = aril_weights_open(path, (aril_weights_opts){ 0 });
        CHECK_MSG(w, "%s", aril_error());
        CHECK_INT(aril_weights_count(w), 1);
        aril_weights_close(w);
        return;
    }
    aril__message *net = aril__message_load(&aril__caffe_NetParameter, path);
    CHECK_MSG(net, "%s", aril_error());
    aril__proto_array diff =
        aril__message_array(aril__message_sub_at(aril__message_sub_at(net, "layer", 1), "blobs", 0),
                            "diff");
    CHECK_INT(diff.n, 3);
    float value[3];
    memcpy(value, diff.at, sizeof value);
    for (int i = 0; i < 3; i++) CHECK_NEAR(value[i], want, 1e-6);
    aril__message_free(net);
}

TEST(snapshot_diff_stores_the_last_update)
{
    for (int hdf5 = 0; hdf5 < 2; hdf5++) {
        char text[4096], path[4096];
        snprintf(text, sizeof text, "%s",
                 solver("", hdf5 ? "snapshot_diff: true snapshot_format: HDF5"
                                 : "snapshot_diff: true"));
        aril_caffe_solver *s = train(text, 0);
        /* Caffe subtracts a diff: w grows by 0.2, then 0.14. */
        static const double want[] = { 0, -0.2, -0.14 };
        for (int i = 0; i < 3; i++) {
            if (i > 0) CHECK_INT(aril_caffe_solver_step(s, 1), ARIL_OK);
            CHECK_MSG(aril_caffe_solver_snapshot(s, NULL, 0) == ARIL_OK, "%s", aril_error());
            snprintf(path, sizeof path, "%s_iter_%d.caffemodel%s", temp_path("run"), i,
                     hdf5 ? ".h5" : "");
            check_diffs(path, hdf5, want[i]);
        }
        CHECK_MSG(aril_caffe_weights_load(aril_caffe_solver_net(s), path) == ARIL_OK, "%s",
                  aril_error());
        aril_caffe_solver_free(s);
        close_logs();
    }
}
