/* Caffe's Datum messages. */
#ifndef ARIL_DATA_DATUM_H
#define ARIL_DATA_DATUM_H

#include "aril/data.h"
#include "formats/schemas.h"

/* A Datum: an encoded image, or C x H x W bytes or floats, planar. */
typedef struct aril__datum {
    bool encoded;
    aril__slice bytes;        /* an encoded image, or bytes */
    aril__proto_array floats; /* where there are no bytes */
    int64_t channels, height, width, label;
    aril__message *message;
} aril__datum;

/* Reads a message, which refers to the data, and checks its sizes. `name` is for error messages.
 * After success free it with aril__datum_free. */
aril_status aril__datum_read(const char *name, const void *data, size_t size, aril__datum *d);
void aril__datum_free(aril__datum *d);

/* Decodes a message into x and y of a sample. */
aril_status aril__datum_decode(const char *name, const unsigned char *data, size_t size,
                               aril_sample *s);

#endif
