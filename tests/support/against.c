#include "support/against.h"

#include <aril/aril.h>

#include "support/compare.h"
#include "support/device.h"
#include "support/test.h"

/* The result of a function, and its gradients. */
typedef struct outcome {
    aril_tensor *y, *dx[TEST_AGAINST_INPUTS];
} outcome;

static outcome evaluate(test_function *f, int n, aril_tensor *const *in, const void *how,
                        aril_tensor *g)
{
    outcome o = { .y = NULL };
    for (int i = 0; i < n; i++) aril_set_requires_grad(in[i], true);
    o.y = f(in, how);
    aril_gradients_n((aril_list){ 1, (aril_tensor *[]){ o.y } },
                     (aril_list){ n, (aril_tensor **)in }, o.dx,
                     (aril_grad_opts){ .grad_outputs = { 1, (aril_tensor *[]){ g } } });
    return o;
}

void test_against_f64(test_function *f, int n, const aril_shape *shapes, const void *how,
                      aril_dtype type, aril_shape result, double tolerance)
{
    ARIL_SCOPE;
    aril_tensor *in[TEST_AGAINST_INPUTS], *wide[TEST_AGAINST_INPUTS];
    aril_seed(7);
    for (int i = 0; i < n; i++) {
        aril_tensor *x = aril_mul_scalar(aril_randn(shapes[i], ARIL_F64, aril_cpu()), 0.5);
        x = aril_cast(x, type);
        wide[i] = aril_detach(aril_cast(x, ARIL_F64));
        in[i] = aril_detach(aril_to(x, test_device()));
    }
    aril_tensor *g = aril_cast(aril_randn(result, ARIL_F64, aril_cpu()), type);
    outcome got = evaluate(f, n, in, how, aril_to(g, test_device()));
    outcome want = evaluate(f, n, wide, how, aril_cast(g, ARIL_F64));
    CHECK_MSG(aril_tensor_status(got.y) == ARIL_OK, "%s", aril_error());
    for (int i = -1; i < n; i++) {
        aril_tensor *a = aril_to(i < 0 ? got.y : got.dx[i], aril_cpu());
        aril_tensor *b = i < 0 ? want.y : want.dx[i];
        double most = aril_item(aril_amax(aril_abs(b), ARIL_ALL));
        char *why = test_difference_in_value(a, b, 0, tolerance * most);
        CHECK_MSG(!why, "%s %d: %s", i < 0 ? "result" : "gradient of input", i, why);
    }
}
