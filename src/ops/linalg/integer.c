#include "ops/linalg/integer.h"

#include "aril/create.h"
#include "aril/linalg.h"
#include "aril/math.h"
#include "aril/view.h"
#include "ops/linalg/matmul.h"
#include "ops/table/apply.h"
#include "ops/table/element.h"
#include "ops/table/flops.h"
#include "ops/table/sample.h"

#include <inttypes.h>
#include <string.h>

/* ---- what both ops share ---- */

static bool is_byte(const aril_tensor *t)
{
    return t->dtype == ARIL_U8 || t->dtype == ARIL_I8;
}

static aril_status wrong_input(const aril__call *c, const char *what, const aril_tensor *t)
{
    char text[ARIL__SHAPE_TEXT];
    return aril__fail(ARIL_ERR_SHAPE, "%s: %s, got %s of shape %s", c->op->name, what,
                      aril__dtypes[t->dtype].name, aril__text(text, t));
}

/* One number, or one for each column; an unknown size may be either. */
static bool fits(const aril_tensor *t, int64_t columns)
{
    if (t->ndim == 0) return true;
    return t->ndim == 1 && (t->dim[0] == 1 || t->dim[0] < 0 || columns < 0 || t->dim[0] == columns);
}

aril_status aril__integer_check(aril__call *c, int64_t columns)
{
    const aril_tensor *in[ARIL__INTEGER_INPUTS] = { 0 };
    for (int i = 0; i < c->n_in; i++) in[i] = c->in[i];
    const aril_tensor *a0 = in[ARIL__INTEGER_A_ZERO], *b0 = in[ARIL__INTEGER_B_ZERO],
                      *bias = in[ARIL__INTEGER_BIAS], *scale = in[ARIL__INTEGER_SCALE],
                      *zero = in[ARIL__INTEGER_ZERO];
    if (!is_byte(in[1])) return wrong_input(c, "expected u8 or i8", in[1]);
    if (a0 && (a0->dtype != in[0]->dtype || !fits(a0, 1)))
        return wrong_input(c, "the first zero point must be one number of the input's dtype", a0);
    if (b0 && (b0->dtype != in[1]->dtype || !fits(b0, columns)))
        return wrong_input(c, "the second zero point must be of the weight's dtype", b0);
    if (bias && (bias->dtype != ARIL_I32 || bias->ndim != 1 || !fits(bias, columns)))
        return wrong_input(c, "the bias must be i32, one for each column", bias);
    if (!scale != !zero)
        return aril__fail(ARIL_ERR_ARG, "%s: a scale and a zero point belong together",
                          c->op->name);
    if (scale && (scale->dtype != ARIL_F32 || !fits(scale, columns)))
        return wrong_input(c, "the scale must be f32", scale);
    if (zero && (!is_byte(zero) || !fits(zero, 1)))
        return wrong_input(c, "the zero point must be one number of u8 or i8", zero);
    c->out[0].dtype = zero ? (aril_dtype)zero->dtype : ARIL_I32;
    c->type = (aril_dtype)in[0]->dtype;
    return ARIL_OK;
}

aril__rescale aril__rescale_of(const aril__run *r)
{
    const aril_tensor *a0 = aril__integer_in(r->n_in, r->in, ARIL__INTEGER_A_ZERO),
                      *zero = aril__integer_in(r->n_in, r->in, ARIL__INTEGER_ZERO);
    return (aril__rescale){ .rescales = zero != NULL,
                            .is_signed = zero && zero->dtype == ARIL_I8,
                            .a_zero = a0 ? aril__get_i64(a0, 0) : 0,
                            .zero = zero ? aril__get_i64(zero, 0) : 0,
                            .b_zero = aril__integer_in(r->n_in, r->in, ARIL__INTEGER_B_ZERO),
                            .bias = aril__integer_in(r->n_in, r->in, ARIL__INTEGER_BIAS),
                            .scale = aril__integer_in(r->n_in, r->in, ARIL__INTEGER_SCALE) };
}

int64_t aril__integer_of(const aril_tensor *t, int64_t i)
{
    return t ? aril__get_i64(t, t->numel > 1 ? i : 0) : 0;
}

float aril__scale_of(const aril_tensor *t, int64_t i)
{
    return (float)aril__get(t, t->numel > 1 ? i : 0);
}

void aril__integer_put(const aril__rescale *s, aril_tensor *y, int64_t i, int64_t column,
                       int64_t sum)
{
    int32_t total = (int32_t)(uint32_t)(uint64_t)(sum + aril__integer_of(s->bias, column));
    if (!s->rescales) {
        aril__put_i64(y, i, total);
        return;
    }
    int32_t low = s->is_signed ? -128 : 0;
    aril__put_i64(y, i,
                  aril__rescaled(total, aril__scale_of(s->scale, column), (int32_t)s->zero, low,
                                 low + 255));
}

aril_tensor *aril__integer_spread(aril_tensor *v, int axis, int ndim)
{
    v = aril_cast(v, ARIL_F64);
    if (v->ndim == 0) return v;
    for (int i = axis + 1; i < ndim; i++) v = aril_unsqueeze(v, -1);
    return v;
}

aril_tensor *aril__integer_finish(const aril__call *c, aril_tensor *sum, int axis)
{
    aril_tensor *bias = aril__integer_in(c->n_in, c->in, ARIL__INTEGER_BIAS),
                *scale = aril__integer_in(c->n_in, c->in, ARIL__INTEGER_SCALE),
                *zero = aril__integer_in(c->n_in, c->in, ARIL__INTEGER_ZERO);
    if (bias) sum = aril_add(sum, aril__integer_spread(bias, axis, sum->ndim));
    if (!scale) return aril_cast(sum, ARIL_I32);
    bool is_signed = zero->dtype == ARIL_I8;
    for (int i = axis + 1; i < sum->ndim && scale->ndim > 0; i++) scale = aril_unsqueeze(scale, -1);
    aril_tensor *y = aril_round(aril_mul(aril_cast(sum, ARIL_F32), scale));
    y = aril_add(y, aril_cast(aril_reshape(zero, ARIL_SHAPE()), ARIL_F32));
    y = aril_clamp(y, is_signed ? -128.0 : 0.0, is_signed ? 127.0 : 255.0);
    return aril_cast(aril_cast(y, ARIL_I32), (aril_dtype)zero->dtype);
}

/* ---- matmul_integer ---- */

static aril_status matmul_integer_infer(aril__call *c)
{
    const aril_tensor *a = c->in[0], *b = c->in[1];
    aril__meta *o = &c->out[0];
    char ta[ARIL__SHAPE_TEXT], tb[ARIL__SHAPE_TEXT];
    bool inner = a->ndim >= 1 && b->ndim == 2;
    if (inner) inner = a->dim[a->ndim - 1] < 0 || b->dim[0] < 0 || a->dim[a->ndim - 1] == b->dim[0];
    if (!inner)
        return aril__fail(ARIL_ERR_SHAPE, "matmul_integer: expected [...,K] x [K,N], got %s x %s",
                          aril__text(ta, a), aril__text(tb, b));
    o->ndim = a->ndim;
    memcpy(o->dim, a->dim, (size_t)a->ndim * sizeof *a->dim);
    o->dim[a->ndim - 1] = b->dim[1];
    return aril__integer_check(c, b->dim[1]);
}

static aril_status matmul_integer_ref(aril__run *r)
{
    const aril_tensor *a = r->in[0], *b = r->in[1];
    int64_t n = b->dim[1], k = b->dim[0];
    aril__rescale s = aril__rescale_of(r);
    for (int64_t i = 0; i < r->out[0]->numel; i++) {
        int64_t sum = 0, b_zero = aril__integer_of(s.b_zero, i % n);
        for (int64_t q = 0; q < k; q++)
            sum += (aril__get_i64(a, i / n * k + q) - s.a_zero) *
                   (aril__get_i64(b, q * n + i % n) - b_zero);
        aril__integer_put(&s, r->out[0], i, i % n, sum);
    }
    return ARIL_OK;
}

static void matmul_integer_decompose(aril__call *c, aril_tensor **out)
{
    aril_tensor *a = aril_cast(c->in[0], ARIL_F64), *b = aril_cast(c->in[1], ARIL_F64);
    aril_tensor *a0 = aril__integer_in(c->n_in, c->in, ARIL__INTEGER_A_ZERO),
                *b0 = aril__integer_in(c->n_in, c->in, ARIL__INTEGER_B_ZERO);
    if (a0) a = aril_sub(a, aril_reshape(aril_cast(a0, ARIL_F64), ARIL_SHAPE()));
    if (b0) b = aril_sub(b, aril__integer_spread(b0, 1, 2));
    bool one = a->ndim == 1;
    aril_tensor *y = aril_matmul(one ? aril_unsqueeze(a, 0) : a, b);
    if (one) y = aril_squeeze(y, ARIL_AXES(0));
    out[0] = aril__integer_finish(c, y, y->ndim - 1);
}

static const aril__sample matmul_integer_samples[] = {
    { .in = { "[3,5]", "[5,2]" } },
    { .in = { "[3,5]", "[5,2]", "[1]", "[2]" } },
    { .in = { "[2,3,7]", "[7,70]", "[1]", "-" } },
    { .in = { "[9,130]", "[130,17]", "-", "[1]" } },
    { .in = { "[4]", "[4,3]" } },
    { .in = { "[0,4]", "[4,3]" } },
    { .in = { "[2,0]", "[0,3]" } },
    SAMPLE_END
};

static double matmul_integer_flops(const aril__run *r)
{
    return 2 * aril__numel_of(r->out[0]) * aril__last_size(r->in[0]);
}

OP(matmul_integer,
   .doc = "a product of matrices of 8-bit integers less zero points, in i32 or rescaled",
   .onnx = "MatMulInteger", .min_in = 2, .max_in = ARIL__INTEGER_INPUTS, .n_out = 1,
   .optional = ARIL__INTEGER_OPTIONAL, .flags = NONDIFF | STRIDED,
   .types = DT(ARIL_U8) | DT(ARIL_I8), .infer = matmul_integer_infer, .ref = matmul_integer_ref,
   .decompose = matmul_integer_decompose, .flops = matmul_integer_flops,
   .samples = matmul_integer_samples);
