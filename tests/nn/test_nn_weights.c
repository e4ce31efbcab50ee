/* Weights in files: saved weights are restored, and a file that does not fit changes nothing. */
#include "aril/aril.h"
#include "support/device.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[256], path[300];

static bool begin(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/aril-weights-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(folder)) return false;
    snprintf(path, sizeof path, "%s/net.safetensors", folder);
    return true;
}

static void end(void)
{
    unlink(path);
    rmdir(folder);
}

static aril_module *net(void)
{
    return aril_nn_sequential(aril_nn_conv2d(2, 4, 3), aril_nn_batch_norm2d(4), aril_nn_relu(),
                              aril_nn_flatten(), aril_nn_linear(64, 3));
}

static bool same_state(aril_module *a, aril_module *b)
{
    ARIL_SCOPE;
    const aril_named *x = aril_state(a), *y = aril_state(b);
    bool same = x && y && x->n == y->n;
    for (int i = 0; same && i < x->n; i++)
        same = strcmp(x->name[i], y->name[i]) == 0 &&
               aril_item_int(
                   aril_all(aril_eq(aril_detach(x->at[i]), aril_detach(y->at[i])), ARIL_ALL)) == 1;
    return same;
}

TEST(weights_round_trip)
{
    ARIL_SCOPE;
    CHECK(begin());
    aril_module *a = net(), *b = net();
    aril_forward(a,
                 aril_randn(ARIL_SHAPE(2, 2, 6, 6), ARIL_F32, test_device())); /* new statistics */
    CHECK(!same_state(a, b));
    CHECK_INT(aril_save(a, path), ARIL_OK);
    CHECK_INT(aril_load_weights(b, path, (aril_load_weights_opts){ 0 }), ARIL_OK);
    CHECK(same_state(a, b));
    CHECK_INT(aril_item_int(aril_module_tensor(b, "1.num_batches_tracked")), 1);
    CHECK(aril_requires_grad(aril_module_tensor(b, "0.weight")));
    aril_module_release(a);
    aril_module_release(b);
    end();
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

TEST(mismatched_file_changes_nothing)
{
    ARIL_SCOPE;
    CHECK(begin());
    aril_module *a = net(), *b = net(), *other = aril_nn_sequential(aril_nn_linear(2, 2));
    CHECK_INT(aril_load_state(b, aril_state(a), (aril_load_state_opts){ 0 }), ARIL_OK);
    CHECK_INT(aril_save(other, path), ARIL_OK);
    CHECK(aril_load_weights(b, path, (aril_load_weights_opts){ 0 }) < 0 && same_state(a, b));
    CHECK(!aril_ok());
    aril_clear_error();
    CHECK(aril_load_weights(b, path, (aril_load_weights_opts){ .partial = true }) < 0);
    CHECK_MSG(strstr(aril_error(), "0.weight"), "%s", aril_error()); /* another shape */
    CHECK(same_state(a, b));
    aril_clear_error();

    aril_module *moved = net();
    CHECK_INT(aril_save(moved, path), ARIL_OK);
    struct stat st;
    CHECK(stat(path, &st) == 0);
    for (off_t size = 0; size < st.st_size; size += 1 + st.st_size / 37) { /* truncated */
        CHECK_INT(aril_save(moved, path), ARIL_OK);
        CHECK(truncate(path, size) == 0);
        CHECK_MSG(aril_load_weights(b, path, (aril_load_weights_opts){ 0 }) < 0, "%lld bytes",
                  (long long)size);
        CHECK(!aril_ok() && same_state(a, b));
        aril_clear_error();
    }
    unlink(path);
    CHECK(aril_load_weights(b, path, (aril_load_weights_opts){ 0 }) < 0);
    aril_clear_error();
    CHECK(aril_save(a, "/nowhere/at/all") < 0);
    aril_clear_error();
    aril_module *unknown = aril_nn_linear(0, 2);
    CHECK(aril_save(unknown, path) == ARIL_ERR_STATE && access(path, F_OK) != 0);
    aril_clear_error();
    aril_module_release(a);
    aril_module_release(b);
    aril_module_release(other);
    aril_module_release(moved);
    aril_module_release(unknown);
    end();
}

TEST(failed_allocations)
{
    ARIL_SCOPE;
    CHECK(begin());
    aril_module *a = net(), *b = net(), *before = net();
    CHECK_INT(aril_save(a, path), ARIL_OK);
    CHECK_INT(aril_load_state(before, aril_state(b), (aril_load_state_opts){ 0 }), ARIL_OK);
    for (int64_t n = 1;; n++) {
        aril_fail_allocation(n);
        aril_status s = aril_load_weights(b, path, (aril_load_weights_opts){ 0 });
        bool failed = aril_allocation_failed();
        aril_fail_allocation(0);
        aril_clear_error();
        CHECK_MSG(same_state(b, s < 0 ? before : a), "allocation %lld", (long long)n);
        if (s == ARIL_OK && !failed) break;
        if (s == ARIL_OK)
            CHECK_INT(aril_load_state(b, aril_state(before), (aril_load_state_opts){ 0 }), ARIL_OK);
        CHECK(n < 10000);
    }
    aril_module_release(a);
    aril_module_release(b);
    aril_module_release(before);
    end();
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

TEST(missing_names)
{
    ARIL_SCOPE;
    aril_module *m = aril_nn_linear(2, 2);
    aril_tensor *t = aril_ones(ARIL_SHAPE(2, 2), ARIL_F32, test_device());
    const char *const names[] = { "weight", NULL };
    aril_tensor *const two[] = { t, t };
    CHECK_INT(aril_load_state(m, &(aril_named){ 2, two, names }, (aril_load_state_opts){ 0 }),
              ARIL_ERR_ARG);
    aril_clear_error();
    CHECK_INT(aril_load_state(m, &(aril_named){ 2, two, names },
                              (aril_load_state_opts){ .partial = true }),
              ARIL_OK);
    CHECK(aril_item(aril_sum(aril_module_tensor(m, "weight"), ARIL_ALL)) == 4);
    aril_module_release(m);
}
