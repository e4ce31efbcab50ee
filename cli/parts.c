#include "parts.h"

#include <aril/datasets.h>

#include <string.h>
#include <sys/stat.h>

/* A file or folder without parts, as a whole. */
static aril_dataset *open_whole(const char *data)
{
    struct stat st;
    aril_dataset *d = aril_dataset_open(data, "train");
    if (d || stat(data, &st) != 0) return d;
    aril_clear_error();
    return aril_dataset_open(data, NULL);
}

/* The part called test; *lacks: there is none, which is no error. */
static aril_dataset *open_test(const char *data, bool *lacks)
{
    aril_dataset *d = aril_dataset_open(data, "test");
    *lacks = !d && aril_error_code() == ARIL_ERR_ARG;
    if (*lacks) aril_clear_error();
    return d;
}

bool parts_open(const char *data, double share, uint64_t seed, aril_dataset **train,
                aril_dataset **test, double *kept)
{
    bool split = share > 0;
    *test = NULL;
    *kept = 0;
    *train = open_whole(data);
    if (*train && !split) *test = open_test(data, &split);
    if (!*train || (!split && !*test)) {
        aril_dataset_release(*train);
        *train = NULL;
        return false;
    }
    if (!split) return true;
    *kept = share > 0 ? share : 0.1;
    aril_dataset *part[2] = { NULL, NULL };
    aril_status s = aril_dataset_split(*train, 2, (const double[]){ 1 - *kept, *kept }, seed, part);
    *train = s < 0 ? NULL : part[0];
    *test = s < 0 ? NULL : part[1];
    return s >= 0;
}

aril_dataset *parts_to_test(const char *data, const char *split, const model_file *m)
{
    aril_dataset *train, *test;
    double kept;
    bool same = m->data && strcmp(m->data, data) == 0 && m->kept > 0;
    if (split || !same) return aril_dataset_open(data, split ? split : "test");
    if (!parts_open(data, m->kept, m->seed, &train, &test, &kept)) return NULL;
    aril_dataset_release(train);
    return test;
}

aril_dataset *parts_sized(aril_dataset *d, int64_t height, int64_t width)
{
    aril_transform *resize = aril_transform_resize(height, width, (aril_resize_opts){ 0 });
    if (d && resize) return aril_dataset_transform(d, resize);
    aril_dataset_release(d);
    aril_transform_free(resize);
    return NULL;
}

bool parts_differ(aril_dataset *d)
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
