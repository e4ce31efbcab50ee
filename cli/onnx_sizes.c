#include "onnx_sizes.h"

#include "model_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The number of a name; ONNX_SIZE_NAMES: there are too many. */
static int index_of(onnx_sizes *s, const char *name)
{
    int k = 0;
    while (k < s->n_names && strcmp(s->names[k], name) != 0) k++;
    if (k == s->n_names && k < ONNX_SIZE_NAMES) s->names[s->n_names++] = name;
    return k;
}

/* The sizes that the model declares. Negative: -1 without a name, or as in `open`. */
static bool declared(const aril_program *p, onnx_sizes *to)
{
    to->n = aril_program_inputs(p);
    if (to->n > ONNX_INPUTS) {
        aril_fail(ARIL_ERR_UNSUPPORTED, "the model has more than %d inputs", ONNX_INPUTS);
        return false;
    }
    for (int i = 0; i < to->n; i++) {
        aril_shape *s = &to->open[i];
        *s = aril_program_input_shape(p, i);
        for (int d = 0; d < s->ndim; d++) {
            const char *name = aril_program_input_size_name(p, i, d);
            if (!name) continue;
            int k = index_of(to, name);
            s->dim[d] = k < ONNX_SIZE_NAMES ? -2 - k : -1;
        }
    }
    return true;
}

static void print_names(const aril_program *p, const onnx_sizes *s, char *text, size_t size)
{
    size_t n = 0;
    for (int i = 0; i < s->n_names + s->n && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%s", i ? ", " : "",
                              i < s->n_names ? s->names[i]
                                             : aril_program_input_name(p, i - s->n_names));
}

/* One entry NAME=SIZES: value[k] gets a size by name. */
static bool read_one(const aril_program *p, const char *name, const char *sizes, onnx_sizes *to,
                     int64_t *value)
{
    aril_shape shape;
    char known[400];
    int k = 0, i = 0;
    if (!shape_read(sizes, &shape)) {
        aril_fail(ARIL_ERR_ARG, "--size: expected sizes such as 2x7 for '%s', got '%s'%s", name,
                  sizes, errno == ERANGE ? ": a size is too large" : "");
        return false;
    }
    while (k < to->n_names && strcmp(to->names[k], name) != 0) k++;
    while (i < to->n && strcmp(aril_program_input_name(p, i), name) != 0) i++;
    if (k < to->n_names && shape.ndim == 1 && !(i < to->n && to->open[i].ndim == 1)) {
        if (value[k] && value[k] != shape.dim[0]) {
            aril_fail(ARIL_ERR_SHAPE, "--size: %s is %lld, but %lld before", name,
                      (long long)shape.dim[0], (long long)value[k]);
            return false;
        }
        value[k] = shape.dim[0];
        return true;
    }
    if (i == to->n) {
        print_names(p, to, known, sizeof known);
        aril_fail(ARIL_ERR_ARG, "--size: the model has no open size or input '%s', but %s", name,
                  known);
        return false;
    }
    bool fits = to->open[i].ndim == shape.ndim || !to->open[i].ndim;
    for (int d = 0; d < shape.ndim && fits; d++) {
        int64_t open = to->open[i].ndim ? to->open[i].dim[d] : -1;
        fits = open < 0 || open == shape.dim[d];
        int64_t *named = open < -1 ? &value[-2 - open] : NULL;
        if (named && *named && *named != shape.dim[d]) {
            aril_fail(ARIL_ERR_SHAPE, "--size: %s is %lld in %s, but %lld before",
                      to->names[-2 - open], (long long)shape.dim[d], name, (long long)*named);
            return false;
        }
        if (named) *named = shape.dim[d];
    }
    if (!fits) {
        aril_fail(ARIL_ERR_SHAPE,
                  "--size: '%s' does not fit the sizes that the model declares for %s", sizes,
                  name);
        return false;
    }
    for (int d = 0; d < shape.ndim; d++) /* without a name, or declared without sizes */
        if (!to->open[i].ndim || to->open[i].dim[d] == -1) to->known[i].dim[d] = shape.dim[d];
    to->known[i].ndim = shape.ndim;
    return true;
}

static bool read_given(const aril_program *p, const char *given, onnx_sizes *to, int64_t *value)
{
    char *copy = strdup(given), *rest = copy, *entry;
    bool good = copy != NULL;
    if (!good) aril_fail(ARIL_ERR_MEMORY, "out of memory");
    while (good && (entry = strsep(&rest, ",")) != NULL) {
        char *equal = strrchr(entry, '=');
        if (equal) *equal = '\0';
        if (equal)
            good = read_one(p, entry, equal + 1, to, value);
        else
            good = (aril_fail(ARIL_ERR_ARG, "--size: expected NAME=SIZES, got '%s'", entry), false);
    }
    free(copy);
    return good;
}

bool onnx_sizes_read(const aril_program *p, const char *given, int64_t batch, onnx_sizes *to)
{
    int64_t value[ONNX_SIZE_NAMES] = { 0 };
    *to = (onnx_sizes){ 0 };
    if (!declared(p, to) || (given && !read_given(p, given, to, value))) return false;
    bool first[ONNX_SIZE_NAMES] = { false };
    for (int i = 0; i < to->n; i++)
        if (to->open[i].ndim && to->open[i].dim[0] < -1) first[-2 - to->open[i].dim[0]] = true;
    for (int i = 0; i < to->n; i++) {
        aril_shape *open = &to->open[i], *known = &to->known[i];
        if (!open->ndim && known->ndim) *open = *known;
        known->ndim = open->ndim;
        for (int d = 0; d < open->ndim; d++) {
            int64_t k = -2 - open->dim[d];
            if (open->dim[d] >= 0) {
                known->dim[d] = open->dim[d];
            } else if (k >= 0 && value[k]) {
                known->dim[d] = open->dim[d] = value[k];
            } else if (k < 0 && known->dim[d]) {
                open->dim[d] = known->dim[d];
            } else {
                known->dim[d] = (k >= 0 ? first[k] : d == 0) ? batch : 1;
            }
        }
    }
    return true;
}
