/* Streams: work on tensors waits for other streams on the device, memory is reused only after its
 * last user, and threads compute at the same time in streams of their own. On the strict device a
 * stream can be held, so that what does not wait for it goes wrong. */
#include <aril/aril.h>

#include "core/device.h"
#include "plugin/strict.h"
#include "support/device.h"
#include "support/test.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { N = 1000 };

static bool on_strict(void)
{
    char name[32];
    return strncmp(aril_device_name(test_device(), name, sizeof name), "strict", 6) == 0;
}

/* Holds the newest queue of the strict device; on others, streams run as they like. */
static void hold(bool held)
{
    if (on_strict()) strict_hold(test_device().index, held);
}

static aril_tensor *filled(double value)
{
    return aril_full(ARIL_SHAPE(N), value, ARIL_F32, test_device());
}

static bool all_are(aril_tensor *t, float value)
{
    static float v[N];
    if (aril_read(t, v) < 0) return false;
    for (int i = 0; i < N; i++)
        if (v[i] != value) return false;
    return true;
}

/* ---- one thread ---- */

TEST(a_selected_stream_cannot_be_freed)
{
    ARIL_SCOPE;
    aril_stream *s = aril_stream_new(test_device()), *other = aril_stream_new(test_device());
    aril_tensor *x = filled(3);
    {
        ARIL_STREAM(s);
        aril_stream_free(s);
        CHECK_INT(aril_error_code(), ARIL_ERR_STATE);
        CHECK_MSG(strstr(aril_error(), "stream_free: ARIL_STREAM selects"), "%s", aril_error());
        aril_clear_error();
        {
            ARIL_STREAM(other);
            aril_stream_free(s); /* selected again when this block ends */
            CHECK_INT(aril_error_code(), ARIL_ERR_STATE);
            aril_clear_error();
        }
        CHECK(all_are(aril_add(x, x), 6));
    }
    aril_stream_free(s);
    aril_stream_free(other);
    CHECK(aril_ok());
}

TEST(a_result_of_a_stream_is_used_by_the_default_queue)
{
    ARIL_SCOPE;
    aril_stream *s = aril_stream_new(test_device());
    CHECK(s);
    aril_tensor *x = filled(3), *y;
    hold(true);
    {
        ARIL_STREAM(s);
        y = aril_mul_scalar(x, 2);
    }
    aril_tensor *z = aril_add(y, x); /* waits for y */
    hold(false);
    CHECK(all_are(z, 9));
    aril_stream_free(s);
    CHECK(all_are(y, 6));
    CHECK(aril_ok());
}

TEST(a_stream_waits_for_the_default_queue)
{
    ARIL_SCOPE;
    aril_stream *s = aril_stream_new(test_device());
    aril_tensor *x = filled(1), *y;
    for (int i = 0; i < 50; i++) aril_add_scalar_(x, 1);
    {
        ARIL_STREAM(s);
        y = aril_mul_scalar(x, 2);
        aril_add_(y, x);
    }
    aril_mul_scalar_(x, 0); /* after the stream has read x */
    CHECK(all_are(y, 153));
    CHECK(all_are(x, 0));
    aril_stream_free(s);
}

/* What is freed early is not reused while a stream still reads it. */
TEST(memory_is_reused_after_its_last_user)
{
    ARIL_SCOPE;
    aril_stream *s = aril_stream_new(test_device());
    for (int round = 0; round < 20; round++) {
        ARIL_SCOPE;
        aril_tensor *x = filled(round), *y, *noise[8];
        hold(true);
        {
            ARIL_STREAM(s);
            y = aril_mul_scalar(x, 2);
            aril_tensor *scratch = aril_add_scalar(y, 1); /* allocated by the stream */
            y = aril_add(y, scratch);
            aril_drop(scratch);
        }
        aril_drop(x);
        for (int i = 0; i < 8; i++) noise[i] = filled(1000 + i); /* perhaps in the memory of x */
        hold(false);
        CHECK(all_are(y, 4.0f * (float)round + 1));
        CHECK(all_are(noise[3], 1003));
    }
    aril_stream_free(s);
    CHECK(aril_ok());
}

TEST(copies_to_and_from_the_host)
{
    ARIL_SCOPE;
    static float v[N], w[N];
    aril_stream *s = aril_stream_new(test_device());
    for (int i = 0; i < N; i++) v[i] = (float)i;
    aril_tensor *x, *y = filled(0);
    hold(true);
    {
        ARIL_STREAM(s);
        x = aril_from(v, ARIL_SHAPE(N), ARIL_F32, test_device());
        aril_copy_(y, x);
    }
    hold(false);
    CHECK_INT(aril_read(y, w), ARIL_OK);
    CHECK(memcmp(v, w, sizeof v) == 0);
    {
        ARIL_STREAM(s);
        CHECK_INT(aril_read(aril_add(x, y), w), ARIL_OK);
    }
    CHECK(w[7] == 14);
    aril_stream_free(s);
}

/* One step of training in a stream changes the parameters as one in the default queue does. */
static void train(aril_stream *s, float *result)
{
    ARIL_SCOPE;
    aril_seed(3);
    aril_module *net = aril_nn_sequential(aril_nn_linear(8, 16), aril_nn_relu(),
                                          aril_nn_dropout(0.3), aril_nn_linear(16, 4));
    aril_module_to(net, test_device());
    aril_optim *opt = aril_adam(aril_parameters(net), (aril_adam_opts){ .lr = 0.01 });
    aril_tensor *x = aril_randn(ARIL_SHAPE(32, 8), ARIL_F32, test_device());
    aril_tensor *y = aril_randint(0, 4, ARIL_SHAPE(32), ARIL_I64, test_device());
    for (int i = 0; i < 10; i++) {
        ARIL_SCOPE;
        aril_guard g = s ? aril_stream_begin(s) : aril_no_grad_begin();
        if (!s) aril_guard_end(&g);
        aril_backward(aril_cross_entropy(aril_forward(net, x), y));
        aril_step(opt);
        if (s) aril_guard_end(&g);
    }
    aril_read(aril_parameters(net)->at[0], result);
    aril_optim_free(opt);
    aril_module_release(net);
}

TEST(training_in_a_stream)
{
    float plain[128], streamed[128];
    aril_stream *s = aril_stream_new(test_device());
    train(NULL, plain);
    train(s, streamed);
    aril_stream_free(s);
    CHECK(aril_ok());
    CHECK(memcmp(plain, streamed, sizeof plain) == 0);
}

/* ---- events ---- */

TEST(events)
{
    ARIL_SCOPE;
    aril_device d = test_device();
    aril_stream *s = aril_stream_new(d);
    aril_tensor *x = filled(2);
    hold(true);
    {
        ARIL_STREAM(s);
        x = aril_mul_scalar(x, 5);
    }
    aril_stream_event *e = aril_stream_record(d, s);
    CHECK(e);
    if (on_strict()) CHECK(!aril_stream_event_done(e));
    CHECK_INT(aril_stream_wait(NULL, e), ARIL_OK); /* the default queue */
    aril_stream_event *after = aril_stream_record(d, NULL);
    if (on_strict()) CHECK(!aril_stream_event_done(after));
    hold(false);
    CHECK_INT(aril_stream_event_synchronize(after), ARIL_OK);
    CHECK(aril_stream_event_done(e) && aril_stream_event_done(after));
    CHECK_INT(aril_stream_synchronize(s), ARIL_OK);
    CHECK(all_are(x, 10));
    aril_stream_event_free(e);
    aril_stream_event_free(after);
    aril_stream_free(s);
}

/* ---- wrong calls ---- */

TEST(wrong_calls)
{
    aril_device d = test_device();
    CHECK_INT(aril_stream_synchronize(NULL), ARIL_ERR_ARG);
    CHECK_INT(aril_stream_wait(NULL, NULL), ARIL_ERR_ARG);
    CHECK_INT(aril_stream_event_synchronize(NULL), ARIL_ERR_ARG);
    CHECK(!aril_stream_event_done(NULL));
    aril_clear_error();
    {
        ARIL_STREAM(NULL);
        CHECK_INT(aril_error_code(), ARIL_ERR_ARG);
        aril_clear_error();
    }
    CHECK(!aril_stream_new((aril_device){ 7, 5 }));
    aril_clear_error();
    aril_stream_free(NULL);
    aril_stream_event_free(NULL);
    if (test_on_cpu()) return;
    aril_stream *s[40] = { NULL };
    int n = 0;
    while (n < 40 && (s[n] = aril_stream_new(d))) n++;
    CHECK_INT(n, ARIL__MAX_QUEUES - 1);
    CHECK(strstr(aril_error(), "already has 31 streams"));
    aril_clear_error();
    CHECK(!aril_stream_record(aril_cpu(), s[0]));
    aril_clear_error();
    while (n > 0) aril_stream_free(s[--n]);
    aril_stream *again = aril_stream_new(d); /* numbers are reused */
    CHECK(again);
    aril_stream_free(again);
}

/* ---- two threads ---- */

enum { STEPS = 60 };

typedef struct worker {
    aril_stream *stream;
    aril_tensor *shared; /* read by both */
    int seed;
    float result[16 * 16];
    aril_status status;
} worker;

static void compute(aril_tensor *shared, int seed, float *result)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_keep(aril_full(ARIL_SHAPE(16, 16), 0.01 * seed, ARIL_F32, test_device()));
    for (int i = 0; i < STEPS; i++) {
        ARIL_SCOPE;
        aril_tensor *y = aril_tanh(aril_matmul(x, shared));
        y = aril_add(y, aril_softmax(aril_mul_scalar(y, seed), 1));
        aril_set(&x, y);
    }
    aril_read(x, result);
    aril_release(x);
}

static void *work(void *arg)
{
    worker *w = arg;
    ARIL_STREAM(w->stream);
    compute(w->shared, w->seed, w->result);
    w->status = aril_ok() ? ARIL_OK : aril_error_code();
    return NULL;
}

TEST(two_threads_on_two_streams)
{
    ARIL_SCOPE;
    float want[2][16 * 16];
    aril_tensor *shared = aril_div_scalar(
        aril_reshape(aril_arange(0, 256, 1, ARIL_F32, test_device()), ARIL_SHAPE(16, 16)), 1000);
    for (int k = 0; k < 2; k++) compute(shared, 3 + k, want[k]);
    for (int round = 0; round < 5; round++) {
        worker w[2];
        pthread_t thread[2];
        for (int k = 0; k < 2; k++) {
            aril_stream *s = aril_stream_new(test_device());
            w[k] = (worker){ .stream = s, .shared = shared, .seed = 3 + k };
            CHECK(w[k].stream);
        }
        for (int k = 0; k < 2; k++) CHECK_INT(pthread_create(&thread[k], NULL, work, &w[k]), 0);
        for (int k = 0; k < 2; k++) pthread_join(thread[k], NULL);
        for (int k = 0; k < 2; k++) {
            CHECK_INT(w[k].status, ARIL_OK);
            CHECK(memcmp(w[k].result, want[k], sizeof want[k]) == 0);
            aril_stream_free(w[k].stream);
        }
    }
}

/* One thread makes tensors in its stream; the other uses them in another one, and the first frees
 * them meanwhile. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    aril_tensor *passed;
    int made;
} belt = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, 0 };

static void *make(void *arg)
{
    aril_stream *s = arg;
    ARIL_STREAM(s);
    for (int i = 0; i < STEPS; i++) {
        ARIL_SCOPE;
        aril_tensor *t = aril_add_scalar(filled(i), 0.5);
        pthread_mutex_lock(&belt.lock);
        while (belt.passed) pthread_cond_wait(&belt.changed, &belt.lock);
        belt.passed = aril_keep(t);
        belt.made++;
        pthread_cond_broadcast(&belt.changed);
        pthread_mutex_unlock(&belt.lock);
    }
    return NULL;
}

TEST(tensors_pass_between_threads_and_streams)
{
    pthread_t maker;
    aril_stream *here = aril_stream_new(test_device()), *there = aril_stream_new(test_device());
    CHECK(here && there);
    CHECK_INT(pthread_create(&maker, NULL, make, there), 0);
    bool right = true;
    for (int i = 0; i < STEPS; i++) {
        ARIL_SCOPE;
        ARIL_STREAM(here);
        pthread_mutex_lock(&belt.lock);
        while (!belt.passed) pthread_cond_wait(&belt.changed, &belt.lock);
        aril_tensor *t = aril_adopt(belt.passed);
        belt.passed = NULL;
        pthread_cond_broadcast(&belt.changed);
        pthread_mutex_unlock(&belt.lock);
        aril_tensor *y = aril_mul_scalar(t, 2);
        aril_drop(t); /* while its last use is queued */
        right = right && all_are(y, 2.0f * (float)i + 1);
    }
    pthread_join(maker, NULL);
    aril_stream_free(here);
    aril_stream_free(there);
    CHECK(right);
    CHECK(aril_ok());
}
