#include "ops/elementwise/fused.h"

#include "aril/create.h"
#include "aril/reduce.h"
#include "aril/view.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/dropout.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/table/apply.h"
#include "ops/table/sample.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- recipes ---- */

enum { BUCKETS = 256 };
static struct {
    pthread_mutex_t lock;
    aril__recipe *bucket[BUCKETS];
    uint64_t last_id;
} shared = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* What a recipe is equal by: everything before its id. */
static const size_t content = offsetof(aril__recipe, id);

static uint64_t hash_of(const aril__recipe *r)
{
    uint64_t h = 0, word;
    for (size_t at = 0; at + sizeof word <= content; at += sizeof word) {
        memcpy(&word, (const char *)r + at, sizeof word);
        h = (h ^ word) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    return h;
}

static bool is_operand(const aril__recipe *r, int operand, int step)
{
    int i = ARIL_FUSED_INDEX(operand);
    if (operand == ARIL_FUSED_NONE) return true;
    switch (ARIL_FUSED_KIND(operand)) {
    case ARIL_FUSED_STEP(0): return i < step;
    case ARIL_FUSED_INPUT(0): return i < r->n_in;
    case ARIL_FUSED_CONSTANT(0): return i < r->n_constants;
    default: return false;
    }
}

/* How a step reduces rows. */
static aril_fused_reduce reduce_of(const aril__op *op)
{
    return op == &aril__op_sum    ? ARIL_FUSED_SUM
           : op == &aril__op_mean ? ARIL_FUSED_MEAN
           : op == &aril__op_amax ? ARIL_FUSED_MAX
                                  : ARIL_FUSED_EACH;
}

static bool draws(const aril__op *op)
{
    return op == &aril__op_dropout;
}

static bool is_step_op(const aril__op *op)
{
    return op && (op->formula || op == &aril__op_cast || reduce_of(op) || draws(op));
}

/* What is wrong with a recipe; NULL: nothing. */
static const char *fault_of(const aril__recipe *r)
{
    if (r->n_in < 1 || r->n_in > ARIL_FUSED_INPUTS || r->n_constants > ARIL_FUSED_CONSTANTS ||
        r->n_steps < 1 || r->n_steps > ARIL_FUSED_STEPS || r->n_out < 1 ||
        r->n_out > ARIL_FUSED_OUTPUTS)
        return "has too many parts, or too few";
    for (int s = 0; s < r->n_steps; s++) {
        const aril__recipe_step *step = &r->step[s];
        bool cast = step->op == &aril__op_cast;
        if (!is_step_op(step->op)) return "has a step that cannot be fused";
        if (cast && (step->dtype >= ARIL__DTYPE_COUNT || !aril__dtypes[step->dtype].computes))
            return "casts to a storage-only dtype";
        if (step->n_in < step->op->min_in || step->n_in > step->op->max_in)
            return "has a step with a wrong number of operands";
        for (int k = 0; k < step->n_in; k++)
            if (!is_operand(r, step->in[k], s) ||
                (step->in[k] == ARIL_FUSED_NONE && !(step->op->optional >> k & 1)))
                return "has a step with a wrong operand";
        if (draws(step->op) && ARIL_FUSED_KIND(step->in[0]) != ARIL_FUSED_INPUT(0))
            return "draws without a key";
    }
    for (int k = 0; k < r->n_out; k++) {
        const aril_fused_output *o = &r->out[k];
        if (o->step >= r->n_steps || o->reduce > ARIL_FUSED_EACH_ROW || o->dropped & ~o->axes ||
            (o->reduce == ARIL_FUSED_EACH) != (o->axes == 0))
            return "has a wrong output";
    }
    return NULL;
}

static aril__recipe *look_up(const aril__recipe *r, uint64_t hash)
{
    aril__recipe *at = shared.bucket[hash % BUCKETS];
    while (at && (at->hash != hash || memcmp(at, r, content) != 0)) at = at->next;
    return at;
}

aril__recipe *aril__recipe_share(const aril__recipe *r)
{
    const char *fault = fault_of(r);
    if (fault) {
        aril__fail(ARIL_ERR_ARG, "fused: the recipe %s", fault);
        return NULL;
    }
    uint64_t hash = hash_of(r);
    pthread_mutex_lock(&shared.lock);
    aril__recipe *at = look_up(r, hash);
    if (at) {
        atomic_fetch_add_explicit(&at->refs, 1, memory_order_relaxed);
    } else if ((at = aril__malloc(sizeof *at))) {
        memcpy(at, r, content);
        at->id = ++shared.last_id;
        at->hash = hash;
        atomic_init(&at->refs, 1);
        at->next = shared.bucket[hash % BUCKETS];
        shared.bucket[hash % BUCKETS] = at;
    }
    pthread_mutex_unlock(&shared.lock);
    if (!at) aril__fail(ARIL_ERR_MEMORY, "fused: out of memory");
    return at;
}

void aril__recipe_release(aril__recipe *r)
{
    if (!r) return;
    pthread_mutex_lock(&shared.lock);
    bool last = atomic_fetch_sub_explicit(&r->refs, 1, memory_order_relaxed) == 1;
    if (last) {
        aril__recipe **at = &shared.bucket[r->hash % BUCKETS];
        while (*at != r) at = &(*at)->next;
        *at = r->next;
    }
    pthread_mutex_unlock(&shared.lock);
    if (last) free(r);
}

struct fused_attrs aril__fused_attrs(const aril__recipe *r)
{
    return (struct fused_attrs){ .recipe = { (int64_t)(intptr_t)r }, .id = { (int64_t)r->id } };
}

const aril__recipe *aril__fused_recipe(const void *attrs)
{
    if (!attrs) return NULL;
    return (const aril__recipe *)(intptr_t)((const struct fused_attrs *)attrs)->recipe[0];
}

/* ---- types and shapes ---- */

/* A header that shape rules read. */
static void set_header(aril_tensor *t, aril_dtype dtype, unsigned flags, int ndim,
                       const int64_t *dim)
{
    t->dtype = (uint8_t)dtype;
    t->flags = (uint16_t)flags;
    t->ndim = (uint8_t)ndim;
    if (ndim) memcpy(t->dim, dim, (size_t)ndim * sizeof *dim);
}

/* While the types of a recipe are found: headers of the results of steps and of constants. */
typedef struct headers {
    aril_tensor step[ARIL_FUSED_STEPS], constant[ARIL_FUSED_CONSTANTS];
} headers;

static aril_tensor *header_of(headers *h, aril_tensor *const *in, int operand)
{
    int i = ARIL_FUSED_INDEX(operand);
    if (operand == ARIL_FUSED_NONE) return NULL;
    switch (ARIL_FUSED_KIND(operand)) {
    case ARIL_FUSED_STEP(0): return &h->step[i];
    case ARIL_FUSED_INPUT(0): return in[i];
    default: return &h->constant[i];
    }
}

/* The names of the operands: of a gradient op of an op with n - 2 inputs they are g, those, y. */
static const char *names_of(const aril__op *op, int n_in)
{
    static const char *const plain[] = { "", "a", "ab", "abc" };
    static const char *const gradient[] = { "", "", "", "gay", "gaby", "gabcy" };
    if (draws(op)) return "ua";
    return op->formula && op->formula->is_grad ? gradient[n_in] : plain[n_in];
}

/* An element is kept if its draw is at least p0, which is rounded up to a possible draw. */
static const char *text_of(const aril__op *op)
{
    if (draws(op)) return "u >= p0 ? a * p1 + p2 : K(0)";
    return op->formula ? op->formula->text : reduce_of(op) ? NULL : "a";
}

static aril_status infer_step(const aril__recipe_step *s, aril_tensor *const *in, aril__call *c)
{
    c->op = s->op;
    c->n_in = s->n_in;
    c->in = in;
    if (s->op->formula) return aril__ew_infer(c);
    const aril_tensor *x = in[s->n_in - 1];
    aril__meta *o = &c->out[0];
    bool reduces = reduce_of(s->op);
    c->type = (aril_dtype)x->dtype;
    o->dtype = s->op == &aril__op_cast ? (aril_dtype)s->dtype : c->type;
    o->ndim = x->ndim;
    memcpy(o->dim, x->dim, sizeof o->dim);
    if (reduces && x->ndim) o->dim[x->ndim - 1] = 1;
    if ((reduces || draws(s->op)) && (!aril__is_float(c->type) || x->ndim == 0)) {
        char text[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_DTYPE, "fused: %s of %s %s", s->op->name,
                          aril__dtypes[c->type].name, aril__text(text, x));
    }
    if (draws(s->op) && (in[0]->dtype != ARIL_U64 || in[0]->ndim != 1 || in[0]->dim[0] != 2))
        return aril__fail(ARIL_ERR_ARG, "fused: dropout without a random key");
    return ARIL_OK;
}

/* Whether a value has one element for each row of the loop. */
static bool is_by_row(const aril_fused *f, const aril_tensor *t)
{
    bool rows = f->rows && f->ndim && f->dim[f->ndim - 1] != 1;
    return rows && (t->ndim == 0 || t->dim[t->ndim - 1] == 1);
}

/* What follows from the shape of the loop. */
static aril_status resolve_rows(const aril__recipe *r, aril_tensor *const *in, aril_fused *to,
                                const headers *h)
{
    for (int i = 0; i < r->n_in; i++) {
        to->is_key[i] = false;
        to->by_row[i] = is_by_row(to, in[i]);
    }
    for (int s = 0; s < r->n_steps; s++) {
        const aril_tensor *t = &h->step[s];
        to->step[s].by_row = is_by_row(to, t);
        if (!draws(r->step[s].op)) continue;
        to->is_key[ARIL_FUSED_INDEX(r->step[s].in[0])] = true;
        to->step[s].p[0] = (double)(float)(ceil(r->step[s].p[0] * 0x1p24) * 0x1p-24);
        if (!aril__same_dims(to->ndim, to->dim, t->ndim, t->dim))
            return aril__fail(ARIL_ERR_SHAPE, "fused: dropout of a part of the loop");
    }
    return ARIL_OK;
}

/* The types of all steps, and the shape of the loop. */
static aril_status resolve(const aril__recipe *r, aril_tensor *const *in, aril_fused *to,
                           headers *h)
{
    aril__call c = { .attrs = NULL };
    to->id = r->id;
    to->n_in = r->n_in;
    to->n_constants = r->n_constants;
    to->n_steps = r->n_steps;
    to->n_out = r->n_out;
    to->ndim = 0;
    to->rows = false;
    memcpy(to->constant, r->constant, r->n_constants * sizeof *r->constant);
    for (int k = 0; k < r->n_constants; k++)
        set_header(&h->constant[k], (aril_dtype)r->constant[k].dtype,
                   r->constant[k].weak ? ARIL__WEAK : 0, 0, NULL);
    for (int s = 0; s < r->n_steps; s++) {
        const aril__recipe_step *from = &r->step[s];
        aril_tensor *operand[ARIL_FUSED_OPERANDS];
        for (int k = 0; k < from->n_in; k++) operand[k] = header_of(h, in, from->in[k]);
        aril_status status = infer_step(from, operand, &c);
        if (status < 0) return status;
        const aril__meta *o = &c.out[0];
        set_header(&h->step[s], o->dtype, 0, o->ndim, o->dim);
        to->step[s] = (aril_fused_step){ .op = from->op->name,
                                         .formula = text_of(from->op),
                                         .names = names_of(from->op, from->n_in),
                                         .n_in = from->n_in,
                                         .type = (uint8_t)c.type,
                                         .dtype = (uint8_t)o->dtype,
                                         .reduce = (uint8_t)reduce_of(from->op),
                                         .compares = from->op->formula &&
                                                     from->op->formula->rule == ARIL__EW_CMP };
        memcpy(to->step[s].in, from->in, sizeof from->in);
        memcpy(to->step[s].p, from->p, sizeof from->p);
        to->rows = to->rows || reduce_of(from->op) || draws(from->op);
        const aril_tensor *whole = reduce_of(from->op) ? operand[0] : &h->step[s];
        if (!aril__broadcast(&to->ndim, to->dim, whole->ndim, whole->dim))
            return aril__fail(ARIL_ERR_SHAPE, "fused: shapes of steps do not broadcast together");
    }
    for (int k = 0; k < r->n_out; k++) {
        to->out[k] = r->out[k];
        to->out[k].dtype = to->step[r->out[k].step].dtype;
    }
    return resolve_rows(r, in, to, h);
}

bool aril__fused_of(const aril__run *r, aril_fused *to)
{
    const aril__recipe *recipe = aril__is_fused(r->op) ? aril__fused_recipe(r->attrs) : NULL;
    headers h;
    return recipe && recipe->n_in == r->n_in && resolve(recipe, r->in, to, &h) == ARIL_OK;
}

static aril_status output_shape(const aril_fused *f, const aril_fused_output *from,
                                const aril_tensor *step, aril__meta *o)
{
    bool by_row = from->reduce == ARIL_FUSED_EACH_ROW;
    int64_t dim[ARIL_MAX_DIMS];
    memcpy(dim, f->dim, sizeof dim);
    if (by_row && f->ndim) dim[f->ndim - 1] = 1;
    if (!aril__same_dims(f->ndim, dim, step->ndim, step->dim)) {
        char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_SHAPE, "fused: a result has shape %s, but the loop has %s",
                          aril__shape_text(a, step->ndim, step->dim),
                          aril__shape_text(b, f->ndim, f->dim));
    }
    if (by_row && (!f->ndim || from->axes != 1u << (f->ndim - 1)))
        return aril__fail(ARIL_ERR_ARG, "fused: rows are not along the last of %d dimensions",
                          f->ndim);
    if (f->ndim < 32 && from->axes >> f->ndim)
        return aril__fail(ARIL_ERR_ARG, "fused: reduces over axis %d of %d dimensions",
                          31 - __builtin_clz(from->axes), f->ndim);
    if (from->axes && !by_row && !aril__is_float((aril_dtype)from->dtype))
        return aril__fail(ARIL_ERR_DTYPE, "fused: reduces %s, which is not a floating-point dtype",
                          aril__dtypes[from->dtype].name);
    o->dtype = (aril_dtype)from->dtype;
    o->ndim = 0;
    for (int d = 0; d < f->ndim; d++)
        if (!(from->dropped >> d & 1)) o->dim[o->ndim++] = from->axes >> d & 1 ? 1 : f->dim[d];
    return ARIL_OK;
}

static aril_status fused_infer(aril__call *c)
{
    const aril__recipe *r = aril__fused_recipe(c->attrs);
    aril_fused f;
    headers h;
    if (!r) return aril__fail(ARIL_ERR_ARG, "%s: there is no recipe", c->op->name);
    if (r->n_in != c->n_in || r->n_out != c->op->n_out)
        return aril__fail(ARIL_ERR_ARG, "%s: the recipe is for %d inputs and %d results",
                          c->op->name, r->n_in, r->n_out);
    aril_status s = resolve(r, c->in, &f, &h);
    for (int k = 0; k < r->n_out && s == ARIL_OK; k++)
        s = output_shape(&f, &f.out[k], &h.step[f.out[k].step], &c->out[k]);
    if (s == ARIL_OK) c->type = (aril_dtype)f.out[0].dtype;
    return s;
}

/* ---- one step after the other ---- */

static aril_tensor *constant_tensor(const aril_fused_constant *k)
{
    aril_number v = { .f = k->f64, .i = k->i64, .is_float = aril__is_float((aril_dtype)k->dtype) };
    aril_tensor *t = aril__constant(v, (aril_dtype)k->dtype);
    if (k->weak && !(t->flags & ARIL__POISON)) t->flags |= ARIL__WEAK;
    return t;
}

static aril_tensor *run_step(const aril__recipe_step *s, aril_tensor *const *in)
{
    if (draws(s->op)) {
        struct dropout_attrs drop = { { s->p[0] }, { -1 }, { s->p[1] }, { s->p[2] }, { 0 } };
        return aril__apply1(s->op, 2, in, &drop);
    }
    if (reduce_of(s->op)) return aril__reduce(s->op, in[0], ARIL_KEEPDIM(-1));
    if (!s->op->formula) return aril_cast(in[0], (aril_dtype)s->dtype);
    struct ew_attrs attrs = { { s->p[0], s->p[1], s->p[2] } };
    return aril__apply1(s->op, s->n_in, in, &attrs);
}

static aril_tensor *reduced(aril_tensor *x, const aril_fused_output *o)
{
    aril_axes axes = { .keepdim = true }, dropped = { 0 };
    for (int d = 0; d < ARIL_MAX_DIMS; d++) {
        if (o->axes >> d & 1) axes.axis[axes.n++] = d;
        if (o->dropped >> d & 1) dropped.axis[dropped.n++] = d;
    }
    if (o->reduce == ARIL_FUSED_EACH) return x;
    aril_tensor *y = o->reduce == ARIL_FUSED_SUM        ? aril_sum(x, axes)
                     : o->reduce == ARIL_FUSED_MEAN     ? aril_mean(x, axes)
                     : o->reduce == ARIL_FUSED_EACH_ROW ? x
                                                        : aril_amax(x, axes);
    return dropped.n ? aril_squeeze(y, dropped) : y;
}

static void fused_decompose(aril__call *c, aril_tensor **out)
{
    const aril__recipe *r = aril__fused_recipe(c->attrs);
    aril_tensor *value[ARIL_FUSED_STEPS], *constant[ARIL_FUSED_CONSTANTS];
    for (int k = 0; k < r->n_constants; k++) constant[k] = constant_tensor(&r->constant[k]);
    for (int s = 0; s < r->n_steps; s++) {
        const aril__recipe_step *step = &r->step[s];
        aril_tensor *in[ARIL_FUSED_OPERANDS];
        for (int k = 0; k < step->n_in; k++) {
            int kind = ARIL_FUSED_KIND(step->in[k]), i = ARIL_FUSED_INDEX(step->in[k]);
            in[k] = step->in[k] == ARIL_FUSED_NONE   ? NULL
                    : kind == ARIL_FUSED_STEP(0)     ? value[i]
                    : kind == ARIL_FUSED_CONSTANT(0) ? constant[i]
                                                     : c->in[i];
        }
        value[s] = run_step(step, in);
    }
    for (int k = 0; k < r->n_out; k++) out[k] = reduced(value[r->out[k].step], &r->out[k]);
}

static double fused_flops(const aril__run *r)
{
    const aril__recipe *recipe = aril__fused_recipe(r->attrs);
    int64_t n = 1;
    for (int i = 0; i < r->n_in + r->n_out; i++) {
        const aril_tensor *t = i < r->n_in ? r->in[i] : r->out[i - r->n_in];
        if (t && t->numel > n) n = t->numel;
    }
    return (double)n * recipe->n_steps;
}

/* ---- rows ---- */

/* With one result: tanh(a * b + 0.5). With more: also a * b, its sum over the first axis, and where
 * that is positive. */
#define SAMPLE_STEPS                                                                            \
    .n_in = 2, .n_constants = 1, .n_steps = 4,                                                  \
    .constant = { { .dtype = ARIL_F64, .weak = true, .f64 = 0.5 } },                            \
    .step = {                                                                                   \
        { .op = &aril__op_mul, .n_in = 2, .in = { ARIL_FUSED_INPUT(0), ARIL_FUSED_INPUT(1) } }, \
        { .op = &aril__op_add, .n_in = 2, .in = { 0, ARIL_FUSED_CONSTANT(0) } },                \
        { .op = &aril__op_tanh, .n_in = 1, .in = { 1 } },                                       \
        { .op = &aril__op_gt, .n_in = 2, .in = { 2, ARIL_FUSED_CONSTANT(0) } },                 \
    }
extern const aril__op aril__op_mul, aril__op_add, aril__op_tanh, aril__op_gt;
#define SUM_OUTPUT                                                   \
    {                                                                \
        .step = 2, .reduce = ARIL_FUSED_SUM, .axes = 1, .dropped = 1 \
    }
static const aril__recipe sample_recipe[ARIL_FUSED_OUTPUTS] = {
    { SAMPLE_STEPS, .n_out = 1, .out = { { .step = 2 } } },
    { SAMPLE_STEPS, .n_out = 2, .out = { { .step = 2 }, { .step = 0 } } },
    { SAMPLE_STEPS, .n_out = 3, .out = { { .step = 2 }, { .step = 0 }, SUM_OUTPUT } },
    { SAMPLE_STEPS, .n_out = 4,
      .out = { { .step = 2 }, { .step = 0 }, SUM_OUTPUT, { .step = 3 } } },
};

ATTR_LIST(fused, FUSED_ATTRS)

#define FUSED(op_, n)                                                                         \
    static const struct fused_attrs op_##_sample = { .recipe = {                              \
                                                         (intptr_t)&sample_recipe[(n)-1] } }; \
    static const aril__sample op_##_samples[] = {                                             \
        { .in = { "[N,3]", "[3]" }, .attrs = &op_##_sample, .flags = SAMPLE_BATCH },          \
        { .in = { "[2,1,3]", "[4,1]" }, .attrs = &op_##_sample },                             \
        { .in = { "[0,2]", "[2]" }, .attrs = &op_##_sample },                                 \
        SAMPLE_END                                                                            \
    };                                                                                        \
    OP(op_, .doc = "several elementwise ops in one loop, " #n " of whose values are results", \
       .min_in = 1, .max_in = ARIL_FUSED_INPUTS, .n_out = n,                                  \
       .flags = ELEMENTWISE | STRIDED | INPLACE | KEEPS_ORDER, .infer = fused_infer,          \
       .decompose = fused_decompose, .flops = fused_flops, .samples = op_##_samples,          \
       WITH_ATTRS(fused))
FUSED(fused, 1);
FUSED(fused_2, 2);
FUSED(fused_3, 3);
FUSED(fused_4, 4);

static const aril__op *const ops[ARIL_FUSED_OUTPUTS] = { &aril__op_fused, &aril__op_fused_2,
                                                         &aril__op_fused_3, &aril__op_fused_4 };

const aril__op *aril__fused_op(int n_out)
{
    return ops[n_out - 1];
}

bool aril__is_fused(const aril__op *op)
{
    return op->infer == fused_infer;
}
