#include "ops/elementwise/activation.h"

#include "ops/table/apply.h"
#include "ops/elementwise/formula.h"
#include "ops/elementwise/elementwise.h"

#include <inttypes.h>

/* Rows of elementwise.def. */
extern const aril__op aril__op_leaky_relu, aril__op_leaky_relu_grad, aril__op_relu, aril__op_relu6,
    aril__op_relu6_grad, aril__op_relu_grad, aril__op_sigmoid, aril__op_sigmoid_grad, aril__op_tanh,
    aril__op_tanh_grad;

aril_status aril__activation_check(const char *op, int64_t act)
{
    if (act >= ARIL_NO_ACTIVATION && act <= ARIL_TANH) return ARIL_OK;
    return aril__fail(ARIL_ERR_ARG, "%s: unknown activation %" PRId64, op, act);
}

static const struct ew_attrs leaky = { { ARIL__LEAKY_SLOPE } };

aril_tensor *aril__activation(aril_tensor *x, int64_t act)
{
    switch (act) {
    case ARIL_RELU: return aril__op(&aril__op_relu, x);
    case ARIL_RELU6: return aril__op(&aril__op_relu6, x);
    case ARIL_LEAKY_RELU: return aril__op_with(&leaky, &aril__op_leaky_relu, x);
    case ARIL_SIGMOID: return aril__op(&aril__op_sigmoid, x);
    case ARIL_TANH: return aril__op(&aril__op_tanh, x);
    default: return x;
    }
}

/* Gradient ops take g, a and y. Where the derivative depends on a, it uses only its sign and
 * bounds, which y shares. */
aril_tensor *aril__activation_grad(aril_tensor *g, aril_tensor *y, int64_t act)
{
    switch (act) {
    case ARIL_RELU: return aril__op(&aril__op_relu_grad, g, NULL, y);
    case ARIL_RELU6: return aril__op(&aril__op_relu6_grad, g, y, NULL);
    case ARIL_LEAKY_RELU: return aril__op_with(&leaky, &aril__op_leaky_relu_grad, g, y, NULL);
    case ARIL_SIGMOID: return aril__op(&aril__op_sigmoid_grad, g, NULL, y);
    case ARIL_TANH: return aril__op(&aril__op_tanh_grad, g, NULL, y);
    default: return g;
    }
}

double aril__activate(int64_t act, double x)
{
    switch (act) {
    case ARIL_RELU: return x < 0 ? 0 : x;
    case ARIL_RELU6: return x < 0 ? 0 : x > 6 ? 6 : x;
    case ARIL_LEAKY_RELU: return x > 0 ? x : x * ARIL__LEAKY_SLOPE;
    case ARIL_SIGMOID: return 1 / (1 + exp(-x));
    case ARIL_TANH: return tanh(x);
    default: return x;
    }
}

double aril__activate_grad(int64_t act, double g, double y)
{
    switch (act) {
    case ARIL_RELU: return y > 0 ? g : 0;
    case ARIL_RELU6: return y > 0 && y < 6 ? g : 0;
    case ARIL_LEAKY_RELU: return y > 0 ? g : g * ARIL__LEAKY_SLOPE;
    case ARIL_SIGMOID: return g * y * (1 - y);
    case ARIL_TANH: return g * (1 - y * y);
    default: return g;
    }
}
