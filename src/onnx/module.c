/* Loaded models as modules: initializers become parameters and buffers of a tree of modules, by
 * their names. */
#include "core/thread.h"
#include "onnx/program.h"
#include "onnx/rules.h"

#include <stdlib.h>

/* An initializer that belongs to a module. */
typedef struct bound {
    onnx_slot slot;
    const aril_module *module;
    int index; /* of aril_module_own */
} bound;

typedef struct loaded_module {
    onnx_model *model;
    bound *bound;
    size_t n_bound;
} loaded_module;

/* ---- running ---- */

/* Parameters may have been moved or replaced since the last run. */
static void look_up(const loaded_module *l)
{
    for (size_t i = 0; i < l->n_bound; i++)
        l->model->initial[l->bound[i].slot].tensor =
            aril_module_own(l->bound[i].module, l->bound[i].index);
}

/* Copies of other initializers are valid for one device. */
static void use_device(onnx_model *m, aril_device device)
{
    if (m->device.kind == device.kind && m->device.index == device.index) return;
    for (size_t i = 0; i < m->n_slots; i++) {
        aril_release(m->moved[i]);
        m->moved[i] = NULL;
    }
    m->device = device;
}

static void forward(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                    aril_tensor **out)
{
    loaded_module *l = aril_module_data(self);
    onnx_model *m = l->model;
    onnx_arena arena = { 0 };
    onnx_value *v = aril__onnx_alloc(&arena, (size_t)(n_in + m->n_out), sizeof *v);
    if (!v) return;
    for (int i = 0; i < n_in; i++)
        if (in[i]) v[i] = (onnx_value){ .kind = ONNX_TENSOR, .tensor = in[i] };
    look_up(l);
    if (n_in && in[0]) use_device(m, aril_device_of(in[0]));
    aril_status s = aril__onnx_run(m, &arena, true, (size_t)n_in, v, v + n_in);
    for (int i = 0; i < n_out && i < m->n_out; i++)
        out[i] = s == ARIL_OK && v[n_in + i].kind == ONNX_TENSOR ? v[n_in + i].tensor : NULL;
    if (s == ARIL_OK && n_out && !m->n_out)
        s = aril__fail(ARIL_ERR_ARG, "%s: the model has no outputs", m->path);
    if (s == ARIL_OK && n_out && !out[0])
        s = aril__fail(ARIL_ERR_UNSUPPORTED, "%s: output %s is not a tensor of numbers", m->path,
                       m->out[0].name);
    if (s < 0) aril__poison_all(n_out, out);
    aril__onnx_arena_free(&arena);
}

static void destroy(aril_module *self)
{
    loaded_module *l = aril_module_data(self);
    aril__onnx_model_free(l->model);
    free(l->bound);
}

static void describe(const aril_module *self, char *text, size_t size)
{
    const loaded_module *l = aril_module_data(self);
    if (l->model) snprintf(text, size, "%s", l->model->path);
}

static const char fixed_dtype[] =
    "a model of ONNX computes in the types that its file says; ARIL_AUTOCAST(ARIL_BF16) lets it "
    "compute in another";

static const aril_module_class loaded_class = { .type = "Onnx",
                                                .size = sizeof(loaded_module),
                                                .forward = forward,
                                                .describe = describe,
                                                .destroy = destroy,
                                                .inputs = -1,
                                                .outputs = -1,
                                                .fixed_dtype = fixed_dtype };

const onnx_model *aril__onnx_of_module(const aril_module *m)
{
    if (aril_module_type(m) != loaded_class.type) return NULL;
    const loaded_module *l = aril_module_data(m);
    look_up(l);
    return l->model;
}

static void no_forward(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                       aril_tensor **out)
{
    (void)self, (void)n_in, (void)in;
    aril__fail(ARIL_ERR_STATE, "a part of an ONNX model holds weights only; run the whole model");
    aril__poison_all(n_out, out);
}

static const aril_module_class part_class = { .type = "Weights",
                                              .forward = no_forward,
                                              .fixed_dtype = fixed_dtype };

/* ---- which initializers are parameters ---- */

/* Operators that take numbers which are not trained, from input `first` on. */
static const struct {
    const char *name;
    size_t first;
    bool by_value; /* a trace needs their values, as where they decide on sizes */
} steered[] = {
    { "BatchNormalization", 3, false },
    { "Resize", 1, true },
    { "Upsample", 1, true },
    { "Clip", 1, false },
    { "Pad", 1, true },
    { "QuantizeLinear", 1, false },
    { "DequantizeLinear", 1, false },
    { "Dropout", 1, true },
    { "Range", 0, true },
    { "QLinearConv", 0, false },
    { "QLinearMatMul", 0, false },
    { "NonMaxSuppression", 2, true },
    { "MelWeightMatrix", 0, true },
};
enum { STEERED = sizeof steered / sizeof *steered };

static void mark_steering(const onnx_body *body, bool *is_buffer)
{
    for (size_t i = 0; i < body->n_nodes; i++) {
        const onnx_node *n = &body->node[i];
        for (int k = 0; n->rule && k < STEERED; k++)
            for (size_t j = steered[k].first;
                 strcmp(steered[k].name, n->rule->name) == 0 && j < n->n_in; j++)
                is_buffer[n->in[j]] = true;
        for (size_t k = 0; k < n->n_bodies; k++) mark_steering(&n->body[k], is_buffer);
    }
}

/* Marks what decides on such values, also by way of other nodes. */
static void mark_values(const onnx_body *body, bool *by_value)
{
    for (size_t i = body->n_nodes; i-- > 0;) {
        const onnx_node *n = &body->node[i];
        bool any = false;
        for (size_t k = 0; k < n->n_out; k++) any |= n->out[k] && by_value[n->out[k]];
        for (size_t j = 0; j < n->n_in && any; j++) by_value[n->in[j]] = true;
        for (int k = 0; n->rule && k < STEERED; k++)
            for (size_t j = steered[k].first;
                 steered[k].by_value && strcmp(steered[k].name, n->rule->name) == 0 && j < n->n_in;
                 j++)
                by_value[n->in[j]] = true;
        for (size_t k = n->n_bodies; k-- > 0;) mark_values(&n->body[k], by_value);
    }
}

/* ---- the tree ---- */

typedef struct part {
    const char *name; /* "layer1.0" */
    size_t n;         /* its length */
    aril_module *module;
    int own; /* tensors so far */
} part;

typedef struct tree {
    part *at;
    size_t n, capacity;
} tree;

/* The module of the first n characters of a name; NULL with an error. */
static part *part_of(tree *t, const char *name, size_t n)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->at[i].n == n && strncmp(t->at[i].name, name, n) == 0) return &t->at[i];
    size_t dot = n;
    while (dot > 0 && name[dot - 1] != '.') dot--;
    part *outer = part_of(t, name, dot ? dot - 1 : 0);
    if (!outer) return NULL;
    char *last = aril__malloc(n - dot + 1);
    if (!last) {
        aril__fail(ARIL_ERR_MEMORY, "onnx: out of memory");
        return NULL;
    }
    memcpy(last, name + dot, n - dot);
    last[n - dot] = '\0';
    aril_module *made = aril_module_add(outer->module, last, aril_module_make(&part_class));
    free(last);
    if (!made) return NULL;
    if (t->n == t->capacity) {
        size_t cap = 2 * t->capacity + 8;
        part *grown = aril__realloc(t->at, cap * sizeof *grown);
        if (!grown) {
            aril__fail(ARIL_ERR_MEMORY, "onnx: out of memory");
            return NULL;
        }
        t->at = grown;
        t->capacity = cap;
    }
    t->at[t->n] = (part){ name, n, made, 0 };
    return &t->at[t->n++];
}

/* A name that can be a path: without empty parts. */
static bool is_path(const char *name)
{
    size_t n = strlen(name);
    return n && name[0] != '.' && name[n - 1] != '.' && !strstr(name, "..");
}

static aril_status bind(loaded_module *l, tree *t, onnx_slot slot, bool buffer)
{
    onnx_value *v = &l->model->initial[slot];
    const char *name = l->model->name[slot], *dot = strrchr(name, '.');
    if (!is_path(name)) return ARIL_OK; /* stays with the model */
    part *p = part_of(t, name, dot ? (size_t)(dot - name) : 0);
    if (!p) return aril__latest_status();
    const char *own = dot ? dot + 1 : name;
    aril_tensor *kept = buffer ? aril_module_buffer(p->module, own, v->tensor)
                               : aril_module_parameter(p->module, own, v->tensor);
    aril_status s = kept ? aril_tensor_status(kept) : aril__latest_status();
    if (s < 0) return s;
    aril_release(v->tensor);
    l->model->borrowed[slot] = true;
    l->bound[l->n_bound++] = (bound){ slot, p->module, p->own++ };
    return ARIL_OK;
}

static aril_status bind_all(aril_module *root, loaded_module *l)
{
    onnx_model *m = l->model;
    tree t = { .at = aril__malloc(8 * sizeof(part)), .capacity = 8 };
    bool *is_buffer = aril__calloc(2 * m->n_slots), *by_value = is_buffer + m->n_slots;
    l->bound = aril__calloc(m->n_slots * sizeof *l->bound);
    m->borrowed = aril__onnx_alloc(&m->arena, m->n_slots, 1);
    enum { FEW = 64 }; /* values that decide; more are weights */
    aril_status s = t.at && is_buffer && l->bound && m->borrowed
                        ? ARIL_OK
                        : aril__fail(ARIL_ERR_MEMORY, "onnx: out of memory");
    if (s == ARIL_OK) {
        t.at[t.n++] = (part){ "", 0, root, 0 };
        mark_steering(&m->main, is_buffer);
        mark_values(&m->main, by_value);
    }
    for (size_t i = 1; i < m->n_slots && s == ARIL_OK; i++) {
        const onnx_value *v = &m->initial[i];
        if (v->kind != ONNX_TENSOR || v->known) continue;
        if (by_value[i] && aril_numel(v->tensor) <= FEW) {
            m->initial[i].known = true;
            continue;
        }
        s = bind(l, &t, (onnx_slot)i, is_buffer[i] || aril_numel(v->tensor) <= 1);
    }
    free(is_buffer);
    free(t.at);
    return s;
}

aril_module *aril_module_load(const char *path, aril_load_opts opts)
{
    if (!path) {
        aril__fail(ARIL_ERR_ARG, "module_load: the path is NULL");
        return NULL;
    }
    onnx_model *m = aril__onnx_model_load(path, opts, true);
    aril_module *root = m ? aril_module_make(&loaded_class) : NULL;
    if (!root) {
        aril__onnx_model_free(m);
        return NULL;
    }
    loaded_module *l = aril_module_data(root);
    l->model = m;
    ARIL_SCOPE;
    aril_status s = bind_all(root, l);
    aril_module_ready(root);
    if (s == ARIL_OK && (opts.device.kind || opts.device.index))
        s = aril_module_to(root, opts.device);
    if (s == ARIL_OK) return root;
    aril_module_release(root);
    return NULL;
}
