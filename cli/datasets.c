#include "datasets.h"

#include <aril/datasets.h>

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool same_path(const char *a, const char *b)
{
    char *x = realpath(a, NULL), *y = realpath(b, NULL);
    bool same = strcmp(a, b) == 0 || (x && y && strcmp(x, y) == 0);
    free(x);
    free(y);
    return same;
}

/* The samples that the training held out: those of its seed. */
static aril_dataset *open_held_out(const char *data, aril_open_opts opts, const model_file *m)
{
    aril_splits s;
    aril_splits_opts held = { .open = opts, .validation_split = m->held_out, .seed = m->seed };
    if (aril_splits_open(data, held, &s) != ARIL_OK) return NULL;
    aril_dataset *d = aril_dataset_keep(s.val);
    aril_splits_release(&s);
    return d;
}

aril_dataset *open_test_samples(const char *data, const char *split, aril_open_opts opts,
                                const model_file *m, const char **what)
{
    *what = split;
    if (split) return aril_dataset_open_with(data, split, opts);
    *what = "test";
    if (aril_dataset_has_split(data, "test")) return aril_dataset_open_with(data, "test", opts);
    *what = "samples held out in training";
    if (m->held_out > 0 && m->data && same_path(m->data, data)) return open_held_out(data, opts, m);
    *what = "val";
    if (aril_dataset_has_split(data, "val")) return aril_dataset_open_with(data, "val", opts);
    *what = "all samples";
    return aril_dataset_open_with(data, NULL, opts);
}

aril_dataset *resize_images(aril_dataset *d, int64_t height, int64_t width)
{
    aril_transform *resize = aril_transform_resize(height, width, (aril_resize_opts){ 0 });
    if (d && resize) return aril_dataset_transform(d, resize);
    aril_dataset_release(d);
    aril_transform_free(resize);
    return NULL;
}

bool shapes_differ(aril_dataset *d)
{
    enum { LOOKED_AT = 32 };
    int64_t size = aril_dataset_size(d), n = size < LOOKED_AT ? size : LOOKED_AT;
    aril_shape first = { 0 };
    for (int64_t i = 0; i < n; i++) {
        ARIL_SCOPE;
        aril_sample s = { 0 };
        if (aril_dataset_get(d, i * size / n, &s) < 0) return false;
        aril_shape shape = aril_shape_of(s.x);
        if (i == 0) first = shape;
        if (shape.ndim != first.ndim ||
            memcmp(shape.dim, first.dim, (size_t)shape.ndim * sizeof *shape.dim) != 0)
            return true;
    }
    return false;
}

void dataset_base_name(const char *data, char *to, size_t size)
{
    size_t end = strlen(data);
    while (end > 0 && data[end - 1] == '/') end--;
    size_t begin = end;
    while (begin > 0 && data[begin - 1] != '/') begin--;
    snprintf(to, size, "%.*s", (int)(end - begin), data + begin);
    struct stat st;
    char *dot = strrchr(to, '.');
    if (dot && dot != to && stat(data, &st) == 0 && S_ISREG(st.st_mode)) *dot = '\0';
    if (!*to || strspn(to, ".") == strlen(to)) snprintf(to, size, "data");
}
