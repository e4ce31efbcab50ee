/* Modules: layers and networks with their parameters, organized as a tree.
 *
 *     struct two_layer { aril_module *linear1, *linear2; };
 *     static aril_tensor *two_layer_forward(aril_module *self, aril_tensor *x)
 *     {
 *         struct two_layer *m = aril_module_data(self);
 *         return aril_forward(m->linear2, aril_relu(aril_forward(m->linear1, x)));
 *     }
 *     aril_module *self = aril_module_new("TwoLayer", sizeof(struct two_layer), two_layer_forward);
 *     struct two_layer *m = aril_module_data(self);
 *     m->linear1 = aril_module_add(self, "linear1", aril_nn_linear(1000, 100));
 *     m->linear2 = aril_module_add(self, "linear2", aril_nn_linear(100, 1000));
 *     ...
 *     aril_module_release(self);
 *
 * A module owns its parameters, buffers and children; a name such as "layer1.0.weight" is the path
 * from a module to a tensor or module inside it. Functions accept NULL for a module that could not
 * be created, and propagate the error. */
#ifndef ARIL_MODULE_H
#define ARIL_MODULE_H

#include "aril/autograd.h"
#include "aril/device.h"
#include "aril/named.h"

ARIL_C_BEGIN

typedef struct aril_module aril_module;

/* The maximum depth of a module tree: aril_module_add rejects deeper ones, so that recursive
 * traversal fits a thread's stack. */
enum { ARIL_MODULE_DEPTH = 1000 };

/* ---- custom modules ---- */

/* The functions of a class of modules. It must outlive its modules. */
typedef struct aril_module_class {
    const char *type; /* "Linear": the type shown in summaries */
    size_t size;      /* bytes of instance data, zero-initialized: aril_module_data */
    /* Reads n_in inputs and sets n_out results. Omitted inputs, of up to 16, are NULL in in[]. It
     * runs in its own scope; its results move to the enclosing scope automatically. */
    void (*forward)(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                    aril_tensor **out);
    /* Called before the first forward, with its inputs, to create lazily sized parameters; NULL:
     * all parameters are created up front. */
    aril_status (*build)(aril_module *self, int n_in, aril_tensor *const *in);
    /* Reinitializes the parameters of this module (not of its children); NULL: none. */
    void (*reset)(aril_module *self);
    /* Writes the text between the parentheses of "Linear(...)"; NULL: nothing. */
    void (*describe)(const aril_module *self, char *text, size_t size);
    /* Called before the module is freed; parameters and children are released automatically. NULL:
     * nothing. */
    void (*destroy)(aril_module *self);
    int inputs, outputs; /* the maximum number of inputs and outputs; default 1, -1: any number */
    /* In evaluation its result is its input, as with dropout: summaries, which run in evaluation,
     * add the memory that the result takes in training. */
    bool only_in_training;
    bool inputless; /* forward may be called without inputs (n_in is 0) */
    /* Why forward must be called each time, and a network with the module never runs from a
     * compiled program: it has state or effects in C; NULL: it computes the same from the same
     * inputs and tensors. */
    const char *eager;
    /* Why its floats keep their dtype: an error of aril_module_cast; NULL: they can be cast. */
    const char *fixed_dtype;
} aril_module_class;

/* Creates a module of a class. The caller owns it: call aril_module_release, or add it to a parent.
 * NULL, with an error, when memory runs out. */
ARIL_API aril_module *aril_module_make(const aril_module_class *type);

/* Short form: a forward function of one input, or of several, with `size` bytes of data. */
ARIL_API aril_module *aril_module_new(const char *type, size_t size,
                                      aril_tensor *(*forward)(aril_module *self, aril_tensor *x));
ARIL_API aril_module *aril_module_new_n(const char *type, size_t size,
                                        aril_tensor *(*forward)(aril_module *self, aril_list in));

/* Takes another reference to m (to use one module in two places: its weights are shared, and
 * counted once); drops a reference. */
ARIL_API aril_module *aril_module_keep(aril_module *m);
ARIL_API void aril_module_release(aril_module *m);

/* The module's instance data, `size` bytes; and the name of its class, such as "Linear". */
ARIL_API void *aril_module_data(const aril_module *m);
ARIL_API const char *aril_module_type(const aril_module *m);

/* Marks m as built: it has all its parameters, so `build` is not called. */
ARIL_API void aril_module_ready(aril_module *m);

/* Adds a child to m, which takes ownership of the caller's reference (even on failure). Returns the
 * child. The name must be nonempty, without dots and unique within the module. It is an error if
 * the tree would become more than ARIL_MODULE_DEPTH levels deep. */
ARIL_API aril_module *aril_module_add(aril_module *m, const char *name, aril_module *child);

/* Registers t as a parameter of m: it requires a gradient and is owned by m instead of the
 * innermost scope. Returns it. Replaces an existing parameter of that name. NULL for t registers a
 * missing parameter (such as a bias), and returns NULL. */
ARIL_API aril_tensor *aril_module_parameter(aril_module *m, const char *name, aril_tensor *t);

/* Registers t as a buffer of m: a tensor that is saved with the parameters but not trained. Returns
 * it. aril_module_scratch registers a buffer that is not saved. */
ARIL_API aril_tensor *aril_module_buffer(aril_module *m, const char *name, aril_tensor *t);
ARIL_API aril_tensor *aril_module_scratch(aril_module *m, const char *name, aril_tensor *t);

/* The i-th parameter or buffer of m itself, in registration order; NULL if it is missing. Forward
 * functions that look weights up this way see weights that were shared later. */
ARIL_API aril_tensor *aril_module_own(const aril_module *m, int i);

/* Replaces the parameter or buffer `name` in the tree of m with t, of the same shape (weight
 * sharing): weights shared by two modules are counted once. */
ARIL_API aril_status aril_module_share(aril_module *m, const char *name, aril_tensor *t);

/* ---- running ---- */

/* Runs the module on x, recorded for gradients. Returns a poisoned tensor, with an error, on
 * failure. Thread-safe in evaluation mode; if the module is not built yet, one thread builds it. */
ARIL_API aril_tensor *aril_forward(aril_module *m, aril_tensor *x);
/* The same for several inputs: returns the first result, or n_out results. Results that the module
 * does not set are NULL. */
ARIL_API aril_tensor *aril_forward_n(aril_module *m, aril_list in);
ARIL_API aril_status aril_forward_all(aril_module *m, aril_list in, int n_out, aril_tensor **out);

/* Compiles m: from now on aril_forward and the like run it from a trace (aril/graph.h), one for
 * each signature of the inputs and each mode. C code in its forward functions runs while it is
 * traced. Results are new tensors. Where autograd records the call, it gets one node for it, whose
 * gradient is a program too; that cannot be differentiated again (create_graph). A module that
 * cannot be traced or has hooks runs as it is, with one line in the log (ARIL_LOG=trace). Inside a
 * traced function, such as a whole training step, it changes nothing. */
ARIL_API aril_status aril_module_jit(aril_module *m);
/* Why a compiled module could not be traced; NULL: it was, or has not run. Belongs to m. */
ARIL_API const char *aril_module_eager_reason(aril_module *m);

/* Creates all parameters whose sizes depend on the input, with one run in evaluation mode on a
 * batch of one sample of shape x (without the batch dimension), which changes no buffers. A no-op
 * if the module is already built. */
ARIL_API aril_status aril_module_build(aril_module *m, aril_shape x);
/* The same with actual inputs, of any number and dtype. */
ARIL_API aril_status aril_module_build_n(aril_module *m, aril_list in);
/* True when all parameters have been created. */
ARIL_API bool aril_module_built(const aril_module *m);

/* Sets training mode (the default) or evaluation mode for m and all its descendants: it affects
 * dropout and normalization statistics. */
ARIL_API void aril_module_train(aril_module *m);
ARIL_API void aril_module_eval(aril_module *m);
ARIL_API bool aril_module_training(const aril_module *m);

/* ---- parameters, buffers and children ---- */

/* All tensors in the tree of m with their full names, in registration order, each tensor once: the
 * parameters; the buffers; the state (parameters and saved buffers, in PyTorch's order). The memory
 * belongs to m and stays valid until m changes. NULL, with an error, if m is not built. */
ARIL_API const aril_named *aril_parameters(aril_module *m);
ARIL_API const aril_named *aril_buffers(aril_module *m);
ARIL_API const aril_named *aril_state(aril_module *m);

/* A tensor or a module by its full name; NULL, with an error, if there is none. "" is m itself. */
ARIL_API aril_tensor *aril_module_tensor(aril_module *m, const char *name);
ARIL_API aril_module *aril_module_at(aril_module *m, const char *name);

/* The number of children, the i-th child, and its name. */
ARIL_API int aril_module_children(const aril_module *m);
ARIL_API aril_module *aril_module_child(const aril_module *m, int i);
ARIL_API const char *aril_module_child_name(const aril_module *m, int i);

/* Calls fn for m and all its descendants, children first; path is the full name. Fails when memory
 * runs out. */
typedef void aril_module_fn(aril_module *m, const char *path, void *ctx);
ARIL_API aril_status aril_module_visit(aril_module *m, aril_module_fn *fn, void *ctx);

/* The number of elements in all parameters; only in those that require a gradient. */
ARIL_API int64_t aril_parameter_count(aril_module *m);
ARIL_API int64_t aril_trainable_count(aril_module *m);

/* ---- device, dtype and values ---- */

/* Moves parameters and buffers to a device; casts those of float dtype. The tensors stay the same
 * objects, so that optimizers and others who reference them see the change. Nothing changes on
 * failure. */
ARIL_API aril_status aril_module_to(aril_module *m, aril_device device);
ARIL_API aril_status aril_module_cast(aril_module *m, aril_dtype dtype);

/* Freezes all parameters of m and its descendants, so that they require no gradient; unfreezes
 * them. */
ARIL_API void aril_module_freeze(aril_module *m);
ARIL_API void aril_module_unfreeze(aril_module *m);

/* Keeps the batch norms of m and its descendants in evaluation mode, whatever aril_module_train
 * says: they use their running statistics, and do not update them. For parts that are frozen; all
 * modules with saved buffers count as batch norms. After unfreeze_stats they follow
 * aril_module_train again. */
ARIL_API void aril_module_freeze_stats(aril_module *m);
ARIL_API void aril_module_unfreeze_stats(aril_module *m);

/* Clears the gradients of all parameters. */
ARIL_API void aril_module_zero_grad(aril_module *m);

/* Reinitializes all parameters of m and its descendants. */
ARIL_API void aril_module_reset(aril_module *m);

/* Copies the values of `from` into the parameters and saved buffers of the same name and shape.
 * With `partial`, names missing on either side are skipped; otherwise they are an error that lists
 * them. Everything is checked before the first write. aril/weights.h does the same from files. */
typedef struct aril_load_state_opts {
    bool partial;
} aril_load_state_opts;
ARIL_API aril_status aril_load_state(aril_module *m, const aril_named *from,
                                     aril_load_state_opts opts);

/* ---- hooks ---- */

/* Called before forward: may replace inputs by writing to in[]. Called after forward: may replace
 * results by writing to out[]. Called when the gradient of a module's result is computed: the
 * return value replaces it (NULL: unchanged). */
typedef void aril_pre_hook(aril_module *m, int n_in, aril_tensor **in, void *ctx);
typedef void aril_post_hook(aril_module *m, int n_in, aril_tensor *const *in, int n_out,
                            aril_tensor **out, void *ctx);
typedef aril_tensor *aril_backward_hook(aril_module *m, int out, aril_tensor *grad, void *ctx);

/* Each returns an id > 0 for aril_module_unhook, or a negative status. */
ARIL_API int aril_module_hook_before(aril_module *m, aril_pre_hook *fn, void *ctx);
ARIL_API int aril_module_hook_after(aril_module *m, aril_post_hook *fn, void *ctx);
ARIL_API int aril_module_hook_backward(aril_module *m, aril_backward_hook *fn, void *ctx);
ARIL_API aril_status aril_module_unhook(aril_module *m, int id);

/* ---- printing ---- */

/* Prints the module tree as PyTorch does: "Sequential(\n (0): Linear(in_features=4, ...". */
ARIL_API void aril_module_print(aril_module *m, FILE *to);

ARIL_C_END

#endif
