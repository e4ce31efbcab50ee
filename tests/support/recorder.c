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

struct recorder {
    aril__tracer tracer; /* first: the tracer is the recorder */
    entry *entries;
    int n, cap;
    intptr_t values; /* numbers assigned so far */
    intptr_t inputs[16];
    int n_inputs;
    aril_tensor *kept[4096]; /* real tensors that the record refers to */
    int n_kept;
};

static operand operand_of(recorder *r, aril_tensor *t)
{
    if (!t) return (operand){ 0 };
    if (t->flags & ARIL__SYMBOLIC) return (operand){ .value = (intptr_t)t->u.symbol };
    if (r->n_kept < 4096) r->kept[r->n_kept++] = aril_keep(t);
    return (operand){ .tensor = t };
}

static aril_tensor *symbol(recorder *r, const aril__meta *m)
{
    return aril__symbolic_new(aril__self(), m->dtype, m->ndim, m->dim, (void *)++r->values);
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
    for (int i = 0; i < c->op->n_out; i++) {
        int kind = c->op->out[i];
        if ((i == 0 && dest) || ARIL__IS_WRITE(kind)) {
            aril_tensor *to = i == 0 && dest ? dest : c->in[kind - 32];
            out[i] = to ? aril__tensor_keep(to) : NULL;
        } else {
            out[i] = symbol(r, &c->out[i]);
            e->out[i] = r->values;
        }
    }
    return ARIL_OK;
}

recorder *recorder_new(void)
{
    recorder *r = calloc(1, sizeof *r);
    r->tracer.apply = record;
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
    free(r);
}

void recorder_begin(recorder *r)
{
    aril__self()->tracer = &r->tracer;
}

void recorder_end(recorder *r)
{
    (void)r;
    aril__self()->tracer = NULL;
}

aril_tensor *recorder_input(recorder *r, aril_shape shape, aril_dtype dtype)
{
    aril__thread *th = aril__self();
    aril_tensor *t = aril__symbolic_new(th, dtype, shape.ndim, shape.dim, (void *)++r->values);
    r->inputs[r->n_inputs++] = r->values;
    return aril__give(th, t);
}

static aril_tensor *real(aril_tensor *const *values, operand o)
{
    return o.value ? values[o.value] : o.tensor;
}

aril_tensor *recorder_play(recorder *r, aril_list inputs, aril_tensor *of)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_tensor **values = calloc((size_t)r->values + 1, sizeof *values);
    for (int i = 0; i < r->n_inputs; i++) values[r->inputs[i]] = inputs.at[i];
    for (int k = 0; k < r->n; k++) {
        const entry *e = &r->entries[k];
        aril_tensor *in[64], *out[ARIL__MAX_OUT];
        for (int i = 0; i < e->n_in; i++) in[i] = real(values, e->in[i]);
        aril_tensor *dest = real(values, e->dest);
        if (dest) {
            out[0] = aril__apply_to(dest, e->op, e->n_in, in, e->attrs);
        } else if (ARIL__IS_VIEW(e->op->out[0]) && e->op == &aril__op_reshape) {
            in[0] = aril_contiguous(in[0]);
            aril__apply(e->op, e->n_in, in, e->attrs, out);
        } else {
            aril__apply(e->op, e->n_in, in, e->attrs, out);
        }
        for (int i = 0; i < e->op->n_out; i++)
            if (e->out[i]) values[e->out[i]] = out[i];
    }
    aril_tensor *result = values[(intptr_t)of->u.symbol];
    free(values);
    return aril_escape(result);
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
