/* Random numbers: the bits of core/rng.h, which is their definition. Element i of a draw depends on
 * the key and i alone. */
#ifndef ARIL_CUDA_PHILOX_CUH
#define ARIL_CUDA_PHILOX_CUH

#include "backend/cuda/number.cuh"

/* The four words of block `block` of a draw: elements 4 * block ... of 32-bit numbers. */
static __device__ __forceinline__ uint4 aril_cuda_philox(aril_cuda_key of, uint64_t block)
{
    aril_cuda_key key = of.read();
    uint32_t k0 = (uint32_t)key.seed, k1 = (uint32_t)(key.seed >> 32);
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32);
    uint32_t c2 = (uint32_t)key.call, c3 = (uint32_t)(key.call >> 32);
#pragma unroll
    for (int r = 0; r < 10; r++) {
        uint32_t low_a = 0xd2511f53u * c0, high_a = __umulhi(0xd2511f53u, c0);
        uint32_t low_b = 0xcd9e8d57u * c2, high_b = __umulhi(0xcd9e8d57u, c2);
        c0 = high_b ^ c1 ^ k0;
        c2 = high_a ^ c3 ^ k1;
        c1 = low_b;
        c3 = low_a;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return make_uint4(c0, c1, c2, c3);
}

/* The two 64-bit numbers of a block: elements 2 * block and 2 * block + 1. */
static __device__ __forceinline__ ulonglong2 aril_cuda_philox64(aril_cuda_key key, uint64_t block)
{
    uint4 w = aril_cuda_philox(key, block);
    return make_ulonglong2(w.x | (unsigned long long)w.y << 32,
                           w.z | (unsigned long long)w.w << 32);
}

/* Element i of a draw. A kernel that needs several neighbours calls aril_cuda_philox itself. */
static __device__ __forceinline__ uint32_t aril_cuda_u32(aril_cuda_key key, uint64_t i)
{
    uint4 w = aril_cuda_philox(key, i / 4);
    return i & 2 ? (i & 1 ? w.w : w.z) : (i & 1 ? w.y : w.x);
}
static __device__ __forceinline__ uint64_t aril_cuda_u64(aril_cuda_key key, uint64_t i)
{
    ulonglong2 w = aril_cuda_philox64(key, i / 2);
    return i & 1 ? w.y : w.x;
}

/* Uniform in [0, 1). */
static __device__ __forceinline__ float aril_cuda_uniform_f32(uint32_t x)
{
    return (float)(int32_t)(x >> 8) * 0x1p-24f;
}
static __device__ __forceinline__ double aril_cuda_uniform_f64(uint64_t x)
{
    return (double)(int64_t)(x >> 11) * 0x1p-53;
}

/* floor(x * n / 2^64), in [0, n). */
static __device__ __forceinline__ uint64_t aril_cuda_below(uint64_t x, uint64_t n)
{
    return __umul64hi(x, n);
}

/* Two normals from two draws (Box and Muller): elements 2j and 2j + 1 from draws 2j and 2j + 1. The
 * operations are those of core/rng.h in the same order; the intrinsics forbid contraction. */
static __device__ __forceinline__ float2 aril_cuda_normals_f32(uint32_t a, uint32_t b)
{
#define MUL __fmul_rn
#define ADD __fadd_rn
    float u = MUL(ADD((float)(int32_t)(a >> 1), 0.5f), 0x1p-31f);
    uint32_t bits = __float_as_uint(u);
    int32_t e = (int32_t)(bits - 0x3f3504f3u) >> 23;
    bits -= (uint32_t)e << 23;
    float m = __uint_as_float(bits);
    float s = __fdiv_rn(ADD(m, -1.0f), ADD(m, 1.0f));
    float z = MUL(s, s);
    float p = 1.0f / 11;
    p = ADD(MUL(p, z), 1.0f / 9);
    p = ADD(MUL(p, z), 1.0f / 7);
    p = ADD(MUL(p, z), 1.0f / 5);
    p = ADD(MUL(p, z), 1.0f / 3);
    float s2 = MUL(2.0f, s);
    float ln = ADD(MUL((float)e, 0x1.62e43p-1f), ADD(s2, MUL(s2, MUL(z, p))));
    float r = __fsqrt_rn(MUL(-2.0f, ln));

    uint32_t q = (b + 0x20000000u) >> 30;
    float x = MUL((float)(int32_t)(b << 2), 0x1.921fb6p-32f);
    float w = MUL(x, x);
    float sn = 1.0f / 362880;
    sn = ADD(MUL(sn, w), -(1.0f / 5040));
    sn = ADD(MUL(sn, w), 1.0f / 120);
    sn = ADD(MUL(sn, w), -(1.0f / 6));
    sn = ADD(x, MUL(x, MUL(w, sn)));
    float cs = -1.0f / 3628800;
    cs = ADD(MUL(cs, w), 1.0f / 40320);
    cs = ADD(MUL(cs, w), -(1.0f / 720));
    cs = ADD(MUL(cs, w), 1.0f / 24);
    cs = ADD(MUL(cs, w), -(1.0f / 2));
    cs = ADD(1.0f, MUL(w, cs));

    float c = q & 1 ? sn : cs, d = q & 1 ? cs : sn;
    return make_float2(MUL(r, (q + 1) & 2 ? -c : c), MUL(r, q & 2 ? -d : d));
#undef MUL
#undef ADD
}

static __device__ __forceinline__ double2 aril_cuda_normals_f64(uint64_t a, uint64_t b)
{
#define MUL __dmul_rn
#define ADD __dadd_rn
    double u = MUL(ADD((double)(int64_t)(a >> 11), 0.5), 0x1p-53);
    uint64_t bits = (uint64_t)__double_as_longlong(u);
    int64_t e = (int64_t)(bits - 0x3fe6a09e667f3bcdull) >> 52;
    bits -= (uint64_t)e << 52;
    double m = __longlong_as_double((long long)bits);
    double s = __ddiv_rn(ADD(m, -1.0), ADD(m, 1.0));
    double z = MUL(s, s);
    double p = 1.0 / 23;
    p = ADD(MUL(p, z), 1.0 / 21);
    p = ADD(MUL(p, z), 1.0 / 19);
    p = ADD(MUL(p, z), 1.0 / 17);
    p = ADD(MUL(p, z), 1.0 / 15);
    p = ADD(MUL(p, z), 1.0 / 13);
    p = ADD(MUL(p, z), 1.0 / 11);
    p = ADD(MUL(p, z), 1.0 / 9);
    p = ADD(MUL(p, z), 1.0 / 7);
    p = ADD(MUL(p, z), 1.0 / 5);
    p = ADD(MUL(p, z), 1.0 / 3);
    double s2 = MUL(2.0, s);
    double ln = ADD(MUL((double)e, 0x1.62e42fefa39efp-1), ADD(s2, MUL(s2, MUL(z, p))));
    double r = __dsqrt_rn(MUL(-2.0, ln));

    uint64_t q = (b + 0x2000000000000000ull) >> 62;
    double x = MUL((double)(int64_t)(b << 2), 0x1.921fb54442d18p-64);
    double w = MUL(x, x);
    double sn = 1.0 / 355687428096000;
    sn = ADD(MUL(sn, w), -(1.0 / 1307674368000));
    sn = ADD(MUL(sn, w), 1.0 / 6227020800);
    sn = ADD(MUL(sn, w), -(1.0 / 39916800));
    sn = ADD(MUL(sn, w), 1.0 / 362880);
    sn = ADD(MUL(sn, w), -(1.0 / 5040));
    sn = ADD(MUL(sn, w), 1.0 / 120);
    sn = ADD(MUL(sn, w), -(1.0 / 6));
    sn = ADD(x, MUL(x, MUL(w, sn)));
    double cs = 1.0 / 20922789888000;
    cs = ADD(MUL(cs, w), -(1.0 / 87178291200));
    cs = ADD(MUL(cs, w), 1.0 / 479001600);
    cs = ADD(MUL(cs, w), -(1.0 / 3628800));
    cs = ADD(MUL(cs, w), 1.0 / 40320);
    cs = ADD(MUL(cs, w), -(1.0 / 720));
    cs = ADD(MUL(cs, w), 1.0 / 24);
    cs = ADD(MUL(cs, w), -(1.0 / 2));
    cs = ADD(1.0, MUL(w, cs));

    double c = q & 1 ? sn : cs, d = q & 1 ? cs : sn;
    return make_double2(MUL(r, (q + 1) & 2 ? -c : c), MUL(r, q & 2 ? -d : d));
#undef MUL
#undef ADD
}

#endif
