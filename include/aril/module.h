/* Modules: layers and networks, trees of them, with their parameters.
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
 * A module owns its parameters, buffers and children; a name such as "layer1.0.weight" leads from a
 * module to what is inside it. Functions take NULL for a module that could not be made, and pass
 * the error on. */
#ifndef ARIL_MODULE_H
#define ARIL_MODULE_H

#include "aril/autograd.h"
#include "aril/device.h"
#include "aril/named.h"

ARIL_C_BEGIN

typedef struct aril_module aril_module;

/* How many levels of modules there can be below one: aril_module_add refuses more, so that walks
 * over a tree, which call themselves for each level, fit the stack of a thread. */
enum { ARIL_MODULE_DEPTH = 1000 };

/* ---- modules of your own ---- */

/* What a kind of module does. It must outlive its modules. */
typedef struct aril_module_class {
    const char *type; /* "Linear": what summaries show */
    size_t size;      /* bytes of data of its own, zeros at the start: aril_module_data */
    /* Reads n_in inputs and sets n_out results. Inputs that were left out, of up to 16, are NULL in
     * in[]. It runs in a scope of its own, which its results leave by themselves. */
    void (*forward)(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                    aril_tensor **out);
    /* Called before the first forward, with its inputs, to make the parameters whose sizes were not
     * known before; NULL: all are made at once. */
    aril_status (*build)(aril_module *self, int n_in, aril_tensor *const *in);
    /* Draws new values for the parameters of this module (not of its children); NULL: none. */
    void (*reset)(aril_module *self);
    /* What stands between the brackets of "Linear(...)"; NULL: nothing. */
    void (*describe)(const aril_module *self, char *text, size_t size);
    /* Before the module's memory goes; parameters and children go by themselves. NULL: nothing. */
    void (*destroy)(aril_module *self);
    int inputs, outputs; /* how many it takes and gives at most; 0: 1, -1: any number */
} aril_module_class;

/* A module of a class. The caller owns it: aril_module_release, or hand it to a parent. NULL, with
 * an error, when memory is out. */
ARIL_API aril_module *aril_module_make(const aril_module_class *type);

/* The same in short: a function of one input, or of several, with `size` bytes of data. */
ARIL_API aril_module *aril_module_new(const char *type, size_t size,
                                      aril_tensor *(*forward)(aril_module *self, aril_tensor *x));
ARIL_API aril_module *aril_module_new_n(const char *type, size_t size,
                                        aril_tensor *(*forward)(aril_module *self, aril_list in));

/* Another owner of m (to put one module into two places: its weights are shared, and counted
 * once); and one owner less. */
ARIL_API aril_module *aril_module_keep(aril_module *m);
ARIL_API void aril_module_release(aril_module *m);

/* The module's own data, `size` bytes; and the name of its class, such as "Linear". */
ARIL_API void *aril_module_data(const aril_module *m);
ARIL_API const char *aril_module_type(const aril_module *m);

/* Says that m has all its parameters already, so that `build` is not called. */
ARIL_API void aril_module_ready(aril_module *m);

/* Puts a child into m, which takes over the caller's reference (also on failure). Returns the
 * child. A name is not empty, has no dot and is used once in a module. An error where the tree would
 * become more than ARIL_MODULE_DEPTH levels deep. */
ARIL_API aril_module *aril_module_add(aril_module *m, const char *name, aril_module *child);

/* Makes t a parameter of m: wanting a gradient, and owned by m in place of the innermost scope.
 * Returns it. A parameter of that name is replaced. NULL for t notes one that this module does
 * without (a bias), and gives NULL. */
ARIL_API aril_tensor *aril_module_parameter(aril_module *m, const char *name, aril_tensor *t);

/* Makes t a buffer of m: a value that is saved with the parameters but not trained. Returns it.
 * aril_module_scratch makes one that is not saved. */
ARIL_API aril_tensor *aril_module_buffer(aril_module *m, const char *name, aril_tensor *t);
ARIL_API aril_tensor *aril_module_scratch(aril_module *m, const char *name, aril_tensor *t);

/* The i-th parameter or buffer of m itself, in the order in which they were made; NULL where it
 * does without. Forward functions that ask this way see weights that were shared later. */
ARIL_API aril_tensor *aril_module_own(const aril_module *m, int i);

/* Puts t, of the same shape, in the place of the parameter or buffer called name below m: weights
 * shared by two modules are counted once. */
ARIL_API aril_status aril_module_share(aril_module *m, const char *name, aril_tensor *t);

/* ---- running ---- */

/* The result for x, recorded for gradients. Poison, with an error, on failure. Several threads may
 * run a module at once in evaluation mode; one of them builds it where that is needed. */
ARIL_API aril_tensor *aril_forward(aril_module *m, aril_tensor *x);
/* The first result for several inputs; and n_out results. Results that the module does not set are
 * NULL. */
ARIL_API aril_tensor *aril_forward_n(aril_module *m, aril_list in);
ARIL_API aril_status aril_forward_all(aril_module *m, aril_list in, int n_out, aril_tensor **out);

/* Makes all parameters whose sizes depend on the input, by one run in evaluation mode on a batch of
 * one, of `x` each (without the batch dimension), which changes no buffer. Does nothing to a module
 * that is built. */
ARIL_API aril_status aril_module_build(aril_module *m, aril_shape x);
/* The same with the inputs themselves, of any number and dtype. */
ARIL_API aril_status aril_module_build_n(aril_module *m, aril_list in);
/* True when no parameter waits for its size. */
ARIL_API bool aril_module_built(const aril_module *m);

/* Training (the state at the start) or evaluation, of m and all below it: dropout and the
 * statistics of norms follow it. */
ARIL_API void aril_module_train(aril_module *m);
ARIL_API void aril_module_eval(aril_module *m);
ARIL_API bool aril_module_training(const aril_module *m);

/* ---- what is inside ---- */

/* Everything below m with its full name, in the order of registration, each tensor once: the
 * parameters; the buffers; the state: parameters and saved buffers, in PyTorch's order. The memory
 * belongs to m and stays valid until m changes. Where parameters wait for their sizes it is an
 * error, and NULL. */
ARIL_API const aril_named *aril_parameters(aril_module *m);
ARIL_API const aril_named *aril_buffers(aril_module *m);
ARIL_API const aril_named *aril_state(aril_module *m);

/* A tensor or a module by its full name; NULL, with an error, where there is none. "" is m
 * itself. */
ARIL_API aril_tensor *aril_module_tensor(aril_module *m, const char *name);
ARIL_API aril_module *aril_module_at(aril_module *m, const char *name);

/* Children: how many, the i-th, and its name. */
ARIL_API int aril_module_children(const aril_module *m);
ARIL_API aril_module *aril_module_child(const aril_module *m, int i);
ARIL_API const char *aril_module_child_name(const aril_module *m, int i);

/* Calls fn for m and everything below it, children first; path is the full name. Fails when memory
 * is out. */
typedef void aril_module_fn(aril_module *m, const char *path, void *ctx);
ARIL_API aril_status aril_module_visit(aril_module *m, aril_module_fn *fn, void *ctx);

/* Numbers in the parameters; only in those that want a gradient. */
ARIL_API int64_t aril_parameter_count(aril_module *m);
ARIL_API int64_t aril_trainable_count(aril_module *m);

/* ---- changing ---- */

/* Moves parameters and buffers to a device; casts those in floating point. The tensors stay the
 * same objects, so that optimizers and others who hold them see the change. Nothing changes on
 * failure. */
ARIL_API aril_status aril_module_to(aril_module *m, aril_device device);
ARIL_API aril_status aril_module_cast(aril_module *m, aril_dtype dtype);

/* Parameters below m want a gradient no longer, or again. */
ARIL_API void aril_module_freeze(aril_module *m);
ARIL_API void aril_module_unfreeze(aril_module *m);

/* Drops the gradients of all parameters. */
ARIL_API void aril_module_zero_grad(aril_module *m);

/* Draws new initial values for everything below m. */
ARIL_API void aril_module_reset(aril_module *m);

/* Copies the values of `from` into the parameters and saved buffers of the same name and shape.
 * With `partial`, names that one side lacks are passed over; else they are an error that lists
 * them. Everything is checked before the first write. */
typedef struct aril_load_state_opts {
    bool partial;
} aril_load_state_opts;
ARIL_API aril_status aril_load_state(aril_module *m, const aril_named *from,
                                     aril_load_state_opts opts);

/* ---- files ---- */

/* Writes the parameters and saved buffers to a file (safetensors), under their names: PyTorch and
 * others read it. The old file stays until the new one is complete. */
ARIL_API aril_status aril_save(aril_module *m, const char *path);

/* aril_load_state from such a file, also one that PyTorch's tools wrote. On failure m is as it
 * was. */
ARIL_API aril_status aril_load_weights(aril_module *m, const char *path, aril_load_state_opts opts);

/* ---- hooks ---- */

/* Before forward: may replace inputs by writing to in[]. After it: may replace results by writing
 * to out[]. After the gradient of a module's results is known: may replace it by what it returns
 * (NULL: unchanged). */
typedef void aril_pre_hook(aril_module *m, int n_in, aril_tensor **in, void *ctx);
typedef void aril_post_hook(aril_module *m, int n_in, aril_tensor *const *in, int n_out,
                            aril_tensor **out, void *ctx);
typedef aril_tensor *aril_backward_hook(aril_module *m, int out, aril_tensor *grad, void *ctx);

/* Each returns an id > 0 for aril_module_unhook, or a negative status. */
ARIL_API int aril_module_hook_before(aril_module *m, aril_pre_hook *fn, void *ctx);
ARIL_API int aril_module_hook_after(aril_module *m, aril_post_hook *fn, void *ctx);
ARIL_API int aril_module_hook_backward(aril_module *m, aril_backward_hook *fn, void *ctx);
ARIL_API aril_status aril_module_unhook(aril_module *m, int id);

/* ---- seeing ---- */

/* The tree as PyTorch prints it: "Sequential(\n  (0): Linear(in_features=4, ...". */
ARIL_API void aril_module_print(aril_module *m, FILE *to);

ARIL_C_END

#endif
