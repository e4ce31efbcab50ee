#include "formats/proto.h"

#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

/* ---- writing ---- */

void aril__proto_free(aril__proto *p)
{
    free(p->at);
    *p = (aril__proto){ 0 };
}

void aril__proto_clear(aril__proto *p)
{
    p->n = 0;
    p->failed = false;
}

static uint8_t *grow(aril__proto *p, size_t n)
{
    if (p->failed) return NULL;
    if (n > p->capacity - p->n) {
        size_t capacity = p->capacity ? p->capacity : 256;
        while (capacity - p->n < n) {
            if (capacity > SIZE_MAX / 2) return p->failed = true, NULL;
            capacity *= 2;
        }
        uint8_t *wider = aril__realloc(p->at, capacity);
        if (!wider) return p->failed = true, NULL;
        p->at = wider;
        p->capacity = capacity;
    }
    p->n += n;
    return p->at + p->n - n;
}

static size_t varint_bytes(uint64_t v)
{
    size_t n = 1;
    for (; v >= 0x80; v >>= 7) n++;
    return n;
}

static void put_varint(uint8_t *to, uint64_t v)
{
    for (; v >= 0x80; v >>= 7) *to++ = (uint8_t)(v | 0x80);
    *to = (uint8_t)v;
}

static void varint(aril__proto *p, uint64_t v)
{
    uint8_t *to = grow(p, varint_bytes(v));
    if (to) put_varint(to, v);
}

static void key(aril__proto *p, uint32_t field, aril__proto_wire wire)
{
    varint(p, (uint64_t)field << 3 | (uint64_t)wire);
}

/* The format is little-endian regardless of the machine. */
static void fixed(aril__proto *p, uint64_t bits, size_t n)
{
    uint8_t *to = grow(p, n);
    for (size_t i = 0; to && i < n; i++) to[i] = (uint8_t)(bits >> (8 * i));
}

static uint64_t double_bits(double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static uint32_t float_bits(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

void aril__proto_int(aril__proto *p, uint32_t field, int64_t value)
{
    key(p, field, ARIL__PROTO_VARINT);
    varint(p, (uint64_t)value);
}

void aril__proto_double(aril__proto *p, uint32_t field, double value)
{
    key(p, field, ARIL__PROTO_FIXED64);
    fixed(p, double_bits(value), 8);
}

void aril__proto_float(aril__proto *p, uint32_t field, float value)
{
    key(p, field, ARIL__PROTO_FIXED32);
    fixed(p, float_bits(value), 4);
}

void aril__proto_bytes(aril__proto *p, uint32_t field, const void *data, size_t n)
{
    key(p, field, ARIL__PROTO_BYTES);
    varint(p, n);
    uint8_t *to = grow(p, n);
    if (to && n) memcpy(to, data, n);
}

void aril__proto_text(aril__proto *p, uint32_t field, const char *text)
{
    aril__proto_bytes(p, field, text, strlen(text));
}

void aril__proto_doubles(aril__proto *p, uint32_t field, const double *value, size_t n)
{
    key(p, field, ARIL__PROTO_BYTES);
    varint(p, 8 * n);
    for (size_t i = 0; i < n; i++) fixed(p, double_bits(value[i]), 8);
}

void aril__proto_floats(aril__proto *p, uint32_t field, const float *value, size_t n)
{
    key(p, field, ARIL__PROTO_BYTES);
    varint(p, 4 * n);
    for (size_t i = 0; i < n; i++) fixed(p, float_bits(value[i]), 4);
}

size_t aril__proto_begin(aril__proto *p, uint32_t field)
{
    key(p, field, ARIL__PROTO_BYTES);
    return p->n;
}

/* The length precedes the content but is only known afterwards: move the content to make room. */
void aril__proto_end(aril__proto *p, size_t begun)
{
    if (p->failed) return;
    size_t length = p->n - begun, head = varint_bytes(length);
    if (!grow(p, head)) return;
    memmove(p->at + begun + head, p->at + begun, length);
    put_varint(p->at + begun, length);
}

/* ---- reading ---- */

aril__proto_in aril__proto_open(const void *data, size_t n)
{
    const uint8_t *at = data;
    return (aril__proto_in){ .at = at, .end = n ? at + n : at };
}

static bool get_varint(const uint8_t **at, const uint8_t *end, uint64_t *value)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (*at == end) return false;
        uint8_t byte = *(*at)++;
        v |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *value = v;
            return true;
        }
    }
    return false;
}

static bool get_fixed(const uint8_t **at, const uint8_t *end, size_t n, uint64_t *value)
{
    if ((size_t)(end - *at) < n) return false;
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++) v |= (uint64_t)(*at)[i] << (8 * i);
    *at += n;
    *value = v;
    return true;
}

enum { GROUP = 3, GROUP_END = 4, DEEPEST_GROUP = 32 };

static bool one_field(aril__proto_in *in, unsigned *wire)
{
    uint64_t head, length;
    if (!get_varint(&in->at, in->end, &head) || head >> 3 == 0 || head >> 32) return false;
    in->field = (uint32_t)(head >> 3);
    *wire = (unsigned)head & 7;
    switch (*wire) {
    case ARIL__PROTO_VARINT: return get_varint(&in->at, in->end, &in->value);
    case ARIL__PROTO_FIXED64: return get_fixed(&in->at, in->end, 8, &in->value);
    case ARIL__PROTO_FIXED32: return get_fixed(&in->at, in->end, 4, &in->value);
    case ARIL__PROTO_BYTES:
        if (!get_varint(&in->at, in->end, &length) || length > (size_t)(in->end - in->at))
            return false;
        in->bytes = in->at;
        in->n = (size_t)length;
        in->at += in->n;
        return true;
    case GROUP:
    case GROUP_END: return true;
    default: return false;
    }
}

bool aril__proto_next(aril__proto_in *in)
{
    int depth = 0;
    while (!in->malformed && in->at != in->end) {
        unsigned wire = 0;
        if (!one_field(in, &wire) || (wire == GROUP_END && depth == 0) ||
            (wire == GROUP && depth == DEEPEST_GROUP)) {
            in->malformed = true;
            return false;
        }
        if (wire == GROUP) {
            depth++;
        } else if (wire == GROUP_END) {
            depth--;
        } else if (depth == 0) {
            in->wire = (aril__proto_wire)wire;
            return true;
        }
    }
    if (depth) in->malformed = true;
    return false;
}

double aril__proto_get_double(const aril__proto_in *in)
{
    double v;
    if (in->wire == ARIL__PROTO_FIXED32) return (double)aril__proto_get_float(in);
    if (in->wire == ARIL__PROTO_VARINT) return (double)(int64_t)in->value;
    memcpy(&v, &in->value, sizeof v);
    return in->wire == ARIL__PROTO_FIXED64 ? v : 0;
}

float aril__proto_get_float(const aril__proto_in *in)
{
    uint32_t bits = (uint32_t)in->value;
    float v;
    if (in->wire != ARIL__PROTO_FIXED32) return (float)aril__proto_get_double(in);
    memcpy(&v, &bits, sizeof v);
    return v;
}

int64_t aril__proto_get_int(const aril__proto_in *in)
{
    return in->wire == ARIL__PROTO_BYTES ? 0 : (int64_t)in->value;
}

aril__proto_in aril__proto_enter(const aril__proto_in *in)
{
    return in->wire == ARIL__PROTO_BYTES ? aril__proto_open(in->bytes, in->n)
                                         : (aril__proto_in){ .malformed = true };
}

bool aril__proto_each_int(aril__proto_in *in, const uint8_t **from, int64_t *value)
{
    if (in->wire != ARIL__PROTO_BYTES) {
        if (*from) return false;
        *from = in->at;
        *value = aril__proto_get_int(in);
        return true;
    }
    uint64_t v;
    if (!*from) *from = in->bytes;
    if (*from == in->bytes + in->n) return false;
    if (!get_varint(from, in->bytes + in->n, &v)) {
        in->malformed = true;
        return false;
    }
    *value = (int64_t)v;
    return true;
}

bool aril__proto_each_float(aril__proto_in *in, const uint8_t **from, float *value)
{
    if (in->wire != ARIL__PROTO_BYTES) {
        if (*from) return false;
        *from = in->at;
        *value = aril__proto_get_float(in);
        return true;
    }
    uint64_t v;
    if (!*from) *from = in->bytes;
    if (*from == in->bytes + in->n) return false;
    if (!get_fixed(from, in->bytes + in->n, 4, &v)) {
        in->malformed = true;
        return false;
    }
    uint32_t bits = (uint32_t)v;
    memcpy(value, &bits, sizeof bits);
    return true;
}
