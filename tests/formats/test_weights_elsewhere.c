/* Checkpoints of TensorFlow and matrices of MATLAB: those that they wrote, and damaged ones. */
#include "aril/aril.h"
#include "files/elsewhere.inc"
#include "formats/bytes.h"
#include "formats/crc32c.h"
#include "formats/hdf5.h"
#include "support/temp.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

static void put(const char *name, const void *data, size_t size)
{
    FILE *f = fopen(temp_path(name), "wb");
    CHECK(f && fwrite(data, 1, size, f) == size);
    CHECK_INT(fclose(f), 0);
}

static void put_checkpoints(void)
{
    put("objects.index", objects_index, sizeof objects_index);
    put("objects.data-00000-of-00001", objects_data, sizeof objects_data);
    put("variables.index", variables_index, sizeof variables_index);
    put("variables.data-00000-of-00001", variables_data, sizeof variables_data);
}

static aril_weights *opened(const char *name)
{
    aril_weights *w = aril_weights_open(temp_path(name), (aril_weights_opts){ 0 });
    if (!w) printf("%s: %s\n", name, aril_error()); /* what it holds is missing then */
    return w;
}

static void check_values(aril_weights *w, const char *name, aril_dtype dtype, aril_shape shape,
                         const double *want)
{
    ARIL_SCOPE;
    int i = aril_weights_find(w, name);
    CHECK_MSG(i >= 0, "no %s", name);
    CHECK_INT(aril_weights_dtype(w, i), dtype);
    aril_tensor *t = aril_weights_tensor(w, i);
    CHECK_MSG(aril_tensor_status(t) == ARIL_OK, "%s: %s", name, aril_error());
    aril_shape got_shape = aril_weights_shape(w, i), t_shape = aril_shape_of(t);
    CHECK_INT(got_shape.ndim, shape.ndim);
    for (int k = 0; k < shape.ndim; k++) {
        CHECK_INT(got_shape.dim[k], shape.dim[k]);
        CHECK_INT(t_shape.dim[k], shape.dim[k]);
    }
    CHECK_INT(aril_dtype_of(t), dtype);
    double got[32];
    CHECK_INT(aril_read(aril_cast(t, ARIL_F64), got), ARIL_OK);
    for (int64_t k = 0; k < aril_numel(t); k++) CHECK_NEAR(got[k], want[k], 0);
}
#define VALUES(name, dtype, shape, ...) \
    check_values(w, name, dtype, shape, (const double[]){ __VA_ARGS__ })

static void check_refused(aril_weights *w, const char *name, const char *why)
{
    int i = aril_weights_find(w, name);
    CHECK_MSG(i >= 0, "no %s", name);
    CHECK_STR(aril_weights_problem(w, i), why);
    CHECK_INT(aril_tensor_status(aril_weights_tensor(w, i)), ARIL_ERR_UNSUPPORTED);
    aril_clear_error();
}

/* ---- TensorFlow ---- */

TEST(objects_of_a_checkpoint_have_their_names)
{
    put_checkpoints();
    static const char *const paths[] = { "objects.index", "objects" };
    for (int k = 0; k < 2; k++) {
        aril_weights *w = opened(paths[k]);
        CHECK_STR(aril_weights_kind(w), "TensorFlow");
        CHECK_INT(aril_weights_count(w), 6);
        VALUES("dense/kernel", ARIL_F32, ARIL_SHAPE(2, 3), 0, 1, 2, 3, 4, 5);
        VALUES("dense/bias", ARIL_F16, ARIL_SHAPE(3), 1, -2, 3);
        VALUES("flag", ARIL_BOOL, ARIL_SHAPE(), 1);
        VALUES("h", ARIL_BF16, ARIL_SHAPE(4), 0, 1, 2, 3);
        /* Two variables of one name are called by their places. */
        VALUES("net/one", ARIL_I64, ARIL_SHAPE(1, 1), 5);
        VALUES("net/two", ARIL_I8, ARIL_SHAPE(1), 6);
        CHECK_INT(aril_weights_check(w), ARIL_OK);
        aril_weights_close(w);
    }
}

TEST(variables_of_a_graph)
{
    put_checkpoints();
    aril_weights *w = opened("variables");
    CHECK_INT(aril_weights_count(w), 6);
    VALUES("conv/weights", ARIL_F32, ARIL_SHAPE(2, 4), 0, 1, 2, 3, 4, 5, 6, 7);
    VALUES("conv/weights_long_name", ARIL_F64, ARIL_SHAPE(2), 1, 2);
    VALUES("empty", ARIL_F64, ARIL_SHAPE(0, 3), 0);
    check_refused(w, "name", "text");
    check_refused(w, "part", "it is stored in slices");
    check_refused(w, "z", "dtype 8 of TensorFlow");
    aril_weights_close(w);
}

/* A SavedModel, its folder of variables, and a folder whose file "checkpoint" names the latest. */
TEST(folders_hold_checkpoints)
{
    static const char line[] = "model_checkpoint_path: \"/elsewhere/ckpt-7\"\n";
    static const char escape[] = "model_checkpoint_path: \"..\"\n";
    CHECK_INT(aril_folder_create(temp_path("saved/variables")), ARIL_OK);
    CHECK_INT(aril_folder_create(temp_path("train")), ARIL_OK);
    put("saved/variables/variables.index", objects_index, sizeof objects_index);
    put("saved/variables/variables.data-00000-of-00001", objects_data, sizeof objects_data);
    put("train/ckpt-7.index", objects_index, sizeof objects_index);
    put("train/ckpt-7.data-00000-of-00001", objects_data, sizeof objects_data);
    put("train/checkpoint", line, sizeof line - 1);
    static const char *const folders[] = { "saved", "saved/variables", "train" };
    for (int i = 0; i < 3; i++) {
        aril_weights *w = opened(folders[i]);
        VALUES("dense/bias", ARIL_F16, ARIL_SHAPE(3), 1, -2, 3);
        aril_weights_close(w);
    }
    put("train/checkpoint", escape, sizeof escape - 1);
    CHECK(!aril_weights_open(temp_path("train"), (aril_weights_opts){ 0 }));
    CHECK_MSG(strstr(aril_error(), "has no weights"), "%s", aril_error());
    aril_clear_error();
}

TEST(tensors_outlive_the_checkpoint)
{
    ARIL_SCOPE;
    put_checkpoints();
    aril_weights *w = opened("objects");
    aril_tensor *t = aril_weights_tensor(w, aril_weights_find(w, "dense/kernel"));
    aril_weights_close(w);
    CHECK_NEAR(aril_item(aril_sum(t, ARIL_ALL)), 15, 0);
    CHECK(aril_ok());
}

/* The file of data is missing, shorter, or has other bytes. */
TEST(data_that_do_not_belong_are_refused)
{
    put_checkpoints();
    put("objects.data-00000-of-00001", objects_data, 3);
    CHECK(!aril_weights_open(temp_path("objects"), (aril_weights_opts){ 0 }));
    CHECK_MSG(strstr(aril_error(), "outside of its file"), "%s", aril_error());
    aril_clear_error();
    CHECK_INT(remove(temp_path("objects.data-00000-of-00001")), 0);
    CHECK(!aril_weights_open(temp_path("objects"), (aril_weights_opts){ 0 }));
    CHECK_MSG(strstr(aril_error(), ".data-00000-of-00001"), "%s", aril_error());
    aril_clear_error();
    unsigned char other[sizeof objects_data];
    memcpy(other, objects_data, sizeof other);
    for (size_t i = 0; i + 4 < sizeof other; i++) /* the float 5 */
        if (memcmp(other + i, "\0\0\xa0\x40", 4) == 0) other[i] ^= 1;
    put("objects.data-00000-of-00001", other, sizeof other);
    aril_weights *w = opened("objects");
    aril_tensor *t = aril_weights_tensor(w, aril_weights_find(w, "dense/kernel"));
    CHECK_INT(aril_tensor_status(t), ARIL_ERR_FORMAT);
    CHECK_MSG(strstr(aril_error(), "checksum of dense/kernel"), "%s", aril_error());
    aril_clear_error();
    aril_weights_close(w);
}

/* ---- MATLAB ---- */

static void check_matrices(const char *name)
{
    aril_weights *w = opened(name);
    CHECK_STR(aril_weights_kind(w), "MATLAB");
    CHECK_INT(aril_weights_count(w), 11);
    VALUES("a", ARIL_F64, ARIL_SHAPE(2, 3), 0, 1, 2, 3, 4, 5);
    VALUES("single", ARIL_F32, ARIL_SHAPE(1, 2), 1.5, 2.5);
    VALUES("i8", ARIL_I8, ARIL_SHAPE(2, 1), 1, -2);
    VALUES("u64", ARIL_U64, ARIL_SHAPE(1, 1), 0x1p63 + 0x1p20);
    VALUES("flag", ARIL_BOOL, ARIL_SHAPE(1, 2), 1, 0);
    VALUES("t", ARIL_I16, ARIL_SHAPE(2, 3, 4), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
           16, 17, 18, 19, 20, 21, 22, 23);
    VALUES("empty", ARIL_F64, ARIL_SHAPE(0, 3), 0);
    check_refused(w, "text", "text");
    check_refused(w, "c", "complex numbers");
    check_refused(w, "s", "a struct");
    check_refused(w, "cell", "a cell array");
    aril_weights_close(w);
}

TEST(matrices_are_turned)
{
    put("plain.mat", plain_mat, sizeof plain_mat);
    put("packed.mat", packed_mat, sizeof packed_mat);
    check_matrices("plain.mat");
    check_matrices("packed.mat");
}

/* Big-endian, and doubles that are stored as bytes, as MATLAB does where nothing is lost. */
TEST(matrices_of_other_machines)
{
    static const unsigned char tail[] = {
        0, 0, 0, 14, 0,   0,   0, 48,                          /* a matrix of 48 bytes */
        0, 0, 0, 6,  0,   0,   0, 8,   0, 0, 0, 6, 0, 0, 0, 0, /* flags: double */
        0, 0, 0, 5,  0,   0,   0, 8,   0, 0, 0, 2, 0, 0, 0, 2, /* 2 x 2 */
        0, 1, 0, 1,  'k', 0,   0, 0,                           /* the name */
        0, 4, 0, 1,  1,   255, 3, 128,                         /* i8, by columns */
    };
    unsigned char file[128 + sizeof tail];
    memset(file, ' ', 128);
    memcpy(file, "MATLAB 5.0", 10);
    memcpy(file + 124, "\1\0MI", 4);
    memcpy(file + 128, tail, sizeof tail);
    put("big.mat", file, sizeof file);
    aril_weights *w = opened("big.mat");
    VALUES("k", ARIL_F64, ARIL_SHAPE(2, 2), 1, 3, -1, -128);
    aril_weights_close(w);
    file[128 + 8 + 16 + 11] = 3; /* 3 x 2 */
    put("big.mat", file, sizeof file);
    w = opened("big.mat");
    CHECK_INT(aril_tensor_status(aril_weights_tensor(w, 0)), ARIL_ERR_FORMAT);
    CHECK_MSG(strstr(aril_error(), "other numbers than its sizes"), "%s", aril_error());
    aril_clear_error();
    aril_weights_close(w);
}

TEST(matrices_of_version_7_3)
{
    put("new.mat", new_mat, sizeof new_mat);
    aril_weights *w = opened("new.mat");
    CHECK_INT(aril_weights_count(w), 2);
    VALUES("net/w", ARIL_F64, ARIL_SHAPE(2, 3), 0, 1, 2, 3, 4, 5);
    VALUES("flag", ARIL_U8, ARIL_SHAPE(1, 2), 1, 0);
    aril_weights_close(w);
}

/* A few hundred bytes that say that they unpack to 4 GB. */
TEST(bombs_are_refused)
{
    unsigned char file[sizeof plain_mat];
    memcpy(file, packed_mat, sizeof packed_mat);
    size_t size = sizeof packed_mat;
    static const unsigned char stored[] = { 0x78, 1,    1,    8,    0,    0xf7, 0xff, 14, 0, 0,
                                            0,    0xf0, 0xff, 0xff, 0xff, 0,    0,    0,  0 };
    aril__put_le32(file + 128, 15);
    aril__put_le32(file + 132, sizeof stored);
    memcpy(file + 136, stored, sizeof stored);
    put("bomb.mat", file, size);
    CHECK(!aril_weights_open(temp_path("bomb.mat"), (aril_weights_opts){ 0 }));
    CHECK_MSG(strstr(aril_error(), "unpacks to more than"), "%s", aril_error());
    aril_clear_error();
}

/* ---- damage ---- */

static uint64_t state;

static uint64_t draw(uint64_t below)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (state >> 33) % below;
}

static void damage(unsigned char *at, size_t *n)
{
    static const unsigned char values[] = { 0, 1, 2, 7, 14, 15, 0x7f, 0x80, 0xff };
    if (draw(8) == 0) *n = 1 + draw(*n);
    for (uint64_t times = 1 + draw(3); times > 0; times--) {
        size_t i = draw(*n);
        at[i] = draw(2) ? (unsigned char)(at[i] ^ 1u << draw(8)) : values[draw(sizeof values)];
    }
}

/* The checksum of the block that begins an index is made right, so that what is damaged is read. */
static void mend(unsigned char *at, size_t n, size_t block)
{
    if (block + 5 < n) aril__put_le32(at + block + 1, aril__masked_crc32c(at, block + 1));
}

/* True if the file was opened; its tensors are read or refused. */
static bool opens(const char *path)
{
    aril_weights *w = aril_weights_open(path, (aril_weights_opts){ 0 });
    for (int i = 0; i < aril_weights_count(w); i++) {
        ARIL_SCOPE;
        if (aril_weights_problem(w, i)) continue;
        aril_tensor *t = aril_weights_tensor(w, i);
        if (aril_tensor_status(t) == ARIL_OK && aril_numel(t) < 1 << 20)
            aril_sum(aril_cast(t, ARIL_F64), ARIL_ALL);
    }
    aril_weights_close(w);
    return w != NULL;
}

/* The bytes of the block of entries that begins an index. */
static size_t first_block(const unsigned char *index, size_t size)
{
    const unsigned char *end = index + size - 48;
    for (size_t n = 0; index + n + 5 < end; n++) /* a type of 0, and the right checksum */
        if (n > 8 && !index[n] && aril__le32(index + n + 1) == aril__masked_crc32c(index, n + 1))
            return n;
    return 0;
}

/* `name` is opened, and the file `damaged` of it is damaged. */
static void fuzz(const char *name, const char *damaged, const unsigned char *data, size_t size,
                 size_t block)
{
    enum { MOST = 1 << 15 };
    static unsigned char copy[MOST];
    const char *longer = getenv("ARIL_FUZZ_TIMES");
    int rounds = 400 * (longer ? atoi(longer) : 1), refused = 0;
    state = longer ? (uint64_t)atoi(longer) : 1;
    char path[512];
    snprintf(path, sizeof path, "%s", temp_path(name));
    CHECK(size < MOST);
    CHECK_MSG(opens(path) && aril_ok(), "%s: %s", name, aril_error());
    for (int i = 0; i < rounds; i++) {
        size_t n = size;
        memcpy(copy, data, size);
        damage(copy, &n);
        if (block && draw(8)) mend(copy, n, block);
        put(damaged, copy, n);
        aril_memory_reset_peak(aril_cpu());
        int64_t live = aril_memory(aril_cpu()).live;
        bool good = opens(path);
        CHECK_MSG(good || !aril_ok(), "%s: round %d: no message", name, i);
        CHECK(aril_memory(aril_cpu()).peak < live + (64 << 20));
        refused += !aril_ok();
        aril_clear_error();
        if (test_failed()) return;
    }
    CHECK_MSG(refused > 0 && refused < rounds, "%s: %d of %d", name, refused, rounds);
}

TEST(damaged_checkpoints)
{
    put_checkpoints();
    size_t block = first_block(objects_index, sizeof objects_index);
    CHECK(block > 100);
    fuzz("objects.index", "objects.index", objects_index, sizeof objects_index, block);
    put_checkpoints();
    fuzz("objects.index", "objects.data-00000-of-00001", objects_data, sizeof objects_data, 0);
    put_checkpoints();
    fuzz("variables.index", "variables.index", variables_index, sizeof variables_index,
         first_block(variables_index, sizeof variables_index));
}

TEST(damaged_matrices)
{
    put("plain.mat", plain_mat, sizeof plain_mat);
    put("packed.mat", packed_mat, sizeof packed_mat);
    fuzz("plain.mat", "plain.mat", plain_mat, sizeof plain_mat, 0);
    fuzz("packed.mat", "packed.mat", packed_mat, sizeof packed_mat, 0);
}

/* ---- out of memory ---- */

TEST(every_allocation_may_fail)
{
    static const char *const names[] = { "objects", "packed.mat" };
    put_checkpoints();
    put("packed.mat", packed_mat, sizeof packed_mat);
    for (int k = 0; k < 2; k++) {
        int64_t n = 1;
        for (; n < 5000; n++) {
            aril_fail_allocation(n);
            bool good = opens(temp_path(names[k])), failed = aril_allocation_failed();
            aril_fail_allocation(0);
            CHECK_MSG(good || failed, "%s: %s", names[k], aril_error());
            aril_clear_error();
            if (!failed) break;
        }
        CHECK(n > 10 && n < 5000);
    }
}
