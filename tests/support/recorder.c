#include "support/recorder.h"

#include "aril/ops.h"
#include "ops/shape/view.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_VALUES = 100000 };

/* An operand: a recorded value, or an existing real tensor (state, constants). */
typedef struct operand {
    intptr_t value; /* > 0: its number */
    aril_tensor *tensor;
} operand;

typedef struct entry {
    const aril__op *op;
    void *attrs;
    int n_in;
    operand *in;
    operand dest;                /* for in-place ops */
    intptr_t out[ARIL__MAX_OUT]; /* 0: a tensor that was written in place */
} entry;

/* The sizes of a recorded value, some unknown. */
typedef struct sizes {
    int ndim;
    int64_t dim[ARIL_MAX_DIMS];
} sizes;

/* Symbols of recorded values: they outlive the recorder where tensors do. */
typedef struct symbol {
    aril__symbol base;
    unsigned *writes; /* of a view, those of its base */
    unsigned own;
    intptr_t number;
    struct symbol *next;
} symbol;
typedef struct symbols {
    aril__symbols base;
    symbol *all;
} symbols;

struct recorder {
    aril__tracer tracer; /* first: the tracer is the recorder */
    symbols *symbols;
    entry *entries;
    int n, cap;
    intptr_t values; /* numbers assigned so far */
    sizes *shapes;   /* of each value */
    intptr_t cap_shapes;
    struct {
        int64_t unknown, size;
    } * bound; /* in a run */
    int n_bound, cap_bound;
    intptr_t inputs[16];
    int n_inputs;
    aril_tensor *kept[4096]; /* real tensors that the record refers to */
    int n_kept;
};

static void free_symbols(aril__symbols *base)
{
    symbols *s = (symbols *)base;
    for (symbol *next; s->all; s->all = next) {
        next = s->all->next;
        free(s->all);
    }
    free(s);
}

static intptr_t number_of(const aril_tensor *t)
{
    return ((const symbol *)t->u.symbol)->number;
}

static operand operand_of(recorder *r, aril_tensor *t)
{
    if (!t) return (operand){ 0 };
    if (t->flags & ARIL__SYMBOLIC) return (operand){ .value = number_of(t) };
    if (r->n_kept < 4096) r->kept[r->n_kept++] = aril_keep(t);
    return (operand){ .tensor = t };
}

/* Assigns a number to a new symbolic tensor. `of`: what it is a view of, or NULL. */
static void *number(recorder *r, const aril_tensor *of)
{
    symbol *s = malloc(sizeof *s);
    *s = (symbol){ .number = ++r->values, .next = r->symbols->all };
    s->writes = of && of->flags & ARIL__SYMBOLIC ? ((symbol *)of->u.symbol)->writes : &s->own;
    s->base = (aril__symbol){ &r->symbols->base, s->writes };
    return r->symbols->all = s;
}

static void count_write(const aril_tensor *to)
{
    if (to && to->flags & ARIL__SYMBOLIC) ++*((symbol *)to->u.symbol)->writes;
}

static aril_tensor *remember(recorder *r, aril_tensor *t)
{
    if (r->values >= r->cap_shapes) {
        r->cap_shapes = 2 * r->values + 64;
        r->shapes = realloc(r->shapes, (size_t)r->cap_shapes * sizeof *r->shapes);
    }
    sizes *s = &r->shapes[r->values];
    s->ndim = t->ndim;
    memcpy(s->dim, t->dim, sizeof s->dim);
    return t;
}

static aril_status record(aril__tracer *self, const aril__call *c, aril_tensor *dest,
                          aril_tensor **out)
{
    recorder *r = (recorder *)self;
    if (r->n == r->cap) {
        r->cap = r->cap ? r->cap * 2 : 64;
        r->entries = realloc(r->entries, (size_t)r->cap * sizeof *r->entries);
    }
    entry *e = &r->entries[r->n++];
    *e = (entry){ .op = c->op, .n_in = c->n_in, .dest = operand_of(r, dest) };
    e->in = calloc((size_t)c->n_in + 1, sizeof *e->in);
    for (int i = 0; i < c->n_in; i++) e->in[i] = operand_of(r, c->in[i]);
    if (c->attrs && c->op->attr_size) {
        e->attrs = malloc(c->op->attr_size);
        memcpy(e->attrs, c->attrs, c->op->attr_size);
    }
    for (int i = 0; i < c->n_in; i++)
        if (aril__changes(c->op, i)) count_write(c->in[i]);
    for (int i = 0; i < c->op->n_out; i++) {
        int kind = c->op->out[i];
        if ((i == 0 && dest) || ARIL__IS_WRITE(kind)) {
            aril_tensor *to = i == 0 && dest ? dest : c->in[kind - 32];
            out[i] = to ? aril__tensor_keep(to) : NULL;
            count_write(to);
        } else {
            const aril_tensor *of = ARIL__IS_VIEW(kind) ? c->in[kind - 1] : NULL;
            out[i] = remember(r, aril__symbolic_out(aril__self(), c, i, number(r, of)));
            e->out[i] = r->values;
        }
    }
    return ARIL_OK;
}

recorder *recorder_new(void)
{
    recorder *r = calloc(1, sizeof *r);
    r->tracer.apply = record;
    r->symbols = calloc(1, sizeof *r->symbols);
    r->symbols->base.free = free_symbols;
    r->symbols->base.refs = 1;
    return r;
}

void recorder_free(recorder *r)
{
    for (int i = 0; i < r->n; i++) {
        free(r->entries[i].in);
        free(r->entries[i].attrs);
    }
    for (int i = 0; i < r->n_kept; i++) aril_release(r->kept[i]);
    free(r->entries);
    free(r->shapes);
    free(r->bound);
    aril__sizes_free(&r->tracer.sizes);
    aril__symbol_release(&(aril__symbol){ .owner = &r->symbols->base });
    free(r);
}

void recorder_begin(recorder *r)
{
    aril__trace(&r->tracer);
}

void recorder_end(recorder *r)
{
    (void)r;
    aril__trace(NULL);
}

int64_t recorder_size(recorder *r, const char *name)
{
    return aril__size_new(&r->tracer.sizes, name);
}

static aril_tensor *input(recorder *r, aril_tensor *t)
{
    r->inputs[r->n_inputs++] = r->values;
    return aril__give(aril__self(), remember(r, t));
}

/* The shape with new unknown sizes for -1. */
static aril_shape named(recorder *r, aril_shape shape)
{
    for (int d = 0; d < shape.ndim; d++)
        if (shape.dim[d] == -1) shape.dim[d] = recorder_size(r, NULL);
    return shape;
}

aril_tensor *recorder_input(recorder *r, aril_shape shape, aril_dtype dtype)
{
    shape = named(r, shape);
    return input(r,
                 aril__symbolic_new(aril__self(), dtype, shape.ndim, shape.dim, number(r, NULL)));
}

aril_tensor *recorder_input_like(recorder *r, aril_shape shape, aril_tensor *like)
{
    shape = named(r, shape);
    return input(r, aril__symbolic_like(aril__self(), like, shape.dim, number(r, NULL)));
}

/* ---- replay ---- */

/* Notes what the unknown sizes of a value turned out to be; false if one has two values. */
static bool bind(recorder *r, intptr_t value, const aril_tensor *t)
{
    const sizes *s = &r->shapes[value];
    for (int d = 0; d < s->ndim; d++) {
        int k = 0;
        if (s->dim[d] >= 0) {
            if (s->dim[d] != t->dim[d]) return false;
            continue;
        }
        while (k < r->n_bound && r->bound[k].unknown != s->dim[d]) k++;
        if (k < r->n_bound && r->bound[k].size != t->dim[d]) return false;
        if (k < r->n_bound) continue;
        if (r->n_bound == r->cap_bound) {
            r->cap_bound = 2 * r->cap_bound + 64;
            r->bound = realloc(r->bound, (size_t)r->cap_bound * sizeof *r->bound);
        }
        r->bound[r->n_bound].unknown = s->dim[d];
        r->bound[r->n_bound++].size = t->dim[d];
    }
    return t->ndim == s->ndim;
}

static int64_t size_of(void *ctx, int64_t unknown)
{
    const recorder *r = ctx;
    for (int k = 0; k < r->n_bound; k++)
        if (r->bound[k].unknown == unknown) return r->bound[k].size;
    return unknown;
}

static bool is_reshape(const aril__op *op)
{
    return strcmp(op->name, "reshape") == 0 || strcmp(op->name, "reshape_like") == 0 ||
           strcmp(op->name, "flatten") == 0;
}

static aril_tensor *real(aril_tensor *const *values, operand o)
{
    return o.value ? values[o.value] : o.tensor;
}

aril_status recorder_values(recorder *r, aril_list inputs, aril_list of, aril_tensor **out)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_tensor **values = calloc((size_t)r->values + 1, sizeof *values);
    bool fits = true;
    r->n_bound = 0;
    for (int i = 0; i < r->n_inputs; i++) {
        values[r->inputs[i]] = inputs.at[i];
        fits = fits && bind(r, r->inputs[i], inputs.at[i]);
    }
    for (int k = 0; k < r->n && fits; k++) {
        const entry *e = &r->entries[k];
        aril_tensor *in[64], *results[ARIL__MAX_OUT];
        int64_t attrs[256]; /* with sizes in place of unknown ones */
        if (e->attrs) memcpy(attrs, e->attrs, e->op->attr_size);
        aril__symbolic_attrs(&r->tracer.sizes, e->op, e->attrs ? attrs : NULL, size_of, r);
        for (int i = 0; i < e->n_in; i++) in[i] = real(values, e->in[i]);
        aril_tensor *dest = real(values, e->dest);
        if (is_reshape(e->op)) in[0] = aril_contiguous(in[0]);
        if (dest)
            results[0] = aril__apply_to(dest, e->op, e->n_in, in, e->attrs ? attrs : NULL);
        else
            aril__apply(e->op, e->n_in, in, e->attrs ? attrs : NULL, results);
        for (int i = 0; i < e->op->n_out; i++) {
            if (!e->out[i]) continue;
            values[e->out[i]] = results[i];
            if (aril_tensor_status(results[i]) < 0 || bind(r, e->out[i], results[i])) continue;
            fits = false;
            aril__fail(ARIL_ERR_INTERNAL, "trace: %s, op %d, has another shape than recorded",
                       e->op->name, k);
        }
    }
    for (int i = 0; i < of.n; i++)
        out[i] = aril_escape(fits ? values[number_of(of.at[i])] : aril__poison());
    free(values);
    return fits && aril_ok() ? ARIL_OK : ARIL_ERR_INTERNAL;
}

aril_tensor *recorder_play(recorder *r, aril_list inputs, aril_tensor *of)
{
    aril_tensor *out[1];
    recorder_values(r, inputs, (aril_list){ 1, &of }, out);
    return out[0];
}

int recorder_numbers(const recorder *r, unsigned kind)
{
    int n = 0;
    for (int i = 0; i < r->n_kept; i++) {
        bool seen = false;
        for (int k = 0; k < i && !seen; k++) seen = r->kept[k] == r->kept[i];
        unsigned flags = r->kept[i]->flags;
        n += !seen && (kind ? (flags & kind) != 0 : !(flags & (ARIL__NUMBER | ARIL__SHAPE_ONLY)));
    }
    return n;
}

int recorder_count(const recorder *r)
{
    return r->n;
}

const char *recorder_name(const recorder *r, int i)
{
    return r->entries[i].op->name;
}
