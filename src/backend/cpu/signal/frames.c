#include "backend/cpu/signal/frames.h"

#include "core/parallel.h"
#include "ops/signal/fft.h"

#include <string.h>

enum { GRAIN = 16 * 1024 };

typedef struct frames_job {
    const void *in;
    void *out;
    aril__frames f;
} frames_job;

#define TEMPLATE "backend/cpu/signal/frames.inc"
#include "ops/table/each_real.inc"

aril_status aril__cpu_frames(aril__run *r)
{
    frames_job j = { .in = aril__ptr(r->in[0]),
                     .out = aril__ptr(r->out[0]),
                     .f = aril__frames_of(r->attrs, r->out[0], r->in[0]) };
    int64_t grain = j.f.size < GRAIN ? GRAIN / j.f.size : 1;
    aril__parallel_for(r->out[0]->numel / j.f.size, grain, r->type == ARIL_F64 ? cut_f64 : cut_f32,
                       &j);
    return ARIL_OK;
}

aril_status aril__cpu_overlap_add(aril__run *r)
{
    frames_job j = { .in = aril__ptr(r->in[0]),
                     .out = aril__ptr(r->out[0]),
                     .f = aril__frames_of(r->attrs, r->in[0], r->out[0]) };
    int64_t rows = aril__count(r->out[0]->ndim - 1, r->out[0]->dim), work = j.f.count * j.f.size;
    aril__parallel_for(rows, work < GRAIN ? GRAIN / (work ? work : 1) : 1,
                       r->type == ARIL_F64 ? add_f64 : add_f32, &j);
    return ARIL_OK;
}
