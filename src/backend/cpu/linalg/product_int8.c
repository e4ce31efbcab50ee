#include "backend/cpu/linalg/product_int8.h"

#include "core/parallel.h"
#include "ops/table/element.h"

#include <string.h>

enum { BLOCK = 8 * ARIL__INT8_ROWS }; /* staged rows */

/* ---- packed weights ---- */

typedef struct packing {
    const aril__int8_form *f;
    char *to;
} packing;

static void pack_parts(void *ctx, int64_t begin, int64_t end)
{
    const packing *p = ctx;
    for (; begin < end; begin++)
        p->f->pack(p->f->ctx, &p->f->g, begin, p->to + (size_t)begin * p->f->bytes);
}

aril__derived *aril__int8_form_of(const aril__int8_form *f, aril_tensor *w, aril__device *device)
{
    int64_t key[8 + 2 * ARIL_MAX_DIMS] = {
        (int64_t)(intptr_t)f->op, f->g.k, f->g.n, f->g.bytes, f->parts, w->offset, w->ndim
    };
    for (int i = 0; i < w->ndim; i++) {
        key[8 + 2 * i] = w->dim[i];
        key[9 + 2 * i] = w->stride[i];
    }
    unsigned version = aril__version(w);
    aril__derived *d = aril__derived_get(w->storage, key, sizeof key, version);
    if (d) return d;
    d = aril__derived_new(device, (size_t)f->parts * f->bytes);
    if (!d) return NULL;
    packing p = { f, d->data };
    aril__parallel_for(f->parts, 1, pack_parts, &p);
    aril__derived_put(w->storage, key, sizeof key, version, d);
    return d;
}

/* ---- the product ---- */

typedef struct job {
    aril__int8 g;
    int64_t m, blocks, cuts; /* tasks: blocks of rows times cuts of the columns */
    const char *a;
    const void *packed;
    char *y;
    aril__int8_columns columns;
    char *space; /* staged rows, for each slot */
    size_t each;
} job;

static job job_of(const aril__run *r)
{
    const aril_tensor *b = r->in[1];
    job j = { .g = aril__int8_of(b->dim[0], b->dim[1], r->in[0]->dtype == ARIL_I8,
                                 b->dtype == ARIL_I8) };
    j.m = j.g.n > 0 ? r->out[0]->numel / j.g.n : 0;
    j.blocks = (j.m + BLOCK - 1) / BLOCK;
    j.each = BLOCK * aril__int8_space(&j.g);
    j.cuts = aril__int8_cuts(&j.g, j.m, j.blocks);
    return j;
}

const char *aril__cpu_product_int8_prepare(const aril__run *r, aril_plan *plan)
{
    job j = job_of(r);
    if (r->out[0]->numel == 0) return "an empty tensor";
    plan->workspace = aril__int8_columns_bytes(j.g.n) +
                      (size_t)aril__parallel_slots(j.blocks * j.cuts, 1) * j.each;
    for (int i = 0; i < r->n_in; i++)
        plan->in[i].order = i == 1 ? ARIL_ORDER_ANY : ARIL_ORDER_CONTIGUOUS; /* B is packed */
    plan->out[0].order = ARIL_ORDER_CONTIGUOUS;
    plan->packs |= IN(1);
    return NULL;
}

static void run_tasks(void *ctx, int64_t begin, int64_t end, int slot)
{
    const job *j = ctx;
    size_t row = aril__int8_row(&j->g);
    char *rows = j->space + (size_t)slot * j->each;
    for (; begin < end; begin++) {
        int64_t first = begin / j->cuts * BLOCK, from, to;
        int64_t count = j->m - first < BLOCK ? j->m - first : BLOCK;
        aril__int8_cut(&j->g, begin % j->cuts, j->cuts, &from, &to);
        for (int64_t i = 0; i < count; i++) {
            char *at = rows + (size_t)i * row;
            aril__int8_stage(&j->g, at, 0, j->a + (first + i) * j->g.k, j->g.k, 1);
            aril__int8_end(&j->g, at);
        }
        size_t size = j->columns.scale ? 1 : sizeof(int32_t);
        aril__int8_rows(&j->g, &j->columns, j->packed, rows, count, from, to,
                        j->y + (size_t)(first * j->g.n) * size, j->g.n);
    }
}

static void pack_matrix(void *ctx, const aril__int8 *g, int64_t part, void *to)
{
    const aril_tensor *b = ctx;
    (void)part;
    aril__int8_pack(g, aril__ptr(b), b->stride[0], b->stride[1], to);
}

aril_status aril__cpu_product_int8(aril__run *r)
{
    job j = job_of(r);
    aril__rescale s = aril__rescale_of(r);
    aril__int8_form f = { r->op, j.g, 1, aril__int8_packed(&j.g), pack_matrix, r->in[1] };
    aril__derived *form = aril__int8_form_of(&f, r->in[1], r->device);
    if (!form) return ARIL_ERR_MEMORY;
    size_t columns = aril__int8_columns_bytes(j.g.n);
    j.packed = form->data;
    j.a = aril__ptr(r->in[0]);
    j.y = aril__ptr(r->out[0]);
    j.columns = aril__int8_columns_of(&j.g, &s, 0, form->data, r->workspace);
    j.space = (char *)r->workspace + columns;
    int slots = j.each ? (int)((r->workspace_bytes - columns) / j.each) : 1;
    aril__parallel_for_slots(j.blocks * j.cuts, 1, slots, run_tasks, &j);
    aril__derived_release(form);
    return ARIL_OK;
}
