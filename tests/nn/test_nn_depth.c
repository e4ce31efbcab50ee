/* Modules inside modules: nesting is bounded, and every recursion over a tree of maximum depth fits
 * the stack of an ordinary thread. */
#include "aril/aril.h"
#include "support/device.h"
#include "support/temp.h"
#include "support/test.h"

#include <pthread.h>
#include <string.h>

enum { TOO_DEEP = 8000, STACK = 8 << 20 };

/* Runs a test's body in a thread with an 8 MB stack. */
static void *call(void *body)
{
    (*(void (**)(void))body)();
    return NULL;
}

static void with_plain_stack(void (*body)(void))
{
    pthread_attr_t attr;
    pthread_t thread;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK);
    CHECK_INT(pthread_create(&thread, &attr, call, &body), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
}

/* The outermost of `levels` nested modules; NULL when one could not be added. */
static aril_module *wrapped(int levels)
{
    aril_module *m = aril_nn_linear(2, 2);
    for (int i = 0; i < levels && m != NULL; i++) m = aril_nn_sequential(m);
    return m;
}

/* The same built from the outside in. */
static aril_module *filled(int levels, int *made)
{
    aril_module *root = aril_nn_sequential(aril_nn_identity()), *at = root;
    *made = 1;
    while (*made < levels) {
        aril_module *next = aril_module_add(at, "in", aril_nn_sequential(aril_nn_identity()));
        if (next == NULL) break;
        at = next;
        ++*made;
    }
    return root;
}

static void refuses(void)
{
    CHECK_MSG(wrapped(TOO_DEEP) == NULL, "8,000 levels went in");
    CHECK_MSG(strstr(aril_error(), "deep") != NULL, "%s", aril_error());
    aril_clear_error();
    int made;
    aril_module *m = filled(TOO_DEEP, &made);
    CHECK_MSG(made < TOO_DEEP, "8,000 levels went in");
    CHECK_MSG(strstr(aril_error(), "deep") != NULL, "%s", aril_error());
    aril_clear_error();
    /* A module that is already deep rejects a tall subtree, wherever it is added. */
    aril_module *tall = wrapped(ARIL_MODULE_DEPTH - 1);
    CHECK(tall != NULL);
    CHECK(aril_module_add(m, "tall", aril_nn_sequential(tall)) == NULL);
    aril_clear_error();
    aril_module_release(m);
}

TEST(nesting_depth_is_limited)
{
    with_plain_stack(refuses);
}

static void count(aril_module *m, const char *path, void *ctx)
{
    (void)m, (void)path;
    ++*(int *)ctx;
}

static void walks(void)
{
    ARIL_SCOPE;
    aril_module *m = wrapped(ARIL_MODULE_DEPTH);
    CHECK_MSG(m != NULL, "%s", aril_error());
    aril_tensor *x = aril_ones(ARIL_SHAPE(3, 2), ARIL_F32, test_device());
    CHECK_INT(aril_backward(aril_sum(aril_forward(m, x), ARIL_ALL)), ARIL_OK);
    int n = 0;
    CHECK_INT(aril_module_visit(m, count, &n), ARIL_OK);
    CHECK_INT(n, ARIL_MODULE_DEPTH + 1);
    CHECK(aril_module_built(m));
    CHECK_INT(aril_parameters(m)->n, 2);
    CHECK_INT(aril_parameter_count(m), 6);
    aril_module_eval(m);
    aril_module_train(m);
    aril_module_freeze(m);
    aril_module_unfreeze(m);
    aril_module_zero_grad(m);
    aril_module_reset(m);
    CHECK_INT(aril_module_cast(m, ARIL_F64), ARIL_OK);
    CHECK_INT(aril_module_cast(m, ARIL_F32), ARIL_OK);
    CHECK_INT(aril_module_to(m, test_device()), ARIL_OK);
    CHECK_INT(aril_save(m, temp_path("deep.safetensors")), ARIL_OK);
    CHECK_INT(aril_load_weights(m, temp_path("deep.safetensors"), (aril_load_weights_opts){ 0 }),
              ARIL_OK);
    FILE *f = fopen(temp_path("deep.txt"), "w");
    aril_module_print(m, f);
    CHECK_INT(aril_summary(m, ARIL_SHAPE(2), f), ARIL_OK);
    fclose(f);
    aril_tensorboard *tb = aril_tensorboard_new(temp_path("board"));
    CHECK_INT(aril_tensorboard_module(tb, m, ARIL_SHAPE(2)), ARIL_OK);
    aril_tensorboard_free(tb);
    /* An error names the module at any depth. */
    CHECK(aril_tensor_status(
              aril_forward(m, aril_ones(ARIL_SHAPE(3, 5), ARIL_F32, test_device()))) < 0);
    aril_clear_error();
    aril_module_release(m);
}

TEST(every_traversal_reaches_the_deepest_module)
{
    with_plain_stack(walks);
}
