/* The data layers of a net. */
#include "aril/caffe_solver.h"
#include "aril/scope.h"
#include "core/error.h"
#include "core/memory.h"
#include "data/caffe/source.h"
#include "models/caffe/net.h"
#include "train/caffe/solver.h"

#include <stdlib.h>
#include <string.h>

typedef struct part {
    aril_loader *loader;
    int first, tops; /* inputs of the net */
} part;

struct aril_caffe_feed {
    int n, n_in;
    part *part;
    char *root;
};

static aril_status add_layer(aril_caffe_feed *f, const aril_module *net, int i,
                             const aril_caffe_feed_opts *opts, bool *given)
{
    aril_caffe_layer l = aril_caffe_layer_at(net, i);
    if (l.first_input < 0 || !aril__caffe_source_has(l.type)) return ARIL_OK;
    part *p = &f->part[f->n];
    aril__caffe_source_opts how = { .train = opts->train,
                                    .root = f->root,
                                    .seed = opts->seed + (uint64_t)i,
                                    .workers = opts->workers,
                                    .device = opts->device };
    p->loader = aril__caffe_source_open(aril__caffe_layer_message(net, i), how);
    if (!p->loader) return aril__latest_status();
    p->first = l.first_input;
    p->tops = l.n_tops;
    f->n++;
    for (int k = 0; k < p->tops && p->first + k < f->n_in; k++) given[p->first + k] = true;
    return ARIL_OK;
}

static aril_status open_layers(aril_caffe_feed *f, const aril_module *net,
                               const aril_caffe_feed_opts *opts)
{
    int n = aril_caffe_layers(net);
    bool *given = aril__calloc((size_t)f->n_in + 1);
    f->part = aril__calloc((size_t)(n + 1) * sizeof *f->part);
    aril_status status =
        given && f->part ? ARIL_OK : aril__fail(ARIL_ERR_MEMORY, "caffe_feed: out of memory");
    for (int i = 0; i < n && status == ARIL_OK; i++) status = add_layer(f, net, i, opts, given);
    for (int i = 0; i < f->n_in && status == ARIL_OK; i++) {
        if (given[i]) continue;
        aril_caffe_blob b = aril_caffe_input(net, i);
        aril_caffe_layer l = aril_caffe_layer_at(net, b.layer);
        status =
            aril__fail(ARIL_ERR_STATE,
                       "the net '%s' has the input '%s' (layer '%s', %s), which no data layer "
                       "reads from files",
                       aril_caffe_name(net), b.name, l.name ? l.name : "?", l.type ? l.type : "?");
    }
    free(given);
    return status;
}

aril_caffe_feed *aril_caffe_feed_new(const aril_module *net, aril_caffe_feed_opts opts)
{
    if (!net || !aril_caffe_is_net(net)) {
        aril__fail(ARIL_ERR_ARG, "caffe_feed: expected a net of Caffe");
        return NULL;
    }
    aril_caffe_feed *f = aril__calloc(sizeof *f);
    if (!f) {
        aril__fail(ARIL_ERR_MEMORY, "caffe_feed: out of memory");
        return NULL;
    }
    f->n_in = aril_caffe_inputs(net);
    if (opts.root && !(f->root = aril__strdup(opts.root)))
        aril__fail(ARIL_ERR_MEMORY, "caffe_feed: out of memory");
    else if (open_layers(f, net, &opts) == ARIL_OK)
        return f;
    aril_caffe_feed_free(f);
    return NULL;
}

void aril_caffe_feed_free(aril_caffe_feed *f)
{
    if (!f) return;
    for (int i = 0; i < f->n; i++) aril_loader_free(f->part[i].loader);
    free(f->part);
    free(f->root);
    free(f);
}

aril_status aril_caffe_feed_next(aril_caffe_feed *f, aril_tensor **in)
{
    if (!f || !in)
        return aril__fail(ARIL_ERR_ARG, "caffe_feed_next: %s is NULL", f ? "in" : "the feed");
    for (int i = 0; i < f->n; i++) {
        aril_batch b;
        aril_status status = aril__caffe_source_next(f->part[i].loader, &b);
        if (status != ARIL_OK) return status;
        for (int k = 0; k < f->part[i].tops; k++)
            in[f->part[i].first + k] = aril__caffe_source_top(&b, k);
    }
    return ARIL_OK;
}

int aril__caffe_feed_loaders(const aril_caffe_feed *f)
{
    return f->n;
}

void aril__caffe_feed_tell(const aril_caffe_feed *f, int64_t *numbers)
{
    for (int i = 0; i < f->n; i++) {
        aril_loader_position at = aril_loader_tell(f->part[i].loader);
        numbers[3 * i] = (int64_t)at.seed;
        numbers[3 * i + 1] = at.epoch;
        numbers[3 * i + 2] = at.batch;
    }
}

aril_status aril__caffe_feed_seek(aril_caffe_feed *f, const int64_t *numbers)
{
    aril_status status = ARIL_OK;
    for (int i = 0; i < f->n && status == ARIL_OK; i++, numbers += 3)
        status = aril_loader_seek(f->part[i].loader,
                                  (aril_loader_position){ .seed = (uint64_t)numbers[0],
                                                          .epoch = numbers[1],
                                                          .batch = numbers[2] });
    return status;
}
