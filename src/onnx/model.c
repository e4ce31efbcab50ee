/* Reading a model: names become slots, functions are expanded where they are called, and operators
 * are looked up, so that a run only follows lists. */
#include "core/device.h"
#include "formats/schemas.h"
#include "onnx/rules.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    MAX_NODES = 500000, /* with those of functions where they are called */
    MAX_DEPTH = 64,     /* of functions and bodies in each other */
    NEVER = -1,
};

/* The names of a graph or function, by open addressing. A body sees those of its outer graph. */
typedef struct name_slot {
    const char *name;
    onnx_slot slot;
    int64_t last; /* the last node that uses it; NEVER: an output */
} name_slot;

typedef struct names {
    struct names *outer;
    name_slot *at;
    size_t n, capacity;
    int64_t node; /* the one that is being read */
} names;

/* A call of a function whose body is being read: where its attributes come from. */
typedef struct calling {
    const struct calling *outer;
    const aril__message *function;
    const onnx_node *call;
} calling;

/* A function, found by its name. */
typedef struct function_row {
    const char *domain, *name, *overload;
    const aril__message *function;
    size_t index;
} function_row;

typedef struct loading {
    onnx_model *m;
    size_t cap_slots, n_nodes;
    int depth;
    struct missing *missing; /* operators without a rule, */
    size_t n_kinds, cap_kinds;
    int n_missing; /* and the nodes that have them */
    const calling *calls;
    const char *output;      /* of the main graph, instead of its own; NULL: its own */
    function_row *functions; /* sorted */
    size_t n_functions;
} loading;

static aril__cold aril_status no_memory(void)
{
    return aril__fail(ARIL_ERR_MEMORY, "onnx: out of memory for the model");
}

static aril__cold aril_status malformed(const loading *l, const aril__message *at, const char *what,
                                        const char *name)
{
    char place[64];
    return aril__fail(ARIL_ERR_FORMAT, "%s: at %s: %s%s%s", l->m->path,
                      aril__message_place(at, place, sizeof place), what, *name ? " " : "", name);
}

/* ---- names ---- */

static size_t hash_of(const char *text)
{
    size_t h = 1469598103934665603u;
    for (; *text; text++) h = (h ^ (unsigned char)*text) * 1099511628211u;
    return h ^ h >> 29;
}

static name_slot *find_here(const names *s, const char *name)
{
    if (!s->n) return NULL;
    for (size_t i = hash_of(name);; i++) {
        name_slot *e = &s->at[i & (s->capacity - 1)];
        if (!e->name) return NULL;
        if (strcmp(e->name, name) == 0) return e;
    }
}

static name_slot *put_name(names *s, const char *name)
{
    size_t i = hash_of(name);
    while (s->at[i & (s->capacity - 1)].name) i++;
    name_slot *e = &s->at[i & (s->capacity - 1)];
    e->name = name;
    return e;
}

static bool grow_names(names *s)
{
    if (2 * s->n < s->capacity) return true;
    names grown = { .capacity = s->capacity ? 2 * s->capacity : 64 };
    grown.at = aril__calloc(grown.capacity * sizeof *grown.at);
    if (!grown.at) return no_memory() == ARIL_OK;
    for (size_t i = 0; i < s->capacity; i++)
        if (s->at[i].name) *put_name(&grown, s->at[i].name) = s->at[i];
    free(s->at);
    s->at = grown.at;
    s->capacity = grown.capacity;
    return true;
}

/* The slot of a name that is used here; 0: there is none. */
static onnx_slot use(names *s, const char *name)
{
    for (; s; s = s->outer) {
        name_slot *e = find_here(s, name);
        if (!e) continue;
        if (e->last != NEVER) e->last = s->node;
        return e->slot;
    }
    return 0;
}

static onnx_slot new_slot(loading *l, const char *name)
{
    onnx_model *m = l->m;
    if (m->n_slots >= l->cap_slots) {
        size_t cap = 2 * l->cap_slots + 64;
        onnx_value *initial = aril__realloc(m->initial, cap * sizeof *initial);
        if (initial) m->initial = initial;
        const char **grown = initial ? aril__realloc(m->name, cap * sizeof *grown) : NULL;
        if (grown) m->name = grown;
        bool *tracked = grown ? aril__realloc(m->tracked, cap) : NULL;
        if (!tracked) return (no_memory(), 0);
        m->tracked = tracked;
        l->cap_slots = cap;
    }
    m->initial[m->n_slots] = (onnx_value){ 0 };
    m->name[m->n_slots] = name;
    m->tracked[m->n_slots] = false;
    return (onnx_slot)m->n_slots++;
}

/* A new name; 0 with an error if there is one already. */
static onnx_slot define(loading *l, names *s, const aril__message *at, const char *name)
{
    if (find_here(s, name)) {
        malformed(l, at, "two values have the name", name);
        return 0;
    }
    onnx_slot slot = grow_names(s) ? new_slot(l, name) : 0;
    if (!slot) return 0;
    name_slot *e = put_name(s, name);
    s->n++;
    e->slot = slot;
    e->last = s->node;
    return slot;
}

static void *alloc(loading *l, size_t n, size_t size)
{
    return aril__onnx_alloc(&l->m->arena, n, size);
}

/* ---- attributes ---- */

/* The attribute of a call that an attribute of a function's body refers to. */
static const aril__message *referred(const calling *c, const char *name)
{
    for (size_t i = 0; i < c->call->n_attributes; i++)
        if (strcmp(c->call->attribute[i].name, name) == 0) return c->call->attribute[i].value;
    for (size_t i = 0; i < aril__message_count(c->function, "attribute_proto"); i++) {
        const aril__message *a = aril__message_sub_at(c->function, "attribute_proto", i);
        if (strcmp(aril__message_text(a, "name"), name) == 0) return a;
    }
    return NULL;
}

static aril_status read_attributes(loading *l, const aril__message *node, onnx_node *to)
{
    size_t n = aril__message_count(node, "attribute");
    if (!(to->attribute = alloc(l, n, sizeof *to->attribute))) return ARIL_ERR_MEMORY;
    for (size_t i = 0; i < n; i++) {
        const aril__message *a = aril__message_sub_at(node, "attribute", i), *value = a;
        const char *name = aril__message_text(a, "ref_attr_name");
        if (*name) {
            if (!l->calls)
                return malformed(l, a, "a reference to an attribute outside a function:", name);
            value = referred(l->calls, name);
            if (!value) continue; /* not given: the operator's default */
        }
        to->attribute[to->n_attributes++] =
            (onnx_attribute){ aril__message_text(a, "name"), value };
    }
    return ARIL_OK;
}

/* ---- operators ---- */

static bool is_default_domain(const char *domain)
{
    return !*domain || strcmp(domain, "ai.onnx") == 0;
}

static bool same_domain(const char *a, const char *b)
{
    return strcmp(a, b) == 0 || (is_default_domain(a) && is_default_domain(b));
}

/* The version of a domain that a model or function imports; 0: it does not. */
static int version_of(const aril__message *imports, const char *domain)
{
    for (size_t i = 0; i < aril__message_count(imports, "opset_import"); i++) {
        const aril__message *set = aril__message_sub_at(imports, "opset_import", i);
        if (same_domain(aril__message_text(set, "domain"), domain))
            return (int)aril__message_int(set, "version");
    }
    return 0;
}

/* The operator sets of a model or function: of each domain one version, which exists. */
static aril_status check_imports(const loading *l, const aril__message *imports)
{
    enum { MOST = 100 };
    size_t n = aril__message_count(imports, "opset_import");
    if (n > MOST) return malformed(l, imports, "too many operator sets are imported", "");
    for (size_t i = 0; i < n; i++) {
        const aril__message *set = aril__message_sub_at(imports, "opset_import", i);
        const char *domain = aril__message_text(set, "domain");
        int64_t version = aril__message_int(set, "version");
        if (version < 1 || version > INT32_MAX) {
            char text[96];
            snprintf(text, sizeof text, "%" PRId64 " of the domain %.40s", version,
                     *domain ? domain : "ai.onnx");
            return malformed(l, set, "there is no operator set", text);
        }
        if (version_of(imports, domain) != version) /* skl2onnx writes the same one twice */
            return malformed(l, set, "two versions are imported of the domain",
                             *domain ? domain : "ai.onnx");
    }
    return ARIL_OK;
}

static int by_names(const function_row *a, const function_row *b)
{
    int order = strcmp(a->name, b->name);
    if (!order) order = strcmp(a->domain, b->domain);
    return order ? order : strcmp(a->overload, b->overload);
}

static int by_function(const void *a, const void *b)
{
    const function_row *x = a, *y = b;
    int order = by_names(x, y);
    return order ? order : x->index < y->index ? -1 : x->index > y->index;
}

static function_row row_of(const aril__message *m, const char *name)
{
    const char *domain = aril__message_text(m, "domain");
    return (function_row){ .domain = is_default_domain(domain) ? "" : domain,
                           .name = aril__message_text(m, name),
                           .overload = aril__message_text(m, "overload") };
}

static aril_status list_functions(loading *l)
{
    size_t n = aril__message_count(l->m->file, "functions");
    if (!(l->functions = alloc(l, n, sizeof *l->functions))) return ARIL_ERR_MEMORY;
    for (; l->n_functions < n; l->n_functions++) {
        const aril__message *f = aril__message_sub_at(l->m->file, "functions", l->n_functions);
        l->functions[l->n_functions] = row_of(f, "name");
        l->functions[l->n_functions].function = f;
        l->functions[l->n_functions].index = l->n_functions;
    }
    if (n) qsort(l->functions, n, sizeof *l->functions, by_function);
    return ARIL_OK;
}

/* The first function of that name in the file; NULL: there is none. */
static const aril__message *function_of(const loading *l, const aril__message *node)
{
    function_row wanted = row_of(node, "op_type");
    size_t low = 0, high = l->n_functions;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (by_names(&l->functions[middle], &wanted) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    bool found = low < l->n_functions && by_names(&l->functions[low], &wanted) == 0;
    return found ? l->functions[low].function : NULL;
}

/* An operator that there is no rule for. */
typedef struct missing {
    const aril__message *first; /* node */
    const char *domain, *name;
    int version, from, to; /* version 0: the domain is not imported; supported ones, or 0 */
    int nodes;
} missing;

static aril_status note_missing(loading *l, const aril__message *node, int version, int from,
                                int to)
{
    const char *domain = aril__message_text(node, "domain"),
               *name = aril__message_text(node, "op_type");
    if (is_default_domain(domain)) domain = "";
    l->n_missing++;
    for (size_t i = 0; i < l->n_kinds; i++) {
        missing *k = &l->missing[i];
        if (k->version == version && strcmp(k->name, name) == 0 && strcmp(k->domain, domain) == 0) {
            k->nodes++;
            return ARIL_OK;
        }
    }
    if (l->n_kinds == l->cap_kinds) {
        size_t more = 2 * l->cap_kinds + 8;
        missing *grown = aril__realloc(l->missing, more * sizeof *grown);
        if (!grown) return no_memory();
        l->missing = grown;
        l->cap_kinds = more;
    }
    l->missing[l->n_kinds++] = (missing){ node, domain, name, version, from, to, 1 };
    return ARIL_OK;
}

/* An operator, and unless `brief` where it is. */
static void print_missing(aril__bytes *to, const missing *k, bool brief)
{
    const char *name = aril__message_text(k->first, "name");
    char place[64];
    aril__bytes_print(to, "%s%s%s", k->domain, *k->domain ? "." : "", k->name);
    if (k->version) aril__bytes_print(to, "-%d", k->version);
    if (brief && k->nodes > 1) aril__bytes_print(to, " (%d nodes)", k->nodes);
    if (brief) return;
    aril__bytes_print(to, " (");
    if (k->nodes > 1) aril__bytes_print(to, "%d nodes, first ", k->nodes);
    if (k->nodes == 1 || !*name) aril__bytes_print(to, "node ");
    aril__bytes_print(to, "%.100s at %s", *name ? name : "without a name",
                      aril__message_place(k->first, place, sizeof place));
    if (!k->version) aril__bytes_print(to, ", the domain is not imported");
    if (k->version && k->from)
        aril__bytes_print(to, ", supported: versions %d to %d", k->from, k->to);
    aril__bytes_print(to, ")");
}

/* All operators in one error, with the places of as many as there is room for. */
static aril_status fail_missing(const loading *l)
{
    enum { ROOM = 450, MOST = 700 }; /* of the message, for what comes with places; for all */
    aril__bytes text = { 0 };
    for (size_t i = 0; i < l->n_kinds; i++) {
        if (i) aril__bytes_print(&text, ", ");
        if (text.n > MOST) {
            aril__bytes_print(&text, "and %zu more operators", l->n_kinds - i);
            break;
        }
        print_missing(&text, &l->missing[i], text.n > ROOM);
    }
    aril_status s = aril__fail(ARIL_ERR_UNSUPPORTED, "%s: %d %s not supported: %s", l->m->path,
                               l->n_missing, l->n_missing == 1 ? "node is" : "nodes are",
                               text.at ? (const char *)text.at : "");
    aril__bytes_free(&text);
    return s;
}

/* ---- graphs ---- */

static aril_status read_nodes(loading *l, names *s, const aril__message *graph,
                              const aril__message *imports, onnx_body *to);
static aril_status read_graph(loading *l, names *outer, const aril__message *graph,
                              const aril__message *imports, onnx_body *to);

static aril_status read_function(loading *l, const aril__message *function, onnx_node *call)
{
    names s = { 0 };
    calling here = { l->calls, function, call };
    const calling *before = l->calls;
    for (const calling *c = before; c; c = c->outer)
        if (c->function == function)
            return malformed(l, function,
                             "a function that calls itself:", aril__message_text(function, "name"));
    aril_status imports = check_imports(l, function);
    if (imports < 0) return imports;
    onnx_body *to = call->body = alloc(l, 1, sizeof *to);
    if (!to) return ARIL_ERR_MEMORY;
    size_t n = aril__message_count(function, "input");
    if (!(to->in = alloc(l, n, sizeof *to->in))) return ARIL_ERR_MEMORY;
    aril_status s_ = ARIL_OK;
    for (; to->n_in < n && s_ == ARIL_OK; to->n_in++) {
        to->in[to->n_in] =
            define(l, &s, function, aril__message_text_at(function, "input", to->n_in));
        if (!to->in[to->n_in]) s_ = aril__latest_status();
    }
    call->n_bodies = 1;
    to->name = aril__message_text(function, "name");
    l->calls = &here;
    if (s_ == ARIL_OK) s_ = read_nodes(l, &s, function, function, to);
    l->calls = before;
    free(s.at);
    return s_;
}

static aril_status read_bodies(loading *l, names *s, const aril__message *imports, onnx_node *to)
{
    size_t n = 0;
    for (size_t i = 0; i < to->n_attributes; i++)
        n += aril__message_has(to->attribute[i].value, "g");
    if (!n) return ARIL_OK;
    to->body = alloc(l, n, sizeof *to->body);
    to->body_name = alloc(l, n, sizeof *to->body_name);
    if (!to->body || !to->body_name) return ARIL_ERR_MEMORY;
    for (size_t i = 0; i < to->n_attributes; i++) {
        const aril__message *value = to->attribute[i].value;
        if (!aril__message_has(value, "g")) continue;
        to->body_name[to->n_bodies] = to->attribute[i].name;
        aril_status status =
            read_graph(l, s, aril__message_sub(value, "g"), imports, &to->body[to->n_bodies++]);
        if (status < 0) return status;
    }
    return ARIL_OK;
}

static aril_status read_operator(loading *l, names *s, const aril__message *node,
                                 const aril__message *imports, onnx_node *to)
{
    const char *domain = aril__message_text(node, "domain"),
               *name = aril__message_text(node, "op_type");
    int from = 0, until = 0;
    to->version = version_of(imports, domain);
    const aril__message *function = function_of(l, node);
    if (function) return read_function(l, function, to);
    if (is_default_domain(domain)) domain = "";
    to->rule = to->version ? aril__onnx_rule(domain, name, to->version, &from, &until) : NULL;
    aril_status status = to->rule ? aril__onnx_check_node(l->m, to)
                                  : note_missing(l, node, to->version, from, until);
    if (status < 0) return status;
    return read_bodies(l, s, imports, to);
}

/* Gradient names the value that it differentiates, which becomes its last input, and those with
 * respect to which it does. */
static aril_status read_gradient(loading *l, names *s, onnx_node *to)
{
    const aril__message *xs = NULL, *y = NULL;
    for (size_t i = 0; i < to->n_attributes; i++) {
        if (strcmp(to->attribute[i].name, "xs") == 0) xs = to->attribute[i].value;
        if (strcmp(to->attribute[i].name, "y") == 0) y = to->attribute[i].value;
    }
    size_t n = xs ? aril__message_count(xs, "strings") : 0;
    aril__slice name = y ? aril__message_bytes(y, "s") : (aril__slice){ "", 0 };
    char *text = alloc(l, name.n + 1, 1);
    if (!text) return ARIL_ERR_MEMORY;
    if (name.n) memcpy(text, name.at, name.n);
    to->in[to->n_in] = use(s, text);
    if (!to->in[to->n_in] || n > to->n_in)
        return malformed(l, to->message, "the value to differentiate is not computed:", text);
    to->n_in++;
    for (size_t i = 0; i < n; i++) l->m->tracked[to->in[i]] = true;
    return ARIL_OK;
}

static aril__cold aril_status missing_input(const loading *l, const aril__message *node,
                                            const char *input)
{
    char place[64];
    const char *name = aril__message_text(node, "name");
    return aril__fail(ARIL_ERR_FORMAT,
                      "%s: at %s: node %.100s%s%s: its input %s is not computed before it (it is "
                      "missing, or the graph has a cycle)",
                      l->m->path, aril__message_place(node, place, sizeof place), name,
                      *name ? " " : "", aril__message_text(node, "op_type"), input);
}

static aril_status read_node(loading *l, names *s, const aril__message *node,
                             const aril__message *imports, onnx_node *to)
{
    if (++l->n_nodes > MAX_NODES) return malformed(l, node, "too many nodes", "");
    to->message = node;
    aril_status status = read_attributes(l, node, to);
    if (status < 0) return status;
    size_t n_in = aril__message_count(node, "input"), n_out = aril__message_count(node, "output");
    if (!(to->in = alloc(l, n_in + 1, sizeof *to->in)) ||
        !(to->out = alloc(l, n_out, sizeof *to->out)))
        return ARIL_ERR_MEMORY;
    if (n_in > 100000 || n_out > 100000) return malformed(l, node, "too many inputs", "");
    for (; to->n_in < n_in; to->n_in++) {
        const char *name = aril__message_text_at(node, "input", to->n_in);
        if (!*name) continue;
        if (!(to->in[to->n_in] = use(s, name))) return missing_input(l, node, name);
    }
    if (strcmp(aril__message_text(node, "op_type"), "Gradient") == 0)
        status = read_gradient(l, s, to);
    if (status < 0) return status;
    if (++l->depth > MAX_DEPTH)
        return malformed(l, node, "functions or bodies are nested too deep", "");
    status = read_operator(l, s, node, imports, to);
    l->depth--;
    for (; to->n_out < n_out && status == ARIL_OK; to->n_out++) {
        const char *name = aril__message_text_at(node, "output", to->n_out);
        if (*name && !(to->out[to->n_out] = define(l, s, node, name)))
            status = aril__latest_status();
    }
    return status;
}

/* Lists for each node the values that are not used after it. */
static aril_status list_last_uses(loading *l, const names *s, onnx_body *to)
{
    for (int fill = 0; fill < 2; fill++) {
        for (size_t i = 0; i < s->capacity; i++) {
            const name_slot *e = &s->at[i];
            if (!e->name || e->last < 0 || l->m->initial[e->slot].kind) continue;
            onnx_node *n = &to->node[e->last];
            if (fill) n->last[n->n_last] = e->slot;
            n->n_last++;
        }
        for (size_t i = 0; i < to->n_nodes && !fill; i++) {
            to->node[i].last = alloc(l, to->node[i].n_last, sizeof(onnx_slot));
            if (!to->node[i].last) return ARIL_ERR_MEMORY;
            to->node[i].n_last = 0;
        }
    }
    return ARIL_OK;
}

static aril__cold aril_status no_value(const loading *l, const char *name)
{
    const char *near = aril_nearest(name, l->m->name + 1, (int)l->m->n_slots - 1);
    return aril__fail(ARIL_ERR_ARG, "%s: the model has no value '%s'%s%s%s", l->m->path, name,
                      near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

/* Nodes and outputs of a graph or function. */
static aril_status read_nodes(loading *l, names *s, const aril__message *graph,
                              const aril__message *imports, onnx_body *to)
{
    bool is_function = graph->type == &aril__onnx_FunctionProto;
    size_t n = aril__message_count(graph, "node");
    if (!(to->node = alloc(l, n, sizeof *to->node))) return ARIL_ERR_MEMORY;
    aril_status status = ARIL_OK;
    for (; to->n_nodes < n && status == ARIL_OK; to->n_nodes++) {
        s->node = (int64_t)to->n_nodes;
        status = read_node(l, s, aril__message_sub_at(graph, "node", to->n_nodes), imports,
                           &to->node[to->n_nodes]);
        if (l->output && !s->outer && !is_function && find_here(s, l->output)) n = to->n_nodes + 1;
    }
    bool cut = l->output && !s->outer && !is_function;
    size_t n_out = cut ? 1 : aril__message_count(graph, "output");
    if (status == ARIL_OK && !(to->out = alloc(l, n_out, sizeof *to->out))) return ARIL_ERR_MEMORY;
    for (; to->n_out < n_out && status == ARIL_OK; to->n_out++) {
        const char *name =
            is_function ? aril__message_text_at(graph, "output", to->n_out)
            : cut       ? l->output
                  : aril__message_text(aril__message_sub_at(graph, "output", to->n_out), "name");
        name_slot *e = find_here(s, name);
        onnx_slot slot = e ? e->slot : use(s, name);
        if (!slot && cut) return no_value(l, name);
        if (!slot) return malformed(l, graph, "an output is not computed:", name);
        if (e) e->last = NEVER;
        to->out[to->n_out] = slot;
    }
    return status == ARIL_OK && n ? list_last_uses(l, s, to) : status;
}

/* An initializer's value, with a reference. */
static aril_status set_initial(loading *l, onnx_slot slot, onnx_value v)
{
    if (v.kind == ONNX_TENSOR) {
        aril_keep(v.tensor);
        v.known = !(l->m->parameters && aril_dtype_is_float(aril_dtype_of(v.tensor)));
    }
    l->m->initial[slot] = v;
    return ARIL_OK;
}

/* Where only types matter, a large initializer is zeros that need no memory; false: it is small. */
static bool outline(const loading *l, const aril__message *t, onnx_value *v)
{
    enum { LARGE = 1024 };
    aril_shape shape = { 0 };
    aril_dtype dtype;
    size_t n = aril__message_count(t, "dims");
    int64_t all = 1;
    bool sparse = t->type == &aril__onnx_SparseTensorProto;
    const aril__message *values = sparse ? aril__message_sub(t, "values") : t;
    if (!l->m->outline || n > ARIL_MAX_DIMS ||
        !aril__onnx_dtype(aril__message_int(values, "data_type"), &dtype))
        return false;
    for (size_t d = 0; d < n; d++) {
        int64_t size = aril__message_int_at(t, "dims", d);
        if (size < 1 || __builtin_mul_overflow(all, size, &all)) return false;
        shape.dim[shape.ndim++] = size;
    }
    if (all < LARGE || all > INT64_MAX / 16) return false;
    aril_tensor *zero = aril_expand(aril_zeros(ARIL_SHAPE(), dtype, aril_cpu()), shape);
    *v = (onnx_value){ .kind = ONNX_TENSOR, .tensor = zero };
    return true;
}

static aril_status read_initializers(loading *l, names *s, const aril__message *graph)
{
    enum { REST = 32 << 20 }; /* bytes of weights that are in memory twice, at most */
    int64_t copied = 0;
    static const char *const fields[] = { "initializer", "sparse_initializer" };
    for (int sparse = 0; sparse < 2; sparse++)
        for (size_t i = 0; i < aril__message_count(graph, fields[sparse]); i++) {
            ARIL_SCOPE;
            const aril__message *t = aril__message_sub_at(graph, fields[sparse], i);
            const char *name =
                aril__message_text(sparse ? aril__message_sub(t, "values") : t, "name");
            onnx_value v;
            name_slot *input = find_here(s, name);
            onnx_slot slot = input ? input->slot : define(l, s, t, name);
            if (!slot) return aril__latest_status();
            if (l->m->initial[slot].kind)
                return malformed(l, t, "two initializers have the name", name);
            bool large = outline(l, t, &v);
            aril_status status = large ? aril_tensor_status(v.tensor)
                                 : sparse
                                     ? aril__onnx_sparse(&l->m->arena, t, l->m->folder, &v)
                                     : aril__onnx_initializer(&l->m->arena, t, &l->m->files, &v);
            if (status < 0) return aril__fail_about(status, l->m->path);
            if ((status = set_initial(l, slot, v)) < 0) return status;
            l->m->initial[slot].known &= !large;
            if (large) continue;
            if (v.kind == ONNX_TENSOR) copied += aril_numel(v.tensor) * 4;
            if (copied < REST) continue;
            aril__message_rest(l->m->file);
            aril__onnx_files_rest(&l->m->files, false);
            copied = 0;
        }
    return ARIL_OK;
}

static aril_status read_inputs(loading *l, names *s, const aril__message *graph, onnx_body *to)
{
    size_t n = aril__message_count(graph, "input");
    if (!(to->in = alloc(l, n, sizeof *to->in))) return ARIL_ERR_MEMORY;
    for (; to->n_in < n; to->n_in++) {
        const aril__message *input = aril__message_sub_at(graph, "input", to->n_in);
        to->in[to->n_in] = define(l, s, input, aril__message_text(input, "name"));
        if (!to->in[to->n_in]) return aril__latest_status();
    }
    return ARIL_OK;
}

static aril_status read_graph(loading *l, names *outer, const aril__message *graph,
                              const aril__message *imports, onnx_body *to)
{
    names s = { .outer = outer };
    to->name = aril__message_text(graph, "name");
    aril_status status = read_inputs(l, &s, graph, to);
    if (status == ARIL_OK) status = read_initializers(l, &s, graph);
    if (status == ARIL_OK) status = read_nodes(l, &s, graph, imports, to);
    free(s.at);
    return status;
}

/* ---- the model ---- */

/* The only output is a value inside. Its type may be in the file; otherwise it is a tensor. */
static aril_status list_cut(loading *l, const aril__message *graph)
{
    onnx_model *m = l->m;
    static const char *const fields[] = { "output", "value_info" };
    const aril__message *type = NULL;
    for (int k = 0; k < 2 && !type; k++)
        for (size_t i = 0; i < aril__message_count(graph, fields[k]) && !type; i++) {
            const aril__message *info = aril__message_sub_at(graph, fields[k], i);
            if (strcmp(aril__message_text(info, "name"), l->output) == 0)
                type = aril__message_sub(info, "type");
        }
    if (!type) {
        if (!(m->cut = aril__message_new(&aril__onnx_TypeProto))) return aril__latest_status();
        aril__message_set_sub(m->cut, "tensor_type");
        type = m->cut;
    }
    m->out[m->n_out++] = (onnx_port){ m->name[m->main.out[0]], type, m->main.out[0], false };
    return ARIL_OK;
}

static void note_uses(const onnx_body *body, bool *used)
{
    for (size_t i = 0; i < body->n_nodes; i++) {
        const onnx_node *n = &body->node[i];
        for (size_t k = 0; k < n->n_in; k++) used[n->in[k]] = true;
        for (size_t k = 0; k < n->n_bodies; k++) note_uses(&n->body[k], used);
    }
    for (size_t i = 0; i < body->n_out; i++) used[body->out[i]] = true;
}

/* Drops the initializers of the nodes that were left out. */
static aril_status drop_unused(loading *l)
{
    onnx_model *m = l->m;
    bool *used = alloc(l, m->n_slots, sizeof *used);
    if (!used) return ARIL_ERR_MEMORY;
    note_uses(&m->main, used);
    for (size_t i = 1; i < m->n_slots; i++) {
        if (used[i]) continue;
        if (m->initial[i].kind == ONNX_TENSOR) aril_release(m->initial[i].tensor);
        m->initial[i] = (onnx_value){ 0 };
    }
    return ARIL_OK;
}

/* Inputs without an initializer first: the others need not be given. */
static aril_status list_ports(loading *l, const aril__message *graph)
{
    onnx_model *m = l->m;
    size_t n_in = m->main.n_in, n_out = m->main.n_out;
    m->in = alloc(l, n_in, sizeof *m->in);
    m->out = alloc(l, n_out, sizeof *m->out);
    if (!m->in || !m->out) return ARIL_ERR_MEMORY;
    for (int optional = 0; optional < 2; optional++)
        for (size_t i = 0; i < n_in; i++) {
            const aril__message *input = aril__message_sub_at(graph, "input", i);
            onnx_slot slot = m->main.in[i];
            if ((m->initial[slot].kind != 0) != optional) continue;
            m->in[m->n_in++] =
                (onnx_port){ m->name[slot], aril__message_sub(input, "type"), slot, optional != 0 };
            m->n_required += !optional;
        }
    if (l->output) return list_cut(l, graph);
    for (; (size_t)m->n_out < n_out; m->n_out++) {
        const aril__message *output = aril__message_sub_at(graph, "output", (size_t)m->n_out);
        m->out[m->n_out] =
            (onnx_port){ aril__message_text(output, "name"), aril__message_sub(output, "type"),
                         m->main.out[m->n_out], false };
    }
    return ARIL_OK;
}

/* Older files than version 3 have no operator sets; newer ones may mean something else. */
static aril_status check_version(const loading *l)
{
    enum { FIRST = 3, LAST = 14 };
    int64_t version = aril__message_int(l->m->file, "ir_version");
    char text[96];
    if (version >= FIRST && version <= LAST) return ARIL_OK;
    snprintf(text, sizeof text, "%" PRId64 ", expected %d to %d", version, FIRST, LAST);
    return malformed(l, l->m->file, "the version of the file (ir_version) is", text);
}

static aril_status list_metadata(loading *l)
{
    const aril__message *file = l->m->file;
    size_t n = aril__message_count(file, "metadata_props");
    const char **key = alloc(l, n, sizeof *key), **value = alloc(l, n, sizeof *value);
    if (!key || !value) return ARIL_ERR_MEMORY;
    l->m->metadata = (aril_metadata){ 0, key, value };
    for (size_t i = 0; i < n && i < INT32_MAX; i++) {
        const aril__message *entry = aril__message_sub_at(file, "metadata_props", i);
        key[i] = aril__message_text(entry, "key");
        value[i] = aril__message_text(entry, "value");
        l->m->metadata.n++;
    }
    return ARIL_OK;
}

static aril_status read_model(onnx_model *m, const char *output)
{
    loading l = { .m = m, .output = output };
    const aril__message *graph = aril__message_sub(m->file, "graph");
    aril_status status = ARIL_OK;
    new_slot(&l, ""); /* 0 is none */
    if (!m->n_slots) return ARIL_ERR_MEMORY;
    if (!aril__message_has(m->file, "graph"))
        status = malformed(&l, m->file, "the file has no graph: is it an ONNX model?", "");
    if (status == ARIL_OK) status = check_version(&l);
    if (status == ARIL_OK) status = check_imports(&l, m->file);
    if (status == ARIL_OK) status = list_functions(&l);
    if (status == ARIL_OK) status = read_graph(&l, NULL, graph, m->file, &m->main);
    if (status == ARIL_OK && l.n_missing) status = fail_missing(&l);
    free(l.missing);
    if (status == ARIL_OK) status = list_ports(&l, graph);
    if (status == ARIL_OK) status = aril__onnx_name_nodes(m);
    m->is_cut = output != NULL;
    if (status == ARIL_OK && output) status = drop_unused(&l);
    if (status == ARIL_OK) status = list_metadata(&l);
    if (status == ARIL_OK) status = aril__message_check(m->file);
    if (status == ARIL_OK) status = aril__onnx_files_check(&m->files);
    aril__onnx_files_rest(&m->files, true);
    aril__message_rest(m->file);
    if (status == ARIL_OK && !(m->moved = alloc(&l, m->n_slots, sizeof *m->moved)))
        status = ARIL_ERR_MEMORY;
    return status;
}

static onnx_model *new_model(aril__message *file, const char *path, aril_device device,
                             bool parameters)
{
    bool exists = file && aril__device_find(device);
    onnx_model *m = exists ? aril__calloc(sizeof *m) : NULL;
    if (m) {
        m->file = file;
        m->device = device;
        m->parameters = parameters;
        m->path = aril__strdup(path);
    }
    if (m && m->path) return m;
    if (exists) no_memory();
    if (m) m->file = NULL;
    aril__message_free(file);
    aril__onnx_model_free(m);
    return NULL;
}

bool aril__onnx_declared_size(const aril__message *dim, int64_t *size)
{
    *size = aril__message_int(dim, "dim_value");
    return aril__message_has(dim, "dim_value") && *size >= 0;
}

/* The number of samples that the first input declares; 0: it leaves it open. */
static int64_t declared_batch(const onnx_model *m)
{
    const aril__message *type =
        m->n_required ? aril__message_sub(m->in[0].type, "tensor_type") : NULL;
    const aril__message *shape = type ? aril__message_sub(type, "shape") : NULL;
    if (!shape || !aril__message_count(shape, "dim")) return 0;
    int64_t size;
    return aril__onnx_declared_size(aril__message_sub_at(shape, "dim", 0), &size) ? size : 0;
}

static onnx_model *load(const char *path, aril_load_opts opts, bool parameters, bool outline)
{
    onnx_model *m =
        new_model(aril__message_load(&aril__onnx_ModelProto, path), path, opts.device, parameters);
    if (!m) return NULL;
    m->outline = outline;
    const char *slash = strrchr(path, '/');
    m->folder = aril__strdup(slash ? path : ".");
    if (m->folder && slash) m->folder[slash == path ? 1 : slash - path] = '\0';
    m->files = (onnx_files){ .folder = m->folder, .in_place = !parameters };
    if (m->folder && read_model(m, opts.output) == ARIL_OK) {
        if (opts.open_batch) m->batch = declared_batch(m);
        return m;
    }
    if (!m->folder) no_memory();
    aril__onnx_model_free(m);
    return NULL;
}

onnx_model *aril__onnx_model_load(const char *path, aril_load_opts opts, bool parameters)
{
    return load(path, opts, parameters, false);
}

onnx_model *aril__onnx_model_outline(const char *path, const char *output)
{
    return load(path, (aril_load_opts){ .output = output }, false, true);
}

onnx_model *aril__onnx_model_read(const void *data, size_t size, const char *name,
                                  aril_device device)
{
    aril__message *file = aril__message_read(&aril__onnx_ModelProto, data, size,
                                             (aril__message_opts){ .name = name });
    onnx_model *m = new_model(file, name, device, false);
    if (m && read_model(m, NULL) == ARIL_OK) return m;
    aril__onnx_model_free(m);
    return NULL;
}

void aril__onnx_model_free(onnx_model *m)
{
    if (!m) return;
    for (size_t i = 0; i < m->n_slots; i++) {
        bool own = !m->borrowed || !m->borrowed[i];
        if (m->initial[i].kind == ONNX_TENSOR && own) aril_release(m->initial[i].tensor);
        if (m->moved && m->moved[i]) aril_release(m->moved[i]);
    }
    aril__onnx_arena_free(&m->arena);
    free(m->initial);
    free(m->tracked);
    free(m->name);
    free(m->path);
    free(m->folder);
    aril__onnx_files_free(&m->files);
    aril__message_free(m->cut);
    aril__message_free(m->file);
    free(m);
}
