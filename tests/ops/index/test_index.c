/* Indexing: corner cases of x[...], in-place writes, order of sums, errors. */
#include "support/device.h"
#include "support/test.h"

#include "aril/aril.h"
#include "core/tensor.h"

#include <string.h>

static aril_tensor *counted(aril_shape shape)
{
    int64_t n = 1;
    for (int i = 0; i < shape.ndim; i++) n *= shape.dim[i];
    return aril_reshape(aril_arange(0, n, 1, ARIL_F32, test_device()), shape);
}

static aril_tensor *ints(int n, const int64_t *v)
{
    return aril_from(v, ARIL_SHAPE(n), ARIL_I64, test_device());
}
#define INTS(...) ints((int)(sizeof((int64_t[]){ __VA_ARGS__ }) / 8), (int64_t[]){ __VA_ARGS__ })

static aril_tensor *bools(int n, const bool *v)
{
    return aril_from(v, ARIL_SHAPE(n), ARIL_BOOL, test_device());
}
#define BOOLS(...) bools((int)sizeof((bool[]){ __VA_ARGS__ }), (bool[]){ __VA_ARGS__ })

static bool has_shape(aril_tensor *t, aril_shape s)
{
    aril_shape h = aril_shape_of(t);
    bool same = h.ndim == s.ndim;
    for (int i = 0; i < s.ndim && same; i++) same = h.dim[i] == s.dim[i];
    return same && aril_tensor_status(t) == ARIL_OK;
}

static double at(aril_tensor *t, int64_t i)
{
    ARIL_SCOPE;
    return aril_item(aril_select(aril_reshape(t, ARIL_SHAPE(-1)), 0, i));
}

TEST(position_of_index_dimensions)
{
    ARIL_SCOPE;
    aril_tensor *x = counted(ARIL_SHAPE(2, 3, 4, 5));
    aril_tensor *i = INTS(0, 1, 0, 1, 0, 1), *j = INTS(3, 2, 1, 0, 3, 2);
    aril_tensor *i2 = aril_reshape(i, ARIL_SHAPE(6, 1));
    /* adjacent index tensors: the result's dimensions stay in place */
    CHECK(has_shape(aril_index(x, ARIL_INDEX(ARIL_EVERY, ARIL_BY(i), ARIL_BY(j))),
                    ARIL_SHAPE(2, 6, 5)));
    CHECK(has_shape(aril_index(x, ARIL_INDEX(ARIL_DOTS, ARIL_BY(j), ARIL_BY(j))),
                    ARIL_SHAPE(2, 3, 6)));
    CHECK(has_shape(aril_index(x, ARIL_INDEX(ARIL_EVERY, ARIL_BY(i2), ARIL_BY(j))),
                    ARIL_SHAPE(2, 6, 6, 5)));
    /* separated index tensors: the result's dimensions come first */
    CHECK(has_shape(aril_index(x, ARIL_INDEX(ARIL_EVERY, ARIL_BY(i), ARIL_EVERY, ARIL_BY(j))),
                    ARIL_SHAPE(6, 2, 4)));
    CHECK(has_shape(aril_index(x, ARIL_INDEX(ARIL_BY(i), ARIL_DOTS, ARIL_BY(j))),
                    ARIL_SHAPE(6, 3, 4)));
    CHECK(has_shape(aril_index(x, ARIL_INDEX(ARIL_EVERY, ARIL_BY(i), ARIL_NEW, ARIL_BY(j))),
                    ARIL_SHAPE(6, 2, 1, 5)));
    /* a new axis next to them moves nothing */
    CHECK(has_shape(aril_index(x, ARIL_INDEX(ARIL_NEW, ARIL_BY(i), ARIL_BY(i))),
                    ARIL_SHAPE(1, 6, 4, 5)));
    /* an integer removes its axis first, as in PyTorch */
    aril_tensor *y = aril_index(x, ARIL_INDEX(ARIL_AT(1), ARIL_EVERY, ARIL_BY(j)));
    CHECK(has_shape(y, ARIL_SHAPE(3, 6, 5)));
    CHECK_NEAR(at(y, 0), 60 + 15, 0);
    /* a 0-d index tensor removes the axis, and broadcasts */
    aril_tensor *one = aril_full(ARIL_SHAPE(), 1, ARIL_I32, test_device());
    CHECK(has_shape(aril_index(x, ARIL_INDEX(ARIL_BY(one))), ARIL_SHAPE(3, 4, 5)));
    CHECK(has_shape(aril_index(x, ARIL_INDEX(ARIL_BY(one), ARIL_EVERY, ARIL_BY(j))),
                    ARIL_SHAPE(6, 3, 5)));
    y = aril_index(x, ARIL_INDEX(ARIL_BY(one), ARIL_BY(one), ARIL_BY(one), ARIL_BY(one)));
    CHECK(has_shape(y, ARIL_SHAPE()));
    CHECK_NEAR(aril_item(y), 60 + 20 + 5 + 1, 0);
    CHECK(aril_ok());
}

TEST(views_and_copies)
{
    ARIL_SCOPE;
    aril_tensor *x = counted(ARIL_SHAPE(3, 4));
    CHECK(aril_shares_memory(x, aril_index(x, ARIL_INDEX(ARIL_AT(1), ARIL_RANGE(1, 3)))));
    CHECK(aril_shares_memory(x, aril_index(x, ARIL_INDEX(ARIL_DOTS, ARIL_NEW))));
    CHECK(!aril_shares_memory(x, aril_index(x, ARIL_INDEX(ARIL_BY(INTS(0, 1))))));
    CHECK(has_shape(aril_index(x, ARIL_INDEX(ARIL_DOTS)), ARIL_SHAPE(3, 4)));
    CHECK(
        has_shape(aril_index(x, ARIL_INDEX(ARIL_DOTS, ARIL_EVERY, ARIL_EVERY)), ARIL_SHAPE(3, 4)));
    CHECK(has_shape(aril_index(x, ARIL_INDEX(ARIL_RANGE(2, 1))), ARIL_SHAPE(0, 4)));
    aril_tensor *back = aril_index(x, ARIL_INDEX(ARIL_EVERY, ARIL_STEP(ARIL_END, ARIL_END, -2)));
    CHECK(has_shape(back, ARIL_SHAPE(3, 2)));
    CHECK_NEAR(at(back, 0), 3, 0);
    CHECK_NEAR(at(back, 1), 1, 0);
    CHECK(has_shape(aril_index(x, (aril_items){ 0 }), ARIL_SHAPE(3, 4)));
}

TEST(masks)
{
    ARIL_SCOPE;
    aril_tensor *x = counted(ARIL_SHAPE(3, 4));
    aril_tensor *none = aril_zeros(ARIL_SHAPE(3, 4), ARIL_BOOL, test_device());
    aril_tensor *rows = BOOLS(true, false, true), *no_rows = BOOLS(false, false, false);
    CHECK(has_shape(aril_index(x, ARIL_INDEX(ARIL_BY(none))), ARIL_SHAPE(0)));
    CHECK(has_shape(aril_index(x, ARIL_INDEX(ARIL_BY(rows))), ARIL_SHAPE(2, 4)));
    CHECK(has_shape(aril_index(x, ARIL_INDEX(ARIL_BY(no_rows))), ARIL_SHAPE(0, 4)));
    CHECK(has_shape(aril_index(x, ARIL_INDEX(ARIL_BY(rows), ARIL_AT(1))), ARIL_SHAPE(2)));
    CHECK(has_shape(aril_index(x, ARIL_INDEX(ARIL_BY(rows), ARIL_BY(INTS(3)))), ARIL_SHAPE(2)));
    aril_tensor *yes = aril_full(ARIL_SHAPE(), 1, ARIL_BOOL, test_device());
    aril_tensor *no = aril_full(ARIL_SHAPE(), 0, ARIL_BOOL, test_device());
    CHECK(has_shape(aril_index(x, ARIL_INDEX(ARIL_BY(yes))), ARIL_SHAPE(1, 3, 4)));
    CHECK(has_shape(aril_index(x, ARIL_INDEX(ARIL_BY(no))), ARIL_SHAPE(0, 3, 4)));
    aril_index_put_(x, ARIL_INDEX(ARIL_BY(none)), aril_scalar(9), false);
    CHECK_NEAR(aril_item(aril_amax(x, ARIL_ALL)), 11, 0);
    aril_index_put_(x, ARIL_INDEX(ARIL_BY(rows), ARIL_RANGE(0, 2)), aril_scalar(-1), false);
    CHECK_NEAR(at(x, 0), -1, 0);
    CHECK_NEAR(at(x, 5), 5, 0);
    CHECK_NEAR(at(x, 9), -1, 0);
    aril_tensor *where[2];
    CHECK_INT(aril_nonzero_list(aril_lt_scalar(x, 0), where), ARIL_OK);
    CHECK(has_shape(where[0], ARIL_SHAPE(4)));
    CHECK_NEAR(at(where[0], 3), 2, 0);
    CHECK_NEAR(at(where[1], 3), 1, 0);
    CHECK(aril_ok());
}

TEST(empty_indices)
{
    ARIL_SCOPE;
    aril_tensor *x = counted(ARIL_SHAPE(3, 4)),
                *empty = aril_zeros(ARIL_SHAPE(0, 3), ARIL_F32, test_device());
    aril_tensor *no = aril_zeros(ARIL_SHAPE(0), ARIL_I64, test_device());
    CHECK(has_shape(aril_index(x, ARIL_INDEX(ARIL_BY(no))), ARIL_SHAPE(0, 4)));
    CHECK(has_shape(aril_index(x, ARIL_INDEX(ARIL_BY(no), ARIL_BY(INTS(2)))), ARIL_SHAPE(0)));
    CHECK(has_shape(aril_index(empty, ARIL_INDEX(ARIL_BY(no))), ARIL_SHAPE(0, 3)));
    CHECK(has_shape(aril_index(empty, ARIL_INDEX(ARIL_EVERY, ARIL_BY(INTS(2, 0)))),
                    ARIL_SHAPE(0, 2)));
    CHECK(has_shape(aril_index_select(empty, no, 0), ARIL_SHAPE(0, 3)));
    CHECK(has_shape(aril_embedding(no, x, (aril_embedding_opts){ 0 }), ARIL_SHAPE(0, 4)));
    CHECK(has_shape(aril_index_add(x, no, aril_zeros(ARIL_SHAPE(0, 4), ARIL_F32, test_device()), 0),
                    ARIL_SHAPE(3, 4)));
    CHECK(has_shape(aril_nonzero(empty), ARIL_SHAPE(0, 2)));
    CHECK(has_shape(aril_cat(ARIL_LIST(empty, empty), 0), ARIL_SHAPE(0, 3)));
    CHECK(
        has_shape(aril_pad(empty, ARIL_PADS(1, 0, 2, 1), (aril_pad_opts){ 0 }), ARIL_SHAPE(3, 4)));
    CHECK(has_shape(aril_repeat(empty, ARIL_SHAPE(3, 2)), ARIL_SHAPE(0, 6)));
    CHECK(aril_ok());
}

TEST(index_put_changes_only_the_indexed_elements)
{
    ARIL_SCOPE;
    aril_tensor *x = counted(ARIL_SHAPE(4, 3)), *part = aril_slice(x, 0, 1, 3, 1);
    void *memory = aril_data_strided(x);
    aril_scatter_add_(part, aril_reshape(INTS(1, 0, 1), ARIL_SHAPE(1, 3)),
                      aril_ones(ARIL_SHAPE(1, 3), ARIL_F32, test_device()), 0);
    CHECK(aril_data_strided(x) == memory);
    static const double want[] = { 0, 1, 2, 3, 5, 5, 7, 7, 9, 9, 10, 11 };
    for (int i = 0; i < 12; i++) CHECK_NEAR(at(x, i), want[i], 0);
    aril_tensor *t = aril_t(x); /* strided */
    aril_index_add_(t, INTS(0, 0, 2), aril_ones(ARIL_SHAPE(3, 4), ARIL_F32, test_device()), 0);
    CHECK_NEAR(at(x, 0), 2, 0);
    CHECK_NEAR(at(x, 1), 1, 0);
    CHECK_NEAR(at(x, 2), 3, 0);
    aril_tensor *h = aril_cast(x, ARIL_F16); /* staged */
    aril_scatter_add_(aril_t(h), aril_reshape(INTS(0, 0, 0, 0), ARIL_SHAPE(1, 4)),
                      aril_ones(ARIL_SHAPE(1, 4), ARIL_F16, test_device()), 0);
    CHECK_NEAR(at(h, 0), 3, 0);
    CHECK_NEAR(at(h, 3), at(x, 3) + 1, 0);
    CHECK_NEAR(at(h, 1), 1, 0);
    /* the source is the destination */
    aril_tensor *v = counted(ARIL_SHAPE(3));
    aril_index_put_(v, ARIL_INDEX(ARIL_BY(INTS(2, 1, 0))), v, false);
    CHECK_NEAR(at(v, 0), 2, 0);
    CHECK_NEAR(at(v, 2), 0, 0);
    CHECK(aril_ok());
}

TEST(sums_do_not_depend_on_threads)
{
    ARIL_SCOPE;
    aril_seed(1);
    aril_tensor *index = aril_randint(0, 50, ARIL_SHAPE(4000), ARIL_I64, test_device());
    aril_tensor *src = aril_randn(ARIL_SHAPE(4000, 70), ARIL_F32, test_device());
    aril_tensor *to = aril_zeros(ARIL_SHAPE(50, 70), ARIL_F32, test_device()), *first[2] = { 0 };
    int threads = aril_threads();
    for (int n = 1; n <= 4; n++) {
        aril_set_threads(n);
        aril_tensor *a = aril_index_add(to, index, src, 0);
        aril_tensor *wide = aril_expand(aril_unsqueeze(index, 1), ARIL_SHAPE(4000, 70));
        aril_tensor *b = aril_scatter_add(to, wide, src, 0);
        if (n == 1) {
            first[0] = a;
            first[1] = b;
        }
        CHECK_NEAR(aril_item(aril_sum(aril_ne(a, first[0]), ARIL_ALL)), 0, 0);
        CHECK_NEAR(aril_item(aril_sum(aril_ne(b, first[1]), ARIL_ALL)), 0, 0);
        CHECK_NEAR(aril_item(aril_sum(aril_ne(a, b), ARIL_ALL)), 0, 0);
    }
    aril_set_threads(threads);
    /* the last of several values wins */
    aril_tensor *x = aril_zeros(ARIL_SHAPE(2), ARIL_F32, test_device());
    x = aril_index_put(x, ARIL_INDEX(ARIL_BY(INTS(0, 0, 1, 0))), counted(ARIL_SHAPE(4)), false);
    CHECK_NEAR(at(x, 0), 3, 0);
    CHECK_NEAR(at(x, 1), 2, 0);
}

TEST(many_tensors)
{
    ARIL_SCOPE;
    enum { N = 300 };
    aril_tensor *one = aril_parameter(aril_ones(ARIL_SHAPE(2), ARIL_F32, test_device())), *all[N];
    for (int i = 0; i < N; i++) all[i] = aril_mul_scalar(one, i);
    aril_tensor *y = aril_cat((aril_list){ N, all }, 0);
    CHECK(has_shape(y, ARIL_SHAPE(2 * N)));
    CHECK_NEAR(at(y, 2 * N - 1), N - 1, 0);
    aril_tensor *s = aril_stack((aril_list){ N, all }, 1);
    CHECK(has_shape(s, ARIL_SHAPE(2, N)));
    aril_backward(
        aril_sum(aril_mul(s, aril_transpose(aril_reshape(y, ARIL_SHAPE(N, 2)), 0, 1)), ARIL_ALL));
    CHECK_NEAR(at(aril_grad(one), 1), 2.0 * (N - 1) * N * (2 * N - 1) / 6, 1e2);
    aril_release(one);
    CHECK(aril_ok());
}

/* ---- errors ---- */

static bool fails(aril_tensor *t, aril_status code, const char *op, const char *what)
{
    aril_status got = aril_tensor_status(t);
    const char *text = aril_tensor_error(t);
    bool right = got == code && text && strstr(text, op) == text && strstr(text, what);
    if (!right)
        test_fail(__FILE__, __LINE__, "%s: status %d (%d expected), '%s' lacks '%s'", op, got, code,
                  text ? text : "", what);
    aril_clear_error();
    return right;
}

TEST(errors)
{
    ARIL_SCOPE;
    aril_tensor *x = counted(ARIL_SHAPE(3, 4)), *f = counted(ARIL_SHAPE(2));
    aril_tensor *far = INTS(0, 3), *nil = NULL;
#define AT2 ARIL_AT(0), ARIL_AT(0)
    CHECK(fails(aril_index(x, ARIL_INDEX(ARIL_AT(3))), ARIL_ERR_INDEX, "index",
                "index 3 is out of range for axis 0 of size 3"));
    CHECK(fails(aril_index(x, ARIL_INDEX(ARIL_AT(0), ARIL_AT(-5))), ARIL_ERR_INDEX, "index", "-5"));
    CHECK(fails(aril_index(x, ARIL_INDEX(AT2, ARIL_AT(0))), ARIL_ERR_INDEX, "index", "[3,4]"));
    CHECK(fails(aril_index(x, ARIL_INDEX(ARIL_DOTS, ARIL_DOTS)), ARIL_ERR_INDEX, "index",
                "ARIL_DOTS"));
    CHECK(fails(aril_index(x, ARIL_INDEX(ARIL_STEP(0, 2, 0))), ARIL_ERR_ARG, "index", "step"));
    CHECK(fails(aril_index(x, ARIL_INDEX(ARIL_BY(nil))), ARIL_ERR_ARG, "index", "NULL"));
    aril_tensor *few = aril_zeros(ARIL_SHAPE(1, 3), ARIL_I64, test_device());
    CHECK(fails(aril_take_along_axis(x, few, 0), ARIL_ERR_SHAPE, "take_along_axis",
                "the index [1,3] does not broadcast with [3,4] except along axis 0"));
    CHECK(
        fails(aril_put_along_axis(x, few, aril_ones(ARIL_SHAPE(1, 3), ARIL_F32, test_device()), 0),
              ARIL_ERR_SHAPE, "put_along_axis", "the index [1,3] does not broadcast"));
    CHECK(fails(aril_index(x, ARIL_INDEX(ARIL_BY(f))), ARIL_ERR_DTYPE, "index", "f32"));
    CHECK(fails(aril_index(x, ARIL_INDEX(ARIL_BY(far))), ARIL_ERR_INDEX, "index",
                "index 3 is out of range for axis 0 of size 3"));
    CHECK(fails(aril_index(x, ARIL_INDEX(ARIL_BY(INTS(0, 1)), ARIL_BY(INTS(0, 1, 2)))),
                ARIL_ERR_SHAPE, "index", "[2] and [3]"));
    CHECK(fails(aril_index(x, ARIL_INDEX(ARIL_BY(BOOLS(true, true)))), ARIL_ERR_SHAPE, "index",
                "[3,4]"));
    CHECK(fails(aril_index(NULL, ARIL_INDEX(ARIL_AT(0))), ARIL_ERR_ARG, "index", "NULL"));
    CHECK(
        fails(aril_index_put(x, ARIL_INDEX(ARIL_BY(INTS(0, 1))), counted(ARIL_SHAPE(3, 4)), false),
              ARIL_ERR_SHAPE, "index_put", "[2,4]"));
    CHECK(fails(aril_index_put_(x, ARIL_INDEX(ARIL_BY(far)), aril_scalar(1), true), ARIL_ERR_INDEX,
                "index_put", "3"));
    CHECK_NEAR(at(x, 0), 0, 0); /* unchanged, even where the index was valid */
    CHECK(fails(aril_gather(x, far, 0), ARIL_ERR_SHAPE, "gather", "[3,4]"));
    CHECK(fails(aril_gather(x, aril_reshape(INTS(0, 4), ARIL_SHAPE(2, 1)), 1), ARIL_ERR_INDEX,
                "gather", "index 4 is out of range for axis 1 of size 4"));
    CHECK(fails(aril_gather(x, x, 0), ARIL_ERR_DTYPE, "gather", "f32"));
    CHECK(fails(aril_gather(x, far, 2), ARIL_ERR_INDEX, "gather", "2"));
    CHECK(fails(aril_scatter(x, aril_reshape(far, ARIL_SHAPE(2, 1)), counted(ARIL_SHAPE(2, 1)), 0),
                ARIL_ERR_INDEX, "scatter", "3"));
    CHECK(fails(aril_scatter(x, aril_reshape(INTS(0, 1), ARIL_SHAPE(2, 1)),
                             counted(ARIL_SHAPE(1, 1)), 0),
                ARIL_ERR_SHAPE, "scatter", "[1,1]"));
    CHECK(fails(aril_scatter_add(x, aril_reshape(INTS(0), ARIL_SHAPE(1, 1)),
                                 aril_zeros(ARIL_SHAPE(1, 1), ARIL_F64, test_device()), 0),
                ARIL_ERR_DTYPE, "scatter_add", "f64"));
    CHECK(fails(aril_index_select(x, far, 0), ARIL_ERR_INDEX, "index_select", "3"));
    CHECK(fails(aril_index_select(aril_select(f, 0, 0), far, 0), ARIL_ERR_SHAPE, "index_select",
                "0-d"));
    CHECK(fails(aril_index_add(x, INTS(0), f, 0), ARIL_ERR_SHAPE, "index_add", "[2]"));
    CHECK(fails(aril_embedding(INTS(-1), x, (aril_embedding_opts){ 0 }), ARIL_ERR_INDEX,
                "embedding", "-1"));
    CHECK(fails(aril_embedding(INTS(0), x, (aril_embedding_opts){ 5 }), ARIL_ERR_INDEX, "embedding",
                "5"));
    CHECK(fails(aril_one_hot(INTS(0, 5), 5), ARIL_ERR_INDEX, "one_hot", "5"));
    CHECK(fails(aril_one_hot(f, 5), ARIL_ERR_DTYPE, "one_hot", "f32"));
    CHECK(fails(aril_take(x, INTS(12)), ARIL_ERR_INDEX, "index_select", "12"));
    CHECK(fails(aril_masked_select(x, f), ARIL_ERR_SHAPE, "masked_select", "[2]"));
    CHECK(fails(aril_masked_select(f, f), ARIL_ERR_DTYPE, "masked_select", "f32"));
    CHECK(fails(aril_masked_scatter(f, BOOLS(true, true), counted(ARIL_SHAPE(1))), ARIL_ERR_SHAPE,
                "masked_scatter", "selects 2 elements"));
    CHECK(fails(aril_masked_fill(f, f, f), ARIL_ERR_SHAPE, "masked_fill", "dimensions"));
    CHECK(fails(aril_cat(ARIL_LIST(x, f), 0), ARIL_ERR_SHAPE, "cat", "[3,4] and [2]"));
    CHECK(fails(aril_cat((aril_list){ 0 }, 0), ARIL_ERR_ARG, "cat", "no tensors"));
    CHECK(fails(aril_cat(ARIL_LIST(x, nil), 0), ARIL_ERR_ARG, "cat", "NULL"));
    CHECK(fails(aril_cat(ARIL_LIST(x, x), 2), ARIL_ERR_INDEX, "cat", "2"));
    CHECK(fails(aril_stack(ARIL_LIST(x, f), 0), ARIL_ERR_SHAPE, "stack", "[3,4] and [2]"));
    CHECK(fails(aril_repeat(x, ARIL_SHAPE(2)), ARIL_ERR_SHAPE, "repeat", "2 dimensions"));
    CHECK(fails(aril_repeat(x, ARIL_SHAPE(2, -1)), ARIL_ERR_SHAPE, "repeat", "-1"));
    CHECK(fails(aril_repeat_interleave(x, -1, 0), ARIL_ERR_ARG, "repeat_interleave", "-1"));
    CHECK(fails(aril_pad(x, ARIL_PADS(1), (aril_pad_opts){ 0 }), ARIL_ERR_ARG, "pad",
                "got 1 values"));
    CHECK(fails(aril_pad(x, ARIL_PADS(4, 0), (aril_pad_opts){ .mode = ARIL_PAD_REFLECT }),
                ARIL_ERR_SHAPE, "pad", "[3,4]"));
    CHECK(fails(aril_pad(x, ARIL_PADS(-3, -3), (aril_pad_opts){ 0 }), ARIL_ERR_SHAPE, "pad",
                "cropped"));
    CHECK(fails(aril_searchsorted(x, f, (aril_search_opts){ 0 }), ARIL_ERR_SHAPE, "searchsorted",
                "[2]"));
    aril_tensor *out[2];
    CHECK_INT(aril_meshgrid(ARIL_LIST(x, f), false, out), ARIL_ERR_SHAPE);
    CHECK(fails(out[1], ARIL_ERR_SHAPE, "meshgrid", "[3,4]"));
    CHECK(fails(aril_gather(aril_index(x, ARIL_INDEX(ARIL_AT(9))), far, 0), ARIL_ERR_INDEX, "index",
                "9"));
    CHECK(aril_ok());
}

TEST(failed_allocations)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_parameter(aril_randn(ARIL_SHAPE(30, 40), ARIL_F32, test_device()));
    aril_tensor *index = aril_randint(0, 30, ARIL_SHAPE(50), ARIL_I64, test_device());
    aril_tensor *mask = aril_gt_scalar(aril_detach(x), 0);
    for (int64_t n = 1; n < 400; n++) {
        ARIL_SCOPE;
        aril_fail_allocation(n);
        aril_tensor *a = aril_index(x, ARIL_INDEX(ARIL_BY(index), ARIL_RANGE(0, 9)));
        aril_tensor *b = aril_index_put(x, ARIL_INDEX(ARIL_BY(mask)), aril_scalar(1), false);
        aril_tensor *c =
            aril_pad(b, ARIL_PADS(3, 3, 2, 2), (aril_pad_opts){ .mode = ARIL_PAD_REFLECT });
        aril_tensor *d = aril_cat(ARIL_LIST(c, c), 0);
        aril_tensor *loss = aril_add(aril_sum(a, ARIL_ALL), aril_sum(d, ARIL_ALL));
        loss = aril_add(loss,
                        aril_sum(aril_embedding(index, x, (aril_embedding_opts){ 0 }), ARIL_ALL));
        aril_backward(loss);
        bool failed = aril_allocation_failed();
        aril_fail_allocation(0);
        aril_zero_grad(x);
        CHECK(failed ? true : aril_ok());
        aril_clear_error();
        if (!failed) break;
    }
    CHECK_NEAR(aril_item(aril_sum(aril_index_select(x, index, 0), ARIL_ALL)),
               aril_item(aril_sum(aril_index(x, ARIL_INDEX(ARIL_BY(index))), ARIL_ALL)), 1e-3);
    aril_release(x);
    CHECK(aril_ok());
}
