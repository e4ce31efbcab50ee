/* File names and folders: helpers shared by the file-based datasets. */
#ifndef ARIL_DATA_FILES_H
#define ARIL_DATA_FILES_H

#include "aril/datasets.h"

/* A growable list of strings; initialize with { 0 }. */
typedef struct aril__texts {
    char **at;
    int64_t n, capacity;
} aril__texts;

aril_status aril__texts_add(aril__texts *to, const char *name);
void aril__texts_free(aril__texts *n);

/* Adds the names in a folder, except those that begin with a dot, sorted bytewise. */
aril_status aril__list_folder(const char *path, aril__texts *to);

/* Does `folder` contain a folder (a file) called `name`? */
bool aril__is_folder(const char *folder, const char *name);
bool aril__is_file(const char *folder, const char *name);

bool aril__is_image_name(const char *name);

/* Raises an error for a split that the dataset does not have, and returns NULL. `has` lists the
 * splits it has. */
aril_dataset *aril__no_split(const char *what, const char *split, const char *has);

/* Sets the dataset's class names; on failure releases it and returns NULL. */
aril_dataset *aril__with_classes(aril_dataset *d, int n, const char *const *names);

#endif
