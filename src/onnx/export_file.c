/* The finished model in the form of its file: names, and messages. */
#include "core/dtype.h"
#include "formats/schemas.h"
#include "onnx/export.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is not used ---- */

static void keep_used(export_body *b);

static bool use_inputs(export_node *n)
{
    bool used = false;
    for (int i = 0; i < n->n_out; i++) used |= n->out[i]->used;
    for (int i = 0; i < n->n_in && used; i++)
        if (n->in[i]) n->in[i]->used = true;
    for (int i = 0; i < n->n_attrs && used; i++)
        if (n->attr[i].kind == EXPORT_GRAPH) keep_used(n->attr[i].body);
    return used;
}

static void forget_uses(export_body *b)
{
    for (export_node *n = b->first; n; n = n->next) {
        for (int i = 0; i < n->n_out; i++) n->out[i]->used = false;
        for (int i = 0; i < n->n_attrs; i++)
            if (n->attr[i].kind == EXPORT_GRAPH) forget_uses(n->attr[i].body);
    }
}

static export_node *reversed(export_node *n)
{
    export_node *before = NULL;
    while (n) {
        export_node *next = n->next;
        n->next = before;
        before = n;
        n = next;
    }
    return before;
}

/* Removes the nodes that no output depends on. */
static void keep_used(export_body *b)
{
    for (int i = 0; i < b->n_out; i++) b->out[i].value->used = true;
    export_node *kept = NULL, *next;
    for (export_node *n = reversed(b->first); n; n = next) {
        next = n->next;
        if (!use_inputs(n)) continue;
        n->next = kept;
        kept = n;
    }
    b->first = kept;
}

/* ---- names ---- */

typedef struct used_name {
    const char *name;
    int n; /* names with numbers up to this are taken */
} used_name;

typedef struct names {
    export_model *m;
    used_name *at; /* a hash table */
    size_t n, slots;
} names;

static size_t slot_of(const names *s, const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char *c = name; *c; c++) hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
    size_t i = hash % s->slots;
    while (s->at[i].name && strcmp(s->at[i].name, name) != 0) i = (i + 1) % s->slots;
    return i;
}

static bool make_room(names *s)
{
    if (2 * s->n < s->slots) return true;
    names more = { .m = s->m, .slots = 4 * s->slots + 1024 };
    more.at = aril__onnx_alloc(&s->m->arena, more.slots, sizeof *more.at);
    if (!more.at) return false;
    for (size_t i = 0; i < s->slots; i++)
        if (s->at[i].name) more.at[slot_of(&more, s->at[i].name)] = s->at[i];
    more.n = s->n;
    *s = more;
    return true;
}

/* The name, or with a number if it is taken. */
static const char *unique(names *s, const char *name)
{
    if (!make_room(s)) return name;
    size_t at = slot_of(s, name);
    used_name *taken = s->at[at].name ? &s->at[at] : NULL;
    while (s->at[at].name) {
        const char *other = aril__export_text(s->m, "%s_%d", taken->name, ++taken->n);
        if (!*other) return name; /* out of memory */
        at = slot_of(s, other);
        name = other;
    }
    s->at[at].name = name;
    s->n++;
    return name;
}

/* "layer1.0" as "/layer1/0/". */
static const char *path_of(export_model *m, const char *scope)
{
    if (!scope || !*scope) return "";
    char *text = (char *)(uintptr_t)aril__export_text(m, "/%s/", scope);
    for (char *c = text; *c; c++)
        if (*c == '.') *c = '/';
    return text;
}

/* Whether the last part of "/layer1/Conv_2/" is the type, maybe numbered. */
static bool ends_with_type(const char *path, const char *type)
{
    size_t n = strlen(path), length = strlen(type);
    if (n < 2) return false;
    const char *last = path + n - 1;
    while (last > path && last[-1] != '/') last--;
    return strncmp(last, type, length) == 0 && (last[length] == '/' || last[length] == '_');
}

static void name_nodes(names *s, export_body *b)
{
    for (int i = 0; i < b->n_in; i++)
        if (!b->in[i].value->name) b->in[i].value->name = unique(s, "arg");
    for (export_node *n = b->first; n; n = n->next) {
        const char *path = path_of(s->m, n->scope);
        bool named = ends_with_type(path, n->type); /* that of the model that it was loaded from */
        const char *end = named ? path + strlen(path) - 1 : path;
        n->name = unique(s, named ? aril__export_text(s->m, "%.*s", (int)(end - path), path)
                                  : aril__export_text(s->m, "%s%s", path, n->type));
        for (int i = 0; i < n->n_out; i++)
            if (!n->out[i]->name)
                n->out[i]->name = unique(s, aril__export_text(s->m, "%s_output_%d", n->name, i));
        for (int i = 0; i < n->n_attrs; i++)
            if (n->attr[i].kind == EXPORT_GRAPH) name_nodes(s, n->attr[i].body);
    }
}

static void name_all(export_model *m)
{
    names s = { .m = m };
    export_body *b = &m->main;
    for (int i = 0; i < b->n_in; i++) b->in[i].value->name = unique(&s, b->in[i].value->name);
    for (int i = 0; i < b->n_out; i++) b->out[i].value->name = unique(&s, b->out[i].value->name);
    for (export_weight *w = m->weights; w; w = w->next) {
        bool input = false; /* the initial value of an input has its name */
        for (int i = 0; i < b->n_in && !input; i++) input = b->in[i].value == w->value;
        if (!input) w->value->name = unique(&s, w->value->name);
    }
    name_nodes(&s, b);
}

/* ---- messages ---- */

void aril__export_tensor(aril__message *to, const aril_tensor *t, const char *name)
{
    for (int d = 0; d < t->ndim; d++) aril__message_add_int(to, "dims", t->dim[d]);
    aril__message_set_int(to, "data_type", aril__onnx_dtype_number((aril_dtype)t->dtype));
    if (name) aril__message_set_text(to, "name", name);
    aril__message_refer_bytes(to, "raw_data", t->numel ? aril__ptr(t) : "",
                              aril__dtype_bytes((aril_dtype)t->dtype, t->numel));
}

static void write_body(aril__message *to, const export_body *b);

static void write_attr(aril__message *to, const export_attr *a)
{
    /* The kinds, and ONNX's numbers for them. */
    static const int type[] = {
        [EXPORT_INT] = 2,   [EXPORT_INTS] = 7,   [EXPORT_FLOAT] = 1, [EXPORT_TEXT] = 3,
        [EXPORT_TEXTS] = 8, [EXPORT_TENSOR] = 4, [EXPORT_GRAPH] = 5
    };
    aril__message_set_text(to, "name", a->name);
    aril__message_set_int(to, "type", type[a->kind]);
    switch (a->kind) {
    case EXPORT_INT: aril__message_set_int(to, "i", a->i); break;
    case EXPORT_INTS: aril__message_set_ints(to, "ints", a->ints, (size_t)a->n); break;
    case EXPORT_FLOAT: aril__message_set_number(to, "f", a->f); break;
    case EXPORT_TEXT: aril__message_set_bytes(to, "s", a->text, strlen(a->text)); break;
    case EXPORT_TEXTS: aril__message_add_bytes(to, "strings", a->text, strlen(a->text)); break;
    case EXPORT_TENSOR: aril__export_tensor(aril__message_set_sub(to, "t"), a->tensor, NULL); break;
    case EXPORT_GRAPH: write_body(aril__message_set_sub(to, "g"), a->body); break;
    }
}

/* Whether no result is optional: bodies have as many, and so say the operators. */
static bool lists_all(const export_node *n)
{
    static const char *const all[] = { "TopK", "Split" };
    bool is = n->n_attrs && n->attr[0].kind == EXPORT_GRAPH;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) is |= strcmp(n->type, all[i]) == 0;
    return is;
}

static void write_node(aril__message *to, const export_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        aril__message_add_text(to, "input", n->in[i] ? n->in[i]->name : "");
    bool all = lists_all(n);
    int n_out = n->n_out; /* results at the end that are not used are not listed */
    while (n_out > 1 && !n->out[n_out - 1]->used && !all) n_out--;
    for (int i = 0; i < n_out; i++)
        aril__message_add_text(to, "output",
                               n->out[i]->used || i == 0 || all ? n->out[i]->name : "");
    aril__message_set_text(to, "name", n->name);
    aril__message_set_text(to, "op_type", n->type);
    for (int i = 0; i < n->n_attrs; i++)
        write_attr(aril__message_add_sub(to, "attribute"), &n->attr[i]);
}

static void write_port(aril__message *to, const export_port *p)
{
    aril__message_set_text(to, "name", p->value->name);
    aril__message *type = aril__message_set_sub(aril__message_set_sub(to, "type"), "tensor_type");
    aril__message_set_int(type, "elem_type", aril__onnx_dtype_number(p->dtype));
    aril__message *shape = aril__message_set_sub(type, "shape");
    for (int d = 0; d < p->ndim; d++) {
        aril__message *dim = aril__message_add_sub(shape, "dim");
        if (p->dim[d] >= 0)
            aril__message_set_int(dim, "dim_value", p->dim[d]);
        else if (p->dim_name[d])
            aril__message_set_text(dim, "dim_param", p->dim_name[d]);
    }
}

static bool is_output(const export_body *b, const export_value *x)
{
    bool is = false;
    for (int i = 0; i < b->n_out; i++) is |= b->out[i].value == x;
    return is;
}

/* The types of values inside, which a reader of the file would have to infer. */
static void write_types(aril__message *to, const export_body *b)
{
    for (const export_node *n = b->first; n; n = n->next)
        for (int i = 0; i < n->n_out; i++)
            if (n->out[i]->type && n->out[i]->used && !is_output(b, n->out[i]))
                write_port(aril__message_add_sub(to, "value_info"), n->out[i]->type);
}

static void write_body(aril__message *to, const export_body *b)
{
    for (const export_node *n = b->first; n; n = n->next)
        write_node(aril__message_add_sub(to, "node"), n);
    aril__message_set_text(to, "name", b->name);
    for (int i = 0; i < b->n_in; i++) write_port(aril__message_add_sub(to, "input"), &b->in[i]);
    for (int i = 0; i < b->n_out; i++) write_port(aril__message_add_sub(to, "output"), &b->out[i]);
    write_types(to, b);
}

int aril__export_ir_version(int opset)
{
    static const struct {
        int opset, ir;
    } first[] = {
        { 28, 14 }, { 25, 13 }, { 24, 12 }, { 23, 11 }, { 21, 10 }, { 19, 9 }, { 15, 8 }
    };
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        if (opset >= first[i].opset) return first[i].ir;
    return 7;
}

/* What a model says of itself, from the file that it was loaded from. */
static void keep_metadata(aril__message *to, const aril__message *from)
{
    const char *doc = aril__message_text(from, "doc_string"),
               *domain = aril__message_text(from, "domain"),
               *about = aril__message_text(aril__message_sub(from, "graph"), "doc_string");
    if (*doc) aril__message_set_text(to, "doc_string", doc);
    if (*domain) aril__message_set_text(to, "domain", domain);
    if (*about) aril__message_set_text(aril__message_set_sub(to, "graph"), "doc_string", about);
    if (aril__message_has(from, "model_version"))
        aril__message_set_int(to, "model_version", aril__message_int(from, "model_version"));
    for (size_t i = 0; i < aril__message_count(from, "metadata_props"); i++) {
        const aril__message *e = aril__message_sub_at(from, "metadata_props", i);
        aril__message *kept = aril__message_add_sub(to, "metadata_props");
        aril__message_set_text(kept, "key", aril__message_text(e, "key"));
        aril__message_set_text(kept, "value", aril__message_text(e, "value"));
    }
}

static bool all_there(const export_body *b)
{
    bool all = true;
    for (int i = 0; i < b->n_in; i++) all = all && b->in[i].value;
    for (int i = 0; i < b->n_out; i++) all = all && b->out[i].value;
    return all;
}

aril__message *aril__export_message(export_model *m, const char *name)
{
    aril__message *model = m->status == ARIL_OK ? aril__message_new(&aril__onnx_ModelProto) : NULL;
    if (!model) return NULL;
    if (!all_there(&m->main)) {
        m->status = aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", m->what);
        aril__message_free(model);
        return NULL;
    }
    forget_uses(&m->main);
    for (export_weight *w = m->weights; w; w = w->next) w->value->used = false;
    for (int i = 0; i < m->main.n_in; i++) m->main.in[i].value->used = true;
    keep_used(&m->main);
    name_all(m);
    m->main.name = name;
    aril__message_set_int(model, "ir_version", aril__export_ir_version(m->opset));
    aril__message_set_text(model, "producer_name", "aril");
    aril__message_set_text(model, "producer_version", aril_version());
    aril__message *graph = aril__message_set_sub(model, "graph");
    write_body(graph, &m->main);
    if (m->source) keep_metadata(model, m->source);
    for (export_weight *w = m->weights; w; w = w->next)
        if (w->value->used)
            aril__export_tensor(aril__message_add_sub(graph, "initializer"), w->tensor,
                                w->value->name);
    aril__message *set = aril__message_add_sub(model, "opset_import");
    aril__message_set_text(set, "domain", "");
    aril__message_set_int(set, "version", m->opset);
    return model;
}
