/* Small functions that combine others: values at the edges, and calls that are refused. PyTorch's
 * results on random inputs are compared by tests/peers/random.py. */
#include "aril/aril.h"
#include "support/device.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

static aril_tensor *vec(int64_t n, const double *v)
{
    return aril_from(v, ARIL_SHAPE(n), ARIL_F64, test_device());
}
#define VEC(...) \
    vec((int64_t)(sizeof((double[]){ __VA_ARGS__ }) / sizeof(double)), (double[]){ __VA_ARGS__ })

static aril_tensor *ints(int64_t n, const int64_t *v)
{
    return aril_from(v, ARIL_SHAPE(n), ARIL_I64, test_device());
}
#define INTS(...)                                                         \
    ints((int64_t)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), \
         (int64_t[]){ __VA_ARGS__ })

static aril_tensor *numbers(int64_t rows, int64_t columns)
{
    return aril_reshape(aril_arange(0, rows * columns, 1, ARIL_F64, test_device()),
                        ARIL_SHAPE(rows, columns));
}

/* Whether y holds these numbers, in row-major order. */
static bool holds(aril_tensor *y, int64_t n, const double *want)
{
    ARIL_SCOPE;
    return aril_equal(aril_reshape(aril_cast(y, ARIL_F64), ARIL_SHAPE(-1)), vec(n, want));
}
#define HOLDS(y, ...)                                                         \
    holds((y), (int64_t)(sizeof((double[]){ __VA_ARGS__ }) / sizeof(double)), \
          (double[]){ __VA_ARGS__ })

/* Whether y was refused, at once or, if that depends on values, by its device later. */
static bool refused(aril_tensor *y, const char *part)
{
    if (!aril_tensor_error(y) && aril_synchronize(test_device()) < 0) {
        bool late = strstr(aril_error(), part) != NULL;
        aril_clear_error();
        return late;
    }
    bool ok = aril_tensor_error(y) && strstr(aril_tensor_error(y), part);
    if (!ok)
        test_fail(__FILE__, __LINE__, "expected '%s', got %s", part,
                  aril_tensor_error(y) ? aril_tensor_error(y) : "no error");
    aril_clear_error();
    return ok;
}

/* ---- shapes ---- */

TEST(diagonal_matrices)
{
    ARIL_SCOPE;
    CHECK(HOLDS(aril_diag(VEC(1, 2), 0), 1, 0, 0, 2));
    CHECK(HOLDS(aril_diag(VEC(1, 2), -1), 0, 0, 0, 1, 0, 0, 0, 2, 0));
    CHECK(HOLDS(aril_diag(numbers(2, 3), 1), 1, 5));
    CHECK(HOLDS(aril_diag_embed(numbers(2, 1), 1, 0, 2), 0, 0, 0, 1, 0, 0, 0, 0));
    CHECK(HOLDS(aril_block_diag(ARIL_LIST(numbers(1, 2), aril_scalar(5.0), VEC(7))), 0, 1, 0, 0, 0,
                0, 5, 0, 0, 0, 0, 7));
    CHECK(HOLDS(aril_hstack(ARIL_LIST(VEC(1, 2), aril_scalar(5.0))), 1, 2, 5));
    CHECK(HOLDS(aril_stack(ARIL_LIST(aril_scalar(5.0), aril_sum(VEC(1, 2), ARIL_ALL)), 0), 5, 3));
    CHECK(refused(aril_diag(aril_scalar(1.0), 0), "1 or 2 dimensions"));
    CHECK(refused(aril_diag_embed(VEC(1), 0, 1, 1), "named twice"));
    CHECK(refused(aril_diag_embed(VEC(1), 0, 0, 2), "out of range"));
    CHECK(refused(aril_block_diag(ARIL_LIST(aril_unsqueeze(numbers(1, 1), 0))), "at most 2"));
}

TEST(indices_of_triangles)
{
    ARIL_SCOPE;
    CHECK(HOLDS(aril_tril_indices(2, 3, 0, ARIL_I64, test_device()), 0, 1, 1, 0, 0, 1));
    CHECK(HOLDS(aril_triu_indices(3, 2, 0, ARIL_I32, test_device()), 0, 0, 1, 0, 1, 1));
    CHECK_INT(aril_numel(aril_tril_indices(3, 3, -9, ARIL_I64, test_device())), 0);
    CHECK_INT(aril_size(aril_triu_indices(3, 3, INT64_MIN, ARIL_I64, test_device()), 1), 9);
    CHECK(refused(aril_tril_indices(-1, 3, 0, ARIL_I64, test_device()), "-1 rows"));
}

TEST(split_and_rotated_axes)
{
    ARIL_SCOPE;
    aril_tensor *x = numbers(2, 3), *part[4];
    CHECK(HOLDS(aril_rot90(x, 1, 0, 1), 2, 5, 1, 4, 0, 3));
    CHECK(HOLDS(aril_rot90(x, -1, 0, 1), 3, 0, 4, 1, 5, 2));
    CHECK(refused(aril_rot90(x, 1, 1, -1), "named twice"));
    CHECK_INT(aril_ndim(aril_unflatten(x, 1, ARIL_SHAPE(-1, 1, 3))), 4);
    CHECK(refused(aril_unflatten(x, 1, ARIL_SHAPE(2, -1)), "does not split"));
    CHECK(refused(aril_unflatten(x, 1, ARIL_SHAPE(0, -1)), "does not split"));
    CHECK(aril_tensor_split(x, 4, 1, part) == 0);
    CHECK(HOLDS(part[2], 2, 5) && aril_size(part[3], 1) == 0);
    CHECK(aril_tensor_split_at(x, (int64_t[]){ 1, -1 }, 2, 1, part) == 0);
    CHECK(HOLDS(part[0], 0, 3) && HOLDS(part[1], 1, 4) && HOLDS(part[2], 2, 5));
    CHECK(aril_tensor_split(x, 0, 1, part) < 0);
    aril_clear_error();
}

TEST(logarithmic_steps)
{
    ARIL_SCOPE;
    CHECK(HOLDS(aril_logspace(0, 3, 4, 2, ARIL_F32, test_device()), 1, 2, 4, 8));
    CHECK_INT(aril_numel(aril_logspace(0, 3, 0, 10, ARIL_F32, test_device())), 0);
}

/* ---- indexing ---- */

TEST(positions_of_an_axis_written)
{
    ARIL_SCOPE;
    aril_tensor *x = numbers(2, 3);
    CHECK(HOLDS(aril_index_copy(x, INTS(2, 0), numbers(2, 2), 1), 1, 1, 0, 3, 4, 2));
    CHECK(HOLDS(aril_index_fill_scalar(x, INTS(-1), 9, 0), 0, 1, 2, 9, 9, 9));
    aril_index_fill_(x, INTS(0), aril_scalar(7.0), 1);
    CHECK(HOLDS(x, 7, 1, 2, 7, 4, 5));
    CHECK(HOLDS(aril_index_fill_scalar(aril_full(ARIL_SHAPE(), 1, ARIL_F64, test_device()), INTS(0),
                                       9, 0),
                9));
    CHECK(refused(aril_index_copy(x, INTS(0), numbers(2, 2), 1), "does not match"));
    CHECK(refused(aril_index_fill(x, INTS(0), VEC(1), 1), "must be a scalar"));
    CHECK(refused(aril_index_fill_scalar(x, INTS(3), 1, 1), "out of range"));
}

TEST(repetition_by_a_tensor)
{
    ARIL_SCOPE;
    CHECK(HOLDS(aril_repeat_interleave_by(VEC(5, 6, 7), INTS(2, 0, 1), 0), 5, 5, 7));
    CHECK(HOLDS(aril_repeat_interleave_by(VEC(5, 6), INTS(2), 0), 5, 5, 6, 6));
    CHECK(refused(aril_repeat_interleave_by(VEC(5, 6), INTS(1, -1), 0), "-1 times"));
    CHECK(refused(aril_repeat_interleave_by(VEC(5, 6), INTS(1, 1, 1), 0), "each of 2"));
    CHECK(refused(aril_repeat_interleave_by(VEC(5, 6), VEC(1, 1), 0), "integers"));
}

TEST(all_combinations)
{
    ARIL_SCOPE;
    CHECK(HOLDS(aril_cartesian_prod(ARIL_LIST(VEC(1, 2), VEC(3, 4))), 1, 3, 1, 4, 2, 3, 2, 4));
    CHECK_INT(aril_ndim(aril_cartesian_prod(ARIL_LIST(VEC(1, 2)))), 1);
    CHECK(refused(aril_cartesian_prod(ARIL_LIST(VEC(1), INTS(1))), "one dtype"));
}

/* ---- sets and statistics ---- */

TEST(members_and_runs)
{
    ARIL_SCOPE;
    aril_tensor *inverse, *counts;
    CHECK(HOLDS(aril_isin(VEC(1, 2, NAN, 3), VEC(3, NAN, 1), false), 1, 0, 0, 1));
    CHECK(HOLDS(aril_isin(VEC(1, 2), VEC(1), true), 0, 1));
    CHECK(HOLDS(aril_isin(VEC(1, 2), aril_slice(VEC(1), 0, 0, 0, 1), false), 0, 0));
    CHECK(HOLDS(aril_unique_consecutive(VEC(1, 1, 2, 1, 1), &inverse, &counts), 1, 2, 1));
    CHECK(HOLDS(inverse, 0, 0, 1, 2, 2) && HOLDS(counts, 2, 1, 2));
    CHECK_INT(aril_numel(aril_unique_consecutive(aril_slice(VEC(1), 0, 0, 0, 1), NULL, &counts)),
              0);
    CHECK_INT(aril_numel(counts), 0);
    aril_tensor *x = aril_index_select(numbers(2, 2), INTS(0, 0, 1), 0);
    CHECK(HOLDS(aril_unique_consecutive_axis(x, 0, &inverse, NULL), 0, 1, 2, 3));
    CHECK(HOLDS(inverse, 0, 0, 1));
    CHECK(refused(aril_unique_consecutive_axis(aril_scalar(1.0), 0, NULL, NULL), "no axis"));
}

TEST(statistics)
{
    ARIL_SCOPE;
    aril_tensor *mean, *max, *q = aril_full(ARIL_SHAPE(), 0.5, ARIL_F64, test_device());
    CHECK_NEAR(aril_item(aril_std_mean(VEC(1, 3), ARIL_ALL, 1, &mean)), sqrt(2), 1e-15);
    CHECK(aril_item(mean) == 2);
    CHECK(aril_item(aril_aminmax(VEC(3, 1, 2), ARIL_ALL, &max)) == 1 && aril_item(max) == 3);
    CHECK(aril_item(aril_nanquantile(VEC(NAN, 1, 3), q, ARIL_ALL, ARIL_QUANTILE_LINEAR)) == 2);
    CHECK(isnan(aril_item(aril_nanquantile(VEC(NAN, NAN), q, ARIL_ALL, ARIL_QUANTILE_LINEAR))));
    CHECK(HOLDS(aril_cov(numbers(2, 2), (aril_cov_opts){ 0 }), 0.5, 0.5, 0.5, 0.5));
    CHECK(HOLDS(aril_cov(VEC(1, 3), (aril_cov_opts){ .correction = ARIL_ZERO }), 1));
    aril_tensor *r = aril_corrcoef(aril_stack(ARIL_LIST(VEC(1, 2), VEC(4, 2)), 0));
    CHECK(aril_allclose(r, aril_reshape(VEC(1, -1, -1, 1), ARIL_SHAPE(2, 2)),
                        (aril_close_opts){ 0 }));
    CHECK(refused(aril_cov(VEC(1, 3), (aril_cov_opts){ .fweights = VEC(1, 1) }), "integers"));
    CHECK(refused(aril_cov(VEC(1, 3), (aril_cov_opts){ .fweights = INTS(1) }), "observations"));
}

/* ---- vectors ---- */

TEST(products_and_distances_of_vectors)
{
    ARIL_SCOPE;
    CHECK(HOLDS(aril_cross(VEC(1, 0, 0), VEC(0, 1, 0), 0), 0, 0, 1));
    CHECK(HOLDS(aril_inner(VEC(1, 2), numbers(2, 2)), 2, 8));
    CHECK(HOLDS(aril_inner(aril_scalar(2.0), VEC(1, 2)), 2, 4));
    aril_tensor *a = numbers(1, 2), *b = aril_stack(ARIL_LIST(VEC(3, 5), VEC(0, 1)), 0);
    CHECK(HOLDS(aril_cdist(a, b, 2), 5, 0));
    CHECK(HOLDS(aril_cdist(a, b, 1), 7, 0) && HOLDS(aril_cdist(a, b, INFINITY), 4, 0));
    CHECK(HOLDS(aril_cdist(a, b, 0), 2, 0));
    aril_tensor *odd = aril_reshape(VEC(NAN, 0), ARIL_SHAPE(1, 2));
    const double powers[] = { 0, 1, 2, 3, INFINITY };
    for (int i = 0; i < 5; i++) CHECK(isnan(aril_item(aril_cdist(a, odd, powers[i]))));
    CHECK_INT(aril_ndim(aril_cdist(aril_expand(a, ARIL_SHAPE(3, 1, 2)), b, 2)), 3);
    CHECK(refused(aril_cdist(a, b, -1), "negative"));
    CHECK(refused(aril_cdist(a, numbers(2, 3), 2), "same size"));
    CHECK(refused(aril_cdist(a, VEC(1, 2), 2), "[...,R,M]"));
    CHECK(refused(aril_cross(VEC(1, 2), VEC(1, 2), 0), "3 elements"));
    CHECK(refused(aril_inner(VEC(1, 2), VEC(1, 2, 3)), "differ"));
}

TEST(gradient_of_equal_rows_is_0)
{
    ARIL_SCOPE;
    aril_tensor *a = aril_parameter(numbers(2, 2)), *g[1];
    aril_tensor *sum = aril_sum(aril_cdist(a, numbers(1, 2), 2), ARIL_ALL);
    aril_gradients(sum, ARIL_LIST(a), g, (aril_grad_opts){ 0 });
    CHECK_NEAR(aril_item(aril_select(aril_select(g[0], 0, 0), 0, 0)), 0, 0);
    CHECK_NEAR(aril_item(aril_select(aril_select(g[0], 0, 1), 0, 0)), sqrt(0.5), 1e-15);
    aril_release(a);
}

TEST(gates_and_unit_vectors)
{
    ARIL_SCOPE;
    CHECK(HOLDS(aril_glu(VEC(2, 4, 0, 0), 0), 1, 2));
    CHECK(HOLDS(aril_normalize(VEC(3, 4), 2, ARIL_AXES(0), 1e-12), 0.6, 0.8));
    CHECK(HOLDS(aril_normalize(VEC(0, 0), 2, ARIL_AXES(0), 1e-12), 0, 0));
    CHECK(refused(aril_glu(VEC(1, 2, 3), 0), "even size"));
    CHECK(refused(aril_glu(INTS(1, 2), 0), "floating point"));
    CHECK(refused(aril_normalize(NULL, 2, ARIL_AXES(0), 1e-12), "NULL"));
}

TEST(too_many_axes_are_refused)
{
    ARIL_SCOPE;
    CHECK(refused(aril_fftshift(VEC(1), (aril_axes){ .n = 100 }), "takes up to 8 axes, got 100"));
    CHECK(refused(aril_ifftshift(VEC(1), (aril_axes){ .n = -1 }), "takes up to 8 axes, got -1"));
}
