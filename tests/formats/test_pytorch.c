/* PyTorch's checkpoints: those that it wrote, those that attack, those that Aril writes. */
#include "aril/aril.h"
#include "files/pytorch.inc"
#include "formats/atomic_file.h"
#include "formats/zip.h"
#include "support/temp.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    const char *name;
    const unsigned char *data;
    size_t size;
    bool nested;
} files[] = {
    { "zipped", zipped, sizeof zipped, false },
    { "legacy", legacy, sizeof legacy, false },
    { "nested", nested, sizeof nested, true },
    { "legacy_nested", legacy_nested, sizeof legacy_nested, true },
    { "protocol4", protocol4, sizeof protocol4, true },
};
enum { FILES = sizeof files / sizeof *files };

static aril_weights *open_bytes(const void *data, size_t size, aril_weights_opts opts)
{
    const char *path = temp_path("net.pt");
    FILE *f = fopen(path, "wb"); /* not synced, as thousands are written */
    if (!f) return NULL;
    bool written = size == 0 || fwrite(data, size, 1, f) == 1;
    return fclose(f) == 0 && written ? aril_weights_open(path, opts) : NULL;
}

/* ---- files of PyTorch ---- */

static void check_values(aril_weights *w, const char *name, aril_dtype dtype, int n,
                         const double *want)
{
    ARIL_SCOPE;
    int i = aril_weights_find(w, name);
    CHECK_MSG(i >= 0, "no %s", name);
    CHECK_INT(aril_weights_dtype(w, i), dtype);
    aril_tensor *t = aril_weights_tensor(w, i);
    CHECK_MSG(aril_tensor_status(t) == ARIL_OK, "%s: %s", name, aril_error());
    CHECK_INT(aril_numel(t), n);
    aril_tensor *wide = aril_reshape(aril_cast(t, ARIL_F64), ARIL_SHAPE(n));
    double got[32];
    CHECK_INT(aril_read(wide, got), ARIL_OK);
    for (int k = 0; k < n; k++) CHECK_NEAR(got[k], want[k], 0);
}
#define VALUES(name, dtype, ...)                                                            \
    check_values(w, name, dtype, (int)(sizeof((double[]){ __VA_ARGS__ }) / sizeof(double)), \
                 (double[]){ __VA_ARGS__ })

static void check_file(aril_weights *w)
{
    VALUES("conv.weight", ARIL_F32, 0, .25, .5, .75, 1, 1.25, 1.5, 1.75, 2, 2.25, 2.5, 2.75);
    VALUES("part", ARIL_F32, 2, 6, 10, 3, 7, 11, 4, 8, 12, 5, 9, 13);
    VALUES("i64", ARIL_I64, -3, -2, -1, 0, 1, 2);
    VALUES("f16", ARIL_F16, .5, -2);
    VALUES("bf16", ARIL_BF16, 1.5, -3);
    VALUES("bool", ARIL_BOOL, 1, 0, 1);
    VALUES("u8", ARIL_U8, 0, 255);
    VALUES("i8", ARIL_I8, -128, 127);
    VALUES("i16", ARIL_I16, -5, 500);
    VALUES("i32", ARIL_I32, 7, -7);
    VALUES("f64", ARIL_F64, .1);
    VALUES("u16", ARIL_U16, 1, 65535);
    VALUES("f8", ARIL_F8E4M3FN, 1, -.5);
    VALUES("expanded", ARIL_F32, 1, 2, 1, 2, 1, 2);
    VALUES("tied", ARIL_F32, 0, .25, .5, .75, 1, 1.25, 1.5, 1.75, 2, 2.25, 2.5, 2.75);
}

TEST(files_of_pytorch)
{
    for (int k = 0; k < FILES && !test_failed(); k++) {
        ARIL_SCOPE;
        aril_weights *w =
            open_bytes(files[k].data, files[k].size, (aril_weights_opts){ .unwrap = true });
        CHECK_MSG(w, "%s: %s", files[k].name, aril_error());
        CHECK_STR(aril_weights_kind(w), "PyTorch");
        CHECK_STR(aril_weights_root(w), files[k].nested ? "state_dict" : "");
        CHECK_INT(aril_weights_count(w), 18);
        CHECK_STR(aril_weights_name(w, 0), "conv.weight"); /* in the order of the file */
        CHECK_STR(aril_weights_name(w, 17), "tied");
        check_file(w);
        aril_shape part = aril_weights_shape(w, 1), empty = aril_weights_shape(w, 14);
        CHECK(part.ndim == 2 && part.dim[0] == 4 && part.dim[1] == 3);
        CHECK(empty.ndim == 2 && empty.dim[0] == 0 && empty.dim[1] == 3);
        CHECK_INT(aril_weights_shared(w, 17), 0);
        CHECK_INT(aril_weights_shared(w, 2), 1);
        aril_shape pairs = aril_weights_shape(w, 16); /* complex numbers: [2,2,2], transposed */
        CHECK(pairs.ndim == 3 && pairs.dim[0] == 2 && pairs.dim[1] == 2 && pairs.dim[2] == 2);
        VALUES("complex", ARIL_F32, 1, 2, 0, 0, -3, .5, 0, 7);
        CHECK(!aril_weights_problem(w, 0));
        CHECK(aril_ok());
        CHECK(aril_tensor_status(aril_weights_tensor(w, 18)) == ARIL_ERR_INDEX);
        aril_clear_error();
        aril_weights_close(w);
    }
}

TEST(shared_memory_stays_shared)
{
    ARIL_SCOPE;
    aril_weights *w = open_bytes(zipped, sizeof zipped, (aril_weights_opts){ 0 });
    CHECK(w);
    aril_tensor *a = aril_weights_tensor(w, 0), *tied = aril_weights_tensor(w, 17);
    aril_tensor *part = aril_weights_tensor(w, 1), *base = aril_weights_tensor(w, 2);
    CHECK(aril_shares_memory(a, tied) && aril_shares_memory(part, base));
    CHECK(!aril_shares_memory(a, part));
    aril_weights_close(w); /* tensors stay valid; writes do not reach the file */
    aril_fill_(a, ARIL_NUMBER(3));
    CHECK_NEAR(aril_item(aril_mean(tied, ARIL_ALL)), 3, 0);
    aril_weights *again = aril_weights_open(temp_path("net.pt"), (aril_weights_opts){ 0 });
    CHECK_NEAR(aril_item(aril_mean(aril_weights_tensor(again, 0), ARIL_ALL)), 1.375, 0);
    aril_weights_close(again);
}

TEST(parts_of_a_checkpoint)
{
    ARIL_SCOPE;
    aril_weights *all = open_bytes(nested, sizeof nested, (aril_weights_opts){ .root = "" });
    CHECK(all);
    CHECK_INT(aril_weights_count(all), 19);
    CHECK(aril_weights_find(all, "optimizer.state.0.exp_avg") >= 0);
    CHECK(aril_weights_find(all, "state_dict.module.conv.weight") == 0);
    aril_weights_close(all);
    aril_weights *some =
        aril_weights_open(temp_path("net.pt"), (aril_weights_opts){ .root = "optimizer.state" });
    CHECK(some);
    CHECK_INT(aril_weights_count(some), 1);
    CHECK_STR(aril_weights_name(some, 0), "0.exp_avg");
    aril_weights_close(some);
    CHECK(!aril_weights_open(temp_path("net.pt"), (aril_weights_opts){ .root = "ema" }));
    CHECK_MSG(strstr(aril_error(), "no part \"ema\""), "%s", aril_error());
    aril_clear_error();
    aril_weights *plain = aril_weights_open(temp_path("net.pt"), (aril_weights_opts){ 0 });
    CHECK_STR(aril_weights_name(plain, 0), "module.conv.weight");
    aril_metadata m = aril_weights_metadata(plain);
    CHECK(m.n >= 2);
    CHECK_STR(m.key[0], "epoch");
    CHECK_STR(m.value[0], "7");
    CHECK_STR(m.value[1], "net");
    aril_weights_close(plain);
}

/* ---- files that Aril writes ---- */

TEST(written_files)
{
    ARIL_SCOPE;
    aril_weights *w = open_bytes(zipped, sizeof zipped, (aril_weights_opts){ .copy = true });
    CHECK(w);
    aril_tensor *at[17];
    const char *name[17];
    int n = 0;
    for (int i = 0; i < 18; i++)
        if (i != 16) at[n] = aril_weights_tensor(w, i), name[n++] = aril_weights_name(w, i);
    aril_named named = { n, at, name };
    CHECK_INT(aril_weights_save(temp_path("out.pth"), &named, (aril_weights_save_opts){ 0 }),
              ARIL_OK);
    CHECK_INT(aril_weights_save(temp_path("out.safetensors"), &named,
                                (aril_weights_save_opts){ .max_part = 100 }),
              ARIL_OK);
    aril_weights_close(w);
    w = aril_weights_open(temp_path("out.pth"), (aril_weights_opts){ 0 });
    CHECK_MSG(w, "%s", aril_error());
    CHECK_INT(aril_weights_count(w), 17);
    check_file(w);
    CHECK_INT(aril_weights_shared(w, 16), 0);
    CHECK_INT(aril_weights_shared(w, 2), 1);
    aril_weights_close(w);
    w = aril_weights_open(temp_path("out.safetensors.index.json"), (aril_weights_opts){ 0 });
    CHECK_MSG(w, "%s", aril_error());
    CHECK_INT(aril_weights_count(w), 17);
    check_file(w);
    aril_weights_close(w);
    CHECK_INT(aril_weights_save(temp_path("out.txt"), &named, (aril_weights_save_opts){ 0 }),
              ARIL_ERR_ARG);
    CHECK_MSG(strstr(aril_error(), ".safetensors"), "%s", aril_error());
    aril_clear_error();
    aril_tensor *i4 = aril_cast(aril_ones(ARIL_SHAPE(4), ARIL_I8, aril_cpu()), ARIL_I4);
    CHECK_INT(aril_weights_save(temp_path("out.pt"), ARIL_TENSORS(i4),
                                (aril_weights_save_opts){ 0 }),
              ARIL_ERR_DTYPE);
    aril_clear_error();
    const char *const twice[] = { "a", "a" };
    CHECK_INT(aril_weights_save(temp_path("out.pt"), &(aril_named){ 2, at, twice },
                                (aril_weights_save_opts){ 0 }),
              ARIL_ERR_ARG);
    aril_clear_error();
}

/* Names stay as they are, or are refused; so are files that cannot be read again. */
TEST(names_and_files_that_weights_cannot_have)
{
    ARIL_SCOPE;
    static const struct {
        const char *file, *name;
    } wrong[] = { { "x.pt", "" },     { "x.h5", "" },      { "x.h5", "/a" }, { "x.h5", "a/" },
                  { "x.h5", "a//b" }, { "x.h5", "a/./b" }, { "x.h5", "." } };
    aril_tensor *x = aril_ones(ARIL_SHAPE(2), ARIL_F32, aril_cpu());
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        aril_status s =
            aril_weights_save(temp_path(wrong[i].file), &(aril_named){ 1, &x, &wrong[i].name },
                              (aril_weights_save_opts){ 0 });
        CHECK_INT(s, ARIL_ERR_ARG);
        CHECK_MSG(strstr(aril_error(), "name"), "%s", aril_error());
        aril_clear_error();
    }
    CHECK_INT(temp_count(), 0);
    CHECK(mkfifo(temp_path("x.pt"), 0666) == 0);
    alarm(20);
    CHECK_INT(aril_weights_save(temp_path("x.pt"), ARIL_TENSORS(x), (aril_weights_save_opts){ 0 }),
              ARIL_ERR_IO);
    alarm(0);
    CHECK_MSG(strstr(aril_error(), "not a regular file"), "%s", aril_error());
    aril_clear_error();
}

/* ---- checksums ---- */

/* Inverts a bit of the byte of net.pt in which `text` begins, plus `plus`. */
static void flip(const char *text, size_t size, long plus)
{
    static unsigned char b[1 << 16];
    FILE *f = fopen(temp_path("net.pt"), "r+b");
    CHECK(f);
    size_t n = fread(b, 1, sizeof b, f);
    unsigned char *at = memmem(b, n, text, size);
    CHECK(at);
    CHECK(fseek(f, (long)(at - b) + plus, SEEK_SET) == 0);
    fputc(at[plus] ^ 16, f);
    CHECK(fclose(f) == 0);
}

static aril_status read_first(aril_weights_opts opts)
{
    ARIL_SCOPE;
    aril_weights *w = aril_weights_open(temp_path("net.pt"), opts);
    aril_status s = w ? aril_tensor_status(aril_weights_tensor(w, 0)) : aril_error_code();
    if (s == ARIL_OK) s = aril_weights_all(w) ? ARIL_OK : aril_error_code();
    aril_weights_close(w);
    return s;
}

TEST(checksums_of_archives)
{
    ARIL_SCOPE;
    static const float values[] = { 1234.5f, 2, 3, 4 };
    const char *name = "weight";
    aril_weights_opts map = { 0 }, verify = { .verify = true }, copy = { .copy = true };
    aril_tensor *x = aril_from(values, ARIL_SHAPE(4), ARIL_F32, aril_cpu());
    for (int pickle = 0; pickle < 2; pickle++) {
        CHECK_INT(aril_weights_save(temp_path("net.pt"), &(aril_named){ 1, &x, &name },
                                    (aril_weights_save_opts){ 0 }),
                  ARIL_OK);
        CHECK_INT(read_first(verify), ARIL_OK);
        if (pickle)
            flip(name, 6, 0);
        else
            flip((const char *)values, sizeof values, 0);
        CHECK_INT(read_first(map), pickle ? ARIL_ERR_FORMAT : ARIL_OK); /* only what is read */
        CHECK_INT(read_first(verify), ARIL_ERR_FORMAT);
        CHECK_MSG(strstr(aril_error(), "checksum does not match"), "%s", aril_error());
        CHECK_INT(read_first(copy), ARIL_ERR_FORMAT);
        aril_clear_error();
    }
    /* PyTorch writes 0 when it is told not to compute checksums. */
    uint32_t sum = aril__crc32(0, values, sizeof values);
    unsigned char crc[4];
    CHECK_INT(aril_weights_save(temp_path("net.pt"), &(aril_named){ 1, &x, &name },
                                (aril_weights_save_opts){ 0 }),
              ARIL_OK);
    aril__put_le32(crc, sum);
    FILE *f = fopen(temp_path("net.pt"), "r+b");
    static unsigned char b[1 << 16];
    size_t n = f ? fread(b, 1, sizeof b, f) : 0;
    for (unsigned char *at = b; (at = memmem(at, n - (size_t)(at - b), crc, 4)); at += 4)
        memset(at, 0, 4);
    CHECK(f && fseek(f, 0, SEEK_SET) == 0 && fwrite(b, 1, n, f) == n && fclose(f) == 0);
    CHECK_INT(read_first(verify), ARIL_OK);
    flip((const char *)values, sizeof values, 0);
    CHECK_INT(read_first(verify), ARIL_OK);
}

/* ---- attacks ---- */

static void put_archive(const void *pkl, size_t size, const char *key, size_t bytes)
{
    unsigned char zeros[4096] = { 0 };
    aril__zip_writer z = { .file = aril__file_begin(temp_path("net.pt")) };
    CHECK(z.file && bytes <= sizeof zeros);
    CHECK_INT(aril__zip_add(&z, "x/data.pkl", pkl, size, NULL, 0), ARIL_OK);
    if (key) CHECK_INT(aril__zip_add(&z, key, zeros, bytes, NULL, 0), ARIL_OK);
    CHECK_INT(aril__zip_finish(&z), ARIL_OK);
    CHECK_INT(aril__file_commit(z.file), ARIL_OK);
}

/* An archive with a pickle and a storage "0" of 16 bytes is refused, in words that contain
 * `text`. */
static void refused(const char *what, const void *pkl, size_t size, const char *text)
{
    put_archive(pkl, size, "x/data/0", 16);
    aril_memory_reset_peak(aril_cpu());
    int64_t live = aril_memory(aril_cpu()).live;
    aril_weights *w = aril_weights_open(temp_path("net.pt"), (aril_weights_opts){ .root = "" });
    CHECK_MSG(!w, "%s was opened", what);
    CHECK_MSG(strstr(aril_error(), text), "%s: %s", what, aril_error());
    CHECK(aril_memory(aril_cpu()).peak < live + (1 << 20));
    aril_clear_error();
}
#define REFUSED(what, pkl, text) refused(what, pkl, sizeof(pkl) - 1, text)

/* A tensor over storage "0" of `count` floats: K offset, sizes and strides as opcodes. */
#define TENSOR(count, offset, sizes, strides)                                              \
    "ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0" \
    "0X\3\0\0\0cpu" count "tQ" offset "(" sizes "t(" strides "t\x89}tR"

TEST(classes_that_are_not_allowed)
{
    REFUSED("os.system", "\x80\2cos\nsystem\nX\4\0\0\0true\x85R.", "os.system");
    REFUSED("a stack global", "\x80\4\x8c\2os\x8c\6system\x93\x8c\4true\x85R.", "os.system");
    REFUSED("eval", "\x80\2}X\1\0\0\0ac__builtin__\neval\nX\1\0\0\0001\x85Rs.", "__builtin__.eval");
    REFUSED("an instance", "(ios\nsystem\n.", "os.system");
    REFUSED("an object", "(cos\nsystem\nX\4\0\0\0trueo.", "os.system");
    REFUSED("a namespace", "\x80\2cargparse\nNamespace\n)\x81}b.", "argparse.Namespace");
    REFUSED("a nested pickle", "\x80\2ctorch.storage\n_load_from_bytes\nC\1x\x85R.",
            "_load_from_bytes");
    REFUSED("an extension", "\x80\2\x82\1.", "opcode 0x82");
    REFUSED("a dtype that is called", "\x80\2ctorch\nfloat32\n)R.", "calls torch.float32");
    REFUSED("a number that is called", "\x80\2K\1)R.", "calls what is no class");
    REFUSED("other arguments", "\x80\2ctorch._utils\n_rebuild_tensor_v2\n)R.", "other arguments");
    REFUSED("a whole module", "\x80\2(X\6\0\0\0moduleX\1\0\0\0aX\1\0\0\0bX\1\0\0\0ctQ.",
            "whole module");
    REFUSED("a state", "\x80\2K\1}b.", "restores a state");
    REFUSED("a control character", "\x80\2co\33[2J\nx\n.", "o?[2J.x");
}

TEST(malformed_pickles)
{
    REFUSED("an empty stack", "\x80\2.", "the stack is empty");
    REFUSED("a missing mark", "\x80\2t.", "a mark is missing");
    REFUSED("a truncated text", "\x80\2X\xff\xff\xff\x7f", "truncated");
    REFUSED("a text of 2^63 bytes", "\x80\4\x8d\0\0\0\0\0\0\0\x80", "truncated");
    REFUSED("a truncated frame", "\x80\4\x95\xff\xff\xff\xff\xff\xff\xff\x7f", "truncated");
    REFUSED("no end", "\x80\2}", "truncated");
    REFUSED("a memo of 2^32", "\x80\2}r\xff\xff\xff\xff.", "memo");
    REFUSED("a memo by text", "\x80\2}p99999999999999\n.", "memo");
    REFUSED("a memo that is not there", "\x80\2h\5.", "memo has no number 5");
    REFUSED("a dict without a value", "\x80\2(K\1d.", "lacks a value");
    REFUSED("items of a number", "\x80\2K\1(K\2e.", "takes none");
    REFUSED("values that are left", "\x80\2}}.", "left at its end");
    REFUSED("a protocol that is not known", "\x80\x09}.", "protocol 9");
    REFUSED("a NUL in a name", "\x80\2}X\1\0\0\0\0" TENSOR("K\4", "K\0", "K\4", "K\1") "s.", "NUL");
    REFUSED("arguments that are no tuple", "\x80\2ccollections\nOrderedDict\n]R.", "no tuple");
}

TEST(sizes_that_cannot_be)
{
    REFUSED("beyond the storage", "\x80\2}X\1\0\0\0a" TENSOR("K\4", "K\1", "K\4", "K\1") "s.",
            "needs 5 elements");
    REFUSED("a stride out of bounds", "\x80\2}X\1\0\0\0a" TENSOR("K\4", "K\0", "K\2", "K\4") "s.",
            "needs 5 elements");
    REFUSED("a negative stride",
            "\x80\2}X\1\0\0\0a" TENSOR("K\4", "K\3", "K\2", "J\xff\xff\xff\xff") "s.", "cannot be");
    REFUSED("a negative size",
            "\x80\2}X\1\0\0\0a" TENSOR("K\4", "K\0", "J\xff\xff\xff\xff", "K\1") "s.", "cannot be");
    REFUSED("a negative offset",
            "\x80\2}X\1\0\0\0a" TENSOR("K\4", "J\xff\xff\xff\xff", "K\1", "K\1") "s.", "cannot be");
    REFUSED("2^62 elements",
            "\x80\2}X\1\0\0\0a" TENSOR("K\4", "K\0", "\x8a\x08\0\0\0\0\0\0\0\x40", "K\1") "s.",
            "elements of its storage");
    REFUSED("2^63 and more",
            "\x80\2}X\1\0\0\0a" TENSOR("K\4", "K\0", "\x8a\x09\0\0\0\0\0\0\0\x80\0", "K\1") "s.",
            "other arguments");
    REFUSED("sizes whose product is too large",
            "\x80\2}X\1\0\0\0a" TENSOR("K\4", "K\0", "J\0\0\0\x7fJ\0\0\0\x7fJ\0\0\0\x7f",
                                       "K\0K\0K\0") "s.",
            "cannot be");
    REFUSED("one element, repeated",
            "\x80\2}X\1\0\0\0a" TENSOR("K\4", "K\0", "J\0\0\0\x7f", "K\0") "s.", "too often");
    /* 512 times 40 MB: each for itself would be small enough. */
    static char many[1 << 17];
    static const char each[] = TENSOR("K\4", "K\0", "J\0\0\x98\0", "K\0");
    size_t n = 3;
    memcpy(many, "\x80\2}", n);
    for (int i = 0; i < 512; i++) {
        many[n++] = 'X';
        memcpy(many + n, "\3\0\0\0", 4);
        snprintf(many + n + 4, 4, "%03d", i);
        n += 7;
        memcpy(many + n, each, sizeof each - 1);
        n += sizeof each - 1;
        many[n++] = 's';
    }
    many[n++] = '.';
    refused("many, repeated", many, n, "too often");
#define VIEW(begin)                                                                                \
    "ctorch._utils\n_rebuild_tensor_v3\n((X\7\0\0\0storagectorch.storage\nUntypedStorage\n"        \
    "X\1\0\0\0000X\3\0\0\0cpuK\x10(X\1\0\0\0v" begin "K\x08ttQK\0(K\2t(K\1t\x89}ctorch\nfloat32\n" \
    "}tR"
    REFUSED("an element between two", "\x80\2}X\1\0\0\0a" VIEW("K\1") "s.", "middle of an element");
    static const char view[] = "\x80\2}X\1\0\0\0a" VIEW("K\4") "s.";
    put_archive(view, sizeof view - 1, "x/data/0", 16);
    aril_weights *viewed = aril_weights_open(temp_path("net.pt"), (aril_weights_opts){ 0 });
    CHECK_MSG(aril_weights_count(viewed) == 1, "%s", aril_error());
    aril_weights_close(viewed);
    REFUSED("a storage that is truncated",
            "\x80\2}X\1\0\0\0a" TENSOR("K\5", "K\0", "K\1", "K\1") "s.", "truncated");
    REFUSED("a storage of 2^63",
            "\x80\2}X\1\0\0\0a" TENSOR("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f", "K\0", "K\1",
                                       "K\1") "s.",
            "truncated");
    static const char good[] = "\x80\2}X\1\0\0\0a" TENSOR("K\4", "K\0", "K\4", "K\1") "s.";
    put_archive(good, sizeof good - 1, "x/data/1", 16);
    CHECK(!aril_weights_open(temp_path("net.pt"), (aril_weights_opts){ 0 }));
    CHECK_MSG(strstr(aril_error(), "is missing"), "%s", aril_error());
    aril_clear_error();
    put_archive(good, sizeof good - 1, "x/data/0", 16);
    aril_weights *w = aril_weights_open(temp_path("net.pt"), (aril_weights_opts){ 0 });
    CHECK_MSG(w, "%s", aril_error());
    aril_weights_close(w);
}

/* Keys of dicts may be any values: their names are those of no other key. */
TEST(keys_that_are_not_text)
{
#define ONE TENSOR("K\4", "K\0", "K\4", "K\1")
    static const char pkl[] = "\x80\2}K\1" ONE "sG\x3f\xf8\0\0\0\0\0\0" ONE
                              "sG\x40\0\0\0\0\0\0\0" ONE "sK\2" ONE "sN" ONE "sK\7\x85" ONE "s.";
    static const char *const names[] = { "1", "1.5", "2.0", "2", "None", "#5" };
    put_archive(pkl, sizeof pkl - 1, "x/data/0", 16);
    aril_weights *w = aril_weights_open(temp_path("net.pt"), (aril_weights_opts){ 0 });
    CHECK_MSG(w, "%s", aril_error());
    CHECK_INT(aril_weights_count(w), 6);
    for (int i = 0; i < 6; i++) CHECK_STR(aril_weights_name(w, i), names[i]);
    aril_weights_close(w);
#undef ONE
}

/* Dicts that hold the one before twice: 2^30 tensors in a few hundred bytes. Lists in lists. */
TEST(nesting_without_end)
{
    aril__bytes b = { 0 };
    static const char tensor[] = TENSOR("K\4", "K\0", "K\4", "K\1");
    aril__bytes_add(&b, "\x80\2", 2);
    aril__bytes_add(&b, tensor, sizeof tensor - 1);
    for (int i = 0; i < 30; i++)
        aril__bytes_print(&b, "q%c0}(X%c%c%c%cah%cX%c%c%c%cbh%cu", 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1);
    aril__bytes_add(&b, ".", 1);
    refused("shared dicts", b.at, b.n, "without end");
    b.n = 0;
    aril__bytes_add(&b, "\x80\2", 2);
    for (int i = 0; i < 100000; i++) aril__bytes_add(&b, "(", 1);
    aril__bytes_add(&b, tensor, sizeof tensor - 1);
    for (int i = 0; i < 100000; i++) aril__bytes_add(&b, "l", 1);
    aril__bytes_add(&b, ".", 1);
    refused("lists in lists", b.at, b.n, "too deeply");
    b.n = 0;
    aril__bytes_print(&b, "%c%c]q%c", 0x80, 2, 1); /* a list that holds itself and a tensor */
    aril__bytes_add(&b, tensor, sizeof tensor - 1);
    aril__bytes_add(&b, "ah\1a.", 5);
    refused("a list in itself", b.at, b.n, "without end");
    aril__bytes_free(&b);
}

TEST(members_that_overlap)
{
    aril__bytes b = { 0 };
    aril__bytes_add(&b, zipped, sizeof zipped);
    /* the second entry of the list of members gets the offset of the first */
    unsigned char *first = memmem(b.at, b.n, "PK\1\2", 4);
    CHECK(first);
    unsigned char *second = memmem(first + 4, b.n - (size_t)(first + 4 - b.at), "PK\1\2", 4);
    CHECK(second);
    memcpy(second + 42, first + 42, 4);
    CHECK(!open_bytes(b.at, b.n, (aril_weights_opts){ 0 }));
    CHECK_MSG(strstr(aril_error(), "overlap"), "%s", aril_error());
    aril_clear_error();
    aril__bytes_free(&b);
}

/* A member that claims to unpack to 1,000 times its size: refused before any memory is taken. */
TEST(archives_that_unpack_to_too_much)
{
    enum { PACKED = 1 << 20 };
    char *fill = calloc(1, PACKED);
    CHECK(fill);
    aril__zip_writer z = { .file = aril__file_begin(temp_path("net.pt")) };
    CHECK_INT(aril__zip_add(&z, "x/data/0", fill, PACKED, NULL, 0), ARIL_OK);
    CHECK_INT(aril__zip_add(&z, "x/data.pkl", "\x80\2}.", 4, NULL, 0), ARIL_OK);
    CHECK_INT(aril__zip_finish(&z), ARIL_OK);
    CHECK_INT(aril__file_commit(z.file), ARIL_OK);
    free(fill);
    aril__bytes b = { 0 };
    CHECK_INT(aril__read_file("test", temp_path("net.pt"), 0, &b), ARIL_OK);
    unsigned char *entry = memmem(b.at, b.n, "PK\1\2", 4);
    CHECK(entry);
    entry[10] = 8; /* compressed, to 1000 MB */
    aril__put_le32(entry + 24, 1000u << 20);
    CHECK(!open_bytes(b.at, b.n, (aril_weights_opts){ 0 }));
    CHECK_MSG(strstr(aril_error(), "unpacks to more"), "%s", aril_error());
    aril_clear_error();
    aril__bytes_free(&b);
}

TEST(indexes_that_lead_elsewhere)
{
    static const char *const paths[] = {
        "../x.safetensors", "/etc/passwd", "a/b.safetensors", "..\\\\x.safetensors", "", ".hidden"
    };
    for (int i = 0; i < 6; i++) {
        char text[256];
        int n = snprintf(text, sizeof text, "{\"weight_map\": {\"a\": \"%s\"}}", paths[i]);
        CHECK(!open_bytes(text, (size_t)n, (aril_weights_opts){ 0 }));
        CHECK_MSG(strstr(aril_error(), "without a path"), "%s", aril_error());
        aril_clear_error();
    }
    static const char self[] = "{\"weight_map\": {\"a\": \"net.pt\"}}";
    CHECK(!open_bytes(self, sizeof self - 1, (aril_weights_opts){ 0 }));
    CHECK_MSG(strstr(aril_error(), "no known kind"), "%s", aril_error());
    aril_clear_error();
}

TEST(every_truncation_is_an_error)
{
    for (int k = 0; k < 2; k++)
        for (size_t n = 0; n < files[k].size; n += 1 + files[k].size / 150) {
            aril_weights *w = open_bytes(files[k].data, n, (aril_weights_opts){ 0 });
            CHECK_MSG(!w && !aril_ok(), "%s: %zu bytes", files[k].name, n);
            aril_clear_error();
        }
}

/* ---- damage at random, and without memory ---- */

static uint64_t state;

static uint64_t draw(uint64_t below)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (state >> 33) % below;
}

static void damage(unsigned char *at, size_t n)
{
    static const unsigned char values[] = { 0, 1, 0x7f, 0x80, 0xff, '.', '(', 'R', 'c', 'q', 't' };
    for (uint64_t times = 1 + draw(4); times > 0; times--) {
        size_t i = draw(n);
        switch (draw(4)) {
        case 0: at[i] ^= (unsigned char)(1u << draw(8)); break;
        case 1: at[i] = values[draw(sizeof values)]; break;
        case 2: at[i] = (unsigned char)draw(256); break;
        default: /* another place of the file: opcodes and numbers that fit */
            for (size_t from = draw(n), k = 1 + draw(16); k > 0 && i < n && from < n; k--)
                at[i++] = at[from++];
        }
    }
}

/* What can be opened can be read, or says why not. */
static void read_all(aril_weights *w)
{
    for (int i = 0; i < aril_weights_count(w); i++) {
        ARIL_SCOPE;
        aril_tensor *t = aril_weights_tensor(w, i);
        if (aril_tensor_status(t) == ARIL_OK && aril_numel(t) > 0 && aril_numel(t) < 1 << 20)
            CHECK(aril_data(aril_cast(t, ARIL_F64)));
    }
}

TEST(damaged_files)
{
    const char *longer = getenv("ARIL_FUZZ_TIMES");
    int rounds = 400 * (longer ? atoi(longer) : 1), opened = 0;
    state = longer ? (uint64_t)atoi(longer) : 1;
    for (int i = 0; i < rounds && !test_failed(); i++) {
        int k = i % FILES;
        unsigned char *copy = malloc(files[k].size);
        CHECK(copy);
        memcpy(copy, files[k].data, files[k].size);
        damage(copy, files[k].size / (i % 2 ? 1 : 3)); /* pickles come first */
        aril_memory_reset_peak(aril_cpu());
        int64_t live = aril_memory(aril_cpu()).live;
        aril_weights *w = open_bytes(copy, files[k].size, (aril_weights_opts){ .root = "" });
        CHECK_MSG(w ? aril_ok() : !aril_ok(), "round %d", i);
        opened += w != NULL;
        read_all(w);
        CHECK(aril_memory(aril_cpu()).peak < live + (128 << 20));
        aril_clear_error();
        aril_weights_close(w);
        free(copy);
    }
    CHECK(opened > 0 && opened < rounds);
}

TEST(failed_allocations)
{
    for (int k = 0; k < 2; k++) {
        CHECK_INT(aril__file_replace(temp_path("net.pt"), files[k].data, files[k].size), ARIL_OK);
        for (int64_t n = 1;; n++) {
            ARIL_SCOPE;
            aril_fail_allocation(n);
            aril_weights *w = aril_weights_open(temp_path("net.pt"), (aril_weights_opts){ 0 });
            int got = 0;
            for (int i = 0; i < 16 && w; i++) {
                ARIL_SCOPE;
                got += aril_tensor_status(aril_weights_tensor(w, i)) == ARIL_OK;
            }
            bool failed = aril_allocation_failed();
            aril_fail_allocation(0);
            CHECK_MSG(failed || got == 16, "allocation %lld: %s", (long long)n, aril_error());
            CHECK_MSG(aril_ok() ? got == 16 : aril_error_code() == ARIL_ERR_MEMORY, "%s",
                      aril_error());
            aril_clear_error();
            aril_weights_close(w);
            if (!failed) break;
            CHECK(n < 10000);
        }
    }
    ARIL_SCOPE;
    aril_tensor *x = aril_ones(ARIL_SHAPE(2, 3), ARIL_F32, aril_cpu());
    for (int64_t n = 1;; n++) {
        aril_fail_allocation(n);
        aril_status s = aril_weights_save(temp_path("out.pt"), ARIL_TENSORS(x, x),
                                          (aril_weights_save_opts){ .max_part = 1 });
        bool failed = aril_allocation_failed();
        aril_fail_allocation(0);
        CHECK(failed ? true : s == ARIL_OK);
        CHECK(s == ARIL_OK || aril_error_code() == ARIL_ERR_MEMORY);
        aril_clear_error();
        if (!failed) break;
        CHECK(n < 10000);
    }
}
