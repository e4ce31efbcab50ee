/* aril__apply1 has a short way for elementwise ops of operands that are alike. aril__apply always
 * takes the long one: both must give the same bits, gradients and errors, for every formula. */
#include "aril/aril.h"
#include "core/tensor.h"
#include "ops/elementwise/formula.h"
#include "ops/table/apply.h"
#include "support/ops.h"
#include "support/test.h"

#include <string.h>

enum { INPUTS = 5, BYTES = 8192 };

static bool same_bytes(aril_tensor *a, aril_tensor *b)
{
    static unsigned char x[BYTES], y[BYTES];
    size_t n = aril__dtype_bytes(aril_dtype_of(a), aril_numel(a));
    return aril_dtype_of(a) == aril_dtype_of(b) && aril_numel(a) == aril_numel(b) && n <= BYTES &&
           aril_read(a, x) == ARIL_OK && aril_read(b, y) == ARIL_OK && !memcmp(x, y, n);
}

/* An error without the source location at its end. */
static void message_of(aril_tensor *t, char *to, size_t size)
{
    snprintf(to, size, "%s", aril_tensor_error(t));
    char *at = strstr(to, " at test_");
    if (at) *at = 0;
}

static void compare(const aril__op *op, aril_tensor *const *in, const char *what)
{
    ARIL_SCOPE;
    static const struct ew_attrs attrs = { { 1, 0.5, 2 } };
    aril_tensor *out[ARIL__MAX_OUT];
    int n = op->formula->arity;
    aril_clear_error();
    aril_status status = aril__apply(op, n, in, &attrs, out);
    char want[256], got[256];
    if (status < 0) message_of(out[0], want, sizeof want);
    aril_clear_error();
    aril_tensor *y = aril__apply1(op, n, in, &attrs);
    CHECK_MSG(aril_tensor_status(y) == status, "%s, %s: status %d, the long way %d", op->name, what,
              aril_tensor_status(y), status);
    if (status < 0) {
        message_of(y, got, sizeof got);
        CHECK_STR(got, want);
        return;
    }
    CHECK_MSG(same_bytes(y, out[0]), "%s, %s: other bits", op->name, what);
    CHECK_MSG((y->node != NULL) == (out[0]->node != NULL), "%s, %s: recorded by one of two",
              op->name, what);
    CHECK_MSG(y->flags == out[0]->flags, "%s, %s: other flags", op->name, what);
    for (int d = 0; d < y->ndim; d++) CHECK_INT(y->stride[d], out[0]->stride[d]);
}

/* Inputs for all formulas: of one shape and dtype, with values that every domain contains. */
static void draw(const aril__op *op, aril_shape shape, aril_dtype dtype, aril_tensor **in)
{
    for (int i = 0; i < op->formula->arity; i++)
        in[i] =
            aril_cast(aril_add_scalar(aril_mul_scalar(aril_rand(shape, ARIL_F64, aril_cpu()), 0.3),
                                      0.4 + 0.05 * i),
                      dtype);
}

#define EACH_FORMULA(op)                                                                 \
    for (const aril__op *const *at = aril__ops, *op; at < aril__ops + aril__n_ops; at++) \
        if ((op = *at)->formula)

TEST(both_ways_agree_on_every_formula)
{
    static const aril_dtype dtypes[] = { ARIL_F16, ARIL_BF16, ARIL_F32,
                                         ARIL_F64, ARIL_I32,  ARIL_BOOL };
    const aril_shape shapes[] = {
        ARIL_SHAPE(1), ARIL_SHAPE(3, 5), ARIL_SHAPE(2, 0), ARIL_SHAPE(600), { 0 }
    };
    EACH_FORMULA(op)
    {
        for (size_t t = 0; t < sizeof dtypes / sizeof *dtypes; t++) {
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
                ARIL_SCOPE;
                aril_tensor *in[INPUTS];
                draw(op, shapes[s], dtypes[t], in);
                compare(op, in, aril_dtype_name(dtypes[t]));
                if (test_failed()) return;
            }
        }
    }
}

TEST(both_ways_agree_when_an_input_differs)
{
    EACH_FORMULA(op)
    {
        for (int i = 0; i < op->formula->arity && !test_failed(); i++) {
            ARIL_SCOPE;
            aril_tensor *in[INPUTS];
            draw(op, ARIL_SHAPE(4, 4), ARIL_F32, in);
            aril_tensor *plain = in[i];
            in[i] = aril_transpose(plain, 0, 1);
            compare(op, in, "a transposed view");
            in[i] = aril_contiguous(in[i]);
            compare(op, in, "a copy");
            in[i] = aril_slice(plain, 0, 0, 1, 1);
            compare(op, in, "a broadcast row");
            in[i] = aril_cast(plain, ARIL_F64);
            compare(op, in, "another dtype");
            in[i] = aril_scalar(0.5);
            compare(op, in, "a scalar");
            in[i] = aril_ones(ARIL_SHAPE(3), ARIL_F32, aril_cpu());
            compare(op, in, "a shape that does not broadcast");
            in[i] = NULL;
            compare(op, in, "no tensor");
            in[i] = aril_matmul(plain, aril_ones(ARIL_SHAPE(3, 3), ARIL_F32, aril_cpu()));
            compare(op, in, "poison");
            aril_clear_error();
        }
    }
}

/* A gradient that is never computed, as none flows to that input. */
static bool is_unused(const aril__formula *f)
{
    return f->is_grad && !aril__derivatives(f->grad_of)[f->grad_input].program;
}

TEST(both_ways_agree_in_every_mode)
{
    EACH_FORMULA(op)
    {
        if (is_unused(op->formula)) continue;
        for (int mode = 0; mode < 4 && !test_failed(); mode++) {
            ARIL_SCOPE;
            aril_tensor *in[INPUTS];
            draw(op, ARIL_SHAPE(2, 3), ARIL_F32, in);
            in[0] = aril_adopt(aril_parameter(in[0]));
            aril_guard g = mode == 0   ? aril_scope_begin()
                           : mode == 1 ? aril_no_grad_begin()
                           : mode == 2 ? aril_inference_begin()
                                       : aril_autocast_begin(ARIL_BF16);
            compare(op, in,
                    mode == 0   ? "recorded"
                    : mode == 1 ? "no_grad"
                    : mode == 2 ? "inference"
                                : "autocast");
            aril_guard_end(&g);
        }
    }
}

TEST(a_loss_of_any_form_starts_with_one)
{
    const aril_shape shapes[] = { { 0 }, ARIL_SHAPE(1), ARIL_SHAPE(1, 1, 1) };
    static const aril_dtype dtypes[] = { ARIL_F16, ARIL_BF16, ARIL_F32, ARIL_F64 };
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        for (size_t t = 0; t < sizeof dtypes / sizeof *dtypes; t++) {
            ARIL_SCOPE;
            aril_tensor *x =
                aril_adopt(aril_parameter(aril_full(shapes[s], 3, dtypes[t], aril_cpu())));
            CHECK_INT(aril_backward(aril_mul(x, x)), ARIL_OK);
            CHECK_NEAR(aril_item(aril_grad(x)), 6, 0);
            CHECK_INT(aril_dtype_of(aril_grad(x)), dtypes[t]);
            CHECK_INT(aril_ndim(aril_grad(x)), shapes[s].ndim);
            CHECK_INT(aril_backward(aril_slice(aril_mul(x, x), 0, 0, 1, 1)),
                      shapes[s].ndim ? ARIL_OK : ARIL_ERR_SHAPE);
            aril_clear_error();
        }
    }
}
