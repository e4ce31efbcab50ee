/* Graphs in several threads: separate ones, and leaves that they share. */
#include <aril/aril.h>

#include "core/tensor.h"
#include "support/test.h"

#include <math.h>
#include <pthread.h>

enum { THREADS = 8 };

static void *train_alone(void *result)
{
    ARIL_SCOPE;
    aril_seed(5);
    aril_tensor *x = aril_randn(ARIL_SHAPE(20, 6), ARIL_F32, aril_cpu());
    aril_tensor *w = aril_parameter(aril_randn(ARIL_SHAPE(6, 3), ARIL_F32, aril_cpu()));
    for (int t = 0; t < 50; t++) {
        ARIL_SCOPE;
        aril_tensor *loss;
        {
            ARIL_SCOPE;
            aril_tensor *h = aril_tanh(aril_matmul(x, w));
            loss = aril_escape(aril_mean(aril_square(aril_sub_scalar(h, 0.5)), ARIL_ALL));
        }
        aril_backward(loss);
        ARIL_NO_GRAD;
        aril_sub_(w, aril_mul_scalar(aril_grad(w), 0.1));
        aril_zero_grad(w);
    }
    *(double *)result = aril_item(aril_sum(aril_detach(w), ARIL_ALL));
    if (!aril_ok()) *(double *)result = NAN;
    aril_release(w);
    return NULL;
}

TEST(threads_train_independently)
{
    pthread_t thread[THREADS];
    double result[THREADS], alone;
    train_alone(&alone);
    for (int i = 0; i < THREADS; i++) pthread_create(&thread[i], NULL, train_alone, &result[i]);
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < THREADS; i++) CHECK(result[i] == alone);
}

/* ---- one parameter, gradients from all threads ---- */

static void *add_gradients(void *w)
{
    for (int t = 0; t < 100; t++) {
        ARIL_SCOPE;
        aril_backward(aril_sum(aril_mul_scalar(w, 2), ARIL_ALL));
    }
    return aril_ok() ? NULL : w;
}

TEST(threads_share_a_leaf)
{
    ARIL_SCOPE;
    aril_tensor *w = aril_parameter(aril_ones(ARIL_SHAPE(100), ARIL_F32, aril_cpu()));
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&thread[i], NULL, add_gradients, w);
    for (int i = 0; i < THREADS; i++) {
        void *failed;
        pthread_join(thread[i], &failed);
        CHECK(!failed);
    }
    CHECK_NEAR(aril_item(aril_amin(aril_grad(w), ARIL_ALL)), THREADS * 200, 0);
    CHECK_NEAR(aril_item(aril_amax(aril_grad(w), ARIL_ALL)), THREADS * 200, 0);
    aril_release(w);
}

/* ---- a graph created by one thread, used for backward and freed by another after it ended ---- */

static void *make_graph(void *w)
{
    ARIL_SCOPE;
    aril_tensor *h = w;
    for (int i = 0; i < 1000; i++) h = aril_add(aril_mul_scalar(h, 0.5), w);
    return aril_keep(aril_sum(h, ARIL_ALL));
}

TEST(graph_outlives_its_thread)
{
    int64_t before = aril__live_blocks();
    {
        ARIL_SCOPE;
        aril_tensor *w = aril_parameter(aril_ones(ARIL_SHAPE(3), ARIL_F32, aril_cpu()));
        pthread_t thread;
        void *made;
        pthread_create(&thread, NULL, make_graph, w);
        pthread_join(thread, &made);
        aril_tensor *loss = aril_adopt(made);
        CHECK_NEAR(aril_item(loss), 6, 1e-5);
        CHECK_INT(aril_backward(loss), ARIL_OK);
        CHECK_NEAR(aril_item(aril_sum(aril_grad(w), ARIL_ALL)), 6, 1e-5);
        aril_release(w);
    }
    CHECK_INT(aril__live_blocks(), before);
}

static void *use_poison(void *poison)
{
    ARIL_SCOPE;
    bool clean = aril_ok();
    aril_tensor *y = aril_exp(poison);
    return clean && !aril_ok() && aril_tensor_status(y) == ARIL_ERR_SHAPE ? NULL : poison;
}

TEST(poison_crosses_threads)
{
    ARIL_SCOPE;
    aril_tensor *a = aril_zeros(ARIL_SHAPE(2), ARIL_F32, aril_cpu());
    aril_tensor *bad = aril_add(a, aril_zeros(ARIL_SHAPE(3), ARIL_F32, aril_cpu()));
    pthread_t thread;
    void *failed;
    pthread_create(&thread, NULL, use_poison, bad);
    pthread_join(thread, &failed);
    CHECK(!failed);
    aril_clear_error();
}

/* ---- one parameter, gradients computed by all threads, and with a hook ---- */

static void *ask_gradients(void *w)
{
    bool right = true;
    for (int t = 0; t < 300; t++) {
        ARIL_SCOPE;
        aril_tensor *g;
        aril_gradients(aril_sum(aril_mul_scalar(w, 2), ARIL_ALL), ARIL_LIST(w), &g,
                       (aril_grad_opts){ 0 });
        right = right && aril_item(aril_sum(g, ARIL_ALL)) == 200;
    }
    return aril_ok() && right ? NULL : w;
}

static aril_tensor *halve(aril_tensor *g, void *ctx)
{
    (void)ctx;
    return aril_mul_scalar(g, 0.5);
}

static void in_all_threads(void *(*fn)(void *), void *arg)
{
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&thread[i], NULL, fn, arg);
    for (int i = 0; i < THREADS; i++) {
        void *failed;
        pthread_join(thread[i], &failed);
        CHECK(!failed);
    }
}

TEST(threads_compute_gradients_of_one_leaf)
{
    ARIL_SCOPE;
    aril_tensor *w = aril_parameter(aril_ones(ARIL_SHAPE(100), ARIL_F32, aril_cpu()));
    in_all_threads(ask_gradients, w);
    CHECK(!aril_has_grad(w));
    aril_hook(w, halve, NULL);
    in_all_threads(add_gradients, w);
    CHECK_NEAR(aril_item(aril_amin(aril_grad(w), ARIL_ALL)), THREADS * 100, 0);
    CHECK_NEAR(aril_item(aril_amax(aril_grad(w), ARIL_ALL)), THREADS * 100, 0);
    aril_release(w);
}
