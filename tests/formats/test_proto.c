/* Messages of protocol buffers: in memory, and in wire form. */
#include "formats/schemas.h"
#include "support/temp.h"
#include "support/test.h"

#include <aril/aril.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- a schema with one field of each kind ---- */

extern const aril__proto_type all_type;

static const aril__proto_value color_values[] = { { "RED", 1 }, { "GREEN", 2 }, { "DARK", -5 } };
static const aril__proto_enum color = { "Color", color_values, 3, false };

#define ONE(n, k, ...)                                                \
    {                                                                 \
        .name = #k, .number = n, .kind = ARIL__PROTO_##k, __VA_ARGS__ \
    }
#define MANY(n, k, ...)                                                                      \
    {                                                                                        \
        .name = #k "s", .number = n, .kind = ARIL__PROTO_##k, .label = ARIL__PROTO_REPEATED, \
        __VA_ARGS__                                                                          \
    }
#define PACK(n, k, ...)                                                                          \
    {                                                                                            \
        .name = #k "_packed", .number = n, .kind = ARIL__PROTO_##k, .label = ARIL__PROTO_PACKED, \
        __VA_ARGS__                                                                              \
    }

static const aril__proto_field all_fields[] = {
    ONE(1, double, .oneof = 0),
    ONE(2, float, .initial = "0.75"),
    ONE(3, int32, .initial = "-7"),
    ONE(4, int64, .oneof = 0),
    ONE(5, uint32, .oneof = 0),
    ONE(6, uint64, .oneof = 0),
    ONE(7, sint32, .oneof = 0),
    ONE(8, sint64, .oneof = 0),
    ONE(9, fixed32, .oneof = 0),
    ONE(10, fixed64, .oneof = 0),
    ONE(11, sfixed32, .oneof = 0),
    ONE(12, sfixed64, .oneof = 0),
    ONE(13, bool, .initial = "true"),
    ONE(14, enum, .of = &color, .initial = "GREEN"),
    ONE(15, string, .initial = "none"),
    ONE(16, bytes, .oneof = 0),
    ONE(17, message, .of = &all_type),
    MANY(21, double, .oneof = 0),
    MANY(22, float, .oneof = 0),
    MANY(23, int32, .oneof = 0),
    MANY(24, int64, .oneof = 0),
    MANY(27, sint32, .oneof = 0),
    MANY(33, bool, .oneof = 0),
    MANY(34, enum, .of = &color),
    MANY(35, string, .oneof = 0),
    MANY(36, bytes, .oneof = 0),
    MANY(37, message, .of = &all_type),
    PACK(41, double, .oneof = 0),
    PACK(42, float, .oneof = 0),
    PACK(43, int32, .oneof = 0),
    PACK(44, int64, .oneof = 0),
    PACK(45, uint32, .oneof = 0),
    PACK(46, uint64, .oneof = 0),
    PACK(47, sint32, .oneof = 0),
    PACK(48, sint64, .oneof = 0),
    PACK(49, fixed32, .oneof = 0),
    PACK(50, fixed64, .oneof = 0),
    PACK(51, sfixed32, .oneof = 0),
    PACK(52, sfixed64, .oneof = 0),
    PACK(53, bool, .oneof = 0),
    PACK(54, enum, .of = &color),
    { .name = "first", .number = 61, .kind = ARIL__PROTO_int32, .oneof = 1 },
    { .name = "second", .number = 62, .kind = ARIL__PROTO_string, .oneof = 1 },
    { .name = "third", .number = 63, .kind = ARIL__PROTO_message, .of = &all_type, .oneof = 1 },
};
const aril__proto_type all_type = { .name = "All",
                                    .field = all_fields,
                                    .n = sizeof all_fields / sizeof *all_fields,
                                    .empty = { .type = &all_type } };

static aril__message *read_all(const void *data, size_t n)
{
    return aril__message_read(&all_type, data, n, (aril__message_opts){ 0 });
}

/* ---- wire form ---- */

TEST(encoded_bytes_match_the_format)
{
    static const uint8_t want[] = { 0x20, 0x96, 0x01, /* 4: 150 */
                                    0x7a, 0x07, 't',  'e',  's',  't',  'i',  'n',
                                    'g', /* 15: text */
                                    0x8a, 0x01, 0x05, 0x15, 0x00, 0x00, 0x80, 0x3f };
    /* 17: { 2: 1.0f } */
    aril__message *m = aril__message_new(&all_type);
    aril__message_set_number(aril__message_set_sub(m, "message"), "float", 1);
    aril__message_set_text(m, "string", "testing");
    aril__message_set_int(m, "int64", 150);
    aril__bytes b = { 0 };
    CHECK_INT(aril__message_write(m, &b), ARIL_OK);
    CHECK_INT(b.n, sizeof want);
    CHECK(memcmp(b.at, want, sizeof want) == 0);
    aril__bytes_free(&b);
    aril__message_free(m);
}

static void fill(aril__message *m)
{
    static const int64_t ints[] = { 0, 1, -1, 127, 128, INT32_MAX, INT32_MIN };
    static const double numbers[] = { 0, -0.0, 1.5, -2.25, (double)INFINITY };
    aril__message_set_number(m, "double", 0.1);
    aril__message_set_number(m, "float", -1.5);
    aril__message_set_int(m, "int32", INT32_MIN);
    aril__message_set_int(m, "int64", INT64_MIN);
    aril__message_set_int(m, "uint32", UINT32_MAX);
    aril__message_set_int(m, "uint64", -1);
    aril__message_set_int(m, "sint32", INT32_MIN);
    aril__message_set_int(m, "sint64", INT64_MIN);
    aril__message_set_int(m, "fixed32", UINT32_MAX);
    aril__message_set_int(m, "fixed64", -2);
    aril__message_set_int(m, "sfixed32", -3);
    aril__message_set_int(m, "sfixed64", -4);
    aril__message_set_int(m, "bool", 0);
    aril__message_set_int(m, "enum", -5);
    aril__message_set_text(m, "string", "h\xc3\xa9las \"\\\n");
    aril__message_set_bytes(m, "bytes", "\0\xff\x80 x", 5);
    static const char *const many[] = { "int32s", "int64s", "sint32s" };
    static const char *const packed[] = { "int32_packed",    "int64_packed",   "uint32_packed",
                                          "uint64_packed",   "sint32_packed",  "sint64_packed",
                                          "fixed32_packed",  "fixed64_packed", "sfixed32_packed",
                                          "sfixed64_packed", "bool_packed" };
    for (int i = 0; i < 3; i++) aril__message_set_ints(m, many[i], ints, 7);
    for (int i = 0; i < 11; i++) aril__message_set_ints(m, packed[i], ints, 7);
    aril__message_set_doubles(m, "doubles", numbers, 5);
    aril__message_set_doubles(m, "floats", numbers, 5);
    aril__message_set_doubles(m, "double_packed", numbers, 5);
    aril__message_set_doubles(m, "float_packed", numbers, 5);
    aril__message_add_int(m, "bools", 1);
    aril__message_add_int(m, "bools", 0);
    aril__message_add_int(m, "enums", 1);
    aril__message_add_int(m, "enum_packed", 2);
    aril__message_add_int(m, "enum_packed", -5);
    for (int i = 0; i < 3; i++) aril__message_add_text(m, "strings", i ? "word" : "");
    aril__message_add_bytes(m, "bytess", "ab\0c", 4);
    aril__message_set_text(m, "second", "of two");
}

TEST(every_kind_goes_through_wire_and_text)
{
    aril__message *m = aril__message_new(&all_type);
    fill(m);
    fill(aril__message_set_sub(m, "message"));
    for (int i = 0; i < 3; i++) fill(aril__message_add_sub(m, "messages"));
    aril__bytes wire = { 0 }, again = { 0 }, text = { 0 };
    CHECK_INT(aril__message_write(m, &wire), ARIL_OK);
    aril__message *back = read_all(wire.at, wire.n);
    CHECK_MSG(back, "%s", aril_error());
    CHECK(aril__message_equal(m, back));
    CHECK_INT(aril__message_write(back, &again), ARIL_OK);
    CHECK(again.n == wire.n && memcmp(again.at, wire.at, wire.n) == 0);
    CHECK_INT(aril__message_print(m, &text), ARIL_OK);
    aril__message *parsed =
        aril__message_parse(&all_type, (const char *)text.at, text.n, (aril__message_opts){ 0 });
    CHECK_MSG(parsed, "%s", aril_error());
    CHECK(aril__message_equal(m, parsed));
    CHECK_INT(aril__message_save(parsed, temp_path("x.pb")), ARIL_OK);
    again.n = 0;
    aril__bytes_free(&again);
    CHECK_INT(aril__read_file("test", temp_path("x.pb"), 0, &again), ARIL_OK);
    CHECK(again.n == wire.n && memcmp(again.at, wire.at, wire.n) == 0);

    CHECK_INT(aril__message_int(back, "int32"), INT32_MIN);
    CHECK_INT(aril__message_int(back, "int64"), INT64_MIN);
    CHECK_INT(aril__message_int(back, "uint32"), UINT32_MAX);
    CHECK_NEAR(aril__message_number(back, "uint64"), 18446744073709551615.0, 0);
    CHECK_INT(aril__message_int(back, "sint32"), INT32_MIN);
    CHECK_INT(aril__message_int(back, "sint64"), INT64_MIN);
    CHECK_INT(aril__message_int(back, "fixed32"), UINT32_MAX);
    CHECK_INT(aril__message_int(back, "sfixed32"), -3);
    CHECK_INT(aril__message_int(back, "sfixed64"), -4);
    CHECK_INT(aril__message_int(back, "bool"), 0);
    CHECK_STR(aril__message_value(back, "enum"), "DARK");
    CHECK_STR(aril__message_text(back, "string"), "h\xc3\xa9las \"\\\n");
    CHECK_INT(aril__message_bytes(back, "bytes").n, 5);
    CHECK_INT(aril__message_int_at(back, "sint32_packed", 6), INT32_MIN);
    CHECK_INT(aril__message_int_at(back, "enum_packed", 1), -5);
    CHECK(signbit(aril__message_number_at(back, "floats", 1)));
    CHECK_INT(aril__message_count(back, "messages"), 3);
    CHECK_STR(aril__message_text_at(aril__message_sub_at(back, "messages", 2), "strings", 2),
              "word");
    aril__bytes_free(&wire);
    aril__bytes_free(&again);
    aril__bytes_free(&text);
    aril__message_free(m);
    aril__message_free(back);
    aril__message_free(parsed);
}

TEST(packed_and_unpacked_are_both_read)
{
    static const uint8_t mixed[] = {
        0xb8, 0x01, 0x05,                         /* int32s, not packed */
        0xba, 0x01, 0x03, 0x06, 0x96, 0x01,       /* int32s, packed: 6, 150 */
        0xd8, 0x02, 0x07,                         /* int32_packed, not packed */
        0xda, 0x02, 0x00,                         /* none */
        0xda, 0x02, 0x01, 0x08,                   /* packed */
        0xd2, 0x02, 0x04, 0x00, 0x00, 0x80, 0x3f, /* float_packed: 1 */
        0xd5, 0x02, 0x00, 0x00, 0x00, 0x40,       /* not packed: 2 */
        0xd2, 0x02, 0x04, 0x00, 0x00, 0x40, 0x40, /* 3 */
    };
    aril__message *m = read_all(mixed, sizeof mixed);
    CHECK_MSG(m, "%s", aril_error());
    CHECK_INT(aril__message_count(m, "int32s"), 3);
    CHECK_INT(aril__message_int_at(m, "int32s", 2), 150);
    CHECK_INT(aril__message_count(m, "int32_packed"), 2);
    CHECK_INT(aril__message_int_at(m, "int32_packed", 1), 8);
    CHECK_INT(aril__message_count(m, "float_packed"), 3);
    for (size_t i = 0; i < 3; i++)
        CHECK_NEAR(aril__message_number_at(m, "float_packed", i), (double)i + 1, 0);
    aril__message_free(m);
}

TEST(later_values_replace_and_messages_merge)
{
    static const uint8_t twice[] = {
        0x20, 0x01, 0x20, 0x02,                   /* int64: 1, then 2 */
        0x8a, 0x01, 0x04, 0x18, 0x05, 0x20, 0x06, /* message { int32: 5 int64: 6 } */
        0x8a, 0x01, 0x02, 0x18, 0x07,             /* message { int32: 7 } */
        0xe8, 0x03, 0x09,                         /* first: 9 */
        0xf2, 0x03, 0x01, 'x',                    /* second: "x", of the same oneof */
    };
    aril__message *m = read_all(twice, sizeof twice);
    CHECK_MSG(m, "%s", aril_error());
    CHECK_INT(aril__message_int(m, "int64"), 2);
    CHECK_INT(aril__message_int(aril__message_sub(m, "message"), "int32"), 7);
    CHECK_INT(aril__message_int(aril__message_sub(m, "message"), "int64"), 6);
    CHECK(!aril__message_has(m, "first"));
    CHECK_STR(aril__message_text(m, "second"), "x");
    aril__message_free(m);
}

TEST(unknown_fields_survive)
{
    static const uint8_t known[] = { 0x20, 0x01 };
    static const uint8_t strange[] = {
        0xc0, 0x3e, 0x07,                                           /* 1000: varint */
        0xca, 0x3e, 0x02, 'a',  'b',                                /* 1001: bytes */
        0xd3, 0x3e, 0x08, 0x01, 0xdb, 0x3e, 0xdc, 0x3e, 0xd4, 0x3e, /* 1002: groups */
        0x25, 0x01, 0x02, 0x03, 0x04,                               /* 4, as another wire type */
    };
    uint8_t all[64], sub[64];
    size_t n = 0;
    memcpy(all, strange, sizeof strange);
    memcpy(all + sizeof strange, known, sizeof known);
    n = sizeof strange + sizeof known;
    sub[0] = 0x8a, sub[1] = 0x01, sub[2] = (uint8_t)n;
    memcpy(sub + 3, all, n);
    aril__message *m = read_all(sub, n + 3);
    CHECK_MSG(m, "%s", aril_error());
    CHECK_INT(aril__message_int(aril__message_sub(m, "message"), "int64"), 1);
    aril__bytes b = { 0 };
    CHECK_INT(aril__message_write(m, &b), ARIL_OK);
    CHECK_INT(b.n, n + 3);
    CHECK(memcmp(b.at + 3, known, sizeof known) == 0);
    CHECK(memcmp(b.at + 3 + sizeof known, strange, sizeof strange) == 0);
    aril__message *back = read_all(b.at, b.n);
    CHECK(back && aril__message_equal(m, back));
    b.n = 0;
    CHECK_INT(aril__message_print(m, &b), ARIL_OK);
    CHECK_MSG(strstr((char *)b.at, "# 23 bytes of unknown fields"), "%s", b.at);
    aril__bytes_free(&b);
    aril__message_free(m);
    aril__message_free(back);
}

/* Values that an enum does not have are unknown fields, as in proto2; an enum of proto3 has any. */
TEST(unknown_values_of_enums)
{
    static const uint8_t data[] = {
        0x70, 0x02,                                     /* enum: GREEN */
        0x70, 0x63,                                     /* 99 */
        0x90, 0x02, 0x07,                               /* enums: 7 */
        0x90, 0x02, 0x01,                               /* RED */
        0xb2, 0x03, 0x05, 0x02, 0x81, 0x01, 0x01, 0x00, /* enum_packed: GREEN, 129, RED, 0 */
    };
    static const uint8_t kept[] = { 0x70, 0x63, 0x90, 0x02, 0x07, 0xb0,
                                    0x03, 0x81, 0x01, 0xb0, 0x03, 0x00 };
    static const uint8_t none[] = { 0xb2, 0x03, 0x01, 0x00 };
    aril__message *m = read_all(data, sizeof data), *back;
    CHECK_MSG(m, "%s", aril_error());
    CHECK_STR(aril__message_value(m, "enum"), "GREEN");
    CHECK_INT(aril__message_count(m, "enums"), 1);
    CHECK_INT(aril__message_count(m, "enum_packed"), 2);
    CHECK_INT(aril__message_int_at(m, "enum_packed", 1), 1);
    aril__bytes b = { 0 };
    CHECK_INT(aril__message_write(m, &b), ARIL_OK);
    CHECK(b.n > sizeof kept && memcmp(b.at + b.n - sizeof kept, kept, sizeof kept) == 0);
    back = read_all(b.at, b.n);
    CHECK(back && aril__message_equal(m, back));
    aril__message_free(m);
    aril__message_free(back);
    m = read_all(none, sizeof none);
    CHECK(m && !aril__message_has(m, "enum_packed"));
    aril__message_free(m);
    aril__bytes_free(&b);
    /* Summary.Value.metadata.data_class of TensorBoard */
    static const uint8_t open[] = { 0x20, 0x63 };
    m = aril__message_read(&aril__tensorboard_SummaryMetadata, open, sizeof open,
                           (aril__message_opts){ 0 });
    CHECK_MSG(m, "%s", aril_error());
    CHECK_INT(aril__message_int(m, "data_class"), 99);
    CHECK_INT(aril__message_print(m, &b), ARIL_OK);
    back = aril__message_parse(&aril__tensorboard_SummaryMetadata, (const char *)b.at, b.n,
                               (aril__message_opts){ 0 });
    CHECK(back && aril__message_equal(m, back));
    aril__message_free(m);
    aril__message_free(back);
    aril__bytes_free(&b);
}

TEST(defaults_and_messages_that_are_not_set)
{
    aril__message *m = aril__message_new(&all_type);
    const aril__message *sub = aril__message_sub(aril__message_sub(m, "message"), "third");
    const aril__message *both[] = { m, sub };
    for (int i = 0; i < 2; i++) {
        CHECK_NEAR(aril__message_number(both[i], "float"), 0.75, 0);
        CHECK_INT(aril__message_int(both[i], "int32"), -7);
        CHECK_INT(aril__message_int(both[i], "bool"), 1);
        CHECK_STR(aril__message_value(both[i], "enum"), "GREEN");
        CHECK_STR(aril__message_text(both[i], "string"), "none");
        CHECK_INT(aril__message_int(both[i], "int64"), 0);
        CHECK_INT(aril__message_count(both[i], "messages"), 0);
        CHECK(!aril__message_sub_at(both[i], "messages", 0));
    }
    aril__message_free(m);
    m = aril__message_new(&aril__caffe_LayerParameter);
    const aril__message *conv = aril__message_sub(m, "convolution_param");
    CHECK_INT(aril__message_int(conv, "bias_term"), 1);
    CHECK_INT(aril__message_int(conv, "group"), 1);
    CHECK_STR(aril__message_text(aril__message_sub(conv, "weight_filler"), "type"), "constant");
    CHECK_NEAR(aril__message_number(aril__message_sub(m, "batch_norm_param"), "eps"), 1e-5, 1e-12);
    CHECK_STR(aril__message_value(aril__message_sub(m, "hinge_loss_param"), "norm"), "L1");
    aril__message_free(m);
}

TEST(changes)
{
    aril__message *m = aril__message_new(&all_type);
    for (int i = 0; i < 100; i++) aril__message_add_int(m, "int32s", i);
    aril__message_remove(m, "int32s", 50);
    aril__message_remove(m, "int32s", 1000);
    CHECK_INT(aril__message_count(m, "int32s"), 99);
    CHECK_INT(aril__message_int_at(m, "int32s", 50), 51);
    CHECK_INT(aril__message_int_at(m, "int32s", 99), 0);
    aril__message_set_int(m, "first", 1);
    aril__message_set_text(aril__message_set_sub(m, "third"), "string", "x");
    CHECK(!aril__message_has(m, "first") && aril__message_has(m, "third"));
    aril__message_clear(m, "third");
    CHECK(!aril__message_has(m, "third"));
    for (int i = 0; i < 3; i++)
        aril__message_set_int(aril__message_add_sub(m, "messages"), "int32", i);
    aril__message_remove(m, "messages", 0);
    CHECK_INT(aril__message_int(aril__message_sub_at(m, "messages", 0), "int32"), 1);
    aril__message_remove(m, "messages", 0);
    aril__message_remove(m, "messages", 0);
    CHECK(!aril__message_has(m, "messages"));
    aril__message_reset(m);
    CHECK_INT(aril__message_count(m, "int32s"), 0);
    aril__message_free(m);
    aril__message_free(NULL);
}

TEST(blobs_are_not_copied_until_they_change)
{
    float blob[256];
    for (int i = 0; i < 256; i++) blob[i] = (float)i;
    aril__message *m = aril__message_new(&aril__caffe_BlobProto);
    aril__message_set_floats(m, "data", blob, 256);
    aril__bytes b = { 0 }, same = { 0 };
    CHECK_INT(aril__message_write(m, &b), ARIL_OK);
    CHECK(aril__bytes_add(&same, b.at, b.n));
    aril__message_free(m);
    m = aril__message_read(&aril__caffe_BlobProto, b.at, b.n, (aril__message_opts){ 0 });
    CHECK_MSG(m, "%s", aril_error());
    aril__proto_array a = aril__message_array(m, "data");
    CHECK(a.n == 256 && a.width == 4 && memcmp(a.at, blob, sizeof blob) == 0);
    CHECK((const unsigned char *)a.at > b.at && (const unsigned char *)a.at < b.at + b.n);
    aril__message_remove(m, "data", 0);
    aril__message_add_number(m, "data", 7);
    CHECK_INT(aril__message_count(m, "data"), 256);
    CHECK_NEAR(aril__message_number_at(m, "data", 0), 1, 0);
    CHECK_NEAR(aril__message_number_at(m, "data", 255), 7, 0);
    CHECK(memcmp(b.at, same.at, b.n) == 0);
    aril__bytes_free(&b);
    aril__bytes_free(&same);
    aril__message_free(m);
}

/* ---- malformed data ---- */

TEST(malformed_messages_are_rejected)
{
    static const struct {
        size_t n;
        uint8_t at[14];
    } wrong[] = {
        { 1, { 0x20 } },       /* no value */
        { 2, { 0x20, 0x80 } }, /* an unterminated varint */
        { 2, { 0x7a, 0x05 } }, /* longer than the message */
        { 11, { 0x7a, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1 } }, /* 2^64 - 1 bytes */
        { 11, { 0x7a, 128, 128, 128, 128, 128, 128, 128, 128, 128, 1 } }, /* 2^63 bytes */
        { 1, { 0x00 } },                                                  /* field 0 */
        { 6, { 0x80, 0x80, 0x80, 0x80, 0x10, 0x00 } }, /* a number of more than 29 bits */
        { 3, { 0x15, 0x00, 0x00 } },                   /* half a float */
        { 4, { 0x09, 0x00, 0x00, 0x00 } },             /* half a double */
        { 1, { 0x27 } },                               /* an unknown wire type */
        { 1, { 0x0c } },                               /* end of a group that did not begin */
        { 1, { 0xc3 } },                               /* half a tag */
        { 2, { 0xc3, 0x3e } },                         /* an unterminated group */
        { 4, { 0xc3, 0x3e, 0xcc, 0x3e } },             /* the end of another group */
        { 12, { 0x20, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1 } }, /* over 64 bits */
        { 4, { 0xda, 0x02, 0x01, 0x80 } },             /* half a packed number */
        { 6, { 0xd2, 0x02, 0x03, 0x00, 0x00, 0x00 } }, /* half a packed float */
        { 5, { 0x8a, 0x01, 0x02, 0x7a, 0x03 } },       /* longer than the message around it */
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        aril__message *m = read_all(wrong[i].at, wrong[i].n);
        CHECK_MSG(!m, "message %zu is taken", i);
        CHECK_INT(aril_error_code(), ARIL_ERR_FORMAT);
        CHECK_MSG(strstr(aril_error(), "byte "), "%s", aril_error());
        aril_clear_error();
    }
    aril__message *empty = read_all(NULL, 0);
    CHECK(empty && aril__message_count(empty, "int64") == 0);
    aril__message_free(empty);
}

/* `depth` messages in each other, the innermost empty: each takes 2 or 3 bytes at the end. */
static unsigned char *nested(int depth, size_t *n)
{
    size_t room = (size_t)depth * 12 + 16, at = room;
    unsigned char *b = malloc(room);
    for (int i = 0; b && i < depth; i++) {
        size_t length = room - at;
        unsigned char head[12];
        size_t k = 0;
        head[k++] = 0x8a, head[k++] = 0x01;
        for (; length >= 0x80; length >>= 7) head[k++] = (unsigned char)(length | 0x80);
        head[k++] = (unsigned char)length;
        at -= k;
        memcpy(b + at, head, k);
    }
    *n = room - at;
    if (b) memmove(b, b + at, *n);
    return b;
}

TEST(depth_is_limited)
{
    static const int depths[] = { 99, 100, 101, 10000, 100000 };
    for (int i = 0; i < 5; i++) {
        size_t n;
        unsigned char *b = nested(depths[i], &n);
        CHECK(b);
        aril__message *m = read_all(b, n);
        CHECK_MSG((m != NULL) == (depths[i] < 100), "%d", depths[i]);
        CHECK(m || strstr(aril_error(), "messages are nested more than 100 deep"));
        aril_clear_error();
        aril__message_free(m);
        free(b);
        b = malloc((size_t)depths[i]);
        CHECK(b);
        memset(b, 0x0b, (size_t)depths[i]); /* groups */
        CHECK(!read_all(b, (size_t)depths[i]));
        aril_clear_error();
        free(b);
    }
    aril__message *m = aril__message_new(&all_type), *at = m;
    for (int i = 0; i < 1000; i++) at = aril__message_set_sub(at, "message");
    aril__bytes out = { 0 };
    CHECK_INT(aril__message_write(m, &out), ARIL_ERR_ARG);
    CHECK_MSG(strstr(aril_error(), "nested more than 100 deep"), "%s", aril_error());
    aril_clear_error();
    aril__message_free(m);
    aril__bytes_free(&out);
}

TEST(memory_is_in_proportion_to_the_input)
{
    /* Two bytes each: empty messages, empty strings, small numbers. */
    static const struct {
        uint8_t at[3];
    } unit[] = { { { 0xaa, 0x02, 0x00 } }, { { 0x9a, 0x02, 0x00 } }, { { 0xb8, 0x01, 0x01 } } };
    size_t n = 300000;
    unsigned char *b = malloc(n);
    CHECK(b);
    for (int k = 0; k < 3; k++) {
        for (size_t i = 0; i < n; i++) b[i] = unit[k].at[i % 3];
        aril__message *m = read_all(b, n);
        CHECK_MSG(m, "%s", aril_error());
        aril__message_free(m);
        m = aril__message_read(&all_type, b, n, (aril__message_opts){ .max_memory = 100000 });
        CHECK(!m);
        CHECK_INT(aril_error_code(), ARIL_ERR_MEMORY);
        aril_clear_error();
    }
    free(b);
}

TEST(short_messages_in_messages_fit_the_limit)
{
    enum { DEPTH = 60, CHAINS = 50000, CHAIN = 2 * DEPTH };
    unsigned char *b = malloc((size_t)CHAINS * CHAIN);
    CHECK(b);
    for (int i = 0; i < CHAINS; i++)
        for (int k = 0; k < DEPTH; k++) { /* sequence_values: [{ sequence_values: [{ ... */
            b[i * CHAIN + 2 * k] = 0x2a;
            b[i * CHAIN + 2 * k + 1] = (unsigned char)(CHAIN - 2 * k - 2);
        }
    aril__message *m = aril__message_read(&aril__onnx_SequenceProto, b, (size_t)CHAINS * CHAIN,
                                          (aril__message_opts){ 0 });
    CHECK_MSG(m, "%s", aril_error());
    CHECK_INT(aril__message_count(m, "sequence_values"), CHAINS);
    aril__message_free(m);
    free(b);
}

TEST(required_fields)
{
    static const uint8_t half[] = { 0xa2, 0x06, 0x08, 0xa2, 0x09, 0x05, 0x0d, 0, 0, 0, 0 };
    const aril__proto_type *net = &aril__caffe_NetParameter;
    CHECK(!aril__message_read(net, half, sizeof half, (aril__message_opts){ .name = "x.bin" }));
    CHECK_MSG(strstr(aril_error(), "x.bin: 'max' of the ClipParameter at byte 6 is required"), "%s",
              aril_error());
    aril_clear_error();
    aril__message *m =
        aril__message_read(net, half, sizeof half, (aril__message_opts){ .partial = true });
    CHECK_MSG(m, "%s", aril_error());
    aril__bytes b = { 0 };
    CHECK_INT(aril__message_write(m, &b), ARIL_ERR_ARG);
    aril_clear_error();
    aril__message_free(m);
    aril__bytes_free(&b);
}

TEST(every_truncation_is_an_error_or_a_shorter_message)
{
    aril__message *m = aril__message_new(&all_type);
    fill(m);
    fill(aril__message_add_sub(m, "messages"));
    aril__bytes b = { 0 };
    CHECK_INT(aril__message_write(m, &b), ARIL_OK);
    aril__message_free(m);
    int taken = 0;
    for (size_t n = 0; n < b.n; n++) {
        unsigned char *part = malloc(n ? n : 1); /* so that overruns are detected */
        CHECK(part);
        memcpy(part, b.at, n);
        m = read_all(part, n);
        taken += m != NULL;
        CHECK(m || aril_error_code() == ARIL_ERR_FORMAT);
        aril_clear_error();
        aril__message_free(m);
        free(part);
    }
    CHECK_MSG(taken > 20 && taken < 200, "%d of %zu", taken, b.n); /* between fields only */
    aril__bytes_free(&b);
}

TEST(out_of_memory_everywhere)
{
    aril__bytes b = { 0 };
    aril__message *m = aril__message_new(&all_type);
    fill(m);
    for (int i = 0; i < 20; i++) fill(aril__message_add_sub(m, "messages"));
    CHECK_INT(aril__message_write(m, &b), ARIL_OK);
    aril__message_free(m);
    bool failed = true;
    for (int64_t i = 1; failed; i++) {
        CHECK(i < 1000);
        aril__bytes text = { 0 }, again = { 0 };
        aril_fail_allocation(i);
        m = read_all(b.at, b.n);
        if (m && aril__message_print(m, &text) == ARIL_OK) {
            aril__message *parsed = aril__message_parse(&all_type, (const char *)text.at, text.n,
                                                        (aril__message_opts){ 0 });
            if (parsed) fill(aril__message_add_sub(parsed, "messages"));
            if (parsed) aril__message_write(parsed, &again);
            aril__message_free(parsed);
        }
        failed = aril_allocation_failed();
        aril_fail_allocation(0);
        CHECK_MSG(failed == (aril_error_code() == ARIL_ERR_MEMORY), "%s", aril_error());
        aril_clear_error();
        aril__message_free(m);
        aril__bytes_free(&text);
        aril__bytes_free(&again);
    }
    aril__bytes_free(&b);
}

/* ---- schemas ---- */

static void check_type(const aril__proto_type *type)
{
    CHECK(type->n > 0 && type->empty.type == type);
    for (int i = 0; i < type->n; i++) {
        const aril__proto_field *f = &type->field[i];
        CHECK_MSG(f->number > 0 && (i == 0 || type->field[i - 1].number < f->number),
                  "%s.%s: numbers must ascend", type->name, f->name);
        CHECK_MSG(aril__proto_field_named(type, f->name) == f &&
                      aril__proto_field_numbered(type, f->number) == f,
                  "%s.%s", type->name, f->name);
        bool has_type = f->kind == ARIL__PROTO_message || f->kind == ARIL__PROTO_enum;
        CHECK_MSG(has_type == (f->of != NULL), "%s.%s", type->name, f->name);
        aril__message *m = aril__message_new(type); /* the default can be read */
        CHECK(m);
        if (f->label <= ARIL__PROTO_REQUIRED && f->kind <= ARIL__PROTO_enum)
            CHECK(isfinite(aril__message_number(m, f->name)));
        if (f->label <= ARIL__PROTO_REQUIRED && f->kind == ARIL__PROTO_enum)
            CHECK_MSG(*aril__message_value(m, f->name) != '?', "%s.%s", type->name, f->name);
        aril__message_free(m);
    }
}

TEST(schemas_are_consistent)
{
    const aril__proto_type *const *lists[] = { aril__onnx_types, aril__caffe_types,
                                               aril__tensorboard_types, aril__tensorflow_types };
    for (int k = 0; k < 4; k++)
        for (int i = 0; lists[k][i]; i++) check_type(lists[k][i]);
}
