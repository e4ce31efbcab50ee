/* Drawings: the contents of the files. ARIL_DRAW_OUT keeps them for inspection. */
#include "formats/draw.h"
#include "support/device.h"
#include "support/test.h"

#include <aril/aril.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[256];

static const char *in_folder(const char *name)
{
    static char path[512];
    const char *out = getenv("ARIL_DRAW_OUT");
    if (!*folder) {
        snprintf(folder, sizeof folder, "%s", out ? out : "/tmp/aril_draw_XXXXXX");
        if (!out && !mkdtemp(folder)) return "/nonexistent/none.png";
    }
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* The file as text, "" when it does not exist; it is removed unless kept. */
static char *take(const char *path)
{
    FILE *f = fopen(path, "rb");
    char *text = calloc(1, 1 << 20);
    if (f && text && fread(text, 1, (1 << 20) - 1, f) == 0) text[0] = '\0';
    if (f) fclose(f);
    if (!getenv("ARIL_DRAW_OUT")) {
        unlink(path);
        rmdir(folder);
        folder[0] = '\0';
    }
    return text;
}

static int times(const char *text, const char *word)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, word)) != NULL; p += strlen(word)) n++;
    return n;
}

enum { EPOCHS = 12 };

static void make_series(aril_series *series, double *y)
{
    static const char *const names[] = { "loss", "accuracy", "val_loss", "val_accuracy" };
    for (int k = 0; k < 4; k++) {
        for (int i = 0; i < EPOCHS; i++) {
            double fall = exp(-i * (k < 2 ? 0.4 : 0.3));
            y[k * EPOCHS + i] = k % 2 ? 1 - 0.6 * fall : 0.1 + 2 * fall;
        }
        series[k] = (aril_series){ .name = names[k], .n = EPOCHS, .y = y + k * EPOCHS };
    }
}

TEST(curves)
{
    aril_series series[4];
    double y[4 * EPOCHS];
    make_series(series, y);
    const char *path = in_folder("curves.svg");
    CHECK_INT(aril_draw_curves(path, series, 4, (aril_draw_opts){ .title = "LeNet-5 & <others>" }),
              ARIL_OK);
    char *text = take(path);
    CHECK(strncmp(text, "<svg ", 5) == 0 && strstr(text, "</svg>"));
    CHECK_INT(times(text, "<polyline"), 4);
    CHECK(strstr(text, "LeNet-5 &amp; &lt;others>"));
    CHECK_INT(times(text, ">epoch<"), 2); /* loss and accuracy, each with its val_ */
    free(text);
    path = in_folder("curves.png");
    CHECK_INT(aril_draw_curves(path, series, 4,
                               (aril_draw_opts){ .title = "LeNet-5 on Fashion-MNIST" }),
              ARIL_OK);
    text = take(path);
    CHECK(memcmp(text, "\x89PNG", 4) == 0);
    free(text);
}

TEST(curves_with_gaps_and_single_values)
{
    const double y[] = { 1, NAN, 2, 3, INFINITY, 4 };
    const aril_series series = { .name = "x", .n = 6, .y = y };
    const char *path = in_folder("gaps.svg");
    CHECK_INT(aril_draw_curves(path, &series, 1, (aril_draw_opts){ 0 }), ARIL_OK);
    char *text = take(path);
    CHECK_INT(times(text, "<polyline"), 3);
    CHECK(!strstr(text, "nan") && !strstr(text, "inf"));
    free(text);
    const double same[] = { 0, 0, 0 };
    const aril_series flat = { .name = "flat", .n = 3, .y = same }, empty = { .name = "empty" };
    CHECK_INT(aril_draw_curves(in_folder("flat.png"), &flat, 1, (aril_draw_opts){ 0 }), ARIL_OK);
    free(take(in_folder("flat.png")));
    CHECK_INT(aril_draw_curves(in_folder("empty.svg"), &empty, 1, (aril_draw_opts){ 0 }), ARIL_OK);
    free(take(in_folder("empty.svg")));
}

TEST(confusion_matrix)
{
    ARIL_SCOPE;
    static const char *const names[] = {
        "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
        "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"
    };
    aril_seed(3);
    aril_tensor *counts = aril_randint(0, 60, ARIL_SHAPE(10, 10), ARIL_I64, test_device());
    counts = aril_add(counts, aril_mul_scalar(aril_eye(10, -1, ARIL_I64, test_device()), 800));
    const char *path = in_folder("confusion.svg");
    CHECK_INT(aril_draw_confusion(path, counts, names, (aril_draw_opts){ .title = "Confusion" }),
              ARIL_OK);
    char *text = take(path);
    CHECK_INT(times(text, ">Ankle boot<"), 2);
    CHECK(strstr(text, ">true class<") && strstr(text, ">predicted class<"));
    free(text);
    /* Rows keep their labels when there are too many classes for column labels. */
    aril_tensor *many = aril_ones(ARIL_SHAPE(100, 100), ARIL_I64, test_device());
    path = in_folder("many.svg");
    CHECK_INT(aril_draw_confusion(path, many, NULL, (aril_draw_opts){ 0 }), ARIL_OK);
    text = take(path);
    CHECK_INT(times(text, ">77<"), 1);
    free(text);
    /* Labels wider than the columns: rows show them with a number, and columns show the number. */
    const char *wide[20];
    for (int i = 0; i < 20; i++) wide[i] = i == 17 ? "Ankle boot" : "Trouser";
    path = in_folder("wide.svg");
    many = aril_zeros(ARIL_SHAPE(20, 20), ARIL_I64, test_device());
    CHECK_INT(aril_draw_confusion(path, many, wide, (aril_draw_opts){ 0 }), ARIL_OK);
    text = take(path);
    CHECK_INT(times(text, ">Ankle boot<"), 1);
    CHECK_INT(times(text, ">17<"), 2);
    free(text);
    path = in_folder("confusion.png");
    CHECK_INT(aril_draw_confusion(path, counts, names,
                                  (aril_draw_opts){ .title = "Confusion matrix" }),
              ARIL_OK);
    free(take(path));
}

TEST(contact_sheets)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_linspace(0, 1, 28 * 28, ARIL_F32, test_device());
    x = aril_contiguous(
        aril_expand(aril_reshape(x, ARIL_SHAPE(1, 1, 28, 28)), ARIL_SHAPE(8, 1, 28, 28)));
    static const aril_caption captions[8] = {
        { "Sneaker 99 %", false },  { "Shirt, is Coat", true },
        { "Bag", false },           { "Ankle boot 100 %", false },
        { "Pullover 51 %", false }, { "a very long caption indeed", true },
        { "Dress", false },         { NULL, false }
    };
    const char *path = in_folder("sheet.png");
    CHECK_INT(aril_draw_sheet(path, x, captions, 4, (aril_draw_opts){ .title = "Test images" }),
              ARIL_OK);
    char *text = take(path);
    CHECK(memcmp(text, "\x89PNG", 4) == 0);
    free(text);
    path = in_folder("sheet.svg");
    CHECK_INT(aril_draw_sheet(path, x, captions, 4, (aril_draw_opts){ 0 }), ARIL_OK);
    text = take(path);
    CHECK_INT(times(text, "<image "), 8);
    CHECK_INT(times(text, "<text "), 7);
    free(text);
}

/* Every letter is visible, and within its height. */
TEST(text_rendering)
{
    char all[96];
    for (int i = 0; i < 95; i++) all[i] = (char)(' ' + i);
    all[95] = '\0';
    aril__drawing *d = aril__drawing_new(aril__text_width(all, 20) + 20, 100);
    aril__draw_text(d, 10, 30, 20, -1, 0, all);
    aril__draw_text(d, 10, 60, 14, -1, 0x333333,
                    "The quick brown fox jumps over 13 lazy dogs. 0123456789");
    aril__draw_text(d, 10, 85, 11, -1, 0x333333,
                    "val_accuracy 0.9123  (epoch 5/12) 98.7 % \xc3\xa9");
    const char *path = in_folder("letters.png");
    CHECK_INT(aril__drawing_save(d, "test", path, 2), ARIL_OK);
    free(take(path));
    aril__drawing_free(d);
    for (char c = '!'; c <= '~'; c++) {
        char one[2] = { c, '\0' };
        int64_t w, h, ink = 0;
        d = aril__drawing_new(30, 40);
        aril__draw_text(d, 5, 25, 20, -1, 0, one);
        uint8_t *p = aril__drawing_raster(d, 1, &w, &h);
        CHECK(p);
        for (int64_t i = 0; i < 3 * w * h; i++) ink += p[i] < 128;
        free(p);
        aril__drawing_free(d);
        CHECK_MSG(ink > 2, "'%c' is empty", c);
        CHECK_MSG(aril__text_width(one, 20) <= 16, "'%c' is too wide", c);
    }
    /* Accented letters are drawn without accents. */
    CHECK_NEAR(aril__text_width("\xc3\x89t\xc3\xa9 \xc3\xad", 20), aril__text_width("Ete i", 20),
               0);
}

TEST(invalid_arguments_are_rejected)
{
    ARIL_SCOPE;
    const double y[] = { 1, 2 };
    const aril_series series = { .name = "x", .n = 2, .y = y }, nameless = { .n = 2, .y = y };
    CHECK_INT(aril_draw_curves("x.gif", &series, 1, (aril_draw_opts){ 0 }), ARIL_ERR_ARG);
    CHECK(strstr(aril_error(), "x.gif"));
    aril_clear_error();
    CHECK_INT(aril_draw_curves("/nonexistent/x.png", &series, 1, (aril_draw_opts){ 0 }),
              ARIL_ERR_IO);
    aril_clear_error();
    CHECK_INT(aril_draw_curves("x.png", &nameless, 1, (aril_draw_opts){ 0 }), ARIL_ERR_ARG);
    aril_clear_error();
    CHECK_INT(aril_draw_curves("x.png", NULL, 0, (aril_draw_opts){ 0 }), ARIL_ERR_ARG);
    aril_clear_error();
    aril_tensor *t = aril_zeros(ARIL_SHAPE(2, 3), ARIL_F32, test_device());
    CHECK_INT(aril_draw_confusion("x.png", t, NULL, (aril_draw_opts){ 0 }), ARIL_ERR_SHAPE);
    aril_clear_error();
    CHECK_INT(aril_draw_sheet("x.png", t, NULL, 0, (aril_draw_opts){ 0 }), ARIL_ERR_SHAPE);
    aril_clear_error();
}

TEST(sizes_that_exceed_memory)
{
    const double y[] = { 1, 2 };
    const aril_series series = { .name = "x", .n = 2, .y = y };
    const aril_draw_opts wrong[] = { { .width = 1e9, .height = 1e9 },
                                     { .width = INFINITY },
                                     { .height = 3e18 },
                                     { .width = 4e4, .height = 4e4 } };
    for (int i = 0; i < 4; i++) {
        CHECK_INT(aril_draw_curves(i % 2 ? "x.svg" : "x.png", &series, 1, wrong[i]), ARIL_ERR_ARG);
        CHECK_MSG(strstr(aril_error(), "too large") != NULL, "%s", aril_error());
        aril_clear_error();
    }
}
