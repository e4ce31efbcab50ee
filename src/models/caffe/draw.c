/* Drawings of nets by their layers, in Graphviz's language. */
#include "graph/draw.h"
#include "models/caffe/inside.h"

static const char *color_of(const caffe_node *n)
{
    const char *type = n->row->layer.base.type;
    if (n->row->flags & CAFFE_INPUT) return "#cde7c8";
    if (strstr(type, "Convolution")) return "#f6c7b6";
    if (strcmp(type, "Pooling") == 0) return "#f7dfa5";
    if (strcmp(type, "InnerProduct") == 0) return "#d3c7ec";
    return strstr(type, "Loss") ? "#f3b0b0" : "#c9ddf0";
}

/* ---- what layers say of their sizes ---- */

static bool has_field(const aril__message *m, const char *name)
{
    return aril__proto_field_named(m->type, name) && aril__message_has(m, name);
}

/* "kernel 5", "kernel 3x1" from a field or from FIELD_h and FIELD_w; `otherwise` where neither is
 * set, nothing if that is negative. */
static void put_size(FILE *to, const char *what, const aril__message *p, const char *field,
                     const char *h, const char *w, int otherwise, const char **before)
{
    size_t n = has_field(p, field) ? aril__message_count(p, field) : 0;
    bool repeated = n && aril__proto_field_named(p->type, field)->label >= ARIL__PROTO_REPEATED;
    bool apart = has_field(p, h) || has_field(p, w);
    if (!n && !apart && otherwise < 0) return;
    fprintf(to, "%s%s ", *before, what);
    *before = ", ";
    if (apart)
        fprintf(to, "%lldx%lld", (long long)aril__message_int(p, h),
                (long long)aril__message_int(p, w));
    else if (!n)
        fprintf(to, "%d", otherwise);
    for (size_t i = 0; i < n && !apart; i++)
        fprintf(to, "%s%lld", i ? "x" : "",
                (long long)(repeated ? aril__message_int_at(p, field, i)
                                     : aril__message_int(p, field)));
}

static void put_window(FILE *to, const aril__message *p)
{
    const char *before = "\\n";
    if (has_field(p, "global_pooling") && aril__message_int(p, "global_pooling"))
        fprintf(to, "%sglobal", before);
    else {
        put_size(to, "kernel", p, "kernel_size", "kernel_h", "kernel_w", -1, &before);
        put_size(to, "stride", p, "stride", "stride_h", "stride_w", 1, &before);
        put_size(to, "pad", p, "pad", "pad_h", "pad_w", 0, &before);
    }
}

/* Lines below the name: what draw_net.py of Caffe shows, the outputs and the window. */
static void put_sizes(FILE *to, const caffe_node *n)
{
    const aril__message *p = n->row->param ? aril__message_sub(n->message, n->row->param) : NULL;
    if (!p) return;
    if (has_field(p, "num_output"))
        fprintf(to, "\\nnum_output %lld", (long long)aril__message_int(p, "num_output"));
    if (has_field(p, "batch_size"))
        fprintf(to, "\\nbatch_size %lld", (long long)aril__message_int(p, "batch_size"));
    if (aril__proto_field_named(p->type, "pool"))
        fprintf(to, "\\n%s", aril__message_value(p, "pool"));
    if (aril__proto_field_named(p->type, "kernel_size")) put_window(to, p);
}

/* ---- the graph ---- */

static void put_layer(FILE *to, const caffe_net *net, int i)
{
    const caffe_node *n = &net->node[i];
    fprintf(to, "  layer%d [fillcolor=\"%s\", label=\"", i, color_of(n));
    aril__dot_text(to, n->name, 200);
    fprintf(to, " (%s)", n->row->layer.base.type);
    put_sizes(to, n);
    fputs("\"];\n", to);
    for (int k = 0; k < n->n_in; k++) {
        fprintf(to, "  layer%d -> layer%d [label=\"", net->value[n->in[k]].writer, i);
        aril__dot_text(to, net->value[n->in[k]].name, 200);
        fputs("\"];\n", to);
    }
}

typedef struct drawing {
    const caffe_net *net;
    bool train;
} drawing;

static aril_status write_net(FILE *to, const void *ctx)
{
    const drawing *d = ctx;
    const char *name = aril__message_text(d->net->message, "name");
    aril__dot_begin(to, *name ? name : "net", "TB");
    fputs("  labelloc=t; label=\"", to);
    aril__dot_text(to, name, 200);
    fprintf(to, "%sphase %s\";\n", *name ? ", " : "", d->train ? "TRAIN" : "TEST");
    for (int i = 0; i < d->net->n_nodes; i++) put_layer(to, d->net, i);
    fputs("}\n", to);
    return ARIL_OK;
}

aril_status aril_caffe_draw(const aril_module *m, const char *path)
{
    const caffe_net *net = aril__caffe_data("caffe_draw", m);
    if (!net) return ARIL_ERR_ARG;
    if (!path) return aril__fail(ARIL_ERR_ARG, "caffe_draw: the path is NULL");
    return aril__dot_save(path, write_net, &(drawing){ net, net->train });
}
