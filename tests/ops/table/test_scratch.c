/* No kernel allocates while it runs: each asks for its scratch memory before. Every row and the
 * reference of every op run on every sample with the allocator closed. Set ARIL_TEST_OP=name in the
 * environment to run a single op. */
#include "aril/aril.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "ops/table/apply.h"
#include "ops/table/rows.h"
#include "support/run_op.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS = 4 }; /* the maximum of kernel rows that accept a call; past them the reference runs */

static int runs;

static void check_row(const test_sample *s, aril_tensor *const *in, aril_dtype dtype, int row)
{
    ARIL_SCOPE;
    aril_tensor *out[TEST_RESULTS];
    aril__allocations_watch_start();
    aril_status status = test_run_row(s, in, row, out);
    aril__allocation_watch seen = aril__allocations_watch_end();
    if (status < 0) return; /* other tests check that */
    runs++;
    if (seen.count)
        test_fail(__FILE__, __LINE__, "%s, %s, %d threads: %s by %s allocates %lld times in run",
                  s->name, aril_dtype_name(dtype), aril_threads(), seen.op, seen.by,
                  (long long)seen.count);
}

/* The same values, with the axes in reverse order in memory. */
static aril_tensor *transposed(aril_tensor *t)
{
    aril_axes axes = { .n = aril_ndim(t) };
    for (int i = 0; i < axes.n; i++) axes.axis[i] = axes.n - 1 - i;
    return axes.n > 1 ? aril_permute(aril_contiguous(aril_permute(t, axes)), axes) : t;
}

/* All rows on other strides: what kernels of any strides copy is scratch memory, too. */
static void check_strides(const test_sample *s, aril_tensor *const *in, aril_dtype dtype)
{
    for (int row = -1; row <= ROWS; row++) {
        ARIL_SCOPE;
        aril_tensor *other[TEST_INPUTS], *out[TEST_RESULTS];
        test_copies(s, in, other); /* some ops write to their inputs */
        for (int i = 0; i < s->n_in; i++)
            if (other[i] && strcmp(s->word[i], "key") != 0) other[i] = transposed(other[i]);
        aril__allocations_watch_start();
        aril__force_row = row;
        aril_status status = aril__apply(s->op, s->n_in, other, s->attrs, out);
        aril__force_row = -1;
        aril__allocation_watch seen = aril__allocations_watch_end();
        aril_clear_error();
        if (status == ARIL_OK && seen.count)
            test_fail(__FILE__, __LINE__,
                      "%s, %s, transposed: %s by %s allocates %lld times in run", s->name,
                      aril_dtype_name(dtype), seen.op, seen.by, (long long)seen.count);
    }
}

/* Inputs of a size that threads share, if the sample can be enlarged. */
static int64_t batch_for_threads(const test_sample *s, aril_tensor *const *in)
{
    int64_t numel = 1;
    for (int i = 0; i < s->n_in; i++)
        if (in[i] && test_sample_batched(s, i) && aril_numel(in[i]) > numel)
            numel = aril_numel(in[i]);
    return s->flags & SAMPLE_BATCH ? 60000 / numel + 3 : 0;
}

static void check_sample(const test_sample *s)
{
    static const aril_dtype dtypes[] = { ARIL_F64, ARIL_F32, ARIL_BF16, ARIL_I64, ARIL_U8 };
    ARIL_NO_GRAD;
    if (ARIL__IS_VIEW(s->op->out[0])) return;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        ARIL_SCOPE;
        aril_tensor *in[TEST_INPUTS];
        if (test_untyped(s) && i > 0) break;
        test_working_on(aril_dtype_name(dtypes[i]), s);
        if (!test_sample_inputs(s, dtypes[i], 0, in)) continue;
        for (int row = -1; row <= ROWS; row++) check_row(s, in, dtypes[i], row);
        if (dtypes[i] == ARIL_F32 || test_untyped(s)) check_strides(s, in, dtypes[i]);
        int64_t batch = batch_for_threads(s, in);
        if (dtypes[i] != ARIL_F32 || !test_sample_inputs(s, dtypes[i], batch, in)) continue;
        aril_set_threads(3);
        for (int row = -1; row < ROWS; row++) check_row(s, in, dtypes[i], row);
        aril_set_threads(0);
    }
}

TEST(no_kernel_allocates_while_it_runs)
{
    test_each_sample(check_sample);
    if (!getenv("ARIL_TEST_OP")) CHECK(runs > 10000);
    printf("      %d kernel runs\n", runs);
}

/* ---- the watch itself ---- */

static void allocate_in_worker(void *ctx, int64_t begin, int64_t end)
{
    (void)ctx;
    for (; begin < end; begin++) free(aril__malloc(8));
}

TEST(watch_reports_allocations_of_every_thread)
{
    aril__allocations_watch_start();
    free(aril__malloc(8)); /* open */
    bool before = aril__allocations_close("an op", "a kernel");
    aril_set_threads(3);
    aril__parallel_for(64, 1, allocate_in_worker, NULL);
    aril_set_threads(0);
    void *p = aril__device_alloc(aril__cpu_device, 64);
    aril__allocations_allow();
    free(aril__malloc(8));
    aril__allocations_allow_end();
    aril__allocations_reopen(before);
    aril__device_free(aril__cpu_device, p, 64);
    free(aril__malloc(8)); /* open again */
    aril__allocation_watch seen = aril__allocations_watch_end();
    CHECK(seen.count == 65);
    CHECK(strcmp(seen.op, "an op") == 0 && strcmp(seen.by, "a kernel") == 0);
}
