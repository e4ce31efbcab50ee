/* Safetensors in memory that is mapped elsewhere. */
#ifndef ARIL_FORMATS_SAFETENSORS_H
#define ARIL_FORMATS_SAFETENSORS_H

#include "aril/formats.h"
#include "formats/atomic_file.h"

/* aril_safetensors_open_memory, with a name for messages. */
aril_safetensors *aril__safetensors_open_named(const char *name, const void *data, size_t size);

/* Appends such a file to one that is being written, whose commit reports errors of writing; `path`
 * is for messages. */
aril_status aril__safetensors_put(const char *path, const aril_named *tensors, aril__file *to);

/* The offset of the i-th tensor, which must exist, from the beginning of the file. */
uint64_t aril__safetensors_at(const aril_safetensors *f, int i);

/* aril_safetensors_save for a part of the set that `index` completes (formats/atomic_file.h). */
struct aril__file;
aril_status aril__safetensors_save_part(struct aril__file *index, const char *path,
                                        const aril_named *tensors, const aril_metadata *metadata);

#endif
