/* The fields of messages, by name. */
#include "formats/proto_message.h"

#include "core/error.h"
#include "formats/bytes.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The field that a caller names. */
static const aril__proto_field *named(const aril__message *m, const char *name)
{
    const aril__proto_field *f = aril__proto_field_named(m->type, name);
    ARIL_ASSERT(f && "the type of the message has a field of this name");
    return f;
}

/* ---- getting ---- */

bool aril__message_has(const aril__message *m, const char *name)
{
    return aril__slot_find(m, named(m, name)) != NULL;
}

size_t aril__message_count(const aril__message *m, const char *name)
{
    const aril__slot *s = aril__slot_find(m, named(m, name));
    return !s ? 0 : aril__proto_repeated(s->field) ? s->n : 1;
}

static uint64_t single_bits(const aril__message *m, const aril__proto_field *f)
{
    ARIL_ASSERT(!aril__proto_repeated(f));
    const aril__slot *s = aril__slot_find(m, f);
    return s ? s->bits : aril__proto_initial(f);
}

int64_t aril__message_int(const aril__message *m, const char *name)
{
    const aril__proto_field *f = named(m, name);
    ARIL_ASSERT(aril__proto_is_integer(f));
    return (int64_t)single_bits(m, f);
}

double aril__message_number(const aril__message *m, const char *name)
{
    const aril__proto_field *f = named(m, name);
    ARIL_ASSERT(aril__proto_is_integer(f) || aril__proto_is_real(f));
    return aril__proto_number_of(f, single_bits(m, f));
}

aril__slice aril__message_bytes(const aril__message *m, const char *name)
{
    const aril__proto_field *f = named(m, name);
    ARIL_ASSERT(aril__proto_is_text(f) && !aril__proto_repeated(f));
    const aril__slot *s = aril__slot_find(m, f);
    if (s) return (aril__slice){ s->at, s->n };
    const char *text = f->initial ? f->initial : "";
    return (aril__slice){ text, strlen(text) };
}

const char *aril__message_text(const aril__message *m, const char *name)
{
    ARIL_ASSERT(named(m, name)->kind == ARIL__PROTO_string);
    return aril__message_bytes(m, name).at;
}

const aril__message *aril__message_sub(const aril__message *m, const char *name)
{
    const aril__proto_field *f = named(m, name);
    ARIL_ASSERT(f->kind == ARIL__PROTO_message && !aril__proto_repeated(f));
    const aril__slot *s = aril__slot_find(m, f);
    return s ? s->message : &((const aril__proto_type *)f->of)->empty;
}

const char *aril__message_value(const aril__message *m, const char *name)
{
    const aril__proto_field *f = named(m, name);
    ARIL_ASSERT(f->kind == ARIL__PROTO_enum);
    const aril__proto_value *v = aril__proto_value_numbered(f->of, (int32_t)single_bits(m, f));
    return v ? v->name : "?";
}

/* Element i of a repeated field; NULL beyond the last. */
static const void *element(const aril__message *m, const aril__proto_field *f, size_t i)
{
    ARIL_ASSERT(aril__proto_repeated(f));
    const aril__slot *s = aril__slot_find(m, f);
    return s && i < s->n ? (const unsigned char *)s->at + i * aril__proto_width(f) : NULL;
}

int64_t aril__message_int_at(const aril__message *m, const char *name, size_t i)
{
    const aril__proto_field *f = named(m, name);
    ARIL_ASSERT(aril__proto_is_integer(f));
    const void *p = element(m, f, i);
    return p ? (int64_t)aril__proto_load(f, p, 0) : 0;
}

double aril__message_number_at(const aril__message *m, const char *name, size_t i)
{
    const aril__proto_field *f = named(m, name);
    ARIL_ASSERT(aril__proto_is_integer(f) || aril__proto_is_real(f));
    const void *p = element(m, f, i);
    return p ? aril__proto_number_of(f, aril__proto_load(f, p, 0)) : 0;
}

aril__slice aril__message_bytes_at(const aril__message *m, const char *name, size_t i)
{
    const aril__proto_field *f = named(m, name);
    ARIL_ASSERT(aril__proto_is_text(f));
    const aril__slice *p = element(m, f, i);
    return p ? *p : (aril__slice){ "", 0 };
}

const char *aril__message_text_at(const aril__message *m, const char *name, size_t i)
{
    ARIL_ASSERT(named(m, name)->kind == ARIL__PROTO_string);
    return aril__message_bytes_at(m, name, i).at;
}

aril__message *aril__message_sub_at(const aril__message *m, const char *name, size_t i)
{
    const aril__proto_field *f = named(m, name);
    ARIL_ASSERT(f->kind == ARIL__PROTO_message);
    aril__message *const *p = element(m, f, i);
    return p ? *p : NULL;
}

aril__proto_array aril__message_array(const aril__message *m, const char *name)
{
    const aril__proto_field *f = named(m, name);
    ARIL_ASSERT(aril__proto_repeated(f) && (aril__proto_is_integer(f) || aril__proto_is_real(f)));
    const aril__slot *s = aril__slot_find(m, f);
    return (aril__proto_array){ s ? s->at : "", s ? s->n : 0, aril__proto_width(f) };
}

/* ---- NaN and infinities ---- */

static bool is_odd(const aril__slot *s, size_t i, bool infinite, double *value)
{
    const aril__proto_field *f = s->field;
    uint64_t bits = aril__proto_repeated(f) ? aril__proto_load(f, s->at, i) : s->bits;
    *value = aril__proto_number_of(f, bits);
    return isnan(*value) || (infinite && isinf(*value));
}

bool aril__message_find_odd(const aril__message *m, bool infinite, char *name, size_t size,
                            double *value)
{
    for (uint32_t k = 0; k < m->n; k++) {
        const aril__slot *s = &m->slot[k];
        const aril__proto_field *f = s->field;
        bool sub = f->kind == ARIL__PROTO_message, many = aril__proto_repeated(f);
        if (f->label == ARIL__PROTO_PACKED || (!sub && !aril__proto_is_real(f))) continue;
        int length = snprintf(name, size, "%s%s", f->name, sub ? "." : "");
        size_t end = (size_t)length < size ? (size_t)length : size - 1;
        for (size_t i = 0; i < (many ? s->n : 1); i++) {
            if (!sub && is_odd(s, i, infinite, value)) return true;
            if (sub && aril__message_find_odd(many ? ((aril__message **)s->at)[i] : s->message,
                                              infinite, name + end, size - end, value))
                return true;
        }
    }
    return false;
}

/* ---- changing ---- */

/* The field to set (or to append to, if many); NULL if there is no message. */
static const aril__proto_field *target(const aril__message *m, const char *name, bool many)
{
    if (!m) return NULL;
    const aril__proto_field *f = named(m, name);
    ARIL_ASSERT(aril__proto_repeated(f) == many);
    return f;
}

static void put_int(aril__message *m, const aril__proto_field *f, int64_t value)
{
    if (!f) return;
    ARIL_ASSERT(aril__proto_is_integer(f));
    aril__message_put_bits(m, f, aril__proto_bits_of_int(f, value));
}

static void put_number(aril__message *m, const aril__proto_field *f, double value)
{
    if (!f) return;
    ARIL_ASSERT(aril__proto_is_real(f));
    aril__message_put_bits(m, f, aril__proto_bits_of_number(f, value));
}

static void put_bytes(aril__message *m, const aril__proto_field *f, const void *data, size_t n)
{
    if (!f) return;
    ARIL_ASSERT(aril__proto_is_text(f));
    const char *copy = aril__message_copy(m->owner, data, n);
    if (copy) aril__message_put_slice(m, f, (aril__slice){ copy, n });
}

void aril__message_set_int(aril__message *m, const char *name, int64_t value)
{
    put_int(m, target(m, name, false), value);
}

void aril__message_add_int(aril__message *m, const char *name, int64_t value)
{
    put_int(m, target(m, name, true), value);
}

void aril__message_set_number(aril__message *m, const char *name, double value)
{
    put_number(m, target(m, name, false), value);
}

void aril__message_add_number(aril__message *m, const char *name, double value)
{
    put_number(m, target(m, name, true), value);
}

void aril__message_set_text(aril__message *m, const char *name, const char *text)
{
    put_bytes(m, target(m, name, false), text, strlen(text));
}

void aril__message_add_text(aril__message *m, const char *name, const char *text)
{
    put_bytes(m, target(m, name, true), text, strlen(text));
}

void aril__message_set_bytes(aril__message *m, const char *name, const void *data, size_t n)
{
    put_bytes(m, target(m, name, false), data, n);
}

void aril__message_add_bytes(aril__message *m, const char *name, const void *data, size_t n)
{
    put_bytes(m, target(m, name, true), data, n);
}

void aril__message_refer_bytes(aril__message *m, const char *name, const void *data, size_t n)
{
    const aril__proto_field *f = target(m, name, false);
    if (!f) return;
    ARIL_ASSERT(f->kind == ARIL__PROTO_bytes);
    aril__message_put_slice(m, f, (aril__slice){ data, n });
}

aril__message *aril__message_set_sub(aril__message *m, const char *name)
{
    const aril__proto_field *f = target(m, name, false);
    ARIL_ASSERT(!f || f->kind == ARIL__PROTO_message);
    return f ? aril__message_put_sub(m, f) : NULL;
}

aril__message *aril__message_add_sub(aril__message *m, const char *name)
{
    const aril__proto_field *f = target(m, name, true);
    ARIL_ASSERT(!f || f->kind == ARIL__PROTO_message);
    return f ? aril__message_put_sub(m, f) : NULL;
}

/* Replaces a repeated field by n elements, uninitialized; NULL if there are none. */
static void *replace(aril__message *m, const char *name, size_t n, const aril__proto_field **field)
{
    const aril__proto_field *f = *field = target(m, name, true);
    if (!f) return NULL;
    aril__message_clear(m, name);
    aril__slot *s = n ? aril__slot_make(m, f) : NULL;
    return s ? aril__slot_extend(m, s, n) : NULL;
}

void aril__message_set_floats(aril__message *m, const char *name, const float *value, size_t n)
{
    const aril__proto_field *f;
    void *to = replace(m, name, n, &f);
    ARIL_ASSERT(!f || aril__proto_is_real(f));
    for (size_t i = 0; to && i < n; i++) {
        uint32_t bits; /* not by a double, which changes a signaling NaN */
        memcpy(&bits, &value[i], sizeof bits);
        bool same = f->kind == ARIL__PROTO_float;
        aril__proto_store(f, to, i, same ? bits : aril__proto_bits_of_number(f, (double)value[i]));
    }
}

void aril__message_set_doubles(aril__message *m, const char *name, const double *value, size_t n)
{
    const aril__proto_field *f;
    void *to = replace(m, name, n, &f);
    ARIL_ASSERT(!f || aril__proto_is_real(f));
    for (size_t i = 0; to && i < n; i++)
        aril__proto_store(f, to, i, aril__proto_bits_of_number(f, value[i]));
}

void aril__message_set_ints(aril__message *m, const char *name, const int64_t *value, size_t n)
{
    const aril__proto_field *f;
    void *to = replace(m, name, n, &f);
    ARIL_ASSERT(!f || aril__proto_is_integer(f));
    for (size_t i = 0; to && i < n; i++)
        aril__proto_store(f, to, i, aril__proto_bits_of_int(f, value[i]));
}

void aril__message_clear(aril__message *m, const char *name)
{
    aril__slot *s = m ? aril__slot_find(m, named(m, name)) : NULL;
    if (s) aril__slot_remove(m, s);
}

void aril__message_remove(aril__message *m, const char *name, size_t i)
{
    const aril__proto_field *f = target(m, name, true);
    aril__slot *s = f ? aril__slot_find(m, f) : NULL;
    if (!s || i >= s->n) return;
    size_t width = aril__proto_width(f), n = s->n - 1;
    if (n == 0) {
        aril__slot_remove(m, s);
        return;
    }
    if (!s->capacity) { /* the input must stay as it is */
        void *copy = aril__message_alloc(m->owner, s->n * width);
        if (!copy) return;
        memcpy(copy, s->at, s->n * width);
        s->at = copy;
        s->capacity = s->n;
    }
    unsigned char *p = (unsigned char *)s->at + i * width;
    memmove(p, p + width, (n - i) * width);
    s->n = n;
}

/* ---- strings ---- */

static bool is_utf8(const void *text, size_t n)
{
    const unsigned char *p = text;
    while (n > 0) {
        int length = aril__utf8_length(p, n);
        if (!length) return false;
        p += length;
        n -= (size_t)length;
    }
    return true;
}

aril__slice aril__message_not_utf8(const aril__message *m)
{
    aril__slice bad = { 0 };
    for (uint32_t k = 0; k < m->n && !bad.at; k++) {
        const aril__slot *s = &m->slot[k];
        bool repeated = aril__proto_repeated(s->field);
        for (size_t i = 0; i < (repeated ? s->n : 1) && !bad.at; i++) {
            if (s->field->kind == ARIL__PROTO_message) {
                aril__message *const *list = s->at;
                bad = aril__message_not_utf8(repeated ? list[i] : s->message);
            } else if (s->field->kind == ARIL__PROTO_string) {
                const aril__slice *list = s->at;
                aril__slice own = repeated ? list[i] : (aril__slice){ s->at, s->n };
                if (!is_utf8(own.at, own.n)) bad = own;
            }
        }
    }
    return bad;
}
