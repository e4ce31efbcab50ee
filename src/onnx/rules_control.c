/* If, Loop and Scan. Conditions and numbers of trips are decided by the host: a model in which they
 * depend on its inputs is interpreted at each run. */
#include "onnx/rules.h"

#include <inttypes.h>

/* A trace of more trips than that is not worth its memory. */
enum { UNROLLED = 1000 };

/* One element as a condition. */
static aril_status truth(onnx_call *c, const onnx_value *v, bool *out)
{
    const void *at;
    *out = true;
    if (v->kind != ONNX_TENSOR || aril_numel(v->tensor) != 1)
        return aril__onnx_fail(c, ARIL_ERR_SHAPE, "a condition must be one value");
    if (c->run->tracing && !v->known) return ARIL__ONNX_DYNAMIC;
    aril_status s = aril__onnx_host(c, v->tensor, ARIL_BOOL, &at);
    if (s == ARIL_OK) *out = *(const bool *)at;
    return s;
}

static bool same_type(const onnx_value *a, const onnx_value *b)
{
    if (a->kind != ONNX_TENSOR || b->kind != ONNX_TENSOR || a->sizes || b->sizes) return false;
    aril_shape x = aril_shape_of(a->tensor), y = aril_shape_of(b->tensor);
    return aril_dtype_of(a->tensor) == aril_dtype_of(b->tensor) && x.ndim == y.ndim &&
           memcmp(x.dim, y.dim, (size_t)x.ndim * sizeof *x.dim) == 0;
}

/* Where types are inferred and the condition is not known: both branches, whose results must agree
 * in their types. */
static aril_status both_branches(onnx_call *c)
{
    const onnx_body *body[] = { aril__onnx_attr_body(c, "then_branch"),
                                aril__onnx_attr_body(c, "else_branch") };
    onnx_value *out[2];
    aril_status s[2];
    for (int k = 0; k < 2; k++) {
        if (!body[k] || (int)body[k]->n_out != c->n_out) return ARIL_ERR_FORMAT;
        if (!(out[k] = aril__onnx_alloc(&c->run->arena, body[k]->n_out, sizeof **out)))
            return ARIL_ERR_MEMORY;
        s[k] = aril__onnx_run_body(c->run, body[k], 0, NULL, out[k]);
    }
    if (s[0] != ARIL_OK || s[1] != ARIL_OK) return s[0] != ARIL_OK ? s[0] : s[1];
    for (int i = 0; i < c->n_out; i++) {
        if (!same_type(&out[0][i], &out[1][i])) return ARIL__ONNX_DYNAMIC;
        out[0][i].known = false;
        give_value(c, i, out[0][i]);
    }
    return ARIL_OK;
}

static aril_status branch(onnx_call *c)
{
    bool yes;
    aril_status s = c->n_in ? truth(c, &c->in[0], &yes) : ARIL_ERR_ARG;
    if (s == ARIL__ONNX_DYNAMIC && c->run->types) return both_branches(c);
    if (s == ARIL__ONNX_DYNAMIC && c->run->whole) return aril__onnx_traced_if(c);
    if (s != ARIL_OK) return s;
    const onnx_body *body = aril__onnx_attr_body(c, yes ? "then_branch" : "else_branch");
    if (!body) return ARIL_ERR_FORMAT;
    if ((int)body->n_out != c->n_out)
        return aril__onnx_fail(c, ARIL_ERR_FORMAT, "a branch has %d outputs, but the node has %d",
                               (int)body->n_out, c->n_out);
    if (body->n_in)
        return aril__onnx_fail(c, ARIL_ERR_FORMAT, "a branch takes no inputs, this one has %d",
                               (int)body->n_in);
    onnx_value *out = aril__onnx_alloc(&c->run->arena, body->n_out, sizeof *out);
    if (!out) return ARIL_ERR_MEMORY;
    s = aril__onnx_run_body(c->run, body, 0, NULL, out);
    for (int i = 0; i < c->n_out && s == ARIL_OK; i++) s = give_value(c, i, out[i]);
    return s;
}

/* ---- results of all trips ---- */

typedef struct stack {
    onnx_value *at;
    size_t n, capacity;
    struct stack *packed; /* tensors of PACKED results each, which come before; NULL: none */
} stack;

/* Small results of many trips are packed: a tensor of one number takes 100 times its memory. */
enum { PACKED = 1024 };

static aril_status push(onnx_call *c, stack *s, onnx_value v)
{
    if (v.sizes) return ARIL__ONNX_DYNAMIC; /* a result of trips is computed */
    if (s->n == s->capacity) {
        size_t cap = 2 * s->capacity + 8;
        onnx_value *grown = aril__onnx_alloc(&c->run->arena, cap, sizeof *grown);
        if (!grown) return ARIL_ERR_MEMORY;
        if (s->n) memcpy(grown, s->at, s->n * sizeof *grown);
        s->at = grown;
        s->capacity = cap;
    }
    s->at[s->n++] = v;
    return ARIL_OK;
}

static void let_go(onnx_call *c, const onnx_value *v)
{
    if (v->kind == ONNX_TENSOR) aril__onnx_let_go(&c->run->arena, v->tensor);
}

/* Joins the results of PACKED trips, outside a trace. */
static aril_status pack(onnx_call *c, stack *s)
{
    onnx_arena *a = &c->run->arena;
    if (s->n < PACKED || c->run->tracing) return ARIL_OK;
    aril_tensor *part[PACKED];
    for (size_t k = 0; k < PACKED; k++) {
        if (s->at[k].kind != ONNX_TENSOR) return ARIL_OK; /* an error in the end */
        part[k] = s->at[k].tensor;
    }
    if (!s->packed && !(s->packed = aril__onnx_alloc(a, 1, sizeof *s->packed)))
        return ARIL_ERR_MEMORY;
    onnx_value all = { .kind = ONNX_TENSOR, .tensor = aril_stack((aril_list){ PACKED, part }, 0) };
    aril_status status = aril_tensor_status(all.tensor);
    if (status == ARIL_OK && !aril__onnx_keep(a, all.tensor)) status = ARIL_ERR_MEMORY;
    if (status == ARIL_OK) status = push(c, s->packed, all);
    for (size_t k = 0; k < PACKED; k++) let_go(c, &s->at[k]);
    s->n = 0;
    return status;
}

/* The packed results and those after them. */
static aril_status give_packed(onnx_call *c, int i, const stack *s)
{
    size_t n = s->packed->n;
    aril_tensor **part = aril__onnx_alloc(&c->run->arena, n + s->n + 1, sizeof *part);
    if (!part) return ARIL_ERR_MEMORY;
    for (size_t k = 0; k < s->n; k++) {
        if (s->at[k].kind != ONNX_TENSOR)
            return aril__onnx_fail(c, ARIL_ERR_UNSUPPORTED, "only tensors can be stacked");
        part[k] = s->at[k].tensor;
    }
    aril_tensor *rest = s->n ? aril_stack((aril_list){ (int)s->n, part }, 0) : NULL;
    for (size_t k = 0; k < n; k++) part[k] = s->packed->at[k].tensor;
    if (rest) part[n++] = rest;
    return give(c, i, aril_cat((aril_list){ (int)n, part }, 0));
}

/* The trips' results along a new axis. Without a trip, the declared type tells sizes and dtype. */
static aril_status give_stacked(onnx_call *c, int i, const stack *s, const onnx_body *body,
                                size_t output, int axis, bool reverse)
{
    if (s->packed) return give_packed(c, i, s);
    if (!s->n) {
        aril_shape shape = { .ndim = 1 };
        aril_dtype dtype = ARIL_F32;
        const aril__message *graph = NULL;
        for (size_t k = 0; k < c->node->n_attributes; k++)
            if (aril__message_has(c->node->attribute[k].value, "g"))
                graph = aril__message_sub(c->node->attribute[k].value, "g");
        if (graph) {
            const aril__message *type = aril__message_sub(
                aril__message_sub(aril__message_sub_at(graph, "output", output), "type"),
                "tensor_type");
            const aril__message *sizes = aril__message_sub(type, "shape");
            aril__onnx_dtype(aril__message_int(type, "elem_type"), &dtype);
            for (size_t d = 0; d < aril__message_count(sizes, "dim") && shape.ndim < ARIL_MAX_DIMS;
                 d++) {
                int64_t size =
                    aril__message_int(aril__message_sub_at(sizes, "dim", d), "dim_value");
                shape.dim[shape.ndim++] = size < 0 ? 0 : size;
            }
        }
        (void)body;
        onnx_value none = { .kind = ONNX_TENSOR,
                            .tensor = aril_zeros(shape, dtype, aril__onnx_device(c)) };
        return give_value(c, i, none);
    }
    aril_tensor **part = aril__onnx_alloc(&c->run->arena, s->n, sizeof *part);
    if (!part) return ARIL_ERR_MEMORY;
    bool known = true;
    for (size_t k = 0; k < s->n; k++) {
        const onnx_value *v = &s->at[reverse ? s->n - 1 - k : k];
        if (v->kind != ONNX_TENSOR)
            return aril__onnx_fail(c, ARIL_ERR_UNSUPPORTED, "only tensors can be stacked");
        part[k] = v->tensor;
        known &= v->known;
    }
    aril__pause p = { 0 };
    if (known) p = aril__onnx_pause(c);
    onnx_value v = { .kind = ONNX_TENSOR,
                     .known = known,
                     .tensor = aril_stack((aril_list){ (int)s->n, part }, axis) };
    if (known) aril__onnx_resume(c, p);
    return give_value(c, i, v);
}

static aril_status loop(onnx_call *c)
{
    const onnx_body *body = aril__onnx_attr_body(c, "body");
    if (!body) return ARIL_ERR_FORMAT;
    int states = c->n_in > 2 ? c->n_in - 2 : 0, scans = (int)body->n_out - 1 - states;
    if ((int)body->n_in != states + 2 || scans < 0)
        return aril__onnx_fail(c, ARIL_ERR_FORMAT,
                               "the body's inputs and outputs do not fit the node");
    int64_t trips;
    bool go = true;
    aril_status s = aril__onnx_int_in(c, 0, INT64_MAX, &trips);
    if (s == ARIL_OK && given(c, 1)) s = truth(c, &c->in[1], &go);
    if (s == ARIL__ONNX_DYNAMIC && c->run->whole) return aril__onnx_traced_loop(c, body, states);
    onnx_value *args = aril__onnx_alloc(&c->run->arena, body->n_in, sizeof *args);
    onnx_value *out = aril__onnx_alloc(&c->run->arena, body->n_out, sizeof *out);
    stack *stacks = aril__onnx_alloc(&c->run->arena, (size_t)scans, sizeof *stacks);
    if (!args || !out || !stacks) return ARIL_ERR_MEMORY;
    for (int i = 0; i < states; i++) args[i + 2] = c->in[i + 2];
    for (int64_t t = 0; t < trips && go && s == ARIL_OK; t++) {
        ARIL_SCOPE;
        aril__pause p = aril__onnx_pause(c);
        args[0] = (onnx_value){ .kind = ONNX_TENSOR,
                                .known = true,
                                .tensor = aril_from(&t, ARIL_SHAPE(), ARIL_I64, aril_cpu()) };
        args[1] = (onnx_value){ .kind = ONNX_TENSOR,
                                .known = true,
                                .tensor = aril_from(&go, ARIL_SHAPE(), ARIL_BOOL, aril_cpu()) };
        aril__onnx_resume(c, p);
        if (t >= UNROLLED && c->run->tracing) s = ARIL__ONNX_DYNAMIC;
        if (s == ARIL__ONNX_DYNAMIC) break;
        if (c->run->model->max_trips && t >= c->run->model->max_trips)
            return aril__onnx_fail(c, ARIL_ERR_STATE, "the loop does not end");
        s = aril__onnx_run_body(c->run, body, body->n_in, args, out);
        if (s == ARIL_OK && (s = truth(c, &out[0], &go)) == ARIL__ONNX_DYNAMIC) break;
        if (s == ARIL_OK) let_go(c, &out[0]);
        for (int i = 0; i < states && s == ARIL_OK; i++) {
            if (t) let_go(c, &args[i + 2]); /* of the trip before */
            args[i + 2] = out[i + 1];
        }
        for (int i = 0; i < scans && s == ARIL_OK; i++) {
            s = push(c, &stacks[i], out[1 + states + i]);
            if (s == ARIL_OK) s = pack(c, &stacks[i]);
        }
    }
    if (s == ARIL__ONNX_DYNAMIC && c->run->whole) return aril__onnx_traced_loop(c, body, states);
    for (int i = 0; i < states && s == ARIL_OK; i++) s = give_value(c, i, args[i + 2]);
    for (int i = 0; i < scans && s == ARIL_OK; i++)
        s = give_stacked(c, states + i, &stacks[i], body, (size_t)(1 + states + i), 0, false);
    return s;
}

/* ---- scan ---- */

static int64_t entry(onnx_ints v, int i)
{
    return v.n > i ? v.at[i] : 0;
}

/* One sequence of trips. in: states, then scanned inputs; out: final states, then stacks. */
static aril_status scan_once(onnx_call *c, const onnx_body *body, int states, int inputs,
                             const onnx_value *in, onnx_value *state, stack *stacks)
{
    onnx_ints axes = aril__onnx_attr_ints(c, "scan_input_axes"),
              reverse =
                  aril__onnx_attr_ints(c, c->version < 9 ? "directions" : "scan_input_directions");
    int outputs = (int)body->n_out - states;
    int64_t trips = -1;
    int axis[64];
    for (int i = 0; i < inputs; i++) {
        const onnx_value *v = &in[states + i];
        if (entry(reverse, i) & ~INT64_C(1))
            return aril__onnx_fail(c, ARIL_ERR_ARG, "a direction must be 0 or 1");
        if (v->kind != ONNX_TENSOR)
            return aril__onnx_fail(c, ARIL_ERR_ARG, "a scanned input is not a tensor");
        axis[i] = aril__onnx_axis(c, entry(axes, i), aril_ndim(v->tensor));
        if (axis[i] < 0) return ARIL_ERR_ARG;
        int64_t n = aril_size(v->tensor, axis[i]);
        if (n < 0) return ARIL__ONNX_DYNAMIC;
        if (trips >= 0 && n != trips)
            return aril__onnx_fail(c, ARIL_ERR_SHAPE, "scanned inputs differ in length");
        trips = n;
    }
    onnx_value *args = aril__onnx_alloc(&c->run->arena, body->n_in, sizeof *args);
    onnx_value *out = aril__onnx_alloc(&c->run->arena, body->n_out, sizeof *out);
    if (!args || !out) return ARIL_ERR_MEMORY;
    memcpy(state, in, (size_t)states * sizeof *state);
    aril_status s = ARIL_OK;
    for (int64_t t = 0; t < trips && s == ARIL_OK; t++) {
        ARIL_SCOPE;
        for (int i = 0; i < states; i++) args[i] = state[i];
        for (int i = 0; i < inputs; i++) {
            onnx_value v = in[states + i];
            aril__pause p = { 0 };
            if (v.known) p = aril__onnx_pause(c);
            v.tensor = aril_select(v.tensor, axis[i], entry(reverse, i) ? trips - 1 - t : t);
            if (v.known) aril__onnx_resume(c, p);
            args[states + i] = v;
        }
        s = aril__onnx_run_body(c->run, body, body->n_in, args, out);
        for (int i = 0; i < states && s == ARIL_OK; i++) state[i] = out[i];
        for (int i = 0; i < outputs && s == ARIL_OK; i++) s = push(c, &stacks[i], out[states + i]);
    }
    return s;
}

/* A scan of as many trips as only a run knows. */
static aril_status scan_traced(onnx_call *c, const onnx_body *body, int states, int inputs)
{
    onnx_scan_axes *to = aril__onnx_alloc(&c->run->arena, 1, sizeof *to);
    onnx_ints in = aril__onnx_attr_ints(c, "scan_input_axes"),
              in_reverse = aril__onnx_attr_ints(c, "scan_input_directions"),
              out = aril__onnx_attr_ints(c, "scan_output_axes"),
              out_reverse = aril__onnx_attr_ints(c, "scan_output_directions");
    int outputs = (int)body->n_out - states;
    if (!to) return ARIL_ERR_MEMORY;
    for (int k = 0; k < inputs && k < ARIL__CONTROL_ARGS; k++) {
        const onnx_value *v = &c->in[states + k];
        if (v->kind != ONNX_TENSOR) return ARIL__ONNX_DYNAMIC;
        to->in[k] = aril__onnx_axis(c, entry(in, k), aril_ndim(v->tensor));
        if (to->in[k] < 0) return ARIL_ERR_ARG;
        to->in_reverse[k] = entry(in_reverse, k) != 0;
    }
    for (int k = 0; k < outputs && k < ARIL__CONTROL_ARGS; k++) {
        to->out[k] = (int)entry(out, k);
        to->out_reverse[k] = entry(out_reverse, k) != 0;
    }
    return aril__onnx_traced_scan(c, body, states, to);
}

static aril_status scan_all(onnx_call *c, const onnx_body *body, int states, int inputs)
{
    int outputs = (int)body->n_out - states;
    onnx_ints axes = aril__onnx_attr_ints(c, "scan_output_axes"),
              reverse = aril__onnx_attr_ints(c, "scan_output_directions");
    onnx_value *state = aril__onnx_alloc(&c->run->arena, (size_t)states + 1, sizeof *state);
    stack *stacks = aril__onnx_alloc(&c->run->arena, (size_t)outputs + 1, sizeof *stacks);
    if (!state || !stacks) return ARIL_ERR_MEMORY;
    aril_status s = scan_once(c, body, states, inputs, c->in, state, stacks);
    if (s == ARIL__ONNX_DYNAMIC && c->run->whole) return scan_traced(c, body, states, inputs);
    for (int i = 0; i < states && s == ARIL_OK; i++) s = give_value(c, i, state[i]);
    for (int i = 0; i < outputs && s == ARIL_OK; i++)
        s = give_stacked(c, states + i, &stacks[i], body, (size_t)(states + i), (int)entry(axes, i),
                         entry(reverse, i) != 0);
    return s;
}

/* Version 8: with an axis for the batch, which is scanned sample by sample. */
static aril_status scan_batch(onnx_call *c, const onnx_body *body, int states, int inputs)
{
    int outputs = (int)body->n_out - states, n = states + inputs;
    if (given(c, 0)) return aril__onnx_fail(c, ARIL_ERR_UNSUPPORTED, "sequence_lens");
    int64_t batch = n && c->in[1].kind == ONNX_TENSOR ? aril_size(c->in[1].tensor, 0) : 0;
    if (batch < 0) return ARIL__ONNX_DYNAMIC;
    onnx_value *one = aril__onnx_alloc(&c->run->arena, (size_t)n, sizeof *one);
    onnx_value *state = aril__onnx_alloc(&c->run->arena, (size_t)states + 1, sizeof *state);
    stack *all = aril__onnx_alloc(&c->run->arena, body->n_out, sizeof *all);
    if (!one || !state || !all) return ARIL_ERR_MEMORY;
    aril_status s = ARIL_OK;
    for (int64_t b = 0; b < batch && s == ARIL_OK; b++) {
        stack *stacks = aril__onnx_alloc(&c->run->arena, (size_t)outputs + 1, sizeof *stacks);
        if (!stacks) return ARIL_ERR_MEMORY;
        for (int i = 0; i < n; i++) {
            one[i] = (onnx_value){ .kind = ONNX_TENSOR,
                                   .tensor = aril_select(c->in[i + 1].tensor, 0, b) };
            if (!aril__onnx_keep(&c->run->arena, one[i].tensor)) return ARIL_ERR_MEMORY;
        }
        s = scan_once(c, body, states, inputs, one, state, stacks);
        for (int i = 0; i < states && s == ARIL_OK; i++) s = push(c, &all[i], state[i]);
        for (int i = 0; i < outputs && s == ARIL_OK; i++) {
            aril_tensor **part = aril__onnx_alloc(&c->run->arena, stacks[i].n + 1, sizeof *part);
            if (!part) return ARIL_ERR_MEMORY;
            for (size_t k = 0; k < stacks[i].n; k++) part[k] = stacks[i].at[k].tensor;
            onnx_value v = { .kind = ONNX_TENSOR,
                             .tensor = aril_stack((aril_list){ (int)stacks[i].n, part }, 0) };
            s = push(c, &all[states + i], v);
        }
    }
    for (int i = 0; i < (int)body->n_out && s == ARIL_OK; i++)
        s = give_stacked(c, i, &all[i], body, (size_t)i, 0, false);
    return s;
}

static aril_status scan(onnx_call *c)
{
    const onnx_body *body = aril__onnx_attr_body(c, "body");
    if (!body) return ARIL_ERR_FORMAT;
    int first = c->version < 9, inputs = (int)aril__onnx_attr_int(c, "num_scan_inputs", 1);
    int states = c->n_in - first - inputs;
    if (inputs < 1 || inputs > 64 || states < 0 || (int)body->n_in != states + inputs ||
        (int)body->n_out < states)
        return aril__onnx_fail(c, ARIL_ERR_FORMAT,
                               "the body's inputs and outputs do not fit the node");
    return first ? scan_batch(c, body, states, inputs) : scan_all(c, body, states, inputs);
}

const onnx_rule aril__onnx_control_rules[] = {
    RULE_FLAGS("If", 1, branch, ONNX_BODIES),
    RULE_FLAGS("Loop", 1, loop, ONNX_BODIES),
    RULE_FLAGS("Scan", 8, scan, ONNX_BODIES),
    { 0 },
};
