#include "data/collate.h"

#include "aril/create.h"
#include "aril/scope.h"
#include "core/tensor.h"
#include "data/image/pixels.h"

#include <string.h>

aril_tensor *aril_batch_buffer(aril_tensor **slot, aril_dtype dtype, aril_shape shape)
{
    if (!slot) {
        aril__fail(ARIL_ERR_ARG, "batch_buffer: the pointer is NULL");
        return NULL;
    }
    if ((int)dtype < 0 || (int)dtype >= ARIL__DTYPE_COUNT) {
        aril__fail(ARIL_ERR_DTYPE, "batch_buffer: %d is not a dtype", (int)dtype);
        return NULL;
    }
    aril__thread *th = aril__self();
    aril_tensor *t = *slot;
    /* Reuse the tensor only if nobody else holds it or its storage. */
    if (t && t->storage && t->dtype == (uint8_t)dtype && t->ndim == shape.ndim && !t->node &&
        atomic_load_explicit(&t->refs, memory_order_acquire) == 1 &&
        atomic_load_explicit(&t->storage->refs, memory_order_acquire) == 1 &&
        !memcmp(t->dim, shape.dim, (size_t)t->ndim * sizeof *t->dim)) {
        if (t->storage->deleter == aril__pinned_release)
            aril__pinned_finish(t->storage->deleter_ctx);
        aril__bump_version(t);
        return t;
    }
    if (t) aril__tensor_release(th, t);
    *slot = NULL;
    if (aril__check_shape("batch", shape, false) < 0) return NULL;
    t = aril__tensor_new(th, dtype, shape.ndim, shape.dim, aril__cpu_device);
    if (!t) return NULL;
    *slot = t;
    return t;
}

/* A copy of a tensor in pinned memory; NULL with an error. */
static aril_tensor *pinned_copy(aril_tensor *t, aril__device *d)
{
    size_t bytes = aril__dtype_bytes((aril_dtype)t->dtype, t->numel);
    const void *from = aril_data(t);
    aril__pinned *block = from || !bytes ? aril__pinned_new(d, bytes) : NULL;
    if (!block) return NULL;
    if (bytes) memcpy(block->data, from, bytes);
    aril_tensor *copy =
        aril_borrow(block->data, aril__shape(t), (aril_dtype)t->dtype, aril__pinned_release, block);
    return aril__is_poison(copy) ? NULL : aril__tensor_keep(copy);
}

aril_status aril__batch_pin(aril_batch *b, aril__device *d)
{
    aril__thread *th = aril__self();
    for (int k = 0; k < ARIL__PARTS; k++) {
        aril_tensor **slot = aril__batch_part(b, k), *t = *slot;
        if (!t || t->storage->deleter == aril__pinned_release) continue;
        aril_tensor *copy = pinned_copy(t, d);
        if (!copy) return ARIL_ERR_MEMORY;
        *slot = copy;
        aril__tensor_release(th, t);
    }
    return ARIL_OK;
}

/* A kept copy of a tensor, which may be NULL, on a device. */
static aril_status send(aril_tensor *t, aril_device device, aril_tensor **to)
{
    if (!t) return ARIL_OK;
    aril_tensor *sent = aril_to(t, device);
    aril_status status = aril_tensor_status(sent);
    if (status >= 0) *to = aril_keep(sent);
    return status;
}

aril_status aril__batch_send(const aril_batch *b, aril_device device, aril_batch *to)
{
    aril_batch *from = (aril_batch *)(uintptr_t)b;
    aril__batch_clear(to);
    aril_status status = send(b->lengths, device, &to->lengths);
    for (int k = 0; k < ARIL__PARTS && status >= 0; k++)
        status = send(*aril__batch_part(from, k), device, aril__batch_part(to, k));
    return status;
}

void aril__batch_clear(aril_batch *b)
{
    for (int k = 0; k < ARIL__PARTS; k++) {
        aril_tensor **t = aril__batch_part(b, k);
        aril_release(*t);
        *t = NULL;
    }
    aril_release(b->lengths);
    b->lengths = NULL;
}

/* The elements of a sample's tensor, contiguous in logical order. */
static const void *elements(aril_tensor *t)
{
    if (t->storage && t->storage->device->host_memory && aril__is_dense(t)) return aril__ptr(t);
    return aril_data(t);
}

static aril_status check(const aril_tensor *t, int k)
{
    if (t->flags & ARIL__POISON) {
        aril__refuse_poison("collate", -1, t);
        return ARIL_ERR_STATE;
    }
    if (t->ndim + 1 > ARIL_MAX_DIMS)
        return aril__fail(ARIL_ERR_SHAPE, "%s has %d dimensions; a batch would have more than %d",
                          aril__part_name(k), t->ndim, ARIL_MAX_DIMS);
    if (aril__dtypes[t->dtype].bits < 8)
        return aril__fail(ARIL_ERR_DTYPE, "%s is %s: cast it to a dtype of at least one byte",
                          aril__part_name(k), aril__dtypes[t->dtype].name);
    return ARIL_OK;
}

aril_status aril__stack_begin(aril__stack *k, const aril_sample *s, int64_t n, bool scale,
                              aril_batch *b)
{
    k->n = n;
    k->first = s->index;
    for (int i = 0; i < ARIL__PARTS; i++) {
        aril_tensor *t = *aril__sample_part((aril_sample *)(uintptr_t)s, i);
        aril_tensor **slot = aril__batch_part(b, i);
        k->part[i].ndim = -1;
        if (!t) {
            aril_release(*slot);
            *slot = NULL;
            continue;
        }
        aril_status status = check(t, i);
        if (status < 0) return status;
        bool unit = scale && i == 0 && t->dtype == ARIL_U8;
        aril_dtype dtype = unit ? ARIL_F32 : (aril_dtype)t->dtype;
        aril_shape shape = { .ndim = t->ndim + 1, .dim = { n } };
        memcpy(shape.dim + 1, t->dim, (size_t)t->ndim * sizeof *t->dim);
        aril_tensor *buffer = aril_batch_buffer(slot, dtype, shape);
        if (!buffer) return ARIL_ERR_MEMORY;
        k->part[i].from = (aril_dtype)t->dtype;
        k->part[i].scale = unit;
        k->part[i].ndim = t->ndim;
        memcpy(k->part[i].dim, t->dim, sizeof k->part[i].dim);
        k->part[i].numel = t->numel;
        k->part[i].bytes = aril__dtype_bytes(dtype, t->numel);
        k->part[i].rows = aril__ptr(buffer);
    }
    return ARIL_OK;
}

static aril__cold aril_status unlike(const aril__stack *k, int i, const aril_tensor *t)
{
    char here[ARIL__SHAPE_TEXT], there[ARIL__SHAPE_TEXT];
    bool had = k->part[i].ndim >= 0;
    if (!t || !had)
        return aril__fail(ARIL_ERR_SHAPE, "it has %s %s, and sample %lld of the same batch has %s",
                          t ? "a" : "no", aril__part_name(i), (long long)k->first,
                          had ? "one" : "none");
    if (k->part[i].from != (aril_dtype)t->dtype)
        return aril__fail(ARIL_ERR_DTYPE, "%s is %s here and %s in sample %lld of the same batch",
                          aril__part_name(i), aril__dtypes[t->dtype].name,
                          aril__dtypes[k->part[i].from].name, (long long)k->first);
    return aril__fail(ARIL_ERR_SHAPE,
                      "%s is %s here and %s in sample %lld of the same batch: resize or crop them "
                      "to one size, or pad them (.pad of the loader)",
                      aril__part_name(i), aril__text(here, t),
                      aril__shape_text(there, k->part[i].ndim, k->part[i].dim),
                      (long long)k->first);
}

aril_status aril__stack_put(const aril__stack *k, int64_t row, const aril_sample *s)
{
    for (int i = 0; i < ARIL__PARTS; i++) {
        aril_tensor *t = *aril__sample_part((aril_sample *)(uintptr_t)s, i);
        if (!t && k->part[i].ndim < 0) continue;
        if (t && check(t, i) < 0) return ARIL_ERR_STATE;
        if (!t || k->part[i].ndim != t->ndim || k->part[i].from != (aril_dtype)t->dtype ||
            memcmp(k->part[i].dim, t->dim, (size_t)t->ndim * sizeof *t->dim))
            return unlike(k, i, t);
        if (!t->numel) continue;
        const void *src = elements(t);
        if (!src) return ARIL_ERR_STATE;
        void *dst = k->part[i].rows + (size_t)row * k->part[i].bytes;
        if (k->part[i].scale)
            aril__u8_to_unit(dst, src, t->numel);
        else if (dst != src)
            memcpy(dst, src, k->part[i].bytes);
    }
    return ARIL_OK;
}

/* ---- padding ---- */

/* Writes `value` to n elements. */
static void fill(void *dst, aril_dtype dtype, int64_t n, double value)
{
    if (n < 1) return;
    aril__dtypes[dtype].store[ARIL__C_F64](dst, 0, 1, &value, 1);
    size_t size = aril__dtype_bytes(dtype, 1), all = (size_t)n * size;
    for (size_t done = size; done < all; done *= 2) /* double the filled part each time */
        memcpy((char *)dst + done, dst, done < all - done ? done : all - done);
}

/* Stacks part i of n samples, padded with `value` to the longest of them. */
static aril_status pad_part(int64_t n, const aril_sample *s, int i, double value, bool scale,
                            aril_batch *b)
{
    aril_tensor **slot = aril__batch_part(b, i);
    aril_tensor *like = *aril__sample_part((aril_sample *)(uintptr_t)&s[0], i);
    aril_status status = check(like, i);
    if (status < 0) return status;
    int64_t longest = 0;
    for (int64_t r = 0; r < n; r++) {
        aril_tensor *t = *aril__sample_part((aril_sample *)(uintptr_t)&s[r], i);
        if (t && (status = check(t, i)) < 0) return status;
        if (!t || t->ndim != like->ndim || t->dtype != like->dtype ||
            memcmp(t->dim + 1, like->dim + 1, (size_t)(t->ndim - 1) * sizeof *t->dim)) {
            char one[ARIL__SHAPE_TEXT], other[ARIL__SHAPE_TEXT];
            return aril__fail(
                ARIL_ERR_SHAPE,
                "samples can be padded along their first axis only, but %s is %s %s in sample "
                "%lld and %s %s in sample %lld",
                aril__part_name(i), aril__dtypes[like->dtype].name, aril__text(one, like),
                (long long)s[0].index, t ? aril__dtypes[t->dtype].name : "absent",
                t ? aril__text(other, t) : "", (long long)s[r].index);
        }
        if (t->dim[0] > longest) longest = t->dim[0];
    }
    bool unit = scale && i == 0 && like->dtype == ARIL_U8;
    aril_dtype dtype = unit ? ARIL_F32 : (aril_dtype)like->dtype;
    aril_shape shape = { .ndim = like->ndim + 1, .dim = { n, longest } };
    int64_t step = 1; /* elements per index of the first axis */
    for (int d = 1; d < like->ndim; d++) step *= shape.dim[d + 1] = like->dim[d];
    aril_tensor *buffer = aril_batch_buffer(slot, dtype, shape);
    if (!buffer) return ARIL_ERR_MEMORY;
    char *rows = aril__ptr(buffer);
    size_t row_bytes = aril__dtype_bytes(dtype, longest * step);
    for (int64_t r = 0; r < n; r++) {
        aril_tensor *t = *aril__sample_part((aril_sample *)(uintptr_t)&s[r], i);
        char *dst = rows + (size_t)r * row_bytes;
        size_t used = aril__dtype_bytes(dtype, t->numel);
        if (t->numel) {
            const void *src = elements(t);
            if (!src) return ARIL_ERR_STATE;
            if (unit)
                aril__u8_to_unit((float *)(void *)dst, src, t->numel);
            else
                memcpy(dst, src, used);
        }
        fill(dst + used, dtype, longest * step - t->numel, value);
    }
    return ARIL_OK;
}

aril_status aril__stack_padded(int64_t n, const aril_sample *s, double pad_x, double pad_y,
                               bool scale, aril_batch *b)
{
    if (!s[0].x || aril_ndim(s[0].x) < 1)
        return aril__fail(ARIL_ERR_SHAPE, "padding needs an x of at least one dimension");
    aril__stack rest;
    aril_sample others = s[0];
    bool pad_targets = s[0].y && s[0].y->ndim > 0;
    others.x = NULL;
    if (pad_targets) others.y = NULL;
    aril_tensor *x = b->x, *y = b->y; /* stack_begin releases what the samples do not have */
    b->x = NULL;
    if (pad_targets) b->y = NULL;
    aril_status status = aril__stack_begin(&rest, &others, n, false, b);
    b->x = x;
    if (pad_targets) b->y = y;
    for (int64_t r = 0; r < n && status >= 0; r++) {
        others = s[r];
        others.x = NULL;
        if (pad_targets) others.y = NULL;
        status = aril__stack_put(&rest, r, &others);
    }
    if (status >= 0) status = pad_part(n, s, 0, pad_x, scale, b);
    if (status >= 0 && pad_targets) status = pad_part(n, s, 1, pad_y, false, b);
    if (status < 0) return status;
    aril_tensor *lengths = aril_batch_buffer(&b->lengths, ARIL_I64, ARIL_SHAPE(n));
    if (!lengths) return ARIL_ERR_MEMORY;
    int64_t *length = aril__ptr(lengths);
    for (int64_t r = 0; r < n; r++) length[r] = s[r].x->dim[0];
    return ARIL_OK;
}
