/* Automatic differentiation: the graph is built dynamically while the program runs, and
 * aril_backward traverses it in reverse. */
#ifndef ARIL_AUTOGRAD_H
#define ARIL_AUTOGRAD_H

#include "aril/scope.h"
#include "aril/tensor.h"

ARIL_C_BEGIN

/* ---- leaves ---- */

/* Turns `t` into a parameter: takes a reference to it (release it with aril_release) and makes it
 * require a gradient. A value that was computed from other parameters is detached from them.
 * Returns the parameter. */
ARIL_API aril_tensor *aril_parameter(aril_tensor *t);

/* Returns whether `t` requires a gradient; sets whether a leaf does. */
ARIL_API bool aril_requires_grad(const aril_tensor *t);
ARIL_API aril_status aril_set_requires_grad(aril_tensor *t, bool wants);

/* True for tensors that are not the result of a recorded operation. */
ARIL_API bool aril_is_leaf(const aril_tensor *t);

/* The gradient that backward has accumulated in `t`: a leaf, or a tensor with aril_retain_grad.
 * Belongs to the innermost scope. Poisoned, with an error, when there is none; check with
 * aril_has_grad. */
ARIL_API aril_tensor *aril_grad(const aril_tensor *t);
ARIL_API bool aril_has_grad(const aril_tensor *t);

/* Clears the gradient of `t`, or replaces it (g may be NULL). */
ARIL_API void aril_zero_grad(aril_tensor *t);
ARIL_API aril_status aril_set_grad(aril_tensor *t, aril_tensor *g);

/* Retains the gradient of a non-leaf tensor, for aril_grad. */
ARIL_API aril_status aril_retain_grad(aril_tensor *t);

/* The same values, detached from the graph: no gradient flows through. Shares memory. */
ARIL_API aril_tensor *aril_detach(aril_tensor *t);

/* Called with the gradient of `t` as soon as it is computed; the return value replaces the gradient
 * (NULL: unchanged). Returns an id > 0 for aril_remove_hook, or a negative status. In a function
 * that is compiled (aril_jit), a hook of a tensor from outside is an error of aril_backward; one
 * that the function sets on its own values is traced with it: its operations are repeated, and its
 * C code is not. */
typedef aril_tensor *aril_grad_hook(aril_tensor *grad, void *ctx);
ARIL_API int aril_hook(aril_tensor *t, aril_grad_hook *fn, void *ctx);
ARIL_API aril_status aril_remove_hook(aril_tensor *t, int id);

/* ---- backward ---- */

typedef struct aril_grad_opts {
    bool retain_graph; /* keep the graph for another backward pass; otherwise saved values are
                          freed */
    bool create_graph; /* record the backward pass too, for higher-order derivatives */
    bool allow_unused; /* an input that the results do not depend on gets a zero gradient, not an
                          error, also after a loop of no trips, or if the result was computed from
                          nothing that requires a gradient */
    aril_list grad_outputs; /* aril_gradients_n: gradients of the outputs; empty: ones */
} aril_grad_opts;

/* Adds d loss / d leaf to the gradient of every leaf that `loss` was computed from. `loss` has one
 * element. The graph is freed. */
ARIL_API aril_status aril_backward(aril_tensor *loss);

/* The same, starting from a given gradient of `t`, of the same shape; NULL means ones. */
ARIL_API aril_status aril_backward_with(aril_tensor *t, aril_tensor *grad, aril_grad_opts opts);

/* Writes d y / d inputs[i] to grads[i], without touching the gradients of leaves. `y` has one
 * element. */
ARIL_API aril_status aril_gradients(aril_tensor *y, aril_list inputs, aril_tensor **grads,
                                    aril_grad_opts opts);

/* The same for several outputs of any shape: the sum over them of grad_outputs[k] times the
 * derivative of outputs[k]. */
ARIL_API aril_status aril_gradients_n(aril_list outputs, aril_list inputs, aril_tensor **grads,
                                      aril_grad_opts opts);

/* Anomaly detection: checks every result from now on. The first op that produces a NaN, forward or
 * backward, is reported as an error with its name and source location. Also ARIL_ANOMALY=1. This
 * thread only. */
ARIL_API void aril_set_anomaly(bool on);

/* ---- custom functions ---- */

/* The context of one call of a custom function: its inputs, results and saved values. Opaque. */
typedef struct aril_ctx aril_ctx;

/* A differentiable function of `inputs` tensors with `outputs` results. `forward` reads its inputs
 * with aril_ctx_in and sets its results with aril_ctx_out; nothing in it is recorded. `backward`
 * reads aril_ctx_grad_out (never NULL: missing gradients are zeros) and sets aril_ctx_grad_in. If
 * it only calls Aril's ops, it can be differentiated again. */
typedef struct aril_function {
    const char *name;
    int inputs, outputs;
    void (*forward)(aril_ctx *c);
    void (*backward)(aril_ctx *c);
    bool opaque; /* the C code accesses data directly: needs `shape`, and cannot be exported */
    /* Shapes and dtypes of the results, for tracing an opaque function. */
    aril_status (*shape)(aril_ctx *c, int out, aril_shape *shape, aril_dtype *dtype);
    void *data; /* user data, for aril_ctx_data */
} aril_function;

/* How many values a function can save for its backward: slots 0 .. ARIL_CTX_SAVED - 1. */
enum { ARIL_CTX_SAVED = 16 };

/* In forward and backward: input i, borrowed. In forward: sets result i. */
ARIL_API aril_tensor *aril_ctx_in(aril_ctx *c, int i);
ARIL_API void aril_ctx_out(aril_ctx *c, int i, aril_tensor *t);
/* Saves a value for backward: an input, a result or an intermediate value. In backward: the value
 * saved in that slot. */
ARIL_API void aril_ctx_save(aril_ctx *c, int slot, aril_tensor *t);
ARIL_API aril_tensor *aril_ctx_saved(aril_ctx *c, int slot);
/* In backward: the gradient of result i; sets the gradient of input i. */
ARIL_API aril_tensor *aril_ctx_grad_out(aril_ctx *c, int i);
ARIL_API void aril_ctx_grad_in(aril_ctx *c, int i, aril_tensor *g);
/* Returns whether the gradient of input i is needed. */
ARIL_API bool aril_ctx_wants(aril_ctx *c, int i);
/* The user data: `data` of the aril_function. */
ARIL_API void *aril_ctx_data(aril_ctx *c);

/* Calls the function: returns its first result, or all of them. The function must outlive the
 * graph. */
ARIL_API aril_tensor *aril_call(const aril_function *f, aril_list inputs);
ARIL_API aril_status aril_call_n(const aril_function *f, aril_list inputs, aril_tensor **out);

/* ---- derivatives of functions ---- */

/* A function of tensors for the helpers below: reads in[], sets out[]. */
typedef void aril_fn(void *ctx, aril_tensor *const *in, aril_tensor **out);

/* Activation checkpointing: runs fn without saving its intermediate values, and recomputes them in
 * the backward pass, with the same random numbers. out[] receives n_out results. */
ARIL_API aril_status aril_checkpoint(aril_fn *fn, void *ctx, aril_list inputs, int n_out,
                                     aril_tensor **out);

/* d out / d x of a function of one tensor: [shape of out..., shape of x...]. */
ARIL_API aril_tensor *aril_jacobian(aril_fn *fn, void *ctx, aril_tensor *x);

/* Second derivatives of a scalar function of one tensor: [shape of x..., shape of x...]. */
ARIL_API aril_tensor *aril_hessian(aril_fn *fn, void *ctx, aril_tensor *x);

/* Vector-Jacobian product v * J, for v of the shape of the result; *value, unless NULL, receives
 * fn(x). */
ARIL_API aril_tensor *aril_vjp(aril_fn *fn, void *ctx, aril_tensor *x, aril_tensor *v,
                               aril_tensor **value);

/* Jacobian-vector product J * v, for v of the shape of x; *value, unless NULL, receives fn(x). */
ARIL_API aril_tensor *aril_jvp(aril_fn *fn, void *ctx, aril_tensor *x, aril_tensor *v,
                               aril_tensor **value);

typedef struct aril_gradcheck_opts {
    int n_out;         /* results of fn; default 1 */
    double eps;        /* step; default 1e-6 */
    double atol, rtol; /* default 1e-5 and 1e-3 */
    bool second;       /* check second derivatives too */
    bool keep_kinks;   /* compare even where left and right slopes differ */
} aril_gradcheck_opts;

/* Compares the gradients of fn at `inputs` (f64 leaves that require a gradient) with finite
 * differences. Skips elements where the function has a kink, so that left and right slopes differ.
 * Returns ARIL_OK, or ARIL_ERR_GRAD with a message that names the worst element. */
ARIL_API aril_status aril_gradcheck(aril_fn *fn, void *ctx, aril_list inputs,
                                    aril_gradcheck_opts opts);

ARIL_C_END

#endif
