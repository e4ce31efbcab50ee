/* Programs whose sizes are all unknown behave as eager mode does at every size: the same values and
 * gradients, also where size 1 broadcasts against n, and an error where eager mode gives one. Every
 * op of the table on every sample, and functions that are composed of ops. ARIL_TEST_OP=name
 * selects one op. */
#include "aril/aril.h"
#include "core/source_location.h"
#include "ops/table/apply.h"
#include "support/compare.h"
#include "support/run_op.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

#define CPU                       aril_cpu()
#define CHECK_OK(call)            CHECK_MSG((call) == ARIL_OK, "%s", aril_error())
#define CHECK_STR_HAS(text, part) CHECK_MSG(strstr((text), (part)), "%s", (text))

/* Takes the first error; a copy of its text. */
static aril_status take_error(char *text, size_t size)
{
    aril_status s = aril_error_code();
    snprintf(text, size, "%s", aril_error());
    aril_clear_error();
    return s;
}

/* ==== composed functions of two matrices, x [A,B] and y [C,D] ==== */

typedef aril_tensor *function(aril_tensor *x, aril_tensor *y);

#define F(name, ...)                                         \
    static aril_tensor *name(aril_tensor *x, aril_tensor *y) \
    {                                                        \
        (void)x;                                             \
        (void)y;                                             \
        return __VA_ARGS__;                                  \
    }

static aril_tensor *indices(void)
{
    return aril_from((int64_t[]){ 0, 1 }, ARIL_SHAPE(2), ARIL_I64, CPU);
}

static aril_tensor *added_in_place(aril_tensor *x, aril_tensor *y, bool copies)
{
    aril_tensor *r = aril_copy(aril_mul_scalar(x, 1.0));
    return copies ? aril_copy_(r, y) : aril_add_(r, y);
}

static aril_tensor *lstm(aril_tensor *x, aril_tensor *y)
{
    aril_tensor *w = aril_ones(ARIL_SHAPE(12, 4), ARIL_F64, CPU), *h = aril_slice(y, 1, 0, 3, 1);
    aril_tensor *u = aril_full(ARIL_SHAPE(12, 3), 0.1, ARIL_F64, CPU), *c, *in = x;
    return aril_lstm_cell(in, h, aril_tanh(h), w, u, NULL, NULL, &c);
}

static aril_tensor *weighted(aril_tensor *x, aril_tensor *y)
{
    return aril_mse_loss_with(x, aril_mul_scalar(x, 0.5),
                              (aril_loss_opts){ .reduction = ARIL_SUM, .weight = y });
}

static aril_tensor *positions(aril_tensor *y)
{
    return aril_cast(aril_mul_scalar(y, 0), ARIL_I64);
}

F(add, aril_add(x, y))
F(matmul, aril_matmul(x, y))
F(linear, aril_linear(x, y, NULL))
F(bmm, aril_bmm(aril_unsqueeze(x, 1), aril_unsqueeze(y, 2)))
F(addmm, aril_addmm(y, aril_mm(x, aril_t(x)), aril_mm(x, aril_t(x)), 1, 1))
F(inner, aril_inner(x, y))
F(outer, aril_outer(aril_reshape(x, ARIL_SHAPE(-1)), aril_reshape(y, ARIL_SHAPE(-1))))
F(kron, aril_kron(x, y))
F(cdist, aril_cdist(x, y, 2))
F(cross, aril_cross(x, y, 1))
F(dot, aril_dot(aril_reshape(x, ARIL_SHAPE(-1)), aril_reshape(y, ARIL_SHAPE(-1))))
F(einsum_product, aril_einsum("ij,jk->ik", ARIL_LIST(x, y)))
F(einsum_rows, aril_einsum("ij,ij->i", ARIL_LIST(x, y)))
F(einsum_all, aril_einsum("ij,ij->", ARIL_LIST(x, y)))
F(einsum_diagonal, aril_einsum("ii,jk->jk", ARIL_LIST(x, y)))
F(einsum_three, aril_einsum("ij,kj,ij->ik", ARIL_LIST(x, y, y)))
F(tensordot, aril_tensordot(x, y, ARIL_AXES(1), ARIL_AXES(0)))
F(cosine, aril_cosine_similarity(x, y, 1))
F(cosine_rows, aril_cosine_similarity(x, y, 0))
F(pairwise, aril_pairwise_distance(x, y))
F(normalize, aril_normalize(aril_add(x, y), 2, ARIL_AXES(1), 1e-8))
F(mse, aril_mse_loss(x, y))
F(l1, aril_l1_loss(x, y))
F(huber, aril_huber_loss(x, y))
F(smooth_l1, aril_smooth_l1_loss(x, y))
F(poisson, aril_poisson_nll_loss(x, aril_sigmoid(y)))
F(gaussian, aril_gaussian_nll_loss(x, aril_mul_scalar(x, 2), aril_add_scalar(aril_sigmoid(y), 1)))
F(bce, aril_bce_loss(aril_sigmoid(x), aril_sigmoid(y)))
F(bce_logits, aril_bce_with_logits(x, aril_sigmoid(y)))
F(cross_entropy, aril_cross_entropy(x, aril_softmax(y, 1)))
F(hinge, aril_hinge_loss(x, y))
F(hinge_embedding, aril_hinge_embedding_loss(x, y))
F(ranking, aril_margin_ranking_loss(x, y, aril_sign(y)))
F(cosine_embedding, aril_cosine_embedding_loss(x, y, aril_sign(aril_sum(y, ARIL_AXES(1)))))
F(triplet, aril_triplet_margin_loss(x, y, aril_neg(y)))
F(soft_margin, aril_soft_margin_loss(x, y))
F(narrow, aril_narrow(aril_add_scalar(x, 1), 0, 2, 2))
F(narrow_end, aril_narrow(x, 1, -2, 2))
F(narrow_back, aril_narrow(x, 1, -2, 1))
F(view, aril_view(aril_t(x), ARIL_SHAPE(-1)))
F(view_plain, aril_view(aril_mul_scalar(x, 2), ARIL_SHAPE(-1)))
F(add_in_place, added_in_place(x, y, false))
F(copy_in_place, added_in_place(x, y, true))
F(index_copy, aril_index_copy(x, indices(), y, 0))
F(index_add, aril_index_add(x, indices(), y, 0))
F(gather, aril_gather(x, positions(y), 0))
F(take_along, aril_take_along_axis(x, positions(y), 0))
F(put_along, aril_put_along_axis(x, positions(y), aril_scalar(2.0), 0))
F(scatter_add, aril_scatter_add(x, positions(y), y, 0))
F(where, aril_where(aril_gt(x, y), x, y))
F(masked_select, aril_masked_select(x, aril_gt_scalar(y, 0)))
F(masked_fill, aril_masked_fill(x, aril_gt_scalar(y, 0), aril_scalar(3.0)))
F(cat, aril_cat(ARIL_LIST(x, y), 0))
F(stack, aril_stack(ARIL_LIST(x, y), 0))
F(softmax, aril_softmax(aril_mul(x, y), 1))
F(variance, aril_var(aril_add(x, y), ARIL_AXES(1), 1))
F(expand, aril_expand(x, ARIL_SHAPE(4, 3)))
F(layer_norm, aril_layer_norm(aril_mul(x, y), NULL, NULL, ARIL_SHAPE(3), (aril_norm_opts){ 0 }))

static const struct {
    const char *name;
    function *fn;
} functions[] = {
#define R(name)     \
    {               \
#name, name \
    }
    R(add),
    R(matmul),
    R(linear),
    R(bmm),
    R(addmm),
    R(inner),
    R(outer),
    R(kron),
    R(cdist),
    R(cross),
    R(dot),
    R(einsum_product),
    R(einsum_rows),
    R(einsum_all),
    R(einsum_diagonal),
    R(einsum_three),
    R(tensordot),
    R(cosine),
    R(cosine_rows),
    R(pairwise),
    R(normalize),
    R(mse),
    R(l1),
    R(huber),
    R(smooth_l1),
    R(poisson),
    R(gaussian),
    R(bce),
    R(bce_logits),
    R(cross_entropy),
    R(hinge),
    R(hinge_embedding),
    R(ranking),
    R(cosine_embedding),
    R(triplet),
    R(soft_margin),
    R(narrow),
    R(narrow_end),
    R(narrow_back),
    R(view),
    R(view_plain),
    R(add_in_place),
    R(copy_in_place),
    R(index_copy),
    R(index_add),
    R(gather),
    R(take_along),
    R(put_along),
    R(scatter_add),
    R(where),
    R(masked_select),
    R(masked_fill),
    R(cat),
    R(stack),
    R(softmax),
    R(variance),
    R(expand),
    R(layer_norm),
    R(lstm),
    R(weighted),
#undef R
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

static const int64_t sizes[][4] = {
    { 4, 3, 4, 3 }, { 4, 3, 4, 1 }, { 4, 1, 4, 3 }, { 1, 3, 4, 3 }, { 4, 3, 1, 3 }, { 4, 3, 1, 1 },
    { 1, 1, 4, 3 }, { 1, 1, 1, 1 }, { 3, 4, 4, 3 }, { 5, 5, 5, 5 }, { 5, 2, 5, 3 }, { 2, 5, 3, 5 },
    { 6, 4, 2, 4 }, { 0, 3, 1, 3 }, { 3, 0, 3, 1 }, { 4, 1, 1, 3 }, { 4, 4, 4, 4 }, { 2, 2, 2, 2 },
};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* out: the result, and the gradient of the sum of its squares with respect to y. */
static void with_gradient(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    function *fn = functions[*(const int *)ctx].fn;
    aril_tensor *y = aril_detach(in[1]);
    aril_set_requires_grad(y, true);
    out[0] = fn(in[0], y);
    out[1] = aril_zeros_like(in[1]);
    if (aril_tensor_status(out[0]) < 0 || !aril_requires_grad(out[0])) return;
    aril_tensor *total = aril_sum(aril_square(out[0]), ARIL_ALL);
    aril_gradients(total, ARIL_LIST(y), &out[1], (aril_grad_opts){ .allow_unused = true });
    if (!out[1]) out[1] = aril_zeros_like(in[1]);
}

static aril_tensor *matrix(int64_t rows, int64_t columns, double from)
{
    aril_tensor *t = aril_arange(0, rows * columns, 1, ARIL_F64, CPU);
    return aril_reshape(aril_sin(aril_add_scalar(t, from)), ARIL_SHAPE(rows, columns));
}

/* Compares a run, which ended in s, with eager mode at these sizes. */
static void compare_run(const char *name, const int64_t *d, aril_status eager, const char *why,
                        aril_tensor *const *want, aril_status s, aril_tensor *const *got)
{
    char text[256];
    take_error(text, sizeof text);
    CHECK_MSG((eager < 0) == (s < 0), "%s [%d,%d] [%d,%d]: eager \"%s\", the program \"%s\"", name,
              (int)d[0], (int)d[1], (int)d[2], (int)d[3], why, text);
    for (int i = 0; i < 2 && s == ARIL_OK && eager == ARIL_OK; i++) {
        char *differs = test_difference(got[i], want[i], 1e-9, 1e-10);
        CHECK_MSG(!differs, "%s [%d,%d] [%d,%d], result %d: %s", name, (int)d[0], (int)d[1],
                  (int)d[2], (int)d[3], i, differs);
    }
}

/* The program is traced at sizes `first`, then runs at all. */
static void check_function(int which, int first)
{
    const char *name = functions[which].name;
    aril_shape open[2] = { ARIL_SHAPE(-1, -1), ARIL_SHAPE(-1, -1) };
    aril_program *p =
        aril_jit(with_gradient, &which, (aril_jit_opts){ .sizes = open, .n_sizes = 2 });
    for (int k = 0; k < SIZES; k++) {
        ARIL_SCOPE;
        const int64_t *d = sizes[(k + first) % SIZES];
        aril_tensor *in[2] = { matrix(d[0], d[1], 0), matrix(d[2], d[3], 0.5) };
        aril_tensor *want[2] = { NULL }, *got[2] = { NULL };
        char why[256];
        with_gradient(&which, in, want);
        aril_status eager = take_error(why, sizeof why);
        compare_run(name, d, eager, why, want, aril_program_run(p, (aril_list){ 2, in }, got), got);
    }
    aril_program_free(p);
}

TEST(composed_functions_check_the_sizes_of_each_run)
{
    for (int i = 0; i < FUNCTIONS; i++) {
        check_function(i, 0);
        check_function(i, 16);
    }
}

static void check_defined(int which)
{
    const char *name = functions[which].name;
    ARIL_SCOPE;
    aril_graph *g = aril_graph_new(name);
    aril_tensor *x[2] = { aril_placeholder(g, "x", ARIL_SHAPE(-1, -1), ARIL_F64),
                          aril_placeholder(g, "y", ARIL_SHAPE(-1, -1), ARIL_F64) };
    aril_tensor *y[2] = { functions[which].fn(x[0], x[1]), x[1] };
    CHECK_MSG(aril_ok(), "%s, defined: %s", name, aril_error());
    aril_session *s = aril_session_new(g, CPU);
    for (int k = 0; k < SIZES && aril_ok(); k++) {
        ARIL_SCOPE;
        const int64_t *d = sizes[k];
        aril_tensor *in[2] = { matrix(d[0], d[1], 0), matrix(d[2], d[3], 0.5) };
        aril_tensor *got[2] = { NULL }, *want[2] = { NULL, in[1] };
        char why[256];
        want[0] = functions[which].fn(in[0], in[1]);
        aril_status eager = take_error(why, sizeof why);
        aril_status ran = aril_session_run(s, ARIL_FEEDS({ x[0], in[0] }, { x[1], in[1] }),
                                           (aril_list){ 2, y }, got);
        compare_run(name, d, eager, why, want, ran, got);
    }
    aril_session_free(s);
    aril_graph_free(g);
}

TEST(defined_graphs_check_the_sizes_of_each_run)
{
    for (int i = 0; i < FUNCTIONS; i++)
        if (functions[i].fn != add_in_place && functions[i].fn != copy_in_place) check_defined(i);
}

/* A session checks what its fetches need. */
TEST(a_fetch_is_not_checked_for_what_it_does_not_need)
{
    ARIL_SCOPE;
    aril_graph *g = aril_graph_new("two losses");
    aril_tensor *x = aril_placeholder(g, "x", ARIL_SHAPE(-1, -1), ARIL_F32);
    aril_tensor *y = aril_placeholder(g, "y", ARIL_SHAPE(-1, -1), ARIL_F32);
    aril_tensor *strict = aril_bce_loss(x, y), *plain = aril_mse_loss(x, y), *got[1];
    aril_session *s = aril_session_new(g, CPU);
    aril_tensor *a = aril_full(ARIL_SHAPE(3, 2), 0.5, ARIL_F32, CPU);
    aril_tensor *b = aril_full(ARIL_SHAPE(1, 2), 0.5, ARIL_F32, CPU);
    CHECK_OK(aril_session_run(s, ARIL_FEEDS({ x, a }, { y, b }), ARIL_LIST(plain), got));
    CHECK(aril_session_run(s, ARIL_FEEDS({ x, a }, { y, b }), ARIL_LIST(strict), got) < 0);
    CHECK_STR_HAS(aril_error(), "bce_loss: input [3,2] and target [1,2] must have the same shape");
    aril_clear_error();
    aril_session_free(s);
    aril_graph_free(g);
}

static void strict_loss(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_bce_loss(in[0], in[1]);
}

static void plain_loss(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_mse_loss(in[0], in[1]);
}

static void either_loss(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_cond(in[2], strict_loss, plain_loss, ctx, ARIL_LIST(in[0], in[1]), 1, out);
}

/* A branch is checked where it is taken. */
TEST(a_branch_is_checked_when_it_runs)
{
    ARIL_SCOPE;
    aril_shape open[3] = { ARIL_SHAPE(-1, -1), ARIL_SHAPE(-1, -1), { 0 } };
    aril_program *p = aril_jit(either_loss, NULL, (aril_jit_opts){ .sizes = open, .n_sizes = 3 });
    aril_tensor *x = aril_full(ARIL_SHAPE(3, 2), 0.5, ARIL_F32, CPU), *out;
    aril_tensor *y = aril_full(ARIL_SHAPE(1, 2), 0.5, ARIL_F32, CPU);
    aril_tensor *one = aril_ones(ARIL_SHAPE(), ARIL_F32, CPU);
    aril_tensor *zero = aril_zeros(ARIL_SHAPE(), ARIL_F32, CPU);
    CHECK_OK(aril_program_run(p, ARIL_LIST(x, x, one), &out));
    CHECK_OK(aril_program_run(p, ARIL_LIST(x, y, zero), &out));
    CHECK(aril_program_run(p, ARIL_LIST(x, y, one), &out) < 0);
    CHECK_STR_HAS(aril_error(), "bce_loss: input [3,2] and target [1,2] must have the same shape");
    aril_clear_error();
    aril_program_free(p);
}

/* ---- errors ---- */

static int narrow_line;

static void narrowed(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    narrow_line = __LINE__ + 1;
    out[0] = aril_narrow(in[0], 0, 2, 4);
}

TEST(errors_name_the_call_and_the_run)
{
    aril_shape open = ARIL_SHAPE(-1);
    aril_tensor *out, *x = aril_arange(0, 9, 1, ARIL_F32, CPU);
    aril_program *p = aril_jit(narrowed, NULL, (aril_jit_opts){ .sizes = &open, .n_sizes = 1 });
    CHECK_OK(aril_program_run(p, ARIL_LIST(x), &out));
    CHECK(aril_program_run(p, ARIL_LIST(aril_slice(x, 0, 0, 3, 1)), &out) < 0);
    CHECK_STR_HAS(aril_error(),
                  "narrow: length 4 from start 2 is out of range for axis 0 of [3] at ");
    char where[64];
    snprintf(where, sizeof where, "test_graph_sizes.c:%d, run at test_graph_sizes.c:", narrow_line);
    CHECK_STR_HAS(aril_error(), where);
    aril_clear_error();
    CHECK_OK(aril_program_run(p, ARIL_LIST(x), &out)); /* the program goes on */
    aril_program_free(p);
}

/* ---- squeeze ---- */

static void squeezed(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = aril_squeeze(in[0], *(const bool *)ctx ? ARIL_ALL : ARIL_AXES(0));
}

/* An axis is removed in all runs or in none, as in the run that was traced. */
TEST(squeeze_keeps_the_number_of_dimensions_of_the_trace)
{
    for (int all = 0; all < 2; all++)
        for (int64_t first = 1; first < 3; first++) {
            bool every = all;
            aril_shape open = ARIL_SHAPE(-1, 4);
            aril_tensor *out;
            aril_program *p =
                aril_jit(squeezed, &every, (aril_jit_opts){ .sizes = &open, .n_sizes = 1 });
            for (int64_t n = first; n < 4; n++) {
                aril_tensor *x = aril_ones(ARIL_SHAPE(n, 4), ARIL_F32, CPU);
                aril_status s = aril_program_run(p, ARIL_LIST(x), &out);
                CHECK_INT(s == ARIL_OK, (first == 1) == (n == 1));
                if (s == ARIL_OK) CHECK_INT(aril_ndim(out), n == 1 ? 1 : 2);
                if (s < 0) CHECK_STR_HAS(aril_error(), "squeeze: axis 0 of [");
                aril_clear_error();
            }
            if (first > 1) {
                aril_tensor *one = aril_ones(ARIL_SHAPE(1, 4), ARIL_F32, CPU);
                CHECK(aril_program_run(p, ARIL_LIST(one), &out) < 0);
                aril_clear_error();
            }
            aril_program_free(p);
        }
}

/* ---- costs and drawings ---- */

static void flat_loss(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    aril_tensor *flat = aril_reshape(in[0], ARIL_SHAPE(aril_size(in[0], 0), -1));
    out[0] = aril_mean(aril_matmul(flat, aril_ones(ARIL_SHAPE(6, 2), ARIL_F32, CPU)), ARIL_ALL);
}

TEST(programs_of_unknown_sizes_can_be_looked_at)
{
    aril_shape open = ARIL_SHAPE(-1, 2, 3);
    aril_tensor *out, *x = aril_ones(ARIL_SHAPE(5, 2, 3), ARIL_F32, CPU);
    aril_program *p = aril_jit(flat_loss, NULL, (aril_jit_opts){ .sizes = &open, .n_sizes = 1 });
    CHECK_OK(aril_program_run(p, ARIL_LIST(aril_ones(ARIL_SHAPE(4, 2, 3), ARIL_F32, CPU)), &out));
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    CHECK_OK(aril_program_costs(p, ARIL_LIST(x), to));
    fclose(to);
    CHECK_STR_HAS(text, "f32[5,2]"); /* the sizes of this run */
    free(text);
    CHECK_OK(aril_program_draw(p, "test_graph_sizes.dot", ARIL_LIST(x)));
    remove("test_graph_sizes.dot");
    aril_tensor *other = aril_ones(ARIL_SHAPE(5, 3, 3), ARIL_F32, CPU);
    to = open_memstream(&text, &size);
    CHECK(aril_program_costs(p, ARIL_LIST(other), to) < 0);
    fclose(to);
    free(text);
    CHECK_STR_HAS(aril_error(), "input 0 has shape [5,3,3]");
    aril_clear_error();
    aril_program_free(p);
}

/* ==== every op of the table ==== */

typedef struct call {
    const test_sample *s;
    bool present[TEST_INPUTS];
} call;

static struct {
    int samples, runs, refused, untraced;
} count;

static void run_sample(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    const call *c = ctx;
    aril_tensor *x[TEST_INPUTS], *y[TEST_RESULTS];
    int k = 0, n = 0;
    for (int i = 0; i < c->s->n_in; i++) x[i] = c->present[i] ? in[k++] : NULL;
    aril__apply(c->s->op, c->s->n_in, x, c->s->attrs, y);
    for (int i = 0; i < c->s->op->n_out; i++)
        if (i + 1 != c->s->op->reserve_out) out[n++] = y[i];
}

/* Runs the program, and the op at once, on copies of these inputs. */
static void check_run(call *c, aril_program *p, aril_tensor *const *in)
{
    ARIL_SCOPE;
    aril_tensor *x[TEST_INPUTS], *mine[TEST_INPUTS], *theirs[TEST_INPUTS];
    aril_tensor *got[TEST_RESULTS] = { NULL }, *want[TEST_RESULTS] = { NULL };
    int n = 0;
    char why[256], text[256];
    test_copies(c->s, in, x);
    for (int i = 0; i < c->s->n_in; i++)
        if (x[i]) mine[n++] = x[i];
    n = 0;
    test_copies(c->s, in, x);
    for (int i = 0; i < c->s->n_in; i++)
        if (x[i]) theirs[n++] = x[i];
    run_sample(c, mine, want);
    aril_status eager = take_error(why, sizeof why);
    aril_status s = aril_program_run(p, (aril_list){ n, theirs }, got);
    take_error(text, sizeof text);
    count.runs++;
    count.refused += eager < 0;
    char shapes[256] = "";
    for (int i = 0; i < n; i++) {
        char shape[ARIL__SHAPE_TEXT];
        size_t used = strlen(shapes);
        snprintf(shapes + used, sizeof shapes - used, " %s", aril__text(shape, mine[i]));
    }
    CHECK_MSG((eager < 0) == (s < 0), "%s%s: eager \"%s\", the program \"%s\"", c->s->name, shapes,
              why, text);
    for (int i = 0; want[i] && eager == ARIL_OK && s == ARIL_OK; i++) {
        char *differs = test_difference_in_value(got[i], want[i], 1e-12, 1e-13);
        CHECK_MSG(!differs, "%s%s, result %d: %s", c->s->name, shapes, i, differs);
    }
}

/* x with one element along an axis, or one more. */
static aril_tensor *resized(aril_tensor *x, int axis, bool larger)
{
    aril_tensor *first = aril_slice(x, axis, 0, 1, 1);
    return larger ? aril_cat(ARIL_LIST(x, first), axis) : aril_contiguous(first);
}

static void check_sample(const test_sample *s)
{
    ARIL_SCOPE;
    aril_tensor *in[TEST_INPUTS], *out[TEST_RESULTS];
    aril_dtype dtype;
    test_working_on("graphs of unknown sizes", s);
    /* Ops that only gradient rules apply do not check what those know to fit. */
    if (s->op->flags & (RANDOM | GRADIENT) || !test_best_inputs(s, in, &dtype) ||
        test_refused(test_run(s, in, out)))
        return;
    call c = { .s = s };
    aril_shape open[TEST_INPUTS];
    aril_tensor *got[TEST_RESULTS];
    int n = 0;
    for (int i = 0; i < s->n_in; i++) {
        c.present[i] = in[i] != NULL;
        if (!in[i]) continue;
        open[n] = aril_shape_of(in[i]);
        for (int d = 0; d < open[n].ndim; d++) open[n].dim[d] = -1;
        n++;
    }
    aril_program *p = aril_jit(run_sample, &c, (aril_jit_opts){ .sizes = open, .n_sizes = n });
    aril_tensor *copies[TEST_INPUTS], *first[TEST_INPUTS];
    test_copies(s, in, copies);
    for (int i = 0, k = 0; i < s->n_in; i++)
        if (copies[i]) first[k++] = copies[i];
    count.samples++;
    if (aril_program_run(p, (aril_list){ n, first }, got) < 0) {
        char text[256];
        take_error(text, sizeof text); /* a rule that needs sizes says so when it is traced */
        count.untraced++;
        printf("# %s: %s\n", s->name, text);
        aril_program_free(p);
        return;
    }
    check_run(&c, p, in);
    for (int i = 0; i < s->n_in; i++)
        for (int d = 0; in[i] && d < aril_ndim(in[i]); d++)
            for (int larger = 0; larger < 2; larger++) {
                aril_tensor *before = in[i];
                if (aril_size(in[i], d) == 0) continue;
                in[i] = resized(in[i], d, larger);
                if (aril_ok()) check_run(&c, p, in);
                aril_clear_error();
                in[i] = before;
            }
    aril_program_free(p);
}

TEST(every_op_at_other_sizes)
{
    aril__location_off = true; /* thousands of errors */
    test_each_sample(check_sample);
    aril__location_off = false;
    printf("# %d samples, %d need known sizes; %d runs, of which eager mode refuses %d\n",
           count.samples, count.untraced, count.runs, count.refused);
    CHECK(count.runs > 4 * count.samples && 100 * count.untraced < count.samples);
}
