/* The structure of a module, and helpers shared by layers. */
#ifndef ARIL_NN_MODULE_H
#define ARIL_NN_MODULE_H

#include "aril/module.h"
#include "aril/nn.h"
#include "core/lifetime.h"
#include "core/tensor.h"

#include <stdatomic.h>

/* A built-in layer: its class, and what Sequential knows about it. */
typedef struct aril__layer {
    aril_module_class base;
    /* The forward function with the activation fused into it; NULL: unsupported. */
    aril_tensor *(*fused)(aril_module *self, aril_tensor *x, aril_activation activation);
    /* The same of the sum of its result and `residual`; NULL: unsupported. */
    aril_tensor *(*joined)(aril_module *self, aril_tensor *x, aril_tensor *residual,
                           aril_activation activation);
    /* Writes how errors name the module, instead of by path and type: "net.txt: layer 'a': ". */
    void (*where)(const aril_module *self, char *text, size_t size);
    aril_activation activation; /* set for activation layers that other ops can fuse; 0: none */
    bool has_kernel;            /* "weight" is [out,in,...], which Keras has as [...,in,out] */
} aril__layer;

enum { ARIL__PARAMETER, ARIL__BUFFER, ARIL__SCRATCH };

/* A parameter or buffer of the module itself. */
typedef struct aril__own_tensor {
    char *name;
    aril_tensor *tensor; /* holds a reference; NULL: omitted */
    int kind;
    bool optional; /* files of weights may lack it: it then keeps its value */
} aril__own_tensor;

typedef struct aril__child {
    char *name;
    aril_module *module;
} aril__child;

typedef enum aril__hook_kind {
    ARIL__HOOK_BEFORE,
    ARIL__HOOK_AFTER,
    ARIL__HOOK_BACKWARD
} aril__hook_kind;

/* Reference-counted: graphs in which a backward hook is pending hold it too. */
typedef struct aril__module_hook {
    struct aril__module_hook *next;
    atomic_int refs;
    aril_module *module; /* NULL once the hook is removed */
    aril__hook_kind kind;
    int id;
    union {
        aril_pre_hook *before;
        aril_post_hook *after;
        aril_backward_hook *backward;
    } fn;
    void *ctx;
} aril__module_hook;

/* Lists handed out to callers: parameters, buffers, state. */
typedef struct aril__named_list {
    aril_named named;
    aril_tensor **tensor;
    char **name;
} aril__named_list;

struct aril_module {
    const aril_module_class *type;
    const aril__layer *layer; /* NULL: a user-defined class */
    aril__module_hook *hooks;
    struct aril__module_program *program; /* of aril_module_jit; NULL: none */
    aril__own_tensor *own;
    aril__child *child;
    int n_own, cap_own, n_children, cap_children;
    int depth; /* levels of modules above it; the maximum over its parents */
    bool training;
    bool frozen_stats; /* stays in evaluation mode */
    atomic_bool ready; /* nothing left to `build`; set once all it created is visible */
    bool placed;       /* `device` was set explicitly, not assumed */
    aril_dtype dtype;  /* of parameters not created yet */
    aril_device device;
    atomic_int refs;
    union {
        aril_tensor *(*one)(aril_module *self, aril_tensor *x);
        aril_tensor *(*several)(aril_module *self, aril_list in);
    } fn;                   /* set by aril_module_new */
    aril_module_class made; /* likewise: its class */
    aril__named_list list[3];
    aril__lifetime_slot life; /* for programs that read it */
    max_align_t data[];
};

/* The code of this thread's latest error, after a call that returned NULL. */
static inline aril_status aril__last_status(void)
{
    const aril__error *e = aril__self()->last_error;
    return e ? e->code : ARIL_ERR_STATE;
}

/* Whether `build` has been called; if true, everything it created is visible to this thread. */
static inline bool aril__is_ready(const aril_module *m)
{
    return atomic_load_explicit(&m->ready, memory_order_acquire);
}

static inline void aril__set_ready(aril_module *m)
{
    atomic_store_explicit(&m->ready, true, memory_order_release);
}

/* ---- for layers ---- */

/* Defines a forward function; few use all of its arguments. */
#define ARIL__FORWARD(name)                                                                       \
    static void name(aril_module *self __attribute__((unused)), int n_in __attribute__((unused)), \
                     aril_tensor *const *in, int n_out __attribute__((unused)), aril_tensor **out)

/* Until the end of the block nothing is recorded, and tensors created there can join a graph later,
 * even within ARIL_INFERENCE. Used to create parameters and buffers. */
aril_guard aril__plain_begin(void);
#define ARIL__PLAIN                                                                 \
    __attribute__((cleanup(aril_guard_end), unused)) aril_guard aril__plain_guard = \
        aril__plain_begin()

/* aril_module_make for a layer. */
aril_module *aril__layer_make(const aril__layer *layer);

/* Ends a constructor: returns m; when s is an error, releases m and returns NULL. */
aril_module *aril__layer_made(aril_module *m, aril_status s);

/* The reason of the first class in the tree that has one in `eager`; NULL: none. */
const char *aril__module_eager(const aril_module *m);

/* The i-th of m's own parameters and buffers. */
static inline aril_tensor *aril__own_at(const aril_module *m, int i)
{
    return m->own[i].tensor;
}

/* True during aril_module_build on this thread: nothing is dropped, no statistics change. */
static inline bool aril__is_building(void)
{
    extern _Thread_local bool aril__building __attribute__((tls_model("initial-exec")));
    return aril__building;
}

/* True while dropout drops and norms update their statistics; false during aril_module_build. */
static inline bool aril__is_training(const aril_module *m)
{
    return m->training && !aril__is_building();
}

/* While a thread sketches, parameters have shapes but no memory of their own, are not initialized,
 * and layers are not fused: what a network costs can be told without allocating its weights.
 * aril__sketch returns what was set before. */
static inline bool aril__sketching(void)
{
    extern _Thread_local bool aril__sketches __attribute__((tls_model("initial-exec")));
    return aril__sketches;
}
bool aril__sketch(bool on);

/* Where m computes: the device of the first parameter or buffer of its tree, or, if there is none
 * yet, the one that m or the first of its children was moved to. */
aril_device aril__module_device(const aril_module *m);

/* Where modules create their parameters until they are moved or built: the CPU. Tests change it. */
extern aril_device aril__new_modules_on;

/* The module that owns the tensor of a name below m; NULL: none. */
aril_module *aril__find_owner(aril_module *m, const char *name);

/* A parameter in a sketch. */
aril_tensor *aril__sketched(aril_shape shape, aril_dtype dtype, aril_device device);

/* Calls fn with an input of this shape and a batch of 1 that has no value: no operation runs, only
 * shapes are inferred, and the thread's meter sees what would run. *flop (NULL: not wanted) is set
 * to the FLOPs. */
typedef aril_status aril__sketch_fn(void *ctx, aril_tensor *x);
aril_status aril__sketch_run(aril_shape input, aril_dtype dtype, aril__sketch_fn *fn, void *ctx,
                             double *flop);

/* The memory that a tensor is part of, or would be in a sketch, and its size: NULL, 0 if it has
 * none. */
const void *aril__memory_of(const aril_tensor *t, double *bytes);

/* FLOPs of m, which was created in a sketch or is built, for inputs of this shape, in evaluation:
 * no operation runs, and only shapes are inferred. */
aril_status aril__sketch_flops(aril_module *m, aril_shape input, aril_dtype dtype, double *flop);

/* Creates an uninitialized parameter or buffer of this shape, in m's dtype and on its device. */
aril_status aril__add_parameter(aril_module *m, const char *name, aril_shape shape);
/* An optional bias or scale. */
aril_status aril__add_optional(aril_module *m, const char *name, aril_shape shape, bool absent);
/* A buffer that this module omits. */
aril_status aril__add_absent(aril_module *m, const char *name);
/* Buffers filled with a value. */
aril_status aril__add_buffer(aril_module *m, const char *name, aril_shape shape, double value);

/* Fills t, without recording: uniformly in [-1/sqrt(fan), 1/sqrt(fan)]; with a constant. NULL is
 * ignored. */
void aril__fill_fan(aril_tensor *t, int64_t fan);
void aril__fill_number(aril_tensor *t, double value);

/* The activation that a layer applies, unless hooks need to see its input and result; 0: none. */
static inline aril_activation aril__activation_of(const aril_module *m)
{
    return !m->hooks && m->layer && !aril__sketching() ? m->layer->activation : ARIL_NO_ACTIVATION;
}

/* The size of an axis of the first input; an error when the size or the axis is unknown. */
aril_status aril__input_size(const aril_tensor *x, int axis, int64_t *size);

/* ---- shared by the module files ---- */

/* The tensor or module with that name below m; NULL, without an error, when there is none. */
aril__own_tensor *aril__find_own(aril_module *m, const char *path);
aril_module *aril__find_module(aril_module *m, const char *path, size_t length);
bool aril__contains(const aril_module *m, const aril_module *other);

/* Runs a module that has hooks, which may replace its inputs and results. */
aril_status aril__run_hooked(aril_module *m, int n_in, aril_tensor *const *in, int n_out,
                             aril_tensor **out);
void aril__hooks_free(aril_module *m);
void aril__lists_free(aril_module *m);

/* Runs a module that aril_module_jit was called for; `plain` runs it as it is. */
typedef aril_status aril__forward_fn(aril_module *m, int n_in, aril_tensor *const *in, int n_out,
                                     aril_tensor **out);
aril_status aril__forward_jit(aril_module *m, int n_in, aril_tensor *const *in, int n_out,
                              aril_tensor **out, aril__forward_fn *plain);
void aril__module_program_free(aril_module *m);

/* Calls the class's forward function and checks its results. */
aril_status aril__run_class(aril_module *m, int n_in, aril_tensor *const *in, int n_out,
                            aril_tensor **out);

/* Like aril_forward with one input, one result and a fused activation, for Sequential. m must have
 * no hooks. */
aril_tensor *aril__forward_fused(aril_module *m, aril_tensor *x, aril_activation activation);

/* relu(m(x) + residual), in one pass where m can; `residual` may be NULL. For the blocks of
 * networks. */
aril_tensor *aril__forward_relu(aril_module *m, aril_tensor *x, aril_tensor *residual);
/* m(x) + residual. */
aril_tensor *aril__forward_add(aril_module *m, aril_tensor *x, aril_tensor *residual);

/* Implements aril__hook.where. */
void aril__module_where(const aril__frame *frame, char *text, size_t size);

/* Distinct tensors below m of the kinds in the mask (1 << ARIL__PARAMETER ...), with their
 * names. */
typedef struct aril__gathered {
    aril_tensor **tensor;
    char **name;
    int n, cap;
    void **seen; /* a hash table of the tensors */
    size_t cap_seen;
} aril__gathered;
aril_status aril__gather(aril_module *m, unsigned kinds, aril__gathered *g);
void aril__gathered_free(aril__gathered *g);

#endif
