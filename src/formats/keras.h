/* Files of Keras: where the configuration and the arrays are. */
#ifndef ARIL_FORMATS_KERAS_H
#define ARIL_FORMATS_KERAS_H

#include "aril/base.h"
#include "formats/bytes.h"
#include "formats/hdf5.h"

/* A .keras file is a zip archive of config.json, metadata.json and model.weights.h5; an .h5 file
 * holds the configuration as an attribute; JSON is a configuration alone. */
typedef struct aril__keras_file {
    char *config; /* JSON, config_size bytes; NULL: none, there are only weights */
    size_t config_size;
    char *version;               /* of Keras, such as "3.4.1"; NULL: not known */
    aril__hdf5 *arrays;          /* NULL: none */
    struct aril__mapped *mapped; /* the archive, and what was unpacked of it */
    aril__bytes unpacked;
} aril__keras_file;

/* Opens any of them, told by its contents. On failure there is nothing to close. */
aril_status aril__keras_open(aril__keras_file *f, const char *path);
void aril__keras_close(aril__keras_file *f);

#endif
