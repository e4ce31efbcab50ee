/* Opens data layers by their type. */
#include "aril/scope.h"
#include "core/error.h"
#include "core/tensor.h"
#include "data/caffe/source.h"
#include "data/dataset.h"

#include <string.h>

static const struct {
    const char *type;
    aril__caffe_open_fn *open;
    bool fed; /* by the program */
} layers[] = {
    { "Data", aril__caffe_open_data, .fed = false },
    { "ImageData", aril__caffe_open_images, .fed = false },
    { "HDF5Data", aril__caffe_open_hdf5, .fed = false },
    { "WindowData", aril__caffe_open_windows, .fed = false },
    { "MemoryData", aril__caffe_open_memory, .fed = true },
};
enum { LAYERS = sizeof layers / sizeof *layers };

/* The row of a type; -1: none. */
static int find(const char *type)
{
    for (int i = 0; i < LAYERS; i++)
        if (strcmp(layers[i].type, type) == 0) return i;
    return -1;
}

bool aril__caffe_source_has(const char *type)
{
    return find(type) >= 0;
}

bool aril__caffe_source_is_fed(const char *type)
{
    int k = find(type);
    return k >= 0 && layers[k].fed;
}

aril_tensor *aril__caffe_source_top(const aril_batch *b, int k)
{
    if (k < 2) return k == 0 ? b->x : b->y;
    return k < 2 + ARIL_SAMPLE_EXTRA ? b->extra[k - 2] : b->extra_y[k - 2 - ARIL_SAMPLE_EXTRA];
}

void aril__caffe_source_set(aril_sample *s, int k, aril_tensor *t)
{
    if (k < 2)
        *(k == 0 ? &s->x : &s->y) = t;
    else if (k < 2 + ARIL_SAMPLE_EXTRA)
        s->extra[k - 2] = t;
    else
        s->extra_y[k - 2 - ARIL_SAMPLE_EXTRA] = t;
}

static aril_status open_source(const aril__message *layer, const aril__caffe_source_opts *opts,
                               aril__caffe_source *s)
{
    if (aril__message_count(layer, "top") > ARIL__CAFFE_TOPS)
        return aril__fail(ARIL_ERR_UNSUPPORTED, "at most %d tops, got %zu", ARIL__CAFFE_TOPS,
                          aril__message_count(layer, "top"));
    int k = find(aril__message_text(layer, "type"));
    if (k >= 0) return layers[k].open(layer, opts, s);
    return aril__fail(ARIL_ERR_UNSUPPORTED,
                      "its data are not read from files; give them to the net as inputs");
}

/* "net.prototxt: layer 'data' (Data) at line 3": what errors begin with. */
static void put_where(const aril__message *layer, const char *file, char *text, size_t size)
{
    char place[40];
    snprintf(text, size, "%.300s%slayer '%.100s' (%.60s) at %s", file ? file : "", file ? ": " : "",
             aril__message_text(layer, "name"), aril__message_text(layer, "type"),
             aril__message_place(layer, place, sizeof place));
}

aril_loader *aril__caffe_source_open(const aril__message *layer, aril__caffe_source_opts opts)
{
    char where[600];
    aril__caffe_source s = { 0 };
    aril__thread *th = aril__self();
    put_where(layer, opts.file, where, sizeof where);
    aril__frame frame = { .up = th->frame, .text = where };
    th->frame = &frame;
    aril_status status = open_source(layer, &opts, &s);
    aril_sampler *order = status == ARIL_OK ? aril__caffe_order(&s) : NULL;
    if (order && aril__dataset_set_label(s.dataset, where) != ARIL_OK) {
        aril_sampler_free(order);
        order = NULL;
    }
    th->frame = frame.up;
    if (!order) {
        aril_dataset_release(s.dataset);
        return NULL;
    }
    return aril_loader_new(s.dataset, (aril_loader_opts){ .batch = s.batch,
                                                          .sampler = order,
                                                          .seed = opts.seed,
                                                          .workers = opts.workers,
                                                          .device = opts.device });
}

aril_status aril__caffe_source_next(aril_loader *l, aril_batch *b)
{
    /* The first call may only end an epoch. */
    for (int i = 0; i < 2; i++) {
        if (aril_loader_next(l, b)) return ARIL_OK;
        if (!aril_ok()) return aril__latest_status();
    }
    return aril__fail(ARIL_ERR_STATE, "a data layer has no samples");
}
