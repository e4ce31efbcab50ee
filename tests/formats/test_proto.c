/* The wire format of protocol buffers. */
#include "formats/proto.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

TEST(encoded_bytes_match_the_format)
{
    static const uint8_t want[] = { 0x08, 0x96, 0x01,                                 /* 1: 150 */
                                    0x12, 0x07, 't',  'e',  's',  't', 'i', 'n', 'g', /* 2: text */
                                    0x1a, 0x03, 0x08, 0x96, 0x01,   /* 3: { 1: 150 } */
                                    0x25, 0x00, 0x00, 0x80, 0x3f }; /* 4: 1.0f */
    aril__proto p = { 0 };
    aril__proto_int(&p, 1, 150);
    aril__proto_text(&p, 2, "testing");
    size_t begun = aril__proto_begin(&p, 3);
    aril__proto_int(&p, 1, 150);
    aril__proto_end(&p, begun);
    aril__proto_float(&p, 4, 1);
    CHECK_INT(p.n, sizeof want);
    CHECK(memcmp(p.at, want, sizeof want) == 0);
    aril__proto_free(&p);
}

TEST(messages_round_trip)
{
    aril__proto p = { 0 };
    const float floats[] = { 1, -2, 0.5f };
    aril__proto_int(&p, 1, -1);
    aril__proto_int(&p, 1 << 20, INT64_MIN);
    aril__proto_double(&p, 3, -0.125);
    aril__proto_floats(&p, 4, floats, 3);
    size_t outer = aril__proto_begin(&p, 5), inner = aril__proto_begin(&p, 6);
    for (int i = 0; i < 100; i++) aril__proto_int(&p, 7, i);
    aril__proto_end(&p, inner);
    aril__proto_end(&p, outer);
    aril__proto_bytes(&p, 8, NULL, 0);

    aril__proto_in in = aril__proto_open(p.at, p.n);
    CHECK(aril__proto_next(&in) && in.field == 1 && aril__proto_get_int(&in) == -1);
    CHECK(aril__proto_next(&in) && in.field == 1 << 20 && aril__proto_get_int(&in) == INT64_MIN);
    CHECK(aril__proto_next(&in) && in.field == 3 && aril__proto_get_double(&in) == -0.125);
    CHECK(aril__proto_next(&in) && in.field == 4);
    const uint8_t *from = NULL;
    float f = 0;
    for (int i = 0; i < 3; i++) CHECK(aril__proto_each_float(&in, &from, &f) && f == floats[i]);
    CHECK(!aril__proto_each_float(&in, &from, &f) && !in.malformed);
    CHECK(aril__proto_next(&in) && in.field == 5);
    aril__proto_in a = aril__proto_enter(&in);
    CHECK(aril__proto_next(&a) && a.field == 6);
    aril__proto_in b = aril__proto_enter(&a);
    for (int i = 0; i < 100; i++) CHECK(aril__proto_next(&b) && aril__proto_get_int(&b) == i);
    CHECK(!aril__proto_next(&b) && !b.malformed);
    CHECK(aril__proto_next(&in) && in.field == 8 && in.n == 0);
    CHECK(!aril__proto_next(&in) && !in.malformed);
    aril__proto_free(&p);
}

TEST(unpacked_number_is_a_list_of_one)
{
    aril__proto p = { 0 };
    aril__proto_int(&p, 1, 42);
    aril__proto_in in = aril__proto_open(p.at, p.n);
    const uint8_t *from = NULL;
    int64_t v = 0;
    CHECK(aril__proto_next(&in) && aril__proto_each_int(&in, &from, &v) && v == 42);
    CHECK(!aril__proto_each_int(&in, &from, &v) && !in.malformed);
    aril__proto_free(&p);
}

TEST(malformed_messages_are_rejected)
{
    static const struct {
        size_t n;
        uint8_t at[12];
    } wrong[] = {
        { 1, { 0x08 } },             /* no value */
        { 2, { 0x08, 0x80 } },       /* an unterminated varint */
        { 2, { 0x12, 0x05 } },       /* longer than the message */
        { 1, { 0x00 } },             /* field 0 */
        { 3, { 0x0d, 0x00, 0x00 } }, /* half a float */
        { 1, { 0x0f } },             /* an unknown wire type */
        { 1, { 0x0c } },             /* end of a group that did not begin */
        { 1, { 0x0b } },             /* an unterminated group */
        { 12, { 0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1 } }, /* over 64 bits */
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        aril__proto_in in = aril__proto_open(wrong[i].at, wrong[i].n);
        while (aril__proto_next(&in)) {
        }
        CHECK_MSG(in.malformed, "message %zu is taken", i);
    }
}

TEST(groups_are_skipped)
{
    static const uint8_t text[] = { 0x0b, 0x08, 0x01, 0x13, 0x14, 0x0c, 0x10, 0x05 };
    aril__proto_in in = aril__proto_open(text, sizeof text);
    CHECK(aril__proto_next(&in) && in.field == 2 && aril__proto_get_int(&in) == 5);
    CHECK(!aril__proto_next(&in) && !in.malformed);
}

TEST(random_bytes_terminate)
{
    uint32_t state = 1;
    for (int round = 0; round < 20000; round++) {
        uint8_t *bytes = malloc(32); /* a separate allocation, so that overruns are detected */
        CHECK(bytes);
        for (int i = 0; i < 32; i++) {
            state = state * 1664525 + 1013904223;
            bytes[i] = (uint8_t)(state >> 24) & (round % 2 ? 0x3f : 0xff);
        }
        aril__proto_in in = aril__proto_open(bytes, 32);
        int fields = 0;
        while (aril__proto_next(&in)) {
            const uint8_t *from = NULL;
            int64_t v;
            float f;
            fields++;
            while (aril__proto_each_int(&in, &from, &v)) {
            }
            from = NULL;
            while (aril__proto_each_float(&in, &from, &f)) {
            }
        }
        free(bytes);
        CHECK(fields <= 32);
    }
}
