/* The text form of protocol buffers, written. */
#include "formats/proto_message.h"

#include "core/error.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void indent(aril__bytes *to, int depth)
{
    for (int i = 0; i < depth; i++) aril__bytes_add(to, "  ", 2);
}

/* A decimal that reads back as the same number, as short as that but for the smallest ones, with a
 * point in every locale. */
static void print_real(aril__bytes *to, const aril__proto_field *f, uint64_t bits)
{
    bool is_double = f->kind == ARIL__PROTO_double;
    double v = aril__proto_number_of(f, bits);
    char text[40];
    if (isnan(v) || isinf(v)) {
        aril__bytes_print(to, "%s", isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
        return;
    }
    for (int digits = is_double ? 15 : 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (aril__proto_bits_of_number(f, strtod(text, NULL)) == bits) break;
    }
    for (char *c = text; *c; c++)
        if (!(*c >= '0' && *c <= '9') && !strchr("+-e", *c)) *c = '.';
    aril__bytes_print(to, "%s", text);
}

/* Strings keep their UTF-8; other bytes that are not plain are octal. */
static void print_string(aril__bytes *to, const aril__proto_field *f, aril__slice s)
{
    static const char special[] = "\n\r\t\"\\", letters[] = "nrt\"\\";
    const unsigned char *p = s.at, *end = s.n ? p + s.n : p;
    aril__bytes_add(to, "\"", 1);
    while (p < end) {
        const unsigned char *plain = p;
        while (p < end && *p >= 0x20 && *p < 0x7f && *p != '"' && *p != '\\') p++;
        aril__bytes_add(to, plain, (size_t)(p - plain));
        if (p == end) break;
        int length = f->kind == ARIL__PROTO_string ? aril__utf8_length(p, (size_t)(end - p)) : 0;
        const char *known = *p ? strchr(special, *p) : NULL;
        if (length > 1)
            aril__bytes_add(to, p, (size_t)length);
        else if (known)
            aril__bytes_print(to, "\\%c", letters[known - special]);
        else
            aril__bytes_print(to, "\\%03o", *p);
        p += length > 1 ? length : 1;
    }
    aril__bytes_add(to, "\"", 1);
}

static void print_number(aril__bytes *to, const aril__proto_field *f, uint64_t bits)
{
    const aril__proto_value *v;
    switch (f->kind) {
    case ARIL__PROTO_double:
    case ARIL__PROTO_float: print_real(to, f, bits); break;
    case ARIL__PROTO_bool: aril__bytes_print(to, "%s", bits ? "true" : "false"); break;
    case ARIL__PROTO_uint64:
    case ARIL__PROTO_fixed64: aril__bytes_print(to, "%" PRIu64, bits); break;
    case ARIL__PROTO_enum:
        v = aril__proto_value_numbered(f->of, (int32_t)bits);
        if (v) {
            aril__bytes_print(to, "%s", v->name);
            break;
        } /* fall through */
    default: aril__bytes_print(to, "%" PRId64, (int64_t)bits);
    }
}

static void print_message(aril__bytes *to, const aril__message *m, int depth);

/* Value i of a field, on a line of its own. */
static void print_value(aril__bytes *to, const aril__slot *s, size_t i, int depth)
{
    const aril__proto_field *f = s->field;
    bool many = aril__proto_repeated(f);
    indent(to, depth);
    aril__bytes_print(to, "%s%s", f->name, f->kind == ARIL__PROTO_message ? " {\n" : ": ");
    switch (f->kind) {
    case ARIL__PROTO_message:
        print_message(to, many ? ((aril__message *const *)s->at)[i] : s->message, depth + 1);
        indent(to, depth);
        aril__bytes_add(to, "}", 1);
        break;
    case ARIL__PROTO_string:
    case ARIL__PROTO_bytes:
        print_string(to, f, many ? ((const aril__slice *)s->at)[i] : (aril__slice){ s->at, s->n });
        break;
    default: print_number(to, f, many ? aril__proto_load(f, s->at, i) : s->bits);
    }
    aril__bytes_add(to, "\n", 1);
}

static void print_message(aril__bytes *to, const aril__message *m, int depth)
{
    for (uint32_t i = 0; i < m->n; i++) {
        const aril__slot *s = &m->slot[i];
        size_t n = aril__proto_repeated(s->field) ? s->n : 1;
        for (size_t k = 0; k < n && !to->failed; k++) print_value(to, s, k, depth);
    }
    size_t unknown = 0;
    if (m->unknown)
        for (const aril__unknown *u = m->unknown->next;; u = u->next) {
            unknown += u->n;
            if (u == m->unknown) break;
        }
    if (!unknown) return;
    indent(to, depth);
    aril__bytes_print(to, "# %zu bytes of unknown fields\n", unknown);
}

aril_status aril__message_print(const aril__message *m, aril__bytes *to)
{
    bool failed = m->owner && m->owner->failed;
    aril__bytes_add(to, "", 0); /* an empty message is an empty text */
    if (!failed) print_message(to, m, 0);
    return failed || to->failed
               ? aril__fail(ARIL_ERR_MEMORY, "%s: out of memory for its text", m->type->name)
               : ARIL_OK;
}
