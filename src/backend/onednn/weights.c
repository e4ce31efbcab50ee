/* Weights in a primitive's preferred format, cached with the tensor they were created from. */
#include "backend/onednn/onednn.h"

#include "aril/dtype.h"
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

/* ---- back ---- */

enum { AXES = 6, BLOCKS = 4, CHUNK = 256 };

/* A blocked format: the offset of an element is the sum of one term for each axis. */
typedef struct layout {
    int64_t begin, stride[AXES];
    int blocks; /* the innermost is the last */
    int axis[BLOCKS];
    int64_t block[BLOCKS];
} layout;

typedef struct span {
    int n;
    int64_t dim[AXES];
    layout plain, packed;
    size_t plain_at, packed_at;
} span;

/* What it takes to compute a weight from its packed form, without the library. */
typedef struct unpacking {
    size_t size; /* of an element */
    int n;
    span span[];
} unpacking;

static int64_t term(const layout *l, int axis, int64_t i)
{
    int64_t sum = 0, step = 1;
    for (int k = l->blocks; k-- > 0; step *= l->block[k]) {
        if (l->axis[k] != axis) continue;
        sum += i % l->block[k] * step;
        i /= l->block[k];
    }
    return sum + i * l->stride[axis];
}

static bool read_layout(layout *l, const_dnnl_memory_desc_t md)
{
    int n = 0;
    dnnl_dim_t begin = 0;
    const dnnl_dims_t *stride, *size, *axis;
    if (dnnl_memory_desc_query(md, dnnl_query_ndims_s32, &n) != dnnl_success || n > AXES ||
        dnnl_memory_desc_query(md, dnnl_query_strides, &stride) != dnnl_success ||
        dnnl_memory_desc_query(md, dnnl_query_submemory_offset_s64, &begin) != dnnl_success ||
        dnnl_memory_desc_query(md, dnnl_query_inner_nblks_s32, &l->blocks) != dnnl_success ||
        l->blocks > BLOCKS ||
        dnnl_memory_desc_query(md, dnnl_query_inner_blks, &size) != dnnl_success ||
        dnnl_memory_desc_query(md, dnnl_query_inner_idxs, &axis) != dnnl_success)
        return false;
    l->begin = begin;
    for (int i = 0; i < n; i++) l->stride[i] = (*stride)[i];
    for (int i = 0; i < l->blocks; i++) {
        l->block[i] = (*size)[i];
        l->axis[i] = (int)(*axis)[i];
    }
    return true;
}

static bool read_span(span *s, const aril__dnn_step *step, dnnl_data_type_t type)
{
    const_dnnl_memory_desc_t from =
        dnnl_primitive_desc_query_md(step->reorder.desc, dnnl_query_src_md, 0);
    const_dnnl_memory_desc_t to =
        dnnl_primitive_desc_query_md(step->reorder.desc, dnnl_query_dst_md, 0);
    dnnl_data_type_t a, b;
    const dnnl_dims_t *dim;
    if (!from || !to || dnnl_memory_desc_query(from, dnnl_query_data_type, &a) != dnnl_success ||
        dnnl_memory_desc_query(to, dnnl_query_data_type, &b) != dnnl_success || a != type ||
        b != type || dnnl_memory_desc_query(from, dnnl_query_ndims_s32, &s->n) != dnnl_success ||
        s->n > AXES || dnnl_memory_desc_query(from, dnnl_query_dims, &dim) != dnnl_success)
        return false;
    for (int i = 0; i < s->n; i++) s->dim[i] = (*dim)[i];
    s->plain_at = step->from_at;
    s->packed_at = step->to_at;
    return read_layout(&s->plain, from) && read_layout(&s->packed, to);
}

/* NULL: the form does not hold all of the storage of `w`, as it is. */
static unpacking *unpacking_of(const aril__dnn_order *o, const aril_tensor *w)
{
    size_t size = aril_dtype_size((aril_dtype)w->dtype);
    if (w->offset || !aril__is_packed(w) || (size_t)w->numel * size != w->storage->bytes)
        return NULL;
    unpacking *u = aril__malloc(sizeof *u + (size_t)o->n * sizeof *u->span);
    if (!u) return NULL;
    int64_t total = 0;
    u->size = size;
    u->n = o->n;
    for (int i = 0; i < o->n; i++) {
        if (!read_span(&u->span[i], &o->step[i], aril__dnn_type((aril_dtype)w->dtype))) {
            free(u);
            return NULL;
        }
        int64_t count = 1;
        for (int k = 0; k < u->span[i].n; k++) count *= u->span[i].dim[k];
        total += count;
    }
    if (total == w->numel) return u;
    free(u);
    return NULL;
}

#define UNPACK(T)                                            \
    do {                                                     \
        const T *x = (const T *)(const void *)from + packed; \
        T *y = (T *)(void *)to + plain;                      \
        for (int64_t k = 0; k < n; k++) y[a[k]] = x[b[k]];   \
    } while (0)

/* Elements [begin, begin + n) of one axis, at fixed positions of the others. */
static void unpack_chunk(const span *s, size_t size, const int64_t *at, int axis, int64_t n,
                         const int64_t *a, const int64_t *b, const char *from, char *to)
{
    int64_t plain = s->plain.begin, packed = s->packed.begin;
    for (int i = 0; i < s->n; i++) {
        if (i == axis) continue;
        plain += term(&s->plain, i, at[i]);
        packed += term(&s->packed, i, at[i]);
    }
    if (size == 4)
        UNPACK(uint32_t);
    else
        UNPACK(uint16_t);
}

static void unpack_span(const span *s, size_t size, const char *from, char *to)
{
    int axis = 0;
    for (int i = 0; i < s->n; i++) {
        if (s->dim[i] > s->dim[axis]) axis = i;
        if (s->dim[i] == 0) return;
    }
    for (int64_t begin = 0; begin < s->dim[axis]; begin += CHUNK) {
        int64_t n = s->dim[axis] - begin < CHUNK ? s->dim[axis] - begin : CHUNK;
        int64_t a[CHUNK], b[CHUNK], at[AXES] = { 0 };
        for (int64_t k = 0; k < n; k++) {
            a[k] = term(&s->plain, axis, begin + k);
            b[k] = term(&s->packed, axis, begin + k);
        }
        for (int i = 0; i >= 0;) {
            unpack_chunk(s, size, at, axis, n, a, b, from, to);
            for (i = s->n - 1; i >= 0; i--) {
                if (i == axis) continue;
                if (++at[i] < s->dim[i]) break;
                at[i] = 0;
            }
        }
    }
}

typedef struct unpack_job {
    const unpacking *u;
    const char *from;
    char *to;
} unpack_job;

static void unpack_spans(void *ctx, int64_t begin, int64_t end)
{
    const unpack_job *j = ctx;
    for (int64_t i = begin; i < end; i++) {
        const span *s = &j->u->span[i];
        unpack_span(s, j->u->size, j->from + s->packed_at, j->to + s->plain_at);
    }
}

static void unpack(const void *ctx, const void *form, void *contents)
{
    unpack_job j = { .u = ctx, .from = form, .to = contents };
    aril__parallel_for(j.u->n, 1, unpack_spans, &j);
}

/* The packed form stands for the weight from now on, if it can. */
static void replace_source(const aril__dnn_order *o, const aril_tensor *w, aril__derived *form)
{
    if (!aril__derived_is_replaceable(w->storage)) return;
    aril__allocations_allow(); /* a cache: made once, by the first run */
    unpacking *u = unpacking_of(o, w);
    aril__allocations_allow_end();
    if (u) aril__derived_replace(w->storage, form, unpack, u);
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
    if (p.form) {
        aril__derived_put(w->storage, key, n, version, p.form);
        replace_source(o, w, p.form);
    }
    p.data = to;
    return p;
}

void aril__dnn_unpack(aril__dnn_packed *p)
{
    aril__derived_release(p->form);
    *p = (aril__dnn_packed){ 0 };
}
