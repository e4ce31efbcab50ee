/* Functions with several results that fail: each result is a separate poisoned tensor, so that one
 * may be dropped while the others are kept. */
#include "aril/aril.h"
#include "support/device.h"
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
    for (int i = 0; i < 8; i++) aril_full(ARIL_SHAPE(2), i, ARIL_F32, test_device());
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
    aril_tensor *x = aril_ones(ARIL_SHAPE(3), ARIL_F32, test_device());
    aril_tensor *y = aril_argsort(x, 5, (aril_sort_opts){ 0 });
    for (int i = 0; i < 8; i++) aril_full(ARIL_SHAPE(2), i, ARIL_F32, test_device());
    CHECK(aril_tensor_status(y) < 0);
    y = aril_argsort(NULL, 0, (aril_sort_opts){ 0 });
    for (int i = 0; i < 8; i++) aril_full(ARIL_SHAPE(2), i, ARIL_F32, test_device());
    CHECK(aril_tensor_status(y) < 0);
    aril_clear_error();
}

TEST(sorting_and_reductions)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_ones(ARIL_SHAPE(2, 3), ARIL_F32, test_device());
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
    aril_tensor *x = aril_ones(ARIL_SHAPE(2, 3), ARIL_F32, test_device());
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
    aril_tensor *x = aril_ones(ARIL_SHAPE(2, 3), ARIL_F32, test_device());
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
    aril_tensor *x = aril_ones(ARIL_SHAPE(2, 3), ARIL_F32, test_device()), *out[3];
    aril_tensor *flat = aril_ones(ARIL_SHAPE(3), ARIL_F32, test_device());
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

/* ---- out of memory ---- */

enum { MAX_RESULTS = 3 };

/* Calls fn with each of its allocations failing in turn: all results must be poisoned, or none. */
static void check_starved(const char *what, int n, void (*fn)(aril_tensor **out))
{
    int failures = 0;
    {
        ARIL_SCOPE;
        aril_tensor *out[MAX_RESULTS] = { NULL };
        fn(out); /* fills caches */
        for (int i = 0; i < n; i++)
            CHECK_MSG(aril_tensor_status(out[i]) == ARIL_OK, "%s: %s", what, aril_error());
    }
    for (int64_t at = 1; !test_failed(); at++) {
        ARIL_SCOPE;
        aril_tensor *out[MAX_RESULTS] = { NULL };
        aril_fail_allocation(at);
        fn(out);
        bool failed = aril_allocation_failed();
        aril_fail_allocation(0);
        if (!failed) break;
        failures++;
        int bad = 0;
        for (int i = 0; i < n; i++) bad += !out[i] || aril_tensor_status(out[i]) < 0;
        CHECK_MSG(bad == 0 || bad == n, "%s: allocation %lld fails, %d of %d results are poisoned",
                  what, (long long)at, bad, n);
        aril_clear_error();
    }
    CHECK_MSG(failures > 0 || test_failed(), "%s: nothing failed", what);
}

/* A function of x [2,3,4] and the other tensors below that sets out[0] ... out[n - 1]. */
#define STARVED(CALLS)                                                                           \
    CALLS(2, aminmax, aril_aminmax(x, ARIL_AXES(0), &out[1]))                                    \
    CALLS(2, max_of_all, aril_max(x, ARIL_ALL, &out[1]))                                         \
    CALLS(2, max, aril_max(x, ARIL_AXES(1), &out[1]))                                            \
    CALLS(2, median, aril_median(x, (aril_axes){ .keepdim = true }, &out[1]))                    \
    CALLS(2, std_mean, aril_std_mean(x, ARIL_AXES(1), 1, &out[1]))                               \
    CALLS(2, cummax, aril_cummax(x, 1, &out[1]))                                                 \
    CALLS(2, sort, aril_sort(x, 1, (aril_sort_opts){ 0 }, &out[1]))                              \
    CALLS(3, unique, aril_unique(x, &out[1], &out[2]))                                           \
    CALLS(3, runs, aril_unique_consecutive(x, &out[1], &out[2]))                                 \
    CALLS(3, runs_axis, aril_unique_consecutive_axis(x, 1, &out[1], &out[2]))                    \
    CALLS(2, histogram, aril_histogram_bins(x, 4, 0, 1, (aril_histogram_opts){ 0 }, &out[1]))    \
    CALLS(2, pool, aril_max_pool2d(x, (aril_pool_opts){ .kernel = { 2 } }, &out[1]))             \
    CALLS(2, adaptive, aril_adaptive_max_pool2d(x, ARIL_SHAPE(1, 1), &out[1]))                   \
    CALLS(2, lstm_cell, aril_lstm_cell(h, h, h, w, w, NULL, NULL, &out[1]))                      \
    CALLS(2, gru, aril_gru(h, NULL, ARIL_LIST(w3, w3, NULL, NULL), rnn, &out[1]))                \
    CALLS(3, lstm, aril_lstm(h, NULL, NULL, ARIL_LIST(w, w, NULL, NULL), rnn, &out[1], &out[2])) \
    CALLS(2, vjp, aril_vjp(square, NULL, h, h, &out[1]))                                         \
    CALLS(2, jvp, aril_jvp(square, NULL, h, h, &out[1]))                                         \
    CALLS(2, meshgrid, list(aril_meshgrid(ARIL_LIST(v, v), false, out), out))                    \
    CALLS(3, nonzero, list(aril_nonzero_list(x, out), out))                                      \
    CALLS(3, split, list(aril_split(x, 1, 1, out), out))                                         \
    CALLS(2, split_sizes, list(aril_split_sizes(x, sizes, 2, 2, out), out))                      \
    CALLS(2, chunk, list(aril_chunk(x, 2, 2, out), out))                                         \
    CALLS(3, tensor_split, list(aril_tensor_split(x, 3, 2, out), out))                           \
    CALLS(3, split_at, list(aril_tensor_split_at(x, sizes, 2, 2, out), out))                     \
    CALLS(3, unbind, list(aril_unbind(x, 1, out), out))                                          \
    CALLS(2, forward_all, list(aril_forward_all(attend, ARIL_LIST(h), 2, out), out))

static aril_tensor *x, *h, *v, *w, *w3;
static aril_module *attend;
static const int64_t sizes[] = { 1, 3 };
static const aril_rnn_opts rnn;

static void square(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_mul(in[0], in[0]);
}

/* For functions that fill a list and return a status; NULL if the two disagree. */
static aril_tensor *list(aril_status s, aril_tensor **out)
{
    return (s < 0) == (aril_tensor_status(out[0]) < 0) ? out[0] : NULL;
}

#define DEFINE(n, name, call)                     \
    static void starved_##name(aril_tensor **out) \
    {                                             \
        out[0] = call;                            \
    }
STARVED(DEFINE)

static aril_tensor *filled(aril_shape shape)
{
    return aril_keep(aril_rand(shape, ARIL_F32, test_device()));
}

TEST(several_results_when_memory_runs_out)
{
    {
        ARIL_SCOPE;
        x = filled(ARIL_SHAPE(2, 3, 4));
        h = filled(ARIL_SHAPE(4, 4));
        v = filled(ARIL_SHAPE(5));
        w = filled(ARIL_SHAPE(16, 4));
        w3 = filled(ARIL_SHAPE(12, 4));
        attend = aril_nn_multihead_attention(4, 2);
    }
#define CHECK_IT(n, name, call) check_starved(#name, n, starved_##name);
    STARVED(CHECK_IT)
    aril_module_release(attend);
    aril_tensor *const all[] = { x, h, v, w, w3 };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) aril_release(all[i]);
}
