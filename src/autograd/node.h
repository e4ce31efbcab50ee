/* Graph nodes: one for each recorded application of an op, and one for each leaf that requires a
 * gradient. A node is owned by its output tensors and by the nodes that use them. */
#ifndef ARIL_AUTOGRAD_NODE_H
#define ARIL_AUTOGRAD_NODE_H

#include "aril/autograd.h"
#include "ops/table/apply.h"
#include "ops/table/op.h"

typedef struct aril__edge {
    aril__node *node; /* NULL: no gradient flows there */
    uint32_t out;
} aril__edge;

typedef enum aril__saved_kind {
    ARIL__SAVED_IN,      /* an input's value */
    ARIL__SAVED_LIKE,    /* an input's shape */
    ARIL__SAVED_OUT,     /* a result's value, without its node, to avoid cycles */
    ARIL__SAVED_LIKE_OUT /* a result's shape */
} aril__saved_kind;

typedef struct aril__saved {
    aril_tensor *tensor;
    unsigned version; /* of its storage when it was saved */
    uint8_t kind;
    uint16_t index;
} aril__saved;

typedef struct aril__hook_entry {
    struct aril__hook_entry *next;
    uint32_t out;
    int id;
    aril_tensor *(*fn)(aril_tensor *grad, void *ctx);
    void *ctx;
    void (*drop)(void *ctx); /* called when the hook is removed; may be NULL */
} aril__hook_entry;

/* Fields that few nodes need. */
typedef struct aril__node_extra {
    aril__hook_entry *hooks;
    uint32_t retained_mask;               /* outputs with retain_grad */
    aril_tensor *retained[ARIL__MAX_OUT]; /* those gradients */
    char *location;                       /* source location of the op's call, in anomaly mode */
    void (*drop)(void *attrs);            /* releases what the attributes refer to */
} aril__node_extra;

enum {
    ARIL__NODE_LEAF = 1,
    ARIL__NODE_FREED = 2, /* saved values were freed by a backward pass */
    ARIL__NODE_QUEUED = 4,
    ARIL__NODE_NEEDED = 8,
    ARIL__NODE_TRACED = 16, /* a leaf that traced code made */
    ARIL__NODE_APART = 32,  /* its rule could not be joined with others in this pass */
};

struct aril__node {
    atomic_int refs;
    uint16_t n_in, n_saved;
    uint8_t n_out, flags;
    uint16_t size;      /* of the block, in units of 64 bytes */
    uint64_t sequence;  /* greater than that of every node it has an edge to */
    const aril__op *op; /* NULL: a leaf */
    aril__edge *edge;
    aril__saved *saved;
    void *attrs;
    aril_tensor **grad; /* per output, accumulated during backward; of a leaf: its gradient */
    aril__node_extra *extra;
    aril__node *next; /* in the list of nodes to be freed */
    atomic_uint busy; /* in use by a backward pass; of a leaf: its lock */
    unsigned mark;    /* id of the last walk that reached it */
};

/* A node with room for its parts and one reference; NULL, with an error, on failure. */
aril__node *aril__node_new(aril__thread *th, const aril__op *op, int n_in, int n_out, int n_saved,
                           size_t attr_size);
aril__node *aril__leaf_new(aril__thread *th);
void aril__node_release(aril__thread *th, aril__node *n);
void aril__view_release(aril__thread *th, aril__view *v);

/* aril_hook with a destructor, called when the hook is removed or its node is freed; immediately on
 * failure. */
int aril__hook_owned(aril_tensor *t, aril_grad_hook *fn, void *ctx, void (*drop)(void *ctx));
void aril__hook_entry_free(aril__hook_entry *h);

/* Tells the tracer, if there is one, that the gradient of a leaf will be read or changed. */
aril_status aril__leaf_touched(aril__node *leaf);

/* Whether a leaf was made outside the code that is traced now; false outside a trace. */
bool aril__leaf_is_outside(const aril__node *leaf);

/* The name of the node's op; NULL for a leaf. */
const char *aril__node_name(const aril__node *n);

/* The extra part, created on first use; NULL, with an error, on failure. */
aril__node_extra *aril__node_extra_of(aril__node *n);

/* Frees the saved values: this part of the graph can't be differentiated again. */
void aril__node_free_saved(aril__thread *th, aril__node *n);

/* Fills a node's slot for a saved value: as it is (inputs), without its node (results), or only its
 * shape. */
aril_status aril__save(aril__thread *th, aril__saved *s, aril__saved_kind kind, int index,
                       aril_tensor *t);

static inline aril__node *aril__node_keep(aril__node *n)
{
    atomic_fetch_add_explicit(&n->refs, 1, memory_order_relaxed);
    return n;
}

/* The autograd functions that apply and core call. */
extern const aril__tape aril__autograd_tape;

/* Binds `t` to output `out` of `n` (taking a reference), replacing its previous node. */
void aril__bind(aril__thread *th, aril_tensor *t, aril__node *n, uint32_t out);

/* While this thread computes a checkpoint again: the number of that; 0 otherwise. A trace notes it,
 * so that what is computed again is not taken for what was computed before. */
extern _Thread_local uint32_t aril__recomputation;
/* While random numbers are drawn again in a defined graph, by a checkpoint or by the gradient of
 * control flow: 1 + the number of keys (aril__tracer.keys) that the graph had before they were
 * drawn first, as the same keys are among those after them; 0 otherwise. */
extern _Thread_local uint32_t aril__redrawn;

#endif
