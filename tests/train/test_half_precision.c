/* LeNet-5 trained in bf16 on MNIST: with master weights it learns as in f32. At this learning rate
 * most updates are smaller than half a unit in the last place of a bf16 weight, so that without
 * master weights it learns less. */
#include <aril/aril.h>

#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { TRAINED = 2000, TESTED = 2000, BATCH = 50, EPOCHS = 4 };

static const double learning_rate = 1e-4;

typedef struct images {
    aril_tensor *x, *y; /* [n,1,28,28] f32, normalized; [n] i64 */
} images;

/* The first n images of a split; false if they are not there. */
static bool read_images(const char *split, int64_t n, images *to)
{
    char path[512];
    const char *data = getenv("ARIL_TEST_DATA");
    snprintf(path, sizeof path, "%s/mnist", data ? data : "../shared/data");
    aril_dataset *d = aril_dataset_open(path, split);
    if (!d) return false;
    aril_loader *l = aril_loader_new(d, (aril_loader_opts){ .batch = n });
    aril_batch b = { 0 };
    bool found = l && aril_loader_next(l, &b);
    if (found) {
        aril_tensor *x = aril_mul_scalar(aril_sub_scalar(b.x, 0.1307), 1 / 0.3081);
        to->x = aril_keep(aril_copy(x));
        to->y = aril_keep(aril_copy(aril_cast(b.y, ARIL_I64)));
    }
    aril_loader_free(l);
    return found;
}

static void images_free(images *i)
{
    aril_release(i->x);
    aril_release(i->y);
}

/* Correct answers in percent. */
static double accuracy(aril_module *net, const images *test, aril_dtype dtype)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_tensor *answer = aril_argmax(aril_forward(net, aril_cast(test->x, dtype)), ARIL_AXES(1));
    return 100 * aril_item(aril_mean(aril_cast(aril_eq(answer, test->y), ARIL_F32), ARIL_ALL));
}

/* The accuracy after training in that dtype, always from the same weights and on the same
 * batches. */
static double train(const images *all, const images *test, aril_dtype dtype, bool master)
{
    ARIL_SCOPE;
    aril_seed(1);
    aril_module *net = aril_zoo_make("lenet5", (aril_zoo_opts){ 0 });
    aril_module_cast(net, dtype);
    aril_optim *o = aril_adam(aril_parameters(net),
                              (aril_adam_opts){ .lr = learning_rate, .master_weights = master });
    for (int step = 0; step < EPOCHS * TRAINED / BATCH; step++) {
        ARIL_SCOPE;
        int64_t at = step * BATCH % TRAINED;
        aril_tensor *x = aril_cast(aril_slice(all->x, 0, at, at + BATCH, 1), dtype);
        aril_tensor *y = aril_slice(all->y, 0, at, at + BATCH, 1);
        aril_backward(aril_cross_entropy(aril_cast(aril_forward(net, x), ARIL_F32), y));
        aril_step(o);
    }
    double found = accuracy(net, test, dtype);
    aril_optim_free(o);
    aril_module_release(net);
    return found;
}

TEST(bf16_with_master_weights_learns_as_f32)
{
    images all = { 0 }, test = { 0 };
    if (!read_images("train", TRAINED, &all) || !read_images("test", TESTED, &test)) {
        printf("      %s\n", aril_error());
        aril_clear_error();
        images_free(&all);
        SKIP("no MNIST");
    }
    double f32 = train(&all, &test, ARIL_F32, false);
    double without = train(&all, &test, ARIL_BF16, false);
    double with = train(&all, &test, ARIL_BF16, true);
    printf("      f32 %.2f %%, bf16 %.2f %%, bf16 with master weights %.2f %%\n", f32, without,
           with);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    CHECK(f32 > 50);
    CHECK_NEAR(with, f32, 1.5);
    CHECK(without < f32 - 4);
    images_free(&all);
    images_free(&test);
}
