/* Fusion: which nodes become one, as golden texts, and that the results keep their bits. */
#include "aril/aril.h"
#include "graph/graph.h"
#include "graph/passes.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "ops/table/apply.h"
#include "support/compare.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- golden texts ---- */

static aril__value_id node_with(aril__graph *g, const char *op, aril__value_id a, aril__value_id b,
                                const void *attrs, aril_tensor *like)
{
    aril__value_id in[2] = { a, b };
    aril__node_id n = aril__graph_node_add(g, aril__op_find(op), b ? 2 : 1, in, attrs);
    if (!n || !aril__graph_describe(g, g->nodes[n].out, like))
        test_fail(__FILE__, __LINE__, "no node");
    return g->nodes[n].out;
}

static aril__value_id node(aril__graph *g, const char *op, aril__value_id a, aril__value_id b,
                           aril_tensor *like)
{
    return node_with(g, op, a, b, NULL, like);
}

static const char *text_of(const aril__graph *g)
{
    static char text[4000];
    FILE *f = tmpfile();
    aril__graph_print(g, f);
    rewind(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

#define CHECK_FUSED(g, want)                      \
    do {                                          \
        CHECK_INT(aril__pass_fuse(g), ARIL_OK);   \
        CHECK_INT(aril__graph_check(g), ARIL_OK); \
        CHECK_STR(text_of(g), want);              \
        aril__graph_free(g);                      \
    } while (0)

static aril_tensor *floats(aril_shape shape)
{
    return aril_zeros(shape, ARIL_F32, aril_cpu());
}

TEST(a_chain_with_a_broadcast_input_becomes_one_node)
{
    ARIL_SCOPE;
    aril_tensor *like = floats(ARIL_SHAPE(2, 3)), *row = floats(ARIL_SHAPE(3));
    aril__graph *g = aril__graph_new("g");
    aril__value_id x = aril__graph_input(g, like, "x"), b = aril__graph_input(g, row, "b");
    aril__value_id two = aril__graph_constant(g, aril_scalar(2));
    aril__value_id y = node(g, "relu", node(g, "add", x, b, like), 0, like);
    CHECK(aril__graph_output(g, node(g, "mul", y, two, like)));
    CHECK_FUSED(g, "graph g(%x: f32[2,3], %b: f32[3]) {\n"
                   "  %7: f32[2,3] = fused(%x, %b) {\n"
                   "    t1 = add(%x, %b)\n"
                   "    t2 = relu(t1)\n"
                   "    %7 = mul(t2, 2)\n"
                   "  }\n"
                   "  return %7\n"
                   "}\n");
}

/* Groups of several producers merge, and values that are needed elsewhere are results too. */
TEST(a_value_in_the_middle_is_a_second_result)
{
    ARIL_SCOPE;
    aril_tensor *like = floats(ARIL_SHAPE(4)), *flags = aril_cast(like, ARIL_BOOL);
    aril__graph *g = aril__graph_new("g");
    aril__value_id x = aril__graph_input(g, like, "x"), y = aril__graph_input(g, like, "y");
    aril__value_id a = node(g, "exp", x, 0, like), b = node(g, "neg", y, 0, like);
    aril__value_id c = node(g, "sub", a, b, like);
    aril__value_id d = node(g, "gt", c, y, flags);
    struct cast_attrs {
        int64_t dtype[1];
    } to = { { ARIL_F32 } };
    aril__value_id e = node_with(g, "cast", d, 0, &to, like);
    CHECK(aril__graph_output(g, node(g, "mul", e, c, like)) && aril__graph_output(g, a));
    CHECK_FUSED(g, "graph g(%x: f32[4], %y: f32[4]) {\n"
                   "  %9: f32[4], %10: f32[4] = fused_2(%x, %y) {\n"
                   "    %9 = exp(%x)\n"
                   "    t2 = neg(%y)\n"
                   "    t3 = sub(%9, t2)\n"
                   "    t4 = gt(t3, %y)\n"
                   "    t5 = cast(t4, f32)\n"
                   "    %10 = mul(t5, t3)\n"
                   "  }\n"
                   "  return %10, %9\n"
                   "}\n");
}

/* softmax needs the first group, and the last node needs both: together they would be a cycle. */
TEST(a_group_never_needs_itself)
{
    ARIL_SCOPE;
    aril_tensor *like = floats(ARIL_SHAPE(2, 2));
    aril__graph *g = aril__graph_new("g");
    aril__value_id x = aril__graph_input(g, like, "x");
    aril__value_id a = node(g, "exp", node(g, "neg", x, 0, like), 0, like);
    aril__value_id s = node(g, "matmul", a, a, like);
    aril__value_id b = node(g, "add", s, a, like);
    CHECK(aril__graph_output(g, node(g, "relu", b, 0, like)));
    CHECK_FUSED(g, "graph g(%x: f32[2,2]) {\n"
                   "  %7: f32[2,2] = fused(%x) {\n"
                   "    t1 = neg(%x)\n"
                   "    %7 = exp(t1)\n"
                   "  }\n"
                   "  %4: f32[2,2] = matmul(%7, %7)\n"
                   "  %8: f32[2,2] = fused(%4, %7) {\n"
                   "    t1 = add(%4, %7)\n"
                   "    %8 = relu(t1)\n"
                   "  }\n"
                   "  return %8\n"
                   "}\n");
}

/* Nodes are moved behind the group that they need. */
TEST(nodes_between_members_are_moved)
{
    ARIL_SCOPE;
    aril_tensor *like = floats(ARIL_SHAPE(2, 2));
    aril__graph *g = aril__graph_new("g");
    aril__value_id x = aril__graph_input(g, like, "x"), y = aril__graph_input(g, like, "y");
    aril__value_id a = node(g, "exp", x, 0, like);
    aril__value_id s = node(g, "matmul", a, a, like), m = node(g, "matmul", y, y, like);
    aril__value_id b = node(g, "add", a, m, like);
    CHECK(aril__graph_output(g, s) && aril__graph_output(g, b));
    CHECK_FUSED(g, "graph g(%x: f32[2,2], %y: f32[2,2]) {\n"
                   "  %5: f32[2,2] = matmul(%y, %y)\n"
                   "  %7: f32[2,2], %8: f32[2,2] = fused_2(%x, %5) {\n"
                   "    %7 = exp(%x)\n"
                   "    %8 = add(%7, %5)\n"
                   "  }\n"
                   "  %4: f32[2,2] = matmul(%7, %7)\n"
                   "  return %4, %8\n"
                   "}\n");
}

/* Sums of many elements to few are taken while the elements are in the cache. */
TEST(a_reduction_ends_a_chain)
{
    ARIL_SCOPE;
    aril_tensor *like = floats(ARIL_SHAPE(131072, 64)), *row = floats(ARIL_SHAPE(64));
    aril__graph *g = aril__graph_new("g");
    aril__value_id x = aril__graph_input(g, like, "x"), b = aril__graph_input(g, row, "b");
    aril__value_id y = node(g, "mul", node(g, "neg", x, 0, like), x, like);
    struct reduce_attrs all = { .mask = { 3 }, .keep = { 1 } };
    CHECK(aril__graph_output(g, node(g, "sum_to_like", y, b, row)));
    CHECK(aril__graph_output(g, node_with(g, "mean", y, 0, &all, floats(ARIL_SHAPE(1, 1)))));
    CHECK_FUSED(g, "graph g(%x: f32[131072,64], %b: f32[64]) {\n"
                   "  %7: f32[64], %8: f32[1,1] = fused_2(%x) {\n"
                   "    t1 = neg(%x)\n"
                   "    t2 = mul(t1, %x)\n"
                   "    %7 = sum(t2, axes=[0])\n"
                   "    %8 = mean(t2, axes=[0,1])\n"
                   "  }\n"
                   "  return %7, %8\n"
                   "}\n");
}

/* A value of which only the shape is used is not written. */
TEST(a_shape_comes_from_another_value)
{
    ARIL_SCOPE;
    aril_tensor *like = floats(ARIL_SHAPE(2, 3)), *one = floats(ARIL_SHAPE(1));
    aril__graph *g = aril__graph_new("g");
    aril__value_id x = aril__graph_input(g, like, "x"), c = aril__graph_input(g, one, "c");
    aril__value_id a = node(g, "exp", x, 0, like), b = node(g, "neg", a, 0, like);
    CHECK(aril__graph_output(g, node(g, "expand_like", c, a, like)));
    CHECK(aril__graph_output(g, b));
    CHECK_FUSED(g, "graph g(%x: f32[2,3], %c: f32[1]) {\n"
                   "  %6: f32[2,3] = fused(%x) {\n"
                   "    t1 = exp(%x)\n"
                   "    %6 = neg(t1)\n"
                   "  }\n"
                   "  %5: f32[2,3] = expand_like(%c, %6)\n"
                   "  return %5, %6\n"
                   "}\n");
}

/* Integer division may fail, other shapes are other loops, one node stays what it is. */
TEST(some_nodes_stay_alone)
{
    ARIL_SCOPE;
    aril_tensor *whole = aril_zeros(ARIL_SHAPE(2), ARIL_I64, aril_cpu());
    aril_tensor *wide = floats(ARIL_SHAPE(3, 2)), *row = floats(ARIL_SHAPE(2));
    aril__graph *g = aril__graph_new("g");
    aril__value_id i = aril__graph_input(g, whole, "i"), x = aril__graph_input(g, wide, "x");
    aril__value_id r = aril__graph_input(g, row, "r");
    aril__value_id q = node(g, "neg", node(g, "floor_div", i, i, whole), 0, whole);
    aril__value_id e = node(g, "mul", node(g, "exp", r, 0, row), x, wide);
    CHECK(aril__graph_output(g, q) && aril__graph_output(g, e));
    CHECK_FUSED(g, "graph g(%i: i64[2], %x: f32[3,2], %r: f32[2]) {\n"
                   "  %4: i64[2] = floor_div(%i, %i)\n"
                   "  %5: i64[2] = neg(%4)\n"
                   "  %6: f32[2] = exp(%r)\n"
                   "  %7: f32[3,2] = mul(%6, %x)\n"
                   "  return %5, %7\n"
                   "}\n");
}

/* ---- the same bits as eager mode ---- */

typedef struct formula {
    const char *name;
    aril_fn *fn;
    int n_out;
    int nodes;  /* fused ones, at least */
    int summed; /* the result that is a sum, whose order may differ; 0: none */
} formula;

#define FORMULA(name) static void name(void *ctx, aril_tensor *const *in, aril_tensor **out)

FORMULA(chain)
{
    (void)ctx;
    aril_tensor *y = aril_relu(aril_add(aril_mul(in[0], in[1]), in[2]));
    out[0] = aril_tanh(aril_sub(y, aril_mul_scalar(in[0], 0.3)));
}

FORMULA(choice)
{
    (void)ctx;
    aril_tensor *more = aril_gt(in[0], in[1]);
    aril_tensor *y = aril_where(more, aril_exp(in[0]), aril_mul_scalar(in[1], -2));
    out[0] = aril_add(y, aril_cast(aril_logical_not(more), ARIL_F32));
    out[1] = more;
}

FORMULA(casts)
{
    (void)ctx;
    aril_tensor *whole = aril_cast(aril_mul_scalar(in[0], 100), ARIL_I16);
    aril_tensor *wrapped = aril_mul(whole, whole);
    out[0] = aril_cast(wrapped, ARIL_BF16);
    out[1] = aril_add(aril_mul_scalar(out[0], 0.7), aril_cast(in[1], ARIL_BF16));
    out[2] = aril_bitwise_xor(wrapped, aril_cast(aril_cast(in[2], ARIL_F16), ARIL_I16));
}

FORMULA(gradients)
{
    (void)ctx;
    aril_tensor *x = aril_detach(in[0]), *b = aril_detach(in[2]);
    aril_set_requires_grad(x, true);
    aril_set_requires_grad(b, true);
    aril_tensor *y = aril_gelu(aril_add(aril_mul(x, in[1]), b));
    aril_gradients(aril_sum(aril_square(aril_sigmoid(y)), ARIL_ALL), ARIL_LIST(x, b), out,
                   (aril_grad_opts){ 0 });
}

static const formula formulas[] = {
    { "chain", chain, 1, 1, 0 },
    { "choice", choice, 2, 1, 0 },
    { "casts", casts, 3, 1, 0 },
    { "gradients", gradients, 2, 1, 1 },
};

/* Inputs: all of one shape, or with rows, columns and strides. */
enum { ALIKE, ROWS, COLUMNS, TURNED, CHANNELS, LAYOUTS };

static aril_tensor *random_of(aril_shape shape, aril_dtype dtype)
{
    return aril_cast(aril_randn(shape, ARIL_F32, aril_cpu()), dtype);
}

static void make_inputs(int layout, int64_t n, aril_dtype dtype, aril_tensor **in)
{
    aril_shape wide = ARIL_SHAPE(n, 37);
    for (int i = 0; i < 3; i++) in[i] = random_of(wide, dtype);
    switch (layout) {
    case ROWS:
        in[1] = random_of(ARIL_SHAPE(37), dtype), in[2] = random_of(ARIL_SHAPE(), dtype);
        break;
    case COLUMNS: in[1] = random_of(ARIL_SHAPE(n, 1), dtype); break;
    case TURNED: in[2] = aril_transpose(random_of(ARIL_SHAPE(37, n), dtype), 0, 1); break;
    case CHANNELS:
        in[0] = aril_channels_last(random_of(ARIL_SHAPE(2, 5, n, 3), dtype));
        in[1] = random_of(ARIL_SHAPE(5, 1, 1), dtype);
        in[2] = random_of(ARIL_SHAPE(2, 5, n, 3), dtype);
        break;
    default: break;
    }
}

static int fused_nodes(const aril_program *p)
{
    FILE *f = tmpfile();
    char line[512];
    int n = 0;
    aril_program_print(p, f);
    rewind(f);
    while (fgets(line, sizeof line, f)) n += strstr(line, " = fused") != NULL;
    fclose(f);
    return n;
}

static void check_formula(const formula *f, int layout, int64_t n, aril_dtype dtype)
{
    ARIL_SCOPE;
    aril_tensor *in[3], *got[4], *want[4];
    make_inputs(layout, n, dtype, in);
    aril_program *p = aril_jit(f->fn, NULL, (aril_jit_opts){ .name = f->name });
    f->fn(NULL, in, want);
    for (int run = 0; run < 2; run++) {
        CHECK_INT(aril_program_run(p, (aril_list){ 3, in }, got), ARIL_OK);
        for (int k = 0; k < f->n_out; k++) {
            bool summed = f->summed && k == f->summed;
            double tolerance = dtype == ARIL_F64 ? 1e-12 : dtype == ARIL_F32 ? 1e-5 : 1e-2;
            char *why = summed ? test_difference(got[k], want[k], tolerance, tolerance)
                               : test_difference_in_bits(got[k], want[k]);
            CHECK_MSG(!why, "%s of %s, layout %d, n %d, result %d: %s", f->name,
                      aril_dtype_name(dtype), layout, (int)n, k, why);
        }
    }
    CHECK_MSG(fused_nodes(p) >= f->nodes, "%s: no node was fused", f->name);
    aril_program_free(p);
}

TEST(fused_chains_keep_their_bits)
{
    static const aril_dtype dtypes[] = { ARIL_F32, ARIL_F64, ARIL_BF16, ARIL_F16 };
    static const int64_t sizes[] = { 1, 5, 400, 3001 };
    aril_seed(3);
    for (size_t f = 0; f < sizeof formulas / sizeof *formulas; f++)
        for (int layout = 0; layout < LAYOUTS; layout++)
            for (size_t t = 0; t < sizeof dtypes / sizeof *dtypes; t++)
                for (size_t s = 0; s < sizeof sizes / sizeof *sizes && !test_failed(); s++)
                    check_formula(&formulas[f], layout, sizes[s], dtypes[t]);
}

/* Results of 32 MB and more bypass the caches. */
TEST(large_results_keep_their_bits)
{
    check_formula(&formulas[0], ALIKE, 230000, ARIL_F32);
    check_formula(&formulas[3], ROWS, 230000, ARIL_F32);
}

TEST(a_pass_is_switched_off)
{
    ARIL_SCOPE;
    aril_tensor *in[3], *out[1];
    setenv("ARIL_PASSES", "-fuse", 1);
    make_inputs(ALIKE, 5, ARIL_F32, in);
    aril_program *p = aril_jit(chain, NULL, (aril_jit_opts){ 0 });
    CHECK_INT(aril_program_run(p, (aril_list){ 3, in }, out), ARIL_OK);
    unsetenv("ARIL_PASSES");
    CHECK_INT(fused_nodes(p), 0);
    aril_program_free(p);
}

/* ---- results in the memory of inputs ---- */

/* w is read by the first and by the last step, and changed in place. */
static void move_on(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_tensor *w = ctx, *v = aril_mul_scalar(w, 0.5);
    v = aril_add(aril_tanh(v), in[0]);
    out[0] = aril_exp(v);
    aril_copy_(w, aril_sub(w, aril_mul(v, out[0])));
}

static void check_in_place(bool turned, aril_dtype dtype)
{
    ARIL_SCOPE;
    aril_tensor *a = random_of(ARIL_SHAPE(90, 70), dtype), *b = aril_copy(a), *got, *want;
    aril_tensor *x = random_of(turned ? ARIL_SHAPE(70, 90) : ARIL_SHAPE(90, 70), dtype);
    aril_tensor *v = turned ? aril_transpose(a, 0, 1) : a,
                *w = turned ? aril_transpose(b, 0, 1) : b;
    aril_program *p = aril_jit(move_on, v, (aril_jit_opts){ 0 });
    for (int run = 0; run < 4; run++) {
        CHECK_INT(aril_program_run(p, ARIL_LIST(x), &got), ARIL_OK);
        move_on(w, &x, &want);
        CHECK(!test_difference_in_bits(got, want) && !test_difference_in_bits(a, b));
    }
    CHECK(fused_nodes(p) > 0);
    aril_program_free(p);
}

TEST(a_chain_changes_its_own_input)
{
    static const aril_dtype dtypes[] = { ARIL_F32, ARIL_BF16 };
    for (int t = 0; t < 2 && !test_failed(); t++) {
        check_in_place(false, dtypes[t]);
        check_in_place(true, dtypes[t]);
    }
}

/* ---- recipes ---- */

static aril__recipe square_of_sum(void)
{
    aril__recipe r;
    memset(&r, 0, sizeof r);
    r.n_in = 2;
    r.n_steps = 2;
    r.n_out = 1;
    r.step[0].op = aril__op_find("add");
    r.step[0].n_in = 2;
    r.step[0].in[0] = ARIL_FUSED_INPUT(0);
    r.step[0].in[1] = ARIL_FUSED_INPUT(1);
    r.step[1].op = aril__op_find("square");
    r.step[1].n_in = 1;
    r.out[0].step = 1;
    return r;
}

TEST(equal_recipes_are_shared)
{
    aril__recipe one = square_of_sum(), two = square_of_sum();
    aril__recipe *a = aril__recipe_share(&one), *b = aril__recipe_share(&two);
    CHECK(a && a == b);
    uint64_t id = a->id;
    aril__recipe_release(a);
    aril__recipe_release(b);
    a = aril__recipe_share(&one);
    CHECK(a && a->id != id);
    aril__recipe_release(a);
    two.step[1].in[0] = 1; /* its own result */
    CHECK(!aril__recipe_share(&two));
    CHECK_MSG(strstr(aril_error(), "wrong operand"), "%s", aril_error());
    aril_clear_error();
}

static aril_tensor *reference(aril_tensor *x, const aril_fused_output *o)
{
    aril_axes axes = { .keepdim = o->dropped == 0 };
    for (int d = 0; d < 4; d++)
        if (o->axes >> d & 1) axes.axis[axes.n++] = d;
    x = aril_cast(x, ARIL_F64);
    return o->reduce == ARIL_FUSED_SUM    ? aril_sum(x, axes)
           : o->reduce == ARIL_FUSED_MEAN ? aril_mean(x, axes)
                                          : aril_amax(x, axes);
}

static void check_reduction(aril_tensor *x, aril_tensor *y, uint32_t axes, int reduce, bool keep)
{
    ARIL_SCOPE;
    aril__recipe r = square_of_sum();
    r.out[0].reduce = (uint8_t)reduce;
    r.out[0].axes = axes;
    r.out[0].dropped = keep ? 0 : axes;
    aril__recipe *shared = aril__recipe_share(&r);
    CHECK(shared);
    struct fused_attrs attrs = aril__fused_attrs(shared);
    aril_tensor *in[2] = { x, y }, *out[1];
    CHECK_INT(aril__apply(aril__fused_op(1), 2, in, &attrs, out), ARIL_OK);
    aril_tensor *sum = aril_square(aril_add(x, y)); /* rounded to the dtype, as steps are */
    double tolerance = aril_dtype_of(x) == ARIL_F64   ? 1e-13
                       : aril_dtype_of(x) == ARIL_F32 ? 1e-6
                                                      : 1e-2;
    char *why = test_difference_in_value(out[0], reference(sum, &r.out[0]), tolerance, 0);
    CHECK_MSG(!why, "%s, axes %u, reduce %d: %s", aril_dtype_name(aril_dtype_of(x)), axes, reduce,
              why);
    aril__recipe_release(shared);
}

TEST(recipes_reduce_over_any_axes)
{
    ARIL_SCOPE;
    static const aril_dtype dtypes[] = { ARIL_F32, ARIL_F64, ARIL_BF16 };
    aril_seed(4);
    for (int t = 0; t < 3; t++) {
        aril_tensor *x = random_of(ARIL_SHAPE(13, 7, 5, 64), dtypes[t]);
        aril_tensor *y = random_of(ARIL_SHAPE(7, 1, 1), dtypes[t]);
        aril_tensor *last = aril_channels_last(x);
        for (uint32_t axes = 1; axes < 16; axes++)
            for (int reduce = ARIL_FUSED_SUM; reduce <= ARIL_FUSED_MAX && !test_failed();
                 reduce++) {
                check_reduction(x, y, axes, reduce, false);
                check_reduction(last, y, axes, reduce, true);
            }
    }
}

TEST(wrong_calls_are_refused)
{
    ARIL_SCOPE;
    aril__recipe r = square_of_sum();
    aril_tensor *x = floats(ARIL_SHAPE(2, 3)), *y = floats(ARIL_SHAPE(4)), *out[1];
    r.out[0].reduce = ARIL_FUSED_SUM;
    r.out[0].axes = r.out[0].dropped = 4;
    aril__recipe *shared = aril__recipe_share(&r);
    CHECK(shared);
    struct fused_attrs attrs = aril__fused_attrs(shared), none = { .id = { 1 } };
    CHECK_INT(aril__apply(aril__fused_op(1), 2, (aril_tensor *[]){ x, y }, &attrs, out),
              ARIL_ERR_SHAPE);
    aril_clear_error();
    CHECK_INT(aril__apply(aril__fused_op(1), 2, (aril_tensor *[]){ x, x }, &attrs, out),
              ARIL_ERR_ARG);
    CHECK_MSG(strstr(aril_error(), "axis 2 of 2 dimensions"), "%s", aril_error());
    CHECK_INT(aril__apply(aril__fused_op(1), 1, &x, &attrs, out), ARIL_ERR_ARG);
    CHECK_INT(aril__apply(aril__fused_op(1), 1, &x, &none, out), ARIL_ERR_ARG);
    aril_clear_error();
    aril__recipe_release(shared);
}

/* Rows of a few elements, with gaps: halves of boxes. */
static void halves(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    int last = aril_ndim(in[0]) - 1;
    int64_t half = aril_size(in[0], last) / 2;
    aril_tensor *a = aril_slice(in[0], last, 0, half, 1);
    aril_tensor *b = aril_slice(in[0], last, half, 2 * half, 1);
    out[0] = aril_add(aril_mul(aril_exp(b), in[1]), a);
}

TEST(short_rows_with_gaps_have_the_bits_of_eager_mode)
{
    for (int64_t half = 1; half < 20; half++) {
        ARIL_SCOPE;
        aril_tensor *want[1], *got[1];
        aril_tensor *in[] = { aril_rand(ARIL_SHAPE(3, 1001, 2 * half), ARIL_F32, aril_cpu()),
                              aril_rand(ARIL_SHAPE(3, 1001, half), ARIL_F32, aril_cpu()) };
        halves(NULL, in, want);
        aril_program *p = aril_jit(halves, NULL, (aril_jit_opts){ 0 });
        CHECK_INT(aril_program_run(p, (aril_list){ 2, in }, got), ARIL_OK);
        aril_program_free(p);
        char *why = test_difference_in_bits(got[0], want[0]);
        CHECK_MSG(!why, "rows of %d: %s", (int)half, why);
    }
}
