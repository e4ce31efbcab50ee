/* Work cut along one dimension (samples, rows) into pieces of nearly equal size; Aril's threads run
 * a primitive on each. There are at most two sizes, and so at most two primitives. */
#ifndef ARIL_BACKEND_ONEDNN_CUT_H
#define ARIL_BACKEND_ONEDNN_CUT_H

#include "backend/onednn/onednn.h"

typedef struct aril__dnn_cut {
    int64_t units, pieces; /* piece k is [units * k / pieces, units * (k + 1) / pieces) */
    int64_t size[2];       /* units per piece of each kind */
    aril__dnn kind[2];     /* the second is created only when sizes differ */
} aril__dnn_cut;

/* Creates a primitive for `units` units. Returns NULL, or the reason for failing. */
typedef const char *aril__dnn_maker(void *ctx, int64_t units, aril__dnn *made);

/* Cuts into `pieces` pieces and creates the primitives. If a size has no fast kernel, uses fewer
 * pieces, down to one. After an error there is nothing to destroy. */
const char *aril__dnn_cut_make(aril__dnn_cut *c, int64_t units, int64_t pieces,
                               aril__dnn_maker *make, void *ctx);
void aril__dnn_cut_destroy(aril__dnn_cut *c);

/* Arguments of one run: argument i of piece k, which begins at unit u, is at data[i] + u * step[i]
 * + k * part[i] bytes. */
typedef struct aril__dnn_args {
    void *data[ARIL__DNN_ARGS];
    int64_t step[ARIL__DNN_ARGS];
    int64_t part[ARIL__DNN_ARGS];
} aril__dnn_args;

/* Adds to a plan the scratch memory of all pieces, after what it asks for already. */
void aril__dnn_cut_ask(const aril__dnn_cut *c, aril__plan *plan);

/* Runs all pieces; their scratch memory is the end of r->workspace. */
dnnl_status_t aril__dnn_cut_run(aril__dnn_cut *c, const aril__run *r, const aril__dnn_args *args);

/* Runs one piece on the calling thread, with aril__dnn_cut_scratch bytes of memory. */
dnnl_status_t aril__dnn_cut_piece(aril__dnn_cut *c, int64_t k, void *scratch,
                                  const aril__dnn_args *args);
size_t aril__dnn_cut_scratch(const aril__dnn_cut *c); /* a multiple of 64 */

/* The first unit of piece k, and its primitive. */
static inline int64_t aril__dnn_cut_begin(const aril__dnn_cut *c, int64_t k)
{
    return c->units * k / c->pieces;
}
static inline aril__dnn *aril__dnn_cut_kind(aril__dnn_cut *c, int64_t k)
{
    int64_t size = aril__dnn_cut_begin(c, k + 1) - aril__dnn_cut_begin(c, k);
    return &c->kind[size != c->size[0]];
}

/* The n elements of a contiguous tensor as f32: in place, or converted into `space`. */
static inline float *aril__dnn_floats(const aril_tensor *t, int64_t n, float *space)
{
    if (t->dtype == ARIL_F32) return aril__ptr(t);
    aril__dtypes[t->dtype].load[ARIL__C_F32](space, aril__base(t), t->offset, 1, n);
    return space;
}

/* Falls back to the reference kernel when oneDNN's result for these values would differ from the
 * op's definition. */
aril_status aril__dnn_leave_it(const aril__run *r);

#endif
