/* Finding the rule of an operator. */
#include "onnx/rules.h"

/* The rows at the end of the rules_*.c files. */
extern const onnx_rule aril__onnx_math_rules[], aril__onnx_shape_rules[], aril__onnx_index_rules[],
    aril__onnx_reduce_rules[], aril__onnx_nn_rules[], aril__onnx_resize_rules[],
    aril__onnx_recurrent_rules[], aril__onnx_attention_rules[], aril__onnx_quant_rules[],
    aril__onnx_loss_rules[], aril__onnx_vision_rules[], aril__onnx_signal_rules[],
    aril__onnx_random_rules[], aril__onnx_control_rules[], aril__onnx_sequence_rules[],
    aril__onnx_text_rules[], aril__onnx_training_rules[], aril__onnx_ml_rules[];

static const onnx_rule *const tables[] = {
    aril__onnx_math_rules,      aril__onnx_shape_rules,     aril__onnx_index_rules,
    aril__onnx_reduce_rules,    aril__onnx_nn_rules,        aril__onnx_resize_rules,
    aril__onnx_recurrent_rules, aril__onnx_attention_rules, aril__onnx_quant_rules,
    aril__onnx_loss_rules,      aril__onnx_vision_rules,    aril__onnx_signal_rules,
    aril__onnx_random_rules,    aril__onnx_control_rules,   aril__onnx_sequence_rules,
    aril__onnx_text_rules,      aril__onnx_training_rules,  aril__onnx_ml_rules,
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
