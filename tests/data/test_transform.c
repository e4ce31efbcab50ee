/* Transforms: random draws, text form, errors; values are in tests/golden/transform.py. */
#include "aril/aril.h"
#include "data/transform.h"
#include "support/device.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CHECK_ERROR(part)                                                            \
    do {                                                                             \
        CHECK(!aril_ok());                                                           \
        CHECK_MSG(strstr(aril_error(), part) != NULL, "error is: %s", aril_error()); \
        aril_clear_error();                                                          \
    } while (0)

/* Pixel (c, y, x) is 100 c + 10 y + x. */
static aril_tensor *numbered(int64_t c, int64_t h, int64_t w)
{
    aril_tensor *t = aril_zeros(ARIL_SHAPE(c, h, w), ARIL_U8, aril_cpu());
    uint8_t *p = aril_data_strided(t);
    for (int64_t i = 0; i < c * h * w; i++)
        p[i] = (uint8_t)(100 * (i / (h * w)) + 10 * (i / w % h) + i % w);
    return t;
}

static aril_tensor *apply(const char *text, aril_tensor *x, aril_generator *g)
{
    aril_transform *t = aril_transform_parse(text);
    if (!t) return NULL;
    aril_tensor *y = aril_transform_image(t, x, g);
    aril_transform_free(t);
    return y;
}

TEST(random_crops_reach_every_position)
{
    ARIL_SCOPE;
    aril_tensor *x = numbered(1, 6, 8);
    aril_generator *g = aril_generator_new(1);
    int seen[5][7] = { 0 };
    for (int i = 0; i < 2000; i++) {
        ARIL_SCOPE;
        const uint8_t *p = aril_data(apply("crop=2x2", x, g));
        CHECK(p[1] == p[0] + 1 && p[2] == p[0] + 10 && p[3] == p[0] + 11);
        seen[p[0] / 10][p[0] % 10]++;
    }
    for (int y = 0; y < 5; y++)
        for (int k = 0; k < 7; k++) CHECK_NEAR(seen[y][k], 2000 / 35.0, 35);
    /* With padding on each side. */
    bool zero = false, ninety = false;
    for (int i = 0; i < 300; i++) {
        ARIL_SCOPE;
        const uint8_t *p = aril_data(apply("crop=3x3:pad=2:fill=90", x, g));
        ninety |= p[0] == 90;
        const uint8_t *q = aril_data(apply("crop=3x3:pad=2:reflect=1", x, g));
        for (int k = 0; k < 9; k++) zero |= q[k] > 57;
    }
    CHECK(ninety && !zero);
    CHECK(aril_tensor_status(apply("crop=9x9", x, g)) < 0);
    CHECK_ERROR("cannot crop 9 x 9 from an image of 6 x 8");
    aril_generator_free(g);
}

TEST(flips_follow_their_probability)
{
    ARIL_SCOPE;
    aril_tensor *x = numbered(1, 2, 3);
    aril_generator *g = aril_generator_new(2);
    int flips = 0, rows = 0;
    for (int i = 0; i < 2000; i++) {
        ARIL_SCOPE;
        flips += ((const uint8_t *)aril_data(apply("flip=0.25", x, g)))[0] == 2;
        rows += ((const uint8_t *)aril_data(apply("flip_vertical=0.75", x, g)))[0] == 10;
    }
    CHECK_NEAR(flips, 500, 80);
    CHECK_NEAR(rows, 1500, 80);
    CHECK(!memcmp(aril_data(x), (const uint8_t[]){ 0, 1, 2, 10, 11, 12 }, 6)); /* never in place */
    aril_generator_free(g);
}

TEST(resized_crops_respect_their_limits)
{
    ARIL_SCOPE;
    aril_generator *g = aril_generator_new(3);
    aril_transform *t = aril_transform_parse("random_resized_crop=7x9:scale=0.2/0.5:ratio=0.5/2");
    CHECK(t);
    const aril_transform *one = t->list[0];
    double min = 1, max = 0;
    for (int i = 0; i < 3000; i++) {
        aril_region r = { 0 };
        CHECK(one->kind->region(one, g, 100, 60, &r));
        double part = (double)(r.width * r.height) / 6000,
               ratio = (double)r.width / (double)r.height;
        CHECK(part > 0.19 && part < 0.51 && ratio > 0.47 && ratio < 2.1);
        CHECK(r.x >= 0 && r.y >= 0 && r.x + r.width <= 100 && r.y + r.height <= 60);
        CHECK_INT(r.to_height, 7);
        CHECK_INT(r.to_width, 9);
        min = fmin(min, part);
        max = fmax(max, part);
    }
    CHECK(min < 0.22 && max > 0.48);
    /* An image that no aspect ratio fits gives its center. */
    aril_region r = { 0 };
    CHECK(one->kind->region(one, g, 1000, 2, &r));
    CHECK_INT(r.height, 2);
    CHECK_INT(r.width, 4);
    CHECK_INT(r.x, 498);
    aril_transform_free(t);
    aril_generator_free(g);
}

/* A reader that decodes only the requested region, at half the size when that is enough. */
static aril_status part_get(aril_dataset *self, int64_t i, aril_sample *s)
{
    (void)self, (void)i;
    aril_region r;
    aril_tensor *full = aril_dataset_data(self) ? *(aril_tensor **)aril_dataset_data(self) : NULL;
    s->x = full;
    if (!aril_sample_region(s, aril_size(full, 2), aril_size(full, 1), &r)) return ARIL_OK;
    s->x = aril_narrow(aril_narrow(full, 2, r.x, r.width), 1, r.y, r.height);
    s->decoded = (aril_decoded){ .scale_x = 1, .scale_y = 1, .x = r.x, .y = r.y };
    return ARIL_OK;
}

static aril_status full_get(aril_dataset *self, int64_t i, aril_sample *s)
{
    (void)i;
    s->x = *(aril_tensor **)aril_dataset_data(self);
    return ARIL_OK;
}

static int64_t ten(aril_dataset *self)
{
    (void)self;
    return 10;
}

TEST(partial_readers_give_the_same_result)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_randint(0, 256, ARIL_SHAPE(3, 40, 50), ARIL_U8, aril_cpu());
    for (int k = 0; k < 2; k++) {
        aril_dataset *d[2];
        for (int i = 0; i < 2; i++) {
            d[i] = aril_dataset_new("Reader", sizeof x, ten, i ? part_get : full_get);
            *(aril_tensor **)aril_dataset_data(d[i]) = x;
            d[i] = aril_dataset_transform(
                d[i], aril_transform_parse(k ? "resize=20,flip" : "random_resized_crop=16,flip"));
        }
        for (int64_t i = 0; i < 10; i++) {
            ARIL_SCOPE;
            aril_sample a, b;
            CHECK_INT(aril_dataset_get(d[0], i, &a), ARIL_OK);
            CHECK_INT(aril_dataset_get(d[1], i, &b), ARIL_OK);
            CHECK_INT(aril_numel(a.x), aril_numel(b.x));
            CHECK(!memcmp(aril_data(a.x), aril_data(b.x), (size_t)aril_numel(a.x)));
        }
        aril_dataset_release(d[0]);
        aril_dataset_release(d[1]);
    }
}

TEST(reduced_image_has_the_same_crop_box)
{
    ARIL_SCOPE;
    /* A ramp, which an image of half the size has too: pixel x is 2 x + 0.5 of the original. */
    float full[64], half[32];
    for (int i = 0; i < 64; i++) full[i] = (float)i;
    for (int i = 0; i < 32; i++) half[i] = 2 * (float)i + 0.5f;
    aril_region r = { .x = 8, .width = 48, .height = 1, .to_width = 12, .to_height = 1 };
    aril__pixels_view a = { full, true, 1, 1, 64, 64, 64, 1 },
                      b = { half + 3, true, 1, 1, 29, 29, 29, 1 };
    float one[12], two[12];
    CHECK_INT(aril__resize(&a, (aril__box){ 8, 0, 48, 1 }, 1, 12, (aril_resize_opts){ 0 }, one),
              ARIL_OK);
    CHECK_INT(aril__resize(&b, (aril__box){ (double)r.x * 0.5 - 3, 0, 24, 1 }, 1, 12,
                           (aril_resize_opts){ 0 }, two),
              ARIL_OK);
    for (int i = 1; i < 11; i++) CHECK_NEAR(one[i], two[i], 1e-4);
}

TEST(jitter_erase_and_cutout_are_random)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_full(ARIL_SHAPE(3, 20, 20), 100, ARIL_U8, aril_cpu());
    aril_generator *g = aril_generator_new(4);
    int min = 255, max = 0, erased = 0;
    for (int i = 0; i < 500; i++) {
        ARIL_SCOPE;
        const uint8_t *p = aril_data(apply("jitter=0.5:contrast=0:saturation=0", x, g));
        if (p[0] < min) min = p[0];
        if (p[0] > max) max = p[0];
        const uint8_t *q = aril_data(apply("erase=0.5:value=7", x, g));
        int holes = 0;
        for (int k = 0; k < 400; k++) holes += q[k] == 7;
        CHECK(holes == 0 || (holes >= 4 && holes < 200));
        erased += holes > 0;
        const uint8_t *c = aril_data(apply("cutout=6", x, g));
        holes = 0;
        for (int k = 0; k < 400; k++) holes += c[k] == 0;
        CHECK(holes >= 9 && holes <= 36);
    }
    CHECK(min >= 50 && min < 55 && max <= 150 && max > 145);
    CHECK_NEAR(erased, 250, 60);
    CHECK_INT(((const uint8_t *)aril_data(x))[0], 100);
    aril_generator_free(g);
}

static aril_status double_it(aril_sample *s, void *ctx)
{
    ++*(int *)ctx;
    s->x = aril_mul_scalar(s->x, 2);
    return ARIL_OK;
}

static void count_drop(void *ctx)
{
    *(int *)ctx += 100;
}

TEST(functions_and_lists)
{
    int calls = 0;
    {
        ARIL_SCOPE;
        aril_transform *t = ARIL_TRANSFORMS(aril_transform_flip(1),
                                            aril_transform_function(double_it, &calls, count_drop),
                                            aril_transform_flip(1));
        CHECK(t);
        aril_tensor *x = numbered(1, 1, 4), *y = aril_transform_image(t, x, NULL);
        CHECK(!memcmp(aril_data(y), (const uint8_t[]){ 0, 2, 4, 6 }, 4));
        CHECK(!memcmp(aril_data(x), (const uint8_t[]){ 0, 1, 2, 3 }, 4));
        aril_transform_free(t);
        CHECK_INT(calls, 101);
        /* A part that failed ends the list, and the others are freed. */
        CHECK(!ARIL_TRANSFORMS(aril_transform_function(double_it, &calls, count_drop),
                               aril_transform_flip(2)));
        CHECK_ERROR("flip: p is 2; expected a number from 0 to 1");
        CHECK_INT(calls, 201);
    }
}

TEST(text_round_trip)
{
    const char *const texts[] = {
        "flip=p=0.25",
        "crop=size=28:pad=4,rotate=degrees=10",
        "jitter=brightness=0.5:hue=0.125",
        "random_resized_crop=size=224x192:scale=0.5/1:filter=bicubic:antialias=0",
        "normalize=mean=0.5/0.25/0.125:std=0.5",
        ""
    };
    char buf[256], again[256];
    for (int i = 0; i < 6; i++) {
        aril_transform *t = aril_transform_parse(texts[i]);
        CHECK(t);
        CHECK_INT(aril_transform_text(t, buf, sizeof buf), strlen(texts[i]));
        CHECK_STR(buf, texts[i]);
        aril_transform *u = aril_transform_parse(buf);
        aril_transform_text(u, again, sizeof again);
        CHECK_STR(again, buf);
        CHECK_INT(aril_transform_text(t, again, 5), strlen(texts[i]));
        aril_transform_free(t);
        aril_transform_free(u);
    }
    /* Positional and named arguments are the same, and so are the functions. */
    aril_transform *t = aril_transform_parse("crop=28x20:4, rotate=10");
    aril_transform_text(t, buf, sizeof buf);
    CHECK_STR(buf, "crop=size=28x20:pad=4,rotate=degrees=10");
    aril_transform_free(t);
    t = ARIL_TRANSFORMS(aril_transform_random_crop(28, 20, (aril_crop_opts){ .pad = 4 }),
                        aril_transform_rotate(10, ARIL_FILTER_BILINEAR, 0));
    aril_transform_text(t, again, sizeof again);
    CHECK_STR(again, buf);
    aril_transform_free(t);
    t = aril_transform_parse("flip,mixup=0.4:10,crop=8,cutmix");
    aril_transform *b = aril_transform_take_batch(t);
    aril_transform_text(t, buf, sizeof buf);
    CHECK_STR(buf, "flip,crop=size=8");
    aril_transform_text(b, buf, sizeof buf);
    CHECK_STR(buf, "mixup=alpha=0.40000000000000002:classes=10,cutmix");
    CHECK(!aril_transform_take_batch(t));
    aril_transform_free(t);
    aril_transform_free(b);
}

TEST(invalid_text_is_explained)
{
    static const char *const wrong[][2] = {
        { "flop", "no transform 'flop'; did you mean flip?" },
        { "swirl", "no transform 'swirl'; known transforms: resize, center_crop" },
        { "flip,,crop=3", "an empty transform between commas" },
        { "flip,", "an empty transform between commas" },
        { "crop", "crop: missing size (crop=...)" },
        { "crop=", "size is ''; expected a size such as 224 or 224x192" },
        { "crop=0", "crop: size is 0; expected an integer from 1" },
        { "crop=2x3x4", "size is '2x3x4'" },
        { "crop=28:pod=4", "crop has no option 'pod'; it has size, pad, fill, reflect" },
        { "crop=28:pad=4:5", "'5' follows named options" },
        { "crop=1:2:3:0:5", "crop has no option '5'" },
        { "flip=1.5", "flip: p is 1.5; expected a number from 0 to 1" },
        { "flip=x", "p is 'x'; expected a number" },
        { "flip=nan", "flip: p is nan" },
        { "resize=3:cubic", "filter is 'cubic'; expected bilinear, nearest or bicubic" },
        { "random_resized_crop=3:scale=1/0.5", "expected the smallest and the largest scale" },
        { "random_resized_crop=3:scale=0.5", "expected the smallest and the largest scale" },
        { "normalize=0.5:0", "std is 0" },
        { "normalize=1/2/3/4/5:1", "up to four numbers" },
        { "jitter=0.1:hue=0.7", "hue is 0.7; expected a number from 0 to 0.5" },
        { "to_float=1", "to_float has no option '1'; it has none" },
        { "rotate=10:bicubic", "rotate: the filter is bilinear or nearest" },
        { "grayscale=0.5", "grayscale: with 1 channel all images must be gray" },
        { "pad=1/2/3", "pad: expected one, two (x/y) or four" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK(!aril_transform_parse(wrong[i][0]));
        CHECK_ERROR(wrong[i][1]);
    }
    CHECK(!aril_transform_parse(NULL));
    CHECK_ERROR("text is NULL");
}

TEST(invalid_images)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_zeros(ARIL_SHAPE(4, 4), ARIL_U8, aril_cpu());
    CHECK(aril_tensor_status(apply("flip=1", x, NULL)) < 0);
    CHECK_ERROR("flip: expected an image, u8 or f32 [C,H,W], got u8 [4,4]");
    x = aril_zeros(ARIL_SHAPE(2, 4, 4), ARIL_F32, aril_cpu());
    CHECK(aril_tensor_status(apply("normalize=1/2/3:1", x, NULL)) < 0);
    CHECK_ERROR("normalize: 3 numbers for mean, but 2 channels");
    CHECK(aril_tensor_status(apply("grayscale", x, NULL)) < 0);
    CHECK_ERROR("grayscale: expected 1 or 3 channels, got 2");
    CHECK(aril_tensor_status(apply("mixup=1", x, NULL)) < 0);
    CHECK_ERROR("mixup transforms batches");
    aril_dataset *d =
        aril_dataset_images(aril_zeros(ARIL_SHAPE(3, 4, 4), ARIL_U8, aril_cpu()), NULL);
    CHECK(!aril_dataset_transform(d, aril_transform_parse("flip,cutmix")));
    CHECK_ERROR("cutmix transforms batches: pass it to the loader (.batch_transform)");
}

TEST(normalized_batches_equal_normalized_samples)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_randint(0, 256, ARIL_SHAPE(9, 3, 5, 7), ARIL_U8, aril_cpu());
    aril_dataset *d =
        aril_dataset_transform(aril_dataset_images(x, NULL),
                               aril_transform_parse("normalize=0.4/0.5/0.6:0.2/0.3/0.4"));
    aril_loader *l = aril_loader_new(aril_dataset_keep(d), (aril_loader_opts){ .batch = 9 });
    aril_batch b;
    CHECK(aril_loader_next(l, &b));
    for (int64_t i = 0; i < 9; i++) {
        aril_sample s;
        CHECK_INT(aril_dataset_get(d, i, &s), ARIL_OK);
        CHECK(
            !memcmp(aril_data(s.x), (const float *)aril_data(b.x) + i * 105, 105 * sizeof(float)));
    }
    aril_loader_free(l);
    aril_dataset_release(d);
}

TEST(targets_and_mixes)
{
    ARIL_SCOPE;
    enum { N = 5, CLASSES = 4, PIXELS = 64 };
    aril_tensor *x = aril_zeros(ARIL_SHAPE(N, 1, 8, 8), ARIL_F32, aril_cpu());
    for (int i = 0; i < N * PIXELS; i++) ((float *)aril_data_strided(x))[i] = (float)(i / PIXELS);
    const int64_t classes[N] = { 0, 1, 2, 3, 0 };
    aril_tensor *y = aril_from(classes, ARIL_SHAPE(N), ARIL_I64, aril_cpu());
    aril_dataset *d = aril_dataset_tensors(x, y);
    for (int cut = 0; cut < 2; cut++) {
        aril_loader *l = aril_loader_new(
            aril_dataset_keep(d),
            (aril_loader_opts){ .batch = N,
                                .batch_transform = cut ? aril_transform_cutmix(1, CLASSES)
                                                       : aril_transform_mixup(0.5, CLASSES) });
        for (int e = 0; e < 20; e++) {
            aril_batch b;
            CHECK(aril_loader_next(l, &b));
            CHECK_INT(aril_size(b.y, 1), CLASSES);
            const float *v = aril_data(b.x), *t = aril_data(b.y);
            float keep = t[1 * CLASSES + 1]; /* of sample 1, which is mixed with sample 0 */
            CHECK(keep >= 0 && keep <= 1);
            for (int i = 0; i < N; i++) {
                int other = (i + N - 1) % N;
                double mean = 0, rows = 0;
                for (int p = 0; p < PIXELS; p++) mean += v[i * PIXELS + p] / (double)PIXELS;
                CHECK_NEAR(mean, keep * (float)i + (1 - keep) * (float)other, 1e-5);
                for (int c = 0; c < CLASSES; c++) {
                    double want =
                        (classes[i] == c ? keep : 0) + (classes[other] == c ? 1 - keep : 0);
                    CHECK_NEAR(t[i * CLASSES + c], want, 1e-6);
                    rows += t[i * CLASSES + c];
                }
                CHECK_NEAR(rows, 1, 1e-6);
                if (cut)
                    for (int p = 0; p < PIXELS; p++)
                        CHECK(v[i * PIXELS + p] == (float)i || v[i * PIXELS + p] == (float)other);
            }
            CHECK(!aril_loader_next(l, &b));
        }
        aril_loader_free(l);
    }
    aril_loader *l = aril_loader_new(
        aril_dataset_keep(d),
        (aril_loader_opts){ .batch = N, .batch_transform = aril_transform_mixup(1, 0) });
    aril_batch b;
    CHECK(!aril_loader_next(l, &b));
    CHECK_ERROR("mixup: the dataset does not define the number of classes");
    aril_loader_free(l);
    /* The dataset's class names determine their number. */
    CHECK_INT(aril_dataset_set_classes(d, 6, (const char *const[]){ "a", "b", "c", "d", "e", "f" }),
              ARIL_OK);
    l = aril_loader_new(aril_dataset_keep(d),
                        (aril_loader_opts){ .batch = N,
                                            .batch_transform = aril_transform_parse("mixup") });
    CHECK(aril_loader_next(l, &b));
    CHECK_INT(aril_size(b.y, 1), 6);
    aril_loader_free(l);
    d = aril_dataset_transform(d, aril_transform_one_hot(4));
    aril_sample s;
    CHECK_INT(aril_dataset_get(d, 2, &s), ARIL_OK);
    CHECK(!memcmp(aril_data(s.y), (const float[]){ 0, 0, 1, 0 }, 16));
    aril_dataset_release(d);
}

/* Mixup's proportion is Beta(alpha, alpha). */
TEST(mixup_proportions)
{
    for (int k = 0; k < 2; k++) {
        ARIL_SCOPE;
        double alpha = k ? 3 : 0.3, sum = 0, squares = 0;
        aril_transform *t = aril_transform_mixup(alpha, 2);
        aril_generator *g = aril_generator_new(7);
        enum { DRAWS = 4000 };
        for (int i = 0; i < DRAWS; i++) {
            aril_batch b = { .n = 2 };
            float *x = aril_data_strided(aril_batch_buffer(&b.x, ARIL_F32, ARIL_SHAPE(2, 1)));
            float *y = aril_data_strided(aril_batch_buffer(&b.y, ARIL_F32, ARIL_SHAPE(2, 2)));
            memcpy(x, (const float[]){ 1, 0 }, 8);
            memset(y, 0, 16);
            CHECK_INT(aril_transform_batch(t, &b, g), ARIL_OK);
            double keep = ((const float *)aril_data(b.x))[0];
            sum += keep;
            squares += keep * keep;
            aril_release(b.x);
            aril_release(b.y);
        }
        double mean = sum / DRAWS, variance = squares / DRAWS - mean * mean;
        CHECK_NEAR(mean, 0.5, 0.03);
        CHECK_NEAR(variance, 1 / (4 * (2 * alpha + 1)), 0.01);
        aril_transform_free(t);
        aril_generator_free(g);
    }
}

TEST(help_names_every_transform)
{
    char text[8192] = "";
    FILE *f = fmemopen(text, sizeof text, "w");
    CHECK(f);
    aril_transform_help(f);
    fclose(f);
    CHECK(strstr(text, "crop=size:pad:fill:reflect"));
    CHECK(strstr(text, "cutmix=alpha:classes"));
    CHECK(strstr(text, "to_float "));
}

TEST(failed_allocations)
{
    for (int64_t n = 1; n < 300; n++) {
        aril_fail_allocation(n);
        {
            ARIL_SCOPE;
            aril_tensor *x = aril_zeros(ARIL_SHAPE(3, 20, 20), ARIL_U8, aril_cpu());
            aril_transform *t = aril_transform_parse(
                "random_resized_crop=8,flip=1,jitter=0.1,rotate=5,cutout=2,normalize=0.5:0.5");
            if (t) aril_transform_image(t, x, NULL);
            aril_transform_free(t);
        }
        bool failed = aril_allocation_failed();
        aril_fail_allocation(0);
        aril_clear_error();
        if (!failed) return;
    }
    CHECK_MSG(false, "the program never ran to its end");
}

TEST(failed_transform_is_rejected)
{
    aril_transform *t = ARIL_TRANSFORMS(aril_transform_one_hot(3), NULL, aril_transform_one_hot(3));
    CHECK(t == NULL);
    CHECK_MSG(strstr(aril_error(), "transform 1 is NULL") != NULL, "%s", aril_error());
    aril_clear_error();
}

TEST(tensors_of_a_device_are_refused)
{
    if (test_on_cpu()) SKIP("needs a device whose memory the host cannot read");
    ARIL_SCOPE;
    aril_tensor *image = aril_zeros(ARIL_SHAPE(3, 4, 4), ARIL_F32, test_device());
    aril_tensor *x = aril_zeros(ARIL_SHAPE(2, 3, 4, 4), ARIL_F32, test_device());
    aril_tensor *y = aril_zeros(ARIL_SHAPE(2), ARIL_I64, test_device());
    static const char *const of_images[] = { "resize=8", "flip=1", "normalize=0.5:0.5", "erase=1" };
    for (int i = 0; i < 4; i++) {
        CHECK(aril_tensor_status(apply(of_images[i], image, NULL)) < 0);
        CHECK_ERROR("not in host memory");
    }
    static const char *const of_batches[] = { "mixup=0.4:5", "cutmix=1:5", "normalize=0.5:0.5",
                                              "one_hot=5" };
    for (int i = 0; i < 4; i++) {
        aril_transform *t = aril_transform_parse(of_batches[i]);
        aril_batch b = { .x = i < 3 ? x : NULL, .y = y, .n = 2 };
        CHECK_INT(aril_transform_batch(t, &b, NULL), ARIL_ERR_DEVICE);
        CHECK_ERROR(i < 3 ? "x of the batch is not in host memory" : "y of the batch");
        aril_transform_free(t);
    }
}
