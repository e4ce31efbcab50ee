/* The types of all values of a model, by a trace: sizes that the inputs leave open stay unknown,
 * and a node whose result depends on values leaves its results without a type. */
#include "core/thread.h"
#include "graph/trace.h"
#include "onnx/rules.h"

enum { TRIPS = 1000 };
static const size_t host_bytes = (size_t)1 << 30;

/* An open size of an input: its name, and the number that stands for it in a trace. */
static int64_t open_size(onnx_types *t, const aril__message *dim)
{
    const char *name = aril__message_text(dim, "dim_param");
    for (size_t i = 0; i < t->n_sizes && *name; i++)
        if (t->size_name[i] && strcmp(t->size_name[i], name) == 0) return -2 - (int64_t)i;
    t->size_name[t->n_sizes] = *name ? name : NULL;
    return -2 - (int64_t)t->n_sizes++;
}

/* A symbolic tensor for an input; NULL: its declared type does not say enough. */
static aril_tensor *symbol_of(onnx_types *types, aril__tracing *t, const onnx_port *port)
{
    const aril__message *type = aril__message_sub(port->type, "tensor_type");
    const aril__message *shape = aril__message_sub(type, "shape");
    size_t n = aril__message_count(shape, "dim");
    aril_dtype dtype;
    int64_t dim[ARIL_MAX_DIMS] = { 0 }, one[ARIL_MAX_DIMS] = { 0 };
    if (!aril__message_has(type, "shape") || n > ARIL_MAX_DIMS ||
        !aril__onnx_dtype(aril__message_int(type, "elem_type"), &dtype))
        return NULL;
    for (size_t d = 0; d < n; d++) {
        const aril__message *from = aril__message_sub_at(shape, "dim", d);
        bool given = aril__message_has(from, "dim_value");
        dim[d] = given ? aril__message_int(from, "dim_value") : open_size(types, from);
        if (given && dim[d] < 0) return NULL;
    }
    aril__thread *th = aril__self();
    aril_tensor *like = aril__give(th, aril__tensor_new(th, dtype, (int)n, one, aril__cpu_device));
    if (aril_tensor_status(like) < 0) return like;
    memcpy(like->dim, dim, sizeof dim);
    aril_tensor *x = aril__give(th, aril__tracing_input(t, like, dim, port->name));
    memset(like->dim, 0, sizeof like->dim);
    return x;
}

/* The unknown sizes of the trace for those that the inputs leave open. */
static void number_sizes(onnx_types *t, const onnx_model *m, const onnx_value *in)
{
    for (int i = 0; i < m->n_required; i++) {
        const aril__message *type = aril__message_sub(m->in[i].type, "tensor_type");
        const aril__message *shape = aril__message_sub(type, "shape");
        for (int d = 0; in[i].kind == ONNX_TENSOR && d < in[i].tensor->ndim; d++) {
            const aril__message *from = aril__message_sub_at(shape, "dim", (size_t)d);
            const char *name = aril__message_text(from, "dim_param");
            for (size_t k = 0; k < t->n_sizes && in[i].tensor->dim[d] < 0; k++)
                if (t->size_name[k] && strcmp(t->size_name[k], name) == 0)
                    t->size[k] = in[i].tensor->dim[d];
        }
    }
}

static aril_status infer(onnx_model *m, onnx_types *to, aril__tracing *t, onnx_value *in)
{
    for (int i = 0; i < m->n_required; i++) {
        aril_tensor *x = symbol_of(to, t, &m->in[i]);
        if (!x) continue;
        aril_status s = aril_tensor_status(x);
        if (s < 0) return s;
        in[i] = (onnx_value){ .kind = ONNX_TENSOR, .tensor = x };
    }
    number_sizes(to, m, in);
    return aril__onnx_infer_run(m, to, in, true);
}

aril_status aril__onnx_infer(onnx_model *m, onnx_types *to)
{
    size_t open = 0;
    *to = (onnx_types){ 0 };
    if (!aril_ok()) return aril__latest_status(); /* errors inside are cleared, this one is not */
    for (int i = 0; i < m->n_required; i++)
        open += aril__message_count(
            aril__message_sub(aril__message_sub(m->in[i].type, "tensor_type"), "shape"), "dim");
    *to = (onnx_types){ .of = aril__onnx_alloc(&m->arena, m->n_slots, sizeof *to->of),
                        .size = aril__onnx_alloc(&m->arena, open, sizeof *to->size),
                        .size_name = aril__onnx_alloc(&m->arena, open, sizeof *to->size_name) };
    onnx_value *in = aril__onnx_alloc(&m->arena, (size_t)m->n_required, sizeof *in);
    if (!to->of || !to->size || !to->size_name || !in) return ARIL_ERR_MEMORY;
    m->max_trips = TRIPS;
    m->max_memory = host_bytes;
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril__tracing *t = aril__tracing_new(m->path, false);
    if (!t) return aril__latest_status();
    aril__traced_call c = aril__tracing_begin(t);
    aril_status s = infer(m, to, t, in);
    /* The graph is not used: that a node could not be traced is no failure here. */
    if (aril__tracing_end(t, &c, s, 0, NULL) < 0 && s == ARIL_OK) aril_clear_error();
    aril__tracing_free(t);
    return s;
}

const char *aril__onnx_size_name(const onnx_types *types, int64_t dim)
{
    for (size_t i = 0; i < types->n_sizes; i++)
        if (types->size[i] == dim && types->size_name[i]) return types->size_name[i];
    return NULL;
}
