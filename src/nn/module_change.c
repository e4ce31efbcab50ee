/* Changes to a whole module tree: devices, dtypes, gradients, values. */
#include "nn/module.h"

#include "aril/create.h"

#include <stdlib.h>
#include <string.h>

enum {
    ALL = 1u << ARIL__PARAMETER | 1u << ARIL__BUFFER | 1u << ARIL__SCRATCH,
    STATE = 1u << ARIL__PARAMETER | 1u << ARIL__BUFFER,
};

static aril_status check_module(const char *what, const aril_module *m)
{
    return m ? ARIL_OK : aril__fail(ARIL_ERR_ARG, "%s: the module is NULL", what);
}

/* ---- devices and dtypes ---- */

/* The new tensor and gradient; NULL where they stay as they are. */
typedef struct changed {
    aril_tensor *value, *grad;
} changed;

static bool changes(const aril_tensor *t, const aril_device *device, aril_dtype dtype)
{
    if (device) return !aril_device_equal(aril_device_of(t), *device);
    return aril__is_float((aril_dtype)t->dtype) && t->dtype != dtype;
}

static aril_status convert(aril_tensor *t, const aril_device *device, aril_dtype dtype, changed *to)
{
    ARIL_SCOPE;
    ARIL__PLAIN;
    to->value = aril_keep(device ? aril_to(t, *device) : aril_cast(t, dtype));
    aril_status s = aril_tensor_status(to->value);
    if (s == ARIL_OK && aril_has_grad(t)) {
        aril_tensor *g = aril_grad(t);
        to->grad = aril_keep(device ? aril_to(g, *device) : aril_cast(g, dtype));
        s = aril_tensor_status(to->grad);
    }
    return s;
}

static void store_device(aril_module *m, const aril_device *device, aril_dtype dtype)
{
    if (device) {
        m->device = *device;
        m->placed = true;
    } else {
        m->dtype = dtype;
    }
    for (int i = 0; i < m->n_children; i++) store_device(m->child[i].module, device, dtype);
}

/* Converts everything before it changes anything. */
static aril_status move(aril_module *m, const aril_device *device, aril_dtype dtype)
{
    aril__gathered g;
    aril_status s = aril__gather(m, ALL, &g);
    if (s < 0) return s;
    changed *to = g.n ? aril__calloc((size_t)g.n * sizeof *to) : NULL;
    if (g.n && !to) s = aril__fail(ARIL_ERR_MEMORY, "module: out of memory moving %d tensors", g.n);
    for (int i = 0; i < g.n && s == ARIL_OK; i++)
        if (changes(g.tensor[i], device, dtype)) s = convert(g.tensor[i], device, dtype, &to[i]);
    for (int i = 0; i < g.n && to; i++) {
        if (to[i].value && s == ARIL_OK) {
            aril__tensor_exchange(g.tensor[i], to[i].value);
            if (to[i].grad) aril_set_grad(g.tensor[i], to[i].grad);
        }
        aril_release(to[i].value);
        aril_release(to[i].grad);
    }
    if (s == ARIL_OK) store_device(m, device, dtype);
    free(to);
    aril__gathered_free(&g);
    return s;
}

aril_status aril_module_to(aril_module *m, aril_device device)
{
    aril_status s = check_module("module_to", m);
    if (s < 0) return s;
    if (!aril__device_find(device)) return ARIL_ERR_DEVICE;
    return move(m, &device, ARIL_F32);
}

aril_status aril_module_cast(aril_module *m, aril_dtype dtype)
{
    aril_status s = check_module("module_cast", m);
    if (s < 0) return s;
    if ((int)dtype < ARIL_F16 || dtype > ARIL_F64)
        return aril__fail(ARIL_ERR_DTYPE, "module_cast: expected f16, bf16, f32 or f64");
    return move(m, NULL, dtype);
}

/* ---- gradients ---- */

/* Calls fn for each distinct parameter. */
static void each_parameter(aril_module *m, void (*fn)(aril_tensor *t))
{
    for (int i = 0; i < m->n_own; i++)
        if (m->own[i].kind == ARIL__PARAMETER && m->own[i].tensor) fn(m->own[i].tensor);
    for (int i = 0; i < m->n_children; i++) each_parameter(m->child[i].module, fn);
}

static void freeze(aril_tensor *t)
{
    aril_set_requires_grad(t, false);
}

static void unfreeze(aril_tensor *t)
{
    aril_set_requires_grad(t, true);
}

void aril_module_freeze(aril_module *m)
{
    if (check_module("module_freeze", m) == ARIL_OK) each_parameter(m, freeze);
}

void aril_module_unfreeze(aril_module *m)
{
    if (check_module("module_unfreeze", m) == ARIL_OK) each_parameter(m, unfreeze);
}

void aril_module_zero_grad(aril_module *m)
{
    if (check_module("module_zero_grad", m) == ARIL_OK) each_parameter(m, aril_zero_grad);
}

/* ---- values ---- */

static void reset(aril_module *m)
{
    for (int i = 0; i < m->n_children; i++) reset(m->child[i].module);
    if (m->type->reset && aril__is_ready(m)) {
        ARIL_SCOPE;
        ARIL_NO_GRAD;
        m->type->reset(m);
    }
}

void aril_module_reset(aril_module *m)
{
    if (check_module("module_reset", m) == ARIL_OK) reset(m);
}

/* Names that do not match, for the error message. */
typedef struct wrong {
    char text[600];
    int n;
} wrong;

static void note(wrong *w, const char *name)
{
    size_t at = strlen(w->text);
    if (at + strlen(name) + 24 < sizeof w->text)
        snprintf(w->text + at, sizeof w->text - at, "%s%s", at ? ", " : "", name);
    else if (at && w->text[at - 1] != '.')
        snprintf(w->text + at, sizeof w->text - at, ", ...");
    w->n++;
}

static const char *name_of(const aril_named *from, int i, char *number, size_t size)
{
    if (from->name && from->name[i]) return from->name[i];
    snprintf(number, size, "%d", i);
    return number;
}

/* One value to load, converted for its destination. */
typedef struct load {
    aril_tensor *to, *value; /* value: holds a reference */
} load;

static aril_status check_load(const char *name, const aril_tensor *to, const aril_tensor *from)
{
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    aril_status s = aril__check_value("load_state", from);
    if (s == ARIL_OK && !aril__same_dims(to->ndim, to->dim, from->ndim, from->dim))
        s = aril__fail(ARIL_ERR_SHAPE,
                       "load_state: \"%s\" is %s in the module, but %s in the loaded state", name,
                       aril__text(a, to), aril__text(b, from));
    return s;
}

/* Pairs each tensor with the value to load; *n pairs. */
static aril_status pair_up(aril_module *m, const aril_named *from, bool partial,
                           const aril__gathered *state, load *loads, int *n)
{
    wrong unknown = { .n = 0 }, missing = { .n = 0 };
    char number[16];
    aril_status s = ARIL_OK;
    for (int i = 0; i < from->n && s == ARIL_OK; i++) {
        const char *name = name_of(from, i, number, sizeof number);
        aril__own_tensor *own = aril__find_own(m, name);
        if (!own || !own->tensor || own->kind == ARIL__SCRATCH) {
            note(&unknown, name);
            continue;
        }
        s = check_load(name, own->tensor, from->at[i]);
        loads[(*n)++] = (load){ own->tensor, from->at[i] };
    }
    if (s < 0 || partial) return s;
    for (int i = 0; i < state->n; i++) {
        int k = 0;
        while (k < *n && loads[k].to != state->tensor[i]) k++;
        if (k == *n) note(&missing, state->name[i]);
    }
    if (missing.n || unknown.n)
        return aril__fail(
            ARIL_ERR_ARG,
            "load_state: %s%d missing%s%s%s; %d unknown%s%s%s; set .partial to ignore them", "",
            missing.n, missing.n ? " (" : "", missing.text, missing.n ? ")" : "", unknown.n,
            unknown.n ? " (" : "", unknown.text, unknown.n ? ")" : "");
    return ARIL_OK;
}

/* Converts values where needed, so that writing cannot fail halfway. */
static aril_status prepare(load *l)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_tensor *v = aril_cast(l->value, (aril_dtype)l->to->dtype);
    v = aril_contiguous(aril_to(v, aril_device_of(l->to)));
    l->value = aril_keep(v);
    return aril_tensor_status(v);
}

static aril_status write_value(const load *l)
{
    if (l->to->storage->device->host_memory && aril__is_dense(l->to)) {
        memmove(aril__ptr(l->to), aril__ptr(l->value),
                aril__dtype_bytes((aril_dtype)l->to->dtype, l->to->numel));
        aril__bump_version(l->to);
        return ARIL_OK;
    }
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    return aril_tensor_status(aril_copy_(l->to, l->value));
}

aril_status aril_load_state(aril_module *m, const aril_named *from, aril_load_state_opts opts)
{
    aril__gathered state;
    aril_status s = check_module("load_state", m);
    if (s == ARIL_OK && (!from || from->n < 0 || (from->n > 0 && !from->at)))
        s = aril__fail(ARIL_ERR_ARG, "load_state: the state is NULL");
    if (s == ARIL_OK && !aril_state(m))
        s = aril__last_status(); /* sizes are unknown: the error says which */
    if (s == ARIL_OK) s = aril__gather(m, STATE, &state);
    if (s < 0) return s;
    int n = 0, ready = 0;
    load *loads = aril__calloc(((size_t)from->n + 1) * sizeof *loads);
    s = loads ? pair_up(m, from, opts.partial, &state, loads, &n)
              : aril__fail(ARIL_ERR_MEMORY, "load_state: out of memory");
    while (ready < n && s == ARIL_OK) s = prepare(&loads[ready++]);
    for (int i = 0; i < n && s == ARIL_OK; i++) s = write_value(&loads[i]);
    for (int i = 0; i < ready; i++) aril_release(loads[i].value);
    free(loads);
    aril__gathered_free(&state);
    return s;
}
