/* Tensor files: safetensors, atomic writing, JSON. */
#include "aril/aril.h"
#include "formats/atomic_file.h"
#include "formats/bytes.h"
#include "formats/json.h"
#include "support/device.h"
#include "support/compare.h"
#include "support/temp.h"
#include "support/test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- writing files ---- */

static char *contents(const char *path)
{
    static char text[256];
    aril__bytes b = { 0 };
    if (aril__read_file("test", path, sizeof text - 1, &b) != ARIL_OK) {
        aril_clear_error();
        return NULL;
    }
    memcpy(text, b.at, b.n + 1);
    aril__bytes_free(&b);
    return text;
}

TEST(files_are_replaced_atomically)
{
    const char *path = temp_path("a");
    CHECK_INT(aril__file_replace(path, "old", 3), ARIL_OK);
    CHECK_STR(contents(path), "old");
    aril__file *f = aril__file_begin(path);
    CHECK(f);
    for (int i = 0; i < 100000; i++) CHECK_INT(aril__file_write(f, "new", 3), ARIL_OK);
    CHECK_STR(contents(path), "old");
    CHECK_INT(aril__file_size(f), 300000);
    CHECK_INT(aril__file_commit(f), ARIL_OK);
    struct stat st;
    CHECK(stat(path, &st) == 0);
    CHECK_INT(st.st_size, 300000);
    CHECK_INT(temp_count(), 1);
    f = aril__file_begin(path);
    CHECK(f);
    CHECK_INT(aril__file_write(f, "x", 1), ARIL_OK);
    aril__file_abandon(f);
    CHECK(stat(path, &st) == 0);
    CHECK_INT(st.st_size, 300000);
    CHECK_INT(temp_count(), 1);
}

TEST(replaced_file_keeps_its_mode_and_links_are_followed)
{
    const char *path = temp_path("kept");
    char link[512];
    snprintf(link, sizeof link, "%s", temp_path("link"));
    path = temp_path("kept");
    CHECK_INT(aril__file_replace(path, "1", 1), ARIL_OK);
    CHECK(chmod(path, 0640) == 0);
    CHECK(symlink("kept", link) == 0);
    CHECK_INT(aril__file_replace(link, "2", 1), ARIL_OK);
    struct stat st;
    CHECK(lstat(link, &st) == 0 && S_ISLNK(st.st_mode));
    CHECK(lstat(path, &st) == 0 && S_ISREG(st.st_mode));
    CHECK_INT(st.st_mode & 0777, 0640);
    CHECK_STR(contents(path), "2");
}

TEST(device_files_are_written_in_place)
{
    struct stat st;
    CHECK_INT(aril__file_replace("/dev/null", "1", 1), ARIL_OK);
    CHECK(stat("/dev/null", &st) == 0 && S_ISCHR(st.st_mode));
    if (access("/dev/full", W_OK) != 0) SKIP("no /dev/full");
    CHECK_INT(aril__file_replace("/dev/full", "1", 1), ARIL_ERR_IO);
    CHECK(strstr(aril_error(), "No space left"));
    aril_clear_error();
}

TEST(concurrent_writers_do_not_conflict)
{
    const char *path = temp_path("two");
    aril__file *f = aril__file_begin(path), *g = aril__file_begin(path);
    CHECK(f && g);
    CHECK_INT(aril__file_write(f, "first", 5), ARIL_OK);
    CHECK_INT(aril__file_write(g, "second", 6), ARIL_OK);
    CHECK_INT(aril__file_commit(f), ARIL_OK);
    CHECK_STR(contents(path), "first");
    CHECK_INT(aril__file_commit(g), ARIL_OK);
    CHECK_STR(contents(path), "second");
    CHECK_INT(temp_count(), 1);
}

TEST(leftovers_of_a_killed_writer_are_reused)
{
    const char *path = temp_path("killed");
    CHECK_INT(aril__file_replace(path, "old", 3), ARIL_OK);
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            aril__file *f = aril__file_begin(path);
            if (f) aril__file_write(f, "half", 4);
            kill(getpid(), SIGKILL);
        }
        int state;
        CHECK(waitpid(child, &state, 0) == child);
        CHECK_STR(contents(path), "old");
    }
    CHECK_INT(temp_count(), 2); /* one half-written file, not three */
    CHECK_INT(aril__file_replace(path, "new", 3), ARIL_OK);
    CHECK_INT(temp_count(), 1);
    CHECK_STR(contents(path), "new");
}

/* Runs fn in a child that may write at most 4096 bytes per file: a full disk. */
static int when_full(void (*fn)(const char *path), const char *path)
{
    pid_t child = fork();
    if (child == 0) {
        signal(SIGXFSZ, SIG_IGN);
        struct rlimit max = { 4096, 4096 };
        if (setrlimit(RLIMIT_FSIZE, &max) != 0) _exit(9);
        fn(path);
        _exit(aril_error_code() == ARIL_ERR_IO && strstr(aril_error(), "is as it was") ? 0 : 1);
    }
    int state = -1;
    waitpid(child, &state, 0);
    return state;
}

static void write_much(const char *path)
{
    aril__file *f = aril__file_begin(path);
    if (!f) return;
    for (int i = 0; i < 100000; i++) aril__file_write(f, "new", 3);
    aril__file_commit(f);
}

static void save_much(const char *path)
{
    aril_safetensors_save(path,
                          ARIL_TENSORS(aril_zeros(ARIL_SHAPE(300, 300), ARIL_F32, test_device())),
                          NULL);
}

TEST(full_disk_keeps_the_old_file)
{
    ONLY_ON_CPU("the queue of a device does not survive a fork");
    const char *path = temp_path("full");
    CHECK_INT(aril__file_replace(path, "old", 3), ARIL_OK);
    CHECK_INT(when_full(write_much, path), 0);
    CHECK_STR(contents(path), "old");
    CHECK_INT(temp_count(), 1);
    CHECK_INT(when_full(save_much, path), 0);
    CHECK_STR(contents(path), "old");
    CHECK_INT(temp_count(), 1);
}

TEST(unwritable_paths)
{
    CHECK_INT(aril__file_replace("/no/such/folder/x", "1", 1), ARIL_ERR_IO);
    CHECK(strstr(aril_error(), "cannot write /no/such/folder/x: No such file or directory"));
    aril_clear_error();
    char folder[512];
    snprintf(folder, sizeof folder, "%s", temp_path(""));
    CHECK_INT(aril__file_replace(folder, "1", 1), ARIL_ERR_IO);
    CHECK(strstr(aril_error(), "Is a directory"));
    aril_clear_error();
    CHECK_INT(aril__file_replace("", "1", 1), ARIL_ERR_ARG);
    aril_clear_error();
}

TEST(read_only_folder)
{
    bool root = geteuid() == 0; /* root ignores permissions */
    char folder[512], path[600];
    snprintf(folder, sizeof folder, "%s", temp_path("closed"));
    snprintf(path, sizeof path, "%s/x", folder);
    CHECK(chmod(temp_path(""), 0755) == 0); /* others can reach the folder */
    CHECK(mkdir(folder, 0555) == 0);
    if (root) CHECK(seteuid(65534) == 0);
    CHECK_INT(aril__file_replace(path, "x", 1), ARIL_ERR_IO);
    if (root) CHECK(seteuid(0) == 0);
    CHECK_MSG(strstr(aril_error(), ": Permission denied"), "%s", aril_error());
    aril_clear_error();
    CHECK(rmdir(folder) == 0);
}

TEST(folders_are_created_with_parents)
{
    char deep[512], file[600];
    struct stat st;
    snprintf(deep, sizeof deep, "%s", temp_path("run/of/today"));
    CHECK_INT(aril_folder_create(deep), ARIL_OK);
    CHECK(stat(deep, &st) == 0 && S_ISDIR(st.st_mode));
    CHECK_INT(aril_folder_create(deep), ARIL_OK); /* it exists already */
    snprintf(file, sizeof file, "%s/x", deep);
    CHECK_INT(aril__file_replace(file, "1", 1), ARIL_OK);
    CHECK_INT(aril_folder_create(file), ARIL_ERR_IO);
    CHECK_MSG(strstr(aril_error(), "x' is not a folder"), "%s", aril_error());
    aril_clear_error();
    CHECK_INT(aril_folder_create(NULL), ARIL_ERR_ARG);
    aril_clear_error();
    CHECK_INT(aril_folder_create(""), ARIL_ERR_ARG);
    aril_clear_error();
}

/* ---- JSON ---- */

static bool good_json(const char *text)
{
    aril__json j = { .text = text, .size = strlen(text) };
    aril__json_skip(&j);
    return aril__json_end(&j);
}

TEST(valid_and_invalid_json)
{
    static const char *const good[] = {
        "{}",
        "[]",
        " [ 1 , -2.5e+3, 0, 0.5 ] ",
        "\"\"",
        "\"a\\u00e9\\n\\ud83d\\ude00\"",
        "{\"a\":{\"b\":[true,false,null]}}",
        "\"\xc3\xa9\"",
    };
    static const char *const bad[] = {
        "",
        "{",
        "[",
        "[1,]",
        "{\"a\"}",
        "{\"a\":}",
        "{a:1}",
        "01",
        "1.",
        "-",
        "1e",
        "\"",
        "\"\\x\"",
        "\"\\ud83d\"",
        "\"\\u0000\"",
        "\"\xc3\"",
        "\"\xed\xa0\x80\"",
        "tru",
        "1 2",
        "[1 2]",
        "\"\n\"",
        "'a'",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        CHECK_MSG(good_json(good[i]), "%s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_MSG(!good_json(bad[i]), "%s", bad[i]);
    char deep[300];
    memset(deep, '[', sizeof deep);
    deep[299] = 0;
    CHECK(!good_json(deep));
}

TEST(json_strings_round_trip)
{
    static const char text[] = "a\"\\\n\t\x01/\xc3\xa9\xf0\x9f\x98\x80";
    aril__bytes b = { 0 };
    aril__bytes_json(&b, text);
    CHECK(!b.failed);
    aril__json j = { .text = (char *)b.at, .size = b.n };
    char *back = aril__json_string(&j);
    CHECK(back);
    CHECK_STR(back, text);
    CHECK(aril__json_end(&j));
    free(back);
    aril__bytes_free(&b);
    aril__json k = { .text = "\"\\ud83d\\ude00\\u00e9\"", .size = 20 };
    back = aril__json_string(&k);
    CHECK_STR(back, "\xf0\x9f\x98\x80\xc3\xa9");
    free(back);
}

/* ---- safetensors ---- */

enum { DTYPES = ARIL_F4E2M1 + 1 };

TEST(safetensors_round_trip_of_every_dtype)
{
    ARIL_SCOPE;
    aril_tensor *at[DTYPES + 3];
    const char *name[DTYPES + 3];
    for (int i = 0; i < DTYPES; i++) {
        aril_tensor *x = aril_arange(-6, 6, 1, ARIL_F32, test_device());
        at[i] = aril_reshape(aril_cast(x, (aril_dtype)i), ARIL_SHAPE(3, 4));
        name[i] = aril_dtype_name((aril_dtype)i);
    }
    at[DTYPES] =
        aril_t(aril_reshape(aril_arange(0, 6, 1, ARIL_F32, test_device()), ARIL_SHAPE(2, 3)));
    name[DTYPES] = "layer1.0.conv.weight \"\xc3\xa9\"";
    at[DTYPES + 1] = aril_zeros(ARIL_SHAPE(0, 4), ARIL_F32, test_device());
    name[DTYPES + 1] = "empty";
    at[DTYPES + 2] = aril_scalar(0.5);
    name[DTYPES + 2] = "scalar";
    aril_named all = { DTYPES + 3, at, name };
    const char *key[] = { "format", "empty", "text" };
    const char *value[] = { "pt", "", "two\nlines" };
    aril_metadata meta = { 3, key, value };
    const char *path = temp_path("all.safetensors");
    CHECK_INT(aril_safetensors_save(path, &all, &meta), ARIL_OK);

    aril_safetensors *f = aril_safetensors_open(path);
    CHECK_MSG(f, "%s", aril_error());
    CHECK_INT(aril_safetensors_count(f), all.n);
    for (int i = 0; i < all.n; i++) {
        CHECK_STR(aril_safetensors_name(f, i), name[i]);
        CHECK_INT(aril_safetensors_find(f, name[i]), i);
        CHECK_INT(aril_safetensors_dtype(f, i), aril_dtype_of(at[i]));
        char *differs =
            test_difference_in_bits(aril_safetensors_tensor(f, i), aril_contiguous(at[i]));
        CHECK_MSG(!differs, "%s: %s", name[i], differs);
    }
    const aril_named *read = aril_safetensors_all(f);
    CHECK(read && read->n == all.n && read == aril_safetensors_all(f));
    CHECK_STR(read->name[3], name[3]);
    CHECK(!test_difference_in_bits(read->at[DTYPES], aril_contiguous(at[DTYPES])));
    CHECK_INT(aril_safetensors_find(f, "absent"), -1);
    CHECK_INT(aril_safetensors_metadata(f).n, 3);
    CHECK_STR(aril_safetensors_get(f, "text"), "two\nlines");
    CHECK_STR(aril_safetensors_get(f, "empty"), "");
    CHECK(!aril_safetensors_get(f, "absent"));
    CHECK(aril_ok());
    CHECK(!aril_safetensors_name(f, -1) && !aril_safetensors_name(f, all.n));
    CHECK_INT(aril_tensor_status(aril_safetensors_tensor(f, all.n)), ARIL_ERR_INDEX);
    aril_clear_error();
    aril_safetensors_close(f);

    struct stat st;
    CHECK(stat(path, &st) == 0);
    CHECK_INT(temp_count(), 1);
}

TEST(safetensors_without_names_or_tensors)
{
    ARIL_SCOPE;
    const char *path = temp_path("loose");
    CHECK_INT(aril_safetensors_save(path, ARIL_TENSORS(aril_scalar(1), aril_scalar(2)), NULL),
              ARIL_OK);
    aril_safetensors *f = aril_safetensors_open(path);
    CHECK(f);
    CHECK_STR(aril_safetensors_name(f, 1), "1");
    CHECK_NEAR(aril_item(aril_safetensors_tensor(f, 1)), 2, 0);
    aril_safetensors_close(f);
    aril_named none = { 0 };
    CHECK_INT(aril_safetensors_save(path, &none, NULL), ARIL_OK);
    f = aril_safetensors_open(path);
    CHECK(f);
    CHECK_INT(aril_safetensors_count(f), 0);
    CHECK_INT(aril_safetensors_all(f)->n, 0);
    aril_safetensors_close(f);
}

/* The first bytes are the header's length, which may look like the magic number of another format:
 * 128 + 256k like a pickle's, 19280 like a zip archive's. */
TEST(safetensors_with_headers_of_any_length)
{
    ARIL_SCOPE;
    static char text[20000];
    memset(text, 'x', sizeof text - 1);
    const char *path = temp_path("any"), *key = "k", *value;
    aril_tensor *x = aril_scalar(1);
    for (size_t n = 1; n < 19400; n += n == 1600 ? 17500 : 1) {
        value = text + sizeof text - 1 - n;
        aril_metadata meta = { 1, &key, &value };
        CHECK_INT(aril_safetensors_save(path, ARIL_TENSORS(x), &meta), ARIL_OK);
        aril_safetensors *f = aril_safetensors_open(path);
        CHECK_MSG(f && strlen(aril_safetensors_get(f, "k")) == n, "%zu bytes of text: %s", n,
                  aril_error());
        aril_safetensors_close(f);
        if (test_failed()) return;
    }
}

static aril_status save_named(const char *a, const char *b, aril_dtype dtype)
{
    ARIL_SCOPE;
    aril_tensor *at[] = { aril_zeros(ARIL_SHAPE(2), dtype, test_device()), aril_scalar(1) };
    const char *name[] = { a, b };
    aril_named two = { 2, at, name };
    return aril_safetensors_save(temp_path("refused"), &two, NULL);
}

TEST(safetensors_that_cannot_be_saved)
{
    CHECK_INT(save_named("a", "a", ARIL_F32), ARIL_ERR_ARG);
    CHECK(strstr(aril_error(), "two tensors are named a"));
    aril_clear_error();
    CHECK_INT(save_named("a", "__metadata__", ARIL_F32), ARIL_ERR_ARG);
    aril_clear_error();
    CHECK_INT(save_named("a", "\xff", ARIL_F32), ARIL_ERR_ARG);
    aril_clear_error();
    CHECK_INT(save_named("a", "b", ARIL_I4), ARIL_ERR_DTYPE);
    CHECK(strstr(aril_error(), "safetensors has no dtype i4"));
    aril_clear_error();
    CHECK_INT(aril_safetensors_save(NULL, ARIL_TENSORS(aril_scalar(1)), NULL), ARIL_ERR_ARG);
    aril_clear_error();
    CHECK_INT(aril_safetensors_save(temp_path("refused"), ARIL_TENSORS(NULL), NULL), ARIL_ERR_ARG);
    aril_clear_error();
    CHECK_INT(temp_count(), 0);
}

/* Opens a file with that header and `data` zero bytes. */
static aril_status open_text(const char *header, size_t data)
{
    aril__bytes b = { 0 };
    unsigned char length[8];
    aril__put_le64(length, strlen(header));
    aril__bytes_add(&b, length, 8);
    aril__bytes_add(&b, header, strlen(header));
    unsigned char *zeros = aril__bytes_add(&b, NULL, data);
    if (!zeros) return ARIL_ERR_MEMORY;
    memset(zeros, 0, data);
    aril_clear_error();
    aril_safetensors *f = aril_safetensors_open_memory(b.at, b.n);
    aril_status status = f ? ARIL_OK : aril_error_code();
    for (int i = 0; i < aril_safetensors_count(f); i++) {
        ARIL_SCOPE;
        aril_safetensors_tensor(f, i);
    }
    aril_safetensors_close(f);
    aril__bytes_free(&b);
    return status;
}

#define W(shape, begin, end) \
    "\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]"

TEST(malformed_safetensors)
{
    static const struct {
        const char *header;
        size_t data;
        const char *says;
    } bad[] = {
        { "", 0, "an object was expected" },
        { "[]", 0, "an object was expected" },
        { "{\"w\":{" W("[2]", "0", "8") "}", 8, "',' or '}' was expected" },
        { "{\"w\":{" W("[2]", "0", "8") "}}x", 8, "something follows" },
        { "{\"w\":{" W("[2]", "0", "8") "}}", 7, "truncated" },
        { "{\"w\":{" W("[2]", "0", "8") "}}", 9, "1 bytes follow" },
        { "{\"w\":{" W("[3]", "0", "8") "}}", 8, "of shape [3]" },
        { "{\"w\":{" W("[2]", "8", "0") "}}", 8, "has bytes 8 to 0" },
        { "{\"w\":{" W("[2]", "0", "18446744073709551616") "}}", 8, "too large" },
        { "{\"w\":{" W("[4611686018427387904,4]", "0", "0") "}}", 8, "has bytes 0 to 0" },
        { "{\"w\":{" W("[9223372036854775808]", "0", "0") "}}", 0, "too large" },
        { "{\"w\":{" W("[-2]", "0", "8") "}}", 8, "integer" },
        { "{\"w\":{" W("[2.5]", "0", "8") "}}", 8, "integer" },
        { "{\"w\":{" W("[1,1,1,1,1,1,1,1,1]", "0", "4") "}}", 4, "more than 8 dimensions" },
        { "{\"w\":{" W("[2]", "0", "8,9") "}}", 8, "two numbers" },
        { "{\"v\":{" W("[2]", "0", "8") "},\"w\":{" W("[2]", "4", "12") "}}", 12,
          "inside another" },
        { "{\"v\":{" W("[2]", "0", "8") "},\"w\":{" W("[2]", "12", "20") "}}", 20, "after a gap" },
        { "{\"v\":{" W("[2]", "0", "8") "},\"v\":{" W("[2]", "8", "16") "}}", 16,
          "two tensors are called v" },
        { "{\"v\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "lacks" },
        { "{\"v\":{" W("[2]", "0", "8") ",\"shape\":[2]}}", 8, "twice" },
        { "{\"v\":{" W("[2]", "0", "8") ",\"other\":[2]}}", 8, "nothing else" },
        { "{\"__metadata__\":{\"a\":1}}", 0, "a string was expected" },
        { "{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", 0, "two pairs called a" },
        { "{\"__metadata__\":{},\"__metadata__\":{}}", 0, "twice" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        aril_status status = open_text(bad[i].header, bad[i].data);
        CHECK_MSG(status == ARIL_ERR_FORMAT && strstr(aril_error(), bad[i].says), "%s: %s",
                  bad[i].header, status == ARIL_OK ? "was read" : aril_error());
        aril_clear_error();
    }
    CHECK_INT(open_text("{\"w\":{\"dtype\":\"C64\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8),
              ARIL_ERR_UNSUPPORTED);
    CHECK_INT(open_text(" {\"w\" : { " W("[]", "0", "4") " } } \n", 4), ARIL_OK);
    CHECK_INT(open_text("{\"w\":{" W("[0,4611686018427387904,4]", "0", "0") "}}", 0), ARIL_OK);
    aril_clear_error();
}

TEST(files_of_other_formats_are_rejected)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *says;
    } bad[] = {
        { "", 0, "too few" },
        { "{}", 2, "too few" },
        { "PK\3\4........", 12, "torch.save" },
        { "\x80\2}q.......", 11, "pickle" },
        { "\x89PNG\r\n\x1a\n..", 10, "more than the format allows" },
        { "\x10\0\0\0\0\0\0\0{}", 10, "of which 2 are there" },
    };
    const char *path = temp_path("foreign");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_INT(aril__file_replace(path, bad[i].bytes, bad[i].n), ARIL_OK);
        CHECK(!aril_safetensors_open(path));
        CHECK_INT(aril_error_code(), ARIL_ERR_FORMAT);
        CHECK_MSG(strstr(aril_error(), bad[i].says) && strstr(aril_error(), "foreign"), "%s",
                  aril_error());
        aril_clear_error();
    }
    CHECK(!aril_safetensors_open("/no/such/file"));
    CHECK_INT(aril_error_code(), ARIL_ERR_IO);
    aril_clear_error();
    CHECK(!aril_safetensors_open("/"));
    CHECK_INT(aril_error_code(), ARIL_ERR_IO);
    aril_clear_error();
}

TEST(file_that_shrinks_while_open)
{
    ARIL_SCOPE;
    const char *path = temp_path("shrinks");
    CHECK_INT(aril_safetensors_save(
                  path, ARIL_TENSORS(aril_zeros(ARIL_SHAPE(100), ARIL_F32, test_device())), NULL),
              ARIL_OK);
    aril_safetensors *f = aril_safetensors_open(path);
    CHECK(f);
    CHECK(truncate(path, 200) == 0);
    CHECK_INT(aril_tensor_status(aril_safetensors_tensor(f, 0)), ARIL_ERR_IO);
    CHECK(strstr(aril_error(), "was truncated"));
    aril_clear_error();
    CHECK(!aril_safetensors_all(f));
    aril_clear_error();
    aril_safetensors_close(f);
}

TEST(safetensors_failed_allocations)
{
    ARIL_SCOPE;
    const char *path = temp_path("memory");
    aril_tensor *at[] = { aril_zeros(ARIL_SHAPE(100), ARIL_F32, test_device()), aril_scalar(1) };
    const char *name[] = { "a", "b" };
    aril_named two = { 2, at, name };
    aril_metadata meta = { 1, name, name };
    CHECK_INT(aril_safetensors_save(path, &two, &meta), ARIL_OK);
    bool failed = true;
    for (int n = 1; failed; n++) {
        ARIL_SCOPE;
        aril_fail_allocation(n);
        aril_safetensors_save(path, &two, &meta);
        aril_safetensors *f = aril_safetensors_open(path);
        const aril_named *all = f ? aril_safetensors_all(f) : NULL;
        failed = aril_allocation_failed();
        aril_fail_allocation(0);
        CHECK(failed == !aril_ok());
        CHECK(failed || (all && all->n == 2));
        CHECK_MSG(!failed || aril_error_code() == ARIL_ERR_MEMORY, "%s", aril_error());
        aril_clear_error();
        aril_safetensors_close(f);
        CHECK_INT(temp_count(), 1);
    }
}

/* ---- checksums ---- */

TEST(crc32_of_any_length_and_alignment)
{
    static unsigned char b[3000];
    for (size_t i = 0; i < sizeof b; i++) b[i] = (unsigned char)(i * 2654435761u >> 11);
    CHECK(aril__crc32(0, "123456789", 9) == 0xcbf43926);
    for (size_t n = 0; n < 2900; n += n < 700 ? 1 : 97)
        for (size_t at = 0; at < 3; at++) {
            uint32_t c = UINT32_MAX;
            for (size_t i = at; i < at + n; i++) {
                c ^= b[i];
                for (int k = 0; k < 8; k++) c = c & 1 ? c >> 1 ^ 0xedb88320u : c >> 1;
            }
            CHECK(aril__crc32(0, b + at, n) == ~c);
            CHECK(aril__crc32(aril__crc32(0, b + at, n / 3), b + at + n / 3, n - n / 3) == ~c);
        }
}
