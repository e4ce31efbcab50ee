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

/* ---- the page of operators ---- */

void aril__export_list_ops(FILE *to, const char *onnx)
{
    const char *last = "";
    for (int t = 0; aril__export_rules(t); t++) {
        for (const export_rule *r = aril__export_rules(t); r->op; r++) {
            if (!r->onnx || strcmp(r->onnx, onnx) != 0 || strcmp(r->op, last) == 0) continue;
            fprintf(to, "%s `%s`", *last ? "," : "", r->op);
            last = r->op;
        }
    }
}

/* The first version in which an op has a form; 0: none. Sets how it is written. */
static int first_version(const aril__op *op, const char **how)
{
    int from = 0;
    *how = NULL;
    for (int t = 0; aril__export_rules(t); t++) {
        for (const export_rule *r = aril__export_rules(t); r->op; r++) {
            if (strcmp(r->op, op->name) != 0 || (from && r->from >= from)) continue;
            from = r->from;
            *how = r->onnx;
        }
    }
    bool constant = op->max_in == 0; /* of known sizes */
    if (from == 13 || !(op->decompose || constant || aril__export_has_formula(op))) return from;
    return 13;
}

void aril__export_list(FILE *to)
{
    const char *how;
    fputs(
        "\n## Writing\n\nOperator sets 13 to 28 are written. An op of Aril without an operator of "
        "its own is written as several. These need a newer operator set than 13:\n\n"
        "| op | from |\n|---|---|\n",
        to);
    for (int i = 0; i < aril__n_ops; i++) {
        int from = first_version(aril__ops[i], &how);
        if (from > 13) fprintf(to, "| `%s` | %d |\n", aril__ops[i]->name, from);
    }
    fputs("\nThese have no form in ONNX, and exporting them is an error that names them:\n\n", to);
    const char *comma = "";
    for (int i = 0; i < aril__n_ops; i++) {
        if (first_version(aril__ops[i], &how)) continue;
        fprintf(to, "%s`%s`", comma, aril__ops[i]->name);
        comma = ", ";
    }
    fputs(".\n\nAlso refused are dropout in training and other random choices, whose numbers "
          "differ in each program, and steps of `nadam`, `radam`, `rprop`, `lamb`, `lars` and of "
          "schedules of momentum.\n",
          to);
}
