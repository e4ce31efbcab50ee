/* Image ops composed of other ops: channel rearrangements and sampling grids. */
#include "aril/conv.h"
#include "aril/create.h"
#include "aril/math.h"
#include "aril/view.h"
#include "ops/table/apply.h"
#include "ops/shape/like.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* The sizes of x before the last three: -1 if unknown, which reshape then infers. */
static aril_shape leading(const aril_tensor *x, int keep)
{
    aril_shape s = { .ndim = keep };
    memcpy(s.dim, x->dim, (size_t)keep * sizeof *x->dim);
    return s;
}

static aril_tensor *refuse(const char *what, aril_tensor *x, int min)
{
    char text[ARIL__SHAPE_TEXT];
    if (!x) return aril__null_tensor(what);
    if (aril__is_poison(x)) return aril__pass_on(x);
    if (x->ndim >= min && x->ndim <= ARIL_MAX_DIMS - 2) return NULL;
    aril__fail(ARIL_ERR_SHAPE, "%s: expected %d to %d dimensions, got %s", what, min,
               ARIL_MAX_DIMS - 2, aril__text(text, x));
    return aril__poison();
}

static aril_tensor *divide_error(const char *what, const char *part, int64_t by, aril_tensor *x)
{
    char text[ARIL__SHAPE_TEXT];
    aril__fail(ARIL_ERR_SHAPE, "%s: %s of %s cannot be divided by %" PRId64, what, part,
               aril__text(text, x), by);
    return aril__poison();
}

static bool is_factor(int64_t r)
{
    return r >= 1 && r <= INT16_MAX;
}

static aril_tensor *factor_error(const char *what, int64_t r)
{
    aril__fail(ARIL_ERR_ARG, "%s: the factor must be from 1 to %d, got %" PRId64, what, INT16_MAX,
               r);
    return aril__poison();
}

static int64_t times(int64_t a, int64_t b)
{
    return aril__size_product(aril__self()->sizes, 2, (int64_t[]){ a, b });
}

/* Splits the last three axes of x into five, permutes those, and merges them to three again. */
static aril_tensor *rearrange(aril_tensor *x, const int64_t split[5], const int order[5],
                              const int64_t merged[3])
{
    ARIL_SCOPE;
    int n = x->ndim - 3;
    aril_shape apart = leading(x, n), done = leading(x, n);
    memcpy(apart.dim + n, split, 5 * sizeof *split);
    memcpy(done.dim + n, merged, 3 * sizeof *merged);
    apart.ndim += 5;
    done.ndim += 3;
    aril_axes axes = { .n = n + 5 };
    for (int i = 0; i < n + 5; i++) axes.axis[i] = i < n ? i : n + order[i - n];
    return aril_escape(aril_reshape(aril_permute(aril_reshape(x, apart), axes), done));
}

aril_tensor *aril_pixel_shuffle(aril_tensor *x, int64_t factor)
{
    aril_tensor *bad = refuse("pixel_shuffle", x, 3);
    if (bad) return bad;
    const int64_t *dim = x->dim + x->ndim - 3;
    int64_t r = factor, c = dim[0], h = dim[1], w = dim[2];
    if (!is_factor(r)) return factor_error("pixel_shuffle", r);
    if (c < 0 || c % (r * r)) return divide_error("pixel_shuffle", "the channels", r * r, x);
    int64_t split[5] = { c / (r * r), r, r, h, w };
    int64_t merged[3] = { c / (r * r), times(h, r), times(w, r) };
    return rearrange(x, split, (int[]){ 0, 3, 1, 4, 2 }, merged); /* C, H, r, W, r */
}

aril_tensor *aril_pixel_unshuffle(aril_tensor *x, int64_t factor)
{
    aril_tensor *bad = refuse("pixel_unshuffle", x, 3);
    if (bad) return bad;
    const int64_t *dim = x->dim + x->ndim - 3;
    int64_t r = factor, c = dim[0], h = dim[1], w = dim[2];
    if (!is_factor(r)) return factor_error("pixel_unshuffle", r);
    if (h < 0 || w < 0 || h % r || w % r)
        return divide_error("pixel_unshuffle", "height and width", r, x);
    int64_t split[5] = { c, h / r, r, w / r, r };
    int64_t merged[3] = { times(c, r * r), h / r, w / r };
    return rearrange(x, split, (int[]){ 0, 2, 4, 1, 3 }, merged); /* C, r, r, H, W */
}

aril_tensor *aril_channel_shuffle(aril_tensor *x, int64_t groups)
{
    aril_tensor *bad = refuse("channel_shuffle", x, 3);
    if (bad) return bad;
    int64_t c = x->dim[1];
    if (groups < 1 || c < 0 || c % groups)
        return divide_error("channel_shuffle", "the channels", groups, x);
    ARIL_SCOPE;
    aril_shape apart = { .ndim = x->ndim + 1, .dim = { x->dim[0], groups, c / groups } };
    memcpy(apart.dim + 3, x->dim + 2, (size_t)(x->ndim - 2) * sizeof *x->dim);
    return aril_escape(aril__reshape_like(aril_transpose(aril_reshape(x, apart), 1, 2), x));
}

/* n coordinates from -1 to 1: corners if `align`, else the centers of n pixels. [n] */
static aril_tensor *positions(int64_t n, bool align, aril_dtype dtype, aril_device device)
{
    double edge = align ? n > 1 ? 1 : 0 : 1 - 1 / (double)n;
    return aril_linspace(-edge, edge, n, dtype, device);
}

aril_tensor *aril_affine_grid(aril_tensor *theta, aril_shape size, bool align_corners)
{
    char text[ARIL__SHAPE_TEXT], sizes[ARIL__SHAPE_TEXT];
    if (!theta) return aril__null_tensor("affine_grid");
    if (aril__is_poison(theta)) return aril__pass_on(theta);
    int n = size.ndim - 2;
    bool known = aril__check_shape("affine_grid", size, true) == ARIL_OK && (n == 2 || n == 3);
    for (int i = 0; i < n && known; i++) known = size.dim[2 + i] > 0;
    if (!known || theta->ndim != 3 || theta->dim[1] != n || theta->dim[2] != n + 1 ||
        (size.dim[0] >= 0 && theta->dim[0] >= 0 && theta->dim[0] != size.dim[0]) ||
        !aril__is_float((aril_dtype)theta->dtype)) {
        aril__fail(ARIL_ERR_SHAPE,
                   "affine_grid: expected floating-point matrices [N,2,3] for a size [N,C,H,W], or "
                   "[N,3,4] for [N,C,D,H,W], got %s and %s",
                   aril__text(text, theta), aril__shape_text(sizes, size.ndim, size.dim));
        return aril__poison();
    }
    /* grid[..., i] = theta[i][n] + sum over axes k of theta[i][k] * coordinate_k, the last axis
     * first: the sums grow from that of a row, so that only one addition is of full size. */
    ARIL_SCOPE;
    aril_tensor *grid = NULL;
    for (int term = 0; term <= n; term++) {
        int k = term == 0 ? n : term - 1;
        aril_tensor *column = aril_slice(theta, 2, k, k + 1, 1);        /* [N,n,1] */
        column = aril_transpose(column, 1, 2);                          /* [N,1,n] */
        for (int i = 1; i < n; i++) column = aril_unsqueeze(column, 1); /* [N,1,..,n] */
        if (k < n) {
            int axis = n - 1 - k; /* theta's first column belongs to the width */
            aril_shape along = { .ndim = n + 1 };
            for (int i = 0; i <= n; i++) along.dim[i] = i == axis ? size.dim[2 + axis] : 1;
            aril_tensor *p = positions(size.dim[2 + axis], align_corners, (aril_dtype)theta->dtype,
                                       aril_device_of(theta));
            column = aril_mul(column, aril_reshape(p, along));
        }
        grid = grid ? aril_add(grid, column) : column;
    }
    return aril_escape(grid);
}
