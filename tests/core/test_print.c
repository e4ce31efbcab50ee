/* Printed tensors, compared with PyTorch's output (tests/print/cases.py). */
#include "aril/aril.h"
#include "core/tensor.h"
#include "ops/table/apply.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static aril_tensor *wanted(aril_shape shape, aril_dtype dtype)
{
    aril_tensor *t = aril_ones(shape, dtype, aril_cpu());
    aril_set_requires_grad(t, true);
    return t;
}

/* The text of t in memory that the caller frees. */
static char *text_of(aril_tensor *t)
{
    size_t n = aril_format(NULL, 0, t);
    char *text = malloc(n + 1);
    if (!text || aril_format(text, n + 1, t) != n || strlen(text) != n) {
        free(text);
        return NULL;
    }
    return text;
}

static void check(int line, const char *want, aril_tensor *t)
{
    char *got = text_of(t);
    if (!got || strcmp(got, want) != 0)
        test_fail("print/cases.inc", line, "printed:\n%s\nshould be:\n%s", got ? got : "nothing",
                  want);
    free(got);
}

#define CASE(want, ...)                       \
    {                                         \
        ARIL_SCOPE;                           \
        check(__LINE__, want, (__VA_ARGS__)); \
    }

TEST(print_like_pytorch)
{
#include "print/cases.inc"
    CHECK(aril_ok());
}

TEST(print_truncates_at_the_buffer)
{
    ARIL_SCOPE;
    aril_tensor *t = aril_arange(0, 4, 1, ARIL_I64, aril_cpu());
    char buf[10] = "xxxxxxxxx";
    CHECK_INT(aril_format(buf, sizeof buf, t), strlen("tensor([0, 1, 2, 3])"));
    CHECK_STR(buf, "tensor([0");
    CHECK_INT(aril_format(buf, 1, t), strlen("tensor([0, 1, 2, 3])"));
    CHECK_STR(buf, "");
}

TEST(print_to_a_file)
{
    ARIL_SCOPE;
    FILE *f = tmpfile();
    char buf[64] = "";
    CHECK(f);
    aril_fprint(f, aril_arange(0, 3, 1, ARIL_F32, aril_cpu()));
    rewind(f);
    size_t n = fread(buf, 1, sizeof buf - 1, f);
    fclose(f);
    CHECK_INT(n, strlen("tensor([0., 1., 2.])"));
    CHECK_STR(buf, "tensor([0., 1., 2.])");
}

TEST(print_u64)
{
    ARIL_SCOPE;
    const uint64_t v[2] = { UINT64_MAX, 1 };
    char *text = text_of(aril_from(v, ARIL_SHAPE(2), ARIL_U64, aril_cpu()));
    CHECK_STR(text, "tensor([18446744073709551615,                    1], dtype=u64)");
    free(text);
}

TEST(print_small_dtypes)
{
    ARIL_SCOPE;
    const int8_t v[3] = { 1, -2, 3 };
    aril_tensor *t = aril_from(v, ARIL_SHAPE(3), ARIL_I8, aril_cpu());
    char *text = text_of(aril_cast(t, ARIL_I4));
    CHECK_STR(text, "tensor([ 1, -2,  3], dtype=i4)");
    free(text);
    text = text_of(aril_cast(aril_cast(t, ARIL_F32), ARIL_F8E5M2));
    CHECK_STR(text, "tensor([ 1., -2.,  3.], dtype=f8e5m2)");
    free(text);
}

TEST(print_poison_null_and_symbols)
{
    ARIL_SCOPE;
    aril_tensor *p = aril_reshape(aril_ones(ARIL_SHAPE(2, 3), ARIL_F32, aril_cpu()), ARIL_SHAPE(4));
    char *text = text_of(p);
    CHECK(text && strncmp(text, "tensor(poisoned: reshape: [2,3]", 31) == 0);
    free(text);
    aril_clear_error();
    text = text_of(NULL);
    CHECK_STR(text, "NULL");
    free(text);
    aril__thread *th = aril__self();
    aril_tensor *s = aril__symbolic_new(th, ARIL_I64, 2, (int64_t[]){ -1, 3 }, NULL);
    text = text_of(s);
    CHECK_STR(text, "tensor(..., size=(?, 3), dtype=i64)");
    free(text);
    aril__tensor_release(th, s);
}
