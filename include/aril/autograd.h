/* Gradients: a graph is built while the program runs and walked back by aril_backward. */
#ifndef ARIL_AUTOGRAD_H
#define ARIL_AUTOGRAD_H

#include "aril/scope.h"
#include "aril/tensor.h"

ARIL_C_BEGIN

/* ---- leaves ---- */

/* Makes `t` a parameter: kept (release it with aril_release), and wanting a gradient. A value that
 * was computed from other parameters is cut off from them. Returns the parameter. */
ARIL_API aril_tensor *aril_parameter(aril_tensor *t);

/* Does `t` take part in a gradient? And: makes a leaf want one, or no longer. */
ARIL_API bool aril_requires_grad(const aril_tensor *t);
ARIL_API aril_status aril_set_requires_grad(aril_tensor *t, bool wants);

/* True for tensors that no recorded operation made. */
ARIL_API bool aril_is_leaf(const aril_tensor *t);

/* The gradient that backward has gathered in `t`: a leaf, or a tensor with aril_retain_grad.
 * Borrowed to the innermost scope. Poisoned, with an error, when there is none; aril_has_grad
 * asks first. */
ARIL_API aril_tensor *aril_grad(const aril_tensor *t);
ARIL_API bool aril_has_grad(const aril_tensor *t);

/* Drops the gradient of `t`, or replaces it (g may be NULL). */
ARIL_API void aril_zero_grad(aril_tensor *t);
ARIL_API aril_status aril_set_grad(aril_tensor *t, aril_tensor *g);

/* Keeps the gradient of a tensor that is no leaf, for aril_grad. */
ARIL_API aril_status aril_retain_grad(aril_tensor *t);

/* The same values, without their past: no gradient flows through. Shares memory. */
ARIL_API aril_tensor *aril_detach(aril_tensor *t);

/* Called with the gradient of `t` as soon as it is known; what it returns replaces the gradient
 * (NULL: unchanged). Returns an id > 0 for aril_remove_hook, or a negative status. */
typedef aril_tensor *aril_grad_hook(aril_tensor *grad, void *ctx);
ARIL_API int aril_hook(aril_tensor *t, aril_grad_hook *fn, void *ctx);
ARIL_API aril_status aril_remove_hook(aril_tensor *t, int id);

/* ---- backward ---- */

typedef struct aril_grad_opts {
    bool retain_graph; /* keep the graph for another walk; otherwise saved values are freed */
    bool create_graph; /* record the walk itself, so that gradients can be differentiated again */
    bool allow_unused; /* an input that does not matter gets a gradient of 0, not an error */
    aril_list grad_outputs; /* aril_gradients_n: gradients to start from; none: ones */
} aril_grad_opts;

/* Adds d loss / d leaf to the gradient of every leaf that `loss` was computed from. `loss` has one
 * element. The graph is freed. */
ARIL_API aril_status aril_backward(aril_tensor *loss);

/* The same from a given gradient of `t`, of its shape; NULL means ones. */
ARIL_API aril_status aril_backward_with(aril_tensor *t, aril_tensor *grad, aril_grad_opts opts);

/* d y / d inputs[i] to grads[i], without touching the gradients of leaves. `y` has one element. */
ARIL_API aril_status aril_gradients(aril_tensor *y, aril_list inputs, aril_tensor **grads,
                                    aril_grad_opts opts);

/* The same for several outputs of any shape: the sum over them of grad_outputs[k] times the
 * derivative of outputs[k]. */
ARIL_API aril_status aril_gradients_n(aril_list outputs, aril_list inputs, aril_tensor **grads,
                                      aril_grad_opts opts);

/* Every result is checked from now on: the first op that makes a NaN, forward or backward, is an
 * error that names it and where it was called. Also ARIL_ANOMALY=1. This thread only. */
ARIL_API void aril_set_anomaly(bool on);

/* ---- functions of your own ---- */

/* One call of a function of your own: its inputs, results and saved values. Opaque. */
typedef struct aril_ctx aril_ctx;

/* A differentiable function of `inputs` tensors with `outputs` results. `forward` reads its inputs
 * with aril_ctx_in and gives results with aril_ctx_out; nothing in it is recorded. `backward` reads
 * aril_ctx_grad_out (NULL never: zeros stand in) and gives aril_ctx_grad_in. Written in Aril's ops,
 * it can be differentiated again. */
typedef struct aril_function {
    const char *name;
    int inputs, outputs;
    void (*forward)(aril_ctx *c);
    void (*backward)(aril_ctx *c);
    bool opaque; /* the C code reads data itself: needs `shape`, and is refused by export */
    /* Sizes and dtypes of the results, for a trace of an opaque function. */
    aril_status (*shape)(aril_ctx *c, int out, aril_shape *shape, aril_dtype *dtype);
    void *data; /* yours: aril_ctx_data */
} aril_function;

/* How many values a function can save for its backward: slots 0 .. ARIL_CTX_SAVED - 1. */
enum { ARIL_CTX_SAVED = 16 };

/* In forward and backward: input i, borrowed. In forward: gives result i. */
ARIL_API aril_tensor *aril_ctx_in(aril_ctx *c, int i);
ARIL_API void aril_ctx_out(aril_ctx *c, int i, aril_tensor *t);
/* Saves a value for backward; inputs and results may be saved, and anything computed. In backward:
 * what was saved in that slot. */
ARIL_API void aril_ctx_save(aril_ctx *c, int slot, aril_tensor *t);
ARIL_API aril_tensor *aril_ctx_saved(aril_ctx *c, int slot);
/* In backward: the gradient of result i; and gives the gradient of input i. */
ARIL_API aril_tensor *aril_ctx_grad_out(aril_ctx *c, int i);
ARIL_API void aril_ctx_grad_in(aril_ctx *c, int i, aril_tensor *g);
/* Does the gradient of input i matter? */
ARIL_API bool aril_ctx_wants(aril_ctx *c, int i);
/* The function's own data: `data` of its aril_function. */
ARIL_API void *aril_ctx_data(aril_ctx *c);

/* Calls it: the first result, or all of them. The function must outlive the graph. */
ARIL_API aril_tensor *aril_call(const aril_function *f, aril_list inputs);
ARIL_API aril_status aril_call_n(const aril_function *f, aril_list inputs, aril_tensor **out);

/* ---- derivatives of functions ---- */

/* A function of tensors as the helpers below take it: reads in[], sets out[]. */
typedef void aril_fn(void *ctx, aril_tensor *const *in, aril_tensor **out);

/* Runs fn without keeping its inner values, and runs it again when backward needs them, with the
 * same random numbers. out[] gets n_out results. */
ARIL_API aril_status aril_checkpoint(aril_fn *fn, void *ctx, aril_list inputs, int n_out,
                                     aril_tensor **out);

/* d out / d x of a function of one tensor: [shape of out..., shape of x...]. */
ARIL_API aril_tensor *aril_jacobian(aril_fn *fn, void *ctx, aril_tensor *x);

/* Second derivatives of a scalar function of one tensor: [shape of x..., shape of x...]. */
ARIL_API aril_tensor *aril_hessian(aril_fn *fn, void *ctx, aril_tensor *x);

/* v * Jacobian, for v of the shape of the result; *value, where given, gets fn(x). */
ARIL_API aril_tensor *aril_vjp(aril_fn *fn, void *ctx, aril_tensor *x, aril_tensor *v,
                               aril_tensor **value);

/* Jacobian * v, for v of the shape of x; *value, where given, gets fn(x). */
ARIL_API aril_tensor *aril_jvp(aril_fn *fn, void *ctx, aril_tensor *x, aril_tensor *v,
                               aril_tensor **value);

typedef struct aril_gradcheck_opts {
    int n_out;         /* results of fn; 0: 1 */
    double eps;        /* step; 0: 1e-6 */
    double atol, rtol; /* 0: 1e-5 and 1e-3 */
    bool second;       /* check second derivatives too */
    bool keep_kinks;   /* compare even where left and right slopes differ */
} aril_gradcheck_opts;

/* Compares gradients of fn at `inputs` (f64 leaves that want a gradient) with finite differences.
 * Elements where the function has a kink, so that left and right slopes differ, are passed over.
 * ARIL_OK, or ARIL_ERR_GRAD with a message that names the worst element. */
ARIL_API aril_status aril_gradcheck(aril_fn *fn, void *ctx, aril_list inputs,
                                    aril_gradcheck_opts opts);

ARIL_C_END

#endif
