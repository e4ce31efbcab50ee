/* What debug_info prints, as Caffe's Net does: means of the absolute values of blobs and of their
 * gradients, layer by layer. The net runs eagerly then. */
#include "aril/autograd.h"
#include "aril/create.h"
#include "aril/dtype.h"
#include "aril/math.h"
#include "aril/reduce.h"
#include "aril/scope.h"
#include "core/error.h"
#include "core/memory.h"
#include "models/caffe/net.h"
#include "train/caffe/solver.h"

#include <math.h>
#include <stdlib.h>

/* A bottom that gets a gradient. */
typedef struct bottom {
    int layer, index;
    aril_tensor *value; /* kept */
} bottom;

struct aril__caffe_debug {
    const aril_caffe_solver *solver;
    aril_module *net;
    bottom *bottom; /* in the order of the run */
    int n, capacity;
    aril_status status;
};

/* ---- numbers ---- */

/* The sum of |x|, or of x^2. */
static double sum_of(aril_tensor *x, bool squares)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_tensor *v = aril_cast(aril_detach(x), ARIL_F64);
    return aril_item(aril_sum(squares ? aril_square(v) : aril_abs(v), ARIL_ALL));
}

static double mean_of(aril_tensor *x)
{
    return x ? sum_of(x, false) / (double)aril_numel(x) : 0;
}

/* The gradient of what Caffe would call the loss, which is not divided by iter_size; 0: none. */
static double mean_of_grad(const aril_caffe_solver *s, const aril_tensor *t)
{
    ARIL_SCOPE;
    return aril_has_grad(t) ? mean_of(aril_grad(t)) * (double)s->settings.iter_size : 0;
}

/* ---- names ---- */

static const char *top_of(const aril_caffe_layer *l, int i)
{
    return i < l->n_tops && l->tops[i] ? l->tops[i] : "(automatic)";
}

/* The name that the net gives to a blob, or its number. */
static const char *blob_name(const aril_module *net, int layer, int k, char *buf, size_t size)
{
    const aril__message *m = aril__caffe_layer_message(net, layer);
    const aril__message *spec = aril__message_sub_at(m, "param", (size_t)k);
    const char *name = spec ? aril__message_text(spec, "name") : "";
    snprintf(buf, size, "%d", k);
    return *name ? name : buf;
}

/* ---- a run ---- */

static void keep_bottoms(aril__caffe_debug *d, int layer, aril_list bottoms)
{
    for (int i = 0; i < bottoms.n && d->status == ARIL_OK; i++) {
        aril_tensor *t = bottoms.at[i];
        if (!aril_requires_grad(t)) continue;
        if (d->n == d->capacity) {
            int more = d->capacity ? 2 * d->capacity : 64;
            bottom *wider = aril__realloc(d->bottom, (size_t)more * sizeof *wider);
            if (!wider) {
                d->status = aril__fail(ARIL_ERR_MEMORY, "solver: out of memory for debug_info");
                return;
            }
            d->bottom = wider;
            d->capacity = more;
        }
        d->status = aril_retain_grad(t);
        d->bottom[d->n++] = (bottom){ layer, i, aril_keep(t) };
    }
}

static void watch(void *ctx, int layer, aril_list bottoms, aril_list tops)
{
    aril__caffe_debug *d = ctx;
    const aril_caffe_layer l = aril_caffe_layer_at(d->net, layer);
    char buf[16];
    for (int i = 0; i < tops.n; i++)
        if (tops.at[i])
            aril__caffe_log(d->solver, "    [Forward] Layer %s, top blob %s data: %g", l.name,
                            top_of(&l, i), mean_of(tops.at[i]));
    aril_tensor *t;
    for (int k = 0; (t = aril__caffe_layer_blob(d->net, layer, k)) != NULL; k++)
        aril__caffe_log(d->solver, "    [Forward] Layer %s, param blob %s data: %g", l.name,
                        blob_name(d->net, layer, k, buf, sizeof buf), mean_of(t));
    keep_bottoms(d, layer, bottoms);
}

aril__caffe_debug *aril__caffe_debug_begin(const aril_caffe_solver *s, aril_module *net)
{
    aril__caffe_debug *d = aril__calloc(sizeof *d);
    if (!d) {
        aril__fail(ARIL_ERR_MEMORY, "solver: out of memory for debug_info");
        return NULL;
    }
    *d = (aril__caffe_debug){ .solver = s, .net = net };
    aril__caffe_watch(net, watch, d);
    return d;
}

aril_status aril__caffe_debug_end(aril__caffe_debug *d)
{
    aril_status status = d->status;
    aril__caffe_watch(d->net, NULL, NULL);
    for (int i = 0; i < d->n; i++) aril_release(d->bottom[i].value);
    free(d->bottom);
    free(d);
    return status;
}

/* ---- backward ---- */

/* The bottoms of a layer, which are the last ones up to *n, then its parameters. */
static void print_layer(const aril__caffe_debug *d, int layer, int *n)
{
    const aril_caffe_layer l = aril_caffe_layer_at(d->net, layer);
    int first = *n;
    char buf[16];
    while (first > 0 && d->bottom[first - 1].layer == layer) first--;
    for (int i = first; i < *n; i++)
        aril__caffe_log(d->solver, "    [Backward] Layer %s, bottom blob %s diff: %g", l.name,
                        l.bottoms[d->bottom[i].index], mean_of_grad(d->solver, d->bottom[i].value));
    *n = first;
    aril_tensor *t;
    for (int k = 0; (t = aril__caffe_layer_blob(d->net, layer, k)) != NULL; k++)
        if (aril_requires_grad(t))
            aril__caffe_log(d->solver, "    [Backward] Layer %s, param blob %s diff: %g", l.name,
                            blob_name(d->net, layer, k, buf, sizeof buf),
                            mean_of_grad(d->solver, t));
}

void aril__caffe_debug_backward(const aril__caffe_debug *d)
{
    const aril_caffe_solver *s = d->solver;
    double data[2] = { 0 }, diff[2] = { 0 }, scale = (double)s->settings.iter_size;
    int n = d->n;
    for (int i = aril_caffe_layers(d->net) - 1; i >= 0; i--) print_layer(d, i, &n);
    for (int k = 0; k < s->n_params; k++) {
        ARIL_SCOPE;
        aril_tensor *t = aril_caffe_param_at(d->net, k).tensor;
        for (int norm = 0; norm < 2; norm++) {
            data[norm] += sum_of(t, norm);
            if (aril_has_grad(t)) diff[norm] += sum_of(aril_grad(t), norm);
        }
    }
    aril__caffe_log(s,
                    "    [Backward] All net params (data, diff): L1 norm = (%g, %g); "
                    "L2 norm = (%g, %g)",
                    data[0], diff[0] * scale, sqrt(data[1]), sqrt(diff[1]) * scale);
}

/* ---- the update ---- */

/* The parameter whose tensor a blob is; -1: none. */
static int param_of(const aril_caffe_solver *s, const aril_tensor *t)
{
    for (int p = 0; p < s->n_params; p++)
        if (aril_caffe_param_at(s->train.net, p).tensor == t) return p;
    return -1;
}

void aril__caffe_debug_update(const aril_caffe_solver *s)
{
    aril_module *net = s->train.net;
    for (int i = 0; i < aril_caffe_layers(net); i++) {
        aril_tensor *t;
        for (int k = 0; (t = aril__caffe_layer_blob(net, i, k)) != NULL; k++) {
            ARIL_SCOPE;
            ARIL_NO_GRAD;
            int p = param_of(s, t);
            if (p < 0) continue;
            char buf[16], other[16];
            const char *layer = aril_caffe_layer_at(net, i).name,
                       *name = blob_name(net, i, k, buf, sizeof buf);
            aril_caffe_param own = aril_caffe_param_at(net, p);
            double diff = mean_of(aril__caffe_diff(s, p));
            if (own.layer == i && own.index == k)
                aril__caffe_log(s, "    [Update] Layer %s, param %s data: %g; diff: %g", layer,
                                name, mean_of(s->before[p]), diff);
            else
                aril__caffe_log(
                    s,
                    "    [Update] Layer %s, param blob %s (owned by layer %s, param %s) "
                    "diff: %g",
                    layer, name, aril_caffe_layer_at(net, own.layer).name,
                    blob_name(net, own.layer, own.index, other, sizeof other), diff);
        }
    }
}
