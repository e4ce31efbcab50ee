/* Drawings of graphs, in Graphviz's language. */
#include "graph/draw.h"

#include "aril/autograd.h"
#include "aril/create.h"
#include "aril/dtype.h"
#include "aril/graph.h"
#include "graph/program.h"
#include "graph/inspect.h"

#include <errno.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* A graph with more nodes than that is drawn by modules, in as many boxes at most. */
enum { SMALL = 60, BOXES = 60 };

typedef struct drawing {
    const aril__graph *g;
    FILE *to;
    const aril__inspection *values; /* NULL: shapes only */
    int depth;                      /* modules below that level are one box; -1: none is */
    uint32_t *box;                  /* of each node: the first node of its box */
} drawing;

/* ---- text ---- */

void aril__dot_text(FILE *to, const char *text, size_t n)
{
    for (size_t i = 0; i < n && text[i]; i++) {
        if (text[i] == '"' || text[i] == '\\') fputc('\\', to);
        fputc((unsigned char)text[i] < ' ' ? ' ' : text[i], to);
    }
}

void aril__dot_begin(FILE *to, const char *name, const char *direction)
{
    fputs("digraph \"", to);
    aril__dot_text(to, name, 80);
    fprintf(to,
            "\" {\n  rankdir=%s; labeljust=l; fontname=\"Helvetica\"; fontsize=11;\n"
            "  node [shape=box, style=\"rounded,filled\", fillcolor=\"#ffffff\", "
            "fontname=\"Helvetica\", fontsize=11];\n"
            "  edge [fontname=\"Helvetica\", fontsize=10, arrowsize=0.7];\n",
            direction);
}

static void put_type(const drawing *d, aril__value_id v)
{
    const aril__graph *g = d->g;
    const aril__value *x = &g->values[v];
    const aril_tensor *t = d->values ? d->values->value[v] : NULL; /* whose sizes are known */
    const int64_t *dim = t ? t->dim : aril__graph_dims(g, v);
    FILE *to = d->to;
    fprintf(to, "%s[", aril__dtypes[x->dtype].name);
    for (int k = 0; k < x->ndim; k++)
        if (dim[k] >= 0)
            fprintf(to, "%s%" PRId64, k ? "," : "", dim[k]);
        else
            fprintf(to, "%s%s", k ? "," : "", aril__size_name(g->sizes, dim[k]));
    fputs("]", to);
}

/* "2.5", "[1, -2]", or nothing for more elements than fit. */
static bool put_numbers(aril_tensor *t, FILE *to)
{
    enum { FEW = 4 };
    double few[FEW];
    ARIL_SCOPE;
    if (!t || t->numel < 1 || t->numel > FEW) return false;
    aril_tensor *plain = aril_to(aril_cast(aril_detach(t), ARIL_F64), aril_cpu());
    if (aril_read(plain, few) < 0) return false;
    for (int i = 0; i < t->numel; i++)
        fprintf(to, "%s%.4g", i ? ", " : t->numel > 1 ? "[" : "", few[i]);
    if (t->numel > 1) fputs("]", to);
    return true;
}

/* ---- boxes ---- */

/* The length of the first `depth` parts of a module's path. */
static size_t prefix(const char *path, int depth)
{
    const char *end = path;
    for (int i = 0; i < depth && *end; i++) {
        if (i) end++;
        end += strcspn(end, ".");
    }
    return (size_t)(end - path);
}

static const char *scope_of(const aril__graph *g, aril__node_id id)
{
    return g->nodes[id].scope ? g->text + g->nodes[id].scope : "";
}

/* Gives each node a box: itself, or the first node of the module that it is drawn in. Consecutive
 * nodes outside modules share one, too. Returns the number of boxes. */
static uint32_t find_boxes(drawing *d)
{
    const aril__graph *g = d->g;
    uint32_t n = 0;
    for (aril__node_id id = 1; id < g->n_nodes; id++) {
        const char *path = scope_of(g, id);
        size_t length = prefix(path, d->depth);
        d->box[id] = id;
        for (aril__node_id k = id; k-- > 1 && d->depth >= 0 && d->box[id] == id;) {
            const char *other = scope_of(g, k);
            bool same = prefix(other, d->depth) == length && strncmp(other, path, length) == 0;
            if (same && (*path || !*other)) d->box[id] = d->box[k];
            if (!*path && *other) break; /* outside: only neighbours */
        }
        n += d->box[id] == id;
    }
    return n;
}

static void choose_depth(drawing *d)
{
    d->depth = -1;
    if (find_boxes(d) <= SMALL) return;
    for (d->depth = 6; d->depth > 1; d->depth--)
        if (find_boxes(d) <= BOXES) return;
    find_boxes(d);
}

/* ---- nodes ---- */

static const char *name_of(const aril__graph *g, aril__value_id v)
{
    const aril__value *x = &g->values[v];
    if (x->kind == ARIL__FROM_INPUT) return g->inputs[x->from].name;
    return x->kind == ARIL__FROM_STATE ? g->states[x->from].name : NULL;
}

static bool is_source(const aril__graph *g, aril__value_id v)
{
    int kind = g->values[v].kind;
    return kind == ARIL__FROM_INPUT || kind == ARIL__FROM_STATE || kind == ARIL__FROM_GRAD;
}

static void put_source(const drawing *d, aril__value_id v)
{
    const aril__value *x = &d->g->values[v];
    const char *name = name_of(d->g, v);
    fprintf(d->to, "  v%u [label=\"", v);
    if (name)
        aril__dot_text(d->to, name, 60);
    else if (x->kind == ARIL__FROM_GRAD)
        fprintf(d->to, "gradient %u", x->from);
    else
        fprintf(d->to, "%s %u", x->kind == ARIL__FROM_INPUT ? "input" : "state", x->from);
    fputs("\\n", d->to);
    put_type(d, v);
    fprintf(d->to, "\", shape=ellipse, fillcolor=\"%s\"];\n",
            x->kind == ARIL__FROM_INPUT ? "#cfe3f7" : "#ececec");
}

static bool put_constant(const drawing *d, aril__value_id v)
{
    const aril__value *x = &d->g->values[v];
    if (x->kind != ARIL__FROM_CONSTANT) return false;
    aril_tensor *t = d->g->constants[x->from];
    return t->storage && t->numel == 1 && put_numbers(t, d->to);
}

/* One op: its name, numbers among its operands, and its result. */
static void put_op(const drawing *d, aril__node_id id, int indent)
{
    const aril__graph_node *n = &d->g->nodes[id];
    const aril__value_id *in = aril__graph_in(d->g, n);
    const char *attrs = aril__graph_attrs(d->g, n), *fused = NULL;
    if (attrs && n->op->activation)
        fused =
            aril__activation_name(*(const int64_t *)(const void *)(attrs + n->op->activation - 1));
    fprintf(d->to, "%*sn%u [label=\"%s%s%s", indent, "", id, n->op->name, fused ? " + " : "",
            fused ? fused : "");
    for (int i = 0; i < n->n_in && n->n_in <= 4; i++) {
        if (!in[i] || d->g->values[in[i]].kind != ARIL__FROM_CONSTANT) continue;
        fputs(" ", d->to);
        put_constant(d, in[i]);
    }
    fputs("\\n", d->to);
    put_type(d, n->out);
    fprintf(d->to, "\"%s];\n", n->n_bodies ? ", shape=diamond, fillcolor=\"#fdf0c8\"" : "");
}

static void put_module(const drawing *d, aril__node_id id)
{
    const char *path = scope_of(d->g, id);
    uint32_t n = 0;
    aril__value_id last = d->g->nodes[id].out;
    for (aril__node_id k = id; k < d->g->n_nodes; k++)
        if (d->box[k] == id) {
            n++;
            last = d->g->nodes[k].out;
        }
    fprintf(d->to, "  n%u [label=\"", id);
    if (*path)
        aril__dot_text(d->to, path, prefix(path, d->depth));
    else
        fputs(n == 1 ? d->g->nodes[id].op->name : "outside modules", d->to);
    fprintf(d->to, "\\n%u op%s\\n", n, n == 1 ? "" : "s");
    put_type(d, last);
    fprintf(d->to, "\", fillcolor=\"%s\"];\n", *path ? "#dcecd9" : "#f7f7f7");
}

/* The boxes that are drawn within the module of the first `length` characters of a path, in frames
 * for the modules inside it. */
static void put_modules(const drawing *d, uint32_t n, const aril__node_id *boxes, const char *path,
                        size_t length, int indent)
{
    for (uint32_t i = 0; i < n; i++) {
        const char *own = scope_of(d->g, boxes[i]);
        size_t end = prefix(own, d->depth);
        if (end < length || strncmp(own, path, length) != 0 ||
            (length && own[length] && own[length] != '.'))
            continue;
        size_t part = length + (length && own[length] == '.');
        part += strcspn(own + part, ".");
        if (part >= end) { /* nothing between */
            put_module(d, boxes[i]);
            continue;
        }
        uint32_t inside = 0, first = n;
        for (uint32_t k = 0; k < n; k++) {
            const char *other = scope_of(d->g, boxes[k]);
            if (prefix(other, d->depth) <= part || strncmp(other, own, part) != 0 ||
                other[part] != '.')
                continue;
            if (first == n) first = k;
            inside++;
        }
        if (inside < 2) put_module(d, boxes[i]);
        if (inside < 2 || first < i) continue;
        fprintf(d->to, "%*ssubgraph cluster_%u_%zu {\n%*slabel=\"", indent, "", boxes[i], part,
                indent + 2, "");
        aril__dot_text(d->to, own, part);
        fputs("\"; style=\"rounded\"; color=\"#9db89a\"; fontcolor=\"#557052\";\n", d->to);
        put_modules(d, n, boxes, own, part, indent + 2);
        fprintf(d->to, "%*s}\n", indent, "");
    }
}

static bool put_boxes(const drawing *d)
{
    const aril__graph *g = d->g;
    uint32_t n = 0;
    aril__node_id *boxes = aril__malloc(g->n_nodes * sizeof *boxes);
    for (aril__node_id id = 1; boxes && id < g->n_nodes; id++)
        if (d->box[id] == id) boxes[n++] = id;
    if (boxes) put_modules(d, n, boxes, "", 0, 2);
    free(boxes);
    return boxes != NULL;
}

/* Ops of a small graph, inside frames for their modules. */
static void put_framed(const drawing *d)
{
    const aril__graph *g = d->g;
    for (aril__node_id id = 1; id < g->n_nodes; id++) {
        const char *path = scope_of(g, id);
        bool seen = false;
        for (aril__node_id k = 1; k < id && *path && !seen; k++)
            seen = strcmp(scope_of(g, k), path) == 0;
        if (seen) continue;
        if (!*path) {
            put_op(d, id, 2);
            continue;
        }
        fprintf(d->to, "  subgraph cluster_%u {\n    label=\"", id);
        aril__dot_text(d->to, path, 80);
        fputs("\"; style=\"rounded\"; color=\"#9db89a\"; fontcolor=\"#557052\";\n", d->to);
        for (aril__node_id k = id; k < g->n_nodes; k++)
            if (strcmp(scope_of(g, k), path) == 0) put_op(d, k, 4);
        fputs("  }\n", d->to);
    }
}

/* ---- edges ---- */

/* Where the value comes from in the drawing. */
static void put_origin(const drawing *d, aril__value_id v)
{
    if (is_source(d->g, v))
        fprintf(d->to, "  v%u", v);
    else
        fprintf(d->to, "  n%u", d->box[d->g->values[v].from]);
}

/* The value on an edge in green, its gradient in red, as in drawings of circuits. */
static void put_label(const drawing *d, aril__value_id v)
{
    aril_tensor *t = d->values ? d->values->value[v] : NULL;
    if (!t || t->numel > 4) return;
    fputs(" [label=<<font color=\"#2a7a2a\">", d->to);
    put_numbers(t, d->to);
    fputs("</font>", d->to);
    if (aril_requires_grad(t) && aril_has_grad(t)) {
        fputs("<br/><font color=\"#c03030\">", d->to);
        put_numbers(aril_grad(t), d->to);
        fputs("</font>", d->to);
    }
    fputs(">]", d->to);
}

static bool is_drawn(const drawing *d, aril__value_id v)
{
    return v && (is_source(d->g, v) || d->g->values[v].kind == ARIL__FROM_NODE);
}

/* Whether an edge between the same boxes was drawn before this operand. */
static bool is_repeated(const drawing *d, aril__node_id id, int i)
{
    const aril__graph *g = d->g;
    aril__value_id v = aril__graph_in(g, &g->nodes[id])[i];
    for (aril__node_id k = d->box[id]; k <= id && d->depth >= 0; k++) {
        if (d->box[k] != d->box[id]) continue;
        const aril__value_id *in = aril__graph_in(g, &g->nodes[k]);
        for (int m = 0; m < g->nodes[k].n_in && (k < id || m < i); m++) {
            if (!is_drawn(d, in[m])) continue;
            if (in[m] == v) return true;
            if (!is_source(g, v) && !is_source(g, in[m]) &&
                d->box[g->values[in[m]].from] == d->box[g->values[v].from])
                return true;
        }
    }
    return false;
}

static void put_edges(const drawing *d)
{
    const aril__graph *g = d->g;
    for (aril__node_id id = 1; id < g->n_nodes; id++) {
        const aril__value_id *in = aril__graph_in(g, &g->nodes[id]);
        for (int i = 0; i < g->nodes[id].n_in; i++) {
            aril__value_id v = in[i];
            if (!is_drawn(d, v)) continue;
            bool inside = !is_source(g, v) && d->box[g->values[v].from] == d->box[id];
            if (inside || is_repeated(d, id, i)) continue;
            if (is_source(g, v) && d->depth >= 0 && g->values[v].kind != ARIL__FROM_INPUT) continue;
            put_origin(d, v);
            fprintf(d->to, " -> n%u", d->box[id]);
            put_label(d, v);
            fputs(";\n", d->to);
        }
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        if (!is_drawn(d, g->outputs[i])) continue;
        fprintf(d->to, "  out%u [label=\"result %u\", shape=ellipse, fillcolor=\"#f7dccf\"];\n", i,
                i);
        put_origin(d, g->outputs[i]);
        fprintf(d->to, " -> out%u", i);
        put_label(d, g->outputs[i]);
        fputs(";\n", d->to);
    }
}

/* What a run writes to states and inputs. */
static void put_effects(const drawing *d)
{
    const aril__graph *g = d->g;
    for (uint32_t i = 0; i < g->n_effects && d->depth < 0; i++) {
        const aril__effect *e = &g->effects[i];
        if (e->kind == ARIL__WRITE_GRAD || !is_drawn(d, e->value)) continue;
        put_origin(d, e->value);
        fprintf(d->to, " -> v%u [style=dashed, constraint=false, color=\"#999999\"];\n",
                e->kind == ARIL__WRITE_STATE ? g->states[e->to].value : g->inputs[e->to].value);
    }
}

/* Sources that something reads. In a drawing by modules, parameters belong to their boxes. */
static void put_sources(const drawing *d)
{
    const aril__graph *g = d->g;
    bool *read = aril__calloc(g->n_values);
    if (!read) return;
    for (aril__node_id id = 1; id < g->n_nodes; id++)
        for (int i = 0; i < g->nodes[id].n_in; i++)
            read[aril__graph_in(g, &g->nodes[id])[i]] = true;
    for (uint32_t i = 0; i < g->n_outputs; i++) read[g->outputs[i]] = true;
    for (aril__value_id v = 1; v < g->n_values; v++)
        if (read[v] && is_source(g, v) && (d->depth < 0 || g->values[v].kind == ARIL__FROM_INPUT))
            put_source(d, v);
    free(read);
}

aril_status aril__graph_dot(const aril__graph *g, const aril__inspection *values, FILE *to)
{
    drawing d = { g, to, values, -1, aril__calloc(g->n_nodes * sizeof *d.box) };
    if (!d.box) return aril__fail(ARIL_ERR_MEMORY, "draw: out of memory");
    choose_depth(&d);
    aril__dot_begin(to, g->name ? g->name : "graph", values ? "LR" : "TB");
    put_sources(&d);
    bool fits = true;
    if (d.depth < 0)
        put_framed(&d);
    else
        fits = put_boxes(&d);
    put_edges(&d);
    put_effects(&d);
    fputs("}\n", to);
    free(d.box);
    return fits ? ARIL_OK : aril__fail(ARIL_ERR_MEMORY, "draw: out of memory");
}

/* ---- files ---- */

/* Lets Graphviz turn a file into an image. */
static aril_status render(const char *dot_path, const char *format, const char *path)
{
    char kind[16];
    snprintf(kind, sizeof kind, "-T%s", format);
    char *const argv[] = { "dot", kind, "-o", (char *)(uintptr_t)path, (char *)(uintptr_t)dot_path,
                           NULL };
    pid_t pid;
    int failed = posix_spawnp(&pid, "dot", NULL, NULL, argv, environ), state = 0;
    if (failed)
        return aril__fail(
            ARIL_ERR_UNSUPPORTED,
            "draw: %s needs Graphviz, whose program 'dot' was not found; write a .dot "
            "file, or install it",
            path);
    while (waitpid(pid, &state, 0) < 0 && errno == EINTR) continue;
    if (WIFEXITED(state) && WEXITSTATUS(state) == 0) return ARIL_OK;
    return aril__fail(ARIL_ERR_IO, "draw: dot could not write %s", path);
}

static const char *extension(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot && !strchr(dot, '/') ? dot + 1 : "";
}

/* Writes a file beside the path, which then takes its place; what is no regular file, itself. */
static aril_status write_file(const char *path, const char *text, size_t size)
{
    struct stat at;
    bool beside = stat(path, &at) != 0 || S_ISREG(at.st_mode);
    char *name = aril__malloc(strlen(path) + 8);
    if (!name) return aril__fail(ARIL_ERR_MEMORY, "draw: out of memory");
    sprintf(name, beside ? "%s.new" : "%s", path);
    FILE *to = fopen(name, "w");
    bool ok = to && fwrite(text, 1, size, to) == size;
    ok = to && fclose(to) == 0 && ok;
    if (ok && beside) ok = rename(name, path) == 0;
    if (!ok) aril__fail(ARIL_ERR_IO, "draw: cannot write %s: %s", path, strerror(errno));
    if (!ok && to && beside) remove(name);
    free(name);
    return ok ? ARIL_OK : ARIL_ERR_IO;
}

aril_status aril__dot_save(const char *path, aril__dot_writer *write, const void *ctx)
{
    const char *format = extension(path);
    bool text = strcmp(format, "dot") == 0 || strcmp(format, "gv") == 0;
    if (!text && strcmp(format, "svg") != 0 && strcmp(format, "png") != 0 &&
        strcmp(format, "pdf") != 0)
        return aril__fail(ARIL_ERR_ARG,
                          "draw: expected a path that ends in .dot, .svg, .png or "
                          ".pdf, got %s",
                          path);
    char *name = aril__malloc(strlen(path) + 8), *written = NULL;
    size_t size = 0;
    FILE *to = name ? open_memstream(&written, &size) : NULL;
    aril_status s = to ? write(to, ctx) : aril__fail(ARIL_ERR_MEMORY, "draw: out of memory");
    if (to && fclose(to) != 0 && s == ARIL_OK)
        s = aril__fail(ARIL_ERR_MEMORY, "draw: out of memory");
    if (s == ARIL_OK) {
        sprintf(name, text ? "%s" : "%s.dot", path);
        s = write_file(name, written, size);
        if (s == ARIL_OK && !text) s = render(name, format, path);
        if (!text) remove(name);
    }
    free(written);
    free(name);
    return s;
}

/* ---- programs ---- */

typedef struct draw_call {
    const char *path;
    const aril__graph *g;
    aril_list inputs;
    aril_status status;
    const aril__program_kind *kind; /* that draws it, or NULL */
    void *ctx;
} draw_call;

static aril_status write_graph(FILE *to, const void *ctx)
{
    const draw_call *c = ctx;
    const aril__graph *g = c->g;
    if (c->kind) return c->kind->draw(c->ctx, to);
    if (!c->inputs.n) return aril__graph_dot(g, NULL, to);
    ARIL_SCOPE;
    aril__inspection r = { 0 };
    aril_status s = aril__graph_inspect(g, c->inputs, true, &r);
    aril_tensor *y = s == ARIL_OK && g->n_outputs ? r.value[g->outputs[0]] : NULL;
    if (y && y->numel == 1 && aril_requires_grad(y)) s = aril_backward(y);
    if (s == ARIL_OK) s = aril__graph_dot(g, &r, to);
    aril__inspection_free(&r);
    return s;
}

static void draw_graph(const aril__graph *g, void *ctx)
{
    draw_call *c = ctx;
    c->g = g;
    c->status = aril__dot_save(c->path, write_graph, c);
}

static void count_inputs(const aril__graph *g, void *to)
{
    *(uint32_t *)to = g->n_inputs;
}

aril_status aril_program_draw(const aril_program *p, const char *path, aril_list inputs)
{
    if (!p || !path || inputs.n < 0 || (inputs.n && !inputs.at))
        return aril__fail(ARIL_ERR_ARG, "draw: the %s is NULL",
                          !p     ? "program"
                          : path ? "list"
                                 : "path");
    draw_call c = { .path = path, .inputs = inputs, .status = ARIL_ERR_STATE };
    if (inputs.n) { /* operations as they were written, not as they were fused */
        aril_tensor **all = aril__program_place(p, &c.inputs);
        if (!all) return aril__latest_status();
        uint32_t expected = (uint32_t)c.inputs.n;
        if (aril__program_look(p, count_inputs, &expected) && expected > (uint32_t)c.inputs.n) {
            free(all);
            return aril__fail(ARIL_ERR_ARG, "draw: %s takes %u inputs, got %d",
                              aril__program_name(p), expected, inputs.n);
        }
        aril_status s = aril__program_look_plain(p, inputs, draw_graph, &c);
        free(all);
        return s < 0 ? s : c.status;
    }
    void *ctx;
    const aril__program_kind *kind = aril__program_kind_of(p, &ctx);
    if (kind && kind->draw) {
        c.kind = kind;
        c.ctx = ctx;
        return aril__dot_save(path, write_graph, &c);
    }
    if (!aril__program_look(p, draw_graph, &c))
        return aril__fail(ARIL_ERR_STATE, "draw: the program was not traced yet; run it first");
    return c.status;
}
