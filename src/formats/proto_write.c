/* The wire form of protocol buffers, written: first the sizes of all messages, then their bytes. */
#include "formats/proto_message.h"

#include "core/error.h"
#include "formats/atomic_file.h"

#include <string.h>

static size_t varint_size(uint64_t v)
{
    size_t n = 1;
    for (; v >= 0x80; v >>= 7) n++;
    return n;
}

static uint64_t zigzag(uint64_t v)
{
    return v << 1 ^ (0 - (v >> 63));
}

/* The bits of a field as its varint. */
static uint64_t varint_of(const aril__proto_field *f, uint64_t bits)
{
    switch (f->kind) {
    case ARIL__PROTO_sint32: return (uint32_t)zigzag(bits);
    case ARIL__PROTO_sint64: return zigzag(bits);
    default: return bits;
    }
}

/* ---- sizes ---- */

/* Sizes are added in 64 bits, which no tree in memory can exceed. */
static uint64_t size_of(aril__message *m, int depth, bool *too_deep);

static uint64_t delimited(uint64_t size)
{
    return varint_size(size) + size;
}

static uint64_t number_size(const aril__proto_field *f, uint64_t bits)
{
    int wire = aril__proto_wire(f);
    return wire == ARIL__WIRE_VARINT    ? varint_size(varint_of(f, bits))
           : wire == ARIL__WIRE_FIXED64 ? 8
                                        : 4;
}

static uint64_t numbers_size(const aril__slot *s)
{
    uint64_t size = 0;
    if (aril__proto_wire(s->field) != ARIL__WIRE_VARINT) return s->n * aril__proto_width(s->field);
    for (size_t i = 0; i < s->n; i++)
        size += number_size(s->field, aril__proto_load(s->field, s->at, i));
    return size;
}

static uint64_t repeated_size(const aril__slot *s, uint64_t tag, int depth, bool *too_deep)
{
    uint64_t size = 0;
    aril__message *const *sub = s->at;
    const aril__slice *slice = s->at;
    switch (s->field->kind) {
    case ARIL__PROTO_message:
        for (size_t i = 0; i < s->n; i++) size += tag + delimited(size_of(sub[i], depth, too_deep));
        return size;
    case ARIL__PROTO_string:
    case ARIL__PROTO_bytes:
        for (size_t i = 0; i < s->n; i++) size += tag + delimited(slice[i].n);
        return size;
    default:
        size = numbers_size(s);
        return s->field->label == ARIL__PROTO_PACKED ? tag + delimited(size) : size + s->n * tag;
    }
}

static uint64_t slot_size(const aril__slot *s, int depth, bool *too_deep)
{
    uint64_t tag = varint_size((uint64_t)s->field->number << 3);
    if (aril__proto_repeated(s->field)) return s->n ? repeated_size(s, tag, depth, too_deep) : 0;
    switch (s->field->kind) {
    case ARIL__PROTO_message: return tag + delimited(size_of(s->message, depth, too_deep));
    case ARIL__PROTO_string:
    case ARIL__PROTO_bytes: return tag + delimited(s->n);
    default: return tag + number_size(s->field, s->bits);
    }
}

static uint64_t size_of(aril__message *m, int depth, bool *too_deep)
{
    uint64_t size = 0;
    if (depth <= 0) {
        *too_deep = true;
        return 0;
    }
    for (uint32_t i = 0; i < m->n; i++) size += slot_size(&m->slot[i], depth - 1, too_deep);
    if (m->unknown)
        for (const aril__unknown *u = m->unknown->next;; u = u->next) {
            size += u->n;
            if (u == m->unknown) break;
        }
    m->size = (size_t)size;
    return size;
}

/* ---- bytes ---- */

/* Memory of the right size, or a file, which has a buffer of its own and remembers a failure. */
typedef struct sink {
    unsigned char *at;
    aril__file *file;
} sink;

static void put(sink *to, const void *data, size_t n)
{
    if (n == 0) return;
    if (to->file) {
        aril__file_write(to->file, data, n);
        return;
    }
    memcpy(to->at, data, n);
    to->at += n;
}

static void put_varint(sink *to, uint64_t v)
{
    unsigned char b[10];
    size_t n = 0;
    for (; v >= 0x80; v >>= 7) b[n++] = (unsigned char)(v | 0x80);
    b[n++] = (unsigned char)v;
    put(to, b, n);
}

static void put_tag(sink *to, const aril__proto_field *f, int wire)
{
    put_varint(to, (uint64_t)f->number << 3 | (uint64_t)wire);
}

static void put_number(sink *to, const aril__proto_field *f, uint64_t bits)
{
    unsigned char b[8];
    int wire = aril__proto_wire(f);
    if (wire == ARIL__WIRE_VARINT) {
        put_varint(to, varint_of(f, bits));
        return;
    }
    aril__put_le64(b, bits);
    put(to, b, wire == ARIL__WIRE_FIXED64 ? 8 : 4);
}

static void put_slice(sink *to, const aril__proto_field *f, aril__slice b)
{
    put_tag(to, f, ARIL__WIRE_BYTES);
    put_varint(to, b.n);
    put(to, b.at, b.n);
}

static void put_message(sink *to, const aril__message *m);

static void put_sub(sink *to, const aril__proto_field *f, const aril__message *m)
{
    put_tag(to, f, ARIL__WIRE_BYTES);
    put_varint(to, m->size);
    put_message(to, m);
}

static void put_numbers(sink *to, const aril__slot *s)
{
    const aril__proto_field *f = s->field;
    int wire = aril__proto_wire(f);
    bool packed = f->label == ARIL__PROTO_PACKED;
    if (packed) {
        put_tag(to, f, ARIL__WIRE_BYTES);
        put_varint(to, numbers_size(s));
        if (wire != ARIL__WIRE_VARINT) { /* as they lie in memory */
            put(to, s->at, s->n * aril__proto_width(f));
            return;
        }
    }
    for (size_t i = 0; i < s->n; i++) {
        if (!packed) put_tag(to, f, wire);
        put_number(to, f, aril__proto_load(f, s->at, i));
    }
}

static void put_repeated(sink *to, const aril__slot *s)
{
    aril__message *const *sub = s->at;
    const aril__slice *slice = s->at;
    switch (s->field->kind) {
    case ARIL__PROTO_message:
        for (size_t i = 0; i < s->n; i++) put_sub(to, s->field, sub[i]);
        break;
    case ARIL__PROTO_string:
    case ARIL__PROTO_bytes:
        for (size_t i = 0; i < s->n; i++) put_slice(to, s->field, slice[i]);
        break;
    default: put_numbers(to, s);
    }
}

static void put_slot(sink *to, const aril__slot *s)
{
    const aril__proto_field *f = s->field;
    if (aril__proto_repeated(f)) {
        if (s->n) put_repeated(to, s);
    } else if (f->kind == ARIL__PROTO_message) {
        put_sub(to, f, s->message);
    } else if (aril__proto_wire(f) == ARIL__WIRE_BYTES) {
        put_slice(to, f, (aril__slice){ s->at, s->n });
    } else {
        put_tag(to, f, aril__proto_wire(f));
        put_number(to, f, s->bits);
    }
}

static void put_message(sink *to, const aril__message *m)
{
    for (uint32_t i = 0; i < m->n; i++) put_slot(to, &m->slot[i]);
    if (!m->unknown) return;
    for (const aril__unknown *u = m->unknown->next;; u = u->next) {
        put(to, u->at, u->n);
        if (u == m->unknown) break;
    }
}

/* ---- whole messages ---- */

/* Computes all sizes, and checks that the message can be written. */
static aril_status measure(aril__message *m)
{
    const char *name = m->type->name;
    bool too_deep = false;
    char missing[256];
    if (m->owner->failed)
        return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory while it was made", name);
    if (!aril__message_complete(m, missing, sizeof missing))
        return aril__fail(ARIL_ERR_ARG, "%s: %s is required, but not set", name, missing);
    uint64_t size = size_of(m, ARIL__PROTO_DEPTH, &too_deep);
    if (too_deep)
        return aril__fail(ARIL_ERR_ARG, "%s: messages are nested more than %d deep", name,
                          ARIL__PROTO_DEPTH);
    if (size > INT32_MAX)
        return aril__fail(ARIL_ERR_ARG,
                          "%s: it would take %llu bytes, but protocol buffers have at most 2 GiB; "
                          "store large tensors in files of their own",
                          name, (unsigned long long)size);
    return ARIL_OK;
}

aril_status aril__message_write(aril__message *m, aril__bytes *to)
{
    aril_status status = measure(m);
    if (status != ARIL_OK) return status;
    sink s = { .at = aril__bytes_add(to, NULL, m->size) };
    if (!s.at)
        return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory for its %zu bytes", m->type->name,
                          m->size);
    put_message(&s, m);
    return ARIL_OK;
}

aril_status aril__message_put(aril__message *m, aril__file *to)
{
    aril_status status = measure(m);
    sink s = { .file = to };
    if (status == ARIL_OK) put_message(&s, m);
    return status;
}

aril_status aril__message_save(aril__message *m, const char *path)
{
    aril_status status = measure(m);
    if (status != ARIL_OK) return status;
    sink s = { .file = aril__file_begin(path) };
    if (!s.file) return aril__latest_status();
    put_message(&s, m);
    return aril__file_commit(s.file);
}
