/* Networks of the zoo in compiled training steps: the numbers of single operations, and no silent
 * fallback. */
#include "aril/aril.h"
#include "aril/zoo.h"
#include "support/compare.h"
#include "support/test.h"
#include "train/compiled.h"

#include <math.h>
#include <string.h>

static void check_same(const char *name, aril_model *a, aril_model *b)
{
    const aril_named *p = aril_state(aril_model_module(a)), *q = aril_state(aril_model_module(b));
    for (int i = 0; i < p->n; i++) {
        char *why = test_difference_in_value(p->at[i], q->at[i], 0, 0);
        CHECK_MSG(!why, "%s: %s: %s", name, p->name[i], why);
    }
}

/* Steps of each network: one is traced, the others are replayed. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STEPS = 2 };
#else
enum { STEPS = 3 };
#endif

typedef struct zoo_case {
    const char *name;
    aril_shape input;
    int64_t classes;
    bool tokens;
} zoo_case;

static aril_tensor *next_token(aril_tensor *output, aril_tensor *target, void *ctx)
{
    (void)ctx;
    int64_t words = aril_size(output, 2);
    return aril_cross_entropy(aril_reshape(output, ARIL_SHAPE(-1, words)),
                              aril_reshape(target, ARIL_SHAPE(-1)));
}

static void train_zoo(const zoo_case *c, bool eager, aril_model **made)
{
    ARIL_SCOPE;
    aril_seed(7);
    aril_module *net =
        aril_zoo_make(c->name, (aril_zoo_opts){ .input = c->input, .classes = c->classes });
    CHECK_MSG(net, "%s: %s", c->name, aril_error());
    aril_model *m = *made = aril_model_new(net, ARIL_SHAPE());
    aril_model_compile(m, (aril_model_opts){ .loss = c->tokens ? NULL : "cross_entropy",
                                             .loss_fn = c->tokens ? next_token : NULL,
                                             .optimizer =
                                                 aril_sgd(NULL, (aril_sgd_opts){ .lr = 0.001 }),
                                             .eager = eager });
    aril_shape all = { .ndim = c->input.ndim + 1, .dim = { 2 * STEPS } };
    memcpy(all.dim + 1, c->input.dim, sizeof(int64_t) * (size_t)c->input.ndim);
    aril_tensor *x = c->tokens ? aril_randint(0, c->classes, all, ARIL_I64, aril_cpu())
                               : aril_randn(all, ARIL_F32, aril_cpu());
    aril_tensor *y =
        c->tokens ? x : aril_randint(0, c->classes, ARIL_SHAPE(2 * STEPS), ARIL_I64, aril_cpu());
    aril_history *h = aril_model_fit(
        m, x, y, (aril_fit_opts){ .batch_size = 2, .no_shuffle = true, .verbose = ARIL_SILENT });
    CHECK_MSG(h && aril_ok(), "%s: %s", c->name, aril_error());
}

/* Every network of src/models. The larger ones of a family differ in numbers only. */
TEST(networks_train_compiled)
{
    static const zoo_case cases[] = {
        { "lenet5", { 3, { 1, 28, 28 } }, 10, false },
        { "lenet5-1998", { 3, { 1, 28, 28 } }, 10, false },
        { "mlp", { 3, { 1, 8, 8 } }, 10, false },
        { "two_layer", { 1, { 20 } }, 5, false },
        { "convnet", { 3, { 3, 32, 32 } }, 10, false },
        { "alexnet", { 3, { 3, 64, 64 } }, 4, false },
        { "vgg11_bn", { 3, { 3, 32, 32 } }, 4, false },
        { "googlenet", { 3, { 3, 33, 40 } }, 4, false },
        { "resnet18", { 3, { 3, 32, 32 } }, 4, false },
        { "resnet50", { 3, { 3, 32, 32 } }, 4, false },
        { "densenet121", { 3, { 3, 32, 32 } }, 4, false },
        { "squeezenet1_1", { 3, { 3, 33, 40 } }, 4, false },
        { "mobilenet_v2", { 3, { 3, 64, 64 } }, 4, false },
        { "nin", { 3, { 3, 32, 32 } }, 10, false },
        { "resnet20", { 3, { 3, 32, 32 } }, 10, false },
        { "inception_v3", { 3, { 3, 75, 75 } }, 4, false },
        { "resnext50_32x4d", { 3, { 3, 33, 33 } }, 4, false },
        { "mobilenet_v3_small", { 3, { 3, 64, 64 } }, 4, false },
        { "shufflenet_v2_x0_5", { 3, { 3, 64, 64 } }, 4, false },
        { "efficientnet_b0", { 3, { 3, 64, 64 } }, 4, false },
        { "convnext_tiny", { 3, { 3, 32, 32 } }, 4, false },
        { "vit_b_16", { 3, { 3, 32, 32 } }, 4, false },
        { "gpt2", { 1, { 8 } }, 50, true },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases && !test_failed(); i++) {
        const zoo_case *c = &cases[i];
        aril_model *a, *b;
        train_zoo(c, false, &a);
        train_zoo(c, true, &b);
        if (test_failed()) break;
        double got = aril_history_at(a->history, "loss", -1);
        double want = aril_history_at(b->history, "loss", -1);
        CHECK_MSG(!aril_model_eager_reason(a), "%s: %s", c->name, aril_model_eager_reason(a));
        CHECK_INT(aril__model_traces(a, ARIL__TRAIN_STEP), 1);
        CHECK_MSG(isfinite(got) && got == want, "%s: loss %.9g, eager %.9g", c->name, got, want);
        check_same(c->name, a, b);
        aril_model_free(a);
        aril_model_free(b);
    }
}
