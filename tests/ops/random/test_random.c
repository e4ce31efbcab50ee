/* Random tensors: the same numbers however they are created, and the right distributions. */
#include "aril/aril.h"
#include "core/rng.h"
#include "core/tensor.h"
#include "ops/random/dropout.h"
#include "ops/random/random.h"
#include "ops/shape/create.h"
#include "support/agree.h"
#include "support/device.h"
#include "support/ops.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool same(aril_tensor *a, aril_tensor *b)
{
    size_t n = aril__dtype_bytes(aril_dtype_of(a), aril_numel(a));
    if (aril_numel(a) != aril_numel(b) || aril_dtype_of(a) != aril_dtype_of(b)) return false;
    return memcmp(aril_data(a), aril_data(b), n) == 0;
}

static double mean_of(aril_tensor *x)
{
    aril_tensor *sum = aril_sum(aril_cast(x, ARIL_F64), ARIL_ALL);
    return aril_item(sum) / (double)aril_numel(x);
}

/* One of each kind, from the generator's current state. */
enum { KINDS = 9 };
static aril_tensor *make(int kind, int64_t n)
{
    aril_device cpu = test_device();
    switch (kind) {
    case 0: return aril_rand(ARIL_SHAPE(n), ARIL_F32, cpu);
    case 1: return aril_randn(ARIL_SHAPE(n), ARIL_F32, cpu);
    case 2: return aril_rand(ARIL_SHAPE(n), ARIL_F64, cpu);
    case 3: return aril_randn(ARIL_SHAPE(n), ARIL_F64, cpu);
    case 4: return aril_randn(ARIL_SHAPE(n), ARIL_BF16, cpu);
    case 5: return aril_randint(-5, 1000, ARIL_SHAPE(n), ARIL_I64, cpu);
    case 6: return aril_randperm(n, ARIL_I64, cpu);
    case 7: return aril_bernoulli(aril_full(ARIL_SHAPE(n), 0.3, ARIL_F32, cpu));
    default: return aril_bernoulli_(aril_empty(ARIL_SHAPE(n), ARIL_BOOL, cpu), 0.6);
    }
}

TEST(random_does_not_depend_on_threads)
{
    int before = aril_threads();
    for (int kind = 0; kind < KINDS; kind++) {
        ARIL_SCOPE;
        aril_seed(7);
        aril_set_threads(1);
        aril_tensor *one = make(kind, 100003);
        for (int threads = 2; threads <= 7; threads += 5) {
            aril_seed(7);
            aril_set_threads(threads);
            aril_tensor *many = make(kind, 100003);
            CHECK_MSG(same(one, many), "kind %d with %d threads", kind, threads);
        }
    }
    aril_set_threads(before);
    CHECK(aril_ok());
}

/* Element i is the same whatever the size and shape of the tensor (except in randperm). */
TEST(random_element_depends_only_on_its_index)
{
    for (int kind = 0; kind < KINDS; kind++) {
        ARIL_SCOPE;
        if (kind == 6) continue;
        aril_seed(11);
        aril_tensor *large = make(kind, 70001);
        for (int64_t n = 1; n < 3000; n = n * 3 + 1) {
            aril_seed(11);
            CHECK(same(make(kind, n), aril_narrow(large, 0, 0, n)));
        }
    }
    ARIL_SCOPE;
    aril_seed(11);
    aril_tensor *flat = aril_randn(ARIL_SHAPE(24), ARIL_F32, test_device());
    aril_seed(11);
    aril_tensor *cube = aril_randn(ARIL_SHAPE(2, 3, 4), ARIL_F32, test_device());
    CHECK(same(flat, cube));
    aril_seed(11); /* in-place, through a transposed view: logical order counts */
    aril_tensor *back = aril_empty(ARIL_SHAPE(4, 6), ARIL_F32, test_device());
    aril_normal_(aril_t(back), 0, 1);
    CHECK(same(aril_reshape(flat, ARIL_SHAPE(6, 4)), aril_contiguous(aril_t(back))));
}

/* Numbers like those of a channels-last image are in its order in memory, and the same. */
TEST(random_like_keeps_the_order)
{
    for (int normal = 0; normal < 2; normal++) {
        ARIL_SCOPE;
        aril_tensor *x = aril_zeros(ARIL_SHAPE(2, 5, 30, 41), ARIL_F32, test_device());
        aril_seed(3);
        aril_tensor *plain = normal ? aril_randn_like(x) : aril_rand_like(x);
        aril_seed(3);
        aril_tensor *image = aril_channels_last(x);
        aril_tensor *last = normal ? aril_randn_like(image) : aril_rand_like(image);
        CHECK(!aril_is_channels_last(plain) && aril_is_channels_last(last));
        CHECK(same(plain, aril_contiguous(last)));
    }
    CHECK(aril_ok());
}

TEST(random_matches_the_generator)
{
    ARIL_SCOPE;
    aril_seed(123);
    aril_tensor *a = aril_rand(ARIL_SHAPE(1000), ARIL_F32, test_device());
    aril_tensor *b = aril_randn(ARIL_SHAPE(1001), ARIL_F64, test_device());
    float f[1000];
    double d[1001];
    aril__rng_uniform_f32((aril__rng_key){ 123, 0 }, 0, 1000, f);
    aril__rng_normal_f64((aril__rng_key){ 123, 1 }, 0, 1001, d);
    CHECK(memcmp(f, aril_data(a), sizeof f) == 0);
    CHECK(memcmp(d, aril_data(b), sizeof d) == 0);
}

TEST(random_half_precision_is_f32_rounded)
{
    ARIL_SCOPE;
    for (int dtype = ARIL_F16; dtype <= ARIL_BF16; dtype++) {
        aril_seed(5);
        aril_tensor *f = aril_randn(ARIL_SHAPE(5000), ARIL_F32, test_device());
        aril_seed(5);
        aril_tensor *h = aril_randn(ARIL_SHAPE(5000), (aril_dtype)dtype, test_device());
        CHECK(same(aril_cast(f, (aril_dtype)dtype), h));
        aril_tensor *u = aril_rand(ARIL_SHAPE(200000), (aril_dtype)dtype, test_device());
        CHECK_INT(aril_item_int(aril_sum(aril_ge_scalar(u, 1), ARIL_ALL)), 0); /* never 1 itself */
    }
}

TEST(random_each_call_advances_by_one)
{
    ARIL_SCOPE;
    aril_generator *g = aril_default_generator();
    aril_seed(1);
    uint64_t calls = 0;
    for (int kind = 0; kind < KINDS; kind++) {
        make(kind, kind * 10);
        CHECK_INT(aril_generator_state(g).calls, ++calls);
    }
    aril_tensor *x = aril_zeros(ARIL_SHAPE(3), ARIL_F32, test_device());
    aril_rand_like(x);
    aril_randn_like(x);
    aril_bernoulli_like(x, 0.5);
    aril_uniform_(x, 0, 1);
    aril_normal_(x, 0, 1);
    aril_normal(x, x);
    aril_uniform(x, x);
    CHECK_INT(aril_generator_state(g).calls, calls + 7);
    /* Failed calls draw nothing. */
    aril_rand(ARIL_SHAPE(-1), ARIL_F32, test_device());
    aril_randint(3, 3, ARIL_SHAPE(2), ARIL_I64, test_device());
    aril_bernoulli_(x, 2);
    CHECK_INT(aril_generator_state(g).calls, calls + 7);
    aril_clear_error();
}

TEST(random_generators_save_and_restore)
{
    ARIL_SCOPE;
    aril_generator *g = aril_generator_new(42);
    aril_device cpu = test_device();
    aril_tensor *first = aril_rand_from(g, ARIL_SHAPE(10), ARIL_F32, cpu);
    aril_rng_state here = aril_generator_state(g);
    aril_tensor *a = aril_randn_from(g, ARIL_SHAPE(10), ARIL_F32, cpu);
    aril_tensor *b = aril_randint_from(g, 0, 100, ARIL_SHAPE(10), ARIL_I32, cpu);
    aril_tensor *c = aril_randperm_from(g, 10, ARIL_I32, cpu);
    aril_tensor *d = aril_bernoulli_from(g, first);
    aril_tensor *e = aril_uniform_from_(g, aril_empty_like(first), -1, 1);
    aril_tensor *f = aril_normal_from_(g, aril_empty_like(first), 3, 2);
    aril_tensor *h = aril_normal_from(g, first, first);
    aril_tensor *i = aril_uniform_from(g, aril_neg(first), first);
    aril_generator_set_state(g, here);
    CHECK(same(a, aril_randn_from(g, ARIL_SHAPE(10), ARIL_F32, cpu)));
    CHECK(same(b, aril_randint_from(g, 0, 100, ARIL_SHAPE(10), ARIL_I32, cpu)));
    CHECK(same(c, aril_randperm_from(g, 10, ARIL_I32, cpu)));
    CHECK(same(d, aril_bernoulli_from(g, first)));
    CHECK(same(e, aril_uniform_from_(g, aril_empty_like(first), -1, 1)));
    CHECK(same(f, aril_normal_from_(g, aril_empty_like(first), 3, 2)));
    CHECK(same(h, aril_normal_from(g, first, first)));
    CHECK(same(i, aril_uniform_from(g, aril_neg(first), first)));
    /* Generators with one seed agree; another seed does not. */
    aril_generator_seed(g, 42);
    CHECK(same(first, aril_rand_from(g, ARIL_SHAPE(10), ARIL_F32, cpu)));
    aril_generator_seed(g, 43);
    CHECK(!same(first, aril_rand_from(g, ARIL_SHAPE(10), ARIL_F32, cpu)));
    aril_generator_free(g);
    aril_seed(42);
    CHECK(same(first, aril_rand(ARIL_SHAPE(10), ARIL_F32, cpu)));
    CHECK(!same(first, aril_rand(ARIL_SHAPE(10), ARIL_F32, cpu)));
    CHECK(aril_ok());
}

TEST(random_statistics)
{
    ARIL_SCOPE;
    enum { N = 200000 };
    aril_device cpu = test_device();
    aril_seed(0);
    for (int dtype = ARIL_F32; dtype <= ARIL_F64; dtype++) {
        aril_tensor *u = aril_rand(ARIL_SHAPE(N), (aril_dtype)dtype, cpu);
        CHECK_NEAR(mean_of(u), 0.5, 0.003);
        CHECK_NEAR(mean_of(aril_square(u)), 1.0 / 3, 0.003);
        aril_tensor *z = aril_randn(ARIL_SHAPE(N), (aril_dtype)dtype, cpu);
        CHECK_NEAR(mean_of(z), 0, 0.01);
        CHECK_NEAR(mean_of(aril_square(z)), 1, 0.02);
        CHECK_NEAR(mean_of(aril_square(aril_square(z))), 3, 0.15);
        aril_tensor *w = aril_uniform_(aril_empty_like(u), -3, 5);
        CHECK_NEAR(mean_of(w), 1, 0.03);
        CHECK_INT(aril_item_int(aril_sum(aril_lt_scalar(w, -3), ARIL_ALL)), 0);
        CHECK_INT(aril_item_int(aril_sum(aril_ge_scalar(w, 5), ARIL_ALL)), 0);
        aril_tensor *v = aril_normal_(aril_empty_like(u), -2, 0.5);
        CHECK_NEAR(mean_of(v), -2, 0.01);
        CHECK_NEAR(mean_of(aril_square(aril_add_scalar(v, 2))), 0.25, 0.01);
        CHECK_NEAR(mean_of(aril_bernoulli(aril_full(ARIL_SHAPE(N), 0.3, (aril_dtype)dtype, cpu))),
                   0.3, 0.01);
        CHECK_NEAR(mean_of(aril_bernoulli_like(u, 0.8)), 0.8, 0.01);
    }
    aril_tensor *k = aril_randint(-2, 3, ARIL_SHAPE(N), ARIL_I8, cpu);
    for (int v = -3; v <= 3; v++) {
        double share = (double)aril_item_int(aril_sum(aril_eq_scalar(k, v), ARIL_ALL)) / N;
        CHECK_NEAR(share, v < -2 || v > 2 ? 0 : 0.2, 0.01);
    }
    aril_tensor *edge = aril_ones(ARIL_SHAPE(1000), ARIL_F32, cpu);
    CHECK_NEAR(mean_of(aril_bernoulli(edge)), 1, 0);
    CHECK_NEAR(mean_of(aril_bernoulli(aril_zeros_like(edge))), 0, 0);
    CHECK(aril_ok());
}

TEST(random_permutations)
{
    ARIL_SCOPE;
    aril_seed(3);
    const int64_t sizes[] = { 0, 1, 2, 3, 100, 511, 512, 513, 65537 };
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int64_t n = sizes[s];
        aril_tensor *p = aril_randperm(n, ARIL_I64, test_device());
        CHECK_INT(aril_numel(p), n);
        const int64_t *at = aril_data(p);
        char *seen = calloc((size_t)n + 1, 1);
        CHECK(seen);
        int64_t distinct = 0;
        for (int64_t i = 0; i < n; i++) {
            bool fresh = at[i] >= 0 && at[i] < n && !seen[at[i]];
            distinct += fresh;
            if (fresh) seen[at[i]] = 1;
        }
        free(seen);
        CHECK_INT(distinct, n);
    }
    /* The permutation that sorts the generator's draws; of the largest, some agree in as many bits
     * as are compared at once. */
    const int64_t sorted[] = { 3000, 70001, 1 << 22 };
    for (size_t s = 0; s < sizeof sorted / sizeof *sorted; s++) {
        aril_seed(21);
        int64_t n = sorted[s], wrong = 0;
        const int64_t *order = aril_data(aril_randperm(n, ARIL_I64, test_device()));
        uint64_t *draws = malloc((size_t)n * sizeof *draws);
        CHECK(draws);
        aril__rng_u64((aril__rng_key){ 21, 0 }, 0, n, draws);
        for (int64_t i = 1; i < n; i++) wrong += draws[order[i - 1]] >= draws[order[i]];
        free(draws);
        CHECK_INT(wrong, 0);
    }
    /* All permutations of three are equally likely. */
    int count[27] = { 0 };
    for (int i = 0; i < 6000; i++) {
        ARIL_SCOPE;
        const int64_t *p = aril_data(aril_randperm(3, ARIL_I64, test_device()));
        count[p[0] * 9 + p[1] * 3 + p[2]]++;
    }
    int orders = 0;
    for (int i = 0; i < 27; i++) {
        orders += count[i] > 0;
        CHECK(count[i] == 0 || (count[i] > 850 && count[i] < 1150));
    }
    CHECK_INT(orders, 6);
}

TEST(random_parameters_get_gradients)
{
    ARIL_SCOPE;
    aril_tensor *mean = aril_zeros(ARIL_SHAPE(3), ARIL_F64, test_device());
    aril_tensor *std = aril_ones(ARIL_SHAPE(1000, 1), ARIL_F64, test_device()), *grad[2];
    aril_set_requires_grad(mean, true);
    aril_set_requires_grad(std, true);
    aril_seed(9);
    aril_tensor *y = aril_normal(mean, std); /* [1000,3] */
    CHECK_INT(aril_size(y, 0), 1000);
    CHECK_INT(aril_size(y, 1), 3);
    CHECK_INT(aril_gradients(aril_sum(y, ARIL_ALL), ARIL_LIST(mean, std), grad,
                             (aril_grad_opts){ 0 }),
              ARIL_OK);
    CHECK_NEAR(aril_item(aril_select(grad[0], 0, 1)), 1000, 0);
    /* d/dstd is the noise itself: y with mean 0 and deviation 1, summed over each row. */
    aril_tensor *rows = aril_sum(aril_detach(y), ARIL_KEEPDIM(1));
    CHECK_NEAR(aril_item(aril_sum(aril_abs(aril_sub(rows, grad[1])), ARIL_ALL)), 0, 1e-9);
    /* No gradient flows through the numbers themselves. */
    CHECK(!aril_requires_grad(aril_rand_like(mean)));
    CHECK(!aril_requires_grad(aril_bernoulli(aril_sigmoid(mean))));
    CHECK(aril_ok());
}

TEST(random_in_place_clears_the_gradient)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_ones(ARIL_SHAPE(4), ARIL_F32, test_device()), *grad[1];
    aril_set_requires_grad(x, true);
    aril_tensor *y = aril_mul_scalar(x, 3);
    aril_uniform_(aril_narrow(y, 0, 0, 2), 0, 1);
    CHECK_INT(aril_gradients(aril_sum(y, ARIL_ALL), ARIL_LIST(x), grad, (aril_grad_opts){ 0 }),
              ARIL_OK);
    const float want[4] = { 0, 0, 3, 3 };
    CHECK(memcmp(aril_data(grad[0]), want, sizeof want) == 0);
}

static void wrong(aril_tensor *t, aril_status code, const char *part)
{
    CHECK_INT(aril_tensor_status(t), code);
    CHECK_MSG(strstr(aril_tensor_error(t), part), "message: %s", aril_tensor_error(t));
    aril_clear_error();
}

TEST(random_invalid_calls)
{
    ARIL_SCOPE;
    aril_device cpu = test_device();
    aril_tensor *x = aril_ones(ARIL_SHAPE(2), ARIL_F32, cpu);
    wrong(aril_rand(ARIL_SHAPE(2), ARIL_I64, cpu), ARIL_ERR_DTYPE,
          "rand: expected a floating-point dtype");
    wrong(aril_randn(ARIL_SHAPE(2, -3), ARIL_F32, cpu), ARIL_ERR_SHAPE, "randn");
    wrong(aril_randint(5, 5, ARIL_SHAPE(2), ARIL_I64, cpu), ARIL_ERR_ARG, "randint: the range");
    wrong(aril_randint(0, 300, ARIL_SHAPE(2), ARIL_U8, cpu), ARIL_ERR_ARG, "u8 cannot represent");
    wrong(aril_randint(-1, 3, ARIL_SHAPE(2), ARIL_U64, cpu), ARIL_ERR_ARG, "u64 cannot represent");
    wrong(aril_randint(INT64_MIN, INT64_MAX, ARIL_SHAPE(2), ARIL_I64, cpu), ARIL_ERR_ARG,
          "randint: the range");
    wrong(aril_randperm(-1, ARIL_I64, cpu), ARIL_ERR_SHAPE, "randperm");
    wrong(aril_bernoulli(aril_mul_scalar(x, 1.5)), ARIL_ERR_ARG, "from 0 to 1, got 1.5");
    wrong(aril_bernoulli(aril_cast(x, ARIL_I64)), ARIL_ERR_DTYPE, "bernoulli");
    wrong(aril_bernoulli_(x, -0.1), ARIL_ERR_ARG, "from 0 to 1, got -0.1");
    wrong(aril_uniform_(x, 2, 1), ARIL_ERR_ARG, "uniform_: invalid range from 2 to 1");
    wrong(aril_normal_(x, 0, -1), ARIL_ERR_ARG, "invalid standard deviation -1");
    wrong(aril_uniform_(aril_cast(x, ARIL_I32), 0, 1), ARIL_ERR_DTYPE, "floating-point");
    wrong(aril_normal_(NULL, 0, 1), ARIL_ERR_ARG, "NULL");
    wrong(aril_rand_like(NULL), ARIL_ERR_ARG, "NULL");
    wrong(aril_bernoulli(NULL), ARIL_ERR_ARG, "NULL");
    wrong(aril_uniform_(aril_expand(x, ARIL_SHAPE(3, 2)), 0, 1), ARIL_ERR_STATE, "share memory");
    wrong(aril_randn(ARIL_SHAPE(2), ARIL_F8E5M2, cpu), ARIL_ERR_DTYPE, "f8e5m2");
}

/* ---- kernels and references ---- */

static const int64_t counts[] = { 1, 255, 256, 257, 511, 512, 513, 1100 };
static const aril_dtype computing[] = { ARIL_F64, ARIL_F32, ARIL_F16, ARIL_BF16, ARIL_I64,
                                        ARIL_I8,  ARIL_U64, ARIL_U8,  ARIL_BOOL };

TEST(random_numbers_equal_their_reference)
{
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (size_t k = 0; k < sizeof computing / sizeof *computing; k++) {
            ARIL_SCOPE;
            aril_tensor *key = aril__rng_draw(NULL);
            struct create_attrs a = { .ndim = { 1 },
                                      .dim = { counts[i] },
                                      .dtype = { computing[k] },
                                      .value = { 0.25, 0.75 },
                                      .integer = { 0, 1, 2 } };
            test_rows_equal(&aril__op_randint, 1, &key, &a);
            test_rows_equal(&aril__op_bernoulli_fill, 1, &key, &a);
            if (!aril_dtype_is_float(computing[k])) continue;
            for (int round = 0; round < 2; round++) {
                test_rows_equal(&aril__op_rand, 1, &key, &a);
                test_rows_equal(&aril__op_randn, 1, &key, &a);
                a.value[0] = 0; /* the standard distributions */
                a.value[1] = 1;
            }
            aril_tensor *p = aril_rand(ARIL_SHAPE(counts[i]), computing[k], test_device());
            test_rows_equal(&aril__op_bernoulli, 2, (aril_tensor *[]){ key, p }, NULL);
        }
}

TEST(permutations_equal_their_reference)
{
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        ARIL_SCOPE;
        aril_tensor *key = aril__rng_draw(NULL);
        struct create_attrs a = { .ndim = { 1 }, .dim = { counts[i] }, .dtype = { ARIL_I64 } };
        test_rows_equal(&aril__op_randperm, 1, &key, &a);
    }
}

TEST(dropout_equals_its_reference)
{
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int k = 0; k < 8; k++) {
            ARIL_SCOPE;
            struct dropout_attrs a = {
                { 0.3 }, { k % 2 ? 2 : -1 }, { 1.3 }, { k < 4 ? 0 : 0.3 }, { k < 4 ? 0 : -1.7 }
            };
            aril_tensor *x =
                aril_randn(ARIL_SHAPE(3, counts[i], 5), computing[k / 2], test_device());
            test_rows_equal(&aril__op_dropout, 2, (aril_tensor *[]){ aril__rng_draw(NULL), x }, &a);
        }
}
