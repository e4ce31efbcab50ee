/* Caffe's databases of images, and the data layers of its nets.
 *
 *     aril_dataset *list = aril_caffe_image_list("train.txt", (aril_caffe_list_opts){
 *         .root = "images", .height = 256, .width = 256, .shuffle = true });
 *     aril_caffe_import(list, "train_lmdb", (aril_caffe_import_opts){ 0 });
 *     aril_caffe_mean("train_lmdb", "mean.binaryproto");
 *
 * `aril data import` does the same. */
#ifndef ARIL_CAFFE_DATA_H
#define ARIL_CAFFE_DATA_H

#include "aril/data.h"
#include "aril/module.h"

ARIL_C_BEGIN

/* ---- making databases ---- */

typedef struct aril_caffe_list_opts {
    const char *root;      /* folder of the images; NULL: paths are used as they are */
    int64_t height, width; /* images are resized to this; 0: as they are */
    bool gray;             /* one channel */
    bool shuffle;          /* in random order */
    uint64_t seed;         /* of that order */
} aril_caffe_list_opts;

/* A dataset of images from a text file with a line "path label" for each, as convert_imageset takes
 * it. x: u8 [C,H,W], RGB or gray; y: the label. Samples are named by their paths. Resizing is
 * bilinear, without antialiasing, as in OpenCV. */
ARIL_API aril_dataset *aril_caffe_image_list(const char *path, aril_caffe_list_opts opts);

typedef struct aril_caffe_import_opts {
    /* Images are stored compressed, as "png" or "jpg"; NULL: as bytes. */
    const char *encoded;
    bool rgb;        /* channels stay in the order R, G, B; default: B, G, R, as OpenCV has them */
    int key_digits;  /* of the number in a key; default 8 */
    bool name_keys;  /* keys are NUMBER_NAME, as for image lists */
    bool same_shape; /* samples of different shapes are an error */
    bool only_new;   /* a database in the folder is an error, also one that appears meanwhile */
    /* Called for a sample that cannot be read (a missing or damaged image), with the reason: it is
     * left out, and its number is not used, as convert_imageset does. NULL: it is an error. */
    void (*skipped)(const char *why, void *ctx);
    void *ctx;
} aril_caffe_import_opts;

/* Writes all samples of a dataset to an LMDB in `folder`, in order, as Caffe's tools do: Datum
 * messages with u8 or f32 data and an integer label, under sorted keys "00000042". Returns the
 * number of samples written, or a negative status; it is an error if none can be read. d is
 * borrowed. A database in the folder is replaced when the new one is complete, unless
 * `only_new` is set. */
ARIL_API int64_t aril_caffe_import(aril_dataset *d, const char *folder,
                                   aril_caffe_import_opts opts);

/* Writes the mean image of an LMDB as a binaryproto, as compute_image_mean does. All images have
 * the same shape. */
ARIL_API aril_status aril_caffe_mean(const char *folder, const char *to);

ARIL_C_END

#endif
