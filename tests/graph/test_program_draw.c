/* Drawings and cost tables of programs. */
#include "aril/aril.h"
#include "aril/zoo.h"
#include "support/temp.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

static char *read_all(FILE *f)
{
    static char text[1 << 16];
    rewind(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    return text;
}

static char *read_path(const char *path)
{
    FILE *f = fopen(path, "r");
    if (!f) return NULL;
    char *text = read_all(f);
    fclose(f);
    return text;
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)); at += strlen(what)) n++;
    return n;
}

static void circuit(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_mul(aril_add(in[0], in[1]), in[2]);
}

static aril_tensor *number(double value)
{
    return aril_full(ARIL_SHAPE(), value, ARIL_F32, aril_cpu());
}

/* The course's circuit (x + y) * z: values forward, gradients backward. */
TEST(a_small_graph_shows_values_and_gradients)
{
    ARIL_SCOPE;
    aril_program *p = aril_jit(circuit, NULL, (aril_jit_opts){ .name = "circuit" });
    aril_tensor *x = number(-2), *y = number(5), *z = number(-4), *out;
    char path[512];
    snprintf(path, sizeof path, "%s", temp_path("circuit.dot"));
    CHECK_INT(aril_program_draw(p, path, (aril_list){ 0 }), ARIL_ERR_STATE); /* not traced */
    aril_clear_error();
    CHECK_INT(aril_program_run(p, ARIL_LIST(x, y, z), &out), ARIL_OK);
    CHECK_INT(aril_program_draw(p, path, ARIL_LIST(x)), ARIL_ERR_ARG);
    CHECK_MSG(strstr(aril_error(), "takes 3 inputs, got 1"), "%s", aril_error());
    aril_clear_error();
    CHECK_INT(aril_program_draw(p, path, ARIL_LIST(x, y, z)), ARIL_OK);
    const char *text = read_path(path);
    CHECK(text != NULL);
    static const char *const lines[] = {
        "v1 -> n1 [label=<<font color=\"#2a7a2a\">-2</font><br/><font "
        "color=\"#c03030\">-4</font>>];",
        "v2 -> n1 [label=<<font color=\"#2a7a2a\">5</font><br/><font "
        "color=\"#c03030\">-4</font>>];",
        "n1 -> n2 [label=<<font color=\"#2a7a2a\">3</font><br/><font "
        "color=\"#c03030\">-4</font>>];",
        "v3 -> n2 [label=<<font color=\"#2a7a2a\">-4</font><br/><font "
        "color=\"#c03030\">3</font>>];",
        "n2 -> out0 [label=<<font color=\"#2a7a2a\">-12</font><br/><font "
        "color=\"#c03030\">1</font>>];",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        CHECK_MSG(strstr(text, lines[i]), "%s is not in\n%s", lines[i], text);
    CHECK(!aril_has_grad(x));
    CHECK_INT(aril_program_draw(p, path, (aril_list){ 0 }), ARIL_OK);
    CHECK(!strstr(read_path(path), "#2a7a2a"));
    CHECK_INT(aril_program_draw(p, temp_path("circuit.xyz"), (aril_list){ 0 }), ARIL_ERR_ARG);
    aril_clear_error();
    aril_program_free(p);
}

static void train(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = aril_cross_entropy(aril_forward(ctx, in[0]), in[1]);
    aril_backward(out[0]);
}

TEST(a_large_graph_is_drawn_by_modules)
{
    ARIL_SCOPE;
    aril_module *m =
        aril_zoo_make("resnet18", (aril_zoo_opts){ .input = ARIL_SHAPE(3, 32, 32), .classes = 4 });
    aril_program *p = aril_jit(train, m, (aril_jit_opts){ .name = "resnet18" });
    aril_tensor *x = aril_randn(ARIL_SHAPE(2, 3, 32, 32), ARIL_F32, aril_cpu());
    aril_tensor *y = aril_zeros(ARIL_SHAPE(2), ARIL_I64, aril_cpu()), *out;
    char path[512];
    snprintf(path, sizeof path, "%s", temp_path("resnet18.dot"));
    CHECK_INT(aril_program_run(p, ARIL_LIST(x, y), &out), ARIL_OK);
    CHECK_INT(aril_program_draw(p, path, (aril_list){ 0 }), ARIL_OK);
    const char *text = read_path(path);
    CHECK(text != NULL);
    CHECK_MSG(strstr(text, "label=\"layer1"), "%s", text);
    CHECK_MSG(count(text, "[label=") < 120, "%d boxes", count(text, "[label="));
    CHECK_INT(count(text, "{"), count(text, "}"));
    CHECK_MSG(count(text, "label=\"layer1\"; style") == 1, "%s", text); /* of its blocks */
    CHECK_MSG(count(text, "label=\"layer1.0\"; style") == 1, "%s", text);
    aril_program_free(p);
    aril_module_release(m);
}

typedef struct net {
    aril_module *m;
    aril_optim *opt;
} net;

static void plus(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_add(in[0], in[0]);
}

static void branch(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_cond(aril_gt(in[0], number(0)), plus, plus, ctx, ARIL_LIST(in[0]), 1, out);
}

TEST(a_drawing_that_fails_leaves_the_file)
{
    ARIL_SCOPE;
    char path[512];
    snprintf(path, sizeof path, "%s", temp_path("kept.dot"));
    FILE *f = fopen(path, "w");
    fputs("as it was", f);
    fclose(f);
    aril_program *p = aril_jit(branch, NULL, (aril_jit_opts){ 0 });
    aril_tensor *x = number(1), *y;
    CHECK_INT(aril_program_run(p, ARIL_LIST(x), &y), ARIL_OK);
    CHECK(aril_program_draw(p, path, ARIL_LIST(x)) < 0);
    aril_clear_error();
    CHECK_STR(read_path(path), "as it was");
    aril_program_free(p);
    remove(path);
}

static void forward(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = aril_forward(ctx, in[0]);
}

/* Modules that run one after the other are called from the same place. */
TEST(nodes_have_the_names_of_their_modules)
{
    ARIL_SCOPE;
    aril_module *layers =
        aril_nn_sequential(aril_nn_linear(3, 3), aril_nn_linear(3, 3),
                           aril_nn_sequential(aril_nn_linear(3, 3), aril_nn_linear(3, 3)),
                           aril_nn_softmax(1));
    aril_program *p = aril_jit(forward, layers, (aril_jit_opts){ 0 });
    aril_tensor *x = aril_ones(ARIL_SHAPE(2, 3), ARIL_F32, aril_cpu()), *y;
    CHECK_INT(aril_program_run(p, ARIL_LIST(x), &y), ARIL_OK);
    FILE *f = tmpfile();
    aril_program_print(p, f);
    const char *text = read_all(f);
    static const char *const names[] = { "# 0 ", "# 1 ", "# 2.0 ", "# 2.1 ", "# 3 " };
    for (int i = 0; i < 5; i++) CHECK_MSG(count(text, names[i]) == 1, "%s in:\n%s", names[i], text);
    fclose(f);
    aril_program_free(p);
    aril_module_release(layers);
}

static void step(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    net *n = ctx;
    out[0] = aril_mse_loss(aril_forward(n->m, in[0]), in[1]);
    aril_backward(out[0]);
    aril_step(n->opt);
}

/* 2 * 8 * 16 * 4 operations of the product; and nothing changes. */
TEST(costs_are_listed_and_leave_no_trace)
{
    ARIL_SCOPE;
    aril_seed(1);
    net n = { .m = aril_nn_sequential(
                  aril_nn_linear_with(16, 4, (aril_nn_linear_opts){ .no_bias = true })) };
    n.opt = aril_sgd(aril_parameters(n.m), (aril_sgd_opts){ .lr = 0.1 });
    aril_program *p = aril_jit(step, &n, (aril_jit_opts){ .name = "step" });
    aril_tensor *x = aril_ones(ARIL_SHAPE(8, 16), ARIL_F32, aril_cpu());
    aril_tensor *y = aril_zeros(ARIL_SHAPE(8, 4), ARIL_F32, aril_cpu()), *out;
    CHECK_INT(aril_program_run(p, ARIL_LIST(x, y), &out), ARIL_OK);
    aril_tensor *before = aril_copy(aril_parameters(n.m)->at[0]);
    FILE *to = tmpfile();
    CHECK_INT(aril_program_costs(p, ARIL_LIST(x, y), to), ARIL_OK);
    const char *text = read_all(to);
    CHECK_MSG(strstr(text, "linear") && strstr(text, "f32[8,4]") && strstr(text, "0.001"), "%s",
              text);
    CHECK_MSG(strstr(text, "update") && strstr(text, "\nall nodes "), "%s", text);
    fclose(to);
    CHECK(aril_allclose(aril_parameters(n.m)->at[0], before, (aril_close_opts){ 0 }));
    to = tmpfile();
    aril_program_print(p, to); /* parameters have their names */
    text = read_all(to);
    CHECK_MSG(strstr(text, "%0.weight: f32[4,16] = state"), "%s", text);
    fclose(to);
    aril_program_free(p);
    aril_optim_free(n.opt);
    aril_module_release(n.m);
}
