/* The wire form of protocol buffers, read. Nothing in the data is trusted: every length is checked
 * against what is left of the message around it. */
#include "formats/proto_message.h"

#include "core/error.h"

#include <string.h>

typedef struct reader {
    const uint8_t *begin; /* of the data: errors and messages give offsets from here */
    const char *name;
    int depth, deepest; /* how much deeper messages may be nested, and that at the root */
} reader;

static bool fail(const reader *r, const uint8_t *at, const aril__message *m, const char *what)
{
    aril__fail(ARIL_ERR_FORMAT, "%s: byte %llu, in a %s: %s; the file is damaged or not a %s",
               r->name, (unsigned long long)(at - r->begin), m->type->name, what,
               m->owner->root.type->name);
    return false;
}

/* Out of memory, or over the limit of the tree. */
static bool fail_memory(const reader *r, const aril__message_owner *owner)
{
    aril__fail(ARIL_ERR_MEMORY, "%s: no memory for its messages, of which %llu bytes were read",
               r->name, (unsigned long long)owner->taken);
    return false;
}

static bool get_varint(const uint8_t **at, const uint8_t *end, uint64_t *value)
{
    uint64_t v = 0;
    const uint8_t *p = *at;
    for (int shift = 0; shift < 64 && p < end; shift += 7) {
        uint8_t byte = *p++;
        v |= (uint64_t)(byte & 0x7f) << shift;
        if (byte >= 0x80) continue;
        *value = v;
        *at = p;
        return true;
    }
    return false;
}

/* A length, and that many bytes. */
static bool get_bytes(const uint8_t **at, const uint8_t *end, aril__slice *value)
{
    uint64_t n;
    const uint8_t *p = *at;
    if (!get_varint(&p, end, &n) || n > (size_t)(end - p)) return false;
    *value = (aril__slice){ p, (size_t)n };
    *at = p + n;
    return true;
}

static uint64_t unzigzag(uint64_t v)
{
    return v >> 1 ^ (0 - (v & 1));
}

/* A varint as the bits of its field. */
static uint64_t bits_of_varint(const aril__proto_field *f, uint64_t v)
{
    switch (f->kind) {
    case ARIL__PROTO_sint32: return unzigzag((uint32_t)v);
    case ARIL__PROTO_sint64: return unzigzag(v);
    default: return aril__proto_bits_of_int(f, (int64_t)v);
    }
}

/* Skips one value of an unknown field, a group with all in it. */
static bool skip(const uint8_t **at, const uint8_t *end, uint64_t tag, int depth)
{
    uint64_t v;
    aril__slice bytes;
    size_t fixed = (tag & 7) == ARIL__WIRE_FIXED64 ? 8 : 4;
    switch (tag & 7) {
    case ARIL__WIRE_VARINT: return get_varint(at, end, &v);
    case ARIL__WIRE_BYTES: return get_bytes(at, end, &bytes);
    case ARIL__WIRE_FIXED32:
    case ARIL__WIRE_FIXED64:
        if ((size_t)(end - *at) < fixed) return false;
        *at += fixed;
        return true;
    case ARIL__WIRE_GROUP: break;
    default: return false;
    }
    if (depth <= 0) return false;
    while (get_varint(at, end, &v)) {
        if (v == tag + 1) return true; /* the end of this group */
        if (v >> 3 == 0 || v >> 32 || !skip(at, end, v, depth - 1)) return false;
    }
    return false;
}

static size_t count_varints(aril__slice b)
{
    const uint8_t *p = b.at;
    size_t n = 0;
    for (size_t i = 0; i < b.n; i++) n += p[i] < 0x80;
    return n;
}

/* Keeps an element of a packed field as an unknown field of its own, not packed. */
static bool keep_unknown(const reader *r, aril__message *m, const aril__proto_field *f,
                         const uint8_t *at, size_t n)
{
    uint8_t field[20];
    size_t used = 0;
    uint64_t tag = (uint64_t)f->number << 3 | ARIL__WIRE_VARINT;
    for (; tag >= 0x80; tag >>= 7) field[used++] = (uint8_t)(tag | 0x80);
    field[used++] = (uint8_t)tag;
    memcpy(field + used, at, n);
    const char *copy = aril__message_copy(m->owner, field, used + n);
    return (copy && aril__message_put_unknown(m, (const uint8_t *)copy, used + n)) ||
           fail_memory(r, m->owner);
}

static bool read_packed_varints(const reader *r, aril__message *m, aril__slot *s, aril__slice b)
{
    const uint8_t *at = b.at, *end = at + b.n;
    size_t n = count_varints(b), kept = 0;
    if (n == 0) return fail(r, at, m, "a packed number is not complete");
    void *to = aril__slot_extend(m, s, n);
    if (!to) return fail_memory(r, m->owner);
    for (size_t i = 0; i < n; i++) {
        const uint8_t *from = at;
        uint64_t v;
        if (!get_varint(&at, end, &v)) return fail(r, at, m, "a packed number is too long");
        uint64_t bits = bits_of_varint(s->field, v);
        if (aril__proto_allows(s->field, bits))
            aril__proto_store(s->field, to, kept++, bits);
        else if (!keep_unknown(r, m, s->field, from, (size_t)(at - from)))
            return false;
    }
    s->n -= n - kept;
    if (s->n == 0) aril__slot_remove(m, s);
    return at == end || fail(r, at, m, "a packed number is not complete");
}

/* Numbers of a fixed size: the first block of them is used where it lies. */
static bool read_packed_fixed(const reader *r, aril__message *m, aril__slot *s, aril__slice b)
{
    size_t width = aril__proto_width(s->field), n = b.n / width;
    if (b.n % width) return fail(r, b.at, m, "packed numbers of a fixed size are not complete");
    if (s->n == 0 && s->capacity == 0) {
        s->at = (void *)(uintptr_t)b.at;
        s->n = n;
        return true;
    }
    void *to = aril__slot_extend(m, s, n);
    if (!to) return fail_memory(r, m->owner);
    memcpy(to, b.at, b.n);
    return true;
}

static bool read_packed(const reader *r, aril__message *m, const aril__proto_field *f,
                        aril__slice b)
{
    if (b.n == 0) return true;
    aril__slot *s = aril__slot_make(m, f);
    if (!s) return fail_memory(r, m->owner);
    return aril__proto_wire(f) == ARIL__WIRE_VARINT ? read_packed_varints(r, m, s, b)
                                                    : read_packed_fixed(r, m, s, b);
}

static bool read_message(reader *r, aril__slice data, aril__message *m);

/* A string is copied, to end with NUL. */
static bool read_slice(reader *r, aril__message *m, const aril__proto_field *f, aril__slice b)
{
    if (f->kind == ARIL__PROTO_message) {
        aril__message *sub = aril__message_put_sub(m, f);
        if (!sub) return fail_memory(r, m->owner);
        if (!sub->where) sub->where = (uint64_t)((const uint8_t *)b.at - r->begin);
        return read_message(r, b, sub);
    }
    if (f->kind == ARIL__PROTO_string) b.at = aril__message_copy(m->owner, b.at, b.n);
    return (b.at && aril__message_put_slice(m, f, b)) || fail_memory(r, m->owner);
}

/* A value that a closed enum does not have makes the field unknown. */
static bool read_number(const reader *r, aril__message *m, const aril__proto_field *f,
                        const uint8_t **at, const uint8_t *end, bool *unknown)
{
    const uint8_t *from = *at;
    int wire = aril__proto_wire(f);
    uint64_t bits;
    if (wire == ARIL__WIRE_VARINT) {
        if (!get_varint(at, end, &bits)) return fail(r, from, m, "a number is not complete");
        bits = bits_of_varint(f, bits);
    } else {
        size_t width = wire == ARIL__WIRE_FIXED64 ? 8 : 4;
        if ((size_t)(end - from) < width) return fail(r, from, m, "a number is not complete");
        bits = aril__proto_load(f, from, 0);
        *at += width;
    }
    *unknown = !aril__proto_allows(f, bits);
    if (*unknown) {
        *at = from;
        return true;
    }
    return aril__message_put_bits(m, f, bits) || fail_memory(r, m->owner);
}

/* A field of a known number; one of another wire type than the schema says is unknown. */
static bool read_field(reader *r, aril__message *m, const aril__proto_field *f, int wire,
                       const uint8_t **at, const uint8_t *end, bool *unknown)
{
    bool packed = wire == ARIL__WIRE_BYTES && aril__proto_wire(f) != ARIL__WIRE_BYTES &&
                  aril__proto_repeated(f);
    *unknown = wire != aril__proto_wire(f) && !packed;
    if (*unknown) return true;
    if (wire != ARIL__WIRE_BYTES) return read_number(r, m, f, at, end, unknown);
    aril__slice b;
    const uint8_t *from = *at;
    if (!get_bytes(at, end, &b)) return fail(r, from, m, "a length goes beyond the end");
    return packed ? read_packed(r, m, f, b) : read_slice(r, m, f, b);
}

static bool read_fields(reader *r, aril__slice data, aril__message *m)
{
    const uint8_t *at = data.at, *end = data.n ? at + data.n : at;
    while (at < end) {
        const uint8_t *from = at;
        uint64_t tag;
        bool unknown = true;
        if (!get_varint(&at, end, &tag) || tag >> 3 == 0 || tag >> 32)
            return fail(r, from, m, "expected a field");
        const aril__proto_field *f = aril__proto_field_numbered(m->type, (uint32_t)(tag >> 3));
        if (f && !read_field(r, m, f, (int)(tag & 7), &at, end, &unknown)) return false;
        if (!unknown) continue;
        if (!skip(&at, end, tag, r->depth))
            return fail(r, from, m, "a field that is not known is not complete");
        if (!aril__message_put_unknown(m, from, (size_t)(at - from)))
            return fail_memory(r, m->owner);
    }
    return true;
}

static bool read_message(reader *r, aril__slice data, aril__message *m)
{
    if (r->depth <= 0) {
        aril__fail(ARIL_ERR_UNSUPPORTED,
                   "%s: byte %llu, in a %s: messages are nested more than %d deep", r->name,
                   (unsigned long long)((const uint8_t *)data.at - r->begin), m->type->name,
                   r->deepest);
        return false;
    }
    r->depth--;
    bool good = read_fields(r, data, m);
    r->depth++;
    return good;
}

aril__message *aril__message_read(const aril__proto_type *type, const void *data, size_t size,
                                  aril__message_opts opts)
{
    aril__message *m = aril__message_new(type);
    if (!m) return NULL;
    aril__message_limit(m->owner, size, opts);
    int deepest = opts.max_depth > 0 ? opts.max_depth : ARIL__PROTO_DEPTH;
    reader r = { .begin = data,
                 .name = opts.name ? opts.name : type->name,
                 .depth = deepest,
                 .deepest = deepest };
    char missing[256];
    bool good = read_message(&r, (aril__slice){ data, size }, m);
    if (good && !opts.partial && !aril__message_complete(m, missing, sizeof missing)) {
        aril__fail(ARIL_ERR_FORMAT, "%s: %s is required, but missing", r.name, missing);
        good = false;
    }
    if (good) {
        m->owner->limit = UINT64_MAX; /* changes are the program's */
        return m;
    }
    aril__message_free(m);
    return NULL;
}
