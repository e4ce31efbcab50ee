/* Scopes and guards: lifetimes, however a block is left. */
#include "aril/aril.h"
#include "core/tensor.h"
#include "support/device.h"
#include "support/test.h"

#include <string.h>

/* Tensor headers, storages and nodes in use. */
static int64_t live(void)
{
    return aril__live_blocks();
}

static aril_tensor *number(double v)
{
    return aril_from(&v, ARIL_SHAPE(), ARIL_F64, test_device());
}

TEST(tensors_are_released_with_their_scope)
{
    number(0); /* the library has started */
    int64_t before = live();
    {
        ARIL_SCOPE;
        aril_tensor *x = aril_add(number(1), number(2));
        CHECK_NEAR(aril_item(x), 3, 0);
        CHECK(live() > before);
    }
    CHECK_INT(live(), before);
}

TEST(scope_left_by_break_and_continue)
{
    int64_t before = live();
    int turns = 0;
    for (int i = 0; i < 10; i++) {
        ARIL_SCOPE;
        aril_tensor *x = number(i);
        turns++;
        if (i % 2) continue;
        x = aril_mul(x, x);
        if (aril_item(x) > 30) break;
        aril_add(x, x);
    }
    CHECK_INT(turns, 7);
    CHECK_INT(live(), before);
    while (true) {
        ARIL_SCOPE;
        number(1);
        {
            ARIL_SCOPE;
            number(2);
            break; /* leaves two scopes */
        }
    }
    CHECK_INT(live(), before);
}

static double returned_from_inside(int depth)
{
    ARIL_SCOPE;
    aril_tensor *x = number(depth);
    for (int i = 0; i < 3; i++) {
        ARIL_SCOPE;
        aril_tensor *z = aril_add(x, number(i));
        if (i == 1) return depth ? returned_from_inside(depth - 1) + aril_item(z) : aril_item(z);
    }
    return -1;
}

TEST(scope_left_by_return)
{
    int64_t before = live();
    CHECK_NEAR(returned_from_inside(4), 4 + 3 + 2 + 1 + 5, 0);
    CHECK_INT(live(), before);
}

static int left_by_goto(void)
{
    int round = 0;
again : {
    ARIL_SCOPE;
    number(1);
    if (++round < 5) goto again;
}
    return round;
}

TEST(scope_left_by_goto)
{
    int64_t before = live();
    CHECK_INT(left_by_goto(), 5);
    CHECK_INT(live(), before);
}

static aril_tensor *escaping(aril_tensor *x)
{
    ARIL_SCOPE;
    aril_tensor *z = aril_mul(aril_add(x, x), x);
    return aril_escape(z);
}

TEST(escape_moves_to_the_enclosing_scope)
{
    int64_t before = live();
    {
        ARIL_SCOPE;
        aril_tensor *x = number(3), *z = escaping(x);
        int64_t with_both = live();
        CHECK_NEAR(aril_item(z), 18, 0);
        {
            ARIL_SCOPE;
            CHECK_NEAR(aril_item(escaping(z)), 648, 0);
        }
        CHECK_INT(live(), with_both);
        aril_tensor *far = NULL;
        {
            ARIL_SCOPE;
            {
                ARIL_SCOPE;
                far = aril_escape(escaping(x)); /* out of two scopes by two escapes */
            }
            aril_escape(far);
        }
        CHECK_NEAR(aril_item(far), 18, 0);
    }
    CHECK_INT(live(), before);
}

TEST(escape_ignores_tensors_of_other_scopes)
{
    int64_t before = live();
    {
        ARIL_SCOPE;
        aril_tensor *x = number(1), *kept = aril_keep(number(2));
        {
            ARIL_SCOPE;
            CHECK(aril_escape(x) == x); /* from the enclosing scope */
            CHECK(aril_escape(kept) == kept);
            CHECK(aril_escape(aril_cast(x, ARIL_F64)) == x); /* an op that returned its input */
        }
        CHECK_NEAR(aril_item(x) + aril_item(kept), 3, 0);
        aril_release(kept);
    }
    CHECK_INT(live(), before);
}

TEST(many_tensors_escape)
{
    enum { N = 1000 };
    int64_t before = live();
    {
        ARIL_SCOPE;
        aril_tensor *out[N];
        {
            ARIL_SCOPE;
            for (int i = 0; i < N; i++) out[i] = number(i);
            for (int i = N - 1; i >= 0; i -= 3) aril_escape(out[i]);
        }
        for (int i = N - 1; i >= 0; i -= 3) CHECK_NEAR(aril_item(out[i]), i, 0);
    }
    CHECK_INT(live(), before);
}

TEST(keep_outlives_scopes)
{
    int64_t before = live();
    aril_tensor *kept;
    {
        ARIL_SCOPE;
        kept = aril_keep(aril_add(number(1), number(1)));
        CHECK(aril_keep(kept) == kept);
    }
    CHECK_NEAR(aril_item(kept), 2, 0);
    aril_release(kept);
    CHECK_NEAR(aril_item(kept), 2, 0);
    aril_release(kept);
    aril_release(NULL);
    CHECK_INT(live(), before);
}

TEST(set_carries_state_across_iterations)
{
    int64_t before = live();
    aril_tensor *state = NULL;
    for (int i = 1; i <= 10; i++) {
        ARIL_SCOPE;
        aril_set(&state, state ? aril_add(state, number(i)) : number(i));
        aril_set(&state, state); /* to itself */
        CHECK_INT(live() > before, 1);
    }
    CHECK_NEAR(aril_item(state), 55, 0);
    aril_release(state);
    CHECK_INT(live(), before);
}

TEST(adopt_gives_a_kept_reference_to_a_scope)
{
    int64_t before = live();
    aril_tensor *t;
    {
        ARIL_SCOPE;
        t = aril_keep(number(4));
        aril_keep(t);
    }
    {
        ARIL_SCOPE;
        CHECK(aril_adopt(t) == t);
        {
            ARIL_SCOPE;
            aril_adopt(t); /* the other reference, in another scope */
        }
        CHECK_NEAR(aril_item(t), 4, 0);
    }
    CHECK_INT(live(), before);
}

TEST(drop_releases_a_temporary_early)
{
    int64_t before = live();
    ARIL_SCOPE;
    aril_tensor *x = number(1), *z = number(2), *w = number(3);
    int64_t three = live();
    aril_drop(x); /* the last entry moves into its slot */
    CHECK(live() < three);
    CHECK_NEAR(aril_item(z) + aril_item(w), 5, 0);
    {
        ARIL_SCOPE;
        aril_drop(z); /* not in this scope: a no-op */
        aril_drop(NULL);
    }
    CHECK_NEAR(aril_item(z), 2, 0);
    aril_tensor *kept = aril_keep(z);
    aril_drop(z);
    CHECK_NEAR(aril_item(kept), 2, 0);
    aril_release(kept);
    aril_drop(w);
    CHECK_INT(live(), before);
}

TEST(null_is_rejected_without_side_effects)
{
    int64_t before = live();
    {
        ARIL_SCOPE;
        CHECK(aril_tensor_status(aril_escape(NULL)) == ARIL_ERR_ARG);
        aril_tensor *kept = aril_keep(NULL);
        CHECK(aril_tensor_status(kept) == ARIL_ERR_ARG);
        aril_release(kept);
        CHECK(aril_tensor_status(aril_adopt(NULL)) == ARIL_ERR_ARG);
        aril_clear_error();
    }
    CHECK(live() <= before + 2); /* the thread's latest error record may stay */
}

static void leaves_guards_open(void)
{
    aril_scope_begin();
    aril_no_grad_begin();
    aril_scope_begin();
    number(7);
}

TEST(unclosed_guards_are_repaired)
{
    int64_t before = live();
    CHECK(aril_grad_enabled());
    {
        ARIL_SCOPE;
        aril_tensor *mine = number(1);
        leaves_guards_open();
        CHECK(!aril_grad_enabled());
        number(8);
        {
            ARIL_SCOPE;
            leaves_guards_open();
        }
        CHECK_NEAR(aril_item(mine), 1, 0);
    }
    CHECK(aril_grad_enabled());
    CHECK_INT(live(), before);
    aril_guard outer = aril_scope_begin();
    for (int i = 0; i < 100; i++) leaves_guards_open();
    aril_guard_end(&outer);
    CHECK(aril_grad_enabled());
    CHECK_INT(live(), before);
    aril_guard_end(&outer); /* again: a no-op */
}

static bool grad_after_return(int how)
{
    ARIL_NO_GRAD;
    if (how == 0) return aril_grad_enabled();
    ARIL_ENABLE_GRAD;
    if (how == 1) return aril_grad_enabled();
    ARIL_INFERENCE;
    {
        ARIL_ENABLE_GRAD; /* no effect inside inference */
        return aril_grad_enabled();
    }
}

TEST(modes_are_restored_at_the_end_of_the_block)
{
    CHECK(!grad_after_return(0));
    CHECK(aril_grad_enabled());
    CHECK(grad_after_return(1));
    CHECK(aril_grad_enabled());
    CHECK(!grad_after_return(2));
    CHECK(aril_grad_enabled());
    for (int i = 0; i < 3; i++) {
        ARIL_NO_GRAD;
        if (i == 1) break;
    }
    CHECK(aril_grad_enabled());
    ARIL_SCOPE;
    aril_tensor *x = number(2);
    aril_set_requires_grad(x, true);
    {
        ARIL_NO_GRAD;
        CHECK(!aril_requires_grad(aril_square(x)));
        {
            ARIL_ENABLE_GRAD;
            CHECK(aril_requires_grad(aril_square(x)));
        }
        CHECK(!aril_requires_grad(aril_square(x)));
    }
    CHECK(aril_requires_grad(aril_square(x)));
}

static void loops(int depth)
{
    ARIL_SCOPE;
    aril_tensor *x = number(depth);
    if (depth) loops(depth - 1);
    CHECK_NEAR(aril_item(x), depth, 0);
}

TEST(deep_nesting)
{
    int64_t before = live();
    loops(5000);
    CHECK_INT(live(), before);
}

TEST(graph_is_released_with_its_scope)
{
    int64_t before = live();
    aril_tensor *w;
    {
        ARIL_SCOPE;
        w = aril_parameter(number(1.5));
    }
    int64_t with_w = live();
    for (int i = 0; i < 5; i++) {
        ARIL_SCOPE;
        aril_tensor *x = w;
        for (int k = 0; k < 50; k++) x = aril_tanh(aril_mul(x, w));
        if (i == 3) break; /* no backward: the graph is freed anyway */
        aril_backward(x);
        aril_zero_grad(w);
    }
    CHECK_INT(live(), with_w);
    aril_release(w);
    CHECK_INT(live(), before);
}

TEST(views_keep_their_memory_alive)
{
    int64_t before = live();
    aril_tensor *view;
    {
        ARIL_SCOPE;
        aril_tensor *x = aril_ones(ARIL_SHAPE(100, 100), ARIL_F32, test_device());
        view = aril_keep(aril_slice(x, 0, 10, 12, 1));
    }
    ARIL_SCOPE;
    CHECK_NEAR(aril_item(aril_sum(view, ARIL_ALL)), 200, 0);
    aril_release(view);
    CHECK(live() > before); /* the sum and its scalar */
}

TEST(set_and_keep_of_null_give_poison)
{
    number(0);
    int64_t before = live();
    {
        ARIL_SCOPE;
        aril_tensor *h = NULL;
        aril_set(&h, NULL);
        CHECK_INT(aril_tensor_status(h), ARIL_ERR_ARG);
        aril_set(&h, number(1));
        aril_release(h);
        aril_release(aril_keep(NULL));
        aril_clear_error();
    }
    CHECK_INT(live(), before);
}

TEST(two_guards_on_one_line)
{
    number(0);
    int64_t before = live();
    {
        /* clang-format off */
        ARIL_SCOPE; ARIL_NO_GRAD;
        /* clang-format on */
        number(1);
        CHECK(!aril_grad_enabled() && live() > before);
    }
    CHECK(aril_grad_enabled());
    CHECK_INT(live(), before);
}
