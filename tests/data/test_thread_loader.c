/* Loaders with workers: the same batches for any number of them, errors, early ends, forks. */
#include "aril/aril.h"
#include "support/device.h"
#include "support/test.h"

#include <dirent.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SAMPLES = 61, ROW = 6 };

/* The number of threads of this process. */
static int threads(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/task");
    if (!d) return -1;
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static int threads_of(aril_loader *l, aril_batch *b)
{
    return aril_loader_next(l, b) ? threads() : -1;
}

#define CHECK_ERROR(part)                                                            \
    do {                                                                             \
        CHECK(!aril_ok());                                                           \
        CHECK_MSG(strstr(aril_error(), part) != NULL, "error is: %s", aril_error()); \
        aril_clear_error();                                                          \
    } while (0)

/* ---- a dataset with a different delay for each sample ---- */

struct slow {
    int64_t fails_at, unlike_at; /* -1: never */
    atomic_int gets;
};

static int64_t slow_size(aril_dataset *self)
{
    (void)self;
    return SAMPLES;
}

static aril_status slow_get(aril_dataset *self, int64_t i, aril_sample *s)
{
    static const char *const names[3] = { "first.jpg", "second.jpg", "third.jpg" };
    struct slow *d = aril_dataset_data(self);
    atomic_fetch_add(&d->gets, 1);
    s->name = names[i % 3];
    nanosleep(&(struct timespec){ .tv_nsec = (i * 7919 % 13) * 20000 }, NULL);
    if (i == d->fails_at) {
        s->x = aril_matmul(aril_zeros(ARIL_SHAPE(2, 3), ARIL_F32, test_device()),
                           aril_zeros(ARIL_SHAPE(2, 3), ARIL_F32, test_device()));
        return ARIL_ERR_FORMAT;
    }
    s->x = aril_add_scalar(aril_rand_from(s->random, ARIL_SHAPE(i == d->unlike_at ? 2 : ROW),
                                          ARIL_F32, test_device()),
                           i);
    /* The thread's default generator is the sample's too. */
    s->y = aril_rand(ARIL_SHAPE(), ARIL_F32, test_device());
    return ARIL_OK;
}

static aril_dataset *slow(int64_t fails_at, int64_t unlike_at)
{
    static const aril_dataset_class type = {
        .type = "Slow", .data_size = sizeof(struct slow), .size = slow_size, .get = slow_get
    };
    aril_dataset *d = aril_dataset_make(&type);
    struct slow *data = aril_dataset_data(d);
    data->fails_at = fails_at;
    data->unlike_at = unlike_at;
    return d;
}

/* x, y and indices of two epochs, concatenated. */
static size_t two_epochs(aril_loader *l, float *out, size_t capacity)
{
    size_t n = 0;
    for (int e = 0; e < 2; e++)
        for (aril_batch b; aril_loader_next(l, &b);) {
            ARIL_SCOPE;
            size_t row = (size_t)(aril_numel(b.x) / b.n);
            for (int64_t i = 0; i < b.n && n + row + 2 <= capacity; i++) {
                memcpy(out + n, (const float *)aril_data(b.x) + (size_t)i * row, row * sizeof *out);
                n += row;
                out[n++] =
                    b.y && aril_dtype_of(b.y) == ARIL_F32 ? ((const float *)aril_data(b.y))[i] : 0;
                out[n++] = (float)b.index[i];
            }
        }
    return n;
}

TEST(batches_do_not_depend_on_workers)
{
    enum { ROOM = 2 * SAMPLES * (ROW + 2) };
    static float want[ROOM], got[ROOM];
    for (int workers = 0; workers <= 4; workers++)
        for (int prefetch = 1; prefetch <= 4; prefetch += 3) {
            aril_loader *l =
                aril_loader_new(slow(-1, -1), (aril_loader_opts){ .batch = 8,
                                                                  .shuffle = true,
                                                                  .seed = 11,
                                                                  .workers = workers,
                                                                  .prefetch = prefetch });
            CHECK(l);
            CHECK_INT(two_epochs(l, workers || prefetch > 1 ? got : want, ROOM), ROOM);
            if (workers || prefetch > 1) CHECK(!memcmp(want, got, sizeof want));
            aril_loader_free(l);
        }
    CHECK_INT(threads() > 0, 1);
    CHECK(aril_ok());
}

/* Fills an image dataset and checks transforms, batch transforms and whole batches. */
TEST(images_do_not_depend_on_workers)
{
    ARIL_SCOPE;
    enum { N = 50, PIXELS = 3 * 12 * 12, ROOM = 2 * N * (PIXELS + 2) };
    float *want = calloc(ROOM, sizeof *want), *got = calloc(ROOM, sizeof *got);
    aril_tensor *x = aril_randint(0, 256, ARIL_SHAPE(N, 3, 16, 16), ARIL_U8, aril_cpu());
    aril_tensor *y = aril_randint(0, 5, ARIL_SHAPE(N), ARIL_I64, aril_cpu());
    const char *const texts[3] = { "crop=12:pad=2,flip,rotate=10,jitter=0.2:hue=0.1,cutout=4,erase",
                                   "random_resized_crop=12,normalize=0.5:0.2",
                                   "resize=12,normalize=0.5:0.2" };
    for (int k = 0; k < 3; k++)
        for (int workers = 0; workers <= 3; workers++) {
            aril_dataset *d =
                aril_dataset_transform(aril_dataset_images(x, y), aril_transform_parse(texts[k]));
            aril_loader *l = aril_loader_new(
                d, (aril_loader_opts){ .batch = 16,
                                       .shuffle = true,
                                       .workers = workers,
                                       .batch_transform =
                                           k == 1 ? aril_transform_mixup(0.4, 5) : NULL });
            CHECK(l);
            CHECK_INT(two_epochs(l, workers ? got : want, ROOM), ROOM);
            if (workers) CHECK(!memcmp(want, got, ROOM * sizeof *want));
            aril_loader_free(l);
        }
    free(want);
    free(got);
    CHECK(aril_ok());
}

/* Batches on a device have the values of those on the host, also while later ones are copied. */
TEST(batches_on_a_device)
{
    enum { BATCH = 8 };
    for (int workers = 0; workers <= 2; workers += 2) {
        ARIL_SCOPE;
        aril_tensor *x = aril_reshape(aril_arange(0, SAMPLES * ROW, 1, ARIL_F32, aril_cpu()),
                                      ARIL_SHAPE(SAMPLES, ROW));
        aril_tensor *y = aril_arange(0, SAMPLES, 1, ARIL_I64, aril_cpu());
        aril_loader *l = aril_loader_new(
            aril_dataset_tensors(x, y),
            (aril_loader_opts){ .batch = BATCH, .workers = workers, .device = test_device() });
        aril_tensor *kept = NULL;
        CHECK(l);
        for (int epoch = 0; epoch < 3; epoch++) {
            int64_t at = 0;
            for (aril_batch b; aril_loader_next(l, &b); at += b.n) {
                ARIL_SCOPE;
                float v[BATCH * ROW];
                int64_t label[BATCH];
                CHECK(aril_device_equal(aril_device_of(b.x), test_device()));
                CHECK(aril_device_equal(aril_device_of(b.y), test_device()));
                if (at == BATCH && epoch == 0) kept = aril_keep(b.x);
                CHECK_INT(aril_read(aril_mul_scalar(b.x, 2), v), ARIL_OK);
                CHECK_INT(aril_read(b.y, label), ARIL_OK);
                for (int i = 0; i < b.n; i++) {
                    CHECK_INT(b.index[i], at + i);
                    CHECK_INT(label[i], at + i);
                    CHECK(v[i * ROW + 1] == 2 * (float)((at + i) * ROW + 1));
                }
            }
            CHECK_INT(at, SAMPLES);
        }
        aril_loader_free(l);
        CHECK(kept && aril_item(aril_amin(kept, ARIL_ALL)) == BATCH * ROW); /* outlives it */
        aril_release(kept);
        CHECK_MSG(aril_ok(), "%s", aril_error());
    }
}

TEST(a_loader_for_a_missing_device)
{
    aril_tensor *x = aril_zeros(ARIL_SHAPE(4, 2), ARIL_F32, aril_cpu());
    aril_device none = { .kind = test_device().kind, .index = 99 };
    CHECK(!aril_loader_new(aril_dataset_tensors(x, NULL), (aril_loader_opts){ .device = none }));
    CHECK_ERROR("device");
}

TEST(seek_with_workers)
{
    for (int at = 0; at < 8; at += 3) {
        aril_loader_opts o = { .batch = 8, .shuffle = true, .seed = 4, .workers = 3 };
        aril_loader *a = aril_loader_new(slow(-1, -1), o);
        o.workers = 1;
        aril_loader *b = aril_loader_new(slow(-1, -1), o);
        aril_batch x, y;
        CHECK(aril_loader_next(b, &y));
        for (int i = 0; i < at; i++) CHECK(aril_loader_next(a, &x));
        CHECK_INT(aril_loader_seek(b, aril_loader_tell(a)), ARIL_OK);
        bool more;
        do {
            ARIL_SCOPE;
            more = aril_loader_next(a, &x);
            CHECK_INT(aril_loader_next(b, &y), more);
            if (more)
                CHECK(!memcmp(aril_data(x.x), aril_data(y.x), (size_t)x.n * ROW * sizeof(float)));
        } while (more);
        aril_loader_free(a);
        aril_loader_free(b);
    }
    CHECK(aril_ok());
}

TEST(errors_reach_the_caller)
{
    for (int workers = 0; workers <= 3; workers++) {
        aril_loader *l =
            aril_loader_new(slow(17, -1), (aril_loader_opts){ .batch = 8, .workers = workers });
        aril_batch b;
        CHECK(aril_loader_next(l, &b) && aril_loader_next(l, &b));
        CHECK(!aril_loader_next(l, &b));
        CHECK_INT(aril_error_code(), ARIL_ERR_SHAPE);
        CHECK(strstr(aril_error(), "Slow: sample 17 (third.jpg): matmul"));
        aril_clear_error();
        CHECK(aril_loader_next(l, &b)); /* the batch after it */
        CHECK_INT(b.index[0], 24);
        aril_loader_free(l);

        /* Which sample is reported as different does not depend on who came first. */
        l = aril_loader_new(slow(-1, 3), (aril_loader_opts){ .batch = 8, .workers = workers });
        CHECK(!aril_loader_next(l, &b));
        CHECK_ERROR(
            "Slow: sample 3 (first.jpg): x is [2] here and [6] in sample 0 of the same batch");
        CHECK(aril_loader_next(l, &b));
        aril_loader_free(l);
    }
}

static aril_status refuse(aril_sample *s, void *ctx)
{
    return s->index == 9 ? aril_fail(ARIL_ERR_IO, "no %s number %d", (const char *)ctx, 9)
                         : ARIL_OK;
}

TEST(custom_error_messages)
{
    static char what[] = "shelf";
    for (int workers = 0; workers <= 2; workers += 2) {
        aril_loader *l = aril_loader_new(aril_dataset_map(slow(-1, -1), refuse, what, NULL),
                                         (aril_loader_opts){ .batch = 8, .workers = workers });
        aril_batch b;
        CHECK(aril_loader_next(l, &b) && !aril_loader_next(l, &b));
        CHECK_INT(aril_error_code(), ARIL_ERR_IO);
        CHECK_ERROR("Map: sample 9 (first.jpg): no shelf number 9");
        aril_loader_free(l);
    }
    CHECK_INT(aril_fail(7, "a code that is none"), ARIL_ERR_ARG);
    CHECK_ERROR("a code that is none");
}

TEST(stopping_early_leaves_no_thread)
{
    aril_batch b;
    aril_loader *warm = aril_loader_new(slow(-1, -1), (aril_loader_opts){ .batch = 8 });
    CHECK(aril_loader_next(warm, &b)); /* starts the threads of parallel loops */
    aril_loader_free(warm);
    int before = threads();
    for (int stop = 0; stop < 6; stop++) {
        aril_loader *l =
            aril_loader_new(slow(-1, -1),
                            (aril_loader_opts){ .batch = 4, .workers = 3, .prefetch = 5 });
        for (int i = 0; i < stop; i++) {
            int now = threads_of(l, &b);
            if (before > 0) CHECK_INT(now, before + 3);
        }
        aril_loader_free(l);
        CHECK_INT(threads(), before);
    }
}

TEST(prefetch_is_bounded)
{
    aril_dataset *d = slow(-1, -1);
    struct slow *data = aril_dataset_data(d);
    aril_loader *l =
        aril_loader_new(d, (aril_loader_opts){ .batch = 4, .workers = 2, .prefetch = 2 });
    aril_batch b;
    CHECK(aril_loader_next(l, &b));
    for (int i = 0; i < 100; i++) nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    CHECK_INT(atomic_load(&data->gets), 12); /* the one in use, and two prefetched */
    aril_loader_free(l);
}

/* ---- streams ---- */

struct stream {
    int64_t at;
    atomic_int inside;
    atomic_bool clash;
};

static int stream_next(aril_dataset *self, aril_sample *s)
{
    struct stream *d = aril_dataset_data(self);
    if (atomic_fetch_add(&d->inside, 1)) atomic_store(&d->clash, true);
    int more = d->at < SAMPLES;
    if (more) s->x = aril_full(ARIL_SHAPE(ROW), d->at++, ARIL_F32, test_device());
    atomic_fetch_sub(&d->inside, 1);
    return more;
}

static aril_status stream_restart(aril_dataset *self, uint64_t seed, int64_t epoch)
{
    (void)seed, (void)epoch;
    ((struct stream *)aril_dataset_data(self))->at = 0;
    return ARIL_OK;
}

static aril_status noise(aril_sample *s, void *ctx)
{
    (void)ctx;
    nanosleep(&(struct timespec){ .tv_nsec = (s->index * 7919 % 13) * 20000 }, NULL);
    s->x = aril_add(s->x, aril_rand(ARIL_SHAPE(ROW), ARIL_F32, test_device()));
    s->y = aril_full(ARIL_SHAPE(), s->index, ARIL_F32, test_device());
    return ARIL_OK;
}

TEST(streams_with_workers)
{
    static const aril_dataset_class type = { .type = "Stream",
                                             .data_size = sizeof(struct stream),
                                             .next = stream_next,
                                             .restart = stream_restart };
    enum { ROOM = 2 * SAMPLES * (ROW + 2) };
    static float want[ROOM], got[ROOM];
    for (int workers = 0; workers <= 4; workers++) {
        aril_dataset *base = aril_dataset_make(&type);
        struct stream *data = aril_dataset_data(base);
        aril_dataset *d = aril_dataset_map(aril_dataset_shuffle(base, 10), noise, NULL, NULL);
        aril_loader *l =
            aril_loader_new(d, (aril_loader_opts){ .batch = 8, .seed = 3, .workers = workers });
        CHECK_INT(two_epochs(l, workers ? got : want, ROOM), ROOM);
        CHECK(!atomic_load(&data->clash));
        if (workers) CHECK(!memcmp(want, got, sizeof want));
        /* And starting in the middle. */
        CHECK_INT(aril_loader_seek(l, (aril_loader_position){ .seed = 3, .batch = 5 }), ARIL_OK);
        aril_batch b;
        CHECK(aril_loader_next(l, &b));
        CHECK(!memcmp(want + 40 * (ROW + 2), aril_data(b.x), ROW * sizeof(float)));
        aril_loader_free(l);
    }
    CHECK(aril_ok());
}

TEST(cache_with_workers)
{
    aril_dataset *d = slow(-1, -1);
    struct slow *data = aril_dataset_data(d);
    aril_loader *l =
        aril_loader_new(aril_dataset_cache(d, 0),
                        (aril_loader_opts){ .batch = 8, .workers = 4, .shuffle = true });
    enum { ROOM = 2 * SAMPLES * (ROW + 2) };
    static float got[ROOM];
    CHECK_INT(two_epochs(l, got, ROOM), ROOM);
    CHECK_INT(atomic_load(&data->gets), SAMPLES);
    aril_loader_free(l);

    /* All threads request the same few samples concurrently. */
    d = slow(-1, -1);
    aril_dataset *cache = aril_dataset_cache(d, 0);
    l = aril_loader_new(aril_dataset_take(aril_dataset_keep(cache), 3),
                        (aril_loader_opts){
                            .batch = 8, .workers = 4, .sampler = aril_sampler_replacing(200) });
    for (aril_batch b; aril_loader_next(l, &b);) {
    }
    int64_t samples;
    CHECK(aril_dataset_cached(cache, &samples) > 0);
    CHECK_INT(samples, 3);
    aril_loader_free(l);
    aril_dataset_release(cache);
}

/* ---- forks ---- */

TEST(forked_child_continues)
{
#if defined(__SANITIZE_THREAD__)
    SKIP("ThreadSanitizer allows no new threads behind a fork");
#endif
    ONLY_ON_CPU("the queue of a device does not survive a fork");
    aril_loader *l =
        aril_loader_new(slow(-1, -1), (aril_loader_opts){ .batch = 8, .workers = 2, .seed = 8 });
    aril_batch b;
    CHECK(aril_loader_next(l, &b));
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        bool good = aril_loader_next(l, &b) && b.index[0] == 8 && aril_loader_next(l, &b) &&
                    b.index[0] == 16;
        aril_loader_free(l);
        _exit(good ? 0 : 1);
    }
    int status = -1;
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK_INT(status, 0);
    CHECK(aril_loader_next(l, &b));
    CHECK_INT(b.index[0], 8);
    child = fork();
    if (!child) { /* and one that only frees it */
        aril_loader_free(l);
        _exit(0);
    }
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK_INT(status, 0);
    aril_loader_free(l);

    /* At any moment: no child inherits a lock that a thread of its parent held. */
    for (int i = 0; i < 60; i++) {
        l = aril_loader_new(slow(-1, -1), (aril_loader_opts){ .batch = 4, .workers = 3 });
        CHECK(aril_loader_next(l, &b));
        nanosleep(&(struct timespec){ .tv_nsec = i * 17000 }, NULL);
        child = fork();
        if (!child) {
            alarm(20); /* a child that blocks ends here */
            bool good = aril_loader_next(l, &b) && b.index[0] == 4;
            aril_loader_free(l);
            _exit(good ? 0 : 1);
        }
        CHECK_INT(waitpid(child, &status, 0), child);
        CHECK_INT(status, 0);
        CHECK(aril_loader_next(l, &b));
        aril_loader_free(l);
    }
}
