#include "ops/shape/create.h"

#include "aril/create.h"
#include "aril/math.h"
#include "core/parallel.h"
#include "core/stream.h"
#include "ops/table/apply.h"
#include "ops/table/element.h"
#include "ops/shape/copy.h"
#include "ops/table/sample.h"

#include <math.h>
#include <string.h>

ATTR_LIST(create, CREATE_ATTRS)

aril_status aril__create_attrs(const char *what, aril_shape shape, aril_dtype dtype,
                               aril_device device, struct create_attrs *out)
{
    memset(out, 0, sizeof *out);
    if ((int)dtype < 0 || (int)dtype >= ARIL__DTYPE_COUNT)
        return aril__fail(ARIL_ERR_DTYPE, "%s: unknown dtype %d", what, (int)dtype);
    aril_status s = aril__check_shape(what, shape, false);
    if (s < 0) return s;
    out->ndim[0] = shape.ndim;
    memcpy(out->dim, shape.dim, (size_t)shape.ndim * sizeof *shape.dim);
    out->dtype[0] = dtype;
    out->device[0] = device.kind;
    out->device[1] = device.index;
    return ARIL_OK;
}

aril_status aril__create_infer(aril__call *c)
{
    const struct create_attrs *a = c->attrs;
    aril__meta *o = &c->out[0];
    c->device = aril__device_find((aril_device){ (int16_t)a->device[0], (int16_t)a->device[1] });
    if (!c->device) return ARIL_ERR_DEVICE;
    o->dtype = c->type = (aril_dtype)a->dtype[0];
    o->ndim = (int)a->ndim[0];
    memcpy(o->dim, a->dim, (size_t)o->ndim * sizeof *o->dim);
    return ARIL_OK;
}

/* ---- full ---- */

enum { PATTERN = 512, GRAIN = 256 * 1024 }; /* bytes: written at a time; that pay for a thread */

typedef struct fill_job {
    _Alignas(64) char pattern[PATTERN]; /* the element, repeated */
    char *to;
    size_t bytes, step; /* of the memory, and of the pattern that it needs */
    bool stream;
} fill_job;

/* memcpy stores the widest vectors of the machine, if the compiler does not know its size. */
static void fill_range(void *ctx, int64_t begin, int64_t end)
{
    const fill_job *j = ctx;
    size_t at = (size_t)begin * PATTERN, last = (size_t)end * PATTERN;
    if (last > j->bytes) last = j->bytes;
    if (j->stream) {
        for (; at + j->step <= last; at += j->step)
            aril__stream_copy(j->to + at, j->pattern, j->step);
        aril__stream_end();
    } else {
        for (; at + j->step <= last; at += j->step) memcpy(j->to + at, j->pattern, j->step);
    }
    memcpy(j->to + at, j->pattern, last - at);
}

/* Fills memory without gaps with one element. */
static void fill_packed(aril_tensor *out, const void *element)
{
    size_t size = aril__dtype_bytes((aril_dtype)out->dtype, 1);
    fill_job j;
    j.bytes = aril__dtype_bytes((aril_dtype)out->dtype, out->numel);
    j.step = j.bytes < PATTERN ? j.bytes : PATTERN;
    j.stream = j.bytes >= ARIL__STREAM_STORES_FROM;
    for (size_t i = 0; i < j.step; i += size) memcpy(j.pattern + i, element, size);
    j.to = aril__base(out) + (size_t)out->offset * size;
    aril__parallel_for((int64_t)((j.bytes + PATTERN - 1) / PATTERN), GRAIN / PATTERN, fill_range,
                       &j);
}

static void fill(aril_tensor *out, double real, int64_t integer, bool is_integer)
{
    aril__ctype c = is_integer ? ARIL__C_I64 : ARIL__C_F64;
    const void *value = is_integer ? (void *)&integer : (void *)&real;
    if (out->numel == 1) {
        aril__dtypes[out->dtype].store[c](aril__base(out), out->offset, 1, value, 1);
        return;
    }
    if (aril__is_packed(out) && aril__dtypes[out->dtype].bits >= 8) {
        uint64_t element = 0;
        aril__dtypes[out->dtype].store[c](&element, 0, 1, value, 1);
        fill_packed(out, &element);
        return;
    }
    aril__storage s = { .data = is_integer ? (void *)&integer : (void *)&real, .bytes = 8 };
    aril_tensor one = { .dtype = is_integer ? ARIL_I64 : ARIL_F64, .numel = 1, .storage = &s };
    aril__copy_elements(out, &one);
}

static aril_status full_ref(aril__run *r)
{
    const struct create_attrs *a = r->attrs;
    fill(r->out[0], a->value[0], a->integer[0], a->integer[1]);
    return ARIL_OK;
}

static const aril__sample full_samples[] = {
    { .attrs =
          &(const struct create_attrs){
              .ndim = { 2 }, .dim = { 2, 3 }, .dtype = { ARIL_F32 }, .value = { 1.5 } } },
    { .attrs =
          &(const struct create_attrs){
              .ndim = { 1 }, .dim = { 3 }, .dtype = { ARIL_I32 }, .integer = { 7, 1 } } },
    SAMPLE_END
};
OP(full, .doc = "a tensor filled with a value", .onnx = "ConstantOfShape", .n_out = 1,
   .flags = STRIDED | NONDIFF | RAW, .infer = aril__create_infer, .ref = full_ref,
   .samples = full_samples, WITH_ATTRS(create));

ATTR_LIST(full_like, FULL_LIKE_ATTRS)

static aril_status full_like_infer(aril__call *c)
{
    const struct full_like_attrs *a = c->attrs;
    aril__meta *o = &c->out[0];
    o->dtype = a->dtype[0] < 0 ? (aril_dtype)c->in[0]->dtype : (aril_dtype)a->dtype[0];
    c->type = o->dtype;
    o->ndim = c->in[0]->ndim;
    memcpy(o->dim, c->in[0]->dim, (size_t)o->ndim * sizeof *o->dim);
    if (!c->device) c->device = aril__cpu_device;
    return ARIL_OK;
}

static aril_status full_like_ref(aril__run *r)
{
    const struct full_like_attrs *a = r->attrs;
    fill(r->out[0], a->value[0], a->integer[0], a->integer[1]);
    return ARIL_OK;
}

static const aril__sample full_like_samples[] = {
    { .in = { "[2,3]" },
      .attrs = &(const struct full_like_attrs){ { -1 }, { 2 }, { 0 } },
      .flags = SAMPLE_BATCH },
    { .in = { "[2]" }, .attrs = &(const struct full_like_attrs){ { ARIL_I64 }, { 3 }, { 3, 1 } } },
    SAMPLE_END
};
OP(full_like, .doc = "a tensor filled with a value, in the shape of another tensor", .min_in = 1,
   .max_in = 1, .n_out = 1, .flags = STRIDED | NONDIFF | RAW | KEEPS_ORDER, .shape_only = IN(0),
   .infer = full_like_infer, .ref = full_like_ref, .samples = full_like_samples,
   WITH_ATTRS(full_like));

/* ---- arange and linspace ---- */

/* Integers exactly, modulo 2^64. `from_end` computes the second half backwards from the end, so
 * that the last element is exact. */
static void put_steps(aril__run *r, bool from_end)
{
    const struct create_attrs *a = r->attrs;
    int64_t n = r->out[0]->numel;
    for (int64_t i = 0; i < n; i++) {
        uint64_t integer = (uint64_t)a->integer[0] + (uint64_t)i * (uint64_t)a->integer[2];
        if (a->integer[1])
            aril__put_i64(r->out[0], i, (int64_t)integer);
        else if (from_end && i >= n / 2 && n > 1)
            aril__put(r->out[0], i, a->value[1] - a->value[2] * (double)(n - 1 - i));
        else
            aril__put(r->out[0], i, a->value[0] + a->value[2] * (double)i);
    }
}

static aril_status arange_ref(aril__run *r)
{
    put_steps(r, false);
    return ARIL_OK;
}

static aril_status linspace_ref(aril__run *r)
{
    put_steps(r, true);
    return ARIL_OK;
}

static aril_status steps_infer(aril__call *c)
{
    aril_status s = aril__create_infer(c);
    if (s == ARIL_OK && !aril__dtypes[c->type].computes)
        return aril__fail(ARIL_ERR_DTYPE, "%s: not defined for %s", c->op->name,
                          aril__dtypes[c->type].name);
    return s;
}

static const aril__sample arange_samples[] = {
    { .attrs =
          &(const struct create_attrs){
              .ndim = { 1 }, .dim = { 5 }, .dtype = { ARIL_I64 }, .integer = { -2, 1, 3 } } },
    { .attrs =
          &(const struct create_attrs){
              .ndim = { 1 }, .dim = { 4 }, .dtype = { ARIL_F32 }, .value = { 0.5, 0, -0.25 } } },
    { .attrs = &(const struct create_attrs){ .ndim = { 1 },
                                             .dtype = { ARIL_F32 },
                                             .value = { 0, 0, 1 } } },
    SAMPLE_END
};
OP(arange, .doc = "values from start, step apart", .onnx = "Range", .n_out = 1,
   .flags = NONDIFF | RAW, .infer = steps_infer, .ref = arange_ref, .samples = arange_samples,
   WITH_ATTRS(create));

static const aril__sample linspace_samples[] = {
    { .attrs =
          &(const struct create_attrs){
              .ndim = { 1 }, .dim = { 5 }, .dtype = { ARIL_F32 }, .value = { -1, 1, 0.5 } } },
    { .attrs =
          &(const struct create_attrs){
              .ndim = { 1 }, .dim = { 1 }, .dtype = { ARIL_F64 }, .value = { 3, 4, 0 } } },
    SAMPLE_END
};
OP(linspace, .doc = "evenly spaced values from start to end, both included", .n_out = 1,
   .flags = NONDIFF | RAW, .infer = steps_infer, .ref = linspace_ref, .samples = linspace_samples,
   WITH_ATTRS(create));

/* ---- public ---- */

aril_tensor *aril_empty(aril_shape shape, aril_dtype dtype, aril_device device)
{
    aril__thread *th = aril__self();
    struct create_attrs a;
    if (aril__create_attrs("empty", shape, dtype, device, &a) < 0) return aril__poison();
    for (int d = 0; d < shape.ndim; d++) /* of a trace */
        if (shape.dim[d] < 0) return aril__apply1(&aril__op_full, 0, NULL, &a);
    aril__device *d = aril__device_find(device);
    return d ? aril__give(th, aril__tensor_new(th, dtype, shape.ndim, shape.dim, d))
             : aril__poison();
}

static aril_tensor *full(const char *what, aril_shape shape, aril_number v, aril_dtype dtype,
                         aril_device device)
{
    struct create_attrs a;
    if (aril__create_attrs(what, shape, dtype, device, &a) < 0) return aril__poison();
    a.value[0] = v.f;
    a.integer[0] = v.i;
    a.integer[1] = !v.is_float;
    return aril__apply1(&aril__op_full, 0, NULL, &a);
}

aril_tensor *(aril_full)(aril_shape shape, aril_number value, aril_dtype dtype, aril_device device)
{
    return full("full", shape, value, dtype, device);
}

aril_tensor *aril_zeros(aril_shape shape, aril_dtype dtype, aril_device device)
{
    return full("zeros", shape, ARIL_NUMBER(0), dtype, device);
}

aril_tensor *aril_ones(aril_shape shape, aril_dtype dtype, aril_device device)
{
    return full("ones", shape, ARIL_NUMBER(1), dtype, device);
}

aril_tensor *(aril_full_like)(aril_tensor *x, aril_number value)
{
    struct full_like_attrs a = { { -1 }, { value.f }, { value.i, !value.is_float } };
    return aril__op_with(&a, &aril__op_full_like, x);
}

aril_tensor *aril_zeros_like(aril_tensor *x)
{
    return aril_full_like(x, 0);
}

aril_tensor *aril_ones_like(aril_tensor *x)
{
    return aril_full_like(x, 1);
}

aril_tensor *aril_empty_like(aril_tensor *x)
{
    if (!x) return aril__null_tensor("empty_like");
    if (aril__is_poison(x)) return aril__pass_on(x);
    if (!x->storage) return aril_zeros_like(x);
    aril__thread *th = aril__self();
    aril_tensor *t =
        aril__tensor_new(th, (aril_dtype)x->dtype, x->ndim, x->dim, x->storage->device);
    if (t && !aril__is_dense(x) && aril__is_packed(x)) {
        aril__strides_like(x, x->ndim, x->dim, t->stride);
        t->flags |= x->flags & ARIL__CHANNELS_LAST;
    }
    return aril__give(th, t);
}

aril_tensor *(aril_fill_)(aril_tensor *x, aril_number value)
{
    struct full_like_attrs a = { { -1 }, { value.f }, { value.i, !value.is_float } };
    return aril__apply_to(x, &aril__op_full_like, 1, &x, &a);
}

aril_tensor *aril_zero_(aril_tensor *x)
{
    return aril_fill_(x, 0);
}

/* The number of elements from start to stop; -1 if it is too large or NaN. */
static int64_t count_steps(aril_number start, aril_number stop, aril_number step, bool integer)
{
    if (integer) {
        uint64_t span = step.i > 0 ? (uint64_t)stop.i - (uint64_t)start.i
                                   : (uint64_t)start.i - (uint64_t)stop.i;
        uint64_t by = step.i > 0 ? (uint64_t)step.i : 0 - (uint64_t)step.i;
        bool none = step.i > 0 ? stop.i <= start.i : stop.i >= start.i;
        uint64_t n = none ? 0 : (span - 1) / by + 1;
        return n > INT64_MAX / 16 ? -1 : (int64_t)n;
    }
    double n = ceil((stop.f - start.f) / step.f);
    return !(n < 0x1p59) ? -1 : n > 0 ? (int64_t)n : 0;
}

aril_tensor *(aril_arange)(aril_number start, aril_number stop, aril_number step, aril_dtype dtype,
                           aril_device device)
{
    struct create_attrs a;
    bool integer = !start.is_float && !stop.is_float && !step.is_float;
    bool unknown = integer && aril__size_is_named(stop.i); /* as many elements as that size */
    if (unknown && (start.i != 0 || step.i != 1)) {
        aril__fail(ARIL_ERR_UNSUPPORTED,
                   "arange: up to an unknown size, only start 0 and step 1 are supported");
        return aril__poison();
    }
    if (isnan(start.f) || isnan(stop.f) || isnan(step.f)) {
        aril__fail(ARIL_ERR_ARG, "arange: start %g, stop %g and step %g must not be NaN", start.f,
                   stop.f, step.f);
        return aril__poison();
    }
    if (!unknown && (step.f == 0 || (step.f > 0 ? stop.f < start.f : stop.f > start.f))) {
        aril__fail(ARIL_ERR_ARG, "arange: step %g does not lead from %g to %g", step.f, start.f,
                   stop.f);
        return aril__poison();
    }
    int64_t n = unknown ? stop.i : count_steps(start, stop, step, integer);
    if (n < 0 && !unknown) {
        aril__fail(ARIL_ERR_ARG, "arange: too many elements from %g to %g by %g", start.f, stop.f,
                   step.f);
        return aril__poison();
    }
    if (aril__create_attrs("arange", (aril_shape){ .ndim = 1, .dim = { n } }, dtype, device, &a) <
        0)
        return aril__poison();
    a.value[0] = start.f;
    a.value[2] = step.f;
    if (integer) {
        a.integer[0] = start.i;
        a.integer[1] = 1;
        a.integer[2] = step.i;
    }
    return aril__apply1(&aril__op_arange, 0, NULL, &a);
}

aril_tensor *aril_linspace(double start, double stop, int64_t steps_, aril_dtype dtype,
                           aril_device device)
{
    struct create_attrs a;
    if (aril__create_attrs("linspace", (aril_shape){ .ndim = 1, .dim = { steps_ } }, dtype, device,
                           &a) < 0)
        return aril__poison();
    a.value[0] = start;
    a.value[1] = stop;
    a.value[2] = steps_ > 1 ? (stop - start) / (double)(steps_ - 1) : 0;
    return aril__apply1(&aril__op_linspace, 0, NULL, &a);
}

aril_tensor *aril_logspace(double start, double stop, int64_t steps_, double base, aril_dtype dtype,
                           aril_device device)
{
    ARIL_SCOPE;
    aril_tensor *exponents = aril_linspace(start, stop, steps_, ARIL_F64, device);
    aril_tensor *bases = aril_full(ARIL_SHAPE(1), base, ARIL_F64, device);
    return aril_escape(aril_cast(aril_pow(bases, exponents), dtype));
}
