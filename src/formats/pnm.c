/* Reads binary PGM and PPM files (P5, P6), of 8 or 16 bits. */
#include "formats/image.h"

#include "aril/create.h"
#include "aril/device.h"
#include "core/tensor.h"

#include <stdlib.h>
#include <string.h>

static bool is_blank(unsigned char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

bool aril__is_pnm(const unsigned char *data, size_t size)
{
    return size >= 3 && data[0] == 'P' && (data[1] == '5' || data[1] == '6') &&
           (is_blank(data[2]) || data[2] == '#');
}

static bool malformed(const char *name, const char *what)
{
    aril__fail(ARIL_ERR_FORMAT, "%s is not a valid PGM or PPM file: %s", name, what);
    return false;
}

/* Skips blanks, and comments up to the end of their lines. */
static size_t skip(const unsigned char *data, size_t size, size_t at)
{
    while (at < size && (is_blank(data[at]) || data[at] == '#'))
        if (data[at] == '#')
            while (at < size && data[at] != '\n') at++;
        else
            at++;
    return at;
}

static bool read_number(const char *name, const unsigned char *data, size_t size, size_t *at,
                        uint64_t *to)
{
    *at = skip(data, size, *at);
    size_t first = *at;
    for (*to = 0; *at < size && data[*at] >= '0' && data[*at] <= '9'; ++*at) {
        *to = *to * 10 + (uint64_t)(data[*at] - '0');
        if (*to > INT32_MAX) return malformed(name, "a number of its header is too large");
    }
    return *at > first || malformed(name, "a number of its header is missing");
}

/* Scales n values from 0 .. max to all of 8 or 16 bits, rounded. */
static void scale_values(const unsigned char *from, int64_t n, uint32_t max, void *to, bool deep)
{
    uint32_t most = deep ? UINT16_MAX : UINT8_MAX;
    bool wide = max > UINT8_MAX;
    for (int64_t i = 0; i < n; i++) {
        uint32_t v = wide ? aril__be16(from + 2 * i) : from[i];
        if (v > max) v = max;
        if (max != most) v = (uint32_t)(((uint64_t)v * most + max / 2) / max);
        if (deep)
            ((uint16_t *)to)[i] = (uint16_t)v;
        else
            ((uint8_t *)to)[i] = (uint8_t)v;
    }
}

aril_tensor *aril__pnm_decode(const unsigned char *data, size_t size, aril__image_want *want)
{
    uint64_t width, height, max;
    size_t at = 2;
    int channels = data[1] == '5' ? 1 : 3;
    if (!read_number(want->name, data, size, &at, &width) ||
        !read_number(want->name, data, size, &at, &height) ||
        !read_number(want->name, data, size, &at, &max))
        return aril__poison();
    bool good = max >= 1 && max <= UINT16_MAX;
    if (!good || at == size || !is_blank(data[at])) {
        malformed(want->name, !good ? "its largest value must be from 1 to 65535"
                                    : "a blank must follow its largest value");
        return aril__poison();
    }
    at++;
    bool wide = max > UINT8_MAX, deep = wide && want->opts.deep;
    if (!aril__image_fits(want->name, width, height, (uint64_t)channels * (deep ? 2 : 1), size, 1))
        return aril__poison();
    uint64_t n = width * height * (uint64_t)channels;
    if (n * (wide ? 2 : 1) > size - at) {
        malformed(want->name, "it ends before the image does");
        return aril__poison();
    }
    aril_tensor *t = aril_empty(ARIL_SHAPE((int64_t)height, (int64_t)width, channels),
                                deep ? ARIL_U16 : ARIL_U8, aril_cpu());
    if (aril_tensor_status(t) == ARIL_OK)
        scale_values(data + at, (int64_t)n, (uint32_t)max, aril__ptr(t), deep); /* [H,W,C] */
    return t;
}
