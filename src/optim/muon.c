/* Muon (Jordan, 2024) as PyTorch has it: momentum, made orthogonal. PyTorch iterates in bf16; this
 * does in the dtype of the state. */
#include "optim/optim.h"

#include "aril/autograd.h"
#include "aril/create.h"
#include "aril/linalg.h"
#include "aril/math.h"
#include "aril/reduce.h"
#include "aril/view.h"
#include "aril/scope.h"

#include <math.h>

static bool slot_shape(aril_shape p, int i, aril_shape *shape)
{
    *shape = p;
    return i == 0;
}

static aril_status check(const char *what, const char *name, const aril_tensor *p)
{
    char text[ARIL__SHAPE_TEXT];
    return p->ndim == 2 ? ARIL_OK
                        : aril__fail(ARIL_ERR_SHAPE,
                                     "%s: parameter '%s' has shape %s; muon expects matrices, use "
                                     "another optimizer for other parameters",
                                     what, name, aril__text(text, p));
}

/* Approximates U V^T of m = U S V^T by a quintic Newton-Schulz iteration whose coefficients make
 * small singular values grow fast; the results are between about 0.7 and 1.2. */
static aril_tensor *orthogonal(aril_tensor *m, int steps, double eps)
{
    const double a = 3.4445, b = -4.7750, c = 2.0315;
    bool tall = aril_size(m, 0) > aril_size(m, 1);
    aril_tensor *x = tall ? aril_contiguous(aril_t(m)) : m; /* [n,m], n <= m */
    x = aril_div(x, aril_clamp_min(aril_norm(x, ARIL_ALL, 2), eps));
    for (int i = 0; i < steps; i++) {
        aril_tensor *gram = aril_matmul(x, aril_t(x)); /* [n,n] */
        aril_tensor *by = aril_addmm(gram, gram, gram, b, c);
        x = aril_addmm(x, by, x, a, 1);
    }
    return tall ? aril_t(x) : x;
}

static aril_status step(const aril_optim_opts *o, const aril__step_values *v, aril__optim_param *p,
                        aril_tensor *g)
{
    double rows = (double)p->p->dim[0], columns = (double)p->p->dim[1];
    if (aril_numel(g) == 0) return aril_tensor_status(g);
    double ratio = o->match_rms ? 0.2 * sqrt(fmax(rows, columns)) : sqrt(fmax(1, rows / columns));
    aril_dtype dtype = aril_dtype_of(g);
    aril_tensor *m = aril_lerp(p->slot[0], g, aril__method_number(&v->momentum, 1, -1, dtype));
    aril_tensor *momentum = aril__method_number(&v->momentum, 0, 1, dtype);
    aril_tensor *ahead = o->no_nesterov ? m : aril_lerp(g, m, momentum);
    aril_tensor *u = orthogonal(aril_contiguous(ahead), o->ns_steps, o->eps);
    aril_tensor *x = aril__method_value(p, dtype);
    x = aril_mul(x, aril__method_number(&v->lr, 1, -o->weight_decay, dtype));
    x = aril_sub(x, aril_mul(u, aril__method_number(&v->lr, 0, ratio, dtype)));
    aril_status s = aril_tensor_status(x);
    if (s == ARIL_OK) s = aril__method_store(v, p->slot[0], m);
    return s == ARIL_OK ? aril__method_store_value(v, p, x) : s;
}

const aril__method aril__method_muon = {
    .slot = { "momentum" }, .slot_shape = slot_shape, .check = check, .step = step
};
