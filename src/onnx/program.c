/* Loaded models as programs. */
#include "onnx/program.h"

#include "graph/program.h"
#include "onnx/export.h"
#include "onnx/rules.h"

#include <stdlib.h>

static void run_tensors(void *ctx, bool whole, aril_tensor *const *in, aril_tensor **out)
{
    onnx_model *m = ctx;
    onnx_arena arena = { 0 };
    bool tracing = aril__self()->tracer != NULL;
    onnx_value *v = aril__onnx_alloc(&arena, (size_t)(m->n_required + m->n_out), sizeof *v);
    if (!v) return;
    for (int i = 0; i < m->n_required; i++)
        v[i] = (onnx_value){ .kind = ONNX_TENSOR,
                             .tensor = in[i],
                             .known = tracing && !(in[i]->flags & ARIL__SYMBOLIC) };
    onnx_value *to = v + m->n_required;
    aril_status s = aril__onnx_run(m, &arena, whole, (size_t)m->n_required, v, to);
    if (s == ARIL_OK) s = aril__message_check(m->file); /* attributes were read from it */
    for (int i = 0; i < m->n_out && s == ARIL_OK; i++) {
        if (to[i].kind != ONNX_TENSOR)
            s = aril__fail(ARIL_ERR_UNSUPPORTED,
                           "%s: output %s is not a tensor of numbers: aril_program_run_values "
                           "returns it",
                           m->path, m->out[i].name);
        else
            out[i] = to[i].tensor;
    }
    for (int i = 0; i < m->n_out && s != ARIL_OK; i++) out[i] = NULL;
    aril__onnx_arena_free(&arena);
}

static void run_model(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    run_tensors(ctx, false, in, out);
}

static bool is_tensor_type(const aril__message *type)
{
    const aril__message *tensor = aril__message_sub(type, "tensor_type");
    return aril__message_has(type, "tensor_type") && aril__message_int(tensor, "elem_type") != 8;
}

/* Strings, a sequence, a map or an optional. */
static bool is_other_type(const aril__message *type)
{
    const aril__message *tensor = aril__message_sub(type, "tensor_type");
    return aril__message_int(tensor, "elem_type") == 8 ||
           aril__message_has(type, "sequence_type") || aril__message_has(type, "map_type") ||
           aril__message_has(type, "optional_type");
}

/* Graphs have tensors only. */
static bool check_types(const onnx_model *m)
{
    for (int i = 0; i < m->n_required + m->n_out; i++) {
        bool input = i < m->n_required;
        const onnx_port *port = input ? &m->in[i] : &m->out[i - m->n_required];
        if (!is_other_type(port->type)) continue;
        aril__fail(ARIL_ERR_UNSUPPORTED,
                   "%s: %s %s is not a tensor of numbers, which is all that a graph has", m->path,
                   input ? "input" : "output", port->name);
        return false;
    }
    return true;
}

/* Nothing is differentiated, unless nodes of the model do that. */
static void run_whole(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    const onnx_model *m = ctx;
    bool tracked = false;
    for (size_t i = 0; i < m->n_slots; i++) tracked |= m->tracked[i];
    if (!check_types(m)) return;
    if (tracked) {
        run_tensors(ctx, true, in, out);
    } else {
        ARIL_NO_GRAD;
        run_tensors(ctx, true, in, out);
    }
}

static void free_model(void *ctx)
{
    aril__onnx_model_free(ctx);
}

static bool is_dynamic(void *ctx)
{
    return atomic_load(&((onnx_model *)ctx)->dynamic);
}

static bool is_by_value(void *ctx)
{
    return atomic_load(&((onnx_model *)ctx)->by_value);
}

/* Whether the model takes these, and returns tensors. */
static bool takes_tensors(const onnx_model *m, aril_values in)
{
    bool all = in.n <= m->n_required;
    for (int i = 0; i < in.n && all; i++)
        all = aril_value_kind_of(in.at[i]) == ARIL_VALUE_TENSOR && is_tensor_type(m->in[i].type);
    for (int i = 0; i < m->n_out && all; i++) all = is_tensor_type(m->out[i].type);
    return all;
}

static bool run_values(void *ctx, aril_values in, aril_value **out, aril_status *status)
{
    onnx_model *m = ctx;
    if (takes_tensors(m, in)) return false;
    if (in.n < m->n_required || in.n > m->n_in) {
        *status = aril__fail(ARIL_ERR_ARG, "%s: got %d inputs, expected %d", m->path, in.n,
                             m->n_required);
        return true;
    }
    onnx_arena arena = { 0 };
    onnx_value *v = aril__onnx_alloc(&arena, (size_t)(in.n + m->n_out) + 1, sizeof *v);
    aril_status s = v ? ARIL_OK : ARIL_ERR_MEMORY;
    for (int i = 0; i < in.n && s == ARIL_OK; i++)
        s = aril__onnx_from_value(&arena, in.at[i], &v[i]);
    if (s == ARIL_OK) s = aril__onnx_run(m, &arena, false, (size_t)in.n, v, v + in.n);
    if (s == ARIL_OK) s = aril__message_check(m->file);
    if (s == ARIL_OK) s = aril__onnx_files_check(&m->files);
    for (int i = 0; i < m->n_out && s == ARIL_OK; i++)
        if (!(out[i] = aril__onnx_to_value(&v[in.n + i]))) s = aril__latest_status();
    aril__onnx_arena_free(&arena);
    *status = s;
    return true;
}

/* Weights that are used in their file must not change while they are. */
static aril_status check_files(void *ctx)
{
    return aril__onnx_files_check(&((onnx_model *)ctx)->files);
}

static aril_status draw_model(void *ctx, FILE *to)
{
    return aril__onnx_dot(ctx, to);
}

static aril_status costs_of_model(void *ctx, aril_list in, FILE *to)
{
    return aril__onnx_costs(ctx, in, to);
}

static const aril__program_kind loaded = { .draw = draw_model,
                                           .costs = costs_of_model,
                                           .free = free_model,
                                           .untraced = is_dynamic,
                                           .values = run_values,
                                           .by_value = is_by_value,
                                           .check = check_files,
                                           .fixed = true,
                                           .whole = run_whole };

aril_program *aril__onnx_program(onnx_model *m)
{
    return aril__program_own(run_model, m, &loaded, m->path, m->n_required, m->n_out);
}

aril_program *aril_program_load(const char *path, aril_load_opts opts)
{
    if (!path) {
        aril__fail(ARIL_ERR_ARG, "program_load: the path is NULL");
        return NULL;
    }
    onnx_model *m = aril__onnx_model_load(path, opts, false);
    return m ? aril__onnx_program(m) : NULL;
}

/* ---- inputs and outputs ---- */

const onnx_model *aril__onnx_of_program(const aril_program *p)
{
    return aril__program_owned(p, &loaded);
}

int aril_program_inputs(const aril_program *p)
{
    const onnx_model *m = aril__onnx_of_program(p);
    return m ? m->n_required : 0;
}

int aril_program_outputs(const aril_program *p)
{
    const onnx_model *m = aril__onnx_of_program(p);
    return m ? m->n_out : 0;
}

const char *aril_program_input_name(const aril_program *p, int i)
{
    const onnx_model *m = aril__onnx_of_program(p);
    return m && i >= 0 && i < m->n_required ? m->in[i].name : NULL;
}

const char *aril_program_output_name(const aril_program *p, int i)
{
    const onnx_model *m = aril__onnx_of_program(p);
    return m && i >= 0 && i < m->n_out ? m->out[i].name : NULL;
}

static const aril__message *input_type(const aril_program *p, int i)
{
    const onnx_model *m = aril__onnx_of_program(p);
    if (!m || i < 0 || i >= m->n_required) return NULL;
    return aril__message_sub(m->in[i].type, "tensor_type");
}

static bool opens_batch(const aril_program *p, const aril__message *dim)
{
    const onnx_model *m = aril__onnx_of_program(p);
    return m->batch && aril__message_int(dim, "dim_value") == m->batch;
}

aril_shape aril_program_input_shape(const aril_program *p, int i)
{
    aril_shape shape = { 0 };
    const aril__message *type = input_type(p, i);
    if (!type) return shape;
    const aril__message *sizes = aril__message_sub(type, "shape");
    size_t n = aril__message_count(sizes, "dim");
    for (size_t d = 0; d < n && n <= ARIL_MAX_DIMS; d++) {
        const aril__message *dim = aril__message_sub_at(sizes, "dim", d);
        int64_t size;
        bool open = !aril__onnx_declared_size(dim, &size) || (d == 0 && opens_batch(p, dim));
        shape.dim[shape.ndim++] = open ? -1 : size;
    }
    return shape;
}

const char *aril_program_input_size_name(const aril_program *p, int i, int d)
{
    const aril__message *type = input_type(p, i);
    const aril__message *sizes = type ? aril__message_sub(type, "shape") : NULL;
    if (!sizes || d < 0 || (size_t)d >= aril__message_count(sizes, "dim")) return NULL;
    const aril__message *dim = aril__message_sub_at(sizes, "dim", (size_t)d);
    const char *name = aril__message_text(dim, "dim_param");
    return aril__message_has(dim, "dim_value") || !*name ? NULL : name;
}

static aril_value_kind kind_of(const aril__message *type)
{
    return aril__message_has(type, "sequence_type")   ? ARIL_VALUE_SEQUENCE
           : aril__message_has(type, "map_type")      ? ARIL_VALUE_MAP
           : aril__message_has(type, "optional_type") ? ARIL_VALUE_OPTIONAL
           : is_other_type(type)                      ? ARIL_VALUE_TEXT
                                                      : ARIL_VALUE_TENSOR;
}

aril_value_kind aril_program_input_kind(const aril_program *p, int i)
{
    const onnx_model *m = aril__onnx_of_program(p);
    return m && i >= 0 && i < m->n_required ? kind_of(m->in[i].type) : ARIL_VALUE_TENSOR;
}

aril_value_kind aril_program_output_kind(const aril_program *p, int i)
{
    const onnx_model *m = aril__onnx_of_program(p);
    return m && i >= 0 && i < m->n_out ? kind_of(m->out[i].type) : ARIL_VALUE_TENSOR;
}

aril_dtype aril_program_input_dtype(const aril_program *p, int i)
{
    aril_dtype dtype = ARIL_F32;
    const aril__message *type = input_type(p, i);
    if (type) aril__onnx_dtype(aril__message_int(type, "elem_type"), &dtype);
    return dtype;
}

aril_metadata aril_program_metadata(const aril_program *p)
{
    const onnx_model *m = aril__onnx_of_program(p);
    return m ? m->metadata : (aril_metadata){ 0 };
}

/* ---- the list of operators ---- */

static int by_name(const void *a, const void *b)
{
    const onnx_rule *x = *(const onnx_rule *const *)a, *y = *(const onnx_rule *const *)b;
    int order = strcmp(x->domain, y->domain);
    return order ? order : strcmp(x->name, y->name);
}

/* The newest version of an operator set that a rule without an end is for. */
static int newest_of(const char *domain)
{
    return !*domain ? ONNX_NEWEST : strcmp(domain, "ai.onnx.ml") == 0 ? 5 : 1;
}

void aril_onnx_operators(FILE *to)
{
    const onnx_rule *all[512];
    size_t n = 0;
    if (!to) return;
    for (int t = 0; aril__onnx_rules(t); t++)
        for (const onnx_rule *r = aril__onnx_rules(t); r->name && n < 512; r++) all[n++] = r;
    qsort(all, n, sizeof *all, by_name);
    fprintf(to,
            "# ONNX operators\n\nWhat `aril_program_load` and `aril_module_load` read, as `aril "
            "test-onnx --operators` prints it: %zu operators\nand the versions of their operator "
            "sets that are supported. [How to load a model](onnx.md).\n\n",
            n);
    fputs("| operator | domain | versions | written for |\n|---|---|---|---|\n", to);
    for (size_t i = 0; i < n; i++) {
        fprintf(to, "| %s | %s | %d to %d |", all[i]->name,
                *all[i]->domain ? all[i]->domain : "ai.onnx", all[i]->from,
                all[i]->to ? all[i]->to : newest_of(all[i]->domain));
        if (!*all[i]->domain) aril__export_list_ops(to, all[i]->name);
        fputs(" |\n", to);
    }
    aril__export_list(to);
}
