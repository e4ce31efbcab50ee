/* Datasets whose class indices are remapped to those of another dataset. */
#include "aril/device.h"
#include "aril/dtype.h"
#include "aril/create.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "data/dataset.h"

#include <stdlib.h>
#include <string.h>

struct matched {
    int n;       /* number of classes in the source */
    int *number; /* maps a source class index to the new one */
};

static aril_status renumber(aril_dataset *self, aril_sample *s)
{
    const struct matched *d = aril_dataset_data(self);
    if (!s->y) return ARIL_OK;
    if (aril_numel(s->y) != 1 || aril_dtype_is_float(aril_dtype_of(s->y)))
        return aril__fail(ARIL_ERR_ARG,
                          "match_classes: expected one class as target, got %lld values of %s",
                          (long long)aril_numel(s->y), aril_dtype_name(aril_dtype_of(s->y)));
    int64_t label = aril_item_int(s->y);
    if (label < 0 || label >= d->n)
        return aril__fail(ARIL_ERR_INDEX,
                          "match_classes: target %lld is out of range for %d classes",
                          (long long)label, d->n);
    label = d->number[label];
    s->y = aril_from(&label, ARIL_SHAPE(), ARIL_I64, aril_cpu());
    return aril_tensor_status(s->y);
}

static int64_t matched_size(aril_dataset *self)
{
    return aril_dataset_size(self->source);
}

static aril_status matched_get(aril_dataset *self, int64_t i, aril_sample *s)
{
    aril_status status = self->source->type->get(self->source, i, s);
    return status < 0 ? status : renumber(self, s);
}

static int matched_next(aril_dataset *self, aril_sample *s)
{
    return self->source->type->next(self->source, s);
}

static aril_status matched_restart(aril_dataset *self, uint64_t seed, int64_t epoch)
{
    return aril__stream_restart(self->source, seed, epoch);
}

static aril_status matched_finish(aril_dataset *self, aril_sample *s)
{
    aril_status status = aril__stream_finish(self->source, s);
    return status < 0 ? status : renumber(self, s);
}

static void matched_destroy(aril_dataset *self)
{
    free(((struct matched *)aril_dataset_data(self))->number);
}

static const aril_dataset_class matched_class = {
    .type = "Classes",
    .data_size = sizeof(struct matched),
    .size = matched_size,
    .get = matched_get,
    .destroy = matched_destroy,
};

static const aril_dataset_class matched_stream_class = {
    .type = "Classes",
    .data_size = sizeof(struct matched),
    .next = matched_next,
    .restart = matched_restart,
    .finish = matched_finish,
    .destroy = matched_destroy,
};

static aril_status unknown_class(const char *name, int n, const char *const *names)
{
    char list[256] = "";
    size_t used = 0;
    for (int i = 0; i < n && used + 1 < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", names[i]);
    if (used + 1 >= sizeof list) memcpy(list + sizeof list - 4, "...", 4);
    return aril__fail(ARIL_ERR_ARG, "class '%s' is not one of the %d known classes: %s", name, n,
                      list);
}

/* Maps each class of the source to its index in `names`. */
static aril_status find_numbers(int from, const char *const *has, int n, const char *const *names,
                                int *number)
{
    for (int i = 0; i < from; i++) {
        number[i] = -1;
        for (int k = 0; k < n && number[i] < 0; k++)
            if (strcmp(has[i], names[k]) == 0) number[i] = k;
        if (number[i] < 0) return unknown_class(has[i], n, names);
    }
    return ARIL_OK;
}

static bool same_names(int from, const char *const *has, int n, const char *const *names)
{
    if (from != n) return false;
    for (int i = 0; i < n; i++)
        if (strcmp(has[i], names[i]) != 0) return false;
    return true;
}

aril_dataset *aril_dataset_match_classes(aril_dataset *d, int n, const char *const *names)
{
    const char *const *has;
    if (!d) return NULL;
    int from = aril_dataset_classes(d, &has);
    aril_status status =
        n >= 0 && (n == 0 || names)
            ? ARIL_OK
            : aril__fail(ARIL_ERR_ARG, "dataset_match_classes: expected names, got n = %d", n);
    for (int i = 0; i < n && status == ARIL_OK; i++)
        if (!names[i])
            status = aril__fail(ARIL_ERR_ARG, "dataset_match_classes: name %d is NULL", i);
    if (status == ARIL_OK && (from == 0 || same_names(from, has, n, names))) return d;
    int *number = status == ARIL_OK ? aril__malloc((size_t)from * sizeof *number) : NULL;
    if (status == ARIL_OK && !number)
        status = aril__fail(ARIL_ERR_MEMORY, "dataset_match_classes: out of memory");
    if (status == ARIL_OK) status = find_numbers(from, has, n, names, number);
    aril_dataset *m = status == ARIL_OK
                          ? aril_dataset_make(d->type->get ? &matched_class : &matched_stream_class)
                          : NULL;
    if (!m) {
        free(number);
        aril_dataset_release(d);
        return NULL;
    }
    struct matched *data = aril_dataset_data(m);
    *data = (struct matched){ from, number };
    aril_dataset_set_source(m, d);
    if (aril_dataset_set_classes(m, n, names) == ARIL_OK) return m;
    aril_dataset_release(m);
    return NULL;
}
