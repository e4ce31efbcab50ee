/* Running the nodes of a model by calling operations. */
#include "core/clock.h"
#include "core/thread.h"
#include "graph/trace.h"
#include "onnx/rules.h"
#include "ops/table/apply.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- slots ---- */

static void clear(onnx_value *v)
{
    if (v->kind == ONNX_TENSOR) aril_release(v->tensor);
    *v = (onnx_value){ 0 };
}

static void set(onnx_value *to, onnx_value v)
{
    if (v.kind == ONNX_TENSOR) aril_keep(v.tensor);
    clear(to);
    *to = v;
}

/* Sets a value that a Gradient node may differentiate with respect to. */
static void put(onnx_run *run, onnx_slot slot, onnx_value v)
{
    ARIL_SCOPE;
    if (run->model->tracked[slot] && v.kind == ONNX_TENSOR && !aril_requires_grad(v.tensor)) {
        v.tensor = aril_detach(v.tensor);
        v.known = false;
        aril_set_requires_grad(v.tensor, true);
    }
    set(&run->slot[slot], v);
}

static onnx_value get(const onnx_run *run, onnx_slot slot)
{
    return run->slot[slot].kind ? run->slot[slot] : run->model->initial[slot];
}

/* ---- calls ---- */

static bool all_known(const onnx_call *c)
{
    for (int i = 0; i < c->n_in; i++)
        if (c->in[i].kind != ONNX_NONE && !c->in[i].known) return false;
    return true;
}

/* "model.onnx: node first Conv", for errors. */
static const char *name_node(const onnx_run *run, const onnx_node *n, char to[400])
{
    const char *name = aril__message_text(n->message, "name"), *path = run->model->path;
    size_t length = strlen(path), most = 200;
    snprintf(to, 400, "%s: node %.100s%s%.60s", path + (length > most ? length - most : 0), name,
             *name ? " " : "", aril__message_text(n->message, "op_type"));
    return to;
}

/* Names the node in an error, unless there was one before. */
static aril__cold aril_status blame(const onnx_run *run, const onnx_node *n, aril_status s,
                                    bool was_ok)
{
    char text[400];
    if (!was_ok || aril_ok()) return s;
    if (strstr(aril_error(), ": node ")) return s; /* of a body */
    return aril__fail_about(s, name_node(run, n, text));
}

static aril_status call_function(onnx_call *c)
{
    const onnx_body *body = c->node->body;
    onnx_value *out = aril__onnx_alloc(&c->run->arena, body->n_out, sizeof *out);
    if (!out) return ARIL_ERR_MEMORY;
    aril_status s = aril__onnx_run_body(c->run, body, (size_t)c->n_in, c->in, out);
    for (size_t i = 0; i < body->n_out && s == ARIL_OK; i++) s = give_value(c, (int)i, out[i]);
    return s;
}

/* A size that only the run tells. */
static bool has_unknown_size(const onnx_value *v)
{
    return v->kind == ONNX_TENSOR && aril_numel(v->tensor) < 0;
}

static bool moves_texts(const onnx_call *c)
{
    bool texts = false;
    for (int i = 0; i < c->n_in; i++) texts |= c->in[i].kind == ONNX_TEXT;
    return texts && (c->node->rule->flags & ONNX_MOVES);
}

/* Whether sizes that only the run tells reach the rule: as integers, or those of its inputs where
 * the rule reads them. *takes: it can work with them; *shapes: its result has them. */
static bool meets_open_sizes(const onnx_call *c, bool *takes, bool *shapes)
{
    int flags = c->node->rule->flags;
    bool open = false;
    *takes = true;
    *shapes = false;
    for (int i = 0; i < c->n_in && c->run->open; i++) {
        if (!c->in[i].sizes && !(flags & ONNX_SIZES && has_unknown_size(&c->in[i]))) continue;
        int input = i < 3 ? i : 3;
        bool shape = flags & ONNX_SHAPE_0 << input;
        open = true;
        *takes &= shape || (flags & ONNX_OPEN_0 << input);
        *shapes |= shape;
    }
    return open;
}

#define OPEN_SIZES "computes with sizes that are left open; they must be known"

aril_status aril__onnx_open_error(const onnx_call *c)
{
    (void)c;
    return aril__fail(ARIL_ERR_STATE, OPEN_SIZES);
}

aril_status aril__onnx_known_sizes(const onnx_call *c, const aril_tensor *x, int from)
{
    for (int d = from; d < aril_ndim(x); d++)
        if (x->dim[d] < 0) return aril__onnx_open_error(c);
    return ARIL_OK;
}

/* A trace that has to hold for all values cannot go on. */
static aril__cold aril_status refuse_dynamic(const onnx_call *c)
{
    bool takes = true, shapes;
    if (c->node->rule && !c->opened) meets_open_sizes(c, &takes, &shapes);
    if (!takes || c->opened) return aril__onnx_open_error(c);
    for (int i = 0; i < c->n_in; i++)
        if (c->in[i].kind != ONNX_NONE && c->in[i].kind != ONNX_TENSOR)
            return aril__fail(ARIL_ERR_UNSUPPORTED,
                              "works on strings, sequences or maps, which a graph does not have");
    bool open = false, known = true;
    for (int i = 0; i < c->n_in; i++) {
        open |= has_unknown_size(&c->in[i]);
        known &= i == 0 || c->in[i].kind == ONNX_NONE || c->in[i].known;
    }
    if (open && known && c->run->open)
        return aril__fail(ARIL_ERR_STATE,
                          "depends on sizes that are left open; they must be known");
    return aril__fail(ARIL_ERR_STATE,
                      "needs a value that only a run knows, so that it cannot be part of a graph");
}

static const char *type_name(const onnx_value *v)
{
    enum { STRING = 8 };
    return aril__onnx_dtype_name(
        v->kind == ONNX_TEXT ? STRING : aril__onnx_dtype_number(aril_dtype_of(v->tensor)));
}

/* Inputs of one letter have the same type. Autocast computes some values in another. */
static aril_status check_types(const onnx_call *c)
{
    const onnx_type_row *row = c->node->types;
    int first[26], none = -1;
    if (!row || aril__self()->mode.autocast) return ARIL_OK;
    for (int i = 0; i < 26; i++) first[i] = none;
    for (int i = 0; i < c->n_in; i++) {
        const onnx_value *v = &c->in[i];
        char letter = aril__onnx_type_letter(row->in, i);
        if (letter == '.' || (v->kind != ONNX_TENSOR && v->kind != ONNX_TEXT)) continue;
        int *k = &first[letter - 'A'];
        if (*k == none) *k = i;
        const onnx_value *w = &c->in[*k];
        if (w->kind == v->kind &&
            (v->kind == ONNX_TEXT || aril_dtype_of(w->tensor) == aril_dtype_of(v->tensor)))
            continue;
        return aril__onnx_fail(c, ARIL_ERR_DTYPE,
                               "inputs %d and %d have the types %s and %s, expected the same", *k,
                               i, type_name(w), type_name(v));
    }
    return ARIL_OK;
}

/* Whether some integers of a known tensor stand for unknown sizes. */
static bool holds_sizes(onnx_call *c, const onnx_value *v)
{
    const void *at;
    if (v->kind != ONNX_TENSOR || aril_dtype_of(v->tensor) != ARIL_I64 ||
        aril__onnx_host(c, v->tensor, ARIL_I64, &at) != ARIL_OK)
        return false;
    bool some = false;
    for (int64_t i = 0; i < aril_numel(v->tensor); i++)
        some |= aril__size_is_named(((const int64_t *)at)[i]);
    return some;
}

/* Where only types matter, a node on known values is recorded first, which takes no memory: its
 * results stay so if one is large. False: it is to be computed. */
static bool stays_recorded(onnx_call *c, aril_status *s)
{
    enum { LARGE = 1 << 20 }; /* elements */
    bool large = false;
    for (int i = 0; i < c->n_in; i++)
        if (c->in[i].kind != ONNX_TENSOR && c->in[i].kind != ONNX_NONE) return false;
    ARIL_SCOPE;
    c->host = false;
    *s = c->node->rule->convert(c);
    for (int i = 0; i < c->n_out && *s == ARIL_OK; i++)
        if (c->out[i].kind == ONNX_TENSOR) {
            *s = aril_tensor_status(c->out[i].tensor);
            large |= *s == ARIL_OK && aril_numel(c->out[i].tensor) > LARGE;
        }
    bool ends = *s < 0 || (*s == ARIL_OK && large);
    for (int i = 0; i < c->n_out; i++) {
        if (*s == ARIL_OK && large && c->out[i].kind == ONNX_TENSOR)
            aril_keep(c->out[i].tensor);
        else
            c->out[i] = (onnx_value){ 0 };
    }
    return ends;
}

/* Runs the rule, on concrete values if all are known. */
static aril_status run_rule(onnx_call *c)
{
    const onnx_rule *rule = c->node->rule;
    bool bodies = rule->flags & ONNX_BODIES, sizes = rule->flags & ONNX_SIZES;
    bool takes, shapes, open = meets_open_sizes(c, &takes, &shapes);
    if (!takes) return ARIL__ONNX_DYNAMIC;
    bool known = !shapes && !(rule->flags & (ONNX_RANDOM | ONNX_BODIES)) && (sizes || all_known(c));
    aril__pause pause = { 0 };
    aril_status s;
    if (known && c->run->types && stays_recorded(c, &s)) return s;
    c->host = known;
    if (known && c->run->tracing) pause = aril__trace_pause();
    {
        ARIL_SCOPE;
        s = moves_texts(c) ? aril__onnx_move_texts(c) : rule->convert(c);
        for (int i = 0; i < c->n_out; i++) {
            if (c->out[i].kind != ONNX_TENSOR) continue;
            /* Views of a tensor in several memory orders would be one state of the trace. */
            if (s == ARIL_OK && known && c->run->tracing)
                c->out[i].tensor = aril_contiguous(c->out[i].tensor);
            if (s == ARIL_OK) s = aril_tensor_status(c->out[i].tensor);
            if (s == ARIL_OK)
                aril_keep(c->out[i].tensor);
            else
                c->out[i].kind = ONNX_NONE; /* the caller releases the others */
        }
    }
    if (known && c->run->tracing) aril__trace_resume(pause);
    for (int i = 0; i < c->n_out && !bodies; i++) {
        c->out[i].known = known;
        c->out[i].sizes = known && open && s == ARIL_OK && holds_sizes(c, &c->out[i]);
        if (known && open && s == ARIL_OK && c->out[i].kind == ONNX_TENSOR &&
            !(rule->flags & ONNX_TELLS) && aril_dtype_of(c->out[i].tensor) != ARIL_I64)
            s = ARIL__ONNX_DYNAMIC; /* the numbers that stand for sizes need 64 bits */
    }
    return s;
}

/* Integers that stand for sizes become tensors of the trace: the rule computes with them as with
 * any other value. False: there are none, or no memory. */
static bool open_inputs(onnx_call *c)
{
    bool some = false;
    for (int i = 0; i < c->n_in && c->run->open; i++) some |= c->in[i].sizes;
    onnx_value *in = some ? aril__onnx_alloc(&c->run->arena, (size_t)c->n_in, sizeof *in) : NULL;
    if (!in) return false;
    for (int i = 0; i < c->n_in; i++) {
        in[i] = c->in[i];
        if (!in[i].sizes) continue;
        in[i].tensor = aril__onnx_open_tensor(c, in[i].tensor);
        in[i].known = in[i].sizes = false;
    }
    c->in = in;
    return c->opened = true;
}

static aril_status convert(onnx_call *c)
{
    const onnx_rule *rule = c->node->rule;
    if (!rule) return call_function(c);
    for (int i = 0; i < c->n_in; i++) /* a function may have been called without an input */
        if (c->in[i].kind == ONNX_NONE && aril__onnx_requires(c->node->takes, i))
            return aril__onnx_fail(c, ARIL_ERR_ARG, "input %d is missing", i);
    aril_status s = check_types(c);
    if (s < 0) return s;
    ARIL_SCOPE;
    s = run_rule(c);
    if (s != ARIL__ONNX_DYNAMIC || rule->flags & ONNX_BODIES || !open_inputs(c)) return s;
    for (int i = 0; i < c->n_out; i++) {
        if (c->out[i].kind == ONNX_TENSOR) aril_release(c->out[i].tensor);
        c->out[i] = (onnx_value){ 0 };
    }
    return run_rule(c);
}

static aril_status run_node(onnx_run *run, const onnx_node *n)
{
    onnx_value few[16] = { 0 }, *v = few;
    if (n->n_in + n->n_out > 16 && !(v = aril__calloc((n->n_in + n->n_out) * sizeof *v)))
        return aril__fail(ARIL_ERR_MEMORY, "onnx: out of memory");
    bool was_ok = aril_ok();
    const aril__error *before_it = aril__self()->last_error;
    onnx_call c = { .run = run,
                    .node = n,
                    .version = n->version,
                    .n_in = (int)n->n_in,
                    .n_out = (int)n->n_out,
                    .in = v,
                    .out = v + n->n_in };
    for (size_t i = 0; i < n->n_in; i++)
        if (n->in[i]) v[i] = get(run, n->in[i]);
    char label[400];
    const char *before = run->tracing ? aril__trace_label(name_node(run, n, label)) : NULL;
    aril_status s = convert(&c);
    if (run->tracing) aril__trace_label(before);
    const aril__error *after = aril__self()->last_error;
    if (s == ARIL_OK && after && after != before_it) s = after->code;
    for (size_t i = 0; i < n->n_out; i++) {
        if (s == ARIL_OK && n->out[i]) {
            if (c.out[i].kind == ONNX_NONE)
                s = aril__fail(ARIL_ERR_UNSUPPORTED, "output %zu is not supported", i);
            if (s == ARIL_OK && run->tracing && !run->open && has_unknown_size(&c.out[i]))
                s = ARIL__ONNX_DYNAMIC;
            if (s == ARIL_OK) put(run, n->out[i], c.out[i]);
        }
        if (n->rule && c.out[i].kind == ONNX_TENSOR) aril_release(c.out[i].tensor);
    }
    if (s == ARIL__ONNX_DYNAMIC && run->whole) s = refuse_dynamic(&c);
    if (s < 0 && aril__self()->last_error == before_it) /* a failure is never without an error */
        aril__fail(s, "failed: %s", aril_status_text(s));
    for (size_t i = 0; i < n->n_last; i++) clear(&run->slot[n->last[i]]);
    if (v != few) free(v);
    return s < 0 ? blame(run, n, s, was_ok) : s;
}

/* ---- types ---- */

/* Values of a body that runs several times may have several types. */
static void note_again(onnx_type *t, const onnx_type *now)
{
    if (t->kind != now->kind || t->elem != now->elem || t->ndim != now->ndim) {
        *t = (onnx_type){ 0 };
        return;
    }
    for (int d = 0; d < t->ndim; d++)
        if (t->dim[d] != now->dim[d]) t->dim[d] = -1;
}

static void note_type(onnx_type *t, const onnx_value *v)
{
    enum { STRING = 8 };
    onnx_type now = { .kind = v->kind };
    aril_shape shape = { 0 };
    if (v->kind == ONNX_TENSOR) {
        now.elem = aril__onnx_dtype_number(aril_dtype_of(v->tensor));
        shape = aril_shape_of(v->tensor);
    } else if (v->kind == ONNX_TEXT) {
        now.elem = STRING;
        shape = v->text->shape;
    }
    now.ndim = shape.ndim;
    for (int d = 0; d < shape.ndim; d++) now.dim[d] = shape.dim[d];
    if (t->kind)
        note_again(t, &now);
    else
        *t = now;
}

/* Runs a node to learn the types of its results. Where that fails, they stay unknown, and with them
 * those of what is computed from them. */
static void infer_node(onnx_run *run, const onnx_node *n)
{
    onnx_type *of = run->types->of;
    bool missing = false;
    for (size_t i = 0; i < n->n_in; i++) missing |= of[n->in[i]].missing;
    aril_status s = missing ? ARIL__ONNX_DYNAMIC : run_node(run, n);
    for (size_t i = 0; i < n->n_out; i++) {
        onnx_slot slot = n->out[i];
        if (!slot) continue;
        if (s == ARIL_OK)
            note_type(&of[slot], &run->slot[slot]);
        else
            of[slot] = (onnx_type){ .missing = true };
    }
    bool told = s == ARIL_ERR_SHAPE || s == ARIL_ERR_DTYPE || s == ARIL_ERR_ARG;
    if (told && !*run->types->why) aril__error_text(run->types->why, sizeof run->types->why);
    if (s < 0) aril_clear_error();
}

static void note_time(const onnx_run *run, size_t i, double start)
{
    const onnx_node *n = &run->model->main.node[i];
    aril_synchronize(run->model->device);
    run->times->seconds[i] = aril__seconds() - start;
    run->times->type[i] = (onnx_type){ 0 };
    if (n->n_out) note_type(&run->times->type[i], &run->slot[n->out[0]]);
}

static aril_status run_nodes(onnx_run *run, const onnx_body *body)
{
    aril__thread *th = aril__self();
    for (size_t i = 0; i < body->n_nodes; i++) {
        const onnx_node *n = &body->node[i];
        aril_status s = ARIL_OK;
        bool timed = run->times && body == &run->model->main;
        double start = timed ? aril__seconds() : 0;
        const char *outer = th->path;
        if (run->tracing) th->path = n->path;
        if (run->types)
            infer_node(run, n);
        else
            s = run_node(run, n);
        th->path = outer;
        if (timed) note_time(run, i, start);
        if (s != ARIL_OK) return s;
    }
    return ARIL_OK;
}

aril_status aril__onnx_run_body(onnx_run *run, const onnx_body *body, size_t n_in,
                                const onnx_value *in, onnx_value *out)
{
    if (n_in > body->n_in)
        return aril__fail(ARIL_ERR_FORMAT, "onnx: %s takes %zu inputs, got %zu", body->name,
                          body->n_in, n_in);
    for (size_t i = 0; i < body->n_in; i++)
        set(&run->slot[body->in[i]], i < n_in ? in[i] : (onnx_value){ 0 });
    for (size_t i = 0; i < body->n_in && run->types; i++)
        note_type(&run->types->of[body->in[i]], &run->slot[body->in[i]]);
    aril_status s = run_nodes(run, body);
    for (size_t i = 0; i < body->n_out && s == ARIL_OK; i++) {
        if (run->types && run->types->of[body->out[i]].missing) return ARIL__ONNX_DYNAMIC;
        out[i] = get(run, body->out[i]);
        if (out[i].kind == ONNX_TENSOR && !aril__onnx_keep(&run->arena, out[i].tensor))
            s = ARIL_ERR_MEMORY;
    }
    return s;
}

/* ---- the model ---- */

static aril__cold aril_status wrong_input(const onnx_model *m, const onnx_port *port,
                                          const char *expected, const char *got)
{
    return aril__fail(ARIL_ERR_ARG, "%s: input %s: expected %s, got %s", m->path, port->name,
                      expected, got);
}

static aril_status check_sizes(const onnx_model *m, const onnx_port *port,
                               const aril__message *type, aril_shape got)
{
    const aril__message *shape = aril__message_sub(type, "shape");
    size_t n = aril__message_count(shape, "dim");
    bool fits = !aril__message_has(type, "shape") || n == (size_t)got.ndim, batch = fits;
    for (size_t i = 0; i < n && fits && aril__message_has(type, "shape"); i++) {
        const aril__message *dim = aril__message_sub_at(shape, "dim", i);
        int64_t want;
        bool one = !aril__onnx_declared_size(dim, &want) || got.dim[i] < 0 || want == got.dim[i];
        batch = batch && (one || i == 0); /* all but the first */
        fits = one || (i == 0 && m->batch && want == m->batch);
    }
    if (fits) return ARIL_OK;
    aril__bytes want = { 0 }, have = { 0 };
    for (size_t i = 0; i < n; i++) {
        const aril__message *dim = aril__message_sub_at(shape, "dim", i);
        int64_t size;
        aril__bytes_print(&want, "%s", i ? "," : "");
        if (aril__onnx_declared_size(dim, &size))
            aril__bytes_print(&want, "%" PRId64, size);
        else
            aril__bytes_print(&want, "%s",
                              *aril__message_text(dim, "dim_param")
                                  ? aril__message_text(dim, "dim_param")
                                  : "?");
    }
    for (int i = 0; i < got.ndim; i++)
        aril__bytes_print(&have, "%s%" PRId64, i ? "," : "", got.dim[i]);
    aril_status s =
        aril__fail(ARIL_ERR_SHAPE, "%s: input %s: expected sizes [%s], got [%s]%s", m->path,
                   port->name, want.at ? (const char *)want.at : "",
                   have.at ? (const char *)have.at : "",
                   batch ? "; .open_batch of aril_load_opts allows any number of samples" : "");
    aril__bytes_free(&want);
    aril__bytes_free(&have);
    return s;
}

aril_status aril__onnx_check_input(const onnx_model *m, const onnx_port *port, const onnx_value *v)
{
    if (aril__message_has(port->type, "optional_type")) return ARIL_OK;
    if (aril__message_has(port->type, "sequence_type"))
        return v->kind == ONNX_SEQUENCE ? ARIL_OK : wrong_input(m, port, "a sequence", "a tensor");
    if (aril__message_has(port->type, "map_type"))
        return v->kind == ONNX_MAP ? ARIL_OK : wrong_input(m, port, "a map", "another value");
    if (!aril__message_has(port->type, "tensor_type")) return ARIL_OK;
    const aril__message *type = aril__message_sub(port->type, "tensor_type");
    int64_t elem = aril__message_int(type, "elem_type");
    if (v->kind == ONNX_TEXT)
        return elem == 8 ? ARIL_OK : wrong_input(m, port, aril__onnx_dtype_name(elem), "strings");
    if (v->kind != ONNX_TENSOR) return wrong_input(m, port, "a tensor", "another kind of value");
    aril_status s = aril_tensor_status(v->tensor);
    aril_dtype dtype;
    if (s < 0) return s;
    if (!aril__onnx_dtype(elem, &dtype) || dtype != aril_dtype_of(v->tensor))
        return wrong_input(m, port, aril__onnx_dtype_name(elem),
                           aril_dtype_name(aril_dtype_of(v->tensor)));
    return check_sizes(m, port, type, aril_shape_of(v->tensor));
}

/* The size of dimension d of an input, if the model gives it a name. */
static const char *named_size(const onnx_port *port, const onnx_value *v, int d, int64_t *size)
{
    const aril__message *shape =
        aril__message_sub(aril__message_sub(port->type, "tensor_type"), "shape");
    if (v->kind != ONNX_TENSOR || (size_t)d >= aril__message_count(shape, "dim")) return NULL;
    const char *name =
        aril__message_text(aril__message_sub_at(shape, "dim", (size_t)d), "dim_param");
    *size = aril_size(v->tensor, d);
    return *name && *size >= 0 ? name : NULL;
}

/* Sizes of one name are equal. */
static aril_status check_names(const onnx_model *m, size_t i, const onnx_value *in)
{
    int64_t here, there;
    for (int d = 0; d < ARIL_MAX_DIMS; d++) {
        const char *name = named_size(&m->in[i], &in[i], d, &here);
        for (size_t k = 0; k <= i && name; k++)
            for (int e = 0; e < ARIL_MAX_DIMS; e++) {
                const char *other = named_size(&m->in[k], &in[k], e, &there);
                if (!other || strcmp(name, other) != 0 || here == there) continue;
                return aril__fail(ARIL_ERR_SHAPE,
                                  "%s: input %s: the size %s is %" PRId64 ", but %" PRId64
                                  " in input %s",
                                  m->path, m->in[i].name, name, here, there, m->in[k].name);
            }
    }
    return ARIL_OK;
}

static aril_status set_inputs(onnx_run *run, size_t n_in, const onnx_value *in)
{
    onnx_model *m = run->model;
    if (n_in < (size_t)m->n_required || n_in > (size_t)m->n_in)
        return aril__fail(ARIL_ERR_ARG, "%s: got %zu inputs, expected %d%s%s", m->path, n_in,
                          m->n_required, n_in < (size_t)m->n_required ? ": the next one is " : "",
                          n_in < (size_t)m->n_required ? m->in[n_in].name : "");
    for (size_t i = 0; i < n_in; i++) {
        aril_status s = aril__onnx_check_input(m, &m->in[i], &in[i]);
        if (s == ARIL_OK) s = check_names(m, i, in);
        if (s < 0) return s;
        put(run, m->in[i].slot, in[i]);
    }
    if (m->batch && n_in && in[0].kind == ONNX_TENSOR && aril_ndim(in[0].tensor) > 0 &&
        aril_size(in[0].tensor, 0) != m->batch)
        run->batch = aril_size(in[0].tensor, 0);
    return ARIL_OK;
}

/* Whether something that the model reads requires a gradient. */
static bool is_recorded(const onnx_model *m, size_t n_in, const onnx_value *in)
{
    bool needs = false;
    if (aril__self()->mode.no_grad) return false;
    for (size_t i = 0; i < n_in; i++)
        needs |= in[i].kind == ONNX_TENSOR && aril_requires_grad(in[i].tensor);
    for (size_t i = 1; i < m->n_slots; i++)
        needs |= m->tracked[i] ||
                 (m->initial[i].kind == ONNX_TENSOR && aril_requires_grad(m->initial[i].tensor));
    return needs;
}

/* In printed graphs and exported models, initializers have their names. */
static void name_initializers(const onnx_model *m)
{
    for (size_t i = 1; i < m->n_slots; i++) {
        if (m->initial[i].kind == ONNX_TENSOR) aril__trace_name(m->initial[i].tensor, m->name[i]);
        if (m->moved[i]) aril__trace_name(m->moved[i], m->name[i]);
    }
}

/* A rule needs a value. It may be that of an input of one integer: then traces are made for such
 * values. Where that did not help, the model is interpreted. */
static void note_dynamic(onnx_model *m, size_t n_in, const onnx_value *in)
{
    bool known = false, small = false;
    for (size_t i = 0; i < n_in; i++) {
        if (in[i].kind != ONNX_TENSOR) continue;
        aril_dtype dtype = aril_dtype_of(in[i].tensor);
        known |= in[i].known;
        small |= aril_numel(in[i].tensor) == 1 && !aril_dtype_is_float(dtype);
    }
    atomic_store(small && !known ? &m->by_value : &m->dynamic, true);
}

/* What a run may hold on the host besides tensor data: a loop without an end must not use up the
 * memory of the machine. */
static size_t memory_limit(const onnx_model *m)
{
    if (m->max_memory) return m->max_memory;
    int64_t limit = aril__cpu_device->limit;
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGE_SIZE);
    if (limit > 0) return (size_t)limit;
    return pages > 0 && size > 0 ? (size_t)pages * (size_t)size : 0;
}

/* What errors say whose numbers were computed from sizes that are left open: the code is that of
 * rules. Returns what they said before. */
static const char *set_open_error(const char *text)
{
    aril__sizes *s = aril__self()->sizes;
    const char *before = s ? s->computed : NULL;
    if (s) s->computed = text;
    return before;
}

static aril_status run_model(onnx_model *m, onnx_arena *a, bool whole, size_t n_in,
                             const onnx_value *in, onnx_value *out, const onnx_times *times)
{
    onnx_run run = { .model = m, .tracing = aril__self()->tracer != NULL, .times = times };
    run.whole = run.open = whole && run.tracing;
    run.recorded = run.whole && is_recorded(m, n_in, in);
    run.arena.limit = memory_limit(m);
    run.slot = aril__calloc(m->n_slots * sizeof *run.slot);
    if (!run.slot) return aril__fail(ARIL_ERR_MEMORY, "onnx: out of memory");
    if (run.tracing) name_initializers(m);
    const char *before = set_open_error(run.open ? OPEN_SIZES : NULL);
    aril_status s = set_inputs(&run, n_in, in);
    if (s == ARIL_OK) s = run_nodes(&run, &m->main);
    set_open_error(before);
    for (int i = 0; i < m->n_out && s == ARIL_OK; i++) {
        out[i] = get(&run, m->out[i].slot);
        if (out[i].kind == ONNX_TENSOR) aril_adopt(aril_keep(out[i].tensor));
        if (out[i].sizes) { /* a result is no attribute */
            onnx_call c = { .run = &run };
            out[i].tensor = aril__onnx_open_tensor(&c, out[i].tensor);
            s = aril_tensor_status(out[i].tensor);
        }
    }
    for (size_t i = 0; i < m->n_slots; i++) clear(&run.slot[i]);
    free(run.slot);
    /* Texts and sequences of the results live on. */
    onnx_chunk **end = &run.arena.chunks;
    while (*end) end = &(*end)->next;
    *end = a->chunks;
    a->chunks = run.arena.chunks;
    run.arena.chunks = NULL;
    for (size_t i = 0; i < run.arena.n_kept && s == ARIL_OK; i++)
        if (!aril__onnx_keep(a, run.arena.kept[i])) s = ARIL_ERR_MEMORY;
    aril__onnx_arena_free(&run.arena);
    if (s == ARIL__ONNX_DYNAMIC) note_dynamic(m, n_in, in);
    return s;
}

aril_status aril__onnx_run(onnx_model *m, onnx_arena *a, bool whole, size_t n_in,
                           const onnx_value *in, onnx_value *out)
{
    return run_model(m, a, whole, n_in, in, out, NULL);
}

aril_status aril__onnx_run_timed(onnx_model *m, onnx_arena *a, size_t n_in, const onnx_value *in,
                                 onnx_value *out, const onnx_times *times)
{
    return run_model(m, a, false, n_in, in, out, times);
}

aril_status aril__onnx_infer_run(onnx_model *m, onnx_types *types, const onnx_value *in,
                                 bool tracing)
{
    onnx_run run = { .model = m, .types = types, .tracing = tracing, .open = tracing };
    run.arena.limit = m->max_memory;
    run.slot = aril__calloc(m->n_slots * sizeof *run.slot);
    if (!run.slot) return aril__fail(ARIL_ERR_MEMORY, "onnx: out of memory");
    for (int i = 0; i < m->n_required; i++) {
        onnx_type *t = &types->of[m->in[i].slot];
        put(&run, m->in[i].slot, in[i]);
        t->missing = in[i].kind == ONNX_NONE;
        if (!t->missing) note_type(t, &in[i]);
    }
    aril_status s = run_nodes(&run, &m->main);
    for (size_t i = 0; i < m->n_slots; i++) clear(&run.slot[i]);
    free(run.slot);
    aril__onnx_arena_free(&run.arena);
    return s;
}

/* ---- what rules read ---- */

aril_status aril__onnx_fail(const onnx_call *c, aril_status code, const char *fmt, ...)
{
    (void)c;
    char text[700];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return aril__fail(code, "%s", text);
}

aril_device aril__onnx_device(const onnx_call *c)
{
    return c->host ? aril_cpu() : c->run->model->device;
}

static bool same_device(aril_device a, aril_device b)
{
    return a.kind == b.kind && a.index == b.index;
}

/* A known tensor on the model's device; of an initializer, kept for later runs. */
static aril_tensor *moved(onnx_call *c, int i)
{
    onnx_model *m = c->run->model;
    aril_tensor *t = c->in[i].tensor;
    onnx_slot slot = c->node->in[i];
    bool keeps =
        m->initial[slot].kind == ONNX_TENSOR && m->initial[slot].tensor == t && !m->parameters;
    aril_tensor *there = keeps ? __atomic_load_n(&m->moved[slot], __ATOMIC_ACQUIRE) : NULL;
    if (there) return there;
    aril__pause pause = aril__onnx_pause(c);
    there = aril_to(t, m->device);
    if (keeps && aril_tensor_status(there) == ARIL_OK) {
        aril_tensor *other = NULL; /* another thread may have been faster */
        aril_keep(there);
        if (!__atomic_compare_exchange_n(&m->moved[slot], &other, there, false, __ATOMIC_ACQ_REL,
                                         __ATOMIC_ACQUIRE)) {
            aril_release(there);
            there = other;
        }
    }
    aril__onnx_resume(c, pause);
    return there;
}

aril_tensor *aril__onnx_in(onnx_call *c, int i)
{
    if (!given(c, i)) return NULL;
    if (c->in[i].kind != ONNX_TENSOR) {
        aril__onnx_fail(c, ARIL_ERR_DTYPE, "input %d is not a tensor of numbers", i);
        return aril_reshape(NULL, ARIL_SHAPE()); /* poisoned */
    }
    aril_tensor *t = c->in[i].tensor;
    if (!c->host && !is_symbolic(t) && !same_device(aril_device_of(t), c->run->model->device))
        return moved(c, i);
    return t;
}

aril_status aril__onnx_host(onnx_call *c, aril_tensor *t, aril_dtype as, const void **at)
{
    *at = NULL;
    if (is_symbolic(t)) return ARIL__ONNX_DYNAMIC;
    aril_status s = aril_tensor_status(t);
    if (s < 0) return s;
    size_t size = aril_dtype_size(as);
    void *buf = aril__onnx_alloc(&c->run->arena, (size_t)aril_numel(t), size);
    if (!buf) return ARIL_ERR_MEMORY;
    aril__pause pause = aril__onnx_pause(c);
    {
        ARIL_SCOPE;
        s = aril_read(aril_cast(t, as), buf);
    }
    aril__onnx_resume(c, pause);
    *at = buf;
    return s;
}

/* A value that a trace must not fix, because it is not the same in each run. */
static bool is_fixed(const onnx_call *c, int i)
{
    return !c->run->tracing || c->in[i].known;
}

aril_status aril__onnx_ints(onnx_call *c, int i, onnx_ints *out)
{
    const void *at;
    *out = (onnx_ints){ .n = -1 };
    if (!given(c, i)) return ARIL_OK;
    if (c->in[i].kind != ONNX_TENSOR)
        return aril__onnx_fail(c, ARIL_ERR_DTYPE, "input %d is not a tensor of numbers", i);
    if (!is_fixed(c, i)) return ARIL__ONNX_DYNAMIC;
    aril_status s = aril__onnx_host(c, c->in[i].tensor, ARIL_I64, &at);
    if (s != ARIL_OK) return s;
    int64_t n = aril_numel(c->in[i].tensor);
    *out = (onnx_ints){ n, aril__onnx_alloc(&c->run->arena, (size_t)n, sizeof(int64_t)) };
    if (!out->at) return ARIL_ERR_MEMORY;
    if (n) memcpy(out->at, at, (size_t)n * sizeof(int64_t));
    return ARIL_OK;
}

aril_status aril__onnx_floats(onnx_call *c, int i, onnx_floats *out)
{
    const void *at;
    *out = (onnx_floats){ .n = -1 };
    if (!given(c, i)) return ARIL_OK;
    if (c->in[i].kind != ONNX_TENSOR)
        return aril__onnx_fail(c, ARIL_ERR_DTYPE, "input %d is not a tensor of numbers", i);
    if (!is_fixed(c, i)) return ARIL__ONNX_DYNAMIC;
    aril_status s = aril__onnx_host(c, c->in[i].tensor, ARIL_F64, &at);
    if (s != ARIL_OK) return s;
    int64_t n = aril_numel(c->in[i].tensor);
    *out = (onnx_floats){ n, aril__onnx_alloc(&c->run->arena, (size_t)n, sizeof(double)) };
    if (!out->at) return ARIL_ERR_MEMORY;
    if (n) memcpy(out->at, at, (size_t)n * sizeof(double));
    return ARIL_OK;
}

aril_status aril__onnx_int_in(onnx_call *c, int i, int64_t otherwise, int64_t *out)
{
    onnx_ints v;
    aril_status s = aril__onnx_ints(c, i, &v);
    *out = otherwise;
    if (s != ARIL_OK || v.n < 0) return s;
    if (v.n != 1) return aril__onnx_fail(c, ARIL_ERR_SHAPE, "input %d must be one number", i);
    *out = v.at[0];
    return ARIL_OK;
}

aril_status aril__onnx_float_in(onnx_call *c, int i, double otherwise, double *out)
{
    onnx_floats v;
    aril_status s = aril__onnx_floats(c, i, &v);
    *out = otherwise;
    if (s != ARIL_OK || v.n < 0) return s;
    if (v.n != 1) return aril__onnx_fail(c, ARIL_ERR_SHAPE, "input %d must be one number", i);
    *out = v.at[0];
    return ARIL_OK;
}

/* ---- attributes ---- */

const aril__message *aril__onnx_attribute(const onnx_call *c, const char *name)
{
    for (size_t i = 0; i < c->node->n_attributes; i++)
        if (strcmp(c->node->attribute[i].name, name) == 0) return c->node->attribute[i].value;
    return NULL;
}

int64_t aril__onnx_attr_int(const onnx_call *c, const char *name, int64_t otherwise)
{
    const aril__message *a = aril__onnx_attribute(c, name);
    return a ? aril__message_int(a, "i") : otherwise;
}

double aril__onnx_attr_float(const onnx_call *c, const char *name, double otherwise)
{
    const aril__message *a = aril__onnx_attribute(c, name);
    return a ? aril__message_number(a, "f") : otherwise;
}

const char *aril__onnx_attr_text(onnx_call *c, const char *name, const char *otherwise)
{
    const aril__message *a = aril__onnx_attribute(c, name);
    if (!a) return otherwise;
    aril__slice s = aril__message_bytes(a, "s");
    char *copy = aril__onnx_alloc(&c->run->arena, s.n + 1, 1);
    if (!copy) return otherwise;
    if (s.n) memcpy(copy, s.at, s.n);
    return copy;
}

onnx_ints aril__onnx_attr_ints(onnx_call *c, const char *name)
{
    const aril__message *a = aril__onnx_attribute(c, name);
    onnx_ints v = { .n = -1 };
    if (!a) return v;
    size_t n = aril__message_count(a, "ints");
    if (!(v.at = aril__onnx_alloc(&c->run->arena, n, sizeof *v.at))) return v;
    for (size_t i = 0; i < n; i++) v.at[i] = aril__message_int_at(a, "ints", i);
    v.n = (int64_t)n;
    return v;
}

onnx_floats aril__onnx_attr_floats(onnx_call *c, const char *name)
{
    const aril__message *a = aril__onnx_attribute(c, name);
    onnx_floats v = { .n = -1 };
    if (!a) return v;
    size_t n = aril__message_count(a, "floats");
    if (!(v.at = aril__onnx_alloc(&c->run->arena, n, sizeof *v.at))) return v;
    for (size_t i = 0; i < n; i++) v.at[i] = aril__message_number_at(a, "floats", i);
    v.n = (int64_t)n;
    return v;
}

const onnx_body *aril__onnx_attr_body(const onnx_call *c, const char *name)
{
    for (size_t i = 0; i < c->node->n_bodies && c->node->body_name; i++)
        if (strcmp(c->node->body_name[i], name) == 0) return &c->node->body[i];
    aril__onnx_fail(c, ARIL_ERR_FORMAT, "the graph %s is missing", name);
    return NULL;
}

aril_status aril__onnx_ints_of(onnx_call *c, const char *name, int input, onnx_ints *out)
{
    *out = aril__onnx_attr_ints(c, name);
    return out->n >= 0 ? ARIL_OK : aril__onnx_ints(c, input, out);
}

/* ---- axes and sizes ---- */

int aril__onnx_axis(const onnx_call *c, int64_t axis, int n)
{
    if (axis >= -n && axis < n) return (int)(axis < 0 ? axis + n : axis);
    aril__onnx_fail(c, ARIL_ERR_ARG, "axis %" PRId64 " of a tensor with %d dimensions", axis, n);
    return -1;
}

aril_status aril__onnx_axes(const onnx_call *c, onnx_ints from, int n, aril_axes *out)
{
    *out = (aril_axes){ 0 };
    if (from.n > ARIL_MAX_DIMS) return aril__onnx_fail(c, ARIL_ERR_ARG, "too many axes");
    for (int64_t i = 0; i < from.n; i++) {
        int axis = aril__onnx_axis(c, from.at[i], n);
        if (axis < 0) return ARIL_ERR_ARG;
        out->axis[out->n++] = axis;
    }
    return ARIL_OK;
}

aril_status aril__onnx_shape(const onnx_call *c, onnx_ints from, aril_shape *out)
{
    *out = (aril_shape){ 0 };
    if (from.n > ARIL_MAX_DIMS)
        return aril__onnx_fail(c, ARIL_ERR_UNSUPPORTED,
                               "%" PRId64 " dimensions, at most %d can be used", from.n,
                               ARIL_MAX_DIMS);
    for (int64_t i = 0; i < from.n; i++) out->dim[out->ndim++] = from.at[i];
    return ARIL_OK;
}

aril_tensor *aril__onnx_from_ints(const int64_t *at, int64_t n)
{
    return aril_from(n ? (const void *)at : "", ARIL_SHAPE(n), ARIL_I64, aril_cpu());
}

aril__pause aril__onnx_pause(const onnx_call *c)
{
    return c->run->tracing ? aril__trace_pause() : (aril__pause){ 0 };
}

void aril__onnx_resume(const onnx_call *c, aril__pause p)
{
    if (c->run->tracing) aril__trace_resume(p);
}

aril_tensor *aril__onnx_index(onnx_call *c, const int64_t *at, int64_t n)
{
    aril__pause p = aril__onnx_pause(c);
    aril_tensor *t = aril_to(aril__onnx_from_ints(at, n), aril__onnx_device(c));
    aril__onnx_resume(c, p);
    return t;
}

aril_tensor *aril__onnx_numbers(onnx_call *c, const double *at, int64_t n, aril_dtype dtype)
{
    aril__pause p = aril__onnx_pause(c);
    aril_tensor *t = aril_from(n ? (const void *)at : "", ARIL_SHAPE(n), ARIL_F64, aril_cpu());
    t = aril_to(aril_cast(t, dtype), aril__onnx_device(c));
    aril__onnx_resume(c, p);
    return t;
}
