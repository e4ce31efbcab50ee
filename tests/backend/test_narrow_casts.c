/* Casts from and to dtypes that only store, on a device: the values are the CPU's, for every pair
 * of dtypes, for any strides, and for elements that begin within a byte. */
#include <aril/aril.h>

#include "core/device.h"
#include "support/device.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

enum { N = 60 };

/* Values around every limit of the narrow formats. */
static aril_tensor *values(aril_device device)
{
    static const double at[] = {
        0,       -0.0,    1,       -1,       0.5,        1.5,      2.5,       -2.5,     3,
        6,       7,       -7,      7.5,      8,          -8,       15,        16,       240,
        247,     248,     448,     463,      464,        465,      -500,      57344,    61440,
        65504,   1e9,     -1e9,    0x1p-6,   0x1p-7,     0x1p-9,   0x1p-10,   0x1.8p-9, 0x1p-14,
        0x1p-16, 0x1p-17, 0x1p-18, 0x1p-127, 0x1.8p-127, 1e-30,    0.1,       -0.3,     1.75,
        1.25,    1.0625,  1.1875,  100.5,    -100.5,     INFINITY, -INFINITY, NAN
    };
    double v[N];
    for (int i = 0; i < N; i++)
        v[i] = i < (int)(sizeof at / sizeof *at) ? at[i] : 0.37 * (i - 50) * (i - 50);
    return aril_from(v, ARIL_SHAPE(N), ARIL_F64, device);
}

/* Whether two tensors have the same values, down to the sign of 0; every NaN of a float that
 * computes is the same. */
static bool same(aril_tensor *a, aril_tensor *b)
{
    aril_dtype dtype = aril_dtype_of(a);
    a = aril_to(a, aril_cpu());
    b = aril_to(b, aril_cpu());
    if (dtype != aril_dtype_of(b) || aril_numel(a) != aril_numel(b)) return false;
    if (dtype >= ARIL_F16 && dtype <= ARIL_F64) {
        const double *p = aril_data(aril_cast(a, ARIL_F64)), *q = aril_data(aril_cast(b, ARIL_F64));
        for (int64_t i = 0; i < aril_numel(a); i++)
            if (isnan(p[i]) != isnan(q[i]) ||
                (!isnan(p[i]) && (p[i] != q[i] || signbit(p[i]) != signbit(q[i]))))
                return false;
        return true;
    }
    const void *p = aril_data(a), *q = aril_data(b);
    size_t bits = (size_t)aril_dtype_bits(dtype) * (size_t)aril_numel(a);
    return p && q && memcmp(p, q, (bits + 7) / 8) == 0;
}

static int copies_to_host;
static aril__device_ops ops;

static aril_status counted(void *self, aril_queue *queue, void *dst, const void *src, size_t bytes,
                           bool async)
{
    copies_to_host++;
    return ops.to_host(self, queue, dst, src, bytes, async);
}

static bool on_gpu(void)
{
    char name[32];
    return strncmp(aril_device_name(test_device(), name, sizeof name), "cuda", 4) == 0;
}

/* A cast on the test device; on a GPU nothing of it may pass through the host. */
static aril_tensor *cast_there(aril_tensor *x, aril_dtype dtype)
{
    aril__device *d = aril__device_find(test_device());
    ops = d->ops;
    copies_to_host = 0;
    d->ops.to_host = counted;
    aril_tensor *y = aril_cast(x, dtype);
    d->ops = ops;
    if (on_gpu() && copies_to_host)
        test_fail(__FILE__, __LINE__, "%s to %s passes through the host",
                  aril_dtype_name(aril_dtype_of(x)), aril_dtype_name(dtype));
    return y;
}

TEST(every_pair_of_dtypes)
{
    for (int from = 0; from <= ARIL_U2; from++) {
        for (int to = 0; to <= ARIL_U2; to++) {
            ARIL_SCOPE;
            if (from == to || (from <= ARIL_F64 && to <= ARIL_F64)) continue;
            aril_tensor *x = aril_cast(values(aril_cpu()), (aril_dtype)from);
            aril_tensor *y = cast_there(aril_to(x, test_device()), (aril_dtype)to);
            CHECK_MSG(same(y, aril_cast(x, (aril_dtype)to)), "%s to %s",
                      aril_dtype_name((aril_dtype)from), aril_dtype_name((aril_dtype)to));
        }
    }
    CHECK(aril_ok());
}

TEST(strides)
{
    static const aril_dtype narrow[] = { ARIL_F8E4M3FN, ARIL_F8E5M2, ARIL_F4E2M1, ARIL_I4,
                                         ARIL_U2 };
    for (int i = 0; i < 5; i++) {
        ARIL_SCOPE;
        aril_tensor *here = aril_reshape(values(aril_cpu()), ARIL_SHAPE(6, 10));
        aril_tensor *there = aril_to(here, test_device());
        CHECK(same(aril_contiguous(cast_there(aril_transpose(there, 0, 1), narrow[i])),
                   aril_contiguous(aril_cast(aril_transpose(here, 0, 1), narrow[i]))));
        here = aril_transpose(aril_cast(here, narrow[i]), 0, 1);
        there = aril_transpose(aril_to(aril_transpose(here, 0, 1), test_device()), 0, 1);
        CHECK(same(aril_cast(there, ARIL_F32), aril_cast(here, ARIL_F32)));
    }
}

/* A view that begins within a byte. */
TEST(views_of_packed_elements)
{
    static const aril_dtype packed[] = { ARIL_F4E2M1, ARIL_I4, ARIL_U4, ARIL_I2, ARIL_U2 };
    for (int i = 0; i < 5; i++) {
        for (int first = 0; first < 5; first++) {
            ARIL_SCOPE;
            aril_tensor *here = aril_cast(values(aril_cpu()), packed[i]);
            aril_tensor *there = aril_to(here, test_device());
            here = aril_slice(here, 0, first, first + 21, 1);
            there = aril_slice(there, 0, first, first + 21, 1);
            CHECK_MSG(same(aril_cast(there, ARIL_F32), aril_cast(here, ARIL_F32)),
                      "%s from element %d", aril_dtype_name(packed[i]), first);
            aril_copy_(here, aril_full(ARIL_SHAPE(21), 1, ARIL_F32, aril_cpu()));
            aril_copy_(there, aril_full(ARIL_SHAPE(21), 1, ARIL_F32, test_device()));
            CHECK_MSG(same(aril_cast(there, ARIL_F32), aril_cast(here, ARIL_F32)),
                      "writing %s from element %d", aril_dtype_name(packed[i]), first);
        }
    }
    CHECK_MSG(aril_ok(), "%s", aril_error());
}
