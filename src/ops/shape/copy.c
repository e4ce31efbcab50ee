#include "ops/shape/copy.h"

#include "aril/create.h"
#include "aril/view.h"
#include "core/convert.h"
#include "core/log.h"
#include "core/loops.h"
#include "core/move.h"
#include "core/queues.h"
#include "core/parallel.h"
#include "ops/table/apply.h"
#include "ops/elementwise/elementwise.h"
#include "ops/table/sample.h"

#include <string.h>

/* ---- host memory ---- */

/* Dispatch itself copies, to give kernels the layouts and dtypes that they need: so copying in host
 * memory is a service of this room and of core/move.h, not a kernel row. */

enum { BLOCK = 512, GRAIN = 32 * 1024 };

typedef struct copy_job {
    aril__loops loops; /* operand 0: source, 1: destination */
    char *base[2];
    int64_t offset[2];
    uint8_t dtype[2];
} copy_job;

static void copy_run(const copy_job *j, int64_t from, int64_t to, int64_t m)
{
    int last = j->loops.ndim - 1;
    int64_t sf = last < 0 ? 1 : j->loops.stride[0][last],
            st = last < 0 ? 1 : j->loops.stride[1][last];
    aril_dtype source = (aril_dtype)j->dtype[0], target = (aril_dtype)j->dtype[1];
    if (sf == 1 && st == 1 && aril__dtypes[source].bits >= 8 && aril__dtypes[target].bits >= 8 &&
        aril__convert(target, j->base[1] + (size_t)to * (aril__dtypes[target].bits / 8), source,
                      j->base[0] + (size_t)from * (aril__dtypes[source].bits / 8), m))
        return;
    uint64_t block[BLOCK];
    aril__ctype via = aril__dtypes[source].ctype;
    for (int64_t at = 0; at < m; at += BLOCK) {
        int64_t n = m - at < BLOCK ? m - at : BLOCK;
        aril__dtypes[j->dtype[0]].load[via](block, j->base[0], from + at * sf, sf, n);
        aril__dtypes[j->dtype[1]].store[via](j->base[1], to + at * st, st, block, n);
    }
}

static void copy_range(void *ctx, int64_t begin, int64_t end)
{
    const copy_job *j = ctx;
    aril__loops_at p;
    aril__loops_seek(&j->loops, &p, begin, j->offset);
    while (begin < end) {
        int64_t m = aril__loops_run(&j->loops, &p);
        if (m > end - begin) m = end - begin;
        copy_run(j, p.offset[0], p.offset[1], m);
        begin += m;
        aril__loops_move(&j->loops, &p, m);
    }
}

void aril__copy_elements(aril_tensor *dst, const aril_tensor *src)
{
    if (dst->numel == 0) return;
    if (src->dtype == dst->dtype && src->numel == dst->numel && dst->numel <= GRAIN &&
        aril__dtypes[dst->dtype].bits >= 8 && aril__is_dense(src) && aril__is_dense(dst)) {
        memcpy(aril__ptr(dst), aril__ptr(src),
               aril__dtype_bytes((aril_dtype)dst->dtype, dst->numel));
        return;
    }
    copy_job j = { .loops = aril__loops_of(dst->ndim, dst->dim),
                   .base = { aril__base(src), aril__base(dst) },
                   .offset = { src->offset, dst->offset },
                   .dtype = { src->dtype, dst->dtype } };
    bool bits = aril__dtypes[dst->dtype].bits < 8 || aril__dtypes[src->dtype].bits < 8;
    aril__loops_add(&j.loops, src);
    aril__loops_add(&j.loops, dst);
    aril__loops_merge(&j.loops, 1);
    if (src->dtype == dst->dtype && !bits) {
        int64_t size = aril__dtypes[src->dtype].bits / 8;
        aril__move(&j.loops, j.base[0] + src->offset * size, j.base[1] + dst->offset * size, size);
        return;
    }
    /* Sub-byte elements share bytes: a single thread writes them. */
    aril__parallel_for(dst->numel, bits ? dst->numel : GRAIN, copy_range, &j);
}

/* ---- between devices ---- */

/* The host reads and writes only its own memory. Elements of other devices are packed, converted
 * and spread by the device's rows for copy and cast; where it has none, the span of memory from the
 * first element to the last passes through the host. */

static bool on_host(const aril_tensor *t)
{
    return t->storage->device->id.kind == ARIL__CPU;
}

/* Whether elements are in the same order in memory, without gaps. */
static bool in_same_order(const aril_tensor *a, const aril_tensor *b)
{
    if (aril__is_dense(a) && aril__is_dense(b)) return true;
    if (!aril__same_dims(a->ndim, a->dim, b->ndim, b->dim)) return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->dim[i] != 1 && a->stride[i] != b->stride[i]) return false;
    return aril__is_packed(a);
}

/* Whether bytes can be copied as they are. */
static bool is_plain(const aril_tensor *dst, const aril_tensor *src)
{
    return src->dtype == dst->dtype && src->numel == dst->numel &&
           aril__dtypes[src->dtype].bits >= 8 && in_same_order(src, dst); /* others share bytes */
}

static size_t bytes_of(const aril_tensor *t)
{
    return aril__dtype_bytes((aril_dtype)t->dtype, t->numel);
}

/* Copies by a row of the device that both are on; false if it has none for this. */
static bool copy_by_row(aril_tensor *dst, aril_tensor *src, aril_status *status)
{
    bool same = aril__same_dims(dst->ndim, dst->dim, src->ndim, src->dim);
    struct cast_attrs a = { .dtype = { dst->dtype } };
    aril_tensor *in[2] = { src, dst };
    aril__run r = { .op = src->dtype == dst->dtype || !same ? &aril__op_copy : &aril__op_cast,
                    .n_in = src->dtype == dst->dtype || !same ? 2 : 1,
                    .n_out = 1,
                    .in = in,
                    .out = &dst,
                    .type = (aril_dtype)src->dtype,
                    .device = dst->storage->device };
    if (r.op == &aril__op_cast) r.attrs = &a;
    return aril__dispatch_to_row(&r, status);
}

/* The bytes from a tensor's first element in memory to its last. */
typedef struct span {
    size_t begin, bytes;
    int64_t first; /* the element at `begin` */
} span;

static span span_of(const aril_tensor *t)
{
    int64_t low = t->offset, high = t->offset;
    for (int i = 0; i < t->ndim; i++)
        *(t->stride[i] < 0 ? &low : &high) += (t->dim[i] - 1) * t->stride[i];
    unsigned bits = aril__dtypes[t->dtype].bits;
    if (bits < 8) low -= low % (8 / bits); /* a byte is copied whole */
    size_t begin = aril__dtype_bytes((aril_dtype)t->dtype, low);
    return (span){ begin, aril__dtype_bytes((aril_dtype)t->dtype, high + 1) - begin, low };
}

static void log_span(const aril_tensor *t, size_t bytes)
{
    char text[ARIL__SHAPE_TEXT];
    aril__log(ARIL__LOG_DISPATCH,
              "copy %s %s: %s has no row for it, a span of %zu bytes passes through the host",
              aril__dtypes[t->dtype].name, aril__text(text, t), t->storage->device->kind_name,
              bytes);
}

/* A tensor in host memory with the layout of `t`, over the span of its elements; not filled. */
static aril_tensor *host_span(aril__thread *th, const aril_tensor *t, span s)
{
    aril_tensor *h = aril__tensor_header(th, (aril_dtype)t->dtype, t->ndim, t->dim);
    if (!h) return aril__poison();
    memcpy(h->stride, t->stride, sizeof t->stride);
    h->offset = t->offset - s.first;
    h->storage = aril__storage_new(th, aril__cpu_device, s.bytes);
    if (h->storage) return aril__give(th, h);
    aril__tensor_release(th, h);
    return aril__poison();
}

static aril_tensor *new_like(aril__thread *th, const aril_tensor *t, aril__device *d)
{
    return aril__give(th, aril__tensor_new(th, (aril_dtype)t->dtype, t->ndim, t->dim, d));
}

/* A contiguous tensor on the same device with the elements of `t`, by a row; t itself if the device
 * has no row for it. */
static aril_tensor *packed(aril__thread *th, aril_tensor *t)
{
    aril_tensor *p = new_like(th, t, t->storage->device);
    aril_status s = aril_tensor_status(p);
    if (s < 0) return p;
    if (!copy_by_row(p, t, &s)) return t;
    return s < 0 ? aril__poison() : p;
}

/* A tensor in host memory with the elements of `t`; poison on failure. */
static aril_tensor *to_host(aril__thread *th, aril_tensor *t)
{
    aril_tensor *from = aril__is_packed(t) ? t : packed(th, t);
    if (aril__is_poison(from)) return from;
    span s = span_of(from);
    aril_tensor *h = host_span(th, from, s);
    if (aril__is_poison(h)) return h;
    if (aril__log_on(ARIL__LOG_DISPATCH) && s.bytes > bytes_of(from)) log_span(from, s.bytes);
    aril__device *d = from->storage->device;
    aril_status status = aril__before_use(from->storage, false);
    if (status == ARIL_OK)
        status = aril__device_read(d, h->storage->data, aril__base(from) + s.begin, s.bytes);
    return status < 0 ? aril__poison() : h;
}

/* Writes a host tensor to one of the same dtype and order in memory on a device. */
static aril_status write_plain(aril_tensor *dst, const aril_tensor *src)
{
    aril__device *d = dst->storage->device;
    aril_status s = aril__before_use(dst->storage, true);
    if (s < 0) return s;
    if (src->storage->deleter == aril__pinned_release)
        return aril__pinned_write(d, aril__ptr(dst), src->storage->deleter_ctx, aril__ptr(src),
                                  bytes_of(src));
    return aril__device_write(d, aril__ptr(dst), aril__ptr(src), bytes_of(src));
}

/* Writes to part of a device's memory that has other elements in between, without a row: reads the
 * span, changes it, and writes it back. */
static aril_status put_in_span(aril__thread *th, aril_tensor *dst, const aril_tensor *src)
{
    span s = span_of(dst);
    aril_tensor *h = host_span(th, dst, s);
    if (aril__is_poison(h)) return aril_tensor_status(h);
    if (aril__log_on(ARIL__LOG_DISPATCH)) log_span(dst, s.bytes);
    aril__device *d = dst->storage->device;
    char *at = aril__base(dst) + s.begin;
    aril_status status = aril__before_use(dst->storage, true);
    if (status == ARIL_OK) status = aril__device_read(d, h->storage->data, at, s.bytes);
    if (status < 0) return status;
    aril__copy_elements(h, src);
    return aril__device_write(d, at, h->storage->data, s.bytes);
}

/* Copies a host tensor, broadcast and converted, to one on a device. */
static aril_status put(aril__thread *th, aril_tensor *dst, const aril_tensor *src)
{
    if (is_plain(dst, src)) return write_plain(dst, src);
    bool bits = aril__dtypes[dst->dtype].bits < 8;
    if (aril__is_packed(dst) && !bits) { /* its layout, filled by the host */
        span s = span_of(dst);
        aril_tensor *h = host_span(th, dst, s);
        if (aril__is_poison(h)) return aril_tensor_status(h);
        aril__copy_elements(h, src);
        aril_status status = aril__before_use(dst->storage, true);
        if (status < 0) return status;
        return aril__device_write(dst->storage->device, aril__base(dst) + s.begin, h->storage->data,
                                  s.bytes);
    }
    aril_tensor *h = new_like(th, dst, aril__cpu_device);
    aril_tensor *p = new_like(th, dst, dst->storage->device);
    aril_status status = aril_tensor_status(h);
    if (status == ARIL_OK) status = aril_tensor_status(p);
    if (status < 0) return status;
    aril__copy_elements(h, src);
    status = aril__device_write(p->storage->device, p->storage->data, h->storage->data,
                                p->storage->bytes);
    if (status < 0 || copy_by_row(dst, p, &status)) return status;
    return put_in_span(th, dst, h);
}

static aril_status copy_within(aril__thread *th, aril_tensor *dst, aril_tensor *src)
{
    aril_status s;
    if (is_plain(dst, src)) {
        s = aril__before_use(src->storage, false);
        if (s == ARIL_OK) s = aril__before_use(dst->storage, true);
        if (s < 0) return s;
        return aril__device_move(dst->storage->device, aril__ptr(dst), aril__ptr(src),
                                 bytes_of(src));
    }
    if (copy_by_row(dst, src, &s)) return s;
    aril_tensor *h = to_host(th, src);
    return aril__is_poison(h) ? aril_tensor_status(h) : put(th, dst, h);
}

aril_status aril__copy_across(aril_tensor *dst, aril_tensor *src)
{
    if (on_host(src) && on_host(dst)) {
        aril__copy_elements(dst, src);
        return ARIL_OK;
    }
    if (dst->numel == 0) return ARIL_OK;
    ARIL_SCOPE;
    aril__thread *th = aril__self();
    aril__device *from = src->storage->device, *to = dst->storage->device;
    if (from == to) return copy_within(th, dst, src);
    if (on_host(src)) return put(th, dst, src);
    aril_status s = aril__before_use(src->storage, false);
    if (s < 0) return s;
    if (on_host(dst) && is_plain(dst, src))
        return aril__device_read(from, aril__ptr(dst), aril__ptr(src), bytes_of(src));
    if (aril__device_reaches(to, from)) {
        aril_tensor *p = aril__is_dense(src) || is_plain(dst, src) ? src : packed(th, src);
        if (aril__is_poison(p)) return aril_tensor_status(p);
        if (is_plain(dst, p) && (s = aril__before_use(dst->storage, true)) < 0) return s;
        if (is_plain(dst, p))
            return aril__device_copy_from(to, aril__ptr(dst), from, aril__ptr(p), bytes_of(p));
    }
    aril_tensor *h = to_host(th, src);
    if (aril__is_poison(h)) return aril_tensor_status(h);
    if (!on_host(dst)) return put(th, dst, h);
    aril__copy_elements(dst, h);
    return ARIL_OK;
}

/* ---- ops ---- */

static aril_status same_infer(aril__call *c)
{
    aril__meta *o = &c->out[0];
    o->dtype = (aril_dtype)c->in[0]->dtype;
    o->ndim = c->in[0]->ndim;
    memcpy(o->dim, c->in[0]->dim, (size_t)o->ndim * sizeof *o->dim);
    return ARIL_OK;
}

/* In-place copies broadcast: an optional second input gives the shape. */
static aril_status copy_infer(aril__call *c)
{
    const aril_tensor *like = c->n_in > 1 ? c->in[1] : c->in[0];
    aril__meta *o = &c->out[0];
    o->dtype = (aril_dtype)like->dtype;
    o->ndim = like->ndim;
    memcpy(o->dim, like->dim, (size_t)o->ndim * sizeof *o->dim);
    if (like == c->in[0]) return ARIL_OK;
    int n = o->ndim;
    int64_t dim[ARIL_MAX_DIMS];
    memcpy(dim, o->dim, sizeof dim);
    if (!aril__broadcast(&n, dim, c->in[0]->ndim, c->in[0]->dim) ||
        !aril__dims_fit(n, dim, o->ndim, o->dim)) {
        char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_SHAPE, "copy: %s does not broadcast to %s",
                          aril__text(a, c->in[0]), aril__text(b, like));
    }
    return ARIL_OK;
}

static aril_status contiguous_infer(aril__call *c)
{
    same_infer(c);
    return ARIL_OK;
}

static aril_status copy_ref(aril__run *r)
{
    return aril__copy_across(r->out[0], r->in[0]);
}

VJP(copy)
{
    if (c->g[0]) GRAD(0, aril__undo_broadcast(c->g[0], c->x[0]));
}

static const aril__sample copy_samples[] = {
    { .in = { "[2,3]" } }, { .in = { "[]" } }, { .in = { "[0,2]" } }, SAMPLE_END
};
OP(copy, .doc = "a copy with its own memory", .onnx = "Identity", .min_in = 1, .max_in = 2,
   .n_out = 1, .flags = STRIDED | KEEPS_ORDER | RAW | ANYWHERE, .optional = IN(1),
   .shape_only = IN(1), .infer = copy_infer, .ref = copy_ref, .vjp = copy_vjp, .saves = { LIKE(0) },
   .samples = copy_samples);

/* ---- contiguous: in traces ---- */

static const aril__sample contiguous_samples[] = { { .in = { "[2,3]" }, .flags = SAMPLE_BATCH },
                                                   { .in = { "[]" } },
                                                   SAMPLE_END };
OP(contiguous, .doc = "a copy in row-major order", .onnx = "Identity", .min_in = 1, .max_in = 1,
   .n_out = 1, .flags = STRIDED | RAW | ANYWHERE, .infer = contiguous_infer, .ref = copy_ref,
   .vjp = copy_vjp, .saves = { LIKE(0) }, .samples = contiguous_samples);

ATTR_LIST(cast, CAST_ATTRS)

static aril_status cast_infer(aril__call *c)
{
    const struct cast_attrs *a = c->attrs;
    if (a->dtype[0] < 0 || a->dtype[0] >= ARIL__DTYPE_COUNT)
        return aril__fail(ARIL_ERR_DTYPE, "cast: unknown dtype %lld", (long long)a->dtype[0]);
    same_infer(c);
    c->out[0].dtype = (aril_dtype)a->dtype[0];
    return ARIL_OK;
}

VJP(cast)
{
    if (c->g[0]) GRAD(0, aril_cast(c->g[0], (aril_dtype)c->x[0]->dtype));
}

static const aril__sample cast_samples[] = {
    { .in = { "[2,3]" }, .attrs = &(const struct cast_attrs){ .dtype = { ARIL_F64 } } }, SAMPLE_END
};
OP(cast, .doc = "converts to another dtype", .onnx = "Cast", .min_in = 1, .max_in = 1, .n_out = 1,
   .flags = STRIDED | KEEPS_ORDER | RAW | ANYWHERE, .infer = cast_infer, .ref = copy_ref,
   .vjp = cast_vjp, .saves = { LIKE(0) }, .samples = cast_samples, WITH_ATTRS(cast));

ATTR_LIST(to_device, TO_DEVICE_ATTRS)

/* The result is on another device: the rule moves the call there, and the copy reads across
 * devices. */
static aril_status to_device_infer(aril__call *c)
{
    const struct to_device_attrs *a = c->attrs;
    aril__device *d =
        a->device[0] == ARIL__SESSION_DEVICE
            ? aril__cpu_device
            : aril__device_find((aril_device){ (int16_t)a->device[0], (int16_t)a->device[1] });
    if (!d) return ARIL_ERR_DEVICE;
    same_infer(c);
    c->device = d;
    return ARIL_OK;
}

VJP(to_device)
{
    if (!c->g[0]) return;
    const struct to_device_attrs *a = c->attrs;
    if (a->from[0] == ARIL__SESSION_DEVICE)
        GRAD(0, aril__to_session(c->g[0]));
    else
        GRAD(0, aril_to(c->g[0], (aril_device){ (int16_t)a->from[0], (int16_t)a->from[1] }));
}

static const aril__sample to_device_samples[] = {
    { .in = { "[2,3]" }, .attrs = &(const struct to_device_attrs){ .device = { 0 } } }, SAMPLE_END
};
OP(to_device, .doc = "a copy on another device", .min_in = 1, .max_in = 1, .n_out = 1,
   .flags = STRIDED | KEEPS_ORDER | RAW | ANYWHERE, .infer = to_device_infer, .ref = copy_ref,
   .vjp = to_device_vjp, .samples = to_device_samples, WITH_ATTRS(to_device));

/* ---- public ---- */

aril_tensor *aril_copy(aril_tensor *x)
{
    return aril__op(&aril__op_copy, x);
}

aril_tensor *aril_copy_(aril_tensor *dst, aril_tensor *src)
{
    if (dst && src && !((dst->flags | src->flags) & ARIL__POISON) && !aril__is_number(src))
        src = aril_to(src, aril_device_of(dst));
    return aril__apply_to(dst, &aril__op_copy, 2, (aril_tensor *[]){ src, dst }, NULL);
}

aril_tensor *aril_cast(aril_tensor *x, aril_dtype dtype)
{
    if (x && !(x->flags & (ARIL__POISON | ARIL__WEAK)) && x->dtype == dtype) return x;
    struct cast_attrs a = { .dtype = { dtype } };
    return aril__op_with(&a, &aril__op_cast, x);
}

aril_tensor *aril_contiguous(aril_tensor *x)
{
    if (!x) return aril__null_tensor("contiguous");
    if (aril__is_poison(x)) return aril__pass_on(x);
    if (aril__is_dense(x)) return x;
    if (x->flags & ARIL__SYMBOLIC || aril__self()->tracer) return aril__op(&aril__op_contiguous, x);
    aril_tensor *dense = aril_empty(aril__shape(x), (aril_dtype)x->dtype, aril_device_of(x));
    return aril_copy_(dense, x);
}

/* In ops that a trace records: the dimensions as N, spatial, C, copied, and back. */
static aril_tensor *symbolic_channels_last(aril_tensor *x)
{
    int n = x->ndim;
    aril_axes to = { .n = n }, back = { .n = n, .axis = { 0, n - 1 } };
    for (int i = 1; i < n; i++) to.axis[i] = i < n - 1 ? i + 1 : 1;
    for (int i = 2; i < n; i++) back.axis[i] = i - 1;
    return aril_permute(aril_contiguous(aril_permute(x, to)), back);
}

aril_tensor *aril_channels_last(aril_tensor *x)
{
    if (!x) return aril__null_tensor("channels_last");
    if (aril__is_poison(x)) return aril__pass_on(x);
    if (x->ndim < 3) {
        char text[ARIL__SHAPE_TEXT];
        aril__fail(ARIL_ERR_SHAPE, "channels_last: expected [N,C,spatial...], got %s",
                   aril__text(text, x));
        return aril__poison();
    }
    if (aril_is_channels_last(x)) return x;
    if (x->flags & ARIL__SYMBOLIC) return symbolic_channels_last(x);
    aril_tensor *t = aril_empty(aril__shape(x), (aril_dtype)x->dtype, x->storage->device->id);
    if (aril__is_poison(t)) return aril__pass_on(t);
    int64_t step = 1;
    for (int i = 0; i < t->ndim; i++) { /* C, then the spatial axes from the last, then N */
        int d = i == 0 ? 1 : i < t->ndim - 1 ? t->ndim - i : 0;
        t->stride[d] = step;
        step *= t->dim[d] > 1 ? t->dim[d] : 1;
    }
    t->flags |= ARIL__CHANNELS_LAST;
    return aril_copy_(t, x);
}

/* What a defined graph has on the CPU is on the device of a session. */
static bool is_of_session(const aril_tensor *x)
{
    return x->flags & ARIL__SYMBOLIC && x->u.symbol &&
           ((const aril__symbol *)x->u.symbol)->owner->tracer &&
           aril__tensor_device(x) == aril__cpu_device;
}

aril_tensor *aril__to_session(aril_tensor *x)
{
    aril_device from = aril_device_of(x);
    struct to_device_attrs a = { .device = { ARIL__SESSION_DEVICE },
                                 .from = { from.kind, from.index } };
    return aril__op_with(&a, &aril__op_to_device, x);
}

aril_tensor *aril__to_placed(aril_tensor *x, aril_device device)
{
    bool placed = x && (x->storage || x->flags & ARIL__SYMBOLIC);
    aril_device from = placed ? aril_device_of(x) : aril_cpu();
    struct to_device_attrs a = { .device = { device.kind, device.index },
                                 .from = { from.kind, from.index } };
    if (placed && is_of_session(x)) a.from[0] = ARIL__SESSION_DEVICE;
    return aril__op_with(&a, &aril__op_to_device, x);
}

aril_tensor *aril_to(aril_tensor *x, aril_device device)
{
    bool placed = x && (x->storage || x->flags & ARIL__SYMBOLIC);
    if (placed && aril_device_equal(aril_device_of(x), device)) return x;
    return aril__to_placed(x, device);
}
