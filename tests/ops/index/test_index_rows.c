/* Kernels that index against their references, on sizes around their blocks and on sizes that
 * several threads share. */
#include "aril/aril.h"
#include "support/reference.h"
#include "support/test.h"

#include <math.h>

static const aril_dtype dtypes[] = { ARIL_F32, ARIL_F64, ARIL_F16, ARIL_BF16,
                                     ARIL_I64, ARIL_U64, ARIL_U8,  ARIL_BOOL };
enum { DTYPES = sizeof dtypes / sizeof *dtypes, REALS = 4 };

static aril_tensor *values(aril_shape shape, aril_dtype dtype)
{
    if (aril_dtype_is_float(dtype))
        return aril_cast(aril_randn(shape, ARIL_F32, aril_cpu()), dtype);
    return aril_cast(aril_randint(0, 100, shape, ARIL_I64, aril_cpu()), dtype);
}

static aril_tensor *indices(int64_t low, int64_t high, aril_shape shape)
{
    return aril_randint(low, high, shape, ARIL_I64, aril_cpu());
}

/* Inputs besides the first, made once for both runs. */
static aril_tensor *more[3];

/* ---- gather and scatter ---- */

static int gathered(aril_tensor *x, aril_tensor **out)
{
    out[0] = aril_gather(x, more[0], 0);
    out[1] = aril_gather(x, more[1], 1);
    return 2;
}

static int scattered(aril_tensor *x, aril_tensor **out)
{
    out[0] = aril_scatter(x, more[0], aril_scalar(1), 0);
    out[1] = aril_scatter_add(x, more[1], more[2], 1);
    out[2] = aril_scatter_add(x, more[0], more[2], 0);
    return 3;
}

static int combined(aril_tensor *x, aril_tensor **out)
{
    aril_scatter_opts alone = { .exclude_self = true };
    out[0] = aril_scatter_max(x, more[1], more[2], 1, alone);
    out[1] = aril_scatter_min(x, more[0], more[2], 0, (aril_scatter_opts){ 0 });
    out[2] = aril_scatter_min(x, more[0], more[2], 0, alone);
    return 3;
}

static int multiplied(aril_tensor *x, aril_tensor **out)
{
    out[0] = aril_scatter_mul(x, more[1], more[2], 1, (aril_scatter_opts){ 0 });
    out[1] = aril_scatter_mul(x, more[1], more[2], 1, (aril_scatter_opts){ .exclude_self = true });
    return 2;
}

TEST(gather_and_scatter)
{
    static const int64_t sizes[][2] = { { 1, 1 }, { 3, 2047 }, { 3, 2049 }, { 130, 150 } };
    for (int i = 0; i < DTYPES; i++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes && !test_failed(); k++) {
            ARIL_SCOPE;
            int64_t m = sizes[k][0], n = sizes[k][1];
            aril_tensor *x = values(ARIL_SHAPE(m, n), dtypes[i]);
            for (int negative = 0; negative < 2; negative++) {
                more[0] = indices(negative ? -m : 0, m, ARIL_SHAPE(m, n));
                more[1] = indices(negative ? -n : 0, n, ARIL_SHAPE(m, n));
                more[2] = values(ARIL_SHAPE(m, n), dtypes[i]);
                if (i < REALS && m > 1)
                    aril_copy_(aril_narrow(aril_select(more[2], 0, 1), 0, 0, 1),
                               aril_full(ARIL_SHAPE(1), NAN, dtypes[i], aril_cpu()));
                test_against_reference("gather", gathered, x, 0);
                test_against_reference("gather", gathered,
                                       aril_transpose(values(ARIL_SHAPE(n, m), dtypes[i]), 0, 1),
                                       0);
                test_against_reference("scatter", scattered, x, 0);
                test_against_reference("scatter_max, scatter_min", combined, x, 0);
                if (k < 3) test_against_reference("scatter_mul", multiplied, x, 0);
            }
            more[0] = indices(m, m + 1, ARIL_SHAPE(m, n));
            more[1] = indices(-n - 1, -n, ARIL_SHAPE(m, n));
            test_both_refuse("gather, out of range", gathered, x);
            test_both_refuse("scatter, out of range", scattered, x);
        }
}

/* ---- index tensors ---- */

static int indexed(aril_tensor *x, aril_tensor **out)
{
    out[0] = aril_index_select(x, more[0], 0);
    out[1] = aril_index_select(x, more[1], 1);
    out[2] = aril_index(x, ARIL_INDEX(ARIL_BY(more[0]), ARIL_BY(aril_narrow(more[1], 0, 0, 1))));
    return 3;
}

static int written(aril_tensor *x, aril_tensor **out)
{
    out[0] = aril_index_add(x, more[0], aril_index_select(x, more[0], 0), 0);
    out[1] = aril_index_add(x, more[1], aril_index_select(x, more[1], 1), 1);
    out[2] = aril_index_put(x, ARIL_INDEX(ARIL_BY(more[0])), more[2], false);
    return 3;
}

TEST(index_tensors)
{
    static const int64_t widths[] = { 1, 2, 4, 8, 15, 16, 17, 100 };
    for (int i = 0; i < DTYPES; i++)
        for (size_t k = 0; k < sizeof widths / sizeof *widths && !test_failed(); k++) {
            ARIL_SCOPE;
            int64_t n = widths[k];
            aril_tensor *x = values(ARIL_SHAPE(70, n), dtypes[i]);
            more[2] = values(ARIL_SHAPE(n), dtypes[i]);
            for (int64_t count = 3; count < 400; count *= 5) {
                more[0] = indices(-70, 70, ARIL_SHAPE(count));
                more[1] = indices(-n, n, ARIL_SHAPE(count));
                test_against_reference("index", indexed, x, 0);
                test_against_reference("index_add, index_put", written, x, 0);
                aril_tensor *turned = aril_transpose(values(ARIL_SHAPE(n, 70), dtypes[i]), 0, 1);
                test_against_reference("index", indexed, turned, 0);
                test_against_reference("index_add, index_put", written, turned, 0);
            }
            more[0] = indices(60, 71, ARIL_SHAPE(500));
            test_both_refuse("index, out of range", indexed, x);
            test_both_refuse("index_add, out of range", written, x);
        }
}

/* ---- masks ---- */

static int masked(aril_tensor *x, aril_tensor **out)
{
    out[0] = aril_masked_select(x, more[0]);
    out[1] = aril_masked_scatter(x, more[0], more[1]);
    out[2] = aril_nonzero(x);
    return 3;
}

TEST(masks)
{
    static const int64_t widths[] = { 1, 31, 32, 63, 64, 65, 511, 513 };
    for (int i = 0; i < DTYPES; i++)
        for (size_t k = 0; k < sizeof widths / sizeof *widths && !test_failed(); k++) {
            ARIL_SCOPE;
            int64_t n = widths[k];
            aril_tensor *x = aril_cast(indices(0, 3, ARIL_SHAPE(70, n)), dtypes[i]);
            more[0] = aril_cast(indices(0, 2, ARIL_SHAPE(70, n)), ARIL_BOOL);
            more[1] = values(ARIL_SHAPE(n, 70), dtypes[i]);
            test_against_reference("masks", masked, x, 0);
            more[0] = aril_cast(indices(0, 2, ARIL_SHAPE(70, 1)), ARIL_BOOL);
            test_against_reference("masks", masked, x, 0);
            test_against_reference("masks", masked, aril_reshape(x, ARIL_SHAPE(1, 70, n)), 0);
            more[1] = values(ARIL_SHAPE(1), dtypes[i]);
            test_both_refuse("masks, too few elements", masked, x);
        }
}

/* ---- embeddings ---- */

static aril_tensor *bag(aril_tensor *x, aril_reduction mode, aril_tensor *weights)
{
    return aril_embedding_bag(more[0], x, more[1],
                              (aril_embedding_bag_opts){
                                  .mode = mode, .per_sample_weights = weights, .padding_idx = 2 });
}

static int bags(aril_tensor *x, aril_tensor **out)
{
    out[0] = bag(x, ARIL_MEAN, NULL);
    out[1] = bag(x, ARIL_SUM, more[2]);
    out[2] = aril_embedding(more[0], x, (aril_embedding_opts){ .padding_idx = 2 });
    return 3;
}

TEST(embedding_bags)
{
    static const int64_t widths[] = { 1, 63, 64, 65, 200 };
    for (int i = 0; i < REALS; i++)
        for (size_t k = 0; k < sizeof widths / sizeof *widths && !test_failed(); k++) {
            ARIL_SCOPE;
            aril_tensor *weight = values(ARIL_SHAPE(20, widths[k]), dtypes[i]);
            more[0] = indices(0, 20, ARIL_SHAPE(300));
            more[1] = aril_arange(0, 300, 7, ARIL_I64, aril_cpu());
            more[2] = values(ARIL_SHAPE(300), dtypes[i]);
            test_against_reference("embedding_bag", bags, weight, 0);
            more[0] = indices(15, 21, ARIL_SHAPE(300));
            test_both_refuse("embedding_bag, out of range", bags, weight);
        }
}
