/* Gradients of parts of one tensor: those of parts that make up the whole are concatenated, all
 * others are written into zeros and added. */
#include "aril/aril.h"
#include "support/device.h"
#include "support/test.h"

#include <string.h>

enum { PARTS = 4 };

/* How x [3,6] is cut; parts are then used with different weights. */
typedef int cutting(aril_tensor *x, aril_tensor **part);

static int thirds(aril_tensor *x, aril_tensor **part)
{
    aril_chunk(x, 3, 1, part);
    return 3;
}
static int sizes(aril_tensor *x, aril_tensor **part)
{
    aril_split_sizes(x, (int64_t[]){ 1, 3, 2 }, 3, -1, part);
    return 3;
}
static int rows(aril_tensor *x, aril_tensor **part)
{
    aril_unbind(x, 0, part);
    return 3;
}
static int reversed(aril_tensor *x, aril_tensor **part)
{
    part[0] = aril_slice(x, 1, -2, ARIL_END, 1);
    part[1] = aril_slice(x, 1, 0, -2, 1);
    return 2;
}
static int overlapping(aril_tensor *x, aril_tensor **part)
{
    part[0] = aril_slice(x, 1, 0, 4, 1);
    part[1] = aril_slice(x, 1, 2, 6, 1);
    return 2;
}
static int with_a_gap(aril_tensor *x, aril_tensor **part)
{
    part[0] = aril_slice(x, 1, 0, 2, 1);
    part[1] = aril_slice(x, 1, 3, 6, 1);
    return 2;
}
static int with_steps(aril_tensor *x, aril_tensor **part)
{
    part[0] = aril_slice(x, 1, 0, 6, 2);
    part[1] = aril_slice(x, 1, 1, 6, 2);
    return 2;
}
static int twice(aril_tensor *x, aril_tensor **part)
{
    aril_chunk(x, 2, 1, part);
    aril_chunk(x, 2, 1, part + 2);
    return 4;
}
static int across(aril_tensor *x, aril_tensor **part)
{
    part[0] = aril_slice(x, 0, 0, 2, 1);
    part[1] = aril_slice(x, 1, 2, 6, 1);
    return 2;
}
static int same_row(aril_tensor *x, aril_tensor **part)
{
    for (int i = 0; i < 3; i++) part[i] = aril_select(x, 0, i == 2 ? -2 : i);
    return 3;
}

static const struct {
    const char *name;
    cutting *cut;
    int writes; /* ops that write into zeros */
} cuttings[] = {
    { "thirds", thirds, 0 },
    { "sizes", sizes, 0 },
    { "rows", rows, 0 },
    { "reversed", reversed, 0 },
    { "overlapping", overlapping, 1 },
    { "with a gap", with_a_gap, 2 },
    { "with steps", with_steps, 1 },
    { "twice", twice, 1 },
    { "across", across, 1 },
    { "same row", same_row, 3 },
};
enum { CUTTINGS = sizeof cuttings / sizeof *cuttings };

/* The sum of weighted squares and cubes of the parts of x^2, so that second derivatives differ. */
static void function(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_tensor *part[PARTS] = { NULL }, *sum = NULL;
    int n = (*(cutting *const *)ctx)(aril_square(in[0]), part);
    for (int i = 0; i < n; i++) {
        aril_tensor *y = i % 2 ? aril_square(part[i]) : aril_mul(part[i], aril_square(part[i]));
        y = aril_mul_scalar(aril_sum(y, ARIL_ALL), i + 1);
        sum = sum ? aril_add(sum, y) : y;
    }
    out[0] = sum;
}

static aril_tensor *values(void)
{
    aril_seed(3);
    return aril_rand(ARIL_SHAPE(3, 6), ARIL_F64, test_device());
}

TEST(gradients_of_parts_are_right)
{
    for (int i = 0; i < CUTTINGS; i++) {
        ARIL_SCOPE;
        aril_tensor *x = values();
        aril_set_requires_grad(x, true);
        cutting *cut = cuttings[i].cut;
        CHECK_MSG(aril_gradcheck(function, &cut, ARIL_LIST(x),
                                 (aril_gradcheck_opts){ .second = true }) == ARIL_OK,
                  "%s: %s", cuttings[i].name, aril_error());
        aril_clear_error();
    }
}

static int64_t calls_of(const char *name)
{
    const aril_profile_row *found;
    int n = aril_profile_rows(&found);
    int64_t calls = 0;
    for (int i = 0; i < n; i++)
        if (strcmp(found[i].name, name) == 0) calls += found[i].calls;
    return calls;
}

TEST(parts_of_the_whole_are_not_written_into_zeros)
{
    for (int i = 0; i < CUTTINGS; i++) {
        ARIL_SCOPE;
        aril_tensor *x = values(), *y;
        aril_set_requires_grad(x, true);
        cutting *cut = cuttings[i].cut;
        function(&cut, &x, &y);
        aril_profile_begin((aril_profile_opts){ 0 });
        CHECK_INT(aril_backward(y), 0);
        aril_profile_end();
        CHECK_MSG(calls_of("view_write") == cuttings[i].writes, "%s: %d writes, not %d",
                  cuttings[i].name, (int)calls_of("view_write"), cuttings[i].writes);
    }
    CHECK(aril_ok());
}

static aril_tensor *doubled(aril_tensor *g, void *ctx)
{
    ++*(int *)ctx;
    return aril_mul_scalar(g, 2);
}

/* A hook sees the gradient of its part alone, and a part may be a target. */
TEST(hooks_and_targets_among_parts)
{
    ARIL_SCOPE;
    aril_tensor *x = values(), *part[3], *g[2];
    aril_set_requires_grad(x, true);
    int seen = 0;
    CHECK_INT(aril_chunk(x, 3, 1, part), 0);
    aril_hook(part[1], doubled, &seen);
    aril_tensor *y = aril_sum(aril_add(part[0], aril_add(part[1], part[2])), ARIL_ALL);
    CHECK_INT(aril_backward_with(y, NULL, (aril_grad_opts){ .retain_graph = true }), 0);
    CHECK_INT(seen, 1);
    CHECK_NEAR(aril_item(aril_sum(aril_grad(x), ARIL_ALL)), 6 + 12 + 6, 0);
    CHECK_INT(aril_gradients(y, ARIL_LIST(part[2], x), g, (aril_grad_opts){ 0 }), 0);
    CHECK_NEAR(aril_item(aril_sum(g[0], ARIL_ALL)), 6, 0);
    CHECK_NEAR(aril_item(aril_sum(g[1], ARIL_ALL)), 6 + 12 + 6, 0);
    CHECK(aril_ok());
}

/* Many parts of one tensor: cut together or where each is used, all of them, every other one, and
 * such that overlap. The whole is written a few times, not once for each. */
TEST(gradients_of_many_parts)
{
    enum { MANY = 300 };
    for (int way = 0; way < 6; way++) {
        ARIL_SCOPE;
        aril_tensor *x = aril_rand(ARIL_SHAPE(2 * MANY, 2), ARIL_F64, test_device());
        aril_tensor *sum = aril_scalar(0), *parts[MANY];
        aril_set_requires_grad(x, true);
        bool gaps = way % 3 == 1, overlap = way % 3 == 2;
        for (int i = 0; i < 2 * MANY; i++) {
            int64_t k = i % MANY, begin = 2 * k;
            if (i < MANY || way >= 3)
                parts[k] = aril_slice(x, 0, begin, begin + (gaps ? 1 : overlap ? 3 : 2), 1);
            if (i < MANY) continue;
            sum = aril_add(sum, aril_mul_scalar(aril_sum(parts[k], ARIL_ALL), (double)(k + 1)));
        }
        aril_profile_begin((aril_profile_opts){ 0 });
        CHECK_INT(aril_backward(sum), 0);
        aril_profile_end();
        CHECK(calls_of("view_write") <= (way == 1 ? MANY : 1));
        CHECK(calls_of("zeros") <= 1);
        for (int i = 0; i < 2 * MANY; i++) {
            double expected = i / 2 + 1;
            if (gaps && i % 2) expected = 0;
            if (overlap && i % 2 == 0) expected += i / 2;
            aril_tensor *row = aril_select(aril_grad(x), 0, i);
            CHECK_NEAR(aril_item(aril_select(row, 0, 1)), expected, 0);
        }
    }
    CHECK(aril_ok());
}

/* A graph that was kept gives the same again; one that was freed says so. */
TEST(parts_in_a_second_pass)
{
    ARIL_SCOPE;
    aril_tensor *x = values(), *y;
    aril_set_requires_grad(x, true);
    cutting *cut = thirds;
    function(&cut, &x, &y);
    CHECK_INT(aril_backward_with(y, NULL, (aril_grad_opts){ .retain_graph = true }), 0);
    aril_tensor *once = aril_copy(aril_grad(x));
    CHECK_INT(aril_backward(y), 0);
    aril_tensor *e = aril_sub(aril_grad(x), aril_mul_scalar(once, 2));
    CHECK_NEAR(aril_item(aril_amax(aril_abs(e), ARIL_ALL)), 0, 1e-12);
    CHECK(aril_ok());
    CHECK_INT(aril_backward(y), ARIL_ERR_GRAD);
    aril_clear_error();
}
