/* Caffe's transform_param: mean, scale, crop and mirror of images. */
#ifndef ARIL_DATA_CAFFE_TRANSFORM_H
#define ARIL_DATA_CAFFE_TRANSFORM_H

#include "aril/rng.h"
#include "aril/tensor.h"
#include "formats/schemas.h"

enum { ARIL__CAFFE_MEAN_VALUES = 64 };

typedef struct aril__caffe_transform {
    bool train; /* crops are random, else in the center */
    bool mirror, color, gray;
    float scale;
    int64_t crop; /* 0: none */
    int n_values;
    float value[ARIL__CAFFE_MEAN_VALUES];
    aril_tensor *mean; /* f32 [C,H,W], kept; NULL: none */
} aril__caffe_transform;

/* Reads transform_param of a LayerParameter, which must outlive *t. After success free it with
 * aril__caffe_transform_free. */
aril_status aril__caffe_transform_read(const aril__message *layer, bool train, const char *root,
                                       aril__caffe_transform *t);
void aril__caffe_transform_free(aril__caffe_transform *t);

/* Whether it draws random numbers. */
bool aril__caffe_transform_is_random(const aril__caffe_transform *t);

/* An image: element (c, y, x) is at data[c * plane + y * row + x * pixel]. */
typedef struct aril__caffe_image {
    const void *data;
    bool f32; /* else u8 */
    int64_t channels, height, width;
    int64_t plane, row, pixel;
} aril__caffe_image;

/* The view of an image tensor, u8 or f32 [C,H,W]; with `bgr` channels are in reverse order. */
aril__caffe_image aril__caffe_image_of(const aril_tensor *x, bool bgr);

/* Height and width after the transform of the image `name`: an error if it is too small to be
 * cropped. */
aril_status aril__caffe_transform_size(const aril__caffe_transform *t, const char *name,
                                       const aril__caffe_image *from, int64_t *height,
                                       int64_t *width);

/* Transforms an image to f32, planar. g: for random numbers; `name`: of the sample. */
aril_status aril__caffe_transform_apply(const aril__caffe_transform *t, const char *name,
                                        const aril__caffe_image *from, aril_generator *g,
                                        float *to);

/* The path of a file that a net names: as it is, where there is such a file; otherwise below root
 * (NULL: none). Where it is not there either, leading folders of the path are left out until there
 * is one: nets of Caffe's examples name files from Caffe's own folder. Allocated; NULL with an
 * error. */
char *aril__caffe_source_path(const char *root, const char *path);

/* The path of a file that a list names: it is appended to `folder` (root_folder of a layer) as it
 * is, as Caffe does; then found as above. */
char *aril__caffe_listed_path(const char *root, const char *folder, const char *file);

#endif
