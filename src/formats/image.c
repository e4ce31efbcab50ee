#include "formats/image.h"

#include "aril/device.h"
#include "aril/create.h"
#include "aril/view.h"
#include "core/tensor.h"
#include "formats/atomic_file.h"
#include "formats/png_write.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool aril__image_fits(const char *name, uint64_t width, uint64_t height, uint64_t pixel_bytes,
                      uint64_t file, uint64_t ratio)
{
    uint64_t bytes, max;
    /* Up to `free` bytes, any compression ratio that the format allows is accepted, as for a white
     * page. Beyond that, it must be usual for images. */
    const uint64_t limit = UINT64_C(1) << 32, free = 1 << 26, typical = 256;
    if (width == 0 || height == 0) {
        aril__fail(ARIL_ERR_FORMAT, "%s: an image without pixels", name);
        return false;
    }
    if (__builtin_mul_overflow(width, height, &bytes) ||
        __builtin_mul_overflow(bytes, pixel_bytes, &bytes) || bytes > limit) {
        aril__fail(ARIL_ERR_FORMAT, "%s: an image of %llu x %llu pixels is too large to read", name,
                   (unsigned long long)width, (unsigned long long)height);
        return false;
    }
    if (bytes > free && ratio > typical) ratio = typical;
    if (__builtin_mul_overflow(file, ratio, &max) || bytes <= max) return true;
    aril__fail(ARIL_ERR_FORMAT,
               "%s: a file of %llu bytes is too small for the %llu x %llu pixels that it claims",
               name, (unsigned long long)file, (unsigned long long)width,
               (unsigned long long)height);
    return false;
}

/* ---- channels ---- */

/* Converts n pixels from c channels to `want`. The last of 2 or 4 channels is alpha: opaque if
 * missing. Gray is ITU-R BT.601 luma. */
#define CHANNELS(T, NAME, OPAQUE)                                                                 \
    static void NAME(const T *in, int c, T *out, int want, int64_t n)                             \
    {                                                                                             \
        bool color = c >= 3, alpha = c == 2 || c == 4;                                            \
        for (int64_t i = 0; i < n; i++, in += c, out += want) {                                   \
            if (want >= 3)                                                                        \
                for (int k = 0; k < 3; k++) out[k] = in[color ? k : 0];                           \
            else                                                                                  \
                out[0] =                                                                          \
                    !color                                                                        \
                        ? in[0]                                                                   \
                        : (T)((in[0] * 19595u + in[1] * 38470u + in[2] * 7471u + 0x8000u) >> 16); \
            if (want == 2 || want == 4) out[want - 1] = alpha ? in[c - 1] : (T)OPAQUE;            \
        }                                                                                         \
    }
CHANNELS(uint8_t, channels_u8, 255)
CHANNELS(uint16_t, channels_u16, 65535)

static aril_tensor *with_channels(aril_tensor *x, int want)
{
    int c = (int)aril_size(x, 2);
    if (want == 0 || want == c) return x;
    int64_t h = aril_size(x, 0), w = aril_size(x, 1);
    aril_dtype dtype = aril_dtype_of(x);
    aril_tensor *y = aril_empty(ARIL_SHAPE(h, w, want), dtype, aril_cpu()); /* [H,W,want] */
    if (aril_tensor_status(y) != ARIL_OK) return y;
    if (dtype == ARIL_U16)
        channels_u16(aril__ptr(x), c, aril__ptr(y), want, h * w);
    else
        channels_u8(aril__ptr(x), c, aril__ptr(y), want, h * w);
    return y;
}

/* ---- reading ---- */

static void unknown_kind(const unsigned char *data, size_t size, const char *name)
{
    bool webp = size >= 12 && memcmp(data, "RIFF", 4) == 0 && memcmp(data + 8, "WEBP", 4) == 0,
         tiff = size >= 4 && (memcmp(data, "II*\0", 4) == 0 || memcmp(data, "MM\0*", 4) == 0);
    if (webp || tiff)
        aril__fail(ARIL_ERR_UNSUPPORTED,
                   "%s is a %s file, which Aril does not read; convert it to PNG or JPEG", name,
                   webp ? "WebP" : "TIFF");
    else
        aril__fail(ARIL_ERR_FORMAT,
                   size ? "%s is not an image: neither JPEG, PNG, BMP, PGM nor PPM"
                        : "%s is an empty file, not an image",
                   name);
}

aril_tensor *aril__image_decode(const unsigned char *data, size_t size, aril__image_want *want)
{
    want->decoded = (aril__decoded){ 0 };
    aril_tensor *x;
    if (want->opts.channels < 0 || want->opts.channels > 4) {
        aril__fail(ARIL_ERR_ARG, "%s: expected 1 to 4 channels, or 0 for those of the file, got %d",
                   want->name, want->opts.channels);
        return aril__poison();
    } else if (aril__is_jpeg(data, size)) {
        x = aril__jpeg_decode(data, size, want);
    } else if (aril__is_png(data, size)) {
        x = aril__png_decode(data, size, want);
    } else if (aril__is_bmp(data, size)) {
        x = aril__bmp_decode(data, size, want);
    } else if (aril__is_pnm(data, size)) {
        x = aril__pnm_decode(data, size, want);
    } else {
        unknown_kind(data, size, want->name);
        return aril__poison();
    }
    if (aril_tensor_status(x) != ARIL_OK) return x;
    return with_channels(x, want->opts.channels);
}

static aril_tensor *planes(aril_tensor *x)
{
    return aril_contiguous(aril_permute(x, ARIL_AXES(2, 0, 1))); /* [C,H,W] */
}

aril_tensor *aril_image_decode(const void *data, size_t size, aril_image_opts opts)
{
    if (!data) {
        aril__fail(ARIL_ERR_ARG, "aril_image_decode: the data is NULL");
        return aril__poison();
    }
    ARIL_SCOPE;
    aril__image_want want = { .opts = opts, .name = "the memory" };
    return aril_escape(planes(aril__image_decode(data, size, &want)));
}

aril_tensor *aril_image_read(const char *path, aril_image_opts opts)
{
    ARIL_SCOPE;
    aril__bytes b = { 0 };
    if (aril__read_file("image", path, 0, &b) != ARIL_OK) return aril_escape(aril__poison());
    aril__image_want want = { .opts = opts, .name = path };
    aril_tensor *x = planes(aril__image_decode(b.at, b.n, &want));
    aril__bytes_free(&b);
    return aril_escape(x);
}

/* ---- writing ---- */

aril_status aril_image_write(const char *path, aril_tensor *image, aril_image_write_opts opts)
{
    if (!path || !*path) return aril__fail(ARIL_ERR_ARG, "aril_image_write: expected a file name");
    const char *dot = strrchr(path, '.');
    bool png = dot && strcasecmp(dot, ".png") == 0;
    bool jpeg = dot && (strcasecmp(dot, ".jpg") == 0 || strcasecmp(dot, ".jpeg") == 0);
    if (!png && !jpeg)
        return aril__fail(
            ARIL_ERR_ARG,
            "aril_image_write: expected a name that ends in .png, .jpg or .jpeg, got %s", path);
    if (opts.quality < 0 || opts.quality > 100)
        return aril__fail(ARIL_ERR_ARG,
                          "aril_image_write: expected a quality from 1 to 100, or 0 for the "
                          "default of 90, got %d",
                          opts.quality);
    aril__pixels p;
    aril_status status = aril__pixels_of("aril_image_write", image, 0, &p);
    if (status != ARIL_OK) return status;
    aril__bytes b = { 0 };
    if (png)
        status = aril__png_encode("aril_image_write", p.at, p.width, p.height, p.channels,
                                  p.width * p.channels, &b);
    else
        status = aril__jpeg_encode(&p, opts.quality ? opts.quality : 90, &b);
    if (status == ARIL_OK) status = aril__file_replace(path, b.at, b.n);
    aril__bytes_free(&b);
    free(p.at);
    return status;
}
