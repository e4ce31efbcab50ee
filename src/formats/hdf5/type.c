/* Types and shapes in HDF5 files. */
#include "formats/hdf5/inside.h"

#include <string.h>

static void number_bits(h5_cursor *c, h5_type *t, unsigned bits)
{
    t->big_endian = bits & 1;
    t->is_signed = bits & 8;
    t->offset = (unsigned)aril__h5_number(c, 2);
    t->precision = (unsigned)aril__h5_number(c, 2);
}

static bool float_bits(h5_cursor *c, h5_type *t, unsigned bits)
{
    number_bits(c, t, bits);
    t->sign = bits >> 8 & 255;
    t->normalization = bits >> 4 & 3;
    t->exponent = (unsigned)aril__h5_number(c, 1);
    t->exponent_bits = (unsigned)aril__h5_number(c, 1);
    t->mantissa = (unsigned)aril__h5_number(c, 1);
    t->mantissa_bits = (unsigned)aril__h5_number(c, 1);
    t->bias = (uint32_t)aril__h5_number(c, 4);
    unsigned all = 8 * (unsigned)t->size;
    return !(bits & 64) /* VAX */ && t->sign < all && t->exponent_bits >= 1 &&
           t->exponent_bits <= 16 && t->exponent + t->exponent_bits <= all &&
           t->mantissa_bits >= 1 && t->mantissa + t->mantissa_bits <= all;
}

static h5_problem parse(h5_cursor *c, h5_type *t)
{
    unsigned first = (unsigned)aril__h5_number(c, 1), bits = (unsigned)aril__h5_number(c, 3);
    *t = (h5_type){ .class = (int)(first & 15), .size = (size_t)aril__h5_number(c, 4) };
    if (c->bad || t->size == 0) return H5_TYPE;
    bool good = true;
    if (t->class == H5_INTEGER || t->class == H5_FLOAT) {
        good = t->size <= 8; /* wider ones are kept, and refused as a dtype */
        if (good && t->class == H5_INTEGER) number_bits(c, t, bits);
        if (good && t->class == H5_FLOAT) good = float_bits(c, t, bits);
        if (!good && t->size > 8) return H5_DTYPE;
    }
    if (t->class == H5_INTEGER && good)
        good = t->precision >= 1 && t->offset + t->precision <= 8 * t->size;
    if (t->class == H5_VARYING) t->is_text = (bits & 15) == 1;
    return c->bad ? H5_TYPE : good ? H5_FINE : H5_DTYPE;
}

h5_problem aril__h5_type(h5_cursor c, h5_type *t)
{
    h5_problem p = parse(&c, t);
    if (p != H5_FINE || t->class != H5_ENUM) return p;
    h5_type base; /* how h5py writes bool */
    size_t size = t->size;
    p = parse(&c, &base);
    if (p != H5_FINE) return p;
    if (base.class != H5_INTEGER || base.size != size) return H5_DTYPE;
    *t = base;
    t->class = H5_ENUM;
    return H5_FINE;
}

h5_problem aril__h5_dtype(const h5_type *t, aril_dtype *dtype)
{
    static const aril_dtype integers[2][4] = { { ARIL_U8, ARIL_U16, ARIL_U32, ARIL_U64 },
                                               { ARIL_I8, ARIL_I16, ARIL_I32, ARIL_I64 } };
    switch (t->class) {
    case H5_STRING: return H5_TEXT;
    case H5_VARYING: return t->is_text ? H5_TEXT : H5_DTYPE;
    case H5_COMPOUND: return H5_RECORDS;
    case H5_FLOAT: *dtype = t->size <= 4 ? ARIL_F32 : ARIL_F64; return H5_FINE;
    case H5_ENUM: *dtype = ARIL_U8; return t->size == 1 ? H5_FINE : H5_DTYPE;
    case H5_INTEGER:
        if ((t->size & (t->size - 1)) != 0) return H5_DTYPE;
        *dtype = integers[t->is_signed][aril__h5_log2(t->size)];
        return H5_FINE;
    default: return H5_DTYPE;
    }
}

h5_problem aril__h5_space(const aril__hdf5 *f, h5_cursor c, aril_shape *shape, uint64_t *most)
{
    uint64_t version = aril__h5_number(&c, 1), n = aril__h5_number(&c, 1),
             flags = aril__h5_number(&c, 1);
    uint64_t type = version == 2 ? aril__h5_number(&c, 1) : 0;
    if (version == 1) aril__h5_bytes(&c, 5);
    if (c.bad || (version != 1 && version != 2)) return H5_SPACE;
    if (version == 2 && type == 2) return H5_NO_VALUE;
    if (n > ARIL_MAX_DIMS) return n > 32 ? H5_SPACE : H5_DIMENSIONS;
    *shape = (aril_shape){ .ndim = (int)n };
    for (uint64_t i = 0; i < n; i++) {
        uint64_t size = aril__h5_length(f, &c);
        if (size > INT64_MAX) return H5_SPACE;
        shape->dim[i] = (int64_t)size;
        most[i] = size;
    }
    uint64_t none = UINT64_MAX >> (64 - 8 * f->length_size);
    for (uint64_t i = 0; i < n && flags & 1; i++) {
        uint64_t size = aril__h5_length(f, &c);
        most[i] = size == none ? UINT64_MAX : size;
        if (most[i] < (uint64_t)shape->dim[i]) return H5_SPACE;
    }
    return c.bad ? H5_SPACE : H5_FINE;
}
