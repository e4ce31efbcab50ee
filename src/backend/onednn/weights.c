/* Weights in the order that a primitive likes, kept with the tensor that they were made of. */
#include "backend/onednn/onednn.h"

#include "core/parallel.h"

#include <string.h>

enum { LEAST_PART = 1 << 15 }; /* elements that are worth a part of their own */

static void put(aril__dnn_order *o, const void *p, size_t n)
{
    if (o->key_size + n <= sizeof o->key) memcpy(o->key + o->key_size, p, n);
    o->key_size += n;
}

/* Everything that tells one order from another. */
static bool put_desc(aril__dnn_order *o, const_dnnl_memory_desc_t md)
{
    int n = 0, blocks = 0;
    dnnl_data_type_t type;
    const dnnl_dims_t *dim, *stride, *size, *index;
    if (dnnl_memory_desc_query(md, dnnl_query_ndims_s32, &n) != dnnl_success ||
        dnnl_memory_desc_query(md, dnnl_query_data_type, &type) != dnnl_success ||
        dnnl_memory_desc_query(md, dnnl_query_dims, &dim) != dnnl_success ||
        dnnl_memory_desc_query(md, dnnl_query_strides, &stride) != dnnl_success ||
        dnnl_memory_desc_query(md, dnnl_query_inner_nblks_s32, &blocks) != dnnl_success ||
        dnnl_memory_desc_query(md, dnnl_query_inner_blks, &size) != dnnl_success ||
        dnnl_memory_desc_query(md, dnnl_query_inner_idxs, &index) != dnnl_success)
        return false; /* an order that is not made of blocks */
    unsigned char head[3] = { (unsigned char)n, (unsigned char)type, (unsigned char)blocks };
    put(o, head, sizeof head);
    for (int i = 0; i < n; i++) {
        int32_t d = (int32_t)(*dim)[i], s = (int32_t)(*stride)[i];
        put(o, &d, sizeof d);
        put(o, &s, sizeof s);
    }
    for (int i = 0; i < blocks; i++) {
        unsigned char b[3] = { (unsigned char)(*index)[i], (unsigned char)((*size)[i] & 255),
                               (unsigned char)((*size)[i] >> 8) };
        put(o, b, sizeof b);
    }
    return true;
}

/* A reorder of [begin, end) of one axis of both; what does not begin at a block is refused. */
static const char *make_part(aril__dnn *d, const_dnnl_memory_desc_t from,
                             const_dnnl_memory_desc_t to, int axis, int64_t begin, int64_t end)
{
    int n = 0;
    const dnnl_dims_t *whole;
    dnnl_memory_desc_t a = NULL, b = NULL;
    dnnl_status_t s = dnnl_memory_desc_query(from, dnnl_query_ndims_s32, &n);
    if (s == dnnl_success) s = dnnl_memory_desc_query(from, dnnl_query_dims, &whole);
    if (s != dnnl_success) return aril__dnn_text(s);
    dnnl_dims_t dim, at = { 0 };
    memcpy(dim, *whole, (size_t)n * sizeof *dim);
    at[axis] = begin;
    dim[axis] = end - begin;
    s = dnnl_memory_desc_create_submemory(&a, from, dim, at);
    if (s == dnnl_success) s = dnnl_memory_desc_create_submemory(&b, to, dim, at);
    const char *why = s == dnnl_success ? aril__dnn_make_reorder(d, a, b) : aril__dnn_text(s);
    if (a) dnnl_memory_desc_destroy(a);
    if (b) dnnl_memory_desc_destroy(b);
    return why;
}

static bool make_parts(aril__dnn_order *o, const_dnnl_memory_desc_t from,
                       const_dnnl_memory_desc_t to)
{
    enum { STEP = 64 }; /* a multiple of what channels are blocked by */
    int n = 0, axis = 0;
    const dnnl_dims_t *dim;
    int64_t size = 1;
    if (dnnl_memory_desc_query(from, dnnl_query_ndims_s32, &n) != dnnl_success ||
        dnnl_memory_desc_query(from, dnnl_query_dims, &dim) != dnnl_success)
        return false;
    for (int i = 0; i < n; i++) size *= (*dim)[i];
    for (int i = 1; i < n && i < 3; i++)
        if ((*dim)[i] > (*dim)[axis]) axis = i;
    int64_t steps = ((*dim)[axis] + STEP - 1) / STEP, parts = size / LEAST_PART;
    if (parts > steps) parts = steps;
    if (parts > ARIL__DNN_PARTS) parts = ARIL__DNN_PARTS;
    if (parts < 2) return false;
    for (int64_t i = 0; i < parts; i++) {
        int64_t begin = steps * i / parts * STEP, end = steps * (i + 1) / parts * STEP;
        if (end > (*dim)[axis]) end = (*dim)[axis];
        if (make_part(&o->part[i], from, to, axis, begin, end) || o->part[i].scratch) {
            if (o->part[i].primitive) o->n++;
            aril__dnn_order_destroy(o);
            return false;
        }
        o->n++;
    }
    return true;
}

const char *aril__dnn_order_make(aril__dnn_order *o, const_dnnl_memory_desc_t from,
                                 const_dnnl_memory_desc_t to)
{
    memset(o, 0, sizeof *o);
    o->bytes = dnnl_memory_desc_get_size(to);
    o->as_is = dnnl_memory_desc_equal(from, to);
    if (o->as_is) return NULL;
    if (!put_desc(o, from) || !put_desc(o, to) || o->key_size + sizeof(int64_t) > sizeof o->key)
        o->key_size = 0; /* cannot be told: not kept */
    if (make_parts(o, from, to)) return NULL;
    const char *why = aril__dnn_make_reorder(&o->part[0], from, to);
    if (!why && o->part[0].scratch) why = "an order that takes working memory";
    if (why)
        aril__dnn_destroy(&o->part[0]);
    else
        o->n = 1;
    return why;
}

void aril__dnn_order_destroy(aril__dnn_order *o)
{
    for (int i = 0; i < o->n; i++) aril__dnn_destroy(&o->part[i]);
    o->n = 0;
}

typedef struct job {
    aril__dnn_order *o;
    void *from, *to;
    atomic_int status;
} job;

static void run_parts(void *ctx, int64_t begin, int64_t end)
{
    job *j = ctx;
    for (int64_t i = begin; i < end; i++) {
        dnnl_status_t s = aril__dnn_run(&j->o->part[i], (void *[]){ j->from, j->to }, NULL);
        if (s != dnnl_success) atomic_store(&j->status, (int)s);
    }
}

dnnl_status_t aril__dnn_order_run(aril__dnn_order *o, void *from, void *to)
{
    job j = { .o = o, .from = from, .to = to };
    aril__parallel_for(o->n, 1, run_parts, &j);
    return (dnnl_status_t)atomic_load(&j.status);
}

bool aril__dnn_keeps(const aril_tensor *w)
{
    return !w->node || aril__self()->mode.no_grad;
}

aril__dnn_packed aril__dnn_pack(aril__dnn_order *o, const char *op, const aril_tensor *w, bool keep)
{
    aril__dnn_packed p = { 0 };
    if (o->as_is) {
        p.data = aril__ptr(w);
        return p;
    }
    unsigned char key[ARIL__DERIVED_KEY];
    size_t n = o->key_size ? o->key_size + sizeof w->offset : 0;
    unsigned version = aril__version(w);
    if (n) { /* also for a gradient: it may be there */
        memcpy(key, o->key, o->key_size);
        memcpy(key + o->key_size, &w->offset, sizeof w->offset);
        p.form = aril__derived_get(w->storage, key, n, version);
    }
    if (p.form) {
        p.data = p.form->data;
        return p;
    }
    aril__device *device = w->storage->device;
    void *to;
    if (n && keep) {
        if (!(p.form = aril__derived_new(device, o->bytes))) return p;
        to = p.form->data;
    } else if (!(to = p.space = aril__device_alloc(device, o->bytes))) {
        return p;
    }
    dnnl_status_t s = aril__dnn_order_run(o, aril__ptr(w), to);
    if (aril__dnn_status(op, s) < 0) {
        aril__dnn_unpack(o, w, &p);
        return p;
    }
    if (p.form) aril__derived_put(w->storage, key, n, version, p.form);
    p.data = to;
    return p;
}

void aril__dnn_unpack(aril__dnn_order *o, const aril_tensor *w, aril__dnn_packed *p)
{
    aril__derived_release(p->form);
    if (p->space) aril__device_free(w->storage->device, p->space, o->bytes);
    *p = (aril__dnn_packed){ 0 };
}
