#include "data/sampler.h"

#include "aril/scope.h"
#include "core/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Orders draw from the generator of sample -1, which no dataset has. */
enum { NO_SAMPLE = -1 };

static aril__rng_key key_of(uint64_t seed, int64_t epoch)
{
    return (aril__rng_key){ aril__sample_seed(seed, epoch, NO_SAMPLE, 0), 0 };
}

void aril__shuffle(int64_t *order, int64_t n, uint64_t seed, int64_t epoch)
{
    enum { BLOCK = 512 };
    uint64_t draw[BLOCK];
    aril__rng_key key = key_of(seed, epoch);
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t end = n - at < BLOCK ? n : at + BLOCK;
        aril__rng_u64(key, at, end, draw);
        /* Fisher-Yates, going up: element i swaps with a random position up to i (Durstenfeld). */
        for (int64_t i = at; i < end; i++) {
            int64_t j = (int64_t)aril__rng_scale(draw[i - at], (uint64_t)i + 1);
            int64_t moved = order[i];
            order[i] = order[j];
            order[j] = moved;
        }
    }
}

aril_sampler *aril_sampler_new(aril_sampler_class type, void *ctx)
{
    aril_sampler *s = NULL;
    if (!type.fill || !type.count)
        aril__fail(ARIL_ERR_ARG, "sampler_new: a sampler needs `count` and `fill`");
    else if (!(s = aril__calloc(sizeof *s)))
        aril__fail(ARIL_ERR_MEMORY, "sampler_new: out of memory");
    if (!s) {
        if (type.drop) type.drop(ctx);
        return NULL;
    }
    s->type = type;
    s->ctx = ctx;
    s->step = 1;
    return s;
}

void aril_sampler_free(aril_sampler *s)
{
    if (!s) return;
    if (s->type.drop) s->type.drop(s->ctx);
    free(s);
}

int64_t aril__sampler_count(const aril_sampler *s, int64_t size)
{
    int64_t n = s->type.count(s->ctx, size);
    if (n < 0 || n > INT64_MAX / (int64_t)sizeof(int64_t))
        return aril__fail(ARIL_ERR_ARG, "sampler: expected an epoch of 0 or more samples, got %lld",
                          (long long)n);
    return n;
}

aril_status aril__sampler_fill(const aril_sampler *s, int64_t size, uint64_t seed, int64_t epoch,
                               int64_t n, int64_t *order)
{
    aril_status status = s->type.fill(s->ctx, size, seed, epoch, n, order);
    for (int64_t i = 0; i < n && status >= 0; i++)
        if (order[i] < 0 || order[i] >= size)
            status =
                aril__fail(ARIL_ERR_INDEX, "sampler: index %lld is out of range for %lld samples",
                           (long long)order[i], (long long)size);
    return status;
}

/* ---- sequential and shuffled order ---- */

static int64_t count_all(void *ctx, int64_t size)
{
    (void)ctx;
    return size;
}

static aril_status fill_in_order(void *ctx, int64_t size, uint64_t seed, int64_t epoch, int64_t n,
                                 int64_t *order)
{
    (void)ctx, (void)size, (void)seed, (void)epoch;
    for (int64_t i = 0; i < n; i++) order[i] = i;
    return ARIL_OK;
}

static aril_status fill_shuffled(void *ctx, int64_t size, uint64_t seed, int64_t epoch, int64_t n,
                                 int64_t *order)
{
    fill_in_order(ctx, size, seed, epoch, n, order);
    aril__shuffle(order, n, seed, epoch);
    return ARIL_OK;
}

aril_sampler *aril_sampler_sequential(void)
{
    return aril_sampler_new((aril_sampler_class){ .count = count_all, .fill = fill_in_order },
                            NULL);
}

aril_sampler *aril_sampler_random(void)
{
    return aril_sampler_new((aril_sampler_class){ .count = count_all, .fill = fill_shuffled },
                            NULL);
}

/* ---- random draws ---- */

struct drawn {
    int64_t n;    /* 0: as many as the dataset has */
    int64_t size; /* length of `weight`; 0: uniform */
    bool replacing, shuffle;
    double *weight; /* with replacement: cumulative sums */
    int64_t *index; /* indices of a subset */
};

static void drawn_drop(void *ctx)
{
    struct drawn *d = ctx;
    free(d->weight);
    free(d->index);
    free(d);
}

static int64_t drawn_count(void *ctx, int64_t size)
{
    const struct drawn *d = ctx;
    if (d->weight && d->size != size)
        return aril__fail(
            ARIL_ERR_SHAPE,
            "sampler_weighted: got %lld weights for %lld samples; expected one for each",
            (long long)d->size, (long long)size);
    return !size ? 0 : d->n ? d->n : size;
}

static aril_status fill_replacing(void *ctx, int64_t size, uint64_t seed, int64_t epoch, int64_t n,
                                  int64_t *order)
{
    (void)ctx;
    aril__rng_below(key_of(seed, epoch), 0, n, (uint64_t)size, order);
    return ARIL_OK;
}

/* The first index whose cumulative sum is above u. */
static int64_t find_in_sums(const double *sum, int64_t n, double u)
{
    int64_t low = 0, high = n - 1;
    while (low < high) {
        int64_t mid = low + (high - low) / 2;
        if (sum[mid] > u)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

static aril_status fill_weighted(void *ctx, int64_t size, uint64_t seed, int64_t epoch, int64_t n,
                                 int64_t *order)
{
    enum { BLOCK = 512 };
    const struct drawn *d = ctx;
    double draw[BLOCK], total = d->weight[size - 1];
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t end = n - at < BLOCK ? n : at + BLOCK;
        aril__rng_uniform_f64(key_of(seed, epoch), at, end, draw);
        for (int64_t i = at; i < end; i++) {
            int64_t p = find_in_sums(d->weight, size, draw[i - at] * total);
            while (p > 0 && d->weight[p] == d->weight[p - 1]) p--; /* u rounded up to the total */
            order[i] = p;
        }
    }
    return ARIL_OK;
}

struct arrival {
    double time;
    int64_t index;
};

static int earlier(const void *a, const void *b)
{
    const struct arrival *p = a, *q = b;
    if (p->time != q->time) return p->time < q->time ? -1 : 1;
    return p->index < q->index ? -1 : p->index > q->index;
}

/* Each sample arrives after an exponential time with its weight as the rate; the first n arrivals
 * are a draw without replacement (Efraimidis and Spirakis, 2006). */
static aril_status fill_weighted_once(void *ctx, int64_t size, uint64_t seed, int64_t epoch,
                                      int64_t n, int64_t *order)
{
    const struct drawn *d = ctx;
    struct arrival *a = aril__malloc((size_t)size * sizeof *a);
    if (!a) return aril__fail(ARIL_ERR_MEMORY, "sampler_weighted: out of memory");
    aril__rng_key key = key_of(seed, epoch);
    int64_t possible = 0;
    for (int64_t i = 0; i < size; i++) {
        double u;
        aril__rng_uniform_f64(key, i, i + 1, &u);
        if (d->weight[i] > 0) a[possible++] = (struct arrival){ -log1p(-u) / d->weight[i], i };
    }
    aril_status status = ARIL_OK;
    if (possible < n)
        status = aril__fail(ARIL_ERR_ARG,
                            "sampler_weighted: cannot draw %lld different samples: only %lld have "
                            "a positive weight",
                            (long long)n, (long long)possible);
    if (status >= 0) {
        qsort(a, (size_t)possible, sizeof *a, earlier);
        for (int64_t i = 0; i < n; i++) order[i] = a[i].index;
    }
    free(a);
    return status;
}

static aril_sampler *make(struct drawn start, aril_status (*fill)(void *, int64_t, uint64_t,
                                                                  int64_t, int64_t, int64_t *))
{
    struct drawn *d = aril__malloc(sizeof *d);
    if (!d) {
        aril__fail(ARIL_ERR_MEMORY, "sampler: out of memory");
        free(start.weight);
        free(start.index);
        return NULL;
    }
    *d = start;
    aril_sampler *s = aril_sampler_new(
        (aril_sampler_class){ .count = drawn_count, .fill = fill, .drop = drawn_drop }, d);
    if (s) s->repeats = start.replacing;
    return s;
}

aril_sampler *aril_sampler_replacing(int64_t n)
{
    if (n < 0) {
        aril__fail(ARIL_ERR_ARG, "sampler_replacing: expected n >= 0, got %lld", (long long)n);
        return NULL;
    }
    return make((struct drawn){ .n = n, .replacing = true }, fill_replacing);
}

aril_sampler *aril_sampler_weighted(aril_tensor *weights, int64_t n, bool replacing)
{
    int64_t size = weights ? aril_numel(weights) : 0;
    aril_dtype dtype = weights ? aril_dtype_of(weights) : ARIL_F32;
    if (!weights || aril_tensor_status(weights) < 0 || aril_ndim(weights) != 1 || size < 1 ||
        (dtype != ARIL_F32 && dtype != ARIL_F64) || n < 0) {
        aril__fail(ARIL_ERR_ARG,
                   "sampler_weighted: expected f32 or f64 weights, one for each sample, and n >= "
                   "0, got %s and n = %lld",
                   !weights                          ? "NULL"
                   : aril_tensor_status(weights) < 0 ? "poison"
                                                     : "others",
                   (long long)n);
        return NULL;
    }
    double *weight = aril__malloc((size_t)size * sizeof *weight), sum = 0;
    if (!weight) {
        aril__fail(ARIL_ERR_MEMORY, "sampler_weighted: out of memory");
        return NULL;
    }
    ARIL_SCOPE;
    const void *data = aril_data(weights);
    for (int64_t i = 0; i < size && data; i++) {
        double w = dtype == ARIL_F64 ? ((const double *)data)[i] : ((const float *)data)[i];
        if (!(w >= 0) || !(sum + w < HUGE_VAL)) {
            aril__fail(ARIL_ERR_NUMBER, "sampler_weighted: weight %lld is %g", (long long)i, w);
            data = NULL;
            break;
        }
        sum += w;
        weight[i] = replacing ? sum : w;
    }
    if (data && sum == 0) {
        aril__fail(ARIL_ERR_NUMBER, "sampler_weighted: all weights are 0");
        data = NULL;
    }
    if (!data) {
        free(weight);
        return NULL;
    }
    return make((struct drawn){ .n = n, .size = size, .replacing = replacing, .weight = weight },
                replacing ? fill_weighted : fill_weighted_once);
}

static int64_t subset_count(void *ctx, int64_t size)
{
    (void)size;
    return ((const struct drawn *)ctx)->n;
}

static aril_status fill_subset(void *ctx, int64_t size, uint64_t seed, int64_t epoch, int64_t n,
                               int64_t *order)
{
    (void)size;
    const struct drawn *d = ctx;
    memcpy(order, d->index, (size_t)n * sizeof *order);
    if (d->shuffle) aril__shuffle(order, n, seed, epoch);
    return ARIL_OK;
}

aril_sampler *aril_sampler_subset(int64_t n, const int64_t *index, bool shuffle)
{
    if (n < 0 || (n && !index)) {
        aril__fail(ARIL_ERR_ARG, "sampler_subset: expected indices, got n = %lld", (long long)n);
        return NULL;
    }
    int64_t *copy = aril__malloc((size_t)(n ? n : 1) * sizeof *copy);
    if (!copy) {
        aril__fail(ARIL_ERR_MEMORY, "sampler_subset: out of memory");
        return NULL;
    }
    if (n) memcpy(copy, index, (size_t)n * sizeof *copy);
    aril_sampler *s =
        make((struct drawn){ .n = n, .index = copy, .shuffle = shuffle }, fill_subset);
    if (s) s->type.count = subset_count;
    return s;
}

/* ---- distributed sampling ---- */

struct share {
    aril_sampler *inner;
    int rank, world;
    bool drop;
};

static void share_drop(void *ctx)
{
    struct share *d = ctx;
    aril_sampler_free(d->inner);
    free(d);
}

static int64_t share_count(void *ctx, int64_t size)
{
    const struct share *d = ctx;
    int64_t n = aril__sampler_count(d->inner, size);
    if (n < 0) return n;
    return d->drop ? n / d->world : n / d->world + (n % d->world != 0);
}

static aril_status share_fill(void *ctx, int64_t size, uint64_t seed, int64_t epoch, int64_t n,
                              int64_t *order)
{
    const struct share *d = ctx;
    int64_t all = aril__sampler_count(d->inner, size);
    if (all < 0) return (aril_status)all;
    int64_t *inner_order = aril__malloc((size_t)(all ? all : 1) * sizeof *inner_order);
    if (!inner_order) return aril__fail(ARIL_ERR_MEMORY, "sampler_distributed: out of memory");
    aril_status status = aril__sampler_fill(d->inner, size, seed, epoch, all, inner_order);
    for (int64_t i = 0; i < n && status >= 0; i++)
        order[i] = inner_order[(d->rank + i * d->world) % all];
    free(inner_order);
    return status;
}

aril_sampler *aril_sampler_distributed(aril_sampler *inner, int rank, int world, bool drop)
{
    if (!inner) return NULL;
    struct share *d = NULL;
    if (world < 1 || rank < 0 || rank >= world)
        aril__fail(ARIL_ERR_ARG, "sampler_distributed: rank %d of %d", rank, world);
    else if (!(d = aril__malloc(sizeof *d)))
        aril__fail(ARIL_ERR_MEMORY, "sampler_distributed: out of memory");
    if (!d) {
        aril_sampler_free(inner);
        return NULL;
    }
    *d = (struct share){ .inner = inner, .rank = rank, .world = world, .drop = drop };
    aril_sampler *s = aril_sampler_new(
        (aril_sampler_class){ .count = share_count, .fill = share_fill, .drop = share_drop }, d);
    if (s) {
        s->repeats = inner->repeats;
        s->first = rank;
        s->step = world;
    }
    return s;
}
