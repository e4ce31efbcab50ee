/* Datasets in LMDB and HDF5 files. */
#include "aril/aril.h"
#include "formats/atomic_file.h"
#include "formats/lmdb.h"
#include "formats/schemas.h"
#include "support/device.h"
#include "support/compare.h"
#include "support/temp.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- LMDB ---- */

static aril__lmdb *open_lmdb(const char *path)
{
    aril__source s;
    return aril__source_open(&s, "LMDB", path) == ARIL_OK ? aril__lmdb_open(s) : NULL;
}

/* The value of pair i: widely varying sizes, known bytes. */
static size_t value_size(int64_t i)
{
    return i % 50 == 7 ? (size_t)(i * 37 % 20000) : (size_t)(i * 7 % 60);
}

static unsigned char value_byte(int64_t i, size_t k)
{
    return (unsigned char)((size_t)i * 31 + k);
}

static aril_status write_many(const char *path, int64_t n)
{
    aril__lmdb_pair *pair = calloc((size_t)n + 1, sizeof *pair);
    char(*key)[24] = calloc((size_t)n + 1, sizeof *key);
    for (int64_t i = 0; i < n; i++) {
        snprintf(key[i], sizeof key[i], "%08lld", (long long)i);
        unsigned char *value = malloc(value_size(i) + 1);
        for (size_t k = 0; k < value_size(i); k++) value[k] = value_byte(i, k);
        pair[i] = (aril__lmdb_pair){ key[i], value, 8, value_size(i) };
    }
    aril_status status = aril__lmdb_write(path, n, pair);
    for (int64_t i = 0; i < n; i++) free((void *)(uintptr_t)pair[i].value);
    free(pair);
    free(key);
    return status;
}

TEST(lmdb_round_trip)
{
    static const int64_t sizes[] = { 0, 1, 40, 500, 30000 };
    const char *path = temp_path("data.mdb");
    for (int s = 0; s < 5; s++) {
        CHECK_INT(write_many(path, sizes[s]), ARIL_OK);
        aril__lmdb *f = open_lmdb(path);
        CHECK_MSG(f, "%s", aril_error());
        CHECK_INT(aril__lmdb_count(f), sizes[s]);
        for (int64_t i = 0; i < sizes[s]; i++) {
            char key[24];
            aril__bytes b = { 0 };
            snprintf(key, sizeof key, "%08lld", (long long)i);
            CHECK_STR(aril__lmdb_key(f, i), key);
            CHECK_INT(aril__lmdb_read(f, i, &b), ARIL_OK);
            CHECK_INT(b.n, value_size(i));
            for (size_t k = 0; k < b.n; k++)
                if (b.at[k] != value_byte(i, k))
                    CHECK_MSG(false, "value %lld, byte %zu", (long long)i, k);
            aril__bytes_free(&b);
        }
        aril__lmdb_close(f);
        CHECK_INT(temp_count(), 1);
    }
    aril__lmdb_pair pair[] = { { "b", "", 1, 0 }, { "a", "", 1, 0 } };
    CHECK_INT(aril__lmdb_write(path, 2, pair), ARIL_ERR_ARG);
    aril_clear_error();
}

TEST(malformed_lmdb)
{
    const char *path = temp_path("data.mdb");
    CHECK_INT(write_many(path, 300), ARIL_OK);
    aril__bytes b = { 0 };
    CHECK_INT(aril__read_file("test", path, 0, &b), ARIL_OK);
    static const size_t cuts[] = { 0, 100, 4096, 5000, 8192, 20000 };
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        CHECK_INT(aril__file_replace(path, b.at, cuts[i]), ARIL_OK);
        CHECK(!open_lmdb(path));
        CHECK_INT(aril_error_code(), ARIL_ERR_FORMAT);
        aril_clear_error();
    }
    memset(b.at + 16, 0, 4);
    CHECK_INT(aril__file_replace(path, b.at, b.n), ARIL_OK);
    CHECK(!open_lmdb(path));
    CHECK(strstr(aril_error(), "does not begin as one"));
    aril_clear_error();
    aril__bytes_free(&b);
    CHECK(!aril_dataset_lmdb("/no/such"));
    CHECK_INT(aril_error_code(), ARIL_ERR_IO);
    aril_clear_error();
}

/* Every node of a page, or every large value, at the same offset: a few kilobytes would expand to
 * megabytes of keys, or gigabytes of values. */
TEST(lmdb_with_overlapping_nodes_or_values)
{
    const char *path = temp_path("data.mdb");
    CHECK_INT(write_many(path, 60), ARIL_OK); /* one leaf, and values of 7 and 57 on others */
    aril__bytes b = { 0 };
    CHECK_INT(aril__read_file("test", path, 0, &b), ARIL_OK);
    size_t leaf = 0;
    for (size_t p = 2 * 4096; p < b.n; p += 4096)
        if (b.at[p + 10] == 2) leaf = p;
    CHECK(leaf > 0);
    unsigned char *offsets = b.at + leaf + 16;
    const size_t nodes = (aril__le16(b.at + leaf + 12) - 16u) / 2;
    CHECK(nodes >= 50);
    aril__bytes same = { 0 };
    aril__bytes_add(&same, b.at, b.n);
    for (size_t i = 0; i < nodes; i++) /* every entry is the largest node */
        memcpy(same.at + leaf + 16 + 2 * i, offsets + 2 * 33, 2);
    CHECK_INT(aril__file_replace(path, same.at, same.n), ARIL_OK);
    CHECK(!open_lmdb(path));
    CHECK_MSG(strstr(aril_error(), "nodes overlap"), "%s", aril_error());
    aril_clear_error();
    memcpy(same.at, b.at, b.n);
    for (size_t i = 0; i < nodes; i++) { /* all values become large ones on the last page */
        unsigned char *node = same.at + leaf + aril__le16(offsets + 2 * i);
        if (aril__le16(node) < 8) continue;
        aril__put_le16(node, 4000);
        aril__put_le16(node + 4, 1);
        aril__put_le64(node + 8 + aril__le16(node + 6), b.n / 4096 - 1);
    }
    CHECK_INT(aril__file_replace(path, same.at, same.n), ARIL_OK);
    CHECK(!open_lmdb(path));
    CHECK_MSG(strstr(aril_error(), "values overlap"), "%s", aril_error());
    aril_clear_error();
    aril__bytes_free(&same);
    aril__bytes_free(&b);
}

static aril__message *new_datum(int64_t channels, int64_t height, int64_t width)
{
    aril__message *m = aril__message_new(&aril__caffe_Datum);
    aril__message_set_int(m, "channels", channels);
    aril__message_set_int(m, "height", height);
    aril__message_set_int(m, "width", width);
    return m;
}

static void write_datum(aril__message *m, aril__bytes *to)
{
    CHECK_INT(aril__message_write(m, to), ARIL_OK);
    aril__message_free(m);
}

/* A Datum of raw bytes, of floats, or of an encoded image. */
static void put_datum(aril__bytes *p, int64_t label, int kind)
{
    ARIL_SCOPE;
    unsigned char raw[24];
    float real[24];
    for (int i = 0; i < 24; i++) {
        raw[i] = (unsigned char)(i * 10);
        real[i] = (float)i / 2;
    }
    aril__message *m = new_datum(2, 3, 4);
    if (kind == 0) aril__message_set_bytes(m, "data", raw, sizeof raw);
    if (kind == 1) aril__message_set_floats(m, "float_data", real, 24);
    aril__message_set_int(m, "label", label);
    if (kind == 2) {
        aril__bytes b = { 0 };
        aril_tensor *x = aril_full(ARIL_SHAPE(3, 5, 6), 77, ARIL_U8, test_device());
        aril_image_write(temp_path("x.png"), x, (aril_image_write_opts){ 0 });
        aril__read_file("test", temp_path("x.png"), 0, &b);
        aril__message_set_bytes(m, "data", b.at, b.n);
        aril__message_set_int(m, "encoded", 1);
        aril__bytes_free(&b);
    }
    write_datum(m, p);
}

static aril_status write_datums(const char *path, const aril__bytes *p, int n)
{
    char key[8][16];
    aril__lmdb_pair pair[8];
    for (int i = 0; i < n; i++) {
        snprintf(key[i], sizeof key[i], "%05d", i);
        pair[i] = (aril__lmdb_pair){ key[i], p[i].at, 5, p[i].n };
    }
    return aril__lmdb_write(path, n, pair);
}

TEST(caffe_datum)
{
    ARIL_SCOPE;
    CHECK(mkdir(temp_path("set"), 0777) == 0 &&
          mkdir(temp_path("set/mnist_train_lmdb"), 0777) == 0);
    aril__bytes p[3] = { 0 };
    for (int i = 0; i < 3; i++) put_datum(&p[i], 7 + i, i);
    CHECK_INT(write_datums(temp_path("set/mnist_train_lmdb/data.mdb"), p, 3), ARIL_OK);
    aril_dataset *d = aril_dataset_open(temp_path("set"), "train");
    CHECK_MSG(d, "%s", aril_error());
    CHECK_INT(aril_dataset_size(d), 3);
    aril_sample s;
    CHECK_INT(aril_dataset_get(d, 0, &s), ARIL_OK);
    CHECK_STR(s.name, "00000");
    CHECK_INT(aril_item_int(s.y), 7);
    CHECK_INT(aril_dtype_of(s.x), ARIL_U8);
    CHECK_INT(aril_size(s.x, 0), 2);
    CHECK_INT(aril_size(s.x, 1), 3);
    CHECK_INT(aril_item_int(aril_select(aril_select(aril_select(s.x, 0, 1), 0, 2), 0, 3)), 230);
    CHECK_INT(aril_dataset_get(d, 1, &s), ARIL_OK);
    CHECK_INT(aril_dtype_of(s.x), ARIL_F32);
    CHECK_NEAR(aril_item(aril_amax(s.x, ARIL_ALL)), 11.5, 0);
    aril_status status = aril_dataset_get(d, 2, &s);
    if (status != ARIL_ERR_UNSUPPORTED) { /* built with libpng */
        CHECK_INT(status, ARIL_OK);
        CHECK_INT(aril_size(s.x, 2), 6);
        CHECK_INT(aril_item_int(s.y), 9);
    }
    aril_clear_error();
    aril_dataset_release(d);
    CHECK(!aril_dataset_open(temp_path("set/mnist_train_lmdb"), "test"));
    aril_clear_error();
    for (int i = 0; i < 3; i++) aril__bytes_free(&p[i]);
}

TEST(malformed_caffe_datum)
{
    aril__bytes p[4] = { 0 };
    put_datum(&p[0], 1, 0);
    p[0].n -= 10; /* truncated */
    aril__message *m = new_datum(100, 100, 100);
    aril__message_set_bytes(m, "data", "too little", 10);
    write_datum(m, &p[1]);
    write_datum(new_datum(-1, INT32_MAX, INT32_MAX), &p[2]);
    m = aril__message_new(&aril__caffe_Datum);
    aril__message_set_bytes(m, "data", "no image", 8);
    aril__message_set_int(m, "encoded", 1);
    write_datum(m, &p[3]);
    CHECK_INT(write_datums(temp_path("data.mdb"), p, 4), ARIL_OK);
    aril_dataset *d = aril_dataset_lmdb(temp_path("data.mdb"));
    CHECK(d);
    for (int i = 0; i < 4; i++) {
        ARIL_SCOPE;
        aril_sample s;
        CHECK_INT(aril_dataset_get(d, i, &s), ARIL_ERR_FORMAT);
        char name[8];
        snprintf(name, sizeof name, "0000%d", i);
        CHECK_MSG(strstr(aril_error(), name), "%s", aril_error());
        aril_clear_error();
        aril__bytes_free(&p[i]);
    }
    aril_dataset_release(d);
}

/* ---- HDF5 ---- */

static bool without_hdf5(aril_status status)
{
    if (status != ARIL_ERR_UNSUPPORTED) return false;
    bool said = strstr(aril_error(), "libhdf5-dev") != NULL;
    aril_clear_error();
    return said;
}

TEST(hdf5_round_trip_of_every_dtype)
{
    ARIL_SCOPE;
    static const aril_dtype dtypes[] = { ARIL_U8,  ARIL_U16, ARIL_U32, ARIL_U64, ARIL_I8,
                                         ARIL_I16, ARIL_I32, ARIL_I64, ARIL_F32, ARIL_F64 };
    aril_tensor *at[12];
    const char *name[12];
    for (int i = 0; i < 10; i++) {
        aril_tensor *x = aril_cast(aril_arange(-6, 6, 1, ARIL_F32, test_device()), dtypes[i]);
        at[i] = aril_t(aril_reshape(x, ARIL_SHAPE(3, 4)));
        name[i] = aril_dtype_name(dtypes[i]);
    }
    at[10] = aril_scalar(0.5);
    name[10] = "group/below/scalar";
    at[11] = aril_zeros(ARIL_SHAPE(0, 3), ARIL_F32, test_device());
    name[11] = "group/none";
    aril_named all = { 12, at, name };
    const char *path = temp_path("x.h5");
    aril_status status = aril_hdf5_write(path, &all);
    if (without_hdf5(status)) SKIP("built without HDF5");
    CHECK_MSG(status == ARIL_OK, "%s", aril_error());
    for (int i = 0; i < 12; i++) {
        char *differs =
            test_difference_in_bits(aril_hdf5_read(path, name[i]), aril_contiguous(at[i]));
        CHECK_MSG(!differs, "%s: %s", name[i], differs);
    }
    CHECK_INT(aril_tensor_status(aril_hdf5_read(path, "absent")), ARIL_ERR_ARG);
    CHECK(strstr(aril_error(), "has no array absent"));
    aril_clear_error();
    CHECK_INT(aril_tensor_status(aril_hdf5_read("/no/such.h5", "x")), ARIL_ERR_IO);
    aril_clear_error();
    name[3] = name[2];
    CHECK_INT(aril_hdf5_write(path, &all), ARIL_ERR_ARG);
    aril_clear_error();
    at[0] = aril_zeros(ARIL_SHAPE(2), ARIL_BF16, test_device());
    CHECK_INT(aril_hdf5_write(path, &all), ARIL_ERR_DTYPE);
    aril_clear_error();
    CHECK_INT(temp_count(), 1);
}

TEST(hdf5_as_a_dataset)
{
    ARIL_SCOPE;
    aril_tensor *at[] = { aril_ones(ARIL_SHAPE(4, 1, 2, 2), ARIL_F32, test_device()),
                          aril_reshape(aril_arange(0, 4, 1, ARIL_F32, test_device()),
                                       ARIL_SHAPE(4, 1)),
                          aril_arange(0, 4, 1, ARIL_I32, test_device()) };
    const char *name[] = { "data", "label", "other" };
    aril_named three = { 3, at, name };
    const char *path = temp_path("caffe.h5");
    if (without_hdf5(aril_hdf5_write(path, &three))) SKIP("built without HDF5");
    aril_dataset *d = aril_dataset_open(path, "train");
    CHECK_MSG(d, "%s", aril_error());
    CHECK_INT(aril_dataset_size(d), 4);
    aril_sample s;
    CHECK_INT(aril_dataset_get(d, 3, &s), ARIL_OK);
    CHECK_NEAR(aril_item(s.y), 3, 0);
    CHECK_INT(aril_ndim(s.x), 3);
    aril_dataset_release(d);
    d = aril_dataset_hdf5(path, "data", "other");
    CHECK(d);
    CHECK_INT(aril_dataset_get(d, 3, &s), ARIL_OK);
    CHECK_INT(aril_item_int(s.y), 3);
    aril_dataset_release(d);
    CHECK(!aril_dataset_hdf5(path, "nothing", NULL));
    aril_clear_error();
    CHECK_INT(aril_hdf5_write(path, ARIL_TENSORS(at[0])), ARIL_OK);
    CHECK(!aril_dataset_hdf5(path, NULL, NULL));
    CHECK(strstr(aril_error(), "no array x or data"));
    aril_clear_error();
    CHECK_INT(aril__file_replace(path, "nonsense", 8), ARIL_OK);
    CHECK(!aril_dataset_open(path, NULL));
    CHECK_INT(aril_error_code(), ARIL_ERR_FORMAT);
    CHECK(strstr(aril_error(), "not a valid HDF5 file"));
    aril_clear_error();
}
