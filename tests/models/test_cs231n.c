/* Numbers that Stanford's CS231n works out on its slides, each verified by hand in a comment. */
#include "aril/aril.h"
#include "support/test.h"

static const double scores[9] = { 2.1, 1.6, 2.1, 3.0, 3.2, 2.8, -2.0, 3.7, 3.8 };
static const int64_t diagonal[3] = { 0, 1, 2 };

/* Losses of the three samples one by one, their sum and their mean. */
static void check_svm(aril_tensor *x, const double want[3])
{
    double each[3];
    aril_tensor *y = aril_from(diagonal, ARIL_SHAPE(3), ARIL_I64, aril_cpu());
    aril_multi_margin_opts opts = { .reduction = ARIL_NONE, .sum_classes = true };
    CHECK_INT(aril_read(aril_multi_margin_loss_with(x, y, opts), each), ARIL_OK);
    for (int i = 0; i < 3; i++) CHECK_NEAR(each[i], want[i], 1e-12);
    double sum = want[0] + want[1] + want[2];
    opts.reduction = ARIL_SUM;
    CHECK_NEAR(aril_item(aril_multi_margin_loss_with(x, y, opts)), sum, 1e-12);
    opts.reduction = ARIL_MEAN;
    CHECK_NEAR(aril_item(aril_multi_margin_loss_with(x, y, opts)), sum / 3, 1e-12);
    /* PyTorch's form divides by the number of classes as well. */
    CHECK_NEAR(aril_item(aril_multi_margin_loss(x, y)), sum / 9, 1e-12);
    CHECK(aril_ok());
}

static void check_softmax(aril_tensor *x, const double want[3])
{
    double each[3];
    aril_tensor *y = aril_from(diagonal, ARIL_SHAPE(3), ARIL_I64, aril_cpu());
    aril_cross_entropy_opts opts = { .reduction = ARIL_NONE };
    CHECK_INT(aril_read(aril_cross_entropy_with(x, y, opts), each), ARIL_OK);
    for (int i = 0; i < 3; i++) CHECK_NEAR(each[i], want[i], 1e-8);
    CHECK_NEAR(aril_item(aril_cross_entropy(x, y)), (want[0] + want[1] + want[2]) / 3, 1e-8);
    CHECK_NEAR(aril_item(aril_nll_loss(aril_log_softmax(x, 1), y)),
               (want[0] + want[1] + want[2]) / 3, 1e-8);
    CHECK(aril_ok());
}

static aril_tensor *matrix(void)
{
    return aril_from(scores, ARIL_SHAPE(3, 3), ARIL_F64, aril_cpu());
}

TEST(svm_loss_with_rows_as_samples)
{
    ARIL_SCOPE;
    /* [2.1, 1.6, 2.1], class 0: max(0, 1.6 - 2.1 + 1) + max(0, 2.1 - 2.1 + 1) = 0.5 + 1.0
     * [3.0, 3.2, 2.8], class 1: max(0, 3.0 - 3.2 + 1) + max(0, 2.8 - 3.2 + 1) = 0.8 + 0.6
     * [-2, 3.7, 3.8],  class 2: max(0, -2 - 3.8 + 1) + max(0, 3.7 - 3.8 + 1)  = 0 + 0.9 */
    check_svm(matrix(), (const double[]){ 1.5, 1.4, 0.9 });
}

TEST(svm_loss_with_columns_as_samples)
{
    ARIL_SCOPE;
    /* [2.1, 3.0, -2],  class 0: max(0, 3.0 - 2.1 + 1) + max(0, -2 - 2.1 + 1)  = 1.9 + 0
     * [1.6, 3.2, 3.7], class 1: max(0, 1.6 - 3.2 + 1) + max(0, 3.7 - 3.2 + 1) = 0 + 1.5
     * [2.1, 2.8, 3.8], class 2: max(0, 2.1 - 3.8 + 1) + max(0, 2.8 - 3.8 + 1) = 0 + 0 */
    check_svm(aril_t(matrix()), (const double[]){ 1.9, 1.5, 0 });
}

TEST(softmax_loss_with_rows_as_samples)
{
    ARIL_SCOPE;
    /* -log(exp(s_y) / sum exp(s_j)) = log(sum exp(s_j - s_y)):
     * log(1 + exp(-0.5) + 1)         = log(2.60653066)
     * log(exp(-0.2) + 1 + exp(-0.4)) = log(2.48905080)
     * log(exp(-5.8) + exp(-0.1) + 1) = log(1.90786497) */
    check_softmax(matrix(), (const double[]){ 0.95802009, 0.91190143, 0.64598480 });
}

TEST(softmax_loss_with_columns_as_samples)
{
    ARIL_SCOPE;
    /* log(1 + exp(0.9) + exp(-4.1))  = log(3.47617579)
     * log(exp(-1.6) + 1 + exp(0.5))  = log(2.85061779)
     * log(exp(-1.7) + exp(-1) + 1)   = log(1.55056297) */
    check_softmax(aril_t(matrix()), (const double[]){ 1.24593278, 1.04753574, 0.43861807 });
}

TEST(sigmoid_unit_forward_and_backward)
{
    ARIL_SCOPE;
    /* f = sigmoid(w0 x0 + w1 x1 + w2) with w = (1, -2, 1), x = (-1, 1):
     * 1 * -1 + -2 * 1 + 1 = -2, f = 1 / (1 + exp(2)) = 0.11920292.
     * Backward from 1: the sigmoid gives (1 - f) f = 0.88079708 * 0.11920292 = 0.10499359; the sum
     * passes it unchanged to each term, and a product multiplies it by the other factor. */
    double value[5] = { 1, -1, -2, 1, 1 }; /* w0, x0, w1, x1, w2 */
    aril_tensor *v[5];
    for (int i = 0; i < 5; i++) {
        v[i] = aril_from(&value[i], ARIL_SHAPE(), ARIL_F64, aril_cpu());
        CHECK_INT(aril_set_requires_grad(v[i], true), ARIL_OK);
    }
    aril_tensor *sum = aril_add(aril_add(aril_mul(v[0], v[1]), aril_mul(v[2], v[3])), v[4]);
    aril_tensor *f = aril_sigmoid(sum);
    CHECK_NEAR(aril_item(sum), -2, 1e-15);
    CHECK_NEAR(aril_item(f), 0.11920292, 1e-8);
    CHECK_INT(aril_backward(f), ARIL_OK);
    const double d = 0.10499359, want[5] = { -1 * d, 1 * d, 1 * d, -2 * d, d };
    for (int i = 0; i < 5; i++) CHECK_NEAR(aril_item(aril_grad(v[i])), want[i], 1e-7);
    CHECK(aril_ok());
}
