/* Triangles of matrices, and the identity matrix. */
#include "ops/shape/create.h"

#include "aril/create.h"
#include "ops/table/apply.h"
#include "ops/table/element.h"
#include "ops/table/sample.h"

#include <string.h>

ATTR_LIST(triangle, TRIANGLE_ATTRS)

static aril_status triangle_infer(aril__call *c)
{
    const aril_tensor *x = c->in[0];
    aril__meta *o = &c->out[0];
    if (x->ndim < 2) {
        char text[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_SHAPE, "%s: expected a matrix or a batch of matrices, got %s",
                          c->op->name, aril__text(text, x));
    }
    o->dtype = (aril_dtype)x->dtype;
    o->ndim = x->ndim;
    memcpy(o->dim, x->dim, (size_t)o->ndim * sizeof *o->dim);
    return ARIL_OK;
}

/* Keeps the elements of rows and columns on one side of the diagonal. */
static void triangle(aril__run *r, bool upper)
{
    const aril_tensor *x = r->in[0];
    int64_t diagonal = ((const struct triangle_attrs *)r->attrs)->diagonal[0];
    int64_t rows = x->dim[x->ndim - 2], columns = x->dim[x->ndim - 1];
    for (int64_t i = 0; i < x->numel; i++) {
        int64_t right = i % columns - i / columns % rows; /* of the main diagonal */
        if (upper ? right >= diagonal : right <= diagonal)
            aril__put_same(r->out[0], i, x, i);
        else
            aril__put(r->out[0], i, 0);
    }
}

static aril_status tril_ref(aril__run *r)
{
    triangle(r, false);
    return ARIL_OK;
}

static aril_status triu_ref(aril__run *r)
{
    triangle(r, true);
    return ARIL_OK;
}

VJP(triangle)
{
    if (c->g[0]) GRAD(0, aril__op_with(c->attrs, c->op, c->g[0]));
}

static const aril__sample triangle_samples[] = {
    { .in = { "[3,4]" }, .attrs = &(const struct triangle_attrs){ { 0 } } },
    { .in = { "[2,3,3]" },
      .attrs = &(const struct triangle_attrs){ { 1 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[4,3]" }, .attrs = &(const struct triangle_attrs){ { -2 } } },
    { .in = { "[2,0,3]" }, .attrs = &(const struct triangle_attrs){ { 0 } } },
    SAMPLE_END
};
OP(tril, .doc = "lower triangle of matrices; other elements are 0", .onnx = "Trilu", .min_in = 1,
   .max_in = 1, .n_out = 1, .flags = STRIDED | RAW | INPLACE, .types = DT_COMPUTE,
   .infer = triangle_infer, .ref = tril_ref, .vjp = triangle_vjp, .samples = triangle_samples,
   WITH_ATTRS(triangle));
OP(triu, .doc = "upper triangle of matrices; other elements are 0", .onnx = "Trilu", .min_in = 1,
   .max_in = 1, .n_out = 1, .flags = STRIDED | RAW | INPLACE, .types = DT_COMPUTE,
   .infer = triangle_infer, .ref = triu_ref, .vjp = triangle_vjp, .samples = triangle_samples,
   WITH_ATTRS(triangle));

/* ---- eye ---- */

ATTR_LIST(create, CREATE_ATTRS)

static aril_status eye_infer(aril__call *c)
{
    aril_status s = aril__create_infer(c);
    if (s == ARIL_OK && !aril__dtypes[c->type].computes)
        return aril__fail(ARIL_ERR_DTYPE, "eye: not defined for %s", aril__dtypes[c->type].name);
    return s;
}

static aril_status eye_ref(aril__run *r)
{
    aril_tensor *o = r->out[0];
    int64_t n = o->dim[0] < o->dim[1] ? o->dim[0] : o->dim[1];
    const double one = 1;
    memset(aril__ptr(o), 0, aril__dtype_bytes((aril_dtype)o->dtype, o->numel));
    for (int64_t i = 0; i < n; i++)
        aril__dtypes[o->dtype].store[ARIL__C_F64](aril__base(o), o->offset + i * (o->dim[1] + 1), 1,
                                                  &one, 1);
    return ARIL_OK;
}

static const aril__sample eye_samples[] = {
    { .attrs =
          &(const struct create_attrs){ .ndim = { 2 }, .dim = { 3, 4 }, .dtype = { ARIL_F32 } } },
    { .attrs =
          &(const struct create_attrs){ .ndim = { 2 }, .dim = { 2, 0 }, .dtype = { ARIL_I64 } } },
    SAMPLE_END
};
OP(eye, .doc = "identity matrix: 1 on the diagonal, 0 elsewhere", .onnx = "EyeLike", .n_out = 1,
   .flags = NONDIFF | RAW, .infer = eye_infer, .ref = eye_ref, .samples = eye_samples,
   WITH_ATTRS(create));

/* ---- public ---- */

aril_tensor *aril_eye(int64_t rows, int64_t columns, aril_dtype dtype, aril_device device)
{
    struct create_attrs a;
    aril_shape shape = { .ndim = 2, .dim = { rows, columns == -1 ? rows : columns } };
    if (aril__create_attrs("eye", shape, dtype, device, &a) < 0) return aril__poison();
    return aril__apply1(&aril__op_eye, 0, NULL, &a);
}

aril_tensor *aril_tril(aril_tensor *x, int64_t diagonal)
{
    struct triangle_attrs a = { { diagonal } };
    return aril__op_with(&a, &aril__op_tril, x);
}

aril_tensor *aril_tril_(aril_tensor *x, int64_t diagonal)
{
    struct triangle_attrs a = { { diagonal } };
    return aril__apply_to(x, &aril__op_tril, 1, &x, &a);
}

aril_tensor *aril_triu(aril_tensor *x, int64_t diagonal)
{
    struct triangle_attrs a = { { diagonal } };
    return aril__op_with(&a, &aril__op_triu, x);
}

aril_tensor *aril_triu_(aril_tensor *x, int64_t diagonal)
{
    struct triangle_attrs a = { { diagonal } };
    return aril__apply_to(x, &aril__op_triu, 1, &x, &a);
}
