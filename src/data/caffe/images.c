/* ImageData layers, and lists of images as datasets. */
#include "aril/caffe_data.h"
#include "aril/create.h"
#include "aril/device.h"
#include "aril/dtype.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "data/caffe/list.h"
#include "data/caffe/source.h"
#include "data/sampler.h"

#include <stdlib.h>
#include <string.h>

/* ---- ImageData ---- */

typedef struct image_layer {
    aril__caffe_list list;
    aril__caffe_transform t;
    int64_t height, width; /* new_height, new_width; 0: as they are */
    int channels, tops;
} image_layer;

static int64_t layer_size(aril_dataset *self)
{
    return ((image_layer *)aril_dataset_data(self))->list.path.n;
}

static aril_status layer_get(aril_dataset *self, int64_t i, aril_sample *s)
{
    const image_layer *m = aril_dataset_data(self);
    s->name = m->list.path.at[i];
    aril_tensor *from = aril__caffe_list_image(&m->list, i, m->channels, m->height, m->width);
    if (aril_tensor_status(from) != ARIL_OK) return aril_tensor_status(from);
    aril__caffe_image v = aril__caffe_image_of(from, true);
    int64_t height, width;
    aril_status status = aril__caffe_transform_size(&m->t, s->name, &v, &height, &width);
    if (status != ARIL_OK) return status;
    aril_tensor *x = aril_empty(ARIL_SHAPE(v.channels, height, width), ARIL_F32, aril_cpu());
    status = aril_tensor_status(x);
    if (status == ARIL_OK)
        status = aril__caffe_transform_apply(&m->t, s->name, &v, s->random, aril__ptr(x));
    if (status != ARIL_OK) return status;
    aril__caffe_source_set(s, 0, x);
    float label = (float)m->list.label[i];
    if (m->tops > 1)
        aril__caffe_source_set(s, 1, aril_from(&label, ARIL_SHAPE(), ARIL_F32, aril_cpu()));
    return m->tops > 1 ? aril_tensor_status(s->y) : ARIL_OK;
}

static void layer_destroy(aril_dataset *self)
{
    image_layer *m = aril_dataset_data(self);
    aril__caffe_transform_free(&m->t);
    aril__caffe_list_free(&m->list);
}

static const aril_dataset_class layer_class = {
    .type = "ImageData layer",
    .data_size = sizeof(image_layer),
    .size = layer_size,
    .get = layer_get,
    .destroy = layer_destroy,
};

aril_status aril__caffe_open_images(const aril__message *layer, const aril__caffe_source_opts *opts,
                                    aril__caffe_source *s)
{
    const aril__message *p = aril__message_sub(layer, "image_data_param");
    s->batch = aril__caffe_batch_size(p);
    if (s->batch < 0) return (aril_status)s->batch;
    s->skip_below = aril__message_int(p, "rand_skip");
    s->shuffle = aril__message_int(p, "shuffle") != 0;
    s->dataset = aril_dataset_make(&layer_class);
    if (!s->dataset) return aril__latest_status();
    image_layer *m = aril_dataset_data(s->dataset);
    m->height = aril__message_int(p, "new_height");
    m->width = aril__message_int(p, "new_width");
    m->channels = aril__message_int(p, "is_color") ? 3 : 1;
    m->tops = (int)aril__message_count(layer, "top");
    if ((m->height == 0) != (m->width == 0))
        return aril__fail(ARIL_ERR_ARG, "new_height and new_width must both be set, or neither");
    aril_status status = aril__caffe_transform_read(layer, opts->train, opts->root, &m->t);
    if (status != ARIL_OK) return status;
    char *path = aril__caffe_source_path(opts->root, aril__message_text(p, "source"));
    if (!path) return aril__latest_status();
    status =
        aril__caffe_list_read(path, aril__message_text(p, "root_folder"), opts->root, &m->list);
    free(path);
    return status;
}

/* ---- a list as a dataset ---- */

typedef struct list_data {
    aril__caffe_list list;
    int64_t *order;
    int64_t height, width;
    int channels;
} list_data;

static int64_t list_size(aril_dataset *self)
{
    return ((list_data *)aril_dataset_data(self))->list.path.n;
}

static aril_status list_get(aril_dataset *self, int64_t i, aril_sample *s)
{
    const list_data *m = aril_dataset_data(self);
    i = m->order[i];
    s->name = m->list.path.at[i];
    s->x = aril__caffe_list_image(&m->list, i, m->channels, m->height, m->width);
    if (aril_tensor_status(s->x) != ARIL_OK) return aril_tensor_status(s->x);
    s->y = aril_from(&m->list.label[i], ARIL_SHAPE(), ARIL_I64, aril_cpu());
    return aril_tensor_status(s->y);
}

static void list_destroy(aril_dataset *self)
{
    list_data *m = aril_dataset_data(self);
    aril__caffe_list_free(&m->list);
    free(m->order);
}

static const aril_dataset_class list_class = {
    .type = "image list",
    .data_size = sizeof(list_data),
    .size = list_size,
    .get = list_get,
    .destroy = list_destroy,
    .images = true,
};

static aril_status open_list(list_data *m, const char *path, aril_caffe_list_opts opts)
{
    char root[4096] = "";
    if (opts.root && *opts.root &&
        snprintf(root, sizeof root, "%s%s", opts.root,
                 opts.root[strlen(opts.root) - 1] == '/' ? "" : "/") >= (int)sizeof root)
        return aril__fail(ARIL_ERR_ARG, "caffe_image_list: the path of the root is too long");
    aril_status status = aril__caffe_list_read(path, root, NULL, &m->list);
    if (status != ARIL_OK) return status;
    int64_t n = m->list.path.n;
    m->order = aril__malloc((size_t)n * sizeof *m->order);
    if (!m->order) return aril__fail(ARIL_ERR_MEMORY, "out of memory reading %s", path);
    for (int64_t i = 0; i < n; i++) m->order[i] = i;
    if (opts.shuffle) aril__shuffle(m->order, n, opts.seed, 0);
    return ARIL_OK;
}

aril_dataset *aril_caffe_image_list(const char *path, aril_caffe_list_opts opts)
{
    if (!path || opts.height < 0 || opts.width < 0 || (opts.height == 0) != (opts.width == 0)) {
        aril__fail(ARIL_ERR_ARG, "caffe_image_list: %s",
                   path ? "expected a height and a width of at least 1, or neither"
                        : "the path is NULL");
        return NULL;
    }
    aril_dataset *d = aril_dataset_make(&list_class);
    if (!d) return NULL;
    list_data *m = aril_dataset_data(d);
    m->height = opts.height;
    m->width = opts.width;
    m->channels = opts.gray ? 1 : 3;
    if (open_list(m, path, opts) == ARIL_OK) return d;
    aril_dataset_release(d);
    return NULL;
}
