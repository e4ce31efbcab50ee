/* InnerProduct, Embed, Scale, Bias. */
#include "models/caffe/layer.h"

/* ---- InnerProduct ---- */

typedef struct inner_product {
    caffe_layer base;
    int64_t outputs, axis;
    bool bias, transpose;
} inner_product;

static aril_status read_outputs(const caffe_layer *l, int64_t *outputs)
{
    *outputs = aril__message_int(l->param, "num_output");
    if (*outputs < 1 || *outputs > INT32_MAX)
        return aril__caffe_bad(l, ARIL_ERR_FORMAT, "num_output %lld must be from 1 to 2147483647",
                               (long long)*outputs);
    aril_status s = aril__caffe_check_filler(l, aril__message_sub(l->param, "weight_filler"));
    return s == ARIL_OK ? aril__caffe_check_filler(l, aril__message_sub(l->param, "bias_filler"))
                        : s;
}

static aril_status ip_check(aril_module *m, caffe_layer *l)
{
    inner_product *p = aril_module_data(m);
    p->axis = aril__message_int(l->param, "axis");
    p->bias = aril__message_int(l->param, "bias_term") != 0;
    p->transpose = aril__message_int(l->param, "transpose") != 0;
    return read_outputs(l, &p->outputs);
}

static aril_status ip_build(aril_module *m, caffe_layer *l, aril_tensor *const *in)
{
    const inner_product *p = aril_module_data(m);
    char text[ARIL__SHAPE_TEXT];
    int axis;
    aril_status s = aril__caffe_axis("axis", in[0], p->axis, false, &axis);
    if (s < 0) return s;
    int64_t inputs = 1;
    for (int i = axis; i < in[0]->ndim; i++)
        if (in[0]->dim[i] < 1 || __builtin_mul_overflow(inputs, in[0]->dim[i], &inputs))
            return aril__fail(ARIL_ERR_SHAPE, "the axes from %d of %s do not tell a size", axis,
                              aril__text(text, in[0]));
    aril_shape shape =
        p->transpose ? ARIL_SHAPE(inputs, p->outputs) : ARIL_SHAPE(p->outputs, inputs);
    s = aril__caffe_add_blob(m, "weight", shape, aril__message_sub(l->param, "weight_filler"), 0);
    if (s == ARIL_OK && p->bias)
        s = aril__caffe_add_blob(m, "bias", ARIL_SHAPE(p->outputs),
                                 aril__message_sub(l->param, "bias_filler"), 0);
    return s;
}

static aril_tensor *inner(aril_module *m, aril_tensor *x, aril_activation activation)
{
    const inner_product *p = aril_module_data(m);
    int axis;
    if (aril__caffe_axis("axis", x, p->axis, false, &axis) < 0) return aril__poison();
    if (axis < aril_ndim(x) - 1) x = aril_flatten(x, axis, -1);
    aril_tensor *w = aril__caffe_blob(m, 0), *b = aril__caffe_blob(m, 1);
    if (p->transpose) w = aril_t(w);
    return axis == 0 ? aril_squeeze(aril_linear_with(aril_unsqueeze(x, 0), w, b,
                                                     (aril_linear_opts){ activation }),
                                    ARIL_AXES(0))
                     : aril_linear_with(x, w, b, (aril_linear_opts){ activation });
}

static void ip_forward(aril_module *m, caffe_layer *l, aril_tensor *const *in, aril_tensor **out)
{
    (void)l;
    out[0] = inner(m, in[0], ARIL_NO_ACTIVATION);
}

/* ---- Embed ---- */

typedef struct embed {
    caffe_layer base;
    int64_t outputs, inputs;
    bool bias;
} embed;

static aril_status embed_check(aril_module *m, caffe_layer *l)
{
    embed *e = aril_module_data(m);
    e->inputs = aril__message_int(l->param, "input_dim");
    e->bias = aril__message_int(l->param, "bias_term") != 0;
    if (e->inputs < 1 || e->inputs > INT32_MAX)
        return aril__caffe_bad(l, ARIL_ERR_FORMAT, "input_dim %lld must be from 1 to 2147483647",
                               (long long)e->inputs);
    return read_outputs(l, &e->outputs);
}

static aril_status embed_build(aril_module *m, caffe_layer *l, aril_tensor *const *in)
{
    const embed *e = aril_module_data(m);
    (void)in;
    aril_status s = aril__caffe_add_blob(m, "weight", ARIL_SHAPE(e->inputs, e->outputs),
                                         aril__message_sub(l->param, "weight_filler"), 0);
    if (s == ARIL_OK && e->bias)
        s = aril__caffe_add_blob(m, "bias", ARIL_SHAPE(e->outputs),
                                 aril__message_sub(l->param, "bias_filler"), 0);
    return s;
}

static void embed_forward(aril_module *m, caffe_layer *l, aril_tensor *const *in, aril_tensor **out)
{
    (void)l;
    aril_tensor *at = aril__caffe_integers(in[0]), *b = aril__caffe_blob(m, 1);
    aril_tensor *y = aril_embedding(at, aril__caffe_blob(m, 0), (aril_embedding_opts){ 0 });
    out[0] = b ? aril_add(y, b) : y;
}

/* ---- Scale and Bias ---- */

/* The factor (or term) is the layer's own, or the second bottom. */
typedef struct scale {
    caffe_layer base;
    int64_t axis, num_axes;
    bool bias; /* of Scale */
} scale;

static aril_status check_filler(const caffe_layer *l, const char *name)
{
    return aril__message_has(l->param, name)
               ? aril__caffe_check_filler(l, aril__message_sub(l->param, name))
               : ARIL_OK;
}

static aril_status scale_check(aril_module *m, caffe_layer *l)
{
    scale *p = aril_module_data(m);
    p->axis = aril__message_int(l->param, "axis");
    p->num_axes = aril__message_int(l->param, "num_axes");
    bool is_scale = strcmp(l->row->layer.base.type, "Scale") == 0;
    p->bias = is_scale && aril__message_int(l->param, "bias_term") != 0;
    if (p->num_axes < -1 || p->num_axes > ARIL_MAX_DIMS)
        return aril__caffe_bad(l, ARIL_ERR_FORMAT, "num_axes %lld must be from -1 to %d",
                               (long long)p->num_axes, ARIL_MAX_DIMS);
    aril_status s = check_filler(l, "filler");
    return s == ARIL_OK && is_scale ? check_filler(l, "bias_filler") : s;
}

/* The axes of the bottom that the factor covers, from `first`, and their sizes. */
static aril_status covered(const scale *p, aril_tensor *const *in, int *first, aril_shape *shape)
{
    const aril_tensor *x = in[0], *given = p->base.n_bottoms > 1 ? in[1] : NULL;
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    *shape = (aril_shape){ 0 };
    /* A factor without axes is for all of the bottom, whatever its axes. */
    if (given ? given->ndim == 0 : p->num_axes == 0) return *first = 0, ARIL_OK;
    aril_status s = aril__caffe_axis("axis", x, p->axis, false, first);
    if (s < 0) return s;
    int n = given ? given->ndim : p->num_axes == -1 ? x->ndim - *first : (int)p->num_axes;
    bool fits = *first + n <= x->ndim;
    for (int i = 0; i < n && fits; i++) {
        int64_t size = x->dim[*first + i];
        fits = !given || given->dim[i] == size || given->dim[i] < 0 || size < 0;
        shape->dim[i] = size;
    }
    if (!fits)
        return aril__fail(ARIL_ERR_SHAPE, "%s does not fit the bottom %s from axis %d on",
                          given ? aril__text(b, given) : "num_axes", aril__text(a, x), *first);
    shape->ndim = n;
    return ARIL_OK;
}

static aril_status scale_build(aril_module *m, caffe_layer *l, aril_tensor *const *in)
{
    const scale *p = aril_module_data(m);
    int first;
    aril_shape shape;
    aril_status s = covered(p, in, &first, &shape);
    bool is_scale = strcmp(l->row->layer.base.type, "Scale") == 0;
    const aril__message *filler =
        aril__message_has(l->param, "filler") ? aril__message_sub(l->param, "filler") : NULL;
    if (s == ARIL_OK && l->n_bottoms == 1)
        s = aril__caffe_add_blob(m, is_scale ? "weight" : "bias", shape, filler, is_scale ? 1 : 0);
    if (s == ARIL_OK && p->bias)
        s = aril__caffe_add_blob(m, "bias", shape, aril__message_sub(l->param, "bias_filler"), 0);
    return s;
}

/* A factor for axes from `first` on, with as many dimensions as the bottom needs to broadcast. */
static aril_tensor *aligned(aril_tensor *t, const aril_tensor *x, int first)
{
    int n = aril_ndim(t), more = x->ndim - first - n;
    if (n == 0 || more <= 0) return t;
    aril_shape shape = aril_shape_of(t);
    for (int i = 0; i < more; i++) shape.dim[n + i] = 1;
    shape.ndim = n + more;
    return aril_reshape(t, shape);
}

static void scale_forward(aril_module *m, caffe_layer *l, aril_tensor *const *in, aril_tensor **out)
{
    const scale *p = aril_module_data(m);
    int first, own = l->n_bottoms == 1;
    aril_shape shape;
    if (covered(p, in, &first, &shape) < 0) {
        aril__caffe_failed(l, out);
        return;
    }
    aril_tensor *factor = own ? aril__caffe_blob(m, 0) : in[1];
    aril_tensor *y = aril_mul(in[0], aligned(factor, in[0], first));
    out[0] = p->bias ? aril_add(y, aligned(aril__caffe_blob(m, own), in[0], first)) : y;
}

static void bias_forward(aril_module *m, caffe_layer *l, aril_tensor *const *in, aril_tensor **out)
{
    const scale *p = aril_module_data(m);
    int first;
    aril_shape shape;
    if (covered(p, in, &first, &shape) < 0) {
        aril__caffe_failed(l, out);
        return;
    }
    aril_tensor *term = l->n_bottoms == 1 ? aril__caffe_blob(m, 0) : in[1];
    out[0] = aril_add(in[0], aligned(term, in[0], first));
}

const caffe_row aril__caffe_linear_rows[] = {
    { CAFFE_ROW("InnerProduct", inner_product), CAFFE_COUNTS(1, 1, 1, 1),
      .param = "inner_product_param", CAFFE_WEIGHT_AND_BIAS(2), .layer.fused = inner,
      .check = ip_check, .build = ip_build, .forward = ip_forward },
    { CAFFE_ROW("Embed", embed), CAFFE_COUNTS(1, 1, 1, 1), .param = "embed_param",
      CAFFE_WEIGHT_AND_BIAS(2), .check = embed_check, .build = embed_build,
      .forward = embed_forward },
    { CAFFE_ROW("Scale", scale), CAFFE_COUNTS(1, 2, 1, 1), .param = "scale_param",
      .blob = { { "weight", .one_bottom = true }, { "bias", .optional = true } },
      .check = scale_check, .build = scale_build, .forward = scale_forward },
    { CAFFE_ROW("Bias", scale), CAFFE_COUNTS(1, 2, 1, 1), .param = "bias_param",
      .blob = { { "bias", .one_bottom = true } }, .check = scale_check, .build = scale_build,
      .forward = bias_forward },
    { .param = NULL },
};
