/* Every op of the table on every sample, with its gradients, exported, read again and run, gives
 * the same values. ARIL_TEST_OP=name selects one op, ARIL_TEST_OPSET=18 one operator set, and
 * ARIL_EXPORT_DIR keeps models and values in the layout of ONNX's tests, for tests/peers. */
#include "aril/aril.h"
#include "onnx/export_case.h"
#include "support/compare.h"
#include "support/run_op.h"

#include <string.h>

enum { MAX_OUT = 2 * TEST_RESULTS + TEST_INPUTS };

/* A sample as a function of its inputs that are there. */
typedef struct call {
    const test_sample *s;
    bool present[TEST_INPUTS];
    bool grads;
    int opset;
} call;

static struct {
    int models, refused, random;
} count;

/* Ops that ONNX has no form for, in any operator set. docs/onnx-operators.md lists them, too. */
static const char *const without_form[] = {
    "inverse",
    "solve",
    "triangular_solve",
    "cholesky",
    "qr",
    "svd",
    "eigh",
    "pinv",
    "lu",
    "eig",
    "matrix_exp",
    "ctc_loss",
    "nanmedian",
    "mode",
    "bincount",
    "histc",
    "randint",
    "randperm",
    "bernoulli_fill",
    "multinomial",
    "update_norms",
    "grid_sample_grad_x",
    "multilabel_margin_loss",
    "embedding_bag_argmax",
    "embedding_bag_grad",
    "embedding_bag_scale_grad",
    "multilabel_margin_loss_grad",
    "ctc_loss_grad",
};

static bool has_no_form(const char *error)
{
    for (size_t i = 0; i < sizeof without_form / sizeof *without_form; i++) {
        char start[80];
        snprintf(start, sizeof start, "%s: ", without_form[i]);
        if (strstr(error, start)) return true;
    }
    if (strstr(error, "update: a step of")) return true;
    /* Operators that came later, and forms for some attributes only. */
    return strstr(error, "has no form in operator set");
}

static void run_sample(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    const call *c = ctx;
    const aril__op *op = c->s->op;
    aril_tensor *x[TEST_INPUTS], *y[TEST_RESULTS], *wanted[TEST_INPUTS], *of[TEST_RESULTS];
    int n = 0, n_wanted = 0, n_of = 0, k = 0;
    for (int i = 0; i < c->s->n_in; i++) {
        x[i] = c->present[i] ? in[k++] : NULL;
        if (!x[i] || !c->grads || !test_sample_wants(c->s, i) ||
            !aril_dtype_is_float(aril_dtype_of(x[i])))
            continue;
        x[i] = wanted[n_wanted++] = aril_detach(x[i]);
        aril_set_requires_grad(x[i], true);
    }
    aril__apply(op, c->s->n_in, x, c->s->attrs, y);
    for (int i = 0; i < op->n_out; i++) {
        if (i + 1 == op->reserve_out || ARIL__IS_WRITE(op->out[i])) continue;
        if (!y[i]) continue;
        out[n++] = y[i];
        bool first = !(c->s->flags & SAMPLE_FIRST) || i == 0;
        if (n_wanted && first && aril_requires_grad(y[i])) of[n_of++] = y[i];
    }
    if (!n_of) return;
    aril_grad_opts opts = { .allow_unused = true };
    aril_gradients_n((aril_list){ n_of, of }, (aril_list){ n_wanted, wanted }, out + n, opts);
}

static int take_inputs(call *c, aril_tensor *const *in, aril_tensor **to)
{
    aril_tensor *copy[TEST_INPUTS];
    int n = 0;
    test_copies(c->s, in, copy);
    for (int i = 0; i < c->s->n_in; i++) {
        c->present[i] = copy[i] != NULL;
        if (copy[i]) to[n++] = copy[i];
    }
    return n;
}

static const char *case_name(const call *c)
{
    static char name[200];
    snprintf(name, sizeof name, "%s_%d%s_%d", c->s->op->name, c->s->index, c->grads ? "_grad" : "",
             c->opset);
    return name;
}

/* ---- the check ---- */

static int results(aril_tensor *const *out)
{
    int n = 0;
    while (out[n]) n++;
    return n;
}

static void check_model(const call *c, const char *path, int n, aril_tensor *const *in,
                        aril_tensor *const *want)
{
    aril_tensor *got[MAX_OUT] = { NULL };
    aril_program *p = aril_program_load(path, (aril_load_opts){ 0 });
    CHECK_MSG(p != NULL, "%s, opset %d: %s", c->s->name, c->opset, aril_error());
    if (!p) return;
    aril_program_run(p, (aril_list){ n, (aril_tensor **)(uintptr_t)in }, got);
    CHECK_MSG(aril_ok(), "%s, opset %d: %s", c->s->name, c->opset, aril_error());
    for (int i = 0; i < results(want) && aril_ok(); i++) {
        char *why = test_difference_in_value(got[i], want[i], 2e-4, 2e-5);
        CHECK_MSG(!why, "%s%s, opset %d, result %d: %s", c->s->name,
                  c->grads ? " with gradients" : "", c->opset, i, why);
    }
    aril_program_free(p);
}

static void check_export(call *c, aril_tensor *const *in)
{
    ARIL_SCOPE;
    aril_clear_error(); /* of a model that failed */
    aril_tensor *mine[TEST_INPUTS], *want[MAX_OUT] = { NULL };
    int n = take_inputs(c, in, mine);
    const char *path = case_path(case_name(c));
    aril_program *p = aril_jit(run_sample, c, (aril_jit_opts){ .name = c->s->op->name });
    aril_status s = aril_program_export(p, (aril_list){ n, mine }, path,
                                        (aril_export_opts){ .opset = c->opset });
    aril_program_free(p);
    if (s < 0) {
        CHECK_MSG(has_no_form(aril_error()), "%s%s, opset %d: %s", c->s->name,
                  c->grads ? " with gradients" : "", c->opset, aril_error());
        aril_clear_error();
        count.refused++;
        return;
    }
    run_sample(c, mine, want);
    CHECK_MSG(aril_ok(), "%s: %s", c->s->name, aril_error());
    n = take_inputs(c, in, mine);
    check_model(c, path, n, mine, want);
    keep_case(case_name(c), 0, n, mine, results(want), want);
    count.models++;
}

/* Inputs in f32, which other programs have most operators for. */
static bool plain_inputs(const test_sample *s, aril_tensor **in)
{
    aril_tensor *out[TEST_RESULTS];
    aril_dtype best;
    if (test_sample_inputs(s, ARIL_F32, 0, in) && !test_refused(test_run(s, in, out))) return true;
    return test_best_inputs(s, in, &best) && !test_refused(test_run(s, in, out));
}

static void check_sample(const test_sample *s)
{
    static const int all[] = { 18, 13, 21, 28 };
    const char *only = getenv("ARIL_TEST_OPSET");
    ARIL_SCOPE;
    aril_tensor *in[TEST_INPUTS];
    test_working_on("export", s);
    if (s->op->flags & RANDOM) {
        count.random++;
        return;
    }
    if (!plain_inputs(s, in)) return;
    if (strcmp(s->op->name, "searchsorted") == 0)
        in[0] = aril_sort(in[0], -1, (aril_sort_opts){ 0 }, NULL);
    for (int i = 0; i < 4; i++) {
        call c = { .s = s, .opset = only ? atoi(only) : all[i] };
        check_export(&c, in);
        c.grads = !(s->flags & SAMPLE_NO_GRAD) && !(s->op->flags & NONDIFF) && s->op->vjp;
        if (c.grads) check_export(&c, in);
        if (only) break;
    }
}

TEST(every_op_exported_and_read_again)
{
    test_each_sample(check_sample);
    printf("# %d models, %d refused, %d samples with random numbers\n", count.models, count.refused,
           count.random);
}
