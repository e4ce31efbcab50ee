#include "train/states.h"

#include "aril/device.h"
#include "aril/create.h"
#include "aril/math.h"
#include "aril/scope.h"
#include "core/error.h"
#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

static int find(const aril__states *s, const char *name)
{
    if (name == NULL) return -1;
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->name[i], name) == 0) return i;
    return -1;
}

aril_tensor *aril__states_get(const aril__states *s, const char *name)
{
    int i = find(s, name);
    return i < 0 ? NULL : s->at[i];
}

static aril_status no_memory(void)
{
    return aril__fail(ARIL_ERR_MEMORY, "out of memory for the state of a training run");
}

static aril_status grow(aril__states *s)
{
    int cap = s->cap > 0 ? s->cap * 2 : 4;
    aril_tensor **at = aril__realloc(s->at, (size_t)cap * sizeof *at);
    if (at == NULL) return no_memory();
    s->at = at;
    char **name = aril__realloc(s->name, (size_t)cap * sizeof *name);
    if (name == NULL) return no_memory();
    s->name = name;
    s->cap = cap;
    return ARIL_OK;
}

aril_status aril__states_add(aril__states *s, const char *name, aril_tensor *value)
{
    aril_status status = ARIL_OK;
    if (s->n == s->cap && (status = grow(s)) != ARIL_OK) return status;
    char *copy = aril__strdup(name);
    if (copy == NULL) return no_memory();
    s->name[s->n] = copy;
    s->at[s->n] = aril_keep(value);
    s->n++;
    return ARIL_OK;
}

aril_status aril__states_set(aril__states *s, const char *name, aril_tensor *value)
{
    if (name == NULL) return aril__fail(ARIL_ERR_ARG, "a state needs a name, got NULL");
    aril_status status = value == NULL ? aril__fail(ARIL_ERR_ARG, "state '%s' has no tensor", name)
                                       : aril_tensor_status(value);
    if (status != ARIL_OK) return status;
    int i = find(s, name);
    if (i < 0) return aril__states_add(s, name, value);
    aril_set(&s->at[i], value);
    return ARIL_OK;
}

aril_status aril__states_accumulate(aril__states *s, const char *name, aril_tensor *value)
{
    aril_tensor *sum = aril__states_get(s, name), *here = aril_to(sum, aril_device_of(value));
    aril_status status = here == sum ? ARIL_OK : aril__states_set(s, name, here);
    return status == ARIL_OK ? aril_tensor_status(aril_add_(here, value)) : status;
}

const aril_named *aril__states_view(aril__states *s)
{
    s->view = (aril_named){ s->n, s->at, (const char *const *)s->name };
    return &s->view;
}

aril_status aril__states_copy(aril__states *to, const char *prefix, const aril_named *from)
{
    if (from == NULL) return aril__latest_status();
    if (from->n < 0 || (from->n > 0 && from->at == NULL))
        return aril__fail(ARIL_ERR_ARG, "expected a state of %d tensors, got a list that is %s",
                          from->n, from->at == NULL ? "NULL" : "there");
    for (int i = 0; i < from->n; i++) {
        ARIL_SCOPE;
        ARIL_NO_GRAD;
        char number[16], *full = NULL;
        const char *name = number;
        if (from->name != NULL)
            name = from->name[i];
        else
            snprintf(number, sizeof number, "%d", i);
        if (name == NULL) return aril__fail(ARIL_ERR_ARG, "tensor %d of a state has no name", i);
        size_t size = strlen(prefix) + strlen(name) + 1;
        full = aril__malloc(size);
        if (full == NULL) return no_memory();
        snprintf(full, size, "%s%s", prefix, name);
        aril_status status = aril__states_set(to, full, aril_copy(from->at[i]));
        free(full);
        if (status != ARIL_OK) return status;
    }
    return ARIL_OK;
}

aril_status aril__states_part(aril__states *to, const aril__states *from, const char *prefix)
{
    size_t length = strlen(prefix);
    bool fresh = to->n == 0; /* names in `from` are unique, and so are their suffixes */
    for (int i = 0; i < from->n; i++) {
        if (strncmp(from->name[i], prefix, length) != 0) continue;
        const char *name = from->name[i] + length;
        aril_status status = fresh ? aril__states_add(to, name, from->at[i])
                                   : aril__states_set(to, name, from->at[i]);
        if (status != ARIL_OK) return status;
    }
    return ARIL_OK;
}

static aril_status set_vector(aril__states *s, const char *name, int64_t n, const void *v,
                              aril_dtype dtype)
{
    ARIL_SCOPE;
    return aril__states_set(s, name, aril_from(v, ARIL_SHAPE(n), dtype, aril_cpu()));
}

aril_status aril__states_set_ints(aril__states *s, const char *name, int n, const int64_t *v)
{
    return set_vector(s, name, n, v, ARIL_I64);
}

aril_status aril__states_set_reals(aril__states *s, const char *name, int n, const double *v)
{
    return set_vector(s, name, n, v, ARIL_F64);
}

aril_status aril__states_set_text(aril__states *s, const char *name, const char *text)
{
    return set_vector(s, name, (int64_t)strlen(text), text, ARIL_U8);
}

static bool get_vector(const aril__states *s, const char *name, int n, void *v, aril_dtype dtype)
{
    aril_tensor *t = aril__states_get(s, name);
    return t != NULL && aril_dtype_of(t) == dtype && aril_ndim(t) == 1 && aril_numel(t) == n &&
           aril_read(t, v) == ARIL_OK;
}

bool aril__states_ints(const aril__states *s, const char *name, int n, int64_t *v)
{
    return get_vector(s, name, n, v, ARIL_I64);
}

bool aril__states_reals(const aril__states *s, const char *name, int n, double *v)
{
    return get_vector(s, name, n, v, ARIL_F64);
}

char *aril__states_text(const aril__states *s, const char *name)
{
    aril_tensor *t = aril__states_get(s, name);
    if (t == NULL || aril_dtype_of(t) != ARIL_U8 || aril_ndim(t) != 1) return NULL;
    size_t n = (size_t)aril_numel(t);
    char *text = aril__malloc(n + 1);
    if (text == NULL) return NULL;
    if (aril_read(t, text) != ARIL_OK) {
        free(text);
        return NULL;
    }
    text[n] = '\0';
    return text;
}

void aril__states_clear(aril__states *s)
{
    for (int i = 0; i < s->n; i++) {
        aril_release(s->at[i]);
        free(s->name[i]);
    }
    free(s->at);
    free(s->name);
    *s = (aril__states){ 0 };
}

void aril__states_swap(aril__states *a, aril__states *b)
{
    aril__states t = *a;
    *a = *b;
    *b = t;
}
