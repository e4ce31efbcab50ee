/* The file of a model with another operator set, other sizes and other names: the graph stays as it
 * is, where a trace would write what the model computes. */
#include "onnx/rewrite.h"

#include "onnx/export.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- sizes ---- */

/* What becomes of a named size: a number, or another name. */
typedef struct sized {
    const char *name;
    int64_t value; /* negative: it has the name */
    const char *renamed;
} sized;

typedef struct sizing {
    rewriting *r;
    sized *at;
    size_t n;
} sizing;

static const sized *find_size(const sizing *s, const char *name)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->at[i].name, name) == 0) return &s->at[i];
    return NULL;
}

static aril_status note_size(sizing *s, const char *input, sized now)
{
    const sized *old = find_size(s, now.name);
    if (old && old->value >= 0 && now.value >= 0 && old->value != now.value)
        return aril__fail(ARIL_ERR_SHAPE,
                          "%s: input %s: %s is %" PRId64 " here and %" PRId64 " before",
                          s->r->to->what, input, now.name, now.value, old->value);
    if (!old) s->at[s->n++] = now;
    return ARIL_OK;
}

/* One size of an input. */
static aril_status set_size(sizing *s, const char *input, aril__message *dim, int64_t given)
{
    const onnx_rewriting *to = s->r->to;
    const char *name = aril__message_text(dim, "dim_param"), *named = NULL;
    bool fixed = aril__message_has(dim, "dim_value");
    int64_t k = -2 - given, declared = aril__message_int(dim, "dim_value");
    if (given < 0 && k >= 0 && k < to->n_size_names) named = to->size_names[k];
    if (fixed && given != declared)
        return aril__fail(ARIL_ERR_UNSUPPORTED,
                          "%s: input %s: the file declares the size %" PRId64 ", and its nodes may "
                          "depend on it",
                          to->what, input, declared);
    if (fixed) return ARIL_OK;
    if (*name) return note_size(s, input, (sized){ name, given, named ? named : name });
    if (given >= 0)
        aril__message_set_int(dim, "dim_value", given);
    else if (named)
        aril__message_set_text(dim, "dim_param", named);
    return ARIL_OK;
}

static aril__message *shape_of(aril__message *type)
{
    if (!aril__message_has(type, "tensor_type")) return NULL;
    aril__message *tensor = aril__message_set_sub(type, "tensor_type");
    return aril__message_has(tensor, "shape") ? aril__message_set_sub(tensor, "shape") : NULL;
}

/* Replaces named sizes in a type. */
static void resize_type(const sizing *s, aril__message *type)
{
    static const char *const inner[] = { "sequence_type", "optional_type" };
    aril__message *shape = shape_of(type);
    for (size_t d = 0; shape && d < aril__message_count(shape, "dim"); d++) {
        aril__message *dim = aril__message_sub_at(shape, "dim", d);
        const sized *to = find_size(s, aril__message_text(dim, "dim_param"));
        if (!to) continue;
        if (to->value >= 0)
            aril__message_set_int(dim, "dim_value", to->value);
        else
            aril__message_set_text(dim, "dim_param", to->renamed);
    }
    for (int k = 0; k < 2; k++)
        if (aril__message_has(type, inner[k]))
            resize_type(s,
                        aril__message_set_sub(aril__message_set_sub(type, inner[k]), "elem_type"));
}

typedef void each_graph(void *ctx, aril__message *graph);

/* Calls fn for a graph and all graphs inside. */
static void for_graphs(aril__message *graph, each_graph *fn, void *ctx)
{
    fn(ctx, graph);
    for (size_t i = 0; i < aril__message_count(graph, "node"); i++) {
        aril__message *node = aril__message_sub_at(graph, "node", i);
        for (size_t k = 0; k < aril__message_count(node, "attribute"); k++) {
            aril__message *a = aril__message_sub_at(node, "attribute", k);
            if (aril__message_has(a, "g")) for_graphs(aril__message_set_sub(a, "g"), fn, ctx);
        }
    }
}

static void resize_graph(void *ctx, aril__message *graph)
{
    static const char *const fields[] = { "input", "output", "value_info" };
    for (int k = 0; k < 3; k++)
        for (size_t i = 0; i < aril__message_count(graph, fields[k]); i++)
            resize_type(ctx,
                        aril__message_set_sub(aril__message_sub_at(graph, fields[k], i), "type"));
}

static aril_status set_sizes(rewriting *r, aril__message *graph)
{
    onnx_model *m = r->m;
    size_t most = 0;
    for (int i = 0; i < m->n_required; i++) {
        aril__message *shape = shape_of((aril__message *)(uintptr_t)m->in[i].type);
        most += shape ? aril__message_count(shape, "dim") : 0;
    }
    sizing s = { .r = r, .at = aril__onnx_alloc(&m->arena, most, sizeof *s.at) };
    aril_status status = s.at ? ARIL_OK : ARIL_ERR_MEMORY;
    for (int i = 0; i < m->n_required && i < r->to->n_sizes && status == ARIL_OK; i++) {
        aril__message *shape = shape_of((aril__message *)(uintptr_t)m->in[i].type);
        const aril_shape *given = &r->to->sizes[i];
        if (!shape) continue;
        if (aril__message_count(shape, "dim") != (size_t)given->ndim)
            return aril__fail(ARIL_ERR_SHAPE, "%s: input %s: expected %zu sizes, got %d",
                              r->to->what, m->in[i].name, aril__message_count(shape, "dim"),
                              given->ndim);
        for (int d = 0; d < given->ndim && status == ARIL_OK; d++)
            status = set_size(&s, m->in[i].name, aril__message_sub_at(shape, "dim", (size_t)d),
                              given->dim[d]);
    }
    if (status == ARIL_OK) for_graphs(graph, resize_graph, &s);
    return status;
}

/* Outputs have the sizes that follow from those of the inputs. */
static void set_output_sizes(rewriting *r)
{
    for (int i = 0; i < r->m->n_out; i++) {
        const onnx_port *port = &r->m->out[i];
        const onnx_type *t = &r->types.of[port->slot];
        aril__message *shape = shape_of((aril__message *)(uintptr_t)port->type);
        if (!shape || t->missing || t->kind != ONNX_TENSOR ||
            aril__message_count(shape, "dim") != (size_t)t->ndim)
            continue;
        for (int d = 0; d < t->ndim; d++) {
            aril__message *dim = aril__message_sub_at(shape, "dim", (size_t)d);
            if (!aril__message_has(dim, "dim_value") && t->dim[d] >= 0)
                aril__message_set_int(dim, "dim_value", t->dim[d]);
        }
    }
}

/* ---- names ---- */

typedef struct renamed {
    const char *from, *to;
} renamed;

typedef struct renaming {
    const renamed *at;
    int n;
} renaming;

static const char *new_name_of(const renaming *r, const char *name)
{
    for (int i = 0; i < r->n; i++)
        if (strcmp(r->at[i].from, name) == 0) return r->at[i].to;
    return NULL;
}

static void rename_list(const renaming *r, aril__message *node, const char *list)
{
    size_t n = aril__message_count(node, list);
    bool any = false;
    for (size_t i = 0; i < n; i++)
        any |= new_name_of(r, aril__message_text_at(node, list, i)) != NULL;
    const char **name = any ? aril__calloc(n * sizeof *name) : NULL;
    if (any && !name) aril__fail(ARIL_ERR_MEMORY, "onnx: out of memory");
    for (size_t i = 0; i < n && name; i++) {
        const char *old = aril__message_text_at(node, list, i), *to = new_name_of(r, old);
        name[i] = to ? to : old;
    }
    if (name) aril__message_clear(node, list);
    for (size_t i = 0; i < n && name; i++) aril__message_add_text(node, list, name[i]);
    free(name);
}

static void rename_graph(void *ctx, aril__message *graph)
{
    static const char *const fields[] = { "input", "output", "value_info", "initializer" };
    for (int k = 0; k < 4; k++)
        for (size_t i = 0; i < aril__message_count(graph, fields[k]); i++) {
            aril__message *info = aril__message_sub_at(graph, fields[k], i);
            const char *to = new_name_of(ctx, aril__message_text(info, "name"));
            if (to) aril__message_set_text(info, "name", to);
        }
    for (size_t i = 0; i < aril__message_count(graph, "node"); i++) {
        aril__message *node = aril__message_sub_at(graph, "node", i);
        rename_list(ctx, node, "input");
        rename_list(ctx, node, "output");
    }
}

static aril_status note_name(const rewriting *r, renamed *at, int *n, const char *from,
                             const char *to)
{
    if (strcmp(from, to) == 0) return ARIL_OK;
    for (int i = 0; i < *n; i++)
        if (strcmp(at[i].from, from) == 0 || strcmp(at[i].to, to) == 0)
            return aril__fail(ARIL_ERR_ARG, "%s: two names for one value, or one for two: %s",
                              r->to->what, to);
    for (size_t i = 1; i < r->m->n_slots; i++)
        if (strcmp(r->m->name[i], to) == 0)
            return aril__fail(ARIL_ERR_ARG, "%s: the model has another value named %s", r->to->what,
                              to);
    at[(*n)++] = (renamed){ from, to };
    return ARIL_OK;
}

static aril_status set_names(rewriting *r, aril__message *graph)
{
    const onnx_model *m = r->m;
    const onnx_rewriting *to = r->to;
    renamed *at = aril__onnx_alloc(&r->m->arena, (size_t)(m->n_required + m->n_out), sizeof *at);
    if (!at) return ARIL_ERR_MEMORY;
    aril_status s = ARIL_OK;
    int n = 0;
    for (int i = 0; i < m->n_required && to->inputs && s == ARIL_OK; i++)
        s = note_name(r, at, &n, m->in[i].name, to->inputs[i]);
    for (int i = 0; i < m->n_out && to->outputs && s == ARIL_OK; i++)
        s = note_name(r, at, &n, m->out[i].name, to->outputs[i]);
    if (s == ARIL_OK && n) for_graphs(graph, rename_graph, &(renaming){ at, n });
    return s;
}

/* A prefix that no name of the model begins with. */
static aril_status choose_prefix(rewriting *r)
{
    enum { MOST = 8 };
    static const char start[] = "aril_";
    char *prefix = aril__onnx_alloc(&r->m->arena, sizeof start + MOST, 1);
    if (!prefix) return ARIL_ERR_MEMORY;
    memcpy(prefix, start, sizeof start);
    for (size_t i = 1; i < r->m->n_slots; i++) {
        size_t n = strlen(prefix);
        if (strncmp(r->m->name[i], prefix, n) != 0) continue;
        if (n == sizeof start - 1 + MOST)
            return aril__fail(ARIL_ERR_UNSUPPORTED, "%s: all names that could be new are taken",
                              r->to->what);
        prefix[n] = '_';
        i = 0; /* all of them again */
    }
    r->prefix = prefix;
    return ARIL_OK;
}

/* ---- tensors ---- */

/* The initializers of a model by their names; of equal names that of the outermost graph first. */
typedef struct initial {
    const char *name;
    onnx_slot slot;
} initial;

static int by_name(const void *a, const void *b)
{
    const initial *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : x->slot < y->slot ? -1 : x->slot > y->slot;
}

static onnx_slot slot_of(const initial *at, size_t n, const char *name)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (strcmp(at[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && strcmp(at[low].name, name) == 0 ? at[low].slot : 0;
}

static bool is_external(const aril__message *t)
{
    return aril__message_int(t, "data_location") == 1;
}

/* Refers to the memory of a tensor, which the arena keeps. */
static aril_status fill(rewriting *r, aril__message *to, aril_tensor *t)
{
    static const char *const data[] = {
        "dims",       "float_data",  "int32_data",  "string_data",
        "int64_data", "double_data", "uint64_data", "external_data"
    };
    ARIL_SCOPE;
    t = aril_contiguous(aril_to(aril_detach(t), aril_cpu()));
    aril_status s = aril_tensor_status(t);
    if (s < 0) return s;
    if (!aril__onnx_keep(&r->m->arena, t)) return ARIL_ERR_MEMORY;
    for (size_t k = 0; k < sizeof data / sizeof *data; k++) aril__message_clear(to, data[k]);
    aril__message_clear(to, "data_location");
    aril__export_tensor(to, t, NULL);
    return ARIL_OK;
}

/* The tensors of a model for the initializers of a file. */
typedef struct filling {
    rewriting *r;
    const onnx_model *from;
    const initial *at; /* sorted */
    size_t n, borrowed;
    bool external; /* some data stay in another file */
    aril_status status;
} filling;

/* Whether a name stands for one initializer only, so that a graph inside can be told by it. */
static bool is_unique(const filling *f, onnx_slot slot, const char *name)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n; i++) n += strcmp(f->at[i].name, name) == 0;
    return n == 1 && slot;
}

static void fill_graph(void *ctx, aril__message *graph)
{
    filling *f = ctx;
    bool inner = graph != aril__message_sub(f->r->m->file, "graph");
    for (size_t i = 0; i < aril__message_count(graph, "initializer"); i++) {
        aril__message *t = aril__message_sub_at(graph, "initializer", i);
        const char *name = aril__message_text(t, "name");
        onnx_slot slot = slot_of(f->at, f->n, name);
        if (inner && !is_unique(f, slot, name)) slot = 0;
        bool own = slot && f->from->borrowed && f->from->borrowed[slot];
        f->borrowed -= own;
        if (slot && (own || is_external(t)) && f->status == ARIL_OK)
            f->status = fill(f->r, t, f->from->initial[slot].tensor);
        f->external |= is_external(t);
    }
    for (size_t i = 0; i < aril__message_count(graph, "node"); i++) {
        const aril__message *node = aril__message_sub_at(graph, "node", i);
        for (size_t k = 0; k < aril__message_count(node, "attribute"); k++)
            f->external |=
                is_external(aril__message_sub(aril__message_sub_at(node, "attribute", k), "t"));
    }
}

/* Tensors that modules own may have changed; those in files of their own become part of this one. */
static aril_status set_tensors(rewriting *r, aril__message *graph)
{
    const onnx_model *from = r->from;
    initial *at = aril__onnx_alloc(&r->m->arena, from->n_slots, sizeof *at);
    if (!at) return ARIL_ERR_MEMORY;
    filling f = { .r = r, .from = from, .at = at, .status = ARIL_OK };
    for (size_t i = 1; i < from->n_slots; i++) {
        if (from->initial[i].kind != ONNX_TENSOR) continue;
        at[f.n++] = (initial){ from->name[i], (onnx_slot)i };
        f.borrowed += from->borrowed && from->borrowed[i];
    }
    if (f.n) qsort(at, f.n, sizeof *at, by_name);
    for_graphs(graph, fill_graph, &f);
    if (f.status == ARIL_OK && (f.borrowed || f.external))
        return aril__fail(ARIL_ERR_UNSUPPORTED,
                          "%s: graphs inside have parameters of the same name", r->to->what);
    return f.status;
}

/* ---- the file ---- */

static bool is_initializer(const aril__message *graph, const char *name)
{
    for (size_t i = 0; i < aril__message_count(graph, "initializer"); i++)
        if (strcmp(aril__message_text(aril__message_sub_at(graph, "initializer", i), "name"),
                   name) == 0)
            return true;
    return false;
}

/* In the first versions of the format initializers had to be inputs. */
static void set_version(rewriting *r, aril__message *graph)
{
    enum { FUNCTIONS = 8, OVERLOADS = 10, SEPARATE = 4 };
    aril__message *file = r->m->file;
    int64_t ir = r->to->ir;
    size_t functions = aril__message_count(file, "functions");
    if (functions && ir < FUNCTIONS) ir = FUNCTIONS;
    for (size_t i = 0; i < functions; i++)
        if (*aril__message_text(aril__message_sub_at(file, "functions", i), "overload") &&
            ir < OVERLOADS)
            ir = OVERLOADS;
    for (size_t i = aril__message_count(graph, "input");
         i-- > 0 && aril__message_int(file, "ir_version") < SEPARATE;)
        if (is_initializer(graph,
                           aril__message_text(aril__message_sub_at(graph, "input", i), "name")))
            aril__message_remove(graph, "input", i);
    aril__message_set_int(file, "ir_version", ir);
    aril__message_set_text(file, "producer_name", "aril");
    aril__message_set_text(file, "producer_version", aril_version());
}

/* The versions of operator sets whose changes are known. */
static aril_status check_source(const rewriting *r)
{
    enum { OLDEST = 7 };
    for (size_t i = 0; i < aril__message_count(r->m->file, "opset_import"); i++) {
        const aril__message *set = aril__message_sub_at(r->m->file, "opset_import", i);
        const char *domain = aril__message_text(set, "domain");
        int64_t version = aril__message_int(set, "version");
        if ((!*domain || strcmp(domain, "ai.onnx") == 0) && version < OLDEST)
            return aril__fail(ARIL_ERR_UNSUPPORTED,
                              "%s: its operator set is %" PRId64 ", before %d", r->to->what,
                              version, OLDEST);
    }
    return ARIL_OK;
}

static aril_status rewrite(rewriting *r)
{
    aril__message *graph = aril__message_set_sub(r->m->file, "graph");
    aril_status s = check_source(r);
    if (s == ARIL_OK) s = choose_prefix(r);
    if (s == ARIL_OK) s = set_sizes(r, graph);
    if (s == ARIL_OK) s = aril__onnx_infer(r->m, &r->types);
    if (s == ARIL_OK) s = aril__onnx_rewrite_nodes(r);
    if (s != ARIL_OK) return s;
    set_output_sizes(r);
    s = set_tensors(r, graph);
    if (s == ARIL_OK) s = set_names(r, graph);
    if (s == ARIL_OK) set_version(r, graph);
    return s == ARIL_OK && !aril_ok() ? aril__latest_status() : s;
}

aril_status aril__onnx_rewrite(const onnx_model *m, const onnx_rewriting *to, onnx_model **of,
                               aril__message **file)
{
    *of = NULL;
    if (m->is_cut)
        return aril__fail(ARIL_ERR_UNSUPPORTED,
                          "%s: a part of a model cannot be written node by node", to->what);
    rewriting r = { .to = to, .from = m, .m = aril__onnx_model_outline(m->path, NULL) };
    if (!r.m) return aril__latest_status();
    aril_status s = r.m->n_slots == m->n_slots
                        ? rewrite(&r)
                        : aril__fail(ARIL_ERR_IO, "%s: %s has changed", to->what, m->path);
    free(r.visited);
    if (s == ARIL_OK) {
        *of = r.m;
        *file = r.m->file;
        return ARIL_OK;
    }
    aril__onnx_model_free(r.m);
    return s;
}
