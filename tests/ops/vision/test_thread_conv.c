/* Threads that share a weight: one or several of them pack it, and all use the packed form; results
 * equal those of one thread. */
#include "support/test.h"

#include "aril/aril.h"

#include <pthread.h>
#include <string.h>

enum { THREADS = 4, TURNS = 40, SIZES = 3 };

static const int64_t size[SIZES] = { 9, 14, 17 };
static aril_tensor *x[SIZES], *w, *want[SIZES];

static aril_tensor *run(int i)
{
    return aril_contiguous(aril_conv2d(
        x[i], w, NULL, (aril_conv_opts){ .padding = { 1, 1 }, .activation = ARIL_RELU }));
}

static void *work(void *arg)
{
    int wrong = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        ARIL_SCOPE;
        int i = (turn + *(int *)arg) % SIZES;
        aril_tensor *y = run(i);
        if (!aril_ok() ||
            memcmp(aril_data(y), aril_data(want[i]), sizeof(float) * (size_t)aril_numel(y)))
            wrong++;
    }
    *(int *)arg = wrong;
    return NULL;
}

TEST(threads_share_a_weight)
{
    ARIL_SCOPE;
    aril_set_deterministic(ARIL_ANY_THREADS); /* cuts loops the same way, whoever has the workers */
    aril_seed(5);
    w = aril_randn(ARIL_SHAPE(32, 16, 3, 3), ARIL_F32, aril_cpu());
    for (int i = 0; i < SIZES; i++) {
        x[i] = aril_randn(ARIL_SHAPE(2, 16, size[i], size[i]), ARIL_F32, aril_cpu());
        want[i] = run(i);
    }
    for (int turn = 0; turn < 4; turn++) {
        aril_mul_(w, aril_scalar(1)); /* an identity write: the weight is packed again */
        pthread_t thread[THREADS];
        int result[THREADS];
        for (int t = 0; t < THREADS; t++) {
            result[t] = t;
            CHECK_INT(pthread_create(&thread[t], NULL, work, &result[t]), 0);
        }
        for (int t = 0; t < THREADS; t++) {
            pthread_join(thread[t], NULL);
            CHECK_INT(result[t], 0);
        }
    }
    aril_set_deterministic(ARIL_SAME_THREADS);
}
