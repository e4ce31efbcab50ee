/* Calls that look nearly right and must be rejected, and impossibly large sizes. */
#include "aril/aril.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

static aril_tensor *ones(aril_shape shape)
{
    return aril_ones(shape, ARIL_F32, aril_cpu());
}

/* Poison with the code, and a message that contains the function name and the word. */
static void refused(aril_tensor *t, aril_status code, const char *name, const char *word)
{
    CHECK_INT(aril_tensor_status(t), code);
    CHECK_MSG(strncmp(aril_error(), name, strlen(name)) == 0, "%s: %s", name, aril_error());
    CHECK_MSG(strstr(aril_error(), word), "no '%s' in: %s", word, aril_error());
    aril_clear_error();
}

TEST(sizes_that_overflow)
{
    ARIL_SCOPE;
    refused(aril_rfftfreq(INT64_MAX, 1), ARIL_ERR_SHAPE, "rfftfreq", "elements");
    refused(aril_fftfreq(INT64_C(1) << 62, 1), ARIL_ERR_SHAPE, "fftfreq", "elements");
    refused(aril_fftfreq(INT64_MAX, 1), ARIL_ERR_SHAPE, "fftfreq", "elements");
}

TEST(diff_of_any_order)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_arange(0, 6, 1, ARIL_F32, aril_cpu());
    aril_tensor *y = aril_diff(aril_square(x), INT32_MAX, 0);
    CHECK(aril_ok());
    CHECK_INT(aril_numel(y), 0);
    y = aril_diff(aril_square(x), 2, 0);
    CHECK_INT(aril_numel(y), 4);
    CHECK_NEAR(aril_item(aril_select(y, 0, 3)), 2, 0);
    refused(aril_diff(x, INT32_MAX, 3), ARIL_ERR_INDEX, "diff", "axis 3");
    refused(aril_diff(NULL, INT32_MAX, 0), ARIL_ERR_ARG, "diff", "NULL");
    refused(aril_diff(aril_select(x, 0, 0), INT32_MAX, 0), ARIL_ERR_ARG, "diff",
            "at least 1 dimension");
}

TEST(quantiles_outside_0_to_1)
{
    ARIL_SCOPE;
    aril_tensor *x = ones(ARIL_SHAPE(5));
    const double wrong[] = { -0.01, 1.5, NAN, INFINITY };
    for (int i = 0; i < 4; i++) {
        aril_tensor *q = aril_full(ARIL_SHAPE(1), wrong[i], ARIL_F32, aril_cpu());
        refused(aril_quantile(x, q, ARIL_ALL, ARIL_QUANTILE_LINEAR), ARIL_ERR_NUMBER, "quantile",
                "from 0 to 1");
    }
    for (int i = 0; i < 2; i++) {
        aril_tensor *q = aril_full((aril_shape){ 0 }, i, ARIL_F32, aril_cpu());
        CHECK_NEAR(aril_item(aril_quantile(x, q, ARIL_ALL, ARIL_QUANTILE_LINEAR)), 1, 0);
    }
    CHECK(aril_ok());
}

TEST(probabilities_outside_0_to_1)
{
    ARIL_SCOPE;
    aril_tensor *p = aril_full(ARIL_SHAPE(2), 0.5, ARIL_F32, aril_cpu());
    const double wrong[] = { -0.5, 1.5, NAN };
    for (int i = 0; i < 3; i++) {
        aril_tensor *t = aril_full(ARIL_SHAPE(2), wrong[i], ARIL_F32, aril_cpu());
        refused(aril_bce_loss(t, p), ARIL_ERR_NUMBER, "bce_loss", "the input must be from 0 to 1");
        refused(aril_bce_loss(p, t), ARIL_ERR_NUMBER, "bce_loss", "the target must be from 0 to 1");
    }
    CHECK_NEAR(aril_item(aril_bce_loss(p, p)), log(2), 1e-6);
    aril_tensor *none = aril_zeros(ARIL_SHAPE(2), ARIL_F32, aril_cpu());
    CHECK_NEAR(aril_item(aril_bce_loss(none, none)), 0, 0);
    CHECK(aril_ok());
}

TEST(running_statistics_of_wrong_size)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_randn(ARIL_SHAPE(2, 3, 4), ARIL_F32, aril_cpu());
    aril_tensor *three = ones(ARIL_SHAPE(3));
    const int64_t sizes[] = { 1, 2, 6 };
    for (int i = 0; i < 3; i++) {
        aril_tensor *r = ones(ARIL_SHAPE(sizes[i]));
        refused(aril_instance_norm(x, NULL, NULL, r, three, (aril_instance_norm_opts){ 0 }),
                ARIL_ERR_SHAPE, "instance_norm", "running_mean");
        refused(aril_instance_norm(x, NULL, NULL, three, r, (aril_instance_norm_opts){ 0 }),
                ARIL_ERR_SHAPE, "instance_norm", "running_var");
    }
    refused(aril_instance_norm(x, NULL, NULL, ones(ARIL_SHAPE(3, 1)), three,
                               (aril_instance_norm_opts){ 0 }),
            ARIL_ERR_SHAPE, "instance_norm", "[3,1]");
    CHECK(aril_tensor_status(aril_instance_norm(x, NULL, NULL, three, NULL,
                                                (aril_instance_norm_opts){ 0 })) == ARIL_OK);
    CHECK(aril_ok());
}

TEST(einsum_diagonals_of_different_sizes)
{
    ARIL_SCOPE;
    refused(aril_einsum("ii", ARIL_LIST(ones(ARIL_SHAPE(3, 1)))), ARIL_ERR_SHAPE, "einsum",
            "3 and 1");
    refused(aril_einsum("ii->i", ARIL_LIST(ones(ARIL_SHAPE(1, 3)))), ARIL_ERR_SHAPE, "einsum",
            "1 and 3");
    aril_tensor *y = aril_einsum("ii,i->", ARIL_LIST(ones(ARIL_SHAPE(3, 3)), ones(ARIL_SHAPE(1))));
    CHECK_NEAR(aril_item(y), 3, 0);
    CHECK(aril_ok());
}

TEST(weights_and_indices_of_wrong_rank)
{
    ARIL_SCOPE;
    aril_tensor *zero = aril_zeros(ARIL_SHAPE(1), ARIL_I64, aril_cpu());
    aril_embedding_opts none = { 0 };
    refused(aril_embedding(zero, ones(ARIL_SHAPE(3)), none), ARIL_ERR_SHAPE, "embedding", "[3]");
    refused(aril_embedding(zero, ones(ARIL_SHAPE(3, 2, 2)), none), ARIL_ERR_SHAPE, "embedding",
            "[3,2,2]");
    aril_pool_opts two = { .kernel = { 2 } };
    aril_tensor *x = ones(ARIL_SHAPE(1, 1, 2, 2)), *where = aril_cast(aril_zeros_like(x), ARIL_I64);
    refused(aril_max_unpool2d(x, aril_select(where, 0, 0), (aril_shape){ 0 }, two), ARIL_ERR_SHAPE,
            "max_unpool2d", "[1,2,2]");
    refused(aril_max_unpool2d(aril_select(x, 0, 0), where, (aril_shape){ 0 }, two), ARIL_ERR_SHAPE,
            "max_unpool2d", "[1,1,2,2]");
    CHECK(aril_tensor_status(aril_max_unpool2d(x, where, (aril_shape){ 0 }, two)) == ARIL_OK);
    static const int64_t lowest[4] = { INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN };
    aril_tensor *least = aril_from(lowest, aril_shape_of(where), ARIL_I64, aril_cpu());
    refused(aril_max_unpool2d(aril_to(x, aril_cpu()), least, (aril_shape){ 0 }, two),
            ARIL_ERR_INDEX, "max_unpool", "-9223372036854775808");
}

TEST(unsigned_indices_do_not_count_from_the_end)
{
    ARIL_SCOPE;
    static const uint64_t last[2] = { 0, UINT64_MAX };
    aril_tensor *at = aril_from(last, ARIL_SHAPE(2), ARIL_U64, aril_cpu());
    refused(aril_index_select(ones(ARIL_SHAPE(3)), at, 0), ARIL_ERR_INDEX, "index_select",
            "out of range");
    refused(aril_embedding(at, ones(ARIL_SHAPE(3, 2)), (aril_embedding_opts){ 0 }), ARIL_ERR_INDEX,
            "embedding", "out of range");
}

TEST(messages_name_the_limit)
{
    ARIL_SCOPE;
    aril_tensor *x = ones(ARIL_SHAPE(1, 4, 4, 4));
    refused(aril_max_pool2d(x, (aril_pool_opts){ .kernel = { 2 }, .stride = { INT64_C(1) << 32 } },
                            NULL),
            ARIL_ERR_ARG, "max_pool2d", "stride 4294967296 must be at most 2147483647");
    refused(aril_pixel_shuffle(x, INT64_C(1) << 33), ARIL_ERR_ARG, "pixel_shuffle", "8589934592");
    refused(aril_pixel_unshuffle(x, 0), ARIL_ERR_ARG, "pixel_unshuffle", "got 0");
    refused(aril_arange(0, NAN, 1, ARIL_F32, aril_cpu()), ARIL_ERR_ARG, "arange", "NaN");
}

TEST(sources_of_wrong_length)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_zeros(ARIL_SHAPE(3, 2), ARIL_F32, aril_cpu());
    aril_tensor *index = aril_arange(0, 2, 1, ARIL_I64, aril_cpu());
    const int64_t wrong[][2] = { { 1, 2 }, { 2, 1 }, { 3, 2 } };
    for (int i = 0; i < 3; i++) {
        aril_tensor *src = ones(ARIL_SHAPE(wrong[i][0], wrong[i][1]));
        refused(aril_index_add(x, index, src, 0), ARIL_ERR_SHAPE, "index_add",
                "does not match [3,2]");
        refused(aril_index_add_(x, index, src, 0), ARIL_ERR_SHAPE, "index_add",
                "does not match [3,2]");
    }
    refused(aril_index_add(x, index, ones(ARIL_SHAPE(2, 2)), 5), ARIL_ERR_INDEX, "index_add", "5");
    CHECK_NEAR(aril_item(aril_sum(aril_index_add(x, index, ones(ARIL_SHAPE(2, 2)), 0), ARIL_ALL)),
               4, 0);
    CHECK_NEAR(aril_item(aril_sum(aril_index_add(x, index, ones(ARIL_SHAPE(3, 2)), 1), ARIL_ALL)),
               6, 0);
    CHECK(aril_ok());
}

TEST(null_output_pointers)
{
    ARIL_SCOPE;
    CHECK_INT(aril_init_fans(ones(ARIL_SHAPE(2, 3)), NULL, NULL), ARIL_OK);
    CHECK_STR(aril_device_name(aril_cpu(), NULL, 8), "");
    CHECK_STR(aril_device_describe(aril_cpu(), NULL, 8), "");
    aril_transform *t = aril_transform_parse("flip");
    CHECK_INT(aril_transform_text(t, NULL, 8), 4);
    aril_transform_free(t);
    aril_generator_free(aril_default_generator()); /* the thread's own */
    CHECK_INT(aril_error_code(), ARIL_ERR_ARG);
    aril_clear_error();
}

/* Broadcasting would give a result of another shape than the state. */
TEST(states_of_wrong_batch_size)
{
    ARIL_SCOPE;
    aril_tensor *one = ones(ARIL_SHAPE(1, 3)), *two = ones(ARIL_SHAPE(2, 3)), *c;
    aril_tensor *w = ones(ARIL_SHAPE(3, 3)), *w3 = ones(ARIL_SHAPE(9, 3)),
                *w4 = ones(ARIL_SHAPE(12, 3));
    refused(aril_rnn_cell(one, two, w, w, NULL, NULL, (aril_rnn_cell_opts){ 0 }), ARIL_ERR_SHAPE,
            "rnn_cell", "batch size");
    refused(aril_gru_cell(two, one, w3, w3, NULL, NULL), ARIL_ERR_SHAPE, "gru_cell", "batch size");
    refused(aril_lstm_cell(two, one, two, w4, w4, NULL, NULL, NULL), ARIL_ERR_SHAPE, "lstm_cell",
            "batch size");
    refused(aril_lstm_cell(two, two, one, w4, w4, NULL, NULL, &c), ARIL_ERR_SHAPE, "lstm_cell",
            "[1,3]");
    CHECK_INT(aril_tensor_status(c), ARIL_ERR_SHAPE);
    aril_tensor *narrow = ones(ARIL_SHAPE(4, 3)), *state = ones(ARIL_SHAPE(2, 1));
    refused(aril_lstm_cell(two, state, ones(ARIL_SHAPE(2, 2)), narrow, ones(ARIL_SHAPE(4, 1)), NULL,
                           NULL, NULL),
            ARIL_ERR_SHAPE, "lstm_cell", "[2,2]");
    CHECK(aril_tensor_status(aril_lstm_cell(two, two, two, w4, w4, NULL, NULL, &c)) == ARIL_OK);
}

/* f16 is widened before multiplying, which must not make it compatible with f32. */
TEST(factors_of_different_dtypes)
{
    ARIL_SCOPE;
    aril_dtype low[] = { ARIL_F16, ARIL_BF16 };
    for (int i = 0; i < 2; i++) {
        aril_tensor *h = aril_ones(ARIL_SHAPE(2, 2), low[i], aril_cpu()),
                    *f = ones(ARIL_SHAPE(2, 2));
        aril_tensor *v = aril_select(f, 0, 0);
        refused(aril_addmm(h, h, f, 1, 1), ARIL_ERR_DTYPE, "addmm", "and f32 differ; cast");
        refused(aril_addmm(f, f, h, 1, 1), ARIL_ERR_DTYPE, "addmm", "dtypes f32 and ");
        refused(aril_addmv(aril_select(h, 0, 0), h, v, 1, 1), ARIL_ERR_DTYPE, "addmv", "cast");
        aril_tensor *b = aril_unsqueeze(h, 0);
        refused(aril_baddbmm(b, b, aril_unsqueeze(f, 0), 1, 1), ARIL_ERR_DTYPE, "baddbmm", "cast");
        CHECK(aril_tensor_status(aril_addmm(h, h, h, 1, 1)) == ARIL_OK);
    }
}

TEST(repeated_squeeze_axis)
{
    ARIL_SCOPE;
    aril_tensor *x = ones(ARIL_SHAPE(3, 1));
    refused(aril_squeeze(x, ARIL_AXES(1, -1)), ARIL_ERR_ARG, "squeeze", "appears twice");
    refused(aril_squeeze(x, ARIL_AXES(0, 0)), ARIL_ERR_ARG, "squeeze", "appears twice");
    CHECK_INT(aril_ndim(aril_squeeze(x, ARIL_AXES(0, 1))), 1);
}

/* Weights [N] of losses [N,1] would broadcast to [N,N]. */
TEST(loss_weights_that_broadcast_the_loss)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_full(ARIL_SHAPE(4, 1), 0.5, ARIL_F32, aril_cpu());
    aril_loss_opts opts = { .weight = ones(ARIL_SHAPE(4)) };
    refused(aril_mse_loss_with(x, x, opts), ARIL_ERR_SHAPE, "mse_loss", "[4]");
    refused(aril_bce_loss_with(x, x, opts), ARIL_ERR_SHAPE, "bce_loss", "[4,1]");
    refused(aril_multilabel_soft_margin_loss_with(x, x, opts), ARIL_ERR_SHAPE,
            "multilabel_soft_margin_loss", "[4,1]");
    opts.weight = ones(ARIL_SHAPE(4, 1));
    CHECK(aril_tensor_status(aril_mse_loss_with(x, x, opts)) == ARIL_OK);
    opts.weight = ones(ARIL_SHAPE(1));
    CHECK(aril_tensor_status(aril_mse_loss_with(x, x, opts)) == ARIL_OK);
}
