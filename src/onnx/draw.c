/* Drawings of models in Graphviz's language: the nodes of the file, large models by modules. */
#include "core/dtype.h"
#include "formats/schemas.h"
#include "onnx/program.h"
#include "onnx/rules.h"

#include <inttypes.h>
#include <stdlib.h>

/* A model with more nodes than that is drawn by modules, in as many boxes if possible. */
enum { SMALL = 60, DEEPEST = 8 };

typedef struct drawing {
    const onnx_model *m;
    const onnx_types *types; /* NULL: not inferred */
    FILE *to;
    int depth;      /* modules below that level are one box; 0: each node is one */
    uint32_t *box;  /* of each node of the main graph: the first node of its box; NONE: not drawn */
    uint32_t *from; /* of each slot: the node that makes it; NONE */
    bool *read;     /* of each slot: some node reads it */
    uint64_t *edges; /* of boxes, or of initializers and boxes, that were drawn */
    size_t n_edges, cap_edges;
} drawing;

#define NONE UINT32_MAX

/* ---- text ---- */

static void put(const drawing *d, const char *text)
{
    for (int n = 0; *text && n < 80; text++, n++) {
        if (*text == '"' || *text == '\\') fputc('\\', d->to);
        fputc((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text, d->to);
    }
}

static void put_shape(const drawing *d, const int64_t *dim, int ndim)
{
    for (int k = 0; k < ndim; k++) {
        const char *name = dim[k] < 0 && d->types ? aril__onnx_size_name(d->types, dim[k]) : NULL;
        fputs(k ? "," : "[", d->to);
        if (dim[k] >= 0)
            fprintf(d->to, "%" PRId64, dim[k]);
        else
            put(d, name ? name : "?");
    }
    fputs(ndim ? "]" : "[]", d->to);
}

/* "\nf32[1,3]" of a value, or nothing where its type is not known. */
static void put_type(const drawing *d, onnx_slot slot)
{
    aril_dtype dtype;
    const onnx_value *v = &d->m->initial[slot];
    const onnx_type *t = d->types ? &d->types->of[slot] : NULL;
    if (v->kind == ONNX_TENSOR) {
        aril_shape shape = aril_shape_of(v->tensor);
        fprintf(d->to, "\\n%s", aril_dtype_name(aril_dtype_of(v->tensor)));
        put_shape(d, shape.dim, shape.ndim);
    } else if (t && t->kind == ONNX_TENSOR && !t->missing && aril__onnx_dtype(t->elem, &dtype)) {
        fprintf(d->to, "\\n%s", aril_dtype_name(dtype));
        put_shape(d, t->dim, t->ndim);
    }
}

/* ---- boxes ---- */

/* The length of the first `depth` parts of a path, all but the node's own. */
static size_t prefix(const char *path, int depth)
{
    const char *last = strrchr(path, '.'), *end = path;
    for (int i = 0; i < depth && last && end < last; i++) {
        if (i) end++;
        end += strcspn(end, ".");
    }
    return last && end > last ? (size_t)(last - path) : (size_t)(end - path);
}

/* Constants are parts of the nodes that use them. */
static bool is_drawn(const onnx_node *n)
{
    return !n->rule || strcmp(n->rule->name, "Constant") != 0;
}

/* Gives each node a box: itself, or the first node of its module. Outside modules, neighbours share
 * one. Returns the number of boxes. */
static uint32_t find_boxes(drawing *d)
{
    const onnx_body *b = &d->m->main;
    uint32_t n = 0, before = NONE;
    for (uint32_t i = 0; i < b->n_nodes; i++) {
        d->box[i] = NONE;
        if (!is_drawn(&b->node[i])) continue;
        d->box[i] = i;
        size_t length = d->depth ? prefix(b->node[i].path, d->depth) : 0;
        for (uint32_t k = i; k-- > 0 && d->depth && length && d->box[i] == i;) {
            const char *other = b->node[k].path;
            if (d->box[k] != NONE && prefix(other, d->depth) == length &&
                strncmp(other, b->node[i].path, length) == 0)
                d->box[i] = d->box[k];
        }
        if (d->depth && !length && before != NONE && !prefix(b->node[before].path, d->depth))
            d->box[i] = d->box[before];
        n += d->box[i] == i;
        before = i;
    }
    return n;
}

static void choose_depth(drawing *d)
{
    d->depth = 0;
    if (find_boxes(d) <= SMALL) return;
    for (d->depth = DEEPEST; d->depth > 1; d->depth--)
        if (find_boxes(d) <= SMALL) return;
    find_boxes(d);
}

/* "\nthen_branch: 12 nodes" for each graph of a node. */
static void put_bodies(const drawing *d, const onnx_node *n)
{
    for (size_t k = 0; k < n->n_bodies; k++) {
        size_t count = n->body[k].n_nodes;
        fputs("\\n", d->to);
        put(d, n->rule && n->body_name[k] ? n->body_name[k] : n->body[k].name);
        fprintf(d->to, ": %zu node%s", count, count == 1 ? "" : "s");
    }
}

static void put_box(const drawing *d, uint32_t i)
{
    const onnx_node *n = &d->m->main.node[i];
    uint32_t count = 0, last = i;
    for (uint32_t k = i; k < d->m->main.n_nodes; k++)
        if (d->box[k] == i) count++, last = k;
    fprintf(d->to, "  n%u [label=\"", i);
    size_t length = d->depth ? prefix(n->path, d->depth) : 0;
    const char *name = aril__message_text(n->message, "name");
    char *module = length ? strndup(n->path, length) : NULL;
    if (count > 1) {
        put(d, module ? module : "outside modules");
        fprintf(d->to, "\\n%u nodes", count);
    } else {
        put(d, aril__message_text(n->message, "op_type"));
        fputs(*name ? "\\n" : "", d->to);
        put(d, name);
        put_bodies(d, n);
    }
    free(module);
    n = &d->m->main.node[last];
    if (n->n_out && n->out[0]) put_type(d, n->out[0]);
    fputs("\"", d->to);
    if (count > 1)
        fprintf(d->to, ", fillcolor=\"%s\"", length ? "#dcecd9" : "#f7f7f7");
    else if (n->n_bodies)
        fputs(", shape=diamond, fillcolor=\"#fdf0c8\"", d->to);
    fputs("];\n", d->to);
}

/* ---- edges ---- */

/* Whether an edge is new. */
static bool note_edge(drawing *d, uint32_t from, uint32_t to)
{
    uint64_t edge = (uint64_t)from << 32 | to;
    for (size_t i = 0; i < d->n_edges; i++)
        if (d->edges[i] == edge) return false;
    if (d->n_edges == d->cap_edges) {
        size_t cap = 2 * d->cap_edges + 64;
        uint64_t *grown = aril__realloc(d->edges, cap * sizeof *grown);
        if (!grown) return true;
        d->edges = grown;
        d->cap_edges = cap;
    }
    d->edges[d->n_edges++] = edge;
    return true;
}

static void put_edge(drawing *d, onnx_slot slot, uint32_t box)
{
    uint32_t from = d->from[slot];
    bool weight = from == NONE && d->m->initial[slot].kind;
    if (from != NONE && (d->box[from] == NONE || d->box[from] == box)) return;
    if (weight && d->depth) return; /* a part of its module */
    if (!note_edge(d, from == NONE ? 0x80000000u + slot : d->box[from], box)) return;
    if (from == NONE)
        fprintf(d->to, "  v%u -> n%u;\n", slot, box);
    else
        fprintf(d->to, "  n%u -> n%u;\n", d->box[from], box);
}

/* What a node reads, also in its branches and loops. */
static void put_reads(drawing *d, const onnx_node *n, uint32_t box, bool inside)
{
    for (size_t i = 0; i < n->n_in; i++) {
        onnx_slot slot = n->in[i];
        bool known = slot && (d->from[slot] != NONE || d->read[slot]);
        if (slot && (!inside || known)) put_edge(d, slot, box);
    }
    for (size_t k = 0; k < n->n_bodies; k++)
        for (size_t i = 0; i < n->body[k].n_nodes; i++)
            put_reads(d, &n->body[k].node[i], box, true);
}

/* ---- the model ---- */

static void put_ellipse(const drawing *d, const char *id, uint32_t number, const char *name,
                        onnx_slot slot, const char *color)
{
    fprintf(d->to, "  %s%u [label=\"", id, number);
    put(d, name);
    put_type(d, slot);
    fprintf(d->to, "\", shape=ellipse, fillcolor=\"%s\"];\n", color);
}

static void put_model(drawing *d)
{
    const onnx_body *b = &d->m->main;
    for (int i = 0; i < d->m->n_required; i++)
        put_ellipse(d, "v", d->m->in[i].slot, d->m->in[i].name, d->m->in[i].slot, "#cfe3f7");
    for (onnx_slot s = 1; s < d->m->n_slots && !d->depth; s++)
        if (d->read[s] && d->m->initial[s].kind)
            put_ellipse(d, "v", s, d->m->name[s], s, "#ececec");
    for (uint32_t i = 0; i < b->n_nodes; i++)
        if (d->box[i] == i) put_box(d, i);
    for (uint32_t i = 0; i < b->n_nodes; i++)
        if (d->box[i] != NONE) put_reads(d, &b->node[i], d->box[i], false);
    for (int i = 0; i < d->m->n_out; i++) {
        onnx_slot slot = d->m->out[i].slot;
        uint32_t from = d->from[slot];
        put_ellipse(d, "out", (uint32_t)i, d->m->out[i].name, slot, "#f7dccf");
        if (from != NONE && d->box[from] != NONE)
            fprintf(d->to, "  n%u -> out%d;\n", d->box[from], i);
        else if (from == NONE && !d->m->initial[slot].kind)
            fprintf(d->to, "  v%u -> out%d;\n", slot, i);
    }
}

static aril_status draw(drawing *d)
{
    const onnx_body *b = &d->m->main;
    for (size_t i = 0; i < d->m->n_slots; i++) d->from[i] = NONE;
    for (uint32_t i = 0; i < b->n_nodes; i++) {
        for (size_t k = 0; k < b->node[i].n_out; k++) d->from[b->node[i].out[k]] = i;
        for (size_t k = 0; k < b->node[i].n_in; k++) d->read[b->node[i].in[k]] = true;
    }
    for (int i = 0; i < d->m->n_required; i++) d->read[d->m->in[i].slot] = true;
    choose_depth(d);
    fputs("digraph \"", d->to);
    put(d, *b->name ? b->name : "graph");
    fputs("\" {\n  rankdir=TB; fontname=\"Helvetica\"; fontsize=11;\n"
          "  node [shape=box, style=\"rounded,filled\", fillcolor=\"#ffffff\", "
          "fontname=\"Helvetica\", fontsize=11];\n"
          "  edge [fontname=\"Helvetica\", fontsize=10, arrowsize=0.7];\n",
          d->to);
    put_model(d);
    fputs("}\n", d->to);
    return ARIL_OK;
}

aril_status aril__onnx_dot(const onnx_model *m, FILE *to)
{
    /* Types are inferred on a copy without weights: others may run the model. */
    onnx_types types = { 0 };
    aril__saved_errors before = aril__errors_begin_quiet();
    onnx_model *copy = aril__onnx_model_outline(m->path, m->is_cut ? m->out[0].name : NULL);
    bool same = copy && copy->n_slots == m->n_slots && copy->main.n_nodes == m->main.n_nodes;
    bool inferred = same && aril__onnx_infer(copy, &types) == ARIL_OK;
    aril__error_release(aril__errors_end(&before));
    drawing d = { .m = m, .types = inferred ? &types : NULL, .to = to };
    d.box = aril__calloc((m->main.n_nodes + 1) * sizeof *d.box);
    d.from = aril__calloc(m->n_slots * sizeof *d.from);
    d.read = aril__calloc(m->n_slots);
    aril_status s =
        d.box && d.from && d.read ? draw(&d) : aril__fail(ARIL_ERR_MEMORY, "draw: out of memory");
    free(d.box);
    free(d.from);
    free(d.read);
    free(d.edges);
    aril__onnx_model_free(copy);
    return s;
}
