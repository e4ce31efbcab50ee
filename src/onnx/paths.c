/* Where nodes belong in the model's tree of modules, which ONNX does not store: exporters write it
 * into names of nodes ("/layer1/conv/Conv") or of weights ("layer1.conv.weight"). */
#include "formats/schemas.h"
#include "onnx/onnx.h"

#include <stdio.h>
#include <string.h>

typedef struct naming {
    onnx_model *m;
    const char *outer;  /* of the call, branch or loop that the body belongs to; "" */
    const char *module; /* of the node before, by its weights: "layer1.conv" */
    size_t length;      /* of its name */
} naming;

/* The module of a node's weights, if their names are paths; else that of the node before: an
 * activation belongs to the layer that it follows. */
static void find_module(naming *s, const onnx_node *n)
{
    for (size_t i = 0; i < n->n_in; i++) {
        const char *name = n->in[i] && s->m->initial[n->in[i]].kind ? s->m->name[n->in[i]] : "";
        const char *dot = strrchr(name, '.');
        if (!dot || dot == name || !dot[1] || strchr(name, '/')) continue;
        s->module = name;
        s->length = (size_t)(dot - name);
        return;
    }
}

static const char *path_of(naming *s, const onnx_node *n)
{
    const char *name = aril__message_text(n->message, "name"),
               *outer = s->outer + strspn(s->outer, ".");
    if (!*name) name = aril__message_text(n->message, "op_type");
    name += strspn(name, "/");
    bool is_path = strchr(name, '/') != NULL;
    int length = is_path ? 0 : (int)s->length;
    size_t size = strlen(outer) + (size_t)length + strlen(name) + 3;
    char *text = aril__onnx_alloc(&s->m->arena, size, 1);
    if (!text) return NULL;
    snprintf(text, size, "%s%s%.*s%s%s", outer, *outer ? "." : "", length, s->module,
             length ? "." : "", name);
    for (char *c = text; *c; c++)
        if (*c == '/') *c = '.';
    return text;
}

static aril_status name_body(onnx_model *m, const onnx_body *b, const char *outer)
{
    naming s = { m, outer, "", 0 };
    for (size_t i = 0; i < b->n_nodes; i++) {
        onnx_node *n = &b->node[i];
        find_module(&s, n);
        if (!(n->path = path_of(&s, n))) return ARIL_ERR_MEMORY;
        for (size_t k = 0; k < n->n_bodies; k++) {
            aril_status status = name_body(m, &n->body[k], n->path);
            if (status < 0) return status;
        }
    }
    return ARIL_OK;
}

aril_status aril__onnx_name_nodes(onnx_model *m)
{
    return name_body(m, &m->main, "");
}
