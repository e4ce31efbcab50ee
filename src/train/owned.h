/* The weights that a checkpoint wrote into its folder, and may therefore remove.
 *
 * A folder belongs to the user: files of theirs may be called as the checkpoint's are. So a save
 * first writes down, in a list in the folder, the name and the digest of the weights that it is
 * about to write; the list goes when the save is over. A save that was killed leaves its list, by
 * which the next one clears up. A file is removed only when it is listed and holds the digest that
 * the list gives: a file of the user's that got a listed name since is left alone. */
#ifndef ARIL_TRAIN_OWNED_H
#define ARIL_TRAIN_OWNED_H

#include "aril/base.h"

#include <limits.h>

/* The digest of its tensors, in the metadata of a checkpoint's weights. */
#define ARIL__OWNED_DIGEST "xxh64"

/* Starts as { 0 }. */
typedef struct aril__owned {
    struct aril__owned_file {
        char name[NAME_MAX + 1];
        uint64_t digest;
    } * at;
    int n, room;
} aril__owned;

/* Is it the name of a checkpoint's weights, weights-*.safetensors? */
bool aril__is_weights_name(const char *name);

/* Adds what a save that was killed has left in the folder's list. */
aril_status aril__owned_read(const char *dir, aril__owned *list);
aril_status aril__owned_add(aril__owned *list, const char *name, uint64_t digest);

/* Writes the folder's list. */
aril_status aril__owned_write(const char *dir, const aril__owned *list);

/* Can weights be written under that name: is there no such file, or one of the list? */
bool aril__owned_may_write(const char *dir, const aril__owned *list, const char *name);

/* Removes the listed files but `keep`, what was half written of them, and the folder's list. */
void aril__owned_remove(const char *dir, const aril__owned *list, const char *keep);

void aril__owned_free(aril__owned *list);

#endif
