/* The inside of a trace, for the files that implement it: trace.c (calls, views, writes),
 * trace_cells.c, and trace_outside.c (generators, gradients of leaves, the host). */
#ifndef ARIL_GRAPH_TRACING_H
#define ARIL_GRAPH_TRACING_H

#include "autograd/node.h"
#include "graph/trace.h"

/* What a cell stands for, besides a value of the graph. */
enum aril__cell_origin {
    ARIL__CELL_INSIDE,
    ARIL__CELL_FROM_INPUT,
    ARIL__CELL_FROM_STATE,
    ARIL__CELL_FROM_GRAD
};

typedef struct aril__cell {
    aril__symbol symbol; /* first: u.symbol of symbolic tensors points here */
    aril__value_id value;
    aril__value_id initial;  /* of a cell from outside, or that a call created */
    struct aril__cell *base; /* NULL: not a view */
    struct aril__cell *root; /* the last of its bases; NULL: not a view */
    aril__node_id view;      /* the node that computed it from its base */
    unsigned version;        /* counts writes to a cell without a base, */
    unsigned seen;           /* and for which of them the value of a view is valid */
    uint8_t origin;
    uint32_t index;
    const aril_tensor *of; /* the tensor that an input is traced with */
} aril__cell;

/* Cells, which exist as long as tensors refer to them. */
enum { ARIL__CELL_CHUNK = 512 };
typedef struct aril__cell_chunk {
    struct aril__cell_chunk *next;
    aril__cell at[ARIL__CELL_CHUNK];
} aril__cell_chunk;
typedef struct aril__cells {
    aril__symbols base; /* first */
    aril__cell_chunk *chunks;
    int used; /* of the first chunk */
} aril__cells;

/* Pointers to cells, by address: open addressing. */
typedef struct aril__map {
    const void **key;
    aril__cell **at;
    size_t n, slots;
} aril__map;

typedef struct aril__leaf_entry {
    aril_tensor *grad; /* before the trace: a reference, or NULL */
} aril__leaf_entry;

typedef struct aril__draw_start {
    aril_rng_state state; /* of a generator when the trace first drew from it or changed it */
    uint64_t next;        /* greater than the offsets of all its keys */
    bool seeded;          /* the traced code seeded it with */
    uint64_t seed;
    bool freed;
} aril__draw_start;

/* A key of a defined graph. */
typedef struct aril__drawn_key {
    uint64_t seed, call; /* while the graph was defined */
    aril__cell *cell;
} aril__drawn_key;

typedef struct aril__named_size {
    int64_t given, unknown;
} aril__named_size;

/* A kept tensor that aril_set replaced by a symbolic one: references to both. */
typedef struct aril__replaced {
    aril_tensor *before, *now;
} aril__replaced;

/* What memory from outside is called. */
typedef struct aril__named_memory {
    const aril__storage *storage;
    char *name;
} aril__named_memory;

/* A tensor from outside, and its place in the gradient graph when the trace met it. */
typedef struct aril__met_tensor {
    aril_tensor *tensor;
    aril__node *node; /* a reference, or NULL */
    uint32_t node_out;
} aril__met_tensor;

struct aril__tracing {
    aril__tracer tracer; /* first */
    aril__graph *g;
    void *owner;
    bool defines;
    bool no_memory; /* it has failed: calls fail at once */
    aril__cells *cells;
    aril__map tensors;  /* concrete tensors -> cells */
    aril__map storages; /* storages -> the cell that covers them */
    aril__map leaves;   /* leaf nodes -> a cell whose index is the leaf's */
    aril__leaf_entry *leaf;
    aril__draw_start *starts; /* of the generators of the graph */
    uint32_t cap_leaf, cap_starts;
    aril__drawn_key *drawn; /* of a defined graph, as many as tracer.keys */
    uint32_t cap_drawn;
    aril__watches watches;
    aril__named_size *named;
    uint32_t n_named, cap_named;
    aril__met_tensor *met;
    uint32_t n_met, cap_met;
    aril__replaced *replaced; /* of the outermost trace */
    uint32_t n_replaced, cap_replaced;
    aril__named_memory *names;
    uint32_t n_names, cap_names;
    aril_tensor **left; /* kept by the traced code beyond its end: references */
    uint32_t n_left;
    aril_tensor **kept; /* symbolic tensors and keys: of a defined graph, or until the end */
    uint32_t n_kept, cap_kept;
    aril__tracing *outer;   /* of a body, */
    int depth;              /* and how many there are around it */
    aril_tensor **captured; /* references */
    uint32_t n_captured, cap_captured;
    void **memory; /* freed with the trace */
    uint32_t n_memory, cap_memory;
    const aril__frame *frame; /* whose name is g->text + scope: the module `what` in `within` */
    const void *what, *within;
    const char *path;
    uint32_t scope;
};

/* ---- cells and maps ---- */

aril__cells *aril__cells_new(aril__tracer *tracer);
/* A cell with that value; NULL if it is 0, or with an error. */
aril__cell *aril__cell_new(aril__tracing *t, aril__value_id value);
/* The same for something outside the graph. */
aril__cell *aril__cell_outside(aril__tracing *t, aril__value_id value,
                               enum aril__cell_origin origin, uint32_t index);

aril__cell *aril__map_find(const aril__map *m, const void *key);
bool aril__map_put(aril__map *m, const void *key, aril__cell *c);
void aril__map_free(aril__map *m);

/* ---- outside the graph ---- */

/* Hooks of the tracer. */
void aril__trace_drew(aril__tracer *self, aril_generator *of, aril_rng_state before,
                      aril_tensor *key);
void aril__trace_set(aril__tracer *self, aril_generator *of, const uint64_t *seed);
void aril__trace_freed(aril__tracer *self, aril_generator *of);
aril_status aril__trace_leaf(aril__tracer *self, aril__node *n);
aril_status aril__trace_reached(aril__tracer *self, aril__node *n);
aril_status aril__trace_watched(aril__tracer *self, void *at, size_t bytes);
aril_status aril__trace_depends(aril__tracer *self, const void *at, size_t bytes);
aril_status aril__trace_reads_object(aril__tracer *self, aril__lifetime *of);
void aril__trace_named(aril__tracer *self, const aril_tensor *t, const char *name);
aril_status aril__trace_epilogue(aril__tracer *self, void (*fn)(void *ctx, const void *data),
                                 void *ctx, const void *data, size_t bytes);

/* Remembers a tensor from outside; false with an error. And takes back what writes of the traced
 * code have recorded for it. */
bool aril__trace_meet(aril__tracing *t, aril_tensor *x);
void aril__trace_restore_nodes(aril__tracing *t);

/* When all other references of the trace are gone: gives what aril_set replaced and is still kept
 * its former value again, which is an error. */
aril_status aril__trace_restore_replaced(aril__tracing *t, aril_status so_far);

/* When the scope of the trace has ended: finds symbolic tensors that the traced code keeps, and an
 * error if there are any: a program would create them anew in each run. */
void aril__trace_find_left(aril__tracing *t);
aril_status aril__trace_check_left(const aril__tracing *t);
void aril__trace_drop_left(aril__tracing *t);

/* In a defined graph, a key stands for the next call of the generator of the run, or for the one
 * that is drawn again. */
aril__value_id aril__trace_defined_key(aril__tracing *t, aril_tensor *key);

/* At the end of a trace: lists what it left behind and puts all back as it was. */
aril_status aril__trace_finish_leaves(aril__tracing *t, aril_status so_far);
aril_status aril__trace_finish_generators(aril__tracing *t, aril_status so_far);
aril_status aril__trace_fix_keys(aril__tracing *t);
/* An error if the traced code changed what it must not. */
aril_status aril__trace_check_host(const aril__tracing *t);
void aril__trace_restore_host(aril__tracing *t);

/* The name of a tensor from outside; NULL: none. */
const char *aril__trace_name_of(const aril__tracing *t, const aril_tensor *x);

#endif
