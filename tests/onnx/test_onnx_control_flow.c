/* Loaded models whose branches and loops depend on their inputs: written again they still do, and
 * what cannot be written is refused before a file is touched. */
#include "onnx/export_case.h"
#include "onnx/onnx_text.h"
#include "support/compare.h"

#include <string.h>

/* clang-format off */
#define SCALAR(name, t) \
    "{ name: \"" name "\" type { tensor_type { elem_type: " #t " shape { } } } } "

/* y = c ? x * x : -x */
static const char branch[] =
    "node { op_type: 'If' input: 'c' output: 'y' "
    "  attribute { name: 'then_branch' type: GRAPH g { "
    "    node { op_type: 'Mul' input: ['x', 'x'] output: 'a' } output " FLOATS("a", DIM(3)) "} } "
    "  attribute { name: 'else_branch' type: GRAPH g { "
    "    node { op_type: 'Neg' input: 'x' output: 'b' } output " FLOATS("b", DIM(3)) "} } } "
    "input " SCALAR("c", 9) "input " FLOATS("x", DIM(3)) "output " FLOATS("y", DIM(3));

/* n times x = x + x while its sum is below 100, with x after each trip; and a branch inside: with a
 * negative sum x stays as it is. */
static const char loop[] =
    "node { op_type: 'Loop' input: ['n', '', 'x'] output: ['y', 'all'] "
    "  attribute { name: 'body' type: GRAPH g { "
    "    node { op_type: 'ReduceSum' input: 'v' output: 's' "
    "           attribute { name: 'keepdims' i: 0 type: INT } } "
    "    node { op_type: 'Less' input: ['s', 'most'] output: 'h' } "
    "    node { op_type: 'Greater' input: ['s', 'none'] output: 'p' } "
    "    node { op_type: 'If' input: 'p' output: 'u' "
    "      attribute { name: 'then_branch' type: GRAPH g { "
    "        node { op_type: 'Add' input: ['v', 'v'] output: 't' } output " ANY("t") "} } "
    "      attribute { name: 'else_branch' type: GRAPH g { "
    "        node { op_type: 'Identity' input: 'v' output: 'e' } output " ANY("e") "} } } "
    "    node { op_type: 'Identity' input: 'u' output: 'w' } "
    "    input " SCALAR("i", 7) "input " SCALAR("g", 9) "input " FLOATS("v", DIM(3))
    "    output " SCALAR("h", 9) "output " FLOATS("u", DIM(3))
    "    output " FLOATS("w", DIM(3)) "} } } "
    "initializer { name: 'most' data_type: 1 float_data: 100 } "
    "initializer { name: 'none' data_type: 1 float_data: 0 } "
    "input " SCALAR("n", 7) "input " FLOATS("x", DIM(3))
    "output " FLOATS("y", DIM(3)) "output " ANY("all");

/* y = x + 3000 x, of more trips than a trace repeats. */
static const char long_loop[] =
    "node { op_type: 'Loop' input: ['n', '', 'x'] output: 'y' "
    "  attribute { name: 'body' type: GRAPH g { "
    "    node { op_type: 'Add' input: ['v', 'x'] output: 'u' } "
    "    node { op_type: 'Identity' input: 'g' output: 'h' } "
    "    input " SCALAR("i", 7) "input " SCALAR("g", 9) "input " FLOATS("v", DIM(3))
    "    output " SCALAR("h", 9) "output " FLOATS("u", DIM(3)) "} } } "
    "initializer { name: 'n' data_type: 7 int64_data: 3000 } "
    "input " FLOATS("x", DIM(3)) "output " FLOATS("y", DIM(3));

/* Running sums along axis 1, from its end; their squares stacked along axis 1 too, from the end. */
static const char scan[] =
    "node { op_type: 'Scan' input: ['z', 'x'] output: ['last', 'y'] "
    "  attribute { name: 'num_scan_inputs' i: 1 type: INT } "
    "  attribute { name: 'scan_input_axes' ints: 1 type: INTS } "
    "  attribute { name: 'scan_input_directions' ints: 1 type: INTS } "
    "  attribute { name: 'scan_output_axes' ints: 1 type: INTS } "
    "  attribute { name: 'scan_output_directions' ints: 1 type: INTS } "
    "  attribute { name: 'body' type: GRAPH g { "
    "    node { op_type: 'Add' input: ['s', 'e'] output: 't' } "
    "    node { op_type: 'Mul' input: ['t', 't'] output: 'q' } "
    "    input " FLOATS("s", DIM(2)) "input " FLOATS("e", DIM(2))
    "    output " FLOATS("t", DIM(2)) "output " FLOATS("q", DIM(2)) "} } } "
    "initializer { name: 'z' dims: 2 data_type: 1 float_data: [0, 1] } "
    "input { name: 'x' type { tensor_type { elem_type: 1 shape { "
    "        dim { dim_value: 2 } dim { dim_param: 't' } } } } } "
    "output " FLOATS("last", DIM(2)) "output " ANY("y");

static const char computed_shape[] =
    "node { name: 'turn' op_type: 'Reshape' input: ['x', 'to'] output: 'y' } "
    "input " FLOATS("x", DIM(3)) "input { name: 'to' type { tensor_type { elem_type: 7 "
    "        shape { dim { dim_value: 2 } } } } } output " ANY("y");

static const char strings[] = "node { op_type: 'StringNormalizer' input: 's' output: 'y' } "
                              "input " TYPED("s", 8) "output " TYPED("y", 8);

/* The value that the loop carries grows. */
static const char growing[] =
    "node { op_type: 'Loop' input: ['n', '', 'x'] output: 'y' "
    "  attribute { name: 'body' type: GRAPH g { "
    "    node { op_type: 'Concat' input: ['v', 'v'] output: 'u' "
    "           attribute { name: 'axis' i: 0 type: INT } } "
    "    node { op_type: 'Identity' input: 'g' output: 'h' } "
    "    input " SCALAR("i", 7) "input " SCALAR("g", 9) "input " ANY("v")
    "    output " SCALAR("h", 9) "output " ANY("u") "} } } "
    "input " SCALAR("n", 7) "input " FLOATS("x", DIM(3)) "output " ANY("y");

/* The branches differ in the sizes of their results. */
static const char turned[] =
    "node { op_type: 'ReduceSum' input: 'x' output: 's' attribute { name: 'keepdims' i: 0 "
    "       type: INT } } "
    "node { op_type: 'Greater' input: ['s', 'zero'] output: 'c' } "
    "node { op_type: 'If' input: 'c' output: 'z' "
    "  attribute { name: 'then_branch' type: GRAPH g { "
    "    node { op_type: 'Unsqueeze' input: ['x', 'first'] output: 't' } output " ANY("t") "} } "
    "  attribute { name: 'else_branch' type: GRAPH g { "
    "    node { op_type: 'Unsqueeze' input: ['x', 'last'] output: 'e' } output " ANY("e") "} } } "
    "node { op_type: 'Exp' input: 'z' output: 'y' } "
    "initializer { name: 'zero' data_type: 1 float_data: 0 } "
    "initializer { name: 'first' dims: 1 data_type: 7 int64_data: 0 } "
    "initializer { name: 'last' dims: 1 data_type: 7 int64_data: 1 } "
    "input " FLOATS("x", DIM(3)) "output " ANY("y");

/* clang-format on */

static aril_tensor *numbers(float a, float b, float c)
{
    const float at[] = { a, b, c };
    return aril_from(at, ARIL_SHAPE(3), ARIL_F32, aril_cpu());
}

static aril_tensor *number(int64_t i, aril_dtype dtype)
{
    return aril_full(ARIL_SHAPE(), (double)i, dtype, aril_cpu());
}

/* Writes a program, after it ran on `first`, and compares both on other inputs. */
static void check_written(const char *name, aril_program *p, int n_out, aril_list first, int sets,
                          const aril_list *others)
{
    CHECK_MSG(p != NULL, "%s: %s", name, aril_error());
    for (int ran = 0; ran < 2; ran++) {
        aril_tensor *want[4], *got[4];
        const char *path = case_path(name);
        CHECK_MSG(aril_program_export(p, first, path, (aril_export_opts){ 0 }) == ARIL_OK, "%s: %s",
                  name, aril_error());
        aril_program *q = aril_program_load(path, (aril_load_opts){ 0 });
        CHECK_MSG(q != NULL, "%s: %s", name, aril_error());
        CHECK_INT(aril_program_inputs(q), first.n);
        CHECK_INT(aril_program_outputs(q), n_out);
        for (int k = 0; k < sets && !test_failed(); k++) {
            ARIL_SCOPE;
            aril_program_run(p, others[k], want);
            aril_program_run(q, others[k], got);
            CHECK_MSG(aril_ok(), "%s: %s", name, aril_error());
            for (int i = 0; i < n_out && !test_failed(); i++) {
                char *why = test_difference_in_value(got[i], want[i], 1e-6, 1e-6);
                CHECK_MSG(!why, "%s: inputs %d, output %d: %s", name, k, i, why);
            }
            if (!test_failed()) keep_case(name, k, others[k].n, others[k].at, n_out, want);
        }
        aril_program_free(q);
        aril_program_run(p, first, want); /* traces of runs are for these values */
    }
    aril_program_free(p);
}

TEST(a_branch_on_an_input)
{
    ARIL_SCOPE;
    aril_tensor *x = numbers(1, -2, 3), *yes = number(1, ARIL_BOOL), *no = number(0, ARIL_BOOL);
    const aril_list runs[] = { ARIL_LIST(yes, x), ARIL_LIST(no, x) };
    check_written("if_input", load_text(OPSET(18), branch), 1, runs[1], 2, runs);
}

TEST(branches_of_different_sizes)
{
    ARIL_SCOPE;
    aril_tensor *up = numbers(1, 2, 3), *down = numbers(-1, -2, -3);
    const aril_list others[] = { { 1, &up }, { 1, &down } };
    check_written("if_sizes", load_text(OPSET(18), turned), 1, ARIL_LIST(up), 2, others);
}

TEST(a_loop_with_a_number_of_trips_and_a_condition)
{
    ARIL_SCOPE;
    aril_tensor *x = numbers(1, 2, 3), *negative = numbers(1, -2, -3);
    const aril_list runs[] = { ARIL_LIST(number(0, ARIL_I64), x), ARIL_LIST(number(3, ARIL_I64), x),
                               ARIL_LIST(number(50, ARIL_I64), x),
                               ARIL_LIST(number(2, ARIL_I64), negative) };
    check_written("loop_input", load_text(OPSET(18), loop), 2, runs[1], 4, runs);
}

TEST(a_long_loop)
{
    ARIL_SCOPE;
    const aril_list runs[] = { ARIL_LIST(numbers(1, 2, 3)) };
    check_written("loop_long", load_text(OPSET(18), long_loop), 1, runs[0], 1, runs);
}

TEST(a_scan_of_an_open_length)
{
    ARIL_SCOPE;
    aril_seed(5);
    aril_program *p = load_text(OPSET(18), scan);
    CHECK_MSG(p != NULL, "%s", aril_error());
    aril_tensor *four = aril_randn(ARIL_SHAPE(2, 4), ARIL_F32, aril_cpu()),
                *seven = aril_randn(ARIL_SHAPE(2, 7), ARIL_F32, aril_cpu()), *want[2], *got[2];
    static const char *const name[] = { "t" };
    const char *path = case_path("scan_open");
    aril_export_opts opts = { .sizes = (const aril_shape[]){ ARIL_SHAPE(2, -2) },
                              .n_sizes = 1,
                              .size_names = name,
                              .n_size_names = 1 };
    CHECK_MSG(aril_program_export(p, ARIL_LIST(four), path, opts) == ARIL_OK, "%s", aril_error());
    aril_program *q = aril_program_load(path, (aril_load_opts){ 0 });
    CHECK_MSG(q != NULL, "%s", aril_error());
    CHECK_INT(aril_program_input_shape(q, 0).dim[1], -1);
    aril_program_run(p, ARIL_LIST(seven), want);
    aril_program_run(q, ARIL_LIST(seven), got);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    for (int i = 0; i < 2 && !test_failed(); i++) {
        char *why = test_difference_in_value(got[i], want[i], 1e-6, 1e-6);
        CHECK_MSG(!why, "output %d: %s", i, why);
    }
    if (!test_failed()) keep_case("scan_open", 0, 1, &seven, 2, want);
    aril_program_free(q);
    aril_program_free(p);
}

/* ---- what is refused ---- */

static void check_refused(const char *graph, aril_list in, aril_export_opts opts,
                          const char *reason)
{
    char before[16] = { 0 };
    aril_program *p = load_text(OPSET(18), graph);
    const char *path = temp_path("there.onnx");
    FILE *f = fopen(path, "w");
    fputs("as it was", f);
    fclose(f);
    CHECK_MSG(p != NULL, "%s", aril_error());
    CHECK(aril_program_export(p, in, path, opts) < 0);
    CHECK_MSG(strstr(aril_error(), reason), "expected '%s' in: %s", reason, aril_error());
    aril_clear_error();
    f = fopen(path, "r");
    CHECK(fgets(before, sizeof before, f) != NULL);
    fclose(f);
    CHECK_STR(before, "as it was");
    aril_program_free(p);
}

/* What depends on values is no graph; nodes are written as they are, where the operator set has
 * them. */
TEST(what_depends_on_values)
{
    ARIL_SCOPE;
    aril_tensor *x = numbers(1, 2, 3), *got, *want,
                *to = aril_from((const int64_t[]){ 3, 1 }, ARIL_SHAPE(2), ARIL_I64, aril_cpu());
    static const char turn[] =
        "node { name: \"turn\" op_type: \"Reshape\" input: [\"x\", \"to\"] output: \"y\" "
        "attribute { name: \"allowzero\" type: INT i: 1 } } input " FLOATS(
            "x", DIM(3)) "input { name: \"to\" type { tensor_type { elem_type: 7 shape { dim { "
                         "dim_value: 2 } } } } "
                         "} output " ANY("y");
    check_refused(turn, ARIL_LIST(x, to), (aril_export_opts){ .opset = 13 },
                  "node turn Reshape: needs a value that only a run knows");
    check_refused(turn, ARIL_LIST(x, to), (aril_export_opts){ .opset = 13 },
                  "node turn Reshape-18: operator set 13 does not have its attribute allowzero");
    check_refused(growing, ARIL_LIST(number(2, ARIL_I64), x), (aril_export_opts){ 0 },
                  "Loop: while: state 2 is f32");
    const char *graphs[] = { turn, computed_shape };
    for (int i = 0; i < 2; i++) {
        const char *path = temp_path("written.onnx");
        aril_program *p = load_text(OPSET(18), graphs[i]);
        CHECK_MSG(p && aril_program_export(p, ARIL_LIST(x, to), path, (aril_export_opts){ 0 }) == 0,
                  "%s", aril_error());
        aril_program *q = aril_program_load(path, (aril_load_opts){ 0 });
        aril_program_run(p, ARIL_LIST(x, to), &want);
        aril_program_run(q, ARIL_LIST(x, to), &got);
        CHECK_MSG(aril_ok(), "%s", aril_error());
        CHECK(aril_allclose(got, want, (aril_close_opts){ 0 }));
        aril_program_free(p);
        aril_program_free(q);
    }
    const char *path = temp_path("strings.onnx");
    aril_program *p = load_text(OPSET(18), strings);
    CHECK_MSG(aril_program_export(p, ARIL_LIST(x), path, (aril_export_opts){ 0 }) == 0, "%s",
              aril_error());
    aril_program_free(p);
    CHECK_MSG((p = aril_program_load(path, (aril_load_opts){ 0 })) != NULL, "%s", aril_error());
    aril_program_free(p);
}

/* ---- modules in compiled functions ---- */

static void call(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = aril_forward_n(ctx, ARIL_LIST(in[0], in[1]));
}

TEST(a_module_in_a_compiled_function)
{
    ARIL_SCOPE;
    aril_program_free(load_text(OPSET(18), branch)); /* writes the file */
    aril_module *m = aril_module_load(temp_path("model.onnx"), (aril_load_opts){ 0 });
    CHECK_MSG(m != NULL, "%s", aril_error());
    aril_program *p = aril_jit(call, m, (aril_jit_opts){ 0 });
    aril_tensor *x = numbers(1, -2, 3), *y;
    for (int64_t k = 0; k < 4; k++) {
        aril_program_run(p, ARIL_LIST(number(k % 2, ARIL_BOOL), x), &y);
        CHECK_MSG(aril_ok(), "%s", aril_error());
        CHECK_NEAR(aril_item(aril_sum(y, ARIL_ALL)), k % 2 ? 14 : -2, 1e-6);
    }
    CHECK_INT(aril_program_traces(p), 1);
    /* A gradient would call the branches again, when the values around are gone. */
    aril_set_requires_grad(x, true);
    CHECK(aril_program_run(p, ARIL_LIST(number(1, ARIL_BOOL), x), &y) < 0);
    CHECK_MSG(strstr(aril_error(), "has no gradient"), "%s", aril_error());
    aril_clear_error();
    aril_program_free(p);
    aril_module_release(m);
}
