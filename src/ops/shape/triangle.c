/* Triangles of matrices, and the identity matrix. */
#include "ops/shape/create.h"

#include "aril/ops.h"
#include "core/parallel.h"
#include "ops/table/apply.h"
#include "ops/table/sample.h"

#include <string.h>

ATTR_LIST(triangle, TRIANGLE_ATTRS)

static aril_status triangle_infer(aril__call *c)
{
    const aril_tensor *x = c->in[0];
    aril__meta *o = &c->out[0];
    if (x->ndim < 2) {
        char text[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_SHAPE, "%s: needs a matrix or a batch of them, got %s",
                          c->op->name, aril__text(text, x));
    }
    o->dtype = (aril_dtype)x->dtype;
    o->ndim = x->ndim;
    memcpy(o->dim, x->dim, (size_t)o->ndim * sizeof *o->dim);
    return ARIL_OK;
}

typedef struct triangle_job {
    const char *in;
    char *out;
    size_t size;
    int64_t rows, columns, diagonal;
    bool upper;
} triangle_job;

static void triangle_range(void *ctx, int64_t begin, int64_t end)
{
    const triangle_job *j = ctx;
    size_t row = (size_t)j->columns * j->size;
    for (int64_t r = begin; r < end; r++) {
        /* Columns before `cut` are on or below the diagonal (tril), or below it (triu). */
        int64_t cut = r % j->rows + j->diagonal + !j->upper;
        cut = cut < 0 ? 0 : cut > j->columns ? j->columns : cut;
        size_t at = (size_t)cut * j->size;
        const char *in = j->in + (size_t)r * row;
        char *out = j->out + (size_t)r * row;
        if (j->upper) {
            memset(out, 0, at);
            memmove(out + at, in + at, row - at);
        } else {
            memmove(out, in, at);
            memset(out + at, 0, row - at);
        }
    }
}

static aril_status triangle(aril__run *r, bool upper)
{
    const aril_tensor *x = r->in[0];
    /* All diagonals beyond the matrix are equivalent. */
    int64_t k = ((const struct triangle_attrs *)r->attrs)->diagonal[0];
    int64_t rows = x->dim[x->ndim - 2], columns = x->dim[x->ndim - 1];
    k = k < -rows - 1 ? -rows - 1 : k > columns + 1 ? columns + 1 : k;
    triangle_job j = { .in = aril__ptr(x),
                       .out = aril__ptr(r->out[0]),
                       .size = aril__dtype_bytes((aril_dtype)x->dtype, 1),
                       .rows = rows,
                       .columns = columns,
                       .diagonal = k,
                       .upper = upper };
    if (x->numel) aril__parallel_for(x->numel / columns, 32768 / columns + 1, triangle_range, &j);
    return ARIL_OK;
}

static aril_status tril_ref(aril__run *r)
{
    return triangle(r, false);
}

static aril_status triu_ref(aril__run *r)
{
    return triangle(r, true);
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
OP(tril, .doc = "the lower triangle of matrices, 0 above", .onnx = "Trilu", .min_in = 1,
   .max_in = 1, .n_out = 1, .flags = RAW | INPLACE, .types = DT_COMPUTE, .infer = triangle_infer,
   .ref = tril_ref, .vjp = triangle_vjp, .samples = triangle_samples, WITH_ATTRS(triangle));
OP(triu, .doc = "the upper triangle of matrices, 0 below", .onnx = "Trilu", .min_in = 1,
   .max_in = 1, .n_out = 1, .flags = RAW | INPLACE, .types = DT_COMPUTE, .infer = triangle_infer,
   .ref = triu_ref, .vjp = triangle_vjp, .samples = triangle_samples, WITH_ATTRS(triangle));

/* ---- eye ---- */

ATTR_LIST(make, MAKE_ATTRS)

static aril_status eye_infer(aril__call *c)
{
    aril_status s = aril__make_infer(c);
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
          &(const struct make_attrs){ .ndim = { 2 }, .dim = { 3, 4 }, .dtype = { ARIL_F32 } } },
    { .attrs =
          &(const struct make_attrs){ .ndim = { 2 }, .dim = { 2, 0 }, .dtype = { ARIL_I64 } } },
    SAMPLE_END
};
OP(eye, .doc = "1 on the diagonal of a matrix, else 0", .onnx = "EyeLike", .n_out = 1,
   .flags = NONDIFF | RAW, .infer = eye_infer, .ref = eye_ref, .samples = eye_samples,
   WITH_ATTRS(make));

/* ---- public ---- */

aril_tensor *aril_eye(int64_t rows, int64_t columns, aril_dtype dtype, aril_device device)
{
    struct make_attrs a;
    aril_shape shape = { .ndim = 2, .dim = { rows, columns == -1 ? rows : columns } };
    if (aril__make_attrs("eye", shape, dtype, device, &a) < 0) return aril__poison();
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
