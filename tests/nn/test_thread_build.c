/* The first forward of a module creates the parameters whose sizes depend on its input: once,
 * whichever thread comes first. */
#include "aril/aril.h"
#include "support/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { THREADS = 8, ROUNDS = 20 };

static pthread_barrier_t start;
static atomic_int wrong, builds;

typedef struct job {
    aril_module *net;
    aril_shape shape;
    float first;
} job;

static void *first_forward(void *arg)
{
    job *j = arg;
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_tensor *x = aril_ones(j->shape, ARIL_F32, aril_cpu());
    pthread_barrier_wait(&start);
    aril_tensor *y = aril_forward(j->net, x);
    if (aril_tensor_status(y) < 0)
        atomic_fetch_add(&wrong, 1);
    else
        memcpy(&j->first, aril_data(aril_contiguous(y)), sizeof j->first);
    return NULL;
}

/* Eight threads run an unbuilt module concurrently: all get the same numbers. */
static void meet(aril_module *net, aril_shape shape)
{
    pthread_t threads[THREADS];
    job jobs[THREADS];
    aril_module_eval(net);
    pthread_barrier_init(&start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        jobs[i] = (job){ .net = net, .shape = shape };
        pthread_create(&threads[i], NULL, first_forward, &jobs[i]);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&start);
    CHECK_INT(atomic_load(&wrong), 0);
    for (int i = 1; i < THREADS; i++)
        CHECK(memcmp(&jobs[i].first, &jobs[0].first, sizeof(float)) == 0);
    CHECK(aril_module_built(net));
    aril_module_release(net);
}

TEST(first_forward_by_eight_threads)
{
    for (int round = 0; round < ROUNDS && !test_failed(); round++) {
        meet(aril_nn_sequential(aril_nn_linear(0, 16), aril_nn_relu(), aril_nn_batch_norm1d(0),
                                aril_nn_linear(0, 4)),
             ARIL_SHAPE(3, 5));
        meet(aril_nn_sequential(aril_nn_lstm(0, 6), aril_nn_layer_norm(0), aril_nn_linear(0, 2)),
             ARIL_SHAPE(4, 2, 3));
    }
}

/* A custom class, whose build runs a child that is not built either. */
static aril_status outer_build(aril_module *self, int n_in, aril_tensor *const *in)
{
    (void)n_in;
    atomic_fetch_add(&builds, 1);
    aril_module *inner = aril_module_add(self, "inner", aril_nn_linear(0, 3));
    return aril_tensor_status(aril_forward(inner, in[0]));
}

static void outer_forward(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                          aril_tensor **out)
{
    (void)n_in, (void)n_out;
    out[0] = aril_forward(aril_module_child(self, 0), in[0]);
}

TEST(recursive_build_runs_once)
{
    static const aril_module_class outer = { .type = "Outer",
                                             .forward = outer_forward,
                                             .build = outer_build };
    for (int round = 0; round < ROUNDS && !test_failed(); round++) {
        atomic_store(&builds, 0);
        meet(aril_module_make(&outer), ARIL_SHAPE(2, 5));
        CHECK_INT(atomic_load(&builds), 1);
    }
}
