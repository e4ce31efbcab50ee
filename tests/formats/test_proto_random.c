/* Random messages of every type of every schema: through wire and text form, and damaged.
 *
 * peers/protobuf_messages.py compares them with Google's implementation. For that, this program
 * writes its schemas to ARIL_PROTO_SCHEMAS, random messages to ARIL_PROTO_RANDOM, and what becomes
 * of the messages in ARIL_PROTO_CASES to ARIL_PROTO_ANSWERS. */
#include "formats/schemas.h"
#include "support/test.h"

#include <aril/aril.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    const aril__proto_type *const *types;
} packages[] = { { "onnx", aril__onnx_types },
                 { "caffe", aril__caffe_types },
                 { "tensorboard", aril__tensorboard_types },
                 { "tensorflow", aril__tensorflow_types } };

static uint64_t state;

static uint64_t draw(uint64_t below)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (state >> 33) % below;
}

/* ---- random messages ---- */

static int64_t random_int(const aril__proto_field *f)
{
    static const int64_t corners[] = {
        0, 1, -1, 127, 128, 16383, 16384, INT32_MAX, INT32_MIN, UINT32_MAX, INT64_MAX, INT64_MIN
    };
    if (f->kind == ARIL__PROTO_enum) {
        const aril__proto_enum *e = f->of;
        return e->value[draw((uint64_t)e->n)].number;
    }
    return draw(2) ? (int64_t)draw(1000) : corners[draw(12)];
}

static double random_number(void)
{
    static const double corners[] = { 0, -0.0, 1, 0.1, 1e-45, 3.4e38, 1e300, 16777217 };
    uint64_t which = draw(12);
    if (which == 8) return (double)INFINITY;
    if (which == 9) return (double)-INFINITY;
    if (which == 10) return (double)NAN;
    return which < 8 ? corners[which] : (double)draw(1 << 20) / 1024 - 300;
}

static size_t random_text(char *to)
{
    static const char *const parts[] = {
        "a",  "Z",  "_",    " ",        "\"",           "\\", "\n",  "'",
        "\t", "\r", "\x01", "\xc3\xa9", "\xe2\x82\xac", "#",  "\x7f"
    };
    size_t n = 0;
    for (uint64_t i = draw(8); i > 0; i--) {
        const char *part = parts[draw(15)];
        memcpy(to + n, part, strlen(part));
        n += strlen(part);
    }
    to[n] = '\0';
    return n;
}

static void put_random(aril__message *m, int depth);

static void put_value(aril__message *m, const aril__proto_field *f, int depth)
{
    bool many = f->label >= ARIL__PROTO_REPEATED;
    char text[64];
    unsigned char bytes[16];
    switch (f->kind) {
    case ARIL__PROTO_message:
        put_random(many ? aril__message_add_sub(m, f->name) : aril__message_set_sub(m, f->name),
                   depth - 1);
        break;
    case ARIL__PROTO_string:
        random_text(text);
        (many ? aril__message_add_text : aril__message_set_text)(m, f->name, text);
        break;
    case ARIL__PROTO_bytes: {
        size_t n = draw(16);
        for (size_t i = 0; i < n; i++) bytes[i] = (unsigned char)draw(256);
        (many ? aril__message_add_bytes : aril__message_set_bytes)(m, f->name, bytes, n);
        break;
    }
    case ARIL__PROTO_double:
    case ARIL__PROTO_float:
        (many ? aril__message_add_number : aril__message_set_number)(m, f->name, random_number());
        break;
    default: (many ? aril__message_add_int : aril__message_set_int)(m, f->name, random_int(f));
    }
}

static void put_random(aril__message *m, int depth)
{
    if (!m) return;
    for (int i = 0; i < m->type->n; i++) {
        const aril__proto_field *f = &m->type->field[i];
        bool needed = f->label == ARIL__PROTO_REQUIRED;
        if (!needed && (draw(m->type->n > 20 ? 8 : 3) || depth <= 0)) continue;
        uint64_t times = f->label >= ARIL__PROTO_REPEATED ? 1 + draw(4) : 1;
        while (times-- > 0) put_value(m, f, depth);
    }
}

static aril__message *random_message(const aril__proto_type *type)
{
    aril__message *m = aril__message_new(type);
    put_random(m, 4);
    return m;
}

/* ---- round trips ---- */

static aril__message *read(const aril__proto_type *type, const aril__bytes *b)
{
    return aril__message_read(type, b->at, b->n, (aril__message_opts){ 0 });
}

static aril__message *parse(const aril__proto_type *type, const aril__bytes *b)
{
    return aril__message_parse(type, (const char *)b->at, b->n, (aril__message_opts){ 0 });
}

static void check_round_trip(const aril__proto_type *type)
{
    aril__bytes wire = { 0 }, text = { 0 }, again = { 0 };
    aril__message *m = random_message(type);
    CHECK(m);
    CHECK_INT(aril__message_write(m, &wire), ARIL_OK);
    CHECK_INT(aril__message_print(m, &text), ARIL_OK);
    aril__message *from_wire = read(type, &wire), *from_text = parse(type, &text);
    CHECK_MSG(from_wire && aril__message_equal(m, from_wire), "%s: %s", type->name, aril_error());
    CHECK_MSG(from_text && aril__message_equal(m, from_text), "%s: %s\n%s", type->name,
              aril_error(), text.at);
    CHECK_INT(aril__message_write(from_text, &again), ARIL_OK);
    CHECK(again.n == wire.n && (wire.n == 0 || memcmp(again.at, wire.at, wire.n) == 0));
    aril__message_free(m);
    aril__message_free(from_wire);
    aril__message_free(from_text);
    aril__bytes_free(&wire);
    aril__bytes_free(&text);
    aril__bytes_free(&again);
}

TEST(random_messages_round_trip)
{
    state = 1;
    for (int k = 0; k < 3; k++)
        for (int i = 0; packages[k].types[i]; i++)
            for (int round = 0; round < 40 && !test_failed(); round++)
                check_round_trip(packages[k].types[i]);
}

/* ---- damaged messages ---- */

static void damage(aril__bytes *b, bool text)
{
    static const char symbols[] = "{}<>[]:,;\"'\\#-. \n0123456789abefinxtu";
    for (uint64_t times = 1 + draw(4); times > 0 && b->n > 0; times--) {
        size_t at = draw(b->n), left = b->n - at, part = 1 + draw(left < 16 ? left : 16);
        switch (draw(6)) {
        case 0: b->at[at] ^= (unsigned char)(1u << draw(8)); break;
        case 1:
            b->at[at] =
                text ? (unsigned char)symbols[draw(sizeof symbols - 1)] : (unsigned char)draw(256);
            break;
        case 2: b->n = at; break;
        case 3:
            memmove(b->at + at, b->at + at + part, left - part);
            b->n -= part;
            break;
        case 4: memset(b->at + at, text ? '9' : 0xff, part); break;
        default: aril__bytes_add(b, NULL, part); memmove(b->at + at + part, b->at + at, left);
        }
    }
}

/* What is read in spite of the damage is a message like any other. */
static void check_damaged(const aril__proto_type *type, const aril__bytes *b, bool text)
{
    unsigned char *exact = malloc(b->n ? b->n : 1); /* so that overruns are detected */
    CHECK(exact);
    if (b->n) memcpy(exact, b->at, b->n);
    aril__bytes copy = { .at = exact, .n = b->n }, wire = { 0 };
    aril__message *m = text ? parse(type, &copy) : read(type, &copy);
    if (m) {
        CHECK_INT(aril__message_write(m, &wire), ARIL_OK);
        aril__message *back = read(type, &wire);
        CHECK_MSG(back && aril__message_equal(m, back), "%s: %s", type->name, aril_error());
        aril__message_free(back);
    } else {
        CHECK_MSG(aril_error_code() == ARIL_ERR_FORMAT, "%s", aril_error());
        CHECK(strlen(aril_error()) < 1024);
    }
    aril_clear_error();
    aril__message_free(m);
    aril__bytes_free(&wire);
    free(exact);
}

static void fuzz(bool text)
{
    const char *longer = getenv("ARIL_FUZZ_TIMES");
    int rounds = 100 * (longer ? atoi(longer) : 1);
    state = longer ? (uint64_t)atoi(longer) : 1;
    for (int round = 0; round < rounds; round++)
        for (int k = 0; k < 3; k++)
            for (int i = 0; packages[k].types[i] && !test_failed(); i++) {
                const aril__proto_type *type = packages[k].types[i];
                aril__bytes b = { 0 };
                aril__message *m = random_message(type);
                CHECK_INT(text ? aril__message_print(m, &b) : aril__message_write(m, &b), ARIL_OK);
                aril__message_free(m);
                size_t n = b.n;
                for (int times = 0; times < 8 && n > 0; times++) {
                    aril__bytes damaged = { 0 };
                    aril__bytes_add(&damaged, b.at, n);
                    damage(&damaged, text);
                    check_damaged(type, &damaged, text);
                    aril__bytes_free(&damaged);
                }
                aril__bytes_free(&b);
            }
}

TEST(damaged_wire_form)
{
    fuzz(false);
}

TEST(damaged_text_form)
{
    fuzz(true);
}

/* ---- for the comparison with Google's implementation ---- */

static void write_schemas(FILE *f)
{
    static const char *const kinds[] = { "double",   "float",    "int32",  "int64",   "uint32",
                                         "uint64",   "sint32",   "sint64", "fixed32", "fixed64",
                                         "sfixed32", "sfixed64", "bool",   "enum",    "string",
                                         "bytes",    "message" };
    static const char *const labels[] = { "optional", "required", "repeated", "packed" };
    for (int k = 0; k < 3; k++)
        for (int i = 0; packages[k].types[i]; i++) {
            const aril__proto_type *type = packages[k].types[i];
            fprintf(f, "message %s %s\n", packages[k].name, type->name);
            for (int j = 0; j < type->n; j++) {
                const aril__proto_field *p = &type->field[j];
                const aril__proto_enum *e = p->kind == ARIL__PROTO_enum ? p->of : NULL;
                const aril__proto_type *sub = p->kind == ARIL__PROTO_message ? p->of : NULL;
                fprintf(f, "field %u %s %s %s %d %s %s\n", p->number, p->name, kinds[p->kind],
                        labels[p->label], p->oneof,
                        e     ? e->name
                        : sub ? sub->name
                              : "-",
                        p->initial ? p->initial : "-");
                for (int v = 0; e && v < e->n; v++)
                    fprintf(f, "value %s %s %d\n", e->name, e->value[v].name, e->value[v].number);
            }
        }
}

static void put_record(FILE *f, const void *data, size_t n)
{
    unsigned char length[4];
    aril__put_le32(length, (uint32_t)n);
    fwrite(length, 4, 1, f);
    if (n) fwrite(data, n, 1, f);
}

/* Type, wire form and text form of random messages. */
static void write_random(FILE *f, int rounds)
{
    char name[128];
    state = 2;
    for (int round = 0; round < rounds; round++)
        for (int k = 0; k < 3; k++)
            for (int i = 0; packages[k].types[i]; i++) {
                aril__bytes wire = { 0 }, text = { 0 };
                aril__message *m = random_message(packages[k].types[i]);
                CHECK_INT(aril__message_write(m, &wire), ARIL_OK);
                CHECK_INT(aril__message_print(m, &text), ARIL_OK);
                snprintf(name, sizeof name, "%s.%s", packages[k].name, m->type->name);
                put_record(f, name, strlen(name));
                put_record(f, wire.at, wire.n);
                put_record(f, text.at, text.n);
                aril__message_free(m);
                aril__bytes_free(&wire);
                aril__bytes_free(&text);
            }
}

static const aril__proto_type *find_type(const char *name)
{
    char known[128];
    for (int k = 0; k < 3; k++)
        for (int i = 0; packages[k].types[i]; i++) {
            snprintf(known, sizeof known, "%s.%s", packages[k].name, packages[k].types[i]->name);
            if (strcmp(known, name) == 0) return packages[k].types[i];
        }
    return NULL;
}

static bool get_record(const aril__bytes *all, size_t *at, aril__bytes *to)
{
    if (all->n - *at < 4) return false;
    size_t n = aril__le32(all->at + *at);
    *at += 4;
    aril__bytes_free(to);
    aril__bytes_add(to, all->at + *at, n);
    *at += n;
    return true;
}

/* For each type, wire form and text form: the wire form written again, its text form, and the wire
 * form of the text. */
static void answer(const char *cases, FILE *out)
{
    aril__bytes all = { 0 }, name = { 0 }, wire = { 0 }, text = { 0 };
    CHECK_INT(aril__read_file("test", cases, 0, &all), ARIL_OK);
    for (size_t at = 0; get_record(&all, &at, &name);) {
        aril__bytes wire_out = { 0 }, text_out = { 0 }, parsed_out = { 0 };
        CHECK(get_record(&all, &at, &wire) && get_record(&all, &at, &text));
        const aril__proto_type *type = find_type((const char *)name.at);
        CHECK_MSG(type, "%s", name.at);
        aril__message *m = read(type, &wire), *parsed = parse(type, &text);
        CHECK_MSG(m && parsed, "%s: %s\n%s", name.at, aril_error(), text.at);
        CHECK_INT(aril__message_write(m, &wire_out), ARIL_OK);
        CHECK_INT(aril__message_print(m, &text_out), ARIL_OK);
        CHECK_INT(aril__message_write(parsed, &parsed_out), ARIL_OK);
        put_record(out, wire_out.at, wire_out.n);
        put_record(out, text_out.at, text_out.n);
        put_record(out, parsed_out.at, parsed_out.n);
        aril__message_free(m);
        aril__message_free(parsed);
        aril__bytes_free(&wire_out);
        aril__bytes_free(&text_out);
        aril__bytes_free(&parsed_out);
    }
    aril__bytes_free(&all);
    aril__bytes_free(&name);
    aril__bytes_free(&wire);
    aril__bytes_free(&text);
}

TEST(for_peers)
{
    const char *schemas = getenv("ARIL_PROTO_SCHEMAS"), *random = getenv("ARIL_PROTO_RANDOM");
    const char *cases = getenv("ARIL_PROTO_CASES"), *answers = getenv("ARIL_PROTO_ANSWERS");
    if (!schemas && !random && !cases) SKIP("run by peers/protobuf_messages.py");
    FILE *f = schemas ? fopen(schemas, "w") : NULL;
    if (f) {
        write_schemas(f);
        CHECK_INT(fclose(f), 0);
    }
    f = random ? fopen(random, "wb") : NULL;
    if (f) {
        write_random(f, 20);
        CHECK_INT(fclose(f), 0);
    }
    f = cases && answers ? fopen(answers, "wb") : NULL;
    if (f) {
        answer(cases, f);
        CHECK_INT(fclose(f), 0);
    }
}
