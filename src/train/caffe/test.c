/* Tests of nets during training. */
#include "aril/create.h"
#include "aril/scope.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "train/caffe/solver.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sums of the outputs over the batches of a test. */
typedef struct sums {
    int n;
    struct {
        int64_t n;
        double *sum;
    } of[ARIL__CAFFE_OUTPUTS];
    double loss;
} sums;

static void sums_free(sums *t)
{
    for (int i = 0; i < t->n; i++) free(t->of[i].sum);
}

static aril_status add(sums *t, int i, aril_tensor *value, bool first)
{
    ARIL_SCOPE;
    aril_tensor *v = aril_cast(value, ARIL_F64);
    const double *at = aril_data(v);
    int64_t n = aril_numel(v);
    if (aril_tensor_status(v) != ARIL_OK || (!at && n > 0)) return aril__latest_status();
    if (first) {
        t->of[i].sum = aril__calloc((size_t)n * sizeof(double) + 1);
        if (!t->of[i].sum) return aril__fail(ARIL_ERR_MEMORY, "test: out of memory");
        t->of[i].n = n;
    }
    if (n != t->of[i].n)
        return aril__fail(ARIL_ERR_SHAPE, "test: output %d had %lld values, now %lld", i,
                          (long long)t->of[i].n, (long long)n);
    for (int64_t k = 0; k < n; k++) t->of[i].sum[k] += at[k];
    return ARIL_OK;
}

static aril_status run(aril_caffe_solver *s, aril__caffe_part *p, sums *t)
{
    t->n = p->n_out;
    aril_status status = ARIL_OK;
    for (int64_t k = 0; k < p->iterations && status == ARIL_OK && !s->stopped; k++) {
        ARIL_SCOPE;
        aril_tensor *out[ARIL__CAFFE_OUTPUTS], *loss;
        status = aril__caffe_forward(p, out, &loss);
        for (int i = 0; i < p->n_out && status == ARIL_OK; i++) status = add(t, i, out[i], k == 0);
        if (status == ARIL_OK && loss && s->settings.test_compute_loss) t->loss += aril_item(loss);
        if (status == ARIL_OK) status = aril__caffe_ask(s);
    }
    if (status == ARIL_OK && p->n_written && !s->stopped) return aril_caffe_sink_write(p->sink);
    aril__caffe_sink_clear(p->sink);
    return status;
}

static aril_status test_one(aril_caffe_solver *s, int i)
{
    aril__caffe_part *p = &s->test[i];
    sums t = { 0 };
    aril__caffe_log(s, "Iteration %lld, Testing net (#%d)", (long long)s->iter, i);
    aril_status status = run(s, p, &t);
    double share = 1.0 / (double)p->iterations;
    int number = 0;
    if (status == ARIL_OK && !s->stopped && s->settings.test_compute_loss)
        aril__caffe_log(s, "Test loss: %g", aril__caffe_shown(t.loss * share));
    for (int k = 0; k < t.n && status == ARIL_OK && !s->stopped; k++) {
        aril_caffe_blob b = aril_caffe_output(p->net, k);
        for (int64_t j = 0; j < t.of[k].n; j++) t.of[k].sum[j] *= share;
        aril__caffe_log_values(s, "Test", b.name, b.loss_weight, t.of[k].n, t.of[k].sum, &number);
    }
    sums_free(&t);
    return status;
}

int64_t *aril__caffe_test_positions(const aril_caffe_solver *s, int *n)
{
    *n = 0;
    for (int i = 0; i < s->n_tests; i++) *n += 3 * aril__caffe_feed_loaders(s->test[i].feed);
    int64_t *at = aril__malloc(((size_t)*n + 1) * sizeof *at), *to = at;
    if (!at) aril__fail(ARIL_ERR_MEMORY, "solver: out of memory");
    for (int i = 0; at && i < s->n_tests; i++) {
        aril__caffe_feed_tell(s->test[i].feed, to);
        to += 3 * aril__caffe_feed_loaders(s->test[i].feed);
    }
    return at;
}

aril_status aril__caffe_test_all(aril_caffe_solver *s)
{
    int n;
    aril_status status = ARIL_OK;
    free(s->before_test);
    s->before_test = aril__caffe_test_positions(s, &n);
    if (!s->before_test) return aril__latest_status();
    for (int i = 0; i < s->n_tests && status == ARIL_OK && !s->stopped; i++)
        status = test_one(s, i);
    if (s->stopped) return status; /* the last snapshot is still to come */
    free(s->before_test);
    s->before_test = NULL;
    return status;
}

aril_status aril_caffe_solver_test(aril_caffe_solver *s, int i, double *score)
{
    if (!s || !score)
        return aril__fail(ARIL_ERR_ARG, "caffe_solver_test: the %s is NULL",
                          s ? "score" : "solver");
    if (i < 0 || i >= s->n_tests)
        return aril__fail(ARIL_ERR_INDEX,
                          "caffe_solver_test: there is no test net %d; there are %d", i,
                          s->n_tests);
    sums t = { 0 };
    bool stopped = s->stopped;
    s->stopped = false;
    aril__caffe_part *p = &s->test[i];
    aril_status status = run(s, p, &t);
    for (int k = 0; k < t.n && status == ARIL_OK; k++) {
        score[k] = 0;
        for (int64_t j = 0; j < t.of[k].n; j++) score[k] += t.of[k].sum[j];
        score[k] /= (double)t.of[k].n * (double)p->iterations;
    }
    s->stopped = s->stopped || stopped;
    sums_free(&t);
    return status;
}
