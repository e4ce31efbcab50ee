/* Messages in memory: a tree in one arena, its fields sorted by number. */
#include "formats/proto_message.h"

#include "core/error.h"
#include "core/memory.h"
#include "formats/mapped_file.h"
#include "formats/number.h"

#include <stdlib.h>
#include <string.h>

/* ---- schemas ---- */

static const struct {
    uint8_t wire, width;
} kinds[] = {
    [ARIL__PROTO_double] = { ARIL__WIRE_FIXED64, 8 },
    [ARIL__PROTO_float] = { ARIL__WIRE_FIXED32, 4 },
    [ARIL__PROTO_int32] = { ARIL__WIRE_VARINT, 4 },
    [ARIL__PROTO_int64] = { ARIL__WIRE_VARINT, 8 },
    [ARIL__PROTO_uint32] = { ARIL__WIRE_VARINT, 4 },
    [ARIL__PROTO_uint64] = { ARIL__WIRE_VARINT, 8 },
    [ARIL__PROTO_sint32] = { ARIL__WIRE_VARINT, 4 },
    [ARIL__PROTO_sint64] = { ARIL__WIRE_VARINT, 8 },
    [ARIL__PROTO_fixed32] = { ARIL__WIRE_FIXED32, 4 },
    [ARIL__PROTO_fixed64] = { ARIL__WIRE_FIXED64, 8 },
    [ARIL__PROTO_sfixed32] = { ARIL__WIRE_FIXED32, 4 },
    [ARIL__PROTO_sfixed64] = { ARIL__WIRE_FIXED64, 8 },
    [ARIL__PROTO_bool] = { ARIL__WIRE_VARINT, 1 },
    [ARIL__PROTO_enum] = { ARIL__WIRE_VARINT, 4 },
    [ARIL__PROTO_string] = { ARIL__WIRE_BYTES, sizeof(aril__slice) },
    [ARIL__PROTO_bytes] = { ARIL__WIRE_BYTES, sizeof(aril__slice) },
    [ARIL__PROTO_message] = { ARIL__WIRE_BYTES, sizeof(aril__message *) },
};

size_t aril__proto_width(const aril__proto_field *f)
{
    return kinds[f->kind].width;
}

int aril__proto_wire(const aril__proto_field *f)
{
    return kinds[f->kind].wire;
}

const aril__proto_field *aril__proto_field_named(const aril__proto_type *type, const char *name)
{
    for (int i = 0; i < type->n; i++)
        if (strcmp(type->field[i].name, name) == 0) return &type->field[i];
    return NULL;
}

const aril__proto_field *aril__proto_field_numbered(const aril__proto_type *type, uint32_t number)
{
    int low = 0, high = type->n;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (type->field[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < type->n && type->field[low].number == number ? &type->field[low] : NULL;
}

const aril__proto_value *aril__proto_value_named(const aril__proto_enum *e, const char *name)
{
    for (int i = 0; i < e->n; i++)
        if (strcmp(e->value[i].name, name) == 0) return &e->value[i];
    return NULL;
}

const aril__proto_value *aril__proto_value_numbered(const aril__proto_enum *e, int32_t number)
{
    for (int i = 0; i < e->n; i++)
        if (e->value[i].number == number) return &e->value[i];
    return NULL;
}

/* ---- the arena ---- */

enum { FIRST_CHUNK = 1024, LARGEST_CHUNK = 64 * 1024 };

/* Two bytes can be a message in a message, which takes 128: twice that leaves room for arrays that
 * grow. Files of other programs stay far below. */
void aril__message_limit(aril__message_owner *owner, size_t size, aril__message_opts opts)
{
    const uint64_t each = 128, base = 1 << 20;
    uint64_t limit = size < UINT64_MAX / each - base ? each * size + base : UINT64_MAX;
    owner->limit = opts.max_memory ? opts.max_memory : limit;
}

static aril__message_chunk *new_chunk(size_t size)
{
    aril__message_chunk *c = aril__malloc(sizeof *c + size);
    if (c) *c = (aril__message_chunk){ .size = size };
    return c;
}

/* A block that needs most of a chunk gets one of its own, behind the one that is being filled. */
static void *alloc_in_new_chunk(aril__message_owner *owner, size_t size)
{
    size_t next = owner->chunk->size < LARGEST_CHUNK ? owner->chunk->size * 2 : LARGEST_CHUNK;
    bool own = size > next / 4;
    aril__message_chunk *c = new_chunk(own ? size : next);
    if (!c) return NULL;
    if (own) {
        c->next = owner->chunk->next;
        owner->chunk->next = c;
    } else {
        c->next = owner->chunk;
        owner->chunk = c;
    }
    c->used = size;
    return c->at;
}

void *aril__message_alloc(aril__message_owner *owner, size_t size)
{
    void *p = NULL;
    size = (size + 7) & ~(size_t)7;
    if (!owner->failed && size <= owner->limit - owner->taken) {
        aril__message_chunk *c = owner->chunk;
        if (size <= c->size - c->used) {
            p = c->at + c->used;
            c->used += size;
        } else {
            p = alloc_in_new_chunk(owner, size);
        }
    }
    if (p)
        owner->taken += size;
    else
        owner->failed = true;
    return p;
}

char *aril__message_copy(aril__message_owner *owner, const void *data, size_t n)
{
    char *to = n < SIZE_MAX - 8 ? aril__message_alloc(owner, n + 1) : NULL;
    if (!to) return NULL;
    if (n) memcpy(to, data, n);
    to[n] = '\0';
    return to;
}

/* Extends the last block of the arena where it lies. */
static bool grow_in_place(aril__message_owner *owner, const void *block, size_t size, size_t wanted)
{
    aril__message_chunk *c = owner->chunk;
    size = (size + 7) & ~(size_t)7;
    wanted = (wanted + 7) & ~(size_t)7;
    size_t more = wanted - size;
    if (!block || owner->failed || (const unsigned char *)block + size != c->at + c->used ||
        more > c->size - c->used || more > owner->limit - owner->taken)
        return false;
    c->used += more;
    owner->taken += more;
    return true;
}

/* Room for `capacity` elements, of which the first n are kept. */
static void *grow(aril__message_owner *owner, void *block, size_t n, size_t old, size_t capacity,
                  size_t width)
{
    if (capacity > PTRDIFF_MAX / width) {
        owner->failed = true;
        return NULL;
    }
    if (grow_in_place(owner, block, old * width, capacity * width)) return block;
    void *wider = aril__message_alloc(owner, capacity * width);
    if (wider && n) memcpy(wider, block, n * width);
    return wider;
}

static void free_chunks(aril__message_chunk *c)
{
    while (c) {
        aril__message_chunk *next = c->next;
        free(c);
        c = next;
    }
}

aril__message *aril__message_new(const aril__proto_type *type)
{
    aril__message_owner *owner = aril__calloc(sizeof *owner);
    aril__message_chunk *c = owner ? new_chunk(FIRST_CHUNK) : NULL;
    if (!c) {
        free(owner);
        aril__fail(ARIL_ERR_MEMORY, "out of memory for a message of type %s", type->name);
        return NULL;
    }
    owner->chunk = c;
    owner->limit = UINT64_MAX;
    owner->root = (aril__message){ .type = type, .owner = owner };
    return &owner->root;
}

void aril__message_free(aril__message *root)
{
    if (!root) return;
    ARIL_ASSERT(root == &root->owner->root);
    free_chunks(root->owner->chunk);
    aril__mapped_close(root->owner->file);
    free(root->owner);
}

void aril__message_reset(aril__message *root)
{
    if (!root) return;
    aril__message_owner *owner = root->owner;
    ARIL_ASSERT(root == &owner->root);
    free_chunks(owner->chunk->next);
    owner->chunk->next = NULL;
    owner->chunk->used = 0;
    owner->taken = 0;
    owner->failed = false;
    *root = (aril__message){ .type = root->type, .owner = owner };
}

aril__message *aril__message_child(aril__message_owner *owner, const aril__proto_type *type)
{
    aril__message *m = aril__message_alloc(owner, sizeof *m);
    if (m) *m = (aril__message){ .type = type, .owner = owner };
    return m;
}

const char *aril__message_field_place(const aril__message *m, const char *name, char *buf,
                                      size_t size)
{
    const aril__proto_field *f = aril__proto_field_named(m->type, name);
    const aril__slot *s = f && !aril__proto_repeated(f) ? aril__slot_find(m, f) : NULL;
    if (!s || !s->line || !m->owner || !m->owner->text) return aril__message_place(m, buf, size);
    snprintf(buf, size, "line %zu", s->line);
    return buf;
}

const char *aril__message_place(const aril__message *m, char *buf, size_t size)
{
    bool text = m->owner && m->owner->text;
    snprintf(buf, size, "%s %llu", text ? "line" : "byte", (unsigned long long)m->where);
    return buf;
}

/* ---- slots ---- */

/* The first slot whose field has at least that number. */
static uint32_t position(const aril__message *m, uint32_t number)
{
    uint32_t low = 0, high = m->n;
    if (high && m->slot[high - 1].field->number < number) return high; /* as files are written */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (m->slot[middle].field->number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

aril__slot *aril__slot_find(const aril__message *m, const aril__proto_field *f)
{
    uint32_t i = position(m, f->number);
    return i < m->n && m->slot[i].field == f ? &m->slot[i] : NULL;
}

static void remove_at(aril__message *m, uint32_t i)
{
    m->n--;
    memmove(&m->slot[i], &m->slot[i + 1], (m->n - i) * sizeof *m->slot);
}

void aril__slot_remove(aril__message *m, aril__slot *s)
{
    remove_at(m, (uint32_t)(s - m->slot));
}

static void clear_oneof(aril__message *m, const aril__proto_field *keep)
{
    for (uint32_t i = m->n; i > 0; i--) {
        const aril__proto_field *f = m->slot[i - 1].field;
        if (f->oneof == keep->oneof && f != keep) remove_at(m, i - 1);
    }
}

aril__slot *aril__slot_make(aril__message *m, const aril__proto_field *f)
{
    if (f->oneof) clear_oneof(m, f);
    uint32_t i = position(m, f->number);
    if (i < m->n && m->slot[i].field == f) return &m->slot[i];
    if (m->n == m->capacity) {
        uint32_t capacity = m->capacity ? m->capacity * 2 : 2;
        void *wider = grow(m->owner, m->slot, m->n, m->capacity, capacity, sizeof *m->slot);
        if (!wider) return NULL;
        m->slot = wider;
        m->capacity = capacity;
    }
    memmove(&m->slot[i + 1], &m->slot[i], (m->n - i) * sizeof *m->slot);
    m->n++;
    m->slot[i] = (aril__slot){ .field = f, .at = NULL };
    return &m->slot[i];
}

void *aril__slot_extend(aril__message *m, aril__slot *s, size_t n)
{
    size_t width = aril__proto_width(s->field);
    if (n > s->capacity - (s->capacity ? s->n : 0)) { /* capacity 0: part of the input */
        size_t capacity = s->capacity * 2;
        if (capacity < 2) capacity = s->n ? 2 : 1;
        if (n > PTRDIFF_MAX / 16 || s->n > PTRDIFF_MAX / 16) return m->owner->failed = true, NULL;
        if (capacity < s->n + n) capacity = s->n + n;
        void *wider = s->capacity ? grow(m->owner, s->at, s->n, s->capacity, capacity, width)
                                  : aril__message_alloc(m->owner, capacity * width);
        if (!wider) return NULL;
        if (!s->capacity && s->n) memcpy(wider, s->at, s->n * width);
        s->at = wider;
        s->capacity = capacity;
    }
    s->n += n;
    return (unsigned char *)s->at + (s->n - n) * width;
}

/* ---- numbers as bits ---- */

uint64_t aril__proto_load(const aril__proto_field *f, const void *array, size_t i)
{
    const unsigned char *p = array;
    size_t width = kinds[f->kind].width;
    if (width == 8) return aril__le64(p + 8 * i);
    if (width == 1) return p[i];
    uint32_t v = aril__le32(p + 4 * i);
    bool is_signed = f->kind == ARIL__PROTO_int32 || f->kind == ARIL__PROTO_sint32 ||
                     f->kind == ARIL__PROTO_sfixed32 || f->kind == ARIL__PROTO_enum;
    return is_signed ? (uint64_t)(int64_t)(int32_t)v : v;
}

void aril__proto_store(const aril__proto_field *f, void *array, size_t i, uint64_t bits)
{
    unsigned char *p = array;
    size_t width = kinds[f->kind].width;
    if (width == 8)
        aril__put_le64(p + 8 * i, bits);
    else if (width == 4)
        aril__put_le32(p + 4 * i, (uint32_t)bits);
    else
        p[i] = (unsigned char)bits;
}

uint64_t aril__proto_bits_of_int(const aril__proto_field *f, int64_t value)
{
    switch (f->kind) {
    case ARIL__PROTO_int32:
    case ARIL__PROTO_sint32:
    case ARIL__PROTO_sfixed32:
    case ARIL__PROTO_enum: return (uint64_t)(int64_t)(int32_t)value;
    case ARIL__PROTO_uint32:
    case ARIL__PROTO_fixed32: return (uint32_t)value;
    case ARIL__PROTO_bool: return value != 0;
    default: return (uint64_t)value;
    }
}

uint64_t aril__proto_bits_of_number(const aril__proto_field *f, double value)
{
    if (f->kind == ARIL__PROTO_double) {
        uint64_t bits;
        memcpy(&bits, &value, sizeof bits);
        return bits;
    }
    float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    return bits;
}

double aril__proto_number_of(const aril__proto_field *f, uint64_t bits)
{
    double value;
    float single;
    uint32_t low = (uint32_t)bits;
    if (f->kind == ARIL__PROTO_double) return memcpy(&value, &bits, sizeof value), value;
    if (f->kind == ARIL__PROTO_float) return memcpy(&single, &low, sizeof single), (double)single;
    if (f->kind == ARIL__PROTO_uint64 || f->kind == ARIL__PROTO_fixed64) return (double)bits;
    return (double)(int64_t)bits;
}

uint64_t aril__proto_initial(const aril__proto_field *f)
{
    double value = 0;
    if (f->kind == ARIL__PROTO_enum) {
        const aril__proto_enum *e = f->of;
        const aril__proto_value *v = f->initial ? aril__proto_value_named(e, f->initial) : e->value;
        ARIL_ASSERT(v);
        return (uint64_t)(int64_t)v->number;
    }
    if (!f->initial) return 0;
    if (f->kind == ARIL__PROTO_bool) return strcmp(f->initial, "true") == 0;
    bool good = aril__parse_number(f->initial, strlen(f->initial), &value);
    ARIL_ASSERT(good);
    return aril__proto_is_real(f) ? aril__proto_bits_of_number(f, value)
                                  : aril__proto_bits_of_int(f, (int64_t)value);
}

/* ---- putting values ---- */

bool aril__message_put_bits(aril__message *m, const aril__proto_field *f, uint64_t bits)
{
    aril__slot *s = aril__slot_make(m, f);
    if (!s) return false;
    if (!aril__proto_repeated(f)) {
        s->bits = bits;
        s->n = 1;
        return true;
    }
    void *to = aril__slot_extend(m, s, 1);
    if (to) aril__proto_store(f, to, 0, bits);
    return to;
}

bool aril__message_put_slice(aril__message *m, const aril__proto_field *f, aril__slice value)
{
    aril__slot *s = aril__slot_make(m, f);
    if (!s) return false;
    if (!aril__proto_repeated(f)) {
        s->at = (void *)(uintptr_t)value.at;
        s->n = value.n;
        return true;
    }
    aril__slice *to = aril__slot_extend(m, s, 1);
    if (to) *to = value;
    return to;
}

aril__message *aril__message_put_sub(aril__message *m, const aril__proto_field *f)
{
    aril__slot *s = aril__slot_make(m, f);
    if (!s) return NULL;
    if (!aril__proto_repeated(f)) {
        if (!s->message) s->message = aril__message_child(m->owner, f->of);
        s->n = s->message != NULL;
        return s->message;
    }
    aril__message *sub = aril__message_child(m->owner, f->of);
    aril__message **to = sub ? aril__slot_extend(m, s, 1) : NULL;
    if (to) *to = sub;
    return to ? sub : NULL;
}

bool aril__proto_allows(const aril__proto_field *f, uint64_t bits)
{
    const aril__proto_enum *e = f->kind == ARIL__PROTO_enum ? f->of : NULL;
    return !e || e->open || aril__proto_value_numbered(e, (int32_t)bits);
}

bool aril__message_put_unknown(aril__message *m, const uint8_t *at, size_t n)
{
    aril__unknown *last = m->unknown;
    if (last && last->at + last->n == at) { /* neighbors in the file */
        last->n += n;
        return true;
    }
    aril__unknown *u = aril__message_alloc(m->owner, sizeof *u);
    if (!u) return false;
    *u = (aril__unknown){ .next = last ? last->next : u, .at = at, .n = n };
    if (last) last->next = u;
    m->unknown = u;
    return true;
}

/* ---- whole messages ---- */

static bool same_slice(aril__slice a, aril__slice b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.at, b.at, a.n) == 0);
}

static bool same_values(const aril__slot *a, const aril__slot *b)
{
    const aril__proto_field *f = a->field;
    bool many = aril__proto_repeated(f);
    if (a->n != b->n) return false;
    if (f->kind == ARIL__PROTO_message) {
        if (!many) return aril__message_equal(a->message, b->message);
        aril__message *const *x = a->at, *const *y = b->at;
        for (size_t i = 0; i < a->n; i++)
            if (!aril__message_equal(x[i], y[i])) return false;
        return true;
    }
    if (aril__proto_is_text(f)) {
        if (!many) return same_slice((aril__slice){ a->at, a->n }, (aril__slice){ b->at, b->n });
        const aril__slice *x = a->at, *y = b->at;
        for (size_t i = 0; i < a->n; i++)
            if (!same_slice(x[i], y[i])) return false;
        return true;
    }
    size_t width = aril__proto_width(f);
    return many ? memcmp(a->at, b->at, a->n * width) == 0 : a->bits == b->bits;
}

/* The unknown fields of a message as one sequence of bytes. */
typedef struct cursor {
    const aril__unknown *last, *now;
    size_t at;
} cursor;

static int next_byte(cursor *c)
{
    while (c->now && c->at == c->now->n) {
        c->now = c->now == c->last ? NULL : c->now->next;
        c->at = 0;
    }
    return c->now ? c->now->at[c->at++] : -1;
}

static bool same_unknown(const aril__unknown *a, const aril__unknown *b)
{
    cursor x = { .last = a, .now = a ? a->next : NULL };
    cursor y = { .last = b, .now = b ? b->next : NULL };
    int byte;
    do {
        byte = next_byte(&x);
        if (byte != next_byte(&y)) return false;
    } while (byte >= 0);
    return true;
}

bool aril__message_equal(const aril__message *a, const aril__message *b)
{
    if (a->type != b->type || a->n != b->n) return false;
    for (uint32_t i = 0; i < a->n; i++)
        if (a->slot[i].field != b->slot[i].field || !same_values(&a->slot[i], &b->slot[i]))
            return false;
    return same_unknown(a->unknown, b->unknown);
}

/* ---- copies ---- */

static bool copy_into(aril__message *to, const aril__message *from);

/* The submessages of a field, in another tree. */
static bool copy_subs(aril__message *to, aril__slot *t, const aril__slot *s)
{
    if (!aril__proto_repeated(s->field)) {
        t->message = aril__message_child(to->owner, s->message->type);
        t->n = t->message != NULL;
        return t->message && copy_into(t->message, s->message);
    }
    aril__message *const *sub = s->at;
    aril__message **out = aril__slot_extend(to, t, s->n);
    for (size_t i = 0; out && i < s->n; i++) {
        out[i] = aril__message_child(to->owner, sub[i]->type);
        if (!out[i]) t->n = i; /* the rest is not there */
        if (!out[i] || !copy_into(out[i], sub[i])) return false;
    }
    return out;
}

static bool copy_texts(aril__message *to, aril__slot *t, const aril__slot *s)
{
    bool many = aril__proto_repeated(s->field);
    const aril__slice one = { s->at, s->n }, *from = many ? s->at : &one;
    size_t n = many ? s->n : 1;
    aril__slice *out = many ? aril__slot_extend(to, t, n) : NULL;
    if (many && !out) return false;
    if (many) memset(out, 0, n * sizeof *out);
    for (size_t i = 0; i < n; i++) {
        const char *copy = aril__message_copy(to->owner, from[i].at, from[i].n);
        aril__slice made = { copy ? copy : "", copy ? from[i].n : 0 };
        if (many)
            out[i] = made;
        else
            t->at = (void *)(uintptr_t)made.at, t->n = made.n;
    }
    return !to->owner->failed;
}

static bool copy_slot(aril__message *to, aril__slot *t, const aril__slot *s)
{
    if (s->field->kind == ARIL__PROTO_message) return copy_subs(to, t, s);
    if (aril__proto_is_text(s->field)) return copy_texts(to, t, s);
    if (!aril__proto_repeated(s->field)) return t->bits = s->bits, t->n = s->n, true;
    void *out = s->n ? aril__slot_extend(to, t, s->n) : NULL;
    if (out) memcpy(out, s->at, s->n * aril__proto_width(s->field));
    return out || !s->n;
}

static bool copy_into(aril__message *to, const aril__message *from)
{
    to->where = from->where;
    for (uint32_t i = 0; i < from->n; i++) {
        aril__slot *t = aril__slot_make(to, from->slot[i].field);
        if (!t || !copy_slot(to, t, &from->slot[i])) return false;
    }
    for (const aril__unknown *u = from->unknown; u;) {
        u = u->next;
        const char *copy = aril__message_copy(to->owner, u->at, u->n);
        if (!copy || !aril__message_put_unknown(to, (const uint8_t *)copy, u->n)) return false;
        if (u == from->unknown) break;
    }
    return true;
}

aril__message *aril__message_clone(const aril__message *m)
{
    aril__message *copy = aril__message_new(m->type);
    if (!copy) return NULL;
    copy->owner->text = m->owner && m->owner->text;
    if (copy_into(copy, m)) return copy;
    aril__message_free(copy);
    aril__fail(ARIL_ERR_MEMORY, "out of memory for a copy of a message of type %s", m->type->name);
    return NULL;
}

void aril__message_share_field(aril__message *to, const char *name, const aril__message *from,
                               const char *from_name)
{
    if (!to) return;
    const aril__proto_field *f = aril__proto_field_named(to->type, name),
                            *g = aril__proto_field_named(from->type, from_name);
    ARIL_ASSERT(f && g && f->kind == g->kind && f->of == g->of);
    ARIL_ASSERT(aril__proto_repeated(f) == aril__proto_repeated(g));
    const aril__slot *s = aril__slot_find(from, g);
    if (!s) return;
    aril__slot value = *s, *t = aril__slot_make(to, f);
    if (!t) return;
    *t = value;
    t->field = f;
    t->capacity = 0; /* copied when it is extended */
}

void aril__message_to_front(aril__message *m, const char *name, size_t i)
{
    const aril__proto_field *f = aril__proto_field_named(m->type, name);
    ARIL_ASSERT(f && f->kind == ARIL__PROTO_message && aril__proto_repeated(f));
    aril__slot *s = aril__slot_find(m, f);
    if (!s || i >= s->n) return;
    aril__message **at = s->at, *first = at[i];
    memmove(at + 1, at, i * sizeof *at);
    at[0] = first;
}

void aril__message_reorder(aril__message *m, const char *name, const size_t *order)
{
    const aril__proto_field *f = aril__proto_field_named(m->type, name);
    ARIL_ASSERT(f && f->kind == ARIL__PROTO_message && aril__proto_repeated(f));
    aril__slot *s = aril__slot_find(m, f);
    aril__message **at = s ? s->at : NULL,
                  **to = s ? aril__message_alloc(m->owner, s->n * sizeof *to) : NULL;
    if (!to) return;
    for (size_t i = 0; i < s->n; i++) to[i] = at[order[i]];
    s->at = to;
    s->capacity = s->n;
}

static bool complete_below(const aril__slot *s, char *buf, size_t size)
{
    if (s->field->kind != ARIL__PROTO_message) return true;
    if (!aril__proto_repeated(s->field)) return aril__message_complete(s->message, buf, size);
    aril__message *const *sub = s->at;
    for (size_t i = 0; i < s->n; i++)
        if (!aril__message_complete(sub[i], buf, size)) return false;
    return true;
}

bool aril__message_complete(const aril__message *m, char *buf, size_t size)
{
    for (int i = 0; i < m->type->n; i++) {
        const aril__proto_field *f = &m->type->field[i];
        if (f->label != ARIL__PROTO_REQUIRED || aril__slot_find(m, f)) continue;
        char place[40];
        snprintf(buf, size, "'%s' of the %s at %s", f->name, m->type->name,
                 aril__message_place(m, place, sizeof place));
        return false;
    }
    for (uint32_t i = 0; i < m->n; i++)
        if (!complete_below(&m->slot[i], buf, size)) return false;
    return true;
}
