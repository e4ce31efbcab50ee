/* Reading a file of Keras: where its configuration and its weights are. */
#include "aril/graph.h"
#include "aril/keras.h"
#include "aril/scope.h"
#include "core/error.h"
#include "core/memory.h"
#include "formats/keras.h"
#include "models/keras/keras.h"

#include <stdlib.h>
#include <string.h>

/* ---- inputs ---- */

/* The dtype that an input has in Keras: integers are i64, others f32. */
static aril_dtype input_dtype(const json *config)
{
    const json *v = aril__json_get(config, "dtype");
    const char *name = aril__json_text(v, NULL);
    if (!name)
        name = aril__json_text(aril__json_get(aril__json_get(v, "config"), "name"), "float32");
    bool integer = strncmp(name, "int", 3) == 0 || strncmp(name, "uint", 4) == 0;
    return integer ? ARIL_I64 : strcmp(name, "bool") == 0 ? ARIL_BOOL : ARIL_F32;
}

/* The batch of the symbolic run. Modules read it from their inputs, so that any will do later. */
enum { BATCH = 2 };

/* The shape of an input, of which sizes that are not given are unknown. */
static aril_status input_shape(const keras_loader *l, const keras_layer *input, aril_shape *out)
{
    static const char *const keys[] = { "batch_shape", "batch_input_shape" };
    const json *v = NULL;
    for (int i = 0; i < 2 && !v; i++) v = aril__json_get(input->config, keys[i]);
    for (int i = 0; i < 2 && !v; i++)
        v = aril__json_get(input->parent->config, i ? "build_input_shape" : "batch_shape");
    if (!v)
        v = aril__json_get(aril__json_get(input->parent->config, "build_config"), "input_shape");
    /* Keras 2 may keep [[null, 4]] of one input. */
    if (aril__json_kind(v) == '[' && v->n == 1 && aril__json_kind(v->first) == '[') v = v->first;
    bool good = aril__json_kind(v) == '[' && v->n >= 1 && v->n <= ARIL_MAX_DIMS;
    *out = (aril_shape){ .ndim = good ? v->n : 0 };
    for (int i = 0; good && i < v->n; i++) {
        const json *e = aril__json_at(v, i);
        out->dim[i] = i == 0 ? BATCH : e->kind == 'n' ? -1 : aril__json_integer(e, INT64_MIN);
        good = out->dim[i] >= -1 && out->dim[i] <= 1 << 30;
    }
    if (good) return ARIL_OK;
    return aril__fail(ARIL_ERR_FORMAT,
                      "%s: the shape of input \"%s\" is not known; build the model in Keras before "
                      "it is saved",
                      l->path, input->name);
}

static aril_status make_input(const keras_loader *l, const keras_layer *input, keras_value *out)
{
    aril_shape shape;
    aril_status s = input_shape(l, input, &shape);
    if (s < 0) return s;
    bool turn = !l->as_keras && !l->first && (shape.ndim == 4 || shape.ndim == 5);
    if (turn) {
        int64_t channels = shape.dim[shape.ndim - 1];
        memmove(shape.dim + 2, shape.dim + 1, (size_t)(shape.ndim - 2) * sizeof *shape.dim);
        shape.dim[1] = channels;
    }
    aril_tensor *t = aril_placeholder(l->graph, input->name, shape, input_dtype(input->config));
    *out = (keras_value){ .tensor = t, .order = turn ? KERAS_FIRST : KERAS_ORDER, .mask = -1 };
    return aril_tensor_status(t);
}

/* ---- the network ---- */

/* Whether Keras itself has images channels-first: it has no layer that is not. */
static void count_formats(const keras_layer *layer, int *first, int *last)
{
    const char *format = aril__json_text(aril__json_get(layer->config, "data_format"), "");
    *first += strcmp(format, "channels_first") == 0;
    *last += strcmp(format, "channels_last") == 0;
    for (int i = 0; i < layer->n_inner; i++) count_formats(layer->inner[i], first, last);
}

static aril_module *plan(keras_loader *l)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    size_t n = (size_t)(l->root->n_in + l->root->n_out);
    keras_value *v = aril__calloc(n * sizeof *v);
    l->graph = v ? aril_graph_new("keras") : NULL;
    aril_status s =
        l->graph ? ARIL_OK : aril__fail(ARIL_ERR_MEMORY, "out of memory loading %s", l->path);
    for (int i = 0; i < l->root->n_in && s == ARIL_OK; i++)
        s = make_input(l, l->root->in[i].layer, &v[i]);
    aril_module *m = s == ARIL_OK ? aril__keras_plan(l, l->root, v, v + l->root->n_in) : NULL;
    free(v);
    return m;
}

static aril_module *load(keras_loader *l, const json *config)
{
    aril_module *m = NULL;
    int first = 0, last = 0;
    l->root = aril__keras_layers(l, config);
    if (!l->root) return NULL;
    count_formats(l->root, &first, &last);
    l->first = first > 0 && last == 0;
    if (aril__keras_nodes(l, l->root) == ARIL_OK && aril__keras_bind(l) == ARIL_OK) m = plan(l);
    aril_graph_free(l->graph);
    aril__keras_free(l->root);
    return m;
}

/* Of "3.4.1": 3. JSON of Keras 2 names its version itself, that of Keras 3 and old files name none:
 * 2 if the configuration is of that kind. */
static int version_of(const char *text, const json *config)
{
    if (!text) text = aril__json_text(aril__json_get(config, "keras_version"), NULL);
    if (text && *text >= '1' && *text <= '9') return *text - '0';
    return aril__json_get(config, "module") ? 3 : 2;
}

aril_module *aril_keras_load(const char *path, aril_keras_opts opts)
{
    if (!path) {
        aril__fail(ARIL_ERR_ARG, "keras_load: the path is NULL");
        return NULL;
    }
    aril__keras_file file, weights = { 0 };
    aril__json_tree tree = { 0 };
    aril_module *m = NULL;
    aril_status s = aril__keras_open(&file, path);
    if (s < 0) return NULL;
    if (opts.weights) s = aril__keras_open(&weights, opts.weights);
    if (s == ARIL_OK && !file.config)
        s = aril__fail(ARIL_ERR_FORMAT,
                       "%s holds weights without a configuration; load the file of "
                       "model.save(), or JSON of model.to_json() with these weights as the option "
                       "`weights`",
                       path);
    aril__hdf5 *arrays = opts.weights ? weights.arrays : file.arrays;
    if (s == ARIL_OK && !arrays)
        s = aril__fail(ARIL_ERR_ARG,
                       "%s holds no weights; name a file of them in the option "
                       "`weights`",
                       opts.weights ? opts.weights : path);
    if (s == ARIL_OK) s = aril__json_parse(&tree, path, file.config, file.config_size);
    if (s == ARIL_OK) {
        keras_loader l = { .path = path,
                           .weights = arrays,
                           .version = version_of(file.version, tree.root),
                           .as_keras = opts.channels_last };
        m = load(&l, tree.root);
        aril__bytes_free(&l.unknown);
    }
    aril__json_tree_free(&tree);
    aril__keras_close(&weights);
    aril__keras_close(&file);
    if (m && (opts.device.kind || opts.device.index) && aril_module_to(m, opts.device) < 0) {
        aril_module_release(m);
        return NULL;
    }
    if (m) aril_module_train(m);
    return m;
}
