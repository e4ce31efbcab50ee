/* From an op to a kernel: rows of the device, the decomposition, the reference on the CPU. */
#include "ops/table/apply.h"
#include "ops/shape/copy.h"
#include "ops/table/flops.h"
#include "ops/table/plans.h"
#include "ops/table/rows.h"

#include "aril/create.h"
#include "core/log.h"

#include <stdlib.h>
#include <string.h>

_Thread_local int aril__force_row = -1;

/* ---- the registry ---- */

static aril__row_list rows_of[ARIL__MAX_KINDS][ARIL__MAX_OPS];
/* The dtypes for which a row produces channels-last results. */
static uint32_t last_of[ARIL__MAX_KINDS][ARIL__MAX_OPS];

static aril__samples_fn *samples_of[ARIL__MAX_KINDS][ARIL__MAX_OPS];

/* `behind`: tried only by tests, after all others. */
static aril_status add_row(int kind, const aril__op *op, const aril__row *row, bool behind)
{
    aril__row_list *l = &rows_of[kind][aril__op_number(op)];
    if (l->n_all == l->cap) {
        int cap = l->cap ? l->cap * 2 : 2;
        const aril__row **grown = aril__realloc(l->at, (size_t)cap * sizeof *grown);
        if (!grown) return aril__fail(ARIL_ERR_MEMORY, "rows: out of memory");
        l->at = grown;
        l->cap = cap;
    }
    int at = behind ? l->n_all : l->n++;
    memmove(l->at + at + 1, l->at + at, (size_t)(l->n_all++ - at) * sizeof *l->at);
    l->at[at] = row;
    if (behind) return ARIL_OK;
    l->prepares |= row->prepare != NULL;
    if (row->channels_last) last_of[kind][aril__op_number(op)] |= row->dtypes;
    return ARIL_OK;
}

static aril_status register_rows(int kind, const aril__row *rows, int n, bool behind)
{
    if (kind < 0 || kind >= ARIL__MAX_KINDS)
        return aril__fail(ARIL_ERR_DEVICE, "rows: unknown device kind %d", kind);
    for (int i = 0; i < n; i++) {
        const aril__op *op = aril__op_find(rows[i].op);
        if (!op) return aril__fail(ARIL_ERR_ARG, "rows: unknown op '%s'", rows[i].op);
        aril_status s = add_row(kind, op, &rows[i], behind);
        if (s < 0) return s;
    }
    aril__plans_outdate();
    return ARIL_OK;
}

aril_status aril__rows_register_formulas(int kind, const aril__row *row)
{
    for (int k = 0; k < aril__n_ops; k++) {
        aril_status s = aril__ops[k]->formula ? add_row(kind, aril__ops[k], row, false) : ARIL_OK;
        if (s < 0) return s;
    }
    aril__plans_outdate();
    return ARIL_OK;
}

aril_status aril__rows_register(int kind, const aril__row *rows, int n)
{
    return register_rows(kind, rows, n, false);
}

aril_status aril__rows_register_behind(int kind, const aril__row *rows, int n)
{
    return register_rows(kind, rows, n, true);
}

int aril__rows_of(int kind, const aril__op *op, int n, const aril__row **to, int *n_default)
{
    const aril__row_list *l = &rows_of[kind][aril__op_number(op)];
    for (int i = 0; i < n && i < l->n_all; i++) to[i] = l->at[i];
    if (n_default) *n_default = l->n;
    return l->n_all;
}

bool aril__rows_make_last(const aril__device *d, const aril__op *op, aril_dtype type)
{
    return last_of[d->id.kind][aril__op_number(op)] >> type & 1;
}

aril_status aril__rows_want_samples(int kind, const char *name, aril__samples_fn *fn)
{
    const aril__op *op = aril__op_find(name);
    if (!op) return aril__fail(ARIL_ERR_ARG, "rows: unknown op '%s'", name);
    samples_of[kind][aril__op_number(op)] = fn;
    return ARIL_OK;
}

bool aril__rows_make_samples(const aril__call *c)
{
    aril__samples_fn *fn = samples_of[c->device->id.kind][aril__op_number(c->op)];
    return fn && fn(c);
}

void aril__rows_shutdown(void)
{
    for (int k = 0; k < ARIL__MAX_KINDS; k++)
        for (int i = 0; i < ARIL__MAX_OPS; i++) free(rows_of[k][i].at);
    memset(rows_of, 0, sizeof rows_of);
    memset(last_of, 0, sizeof last_of);
    memset(samples_of, 0, sizeof samples_of);
}

/* ---- running ---- */

aril_status aril__run_alloc(aril__run *r, int i, aril_dtype dtype, int ndim, const int64_t *dim)
{
    aril__thread *th = aril__self();
    if (r->out[i]) aril__tensor_release(th, r->out[i]);
    r->out[i] = aril__tensor_new(th, dtype, ndim, dim, r->device);
    return r->out[i] ? ARIL_OK : ARIL_ERR_MEMORY;
}

/* The dtype through which `t` is staged if a kernel does not support it. */
static aril_dtype staged_dtype(uint32_t native, aril_dtype t)
{
    static const aril_dtype of[] = { [ARIL__C_F32] = ARIL_F32,
                                     [ARIL__C_F64] = ARIL_F64,
                                     [ARIL__C_I64] = ARIL_I64,
                                     [ARIL__C_U64] = ARIL_U64 };
    if (!native || native >> t & 1) return t;
    aril_dtype to = of[aril__dtypes[t].ctype];
    if (!(native >> to & 1) && to == ARIL_U64) to = ARIL_I64;
    if (!(native >> to & 1) && to == ARIL_I64) to = ARIL_F64;
    return to;
}

aril_status aril__copy_back(aril_tensor *to, aril_tensor *from)
{
    aril__run copy = { .op = &aril__op_cast,
                       .n_in = 1,
                       .n_out = 1,
                       .in = &from,
                       .out = &to,
                       .type = (aril_dtype)from->dtype,
                       .device = to->storage->device };
    return aril__op_cast.ref(&copy);
}

/* A kernel, and what it needs. */
typedef struct kernel {
    aril_status (*run)(aril__run *);
    size_t (*workspace)(const aril__run *); /* NULL: r->workspace is set, or not needed */
    uint32_t native;
    bool strided;
} kernel;

/* Runs a kernel whose operands are ready. */
static inline aril_status launch(const kernel *k, aril__run *r)
{
    size_t bytes = k->workspace ? k->workspace(r) : 0;
    if (aril__likely(!bytes)) return k->run(r);
    if (!(r->workspace = aril__device_alloc(r->device, bytes))) return ARIL_ERR_MEMORY;
    aril_status s = k->run(r);
    aril__device_free(r->device, r->workspace, bytes);
    return s;
}

/* Runs a kernel with inputs and outputs converted to what it supports: contiguous, of a native
 * dtype, indices as i64. Temporaries belong to a separate scope. */
static aril_status run_adapted(aril__run *r, const kernel *k)
{
    bool strided = k->strided;
    enum { FEW = 64 };
    const aril__op *op = r->op;
    aril_dtype type = op->flags & RAW ? r->type : staged_dtype(k->native, r->type);
    bool ready = type == r->type;
    for (int i = 0; i < r->n_in && ready; i++) {
        aril_tensor *t = r->in[i];
        if (!t || (i < 31 && op->shape_only >> i & 1)) continue;
        ready = (strided || aril__is_dense(t)) &&
                !(i < 31 && op->index_in >> i & 1 && (t->dtype != ARIL_I64 || !aril__is_dense(t)));
    }
    for (int i = 0; i < r->n_out && ready; i++)
        ready =
            !r->out[i] || ((strided || aril__is_dense(r->out[i])) &&
                           (i > 0 || op->flags & INPLACE || r->n_in == 0 || r->out[0] != r->in[0]));
    if (aril__likely(ready)) return launch(k, r);
    if (r->n_in > FEW && type == r->type && strided) return launch(k, r);

    ARIL_SCOPE;
    ARIL_INFERENCE;
    aril__self()->mode.anomaly = false; /* results are checked once, at the end of the op */
    aril__thread *th = aril__self();
    aril_tensor *small[FEW], **in = small, *out[ARIL__MAX_OUT];
    if (r->n_in > FEW && !(in = aril__malloc((size_t)r->n_in * sizeof *in)))
        return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", op->name);
    aril_status s = ARIL_OK;
    bool ran = false;
    for (int i = 0; i < r->n_in && s == ARIL_OK; i++) {
        aril_tensor *t = in[i] = r->in[i];
        if (!t || (i < 31 && op->shape_only >> i & 1)) continue;
        if (i < 31 && op->index_in >> i & 1)
            in[i] = t->dtype == ARIL_I64 ? t : aril_cast(t, ARIL_I64);
        else if (type != r->type && t->dtype == r->type)
            in[i] = aril_cast(t, type);
        if (!strided || (i < 31 && op->index_in >> i & 1)) in[i] = aril_contiguous(in[i]);
        s = aril_tensor_status(in[i]);
    }
    for (int i = 0; i < r->n_out && s == ARIL_OK; i++) {
        aril_tensor *t = out[i] = r->out[i];
        if (!t) continue;
        aril_dtype want = type != r->type && t->dtype == r->type ? type : (aril_dtype)t->dtype;
        bool overlaid = i == 0 && !(op->flags & INPLACE) && r->n_in && t == r->in[0];
        if (want == t->dtype && (strided || aril__is_dense(t)) && !overlaid) continue;
        if (ARIL__IS_WRITE(op->out[i]) ||
            (i == 0 && op->flags & INPLACE && r->n_in && t == r->in[0])) {
            out[i] = ARIL__IS_WRITE(op->out[i]) ? in[op->out[i] - 32] : in[0]; /* staged state */
            if (out[i] == t) continue;
        } else {
            out[i] = aril__give(th, aril__tensor_new(th, want, t->ndim, t->dim, r->device));
        }
        s = aril_tensor_status(out[i]);
    }
    if (s == ARIL_OK) {
        aril__run staged = *r;
        staged.in = in;
        staged.out = out;
        staged.type = type;
        s = launch(k, &staged);
        ran = true;
    }
    for (int i = 0; i < r->n_out && s < 0 && ran; i++)
        if (!r->out[i] && out[i]) /* allocated before the kernel failed */
            aril__tensor_release(th, out[i]);
    for (int i = 0; i < r->n_out && s == ARIL_OK; i++) {
        if (out[i] == r->out[i]) continue;
        if (r->out[i]) {
            s = aril__copy_back(r->out[i], out[i]);
        } else { /* allocated by the kernel in the staged type; the caller gets a reference */
            aril_tensor *made = aril__give(th, out[i]);
            if (type != r->type && made->dtype == type) made = aril_cast(made, r->type);
            s = aril_tensor_status(made);
            r->out[i] = s == ARIL_OK ? aril__tensor_keep(made) : NULL;
        }
    }
    for (int i = 0; i < r->n_in && s == ARIL_OK && op->writes; i++)
        if (in[i] != r->in[i] && aril__changes(op, i)) s = aril__copy_back(r->in[i], in[i]);
    if (in != small) free(in);
    return s;
}

/* A device without a kernel for the op falls back to the CPU's. */
static aril_status run_on_cpu(aril__run *r)
{
    ARIL_SCOPE;
    ARIL_INFERENCE;
    aril__self()->mode.anomaly = false; /* results are checked once, at the end of the op */
    enum { FEW = 64 };
    aril__thread *th = aril__self();
    aril_tensor *few[FEW], **in = few, *out[ARIL__MAX_OUT];
    if (r->n_in > FEW && !(in = aril__malloc((size_t)r->n_in * sizeof *in)))
        return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", r->op->name);
    aril_status s = ARIL_OK;
    for (int i = 0; i < r->n_in && s == ARIL_OK; i++) {
        in[i] = r->in[i] && r->in[i]->storage ? aril_to(r->in[i], aril_cpu()) : r->in[i];
        if (in[i]) s = aril_tensor_status(in[i]);
    }
    for (int i = 0; i < r->n_out; i++) {
        out[i] = NULL;
        if (!r->out[i] || s < 0) continue;
        if (ARIL__IS_WRITE(r->op->out[i]) || (i == 0 && r->n_in && r->out[0] == r->in[0]))
            out[i] = ARIL__IS_WRITE(r->op->out[i]) ? in[r->op->out[i] - 32] : in[0];
        else
            out[i] =
                aril__give(th, aril__tensor_new(th, (aril_dtype)r->out[i]->dtype, r->out[i]->ndim,
                                                r->out[i]->dim, aril__cpu_device));
        s = aril_tensor_status(out[i]);
    }
    bool ran = s == ARIL_OK;
    aril__run host = *r;
    host.in = in;
    host.out = out;
    host.device = aril__cpu_device;
    if (ran) s = aril__dispatch(&host);
    for (int i = 0; i < r->n_out && s < 0 && ran; i++)
        if (!r->out[i] && out[i]) /* allocated before the kernel failed */
            aril__tensor_release(th, out[i]);
    for (int i = 0; i < r->n_out && s == ARIL_OK; i++) {
        if (r->out[i]) {
            s = aril__copy_across(r->out[i], out[i]);
        } else if (out[i]) {
            aril_tensor *made = aril__give(th, out[i]);
            r->out[i] = aril__tensor_keep(aril_to(made, r->device->id));
            s = aril_tensor_status(r->out[i]);
        }
    }
    for (int i = 0; i < r->n_in && s == ARIL_OK && r->op->writes; i++)
        if (in[i] != r->in[i] && aril__changes(r->op, i)) s = aril__copy_across(r->in[i], in[i]);
    if (in != few) free(in);
    return s;
}

/* Runs the op as a decomposition into others, for which the device may have rows. */
static aril_status run_decomposed(aril__run *r)
{
    ARIL_SCOPE;
    ARIL_INFERENCE;
    aril__self()->mode.anomaly = false; /* results are checked once, at the end of the op */
    aril__call c = { .op = r->op,
                     .attrs = r->attrs,
                     .n_in = r->n_in,
                     .in = r->in,
                     .device = r->device,
                     .type = r->type };
    aril_tensor *out[ARIL__MAX_OUT];
    r->op->decompose(&c, out);
    for (int i = 0; i < r->n_out; i++) {
        aril_status s = aril_tensor_status(out[i]);
        if (s == ARIL_OK && r->out[i])
            s = aril__copy_across(r->out[i], out[i]);
        else if (s == ARIL_OK)
            r->out[i] = aril__tensor_keep(out[i]);
        if (s < 0) return s;
    }
    return ARIL_OK;
}

/* A result that replaces the first input, of an op that cannot do that; a row with a plan of its
 * own handles it. */
static inline bool is_overlaid(const aril__row *row, const aril__run *r)
{
    return !(r->op->flags & INPLACE) && r->n_in && r->out[0] == r->in[0] && !row->prepare;
}

/* Index inputs are converted for rows of any strides too. */
static inline aril_status run_kernel(const aril__row *row, aril__run *r)
{
    uint32_t native = row->native ? row->native : row->dtypes;
    kernel k = { row->run, row->prepare ? NULL : row->workspace, native, row->strided };
    if (row->strided && native >> r->type & 1 && !r->op->index_in && !is_overlaid(row, r))
        return launch(&k, r);
    return run_adapted(r, &k);
}

static aril_status run_row(const aril__row *row, aril__run *r, const aril__plan *plan)
{
    size_t bytes = plan->workspace;
    r->prepared = plan->prepared;
    r->workspace = NULL;
    if (bytes && !(r->workspace = aril__device_alloc(r->device, bytes))) return ARIL_ERR_MEMORY;
    aril_status s = run_kernel(row, r);
    if (bytes) aril__device_free(r->device, r->workspace, bytes);
    return s;
}

/* Logs one line per call: what runs, on which shapes, and why faster rows declined. */
static aril__cold void log_choice(const aril__run *r, const aril__row_list *rows,
                                  const aril__choice *c, const char *runs)
{
    char text[640] = "", shape[ARIL__SHAPE_TEXT];
    size_t n = 0;
    for (int i = 0; i < r->n_in; i++) {
        const aril_tensor *t = r->in[i];
        bool full = n >= sizeof text / 2; /* a long list */
        int k = snprintf(text + n, sizeof text - n, " %s",
                         full ? "..."
                         : t  ? aril__text(shape, t)
                              : "-");
        n += k > 0 ? (size_t)k : 0;
        if (full) break;
    }
    const char *before = "; declined: ";
    for (int i = 0; i < c->n_asked && n < sizeof text - 1; i++) {
        if (!c->declined[i]) continue;
        int k = snprintf(text + n, sizeof text - n, "%s%s (%s)", before, rows->at[i]->name,
                         c->declined[i]);
        n += k > 0 ? (size_t)k : 0;
        before = ", ";
    }
    size_t shapes = strcspn(text, ";");
    aril__log(ARIL__LOG_DISPATCH, "%s %s%.*s: %s%s", r->op->name, aril__dtypes[r->type].name,
              (int)shapes, text, runs, text + shapes);
}

static aril_status run_choice(aril__run *r, const aril__row_list *rows, const aril__choice *c)
{
    const aril__op *op = r->op;
    bool elsewhere = r->device != aril__cpu_device && !(op->flags & ANYWHERE);
    if (aril__unlikely(aril__log_on(ARIL__LOG_DISPATCH | ARIL__LOG_PROFILE | ARIL__LOG_METER))) {
        const char *runs = c->row          ? c->row->name
                           : !elsewhere    ? "the reference"
                           : op->decompose ? "decomposed"
                                           : "falls back to the CPU";
        if (aril__log_on(ARIL__LOG_DISPATCH)) log_choice(r, rows, c, runs);
        if (aril__log_on(ARIL__LOG_PROFILE))
            aril__profile_note(r, c->row ? runs : !elsewhere ? "reference" : NULL);
        if (aril__log_on(ARIL__LOG_METER) && (c->row || !elsewhere)) aril__meter_note(r);
    }
    if (c->row) return run_row(c->row, r, &c->plan);
    if (elsewhere) return op->decompose ? run_decomposed(r) : run_on_cpu(r);
    if (!op->ref)
        return aril__fail(ARIL_ERR_UNSUPPORTED, "%s: no kernel for %s", op->name,
                          aril__dtypes[r->type].name);
    return run_adapted(r, &(kernel){ op->ref, op->workspace, op->native, op->flags & STRIDED });
}

/* If all rows depend only on the dtype, no plan is needed. */
static aril_status dispatch_plainly(aril__run *r, const aril__row_list *rows)
{
    enum { FEW = 16 };
    const char *declined[FEW];
    aril__choice c = { .declined = declined };
    int left = aril__force_row;
    for (int i = 0; i < rows->n && i < FEW && !c.row; i++) {
        bool takes = rows->at[i]->dtypes >> r->type & 1;
        declined[i] = takes ? NULL : "dtype";
        c.n_asked = i + 1;
        if (takes && left-- <= 0) c.row = rows->at[i];
    }
    return run_choice(r, rows, &c);
}

aril_status aril__dispatch(aril__run *r)
{
    const aril__row_list *rows = &rows_of[r->device->id.kind][aril__op_number(r->op)];
    int i = 0;
    while (i < rows->n && !(rows->at[i]->dtypes >> r->type & 1)) i++;
    const aril__row *first = i < rows->n ? rows->at[i] : NULL;
    if (aril__likely(first && !first->prepare && aril__force_row < 0 &&
                     !aril__log_on(ARIL__LOG_DISPATCH | ARIL__LOG_PROFILE | ARIL__LOG_METER))) {
        r->prepared = r->workspace = NULL;
        return run_kernel(first, r);
    }
    if (!rows->prepares && (aril__force_row < 0 || rows->n_all == rows->n))
        return dispatch_plainly(r, rows);
    aril__thread *th = aril__self();
    aril__taken taken = aril__choice_take(th, r, rows);
    if (aril__unlikely(!taken.choice))
        return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory while choosing a kernel",
                          r->op->name);
    aril_status s = run_choice(r, rows, taken.choice);
    aril__choice_give_back(th, taken);
    return s;
}
