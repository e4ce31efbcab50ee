#include "data/datum.h"

#include "aril/create.h"
#include "aril/device.h"
#include "core/tensor.h"
#include "data/image_sample.h"
#include "formats/array.h"

#include <string.h>

aril_status aril__datum_read(const char *name, const void *data, size_t size, aril__datum *d)
{
    *d = (aril__datum){ .message = aril__message_read(&aril__caffe_Datum, data, size,
                                                      (aril__message_opts){ .name = name }) };
    aril__message *m = d->message;
    if (!m) return aril__latest_status();
    d->encoded = aril__message_int(m, "encoded") != 0;
    d->bytes = aril__message_bytes(m, "data");
    d->floats = aril__message_array(m, "float_data");
    d->channels = aril__message_int(m, "channels");
    d->height = aril__message_int(m, "height");
    d->width = aril__message_int(m, "width");
    d->label = aril__message_int(m, "label");
    if (d->encoded) return ARIL_OK;
    size_t n = d->bytes.n ? d->bytes.n : d->floats.n;
    uint64_t numel;
    if (aril__array_bytes(ARIL_SHAPE(d->channels, d->height, d->width), 1, n, &numel) && numel == n)
        return ARIL_OK;
    aril__datum_free(d);
    return aril__fail(ARIL_ERR_FORMAT, "%s is not a valid Datum: its data do not fill its shape",
                      name);
}

void aril__datum_free(aril__datum *d)
{
    aril__message_free(d->message);
    d->message = NULL;
}

/* The image of a Datum, in bytes or in floats. [C,H,W] */
static aril_tensor *values_of(const aril__datum *d)
{
    aril_tensor *x = aril_empty(ARIL_SHAPE(d->channels, d->height, d->width),
                                d->bytes.n ? ARIL_U8 : ARIL_F32, aril_cpu());
    if (aril_tensor_status(x) != ARIL_OK) return x;
    if (d->bytes.n) {
        memcpy(aril__ptr(x), d->bytes.at, d->bytes.n);
    } else if (d->floats.n) {
        memcpy(aril__ptr(x), d->floats.at, 4 * d->floats.n);
        aril__to_host_order(aril__ptr(x), 4, (int64_t)d->floats.n, false);
    }
    return x;
}

aril_status aril__datum_decode(const char *name, const unsigned char *data, size_t size,
                               aril_sample *s)
{
    aril__datum d;
    aril_status status = aril__datum_read(name, data, size, &d);
    if (status != ARIL_OK) return status;
    s->y = aril_from(&d.label, ARIL_SHAPE(), ARIL_I64, aril_cpu());
    status = aril_tensor_status(s->y);
    if (status == ARIL_OK && d.encoded) {
        status = aril__sample_image(s, name, d.bytes.at, d.bytes.n, 0);
    } else if (status == ARIL_OK) {
        /* Caffe's tools store images as B, G, R, but those of CIFAR, which have keys of five
         * digits, as they are. */
        s->bgr = d.channels == 3 && strlen(name) != 5;
        s->x = values_of(&d);
        status = aril_tensor_status(s->x);
    }
    aril__datum_free(&d);
    return status;
}
