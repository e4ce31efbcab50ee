#include "ops/table/require.h"

#include "ops/shape/view.h"
#include "ops/table/apply.h"

#include <string.h>

/* The tracer that records calls on these tensors; NULL: none. */
static aril__tracer *tracer_for(int n, aril_tensor *const *of)
{
    aril__tracer *now = aril__self()->tracer;
    for (int i = 0; i < n && !now; i++)
        if (of[i]->flags & ARIL__SYMBOLIC && of[i]->u.symbol)
            now = ((aril__symbol *)of[i]->u.symbol)->owner->tracer;
    return now;
}

static bool has_unknown(const aril__requirement *q)
{
    bool unknown = false;
    for (int i = 0; i < q->n_shapes; i++)
        for (int d = 0; d < q->shape[i].ndim; d++) unknown |= q->shape[i].dim[d] < 0;
    for (int i = 0; i < q->n_numbers; i++) unknown |= aril__size_is_named(q->number[i]);
    return unknown;
}

aril_status aril__require_now(const aril__requirement *q, int n, aril_tensor *const *of)
{
    aril_status s = q->check(q);
    if (aril__likely(s < 0 || !has_unknown(q))) return s;
    aril__tracer *t = tracer_for(n, of);
    return t && t->require ? t->require(t, q) : ARIL_OK;
}

aril_status aril__require(const char *what, aril__size_check *check, int n, aril_tensor *const *of,
                          int n_numbers, const int64_t *number)
{
    aril__requirement q;
    q.check = check;
    q.n_shapes = n;
    q.n_numbers = n_numbers;
    memset(q.what, 0, sizeof q.what); /* requirements are compared as bytes */
    memset(q.shape, 0, sizeof q.shape);
    memset(q.number, 0, sizeof q.number);
    snprintf(q.what, sizeof q.what, "%s", what);
    for (int i = 0; i < n; i++) {
        if (of[i]->flags & ARIL__POISON) return ARIL_OK;
        q.shape[i].ndim = of[i]->ndim;
        memcpy(q.shape[i].dim, of[i]->dim, (size_t)of[i]->ndim * sizeof *of[i]->dim);
    }
    if (n_numbers) memcpy(q.number, number, (size_t)n_numbers * sizeof *number);
    return aril__require_now(&q, n, of);
}

/* ---- checks ---- */

bool aril__shapes_fit(const aril_shape *a, const aril_shape *b)
{
    return aril__dims_fit(a->ndim, a->dim, b->ndim, b->dim);
}

bool aril__broadcasts_to(const aril_shape *b, const aril_shape *a)
{
    bool fits = b->ndim <= a->ndim;
    for (int d = 0; d < b->ndim && fits; d++)
        fits = b->dim[d] == 1 || aril__size_fits(b->dim[d], a->dim[a->ndim - b->ndim + d]);
    return fits;
}

/* ---- sizes in composed functions ---- */

/* The table of the unknown sizes of x. */
static aril__sizes *sizes_of(const aril_tensor *x)
{
    aril__sizes *now = aril__self()->sizes;
    if (now || !(x->flags & ARIL__SYMBOLIC) || !x->u.symbol) return now;
    aril__tracer *t = ((aril__symbol *)x->u.symbol)->owner->tracer;
    return t ? &t->sizes : NULL;
}

int64_t aril__broadcast_size(int64_t a, int64_t b, const aril_tensor *of)
{
    if (a == b || b == 1) return a;
    if (a == 1) return b;
    return a < 0 || b < 0 ? aril__size_broadcast(sizes_of(of), a, b) : -1;
}

aril_tensor *aril__expand_axis(aril_tensor *x, int axis, int64_t size)
{
    if (x->flags & ARIL__POISON || x->dim[axis] == size || size == -1) return x;
    struct expand_attrs to = { .ndim = { x->ndim } };
    for (int d = 0; d < x->ndim; d++) to.dim[d] = d == axis ? size : -1;
    return aril__op_with(&to, &aril__op_expand, x);
}

int64_t aril__traced_size(const aril_tensor *x, int axis)
{
    int64_t d = x->dim[axis];
    return d >= 0 ? d : aril__size_traced(sizes_of(x), d);
}
