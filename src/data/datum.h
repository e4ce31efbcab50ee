/* Caffe's Datum messages. */
#ifndef ARIL_DATA_DATUM_H
#define ARIL_DATA_DATUM_H

#include "aril/data.h"

/* Decodes a message into x and y of a sample. `name` is for error messages. */
aril_status aril__datum_decode(const char *name, const unsigned char *data, size_t size,
                               aril_sample *s);

#endif
