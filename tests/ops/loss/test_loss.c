/* Losses composed of several ops: first and second gradients against finite differences, and their
 * memory use. */
#include "aril/aril.h"
#include "support/device.h"
#include "support/test.h"

#include <math.h>

static aril_tensor *classes(int64_t n, int64_t c)
{
    int64_t y[16];
    for (int64_t i = 0; i < n; i++) y[i] = (i * 5 + 1) % c;
    return aril_from(y, ARIL_SHAPE(n), ARIL_I64, test_device());
}

static aril_tensor *signs(int64_t n)
{
    double y[16];
    for (int64_t i = 0; i < n; i++) y[i] = i % 3 ? 1 : -1;
    return aril_from(y, ARIL_SHAPE(n), ARIL_F64, test_device());
}

static void soft_cross_entropy(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_cross_entropy_with(in[0], aril_softmax(in[1], 1),
                                     (aril_cross_entropy_opts){ .label_smoothing = 0.1 });
}

static void cosine_embedding(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_cosine_embedding_loss_with(in[0], in[1], signs(4),
                                             (aril_margin_opts){ .margin = -0.9 });
}

static void cosine(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_cosine_similarity(in[0], in[1], 1);
}

static void triplet(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_triplet_margin_loss_with(in[0], in[1], aril_mul_scalar(in[0], -0.3),
                                           (aril_triplet_margin_opts){ .margin = 5, .p = 3 });
}

static void squared_svm(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_multi_margin_loss_with(aril_mul(in[0], in[1]), classes(4, 3),
                                         (aril_multi_margin_opts){ .p = 2, .sum_classes = true });
}

static void divergence(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_kl_div_with(aril_log_softmax(in[0], 1), aril_softmax(in[1], 1),
                              (aril_kl_div_opts){ .reduction = ARIL_BATCHMEAN });
}

static void gaussian(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_gaussian_nll_loss(in[0], in[1], aril_exp(aril_sum(in[1], ARIL_AXES(1))));
}

static void largest_of_bags(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    aril_tensor *index = aril_reshape(classes(6, 4), ARIL_SHAPE(2, 3));
    out[0] =
        aril_mul(aril_square(aril_embedding_bag(
                     index, in[0], NULL, (aril_embedding_bag_opts){ ARIL_MAX, NULL, 0, false })),
                 aril_embedding_bag(index, in[1], NULL,
                                    (aril_embedding_bag_opts){ ARIL_SUM, NULL, 2, false }));
}

static void penalties(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_add(aril_l1_penalty(ARIL_LIST(in[0], in[1]), 0.3),
                      aril_l2_penalty(ARIL_LIST(in[0], in[1]), 0.7));
}

/* The weight times the logarithm overflows in f16, times the probability it does not. */
TEST(soft_cross_entropy_with_large_weights_in_f16)
{
    ARIL_SCOPE;
    const float scores[] = { 4, 0, 1 }, shares[] = { 1, 0.0625f, 0 }, weights[] = { 1, -60000, 1 };
    aril_tensor *x = aril_from(scores, ARIL_SHAPE(1, 3), ARIL_F32, test_device());
    aril_tensor *t = aril_from(shares, ARIL_SHAPE(1, 3), ARIL_F32, test_device());
    aril_tensor *w = aril_from(weights, ARIL_SHAPE(3), ARIL_F32, test_device());
    const double smoothing[] = { 0, 0.1 };
    for (int i = 0; i < 2; i++) {
        aril_cross_entropy_opts opts = { .weight = w, .label_smoothing = smoothing[i] };
        double want = aril_item(aril_cross_entropy_with(x, t, opts));
        opts.weight = aril_cast(w, ARIL_F16);
        double got = aril_item(
            aril_cross_entropy_with(aril_cast(x, ARIL_F16), aril_cast(t, ARIL_F16), opts));
        CHECK(want < -10000);
        CHECK_NEAR(got, want, 0.002 * fabs(want));
    }
}

TEST(second_gradients_of_composites)
{
    static const struct {
        const char *name;
        aril_fn *fn;
    } of[] = { { "soft cross_entropy", soft_cross_entropy },
               { "cosine_embedding_loss", cosine_embedding },
               { "cosine_similarity", cosine },
               { "triplet_margin_loss", triplet },
               { "multi_margin_loss", squared_svm },
               { "kl_div", divergence },
               { "gaussian_nll_loss", gaussian },
               { "embedding_bag", largest_of_bags },
               { "penalties", penalties } };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        ARIL_SCOPE;
        aril_seed(11 + i);
        aril_tensor *x[2];
        for (int k = 0; k < 2; k++) {
            x[k] = aril_randn(ARIL_SHAPE(4, 3), ARIL_F64, test_device());
            aril_set_requires_grad(x[k], true);
        }
        aril_gradcheck_opts opts = { .second = true };
        aril_status s = aril_gradcheck(of[i].fn, NULL, ARIL_LIST(x[0], x[1]), opts);
        CHECK_MSG(s == ARIL_OK, "%s: %s", of[i].name, aril_error());
    }
}

/* The graph of a loss holds its inputs and nothing else of their size. */
TEST(losses_save_no_copies)
{
    ARIL_SCOPE;
    enum { N = 64, C = 100 };
    aril_tensor *x = aril_randn(ARIL_SHAPE(N, C), ARIL_F32, test_device());
    aril_tensor *t = aril_rand(ARIL_SHAPE(N, C), ARIL_F32, test_device());
    aril_set_requires_grad(x, true);
    int64_t y[N];
    for (int i = 0; i < N; i++) y[i] = i % C;
    aril_tensor *labels = aril_from(y, ARIL_SHAPE(N), ARIL_I64, test_device());
    int64_t before = aril_memory(test_device()).live;
    aril_tensor *loss[] = {
        aril_cross_entropy(x, labels), aril_mse_loss(x, t),        aril_l1_loss(x, t),
        aril_huber_loss(x, t),         aril_bce_with_logits(x, t), aril_multi_margin_loss(x, labels)
    };
    CHECK_MSG(aril_ok(), "%s", aril_error());
    int64_t kept = aril_memory(test_device()).live - before;
    CHECK_MSG(kept < N * C * 4, "%lld bytes kept", (long long)kept);
    for (size_t i = 0; i < sizeof loss / sizeof *loss; i++)
        CHECK_INT(aril_backward(loss[i]), ARIL_OK);
}
