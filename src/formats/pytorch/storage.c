/* Storages: where the elements of tensors are, and tensors over them. */
#include "aril/create.h"
#include "aril/dtype.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "formats/array.h"
#include "formats/pytorch/checkpoint.h"

#include <stdlib.h>
#include <string.h>

/* ---- the storages of a pickle ---- */

pickle_value *aril__pytorch_storage(pickle *p, pickle_value *id)
{
    pickle_value *const *at = id->u.items.at;
    pickle_dtype type;
    if (pickle_is_sequence(id, 1) && pickle_is_text(at[0], "module"))
        return aril__pickle_refuse(
            p, "it holds a whole module, which only its Python code can create; "
               "save model.state_dict() instead");
    if (!pickle_is_sequence(id, 5) || !pickle_is_text(at[0], "storage") ||
        at[2]->kind != PICKLE_TEXT || at[4]->kind != PICKLE_INT || at[4]->u.i < 0)
        return aril__pickle_wrong(p, "a storage is not described as PyTorch does");
    if (!aril__pickle_is_storage(at[1], &type))
        return aril__pickle_wrong(p, "a storage has a class that is none");
    pickle_value *v = aril__pickle_new(p, PICKLE_STORAGE);
    pickle_storage *s = v ? aril__pickle_alloc(p, sizeof *s) : NULL;
    if (!s) return NULL;
    *s = (pickle_storage){ p->storages, at[2], 0, at[4]->u.i, type, p->n_storages++ };
    if (id->u.items.n > 5 && at[5]->kind != PICKLE_NONE) { /* (key, offset, size) */
        pickle_value *const *view = at[5]->u.items.at;
        if (!pickle_is_sequence(at[5], 3) || view[1]->kind != PICKLE_INT || view[1]->u.i < 0 ||
            view[2]->kind != PICKLE_INT || view[2]->u.i < 0)
            return aril__pickle_wrong(p, "a view of a storage is malformed");
        s->begin = view[1]->u.i;
        s->numel = view[2]->u.i;
    }
    p->storages = s;
    v->u.storage = s;
    return v;
}

static int compare_keys(const char *a, size_t n, const char *b, size_t m)
{
    int order = memcmp(a, b, n < m ? n : m);
    return order ? order : (n > m) - (n < m);
}

static int by_key(const void *a, const void *b)
{
    const pickle_storage *x = *(pickle_storage *const *)a, *y = *(pickle_storage *const *)b;
    return compare_keys(x->key->u.text.at, x->key->u.text.n, y->key->u.text.at, y->key->u.text.n);
}

aril_status aril__pytorch_number(checkpoint *c)
{
    int n = c->pickle.n_storages;
    pickle_storage **sorted = aril__malloc(((size_t)n + 1) * sizeof *sorted);
    c->place = aril__calloc(((size_t)n + 1) * sizeof *c->place);
    if (!sorted || !c->place) {
        free(sorted);
        return aril__weights_no_memory(c->w);
    }
    int i = 0;
    for (pickle_storage *s = c->pickle.storages; s; s = s->next) sorted[i++] = s;
    qsort(sorted, (size_t)n, sizeof(pickle_storage *), by_key);
    for (i = 0; i < n; i++) {
        if (i == 0 || by_key(&sorted[i - 1], &sorted[i]) != 0)
            c->place[c->n_places++] = (checkpoint_place){
                .key = sorted[i]->key, .element = sorted[i]->type.size, .member = -1, .first = -1
            };
        sorted[i]->number = c->n_places - 1;
    }
    free(sorted);
    return ARIL_OK;
}

checkpoint_place *aril__pytorch_find(checkpoint *c, const char *key, size_t n)
{
    int low = 0, high = c->n_places;
    while (low < high) {
        int middle = low + (high - low) / 2;
        checkpoint_place *place = &c->place[middle];
        int order = compare_keys(key, n, place->key->u.text.at, place->key->u.text.n);
        if (order == 0) return place;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

void aril__pytorch_free_places(checkpoint *c)
{
    for (int i = 0; i < c->n_places; i++) {
        aril_release(c->place[i].base);
        if (c->place[i].unpacked) free((void *)(uintptr_t)c->place[i].at);
    }
    free(c->place);
}

/* ---- entries ---- */

static aril_shape shape_of(const pickle_value *size)
{
    aril_shape s = { .ndim = (int)size->u.items.n };
    for (int i = 0; i < s.ndim; i++) s.dim[i] = size->u.items.at[i]->u.i;
    return s;
}

aril_status aril__pytorch_add(checkpoint *c, const char *name, const pickle_tensor *t)
{
    if (c->n_tensors == c->cap_tensors) {
        int cap = c->cap_tensors ? 2 * c->cap_tensors : 64;
        const pickle_tensor **grown = aril__realloc(c->tensor, (size_t)cap * sizeof *grown);
        if (!grown) return aril__weights_no_memory(c->w);
        c->tensor = grown;
        c->cap_tensors = cap;
    }
    bool deep = t->size->u.items.n > ARIL_MAX_DIMS;
    aril_shape shape = deep ? (aril_shape){ 0 } : shape_of(t->size);
    aril__weights_entry *e =
        aril__weights_add(c->w, name, t->type.dtype, shape, (uint64_t)c->n_tensors);
    if (!e) return ARIL_ERR_MEMORY;
    c->tensor[c->n_tensors++] = t;
    if (deep) return aril__weights_refuse(e, "it has %zu dimensions", t->size->u.items.n);
    return t->problem ? aril__weights_refuse(e, "%s", t->problem) : ARIL_OK;
}

/* The number of elements from the first to the last that a tensor uses; false if a size or stride
 * is negative, or they are too large. */
static bool span_of(const pickle_tensor *t, int64_t *numel, int64_t *span)
{
    bool empty = false, good = t->offset >= 0;
    *numel = *span = 1;
    for (size_t i = 0; i < t->size->u.items.n && good; i++) {
        int64_t size = t->size->u.items.at[i]->u.i;
        good = size >= 0;
        empty |= size == 0;
    }
    for (size_t i = 0; i < t->size->u.items.n && good && !empty; i++) {
        int64_t size = t->size->u.items.at[i]->u.i, reach;
        int64_t stride = t->stride ? t->stride->u.items.at[i]->u.i : 0;
        good = stride >= 0 && !__builtin_mul_overflow(*numel, size, numel) &&
               !__builtin_mul_overflow(stride, size - 1, &reach) &&
               !__builtin_add_overflow(*span, reach, span);
    }
    if (empty) *numel = *span = 0;
    if (!t->stride) *span = *numel;
    return good;
}

static bool is_empty(const pickle_tensor *t)
{
    for (size_t i = 0; i < t->size->u.items.n; i++)
        if (t->size->u.items.at[i]->u.i == 0) return true;
    return false;
}

static aril_status check_tensor(checkpoint *c, int i)
{
    const aril__weights_entry *e = &c->w->entry[i];
    const pickle_tensor *t = c->tensor[e->at];
    int64_t numel, span;
    char text[ARIL__SHAPE_TEXT];
    if (!span_of(t, &numel, &span))
        return aril__weights_malformed(c->w, "tensor %s has sizes or strides that cannot be",
                                       e->name);
    if (e->problem || numel == 0) return ARIL_OK;
    aril__shape_text(text, e->shape.ndim, e->shape.dim);
    uint64_t size = t->type.size, there;
    if (t->bytes) {
        there = t->bytes->u.text.n;
    } else {
        const pickle_storage *s = t->storage;
        const checkpoint_place *place = &c->place[s->number];
        uint64_t begin, bytes;
        if (!place->at && place->member < 0)
            return aril__weights_malformed(c->w, "the data of tensor %s is missing", e->name);
        if (__builtin_mul_overflow((uint64_t)s->begin, s->type.size, &begin) ||
            __builtin_mul_overflow((uint64_t)s->numel, s->type.size, &bytes) ||
            begin > place->bytes || bytes > place->bytes - begin)
            return aril__weights_malformed(
                c->w, "the storage of tensor %s is truncated: %lld elements of %zu bytes in %llu",
                e->name, (long long)s->numel, s->type.size, (unsigned long long)place->bytes);
        if (begin % size)
            return aril__weights_malformed(
                c->w, "tensor %s begins in the middle of an element: at byte %llu of its storage",
                e->name, (unsigned long long)begin);
        there = bytes;
    }
    uint64_t last = (uint64_t)t->offset + (uint64_t)span; /* both are not negative */
    if (last > there / size)
        return aril__weights_malformed(
            c->w, "tensor %s of shape %s needs %llu elements of its storage, which has %llu",
            e->name, text, (unsigned long long)last, (unsigned long long)(there / size));
    return ARIL_OK;
}

static bool is_contiguous(const pickle_tensor *t)
{
    int64_t step = 1;
    for (size_t i = t->size->u.items.n; i-- > 0;) {
        int64_t size = t->size->u.items.at[i]->u.i;
        if (size == 0) return true;
        if (size != 1 && t->stride->u.items.at[i]->u.i != step) return false;
        step *= size;
    }
    return true;
}

/* All tensors together may take so many times the file's size: others are copies, of elements that
 * they repeat or share. Contiguous views of a storage that has one dtype take no memory. */
static aril_status check_repetition(checkpoint *c)
{
    uint64_t most = 16 * (uint64_t)c->w->size + (UINT64_C(64) << 20), all = 0;
    for (int i = 0; i < c->w->n; i++) {
        const aril__weights_entry *e = &c->w->entry[i];
        const pickle_tensor *t = c->tensor[e->at];
        const checkpoint_place *place = t->storage ? &c->place[t->storage->number] : NULL;
        int64_t numel, span;
        if (e->problem || !span_of(t, &numel, &span)) continue;
        if (place && place->users > 1 && !place->mixed && is_contiguous(t)) continue;
        if ((uint64_t)numel > (most - all) / t->type.size) {
            char text[ARIL__SHAPE_TEXT];
            aril__shape_text(text, e->shape.ndim, e->shape.dim);
            return aril__weights_malformed(c->w,
                                           "tensor %s of shape %s repeats its storage too often",
                                           e->name, text);
        }
        all += (uint64_t)numel * t->type.size;
    }
    return ARIL_OK;
}

aril_status aril__pytorch_check(checkpoint *c)
{
    aril_status s = ARIL_OK;
    for (int i = 0; i < c->w->n && s == ARIL_OK; i++) {
        aril__weights_entry *e = &c->w->entry[i];
        const pickle_tensor *t = c->tensor[e->at];
        s = check_tensor(c, i);
        if (s < 0 || !t->storage || is_empty(t)) continue;
        checkpoint_place *place = &c->place[t->storage->number];
        if (place->first < 0) place->first = i;
        place->users++;
        place->mixed |= c->tensor[c->w->entry[place->first].at]->type.dtype != t->type.dtype;
        e->shared = place->first;
    }
    return s == ARIL_OK ? check_repetition(c) : s;
}

/* ---- reading ---- */

static aril_tensor *array(checkpoint *c, const pickle_tensor *t)
{
    aril_shape shape = shape_of(t->size), stored = shape;
    aril_axes axes = { .n = shape.ndim };
    for (int i = 0; i < shape.ndim; i++) {
        axes.axis[i] = t->axes      ? (int)t->axes->u.items.at[i]->u.i
                       : t->fortran ? shape.ndim - 1 - i
                                    : i;
        stored.dim[axes.axis[i]] = shape.dim[i];
    }
    aril_tensor *a = aril__weights_map(c->w, (const unsigned char *)t->bytes->u.text.at, stored,
                                       t->type.dtype, t->type.big);
    if (shape.ndim < 2 || (!t->fortran && !t->axes)) return a;
    return aril_contiguous(aril_permute(a, axes));
}

/* All elements of a storage, in units of the tensor's dtype. */
static aril_tensor *whole(checkpoint *c, const pickle_tensor *t)
{
    const checkpoint_place *place = &c->place[t->storage->number];
    int64_t n = (int64_t)(place->bytes / t->type.size);
    return aril__weights_map(c->w, place->at, ARIL_SHAPE(n), t->type.dtype, c->big);
}

/* The tensor as a view of the whole storage. */
static aril_tensor *view(const aril_tensor *base, const pickle_tensor *t, int64_t offset)
{
    aril__thread *th = aril__self();
    aril_shape shape = shape_of(t->size);
    aril_tensor *v = aril__tensor_header(th, (aril_dtype)base->dtype, shape.ndim, shape.dim);
    if (!v) return aril__poison();
    atomic_fetch_add_explicit(&base->storage->refs, 1, memory_order_relaxed);
    v->storage = base->storage;
    v->offset = base->offset + offset;
    for (int i = 0; i < shape.ndim; i++) v->stride[i] = t->stride->u.items.at[i]->u.i;
    return aril__give(th, v);
}

/* Unpacks a compressed member of an archive; verifies a stored one where that is wanted. */
static aril_status unpack(checkpoint *c, checkpoint_place *place)
{
    aril__bytes b = { 0 };
    if (place->at && (place->verified || place->member < 0 || !c->w->verify)) return ARIL_OK;
    if (place->at) {
        aril_status s = aril__pytorch_verify(c, place->member);
        place->verified = s == ARIL_OK;
        return s;
    }
    aril_status s = aril__zip_read(c->w->zip, place->member, &b);
    if (s < 0) {
        aril__bytes_free(&b);
        return s;
    }
    place->at = b.at;
    place->unpacked = place->verified = true;
    return ARIL_OK;
}

aril_tensor *aril__pytorch_read(checkpoint *c, const pickle_tensor *t)
{
    if (t->bytes) return array(c, t);
    checkpoint_place *place = &c->place[t->storage->number];
    aril_shape shape = shape_of(t->size);
    int64_t offset =
        t->offset + t->storage->begin * (int64_t)t->storage->type.size / (int64_t)t->type.size;
    if (is_empty(t)) return aril_empty(shape, t->type.dtype, aril_cpu());
    if (unpack(c, place) != ARIL_OK) return aril__poison();
    bool shared = place->users > 1 && (!place->base || place->base_dtype == t->type.dtype);
    if (!shared && is_contiguous(t))
        return aril__weights_map(c->w, place->at + (uint64_t)offset * t->type.size, shape,
                                 t->type.dtype, c->big);
    aril_tensor *base = place->base ? place->base : whole(c, t);
    if (aril_tensor_status(base) != ARIL_OK) return base;
    aril_tensor *v = view(base, t, offset);
    if (aril_tensor_status(v) != ARIL_OK) return v;
    if (!shared || aril__overlaps(v)) return aril_contiguous(v);
    if (!place->base) {
        place->base = aril_keep(base);
        place->base_dtype = t->type.dtype;
    }
    return v;
}
