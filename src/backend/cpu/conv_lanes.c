/* Compiled with fused multiplication and addition: see CMakeLists.txt. */
#include "backend/cpu/conv_lanes.h"

#include "aril/ops.h"
#include "core/parallel.h"
#include "ops/activation.h"
#include "ops/conv.h"
#include "ops/copy.h"

enum {
    SAMPLES = 16,         /* batches are whole multiples of it: a vector of floats */
    MOST_CHANNELS = 8,    /* of the result */
    MOST_TAPS = 128,      /* of the kernel */
    CHUNK_WORK = 1 << 18, /* multiplications of one piece of the loop */
};

typedef struct job {
    aril__conv d;
    bool data;            /* from y to x */
    aril_dtype type;      /* f32 or f64 */
    int64_t from_c, to_c; /* channels of the source and of the result */
    const void *source;   /* [places, from_c, batch] */
    void *result;         /* [places, to_c, batch] */
    const void *w;        /* [taps, from_c, to_c] */
    const void *bias;     /* [to_c] */
} job;

#define TEMPLATE "backend/cpu/conv_lanes.inc"
#include "ops/each_target.inc"

const char *aril__cpu_conv_lanes_prepare(const aril__run *r, aril__plan *plan)
{
    (void)plan;
    aril__conv d;
    aril__conv_describe(r, &d);
    bool data = r->op != &aril__op_conv;
    int64_t taps = d.kernel[0] * d.kernel[1] * d.kernel[2];
    if (r->out[0]->numel == 0 || r->in[0]->numel == 0) return "nothing to be done";
    if (d.groups != 1) return "groups";
    if (d.batch % SAMPLES != 0) return "the batch is no multiple of 16";
    if ((data ? d.c : d.k) > MOST_CHANNELS) return "many channels";
    if (taps > MOST_TAPS) return "a large kernel";
    return taps == 1 ? "a kernel of one position" : NULL;
}

/* Channels and samples last: [spatial..., C, N]. */
static aril_axes lanes_axes(int ndim, bool back)
{
    aril_axes a = { .n = ndim };
    for (int i = 0; i < ndim; i++) {
        int from = i < ndim - 2 ? i + 2 : ndim - 1 - i;
        if (back)
            a.axis[from] = i;
        else
            a.axis[i] = from;
    }
    return a;
}

static void pack(const job *j, int64_t taps, void *space)
{
    const aril__conv *d = &j->d;
    for (int64_t q = 0; q < taps; q++) {
        int64_t q2 = q % d->kernel[2], q1 = q / d->kernel[2] % d->kernel[1],
                q0 = q / (d->kernel[2] * d->kernel[1]);
        int64_t at = q0 * d->w_stride[2] + q1 * d->w_stride[3] + q2 * d->w_stride[4];
        for (int64_t f = 0; f < j->from_c; f++)
            for (int64_t t = 0; t < j->to_c; t++) {
                int64_t k = j->data ? f : t, c = j->data ? t : f;
                int64_t from = at + k * d->w_stride[0] + c * d->w_stride[1];
                int64_t to = (q * j->from_c + f) * j->to_c + t;
                if (j->type == ARIL_F64)
                    ((double *)space)[to] = ((const double *)d->w)[from];
                else
                    ((float *)space)[to] = ((const float *)d->w)[from];
            }
    }
    for (int64_t t = 0; t < j->to_c; t++) {
        int64_t to = taps * j->from_c * j->to_c + t, from = t * d->bias_stride;
        if (j->type == ARIL_F64)
            ((double *)space)[to] = d->bias ? ((const double *)d->bias)[from] : 0;
        else
            ((float *)space)[to] = d->bias ? ((const float *)d->bias)[from] : 0;
    }
}

aril_status aril__cpu_conv_lanes(aril__run *r)
{
    ARIL_SCOPE;
    ARIL_INFERENCE;
    aril__thread *th = aril__self();
    th->mode.anomaly = false; /* the result is looked at once, where the op ends */
    job j = { .data = r->op != &aril__op_conv, .type = r->type };
    aril__conv_describe(r, &j.d);
    const aril__conv *d = &j.d;
    j.from_c = j.data ? d->k : d->c;
    j.to_c = j.data ? d->c : d->k;
    int ndim = r->out[0]->ndim;
    aril_tensor *source = aril_contiguous(aril_permute(r->in[0], lanes_axes(ndim, false)));
    int64_t dim[ARIL_MAX_DIMS];
    for (int i = 0; i < ndim; i++) dim[i] = r->out[0]->dim[i < ndim - 2 ? i + 2 : ndim - 1 - i];
    aril_tensor *result = aril__give(th, aril__tensor_new(th, r->type, ndim, dim, r->device));
    int64_t taps = d->kernel[0] * d->kernel[1] * d->kernel[2], n = (taps * j.from_c + 1) * j.to_c;
    aril_tensor *w = aril__give(th, aril__tensor_new(th, r->type, 1, &n, r->device));
    aril_tensor *turned = aril_permute(result, lanes_axes(ndim, true));
    aril_status s = aril_tensor_status(source);
    if (s == ARIL_OK) s = aril_tensor_status(w);
    if (s == ARIL_OK) s = aril_tensor_status(turned);
    if (s < 0) return s;

    j.source = aril__ptr(source);
    j.result = aril__ptr(result);
    j.w = aril__ptr(w);
    pack(&j, taps, aril__ptr(w));
    j.bias = (char *)aril__ptr(w) + aril__dtype_bytes(r->type, n - j.to_c);
    const int64_t *size = j.data ? d->in : d->out;
    int64_t work = taps * j.from_c * j.to_c * d->batch;
    aril__parallel_for(size[0] * size[1] * size[2], work < CHUNK_WORK ? CHUNK_WORK / work : 1,
                       ARIL__PICK(conv_lanes, r->type == ARIL_F64), &j);
    aril__copy_elements(r->out[0], turned);
    return ARIL_OK;
}
