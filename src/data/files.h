/* Names and folders: what the datasets in files share. */
#ifndef ARIL_DATA_FILES_H
#define ARIL_DATA_FILES_H

#include "aril/datasets.h"

/* A list of texts that grows; { 0 } at the start. */
typedef struct aril__texts {
    char **at;
    int64_t n, room;
} aril__texts;

aril_status aril__texts_add(aril__texts *to, const char *name);
void aril__texts_free(aril__texts *n);

/* Adds the names in a folder, but those that begin with a dot, sorted byte by byte. */
aril_status aril__list_folder(const char *path, aril__texts *to);

/* Is there a folder, a file of that name in a folder? */
bool aril__is_folder(const char *folder, const char *name);
bool aril__is_file(const char *folder, const char *name);

bool aril__is_image_name(const char *name);

/* What is in a folder: does it hold MNIST's IDX files, CIFAR's files, an LMDB? And those as
 * datasets. */
bool aril__holds_idx(const char *folder);
bool aril__holds_cifar(const char *folder);
aril_dataset *aril__idx_folder(const char *folder, const char *split);
aril_dataset *aril__cifar_folder(const char *folder, const char *split);

/* An error for a split that a dataset does not have, and NULL. `has` names those that it has. */
aril_dataset *aril__no_split(const char *what, const char *split, const char *has);

/* A dataset with names of classes; NULL, with the dataset released, when that fails. */
aril_dataset *aril__with_classes(aril_dataset *d, int n, const char *const *names);

#endif
