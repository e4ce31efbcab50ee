/* Caffe's Datum messages. */
#ifndef ARIL_DATA_DATUM_H
#define ARIL_DATA_DATUM_H

#include "aril/data.h"

/* Sets x and y of a sample to what a message holds. `name` is for messages. */
aril_status aril__datum_decode(const char *name, const unsigned char *data, size_t size,
                               aril_sample *s);

#endif
