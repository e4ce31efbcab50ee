/* Special functions: exact values by mpmath, the values where they are not finite, and gradients;
 * equality of tensors within a tolerance. */
#include "aril/aril.h"
#include "support/device.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

static aril_tensor *number(double v)
{
    return aril_from(&v, ARIL_SHAPE(1), ARIL_F64, test_device());
}

static double at(aril_tensor *(*fn)(aril_tensor *), double x)
{
    ARIL_SCOPE;
    return aril_item(fn(number(x)));
}

#define lgamma   aril_lgamma
#define digamma  aril_digamma
#define trigamma aril_trigamma
#define erfinv   aril_erfinv
static const struct {
    aril_tensor *(*fn)(aril_tensor *);
    double x, y;
} exact[] = {
    { lgamma, 1e-20, 46.051701859880913735 },
    { lgamma, 0.25, 1.2880225246980774574 },
    { lgamma, 0.75, 0.20328095143129537148 },
    { lgamma, 1.0625, -0.032957100293577819083 },
    { lgamma, 1.5, -0.12078223763524522235 },
    { lgamma, 1.9375, -0.025147619402988871015 },
    { lgamma, 2.125, 0.057759851530343871607 },
    { lgamma, 3.5, 1.2009736023470742248 },
    { lgamma, 10.0, 12.801827480081469611 },
    { lgamma, 171.5, 709.14316303092824227 },
    { lgamma, 10000000000.0, 220258509288.81058147 },
    { lgamma, -0.25, 1.5895753125511859903 },
    { lgamma, -2.75, 0.0044878975359557733115 },
    { lgamma, -7.625, -8.5863454020361765306 },
    { lgamma, -100.25, -363.40092322782154071 },
    { digamma, 1e-10, -10000000000.5772153 },
    { digamma, 0.25, -4.2274535333762654081 },
    { digamma, 1.0, -0.57721566490153286061 },
    { digamma, 1.4375, -0.023613544005297899142 },
    { digamma, 1.5, 0.036489973978576520559 },
    { digamma, 2.0, 0.42278433509846713939 },
    { digamma, 5.5, 1.6110931485817511237 },
    { digamma, 12.25, 2.4641546551853689558 },
    { digamma, 100000000.0, 18.420680738952365464 },
    { digamma, -0.25, 2.9141391202135278304 },
    { digamma, -3.625, 0.11820001615737400261 },
    { trigamma, 0.001, 1000001.6425331958273 },
    { trigamma, 0.25, 17.197329154507110739 },
    { trigamma, 1.0, 1.6449340668482264365 },
    { trigamma, 1.5, 0.93480220054467930942 },
    { trigamma, 5.5, 0.19934238698962765913 },
    { trigamma, 12.25, 0.085055142988163208079 },
    { trigamma, 100000000.0, 1.0000000050000000167e-8 },
    { trigamma, -0.25, 18.541879647671606498 },
    { trigamma, -3.625, 11.321700455260802633 },
    { trigamma, -20.75, 19.692158656372497388 },
    { erfinv, 1e-09, 8.8622692545275806908e-10 },
    { erfinv, 0.0625, 0.055445948772782020299 },
    { erfinv, 0.5, 0.47693627620446987338 },
    { erfinv, 0.84375, 1.0025339706240399344 },
    { erfinv, 0.875, 1.0847870400692831413 },
    { erfinv, 0.9990234375, 2.3314677736219476723 },
    { erfinv, 0.9999999999990905, 5.0512540852493899671 },
    { erfinv, -0.25, -0.22531205501217810473 },
    { erfinv, -0.96875, -1.523019401996956111 },
};
#undef lgamma
#undef digamma
#undef trigamma
#undef erfinv

TEST(values_in_f64_to_a_few_ulp)
{
    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++) {
        double got = at(exact[i].fn, exact[i].x),
               unit = fabs(nextafter(exact[i].y, 0) - exact[i].y);
        CHECK_MSG(fabs(got - exact[i].y) <= 16 * unit, "row %d, x = %.17g: got %.17g, not %.17g",
                  (int)i, exact[i].x, got, exact[i].y);
    }
}

TEST(values_in_f32_round_those)
{
    ARIL_SCOPE;
    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++) {
        float x = (float)exact[i].x;
        if ((double)x != exact[i].x) continue;
        aril_tensor *y = exact[i].fn(aril_from(&x, ARIL_SHAPE(1), ARIL_F32, test_device()));
        float want = (float)exact[i].y;
        CHECK_MSG(fabs(aril_item(y) - exact[i].y) <= fabs((double)(nextafterf(want, 0) - want)),
                  "row %d, x = %g: got %.9g, not %.9g", (int)i, exact[i].x, aril_item(y),
                  exact[i].y);
    }
}

TEST(values_at_poles_and_infinity)
{
    CHECK(at(aril_lgamma, 0) == INFINITY && at(aril_lgamma, -3) == INFINITY);
    CHECK(at(aril_lgamma, -INFINITY) == INFINITY && at(aril_lgamma, INFINITY) == INFINITY);
    CHECK(at(aril_lgamma, 1) == 0 && !signbit(at(aril_lgamma, 1)) && at(aril_lgamma, 2) == 0);
    CHECK(at(aril_digamma, 0.0) == -INFINITY && at(aril_digamma, -0.0) == INFINITY);
    CHECK(isnan(at(aril_digamma, -2)) && at(aril_digamma, INFINITY) == INFINITY);
    CHECK(at(aril_trigamma, 0) == INFINITY && at(aril_trigamma, -2) == INFINITY);
    CHECK(at(aril_trigamma, INFINITY) == 0);
    CHECK(at(aril_erfinv, 1) == INFINITY && at(aril_erfinv, -1) == -INFINITY);
    CHECK(isnan(at(aril_erfinv, 1.5)) && at(aril_erfinv, 0) == 0);
    CHECK(isnan(at(aril_lgamma, NAN)) && isnan(at(aril_digamma, NAN)) &&
          isnan(at(aril_erfinv, NAN)));
}

TEST(polygamma_of_any_order)
{
    ARIL_SCOPE;
    CHECK_NEAR(aril_item(aril_polygamma(0, number(1))), -0.57721566490153286061, 1e-15);
    CHECK_NEAR(aril_item(aril_polygamma(1, number(1))), 1.6449340668482264365, 1e-15);
    CHECK_NEAR(aril_item(aril_polygamma(2, number(1))), -2.4041138063191885708, 1e-14);
    CHECK_NEAR(aril_item(aril_polygamma(3, number(0.5))), 97.409091034002437236, 1e-12);
    CHECK(aril_tensor_status(aril_polygamma(-1, number(1))) == ARIL_ERR_ARG);
    aril_clear_error();
}

/* lgamma, digamma, trigamma, polygamma(2, x) are each other's derivatives. */
TEST(derivatives_of_lgamma)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_parameter(number(2.25)), *g[1] = { aril_lgamma(x) };
    for (int n = 0; n < 4; n++) {
        aril_gradients(g[0], ARIL_LIST(x), g, (aril_grad_opts){ .create_graph = true });
        CHECK_NEAR(aril_item(g[0]), aril_item(aril_polygamma(n, number(2.25))), 1e-12);
    }
    aril_release(x);
}

/* ---- fmax, fmin, copysign, signbit ---- */

TEST(fmax_and_fmin_prefer_numbers_to_nan)
{
    ARIL_SCOPE;
    CHECK(aril_item(aril_fmax(number(NAN), number(2))) == 2);
    CHECK(aril_item(aril_fmin(number(2), number(NAN))) == 2);
    CHECK(isnan(aril_item(aril_fmax(number(NAN), number(NAN)))));
    CHECK(aril_item(aril_fmax_scalar(number(1), 3)) == 3);
    CHECK_INT(aril_item_int(
                  aril_fmin_scalar(aril_full(ARIL_SHAPE(1), 7, ARIL_I64, test_device()), 3)),
              3);
}

TEST(signs)
{
    ARIL_SCOPE;
    CHECK(signbit(aril_item(aril_copysign(number(2), number(-0.0)))));
    CHECK_INT(aril_item_int(aril_signbit(number(-0.0))), 1);
    CHECK_INT(aril_item_int(aril_signbit(number(0))), 0);
    CHECK_INT(aril_dtype_of(aril_signbit(number(0))), ARIL_BOOL);
    CHECK_INT(aril_dtype_of(
                  aril_copysign(aril_ones(ARIL_SHAPE(2), ARIL_I64, test_device()), number(-1))),
              ARIL_F64);
}

/* ---- equality ---- */

TEST(close_within_a_tolerance)
{
    ARIL_SCOPE;
    aril_close_opts defaults = { 0 }, exactly = { .rtol = ARIL_ZERO, .atol = ARIL_ZERO };
    CHECK(aril_allclose(number(1), number(1 + 9e-6), defaults));
    CHECK(!aril_allclose(number(1), number(1 + 2e-5), defaults));
    CHECK(!aril_allclose(number(1), number(1 + 1e-9), exactly));
    CHECK(aril_allclose(number(INFINITY), number(INFINITY), defaults));
    CHECK(!aril_allclose(number(1), number(INFINITY), defaults));
    CHECK(!aril_allclose(number(NAN), number(NAN), defaults));
    CHECK(aril_allclose(number(NAN), number(NAN), (aril_close_opts){ .equal_nan = true }));
    aril_tensor *big = aril_full(ARIL_SHAPE(3), 100000, ARIL_I64, test_device());
    CHECK(aril_allclose(big, aril_add_scalar(big, 1), defaults));
    CHECK(!aril_allclose(big, aril_add_scalar(big, 1), exactly));
    CHECK(aril_ok());
    aril_tensor *bad = aril_isclose(number(1), number(1), (aril_close_opts){ .rtol = -1 });
    CHECK(aril_tensor_status(bad) == ARIL_ERR_ARG);
    aril_clear_error();
    CHECK(!aril_allclose(number(1), NULL, defaults) && !aril_ok());
    aril_clear_error();
}

TEST(equal_compares_shapes_and_elements)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_randn(ARIL_SHAPE(3, 4), ARIL_F32, test_device());
    CHECK(aril_equal(x, aril_contiguous(aril_t(aril_copy(aril_t(x))))));
    CHECK(!aril_equal(x, aril_t(x)));
    CHECK(!aril_equal(x, aril_add_scalar(x, 1)));
    CHECK(!aril_equal(number(NAN), number(NAN)));
    CHECK(aril_equal(aril_zeros(ARIL_SHAPE(0, 2), ARIL_F32, test_device()),
                     aril_ones(ARIL_SHAPE(0, 2), ARIL_F32, test_device())));
    CHECK(aril_ok());
    CHECK(!aril_equal(x, NULL) && !aril_ok());
    aril_clear_error();
}
