/* What h5py wrote, in the oldest and the newest format: every kind of array, type, link and
 * attribute that can be read. */
#include "aril/aril.h"
#include "files/hdf5.h"
#include "formats/atomic_file.h"
#include "formats/hdf5.h"
#include "support/temp.h"
#include "support/test.h"

static aril__bytes image;

static aril__hdf5 *opened(const char *name)
{
    aril__hdf5 *f =
        hdf5_file(name, &image) ? aril__hdf5_open_memory(image.at, image.n, name) : NULL;
    if (!f && strstr(aril_error(), "without zlib"))
        test_skip("without zlib");
    else if (!f)
        test_fail(__FILE__, __LINE__, "%s: %s", name, aril_error());
    return f;
}

static void closed(aril__hdf5 *f)
{
    aril__hdf5_close(f);
    aril__bytes_free(&image);
}

/* Elements i % 100. */
static void check_numbers(aril__hdf5 *f, const char *name, aril_dtype dtype)
{
    ARIL_SCOPE;
    int at = aril__hdf5_find(f, name);
    CHECK_MSG(at >= 0, "%s is missing", name);
    aril_tensor *t = aril__hdf5_array(f, at);
    CHECK_MSG(aril_tensor_status(t) == ARIL_OK, "%s: %s", name, aril_error());
    CHECK_INT(aril_dtype_of(t), dtype);
    CHECK_INT(aril__hdf5_array_dtype(f, at), dtype);
    aril_tensor *flat = aril_flatten(aril_cast(t, ARIL_F64), 0, -1);
    for (int64_t i = 0; i < aril_numel(t); i++) {
        double x = aril_item(aril_select(flat, 0, i));
        CHECK_MSG(x == (double)(i % 100), "%s: element %d is %g", name, (int)i, x);
    }
}

static void check_text(aril__hdf5 *f, bool is_array, const char *name, int n,
                       const char *const *expected)
{
    aril__hdf5_texts t;
    aril_status s =
        is_array ? aril__hdf5_text_array(f, name, &t) : aril__hdf5_attribute(f, "/", name, &t);
    bool good = s == ARIL_OK && t.n == n;
    for (int i = 0; i < n && good; i++) good = strcmp(t.at[i], expected[i]) == 0;
    aril__hdf5_texts_free(&t);
    CHECK_MSG(good, "%s: %s", name, aril_error() ? aril_error() : "other text");
}

static const struct {
    const char *name;
    aril_dtype dtype;
} arrays[] = {
    { "plain", ARIL_F32 },   { "big endian/f8", ARIL_F64 }, { "big endian/i2", ARIL_I16 },
    { "half", ARIL_F32 },    { "scalar", ARIL_I32 },        { "empty", ARIL_F32 },
    { "bool", ARIL_U8 },     { "link", ARIL_I16 },          { "group/back", ARIL_F32 },
    { "same", ARIL_F32 },    { "of type", ARIL_I32 },       { "compact", ARIL_F32 },
    { "filters", ARIL_I32 }, { "grown", ARIL_U8 },          { "rows", ARIL_U8 },
};

static void check_common(aril__hdf5 *f)
{
    static const char *const one[] = { "a text" }, *const many[] = { "first", "", "größe" },
                             *const fixed[] = { "ab", "abcdef" },
                             *const text[] = { "hello", "world" }, *const short_[] = { "x", "yz" };
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        check_numbers(f, arrays[i].name, arrays[i].dtype);
    ARIL_SCOPE;
    aril_tensor *fill = aril__hdf5_array(f, aril__hdf5_find(f, "fill"));
    CHECK_NEAR(aril_item(aril_amin(fill, ARIL_ALL)), 7, 0);
    CHECK_NEAR(aril_item(aril_amax(fill, ARIL_ALL)), 7, 0);
    check_text(f, false, "one", 1, one);
    check_text(f, false, "many", 3, many);
    check_text(f, false, "fixed", 2, fixed);
    check_text(f, false, "none", 0, NULL);
    check_text(f, false, "missing", 0, NULL);
    check_text(f, true, "text", 2, text);
    check_text(f, true, "fixed text", 2, short_);
    CHECK_INT(aril__hdf5_refused(f), 3);
    const char *problem;
    CHECK_STR(aril__hdf5_refused_name(f, 0, &problem), "complex");
    CHECK_STR(problem, "dtype complex or of records");
    CHECK_INT(aril__hdf5_find(f, "complex"), -1);
    aril__hdf5_texts t;
    CHECK(aril__hdf5_attribute(f, "/", "number", &t) < 0);
    CHECK_MSG(strstr(aril_error(), "attribute number of") && strstr(aril_error(), "not text"), "%s",
              aril_error());
    aril_clear_error();
    CHECK_INT(aril__hdf5_group(f, "big endian", &t), 0);
    bool two = t.n == 2 && strcmp(t.at[0], "f8") == 0;
    aril__hdf5_texts_free(&t);
    CHECK(two);
    CHECK_INT(aril__hdf5_group(f, "no group", &t), 1);
}

TEST(the_oldest_format)
{
    aril__hdf5 *f = opened("old.h5");
    if (!f) return;
    check_common(f);
    for (int i = 0; i < 40; i++) {
        char name[16];
        snprintf(name, sizeof name, "many/x%d", i);
        check_numbers(f, name, ARIL_U8);
    }
    closed(f);
}

TEST(the_newest_format)
{
    static const char *const indexed[] = { "single", "fixed array", "fixed array, filtered" };
    static const char *const value[] = { "value 11" };
    aril__hdf5 *f = opened("new.h5");
    if (!f) return;
    check_common(f);
    for (int i = 0; i < 3; i++) check_numbers(f, indexed[i], ARIL_F32);
    check_numbers(f, "pages", ARIL_U8);
    check_numbers(f, "implicit", ARIL_U8);
    check_numbers(f, "extensible, filtered", ARIL_I32);
    check_numbers(f, "tree, filtered", ARIL_I32);
    check_numbers(f, "many/x299", ARIL_F32);
    check_text(f, false, "a11", 1, value);
    aril__hdf5_texts t;
    CHECK_INT(aril__hdf5_attribute(f, "/", "long", &t), ARIL_OK);
    bool good = t.n == 50 && strlen(t.at[49]) == 100;
    aril__hdf5_texts_free(&t);
    CHECK(good);
    closed(f);
}

/* A hard link is another name of an array, which is read once. */
TEST(hard_links_share_memory)
{
    ARIL_SCOPE;
    const char *names[] = { "old.h5", "new.h5" };
    for (int k = 0; k < 2; k++) {
        aril__hdf5 *f = opened(names[k]);
        if (!f) return;
        CHECK_INT(aril__file_replace(temp_path("x.h5"), image.at, image.n), ARIL_OK);
        closed(f);
        aril_weights *w = aril_weights_open(temp_path("x.h5"), (aril_weights_opts){ 0 });
        CHECK_MSG(w, "%s", aril_error());
        int a = aril_weights_find(w, "plain"), b = aril_weights_find(w, "same"),
            c = aril_weights_find(w, "half");
        CHECK(a >= 0 && b >= 0 && c >= 0);
        CHECK_INT(aril_weights_shared(w, b), a);
        CHECK_INT(aril_weights_shared(w, c), c);
        aril_tensor *x = aril_weights_tensor(w, b), *y = aril_weights_tensor(w, a);
        CHECK(aril_shares_memory(x, y) && !aril_shares_memory(x, aril_weights_tensor(w, c)));
        aril_weights_close(w);
        CHECK_INT(aril_item(aril_select(aril_flatten(x, 0, -1), 0, 3)), 3);
    }
}

/* Files of a few hundred bytes whose arrays would take hundreds of megabytes. */
TEST(more_than_a_file_can_hold_is_an_error)
{
    static const char *const names[] = { "large.h5", "repeated.h5" }, *const errors[] = {
        "unpacks to more than the", "repeats arrays"
    };
    for (int k = 0; k < 2; k++) {
        aril__hdf5 *f = opened(names[k]);
        if (!f) return;
        CHECK_INT(aril__file_replace(temp_path("x.h5"), image.at, image.n), ARIL_OK);
        closed(f);
        CHECK(!aril_weights_open(temp_path("x.h5"), (aril_weights_opts){ 0 }));
        CHECK_MSG(strstr(aril_error(), errors[k]), "%s", aril_error());
        aril_clear_error();
    }
}

/* Each allocation in turn, of a sample of them, fails: an error, and nothing else. */
TEST(lost_memory_is_an_error)
{
    int tried = 0;
    if (!hdf5_file("new.h5", &image)) SKIP("without zlib");
    for (int n = 1;; n += 1 + n / 20, tried++) {
        ARIL_SCOPE;
        aril__hdf5_texts t = { 0 };
        aril_fail_allocation(n);
        aril__hdf5 *f = aril__hdf5_open_memory(image.at, image.n, "new.h5");
        bool good = f && aril__hdf5_attribute(f, "/", "many", &t) == ARIL_OK && t.n == 3;
        aril__hdf5_texts_free(&t);
        good = good && aril__hdf5_text_array(f, "text", &t) == ARIL_OK && t.n == 2;
        aril__hdf5_texts_free(&t);
        good = good && aril__hdf5_group(f, "big endian", &t) == 0 && t.n == 2;
        aril__hdf5_texts_free(&t);
        for (int i = 0; good && i < aril__hdf5_count(f); i++)
            good = aril_tensor_status(aril__hdf5_array(f, i)) == ARIL_OK;
        bool failed = aril_allocation_failed();
        aril_fail_allocation(0);
        aril__hdf5_close(f);
        bool told = good || aril_error_code() == ARIL_ERR_MEMORY;
        CHECK_MSG(told, "allocation %d: %s", n, aril_error());
        aril_clear_error();
        if (!failed) break;
    }
    aril__bytes_free(&image);
    CHECK(tried > 20);
}
