/* Views: memory sharing, writability, gradients of writes, memory formats. */
#include "aril/aril.h"
#include "core/tensor.h"
#include "ops/shape/like.h"
#include "support/device.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

static aril_tensor *counted(aril_shape shape, aril_dtype dtype)
{
    int64_t n = 1;
    for (int i = 0; i < shape.ndim; i++) n *= shape.dim[i];
    return aril_reshape(aril_arange(0, n, 1, dtype, test_device()), shape);
}

static bool same(aril_tensor *a, aril_tensor *b)
{
    aril_shape s = aril_shape_of(a), t = aril_shape_of(b);
    if (!aril__same_dims(s.ndim, s.dim, t.ndim, t.dim) || aril_dtype_of(a) != aril_dtype_of(b))
        return false;
    size_t n = aril__dtype_bytes(aril_dtype_of(a), aril_numel(a));
    return n == 0 || memcmp(aril_data(a), aril_data(b), n) == 0;
}

static void shares(const char *what, aril_tensor *x, aril_tensor *v)
{
    CHECK_MSG(aril_tensor_status(v) == ARIL_OK, "%s: %s", what, aril_tensor_error(v));
    CHECK_MSG(aril_shares_memory(x, v), "%s copied", what);
}

TEST(views_share_memory)
{
    ARIL_SCOPE;
    aril_tensor *x = counted(ARIL_SHAPE(4, 1, 6), ARIL_F32), *out[6];
    shares("reshape", x, aril_reshape(x, ARIL_SHAPE(8, 3)));
    shares("view", x, aril_view(x, ARIL_SHAPE(-1)));
    shares("flatten", x, aril_flatten(x, 0, -1));
    shares("squeeze", x, aril_squeeze(x, ARIL_ALL));
    shares("squeeze nothing", x, aril_squeeze(x, ARIL_AXES(0)));
    shares("unsqueeze", x, aril_unsqueeze(x, 1));
    shares("permute", x, aril_permute(x, ARIL_AXES(2, 0, 1)));
    shares("movedim", x, aril_movedim(x, ARIL_AXES(0), ARIL_AXES(2)));
    shares("swapaxes", x, aril_swapaxes(x, 0, 2));
    shares("slice", x, aril_slice(x, 0, 3, 0, -1));
    shares("narrow", x, aril_narrow(x, 2, 1, 3));
    shares("select", x, aril_select(x, 2, 3));
    shares("diagonal", x, aril_diagonal(x, 0, 0, 2));
    shares("flip", x, aril_flip(x, ARIL_ALL));
    shares("unfold_view", x, aril_unfold_view(x, 2, 3, 1));
    shares("expand", x, aril_expand(x, ARIL_SHAPE(4, 5, 6)));
    shares("broadcast_to", x, aril_broadcast_to(x, ARIL_SHAPE(2, 4, 1, 6)));
    CHECK_INT(aril_split(x, 2, 2, out), ARIL_OK);
    shares("split", x, out[2]);
    CHECK_INT(aril_unbind(x, 0, out), ARIL_OK);
    shares("unbind", x, out[3]);
    CHECK_INT(aril_chunk(x, 3, 2, out), ARIL_OK);
    shares("chunk", x, out[1]);
    shares("flatten of neighbours", x, aril_flatten(aril_slice(x, 2, 0, 3, 1), 0, 1));
    CHECK(!aril_shares_memory(x, aril_flatten(aril_transpose(x, 0, 2), 0, -1)));
    CHECK(!aril_shares_memory(x, aril_roll(x, ARIL_SHAPE(1), ARIL_AXES(0))));
    CHECK(aril_ok());
}

TEST(views_of_a_flipped_tensor)
{
    ARIL_SCOPE;
    aril_tensor *x = counted(ARIL_SHAPE(3, 4), ARIL_I32), *f = aril_flip(x, ARIL_ALL);
    const int32_t want[12] = { 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0 };
    CHECK(memcmp(aril_data(f), want, sizeof want) == 0);
    CHECK(same(aril_flip(f, ARIL_ALL), x));
    CHECK(aril_shares_memory(x, aril_flatten(f, 0, 1))); /* -1 apart: one axis */
    CHECK(memcmp(aril_data(aril_flatten(f, 0, 1)), want, sizeof want) == 0);
    CHECK_INT(aril_item_int(aril_sum(aril_mul(f, x), ARIL_ALL)), 220);
    aril_copy_(f, x); /* reads what it overwrites */
    CHECK(memcmp(aril_data(x), want, sizeof want) == 0);
    aril_add_(f, f);
    CHECK_INT(aril_item_int(aril_select(aril_select(x, 0, 0), 0, 0)), 22);
    CHECK(aril_ok());
}

TEST(split_and_chunk_counts)
{
    ARIL_SCOPE;
    aril_tensor *x = counted(ARIL_SHAPE(7, 0), ARIL_F32);
    CHECK_INT(aril_split_count(x, 3, 0), 3);
    CHECK_INT(aril_split_count(x, 7, 0), 1);
    CHECK_INT(aril_split_count(x, 100, 0), 1);
    CHECK_INT(aril_split_count(x, 3, 1), 1);
    CHECK_INT(aril_split_count(x, 0, 1), 1);
    CHECK_INT(aril_chunk_count(x, 3, 0), 3);
    CHECK_INT(aril_chunk_count(x, 5, 0), 4);
    CHECK_INT(aril_chunk_count(x, 100, 0), 7);
    CHECK_INT(aril_chunk_count(x, 4, 1), 4);
    CHECK(aril_ok());
    CHECK_INT(aril_split_count(x, 0, 0), -1);
    CHECK_INT(aril_split_count(x, -1, 0), -1);
    CHECK_INT(aril_split_count(NULL, 1, 0), -1);
    CHECK_INT(aril_chunk_count(x, 0, 0), -1);
    CHECK_INT(aril_chunk_count(x, 2, 5), -1);
    aril_clear_error();
}

/* ---- writable views ---- */

TEST(writing_to_overlapping_views_is_an_error)
{
    ARIL_SCOPE;
    aril_tensor *x = counted(ARIL_SHAPE(8), ARIL_F32);
    aril_tensor *bad[] = { aril_expand(x, ARIL_SHAPE(2, 8)), aril_unfold_view(x, 0, 3, 2),
                           aril_t(aril_unfold_view(x, 0, 2, 1)),
                           aril_unfold_view(aril_flip(x, ARIL_ALL), 0, 4, 3) };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        aril_tensor *r = aril_zero_(bad[i]);
        CHECK_INT(aril_tensor_status(r), ARIL_ERR_STATE);
        CHECK(strstr(aril_tensor_error(r), "share memory"));
        CHECK_NEAR(aril_item(aril_sum(x, ARIL_ALL)), 28, 0);
        aril_clear_error();
    }
    aril_tensor *good[] = { aril_unfold_view(x, 0, 2, 2), aril_unfold_view(x, 0, 2, 3),
                            aril_unfold_view(x, 0, 8, 1), aril_flip(x, ARIL_ALL),
                            aril_t(aril_reshape(x, ARIL_SHAPE(2, 4))) };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        CHECK_INT(aril_tensor_status(aril_add_scalar_(good[i], 1)), ARIL_OK);
    /* Strides 2 and 3 do not collide at these sizes: 0 2 4 3 5 7. */
    aril_tensor *w = counted(ARIL_SHAPE(8), ARIL_F32), odd = *w;
    odd.ndim = 2;
    odd.numel = 6;
    odd.dim[0] = 2, odd.dim[1] = 3, odd.stride[0] = 3, odd.stride[1] = 2;
    CHECK(!aril__overlaps(&odd));
    odd.dim[0] = 3, odd.dim[1] = 4, odd.numel = 12; /* 6 = 2 * 3 = 3 * 2 */
    CHECK(aril__overlaps(&odd));
    CHECK(aril_ok());
}

/* ---- gradients ---- */

/* A write through each kind of view, with the base used before and after. */
enum { KINDS = 14 };
static aril_tensor *view_of(int kind, aril_tensor *b) /* b: [3,4] */
{
    switch (kind) {
    case 0: return aril_slice(b, 1, 0, ARIL_END, 2);
    case 1: return aril_select(b, 0, 1);
    case 2: return aril_diagonal(b, 1, 0, 1);
    case 3: return aril_t(b);
    case 4: return aril_reshape(b, ARIL_SHAPE(2, 6));
    case 5: return aril_flatten(b, 0, 1);
    case 6: return aril_unsqueeze(b, 1);
    case 7: return aril_flip(b, ARIL_ALL);
    case 8: return aril_unfold_view(b, 1, 2, 2);
    case 9: return aril_select(aril_unfold_view(b, 1, 3, 1), 1, 1); /* one of overlapping windows */
    case 10: return aril_narrow(aril_flatten(b, 0, 1), 0, 5, 4);
    case 11: return aril_squeeze(aril_narrow(b, 0, 2, 1), ARIL_AXES(0));
    case 12: return aril_select(aril_expand(aril_unsqueeze(b, 0), ARIL_SHAPE(2, -1, -1)), 0, 1);
    default: /* a view that takes its shape from another tensor */
        return aril__reshape_like(b, aril_zeros(ARIL_SHAPE(4, 3), ARIL_F64, test_device()));
    }
}

static void write_through(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_tensor *b = aril_mul(in[0], in[0]), *v = view_of(*(int *)ctx, b);
    aril_tensor *before = aril_sum(b, ARIL_ALL);
    aril_mul_(v, aril_add_scalar(aril_sin(aril_copy(v)), 2));
    out[0] = aril_add(aril_mul(b, in[0]), aril_add(before, aril_sum(aril_exp(v), ARIL_ALL)));
}

TEST(views_written_to_have_second_gradients)
{
    for (int kind = 0; kind < KINDS; kind++) {
        ARIL_SCOPE;
        aril_seed(4);
        aril_tensor *x = aril_rand(ARIL_SHAPE(3, 4), ARIL_F64, test_device());
        aril_set_requires_grad(x, true);
        aril_status s = aril_gradcheck(write_through, &kind, ARIL_LIST(x),
                                       (aril_gradcheck_opts){ .second = true });
        CHECK_MSG(s == ARIL_OK, "kind %d: %s", kind, aril_error());
    }
}

/* Expanded or permuted gradients, for a base that was written to through a reshape. */
TEST(views_written_to_have_gradients_of_any_order)
{
    for (int kind = 0; kind < KINDS; kind++) {
        for (int order = 0; order < 3; order++) {
            ARIL_SCOPE;
            aril_tensor *x = aril_ones(ARIL_SHAPE(3, 4), ARIL_F64, test_device()), *grad[1];
            aril_set_requires_grad(x, true);
            aril_tensor *b = aril_mul_scalar(x, 2);
            aril_mul_scalar_(view_of(kind, b), 3);
            aril_tensor *y = order == 0   ? aril_sum(b, ARIL_ALL)
                             : order == 1 ? aril_sum(aril_sum(b, ARIL_AXES(1)), ARIL_ALL)
                                          : aril_sum(aril_square(aril_t(b)), ARIL_ALL);
            CHECK_INT(aril_gradients(y, ARIL_LIST(x), grad, (aril_grad_opts){ 0 }), ARIL_OK);
            /* b is 2 or, where written to, 6. */
            double six = (double)aril_item_int(aril_sum(aril_eq_scalar(b, 6), ARIL_ALL));
            CHECK_INT(six, aril_numel(view_of(kind, b)));
            CHECK_NEAR(aril_item(aril_sum(grad[0], ARIL_ALL)),
                       order < 2 ? 24 + 4 * six : 12 * 8 + 64 * six, 1e-9);
        }
    }
    CHECK(aril_ok());
}

TEST(views_made_before_a_write_follow_it)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_ones(ARIL_SHAPE(4), ARIL_F64, test_device()), *grad[1];
    aril_set_requires_grad(x, true);
    aril_tensor *b = aril_mul_scalar(x, 2), *w, *head = aril_narrow(b, 0, 0, 2);
    w = aril_select(aril_unfold_view(b, 0, 2, 1), 0, 1); /* b[1:3], viewed before the write */
    aril_mul_scalar_(head, 5);
    CHECK_INT(aril_gradients(aril_sum(w, ARIL_ALL), ARIL_LIST(x), grad, (aril_grad_opts){ 0 }),
              ARIL_OK);
    const double want[4] = { 0, 10, 2, 0 };
    CHECK(memcmp(aril_data(grad[0]), want, sizeof want) == 0);
    CHECK(aril_ok());
}

TEST(writing_to_views_of_leaves_is_an_error)
{
    ARIL_SCOPE;
    for (int kind = 0; kind < KINDS; kind++) {
        aril_tensor *x = aril_ones(ARIL_SHAPE(3, 4), ARIL_F64, test_device());
        aril_set_requires_grad(x, true);
        CHECK_INT(aril_tensor_status(aril_zero_(view_of(kind, x))), ARIL_ERR_GRAD);
        aril_clear_error();
        ARIL_NO_GRAD;
        CHECK_INT(aril_tensor_status(aril_zero_(view_of(kind, x))), ARIL_OK);
    }
    CHECK(aril_ok());
}

/* ---- channels-last ---- */

TEST(channels_last_and_back)
{
    ARIL_SCOPE;
    aril_tensor *x = counted(ARIL_SHAPE(2, 3, 4, 5), ARIL_F32), *c = aril_channels_last(x);
    CHECK(aril_is_channels_last(c));
    CHECK(!aril_is_contiguous(c));
    CHECK(c->flags & ARIL__CHANNELS_LAST);
    CHECK_INT(aril_stride(c, 1), 1);
    CHECK_INT(aril_stride(c, 3), 3);
    CHECK_INT(aril_stride(c, 2), 15);
    CHECK_INT(aril_stride(c, 0), 60);
    CHECK(same(c, x));
    CHECK(aril_channels_last(c) == c);
    aril_tensor *back = aril_contiguous(c);
    CHECK(aril_is_contiguous(back) && !aril_is_channels_last(back));
    CHECK(!(back->flags & ARIL__CHANNELS_LAST));
    CHECK(same(back, x));
    float memory[120]; /* the elements as they are stored */
    CHECK_INT(aril_read(aril_permute(c, ARIL_AXES(0, 2, 3, 1)), memory), ARIL_OK);
    CHECK(aril_is_contiguous(aril_permute(c, ARIL_AXES(0, 2, 3, 1))));
    CHECK_NEAR(memory[1], 20, 0); /* the second channel of the first pixel */
    aril_tensor *cube = aril_channels_last(counted(ARIL_SHAPE(2, 3, 2, 2, 2), ARIL_F32));
    CHECK(aril_is_channels_last(cube));
    CHECK(aril_is_channels_last(aril_channels_last(counted(ARIL_SHAPE(2, 3, 4), ARIL_F32))));
    CHECK_INT(aril_tensor_status(aril_channels_last(counted(ARIL_SHAPE(2, 3), ARIL_F32))),
              ARIL_ERR_SHAPE);
    aril_clear_error();
}

static void keeps_order(const char *what, aril_tensor *got, aril_tensor *want)
{
    CHECK_MSG(aril_tensor_status(got) == ARIL_OK, "%s: %s", what, aril_tensor_error(got));
    CHECK_MSG(aril_is_channels_last(got) && got->flags & ARIL__CHANNELS_LAST,
              "%s: not channels-last", what);
    CHECK_MSG(same(got, want), "%s: wrong values", what);
}

TEST(channels_last_is_kept_by_elementwise_functions)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_add_scalar(counted(ARIL_SHAPE(2, 3, 4, 5), ARIL_F32), 0.5);
    aril_tensor *c = aril_channels_last(x), *d = aril_channels_last(aril_sqrt(x));
    aril_tensor *bias = counted(ARIL_SHAPE(3, 1, 1), ARIL_F32);
    keeps_order("tanh", aril_tanh(c), aril_tanh(x));
    keeps_order("add", aril_add(c, d), aril_add(x, aril_sqrt(x)));
    keeps_order("add, mixed", aril_add(c, x), aril_add(x, x));
    keeps_order("mul_scalar", aril_mul_scalar(c, 2), aril_mul_scalar(x, 2));
    keeps_order("bias", aril_add(c, bias), aril_add(x, bias));
    keeps_order("bias first", aril_add(bias, c), aril_add(bias, x));
    keeps_order("gt", aril_gt_scalar(c, 3), aril_gt_scalar(x, 3));
    keeps_order("cast", aril_cast(c, ARIL_F64), aril_cast(x, ARIL_F64));
    keeps_order("copy", aril_copy(c), x);
    keeps_order("zeros_like", aril_zeros_like(c), aril_zeros_like(x));
    keeps_order("relu of tanh", aril_relu(aril_tanh(c)), aril_relu(aril_tanh(x)));
    CHECK(aril_is_channels_last(aril_empty_like(c)));
    aril_tensor *e = aril_copy(c);
    aril_mul_(e, x);
    keeps_order("mul_", e, aril_mul(x, x));
    CHECK(!(aril_slice(c, 1, 0, 2, 1)->flags & ARIL__CHANNELS_LAST));
    CHECK(aril_ok());
}

/* Sizes of 1 between the channels and the other axes, and orders other than channels-last. */
TEST(orders_are_kept_where_sizes_are_1)
{
    ARIL_SCOPE;
    static const aril_shape shapes[] = { { 4, { 1, 3, 1, 5 } },    { 4, { 2, 3, 1, 5 } },
                                         { 4, { 2, 3, 5, 1 } },    { 3, { 1, 3, 5 } },
                                         { 5, { 2, 3, 1, 1, 5 } }, { 5, { 1, 3, 4, 1, 5 } } };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        aril_tensor *x = counted(shapes[i], ARIL_F32), *c = aril_channels_last(x);
        aril_tensor *moved = aril_to(c, aril_cpu());
        keeps_order("copy", aril_copy(c), x);
        keeps_order("cast", aril_cast(c, ARIL_F64), aril_cast(x, ARIL_F64));
        keeps_order("tanh", aril_tanh(c), aril_tanh(x));
        keeps_order("zeros_like", aril_zeros_like(c), aril_zeros_like(x));
        keeps_order("to the CPU", moved, x);
        keeps_order("to the device", aril_to(moved, test_device()), x);
        CHECK(aril_is_channels_last(aril_empty_like(c)));
    }
    aril_tensor *turned = aril_transpose(counted(ARIL_SHAPE(4, 1, 6), ARIL_F32), 0, 2);
    aril_tensor *copy = aril_to(aril_copy(turned), aril_cpu());
    CHECK_INT(aril_stride(copy, 0), 1);
    CHECK_INT(aril_stride(copy, 2), 6);
    CHECK(same(copy, turned));
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

TEST(channels_last_reductions_are_correct)
{
    ARIL_SCOPE;
    aril_tensor *x = counted(ARIL_SHAPE(2, 3, 4, 5), ARIL_F64), *c = aril_channels_last(x);
    CHECK(same(aril_sum(c, ARIL_ALL), aril_sum(x, ARIL_ALL)));
    for (unsigned mask = 1; mask < 16; mask++) {
        aril_axes axes = { 0 };
        for (int d = 0; d < 4; d++)
            if (mask >> d & 1) axes.axis[axes.n++] = d;
        CHECK(same(aril_sum(c, axes), aril_sum(x, axes)));
        CHECK(same(aril_mean(c, axes), aril_mean(x, axes)));
        CHECK(same(aril_amax(c, axes), aril_amax(x, axes)));
    }
    aril_tensor *i, *k;
    CHECK(same(aril_max(c, ARIL_AXES(1), &i), aril_max(x, ARIL_AXES(1), &k)));
    CHECK(same(i, k));
    CHECK(same(aril_softmax(c, 1), aril_softmax(x, 1)));
    CHECK(aril_ok());
}

TEST(channels_last_has_a_gradient)
{
    ARIL_SCOPE;
    aril_tensor *x = counted(ARIL_SHAPE(2, 2, 3, 2), ARIL_F64), *grad[1];
    aril_set_requires_grad(x, true);
    aril_tensor *y = aril_square(aril_channels_last(x));
    CHECK(aril_is_channels_last(y));
    CHECK_INT(aril_gradients(aril_sum(y, ARIL_ALL), ARIL_LIST(x), grad, (aril_grad_opts){ 0 }),
              ARIL_OK);
    CHECK(same(grad[0], aril_mul_scalar(aril_detach(x), 2)));
}

/* ---- out of memory ---- */

/* A bit of everything; every result may be poison. */
static void try_all(void)
{
    ARIL_SCOPE;
    aril_device cpu = test_device();
    aril_tensor *x = aril_randn(ARIL_SHAPE(2, 3, 4, 5), ARIL_F16, cpu), *out[5];
    aril_set_requires_grad(x, true);
    aril_tensor *b = aril_mul_scalar(x, 2);
    aril_split(b, 2, 2, out);
    aril_chunk(b, 2, 3, out);
    aril_unbind(b, 1, out);
    aril_mul_(aril_select(aril_unfold_view(b, 3, 3, 1), 3, 1), aril_scalar(3));
    aril_zero_(aril_flatten(aril_narrow(aril_flip(b, ARIL_AXES(2)), 2, 0, 1), 0, 1));
    aril_tensor *y = aril_add(aril_roll(aril_channels_last(b), ARIL_SHAPE(2), ARIL_ALL),
                              aril_tril(aril_movedim(b, ARIL_AXES(0), ARIL_AXES(0)), 1));
    aril_backward(aril_sum(aril_cast(aril_diagonal(y, 0, 2, 3), ARIL_F64), ARIL_ALL));
    aril_uniform_(aril_transpose(aril_detach(x), 0, 1), 0, 1);
    aril_bernoulli(aril_rand(ARIL_SHAPE(300), ARIL_BF16, cpu));
    aril_randperm(500, ARIL_I64, cpu);
    aril_normal(aril_zeros(ARIL_SHAPE(3), ARIL_F32, cpu),
                aril_ones(ARIL_SHAPE(2, 1), ARIL_F32, cpu));
    aril_eye(30, -1, ARIL_F64, cpu);
    aril_format(NULL, 0, x);
    struct DLManagedTensorVersioned *m = aril_to_dlpack(aril_detach(x), true);
    if (m) aril_from_dlpack(m);
    struct DLManagedTensor *u = aril_to_dlpack_unversioned(aril_detach(x));
    if (u) aril_from_dlpack_unversioned(u);
}

TEST(views_survive_every_failed_allocation)
{
    ONLY_ON_CPU("DLPack exports its memory");
    try_all(); /* first use: fills tables and caches */
    CHECK_MSG(aril_ok(), "%s", aril_error());
    int64_t before = aril__live_blocks();
    int n = 1;
    for (;; n++) {
        aril_fail_allocation(n);
        try_all();
        bool reached = aril_allocation_failed();
        aril_fail_allocation(0);
        CHECK_MSG(aril__live_blocks() == before, "failure %d leaves %lld blocks more", n,
                  (long long)(aril__live_blocks() - before));
        aril_clear_error();
        if (!reached) break;
    }
    CHECK(n > 50);
    try_all();
    CHECK(aril_ok());
}

/* ---- wrong calls ---- */

static void wrong(aril_tensor *t, aril_status code, const char *part)
{
    CHECK_INT(aril_tensor_status(t), code);
    CHECK_MSG(strstr(aril_tensor_error(t), part), "message: %s", aril_tensor_error(t));
    aril_clear_error();
}

TEST(views_invalid_calls)
{
    ARIL_SCOPE;
    aril_device cpu = test_device();
    aril_tensor *x = counted(ARIL_SHAPE(2, 3, 4), ARIL_F32), *s = aril_scalar(1);
    wrong(aril_select(x, 1, 3), ARIL_ERR_INDEX,
          "select: index 3 is out of range for axis 1 of [2,3,4]");
    wrong(aril_select(x, 1, -4), ARIL_ERR_INDEX, "select: index -4");
    wrong(aril_select(x, 3, 0), ARIL_ERR_INDEX, "select: axis 3");
    wrong(aril_select(s, 0, 0), ARIL_ERR_SHAPE, "select: a 0-d tensor");
    wrong(aril_narrow(x, 0, 1, 2), ARIL_ERR_INDEX, "narrow: length 2 from start 1");
    wrong(aril_narrow(x, 0, 0, -1), ARIL_ERR_INDEX, "narrow");
    wrong(aril_narrow(x, 0, -3, 1), ARIL_ERR_INDEX, "narrow");
    wrong(aril_narrow(s, 0, 0, 1), ARIL_ERR_SHAPE, "narrow: a 0-d tensor");
    wrong(aril_diagonal(x, 0, 1, 1), ARIL_ERR_ARG, "diagonal: axis 1 appears twice");
    wrong(aril_diagonal(x, 0, 0, 3), ARIL_ERR_INDEX, "diagonal: axis 3");
    wrong(aril_diagonal(aril_select(aril_select(x, 0, 0), 0, 0), 0, 0, 1), ARIL_ERR_SHAPE,
          "diagonal: expected at least 2 dimensions");
    wrong(aril_flip(x, ARIL_AXES(0, 0)), ARIL_ERR_ARG, "flip: axis 0 appears twice");
    wrong(aril_flip(x, ARIL_AXES(7)), ARIL_ERR_INDEX, "flip: axis 7");
    wrong(aril_flatten(x, 2, 1), ARIL_ERR_ARG, "flatten: axis 2 comes after axis 1");
    wrong(aril_flatten(x, 0, 3), ARIL_ERR_INDEX, "flatten: axis 3");
    wrong(aril_squeeze(x, ARIL_AXES(5)), ARIL_ERR_INDEX, "squeeze: axis 5");
    wrong(aril_movedim(x, ARIL_AXES(0, 1), ARIL_AXES(2)), ARIL_ERR_ARG,
          "movedim: got 2 source axes");
    wrong(aril_movedim(x, ARIL_AXES(0, 0), ARIL_AXES(1, 2)), ARIL_ERR_ARG, "appears twice");
    wrong(aril_unfold_view(x, 1, 4, 1), ARIL_ERR_SHAPE,
          "a window of 4 is larger than axis 1 of [2,3,4]");
    wrong(aril_unfold_view(x, 1, 2, 0), ARIL_ERR_ARG, "got 2 and 0");
    wrong(aril_unfold_view(x, 1, -2, 1), ARIL_ERR_ARG, "got -2 and 1");
    wrong(aril_roll(x, ARIL_SHAPE(1, 2), ARIL_AXES(0)), ARIL_ERR_ARG,
          "roll: got 2 shifts for 1 axes");
    wrong(aril_roll(x, ARIL_SHAPE(1), ARIL_AXES(9)), ARIL_ERR_INDEX, "roll: axis 9");
    wrong(aril_broadcast_to(x, ARIL_SHAPE(2, 3, 5)), ARIL_ERR_SHAPE, "[2,3,4]");
    wrong(aril_view(aril_transpose(x, 0, 2), ARIL_SHAPE(24)), ARIL_ERR_SHAPE, "use aril_reshape");
    wrong(aril_tril(aril_arange(0, 3, 1, ARIL_F32, cpu), 0), ARIL_ERR_SHAPE,
          "tril: expected a matrix");
    wrong(aril_triu(s, 0), ARIL_ERR_SHAPE, "triu: expected a matrix");
    wrong(aril_eye(-2, -1, ARIL_F32, cpu), ARIL_ERR_SHAPE, "eye");
    wrong(aril_arange(0, 5, 0, ARIL_F32, cpu), ARIL_ERR_ARG, "arange: step 0");
    wrong(aril_arange(0, 5, -1, ARIL_F32, cpu), ARIL_ERR_ARG, "arange: step -1");
    wrong(aril_arange(0, INFINITY, 1, ARIL_F32, cpu), ARIL_ERR_ARG, "arange: too many elements");
    wrong(aril_arange(0, 3, 1, ARIL_F8E5M2, cpu), ARIL_ERR_DTYPE, "arange: not defined for f8e5m2");
    wrong(aril_linspace(0, 1, -1, ARIL_F32, cpu), ARIL_ERR_SHAPE, "linspace");
    aril_tensor *(*const one[])(aril_tensor *) = { aril_channels_last, aril_empty_like,
                                                   aril_rand_like, aril_zero_, aril_contiguous };
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        wrong(one[i](NULL), ARIL_ERR_ARG, "NULL");
        aril_tensor *p = aril_select(x, 9, 9);
        aril_clear_error();
        wrong(one[i](p), ARIL_ERR_INDEX, "select");
    }
    wrong(aril_select(NULL, 0, 0), ARIL_ERR_ARG, "select: the tensor is NULL");
    wrong(aril_flatten(NULL, 0, 0), ARIL_ERR_ARG, "flatten: the tensor is NULL");
    wrong(aril_roll(NULL, ARIL_SHAPE(1), ARIL_ALL), ARIL_ERR_ARG, "roll: the tensor is NULL");
    wrong(aril_flip(NULL, ARIL_ALL), ARIL_ERR_ARG, "flip: the tensor is NULL");
    aril_tensor *out[4] = { 0 };
    CHECK_INT(aril_split(x, 0, 0, out), ARIL_ERR_ARG);
    CHECK_INT(aril_split(NULL, 1, 0, out), ARIL_ERR_ARG);
    CHECK_INT(aril_split(x, 1, 0, NULL), ARIL_ERR_ARG);
    CHECK_INT(aril_split(x, 1, 9, out), ARIL_ERR_INDEX);
    CHECK_INT(aril_split_sizes(x, (int64_t[]){ 1, 1, 1 }, 3, 0, out), ARIL_ERR_SHAPE);
    CHECK_INT(aril_split_sizes(x, (int64_t[]){ 3, -1 }, 2, 0, out), ARIL_ERR_SHAPE);
    CHECK_INT(aril_split_sizes(x, NULL, 2, 0, out), ARIL_ERR_ARG);
    CHECK_INT(aril_chunk(x, 0, 0, out), ARIL_ERR_ARG);
    CHECK_INT(aril_chunk(x, 2, 0, NULL), ARIL_ERR_ARG);
    CHECK_INT(aril_unbind(s, 0, out), ARIL_ERR_SHAPE);
    CHECK_INT(aril_unbind(x, 0, NULL), ARIL_ERR_ARG);
    CHECK(!out[0] && !out[1]);
    aril_clear_error();
}

TEST(slice_steps_may_exceed_the_axis)
{
    ARIL_SCOPE;
    aril_tensor *x = counted(ARIL_SHAPE(5), ARIL_F32);
    CHECK_INT(aril_numel(aril_slice(x, 0, 0, ARIL_END, INT64_MAX)), 1);
    CHECK_NEAR(aril_item(aril_slice(x, 0, -1, ARIL_END, INT64_MIN)), 4, 0);
    CHECK_INT(aril_numel(aril_slice(x, 0, 3, 3, INT64_MAX)), 0);
    CHECK(aril_ok());
}

TEST(results_with_too_many_elements_are_rejected)
{
    ARIL_SCOPE;
    int64_t n = (int64_t)1 << 40;
    aril_tensor *one = aril_ones(ARIL_SHAPE(1, 1), ARIL_F32, test_device());
    aril_tensor *tall = aril_expand(one, ARIL_SHAPE(n, 1)),
                *wide = aril_expand(one, ARIL_SHAPE(1, n));
    CHECK_INT(aril_tensor_status(aril_add(tall, wide)), ARIL_ERR_SHAPE);
    CHECK_INT(aril_tensor_status(aril_matmul(tall, wide)), ARIL_ERR_SHAPE);
    CHECK_INT(aril_tensor_status(aril_expand(tall, ARIL_SHAPE(-1, n))), ARIL_ERR_SHAPE);
    aril_tensor *longer = aril_expand(one, ARIL_SHAPE(1, (int64_t)1 << 58)), *all[64];
    for (int i = 0; i < 64; i++) all[i] = longer;
    CHECK_INT(aril_tensor_status(aril_cat((aril_list){ 64, all }, 1)), ARIL_ERR_SHAPE);
    aril_clear_error();
}

/* Three planes, as of images, have a kernel of their own. */
TEST(planes_become_pixels_of_any_number)
{
    for (int64_t width = 1; width < 30; width++)
        for (int64_t planes = 2; planes <= 4; planes++) {
            ARIL_SCOPE;
            int64_t n = 2 * planes * 3 * width;
            aril_tensor *x = aril_reshape(aril_arange(0, (double)n, 1, ARIL_F32, aril_cpu()),
                                          ARIL_SHAPE(2, planes, 3, width));
            aril_tensor *y = aril_contiguous(aril_permute(x, ARIL_AXES(0, 2, 3, 1)));
            const float *got = aril_data(y);
            for (int64_t i = 0; i < n; i++) {
                int64_t plane = i % planes, pixel = i / planes % (3 * width);
                int64_t sample = i / planes / (3 * width);
                CHECK_INT((int64_t)got[i], (sample * planes + plane) * 3 * width + pixel);
            }
        }
}
