/* Wrong values that only kernels see: indices, classes, lengths, divisors, probabilities. On every
 * device the error is the CPU's, with op, value and bound, though it may be reported later, and the
 * device stays usable. */
#include "aril/aril.h"
#include "support/device.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

static aril_device here; /* where the wrong call is made */

static aril_tensor *integers(aril_shape shape, const int64_t *v)
{
    return aril_from(v, shape, ARIL_I64, here);
}
#define I64(...)                                                               \
    integers(ARIL_SHAPE(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), \
             (int64_t[]){ __VA_ARGS__ })

static aril_tensor *numbers(aril_shape shape)
{
    int64_t n = 1;
    for (int i = 0; i < shape.ndim; i++) n *= shape.dim[i];
    aril_tensor *t = aril_add_scalar(aril_arange(0, (double)n, 1, ARIL_F32, here), 0.25);
    return aril_reshape(t, shape);
}

static aril_tensor *masked(const double *v, int64_t n)
{
    return aril_cast(aril_from(v, ARIL_SHAPE(n), ARIL_F64, here), ARIL_BOOL);
}
#define MASK(...) \
    masked((double[]){ __VA_ARGS__ }, sizeof((double[]){ __VA_ARGS__ }) / sizeof(double))

/* ---- wrong calls ---- */

#define CALLS(X)                                                                                   \
    X(index_select, aril_index_select(numbers(ARIL_SHAPE(5, 3)), I64(0, 7, 1), 0))                 \
    X(index_select_negative, aril_index_select(numbers(ARIL_SHAPE(5, 3)), I64(0, -4, 1), 1))       \
    X(take, aril_take(numbers(ARIL_SHAPE(5, 3)), I64(0, 15)))                                      \
    X(index,                                                                                       \
      aril_index(numbers(ARIL_SHAPE(5, 3)), ARIL_INDEX(ARIL_BY(I64(0, 4)), ARIL_BY(I64(0, 3)))))   \
    X(gather,                                                                                      \
      aril_gather(numbers(ARIL_SHAPE(5, 3)), aril_reshape(I64(0, 1, 3), ARIL_SHAPE(1, 3)), 1))     \
    X(take_along_axis, aril_take_along_axis(numbers(ARIL_SHAPE(5, 3)),                             \
                                            aril_reshape(I64(0, 1, 9), ARIL_SHAPE(1, 3)), 0))      \
    X(embedding,                                                                                   \
      aril_embedding(I64(0, 1, 5), numbers(ARIL_SHAPE(5, 3)), (aril_embedding_opts){ 0 }))         \
    X(embedding_negative,                                                                          \
      aril_embedding(I64(0, 1, -2), numbers(ARIL_SHAPE(5, 3)), (aril_embedding_opts){ 0 }))        \
    X(one_hot, aril_one_hot(I64(0, 4, 1), 4))                                                      \
    X(scatter, aril_scatter(numbers(ARIL_SHAPE(5)), I64(0, 6), numbers(ARIL_SHAPE(2)), 0))         \
    X(scatter_, aril_scatter_(numbers(ARIL_SHAPE(5)), I64(0, 6), numbers(ARIL_SHAPE(2)), 0))       \
    X(scatter_add,                                                                                 \
      aril_scatter_add(numbers(ARIL_SHAPE(5)), I64(0, -6), numbers(ARIL_SHAPE(2)), 0))             \
    X(scatter_mul, aril_scatter_mul(numbers(ARIL_SHAPE(5)), I64(0, 6), numbers(ARIL_SHAPE(2)), 0,  \
                                    (aril_scatter_opts){ 0 }))                                     \
    X(scatter_max, aril_scatter_max(numbers(ARIL_SHAPE(5)), I64(0, 6), numbers(ARIL_SHAPE(2)), 0,  \
                                    (aril_scatter_opts){ 0 }))                                     \
    X(scatter_min, aril_scatter_min(numbers(ARIL_SHAPE(5)), I64(0, 6), numbers(ARIL_SHAPE(2)), 0,  \
                                    (aril_scatter_opts){ 0 }))                                     \
    X(put_along_axis,                                                                              \
      aril_put_along_axis(numbers(ARIL_SHAPE(5)), I64(0, 6), numbers(ARIL_SHAPE(2)), 0))           \
    X(index_add,                                                                                   \
      aril_index_add(numbers(ARIL_SHAPE(5, 2)), I64(0, 8), numbers(ARIL_SHAPE(2, 2)), 0))          \
    X(index_copy,                                                                                  \
      aril_index_copy(numbers(ARIL_SHAPE(5, 2)), I64(0, 8), numbers(ARIL_SHAPE(2, 2)), 0))         \
    X(index_fill, aril_index_fill_scalar(numbers(ARIL_SHAPE(5, 2)), I64(0, 8), 2, 0))              \
    X(index_put, aril_index_put(numbers(ARIL_SHAPE(5, 2)), ARIL_INDEX(ARIL_BY(I64(0, 5))),         \
                                numbers(ARIL_SHAPE(2)), false))                                    \
    X(index_put_accumulate,                                                                        \
      aril_index_put(numbers(ARIL_SHAPE(5, 2)), ARIL_INDEX(ARIL_BY(I64(0, 5))),                    \
                     numbers(ARIL_SHAPE(2)), true))                                                \
    X(masked_scatter,                                                                              \
      aril_masked_scatter(numbers(ARIL_SHAPE(4)), MASK(1, 1, 0, 1), numbers(ARIL_SHAPE(2))))       \
    X(embedding_bag_row, aril_embedding_bag(I64(0, 1, 5), numbers(ARIL_SHAPE(5, 3)), I64(0, 2),    \
                                            (aril_embedding_bag_opts){ 0 }))                       \
    X(embedding_bag_max, aril_embedding_bag(I64(0, 1, 5), numbers(ARIL_SHAPE(5, 3)), I64(0, 2),    \
                                            (aril_embedding_bag_opts){ .mode = ARIL_MAX }))        \
    X(embedding_bag_first, aril_embedding_bag(I64(0, 1, 2), numbers(ARIL_SHAPE(5, 3)), I64(1, 2),  \
                                              (aril_embedding_bag_opts){ 0 }))                     \
    X(embedding_bag_offset, aril_embedding_bag(I64(0, 1, 2), numbers(ARIL_SHAPE(5, 3)), I64(0, 4), \
                                               (aril_embedding_bag_opts){ 0 }))                    \
    X(embedding_bag_order, aril_embedding_bag(I64(0, 1, 2), numbers(ARIL_SHAPE(5, 3)),             \
                                              I64(0, 2, 1), (aril_embedding_bag_opts){ 0 }))       \
    X(nll_loss, aril_nll_loss(numbers(ARIL_SHAPE(2, 3)), I64(1, 3)))                               \
    X(cross_entropy, aril_cross_entropy(numbers(ARIL_SHAPE(2, 3)), I64(1, -1)))                    \
    X(cross_entropy_wide, aril_cross_entropy(numbers(ARIL_SHAPE(2, 3000)), I64(1, 3000)))          \
    X(multi_margin_loss, aril_multi_margin_loss(numbers(ARIL_SHAPE(2, 3)), I64(1, 3)))             \
    X(multilabel_margin_loss,                                                                      \
      aril_multilabel_margin_loss(numbers(ARIL_SHAPE(1, 3)),                                       \
                                  aril_reshape(I64(1, 3, -1), ARIL_SHAPE(1, 3))))                  \
    X(ctc_input_length, ctc(7, 2, 1))                                                              \
    X(ctc_target_length, ctc(6, 4, 1))                                                             \
    X(ctc_label, ctc(6, 2, 5))                                                                     \
    X(max_unpool, unpool(16))                                                                      \
    X(max_unpool_negative, unpool(-3))                                                             \
    X(lstm_lengths, recurrent(4, 5))                                                               \
    X(gru_lengths, recurrent(3, 0))                                                                \
    X(rnn_lengths, recurrent(1, -1))                                                               \
    X(floor_div, aril_floor_div(I64(7, -7, 7), I64(2, 2, 0)))                                      \
    X(floor_div_scalar, aril_floor_div_scalar(I64(7, -7, 7), 0))                                   \
    X(remainder, aril_remainder(I64(7, -7, 7), I64(2, 2, 0)))                                      \
    X(fmod, aril_fmod(aril_cast(I64(7, 7, 7), ARIL_U8), aril_cast(I64(2, 2, 0), ARIL_U8)))         \
    X(pow, aril_pow(I64(7, -7, 7), I64(2, 2, -1)))                                                 \
    X(bernoulli, aril_bernoulli(aril_mul_scalar(numbers(ARIL_SHAPE(2)), 2)))                       \
    X(bernoulli_nan, aril_bernoulli(aril_mul_scalar(numbers(ARIL_SHAPE(1)), NAN)))                 \
    X(multinomial_negative, aril_multinomial(aril_sub_scalar(numbers(ARIL_SHAPE(4)), 1), 2, true)) \
    X(multinomial_none, aril_multinomial(aril_mul_scalar(numbers(ARIL_SHAPE(4)), 0), 1, true))     \
    X(multinomial_few,                                                                             \
      aril_multinomial(aril_relu(aril_sub_scalar(numbers(ARIL_SHAPE(4)), 3)), 2, false))           \
    X(histc, aril_histc(aril_mul_scalar(numbers(ARIL_SHAPE(4)), INFINITY), 4, 0, 0))               \
    X(bincount, aril_bincount(I64(1, -3), NULL, 0))

/* One sequence of 6 times and 3 classes, padded to 3 labels. */
static aril_tensor *ctc(int64_t input_length, int64_t target_length, int64_t label)
{
    aril_tensor *x = aril_log_softmax(numbers(ARIL_SHAPE(6, 1, 3)), 2);
    return aril_ctc_loss(x, aril_reshape(I64(1, label, 1), ARIL_SHAPE(1, 3)), I64(input_length),
                         I64(target_length));
}

/* A plane of 2 x 2 into one of 4 x 4. */
static aril_tensor *unpool(int64_t index)
{
    aril_tensor *at = aril_reshape(I64(0, 3, 8, index), ARIL_SHAPE(1, 1, 2, 2));
    return aril_max_unpool2d(numbers(ARIL_SHAPE(1, 1, 2, 2)), at, ARIL_SHAPE(4, 4),
                             (aril_pool_opts){ .kernel = { 2 } });
}

/* Two sequences of up to 4 steps. */
static aril_tensor *recurrent(int gates, int64_t second)
{
    aril_tensor *w[4] = { numbers(ARIL_SHAPE(gates * 2, 3)), numbers(ARIL_SHAPE(gates * 2, 2)) };
    aril_tensor *x = numbers(ARIL_SHAPE(4, 2, 3));
    aril_rnn_opts opts = { .lengths = I64(4, second) };
    switch (gates) {
    case 4: return aril_lstm(x, NULL, NULL, (aril_list){ 4, w }, opts, NULL, NULL);
    case 3: return aril_gru(x, NULL, (aril_list){ 4, w }, opts, NULL);
    default: return aril_rnn(x, NULL, (aril_list){ 4, w }, opts, NULL);
    }
}

#define FUNCTION(name, call)               \
    static aril_tensor *wrong_##name(void) \
    {                                      \
        return call;                       \
    }
CALLS(FUNCTION)

static const struct {
    const char *name;
    aril_tensor *(*call)(void);
} calls[] = {
#define ROW(name, call) { #name, wrong_##name },
    CALLS(ROW)
};

/* Whether text begins with a source location: " at file.c:12", or " at function+0x5b" without
 * debugging information. */
static bool is_location(const char *text)
{
    if (strncmp(text, " at ", 4) != 0) return false;
    const char *end = text + 4 + strcspn(text + 4, " "), *mark = strstr(text + 4, ".c:");
    if (!mark || mark > end) mark = strstr(text + 4, "+0x");
    return mark && mark < end;
}

/* Cuts off what says that an error came late, or where it came from. */
static void cut_location(char *text)
{
    text[strcspn(text, "\n")] = '\0';
    for (char *at = text; *at; at++)
        if (strncmp(at, " (reported late)", 16) == 0 || is_location(at)) {
            *at = '\0';
            return;
        }
}

static aril_status error_of(aril_tensor *(*call)(void), aril_device device, char *text, size_t size)
{
    ARIL_SCOPE;
    here = device;
    aril_seed(5);
    aril_status status = aril_tensor_status(call());
    if (status == ARIL_OK) status = aril_synchronize(device);
    snprintf(text, size, "%s", aril_ok() ? "" : aril_error());
    cut_location(text);
    aril_clear_error();
    return status;
}

TEST(errors_are_those_of_the_cpu)
{
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        char want[512], got[512];
        aril_status wanted = error_of(calls[i].call, aril_cpu(), want, sizeof want);
        aril_status found = error_of(calls[i].call, test_device(), got, sizeof got);
        if (wanted == ARIL_OK) test_fail(__FILE__, __LINE__, "%s is not wrong", calls[i].name);
        if (wanted != found || strcmp(want, got) != 0)
            test_fail(__FILE__, __LINE__, "%s: %s: \"%s\", but on the CPU %s: \"%s\"",
                      calls[i].name, aril_status_name(found), got, aril_status_name(wanted), want);
        ARIL_SCOPE;
        here = test_device();
        double sum = aril_item(aril_sum(numbers(ARIL_SHAPE(4)), ARIL_ALL));
        if (sum != 7) test_fail(__FILE__, __LINE__, "after %s: the sum is %g", calls[i].name, sum);
        if (!aril_ok()) test_fail(__FILE__, __LINE__, "after %s: %s", calls[i].name, aril_error());
        aril_clear_error();
    }
}

/* What quantile reads is an index for the kernel. */
TEST(quantiles_outside_0_to_1)
{
    static const double wrong[] = { -0.2, 1.01, 1.5, NAN };
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 4; k++) {
            ARIL_SCOPE;
            here = test_device();
            aril_tensor *x = numbers(ARIL_SHAPE(6));
            aril_tensor *q = aril_full(ARIL_SHAPE(2), wrong[i], ARIL_F32, here);
            aril_quantile_mode how = k & 1 ? ARIL_QUANTILE_LOWER : ARIL_QUANTILE_LINEAR;
            aril_tensor *y = k & 2 ? aril_nanquantile(x, q, ARIL_AXES(0), how)
                                   : aril_quantile(x, q, ARIL_AXES(0), how);
            aril_status s = aril_tensor_status(y);
            if (s == ARIL_OK) s = aril_synchronize(here);
            CHECK_INT(s, test_on_cpu() ? ARIL_ERR_NUMBER : ARIL_ERR_INDEX);
            aril_clear_error();
            q = aril_full(ARIL_SHAPE(2), 0.5, ARIL_F32, here);
            y = aril_quantile(x, q, ARIL_AXES(0), ARIL_QUANTILE_LINEAR);
            CHECK_NEAR(aril_item(aril_amax(y, ARIL_ALL)), 2.75, 1e-6);
        }
    }
}

/* ---- in place ---- */

/* The element that cannot be computed keeps its value; on the CPU, all of them do. */
TEST(a_wrong_element_keeps_its_value_in_place)
{
    static aril_tensor *(*const functions[])(
        aril_tensor *, aril_tensor *) = { aril_floor_div_, aril_remainder_, aril_fmod_, aril_pow_ };
    static const aril_dtype dtypes[] = { ARIL_I64, ARIL_I32, ARIL_U8 };
    here = test_device();
    for (int f = 0; f < 4; f++) {
        for (int t = 0; t < 3; t++) {
            ARIL_SCOPE;
            int64_t v[5] = { 0 }, by = f == 3 ? -1 : 0;
            if (f == 3 && t == 2) continue; /* nothing unsigned is negative */
            aril_tensor *x = aril_cast(I64(7, 9, 100, 11, 5), dtypes[t]);
            functions[f](x, aril_cast(I64(1, 2, by, 1, 3), dtypes[t]));
            aril_status s = aril_synchronize(here);
            CHECK(s == ARIL_ERR_NUMBER || aril_error_code() == ARIL_ERR_NUMBER);
            aril_clear_error();
            CHECK_INT(aril_read(aril_cast(x, ARIL_I64), v), ARIL_OK);
            CHECK_INT(v[2], 100);
        }
    }
}

/* An index that is out of range changes nothing else. */
TEST(a_wrong_index_is_skipped)
{
    here = test_device();
    ARIL_SCOPE;
    float v[5] = { 0 };
    aril_tensor *x = aril_zeros(ARIL_SHAPE(5), ARIL_F32, here);
    aril_scatter_add_(x, I64(1, 9, 3), numbers(ARIL_SHAPE(3)), 0);
    aril_status s = aril_synchronize(here);
    CHECK(s == ARIL_ERR_INDEX || aril_error_code() == ARIL_ERR_INDEX);
    aril_clear_error();
    CHECK_INT(aril_read(x, v), ARIL_OK);
    CHECK(v[0] == 0 && v[2] == 0 && v[4] == 0);
    CHECK(v[1] == 0 || v[1] == 0.25f);
    CHECK(v[3] == 0 || v[3] == 2.25f);
}
