/* NumPy files. */
#include "aril/aril.h"
#include "formats/atomic_file.h"
#include "formats/bytes.h"
#include "formats/npy.h"
#include "support/device.h"
#include "support/compare.h"
#include "support/temp.h"
#include "support/test.h"

#include <string.h>
#include <unistd.h>

static const aril_dtype dtypes[] = { ARIL_BOOL, ARIL_U8,  ARIL_U16, ARIL_U32, ARIL_U64, ARIL_I8,
                                     ARIL_I16,  ARIL_I32, ARIL_I64, ARIL_F16, ARIL_F32, ARIL_F64 };

TEST(npy_round_trip_of_every_dtype)
{
    ARIL_SCOPE;
    const char *path = temp_path("x.npy");
    for (int i = 0; i < 12; i++) {
        aril_tensor *x = aril_cast(aril_arange(-6, 6, 1, ARIL_F32, test_device()), dtypes[i]);
        aril_tensor *forms[] = { x, aril_reshape(x, ARIL_SHAPE(3, 2, 2)),
                                 aril_t(aril_reshape(x, ARIL_SHAPE(3, 4))),
                                 aril_zeros(ARIL_SHAPE(0, 3), dtypes[i], test_device()),
                                 aril_select(x, 0, 1) };
        for (int k = 0; k < 5; k++) {
            CHECK_INT(aril_npy_write(path, forms[k]), ARIL_OK);
            char *differs = test_difference_in_bits(aril_npy_read(path), aril_contiguous(forms[k]));
            CHECK_MSG(!differs, "%s: %s", aril_dtype_name(dtypes[i]), differs);
        }
    }
    CHECK_INT(aril_npy_write(path, aril_zeros(ARIL_SHAPE(2), ARIL_BF16, test_device())),
              ARIL_ERR_DTYPE);
    CHECK(strstr(aril_error(), "NumPy has no dtype bf16"));
    aril_clear_error();
    CHECK_INT(temp_count(), 1);
}

/* A file with that header and those bytes. */
static aril_tensor *decode(const char *header, const void *data, size_t size)
{
    aril__bytes b = { 0 };
    aril__bytes_add(&b, "\x93NUMPY\1\0\0\0", 10);
    aril__bytes_add(&b, header, strlen(header));
    aril__put_le16(b.at + 8, (uint16_t)strlen(header));
    aril__bytes_add(&b, data, size);
    aril_tensor *t = aril__npy_decode("test", b.at, b.n);
    aril__bytes_free(&b);
    return t;
}

TEST(npy_in_c_and_fortran_order)
{
    ARIL_SCOPE;
    aril_tensor *t = decode("{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }",
                            "\0\1\0\4\0\2\0\5\0\3\0\6", 12);
    aril_tensor *want =
        aril_reshape(aril_arange(1, 7, 1, ARIL_I16, test_device()), ARIL_SHAPE(2, 3));
    char *differs = test_difference_in_bits(t, want);
    CHECK_MSG(!differs, "%s", differs);
    t = decode("{\"shape\":(1L,),\"fortran_order\":False,\"descr\":\">f8\"}\n",
               "\x3f\xf0\0\0\0\0\0\0", 8);
    CHECK_NEAR(aril_item(t), 1, 0);
    t = decode("{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }", "\0\1\x7f", 3);
    CHECK_INT(aril_item_int(aril_sum(aril_cast(t, ARIL_I64), ARIL_ALL)), 2);
}

TEST(malformed_npy)
{
    static const struct {
        const char *header;
        size_t data;
        aril_status code;
        const char *says;
    } bad[] = {
        { "()", 0, ARIL_ERR_FORMAT, "no dictionary" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)", 8, ARIL_ERR_FORMAT, "broken" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (2, }", 8, ARIL_ERR_FORMAT, "shape" },
        { "{'descr': '<f4', 'fortran_order': Maybe, 'shape': (2,)}", 8, ARIL_ERR_FORMAT, "order" },
        { "{'descr': '<f4', 'shape': (2,)}", 8, ARIL_ERR_FORMAT, "lacks a key" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'x': 1}", 8, ARIL_ERR_FORMAT,
          "not known" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 7, ARIL_ERR_FORMAT, "fewer" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 9, ARIL_ERR_FORMAT, "more" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", 8, ARIL_ERR_FORMAT, "shape" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", 4,
          ARIL_ERR_FORMAT, "8 dimensions" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999, 99999999999)}", 8,
          ARIL_ERR_FORMAT, "fewer" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (999999999999999999999,)}", 8,
          ARIL_ERR_FORMAT, "shape" },
        { "{'descr': '|O', 'fortran_order': False, 'shape': (2,)}", 8, ARIL_ERR_UNSUPPORTED,
          "'|O'" },
        { "{'descr': '<c8', 'fortran_order': False, 'shape': (2,)}", 16, ARIL_ERR_UNSUPPORTED,
          "'<c8'" },
        { "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", 8,
          ARIL_ERR_UNSUPPORTED, "records" },
    };
    static const char zeros[64];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ARIL_SCOPE;
        aril_status status = aril_tensor_status(decode(bad[i].header, zeros, bad[i].data));
        CHECK_MSG(status == bad[i].code && strstr(aril_error(), bad[i].says), "%zu: %s", i,
                  status ? aril_error() : "was read");
        aril_clear_error();
    }
    const char *path = temp_path("x.npy");
    CHECK_INT(aril__file_replace(path, "\x93NUMPY\1\0\xff\xff{}..", 14), ARIL_OK);
    CHECK_INT(aril_tensor_status(aril_npy_read(path)), ARIL_ERR_FORMAT);
    aril_clear_error();
    CHECK_INT(aril__file_replace(path, "\x93NUMPY\7\0\2\0{}", 12), ARIL_OK);
    CHECK_INT(aril_tensor_status(aril_npy_read(path)), ARIL_ERR_FORMAT);
    CHECK(strstr(aril_error(), "version"));
    aril_clear_error();
}

TEST(npz_round_trip)
{
    ARIL_SCOPE;
    aril_tensor *at[] = { aril_arange(0, 5, 1, ARIL_I64, test_device()), aril_scalar(0.5),
                          aril_t(aril_reshape(aril_arange(0, 6, 1, ARIL_F32, test_device()),
                                              ARIL_SHAPE(2, 3))),
                          aril_zeros(ARIL_SHAPE(0), ARIL_U8, test_device()) };
    const char *name[] = { "x_train", "y", "layer.0/w", "none" };
    aril_named four = { 4, at, name };
    const char *path = temp_path("x.npz");
    CHECK_INT(aril_npz_write(path, &four), ARIL_OK);
    aril_npz *f = aril_npz_open(path);
    CHECK_MSG(f, "%s", aril_error());
    CHECK_INT(aril_npz_count(f), 4);
    for (int i = 0; i < 4; i++) {
        CHECK_STR(aril_npz_name(f, i), name[i]);
        CHECK_INT(aril_npz_find(f, name[i]), i);
        char *differs = test_difference_in_bits(aril_npz_tensor(f, i), aril_contiguous(at[i]));
        CHECK_MSG(!differs, "%s: %s", name[i], differs);
    }
    CHECK_INT(aril_npz_find(f, "absent"), -1);
    CHECK(!aril_npz_name(f, 4));
    CHECK_INT(aril_tensor_status(aril_npz_tensor(f, 4)), ARIL_ERR_INDEX);
    aril_clear_error();
    aril_npz_close(f);
    name[3] = "y";
    CHECK_INT(aril_npz_write(path, &four), ARIL_ERR_ARG);
    aril_clear_error();
    CHECK_INT(aril_npz_write(path, ARIL_TENSORS(at[0], at[1])), ARIL_OK);
    f = aril_npz_open(path);
    CHECK(f);
    CHECK_STR(aril_npz_name(f, 1), "arr_1");
    aril_npz_close(f);
    CHECK_INT(temp_count(), 1);
}

/* numpy.savez_compressed of x = arange(1000, dtype=int16) % 7. */
static const unsigned char compressed[] = {
#include "files/compressed.inc"
};

TEST(compressed_npz)
{
    ARIL_SCOPE;
    aril_npz *f = aril_npz_open_memory(compressed, sizeof compressed);
    CHECK_MSG(f, "%s", aril_error());
    aril_tensor *x = aril_npz_tensor(f, aril_npz_find(f, "x"));
    if (aril_tensor_status(x) == ARIL_ERR_UNSUPPORTED) {
        CHECK(strstr(aril_error(), "zlib"));
        aril_clear_error();
        aril_npz_close(f);
        SKIP("built without zlib");
    }
    CHECK_INT(aril_tensor_status(x), ARIL_OK);
    CHECK_INT(aril_dtype_of(x), ARIL_I16);
    CHECK_INT(aril_numel(x), 1000);
    CHECK_INT(aril_item_int(aril_select(x, 0, 999)), 999 % 7);
    aril_npz_close(f);
    unsigned char broken[sizeof compressed];
    int bad = 0;
    for (size_t i = 60; i < 140; i += 4) {
        memcpy(broken, compressed, sizeof broken);
        broken[i] ^= 0x10;
        f = aril_npz_open_memory(broken, sizeof broken);
        if (f && aril_tensor_status(aril_npz_tensor(f, 0)) == ARIL_OK) continue;
        CHECK_INT(aril_error_code(), ARIL_ERR_FORMAT);
        aril_clear_error();
        aril_npz_close(f);
        bad++;
    }
    CHECK_INT(bad, 20);
}

/* An archive without members is the end of one alone. */
TEST(npz_without_arrays)
{
    const char *path = temp_path("none.npz");
    CHECK_INT(aril_npz_write(path, &(aril_named){ 0 }), ARIL_OK);
    aril_npz *f = aril_npz_open(path);
    CHECK_MSG(f && aril_npz_count(f) == 0, "%s", aril_error());
    aril_npz_close(f);
    aril_weights *w = aril_weights_open(path, (aril_weights_opts){ 0 });
    CHECK_MSG(w, "%s", aril_error());
    CHECK_STR(aril_weights_kind(w), "NumPy");
    CHECK_INT(aril_weights_count(w), 0);
    aril_weights_close(w);
}

TEST(files_that_are_not_npz)
{
    static const char *const bad[] = { "", "PK", "PK\5\6..................",
                                       "PK\3\4 and so on, but there is no end of it" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(!aril_npz_open_memory(bad[i], strlen(bad[i])));
        CHECK_INT(aril_error_code(), ARIL_ERR_FORMAT);
        aril_clear_error();
    }
    for (size_t n = 0; n < sizeof compressed; n++) {
        CHECK(!aril_npz_open_memory(compressed, n));
        CHECK_INT(aril_error_code(), ARIL_ERR_FORMAT);
        aril_clear_error();
    }
    CHECK(!aril_npz_open("/no/such"));
    aril_clear_error();
}

TEST(npz_failed_allocations)
{
    ARIL_SCOPE;
    const char *path = temp_path("memory.npz");
    aril_tensor *x = aril_zeros(ARIL_SHAPE(100), ARIL_F32, test_device());
    CHECK_INT(aril_npz_write(path, ARIL_TENSORS(x)), ARIL_OK);
    bool failed = true;
    for (int n = 1; failed; n++) {
        ARIL_SCOPE;
        aril_fail_allocation(n);
        aril_npz_write(path, ARIL_TENSORS(x));
        aril_npz *f = aril_npz_open(path);
        aril_tensor *t = f ? aril_npz_tensor(f, 0) : NULL;
        failed = aril_allocation_failed();
        aril_fail_allocation(0);
        CHECK(failed == !aril_ok());
        CHECK(failed || aril_numel(t) == 100);
        CHECK_MSG(!failed || aril_error_code() == ARIL_ERR_MEMORY, "%s", aril_error());
        aril_clear_error();
        aril_npz_close(f);
        CHECK_INT(temp_count(), 1);
    }
}

TEST(device_files_are_rejected)
{
    ARIL_SCOPE;
    CHECK(aril_tensor_status(aril_npy_read("/dev/zero")) == ARIL_ERR_IO);
    CHECK(!aril_ok() && strstr(aril_error(), "/dev/zero is a device") != NULL);
    aril_clear_error();
}
