/* Finding the rule of an operator. */
#include "onnx/rules.h"

/* The rows of the rules_*.c files. */
#define TABLES(T)                                                                          \
    T(math)                                                                                \
    T(shape) T(index) T(reduce) T(nn) T(resize) T(recurrent) T(attention) T(quant) T(loss) \
        T(signal) T(random) T(control) T(sequence) T(training)
#define DECLARE(name) extern const onnx_rule aril__onnx_##name##_rules[];
TABLES(DECLARE)
#define LIST(name) aril__onnx_##name##_rules,
static const onnx_rule *const tables[] = { TABLES(LIST) };
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
