/* Every op of the table on samples of every dtype, exported to several operator sets: each operator
 * in the file takes the types of its inputs, and has those of its outputs, by ONNX's schemas.
 * ARIL_TEST_OP=name selects one op, ARIL_EXPORT_DIR keeps the models for ONNX's checker. */
#include "onnx/export_case.h"
#include "onnx/onnx_text.h"
#include "onnx/rules.h"
#include "support/run_op.h"

#include <math.h>
#include <string.h>

enum { SAMPLES = 3 }; /* of an op */

typedef struct sampled {
    const test_sample *s;
    bool present[TEST_INPUTS];
} sampled;

static struct {
    int models, refused, nodes;
} count;

static void run_sample(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    const sampled *c = ctx;
    const aril__op *op = c->s->op;
    aril_tensor *x[TEST_INPUTS], *y[TEST_RESULTS];
    int n = 0, k = 0;
    for (int i = 0; i < c->s->n_in; i++) x[i] = c->present[i] ? in[k++] : NULL;
    aril__apply(op, c->s->n_in, x, c->s->attrs, y);
    for (int i = 0; i < op->n_out; i++)
        if (i + 1 != op->reserve_out && !ARIL__IS_WRITE(op->out[i]) && y[i]) out[n++] = y[i];
}

/* ---- the types in a file ---- */

static int number_of(const onnx_model *m, const onnx_types *types, onnx_slot slot)
{
    const onnx_value *v = &m->initial[slot];
    if (v->kind == ONNX_TENSOR) return aril__onnx_dtype_number(aril_dtype_of(v->tensor));
    return types->of[slot].kind == ONNX_TENSOR ? (int)types->of[slot].elem : 0;
}

static void check_port(const char *what, const onnx_node *n, const onnx_type_row *row,
                       const char *letters, int i, int number)
{
    char letter = *letters ? aril__onnx_type_letter(letters, i) : '.';
    if (letter == '.' || !number) return;
    CHECK_MSG(row->types[letter - 'A'] >> number & 1, "%s: %s-%d has no %s", what, n->rule->name,
              n->version, aril__onnx_dtype_name(number));
}

static void check_body(const char *what, const onnx_model *m, const onnx_types *types,
                       const onnx_body *body)
{
    for (size_t k = 0; k < body->n_nodes && !test_failed(); k++) {
        const onnx_node *n = &body->node[k];
        const onnx_type_row *row = n->rule ? aril__onnx_type_row(n->rule->name, n->version) : NULL;
        count.nodes++;
        for (size_t i = 0; row && i < n->n_in; i++)
            if (n->in[i]) check_port(what, n, row, row->in, (int)i, number_of(m, types, n->in[i]));
        for (size_t i = 0; row && i < n->n_out; i++)
            if (n->out[i])
                check_port(what, n, row, row->out, (int)i, number_of(m, types, n->out[i]));
    }
}

static void check_types(const char *what, const char *path)
{
    onnx_model *m = aril__onnx_model_load(path, (aril_load_opts){ 0 }, false);
    CHECK_MSG(m != NULL, "%s: %s", what, aril_error());
    onnx_types types;
    if (aril__onnx_infer(m, &types) == ARIL_OK) check_body(what, m, &types, &m->main);
    CHECK_MSG(aril_ok(), "%s: %s", what, aril_error());
    aril__onnx_model_free(m);
}

/* ---- samples ---- */

static bool is_clear(const char *error)
{
    return strstr(error, "has no form") || strstr(error, " takes no ") ||
           strstr(error, "is a type of operator set") || strstr(error, "for several axes") ||
           strstr(error, "update: a step of") || strstr(error, "not defined for");
}

static void check_sample(const test_sample *s)
{
    static const int opsets[] = { 13, 18, 22, 28 };
    static const char *op;
    static int number;
    number = op == s->op->name ? number + 1 : 0;
    op = s->op->name;
    if (number >= SAMPLES || s->op->flags & RANDOM || test_failed()) return;
    test_working_on("export", s);
    for (int t = 0; t < ARIL__DTYPE_COUNT; t++) {
        ARIL_SCOPE;
        aril_tensor *in[TEST_INPUTS], *given[TEST_INPUTS], *out[TEST_RESULTS];
        sampled c = { .s = s };
        int n = 0;
        if (t && test_untyped(s)) break;
        if (!test_sample_inputs(s, (aril_dtype)t, 0, in) || test_refused(test_run(s, in, out)))
            continue;
        for (int i = 0; i < s->n_in; i++)
            if ((c.present[i] = in[i] != NULL)) given[n++] = in[i];
        for (int k = 0; k < 4 && !test_failed(); k++) {
            char name[200];
            snprintf(name, sizeof name, "%s_%d_%s_%d", s->op->name, s->index,
                     aril_dtype_name((aril_dtype)t), opsets[k]);
            const char *path = case_path(name);
            aril_program *p = aril_jit(run_sample, &c, (aril_jit_opts){ .name = s->op->name });
            aril_status status = aril_program_export(p, (aril_list){ n, given }, path,
                                                     (aril_export_opts){ .opset = opsets[k] });
            aril_program_free(p);
            if (status == ARIL_OK) {
                count.models++;
                check_types(name, path);
                continue;
            }
            CHECK_MSG(is_clear(aril_error()), "%s: %s", name, aril_error());
            aril_clear_error();
            count.refused++;
        }
    }
}

TEST(operators_take_the_types_that_are_written)
{
    test_each_sample(check_sample);
    printf("# %d models with %d nodes, %d refused\n", count.models, count.nodes, count.refused);
}

static void through_small(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = aril_cast(aril_cast(in[0], *(const aril_dtype *)ctx), ARIL_F32);
}

TEST(casts_to_small_floats_keep_what_becomes_of_large_values)
{
    static const struct {
        aril_dtype type;
        int opset;
    } cases[] = { { ARIL_F8E4M3FN, 19 },
                  { ARIL_F8E4M3FNUZ, 19 },
                  { ARIL_F8E5M2, 19 },
                  { ARIL_F8E5M2FNUZ, 21 },
                  { ARIL_F8E8M0, 24 } };
    static const float values[] = { 1, 1.2f, 3, 300, 1e6f, 3e38f, INFINITY, NAN };
    for (size_t i = 0; i < sizeof cases / sizeof *cases && !test_failed(); i++) {
        ARIL_SCOPE;
        aril_dtype type = cases[i].type;
        aril_tensor *x = aril_from(values, ARIL_SHAPE(8), ARIL_F32, aril_cpu()), *want, *got;
        aril_program *p = aril_jit(through_small, &type, (aril_jit_opts){ .name = "cast" });
        const char *path = case_path(aril_dtype_name(type));
        CHECK_INT(aril_program_export(p, ARIL_LIST(x), path,
                                      (aril_export_opts){ .opset = cases[i].opset }),
                  ARIL_OK);
        CHECK_INT(aril_program_run(p, ARIL_LIST(x), &want), ARIL_OK);
        aril_program_free(p);
        p = aril_program_load(path, (aril_load_opts){ 0 });
        CHECK_MSG(aril_program_run(p, ARIL_LIST(x), &got) == ARIL_OK, "%s", aril_error());
        for (int k = 0; k < 8; k++) {
            double a = aril_item(aril_select(want, 0, k)), b = aril_item(aril_select(got, 0, k));
            CHECK_MSG(a == b || (isnan(a) && isnan(b)), "%s of %g is %g, exported %g",
                      aril_dtype_name(type), (double)values[k], a, b);
        }
        aril_program_free(p);
    }
}
