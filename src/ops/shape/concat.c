#include "ops/shape/concat.h"

#include "aril/create.h"
#include "aril/index.h"
#include "aril/math.h"
#include "aril/view.h"
#include "core/memory.h"
#include "ops/table/apply.h"
#include "ops/shape/copy.h"
#include "ops/elementwise/elementwise.h"
#include "ops/index/indexing.h"
#include "ops/shape/like.h"
#include "ops/reduce/reduce.h"
#include "ops/table/sample.h"

#include <stdlib.h>
#include <string.h>

/* Named ahead of their rows. */
extern const aril__op aril__op_narrow_like, aril__op_pad_like;

/* ---- cat ---- */

ATTR_LIST(cat, CAT_ATTRS)

static aril_status cat_infer(aril__call *c)
{
    int axis = (int)((const struct cat_attrs *)c->attrs)->axis[0];
    aril__meta *o = &c->out[0];
    const aril_tensor *first = c->in[0];
    o->dtype = (aril_dtype)first->dtype;
    o->ndim = first->ndim;
    memcpy(o->dim, first->dim, (size_t)o->ndim * sizeof *o->dim);
    if (axis >= o->ndim)
        return aril__fail(ARIL_ERR_SHAPE,
                          "cat: 0-d tensors cannot be concatenated; use aril_stack");
    for (int i = 1; i < c->n_in; i++) {
        const aril_tensor *t = c->in[i];
        bool fits = t->ndim == o->ndim;
        for (int d = 0; d < o->ndim && fits; d++) {
            if (d == axis) continue;
            if (o->dim[d] < 0) o->dim[d] = t->dim[d];
            fits = t->dim[d] < 0 || t->dim[d] == o->dim[d];
        }
        if (!fits) {
            char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
            return aril__fail(ARIL_ERR_SHAPE,
                              "cat: shapes %s and %s (tensor %d) differ in an axis other than %d",
                              aril__text(a, first), aril__text(b, t), i, axis);
        }
        if (t->dtype != first->dtype)
            return aril__fail(ARIL_ERR_DTYPE, "cat: dtypes %s and %s differ; cast with aril_cast",
                              aril__dtypes[first->dtype].name, aril__dtypes[t->dtype].name);
        bool known = o->dim[axis] >= 0 && t->dim[axis] >= 0;
        if (!known)
            o->dim[axis] = -1;
        else if (__builtin_add_overflow(o->dim[axis], t->dim[axis], &o->dim[axis]))
            o->dim[axis] = INT64_MAX; /* rejected when the result is allocated */
    }
    return ARIL_OK;
}

static aril_status cat_ref(aril__run *r)
{
    int axis = (int)((const struct cat_attrs *)r->attrs)->axis[0];
    aril_tensor part = *r->out[0]; /* a header on the stack, moved along the axis */
    for (int i = 0; i < r->n_in; i++) {
        part.dim[axis] = r->in[i]->dim[axis];
        part.numel = r->in[i]->numel;
        aril__copy_elements(&part, r->in[i]);
        part.offset += part.dim[axis] * part.stride[axis];
    }
    return ARIL_OK;
}

static aril_tensor *narrow_like(aril_tensor *x, aril_tensor *like, int64_t axis, int part)
{
    struct narrow_like_attrs a = { { axis }, { part } };
    return aril__op_with(&a, &aril__op_narrow_like, x, like);
}

VJP(cat)
{
    int64_t axis = ((const struct cat_attrs *)c->attrs)->axis[0];
    aril_tensor *rest = c->g[0];
    int last = -1;
    for (int i = 0; i < c->n_in && rest; i++)
        if (c->wants[i]) last = i;
    for (int i = 0; i <= last; i++) {
        GRAD(i, narrow_like(rest, c->x[i], axis, ARIL__FIRST));
        if (i < last) rest = narrow_like(rest, c->x[i], axis, ARIL__AFTER);
    }
}

#define LIKE_ALL 0xff00u
static const aril__sample cat_samples[] = {
    { .in = { "[2,3]", "[4,3]" }, .attrs = &(const struct cat_attrs){ { 0 } } },
    { .in = { "[2,3]", "[2,1]", "[2,0]", "[2,2]" },
      .attrs = &(const struct cat_attrs){ { 1 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[2,3,2]", "[2,1,2]" }, .attrs = &(const struct cat_attrs){ { 1 } } },
    { .in = { "[3]" }, .attrs = &(const struct cat_attrs){ { 0 } } },
    { .in = { "[1]", "[1]", "[1]", "[1]", "[2]", "[1]", "[1]", "[1]", "[1]", "[3]" },
      .attrs = &(const struct cat_attrs){ { 0 } } },
    SAMPLE_END
};
OP(cat, .doc = "concatenation along an axis", .onnx = "Concat", .min_in = 1, .max_in = ARIL__ANY,
   .n_out = 1, .cast = CAST_WIDEST, .flags = STRIDED | RAW | KEEPS_CHANNELS, .infer = cat_infer,
   .ref = cat_ref, .vjp = cat_vjp, .saves = { LIKE_ALL, LIKE_ALL, LIKE_ALL, LIKE_ALL },
   .samples = cat_samples, WITH_ATTRS(cat));

/* ---- narrow_like: the part of an axis with the size of another tensor: a view ---- */

ATTR_LIST(narrow_like, NARROW_LIKE_ATTRS)

static aril_status narrow_like_infer(aril__call *c)
{
    const struct narrow_like_attrs *a = c->attrs;
    const aril_tensor *x = c->in[0];
    aril__meta *o = &c->out[0];
    int axis = (int)a->axis[0], part = (int)a->part[0];
    if (axis >= x->ndim || c->in[1]->ndim != x->ndim)
        return aril__fail(ARIL_ERR_SHAPE, "narrow_like: axis %d of %d dimensions, and %d", axis,
                          x->ndim, c->in[1]->ndim);
    int64_t n = c->in[1]->dim[axis], size = x->dim[axis];
    if (size >= 0 && n > size) {
        char p[ARIL__SHAPE_TEXT], q[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_SHAPE, "narrow_like: %s is smaller than %s", aril__text(p, x),
                          aril__text(q, c->in[1]));
    }
    o->dtype = (aril_dtype)x->dtype;
    o->ndim = x->ndim;
    o->offset = x->offset;
    memcpy(o->dim, x->dim, (size_t)x->ndim * sizeof *x->dim);
    memcpy(o->stride, x->stride, (size_t)x->ndim * sizeof *x->stride);
    bool known = n >= 0 && size >= 0;
    o->dim[axis] = part != ARIL__AFTER ? n : known ? size - n : -1;
    if (known && part != ARIL__FIRST)
        o->offset += (part == ARIL__AFTER ? n : size - n) * x->stride[axis];
    return ARIL_OK;
}

static aril_tensor *pad_like(aril_tensor *x, aril_tensor *like, int64_t axis, int part)
{
    struct narrow_like_attrs a = { { axis }, { part } };
    return aril__op_with(&a, &aril__op_pad_like, x, like);
}

VJP(narrow_like)
{
    const struct narrow_like_attrs *a = c->attrs;
    int part = a->part[0] == ARIL__FIRST ? ARIL__FIRST : ARIL__LAST;
    if (c->g[0]) GRAD(0, pad_like(c->g[0], c->x[0], a->axis[0], part));
}

static const aril__sample narrow_like_samples[] = {
    { .in = { "[5,3]", "[2,3]" },
      .attrs = &(const struct narrow_like_attrs){ { 0 }, { ARIL__FIRST } } },
    { .in = { "[2,5]", "[2,3]" },
      .attrs = &(const struct narrow_like_attrs){ { 1 }, { ARIL__LAST } } },
    { .in = { "[2,5]", "[2,3]" },
      .attrs = &(const struct narrow_like_attrs){ { 1 }, { ARIL__AFTER } } },
    { .in = { "[2]", "[0]" },
      .attrs = &(const struct narrow_like_attrs){ { 0 }, { ARIL__FIRST } } },
    SAMPLE_END
};
OP(narrow_like, .doc = "part of an axis, as long as that axis of another tensor", .min_in = 2,
   .max_in = 2, .n_out = 1, .out = { VIEW(0) }, .shape_only = IN(1), .infer = narrow_like_infer,
   .vjp = narrow_like_vjp, .saves = { LIKE(0) }, .samples = narrow_like_samples,
   WITH_ATTRS(narrow_like));

/* ---- pad_like: the inverse ---- */

static aril_status pad_like_infer(aril__call *c)
{
    int axis = (int)((const struct narrow_like_attrs *)c->attrs)->axis[0];
    const aril_tensor *x = c->in[0], *like = c->in[1];
    aril__meta *o = &c->out[0];
    bool fits = x->ndim == like->ndim && axis < x->ndim;
    for (int d = 0; d < x->ndim && fits; d++)
        fits = x->dim[d] < 0 || like->dim[d] < 0 || x->dim[d] == like->dim[d] ||
               (d == axis && x->dim[d] < like->dim[d]);
    if (!fits) {
        char p[ARIL__SHAPE_TEXT], q[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_SHAPE, "pad_like: %s cannot be padded to %s along axis %d",
                          aril__text(p, x), aril__text(q, like), axis);
    }
    o->dtype = (aril_dtype)x->dtype;
    o->ndim = like->ndim;
    memcpy(o->dim, like->dim, (size_t)o->ndim * sizeof *o->dim);
    return ARIL_OK;
}

static aril_status pad_like_ref(aril__run *r)
{
    const struct narrow_like_attrs *a = r->attrs;
    int axis = (int)a->axis[0];
    const aril_tensor *x = r->in[0];
    aril_tensor part = *r->out[0];
    memset(aril__ptr(&part), 0, aril__dtype_bytes((aril_dtype)part.dtype, part.numel));
    if (a->part[0] != ARIL__FIRST)
        part.offset += (part.dim[axis] - x->dim[axis]) * part.stride[axis];
    part.dim[axis] = x->dim[axis];
    part.numel = x->numel;
    aril__copy_elements(&part, x);
    return ARIL_OK;
}

VJP(pad_like)
{
    const struct narrow_like_attrs *a = c->attrs;
    if (c->g[0]) GRAD(0, narrow_like(c->g[0], c->x[0], a->axis[0], (int)a->part[0]));
}

static const aril__sample pad_like_samples[] = {
    { .in = { "[2,3]", "[5,3]" },
      .attrs = &(const struct narrow_like_attrs){ { 0 }, { ARIL__FIRST } } },
    { .in = { "[2,3]", "[2,5]" },
      .attrs = &(const struct narrow_like_attrs){ { 1 }, { ARIL__LAST } } },
    { .in = { "[0]", "[2]" },
      .attrs = &(const struct narrow_like_attrs){ { 0 }, { ARIL__FIRST } } },
    SAMPLE_END
};
OP(pad_like, .doc = "pads one end of an axis with zeros, to the shape of another tensor",
   .min_in = 2, .max_in = 2, .n_out = 1, .flags = RAW, .shape_only = IN(1), .types = DT_WHOLE_BYTES,
   .infer = pad_like_infer, .ref = pad_like_ref, .vjp = pad_like_vjp, .saves = { LIKE(0) },
   .samples = pad_like_samples, WITH_ATTRS(narrow_like));

/* ---- repeat ---- */

ATTR_LIST(repeat, REPEAT_ATTRS)

/* The size of the axis of x after repeating it. */
static int64_t repeated(const aril_tensor *x, const struct repeat_attrs *a)
{
    int64_t factors[2] = { x->dim[a->axis[0]], a->times[0] };
    return aril__size_product(aril__self()->sizes, 2, factors);
}

static aril_status repeat_infer(aril__call *c)
{
    const struct repeat_attrs *a = c->attrs;
    const aril_tensor *x = c->in[0];
    aril__meta *o = &c->out[0];
    int axis = (int)a->axis[0];
    if (axis >= x->ndim || (a->times[0] < 0 && !aril__size_is_named(a->times[0])))
        return aril__fail(ARIL_ERR_ARG, "repeat: %lld times along axis %d of %d",
                          (long long)a->times[0], axis, x->ndim);
    o->dtype = (aril_dtype)x->dtype;
    o->ndim = x->ndim;
    memcpy(o->dim, x->dim, (size_t)o->ndim * sizeof *o->dim);
    if (x->dim[axis] > 0 && a->times[0] > INT64_MAX / x->dim[axis])
        return aril__fail(ARIL_ERR_SHAPE, "repeat: %lld times %lld elements is too large",
                          (long long)a->times[0], (long long)x->dim[axis]);
    o->dim[axis] = repeated(x, a);
    return ARIL_OK;
}

aril_tensor aril__repeat_blocks(const aril_tensor *t, const struct repeat_attrs *a, int64_t n,
                                int64_t times)
{
    aril_tensor b = *t;
    int axis = (int)a->axis[0];
    b.ndim = 4;
    b.dim[0] = b.dim[3] = 1;
    for (int d = 0; d < t->ndim; d++)
        if (d != axis) b.dim[d < axis ? 0 : 3] *= t->dim[d];
    b.dim[a->each[0] ? 2 : 1] = times;
    b.dim[a->each[0] ? 1 : 2] = n;
    aril__dense_strides(4, b.dim, b.stride);
    return b;
}

static aril_status repeat_ref(aril__run *r)
{
    const struct repeat_attrs *a = r->attrs;
    int64_t n = r->in[0]->dim[a->axis[0]];
    aril_tensor from = aril__repeat_blocks(r->in[0], a, n, 1);
    aril_tensor to = aril__repeat_blocks(r->out[0], a, n, a->times[0]);
    aril__copy_elements(&to, &from);
    return ARIL_OK;
}

VJP(repeat)
{
    if (c->g[0]) GRAD(0, aril__op_with(c->attrs, &aril__op_repeat_grad, c->g[0], c->x[0]));
}

static const aril__sample repeat_samples[] = {
    { .in = { "[2,3]" }, .attrs = &(const struct repeat_attrs){ { 0 }, { 3 }, { 0 } } },
    { .in = { "[2,3,2]" },
      .attrs = &(const struct repeat_attrs){ { 1 }, { 2 }, { 0 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[2,3,2]" }, .attrs = &(const struct repeat_attrs){ { 1 }, { 2 }, { 1 } } },
    { .in = { "[2,3]" }, .attrs = &(const struct repeat_attrs){ { 1 }, { 0 }, { 0 } } },
    { .in = { "[0,3]" }, .attrs = &(const struct repeat_attrs){ { 0 }, { 2 }, { 1 } } },
    SAMPLE_END
};
OP(repeat, .doc = "repeats an axis as a block, or each of its elements", .min_in = 1, .max_in = 1,
   .n_out = 1, .flags = RAW, .infer = repeat_infer, .ref = repeat_ref, .vjp = repeat_vjp,
   .saves = { LIKE(0) }, .samples = repeat_samples, WITH_ATTRS(repeat));

static aril_status repeat_grad_infer(aril__call *c)
{
    const struct repeat_attrs *a = c->attrs;
    const aril_tensor *g = c->in[0], *x = c->in[1];
    aril__meta *o = &c->out[0];
    bool fits = g->ndim == x->ndim && a->axis[0] < x->ndim;
    for (int d = 0; d < x->ndim && fits; d++)
        fits = aril__size_fits(g->dim[d], d == a->axis[0] ? repeated(x, a) : x->dim[d]);
    if (!fits) {
        char p[ARIL__SHAPE_TEXT], q[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_SHAPE, "repeat_grad: %s was not repeated from %s",
                          aril__text(p, g), aril__text(q, x));
    }
    o->dtype = (aril_dtype)g->dtype;
    o->ndim = x->ndim;
    memcpy(o->dim, x->dim, (size_t)o->ndim * sizeof *o->dim);
    return ARIL_OK;
}

static aril_status repeat_grad_ref(aril__run *r)
{
    const struct repeat_attrs *a = r->attrs;
    int64_t n = r->out[0]->dim[a->axis[0]];
    aril_tensor from = aril__repeat_blocks(r->in[0], a, n, a->times[0]);
    aril_tensor to = aril__repeat_blocks(r->out[0], a, n, 1);
    aril__reduce_sum_to(&to, &from);
    return ARIL_OK;
}

VJP(repeat_grad)
{
    if (c->g[0]) GRAD(0, aril__op_with(c->attrs, &aril__op_repeat, c->g[0]));
}

static const aril__sample repeat_grad_samples[] = {
    { .in = { "[6,3]", "[2,3]" }, .attrs = &(const struct repeat_attrs){ { 0 }, { 3 }, { 0 } } },
    { .in = { "[2,6,2]", "[2,3,2]" },
      .attrs = &(const struct repeat_attrs){ { 1 }, { 2 }, { 1 } } },
    { .in = { "[2,0]", "[2,3]" }, .attrs = &(const struct repeat_attrs){ { 1 }, { 0 }, { 0 } } },
    SAMPLE_END
};
OP(repeat_grad, .doc = "gradient of repeat: the sum over the repetitions", .min_in = 2, .max_in = 2,
   .n_out = 1, .shape_only = IN(1), .types = DT_FLOAT, .flags = GRADIENT,
   .infer = repeat_grad_infer, .ref = repeat_grad_ref, .vjp = repeat_grad_vjp,
   .samples = repeat_grad_samples, WITH_ATTRS(repeat));

/* ---- public ---- */

/* Poison if the list is empty or contains NULL or poison; NULL if it is valid. */
static aril_tensor *refuse_list(const char *what, aril_list l)
{
    if (l.n <= 0 || !l.at) {
        aril__fail(ARIL_ERR_ARG, "%s: no tensors", what);
        return aril__poison();
    }
    for (int i = 0; i < l.n; i++) {
        if (!l.at[i]) return aril__null_tensor(what);
        if (aril__is_poison(l.at[i])) return aril__pass_on(l.at[i]);
    }
    return NULL;
}

enum { FEW = 16 };

/* Room for n tensors: `few`, or allocated memory that the caller frees. */
static aril_tensor **list_of(const char *what, int n, aril_tensor **few)
{
    if (n <= FEW) return few;
    aril_tensor **p = aril__malloc((size_t)n * sizeof(aril_tensor *));
    if (!p) aril__fail(ARIL_ERR_MEMORY, "%s: out of memory for %d tensors", what, n);
    return p;
}

/* t, moved beside the tensors of the list if it is a host number: with more dimensions, it is none
 * and would not join tensors of any device. */
static aril_tensor *beside(aril_list l, aril_tensor *t)
{
    if (!aril__is_number(t)) return t;
    for (int i = 0; i < l.n; i++)
        if (!aril__is_number(l.at[i])) return aril_to(t, aril_device_of(l.at[i]));
    return t;
}

aril_tensor *aril_cat(aril_list tensors, int axis)
{
    aril_tensor *bad = refuse_list("cat", tensors), *few[FEW];
    if (bad) return bad;
    int at = aril__axis("cat", axis, tensors.at[0]->ndim);
    aril_tensor **in = at < 0 ? NULL : list_of("cat", tensors.n, few);
    if (!in) return aril__poison();
    ARIL_SCOPE;
    aril_dtype type = aril__result_type(tensors.n, tensors.at);
    for (int i = 0; i < tensors.n; i++) in[i] = aril_cast(tensors.at[i], type);
    struct cat_attrs a = { { at } };
    aril_tensor *out = aril__apply1(&aril__op_cat, tensors.n, in, &a);
    if (in != few) free(in);
    return aril_escape(out);
}

aril_tensor *aril_stack(aril_list tensors, int axis)
{
    aril_tensor *bad = refuse_list("stack", tensors), *few[FEW];
    if (bad) return bad;
    const aril_tensor *first = tensors.at[0];
    for (int i = 1; i < tensors.n; i++) {
        const aril_tensor *t = tensors.at[i];
        if (t->numel >= 0 && first->numel >= 0 &&
            !aril__same_dims(t->ndim, t->dim, first->ndim, first->dim)) {
            char p[ARIL__SHAPE_TEXT], q[ARIL__SHAPE_TEXT];
            aril__fail(ARIL_ERR_SHAPE, "stack: shapes %s and %s (tensor %d) differ",
                       aril__text(p, first), aril__text(q, t), i);
            return aril__poison();
        }
    }
    int at = aril__axis("stack", axis, first->ndim + 1);
    aril_tensor **in = at < 0 ? NULL : list_of("stack", tensors.n, few);
    if (!in) return aril__poison();
    ARIL_SCOPE;
    for (int i = 0; i < tensors.n; i++) in[i] = aril_unsqueeze(beside(tensors, tensors.at[i]), at);
    aril_tensor *out = aril_cat((aril_list){ tensors.n, in }, at);
    if (in != few) free(in);
    return aril_escape(out);
}

/* Concatenates the tensors after expanding each to at least n dimensions, for hstack and vstack. */
static aril_tensor *join_at_least(const char *what, aril_list tensors, int n)
{
    aril_tensor *bad = refuse_list(what, tensors), *few[FEW];
    aril_tensor **in = bad ? NULL : list_of(what, tensors.n, few);
    if (!in) return bad ? bad : aril__poison();
    ARIL_SCOPE;
    for (int i = 0; i < tensors.n; i++) {
        in[i] = beside(tensors, tensors.at[i]);
        while (in[i]->ndim < n && !aril__is_poison(in[i])) in[i] = aril_unsqueeze(in[i], 0);
    }
    int axis = n == 1 && in[0]->ndim > 1 ? 1 : 0;
    aril_tensor *out = aril_cat((aril_list){ tensors.n, in }, axis);
    if (in != few) free(in);
    return aril_escape(out);
}

aril_tensor *aril_hstack(aril_list tensors)
{
    return join_at_least("hstack", tensors, 1);
}

aril_tensor *aril_vstack(aril_list tensors)
{
    return join_at_least("vstack", tensors, 2);
}

/* A matrix as it is; a vector as a row; a number as [1,1]. */
static aril_tensor *as_matrix(aril_tensor *x)
{
    while (x->ndim < 2 && !aril__is_poison(x)) x = aril_unsqueeze(x, 0);
    return x;
}

aril_tensor *aril_block_diag(aril_list tensors)
{
    aril_tensor *bad = refuse_list("block_diag", tensors), *few[FEW];
    int64_t columns = 0, before = 0;
    for (int i = 0; i < tensors.n && !bad; i++) {
        if (tensors.at[i]->ndim > 2) {
            aril__fail(ARIL_ERR_SHAPE, "block_diag: tensor %d has %d dimensions, at most 2", i,
                       tensors.at[i]->ndim);
            bad = aril__poison();
        } else {
            columns += tensors.at[i]->ndim ? tensors.at[i]->dim[tensors.at[i]->ndim - 1] : 1;
        }
    }
    aril_tensor **in = bad ? NULL : list_of("block_diag", tensors.n, few);
    if (!in) return bad ? bad : aril__poison();
    ARIL_SCOPE;
    for (int i = 0; i < tensors.n; i++) {
        aril_tensor *block = as_matrix(beside(tensors, tensors.at[i]));
        int64_t own = aril_size(block, 1);
        in[i] = aril_pad(block, ARIL_PADS(before, columns - before - own), (aril_pad_opts){ 0 });
        before += own;
    }
    aril_tensor *out = aril_cat((aril_list){ tensors.n, in }, 0);
    if (in != few) free(in);
    return aril_escape(out);
}

static aril_tensor *repeat(aril_tensor *x, int axis, int64_t times, bool each)
{
    struct repeat_attrs a = { { axis }, { times }, { each } };
    return times == 1 ? x : aril__op_with(&a, &aril__op_repeat, x);
}

/* x repeated along its last dimensions; prepends axes if `times` has more. */
static aril_tensor *repeat_all(const char *what, aril_tensor *x, aril_shape times)
{
    if (!x) return aril__null_tensor(what);
    if (aril__is_poison(x)) return aril__pass_on(x);
    if (aril__check_shape(what, times, false) < 0) return aril__poison();
    ARIL_SCOPE;
    while (x->ndim < times.ndim && !aril__is_poison(x)) x = aril_unsqueeze(x, 0);
    int lead = x->ndim - times.ndim;
    bool copied = false;
    for (int d = times.ndim - 1; d >= 0; d--) /* without elements first, */
        if (times.dim[d] == 0) x = repeat(x, d + lead, 0, false);
    for (int d = times.ndim - 1; d >= 0; d--) { /* then small copies */
        copied |= times.dim[d] != 1;
        if (times.dim[d] != 0) x = repeat(x, d + lead, times.dim[d], false);
    }
    return aril_escape(copied ? x : aril_copy(x));
}

aril_tensor *aril_repeat(aril_tensor *x, aril_shape times)
{
    if (x && !aril__is_poison(x) && times.ndim < x->ndim) {
        aril__fail(ARIL_ERR_SHAPE, "repeat: got %d counts for %d dimensions; aril_tile takes fewer",
                   times.ndim, x->ndim);
        return aril__poison();
    }
    return repeat_all("repeat", x, times);
}

aril_tensor *aril_tile(aril_tensor *x, aril_shape times)
{
    return repeat_all("tile", x, times);
}

aril_tensor *aril_repeat_interleave(aril_tensor *x, int64_t times, int axis)
{
    if (!x) return aril__null_tensor("repeat_interleave");
    if (aril__is_poison(x)) return aril__pass_on(x);
    int at = aril__axis("repeat_interleave", axis, x->ndim);
    bool wrong = times < 0 && !aril__size_is_named(times);
    if (at >= 0 && wrong)
        aril__fail(ARIL_ERR_ARG,
                   "repeat_interleave: the number of repeats must not be negative, got %lld",
                   (long long)times);
    if (at < 0 || wrong) return aril__poison();
    if (x->ndim == 0) x = aril_unsqueeze(x, 0);
    return times == 1 ? aril_copy(x) : repeat(x, at, times, true);
}

/* The sum of zeros of all shapes, of which only the shape is used. */
static aril_tensor *common_shape(int n, aril_tensor *const *t)
{
    aril_tensor *all = aril_zeros_like(t[0]);
    for (int i = 1; i < n; i++) all = aril_add(all, aril_zeros_like(t[i]));
    return all;
}

aril_status aril_meshgrid(aril_list tensors, bool xy, aril_tensor **out)
{
    aril_tensor *bad = refuse_list("meshgrid", tensors), *line[ARIL_MAX_DIMS];
    int n = tensors.n;
    if (!bad && n > ARIL_MAX_DIMS) {
        aril__fail(ARIL_ERR_SHAPE, "meshgrid: got %d tensors, expected at most %d", n,
                   ARIL_MAX_DIMS);
        bad = aril__poison();
    }
    aril_shape to = { .ndim = n };
    bool known = true;
    ARIL_SCOPE;
    for (int i = 0; i < n && !bad; i++) {
        /* with xy the first two are swapped: the second varies along axis 0 */
        int at = xy && n > 1 && i < 2 ? 1 - i : i;
        aril_tensor *t = tensors.at[i];
        if (t->ndim > 1) {
            char text[ARIL__SHAPE_TEXT];
            aril__fail(ARIL_ERR_SHAPE, "meshgrid: tensor %d has shape %s, expected one dimension",
                       i, aril__text(text, t));
            bad = aril__poison();
            break;
        }
        t = t->ndim ? t : aril_unsqueeze(t, 0);
        to.dim[at] = t->dim[0];
        known &= t->dim[0] >= 0;
        for (int d = 0; d < n; d++)
            if (d != at) t = aril_unsqueeze(t, d);
        line[i] = t;
    }
    aril_tensor *like = bad || known ? NULL : common_shape(n, line);
    if (!out || n < 1) return bad ? aril_tensor_status(bad) : ARIL_OK;
    for (int i = 0; i < n; i++)
        out[i] = bad     ? aril__poison_like(bad)
                 : known ? aril_expand(line[i], to)
                         : aril__expand_like(line[i], like);
    aril__fail_together(n, out);
    for (int i = 0; i < n; i++) aril_escape(out[i]);
    return aril_tensor_status(out[0]);
}

aril_tensor *aril_cartesian_prod(aril_list tensors)
{
    aril_tensor *bad = refuse_list("cartesian_prod", tensors), *grid[ARIL_MAX_DIMS];
    for (int i = 0; i < tensors.n && !bad; i++) {
        if (tensors.at[i]->ndim == 1 && tensors.at[i]->dtype == tensors.at[0]->dtype) continue;
        char text[ARIL__SHAPE_TEXT];
        aril__fail(ARIL_ERR_SHAPE, "cartesian_prod: needs vectors of one dtype, got %s %s",
                   aril__dtypes[tensors.at[i]->dtype].name, aril__text(text, tensors.at[i]));
        bad = aril__poison();
    }
    if (bad) return bad;
    if (tensors.n == 1) return aril_copy(tensors.at[0]);
    ARIL_SCOPE;
    if (aril_meshgrid(tensors, false, grid) < 0) return aril_escape(aril__poison());
    for (int i = 0; i < tensors.n; i++) grid[i] = aril_reshape(grid[i], ARIL_SHAPE(-1));
    return aril_escape(aril_stack((aril_list){ tensors.n, grid }, 1));
}
