/* Finding the rule of an operator. */
#include "onnx/rules.h"

/* The rows at the end of the rules_*.c files. */
extern const onnx_rule aril__onnx_math_rules[], aril__onnx_shape_rules[], aril__onnx_index_rules[],
    aril__onnx_reduce_rules[], aril__onnx_nn_rules[], aril__onnx_resize_rules[],
    aril__onnx_recurrent_rules[], aril__onnx_attention_rules[], aril__onnx_quant_rules[],
    aril__onnx_loss_rules[], aril__onnx_vision_rules[], aril__onnx_signal_rules[],
    aril__onnx_random_rules[], aril__onnx_control_rules[], aril__onnx_sequence_rules[],
    aril__onnx_text_rules[], aril__onnx_training_rules[], aril__onnx_ml_rules[],
    aril__onnx_microsoft_rules[], aril__onnx_microsoft_attention_rules[],
    aril__onnx_microsoft_quant_rules[], aril__onnx_ml_linear_rules[], aril__onnx_ml_trees_rules[];

static const onnx_rule *const tables[] = {
    aril__onnx_math_rules,
    aril__onnx_shape_rules,
    aril__onnx_index_rules,
    aril__onnx_reduce_rules,
    aril__onnx_nn_rules,
    aril__onnx_resize_rules,
    aril__onnx_recurrent_rules,
    aril__onnx_attention_rules,
    aril__onnx_quant_rules,
    aril__onnx_loss_rules,
    aril__onnx_vision_rules,
    aril__onnx_signal_rules,
    aril__onnx_random_rules,
    aril__onnx_control_rules,
    aril__onnx_sequence_rules,
    aril__onnx_text_rules,
    aril__onnx_training_rules,
    aril__onnx_ml_rules,
    aril__onnx_microsoft_rules,
    aril__onnx_microsoft_attention_rules,
    aril__onnx_microsoft_quant_rules,
    aril__onnx_ml_linear_rules,
    aril__onnx_ml_trees_rules,
};
enum { N_TABLES = sizeof tables / sizeof *tables };

const onnx_rule *aril__onnx_rule(const char *domain, const char *name, int version, int *from,
                                 int *to)
{
    *from = *to = 0;
    for (int t = 0; t < N_TABLES; t++)
        for (const onnx_rule *r = tables[t]; r->name; r++) {
            if (strcmp(r->name, name) != 0 || strcmp(r->domain, domain) != 0) continue;
            int until = r->to ? r->to : ONNX_NEWEST;
            if (version >= r->from && version <= until) return r;
            if (!*from || r->from < *from) *from = r->from;
            if (until > *to) *to = until;
        }
    return NULL;
}

const onnx_rule *aril__onnx_rules(int table)
{
    return table >= 0 && table < N_TABLES ? tables[table] : NULL;
}

aril_status aril__onnx_apply(onnx_call *c, const char *name, int version, int n_in,
                             const onnx_value *in, aril_tensor **out)
{
    onnx_value result = { 0 };
    onnx_node node = *c->node;
    onnx_slot slot = 1;
    int from, to;
    node.rule = aril__onnx_rule("", name, version, &from, &to);
    node.out = &slot;
    node.n_out = 1;
    node.version = version;
    onnx_call other = *c;
    other.node = &node;
    other.version = version;
    other.n_in = n_in;
    other.n_out = 1;
    other.in = in;
    other.out = &result;
    *out = NULL;
    if (!node.rule) return aril__onnx_fail(c, ARIL_ERR_UNSUPPORTED, "no rule for %s", name);
    aril_status s = node.rule->convert(&other);
    if (s == ARIL_OK && result.kind != ONNX_TENSOR)
        s = aril__onnx_fail(c, ARIL_ERR_FORMAT, "%s gave no tensor", name);
    *out = result.tensor;
    return s;
}
