/* The weights files that checkpoints wrote into their folder, and may therefore remove.
 *
 * The folder belongs to the user, whose files may have names like a checkpoint's. So a save first
 * records, in a list file in the folder, the name and digest of the weights that it is about to
 * write; the end of the save removes the list. A killed save leaves its list behind, and the next
 * save cleans up by it. A file is removed only if it is listed and its digest matches the list: a
 * user's file that got a listed name in the meantime is left alone. */
#ifndef ARIL_TRAIN_OWNED_H
#define ARIL_TRAIN_OWNED_H

#include "aril/base.h"

#include <limits.h>

/* The metadata key, in a checkpoint's weights file, of the digest of its tensors. */
#define ARIL__OWNED_DIGEST "xxh64"

/* Initialize with { 0 }. */
typedef struct aril__owned {
    struct aril__owned_file {
        char name[NAME_MAX + 1];
        uint64_t digest;
    } * at;
    int n, capacity;
} aril__owned;

/* Whether it is the name of a checkpoint's weights file, weights-*.safetensors. */
bool aril__is_weights_name(const char *name);

/* Adds the entries of the folder's list, left by a killed save. */
aril_status aril__owned_read(const char *dir, aril__owned *list);
aril_status aril__owned_add(aril__owned *list, const char *name, uint64_t digest);

/* Writes the folder's list. */
aril_status aril__owned_write(const char *dir, const aril__owned *list);

/* Whether weights can be written under that name: no such file exists, or it is a listed one. */
bool aril__owned_may_write(const char *dir, const aril__owned *list, const char *name);

/* Removes the listed files except `keep`, their partial files, and the folder's list. */
void aril__owned_remove(const char *dir, const aril__owned *list, const char *keep);

void aril__owned_free(aril__owned *list);

#endif
