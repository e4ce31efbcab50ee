/* Copies between tensors and the program's own memory. */
#include "aril/create.h"
#include "ops/table/apply.h"
#include "ops/shape/copy.h"
#include "ops/shape/create.h"

#include <math.h>
#include <string.h>

/* A header on the stack over a caller's contiguous memory. */
static void dense_header(aril_tensor *h, aril__storage *s, const aril_tensor *like, void *data)
{
    memset(h, 0, sizeof *h);
    memset(s, 0, sizeof *s);
    s->data = data;
    s->device = aril__cpu_device;
    s->bytes = aril__dtype_bytes((aril_dtype)like->dtype, like->numel);
    h->dtype = like->dtype;
    h->ndim = like->ndim;
    h->numel = like->numel;
    h->storage = s;
    memcpy(h->dim, like->dim, sizeof h->dim);
    aril__dense_strides(h->ndim, h->dim, h->stride);
}

aril_tensor *aril_from(const void *data, aril_shape shape, aril_dtype dtype, aril_device device)
{
    aril_tensor *t = aril_empty(shape, dtype, device), h;
    aril__storage s;
    if (aril__is_poison(t) || t->numel == 0) return t;
    if (!data) {
        aril__fail(ARIL_ERR_ARG, "from: the data is NULL");
        return aril__poison();
    }
    dense_header(&h, &s, t, (void *)(uintptr_t)data);
    return aril__copy_across(t, &h) < 0 ? aril__poison() : t;
}

aril_tensor *aril_borrow(void *data, aril_shape shape, aril_dtype dtype,
                         void (*deleter)(void *data, void *ctx), void *ctx)
{
    aril__thread *th = aril__self();
    struct create_attrs a;
    aril_tensor *t = NULL;
    aril__storage *s = NULL;
    if (aril__create_attrs("borrow", shape, dtype, aril_cpu(), &a) < 0) goto fail;
    if (!aril__cpu_device->host_memory) {
        aril__fail(ARIL_ERR_MEMORY, "borrow: out of memory while the library started");
        goto fail;
    }
    if (!data && aril__count(shape.ndim, shape.dim) != 0) {
        aril__fail(ARIL_ERR_ARG, "borrow: the data is NULL");
        goto fail;
    }
    t = aril__tensor_header(th, dtype, shape.ndim, shape.dim);
    s = t ? aril__slab_alloc(&th->slab, sizeof *s) : NULL;
    if (!s || !aril__own_reserve(th, 1)) {
        if (t && !s) aril__fail(ARIL_ERR_MEMORY, "borrow: out of memory for a storage header");
        goto fail;
    }
    memset(s, 0, sizeof *s);
    atomic_init(&s->refs, 1);
    s->device = aril__cpu_device;
    s->data = data;
    s->bytes = aril__dtype_bytes(dtype, t->numel);
    s->deleter = deleter ? deleter : aril__keep_memory;
    s->deleter_ctx = ctx;
    t->storage = s;
    return aril__give(th, t);
fail:
    if (s) aril__slab_free(&th->slab, s, sizeof *s);
    if (t) aril__tensor_release(th, t);
    if (deleter) deleter(data, ctx);
    return aril__poison();
}

/* Checks a tensor whose value the host reads or writes: in a trace, there is none to decide by. */
static aril_status check_host(const char *what, const aril_tensor *t)
{
    const aril__thread *th = aril__self();
    bool symbolic = t && !(t->flags & ARIL__POISON) && !t->storage;
    if (aril__likely(!symbolic && !th->tracer)) return aril__check_value(what, t);
    if (t && t->flags & ARIL__POISON) return aril__refuse_poison(what, -1, t);
    if (!t || (t->storage && t->flags & ARIL__CONSTANT)) return aril__check_value(what, t);
    return aril__fail(
        ARIL_ERR_STATE,
        symbolic && !th->tracer
            ? "%s: a symbolic tensor has no value until its graph runs; fetch it in a "
              "session, and decide inside the graph with aril_cond"
            : "%s: a traced function runs only once on the host, so that it cannot "
              "access values of tensors; decide with aril_cond, or return the tensor",
        what);
}

/* Loads the only element in a compute type; false, with an error, unless there is exactly one. */
static bool one_element(const aril_tensor *t, aril__ctype ctype, void *value)
{
    if (check_host("item", t) < 0) return false;
    if (t->numel != 1) {
        char text[ARIL__SHAPE_TEXT];
        aril__fail(ARIL_ERR_SHAPE, "item: expected a tensor with one element, got %s",
                   aril__text(text, t));
        return false;
    }
    if (t->storage->device->id.kind == ARIL__CPU) {
        aril__dtypes[t->dtype].load[ctype](value, aril__base(t), t->offset, 1, 1);
        return true;
    }
    char element[8];
    aril_tensor h;
    aril__storage s;
    dense_header(&h, &s, t, element);
    if (aril__copy_across(&h, (aril_tensor *)(uintptr_t)t) < 0) return false;
    aril__dtypes[t->dtype].load[ctype](value, element, 0, 1, 1);
    return true;
}

double aril_item(const aril_tensor *t)
{
    double v;
    return one_element(t, ARIL__C_F64, &v) ? v : NAN;
}

int64_t aril_item_int(const aril_tensor *t)
{
    int64_t v;
    return one_element(t, ARIL__C_I64, &v) ? v : 0;
}

aril_status aril_read(const aril_tensor *t, void *buf)
{
    aril_status s = check_host("read", t);
    if (s < 0 || t->numel == 0) return s;
    if (!buf) return aril__fail(ARIL_ERR_ARG, "read: the buffer is NULL");
    aril_tensor h;
    aril__storage storage;
    dense_header(&h, &storage, t, buf);
    return aril__copy_across(&h, (aril_tensor *)(uintptr_t)t);
}

aril_status aril_write(aril_tensor *t, const void *buf)
{
    aril_status s = check_host("write", t);
    if (s < 0 || t->numel == 0) return s;
    if (!buf) return aril__fail(ARIL_ERR_ARG, "write: the buffer is NULL");
    aril_tensor h;
    aril__storage storage;
    dense_header(&h, &storage, t, (void *)(uintptr_t)buf);
    s = aril__copy_across(t, &h);
    if (s == ARIL_OK) aril__bump_version(t);
    return s;
}

const void *aril_data(aril_tensor *t)
{
    if (check_host("data", t) < 0) return NULL;
    aril_guard quiet = aril_inference_begin();
    aril_tensor *host = aril_contiguous(aril_to(t, aril_cpu()));
    if (!aril__is_poison(host) && aril__dtypes[host->dtype].bits < 8 && host->offset)
        host = aril_copy(host); /* a sub-byte view may start within a byte */
    aril_guard_end(&quiet);
    return aril__is_poison(host) ? NULL : aril__ptr(host);
}

void *aril_data_strided(aril_tensor *t)
{
    if (check_host("data_strided", t) < 0) return NULL;
    if (!t->storage->device->host_memory) {
        char name[48];
        aril__fail(ARIL_ERR_DEVICE,
                   "data_strided: the host cannot access memory on %s; use aril_read",
                   aril_device_name(t->storage->device->id, name, sizeof name));
        return NULL;
    }
    aril__lend(t);
    return aril__ptr(t);
}
