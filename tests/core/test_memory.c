/* Device memory: the cache, its statistics, alignment, failures, external memory. */
#include "aril/aril.h"
#include "core/tensor.h"
#include "support/test.h"

#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static aril_memory_stats stats(void)
{
    return aril_memory(aril_cpu());
}

static aril_tensor *floats(int64_t n)
{
    return aril_zeros(ARIL_SHAPE(n), ARIL_F32, aril_cpu());
}

TEST(live_and_peak_bytes_are_tracked)
{
    int64_t before = stats().live;
    aril_memory_reset_peak(aril_cpu());
    CHECK_INT(stats().peak, before);
    {
        ARIL_SCOPE;
        floats(1000);
        int64_t one = stats().live - before;
        CHECK(one >= 4000 && one <= 4608); /* at most an eighth more */
        {
            ARIL_SCOPE;
            floats(100000);
            CHECK(stats().live - before >= 404000);
        }
        CHECK_INT(stats().live - before, one);
        CHECK(stats().peak - before >= 404000);
    }
    CHECK_INT(stats().live, before);
    CHECK(stats().peak - before >= 404000);
    aril_memory_reset_peak(aril_cpu());
    CHECK_INT(stats().peak, before);
}

TEST(small_tensors_are_stored_in_the_header)
{
    aril_memory_stats before = stats();
    ARIL_SCOPE;
    for (int n = 0; n <= 16; n++) floats(n);
    CHECK_INT(stats().live, before.live);
    CHECK_INT(stats().allocations, before.allocations);
    floats(17);
    CHECK(stats().live > before.live);
    CHECK_INT(stats().allocations, before.allocations + 1);
}

TEST(freed_memory_is_reused)
{
    aril_memory_trim(aril_cpu());
    CHECK_INT(stats().cached, 0);
    for (int i = 0; i < 3; i++) {
        ARIL_SCOPE;
        floats(5000);
        floats(7000);
    }
    aril_memory_stats warm = stats();
    CHECK(warm.cached >= 48000);
    for (int i = 0; i < 100; i++) {
        ARIL_SCOPE;
        floats(5000);
        floats(7000);
    }
    CHECK_INT(stats().misses, warm.misses);
    CHECK_INT(stats().allocations, warm.allocations + 200);
    CHECK_INT(stats().cached, warm.cached);
    /* A size that rounds up to the same block. */
    {
        ARIL_SCOPE;
        floats(4999);
    }
    CHECK_INT(stats().misses, warm.misses);
    aril_memory_trim(aril_cpu());
    CHECK_INT(stats().cached, 0);
    CHECK_INT(stats().live, warm.live);
    {
        ARIL_SCOPE;
        floats(5000);
    }
    CHECK_INT(stats().misses, warm.misses + 1);
}

TEST(the_cache_does_not_grow_without_bound)
{
    aril_memory_trim(aril_cpu());
    aril_memory_reset_peak(aril_cpu());
    for (int64_t n = 1000; n < 400000; n += 7919) {
        ARIL_SCOPE;
        floats(n);
    }
    aril_memory_stats now = stats();
    CHECK_MSG(now.live + now.cached <= now.peak + now.peak / 4, "%lld bytes are cached, peak %lld",
              (long long)now.cached, (long long)now.peak);
}

TEST(memory_is_aligned)
{
    ARIL_SCOPE;
    for (int64_t n = 1; n < 3000; n += n < 40 ? 1 : 97) {
        uintptr_t at = (uintptr_t)aril_data_strided(floats(n));
        CHECK_MSG(at % 64 == 0, "%lld floats lie at %#llx", (long long)n, (unsigned long long)at);
        at = (uintptr_t)aril_data_strided(aril_zeros(ARIL_SHAPE(n), ARIL_U8, aril_cpu()));
        CHECK(at % 64 == 0);
    }
}

TEST(sizes_that_exceed_memory_are_errors)
{
    int64_t blocks = 0;
    static const int64_t sizes[] = { INT64_MAX, INT64_MAX / 4, (int64_t)1 << 60, (int64_t)1 << 50 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ARIL_SCOPE;
        if (i == 1) /* the first error has allocated its record */
            blocks = aril__live_blocks();
        aril_tensor *t = aril_empty(ARIL_SHAPE(sizes[i]), ARIL_F32, aril_cpu());
        aril_status s = aril_tensor_status(t);
        CHECK(s == ARIL_ERR_MEMORY || s == ARIL_ERR_SHAPE || s == ARIL_ERR_ARG);
        CHECK(!aril_ok());
        aril_clear_error();
        CHECK_NEAR(aril_item(aril_sum(aril_ones(ARIL_SHAPE(50), ARIL_F32, aril_cpu()), ARIL_ALL)),
                   50, 0);
    }
    CHECK_INT(aril__live_blocks(), blocks);
}

/* ---- the n-th allocation fails ---- */

/* A small training step; NaN when it failed. */
static double step(aril_tensor *w, aril_tensor *b)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_ones(ARIL_SHAPE(20, 30), ARIL_F32, aril_cpu());
    aril_tensor *h = aril_tanh(aril_add(aril_mul(x, w), b));
    aril_tensor *loss = aril_sum(aril_square(aril_transpose(h, 0, 1)), ARIL_ALL);
    if (aril_backward(loss) < 0) return NAN;
    {
        ARIL_NO_GRAD;
        aril_tensor *g = aril_grad(w);
        aril_add_(aril_copy(w), aril_mul_scalar(g, -0.125));
    }
    double v = aril_item(loss);
    aril_zero_grad(w);
    aril_zero_grad(b);
    return v;
}

TEST(every_allocation_may_fail)
{
    ARIL_SCOPE;
    aril_tensor *w = aril_parameter(aril_full(ARIL_SHAPE(30), 0.5, ARIL_F32, aril_cpu()));
    aril_tensor *b = aril_parameter(aril_full(ARIL_SHAPE(20, 1), 0.25, ARIL_F32, aril_cpu()));
    double want = step(w, b);
    CHECK(aril_ok() && isfinite(want));
    aril_empty(ARIL_SHAPE(-1), ARIL_F32, aril_cpu()); /* an error record exists */
    aril_clear_error();
    int64_t blocks = aril__live_blocks(), bytes = stats().live;
    int n = 1;
    for (; n < 10000; n++) {
        aril_fail_allocation(n);
        double got = step(w, b);
        bool failed = aril_allocation_failed();
        aril_fail_allocation(0);
        if (!failed) {
            CHECK_NEAR(got, want, 0);
            break;
        }
        if (!aril_ok()) {
            CHECK_MSG(aril_error_code() == ARIL_ERR_MEMORY, "allocation %d: %s", n, aril_error());
        } else { /* a fallback was used */
            CHECK_MSG(got == want, "allocation %d failed, no error, and %g came out", n, got);
        }
        aril_clear_error();
        aril_zero_grad(w);
        aril_zero_grad(b);
        CHECK_MSG(stats().live == bytes, "allocation %d: %lld bytes leak", n,
                  (long long)(stats().live - bytes));
        /* The error's own record may differ by a poisoned tensor of the scope, which is gone. */
        CHECK_MSG(aril__live_blocks() == blocks, "allocation %d: %lld blocks leak", n,
                  (long long)(aril__live_blocks() - blocks));
        CHECK_NEAR(step(w, b), want, 0);
        CHECK_MSG(aril_ok(), "after allocation %d: %s", n, aril_error());
    }
    CHECK_MSG(n > 20 && n < 10000, "%d allocations", n);
    aril_release(w);
    aril_release(b);
}

TEST(disabled_failure_does_not_occur)
{
    ARIL_SCOPE;
    aril_fail_allocation(1);
    aril_fail_allocation(0);
    floats(1000);
    CHECK(aril_ok() && !aril_allocation_failed());
    aril_fail_allocation(1);
    CHECK(aril_tensor_status(floats(1000)) == ARIL_ERR_MEMORY);
    CHECK(aril_allocation_failed());
    aril_fail_allocation(0);
    CHECK(!aril_allocation_failed());
    aril_clear_error();
}

/* ---- external memory ---- */

static int deleted;
static void *deleted_data, *deleted_ctx;

static void deleter(void *data, void *ctx)
{
    deleted++;
    deleted_data = data;
    deleted_ctx = ctx;
}

TEST(borrowed_memory_is_deleted_once)
{
    float data[40];
    int ctx = 0;
    for (int i = 0; i < 40; i++) data[i] = (float)i;
    deleted = 0;
    aril_tensor *kept;
    {
        ARIL_SCOPE;
        aril_tensor *t = aril_borrow(data, ARIL_SHAPE(4, 10), ARIL_F32, deleter, &ctx);
        CHECK(aril_data_strided(t) == data);
        CHECK_NEAR(aril_item(aril_sum(t, ARIL_ALL)), 780, 0);
        data[0] = 20; /* visible immediately */
        CHECK_NEAR(aril_item(aril_sum(t, ARIL_ALL)), 800, 0);
        aril_mul_scalar_(aril_slice(t, 0, 1, 2, 1), 2); /* written through */
        CHECK_NEAR(data[11], 22, 0);
        kept = aril_keep(aril_slice(t, 0, 1, 2, 1));
        CHECK_INT(deleted, 0);
    }
    CHECK_INT(deleted, 0); /* a view is still alive */
    CHECK_NEAR(data[11], 22, 0);
    aril_release(kept);
    CHECK_INT(deleted, 1);
    CHECK(deleted_data == data && deleted_ctx == &ctx);
}

TEST(borrowed_memory_without_deleter)
{
    float data[3] = { 1, 2, 3 };
    int64_t before = aril__live_blocks(), bytes = stats().live;
    {
        ARIL_SCOPE;
        aril_tensor *t = aril_borrow(data, ARIL_SHAPE(3), ARIL_F32, NULL, NULL);
        CHECK_NEAR(aril_item(aril_sum(t, ARIL_ALL)), 6, 0);
        CHECK_INT(stats().live, bytes);
    }
    CHECK_INT(aril__live_blocks(), before);
}

TEST(borrowed_memory_is_deleted_on_failure)
{
    ARIL_SCOPE;
    float data[8] = { 0 };
    deleted = 0;
    CHECK(aril_tensor_status(aril_borrow(data, ARIL_SHAPE(-3), ARIL_F32, deleter, NULL)) < 0);
    CHECK_INT(deleted, 1);
    CHECK(aril_tensor_status(aril_borrow(data, ARIL_SHAPE(8), (aril_dtype)99, deleter, NULL)) < 0);
    CHECK_INT(deleted, 2);
    aril_clear_error();
    for (int n = 1; n < 20; n++) {
        deleted = 0;
        ARIL_SCOPE;
        aril_fail_allocation(n);
        aril_tensor *t = aril_borrow(data, ARIL_SHAPE(8), ARIL_F32, deleter, NULL);
        bool failed = aril_allocation_failed();
        aril_fail_allocation(0);
        CHECK_INT(deleted, aril_tensor_status(t) < 0);
        aril_clear_error();
        if (!failed) break;
    }
}

TEST(gradient_never_reuses_borrowed_memory)
{
    ARIL_SCOPE;
    double data[20];
    for (int i = 0; i < 20; i++) data[i] = 1;
    aril_tensor *x = aril_ones(ARIL_SHAPE(20), ARIL_F64, aril_cpu());
    aril_set_requires_grad(x, true);
    aril_tensor *g = aril_borrow(data, ARIL_SHAPE(20), ARIL_F64, NULL, NULL);
    for (int i = 0; i < 2; i++)
        CHECK_INT(aril_backward_with(aril_mul_scalar(x, 1), g, (aril_grad_opts){ 0 }), ARIL_OK);
    CHECK_NEAR(data[3], 1, 0);
    CHECK(aril_data_strided(aril_grad(x)) != data);
    double got[20];
    aril_read(aril_grad(x), got);
    CHECK_NEAR(got[7], 2, 0);
}

TEST(stats_of_a_missing_device)
{
    aril_memory_stats s = aril_memory((aril_device){ .kind = 7, .index = 3 });
    CHECK_INT(s.live, 0);
    CHECK_INT(s.peak, 0);
    aril_memory_trim((aril_device){ .kind = 7, .index = 3 });
    aril_memory_reset_peak((aril_device){ .kind = 7, .index = 3 });
    aril_clear_error();
}

TEST(limit_on_the_memory_of_a_device)
{
    ARIL_SCOPE;
    enum { N = 1 << 20 };
    CHECK_INT(aril_memory_set_limit(aril_cpu(), stats().live + 6 * N), ARIL_OK);
    aril_tensor *x = aril_zeros(ARIL_SHAPE(N), ARIL_F32, aril_cpu());
    CHECK(aril_ok());
    CHECK(aril_tensor_status(aril_zeros(ARIL_SHAPE(N), ARIL_F32, aril_cpu())) == ARIL_ERR_MEMORY);
    CHECK_MSG(strstr(aril_error(), "exceed the limit"), "%s", aril_error());
    CHECK(stats().misses <= stats().allocations);
    aril_clear_error();
    aril_drop(x);
    CHECK(aril_tensor_status(aril_zeros(ARIL_SHAPE(N), ARIL_F32, aril_cpu())) == ARIL_OK);
    CHECK_INT(aril_memory_set_limit(aril_cpu(), 0), ARIL_OK);
    CHECK(aril_tensor_status(aril_zeros(ARIL_SHAPE(8 * N), ARIL_F32, aril_cpu())) == ARIL_OK);
    CHECK_INT(aril_memory_set_limit(aril_cpu(), -1), ARIL_ERR_ARG);
    aril_clear_error();
    CHECK(aril_memory_set_limit((aril_device){ .kind = 7, .index = 3 }, 1) < 0);
    aril_clear_error();
}

/* ---- large blocks ---- */

enum { HELD = 40 };

TEST(large_blocks_never_overlap)
{
    int64_t before = stats().live;
    aril_tensor *held[HELD] = { 0 };
    unsigned seed = 1;
    for (int i = 0; i < 4000; i++) {
        seed = seed * 1664525u + 1013904223u;
        int at = (int)(seed >> 8) % HELD;
        float mark = (float)(at + 1);
        if (held[at]) {
            const float *p = aril_data(held[at]);
            int64_t n = aril_numel(held[at]);
            CHECK(p[0] == mark && p[n / 2] == mark && p[n - 1] == mark);
            aril_release(held[at]);
            held[at] = NULL;
        } else {
            ARIL_SCOPE;
            int64_t n = 10000 + (int64_t)(seed % 7) * 30011 + (seed % 31 == 0) * 700001;
            held[at] = aril_keep(aril_full(ARIL_SHAPE(n), mark, ARIL_F32, aril_cpu()));
            CHECK(aril_ok());
        }
        if (i % 500 == 0) aril_memory_trim(aril_cpu());
    }
    for (int i = 0; i < HELD; i++)
        if (held[i]) aril_release(held[i]);
    CHECK_INT(stats().live, before);
    aril_memory_trim(aril_cpu());
    CHECK_INT(stats().cached, 0);
}

static void *hold_blocks(void *arg)
{
    for (int i = 0; i < 300; i++) {
        ARIL_SCOPE;
        int64_t n = 20000 + (int64_t)(uintptr_t)arg * 1000 + i % 13 * 9000;
        aril_tensor *a = aril_ones(ARIL_SHAPE(n), ARIL_F32, aril_cpu());
        aril_tensor *b = aril_add(a, a);
        if (aril_item(aril_sum(b, ARIL_ALL)) != (double)(2 * n)) return arg;
    }
    return NULL;
}

TEST(large_blocks_by_several_threads)
{
    pthread_t thread[4];
    int n = 0, wrong = 0;
    while (n < 4 && pthread_create(&thread[n], NULL, hold_blocks, (void *)(uintptr_t)(n + 1)) == 0)
        n++;
    for (int i = 0; i < n; i++) {
        void *result;
        pthread_join(thread[i], &result);
        wrong += result != NULL;
    }
    CHECK_INT(n, 4);
    CHECK_INT(wrong, 0);
}

/* A step of a network with blocks of many sizes: after the first step, no new pages. */
static void train_once(aril_tensor *x, aril_tensor **w)
{
    ARIL_SCOPE;
    aril_tensor *h = x;
    for (int i = 0; i < 4; i++) h = aril_tanh(aril_matmul(h, w[i]));
    aril_backward(aril_mean(aril_square(h), ARIL_ALL));
    for (int i = 0; i < 4; i++) {
        ARIL_NO_GRAD;
        aril_sub_(w[i], aril_mul_scalar(aril_grad(w[i]), 0.1));
        aril_zero_grad(w[i]);
    }
}

TEST(training_steps_cause_no_page_faults)
{
    if (ARIL__PLAIN_BLOCKS) {
        test_skip("a sanitizer has an allocator of its own");
        return;
    }
    ARIL_SCOPE;
    const int64_t size[] = { 300, 500, 700, 200, 400 };
    aril_tensor *x = aril_ones(ARIL_SHAPE(600, size[0]), ARIL_F32, aril_cpu()), *w[4];
    for (int i = 0; i < 4; i++)
        w[i] =
            aril_parameter(aril_full(ARIL_SHAPE(size[i], size[i + 1]), 1e-3, ARIL_F32, aril_cpu()));
    for (int i = 0; i < 3; i++) train_once(x, w);
    aril_memory_stats warm = stats();
    struct rusage a, b;
    getrusage(RUSAGE_SELF, &a);
    for (int i = 0; i < 10; i++) train_once(x, w);
    getrusage(RUSAGE_SELF, &b);
    CHECK_INT(stats().misses, warm.misses);
    CHECK_MSG(b.ru_minflt - a.ru_minflt < 100, "%ld pages in ten steps",
              (long)(b.ru_minflt - a.ru_minflt));
    CHECK(stats().live + stats().cached <= stats().peak + stats().peak / 8 + (16 << 20));
    for (int i = 0; i < 4; i++) aril_release(w[i]);
}

/* Whatever op lacks memory is named, also where the result has more elements than there can be. */
TEST(errors_of_memory_name_the_op)
{
    ARIL_SCOPE;
    aril_tensor *one = aril_ones(ARIL_SHAPE(1), ARIL_F32, aril_cpu());
    aril_tensor *tall = aril_expand(one, ARIL_SHAPE(1 << 20, 1));
    aril_tensor *wide = aril_expand(one, ARIL_SHAPE(1, (int64_t)1 << 40));
    aril_tensor *some = aril_expand(one, ARIL_SHAPE((int64_t)1 << 46));
    struct {
        aril_tensor *y;
        const char *begins;
    } calls[] = {
        { aril_add(tall, wide), "add: too many elements in [1048576,1099511627776]" },
        { aril_matmul(tall, wide), "matmul: too many elements in [" },
        { aril_neg(some), "neg: out of memory: " },
        { aril_cat(ARIL_LIST(some, some), 0), "cat: out of memory: " },
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        aril_tensor *y = calls[i].y;
        const char *text = aril_tensor_error(y);
        CHECK_MSG(strncmp(text, calls[i].begins, strlen(calls[i].begins)) == 0, "%s", text);
    }
    aril_clear_error();
    aril_tensor *a = floats(1000), *b = floats(1000);
    aril_memory_set_limit(aril_cpu(), aril_memory(aril_cpu()).live + 1);
    aril_add(a, b); /* the short way */
    aril_memory_set_limit(aril_cpu(), 0);
    CHECK_MSG(strncmp(aril_error(), "add: out of memory: 4000 bytes on cpu", 37) == 0, "%s",
              aril_error());
    aril_clear_error();
    aril_memory_set_limit(aril_cpu(), aril_memory(aril_cpu()).live + 1);
    aril_empty(ARIL_SHAPE(1000), ARIL_F32, aril_cpu()); /* no op: not the name of the last */
    aril_memory_set_limit(aril_cpu(), 0);
    CHECK_MSG(!strstr(aril_error(), "add"), "%s", aril_error());
    aril_clear_error();
}
