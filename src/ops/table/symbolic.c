#include "ops/table/symbolic.h"

#include "ops/table/apply.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

void *aril__symbol_keep(void *symbol)
{
    aril__symbols *owner = symbol ? ((aril__symbol *)symbol)->owner : NULL;
    if (owner) atomic_fetch_add_explicit(&owner->refs, 1, memory_order_relaxed);
    return symbol;
}

void aril__symbol_release(void *symbol)
{
    aril__symbols *owner = symbol ? ((aril__symbol *)symbol)->owner : NULL;
    if (owner && atomic_fetch_sub_explicit(&owner->refs, 1, memory_order_acq_rel) == 1)
        owner->free(owner);
}

static aril_tensor *symbolic(aril__thread *th, aril_dtype dtype, int ndim, const int64_t *dim,
                             const aril__device *device, void *symbol)
{
    int64_t named[ARIL_MAX_DIMS];
    for (int d = 0; d < ndim; d++)
        named[d] =
            dim[d] >= 0 || aril__size_is_named(dim[d]) ? dim[d] : aril__size_new(th->sizes, NULL);
    aril_tensor *t = aril__tensor_header(th, dtype, ndim, named);
    if (!t) return NULL;
    t->flags = ARIL__SYMBOLIC;
    t->u.symbol = aril__symbol_keep(symbol);
    aril__symbolic_set_device(t, device);
    return t;
}

/* The order of `like` in memory, without gaps. */
static void take_order(aril_tensor *t, const aril_tensor *like)
{
    aril__strides_like(like, t->ndim, t->dim, t->stride);
    t->flags |= like->flags & ARIL__CHANNELS_LAST;
}

aril_tensor *aril__symbolic_new(aril__thread *th, aril_dtype dtype, int ndim, const int64_t *dim,
                                void *symbol)
{
    return symbolic(th, dtype, ndim, dim, aril__cpu_device, symbol);
}

aril_tensor *aril__symbolic_like(aril__thread *th, const aril_tensor *like, const int64_t *dim,
                                 void *symbol)
{
    const aril__device *device = aril__tensor_device(like);
    aril_tensor *t = symbolic(th, (aril_dtype)like->dtype, like->ndim, dim,
                              device ? device : aril__cpu_device, symbol);
    if (!t) return NULL;
    take_order(t, like);
    if (!aril__is_packed(like)) /* with its gaps, which decide what can be a view of it */
        memcpy(t->stride, like->stride, (size_t)t->ndim * sizeof *t->stride);
    return t;
}

/* ---- results ---- */

aril_tensor *aril__symbolic_out(aril__thread *th, const aril__call *c, int i, void *symbol)
{
    const aril__meta *o = &c->out[i];
    aril_tensor *t =
        symbolic(th, o->dtype, o->ndim, o->dim, c->device ? c->device : aril__cpu_device, symbol);
    if (!t) return NULL;
    if (ARIL__IS_VIEW(c->op->out[i]))
        memcpy(t->stride, o->stride, (size_t)o->ndim * sizeof *o->stride);
    else
        aril__default_order(c, o, t);
    return t;
}

/* ---- calls ---- */

aril__tracer *aril__symbolic_tracer(int n_in, aril_tensor *const *in, const aril_tensor *dest)
{
    for (int i = -1; i < n_in; i++) {
        const aril_tensor *t = i < 0 ? dest : in[i];
        if (t && t->flags & ARIL__SYMBOLIC)
            return t->u.symbol ? ((aril__symbol *)t->u.symbol)->owner->tracer : NULL;
    }
    return NULL;
}

aril__tracer *aril__symbolic_sizes_of(const aril__op *op, const void *attrs)
{
    aril__sizes *s = NULL;
    for (int i = 0; i < op->n_attrs && attrs && !s; i++) {
        const aril__attr *a = &op->attrs[i];
        const void *at = (const char *)attrs + a->offset;
        if (a->type == ARIL__I64) s = aril__sizes_of(a->count, at);
    }
    return s ? (aril__tracer *)(void *)((char *)s - offsetof(aril__tracer, sizes)) : NULL;
}

/* A size of a defined graph where a number with a point is expected. */
static bool is_size(double v)
{
    int64_t n = fabs(v) < 0x1p53 ? (int64_t)v : 0;
    return v < 0 && (double)n == v && aril__sizes_of(1, &n);
}

aril_status aril__symbolic_attrs_computed(const aril__op *op, const void *attrs)
{
    for (int i = 0; i < op->n_attrs && attrs; i++) {
        const aril__attr *a = &op->attrs[i];
        const char *at = (const char *)attrs + a->offset;
        for (int k = 0; k < a->count; k++) {
            int64_t n;
            double v;
            memcpy(&n, at + (size_t)k * sizeof n, sizeof n);
            memcpy(&v, &n, sizeof v);
            if (a->type == ARIL__I64) v = (double)n;
            if (!aril__size_is_computed(v) && !(a->type == ARIL__F64 && is_size(v))) continue;
            return aril__fail(ARIL_ERR_STATE,
                              "%s: '%s' was computed in C from a size that only the run knows; "
                              "give sizes to operations as aril_size returns them",
                              op->name, a->name);
        }
    }
    return ARIL_OK;
}

/* A root or a logarithm of the number of a size, which is negative, or what was computed from one:
 * NaN with a sign. */
static bool is_root_of_size(double v)
{
    return isnan(v) && signbit(v);
}

aril_status aril__symbolic_roots_computed(const aril__call *c)
{
    bool found = false;
    for (int i = 0; i < c->n_in; i++) {
        const aril_tensor *x = c->in[i];
        if (x && x->flags & ARIL__CONSTANT && x->storage && x->numel == 1 && x->dtype == ARIL_F64)
            found |= is_root_of_size(*(const double *)aril__ptr(x));
    }
    for (int i = 0; i < c->op->n_attrs && c->attrs; i++) {
        const aril__attr *a = &c->op->attrs[i];
        const double *at = (const void *)((const char *)c->attrs + a->offset);
        for (int k = 0; k < a->count && a->type == ARIL__F64; k++) found |= is_root_of_size(at[k]);
    }
    return found ? aril__fail(ARIL_ERR_STATE,
                              "%s: a number was computed in C from a size that only the run knows",
                              c->op->name)
                 : ARIL_OK;
}

aril__device *aril__symbolic_device(aril__call *c)
{
    aril__device *other = NULL;
    for (int i = 0; i < c->n_in; i++) {
        if (!c->in[i] || !(c->in[i]->flags & ARIL__SYMBOLIC)) continue;
        aril__device *d = aril__tensor_device(c->in[i]);
        if (!c->device)
            c->device = d;
        else if (d != c->device)
            other = d;
    }
    return other;
}

/* ---- sizes ---- */

static bool is_anonymous(int64_t d)
{
    return d < 0 && !aril__size_is_named(d);
}

/* The number of sizes that the rule inferred for output i: none where it is an input. */
static int inferred(const aril__call *c, int i)
{
    return ARIL__IS_WRITE(c->op->out[i]) ? 0 : c->out[i].ndim;
}

static bool any_anonymous(const aril__call *c)
{
    for (int i = 0; i < c->op->n_out; i++)
        for (int d = 0; d < inferred(c, i); d++)
            if (is_anonymous(c->out[i].dim[d])) return true;
    return false;
}

/* All that the sizes of results depend on. */
static int describe(const aril__call *c, int64_t *key)
{
    int n = 0;
    size_t attrs = c->attrs ? c->op->attr_size : 0;
    key[n++] = ARIL__SIZE_RESULT;
    key[n++] = (int64_t)(intptr_t)c->op;
    key[n++] = c->n_in;
    if (attrs) memcpy(key + n, c->attrs, attrs);
    n += (int)(attrs / sizeof *key);
    for (int i = 0; i < c->n_in; i++) {
        const aril_tensor *t = c->in[i];
        key[n++] = t ? t->ndim | t->dtype << 8 : -1;
        for (int d = 0; t && d < t->ndim; d++) key[n++] = t->dim[d];
    }
    return n;
}

void aril__symbolic_sizes(aril__thread *th, aril__call *c)
{
    if (!any_anonymous(c)) return;
    size_t words = 5 + c->op->attr_size / sizeof(int64_t) +
                   (size_t)c->n_in * (1 + ARIL_MAX_DIMS); /* attributes are words */
    int64_t *key = c->op->flags & DYNAMIC ? NULL : aril__malloc(words * sizeof *key);
    int n = key ? describe(c, key) : 0;
    for (int i = 0; i < c->op->n_out; i++)
        for (int d = 0; d < inferred(c, i); d++) {
            int64_t *size = &c->out[i].dim[d];
            if (!is_anonymous(*size)) continue;
            if (key) {
                key[n] = i;
                key[n + 1] = d;
            }
            *size =
                key ? aril__size_derived(th->sizes, n + 2, key) : aril__size_new(th->sizes, NULL);
        }
    free(key);
}

void aril__symbolic_attrs(const aril__sizes *s, const aril__op *op, void *attrs,
                          int64_t (*size)(void *ctx, int64_t unknown), void *ctx)
{
    for (int i = 0; attrs && i < op->n_attrs; i++) {
        const aril__attr *a = &op->attrs[i];
        int64_t *at = (int64_t *)(void *)((char *)attrs + a->offset);
        for (int k = 0; a->type == ARIL__I64 && k < a->count; k++)
            if (aril__size_is_named(at[k])) at[k] = aril__size_value(s, at[k], size, ctx);
    }
}
