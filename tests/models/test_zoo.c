/* Networks of the zoo: sizes from the papers, shapes of results. */
#include "support/test.h"

#include <aril/aril.h>
#include <aril/nn.h>
#include <aril/zoo.h>

#include <string.h>

static void check(const char *name, aril_shape input, int64_t classes, int64_t parameters)
{
    ARIL_SCOPE;
    aril_seed(1);
    aril_module *m = aril_zoo_make(name, (aril_zoo_opts){ .input = input, .classes = classes });
    CHECK_MSG(m, "%s: %s", name, aril_error());
    CHECK_MSG(aril_parameter_count(m) == parameters, "%s has %lld parameters", name,
              (long long)aril_parameter_count(m));
    aril_shape batch = { .ndim = input.ndim + 1, .dim = { 3 } };
    for (int i = 0; i < input.ndim; i++) batch.dim[i + 1] = input.dim[i];
    aril_tensor *y = aril_forward(m, aril_randn(batch, ARIL_F32, aril_cpu()));
    CHECK_INT(aril_ndim(y), 2);
    CHECK_INT(aril_size(y, 0), 3);
    CHECK_INT(aril_size(y, 1), classes);
    aril_backward(aril_sum(aril_square(y), ARIL_ALL));
    const aril_named *p = aril_parameters(m);
    for (int i = 0; i < p->n; i++)
        CHECK_MSG(aril_has_grad(p->at[i]), "%s: %s has no gradient", name, p->name[i]);
    CHECK_MSG(aril_ok(), "%s: %s", name, aril_error());
    aril_module_release(m);
}

TEST(lenet5)
{
    check("lenet5", ARIL_SHAPE(1, 28, 28), 10, 61706);
    check("lenet5", ARIL_SHAPE(1, 32, 32), 10, 61706);
    check("lenet5", ARIL_SHAPE(3, 32, 32), 100, 156 + 300 + 2416 + 48120 + 10164 + 8500);
}

/* C1 156, S2 12, C3 1516, S4 32, C5 48120, F6 10164 are the paper's; C3's weights that the paper's
 * table omits are stored as zeros (2416 parameters), and the last layer is a linear one. */
TEST(lenet5_as_published)
{
    check("lenet5-1998", ARIL_SHAPE(1, 28, 28), 10, 156 + 12 + 2416 + 32 + 48120 + 10164 + 850);
    ARIL_SCOPE;
    aril_module *m = aril_zoo_make("lenet5-1998", (aril_zoo_opts){ 0 });
    aril_tensor *mask = aril_module_tensor(m, "3.mask");
    CHECK_INT(aril_item(aril_sum(mask, ARIL_ALL)) * 25 + 16, 1516);
    aril_module_release(m);
    CHECK(aril_zoo_make("lenet5-1998", (aril_zoo_opts){ .input = ARIL_SHAPE(3, 32, 32) }) == NULL);
    CHECK(strstr(aril_error(), "one channel"));
    aril_clear_error();
}

TEST(plain_networks)
{
    check("mlp", ARIL_SHAPE(1, 28, 28), 10, 785 * 256 + 257 * 128 + 129 * 10);
    check("two_layer", ARIL_SHAPE(1000), 1000, 1001 * 100 + 101 * 1000);
    check("convnet", ARIL_SHAPE(3, 32, 32), 10, 896 + 9248 + 18496 + 36928 + 1601 * 256 + 2570);
}

TEST(networks_for_images_of_other_sizes)
{
    check("alexnet", ARIL_SHAPE(1, 64, 70), 5, 61100840 - 995 * 4097 - 2 * 64 * 121);
    check("googlenet", ARIL_SHAPE(3, 40, 33), 10, 6624904 - 990 * 1025);
    check("resnet18", ARIL_SHAPE(4, 32, 32), 10, 11689512 - 990 * 513 + 64 * 49);
    check("resnet50", ARIL_SHAPE(3, 33, 40), 10, 25557032 - 990 * 2049);
    check("densenet121", ARIL_SHAPE(3, 32, 32), 10, 7978856 - 990 * 1025);
    check("squeezenet1_0", ARIL_SHAPE(3, 48, 40), 10, 1248424 - 990 * 513);
    check("squeezenet1_1", ARIL_SHAPE(3, 33, 40), 10, 1235496 - 990 * 513);
    check("mobilenet_v2", ARIL_SHAPE(3, 32, 32), 10, 3504872 - 990 * 1281);
}

TEST(gpt2_reads_tokens)
{
    ARIL_SCOPE;
    aril_module *m =
        aril_zoo_make("gpt2", (aril_zoo_opts){ .input = ARIL_SHAPE(8), .classes = 50 });
    aril_tensor *x = aril_randint(0, 50, ARIL_SHAPE(2, 8), ARIL_I64, aril_cpu());
    aril_tensor *y = aril_forward(m, x);
    CHECK_INT(aril_size(y, 2), 50);
    /* What comes later does not change what was said before. */
    aril_tensor *before = aril_forward(m, aril_slice(x, 1, 0, 5, 1));
    CHECK(aril_allclose(aril_slice(y, 1, 0, 5, 1), before, (aril_close_opts){ .atol = 1e-4 }));
    CHECK_INT(aril_backward(aril_mean(aril_square(y), ARIL_ALL)), ARIL_OK);
    const aril_named *p = aril_parameters(m);
    for (int i = 0; i < p->n; i++) CHECK_MSG(aril_has_grad(p->at[i]), "%s", p->name[i]);
    aril_tensor *long_ = aril_randint(0, 50, ARIL_SHAPE(2, 9), ARIL_I64, aril_cpu());
    CHECK(aril_tensor_status(aril_forward(m, long_)) < 0); /* there are 8 positions */
    aril_clear_error();
    aril_module_release(m);
}

static void count_calls(aril_module *m, int n_in, aril_tensor *const *in, int n_out,
                        aril_tensor **out, void *ctx)
{
    (void)m, (void)n_in, (void)in, (void)n_out, (void)out;
    ++*(int *)ctx;
}

/* With hooks, blocks do not fuse the batch norm with what follows. */
TEST(hooks_within_blocks_see_every_layer)
{
    static const struct {
        const char *network, *layer;
    } cases[] = { { "resnet18", "layer1.0.bn2" },
                  { "resnet50", "layer2.1.bn1" },
                  { "mobilenet_v2", "features.3.conv.3" },
                  { "mobilenet_v2", "features.3.conv" },
                  { "squeezenet1_1", "features.3.squeeze" } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ARIL_SCOPE;
        int calls = 0;
        aril_module *m = aril_zoo_make(cases[i].network, (aril_zoo_opts){ .classes = 4 });
        aril_module_eval(m);
        aril_tensor *x = aril_randn(ARIL_SHAPE(2, 3, 64, 64), ARIL_F32, aril_cpu());
        aril_tensor *y = aril_forward(m, x);
        CHECK(aril_module_hook_after(aril_module_at(m, cases[i].layer), count_calls, &calls) > 0);
        CHECK_MSG(aril_allclose(aril_forward(m, x), y, (aril_close_opts){ .atol = 1e-5 }), "%s",
                  cases[i].layer);
        CHECK_INT(calls, 1);
        aril_module_release(m);
    }
}

TEST(entries_have_names_and_descriptions)
{
    for (int i = 0; i < aril_zoo_count(); i++) {
        const aril_zoo_entry *e = aril_zoo_at(i);
        CHECK(e->name[0] && e->about[0] && e->make && e->classes > 0 && e->input.ndim > 0);
        CHECK(aril_zoo_find(e->name) == e);
    }
    CHECK(aril_zoo_at(-1) == NULL && aril_zoo_at(aril_zoo_count()) == NULL);
}

TEST(invalid_arguments_are_rejected)
{
    CHECK(aril_zoo_make("lenet", (aril_zoo_opts){ 0 }) == NULL);
    CHECK(strstr(aril_error(), "did you mean lenet5?"));
    aril_clear_error();
    CHECK(aril_zoo_make("lenet5", (aril_zoo_opts){ .classes = -1 }) == NULL);
    aril_clear_error();
    CHECK(aril_zoo_make("lenet5", (aril_zoo_opts){ .input = ARIL_SHAPE(1, 4, 4) }) == NULL);
    CHECK(!aril_ok());
    aril_clear_error();
    static const char *const images[] = { "alexnet",     "vgg16",         "googlenet",   "resnet18",
                                          "densenet121", "squeezenet1_1", "mobilenet_v2" };
    for (size_t i = 0; i < sizeof images / sizeof *images; i++) {
        CHECK(aril_zoo_make(images[i], (aril_zoo_opts){ .input = ARIL_SHAPE(1000) }) == NULL);
        CHECK(strstr(aril_error(), "expects images"));
        aril_clear_error();
    }
    CHECK(aril_zoo_make("gpt2", (aril_zoo_opts){ .input = ARIL_SHAPE(3, 8, 8) }) == NULL);
    CHECK(strstr(aril_error(), "sequences of tokens"));
    aril_clear_error();
}
