/* Nets: from messages, and what others ask of them. */
#include "models/caffe/inside.h"

#include <stdlib.h>

/* ---- the module ---- */

static aril_status check_inputs(const caffe_net *net, int n_in, aril_tensor *const *in)
{
    bool good = n_in == net->n_inputs;
    for (int i = 0; i < n_in && good; i++) good = in[i] != NULL;
    if (good) return ARIL_OK;
    char names[256] = "";
    size_t used = 0;
    for (int i = 0; i < net->n_inputs && used < sizeof names - 1; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "",
                                 net->value[net->inputs[i]].name);
    return aril__fail(ARIL_ERR_ARG, "%s: expected %d input%s (%s), got %d", net->file,
                      net->n_inputs, net->n_inputs == 1 ? "" : "s", names, n_in);
}

static void forward(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                    aril_tensor **out)
{
    caffe_net *net = *(caffe_net **)aril_module_data(self);
    aril_status s = check_inputs(net, n_in, in);
    bool loss = net->has_loss && n_out > net->n_outputs;
    int n = net->n_outputs, written = n_out > n + 1 ? net->n_written : 0;
    aril_tensor **all = NULL, *total = NULL;
    if (s == ARIL_OK && !(all = aril__calloc(((size_t)(n + written) + 1) * sizeof *all)))
        s = aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", net->file);
    if (s == ARIL_OK)
        s = aril__caffe_run(net, n_in, in, n + written, net->outputs, all, loss ? &total : NULL);
    /* The outputs, the total loss, and what is written to files. */
    for (int i = 0; i < n_out && s == ARIL_OK; i++)
        out[i] = i < n ? all[i] : i == n ? total : i <= n + written ? all[i - 1] : NULL;
    free(all);
    /* A net that only writes files. */
    if (s == ARIL_OK && n_out > 0 && !out[0])
        out[0] = aril_zeros(ARIL_SHAPE(), ARIL_F32, aril_cpu());
    if (s < 0) aril__poison_all(n_out, out);
}

static aril_status build(aril_module *self, int n_in, aril_tensor *const *in)
{
    caffe_net *net = *(caffe_net **)aril_module_data(self);
    aril_status s = check_inputs(net, n_in, in);
    aril_shape *shapes = s == ARIL_OK ? aril__calloc(((size_t)n_in + 1) * sizeof *shapes) : NULL;
    if (s == ARIL_OK && !shapes) s = aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", net->file);
    for (int i = 0; i < n_in && s == ARIL_OK; i++) shapes[i] = aril_shape_of(in[i]);
    if (s == ARIL_OK) s = aril__caffe_build(self, net, shapes);
    free(shapes);
    return s;
}

static void describe(const aril_module *self, char *text, size_t size)
{
    const caffe_net *net = *(caffe_net **)aril_module_data(self);
    snprintf(text, size, "%s", net ? aril__message_text(net->message, "name") : "");
}

static void free_net(caffe_net *net)
{
    for (int i = 0; i < net->n_nodes; i++) {
        caffe_node *n = &net->node[i];
        aril_module_release(n->module);
        free(n->in);
        free(n->out);
        free(n->bottoms);
        free(n->tops);
        free(n->detached);
    }
    free(net->node);
    free(net->value);
    free(net->inputs);
    free(net->outputs);
    free(net->weight);
    free(net->excluded);
    free(net->file);
    free(net->root);
    free(net->shapes);
    free(net->pending);
    aril__caffe_ignored_clear(net);
    aril__message_free(net->message);
    free(net);
}

static void destroy(aril_module *self)
{
    caffe_net *net = *(caffe_net **)aril_module_data(self);
    if (net) free_net(net);
}

/* The data is a pointer: a trace compares the data of modules, and what lies behind it is the same
 * in all runs. */
static const aril_module_class net_class = { .type = "CaffeNet",
                                             .size = sizeof(caffe_net *),
                                             .forward = forward,
                                             .build = build,
                                             .describe = describe,
                                             .destroy = destroy,
                                             .inputs = -1,
                                             .outputs = -1,
                                             .inputless = true };

bool aril_caffe_is_net(const aril_module *net)
{
    return net && net->type == &net_class;
}

caffe_net *aril__caffe_data(const char *what, const aril_module *m)
{
    if (aril_caffe_is_net(m)) return *(caffe_net **)aril_module_data(m);
    aril__fail(ARIL_ERR_ARG, "%s: expected a net of Caffe, got %s", what,
               m ? aril_module_type(m) : "NULL");
    return NULL;
}

/* ---- layers ---- */

static aril_status no_type(const caffe_net *net, const aril__message *m)
{
    char place[40];
    const char *type = aril__message_text(m, "type"), *near = aril__caffe_closest(type);
    return aril__fail(ARIL_ERR_UNSUPPORTED, "%s: layer '%s' at %s: %s '%s'%s%s%s", net->file,
                      aril__message_text(m, "name"), aril__message_place(m, place, sizeof place),
                      *type ? "there is no layer type" : "the type is missing:", type,
                      near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static aril_status make_node(caffe_net *net, caffe_node *n, const aril__message *m)
{
    n->message = m;
    n->name = aril__message_text(m, "name");
    n->row = aril__caffe_row_of(aril__message_text(m, "type"));
    if (!n->row) return no_type(net, m);
    n->module = aril__layer_make(&n->row->layer);
    if (!n->module) return ARIL_ERR_MEMORY;
    caffe_layer *l = aril__caffe_layer_of(n);
    l->row = n->row;
    l->message = m;
    l->param = n->row->param ? aril__message_sub(m, n->row->param) : NULL;
    l->file = net->file;
    l->root = net->root;
    if (aril__message_has(m, "phase")) {
        l->always_train = aril__message_int(m, "phase") == 0;
        l->always_test = !l->always_train;
    }
    return ARIL_OK;
}

static aril_status make_nodes(caffe_net *net)
{
    size_t n = aril__message_count(net->message, "layer");
    if (n > CAFFE_MAX_LAYERS)
        return aril__fail(ARIL_ERR_UNSUPPORTED, "%s: %zu layers; at most %d", net->file, n,
                          CAFFE_MAX_LAYERS);
    net->node = aril__calloc((n + 1) * sizeof *net->node);
    if (!net->node) return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", net->file);
    aril_status s = ARIL_OK;
    for (size_t i = 0; i < n && s == ARIL_OK; i++)
        s = make_node(net, &net->node[net->n_nodes++],
                      aril__message_sub_at(net->message, "layer", i));
    return s;
}

/* Children are named as the layers, without dots, and each name once. */
static aril_status add_child(aril_module *self, caffe_net *net, int i, caffe_map *used)
{
    caffe_node *n = &net->node[i];
    size_t length = strlen(n->name);
    char *name = aril__malloc(length + 32);
    if (!name) return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", net->file);
    snprintf(name, length + 32, "%s", *n->name ? n->name : "layer");
    for (char *c = name; *c; c++)
        if (*c == '.') *c = '_';
    aril_status s = ARIL_OK;
    int times = aril__caffe_map_get(used, n->name);
    times = times < 0 ? 1 : times + 1;
    s = aril__caffe_map_set(used, n->name, times);
    size_t base = strlen(name);
    if (times > 1) snprintf(name + base, 32, "#%d", times);
    while (s == ARIL_OK && aril__find_module(self, name, strlen(name)))
        snprintf(name + base, 32, "#%d", ++times);
    if (s == ARIL_OK && !aril_module_add(self, name, aril_module_keep(n->module)))
        s = aril__last_status();
    free(name);
    return s;
}

static aril_status add_children(aril_module *self, caffe_net *net)
{
    caffe_map used = { 0 };
    aril_status s = ARIL_OK;
    for (int i = 0; i < net->n_nodes && s == ARIL_OK; i++)
        if (!(net->node[i].row->flags & (CAFFE_INPUT | CAFFE_SINK)))
            s = add_child(self, net, i, &used);
    aril__caffe_map_free(&used);
    return s;
}

/* ---- filters ---- */

/* Removes layers that do not belong to the state, and the weights of all: they are large, and not
 * what a net consists of. */
static aril_status filter(caffe_net *net, const aril__message *from, const aril_caffe_opts *opts)
{
    const aril__message *own = aril__message_sub(from, "state");
    size_t n = aril__message_count(own, "stage");
    aril__caffe_state state = { .train = opts->phase == ARIL_CAFFE_TRAIN,
                                .level = opts->level ? opts->level
                                                     : (int)aril__message_int(own, "level") };
    const char **stages = aril__calloc((n + (size_t)opts->n_stages + 1) * sizeof *stages);
    if (!stages) return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", net->file);
    for (size_t i = 0; i < n; i++)
        stages[state.n_stages++] = aril__message_text_at(own, "stage", i);
    for (int i = 0; i < opts->n_stages; i++) stages[state.n_stages++] = opts->stages[i];
    state.stages = stages;
    aril_status s = ARIL_OK;
    size_t layers = aril__message_count(net->message, "layer");
    net->excluded = aril__calloc((layers + 1) * sizeof *net->excluded);
    if (!net->excluded) s = aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", net->file);
    for (size_t i = layers; i-- > 0 && s == ARIL_OK;) {
        aril__message *layer = aril__message_sub_at(net->message, "layer", i);
        int included = aril__caffe_layer_included(layer, &state, net->file);
        if (included < 0) s = (aril_status)included;
        if (included != 0) continue;
        aril__message_remove(net->message, "layer", i);
        net->excluded[net->n_excluded++] = layer;
    }
    free(stages);
    return s;
}

/* ---- creation ---- */

/* The shape of input i, from the options or from the net; false: neither has it. */
static bool input_shape(const caffe_net *net, int i, aril_shape *shape)
{
    if (i < net->n_shapes && net->shapes[i].ndim > 0) return *shape = net->shapes[i], true;
    const caffe_node *n = &net->node[net->value[net->inputs[i]].writer];
    return n->row->top_shape &&
           n->row->top_shape(aril__caffe_layer_of(n), i - n->first_input, shape);
}

/* Builds a net whose inputs are known. */
static aril_status build_early(aril_module *self, caffe_net *net)
{
    aril_shape *shapes = aril__calloc(((size_t)net->n_inputs + 1) * sizeof *shapes);
    if (!shapes) return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", net->file);
    bool known = true;
    for (int i = 0; i < net->n_inputs && known; i++) known = input_shape(net, i, &shapes[i]);
    aril_status s = known ? aril__caffe_build(self, net, shapes) : ARIL_OK;
    if (known && s == ARIL_OK) aril_module_ready(self);
    free(shapes);
    return s;
}

static aril_status copy_text(const char *from, char **to)
{
    *to = from ? aril__strdup(from) : NULL;
    return from && !*to ? aril__fail(ARIL_ERR_MEMORY, "caffe: out of memory") : ARIL_OK;
}

static aril_status copy_shapes(caffe_net *net, const aril_caffe_opts *opts)
{
    size_t n = opts->n_shapes > 0 && opts->shapes ? (size_t)opts->n_shapes : 0;
    net->shapes = aril__calloc((n + 1) * sizeof *net->shapes);
    if (!net->shapes) return aril__fail(ARIL_ERR_MEMORY, "caffe: out of memory");
    for (size_t i = 0; i < n; i++) net->shapes[i] = opts->shapes[i];
    net->n_shapes = (int)n;
    return ARIL_OK;
}

/* Fills a net from a message, which it owns from now on. */
static aril_status fill(aril_module *self, caffe_net *net, const char *name,
                        const aril_caffe_opts *opts)
{
    net->train = opts->phase == ARIL_CAFFE_TRAIN;
    aril_status s = copy_text(name, &net->file);
    if (s == ARIL_OK) s = copy_text(opts->root, &net->root);
    if (s == ARIL_OK) s = copy_text(opts->weights, &net->pending);
    if (s == ARIL_OK) s = copy_shapes(net, opts);
    if (s == ARIL_OK) s = filter(net, net->message, opts);
    if (s == ARIL_OK) s = make_nodes(net);
    if (s == ARIL_OK) s = aril__caffe_wire(net);
    if (s == ARIL_OK) s = add_children(self, net);
    if (s == ARIL_OK) s = build_early(self, net);
    return s;
}

static aril_status check_opts(const char *name, const aril_caffe_opts *o)
{
    if (o->phase != ARIL_CAFFE_TEST && o->phase != ARIL_CAFFE_TRAIN)
        return aril__fail(ARIL_ERR_ARG, "%s: there is no phase %d", name, (int)o->phase);
    if (o->n_stages < 0 || (o->n_stages > 0 && !o->stages))
        return aril__fail(ARIL_ERR_ARG, "%s: %d stages in a list that is %s", name, o->n_stages,
                          o->stages ? "there" : "NULL");
    if (o->n_shapes < 0 || (o->n_shapes > 0 && !o->shapes))
        return aril__fail(ARIL_ERR_ARG, "%s: %d shapes in a list that is %s", name, o->n_shapes,
                          o->shapes ? "there" : "NULL");
    for (int i = 0; i < o->n_shapes; i++) {
        const aril_shape *s = &o->shapes[i];
        if (s->ndim < 0 || s->ndim > ARIL_MAX_DIMS)
            return aril__fail(ARIL_ERR_ARG, "%s: shape %d has %d dimensions; expected 0 to %d",
                              name, i, s->ndim, ARIL_MAX_DIMS);
        for (int k = 0; k < s->ndim; k++)
            if (s->dim[k] < 0)
                return aril__fail(ARIL_ERR_ARG, "%s: size %d of shape %d is %lld", name, k, i,
                                  (long long)s->dim[k]);
    }
    return ARIL_OK;
}

/* A net of an upgraded message, whose ownership it takes. */
static aril_module *net_of(aril__message *message, const char *name, const aril_caffe_opts *opts)
{
    aril_module *self = NULL;
    caffe_net *net = aril__calloc(sizeof *net);
    if (net) self = aril_module_make(&net_class);
    if (!self) {
        if (!net) aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", name);
        free(net);
        aril__message_free(message);
        return NULL;
    }
    net->message = message;
    *(caffe_net **)aril_module_data(self) = net;
    aril_status s = check_opts(name, opts);
    if (s == ARIL_OK) s = fill(self, net, name, opts);
    if (s == ARIL_OK && opts->phase == ARIL_CAFFE_TEST) aril_module_eval(self);
    return aril__layer_made(self, s);
}

/* The same of a message in any form, of which a copy without weights is made. */
aril_module *aril__caffe_net_from(const aril__message *net, const char *name, aril_caffe_opts opts)
{
    aril__message *copy = net ? aril__message_clone(net) : NULL;
    if (!copy) {
        if (!net) aril__fail(ARIL_ERR_ARG, "caffe: the net is NULL");
        return NULL;
    }
    if (!name) name = "prototxt";
    if (aril__caffe_net_upgrade(copy, name) < 0) {
        aril__message_free(copy);
        return NULL;
    }
    for (size_t i = 0; i < aril__message_count(copy, "layer"); i++)
        aril__message_clear(aril__message_sub_at(copy, "layer", i), "blobs");
    return net_of(copy, name, &opts);
}

aril_module *aril_caffe_net(const char *path, aril_caffe_opts opts)
{
    aril__message *m = aril__caffe_net_load(path);
    if (!m) return NULL;
    /* A file of weights holds the net too. */
    if (aril__caffe_is_binary(path)) {
        for (size_t i = 0; i < aril__message_count(m, "layer"); i++)
            aril__message_clear(aril__message_sub_at(m, "layer", i), "blobs");
        if (!opts.weights) opts.weights = path;
    }
    return net_of(m, path, &opts);
}

aril_module *aril_caffe_net_parse(const char *text, size_t size, const char *name,
                                  aril_caffe_opts opts)
{
    if (!name) name = "prototxt";
    if (!text) {
        aril__fail(ARIL_ERR_ARG, "%s: the text is NULL", name);
        return NULL;
    }
    aril__message *m = aril__message_parse(&aril__caffe_NetParameter, text, size,
                                           (aril__message_opts){ .name = name });
    if (m && aril__caffe_net_upgrade(m, name) < 0) {
        aril__message_free(m);
        m = NULL;
    }
    return m ? net_of(m, name, &opts) : NULL;
}
