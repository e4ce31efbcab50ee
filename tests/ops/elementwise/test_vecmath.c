/* The functions of core/vector/vecmath.h as used by the elementwise kernels, for every instruction
 * set of the machine, compared with the C library in the next wider type: at most 2 units in the
 * last place (ulp), over all exponents, with denormals, infinities, NaN and zeros of both signs.
 *
 * Tests every 2039th float; ARIL_TEST_EXHAUSTIVE=1 tests them all, which takes minutes. */
#include "support/test.h"

#include "backend/cpu/elementwise/elementwise.h"
#include "ops/elementwise/numbers.h"
#include "ops/elementwise/special.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 4096 };

static double ref_sigmoid(double x)
{
    return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}
static double ref_rsqrt(double x)
{
    return 1 / sqrt(x);
}
static double ref_lgamma(double x)
{
    int sign;
    return lgamma_r(x, &sign);
}
static double ref_trigamma(double x)
{
    return x == -INFINITY ? NAN : aril__zeta(2, x);
}
static double ref_gelu(double x)
{
    return 0.5 * x * erfc(-x * 0.70710678118654752440);
}

typedef struct unary {
    const char *name;
    int op;
    double (*ref)(double);
} unary;
#define UNARY(name)                       \
    {                                     \
#name, ARIL__FORMULA_##name, name \
    }
static const unary functions[] = {
    UNARY(exp),
    UNARY(expm1),
    UNARY(exp2),
    UNARY(log),
    UNARY(log1p),
    UNARY(log2),
    UNARY(log10),
    UNARY(sqrt),
    UNARY(sin),
    UNARY(cos),
    UNARY(tan),
    UNARY(asin),
    UNARY(acos),
    UNARY(atan),
    UNARY(sinh),
    UNARY(cosh),
    UNARY(tanh),
    UNARY(asinh),
    UNARY(acosh),
    UNARY(atanh),
    UNARY(erf),
    UNARY(erfc),
    { "lgamma", ARIL__FORMULA_lgamma, ref_lgamma },
    { "digamma", ARIL__FORMULA_digamma, aril__digamma },
    { "trigamma", ARIL__FORMULA_trigamma, ref_trigamma },
    UNARY(floor),
    UNARY(ceil),
    UNARY(trunc),
    { "round", ARIL__FORMULA_round, rint },
    { "sigmoid", ARIL__FORMULA_sigmoid, ref_sigmoid },
    { "rsqrt", ARIL__FORMULA_rsqrt, ref_rsqrt },
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

typedef struct binary {
    const char *name;
    int op;
    double (*ref)(double, double);
} binary;
static const binary pairs[] = {
    { "pow", ARIL__FORMULA_pow, pow },
    { "atan2", ARIL__FORMULA_atan2, atan2 },
    { "hypot", ARIL__FORMULA_hypot, hypot },
    { "fmod", ARIL__FORMULA_fmod, fmod },
};
enum { PAIRS = sizeof pairs / sizeof *pairs };

static float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* The distance in ulps of a float near `want`; 0 for the same infinity, both NaN, and zeros of the
 * same sign. */
static double ulps(float got, double want)
{
    if (isnan(want) || isnan(got)) return isnan(want) && isnan(got) ? 0 : INFINITY;
    float near = (float)want;
    if (got == near) return got == 0 && want == 0 && signbit(got) != signbit(near) ? INFINITY : 0;
    if (isinf(near) || isinf(got)) {
        /* Next to the largest finite number, rounding decides between it and infinity. */
        return fabs(want) > 0x1.fffffcp127 &&
                       (fabsf(got) == INFINITY || fabsf(got) >= 0x1.fffffcp127f)
                   ? 1
                   : INFINITY;
    }
    int e;
    frexp(want, &e);
    double unit = ldexp(1, e - 24 < -149 ? -149 : e - 24);
    return fabs((double)got - want) / unit;
}

static uint32_t stride(void)
{
    const char *text = getenv("ARIL_TEST_EXHAUSTIVE");
    return text && *text && *text != '0' ? 1 : 2039;
}

static const double no_params[ARIL__EW_PARAMS];

static void check_unary(const unary *f, int level)
{
    static float x[BLOCK], y[BLOCK];
    aril__ew_fn *kernel = aril__ew_kernel(f->op, ARIL__C_F32);
    const void *in[5] = { x };
    int bad = 0;
    double worst = 0;
    float where = 0;
    uint64_t step = stride(), at = 0;
    /* Blocks of an odd length, so that every vector tail length occurs. */
    while (at < UINT64_C(1) << 32) {
        int n = 0;
        for (; n < BLOCK - 3 && at < UINT64_C(1) << 32; n++, at += step)
            x[n] = float_of((uint32_t)at);
        kernel(n, y, in, no_params, &bad);
        for (int i = 0; i < n; i++) {
            double u = ulps(y[i], f->ref((double)x[i]));
            if (u > worst) {
                worst = u;
                where = x[i];
            }
        }
    }
    if (getenv("ARIL_TEST_VERBOSE"))
        printf("      %-8s %-9s %.3f ulp at %a\n", f->name, aril__cpu_name(level), worst,
               (double)where);
    CHECK_MSG(worst <= 2, "%s (%s): %g ulp at %a (%.9g): wants %.9g", f->name,
              aril__cpu_name(level), worst, (double)where, (double)where, f->ref((double)where));
}

static const float specials[] = {
    0,
    -0.0f,
    1,
    -1,
    2,
    -2,
    0.5f,
    -0.5f,
    3,
    -3,
    1e-45f,
    -1e-45f,
    1e-38f,
    -1e-38f,
    0x1p-126f,
    3.4e38f,
    -3.4e38f,
    1e10f,
    -1e10f,
    16777215,
    1.5f,
    -1.5f,
    16777216,
    -16777218,
    88.7f,
    -103.9f,
    0x1p30f,
    2147483648.0f,
    0.999999940395f,
    1.00000012f,
    1e5f,
    -7,
    INFINITY,
    -INFINITY,
    NAN,
};
enum { SPECIALS = sizeof specials / sizeof *specials };

static void check_special(const unary *f, int level)
{
    float x[SPECIALS], y[SPECIALS];
    aril__ew_fn *kernel = aril__ew_kernel(f->op, ARIL__C_F32);
    /* All together, and each alone: the tail of a loop and its body must agree. */
    for (int one = 0; one < 2; one++) {
        memcpy(x, specials, sizeof x);
        int bad = 0;
        for (int i = 0; i < SPECIALS; i += one ? 1 : SPECIALS)
            kernel(one ? 1 : SPECIALS, y + i, (const void *[5]){ x + i }, no_params, &bad);
        for (int i = 0; i < SPECIALS; i++) {
            double want = f->ref((double)x[i]);
            CHECK_MSG(ulps(y[i], want) <= 2, "%s (%s) of %.9g: got %.9g, wants %.9g", f->name,
                      aril__cpu_name(level), (double)x[i], (double)y[i], want);
        }
    }
}

TEST(functions_of_one_number)
{
    int top = aril__cpu_set(ARIL__CPU_LEVELS);
    for (int level = 0; level <= top && !test_failed(); level++) {
        aril__cpu_set(level);
        for (int f = 0; f < FUNCTIONS; f++) {
            check_unary(&functions[f], level);
            check_special(&functions[f], level);
        }
    }
    aril__cpu_set(top);
}

static uint64_t random_state = 88172645463325252u;
static uint64_t random_bits(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static void check_pair(const binary *f, int level, const float *x, const float *y, int n,
                       double *worst)
{
    static float z[BLOCK];
    int bad = 0;
    aril__ew_kernel(f->op, ARIL__C_F32)(n, z, (const void *[5]){ x, y }, no_params, &bad);
    for (int i = 0; i < n; i++) {
        double want = f->ref((double)x[i], (double)y[i]), u = ulps(z[i], want);
        if (u > *worst) *worst = u;
        CHECK_MSG(u <= 2, "%s (%s) of %.9g (%a), %.9g (%a): got %.9g, wants %.9g, %g ulp", f->name,
                  aril__cpu_name(level), (double)x[i], (double)x[i], (double)y[i], (double)y[i],
                  (double)z[i], want, u);
    }
}

/* pow by one exponent for all elements, and by exponents that are all simple. */
TEST(simple_powers)
{
    static const float exponents[] = { 2, 3, 0.5f, 1.5f, -0.5f, -1, -2 };
    enum { EXPONENTS = sizeof exponents / sizeof *exponents };
    static float x[BLOCK], y[BLOCK];
    int top = aril__cpu_set(ARIL__CPU_LEVELS);
    for (int level = 0; level <= top && !test_failed(); level++) {
        aril__cpu_set(level);
        double worst = 0;
        for (int r = 0; r < 10 * EXPONENTS; r++) {
            for (int i = 0; i < BLOCK; i++) {
                x[i] = i < SPECIALS ? specials[i] : float_of((uint32_t)random_bits());
                y[i] = exponents[r < EXPONENTS ? r : (int)(random_bits() % EXPONENTS)];
            }
            check_pair(&pairs[0], level, x, y, BLOCK, &worst);
        }
    }
    aril__cpu_set(top);
}

TEST(functions_of_two_numbers)
{
    static float x[BLOCK], y[BLOCK];
    int top = aril__cpu_set(ARIL__CPU_LEVELS), rounds = stride() == 1 ? 4000 : 100;
    for (int level = 0; level <= top && !test_failed(); level++) {
        aril__cpu_set(level);
        for (int f = 0; f < PAIRS; f++) {
            double worst = 0;
            int n = 0;
            for (int i = 0; i < SPECIALS; i++)
                for (int k = 0; k < SPECIALS; k++, n++) x[n] = specials[i], y[n] = specials[k];
            check_pair(&pairs[f], level, x, y, n, &worst);
            for (int r = 0; r < rounds && !test_failed(); r++) {
                for (int i = 0; i < BLOCK; i++) {
                    uint64_t u = random_bits();
                    x[i] = float_of((uint32_t)u), y[i] = float_of((uint32_t)(u >> 32));
                    if (r % 2) { /* values near 1, where results are neither 0 nor infinite */
                        x[i] =
                            ldexpf(1 + (float)(u & 0xffffff) * 0x1p-24f, (int)(u >> 24 & 15) - 8);
                        y[i] = ldexpf((float)((int)(u >> 32 & 0xffffff) - 0x800000), -19);
                    }
                }
                check_pair(&pairs[f], level, x, y, BLOCK, &worst);
            }
            if (getenv("ARIL_TEST_VERBOSE"))
                printf("      %-8s %-9s %.3f ulp\n", pairs[f].name, aril__cpu_name(level), worst);
        }
    }
    aril__cpu_set(top);
}

/* gelu multiplies x by a function: its formula is accurate to 2 ulp of max(1, |x|). */
TEST(absolute_error_of_gelu)
{
    static float x[BLOCK], y[BLOCK];
    int top = aril__cpu_set(ARIL__CPU_LEVELS), bad = 0;
    for (int level = 0; level <= top; level++) {
        aril__cpu_set(level);
        for (int r = 0; r < 64; r++) {
            for (int i = 0; i < BLOCK; i++) x[i] = (float)(r * BLOCK + i - 32 * BLOCK) * 0x1p-14f;
            aril__ew_kernel(ARIL__FORMULA_gelu, ARIL__C_F32)(BLOCK, y, (const void *[5]){ x },
                                                             no_params, &bad);
            for (int i = 0; i < BLOCK; i++)
                CHECK_NEAR(y[i], ref_gelu((double)x[i]), 0x1p-22 * fmax(1, fabs((double)x[i])));
        }
    }
    aril__cpu_set(top);
}

/* ---- f64, compared with long double ---- */

static long double ref_sigmoidl(long double x)
{
    return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x));
}

static const struct {
    const char *name;
    int op;
    long double (*ref)(long double);
} doubles[] = {
    { "exp", ARIL__FORMULA_exp, expl },       { "expm1", ARIL__FORMULA_expm1, expm1l },
    { "log", ARIL__FORMULA_log, logl },       { "log1p", ARIL__FORMULA_log1p, log1pl },
    { "tanh", ARIL__FORMULA_tanh, tanhl },    { "sigmoid", ARIL__FORMULA_sigmoid, ref_sigmoidl },
    { "floor", ARIL__FORMULA_floor, floorl }, { "ceil", ARIL__FORMULA_ceil, ceill },
    { "trunc", ARIL__FORMULA_trunc, truncl }, { "round", ARIL__FORMULA_round, rintl },
    { "exp2", ARIL__FORMULA_exp2, exp2l },    { "sin", ARIL__FORMULA_sin, sinl },
    { "cos", ARIL__FORMULA_cos, cosl },       { "tan", ARIL__FORMULA_tan, tanl },
    { "asin", ARIL__FORMULA_asin, asinl },    { "acos", ARIL__FORMULA_acos, acosl },
    { "atan", ARIL__FORMULA_atan, atanl },    { "erf", ARIL__FORMULA_erf, erfl },
    { "log2", ARIL__FORMULA_log2, log2l },    { "log10", ARIL__FORMULA_log10, log10l },
    { "sinh", ARIL__FORMULA_sinh, sinhl },    { "cosh", ARIL__FORMULA_cosh, coshl },
    { "asinh", ARIL__FORMULA_asinh, asinhl }, { "acosh", ARIL__FORMULA_acosh, acoshl },
    { "atanh", ARIL__FORMULA_atanh, atanhl }, { "erfc", ARIL__FORMULA_erfc, erfcl },
};
enum { DOUBLES = sizeof doubles / sizeof *doubles };

static double ulps64(double got, long double want)
{
    if (isnan(want) || isnan(got)) return isnan(want) && isnan(got) ? 0 : INFINITY;
    double near = (double)want;
    if (got == near) return got == 0 && want == 0 && signbit(got) != signbit(near) ? INFINITY : 0;
    if (isinf(near) || isinf(got)) return INFINITY;
    int e;
    frexpl(want, &e);
    long double unit = ldexpl(1, e - 53 < -1074 ? -1074 : e - 53);
    return (double)(fabsl((long double)got - want) / unit);
}

TEST(functions_in_double)
{
    static double x[BLOCK], y[BLOCK];
    int top = aril__cpu_set(ARIL__CPU_LEVELS), rounds = stride() == 1 ? 4000 : 100;
    for (int level = 0; level <= top && !test_failed(); level++) {
        aril__cpu_set(level);
        for (int f = 0; f < DOUBLES; f++) {
            double worst = 0, where = 0;
            for (int r = 0; r < rounds; r++) {
                for (int i = 0; i < BLOCK; i++) {
                    uint64_t u = random_bits();
                    memcpy(&x[i], &u, sizeof u);
                    if (r % 3 == 0) x[i] = ((double)(u >> 11) * 0x1p-53 - 0.5) * 4;
                    if (r % 3 == 1) x[i] = ((double)(u >> 11) * 0x1p-53 - 0.5) * 1600;
                }
                for (int i = 0; r == 0 && i < SPECIALS; i++) x[i] = (double)specials[i];
                /* Next to the zeros and poles of trigonometric functions, and each special value in
                 * a call of its own: one that is far away sends its whole block elsewhere. */
                for (int i = 0; r == 3 && i < BLOCK; i++) x[i] = i * 1.57079632679489661923;
                if (r == 0) x[SPECIALS] = 0x1p-1074, x[SPECIALS + 1] = 0x1p-1022;
                int bad = 0, n = BLOCK - r % 16, at_once = r == 0 ? 1 : n;
                for (int i = 0; i < n; i += at_once)
                    aril__ew_kernel(doubles[f].op, ARIL__C_F64)(at_once, y + i,
                                                                (const void *[5]){ x + i },
                                                                no_params, &bad);
                for (int i = 0; i < n; i++) {
                    double u = ulps64(y[i], doubles[f].ref((long double)x[i]));
                    if (u > worst) worst = u, where = x[i];
                }
            }
            if (getenv("ARIL_TEST_VERBOSE"))
                printf("      %-8s %-9s f64 %.3f ulp at %a\n", doubles[f].name,
                       aril__cpu_name(level), worst, where);
            CHECK_MSG(worst <= 2, "%s (%s, f64): %g ulp at %a (%.17g)", doubles[f].name,
                      aril__cpu_name(level), worst, where, where);
        }
    }
    aril__cpu_set(top);
}

static const struct {
    const char *name;
    int op;
    long double (*ref)(long double, long double);
    double most; /* ulps */
} double_pairs[] = {
    { "hypot", ARIL__FORMULA_hypot, hypotl, 2 },
    { "atan2", ARIL__FORMULA_atan2, atan2l, 2 },
    { "pow", ARIL__FORMULA_pow, powl, 2 },
    { "fmod", ARIL__FORMULA_fmod, fmodl, 0 },
};
enum { DOUBLE_PAIRS = sizeof double_pairs / sizeof *double_pairs };

/* Pairs of any numbers, of near ones, and of ones whose results are neither 0 nor infinite. */
static void draw_pairs(double *x, double *y, int round)
{
    for (int i = 0; i < BLOCK; i++) {
        uint64_t u = random_bits(), v = random_bits();
        if (round % 4 == 0) v = u ^ (v >> 10);
        memcpy(&x[i], &u, sizeof u);
        memcpy(&y[i], &v, sizeof v);
        if (round % 4 >= 2) {
            x[i] = ldexp(1 + (double)(u >> 12) * 0x1p-52, (int)(u & 15) - 8);
            y[i] = ldexp((double)(int64_t)v, round % 4 == 2 ? -61 : -54);
        }
    }
}

TEST(functions_of_two_doubles)
{
    static double x[BLOCK], y[BLOCK], z[BLOCK];
    int top = aril__cpu_set(ARIL__CPU_LEVELS), bad = 0;
    for (int level = 0; level <= top; level++) {
        aril__cpu_set(level);
        for (int f = 0; f < DOUBLE_PAIRS && !test_failed(); f++) {
            double worst = 0;
            for (int r = 0; r < 200 && !test_failed(); r++) {
                draw_pairs(x, y, r);
                for (int i = 0, k = 0; r == 0 && i < SPECIALS; i++)
                    for (int j = 0; j < SPECIALS; j++, k++)
                        x[k] = (double)specials[i], y[k] = (double)specials[j];
                /* Special values each in a call of its own, too. */
                for (int i = 0, each = r ? BLOCK : 1; i < BLOCK; i += each)
                    aril__ew_kernel(double_pairs[f].op, ARIL__C_F64)(
                        each, z + i, (const void *[5]){ x + i, y + i }, no_params, &bad);
                for (int i = 0; i < BLOCK; i++) {
                    long double want = double_pairs[f].ref((long double)x[i], (long double)y[i]);
                    double u = ulps64(z[i], want);
                    worst = u > worst ? u : worst;
                    CHECK_MSG(u <= double_pairs[f].most, "%s of %a, %a (%s): got %a, %g ulp",
                              double_pairs[f].name, x[i], y[i], aril__cpu_name(level), z[i], u);
                }
            }
            if (getenv("ARIL_TEST_VERBOSE"))
                printf("      %-8s %-9s f64 %.3f ulp\n", double_pairs[f].name,
                       aril__cpu_name(level), worst);
        }
    }
    aril__cpu_set(top);
}
