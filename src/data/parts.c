/* Datasets composed of others: concatenation, subsets, splits. */
#include "data/dataset.h"

#include "core/memory.h"
#include "data/sampler.h"

#include <stdlib.h>
#include <string.h>

/* ---- concatenation ---- */

struct concat {
    int n;
    aril_dataset **part;
    int64_t *end; /* cumulative number of samples, including each part */
};

static int64_t concat_size(aril_dataset *self)
{
    const struct concat *d = aril_dataset_data(self);
    return d->n ? d->end[d->n - 1] : 0;
}

static aril_status concat_get(aril_dataset *self, int64_t i, aril_sample *s)
{
    const struct concat *d = aril_dataset_data(self);
    int low = 0, high = d->n - 1; /* binary search for the first part that ends after i */
    while (low < high) {
        int mid = (low + high) / 2;
        if (d->end[mid] > i)
            high = mid;
        else
            low = mid + 1;
    }
    return d->part[low]->type->get(d->part[low], low ? i - d->end[low - 1] : i, s);
}

static void concat_destroy(aril_dataset *self)
{
    struct concat *d = aril_dataset_data(self);
    for (int k = 0; k < d->n; k++) aril_dataset_release(d->part[k]);
    free(d->part);
    free(d->end);
}

static const aril_dataset_class concat_class = {
    .type = "Concat",
    .data_size = sizeof(struct concat),
    .size = concat_size,
    .get = concat_get,
    .destroy = concat_destroy,
};

aril_dataset *aril_dataset_concat(int n, aril_dataset *const *parts)
{
    aril_dataset *d = NULL;
    bool streams = false, absent = n < 1 || !parts;
    for (int k = 0; k < n && parts; k++) {
        absent |= !parts[k];
        streams |= parts[k] && !parts[k]->type->get;
    }
    if (streams)
        aril__fail(ARIL_ERR_ARG, "dataset_concat: streams cannot be concatenated");
    else if (n < 1 || !parts)
        aril__fail(ARIL_ERR_ARG, "dataset_concat: expected at least one dataset, got %d", n);
    else if (!absent)
        d = aril_dataset_make(&concat_class);
    struct concat *c = aril_dataset_data(d);
    if (c) {
        c->part = aril__calloc((size_t)n * sizeof(void *));
        c->end = aril__calloc((size_t)n * sizeof *c->end);
        if (!c->part || !c->end) {
            aril__fail(ARIL_ERR_MEMORY, "dataset_concat: out of memory");
            aril_dataset_release(d);
            d = NULL;
        }
    }
    if (!d) {
        for (int k = 0; k < n && parts; k++) aril_dataset_release(parts[k]);
        return NULL;
    }
    bool images = true;
    const char *const *names;
    c->n = n;
    for (int k = 0; k < n; k++) {
        c->part[k] = parts[k];
        c->end[k] = aril_dataset_size(parts[k]) + (k ? c->end[k - 1] : 0);
        images &= aril_dataset_has_images(parts[k]);
    }
    d->images = images;
    int classes = aril_dataset_classes(parts[0], &names);
    if (aril_dataset_set_classes(d, classes, names) < 0) {
        aril_dataset_release(d);
        return NULL;
    }
    return d;
}

/* ---- subsets ---- */

struct subset {
    int64_t n, begin;
    int64_t *index; /* NULL: n samples from `begin` on */
};

static int64_t subset_size(aril_dataset *self)
{
    const struct subset *d = aril_dataset_data(self);
    return d->n;
}

static int64_t source_index(const struct subset *d, int64_t i)
{
    return d->index ? d->index[i] : d->begin + i;
}

static aril_status subset_get(aril_dataset *self, int64_t i, aril_sample *s)
{
    return self->source->type->get(self->source, source_index(aril_dataset_data(self), i), s);
}

static aril_status subset_get_batch(aril_dataset *self, int64_t n, const int64_t *index,
                                    aril_batch *b)
{
    enum { SMALL = 512 };
    const struct subset *d = aril_dataset_data(self);
    if (!self->source->type->get_batch ||
        aril_dataset_has_images(self) != aril_dataset_has_images(self->source))
        return 1;
    int64_t few[SMALL];
    int64_t *indices = n <= SMALL ? few : aril__malloc((size_t)n * sizeof *indices);
    if (!indices) return aril__fail(ARIL_ERR_MEMORY, "subset: out of memory");
    for (int64_t i = 0; i < n; i++) indices[i] = source_index(d, index[i]);
    aril_status status = self->source->type->get_batch(self->source, n, indices, b);
    if (indices != few) free(indices);
    return status;
}

static void subset_destroy(aril_dataset *self)
{
    struct subset *d = aril_dataset_data(self);
    free(d->index);
}

static const aril_dataset_class subset_class = {
    .type = "Subset",
    .data_size = sizeof(struct subset),
    .size = subset_size,
    .get = subset_get,
    .get_batch = subset_get_batch,
    .destroy = subset_destroy,
};

/* Takes over `source` and, on success, `index`. */
static aril_dataset *make_subset(aril_dataset *source, int64_t n, int64_t begin, int64_t *index)
{
    aril_dataset *d = aril_dataset_make(&subset_class);
    if (!d) {
        aril_dataset_release(source);
        return NULL;
    }
    aril_dataset_set_source(d, source);
    struct subset *data = aril_dataset_data(d);
    *data = (struct subset){ .n = n, .begin = begin, .index = index };
    return d;
}

static bool is_indexable(const char *what, const aril_dataset *d)
{
    if (!d) return false;
    if (d->type->get) return true;
    aril__fail(ARIL_ERR_ARG, "%s: %s is a stream, whose samples have no indices", what,
               d->type->type);
    return false;
}

aril_dataset *aril_dataset_subset(aril_dataset *d, int64_t n, const int64_t *index)
{
    int64_t size = aril_dataset_size(d), *copy = NULL;
    bool ok = is_indexable("dataset_subset", d);
    if (ok && (n < 0 || (n > 0 && !index))) {
        aril__fail(ARIL_ERR_ARG, "dataset_subset: expected n >= 0 indices, got n = %lld%s",
                   (long long)n, index ? "" : " and NULL");
        ok = false;
    }
    for (int64_t i = 0; ok && i < n; i++)
        if (index[i] < 0 || index[i] >= size) {
            aril__fail(
                ARIL_ERR_INDEX,
                "dataset_subset: entry %lld of the list is %lld, out of range for %lld samples",
                (long long)i, (long long)index[i], (long long)size);
            ok = false;
        }
    if (ok && !(copy = aril__malloc((size_t)(n ? n : 1) * sizeof *copy))) {
        aril__fail(ARIL_ERR_MEMORY, "dataset_subset: out of memory");
        ok = false;
    }
    if (!ok) {
        aril_dataset_release(d);
        return NULL;
    }
    if (n) memcpy(copy, index, (size_t)n * sizeof *copy);
    aril_dataset *part = make_subset(d, n, 0, copy);
    if (!part) free(copy);
    return part;
}

aril_dataset *aril_dataset_range(aril_dataset *d, int64_t begin, int64_t end)
{
    int64_t size = aril_dataset_size(d);
    if (!is_indexable("dataset_range", d)) {
        aril_dataset_release(d);
        return NULL;
    }
    if (begin < 0 || end < begin || end > size) {
        aril__fail(ARIL_ERR_INDEX,
                   "dataset_range: samples %lld to %lld are out of range for %lld samples",
                   (long long)begin, (long long)end, (long long)size);
        aril_dataset_release(d);
        return NULL;
    }
    return make_subset(d, end - begin, begin, NULL);
}

/* ---- splits ---- */

aril_status aril_dataset_split(aril_dataset *d, int n, const double *fraction, uint64_t seed,
                               aril_dataset **part)
{
    aril_status status = ARIL_OK;
    for (int k = 0; k < n && part; k++) part[k] = NULL;
    double sum = 0;
    for (int k = 0; k < n && fraction; k++) sum += fraction[k];
    if (!is_indexable("dataset_split", d)) {
        status = ARIL_ERR_ARG;
    } else if (n < 1 || !fraction || !part) {
        status = aril__fail(ARIL_ERR_ARG, "dataset_split: expected at least one part, got %d", n);
    } else {
        for (int k = 0; k < n && status >= 0; k++)
            if (!(fraction[k] >= 0))
                status =
                    aril__fail(ARIL_ERR_ARG, "dataset_split: fraction %d is %g", k, fraction[k]);
        if (status >= 0 && !(sum <= 1 + 1e-9))
            status =
                aril__fail(ARIL_ERR_ARG, "dataset_split: fractions add up to %g, more than 1", sum);
    }
    int64_t size = aril_dataset_size(d);
    int64_t *order = status < 0 ? NULL : aril__malloc((size_t)(size ? size : 1) * sizeof *order);
    if (status >= 0 && !order) status = aril__fail(ARIL_ERR_MEMORY, "dataset_split: out of memory");
    if (status >= 0) {
        for (int64_t i = 0; i < size; i++) order[i] = i;
        aril__shuffle(order, size, seed, 0);
        /* Split at rounded cumulative sums, so that fractions that add up to 1 use every sample. */
        double up_to = 0;
        int64_t begin = 0;
        for (int k = 0; k < n && status >= 0; k++) {
            up_to += fraction[k];
            int64_t end = (int64_t)(up_to * (double)size + 0.5);
            if (end > size) end = size;
            part[k] = aril_dataset_subset(aril_dataset_keep(d), end - begin, order + begin);
            if (!part[k]) status = ARIL_ERR_MEMORY;
            begin = end;
        }
        for (int k = 0; k < n && status < 0; k++) {
            aril_dataset_release(part[k]);
            part[k] = NULL;
        }
    }
    free(order);
    aril_dataset_release(d);
    return status;
}
