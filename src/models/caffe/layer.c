/* What all layers share: the table of types, errors, blobs. */
#include "models/caffe/layer.h"

#include <stdarg.h>
#include <stdlib.h>

/* ---- the table ---- */

static const caffe_row *const groups[] = {
    aril__caffe_data_rows,   aril__caffe_conv_rows,      aril__caffe_pool_rows,
    aril__caffe_linear_rows, aril__caffe_norm_rows,      aril__caffe_activation_rows,
    aril__caffe_shape_rows,  aril__caffe_select_rows,    aril__caffe_loss_rows,
    aril__caffe_class_rows,  aril__caffe_recurrent_rows, aril__caffe_python_rows,
};

enum { GROUPS = sizeof groups / sizeof *groups };

const caffe_row *aril__caffe_row_of(const char *type)
{
    for (int i = 0; i < GROUPS; i++)
        for (const caffe_row *r = groups[i]; r->layer.base.type; r++)
            if (strcmp(r->layer.base.type, type) == 0) return r;
    return NULL;
}

const char *aril__caffe_closest(const char *type)
{
    enum { MOST = 128 };
    const char *names[MOST];
    int n = 0;
    for (int i = 0; i < GROUPS; i++)
        for (const caffe_row *r = groups[i]; r->layer.base.type && n < MOST; r++)
            names[n++] = r->layer.base.type;
    return aril_nearest(type, names, n);
}

/* ---- errors ---- */

static void put_where(const caffe_layer *l, char *text, size_t size)
{
    char place[40];
    snprintf(text, size, "%.300s: layer '%.100s' (%s) at %s: ", l->file,
             aril__message_text(l->message, "name"), l->row->layer.base.type,
             aril__message_place(l->message, place, sizeof place));
}

void aril__caffe_where(const aril_module *self, char *text, size_t size)
{
    put_where(aril_module_data(self), text, size);
}

aril_status aril__caffe_bad(const caffe_layer *l, aril_status code, const char *format, ...)
{
    char text[512], where[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    put_where(l, where, sizeof where);
    return aril__fail(code, "%s%s", where, text);
}

aril_status aril__caffe_check_numbers(const caffe_layer *l)
{
    char field[80];
    double value;
    /* A Clip may be open at one end. */
    bool infinite = strcmp(l->row->layer.base.type, "Clip") != 0;
    if (!aril__message_find_odd(l->message, infinite, field, sizeof field, &value)) return ARIL_OK;
    return aril__caffe_bad(l, ARIL_ERR_FORMAT, "%s must be a %s, got %g", field,
                           infinite ? "finite number" : "number", value);
}

void aril__caffe_failed(const caffe_layer *l, aril_tensor **out)
{
    aril__poison_all(l->n_tops, out);
}

aril_status aril__caffe_axis(const char *what, const aril_tensor *x, int64_t axis, bool end,
                             int *to)
{
    int64_t n = x->ndim, at = axis < 0 ? axis + n : axis;
    char text[ARIL__SHAPE_TEXT];
    *to = 0;
    if (at < 0 || at >= n + end)
        return aril__fail(ARIL_ERR_SHAPE, "%s %lld does not exist: the bottom is %s", what,
                          (long long)axis, aril__text(text, x));
    *to = (int)at;
    return ARIL_OK;
}

/* ---- running ---- */

bool aril__caffe_trains(const aril_module *m, const caffe_layer *l)
{
    if (l->always_train) return !aril__is_building();
    return !l->always_test && aril__is_training(m);
}

static aril_status check_bottoms(const caffe_layer *l, int n_in, aril_tensor *const *in)
{
    if (n_in != l->n_bottoms)
        return aril__fail(ARIL_ERR_ARG, "expected %d bottoms, got %d", l->n_bottoms, n_in);
    for (int i = 0; i < n_in; i++)
        if (!in[i]) return aril__fail(ARIL_ERR_ARG, "bottom %d is missing", i);
    return ARIL_OK;
}

void aril__caffe_run_layer(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                           aril_tensor **out)
{
    caffe_layer *l = aril_module_data(self);
    enum { FEW = 8 };
    aril_tensor *few[FEW] = { 0 };
    int n = l->n_tops > 1 ? l->n_tops : 1;
    aril_tensor **tops = n <= FEW ? few : aril__calloc((size_t)n * sizeof *tops);
    aril_status s = tops ? check_bottoms(l, n_in, in)
                         : aril__fail(ARIL_ERR_MEMORY, "out of memory for %d tops", n);
    if (s == ARIL_OK) l->row->forward(self, l, in, tops);
    for (int i = 0; i < n_out; i++) out[i] = s == ARIL_OK && i < l->n_tops ? tops[i] : NULL;
    if (s < 0) aril__poison_all(n_out, out);
    /* A layer without tops is run for its effects. */
    if (s == ARIL_OK && n_out > 0 && !out[0])
        out[0] = l->n_tops ? NULL : aril_zeros(ARIL_SHAPE(), ARIL_F32, aril_cpu());
    if (tops != few) free(tops);
}

aril_status aril__caffe_build_layer(aril_module *self, int n_in, aril_tensor *const *in)
{
    caffe_layer *l = aril_module_data(self);
    l->n_blobs = 0;
    aril_status s = check_bottoms(l, n_in, in);
    return s == ARIL_OK && l->row->build ? l->row->build(self, l, in) : s;
}

void aril__caffe_describe(const aril_module *self, char *text, size_t size)
{
    const caffe_layer *l = aril_module_data(self);
    size_t used = 0;
    *text = '\0';
    /* The bottoms and tops tell more of a net than the parameters, which the prototxt has. */
    static const char *const fields[] = { "bottom", "top" };
    for (int f = 0; f < 2; f++) {
        for (size_t i = 0; i < aril__message_count(l->message, fields[f]) && used < size; i++) {
            int n = snprintf(text + used, size - used, "%s%s", i ? ", " : "",
                             aril__message_text_at(l->message, fields[f], i));
            used += n > 0 ? (size_t)n : 0;
        }
        if (f == 0 && used < size) {
            int n = snprintf(text + used, size - used, " -> ");
            used += n > 0 ? (size_t)n : 0;
        }
    }
}

/* ---- blobs ---- */

static aril_status fill(aril_module *m, const caffe_layer *l, int k)
{
    aril_tensor *t = aril__own_at(m, k);
    if (l->filler[k]) return aril__caffe_fill(t, l->filler[k]);
    aril__fill_number(t, l->initial[k]);
    return ARIL_OK;
}

void aril__caffe_reset_layer(aril_module *self)
{
    const caffe_layer *l = aril_module_data(self);
    for (int k = 0; k < l->n_blobs; k++) fill(self, l, k);
}

aril_status aril__caffe_add_blob(aril_module *m, const char *name, aril_shape shape,
                                 const aril__message *filler, double initial)
{
    caffe_layer *l = aril_module_data(m);
    ARIL_ASSERT(l->n_blobs < CAFFE_BLOBS);
    aril_status s = l->row->flags & CAFFE_STATISTICS ? aril__add_buffer(m, name, shape, initial)
                                                     : aril__add_parameter(m, name, shape);
    if (s < 0) return s;
    int k = l->n_blobs++;
    l->shape[k] = shape;
    l->filler[k] = filler;
    l->initial[k] = initial;
    return fill(m, l, k);
}

aril_tensor *aril__caffe_blob(const aril_module *m, int k)
{
    const caffe_layer *l = aril_module_data(m);
    if (k >= l->n_blobs) return NULL;
    aril_tensor *t = aril__own_at(m, k);
    if (t && !aril__same_dims(t->ndim, t->dim, l->shape[k].ndim, l->shape[k].dim))
        t = aril_reshape(t, l->shape[k]);
    return t;
}

/* ---- values ---- */

aril_tensor *aril__caffe_around(aril_tensor *x, int axis)
{
    if (axis == 0)
        x = aril_unsqueeze(x, 0);
    else if (axis > 1)
        x = aril_flatten(x, 0, axis - 1);
    int n = aril_ndim(x);
    return n == 2 ? aril_unsqueeze(x, 2) : n > 3 ? aril_flatten(x, 2, n - 1) : x;
}

aril_tensor *aril__caffe_integers(aril_tensor *x)
{
    aril_tensor *i = aril_cast(x, ARIL_I64);
    if (!aril_dtype_is_float(aril_dtype_of(x))) return i;
    aril_tensor *none = aril_full_like(i, INT32_MIN);
    return aril_where(aril_isnan(x), none, i);
}

aril_tensor *aril__caffe_straight(aril_tensor *exact, aril_tensor *smooth)
{
    return aril_add(smooth, aril_detach(aril_sub(exact, smooth)));
}

char *aril__caffe_path(const caffe_layer *l, const char *path)
{
    bool absolute = *path == '/' || !l->root || !*l->root;
    size_t n = strlen(path) + (absolute ? 0 : strlen(l->root) + 1) + 1;
    char *full = aril__malloc(n);
    if (!full)
        aril__fail(ARIL_ERR_MEMORY, "out of memory for a path");
    else
        snprintf(full, n, "%s%s%s", absolute ? "" : l->root, absolute ? "" : "/", path);
    return full;
}
