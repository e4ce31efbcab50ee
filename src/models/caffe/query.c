/* What a net consists of; running it in other ways than as a module. */
#include "models/caffe/inside.h"

#include "formats/atomic_file.h"
#include "formats/weights/weights.h"

#include <stdlib.h>

const char *aril_caffe_name(const aril_module *m)
{
    const caffe_net *net = aril__caffe_data("caffe_name", m);
    return net ? aril__message_text(net->message, "name") : "";
}

const aril__message *aril__caffe_net_message(const aril_module *m)
{
    const caffe_net *net = aril__caffe_data("caffe_net_message", m);
    return net ? net->message : NULL;
}

const char *aril__caffe_net_file(const aril_module *m)
{
    const caffe_net *net = aril__caffe_data("caffe_net_file", m);
    return net ? net->file : NULL;
}

const aril__message *aril__caffe_layer_message(const aril_module *m, int i)
{
    const caffe_net *net = aril__caffe_data("caffe_layer_message", m);
    return net && i >= 0 && i < net->n_nodes ? net->node[i].message : NULL;
}

aril_tensor *aril__caffe_layer_blob(const aril_module *m, int i, int k)
{
    const caffe_net *net = aril__caffe_data("caffe_layer_blob", m);
    bool is = net && i >= 0 && i < net->n_nodes && k >= 0 &&
              k < aril__caffe_layer_of(&net->node[i])->n_blobs;
    return is ? aril__caffe_weight_at(net, i, k) : NULL;
}

void aril__caffe_watch(aril_module *m, aril__caffe_watcher *fn, void *ctx)
{
    caffe_net *net = aril__caffe_data("caffe_watch", m);
    if (!net) return;
    net->watcher = fn;
    net->watcher_ctx = ctx;
}

/* ---- blobs ---- */

int aril_caffe_inputs(const aril_module *m)
{
    const caffe_net *net = aril__caffe_data("caffe_inputs", m);
    return net ? net->n_inputs : 0;
}

int aril_caffe_outputs(const aril_module *m)
{
    const caffe_net *net = aril__caffe_data("caffe_outputs", m);
    return net ? net->n_outputs : 0;
}

static aril_caffe_blob blob_of(const caffe_net *net, int v)
{
    const caffe_value *value = &net->value[v];
    return (aril_caffe_blob){ .name = value->name,
                              .shape = value->shape,
                              .known = value->known,
                              .loss_weight = value->loss_weight,
                              .layer = value->writer };
}

aril_caffe_blob aril_caffe_input(const aril_module *m, int i)
{
    const caffe_net *net = aril__caffe_data("caffe_input", m);
    return net && i >= 0 && i < net->n_inputs ? blob_of(net, net->inputs[i])
                                              : (aril_caffe_blob){ 0 };
}

aril_caffe_blob aril_caffe_output(const aril_module *m, int i)
{
    const caffe_net *net = aril__caffe_data("caffe_output", m);
    return net && i >= 0 && i < net->n_outputs ? blob_of(net, net->outputs[i])
                                               : (aril_caffe_blob){ 0 };
}

/* The last value of a name. */
static int value_named(const caffe_net *net, const char *name)
{
    for (int v = net->n_values - 1; v >= 0 && name; v--)
        if (!net->value[v].automatic && strcmp(net->value[v].name, name) == 0) return v;
    enum { MOST = 1024 };
    const char *names[MOST];
    int n = 0;
    for (int v = 0; v < net->n_values && n < MOST; v++) names[n++] = net->value[v].name;
    const char *near = aril_nearest(name, names, n);
    aril__fail(ARIL_ERR_ARG, "%s: there is no blob '%s'%s%s%s", net->file, name ? name : "NULL",
               near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    return -1;
}

aril_status aril_caffe_blobs(aril_module *m, aril_list in, int n, const char *const *names,
                             aril_tensor **out)
{
    caffe_net *net = aril__caffe_data("caffe_blobs", m);
    if (!net) return ARIL_ERR_ARG;
    if (n < 0 || (n > 0 && (!names || !out)) || (in.n > 0 && !in.at))
        return aril__fail(ARIL_ERR_ARG, "caffe_blobs: a list is NULL");
    if (!aril_module_built(m)) {
        aril_status built = aril_module_build_n(m, in);
        if (built < 0) return built;
    }
    int *wanted = aril__calloc(((size_t)n + 1) * sizeof *wanted);
    aril_status s = wanted ? ARIL_OK : aril__fail(ARIL_ERR_MEMORY, "caffe_blobs: out of memory");
    for (int i = 0; i < n && s == ARIL_OK; i++)
        if ((wanted[i] = value_named(net, names[i])) < 0) s = ARIL_ERR_ARG;
    if (s == ARIL_OK) {
        ARIL_SCOPE;
        s = aril__caffe_run(net, in.n, in.at, n, wanted, out, NULL);
        for (int i = 0; i < n && s == ARIL_OK; i++) aril_escape(out[i]);
    }
    if (s < 0 && n > 0) aril__poison_all(n, out);
    free(wanted);
    return s;
}

aril_tensor *aril_caffe_loss(aril_module *m, aril_list in, aril_tensor **outputs)
{
    caffe_net *net = aril__caffe_data("caffe_loss", m);
    if (!net) return aril__poison();
    aril_tensor **out = aril__calloc(((size_t)net->n_outputs + 1) * sizeof *out);
    if (!out) {
        aril__fail(ARIL_ERR_MEMORY, "caffe_loss: out of memory");
        return aril__poison();
    }
    aril_status s = aril_forward_all(m, in, net->n_outputs + 1, out);
    for (int i = 0; i < net->n_outputs && outputs; i++) outputs[i] = out[i];
    aril_tensor *loss = s < 0           ? aril__poison()
                        : net->has_loss ? out[net->n_outputs]
                                        : aril_zeros(ARIL_SHAPE(), ARIL_F32, aril_cpu());
    free(out);
    return loss ? loss : aril_zeros(ARIL_SHAPE(), ARIL_F32, aril_cpu());
}

/* ---- layers and parameters ---- */

int aril_caffe_layers(const aril_module *m)
{
    const caffe_net *net = aril__caffe_data("caffe_layers", m);
    return net ? net->n_nodes : 0;
}

aril_caffe_layer aril_caffe_layer_at(const aril_module *m, int i)
{
    const caffe_net *net = aril__caffe_data("caffe_layer_at", m);
    if (!net || i < 0 || i >= net->n_nodes) return (aril_caffe_layer){ .first_input = -1 };
    const caffe_node *n = &net->node[i];
    bool runs = !(n->row->flags & (CAFFE_INPUT | CAFFE_SINK));
    return (aril_caffe_layer){ .name = n->name,
                               .type = n->row->layer.base.type,
                               .n_bottoms = n->n_in,
                               .n_tops = n->n_tops,
                               .bottoms = n->bottoms,
                               .tops = n->tops,
                               .module = runs ? n->module : NULL,
                               .is_data = (n->row->flags & CAFFE_DATA) != 0,
                               .first_input = n->first_input };
}

aril_caffe_blob aril_caffe_top(const aril_module *m, int layer, int i)
{
    const caffe_net *net = aril__caffe_data("caffe_top", m);
    if (!net || layer < 0 || layer >= net->n_nodes || i < 0 || i >= net->node[layer].n_out)
        return (aril_caffe_blob){ 0 };
    return blob_of(net, net->node[layer].out[i]);
}

int aril_caffe_params(const aril_module *m)
{
    const caffe_net *net = aril__caffe_data("caffe_params", m);
    if (!net) return -1;
    if (aril_module_built(m)) return net->n_weights;
    aril__fail(ARIL_ERR_STATE,
               "caffe_params: the net is not built; give it the shapes of its inputs, or run it");
    return -1;
}

aril_caffe_param aril_caffe_param_at(const aril_module *m, int i)
{
    const caffe_net *net = aril__caffe_data("caffe_param_at", m);
    if (!net || i < 0 || i >= net->n_weights) return (aril_caffe_param){ .layer = -1 };
    const caffe_weight *w = &net->weight[i];
    return (aril_caffe_param){ .tensor = aril__caffe_weight_at(net, w->node, w->index),
                               .layer = w->node,
                               .index = w->index,
                               .lr_mult = w->lr,
                               .decay_mult = w->decay };
}

/* ---- text ---- */

/* The shape of top i of an Input layer: that of the options, or of the file. */
static bool top_shape(const caffe_net *net, const caffe_node *n, int i, aril_shape *shape)
{
    int input = n->first_input + i;
    bool given = input < net->n_shapes && net->shapes[input].ndim > 0;
    if (given) *shape = net->shapes[input];
    return given || (n->row->top_shape && n->row->top_shape(aril__caffe_layer_of(n), i, shape));
}

/* Gives an Input layer the shapes that it has in this net, if all are known. */
static void put_shapes(const caffe_net *net, const caffe_node *n, aril__message *layer)
{
    aril_shape shape;
    for (int i = 0; i < n->n_out; i++)
        if (!top_shape(net, n, i, &shape)) return;
    aril__message *param = aril__message_set_sub(layer, "input_param");
    if (param) aril__message_clear(param, "shape");
    for (int i = 0; i < n->n_out; i++) {
        top_shape(net, n, i, &shape);
        aril__message_set_ints(aril__message_add_sub(param, "shape"), "dim", shape.dim,
                               (size_t)shape.ndim);
    }
}

/* The message of the net as it runs: with the shapes of the options. */
static aril__message *as_it_runs(const caffe_net *net)
{
    aril__message *m = aril__message_clone(net->message);
    for (int i = 0; m && i < net->n_nodes && net->n_shapes; i++)
        if (strcmp(net->node[i].row->layer.base.type, "Input") == 0)
            put_shapes(net, &net->node[i], aril__message_sub_at(m, "layer", (size_t)i));
    return m;
}

aril_status aril_caffe_print(const aril_module *m, FILE *to)
{
    const caffe_net *net = aril__caffe_data("caffe_print", m);
    aril__bytes text = { 0 };
    if (!net || !to)
        return net ? aril__fail(ARIL_ERR_ARG, "caffe_print: the file is NULL") : ARIL_ERR_ARG;
    aril__message *message = as_it_runs(net);
    aril_status s = message ? aril__message_print(message, &text) : aril__latest_status();
    aril__message_free(message);
    if (s == ARIL_OK && text.n && fwrite(text.at, 1, text.n, to) != text.n)
        s = aril__fail(ARIL_ERR_IO, "caffe_print: the net could not be written");
    aril__bytes_free(&text);
    return s;
}

static aril_status upgrade_solver(const char *from, const char *to)
{
    aril__bytes text = { 0 };
    aril__message *solver = aril__caffe_solver_load(from);
    if (!solver) return aril__latest_status();
    aril_status s = aril__caffe_solver_upgrade(solver, from);
    if (s == ARIL_OK) s = aril__message_print(solver, &text);
    if (s == ARIL_OK) s = aril__file_replace(to, text.at, text.n);
    aril__bytes_free(&text);
    aril__message_free(solver);
    return s;
}

aril_status aril_caffe_upgrade(const char *from, const char *to, bool binary)
{
    aril__bytes text = { 0 };
    if (!to) return aril__fail(ARIL_ERR_ARG, "caffe_upgrade: the path is NULL");
    if (!binary && !aril__ends_with(to, ".h5") && aril__caffe_is_solver(from))
        return upgrade_solver(from, to);
    aril__message *net = aril__caffe_net_load(from);
    if (!net) return aril__latest_status();
    aril_status s = ARIL_OK;
    if (aril__ends_with(to, ".h5")) {
        s = aril__caffe_message_to_hdf5(net, to);
    } else if (binary) {
        s = aril__message_save(net, to);
    } else {
        s = aril__message_print(net, &text);
        if (s == ARIL_OK) s = aril__file_replace(to, text.at, text.n);
    }
    aril__bytes_free(&text);
    aril__message_free(net);
    return s;
}
