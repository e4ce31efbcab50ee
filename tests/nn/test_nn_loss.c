/* Losses as modules and by name. */
#include "aril/aril.h"
#include "nn/loss.h"
#include "support/compare.h"
#include "support/device.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

#define CPU test_device()

static aril_tensor *f32(int64_t n, int64_t c)
{
    return aril_randn(ARIL_SHAPE(n, c), ARIL_F32, CPU);
}

/* The result of the named module for inputs that it supports. */
static aril_tensor *by_name(const char *name, aril_nn_loss_opts opts, aril_list in)
{
    aril_module *m = aril_nn_loss_with(name, opts);
    aril_tensor *l = aril_forward_n(m, in);
    aril_module_release(m);
    return l;
}

#define SAME(got, want)                                              \
    do {                                                             \
        char *why = test_difference((got), (want), 0, 0);            \
        if (why) test_fail(__FILE__, __LINE__, "%s: %s", #got, why); \
    } while (0)

TEST(loss_modules_equal_their_functions)
{
    ARIL_SCOPE;
    aril_seed(1);
    aril_nn_loss_opts none = { 0 };
    aril_tensor *x = f32(5, 4), *y = f32(5, 4), *z = f32(5, 4), *p = aril_sigmoid(x);
    aril_tensor *t = aril_sigmoid(y), *sign = aril_sign(y), *logp = aril_log_softmax(x, 1);
    aril_tensor *c = aril_from((int64_t[]){ 0, 3, 1, 2, 2 }, ARIL_SHAPE(5), ARIL_I64, CPU);
    aril_tensor *labels =
        aril_from((int64_t[]){ 0, 2, -1, 0, 3, -1, 0, 0, -1, 0, 0, 0, 1, 0, 2, -1, 2, -1, 0, 0 },
                  ARIL_SHAPE(5, 4), ARIL_I64, CPU);
    aril_tensor *pm = aril_select(sign, 1, 0);
    aril_list two = ARIL_LIST(x, y), yes_no = ARIL_LIST(p, t), classes = ARIL_LIST(x, c);
    SAME(by_name("mse", none, two), aril_mse_loss(x, y));
    SAME(by_name("l1", none, two), aril_l1_loss(x, y));
    SAME(by_name("smooth_l1", none, two), aril_smooth_l1_loss(x, y));
    SAME(by_name("huber", none, two), aril_huber_loss(x, y));
    SAME(by_name("poisson_nll", none, ARIL_LIST(x, t)), aril_poisson_nll_loss(x, t));
    SAME(by_name("gaussian_nll", none, ARIL_LIST(x, y, t)), aril_gaussian_nll_loss(x, y, t));
    SAME(by_name("bce", none, yes_no), aril_bce_loss(p, t));
    SAME(by_name("bce_with_logits", none, ARIL_LIST(x, t)), aril_bce_with_logits(x, t));
    SAME(by_name("nll", none, ARIL_LIST(logp, c)), aril_nll_loss(logp, c));
    SAME(by_name("cross_entropy", none, classes), aril_cross_entropy(x, c));
    SAME(by_name("kl_div", none, ARIL_LIST(logp, t)), aril_kl_div(logp, t));
    SAME(by_name("multi_margin", none, classes), aril_multi_margin_loss(x, c));
    SAME(by_name("multilabel_margin", none, ARIL_LIST(x, labels)),
         aril_multilabel_margin_loss(x, labels));
    SAME(by_name("multilabel_soft_margin", none, ARIL_LIST(x, t)),
         aril_multilabel_soft_margin_loss(x, t));
    SAME(by_name("soft_margin", none, ARIL_LIST(x, sign)), aril_soft_margin_loss(x, sign));
    SAME(by_name("hinge", none, ARIL_LIST(x, sign)), aril_hinge_loss(x, sign));
    SAME(by_name("hinge_embedding", none, ARIL_LIST(x, sign)), aril_hinge_embedding_loss(x, sign));
    SAME(by_name("margin_ranking", none, ARIL_LIST(x, y, sign)),
         aril_margin_ranking_loss(x, y, sign));
    SAME(by_name("cosine_embedding", none, ARIL_LIST(x, y, pm)),
         aril_cosine_embedding_loss(x, y, pm));
    SAME(by_name("triplet_margin", none, ARIL_LIST(x, y, z)), aril_triplet_margin_loss(x, y, z));
    aril_tensor *logs = aril_log_softmax(aril_randn(ARIL_SHAPE(6, 2, 4), ARIL_F32, CPU), 2);
    aril_tensor *say = aril_from((int64_t[]){ 1, 2, 3, 1 }, ARIL_SHAPE(2, 2), ARIL_I64, CPU);
    aril_tensor *in = aril_from((int64_t[]){ 6, 5 }, ARIL_SHAPE(2), ARIL_I64, CPU);
    aril_tensor *out = aril_from((int64_t[]){ 2, 1 }, ARIL_SHAPE(2), ARIL_I64, CPU);
    SAME(by_name("ctc", none, ARIL_LIST(logs, say, in, out)), aril_ctc_loss(logs, say, in, out));
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

TEST(options_reach_the_functions)
{
    ARIL_SCOPE;
    aril_seed(2);
    aril_tensor *x = f32(3, 4), *y = f32(3, 4), *z = f32(3, 4);
    aril_tensor *c = aril_from((int64_t[]){ 0, 3, 1 }, ARIL_SHAPE(3), ARIL_I64, CPU);
    aril_tensor *w = aril_from((float[]){ 1, 2, 3, 4 }, ARIL_SHAPE(4), ARIL_F32, CPU);
    aril_tensor *t = aril_sigmoid(y);
    SAME(by_name("cross_entropy",
                 (aril_nn_loss_opts){ .weight = w, .ignore_index = 3, .label_smoothing = 0.1 },
                 ARIL_LIST(x, c)),
         aril_cross_entropy_with(x, c,
                                 (aril_cross_entropy_opts){
                                     .weight = w, .ignore_index = 3, .label_smoothing = 0.1 }));
    SAME(by_name("nll", (aril_nn_loss_opts){ .weight = w, .ignore_index = ARIL_ZERO },
                 ARIL_LIST(x, c)),
         aril_nll_loss_with(x, c, (aril_nll_loss_opts){ .weight = w, .ignore_index = ARIL_ZERO }));
    SAME(by_name("multi_margin",
                 (aril_nn_loss_opts){ .weight = w, .margin = 2, .p = 2, .sum_classes = true },
                 ARIL_LIST(x, c)),
         aril_multi_margin_loss_with(x, c,
                                     (aril_multi_margin_opts){
                                         .weight = w, .margin = 2, .p = 2, .sum_classes = true }));
    SAME(by_name("bce_with_logits", (aril_nn_loss_opts){ .weight = w, .pos_weight = w },
                 ARIL_LIST(x, t)),
         aril_bce_with_logits_with(x, t,
                                   (aril_bce_with_logits_opts){ .weight = w, .pos_weight = w }));
    SAME(by_name("mse", (aril_nn_loss_opts){ .weight = w, .reduction = ARIL_SUM }, ARIL_LIST(x, y)),
         aril_mse_loss_with(x, y, (aril_loss_opts){ .weight = w, .reduction = ARIL_SUM }));
    SAME(by_name("smooth_l1", (aril_nn_loss_opts){ .beta = 0.3 }, ARIL_LIST(x, y)),
         aril_smooth_l1_loss_with(x, y, (aril_smooth_l1_opts){ .beta = 0.3 }));
    SAME(by_name("huber", (aril_nn_loss_opts){ .delta = 0.3 }, ARIL_LIST(x, y)),
         aril_huber_loss_with(x, y, (aril_huber_opts){ .delta = 0.3 }));
    SAME(by_name("poisson_nll", (aril_nn_loss_opts){ .rate = true, .full = true, .eps = 0.1 },
                 ARIL_LIST(t, t)),
         aril_poisson_nll_loss_with(
             t, t, (aril_poisson_nll_opts){ .rate = true, .full = true, .eps = 0.1 }));
    SAME(by_name("kl_div", (aril_nn_loss_opts){ .log_target = true, .reduction = ARIL_BATCHMEAN },
                 ARIL_LIST(x, y)),
         aril_kl_div_with(x, y,
                          (aril_kl_div_opts){ .log_target = true, .reduction = ARIL_BATCHMEAN }));
    SAME(by_name("triplet_margin",
                 (aril_nn_loss_opts){ .margin = 3, .p = 1, .eps = 1e-3, .swap = true },
                 ARIL_LIST(x, y, z)),
         aril_triplet_margin_loss_with(x, y, z,
                                       (aril_triplet_margin_opts){
                                           .margin = 3, .p = 1, .eps = 1e-3, .swap = true }));
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

TEST(names_have_aliases)
{
    CHECK_STR(aril__loss_find("cross_entropy")->type, "CrossEntropyLoss");
    CHECK_STR(aril__loss_find("CrossEntropyLoss")->name, "cross_entropy");
    CHECK_STR(aril__loss_find("mse_loss")->name, "mse");
    CHECK_STR(aril__loss_find("mae")->name, "l1");
    CHECK_STR(aril__loss_find("svm")->name, "multi_margin");
    int n = 0;
    const char *const *names = aril_nn_loss_names(&n);
    CHECK_INT(n, 21);
    for (int i = 0; i < n; i++) CHECK_STR(aril__loss_find(names[i])->name, names[i]);
    CHECK(aril_ok());
}

TEST(losses_say_what_their_scores_are)
{
    static const struct {
        const char *name;
        unsigned is;
    } known[] = { { "mse", ARIL__LOSS_DIFFERENCE },
                  { "cross_entropy", ARIL__LOSS_CLASSES },
                  { "nll", ARIL__LOSS_CLASSES },
                  { "multi_margin", ARIL__LOSS_CLASSES },
                  { "bce", ARIL__LOSS_LABELS },
                  { "bce_with_logits", ARIL__LOSS_LABELS | ARIL__LOSS_LOGITS },
                  { "multilabel_soft_margin", ARIL__LOSS_LABELS | ARIL__LOSS_LOGITS },
                  { "multilabel_margin", 0 },
                  { "soft_margin", ARIL__LOSS_LOGITS },
                  { "hinge", ARIL__LOSS_LOGITS },
                  { "hinge_embedding", ARIL__LOSS_LOGITS },
                  { "kl_div", ARIL__LOSS_BATCHMEAN } };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        CHECK_MSG(aril__loss_find(known[i].name)->is == known[i].is, "%s", known[i].name);
}

#define REFUSED(call, code, text)                                                     \
    do {                                                                              \
        CHECK((call) == NULL);                                                        \
        CHECK_INT(aril_error_code(), code);                                           \
        CHECK_MSG(strstr(aril_error(), (text)), "%s: no '%s'", aril_error(), (text)); \
        aril_clear_error();                                                           \
    } while (0)

/* Adding the same number to prediction and target changes no loss of their difference. */
TEST(losses_say_whether_they_are_of_differences)
{
    ARIL_SCOPE;
    int n, differences = 0;
    const char *const *names = aril_nn_loss_names(&n);
    aril_tensor *x = aril_rand(ARIL_SHAPE(3, 4), ARIL_F64, test_device());
    aril_tensor *y = aril_rand(ARIL_SHAPE(3, 4), ARIL_F64, test_device());
    aril_tensor *x1 = aril_add_scalar(x, 1), *y1 = aril_add_scalar(y, 1);
    for (int i = 0; i < n; i++) {
        bool is = aril_nn_loss_is_difference(names[i]);
        CHECK(!(is && aril_nn_loss_is_of_classes(names[i])));
        differences += is;
        if (!is) continue;
        aril_module *m = aril_nn_loss(names[i]);
        double loss = aril_item(aril_forward_n(m, ARIL_LIST(x, y)));
        CHECK_NEAR(aril_item(aril_forward_n(m, ARIL_LIST(x1, y1))), loss, 1e-12);
        aril_module_release(m);
    }
    CHECK_INT(differences, 4);
    CHECK(aril_nn_loss_is_difference("mae") && aril_nn_loss_is_difference("MSELoss"));
    CHECK(aril_nn_loss_is_of_classes("svm") && !aril_nn_loss_is_of_classes("bce"));
    CHECK(aril_ok());
    CHECK(!aril_nn_loss_is_difference("mes") && aril_error_code() == ARIL_ERR_ARG);
    aril_clear_error();
    CHECK(!aril_nn_loss_is_of_classes(NULL) && aril_error_code() == ARIL_ERR_ARG);
    aril_clear_error();
}

TEST(invalid_names_and_options_are_explained)
{
    ARIL_SCOPE;
    aril_tensor *w = aril_ones(ARIL_SHAPE(3), ARIL_F32, CPU);
    REFUSED(aril_nn_loss("cross_entorpy"), ARIL_ERR_ARG, "did you mean cross_entropy?");
    REFUSED(aril_nn_loss("multi_margn_loss"), ARIL_ERR_ARG, "did you mean multi_margin?");
    REFUSED(aril_nn_loss("zzz"), ARIL_ERR_ARG, "known losses: mse, l1,");
    REFUSED(aril_nn_loss(""), ARIL_ERR_ARG, "unknown loss ''");
    REFUSED(aril_nn_loss(NULL), ARIL_ERR_ARG, "NULL");
    REFUSED(aril_nn_loss_with("mse", (aril_nn_loss_opts){ .margin = 1 }), ARIL_ERR_ARG,
            "mse: no option 'margin'");
    REFUSED(aril_nn_loss_with("hinge", (aril_nn_loss_opts){ .weight = w }), ARIL_ERR_ARG,
            "hinge: no option 'weight'");
    REFUSED(aril_nn_loss_with("mse", (aril_nn_loss_opts){ .reduction = ARIL_BATCHMEAN }),
            ARIL_ERR_ARG, "kl_div");
    REFUSED(aril_nn_loss_with("mse", (aril_nn_loss_opts){ .reduction = ARIL_MAX }), ARIL_ERR_ARG,
            "reduction");
    REFUSED(aril_nn_loss_with("multi_margin", (aril_nn_loss_opts){ .p = 1.5 }), ARIL_ERR_ARG,
            "expected 1 or 2");
}

TEST(number_of_inputs_is_checked)
{
    ARIL_SCOPE;
    aril_module *m = aril_nn_loss("mse");
    aril_tensor *x = aril_ones(ARIL_SHAPE(3), ARIL_F32, CPU);
    CHECK_INT(aril_tensor_status(aril_forward(m, x)), ARIL_ERR_ARG);
    CHECK_MSG(strstr(aril_error(), "expects 2 inputs, got 1"), "%s", aril_error());
    aril_clear_error();
    CHECK_INT(aril_tensor_status(aril_forward_n(m, ARIL_LIST(x, NULL))), ARIL_ERR_ARG);
    aril_clear_error();
    CHECK_INT(aril_tensor_status(aril_forward_n(m, ARIL_LIST(x, x, x))), ARIL_ERR_ARG);
    aril_clear_error();
    aril_module_release(m);
}

TEST(weight_is_a_buffer)
{
    ARIL_SCOPE;
    aril_tensor *w = aril_from((float[]){ 1, 2, 3 }, ARIL_SHAPE(3), ARIL_F32, CPU);
    aril_module *m = aril_nn_loss_with("cross_entropy", (aril_nn_loss_opts){ .weight = w });
    const aril_named *state = aril_state(m);
    CHECK(state && state->n == 1);
    CHECK_STR(state->name[0], "weight");
    CHECK_INT(aril_parameter_count(m), 0);
    aril_module_cast(m, ARIL_F64);
    aril_tensor *x = aril_cast(f32(2, 3), ARIL_F64);
    aril_tensor *c = aril_from((int64_t[]){ 2, 0 }, ARIL_SHAPE(2), ARIL_I64, CPU);
    aril_tensor *l = aril_forward_n(m, ARIL_LIST(x, c));
    aril_tensor *want =
        aril_cross_entropy_with(x, c,
                                (aril_cross_entropy_opts){ .weight = aril_cast(w, ARIL_F64) });
    SAME(l, want);
    aril_module_release(m);
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

TEST(one_value_for_each_sample)
{
    ARIL_SCOPE;
    aril_seed(3);
    aril_nn_loss_opts none = { 0 };
    aril_tensor *x = f32(5, 4), *y = f32(5, 4);
    aril_tensor *c = aril_from((int64_t[]){ 0, 3, 1, 2, 2 }, ARIL_SHAPE(5), ARIL_I64, CPU);
    const aril__loss *mse = aril__loss_find("mse"), *ce = aril__loss_find("cross_entropy");
    aril_tensor *each = aril__loss_per_sample(mse, (aril_tensor *[]){ x, y }, &none);
    CHECK_INT(aril_ndim(each), 1);
    CHECK_INT(aril_size(each, 0), 5);
    CHECK_NEAR(aril_item(aril_mean(each, ARIL_ALL)), aril_item(aril_mse_loss(x, y)), 1e-6);
    aril_tensor *row = aril_mse_loss(aril_select(x, 0, 2), aril_select(y, 0, 2));
    CHECK_NEAR(aril_item(aril_select(each, 0, 2)), aril_item(row), 1e-6);
    each = aril__loss_per_sample(ce, (aril_tensor *[]){ x, c }, &none);
    CHECK_INT(aril_ndim(each), 1);
    row = aril_cross_entropy(aril_select(x, 0, 1), aril_select(c, 0, 1));
    CHECK_NEAR(aril_item(aril_select(each, 0, 1)), aril_item(row), 1e-6);
    CHECK(ce->is == ARIL__LOSS_CLASSES && ce->inputs == 2 && mse->is == ARIL__LOSS_DIFFERENCE);
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

TEST(gradients_go_through_a_loss)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_parameter(f32(4, 3)), *g;
    aril_tensor *c = aril_from((int64_t[]){ 0, 2, 1, 1 }, ARIL_SHAPE(4), ARIL_I64, CPU);
    aril_module *m = aril_nn_loss("multi_margin");
    aril_backward(aril_forward_n(m, ARIL_LIST(x, c)));
    aril_gradients(aril_multi_margin_loss(x, c), ARIL_LIST(x), &g, (aril_grad_opts){ 0 });
    SAME(aril_grad(x), g);
    aril_module_release(m);
    aril_release(x);
    CHECK_MSG(aril_ok(), "%s", aril_error());
}
