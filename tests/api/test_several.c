/* Functions with several results that fail: each result is a separate poisoned tensor, so that one
 * may be dropped while the others are kept. */
#include "aril/aril.h"
#include "support/test.h"

/* Drops the first of n results, creates other tensors in its place, and checks the others. */
static void check_apart(const char *what, int n, aril_tensor **t)
{
    for (int i = 0; i < n; i++) {
        CHECK_MSG(aril_tensor_status(t[i]) < 0, "%s: result %d is not refused", what, i);
        for (int k = 0; k < i; k++)
            CHECK_MSG(t[i] != t[k], "%s: results %d and %d are one tensor", what, k, i);
    }
    aril_drop(t[0]);
    for (int i = 0; i < 8; i++) aril_full(ARIL_SHAPE(2), i, ARIL_F32, aril_cpu());
    for (int i = 1; i < n; i++)
        CHECK_MSG(aril_tensor_status(t[i]) < 0, "%s: result %d became another tensor", what, i);
    aril_clear_error();
}

#define TWO(call)                                         \
    do {                                                  \
        aril_tensor *b = NULL, *a = (call);               \
        check_apart(#call, 2, (aril_tensor *[]){ a, b }); \
        if (test_failed()) return;                        \
    } while (0)
#define THREE(call)                                          \
    do {                                                     \
        aril_tensor *b = NULL, *c = NULL, *a = (call);       \
        check_apart(#call, 3, (aril_tensor *[]){ a, b, c }); \
        if (test_failed()) return;                           \
    } while (0)

TEST(argsort_of_an_invalid_axis)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_ones(ARIL_SHAPE(3), ARIL_F32, aril_cpu());
    aril_tensor *y = aril_argsort(x, 5, (aril_sort_opts){ 0 });
    for (int i = 0; i < 8; i++) aril_full(ARIL_SHAPE(2), i, ARIL_F32, aril_cpu());
    CHECK(aril_tensor_status(y) < 0);
    y = aril_argsort(NULL, 0, (aril_sort_opts){ 0 });
    for (int i = 0; i < 8; i++) aril_full(ARIL_SHAPE(2), i, ARIL_F32, aril_cpu());
    CHECK(aril_tensor_status(y) < 0);
    aril_clear_error();
}

TEST(sorting_and_reductions)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_ones(ARIL_SHAPE(2, 3), ARIL_F32, aril_cpu());
    aril_tensor *bad = aril_reshape(x, ARIL_SHAPE(7));
    TWO(aril_sort(x, 5, (aril_sort_opts){ 0 }, &b));
    TWO(aril_sort(bad, 0, (aril_sort_opts){ 0 }, &b));
    TWO(aril_topk(x, 9, 0, (aril_topk_opts){ 0 }, &b));
    TWO(aril_kthvalue(x, 1, ARIL_AXES(0, 1), &b));
    TWO(aril_median(x, ARIL_AXES(4), &b));
    TWO(aril_mode(NULL, ARIL_AXES(0), &b));
    TWO(aril_max(x, ARIL_AXES(7), &b));
    TWO(aril_min(x, ARIL_AXES(0, 1), &b));
    TWO(aril_var_mean(x, ARIL_AXES(3), 1, &b));
    TWO(aril_cummax(x, 4, &b));
    TWO(aril_cummin(bad, 0, &b));
    THREE(aril_unique(bad, &b, &c));
    THREE(aril_unique_axis(x, 4, &b, &c));
    THREE(aril_unique_axis(NULL, 0, &b, &c));
    TWO(aril_histogram_bins(x, -1, 0, 1, (aril_histogram_opts){ 0 }, &b));
    TWO(aril_histogram_bins(x, INT64_MAX, 0, 1, (aril_histogram_opts){ 0 }, &b));
}

TEST(images_and_matrices)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_ones(ARIL_SHAPE(2, 3), ARIL_F32, aril_cpu());
    aril_pool_opts opts = { .kernel = { 2 } };
    TWO(aril_max_pool2d(x, opts, &b));
    TWO(aril_max_pool2d(x, (aril_pool_opts){ 0 }, &b));
    TWO(aril_adaptive_max_pool2d(x, ARIL_SHAPE(1), &b));
    TWO(aril_adaptive_max_pool1d(x, ARIL_SHAPE(-7), &b));
    TWO(aril_slogdet(x, &b));
    TWO(aril_qr(NULL, &b));
    THREE(aril_svd(NULL, &b, &c));
    TWO(aril_eigh(x, &b));
}

TEST(recurrent_networks)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_ones(ARIL_SHAPE(2, 3), ARIL_F32, aril_cpu());
    aril_tensor *bad = aril_reshape(x, ARIL_SHAPE(7));
    TWO(aril_lstm_cell(x, x, NULL, x, x, NULL, NULL, &b));
    TWO(aril_lstm_cell(bad, x, x, x, x, NULL, NULL, &b));
    TWO(aril_gru(x, NULL, ARIL_LIST(x), (aril_rnn_opts){ 0 }, &b));
    THREE(aril_lstm(x, NULL, NULL, ARIL_LIST(x), (aril_rnn_opts){ 0 }, &b, &c));
    THREE(aril_lstm(bad, NULL, NULL, ARIL_LIST(x), (aril_rnn_opts){ 0 }, &b, &c));
}

static void two_of(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = in[0];
}

TEST(functions_that_return_lists)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_ones(ARIL_SHAPE(2, 3), ARIL_F32, aril_cpu()), *out[3];
    aril_tensor *flat = aril_ones(ARIL_SHAPE(3), ARIL_F32, aril_cpu());
    CHECK(aril_gradients(aril_sum(x, ARIL_ALL), ARIL_LIST(x, flat), out, (aril_grad_opts){ 0 }) <
          0);
    check_apart("gradients", 2, out);
    CHECK(aril_meshgrid(ARIL_LIST(flat, x), false, out) < 0);
    check_apart("meshgrid", 2, out);
    CHECK(aril_checkpoint(two_of, NULL, ARIL_LIST(x), 2, out) < 0);
    check_apart("checkpoint", 2, out);
    aril_module *m = aril_nn_max_pool2d(2);
    CHECK(aril_forward_all(m, ARIL_LIST(x), 2, out) < 0);
    check_apart("forward_all", 2, out);
    aril_module_release(m);
}
