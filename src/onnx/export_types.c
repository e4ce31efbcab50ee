/* The types of values, and nodes whose operator does not take them in the operator set that is
 * written: floats are computed in f32 then, and all else is an error. */
#include "core/dtype.h"
#include "onnx/export.h"
#include "onnx/rules.h"

#include <stdlib.h>

enum { LETTERS = 26, F32 = 1, F16 = 10, BF16 = 16, NEWEST = 28 };

/* By the letters of a row: ONNX's number of the type, 0: not known; and the one that it becomes. */
typedef struct letters {
    int number[LETTERS], to[LETTERS];
} letters;

static bool takes(uint32_t types, int number)
{
    return number < 32 && types >> number & 1;
}

/* The only type of a letter; 0: there are several. */
static int only_type(uint32_t types)
{
    int number = 1;
    if (!types || types & (types - 1)) return 0;
    while (!(types >> number & 1)) number++;
    return number;
}

static const export_attr *attr_named(export_attrs attrs, const char *name)
{
    for (int i = 0; i < attrs.n; i++)
        if (strcmp(attrs.at[i].name, name) == 0) return &attrs.at[i];
    return NULL;
}

/* The type that attributes give to a result; 0: they give none. */
static int type_by_attrs(const char *type, export_attrs attrs)
{
    static const char *const names[] = { "to", "dtype", "output_dtype", "output_datatype" };
    const export_attr *value = attr_named(attrs, "value");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (attr_named(attrs, names[i])) return (int)attr_named(attrs, names[i])->i;
    if (value && value->kind == EXPORT_TENSOR)
        return aril__onnx_dtype_number((aril_dtype)value->tensor->dtype);
    return strcmp(type, "ConstantOfShape") == 0 ? F32 : 0;
}

static void read_letters(const onnx_type_row *row, const char *type, export_values in,
                         export_attrs attrs, int n_out, letters *l)
{
    *l = (letters){ { 0 }, { 0 } };
    for (int i = 0; i < in.n; i++) {
        char c = aril__onnx_type_letter(row->in, i);
        if (c != '.' && in.at[i] && !l->number[c - 'A']) l->number[c - 'A'] = in.at[i]->number;
    }
    for (int i = 0; i < n_out; i++) {
        char c = aril__onnx_type_letter(row->out, i);
        if (c == '.' || strchr(row->in, c)) continue;
        int own = only_type(row->types[c - 'A']);
        l->number[c - 'A'] = own ? own : type_by_attrs(type, attrs);
    }
    memcpy(l->to, l->number, sizeof l->to);
}

/* The first later version in which a letter may have a type; 0: none. */
static int version_with(const char *type, int opset, int letter, int number)
{
    for (int v = opset + 1; v <= NEWEST; v++)
        if (takes(aril__onnx_type_row(type, v)->types[letter], number)) return v;
    return 0;
}

static void refuse(export_model *m, const char *type, int letter, int number)
{
    int newer = version_with(type, m->opset, letter, number);
    const char *name = aril__onnx_dtype_name(number);
    if (newer)
        aril__export_fail(m, "%s takes no %s in operator set %d; from %d on it does", type, name,
                          m->opset, newer);
    else
        aril__export_fail(m, "%s takes no %s", type, name);
}

/* What the types become. False: they stay. */
static bool widen(export_model *m, const onnx_type_row *row, const char *type, letters *l)
{
    bool any = false;
    for (int k = 0; k < 8; k++) {
        bool is_small = l->number[k] == BF16 || l->number[k] == F16;
        if (!l->number[k] || !row->types[k] || takes(row->types[k], l->number[k])) continue;
        any = true;
        if (is_small && takes(row->types[k], F32) && strcmp(type, "Cast") != 0)
            l->to[k] = F32;
        else
            refuse(m, type, k, l->number[k]);
    }
    return any;
}

/* A value in f32; a constant becomes another constant. */
static export_value *widened(export_graph *g, export_value *x)
{
    const export_node *from = x->from;
    export_value *y = NULL;
    if (from && strcmp(from->type, "Constant") == 0) {
        ARIL_SCOPE;
        return aril__export_constant(g->model, aril_cast(from->attr[0].tensor, ARIL_F32));
    }
    aril__export_node(g, "Cast", VALUES(x), ATTRIBUTES(attr_int("to", F32)), 1, &y);
    return y;
}

static char letter_out(const onnx_type_row *row, int i)
{
    return row && *row->out ? aril__onnx_type_letter(row->out, i) : '.';
}

void aril__export_typed_node(export_graph *g, const char *type, export_values in,
                             export_attrs attrs, int n_out, export_value **out)
{
    export_model *m = g->model;
    const onnx_type_row *row = aril__onnx_type_row(type, m->opset);
    letters l = { { 0 }, { 0 } };
    if (row) read_letters(row, type, in, attrs, n_out, &l);
    bool wider = row && widen(m, row, type, &l);
    export_value **own = aril__onnx_alloc(&m->arena, (size_t)in.n, sizeof *own);
    export_attr *attr = aril__onnx_alloc(&m->arena, (size_t)attrs.n, sizeof *attr);
    if (!own || !attr) {
        if (m->status == ARIL_OK) m->status = ARIL_ERR_MEMORY;
        for (int i = 0; i < n_out; i++) out[i] = NULL;
        return;
    }
    ARIL_SCOPE;
    for (int i = 0; i < in.n; i++) {
        char c = row ? aril__onnx_type_letter(row->in, i) : '.';
        own[i] = in.at[i];
        if (wider && own[i] && c != '.' && l.to[c - 'A'] != l.number[c - 'A'])
            own[i] = widened(g, own[i]);
    }
    for (int i = 0; i < attrs.n; i++) {
        char c = letter_out(row, 0);
        attr[i] = attrs.at[i];
        bool value =
            attr[i].kind == EXPORT_TENSOR && c != '.' && l.to[c - 'A'] != l.number[c - 'A'];
        if (value) attr[i].tensor = aril_cast(attr[i].tensor, ARIL_F32);
    }
    aril__export_append(g, type, (export_values){ in.n, own }, (export_attrs){ attrs.n, attr },
                        n_out, out);
    for (int i = 0; i < n_out; i++) {
        char c = letter_out(row, i);
        if (!out[i] || c == '.') continue;
        out[i]->number = l.to[c - 'A'];
        if (l.to[c - 'A'] == l.number[c - 'A']) continue;
        export_value *y = NULL;
        aril__export_node(g, "Cast", VALUES(out[i]), ATTRIBUTES(attr_int("to", l.number[c - 'A'])),
                          1, &y);
        out[i] = y;
    }
}
