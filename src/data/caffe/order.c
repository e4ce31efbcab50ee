/* The order in which a data layer walks through its samples. */
#include "data/caffe/source.h"

#include "core/error.h"
#include "core/memory.h"
#include "data/sampler.h"

#include <stdlib.h>
#include <string.h>

enum { FEWEST = 4096 }; /* samples of an epoch, of small datasets: its end makes workers wait */

typedef struct walk {
    int64_t batch, skip_below;
    bool shuffle;
    int n_parts;
    const int64_t *part;
    /* The order of one pass, which is remembered. */
    int64_t *order, pass, size;
    uint64_t seed;
} walk;

static int64_t count(void *ctx, int64_t size)
{
    const walk *w = ctx;
    if (size <= 0) return 0;
    int64_t least = size > FEWEST ? size : FEWEST;
    return (least + w->batch - 1) / w->batch * w->batch;
}

/* Shuffles the parts, and the samples of each. */
static aril_status shuffle_parts(walk *w, int64_t pass)
{
    int64_t *at = aril__malloc((size_t)w->n_parts * 2 * sizeof *at), *which = at + w->n_parts;
    if (!at) return aril__fail(ARIL_ERR_MEMORY, "out of memory for the order of samples");
    int64_t first = 0, n = 0;
    for (int i = 0; i < w->n_parts; i++) {
        at[i] = first;
        first += w->part[i];
        which[i] = i;
    }
    aril__shuffle(which, w->n_parts, w->seed, pass);
    for (int i = 0; i < w->n_parts; i++) {
        int64_t k = which[i];
        for (int64_t j = 0; j < w->part[k]; j++) w->order[n + j] = at[k] + j;
        aril__shuffle(w->order + n, w->part[k], w->seed ^ (uint64_t)(k + 1) << 32, pass);
        n += w->part[k];
    }
    free(at);
    return ARIL_OK;
}

/* Makes w->order that of a pass. */
static aril_status order_pass(walk *w, int64_t size, uint64_t seed, int64_t pass)
{
    if (w->order && w->size == size && w->seed == seed && w->pass == pass) return ARIL_OK;
    if (w->size != size || !w->order) {
        free(w->order);
        w->order = aril__malloc((size_t)size * sizeof *w->order);
        if (!w->order) return aril__fail(ARIL_ERR_MEMORY, "out of memory for the order of samples");
    }
    w->size = size;
    w->seed = seed;
    w->pass = pass;
    if (w->n_parts > 0) return shuffle_parts(w, pass);
    for (int64_t i = 0; i < size; i++) w->order[i] = i;
    aril__shuffle(w->order, size, seed, pass);
    return ARIL_OK;
}

static aril_status fill(void *ctx, int64_t size, uint64_t seed, int64_t epoch, int64_t n,
                        int64_t *order)
{
    walk *w = ctx;
    int64_t from, skip = 0;
    if (size <= 0) return ARIL_OK;
    /* From the seed, so that a loader that is set to a position of another run follows it. */
    if (w->skip_below > 0)
        skip = (int64_t)(aril__sample_seed(seed, 0, -2, 0) % (uint64_t)w->skip_below);
    if (epoch < 0 || __builtin_mul_overflow(epoch, n, &from) || from > INT64_MAX - n - skip)
        return aril__fail(ARIL_ERR_ARG, "a data layer has no epoch %lld", (long long)epoch);
    from += skip;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = (from + i) % size;
        if (w->shuffle && (i == 0 || at == 0)) {
            aril_status status = order_pass(w, size, seed, (from + i) / size);
            if (status != ARIL_OK) return status;
        }
        order[i] = w->shuffle ? w->order[at] : at;
    }
    return ARIL_OK;
}

static void drop(void *ctx)
{
    walk *w = ctx;
    free(w->order);
    free(w);
}

aril_sampler *aril__caffe_order(const aril__caffe_source *s)
{
    walk *w = aril__calloc(sizeof *w);
    if (!w) {
        aril__fail(ARIL_ERR_MEMORY, "out of memory for the order of samples");
        return NULL;
    }
    *w = (walk){ .batch = s->batch,
                 .skip_below = s->skip_below,
                 .shuffle = s->shuffle,
                 .n_parts = s->n_parts,
                 .part = s->part };
    aril_sampler_class type = { .count = count, .fill = fill, .drop = drop };
    aril_sampler *sampler = aril_sampler_new(type, w);
    if (sampler) sampler->repeats = true;
    return sampler;
}

int64_t aril__caffe_batch_size(const aril__message *param)
{
    enum { LARGEST = 1 << 24 };
    int64_t n = aril__message_int(param, "batch_size");
    if (n >= 1 && n <= LARGEST) return n;
    return aril__fail(ARIL_ERR_ARG, "expected a batch_size from 1 to %d, got %lld", LARGEST,
                      (long long)n);
}
