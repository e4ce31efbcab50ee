/* Work cut into pieces of nearly the same size along one dimension (samples, rows): each is run by a
 * primitive in one of Aril's threads. There are at most two sizes, and so two primitives. */
#ifndef ARIL_BACKEND_ONEDNN_CUT_H
#define ARIL_BACKEND_ONEDNN_CUT_H

#include "backend/onednn/onednn.h"

typedef struct aril__dnn_cut {
    int64_t units, pieces; /* piece k is [units * k / pieces, units * (k + 1) / pieces) */
    int64_t size[2];       /* units of a piece of each kind */
    aril__dnn kind[2];     /* the second is made only where the pieces differ */
} aril__dnn_cut;

/* Makes a primitive for so many units. Returns NULL, or why it cannot be. */
typedef const char *aril__dnn_maker(void *ctx, int64_t units, aril__dnn *made);

/* Cuts into so many pieces and makes the primitives. Where those of one size have no fast kernel, the
 * pieces are fewer, or the whole. After an error there is nothing to destroy. */
const char *aril__dnn_cut_make(aril__dnn_cut *c, int64_t units, int64_t pieces,
                               aril__dnn_maker *make, void *ctx);
void aril__dnn_cut_destroy(aril__dnn_cut *c);

/* One run: argument i of piece k, which begins at unit u, lies at data[i] + u * step[i] +
 * k * part[i] bytes. */
typedef struct aril__dnn_args {
    void *data[ARIL__DNN_ARGS];
    int64_t step[ARIL__DNN_ARGS];
    int64_t part[ARIL__DNN_ARGS];
} aril__dnn_args;

dnnl_status_t aril__dnn_cut_run(aril__dnn_cut *c, aril__device *device, const aril__dnn_args *args);

/* One piece of a run, in the calling thread. */
dnnl_status_t aril__dnn_cut_piece(aril__dnn_cut *c, int64_t k, aril__device *device,
                                  const aril__dnn_args *args);

/* The primitive of piece k, and the first unit of it. */
static inline int64_t aril__dnn_cut_begin(const aril__dnn_cut *c, int64_t k)
{
    return c->units * k / c->pieces;
}
static inline aril__dnn *aril__dnn_cut_kind(aril__dnn_cut *c, int64_t k)
{
    int64_t size = aril__dnn_cut_begin(c, k + 1) - aril__dnn_cut_begin(c, k);
    return &c->kind[size != c->size[0]];
}

/* The n elements of a dense tensor as f32: where they lie, or converted into `space`. */
static inline float *aril__dnn_floats(const aril_tensor *t, int64_t n, float *space)
{
    if (t->dtype == ARIL_F32) return aril__ptr(t);
    aril__dtypes[t->dtype].load[ARIL__C_F32](space, aril__base(t), t->offset, 1, n);
    return space;
}

/* For a run whose values turn out to be such that oneDNN would not give what the op defines: lets
 * the reference do it. */
aril_status aril__dnn_leave_it(const aril__run *r);

#endif
