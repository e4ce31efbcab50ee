/* Diagonal matrices, and the indices of triangles. */
#include "aril/create.h"
#include "aril/index.h"
#include "aril/math.h"
#include "aril/view.h"
#include "ops/shape/view.h"
#include "ops/shape/view_write.h"

#include <stdlib.h>

/* ---- diagonal matrices ---- */

/* Of unknown size: a tensor of zeros has to be derived from x, and a write into its last two axes
 * moved to p and q. */
static aril_tensor *embed_unknown(aril_tensor *x, int64_t diagonal, int p, int q)
{
    ARIL_SCOPE;
    int64_t more = diagonal < 0 ? -diagonal : diagonal;
    aril_tensor *side = aril_zeros_like(x);
    if (more) side = aril_pad(side, ARIL_PADS(0, more), (aril_pad_opts){ 0 });
    aril_tensor *zeros = aril_mul(aril_unsqueeze(side, -1), aril_unsqueeze(side, -2));
    struct diagonal_attrs a = { { diagonal }, { x->ndim - 1, x->ndim } };
    aril_tensor *made = aril__view_write(zeros, x, &aril__op_diagonal, &a);
    return aril_escape(aril_movedim(made, ARIL_AXES(-2, -1), ARIL_AXES(p, q)));
}

aril_tensor *aril_diag_embed(aril_tensor *x, int64_t diagonal, int axis0, int axis1)
{
    aril_tensor *bad = aril__refuse("diag_embed", x);
    if (bad) return bad;
    int ndim = x->ndim + 1;
    if (x->ndim == 0 || ndim > ARIL_MAX_DIMS) {
        aril__fail(ARIL_ERR_SHAPE, "diag_embed: needs 1 to %d dimensions, got %d",
                   ARIL_MAX_DIMS - 1, x->ndim);
        return aril__poison();
    }
    int p = aril__axis("diag_embed", axis0, ndim), q = aril__axis("diag_embed", axis1, ndim);
    if (p < 0 || q < 0) return aril__poison();
    if (p == q) {
        aril__fail(ARIL_ERR_ARG, "diag_embed: axis %d is named twice", axis0);
        return aril__poison();
    }
    if (diagonal > INT32_MAX || diagonal < -INT32_MAX) {
        aril__fail(ARIL_ERR_ARG, "diag_embed: diagonal %lld is out of range", (long long)diagonal);
        return aril__poison();
    }
    if (x->numel < 0) return embed_unknown(x, diagonal, p, q);
    int64_t size = x->dim[x->ndim - 1] + (diagonal < 0 ? -diagonal : diagonal);
    aril_shape shape = { .ndim = ndim };
    for (int d = 0, k = 0; d < ndim; d++) shape.dim[d] = d == p || d == q ? size : x->dim[k++];
    ARIL_SCOPE;
    aril_tensor *zeros = aril_zeros(shape, (aril_dtype)x->dtype, aril_device_of(x));
    struct diagonal_attrs a = { { diagonal }, { p, q } };
    return aril_escape(aril__view_write(zeros, x, &aril__op_diagonal, &a));
}

aril_tensor *aril_diag(aril_tensor *x, int64_t diagonal)
{
    aril_tensor *bad = aril__refuse("diag", x);
    if (bad) return bad;
    if (x->ndim == 1) return aril_diag_embed(x, diagonal, 0, 1);
    if (x->ndim == 2) return aril_diagonal(x, diagonal, 0, 1);
    char text[ARIL__SHAPE_TEXT];
    aril__fail(ARIL_ERR_SHAPE, "diag: needs 1 or 2 dimensions, got %s; see aril_diag_embed",
               aril__text(text, x));
    return aril__poison();
}

/* ---- indices of triangles ---- */

/* Columns of a row before this one belong to the lower triangle. */
static int64_t columns_below(int64_t row, int64_t columns, int64_t diagonal)
{
    int64_t n = row + diagonal + 1;
    return n < 0 ? 0 : n > columns ? columns : n;
}

/* Writes the positions of a triangle to at[0 .. k - 1] and at[k ...], or counts them (at NULL). */
static int64_t list_triangle(int64_t rows, int64_t columns, int64_t diagonal, bool upper,
                             int64_t *at, int64_t k)
{
    int64_t n = 0;
    for (int64_t r = 0; r < rows; r++) {
        int64_t cut = columns_below(r, columns, diagonal - upper);
        int64_t begin = upper ? cut : 0, end = upper ? columns : cut;
        for (int64_t c = begin; c < end && at; c++) {
            at[n + c - begin] = r;
            at[k + n + c - begin] = c;
        }
        n += end - begin;
    }
    return n;
}

static aril_tensor *triangle_indices(const char *what, int64_t rows, int64_t columns,
                                     int64_t diagonal, bool upper, aril_dtype dtype,
                                     aril_device device)
{
    if (rows < 0 || columns < 0 || rows > INT32_MAX || columns > INT32_MAX) {
        aril__fail(ARIL_ERR_SHAPE, "%s: a matrix of %lld rows and %lld columns", what,
                   (long long)rows, (long long)columns);
        return aril__poison();
    }
    diagonal = diagonal < -rows ? -rows : diagonal > columns ? columns : diagonal;
    int64_t k = list_triangle(rows, columns, diagonal, upper, NULL, 0);
    int64_t *at = aril__malloc((size_t)(k ? k : 1) * 2 * sizeof *at);
    if (!at) {
        aril__fail(ARIL_ERR_MEMORY, "%s: no memory for %lld positions", what, (long long)k);
        return aril__poison();
    }
    list_triangle(rows, columns, diagonal, upper, at, k);
    ARIL_SCOPE;
    aril_tensor *y = aril_from(at, ARIL_SHAPE(2, k), ARIL_I64, device);
    free(at);
    return aril_escape(aril_cast(y, dtype));
}

aril_tensor *aril_tril_indices(int64_t rows, int64_t columns, int64_t diagonal, aril_dtype dtype,
                               aril_device device)
{
    return triangle_indices("tril_indices", rows, columns, diagonal, false, dtype, device);
}

aril_tensor *aril_triu_indices(int64_t rows, int64_t columns, int64_t diagonal, aril_dtype dtype,
                               aril_device device)
{
    return triangle_indices("triu_indices", rows, columns, diagonal, true, dtype, device);
}
