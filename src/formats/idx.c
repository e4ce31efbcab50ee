/* IDX, the format of MNIST: two zero bytes, a type, the number of dimensions, then big-endian sizes
 * and elements. */
#include "aril/formats.h"

#include "aril/device.h"
#include "aril/create.h"
#include "core/tensor.h"
#include "formats/array.h"
#include "formats/gzip.h"

#include <string.h>

static aril_status idx_dtype(unsigned char code, aril_dtype *dtype)
{
    switch (code) {
    case 0x08: *dtype = ARIL_U8; return ARIL_OK;
    case 0x09: *dtype = ARIL_I8; return ARIL_OK;
    case 0x0b: *dtype = ARIL_I16; return ARIL_OK;
    case 0x0c: *dtype = ARIL_I32; return ARIL_OK;
    case 0x0d: *dtype = ARIL_F32; return ARIL_OK;
    case 0x0e: *dtype = ARIL_F64; return ARIL_OK;
    default: return ARIL_ERR_FORMAT;
    }
}

static aril_tensor *parse(const char *path, const aril__bytes *b)
{
    aril_dtype dtype = ARIL_U8;
    int ndim = b->n >= 4 ? b->at[3] : 0;
    size_t head = 4 + 4 * (size_t)ndim;
    if (b->n < 4 || b->at[0] || b->at[1] || idx_dtype(b->at[2], &dtype) != ARIL_OK || ndim == 0) {
        aril__fail(
            ARIL_ERR_FORMAT,
            "%s is not an IDX file: it does not start with 0, 0, a type and a number of dimensions",
            path);
        return aril__poison();
    }
    if (ndim > ARIL_MAX_DIMS || b->n < head) {
        aril__fail(ARIL_ERR_FORMAT, "%s is not a valid IDX file: %d dimensions in %zu bytes", path,
                   ndim, b->n);
        return aril__poison();
    }
    aril_shape shape = { .ndim = ndim };
    for (int i = 0; i < ndim; i++) shape.dim[i] = aril__be32(b->at + 4 + 4 * i);
    uint64_t bytes = 0;
    bool fits = aril__array_bytes(shape, aril__dtype_bytes(dtype, 1), b->n - head, &bytes);
    if (!fits || bytes != b->n - head) {
        char text[ARIL__SHAPE_TEXT];
        aril__fail(ARIL_ERR_FORMAT,
                   "%s is not a valid IDX file: %zu bytes of data, %s than its shape %s needs",
                   path, b->n - head, fits ? "more" : "fewer",
                   aril__shape_text(text, ndim, shape.dim));
        return aril__poison();
    }
    aril_tensor *t = aril_empty(shape, dtype, aril_cpu());
    if (aril_tensor_status(t) != ARIL_OK || bytes == 0) return t;
    memcpy(aril__ptr(t), b->at + head, (size_t)bytes);
    aril__to_host_order(aril__ptr(t), aril__dtype_bytes(dtype, 1), aril_numel(t), true);
    return t;
}

aril_tensor *aril_idx_read(const char *path)
{
    aril__bytes b = { 0 };
    if (aril__read_unpacked("IDX", path, &b) != ARIL_OK) return aril__poison();
    aril_tensor *t = parse(path, &b);
    aril__bytes_free(&b);
    return t;
}
