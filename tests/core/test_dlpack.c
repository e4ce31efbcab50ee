/* Memory exchanged with other libraries. */
#include "aril/aril.h"
#include "core/tensor.h"
#include "support/test.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* The layout is part of the ABI. */
_Static_assert(sizeof(struct DLTensor) == 48 && offsetof(struct DLTensor, dtype) == 20 &&
                   offsetof(struct DLTensor, shape) == 24 &&
                   offsetof(struct DLTensor, byte_offset) == 40,
               "DLTensor");
_Static_assert(offsetof(struct DLManagedTensor, manager_ctx) == 48 &&
                   offsetof(struct DLManagedTensor, deleter) == 56,
               "DLManagedTensor");
_Static_assert(offsetof(struct DLManagedTensorVersioned, manager_ctx) == 8 &&
                   offsetof(struct DLManagedTensorVersioned, deleter) == 16 &&
                   offsetof(struct DLManagedTensorVersioned, flags) == 24 &&
                   offsetof(struct DLManagedTensorVersioned, dl_tensor) == 32,
               "DLManagedTensorVersioned");

TEST(dlpack_round_trip)
{
    ARIL_SCOPE;
    aril_tensor *t = aril_reshape(aril_arange(0, 6, 1, ARIL_F32, aril_cpu()), ARIL_SHAPE(2, 3));
    struct DLManagedTensorVersioned *m = aril_to_dlpack(t, false);
    CHECK(m);
    CHECK_INT(m->version.major, 1);
    CHECK_INT(m->flags, 0);
    CHECK_INT(m->dl_tensor.ndim, 2);
    CHECK_INT(m->dl_tensor.shape[1], 3);
    CHECK_INT(m->dl_tensor.strides[0], 3);
    CHECK_INT(m->dl_tensor.dtype.code, 2);
    CHECK_INT(m->dl_tensor.dtype.bits, 32);
    CHECK_INT(m->dl_tensor.device.device_type, 1);
    aril_tensor *u = aril_from_dlpack(m);
    CHECK(aril_tensor_status(u) == ARIL_OK);
    CHECK_NEAR(aril_item(aril_sum(u, ARIL_ALL)), 15, 0);
    aril_fill_(u, 2); /* the same memory */
    CHECK_NEAR(aril_item(aril_sum(t, ARIL_ALL)), 12, 0);
    CHECK(aril_ok());
}

TEST(dlpack_round_trip_of_every_dtype)
{
    for (int i = 0; i <= ARIL_U2; i++) {
        ARIL_SCOPE;
        aril_tensor *t = aril_cast(aril_ones(ARIL_SHAPE(4), ARIL_F32, aril_cpu()), (aril_dtype)i);
        aril_tensor *u = aril_from_dlpack_unversioned(aril_to_dlpack_unversioned(t));
        CHECK_INT(aril_tensor_status(u), ARIL_OK);
        CHECK_INT(aril_dtype_of(u), i);
        CHECK_NEAR(aril_item(aril_sum(aril_cast(u, ARIL_F32), ARIL_ALL)), 4, 0);
    }
    CHECK(aril_ok());
}

TEST(dlpack_strides)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_reshape(aril_arange(0, 12, 1, ARIL_I64, aril_cpu()), ARIL_SHAPE(3, 4));
    aril_tensor *t = aril_t(aril_slice(x, 1, 3, ARIL_END, -2)); /* [[3,7,11],[1,5,9]] */
    struct DLManagedTensor *m = aril_to_dlpack_unversioned(t);
    CHECK(m);
    CHECK_INT(m->dl_tensor.strides[0], -2);
    CHECK_INT(m->dl_tensor.strides[1], 4);
    CHECK_INT(*(int64_t *)m->dl_tensor.data, 3);
    aril_tensor *u = aril_from_dlpack_unversioned(m);
    int64_t got[6];
    const int64_t want[6] = { 3, 7, 11, 1, 5, 9 };
    CHECK_INT(aril_read(u, got), ARIL_OK);
    CHECK(memcmp(got, want, sizeof want) == 0);
    CHECK(aril_ok());
}

TEST(dlpack_keeps_memory_alive)
{
    int64_t before = aril__live_blocks();
    struct DLManagedTensorVersioned *m;
    {
        ARIL_SCOPE;
        m = aril_to_dlpack(aril_full(ARIL_SHAPE(100), 7, ARIL_F64, aril_cpu()), true);
    }
    CHECK(m);
    CHECK_INT(m->flags, 1);
    CHECK(aril__live_blocks() > before);
    CHECK_NEAR(((double *)m->dl_tensor.data)[99], 7, 0);
    m->deleter(m);
    CHECK_INT(aril__live_blocks(), before);
}

/* Memory of "another library", which counts deleter calls. */
static int ended;
static float memory[8] = { 0, 1, 2, 3, 4, 5, 6, 7 };
static int64_t sizes[9] = { 2, 3, 1, 1, 1, 1, 1, 1, 1 };
static int64_t steps[2] = { 4, 1 };

static void end(struct DLManagedTensorVersioned *self)
{
    (void)self;
    ended++;
}

static struct DLManagedTensorVersioned other(void)
{
    ended = 0;
    return (struct DLManagedTensorVersioned){
        .version = { 1, 3 },
        .deleter = end,
        .dl_tensor = { .data = memory,
                       .device = { 1, 0 },
                       .ndim = 2,
                       .dtype = { 2, 32, 1 },
                       .shape = sizes,
                       .strides = steps },
    };
}

TEST(dlpack_deleter_is_called_once)
{
    struct DLManagedTensorVersioned m = other();
    {
        ARIL_SCOPE;
        aril_tensor *t = aril_from_dlpack(&m);
        aril_tensor *v = aril_keep(aril_select(t, 0, 1));
        CHECK(aril_data_strided(t) == memory);
        CHECK_NEAR(aril_item(aril_sum(t, ARIL_ALL)), 18, 0);
        aril_release(v);
        CHECK_INT(ended, 0);
    }
    CHECK_INT(ended, 1);
    m = other();
    m.dl_tensor.strides = NULL;
    m.dl_tensor.byte_offset = 2 * sizeof(float);
    {
        ARIL_SCOPE;
        CHECK_NEAR(aril_item(aril_sum(aril_from_dlpack(&m), ARIL_ALL)), 27, 0);
    }
    CHECK_INT(ended, 1);
    m = other();
    m.deleter = NULL;
    {
        ARIL_SCOPE;
        CHECK_INT(aril_tensor_status(aril_from_dlpack(&m)), ARIL_OK);
    }
    CHECK(aril_ok());
}

TEST(dlpack_copies_read_only_memory)
{
    struct DLManagedTensorVersioned m = other();
    m.flags = 1;
    ARIL_SCOPE;
    aril_tensor *t = aril_from_dlpack(&m);
    CHECK_INT(ended, 1);
    CHECK(aril_data_strided(t) != memory);
    aril_zero_(t);
    CHECK_NEAR(memory[1], 1, 0);
    CHECK(aril_ok());
}

TEST(dlpack_empty_and_scalar)
{
    ARIL_SCOPE;
    aril_tensor *e = aril_zeros(ARIL_SHAPE(2, 0, 3), ARIL_F32, aril_cpu());
    aril_tensor *u = aril_from_dlpack(aril_to_dlpack(e, false));
    CHECK_INT(aril_ndim(u), 3);
    CHECK_INT(aril_numel(u), 0);
    aril_tensor *s = aril_full(ARIL_SHAPE(), 3, ARIL_I32, aril_cpu());
    CHECK_INT(aril_item_int(aril_from_dlpack(aril_to_dlpack(s, false))), 3);
    CHECK(aril_ok());
}

static void refused(struct DLManagedTensorVersioned m, aril_status code, const char *part)
{
    ARIL_SCOPE;
    ended = 0;
    aril_tensor *t = aril_from_dlpack(&m);
    CHECK_INT(aril_tensor_status(t), code);
    CHECK_MSG(strstr(aril_tensor_error(t), part), "message: %s", aril_tensor_error(t));
    CHECK_INT(ended, 1); /* released immediately */
    aril_clear_error();
}

TEST(dlpack_rejects_unsupported_tensors)
{
    struct DLManagedTensorVersioned m = other();
    m.dl_tensor.device.device_type = 2;
    refused(m, ARIL_ERR_DEVICE, "device type 2");
    m = other();
    m.dl_tensor.dtype.lanes = 4;
    refused(m, ARIL_ERR_DTYPE, "elements with 4 lanes");
    m = other();
    m.dl_tensor.dtype.code = 5; /* complex */
    m.dl_tensor.dtype.bits = 64;
    refused(m, ARIL_ERR_DTYPE, "code 5 with 64 bits");
    m = other();
    m.dl_tensor.ndim = 9;
    refused(m, ARIL_ERR_SHAPE, "9 dimensions");
    m = other();
    m.dl_tensor.shape = (int64_t[]){ 2, -3 };
    refused(m, ARIL_ERR_SHAPE, "from_dlpack");
    m = other();
    m.dl_tensor.byte_offset = 1;
    refused(m, ARIL_ERR_ARG, "aligned to 4 bytes");
    m = other();
    m.dl_tensor.data = NULL;
    refused(m, ARIL_ERR_ARG, "NULL");
    m = other();
    m.version.major = 2;
    refused(m, ARIL_ERR_UNSUPPORTED, "version 2");
    m = other();
    m.flags = 4;
    refused(m, ARIL_ERR_UNSUPPORTED, "padded");

    ARIL_SCOPE;
    CHECK_INT(aril_tensor_status(aril_from_dlpack(NULL)), ARIL_ERR_ARG);
    CHECK_INT(aril_tensor_status(aril_from_dlpack_unversioned(NULL)), ARIL_ERR_ARG);
    CHECK(!aril_to_dlpack(NULL, false));
    CHECK(!aril_to_dlpack_unversioned(NULL));
    aril_tensor *w = aril_ones(ARIL_SHAPE(2), ARIL_F32, aril_cpu());
    aril_set_requires_grad(w, true);
    CHECK(!aril_to_dlpack(w, false));
    aril_clear_error();
    struct DLManagedTensorVersioned *d = aril_to_dlpack(aril_detach(w), false);
    CHECK(d);
    d->deleter(d);
    aril_tensor *odd = aril_cast(w, ARIL_I4);
    CHECK(!aril_to_dlpack(aril_slice(odd, 0, 1, 2, 1), false));
    aril_clear_error();
}
