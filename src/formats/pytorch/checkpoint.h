/* An open checkpoint of PyTorch: what its files share. */
#ifndef ARIL_FORMATS_PYTORCH_CHECKPOINT_H
#define ARIL_FORMATS_PYTORCH_CHECKPOINT_H

#include "formats/pytorch/pickle.h"

/* Where the elements of a storage are. */
typedef struct checkpoint_place {
    const pickle_value *key;
    const unsigned char *at; /* in the mapped file, or unpacked; NULL: not found yet */
    uint64_t bytes;
    size_t element;    /* bytes of one, as the pickle has it */
    int member;        /* of a zip archive; -1: none */
    bool unpacked;     /* `at` is memory of its own */
    bool mixed;        /* its tensors have several dtypes */
    bool verified;     /* its checksum was compared */
    int users;         /* tensors over it */
    int first;         /* the first entry over it, -1: none */
    aril_tensor *base; /* of several users: all elements, kept */
    aril_dtype base_dtype;
} checkpoint_place;

typedef struct checkpoint {
    aril_weights *w;
    pickle pickle;
    aril__bytes unpacked; /* the pickle, if it is compressed */
    bool big;             /* big-endian elements */
    const pickle_tensor **tensor;
    int n_tensors, cap_tensors;
    checkpoint_place *place; /* storages with different keys, by pickle_storage.number */
    int n_places;
} checkpoint;

/* tree.c: chooses the part of a value that holds the weights, and adds its tensors as entries and
 * its other values as metadata. */
aril_status aril__pytorch_list(checkpoint *c, const pickle_value *v);

/* Adds one tensor; its index in c->tensor becomes the entry's `at`. */
aril_status aril__pytorch_add(checkpoint *c, const char *name, const pickle_tensor *t);

/* storage.c: numbers the storages by their keys; checks sizes and strides of all tensors against
 * them once places are known; reads a tensor. */
aril_status aril__pytorch_number(checkpoint *c);
checkpoint_place *aril__pytorch_find(checkpoint *c, const char *key, size_t n);
aril_status aril__pytorch_check(checkpoint *c);
aril_tensor *aril__pytorch_read(checkpoint *c, const pickle_tensor *t);
void aril__pytorch_free_places(checkpoint *c);

/* Compares the checksum of a stored member of the archive, if it has one. */
aril_status aril__pytorch_verify(const checkpoint *c, int member);

/* legacy.c: the format before PyTorch 1.6: pickles one after the other, then the storages. */
bool aril__pytorch_is_legacy(const aril_weights *w);
aril_status aril__pytorch_open_legacy(checkpoint *c);

/* tar.c: the format before that. */
bool aril__pytorch_is_tar(const aril_weights *w);
aril_status aril__pytorch_open_tar(checkpoint *c);

/* Reads the persistent id of a storage, ('storage', class, key, location, numel, view). */
pickle_value *aril__pytorch_storage(pickle *p, pickle_value *id);

/* write.c */
aril_status aril__pytorch_save(const char *path, const aril_named *tensors,
                               const aril_metadata *metadata);
aril_status aril__pytorch_save_part(struct aril__file *index, const char *path,
                                    const aril_named *tensors, const aril_metadata *metadata);

#endif
