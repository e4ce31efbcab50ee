/* Changes to a whole module tree: devices, dtypes, gradients, values. */
#include "nn/module.h"

#include "aril/create.h"

#include <stdlib.h>
#include <string.h>

enum {
    ALL = 1u << ARIL__PARAMETER | 1u << ARIL__BUFFER | 1u << ARIL__SCRATCH,
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

/* Why a tensor of m or of a module inside cannot be cast; NULL: all can. */
static const char *keeps_dtype(const aril_module *m, aril_dtype dtype)
{
    const char *why = NULL;
    for (int i = 0; i < m->n_own && m->type->fixed_dtype; i++) {
        const aril_tensor *t = m->own[i].tensor;
        if (t && aril__is_float((aril_dtype)t->dtype) && (aril_dtype)t->dtype != dtype)
            why = m->type->fixed_dtype;
    }
    for (int i = 0; i < m->n_children && !why; i++) why = keeps_dtype(m->child[i].module, dtype);
    return why;
}

aril_status aril_module_cast(aril_module *m, aril_dtype dtype)
{
    aril_status s = check_module("module_cast", m);
    if (s < 0) return s;
    if ((int)dtype < ARIL_F16 || dtype > ARIL_F64)
        return aril__fail(ARIL_ERR_DTYPE, "module_cast: expected f16, bf16, f32 or f64");
    const char *why = keeps_dtype(m, dtype);
    if (why) return aril__fail(ARIL_ERR_DTYPE, "module_cast: %s", why);
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

static void freeze_stats(aril_module *m, bool frozen)
{
    bool has_stats = false;
    for (int i = 0; i < m->n_own; i++) has_stats |= m->own[i].kind == ARIL__BUFFER;
    if (has_stats) m->frozen_stats = frozen;
    if (has_stats && frozen) m->training = false;
    for (int i = 0; i < m->n_children; i++) freeze_stats(m->child[i].module, frozen);
}

void aril_module_freeze_stats(aril_module *m)
{
    if (check_module("module_freeze_stats", m) == ARIL_OK) freeze_stats(m, true);
}

void aril_module_unfreeze_stats(aril_module *m)
{
    if (check_module("module_unfreeze_stats", m) == ARIL_OK) freeze_stats(m, false);
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
