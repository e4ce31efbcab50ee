/* The graph: a program as data.
 *
 * A graph is a list of nodes in the order in which they run, and the values that they use and
 * produce. A value is written once: in-place changes of the traced program are new values here, and
 * what a run leaves behind (in tensors, gradients, generators) is listed in the graph's effects.
 *
 * Nodes and values are elements of arrays and refer to each other by number, so that a graph of a
 * million nodes takes a few allocations and is walked with loops. Number 0 is none. */
#ifndef ARIL_GRAPH_GRAPH_H
#define ARIL_GRAPH_GRAPH_H

#include "core/rng.h"
#include "core/sizes.h"
#include "core/source_location.h"
#include "ops/elementwise/fused.h"
#include "ops/table/op.h"
#include "ops/table/require.h"

typedef uint32_t aril__value_id;
typedef uint32_t aril__node_id;

/* Where a value comes from. */
enum aril__value_kind {
    ARIL__FROM_NODE,     /* output `index` of node `from` */
    ARIL__FROM_INPUT,    /* input `from` of the run */
    ARIL__FROM_STATE,    /* state `from`: a tensor that exists outside the graph */
    ARIL__FROM_GRAD,     /* the gradient that leaf `from` holds when a run begins */
    ARIL__FROM_CONSTANT, /* constant `from` */
    ARIL__FROM_KEY,      /* key `from` of a random op */
    ARIL__NO_VALUE,      /* an output that does not exist (its optional input is absent) */
};

/* Flags of values. */
enum {
    ARIL__VALUE_UNKNOWN = 1, /* some of its sizes are unknown */
    ARIL__VALUE_LOOSE = 2,   /* only a kernel decides its memory order */
    ARIL__VALUE_OPEN = 4,    /* only the run decides whether it is a view of its input or a copy */
};

typedef struct aril__value {
    uint8_t kind; /* aril__value_kind */
    uint8_t dtype, ndim;
    uint8_t flags;
    uint16_t tensor_flags; /* ARIL__WEAK, ARIL__NUMBER: of the tensor that holds it */
    unsigned index : 31;   /* of the output of a node */
    uint32_t from;
    uint32_t shape; /* its sizes: g->words[shape ...] */
    aril__device *device;
} aril__value;

typedef struct aril__graph_node {
    const aril__op *op;
    uint32_t attrs; /* g->words[attrs ...]; none if has_attrs is false */
    uint32_t in;    /* inputs: g->ids[in ...]; 0: absent */
    /* Outputs are consecutive values: those of the op, then the new values of inputs that the row's
     * `writes` mask names, in the order of inputs. */
    aril__value_id out;
    unsigned n_in : 31, n_out : 31; /* an int holds either */
    bool has_attrs;
    bool sized;        /* attributes contain unknown sizes */
    uint16_t n_bodies; /* graphs of a control-flow op: g->bodies[body ...] */
    uint32_t body;
    uint32_t region; /* nodes of a checkpoint that is computed again have a number; 0: others */
    uint32_t scope;  /* g->text + scope: the module that applied it; 0: none */
    uint32_t label;  /* g->text + label: what errors of a run begin with; 0: nothing */
    uint32_t where;  /* g->frames[where ...]: the stack of the call, ended by NULL; 0: unknown */
} aril__graph_node;

/* A tensor outside the graph that the program reads or changes. A run looks up its memory. */
typedef struct aril__state {
    aril_tensor *tensor;  /* a reference; of a variable, NULL until it is initialized */
    aril__value_id value; /* its value when the run begins */
    char *name;           /* or NULL */
    bool prepared;        /* computed by g->prepared, which can do so again */
} aril__state;

/* A leaf of autograd whose gradient the program reads or changes. */
typedef struct aril__grad_state {
    aril__node *leaf; /* a reference */
    bool had;         /* whether it holds a gradient when the run begins: `value` */
    aril__value_id value;
} aril__grad_state;

/* A random key: the call `offset` of a generator, counted from its state when the run begins. */
typedef struct aril__key {
    uint32_t generator; /* in g->draws */
    uint64_t offset;
    aril__value_id value;
} aril__key;

/* A generator that the program draws from, and what a run leaves in it. */
typedef struct aril__draws {
    aril_generator *generator; /* NULL: the default one of the thread that runs */
    uint64_t calls;            /* a run advances it by as many, unless */
    bool reset;                /* the program seeds it: then it is in state `end` */
    aril_rng_state end;
    bool ended;  /* the traced code freed it: its keys are constants, and runs leave it alone */
    bool traced; /* it was at call `start` when the trace began */
    uint64_t start;
} aril__draws;

/* What a run leaves behind. */
enum aril__effect_kind {
    ARIL__WRITE_STATE, /* state `to` gets `value` */
    ARIL__WRITE_INPUT, /* the tensor of input `to` gets `value` */
    ARIL__WRITE_GRAD,  /* leaf `to` holds the gradient `value`; 0: none */
};
typedef struct aril__effect {
    uint8_t kind;
    uint32_t to;
    aril__value_id value;
} aril__effect;

/* What a run does on the host after its effects: fn(ctx, data). */
typedef struct aril__epilogue {
    void (*fn)(void *ctx, const void *data);
    void *ctx, *data; /* `data` is a copy that the graph owns, */
    size_t bytes;     /* of this size */
} aril__epilogue;

/* An input of the graph. */
typedef struct aril__input {
    aril__value_id value;
    char *name; /* or NULL */
} aril__input;

/* A requirement on sizes (ops/table/require.h), repeated when a run knows them. */
typedef struct aril__graph_requirement {
    aril__requirement is;
    aril__node_id node; /* the first one after it, in the graph as it was recorded */
    uint32_t where;     /* as of a node */
} aril__graph_requirement;

typedef struct aril__graph {
    char *name;              /* or NULL */
    aril__graph_node *nodes; /* [1, n_nodes) */
    aril__value *values;     /* [1, n_values) */
    aril__value_id *ids;     /* lists of inputs */
    int64_t *words;          /* sizes and attributes */
    char *text;              /* names of scopes */
    void **frames;           /* stacks of calls */
    aril_tensor **constants; /* references */
    aril__input *inputs;
    aril__value_id *outputs;
    aril__state *states;
    aril__grad_state *grads;
    aril__key *keys;
    aril__draws *draws;
    aril__effect *effects;
    aril__epilogue *epilogues;
    aril__graph_requirement *requirements;
    struct aril__graph **bodies;     /* owned */
    aril__recipe **recipes;          /* of fused ops: references */
    struct aril__exec *exec;         /* of a body: runs it; made with the executor of the whole */
    struct aril__prepared *prepared; /* computes states before a run, or NULL (prepare.h) */
    uint32_t n_nodes, n_values, n_ids, n_words, n_text, n_frames, n_constants, n_inputs, n_outputs,
        n_states, n_grads, n_keys, n_draws, n_effects, n_epilogues, n_requirements, n_bodies,
        n_recipes;
    uint32_t cap_nodes, cap_values, cap_ids, cap_words, cap_text, cap_frames, cap_constants,
        cap_inputs, cap_outputs, cap_states, cap_grads, cap_keys, cap_draws, cap_effects,
        cap_epilogues, cap_requirements, cap_bodies, cap_recipes;
    aril__sizes *sizes; /* unknown sizes; of the tracer, or `own_sizes` */
    aril__sizes own_sizes;
} aril__graph;

/* NULL, with an error, when out of memory. The name may be NULL. */
aril__graph *aril__graph_new(const char *name);
void aril__graph_free(aril__graph *g);
/* A copy without epilogues; NULL with an error. */
aril__graph *aril__graph_copy(const aril__graph *g);
/* Replaces states by copies, which nobody changes; an error of `name` if the graph has effects. */
aril_status aril__graph_freeze(aril__graph *g, const char *name);

/* ---- building ----
 *
 * These return a number, or 0 with an error when out of memory. */

/* Makes room for one more element of `*at`, which has n of *cap; false, with an error, if there is
 * no memory. */
bool aril__graph_grow(void *at, uint32_t n, uint32_t *cap, size_t size);
#define ARIL__GROW(g, list) \
    aril__graph_grow(&(g)->list, (g)->n_##list, &(g)->cap_##list, sizeof *(g)->list)

/* A value of that kind with the dtype, sizes, device and number flags of `like`. */
aril__value_id aril__graph_value(aril__graph *g, enum aril__value_kind kind, uint32_t from,
                                 const aril_tensor *like);
aril__value_id aril__graph_input(aril__graph *g, const aril_tensor *like, const char *name);
/* Takes a reference to t. */
aril__value_id aril__graph_constant(aril__graph *g, aril_tensor *t);
aril__value_id aril__graph_state(aril__graph *g, aril_tensor *t, const char *name);
/* The shared form of a recipe, for nodes of this graph; NULL with an error. */
const aril__recipe *aril__graph_recipe(aril__graph *g, const aril__recipe *r);
bool aril__graph_output(aril__graph *g, aril__value_id v);
bool aril__graph_effect(aril__graph *g, enum aril__effect_kind kind, uint32_t to,
                        aril__value_id value);

/* The number of outputs of a node: results of the op and inputs changed in place. */
int aril__graph_outputs_of(const aril__op *op, int n_in, const aril__value_id *in);
/* The input that output k of a node is a new value of; -1: none. */
int aril__graph_changed(const aril__graph *g, const aril__graph_node *n, int k);

/* Whether an op is a view only if the memory order of its input allows that, and else copies. */
bool aril__is_reshape(const aril__op *op);

/* Whether attributes contain unknown sizes: values that only a run knows. */
bool aril__graph_has_unknown(const aril__op *op, const void *attrs);

/* A node whose outputs are values without dtype and shape; see aril__graph_describe. */
aril__node_id aril__graph_node_add(aril__graph *g, const aril__op *op, int n_in,
                                   const aril__value_id *in, const void *attrs);
/* Gives a value the dtype, sizes, device and number flags of a header. */
bool aril__graph_describe(aril__graph *g, aril__value_id v, const aril_tensor *like);
/* Gives a value other sizes. */
bool aril__graph_sizes(aril__graph *g, aril__value_id v, int ndim, const int64_t *dim);
/* Stores a text; returns its place in g->text. The same text as the last time is stored once. */
uint32_t aril__graph_text(aril__graph *g, const char *text);
/* Remembers the stack of the present call as that of a node; only of the first ARIL__LOCATED nodes
 * of a graph, since taking it costs some microseconds. */
enum { ARIL__LOCATED = 20000 };
void aril__graph_locate(aril__graph *g, aril__node_id id);
/* Remembers a requirement, unless it is the one before. */
bool aril__graph_require(aril__graph *g, const aril__requirement *q);
/* require.c: whether a graph holds for some sizes: its requirements, and shape rules of its nodes,
 * as far as sizes are known. value[k] is what unknown size k is, or -1, and gets what follows. */
aril_status aril__graph_met(const aril__graph *g, int64_t *value);
/* The same file: only what follows. */
void aril__graph_follow(const aril__graph *g, int64_t *value);
/* The stack of a node or requirement: none if it is unknown. */
aril__recorded aril__graph_stack(const aril__graph *g, uint32_t where);
/* Its source location, "mlp.c:42"; "" if it is unknown. Returns buf. */
const char *aril__graph_where(const aril__graph *g, const aril__graph_node *n, char *buf,
                              size_t size);

/* ---- reading ---- */

static inline const aril__value_id *aril__graph_in(const aril__graph *g, const aril__graph_node *n)
{
    return g->ids + n->in;
}

static inline const int64_t *aril__graph_dims(const aril__graph *g, aril__value_id v)
{
    return g->words + g->values[v].shape;
}

/* Whether two values have the same dtype, sizes and device. */
bool aril__graph_alike(const aril__graph *g, aril__value_id a, aril__value_id b);

static inline const void *aril__graph_attrs(const aril__graph *g, const aril__graph_node *n)
{
    return n->has_attrs ? g->words + n->attrs : NULL;
}

/* ---- checking and changing ---- */

/* Checks that every number is in range, that values are used only after they are produced, and that
 * each output refers to its node. Tests call it after every pass. */
aril_status aril__graph_check(const aril__graph *g);

/* Replaces values everywhere: a use of v becomes one of to[v], unless that is 0. `to` has n_values
 * elements and may form chains. */
void aril__graph_replace(aril__graph *g, aril__value_id *to);

/* Removes the nodes that keep[node] does not mark, and what only they used: their values stay in
 * the arrays, without a node. */
void aril__graph_keep_nodes(aril__graph *g, const bool *keep);

/* ---- rewriting ----
 *
 * A pass that adds nodes builds the list of nodes anew:
 *
 *     aril__rewrite r;
 *     if (!aril__rewrite_begin(&r, g)) return ARIL_ERR_MEMORY;
 *     for (aril__node_id id = 1; id < r.n_old && fits; id++)
 *         if (matches(&r.old[id])) {
 *             ... new nodes: aril__graph_node_add with inputs aril__rewrite_now(&r, v) ...
 *             aril__rewrite_value(&r, r.old[id].out, new_value);
 *         } else {
 *             fits = aril__rewrite_keep(&r, id);
 *         }
 *     return aril__rewrite_end(&r, fits);
 *
 * Outputs of a node that is not kept and whose values are not replaced must not be used. */
typedef struct aril__rewrite {
    aril__graph *g;
    aril__graph_node *old; /* [1, n_old): the nodes before */
    uint32_t n_old, n_values;
    aril__value_id *to;
    bool *kept;
} aril__rewrite;

bool aril__rewrite_begin(aril__rewrite *r, aril__graph *g);
/* Appends an old node as it is. */
bool aril__rewrite_keep(aril__rewrite *r, aril__node_id id);
/* What stands for a value now. */
aril__value_id aril__rewrite_now(aril__rewrite *r, aril__value_id v);
/* From here on, `with` stands for a value. */
void aril__rewrite_value(aril__rewrite *r, aril__value_id v, aril__value_id with);
/* Ends it; without `fits`, the graph is left as it was. */
aril_status aril__rewrite_end(aril__rewrite *r, bool fits);

/* ---- text ----
 *
 *     graph step(%x: f32[64,1000], ...) {
 *       %5: f32[64,100] = matmul(%x, %w1)  # mlp.c:42
 *       return %9
 *     } */
void aril__graph_print(const aril__graph *g, FILE *to);

#endif
