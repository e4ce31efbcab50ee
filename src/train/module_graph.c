/* The graph of a module for TensorBoard: records one run as for gradients; hooks tell which module
 * created which node. */
#include "aril/nn.h"
#include "aril/create.h"
#include "aril/tensorboard.h"
#include "autograd/node.h"
#include "core/error.h"
#include "core/memory.h"
#include "nn/module.h"

#include <stdlib.h>
#include <string.h>

typedef struct known {
    const aril__node *node;
    char *name;
    const char *op;
    aril_shape shape;
} known;

/* A module being watched. */
typedef struct watched {
    struct view *view;
    aril_module *module;
    char *scope; /* "Sequential/Conv2d.0" */
    int hooks[2];
} watched;

typedef struct view {
    aril_module *root;
    const aril_named *parameters;
    known *at; /* in the order of discovery */
    int n, capacity;
    watched *modules;
    int n_modules, n_watched;
    const watched *running[64]; /* from the root down */
    int depth;
    bool failed;
} view;

static known *find(const view *v, const aril__node *node)
{
    for (int i = v->n - 1; i >= 0; i--)
        if (v->at[i].node == node) return &v->at[i];
    return NULL;
}

static bool taken(const view *v, const char *name)
{
    for (int i = 0; i < v->n; i++)
        if (strcmp(v->at[i].name, name) == 0) return true;
    return false;
}

/* Records a node under a unique name. */
static known *note(view *v, const aril__node *node, const char *scope, const char *op)
{
    size_t capacity = strlen(scope) + strlen(op) + 16;
    char *name = aril__malloc(capacity);
    if (v->n == v->capacity) {
        int wider = v->capacity ? 2 * v->capacity : 64;
        known *at = aril__realloc(v->at, (size_t)wider * sizeof *at);
        if (at) v->at = at, v->capacity = wider;
    }
    if (!name || v->n == v->capacity) {
        free(name);
        v->failed = true;
        return NULL;
    }
    snprintf(name, capacity, "%s%s%s", scope, *scope ? "/" : "", op);
    for (int i = 1; taken(v, name); i++)
        snprintf(name, capacity, "%s%s%s_%d", scope, *scope ? "/" : "", op, i);
    v->at[v->n] = (known){ .node = node, .name = name, .op = op };
    return &v->at[v->n++];
}

/* "layer1.0.weight" of Conv2d "layer1.0" belongs to that module's scope. */
static void note_leaf(view *v, const aril__node *node, const char *scope)
{
    for (int i = 0; i < v->parameters->n; i++) {
        if (v->parameters->at[i]->node != node) continue;
        const char *dot = strrchr(v->parameters->name[i], '.');
        known *k = note(v, node, scope, dot ? dot + 1 : v->parameters->name[i]);
        if (k) {
            k->op = "Parameter";
            k->shape = aril_shape_of(v->parameters->at[i]);
        }
        return;
    }
    known *k = note(v, node, scope, "constant");
    if (k) k->op = "Constant";
}

/* Assigns a node and its unknown predecessors to a scope: inputs first. Chains may be long, so an
 * explicit stack replaces recursion. */
static void claim(view *v, const aril__node *last, const char *scope)
{
    const aril__node **stack = NULL;
    size_t n = 0, capacity = 0;
    for (const aril__node *next = last; next && !v->failed;) {
        const aril__node *unknown = NULL;
        for (int i = 0; i < next->n_in && !unknown; i++)
            if (next->edge[i].node && !find(v, next->edge[i].node)) unknown = next->edge[i].node;
        if (find(v, next)) {
            next = n ? stack[--n] : NULL;
        } else if (unknown) {
            if (n == capacity) {
                size_t wider = capacity ? 2 * capacity : 64;
                const aril__node **at = aril__realloc(stack, wider * sizeof *at);
                if (!at) {
                    v->failed = true;
                    break;
                }
                stack = at;
                capacity = wider;
            }
            stack[n++] = next;
            next = unknown;
        } else {
            if (next->op)
                note(v, next, scope, next->op->name);
            else
                note_leaf(v, next, scope);
        }
    }
    free(stack);
}

static const char *scope_now(const view *v)
{
    return v->depth && v->depth <= 64 ? v->running[v->depth - 1]->scope : "";
}

static void before(aril_module *m, int n_in, aril_tensor **in, void *ctx)
{
    (void)m;
    const watched *w = ctx;
    view *v = w->view;
    for (int i = 0; i < n_in; i++)
        if (in[i] && in[i]->node) claim(v, in[i]->node, scope_now(v));
    if (v->depth < 64) v->running[v->depth] = w;
    v->depth++;
}

static void after(aril_module *m, int n_in, aril_tensor *const *in, int n_out, aril_tensor **out,
                  void *ctx)
{
    (void)m, (void)n_in, (void)in;
    const watched *w = ctx;
    view *v = w->view;
    for (int i = 0; i < n_out; i++) {
        if (!out[i] || !out[i]->node) continue;
        claim(v, out[i]->node, w->scope);
        known *k = find(v, out[i]->node);
        if (k && !k->shape.ndim) k->shape = aril_shape_of(out[i]);
    }
    v->depth--;
}

/* "layer1.0" -> "Net/Sequential.layer1/Conv2d.0" */
static char *scope_of(view *v, const char *path)
{
    char *scope = aril__malloc(4096);
    if (!scope) return NULL;
    int n = snprintf(scope, 4096, "%s", aril_module_type(v->root));
    for (const char *p = path; *p && n < 4000;) {
        size_t length = strcspn(p, ".");
        aril_module *m = aril__find_module(v->root, path, (size_t)(p + length - path));
        n += snprintf(scope + n, 4096 - (size_t)n, "/%s.%.*s", m ? aril_module_type(m) : "",
                      (int)length, p);
        p += length + (p[length] == '.');
    }
    return scope;
}

static void count(aril_module *m, const char *path, void *ctx)
{
    (void)m, (void)path;
    (*(int *)ctx)++;
}

static void watch(aril_module *m, const char *path, void *ctx)
{
    view *v = ctx;
    for (int i = 0; i < v->n_watched; i++)
        if (v->modules[i].module == m) return; /* registered twice: shown at its first position */
    if (v->n_watched == v->n_modules) return;
    watched *w = &v->modules[v->n_watched++];
    *w = (watched){ .view = v, .module = m, .scope = scope_of(v, path) };
    if (!w->scope) {
        v->failed = true;
        return;
    }
    w->hooks[0] = aril_module_hook_before(m, before, w);
    w->hooks[1] = aril_module_hook_after(m, after, w);
    if (w->hooks[0] < 0 || w->hooks[1] < 0) v->failed = true;
}

/* Writes the nodes in TensorBoard's format. */
static aril_status write_graph(aril_tensorboard *tb, const view *v, const char *result)
{
    int edges = 0;
    for (int i = 0; i < v->n; i++) edges += v->at[i].node->n_in;
    aril_tensorboard_node *node = aril__calloc(((size_t)v->n + 1) * sizeof *node);
    const char **input = aril__calloc(((size_t)edges + 1) * sizeof *input);
    aril_status s = ARIL_OK;
    if (!node || !input) s = aril__fail(ARIL_ERR_MEMORY, "tensorboard_module: out of memory");
    for (int i = 0, at = 0; s == ARIL_OK && i < v->n; i++) {
        const known *k = &v->at[i];
        node[i] = (aril_tensorboard_node){
            .name = k->name, .op = k->op, .input = input + at, .shape = k->shape
        };
        for (int e = 0; e < k->node->n_in; e++) {
            const known *from = k->node->edge[e].node ? find(v, k->node->edge[e].node) : NULL;
            if (from) input[at++] = from->name, node[i].n_inputs++;
        }
    }
    if (s == ARIL_OK) {
        node[v->n] = (aril_tensorboard_node){
            .name = "output", .op = "Output", .input = &result, .n_inputs = result != NULL
        };
        s = aril_tensorboard_graph(tb, node, v->n + 1);
    }
    free(node);
    free(input);
    return s;
}

aril_status aril_tensorboard_module(aril_tensorboard *tb, aril_module *m, aril_shape x)
{
    static const char what[] = "tensorboard_module";
    ARIL_SCOPE;
    ARIL_ENABLE_GRAD;
    if (!tb || !m)
        return aril__fail(ARIL_ERR_ARG, "%s: expected a log and a module, got NULL", what);
    if (x.ndim < 0 || x.ndim >= ARIL_MAX_DIMS)
        return aril__fail(ARIL_ERR_SHAPE, "%s: expected an input of 0 to %d dimensions, got %d",
                          what, ARIL_MAX_DIMS - 1, x.ndim);
    aril_status s = aril_module_build(m, x);
    if (s < 0) return s;
    view v = { .root = m, .parameters = aril_parameters(m) };
    if (!v.parameters) return aril_error_code();
    aril_shape batch = { .ndim = x.ndim + 1, .dim = { 1 } };
    memcpy(batch.dim + 1, x.dim, (size_t)x.ndim * sizeof *x.dim);
    aril_tensor *in =
        aril_zeros(batch, ARIL_F32,
                   v.parameters->n ? aril_device_of(v.parameters->at[0]) : aril_cpu());
    aril_set_requires_grad(in, true);
    known *k = in->node ? note(&v, in->node, "", "input") : NULL;
    if (k) {
        k->op = "Input";
        k->shape = batch;
    }
    aril_module_visit(m, count, &v.n_modules);
    v.modules = aril__calloc(((size_t)v.n_modules + 1) * sizeof *v.modules);
    if (!v.modules) v.failed = true;
    bool training = aril_module_training(m);
    aril_module_eval(m);
    if (!v.failed) aril_module_visit(m, watch, &v);
    aril_tensor *out = v.failed ? NULL : aril_forward(m, in);
    if (training) aril_module_train(m);
    if (v.failed)
        s = aril__fail(ARIL_ERR_MEMORY, "%s: out of memory for the graph", what);
    else if (aril_tensor_status(out) < 0)
        s = aril_tensor_status(out);
    const known *last = s == ARIL_OK && out->node ? find(&v, out->node) : NULL;
    if (s == ARIL_OK) s = write_graph(tb, &v, last ? last->name : NULL);
    for (int i = 0; i < v.n_watched; i++) {
        for (int h = 0; h < 2; h++)
            if (v.modules[i].hooks[h] > 0)
                aril_module_unhook(v.modules[i].module, v.modules[i].hooks[h]);
        free(v.modules[i].scope);
    }
    for (int i = 0; i < v.n; i++) free(v.at[i].name);
    free(v.at);
    free(v.modules);
    return s;
}
