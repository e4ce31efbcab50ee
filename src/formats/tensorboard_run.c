/* Run-level TensorBoard data: hyper-parameters and the graph. */
#include "core/error.h"
#include "formats/schemas.h"
#include "formats/tensorboard.h"

#include <string.h>
#include <time.h>

/* ---- hyper-parameters ---- */

enum { TYPE_TEXT = 1, TYPE_NUMBER = 3 };
enum { ENDED_WELL = 1, ENDED_BADLY };

/* Writes a summary value that holds only a plug-in message, and frees that. */
static aril_status write_content(aril_tensorboard *tb, const char *tag, aril__message *content)
{
    static const char what[] = "tensorboard_hparams";
    aril__message *v;
    aril_status s;
    if (!content || !aril__tb_begin(tb, what, tag, 0, &v)) {
        s = aril_error_code();
    } else {
        s = aril__tb_plugin(v, "hparams", content);
        if (s == ARIL_OK) s = aril__tb_end(tb, what);
    }
    aril__message_free(content);
    return s;
}

static aril__message *experiment(const aril_hparam *hparams, int n, const char *const *metrics,
                                 int n_metrics)
{
    aril__message *root = aril__message_new(&aril__tensorboard_HParamsPluginData);
    aril__message_set_int(root, "version", 0);
    aril__message *m = aril__message_set_sub(root, "experiment");
    for (int i = 0; i < n; i++) {
        aril__message *info = aril__message_add_sub(m, "hparam_infos");
        aril__message_set_text(info, "name", hparams[i].name);
        aril__message_set_int(info, "type", hparams[i].text ? TYPE_TEXT : TYPE_NUMBER);
    }
    for (int i = 0; i < n_metrics; i++) {
        aril__message *info = aril__message_add_sub(m, "metric_infos");
        aril__message_set_text(aril__message_set_sub(info, "name"), "tag", metrics[i]);
    }
    return root;
}

static aril__message *session_start(const aril_hparam *hparams, int n)
{
    aril__message *root = aril__message_new(&aril__tensorboard_HParamsPluginData);
    aril__message *start = aril__message_set_sub(root, "session_start_info");
    for (int i = 0; i < n; i++) { /* a map: key-value entries */
        aril__message *entry = aril__message_add_sub(start, "hparams");
        aril__message_set_text(entry, "key", hparams[i].name);
        aril__message *value = aril__message_set_sub(entry, "value");
        if (hparams[i].text)
            aril__message_set_text(value, "string_value", hparams[i].text);
        else
            aril__message_set_number(value, "number_value", hparams[i].number);
    }
    aril__message_set_number(start, "start_time_secs", (double)time(NULL));
    return root;
}

aril_status aril_tensorboard_hparams(aril_tensorboard *tb, const aril_hparam *hparams, int n,
                                     const char *const *metrics, int n_metrics)
{
    static const char what[] = "tensorboard_hparams";
    if (n < 0 || n_metrics < 0 || (n && !hparams) || (n_metrics && !metrics))
        return aril__fail(ARIL_ERR_ARG, "%s: %d hyper-parameters and %d metrics, but no list", what,
                          n, n_metrics);
    for (int i = 0; i < n; i++)
        if (!hparams[i].name)
            return aril__fail(ARIL_ERR_ARG, "%s: hyper-parameter %d has no name", what, i);
    for (int i = 0; i < n_metrics; i++)
        if (!metrics[i]) return aril__fail(ARIL_ERR_ARG, "%s: metric %d has no name", what, i);
    aril_status s =
        write_content(tb, "_hparams_/experiment", experiment(hparams, n, metrics, n_metrics));
    if (s == ARIL_OK)
        s = write_content(tb, "_hparams_/session_start_info", session_start(hparams, n));
    return s;
}

aril_status aril_tensorboard_hparams_end(aril_tensorboard *tb, bool well)
{
    aril__message *root = aril__message_new(&aril__tensorboard_HParamsPluginData);
    aril__message *end = aril__message_set_sub(root, "session_end_info");
    aril__message_set_int(end, "status", well ? ENDED_WELL : ENDED_BADLY);
    aril__message_set_number(end, "end_time_secs", (double)time(NULL));
    return write_content(tb, "_hparams_/session_end_info", root);
}

/* ---- the graph ---- */

/* Adds an attribute to a node and returns its value. */
static aril__message *add_attribute(aril__message *node, const char *name)
{
    aril__message *entry = aril__message_add_sub(node, "attr");
    aril__message_set_text(entry, "key", name);
    return aril__message_set_sub(entry, "value");
}

static void add_node(aril__message *graph, const aril_tensorboard_node *node)
{
    aril__message *m = aril__message_add_sub(graph, "node");
    aril__message_set_text(m, "name", node->name);
    aril__message_set_text(m, "op", node->op);
    for (int i = 0; i < node->n_inputs; i++) aril__message_add_text(m, "input", node->input[i]);
    aril__message *list = aril__message_set_sub(add_attribute(m, "_output_shapes"), "list");
    aril__message *shape = aril__message_add_sub(list, "shape");
    for (int d = 0; d < node->shape.ndim && d < ARIL_MAX_DIMS; d++)
        aril__message_set_int(aril__message_add_sub(shape, "dim"), "size", node->shape.dim[d]);
    if (node->text)
        aril__message_set_bytes(add_attribute(m, "text"), "s", node->text, strlen(node->text));
}

aril_status aril_tensorboard_graph(aril_tensorboard *tb, const aril_tensorboard_node *node, int n)
{
    static const char what[] = "tensorboard_graph";
    if (n < 0 || (n && !node))
        return aril__fail(ARIL_ERR_ARG, "%s: expected nodes, got NULL", what);
    for (int i = 0; i < n; i++) {
        if (!node[i].name || !*node[i].name || !node[i].op)
            return aril__fail(ARIL_ERR_ARG, "%s: node %d has no name or no op", what, i);
        for (int k = 0; k < node[i].n_inputs; k++)
            if (!node[i].input || !node[i].input[k])
                return aril__fail(ARIL_ERR_ARG, "%s: input %d of node %s has no name", what, k,
                                  node[i].name);
    }
    aril__message *graph = aril__message_new(&aril__tensorboard_GraphDef);
    if (!graph) return aril_error_code();
    for (int i = 0; i < n; i++) add_node(graph, &node[i]);
    /* The producer version that TensorBoard expects. */
    aril__message_set_int(aril__message_set_sub(graph, "versions"), "producer", 22);
    aril_status s = aril__tb_graph(tb, what, graph);
    aril__message_free(graph);
    return s;
}
