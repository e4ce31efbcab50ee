/* Datasets of in-memory tensors: sample i is row i of each. */
#include "data/dataset.h"

#include "aril/create.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/parallel.h"
#include "core/tensor.h"
#include "data/image/pixels.h"

#include <string.h>

struct tensors {
    int n;
    int64_t size;
    aril_tensor *part[ARIL__PARTS];
    bool one_channel; /* x [N,H,W] is seen as [N,1,H,W] */
};

static int64_t tensors_size(aril_dataset *self)
{
    const struct tensors *d = aril_dataset_data(self);
    return d->size;
}

/* A view of row i of t, without the cost of recording an op. */
static aril_tensor *row(aril__thread *th, const aril_tensor *t, int64_t i, bool one_channel)
{
    int64_t dim[ARIL_MAX_DIMS], stride[ARIL_MAX_DIMS];
    int n = 0;
    if (one_channel) {
        dim[n] = 1;
        stride[n++] = t->stride[0];
    }
    for (int k = 1; k < t->ndim; k++, n++) {
        dim[n] = t->dim[k];
        stride[n] = t->stride[k];
    }
    aril_tensor *v = aril__tensor_header(th, (aril_dtype)t->dtype, n, dim);
    if (!v) return NULL;
    memcpy(v->stride, stride, (size_t)n * sizeof *stride);
    v->offset = t->offset + i * t->stride[0];
    v->storage = t->storage;
    atomic_fetch_add_explicit(&v->storage->refs, 1, memory_order_relaxed);
    v = aril__give(th, v);
    return v;
}

static aril_status tensors_get(aril_dataset *self, int64_t i, aril_sample *s)
{
    const struct tensors *d = aril_dataset_data(self);
    aril__thread *th = aril__self();
    for (int k = 0; k < d->n; k++) {
        if (!d->part[k]) continue;
        aril_tensor *t = row(th, d->part[k], i, k == 0 && d->one_channel);
        if (!t || aril__is_poison(t)) return ARIL_ERR_MEMORY;
        *aril__sample_part(s, k) = t;
    }
    return ARIL_OK;
}

/* ---- whole batches ---- */

struct gather {
    const char *from;
    char *to;
    const int64_t *index;
    size_t from_bytes, to_bytes; /* per row */
    int64_t numel;
    bool unit;
};

static void gather_rows(void *ctx, int64_t begin, int64_t end)
{
    const struct gather *g = ctx;
    for (int64_t r = begin; r < end; r++) {
        const char *src = g->from + (size_t)g->index[r] * g->from_bytes;
        char *dst = g->to + (size_t)r * g->to_bytes;
        /* Prefetch the next row: random order defeats the hardware prefetcher. */
        if (r + 1 < end) {
            const char *next = g->from + (size_t)g->index[r + 1] * g->from_bytes;
            for (size_t b = 0; b < g->from_bytes && b < 1024; b += 64) __builtin_prefetch(next + b);
        }
        if (g->unit)
            aril__u8_to_unit((float *)(void *)dst, (const uint8_t *)src, g->numel);
        else if (g->from_bytes == 8)
            memcpy(dst, src, 8);
        else
            memcpy(dst, src, g->from_bytes);
    }
}

static aril_status tensors_get_batch(aril_dataset *self, int64_t n, const int64_t *index,
                                     aril_batch *b)
{
    const struct tensors *d = aril_dataset_data(self);
    bool unit = aril_dataset_has_images(self);
    for (int k = 0; k < d->n; k++) {
        const aril_tensor *t = d->part[k];
        if (t && (!aril__is_dense(t) || aril__dtypes[t->dtype].bits < 8)) return 1;
    }
    for (int k = 0; k < d->n; k++) {
        const aril_tensor *t = d->part[k];
        if (!t) continue;
        struct gather g = { .index = index, .from = aril__ptr(t) };
        g.unit = unit && k == 0 && t->dtype == ARIL_U8;
        g.numel = d->size ? t->numel / d->size : 0;
        aril_dtype dtype = g.unit ? ARIL_F32 : (aril_dtype)t->dtype;
        g.from_bytes = aril__dtype_bytes((aril_dtype)t->dtype, g.numel);
        g.to_bytes = aril__dtype_bytes(dtype, g.numel);
        aril_shape shape = { .ndim = 1, .dim = { n } };
        if (k == 0 && d->one_channel) shape.dim[shape.ndim++] = 1;
        for (int a = 1; a < t->ndim; a++) shape.dim[shape.ndim++] = t->dim[a];
        aril_tensor *buffer = aril_batch_buffer(aril__batch_part(b, k), dtype, shape);
        if (!buffer) return ARIL_ERR_MEMORY;
        g.to = aril__ptr(buffer);
        int64_t grain = (int64_t)(262144 / (g.to_bytes + 1)) + 1;
        aril__parallel_for(n, grain, gather_rows, &g);
    }
    return ARIL_OK;
}

static void tensors_destroy(aril_dataset *self)
{
    struct tensors *d = aril_dataset_data(self);
    for (int k = 0; k < ARIL__PARTS; k++) aril_release(d->part[k]);
}

static const aril_dataset_class tensors_class = {
    .type = "Tensors",
    .data_size = sizeof(struct tensors),
    .size = tensors_size,
    .get = tensors_get,
    .get_batch = tensors_get_batch,
    .destroy = tensors_destroy,
};

static const aril_dataset_class images_class = {
    .type = "Images",
    .data_size = sizeof(struct tensors),
    .size = tensors_size,
    .get = tensors_get,
    .get_batch = tensors_get_batch,
    .destroy = tensors_destroy,
    .images = true,
};

static aril_dataset *make(const aril_dataset_class *type, const char *what, aril_list tensors)
{
    if (tensors.n < 1 || tensors.n > ARIL__PARTS || !tensors.at || !tensors.at[0]) {
        aril__fail(ARIL_ERR_ARG, "%s: expected 1 to %d tensors of which the first is x, got %d%s",
                   what, ARIL__PARTS, tensors.n,
                   tensors.n > 0 && tensors.at && !tensors.at[0] ? ", the first NULL" : "");
        return NULL;
    }
    for (int k = 0; k < tensors.n; k++) {
        aril_tensor *t = tensors.at[k];
        if (!t) continue;
        if (aril__check_value(what, t) < 0) return NULL;
        char text[ARIL__SHAPE_TEXT];
        if (t->ndim < 1 || t->dim[0] != tensors.at[0]->dim[0]) {
            aril__fail(ARIL_ERR_SHAPE,
                       "%s: expected %s with one row for each sample (%lld, as x), got %s", what,
                       aril__part_name(k),
                       tensors.at[0]->ndim ? (long long)tensors.at[0]->dim[0] : 0,
                       aril__text(text, t));
            return NULL;
        }
        if (!t->storage->device->host_memory) {
            char name[48];
            aril_device_name(t->storage->device->id, name, sizeof name);
            aril__fail(ARIL_ERR_DEVICE,
                       "%s: %s is on %s, but a dataset is kept in host memory: pass aril_to(x, "
                       "aril_cpu()); fit and evaluate move each batch to the model's device",
                       what, aril__part_name(k), name);
            return NULL;
        }
    }
    aril_dataset *d = aril_dataset_make(type);
    if (!d) return NULL;
    struct tensors *data = aril_dataset_data(d);
    for (int k = 0; k < tensors.n; k++)
        if (tensors.at[k]) data->n = k + 1;
    data->size = tensors.at[0]->dim[0];
    for (int k = 0; k < tensors.n; k++)
        if (tensors.at[k]) data->part[k] = aril_keep(tensors.at[k]);
    return d;
}

aril_dataset *aril_dataset_tensors_n(aril_list tensors)
{
    return make(&tensors_class, "dataset_tensors", tensors);
}

/* Checks the entries of a list of at most `most`; an empty list may be NULL. */
static aril_status check_list(const char *name, aril_list l, int max)
{
    if (l.n >= 0 && l.n <= max && (l.at || l.n == 0)) return ARIL_OK;
    return aril__fail(ARIL_ERR_ARG,
                      "dataset_tensor_lists: %s: expected at most %d tensors, got %d%s", name, max,
                      l.n, l.at ? "" : " and NULL for the list");
}

aril_dataset *aril_dataset_tensor_lists(aril_list x, aril_list y, aril_tensor *weight)
{
    aril_tensor *part[ARIL__PARTS] = { NULL };
    if (check_list("x", x, 1 + ARIL_SAMPLE_EXTRA) < 0 ||
        check_list("y", y, 1 + ARIL_SAMPLE_EXTRA_Y) < 0)
        return NULL;
    for (int i = 0; i < x.n; i++) part[i ? ARIL__PART_EXTRA + i - 1 : 0] = x.at[i];
    for (int i = 0; i < y.n; i++) part[i ? ARIL__PART_EXTRA_Y + i - 1 : 1] = y.at[i];
    part[2] = weight;
    return make(&tensors_class, "dataset_tensors", (aril_list){ ARIL__PARTS, part });
}

aril_dataset *aril_dataset_tensors(aril_tensor *x, aril_tensor *y)
{
    aril_tensor *both[2] = { x, y };
    return make(&tensors_class, "dataset_tensors", (aril_list){ 2, both });
}

aril_dataset *aril_dataset_images(aril_tensor *x, aril_tensor *y)
{
    aril_tensor *both[2] = { x, y };
    char text[ARIL__SHAPE_TEXT];
    if (x && !aril__is_poison(x) &&
        ((x->ndim != 4 && x->ndim != 3) || (x->dtype != ARIL_U8 && x->dtype != ARIL_F32))) {
        aril__fail(ARIL_ERR_SHAPE,
                   "dataset_images: expected u8 or f32 [N,C,H,W] or [N,H,W], got %s %s",
                   aril__dtypes[x->dtype].name, aril__text(text, x));
        return NULL;
    }
    aril_dataset *d = make(&images_class, "dataset_images", (aril_list){ 2, both });
    if (d) ((struct tensors *)aril_dataset_data(d))->one_channel = x->ndim == 3;
    return d;
}
