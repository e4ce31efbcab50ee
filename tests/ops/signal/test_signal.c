/* Fourier transforms and frames: kernels against the plain sums of the references, at lengths that
 * reach every pass, and with as many rows as are transformed side by side, more and fewer. */
#include "aril/aril.h"
#include "ops/signal/fft.h"
#include "support/agree.h"
#include "support/device.h"
#include "support/ops.h"
#include "support/test.h"

/* Factors 2 to 5, pairs of them, larger ones, and lengths without small factors. */
static const int64_t lengths[] = { 1,  2,  3,  4,  5,  6,  8,  9,   12,  16,  25,  30,
                                   31, 37, 49, 62, 64, 74, 80, 100, 127, 128, 155, 240 };

TEST(transforms_match_the_definition)
{
    static const int64_t rows[] = { 1, 3, 16, 21 };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
            ARIL_SCOPE;
            int64_t n = lengths[i], half = n / 2 + 1;
            struct fft_attrs a = {
                { (int64_t)(i + k) % 2 }, { (int64_t)i % 3 }, { (int64_t)(k / 2) }, { n }
            };
            aril_tensor *x = aril_randn(ARIL_SHAPE(rows[k], n, 2), ARIL_F64, test_device());
            test_rows_agree(&aril__op_fft_c2c, 1, &x, &a);
            aril_tensor *re = aril_select(x, 2, 0), *few = aril_slice(x, 1, 0, half, 1);
            test_rows_agree(&aril__op_fft_r2c, 1, &re, &a);
            test_rows_agree(&aril__op_fft_c2r, 1, &few, &a);
        }
}

TEST(long_transform_matches_the_definition)
{
    ARIL_SCOPE;
    struct fft_attrs a = { { 0 }, { 1 }, { 0 }, { 0 } };
    aril_tensor *x = aril_randn(ARIL_SHAPE(2, 4097, 2), ARIL_F64, test_device());
    test_rows_agree(&aril__op_fft_c2c, 1, &x, &a);
    aril_tensor *real = aril_randn(ARIL_SHAPE(2, 8192 + 64), ARIL_F64, test_device());
    aril_tensor *half = aril_randn(ARIL_SHAPE(2, 4096 + 33, 2), ARIL_F64, test_device());
    a.n[0] = 8192 + 64;
    test_rows_agree(&aril__op_fft_r2c, 1, &real, &a);
    test_rows_agree(&aril__op_fft_c2r, 1, &half, &a);
}

TEST(frames_match_their_reference)
{
    static const struct frames_attrs all[] = { { { 5 }, { 2 }, { 0 }, { 0 }, { 0 } },
                                               { { 64 }, { 16 }, { 32 }, { 1 }, { 0 } },
                                               { { 64 }, { 48 }, { 32 }, { 0 }, { 0 } },
                                               { { 7 }, { 9 }, { 3 }, { 0 }, { 100 } } };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ARIL_SCOPE;
        aril_tensor *x = aril_randn(ARIL_SHAPE(3, 200), ARIL_F64, test_device());
        aril_tensor *f = aril_randn(ARIL_SHAPE(3, 9, all[i].size[0]), ARIL_F64, test_device());
        test_rows_agree(&aril__op_frames, 1, &x, &all[i]);
        test_rows_agree(&aril__op_overlap_add, 1, &f, &all[i]);
    }
}
