/* Weights in a primitive's preferred format, cached with the tensor they were created from. */
#include "backend/onednn/onednn.h"

#include "core/parallel.h"

#include <stdlib.h>
#include <string.h>

enum { MIN_PART = 1 << 15 }; /* minimum elements per part */

static void put(aril__dnn_order *o, const void *p, size_t n)
{
    if (o->key_size + n <= sizeof o->key) memcpy(o->key + o->key_size, p, n);
    o->key_size += n;
}

/* Adds everything that identifies a memory format to the key. */
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
        return false; /* not a blocked format */
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

/* A reorder of [begin, end) along one axis; fails when that does not start at a block boundary. */
static const char *make_part(aril__dnn *d, const_dnnl_memory_desc_t from,
                             const_dnnl_memory_desc_t to, int axis, int64_t begin, int64_t end)
{
    int n = 0;
    const dnnl_dims_t *dims;
    dnnl_memory_desc_t a = NULL, b = NULL;
    dnnl_status_t s = dnnl_memory_desc_query(from, dnnl_query_ndims_s32, &n);
    if (s == dnnl_success) s = dnnl_memory_desc_query(from, dnnl_query_dims, &dims);
    if (s != dnnl_success) return aril__dnn_text(s);
    dnnl_dims_t dim, at = { 0 };
    memcpy(dim, *dims, (size_t)n * sizeof *dim);
    at[axis] = begin;
    dim[axis] = end - begin;
    s = dnnl_memory_desc_create_submemory(&a, from, dim, at);
    if (s == dnnl_success) s = dnnl_memory_desc_create_submemory(&b, to, dim, at);
    const char *why = s == dnnl_success ? aril__dnn_make_reorder(d, a, b) : aril__dnn_text(s);
    if (a) dnnl_memory_desc_destroy(a);
    if (b) dnnl_memory_desc_destroy(b);
    return why;
}

static bool reserve(aril__dnn_order *o, int n)
{
    o->step = aril__calloc((size_t)n * sizeof *o->step);
    return o->step != NULL;
}

/* Splits one weight into a few parts, one per thread. */
static bool make_parts(aril__dnn_order *o, const aril__dnn_span *s)
{
    enum { STEP = 64 }; /* a multiple of all channel block sizes */
    int n = 0, axis = 0;
    const dnnl_dims_t *dim;
    int64_t size = 1;
    if (dnnl_memory_desc_query(s->from, dnnl_query_ndims_s32, &n) != dnnl_success ||
        dnnl_memory_desc_query(s->from, dnnl_query_dims, &dim) != dnnl_success)
        return false;
    for (int i = 0; i < n; i++) size *= (*dim)[i];
    for (int i = 1; i < n && i < 3; i++)
        if ((*dim)[i] > (*dim)[axis]) axis = i;
    int64_t steps = ((*dim)[axis] + STEP - 1) / STEP, parts = size / MIN_PART;
    if (parts > steps) parts = steps;
    if (parts > ARIL__DNN_PARTS) parts = ARIL__DNN_PARTS;
    if (parts < 2 || !reserve(o, (int)parts)) return false;
    for (int64_t i = 0; i < parts; i++) {
        int64_t begin = steps * i / parts * STEP, end = steps * (i + 1) / parts * STEP;
        if (end > (*dim)[axis]) end = (*dim)[axis];
        aril__dnn_step *to = &o->step[o->n++];
        *to = (aril__dnn_step){ .from_at = s->from_at, .to_at = s->to_at };
        if (make_part(&to->reorder, s->from, s->to, axis, begin, end) || to->reorder.scratch) {
            aril__dnn_order_destroy(o);
            return false;
        }
    }
    return true;
}

static const char *make_spans(aril__dnn_order *o, int n, const aril__dnn_span *span)
{
    if (!reserve(o, n)) return aril__dnn_text(dnnl_out_of_memory);
    for (int i = 0; i < n; i++) {
        aril__dnn_step *to = &o->step[o->n++];
        *to = (aril__dnn_step){ .from_at = span[i].from_at, .to_at = span[i].to_at };
        const char *why = aril__dnn_make_reorder(&to->reorder, span[i].from, span[i].to);
        if (!why && to->reorder.scratch) why = "a layout that needs a workspace";
        if (why) {
            aril__dnn_order_destroy(o);
            return why;
        }
    }
    return NULL;
}

/* Adds the first source format and each distinct destination format to the key. */
static void put_key(aril__dnn_order *o, int n, const aril__dnn_span *span)
{
    bool ok = put_desc(o, span[0].from);
    for (int i = 0; i < n && ok; i++) {
        int k = 0;
        while (k < i && !dnnl_memory_desc_equal(span[k].to, span[i].to)) k++;
        if (k == i) ok = put_desc(o, span[i].to);
    }
    int32_t parts = n;
    put(o, &parts, sizeof parts);
    if (!ok || o->key_size + sizeof(int64_t) > sizeof o->key)
        o->key_size = 0; /* no key: not cached */
}

const char *aril__dnn_order_make(aril__dnn_order *o, int n, const aril__dnn_span *span,
                                 size_t bytes)
{
    memset(o, 0, sizeof *o);
    o->bytes = bytes;
    o->as_is = n == 1 && dnnl_memory_desc_equal(span[0].from, span[0].to);
    if (o->as_is) return NULL;
    put_key(o, n, span);
    if (n == 1 && make_parts(o, span)) return NULL;
    return make_spans(o, n, span);
}

void aril__dnn_order_destroy(aril__dnn_order *o)
{
    for (int i = 0; i < o->n; i++) aril__dnn_destroy(&o->step[i].reorder);
    free(o->step);
    o->step = NULL;
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
        aril__dnn_step *at = &j->o->step[i];
        void *data[2] = { (char *)j->from + at->from_at, (char *)j->to + at->to_at };
        dnnl_status_t s = aril__dnn_run(&at->reorder, data, NULL);
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

aril__dnn_packed aril__dnn_pack(aril__dnn_order *o, const char *op, const aril_tensor *w, bool keep,
                                void *space)
{
    aril__dnn_packed p = { 0 };
    if (o->as_is) {
        p.data = aril__ptr(w);
        return p;
    }
    unsigned char key[ARIL__DERIVED_KEY];
    size_t n = o->key_size ? o->key_size + sizeof w->offset : 0;
    unsigned version = aril__version(w);
    if (n) { /* gradients too: the form may be cached */
        memcpy(key, o->key, o->key_size);
        memcpy(key + o->key_size, &w->offset, sizeof w->offset);
        p.form = aril__derived_get(w->storage, key, n, version);
    }
    if (p.form) {
        p.data = p.form->data;
        return p;
    }
    if (!aril__base(w)) { /* freed, since this form was said to be there */
        aril__fail(ARIL_ERR_INTERNAL, "%s: a packed weight is missing", op);
        return p;
    }
    void *to = space;
    if (n && keep) {
        if (!(p.form = aril__derived_new(w->storage->device, o->bytes))) return p;
        to = p.form->data;
    }
    dnnl_status_t s = aril__dnn_order_run(o, aril__ptr(w), to);
    if (aril__dnn_status(op, s) < 0) {
        aril__dnn_unpack(&p);
        return p;
    }
    if (p.form) aril__derived_put(w->storage, key, n, version, p.form);
    p.data = to;
    return p;
}

void aril__dnn_unpack(aril__dnn_packed *p)
{
    aril__derived_release(p->form);
    *p = (aril__dnn_packed){ 0 };
}
