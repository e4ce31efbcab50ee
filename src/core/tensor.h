/* The tensor header and the storage beneath it. */
#ifndef ARIL_CORE_TENSOR_H
#define ARIL_CORE_TENSOR_H

#include "aril/tensor.h"
#include "core/device.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/shape.h"
#include "core/thread.h"

typedef struct aril__node aril__node; /* autograd/node.h */
typedef struct aril__op aril__op;

/* How a view was created: kept with it, so that autograd can follow writes through it and to its
 * base. */
typedef struct aril__view {
    aril_tensor *parent;
    const aril__op *op;
    void *attrs;
    unsigned seen;           /* the storage version for which the view's node is valid */
    struct aril__view *next; /* in the list of views to be freed */
} aril__view;

enum {
    ARIL__POISON = 1,         /* returned by a failed call; u.error says why */
    ARIL__SYMBOLIC = 2,       /* has a shape but no value yet: belongs to a tracer */
    ARIL__SHAPE_ONLY = 4,     /* placeholder for a value of which only the shape is needed */
    ARIL__WEAK = 8,           /* a scalar that adopts the dtype of the other operands */
    ARIL__IMMORTAL = 16,      /* never freed */
    ARIL__INFERENCE = 32,     /* created in inference mode */
    ARIL__CHANNELS_LAST = 64, /* contiguous in the order N, spatial, C */
    ARIL__LOOSE_VIEW = 128,   /* a view that does not record its base: created without gradients */
    ARIL__ENDED = 256,        /* freed; also marked as poison, so that one test finds both */
    /* Kinds of host numbers: at most one of these. */
    ARIL__CONSTANT = 512, /* never changes: a trace may store its value */
    ARIL__STATE = 1024,   /* changes between calls: learning rate, step count, loss scale */
    ARIL__KEY = 2048,     /* the u64[2] key of a random op, a new one for each call */
    ARIL__NUMBER = ARIL__CONSTANT | ARIL__STATE | ARIL__KEY,
    ARIL__HELD = 4096,    /* a graph holds a reference too, which aril_release must not drop */
    ARIL__TRAINED = 8192, /* in a program that runs: it is likely to change before the next run */
};

typedef struct aril__derived aril__derived; /* core/derived.h */

/* Where the contents of a storage are. */
enum {
    ARIL__IN_MEMORY, /* in its own memory, as they were put there */
    ARIL__IN_FORM,   /* in a derived form alone: aril__base restores them */
    ARIL__RESTORED,  /* in its own memory again, where they stay */
};

/* Memory on one device, shared by a tensor and its views. */
typedef struct aril__storage {
    atomic_int refs;
    atomic_uint version; /* counts writes, to detect stale saved values */
    aril__device *device;
    void *data;
    size_t bytes;
    void (*deleter)(void *data, void *ctx); /* for borrowed memory; NULL for memory allocated by the
                                             * device */
    void *deleter_ctx;
    _Atomic(aril__derived *) derived; /* forms that kernels derived from the contents: derived.h */
    atomic_bool lent;                 /* the program has a pointer through which it may write */
    _Atomic(uint8_t) contents;        /* ARIL__IN_MEMORY ... */
    uint8_t keeps_forms : 1; /* any number of them: its own memory may be freed meanwhile */
    /* Numbers of queues of the device: that of the allocation, that of the last write, and a bit
     * for each that has read since: queues.h. */
    uint8_t home : 7;
    _Atomic(uint8_t) writer;
    _Atomic(uint32_t) readers;
    /* Inline buffer for data of up to 64 bytes, on devices with host memory. */
    _Alignas(64) unsigned char small[64];
} aril__storage;

struct aril_tensor {
    /* The first 8 bytes are overwritten in a free header; the others keep the mark that it has
     * ended. */
    uint32_t slot;     /* a hint: the index in the owning thread's scope list */
    uint32_t node_out; /* which output of `node` this is */
    atomic_int refs;
    uint8_t dtype; /* aril_dtype */
    uint8_t ndim;
    uint16_t flags;
    int64_t numel; /* -1: unknown */
    aril__storage *storage;
    int64_t offset;   /* in elements; of a symbolic tensor: its device, above 32 bits */
    aril__node *node; /* its producer, or the leaf that collects its gradient; NULL: no grad */
    aril__view *view; /* NULL unless it is a view that autograd tracks */
    union {
        aril__error *error;   /* of a poisoned tensor */
        void *symbol;         /* of a symbolic one, owned by the tracer */
        aril__device *device; /* of a shape-only one: where its value was, or NULL */
    } u;
    int64_t dim[ARIL_MAX_DIMS];
    int64_t stride[ARIL_MAX_DIMS]; /* in elements; for nominal sizes where they are unknown */
};

_Static_assert(sizeof(aril_tensor) == ARIL__HEADER_BYTES, "headers have blocks of their own");

/* A host number: a scalar or a key in host memory that joins tensors of any device. It is never
 * moved: kernels read its value when they are called, so it must not be read later, by work that
 * was queued. */
static inline bool aril__is_number(const aril_tensor *t)
{
    return t->flags & ARIL__NUMBER;
}

/* Functions of higher layers that core calls; set by src/init.c. */
typedef struct aril__hooks {
    void (*release_node)(aril__thread *th, aril__node *node);
    void (*release_view)(aril__thread *th, aril__view *view);
    const char *(*node_name)(const aril__node *node); /* name of its op; NULL: a leaf */
    void *(*keep_symbol)(void *symbol); /* of symbolic tensors: ops/table/symbolic.h */
    void (*release_symbol)(void *symbol);
    void (*generator_freed)(aril_generator *g);
    void (*thread_end)(aril__thread *th);
    /* Writes how errors name the module of a frame, such as "layer1.0 (Linear): ". */
    void (*where)(const aril__frame *frame, char *text, size_t size);
    /* A generator is about to be put into another state; `seed`: not NULL if it is seeded. */
    void (*generator_set)(aril_generator *g, const uint64_t *seed);
} aril__hooks;
extern aril__hooks aril__hook;

/* A header without storage: dtype, ndim and dims as given, contiguous strides, one reference that
 * belongs to the caller. NULL, with an error, when out of memory. */
aril_tensor *aril__tensor_header(aril__thread *th, aril_dtype dtype, int ndim, const int64_t *dim);

/* The same with fresh memory on `device`, not cleared. */
aril_tensor *aril__tensor_new(aril__thread *th, aril_dtype dtype, int ndim, const int64_t *dim,
                              aril__device *device);

/* A header with the shape and strides of `t`, and nothing else of it. */
aril_tensor *aril__tensor_header_like(aril__thread *th, const aril_tensor *t, aril_dtype dtype);

/* The same with fresh memory on the device of `t`, which is contiguous. */
aril_tensor *aril__tensor_new_like(aril__thread *th, const aril_tensor *t, aril_dtype dtype);

/* A second header over the same memory, without gradient or view; of a symbolic tensor, one for the
 * same value of the graph. */
aril_tensor *aril__tensor_detached(aril__thread *th, const aril_tensor *t);

/* A header with the shape and dtype of `t` and no memory. */
aril_tensor *aril__tensor_shape_only(aril__thread *th, const aril_tensor *t);

/* Storage over fresh memory; NULL with an error. */
aril__storage *aril__storage_new(aril__thread *th, aril__device *device, size_t bytes);
void aril__storage_release(aril__thread *th, aril__storage *s);
/* A no-op deleter, for memory that its owner frees. */
void aril__keep_memory(void *data, void *ctx);

static inline aril_tensor *aril__tensor_keep(aril_tensor *t)
{
    atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
    return t;
}

void aril__tensor_free(aril__thread *th, aril_tensor *t);

static inline void aril__tensor_release(aril__thread *th, aril_tensor *t)
{
    /* A sole owner needs no atomic decrement. */
    if (atomic_load_explicit(&t->refs, memory_order_acquire) == 1 ||
        atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) == 1)
        aril__tensor_free(th, t);
}

/* Hands a new tensor to the innermost scope; returns a poisoned one on failure. */
aril_tensor *aril__give(aril__thread *th, aril_tensor *t);

/* A poisoned tensor that refers to this thread's latest error, owned by the scope. Never NULL. */
aril__cold aril_tensor *aril__poison(void);

/* The same for n results. Each gets a tensor of its own, so that dropping one leaves the others. */
aril__cold void aril__poison_all(int n, aril_tensor **out);

/* A function that computes its n results by several ops fails as a whole: when one result is
 * poison, all become poison with its error. Results that were not requested are NULL. */
void aril__fail_together(int64_t n, aril_tensor **out);

/* A new poisoned tensor with the error of another, which becomes the thread's latest. */
aril__cold aril_tensor *aril__poison_like(const aril_tensor *bad);

/* The same after an error "OP: NULL tensor". */
aril__cold aril_tensor *aril__null_tensor(const char *op);

/* Records why `t`, which is poison, cannot be used: the error that poisoned it, or that it has
 * ended. `what` is the function (NULL: any) and `input` the number of the argument (-1: the only
 * one). */
aril__cold aril_status aril__refuse_poison(const char *what, int input, const aril_tensor *t);

/* What a function given the poison `t` returns: a new poisoned tensor with the same error. */
aril__cold aril_tensor *aril__pass_on(aril_tensor *t);

/* The error of tensors that have ended, without details; and the same with the function and the
 * source location of the call. */
extern aril__error aril__ended_error;
aril__cold aril_status aril__fail_ended(const char *what, int input, const aril_tensor *t);

/* True when `t` is poison. Also records the error of an ended tensor, since this is where it is
 * first detected. */
static inline bool aril__is_poison(const aril_tensor *t)
{
    if (aril__likely(!(t->flags & ARIL__POISON))) return false;
    if (t->flags & ARIL__ENDED) aril__fail_ended(NULL, -1, t);
    return true;
}

/* Checks a tensor argument of a function that is not an op: not NULL, not poisoned, with a
 * value. */
aril_status aril__check_value(const char *what, const aril_tensor *t);

/* Swaps the storage, dtype and memory format of two leaves of the same sizes, neither of them a
 * view. Values that a graph saved of them count as overwritten. Cannot fail. */
void aril__tensor_exchange(aril_tensor *a, aril_tensor *b);

/* Computes contents that are in a derived form alone. */
aril__cold void aril__storage_restore(aril__storage *s);

/* The contents of a storage. Nothing else reads `data` of one that kernels may derive forms of. */
static inline char *aril__contents(aril__storage *s)
{
    if (aril__unlikely(atomic_load_explicit(&s->contents, memory_order_acquire) == ARIL__IN_FORM))
        aril__storage_restore(s);
    return s->data;
}

static inline char *aril__base(const aril_tensor *t)
{
    return aril__contents(t->storage);
}

/* The address of the first element; not for sub-byte dtypes with an odd offset. */
static inline void *aril__ptr(const aril_tensor *t)
{
    return aril__base(t) + aril__dtype_bytes((aril_dtype)t->dtype, t->offset);
}

/* The same, or NULL if `t` is NULL or has no memory. */
static inline void *aril__ptr_or_null(const aril_tensor *t)
{
    return t && t->storage ? aril__ptr(t) : NULL;
}

/* The device of a tensor, also of a symbolic one; NULL if a shape-only one has none. */
aril__device *aril__tensor_device(const aril_tensor *t);

/* Where the value of a symbolic tensor will be. */
void aril__symbolic_set_device(aril_tensor *t, const aril__device *device);

/* aril__is_dense for unknown sizes: in the order of their dimensions, without gaps. */
bool aril__is_dense_unknown(const aril_tensor *t);

static inline bool aril__is_dense(const aril_tensor *t)
{
    int64_t step = 1;
    if (aril__unlikely(t->numel < 0)) return aril__is_dense_unknown(t);
    for (int i = t->ndim - 1; i >= 0; i--) {
        if (t->dim[i] != 1 && t->stride[i] != step) return t->numel == 0;
        step *= t->dim[i];
    }
    return true;
}

/* True when the elements fill their span of memory without gaps, in any order of dimensions. */
bool aril__is_packed(const aril_tensor *t);

/* Channels-last and not also contiguous: [N,C,1,1] and [N,1,H,W] can be both. */
static inline bool aril__is_only_channels_last(const aril_tensor *t)
{
    return !aril__is_dense(t) && aril_is_channels_last(t);
}

/* True when [N,C,spatial...] is stored in the order spatial, C, N, with at least two samples: the
 * memory format of convolutions that vectorize over samples. */
bool aril__is_samples_last(const aril_tensor *t);

/* True when two elements share memory: expanded dimensions, overlapping windows. */
bool aril__overlaps(const aril_tensor *t);

/* Gap-free strides for a result of the given sizes, in the dimension order of `like` in memory. */
void aril__strides_like(const aril_tensor *like, int ndim, const int64_t *dim, int64_t *stride);

static inline aril_shape aril__shape(const aril_tensor *t)
{
    aril_shape s = { .ndim = t->ndim };
    for (int i = 0; i < t->ndim; i++) s.dim[i] = t->dim[i];
    return s;
}

#define aril__text(buf, t) aril__shape_text((buf), (t)->ndim, (t)->dim)

/* The base tensor of a view (of a view ...); t itself if it is not a view. */
static inline aril_tensor *aril__root(const aril_tensor *t)
{
    while (t->view) t = t->view->parent;
    return (aril_tensor *)(uintptr_t)t;
}

/* Releases the derived forms of a storage, whose contents are in its own memory afterwards. */
void aril__derived_drop(aril__storage *s);
/* The same when the storage is freed: nobody reads its contents any more. */
void aril__derived_end(aril__storage *s);

/* What u.symbol points to begins so. */
typedef struct aril__symbol_head {
    struct aril__symbols *owner; /* ops/table/symbolic.h */
    const unsigned *writes; /* the tracer's count of writes to the value, by any of its views */
} aril__symbol_head;

/* Counts writes to the memory of `t`, or to the value that a symbolic tensor stands for. */
static inline unsigned aril__version(const aril_tensor *t)
{
    if (aril__likely(t->storage != NULL))
        return atomic_load_explicit(&t->storage->version, memory_order_relaxed);
    const aril__symbol_head *s = t->flags & ARIL__SYMBOLIC ? t->u.symbol : NULL;
    return s && s->writes ? *s->writes : 0;
}

static inline void aril__bump_version(aril_tensor *t)
{
    /* A constant that is written to is one no longer. */
    if (aril__unlikely(t->flags & ARIL__CONSTANT)) t->flags ^= ARIL__CONSTANT | ARIL__STATE;
    if (aril__likely(t->storage != NULL)) {
        /* One writer at a time: no atomic increment is needed. */
        atomic_store_explicit(&t->storage->version, aril__version(t) + 1, memory_order_relaxed);
        if (aril__unlikely(atomic_load_explicit(&t->storage->derived, memory_order_relaxed)))
            aril__derived_drop(t->storage);
    }
}

/* Call when the program gets a pointer to the data: from now on it may write without our knowledge,
 * so derived forms can no longer be trusted. */
static inline void aril__lend(aril_tensor *t)
{
    if (aril__unlikely(t->flags & ARIL__CONSTANT)) t->flags ^= ARIL__CONSTANT | ARIL__STATE;
    if (atomic_load_explicit(&t->storage->lent, memory_order_relaxed)) return;
    atomic_store(&t->storage->lent, true);
    aril__derived_drop(t->storage);
}

/* True when writing to one can change the other. */
static inline bool aril__same_memory(const aril_tensor *a, const aril_tensor *b)
{
    if (a->storage || b->storage) return a->storage == b->storage;
    return a->flags & b->flags & ARIL__SYMBOLIC && aril__root(a) == aril__root(b);
}

/* Live headers, storages and nodes: for leak tests. */
int64_t aril__live_blocks(void);

#endif
