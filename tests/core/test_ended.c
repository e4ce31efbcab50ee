/* Tensors used after their scope ended or after their last release: an error with a message, never
 * another tensor's values and never a crash. With a sanitizer, where every block is a separate
 * allocation, the header is gone and only ARIL_DEBUG=scopes can detect it. */
#include "aril/aril.h"
#include "core/ended.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NEEDS_MARKS \
    if (ARIL__PLAIN_BLOCKS && !aril__debug_scopes) SKIP("a sanitizer reports stale uses itself")

static aril_tensor *number(double v)
{
    return aril_from(&v, ARIL_SHAPE(), ARIL_F64, aril_cpu());
}

static aril_tensor *forgotten_escape(aril_tensor *x)
{
    ARIL_SCOPE;
    aril_tensor *h = aril_mul(x, x);
    return aril_add(h, x); /* aril_escape is missing */
}

/* The running test got such an error; clears it. */
static bool met(const char *words)
{
    bool good = aril_error_code() == ARIL_ERR_STATE && strstr(aril_error(), words) &&
                strstr(aril_error(), "aril_escape or aril_keep");
    if (!good) fprintf(stderr, "  '%s' is missing in '%s'\n", words, aril_error());
    aril_clear_error();
    return good;
}

TEST(op_on_a_released_tensor_is_an_error)
{
    number(0);
    NEEDS_MARKS;
    ARIL_SCOPE;
    aril_tensor *x = number(3), *y = forgotten_escape(x);
    aril_tensor *z = aril_add(x, y);
    CHECK(aril_tensor_status(z) == ARIL_ERR_STATE);
    CHECK(met("add: input 1 was used after its scope ended"));
    CHECK(aril_tensor_status(aril_add_(x, y)) == ARIL_ERR_STATE && met("add"));
    CHECK(aril_tensor_status(aril_add_(y, x)) == ARIL_ERR_STATE && met("add"));
    CHECK_NEAR(aril_item(x), 3, 0);
    CHECK(aril_tensor_status(aril_softmax(y, 0)) == ARIL_ERR_STATE && met("used after"));
    CHECK(aril_tensor_status(aril_reshape(y, ARIL_SHAPE(1))) == ARIL_ERR_STATE &&
          met("used after"));
    CHECK(aril_tensor_status(aril_cat(ARIL_LIST(y, x), 0)) == ARIL_ERR_STATE && met("used after"));
}

static void twice(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_add(in[0], in[0]);
}

/* What the name of a program, which may be a path, leaves of the message. */
TEST(a_released_input_of_a_program_with_a_long_name)
{
    static const char name[] = "a_folder_with_a_long_name/another_one_below_it/and_the_model.onnx";
    number(0);
    NEEDS_MARKS;
    ARIL_SCOPE;
    aril_tensor *y = forgotten_escape(number(3)), *z;
    aril_program *p = aril_jit(twice, NULL, (aril_jit_opts){ .name = name });
    CHECK_INT(aril_program_run(p, ARIL_LIST(y), &z), ARIL_ERR_STATE);
    CHECK(met("and_the_model.onnx: the tensor was used after its scope ended"));
    aril_program_free(p);
}

TEST(query_of_a_released_tensor_is_an_error)
{
    number(0);
    NEEDS_MARKS;
    ARIL_SCOPE;
    aril_tensor *x = number(3), *y = forgotten_escape(x);
    char text[500];
    double at;
    CHECK(aril_item(y) != aril_item(y) && met("item"));
    CHECK(aril_ndim(y) == 0 && met("ndim"));
    CHECK(aril_numel(y) == 1 && met("numel"));
    CHECK(aril_shape_of(y).ndim == 0 && met("shape_of"));
    CHECK(aril_dtype_of(y) == ARIL_F32 && met("dtype_of"));
    CHECK(!aril_shares_memory(x, y) && met("shares_memory"));
    CHECK(aril_read(y, &at) == ARIL_ERR_STATE && met("read"));
    CHECK(aril_write(y, &at) == ARIL_ERR_STATE && met("write"));
    CHECK(!aril_data(y) && met("data"));
    CHECK(aril_format(text, sizeof text, y) > 0 && strstr(text, "poisoned") && met("used after"));
    CHECK(!aril_requires_grad(y) && met("used after"));
    CHECK(aril_backward(y) == ARIL_ERR_STATE && met("used after"));
    CHECK(aril_tensor_status(y) == ARIL_ERR_STATE && strstr(aril_tensor_error(y), "used after"));
}

TEST(released_tensor_cannot_be_kept)
{
    number(0);
    NEEDS_MARKS;
    int64_t before = aril__live_blocks();
    {
        ARIL_SCOPE;
        aril_tensor *x = number(3), *y = forgotten_escape(x), *h = NULL;
        CHECK(aril_tensor_status(aril_escape(y)) == ARIL_ERR_STATE && met("escape"));
        aril_tensor *kept = aril_keep(y);
        CHECK(kept != y && aril_tensor_status(kept) == ARIL_ERR_STATE && met("keep"));
        aril_release(kept);
        aril_set(&h, y);
        CHECK(h != y && met("keep"));
        aril_release(h);
        CHECK(aril_adopt(y) != y && met("adopt"));
        aril_drop(y);
        CHECK(met("drop"));
        aril_tensor *p = aril_parameter(y);
        CHECK(p != y && met("used after"));
        aril_release(p);
        aril_module *m = aril_nn_relu();
        CHECK(aril_tensor_status(aril_forward(m, y)) == ARIL_ERR_STATE && met("forward"));
        aril_module_release(m);
    }
    CHECK_INT(aril__live_blocks(), before + 1); /* the poison that escaped */
}

TEST(second_release_is_an_error)
{
    number(0);
    NEEDS_MARKS;
    aril_tensor *kept;
    {
        ARIL_SCOPE;
        kept = aril_keep(number(1));
    }
    aril_release(kept);
    aril_release(kept);
    CHECK(met("release"));
    /* Nor does it release another tensor's reference. */
    ARIL_SCOPE;
    for (int i = 0; i < 50; i++) {
        aril_tensor *x = number(i);
        aril_release(kept);
        aril_clear_error();
        CHECK_NEAR(aril_item(x), i, 0);
    }
}

TEST(release_of_a_scoped_tensor_is_an_error)
{
    number(0);
    int64_t before = aril__live_blocks();
    {
        ARIL_SCOPE;
        aril_tensor *x = number(1);
        {
            ARIL_SCOPE;
            aril_release(x); /* not kept: the enclosing scope holds the only reference */
            CHECK(aril_error_code() == ARIL_ERR_STATE);
            CHECK(strstr(aril_error(), "belongs to its scope"));
            aril_clear_error();
        }
        CHECK_NEAR(aril_item(x), 1, 0);
        CHECK(aril_ok());
    }
    CHECK_INT(aril__live_blocks(), before);
}

TEST(a_scope_adopts_what_was_kept_alone)
{
    number(0);
    int64_t before = aril__live_blocks();
    {
        ARIL_SCOPE;
        aril_tensor *x = number(1);
        {
            ARIL_SCOPE;
            CHECK(aril_adopt(x) == x); /* not kept: both scopes would release it */
            CHECK(aril_error_code() == ARIL_ERR_STATE);
            CHECK_MSG(strstr(aril_error(), "belongs to its scope"), "%s", aril_error());
            aril_clear_error();
            CHECK(aril_adopt(aril_keep(x)) == x);
        }
        CHECK_NEAR(aril_item(x), 1, 0);
        CHECK(aril_ok());
    }
    CHECK_INT(aril__live_blocks(), before);
}

/* The mark must survive the creation of a few more tensors. */
TEST(headers_are_not_reused_immediately)
{
    number(0);
    NEEDS_MARKS;
    ARIL_SCOPE;
    aril_tensor *x = number(3), *y = forgotten_escape(x);
    for (int i = 0; i < 10; i++) aril_mul(x, x);
    CHECK(aril_item(y) != aril_item(y) && met("item"));
}

/* ---- in a child process ---- */

/* Runs one test of this program, or all; captures stderr and stdout. */
static int run_self(const char *environment, const char *test, char *text, size_t size)
{
    char path[1024], command[1400];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0) return -1;
    path[n] = 0;
    snprintf(command, sizeof command, "ARIL_TEST_CHILD=1 %s '%s' %s 2>&1", environment, path, test);
    FILE *f = popen(command, "r");
    if (!f) return -1;
    size_t got = fread(text, 1, size - 1, f);
    text[got] = 0;
    return pclose(f);
}

TEST(child_uses_many_later)
{
    if (!getenv("ARIL_TEST_CHILD")) SKIP("run by debug_mode_reports_the_source_location");
    ARIL_SCOPE;
    aril_tensor *x = number(3), *y = forgotten_escape(x);
    for (int i = 0; i < 5000; i++) {
        ARIL_SCOPE;
        aril_mul(x, x);
    }
    aril_add(x, y);
    aril_report(stderr);
    aril_clear_error();
}

TEST(debug_mode_reports_the_source_location)
{
    static char text[20000];
    if (getenv("ARIL_TEST_CHILD")) SKIP("has no forward function");
    CHECK(run_self("ARIL_DEBUG=scopes", "child_uses_many_later", text, sizeof text) == 0);
    CHECK_MSG(strstr(text, "add: input 1 was used after its scope ended"), "%s", text);
    CHECK_MSG(strstr(text, "(it was made at "), "%s", text);
    CHECK_MSG(strstr(text, "test_ended.c:") || strstr(text, "forgotten_escape+"), "%s", text);
    CHECK(run_self("ARIL_DEBUG=scope", "--list", text, sizeof text) == 0);
    CHECK(run_self("ARIL_DEBUG=scope", "release_of_a_scoped_tensor_is_an_error", text,
                   sizeof text) == 0);
    CHECK_MSG(strstr(text, "ARIL_DEBUG: unknown 'scope'; known is scopes"), "%s", text);
}

TEST(all_tests_with_ARIL_DEBUG)
{
    static char text[20000];
    if (getenv("ARIL_TEST_CHILD")) SKIP("has no forward function");
    CHECK_MSG(run_self("ARIL_DEBUG=scopes", "", text, sizeof text) == 0, "%s", text);
    CHECK_MSG(strstr(text, " 0 failed"), "%s", text);
}

static void make_in_root(int n)
{
    for (int i = 0; i < n; i++) number(i);
}

TEST(child_makes_10000)
{
    if (!getenv("ARIL_TEST_CHILD")) SKIP("run by loop_without_a_scope_causes_a_warning");
    make_in_root(10000);
}

TEST(child_makes_10001)
{
    if (!getenv("ARIL_TEST_CHILD")) SKIP("run by loop_without_a_scope_causes_a_warning");
    make_in_root(10001);
    make_in_root(30000);
}

TEST(child_makes_many_in_a_scope)
{
    if (!getenv("ARIL_TEST_CHILD")) SKIP("run by loop_without_a_scope_causes_a_warning");
    ARIL_SCOPE;
    make_in_root(30000);
}

TEST(loop_without_a_scope_causes_a_warning)
{
    static char text[20000];
    if (getenv("ARIL_TEST_CHILD")) SKIP("has no forward function");
    const char *words = "aril: warning: more than 10000 tensors lie outside any scope";
    CHECK(run_self("", "child_makes_10000", text, sizeof text) == 0);
    CHECK_MSG(!strstr(text, "warning"), "%s", text);
    CHECK(run_self("", "child_makes_many_in_a_scope", text, sizeof text) == 0);
    CHECK_MSG(!strstr(text, "warning"), "%s", text);
    CHECK(run_self("", "child_makes_10001", text, sizeof text) == 0);
    char *first = strstr(text, words);
    CHECK_MSG(first, "%s", text);
    CHECK_MSG(!strstr(first + 1, words), "%s", text);
}
