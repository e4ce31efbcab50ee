/* Conversions between storage types and compute types, which dtype.cuh explains. Kernels that are
 * compiled at run time contain this text, too: it uses no headers, but the storage types
 * aril_cuda_bool, aril_cuda_f16 and aril_cuda_bf16, and CUDA's conversions of the last two. */
#ifndef ARIL_CUDA_CONVERT_CUH
#define ARIL_CUDA_CONVERT_CUH

/* ---- From a storage type to a compute type ---- */

ARIL_CUDA_FN int64_t aril_cuda_f64_as_i64(double x)
{
    if (x != x) return 0;
    if (x >= 0x1p63) return INT64_MAX;
    if (x < -0x1p63) return INT64_MIN;
    return (int64_t)x;
}
ARIL_CUDA_FN uint64_t aril_cuda_f64_as_u64(double x)
{
    if (x >= 0x1p64) return UINT64_MAX;
    if (x >= 0x1p63) return (uint64_t)x;
    return (uint64_t)aril_cuda_f64_as_i64(x);
}

/* Between compute types. */
template <typename C> struct aril_cuda_as;
template <> struct aril_cuda_as<float> {
    template <typename X> ARIL_CUDA_FN float of(X x)
    {
        return (float)x;
    }
};
template <> struct aril_cuda_as<double> {
    template <typename X> ARIL_CUDA_FN double of(X x)
    {
        return (double)x;
    }
};
template <> struct aril_cuda_as<int64_t> {
    template <typename X> ARIL_CUDA_FN int64_t of(X x)
    {
        return (int64_t)x;
    }
    ARIL_CUDA_FN int64_t of(float x)
    {
        return aril_cuda_f64_as_i64((double)x);
    }
    ARIL_CUDA_FN int64_t of(double x)
    {
        return aril_cuda_f64_as_i64(x);
    }
};
template <> struct aril_cuda_as<uint64_t> {
    template <typename X> ARIL_CUDA_FN uint64_t of(X x)
    {
        return (uint64_t)x;
    }
    ARIL_CUDA_FN uint64_t of(float x)
    {
        return aril_cuda_f64_as_u64((double)x);
    }
    ARIL_CUDA_FN uint64_t of(double x)
    {
        return aril_cuda_f64_as_u64(x);
    }
};

/* Each storage type: its dtype, the type it is computed in, and its value in the narrowest type
 * that holds it exactly. */
template <typename S> struct aril_cuda_type;
#define ARIL_CUDA_TYPE(S, tag, C, natural, expression) \
    template <> struct aril_cuda_type<S> {             \
        typedef C compute;                             \
        static const aril_dtype dtype = tag;           \
        ARIL_CUDA_FN natural value(S e)                \
        {                                              \
            return expression;                         \
        }                                              \
    };
ARIL_CUDA_TYPE(aril_cuda_bool, ARIL_BOOL, int64_t, int32_t, e.byte != 0)
ARIL_CUDA_TYPE(uint8_t, ARIL_U8, int64_t, int32_t, e)
ARIL_CUDA_TYPE(uint16_t, ARIL_U16, int64_t, int32_t, e)
ARIL_CUDA_TYPE(uint32_t, ARIL_U32, int64_t, int64_t, e)
ARIL_CUDA_TYPE(uint64_t, ARIL_U64, uint64_t, uint64_t, e)
ARIL_CUDA_TYPE(int8_t, ARIL_I8, int64_t, int32_t, e)
ARIL_CUDA_TYPE(int16_t, ARIL_I16, int64_t, int32_t, e)
ARIL_CUDA_TYPE(int32_t, ARIL_I32, int64_t, int32_t, e)
ARIL_CUDA_TYPE(int64_t, ARIL_I64, int64_t, int64_t, e)
ARIL_CUDA_TYPE(aril_cuda_f16, ARIL_F16, float, float, __half2float(e))
ARIL_CUDA_TYPE(aril_cuda_bf16, ARIL_BF16, float, float, __bfloat162float(e))
ARIL_CUDA_TYPE(float, ARIL_F32, float, float, e)
ARIL_CUDA_TYPE(double, ARIL_F64, double, double, e)

template <typename C, typename S> ARIL_CUDA_FN C aril_cuda_to(S e)
{
    return aril_cuda_as<C>::of(aril_cuda_type<S>::value(e));
}

/* ---- From a compute type to a storage type ---- */

/* x as a double from which a narrower float is rounded as if from x itself: integers beyond 53 bits
 * are rounded to odd. */
ARIL_CUDA_FN double aril_cuda_wide(uint64_t x)
{
    if (x >> 53) x = ((x >> 11) | ((x & 0x7ff) != 0)) << 11;
    return (double)x;
}
ARIL_CUDA_FN double aril_cuda_wide(int64_t x)
{
    return x < 0 ? -aril_cuda_wide(0 - (uint64_t)x) : aril_cuda_wide((uint64_t)x);
}
ARIL_CUDA_FN double aril_cuda_wide(double x)
{
    return x;
}

/* Integers wrap; floats go through int64_t, saturated, and then wrap. */
template <typename S> struct aril_cuda_put {
    template <typename C> ARIL_CUDA_FN S of(C x)
    {
        return (S)(uint64_t)aril_cuda_as<int64_t>::of(x);
    }
};
template <> struct aril_cuda_put<aril_cuda_bool> {
    template <typename C> ARIL_CUDA_FN aril_cuda_bool of(C x)
    {
        return { (uint8_t)(x != 0) };
    }
};
template <> struct aril_cuda_put<uint64_t> {
    template <typename C> ARIL_CUDA_FN uint64_t of(C x)
    {
        return aril_cuda_as<uint64_t>::of(x);
    }
};
template <> struct aril_cuda_put<int64_t> {
    template <typename C> ARIL_CUDA_FN int64_t of(C x)
    {
        return aril_cuda_as<int64_t>::of(x);
    }
};
template <> struct aril_cuda_put<aril_cuda_f16> {
    template <typename C> ARIL_CUDA_FN __half of(C x)
    {
        return __double2half(aril_cuda_wide(x));
    }
    ARIL_CUDA_FN __half of(float x)
    {
        return __float2half_rn(x);
    }
};
template <> struct aril_cuda_put<aril_cuda_bf16> {
    template <typename C> ARIL_CUDA_FN __nv_bfloat16 of(C x)
    {
        return __double2bfloat16(aril_cuda_wide(x));
    }
    ARIL_CUDA_FN __nv_bfloat16 of(float x)
    {
        return __float2bfloat16_rn(x);
    }
};
template <> struct aril_cuda_put<float> {
    template <typename C> ARIL_CUDA_FN float of(C x)
    {
        return aril_cuda_as<float>::of(x);
    }
};
template <> struct aril_cuda_put<double> {
    template <typename C> ARIL_CUDA_FN double of(C x)
    {
        return aril_cuda_as<double>::of(x);
    }
};

template <typename S, typename C> ARIL_CUDA_FN S aril_cuda_from(C x)
{
    return aril_cuda_put<S>::of(x);
}

#endif
