/* LSTM and RNN over sequences x [T,N,...], with an indicator [T,N] that is 0 where a sequence
 * begins and 1 where it continues. */
#include "models/caffe/layer.h"

#include <stdlib.h>

enum { MAX_STATES = 2 };

typedef struct recurrent {
    caffe_layer base;
    int64_t outputs;
    int gates, states; /* LSTM: 4 and 2; RNN: 1 and 1 */
    bool exposed, has_static;
} recurrent;

/* ---- parameters and blobs ---- */

static aril_status recurrent_check(aril_module *m, caffe_layer *l)
{
    recurrent *r = aril_module_data(m);
    bool lstm = strcmp(l->row->layer.base.type, "LSTM") == 0;
    r->gates = lstm ? 4 : 1;
    r->states = lstm ? 2 : 1;
    r->outputs = aril__message_int(l->param, "num_output");
    r->exposed = aril__message_int(l->param, "expose_hidden") != 0;
    if (r->outputs < 1 || r->outputs > INT32_MAX)
        return aril__caffe_bad(l, ARIL_ERR_FORMAT, "num_output %lld must be from 1 to 2147483647",
                               (long long)r->outputs);
    int shown = r->exposed ? r->states : 0;
    r->has_static = l->n_bottoms > 2 + shown;
    if (l->n_bottoms != 2 + shown + r->has_static || l->n_tops != 1 + shown)
        return aril__caffe_bad(l, ARIL_ERR_FORMAT,
                               "%d bottoms and %d tops; expected x, cont, perhaps a static input%s",
                               l->n_bottoms, l->n_tops,
                               r->exposed ? ", and the states as bottoms and tops" : "; one top");
    aril_status s = aril__caffe_check_filler(l, aril__message_sub(l->param, "weight_filler"));
    return s == ARIL_OK ? aril__caffe_check_filler(l, aril__message_sub(l->param, "bias_filler"))
                        : s;
}

/* The product of the sizes from an axis on. */
static aril_status width_of(const aril_tensor *x, int first, int64_t *width)
{
    char text[ARIL__SHAPE_TEXT];
    *width = 1;
    for (int i = first; i < x->ndim; i++)
        if (x->dim[i] < 1 || __builtin_mul_overflow(*width, x->dim[i], width))
            return aril__fail(ARIL_ERR_SHAPE, "the axes from %d of %s do not tell a size", first,
                              aril__text(text, x));
    return ARIL_OK;
}

static aril_status recurrent_build(aril_module *m, caffe_layer *l, aril_tensor *const *in)
{
    const recurrent *r = aril_module_data(m);
    const aril__message *w = aril__message_sub(l->param, "weight_filler"),
                        *b = aril__message_sub(l->param, "bias_filler");
    int64_t inputs, more = 0, h = r->outputs, wide = r->gates * h;
    bool lstm = r->gates > 1;
    char text[ARIL__SHAPE_TEXT];
    if (in[0]->ndim < 2)
        return aril__fail(ARIL_ERR_SHAPE, "expected sequences [T,N,...], got %s",
                          aril__text(text, in[0]));
    aril_status s = width_of(in[0], 2, &inputs);
    if (s == ARIL_OK && r->has_static) s = width_of(in[2], 1, &more);
    if (s == ARIL_OK) s = aril__caffe_add_blob(m, "weight_x", ARIL_SHAPE(wide, inputs), w, 0);
    if (s == ARIL_OK) s = aril__caffe_add_blob(m, lstm ? "bias" : "bias_h", ARIL_SHAPE(wide), b, 0);
    if (s == ARIL_OK && r->has_static)
        s = aril__caffe_add_blob(m, "weight_static", ARIL_SHAPE(wide, more), w, 0);
    if (s == ARIL_OK) s = aril__caffe_add_blob(m, "weight_h", ARIL_SHAPE(wide, h), w, 0);
    if (s == ARIL_OK && !lstm) s = aril__caffe_add_blob(m, "weight_o", ARIL_SHAPE(h, h), w, 0);
    if (s == ARIL_OK && !lstm) s = aril__caffe_add_blob(m, "bias_o", ARIL_SHAPE(h), b, 0);
    /* The states after a run are those before the next. */
    static const char *const names[] = { "h", "c" };
    for (int i = 0; i < r->states && !r->exposed && s == ARIL_OK; i++) {
        ARIL_SCOPE;
        aril_tensor *zeros = aril_zeros(ARIL_SHAPE(1, in[0]->dim[1], h), m->dtype, m->device);
        s = aril_tensor_status(aril_module_scratch(m, names[i], zeros));
    }
    return s;
}

/* ---- forward ---- */

/* The weights, in the order of the blobs. */
typedef struct weights {
    aril_tensor *x, *b, *fixed, *h, *o, *bo;
} weights;

static weights weights_of(const aril_module *m, const recurrent *r)
{
    int k = 2 + r->has_static;
    return (weights){ .x = aril__caffe_blob(m, 0),
                      .b = aril__caffe_blob(m, 1),
                      .fixed = r->has_static ? aril__caffe_blob(m, 2) : NULL,
                      .h = aril__caffe_blob(m, k),
                      .o = r->gates == 1 ? aril__caffe_blob(m, k + 1) : NULL,
                      .bo = r->gates == 1 ? aril__caffe_blob(m, k + 2) : NULL };
}

/* What the gates get of the inputs, at all steps: [T,N,gates * H]. */
static aril_tensor *from_inputs(const recurrent *r, const weights *w, aril_tensor *const *in)
{
    aril_tensor *x = aril_ndim(in[0]) > 3 ? aril_flatten(in[0], 2, -1) : in[0];
    if (aril_ndim(x) == 2) x = aril_unsqueeze(x, 2);
    aril_tensor *y = aril_linear(x, w->x, w->b);
    if (!r->has_static) return y;
    aril_tensor *fixed = aril_ndim(in[2]) > 2 ? aril_flatten(in[2], 1, -1) : in[2];
    return aril_add(y, aril_linear(fixed, w->fixed, NULL));
}

/* One step; `cont` [N,1]. state[] is replaced, the result is the output. */
static aril_tensor *step(const recurrent *r, const weights *w, aril_tensor *gates,
                         aril_tensor *cont, aril_tensor **state)
{
    aril_tensor *g = aril_add(gates, aril_linear(aril_mul(state[0], cont), w->h, NULL));
    if (r->gates == 1) {
        state[0] = aril_tanh(g);
        return aril_tanh(aril_linear(state[0], w->o, w->bo));
    }
    int64_t h = r->outputs;
    aril_tensor *in = aril_sigmoid(aril_narrow(g, 1, 0, h)),
                *forget = aril_mul(cont, aril_sigmoid(aril_narrow(g, 1, h, h))),
                *show = aril_sigmoid(aril_narrow(g, 1, 2 * h, h)),
                *value = aril_tanh(aril_narrow(g, 1, 3 * h, h));
    state[1] = aril_add(aril_mul(forget, state[1]), aril_mul(in, value));
    return state[0] = aril_mul(show, aril_tanh(state[1]));
}

static aril_status check_sequences(const recurrent *r, aril_tensor *const *in)
{
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    if (in[0]->ndim < 2 || in[1]->ndim != 2 || in[0]->dim[0] != in[1]->dim[0] ||
        in[0]->dim[1] != in[1]->dim[1] || in[0]->dim[0] < 1)
        return aril__fail(ARIL_ERR_SHAPE,
                          "expected sequences [T,N,...] and indicators [T,N], got %s and %s",
                          aril__text(a, in[0]), aril__text(b, in[1]));
    if (r->has_static && (in[2]->ndim < 1 || in[2]->dim[0] != in[0]->dim[1]))
        return aril__fail(ARIL_ERR_SHAPE, "expected a static input for %lld sequences, got %s",
                          (long long)in[0]->dim[1], aril__text(a, in[2]));
    return ARIL_OK;
}

/* The states before the first step, [N,H]. */
static void first_states(aril_module *m, const recurrent *r, aril_tensor *const *in,
                         aril_tensor **state)
{
    aril_shape shape = ARIL_SHAPE(in[0]->dim[1], r->outputs);
    for (int i = 0; i < r->states; i++) {
        aril_tensor *t =
            r->exposed ? in[2 + r->has_static + i] : aril_module_own(m, r->base.n_blobs + i);
        bool other = !r->exposed && aril_size(t, 1) != shape.dim[0];
        if (other) t = aril_zeros(shape, aril_dtype_of(t), aril_device_of(t));
        if (!r->exposed && !other) t = aril_copy(t); /* it changes when this run ends */
        state[i] = aril_reshape(aril_cast(t, aril_dtype_of(in[0])), shape);
    }
}

/* Keeps the states for the next run, unless its batch has another size. */
static void keep_states(aril_module *m, const recurrent *r, aril_tensor *const *state)
{
    if (r->exposed || aril__is_building()) return;
    ARIL_NO_GRAD;
    for (int i = 0; i < r->states; i++) {
        aril_tensor *to = aril_module_own(m, r->base.n_blobs + i);
        if (aril_size(to, 1) == aril_size(state[i], 0))
            aril_copy_(to, aril_unsqueeze(aril_detach(state[i]), 0));
    }
}

static void recurrent_forward(aril_module *m, caffe_layer *l, aril_tensor *const *in,
                              aril_tensor **out)
{
    const recurrent *r = aril_module_data(m);
    int64_t steps = in[0]->ndim ? in[0]->dim[0] : 0;
    aril_tensor **y = NULL, *state[MAX_STATES];
    aril_status s = check_sequences(r, in);
    if (s == ARIL_OK && !(y = aril__malloc((size_t)steps * sizeof *y)))
        s = aril__fail(ARIL_ERR_MEMORY, "out of memory for %lld steps", (long long)steps);
    if (s < 0) {
        aril__caffe_failed(l, out);
        return;
    }
    weights w = weights_of(m, r);
    aril_tensor *gates = from_inputs(r, &w, in);
    aril_tensor *cont = aril_unsqueeze(aril_cast(in[1], aril_dtype_of(in[0])), 2); /* [T,N,1] */
    first_states(m, r, in, state);
    for (int64_t t = 0; t < steps; t++)
        y[t] = step(r, &w, aril_select(gates, 0, t), aril_select(cont, 0, t), state);
    out[0] = aril_stack((aril_list){ (int)steps, y }, 0);
    for (int i = 0; i < r->states && r->exposed; i++) out[1 + i] = aril_unsqueeze(state[i], 0);
    keep_states(m, r, state);
    free(y);
}

const caffe_row aril__caffe_recurrent_rows[] = {
    { CAFFE_ROW("LSTM", recurrent), CAFFE_COUNTS(2, 5, 1, 3), .param = "recurrent_param",
      .blob = { { "weight_x" }, { "bias" }, { "weight_static", .optional = true }, { "weight_h" } },
      .check = recurrent_check, .build = recurrent_build, .forward = recurrent_forward },
    { CAFFE_ROW("RNN", recurrent), CAFFE_COUNTS(2, 4, 1, 2), .param = "recurrent_param",
      .blob = { { "weight_x" },
                { "bias_h" },
                { "weight_static", .optional = true },
                { "weight_h" },
                { "weight_o" },
                { "bias_o" } },
      .check = recurrent_check, .build = recurrent_build, .forward = recurrent_forward },
    { .param = NULL },
};
