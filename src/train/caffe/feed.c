/* The data layers of a net. */
#include "aril/caffe_solver.h"
#include "aril/create.h"
#include "aril/dtype.h"
#include "aril/scope.h"
#include "core/error.h"
#include "core/memory.h"
#include "data/caffe/source.h"
#include "models/caffe/net.h"
#include "train/caffe/solver.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* A data layer. */
typedef struct part {
    aril_loader *loader; /* NULL: the program has given no data yet */
    int first, tops;     /* inputs of the net */
    const aril__message *message;
    aril__caffe_source_opts how;
    aril_loader_position start; /* of the first data that the program gives */
} part;

struct aril_caffe_feed {
    int n, n_in;
    part *part;
    char *root;
    const aril_module *net;
};

static aril_status add_layer(aril_caffe_feed *f, const aril_module *net, int i,
                             const aril_caffe_feed_opts *opts, bool *given)
{
    aril_caffe_layer l = aril_caffe_layer_at(net, i);
    if (l.first_input < 0 || !aril__caffe_source_has(l.type)) return ARIL_OK;
    part *p = &f->part[f->n];
    *p = (part){ .first = l.first_input,
                 .tops = l.n_tops,
                 .message = aril__caffe_layer_message(net, i),
                 .how = { .train = opts->train,
                          .file = aril__caffe_net_file(net),
                          .root = f->root,
                          .seed = opts->seed + (uint64_t)i,
                          .workers = opts->workers,
                          .device = opts->device } };
    p->start.seed = p->how.seed;
    if (!aril__caffe_source_is_fed(l.type) &&
        !(p->loader = aril__caffe_source_open(p->message, p->how)))
        return aril__latest_status();
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
    f->net = net;
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

/* ---- data from the program ---- */

/* The part of a layer of that name, or of the only layer that the program feeds. */
static part *find_fed(aril_caffe_feed *f, const char *layer)
{
    part *found = NULL;
    int n = 0;
    for (int i = 0; i < f->n; i++) {
        part *p = &f->part[i];
        bool fed = aril__caffe_source_is_fed(aril__message_text(p->message, "type"));
        if (!fed || (layer && strcmp(aril__message_text(p->message, "name"), layer) != 0)) continue;
        found = p;
        n++;
    }
    if (n == 1) return found;
    if (layer)
        aril__fail(ARIL_ERR_ARG, "caffe_feed_set: the net '%s' has %s named '%s'",
                   aril_caffe_name(f->net), n ? "several MemoryData layers" : "no MemoryData layer",
                   layer);
    else
        aril__fail(ARIL_ERR_ARG, "caffe_feed_set: the net '%s' has %d MemoryData layers%s",
                   aril_caffe_name(f->net), n, n ? "; expected the name of one" : "");
    return NULL;
}

aril_status aril_caffe_feed_set(aril_caffe_feed *f, const char *layer, aril_tensor *x,
                                aril_tensor *labels)
{
    if (!f || !x)
        return aril__fail(ARIL_ERR_ARG, "caffe_feed_set: %s NULL",
                          f ? "the samples are" : "the feed is");
    part *p = find_fed(f, layer);
    if (!p) return ARIL_ERR_ARG;
    aril__caffe_source_opts how = p->how;
    how.x = x;
    how.y = labels;
    how.workers = 0; /* there is nothing to wait for */
    aril_loader *l = aril__caffe_source_open(p->message, how);
    if (!l) return aril__latest_status();
    aril_status status = aril_loader_seek(l, p->start);
    if (status != ARIL_OK) {
        aril_loader_free(l);
        return status;
    }
    p->start = (aril_loader_position){ .seed = p->how.seed };
    aril_loader_free(p->loader);
    p->loader = l;
    return ARIL_OK;
}

/* ---- batches ---- */

/* Zeros of the sizes that the layer gives. */
static aril_status zeros(const part *p, aril_tensor **in)
{
    static const char *const sizes[] = { "batch_size", "channels", "height", "width" };
    const aril__message *m = aril__message_sub(p->message, "memory_data_param");
    for (int k = 0; k < p->tops; k++) {
        aril_shape shape = { .ndim = k == 0 ? 4 : 1 };
        for (int i = 0; i < shape.ndim; i++) shape.dim[i] = aril__message_int(m, sizes[i]);
        in[p->first + k] = aril_zeros(shape, ARIL_F32, p->how.device);
        if (aril_tensor_status(in[p->first + k]) != ARIL_OK) return aril__latest_status();
    }
    return ARIL_OK;
}

static aril_status next(aril_caffe_feed *f, aril_tensor **in, bool first)
{
    for (int i = 0; i < f->n; i++) {
        part *p = &f->part[i];
        aril_batch b;
        aril_status status = ARIL_OK;
        if (!p->loader && first) {
            status = zeros(p, in);
            if (status != ARIL_OK) return status;
            continue;
        }
        if (!p->loader && !(p->loader = aril__caffe_source_open(p->message, p->how)))
            return aril__latest_status();
        status = aril__caffe_source_next(p->loader, &b);
        if (status != ARIL_OK) return status;
        for (int k = 0; k < p->tops; k++) in[p->first + k] = aril__caffe_source_top(&b, k);
    }
    return ARIL_OK;
}

aril_status aril_caffe_feed_next(aril_caffe_feed *f, aril_tensor **in)
{
    if (!f || !in)
        return aril__fail(ARIL_ERR_ARG, "caffe_feed_next: %s is NULL", f ? "in" : "the feed");
    return next(f, in, false);
}

aril_status aril__caffe_feed_first(aril_caffe_feed *f, aril_tensor **in)
{
    return next(f, in, true);
}

/* ---- positions ---- */

int aril__caffe_feed_loaders(const aril_caffe_feed *f)
{
    return f->n;
}

void aril__caffe_feed_tell(const aril_caffe_feed *f, int64_t *numbers)
{
    for (int i = 0; i < f->n; i++) {
        const part *p = &f->part[i];
        aril_loader_position at = p->loader ? aril_loader_tell(p->loader) : p->start;
        numbers[3 * i] = (int64_t)at.seed;
        numbers[3 * i + 1] = at.epoch;
        numbers[3 * i + 2] = at.batch;
    }
}

static aril_status cannot_seek(const part *p, const char *from, aril_status status)
{
    char about[PATH_MAX + 128];
    snprintf(about, sizeof about, "%s: layer '%.100s'", from,
             aril__message_text(p->message, "name"));
    return aril__fail_about(status, about);
}

aril_status aril__caffe_feed_seek(aril_caffe_feed *f, const int64_t *numbers, const char *from)
{
    aril_status status = ARIL_OK;
    bool was_ok = aril_ok();
    for (int i = 0; i < f->n && status == ARIL_OK; i++, numbers += 3) {
        part *p = &f->part[i];
        aril_loader_position to = { .seed = (uint64_t)numbers[0],
                                    .epoch = numbers[1],
                                    .batch = numbers[2] };
        if (p->loader)
            status = aril_loader_seek(p->loader, to);
        else
            p->start = to;
        if (status != ARIL_OK && was_ok) status = cannot_seek(p, from, status);
    }
    return status;
}
