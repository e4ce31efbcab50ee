/* The tables of rows. */
#include "onnx/export_rules.h"

#include <string.h>

static const export_rule *const tables[] = {
    aril__export_math_rules,  aril__export_shape_rules,  aril__export_reduce_rules,
    aril__export_index_rules, aril__export_vision_rules, aril__export_nn_rules,
    aril__export_other_rules,
};

const export_rule *aril__export_rules(int table)
{
    return table < (int)(sizeof tables / sizeof *tables) ? tables[table] : NULL;
}

const export_rule *aril__export_rule(const aril__op *op, int opset, const export_rule *last)
{
    bool found = !last;
    for (int t = 0; aril__export_rules(t); t++) {
        for (const export_rule *r = aril__export_rules(t); r->op; r++) {
            if (found && strcmp(r->op, op->name) == 0 && opset >= r->from &&
                (!r->to || opset <= r->to))
                return r;
            if (r == last) found = true;
        }
    }
    return NULL;
}
