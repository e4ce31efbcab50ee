/* Lists of named tensors: building and lookup. */
#include "optim/optim.h"

#include "aril/create.h"
#include "aril/scope.h"
#include "core/thread.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAME = 512 };

aril_status aril__names_add(aril__names *l, aril_tensor *t, const char *format, ...)
{
    char text[MAX_NAME];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (l->n == l->cap) {
        int cap = l->cap ? 2 * l->cap : 16;
        aril_tensor **at = aril__realloc(l->at, (size_t)cap * sizeof *at);
        if (at) l->at = at;
        char **name = at ? aril__realloc(l->name, (size_t)cap * sizeof *name) : NULL;
        if (!name) return aril__fail(ARIL_ERR_MEMORY, "names: out of memory");
        l->name = name;
        l->cap = cap;
    }
    l->name[l->n] = aril__strdup(text);
    if (!l->name[l->n]) return aril__fail(ARIL_ERR_MEMORY, "names: out of memory");
    l->at[l->n++] = aril_keep(t);
    return ARIL_OK;
}

void aril__names_cut(aril__names *l, int n)
{
    while (l->n > n) {
        aril_release(l->at[--l->n]);
        free(l->name[l->n]);
    }
}

void aril__names_clear(aril__names *l)
{
    aril__names_cut(l, 0);
}

void aril__names_free(aril__names *l)
{
    aril__names_clear(l);
    free(l->at);
    free(l->name);
}

const aril_named *aril__names_list(aril__names *l)
{
    l->list = (aril_named){ l->n, l->at, (const char *const *)l->name };
    return &l->list;
}

const char *aril__param_name(const aril_named *params, int i, char *text, size_t size)
{
    if (params->name && params->name[i]) return params->name[i];
    snprintf(text, size, "%d", i);
    return text;
}

aril_tensor *aril__named_find(const aril__name_lookup *from, const char *format, ...)
{
    char text[MAX_NAME];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    int i = aril__names_index_find(from, text);
    return i < 0 ? NULL : from->list->at[i];
}

aril_status aril__named_numbers(const char *what, const aril__name_lookup *from, const char *name,
                                aril_dtype dtype, int64_t n, void *copy)
{
    aril_tensor *t = aril__named_find(from, "%s", name);
    if (!t) return aril__fail(ARIL_ERR_FORMAT, "%s: '%s' is missing", what, name);
    aril_status s = aril__check_value(what, t);
    if (s < 0) return s;
    char a[ARIL__SHAPE_TEXT];
    if (t->dtype != dtype || t->numel != n)
        return aril__fail(ARIL_ERR_FORMAT, "%s: '%s' is %s %s, expected %lld of %s", what, name,
                          aril__dtypes[t->dtype].name, aril__text(a, t), (long long)n,
                          aril__dtypes[dtype].name);
    return aril_read(t, copy);
}

aril_status aril__check_count(const char *what, const char *name, double value)
{
    const double max = 0x1p53;
    return value >= 0 && value <= max && value == floor(value)
               ? ARIL_OK
               : aril__fail(ARIL_ERR_FORMAT, "%s: '%s' holds %g, expected a count", what, name,
                            value);
}

aril_status aril__named_counts(const char *what, const aril__name_lookup *from, const char *name,
                               int64_t n, int64_t *copy)
{
    aril_status s = aril__named_numbers(what, from, name, ARIL_I64, n, copy);
    for (int64_t i = 0; i < n && s == ARIL_OK; i++)
        s = aril__check_count(what, name, (double)copy[i]);
    return s;
}

aril_status aril__params_check(const char *what, const aril_named *params)
{
    char name[16];
    if (params->n < 0 || (params->n > 0 && !params->at))
        return aril__fail(
            ARIL_ERR_ARG,
            "%s: invalid list of %d parameters: the length is negative or the list NULL", what,
            params->n);
    for (int i = 0; i < params->n; i++) {
        aril_tensor *p = params->at[i];
        aril_status s = aril__check_value(what, p);
        if (s < 0) return s;
        if (!(DT_FLOAT >> p->dtype & 1))
            return aril__fail(
                ARIL_ERR_DTYPE,
                "%s: parameter '%s' is %s; only f16, bf16, f32 and f64 can be trained", what,
                aril__param_name(params, i, name, sizeof name), aril__dtypes[p->dtype].name);
    }
    return ARIL_OK;
}

/* Marks a number of the host: it combines with tensors on any device. */
enum { HOST_NUMBER = ARIL__WEAK | ARIL__STATE };

aril_tensor *aril__number_new(double value, aril_dtype dtype)
{
    aril__thread *th = aril__self();
    aril_tensor *t = aril__tensor_new(th, dtype, 0, NULL, aril__cpu_device);
    if (!t) return NULL;
    t->flags |= HOST_NUMBER;
    aril__number_set(t, value);
    return t;
}

aril_status aril__number_to(aril_tensor *t, aril__device *device)
{
    if (t->storage->device == device) return ARIL_OK;
    ARIL_SCOPE;
    aril_tensor *moved = aril_to(t, device->id);
    aril_status s = aril_tensor_status(moved);
    if (s < 0) return s;
    aril__tensor_exchange(t, moved);
    t->flags &= (uint16_t)~HOST_NUMBER;
    if (device == aril__cpu_device) t->flags |= HOST_NUMBER;
    return ARIL_OK;
}

void aril__number_set(aril_tensor *t, double value)
{
    if (t->dtype == ARIL_I64)
        *(int64_t *)aril__ptr(t) = (int64_t)value;
    else if (t->dtype == ARIL_F32)
        *(float *)aril__ptr(t) = (float)value;
    else
        *(double *)aril__ptr(t) = value;
    aril__bump_version(t);
}
