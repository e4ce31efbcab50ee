/* The graph itself: building, checking, passes. */
#include "aril/aril.h"
#include "graph/exec.h"
#include "graph/graph.h"
#include "graph/passes.h"
#include "ops/table/apply.h"
#include "support/test.h"

#include <string.h>

static aril__value_id node(aril__graph *g, const char *op, aril__value_id a, aril__value_id b,
                           const aril_tensor *like)
{
    aril__value_id in[2] = { a, b };
    aril__node_id n = aril__graph_node_add(g, aril__op_find(op), b ? 2 : 1, in, NULL);
    if (!n || !aril__graph_describe(g, g->nodes[n].out, like))
        test_fail(__FILE__, __LINE__, "no node");
    return g->nodes[n].out;
}

TEST(a_graph_is_checked)
{
    ARIL_SCOPE;
    aril_tensor *like = aril_zeros(ARIL_SHAPE(2, 3), ARIL_F32, aril_cpu());
    aril__graph *g = aril__graph_new("checked");
    aril__value_id x = aril__graph_input(g, like, "x");
    aril__value_id y = node(g, "add", x, x, like), z = node(g, "mul", y, x, like);
    CHECK(aril__graph_output(g, z));
    CHECK_INT(aril__graph_check(g), ARIL_OK);
    g->ids[g->nodes[1].in] = z; /* used before it exists */
    CHECK_INT(aril__graph_check(g), ARIL_ERR_INTERNAL);
    CHECK_MSG(strstr(aril_error(), "used before it exists in node 1"), "%s", aril_error());
    g->ids[g->nodes[1].in] = x;
    g->values[y].index = 3;
    CHECK_INT(aril__graph_check(g), ARIL_ERR_INTERNAL);
    g->values[y].index = 0;
    g->outputs[0] = 0;
    CHECK_INT(aril__graph_check(g), ARIL_ERR_INTERNAL);
    g->outputs[0] = z;
    aril_clear_error();
    CHECK_INT(aril__graph_check(g), ARIL_OK);
    aril__graph_free(g);
}

static void print_to(const aril__graph *g, char *text, size_t size)
{
    FILE *f = tmpfile();
    aril__graph_print(g, f);
    rewind(f);
    text[fread(text, 1, size - 1, f)] = '\0';
    fclose(f);
}

/* Golden texts before and after each pass. */
TEST(passes_change_the_graph_and_not_its_results)
{
    ARIL_SCOPE;
    char text[2000];
    aril_tensor *like = aril_zeros(ARIL_SHAPE(2), ARIL_F32, aril_cpu());
    aril__graph *g = aril__graph_new("g");
    aril__value_id x = aril__graph_input(g, like, "x");
    aril_tensor *two = aril_full(ARIL_SHAPE(2), 2, ARIL_F32, aril_cpu());
    aril__value_id c = aril__graph_constant(g, two);
    aril__value_id four = node(g, "mul", c, c, like);
    aril__value_id a = node(g, "add", x, four, like), b = node(g, "add", x, four, like);
    aril__value_id dead = node(g, "exp", a, 0, like);
    aril__value_id y = node(g, "mul", a, b, like);
    CHECK(dead && aril__graph_output(g, y));
    print_to(g, text, sizeof text);
    CHECK_STR(text, "graph g(%x: f32[2]) {\n"
                    "  %2: f32[2] = constant\n"
                    "  %3: f32[2] = mul(%2, %2)\n"
                    "  %4: f32[2] = add(%x, %3)\n"
                    "  %5: f32[2] = add(%x, %3)\n"
                    "  %6: f32[2] = exp(%4)\n"
                    "  %7: f32[2] = mul(%4, %5)\n"
                    "  return %7\n"
                    "}\n");
    CHECK_INT(aril__pass_fold(g), ARIL_OK);
    CHECK_INT(aril__graph_check(g), ARIL_OK);
    CHECK_INT(aril__pass_cse(g), ARIL_OK);
    CHECK_INT(aril__graph_check(g), ARIL_OK);
    print_to(g, text, sizeof text);
    CHECK_STR(text, "graph g(%x: f32[2]) {\n"
                    "  %3: f32[2] = constant\n"
                    "  %4: f32[2] = add(%x, %3)\n"
                    "  %7: f32[2] = mul(%4, %4)\n"
                    "  return %7\n"
                    "}\n");
    aril__exec *e = aril__exec_new(g, g->n_outputs, g->outputs, 0, NULL);
    aril_tensor *ones = aril_ones(ARIL_SHAPE(2), ARIL_F32, aril_cpu()), *out[1];
    CHECK_INT(aril__exec_run(e, &ones, out), ARIL_OK);
    CHECK_NEAR(aril_item(aril_sum(out[0], ARIL_ALL)), 50, 0);
    aril_release(out[0]);
    aril__exec_free(e);
    aril__graph_free(g);
}

/* add(x, x) becomes mul(x, 2). */
static bool double_by_mul(aril__rewrite *r, aril__value_id two, const aril_tensor *like)
{
    bool fits = true;
    for (aril__node_id id = 1; id < r->n_old && fits; id++) {
        const aril__graph_node *n = &r->old[id];
        const aril__value_id *in = aril__graph_in(r->g, n);
        if (strcmp(n->op->name, "add") == 0 && in[0] == in[1])
            aril__rewrite_value(r, n->out,
                                node(r->g, "mul", aril__rewrite_now(r, in[0]), two, like));
        else
            fits = aril__rewrite_keep(r, id);
    }
    return fits;
}

TEST(a_pass_can_add_nodes)
{
    ARIL_SCOPE;
    char text[2000];
    aril_tensor *like = aril_zeros(ARIL_SHAPE(2), ARIL_F32, aril_cpu());
    aril__graph *g = aril__graph_new("g");
    aril__value_id x = aril__graph_input(g, like, "x");
    aril__value_id two = aril__graph_constant(g, aril_scalar(2));
    aril__value_id a = node(g, "exp", x, 0, like), b = node(g, "add", a, a, like);
    aril__value_id c = node(g, "add", b, b, like);
    CHECK(aril__graph_output(g, node(g, "sub", c, b, like)));
    for (int fits = 0; fits < 2; fits++) {
        aril__rewrite r;
        CHECK(aril__rewrite_begin(&r, g));
        bool done = double_by_mul(&r, two, like);
        aril__rewrite_end(&r, fits && done);
        CHECK_INT(aril__graph_check(g), ARIL_OK);
        print_to(g, text, sizeof text);
        CHECK_STR(text, fits ? "graph g(%x: f32[2]) {\n"
                               "  %3: f32[2] = exp(%x)\n"
                               "  %9: f32[2] = mul(%3, 2)\n"
                               "  %10: f32[2] = mul(%9, 2)\n"
                               "  %6: f32[2] = sub(%10, %9)\n"
                               "  return %6\n"
                               "}\n"
                             : "graph g(%x: f32[2]) {\n"
                               "  %3: f32[2] = exp(%x)\n"
                               "  %4: f32[2] = add(%3, %3)\n"
                               "  %5: f32[2] = add(%4, %4)\n"
                               "  %6: f32[2] = sub(%5, %4)\n"
                               "  return %6\n"
                               "}\n");
    }
    aril__graph_free(g);
}

/* A chain of a million nodes: nothing is recursive, nothing quadratic. */
TEST(a_million_nodes)
{
    ARIL_SCOPE;
    enum { N = 1000000 };
    aril_tensor *like = aril_zeros(ARIL_SHAPE(1), ARIL_F32, aril_cpu());
    aril__graph *g = aril__graph_new("long");
    aril__value_id x = aril__graph_input(g, like, "x"), y = x;
    const aril__op *add = aril__op_find("add");
    for (int i = 0; i < N / 2; i++) {
        aril__value_id in[2] = { y, x };
        aril__node_id a = aril__graph_node_add(g, add, 2, in, NULL);
        aril__node_id b = aril__graph_node_add(g, add, 2, in, NULL); /* the same again */
        aril__graph_describe(g, g->nodes[a].out, like);
        aril__graph_describe(g, g->nodes[b].out, like);
        y = g->nodes[i % 2 ? a : b].out;
    }
    CHECK(aril__graph_output(g, y));
    CHECK_INT(aril__graph_check(g), ARIL_OK);
    CHECK_INT(aril__pass_cse(g), ARIL_OK);
    CHECK_INT(g->n_nodes, N / 2 + 1);
    CHECK_INT(aril__passes(g), ARIL_OK);
    CHECK(g->n_nodes < N / 2 / (ARIL_FUSED_STEPS - 2));
    CHECK_INT(aril__graph_check(g), ARIL_OK);
    aril__exec *e = aril__exec_new(g, g->n_outputs, g->outputs, 0, NULL);
    CHECK(e && aril__exec_steps(e) == g->n_nodes - 1);
    aril_tensor *ones = aril_ones(ARIL_SHAPE(1), ARIL_F32, aril_cpu()), *out[1];
    CHECK_INT(aril__exec_run(e, &ones, out), ARIL_OK);
    CHECK_NEAR(aril_item(out[0]), N / 2 + 1, 0);
    aril_release(out[0]);
    aril__exec_free(e);
    aril__graph_free(g);
}
