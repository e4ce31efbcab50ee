/* What the rows by oneDNN share: one engine, primitives that any thread can run, descriptions of
 * memory, and the library's errors as Aril's.
 *
 * oneDNN never uses threads of its own here: a row cuts its work into pieces, makes a primitive for
 * each kind of piece, and runs them in aril__parallel_for. Made and run by the functions below, a
 * primitive uses the calling thread alone, whatever the program has told OpenMP. */
#ifndef ARIL_BACKEND_ONEDNN_ONEDNN_H
#define ARIL_BACKEND_ONEDNN_ONEDNN_H

#include "core/derived.h"
#include "ops/table/op.h"
#include "ops/table/rows.h"

#include <oneapi/dnnl/dnnl.h>

enum {
    ARIL__DNN_ARGS = 16, /* memory that one primitive can take */
    ARIL__DNN_SETS = 32, /* handles kept for the next runs of a primitive, one for each thread */
};

/* The CPU, or NULL when oneDNN could not be started. */
dnnl_engine_t aril__dnn_engine(void);

/* What a status says, in words: for an error or as the reason why a row declines. */
const char *aril__dnn_text(dnnl_status_t s);

/* Records the error of a run, "conv: oneDNN: ..."; ARIL_OK for success. Call it in the thread of the
 * op, not in a piece. */
aril_status aril__dnn_status(const char *op, dnnl_status_t s);

/* The library's name of a dtype; dnnl_data_type_undef where it has none. */
dnnl_data_type_t aril__dnn_type(aril_dtype t);

/* ---- descriptions of memory: NULL when memory is out; free with dnnl_memory_desc_destroy ---- */

/* A tensor as it lies, with its strides. */
dnnl_memory_desc_t aril__dnn_desc(const aril_tensor *t);
/* Sizes in logical order, with strides in elements. */
dnnl_memory_desc_t aril__dnn_strided(dnnl_data_type_t type, int ndim, const int64_t *dim,
                                     const int64_t *stride);
/* Dense, in logical order or channels-last (N, spatial, C). */
dnnl_memory_desc_t aril__dnn_dense(dnnl_data_type_t type, int ndim, const int64_t *dim);
dnnl_memory_desc_t aril__dnn_last(dnnl_data_type_t type, int ndim, const int64_t *dim);
/* In whatever order the primitive likes best: aril__dnn_md tells which that is. */
dnnl_memory_desc_t aril__dnn_any(dnnl_data_type_t type, int ndim, const int64_t *dim);

/* ---- attributes ---- */

/* Working memory given by the caller, and `act` (an aril_activation) applied to the result. NULL
 * when memory is out; free with dnnl_primitive_attr_destroy. */
dnnl_primitive_attr_t aril__dnn_attr(int64_t act);

/* An activation of n neighbours of f32, bf16 or f16 in place: those of which the library makes 0 of
 * NaN. */
void aril__dnn_activate(dnnl_data_type_t type, int64_t act, int64_t n, void *y);

/* ---- primitives ---- */

/* A primitive with the list of what it takes; shared by threads. */
typedef struct aril__dnn {
    dnnl_primitive_t primitive; /* NULL: not made */
    const_dnnl_primitive_desc_t desc;
    int n;
    int arg[ARIL__DNN_ARGS]; /* DNNL_ARG_...: what data[i] of a run is */
    size_t scratch;          /* bytes of working memory that each run needs; 0: none */
    _Atomic(struct aril__dnn_set *) set[ARIL__DNN_SETS];
} aril__dnn;

/* Makes *d of a primitive description, which is taken over in any case; `made` is what creating it
 * gave. arg[] lists what runs will be given, without the working memory. Returns NULL, or why it
 * cannot be. Reference kernels, no faster than plain loops, are refused: Aril has better ones.
 *
 *     dnnl_primitive_desc_t pd = NULL;
 *     dnnl_status_t s = aril__dnn_serially(dnnl_..._primitive_desc_create(&pd, ...));
 *     const char *why = aril__dnn_make(&p->forward, s, pd, 2, (int[]){ DNNL_ARG_SRC, DNNL_ARG_DST });
 */
const char *aril__dnn_make(aril__dnn *d, dnnl_status_t made, dnnl_primitive_desc_t pd, int n,
                           const int *arg);

/* The same for ops of which oneDNN has fast kernels that it calls reference, too: recurrent ones. */
const char *aril__dnn_make_any(aril__dnn *d, dnnl_status_t made, dnnl_primitive_desc_t pd, int n,
                               const int *arg);

/* A reorder from one description to the other: arguments DNNL_ARG_FROM and DNNL_ARG_TO. */
const char *aril__dnn_make_reorder(aril__dnn *d, const_dnnl_memory_desc_t from,
                                   const_dnnl_memory_desc_t to);

/* Runs it in this thread. data[i] is the address of arg[i]; `scratch` holds d->scratch bytes. */
dnnl_status_t aril__dnn_run(aril__dnn *d, void *const *data, void *scratch);

/* The memory that an argument takes: its description, and how many bytes. */
const_dnnl_memory_desc_t aril__dnn_md(const aril__dnn *d, int arg);
size_t aril__dnn_bytes(const aril__dnn *d, int arg);

void aril__dnn_destroy(aril__dnn *d);

/* ---- weights ---- */

enum { ARIL__DNN_PARTS = 4 };

/* A part of a weight in two orders, and where it begins in each, in bytes. */
typedef struct aril__dnn_span {
    const_dnnl_memory_desc_t from, to;
    size_t from_at, to_at;
} aril__dnn_span;

/* One reorder of an order. */
typedef struct aril__dnn_step {
    aril__dnn reorder;
    size_t from_at, to_at;
} aril__dnn_step;

/* From the order of a tensor to that which primitives chose, or back: reorders of parts, which run
 * at the same time. */
typedef struct aril__dnn_order {
    bool as_is; /* the two are the same: nothing to be done */
    int n;
    aril__dnn_step *step; /* [n] */
    size_t bytes;         /* of the memory written to */
    size_t key_size;
    unsigned char key[ARIL__DERIVED_KEY]; /* all descriptions: under it the form is kept */
} aril__dnn_order;

/* An order of n parts that follow on in both; `bytes` are written in all. Returns NULL, or why it
 * cannot be; then there is nothing to destroy. */
const char *aril__dnn_order_make(aril__dnn_order *o, int n, const aril__dnn_span *span,
                                 size_t bytes);
dnnl_status_t aril__dnn_order_run(aril__dnn_order *o, void *from, void *to);
void aril__dnn_order_destroy(aril__dnn_order *o);

/* A weight in a primitive's order. */
typedef struct aril__dnn_packed {
    void *data; /* NULL, after an error: there is none */
    aril__derived *form;
    void *space; /* memory for this call alone */
} aril__dnn_packed;

/* The weight `w` in the order to which `o` leads: found, made and kept with w, or, where `keep` is
 * false, made for this call. Forms that are kept cost memory and serve while w stays as it is: use
 * aril__dnn_keeps(w) for ops that inference runs, false for gradients. */
aril__dnn_packed aril__dnn_pack(aril__dnn_order *o, const char *op, const aril_tensor *w,
                                bool keep);
void aril__dnn_unpack(aril__dnn_order *o, const aril_tensor *w, aril__dnn_packed *p);

/* False while a gradient of w is recorded, since w will change at each step. */
bool aril__dnn_keeps(const aril_tensor *w);

/* ---- one thread ---- */

/* Sets the calling thread's number of OpenMP threads to 1, and back to what it was. */
int aril__dnn_enter(void);
void aril__dnn_leave(int threads);

/* Evaluates a call of the library that decides by the number of threads. */
#define aril__dnn_serially(call)          \
    __extension__({                       \
        int threads_ = aril__dnn_enter(); \
        dnnl_status_t status_ = (call);   \
        aril__dnn_leave(threads_);        \
        status_;                          \
    })

#endif
