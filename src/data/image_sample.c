#include "data/image_sample.h"

#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "formats/image.h"

struct asked {
    aril_sample *s;
    bool part;
};

static bool wanted_region(void *ctx, int64_t width, int64_t height, aril__region *region)
{
    struct asked *a = ctx;
    aril_region r;
    a->part = aril_sample_region(a->s, width, height, &r);
    if (a->part) *region = (aril__region){ r.x, r.y, r.width, r.height, r.to_width, r.to_height };
    return a->part;
}

aril_status aril__sample_image(aril_sample *s, const char *name, const unsigned char *data,
                               size_t size, int channels)
{
    struct asked asked = { .s = s };
    aril__image_want want = {
        .opts = { .channels = channels }, .name = name, .region = wanted_region, .ctx = &asked
    };
    aril_tensor *x = aril__image_decode(data, size, &want); /* [H,W,C] */
    if (aril_tensor_status(x) != ARIL_OK) return aril_tensor_status(x);
    if (asked.part)
        s->decoded = (aril_decoded){ want.decoded.scale_x, want.decoded.scale_y, want.decoded.x,
                                     want.decoded.y };
    s->x = aril_permute(x, ARIL_AXES(2, 0, 1));
    return aril_tensor_status(s->x);
}
