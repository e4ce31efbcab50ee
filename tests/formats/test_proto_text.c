/* The text form of protocol buffers. */
#include "formats/schemas.h"
#include "support/test.h"

#include <aril/aril.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static aril__message *parse(const aril__proto_type *type, const char *text)
{
    return aril__message_parse(type, text, strlen(text), (aril__message_opts){ .name = "net" });
}

/* Parses a solver; a failure is reported by the caller's CHECK. */
static aril__message *solver(const char *text)
{
    return parse(&aril__caffe_SolverParameter, text);
}

TEST(a_net)
{
    aril__message *net =
        parse(&aril__caffe_NetParameter,
              "# LeNet\n"
              "name: \"Le\" 'Net'  # adjacent strings are one\n"
              "layer {\n"
              "  name: \"conv1\", type: \"Convolution\";\n"
              "  convolution_param: < num_output: 20 kernel_size: [5, 0x5, 05]\n"
              "    weight_filler { type: 'xavier' variance_norm: AVERAGE } >\n"
              "}\n"
              "layer { loss_weight: [] include { phase: TRAIN } include { phase: 1 } }\n"
              "input_shape: [{ dim: 1 dim: 3 }, { dim: [2, 4] }]\n"
              "state < > force_backward: True");
    CHECK_MSG(net, "%s", aril_error());
    CHECK_STR(aril__message_text(net, "name"), "LeNet");
    CHECK_INT(aril__message_count(net, "layer"), 2);
    const aril__message *layer = aril__message_sub_at(net, "layer", 0);
    const aril__message *conv = aril__message_sub(layer, "convolution_param");
    CHECK_INT(aril__message_int(conv, "num_output"), 20);
    CHECK_INT(aril__message_count(conv, "kernel_size"), 3);
    CHECK_INT(aril__message_int_at(conv, "kernel_size", 2), 5);
    CHECK_STR(aril__message_value(aril__message_sub(conv, "weight_filler"), "variance_norm"),
              "AVERAGE");
    char place[40];
    CHECK_STR(aril__message_place(layer, place, sizeof place), "line 3");
    layer = aril__message_sub_at(net, "layer", 1);
    CHECK_STR(aril__message_value(aril__message_sub_at(layer, "include", 1), "phase"), "TEST");
    CHECK_INT(aril__message_count(layer, "loss_weight"), 0);
    CHECK_INT(aril__message_int_at(aril__message_sub_at(net, "input_shape", 1), "dim", 1), 4);
    CHECK(aril__message_has(net, "state") && aril__message_int(net, "force_backward"));
    aril__message_free(net);
}

TEST(numbers)
{
    static const struct {
        const char *text;
        double value;
    } good[] = {
        { "1", 1 },
        { "-1", -1 },
        { "- 2.5", -2.5 },
        { ".5", 0.5 },
        { "5.", 5 },
        { "1e3", 1000 },
        { "1E-2", 0.01f },
        { "1f", 1 },
        { "1.5F", 1.5 },
        { "inf", INFINITY },
        { "-inf", -INFINITY },
        { "Infinity", INFINITY },
        { "nan", NAN },
        { "NaN", NAN },
        { "1e-3f", 0.001f },
        { "1e100", INFINITY },
        { "0.1", 0.1f },
        { "16777217", 16777216 },
    };
    char text[64];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        snprintf(text, sizeof text, "base_lr: %s", good[i].text);
        aril__message *m = solver(text);
        CHECK_MSG(m, "%s: %s", text, aril_error());
        CHECK_NEAR(aril__message_number(m, "base_lr"), good[i].value, 0);
        aril__message_free(m);
    }
    static const char *const wrong[] = { "base_lr: 1x",   "base_lr: 0x10", "base_lr: \"1\"",
                                         "base_lr: on",   "base_lr: --1",  "base_lr: 1e",
                                         "base_lr: 1..2", "base_lr: .",    "base_lr: +1" };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_MSG(!solver(wrong[i]), "%s", wrong[i]);
        CHECK_MSG(strstr(aril_error(), "net:1:"), "%s", aril_error());
        aril_clear_error();
    }
}

TEST(integers_and_their_ranges)
{
    aril__message *m = solver("max_iter: -2147483648 display: 0x7fffffff random_seed: 0777 "
                              "test_iter: 2147483647 device_id: - 5");
    CHECK_MSG(m, "%s", aril_error());
    CHECK_INT(aril__message_int(m, "max_iter"), INT32_MIN);
    CHECK_INT(aril__message_int(m, "display"), INT32_MAX);
    CHECK_INT(aril__message_int(m, "random_seed"), 511);
    CHECK_INT(aril__message_int(m, "device_id"), -5);
    aril__message_free(m);
    m = solver("random_seed: -9223372036854775808");
    CHECK(m && aril__message_int(m, "random_seed") == INT64_MIN);
    aril__message_free(m);
    static const char *const wrong[] = {
        "max_iter: 2147483648",
        "max_iter: -2147483649",
        "random_seed: 9223372036854775808",
        "max_iter: 1.5",
        "max_iter: 08",
        "max_iter: 0x",
        "random_seed: 99999999999999999999999999",
        "max_iter: true",
        "test_initialization: 2",
        "test_initialization: yes",
        "solver_mode: 99999999999",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_MSG(!solver(wrong[i]), "%s", wrong[i]);
        aril_clear_error();
    }
    CHECK(!parse(&aril__caffe_PermuteParameter, "order: -1"));
    CHECK_MSG(strstr(aril_error(), "net:1:9: order: expected an integer from 0 to 4294967295, "
                                   "got -1"),
              "%s", aril_error());
    aril_clear_error();
}

TEST(strings)
{
    static const struct {
        const char *text, *value;
        size_t n;
    } good[] = {
        { "\"\"", "", 0 },
        { "'it\\'s'", "it's", 4 },
        { "\"a\\n\\r\\t\\a\\b\\f\\v\\\\\\\"\\?\"", "a\n\r\t\a\b\f\v\\\"?", 11 },
        { "\"\\101\\7\\0018\"", "A\7\0018", 4 },
        { "\"\\x41\\xfg\"", "A\xfg", 3 },
        { "\"\\u00e9\\U0001F600\"", "\xc3\xa9\xf0\x9f\x98\x80", 6 },
        { "\"a\\0b\"", "a\0b", 3 },
        { "\"# no comment\"", "# no comment", 12 },
        { "\"a\" # comment\n 'b'\t\"c\"", "abc", 3 },
        { "\"\xc3\xa9\xff\"", "\xc3\xa9\xff", 3 },
    };
    char text[128];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        snprintf(text, sizeof text, "net: %s type: 'SGD'", good[i].text);
        aril__message *m = solver(text);
        CHECK_MSG(m, "%s: %s", text, aril_error());
        aril__slice s = aril__message_bytes(m, "net");
        CHECK_MSG(s.n == good[i].n && memcmp(s.at, good[i].value, s.n) == 0, "%s", text);
        aril__bytes b = { 0 };
        CHECK_INT(aril__message_print(m, &b), ARIL_OK);
        aril__message *back = solver((const char *)b.at);
        CHECK_MSG(back && aril__message_equal(m, back), "%s", b.at);
        aril__bytes_free(&b);
        aril__message_free(m);
        aril__message_free(back);
    }
    static const char *const wrong[] = {
        "\"open",         "\"line\nbreak\"", "\"\\q\"", "\"\\x\"", "\"\\u12\"",
        "\"\\ud800\"",    "\"\\777\"",       "\"\\",    "word",    "12",
        "\"\\U00110000\""
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(text, sizeof text, "net: %s", wrong[i]);
        CHECK_MSG(!solver(text), "%s", text);
        CHECK_MSG(strstr(aril_error(), "net:1:6: "), "%s", aril_error());
        aril_clear_error();
    }
}

TEST(errors_say_where_and_what_is_near)
{
    static const struct {
        const char *text, *error;
    } wrong[] = {
        { "layer {\n  convolution_param { kernel_sise: 3 } }",
          "net:2:23: ConvolutionParameter has no field 'kernel_sise'; did you mean kernel_size?" },
        { "layer { include { phase: TRIAN } }",
          "net:1:26: phase: Phase has no value 'TRIAN'; did you mean TRAIN?" },
        { "layer { include { phase: X } }",
          "net:1:26: phase: Phase has no value 'X'; expected TRAIN, TEST" },
        { "layer {\n  eltwise_param { operation: 7 } }",
          "net:2:30: operation: EltwiseParameter_EltwiseOp has no value 7; expected PROD, SUM, "
          "MAX" },
        { "layer { phase: 0x2 }", "net:1:16: phase: Phase has no value 2; expected" },
        { "layer { phase: -1 }", "net:1:16: phase: Phase has no value -1; expected" },
        { "layer { phase: 4294967296 }", "net:1:16: phase: expected an integer from -2147483648" },
        { "layers { blob_share_mode: [0, 2] }",
          "net:1:31: blob_share_mode: DimCheckMode has no value 2; expected STRICT, PERMISSIVE" },
        { "name: \"a\" name: \"b\"", "net:1:11: name of NetParameter is given twice" },
        { "layer {\n\n", "net:3:1: expected a field or '}', got the end of the file" },
        { "layer <", "expected a field or '>'" },
        { "layer }", "net:1:7: layer: expected a message in { }, got '}'" },
        { "name \"x\"", "net:1:6: expected ':', got '\"x\"'" },
        { "}", "net:1:1: expected the name of a field, got '}'" },
        { "name: [\"x\"]", "net:1:7: expected a string in quotes, got '['" },
        { "input: [\"x\" \"y\", \"z\"", "expected ',' or ']', got the end of the file" },
        { "input: [\"x\", ]", "expected a string in quotes, got ']'" },
        { "name: ", "net:1:7: expected a string in quotes, got the end of the file" },
        { "\xef\xbb\xbf", "net:1:1: expected the name of a field" },
        { "layer { clip_param { min: 1 } }",
          "net: 'max' of the ClipParameter at line 1 is required, but missing" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_MSG(!parse(&aril__caffe_NetParameter, wrong[i].text), "%s", wrong[i].text);
        CHECK_INT(aril_error_code(), ARIL_ERR_FORMAT);
        CHECK_MSG(strstr(aril_error(), wrong[i].error), "%s\n  want: %s", aril_error(),
                  wrong[i].error);
        aril_clear_error();
    }
    CHECK(!parse(&aril__caffe_SolverParameter, "solver_type: 9"));
    CHECK_MSG(strstr(aril_error(), "SolverParameter_SolverType has no value 9; expected SGD"), "%s",
              aril_error());
    aril_clear_error();
    CHECK(!parse(&aril__onnx_TypeProto, "tensor_type { } map_type { }"));
    CHECK_MSG(strstr(aril_error(), "excludes a field given before"), "%s", aril_error());
    aril_clear_error();
}

TEST(depth_and_long_words)
{
    size_t n = 100000;
    char *text = malloc(n * 16 + 1);
    CHECK(text);
    size_t at = 0;
    for (size_t i = 0; i < n; i++) at += (size_t)sprintf(text + at, "optional_value{");
    CHECK(!aril__message_parse(&aril__onnx_OptionalProto, text, at, (aril__message_opts){ 0 }));
    CHECK_MSG(strstr(aril_error(), "nested too deeply"), "%s", aril_error());
    aril_clear_error();
    at = 99 * strlen("optional_value{");
    memset(text + at, '}', 99);
    aril__message *m =
        aril__message_parse(&aril__onnx_OptionalProto, text, at + 99, (aril__message_opts){ 0 });
    CHECK_MSG(m, "%s", aril_error());
    aril__message_free(m);
    static const char letters[] = "a1\"[{-.";
    for (const char *c = letters; *c; c++) { /* tokens of more than a megabyte */
        memset(text, *c, n * 16);
        CHECK(!aril__message_parse(&aril__caffe_NetParameter, text, n * 16,
                                   (aril__message_opts){ 0 }));
        CHECK_MSG(strlen(aril_error()) < 600, "%zu", strlen(aril_error()));
        aril_clear_error();
    }
    free(text);
}

TEST(numbers_print_shortly_in_every_locale)
{
    static const char *const locales[] = { "C", "de_DE.UTF-8", "fr_FR.UTF-8" };
    for (int i = 0; i < 3; i++) {
        if (!setlocale(LC_ALL, locales[i])) continue;
        aril__message *m = solver("base_lr: 0.01 momentum: 0.9 delta: 1e-08 gamma: 16777216 "
                                  "power: 3.4028235e+38 weight_decay: 1e-45 clip_gradients: -0.0");
        CHECK_MSG(m, "%s", aril_error());
        aril__bytes b = { 0 };
        CHECK_INT(aril__message_print(m, &b), ARIL_OK);
        CHECK_STR((const char *)b.at, "base_lr: 0.01\ngamma: 16777216\npower: 3.4028235e+38\n"
                                      "momentum: 0.9\nweight_decay: 1.4013e-45\ndelta: 1e-08\n"
                                      "clip_gradients: -0\n");
        aril__bytes_free(&b);
        aril__message_free(m);
    }
    setlocale(LC_ALL, "C");
}

/* Errors in a single value name its line; those in a repeated one the line of the message. */
TEST(fields_know_their_lines)
{
    char buf[40];
    aril__message *m = solver("net: 'a'\n\nlr_policy:\n  'fixed' test_iter: 1\n test_iter: 2");
    CHECK_MSG(m, "%s", aril_error());
    CHECK_STR(aril__message_field_place(m, "net", buf, sizeof buf), "line 1");
    CHECK_STR(aril__message_field_place(m, "lr_policy", buf, sizeof buf), "line 3");
    CHECK_STR(aril__message_field_place(m, "test_iter", buf, sizeof buf), "line 1");
    CHECK_STR(aril__message_field_place(m, "base_lr", buf, sizeof buf), "line 1");
    CHECK_INT(aril__message_count(m, "test_iter"), 2);
    aril__message_free(m);
}

TEST(an_empty_message_is_an_empty_text)
{
    aril__bytes b = { 0 };
    aril__message *m = solver("  # nothing\n");
    CHECK_MSG(m, "%s", aril_error());
    CHECK_INT(aril__message_print(m, &b), ARIL_OK);
    CHECK_STR((const char *)b.at, "");
    aril__bytes_free(&b);
    aril__message_free(m);
}

TEST(every_truncation_ends)
{
    static const char text[] =
        "name: \"x\\x41\" # c\nlayer { top: ['a', \"b\"] param < lr_mult: -1e-3 "
        "> include { phase: TEST } } force_backward: true";
    for (size_t n = 0; n < sizeof text - 1; n++) {
        char *part = malloc(n ? n : 1);
        CHECK(part);
        memcpy(part, text, n);
        aril__message *m =
            aril__message_parse(&aril__caffe_NetParameter, part, n, (aril__message_opts){ 0 });
        CHECK(m || aril_error_code() == ARIL_ERR_FORMAT);
        aril_clear_error();
        aril__message_free(m);
        free(part);
    }
}
