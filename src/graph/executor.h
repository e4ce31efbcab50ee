/* The inside of an executor, for the files that implement it: exec.c (which nodes run, where values
 * are used last), plan.c (kernels, headers and places in memory for one set of sizes), small.c
 * (which kernels a device records together), layout.c (where in the arena a place is) and run.c. */
#ifndef ARIL_GRAPH_EXECUTOR_H
#define ARIL_GRAPH_EXECUTOR_H

#include "graph/exec.h"
#include "ops/table/planned.h"

#include <pthread.h>

/* ---- steps ---- */

/* What happens to the value of an operand after a step. */
enum { ARIL__RELEASE, ARIL__KEEP_SHAPE };
typedef struct aril__ended_value {
    uint32_t slot;
    uint8_t how;
} aril__ended_value;

/* A node that a run executes. Its operands are slots: values are numbered anew, without gaps. */
typedef struct aril__step {
    aril__node_id node;
    uint32_t in, out;     /* x->slots[in ...], x->slots[out ...]; slot 0: none */
    uint32_t end, n_ends; /* x->ends[end ...]: values that are not used after it */
    uint32_t home;        /* 1 + the effect into whose tensor result 0 is written; 0: none */
    bool reshapes;        /* a view that may need a copy, depending on the order of its input */
} aril__step;

typedef struct aril__instance aril__instance;

/* Instances that no run uses, the latest first. */
typedef struct aril__pool {
    pthread_mutex_t lock;
    aril__instance *idle;
    int n_idle;
    int64_t made;
} aril__pool;

struct aril__exec {
    const aril__graph *g;
    aril__step *steps;
    uint32_t *slots;
    int32_t *changed; /* for each slot of a result: the input that it is a new value of, or -1 */
    aril__ended_value *ends;
    aril__value_id *value; /* of each slot */
    uint32_t *source;      /* slots of values that no node produces */
    uint32_t *outputs;     /* slots */
    uint32_t *effects;     /* numbers of effects, */
    uint32_t *effect_slot; /* and the slots of their values */
    bool *stored;          /* whether the value is in its tensor when the last step ends */
    bool *in_place;        /* by slot: the op changes its input where it is */
    uint8_t *wanted;       /* by slot: how many outputs and effects it is; 2: or more */
    uint32_t *slot_of;     /* of each value of the graph; 0: not used */
    aril__pool *pool;
    int64_t max_memory; /* bytes that a run may allocate on a device; 0: any */
    bool trims;         /* no arena stays allocated between runs */
    bool apart;         /* values do not share memory, unless that takes too much */
    uint32_t n_steps, n_slots, n_ends, n_sources, n_outputs, n_effects, n_values;
};

/* ---- instances ----
 *
 * An instance is a plan for one set of sizes and memory orders, with all that a run needs: kernels
 * with their operands, and headers for these. One run at a time uses it. */

/* Where the memory of a value is. */
enum aril__place_kind {
    ARIL__IN_ARENA,  /* in the arena of its device, while it is needed */
    ARIL__IN_HEADER, /* a few bytes, within its storage */
    ARIL__IN_RESULT, /* memory of its own in each run, which the caller gets */
    ARIL__IN_SOURCE, /* of a tensor outside the graph */
    ARIL__IN_TENSOR, /* of the result of a step that is not planned */
};

typedef struct aril__place {
    uint8_t kind;
    uint8_t arena;        /* the number of the arena that it is in */
    bool plain;           /* something else than a kernel with a form of its own reads it */
    bool taken;           /* while planning: an output or gradient is the result in it */
    uint32_t first, last; /* actions between which the memory is in use */
    uint32_t live;        /* while planning: slots in it whose values are still used */
    uint32_t header;      /* the first of the headers in it */
    uint32_t source;      /* 1 + the source whose memory it is; 0: none */
    size_t bytes, offset; /* in the arena */
    aril__device *device;
    aril__storage *storage; /* of its own; NULL for sources */
} aril__place;

typedef struct aril__planned_header {
    aril_tensor *t;
    uint32_t place, next; /* next: in the place */
    int64_t offset;       /* of its first element from that of the place */
    uint32_t form;        /* while planning: a copy of it that kernels asked for, or 0 */
    int order;            /* of such a copy: what they asked for */
} aril__planned_header;

/* Flags that the header of a source has from its tensor. */
enum { ARIL__SOURCE_FLAGS = ARIL__WEAK | ARIL__NUMBER | ARIL__CHANNELS_LAST | ARIL__SHAPE_ONLY };

/* A tensor outside the graph that a run looks up. */
typedef struct aril__source {
    uint8_t kind; /* aril__value_kind */
    bool written; /* by the program */
    uint32_t index, header, slot;
    aril_tensor *t; /* during a run: borrowed */
} aril__source;

enum aril__action_kind {
    ARIL__RUN_KERNEL,
    ARIL__RUN_COPY,     /* in[0] to out[0], with another dtype, order or device */
    ARIL__RUN_DISPATCH, /* no kernel on the device: dispatch decides each time */
    ARIL__RUN_STEP,     /* not planned: sizes are known only in the run, or control flow */
};

/* What a run does. */
typedef struct aril__action {
    uint8_t kind;
    bool small; /* one of several in a row that a device records together */
    uint32_t n_written;
    uint32_t step;
    uint32_t workspace;      /* the place of it; 0: none */
    const uint32_t *written; /* sources that it changes */
    const aril__choice *choice;
    aril__kernel kernel;
    aril__run run;
} aril__action;

/* The memory of an instance on one device. */
typedef struct aril__arena_part {
    aril__device *device;
    size_t bytes;
    void *data;  /* NULL: allocated when the next run begins */
    void *bound; /* the address that places in it have */
    int queue;   /* that used it last */
} aril__arena_part;

enum { ARIL__MAX_ARENAS = 8 };

struct aril__instance {
    aril__instance *next;
    aril__surroundings around;
    int64_t *given; /* unknown sizes as the run tells them before it begins, */
    int64_t *size;  /* and those that are known with the plan; -1: not known before the run */
    size_t n_sizes;
    aril__source *sources;
    aril__planned_header *headers; /* [1, n_headers) */
    aril__place *places;           /* [1, n_places) */
    aril__action *actions;
    uint32_t *slot; /* header of each slot; 0: its value is a tensor of the run */
    bool *stored;   /* by effect, as in the executor */
    bool *met;      /* by requirement: whether it was checked with the plan; NULL: all were */
    struct aril__plan_block *memory;
    uint32_t *results; /* places of results */
    /* Of each output, then of each effect: the header that the caller gets, or that is written to a
     * tensor; 0: the value of its slot is. */
    uint32_t *taken;
    aril__arena_part arena[ARIL__MAX_ARENAS];
    uint32_t n_sources, n_headers, n_places, n_actions, n_results, n_unplanned;
    int n_arenas;
    bool apart;     /* of the executor */
    unsigned epoch; /* of the prepared values that kernels have forms of; 0: none */
    /* During a run: tensors of slots without a header, and of results that headers describe. */
    aril_tensor **loose;
};

/* ---- a run ---- */

typedef struct aril__exec_state {
    const aril__exec *x;
    const aril__graph *g;
    aril__thread *th;
    aril__instance *n;
    int64_t *size; /* of each unknown; -1: not known yet */
    size_t n_sizes;
    aril_tensor *const *in;
    bool packs; /* kernels make forms of prepared values */
    aril__drawing drawing;
} aril__exec_state;

/* What an unknown size is; itself if it is not known. For aril__size_value: ctx is the state. */
int64_t aril__exec_size(void *ctx, int64_t unknown);
/* Learns unknown sizes from a value, and checks the others. */
aril_status aril__exec_bind(aril__exec_state *r, aril__value_id v, int ndim, const int64_t *dim);
/* The tensor of a source, or NULL; and the same with an error. Not for keys. */
aril_tensor *aril__exec_find(const aril__exec_state *r, uint8_t kind, uint32_t index);
aril_tensor *aril__exec_source(const aril__exec_state *r, uint8_t kind, uint32_t index,
                               uint32_t slot);
/* Whether a reshape of t to the sizes of value v is a view. */
bool aril__exec_viewable(aril__exec_state *r, const aril_tensor *t, aril__value_id v);
/* The attributes of a node, with unknown sizes replaced in `room`, which has attr_size bytes. False
 * if some are not known. */
bool aril__exec_attrs(aril__exec_state *r, const aril__graph_node *n, void *room,
                      const void **attrs);

/* require.c: checks the requirements of the graph that are not met yet and whose sizes are known.
 * *all: whether that were the last ones. */
aril_status aril__exec_require(const aril__exec_state *r, bool *met, bool *all);

/* The same file: replaces unknown sizes in attributes that are not known themselves, but follow
 * from those that are. False if some do not. */
bool aril__exec_follow(const aril__exec_state *r, const aril__op *op, void *attrs);

/* plan.c: a new instance for the run; NULL with an error. */
aril__instance *aril__instance_new(aril__exec_state *r);
void aril__instance_free(aril__instance *n);
/* NULL if the instance is for this run, else what differs. */
const char *aril__instance_differs(const aril__instance *n, const aril__exec_state *r);

/* small.c: marks actions that are small, as are their neighbours. */
void aril__mark_small(aril__instance *n);

/* layout.c: gives places in arenas their offsets, and arenas their sizes; false when out of
 * memory. */
bool aril__layout(aril__instance *n);
/* What a run of it allocates on a device. */
aril_memory_plan aril__instance_memory(const aril__instance *n, const aril__device *device);
/* Alignment of places. */
enum { ARIL__PLACE_ALIGN = 64, ARIL__PLACE_ALIGN_DEVICE = 256 };

/* recompute.c: changes the graph such that values which are in memory for long are computed again,
 * until about `wanted` bytes are free on the device when most memory is in use; *chosen gets their
 * number. The executor and the instance are those of the graph as it is before. */
aril_status aril__recompute(aril__graph *g, const aril__exec *x, const aril__instance *n,
                            const aril__device *device, size_t wanted, uint32_t *chosen);

/* spread.c: divides updates of many parameters, such that each follows its gradient. *changed:
 * whether there was one. */
aril_status aril__spread_updates(aril__graph *g, bool *changed);

/* run.c: runs an instance that is for this run. got[] gets references to the outputs, on failure
 * some of them. */
aril_status aril__instance_run(aril__exec_state *r, aril_tensor **got);
/* Allocates the memory of its arenas, and frees it. */
aril_status aril__instance_take(aril__instance *n);
void aril__instance_trim(aril__instance *n);

/* For tests: memory of the arena is filled with NaN before and after its use. */
extern bool aril__plan_poisons;

#endif
