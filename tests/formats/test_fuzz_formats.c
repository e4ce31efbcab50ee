/* File readers against randomly corrupted files: each returns a value or an error, never crashes,
 * and allocates no more than the file justifies. Mutations come from a fixed seed; the sanitizers
 * see what the checks here cannot. */
#include "aril/aril.h"
#include "data/datum.h"
#include "files/bitmaps.inc"
#include "files/images.inc"
#include "formats/atomic_file.h"
#include "formats/gzip.h"
#include "formats/json.h"
#include "formats/lmdb.h"
#include "formats/npy.h"
#include "formats/image.h"
#include "formats/schemas.h"
#include "support/temp.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

static const unsigned char archive[] = {
#include "files/compressed.inc"
};

static uint64_t state;

static uint64_t draw(uint64_t below)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (state >> 33) % below;
}

/* A corrupted copy: bits, bytes and numbers changed, parts removed, duplicated or truncated. */
static void mutate(const unsigned char *from, size_t n, aril__bytes *to)
{
    static const unsigned char numbers[][4] = {
        { 0, 0, 0, 0 },
        { 0xff, 0xff, 0xff, 0xff },
        { 0xff, 0xff, 0xff, 0x7f },
        { 0x7f, 0xff, 0xff, 0xff },
        { 0, 0, 0, 0x80 },
        { 1, 0, 0, 0 },
    };
    aril__bytes_free(to);
    aril__bytes_add(to, from, n);
    for (uint64_t times = 1 + draw(4); times > 0 && to->n > 0; times--) {
        size_t at = draw(to->n), left = to->n - at;
        switch (draw(7)) {
        case 0: to->at[at] ^= (unsigned char)(1u << draw(8)); break;
        case 1: to->at[at] = (unsigned char)draw(256); break;
        case 2: memcpy(to->at + at, numbers[draw(6)], left < 4 ? left : 4); break;
        case 3: to->n = at; break;
        case 4: {
            size_t gone = 1 + draw(left < 16 ? left : 16);
            memmove(to->at + at, to->at + at + gone, left - gone);
            to->n -= gone;
            break;
        }
        case 5: {
            size_t more = 1 + draw(left < 16 ? left : 16);
            unsigned char part[16];
            memcpy(part, to->at + at, more);
            aril__bytes_add(to, NULL, more);
            memmove(to->at + at + more, to->at + at, left);
            memcpy(to->at + at, part, more);
            break;
        }
        default: { /* digits, as in text */
            to->at[at] = (unsigned char)"0123456789-{}[](),:\"'\n\\."[draw(25)];
            break;
        }
        }
    }
}

typedef bool parse_fn(const unsigned char *data, size_t size); /* true when parsing succeeded */

/* Runs a reader on corrupted copies. Each error has a message and one of the codes for bad
 * files. */
static void fuzz(const char *what, const unsigned char *file, size_t n, int rounds, parse_fn *parse)
{
    aril__bytes b = { 0 };
    int read = 0;
    state = 1;
    CHECK_MSG(parse(file, n) || aril_error_code() == ARIL_ERR_UNSUPPORTED,
              "%s: the file itself: %s", what, aril_error());
    aril_clear_error();
    int64_t live = aril_memory(aril_cpu()).live;
    for (int i = 0; i < rounds; i++) {
        ARIL_SCOPE;
        mutate(file, n, &b);
        aril_memory_reset_peak(aril_cpu());
        bool good = parse(b.at, b.n);
        read += good;
        aril_status code = aril_error_code();
        CHECK_MSG(good ? code == ARIL_OK : code != ARIL_OK && aril_error(), "%s: %d", what, i);
        CHECK_MSG(code == ARIL_OK || code == ARIL_ERR_FORMAT || code == ARIL_ERR_UNSUPPORTED ||
                      code == ARIL_ERR_SHAPE || code == ARIL_ERR_ARG || code == ARIL_ERR_MEMORY ||
                      code == ARIL_ERR_INDEX,
                  "%s: %d: %s", what, i, aril_error());
        CHECK_MSG(aril_memory(aril_cpu()).peak < live + (64 << 20), "%s: %d: %lld bytes were taken",
                  what, i, (long long)aril_memory(aril_cpu()).peak);
        aril_clear_error();
    }
    aril__bytes_free(&b);
    CHECK_MSG(read < rounds, "%s: nothing was refused", what);
}

/* ---- the readers ---- */

static bool parse_safetensors(const unsigned char *data, size_t size)
{
    aril_safetensors *f = aril_safetensors_open_memory(data, size);
    bool good = f && aril_safetensors_all(f);
    aril_safetensors_close(f);
    return good;
}

static bool parse_npy(const unsigned char *data, size_t size)
{
    ARIL_SCOPE;
    return aril_tensor_status(aril__npy_decode("test", data, size)) == ARIL_OK;
}

static bool parse_npz(const unsigned char *data, size_t size)
{
    ARIL_SCOPE;
    aril_npz *f = aril_npz_open_memory(data, size);
    bool good = f != NULL;
    for (int i = 0; i < aril_npz_count(f) && good; i++)
        good = aril_tensor_status(aril_npz_tensor(f, i)) == ARIL_OK;
    aril_npz_close(f);
    return good;
}

static bool parse_image(const unsigned char *data, size_t size)
{
    ARIL_SCOPE;
    aril_image_opts opts = { .channels = (int)draw(5),
                             .deep = draw(2),
                             .min_width = (int64_t)draw(20) };
    return aril_tensor_status(aril_image_decode(data, size, opts)) == ARIL_OK;
}

static bool some_region(void *ctx, int64_t width, int64_t height, aril__region *r)
{
    (void)ctx;
    r->x = (int64_t)draw((uint64_t)width);
    r->y = (int64_t)draw((uint64_t)height);
    r->width = 1 + (int64_t)draw((uint64_t)(width - r->x));
    r->height = 1 + (int64_t)draw((uint64_t)(height - r->y));
    r->to_width = 1 + (int64_t)draw(30);
    r->to_height = 1 + (int64_t)draw(30);
    return true;
}

static bool parse_region(const unsigned char *data, size_t size)
{
    ARIL_SCOPE;
    aril__image_want want = { .name = "test", .region = some_region };
    return aril_tensor_status(aril__image_decode(data, size, &want)) == ARIL_OK;
}

static bool parse_gzip(const unsigned char *data, size_t size)
{
    aril__bytes out = { 0 };
    aril_status status = aril__gunzip("test", "test", data, size, 1 << 24, &out);
    aril__bytes_free(&out);
    return status == ARIL_OK;
}

static bool parse_lmdb(const unsigned char *data, size_t size)
{
    aril__source s;
    if (aril__source_memory(&s, data, size) != ARIL_OK) return false;
    aril__lmdb *f = aril__lmdb_open(s);
    bool good = f != NULL;
    for (int64_t i = 0; good && i < aril__lmdb_count(f); i++) {
        aril__bytes b = { 0 };
        good = aril__lmdb_read(f, i, &b) == ARIL_OK;
        aril__bytes_free(&b);
    }
    aril__lmdb_close(f);
    return good;
}

/* For readers that only take files. */
static const char *as_file(const char *name, const unsigned char *data, size_t size)
{
    const char *path = temp_path(name);
    FILE *f = fopen(path, "wb");
    if (f) {
        if (size) fwrite(data, 1, size, f);
        fclose(f);
    }
    return path;
}

static bool parse_idx(const unsigned char *data, size_t size)
{
    ARIL_SCOPE;
    return aril_tensor_status(aril_idx_read(as_file("x.idx", data, size))) == ARIL_OK;
}

static bool all_samples(aril_dataset *d)
{
    bool good = d != NULL;
    for (int64_t i = 0; good && i < aril_dataset_size(d); i++) {
        ARIL_SCOPE;
        aril_sample s;
        good = aril_dataset_get(d, i, &s) == ARIL_OK;
    }
    aril_dataset_release(d);
    return good;
}

static bool parse_csv(const unsigned char *data, size_t size)
{
    return all_samples(aril_dataset_csv(as_file("x.csv", data, size),
                                        (aril_csv_opts){ .allow_missing = draw(2) }));
}

static bool parse_text(const unsigned char *data, size_t size)
{
    return all_samples(aril_dataset_text(as_file("x.txt", data, size),
                                         (aril_text_opts){ .words = draw(2), .length = 20 }));
}

static bool parse_datum(const unsigned char *data, size_t size)
{
    ARIL_SCOPE;
    aril_sample s = { 0 };
    return aril__datum_decode("test", data, size, &s) == ARIL_OK;
}

static bool parse_json(const unsigned char *data, size_t size)
{
    aril__json j = { .text = (const char *)data, .size = size };
    double number;
    for (bool more = aril__json_enter(&j, '{'); more; more = aril__json_more(&j, '}')) {
        free(aril__json_key(&j));
        if (aril__json_peek(&j) == '7') {
            aril__json_number(&j, &number);
        } else if (aril__json_peek(&j) == '"') {
            free(aril__json_string(&j));
        } else {
            aril__json_skip(&j);
        }
    }
    if (aril__json_end(&j)) return true;
    aril_idx_read(""); /* this reader reports errors its own way: record an error for it */
    return false;
}

/* ---- the files ---- */

static void fuzz_file(const char *what, const char *path, int rounds, parse_fn *parse)
{
    aril__bytes b = { 0 };
    CHECK_INT(aril__read_file("test", path, 0, &b), ARIL_OK);
    fuzz(what, b.at, b.n, rounds, parse);
    aril__bytes_free(&b);
}

TEST(fuzz_safetensors)
{
    ARIL_SCOPE;
    aril_tensor *at[] = { aril_zeros(ARIL_SHAPE(3, 4), ARIL_F32, aril_cpu()),
                          aril_zeros(ARIL_SHAPE(5), ARIL_BOOL, aril_cpu()),
                          aril_zeros(ARIL_SHAPE(2, 2, 2), ARIL_F4E2M1, aril_cpu()) };
    const char *name[] = { "layer.0.weight", "\xc3\xa9\"\n", "w" };
    aril_named three = { 3, at, name };
    aril_metadata meta = { 2, name, name };
    CHECK_INT(aril_safetensors_save(temp_path("x"), &three, &meta), ARIL_OK);
    fuzz_file("safetensors", temp_path("x"), 20000, parse_safetensors);
}

TEST(fuzz_numpy)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_zeros(ARIL_SHAPE(3, 4), ARIL_F32, aril_cpu());
    CHECK_INT(aril_npy_write(temp_path("x.npy"), x), ARIL_OK);
    fuzz_file("npy", temp_path("x.npy"), 20000, parse_npy);
    CHECK_INT(aril_npz_write(temp_path("x.npz"), ARIL_TENSORS(x, x)), ARIL_OK);
    fuzz_file("npz", temp_path("x.npz"), 10000, parse_npz);
    fuzz("compressed npz", archive, sizeof archive, 10000, parse_npz);
}

TEST(fuzz_images)
{
    static const struct {
        const char *name;
        const unsigned char *data;
        size_t size;
    } file[] = {
#define FILE_(x) { #x, x, sizeof x }
        FILE_(png_gray1), FILE_(png_gray16),       FILE_(png_gray_alpha),  FILE_(png_rgb16),
        FILE_(png_rgba),  FILE_(png_interlaced),   FILE_(png_palette),     FILE_(png_palette_alpha),
        FILE_(jpeg_gray), FILE_(jpeg_progressive), FILE_(jpeg_cmyk),       FILE_(bmp_gray1),
        FILE_(bmp_rgb),   FILE_(bmp_palette),      FILE_(bmp_palette_old), FILE_(bmp_rgba),
        FILE_(pgm_gray),  FILE_(pgm_gray16),       FILE_(ppm_rgb),         FILE_(ppm_rgb15),
        FILE_(ppm_rgb16),
    };
    for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
        fuzz(file[i].name, file[i].data, file[i].size, 1500, parse_image);
        fuzz(file[i].name, file[i].data, file[i].size, 1500, parse_region);
        if (test_failed()) return;
    }
}

TEST(fuzz_idx_and_gzip)
{
    static const unsigned char idx[] = "\0\0\x08\3\0\0\0\2\0\0\0\2\0\0\0\3abcdefghijkl";
    static const unsigned char gz[] = { 0x1f, 0x8b, 8,    0,    0,    0,    0,    0,    2,    3,
                                        0x4b, 0x4c, 0x4c, 0x4c, 0x4a, 0x4e, 0x49, 0x4d, 0x4b, 0x4c,
                                        0x4c, 0x4c, 0x4a, 0x4e, 0x49, 0x4d, 0x4b, 0 };
    fuzz("IDX", idx, sizeof idx - 1, 5000, parse_idx);
    state = 1;
    aril__bytes b = { 0 };
    for (int i = 0; i < 5000; i++) { /* the compressed stream is already broken */
        mutate(gz, sizeof gz, &b);
        parse_gzip(b.at, b.n);
        aril_clear_error();
    }
    aril__bytes_free(&b);
}

TEST(fuzz_tables_and_text)
{
    static const char csv[] = "a,b,\"c d\"\n1,2,x\n-3.5e2,4,\"y \"\"z\"\"\"\n5,6,x\n";
    static const char text[] =
        "The quick brown fox jumps over the lazy dog, h\xc3\xa9las! It's 1234.";
    static const char json[] = "{\"a\":[1,2.5e3,true,null],\"b\":{\"c\":\"\\u00e9\\n\"},\"d\":7}";
    fuzz("CSV", (const unsigned char *)csv, sizeof csv - 1, 5000, parse_csv);
    fuzz("text", (const unsigned char *)text, sizeof text - 1, 3000, parse_text);
    fuzz("JSON", (const unsigned char *)json, sizeof json - 1, 20000, parse_json);
}

/* A Datum [1,2,3] of bytes; without any, of floats. */
static void fuzz_datum(const char *what, bool encoded, const void *data, size_t n)
{
    aril__bytes b = { 0 };
    aril__message *m = aril__message_new(&aril__caffe_Datum);
    aril__message_set_int(m, "channels", 1);
    aril__message_set_int(m, "height", 2);
    aril__message_set_int(m, "width", 3);
    if (data)
        aril__message_set_bytes(m, "data", data, n);
    else
        aril__message_set_floats(m, "float_data", (const float[]){ 1, 2, 3, 4, 5, 6 }, 6);
    aril__message_set_int(m, "label", 7);
    if (encoded) aril__message_set_int(m, "encoded", 1);
    CHECK_INT(aril__message_write(m, &b), ARIL_OK);
    aril__message_free(m);
    fuzz(what, b.at, b.n, 10000, parse_datum);
    aril__bytes_free(&b);
}

TEST(fuzz_databases)
{
    ARIL_SCOPE;
    aril__lmdb_pair pair[200];
    char key[200][8];
    static const char value[3000] = "value";
    for (int i = 0; i < 200; i++) {
        snprintf(key[i], sizeof key[i], "%05d", i);
        pair[i] = (aril__lmdb_pair){ key[i], value, 5, i % 40 == 5 ? sizeof value : (size_t)i };
    }
    CHECK_INT(aril__lmdb_write(temp_path("data.mdb"), 200, pair), ARIL_OK);
    aril__bytes b = { 0 }, broken = { 0 };
    CHECK_INT(aril__read_file("test", temp_path("data.mdb"), 0, &b), ARIL_OK);
    CHECK(parse_lmdb(b.at, b.n));
    state = 1;
    int read = 0;
    for (int i = 0; i < 6000; i++) { /* most bytes are values: corrupt the rest more often */
        aril__bytes_free(&broken);
        aril__bytes_add(&broken, b.at, b.n);
        for (int k = 0; k < 3; k++) {
            size_t page = draw(b.n / 4096) * 4096;
            broken.at[page + draw(draw(2) ? 160 : 4096)] = (unsigned char)draw(256);
            unsigned char *offsets = broken.at + page + 16; /* nodes that overlap */
            for (uint64_t same = draw(4) ? 0 : draw(60); same > 0; same--)
                memcpy(offsets + 2 * draw(40), offsets + 2 * draw(40), 2);
        }
        if (draw(20) == 0) broken.n = draw(b.n);
        read += parse_lmdb(broken.at, broken.n);
        aril_clear_error();
    }
    CHECK(read < 6000);
    aril__bytes_free(&b);
    aril__bytes_free(&broken);

    fuzz_datum("Datum", false, "abcdef", 6);
    fuzz_datum("Datum of floats", false, NULL, 0);
    fuzz_datum("Datum of an image", true, png_rgba, sizeof png_rgba);
}
