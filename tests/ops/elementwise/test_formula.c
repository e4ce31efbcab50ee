/* The formula parser: expressions mean what they mean in C, and nothing malformed is accepted. */
#include "aril/aril.h"
#include "ops/table/apply.h"
#include "ops/elementwise/formula.h"
#include "ops/elementwise/elementwise.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

extern const aril__op aril__op_add, aril__op_floor, aril__op_mul, aril__op_tanh;

static const double a = 1.5, b = -0.75, c = 2.25, y = 0.5, g = 3;
static const double p0 = 0.25, p1 = -4, p2 = 10;

static double square(double v)
{
    return v * v;
}

static double value_of(const char *text)
{
    ARIL_SCOPE;
    aril__formula_code *p = aril__program_parse(text);
    if (!p) return NAN;
    const double at[ARIL__VAR_COUNT] = { [ARIL__VAR_A] = a,
                                         [ARIL__VAR_B] = b,
                                         [ARIL__VAR_C] = c,
                                         [ARIL__VAR_Y] = y,
                                         [ARIL__VAR_G] = g };
    aril_tensor *var[ARIL__VAR_COUNT];
    for (int i = 0; i < ARIL__VAR_COUNT; i++)
        var[i] = aril_from(&at[i], ARIL_SHAPE(1), ARIL_F64, aril_cpu());
    double v = aril_item(aril__program_eval(p, var, (double[]){ p0, p1, p2 }));
    aril__program_free(p);
    return v;
}

#define K(x)            (x)
#define k_square(x)     square(x)
#define k_tanh(x)       tanh(x)
#define k_exp(x)        exp(x)
#define k_maximum(u, v) fmax(u, v)
#define k_pow(u, v)     pow(u, v)
#define k_abs(x)        fabs(x)
/* The same tokens, compiled and parsed. */
#define SAME(...)       CHECK_NEAR(value_of(#__VA_ARGS__), (double)(__VA_ARGS__), 1e-12)

TEST(arithmetic_binds_as_in_c)
{
    SAME(a);
    SAME(a + b * c);
    SAME((a + b) * c);
    SAME(a - b - c);
    SAME(a / b / c);
    SAME(a - (b - c));
    SAME(a * b + c / y - g);
    SAME(a / (b * c) / y);
    SAME(a + b * c - g / y * a);
}

TEST(unary_operators)
{
    SAME(-a);
    SAME(-a * b);
    SAME(a * -b);
    SAME(a - -b);
    SAME(-(a + b));
    SAME(-a - -b - -c);
    SAME(- -a);
    SAME(!(a > b) ? a : b);
    SAME(!(a < b) ? a : b);
}

TEST(numbers_and_parameters)
{
    SAME(K(2));
    SAME(K(-0.5) * a);
    SAME(K(1e-3) + a);
    SAME(K(0.70710678118654752440));
    SAME(p0 * a + p1 * b + p2);
    SAME(-p1);
}

TEST(functions)
{
    SAME(k_square(a));
    SAME(k_tanh(a * b) + k_exp(-(a * a)));
    SAME(k_maximum(a, b + c));
    SAME(k_pow(k_abs(b), c - K(1)));
    SAME(k_square(k_square(k_square(a)) - b));
}

TEST(comparisons_and_choices)
{
    SAME(a > b ? a : b);
    SAME(a >= b ? K(1) : K(2));
    SAME(a <= b ? K(1) : K(2));
    SAME(a < b ? K(1) : K(2));
    SAME(a == b ? K(1) : K(2));
    SAME(a != b ? K(1) : K(2));
    SAME(a + b < c * y ? g : -g);
    SAME(a > b && b > c ? K(1) : K(2));
    SAME(a > b || b > c ? K(1) : K(2));
    CHECK_NEAR(value_of("a < b && b < c || c > y ? K(1) : K(2)"), 1, 0);
    CHECK_NEAR(value_of("a > b || b > c && c < y ? K(1) : K(2)"), 1, 0);
    CHECK_NEAR(value_of("a < b == y < b ? K(1) : K(2)"), 1, 0);
    /* Right-associative, as in C. */
    SAME(a < b ? K(1) : a < c ? K(2) : K(3));
    SAME(a > b ? a > c ? K(1) : K(2) : K(3));
    SAME(a < b ? K(1) : a > c ? K(2) : a > y ? K(3) : K(4));
    SAME((a > b ? c : y) * g);
    SAME(K(1) + (a < b ? c : y) * g - K(2));
}

TEST(what_an_op_costs_and_whether_it_fails_follows_from_its_functions)
{
    static const struct {
        const char *op;
        bool quick, fails;
    } known[] = {
        { "add", true, false },     { "div", true, false },       { "relu", true, false },
        { "abs", true, false },     { "sqrt", true, false },      { "clamp", true, false },
        { "maximum", true, false }, { "relu_grad", true, false }, { "exp", false, false },
        { "tanh", false, false },   { "tanh_grad", true, false }, { "hypot", false, false },
        { "pow", false, true },     { "floor_div", false, true }, { "remainder", false, true },
        { "fmod", false, true },    { "sigmoid", false, false },  { "shift_left", false, false },
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const aril__op *op = aril__op_find(known[i].op);
        CHECK_MSG(op && op->formula, "no elementwise op %s", known[i].op);
        CHECK_MSG(aril__formula_is_quick(op) == known[i].quick, "%s", known[i].op);
        CHECK_MSG(aril__formula_may_fail(op) == known[i].fails, "%s", known[i].op);
    }
    /* An op fails midway exactly where its kernel reports an error. */
    ARIL_SCOPE;
    for (int i = 0; i < aril__n_ops; i++) {
        const aril__op *op = aril__ops[i];
        if (!op->formula || op->formula->is_grad || op->formula->arity != 2) continue;
        aril_tensor *in[] = { aril_full(ARIL_SHAPE(2), 3, ARIL_I64, aril_cpu()), NULL };
        bool failed = false;
        for (int v = -1; v <= 0; v++) {
            in[1] = aril_full(ARIL_SHAPE(2), v, ARIL_I64, aril_cpu());
            aril_tensor *out = aril__apply1(op, 2, in, &(struct ew_attrs){ 0 });
            failed |= aril_tensor_status(out) == ARIL_ERR_NUMBER;
            aril_clear_error();
        }
        CHECK_MSG(aril__formula_may_fail(op) == failed, "%s", op->name);
    }
}

TEST(whitespace_is_ignored)
{
    CHECK_NEAR(value_of("a+b*c"), a + b * c, 1e-12);
    CHECK_NEAR(value_of("  a  +\tb *\n c  "), a + b * c, 1e-12);
    CHECK_NEAR(value_of("a<=b?K(1):K(2)"), 2, 1e-12);
    CHECK_NEAR(value_of("k_square( a )"), a * a, 1e-12);
}

TEST(malformed_formulas_are_rejected)
{
    static const char *const bad[] = {
        "",
        " ",
        "a +",
        "+",
        "* a",
        "(a",
        "a)",
        "()",
        "a b",
        "a,",
        "a , b",
        "q",
        "ab",
        "p",
        "p3",
        "p9",
        "p10",
        "K",
        "K()",
        "K(",
        "K(1",
        "K(x)",
        "K(1,2)",
        "k_no_such_op(a)",
        "k_square",
        "k_square(",
        "k_square()",
        "k_square(a",
        "k_square(a,)",
        "k_square(a, b)",
        "k_maximum(a)",
        "k_maximum(a, b, c)",
        "square(a)",
        "k_(a)",
        "a ? b",
        "a ? b :",
        "a ? : b",
        "? a : b",
        "a : b",
        "a = b",
        "a & b",
        "a | b",
        "a =< b",
        "a < ",
        "< a",
        "a && ",
        "&& a",
        "a !",
        "!",
        "-",
        "a - ",
        "a @ b",
        "a + * b",
        "a ** b",
        "1",
        "0.5 * a",
        "a[0]",
        "a;",
        "k_square(a) b",
        "a_very_long_name_that_is_longer_than_any_name_of_an_op_could_ever_be(a)",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        aril__formula_code *p = aril__program_parse(bad[i]);
        if (p) test_fail(__FILE__, __LINE__, "\"%s\" was read", bad[i]);
        aril__program_free(p);
    }
    /* Longer than the maximum program. */
    char text[4096] = "a";
    for (int i = 0; i < 400; i++) strcat(text, " + a");
    CHECK(aril__program_parse(text) == NULL);
    char deep[600];
    memset(deep, '(', 500);
    strcpy(deep + 500, "a");
    CHECK(aril__program_parse(deep) == NULL);
}

TEST(derivatives_report_the_values_they_need)
{
    aril_clear_error(); /* starts the library, which reads them */
    const aril__derivative *d = aril__derivatives(&aril__op_add);
    CHECK_INT(d[0].shortcut, ARIL__IS_G);
    CHECK_INT(d[0].saves | d[1].saves, 0);
    d = aril__derivatives(&aril__op_mul);
    CHECK_INT(d[0].shortcut, ARIL__IS_ONE_OP);
    CHECK_INT(d[0].saves, IN(1));
    CHECK_INT(d[1].saves, IN(0));
    d = aril__derivatives(&aril__op_tanh);
    CHECK_INT(d[0].shortcut, ARIL__USE_OP);
    CHECK_INT(d[0].saves, OUT(0));
    d = aril__derivatives(&aril__op_floor);
    CHECK_INT(d[0].shortcut, ARIL__IS_ZERO);
    d = aril__derivatives(&aril__op_where);
    CHECK(d[0].program == NULL);
    CHECK_INT(d[1].saves, IN(0));
}

/* Every formula y = ... in the table evaluates to what its kernel computes. */
TEST(formulas_of_the_table_equal_their_kernels)
{
    ARIL_SCOPE;
    int read = 0;
    for (int k = 0; k < aril__n_ops; k++) {
        const aril__op *op = aril__ops[k];
        if (!op->formula || op->formula->is_grad || op->formula->rule == ARIL__EW_INT ||
            op->formula->rule == ARIL__EW_INTX)
            continue;
        aril__formula_code *p = aril__program_parse(op->formula->text);
        if (!p) /* C library calls without an op of that name, such as k_erf in T */
            continue;
        read++;
        double v[3] = { 0.4, 0.3, 0.6 };
        aril_tensor *var[ARIL__VAR_COUNT] = { NULL };
        for (int i = 0; i < 3; i++) var[i] = aril_from(&v[i], ARIL_SHAPE(1), ARIL_F64, aril_cpu());
        struct ew_attrs attrs = { { 0.7, 1.5, -0.4 } };
        double want = aril_item(aril__apply1(op, op->formula->arity, var, &attrs));
        double got = aril_item(aril__program_eval(p, var, attrs.p));
        aril__program_free(p);
        CHECK_MSG(aril_ok(), "%s: %s", op->name, aril_error());
        CHECK_MSG(fabs(got - want) <= 1e-12 || (isnan(got) && isnan(want)), "%s: %.17g and %.17g",
                  op->name, got, want);
    }
    CHECK_MSG(read > 60, "%d formulas were read", read);
}
