/* Where nodes belong in the model's tree of modules, which ONNX does not store: exporters write it
 * into names of nodes ("/layer1/conv/Conv") or of weights ("layer1.conv.weight"). */
#include "formats/schemas.h"
#include "onnx/onnx.h"

#include <stdio.h>
#include <string.h>

/* A module: the first characters of a name. */
typedef struct module_name {
    const char *at; /* "layer1.conv" */
    size_t length;
} module_name;

typedef struct naming {
    onnx_model *m;
    const char *outer;   /* of the call, branch or loop that the body belongs to; "" */
    module_name before;  /* of the node before */
    module_name *module; /* of the node that makes each slot */
    unsigned char *made; /* of each slot: NODE, CONSTANT, or 0: it is an input */
} naming;

enum { NODE = 1, CONSTANT };

static bool same_module(module_name a, module_name b)
{
    return a.length == b.length && (!a.length || strncmp(a.at, b.at, a.length) == 0);
}

/* The module that both are in. */
static module_name common(module_name a, module_name b)
{
    size_t n = 0, whole = 0;
    while (n < a.length && n < b.length && a.at[n] == b.at[n]) {
        if (a.at[n] == '.') whole = n;
        n++;
    }
    bool ends_a = n == a.length || a.at[n] == '.', ends_b = n == b.length || b.at[n] == '.';
    return (module_name){ a.at, ends_a && ends_b ? n : whole };
}

/* The module of a node's weights, if their names are paths. Without weights it belongs to the layer
 * that it follows, as an activation and the sum after a block do; what joins several layers, or
 * follows none, to the module that they are all in. What is in no module does not count. */
static module_name find_module(const naming *s, const onnx_node *n)
{
    for (size_t i = 0; i < n->n_in; i++) {
        const char *name = n->in[i] && s->m->initial[n->in[i]].kind ? s->m->name[n->in[i]] : "";
        const char *dot = strrchr(name, '.');
        if (!dot || dot == name || !dot[1] || strchr(name, '/')) continue;
        return (module_name){ name, (size_t)(dot - name) };
    }
    module_name all = { "", 0 };
    bool follows = false;
    int n_others = 0, any = 0, read = 0;
    for (size_t i = 0; i < n->n_in; i++) {
        read += n->in[i] && !s->m->initial[n->in[i]].kind && s->made[n->in[i]] != CONSTANT;
        if (!n->in[i] || s->made[n->in[i]] != NODE) continue;
        module_name of = s->module[n->in[i]];
        if (!of.length) continue;
        all = any++ ? common(all, of) : of;
        follows |= same_module(of, s->before);
        n_others += !same_module(of, s->before);
    }
    return !read || (follows && n_others <= 1) ? s->before : all;
}

static const char *path_of(const naming *s, const onnx_node *n)
{
    const char *name = aril__message_text(n->message, "name"),
               *outer = s->outer + strspn(s->outer, ".");
    if (!*name) name = aril__message_text(n->message, "op_type");
    name += strspn(name, "/");
    bool is_path = strchr(name, '/') != NULL;
    int length = is_path ? 0 : (int)s->before.length;
    size_t size = strlen(outer) + (size_t)length + strlen(name) + 3;
    char *text = aril__onnx_alloc(&s->m->arena, size, 1);
    if (!text) return NULL;
    snprintf(text, size, "%s%s%.*s%s%s", outer, *outer ? "." : "", length, s->before.at,
             length ? "." : "", name);
    for (char *c = text; *c; c++)
        if (*c == '/') *c = '.';
    return text;
}

static bool is_constant(const onnx_node *n)
{
    return strcmp(aril__message_text(n->message, "op_type"), "Constant") == 0;
}

static aril_status name_body(naming *s, const onnx_body *b, const char *outer)
{
    const naming around = *s;
    s->outer = outer;
    s->before = (module_name){ "", 0 };
    aril_status status = ARIL_OK;
    for (size_t i = 0; i < b->n_nodes && status == ARIL_OK; i++) {
        onnx_node *n = &b->node[i];
        if (!is_constant(n)) s->before = find_module(s, n);
        for (size_t k = 0; k < n->n_out; k++) {
            s->module[n->out[k]] = s->before;
            s->made[n->out[k]] = is_constant(n) ? CONSTANT : NODE;
        }
        if (!(n->path = path_of(s, n))) return ARIL_ERR_MEMORY;
        for (size_t k = 0; k < n->n_bodies && status == ARIL_OK; k++)
            status = name_body(s, &n->body[k], n->path);
    }
    s->outer = around.outer;
    s->before = around.before;
    return status;
}

aril_status aril__onnx_name_nodes(onnx_model *m)
{
    naming s = { .m = m,
                 .module = aril__onnx_alloc(&m->arena, m->n_slots, sizeof *s.module),
                 .made = aril__onnx_alloc(&m->arena, m->n_slots, 1) };
    return s.module && s.made ? name_body(&s, &m->main, "") : ARIL_ERR_MEMORY;
}
