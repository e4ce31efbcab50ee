#include "ops/table/flops.h"

#include "core/log.h"
#include "core/profile.h"

#include <pthread.h>
#include <string.h>

double aril__flops(const aril__run *r)
{
    if (r->op->flops) return r->op->flops(r);
    if (r->op->flags & RAW || !aril__is_float(r->type)) return 0;
    double max = r->n_out ? aril__numel_of(r->out[0]) : 0, list = 0;
    for (int i = r->op->fixed; r->op->each && i < r->n_in; i += r->op->each)
        list += aril__numel_of(r->in[i]);
    if (r->op->each) return list;
    for (int i = 0; i < r->n_in; i++)
        if (r->in[i] && !(i < 31 && r->op->shape_only >> i & 1) && aril__numel_of(r->in[i]) > max)
            max = aril__numel_of(r->in[i]);
    return r->n_in ? max : 0;
}

static double bytes_of(const aril_tensor *t)
{
    if (!t || t->numel <= 0) return 0;
    int64_t elements = 1;
    for (int d = 0; d < t->ndim; d++)
        if (t->stride[d] != 0) elements *= t->dim[d];
    return (double)aril__dtype_bytes((aril_dtype)t->dtype, elements);
}

double aril__bytes_moved(const aril__run *r)
{
    double bytes = 0;
    for (int i = 0; i < r->n_in; i++)
        if (!(i < 31 && r->op->shape_only >> i & 1)) bytes += bytes_of(r->in[i]);
    for (int i = 0; i < r->n_in && r->op->writes; i++)
        if (aril__changes(r->op, i)) bytes += bytes_of(r->in[i]);
    for (int i = 0; i < r->n_out; i++) bytes += bytes_of(r->out[i]);
    return bytes;
}

/* The operations per second that the device of a run reaches at most. Only products use units for
 * narrow dtypes. */
static double rate_of(const aril__run *r)
{
    const aril_limits *l = &r->device->limits;
    bool product = r->op->flops != NULL;
    double rate = r->type == ARIL_F64                                     ? l->f64
                  : product && r->type == ARIL_F16                        ? l->f16
                  : product && r->type == ARIL_BF16                       ? l->bf16
                  : product && r->type == ARIL_F32 && aril_tf32_allowed() ? l->tf32
                                                                          : 0;
    return rate > 0 ? rate : l->f32;
}

/* How long the device takes at least to move the bytes and to compute. */
static double least_seconds(const aril__run *r, double bytes, double flop)
{
    const aril_limits *l = &r->device->limits;
    double rate = rate_of(r), moving = l->bytes > 0 ? bytes / l->bytes : 0;
    double computing = rate > 0 ? flop / rate : 0;
    return moving > computing ? moving : computing;
}

void aril__profile_note(const aril__run *r, const char *kernel)
{
    char text[160] = "", shape[ARIL__SHAPE_TEXT];
    size_t n = 0;
    bool shapes = aril__profile_wants_shapes();
    for (int i = 0; shapes && i < r->n_in && n < sizeof text - 1; i++) {
        const aril_tensor *t = r->in[i];
        int k = snprintf(text + n, sizeof text - n, "%s%s", i ? " " : "",
                         t ? aril__text(shape, t) : "-");
        n += k > 0 ? (size_t)k : 0;
    }
    aril__work work = { 0 };
    if (kernel) { /* otherwise count the ops of its decomposition */
        work.bytes = aril__bytes_moved(r);
        work.flop = aril__flops(r);
        work.least = least_seconds(r, work.bytes, work.flop);
    }
    aril__span_note(kernel, text, work);
}

/* ---- meters ---- */

static _Thread_local aril__meter *meter;
static pthread_mutex_t meters_lock = PTHREAD_MUTEX_INITIALIZER; /* guards `meters` and the mask's
                                                                 * bit */
static int meters;                                              /* number of threads with a meter */

aril__meter *aril__meter_set(aril__meter *m)
{
    aril__meter *before = meter;
    pthread_mutex_lock(&meters_lock);
    meters += (m != NULL) - (before != NULL);
    if (meters)
        __atomic_fetch_or(&aril__log_mask, ARIL__LOG_METER, __ATOMIC_RELAXED);
    else
        __atomic_fetch_and(&aril__log_mask, ~(unsigned)ARIL__LOG_METER, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&meters_lock);
    meter = m;
    return before;
}

void aril__meter_note(const aril__run *r)
{
    if (meter) meter->note(meter, r);
}
