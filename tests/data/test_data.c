/* Datasets, samplers and loaders in the calling thread; workers are in test_thread_loader.c. */
#include "aril/aril.h"
#include "core/tensor.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

static aril_tensor *counting(int64_t n, int64_t row)
{
    aril_tensor *t = aril_arange(0, n * row, 1, ARIL_I64, aril_cpu());
    return aril_reshape(t, ARIL_SHAPE(n, row));
}

/* A dataset of n rows [row] i64 whose y is the row's index. */
static aril_dataset *numbers(int64_t n)
{
    return aril_dataset_tensors(counting(n, 2), aril_arange(0, n, 1, ARIL_I64, aril_cpu()));
}

/* All y of an epoch, in order. */
static int64_t epoch_of(aril_loader *l, int64_t *out, int64_t capacity)
{
    int64_t n = 0;
    for (aril_batch b; aril_loader_next(l, &b);) {
        ARIL_SCOPE;
        const int64_t *y = aril_data(b.y);
        for (int64_t i = 0; i < b.n && n < capacity; i++) out[n++] = y[i];
    }
    return n;
}

#define CHECK_ERROR(part)                                                            \
    do {                                                                             \
        CHECK(!aril_ok());                                                           \
        CHECK_MSG(strstr(aril_error(), part) != NULL, "error is: %s", aril_error()); \
        aril_clear_error();                                                          \
    } while (0)

TEST(tensors_in_order)
{
    ARIL_SCOPE;
    aril_tensor *x = counting(10, 3);
    aril_loader *l = aril_loader_new(aril_dataset_tensors(x, aril_select(x, 1, 0)),
                                     (aril_loader_opts){ .batch = 4 });
    CHECK(l);
    CHECK_INT(aril_loader_length(l), 3);
    CHECK_INT(aril_loader_samples(l), 10);
    for (int epoch = 0; epoch < 2; epoch++) {
        int64_t row = 0;
        for (aril_batch b; aril_loader_next(l, &b);) {
            ARIL_SCOPE;
            CHECK_INT(b.n, row == 8 ? 2 : 4);
            const int64_t *v = aril_data(b.x), *y = aril_data(b.y);
            for (int64_t i = 0; i < b.n; i++) {
                CHECK_INT(v[3 * i + 2], 3 * (row + i) + 2);
                CHECK_INT(y[i], 3 * (row + i));
                CHECK_INT(b.index[i], row + i);
            }
            row += b.n;
        }
        CHECK_INT(row, 10);
    }
    aril_loader_free(l);
    CHECK(aril_ok());
}

TEST(drop_last_and_reuse)
{
    ARIL_SCOPE;
    aril_loader *l =
        aril_loader_new(numbers(10), (aril_loader_opts){ .batch = 4, .drop_last = true });
    CHECK_INT(aril_loader_length(l), 2);
    aril_batch a, b;
    CHECK(aril_loader_next(l, &a));
    const aril_tensor *first = a.x;
    CHECK(aril_loader_next(l, &b));
    CHECK(b.x == first); /* the memory is reused */
    CHECK(!aril_loader_next(l, &b));
    /* But not while someone holds a reference. */
    CHECK(aril_loader_next(l, &a));
    aril_tensor *held = aril_keep(a.x);
    CHECK(aril_loader_next(l, &b));
    CHECK(b.x != held);
    CHECK_INT(((const int64_t *)aril_data(held))[0], 0);
    CHECK_INT(((const int64_t *)aril_data(b.x))[0], 8);
    aril_release(held);
    aril_loader_free(l);
}

TEST(images_are_scaled_to_floats)
{
    ARIL_SCOPE;
    uint8_t bytes[256 * 4];
    for (int i = 0; i < 1024; i++) bytes[i] = (uint8_t)(i / 4);
    aril_tensor *x = aril_from(bytes, ARIL_SHAPE(256, 2, 2), ARIL_U8, aril_cpu());
    aril_loader *l =
        aril_loader_new(aril_dataset_images(x, NULL), (aril_loader_opts){ .batch = 256 });
    aril_batch b;
    CHECK(aril_loader_next(l, &b));
    CHECK_INT(aril_ndim(b.x), 4);
    CHECK_INT(aril_size(b.x, 1), 1);
    CHECK(aril_dtype_of(b.x) == ARIL_F32);
    CHECK(!b.y);
    const float *v = aril_data(b.x);
    for (int i = 0; i < 1024; i++) CHECK(v[i] == (float)(i / 4) / 255.0f); /* every byte, exactly */
    aril_loader_free(l);

    l = aril_loader_new(aril_dataset_images(x, NULL),
                        (aril_loader_opts){ .batch = 3, .raw = true });
    CHECK(aril_loader_next(l, &b));
    CHECK(aril_dtype_of(b.x) == ARIL_U8);
    CHECK_INT(((const uint8_t *)aril_data(b.x))[8], 2);
    aril_loader_free(l);

    /* Single samples and whole batches give the same bits. */
    aril_dataset *d = aril_dataset_images(x, NULL);
    aril_sample s;
    CHECK_INT(aril_dataset_get(d, 77, &s), ARIL_OK);
    CHECK_INT(aril_ndim(s.x), 3);
    aril_shape shape = aril_dataset_shape(d);
    CHECK_INT(shape.ndim, 3);
    CHECK_INT(shape.dim[0], 1);
    CHECK_INT(shape.dim[2], 2);
    aril_dataset_release(d);
}

TEST(shuffle_depends_on_seed_and_epoch)
{
    ARIL_SCOPE;
    enum { N = 100 };
    int64_t a[N], b[N], seen[N] = { 0 };
    aril_loader *l =
        aril_loader_new(numbers(N), (aril_loader_opts){ .batch = 7, .shuffle = true, .seed = 5 });
    CHECK_INT(epoch_of(l, a, N), N);
    for (int i = 0; i < N; i++) seen[a[i]]++;
    for (int i = 0; i < N; i++) CHECK_INT(seen[i], 1);
    CHECK_INT(epoch_of(l, b, N), N);
    CHECK(memcmp(a, b, sizeof a) != 0); /* another epoch, another order */
    CHECK_INT(aril_loader_seek(l, (aril_loader_position){ .seed = 5 }), ARIL_OK);
    CHECK_INT(epoch_of(l, b, N), N);
    CHECK(memcmp(a, b, sizeof a) == 0);
    CHECK_INT(aril_loader_seek(l, (aril_loader_position){ .seed = 6 }), ARIL_OK);
    CHECK_INT(epoch_of(l, b, N), N);
    CHECK(memcmp(a, b, sizeof a) != 0);
    aril_loader_free(l);
}

TEST(seek_continues_in_the_middle)
{
    ARIL_SCOPE;
    enum { N = 50 };
    aril_loader_opts o = { .batch = 4, .shuffle = true, .seed = 9 };
    aril_loader *l = aril_loader_new(numbers(N), o), *other = aril_loader_new(numbers(N), o);
    aril_batch b, c;
    for (int i = 0; i < 13 + 1 + 5; i++) aril_loader_next(l, &b); /* an epoch, its end, 5 batches */
    aril_loader_position p = aril_loader_tell(l);
    CHECK_INT(p.epoch, 1);
    CHECK_INT(p.batch, 5);
    CHECK_INT(aril_loader_seek(other, p), ARIL_OK);
    for (int i = 0; i < 30; i++) {
        bool one = aril_loader_next(l, &b), two = aril_loader_next(other, &c);
        CHECK_INT(one, two);
        if (one) CHECK(!memcmp(aril_data(b.x), aril_data(c.x), (size_t)b.n * 16));
    }
    p.batch = 14;
    CHECK(aril_loader_seek(l, p) < 0);
    CHECK_ERROR("an epoch has 13 batches");
    p.batch = 13; /* the end of the epoch is a valid position too */
    CHECK_INT(aril_loader_seek(l, p), ARIL_OK);
    CHECK(!aril_loader_next(l, &b));
    CHECK_INT(aril_loader_tell(l).epoch, 2);
    aril_loader_free(l);
    aril_loader_free(other);
}

TEST(subsets_and_concatenation)
{
    ARIL_SCOPE;
    int64_t got[64];
    aril_dataset *both[2] = { numbers(3), numbers(5) };
    aril_loader *l =
        aril_loader_new(aril_dataset_concat(2, both), (aril_loader_opts){ .batch = 3 });
    CHECK_INT(epoch_of(l, got, 64), 8);
    const int64_t joined[8] = { 0, 1, 2, 0, 1, 2, 3, 4 };
    CHECK(!memcmp(got, joined, sizeof joined));
    aril_loader_free(l);

    const int64_t some[4] = { 7, 0, 7, 3 };
    l = aril_loader_new(aril_dataset_subset(numbers(8), 4, some), (aril_loader_opts){ .batch = 2 });
    CHECK_INT(epoch_of(l, got, 64), 4);
    CHECK(!memcmp(got, some, sizeof some));
    aril_loader_free(l);

    l = aril_loader_new(aril_dataset_range(numbers(8), 2, 5), (aril_loader_opts){ .batch = 2 });
    CHECK_INT(epoch_of(l, got, 64), 3);
    CHECK_INT(got[2], 4);
    aril_loader_free(l);

    aril_dataset *part[3];
    CHECK_INT(aril_dataset_split(numbers(10), 3, (const double[]){ 0.5, 0.25, 0.25 }, 1, part),
              ARIL_OK);
    int64_t seen[10] = { 0 }, total = 0;
    for (int k = 0; k < 3; k++) {
        l = aril_loader_new(part[k], (aril_loader_opts){ .batch = 4 });
        int64_t n = epoch_of(l, got, 64);
        for (int64_t i = 0; i < n; i++) seen[got[i]]++;
        total += n;
        aril_loader_free(l);
    }
    CHECK_INT(total, 10);
    for (int i = 0; i < 10; i++) CHECK_INT(seen[i], 1);
    CHECK(aril_dataset_split(numbers(10), 2, (const double[]){ 0.8, 0.3 }, 1, part) < 0);
    CHECK_ERROR("add up to 1.1");
    CHECK(!part[0]);
    CHECK(!aril_dataset_subset(numbers(3), 1, (const int64_t[]){ 3 }));
    CHECK_ERROR("out of range for 3 samples");
    CHECK(!aril_dataset_range(numbers(3), 2, 4));
    CHECK_ERROR("out of range for 3 samples");
}

/* ---- a dataset from two functions ---- */

static int64_t squares_size(aril_dataset *self)
{
    return *(int64_t *)aril_dataset_data(self);
}

static aril_status squares_get(aril_dataset *self, int64_t i, aril_sample *s)
{
    (void)self;
    s->x = aril_full(ARIL_SHAPE(2), (double)(i * i), ARIL_F32, aril_cpu());
    s->y = aril_full(ARIL_SHAPE(), i, ARIL_I64, aril_cpu());
    return ARIL_OK;
}

static aril_dataset *squares(int64_t n)
{
    aril_dataset *d = aril_dataset_new("Squares", sizeof(int64_t), squares_size, squares_get);
    if (d) *(int64_t *)aril_dataset_data(d) = n;
    return d;
}

static aril_status add_noise(aril_sample *s, void *ctx)
{
    ++*(int *)ctx;
    float noise;
    aril_tensor *u = aril_rand_from(s->random, ARIL_SHAPE(), ARIL_F32, aril_cpu());
    aril_read(u, &noise);
    s->x = aril_add_scalar(s->x, (double)noise);
    return ARIL_OK;
}

TEST(two_functions_map_and_cache)
{
    ARIL_SCOPE;
    int calls = 0;
    aril_dataset *cache =
        aril_dataset_cache(aril_dataset_map(squares(6), add_noise, &calls, NULL), 0);
    aril_loader *l = aril_loader_new(aril_dataset_keep(cache), (aril_loader_opts){ .batch = 4 });
    float first[2][12];
    for (int e = 0; e < 2; e++) {
        int64_t n = 0;
        for (aril_batch b; aril_loader_next(l, &b);) {
            memcpy(first[e] + n, aril_data(b.x), (size_t)b.n * 8);
            n += b.n * 2;
        }
        CHECK_INT(n, 12);
    }
    CHECK_INT(calls, 6); /* the second epoch came from the cache */
    CHECK(!memcmp(first[0], first[1], sizeof first[0]));
    CHECK(first[0][4] >= 4 && first[0][4] < 5 && first[0][4] != 4);
    int64_t samples, bytes = aril_dataset_cached(cache, &samples);
    CHECK_INT(samples, 6);
    CHECK(bytes > 0);
    aril_loader_free(l);
    aril_dataset_release(cache);

    /* With room for two, the others are loaded again. */
    calls = 0;
    cache = aril_dataset_cache(aril_dataset_map(squares(6), add_noise, &calls, NULL),
                               bytes / 6 * 2 + 8);
    l = aril_loader_new(aril_dataset_keep(cache), (aril_loader_opts){ .batch = 4 });
    for (int e = 0; e < 2; e++)
        for (aril_batch b; aril_loader_next(l, &b);) {
        }
    CHECK_INT(calls, 6 + 4);
    aril_dataset_cached(cache, &samples);
    CHECK_INT(samples, 2);
    aril_loader_free(l);
    aril_dataset_release(cache);
}

/* A sample that occurs twice in an epoch gets different random numbers each time. */
TEST(random_draws_of_one_sample_differ)
{
    ARIL_SCOPE;
    int calls = 0;
    aril_loader *l =
        aril_loader_new(aril_dataset_map(squares(1), add_noise, &calls, NULL),
                        (aril_loader_opts){ .batch = 8, .sampler = aril_sampler_replacing(8) });
    aril_batch b;
    CHECK(aril_loader_next(l, &b));
    const float *v = aril_data(b.x);
    for (int i = 0; i < 8; i++)
        for (int k = 0; k < i; k++) CHECK(v[2 * i] != v[2 * k]);
    aril_loader_free(l);
}

/* ---- streams ---- */

struct stream {
    int64_t n, at;
    bool broken;
};

static int stream_next(aril_dataset *self, aril_sample *s)
{
    struct stream *d = aril_dataset_data(self);
    if (d->broken && d->at == 5) return ARIL_ERR_IO;
    if (d->at == d->n) return 0;
    s->x = aril_full(ARIL_SHAPE(1), d->at, ARIL_I64, aril_cpu());
    s->y = aril_full(ARIL_SHAPE(), d->at, ARIL_I64, aril_cpu());
    d->at++;
    return 1;
}

static aril_status stream_restart(aril_dataset *self, uint64_t seed, int64_t epoch)
{
    (void)seed, (void)epoch;
    ((struct stream *)aril_dataset_data(self))->at = 0;
    return ARIL_OK;
}

static aril_dataset *stream(int64_t n)
{
    static const aril_dataset_class type = { .type = "Stream",
                                             .data_size = sizeof(struct stream),
                                             .next = stream_next,
                                             .restart = stream_restart };
    aril_dataset *d = aril_dataset_make(&type);
    ((struct stream *)aril_dataset_data(d))->n = n;
    return d;
}

TEST(streams)
{
    ARIL_SCOPE;
    int64_t a[64], b[64];
    aril_loader *l = aril_loader_new(stream(10), (aril_loader_opts){ .batch = 4 });
    CHECK_INT(aril_loader_length(l), -1);
    aril_batch x;
    CHECK(aril_loader_next(l, &x) && aril_loader_next(l, &x) && aril_loader_next(l, &x));
    CHECK_INT(x.n, 2);
    CHECK_INT(aril_size(x.x, 0), 2);
    CHECK(!aril_loader_next(l, &x));
    CHECK_INT(epoch_of(l, a, 64), 10);
    for (int i = 0; i < 10; i++) CHECK_INT(a[i], i);
    aril_loader_free(l);

    l = aril_loader_new(stream(10), (aril_loader_opts){ .batch = 4, .drop_last = true });
    CHECK_INT(epoch_of(l, a, 64), 8);
    CHECK_INT(epoch_of(l, a, 64), 8);
    aril_loader_free(l);

    /* Through a shuffle buffer: all samples once, a new order each epoch, the same after seek. */
    l = aril_loader_new(aril_dataset_shuffle(stream(40), 16),
                        (aril_loader_opts){ .batch = 4, .seed = 3 });
    CHECK_INT(epoch_of(l, a, 64), 40);
    int64_t seen[40] = { 0 }, moved = 0;
    for (int i = 0; i < 40; i++) {
        seen[a[i]]++;
        moved += a[i] != i;
    }
    for (int i = 0; i < 40; i++) CHECK_INT(seen[i], 1);
    CHECK(moved > 20);
    CHECK_INT(epoch_of(l, b, 64), 40);
    CHECK(memcmp(a, b, 40 * sizeof *a) != 0);
    CHECK_INT(aril_loader_seek(l, (aril_loader_position){ .seed = 3, .batch = 6 }), ARIL_OK);
    CHECK_INT(epoch_of(l, b, 64), 16);
    CHECK(!memcmp(a + 24, b, 16 * sizeof *a));
    aril_loader_free(l);

    l = aril_loader_new(aril_dataset_take(stream(40), 5), (aril_loader_opts){ .batch = 4 });
    CHECK_INT(epoch_of(l, a, 64), 5);
    aril_loader_free(l);
    l = aril_loader_new(aril_dataset_take(numbers(40), 5), (aril_loader_opts){ .batch = 4 });
    CHECK_INT(epoch_of(l, a, 64), 5);
    aril_loader_free(l);

    CHECK(!aril_loader_new(stream(3), (aril_loader_opts){ .shuffle = true }));
    CHECK_ERROR("aril_dataset_shuffle");
    CHECK(!aril_dataset_shuffle(numbers(3), 4));
    CHECK_ERROR("is not a stream");
    CHECK(!aril_dataset_cache(stream(3), 0));
    CHECK_ERROR("is a stream");
    aril_dataset *d = stream(3);
    aril_sample s;
    CHECK(aril_dataset_get(d, 0, &s) < 0);
    CHECK_ERROR("is a stream");
    CHECK_INT(aril_dataset_shape(d).ndim, 1);
    ((struct stream *)aril_dataset_data(d))->broken = true;
    ((struct stream *)aril_dataset_data(d))->n = 9;
    l = aril_loader_new(d, (aril_loader_opts){ .batch = 4 });
    CHECK(aril_loader_next(l, &x));
    CHECK(!aril_loader_next(l, &x));
    CHECK_ERROR("Stream: sample 5: input or output failed");
    CHECK(!aril_loader_next(l, &x)); /* the epoch is over */
    CHECK(aril_ok());
    CHECK(aril_loader_next(l, &x));
    aril_loader_free(l);
}

/* ---- samplers ---- */

static int64_t pairs_count(void *ctx, int64_t size)
{
    (void)ctx;
    return size / 2;
}

static aril_status pairs_fill(void *ctx, int64_t size, uint64_t seed, int64_t epoch, int64_t n,
                              int64_t *order)
{
    (void)size, (void)seed;
    for (int64_t i = 0; i < n; i++) order[i] = *(int *)ctx + 2 * i + epoch % 2;
    return ARIL_OK;
}

static aril_loader *sampled(int64_t n, aril_sampler *s)
{
    return aril_loader_new(numbers(n), (aril_loader_opts){ .batch = 8, .sampler = s, .seed = 2 });
}

TEST(samplers)
{
    ARIL_SCOPE;
    enum { N = 2000 };
    static int64_t a[N], b[N];
    int64_t hits[4] = { 0 };
    const float weights[4] = { 1, 0, 3, 6 };
    aril_tensor *w = aril_from(weights, ARIL_SHAPE(4), ARIL_F32, aril_cpu());
    aril_loader *l = sampled(4, aril_sampler_weighted(w, N, true));
    CHECK_INT(epoch_of(l, a, N), N);
    for (int i = 0; i < N; i++) hits[a[i]]++;
    CHECK_INT(hits[1], 0);
    CHECK_NEAR(hits[0], 0.1 * N, 60);
    CHECK_NEAR(hits[2], 0.3 * N, 90);
    CHECK_NEAR(hits[3], 0.6 * N, 100);
    aril_loader_free(l);

    int first[4] = { 0 };
    l = sampled(4, aril_sampler_weighted(w, 3, false));
    for (int e = 0; e < 500; e++) {
        CHECK_INT(epoch_of(l, a, N), 3);
        CHECK(a[0] != a[1] && a[1] != a[2] && a[0] != a[2]);
        first[a[0]]++;
    }
    CHECK_NEAR(first[3], 300, 50);
    CHECK_INT(first[1], 0);
    aril_loader_free(l);
    l = sampled(4, aril_sampler_weighted(w, 4, false));
    aril_batch x;
    CHECK(!aril_loader_next(l, &x));
    CHECK_ERROR("only 3 have a positive weight");
    aril_loader_free(l);
    CHECK(!sampled(5, aril_sampler_weighted(w, 0, true)));
    CHECK_ERROR("4 weights for 5");

    l = sampled(10, aril_sampler_replacing(300));
    CHECK_INT(epoch_of(l, a, N), 300);
    int64_t sum = 0;
    for (int i = 0; i < 300; i++) sum += a[i];
    CHECK_NEAR((double)sum / 300, 4.5, 0.6);
    aril_loader_free(l);

    const int64_t some[3] = { 5, 1, 4 };
    l = sampled(6, aril_sampler_subset(3, some, false));
    CHECK_INT(epoch_of(l, a, N), 3);
    CHECK(!memcmp(a, some, sizeof some));
    aril_loader_free(l);
    l = sampled(5, aril_sampler_subset(3, some, true));
    CHECK(!aril_loader_next(l, &x));
    CHECK_ERROR("index 5");
    aril_loader_free(l);

    /* The shards of three processes: all samples together, the same number each. */
    for (int drop = 0; drop < 2; drop++) {
        int64_t seen[10] = { 0 };
        for (int rank = 0; rank < 3; rank++) {
            l = sampled(10, aril_sampler_distributed(aril_sampler_random(), rank, 3, drop));
            int64_t n = epoch_of(l, a, N);
            CHECK_INT(n, drop ? 3 : 4);
            for (int64_t i = 0; i < n; i++) seen[a[i]]++;
            aril_loader_free(l);
        }
        int64_t once = 0, twice = 0;
        for (int i = 0; i < 10; i++) {
            once += seen[i] == 1;
            twice += seen[i] == 2;
        }
        CHECK_INT(once, drop ? 9 : 8);
        CHECK_INT(twice, drop ? 0 : 2);
    }
    CHECK(!aril_sampler_distributed(aril_sampler_random(), 3, 3, false));
    CHECK_ERROR("rank 3 of 3");

    int from = 0;
    l = sampled(10, aril_sampler_new(
                        (aril_sampler_class){ .count = pairs_count, .fill = pairs_fill }, &from));
    CHECK_INT(epoch_of(l, a, N), 5);
    CHECK_INT(epoch_of(l, b, N), 5);
    CHECK_INT(a[4], 8);
    CHECK_INT(b[4], 9);
    aril_loader_free(l);
    CHECK(aril_ok());
}

/* ---- collating ---- */

static aril_status ragged_get(aril_dataset *self, int64_t i, aril_sample *s)
{
    (void)self;
    s->x = aril_full(ARIL_SHAPE(i % 3 + 1, 2), i + 1, ARIL_I32, aril_cpu());
    s->y = aril_full(ARIL_SHAPE(i % 2 + 1), i, ARIL_I64, aril_cpu());
    s->weight = aril_full(ARIL_SHAPE(), (double)i / 2, ARIL_F32, aril_cpu());
    return ARIL_OK;
}

static aril_dataset *ragged(int64_t n)
{
    aril_dataset *d = aril_dataset_new("Ragged", sizeof(int64_t), squares_size, ragged_get);
    if (d) *(int64_t *)aril_dataset_data(d) = n;
    return d;
}

static aril_status sums(int64_t n, const aril_sample *s, aril_batch *b, void *ctx)
{
    *(int64_t *)ctx += n;
    aril_tensor *x = aril_batch_buffer(&b->x, ARIL_I64, ARIL_SHAPE(n));
    if (!x) return ARIL_ERR_MEMORY;
    for (int64_t i = 0; i < n; i++)
        ((int64_t *)aril_data_strided(x))[i] = aril_item_int(aril_sum(s[i].x, ARIL_ALL));
    return ARIL_OK;
}

TEST(collating)
{
    ARIL_SCOPE;
    aril_batch b;
    aril_loader *l = aril_loader_new(ragged(5), (aril_loader_opts){ .batch = 4 });
    CHECK(!aril_loader_next(l, &b));
    CHECK_ERROR("Ragged: sample 1: x is [2,2] here and [1,2] in sample 0 of the same batch");
    CHECK(aril_loader_next(l, &b)); /* the batch after it */
    CHECK_INT(b.index[0], 4);
    aril_loader_free(l);

    l = aril_loader_new(ragged(5),
                        (aril_loader_opts){ .batch = 4, .pad = true, .pad_x = -1, .pad_y = -100 });
    CHECK(aril_loader_next(l, &b));
    CHECK_INT(aril_size(b.x, 1), 3);
    const int32_t want[] = { 1, 1, -1, -1, -1, -1, 2, 2, 2,  2,  -1, -1,
                             3, 3, 3,  3,  3,  3,  4, 4, -1, -1, -1, -1 };
    CHECK(!memcmp(aril_data(b.x), want, sizeof want));
    const int64_t y[] = { 0, -100, 1, 1, 2, -100, 3, 3 }, lengths[] = { 1, 2, 3, 1 };
    CHECK(!memcmp(aril_data(b.y), y, sizeof y));
    CHECK(!memcmp(aril_data(b.lengths), lengths, sizeof lengths));
    CHECK_NEAR(((const float *)aril_data(b.weight))[3], 1.5, 0);
    CHECK(aril_loader_next(l, &b));
    CHECK_INT(b.n, 1);
    aril_loader_free(l);

    int64_t seen = 0;
    l = aril_loader_new(ragged(5),
                        (aril_loader_opts){ .batch = 4, .collate = sums, .collate_ctx = &seen });
    CHECK(aril_loader_next(l, &b));
    CHECK_INT(((const int64_t *)aril_data(b.x))[2], 18);
    CHECK_INT(seen, 4);
    aril_loader_free(l);
    CHECK(!aril_loader_new(ragged(5), (aril_loader_opts){ .collate = sums, .pad = true }));
    CHECK_ERROR("cannot be combined");
}

TEST(classes_and_names)
{
    const char *names[3] = { "cat", "dog", "fish" };
    ARIL_SCOPE;
    aril_dataset *d = numbers(4);
    CHECK_INT(aril_dataset_set_classes(d, 3, names), ARIL_OK);
    d = aril_dataset_range(d, 1, 3);
    const char *const *got;
    CHECK_INT(aril_dataset_classes(d, &got), 3);
    CHECK_STR(got[2], "fish");
    CHECK(!aril_dataset_has_images(d));
    aril_dataset_release(d);
    CHECK_INT(aril_dataset_size(NULL), -1);
    CHECK(!aril_dataset_range(NULL, 0, 1)); /* the error is propagated, not a new one */
    CHECK(!aril_loader_new(NULL, (aril_loader_opts){ .batch = 3 }));
    CHECK(aril_ok());
    CHECK(!aril_dataset_tensors(counting(3, 2), counting(4, 1)));
    CHECK_ERROR("(3, as x), got [4,1]");
    CHECK(!aril_loader_new(numbers(3), (aril_loader_opts){ .batch = -1 }));
    CHECK_ERROR("got -1");
    aril_sample s;
    d = numbers(3);
    CHECK(aril_dataset_get(d, 3, &s) < 0);
    CHECK_ERROR("index 3 is out of range for 3 samples");
    aril_dataset_release(d);
    aril_loader *l = aril_loader_new(numbers(0), (aril_loader_opts){ .batch = 3, .shuffle = true });
    aril_batch b;
    CHECK_INT(aril_loader_length(l), 0);
    CHECK(!aril_loader_next(l, &b));
    aril_loader_free(l);
    CHECK(aril_ok());
}

/* Every allocation of creating and using a loader fails once: an error, no leak, no crash. */
TEST(failed_allocations)
{
    for (int64_t n = 1; n < 400; n++) {
        aril_fail_allocation(n);
        {
            ARIL_SCOPE;
            aril_dataset *d = aril_dataset_cache(aril_dataset_take(squares(5), 4), 0);
            aril_loader *l =
                aril_loader_new(d, (aril_loader_opts){ .batch = 2,
                                                       .sampler = aril_sampler_distributed(
                                                           aril_sampler_random(), 0, 2, false) });
            aril_batch b;
            if (l) aril_loader_next(l, &b);
            aril_loader_free(l);
        }
        bool failed = aril_allocation_failed();
        aril_fail_allocation(0);
        aril_clear_error();
        if (!failed) return;
    }
    CHECK_MSG(false, "the program never ran to its end");
}

static int64_t below_none(aril_dataset *d)
{
    (void)d;
    return -5;
}

static aril_status no_sample(aril_dataset *d, int64_t i, aril_sample *s)
{
    (void)d, (void)i, (void)s;
    return ARIL_OK;
}

static int64_t below_none_drawn(void *ctx, int64_t size)
{
    (void)ctx, (void)size;
    return -3;
}

static aril_status draws_nothing(void *ctx, int64_t size, uint64_t seed, int64_t epoch, int64_t n,
                                 int64_t *order)
{
    (void)ctx, (void)size, (void)seed, (void)epoch, (void)n, (void)order;
    return ARIL_OK;
}

TEST(negative_sizes_are_rejected)
{
    ARIL_SCOPE;
    CHECK(aril_loader_new(aril_dataset_new("Odd", 0, below_none, no_sample),
                          (aril_loader_opts){ 0 }) == NULL);
    CHECK_ERROR("-5 samples");
    aril_sampler *s =
        aril_sampler_new((aril_sampler_class){ .count = below_none_drawn, .fill = draws_nothing },
                         NULL);
    CHECK(aril_loader_new(numbers(4), (aril_loader_opts){ .sampler = s }) == NULL);
    CHECK_ERROR("got -3");
    CHECK(aril_batch_buffer(NULL, ARIL_F32, ARIL_SHAPE(1)) == NULL);
    CHECK_ERROR("NULL");
}

TEST(recursive_dataset_is_rejected)
{
    ARIL_SCOPE;
    aril_dataset *a = numbers(3), *b = numbers(4);
    aril_dataset_set_source(a, aril_dataset_keep(a));
    CHECK_ERROR("from itself");
    aril_dataset_set_source(a, aril_dataset_keep(b));
    aril_dataset_set_source(b, aril_dataset_keep(a));
    CHECK_ERROR("from itself");
    CHECK(aril_dataset_source(a) == b && aril_dataset_source(b) == NULL);
    CHECK_INT(aril_dataset_classes(a, NULL), 0);
    aril_dataset_release(a);
    aril_dataset_release(b);
}
