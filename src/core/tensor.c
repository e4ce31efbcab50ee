#include "core/tensor.h"

#include "core/ended.h"
#include "core/queues.h"
#include "core/sizes.h"

#include <stdlib.h>
#include <string.h>

aril__hooks aril__hook;

/* What a failed call returns when there is no memory for a new poisoned tensor. */
static aril__error no_memory = { .code = ARIL_ERR_MEMORY, .message = "out of memory" };

static aril_tensor emergency = { .refs = 1,
                                 .dtype = ARIL_F32,
                                 .flags = ARIL__POISON | ARIL__IMMORTAL,
                                 .numel = 1,
                                 .u.error = &no_memory };

aril__storage *aril__storage_new(aril__thread *th, aril__device *device, size_t bytes)
{
    aril__storage *s = aril__slab_alloc(&th->slab, sizeof *s);
    if (aril__unlikely(!s)) {
        aril__fail(ARIL_ERR_MEMORY, "out of memory for a storage header");
        return NULL;
    }
    atomic_init(&s->refs, 1);
    atomic_init(&s->version, 0);
    s->device = device;
    s->bytes = bytes;
    s->deleter = NULL;
    atomic_init(&s->derived, NULL);
    atomic_init(&s->lent, false);
    s->deleter_ctx = NULL;
    atomic_init(&s->contents, ARIL__IN_MEMORY);
    s->keeps_forms = false;
    s->home = aril__one_queue() ? 0 : (unsigned)aril__queue_number(device) & 0x7f;
    atomic_init(&s->writer, s->home);
    atomic_init(&s->readers, 0);
    if (aril__likely(bytes <= sizeof s->small && device->host_memory)) {
        s->data = s->small;
        return s;
    }
    s->data = aril__device_alloc(device, bytes);
    if (aril__unlikely(!s->data)) {
        aril__slab_free(&th->slab, s, sizeof *s);
        return NULL;
    }
    return s;
}

void aril__keep_memory(void *data, void *ctx)
{
    (void)data;
    (void)ctx;
}

void aril__storage_release(aril__thread *th, aril__storage *s)
{
    if (atomic_load_explicit(&s->refs, memory_order_acquire) != 1 &&
        atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (aril__unlikely(atomic_load_explicit(&s->derived, memory_order_relaxed)))
        aril__derived_end(s);
    if (s->deleter)
        s->deleter(s->data, s->deleter_ctx);
    else if (s->data && s->data != s->small)
        aril__storage_free_memory(s);
    aril__slab_free(&th->slab, s, sizeof *s);
}

/* A header without shape. */
static inline aril_tensor *new_header(aril__thread *th, aril_dtype dtype, int ndim)
{
    aril_tensor *t = aril__new_header(th);
    if (aril__unlikely(!t)) {
        aril__fail(ARIL_ERR_MEMORY, "out of memory for a tensor header");
        return NULL;
    }
    atomic_init(&t->refs, 1);
    t->dtype = (uint8_t)dtype;
    t->ndim = (uint8_t)ndim;
    t->flags = 0;
    t->slot = UINT32_MAX;
    t->node_out = 0;
    t->storage = NULL;
    t->offset = 0;
    t->node = NULL;
    t->view = NULL;
    t->u.error = NULL;
    return t;
}

aril_tensor *aril__tensor_header(aril__thread *th, aril_dtype dtype, int ndim, const int64_t *dim)
{
    aril_tensor *t = new_header(th, dtype, ndim);
    if (aril__unlikely(!t)) return NULL;
    int64_t step = 1, count = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        int64_t d = dim[i];
        t->dim[i] = d;
        t->stride[i] = step;
        if (d == 1) continue;
        if (aril__unlikely(d < 0)) {
            /* Only the order matters: too large a stride may be any that is large. */
            if (__builtin_mul_overflow(step, aril__extent(d), &step) || step > INT64_MAX / 16)
                step = INT64_MAX / 16;
            continue;
        }
        if (aril__unlikely(__builtin_mul_overflow(step, d ? d : 1, &step) ||
                           step > INT64_MAX / 16)) {
            char text[ARIL__SHAPE_TEXT];
            aril__fail(ARIL_ERR_SHAPE, "%s: too many elements in %s",
                       th->call ? th->call : "memory", aril__shape_text(text, ndim, dim));
            aril__end_header(th, t);
            return NULL;
        }
        count *= d;
    }
    t->numel = count;
    for (int i = 0; i < ndim && count; i++)
        if (aril__unlikely(dim[i] < 0)) t->numel = -1;
    return t;
}

aril_tensor *aril__tensor_header_like(aril__thread *th, const aril_tensor *t, aril_dtype dtype)
{
    aril_tensor *a = new_header(th, dtype, t->ndim);
    if (aril__unlikely(!a)) return NULL;
    a->numel = t->numel;
    memcpy(a->dim, t->dim, sizeof a->dim); /* of a fixed size: quicker than to count */
    memcpy(a->stride, t->stride, sizeof a->stride);
    return a;
}

/* Gives memory to a new header; frees it on failure. */
static inline aril_tensor *with_memory(aril__thread *th, aril_tensor *t, aril__device *device)
{
    if (aril__unlikely(!t)) return NULL;
    t->storage = aril__storage_new(th, device, aril__dtype_bytes((aril_dtype)t->dtype, t->numel));
    if (aril__likely(t->storage != NULL)) return t;
    aril__tensor_free(th, t);
    return NULL;
}

aril_tensor *aril__tensor_new_like(aril__thread *th, const aril_tensor *t, aril_dtype dtype)
{
    return with_memory(th, aril__tensor_header_like(th, t, dtype), t->storage->device);
}

aril_tensor *aril__tensor_new(aril__thread *th, aril_dtype dtype, int ndim, const int64_t *dim,
                              aril__device *device)
{
    return with_memory(th, aril__tensor_header(th, dtype, ndim, dim), device);
}

aril_tensor *aril__tensor_detached(aril__thread *th, const aril_tensor *t)
{
    aril_tensor *a = aril__tensor_header_like(th, t, (aril_dtype)t->dtype);
    if (aril__unlikely(!a)) return NULL;
    a->offset = t->offset;
    a->flags = t->flags & (ARIL__WEAK | ARIL__NUMBER | ARIL__CHANNELS_LAST | ARIL__INFERENCE |
                           ARIL__SHAPE_ONLY | ARIL__SYMBOLIC);
    if (t->flags & ARIL__SYMBOLIC)
        a->u.symbol = aril__hook.keep_symbol(t->u.symbol);
    else if (t->flags & ARIL__SHAPE_ONLY)
        a->u.device = t->u.device;
    if (t->storage) {
        atomic_fetch_add_explicit(&t->storage->refs, 1, memory_order_relaxed);
        a->storage = t->storage;
    }
    return a;
}

aril_tensor *aril__tensor_shape_only(aril__thread *th, const aril_tensor *t)
{
    aril_tensor *a = aril__tensor_header_like(th, t, (aril_dtype)t->dtype);
    if (aril__unlikely(!a)) return NULL;
    a->flags = (uint16_t)(ARIL__SHAPE_ONLY | (t->flags & ARIL__CHANNELS_LAST));
    a->u.device = aril__tensor_device(t);
    return a;
}

#define SWAP(type, x, y) \
    do {                 \
        type kept = (x); \
        (x) = (y);       \
        (y) = kept;      \
    } while (0)

void aril__tensor_exchange(aril_tensor *a, aril_tensor *b)
{
    /* Saved values record the version: give both one that neither had. */
    unsigned va = aril__version(a), vb = aril__version(b), next = (va > vb ? va : vb) + 1;
    uint16_t flags = (a->flags ^ b->flags) & ARIL__CHANNELS_LAST;
    SWAP(uint8_t, a->dtype, b->dtype);
    SWAP(aril__storage *, a->storage, b->storage);
    SWAP(int64_t, a->offset, b->offset);
    for (int i = 0; i < a->ndim; i++) SWAP(int64_t, a->stride[i], b->stride[i]);
    a->flags ^= flags;
    b->flags ^= flags;
    atomic_store_explicit(&a->storage->version, next, memory_order_relaxed);
    atomic_store_explicit(&b->storage->version, next, memory_order_relaxed);
    aril__derived_drop(a->storage);
    aril__derived_drop(b->storage);
}

void aril__tensor_free(aril__thread *th, aril_tensor *t)
{
    if (aril__unlikely(t->flags & ARIL__IMMORTAL)) {
        atomic_store(&t->refs, 1);
        return;
    }
    if (t->storage) aril__storage_release(th, t->storage);
    if (t->node) aril__hook.release_node(th, t->node);
    if (t->view) aril__hook.release_view(th, t->view);
    if (aril__unlikely(t->flags & (ARIL__POISON | ARIL__SYMBOLIC))) {
        if (t->flags & ARIL__POISON)
            aril__error_release(t->u.error);
        else
            aril__hook.release_symbol(t->u.symbol);
    }
    aril__end_header(th, t);
}

aril_tensor *aril__give(aril__thread *th, aril_tensor *t)
{
    if (aril__unlikely(!t)) return aril__poison();
    if (aril__unlikely(!aril__own_reserve(th, 1))) {
        aril__tensor_release(th, t);
        return aril__poison();
    }
    aril__own(th, t);
    return t;
}

aril_tensor *aril__poison(void)
{
    aril__thread *th = aril__self();
    aril__error *e = th->last_error ? th->last_error : &no_memory;
    aril_tensor *t = aril__new_header(th);
    if (!t || !aril__own_reserve(th, 1)) {
        if (t) aril__end_header(th, t);
        return &emergency;
    }
    memset(t, 0, sizeof *t);
    atomic_init(&t->refs, 1);
    t->dtype = ARIL_F32;
    t->flags = ARIL__POISON;
    t->numel = 1;
    t->u.error = aril__error_keep(e);
    aril__own(th, t);
    return t;
}

void aril__poison_all(int n, aril_tensor **out)
{
    for (int i = 0; i < n; i++) out[i] = aril__poison();
}

void aril__fail_together(int64_t n, aril_tensor **out)
{
    const aril_tensor *bad = NULL;
    for (int64_t i = 0; i < n && !bad; i++)
        if (out[i] && out[i]->flags & ARIL__POISON) bad = out[i];
    for (int64_t i = 0; i < n && bad; i++)
        if (out[i] && !(out[i]->flags & ARIL__POISON)) out[i] = aril__poison_like(bad);
}

aril_tensor *aril__poison_like(const aril_tensor *bad)
{
    aril__adopt_error(bad->u.error);
    return aril__poison();
}

aril_tensor *aril__null_tensor(const char *op)
{
    aril__fail(ARIL_ERR_ARG, "%s: the tensor is NULL", op);
    return aril__poison();
}

aril_status aril__check_value(const char *what, const aril_tensor *t)
{
    if (aril__unlikely(!t)) return aril__fail(ARIL_ERR_ARG, "%s: the tensor is NULL", what);
    if (aril__unlikely(t->flags & ARIL__POISON)) return aril__refuse_poison(what, -1, t);
    if (aril__unlikely(!t->storage))
        return aril__fail(ARIL_ERR_STATE, "%s: a symbolic tensor has no value until its graph runs",
                          what);
    return ARIL_OK;
}

aril_status aril_tensor_status(const aril_tensor *t)
{
    return !t ? ARIL_ERR_ARG : t->flags & ARIL__POISON ? t->u.error->code : ARIL_OK;
}

const char *aril_tensor_error(const aril_tensor *t)
{
    return t && t->flags & ARIL__POISON ? t->u.error->message : NULL;
}

/* ---- devices of symbolic tensors ---- */

enum { DEVICE_SHIFT = 32, INDEX_SHIFT = 8 };

void aril__symbolic_set_device(aril_tensor *t, const aril__device *device)
{
    int64_t at = device->id.kind | (int64_t)device->id.index << INDEX_SHIFT;
    t->offset = (int64_t)(uint32_t)t->offset | at << DEVICE_SHIFT;
}

aril__device *aril__tensor_device(const aril_tensor *t)
{
    if (t->storage) return t->storage->device;
    if (t->flags & ARIL__SHAPE_ONLY) return t->u.device;
    if (!(t->flags & ARIL__SYMBOLIC)) return NULL;
    int64_t at = t->offset >> DEVICE_SHIFT;
    return aril__device_find(
        (aril_device){ (int16_t)(at & ((1 << INDEX_SHIFT) - 1)), (int16_t)(at >> INDEX_SHIFT) });
}

/* ---- tensor properties ---- */

/* Is there a tensor to query? An ended tensor is an error even for queries. */
static inline bool is_there(const char *what, const aril_tensor *t)
{
    if (aril__unlikely(!t)) return false;
    if (aril__unlikely(t->flags & ARIL__ENDED)) aril__fail_ended(what, -1, t);
    return true;
}

/* Sizes of a symbolic tensor that C code asks for. */
static aril__cold void note_asked(int n, const int64_t *dim)
{
    aril__size_asked(aril__self()->sizes, n, dim);
}

/* The same, and where: no trace compares what the code of a defined graph does. */
static aril__cold void note_asked_by(int64_t size, void *caller)
{
    note_asked(1, &size);
    if (!aril__self()->sizes) aril__size_asked_by(size, caller);
}

aril_dtype aril_dtype_of(const aril_tensor *t)
{
    return is_there("dtype_of", t) ? (aril_dtype)t->dtype : ARIL_F32;
}

int aril_ndim(const aril_tensor *t)
{
    return is_there("ndim", t) ? t->ndim : 0;
}

aril_shape aril_shape_of(const aril_tensor *t)
{
    if (!is_there("shape_of", t)) return (aril_shape){ 0 };
    if (aril__unlikely(t->numel < 0)) note_asked(t->ndim, t->dim);
    return aril__shape(t);
}

int64_t aril_numel(const aril_tensor *t)
{
    if (!is_there("numel", t)) return 1;
    if (aril__likely(t->numel >= 0)) return t->numel;
    note_asked(t->ndim, t->dim);
    if (aril__self()->tracer) return -1;
    /* Of a defined graph, a number that is known when C code computes with it. */
    return aril__size_product(NULL, t->ndim, t->dim);
}

aril_device aril_device_of(const aril_tensor *t)
{
    aril__device *d = is_there("device_of", t) ? aril__tensor_device(t) : NULL;
    return d ? d->id : aril_cpu();
}

int64_t aril_size(const aril_tensor *t, int axis)
{
    bool there = is_there("size", t);
    int at = aril__axis("size", axis, there ? t->ndim : 0);
    if (at < 0 || !there || t->ndim == 0) return -1;
    if (aril__unlikely(t->dim[at] < 0)) note_asked_by(t->dim[at], __builtin_return_address(0));
    return t->dim[at];
}

int64_t aril_stride(const aril_tensor *t, int axis)
{
    bool there = is_there("stride", t);
    int at = aril__axis("stride", axis, there ? t->ndim : 0);
    if (at < 0 || !there || t->ndim == 0) return 0;
    if (aril__unlikely(t->numel < 0)) note_asked(t->ndim, t->dim);
    return t->stride[at];
}

bool aril_is_contiguous(const aril_tensor *t)
{
    return is_there("is_contiguous", t) && aril__is_dense(t);
}

bool aril_is_channels_last(const aril_tensor *t)
{
    if (!is_there("is_channels_last", t) || t->ndim < 3) return false;
    int64_t step = 1;
    for (int i = 0; i < t->ndim; i++) { /* C, then the spatial axes from the last, then N */
        int d = i == 0 ? 1 : i < t->ndim - 1 ? t->ndim - i : 0;
        if (t->dim[d] != 1 && t->stride[d] != step) return false;
        step *= t->numel < 0 ? aril__extent(t->dim[d]) : t->dim[d];
    }
    return true;
}

bool aril_shares_memory(const aril_tensor *a, const aril_tensor *b)
{
    bool both = is_there("shares_memory", a) && is_there("shares_memory", b);
    return both && a->storage && a->storage == b->storage;
}

/* ---- memory format ---- */

bool aril__is_samples_last(const aril_tensor *t)
{
    if (t->ndim < 3 || aril__extent(t->dim[0]) < 2) return false;
    int64_t step = 1;
    for (int i = 0; i < t->ndim; i++) { /* N, C, then the spatial axes from the last */
        int d = i < 2 ? i : t->ndim + 1 - i;
        if (t->dim[d] != 1 && t->stride[d] != step) return false;
        step *= t->numel < 0 ? aril__extent(t->dim[d]) : t->dim[d];
    }
    return true;
}

bool aril__is_dense_unknown(const aril_tensor *t)
{
    int64_t step = 1;
    for (int i = t->ndim - 1; i >= 0; i--) {
        if (t->dim[i] != 1 && t->stride[i] != step) return false;
        step *= aril__extent(t->dim[i]);
    }
    return true;
}

bool aril__is_packed(const aril_tensor *t)
{
    int64_t dim[ARIL_MAX_DIMS], stride[ARIL_MAX_DIMS];
    int n = 0;
    if (t->numel == 0) return true;
    for (int i = 0; i < t->ndim; i++) {
        if (t->dim[i] == 1) continue;
        int at = n++;
        for (; at > 0 && stride[at - 1] > t->stride[i]; at--) {
            stride[at] = stride[at - 1];
            dim[at] = dim[at - 1];
        }
        stride[at] = t->stride[i];
        dim[at] = aril__extent(t->dim[i]);
    }
    int64_t step = 1;
    for (int i = 0; i < n; i++) {
        if (stride[i] != step) return false;
        step *= dim[i];
    }
    return true;
}

/* Whether two elements share a position in memory; true if that cannot be determined. */
static aril__cold bool meets_twice(int n, const int64_t *dim, const int64_t *stride, int64_t reach)
{
    if (reach >= (int64_t)1 << 30) return true;
    unsigned char *seen = aril__calloc((size_t)reach / 8 + 1);
    int64_t at[ARIL_MAX_DIMS] = { 0 }, offset = 0;
    bool twice = !seen;
    while (!twice) {
        twice = seen[offset / 8] >> (offset % 8) & 1;
        seen[offset / 8] |= (unsigned char)(1 << (offset % 8));
        int d = 0;
        for (; d < n; d++) {
            offset += stride[d];
            if (++at[d] < dim[d]) break;
            offset -= dim[d] * stride[d];
            at[d] = 0;
        }
        if (d == n) break;
    }
    free(seen);
    return twice;
}

bool aril__overlaps(const aril_tensor *t)
{
    int64_t dim[ARIL_MAX_DIMS], stride[ARIL_MAX_DIMS], reach = 0;
    int n = 0;
    if (t->numel == 0) return false;
    for (int i = 0; i < t->ndim; i++) {
        if (t->dim[i] == 1) continue;
        int64_t step = t->stride[i] < 0 ? -t->stride[i] : t->stride[i];
        int at = n++;
        for (; at > 0 && stride[at - 1] > step; at--) {
            stride[at] = stride[at - 1];
            dim[at] = dim[at - 1];
        }
        stride[at] = step;
        dim[at] = aril__extent(t->dim[i]);
    }
    bool nested = true; /* each stride exceeds the extent of the smaller ones */
    for (int i = 0; i < n; i++) {
        if (stride[i] == 0) return true;
        nested = nested && stride[i] > reach;
        reach += (dim[i] - 1) * stride[i];
    }
    return !nested && meets_twice(n, dim, stride, reach);
}

void aril__strides_like(const aril_tensor *like, int ndim, const int64_t *dim, int64_t *stride)
{
    int order[ARIL_MAX_DIMS]; /* dimensions from the innermost to the outermost */
    for (int i = 0; i < ndim; i++) {
        int d = ndim - 1 - i, at = i;
        /* Stable sort, also by the strides of size-1 dimensions: stopping at one would leave those
         * on either side of it in the wrong order. */
        for (; at > 0 && like->stride[order[at - 1]] > like->stride[d]; at--)
            order[at] = order[at - 1];
        order[at] = d;
    }
    int64_t step = 1;
    for (int i = 0; i < ndim; i++) {
        int d = order[i];
        stride[d] = step;
        step *= aril__extent(dim[d]);
    }
}

int64_t aril__live_blocks(void)
{
    return aril__slab_live(&aril__self()->slab) - aril__traced_count();
}
