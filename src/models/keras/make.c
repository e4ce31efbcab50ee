/* What the families share: modules with Keras' names, variables, numbers of a configuration. */
#include "aril/create.h"
#include "aril/dtype.h"
#include "aril/scope.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/shape.h"
#include "models/keras/keras.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

aril_status aril__keras_fail(const keras_make *k, aril_status code, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return aril__fail(code, "%s: layer \"%s\" (%s): %s", k->loader->path, k->layer->name,
                      k->layer->class, text);
}

/* ---- modules ---- */

/* What print shows, where the configuration has it. */
static const char *const shown[] = {
    "filters",        "units",         "kernel_size", "pool_size", "strides",    "padding",
    "size",           "dilation_rate", "groups",      "cropping",  "input_dim",  "output_dim",
    "target_shape",   "dims",          "n",           "axis",      "epsilon",    "rate",
    "negative_slope", "max_value",     "num_heads",   "key_dim",   "merge_mode", "return_sequences",
    "activation",     "use_bias"
};

static void show_value(aril__bytes *b, const json *v)
{
    switch (aril__json_kind(v)) {
    case '"': aril__bytes_print(b, "%s", v->text); break;
    case '0': aril__bytes_print(b, "%.12g", v->number); break;
    case 't': aril__bytes_print(b, "True"); break;
    case 'f': aril__bytes_print(b, "False"); break;
    case '[':
        aril__bytes_print(b, "(");
        for (const json *e = v->first; e; e = e->next) {
            show_value(b, e);
            if (e->next) aril__bytes_print(b, ", ");
        }
        aril__bytes_print(b, ")");
        break;
    default: aril__bytes_print(b, "%s", aril__json_text(aril__json_get(v, "class_name"), "..."));
    }
}

static char *describe_config(const json *config)
{
    aril__bytes b = { 0 };
    aril__bytes_add(&b, "", 0);
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        const json *v = aril__json_get(config, shown[i]);
        if (!v || v->kind == 'n') continue;
        bool usual = strcmp(shown[i], "use_bias") == 0 && v->kind == 't';
        if (usual || (v->kind == '"' && strcmp(v->text, "linear") == 0)) continue;
        aril__bytes_print(&b, "%s%s=", b.n ? ", " : "", shown[i]);
        show_value(&b, v);
    }
    if (!b.failed) return (char *)b.at;
    aril__bytes_free(&b);
    return NULL;
}

static void describe(const aril_module *self, char *text, size_t size)
{
    const keras_base *base = aril_module_data(self);
    snprintf(text, size, "%s", base->text ? base->text : "");
}

static void destroy(aril_module *self)
{
    free(((keras_base *)aril_module_data(self))->text);
}

aril_module *aril__keras_module(keras_make *k, const aril__layer *class)
{
    aril_module *m = aril__layer_make(class);
    char *text = m ? describe_config(k->config) : NULL,
         *type = m ? aril__strdup(k->layer->class) : NULL;
    if (!text || !type) {
        free(text);
        free(type);
        aril_module_release(m);
        aril__keras_fail(k, ARIL_ERR_MEMORY, "out of memory");
        return NULL;
    }
    ((keras_base *)aril_module_data(m))->text = text;
    m->made = class->base;
    m->made.type = type;
    if (!m->made.describe) m->made.describe = describe;
    if (!m->made.destroy) m->made.destroy = destroy;
    m->type = &m->made;
    return m;
}

aril_module *aril__keras_made(aril_module *m, aril_status s)
{
    return aril__layer_made(m, s);
}

/* ---- variables ---- */

static const keras_variable *find_variable(const keras_make *k, const char *name)
{
    char full[112];
    for (int i = 0; i < k->layer->n_variables; i++) {
        const keras_variable *v = &k->layer->variable[i];
        snprintf(full, sizeof full, "%s%s%s", v->path, *v->path ? "/" : "", v->name);
        if (strcmp(full, name) == 0 || (strcmp(v->name, name) == 0 && !strchr(name, '/'))) return v;
    }
    return NULL;
}

bool aril__keras_has(const keras_make *k, const char *name)
{
    return find_variable(k, name) != NULL;
}

aril_tensor *aril__keras_variable(keras_make *k, const char *name)
{
    const keras_variable *v = find_variable(k, name);
    if (!v || v->array < 0) {
        aril__keras_fail(k, ARIL_ERR_FORMAT, "it has no variable %s", name);
        return NULL;
    }
    aril_tensor *t = aril__hdf5_array(k->loader->weights, v->array);
    if (aril_tensor_status(t) == ARIL_OK && aril_dtype_of(t) != ARIL_F32 &&
        aril_dtype_of(t) != ARIL_F64)
        t = aril_cast(t, ARIL_F32);
    return aril_tensor_status(t) == ARIL_OK ? t : NULL;
}

aril_status aril__keras_own(keras_make *k, aril_module *m, const char *name, aril_tensor *t)
{
    const keras_variable *v = find_variable(k, name);
    const char *own = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
    if (!v) {
        aril_module_parameter(m, own, NULL);
        return ARIL_OK;
    }
    if (!t) t = aril__keras_variable(k, name);
    if (!t) return aril__last_status();
    t = aril_contiguous(t);
    aril_tensor *kept = v->fixed ? aril_module_buffer(m, own, t) : aril_module_parameter(m, own, t);
    return kept ? aril_tensor_status(kept) : aril__last_status();
}

aril_status aril__keras_check(const keras_make *k, const char *name, const aril_tensor *t,
                              aril_shape shape)
{
    bool fits = t->ndim == shape.ndim;
    for (int i = 0; fits && i < shape.ndim; i++)
        fits = shape.dim[i] < 0 ? t->dim[i] > 0 : t->dim[i] == shape.dim[i];
    if (fits) return ARIL_OK;
    char got[ARIL__SHAPE_TEXT], want[ARIL__SHAPE_TEXT];
    return aril__keras_fail(k, ARIL_ERR_FORMAT,
                            "its %s is %s in the file, its configuration asks for %s (?: any size)",
                            name, aril__text(got, t),
                            aril__shape_text(want, shape.ndim, shape.dim));
}

aril_status aril__keras_own_shaped(keras_make *k, aril_module *m, const char *name,
                                   aril_shape shape)
{
    ARIL_SCOPE;
    if (!find_variable(k, name)) return aril__keras_own(k, m, name, NULL);
    aril_tensor *t = aril__keras_variable(k, name);
    if (!t) return aril__last_status();
    aril_status s = aril__keras_check(k, name, t, shape);
    return s < 0 ? s : aril__keras_own(k, m, name, t);
}

/* ---- numbers ---- */

enum { MAX_SIZE = 1 << 30 };

aril_status aril__keras_sizes(const keras_make *k, const char *key, int n, int64_t otherwise,
                              int64_t least, int64_t *out)
{
    const json *v = aril__json_get(k->config, key);
    bool list = aril__json_kind(v) == '[', good = !list || v->n == n || v->n == 1;
    if (aril__json_kind(v) == 'n') v = NULL;
    for (int i = 0; i < n && good; i++) {
        const json *e = list ? aril__json_at(v, v->n == 1 ? 0 : i) : v;
        out[i] = v ? aril__json_integer(e, INT64_MIN) : otherwise;
        good = !v || (out[i] >= least && out[i] <= MAX_SIZE);
    }
    if (good) return ARIL_OK;
    return aril__keras_fail(k, ARIL_ERR_FORMAT, "%s must be %d integers from %lld to %d", key, n,
                            (long long)least, MAX_SIZE);
}

aril_status aril__keras_integer(const keras_make *k, const char *key, int64_t otherwise,
                                int64_t least, int64_t *out)
{
    return aril__keras_sizes(k, key, 1, otherwise, least, out);
}

int aril__keras_turn_axis(int axis, int rank, keras_order order)
{
    if (order != KERAS_FIRST || axis == 0) return axis;
    return axis == rank - 1 ? 1 : axis + 1;
}

aril_status aril__keras_axis(const keras_make *k, int64_t axis, int *out)
{
    if (axis < -k->rank || axis >= k->rank)
        return aril__keras_fail(k, ARIL_ERR_FORMAT, "axis %lld does not exist in %d dimensions",
                                (long long)axis, k->rank);
    *out = aril__keras_turn_axis((int)(axis < 0 ? axis + k->rank : axis), k->rank, k->order);
    return ARIL_OK;
}

bool aril__keras_channels_first(const json *config)
{
    return strcmp(aril__json_text(aril__json_get(config, "data_format"), ""), "channels_first") ==
           0;
}
