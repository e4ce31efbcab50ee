/* Reads PNG files with libpng. */
#include "formats/image.h"

#include "aril/device.h"
#include "aril/create.h"
#include "core/tensor.h"

#include <stdlib.h>
#include <string.h>

bool aril__is_png(const unsigned char *data, size_t size)
{
    return size >= 8 && memcmp(data, "\x89PNG\r\n\x1a\n", 8) == 0;
}

#ifdef ARIL_HAVE_PNG

#include <png.h>
#include <setjmp.h>

/* Reader state. libpng leaves by longjmp on an error. */
struct reading {
    const unsigned char *data;
    size_t size, at;
    const char *name;
    png_structp png;
    png_infop info;
    aril_tensor *result;
    png_bytep *rows;
    jmp_buf wrong;
    char message[128];
};

static void on_error(png_structp png, png_const_charp message)
{
    struct reading *r = png_get_error_ptr(png);
    snprintf(r->message, sizeof r->message, "%s", message);
    longjmp(r->wrong, 1);
}

static void on_warning(png_structp png, png_const_charp message)
{
    (void)png, (void)message;
}

static void read_bytes(png_structp png, png_bytep to, size_t n)
{
    struct reading *r = png_get_io_ptr(png);
    if (n > r->size - r->at) png_error(png, "the file ends before the image does");
    memcpy(to, r->data + r->at, n);
    r->at += n;
}

/* Bytes per pixel, after palettes and transparent colours are expanded to channels. */
static uint64_t decoded_bytes(png_structp png, png_infop info)
{
    int kind = png_get_color_type(png, info);
    uint64_t channels = kind == PNG_COLOR_TYPE_PALETTE ? 3 : png_get_channels(png, info);
    if (png_get_valid(png, info, PNG_INFO_tRNS)) channels++;
    return channels * (png_get_bit_depth(png, info) == 16 ? 2 : 1);
}

/* All calls that may longjmp. False, with an error, if Aril's side failed. */
static bool read_image(struct reading *r, bool deep)
{
    png_set_read_fn(r->png, r, read_bytes);
    png_set_user_limits(r->png, 1 << 24, 1 << 24);
    png_set_chunk_malloc_max(r->png, 1 << 24);
    png_set_keep_unknown_chunks(r->png, PNG_HANDLE_CHUNK_NEVER, NULL, 0);
    /* Also skip known chunks that are not needed: texts and profiles are compressed, and a thousand
     * of them would be decompressed and kept. */
    static const png_byte unused[] = "iCCP\0iTXt\0sPLT\0tEXt\0zTXt\0eXIf";
    png_set_keep_unknown_chunks(r->png, PNG_HANDLE_CHUNK_NEVER, unused, sizeof unused / 5);
    png_read_info(r->png, r->info);
    png_uint_32 width = png_get_image_width(r->png, r->info);
    png_uint_32 height = png_get_image_height(r->png, r->info);
    int depth = png_get_bit_depth(r->png, r->info);
    uint64_t pixel = decoded_bytes(r->png, r->info);
    /* A deflate byte expands to at most 1032 bytes, each of up to 8 pixels of up to 4 bytes. */
    if (!aril__image_fits(r->name, width, height, pixel, r->size, 1032 * 8 * 4)) return false;

    png_set_expand(r->png);
    if (depth == 16 && !deep) png_set_scale_16(r->png);
    const uint16_t one = 1;
    unsigned char low;
    memcpy(&low, &one, 1);
    if (depth == 16 && deep && low) png_set_swap(r->png);
    png_set_interlace_handling(r->png);
    png_read_update_info(r->png, r->info);
    int channels = png_get_channels(r->png, r->info);
    bool wide = png_get_bit_depth(r->png, r->info) == 16;
    size_t bytes = png_get_rowbytes(r->png, r->info);
    if (bytes != (size_t)width * (size_t)channels * (wide ? 2 : 1))
        png_error(r->png, "rows of an unknown form");

    r->result =
        aril_empty(ARIL_SHAPE(height, width, channels), wide ? ARIL_U16 : ARIL_U8, aril_cpu());
    if (aril_tensor_status(r->result) != ARIL_OK) return false;
    r->rows = aril__malloc(height * sizeof *r->rows);
    if (!r->rows) {
        aril__fail(ARIL_ERR_MEMORY, "out of memory reading %s", r->name);
        return false;
    }
    unsigned char *at = aril__ptr(r->result);
    for (png_uint_32 y = 0; y < height; y++) r->rows[y] = at + y * bytes;
    png_read_image(r->png, r->rows);
    png_read_end(r->png, NULL);
    return true;
}

/* False, with an error, on failure. State that changes before a longjmp belongs to the caller. */
static bool read_guarded(struct reading *r, bool deep)
{
    if (setjmp(r->wrong) != 0) {
        aril__fail(ARIL_ERR_FORMAT, "%s is not a valid PNG file: %s", r->name, r->message);
        return false;
    }
    r->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, r, on_error, on_warning);
    r->info = r->png ? png_create_info_struct(r->png) : NULL;
    if (r->info) return read_image(r, deep);
    aril__fail(ARIL_ERR_MEMORY, "out of memory reading %s", r->name);
    return false;
}

aril_tensor *aril__png_decode(const unsigned char *data, size_t size, aril__image_want *want)
{
    struct reading r = { .data = data, .size = size, .name = want->name };
    bool good = read_guarded(&r, want->opts.deep);
    png_destroy_read_struct(&r.png, &r.info, NULL);
    free(r.rows);
    if (good) return r.result;
    if (r.result) aril_drop(r.result);
    return aril__poison();
}

#else

aril_tensor *aril__png_decode(const unsigned char *data, size_t size, aril__image_want *want)
{
    (void)data, (void)size;
    aril__fail(ARIL_ERR_UNSUPPORTED,
               "%s is a PNG file, and Aril was built without libpng; on Debian: "
               "apt-get install libpng-dev, then build again",
               want->name);
    return aril__poison();
}

#endif
