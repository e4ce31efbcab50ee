/* Autocast: dtypes of results as in PyTorch, regions, gradients, cast weights, traces. */
#include <aril/aril.h>

#include "core/memory.h"
#include "support/recorder.h"
#include "support/test.h"

#include <pthread.h>
#include <string.h>

static aril_tensor *uniform(aril_dtype dtype, aril_shape shape)
{
    return aril_cast(aril_rand(shape, ARIL_F32, aril_cpu()), dtype);
}

static aril_tensor *classes(int64_t n, aril_shape shape)
{
    return aril_randint(0, n, shape, ARIL_I64, aril_cpu());
}

/* ---- dtypes as in PyTorch ---- */

/* Symmetric and positive definite. */
static aril_tensor *definite(aril_dtype dtype)
{
    aril_tensor *eye = aril_eye(3, 3, ARIL_F32, aril_cpu());
    return aril_cast(aril_add_scalar(aril_mul_scalar(eye, 2), 0.1), dtype);
}

#define U(dtype, ...)    uniform(dtype, ARIL_SHAPE(__VA_ARGS__))
#define X(dtype)         U(dtype, 2, 3)
#define ONES(dtype, ...) aril_cast(aril_ones(ARIL_SHAPE(__VA_ARGS__), ARIL_F32, aril_cpu()), dtype)

static aril_tensor *indices_of(aril_tensor *x)
{
    aril_tensor *indices;
    aril_max_pool2d(x, (aril_pool_opts){ .kernel = { 2 } }, &indices);
    return indices;
}

static aril_tensor *normed(aril_tensor *x)
{
    return aril_batch_norm(x, ONES(ARIL_F32, 3), NULL, NULL, NULL, (aril_batch_norm_opts){ 0 });
}

static const aril_pool_opts BY2 = { .kernel = { 2, 2, 2 } };

/* The function that tests/golden/autocast.py calls by that name: the first input in dtype a, the
 * others in b. */
#define DEFINE(name, value)                                     \
    static aril_tensor *case_##name(aril_dtype a, aril_dtype b) \
    {                                                           \
        (void)b;                                                \
        return value;                                           \
    }

DEFINE(matmul, aril_matmul(U(a, 2, 3), U(b, 3, 4)))
DEFINE(matmul_vector, aril_matmul(U(a, 2, 3), U(b, 3)))
DEFINE(mm, aril_mm(U(a, 2, 3), U(b, 3, 4)))
DEFINE(bmm, aril_bmm(U(a, 2, 3, 4), U(b, 2, 4, 5)))
DEFINE(mv, aril_mv(U(a, 2, 3), U(b, 3)))
DEFINE(dot, aril_dot(U(a, 3), U(b, 3)))
DEFINE(outer, aril_outer(U(a, 3), U(b, 3)))
DEFINE(addmm, aril_addmm(U(a, 2, 4), U(b, 2, 3), U(b, 3, 4), 1, 1))
DEFINE(baddbmm, aril_baddbmm(U(a, 2, 3, 5), U(b, 2, 3, 4), U(b, 2, 4, 5), 1, 1))
DEFINE(addmv, aril_addmv(U(a, 2), U(b, 2, 3), U(b, 3), 1, 1))
DEFINE(linear, aril_linear(U(a, 2, 3), U(b, 4, 3), U(b, 4)))
DEFINE(einsum, aril_einsum("ij,jk->ik", ARIL_LIST(U(a, 2, 3), U(b, 3, 4))))
DEFINE(matrix_power, aril_matrix_power(U(a, 3, 3), 3))
DEFINE(conv1d, aril_conv1d(U(a, 1, 2, 8), U(b, 3, 2, 3), NULL, (aril_conv_opts){ 0 }))
DEFINE(conv2d, aril_conv2d(U(a, 1, 2, 8, 8), U(b, 3, 2, 3, 3), U(b, 3), (aril_conv_opts){ 0 }))
DEFINE(conv3d, aril_conv3d(U(a, 1, 2, 4, 4, 4), U(b, 3, 2, 3, 3, 3), NULL, (aril_conv_opts){ 0 }))
DEFINE(conv_transpose2d,
       aril_conv_transpose2d(U(a, 1, 2, 4, 4), U(b, 2, 3, 3, 3), NULL, (aril_conv_opts){ 0 }))
DEFINE(attention, aril_scaled_dot_product_attention(U(a, 1, 2, 4, 8), U(b, 1, 2, 4, 8),
                                                    U(b, 1, 2, 4, 8), (aril_attention_opts){ 0 }))
DEFINE(prelu, aril_prelu(U(a, 1, 3, 4), U(b, 3, 1)))
DEFINE(add, aril_add(X(a), X(b)))
DEFINE(mul_scalar, aril_mul_scalar(X(a), 2))
DEFINE(exp, aril_exp(X(a)))
DEFINE(relu, aril_relu(X(a)))
DEFINE(gelu, aril_gelu(X(a)))
DEFINE(pow, aril_pow_scalar(X(a), 2))
DEFINE(sum, aril_sum(X(a), ARIL_ALL))
DEFINE(mean, aril_mean(X(a), ARIL_ALL))
DEFINE(prod, aril_prod(X(a), ARIL_ALL))
DEFINE(cumsum, aril_cumsum(X(a), 1))
DEFINE(logsumexp, aril_logsumexp(X(a), ARIL_AXES(1)))
DEFINE(std, aril_std(X(a), ARIL_ALL, 1))
DEFINE(softmax, aril_softmax(X(a), 1))
DEFINE(log_softmax, aril_log_softmax(X(a), 1))
DEFINE(quantile, aril_quantile(X(a), aril_scalar(0.5), ARIL_ALL, 0))
DEFINE(trace, aril_trace(U(a, 3, 3)))
DEFINE(layer_norm, aril_layer_norm(X(a), U(a, 3), U(a, 3), ARIL_SHAPE(3), (aril_norm_opts){ 0 }))
DEFINE(batch_norm_f32_weight, normed(U(a, 2, 3, 4)))
DEFINE(cdist, aril_cdist(X(a), X(b), 2))
DEFINE(max_pool2d, aril_max_pool2d(U(a, 1, 2, 4, 4), BY2, NULL))
DEFINE(max_pool3d, aril_max_pool3d(U(a, 1, 2, 4, 4, 4), BY2, NULL))
DEFINE(avg_pool2d, aril_avg_pool2d(U(a, 1, 2, 4, 4), BY2))
DEFINE(avg_pool3d, aril_avg_pool3d(U(a, 1, 2, 4, 4, 4), BY2))
DEFINE(adaptive_avg_pool2d, aril_adaptive_avg_pool2d(U(a, 1, 2, 4, 4), ARIL_SHAPE(2, 2)))
DEFINE(adaptive_avg_pool3d, aril_adaptive_avg_pool3d(U(a, 1, 2, 4, 4, 4), ARIL_SHAPE(2, 2, 2)))
DEFINE(adaptive_max_pool3d,
       aril_adaptive_max_pool3d(U(a, 1, 2, 4, 4, 4), ARIL_SHAPE(2, 2, 2), NULL))
DEFINE(max_unpool2d, aril_max_unpool2d(U(a, 1, 2, 2, 2), indices_of(U(ARIL_F32, 1, 2, 4, 4)),
                                       ARIL_SHAPE(4, 4), BY2))
#define PAD(dtype, mode_) \
    aril_pad(U(dtype, 1, 2, 4), ARIL_PADS(1, 1), (aril_pad_opts){ .mode = mode_ })
DEFINE(pad_constant, PAD(a, ARIL_PAD_CONSTANT))
DEFINE(pad_reflect, PAD(a, ARIL_PAD_REFLECT))
DEFINE(pad_replicate, PAD(a, ARIL_PAD_REPLICATE))
DEFINE(pad_circular, PAD(a, ARIL_PAD_CIRCULAR))
DEFINE(grid_sample, aril_grid_sample(U(a, 1, 2, 4, 4), U(b, 1, 3, 3, 2), (aril_grid_opts){ 0 }))
DEFINE(interpolate, aril_interpolate(U(a, 1, 2, 4, 4), (aril_interpolate_opts){ .size = { 8, 8 } }))
DEFINE(cross_entropy, aril_cross_entropy(X(a), classes(3, ARIL_SHAPE(2))))
DEFINE(cross_entropy_soft, aril_cross_entropy(X(a), aril_softmax(X(b), 1)))
DEFINE(nll_loss, aril_nll_loss(X(a), classes(3, ARIL_SHAPE(2))))
DEFINE(mse_loss, aril_mse_loss(X(a), X(b)))
DEFINE(l1_loss, aril_l1_loss(X(a), X(b)))
DEFINE(smooth_l1_loss, aril_smooth_l1_loss(X(a), X(b)))
DEFINE(huber_loss, aril_huber_loss(X(a), X(b)))
DEFINE(bce_with_logits, aril_bce_with_logits(X(a), X(b)))
DEFINE(kl_div, aril_kl_div(X(a), X(b)))
DEFINE(poisson_nll_loss, aril_poisson_nll_loss(X(a), X(b)))
DEFINE(soft_margin_loss, aril_soft_margin_loss(X(a), X(b)))
DEFINE(hinge_embedding_loss, aril_hinge_embedding_loss(X(a), ONES(b, 2, 3)))
DEFINE(margin_ranking_loss, aril_margin_ranking_loss(U(a, 3), U(b, 3), ONES(b, 3)))
DEFINE(cosine_embedding_loss, aril_cosine_embedding_loss(X(a), X(b), ONES(b, 2)))
DEFINE(triplet_margin_loss, aril_triplet_margin_loss(X(a), X(b), aril_add_scalar(X(b), 1)))
DEFINE(multi_margin_loss, aril_multi_margin_loss(X(a), classes(3, ARIL_SHAPE(2))))
DEFINE(multilabel_margin_loss, aril_multilabel_margin_loss(X(a), classes(3, ARIL_SHAPE(2, 3))))
DEFINE(ctc_loss,
       aril_ctc_loss(aril_log_softmax(U(a, 6, 1, 4), 2),
                     aril_from((int64_t[]){ 1, 2 }, ARIL_SHAPE(1, 2), ARIL_I64, aril_cpu()),
                     aril_from((int64_t[]){ 6 }, ARIL_SHAPE(1), ARIL_I64, aril_cpu()),
                     aril_from((int64_t[]){ 2 }, ARIL_SHAPE(1), ARIL_I64, aril_cpu())))
DEFINE(inverse, aril_inverse(definite(a)))
DEFINE(cholesky, aril_cholesky(definite(a), false))
DEFINE(solve, aril_solve(definite(a), U(b, 3, 2)))
DEFINE(lstsq, aril_lstsq(definite(a), U(b, 3, 2)))
DEFINE(qr, aril_qr(definite(a), NULL))
DEFINE(svd, aril_svd(definite(a), NULL, NULL))
DEFINE(svdvals, aril_svdvals(definite(a)))
DEFINE(eigh, aril_eigh(definite(a), NULL))
DEFINE(pinv, aril_pinv(definite(a), 0))
DEFINE(triangular_solve,
       aril_triangular_solve(definite(a), U(b, 3, 2), (aril_triangular_opts){ 0 }))
DEFINE(rfft, aril_rfft(U(a, 8), (aril_fft_opts){ 0 }))
DEFINE(stft, aril_stft(U(a, 32), 8, (aril_stft_opts){ 0 }))
DEFINE(cat, aril_cat(ARIL_LIST(X(a), X(b)), 0))
DEFINE(stack, aril_stack(ARIL_LIST(X(a), X(b)), 0))
DEFINE(index_copy,
       aril_index_copy(X(a), aril_from((int64_t[]){ 1 }, ARIL_SHAPE(1), ARIL_I64, aril_cpu()),
                       U(b, 1, 3), 0))
DEFINE(reshape, aril_reshape(X(a), ARIL_SHAPE(6)))
DEFINE(embedding, aril_embedding(classes(3, ARIL_SHAPE(4)), U(a, 3, 2), (aril_embedding_opts){ 0 }))
DEFINE(index_select, aril_index_select(X(a), classes(2, ARIL_SHAPE(1)), 0))

enum { NONE = -1 }; /* PyTorch refuses the inputs */

static const struct {
    const char *name;
    aril_tensor *(*run)(aril_dtype a, aril_dtype b);
    int dtype[3]; /* all inputs f32, all bf16, the first f32 and the others bf16 */
} cases[] = {
#define CASE(name, full, low, mixed) { #name, case_##name, { full, low, mixed } },
#include "golden/autocast.h"
#undef CASE
};

TEST(dtypes_are_those_of_pytorch)
{
    static const aril_dtype in[3][2] = { { ARIL_F32, ARIL_F32 },
                                         { ARIL_BF16, ARIL_BF16 },
                                         { ARIL_F32, ARIL_BF16 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int k = 0; k < 3; k++) {
            ARIL_SCOPE;
            ARIL_AUTOCAST(ARIL_BF16);
            if (cases[i].dtype[k] == NONE) continue;
            aril_tensor *y = cases[i].run(in[k][0], in[k][1]);
            const char *message = aril_error();
            if (strstr(message, "LAPACK")) { /* this build has no linear algebra */
                aril_clear_error();
                continue;
            }
            CHECK_MSG(aril_tensor_status(y) == ARIL_OK, "%s: %s", cases[i].name, message);
            CHECK_MSG((int)aril_dtype_of(y) == cases[i].dtype[k], "%s of %s and %s is %s, not %s",
                      cases[i].name, aril_dtype_name(in[k][0]), aril_dtype_name(in[k][1]),
                      aril_dtype_name(aril_dtype_of(y)),
                      aril_dtype_name((aril_dtype)cases[i].dtype[k]));
        }
    }
}

/* ---- regions ---- */

static aril_dtype product(void)
{
    ARIL_SCOPE;
    return aril_dtype_of(aril_matmul(U(ARIL_F32, 2, 3), U(ARIL_F32, 3, 2)));
}

/* In f16 regions functions that leave its range compute in f32, as in PyTorch on CUDA. */
TEST(f16_regions_compute_sums_and_powers_in_f32)
{
    static const aril_dtype types[] = { ARIL_F16, ARIL_BF16 };
    for (int t = 0; t < 2; t++) {
        ARIL_SCOPE;
        aril_dtype wide = t ? ARIL_BF16 : ARIL_F32;
        aril_tensor *h = aril_full(ARIL_SHAPE(4, 64), 64, types[t], aril_cpu());
        ARIL_AUTOCAST(types[t]);
        aril_tensor *y[] = { aril_square(h),
                             aril_pow_scalar(h, 2),
                             aril_exp(aril_mul_scalar(h, 0.25)),
                             aril_rsqrt(h),
                             aril_sum(h, ARIL_AXES(1)),
                             aril_cumsum(h, 1),
                             aril_norm(h, ARIL_AXES(1), 2),
                             aril_softmax(h, 1),
                             aril_layer_norm(h, NULL, NULL, ARIL_SHAPE(64), (aril_norm_opts){ 0 }),
                             aril_sum(aril_square(h), ARIL_ALL) };
        for (size_t i = 0; i < sizeof y / sizeof *y; i++) {
            CHECK_INT(aril_dtype_of(y[i]), wide);
            CHECK_MSG(aril_item(aril_all(aril_isfinite(y[i]), ARIL_ALL)), "result %zu", i);
        }
        CHECK_NEAR(aril_item(y[9]), 64.0 * 64 * 256, t ? 8192 : 0);
        CHECK_INT(aril_dtype_of(aril_relu(h)), types[t]);
        CHECK_INT(aril_dtype_of(aril_mean(h, ARIL_ALL)), types[t]);
        CHECK_INT(aril_dtype_of(aril_matmul(h, aril_transpose(h, 0, 1))), types[t]);
    }
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

/* The class is a property of the op's row, which the table shows. */
TEST(the_table_shows_ops_that_are_wide_in_f16)
{
    const char *const wide[] = { "exp", "log", "pow", "softplus", "sum", "softmax", "group_norm" };
    int found = 0, all = 0;
    for (int i = 0; i < aril_op_count(); i++) {
        aril_op_info info = aril_op_at(i);
        bool is_wide = info.autocast && strcmp(info.autocast, "f32 in f16 regions") == 0;
        all += is_wide;
        for (size_t k = 0; k < sizeof wide / sizeof *wide; k++)
            found += is_wide && strcmp(info.name, wide[k]) == 0;
    }
    CHECK_INT(found, (int)(sizeof wide / sizeof *wide));
    CHECK_INT(all, 26);
}

TEST(regions_nest_and_can_be_disabled)
{
    CHECK_INT(product(), ARIL_F32);
    {
        ARIL_AUTOCAST(ARIL_BF16);
        CHECK_INT(product(), ARIL_BF16);
        CHECK_INT(aril_autocast_dtype(aril_cpu()), ARIL_BF16);
        {
            ARIL_NO_AUTOCAST;
            CHECK_INT(product(), ARIL_F32);
            CHECK_INT(aril_autocast_dtype(aril_cpu()), ARIL_F32);
            ARIL_AUTOCAST(ARIL_F16);
            CHECK_INT(product(), ARIL_F16);
        }
        CHECK_INT(product(), ARIL_BF16);
        {
            ARIL_AUTOCAST(ARIL_F32);
            CHECK_INT(product(), ARIL_F32);
        }
        CHECK_INT(product(), ARIL_BF16);
    }
    CHECK_INT(product(), ARIL_F32);
    CHECK_STR(aril_error(), "");
}

TEST(regions_act_on_their_kind_of_device)
{
    ARIL_AUTOCAST_ON(aril_cuda(0), ARIL_BF16);
    CHECK_INT(product(), ARIL_F32);
    CHECK_INT(aril_autocast_dtype(aril_cuda(0)), ARIL_BF16);
    ARIL_AUTOCAST_ON(aril_cpu(), ARIL_F16);
    CHECK_INT(product(), ARIL_F16);
    CHECK_INT(aril_autocast_dtype(aril_cuda(0)), ARIL_BF16);
}

TEST(a_guard_left_open_ends_with_the_outer_one)
{
    aril_guard outer = aril_scope_begin();
    aril_autocast_begin(ARIL_BF16);
    CHECK_INT(product(), ARIL_BF16);
    aril_guard_end(&outer);
    CHECK_INT(product(), ARIL_F32);
}

TEST(other_dtypes_are_refused)
{
    static const aril_dtype refused[] = { ARIL_F64, ARIL_I32, ARIL_BOOL, ARIL_F8E4M3FN };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        ARIL_AUTOCAST(refused[i]);
        CHECK_INT(aril_error_code(), ARIL_ERR_DTYPE);
        CHECK_MSG(strstr(aril_error(), "expected bf16 or f16"), "%s", aril_error());
        aril_clear_error();
        CHECK_INT(product(), ARIL_F32);
    }
    ARIL_AUTOCAST_ON(((aril_device){ .kind = -1 }), ARIL_BF16);
    CHECK_INT(aril_error_code(), ARIL_ERR_DEVICE);
    aril_clear_error();
}

static void *product_of_another_thread(void *result)
{
    *(aril_dtype *)result = product();
    return NULL;
}

TEST(regions_are_per_thread)
{
    pthread_t thread;
    aril_dtype there = ARIL_I8;
    ARIL_AUTOCAST(ARIL_BF16);
    CHECK_INT(product(), ARIL_BF16);
    CHECK_INT(pthread_create(&thread, NULL, product_of_another_thread, &there), 0);
    pthread_join(thread, NULL);
    CHECK_INT(there, ARIL_F32);
}

TEST(f64_and_in_place_forms_are_left_alone)
{
    ARIL_SCOPE;
    ARIL_AUTOCAST(ARIL_BF16);
    aril_tensor *wide = aril_matmul(U(ARIL_F64, 2, 3), U(ARIL_F64, 3, 2));
    CHECK_INT(aril_dtype_of(wide), ARIL_F64);
    aril_tensor *x = U(ARIL_F32, 2, 3);
    CHECK_INT(aril_dtype_of(aril_add_(x, U(ARIL_BF16, 2, 3))), ARIL_F32);
    CHECK_INT(aril_dtype_of(aril_prelu_(x, U(ARIL_F32, 3))), ARIL_F32);
    aril_tensor *loss = aril_mse_loss(X(ARIL_F64), X(ARIL_F64));
    CHECK_INT(aril_dtype_of(loss), ARIL_F64);
    CHECK_STR(aril_error(), "");
}

/* A list longer than the inputs that fit on the stack. */
TEST(long_lists_are_cast)
{
    ARIL_SCOPE;
    ARIL_AUTOCAST(ARIL_BF16);
    aril_tensor *many[40];
    for (int i = 0; i < 40; i++) many[i] = U(i == 17 ? ARIL_F32 : ARIL_BF16, 2, 3);
    aril_tensor *y = aril_cat((aril_list){ 40, many }, 0);
    CHECK_INT(aril_dtype_of(y), ARIL_F32);
    CHECK_INT(aril_size(y, 0), 80);
}

/* ---- gradients ---- */

TEST(gradients_reach_f32_leaves)
{
    ARIL_SCOPE;
    aril_seed(3);
    aril_tensor *w = aril_parameter(U(ARIL_F32, 4, 3)), *b = aril_parameter(U(ARIL_F32, 4));
    aril_tensor *x = U(ARIL_F32, 5, 3), *loss, *exact[2];
    aril_backward(
        aril_mse_loss(aril_linear(x, w, b), aril_zeros(ARIL_SHAPE(5, 4), ARIL_F32, aril_cpu())));
    exact[0] = aril_copy(aril_grad(w));
    exact[1] = aril_copy(aril_grad(b));
    aril_zero_grad(w);
    aril_zero_grad(b);
    {
        ARIL_AUTOCAST(ARIL_BF16);
        aril_tensor *y = aril_linear(x, w, b);
        CHECK_INT(aril_dtype_of(y), ARIL_BF16);
        loss = aril_mse_loss(y, aril_zeros(ARIL_SHAPE(5, 4), ARIL_F32, aril_cpu()));
        CHECK_INT(aril_dtype_of(loss), ARIL_F32);
    }
    CHECK_INT(aril_backward(loss), ARIL_OK);
    aril_tensor *leaf[2] = { w, b };
    for (int i = 0; i < 2; i++) {
        aril_tensor *g = aril_grad(leaf[i]);
        CHECK_INT(aril_dtype_of(g), ARIL_F32);
        double largest = aril_item(aril_amax(aril_abs(exact[i]), ARIL_ALL));
        double off = aril_item(aril_amax(aril_abs(aril_sub(g, exact[i])), ARIL_ALL));
        CHECK(off > 0 && off < largest / 50);
    }
    aril_release(w);
    aril_release(b);
}

/* Gradient rules are made of products too: they run in the dtypes of the forward pass, inside a
 * region as outside. */
TEST(backward_inside_a_region_casts_nothing)
{
    ARIL_SCOPE;
    aril_tensor *w = aril_parameter(U(ARIL_F32, 3, 3)), *grad[2];
    aril_tensor *x = U(ARIL_F32, 2, 3);
    for (int inside = 0; inside < 2; inside++) {
        aril_tensor *loss = aril_sum(aril_square(aril_matmul(x, w)), ARIL_ALL);
        ARIL_AUTOCAST(inside ? ARIL_BF16 : ARIL_F32);
        aril_backward(loss);
        grad[inside] = aril_copy(aril_grad(w));
        aril_zero_grad(w);
    }
    CHECK_INT(aril_dtype_of(grad[1]), ARIL_F32);
    CHECK_NEAR(aril_item(aril_amax(aril_abs(aril_sub(grad[0], grad[1])), ARIL_ALL)), 0, 0);
    aril_release(w);
}

static void linear_of(void *w, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = aril_linear(in[0], w, NULL);
}

/* Recomputing in the backward pass, outside the region, gives the dtype of the forward pass. */
TEST(checkpoints_recompute_in_the_same_dtype)
{
    ARIL_SCOPE;
    int64_t before = aril__live_blocks();
    {
        ARIL_SCOPE;
        aril_tensor *w = aril_parameter(U(ARIL_F32, 3, 3)), *grad[2];
        aril_tensor *x = aril_parameter(U(ARIL_F32, 2, 3)), *y;
        for (int again = 0; again < 2; again++) {
            {
                ARIL_AUTOCAST(ARIL_BF16);
                if (again)
                    aril_checkpoint(linear_of, w, ARIL_LIST(x), 1, &y);
                else
                    linear_of(w, &x, &y);
            }
            CHECK_INT(aril_dtype_of(y), ARIL_BF16);
            CHECK_INT(aril_backward(aril_sum(aril_cast(y, ARIL_F32), ARIL_ALL)), ARIL_OK);
            grad[again] = aril_copy(aril_grad(w));
            aril_zero_grad(w);
            aril_zero_grad(x);
        }
        CHECK_NEAR(aril_item(aril_amax(aril_abs(aril_sub(grad[0], grad[1])), ARIL_ALL)), 0, 0);
        aril_release(w);
        aril_release(x);
    }
    CHECK_INT(aril__live_blocks(), before);
}

/* A mixed network: bf16 products between f32 norms and biases. */
TEST(a_network_trains_under_autocast)
{
    ARIL_SCOPE;
    aril_seed(1);
    aril_module *net =
        aril_nn_sequential(aril_nn_conv2d(1, 4, 3), aril_nn_batch_norm2d(4), aril_nn_relu(),
                           aril_nn_max_pool2d(2), aril_nn_flatten(), aril_nn_linear(36, 3));
    aril_optim *opt = aril_adam(aril_parameters(net), (aril_adam_opts){ .lr = 0.02 });
    aril_tensor *x = U(ARIL_F32, 12, 1, 8, 8), *t = classes(3, ARIL_SHAPE(12));
    double first = 0, last = 0;
    for (int i = 0; i < 30; i++) {
        ARIL_SCOPE;
        aril_tensor *loss;
        {
            ARIL_AUTOCAST(ARIL_BF16);
            aril_tensor *y = aril_forward(net, x);
            CHECK_INT(aril_dtype_of(y), ARIL_BF16);
            loss = aril_cross_entropy(y, t);
        }
        CHECK_INT(aril_backward(loss), ARIL_OK);
        CHECK_INT(aril_step(opt), ARIL_OK);
        last = aril_item(loss);
        if (i == 0) first = last;
    }
    CHECK_STR(aril_error(), "");
    CHECK_MSG(last < first / 4, "the loss went from %g to %g", first, last);
    aril_optim_free(opt);
    aril_module_release(net);
}

/* ---- cast weights ---- */

/* Casts while products of x and w are computed, those inside of kernels included. */
static int64_t all_casts(aril_tensor *x, aril_tensor *w, int times)
{
    ARIL_SCOPE;
    const aril_profile_row *row;
    int64_t casts = 0;
    aril_profile_begin((aril_profile_opts){ 0 });
    for (int i = 0; i < times; i++) aril_matmul(x, w);
    aril_profile_end();
    for (int i = 0, n = aril_profile_rows(&row); i < n; i++)
        if (strcmp(row[i].name, "cast") == 0) casts += row[i].calls;
    return casts;
}

/* How many of them autocast added. */
static int64_t casts_of(aril_tensor *x, aril_tensor *w, int times)
{
    ARIL_SCOPE;
    aril_tensor *low = aril_detach(aril_cast(w, aril_dtype_of(x)));
    int64_t casts = all_casts(x, w, times);
    return casts - all_casts(x, low, times);
}

TEST(weights_are_cast_once_per_version)
{
    ARIL_SCOPE;
    aril_tensor *w = aril_parameter(U(ARIL_F32, 3, 4)), *x = U(ARIL_BF16, 2, 3);
    {
        ARIL_AUTOCAST(ARIL_BF16);
        CHECK_INT(casts_of(x, w, 3), 1);
        CHECK_INT(casts_of(x, w, 3), 0);
        {
            ARIL_NO_GRAD;
            aril_add_scalar_(w, 1);
        }
        CHECK_INT(casts_of(x, w, 3), 1);
        { /* in another dtype too, and without gradients */
            ARIL_AUTOCAST(ARIL_F16);
            ARIL_NO_GRAD;
            CHECK_INT(casts_of(U(ARIL_F16, 2, 3), w, 2), 1);
        }
        CHECK_INT(casts_of(x, w, 1), 0);
        { /* disabled inside: the outer region goes on */
            ARIL_NO_AUTOCAST;
        }
        CHECK_INT(casts_of(x, w, 1), 0);
    }
    ARIL_AUTOCAST(ARIL_BF16);
    CHECK_INT(casts_of(x, w, 1), 1);
    aril_release(w);
}

static double first_of_product(aril_tensor *x, aril_tensor *w)
{
    ARIL_SCOPE;
    return aril_item(aril_select(aril_select(aril_matmul(x, w), 0, 0), 0, 0));
}

TEST(changed_weights_are_cast_again)
{
    ARIL_SCOPE;
    aril_tensor *w = aril_parameter(aril_ones(ARIL_SHAPE(1, 1), ARIL_F32, aril_cpu()));
    aril_tensor *x = aril_ones(ARIL_SHAPE(1, 1), ARIL_F32, aril_cpu());
    aril_optim *opt = aril_sgd(ARIL_TENSORS(w), (aril_sgd_opts){ .lr = 1 });
    ARIL_AUTOCAST(ARIL_BF16);
    CHECK_NEAR(first_of_product(x, w), 1, 0);
    CHECK_INT(aril_backward(aril_sum(aril_matmul(x, w), ARIL_ALL)), ARIL_OK);
    CHECK_INT(aril_step(opt), ARIL_OK); /* 1 - 1 */
    CHECK_NEAR(first_of_product(x, w), 0, 0);
    {
        ARIL_NO_GRAD;
        aril_add_scalar_(w, 3);
    }
    CHECK_NEAR(first_of_product(x, w), 3, 0);
    float *data = aril_data_strided(w); /* from now on it may change unseen */
    for (int i = 4; i < 6; i++) {
        *data = (float)i;
        CHECK_NEAR(first_of_product(x, w), i, 0);
    }
    aril_optim_free(opt);
    aril_release(w);
}

/* Parts with and without gradients, and several backward passes, share the values. */
TEST(cast_weights_serve_several_graphs)
{
    ARIL_SCOPE;
    aril_tensor *w = aril_parameter(aril_ones(ARIL_SHAPE(1, 1), ARIL_F32, aril_cpu()));
    aril_tensor *x = aril_ones(ARIL_SHAPE(1, 1), ARIL_F32, aril_cpu());
    ARIL_AUTOCAST(ARIL_BF16);
    {
        ARIL_INFERENCE;
        first_of_product(x, w);
    }
    for (int i = 1; i <= 3; i++) {
        CHECK_INT(aril_backward(aril_sum(aril_matmul(x, w), ARIL_ALL)), ARIL_OK);
        CHECK_NEAR(aril_item(aril_grad(w)), i, 0);
    }
    aril_tensor *twice = aril_sum(aril_matmul(aril_matmul(x, w), w), ARIL_ALL);
    CHECK_INT(aril_backward(twice), ARIL_OK);
    CHECK_NEAR(aril_item(aril_grad(w)), 5, 0);
    aril_release(w);
}

TEST(regions_release_cast_weights)
{
    int64_t before = aril__live_blocks();
    {
        ARIL_SCOPE;
        aril_tensor *many[100];
        for (int i = 0; i < 100; i++) many[i] = aril_parameter(U(ARIL_F32, 3, 3));
        {
            ARIL_AUTOCAST(ARIL_BF16);
            ARIL_SCOPE;
            aril_tensor *x = U(ARIL_F32, 2, 3);
            for (int i = 0; i < 100; i++) x = aril_matmul(x, many[i]);
            aril_backward(aril_sum(aril_cast(x, ARIL_F32), ARIL_ALL));
            aril_release(many[0]); /* released before the region ends */
        }
        for (int i = 1; i < 100; i++) aril_release(many[i]);
    }
    CHECK_INT(aril__live_blocks(), before);
}

/* Two weights in one region, with an allocation that fails. */
static aril_tensor *product_of_two(aril_tensor *x, aril_tensor *const *w)
{
    ARIL_SCOPE;
    ARIL_AUTOCAST(ARIL_BF16);
    aril_matmul(x, w[0]);
    return aril_escape(aril_sum(aril_matmul(aril_matmul(x, w[0]), w[1]), ARIL_ALL));
}

TEST(regions_survive_failed_allocations)
{
    ARIL_SCOPE;
    aril_tensor *x = ONES(ARIL_F32, 2, 3);
    aril_tensor *w[2] = { aril_parameter(ONES(ARIL_F32, 3, 3)),
                          aril_parameter(ONES(ARIL_F32, 3, 3)) };
    product_of_two(x, w);
    bool failed = true;
    for (int64_t n = 1; failed; n++) {
        ARIL_SCOPE;
        int64_t blocks = aril__live_blocks();
        aril_fail_allocation(n);
        aril_tensor *y = product_of_two(x, w);
        failed = aril_allocation_failed();
        aril_fail_allocation(0);
        aril_status s = aril_tensor_status(y);
        if (s == ARIL_OK) CHECK_NEAR(aril_item(y), 54, 0);
        CHECK(s == ARIL_OK || s == ARIL_ERR_MEMORY);
        aril_drop(y);
        aril_clear_error();
        CHECK_INT(aril__live_blocks(), blocks);
    }
    aril_release(w[0]);
    aril_release(w[1]);
}

/* ---- traces ---- */

static int recorded(const recorder *r, const char *name)
{
    int n = 0;
    for (int i = 0; i < recorder_count(r); i++) n += strcmp(recorder_name(r, i), name) == 0;
    return n;
}

/* A weight that the region has cast already is cast in the trace all the same: it is state. */
TEST(a_trace_records_the_casts)
{
    ARIL_SCOPE;
    aril_tensor *w = aril_parameter(U(ARIL_F32, 3, 3)), *x = U(ARIL_F32, 2, 3), *traced;
    recorder *r = recorder_new();
    ARIL_AUTOCAST(ARIL_BF16);
    aril_tensor *eager = aril_matmul(x, w);
    {
        ARIL_SCOPE;
        aril_tensor *in = recorder_input(r, ARIL_SHAPE(-1, 3), ARIL_F32);
        recorder_begin(r);
        traced = aril_escape(aril_matmul(in, w));
        recorder_end(r);
    }
    CHECK_STR(aril_error(), "");
    CHECK_INT(aril_dtype_of(traced), ARIL_BF16);
    CHECK_INT(recorded(r, "cast"), 2);
    CHECK_INT(recorded(r, "matmul"), 1);
    ARIL_NO_GRAD;
    aril_tensor *played = recorder_play(r, ARIL_LIST(x), traced);
    CHECK_INT(aril_dtype_of(played), ARIL_BF16);
    CHECK_NEAR(aril_item(aril_amax(aril_abs(aril_sub(played, eager)), ARIL_ALL)), 0, 0);
    aril_zero_(w);
    played = recorder_play(r, ARIL_LIST(x), traced);
    CHECK_NEAR(aril_item(aril_amax(aril_abs(played), ARIL_ALL)), 0, 0);
    recorder_free(r);
    aril_release(w);
}
