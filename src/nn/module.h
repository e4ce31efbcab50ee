/* What a module is made of, and what layers share. */
#ifndef ARIL_NN_MODULE_H
#define ARIL_NN_MODULE_H

#include "aril/module.h"
#include "aril/nn.h"
#include "core/tensor.h"

#include <stdatomic.h>

/* A layer that comes with Aril: its class, and what Sequential knows to do with it. */
typedef struct aril__layer {
    aril_module_class base;
    /* The forward function with an activation made where the result is; NULL: it cannot. */
    aril_tensor *(*fused)(aril_module *self, aril_tensor *x, aril_activation activation);
    aril_activation activation; /* of a layer that is one that other ops can apply; 0: none */
} aril__layer;

enum { ARIL__PARAMETER, ARIL__BUFFER, ARIL__SCRATCH };

/* A parameter or buffer of the module itself. */
typedef struct aril__own_tensor {
    char *name;
    aril_tensor *tensor; /* kept; NULL: done without */
    int kind;
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

/* Counted: graphs that a backward hook waits in hold it too. */
typedef struct aril__module_hook {
    struct aril__module_hook *next;
    atomic_int refs;
    aril_module *module; /* NULL when it was taken away */
    aril__hook_kind kind;
    int id;
    union {
        aril_pre_hook *before;
        aril_post_hook *after;
        aril_backward_hook *backward;
    } fn;
    void *ctx;
} aril__module_hook;

/* Lists that were handed out: parameters, buffers, state. */
typedef struct aril__named_list {
    aril_named named;
    aril_tensor **tensor;
    char **name;
} aril__named_list;

struct aril_module {
    const aril_module_class *type;
    const aril__layer *layer; /* NULL: a class from outside */
    aril__module_hook *hooks;
    aril__own_tensor *own;
    aril__child *child;
    int n_own, cap_own, n_children, cap_children;
    int depth; /* levels of modules above it, in the deepest place it was put into */
    bool training;
    atomic_bool ready; /* `build` has nothing to do; set once all it made can be seen */
    bool placed;       /* `device` was asked for, not only assumed */
    aril_dtype dtype;  /* of parameters that are yet to be made */
    aril_device device;
    atomic_int refs;
    union {
        aril_tensor *(*one)(aril_module *self, aril_tensor *x);
        aril_tensor *(*several)(aril_module *self, aril_list in);
    } fn;                   /* of aril_module_new */
    aril_module_class made; /* the same: its class */
    aril__named_list list[3];
    max_align_t data[];
};

/* The code of this thread's latest error, after a call that gave NULL. */
static inline aril_status aril__last_status(void)
{
    const aril__error *e = aril__self()->last_error;
    return e ? e->code : ARIL_ERR_STATE;
}

/* Whether `build` has been called; what it made is seen by whoever gets true. */
static inline bool aril__is_ready(const aril_module *m)
{
    return atomic_load_explicit(&m->ready, memory_order_acquire);
}

static inline void aril__set_ready(aril_module *m)
{
    atomic_store_explicit(&m->ready, true, memory_order_release);
}

/* ---- for layers ---- */

/* A forward function, of which few use all arguments. */
#define ARIL__FORWARD(name)                                                                       \
    static void name(aril_module *self __attribute__((unused)), int n_in __attribute__((unused)), \
                     aril_tensor *const *in, int n_out __attribute__((unused)), aril_tensor **out)

/* Nothing is recorded to the end of the block, and what is made there can join a graph later, also
 * within ARIL_INFERENCE: parameters and buffers are made so. */
aril_guard aril__plain_begin(void);
#define ARIL__PLAIN                                                                 \
    __attribute__((cleanup(aril_guard_end), unused)) aril_guard aril__plain_guard = \
        aril__plain_begin()

/* aril_module_make for a layer. */
aril_module *aril__layer_make(const aril__layer *layer);

/* The constructor's end: m, or NULL, with m released, where s tells of an error. */
aril_module *aril__layer_made(aril_module *m, aril_status s);

/* The i-th parameter or buffer of m itself. */
static inline aril_tensor *aril__own_at(const aril_module *m, int i)
{
    return m->own[i].tensor;
}

/* True while dropout drops and norms gather; false during aril_module_build. */
static inline bool aril__is_training(const aril_module *m)
{
    extern _Thread_local bool aril__building __attribute__((tls_model("initial-exec")));
    return m->training && !aril__building;
}

/* Makes a parameter or buffer of this shape, not yet filled, in m's dtype and on its device. */
aril_status aril__add_parameter(aril_module *m, const char *name, aril_shape shape);
/* A bias or scale that may be left out. */
aril_status aril__add_optional(aril_module *m, const char *name, aril_shape shape, bool absent);
/* A buffer that this module does without. */
aril_status aril__add_absent(aril_module *m, const char *name);
/* Buffers with a number in them. */
aril_status aril__add_buffer(aril_module *m, const char *name, aril_shape shape, double value);

/* Fills t, without recording: uniform between -1/sqrt(fan) and 1/sqrt(fan); a number. NULL is
 * ignored. */
void aril__fill_fan(aril_tensor *t, int64_t fan);
void aril__fill_number(aril_tensor *t, double value);

/* The size of an axis of a first input: an error where it is unknown or the axis is not there. */
aril_status aril__input_size(const aril_tensor *x, int axis, int64_t *size);

/* ---- between the files of modules ---- */

/* The tensor or module with that name below m; NULL, without an error, where there is none. */
aril__own_tensor *aril__find_own(aril_module *m, const char *path);
aril_module *aril__find_module(aril_module *m, const char *path, size_t length);
bool aril__contains(const aril_module *m, const aril_module *other);

/* Runs a module with hooks: the inputs may change, and so may the results. */
aril_status aril__run_hooked(aril_module *m, int n_in, aril_tensor *const *in, int n_out,
                             aril_tensor **out);
void aril__hooks_free(aril_module *m);
void aril__lists_free(aril_module *m);

/* Calls the class's forward function and checks what it gave. */
aril_status aril__run_class(aril_module *m, int n_in, aril_tensor *const *in, int n_out,
                            aril_tensor **out);

/* One input and one result with an activation, for Sequential: as aril_forward does it. m has no
 * hooks. */
aril_tensor *aril__forward_fused(aril_module *m, aril_tensor *x, aril_activation activation);

/* aril__hook.where */
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
