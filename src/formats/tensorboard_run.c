/* Run-level TensorBoard data: hyper-parameters and the graph. */
#include "core/error.h"
#include "formats/tensorboard.h"

#include <string.h>
#include <time.h>

/* ---- hyper-parameters ---- */

enum { EVENT_GRAPH = 4 };
enum { HPARAMS_VERSION = 1, HPARAMS_EXPERIMENT, HPARAMS_START, HPARAMS_END };
enum { TYPE_TEXT = 1, TYPE_NUMBER = 3 };
enum { VALUE_NUMBER = 2, VALUE_TEXT };
enum { ENDED_WELL = 1, ENDED_BADLY };

/* Writes a summary value that holds only a plug-in message. */
static aril_status write_message(aril_tensorboard *tb, const char *tag, const aril__proto *content)
{
    static const char what[] = "tensorboard_hparams";
    aril__tb_value v;
    if (!aril__tb_begin(tb, what, tag, 0, &v)) return aril_error_code();
    aril__tb_plugin(tb, "hparams", content);
    return aril__tb_end(tb, what, v);
}

static void put_value(aril__proto *p, uint32_t field, const aril_hparam *h)
{
    size_t value = aril__proto_begin(p, field);
    if (h->text)
        aril__proto_text(p, VALUE_TEXT, h->text);
    else
        aril__proto_double(p, VALUE_NUMBER, h->number);
    aril__proto_end(p, value);
}

static void put_experiment(aril__proto *p, const aril_hparam *hparams, int n,
                           const char *const *metrics, int n_metrics)
{
    aril__proto_int(p, HPARAMS_VERSION, 0);
    size_t experiment = aril__proto_begin(p, HPARAMS_EXPERIMENT);
    for (int i = 0; i < n; i++) {
        size_t info = aril__proto_begin(p, 4);
        aril__proto_text(p, 1, hparams[i].name);
        aril__proto_int(p, 4, hparams[i].text ? TYPE_TEXT : TYPE_NUMBER);
        aril__proto_end(p, info);
    }
    for (int i = 0; i < n_metrics; i++) {
        size_t info = aril__proto_begin(p, 5), name = aril__proto_begin(p, 1);
        aril__proto_text(p, 2, metrics[i]);
        aril__proto_end(p, name);
        aril__proto_end(p, info);
    }
    aril__proto_end(p, experiment);
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
    aril__proto p = { 0 };
    put_experiment(&p, hparams, n, metrics, n_metrics);
    aril_status s = write_message(tb, "_hparams_/experiment", &p);
    aril__proto_clear(&p);
    size_t start = aril__proto_begin(&p, HPARAMS_START);
    for (int i = 0; i < n; i++) { /* a map: key-value entries */
        size_t entry = aril__proto_begin(&p, 1);
        aril__proto_text(&p, 1, hparams[i].name);
        put_value(&p, 2, &hparams[i]);
        aril__proto_end(&p, entry);
    }
    aril__proto_double(&p, 5, (double)time(NULL));
    aril__proto_end(&p, start);
    if (s == ARIL_OK) s = write_message(tb, "_hparams_/session_start_info", &p);
    aril__proto_free(&p);
    return s;
}

aril_status aril_tensorboard_hparams_end(aril_tensorboard *tb, bool well)
{
    aril__proto p = { 0 };
    size_t end = aril__proto_begin(&p, HPARAMS_END);
    aril__proto_int(&p, 1, well ? ENDED_WELL : ENDED_BADLY);
    aril__proto_double(&p, 2, (double)time(NULL));
    aril__proto_end(&p, end);
    aril_status s = write_message(tb, "_hparams_/session_end_info", &p);
    aril__proto_free(&p);
    return s;
}

/* ---- the graph ---- */

enum { NODE_NAME = 1, NODE_OP, NODE_INPUT, NODE_ATTRIBUTE = 5 };
enum { ATTRIBUTE_LIST = 1, ATTRIBUTE_TEXT, ATTRIBUTE_SHAPE = 7 };

static size_t begin_attribute(aril__proto *p, const char *name, size_t *entry)
{
    *entry = aril__proto_begin(p, NODE_ATTRIBUTE);
    aril__proto_text(p, 1, name);
    return aril__proto_begin(p, 2);
}

static void put_node(aril__proto *p, const aril_tensorboard_node *node)
{
    size_t at = aril__proto_begin(p, 1), entry;
    aril__proto_text(p, NODE_NAME, node->name);
    aril__proto_text(p, NODE_OP, node->op);
    for (int i = 0; i < node->n_inputs; i++) aril__proto_text(p, NODE_INPUT, node->input[i]);
    size_t value = begin_attribute(p, "_output_shapes", &entry);
    size_t list = aril__proto_begin(p, ATTRIBUTE_LIST);
    size_t shape = aril__proto_begin(p, ATTRIBUTE_SHAPE);
    for (int d = 0; d < node->shape.ndim && d < ARIL_MAX_DIMS; d++) {
        size_t dim = aril__proto_begin(p, 2);
        aril__proto_int(p, 1, node->shape.dim[d]);
        aril__proto_end(p, dim);
    }
    aril__proto_end(p, shape);
    aril__proto_end(p, list);
    aril__proto_end(p, value);
    aril__proto_end(p, entry);
    if (node->text) {
        value = begin_attribute(p, "text", &entry);
        aril__proto_text(p, ATTRIBUTE_TEXT, node->text);
        aril__proto_end(p, value);
        aril__proto_end(p, entry);
    }
    aril__proto_end(p, at);
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
    aril__proto p = { 0 };
    for (int i = 0; i < n; i++) put_node(&p, &node[i]);
    size_t versions = aril__proto_begin(&p, 4);
    aril__proto_int(&p, 1, 22); /* the producer version that TensorBoard expects */
    aril__proto_end(&p, versions);
    aril_status s = aril__tb_event(tb, what, EVENT_GRAPH, &p);
    aril__proto_free(&p);
    return s;
}
