/* The splits of a dataset, opened so that they are consistent with each other. */
#include "aril/datasets.h"
#include "aril/dtype.h"
#include "aril/scope.h"
#include "aril/tensor.h"
#include "core/error.h"

bool aril_dataset_has_split(const char *name, const char *split)
{
    bool had_error = !aril_ok();
    aril_dataset *d = aril_dataset_open(name, split);
    /* Only a missing split is an argument error; others are reported when the split is opened. */
    bool has = d || aril__latest_status() != ARIL_ERR_ARG;
    aril_dataset_release(d);
    if (!had_error) aril_clear_error();
    return has;
}

/* Options that open other splits with the classes and columns of this one. */
static aril_open_opts same_as(aril_dataset *train, aril_open_opts opts)
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

static aril_status hold_out(aril_splits *s, double fraction, uint64_t seed)
{
    aril_dataset *part[2] = { NULL, NULL };
    s->held_out = fraction > 0 ? fraction : 0.1;
    aril_status status =
        aril_dataset_split(s->train, 2, (const double[]){ 1 - s->held_out, s->held_out }, seed,
                           part);
    s->train = part[0];
    s->val = part[1];
    return status;
}

static aril_status open_split(const char *name, const char *split, aril_open_opts opts,
                              aril_dataset **d)
{
    *d = aril_dataset_open_with(name, split, opts);
    return *d ? ARIL_OK : aril__latest_status();
}

static aril_status open_others(const char *name, const aril_splits_opts *opts, aril_splits *s)
{
    aril_open_opts same = same_as(s->train, opts->open);
    bool hold = opts->validation_split > 0, test = aril_dataset_has_split(name, "test");
    bool val = !hold && aril_dataset_has_split(name, "val");
    aril_status status = ARIL_OK;
    if (test) status = open_split(name, "test", same, &s->test);
    if (val && status == ARIL_OK) status = open_split(name, "val", same, &s->val);
    s->val_is_test = test && !val && !hold;
    if (s->val_is_test && status == ARIL_OK) s->val = aril_dataset_keep(s->test);
    return status == ARIL_OK && !s->val ? hold_out(s, opts->validation_split, opts->seed) : status;
}

aril_status aril_splits_open(const char *name, aril_splits_opts opts, aril_splits *s)
{
    if (!s) return aril__fail(ARIL_ERR_ARG, "splits_open: the splits are NULL");
    *s = (aril_splits){ 0 };
    if (!(opts.validation_split >= 0 && opts.validation_split < 1))
        return aril__fail(ARIL_ERR_ARG,
                          "splits_open: validation_split is %g, expected a fraction from 0 to 1",
                          opts.validation_split);
    opts.open.name_classes = true;
    aril_status status = open_split(name, NULL, opts.open, &s->train);
    if (status == ARIL_OK) status = open_others(name, &opts, s);
    if (status != ARIL_OK) aril_splits_release(s);
    return status;
}

void aril_splits_release(aril_splits *s)
{
    if (!s) return;
    aril_dataset_release(s->train);
    aril_dataset_release(s->val);
    aril_dataset_release(s->test);
    *s = (aril_splits){ 0 };
}
