/* Names, sizes and promotion; the rows themselves are in dtype_convert.c. */
#include "aril/dtype.h"

#include "core/dtype.h"
#include "core/error.h"

static bool is_dtype(aril_dtype t)
{
    return (unsigned)t < ARIL__DTYPE_COUNT;
}

const char *aril_dtype_name(aril_dtype dtype)
{
    return is_dtype(dtype) ? aril__dtypes[dtype].name : "?";
}

int aril_dtype_bits(aril_dtype dtype)
{
    return is_dtype(dtype) ? aril__dtypes[dtype].bits : 0;
}

size_t aril_dtype_size(aril_dtype dtype)
{
    return (size_t)aril_dtype_bits(dtype) / 8;
}

bool aril_dtype_is_float(aril_dtype dtype)
{
    return is_dtype(dtype) && aril__is_float(dtype);
}

/* The signed integer of the given width, i64 where none is wide enough. */
static aril_dtype signed_of(int bits)
{
    return bits <= 8 ? ARIL_I8 : bits <= 16 ? ARIL_I16 : bits <= 32 ? ARIL_I32 : ARIL_I64;
}

aril_dtype aril__promote(aril_dtype a, aril_dtype b)
{
    const aril__dtype_row *ra = &aril__dtypes[a], *rb = &aril__dtypes[b];
    if (a == b) return a;
    if (ra->kind == ARIL__KIND_FLOAT && rb->kind == ARIL__KIND_FLOAT) {
        if (ra->bits == rb->bits) /* f16 and bf16: neither can represent the other */
            return ARIL_F32;
        return ra->bits > rb->bits ? a : b;
    }
    /* Kinds are ordered: any float wins over any integer, any integer over bool. */
    if (ra->kind == ARIL__KIND_FLOAT || rb->kind == ARIL__KIND_FLOAT ||
        ra->kind == ARIL__KIND_BOOL || rb->kind == ARIL__KIND_BOOL)
        return ra->kind > rb->kind ? a : b;
    if (ra->kind == rb->kind) return ra->bits > rb->bits ? a : b;
    int unsigned_bits = ra->kind == ARIL__KIND_UINT ? ra->bits : rb->bits;
    int signed_bits = ra->kind == ARIL__KIND_UINT ? rb->bits : ra->bits;
    return signed_of(signed_bits > unsigned_bits ? signed_bits : 2 * unsigned_bits);
}

aril_dtype aril_promote_types(aril_dtype a, aril_dtype b)
{
    if (!is_dtype(a) || !is_dtype(b)) {
        aril__fail(ARIL_ERR_DTYPE, "promote_types: %d is not a dtype",
                   is_dtype(a) ? (int)b : (int)a);
        return a;
    }
    if (a != b && !(aril__dtypes[a].computes && aril__dtypes[b].computes)) {
        aril__fail(ARIL_ERR_DTYPE,
                   "promote_types: %s and %s do not promote: %s is storage-only, cast it first",
                   aril_dtype_name(a), aril_dtype_name(b),
                   aril_dtype_name(aril__dtypes[a].computes ? b : a));
        return a;
    }
    return aril__promote(a, b);
}

aril_status aril_dtype_from_name(const char *name, aril_dtype *out)
{
    if (!name || !out)
        return aril__fail(ARIL_ERR_ARG,
                          "dtype_from_name: expected a name and a pointer for the dtype, got NULL");
    const char *bare = strncmp(name, "torch.", 6) == 0 ? name + 6 : name;
    for (int t = 0; t < ARIL__DTYPE_COUNT; t++) {
        const aril__dtype_row *row = &aril__dtypes[t];
        if (strcmp(bare, row->name) == 0 || strcmp(bare, row->torch_name) == 0) {
            *out = (aril_dtype)t;
            return ARIL_OK;
        }
    }
    return aril__fail(ARIL_ERR_DTYPE,
                      "dtype_from_name: no dtype \"%.40s\"; expected one such as f32, float32, "
                      "i64, bool, bf16, f8e4m3fn",
                      name);
}
