/* Images: JPEG, PNG, BMP, PGM and PPM, from memory and files. */
#include "aril/aril.h"
#include "formats/atomic_file.h"
#include "formats/image.h"
#include "files/bitmaps.inc"
#include "files/images.inc"
#include "support/device.h"
#include "support/compare.h"
#include "support/temp.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Skips the test when the build has no library for that format. */
#define NEED(x)                                                                  \
    do {                                                                         \
        if (aril_tensor_status(x) == ARIL_ERR_UNSUPPORTED) {                     \
            CHECK(strstr(aril_error(), "apt-get install"));                      \
            aril_clear_error();                                                  \
            SKIP("built without the library");                                   \
        }                                                                        \
        CHECK_MSG(aril_tensor_status(x) == ARIL_OK, "%s", aril_tensor_error(x)); \
    } while (0)

static aril_tensor *decode(const unsigned char *data, size_t size, aril_image_opts opts)
{
    return aril_image_decode(data, size, opts);
}

#define DECODE(file, ...) decode(file, sizeof file, (aril_image_opts){ __VA_ARGS__ })

enum { W = 13, H = 9 };

/* Channel k of the pixel (x, y) in the PNG files of tests/files/make.py. */
static int value(int x, int y, int k, int max)
{
    return (x * 7 + y * 5 + k * 3) * 1009 % (max + 1);
}

static int64_t at(aril_tensor *t, int64_t c, int64_t y, int64_t x)
{
    ARIL_SCOPE;
    return aril_item_int(aril_select(aril_select(aril_select(t, 0, c), 0, y), 0, x));
}

/* Compares an image of those files with its formula, for `channels` channels. */
static void check_values(aril_tensor *t, int channels, int max, double factor)
{
    CHECK_INT(aril_size(t, 0), channels);
    CHECK_INT(aril_size(t, 1), H);
    CHECK_INT(aril_size(t, 2), W);
    for (int c = 0; c < channels; c++)
        for (int y = 0; y < H; y++)
            for (int x = 0; x < W; x++)
                CHECK_INT(at(t, c, y, x), (int64_t)floor(value(x, y, c, max) * factor + 0.5));
}

TEST(png_of_every_kind)
{
    ARIL_SCOPE;
    aril_tensor *t = DECODE(png_gray1, 0);
    NEED(t);
    check_values(t, 1, 1, 255);
    check_values(DECODE(png_gray16, 0), 1, 65535, 1 / 257.0);
    t = DECODE(png_gray16, .deep = true);
    CHECK_INT(aril_dtype_of(t), ARIL_U16);
    check_values(t, 1, 65535, 1);
    check_values(DECODE(png_gray_alpha, 0), 2, 255, 1);
    check_values(DECODE(png_rgb16, 0), 3, 65535, 1 / 257.0);
    check_values(DECODE(png_rgb16, .deep = true), 3, 65535, 1);
    check_values(DECODE(png_rgba, 0), 4, 255, 1);
    check_values(DECODE(png_rgba, .channels = 3), 3, 255, 1);
    check_values(DECODE(png_interlaced, 0), 3, 255, 1);
    t = DECODE(png_palette, 0);
    CHECK_INT(aril_size(t, 0), 3);
    CHECK_INT(at(t, 1, 4, 5), 255 - 16 * value(5, 4, 0, 15));
    t = DECODE(png_palette_alpha, 0);
    CHECK_INT(aril_size(t, 0), 4);
    CHECK_INT(at(t, 3, 4, 5), 10 * value(5, 4, 0, 15));
    CHECK(aril_ok());
}

TEST(bmp_of_every_kind)
{
    ARIL_SCOPE;
    check_values(DECODE(bmp_gray1, 0), 1, 1, 255);
    check_values(DECODE(bmp_gray8, 0), 1, 255, 1);
    check_values(DECODE(bmp_rgb, 0), 3, 255, 1);
    check_values(DECODE(bmp_top_down, 0), 3, 255, 1);
    check_values(DECODE(bmp_rgba, 0), 4, 255, 1);
    check_values(DECODE(bmp_rgba, .channels = 3), 3, 255, 1);
    check_values(DECODE(bmp_gray8, .channels = 1), 1, 255, 1);
    for (int old = 0; old < 2; old++) {
        aril_tensor *t = old ? DECODE(bmp_palette_old, 0) : DECODE(bmp_palette, 0);
        CHECK_INT(aril_size(t, 0), 3);
        for (int y = 0; y < H; y++) {
            int i = value(5, y, 0, 15);
            CHECK_INT(at(t, 0, y, 5), 16 * i);
            CHECK_INT(at(t, 1, y, 5), 255 - 16 * i);
            CHECK_INT(at(t, 2, y, 5), i);
        }
    }
    CHECK(aril_ok());
}

TEST(pgm_and_ppm)
{
    ARIL_SCOPE;
    check_values(DECODE(pgm_gray, 0), 1, 255, 1);
    check_values(DECODE(ppm_rgb, 0), 3, 255, 1);
    check_values(DECODE(ppm_rgb15, 0), 3, 15, 17);
    check_values(DECODE(pgm_gray16, 0), 1, 65535, 1 / 257.0);
    check_values(DECODE(ppm_rgb16, 0), 3, 65535, 1 / 257.0);
    aril_tensor *t = DECODE(ppm_rgb16, .deep = true);
    CHECK_INT(aril_dtype_of(t), ARIL_U16);
    check_values(t, 3, 65535, 1);
    CHECK(aril_ok());
}

static void refused(const void *data, size_t size, const char *words)
{
    ARIL_SCOPE;
    CHECK(aril_tensor_status(aril_image_decode(data, size, (aril_image_opts){ 0 })) < 0);
    CHECK_MSG(strstr(aril_error(), words), "%s\n  want: %s", aril_error(), words);
    aril_clear_error();
}

/* A BMP file of 24 bits in which the four bytes at `at` are others. */
static void refused_bmp(size_t at, uint32_t value, const char *words)
{
    unsigned char copy[sizeof bmp_rgb];
    memcpy(copy, bmp_rgb, sizeof copy);
    for (int i = 0; i < 4; i++) copy[at + (size_t)i] = (unsigned char)(value >> 8 * i);
    refused(copy, sizeof copy, words);
}

TEST(damaged_bitmaps_are_errors)
{
    refused_bmp(18, 0, "an image without pixels");
    refused_bmp(18, 0xffffffff, "its width is negative");
    refused_bmp(18, 0x7fffffff, "is too large to read");
    refused_bmp(22, 0x80000000, "13 x 2147483648 pixels is too large to read");
    refused_bmp(22, H + 1, "it ends before the image does");
    refused_bmp(10, 0xffffffff, "it ends before the image does");
    refused_bmp(28, 16, "of 16 bits per pixel; uncompressed ones");
    refused_bmp(30, 1, "with compressed pixels");
    refused_bmp(28, 8, "it ends within its palette");
    for (size_t n = 18; n < sizeof bmp_rgb; n++) refused(bmp_rgb, n, "the memory");
    for (size_t n = 3; n < sizeof pgm_gray16; n++) refused(pgm_gray16, n, "the memory");
    refused("P5 1 1 0\n1", 10, "largest value must be from 1 to 65535");
    refused("P5 1 1 65536 11", 15, "largest value must be from 1 to 65535");
    refused("P5 1 1 255", 10, "a blank must follow its largest value");
    refused("P6 99999999999 1 255 ", 21, "a number of its header is too large");
    refused("P6 2147483647 2147483647 255 ", 29, "is too large to read");
    refused("P6 1 x 255 ", 11, "a number of its header is missing");
    refused("P6 0 1 255 ", 11, "an image without pixels");
    refused("RIFF....WEBPVP8 ", 16, "is a WebP file, which Aril does not read; convert it");
    refused("II*\0........", 12, "is a TIFF file");
}

TEST(channels_are_converted)
{
    ARIL_SCOPE;
    aril_tensor *t = DECODE(png_rgba, .channels = 1);
    NEED(t);
    CHECK_INT(aril_size(t, 0), 1);
    int r = value(3, 2, 0, 255), g = value(3, 2, 1, 255), b = value(3, 2, 2, 255);
    CHECK_INT(at(t, 0, 2, 3), (int64_t)floor(0.299 * r + 0.587 * g + 0.114 * b + 0.5));
    t = DECODE(png_rgba, .channels = 2);
    CHECK_INT(at(t, 1, 2, 3), value(3, 2, 3, 255));
    t = DECODE(png_gray_alpha, .channels = 4);
    CHECK_INT(at(t, 2, 2, 3), value(3, 2, 0, 255));
    CHECK_INT(at(t, 3, 2, 3), value(3, 2, 1, 255));
    t = DECODE(png_gray1, .channels = 4);
    CHECK_INT(at(t, 3, 2, 3), 255);
    CHECK(aril_ok());
    t = DECODE(png_gray1, .channels = 5);
    CHECK_INT(aril_tensor_status(t), ARIL_ERR_ARG);
    aril_clear_error();
}

/* The JPEG files hold x * 8 + y * 2 + 20 k. */
static void check_smooth(aril_tensor *t, int channels)
{
    CHECK_INT(aril_size(t, 0), channels);
    CHECK_INT(aril_size(t, 1), 16);
    CHECK_INT(aril_size(t, 2), 24);
    for (int c = 0; c < channels; c++)
        for (int y = 0; y < 16; y++)
            for (int x = 0; x < 24; x++) CHECK_NEAR(at(t, c, y, x), x * 8 + y * 2 + 20 * c, 4);
}

TEST(jpeg_of_every_kind)
{
    ARIL_SCOPE;
    aril_tensor *t = DECODE(jpeg_gray, 0);
    NEED(t);
    check_smooth(t, 1);
    t = DECODE(jpeg_gray, .channels = 3);
    CHECK_INT(aril_size(t, 0), 3);
    CHECK_NEAR(at(t, 2, 7, 9), 9 * 8 + 7 * 2, 3);
    check_smooth(DECODE(jpeg_progressive, 0), 3);
    t = DECODE(jpeg_cmyk, 0);
    CHECK_INT(aril_size(t, 0), 3);
    double black = (255 - (9 * 8 + 7 * 2 + 60)) / 255.0;
    for (int k = 0; k < 3; k++)
        CHECK_NEAR(at(t, k, 7, 9), (255 - (9 * 8 + 7 * 2 + 20 * k)) * black, 4);
    CHECK(aril_ok());
}

/* A test image of waves. u8 [c,h,w] */
static aril_tensor *waves(int64_t c, int64_t h, int64_t w)
{
    aril_tensor *x = aril_linspace(0, 9, w, ARIL_F32, test_device());
    aril_tensor *y = aril_unsqueeze(aril_linspace(0, 7, h, ARIL_F32, test_device()), 1);
    aril_tensor *z =
        aril_reshape(aril_arange(0, c, 1, ARIL_F32, test_device()), ARIL_SHAPE(c, 1, 1));
    aril_tensor *wave = aril_sin(aril_add(aril_mul(x, y), z));
    return aril_cast(aril_add_scalar(aril_mul_scalar(wave, 120), 127), ARIL_U8);
}

TEST(png_round_trip)
{
    ARIL_SCOPE;
    static const int channels[] = { 1, 3, 4 };
    for (int i = 0; i < 3; i++) {
        aril_tensor *x = waves(channels[i], 33, 57);
        const char *path = temp_path("image.png");
        CHECK_INT(aril_image_write(path, x, (aril_image_write_opts){ 0 }), ARIL_OK);
        aril_tensor *back = aril_image_read(path, (aril_image_opts){ 0 });
        NEED(back);
        char *differs = test_difference_in_bits(back, x);
        CHECK_MSG(!differs, "%s", differs);
    }
    aril_tensor *f = aril_div_scalar(aril_cast(waves(3, 8, 8), ARIL_F32), 255);
    CHECK_INT(aril_image_write(temp_path("f.PNG"), f, (aril_image_write_opts){ 0 }), ARIL_OK);
    aril_tensor *back = aril_image_read(temp_path("f.PNG"), (aril_image_opts){ 0 });
    CHECK(!test_difference_in_bits(back, waves(3, 8, 8)));
    CHECK_INT(temp_count(), 2);
}

static double mean_difference(aril_tensor *a, aril_tensor *b)
{
    ARIL_SCOPE;
    return aril_item(
        aril_mean(aril_abs(aril_sub(aril_cast(a, ARIL_F32), aril_cast(b, ARIL_F32))), ARIL_ALL));
}

TEST(jpeg_round_trip_is_close)
{
    ARIL_SCOPE;
    for (int c = 1; c <= 3; c += 2) {
        aril_tensor *x = waves(c, 120, 160);
        const char *path = temp_path("image.jpg");
        aril_status status = aril_image_write(path, x, (aril_image_write_opts){ .quality = 95 });
        if (status == ARIL_ERR_UNSUPPORTED) {
            aril_clear_error();
            SKIP("built without libjpeg");
        }
        CHECK_INT(status, ARIL_OK);
        aril_tensor *back = aril_image_read(path, (aril_image_opts){ 0 });
        CHECK_INT(aril_size(back, 0), c);
        CHECK(mean_difference(test_there(back), x) < 6);
    }
    CHECK_INT(aril_image_write(temp_path("x.jpg"), waves(4, 5, 5), (aril_image_write_opts){ 0 }),
              ARIL_ERR_SHAPE);
    aril_clear_error();
}

TEST(images_that_cannot_be_written)
{
    ARIL_SCOPE;
    aril_tensor *x = waves(3, 5, 5);
    CHECK_INT(aril_image_write(temp_path("x.gif"), x, (aril_image_write_opts){ 0 }), ARIL_ERR_ARG);
    CHECK(strstr(aril_error(), ".png"));
    aril_clear_error();
    CHECK_INT(aril_image_write(temp_path("x.png"), aril_scalar(1), (aril_image_write_opts){ 0 }),
              ARIL_ERR_SHAPE);
    aril_clear_error();
    CHECK_INT(aril_image_write(temp_path("x.jpg"), x, (aril_image_write_opts){ .quality = 101 }),
              ARIL_ERR_ARG);
    aril_clear_error();
    CHECK_INT(aril_image_write("/no/such/x.png", x, (aril_image_write_opts){ 0 }), ARIL_ERR_IO);
    aril_clear_error();
    CHECK_INT(temp_count(), 0);
}

/* An image encoded as JPEG; n is 0 when the build has no libjpeg. Free with aril__bytes_free. */
static aril__bytes jpeg_of(aril_tensor *x)
{
    aril__pixels p;
    aril__bytes b = { 0 };
    if (aril__pixels_of("test", x, 0, &p) != ARIL_OK) return b;
    if (aril__jpeg_encode(&p, 90, &b) != ARIL_OK) {
        aril_clear_error();
        b.n = 0;
    }
    free(p.at);
    return b;
}

TEST(jpeg_orientation_is_applied)
{
    ARIL_SCOPE;
    aril__bytes plain = jpeg_of(waves(3, 24, 40));
    if (plain.n == 0) SKIP("built without libjpeg");
    aril_tensor *x = decode(plain.at, plain.n, (aril_image_opts){ 0 });
    for (int how = 1; how <= 8; how++) {
        for (int big = 0; big < 2; big++) {
            unsigned char exif[36] = "\xff\xe1\0\x22"
                                     "Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0";
            exif[28] = (unsigned char)how;
            if (big) {
                memcpy(exif + 10, "MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0", 19);
                exif[28] = 0;
                exif[29] = (unsigned char)how;
            }
            aril__bytes b = { 0 };
            aril__bytes_add(&b, plain.at, 2);
            aril__bytes_add(&b, exif, sizeof exif);
            aril__bytes_add(&b, plain.at + 2, plain.n - 2);
            aril_tensor *got = decode(b.at, b.n, (aril_image_opts){ 0 });
            aril_tensor *stored = decode(b.at, b.n, (aril_image_opts){ .as_stored = true });
            aril__bytes_free(&b);
            CHECK(!test_difference_in_bits(stored, x));
            CHECK_INT(aril_size(got, 2), how >= 5 ? 24 : 40);
            /* The new position of the stored image's top left corner, and of the pixel right of
             * it. */
            int64_t h = aril_size(got, 1) - 1, w = aril_size(got, 2) - 1;
            int64_t y = how == 3 || how == 4 || how == 7 || how == 8 ? h : 0;
            int64_t c = how == 2 || how == 3 || how == 6 || how == 7 ? w : 0;
            int64_t y1 = how < 5 ? y : y ? h - 1 : 1, c1 = how >= 5 ? c : c ? w - 1 : 1;
            for (int k = 0; k < 3; k++) {
                CHECK_INT(at(got, k, y, c), at(x, k, 0, 0));
                CHECK_INT(at(got, k, y1, c1), at(x, k, 0, 1));
            }
        }
    }
    aril__bytes_free(&plain);
}

static bool give_region(void *ctx, int64_t width, int64_t height, aril__region *region)
{
    (void)width, (void)height;
    *region = *(const aril__region *)ctx;
    return true;
}

TEST(partial_jpeg_decode_equals_crop_of_the_full_image)
{
    ARIL_SCOPE;
    aril__bytes b = jpeg_of(waves(3, 371, 503));
    if (b.n == 0) SKIP("built without libjpeg");
    aril__image_want all = { .name = "test" };
    aril_tensor *full = aril__image_decode(b.at, b.n, &all);
    CHECK_INT(aril_tensor_status(full), ARIL_OK);
    static const aril__region regions[] = {
        { 0, 0, 503, 371, 503, 371 },  { 100, 80, 200, 150, 200, 150 },
        { 0, 0, 50, 50, 224, 224 },    { 450, 300, 53, 71, 224, 224 },
        { 17, 33, 1, 1, 1, 1 },        { 230, 0, 40, 371, 224, 224 },
        { 0, 170, 503, 9, 503, 224 },  { 502, 370, 1, 1, 5, 5 },
        { 33, 1, 333, 300, 300, 290 },
    };
    for (size_t i = 0; i < sizeof regions / sizeof *regions; i++) {
        ARIL_SCOPE;
        aril__region r = regions[i];
        aril__image_want want = { .name = "test", .region = give_region, .ctx = &r };
        aril_tensor *part = aril__image_decode(b.at, b.n, &want);
        CHECK_INT(aril_tensor_status(part), ARIL_OK);
        aril__decoded d = want.decoded;
        CHECK_NEAR(d.scale_x, 1, 0);
        CHECK_NEAR(d.scale_y, 1, 0);
        int64_t h = aril_size(part, 0), w = aril_size(part, 1);
        CHECK(d.x <= r.x && d.y <= r.y && d.x + w >= r.x + r.width && d.y + h >= r.y + r.height);
        aril_tensor *same = aril_narrow(aril_narrow(full, 0, d.y, h), 1, d.x, w);
        char *differs = test_difference_in_bits(part, aril_contiguous(same));
        CHECK_MSG(!differs, "region %zu: %s", i, differs);
    }
    aril__bytes_free(&b);
}

TEST(reduced_jpeg_respects_the_minimum_size)
{
    ARIL_SCOPE;
    aril__bytes b = jpeg_of(waves(3, 371, 503));
    if (b.n == 0) SKIP("built without libjpeg");
    aril_tensor *full = decode(b.at, b.n, (aril_image_opts){ 0 });
    static const int64_t asked[][4] = {
        /* min width and height, expected width and height */
        { 0, 0, 503, 371 },   { 252, 100, 503, 371 }, { 251, 100, 252, 186 }, { 100, 0, 126, 93 },
        { 0, 100, 252, 186 }, { 1, 1, 63, 47 },       { 600, 600, 503, 371 },
    };
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        ARIL_SCOPE;
        aril_image_opts opts = { .min_width = asked[i][0], .min_height = asked[i][1] };
        aril_tensor *small = decode(b.at, b.n, opts);
        CHECK_INT(aril_size(small, 2), asked[i][2]);
        CHECK_INT(aril_size(small, 1), asked[i][3]);
        if (aril_size(small, 1) == 186) {
            aril_tensor *mean =
                aril_avg_pool2d(aril_cast(full, ARIL_F32), (aril_pool_opts){ .kernel = { 2, 2 } });
            aril_tensor *inner = aril_narrow(aril_narrow(small, 1, 0, 185), 2, 0, 251);
            CHECK(mean_difference(inner, mean) < 3);
        }
    }
    aril__region region = { 100, 50, 300, 300, 70, 70 };
    aril__image_want want = { .name = "test", .region = give_region, .ctx = &region };
    aril_tensor *part = aril__image_decode(b.at, b.n, &want);
    CHECK_NEAR(want.decoded.scale_x, 0.25, 0);
    CHECK_NEAR(want.decoded.scale_y, 0.25, 0);
    CHECK(want.decoded.x <= 25 && want.decoded.x + aril_size(part, 1) >= 101);
    CHECK(aril_size(part, 1) < 85);
    aril__bytes_free(&b);
}

static aril_status status_of(const unsigned char *data, size_t size)
{
    ARIL_SCOPE;
    aril_clear_error();
    return aril_tensor_status(aril_image_decode(data, size, (aril_image_opts){ 0 }));
}

TEST(truncated_and_foreign_images)
{
    aril_tensor *t = DECODE(png_rgba, 0);
    NEED(t);
    for (size_t n = 0; n + 12 < sizeof png_rgba; n++)
        CHECK_INT(status_of(png_rgba, n), ARIL_ERR_FORMAT);
    t = DECODE(jpeg_gray, 0);
    NEED(t);
    for (size_t n = 0; n + 2 < sizeof jpeg_gray; n++)
        CHECK_INT(status_of(jpeg_gray, n), ARIL_ERR_FORMAT);
    for (size_t n = 0; n + 2 < sizeof jpeg_progressive; n += 3)
        CHECK_INT(status_of(jpeg_progressive, n), ARIL_ERR_FORMAT);
    CHECK_INT(status_of((const unsigned char *)"GIF89a....", 10), ARIL_ERR_FORMAT);
    CHECK(strstr(aril_error(), "is not an image: neither JPEG, PNG, BMP"));
    aril_clear_error();
    const char *path = temp_path("empty.jpg");
    CHECK_INT(aril__file_replace(path, "", 0), ARIL_OK);
    CHECK_INT(aril_tensor_status(aril_image_read(path, (aril_image_opts){ 0 })), ARIL_ERR_FORMAT);
    CHECK(strstr(aril_error(), "empty.jpg is an empty file"));
    aril_clear_error();
    CHECK_INT(aril_tensor_status(aril_image_read("/no/such.jpg", (aril_image_opts){ 0 })),
              ARIL_ERR_IO);
    CHECK(strstr(aril_error(), "cannot open /no/such.jpg"));
    aril_clear_error();
}

TEST(images_that_claim_to_be_huge)
{
    unsigned char jpeg[sizeof jpeg_gray];
    memcpy(jpeg, jpeg_gray, sizeof jpeg);
    aril_tensor *t = DECODE(jpeg_gray, 0);
    NEED(t);
    size_t frame = 0;
    while (frame + 9 < sizeof jpeg && !(jpeg[frame] == 0xff && jpeg[frame + 1] == 0xc0)) frame++;
    memset(jpeg + frame + 5, 0xfe, 4);
    int64_t before = aril_memory(test_device()).allocations;
    CHECK_INT(status_of(jpeg, sizeof jpeg), ARIL_ERR_FORMAT);
    CHECK_MSG(strstr(aril_error(), "cannot hold the 65278 x 65278 pixels") ||
                  strstr(aril_error(), "too large"),
              "%s", aril_error());
    CHECK_INT(aril_memory(test_device()).allocations, before);
    aril_clear_error();
}

TEST(real_photographs)
{
    ARIL_SCOPE;
    const char *data = getenv("ARIL_TEST_DATA");
    char path[512];
    static const struct {
        const char *name;
        int c, h, w;
    } photo[] = {
        { "caffe-examples/cat.jpg", 3, 360, 480 },  { "caffe-examples/cat_gray.jpg", 1, 360, 480 },
        { "pytorch-hub/dog.jpg", 3, 1213, 1546 },   { "scikit-image/astronaut.png", 3, 512, 512 },
        { "scikit-image/camera.png", 1, 512, 512 },
    };
    for (size_t i = 0; i < sizeof photo / sizeof *photo; i++) {
        snprintf(path, sizeof path, "%s/images/%s", data ? data : "../shared/data", photo[i].name);
        FILE *f = fopen(path, "rb");
        if (!f) SKIP("no %s", path);
        fclose(f);
        aril_tensor *t = aril_image_read(path, (aril_image_opts){ 0 });
        NEED(t);
        CHECK_INT(aril_size(t, 0), photo[i].c);
        CHECK_INT(aril_size(t, 1), photo[i].h);
        CHECK_INT(aril_size(t, 2), photo[i].w);
    }
}
