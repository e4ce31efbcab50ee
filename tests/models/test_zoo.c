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

TEST(every_entry_can_be_created_with_defaults)
{
    for (int i = 0; i < aril_zoo_count(); i++) {
        aril_module *m = aril_zoo_make(aril_zoo_at(i)->name, (aril_zoo_opts){ 0 });
        CHECK_MSG(m, "%s: %s", aril_zoo_at(i)->name, aril_error());
        aril_module_release(m);
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
}
