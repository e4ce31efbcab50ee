/* Element types: promotion, names, every conversion. PyTorch's values are from version 2.15. */
#include "support/test.h"

#include "aril/dtype.h"
#include "aril/error.h"
#include "core/dtype.h"

#include <math.h>

static const aril_dtype narrow_floats[] = {
    ARIL_F16,    ARIL_BF16,       ARIL_F8E4M3FN, ARIL_F8E4M3FNUZ,
    ARIL_F8E5M2, ARIL_F8E5M2FNUZ, ARIL_F8E8M0,   ARIL_F4E2M1,
};
enum { NARROW_FLOATS = sizeof narrow_floats / sizeof *narrow_floats };

/* The value of one code of a dtype of at most 16 bits. */
static double decode(aril_dtype t, unsigned code)
{
    uint16_t word = (uint16_t)code;
    uint8_t byte = (uint8_t)code;
    double x;
    aril__dtypes[t].load[ARIL__C_F64](&x, aril__dtypes[t].bits == 16 ? (void *)&word : &byte, 0, 1,
                                      1);
    return x;
}

/* The code that a value of a compute type is stored as. */
static unsigned encode(aril_dtype t, aril__ctype from, const void *x)
{
    uint16_t word = 0;
    uint8_t byte = 0;
    aril__dtypes[t].store[from](aril__dtypes[t].bits == 16 ? (void *)&word : &byte, 0, 1, x, 1);
    return aril__dtypes[t].bits == 16 ? word : byte;
}

static unsigned encode_f64(aril_dtype t, double x)
{
    return encode(t, ARIL__C_F64, &x);
}

static unsigned encode_f32(aril_dtype t, float x)
{
    return encode(t, ARIL__C_F32, &x);
}

static unsigned encode_i64(aril_dtype t, int64_t x)
{
    return encode(t, ARIL__C_I64, &x);
}

static unsigned encode_u64(aril_dtype t, uint64_t x)
{
    return encode(t, ARIL__C_U64, &x);
}

/* An integer dtype's element after storing a float; sign-extended for signed dtypes. */
static int64_t float_to_int(aril_dtype t, double x)
{
    uint64_t memory = 0;
    int64_t back;
    aril__dtypes[t].store[ARIL__C_F64](&memory, 0, 1, &x, 1);
    aril__dtypes[t].load[ARIL__C_I64](&back, &memory, 0, 1, 1);
    return back;
}

static int64_t int_to_int(aril_dtype t, int64_t x)
{
    uint64_t memory = 0;
    int64_t back;
    aril__dtypes[t].store[ARIL__C_I64](&memory, 0, 1, &x, 1);
    aril__dtypes[t].load[ARIL__C_I64](&back, &memory, 0, 1, 1);
    return back;
}

static uint64_t fnv(uint64_t h, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) h = (h ^ (value >> (8 * i) & 0xff)) * UINT64_C(0x100000001b3);
    return h;
}

static const uint64_t fnv_start = UINT64_C(0xcbf29ce484222325);

/* ---- Promotion ---- */

#define BOOL ARIL_BOOL
#define U8   ARIL_U8
#define U16  ARIL_U16
#define U32  ARIL_U32
#define U64  ARIL_U64
#define I8   ARIL_I8
#define I16  ARIL_I16
#define I32  ARIL_I32
#define I64  ARIL_I64
#define F16  ARIL_F16
#define BF16 ARIL_BF16
#define F32  ARIL_F32
#define F64  ARIL_F64
#define ____ (-1)

/* clang-format off */

/* torch.promote_types(row, column), in the order of the enum; ____ where it raises an error. */
static const int torch_promotes[13][13] = {
    { BOOL, U8, ____, ____, ____, I8, I16, I32, I64, F16, BF16, F32, F64 },
    { U8, U8, ____, ____, ____, I16, I16, I32, I64, F16, BF16, F32, F64 },
    { ____, ____, U16, ____, ____, ____, ____, ____, ____, F16, BF16, F32, F64 },
    { ____, ____, ____, U32, ____, ____, ____, ____, ____, F16, BF16, F32, F64 },
    { ____, ____, ____, ____, U64, ____, ____, ____, ____, F16, BF16, F32, F64 },
    { I8, I16, ____, ____, ____, I8, I16, I32, I64, F16, BF16, F32, F64 },
    { I16, I16, ____, ____, ____, I16, I16, I32, I64, F16, BF16, F32, F64 },
    { I32, I32, ____, ____, ____, I32, I32, I32, I64, F16, BF16, F32, F64 },
    { I64, I64, ____, ____, ____, I64, I64, I64, I64, F16, BF16, F32, F64 },
    { F16, F16, F16, F16, F16, F16, F16, F16, F16, F16, F32, F32, F64 },
    { BF16, BF16, BF16, BF16, BF16, BF16, BF16, BF16, BF16, F32, BF16, F32, F64 },
    { F32, F32, F32, F32, F32, F32, F32, F32, F32, F32, F32, F32, F64 },
    { F64, F64, F64, F64, F64, F64, F64, F64, F64, F64, F64, F64, F64 },
};

/* Aril's result where PyTorch raises an error: rows u16, u32 and u64, columns bool to i64. */
static const aril_dtype aril_promotes[3][9] = {
    { U16, U16, U16, U32, U64, I32, I32, I32, I64 },
    { U32, U32, U32, U32, U64, I64, I64, I64, I64 },
    { U64, U64, U64, U64, U64, I64, I64, I64, I64 },
};

/* clang-format on */

TEST(promotion_matches_pytorch)
{
    for (int a = 0; a < 13; a++) {
        for (int b = 0; b < 13; b++) {
            int want = torch_promotes[a][b];
            if (want == ____)
                want = a >= ARIL_U16 && a <= ARIL_U64 ? (int)aril_promotes[a - ARIL_U16][b]
                                                      : (int)aril_promotes[b - ARIL_U16][a];
            int got = (int)aril_promote_types((aril_dtype)a, (aril_dtype)b);
            CHECK_MSG(got == want, "%s with %s: got %s, want %s", aril_dtype_name((aril_dtype)a),
                      aril_dtype_name((aril_dtype)b), aril_dtype_name((aril_dtype)got),
                      aril_dtype_name((aril_dtype)want));
        }
    }
    CHECK(aril_ok());
}

TEST(storage_types_do_not_promote)
{
    CHECK_INT(aril_promote_types(ARIL_F8E5M2, ARIL_F8E5M2), ARIL_F8E5M2);
    CHECK(aril_ok());
    CHECK_INT(aril_promote_types(ARIL_I4, ARIL_F32), ARIL_I4);
    CHECK_INT(aril_error_code(), ARIL_ERR_DTYPE);
    aril_clear_error();
    aril_promote_types(ARIL_F32, (aril_dtype)99);
    CHECK_INT(aril_error_code(), ARIL_ERR_DTYPE);
    aril_clear_error();
}

/* ---- Names and sizes ---- */

TEST(names_round_trip)
{
    for (int i = 0; i < ARIL__DTYPE_COUNT; i++) {
        char spelled[40];
        aril_dtype t = ARIL_U2;
        CHECK_INT(aril_dtype_from_name(aril__dtypes[i].name, &t), ARIL_OK);
        CHECK_INT(t, i);
        t = ARIL_U2;
        CHECK_INT(aril_dtype_from_name(aril__dtypes[i].torch_name, &t), ARIL_OK);
        CHECK_INT(t, i);
        snprintf(spelled, sizeof spelled, "torch.%s", aril__dtypes[i].torch_name);
        CHECK_INT(aril_dtype_from_name(spelled, &t), ARIL_OK);
        CHECK_STR(aril_dtype_name(t), aril__dtypes[i].name);
    }
    CHECK_STR(aril_dtype_name(ARIL_F32), "f32");
    CHECK_STR(aril_dtype_name(ARIL_BOOL), "bool");
    CHECK_STR(aril_dtype_name((aril_dtype)99), "?");
    CHECK_STR(aril_dtype_name((aril_dtype)-1), "?");
}

TEST(unknown_names_are_errors)
{
    aril_dtype t = ARIL_I16;
    CHECK(aril_dtype_from_name("f33", &t) < 0);
    CHECK(aril_dtype_from_name("", &t) < 0);
    CHECK(aril_dtype_from_name(NULL, &t) < 0);
    CHECK(aril_dtype_from_name("f32", NULL) < 0);
    CHECK_INT(t, ARIL_I16);
    CHECK_INT(aril_error_code(), ARIL_ERR_DTYPE);
    aril_clear_error();
}

TEST(sizes)
{
    CHECK_INT(aril_dtype_size(ARIL_BOOL), 1);
    CHECK_INT(aril_dtype_size(ARIL_BF16), 2);
    CHECK_INT(aril_dtype_size(ARIL_F64), 8);
    CHECK_INT(aril_dtype_size(ARIL_F8E8M0), 1);
    CHECK_INT(aril_dtype_size(ARIL_I4), 0);
    CHECK_INT(aril_dtype_bits(ARIL_I4), 4);
    CHECK_INT(aril_dtype_bits(ARIL_U2), 2);
    CHECK_INT(aril_dtype_size((aril_dtype)99), 0);
    CHECK_INT(aril_dtype_bits((aril_dtype)-1), 0);
    CHECK(aril_dtype_is_float(ARIL_F4E2M1) && !aril_dtype_is_float(ARIL_I64));
    CHECK(!aril_dtype_is_float((aril_dtype)99));
    CHECK(aril__is_int(ARIL_U2) && !aril__is_int(ARIL_BOOL) && !aril__is_int(ARIL_F16));
    CHECK_INT(aril__dtype_bytes(ARIL_F32, 3), 12);
    CHECK_INT(aril__dtype_bytes(ARIL_F4E2M1, 3), 2);
    CHECK_INT(aril__dtype_bytes(ARIL_U2, 4), 1);
    CHECK_INT(aril__dtype_bytes(ARIL_U2, 5), 2);
    CHECK_INT(aril__dtype_bytes(ARIL_I4, 0), 0);
    CHECK_INT(aril__dtype_bytes(ARIL_I4, INT64_MAX), INT64_MAX / 2 + 1);
}

TEST(dtype_rows_are_complete)
{
    for (int i = 0; i < ARIL__DTYPE_COUNT; i++) {
        const aril__dtype_row *row = &aril__dtypes[i];
        CHECK_INT(row->computes, i <= ARIL_F64);
        aril__ctype want = aril__is_float((aril_dtype)i) ? ARIL__C_F32 : ARIL__C_I64;
        want = i == ARIL_U64 ? ARIL__C_U64 : i == ARIL_F64 ? ARIL__C_F64 : want;
        CHECK_INT(row->ctype, want);
        for (int c = 0; c < ARIL__C_COUNT; c++) CHECK(row->load[c] && row->store[c]);
    }
}

/* ---- Narrow floats ---- */

/* The values of codes 0 to 127, from PyTorch: the upper half of the f32, which represents them
 * exactly. */
static const uint16_t torch_f8[4][128] = {
    /* float8_e4m3fn */
    {
        0x0000, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60, 0x3c80, 0x3c90, 0x3ca0,
        0x3cb0, 0x3cc0, 0x3cd0, 0x3ce0, 0x3cf0, 0x3d00, 0x3d10, 0x3d20, 0x3d30, 0x3d40, 0x3d50,
        0x3d60, 0x3d70, 0x3d80, 0x3d90, 0x3da0, 0x3db0, 0x3dc0, 0x3dd0, 0x3de0, 0x3df0, 0x3e00,
        0x3e10, 0x3e20, 0x3e30, 0x3e40, 0x3e50, 0x3e60, 0x3e70, 0x3e80, 0x3e90, 0x3ea0, 0x3eb0,
        0x3ec0, 0x3ed0, 0x3ee0, 0x3ef0, 0x3f00, 0x3f10, 0x3f20, 0x3f30, 0x3f40, 0x3f50, 0x3f60,
        0x3f70, 0x3f80, 0x3f90, 0x3fa0, 0x3fb0, 0x3fc0, 0x3fd0, 0x3fe0, 0x3ff0, 0x4000, 0x4010,
        0x4020, 0x4030, 0x4040, 0x4050, 0x4060, 0x4070, 0x4080, 0x4090, 0x40a0, 0x40b0, 0x40c0,
        0x40d0, 0x40e0, 0x40f0, 0x4100, 0x4110, 0x4120, 0x4130, 0x4140, 0x4150, 0x4160, 0x4170,
        0x4180, 0x4190, 0x41a0, 0x41b0, 0x41c0, 0x41d0, 0x41e0, 0x41f0, 0x4200, 0x4210, 0x4220,
        0x4230, 0x4240, 0x4250, 0x4260, 0x4270, 0x4280, 0x4290, 0x42a0, 0x42b0, 0x42c0, 0x42d0,
        0x42e0, 0x42f0, 0x4300, 0x4310, 0x4320, 0x4330, 0x4340, 0x4350, 0x4360, 0x4370, 0x4380,
        0x4390, 0x43a0, 0x43b0, 0x43c0, 0x43d0, 0x43e0, 0x7ff0,
    },
    /* float8_e4m3fnuz */
    {
        0x0000, 0x3a80, 0x3b00, 0x3b40, 0x3b80, 0x3ba0, 0x3bc0, 0x3be0, 0x3c00, 0x3c10, 0x3c20,
        0x3c30, 0x3c40, 0x3c50, 0x3c60, 0x3c70, 0x3c80, 0x3c90, 0x3ca0, 0x3cb0, 0x3cc0, 0x3cd0,
        0x3ce0, 0x3cf0, 0x3d00, 0x3d10, 0x3d20, 0x3d30, 0x3d40, 0x3d50, 0x3d60, 0x3d70, 0x3d80,
        0x3d90, 0x3da0, 0x3db0, 0x3dc0, 0x3dd0, 0x3de0, 0x3df0, 0x3e00, 0x3e10, 0x3e20, 0x3e30,
        0x3e40, 0x3e50, 0x3e60, 0x3e70, 0x3e80, 0x3e90, 0x3ea0, 0x3eb0, 0x3ec0, 0x3ed0, 0x3ee0,
        0x3ef0, 0x3f00, 0x3f10, 0x3f20, 0x3f30, 0x3f40, 0x3f50, 0x3f60, 0x3f70, 0x3f80, 0x3f90,
        0x3fa0, 0x3fb0, 0x3fc0, 0x3fd0, 0x3fe0, 0x3ff0, 0x4000, 0x4010, 0x4020, 0x4030, 0x4040,
        0x4050, 0x4060, 0x4070, 0x4080, 0x4090, 0x40a0, 0x40b0, 0x40c0, 0x40d0, 0x40e0, 0x40f0,
        0x4100, 0x4110, 0x4120, 0x4130, 0x4140, 0x4150, 0x4160, 0x4170, 0x4180, 0x4190, 0x41a0,
        0x41b0, 0x41c0, 0x41d0, 0x41e0, 0x41f0, 0x4200, 0x4210, 0x4220, 0x4230, 0x4240, 0x4250,
        0x4260, 0x4270, 0x4280, 0x4290, 0x42a0, 0x42b0, 0x42c0, 0x42d0, 0x42e0, 0x42f0, 0x4300,
        0x4310, 0x4320, 0x4330, 0x4340, 0x4350, 0x4360, 0x4370,
    },
    /* float8_e5m2 */
    {
        0x0000, 0x3780, 0x3800, 0x3840, 0x3880, 0x38a0, 0x38c0, 0x38e0, 0x3900, 0x3920, 0x3940,
        0x3960, 0x3980, 0x39a0, 0x39c0, 0x39e0, 0x3a00, 0x3a20, 0x3a40, 0x3a60, 0x3a80, 0x3aa0,
        0x3ac0, 0x3ae0, 0x3b00, 0x3b20, 0x3b40, 0x3b60, 0x3b80, 0x3ba0, 0x3bc0, 0x3be0, 0x3c00,
        0x3c20, 0x3c40, 0x3c60, 0x3c80, 0x3ca0, 0x3cc0, 0x3ce0, 0x3d00, 0x3d20, 0x3d40, 0x3d60,
        0x3d80, 0x3da0, 0x3dc0, 0x3de0, 0x3e00, 0x3e20, 0x3e40, 0x3e60, 0x3e80, 0x3ea0, 0x3ec0,
        0x3ee0, 0x3f00, 0x3f20, 0x3f40, 0x3f60, 0x3f80, 0x3fa0, 0x3fc0, 0x3fe0, 0x4000, 0x4020,
        0x4040, 0x4060, 0x4080, 0x40a0, 0x40c0, 0x40e0, 0x4100, 0x4120, 0x4140, 0x4160, 0x4180,
        0x41a0, 0x41c0, 0x41e0, 0x4200, 0x4220, 0x4240, 0x4260, 0x4280, 0x42a0, 0x42c0, 0x42e0,
        0x4300, 0x4320, 0x4340, 0x4360, 0x4380, 0x43a0, 0x43c0, 0x43e0, 0x4400, 0x4420, 0x4440,
        0x4460, 0x4480, 0x44a0, 0x44c0, 0x44e0, 0x4500, 0x4520, 0x4540, 0x4560, 0x4580, 0x45a0,
        0x45c0, 0x45e0, 0x4600, 0x4620, 0x4640, 0x4660, 0x4680, 0x46a0, 0x46c0, 0x46e0, 0x4700,
        0x4720, 0x4740, 0x4760, 0x7f80, 0x7fe0, 0x7fc0, 0x7fe0,
    },
    /* float8_e5m2fnuz */
    {
        0x0000, 0x3700, 0x3780, 0x37c0, 0x3800, 0x3820, 0x3840, 0x3860, 0x3880, 0x38a0, 0x38c0,
        0x38e0, 0x3900, 0x3920, 0x3940, 0x3960, 0x3980, 0x39a0, 0x39c0, 0x39e0, 0x3a00, 0x3a20,
        0x3a40, 0x3a60, 0x3a80, 0x3aa0, 0x3ac0, 0x3ae0, 0x3b00, 0x3b20, 0x3b40, 0x3b60, 0x3b80,
        0x3ba0, 0x3bc0, 0x3be0, 0x3c00, 0x3c20, 0x3c40, 0x3c60, 0x3c80, 0x3ca0, 0x3cc0, 0x3ce0,
        0x3d00, 0x3d20, 0x3d40, 0x3d60, 0x3d80, 0x3da0, 0x3dc0, 0x3de0, 0x3e00, 0x3e20, 0x3e40,
        0x3e60, 0x3e80, 0x3ea0, 0x3ec0, 0x3ee0, 0x3f00, 0x3f20, 0x3f40, 0x3f60, 0x3f80, 0x3fa0,
        0x3fc0, 0x3fe0, 0x4000, 0x4020, 0x4040, 0x4060, 0x4080, 0x40a0, 0x40c0, 0x40e0, 0x4100,
        0x4120, 0x4140, 0x4160, 0x4180, 0x41a0, 0x41c0, 0x41e0, 0x4200, 0x4220, 0x4240, 0x4260,
        0x4280, 0x42a0, 0x42c0, 0x42e0, 0x4300, 0x4320, 0x4340, 0x4360, 0x4380, 0x43a0, 0x43c0,
        0x43e0, 0x4400, 0x4420, 0x4440, 0x4460, 0x4480, 0x44a0, 0x44c0, 0x44e0, 0x4500, 0x4520,
        0x4540, 0x4560, 0x4580, 0x45a0, 0x45c0, 0x45e0, 0x4600, 0x4620, 0x4640, 0x4660, 0x4680,
        0x46a0, 0x46c0, 0x46e0, 0x4700, 0x4720, 0x4740, 0x4760,
    },
};

TEST(f8_codes_decode_as_in_pytorch)
{
    for (int k = 0; k < 4; k++) {
        aril_dtype t = (aril_dtype)(ARIL_F8E4M3FN + k);
        bool fnuz = t == ARIL_F8E4M3FNUZ || t == ARIL_F8E5M2FNUZ;
        for (unsigned c = 0; c < 256; c++) {
            double want = (double)aril__f32_from_bits((uint32_t)torch_f8[k][c & 127] << 16);
            want = c == 0x80 && fnuz ? (double)NAN : c & 0x80 ? -want : want;
            double got = decode(t, c);
            CHECK_MSG(isnan(want) ? isnan(got) : got == want && !signbit(got) == !signbit(want),
                      "%s code 0x%02x: got %g, want %g", aril_dtype_name(t), c, got, want);
        }
    }
    for (unsigned c = 0; c < 255; c++) CHECK(decode(ARIL_F8E8M0, c) == ldexp(1, (int)c - 127));
    CHECK(isnan(decode(ARIL_F8E8M0, 255)));
}

TEST(f4_codes_decode)
{
    static const double values[8] = { 0, 0.5, 1, 1.5, 2, 3, 4, 6 };
    for (unsigned c = 0; c < 8; c++) {
        CHECK(decode(ARIL_F4E2M1, c) == values[c]);
        CHECK(decode(ARIL_F4E2M1, c | 8) == -values[c]);
    }
    CHECK(signbit(decode(ARIL_F4E2M1, 8)));
}

/* Every f16 that is not NaN decodes as in PyTorch: a hash of the resulting f32. */
TEST(f16_codes_decode_as_in_pytorch)
{
    uint64_t h = fnv_start;
    for (unsigned c = 0; c < 65536; c++) {
        float x = aril__f16_to_f32((uint16_t)c);
        if (!isnan(x)) h = fnv(h, aril__f32_bits(x), 4);
    }
    CHECK(h == UINT64_C(0xa7a575fd4882f925));
}

TEST(every_code_survives_a_round_trip)
{
    for (int k = 0; k < NARROW_FLOATS; k++) {
        aril_dtype t = narrow_floats[k];
        for (unsigned c = 0; c < 1u << aril__dtypes[t].bits; c++) {
            double x = decode(t, c);
            unsigned by_f64 = encode_f64(t, x), by_f32 = encode_f32(t, (float)x);
            if (isnan(x))
                CHECK_MSG(isnan(decode(t, by_f64)) && isnan(decode(t, by_f32)),
                          "%s NaN 0x%x: got 0x%x and 0x%x", aril_dtype_name(t), c, by_f64, by_f32);
            else
                CHECK_MSG(by_f64 == c && by_f32 == c, "%s 0x%x: got 0x%x and 0x%x",
                          aril_dtype_name(t), c, by_f64, by_f32);
        }
    }
}

/* Between adjacent values: the midpoint goes to the even code, and the smallest step off it
 * decides. In f64 that step is far below f32's, so this also fails if f64 went through f32. */
TEST(narrow_floats_round_to_nearest_even)
{
    for (int k = 0; k < NARROW_FLOATS; k++) {
        aril_dtype t = narrow_floats[k];
        if (t == ARIL_F8E8M0) continue;
        bool fnuz = t == ARIL_F8E4M3FNUZ || t == ARIL_F8E5M2FNUZ;
        unsigned sign = 1u << (aril__dtypes[t].bits - 1);
        for (unsigned c = 0; c + 1 < sign; c++) {
            double low = decode(t, c), high = decode(t, c + 1);
            if (!isfinite(high) || isnan(low)) break;
            double middle = (low + high) / 2;
            double under = nextafter(middle, 0), over = nextafter(middle, HUGE_VAL);
            float middle32 = (float)middle; /* exact: one more bit than the narrow format's */
            unsigned even = c & 1 ? c + 1 : c;
            unsigned minus_low = fnuz && c == 0 ? 0 : sign | c;
            unsigned minus_even = fnuz && even == 0 ? 0 : sign | even;
            bool good =
                encode_f64(t, under) == c && encode_f64(t, middle) == even &&
                encode_f64(t, over) == c + 1 && encode_f64(t, -under) == minus_low &&
                encode_f64(t, -middle) == minus_even && encode_f64(t, -over) == (sign | (c + 1)) &&
                encode_f32(t, nextafterf(middle32, 0)) == c && encode_f32(t, middle32) == even &&
                encode_f32(t, nextafterf(middle32, HUGE_VALF)) == c + 1 &&
                encode_f32(t, -middle32) == minus_even;
            CHECK_MSG(good, "%s between 0x%x and 0x%x", aril_dtype_name(t), c, c + 1);
        }
    }
}

/* f32 inputs of every sign, exponent and leading 9 bits of mantissa, with and without a last bit
   set, through PyTorch's casts: a hash of the codes. Without NaN where payloads may differ. */
static uint64_t hash_of_codes(aril_dtype t, bool with_nan)
{
    uint64_t h = fnv_start;
    for (uint32_t last = 0; last < 2; last++) {
        for (uint32_t i = 0; i < 1u << 18; i++) {
            float x = aril__f32_from_bits(i << 14 | last);
            if (with_nan || !isnan(x)) h = fnv(h, encode_f32(t, x), aril__dtypes[t].bits / 8);
        }
    }
    return h;
}

TEST(casts_from_f32_match_pytorch)
{
    CHECK(hash_of_codes(ARIL_F8E4M3FN, true) == UINT64_C(0x4995524819988aa5));
    CHECK(hash_of_codes(ARIL_F8E4M3FNUZ, true) == UINT64_C(0x98aad5dca31be7a5));
    CHECK(hash_of_codes(ARIL_F8E5M2, true) == UINT64_C(0x8326847151b0bc25));
    CHECK(hash_of_codes(ARIL_F8E5M2FNUZ, true) == UINT64_C(0x20c1216e389862a5));
    CHECK(hash_of_codes(ARIL_F8E8M0, true) == UINT64_C(0x787584ab729c4d25));
    CHECK(hash_of_codes(ARIL_F16, false) == UINT64_C(0x1ce3f5dcb0435aad));
    CHECK(hash_of_codes(ARIL_BF16, false) == UINT64_C(0x0c4fd52549c75e1d));
}

/* Selected cases; the codes are PyTorch's, in the order of the enum. */
TEST(f8_cases_from_pytorch)
{
    static const struct {
        float x;
        uint8_t code[5];
    } cases[] = {
        { 0.0f, { 0x00, 0x00, 0x00, 0x00, 0x00 } },
        { -0.0f, { 0x80, 0x00, 0x80, 0x00, 0x00 } },
        { 1.0f, { 0x38, 0x40, 0x3c, 0x40, 0x7f } },
        { -1.0f, { 0xb8, 0xc0, 0xbc, 0xc0, 0x7f } },
        { 0.1f, { 0x1d, 0x25, 0x2e, 0x32, 0x7c } },
        { 1.5f, { 0x3c, 0x44, 0x3e, 0x42, 0x80 } },
        { 2.9f, { 0x44, 0x4c, 0x42, 0x46, 0x80 } },
        { 3.0f, { 0x44, 0x4c, 0x42, 0x46, 0x81 } },
        { 17.0f, { 0x58, 0x60, 0x4c, 0x50, 0x83 } },
        { 19.0f, { 0x5a, 0x62, 0x4d, 0x51, 0x83 } },
        { 232.0f, { 0x76, 0x7e, 0x5b, 0x5f, 0x87 } },
        { 240.0f, { 0x77, 0x7f, 0x5c, 0x60, 0x87 } },
        { 247.0f, { 0x77, 0x7f, 0x5c, 0x60, 0x87 } },
        { 248.0f, { 0x78, 0x80, 0x5c, 0x60, 0x87 } }, /* e4m3fnuz ends at 240 */
        { 448.0f, { 0x7e, 0x80, 0x5f, 0x63, 0x88 } },
        { 465.0f, { 0x7e, 0x80, 0x5f, 0x63, 0x88 } }, /* e4m3fn ends at 448 */
        { -465.0f, { 0xfe, 0x80, 0xdf, 0xe3, 0x88 } },
        { 57344.0f, { 0x7e, 0x80, 0x7b, 0x7f, 0x8f } },
        { 61439.0f, { 0x7e, 0x80, 0x7b, 0x7f, 0x8f } },
        { 61440.0f, { 0x7e, 0x80, 0x7c, 0x80, 0x8f } }, /* e5m2 and e5m2fnuz end at 57344 */
        { -65536.0f, { 0xfe, 0x80, 0xfc, 0x80, 0x8f } },
        { INFINITY, { 0x7e, 0x80, 0x7c, 0x80, 0xff } },
        { -INFINITY, { 0xfe, 0x80, 0xfc, 0x80, 0xff } },
        { NAN, { 0x7f, 0x80, 0x7f, 0x80, 0xff } },
        { 0x1p-9f, { 0x01, 0x02, 0x18, 0x1c, 0x76 } },
        { 0x1p-10f, { 0x00, 0x01, 0x14, 0x18, 0x75 } },
        { 0x1.8p-10f, { 0x01, 0x02, 0x16, 0x1a, 0x76 } },
        { 0x1p-11f, { 0x00, 0x00, 0x10, 0x14, 0x74 } },
        { 0x1p-17f, { 0x00, 0x00, 0x00, 0x01, 0x6e } },
        { -0x1p-18f, { 0x80, 0x00, 0x80, 0x00, 0x6d } },
        { 0x1p-127f, { 0x00, 0x00, 0x00, 0x00, 0x00 } },
        { 0x1.8p-127f, { 0x00, 0x00, 0x00, 0x00, 0x01 } },
        { 0x1p127f, { 0x7e, 0x80, 0x7c, 0x80, 0xfe } },
        { 0x1.8p127f, { 0x7e, 0x80, 0x7c, 0x80, 0xff } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int k = 0; k < 5; k++) {
            aril_dtype t = (aril_dtype)(ARIL_F8E4M3FN + k);
            unsigned by_f32 = encode_f32(t, cases[i].x), by_f64 = encode_f64(t, (double)cases[i].x);
            CHECK_MSG(by_f32 == cases[i].code[k] && by_f64 == by_f32,
                      "%a to %s: got 0x%02x and 0x%02x, want 0x%02x", (double)cases[i].x,
                      aril_dtype_name(t), by_f32, by_f64, cases[i].code[k]);
        }
    }
}

TEST(f4_saturates)
{
    CHECK_INT(encode_f32(ARIL_F4E2M1, 5.0f), 6); /* a tie: 4 is even */
    CHECK_INT(encode_f32(ARIL_F4E2M1, 5.1f), 7);
    CHECK_INT(encode_f32(ARIL_F4E2M1, 100.0f), 7);
    CHECK_INT(encode_f32(ARIL_F4E2M1, -100.0f), 15);
    CHECK_INT(encode_f32(ARIL_F4E2M1, INFINITY), 7);
    CHECK_INT(encode_f32(ARIL_F4E2M1, -INFINITY), 15);
    CHECK_INT(encode_f32(ARIL_F4E2M1, NAN), 7);
    CHECK_INT(encode_f32(ARIL_F4E2M1, -NAN), 7);
    CHECK_INT(encode_f32(ARIL_F4E2M1, 0.25f), 0);
    CHECK_INT(encode_f32(ARIL_F4E2M1, 0.26f), 1);
    CHECK_INT(encode_f32(ARIL_F4E2M1, -0.1f), 8);
}

TEST(f16_and_bf16_edges)
{
    CHECK_INT(aril__f32_to_f16(65504.0f), 0x7bff);
    CHECK_INT(aril__f32_to_f16(0x1.ffdffep15f), 0x7bff); /* just below 65520 */
    CHECK_INT(aril__f32_to_f16(65520.0f), 0x7c00);
    CHECK_INT(aril__f32_to_f16(-INFINITY), 0xfc00);
    CHECK_INT(aril__f32_to_f16(0x1p-24f), 1);
    CHECK_INT(aril__f32_to_f16(0x1p-25f), 0);
    CHECK_INT(aril__f32_to_f16(0x1.000002p-25f), 1);
    CHECK_INT(aril__f32_to_f16(-0x1p-149f), 0x8000);
    CHECK_INT(aril__f32_to_bf16(0x1.fffffep127f), 0x7f80);
    CHECK_INT(aril__f32_to_bf16(0x1p-149f), 0);
    CHECK_INT(aril__f32_to_bf16(0x1.01p0f), 0x3f80); /* a tie down, a tie up */
    CHECK_INT(aril__f32_to_bf16(0x1.03p0f), 0x3f82);
    CHECK_INT(encode_f64(ARIL_F16, 1e300), 0x7c00);
    CHECK_INT(encode_f64(ARIL_BF16, -1e300), 0xff80);
    CHECK_INT(encode_f64(ARIL_BF16, 1e-300), 0);
    CHECK_INT(encode_f64(ARIL_F16, -0x1p-1074), 0x8000);
}

TEST(nan_stays_a_quiet_nan)
{
    static const uint32_t nans[] = { 0x7fc00000, 0xffc00000, 0x7f800001, 0xff800001, 0x7fffffff };
    for (size_t i = 0; i < sizeof nans / sizeof *nans; i++) {
        float x = aril__f32_from_bits(nans[i]);
        unsigned sign = nans[i] >> 31 << 15;
        CHECK_INT(aril__f32_to_f16(x) & 0xfe00, 0x7e00 | sign);
        CHECK_INT(aril__f32_to_bf16(x) & 0xffc0, 0x7fc0 | sign);
        CHECK_INT(encode_f64(ARIL_F16, (double)x) & 0xfe00, 0x7e00 | sign);
        CHECK_INT(encode_f64(ARIL_BF16, (double)x) & 0xffc0, 0x7fc0 | sign);
    }
    CHECK_INT(aril__f32_bits(aril__f16_to_f32(0x7c01)), 0x7fc02000);
    CHECK_INT(aril__f32_bits(aril__f16_to_f32(0xfe00)), 0xffc00000);
}

/* Most of these inputs come out one code off if they are first rounded to f32 or to f64. */
TEST(conversions_round_once)
{
    double tie = 1 + 0x1p-8, above = tie + 0x1p-40, below = 1 + 0x3p-8 - 0x1p-40;
    CHECK_INT(encode_f64(ARIL_BF16, tie), 0x3f80);
    CHECK_INT(encode_f64(ARIL_BF16, above), 0x3f81);
    CHECK_INT(encode_f64(ARIL_BF16, below), 0x3f81);
    CHECK_INT(encode_f64(ARIL_F16, 1 + 0x1p-11 + 0x1p-40), 0x3c01);
    CHECK_INT(encode_f64(ARIL_F16, 1 + 0x3p-11 - 0x1p-40), 0x3c01);
    CHECK_INT(encode_f64(ARIL_F8E5M2, 1.125 + 0x1p-40), 0x3d);

    int64_t i = (INT64_C(1) << 62) + (INT64_C(1) << 54); /* a tie for bf16 */
    CHECK_INT(encode_i64(ARIL_BF16, i), 0x5e80);
    CHECK_INT(encode_i64(ARIL_BF16, i + 1), 0x5e81);
    CHECK_INT(encode_i64(ARIL_BF16, -i), 0xde80);
    CHECK_INT(encode_i64(ARIL_BF16, -i - 1), 0xde81);
    CHECK_INT(encode_i64(ARIL_BF16, INT64_MIN), 0xdf00);
    CHECK_INT(encode_u64(ARIL_BF16, (uint64_t)i * 2), 0x5f00);
    CHECK_INT(encode_u64(ARIL_BF16, (uint64_t)i * 2 + 1), 0x5f01);
    CHECK_INT(encode_u64(ARIL_BF16, UINT64_MAX), 0x5f80);
    CHECK_INT(encode_i64(ARIL_F16, -3), 0xc200);
    CHECK_INT(encode_i64(ARIL_F16, 100000), 0x7c00);
    CHECK_INT(encode_i64(ARIL_F8E4M3FN, 500), 0x7e);
    CHECK_INT(encode_i64(ARIL_F4E2M1, -1), 10);
}

/* ---- Integers and bool ---- */

TEST(floats_to_integers)
{
    static const struct {
        double x;
        int64_t u8, u16, u32, i8, i16, i32, i64;
    } cases[] = {
        { -1.0, 255, 65535, 4294967295, -1, -1, -1, -1 },
        { -1.9, 255, 65535, 4294967295, -1, -1, -1, -1 },
        { 0.9, 0, 0, 0, 0, 0, 0, 0 },
        { 255.9, 255, 255, 255, -1, 255, 255, 255 },
        { 300, 44, 300, 300, 44, 300, 300, 300 },
        { -129, 127, 65407, 4294967167, 127, -129, -129, -129 },
        { 70000, 112, 4464, 70000, 112, 4464, 70000, 70000 },
        { 4294967303, 7, 7, 7, 7, 7, 7, 4294967303 },
        { 1e30, 255, 65535, 4294967295, -1, -1, -1, INT64_MAX },
        { -1e30, 0, 0, 0, 0, 0, 0, INT64_MIN },
        { HUGE_VAL, 255, 65535, 4294967295, -1, -1, -1, INT64_MAX },
        { (double)NAN, 0, 0, 0, 0, 0, 0, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_INT(float_to_int(ARIL_U8, cases[i].x), cases[i].u8);
        CHECK_INT(float_to_int(ARIL_U16, cases[i].x), cases[i].u16);
        CHECK_INT(float_to_int(ARIL_U32, cases[i].x), cases[i].u32);
        CHECK_INT(float_to_int(ARIL_I8, cases[i].x), cases[i].i8);
        CHECK_INT(float_to_int(ARIL_I16, cases[i].x), cases[i].i16);
        CHECK_INT(float_to_int(ARIL_I32, cases[i].x), cases[i].i32);
        CHECK_INT(float_to_int(ARIL_I64, cases[i].x), cases[i].i64);
    }
    CHECK_INT(float_to_int(ARIL_I4, -9.7), 7);
    CHECK_INT(float_to_int(ARIL_U4, -1), 15);
    CHECK_INT(float_to_int(ARIL_I2, 2), -2);
    CHECK_INT(float_to_int(ARIL_U2, 7), 3);
}

TEST(floats_to_u64)
{
    static const struct {
        double x;
        uint64_t want;
    } cases[] = { { 1e19, UINT64_C(10000000000000000000) },
                  { 0x1p63, UINT64_C(1) << 63 },
                  { 0x1.fffffffffffffp63, UINT64_C(0xfffffffffffff800) },
                  { 0x1p64, UINT64_MAX },
                  { HUGE_VAL, UINT64_MAX },
                  { -1, UINT64_MAX },
                  { -1e30, UINT64_C(1) << 63 },
                  { (double)NAN, 0 },
                  { 2.9, 2 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t stored, loaded;
        aril__dtypes[ARIL_U64].store[ARIL__C_F64](&stored, 0, 1, &cases[i].x, 1);
        aril__dtypes[ARIL_F64].load[ARIL__C_U64](&loaded, &cases[i].x, 0, 1, 1);
        CHECK(stored == cases[i].want);
        CHECK(loaded == cases[i].want);
    }
    float x = 0x1.8p63f;
    uint64_t u;
    aril__dtypes[ARIL_F32].load[ARIL__C_U64](&u, &x, 0, 1, 1);
    CHECK(u == UINT64_C(3) << 62);
    aril__dtypes[ARIL_U64].load[ARIL__C_F32](&x, &u, 0, 1, 1);
    CHECK(x == 0x1.8p63f);
}

TEST(integers_wrap)
{
    CHECK_INT(int_to_int(ARIL_U8, -1), 255);
    CHECK_INT(int_to_int(ARIL_I8, 200), -56);
    CHECK_INT(int_to_int(ARIL_U16, 65536 + 3), 3);
    CHECK_INT(int_to_int(ARIL_I16, 40000), -25536);
    CHECK_INT(int_to_int(ARIL_U32, -1), 4294967295);
    CHECK_INT(int_to_int(ARIL_I32, INT64_C(1) << 31), INT32_MIN);
    CHECK_INT(int_to_int(ARIL_I64, INT64_MIN), INT64_MIN);
    CHECK_INT(int_to_int(ARIL_U64, -5), -5); /* modulo 2^64 */
    CHECK_INT(int_to_int(ARIL_I4, 8), -8);
    CHECK_INT(int_to_int(ARIL_U4, 21), 5);
    CHECK_INT(int_to_int(ARIL_I2, -3), 1);
    CHECK_INT(int_to_int(ARIL_U2, -1), 3);
}

TEST(anything_to_bool)
{
    CHECK_INT(float_to_int(ARIL_BOOL, 0.0), 0);
    CHECK_INT(float_to_int(ARIL_BOOL, -0.0), 0);
    CHECK_INT(float_to_int(ARIL_BOOL, 0.1), 1);
    CHECK_INT(float_to_int(ARIL_BOOL, 0x1p-1074), 1);
    CHECK_INT(float_to_int(ARIL_BOOL, (double)NAN), 1);
    CHECK_INT(int_to_int(ARIL_BOOL, 256), 1);
    CHECK_INT(int_to_int(ARIL_BOOL, INT64_MIN), 1);
    CHECK_INT(int_to_int(ARIL_BOOL, 0), 0);
    uint8_t odd = 7; /* a bool from outside may hold any byte */
    CHECK(decode(ARIL_BOOL, odd) == 1);
}

/* ---- Packing, strides ---- */

TEST(sub_byte_types_pack_from_the_low_bits)
{
    int64_t i4[5] = { 1, -2, 3, -4, 5 }, u2[5] = { 1, 2, 3, 0, 2 };
    float f4[3] = { 0.5f, -6, 2 };
    uint8_t b[4] = { 0xff, 0xff, 0xff, 0xff };
    aril__dtypes[ARIL_I4].store[ARIL__C_I64](b, 0, 1, i4, 5);
    CHECK_INT(b[0], 0xe1);
    CHECK_INT(b[1], 0xc3);
    CHECK_INT(b[2], 0xf5); /* the other nibble is untouched */
    CHECK_INT(b[3], 0xff);

    memset(b, 0, sizeof b);
    aril__dtypes[ARIL_U2].store[ARIL__C_I64](b, 0, 1, u2, 5);
    CHECK_INT(b[0], 0x39);
    CHECK_INT(b[1], 0x02);

    memset(b, 0, sizeof b);
    aril__dtypes[ARIL_F4E2M1].store[ARIL__C_F32](b, 1, 1, f4, 3);
    CHECK_INT(b[0], 0x10);
    CHECK_INT(b[1], 0x4f);
    float back[3];
    aril__dtypes[ARIL_F4E2M1].load[ARIL__C_F32](back, b, 3, -1, 3);
    CHECK(back[0] == 2 && back[1] == -6 && back[2] == 0.5f);
}

/* Random bytes: each way to iterate over them must match element-by-element access, bit for bit (a
 * single element never takes the vector or F16C path). */
static uint32_t rng_state = 1;

static uint8_t random_byte(void)
{
    rng_state = rng_state * 1664525u + 1013904223u;
    return (uint8_t)(rng_state >> 24);
}

static const size_t csize[ARIL__C_COUNT] = { 4, 8, 8, 8 };

enum { SPAN = 160, LONGEST = 37 };

static void check_walk(aril_dtype t, int c, int64_t offset, int64_t stride, int64_t n)
{
    const aril__dtype_row *row = &aril__dtypes[t];
    uint64_t memory[SPAN], walked[SPAN], stepped[SPAN];
    uint64_t run[LONGEST + 1], one[LONGEST + 1]; /* the last is a guard */
    for (size_t i = 0; i < sizeof memory; i++) ((uint8_t *)memory)[i] = random_byte();
    memset(run, 0x5a, sizeof run);
    memset(one, 0x5a, sizeof one);
    row->load[c](run, memory, offset, stride, n);
    for (int64_t i = 0; i < n; i++)
        row->load[c]((char *)one + (size_t)i * csize[c], memory, offset + i * stride, 1, 1);
    CHECK_MSG(memcmp(run, one, sizeof run) == 0, "load %s to %d, stride %d, n %d",
              aril_dtype_name(t), c, (int)stride, (int)n);

    if (stride == 0) return;
    memcpy(walked, memory, sizeof memory);
    memcpy(stepped, memory, sizeof memory);
    for (size_t i = 0; i < sizeof run; i++) ((uint8_t *)run)[i] = random_byte();
    row->store[c](walked, offset, stride, run, n);
    for (int64_t i = 0; i < n; i++)
        row->store[c](stepped, offset + i * stride, 1, (char *)run + (size_t)i * csize[c], 1);
    CHECK_MSG(memcmp(walked, stepped, sizeof walked) == 0, "store %s from %d, stride %d, n %d",
              aril_dtype_name(t), c, (int)stride, (int)n);
}

TEST(every_conversion_path_agrees)
{
    static const int64_t walks[][2] = { { 0, 1 }, { 3, 1 },   { 1, 2 },   { 2, 3 },
                                        { 7, 0 }, { 80, -1 }, { 151, -4 } };
    for (int t = 0; t < ARIL__DTYPE_COUNT; t++)
        for (int c = 0; c < ARIL__C_COUNT; c++)
            for (size_t w = 0; w < sizeof walks / sizeof *walks; w++)
                for (int64_t n = 0; n <= LONGEST && !test_failed(); n++)
                    check_walk((aril_dtype)t, c, walks[w][0], walks[w][1], n);
}

/* All f16 and many f32 in contiguous runs, which use F16C, against the portable code. */
TEST(vectorized_f16_matches_the_portable_code)
{
    enum { RUN = 4096 };
    static float x[RUN];
    static uint16_t h[RUN];
    for (unsigned start = 0; start < 65536; start += RUN) {
        for (unsigned i = 0; i < RUN; i++) h[i] = (uint16_t)(start + i);
        aril__dtypes[ARIL_F16].load[ARIL__C_F32](x, h, 0, 1, RUN);
        for (unsigned i = 0; i < RUN; i++)
            CHECK_INT(aril__f32_bits(x[i]), aril__f32_bits(aril__f16_to_f32(h[i])));
    }
    uint32_t u = 0;
    for (int round = 0; round < 256; round++) {
        for (unsigned i = 0; i < RUN; i++, u += 4099) x[i] = aril__f32_from_bits(u);
        aril__dtypes[ARIL_F16].store[ARIL__C_F32](h, 0, 1, x, RUN);
        for (unsigned i = 0; i < RUN; i++) CHECK_INT(h[i], aril__f32_to_f16(x[i]));
    }
}

TEST(empty_conversions_touch_no_memory)
{
    for (int t = 0; t < ARIL__DTYPE_COUNT; t++) {
        for (int c = 0; c < ARIL__C_COUNT; c++) {
            for (int64_t stride = -1; stride <= 2; stride++) {
                aril__dtypes[t].load[c](NULL, NULL, 0, stride, 0);
                aril__dtypes[t].store[c](NULL, 0, stride, NULL, 0);
            }
        }
    }
}

/* Every value of a small dtype, through its own compute type and back. */
TEST(cast_to_the_same_dtype_changes_nothing)
{
    for (int t = 0; t < ARIL__DTYPE_COUNT; t++) {
        const aril__dtype_row *row = &aril__dtypes[t];
        if (row->bits > 16) continue;
        for (unsigned code = 0; code < 1u << row->bits; code++) {
            uint64_t staged, in = code, out = 0;
            row->load[row->ctype](&staged, &in, 0, 1, 1);
            row->store[row->ctype](&out, 0, 1, &staged, 1);
            bool nan = aril__is_float((aril_dtype)t) && isnan(decode((aril_dtype)t, code));
            if (!nan) CHECK_INT(out, t == ARIL_BOOL ? code != 0 : code);
        }
    }
}
