/* Caffe's databases, and its data layers as loaders. */
#include "aril/aril.h"
#include "data/caffe/source.h"
#include "data/datum.h"
#include "formats/atomic_file.h"
#include "formats/lmdb.h"
#include "formats/schemas.h"
#include "support/temp.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- helpers ---- */

/* n images of c x h x w: their pixels have no pattern; label i. */
static unsigned char pixel(int64_t i, int64_t k)
{
    return (unsigned char)((i * 37 + k * k * 11 + i * k * 5) % 251);
}

static aril_dataset *images(int64_t n, int64_t c, int64_t h, int64_t w)
{
    ARIL_SCOPE;
    unsigned char *x = malloc((size_t)(n * c * h * w));
    int64_t *y = malloc((size_t)n * sizeof *y);
    for (int64_t i = 0; i < n; i++) {
        y[i] = i;
        for (int64_t k = 0; k < c * h * w; k++) x[i * c * h * w + k] = pixel(i, k);
    }
    aril_dataset *d = aril_dataset_images(aril_from(x, ARIL_SHAPE(n, c, h, w), ARIL_U8, aril_cpu()),
                                          aril_from(y, ARIL_SHAPE(n), ARIL_I64, aril_cpu()));
    free(x);
    free(y);
    return d;
}

static int64_t import(const char *folder, int64_t n, int64_t c, int64_t h, int64_t w,
                      aril_caffe_import_opts opts)
{
    aril_dataset *d = images(n, c, h, w);
    int64_t count = aril_caffe_import(d, folder, opts);
    aril_dataset_release(d);
    return count;
}

static aril__message *layer_of(const char *text)
{
    return aril__message_parse(&aril__caffe_LayerParameter, text, strlen(text),
                               (aril__message_opts){ .name = "a layer" });
}

/* Opens a layer; %s in its text is the path. */
typedef struct fed {
    aril__message *layer;
    aril_loader *loader;
} fed;

static fed feed(const char *format, const char *path, bool train, int workers)
{
    char text[2048];
    snprintf(text, sizeof text, format, path, path);
    fed f = { .layer = layer_of(text) };
    if (f.layer)
        f.loader = aril__caffe_source_open(
            f.layer, (aril__caffe_source_opts){ .train = train, .seed = 5, .workers = workers });
    return f;
}

static void feed_free(fed *f)
{
    aril_loader_free(f->loader);
    aril__message_free(f->layer);
}

static const char data_layer[] = "name: \"d\" type: \"Data\" top: \"data\" top: \"label\" "
                                 "data_param { source: \"%s\" batch_size: 4 backend: LMDB }";

/* ---- import ---- */

TEST(imported_records_are_those_of_caffe)
{
    const char *db = temp_path("db");
    CHECK_INT(import(db, 30, 3, 2, 2, (aril_caffe_import_opts){ 0 }), 30);
    aril_dataset *d = aril_dataset_lmdb(db);
    CHECK_MSG(d, "%s", aril_error());
    CHECK_INT(aril_dataset_size(d), 30);
    for (int64_t i = 0; i < 30; i++) {
        ARIL_SCOPE;
        aril_sample s = { 0 };
        char key[16];
        CHECK_INT(aril_dataset_get(d, i, &s), ARIL_OK);
        snprintf(key, sizeof key, "%08lld", (long long)i);
        CHECK_STR(s.name, key);
        CHECK_INT(aril_item_int(s.y), i);
        const unsigned char *x = aril_data(s.x);
        for (int64_t k = 0; k < 12; k++) /* channels are reversed: B, G, R */
            CHECK_INT(x[k], pixel(i, (2 - k / 4) * 4 + k % 4));
    }
    aril_dataset_release(d);
    /* CIFAR's own order and keys; the old database is replaced. */
    CHECK_INT(import(db, 3, 3, 2, 2, (aril_caffe_import_opts){ .rgb = true, .key_digits = 5 }), 3);
    d = aril_dataset_lmdb(db);
    ARIL_SCOPE;
    aril_sample s = { 0 };
    CHECK_INT(aril_dataset_get(d, 2, &s), ARIL_OK);
    CHECK_STR(s.name, "00002");
    CHECK_INT(((const unsigned char *)aril_data(s.x))[5], pixel(2, 5));
    aril_dataset_release(d);
}

TEST(floats_and_encoded_images_are_imported)
{
    ARIL_SCOPE;
    float x[8] = { 0.5f, -1, 2, 3, 4, 5, 6, 1e9f };
    int64_t y[2] = { -3, 7 };
    aril_dataset *d = aril_dataset_tensors(aril_from(x, ARIL_SHAPE(2, 4), ARIL_F32, aril_cpu()),
                                           aril_from(y, ARIL_SHAPE(2), ARIL_I64, aril_cpu()));
    CHECK_INT(aril_caffe_import(d, temp_path("floats"), (aril_caffe_import_opts){ 0 }), 2);
    aril_dataset_release(d);
    aril_sample s = { 0 };
    d = aril_dataset_lmdb(temp_path("floats"));
    CHECK_INT(aril_dataset_get(d, 1, &s), ARIL_OK);
    CHECK_INT(aril_item_int(s.y), 7);
    CHECK(memcmp(aril_data(s.x), x + 4, sizeof x / 2) == 0);
    aril_dataset_release(d);
    if (import(temp_path("png"), 2, 3, 5, 6, (aril_caffe_import_opts){ .encoded = "png" }) < 0)
        SKIP("%s", aril_error());
    fed f = feed(data_layer, temp_path("png"), true, 0);
    CHECK_MSG(f.loader, "%s", aril_error());
    aril_batch b;
    CHECK_INT(aril__caffe_source_next(f.loader, &b), ARIL_OK);
    const float *v = aril_data(b.x); /* decoded to B, G, R */
    for (int64_t k = 0; k < 90; k++) CHECK_INT(v[k], pixel(0, (2 - k / 30) * 30 + k % 30));
    feed_free(&f);
}

TEST(the_mean_is_that_of_all_images)
{
    ARIL_SCOPE;
    const char *db = temp_path("db"), *file = temp_path("mean.binaryproto");
    CHECK_INT(import(db, 9, 3, 4, 5, (aril_caffe_import_opts){ .rgb = true }), 9);
    CHECK_INT(aril_caffe_mean(db, file), ARIL_OK);
    aril_tensor *m = aril_caffe_blob_load(file);
    CHECK_INT(aril_numel(m), 60);
    const float *v = aril_data(m);
    for (int64_t k = 0; k < 60; k++) {
        double sum = 0;
        for (int64_t i = 0; i < 9; i++) sum += pixel(i, k);
        CHECK_NEAR(v[k], sum / 9, 1e-4);
    }
}

TEST(wrong_imports_are_errors)
{
    ARIL_SCOPE;
    const char *db = temp_path("db");
    CHECK_INT(aril_caffe_import(NULL, db, (aril_caffe_import_opts){ 0 }), ARIL_ERR_ARG);
    CHECK_INT(import(db, 2, 1, 2, 2, (aril_caffe_import_opts){ .encoded = "gif" }), ARIL_ERR_ARG);
    aril_clear_error();
    float x[4] = { 0 }, y[2] = { 0.5f, 1 };
    aril_dataset *d = aril_dataset_tensors(aril_from(x, ARIL_SHAPE(2, 2), ARIL_F32, aril_cpu()),
                                           aril_from(y, ARIL_SHAPE(2), ARIL_F32, aril_cpu()));
    CHECK_INT(aril_caffe_import(d, db, (aril_caffe_import_opts){ 0 }), ARIL_ERR_DTYPE);
    aril_dataset_release(d);
    aril_clear_error();
    CHECK_MSG(access(db, F_OK) != 0, "a failed import leaves a folder");
    CHECK_INT(aril_caffe_mean(temp_path("nothing"), temp_path("m")), ARIL_ERR_IO);
    aril_clear_error();
}

/* Images are stored as B, G, R, but those of CIFAR; encoded ones are decoded to R, G, B. */
TEST(samples_tell_the_order_of_their_channels)
{
    static const struct {
        int64_t channels;
        aril_caffe_import_opts opts;
        bool bgr;
    } cases[] = {
        { 3, { 0 }, true },
        { 3, { .rgb = true, .key_digits = 5 }, false },
        { 1, { 0 }, false },
        { 3, { .encoded = "png" }, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ARIL_SCOPE;
        aril_sample s = { 0 };
        char name[32];
        snprintf(name, sizeof name, "order%zu", i);
        CHECK_INT(import(temp_path(name), 1, cases[i].channels, 2, 2, cases[i].opts), 1);
        aril_dataset *d = aril_dataset_lmdb(temp_path(name));
        CHECK_INT(aril_dataset_get(d, 0, &s), ARIL_OK);
        CHECK_MSG(s.bgr == cases[i].bgr, "case %zu", i);
        aril_dataset_release(d);
    }
}

/* ---- the walk of a data layer ---- */

/* Batches of 4 over 10 records: the walk goes on across the end, also within a batch, and from any
 * position. */
TEST(batches_never_end)
{
    for (int workers = 0; workers < 3; workers += 2) {
        const char *db = temp_path("db");
        CHECK_INT(import(db, 10, 1, 2, 2, (aril_caffe_import_opts){ 0 }), 10);
        fed f = feed(data_layer, db, true, workers);
        CHECK_MSG(f.loader, "%s", aril_error());
        aril_loader_position at = { 0 };
        for (int64_t k = 0; k < 2500; k++) {
            ARIL_SCOPE;
            aril_batch b;
            if (k == 1030) at = aril_loader_tell(f.loader);
            CHECK_INT(aril__caffe_source_next(f.loader, &b), ARIL_OK);
            const float *label = aril_data(b.y), *x = aril_data(b.x);
            for (int64_t i = 0; i < 4; i++) {
                CHECK_INT(label[i], (4 * k + i) % 10);
                CHECK_INT(x[4 * i + 3], pixel((4 * k + i) % 10, 3));
            }
        }
        aril_batch b;
        CHECK_INT(aril_loader_seek(f.loader, at), ARIL_OK);
        CHECK_INT(aril__caffe_source_next(f.loader, &b), ARIL_OK);
        CHECK_INT(((const float *)aril_data(b.y))[0], 1030 * 4 % 10);
        feed_free(&f);
    }
}

TEST(shuffled_passes_have_each_record_once)
{
    const char *db = temp_path("db");
    CHECK_INT(import(db, 6, 1, 2, 2, (aril_caffe_import_opts){ 0 }), 6);
    fed f = feed("name: \"d\" type: \"Data\" top: \"data\" top: \"label\" data_param { source: "
                 "\"%s\" batch_size: 4 backend: LMDB shuffle: true rand_skip: 5 }",
                 db, true, 0);
    CHECK_MSG(f.loader, "%s", aril_error());
    int seen[6] = { 0 }, same = 0, before = -1;
    for (int k = 0; k < 3000; k++) {
        ARIL_SCOPE;
        aril_batch b;
        CHECK_INT(aril__caffe_source_next(f.loader, &b), ARIL_OK);
        const float *label = aril_data(b.y);
        for (int i = 0; i < 4; i++) seen[(int)label[i]]++;
        same += (int)label[0] == before + 1;
        before = (int)label[0];
    }
    for (int i = 0; i < 6; i++) CHECK_MSG(abs(seen[i] - 2000) <= 1, "%d: %d", i, seen[i]);
    CHECK(same < 1500);
    feed_free(&f);
}

/* ---- transform_param ---- */

TEST(images_are_cropped_mirrored_and_scaled)
{
    ARIL_SCOPE;
    const char *db = temp_path("db");
    enum { N = 5, C = 3, H = 7, W = 6, CROP = 4 };
    CHECK_INT(import(db, N, C, H, W, (aril_caffe_import_opts){ .rgb = true }), N);
    CHECK_INT(aril_caffe_mean(db, temp_path("mean.binaryproto")), ARIL_OK);
    aril_tensor *mean = aril_caffe_blob_load(temp_path("mean.binaryproto"));
    const float *m = aril_data(mean);
    char text[1024];
    snprintf(text, sizeof text,
             "name: \"d\" type: \"Data\" top: \"data\" top: \"label\" transform_param { scale: 0.5 "
             "mirror: true crop_size: 4 mean_file: \"%s\" } data_param { source: \"%%s\" "
             "batch_size: 4 backend: LMDB }",
             temp_path("mean.binaryproto"));
    for (int train = 0; train < 2; train++) {
        fed f = feed(text, db, train, 0);
        CHECK_MSG(f.loader, "%s", aril_error());
        int mirrored = 0, places[4][3] = { { 0 } };
        for (int k = 0; k < 200; k++) {
            aril_batch b;
            CHECK_INT(aril__caffe_source_next(f.loader, &b), ARIL_OK);
            const float *x = aril_data(b.x), *label = aril_data(b.y);
            for (int i = 0; i < 4; i++, x += C * CROP * CROP) {
                /* Find the only crop that gives these values. */
                int found = 0;
                for (int top = 0; top <= H - CROP; top++)
                    for (int left = 0; left <= W - CROP; left++)
                        for (int flip = 0; flip < 2; flip++) {
                            bool same = true;
                            for (int e = 0; e < C * CROP * CROP && same; e++) {
                                int c = e / (CROP * CROP), row = e / CROP % CROP, col = e % CROP;
                                int from =
                                    (c * H + top + row) * W + left + (flip ? CROP - 1 - col : col);
                                float want =
                                    ((float)pixel((int64_t)label[i], from) - m[from]) * 0.5f;
                                same = x[e] == want;
                            }
                            if (!same) continue;
                            found++;
                            places[top][left]++;
                            mirrored += flip;
                        }
                CHECK_INT(found, 1);
            }
        }
        CHECK_MSG(mirrored > 250 && mirrored < 550, "%d of 800", mirrored);
        for (int p = 0; p < 12; p++) {
            int n = places[p / 3][p % 3];
            if (train)
                CHECK_MSG(n > 20, "crop %d: %d", p, n);
            else /* (7 - 4) / 2, (6 - 4) / 2 */
                CHECK_INT(n, p == 1 * 3 + 1 ? 800 : 0);
        }
        feed_free(&f);
    }
}

TEST(wrong_data_layers_are_errors)
{
    const char *db = temp_path("db");
    CHECK_INT(import(db, 2, 3, 4, 4, (aril_caffe_import_opts){ 0 }), 2);
    static const struct {
        const char *format, *error;
    } wrong[] = {
        { "name: \"d\" type: \"Data\" top: \"x\" data_param { source: \"%s\" batch_size: 0 }",
          "expected a batch_size from 1" },
        { "name: \"d\" type: \"Data\" top: \"x\" data_param { source: \"%s_\" batch_size: 1 }",
          "there is no LMDB" },
        { "name: \"d\" type: \"Data\" top: \"x\" data_param { source: \"%s_leveldb\" batch_size: "
          "1 }",
          "is a LevelDB, which Aril does not read" },
        { "name: \"d\" type: \"Data\" top: \"x\" transform_param { mean_value: 1 mean_file: \"a\" "
          "} data_param { source: \"%s\" batch_size: 1 }",
          "both mean_file and mean_value" },
        { "name: \"d\" type: \"Data\" top: \"x\" transform_param { mean_file: \"none\" } "
          "data_param "
          "{ source: \"%s\" batch_size: 1 }",
          "layer 'd' (Data) at line 1: there is no mean file none" },
        { "name: \"d\" type: \"Data\" top: \"x\" transform_param { force_gray: true force_color: "
          "true } data_param { source: \"%s\" batch_size: 1 }",
          "both force_color and force_gray" },
        { "name: \"d\" type: \"ImageData\" top: \"x\" image_data_param { source: \"%s\" "
          "batch_size: 1 new_height: 3 }",
          "new_height and new_width" },
        { "name: \"d\" type: \"Data\" top: \"x\" transform_param { crop_size: 5 } data_param { "
          "source: \"%s\" batch_size: 1 }",
          "crop_size 5 is larger" },
        { "name: \"d\" type: \"Input\" top: \"x\" input_param { } # %s", "not read from files" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fed f = feed(wrong[i].format, db, true, 0);
        CHECK(!f.loader);
        CHECK_MSG(strstr(aril_error(), wrong[i].error), "%zu: %s", i, aril_error());
        aril_clear_error();
        feed_free(&f);
    }
    static const struct {
        const char *format, *error;
    } late[] = {
        { "name: \"d\" type: \"Data\" top: \"x\" transform_param { mean_value: 1 mean_value: 2 } "
          "data_param { source: \"%s\" batch_size: 1 }",
          "2 values of mean_value for the 3 channels" },
    };
    for (size_t i = 0; i < sizeof late / sizeof *late; i++) {
        fed f = feed(late[i].format, db, true, 0);
        aril_batch b;
        CHECK(f.loader && aril__caffe_source_next(f.loader, &b) < 0);
        CHECK_MSG(strstr(aril_error(), late[i].error), "%zu: %s", i, aril_error());
        aril_clear_error();
        feed_free(&f);
    }
}

/* ---- lists of images ---- */

static bool write_images(const char *list)
{
    ARIL_SCOPE;
    FILE *f = fopen(list, "w");
    for (int i = 0; i < 5; i++) {
        char name[64], path[4200];
        snprintf(name, sizeof name, "image %d.png", i);
        snprintf(path, sizeof path, "%s/%s", temp_path(""), name);
        unsigned char x[3 * 6 * 8];
        for (int k = 0; k < 144; k++) x[k] = (unsigned char)(i * 20 + k / 48);
        if (aril_image_write(path, aril_from(x, ARIL_SHAPE(3, 6, 8), ARIL_U8, aril_cpu()),
                             (aril_image_write_opts){ 0 }) != ARIL_OK)
            break;
        fprintf(f, "%s %d\r\n\n", name, 10 + i);
    }
    fclose(f);
    return aril_ok();
}

TEST(image_lists_are_read)
{
    char list[4096];
    snprintf(list, sizeof list, "%s", temp_path("list.txt"));
    if (!write_images(list)) SKIP("%s", aril_error());
    char root[4096];
    snprintf(root, sizeof root, "%s", temp_path(""));
    aril_caffe_list_opts opts = { .root = root, .height = 3, .width = 4 };
    aril_dataset *d = aril_caffe_image_list(list, opts);
    CHECK_MSG(d, "%s", aril_error());
    CHECK_INT(aril_dataset_size(d), 5);
    CHECK_INT(aril_caffe_import(d, temp_path("db"), (aril_caffe_import_opts){ .name_keys = true }),
              5);
    aril_dataset_release(d);
    d = aril_dataset_lmdb(temp_path("db"));
    ARIL_SCOPE;
    aril_sample s = { 0 };
    CHECK_INT(aril_dataset_get(d, 3, &s), ARIL_OK);
    CHECK_STR(s.name, "00000003_image 3.png");
    CHECK_INT(aril_item_int(s.y), 13);
    CHECK_INT(aril_size(s.x, 1), 3);
    CHECK_INT(((const unsigned char *)aril_data(s.x))[0], 62);
    aril_dataset_release(d);
    opts.shuffle = opts.gray = true;
    d = aril_caffe_image_list(list, opts);
    int seen = 0;
    for (int i = 0; i < 5; i++) {
        CHECK_INT(aril_dataset_get(d, i, &s), ARIL_OK);
        CHECK_INT(aril_size(s.x, 0), 1);
        seen |= 1 << (aril_item_int(s.y) - 10);
    }
    CHECK_INT(seen, 31);
    aril_dataset_release(d);
}

/* Another import makes the database in the meantime. */
static void import_too(const char *why, void *ctx)
{
    (void)why;
    *(int64_t *)ctx = import(temp_path("db"), 3, 1, 2, 2, (aril_caffe_import_opts){ 0 });
}

TEST(two_imports_do_not_replace_each_other)
{
    char list[4096];
    snprintf(list, sizeof list, "%s", temp_path("list.txt"));
    if (!write_images(list)) SKIP("%s", aril_error());
    CHECK_INT(remove(temp_path("image 1.png")), 0);
    aril_dataset *d = aril_caffe_image_list(list, (aril_caffe_list_opts){ .root = temp_path("") });
    int64_t other = 0;
    aril_caffe_import_opts opts = { .skipped = import_too, .ctx = &other, .only_new = true };
    CHECK_INT(aril_caffe_import(d, temp_path("db"), opts), ARIL_ERR_IO);
    CHECK_MSG(strstr(aril_error(), "cannot create ") && strstr(aril_error(), "File exists"), "%s",
              aril_error());
    aril_clear_error();
    CHECK_INT(other, 3);
    CHECK_STR(files_in(temp_path("db")), "data.mdb ");
    CHECK_INT(aril_caffe_import(d, temp_path("db"), opts), ARIL_ERR_IO);
    CHECK_MSG(strstr(aril_error(), "is a database already"), "%s", aril_error());
    aril_clear_error();
    CHECK_INT(aril_caffe_import(d, temp_path("new"), opts), 4);
    aril_dataset_release(d);
}

static void count_skipped(const char *why, void *ctx)
{
    *(int *)ctx += strstr(why, "image 1.png") != NULL;
}

/* As by convert_imageset: the others keep their numbers. In a data layer it is an error. */
/* As OpenCV reads them: turned as EXIF says, and BMP too. */
TEST(image_lists_have_upright_images_and_bitmaps)
{
    ARIL_SCOPE;
    static const char bmp[] = "BM\x3a\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\1\0\0\0\1\0\0\0\1\0\x18"
                              "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1\2\3\0";
    static const char exif[] =
        "\xff\xe1\0\x22"
        "Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\6\0\0\0\0\0\0\0";
    char list[4096];
    snprintf(list, sizeof list, "%s", temp_path("turned.txt"));
    CHECK_INT(aril__file_replace(temp_path("a.bmp"), bmp, sizeof bmp - 1), ARIL_OK);
    CHECK_INT(aril__file_replace(list, "a.bmp 0\nturned.jpg 1\n", 21), ARIL_OK);
    aril_tensor *x = aril_zeros(ARIL_SHAPE(3, 8, 24), ARIL_U8, aril_cpu());
    bool jpeg = aril_image_write(temp_path("plain.jpg"), x, (aril_image_write_opts){ 0 }) == 0;
    aril__bytes b = { 0 }, turned = { 0 };
    if (jpeg) {
        CHECK_INT(aril__read_file("image", temp_path("plain.jpg"), 0, &b), ARIL_OK);
        aril__bytes_add(&turned, b.at, 2);
        aril__bytes_add(&turned, exif, 36);
        aril__bytes_add(&turned, b.at + 2, b.n - 2);
        CHECK_INT(aril__file_replace(temp_path("turned.jpg"), turned.at, turned.n), ARIL_OK);
        aril__bytes_free(&b);
        aril__bytes_free(&turned);
    }
    aril_clear_error();
    aril_dataset *d = aril_caffe_image_list(list, (aril_caffe_list_opts){ .root = temp_path("") });
    CHECK_MSG(d, "%s", aril_error());
    aril_sample s = { 0 };
    CHECK_MSG(aril_dataset_get(d, 0, &s) == ARIL_OK, "%s", aril_error());
    CHECK_INT(aril_item_int(aril_select(s.x, 0, 0)), 3);
    CHECK_INT(aril_item_int(aril_select(s.x, 0, 2)), 1);
    if (jpeg) {
        CHECK_MSG(aril_dataset_get(d, 1, &s) == ARIL_OK, "%s", aril_error());
        CHECK_INT(aril_size(s.x, 1), 24);
        CHECK_INT(aril_size(s.x, 2), 8);
    }
    aril_dataset_release(d);
}

TEST(unreadable_images_may_be_left_out)
{
    char list[4096], missing[4096], text[8300];
    snprintf(list, sizeof list, "%s", temp_path("list.txt"));
    snprintf(missing, sizeof missing, "%s", temp_path("image 1.png"));
    if (!write_images(list)) SKIP("%s", aril_error());
    CHECK_INT(remove(missing), 0);
    aril_dataset *d = aril_caffe_image_list(list, (aril_caffe_list_opts){ .root = temp_path("") });
    int n = 0;
    aril_caffe_import_opts opts = { .skipped = count_skipped, .ctx = &n, .same_shape = true };
    CHECK_INT(aril_caffe_import(d, temp_path("db"), opts), 4);
    CHECK_MSG(aril_ok() && n == 1, "%d: %s", n, aril_error());
    CHECK(aril_caffe_import(d, temp_path("strict"), (aril_caffe_import_opts){ 0 }) < 0);
    CHECK_MSG(strstr(aril_error(), "image 1.png"), "%s", aril_error());
    aril_clear_error();
    aril_dataset_release(d);
    d = aril_dataset_lmdb(temp_path("db"));
    ARIL_SCOPE;
    aril_sample s = { 0 };
    CHECK_INT(aril_dataset_get(d, 1, &s), ARIL_OK);
    CHECK_STR(s.name, "00000002");
    aril_dataset_release(d);

    snprintf(text, sizeof text,
             "name: \"d\" type: \"ImageData\" top: \"data\" image_data_param { source: \"%s\" "
             "root_folder: \"%s/\" batch_size: 5 }",
             list, temp_path(""));
    aril__message *layer = layer_of(text);
    for (int workers = 0; workers < 2; workers++) {
        aril_batch b;
        aril_loader *l = aril__caffe_source_open(
            layer, (aril__caffe_source_opts){ .file = "a.prototxt", .workers = workers });
        CHECK_MSG(l && aril__caffe_source_next(l, &b) < 0, "%s", aril_error());
        CHECK_MSG(strstr(aril_error(), "a.prototxt: layer 'd' (ImageData) at line 1: sample 1 ("),
                  "%s", aril_error());
        aril_clear_error();
        aril_loader_free(l);
    }
    aril__message_free(layer);
}

TEST(image_data_layers_read_lists)
{
    char list[4096];
    snprintf(list, sizeof list, "%s", temp_path("list.txt"));
    if (!write_images(list)) SKIP("%s", aril_error());
    char text[1024];
    snprintf(text, sizeof text,
             "name: \"d\" type: \"ImageData\" top: \"data\" top: \"label\" transform_param { "
             "mean_value: 1 } image_data_param { source: \"%%s\" batch_size: 3 new_height: 3 "
             "new_width: 4 root_folder: \"%s/\" }",
             temp_path(""));
    fed f = feed(text, list, true, 0);
    CHECK_MSG(f.loader, "%s", aril_error());
    for (int k = 0; k < 7; k++) {
        ARIL_SCOPE;
        aril_batch b;
        CHECK_MSG(aril__caffe_source_next(f.loader, &b) == ARIL_OK, "%s", aril_error());
        CHECK_INT(aril_numel(b.x), 3 * 3 * 3 * 4);
        const float *label = aril_data(b.y), *x = aril_data(b.x);
        for (int i = 0; i < 3; i++) {
            int n = (3 * k + i) % 5;
            CHECK_INT(label[i], 10 + n);
            CHECK_INT(x[i * 36], n * 20 + 2 - 1); /* blue first */
        }
    }
    feed_free(&f);
    /* Noticed before there is memory for the result. */
    snprintf(text, sizeof text,
             "name: \"d\" type: \"ImageData\" top: \"data\" transform_param { crop_size: 1000000 } "
             "image_data_param { source: \"%%s\" batch_size: 3 root_folder: \"%s/\" }",
             temp_path(""));
    f = feed(text, list, true, 0);
    aril_batch b;
    CHECK(f.loader && aril__caffe_source_next(f.loader, &b) < 0);
    CHECK_MSG(strstr(aril_error(), "crop_size 1000000 is larger than the image"), "%s",
              aril_error());
    aril_clear_error();
    feed_free(&f);
}

/* Without root_folder, paths of a list are absolute, or start where those of the net do. */
TEST(image_lists_are_found_from_the_root)
{
    char list[4096], text[4400];
    snprintf(list, sizeof list, "%s", temp_path("list.txt"));
    if (!write_images(list)) SKIP("%s", aril_error());
    snprintf(text, sizeof text, "%s/image 2.png 1\nimage 2.png 2\n", temp_path(""));
    CHECK_INT(aril__file_replace(list, text, strlen(text)), ARIL_OK);
    aril__message *layer =
        layer_of("name: \"d\" type: \"ImageData\" top: \"data\" top: \"label\" image_data_param { "
                 "source: \"list.txt\" batch_size: 2 }");
    aril_loader *l =
        aril__caffe_source_open(layer, (aril__caffe_source_opts){ .root = temp_path("") });
    aril_batch b;
    CHECK_MSG(l && aril__caffe_source_next(l, &b) == ARIL_OK, "%s", aril_error());
    CHECK_INT(((const float *)aril_data(b.x))[0], 42);
    CHECK_INT(((const float *)aril_data(b.x))[3 * 6 * 8], 42);
    aril_loader_free(l);
    aril__message_free(layer);
}

TEST(wrong_lists_are_errors)
{
    static const char *const wrong[] = { "", "a.png\n", "a.png x\n", "a.png 99999999999\n",
                                         " 3\n" };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *list = temp_path("list.txt");
        CHECK_INT(aril__file_replace(list, wrong[i], strlen(wrong[i])), ARIL_OK);
        CHECK(!aril_caffe_image_list(list, (aril_caffe_list_opts){ 0 }));
        CHECK_MSG(aril_error_code() == ARIL_ERR_FORMAT, "%zu: %s", i, aril_error());
        aril_clear_error();
    }
}

/* ---- HDF5 ---- */

TEST(hdf5_layers_walk_through_files)
{
    const char *list = temp_path("list.txt");
    FILE *out = fopen(list, "w");
    for (int f = 0; f < 3; f++) {
        ARIL_SCOPE;
        float data[8], label[4];
        int64_t n = f + 2;
        for (int i = 0; i < n; i++) {
            label[i] = (float)(10 * f + i);
            data[2 * i] = label[i] + 0.5f;
            data[2 * i + 1] = -label[i];
        }
        char path[4200];
        snprintf(path, sizeof path, "%s/part%d.h5", temp_path(""), f);
        aril_tensor *t[] = { aril_from(data, ARIL_SHAPE(n, 2), ARIL_F32, aril_cpu()),
                             aril_from(label, ARIL_SHAPE(n), ARIL_F32, aril_cpu()) };
        const char *names[] = { "data", "label" };
        if (aril_hdf5_write(path, &(aril_named){ .n = 2, .at = t, .name = names }) != ARIL_OK) {
            fclose(out);
            SKIP("%s", aril_error());
        }
        fprintf(out, "%s\n", path);
    }
    fclose(out);
    static const int order[] = { 0, 1, 10, 11, 12, 20, 21, 22, 23 };
    static const char format[] =
        "name: \"d\" type: \"HDF5Data\" top: \"data\" top: \"label\" hdf5_data_param { source: "
        "\"%s\" batch_size: 4 }";
    fed f = feed(format, list, true, 0);
    CHECK_MSG(f.loader, "%s", aril_error());
    for (int k = 0; k < 20; k++) {
        ARIL_SCOPE;
        aril_batch b;
        CHECK_MSG(aril__caffe_source_next(f.loader, &b) == ARIL_OK, "%s", aril_error());
        const float *x = aril_data(b.x), *y = aril_data(b.y);
        for (int i = 0; i < 4; i++) {
            CHECK_INT(y[i], order[(4 * k + i) % 9]);
            CHECK_NEAR(x[2 * i], y[i] + 0.5, 0);
        }
    }
    feed_free(&f);
    f = feed("name: \"d\" type: \"HDF5Data\" top: \"label\" hdf5_data_param { source: \"%s\" "
             "batch_size: 9 shuffle: true }",
             list, true, 2);
    CHECK_MSG(f.loader, "%s", aril_error());
    int firsts = 0;
    for (int k = 0; k < 30; k++) { /* a file at a time, each sample once */
        ARIL_SCOPE;
        aril_batch b;
        CHECK_INT(aril__caffe_source_next(f.loader, &b), ARIL_OK);
        const float *y = aril_data(b.x);
        int sum = 0, changes = 0;
        for (int i = 0; i < 9; i++) {
            sum += (int)y[i];
            changes += i && (int)y[i] / 10 != (int)y[i - 1] / 10;
        }
        CHECK_INT(sum, 120);
        CHECK_INT(changes, 2);
        firsts |= 1 << (int)y[0] / 10;
    }
    CHECK_INT(firsts, 7);
    feed_free(&f);
}

/* ---- hostile databases ---- */

TEST(damaged_databases_are_errors)
{
    const char *db = temp_path("db");
    CHECK_INT(import(db, 40, 1, 6, 6, (aril_caffe_import_opts){ 0 }), 40);
    char path[4200];
    snprintf(path, sizeof path, "%s/data.mdb", db);
    aril__bytes good = { 0 };
    CHECK_INT(aril__read_file("LMDB", path, 0, &good), ARIL_OK);
    uint64_t random = 88172645463325252u;
    for (int k = 0; k < 300; k++) {
        aril__bytes bad = { 0 };
        aril__bytes_add(&bad, good.at, good.n);
        for (int j = 0; j < 1 + k % 4; j++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            bad.at[random % good.n] = (unsigned char)(random >> 40);
        }
        CHECK_INT(aril__file_replace(path, bad.at, k % 5 ? bad.n : random % bad.n), ARIL_OK);
        aril__bytes_free(&bad);
        ARIL_SCOPE;
        fed f = feed(data_layer, db, true, 0);
        aril_batch b;
        for (int i = 0; f.loader && i < 10; i++)
            if (aril__caffe_source_next(f.loader, &b) < 0) break;
        feed_free(&f);
        aril_clear_error();
    }
    aril__bytes_free(&good);
}
