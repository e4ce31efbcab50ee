/* Optimizer updates on the CPU: one parallel pass over all parameters of a list. */
#include "backend/cpu/update/update.h"

#include "aril/autograd.h"
#include "aril/create.h"
#include "core/parallel.h"
#include "ops/table/apply.h"
#include "ops/table/stage.h"
#include "ops/shape/copy.h"
#include "ops/update/update.h"

#include <math.h>
#include <string.h>

enum {
    GRAIN = 1 << 15, /* elements of a chunk */
    PARTS = 128,     /* parameters of one pass */
    BLOCK = 1024,    /* elements of f16 and bf16 that are converted at a time */
    WAYS = 8,        /* sums side by side */
};

typedef struct part part;
typedef void update_fn(const part *u, int64_t begin, int64_t end);
/* Adds the squares of the parameter to ways[0 .. WAYS), of the direction to the WAYS after them. */
typedef void norms_fn(const part *u, int64_t begin, int64_t end, double *ways);

/* One parameter of a pass. */
struct part {
    void *p, *grad, *slot[ARIL__UPDATE_SLOTS]; /* the last: the master */
    unsigned present; /* 1 << i: slot i of the rule is there; without scalar slots */
    unsigned staged;  /* 1 << i: input i of the item has another dtype than the kernels */
    aril_tensor *const *item;
    int64_t end; /* of this parameter, in the concatenation of all */
    aril__update_constants k;
};

#define TEMPLATE "backend/cpu/update/update.inc"
#include "core/vector/each_target.inc"

/* ---- one parameter ---- */

/* The dtype in which kernels compute. */
static aril_dtype computed(aril_dtype type)
{
    return type == ARIL_F64 ? ARIL_F64 : ARIL_F32;
}

static void fill_part(const aril__run *r, int i, part *u)
{
    const struct update_attrs *a = r->attrs;
    unsigned scalar = aril__rules[a->rule[0]].scalar;
    u->item = r->in + r->op->fixed + i * ARIL__ITEM;
    u->present = aril__update_present(u->item) & ~scalar;
    u->p = aril__ptr(u->item[ARIL__ITEM_P]);
    u->grad = aril__ptr(u->item[ARIL__ITEM_GRAD]);
    u->staged = 0;
    for (int k = 0; k < ARIL__ITEM; k++) {
        int slot = k - ARIL__ITEM_SLOT;
        if (slot >= 0) u->slot[slot] = aril__ptr_or_null(u->item[k]);
        if (slot >= 0 && !(u->present >> slot & 1)) continue; /* the master, too */
        if (u->item[k]->dtype != computed(r->type)) u->staged |= 1u << k;
    }
}

/* Replaces x, n elements of the parameter from `at` on, by the master's where x is its rounding. */
static void take_master(const part *u, int64_t at, int64_t n, float *x)
{
    const aril_tensor *p = u->item[ARIL__ITEM_P], *master = u->item[ARIL__ITEM_MASTER];
    const aril__dtype_row *type = &aril__dtypes[p->dtype];
    float wide[BLOCK], rounded[BLOCK];
    uint16_t narrow[BLOCK];
    aril__dtypes[master->dtype].load[ARIL__C_F32](wide, aril__base(master), master->offset + at, 1,
                                                  n);
    type->store[ARIL__C_F32](narrow, 0, 1, wide, n);
    type->load[ARIL__C_F32](rounded, narrow, 0, 1, n);
    for (int64_t i = 0; i < n; i++) x[i] = rounded[i] == x[i] ? wide[i] : x[i];
}

static void put_block(const aril_tensor *t, int64_t at, int64_t n, const float *from)
{
    aril__dtypes[t->dtype].store[ARIL__C_F32](aril__base(t), t->offset + at, 1, from, n);
}

/* Calls fn for elements begin .. end, of which those in f16 and bf16 are converted to blocks of f32
 * and back. */
static void run_staged(const part *u, update_fn *update, norms_fn *norms, int64_t begin,
                       int64_t end, double *ways)
{
    float block[ARIL__ITEM_MASTER][BLOCK];
    const aril_tensor *master = u->item[ARIL__ITEM_MASTER];
    for (int64_t at = begin; at < end; at += BLOCK) {
        int64_t n = end - at < BLOCK ? end - at : BLOCK;
        part b = *u;
        for (int k = 0; k < ARIL__ITEM_MASTER; k++) {
            const aril_tensor *t = u->item[k];
            int slot = k - ARIL__ITEM_SLOT;
            void **to = k == ARIL__ITEM_P ? &b.p : slot < 0 ? &b.grad : &b.slot[slot];
            if (u->staged >> k & 1) {
                aril__dtypes[t->dtype].load[ARIL__C_F32](block[k], aril__base(t), t->offset + at, 1,
                                                         n);
                *to = block[k];
            } else if (slot < 0 || u->present >> slot & 1) {
                *to = (float *)*to + at;
            }
        }
        if (master) take_master(u, at, n, b.p);
        if (norms)
            norms(&b, 0, n, ways);
        else
            update(&b, 0, n);
        if (norms) continue;
        for (int k = 0; k < ARIL__ITEM_MASTER; k++)
            if (k != ARIL__ITEM_GRAD && u->staged >> k & 1) put_block(u->item[k], at, n, block[k]);
        if (master) put_block(master, at, n, b.p);
    }
}

/* The same for f32 and f64, of which a master is a copy. */
static void run_plain(const part *u, update_fn *update, int64_t begin, int64_t end)
{
    update(u, begin, end);
    if (!u->item[ARIL__ITEM_MASTER]) return;
    aril_dtype type = (aril_dtype)u->item[ARIL__ITEM_P]->dtype;
    size_t from = aril__dtype_bytes(type, begin), to = aril__dtype_bytes(type, end);
    memcpy((char *)u->slot[ARIL__MASTER_SLOT] + from, (char *)u->p + from, to - from);
}

/* ---- lists ---- */

/* Whether element i of t in memory belongs to element i of p. */
static bool same_layout(const aril_tensor *p, const aril_tensor *t)
{
    return aril__same_dims(p->ndim, p->stride, t->ndim, t->stride) ||
           (aril__is_dense(p) && aril__is_dense(t));
}

/* Whether the kernels can run on the memory of this item. */
static bool is_direct(const struct update_attrs *a, aril_tensor *const *item)
{
    const aril_tensor *p = item[ARIL__ITEM_P];
    if (!aril__is_packed(p) || !same_layout(p, item[ARIL__ITEM_GRAD])) return false;
    for (int i = 0; i < ARIL__UPDATE_SLOTS; i++) {
        const aril_tensor *t = item[ARIL__ITEM_SLOT + i];
        if (t && !(aril__rules[a->rule[0]].scalar >> i & 1) && !same_layout(p, t)) return false;
    }
    return true;
}

/* A contiguous copy of an input in scratch memory. */
typedef struct copy {
    aril_tensor t;
    aril__storage storage;
} copy;

static size_t rounded(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Whether input i belongs to an item that needs copies. */
static bool is_copied(const aril__run *r, int i)
{
    int fixed = r->op->fixed, item = (i - fixed) / ARIL__ITEM * ARIL__ITEM + fixed;
    return i >= fixed && r->in[i] && !is_direct(r->attrs, r->in + item);
}

static bool all_direct(const aril__run *r)
{
    for (int i = 0; i < aril__items(r->op, r->n_in); i++)
        if (!is_direct(r->attrs, r->in + r->op->fixed + i * ARIL__ITEM)) return false;
    return true;
}

/* Bytes of the copies, and of the list of inputs with them. */
static size_t copies_bytes(const aril__run *r)
{
    if (all_direct(r)) return 0;
    size_t bytes = rounded((size_t)r->n_in * sizeof(aril_tensor *));
    for (int i = 0; i < r->n_in; i++)
        if (is_copied(r, i))
            bytes += rounded(sizeof(copy)) +
                     rounded(aril__dtype_bytes((aril_dtype)r->in[i]->dtype, r->in[i]->numel));
    return bytes;
}

static copy *copy_to(char *memory, aril_tensor *from)
{
    copy *c = (copy *)(void *)memory;
    *c = (copy){ .t = *from,
                 .storage = { .device = from->storage->device,
                              .data = memory + rounded(sizeof *c) } };
    c->t.storage = &c->storage;
    c->t.offset = 0;
    aril__dense_strides(c->t.ndim, c->t.dim, c->t.stride);
    aril__copy_elements(&c->t, from);
    return c;
}

/* Runs `kernel`, with contiguous copies in `memory` in place of items whose tensors are stored
 * differently. */
static aril_status run_direct(aril__run *r, char *memory, aril_status (*kernel)(aril__run *r))
{
    if (all_direct(r)) return kernel(r);
    aril_tensor **in = (aril_tensor **)(void *)memory;
    memory += rounded((size_t)r->n_in * sizeof *in);
    for (int i = 0; i < r->n_in; i++) {
        in[i] = r->in[i];
        if (!is_copied(r, i)) continue;
        in[i] = &copy_to(memory, r->in[i])->t;
        memory += rounded(sizeof(copy)) +
                  rounded(aril__dtype_bytes((aril_dtype)in[i]->dtype, in[i]->numel));
    }
    aril__run copied = *r;
    copied.in = in;
    aril_status s = kernel(&copied);
    for (int i = 0; i < r->n_in && s == ARIL_OK; i++)
        if (in[i] != r->in[i] && aril__changes(r->op, i)) s = aril__copy_across(r->in[i], in[i]);
    return s;
}

typedef struct pass {
    update_fn *update;
    int n;
    part at[PARTS];
} pass;

/* Elements begin .. end of the concatenation of all parameters. */
static void run_pass(void *ctx, int64_t begin, int64_t end)
{
    const pass *all = ctx;
    int low = 0, high = all->n - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        if (all->at[middle].end > begin)
            high = middle;
        else
            low = middle + 1;
    }
    for (int i = low; begin < end; i++) {
        const part *u = &all->at[i];
        int64_t first = i ? all->at[i - 1].end : 0, to = u->end < end ? u->end : end;
        if (to <= begin) continue;
        if (u->staged)
            run_staged(u, all->update, NULL, begin - first, to - first, NULL);
        else
            run_plain(u, all->update, begin - first, to - first);
        begin = to;
    }
}

/* Whether the constants of a parameter are those of the one before. */
static bool shares_constants(const aril__rule_row *rule)
{
    return !(rule->facts & NORMS) && !rule->scalar;
}

static aril_status update_list(aril__run *r)
{
    const struct update_attrs *a = r->attrs;
    bool wide = r->type == ARIL_F64, shared = shares_constants(&aril__rules[a->rule[0]]);
    int n = aril__items(r->op, r->n_in);
    pass all;
    all.update = ARIL__PICK(rules, wide)[a->rule[0]];
    for (int first = 0; first < n; first += PARTS) {
        int64_t end = 0;
        all.n = n - first < PARTS ? n - first : PARTS;
        for (int i = 0; i < all.n; i++) {
            part *u = &all.at[i];
            fill_part(r, first + i, u);
            if (i > 0 && shared) {
                u->k = all.at[0].k;
            } else {
                aril__update_values v = aril__update_values_of(r, first + i);
                aril__update_constants_of(a, &v, &u->k);
            }
            if (u->k.skip) return ARIL_OK; /* they have one factor */
            u->end = end += u->item[ARIL__ITEM_P]->numel;
        }
        aril__parallel_for(end, GRAIN, run_pass, &all);
    }
    return ARIL_OK;
}

aril_status aril__cpu_update(aril__run *r)
{
    return run_direct(r, r->workspace, update_list);
}

size_t aril__cpu_update_scratch(const aril__run *r)
{
    return copies_bytes(r);
}

/* ---- norms ---- */

typedef struct norms_job {
    part u;
    norms_fn *fn;
    double *sums; /* two per chunk */
} norms_job;

static void run_norms(void *ctx, int64_t begin, int64_t end)
{
    const norms_job *j = ctx;
    double *sum = j->sums + 2 * (begin / GRAIN), ways[2 * WAYS] = { 0 };
    if (j->u.staged)
        run_staged(&j->u, NULL, j->fn, begin, end, ways);
    else
        j->fn(&j->u, begin, end, ways);
    sum[0] = sum[1] = 0;
    for (int w = 0; w < WAYS; w++) {
        sum[0] += ways[w];
        sum[1] += ways[WAYS + w];
    }
}

/* Two sums for each chunk of the largest parameter. */
static size_t sums_bytes(const aril__run *r)
{
    int64_t max = 0;
    for (int i = 0; i < aril__items(r->op, r->n_in); i++) {
        int64_t numel = r->in[ARIL__NORMS_FIXED + i * ARIL__ITEM + ARIL__ITEM_P]->numel;
        max = numel > max ? numel : max;
    }
    return rounded((size_t)aril__parallel_chunks(max, GRAIN) * 2 * sizeof(double));
}

static aril_status norms_list(aril__run *r)
{
    const struct update_attrs *a = r->attrs;
    norms_job j = { .fn = ARIL__PICK(norms, r->type == ARIL_F64)[a->rule[0]],
                    .sums = r->workspace };
    int n = aril__items(r->op, r->n_in);
    for (int i = 0; i < n; i++) {
        aril__update_values v = aril__update_values_of(r, i);
        fill_part(r, i, &j.u);
        aril__update_constants_of(a, &v, &j.u.k);
        int64_t numel = j.u.k.skip ? 0 : j.u.item[ARIL__ITEM_P]->numel;
        double of_p = 0, of_d = 0;
        aril__parallel_for(numel, GRAIN, run_norms, &j);
        for (int64_t c = 0; c < aril__parallel_chunks(numel, GRAIN); c++) {
            of_p += j.sums[2 * c];
            of_d += j.sums[2 * c + 1];
        }
        aril__update_put_norms(r, i, sqrt(of_p), sqrt(of_d));
    }
    return ARIL_OK;
}

aril_status aril__cpu_update_norms(aril__run *r)
{
    return run_direct(r, (char *)r->workspace + sums_bytes(r), norms_list);
}

size_t aril__cpu_update_norms_scratch(const aril__run *r)
{
    return sums_bytes(r) + copies_bytes(r);
}
