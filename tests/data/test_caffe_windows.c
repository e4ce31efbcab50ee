/* Caffe's WindowData and MemoryData layers as loaders. */
#include "aril/aril.h"
#include "data/caffe/source.h"
#include "formats/atomic_file.h"
#include "formats/schemas.h"
#include "support/temp.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct fed {
    aril__message *layer;
    aril_loader *loader;
} fed;

static fed feed(const char *text, aril__caffe_source_opts opts)
{
    fed f = { .layer = aril__message_parse(&aril__caffe_LayerParameter, text, strlen(text),
                                           (aril__message_opts){ .name = "a layer" }) };
    opts.seed = 5;
    if (f.layer) f.loader = aril__caffe_source_open(f.layer, opts);
    return f;
}

static void feed_free(fed *f)
{
    aril_loader_free(f->loader);
    aril__message_free(f->layer);
}

/* ---- windows ---- */

enum { WIDTH = 24, HEIGHT = 18, MANY = 400 };

/* Smooth, so that resizing by another rule differs little. */
static unsigned char pixel(int image, int c, int y, int x)
{
    return (unsigned char)(40 + 30 * image + 20 * c + 3 * y + 2 * x);
}

static bool write_image(int image)
{
    ARIL_SCOPE;
    char name[32];
    static unsigned char v[3 * HEIGHT * WIDTH];
    for (int k = 0; k < 3 * HEIGHT * WIDTH; k++)
        v[k] = pixel(image, k / (HEIGHT * WIDTH), k / WIDTH % HEIGHT, k % WIDTH);
    snprintf(name, sizeof name, "%d.png", image);
    return aril_image_write(temp_path(name),
                            aril_from(v, ARIL_SHAPE(3, HEIGHT, WIDTH), ARIL_U8, aril_cpu()),
                            (aril_image_write_opts){ 0 }) == ARIL_OK;
}

static const char *write_text(const char *text)
{
    const char *path = temp_path("windows.txt");
    return aril__file_replace(path, text, strlen(text)) == ARIL_OK ? path : "";
}

/* A layer with further parameters of its transform and of itself. */
static const char *layer_of(const char *source, const char *transform, const char *more)
{
    static char text[16384];
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", temp_path(""));
    snprintf(text, sizeof text,
             "name: \"w\" type: \"WindowData\" top: \"data\" top: \"label\" transform_param { %s } "
             "window_data_param { source: \"%s\" root_folder: \"%s/\" %s }",
             transform, source, folder, more);
    return text;
}

/* A number per image so that a sample tells its window. */
static const char two_images[] =
    "# 0\n0.png\n3\n18\n24\n5\n7 1.0 2 3 9 10\n5 0.4 0 0 3 3\n9 0.2 8 6 15 13\n"
    "2 0.75 16 10 23 17\n6 0.45 1 1 9 9\n# 1\n1.png\n3 18 24\n1\n4 0.1 4 4 11 11\n";

/* Windows of the crop's size are copied as they are. The last fg_fraction of a batch are objects,
 * the others background, whose label is 0; what is between the thresholds is neither. */
TEST(windows_are_drawn_by_their_overlap)
{
    if (!write_image(0) || !write_image(1)) SKIP("%s", aril_error());
    static const int corner[][3] = { { 0, 2, 3 }, { 0, 16, 10 }, { 0, 8, 6 }, { 1, 4, 4 } };
    static const int label[] = { 7, 2, 0, 0 };
    for (int cached = 0; cached < 2; cached++) {
        char more[160];
        snprintf(more, sizeof more,
                 "batch_size: 8 fg_threshold: 0.5 bg_threshold: 0.3 fg_fraction: 0.4 scale: 0.5 "
                 "cache_images: %s",
                 cached ? "true" : "false");
        fed f = feed(layer_of(write_text(two_images),
                              "crop_size: 8 mirror: true mean_value: 1 mean_value: 2 mean_value: 3 "
                              "scale: 100",
                              more),
                     (aril__caffe_source_opts){ .train = true, .workers = 2 * cached });
        CHECK_MSG(f.loader, "%s", aril_error());
        int seen[4][2] = { { 0 } };
        for (int k = 0; k < MANY; k++) {
            ARIL_SCOPE;
            aril_batch b;
            CHECK_MSG(aril__caffe_source_next(f.loader, &b) == ARIL_OK, "%s", aril_error());
            CHECK_INT(aril_numel(b.x), 8 * 3 * 8 * 8);
            const float *x = aril_data(b.x), *y = aril_data(b.y);
            for (int i = 0; i < 8; i++, x += 192) {
                int found = 0;
                for (int w = 0; w < 4; w++)
                    for (int flip = 0; flip < 2; flip++) {
                        bool same = true;
                        for (int e = 0; e < 192 && same; e++) {
                            int c = e / 64, row = e / 8 % 8, col = e % 8;
                            int from = corner[w][1] + (flip ? 7 - col : col);
                            same = x[e] ==
                                   ((float)pixel(corner[w][0], 2 - c, corner[w][2] + row, from) -
                                    (float)(c + 1)) *
                                       0.5f;
                        }
                        if (!same) continue;
                        found++;
                        seen[w][flip]++;
                        CHECK_INT(y[i], label[w]);
                        CHECK_INT(w < 2, i >= 5); /* int(8 * 0.4) objects */
                    }
                CHECK_INT(found, 1);
            }
        }
        for (int w = 0; w < 4; w++)
            for (int flip = 0; flip < 2; flip++) {
                int expected = MANY * (w < 2 ? 3 : 5) / 4;
                CHECK_MSG(abs(seen[w][flip] - expected) < expected / 5, "%d, %d: %d, not %d", w,
                          flip, seen[w][flip], expected);
            }
        feed_free(&f);
    }
}

/* What a window of image 0 gives, pixel by pixel: its expanded region at the scale of the crop,
 * zero outside of the image. */
static double expected(double x1, double y1, double wide, double high, int crop, int c, int row,
                       int col)
{
    double x = x1 + (col + 0.5) * wide / crop - 0.5, y = y1 + (row + 0.5) * high / crop - 0.5;
    x = fmin(fmax(x, 0), WIDTH - 1);
    y = fmin(fmax(y, 0), HEIGHT - 1);
    return 40 + 20 * (2 - c) + 3 * y + 2 * x;
}

TEST(context_and_squares_expand_windows)
{
    if (!write_image(0)) SKIP("%s", aril_error());
    /* The region that Caffe takes for the window, and the padding that it leaves: left, top, right,
     * bottom. */
    static const struct {
        const char *window, *more;
        int x1, y1, wide, high, pad[4];
    } cases[] = {
        { "8 6 11 13", "", 8, 6, 4, 8, { 0 } },
        /* 4 x 8 at (10, 10), to 8 x 8 and one more, as both ends are rounded and count */
        { "8 6 11 13", "crop_mode: \"square\"", 6, 6, 9, 9, { 0 } },
        /* scale 16 / (16 - 8) = 2: from 10 - 4 to 10 + 4 and from 10 - 8 to 10 + 8, of which 18
         * is outside: 1 of 17 rows, a padding of round(16 / 17) */
        { "8 6 11 13", "context_pad: 4", 6, 2, 9, 17, { 0, 0, 0, 1 } },
        { "8 6 11 13", "context_pad: 4 crop_mode: \"square\"", 2, 2, 17, 17, { 0, 0, 0, 1 } },
        /* 4 x 4 at (2, 2): from -2 to 6, 2 of 9 outside: round(2 * 16 / 9) */
        { "0 0 3 3", "context_pad: 4", -2, -2, 9, 9, { 4, 4, 0, 0 } },
        /* at (22, 16): from 18 to 26 of 24 columns, from 12 to 20 of 18 rows */
        { "20 14 23 17", "context_pad: 4", 18, 12, 9, 9, { 0, 0, 5, 5 } },
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        for (int mirror = 0; mirror < 2; mirror++) {
            char text[160], more[160];
            snprintf(text, sizeof text, "# 0 0.png 3 18 24 1 1 1 %s", cases[k].window);
            snprintf(more, sizeof more, "batch_size: 6 fg_fraction: 1 %s", cases[k].more);
            fed f = feed(layer_of(write_text(text),
                                  mirror ? "crop_size: 16 mirror: true" : "crop_size: 16", more),
                         (aril__caffe_source_opts){ .train = true });
            CHECK_MSG(f.loader, "%s", aril_error());
            aril_batch b;
            CHECK_MSG(aril__caffe_source_next(f.loader, &b) == ARIL_OK, "%s", aril_error());
            const float *x = aril_data(b.x);
            const int *pad = cases[k].pad;
            int flipped = 0;
            for (int i = 0; i < 6; i++, x += 3 * 256) {
                /* Brighter to the right: a mirrored one to the left. */
                bool flip = x[8 * 16 + 10] < x[8 * 16 + 6];
                flipped += flip;
                for (int e = 0; e < 3 * 256; e++) {
                    int c = e / 256, row = e / 16 % 16, col = flip ? 15 - e % 16 : e % 16;
                    bool out =
                        col < pad[0] || row < pad[1] || col >= 16 - pad[2] || row >= 16 - pad[3];
                    double want = out ? 0
                                      : expected(cases[k].x1, cases[k].y1, cases[k].wide,
                                                 cases[k].high, 16, c, row, col);
                    /* Rounded sizes move the grid by up to half a pixel of the image. */
                    CHECK_MSG(fabs(x[e] - want) <= (out ? 0 : 3),
                              "case %zu, (%d, %d, %d): %g, not %g", k, c, row, col, x[e], want);
                }
            }
            CHECK_MSG(mirror ? flipped > 0 && flipped < 6 : flipped == 0, "%d flipped", flipped);
            feed_free(&f);
        }
}

/* The center of a mean is subtracted where the window lies; padding stays zero. */
TEST(windows_subtract_the_center_of_a_mean)
{
    ARIL_SCOPE;
    if (!write_image(0)) SKIP("%s", aril_error());
    static float mean[3 * 12 * 12];
    char transform[4200];
    for (int k = 0; k < 3 * 144; k++) mean[k] = (float)(k % 97);
    CHECK_INT(aril_caffe_blob_save(temp_path("mean.binaryproto"),
                                   aril_from(mean, ARIL_SHAPE(1, 3, 12, 12), ARIL_F32, aril_cpu())),
              ARIL_OK);
    snprintf(transform, sizeof transform, "crop_size: 8 mean_file: \"%s\"",
             temp_path("mean.binaryproto"));
    fed f = feed(layer_of(write_text("# 0 0.png 3 18 24 1 3 1 4 5 11 12"), transform,
                          "batch_size: 1 fg_fraction: 1"),
                 (aril__caffe_source_opts){ .train = true });
    CHECK_MSG(f.loader, "%s", aril_error());
    aril_batch b;
    CHECK_MSG(aril__caffe_source_next(f.loader, &b) == ARIL_OK, "%s", aril_error());
    const float *x = aril_data(b.x);
    for (int e = 0; e < 192; e++) {
        int c = e / 64, row = e / 8 % 8, col = e % 8;
        CHECK_INT(x[e],
                  pixel(0, 2 - c, 5 + row, 4 + col) - mean[(c * 12 + 2 + row) * 12 + 2 + col]);
    }
    feed_free(&f);
}

TEST(wrong_window_files_are_errors)
{
    if (!write_image(0)) SKIP("%s", aril_error());
    static const char good[] = "# 0 0.png 3 18 24 2 1 1 0 0 3 3 0 0 4 4 7 7";
    static const struct {
        const char *text, *transform, *more, *error;
    } wrong[] = {
        { "", "crop_size: 8", "batch_size: 2", "no background windows" },
        { "0 0.png", "crop_size: 8", "batch_size: 2", "line 1: expected '#' and the index" },
        { "#\n\n0.png", "crop_size: 8", "batch_size: 2", "line 3: expected the index of an image" },
        { "# 1 0.png 3 18 24 0", "crop_size: 8", "batch_size: 2",
          "has the index 1, but is number 0" },
        { "# 0", "crop_size: 8", "batch_size: 2", "the path of an image, got the end of the file" },
        { "# 0 0.png 3 x", "crop_size: 8", "batch_size: 2", "channels, height and width" },
        { "# 0 0.png 3 18 24 99999999999", "crop_size: 8", "batch_size: 2", "number of windows" },
        { "# 0 0.png 3 18 24 2147483647 1 1 0 0 1 1", "crop_size: 8", "batch_size: 2",
          "the label of a window, got the end of the file" },
        { "# 0 0.png 3 18 24 1 1 nan 0 0 1 1", "crop_size: 8", "batch_size: 2", "the overlap" },
        { "# 0 0.png 3 18 24 1 0 1 0 0 1 1", "crop_size: 8", "batch_size: 2", "has the label 0" },
        { "# 0 0.png 3 18 24 1 1 1 5 0 1 1", "crop_size: 8", "batch_size: 2",
          "ends before it begins" },
        { "# 0 0.png 3 18 24 1 1 1 0 0 1 9999999", "crop_size: 8", "batch_size: 2",
          "a coordinate" },
        { "# 0 0.png 3 18 24 1 1 1 0 0 3 3", "crop_size: 8", "batch_size: 2",
          "no background windows (overlap below 0.5)" },
        { "# 0 0.png 3 18 24 1 1 0 0 0 3 3", "crop_size: 8", "batch_size: 4",
          "no foreground windows (overlap from 0.5)" },
        { good, "", "batch_size: 2", "expected a crop_size from 1" },
        { good, "crop_size: 8", "", "expected a batch_size" },
        { good, "crop_size: 8", "batch_size: 2 context_pad: 4", "context_pad 4 leaves nothing" },
        { good, "crop_size: 8", "batch_size: 2 crop_mode: \"warped\"", "expected warp or square" },
        { good, "crop_size: 8", "batch_size: 2 fg_fraction: 1.5",
          "fg_fraction must be from 0 to 1" },
        { good, "crop_size: 8 mean_value: 1 mean_value: 2", "batch_size: 2",
          "2 values of mean_value" },
        { "# 0 none.png 3 18 24 2 1 1 0 0 3 3 0 0 4 4 7 7", "crop_size: 8",
          "batch_size: 2 cache_images: true", "none.png" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fed f = feed(layer_of(write_text(wrong[i].text), wrong[i].transform, wrong[i].more),
                     (aril__caffe_source_opts){ 0 });
        CHECK_MSG(!f.loader, "%zu is opened", i);
        CHECK_MSG(strstr(aril_error(), wrong[i].error), "%zu: %s", i, aril_error());
        aril_clear_error();
        feed_free(&f);
    }
    static const struct {
        const char *text, *more, *error;
    } late[] = {
        { "# 0 0.png 3 18 24 1 1 1 20 0 24 3", "",
          "(20, 0) to (24, 3) is not inside of the image" },
        { "# 0 0.png 3 18 24 1 1 1 -1 0 4 3", "", "is not inside" },
        { "# 0 0.png 3 18 24 1 1 1 60 0 64 3", "context_pad: 1", "is not inside" },
        { "# 0 0.png 3 18 24 1 1 1 -1048576 -1048576 -1048570 1048576", "crop_mode: \"square\"",
          NULL }, /* the square around it reaches the image */
        { "# 0 none.png 3 18 24 1 1 1 0 0 3 3", "", "none.png" },
    };
    for (size_t i = 0; i < sizeof late / sizeof *late; i++) {
        char more[96];
        snprintf(more, sizeof more, "batch_size: 1 fg_fraction: 1 %s", late[i].more);
        fed f = feed(layer_of(write_text(late[i].text), "crop_size: 8", more),
                     (aril__caffe_source_opts){ 0 });
        aril_batch b;
        CHECK_MSG(f.loader, "%zu: %s", i, aril_error());
        aril_status status = aril__caffe_source_next(f.loader, &b);
        CHECK_MSG((status == ARIL_OK) == !late[i].error, "%zu: %s", i, aril_error());
        if (late[i].error)
            CHECK_MSG(strstr(aril_error(), late[i].error), "%zu: %s", i, aril_error());
        aril_clear_error();
        feed_free(&f);
    }
}

TEST(damaged_window_files_are_errors)
{
    if (!write_image(0) || !write_image(1)) SKIP("%s", aril_error());
    uint64_t random = 88172645463325252u;
    for (int k = 0; k < 600; k++) {
        char text[sizeof two_images];
        memcpy(text, two_images, sizeof text);
        for (int j = 0; j < 1 + k % 3; j++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            text[random % (sizeof text - 1)] = (char)("0179#. -\n\001\377e"[random >> 33 & 7]);
        }
        ARIL_SCOPE;
        fed f = feed(layer_of(write_text(text), "crop_size: 8", "batch_size: 4 context_pad: 2"),
                     (aril__caffe_source_opts){ 0 });
        aril_batch b;
        if (f.loader) aril__caffe_source_next(f.loader, &b);
        CHECK(f.loader || !aril_ok());
        feed_free(&f);
        aril_clear_error();
    }
}

/* ---- memory ---- */

static const char memory_layer[] =
    "name: \"m\" type: \"MemoryData\" top: \"data\" top: \"label\" transform_param { scale: 2 "
    "mean_value: 1 %s } memory_data_param { batch_size: 2 channels: 1 height: 2 width: 3 }";

TEST(memory_layers_read_tensors)
{
    ARIL_SCOPE;
    char text[512];
    for (int bytes = 0; bytes < 2; bytes++)
        for (int crop = 0; crop < 2; crop++) {
            enum { N = 6 };
            int64_t width = 3 + crop, height = 2;
            aril_tensor *x = aril_arange(0, (double)(N * height * width), 1, ARIL_F32, aril_cpu());
            x = aril_reshape(x, ARIL_SHAPE(N, 1, height, width));
            if (bytes) x = aril_cast(x, ARIL_U8);
            aril_tensor *y = aril_arange(10, 16, 1, ARIL_I64, aril_cpu());
            snprintf(text, sizeof text, memory_layer, "");
            if (crop) {
                strcpy(text, "name: \"m\" type: \"MemoryData\" top: \"data\" top: \"label\" "
                             "transform_param { crop_size: 2 scale: 2 mean_value: 1 } "
                             "memory_data_param { batch_size: 2 channels: 1 height: 2 width: 2 }");
            }
            fed f = feed(text, (aril__caffe_source_opts){ .x = x, .y = crop ? NULL : y });
            CHECK_MSG(f.loader, "%s", aril_error());
            aril_fill_(x, 200); /* the layer has its own copy */
            for (int k = 0; k < 8; k++) {
                aril_batch b;
                CHECK_MSG(aril__caffe_source_next(f.loader, &b) == ARIL_OK, "%s", aril_error());
                const float *v = aril_data(b.x), *label = aril_data(b.y);
                int64_t to = crop ? 2 : 3;
                for (int64_t e = 0; e < 2 * height * to; e++) {
                    int64_t i = e / (height * to), row = e / to % height, col = e % to + crop;
                    int64_t from = ((2 * k + i) % N * height + row) * width + col;
                    CHECK_INT(v[e], 2 * (from - 1));
                    CHECK_INT(label[i], crop ? 0 : 10 + (2 * k + i) % N);
                }
            }
            feed_free(&f);
        }
}

TEST(wrong_memory_is_an_error)
{
    ARIL_SCOPE;
    char text[512];
    snprintf(text, sizeof text, memory_layer, "");
    static const struct {
        aril_shape x;
        int labels;
        const char *error;
    } wrong[] = {
        { { 0 }, 0, "layer 'm' (MemoryData) at line 1: no data" },
        { { 4, { 4, 1, 2, 4 } }, 4, "expected samples [n,1,2,3], got" },
        { { 4, { 4, 2, 2, 3 } }, 4, "expected samples [n,1,2,3], got" },
        { { 3, { 4, 2, 3 } }, 4, "expected samples [n,1,2,3], got" },
        { { 4, { 3, 1, 2, 3 } }, 3, "multiple of batch_size 2, got 3" },
        { { 4, { 0, 1, 2, 3 } }, 0, "multiple of batch_size 2, got 0" },
        { { 4, { 4, 1, 2, 3 } }, 3, "expected 4 labels" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        aril__caffe_source_opts opts = { 0 };
        if (wrong[i].x.ndim) {
            opts.x = aril_zeros(wrong[i].x, ARIL_F32, aril_cpu());
            opts.y = aril_zeros(ARIL_SHAPE(wrong[i].labels), ARIL_F32, aril_cpu());
        }
        fed f = feed(text, opts);
        CHECK_MSG(!f.loader, "%zu is opened", i);
        CHECK_MSG(strstr(aril_error(), wrong[i].error), "%zu: %s", i, aril_error());
        aril_clear_error();
        feed_free(&f);
    }
}
