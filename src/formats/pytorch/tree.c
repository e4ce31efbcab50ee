/* The tensors of a nested value, under dotted names. */
#include "core/error.h"
#include "core/memory.h"
#include "formats/pytorch/checkpoint.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 64, MOST_NOTES = 256, DEEPEST_NOTE = 2 };

/* Entries of a checkpoint that hold the weights of its model, by frequency. */
static const char *const model_keys[] = { "state_dict", "model_state_dict", "model",  "model_state",
                                          "net",        "network",          "params", "weights",
                                          "module" };

static bool is_tensor(const pickle_value *v)
{
    return v->kind == PICKLE_TENSOR || v->kind == PICKLE_ARRAY;
}

static bool has_items(const pickle_value *v)
{
    return v->kind == PICKLE_DICT || v->kind == PICKLE_LIST || v->kind == PICKLE_TUPLE;
}

/* Whether a value has a tensor. Values may be shared and may contain themselves: depth and number
 * of steps are limited. */
static bool has_tensor(const pickle_value *v, int depth, long *steps)
{
    if (is_tensor(v)) return true;
    if (!has_items(v) || depth == DEEPEST) return false;
    for (size_t i = v->kind == PICKLE_DICT; i < v->u.items.n; i += v->kind == PICKLE_DICT ? 2 : 1)
        if (--*steps > 0 && has_tensor(v->u.items.at[i], depth + 1, steps)) return true;
    return false;
}

static bool holds_tensors(const pickle_value *v)
{
    long steps = 1000000;
    return has_items(v) && has_tensor(v, 0, &steps);
}

/* ---- which part ---- */

/* The entry of a checkpoint that holds its weights; NULL: the dict itself does. */
static const pickle_value *model_of(const pickle_value *dict, const pickle_value **key)
{
    for (size_t k = 0; k < sizeof model_keys / sizeof *model_keys; k++)
        for (size_t i = 0; i + 1 < dict->u.items.n; i += 2) {
            const pickle_value *v = dict->u.items.at[i + 1];
            *key = dict->u.items.at[i];
            if (pickle_is_text(*key, model_keys[k]) && v->kind == PICKLE_DICT && holds_tensors(v))
                return v;
        }
    const pickle_value *only = NULL;
    for (size_t i = 0; i + 1 < dict->u.items.n; i += 2) {
        const pickle_value *v = dict->u.items.at[i + 1];
        if (is_tensor(v)) return NULL;
        if (!holds_tensors(v)) continue;
        if (only || v->kind != PICKLE_DICT || dict->u.items.at[i]->kind != PICKLE_TEXT) return NULL;
        *key = dict->u.items.at[i];
        only = v;
    }
    return only;
}

static aril_status choose(checkpoint *c, const pickle_value **v, aril__bytes *path)
{
    for (int depth = 0; depth < 8 && (*v)->kind == PICKLE_DICT; depth++) {
        const pickle_value *key, *next = model_of(*v, &key);
        if (!next) break;
        if (depth) aril__bytes_add(path, ".", 1);
        aril__bytes_add(path, key->u.text.at, key->u.text.n);
        *v = next;
    }
    return path->failed ? aril__weights_no_memory(c->w) : ARIL_OK;
}

/* The part with a dotted name; keys may contain dots themselves. */
static const pickle_value *part_named(const pickle_value *v, const char *path, int depth)
{
    if (!*path) return v;
    if (v->kind != PICKLE_DICT || depth == DEEPEST) return NULL;
    for (size_t i = 0; i + 1 < v->u.items.n; i += 2) {
        const pickle_value *key = v->u.items.at[i];
        size_t n = key->u.text.n;
        if (key->kind != PICKLE_TEXT || !n || strncmp(path, key->u.text.at, n) != 0) continue;
        if (path[n] && path[n] != '.') continue;
        const pickle_value *found =
            part_named(v->u.items.at[i + 1], path + n + (path[n] == '.'), depth + 1);
        if (found) return found;
    }
    return NULL;
}

/* ---- names ---- */

/* Appends a dict's key: text, a number, "None"; of other kinds, such as tuples, "#" and its
 * position, which no number is called. Without a key, the position in a list. */
static aril_status put_key(checkpoint *c, aril__bytes *path, const pickle_value *key, size_t i)
{
    if (path->n) aril__bytes_add(path, ".", 1);
    if (key && key->kind == PICKLE_TEXT) {
        if (memchr(key->u.text.at, 0, key->u.text.n))
            return aril__weights_malformed(c->w, "a name has a NUL character");
        aril__bytes_add(path, key->u.text.at, key->u.text.n);
    } else if (key && (key->kind == PICKLE_INT || key->kind == PICKLE_BOOL)) {
        aril__bytes_print(path, "%" PRId64, key->u.i);
    } else if (key && key->kind == PICKLE_FLOAT) {
        bool is_integer = fabs(key->u.f) < 1e16 && key->u.f == floor(key->u.f);
        aril__bytes_print(path, is_integer ? "%.1f" : "%.17g", key->u.f);
    } else if (key && key->kind == PICKLE_NONE) {
        aril__bytes_print(path, "None");
    } else {
        aril__bytes_print(path, key ? "#%zu" : "%zu", i);
    }
    return path->failed ? aril__weights_no_memory(c->w) : ARIL_OK;
}

static void cut(aril__bytes *path, size_t n)
{
    path->n = n;
    if (path->at) path->at[n] = '\0';
}

/* ---- the walk ---- */

typedef struct walk {
    checkpoint *c;
    aril__bytes path;
    size_t steps; /* left: sharing could make a small file a large tree */
    bool notes;   /* collect other values instead of tensors */
    int n_notes;
    const pickle_value *without; /* a part that is left out */
} walk;

static aril_status note(walk *k, const pickle_value *v)
{
    char text[256];
    switch (v->kind) {
    case PICKLE_BOOL: snprintf(text, sizeof text, "%s", v->u.i ? "True" : "False"); break;
    case PICKLE_INT: snprintf(text, sizeof text, "%" PRId64, v->u.i); break;
    case PICKLE_FLOAT: snprintf(text, sizeof text, "%.9g", v->u.f); break;
    case PICKLE_TEXT:
        snprintf(text, sizeof text, "%.*s", v->u.text.n < 200 ? (int)v->u.text.n : 200,
                 v->u.text.at);
        break;
    default: return ARIL_OK;
    }
    if (!k->path.n || k->n_notes++ >= MOST_NOTES) return ARIL_OK;
    return aril__weights_note(k->c->w, (const char *)k->path.at, text);
}

static aril_status visit(walk *k, const pickle_value *v, int depth);

static aril_status visit_items(walk *k, const pickle_value *v, int depth)
{
    aril_status s = ARIL_OK;
    size_t length = k->path.n, per = v->kind == PICKLE_DICT ? 2 : 1;
    for (size_t i = 0; i + per <= v->u.items.n && s == ARIL_OK; i += per) {
        const pickle_value *item = v->u.items.at[i + per - 1];
        if (!has_items(item) && is_tensor(item) == k->notes) continue;
        if (!k->steps)
            return k->notes ? ARIL_OK
                            : aril__weights_malformed(k->c->w, "it is nested without end");
        k->steps--;
        s = put_key(k->c, &k->path, per == 2 ? v->u.items.at[i] : NULL, i / per);
        if (s == ARIL_OK) s = visit(k, item, depth + 1);
        cut(&k->path, length);
    }
    return s;
}

static aril_status visit(walk *k, const pickle_value *v, int depth)
{
    if (v == k->without) return ARIL_OK;
    if (!has_items(v)) {
        if (k->notes) return note(k, v);
        const char *name = k->path.n ? (const char *)k->path.at : "tensor";
        return is_tensor(v) ? aril__pytorch_add(k->c, name, v->u.tensor) : ARIL_OK;
    }
    if (k->notes && (v->kind != PICKLE_DICT || depth > DEEPEST_NOTE)) return ARIL_OK;
    if (depth == DEEPEST) return aril__weights_malformed(k->c->w, "it is nested too deeply");
    return visit_items(k, v, depth);
}

aril_status aril__pytorch_list(checkpoint *c, const pickle_value *v)
{
    aril_weights *w = c->w;
    const pickle_value *all = v;
    walk k = { .c = c, .steps = c->pickle.size };
    aril_status s = ARIL_OK;
    if (w->root_wanted) {
        v = part_named(v, w->root_wanted, 0);
        if (!v)
            s = aril__fail(ARIL_ERR_ARG, "%s has no part \"%s\"; `aril show --all` lists all names",
                           w->path, w->root_wanted);
        else
            aril__bytes_print(&k.path, "%s", w->root_wanted);
    } else {
        s = choose(c, &v, &k.path);
    }
    if (s == ARIL_OK && k.path.n) {
        w->root = aril__strdup((const char *)k.path.at);
        if (!w->root) s = aril__weights_no_memory(w);
    }
    cut(&k.path, 0);
    if (s == ARIL_OK) s = visit(&k, v, 0);
    k.notes = true;
    k.without = v == all ? NULL : v;
    k.steps = 10000;
    if (s == ARIL_OK && has_items(all)) s = visit(&k, all, 0);
    aril__bytes_free(&k.path);
    return s;
}
