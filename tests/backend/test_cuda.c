/* The CUDA plug-in: what it says where there is no GPU, and its device functions where there is
 * one. ARIL_TEST_CUDA_PLUGIN is the plug-in's file; other tests run on the GPU by `make
 * test-cuda`. */
#include <aril/aril.h>

#include "core/device.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The GPU; NULL, after skipping the test, if there is none. */
static aril__device *gpu(void)
{
    const char *file = getenv("ARIL_TEST_CUDA_PLUGIN");
    if (file) setenv("ARIL_PLUGINS", file, 0);
    if (!file || !aril_device_available(aril_cuda(0))) {
        test_skip(file ? "there is no GPU" : "the plug-in was not built");
        aril_clear_error();
        return NULL;
    }
    return aril__device_find(aril_cuda(0));
}

TEST(without_a_gpu_the_error_says_what_is_missing)
{
    const char *file = getenv("ARIL_TEST_CUDA_PLUGIN");
    if (!file) SKIP("the plug-in was not built");
    setenv("ARIL_PLUGINS", file, 0);
    if (aril_device_available(aril_cuda(0))) SKIP("there is a GPU");
    aril_clear_error();
    aril_tensor *t = aril_zeros(ARIL_SHAPE(2), ARIL_F32, aril_cuda(0));
    CHECK(aril_tensor_status(t) < 0);
    CHECK(strstr(aril_error(), "device: no 'cuda:0': cuda: "));
    CHECK(strstr(aril_error(), "driver"));
    CHECK(strstr(aril_error(), "(available: cpu)"));
    aril_clear_error();
}

TEST(description)
{
    aril__device *d = gpu();
    if (!d) return;
    char text[512];
    aril_device_describe(d->id, text, sizeof text);
    CHECK(strstr(text, "cuda:0: "));
    CHECK(strstr(text, "GiB, compute capability "));
    CHECK(strstr(text, "driver "));
}

/* ---- memory ---- */

static bool cache_is_off(void)
{
    const char *cache = getenv("ARIL_CUDA_CACHE");
    return cache && strcmp(cache, "0") == 0;
}

TEST(freed_blocks_are_reused_by_their_queue)
{
    aril__device *d = gpu();
    if (!d) return;
    if (cache_is_off()) SKIP("the cache is off");
    static const size_t sizes[] = { 1, 512, 100000, 3 << 20, 64 << 20 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *p = d->ops.alloc(d->self, d->queue, sizes[i]);
        CHECK(p && (uintptr_t)p % 512 == 0);
        d->ops.free(d->self, d->queue, p, sizes[i]);
        void *q = d->ops.alloc(d->self, d->queue, sizes[i]);
        CHECK(q == p);
        d->ops.free(d->self, d->queue, q, sizes[i]);
    }
    d->ops.trim(d->self);
}

/* Blocks that are cut from one segment do not overlap, and merge again. */
TEST(blocks_do_not_overlap)
{
    enum { N = 200 };
    aril__device *d = gpu();
    char *p[N], got[64], want[64];
    size_t bytes[N];
    if (!d) return;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < N; i++) {
            bytes[i] = (size_t)(1 + (i * 7919 + round) % 40000);
            p[i] = d->ops.alloc(d->self, d->queue, bytes[i]);
            CHECK(p[i]);
            memset(want, i, sizeof want);
            size_t n = bytes[i] < 64 ? bytes[i] : 64;
            CHECK_INT(d->ops.from_host(d->self, d->queue, p[i], want, n, false), 0);
            CHECK_INT(d->ops.from_host(d->self, d->queue, p[i] + bytes[i] - n, want, n, false), 0);
        }
        for (int i = 0; i < N; i++) {
            size_t n = bytes[i] < 64 ? bytes[i] : 64;
            memset(want, i, sizeof want);
            CHECK_INT(d->ops.to_host(d->self, d->queue, got, p[i], n, false), 0);
            CHECK(memcmp(got, want, n) == 0);
            CHECK_INT(d->ops.to_host(d->self, d->queue, got, p[i] + bytes[i] - n, n, false), 0);
            CHECK(memcmp(got, want, n) == 0);
        }
        for (int i = 0; i < N; i++) /* in an order that is not that of addresses */
            d->ops.free(d->self, d->queue, p[i * 77 % N], bytes[i * 77 % N]);
    }
}

TEST(statistics_of_the_pool)
{
    aril__device *d = gpu();
    if (!d) return;
    if (cache_is_off()) SKIP("the cache is off");
    ARIL_SCOPE;
    enum { MB = 1 << 20 };
    aril_memory_trim(d->id);
    aril_memory_stats before = aril_memory(d->id);
    aril_tensor *two[2], *dropped;
    for (int i = 0; i < 2; i++)
        two[i] = aril_zeros(ARIL_SHAPE(48 * MB), ARIL_F32, d->id); /* 192 MB each */
    dropped = aril_zeros(ARIL_SHAPE(32 * MB), ARIL_F32, d->id);
    aril_drop(dropped);
    aril_memory_stats after = aril_memory(d->id);
    CHECK_INT(after.live - before.live, (int64_t)2 * 192 * MB);
    CHECK(after.cached >= (int64_t)128 * MB);
    CHECK(after.peak >= before.live + (int64_t)(2 * 192 + 128) * MB);
    CHECK(after.misses >= before.misses + 3);
    aril_memory_block largest[3];
    int n = aril_memory_largest(d->id, 3, largest);
    bool listed = false;
    for (int i = 0; i < n; i++)
        listed = listed || (largest[i].bytes == (int64_t)192 * MB && largest[i].count == 2);
    CHECK(listed);
    aril_memory_trim(d->id);
    CHECK(aril_memory(d->id).cached < after.cached - (int64_t)127 * MB);
    CHECK_NEAR(aril_item(aril_add(aril_slice(two[0], 0, 0, 1, 1), aril_slice(two[1], 0, 0, 1, 1))),
               0, 0);
}

TEST(out_of_memory_is_an_error_that_passes)
{
    aril__device *d = gpu();
    if (!d) return;
    ARIL_SCOPE;
    aril_tensor *kept = aril_ones(ARIL_SHAPE(1000), ARIL_F32, d->id);
    aril_tensor *big = aril_zeros(ARIL_SHAPE((int64_t)1 << 28), ARIL_F32, d->id); /* 1 GiB */
    aril_tensor *huge = aril_zeros(ARIL_SHAPE((int64_t)1 << 42), ARIL_F32, d->id);
    CHECK_INT(aril_tensor_status(huge), ARIL_ERR_MEMORY);
    CHECK(strstr(aril_error(), "out of memory: 17592186044416 bytes"));
    CHECK(strstr(aril_error(), "in use (the largest: 1 x 1.000 GiB"));
    CHECK(strstr(aril_error(), "GiB are free; use a smaller batch"));
    aril_clear_error();
    aril_drop(big);
    aril_tensor *small = aril_add(kept, aril_ones(ARIL_SHAPE(1000), ARIL_F32, d->id));
    CHECK_NEAR(aril_item(aril_amax(small, ARIL_ALL)), 2, 0);
    CHECK(aril_ok());
}

/* What a child of this process gets when it uses the GPU: 0 for an error that says why. */
static int use_in_child(aril_tensor *x)
{
    alarm(20); /* it must not hang either */
    double sum = aril_item(aril_sum(aril_add(x, x), ARIL_ALL));
    if (aril_ok()) return 1;
    if (!strstr(aril_error(), "fork()")) return 2;
    aril_clear_error();
    aril_tensor *here = aril_ones(ARIL_SHAPE(10), ARIL_F32, aril_cpu());
    return sum == sum || aril_item(aril_sum(here, ARIL_ALL)) != 10 ? 3 : 0;
}

TEST(a_forked_child_is_told_that_it_cannot_use_the_gpu)
{
    aril__device *d = gpu();
    if (!d) return;
    ARIL_SCOPE;
    aril_tensor *x = aril_ones(ARIL_SHAPE(1000), ARIL_F32, d->id);
    CHECK_NEAR(aril_item(aril_sum(x, ARIL_ALL)), 1000, 0);
    pid_t child = fork();
    if (child == 0) _exit(use_in_child(x));
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), 0);
    CHECK_NEAR(aril_item(aril_sum(aril_add(x, x), ARIL_ALL)), 2000, 0);
    CHECK(aril_ok());
}

/* Bytes that the driver has left, as an error tells them. */
static double free_gib(aril_device device)
{
    double left = 0;
    aril_zeros(ARIL_SHAPE((int64_t)1 << 42), ARIL_F32, device);
    const char *text = strstr(aril_error(), "cached in pieces; ");
    if (text) sscanf(text, "cached in pieces; %lf", &left);
    aril_clear_error();
    return left;
}

/* More than the driver has left, and less than it has with what is cached. */
TEST(the_cache_is_emptied_before_memory_runs_out)
{
    aril__device *d = gpu();
    if (!d) return;
    if (cache_is_off()) SKIP("the cache is off");
    ARIL_SCOPE;
    aril_memory_trim(d->id);
    double left = free_gib(d->id);
    CHECK(left > 0);
    for (int i = 0; i < 3; i++) {
        ARIL_SCOPE;
        int64_t n = (int64_t)((0.55 + 0.1 * i) * left * 0x1p28); /* of 4 bytes */
        aril_tensor *t = aril_zeros(ARIL_SHAPE(n), ARIL_F32, d->id);
        CHECK_MSG(aril_tensor_status(t) == ARIL_OK, "%s", aril_error());
    }
    CHECK(aril_memory(d->id).cached > (int64_t)(0.5 * left * 0x1p30));
    aril_memory_trim(d->id);
}

/* ---- copies, queues, events ---- */

TEST(copies_of_every_size_return_what_was_written)
{
    static const size_t sizes[] = {
        1, 255, 4096, (4 << 20) - 1, 4 << 20, (9 << 20) + 13, 50 << 20
    };
    aril__device *d = gpu();
    if (!d) return;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t n = sizes[i];
        unsigned char *from = malloc(n), *to = calloc(n, 1);
        for (size_t k = 0; k < n; k++) from[k] = (unsigned char)(k * 31 + i);
        void *p = d->ops.alloc(d->self, d->queue, n), *q = d->ops.alloc(d->self, d->queue, n);
        CHECK_INT(d->ops.from_host(d->self, d->queue, p, from, n, false), 0);
        unsigned char first = from[0];
        from[0] = (unsigned char)~first; /* the host's memory may be reused */
        CHECK_INT(d->ops.copy(d->self, d->queue, q, p, n), 0);
        CHECK_INT(d->ops.to_host(d->self, d->queue, to, q, n, false), 0);
        from[0] = first;
        CHECK(memcmp(from, to, n) == 0);
        d->ops.free(d->self, d->queue, p, n);
        d->ops.free(d->self, d->queue, q, n);
        free(from);
        free(to);
    }
}

/* What a second queue reads may be freed there: its next owner waits. */
TEST(two_queues)
{
    enum { N = 8 << 20 };
    aril__device *d = gpu();
    if (!d) return;
    aril_queue *second = d->ops.queue_new(d->self);
    aril_event *e = d->ops.event_new(d->self);
    CHECK(second && e);
    CHECK_INT(d->ops.event_query(d->self, e), 1); /* never recorded */
    char *from = malloc(N), *to = malloc(N);
    for (int round = 0; round < 4; round++) {
        memset(from, 40 + round, N);
        char *p = d->ops.alloc(d->self, d->queue, N), *q = d->ops.alloc(d->self, second, N);
        CHECK_INT(d->ops.from_host(d->self, d->queue, p, from, N, false), 0);
        CHECK_INT(d->ops.event_record(d->self, e, d->queue), 0);
        CHECK_INT(d->ops.event_wait(d->self, e, second), 0);
        CHECK_INT(d->ops.copy(d->self, second, q, p, N), 0);
        d->ops.free(d->self, second, p, N);
        memset(from, 0, N);
        p = d->ops.alloc(d->self, d->queue, N); /* perhaps the same block */
        CHECK_INT(d->ops.from_host(d->self, d->queue, p, from, N, false), 0);
        CHECK_INT(d->ops.to_host(d->self, second, to, q, N, false), 0);
        CHECK_INT(to[0], 40 + round);
        CHECK_INT(to[N - 1], 40 + round);
        d->ops.free(d->self, d->queue, p, N);
        d->ops.free(d->self, second, q, N);
    }
    d->ops.event_free(d->self, e);
    d->ops.queue_free(d->self, second);
    free(from);
    free(to);
}

TEST(recordings_replay_work)
{
    aril__device *d = gpu();
    int one = 1, got = 0;
    if (!d) return;
    int *p = d->ops.alloc(d->self, d->queue, sizeof one);
    int *q = d->ops.alloc(d->self, d->queue, sizeof one);
    CHECK_INT(d->ops.capture_begin(d->self, d->queue), 0);
    CHECK_INT(d->ops.copy(d->self, d->queue, q, p, sizeof one), 0);
    aril_recording *r = d->ops.capture_end(d->self, d->queue);
    CHECK(r);
    for (int i = 0; i < 3; i++) {
        one = i + 5;
        CHECK_INT(d->ops.from_host(d->self, d->queue, p, &one, sizeof one, false), 0);
        CHECK_INT(d->ops.replay(d->self, d->queue, r), 0);
        CHECK_INT(d->ops.to_host(d->self, d->queue, &got, q, sizeof got, false), 0);
        CHECK_INT(got, i + 5);
    }
    d->ops.recording_free(d->self, r);
    d->ops.free(d->self, d->queue, p, sizeof one);
    d->ops.free(d->self, d->queue, q, sizeof one);
}

/* ---- compiling ---- */

TEST(source_is_compiled_and_launched)
{
    static const char source[] = "extern \"C\" __global__ void scale(float *x, int n, float by)\n"
                                 "{ int i = threadIdx.x; if (i < n) x[i] *= by; }";
    aril__device *d = gpu();
    float x[3] = { 1, 2, 3 }, by = 2;
    int n = 3;
    if (!d) return;
    aril_program *p = d->ops.compile(d->self, source, "--fmad=false");
    if (!p && strstr(aril_error(), "missing")) {
        aril_clear_error();
        SKIP("there is no NVRTC");
    }
    CHECK(p);
    void *memory = d->ops.alloc(d->self, d->queue, sizeof x);
    void *args[] = { &memory, &n, &by };
    d->ops.from_host(d->self, d->queue, memory, x, sizeof x, false);
    CHECK_INT(d->ops.launch(d->self, d->queue, p, "scale", (uint32_t[]){ 1, 1, 1 },
                            (uint32_t[]){ 32, 1, 1 }, 0, args, 3),
              0);
    d->ops.to_host(d->self, d->queue, x, memory, sizeof x, false);
    CHECK_NEAR(x[2], 6, 0);
    d->ops.free(d->self, d->queue, memory, sizeof x);
    d->ops.program_free(d->self, p);
    CHECK(!d->ops.compile(d->self, "this is not CUDA", NULL));
    CHECK(strstr(aril_error(), "the source does not compile"));
    aril_clear_error();
}

/* ---- errors of kernels ---- */

TEST(division_by_zero_is_reported_late_and_passes)
{
    aril__device *d = gpu();
    if (!d) return;
    ARIL_SCOPE;
    int64_t a[4] = { 7, -7, 7, 9 }, b[4] = { 2, 2, 0, 3 }, y[4];
    aril_tensor *x = aril_from(a, ARIL_SHAPE(4), ARIL_I64, d->id);
    aril_tensor *by = aril_from(b, ARIL_SHAPE(4), ARIL_I64, d->id);
    aril_floor_div(x, by);
    CHECK_INT(aril_synchronize(d->id), ARIL_ERR_NUMBER);
    CHECK(strstr(aril_error(), "floor_div: integer division by zero (reported late)"));
    aril_clear_error();
    CHECK_INT(aril_synchronize(d->id), ARIL_OK);
    aril_tensor *sum = aril_add(x, by);
    CHECK_INT(aril_read(sum, y), ARIL_OK);
    CHECK_INT(y[1], -5);
}

/* ---- kernels on sizes that the samples of the op table do not reach ---- */

/* Gradient and value of a function of rows, one after the other in memory. */
typedef aril_tensor *row_function(aril_tensor *x, aril_tensor *labels);

static aril_tensor *soft(aril_tensor *x, aril_tensor *labels)
{
    (void)labels;
    return aril_mean(aril_square(aril_softmax(x, 1)), ARIL_ALL);
}

static aril_tensor *log_soft(aril_tensor *x, aril_tensor *labels)
{
    (void)labels;
    return aril_mean(aril_square(aril_log_softmax(x, 1)), ARIL_ALL);
}

static aril_tensor *normed(aril_tensor *x, aril_tensor *labels)
{
    (void)labels;
    aril_tensor *y = aril_layer_norm(x, NULL, NULL, ARIL_SHAPE(-1), (aril_norm_opts){ 0 });
    return aril_mean(aril_mul(y, aril_exp(y)), ARIL_ALL);
}

static aril_tensor *entropy(aril_tensor *x, aril_tensor *labels)
{
    return aril_cross_entropy(x, labels);
}

static aril_tensor *reduced(aril_tensor *x, aril_tensor *labels)
{
    (void)labels;
    aril_tensor *y = aril_add(aril_logsumexp(x, ARIL_AXES(1)), aril_amax(x, ARIL_AXES(1)));
    return aril_sum(aril_add(y, aril_std(x, ARIL_AXES(1), 1)), ARIL_ALL);
}

/* The distance of two tensors beside the size of the second. */
static double far(aril_tensor *a, aril_tensor *b)
{
    a = aril_cast(aril_to(aril_detach(a), aril_cpu()), ARIL_F64);
    b = aril_cast(aril_to(aril_detach(b), aril_cpu()), ARIL_F64);
    aril_tensor *d = aril_sub(a, b);
    return sqrt(aril_item(aril_sum(aril_square(d), ARIL_ALL)) /
                aril_item(aril_sum(aril_square(b), ARIL_ALL)));
}

TEST(long_rows_agree_with_the_cpu)
{
    aril__device *d = gpu();
    if (!d) return;
    static row_function *const functions[] = { soft, log_soft, normed, entropy, reduced };
    static const int64_t widths[] = { 1000, 4099, 20000, 32768, 50257 };
    static const aril_dtype dtypes[] = { ARIL_F32, ARIL_BF16, ARIL_F64 };
    for (int f = 0; f < 5; f++) {
        for (int w = 0; w < 5; w++) {
            for (int t = 0; t < 3; t++) {
                ARIL_SCOPE;
                aril_tensor *x = aril_randn(ARIL_SHAPE(7, widths[w]), ARIL_F32, aril_cpu());
                aril_tensor *l = aril_randint(0, widths[w], ARIL_SHAPE(7), ARIL_I64, aril_cpu());
                x = aril_cast(x, dtypes[t]);
                aril_tensor *here = aril_adopt(aril_parameter(x));
                aril_tensor *there = aril_adopt(aril_parameter(aril_to(x, d->id)));
                aril_tensor *y = functions[f](here, l);
                aril_tensor *z = functions[f](there, aril_to(l, d->id));
                CHECK_INT(aril_backward(y), ARIL_OK);
                CHECK_MSG(aril_backward(z) == ARIL_OK, "%s", aril_error());
                double bound = dtypes[t] == ARIL_BF16 ? 1e-2 : 1e-5;
                CHECK_MSG(far(z, y) < bound, "function %d, width %lld, %s: off by %g", f,
                          (long long)widths[w], aril_dtype_name(dtypes[t]), far(z, y));
                CHECK_MSG(far(aril_grad(there), aril_grad(here)) < bound,
                          "gradient of function %d, width %lld, %s: off by %g", f,
                          (long long)widths[w], aril_dtype_name(dtypes[t]),
                          far(aril_grad(there), aril_grad(here)));
            }
        }
    }
}

/* ---- profiles ---- */

static const aril_profile_kernel *slowest_kernel(const char *op)
{
    const aril_profile_kernel *k;
    int n = aril_profile_kernels(&k);
    for (int i = 0; i < n; i++)
        if (strcmp(k[i].op, op) == 0) return &k[i];
    return NULL;
}

static const aril_profile_row *profile_row(const char *name)
{
    const aril_profile_row *rows;
    int n = aril_profile_rows(&rows);
    for (int i = 0; i < n; i++)
        if (strcmp(rows[i].name, name) == 0) return &rows[i];
    return NULL;
}

TEST(profiles_show_kernels_with_their_times)
{
    ARIL_SCOPE;
    aril__device *d = gpu();
    if (!d) return;
    aril_tensor *a = aril_randn(ARIL_SHAPE(2048, 2048), ARIL_F32, d->id);
    aril_matmul(a, a); /* opens the library */
    CHECK_INT(aril_profile_begin((aril_profile_opts){ 0 }), ARIL_OK);
    for (int i = 0; i < 5; i++) aril_exp(aril_matmul(a, a));
    CHECK_INT(aril_profile_end(), ARIL_OK);
    const aril_profile_device *measured;
    CHECK(aril_profile_devices(&measured) >= 1);
    if (measured->missing[0]) SKIP("%s", measured->missing);
    const aril_profile_row *m = profile_row("matmul"), *e = profile_row("exp");
    const aril_profile_kernel *k = slowest_kernel("matmul"), *x = slowest_kernel("exp");
    CHECK(m && e && k && x);
    CHECK(k->name[0] && k->calls % 5 == 0 && x->calls == 5);
    /* Nothing is faster than the limits; clocks may differ by a little. */
    CHECK(m->least_seconds > 0 && m->device_seconds > 0.9 * m->least_seconds);
    CHECK(e->least_seconds > 0 && m->device_seconds < 100 * m->least_seconds);
    CHECK(measured->busy_seconds > 0 && measured->busy_seconds <= measured->seconds);
    CHECK_NEAR(measured->busy_seconds, m->device_seconds + e->device_seconds,
               0.1 * measured->busy_seconds + 1e-4);
}

/* A profile of the whole process ends after the driver has begun to. */
TEST(a_profile_may_last_until_the_process_ends)
{
    if (!gpu()) return;
    char self[512] = "", trace[] = "/tmp/aril-trace-XXXXXX", command[1200], *text;
    int fd = mkstemp(trace);
    CHECK(fd >= 0 && readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    close(fd);
    snprintf(command, sizeof command,
             "ARIL_PROFILE='%s' '%s' long_rows_agree_with_the_cpu >/dev/null 2>&1", trace, self);
    CHECK_INT(system(command), 0);
    FILE *f = fopen(trace, "r");
    text = calloc(1, 1 << 24);
    CHECK(f && text && fread(text, 1, (1 << 24) - 1, f) > 0);
    fclose(f);
    unlink(trace);
    CHECK(strstr(text, "\"cuda:0\""));
    free(text);
}
