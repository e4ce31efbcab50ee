/* Unknown sizes: their identity, products, broadcasting, names. */
#include "core/shape.h"
#include "core/sizes.h"
#include "ops/table/apply.h"
#include "support/test.h"

#include <string.h>

TEST(unknown_sizes_equal_themselves_only)
{
    aril__sizes s = { 0 };
    int64_t n = aril__size_new(&s, "N"), t = aril__size_new(&s, NULL);
    CHECK(n < -1 && t < -1 && n != t);
    CHECK(aril__size_is_named(n) && aril__size_is_named(t));
    const int64_t not [] = {
        0, 1, -1, -2, INT64_MIN, INT64_MAX, n + 1, n - 2, 2 * n, n + t, n * 7
    };
    for (size_t i = 0; i < sizeof not / sizeof *not ; i++) CHECK(!aril__size_is_named(not [i]));
    CHECK(aril__size_fits(n, t) && aril__size_fits(n, 3) && !aril__size_fits(2, 3));
    CHECK(aril__dims_fit(2, (int64_t[]){ n, 3 }, 2, (int64_t[]){ t, 3 }));
    CHECK(!aril__same_dims(2, (int64_t[]){ n, 3 }, 2, (int64_t[]){ t, 3 }));
    aril__sizes_free(&s);
    CHECK_INT(aril__size_new(NULL, "N"), -1);
}

TEST(derived_sizes_are_the_same_when_derived_again)
{
    aril__sizes s = { 0 };
    int64_t n = aril__size_new(&s, "N"), keys[2][3] = { { 9, n, 1 }, { 9, n, 2 } };
    int64_t a = aril__size_derived(&s, 3, keys[0]), b = aril__size_derived(&s, 3, keys[1]);
    CHECK(a != b && a != n);
    for (int i = 0; i < 1000; i++) aril__size_new(&s, NULL); /* the table grows */
    CHECK_INT(aril__size_derived(&s, 3, keys[0]), a);
    CHECK_INT(aril__size_derived(&s, 3, keys[1]), b);
    aril__sizes_free(&s);
}

TEST(products_of_unknown_sizes)
{
    aril__sizes s = { 0 };
    int64_t n = aril__size_new(&s, "N"), t = aril__size_new(&s, "T"), q;
    CHECK_INT(aril__size_product(&s, 2, (int64_t[]){ 2, 3 }), 6);
    CHECK_INT(aril__size_product(&s, 2, (int64_t[]){ 1, n }), n);
    CHECK_INT(aril__size_product(&s, 2, (int64_t[]){ 0, n }), 0);
    CHECK_INT(aril__size_product(&s, 2, (int64_t[]){ -1, n }), -1);
    int64_t nt = aril__size_product(&s, 2, (int64_t[]){ n, t });
    int64_t nt6 = aril__size_product(&s, 3, (int64_t[]){ t, 6, n });
    CHECK_INT(aril__size_product(&s, 2, (int64_t[]){ t, n }), nt);
    CHECK_INT(aril__size_product(&s, 2, (int64_t[]){ nt, 6 }), nt6);
    CHECK(aril__size_quotient(&s, 1, &nt6, 2, (int64_t[]){ 6, n }, &q));
    CHECK_INT(q, t);
    CHECK(aril__size_quotient(&s, 2, (int64_t[]){ n, 8 }, 2, (int64_t[]){ n, 2 }, &q));
    CHECK_INT(q, 4);
    CHECK(!aril__size_quotient(&s, 2, (int64_t[]){ n, 8 }, 2, (int64_t[]){ n, 3 }, &q));
    CHECK(aril__size_quotient(&s, 2, (int64_t[]){ n, 8 }, 1, (int64_t[]){ 3 }, &q));
    CHECK_INT(q, -1); /* N may be a multiple of 3 */
    CHECK(aril__size_differs(&s, 2, (int64_t[]){ n, 12 }, 2, (int64_t[]){ n, 13 }));
    CHECK(!aril__size_differs(&s, 2, (int64_t[]){ n, 12 }, 2, (int64_t[]){ t, 13 }));
    CHECK(!aril__size_differs(&s, 1, &nt6, 3,
                              (int64_t[]){ 2, t, aril__size_product(&s, 2, (int64_t[]){ n, 3 }) }));
    CHECK_INT(aril__size_nominal(&s, nt6), 6 * ARIL__NOMINAL_SIZE * ARIL__NOMINAL_SIZE);
    aril__sizes_free(&s);
}

static aril_status no_trace(aril__tracer *self, const aril__call *c, aril_tensor *dest,
                            aril_tensor **out)
{
    (void)self;
    (void)dest;
    for (int i = 0; i < c->op->n_out; i++) out[i] = aril__symbolic_out(aril__self(), c, i, NULL);
    return ARIL_OK;
}

/* One size of [a] and [b], broadcast. */
static int64_t common(int64_t a, int64_t b)
{
    int ndim = 1;
    int64_t dim[ARIL_MAX_DIMS] = { a };
    return aril__broadcast(&ndim, dim, 1, &b) ? dim[0] : -2;
}

TEST(unknown_sizes_broadcast)
{
    aril__tracer tracer = { .apply = no_trace };
    aril__trace(&tracer);
    int64_t n = aril__size_new(&tracer.sizes, "N"), t = aril__size_new(&tracer.sizes, NULL);
    CHECK_INT(common(n, 1), n);
    CHECK_INT(common(1, n), n);
    CHECK_INT(common(n, n), n);
    CHECK_INT(common(n, 5), 5);
    CHECK_INT(common(5, n), 5);
    CHECK_INT(common(4, 5), -2);
    int64_t both = common(n, t);
    CHECK(aril__size_is_named(both) && both != n && both != t); /* either may be 1 */
    CHECK_INT(common(t, n), both);
    CHECK_INT(common(both, n), both);
    CHECK_INT(common(t, both), both);
    CHECK_INT(common(-1, n), -1);
    char text[ARIL__SHAPE_TEXT];
    CHECK_STR(aril__shape_text(text, 4, (int64_t[]){ n, 3, t, -1 }), "[N,3,?,?]");
    aril__trace(NULL);
    aril__sizes_free(&tracer.sizes);
}
