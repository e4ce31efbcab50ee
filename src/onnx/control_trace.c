/* If, Loop and Scan as nodes of a trace, for conditions and numbers of trips that only a run knows.
 * Their bodies are interpreted inside aril_cond and its like. */
#include "graph/control.h"
#include "onnx/rules.h"

/* A node while its bodies are traced. */
typedef struct traced {
    onnx_call *c;
    const onnx_body *body[2];
    int n_out;          /* of a body */
    onnx_value *in;     /* room for the inputs of a body, */
    onnx_value *out;    /* and its outputs */
    aril_tensor *trips; /* of a loop: how many at most, or NULL */
    bool iterates;      /* a loop: state 0 is the number of the trip */
} traced;

/* Branches and loops in a trace call their functions again to differentiate them, when the values
 * around are gone. */
static aril_status check_grad(const onnx_call *c)
{
    if (!c->run->recorded) return ARIL_OK;
    return aril__onnx_fail(c, ARIL_ERR_GRAD,
                           "is decided by values that only a run knows: in a compiled function it "
                           "has no gradient; call the model outside, or with ARIL_NO_GRAD");
}

/* A value as a tensor of the model's device. */
static aril_tensor *tensor_of(const onnx_call *c, const onnx_value *v)
{
    if (v->kind != ONNX_TENSOR || v->sizes) {
        aril__onnx_fail(c, ARIL_ERR_UNSUPPORTED, "%s",
                        v->sizes ? "passes on sizes that are left open; they must be known"
                                 : "passes on a value that is not a tensor of numbers");
        return aril_reshape(NULL, ARIL_SHAPE()); /* poisoned */
    }
    aril_device to = c->run->model->device;
    if (is_symbolic(v->tensor)) return v->tensor;
    aril__pause pause = aril__onnx_pause(c);
    aril_tensor *t = aril_contiguous(aril_to(v->tensor, to));
    aril__onnx_resume(c, pause);
    return t;
}

/* One element as a scalar. */
static aril_tensor *scalar(aril_tensor *t, aril_dtype dtype)
{
    return aril_cast(aril_ndim(t) ? aril_reshape(t, ARIL_SHAPE()) : t, dtype);
}

static aril_tensor *constant(const onnx_call *c, double value, aril_dtype dtype)
{
    aril__pause pause = aril__onnx_pause(c);
    aril_tensor *t = aril_full(ARIL_SHAPE(), value, dtype, c->run->model->device);
    aril__onnx_resume(c, pause);
    return t;
}

static aril_status run_body(const traced *t, int k, int n_in, aril_tensor *const *in,
                            aril_tensor **out)
{
    for (int i = 0; i < n_in; i++) t->in[i] = (onnx_value){ .kind = ONNX_TENSOR, .tensor = in[i] };
    aril_status s = aril__onnx_run_body(t->c->run, t->body[k], (size_t)n_in, t->in, t->out);
    for (int i = 0; i < t->n_out && s == ARIL_OK; i++) {
        out[i] = tensor_of(t->c, &t->out[i]);
        s = aril_tensor_status(out[i]);
    }
    if (s < 0) aril__poison_all(t->n_out, out);
    return s;
}

static aril_status new_traced(onnx_call *c, traced *t)
{
    size_t n = t->body[0]->n_out;
    if (t->body[1] && t->body[1]->n_out > n) n = t->body[1]->n_out;
    t->c = c;
    t->in = aril__onnx_alloc(&c->run->arena, t->body[0]->n_in, sizeof *t->in);
    t->out = aril__onnx_alloc(&c->run->arena, n, sizeof *t->out);
    return t->in && t->out ? check_grad(c) : ARIL_ERR_MEMORY;
}

static aril_status give_all(onnx_call *c, int n, aril_tensor *const *out)
{
    aril_status s = ARIL_OK;
    for (int i = 0; i < n && s == ARIL_OK; i++) s = give(c, i, out[i]);
    return s;
}

static aril_status too_many(const onnx_call *c)
{
    return aril__onnx_fail(c, ARIL_ERR_UNSUPPORTED, "more than %d inputs or results of a body",
                           ARIL__MAX_OUT);
}

/* ---- If ---- */

static void then_fn(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    run_body(ctx, 0, 0, in, out);
}

static void else_fn(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    run_body(ctx, 1, 0, in, out);
}

aril_status aril__onnx_traced_if(onnx_call *c)
{
    traced t = { .body = { aril__onnx_attr_body(c, "then_branch"),
                           aril__onnx_attr_body(c, "else_branch") },
                 .n_out = c->n_out };
    aril_tensor *out[ARIL__MAX_OUT];
    if (!t.body[0] || !t.body[1]) return ARIL_ERR_FORMAT;
    for (int k = 0; k < 2; k++)
        if ((int)t.body[k]->n_out < c->n_out)
            return aril__onnx_fail(c, ARIL_ERR_FORMAT, "a branch has fewer outputs than the node");
    if (c->n_out > ARIL__MAX_OUT) return too_many(c);
    aril_status s = new_traced(c, &t);
    if (s == ARIL_OK)
        s = aril_cond(in(c, 0), then_fn, else_fn, &t, (aril_list){ 0 }, c->n_out, out);
    return s == ARIL_OK ? give_all(c, c->n_out, out) : s;
}

/* ---- Loop ----
 *
 * Its state is the number of the trip, the condition, and the values that the node carries. */

static void goes_on(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    const traced *t = ctx;
    out[0] = in[1];
    if (t->trips) out[0] = aril_logical_and(out[0], aril_lt(in[0], t->trips));
}

static void loop_trip(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    const traced *t = ctx;
    if (run_body(t, 0, (int)t->body[0]->n_in, in, out + 1) < 0) {
        out[0] = out[1];
        return;
    }
    out[0] = aril_add(in[0], constant(t->c, 1, ARIL_I64));
    out[1] = scalar(out[1], ARIL_BOOL);
}

aril_status aril__onnx_traced_loop(onnx_call *c, const onnx_body *body, int states)
{
    traced t = { .body = { body }, .n_out = (int)body->n_out };
    aril_tensor *state[ARIL__MAX_OUT], *out[ARIL__MAX_OUT];
    if (t.n_out + 1 > ARIL__MAX_OUT) return too_many(c);
    aril_status s = new_traced(c, &t);
    if (s < 0) return s;
    if (given(c, 0)) t.trips = scalar(in(c, 0), ARIL_I64);
    state[0] = constant(c, 0, ARIL_I64);
    state[1] = given(c, 1) ? scalar(in(c, 1), ARIL_BOOL) : constant(c, 1, ARIL_BOOL);
    for (int i = 0; i < states; i++) state[2 + i] = tensor_of(c, &c->in[2 + i]);
    aril_list all = { 2 + states, state };
    s = aril__while_stacked(goes_on, loop_trip, &t, all, t.n_out - 1 - states, out);
    return s == ARIL_OK ? give_all(c, t.n_out - 1, out + 2) : s;
}

/* ---- Scan ---- */

static void scan_trip(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    const traced *t = ctx;
    run_body(t, 0, (int)t->body[0]->n_in, in, out);
}

aril_status aril__onnx_traced_scan(onnx_call *c, const onnx_body *body, int states,
                                   const onnx_scan_axes *axes)
{
    traced t = { .body = { body }, .n_out = (int)body->n_out };
    int n_in = (int)body->n_in, n_ys = t.n_out - states;
    aril_tensor *arg[ARIL__CONTROL_ARGS], *out[ARIL__MAX_OUT];
    if (t.n_out > ARIL__MAX_OUT || n_in > ARIL__CONTROL_ARGS) return too_many(c);
    aril_status s = new_traced(c, &t);
    for (int i = 0; i < n_in && s == ARIL_OK; i++) {
        int k = i - states;
        arg[i] = tensor_of(c, &c->in[i]);
        if (k >= 0 && axes->in[k])
            arg[i] = aril_movedim(arg[i], ARIL_AXES(axes->in[k]), ARIL_AXES(0));
        if (k >= 0 && axes->in_reverse[k]) arg[i] = aril_flip(arg[i], ARIL_AXES(0));
        s = aril_tensor_status(arg[i]);
    }
    if (s == ARIL_OK)
        s = aril_scan(scan_trip, &t, (aril_list){ states, arg },
                      (aril_list){ n_in - states, arg + states }, n_ys, out, out + states);
    for (int i = 0; i < n_ys && s == ARIL_OK; i++) {
        aril_tensor *y = out[states + i];
        if (axes->out_reverse[i]) y = aril_flip(y, ARIL_AXES(0));
        if (axes->out[i]) y = aril_movedim(y, ARIL_AXES(0), ARIL_AXES(axes->out[i]));
        out[states + i] = y;
    }
    return s == ARIL_OK ? give_all(c, t.n_out, out) : s;
}
