/* The text form of protocol buffers, read: "name: value" and "name { ... }", as in Caffe's prototxt
 * files. */
#include "formats/proto_message.h"

#include "core/error.h"
#include "formats/number.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

typedef enum token_kind { END, WORD, NUMBER, STRING, SYMBOL } token_kind;

/* A message that is being read, and the field of the one around it that it is a value of. */
typedef struct level {
    const struct level *up; /* NULL: the whole file */
    const aril__message *message;
    const aril__proto_field *field; /* NULL: the whole file */
} level;

typedef struct parser {
    const level *in; /* the innermost */
    const char *at, *end, *line_start;
    uint64_t line;
    const char *name;
    int depth;
    aril__bytes string; /* the string that is being read, without quotes and escapes */
    /* The token that comes next: its text, and where it begins. */
    token_kind kind;
    const char *token;
    size_t n;
    uint64_t token_line, token_column;
} parser;

/* ---- errors ---- */

static bool fail_at(const parser *p, uint64_t line, uint64_t column, const char *text)
{
    aril__fail(ARIL_ERR_FORMAT, "%s:%" PRIu64 ":%" PRIu64 ": %s", p->name, line, column, text);
    return false;
}

/* An error at the next token. */
static bool fail(const parser *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool fail(const parser *p, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return fail_at(p, p->token_line, p->token_column, text);
}

/* The next token for messages: quoted, shortened, and without control characters. */
static const char *shown(const parser *p, char *buf, size_t size)
{
    if (p->kind == END) return "the end of the file";
    size_t n = p->n < 40 ? p->n : 40, used = 0;
    buf[used++] = '\'';
    for (size_t i = 0; i < n && used + 6 < size; i++) {
        char c = p->token[i];
        buf[used++] = (unsigned char)c < 0x20 || c == 0x7f ? '?' : c;
    }
    snprintf(buf + used, size - used, "%s'", n < p->n ? "..." : "");
    return buf;
}

static bool expected(const parser *p, const char *what)
{
    char buf[64];
    return fail(p, "expected %s, got %s", what, shown(p, buf, sizeof buf));
}

static bool fail_memory(const parser *p)
{
    aril__fail(ARIL_ERR_MEMORY, "%s: no memory for its messages", p->name);
    return false;
}

/* ---- tokens ---- */

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static void skip_blanks(parser *p)
{
    for (; p->at < p->end; p->at++) {
        char c = *p->at;
        if (c == '#') {
            const char *line = memchr(p->at, '\n', (size_t)(p->end - p->at));
            p->at = line ? line : p->end;
            if (!line) return;
            c = '\n';
        }
        if (c == '\n') {
            p->line++;
            p->line_start = p->at + 1;
        } else if (c != ' ' && c != '\t' && c != '\r' && c != '\f' && c != '\v') {
            return;
        }
    }
}

/* The end of a number: digits and letters, and a sign behind an exponent's e. */
static const char *number_end(const char *at, const char *end)
{
    bool hex = end - at > 1 && at[0] == '0' && (at[1] | 32) == 'x';
    while (at < end && (is_letter(*at) || is_digit(*at) || *at == '.' ||
                        (!hex && (*at == '+' || *at == '-') && (at[-1] | 32) == 'e')))
        at++;
    return at;
}

/* The end of a string, behind its closing quote. */
static bool string_end(parser *p)
{
    char quote = *p->at++;
    for (; p->at < p->end && *p->at != quote; p->at++) {
        if (*p->at == '\n') return fail(p, "a string ends at the end of its line: close its quote");
        if (*p->at == '\\' && p->at + 1 < p->end && p->at[1] != '\n') p->at++;
    }
    if (p->at == p->end) return fail(p, "a string is not closed");
    p->at++;
    return true;
}

static bool next(parser *p)
{
    skip_blanks(p);
    p->token = p->at;
    p->token_line = p->line;
    p->token_column = (uint64_t)(p->at - p->line_start) + 1;
    p->n = 0;
    if (p->at == p->end) {
        p->kind = END;
        return true;
    }
    char c = *p->at;
    if (is_letter(c)) {
        p->kind = WORD;
        while (p->at < p->end && (is_letter(*p->at) || is_digit(*p->at))) p->at++;
    } else if (is_digit(c) || (c == '.' && p->at + 1 < p->end && is_digit(p->at[1]))) {
        p->kind = NUMBER;
        p->at = number_end(p->at, p->end);
    } else if (c == '"' || c == '\'') {
        p->kind = STRING;
        if (!string_end(p)) return false;
    } else {
        p->kind = SYMBOL;
        p->at++;
    }
    p->n = (size_t)(p->at - p->token);
    return true;
}

static bool is_symbol(const parser *p, char c)
{
    return p->kind == SYMBOL && *p->token == c;
}

/* Whether the next token is the word, in any case if `fold`. */
static bool is_word(const parser *p, const char *word, bool fold)
{
    size_t n = strlen(word);
    if (p->kind != WORD || p->n != n) return false;
    for (size_t i = 0; i < n; i++)
        if ((fold && p->token[i] >= 'A' && p->token[i] <= 'Z' ? p->token[i] | 32 : p->token[i]) !=
            word[i])
            return false;
    return true;
}

/* ---- strings ---- */

static int hex_digit(char c)
{
    if (is_digit(c)) return c - '0';
    c = (char)(c | 32);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void add_byte(parser *p, unsigned value)
{
    unsigned char byte = (unsigned char)value;
    aril__bytes_add(&p->string, &byte, 1);
}

static void add_utf8(parser *p, uint32_t c)
{
    if (c < 0x80) {
        add_byte(p, c);
        return;
    }
    int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = { 0, 0xc0, 0xe0, 0xf0 };
    add_byte(p, lead[more] | c >> 6 * more);
    while (more-- > 0) add_byte(p, 0x80 | (c >> 6 * more & 0x3f));
}

/* Up to `most` digits of a base; at least one. */
static bool digits(const char **at, const char *end, int base, int least, int most, uint32_t *value)
{
    int n = 0;
    *value = 0;
    for (; n < most && *at < end; n++, (*at)++) {
        int d = hex_digit(**at);
        if (d < 0 || d >= base) break;
        *value = *value * (uint32_t)base + (uint32_t)d;
    }
    return n >= least;
}

/* An escape behind its backslash. */
static bool unescape(parser *p, const char **at, const char *end)
{
    static const char from[] = "abfnrtv\\'\"?", to[] = "\a\b\f\n\r\t\v\\'\"?";
    uint32_t v = 0;
    char c = *at < end ? **at : '\0';
    const char *known = c ? strchr(from, c) : NULL;
    if (known) {
        (*at)++;
        add_byte(p, (unsigned char)to[known - from]);
        return true;
    }
    if (c >= '0' && c <= '7') {
        digits(at, end, 8, 1, 3, &v);
        add_byte(p, v);
        return v < 256 || fail(p, "an octal escape in a string is larger than \\377");
    }
    if (*at < end) (*at)++;
    if (c == 'x' || c == 'X') {
        if (!digits(at, end, 16, 1, 2, &v)) return fail(p, "\\x in a string has no hex digits");
        add_byte(p, v);
        return true;
    }
    if (c != 'u' && c != 'U') return fail(p, "a string has an unknown escape \\%c", c ? c : ' ');
    int n = c == 'u' ? 4 : 8;
    if (!digits(at, end, 16, n, n, &v) || v > 0x10ffff || (v >= 0xd800 && v < 0xe000))
        return fail(p, "\\%c in a string expects %d hex digits of a character", c, n);
    add_utf8(p, v);
    return true;
}

/* Reads adjacent strings as one. */
static bool parse_string(parser *p)
{
    p->string.n = 0;
    if (p->kind != STRING) return expected(p, "a string in quotes");
    while (p->kind == STRING) {
        const char *at = p->token + 1, *end = p->token + p->n - 1;
        while (at < end) {
            const char *slash = memchr(at, '\\', (size_t)(end - at));
            const char *plain = slash ? slash : end;
            aril__bytes_add(&p->string, at, (size_t)(plain - at));
            at = plain;
            if (slash && (at++, !unescape(p, &at, end))) return false;
        }
        if (!next(p)) return false;
    }
    return !p->string.failed || fail_memory(p);
}

/* ---- numbers ---- */

static bool parse_sign(parser *p, bool *negative)
{
    *negative = is_symbol(p, '-');
    return !*negative || next(p);
}

/* Digits in base 8, 10 or 16, as in C. */
static bool integer_of(const char *text, size_t n, uint64_t *value)
{
    uint64_t base = 10, v = 0;
    if (n > 1 && text[0] == '0') {
        bool hex = (text[1] | 32) == 'x';
        base = hex ? 16 : 8;
        text += hex ? 2 : 1;
        n -= hex ? 2 : 1;
    }
    if (n == 0) return false;
    for (size_t i = 0; i < n; i++) {
        int d = hex_digit(text[i]);
        if (d < 0 || (uint64_t)d >= base || v > (UINT64_MAX - (uint64_t)d) / base) return false;
        v = v * base + (uint64_t)d;
    }
    *value = v;
    return true;
}

static bool in_range(const aril__proto_field *f, bool negative, uint64_t v)
{
    bool wide = aril__proto_width(f) == 8;
    switch (f->kind) {
    case ARIL__PROTO_uint32:
    case ARIL__PROTO_uint64:
    case ARIL__PROTO_fixed32:
    case ARIL__PROTO_fixed64: return (!negative || v == 0) && (wide || v <= UINT32_MAX);
    default: return v <= (uint64_t)(wide ? INT64_MAX : INT32_MAX) + negative;
    }
}

static bool parse_integer(parser *p, const aril__proto_field *f, uint64_t *bits)
{
    static const char *const ranges[] = { "-2147483648 to 2147483647", "0 to 4294967295",
                                          "-9223372036854775808 to 9223372036854775807",
                                          "0 to 18446744073709551615" };
    bool negative;
    uint64_t v;
    char buf[64];
    if (!parse_sign(p, &negative)) return false;
    if (p->kind != NUMBER || !integer_of(p->token, p->n, &v)) {
        bool is_unsigned = !in_range(f, true, 1);
        return fail(p, "%s: expected an integer from %s, got %s", f->name,
                    ranges[2 * (aril__proto_width(f) == 8) + is_unsigned],
                    shown(p, buf, sizeof buf));
    }
    if (!in_range(f, negative, v)) {
        bool is_unsigned = !in_range(f, true, 1);
        return fail(p, "%s: expected an integer from %s, got %s%.*s", f->name,
                    ranges[2 * (aril__proto_width(f) == 8) + is_unsigned], negative ? "-" : "",
                    (int)(p->n < 40 ? p->n : 40), p->token);
    }
    *bits = negative ? 0 - v : v;
    return next(p);
}

/* 1.5, 1e3, 1f, 17, inf, nan. A float is rounded from a double, as protobuf does. */
static bool parse_real(parser *p, const aril__proto_field *f, uint64_t *bits)
{
    bool negative;
    double v = 0;
    char buf[64];
    if (!parse_sign(p, &negative)) return false;
    bool good = false;
    if (p->kind == WORD) {
        good = is_word(p, "inf", true) || is_word(p, "infinity", true) || is_word(p, "nan", true);
        v = is_word(p, "nan", true) ? (double)NAN : (double)INFINITY;
    } else if (p->kind == NUMBER) {
        size_t n = p->n;
        bool hex = n > 1 && p->token[0] == '0' && (p->token[1] | 32) == 'x';
        if (n > 1 && (p->token[n - 1] | 32) == 'f' && !hex) n--;
        good = !hex && aril__parse_number(p->token, n, &v);
    }
    if (!good) return fail(p, "%s: expected a number, got %s", f->name, shown(p, buf, sizeof buf));
    *bits = aril__proto_bits_of_number(f, negative ? -v : v);
    return next(p);
}

static bool parse_bool(parser *p, const aril__proto_field *f, uint64_t *bits)
{
    uint64_t v = 2;
    char buf[64];
    if (is_word(p, "true", false) || is_word(p, "True", false) || is_word(p, "t", false)) v = 1;
    if (is_word(p, "false", false) || is_word(p, "False", false) || is_word(p, "f", false)) v = 0;
    if (p->kind == NUMBER && !integer_of(p->token, p->n, &v)) v = 2;
    if (v > 1)
        return fail(p, "%s: expected true or false, got %s", f->name, shown(p, buf, sizeof buf));
    *bits = v;
    return next(p);
}

/* ", did you mean X?", or what there is if nothing is near. */
static const char *suggestion(const char *word, const char *const *words, int n, const char *all,
                              char *buf, size_t size)
{
    const char *near = aril_nearest(word, words, n);
    if (near)
        snprintf(buf, size, "; did you mean %s?", near);
    else
        snprintf(buf, size, "%s", all);
    return buf;
}

enum { MOST_WORDS = 128 };

/* An error at a value that the enum does not have, a word or a number. */
static bool unknown_value(const parser *p, const aril__proto_field *f, const char *shown,
                          bool is_word)
{
    const aril__proto_enum *e = f->of;
    const char *words[MOST_WORDS];
    char word[64], hint[128], all[256] = "; expected ";
    int n = e->n < MOST_WORDS ? e->n : MOST_WORDS;
    size_t used = strlen(all);
    for (int i = 0; i < n; i++) {
        words[i] = e->value[i].name;
        if (used < sizeof all)
            used +=
                (size_t)snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", words[i]);
    }
    if (used >= sizeof all) all[0] = '\0';
    snprintf(word, sizeof word, "%.*s", (int)(p->n < 63 ? p->n : 63), p->token);
    return fail(p, "%s: %s has no value %s%s", f->name, e->name, shown,
                is_word ? suggestion(word, words, n, all, hint, sizeof hint) : all);
}

/* Whether all letters and digits of an enum's name stand in a text in that order: SOFTMAX_LOSS in
 * SoftmaxWithLoss. */
static bool abbreviates(const char *name, const char *text, size_t n)
{
    for (; *name; name++) {
        if (*name == '_') continue;
        char c = is_letter(*name) ? (char)(*name | 32) : *name;
        while (n > 0 && (is_letter(*text) ? *text | 32 : *text) != c) text++, n--;
        if (n == 0) return false;
        text++, n--;
    }
    return true;
}

/* A field beside that of the innermost message, whose messages have a field of that name as text;
 * NULL: none. */
static const char *other_form(const parser *p, const char *name)
{
    const aril__proto_type *up = p->in->up ? p->in->up->message->type : NULL;
    for (int i = 0; up && i < up->n; i++) {
        const aril__proto_field *f = &up->field[i];
        const aril__proto_field *same =
            f->kind == ARIL__PROTO_message &&
                    aril__proto_repeated(f) == aril__proto_repeated(p->in->field)
                ? aril__proto_field_named(f->of, name)
                : NULL;
        if (same && same->kind == ARIL__PROTO_string) return f->name;
    }
    return NULL;
}

/* An error at text where the name of an enum's value is expected: Caffe's 'layers' have types
 * without quotes, its newer 'layer' have text. */
static bool text_for_value(const parser *p, const aril__proto_field *f)
{
    const aril__proto_enum *e = f->of;
    const char *near = NULL, *other = other_form(p, f->name);
    char buf[64], hint[128] = "";
    for (int i = 0; i < e->n; i++)
        if (abbreviates(e->value[i].name, p->token + 1, p->n - 2) &&
            (!near || strlen(e->value[i].name) > strlen(near)))
            near = e->value[i].name;
    if (other)
        snprintf(hint, sizeof hint, "; or '%s' in place of '%s', which takes text", other,
                 p->in->field->name);
    return fail(p, "%s: expected %s%s, without quotes, got %s%s", f->name,
                near ? near : "a value of ", near ? "" : e->name, shown(p, buf, sizeof buf), hint);
}

static bool parse_enum(parser *p, const aril__proto_field *f, uint64_t *bits)
{
    char word[64];
    char buf[64];
    if (p->kind == STRING) return text_for_value(p, f);
    if (p->kind != WORD) {
        parser at = *p;
        if (!parse_integer(p, f, bits)) return false;
        snprintf(buf, sizeof buf, "%" PRId64, (int64_t)*bits);
        return aril__proto_allows(f, *bits) || unknown_value(&at, f, buf, false);
    }
    snprintf(word, sizeof word, "%.*s", (int)(p->n < 63 ? p->n : 63), p->token);
    const aril__proto_value *v = aril__proto_value_named(f->of, word);
    if (!v) return unknown_value(p, f, shown(p, buf, sizeof buf), true);
    *bits = (uint64_t)(int64_t)v->number;
    return next(p);
}

/* ---- fields ---- */

static bool parse_fields(parser *p, aril__message *m, char close);

static bool parse_sub(parser *p, aril__message *m, const aril__proto_field *f)
{
    char close = is_symbol(p, '{') ? '}' : is_symbol(p, '<') ? '>' : '\0';
    char buf[64];
    if (!close)
        return fail(p, "%s: expected a message in { }, got %s", f->name, shown(p, buf, sizeof buf));
    if (p->depth <= 0) return fail(p, "messages are nested too deeply");
    aril__message *sub = aril__message_put_sub(m, f);
    if (!sub) return fail_memory(p);
    sub->where = p->token_line;
    level here = { p->in, sub, f };
    p->depth--;
    p->in = &here;
    bool good = next(p) && parse_fields(p, sub, close);
    p->in = here.up;
    p->depth++;
    return good;
}

static bool parse_value(parser *p, aril__message *m, const aril__proto_field *f)
{
    uint64_t bits = 0;
    bool good;
    switch (f->kind) {
    case ARIL__PROTO_message: return parse_sub(p, m, f);
    case ARIL__PROTO_string:
    case ARIL__PROTO_bytes: {
        if (!parse_string(p)) return false;
        char *copy = aril__message_copy(m->owner, p->string.at, p->string.n);
        return (copy && aril__message_put_slice(m, f, (aril__slice){ copy, p->string.n })) ||
               fail_memory(p);
    }
    case ARIL__PROTO_double:
    case ARIL__PROTO_float: good = parse_real(p, f, &bits); break;
    case ARIL__PROTO_bool: good = parse_bool(p, f, &bits); break;
    case ARIL__PROTO_enum: good = parse_enum(p, f, &bits); break;
    default: good = parse_integer(p, f, &bits);
    }
    return good && (aril__message_put_bits(m, f, bits) || fail_memory(p));
}

/* [a, b, c], which may be empty. */
static bool parse_list(parser *p, aril__message *m, const aril__proto_field *f)
{
    if (!next(p)) return false;
    if (is_symbol(p, ']')) return next(p);
    for (;;) {
        if (!parse_value(p, m, f)) return false;
        if (is_symbol(p, ']')) return next(p);
        if (!is_symbol(p, ',')) return expected(p, "',' or ']'");
        if (!next(p)) return false;
    }
}

static const aril__proto_field *field_of(const parser *p, const aril__proto_type *type)
{
    for (int i = 0; i < type->n; i++) {
        const char *name = type->field[i].name;
        if (strncmp(name, p->token, p->n) == 0 && name[p->n] == '\0') return &type->field[i];
    }
    return NULL;
}

/* ", in layer 'conv1' (Convolution)": the innermost message that says so much of itself. */
static const char *named(const parser *p, char *buf, size_t size)
{
    buf[0] = '\0';
    for (const level *at = p->in; at->field; at = at->up) {
        const aril__message *m = at->message;
        const aril__proto_field *name = aril__proto_field_named(m->type, "name"),
                                *type = aril__proto_field_named(m->type, "type");
        if (!name || name->kind != ARIL__PROTO_string || !type) continue;
        bool text = type->kind == ARIL__PROTO_string, has_type = aril__message_has(m, "type");
        if (!text && type->kind != ARIL__PROTO_enum) continue;
        if (!has_type && !aril__message_has(m, "name")) return buf;
        const char *is = !has_type ? ""
                         : text    ? aril__message_text(m, "type")
                                   : aril__message_value(m, "type");
        snprintf(buf, size, ", in %s '%.60s'%s%.40s%s", at->field->name,
                 aril__message_text(m, "name"), *is ? " (" : "", is, *is ? ")" : "");
        return buf;
    }
    return buf;
}

/* An error at a name that the innermost message has no field of. */
static bool unknown_field(const parser *p)
{
    const aril__proto_type *type = p->in->message->type;
    const char *words[MOST_WORDS];
    char word[64], hint[256], buf[64], within[160];
    int n = type->n < MOST_WORDS ? type->n : MOST_WORDS;
    for (int i = 0; i < n; i++) words[i] = type->field[i].name;
    snprintf(word, sizeof word, "%.*s", (int)(p->n < 63 ? p->n : 63), p->token);
    suggestion(word, words, n, "", hint, sizeof hint);
    for (const level *up = p->in->up; up; up = up->up)
        if (field_of(p, up->message->type)) {
            snprintf(hint, sizeof hint, ", but %s has: is a '}' missing before it?",
                     up->message->type->name);
            break;
        }
    return fail(p, "%s has no field %s%s%s", type->name, shown(p, buf, sizeof buf),
                named(p, within, sizeof within), hint);
}

/* A field that is set already, or another of its oneof. */
static bool set_before(const aril__message *m, const aril__proto_field *f)
{
    if (aril__proto_repeated(f)) return false;
    for (uint32_t i = 0; i < m->n; i++) {
        const aril__proto_field *other = m->slot[i].field;
        if (other == f || (f->oneof && other->oneof == f->oneof)) return true;
    }
    return false;
}

static bool parse_field(parser *p, aril__message *m)
{
    if (p->kind != WORD) return expected(p, "the name of a field");
    const aril__proto_field *f = field_of(p, m->type);
    if (!f) return unknown_field(p);
    if (set_before(m, f))
        return fail(p, "%s of %s is given twice, but has one value%s", f->name, m->type->name,
                    f->oneof ? ", or excludes a field given before" : "");
    size_t line = (size_t)p->token_line;
    if (!next(p)) return false;
    bool colon = is_symbol(p, ':');
    if (colon && !next(p)) return false;
    if (!colon && f->kind != ARIL__PROTO_message) return expected(p, "':'");
    if (is_symbol(p, '[') && aril__proto_repeated(f) ? !parse_list(p, m, f) : !parse_value(p, m, f))
        return false;
    aril__slot *s = aril__proto_repeated(f) ? NULL : aril__slot_find(m, f);
    if (s) s->line = line;
    return !(is_symbol(p, ',') || is_symbol(p, ';')) || next(p);
}

/* Fields up to the closing symbol, or to the end of the file. */
static bool parse_fields(parser *p, aril__message *m, char close)
{
    char wanted[] = "a field or '}'";
    while (close ? !is_symbol(p, close) : p->kind != END) {
        if (p->kind == END) {
            wanted[sizeof wanted - 3] = close;
            return expected(p, wanted);
        }
        if (!parse_field(p, m)) return false;
    }
    return !close || next(p);
}

aril__message *aril__message_parse(const aril__proto_type *type, const char *text, size_t size,
                                   aril__message_opts opts)
{
    aril__message *m = aril__message_new(type);
    if (!m) return NULL;
    aril__message_limit(m->owner, size, opts);
    m->owner->text = true;
    m->where = 1;
    parser p = { .at = size ? text : "",
                 .line = 1,
                 .name = opts.name ? opts.name : type->name,
                 .depth = (opts.max_depth > 0 ? opts.max_depth : ARIL__PROTO_DEPTH) - 1 };
    level whole = { .message = m };
    p.in = &whole;
    p.end = p.at + size;
    p.line_start = p.at;
    char missing[256];
    bool good = next(&p) && parse_fields(&p, m, '\0');
    if (good && !opts.partial && !aril__message_complete(m, missing, sizeof missing)) {
        aril__fail(ARIL_ERR_FORMAT, "%s: %s is required, but missing", p.name, missing);
        good = false;
    }
    aril__bytes_free(&p.string);
    if (good) {
        m->owner->limit = UINT64_MAX;
        return m;
    }
    aril__message_free(m);
    return NULL;
}
