#include "data/caffe/transform.h"

#include "aril/caffe.h"
#include "aril/create.h"
#include "aril/dtype.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "data/transform.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

char *aril__caffe_source_path(const char *root, const char *path)
{
    struct stat st;
    bool plain = !root || !*root || *path == '/' || stat(path, &st) == 0;
    size_t size = strlen(path) + (plain ? 0 : strlen(root) + 1) + 1;
    char *text = aril__malloc(size);
    if (!text) {
        aril__fail(ARIL_ERR_MEMORY, "out of memory for the path '%s'", path);
        return NULL;
    }
    if (plain) return memcpy(text, path, size);
    for (const char *from = path; from; from = strchr(from, '/')) {
        while (*from == '/') from++;
        snprintf(text, size, "%s/%s", root, from);
        if (!*from || stat(text, &st) == 0) break;
    }
    if (stat(text, &st) != 0) snprintf(text, size, "%s/%s", root, path);
    return text;
}

char *aril__caffe_listed_path(const char *root, const char *folder, const char *file)
{
    size_t size = strlen(folder) + strlen(file) + 1;
    char *full = aril__malloc(size), *path = NULL;
    if (full) {
        snprintf(full, size, "%s%s", folder, file);
        path = aril__caffe_source_path(root, full);
    } else {
        aril__fail(ARIL_ERR_MEMORY, "out of memory for the path '%s'", file);
    }
    free(full);
    return path;
}

/* The mean of a file as [C,H,W]. */
static aril_status read_mean(const char *root, const char *file, aril__caffe_transform *t)
{
    ARIL_SCOPE;
    char *path = aril__caffe_source_path(root, file);
    struct stat st;
    if (!path) return ARIL_ERR_MEMORY;
    if (stat(path, &st) != 0) {
        aril__fail(ARIL_ERR_IO, "there is no mean file %s (%s); make one with `aril data mean`",
                   path, file);
        free(path);
        return ARIL_ERR_IO;
    }
    aril_tensor *mean = aril_caffe_blob_load(path);
    aril_status status = aril_tensor_status(mean);
    if (status == ARIL_OK && aril_ndim(mean) == 4 && aril_size(mean, 0) == 1)
        mean = aril_squeeze(mean, ARIL_AXES(0));
    if (status == ARIL_OK && aril_ndim(mean) != 3)
        status = aril__fail(ARIL_ERR_FORMAT,
                            "the mean in %s has %d dimensions; expected channels, "
                            "height and width",
                            path, aril_ndim(mean));
    free(path);
    if (status != ARIL_OK) return status;
    mean = aril_contiguous(aril_cast(mean, ARIL_F32));
    status = aril_tensor_status(mean);
    if (status == ARIL_OK) t->mean = aril_keep(mean);
    return status;
}

aril_status aril__caffe_transform_read(const aril__message *layer, bool train, const char *root,
                                       aril__caffe_transform *t)
{
    const aril__message *p = aril__message_sub(layer, "transform_param");
    *t = (aril__caffe_transform){
        .train = train,
        .mirror = aril__message_int(p, "mirror") != 0,
        .color = aril__message_int(p, "force_color") != 0,
        .gray = aril__message_int(p, "force_gray") != 0,
        .scale = (float)aril__message_number(p, "scale"),
        .crop = aril__message_int(p, "crop_size"),
    };
    size_t n = aril__message_count(p, "mean_value");
    if (t->color && t->gray)
        return aril__fail(ARIL_ERR_ARG, "transform_param has both force_color and force_gray; keep "
                                        "one");
    if (n > 0 && aril__message_has(p, "mean_file"))
        return aril__fail(ARIL_ERR_ARG,
                          "transform_param has both mean_file and mean_value; keep one");
    if (n > ARIL__CAFFE_MEAN_VALUES)
        return aril__fail(ARIL_ERR_UNSUPPORTED, "at most %d mean values, got %zu",
                          ARIL__CAFFE_MEAN_VALUES, n);
    t->n_values = (int)n;
    for (size_t i = 0; i < n; i++) t->value[i] = (float)aril__message_number_at(p, "mean_value", i);
    return aril__message_has(p, "mean_file")
               ? read_mean(root, aril__message_text(p, "mean_file"), t)
               : ARIL_OK;
}

void aril__caffe_transform_free(aril__caffe_transform *t)
{
    aril_release(t->mean);
    t->mean = NULL;
}

bool aril__caffe_transform_is_random(const aril__caffe_transform *t)
{
    return t->mirror || (t->train && t->crop);
}

aril__caffe_image aril__caffe_image_of(const aril_tensor *x, bool bgr)
{
    bool f32 = x->dtype == ARIL_F32;
    aril__caffe_image v = { .data = aril__ptr(x),
                            .f32 = f32,
                            .channels = x->dim[0],
                            .height = x->dim[1],
                            .width = x->dim[2],
                            .plane = x->stride[0],
                            .row = x->stride[1],
                            .pixel = x->stride[2] };
    if (bgr && v.channels >= 3) { /* without alpha */
        v.channels = 3;
        v.data = (const char *)v.data + 2 * v.plane * (f32 ? 4 : 1);
        v.plane = -v.plane;
    }
    return v;
}

aril_status aril__caffe_transform_size(const aril__caffe_transform *t, const char *name,
                                       const aril__caffe_image *from, int64_t *height,
                                       int64_t *width)
{
    *height = t->crop ? t->crop : from->height;
    *width = t->crop ? t->crop : from->width;
    if (t->crop <= from->height && t->crop <= from->width) return ARIL_OK;
    return aril__fail(ARIL_ERR_SHAPE, "crop_size %lld is larger than the image %s of %lld x %lld",
                      (long long)t->crop, name, (long long)from->width, (long long)from->height);
}

static aril_status check(const aril__caffe_transform *t, const char *name,
                         const aril__caffe_image *v)
{
    if (t->n_values > 1 && t->n_values != v->channels)
        return aril__fail(ARIL_ERR_SHAPE,
                          "%d values of mean_value for the %lld channels of %s; give "
                          "one, or one for each channel",
                          t->n_values, (long long)v->channels, name);
    const aril_tensor *m = t->mean;
    if (m && (m->dim[0] != v->channels || m->dim[1] != v->height || m->dim[2] != v->width))
        return aril__fail(ARIL_ERR_SHAPE,
                          "the mean has the shape [%lld,%lld,%lld], the image %s "
                          "[%lld,%lld,%lld]",
                          (long long)m->dim[0], (long long)m->dim[1], (long long)m->dim[2], name,
                          (long long)v->channels, (long long)v->height, (long long)v->width);
    return ARIL_OK;
}

/* One row of n pixels: (value - mean) * scale, from the right with `mirror`. mean: of each pixel,
 * or NULL; then `value` is subtracted. */
#define ROW(T, NAME)                                                                          \
    static void NAME(const T *in, int64_t pixel, const float *mean, float value, float scale, \
                     bool mirror, int64_t n, float *out)                                      \
    {                                                                                         \
        if (!mean && pixel == 1 && !mirror) {                                                 \
            for (int64_t x = 0; x < n; x++) out[x] = ((float)in[x] - value) * scale;          \
            return;                                                                           \
        }                                                                                     \
        for (int64_t x = 0; x < n; x++)                                                       \
            out[mirror ? n - 1 - x : x] =                                                     \
                ((float)in[x * pixel] - (mean ? mean[x] : value)) * scale;                    \
    }
ROW(unsigned char, row_u8)
ROW(float, row_f32)

aril_status aril__caffe_transform_apply(const aril__caffe_transform *t, const char *name,
                                        const aril__caffe_image *v, aril_generator *g, float *to)
{
    int64_t height, width, top = 0, left = 0;
    aril_status status = aril__caffe_transform_size(t, name, v, &height, &width);
    if (status == ARIL_OK) status = check(t, name, v);
    if (status != ARIL_OK) return status;
    bool mirror = t->mirror && aril__draw_below(g, 2) == 1;
    if (t->crop && t->train) {
        top = aril__draw_below(g, v->height - height + 1);
        left = aril__draw_below(g, v->width - width + 1);
    } else if (t->crop) {
        top = (v->height - height) / 2;
        left = (v->width - width) / 2;
    }
    const float *mean = t->mean ? aril__ptr(t->mean) : NULL;
    for (int64_t c = 0; c < v->channels; c++) {
        float value = t->n_values ? t->value[t->n_values > 1 ? c : 0] : 0;
        for (int64_t y = 0; y < height; y++, to += width) {
            int64_t at = c * v->plane + (top + y) * v->row + left * v->pixel;
            const float *m = mean ? mean + (c * v->height + top + y) * v->width + left : NULL;
            if (v->f32)
                row_f32((const float *)v->data + at, v->pixel, m, value, t->scale, mirror, width,
                        to);
            else
                row_u8((const unsigned char *)v->data + at, v->pixel, m, value, t->scale, mirror,
                       width, to);
        }
    }
    return ARIL_OK;
}
