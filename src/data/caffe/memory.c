/* MemoryData layers: samples from the program, in a tensor. */
#include "aril/autograd.h"
#include "aril/create.h"
#include "aril/device.h"
#include "aril/dtype.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "core/shape.h"
#include "core/tensor.h"
#include "data/caffe/source.h"

#include <string.h>

typedef struct memory {
    aril_tensor *x, *y; /* [n,C,H,W], u8 or f32; f32 [n] or NULL: all labels are 0 */
    aril__caffe_transform t;
} memory;

static int64_t size_of(aril_dataset *self)
{
    return aril_size(((memory *)aril_dataset_data(self))->x, 0);
}

static aril_status get(aril_dataset *self, int64_t i, aril_sample *s)
{
    const memory *m = aril_dataset_data(self);
    aril__caffe_image v = aril__caffe_image_of(aril_select(m->x, 0, i), false);
    int64_t height, width;
    aril_status status = aril__caffe_transform_size(&m->t, "given", &v, &height, &width);
    if (status != ARIL_OK) return status;
    aril_tensor *x = aril_empty(ARIL_SHAPE(v.channels, height, width), ARIL_F32, aril_cpu());
    status = aril_tensor_status(x);
    if (status == ARIL_OK)
        status = aril__caffe_transform_apply(&m->t, "given", &v, s->random, aril__ptr(x));
    if (status != ARIL_OK) return status;
    aril__caffe_source_set(s, 0, x);
    aril__caffe_source_set(
        s, 1, m->y ? aril_select(m->y, 0, i) : aril_zeros(ARIL_SHAPE(), ARIL_F32, aril_cpu()));
    return aril_tensor_status(s->y);
}

static void destroy(aril_dataset *self)
{
    memory *m = aril_dataset_data(self);
    aril_release(m->x);
    aril_release(m->y);
    aril__caffe_transform_free(&m->t);
}

static const aril_dataset_class memory_class = {
    .type = "MemoryData layer",
    .data_size = sizeof(memory),
    .size = size_of,
    .get = get,
    .destroy = destroy,
};

/* Samples must have the layer's sizes once they are transformed, and fill its batches. */
static aril_status check(const memory *m, const aril__message *p, int64_t batch, aril_tensor *x,
                         aril_tensor *y)
{
    char have[ARIL__SHAPE_TEXT];
    int64_t crop = m->t.crop,
            want[3] = { aril__message_int(p, "channels"), aril__message_int(p, "height"),
                        aril__message_int(p, "width") };
    bool fits = aril_ndim(x) == 4 && aril_size(x, 1) == want[0];
    for (int k = 1; k < 3 && fits; k++)
        fits =
            crop ? want[k] == crop && aril_size(x, k + 1) >= crop : want[k] == aril_size(x, k + 1);
    if (!fits)
        return aril__fail(ARIL_ERR_SHAPE, "expected samples [n,%lld,%lld,%lld]%s, got %s",
                          (long long)want[0], (long long)want[1], (long long)want[2],
                          crop ? " after crop_size" : "", aril__text(have, x));
    int64_t n = aril_size(x, 0);
    if (n < 1 || n % batch != 0)
        return aril__fail(ARIL_ERR_SHAPE,
                          "the number of samples must be a multiple of "
                          "batch_size %lld, got %lld",
                          (long long)batch, (long long)n);
    if (y && aril_numel(y) != n)
        return aril__fail(ARIL_ERR_SHAPE,
                          "expected %lld labels, one for each sample, got "
                          "%s",
                          (long long)n, aril__text(have, y));
    return ARIL_OK;
}

/* A copy on the CPU: the program may change its tensors. */
static aril_status own(aril_tensor *t, aril_dtype dtype, aril_tensor **to)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    t = aril_copy(aril_contiguous(aril_cast(aril_to(aril_detach(t), aril_cpu()), dtype)));
    if (aril_tensor_status(t) == ARIL_OK) *to = aril_keep(t);
    return aril_tensor_status(t);
}

aril_status aril__caffe_open_memory(const aril__message *layer, const aril__caffe_source_opts *opts,
                                    aril__caffe_source *s)
{
    const aril__message *p = aril__message_sub(layer, "memory_data_param");
    if (!opts->x)
        return aril__fail(ARIL_ERR_STATE,
                          "no data; set them with "
                          "aril_caffe_feed_set, or on the command line with --memory");
    s->batch = aril__caffe_batch_size(p);
    if (s->batch < 0) return (aril_status)s->batch;
    s->dataset = aril_dataset_make(&memory_class);
    if (!s->dataset) return aril__latest_status();
    memory *m = aril_dataset_data(s->dataset);
    aril_status status = aril__caffe_transform_read(layer, opts->train, opts->root, &m->t);
    if (status == ARIL_OK) status = aril_tensor_status(opts->x);
    if (status == ARIL_OK && opts->y) status = aril_tensor_status(opts->y);
    if (status == ARIL_OK) status = check(m, p, s->batch, opts->x, opts->y);
    bool bytes = status == ARIL_OK && aril_dtype_of(opts->x) == ARIL_U8;
    if (status == ARIL_OK) status = own(opts->x, bytes ? ARIL_U8 : ARIL_F32, &m->x);
    if (status == ARIL_OK && opts->y)
        status = own(aril_reshape(opts->y, ARIL_SHAPE(aril_size(m->x, 0))), ARIL_F32, &m->y);
    return status;
}
