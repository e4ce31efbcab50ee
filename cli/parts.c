#include "parts.h"

#include <aril/datasets.h>

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Whether the split exists. Without options, only a missing split is an argument error; all other
 * errors are reported when the split is opened. */
static bool has_part(const char *data, const char *split)
{
    aril_dataset *d = aril_dataset_open(data, split);
    bool has = d || aril_error_code() != ARIL_ERR_ARG;
    aril_dataset_release(d);
    aril_clear_error();
    return has;
}

aril_dataset *parts_train(const char *data, aril_open_opts opts)
{
    struct stat st;
    bool whole = stat(data, &st) == 0 && !has_part(data, "train");
    return aril_dataset_open_with(data, whole ? NULL : "train", opts);
}

bool parts_lack_names(aril_dataset *d)
{
    ARIL_SCOPE;
    const char *target = NULL;
    aril_sample s;
    return aril_dataset_columns(d, NULL, &target) > 0 && target && !aril_dataset_classes(d, NULL) &&
           aril_dataset_get(d, 0, &s) == ARIL_OK && s.y && !aril_dtype_is_float(aril_dtype_of(s.y));
}

/* Options that make other splits consistent with this one. */
static aril_open_opts as_in(aril_dataset *train, aril_open_opts opts)
{
    const char *target;
    if (!opts.classes && !opts.real_target)
        opts.n_classes = aril_dataset_classes(train, &opts.classes);
    opts.n_columns = aril_dataset_columns(train, &opts.columns, &target);
    if (opts.n_columns) {
        ARIL_SCOPE;
        aril_sample s;
        opts.target = target;
        opts.skip = NULL;
        opts.real_target = aril_dataset_get(train, 0, &s) == ARIL_OK && s.y &&
                           aril_dtype_is_float(aril_dtype_of(s.y));
    }
    return opts;
}

void parts_close(parts *p)
{
    aril_dataset_release(p->train);
    aril_dataset_release(p->val);
    aril_dataset_release(p->test);
    *p = (parts){ 0 };
}

static bool hold_out(parts *p, double share, uint64_t seed)
{
    aril_dataset *part[2] = { NULL, NULL };
    p->kept = share > 0 ? share : 0.1;
    aril_status s =
        aril_dataset_split(p->train, 2, (const double[]){ 1 - p->kept, p->kept }, seed, part);
    p->train = s < 0 ? NULL : part[0];
    p->val = s < 0 ? NULL : part[1];
    return s >= 0;
}

bool parts_open(const char *data, aril_open_opts opts, double share, uint64_t seed,
                aril_dataset *train, parts *p)
{
    *p = (parts){ .train = train };
    opts = as_in(train, opts);
    bool test = has_part(data, "test"), val = share <= 0 && has_part(data, "val"), ok = true;
    if (test) ok = (p->test = aril_dataset_open_with(data, "test", opts)) != NULL;
    if (val && ok) ok = (p->val = aril_dataset_open_with(data, "val", opts)) != NULL;
    p->by_test = test && !val && share <= 0;
    if (p->by_test && ok) p->val = aril_dataset_keep(p->test);
    if (ok && !p->val) ok = hold_out(p, share, seed);
    if (!ok) parts_close(p);
    return ok;
}

static bool same_place(const char *a, const char *b)
{
    char *x = realpath(a, NULL), *y = realpath(b, NULL);
    bool same = strcmp(a, b) == 0 || (x && y && strcmp(x, y) == 0);
    free(x);
    free(y);
    return same;
}

aril_dataset *parts_to_test(const char *data, const char *split, aril_open_opts opts,
                            const model_file *m, const char **what)
{
    static const char held[] = "samples held out of the training";
    *what = split;
    if (split) return aril_dataset_open_with(data, split, opts);
    *what = "test";
    if (has_part(data, "test")) return aril_dataset_open_with(data, "test", opts);
    if (m->kept > 0 && m->data && same_place(m->data, data)) {
        parts p = { .train = parts_train(data, opts) };
        *what = held;
        if (!p.train || !hold_out(&p, m->kept, m->seed)) return NULL;
        aril_dataset_release(p.train);
        return p.val;
    }
    *what = "val";
    if (has_part(data, "val")) return aril_dataset_open_with(data, "val", opts);
    *what = "all of it";
    return parts_train(data, opts);
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
