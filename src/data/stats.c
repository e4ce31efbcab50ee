/* Statistics of a dataset: means and standard deviations for normalization, and what a network for
 * it has to predict. */
#include "aril/create.h"
#include "aril/data.h"
#include "aril/device.h"
#include "aril/dtype.h"
#include "aril/reduce.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "data/dataset.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* ---- mean and standard deviation ---- */

/* Running statistics of n channels. */
typedef struct moments {
    int64_t n;
    double count;    /* values per channel */
    double *mean;    /* [n] */
    double *squares; /* [n]: sums of squared deviations from the mean */
} moments;

/* A batch as [N, channels, values of each]. */
static aril_tensor *as_channels(aril_tensor *x, bool overall)
{
    aril_tensor *d = aril_to(aril_cast(x, ARIL_F64), aril_cpu());
    if (overall || aril_ndim(d) < 2) return aril_reshape(d, ARIL_SHAPE(-1, 1, 1));
    return aril_reshape(d, ARIL_SHAPE(aril_size(d, 0), aril_size(d, 1), -1));
}

static aril_status moments_init(moments *m, int64_t n)
{
    m->n = n;
    m->mean = aril__calloc((size_t)n * sizeof *m->mean);
    m->squares = aril__calloc((size_t)n * sizeof *m->squares);
    return m->mean && m->squares ? ARIL_OK
                                 : aril__fail(ARIL_ERR_MEMORY, "dataset_stats: out of memory");
}

/* Merges the moments of a batch (Chan et al.): a difference of large sums would lose a deviation
 * that is small beside the mean. */
static aril_status moments_add(moments *m, aril_tensor *x, bool overall)
{
    ARIL_SCOPE;
    aril_tensor *d = as_channels(x, overall), *batch_mean; /* [N,C,L] */
    aril_status status = aril_tensor_status(d);
    int64_t n = status == ARIL_OK ? aril_size(d, 1) : 0;
    if (status == ARIL_OK && !m->mean) status = moments_init(m, n);
    if (status != ARIL_OK) return status;
    if (n != m->n)
        return aril__fail(ARIL_ERR_SHAPE,
                          "dataset_stats: samples have %" PRId64 " and %" PRId64
                          " channels; expected the same number in all",
                          m->n, n);
    double added = (double)(aril_size(d, 0) * aril_size(d, 2)), total = m->count + added;
    if (added == 0) return ARIL_OK;
    const double *variance = aril_data(aril_var_mean(d, ARIL_AXES(0, 2), 0, &batch_mean));
    const double *mean = aril_data(batch_mean);
    if (!mean || !variance) return aril__latest_status();
    for (int64_t i = 0; i < n; i++) {
        double delta = mean[i] - m->mean[i];
        m->mean[i] += delta * added / total;
        m->squares[i] += variance[i] * added + delta * delta * m->count * added / total;
    }
    m->count = total;
    return ARIL_OK;
}

static aril_status check_finite(const moments *m, const aril_dataset *d, bool targets)
{
    const char *const *names = NULL, *target = NULL;
    int columns = aril_dataset_columns(d, &names, &target);
    for (int64_t i = 0; i < m->n; i++) {
        if (isfinite(m->mean[i]) && isfinite(m->squares[i])) continue;
        const char *name = targets ? target : i < columns ? names[i] : NULL;
        return name ? aril__fail(ARIL_ERR_NUMBER,
                                 "dataset_stats: column %s has NaN or infinite values", name)
                    : aril__fail(ARIL_ERR_NUMBER,
                                 "dataset_stats: channel %" PRId64
                                 " of the %s has NaN or infinite values",
                                 i, targets ? "targets" : "samples");
    }
    return ARIL_OK;
}

/* Fills in the two results; a constant channel gets 1, so that dividing by it is safe. */
static aril_status moments_store(const moments *m, aril_tensor **mean, aril_tensor **std)
{
    double *deviation = m->squares;
    for (int64_t i = 0; i < m->n; i++) {
        double v = sqrt(m->squares[i] / m->count);
        deviation[i] = v > 1e-12 * fabs(m->mean[i]) ? v : 1;
    }
    aril_tensor *both[2] = { aril_from(m->mean, ARIL_SHAPE(m->n), ARIL_F64, aril_cpu()),
                             aril_from(deviation, ARIL_SHAPE(m->n), ARIL_F64, aril_cpu()) };
    aril__fail_together(2, both);
    *mean = both[0];
    *std = both[1];
    return aril_tensor_status(both[0]);
}

static aril_status read_moments(aril_dataset *d, const aril_stats_opts *opts, moments *m)
{
    int64_t size = aril_dataset_size(d), seen = 0;
    bool limited = opts->samples > 0, some = limited && opts->samples < size;
    aril_loader *l = aril_loader_new(aril_dataset_keep(d),
                                     (aril_loader_opts){
                                         .batch = some && opts->samples < 128 ? opts->samples : 128,
                                         .shuffle = some,
                                         .seed = opts->seed,
                                         .workers = opts->workers });
    if (!l) return aril__latest_status();
    aril_status status = ARIL_OK;
    for (aril_batch b; status == ARIL_OK && (!limited || seen < opts->samples);) {
        if (!aril_loader_next(l, &b)) {
            if (!aril_ok()) status = aril__latest_status();
            break;
        }
        if (opts->targets && !b.y)
            status = aril__fail(ARIL_ERR_ARG, "dataset_stats: the samples have no targets");
        else
            status = moments_add(m, opts->targets ? b.y : b.x, opts->overall);
        seen += b.n;
    }
    aril_loader_free(l);
    if (status == ARIL_OK && m->count == 0)
        status = aril__fail(ARIL_ERR_ARG, "dataset_stats: the dataset has no samples");
    return status;
}

aril_status aril_dataset_stats(aril_dataset *d, aril_stats_opts opts, aril_tensor **mean,
                               aril_tensor **std)
{
    if (!d || !mean || !std)
        return aril__fail(ARIL_ERR_ARG, "dataset_stats: %s is NULL",
                          !d      ? "the dataset"
                          : !mean ? "mean"
                                  : "std");
    if (opts.samples < 0)
        return aril__fail(ARIL_ERR_ARG, "dataset_stats: samples is %" PRId64 ", expected 0 or more",
                          opts.samples);
    moments m = { 0 };
    aril_status status = read_moments(d, &opts, &m);
    if (status == ARIL_OK) status = check_finite(&m, d, opts.targets);
    if (status == ARIL_OK) status = moments_store(&m, mean, std);
    free(m.mean);
    free(m.squares);
    return status;
}

/* ---- the task ---- */

/* The largest label of all samples + 1. */
static int64_t count_labels(aril_dataset *d)
{
    int64_t max = -1;
    for (int64_t i = 0; i < aril_dataset_size(d); i++) {
        ARIL_SCOPE;
        aril_sample s = { 0 };
        if (aril_dataset_get(d, i, &s) < 0 || !s.y) return -1;
        int64_t label = aril_item_int(s.y);
        if (label < 0) {
            aril__fail(ARIL_ERR_ARG,
                       "dataset_outputs: the target of sample %" PRId64 " is %" PRId64
                       "; classes are counted from 0",
                       i, label);
            return -1;
        }
        if (label > max) max = label;
    }
    return max + 1;
}

int64_t aril_dataset_outputs(aril_dataset *d, bool *regression)
{
    ARIL_SCOPE;
    aril_sample s = { 0 };
    if (regression) *regression = false;
    if (!d || aril_dataset_size(d) < 0) {
        aril__fail(ARIL_ERR_ARG, "dataset_outputs: expected a dataset with a size, got %s",
                   d ? "a stream" : "NULL");
        return -1;
    }
    if (aril_dataset_get(d, 0, &s) < 0) return -1;
    if (!s.y) {
        aril__fail(ARIL_ERR_ARG, "dataset_outputs: the samples have no targets");
        return -1;
    }
    bool numbers = aril_dtype_is_float(aril_dtype_of(s.y));
    if (regression) *regression = numbers;
    if (numbers) return aril_numel(s.y);
    int named = aril_dataset_classes(d, NULL);
    return named > 0 ? named : count_labels(d);
}
