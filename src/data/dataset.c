#include "data/dataset.h"

#include "aril/scope.h"
#include "core/memory.h"
#include "core/source_location.h"
#include "core/thread.h"

#include <stdlib.h>
#include <string.h>

/* ---- creation ---- */

aril_dataset *aril_dataset_make(const aril_dataset_class *type)
{
    if (!type || (!type->next && (!type->size || !type->get))) {
        aril__fail(ARIL_ERR_ARG,
                   "dataset %s: a class needs `size` and `get`, or `next` for a stream",
                   type && type->type ? type->type : "?");
        return NULL;
    }
    aril_dataset *d = aril__calloc(sizeof *d + type->data_size);
    if (!d) {
        aril__fail(ARIL_ERR_MEMORY, "dataset %s: out of memory", type->type);
        return NULL;
    }
    atomic_init(&d->refs, 1);
    d->type = type;
    d->images = -1;
    return d;
}

aril_dataset *aril_dataset_new(const char *name, size_t data_size, int64_t (*size)(aril_dataset *),
                               aril_status (*get)(aril_dataset *, int64_t, aril_sample *))
{
    const aril_dataset_class type = {
        .type = name ? name : "dataset", .data_size = data_size, .size = size, .get = get
    };
    aril_dataset *d = aril_dataset_make(&type);
    if (!d) return NULL;
    d->own = type;
    d->type = &d->own;
    return d;
}

aril_dataset *aril_dataset_keep(aril_dataset *d)
{
    if (d) atomic_fetch_add_explicit(&d->refs, 1, memory_order_relaxed);
    return d;
}

void aril_dataset_release(aril_dataset *d)
{
    /* A loop, not recursion: chains of datasets may be long. */
    while (d && atomic_fetch_sub_explicit(&d->refs, 1, memory_order_acq_rel) == 1) {
        if (d->type->destroy) d->type->destroy(d);
        aril_dataset *source = d->source;
        free(d->label);
        free(d->class_text);
        free(d->class_names);
        free(d->column_text);
        free(d->column_names);
        free(d);
        d = source;
    }
}

aril_status aril__dataset_set_label(aril_dataset *d, const char *label)
{
    char *copy = aril__strdup(label);
    if (!copy) return aril__fail(ARIL_ERR_MEMORY, "out of memory for a dataset");
    free(d->label);
    d->label = copy;
    return ARIL_OK;
}

const char *aril__dataset_label(const aril_dataset *d)
{
    return d && d->label ? d->label : aril_dataset_type(d);
}

void *aril_dataset_data(const aril_dataset *d)
{
    return d ? (void *)(uintptr_t)d->data : NULL;
}

const char *aril_dataset_type(const aril_dataset *d)
{
    return d ? d->type->type : "";
}

void aril_dataset_set_source(aril_dataset *d, aril_dataset *source)
{
    if (!d) {
        aril_dataset_release(source);
        return;
    }
    for (const aril_dataset *s = source; s; s = s->source) {
        if (s != d) continue;
        aril__fail(ARIL_ERR_ARG, "dataset_set_source: %s would read from itself", d->type->type);
        aril_dataset_release(source);
        return;
    }
    aril_dataset *before = d->source;
    d->source = source;
    aril_dataset_release(before);
}

aril_dataset *aril_dataset_source(const aril_dataset *d)
{
    return d ? d->source : NULL;
}

/* ---- properties ---- */

int64_t aril_dataset_size(const aril_dataset *d)
{
    if (!d || !d->type->size) return -1;
    return d->type->size((aril_dataset *)(uintptr_t)d);
}

int aril_dataset_classes(const aril_dataset *d, const char *const **names)
{
    while (d && !d->n_classes) d = d->source;
    if (names) *names = d ? d->class_names : NULL;
    return d ? d->n_classes : 0;
}

/* Concatenates the names into *text and sets *list to pointers into it. */
static aril_status pack_names(const char *what, int n, const char *const *names, char **text,
                              const char ***list)
{
    size_t bytes = 0;
    for (int i = 0; i < n; i++) {
        if (!names[i]) return aril__fail(ARIL_ERR_ARG, "%s: name %d is NULL", what, i);
        bytes += strlen(names[i]) + 1;
    }
    *text = n ? aril__malloc(bytes) : NULL;
    *list = n ? aril__malloc((size_t)n * sizeof **list) : NULL;
    if (n && (!*text || !*list)) {
        free(*text);
        free(*list);
        return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", what);
    }
    char *at = *text;
    for (int i = 0; i < n; i++) {
        size_t length = strlen(names[i]) + 1;
        memcpy(at, names[i], length);
        (*list)[i] = at;
        at += length;
    }
    return ARIL_OK;
}

aril_status aril_dataset_set_classes(aril_dataset *d, int n, const char *const *names)
{
    static const char what[] = "dataset_set_classes";
    char *text;
    const char **list;
    if (!d) return ARIL_ERR_ARG;
    if (n < 0 || (n > 0 && !names))
        return aril__fail(ARIL_ERR_ARG, "%s: expected names, got n = %d", what, n);
    aril_status status = pack_names(what, n, names, &text, &list);
    if (status != ARIL_OK) return status;
    free(d->class_text);
    free(d->class_names);
    d->class_text = text;
    d->class_names = list;
    d->n_classes = n;
    return ARIL_OK;
}

aril_status aril__dataset_set_columns(aril_dataset *d, int n, const char *const *names,
                                      const char *target)
{
    static const char what[] = "dataset_columns";
    char *text;
    const char **list, **all = aril__malloc(((size_t)n + 1) * sizeof *all);
    if (!all) return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", what);
    memcpy(all, names, (size_t)n * sizeof *all);
    all[n] = target;
    aril_status status = pack_names(what, n + (target != NULL), all, &text, &list);
    free(all);
    if (status != ARIL_OK) return status;
    free(d->column_text);
    free(d->column_names);
    d->column_text = text;
    d->column_names = list;
    d->n_columns = n;
    d->has_target = target != NULL;
    return ARIL_OK;
}

int aril_dataset_columns(const aril_dataset *d, const char *const **names, const char **target)
{
    while (d && !d->column_names) d = d->source;
    if (names) *names = d ? d->column_names : NULL;
    if (target) *target = d && d->has_target ? d->column_names[d->n_columns] : NULL;
    return d ? d->n_columns : 0;
}

bool aril_dataset_has_images(const aril_dataset *d)
{
    for (; d; d = d->source) {
        if (d->images >= 0) return d->images;
        if (d->type->images) return true;
    }
    return false;
}

void aril_dataset_set_images(aril_dataset *d, bool images)
{
    if (d) d->images = images;
}

aril_shape aril_dataset_shape(aril_dataset *d)
{
    aril_shape none = { .ndim = 0 };
    ARIL_SCOPE;
    aril_sample s;
    aril_status status;
    if (d && d->type->next) {
        aril_generator g;
        aril__sample_begin(&s, &g, 0, 0, 0, 0);
        status = d->type->restart ? d->type->restart(d, 0, 0) : ARIL_OK;
        if (status >= 0) status = d->type->next(d, &s);
        if (status > 0 && d->type->finish) status = d->type->finish(d, &s);
        aril__sample_end(&s, &g);
        aril_status again = d->type->restart ? d->type->restart(d, 0, 0) : ARIL_OK;
        if (status >= 0) status = again;
    } else {
        status = aril_dataset_get(d, 0, &s);
    }
    if (status < 0) return none;
    if (!s.x) {
        aril__fail(ARIL_ERR_STATE, "dataset %s: its first sample has no x", aril_dataset_type(d));
        return none;
    }
    return aril_shape_of(s.x);
}

/* ---- samples ---- */

uint64_t aril__sample_seed(uint64_t seed, int64_t epoch, int64_t sample, int64_t nth)
{
    /* Two Philox rounds, so that all bits of the four numbers count. */
    uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
    uint32_t at[4] = { (uint32_t)sample, (uint32_t)((uint64_t)sample >> 32), (uint32_t)epoch,
                       (uint32_t)((uint64_t)epoch >> 32) };
    uint32_t out[4];
    aril__philox(key, at, out);
    if (nth) {
        uint32_t again[4] = { out[2], out[3], (uint32_t)nth, (uint32_t)((uint64_t)nth >> 32) };
        key[0] = out[0];
        key[1] = out[1];
        aril__philox(key, again, out);
    }
    return out[0] | (uint64_t)out[1] << 32;
}

void aril__sample_begin(aril_sample *s, aril_generator *before, uint64_t seed, int64_t epoch,
                        int64_t index, int64_t nth)
{
    aril_generator *g = aril__default_generator();
    *before = *g;
    g->seed = aril__sample_seed(seed, epoch, index, nth);
    g->calls = 0;
    memset(s, 0, sizeof *s);
    s->index = index;
    s->random = g;
}

void aril__sample_end(aril_sample *s, const aril_generator *before)
{
    *aril__default_generator() = *before;
    s->random = NULL;
    s->wants = NULL;
}

aril_status aril_dataset_get(aril_dataset *d, int64_t i, aril_sample *s)
{
    if (!s) return aril__fail(ARIL_ERR_ARG, "dataset_get: the sample is NULL");
    memset(s, 0, sizeof *s);
    if (!d) return aril__fail(ARIL_ERR_ARG, "dataset_get: the dataset is NULL");
    if (!d->type->get)
        return aril__fail(ARIL_ERR_ARG, "dataset_get: %s is a stream: read it with a loader",
                          d->type->type);
    int64_t n = aril_dataset_size(d);
    if (i < 0 || i >= n)
        return aril__fail(ARIL_ERR_INDEX,
                          "dataset_get: index %lld is out of range for %lld samples", (long long)i,
                          (long long)n);
    aril_generator g;
    aril__sample_begin(s, &g, 0, 0, i, 0);
    aril__saved_errors before = aril__errors_begin();
    aril_status status = d->type->get(d, i, s);
    aril__error *e = aril__errors_end(&before);
    aril__sample_end(s, &g);
    if (status < 0) return aril__sample_failed(e, status, aril__dataset_label(d), s);
    aril__error_release(e);
    return ARIL_OK;
}

const char *aril__part_name(int k)
{
    static const char *const names[ARIL__PARTS] = { "x",          "y",          "weight",
                                                    "extra[0]",   "extra[1]",   "extra[2]",
                                                    "extra[3]",   "extra_y[0]", "extra_y[1]",
                                                    "extra_y[2]", "extra_y[3]", "extra_y[4]",
                                                    "extra_y[5]", "extra_y[6]" };
    return names[k];
}

/* ---- errors ---- */

aril_status aril__sample_failed(aril__error *e, aril_status status, const char *dataset,
                                const aril_sample *s)
{
    aril_status code = e ? e->code : status < 0 ? status : ARIL_ERR_INTERNAL;
    const char *why = e ? e->message : aril_status_text(code);
    /* Both messages end with the source location of the call; keep only one. */
    char location[256];
    size_t length = strlen(why), located = aril__location(location, sizeof location);
    if (located && length > located + 4 && !strcmp(why + length - located, location) &&
        !strncmp(why + length - located - 4, " at ", 4))
        length -= located + 4;
    if (s->name)
        aril__fail(code, "%s: sample %lld (%s): %.*s", dataset, (long long)s->index, s->name,
                   (int)length, why);
    else
        aril__fail(code, "%s: sample %lld: %.*s", dataset, (long long)s->index, (int)length, why);
    aril__error_release(e);
    return code;
}
