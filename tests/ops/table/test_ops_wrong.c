/* Every op of the table with invalid arguments: NULL, poison, tensors of other shapes and dtypes,
 * indices out of range, no memory. Nothing crashes, nothing leaks, and messages name the op. Set
 * ARIL_TEST_OP=name in the environment to run a single op. */
#include "aril/aril.h"
#include "core/source_location.h"
#include "ops/table/apply.h"
#include "ops/table/rows.h"
#include "support/run_op.h"
#include "support/slopes.h"
#include "support/test.h"

#include <string.h>

/* Samples per op in the longer tests. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SAMPLES = 1 };
#else
enum { SAMPLES = 3 };
#endif

static struct {
    int nulls, poisons, misfits, accepted, indices, failures;
} count;

#define FAIL(s, ...)                                               \
    do {                                                           \
        char text_[400];                                           \
        snprintf(text_, sizeof text_, __VA_ARGS__);                \
        test_fail(__FILE__, __LINE__, "%s: %s", (s)->name, text_); \
    } while (0)

static bool is_optional(const aril__op *op, int i)
{
    return op->optional >> aril__role(op, i) & 1;
}

/* Applies the op to the inputs themselves; on failure all results must be poisoned. */
static aril_status apply(const test_sample *s, aril_tensor *const *in, aril_tensor **out)
{
    aril_status status = aril__apply(s->op, s->n_in, in, s->attrs, out);
    for (int k = 0; k < s->op->n_out; k++) {
        if (!out[k])
            FAIL(s, "result %d is NULL", k);
        else if ((status < 0) != (aril_tensor_status(out[k]) < 0))
            FAIL(s, "result %d does not tell what the status tells", k);
    }
    if ((status < 0) == aril_ok())
        FAIL(s, "status %d, and %s error", status, aril_ok() ? "no" : "an");
    return status;
}

/* ---- NULL and poison ---- */

static void check_null(const test_sample *s)
{
    aril_tensor *in[TEST_INPUTS], *copy[TEST_INPUTS], *out[TEST_RESULTS];
    aril_dtype dtype;
    test_working_on("NULL", s);
    if (!test_best_inputs(s, in, &dtype)) return;
    for (int i = 0; i < s->n_in; i++) {
        ARIL_SCOPE;
        test_copies(s, in, copy);
        copy[i] = NULL;
        if (is_optional(s->op, i))
            continue; /* the op decides whether it is optional given the others */
        count.nulls++;
        aril_status status = apply(s, copy, out);
        if (status != ARIL_ERR_ARG)
            FAIL(s, "input %d is NULL: status %d", i, status);
        else if (strncmp(aril_error(), s->op->name, strlen(s->op->name)) != 0)
            FAIL(s, "the message does not name the op: %s", aril_error());
        aril_clear_error();
    }
}

TEST(null_inputs)
{
    aril__location_off = true; /* from here on */
    test_each_sample(check_null);
}

static void check_poison(const test_sample *s)
{
    aril_tensor *in[TEST_INPUTS], *copy[TEST_INPUTS], *out[TEST_RESULTS];
    aril_dtype dtype;
    test_working_on("poison", s);
    if (!test_best_inputs(s, in, &dtype)) return;
    aril_tensor *poison = aril_reshape(aril_scalar(1), ARIL_SHAPE(3));
    aril_clear_error();
    for (int i = 0; i < s->n_in; i++) {
        ARIL_SCOPE;
        if (!in[i]) continue;
        test_copies(s, in, copy);
        copy[i] = poison;
        count.poisons++;
        aril_status status = apply(s, copy, out);
        if (status != ARIL_ERR_SHAPE || strncmp(aril_error(), "reshape", 7) != 0)
            FAIL(s, "input %d is poisoned: status %d, %s", i, status, aril_error());
        aril_clear_error();
    }
}

TEST(poisoned_inputs)
{
    test_each_sample(check_poison);
}

/* ---- other shapes and dtypes ---- */

static aril_tensor *misfit(int kind, aril_tensor *was)
{
    aril_shape shape = aril_shape_of(was);
    aril_dtype dtype = aril_dtype_of(was);
    switch (kind) {
    case 0: /* no dimensions */ return aril_ones(ARIL_SHAPE(), dtype, aril_cpu());
    case 1: /* the maximum number */
        return aril_ones(ARIL_SHAPE(1, 2, 1, 1, 2, 1, 1, 2), dtype, aril_cpu());
    case 2: /* one size larger */
        if (shape.ndim) shape.dim[shape.ndim - 1]++;
        return aril_ones(shape, dtype, aril_cpu());
    case 3:
        if (shape.ndim) shape.dim[0]++;
        return aril_ones(shape, dtype, aril_cpu());
    case 4: /* empty */
        if (shape.ndim) shape.dim[shape.ndim - 1] = 0;
        return aril_ones(shape, dtype, aril_cpu());
    case 5:
        if (shape.ndim) shape.dim[0] = 0;
        return aril_ones(shape, dtype, aril_cpu());
    case 6: /* one dimension fewer, one more */
        if (shape.ndim) shape.ndim--;
        return aril_ones(shape, dtype, aril_cpu());
    case 7:
        if (shape.ndim < ARIL_MAX_DIMS) shape.dim[shape.ndim++] = 2;
        return aril_ones(shape, dtype, aril_cpu());
    case 8: return aril_cast(was, dtype == ARIL_F32 ? ARIL_F64 : ARIL_F32);
    case 9: return aril_cast(was, ARIL_BOOL);
    case 10: return aril_cast(was, ARIL_I8);
    case 11: return aril_cast(was, ARIL_BF16);
    default: /* a dtype without arithmetic */ return aril_cast(was, ARIL_F8E5M2);
    }
}

/* Ops that only gradient rules call, with shapes that their op has already checked. */
static bool is_internal(const aril__op *op)
{
    size_t n = strlen(op->name);
    return (n > 5 && strcmp(op->name + n - 5, "_grad") == 0) ||
           strcmp(op->name, "overlap_add") == 0 || strcmp(op->name, "frames_like") == 0;
}

static void check_misfits(const test_sample *s)
{
    enum { KINDS = 13 };
    aril_tensor *in[TEST_INPUTS], *copy[TEST_INPUTS], *out[TEST_RESULTS];
    aril_dtype dtype;
    if (s->index >= SAMPLES || is_internal(s->op) || !test_best_inputs(s, in, &dtype)) return;
    for (int i = 0; i < s->n_in; i++) {
        if (!in[i] || strcmp(s->word[i], "key") == 0) continue;
        for (int kind = 0; kind < KINDS; kind++) {
            ARIL_SCOPE;
            char what[60];
            snprintf(what, sizeof what, "misfit %d of input %d", kind, i);
            test_working_on(what, s);
            test_copies(s, in, copy);
            copy[i] = misfit(kind, in[i]);
            aril_clear_error();
            count.misfits++;
            aril_status status = apply(s, copy, out);
            if (status == ARIL_OK)
                count.accepted++;
            else if (status == ARIL_ERR_INTERNAL ||
                     (status == ARIL_ERR_MEMORY && !(s->op->flags & DYNAMIC)))
                FAIL(s, "%s: %s", what, aril_error());
            aril_clear_error();
        }
    }
}

TEST(mismatched_inputs)
{
    test_each_sample(check_misfits);
}

/* ---- indices out of range ---- */

static void check_indices(const test_sample *s)
{
    aril_tensor *in[TEST_INPUTS], *copy[TEST_INPUTS], *out[TEST_RESULTS];
    aril_dtype dtype;
    if (!test_best_inputs(s, in, &dtype)) return;
    for (int i = 0; i < s->n_in; i++) {
        if (s->word[i][0] != 'i' || aril_numel(in[i]) == 0) continue;
        static const int64_t wrong[] = { 1000000, -1000000, INT64_MAX, INT64_MIN };
        enum { WRONG = sizeof wrong / sizeof *wrong };
        for (int k = 0; k < (s->op->ref ? 2 : 1) * WRONG; k++) { /* kernels, then the reference */
            ARIL_SCOPE;
            test_working_on("an index out of range", s);
            test_copies(s, in, copy);
            ((int64_t *)aril_data_strided(copy[i]))[aril_numel(copy[i]) - 1] = wrong[k % WRONG];
            count.indices++;
            aril__force_row = k < WRONG ? -1 : ARIL__FORCE_REFERENCE;
            aril_status status = apply(s, copy, out);
            aril__force_row = -1;
            bool said = status == ARIL_ERR_INDEX || status == ARIL_ERR_ARG ||
                        status == ARIL_ERR_SHAPE || status == ARIL_ERR_NUMBER ||
                        (status == ARIL_ERR_MEMORY && s->op->flags & DYNAMIC); /* bincount */
            /* An op may skip an index, such as an ignored target; it may not crash. */
            if (status < 0 && !said)
                FAIL(s, "index %lld: %s", (long long)wrong[k % WRONG], aril_error());
            aril_clear_error();
        }
    }
}

TEST(indices_out_of_range)
{
    test_each_sample(check_indices);
}

/* ---- out of memory ---- */

/* Runs forward and gradient once; false on an error. */
static bool forward_and_back(const test_sample *s, aril_tensor *const *in)
{
    ARIL_SCOPE;
    aril_tensor *grads[TEST_INPUTS], *out[TEST_RESULTS];
    if (s->op->flags & NONDIFF || test_untyped(s)) return test_run(s, in, out) == ARIL_OK;
    return test_gradients(s, in, grads) == NULL;
}

static void check_failures(const test_sample *s)
{
    aril_tensor *in[TEST_INPUTS];
    aril_dtype dtype;
    if (s->index >= SAMPLES || !test_best_inputs(s, in, &dtype) || !forward_and_back(s, in)) return;
    int64_t blocks = aril__live_blocks(), bytes = aril_memory(aril_cpu()).live;
    for (int n = 1; n < 4000; n++) {
        test_working_on("a failing allocation", s);
        aril_fail_allocation(n);
        forward_and_back(s, in);
        bool failed = aril_allocation_failed();
        aril_fail_allocation(0);
        aril_status code = aril_error_code();
        aril_clear_error();
        if (!failed) break;
        count.failures++;
        if (code != ARIL_OK && code != ARIL_ERR_MEMORY) {
            FAIL(s, "allocation %d failed, and the error is %s", n, aril_status_name(code));
            break;
        }
        int64_t lost = aril_memory(aril_cpu()).live - bytes, left = aril__live_blocks() - blocks;
        if (lost || left) {
            FAIL(s, "allocation %d failed: %lld bytes and %lld blocks leak", n, (long long)lost,
                 (long long)left);
            break;
        }
    }
    if (!forward_and_back(s, in)) FAIL(s, "does not work any more");
    aril_clear_error();
}

TEST(every_allocation_may_fail)
{
    test_each_sample(check_failures);
}

TEST(summary)
{
    printf(
        "      %d times NULL, %d poisoned, %d misfits (%d taken all the same), %d wrong indices, "
        "%d failing allocations\n",
        count.nulls, count.poisons, count.misfits, count.accepted, count.indices, count.failures);
}
