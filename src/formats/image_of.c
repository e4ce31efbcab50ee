#include "formats/image_of.h"

#include "aril/device.h"
#include "aril/dtype.h"
#include "aril/create.h"
#include "aril/math.h"
#include "aril/view.h"
#include "aril/scope.h"
#include "core/error.h"
#include "core/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GAP = 1 };

/* [N,C,H,W] u8 on the host. */
static aril_tensor *as_batch(const char *what, aril_tensor *t)
{
    int ndim = aril_ndim(t);
    bool floating = aril_dtype_is_float(aril_dtype_of(t));
    if (ndim < 2 || ndim > 4 || (!floating && aril_dtype_of(t) != ARIL_U8)) {
        aril__fail(ARIL_ERR_SHAPE,
                   "%s: expected an image [H,W], [C,H,W] or [N,C,H,W] of u8 or floats, got %d "
                   "dimensions of %s",
                   what, ndim, aril_dtype_name(aril_dtype_of(t)));
        return NULL;
    }
    while (ndim < 4) t = aril_unsqueeze(t, 0), ndim++;
    int64_t channels = aril_size(t, 1);
    if ((channels != 1 && channels != 3 && channels != 4) || aril_numel(t) == 0) {
        aril__fail(ARIL_ERR_SHAPE,
                   "%s: expected an image with 1, 3 or 4 channels and at least one pixel", what);
        return NULL;
    }
    if (floating) {
        aril_tensor *held = aril_clamp(aril_cast(t, ARIL_F32), 0, 1);
        t = aril_cast(aril_round(aril_mul_scalar(held, 255)), ARIL_U8);
    }
    return aril_contiguous(aril_to(t, aril_cpu()));
}

aril_status aril__pixels_of(const char *what, aril_tensor *t, int columns, aril__pixels *out)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    if (!t) return aril__fail(ARIL_ERR_ARG, "%s: the image is NULL", what);
    aril_tensor *batch = as_batch(what, t);
    const uint8_t *from = batch ? aril_data(batch) : NULL;
    if (!from) return aril_error_code();
    int64_t n = aril_size(batch, 0), c = aril_size(batch, 1), h = aril_size(batch, 2),
            w = aril_size(batch, 3);
    int64_t across = columns > 0 ? columns : (int64_t)ceil(sqrt((double)n));
    if (across > n) across = n;
    int64_t down = (n + across - 1) / across, gap = n > 1 ? GAP : 0;
    *out = (aril__pixels){ .width = across * (w + gap) - gap,
                           .height = down * (h + gap) - gap,
                           .channels = (int)c };
    size_t bytes = (size_t)(out->width * out->height * c);
    out->at = aril__malloc(bytes);
    if (!out->at) return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory for an image", what);
    memset(out->at, 255, bytes);
    for (int64_t i = 0; i < n; i++) {
        int64_t x0 = i % across * (w + gap), y0 = i / across * (h + gap);
        for (int64_t k = 0; k < c; k++)
            for (int64_t y = 0; y < h; y++)
                for (int64_t x = 0; x < w; x++)
                    out->at[((y0 + y) * out->width + x0 + x) * c + k] =
                        from[((i * c + k) * h + y) * w + x];
    }
    return ARIL_OK;
}
