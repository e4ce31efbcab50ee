/* Sequences and optionals. */
#include "onnx/rules.h"

#include <inttypes.h>

static const onnx_sequence *sequence_in(onnx_call *c, int i)
{
    if (given(c, i) && c->in[i].kind == ONNX_SEQUENCE) return c->in[i].sequence;
    aril__onnx_fail(c, ARIL_ERR_ARG, "input %d is not a sequence", i);
    return NULL;
}

static onnx_sequence *new_sequence(onnx_call *c, size_t n)
{
    onnx_sequence *q = aril__onnx_alloc(&c->run->arena, 1, sizeof *q);
    if (!q || !(q->at = aril__onnx_alloc(&c->run->arena, n, sizeof *q->at))) return NULL;
    q->n = n;
    return q;
}

/* Keeps the tensors of a sequence until the end of the run. */
static aril_status give_sequence(onnx_call *c, int i, const onnx_sequence *q)
{
    for (size_t k = 0; k < q->n; k++)
        if (q->at[k].kind == ONNX_TENSOR) {
            aril_status s = aril_tensor_status(q->at[k].tensor);
            if (s < 0) return s;
            if (!aril__onnx_keep(&c->run->arena, q->at[k].tensor)) return ARIL_ERR_MEMORY;
        }
    return give_value(c, i, (onnx_value){ .kind = ONNX_SEQUENCE, .sequence = q });
}

/* A position from 0 to n - 1, or n with `end`. */
static aril_status position(onnx_call *c, int input, int64_t n, int64_t otherwise, bool end,
                            int64_t *out)
{
    aril_status s = aril__onnx_int_in(c, input, otherwise, out);
    if (s != ARIL_OK) return s;
    if (*out < 0) *out += n;
    if (*out < 0 || *out >= n + end)
        return aril__onnx_fail(c, ARIL_ERR_INDEX, "position %" PRId64 " of a sequence of %" PRId64,
                               *out, n);
    return ARIL_OK;
}

static aril_status construct(onnx_call *c)
{
    onnx_sequence *q = new_sequence(c, (size_t)c->n_in);
    if (!q) return ARIL_ERR_MEMORY;
    memcpy(q->at, c->in, (size_t)c->n_in * sizeof *q->at);
    return give_sequence(c, 0, q);
}

static aril_status empty(onnx_call *c)
{
    onnx_sequence *q = new_sequence(c, 0);
    return q ? give_sequence(c, 0, q) : ARIL_ERR_MEMORY;
}

static aril_status insert(onnx_call *c)
{
    const onnx_sequence *from = sequence_in(c, 0);
    int64_t at;
    if (!from || !given(c, 1)) return ARIL_ERR_ARG;
    aril_status s = position(c, 2, (int64_t)from->n, (int64_t)from->n, true, &at);
    onnx_sequence *q = s == ARIL_OK ? new_sequence(c, from->n + 1) : NULL;
    if (!q) return s != ARIL_OK ? s : ARIL_ERR_MEMORY;
    for (size_t i = 0; i < q->n; i++)
        q->at[i] = i == (size_t)at ? c->in[1] : from->at[i - (i > (size_t)at)];
    return give_sequence(c, 0, q);
}

static aril_status erase(onnx_call *c)
{
    const onnx_sequence *from = sequence_in(c, 0);
    int64_t at;
    if (!from) return ARIL_ERR_ARG;
    aril_status s = position(c, 1, (int64_t)from->n, (int64_t)from->n - 1, false, &at);
    onnx_sequence *q = s == ARIL_OK ? new_sequence(c, from->n - 1) : NULL;
    if (!q) return s != ARIL_OK ? s : ARIL_ERR_MEMORY;
    for (size_t i = 0; i < q->n; i++) q->at[i] = from->at[i + (i >= (size_t)at)];
    return give_sequence(c, 0, q);
}

static aril_status element(onnx_call *c)
{
    const onnx_sequence *from = sequence_in(c, 0);
    int64_t at;
    if (!from) return ARIL_ERR_ARG;
    aril_status s = position(c, 1, (int64_t)from->n, 0, false, &at);
    return s != ARIL_OK ? s : give_value(c, 0, from->at[at]);
}

static aril_status length(onnx_call *c)
{
    const onnx_sequence *from = sequence_in(c, 0);
    if (!from) return ARIL_ERR_ARG;
    int64_t n = (int64_t)from->n;
    return give(c, 0, aril_from(&n, ARIL_SHAPE(), ARIL_I64, aril_cpu()));
}

static aril_status concat(onnx_call *c)
{
    const onnx_sequence *from = sequence_in(c, 0);
    if (!from) return ARIL_ERR_ARG;
    if (!from->n) return aril__onnx_fail(c, ARIL_ERR_ARG, "the sequence is empty");
    aril_tensor **part = aril__onnx_alloc(&c->run->arena, from->n, sizeof *part);
    if (!part) return ARIL_ERR_MEMORY;
    for (size_t i = 0; i < from->n; i++) {
        if (from->at[i].kind != ONNX_TENSOR)
            return aril__onnx_fail(c, ARIL_ERR_UNSUPPORTED, "only tensors can be concatenated");
        part[i] = from->at[i].tensor;
    }
    bool stack = aril__onnx_attr_int(c, "new_axis", 0) != 0;
    int axis = (int)aril__onnx_attr_int(c, "axis", 0);
    aril_list list = { (int)from->n, part };
    return give(c, 0, stack ? aril_stack(list, axis) : aril_cat(list, axis));
}

static aril_status split(onnx_call *c)
{
    aril_tensor *x = in(c, 0);
    onnx_ints sizes;
    int axis = aril__onnx_axis(c, aril__onnx_attr_int(c, "axis", 0), aril_ndim(x));
    aril_status s = axis < 0 ? ARIL_ERR_ARG : aril__onnx_ints(c, 1, &sizes);
    if (s != ARIL_OK) return s;
    int64_t n = aril_size(x, axis), size = 1;
    bool keep = sizes.n >= 0 || aril__onnx_attr_int(c, "keepdims", 1);
    bool listed = sizes.n >= 0 && aril_ndim(c->in[1].tensor) == 1;
    if (sizes.n == 1 && !listed) size = sizes.at[0];
    if (size < 1) return aril__onnx_fail(c, ARIL_ERR_ARG, "parts must have at least one element");
    int64_t parts = listed ? sizes.n : (n + size - 1) / size, start = 0;
    onnx_sequence *q = new_sequence(c, (size_t)parts);
    if (!q) return ARIL_ERR_MEMORY;
    for (int64_t i = 0; i < parts; i++) {
        int64_t here = listed ? sizes.at[i] : size < n - start ? size : n - start;
        if (here < 0 || here > n - start)
            return aril__onnx_fail(c, ARIL_ERR_SHAPE, "the parts are larger than the axis");
        aril_tensor *part = aril_narrow(x, axis, start, here);
        if (!keep) part = aril_squeeze(part, ARIL_AXES(axis));
        q->at[i] = (onnx_value){ .kind = ONNX_TENSOR, .known = c->host, .tensor = part };
        start += here;
    }
    return give_sequence(c, 0, q);
}

/* Runs the body on each element; other inputs are sequences of the same length, or tensors. */
static aril_status map(onnx_call *c)
{
    const onnx_body *body = aril__onnx_attr_body(c, "body");
    const onnx_sequence *first = body ? sequence_in(c, 0) : NULL;
    if (!first) return ARIL_ERR_ARG;
    if ((int)body->n_out < c->n_out || (int)body->n_in != c->n_in)
        return aril__onnx_fail(c, ARIL_ERR_FORMAT,
                               "the body's inputs and outputs do not fit the node");
    onnx_value *args = aril__onnx_alloc(&c->run->arena, body->n_in, sizeof *args);
    onnx_value *out = aril__onnx_alloc(&c->run->arena, body->n_out, sizeof *out);
    onnx_sequence **to = aril__onnx_alloc(&c->run->arena, (size_t)c->n_out, sizeof *to);
    if (!args || !out || !to) return ARIL_ERR_MEMORY;
    for (int i = 0; i < c->n_out; i++)
        if (!(to[i] = new_sequence(c, first->n))) return ARIL_ERR_MEMORY;
    for (size_t k = 0; k < first->n; k++) {
        for (int i = 0; i < c->n_in; i++) {
            bool many = c->in[i].kind == ONNX_SEQUENCE;
            if (many && c->in[i].sequence->n != first->n)
                return aril__onnx_fail(c, ARIL_ERR_SHAPE, "sequences differ in length");
            args[i] = many ? c->in[i].sequence->at[k] : c->in[i];
        }
        aril_status s = aril__onnx_run_body(c->run, body, body->n_in, args, out);
        if (s != ARIL_OK) return s;
        for (int i = 0; i < c->n_out; i++) to[i]->at[k] = out[i];
    }
    aril_status s = ARIL_OK;
    for (int i = 0; i < c->n_out && s == ARIL_OK; i++) s = give_sequence(c, i, to[i]);
    return s;
}

/* ---- optionals ---- */

static aril_status optional(onnx_call *c)
{
    if (given(c, 0)) return give_value(c, 0, c->in[0]);
    return give_value(c, 0, (onnx_value){ .kind = ONNX_OPTIONAL });
}

static aril_status has_element(onnx_call *c)
{
    bool has = given(c, 0) && c->in[0].kind != ONNX_OPTIONAL;
    return give(c, 0, aril_from(&has, ARIL_SHAPE(), ARIL_BOOL, aril_cpu()));
}

static aril_status get_element(onnx_call *c)
{
    if (!given(c, 0) || c->in[0].kind == ONNX_OPTIONAL)
        return aril__onnx_fail(c, ARIL_ERR_ARG, "the optional has no element");
    return give_value(c, 0, c->in[0]);
}

const onnx_rule aril__onnx_sequence_rules[] = {
    RULE_FLAGS("SequenceConstruct", 11, construct, ONNX_BODIES),
    RULE("SequenceEmpty", 11, empty),
    RULE_FLAGS("SequenceInsert", 11, insert, ONNX_BODIES),
    RULE_FLAGS("SequenceErase", 11, erase, ONNX_BODIES),
    RULE_FLAGS("SequenceAt", 11, element, ONNX_BODIES),
    RULE_FLAGS("SequenceLength", 11, length, ONNX_SIZES),
    RULE("ConcatFromSequence", 11, concat),
    RULE("SplitToSequence", 11, split),
    RULE_FLAGS("SequenceMap", 17, map, ONNX_BODIES),
    RULE_FLAGS("Optional", 15, optional, ONNX_BODIES),
    RULE_FLAGS("OptionalHasElement", 15, has_element, ONNX_SIZES),
    RULE_FLAGS("OptionalGetElement", 15, get_element, ONNX_BODIES),
    { 0 },
};
