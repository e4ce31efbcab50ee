/* The blobs of a net: created, shared, copied from and to files. */
#include "models/caffe/inside.h"

#include "formats/hdf5.h"

#include <stdlib.h>

/* ---- creation ---- */

static bool ends(const char *path, const char *ending)
{
    size_t n = strlen(path), m = strlen(ending);
    return n >= m && strcmp(path + n - m, ending) == 0;
}

/* Inputs that have shapes but no values; or zeros, for functions that read values. */
static aril_status run_once(caffe_net *net, const aril_shape *shapes, aril_graph *graph)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_tensor **in = aril__calloc((size_t)(net->n_inputs + net->n_outputs + 2) * sizeof *in);
    if (!in) return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", net->file);
    aril_status s = ARIL_OK;
    for (int i = 0; i < net->n_inputs && s == ARIL_OK; i++) {
        const char *name = net->value[net->inputs[i]].name;
        in[i] = graph ? aril_placeholder(graph, name, shapes[i], ARIL_F32)
                      : aril_zeros(shapes[i], ARIL_F32, aril_cpu());
        s = aril_tensor_status(in[i]);
    }
    if (s == ARIL_OK)
        s = aril__caffe_run(net, net->n_inputs, in, net->n_outputs, net->outputs,
                            in + net->n_inputs + 1, NULL);
    free(in);
    return s;
}

static aril_status run_symbolic(caffe_net *net, const aril_shape *shapes)
{
    aril_graph *graph = aril_graph_new("caffe");
    if (!graph) return ARIL_ERR_MEMORY;
    aril_status s = run_once(net, shapes, graph);
    aril_graph_free(graph);
    return s;
}

aril_status aril__caffe_build(aril_module *self, caffe_net *net, const aril_shape *shapes)
{
    extern _Thread_local bool aril__building __attribute__((tls_model("initial-exec")));
    aril__thread *th = aril__self();
    aril__frame frame = { .up = th->frame, .what = self, .text = net->file };
    bool before = aril__building;
    aril_status s;
    aril__building = true;
    th->frame = &frame;    /* errors name the file, or the layer */
    if (net->has_python) { /* a function may read values */
        aril__saved_errors saved = aril__errors_begin_quiet();
        s = run_symbolic(net, shapes);
        aril__error_release(aril__errors_end(&saved));
        if (s < 0) s = run_once(net, shapes, NULL);
    } else {
        s = run_symbolic(net, shapes);
    }
    aril__building = before;
    if (s == ARIL_OK) s = aril__caffe_bind_weights(net);
    if (s == ARIL_OK && net->pending) s = aril__caffe_weights_from(net, net->pending);
    th->frame = frame.up;
    return s;
}

/* ---- sharing ---- */

static const aril__message *spec_of(const caffe_node *n, int k)
{
    const aril__message *spec = aril__message_sub_at(n->message, "param", (size_t)k);
    return spec ? spec : &aril__caffe_ParamSpec.empty;
}

/* Lets a blob be the one that another layer owns. */
static aril_status share_blob(caffe_net *net, int node, int k, const caffe_weight *owner)
{
    const caffe_node *n = &net->node[node];
    caffe_layer *l = aril__caffe_layer_of(n);
    aril_tensor *t = aril__caffe_weight_at(net, owner->node, owner->index);
    aril_tensor *mine = aril__caffe_weight_at(net, node, k);
    bool same = aril__same_dims(t->ndim, t->dim, mine->ndim, mine->dim);
    bool permissive = aril__message_int(spec_of(n, k), "share_mode") == 1;
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    if (!same && !(permissive && t->numel == mine->numel))
        return aril__caffe_bad(
            l, ARIL_ERR_SHAPE, "blob %d is %s, but '%s', with which it shares, has %s%s", k,
            aril__text(a, mine), net->node[owner->node].name, aril__text(b, t),
            permissive || t->numel != mine->numel ? "" : "; share_mode: PERMISSIVE allows that");
    aril_set(&n->module->own[k].tensor, t);
    return ARIL_OK;
}

/* The multipliers of a blob that several layers name must agree. */
static aril_status merge_multipliers(const caffe_net *net, int node, int k, caffe_weight *w)
{
    const aril__message *spec = spec_of(&net->node[node], k);
    static const char *const fields[] = { "lr_mult", "decay_mult" };
    double *value[] = { &w->lr, &w->decay };
    bool *has[] = { &w->has_lr, &w->has_decay };
    for (int i = 0; i < 2; i++) {
        if (!aril__message_has(spec, fields[i])) continue;
        double given = aril__message_number(spec, fields[i]);
        if (given < 0)
            return aril__caffe_bad(aril__caffe_layer_of(&net->node[node]), ARIL_ERR_FORMAT,
                                   "%s of blob %d must be at least 0, got %g", fields[i], k, given);
        if (*has[i] && *value[i] != given)
            return aril__caffe_bad(aril__caffe_layer_of(&net->node[node]), ARIL_ERR_FORMAT,
                                   "%s %g of blob %d differs from %g, of the layer with which it "
                                   "is shared",
                                   fields[i], given, k, *value[i]);
        *value[i] = given;
        *has[i] = true;
    }
    return ARIL_OK;
}

static aril_status bind_blob(caffe_net *net, int node, int k, caffe_map *owners)
{
    const aril__message *spec = spec_of(&net->node[node], k);
    const char *name = aril__message_text(spec, "name");
    int owner = *name ? aril__caffe_map_get(owners, name) : -1;
    aril_status s = ARIL_OK;
    if (owner >= 0) {
        s = share_blob(net, node, k, &net->weight[owner]);
        return s == ARIL_OK ? merge_multipliers(net, node, k, &net->weight[owner]) : s;
    }
    bool statistics = (net->node[node].row->flags & CAFFE_STATISTICS) != 0;
    caffe_weight *w = &net->weight[net->n_weights];
    *w = (caffe_weight){ .node = node, .index = k, .lr = statistics ? 0 : 1, .decay = 1 };
    s = merge_multipliers(net, node, k, w);
    if (s == ARIL_OK && *name) s = aril__caffe_map_set(owners, name, net->n_weights);
    net->n_weights++;
    return s;
}

aril_status aril__caffe_bind_weights(caffe_net *net)
{
    caffe_map owners = { 0 };
    free(net->weight);
    net->n_weights = 0;
    net->weight = aril__calloc(((size_t)net->n_nodes * CAFFE_BLOBS + 1) * sizeof *net->weight);
    aril_status s =
        net->weight ? ARIL_OK : aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", net->file);
    for (int i = 0; i < net->n_nodes && s == ARIL_OK; i++) {
        const caffe_layer *l = aril__caffe_layer_of(&net->node[i]);
        size_t specs = aril__message_count(net->node[i].message, "param");
        if (specs > (size_t)l->n_blobs)
            s = aril__caffe_bad(l, ARIL_ERR_FORMAT,
                                "param is given %zu times, the layer has %d blobs", specs,
                                l->n_blobs);
        for (int k = 0; k < l->n_blobs && s == ARIL_OK; k++) s = bind_blob(net, i, k, &owners);
    }
    aril__caffe_map_free(&owners);
    /* What is not learned needs no gradient. */
    for (int i = 0; i < net->n_weights && s == ARIL_OK; i++) {
        const caffe_weight *w = &net->weight[i];
        if (w->lr == 0 && !(net->node[w->node].row->flags & CAFFE_STATISTICS))
            s = aril_set_requires_grad(aril__caffe_weight_at(net, w->node, w->index), false);
    }
    return s;
}

/* Compares the blobs of a layer with those of another net's; or makes them the same. */
static aril_status share_layer(const caffe_node *to, const caffe_node *from, bool change)
{
    caffe_layer *mine = aril__caffe_layer_of(to);
    const caffe_layer *other = aril__caffe_layer_of(from);
    aril_status s = ARIL_OK;
    if (mine->n_blobs != other->n_blobs)
        s = aril__caffe_bad(mine, ARIL_ERR_SHAPE, "has %d blobs, the other net's %d", mine->n_blobs,
                            other->n_blobs);
    for (int k = 0; k < other->n_blobs && s == ARIL_OK; k++) {
        aril_tensor *a = aril__own_at(to->module, k), *b = aril__own_at(from->module, k);
        char x[ARIL__SHAPE_TEXT], y[ARIL__SHAPE_TEXT];
        if (!aril__same_dims(a->ndim, a->dim, b->ndim, b->dim))
            s = aril__caffe_bad(mine, ARIL_ERR_SHAPE, "blob %d is %s, the other net's %s", k,
                                aril__text(x, a), aril__text(y, b));
        else if (change)
            aril_set(&to->module->own[k].tensor, b);
    }
    return s;
}

/* The same for all layers of the same names. */
static aril_status share_layers(const caffe_net *net, const caffe_net *from, bool change)
{
    caffe_names names = { 0 }, others = { 0 };
    aril_status s = aril__caffe_names(net, &names);
    if (s == ARIL_OK) s = aril__caffe_names(from, &others);
    for (int i = 0; i < from->n_nodes && s == ARIL_OK; i++) {
        const caffe_node *n = &from->node[i];
        /* Of layers with one name, those without blobs are left out. */
        if (!others.position[i] && aril__caffe_map_get(&others.at, n->name) != i) continue;
        int to = aril__caffe_names_take(&names, n->name);
        if (to >= 0) s = share_layer(&net->node[to], n, change);
    }
    aril__caffe_names_free(&names);
    aril__caffe_names_free(&others);
    return s;
}

void aril__caffe_set_trained(aril_module *m, bool trained)
{
    aril__caffe_data("caffe_solver", m)->trained = trained;
}

aril_status aril_caffe_share(aril_module *m, aril_module *from)
{
    caffe_net *net = aril__caffe_data("caffe_share", m),
              *other = aril__caffe_data("caffe_share", from);
    if (!net || !other) return ARIL_ERR_ARG;
    if (!aril_module_built(m) || !aril_module_built(from))
        return aril__fail(ARIL_ERR_STATE, "caffe_share: a net is not built; give it the shapes of "
                                          "its inputs, or run it");
    if (net->trained && net != other)
        return aril__fail(ARIL_ERR_STATE,
                          "caffe_share: %s is trained by a solver, which would go on "
                          "with the blobs that it has; load weights instead",
                          net->file);
    /* All shapes are compared before the first change. */
    aril_status s = share_layers(net, other, false);
    return s == ARIL_OK ? share_layers(net, other, true) : s;
}

/* ---- blobs of files ---- */

static const char *const legacy[] = { "num", "channels", "height", "width" };

aril_status aril__caffe_stored_shape(const char *what, const aril__message *blob, aril_shape *to)
{
    const aril__message *shape = aril__message_sub(blob, "shape");
    bool old = !aril__message_has(blob, "shape");
    size_t n = old ? 4 : aril__message_count(shape, "dim");
    int64_t count = 1;
    *to = (aril_shape){ 0 };
    if (n > ARIL_MAX_DIMS)
        return aril__fail(ARIL_ERR_UNSUPPORTED, "%s: a blob of %zu dimensions; at most %d", what, n,
                          ARIL_MAX_DIMS);
    for (size_t i = 0; i < n; i++) {
        int64_t dim =
            old ? aril__message_int(blob, legacy[i]) : aril__message_int_at(shape, "dim", i);
        if (dim < 0 || __builtin_mul_overflow(count, dim, &count))
            return aril__fail(ARIL_ERR_FORMAT, "%s: %lld cannot be size %zu of a blob", what,
                              (long long)dim, i);
        to->dim[to->ndim++] = dim;
    }
    aril__proto_array f = aril__message_array(blob, "data"),
                      d = aril__message_array(blob, "double_data");
    if ((uint64_t)count != (d.n ? d.n : f.n))
        return aril__fail(ARIL_ERR_FORMAT, "%s: a blob of %lld elements has %zu values", what,
                          (long long)count, d.n ? d.n : f.n);
    return ARIL_OK;
}

aril_tensor *aril__caffe_stored_values(const aril__message *blob, aril_shape shape)
{
    aril__proto_array f = aril__message_array(blob, "data"),
                      d = aril__message_array(blob, "double_data");
    return d.n ? aril_from(d.at, shape, ARIL_F64, aril_cpu())
               : aril_from(f.at, shape, ARIL_F32, aril_cpu());
}

/* Old files have four sizes, the first of which are 1 for blobs of fewer. */
static bool fits(const aril_tensor *t, const aril__message *blob, aril_shape shape)
{
    if (aril__message_has(blob, "shape") || t->ndim > 4)
        return aril__same_dims(t->ndim, t->dim, shape.ndim, shape.dim);
    for (int i = 0; i < 4; i++) {
        int at = i - (4 - t->ndim);
        if (shape.dim[i] != (at < 0 ? 1 : t->dim[at])) return false;
    }
    return true;
}

aril_status aril__caffe_copies_open(caffe_copies *c, const caffe_net *net)
{
    *c = (caffe_copies){ .at = aril__calloc(((size_t)net->n_nodes * CAFFE_BLOBS + 1) *
                                            sizeof *c->at) };
    return c->at ? ARIL_OK : aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", net->file);
}

aril_status aril__caffe_copies_add(caffe_copies *c, aril_tensor *to, aril_tensor *values)
{
    ARIL_NO_GRAD;
    values = aril_cast(aril_reshape(values, aril_shape_of(to)), aril_dtype_of(to));
    values = aril_to(values, aril_device_of(to));
    c->at[c->n].to = to;
    c->at[c->n++].from = values;
    return aril_tensor_status(values);
}

aril_status aril__caffe_copies_finish(caffe_copies *c, aril_status s)
{
    ARIL_NO_GRAD;
    for (int i = 0; i < c->n && s == ARIL_OK; i++)
        s = c->at[i].raw ? aril_write(c->at[i].to, c->at[i].raw)
                         : aril_tensor_status(aril_copy_(c->at[i].to, c->at[i].from));
    free(c->at);
    return s;
}

/* The same of a blob of a file, whose values are copied where they lie if they have the form. */
static aril_status add_stored(caffe_copies *c, aril_tensor *to, const aril__message *blob,
                              aril_shape shape)
{
    aril__proto_array f = aril__message_array(blob, "data");
    bool same = aril_dtype_of(to) == ARIL_F32 && f.n > 0 && to->storage->device->host_memory &&
                aril__message_array(blob, "double_data").n == 0;
    if (!same) return aril__caffe_copies_add(c, to, aril__caffe_stored_values(blob, shape));
    c->at[c->n].to = to;
    c->at[c->n++].raw = f.at;
    return ARIL_OK;
}

/* Checks blob k of a file against that of a node, and takes its values. */
static aril_status take_blob(caffe_net *net, int node, int k, const aril__message *blob,
                             caffe_copies *to)
{
    caffe_layer *l = aril__caffe_layer_of(&net->node[node]);
    aril_tensor *t = aril__caffe_weight_at(net, node, k);
    aril_shape shape;
    char what[160], a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    snprintf(what, sizeof what, "the weights of layer '%.100s'", net->node[node].name);
    aril_status s = aril__caffe_stored_shape(what, blob, &shape);
    if (s < 0) return s;
    if (!fits(t, blob, shape) &&
        !aril__same_dims(l->shape[k].ndim, l->shape[k].dim, shape.ndim, shape.dim))
        return aril__caffe_bad(l, ARIL_ERR_SHAPE, "blob %d is %s, in the file %s", k,
                               aril__text(a, t), aril__shape_text(b, shape.ndim, shape.dim));
    return add_stored(to, t, blob, shape);
}

aril_status aril__caffe_weights_found(const caffe_net *net, const char *path, int n)
{
    if (n > 0 || net->n_weights == 0) return ARIL_OK;
    return aril__fail(ARIL_ERR_ARG,
                      "%s has weights for no layer of %s; it belongs to another net, or its layers "
                      "have other names",
                      path, net->file);
}

/* Sets *found to the number of layers. */
static aril_status take_layers(caffe_net *net, const aril__message *file, caffe_copies *to,
                               int *found)
{
    caffe_names names;
    aril_status s = aril__caffe_names(net, &names);
    *found = 0;
    for (size_t i = 0; i < aril__message_count(file, "layer") && s == ARIL_OK; i++) {
        const aril__message *layer = aril__message_sub_at(file, "layer", i);
        size_t n = aril__message_count(layer, "blobs");
        int node = n ? aril__caffe_names_take(&names, aril__message_text(layer, "name")) : -1;
        if (node < 0) {
            const char *name = aril__message_text(layer, "name");
            if (n) s = aril__caffe_ignored_add(net, name, strlen(name));
            continue;
        }
        caffe_layer *l = aril__caffe_layer_of(&net->node[node]);
        net->node[node].found = true;
        ++*found;
        if (n != (size_t)l->n_blobs)
            s = aril__caffe_bad(l, ARIL_ERR_SHAPE, "has %d blobs, in the file %zu", l->n_blobs, n);
        for (size_t k = 0; k < n && s == ARIL_OK; k++)
            s = take_blob(net, node, (int)k, aril__message_sub_at(layer, "blobs", k), to);
    }
    aril__caffe_names_free(&names);
    return s;
}

/* ---- files ---- */

/* Whether a file is the state of a solver, which is given for weights by mistake. */
static bool is_solverstate(const char *path)
{
    aril__saved_errors before = aril__errors_begin_quiet();
    aril__message *m = aril__message_load(&aril__caffe_SolverState, path);
    bool is = m && aril__message_has(m, "iter") && aril__message_has(m, "current_step");
    aril__error_release(aril__errors_end(&before));
    aril__message_free(m);
    return is;
}

static aril_status from_message(caffe_net *net, const char *path)
{
    ARIL_SCOPE;
    int found;
    caffe_copies copies = { 0 };
    aril__saved_errors before = aril__errors_begin_quiet();
    aril__message *file = aril__message_load(&aril__caffe_NetParameter, path);
    aril__error *e = aril__errors_end(&before);
    if (!file && e) {
        aril_status code = e->code;
        if (code == ARIL_ERR_FORMAT && is_solverstate(path))
            aril__fail(code,
                       "%s is the state of a solver, not a caffemodel: the weights are in the file "
                       "of the same name that ends with .caffemodel",
                       path);
        else
            aril__raise_error(e);
        aril__error_release(e);
        return code;
    }
    aril__error_release(e);
    if (!file) return aril__latest_status();
    aril_status s = aril__caffe_net_upgrade(file, path);
    if (s == ARIL_OK) s = aril__caffe_copies_open(&copies, net);
    if (s == ARIL_OK) s = take_layers(net, file, &copies, &found);
    if (s == ARIL_OK) s = aril__caffe_weights_found(net, path, found);
    if (s == ARIL_OK) s = aril__message_check(file);
    s = aril__caffe_copies_finish(&copies, s);
    if (s == ARIL_OK) s = aril__message_check(file);
    aril__message_free(file);
    return s;
}

aril_status aril__caffe_weights_from(caffe_net *net, const char *path)
{
    aril__caffe_ignored_clear(net);
    for (int i = 0; i < net->n_nodes; i++) net->node[i].found = false;
    aril_status s =
        aril__hdf5_is(path) ? aril__caffe_weights_from_hdf5(net, path) : from_message(net, path);
    for (int i = 0; i < net->n_nodes && s == ARIL_OK; i++)
        net->node[i].loaded |= net->node[i].found;
    return s;
}

aril_status aril_caffe_weights_load(aril_module *m, const char *path)
{
    caffe_net *net = aril__caffe_data("caffe_weights_load", m);
    if (!net) return ARIL_ERR_ARG;
    if (!path) return aril__fail(ARIL_ERR_ARG, "caffe_weights_load: the path is NULL");
    if (aril_module_built(m)) return aril__caffe_weights_from(net, path);
    char *copy = aril__strdup(path);
    if (!copy) return aril__fail(ARIL_ERR_MEMORY, "caffe_weights_load: out of memory");
    free(net->pending);
    net->pending = copy;
    return ARIL_OK;
}

int aril__caffe_weight_number(const caffe_net *net, int node, int k)
{
    const aril_tensor *t = aril__caffe_weight_at(net, node, k);
    for (int i = 0; i < net->n_weights; i++)
        if (aril__caffe_weight_at(net, net->weight[i].node, net->weight[i].index) == t) return i;
    return -1;
}

/* Appends a blob with its values, and its diff unless that is NULL. */
static aril_status add_blob(aril__message *layer, aril_tensor *t, aril_tensor *diff)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    bool wide = aril_dtype_of(t) == ARIL_F64;
    aril__message *blob = aril__message_add_sub(layer, "blobs");
    aril__message *shape = aril__message_set_sub(blob, "shape");
    aril_dtype dtype = wide ? ARIL_F64 : ARIL_F32;
    const void *data = aril_data(aril_cast(aril_detach(t), dtype));
    const void *change = diff ? aril_data(aril_cast(aril_detach(diff), dtype)) : NULL;
    if (!data || (diff && !change)) return aril__latest_status();
    for (int i = 0; i < t->ndim; i++) aril__message_add_int(shape, "dim", t->dim[i]);
    if (wide)
        aril__message_set_doubles(blob, "double_data", data, (size_t)t->numel);
    else
        aril__message_set_floats(blob, "data", data, (size_t)t->numel);
    if (diff && wide)
        aril__message_set_doubles(blob, "double_diff", change, (size_t)t->numel);
    else if (diff)
        aril__message_set_floats(blob, "diff", change, (size_t)t->numel);
    return ARIL_OK;
}

aril_status aril__caffe_weights_put(aril_module *m, bool hdf5, aril_tensor *const *diffs,
                                    aril__file *to)
{
    caffe_net *net = aril__caffe_data("caffe_weights_save", m);
    if (hdf5) return aril__caffe_weights_to_hdf5(net, diffs, to);
    aril__message *file = aril__message_clone(net->message);
    if (!file) return aril__latest_status();
    aril_status s = ARIL_OK;
    for (int i = 0; i < net->n_nodes && s == ARIL_OK; i++)
        for (int k = 0; k < aril__caffe_layer_of(&net->node[i])->n_blobs && s == ARIL_OK; k++)
            s = add_blob(aril__message_sub_at(file, "layer", (size_t)i),
                         aril__caffe_weight_at(net, i, k),
                         diffs ? diffs[aril__caffe_weight_number(net, i, k)] : NULL);
    if (s == ARIL_OK) s = aril__message_put(file, to);
    aril__message_free(file);
    return s;
}

aril_status aril_caffe_weights_save(aril_module *m, const char *path)
{
    if (!aril__caffe_data("caffe_weights_save", m)) return ARIL_ERR_ARG;
    if (!path) return aril__fail(ARIL_ERR_ARG, "caffe_weights_save: the path is NULL");
    if (!aril_module_built(m))
        return aril__fail(ARIL_ERR_STATE, "caffe_weights_save: the net is not built; run it first");
    aril__file *f = aril__file_begin(path);
    if (!f) return aril__latest_status();
    aril_status s = aril__caffe_weights_put(m, ends(path, ".h5"), NULL, f);
    if (s == ARIL_OK) return aril__file_commit(f);
    aril__file_abandon(f);
    return s;
}

/* ---- single blobs ---- */

aril_tensor *aril_caffe_blob_load(const char *path)
{
    aril_shape shape;
    if (!path) {
        aril__fail(ARIL_ERR_ARG, "caffe_blob_load: the path is NULL");
        return aril__poison();
    }
    aril__message *blob = aril__message_load(&aril__caffe_BlobProto, path);
    if (!blob) return aril__poison();
    aril_status s = aril__caffe_stored_shape(path, blob, &shape);
    aril_tensor *t = s == ARIL_OK ? aril__caffe_stored_values(blob, shape) : aril__poison();
    if (s == ARIL_OK && aril__message_check(blob) < 0) t = aril__poison();
    aril__message_free(blob);
    return t;
}

aril_status aril_caffe_blob_save(const char *path, aril_tensor *t)
{
    if (!path || !t) return aril__fail(ARIL_ERR_ARG, "caffe_blob_save: an argument is NULL");
    aril__message *root = aril__message_new(&aril__caffe_BlobProtoVector), *blob = NULL;
    if (!root) return aril__latest_status();
    aril_status s = aril_tensor_status(t);
    if (s == ARIL_OK) s = add_blob(root, t, NULL);
    /* Programs of old read four sizes. */
    if (s == ARIL_OK && (blob = aril__message_sub_at(root, "blobs", 0)) && t->ndim <= 4)
        for (int i = 0; i < 4; i++) {
            int at = i - (4 - t->ndim);
            aril__message_set_int(blob, legacy[i], at < 0 ? 1 : t->dim[at]);
        }
    aril__message *single = blob ? aril__message_clone(blob) : NULL;
    if (s == ARIL_OK) s = single ? aril__message_save(single, path) : ARIL_ERR_MEMORY;
    aril__message_free(single);
    aril__message_free(root);
    return s;
}
