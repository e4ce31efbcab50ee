/* Datasets, samplers and loaders in the calling thread; threads are in test_thread_loader.c. */
#include "aril/aril.h"
#include "support/test.h"

#include <string.h>

static aril_tensor *counting(int64_t n, int64_t row)
{
    aril_tensor *t = aril_arange(0, n * row, 1, ARIL_I64, aril_cpu());
    return aril_reshape(t, ARIL_SHAPE(n, row));
}

TEST(tensors_in_order)
{
    ARIL_SCOPE;
    aril_tensor *x = counting(10, 3);
    aril_loader *l = aril_loader_new(aril_dataset_tensors(x, aril_select(x, 1, 0)),
                                     (aril_loader_opts){ .batch = 4 });
    CHECK(l);
    CHECK_INT(aril_loader_length(l), 3);
    for (int epoch = 0; epoch < 2; epoch++) {
        int64_t row = 0;
        for (aril_batch b; aril_loader_next(l, &b);) {
            ARIL_SCOPE;
            CHECK_INT(b.n, row == 8 ? 2 : 4);
            const int64_t *v = aril_data(b.x), *y = aril_data(b.y);
            for (int64_t i = 0; i < b.n; i++) {
                CHECK_INT(v[3 * i + 2], 3 * (row + i) + 2);
                CHECK_INT(y[i], 3 * (row + i));
                CHECK_INT(b.index[i], row + i);
            }
            row += b.n;
        }
        CHECK_INT(row, 10);
    }
    aril_loader_free(l);
    CHECK(aril_ok());
}
