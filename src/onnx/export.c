/* Modules, programs and graphs as files of ONNX. */
#include "onnx/export.h"

#include "autograd/node.h"
#include "formats/atomic_file.h"
#include "formats/schemas.h"
#include "graph/program.h"
#include "onnx/program.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OLDEST = 13, DEFAULT_OPSET = 18, NEWEST = 28 };

/* What is being exported. */
typedef struct job {
    const char *what, *path, *name;
    const aril_export_opts *opts;
    const aril_program *program;
    const onnx_model *source; /* that it was loaded from, or NULL */
    const aril_named *state;  /* names of parameters, or NULL */
    const uint32_t *inputs;   /* of a defined graph: which inputs, n_in of them; NULL: all */
    aril_list given;          /* what the sizes of the inputs are taken from */
    int n_in;
    aril_status status;
} job;

/* ---- sizes ---- */

/* The name of an unknown size: that of the options for the number that stands for it. */
static void name_sizes(export_model *m, const job *j, const aril__graph *g)
{
    const aril_export_opts *o = j->opts;
    m->sizes = g->sizes;
    m->n_size_names = (int)g->sizes->n;
    m->size_names = aril__onnx_alloc(&m->arena, g->sizes->n, sizeof *m->size_names);
    if (!m->size_names) m->n_size_names = 0;
    for (uint32_t i = 0; i < g->n_inputs && m->size_names; i++) {
        aril__value_id v = g->inputs[i].value;
        for (int d = 0; d < g->values[v].ndim; d++) {
            int64_t u = aril__graph_dims(g, v)[d];
            if (u >= 0 || !aril__size_is_named(u)) continue;
            const char **name = &m->size_names[aril__size_index(u)];
            int64_t given = o->batch ? -2 : (int)i < o->n_sizes ? o->sizes[i].dim[d] : -1;
            int64_t k = -2 - given;
            if (*name) continue;
            if (o->batch)
                *name = "batch";
            else if (k >= 0 && k < o->n_size_names)
                *name = o->size_names[k];
            else
                *name = aril__export_text(m, "size_%zu", aril__size_index(u));
        }
    }
}

/* What the graph's unknown sizes are for inputs of the sizes that were given, with `times` as many
 * samples. */
static void known_sizes(const job *j, const aril__graph *g, int64_t times, int64_t *value)
{
    for (size_t k = 0; k < g->sizes->n; k++) value[k] = -1;
    for (int i = 0; i < j->given.n && i < (int)g->n_inputs; i++) {
        aril__value_id v = g->inputs[i].value;
        for (int d = 0; d < g->values[v].ndim; d++) {
            int64_t u = aril__graph_dims(g, v)[d], size = aril_size(j->given.at[i], d);
            if (aril__size_is_named(u))
                value[aril__size_index(u)] = d > 0 ? size : size ? times * size : times;
        }
    }
}

/* Whether the graph holds for another number of samples than the given one. */
static aril_status check_batch(const job *j, const aril__graph *g)
{
    int64_t *value = aril__malloc((g->sizes->n + 1) * sizeof *value);
    if (!value) return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", j->what);
    aril__saved_errors before = aril__errors_begin_quiet();
    known_sizes(j, g, 1, value);
    bool held = aril__graph_met(g, value) == ARIL_OK;
    known_sizes(j, g, 2, value);
    aril_status s = held ? aril__graph_met(g, value) : ARIL_OK;
    aril__error *why = aril__errors_end(&before);
    if (s < 0)
        aril__fail(s,
                   "%s: the batch cannot be left open, as the model does not hold for another: %s",
                   j->what, why ? why->message : aril_status_text(s));
    aril__error_release(why);
    free(value);
    return s;
}

/* ---- inputs ---- */

static export_value *add_input(export_graph *g, aril__value_id v, const char *name)
{
    export_port *p = aril__export_port(g->model, &g->model->main, false);
    export_value *x = p ? aril__export_value(g->model, name) : NULL;
    if (!x) return NULL;
    aril__export_describe(g->model, g->g, v, p);
    x->number = aril__onnx_dtype_number(p->dtype);
    return p->value = g->value[v] = x;
}

static const char *input_name(export_graph *g, const job *j, int i, uint32_t input)
{
    const char *own = j->source && i < j->source->n_in ? j->source->in[i].name : NULL;
    if (j->opts->inputs) return j->opts->inputs[i];
    if (own) return own;
    if (g->g->inputs[input].name) return g->g->inputs[input].name;
    return j->n_in == 1 ? "input" : aril__export_text(g->model, "input_%d", i);
}

/* The tensor as it is now is the default of an input. */
static void add_default(export_model *m, export_value *x, aril_tensor *t)
{
    export_weight *w = aril__onnx_alloc(&m->arena, 1, sizeof *w);
    aril_tensor *host = aril_contiguous(aril_to(aril_detach(t), aril_cpu()));
    aril_status s = aril_tensor_status(host);
    if (!w || s < 0 || !aril__onnx_keep(&m->arena, host)) {
        m->status = s < 0 ? s : ARIL_ERR_MEMORY;
        return;
    }
    *w = (export_weight){ .value = x, .tensor = host };
    *m->last_weight = w;
    m->last_weight = &w->next;
}

static const char *state_name(export_model *m, const aril__graph *g, uint32_t state)
{
    const char *name = g->states[state].name;
    return name ? name : aril__export_text(m, "state.%u", state);
}

/* The name of a parameter that a gradient belongs to. */
static const char *leaf_name(export_model *m, const aril__graph *g, uint32_t grad)
{
    for (uint32_t i = 0; i < g->n_states; i++)
        if (g->states[i].tensor && g->states[i].tensor->node == g->grads[grad].leaf)
            return state_name(m, g, i);
    return aril__export_text(m, "leaf.%u", grad);
}

static void add_inputs(export_graph *g, const job *j)
{
    export_model *m = g->model;
    for (int i = 0; i < j->n_in; i++) {
        uint32_t input = j->inputs ? j->inputs[i] : (uint32_t)i;
        add_input(g, g->g->inputs[input].value, input_name(g, j, i, input));
    }
    for (uint32_t i = 0; i < g->g->n_effects; i++) {
        const aril__effect *e = &g->g->effects[i];
        const aril__state *s = e->kind == ARIL__WRITE_STATE ? &g->g->states[e->to] : NULL;
        if (!s || g->value[s->value]) continue;
        export_value *x = add_input(g, s->value, state_name(m, g->g, e->to));
        if (x && s->tensor) add_default(m, x, s->tensor);
    }
    for (uint32_t i = 0; i < g->g->n_grads; i++)
        if (g->g->grads[i].had)
            add_input(g, g->g->grads[i].value,
                      aril__export_text(m, "%s.grad", leaf_name(m, g->g, i)));
}

/* ---- results ---- */

/* An output has a value of its own, so that it can have its name. */
static void add_output(export_graph *g, aril__value_id v, const char *name)
{
    export_model *m = g->model;
    export_value *x = g->value[v];
    export_port *p = aril__export_port(m, &m->main, true);
    if (!x || !p) return;
    aril__export_describe(m, g->g, v, p);
    bool own = x->from && !x->name && strcmp(x->from->type, "Constant") != 0;
    if (!own) aril__export_node(g, "Identity", VALUES(x), NO_ATTRS, 1, &x);
    p->value = x;
    if (x) x->name = aril__export_text(m, "%s", name);
}

static void add_outputs(export_graph *g, const job *j)
{
    export_model *m = g->model;
    for (uint32_t i = 0; i < g->g->n_outputs && j->opts->outputs; i++)
        if (!j->opts->outputs[i] || !*j->opts->outputs[i]) {
            m->status = aril__fail(ARIL_ERR_ARG, "%s: the name of output %u is %s", j->what, i,
                                   j->opts->outputs[i] ? "empty" : "NULL");
            return;
        }
    for (uint32_t i = 0; i < g->g->n_outputs; i++) {
        bool named = j->source && (int)i < j->source->n_out;
        const char *own = named ? j->source->out[i].name : NULL;
        const char *name = j->opts->outputs       ? j->opts->outputs[i]
                           : own                  ? own
                           : g->g->n_outputs == 1 ? "output"
                                                  : aril__export_text(m, "output_%u", i);
        add_output(g, g->g->outputs[i], name);
    }
    for (uint32_t i = 0; i < g->g->n_effects; i++) {
        const aril__effect *e = &g->g->effects[i];
        if (!e->value) continue; /* a gradient that is cleared */
        const char *name = e->kind == ARIL__WRITE_STATE ? state_name(m, g->g, e->to)
                           : e->kind == ARIL__WRITE_INPUT
                               ? g->value[g->g->inputs[e->to].value]->name
                               : leaf_name(m, g->g, e->to);
        add_output(g, e->value,
                   aril__export_text(m, "%s.%s", name,
                                     e->kind == ARIL__WRITE_GRAD ? "grad" : "next"));
    }
}

/* ---- files ---- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

enum { ALIGNED = 64, SMALL = 1024 };
static const uint64_t most = 0x7ff00000; /* of a model's file, with room for the nodes */

static uint64_t weight_bytes(const aril__message *graph)
{
    uint64_t n = 0;
    for (size_t i = 0; i < aril__message_count(graph, "initializer"); i++)
        n += aril__message_bytes(aril__message_sub_at(graph, "initializer", i), "raw_data").n;
    return n;
}

static void add_entry(aril__message *tensor, const char *key, const char *value)
{
    aril__message *e = aril__message_add_sub(tensor, "external_data");
    aril__message_set_text(e, "key", key);
    aril__message_set_text(e, "value", value);
}

/* Moves the large tensors of a model to a file beside it. */
static aril_status write_data(aril__message *graph, aril__file *f, const char *location)
{
    static const char zeros[ALIGNED];
    aril_status s = ARIL_OK;
    for (size_t i = 0; i < aril__message_count(graph, "initializer") && s == ARIL_OK; i++) {
        aril__message *t = aril__message_sub_at(graph, "initializer", i);
        aril__slice data = aril__message_bytes(t, "raw_data");
        char number[32];
        if (data.n < SMALL) continue;
        uint64_t at = aril__file_size(f), gap = (ALIGNED - at % ALIGNED) % ALIGNED;
        s = aril__file_write(f, zeros, gap);
        if (s == ARIL_OK) s = aril__file_write(f, data.at, data.n);
        add_entry(t, "location", location);
        snprintf(number, sizeof number, "%" PRIu64, at + gap);
        add_entry(t, "offset", number);
        snprintf(number, sizeof number, "%zu", data.n);
        add_entry(t, "length", number);
        aril__message_set_int(t, "data_location", 1);
        aril__message_clear(t, "raw_data");
    }
    return s;
}

static aril_status write_model(aril__message *model, aril__file *f)
{
    aril__bytes b = { 0 };
    aril_status s = aril__message_write(model, &b);
    if (s == ARIL_OK) s = aril__file_write(f, b.at, b.n);
    aril__bytes_free(&b);
    return s;
}

/* What was written may come from files in place, which must not have changed meanwhile. */
static aril_status commit(const job *j, aril__file *f, aril_status so_far)
{
    if (so_far == ARIL_OK && j->source) so_far = aril__onnx_files_check(&j->source->files);
    if (so_far == ARIL_OK) return aril__file_commit(f);
    aril__file_abandon(f);
    return so_far;
}

enum { DATA_FILES = 8 };

/* Names of the file of data beside a model: a new one for each export. */
static const char *data_name(const job *j, int k, char *to, size_t size)
{
    snprintf(to, size, k ? "%s.data%d" : "%s.data", j->path, k);
    return to;
}

/* Which of these files the model that is there refers to, if there is one. `name`: of `size` bytes,
 * for names. */
static void find_data(const job *j, char *name, size_t size, bool refers[DATA_FILES])
{
    if (access(j->path, F_OK) != 0) return;
    aril__saved_errors before = aril__errors_begin_quiet();
    aril__message *old = aril__message_load(&aril__onnx_ModelProto, j->path);
    const aril__message *graph = old ? aril__message_sub(old, "graph") : NULL;
    for (size_t i = 0; graph && i < aril__message_count(graph, "initializer"); i++) {
        const aril__message *t = aril__message_sub_at(graph, "initializer", i);
        const char *location = NULL;
        for (size_t e = 0; e < aril__message_count(t, "external_data"); e++) {
            const aril__message *entry = aril__message_sub_at(t, "external_data", e);
            if (strcmp(aril__message_text(entry, "key"), "location") == 0)
                location = aril__message_text(entry, "value");
        }
        for (int k = 0; k < DATA_FILES && location; k++)
            refers[k] |= strcmp(location, base_name(data_name(j, k, name, size))) == 0;
    }
    aril__message_free(old);
    aril__error_release(aril__errors_end(&before));
}

/* Removes the data of the model that was replaced, but not those of the new one. */
static void remove_data(const job *j, char *name, size_t size, const bool refers[DATA_FILES],
                        int own)
{
    for (int i = 0; i < DATA_FILES; i++)
        if (refers[i] && i != own) unlink(data_name(j, i, name, size));
}

/* The model that is there refers to its data until it is replaced: so these stay until then, and
 * the new ones have another name. */
static aril_status save_beside(aril__message *model, const job *j)
{
    bool refers[DATA_FILES] = { false };
    int k = 0;
    size_t size = strlen(j->path) + 32;
    char *beside = aril__malloc(2 * size), *other = beside + size;
    if (!beside) return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", j->what);
    find_data(j, other, size, refers);
    while (k < DATA_FILES - 1 && access(data_name(j, k, beside, size), F_OK) == 0) k++;
    const char *slash = strrchr(data_name(j, k, beside, size), '/');
    aril__file *data = aril__file_begin(beside), *f = data ? aril__file_begin(j->path) : NULL;
    aril_status s = f ? ARIL_OK : aril__latest_status();
    if (s == ARIL_OK)
        s = write_data(aril__message_set_sub(model, "graph"), data, slash ? slash + 1 : beside);
    if (s == ARIL_OK) s = write_model(model, f);
    s = commit(j, data, s);
    bool written = s == ARIL_OK;
    s = commit(j, f, s);
    if (s < 0 && written) unlink(beside);
    if (s == ARIL_OK) remove_data(j, other, size, refers, k);
    free(beside);
    return s;
}

static aril_status save_plain(aril__message *model, const job *j)
{
    bool refers[DATA_FILES] = { false };
    size_t size = strlen(j->path) + 32;
    char *name = aril__malloc(size);
    if (!name) return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", j->what);
    find_data(j, name, size, refers);
    aril__file *f = aril__file_begin(j->path);
    aril_status s = f ? commit(j, f, write_model(model, f)) : aril__latest_status();
    if (s == ARIL_OK) remove_data(j, name, size, refers, -1);
    free(name);
    return s;
}

static aril_status save_message(aril__message *model, const job *j)
{
    const aril_metadata *md = j->opts->metadata;
    if (md) aril__message_clear(model, "metadata_props");
    for (int i = 0; md && i < md->n; i++) {
        aril__message *entry = aril__message_add_sub(model, "metadata_props");
        aril__message_set_text(entry, "key", md->key[i]);
        if (md->value[i]) aril__message_set_text(entry, "value", md->value[i]);
    }
    aril__slice bad = aril__message_not_utf8(model);
    if (bad.at)
        return aril__fail(ARIL_ERR_ARG, "%s: the text \"%.*s\" is not UTF-8", j->what,
                          (int)(bad.n < 100 ? bad.n : 100), (const char *)bad.at);
    bool beside = j->opts->external_data || weight_bytes(aril__message_sub(model, "graph")) > most;
    return beside ? save_beside(model, j) : save_plain(model, j);
}

static aril_status save(export_model *m, const job *j)
{
    aril__message *model = aril__export_message(m, j->name);
    if (!model) return m->status != ARIL_OK ? m->status : aril__latest_status();
    aril_status s = save_message(model, j);
    aril__message_free(model);
    return s;
}

/* ---- a graph ---- */

/* States have the names of the module's tensors, also where the trace did not learn them. */
static void name_states(aril__graph *g, export_model *m, const aril_named *names)
{
    for (uint32_t i = 0; names && i < g->n_states; i++)
        for (int k = 0; k < names->n; k++)
            if (g->states[i].tensor && names->at[k]->storage == g->states[i].tensor->storage)
                g->states[i].name = (char *)(uintptr_t)aril__export_text(m, "%s", names->name[k]);
}

static void export_it(const aril__graph *of, void *ctx)
{
    job *j = ctx;
    export_model m = { .opset = j->opts->opset ? j->opts->opset : DEFAULT_OPSET,
                       .what = j->what,
                       .source = j->source ? j->source->file : NULL };
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    m.main.last = &m.main.first;
    m.last_weight = &m.weights;
    aril__graph named = *of; /* with other names of states */
    named.states = aril__onnx_alloc(&m.arena, (size_t)of->n_states + 1, sizeof *named.states);
    export_graph g = { .model = &m, .to = &m.main, .g = &named };
    g.value = aril__onnx_alloc(&m.arena, (size_t)of->n_values + 1, sizeof *g.value);
    if (!named.states || !g.value) m.status = ARIL_ERR_MEMORY;
    if (m.status == ARIL_OK && !of->n_outputs && !of->n_effects)
        m.status = aril__fail(ARIL_ERR_STATE, "%s: there is nothing to write: %s has no results",
                              j->what, j->name);
    if (m.status == ARIL_OK && j->opts->batch) m.status = check_batch(j, of);
    if (m.status == ARIL_OK) {
        if (of->n_states) memcpy(named.states, of->states, of->n_states * sizeof *of->states);
        name_states(&named, &m, j->state);
        name_sizes(&m, j, &named);
        if (!j->inputs) j->n_in = (int)of->n_inputs;
        add_inputs(&g, j);
        aril__export_walk(&g);
    }
    if (m.status == ARIL_OK) add_outputs(&g, j);
    j->status = m.status != ARIL_OK ? m.status : save(&m, j);
    aril__onnx_arena_free(&m.arena);
}

static void export_part(const aril__graph *g, const uint32_t *inputs, void *ctx)
{
    job *j = ctx;
    j->inputs = inputs;
    export_it(g, j);
}

/* ---- the functions ---- */

static aril_status check_metadata(const char *what, const aril_metadata *md)
{
    if (md->n < 0 || (md->n && (!md->key || !md->value)))
        return aril__fail(ARIL_ERR_ARG, "%s: %d entries of metadata, whose list is %s", what, md->n,
                          md->n < 0 ? "empty" : "NULL");
    for (int i = 0; i < md->n; i++) {
        if (!md->key[i])
            return aril__fail(ARIL_ERR_ARG, "%s: key %d of the metadata is NULL", what, i);
        for (int k = 0; k < i; k++)
            if (strcmp(md->key[i], md->key[k]) == 0)
                return aril__fail(ARIL_ERR_ARG, "%s: the metadata have two entries \"%s\"", what,
                                  md->key[i]);
    }
    return ARIL_OK;
}

/* What would be read as no sizes, or as others. */
static aril_status check_sizes(const char *what, const aril_export_opts *o)
{
    if (o->batch && (o->sizes || o->n_sizes))
        return aril__fail(ARIL_ERR_ARG,
                          "%s: .batch opens the first size of every input; leave out .sizes, or "
                          "open that size there",
                          what);
    if (o->n_sizes < 0 || (o->n_sizes && !o->sizes))
        return aril__fail(ARIL_ERR_ARG, "%s: n_sizes is %d, and sizes are %s", what, o->n_sizes,
                          o->sizes ? "given" : "NULL");
    if (o->n_size_names < 0 || (o->n_size_names && !o->size_names))
        return aril__fail(ARIL_ERR_ARG, "%s: n_size_names is %d, and size_names are %s", what,
                          o->n_size_names, o->size_names ? "given" : "NULL");
    return ARIL_OK;
}

static aril_status check(const char *what, const void *of, aril_list in, const char *path,
                         const aril_export_opts *o)
{
    if (!of || !path || in.n < 0 || (in.n && !in.at))
        return aril__fail(ARIL_ERR_ARG, "%s: the %s is NULL", what,
                          !of    ? "module, program or list"
                          : path ? "list"
                                 : "path");
    for (int i = 0; i < in.n && o->inputs; i++)
        if (!o->inputs[i] || !*o->inputs[i])
            return aril__fail(ARIL_ERR_ARG, "%s: the name of input %d is %s", what, i,
                              o->inputs[i] ? "empty" : "NULL");
    if (o->name && !*o->name)
        return aril__fail(ARIL_ERR_ARG, "%s: the name of the graph is empty", what);
    if (o->metadata && check_metadata(what, o->metadata) < 0) return ARIL_ERR_ARG;
    if (o->opset && (o->opset < OLDEST || o->opset > NEWEST))
        return aril__fail(ARIL_ERR_ARG, "%s: operator set %d, expected %d to %d", what, o->opset,
                          OLDEST, NEWEST);
    return ARIL_OK;
}

/* One shape for each input whose first size is open. */
static aril_shape *open_batch(aril_list in)
{
    aril_shape *sizes = aril__calloc(((size_t)in.n + 1) * sizeof *sizes);
    for (int i = 0; sizes && i < in.n; i++) {
        sizes[i] = aril_shape_of(in.at[i]);
        if (sizes[i].ndim) sizes[i].dim[0] = -2;
    }
    if (!sizes) aril__fail(ARIL_ERR_MEMORY, "export: out of memory");
    return sizes;
}

/* Copies do not share memory, so that each is an input of its own. */
static aril_status copy_inputs(const char *what, aril_list in, aril_tensor **to)
{
    for (int i = 0; i < in.n; i++) {
        aril_status s = aril__check_value(what, in.at[i]);
        if (s < 0) return s;
        to[i] = aril_copy(aril_detach(in.at[i]));
        if ((s = aril_tensor_status(to[i])) < 0) return s;
        if (aril_requires_grad(in.at[i]) && (s = aril_set_requires_grad(to[i], true)) < 0) return s;
    }
    return ARIL_OK;
}

static aril_status trace_program(job *j, aril_list in)
{
    ARIL_SCOPE;
    const aril_export_opts *o = j->opts;
    if (check_sizes(j->what, o) < 0) return ARIL_ERR_ARG;
    aril_tensor **copy = aril__calloc(((size_t)in.n + 1) * sizeof *copy);
    aril_shape *batch = o->batch ? open_batch(in) : NULL;
    aril_status s = copy && (batch || !o->batch) ? copy_inputs(j->what, in, copy)
                                                 : aril__fail(ARIL_ERR_MEMORY, "out of memory");
    j->given = (aril_list){ in.n, copy };
    if (s == ARIL_OK)
        s = aril__program_look_sized(j->program, j->given, batch ? batch : o->sizes,
                                     batch ? in.n : o->n_sizes, export_it, j);
    free(copy);
    free(batch);
    return s == ARIL_OK ? j->status : s;
}

/* The sizes that a model is written with, as those of the options or with an open batch. */
static aril_shape *sizes_of(const job *j, aril_list in)
{
    const aril_export_opts *o = j->opts;
    aril_shape *sizes =
        o->batch ? open_batch(in) : aril__calloc(((size_t)in.n + 1) * sizeof *sizes);
    for (int i = 0; sizes && i < in.n && !o->batch; i++)
        sizes[i] = o->sizes && i < o->n_sizes ? o->sizes[i] : aril_shape_of(in.at[i]);
    if (!sizes) aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", j->what);
    return sizes;
}

static aril_status rewrite_program(job *j, aril_list in)
{
    static const char *const batch[] = { "batch" };
    const aril_export_opts *o = j->opts;
    aril_shape *sizes = sizes_of(j, in);
    int opset = o->opset ? o->opset : DEFAULT_OPSET;
    onnx_rewriting to = { .what = j->what,
                          .opset = opset,
                          .ir = aril__export_ir_version(opset),
                          .inputs = o->inputs,
                          .outputs = o->outputs,
                          .sizes = sizes,
                          .n_sizes = in.n,
                          .size_names = o->batch ? batch : o->size_names,
                          .n_size_names = o->batch ? 1 : o->n_size_names };
    onnx_model *m = NULL;
    aril__message *file = NULL;
    aril_status s = sizes ? aril__onnx_rewrite(j->source, &to, &m, &file) : aril__latest_status();
    if (s == ARIL_OK) {
        aril__message_set_text(aril__message_set_sub(file, "graph"), "name", j->name);
        s = save_message(file, j);
    }
    aril__onnx_model_free(m);
    free(sizes);
    return s;
}

/* A model that was loaded need not be a graph without what only a run knows: such a one is written
 * node by node. */
static aril_status export_program(job *j, aril_list in)
{
    if (!j->source) return trace_program(j, in);
    aril__saved_errors before = aril__errors_begin_quiet();
    aril_status s = trace_program(j, in), t = s;
    aril__error *why = aril__errors_end(&before), *other = NULL;
    if (s == ARIL_ERR_STATE || s == ARIL_ERR_UNSUPPORTED) {
        before = aril__errors_begin_quiet();
        t = rewrite_program(j, in);
        other = aril__errors_end(&before);
    }
    if (t < 0 && why && other)
        aril__fail(s, "%.*s; nor can it be written node by node: %.*s",
                   (int)(why->text ? why->text : strlen(why->message)), why->message,
                   (int)(other->text ? other->text : strlen(other->message)), other->message);
    else if (t < 0 && why)
        aril__raise_error(why);
    aril__error_release(why);
    aril__error_release(other);
    return t < 0 ? s : t;
}

/* The name of the graph that it was loaded from. */
static const char *own_name(const job *j, const char *otherwise)
{
    const char *name = j->source ? j->source->main.name : "";
    return *name ? name : otherwise;
}

aril_status aril_program_export(const aril_program *p, aril_list inputs, const char *path,
                                aril_export_opts opts)
{
    aril_status s = check("program_export", p, inputs, path, &opts);
    if (s < 0) return s;
    job j = { .what = "program_export",
              .path = path,
              .opts = &opts,
              .program = p,
              .source = aril__onnx_of_program(p) };
    j.name = opts.name ? opts.name : own_name(&j, base_name(aril__program_name(p)));
    return export_program(&j, inputs);
}

/* ---- modules ---- */

typedef struct forward_call {
    aril_module *m;
    int n_in;
} forward_call;

enum { MAX_RESULTS = 64 };

static void forward(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    forward_call *c = ctx;
    aril_list all = { c->n_in, (aril_tensor **)(uintptr_t)in };
    if (aril_forward_all(c->m, all, MAX_RESULTS, out) < 0)
        memset(out, 0, MAX_RESULTS * sizeof *out);
}

/* The modes of a module and its descendants. */
typedef struct modes {
    aril_module **module;
    bool *training;
    size_t n, capacity;
    bool failed;
} modes;

static void note_mode(aril_module *m, const char *path, void *ctx)
{
    (void)path;
    modes *s = ctx;
    if (s->n == s->capacity) {
        size_t more = 2 * s->capacity + 16;
        aril_module **module = aril__realloc(s->module, more * sizeof *module);
        if (module) s->module = module;
        bool *training = module ? aril__realloc(s->training, more * sizeof *training) : NULL;
        if (training) s->training = training;
        s->failed |= !training;
        if (!training) return;
        s->capacity = more;
    }
    s->module[s->n] = m;
    s->training[s->n++] = aril_module_training(m);
}

static void restore_modes(modes *s)
{
    while (s->n-- > 0) /* parents first, as children follow them */
        if (s->training[s->n])
            aril_module_train(s->module[s->n]);
        else
            aril_module_eval(s->module[s->n]);
    free(s->module);
    free(s->training);
}

static aril_status export_module(job *j, aril_module *m, aril_list inputs)
{
    ARIL_NO_GRAD;
    forward_call c = { .m = m, .n_in = inputs.n };
    aril_jit_opts opts = { .name = j->name, .max_results = MAX_RESULTS };
    aril_program *p = aril_jit(forward, &c, opts);
    if (!p) return aril__latest_status();
    modes before = { 0 };
    aril_status s = aril_module_visit(m, note_mode, &before);
    if (s == ARIL_OK && before.failed)
        s = aril__fail(ARIL_ERR_MEMORY, "module_export: out of memory");
    j->program = p;
    if (s == ARIL_OK) {
        aril_module_eval(m);
        s = export_program(j, inputs);
    }
    restore_modes(&before);
    aril_program_free(p);
    return s;
}

aril_status aril_module_export(aril_module *m, aril_list inputs, const char *path,
                               aril_export_opts opts)
{
    aril_status s = check("module_export", m, inputs, path, &opts);
    if (s == ARIL_OK && !aril_module_built(m)) s = aril_module_build_n(m, inputs);
    if (s < 0) return s;
    job j = { .what = "module_export",
              .path = path,
              .opts = &opts,
              .state = aril_state(m),
              .source = aril__onnx_of_module(m) };
    j.name = opts.name ? opts.name : own_name(&j, aril_module_type(m));
    return j.state ? export_module(&j, m, inputs) : aril__latest_status();
}

aril_status aril_graph_export(aril_list inputs, aril_list outputs, aril_list updates,
                              const char *path, aril_export_opts opts)
{
    aril_status s =
        check("graph_export", outputs.n > 0 || updates.n > 0 ? &opts : NULL, inputs, path, &opts);
    if (s < 0) return s;
    opts.sizes = NULL;
    opts.n_sizes = 0;
    opts.batch = false;
    job j = { .what = "graph_export",
              .path = path,
              .name = opts.name ? opts.name : "graph",
              .opts = &opts,
              .n_in = inputs.n };
    s = aril__graph_look_part(inputs, outputs, updates, export_part, &j);
    return s == ARIL_OK ? j.status : s;
}
