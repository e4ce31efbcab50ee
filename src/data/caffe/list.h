/* Lists of image files with labels: lines of "path label". */
#ifndef ARIL_DATA_CAFFE_LIST_H
#define ARIL_DATA_CAFFE_LIST_H

#include "data/files.h"

typedef struct aril__caffe_list {
    aril__texts path; /* as in the file */
    int64_t *label;
    char *folder; /* prefix of all paths, with its slash; "": none */
    char *root;   /* where paths start that are not found; NULL: the current folder */
} aril__caffe_list;

/* Reads a list; its files are found as aril__caffe_listed_path does. After success free it with
 * aril__caffe_list_free. */
aril_status aril__caffe_list_read(const char *path, const char *folder, const char *root,
                                  aril__caffe_list *l);
void aril__caffe_list_free(aril__caffe_list *l);

/* Reads image i, with 1 or 3 channels (RGB), resized unless height is 0: u8 [C,H,W], owned by the
 * scope. Poison on failure. */
aril_tensor *aril__caffe_list_image(const aril__caffe_list *l, int64_t i, int channels,
                                    int64_t height, int64_t width);

/* Resizes u8 [C,H,W] bilinearly, without antialiasing, as OpenCV does. */
aril_tensor *aril__caffe_resize(aril_tensor *x, int64_t height, int64_t width);

#endif
