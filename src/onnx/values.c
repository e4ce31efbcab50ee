/* Values of ONNX as those of programs, and back. */
#include "graph/value.h"
#include "onnx/onnx.h"

#include <stdlib.h>

/* ---- from a program's value ---- */

static aril_status from_text(onnx_arena *a, const aril_value *v, onnx_value *out)
{
    size_t n = (size_t)aril_value_count(v);
    onnx_text *t = aril__onnx_alloc(a, 1, sizeof *t);
    if (!t || !(t->at = aril__onnx_alloc(a, n, sizeof *t->at))) return ARIL_ERR_MEMORY;
    t->n = n;
    t->shape = aril_value_shape(v);
    for (size_t i = 0; i < n; i++) {
        aril__string s = aril__value_string(v, (int64_t)i);
        t->at[i] = (aril__slice){ .at = (const void *)s.at, .n = s.n };
    }
    *out = (onnx_value){ .kind = ONNX_TEXT, .text = t };
    return ARIL_OK;
}

static aril_status from_items(onnx_arena *a, const aril_value *v, onnx_sequence *to)
{
    to->n = (size_t)aril_value_count(v);
    if (!(to->at = aril__onnx_alloc(a, to->n, sizeof *to->at))) return ARIL_ERR_MEMORY;
    aril_status s = ARIL_OK;
    for (size_t i = 0; i < to->n && s == ARIL_OK; i++)
        s = aril__onnx_from_value(a, aril_value_at(v, (int64_t)i), &to->at[i]);
    return s;
}

aril_status aril__onnx_from_value(onnx_arena *a, const aril_value *v, onnx_value *out)
{
    onnx_map *map;
    onnx_sequence *q;
    aril_status s;
    switch (aril_value_kind_of(v)) {
    case ARIL_VALUE_TENSOR:
        *out = (onnx_value){ .kind = ONNX_TENSOR, .tensor = aril_value_tensor(v) };
        return ARIL_OK;
    case ARIL_VALUE_TEXT: return from_text(a, v, out);
    case ARIL_VALUE_OPTIONAL:
        if (aril_value_count(v)) return aril__onnx_from_value(a, aril_value_at(v, 0), out);
        *out = (onnx_value){ .kind = ONNX_OPTIONAL };
        return ARIL_OK;
    case ARIL_VALUE_MAP:
        if (!(map = aril__onnx_alloc(a, 1, sizeof *map))) return ARIL_ERR_MEMORY;
        *out = (onnx_value){ .kind = ONNX_MAP, .map = map };
        s = aril__onnx_from_value(a, aril_value_keys(v), &map->keys);
        return s < 0 ? s : from_items(a, v, &map->items);
    default:
        if (!(q = aril__onnx_alloc(a, 1, sizeof *q))) return ARIL_ERR_MEMORY;
        *out = (onnx_value){ .kind = ONNX_SEQUENCE, .sequence = q };
        return from_items(a, v, q);
    }
}

/* ---- to a program's value ---- */

static aril_value *to_text(const onnx_text *t)
{
    aril__string *list = aril__malloc((t->n + 1) * sizeof *list);
    if (!list) {
        aril__fail(ARIL_ERR_MEMORY, "onnx: out of memory");
        return NULL;
    }
    for (size_t i = 0; i < t->n; i++)
        list[i] = (aril__string){ (const char *)t->at[i].at, t->at[i].n };
    aril_value *v = aril__value_strings(t->shape, t->n, list);
    free(list);
    return v;
}

/* A sequence, or with keys a map. */
static aril_value *to_items(const onnx_sequence *q, const onnx_value *keys)
{
    aril_value **item = aril__malloc((q->n + 1) * sizeof *item), *v = NULL;
    bool fits = item != NULL;
    for (size_t i = 0; i < q->n && fits; i++) fits = (item[i] = aril__onnx_to_value(&q->at[i]));
    aril_values list = { (int)q->n, item };
    aril_value *named = fits && keys ? aril__onnx_to_value(keys) : NULL;
    if (!item)
        aril__fail(ARIL_ERR_MEMORY, "onnx: out of memory");
    else if (fits && keys)
        v = named ? aril_value_map(named, list) : NULL;
    else if (fits)
        v = aril_value_sequence(list);
    free(item);
    return v;
}

aril_value *aril__onnx_to_value(const onnx_value *v)
{
    switch (v->kind) {
    case ONNX_TENSOR: return aril_value_of(v->tensor);
    case ONNX_TEXT: return to_text(v->text);
    case ONNX_SEQUENCE: return to_items(v->sequence, NULL);
    case ONNX_MAP: return to_items(&v->map->items, &v->map->keys);
    default: return aril_value_optional(NULL);
    }
}
