#include "aril/dlpack.h"

#include "aril/create.h"
#include "core/tensor.h"

#include <stdlib.h>
#include <string.h>

enum { CPU = 1, CUDA_HOST = 3 };                             /* device types */
enum { READ_ONLY = 1, PADDED = 4 };                          /* flags */
enum { MAJOR = 1, MINOR = 0 };                               /* version that we export */
enum { INT = 0, UINT = 1, FLOAT = 2, BFLOAT = 4, BOOL = 6 }; /* type codes */

static const struct DLDataType types[ARIL__DTYPE_COUNT] = {
    [ARIL_BOOL] = { BOOL, 8, 1 },     [ARIL_U8] = { UINT, 8, 1 },
    [ARIL_U16] = { UINT, 16, 1 },     [ARIL_U32] = { UINT, 32, 1 },
    [ARIL_U64] = { UINT, 64, 1 },     [ARIL_I8] = { INT, 8, 1 },
    [ARIL_I16] = { INT, 16, 1 },      [ARIL_I32] = { INT, 32, 1 },
    [ARIL_I64] = { INT, 64, 1 },      [ARIL_F16] = { FLOAT, 16, 1 },
    [ARIL_BF16] = { BFLOAT, 16, 1 },  [ARIL_F32] = { FLOAT, 32, 1 },
    [ARIL_F64] = { FLOAT, 64, 1 },    [ARIL_F8E4M3FN] = { 10, 8, 1 },
    [ARIL_F8E4M3FNUZ] = { 11, 8, 1 }, [ARIL_F8E5M2] = { 12, 8, 1 },
    [ARIL_F8E5M2FNUZ] = { 13, 8, 1 }, [ARIL_F8E8M0] = { 14, 8, 1 },
    [ARIL_F4E2M1] = { 17, 4, 1 },     [ARIL_I4] = { INT, 4, 1 },
    [ARIL_U4] = { UINT, 4, 1 },       [ARIL_I2] = { INT, 2, 1 },
    [ARIL_U2] = { UINT, 2, 1 },
};

/* ---- export ---- */

/* An exported tensor: one block with the sizes stored after the struct. */
typedef struct loan {
    union {
        struct DLManagedTensorVersioned versioned;
        struct DLManagedTensor plain;
    } m;
    int64_t dim[ARIL_MAX_DIMS], stride[ARIL_MAX_DIMS];
} loan;

static void end_versioned(struct DLManagedTensorVersioned *m)
{
    if (!m) return;
    aril__tensor_release(aril__self(), m->manager_ctx);
    free(m);
}

static void end_plain(struct DLManagedTensor *m)
{
    if (!m) return;
    aril__tensor_release(aril__self(), m->manager_ctx);
    free(m);
}

/* A loan whose `tensor` member describes t; NULL, with an error, on failure. */
static loan *lend(aril_tensor *t)
{
    if (aril__check_value("to_dlpack", t) < 0) return NULL;
    if (t->node) {
        aril__fail(ARIL_ERR_GRAD, "to_dlpack: the tensor requires a gradient, and writes by others "
                                  "would not be recorded; use aril_detach");
        return NULL;
    }
    if (t->storage->device->id.kind != ARIL__CPU) {
        char name[48];
        aril__fail(ARIL_ERR_DEVICE,
                   "to_dlpack: the tensor is on %s, expected cpu; move it with aril_to",
                   aril_device_name(t->storage->device->id, name, sizeof name));
        return NULL;
    }
    unsigned bits = aril__dtypes[t->dtype].bits;
    if (bits < 8 && t->offset % (8 / bits) != 0) {
        aril__fail(ARIL_ERR_ARG,
                   "to_dlpack: the first element does not start at a byte; use a copy");
        return NULL;
    }
    loan *l = aril__calloc(sizeof *l);
    if (!l) aril__fail(ARIL_ERR_MEMORY, "to_dlpack: out of memory");
    return l;
}

static void *describe(loan *l, struct DLTensor *d, aril_tensor *t)
{
    memcpy(l->dim, t->dim, (size_t)t->ndim * sizeof *l->dim);
    memcpy(l->stride, t->stride, (size_t)t->ndim * sizeof *l->stride);
    d->data = t->numel ? aril__ptr(t) : NULL;
    d->device.device_type = CPU;
    d->ndim = t->ndim;
    d->dtype = types[t->dtype];
    d->shape = l->dim;
    d->strides = l->stride;
    aril__lend(t);
    return aril__tensor_keep(t);
}

struct DLManagedTensorVersioned *aril_to_dlpack(aril_tensor *t, bool read_only)
{
    loan *l = lend(t);
    if (!l) return NULL;
    struct DLManagedTensorVersioned *m = &l->m.versioned;
    m->version.major = MAJOR;
    m->version.minor = MINOR;
    m->flags = read_only ? READ_ONLY : 0;
    m->deleter = end_versioned;
    m->manager_ctx = describe(l, &m->dl_tensor, t);
    return m;
}

struct DLManagedTensor *aril_to_dlpack_unversioned(aril_tensor *t)
{
    loan *l = lend(t);
    if (!l) return NULL;
    struct DLManagedTensor *m = &l->m.plain;
    m->deleter = end_plain;
    m->manager_ctx = describe(l, &m->dl_tensor, t);
    return m;
}

/* ---- import ---- */

static void give_back_versioned(void *data, void *ctx)
{
    (void)data;
    struct DLManagedTensorVersioned *m = ctx;
    if (m->deleter) m->deleter(m);
}

static void give_back_plain(void *data, void *ctx)
{
    (void)data;
    struct DLManagedTensor *m = ctx;
    if (m->deleter) m->deleter(m);
}

static int dtype_of(struct DLDataType d)
{
    for (int i = 0; i < ARIL__DTYPE_COUNT; i++)
        if (types[i].code == d.code && types[i].bits == d.bits) return i;
    return -1;
}

/* Checks everything that can be checked; returns dtype and sizes. */
static aril_status examine(const struct DLTensor *d, int *dtype, aril_shape *shape)
{
    if (d->device.device_type != CPU && d->device.device_type != CUDA_HOST)
        return aril__fail(ARIL_ERR_DEVICE,
                          "from_dlpack: device type %d is not supported, only CPU memory is",
                          (int)d->device.device_type);
    if (d->dtype.lanes != 1)
        return aril__fail(ARIL_ERR_DTYPE, "from_dlpack: elements with %d lanes are not supported",
                          d->dtype.lanes);
    *dtype = dtype_of(d->dtype);
    if (*dtype < 0)
        return aril__fail(ARIL_ERR_DTYPE, "from_dlpack: no dtype for type code %d with %d bits",
                          d->dtype.code, d->dtype.bits);
    if (d->ndim < 0 || d->ndim > ARIL_MAX_DIMS || (d->ndim > 0 && !d->shape))
        return aril__fail(ARIL_ERR_SHAPE, "from_dlpack: got %d dimensions, expected at most %d",
                          (int)d->ndim, ARIL_MAX_DIMS);
    shape->ndim = d->ndim;
    for (int i = 0; i < d->ndim; i++) shape->dim[i] = d->shape[i];
    aril_status s = aril__check_shape("from_dlpack", *shape, false);
    if (s < 0 || aril__count(shape->ndim, shape->dim) == 0) return s;
    if (!d->data) return aril__fail(ARIL_ERR_ARG, "from_dlpack: the data is NULL");
    size_t size = aril__dtype_bytes((aril_dtype)*dtype, 1);
    if (((uintptr_t)d->data + d->byte_offset) % size != 0)
        return aril__fail(ARIL_ERR_ARG, "from_dlpack: the data is not aligned to %zu bytes", size);
    return ARIL_OK;
}

/* A tensor over d's memory; `give_back(.., ctx)` is called when it is freed, or immediately on
 * failure. */
static aril_tensor *take(const struct DLTensor *d, bool read_only,
                         void (*give_back)(void *data, void *ctx), void *ctx)
{
    int dtype = 0;
    aril_shape shape = { 0 };
    if (examine(d, &dtype, &shape) < 0) {
        give_back(NULL, ctx);
        return aril__poison();
    }
    void *data = d->data ? (char *)d->data + d->byte_offset : NULL;
    aril_tensor *t = aril_borrow(data, shape, (aril_dtype)dtype, give_back, ctx);
    if (aril__is_poison(t)) return aril__pass_on(t);
    int64_t last = 0; /* the furthest element */
    for (int i = 0; i < t->ndim && d->strides; i++) t->stride[i] = d->strides[i];
    for (int i = 0; i < t->ndim; i++)
        last += t->stride[i] > 0 && t->dim[i] > 0 ? t->stride[i] * (t->dim[i] - 1) : 0;
    if (t->numel) t->storage->bytes = aril__dtype_bytes((aril_dtype)dtype, last + 1);
    if (!read_only) return t;
    aril_tensor *own = aril_copy(t);
    aril_drop(t);
    return own;
}

aril_tensor *aril_from_dlpack(struct DLManagedTensorVersioned *m)
{
    if (!m) {
        aril__fail(ARIL_ERR_ARG, "from_dlpack: the tensor is NULL");
        return aril__poison();
    }
    if (m->version.major != MAJOR || m->flags & PADDED) {
        if (m->version.major != MAJOR)
            aril__fail(ARIL_ERR_UNSUPPORTED,
                       "from_dlpack: DLPack version %u is not supported, expected %d",
                       (unsigned)m->version.major, MAJOR);
        else
            aril__fail(ARIL_ERR_UNSUPPORTED,
                       "from_dlpack: sub-byte elements padded to bytes are not supported");
        give_back_versioned(NULL, m);
        return aril__poison();
    }
    return take(&m->dl_tensor, m->flags & READ_ONLY, give_back_versioned, m);
}

aril_tensor *aril_from_dlpack_unversioned(struct DLManagedTensor *m)
{
    if (!m) {
        aril__fail(ARIL_ERR_ARG, "from_dlpack: the tensor is NULL");
        return aril__poison();
    }
    return take(&m->dl_tensor, false, give_back_plain, m);
}
