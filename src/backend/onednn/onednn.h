/* Shared by the oneDNN rows: one engine, thread-safe primitives, memory descriptors, and oneDNN
 * errors converted to Aril's.
 *
 * oneDNN never uses its own threads here: a row cuts its work into pieces, creates a primitive for
 * each kind of piece, and runs them in aril__parallel_for. The functions below keep each primitive
 * on the calling thread, whatever the program's OpenMP settings. */
#ifndef ARIL_BACKEND_ONEDNN_ONEDNN_H
#define ARIL_BACKEND_ONEDNN_ONEDNN_H

#include "core/derived.h"
#include "ops/table/op.h"
#include "ops/table/rows.h"

#include <oneapi/dnnl/dnnl.h>

enum {
    ARIL__DNN_ARGS = 16, /* maximum arguments of a primitive */
    ARIL__DNN_SETS = 32, /* cached memory handles per primitive, one set per thread */
};

/* The CPU engine, or NULL when oneDNN could not be started. */
dnnl_engine_t aril__dnn_engine(void);

/* A status as text: for an error, or as the reason why a row declines. */
const char *aril__dnn_text(dnnl_status_t s);

/* Records the error of a run, "conv: oneDNN: ..."; ARIL_OK for success. Call it on the op's thread,
 * not inside a piece. */
aril_status aril__dnn_status(const char *op, dnnl_status_t s);

/* oneDNN's data type for a dtype; dnnl_data_type_undef if there is none. */
dnnl_data_type_t aril__dnn_type(aril_dtype t);

/* ---- memory descriptors: NULL when out of memory; free with dnnl_memory_desc_destroy ---- */

/* A tensor with its own strides. */
dnnl_memory_desc_t aril__dnn_desc(const aril_tensor *t);
/* Sizes in logical order, with strides in elements. */
dnnl_memory_desc_t aril__dnn_strided(dnnl_data_type_t type, int ndim, const int64_t *dim,
                                     const int64_t *stride);
/* Contiguous, or channels-last (N, spatial, C). */
dnnl_memory_desc_t aril__dnn_dense(dnnl_data_type_t type, int ndim, const int64_t *dim);
dnnl_memory_desc_t aril__dnn_last(dnnl_data_type_t type, int ndim, const int64_t *dim);
/* Whether a primitive with images x and y, which must be alike, takes them channels-last rather
 * than contiguous: in x's order, or y's if x has neither. The row asks for that order through its
 * plan. */
bool aril__dnn_takes_last(const aril_tensor *x, const aril_tensor *y);
static inline uint8_t aril__dnn_image_order(bool last)
{
    return last ? ARIL_ORDER_CHANNELS_LAST : ARIL_ORDER_CONTIGUOUS;
}
/* In whatever format the primitive prefers: aril__dnn_md returns it. */
dnnl_memory_desc_t aril__dnn_any(dnnl_data_type_t type, int ndim, const int64_t *dim);

/* ---- attributes ---- */

/* Scratchpad provided by the caller, and `act` (an aril_activation) applied to the result. NULL
 * when out of memory; free with dnnl_primitive_attr_destroy. */
dnnl_primitive_attr_t aril__dnn_attr(int64_t act);
/* The same, and if `adds`, what the result's memory holds before is added before the activation. */
dnnl_primitive_attr_t aril__dnn_attr_adding(bool adds, int64_t act);

/* Applies in place, to n contiguous f32, bf16 or f16 elements, an activation that oneDNN gets wrong
 * by turning NaN into 0. */
void aril__dnn_activate(dnnl_data_type_t type, int64_t act, int64_t n, void *y);

/* ---- primitives ---- */

/* A primitive with its list of arguments; shared by threads. */
typedef struct aril__dnn {
    dnnl_primitive_t primitive; /* NULL: not created */
    const_dnnl_primitive_desc_t desc;
    int n;
    int arg[ARIL__DNN_ARGS]; /* DNNL_ARG_...: the argument that data[i] of a run is */
    size_t scratch;          /* scratchpad bytes that each run needs; 0: none */
    _Atomic(struct aril__dnn_set *) set[ARIL__DNN_SETS];
} aril__dnn;

/* Creates *d from a primitive descriptor, which it always takes ownership of; `made` is the status
 * of creating that. arg[] lists the arguments of a run, without the scratchpad. Returns NULL, or
 * the reason for failing. Rejects reference kernels, no faster than plain loops: Aril has better
 * ones.
 *
 *     dnnl_primitive_desc_t pd = NULL;
 *     dnnl_status_t s = aril__dnn_serially(dnnl_..._primitive_desc_create(&pd, ...));
 *     const int arg[] = { DNNL_ARG_SRC, DNNL_ARG_DST };
 *     const char *why = aril__dnn_make(&p->forward, s, pd, 2, arg);
 */
const char *aril__dnn_make(aril__dnn *d, dnnl_status_t made, dnnl_primitive_desc_t pd, int n,
                           const int *arg);

/* The same, but accepts reference kernels: oneDNN's fast recurrent ones are named so, too. */
const char *aril__dnn_make_any(aril__dnn *d, dnnl_status_t made, dnnl_primitive_desc_t pd, int n,
                               const int *arg);

/* A reorder between two descriptors: arguments DNNL_ARG_FROM and DNNL_ARG_TO. */
const char *aril__dnn_make_reorder(aril__dnn *d, const_dnnl_memory_desc_t from,
                                   const_dnnl_memory_desc_t to);

/* Runs it on this thread. data[i] is the address of arg[i]; `scratch` holds d->scratch bytes. */
dnnl_status_t aril__dnn_run(aril__dnn *d, void *const *data, void *scratch);

/* The memory descriptor of an argument, and its size in bytes. */
const_dnnl_memory_desc_t aril__dnn_md(const aril__dnn *d, int arg);
size_t aril__dnn_bytes(const aril__dnn *d, int arg);

void aril__dnn_destroy(aril__dnn *d);

/* ---- weights ---- */

enum { ARIL__DNN_PARTS = 4 };

/* A part of a weight in two formats, with its byte offset in each. */
typedef struct aril__dnn_span {
    const_dnnl_memory_desc_t from, to;
    size_t from_at, to_at;
} aril__dnn_span;

/* One reorder of an aril__dnn_order. */
typedef struct aril__dnn_step {
    aril__dnn reorder;
    size_t from_at, to_at;
} aril__dnn_step;

/* Reorders from a tensor's format to the one that primitives chose, or back, part by part in
 * parallel. */
typedef struct aril__dnn_order {
    bool as_is; /* both formats are the same: a no-op */
    int n;
    aril__dnn_step *step; /* [n] */
    size_t bytes;         /* of the destination */
    size_t key_size;
    unsigned char key[ARIL__DERIVED_KEY]; /* all descriptors: the cache key of the packed form */
} aril__dnn_order;

/* Creates the reorders of n parts that are adjacent in both formats; `bytes` is the total size of
 * the destination. Returns NULL, or the reason for failing; then there is nothing to destroy. */
const char *aril__dnn_order_make(aril__dnn_order *o, int n, const aril__dnn_span *span,
                                 size_t bytes);
dnnl_status_t aril__dnn_order_run(aril__dnn_order *o, void *from, void *to);
void aril__dnn_order_destroy(aril__dnn_order *o);

/* A weight in a primitive's format. */
typedef struct aril__dnn_packed {
    void *data;          /* NULL after an error */
    aril__derived *form; /* NULL: not cached */
} aril__dnn_packed;

/* The weight `w` reordered by `o`: cached, created and cached with w, or, when `keep` is false,
 * created in `space`, of o->bytes. Cached forms cost memory and are valid until w changes: pass
 * aril__dnn_keeps(w) in ops that inference runs, false in gradients. */
aril__dnn_packed aril__dnn_pack(aril__dnn_order *o, const char *op, const aril_tensor *w, bool keep,
                                void *space);
void aril__dnn_unpack(aril__dnn_packed *p);

/* False while a gradient of w is recorded, since w will then change at each step. */
bool aril__dnn_keeps(const aril_tensor *w);

/* ---- one thread ---- */

/* Sets the calling thread's number of OpenMP threads to 1, and restores it. */
int aril__dnn_enter(void);
void aril__dnn_leave(int threads);

/* Evaluates a library call whose outcome depends on the number of threads. */
#define aril__dnn_serially(call)          \
    __extension__({                       \
        int threads_ = aril__dnn_enter(); \
        dnnl_status_t status_ = (call);   \
        aril__dnn_leave(threads_);        \
        status_;                          \
    })

#endif
