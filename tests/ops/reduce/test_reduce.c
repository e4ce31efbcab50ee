/* Reductions, scans and sorting: precision, independence of threads, NaN, empty tensors, errors. */
#include "aril/aril.h"
#include "core/tensor.h"
#include "support/compare.h"
#include "support/device.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

static aril_tensor *vec(int64_t n, const float *v)
{
    return aril_from(v, ARIL_SHAPE(n), ARIL_F32, test_device());
}

#define VEC(...) \
    vec((int64_t)(sizeof((float[]){ __VA_ARGS__ }) / sizeof(float)), (float[]){ __VA_ARGS__ })

static aril_tensor *normal(aril_shape shape, aril_dtype dtype)
{
    return aril_randn(shape, dtype, test_device());
}

/* Checks the error of a call that should fail, and clears it. */
static bool fails(aril_tensor *y, aril_status code, const char *part)
{
    bool ok =
        aril_tensor_status(y) == code && aril_tensor_error(y) && strstr(aril_tensor_error(y), part);
    if (!ok)
        test_fail(__FILE__, __LINE__, "expected '%s', got %d: %s", part, aril_tensor_status(y),
                  aril_tensor_error(y) ? aril_tensor_error(y) : "no error");
    aril_clear_error();
    return ok;
}

/* ---- precision ---- */

TEST(mean_of_1e8_ones_is_1)
{
    ARIL_SCOPE;
    aril_tensor *x =
        aril_expand(aril_ones(ARIL_SHAPE(1), ARIL_F32, test_device()), ARIL_SHAPE(100000000));
    CHECK(aril_item(aril_mean(x, ARIL_ALL)) == 1);
    CHECK(aril_ok());
}

TEST(sums_of_many_tenths)
{
    ARIL_SCOPE;
    const int64_t n = 3000000;
    aril_tensor *tenth = aril_full(ARIL_SHAPE(1), 0.1, ARIL_F32, test_device());
    aril_tensor *x = aril_expand(tenth, ARIL_SHAPE(n));
    double exact = (double)0.1f;
    CHECK(aril_item(aril_sum(x, ARIL_ALL)) == (double)(float)(exact * (double)n));
    CHECK(aril_item(aril_mean(x, ARIL_ALL)) == exact);
    CHECK_NEAR(aril_item(aril_var(x, ARIL_ALL, 1)), 0, 1e-20);
    CHECK_NEAR(aril_item(aril_logsumexp(x, ARIL_ALL)), exact + log((double)n), 1e-6);
    CHECK_NEAR(aril_item(aril_norm(x, ARIL_ALL, 2)), exact * sqrt((double)n), 2e-5);
}

TEST(variance_far_from_zero)
{
    ARIL_SCOPE;
    aril_tensor *x = normal(ARIL_SHAPE(100000), ARIL_F64);
    double near = aril_item(aril_var(x, ARIL_ALL, 1));
    double far = aril_item(aril_var(aril_add_scalar(x, 1e7), ARIL_ALL, 1));
    CHECK_NEAR(far, near, 1e-7);
}

/* In f16 the norm's gradient is in range where its incoming gradient divided by the norm is not. */
TEST(norm_gradients_of_small_f16_vectors)
{
    static const double order[] = { 2, 3, 1.5, 4 };
    static const float upstream[] = { 1, 0.5F, -1, 0.3F };
    for (int k = 0; k < 8; k++) {
        ARIL_SCOPE;
        aril_tensor *grad[2], *x = VEC(5e-4F, -1e-3F, 1.5e-3F, 0), *u = vec(4, upstream);
        x = aril_cast(aril_reshape(x, ARIL_SHAPE(1, 4)), ARIL_F16);
        u = aril_cast(aril_reshape(u, ARIL_SHAPE(1, 4)), ARIL_F16);
        for (int wide = 0; wide < 2; wide++) {
            aril_dtype t = wide ? ARIL_F32 : ARIL_F16;
            aril_tensor *w = aril_adopt(aril_parameter(aril_cast(x, t))), *y;
            if (k < 4)
                y = aril_mul(aril_cast(u, t), aril_normalize(w, order[k], ARIL_AXES(1), 1e-12));
            else
                y = aril_mul_scalar(aril_norm(w, ARIL_AXES(1), order[k - 4]), 1000);
            aril_backward(aril_sum(y, ARIL_ALL));
            grad[wide] = aril_cast(aril_grad(w), ARIL_F32);
        }
        double size = aril_item(aril_amax(aril_abs(grad[1]), ARIL_ALL));
        char *bad = test_difference(grad[0], grad[1], 0, 4e-3 * size);
        CHECK_MSG(!bad, "order %g, %s: %s", order[k % 4], k < 4 ? "normalize" : "norm", bad);
    }
    CHECK(aril_ok());
}

/* ---- bits ---- */

typedef aril_tensor *maker(aril_tensor *x);
static aril_tensor *sum_all(aril_tensor *x)
{
    return aril_sum(x, ARIL_ALL);
}
static aril_tensor *sum_rows(aril_tensor *x)
{
    return aril_sum(x, ARIL_AXES(1));
}
static aril_tensor *sum_columns(aril_tensor *x)
{
    return aril_sum(x, ARIL_AXES(0));
}
static aril_tensor *var_all(aril_tensor *x)
{
    return aril_var(x, ARIL_ALL, 1);
}
static aril_tensor *lse_columns(aril_tensor *x)
{
    return aril_logsumexp(x, ARIL_AXES(0));
}
static aril_tensor *norm3(aril_tensor *x)
{
    return aril_norm(x, ARIL_ALL, 3);
}
static aril_tensor *argmax(aril_tensor *x)
{
    return aril_argmax(x, ARIL_ALL);
}
static aril_tensor *softmax0(aril_tensor *x)
{
    return aril_softmax(x, 0);
}
static aril_tensor *softmax1(aril_tensor *x)
{
    return aril_softmax(x, 1);
}
static aril_tensor *cumsum0(aril_tensor *x)
{
    return aril_cumsum(x, 0);
}
static aril_tensor *cumsum1(aril_tensor *x)
{
    return aril_cumsum(x, 1);
}
static aril_tensor *sorted0(aril_tensor *x)
{
    return aril_sort(x, 0, (aril_sort_opts){ 0 }, NULL);
}

TEST(results_do_not_depend_on_threads)
{
    static maker *const all[] = { sum_all, sum_rows, sum_columns, var_all, lse_columns, norm3,
                                  argmax,  softmax0, softmax1,    cumsum0, cumsum1,     sorted0 };
    ARIL_SCOPE;
    aril_tensor *wide = normal(ARIL_SHAPE(700, 300), ARIL_F32);
    aril_tensor *tall = normal(ARIL_SHAPE(90000, 3), ARIL_F32);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        for (int shape = 0; shape < 3; shape++) {
            ARIL_SCOPE;
            aril_tensor *x = shape == 0 ? wide : shape == 1 ? tall : aril_t(tall);
            aril_set_threads(1);
            aril_tensor *one = all[i](x);
            aril_set_threads(3);
            aril_tensor *three = all[i](x);
            aril_set_threads(0);
            CHECK(aril_item_int(aril_all(aril_eq(one, three), ARIL_ALL)));
        }
    }
    CHECK(aril_ok());
}

TEST(long_reductions_agree_with_short_ones)
{
    ARIL_SCOPE;
    aril_tensor *x = normal(ARIL_SHAPE(200000), ARIL_F64); /* split into parts */
    aril_tensor *parts = aril_reshape(x, ARIL_SHAPE(200, 1000));
    aril_tensor *where, *far;
    double max = aril_item(aril_amax(x, ARIL_ALL));
    CHECK(aril_item(aril_amax(aril_amax(parts, ARIL_AXES(0)), ARIL_ALL)) == max);
    CHECK(aril_item(aril_max(x, ARIL_AXES(0), &where)) == max);
    CHECK(aril_item(aril_select(x, 0, aril_item_int(where))) == max);
    CHECK(aril_item_int(aril_argmax(parts, ARIL_ALL)) == aril_item_int(where));
    CHECK_NEAR(aril_item(aril_sum(aril_sum(parts, ARIL_AXES(0)), ARIL_ALL)),
               aril_item(aril_sum(x, ARIL_ALL)), 1e-9);
    aril_tensor *a = aril_logsumexp(aril_logsumexp(parts, ARIL_AXES(0)), ARIL_ALL);
    CHECK_NEAR(aril_item(a), aril_item(aril_logsumexp(x, ARIL_ALL)), 1e-12);
    double v = aril_item(aril_var_mean(x, ARIL_ALL, 0, &far));
    aril_tensor *centred = aril_sub(parts, far);
    CHECK_NEAR(aril_item(aril_mean(aril_square(centred), ARIL_ALL)), v, 1e-12);
    CHECK_INT(aril_item_int(aril_count_nonzero(x, ARIL_ALL)), 200000);
    CHECK(aril_item_int(aril_all(x, ARIL_ALL)));
    CHECK(aril_ok());
}

/* ---- NaN ---- */

TEST(nan_is_propagated)
{
    ARIL_SCOPE;
    aril_tensor *x = VEC(1, NAN, 3, -INFINITY, NAN), *where;
    CHECK(isnan(aril_item(aril_amax(x, ARIL_ALL))));
    CHECK(isnan(aril_item(aril_amin(x, ARIL_ALL))));
    CHECK(isnan(aril_item(aril_max(x, ARIL_AXES(0), &where))));
    CHECK_INT(aril_item_int(where), 1);
    CHECK(isnan(aril_item(aril_min(x, ARIL_AXES(0), &where))));
    CHECK_INT(aril_item_int(where), 1);
    CHECK_INT(aril_item_int(aril_argmax(x, ARIL_ALL)), 1);
    CHECK(isnan(aril_item(aril_logsumexp(x, ARIL_ALL))));
    CHECK(isnan(aril_item(aril_norm(x, ARIL_ALL, INFINITY))));
    CHECK(isnan(aril_item(aril_median(x, ARIL_ALL, &where))));
    CHECK_INT(aril_item_int(where), 1);
    CHECK(aril_item(aril_nanmedian(x, ARIL_ALL, NULL)) == 1);
    CHECK(aril_item(aril_nansum(VEC(1, NAN, 2), ARIL_ALL)) == 3);
    CHECK(aril_item_int(aril_any(VEC(0, NAN), ARIL_ALL)) == 1);
    aril_tensor *down = aril_sort(x, 0, (aril_sort_opts){ .descending = true }, &where);
    CHECK(isnan(aril_item(aril_select(down, 0, 0))));
    CHECK_INT(aril_item_int(aril_select(where, 0, 1)), 4);
    CHECK(aril_ok());
}

/* ---- empty tensors, and errors ---- */

TEST(reductions_of_empty_tensors)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_zeros(ARIL_SHAPE(0, 3), ARIL_F32, test_device());
    CHECK(aril_item(aril_sum(x, ARIL_ALL)) == 0);
    CHECK(aril_item(aril_prod(x, ARIL_ALL)) == 1);
    CHECK(isnan(aril_item(aril_mean(x, ARIL_ALL))));
    CHECK(aril_item(aril_logsumexp(x, ARIL_ALL)) == -INFINITY);
    CHECK(isnan(aril_item(aril_var(x, ARIL_ALL, 1))));
    CHECK(aril_item(aril_norm(x, ARIL_ALL, 2)) == 0);
    CHECK_INT(aril_item_int(aril_any(x, ARIL_ALL)), 0);
    CHECK_INT(aril_item_int(aril_all(x, ARIL_ALL)), 1);
    CHECK_INT(aril_size(aril_amax(x, ARIL_AXES(1)), 0), 0);
    CHECK(aril_ok());
    CHECK(fails(aril_amax(x, ARIL_ALL), ARIL_ERR_SHAPE, "axis 0 of [0,3] is empty"));
    CHECK(fails(aril_max(x, ARIL_AXES(0), NULL), ARIL_ERR_SHAPE, "max: axis 0 of [0,3]"));
    CHECK(fails(aril_argmin(x, ARIL_AXES(0)), ARIL_ERR_SHAPE, "argmin: axis 0 of [0,3]"));
    CHECK(fails(aril_median(x, ARIL_AXES(0), NULL), ARIL_ERR_SHAPE, "median: axis 0 of [0,3]"));
    CHECK(fails(aril_norm(x, ARIL_ALL, INFINITY), ARIL_ERR_SHAPE, "norm: axis 0 of [0,3]"));
}

TEST(errors_say_what_is_wrong)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_ones(ARIL_SHAPE(2, 3), ARIL_F32, test_device()), *where;
    aril_tensor *integer = aril_ones(ARIL_SHAPE(3), ARIL_I64, test_device());
    CHECK(fails(aril_mean(integer, ARIL_ALL), ARIL_ERR_DTYPE,
                "mean: expected a floating-point dtype, got i64"));
    CHECK(fails(aril_softmax(integer, 0), ARIL_ERR_DTYPE, "softmax: not defined for i64"));
    CHECK(fails(aril_sum(x, ARIL_AXES(2)), ARIL_ERR_INDEX, "sum"));
    CHECK(fails(aril_sum(x, ARIL_AXES(1, -1)), ARIL_ERR_ARG, "appears twice"));
    CHECK(fails(aril_max(x, ARIL_AXES(0, 1), &where), ARIL_ERR_ARG, "use aril_amax"));
    CHECK(fails(where, ARIL_ERR_ARG, "use aril_amax"));
    CHECK(fails(aril_argmax(x, ARIL_AXES(0, 1)), ARIL_ERR_ARG, "argmax: got 2 axes"));
    CHECK(fails(aril_softmax(x, 2), ARIL_ERR_INDEX, "softmax"));
    CHECK(fails(aril_cumsum(x, -3), ARIL_ERR_INDEX, "cumsum"));
    CHECK(fails(aril_topk(x, 4, 1, (aril_topk_opts){ 0 }, &where), ARIL_ERR_ARG, "k is 4"));
    CHECK(fails(aril_kthvalue(x, 0, ARIL_AXES(1), NULL), ARIL_ERR_ARG, "k is 0"));
    CHECK(fails(aril_bincount(VEC(1), NULL, 0), ARIL_ERR_DTYPE, "bincount"));
    CHECK(fails(aril_bincount(aril_neg(integer), NULL, 0), ARIL_ERR_ARG,
                "non-negative integers, got -1"));
    CHECK(fails(aril_quantile(x, aril_scalar(1.5), ARIL_ALL, ARIL_QUANTILE_LINEAR), ARIL_ERR_NUMBER,
                "from 0 to 1"));
    CHECK(fails(aril_searchsorted(integer, x, (aril_search_opts){ 0 }), ARIL_ERR_DTYPE,
                "the sorted sequence is i64, but the values are f32"));
    CHECK(fails(aril_histc(x, 0, 0, 1), ARIL_ERR_ARG, "number of bins must be at least 1, got 0"));
    CHECK(fails(aril_sum(NULL, ARIL_ALL), ARIL_ERR_ARG, "sum"));
    CHECK(fails(aril_softmax(NULL, 0), ARIL_ERR_ARG, "softmax"));
    CHECK(fails(aril_sort(NULL, 0, (aril_sort_opts){ 0 }, &where), ARIL_ERR_ARG, "sort"));
    CHECK(fails(aril_quantile(NULL, x, ARIL_ALL, ARIL_QUANTILE_LINEAR), ARIL_ERR_ARG, "quantile"));
    CHECK(fails(aril_diff(NULL, 1, 0), ARIL_ERR_ARG, ""));
    CHECK(fails(aril_unique_axis(NULL, 0, &where, NULL), ARIL_ERR_ARG, "unique_axis"));
    aril_tensor *poison = aril_sum(NULL, ARIL_ALL);
    aril_clear_error();
    CHECK(aril_tensor_status(aril_median(poison, ARIL_AXES(3), NULL)) == ARIL_ERR_ARG);
    CHECK(aril_tensor_status(aril_quantile(poison, x, ARIL_ALL, 0)) == ARIL_ERR_ARG);
    CHECK(aril_tensor_status(aril_cummax(poison, 7, &where)) == ARIL_ERR_ARG);
    CHECK(aril_tensor_status(where) == ARIL_ERR_ARG);
    aril_clear_error();
}

TEST(quantile_index_stays_in_range)
{
    ARIL_SCOPE;
    aril_tensor *x = normal(ARIL_SHAPE(1001), ARIL_F32);
    double max = aril_item(aril_amax(x, ARIL_ALL));
    CHECK(aril_item(aril_quantile(x, aril_scalar(1), ARIL_ALL, ARIL_QUANTILE_LINEAR)) == max);
    aril_tensor *middle = aril_quantile(x, aril_scalar(0.5), ARIL_ALL, ARIL_QUANTILE_LINEAR);
    CHECK(aril_item(middle) == aril_item(aril_median(x, ARIL_ALL, NULL)));
    CHECK(aril_ok());
}

/* The weight between two neighbors keeps its digits where their position is large. */
TEST(quantile_weights_of_long_lines)
{
    ARIL_SCOPE;
    enum { N = 100001, AT = 50000 };
    aril_tensor *x = aril_arange(0, N, 1, ARIL_F32, test_device());
    x = aril_cast(aril_gt_scalar(x, AT), ARIL_F32);
    aril_tensor *y = aril_quantile(x, aril_scalar(0.500003), ARIL_ALL, ARIL_QUANTILE_LINEAR);
    CHECK_INT(aril_dtype_of(y), ARIL_F32);
    CHECK_NEAR(aril_item(y), 0.3, 1e-6);
    y = aril_nanquantile(x, aril_scalar(0.500003), ARIL_ALL, ARIL_QUANTILE_LINEAR);
    CHECK_NEAR(aril_item(y), 0.3, 1e-6);
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

/* ---- second derivatives where elements are 0 ---- */

/* d2 prod / dx[i] dx[k] is the product of all others, even with zeros. */
TEST(hessian_of_a_product_with_zeros)
{
    static const double all[][4] = {
        { 2, 3, 5, 7 }, { 0, 3, 5, 7 }, { 0, 3, 0, 7 }, { 0, 3, 0, 0 }, { 0, 0, 0, 0 }
    };
    for (size_t c = 0; c < sizeof all / sizeof *all; c++) {
        for (int i = 0; i < 4; i++) {
            ARIL_SCOPE;
            aril_tensor *x =
                aril_parameter(aril_from(all[c], ARIL_SHAPE(4), ARIL_F64, test_device()));
            aril_tensor *first, *second;
            aril_gradients(aril_prod(x, ARIL_ALL), ARIL_LIST(x), &first,
                           (aril_grad_opts){ .create_graph = true });
            aril_gradients(aril_select(first, 0, i), ARIL_LIST(x), &second, (aril_grad_opts){ 0 });
            double got[4];
            CHECK_INT(aril_read(second, got), ARIL_OK);
            for (int k = 0; k < 4; k++) {
                double want = k == i ? 0 : 1;
                for (int m = 0; m < 4; m++)
                    if (m != i && m != k) want *= all[c][m];
                CHECK_NEAR(got[k], want, 1e-12);
            }
            aril_release(x);
        }
    }
    CHECK(aril_ok());
}

static void cumprod_of(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_cumprod(in[0], 0);
}

TEST(gradients_of_cumprod_with_zeros)
{
    static const double all[][5] = { { 2, 0, 3, 4, 1 }, { 0, 2, 0, 3, 1 }, { 0, 0, 0, 1, 2 } };
    for (size_t c = 0; c < sizeof all / sizeof *all; c++) {
        ARIL_SCOPE;
        aril_tensor *x = aril_parameter(aril_from(all[c], ARIL_SHAPE(5), ARIL_F64, test_device()));
        CHECK_INT(aril_gradcheck(cumprod_of, NULL, ARIL_LIST(x),
                                 (aril_gradcheck_opts){ .second = true }),
                  ARIL_OK);
        aril_release(x);
    }
}

/* ---- memory ---- */

static aril_tensor *unique_of(aril_tensor *x)
{
    aril_tensor *inverse, *counts;
    return aril_unique(x, &inverse, &counts);
}
static aril_tensor *quantile_of(aril_tensor *x)
{
    return aril_quantile(x, aril_scalar(0.3), ARIL_AXES(0), ARIL_QUANTILE_LINEAR);
}
static aril_tensor *histc_of(aril_tensor *x)
{
    return aril_histc(x, 200, 0, 0);
}
static aril_tensor *search_of(aril_tensor *x)
{
    return aril_searchsorted(x, x, (aril_search_opts){ 0 });
}

TEST(failed_allocations_do_not_leak)
{
    static maker *const all[] = { sum_all,   lse_columns, sorted0, unique_of,  histc_of,
                                  search_of, softmax0,    cumsum0, quantile_of };
    aril_tensor *x = aril_keep(normal(ARIL_SHAPE(70000, 1), ARIL_F32));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int64_t before = aril__live_blocks();
        bool failed = true;
        for (int64_t n = 1; failed && n < 1000; n++) {
            ARIL_SCOPE;
            aril_fail_allocation(n);
            aril_tensor *y = all[i](x);
            failed = aril_allocation_failed();
            aril_fail_allocation(0);
            CHECK_INT(aril_tensor_status(y), failed ? ARIL_ERR_MEMORY : ARIL_OK);
            aril_clear_error();
        }
        CHECK(!failed);
        CHECK_INT(aril__live_blocks(), before);
    }
    aril_release(x);
}

/* Few columns along a long axis are processed in pieces, as lines are along the last axis. */
TEST(softmax_of_few_long_columns)
{
    static const aril_dtype dtypes[] = { ARIL_F32, ARIL_F64, ARIL_BF16 };
    static const double tolerances[] = { 1e-6, 1e-12, 1e-2 };
    for (int d = 0; d < 3; d++)
        for (int64_t inner = 1; inner <= 63; inner += 31) {
            ARIL_SCOPE;
            aril_seed(7);
            aril_tensor *x = aril_randn(ARIL_SHAPE(2, 20011, inner), dtypes[d], test_device());
            /* One column of minus infinity except for one element, and one with a NaN. */
            if (inner > 1) {
                aril_fill_(aril_slice(aril_select(x, 2, 1), 1, 1, INT64_MAX, 1), -INFINITY);
                if (dtypes[d] != ARIL_BF16) /* a library may differ there */
                    aril_fill_(aril_slice(aril_select(x, 2, 2), 1, 9000, 9001, 1), NAN);
            }
            aril_tensor *turned = aril_contiguous(aril_transpose(x, 1, 2));
            for (int is_log = 0; is_log < 2; is_log++) {
                aril_tensor *y = is_log ? aril_log_softmax(x, 1) : aril_softmax(x, 1);
                aril_tensor *z = is_log ? aril_log_softmax(turned, 2) : aril_softmax(turned, 2);
                double tol = tolerances[d] * (is_log ? 12 : 1);
                aril_tensor *want = aril_cast(aril_transpose(z, 1, 2), ARIL_F64);
                y = aril_cast(y, ARIL_F64);
                CHECK(aril_item(aril_all(aril_eq(aril_isnan(y), aril_isnan(want)), ARIL_ALL)));
                aril_tensor *off = aril_abs(aril_sub(y, want)); /* NaN where both are infinite */
                off = aril_where(aril_eq(y, want), aril_zeros_like(off), off);
                off = aril_where(aril_isnan(want), aril_zeros_like(off), off);
                CHECK_NEAR(aril_item(aril_amax(off, ARIL_ALL)), 0, tol);
            }
        }
}
