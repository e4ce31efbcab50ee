/* From an op to a kernel: rows of the device, the decomposition, the reference on the CPU. */
#include "ops/table/apply.h"
#include "ops/elementwise/formula.h"
#include "ops/shape/copy.h"
#include "ops/table/flops.h"
#include "ops/table/planned.h"
#include "ops/table/plans.h"
#include "ops/table/rows.h"
#include "ops/table/stage.h"

#include "aril/create.h"
#include "core/foreign.h"
#include "core/log.h"

#include <fnmatch.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

_Thread_local int aril__force_row = -1;
_Thread_local const aril__workspace *aril__workspace_ahead;

/* ---- the registry ---- */

/* Read without a lock. */
static _Atomic(aril__row_list *) rows_of[ARIL__MAX_KINDS][ARIL__MAX_OPS];

/* Of those who add rows: guards the lists that were replaced, which readers may still use. */
static pthread_mutex_t rows_lock = PTHREAD_MUTEX_INITIALIZER;
static struct replaced {
    struct replaced *next;
    aril__row_list *list;
} * replaced;

/* ---- reserves ---- */

/* The names of formats by number, which other threads may read while one is added. */
enum { FORMATS = 64 }; /* number 0 is none */
static _Atomic(const char *) formats[FORMATS];

/* 0: unknown. */
static int format_number(const char *name)
{
    for (int i = 1; i < FORMATS; i++) {
        const char *known = atomic_load_explicit(&formats[i], memory_order_acquire);
        if (!known) return 0;
        if (known == name || strcmp(known, name) == 0) return i;
    }
    return 0;
}

static aril_status add_format(const aril__op *op, const aril__row *row)
{
    if ((op->reserve_out || op->reserve_in) && !row->prepare)
        return aril__fail(ARIL_ERR_ARG, "rows: %s: rows of %s, which has a reserve, need `prepare`",
                          row->name, op->name);
    if (!row->reserve || format_number(row->reserve)) return ARIL_OK;
    for (int i = 1; i < FORMATS; i++) {
        const char *none = NULL;
        if (atomic_compare_exchange_strong(&formats[i], &none, row->reserve) ||
            strcmp(none, row->reserve) == 0)
            return ARIL_OK;
    }
    return aril__fail(ARIL_ERR_UNSUPPORTED, "rows: more than %d formats of reserves", FORMATS - 1);
}

int64_t aril__reserve_size(const char *format, size_t bytes)
{
    if (!format || !bytes) return 0;
    return (int64_t)((bytes + FORMATS - 1) / FORMATS * FORMATS) + format_number(format);
}

bool aril__reserve_is(const aril_tensor *t, const char *format)
{
    int number = format_number(format);
    return t && number > 0 && t->numel % FORMATS == number;
}

/* ---- rows ---- */

static const aril__row_list *rows_now(int kind, int op)
{
    static const aril__row_list none;
    const aril__row_list *l = atomic_load_explicit(&rows_of[kind][op], memory_order_acquire);
    return aril__likely(l != NULL) ? l : &none;
}

const aril__row_list *aril__rows_for(const aril__run *r)
{
    return rows_now(r->device->id.kind, aril__op_number(r->op));
}

/* The dtypes in which a row needs nothing but its operands. */
static uint32_t direct_dtypes(const aril__op *op, const aril__row *row)
{
    bool plain = row->strided && !row->prepare && !row->workspace && !op->index_in;
    return plain ? row->dtypes & (row->native ? row->native : row->dtypes) : 0;
}

/* Whether ARIL_WITHOUT_ROWS, a list of patterns such as "cudnn,onednn_*", names the row. */
static bool left_out(const char *row)
{
    const char *at = getenv("ARIL_WITHOUT_ROWS");
    char pattern[64];
    for (size_t n; at && *at; at += n + (at[n] == ',')) {
        n = strcspn(at, ",");
        snprintf(pattern, sizeof pattern, "%.*s", (int)n, at);
        if (fnmatch(pattern, row, 0) == 0) return true;
    }
    return false;
}

/* `behind`: tried only by tests, after all others. With the lock held. */
static aril_status add_row(int kind, const aril__op *op, const aril__row *row, bool behind)
{
    if (left_out(row->name)) return ARIL_OK;
    aril_status s = add_format(op, row);
    if (s < 0) return s;
    int number = aril__op_number(op);
    const aril__row_list *old = rows_now(kind, number);
    aril__row_list *l = aril__malloc(sizeof *l + (size_t)(old->n_all + 1) * sizeof *l->at);
    struct replaced *kept = old->n_all ? aril__malloc(sizeof *kept) : NULL;
    if (!l || (old->n_all && !kept)) {
        free(l);
        free(kept);
        return aril__fail(ARIL_ERR_MEMORY, "rows: out of memory");
    }
    int at = behind ? old->n_all : old->n;
    l->n = old->n + !behind;
    l->n_all = old->n_all + 1;
    l->prepares = old->prepares | (!behind && row->prepare ? row->dtypes : 0);
    memcpy(l->at, old->at, (size_t)at * sizeof *l->at);
    l->at[at] = row;
    memcpy(l->at + at + 1, old->at + at, (size_t)(old->n_all - at) * sizeof *l->at);
    l->direct = l->n ? direct_dtypes(op, l->at[0]) : 0;
    if (kept) {
        *kept = (struct replaced){ replaced, (aril__row_list *)(uintptr_t)old };
        replaced = kept;
    }
    atomic_store_explicit(&rows_of[kind][number], l, memory_order_release);
    return ARIL_OK;
}

/* `careful`: for formulas that may fail midway. */
static aril_status add_formula_rows(int kind, const aril__row *row, const aril__row *careful)
{
    aril_status s = ARIL_OK;
    for (int k = 0; k < aril__n_ops && s == ARIL_OK; k++) {
        const aril__op *op = aril__ops[k];
        if (op->formula) s = add_row(kind, op, aril__formula_may_fail(op) ? careful : row, false);
    }
    return s;
}

static aril_status add_named_row(int kind, const aril__row *row, bool behind)
{
    const aril__op *op = aril__op_find(row->op);
    if (op) return add_row(kind, op, row, behind);
    if (strcmp(row->op, ARIL_ROW_FORMULAS) == 0) return add_formula_rows(kind, row, row);
    return aril__fail(ARIL_ERR_ARG, "rows: unknown op '%s'", row->op);
}

static aril_status register_rows(int kind, const aril__row *rows, int n, bool behind)
{
    if (kind < 0 || kind >= ARIL__MAX_KINDS)
        return aril__fail(ARIL_ERR_DEVICE, "rows: unknown device kind %d", kind);
    aril_status s = ARIL_OK;
    pthread_mutex_lock(&rows_lock);
    for (int i = 0; i < n && s == ARIL_OK; i++) s = add_named_row(kind, &rows[i], behind);
    pthread_mutex_unlock(&rows_lock);
    aril__plans_outdate();
    return s;
}

aril_status aril__rows_register_formulas(int kind, const aril__row *row, const aril__row *careful)
{
    pthread_mutex_lock(&rows_lock);
    aril_status s = add_formula_rows(kind, row, careful);
    pthread_mutex_unlock(&rows_lock);
    aril__plans_outdate();
    return s;
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
    const aril__row_list *l = rows_now(kind, aril__op_number(op));
    for (int i = 0; i < n && i < l->n_all; i++) to[i] = l->at[i];
    if (n_default) *n_default = l->n;
    return l->n_all;
}

bool aril__rows_prepare(const aril__device *d, const aril__op *op, aril_dtype type)
{
    return rows_now(d->id.kind, aril__op_number(op))->prepares >> type & 1;
}

const aril__row *aril__row_direct(const aril__device *d, const aril__op *op, aril_dtype type)
{
    const aril__row_list *l = rows_now(d->id.kind, aril__op_number(op));
    return l->direct >> type & 1 ? l->at[0] : NULL;
}

void aril__rows_shutdown(void)
{
    for (int k = 0; k < ARIL__MAX_KINDS; k++)
        for (int i = 0; i < ARIL__MAX_OPS; i++) free(atomic_exchange(&rows_of[k][i], NULL));
    for (struct replaced *next; replaced; replaced = next) {
        next = replaced->next;
        free(replaced->list);
        free(replaced);
    }
    for (int i = 0; i < FORMATS; i++) atomic_store(&formats[i], NULL);
}

/* ---- running ---- */

aril_status aril__run_alloc(aril__run *r, int i, aril_dtype dtype, int ndim, const int64_t *dim)
{
    aril__thread *th = aril__self();
    if (r->out[i]) aril__tensor_release(th, r->out[i]);
    aril__allocations_allow();
    r->out[i] = aril__tensor_new(th, dtype, ndim, dim, r->device);
    aril__allocations_allow_end();
    return r->out[i] ? ARIL_OK : ARIL_ERR_MEMORY;
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

static inline aril__kernel kernel_of(const aril__row *row, const aril__plan *plan)
{
    uint32_t native = row->native ? row->native : row->dtypes;
    return (aril__kernel){ row->name, row->run, row->workspace, plan, native, row->strided };
}

/* A row of any strides that gets what it takes needs no staging. */
static inline aril_status launch_row(const aril__row *row, aril__run *r, const aril__plan *plan)
{
    aril__kernel k = kernel_of(row, plan);
    r->prepared = plan ? plan->prepared : NULL;
    r->workspace = NULL;
    bool overlaid = !(r->op->flags & INPLACE) && r->n_in && r->n_out && r->out[0] == r->in[0];
    if (row->strided && k.native >> r->type & 1 && !plan && !r->late && !r->op->index_in &&
        !overlaid)
        return aril__launch(&k, r);
    return aril__run_staged(&k, r);
}

/* The status that a row returned, which may be a plug-in's. */
static inline aril_status checked(aril_status s, const aril__row *row, const aril__run *r)
{
    return aril__likely(s == ARIL_OK) ? s : aril__foreign_error(s, r->op->name, row->name);
}

static inline aril_status run_row(const aril__row *row, aril__run *r, const aril__plan *plan)
{
    return checked(launch_row(row, r, plan), row, r);
}

aril_status aril__run_direct(const aril__row *row, aril__run *r)
{
    return checked(row->run(r), row, r);
}

/* Logs one line per call: what runs, on which shapes, and why faster rows declined. */
static aril__cold void log_choice(const aril__run *r, const aril__choice *c, const char *runs)
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
        int k = snprintf(text + n, sizeof text - n, "%s%s (%s)", before, c->rows->at[i]->name,
                         c->declined[i]);
        n += k > 0 ? (size_t)k : 0;
        before = ", ";
    }
    size_t shapes = strcspn(text, ";");
    aril__log(ARIL__LOG_DISPATCH, "%s %s%.*s: %s%s", r->op->name, aril__dtypes[r->type].name,
              (int)shapes, text, runs, text + shapes);
}

static aril__cold aril_status wrong_plan(const aril__run *r, const aril__choice *c)
{
    return aril__fail(ARIL_ERR_PLUGIN, "%s: the plan of row '%s' %s", r->op->name, c->row->name,
                      c->wrong);
}

/* Whether an op without a row runs otherwise than by its reference. */
static inline bool is_elsewhere(const aril__run *r)
{
    return r->device != aril__cpu_device && !(r->op->flags & ANYWHERE);
}

void aril__choice_note(const aril__run *r, const aril__choice *c)
{
    bool elsewhere = is_elsewhere(r);
    const char *runs = c->row             ? c->row->name
                       : !elsewhere       ? "the reference"
                       : r->op->decompose ? "decomposed"
                                          : "falls back to the CPU";
    if (aril__log_on(ARIL__LOG_DISPATCH)) log_choice(r, c, runs);
    if (aril__log_on(ARIL__LOG_PROFILE))
        aril__profile_note(r, c->row ? runs : !elsewhere ? "reference" : NULL);
    if (aril__log_on(ARIL__LOG_METER) && (c->row || !elsewhere)) aril__meter_note(r);
}

static aril__kernel reference(const aril__op *op)
{
    return (aril__kernel){ "the reference",    op->ref, op->workspace, NULL, op->native,
                           op->flags & STRIDED };
}

bool aril__choice_kernel(const aril__run *r, const aril__choice *c, aril__kernel *k)
{
    if (c->wrong || (!c->row && (is_elsewhere(r) || !r->op->ref))) return false;
    *k = c->row ? kernel_of(c->row, c->row->prepare ? &c->plan : NULL) : reference(r->op);
    return true;
}

static aril_status run_choice(aril__run *r, const aril__choice *c)
{
    const aril__op *op = r->op;
    if (aril__unlikely(c->wrong != NULL)) return wrong_plan(r, c);
    bool elsewhere = is_elsewhere(r);
    if (op->reserve_out && (c->row || !elsewhere)) {
        aril_status s = aril__run_alloc(r, op->reserve_out - 1, ARIL_U8, 1,
                                        (int64_t[]){ c->row ? (int64_t)c->plan.reserve : 0 });
        if (s < 0) return s;
    }
    if (aril__unlikely(aril__log_on(ARIL__LOG_DISPATCH | ARIL__LOG_PROFILE | ARIL__LOG_METER)))
        aril__choice_note(r, c);
    if (c->row) return run_row(c->row, r, c->row->prepare ? &c->plan : NULL);
    if (elsewhere) {
        aril_status s = aril__run_allocate(r);
        return s < 0 ? s : op->decompose ? run_decomposed(r) : run_on_cpu(r);
    }
    if (!op->ref)
        return aril__fail(ARIL_ERR_UNSUPPORTED, "%s: no kernel for %s", op->name,
                          aril__dtypes[r->type].name);
    aril__kernel k = reference(op);
    return aril__run_staged(&k, r);
}

/* If all rows depend only on the dtype, no plan is needed. */
static aril_status dispatch_plainly(aril__run *r, const aril__row_list *rows)
{
    enum { FEW = 16 };
    const char *declined[FEW];
    aril__choice c = { .rows = rows, .declined = declined };
    int left = aril__force_row;
    for (int i = 0; i < rows->n && i < FEW && !c.row; i++) {
        bool takes = rows->at[i]->dtypes >> r->type & 1;
        declined[i] = takes ? NULL : "dtype";
        c.n_asked = i + 1;
        if (takes && left-- <= 0) c.row = rows->at[i];
    }
    return run_choice(r, &c);
}

aril_status aril__dispatch(aril__run *r)
{
    const aril__row_list *rows = aril__rows_for(r);
    int i = 0;
    while (i < rows->n && !(rows->at[i]->dtypes >> r->type & 1)) i++;
    const aril__row *first = i < rows->n ? rows->at[i] : NULL;
    if (aril__likely(first && !first->prepare && aril__force_row < 0 &&
                     !aril__log_on(ARIL__LOG_DISPATCH | ARIL__LOG_PROFILE | ARIL__LOG_METER))) {
        return run_row(first, r, NULL);
    }
    if (!(rows->prepares >> r->type & 1) && (aril__force_row < 0 || rows->n_all == rows->n))
        return dispatch_plainly(r, rows);
    aril__thread *th = aril__self();
    aril__taken taken = aril__choice_take(th, r);
    if (aril__unlikely(!taken.choice))
        return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory while choosing a kernel",
                          r->op->name);
    aril_status s = run_choice(r, taken.choice);
    aril__choice_give_back(th, taken);
    return s;
}

bool aril__dispatch_to_row(aril__run *r, aril_status *status)
{
    if (!aril__rows_for(r)->n) return false;
    aril__thread *th = aril__self();
    aril__taken taken = aril__choice_take(th, r);
    if (aril__unlikely(!taken.choice)) {
        *status =
            aril__fail(ARIL_ERR_MEMORY, "%s: out of memory while choosing a kernel", r->op->name);
        return true;
    }
    const aril__row *row = taken.choice->row;
    bool fits = row && row->strided && (row->native ? row->native : row->dtypes) >> r->type & 1;
    if (fits && taken.choice->wrong)
        *status = wrong_plan(r, taken.choice);
    else if (fits)
        *status = run_row(row, r, row->prepare ? &taken.choice->plan : NULL);
    aril__choice_give_back(th, taken);
    return fits;
}
