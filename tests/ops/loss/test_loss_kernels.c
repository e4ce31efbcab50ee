/* Losses over classes: kernels against references, with as many classes and rows as they process
 * at a time, more and fewer, and with values that are not finite. */
#include "aril/aril.h"
#include "ops/loss/loss.h"
#include "ops/table/apply.h"
#include "ops/table/rows.h"
#include "support/agree.h"
#include "support/ops.h"
#include "support/test.h"

#include <math.h>

static aril_tensor *normal(aril_shape shape)
{
    return aril_mul_scalar(aril_randn(shape, ARIL_F64, aril_cpu()), 2);
}

static aril_tensor *labels(int64_t classes, aril_shape shape)
{
    return aril_randint(0, classes, shape, ARIL_I64, aril_cpu());
}

/* All four ops on scores x [N,C,d] (d 0: [N,C]). */
static void compare_classes(aril_tensor *x, aril_tensor *y, aril_tensor *weight)
{
    static const struct nll_attrs all[] = {
        { { ARIL_MEAN }, { -100 }, { 0 } },
        { { ARIL_SUM }, { 1 }, { 0.3 } },
        { { ARIL_NONE }, { 0 }, { 0.1 } },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const struct nll_attrs *a = &all[i];
        aril_tensor *g = a->reduction[0] == ARIL_NONE ? normal(aril_shape_of(y)) : aril_scalar(0.7);
        g = aril_cast(g, ARIL_F64);
        test_rows_agree(&aril__op_nll_loss, 3, (aril_tensor *[]){ x, y, weight }, a);
        test_rows_agree(&aril__op_cross_entropy, 3, (aril_tensor *[]){ x, y, weight }, a);
        test_rows_agree(&aril__op_nll_loss_grad, 4, (aril_tensor *[]){ g, y, weight, x }, a);
        test_rows_agree(&aril__op_cross_entropy_grad, 4, (aril_tensor *[]){ g, x, y, weight }, a);
    }
}

TEST(class_losses_match_their_references)
{
    static const int64_t classes[] = { 1, 2, 17, 1023, 1024, 1025, 2100 };
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        ARIL_SCOPE;
        int64_t n = classes[i];
        aril_tensor *w = i % 2 ? aril_rand(ARIL_SHAPE(n), ARIL_F64, aril_cpu()) : NULL;
        compare_classes(normal(ARIL_SHAPE(19, n)), labels(n, ARIL_SHAPE(19)), w);
    }
}

TEST(image_losses_match_their_references)
{
    static const int64_t sizes[] = { 2, 15, 255, 256, 257, 600 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ARIL_SCOPE;
        int64_t n = sizes[i];
        aril_tensor *w = i % 2 ? aril_rand(ARIL_SHAPE(7), ARIL_F64, aril_cpu()) : NULL;
        compare_classes(normal(ARIL_SHAPE(3, 7, n)), labels(7, ARIL_SHAPE(3, n)), w);
    }
}

TEST(values_that_are_not_finite)
{
    static const double odd[] = { NAN, INFINITY, -INFINITY };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        ARIL_SCOPE;
        aril_tensor *x = normal(ARIL_SHAPE(4, 5)), *y = labels(5, ARIL_SHAPE(4));
        aril_fill_(aril_slice(aril_select(x, 0, 1), 0, 2, 3, 1), odd[i]);
        aril_fill_(aril_select(x, 0, 2), odd[i]); /* all scores of a row */
        compare_classes(x, y, NULL);
        compare_classes(aril_unsqueeze(x, 2), aril_unsqueeze(y, 1), NULL);
    }
}

TEST(margin_losses_match_their_references)
{
    static const struct multi_margin_attrs all[] = { { { 1 }, { 1 }, { 0 } },
                                                     { { 2 }, { 0.5 }, { 1 } } };
    for (int64_t n = 1; n < 40; n += 19)
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            ARIL_SCOPE;
            aril_tensor *x = normal(ARIL_SHAPE(6, n)), *g = normal(ARIL_SHAPE(6));
            aril_tensor *w = i ? aril_rand(ARIL_SHAPE(n), ARIL_F64, aril_cpu()) : NULL;
            aril_tensor *y = labels(n, ARIL_SHAPE(6));
            aril_tensor *lists = aril_sub_scalar(labels(n + 1, ARIL_SHAPE(6, n)), 1);
            test_rows_agree(&aril__op_multi_margin_loss, 3, (aril_tensor *[]){ x, y, w }, &all[i]);
            test_rows_agree(&aril__op_multi_margin_loss_grad, 4, (aril_tensor *[]){ g, x, y, w },
                            &all[i]);
            test_rows_agree(&aril__op_multilabel_margin_loss, 2, (aril_tensor *[]){ x, lists },
                            NULL);
            test_rows_agree(&aril__op_multilabel_margin_loss_grad, 3,
                            (aril_tensor *[]){ g, x, lists }, NULL);
        }
}

TEST(ctc_loss_matches_its_reference)
{
    for (int64_t i = 0; i < 4; i++) {
        ARIL_SCOPE;
        const struct ctc_attrs a = { { i }, { i % 2 } };
        aril_tensor *x = aril_log_softmax(normal(ARIL_SHAPE(30, 5, 9)), -1);
        aril_tensor *g = normal(ARIL_SHAPE(5));
        aril_tensor *y = labels(9, i < 2 ? ARIL_SHAPE(5, 12) : ARIL_SHAPE(40));
        int64_t times[5] = { 30, 7, 13, 0, 25 }, lengths[5] = { 12, 7, 1, i % 2, 8 };
        aril_tensor *t = aril_from(times, ARIL_SHAPE(5), ARIL_I64, aril_cpu());
        aril_tensor *n = aril_from(lengths, ARIL_SHAPE(5), ARIL_I64, aril_cpu());
        test_rows_agree(&aril__op_ctc_loss, 4, (aril_tensor *[]){ x, y, t, n }, &a);
        test_rows_agree(&aril__op_ctc_loss_grad, 5, (aril_tensor *[]){ g, x, y, t, n }, &a);
    }
}

/* Kernel and reference both refuse what is out of range. */
TEST(invalid_indices_are_rejected)
{
    ARIL_SCOPE;
    static const struct nll_attrs plain = { { ARIL_MEAN }, { -100 }, { 0 } };
    static const struct multi_margin_attrs margin = { { 1 }, { 1 }, { 0 } };
    static const struct ctc_attrs ctc = { { 0 }, { 0 } };
    aril_tensor *x = normal(ARIL_SHAPE(2, 3)), *seq = normal(ARIL_SHAPE(4, 2, 3));
    aril_tensor *y = aril_full(ARIL_SHAPE(2), 3, ARIL_I64, aril_cpu());
    aril_tensor *one = aril_ones(ARIL_SHAPE(2), ARIL_I64, aril_cpu());
    aril_tensor *five = aril_full(ARIL_SHAPE(2), 5, ARIL_I64, aril_cpu());
    struct {
        const aril__op *op;
        int n;
        aril_tensor *in[4];
        const void *attrs;
    } all[] = {
        { &aril__op_nll_loss, 3, { x, y, NULL }, &plain },
        { &aril__op_cross_entropy, 3, { x, y, NULL }, &plain },
        { &aril__op_multi_margin_loss, 3, { x, y, NULL }, &margin },
        { &aril__op_multilabel_margin_loss,
          2,
          { aril_select(x, 0, 0),
            aril_cat((aril_list){ 2, (aril_tensor *[]){ y, aril_slice(y, 0, 0, 1, 1) } }, 0) },
          NULL },
        { &aril__op_ctc_loss, 4, { seq, aril_unsqueeze(y, 1), one, one }, &ctc },
        { &aril__op_ctc_loss, 4, { seq, aril_unsqueeze(one, 1), five, one }, &ctc },
        { &aril__op_ctc_loss, 4, { seq, aril_unsqueeze(one, 1), one, five }, &ctc },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int row = 0; row < 2; row++) { /* the kernel, the reference */
            aril_tensor *out[ARIL__MAX_OUT];
            aril__force_row = row;
            CHECK_INT(aril__apply(all[i].op, all[i].n, all[i].in, all[i].attrs, out),
                      ARIL_ERR_INDEX);
            aril__force_row = -1;
            aril_clear_error();
        }
}
