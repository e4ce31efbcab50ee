/* Tables, text and arrays as datasets. */
#include "aril/aril.h"
#include "formats/atomic_file.h"
#include "formats/number.h"
#include "support/device.h"
#include "support/compare.h"
#include "support/temp.h"
#include "support/test.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- numbers ---- */

TEST(numbers_match_strtod)
{
    static const char *const good[] = {
        "0",
        "-0",
        "1",
        "+7",
        " 42 ",
        "3.25",
        ".5",
        "5.",
        "1e3",
        "1E-3",
        "1.7976931348623157e308",
        "4.9e-324",
        "1e400",
        "123456789012345678901234567890",
        "0.1",
        "0.30000000000000004",
        "9007199254740993",
        "1e22",
        "1e23",
        "8.5e-23",
        "0000000000000000000000001.5",
        "0.00000000000000000000000012345",
        "inf",
        "-Infinity",
        "2.2250738585072014e-308",
        "179769313486231570000000000000000000000",
        "1e-400",
        "7.2057594037927933e16",
    };
    static const char *const bad[] = { "",      " ", "abc", "1x",   "1e",  "1e+", "--1",
                                       "1.2.3", ".", "e5",  "0x10", "1 2", "in",  "-" };
    double v;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        CHECK_MSG(aril__parse_number(good[i], strlen(good[i]), &v), "%s", good[i]);
        CHECK_MSG(v == strtod(good[i], NULL), "%s: %.17g", good[i], v);
        CHECK(signbit(v) == signbit(strtod(good[i], NULL)));
    }
    CHECK(aril__parse_number("NaN", 3, &v) && isnan(v));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_MSG(!aril__parse_number(bad[i], strlen(bad[i]), &v), "%s", bad[i]);
    unsigned state = 1;
    for (int i = 0; i < 20000; i++) {
        char text[64];
        uint64_t bits = 0;
        for (int k = 0; k < 5; k++) {
            state = state * 1664525u + 1013904223u;
            bits = bits << 13 ^ state >> 8;
        }
        double want;
        memcpy(&want, &bits, sizeof want);
        if (!isfinite(want)) continue;
        snprintf(text, sizeof text, i % 2 ? "%.17g" : "%.6g", want);
        CHECK(aril__parse_number(text, strlen(text), &v));
        CHECK_MSG(v == strtod(text, NULL), "%s: %.17g", text, v);
    }
}

/* ---- CSV ---- */

static aril_dataset *csv(const char *text, aril_csv_opts opts)
{
    if (aril__file_replace(temp_path("t.csv"), text, strlen(text)) != ARIL_OK) return NULL;
    return aril_dataset_csv(temp_path("t.csv"), opts);
}

#define CSV(text, ...) csv(text, (aril_csv_opts){ __VA_ARGS__ })

/* Row i as text: "1 2 -> 0". */
static const char *row(aril_dataset *d, int64_t i)
{
    static char text[256];
    ARIL_SCOPE;
    aril_sample s;
    *text = 0;
    if (!d || aril_dataset_get(d, i, &s) != ARIL_OK) return *aril_error() ? aril_error() : "none";
    size_t n = 0;
    for (int64_t k = 0; k < aril_numel(s.x); k++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%g ", aril_item(aril_select(s.x, 0, k)));
    if (s.y && aril_dtype_of(s.y) == ARIL_I64)
        snprintf(text + n, sizeof text - n, "-> %lld", (long long)aril_item_int(s.y));
    else if (s.y)
        snprintf(text + n, sizeof text - n, "-> %g real", aril_item(s.y));
    return text;
}

TEST(csv_with_a_header_and_classes)
{
    aril_dataset *d = CSV("\xef\xbb\xbf"
                          "length, width ,species\r\n5.1,3.5,setosa\r\n\r\n4.9,-3e1,\"vir\"\"gin, "
                          "ica\"\r\n1,2,setosa",
                          0);
    CHECK_MSG(d, "%s", aril_error());
    CHECK_INT(aril_dataset_size(d), 3);
    CHECK_STR(row(d, 0), "5.1 3.5 -> 0");
    CHECK_STR(row(d, 1), "4.9 -30 -> 1");
    CHECK_STR(row(d, 2), "1 2 -> 0");
    const char *const *names;
    CHECK_INT(aril_dataset_classes(d, &names), 2);
    CHECK_STR(names[0], "setosa");
    CHECK_STR(names[1], "vir\"gin, ica");
    aril_dataset_release(d);

    const char *text = "id;y;a\n7;0.5;1\n8;2;3\n";
    d = CSV(text, .target = "y", .skip = "id");
    CHECK_STR(row(d, 0), "1 -> 0.5 real");
    aril_dataset_release(d);
    d = CSV(text, .target_column = 1);
    CHECK_STR(row(d, 1), "2 3 -> 8");
    aril_dataset_release(d);
    d = CSV(text, .target_column = -3, .real_target = true);
    CHECK_STR(row(d, 1), "2 3 -> 8 real");
    aril_dataset_release(d);
    d = CSV(text, .no_target = true);
    CHECK_STR(row(d, 1), "8 2 3 ");
    aril_dataset_release(d);
    const char *classes[] = { "b", "a" };
    d = CSV("x,y\n1,a\n2,b\n", .classes = classes, .n_classes = 2);
    CHECK_STR(row(d, 0), "1 -> 1");
    aril_dataset_release(d);
    d = CSV("1\t2\n3\t4\n", 0);
    CHECK_STR(row(d, 1), "3 -> 4");
    aril_dataset_release(d);
    d = CSV("1,2\n3,4\n", .header = ARIL_CSV_HEADER);
    CHECK_INT(aril_dataset_size(d), 1);
    aril_dataset_release(d);
    d = CSV("a,1\n,2\nNA,3\n", .header = ARIL_CSV_HEADER, .allow_missing = true);
    CHECK_STR(row(d, 0), "nan -> 2");
    aril_dataset_release(d);
    d = CSV("1,\"2\n\"\n", .no_target = true);
    CHECK(!d);
    aril_clear_error();
}

TEST(csv_targets_are_classes_or_numbers)
{
    const char *const *names;
    aril_dataset *d = CSV("x,price\n1,250000\n2,310000\n3,199000\n", 0);
    CHECK_STR(row(d, 1), "2 -> 310000 real"); /* prices are not classes, integers or not */
    aril_dataset_release(d);
    d = CSV("x,year\n1,0\n2,100\n", 0);
    CHECK_STR(row(d, 1), "2 -> 100 real");
    aril_dataset_release(d);
    char many[1024] = "x,y\n";
    for (int i = 0; i < 33; i++) sprintf(many + strlen(many), "0,%d\n", i);
    d = CSV(many, 0);
    CHECK_STR(row(d, 5), "0 -> 5 real");
    aril_dataset_release(d);
    *strrchr(many, '3') = '1'; /* the last label, 32, becomes 12: now there are 32 of them */
    d = CSV(many, 0);
    CHECK_STR(row(d, 5), "0 -> 5");
    aril_dataset_release(d);
    d = CSV("x,zip\n1,20095\n2,8001\n3,20095\n", .class_target = true);
    CHECK_STR(row(d, 0), "1 -> 1");
    CHECK_STR(row(d, 1), "2 -> 0");
    CHECK_INT(aril_dataset_classes(d, &names), 2);
    CHECK_STR(names[0], "8001"); /* in numeric order, not alphabetical */
    aril_dataset_release(d);
}

TEST(csv_columns_by_name)
{
    const char *const *names, *target;
    aril_dataset *d = CSV("b,price,a,id\n1,2.5,3,4\n", .target = "price", .skip = "id");
    CHECK_INT(aril_dataset_columns(d, &names, &target), 2);
    CHECK_STR(names[0], "b");
    CHECK_STR(names[1], "a");
    CHECK_STR(target, "price");
    d = aril_dataset_take(d, 1); /* through a derived dataset */
    CHECK_INT(aril_dataset_columns(d, &names, NULL), 2);
    aril_dataset *other =
        CSV("a,z,b\n7,8,9\n", .columns = names, .n_columns = 2, .no_target = true);
    CHECK_STR(row(other, 0), "9 7 ");
    aril_dataset_release(other);
    CHECK(!CSV("a,z\n7,8\n", .columns = names, .n_columns = 2, .no_target = true));
    CHECK_MSG(strstr(aril_error(), "has no column \"b\""), "%s", aril_error());
    aril_clear_error();
    aril_dataset_release(d);

    d = CSV("1,2,3\n4,5,6\n", .target = "2", .real_target = true); /* without a header: by number */
    CHECK_STR(row(d, 1), "4 6 -> 5 real");
    CHECK_INT(aril_dataset_columns(d, &names, &target), 2);
    CHECK_STR(names[1], "3");
    CHECK_STR(target, "2");
    other = CSV("7,8\n", .columns = names, .n_columns = 2, .no_target = true);
    CHECK_STR(row(other, 0), "7 8 ");
    aril_dataset_release(other);
    other = CSV("7,8,9\n", .columns = names, .n_columns = 2, .no_target = true);
    CHECK_STR(row(other, 0), "7 9 ");
    aril_dataset_release(other);
    aril_dataset_release(d);
    CHECK(!CSV("1,2\n", .target = "3"));
    CHECK_MSG(strstr(aril_error(), "has 2 columns, and no column 3"), "%s", aril_error());
    aril_clear_error();
}

TEST(csv_columns_with_the_same_name)
{
    const char *const *names, *target;
    static const char text[] = "x,x,,x\n1,2,3,4.5\n";
    aril_dataset *d = CSV(text, 0);
    CHECK_INT(aril_dataset_columns(d, &names, &target), 3);
    CHECK_STR(target, "4");
    aril_dataset *same = CSV(text, .columns = names, .n_columns = 3, .target = target);
    CHECK_STR(row(same, 0), row(d, 0));
    aril_dataset_release(same);
    aril_dataset_release(d);
    CHECK(!CSV(text, .target = "x"));
    CHECK_MSG(strstr(aril_error(), "has 3 columns called \"x\": give a number"), "%s",
              aril_error());
    aril_clear_error();
}

TEST(classes_are_matched_by_name)
{
    const char *const *names;
    CHECK(mkdir(temp_path("animals"), 0777) == 0);
    static const char train[] = "1,airplane\n2,frog\n3,horse\n", test[] = "5,horse\n6,frog\n",
                      other[] = "5,horse\n6,\33[31mcat\n";
    aril__file_replace(temp_path("animals/train.csv"), train, sizeof train - 1);
    aril__file_replace(temp_path("animals/test.csv"), test, sizeof test - 1);
    aril__file_replace(temp_path("animals/other.csv"), other, sizeof other - 1);
    aril_dataset *d = aril_dataset_open(temp_path("animals"), "train");
    CHECK_INT(aril_dataset_classes(d, &names), 3);
    aril_open_opts like = { .n_classes = 3, .classes = names };
    aril_dataset *t = aril_dataset_open_with(temp_path("animals"), "test", like);
    CHECK_STR(row(t, 0), "5 -> 2");
    CHECK_STR(row(t, 1), "6 -> 1");
    aril_dataset_release(t);
    CHECK(!aril_dataset_open_with(temp_path("animals"), "other", like));
    CHECK_MSG(strstr(aril_error(), "cat"), "%s", aril_error());
    CHECK(!strchr(aril_error(), 27)); /* no escape codes: messages are printed on terminals */
    aril_clear_error();

    /* For a dataset that was opened separately. */
    t = aril_dataset_match_classes(aril_dataset_open(temp_path("animals"), "test"), 3, names);
    CHECK_STR(row(t, 0), "5 -> 2");
    const char *const *now;
    CHECK_INT(aril_dataset_classes(t, &now), 3);
    CHECK_STR(now[0], "airplane");
    aril_dataset_release(t);
    CHECK(!aril_dataset_match_classes(aril_dataset_open(temp_path("animals"), "other"), 3, names));
    CHECK_MSG(strstr(aril_error(), "is not one of the 3 known classes: airplane, frog, horse"),
              "%s", aril_error());
    aril_clear_error();
    CHECK(!aril_dataset_match_classes(NULL, 3, names));
    CHECK(!aril_dataset_match_classes(aril_dataset_keep(d), 3, NULL));
    aril_clear_error();
    aril_dataset_release(d);
}

TEST(invalid_csv)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        { "", "is empty" },
        { "\n\n", "is empty" },
        { "a,b\n", "no rows" },
        { "1,2\n3\n", "t.csv:2: 1 values, and 2 in the first row" },
        { "a,b,c\n1,2,3\n\n4,x,5\n",
          "t.csv:4: column 2 (b): \"x\" is not a number: skip the column" },
        { "1,2,3\n4,,5\n", "t.csv:2: column 2: the value is missing" },
        { "1,2\n3,\n", "t.csv:2: column 2: the target is missing" },
        { "1,2\n\"3,4\n", "t.csv:2: column 1: a quote is opened" },
        { "1,2\n\"3\"x,4\n", "text follows a closing quote" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(!CSV(bad[i].text, 0));
        CHECK_INT(aril_error_code(), ARIL_ERR_FORMAT);
        CHECK_MSG(strstr(aril_error(), bad[i].says), "%s", aril_error());
        aril_clear_error();
    }
    CHECK(!CSV("length,width\n1,2\n", .target = "lenght"));
    CHECK_MSG(strstr(aril_error(), "did you mean length?"), "%s", aril_error());
    aril_clear_error();
    static const char *const no_column[] = { "id", "a,id", ",", "4", "0", "-9" };
    for (size_t i = 0; i < sizeof no_column / sizeof *no_column; i++) {
        CHECK(!CSV("a,b,c\n1,2,3\n", .skip = no_column[i]));
        CHECK_MSG(strstr(aril_error(), "no column"), "%s", aril_error());
        aril_clear_error();
    }
    CHECK(!CSV("a,b,c\n1,2,3\n", .skip = "a,b"));
    CHECK_MSG(strstr(aril_error(), "none remains for the inputs"), "%s", aril_error());
    aril_clear_error();
    CHECK(!CSV("1,2\n", .target = "x"));
    CHECK(strstr(aril_error(), "it has no header"));
    aril_clear_error();
    CHECK(!CSV("a,b,c\n1,2,3\n", .skip = "a,d"));
    CHECK_MSG(strstr(aril_error(), "has no column \"d\""), "%s", aril_error());
    aril_clear_error();
    CHECK(!CSV("1,2\n", .target_column = 3));
    aril_clear_error();
    CHECK(!CSV("1,2\n3,b\n", .real_target = true));
    aril_clear_error();
    const char *classes[] = { "a" };
    CHECK(!CSV("1,a\n3,b\n", .classes = classes, .n_classes = 1));
    CHECK(strstr(aril_error(), "label \"b\" is not one of the 1 classes"));
    aril_clear_error();
}

TEST(compressed_csv)
{
    static const unsigned char packed[] = { 31, 139, 8,   0,   0,  0,   0,  0,   2, 3,
                                            51, 212, 49,  226, 50, 214, 49, 225, 2, 0,
                                            71, 147, 108, 175, 8,  0,   0,  0 };
    CHECK_INT(aril__file_replace(temp_path("t.csv.gz"), packed, sizeof packed), ARIL_OK);
    aril_dataset *d = aril_dataset_open(temp_path("t.csv.gz"), "train");
    if (!d && aril_error_code() == ARIL_ERR_UNSUPPORTED) {
        aril_clear_error();
        SKIP("built without zlib");
    }
    CHECK_MSG(d, "%s", aril_error());
    CHECK_STR(row(d, 1), "3 -> 4");
    aril_dataset_release(d);
    CHECK(mkdir(temp_path("parts"), 0777) == 0); /* a split in a folder */
    CHECK_INT(aril__file_replace(temp_path("parts/test.csv.gz"), packed, sizeof packed), ARIL_OK);
    d = aril_dataset_open(temp_path("parts"), "test");
    CHECK_MSG(d, "%s", aril_error());
    CHECK_STR(row(d, 0), "1 -> 2");
    aril_dataset_release(d);
}

TEST(csv_does_not_depend_on_the_locale)
{
    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8")) SKIP("no German locale");
    aril_dataset *d = CSV("0.1234567890123456789,1\n", 0);
    setlocale(LC_NUMERIC, "C");
    CHECK_STR(row(d, 0), "0.123457 -> 1");
    aril_dataset_release(d);
}

/* ---- text ---- */

static const char *decoded(aril_dataset *d, aril_tensor *t)
{
    static char text[128];
    aril_text_decode(d, t, text, sizeof text);
    return text;
}

TEST(text_as_characters)
{
    ARIL_SCOPE;
    aril_dataset *d =
        aril_dataset_text_from("h\xc3\xa9llo world", (aril_text_opts){ .length = 4, .step = 3 });
    CHECK_MSG(d, "%s", aril_error());
    CHECK_INT(aril_dataset_size(d), 3); /* 11 characters: starting at 0, 3 and 6 */
    const char *const *names;
    CHECK_INT(aril_dataset_classes(d, &names), 8);
    CHECK_STR(names[0], " ");
    CHECK_STR(names[7], "\xc3\xa9");
    aril_sample s;
    CHECK_INT(aril_dataset_get(d, 0, &s), ARIL_OK);
    CHECK_STR(decoded(d, s.x), "h\xc3\xa9ll");
    CHECK_STR(decoded(d, s.y), "\xc3\xa9llo");
    CHECK_INT(aril_dataset_get(d, 2, &s), ARIL_OK);
    CHECK_STR(decoded(d, s.y), "orld");
    aril_tensor *code = aril_text_encode(d, "hello");
    CHECK_INT(aril_tensor_status(code), ARIL_ERR_ARG); /* no e without accent */
    aril_clear_error();
    code = aril_text_encode(d, "hold");
    CHECK_STR(decoded(d, code), "hold");
    CHECK_INT(aril_text_decode(d, code, NULL, 0), 4);
    char small[3];
    CHECK_INT(aril_text_decode(d, code, small, sizeof small), 4);
    CHECK_STR(small, "ho");
    aril_dataset *part = aril_dataset_range(aril_dataset_keep(d), 0, 2);
    CHECK_STR(decoded(part, code), "hold");
    aril_dataset_release(part);
    aril_loader *l = aril_loader_new(d, (aril_loader_opts){ .batch = 3 });
    aril_batch b;
    CHECK(aril_loader_next(l, &b));
    CHECK_INT(aril_size(b.x, 0), 3);
    CHECK_INT(aril_size(b.x, 1), 4);
    CHECK_STR(decoded(d, aril_select(b.x, 0, 1)), "lo w");
    CHECK_STR(decoded(d, aril_select(b.y, 0, 1)), "o wo");
    aril_loader_free(l);
}

TEST(text_as_words)
{
    ARIL_SCOPE;
    const char *text = "The cat, the dog.  THE don't\nthe cat";
    aril_text_opts opts = { .words = true, .lower = true, .length = 2 };
    aril_dataset *d = aril_dataset_text_from(text, opts);
    CHECK(d);
    const char *const *names;
    CHECK_INT(aril_dataset_classes(d, &names), 7);
    CHECK_STR(names[0], "<unk>");
    CHECK_STR(names[1], "the");
    CHECK_STR(names[2], "cat");
    CHECK_STR(names[6], "don't");
    aril_sample s;
    CHECK_INT(aril_dataset_get(d, 1, &s), ARIL_OK);
    CHECK_STR(decoded(d, s.x), ", the");
    CHECK_STR(decoded(d, s.y), "the dog");
    aril_dataset *other =
        aril_dataset_text_from("the Zebra cat dog", (aril_text_opts){ .like = d, .length = 3 });
    CHECK(other);
    CHECK_INT(aril_dataset_get(other, 0, &s), ARIL_OK);
    CHECK_STR(decoded(other, s.x), "the <unk> cat");
    aril_dataset_release(other);
    aril_dataset_release(d);
    opts.limit = 3;
    d = aril_dataset_text_from(text, opts);
    CHECK_INT(aril_dataset_classes(d, &names), 3);
    CHECK_INT(aril_dataset_get(d, 1, &s), ARIL_OK);
    CHECK_STR(decoded(d, s.x), "<unk> the");
    aril_dataset_release(d);
}

TEST(invalid_text)
{
    ARIL_SCOPE;
    CHECK(!aril_dataset_text_from("abc", (aril_text_opts){ .length = 3 }));
    CHECK(strstr(aril_error(), "has 3 characters; a sequence of 3 needs one more"));
    aril_clear_error();
    CHECK(!aril_dataset_text_from("", (aril_text_opts){ 0 }));
    aril_clear_error();
    CHECK(!aril_dataset_text_from("abcdef", (aril_text_opts){ .length = -3 }));
    aril_clear_error();
    aril_dataset *d = CSV("1,2\n", 0);
    CHECK(!aril_dataset_text_from("abcdef", (aril_text_opts){ .like = d, .length = 2 }));
    aril_clear_error();
    CHECK_INT(aril_tensor_status(aril_text_encode(d, "x")), ARIL_ERR_ARG);
    aril_clear_error();
    aril_dataset_release(d);
}

TEST(tiny_shakespeare)
{
    const char *data = getenv("ARIL_TEST_DATA");
    char path[512];
    snprintf(path, sizeof path, "%s/text/tinyshakespeare/input.txt",
             data ? data : "../shared/data");
    if (access(path, R_OK) != 0) SKIP("no %s", path);
    aril_dataset *d = aril_dataset_open(path, "train");
    CHECK_MSG(d, "%s", aril_error());
    CHECK_INT(aril_dataset_size(d), (1115394 - 64 - 1) / 64 + 1);
    CHECK_INT(aril_dataset_classes(d, NULL), 65);
    aril_dataset_release(d);
    d = aril_dataset_text(path, (aril_text_opts){ .words = true, .lower = true });
    CHECK(d);
    CHECK(aril_dataset_classes(d, NULL) > 10000);
    aril_dataset_release(d);
}

/* ---- arrays ---- */

TEST(arrays_as_datasets)
{
    ARIL_SCOPE;
    aril_tensor *images = aril_zeros(ARIL_SHAPE(5, 8, 6, 3), ARIL_U8, test_device());
    aril_tensor *at[] = { images, aril_zeros(ARIL_SHAPE(5, 1), ARIL_U8, test_device()),
                          aril_ones(ARIL_SHAPE(2, 7), ARIL_F64, test_device()),
                          aril_ones(ARIL_SHAPE(2), ARIL_I32, test_device()) };
    const char *name[] = { "x_train", "y_train", "x_test", "y_test" };
    aril_named four = { 4, at, name };
    const char *path = temp_path("d.npz");
    CHECK_INT(aril_npz_write(path, &four), ARIL_OK);
    aril_dataset *d = aril_dataset_open(path, "train");
    CHECK_MSG(d, "%s", aril_error());
    CHECK(aril_dataset_has_images(d));
    aril_shape s = aril_dataset_shape(d);
    CHECK(s.ndim == 3 && s.dim[0] == 3 && s.dim[1] == 8 && s.dim[2] == 6);
    aril_dataset_release(d);
    d = aril_dataset_open(path, "test");
    CHECK(d);
    CHECK_STR(row(d, 1), "1 1 1 1 1 1 1 -> 1");
    aril_dataset_release(d);
    d = aril_dataset_npz(path, "x_test", NULL);
    CHECK_INT(aril_dataset_size(d), 2);
    aril_dataset_release(d);
    CHECK(!aril_dataset_open(path, "val"));
    CHECK(strstr(aril_error(), "has no arrays x_val and y_val"));
    aril_clear_error();
    CHECK(!aril_dataset_npz(path, "x", "y_test"));
    CHECK(strstr(aril_error(), "it has x_train, y_train, x_test, y_test"));
    aril_clear_error();
    CHECK(!aril_dataset_npz(path, "x_train", "y_test"));
    CHECK(strstr(aril_error(), "do not match"));
    aril_clear_error();
    CHECK_INT(aril_npy_write(temp_path("d.npy"), at[2]), ARIL_OK);
    d = aril_dataset_open(temp_path("d.npy"), NULL);
    CHECK_INT(aril_dataset_size(d), 2);
    aril_dataset_release(d);
    at[0] = aril_zeros(ARIL_SHAPE(5, 8, 6), ARIL_U8, test_device()); /* of one channel */
    CHECK_INT(aril_npz_write(path, &four), ARIL_OK);
    d = aril_dataset_open(path, "train");
    CHECK_MSG(d && aril_ok(), "%s", aril_error());
    s = aril_dataset_shape(d);
    CHECK(aril_dataset_has_images(d) && s.ndim == 3 && s.dim[0] == 1 && s.dim[1] == 8);
    aril_dataset_release(d);
}

TEST(files_named_by_split)
{
    CHECK(mkdir(temp_path("set"), 0777) == 0);
    CHECK_INT(aril__file_replace(temp_path("set/iris_train.csv"), "1,2,0\n3,4,1\n", 12), ARIL_OK);
    CHECK_INT(aril__file_replace(temp_path("set/test.csv"), "5,6,0\n", 6), ARIL_OK);
    aril_dataset *d = aril_dataset_open(temp_path("set"), "train");
    CHECK_MSG(d, "%s", aril_error());
    CHECK_STR(row(d, 1), "3 4 -> 1");
    aril_dataset_release(d);
    d = aril_dataset_open(temp_path("set"), "test");
    CHECK_STR(row(d, 0), "5 6 -> 0");
    aril_dataset_release(d);
    CHECK(!aril_dataset_open(temp_path("set/test.csv"), "test"));
    CHECK(strstr(aril_error(), "has no split \"test\""));
    aril_clear_error();
}
