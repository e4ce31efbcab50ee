/* Datasets in files: known ones by their names, and files and folders of your own.
 *
 *     aril_dataset *train = aril_fashion_mnist("train");
 *     aril_dataset *mine = aril_dataset_open("pictures/flowers", "train");
 *
 * A dataset is looked for in the folders of ARIL_DATA (several are separated by colons), then in
 * ~/.local/share/datasets, /usr/local/share/datasets and /usr/share/datasets. Where it is in none of them the error says what to install, or which files
 * to put where. All functions give NULL, with an error, on failure. */
#ifndef ARIL_DATASETS_H
#define ARIL_DATASETS_H

#include "aril/data.h"

ARIL_C_BEGIN

/* ---- by name ---- */

/* MNIST's digits and Fashion-MNIST's clothes: pictures [1,28,28] of ten classes, "train" (60,000) and "test" (10,000). */
ARIL_API aril_dataset *aril_mnist(const char *split);
ARIL_API aril_dataset *aril_fashion_mnist(const char *split);

/* CIFAR-10 and CIFAR-100: pictures [3,32,32], "train" (50,000) and "test" (10,000), from the binary version's files. */
ARIL_API aril_dataset *aril_cifar10(const char *split);
ARIL_API aril_dataset *aril_cifar100(const char *split);

/* The names that aril_dataset_open knows; returns how many. */
ARIL_API int aril_dataset_names(const char *const **names);

/* A dataset by its name ("mnist", "fashion-mnist", "cifar10", "cifar100", or that of a folder in one of the places above) or by a path:
 *   - a folder of IDX files as MNIST's, or of CIFAR's binary files
 *   - a folder of pictures, one folder a class
 *   - a folder that holds any of these under the name of the split: train/, test/ ...
 * split is "train", "test", or another that the dataset has; NULL: all there is of a file or a folder of pictures, "train" of others. */
ARIL_API aril_dataset *aril_dataset_open(const char *name, const char *split);

/* ---- pictures ---- */

typedef struct aril_folder_opts {
    int channels; /* 1 or 3; 0: 3 */
} aril_folder_opts;

/* A folder of JPEG and PNG files. Each folder in it is a class, in the order of their names, and everything below it is of that class;
 * with no folders in it, the pictures in the folder itself have no target. x: u8 [C,H,W] of the picture's own size, y: the class. Samples are
 * called by their paths in the folder ("cats/17.jpg"). Where a transform takes but a part of a JPEG, or makes it smaller, no more than that is decoded. */
ARIL_API aril_dataset *aril_dataset_folder(const char *path, aril_folder_opts opts);
/* The same for n files, in the order given, without a target. */
ARIL_API aril_dataset *aril_dataset_picture_files(int64_t n, const char *const *paths,
                                                  aril_folder_opts opts);

ARIL_C_END

#endif
