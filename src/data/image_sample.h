/* An encoded image as the x of a sample. */
#ifndef ARIL_DATA_IMAGE_SAMPLE_H
#define ARIL_DATA_IMAGE_SAMPLE_H

#include "aril/data.h"

/* Decodes a JPEG or PNG into s->x, u8 [C,H,W] (a view of interleaved memory), decoding no more than
 * the sample's transforms need. `name` is for error messages; channels as in aril_image_opts. */
aril_status aril__sample_image(aril_sample *s, const char *name, const unsigned char *data,
                               size_t size, int channels);

#endif
