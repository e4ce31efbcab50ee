/* Checkpoints of PyTorch before 1.6: pickles of a magic number, a version, facts on the system, the
 * value, and the keys of its storages, then for each storage its number of elements and its
 * bytes. */
#include "core/error.h"
#include "formats/pytorch/checkpoint.h"

#include <string.h>

/* 0x1950a86a20f9469cfc6c, as pickles of protocol 2 and of protocols 0 and 1 write it. */
static const char magic[] = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19",
                  magic_digits[] = "L119547037146038801333356L\n";
enum { MAGIC = sizeof magic - 1, DIGITS = sizeof magic_digits - 1, VERSION = 1001 };

bool aril__pytorch_is_legacy(const aril_weights *w)
{
    enum { FIRST = 32 };
    size_t n = w->size < FIRST ? w->size : FIRST;
    if (n > DIGITS && memcmp(w->data, magic_digits, DIGITS) == 0) return true;
    return n && w->data[0] == 0x80 && memmem(w->data, n, magic, MAGIC) != NULL;
}

/* Facts on the system: only the byte order matters. */
static aril_status read_order(checkpoint *c, const pickle_value *v)
{
    for (size_t i = 0; v->kind == PICKLE_DICT && i + 1 < v->u.items.n; i += 2) {
        const pickle_value *value = v->u.items.at[i + 1];
        if (pickle_is_text(v->u.items.at[i], "little_endian") && value->kind == PICKLE_BOOL)
            c->big = !value->u.i;
    }
    return v->kind == PICKLE_DICT
               ? ARIL_OK
               : aril__weights_malformed(c->w, "it does not name its byte order");
}

static uint64_t count_at(const checkpoint *c, const unsigned char *at)
{
    return c->big ? (uint64_t)aril__be32(at) << 32 | aril__be32(at + 4) : aril__le64(at);
}

static aril_status read_storages(checkpoint *c, const pickle_value *keys)
{
    pickle *p = &c->pickle;
    if (!pickle_is_sequence(keys, 0))
        return aril__weights_malformed(c->w, "its list of storages is missing");
    for (size_t i = 0; i < keys->u.items.n; i++) {
        const pickle_value *key = keys->u.items.at[i];
        checkpoint_place *place =
            key->kind == PICKLE_TEXT ? aril__pytorch_find(c, key->u.text.at, key->u.text.n) : NULL;
        if (!place || place->at)
            return aril__weights_malformed(c->w, "its list of storages does not fit its tensors");
        if (p->size - p->at < 8) return aril__weights_malformed(c->w, "it is truncated");
        uint64_t n = count_at(c, p->data + p->at), size = place->element, bytes;
        p->at += 8;
        if (__builtin_mul_overflow(n, size, &bytes) || bytes > p->size - p->at)
            return aril__weights_malformed(
                c->w, "it is truncated: a storage has %llu elements of %llu bytes, but %zu follow",
                (unsigned long long)n, (unsigned long long)size, p->size - p->at);
        place->at = p->data + p->at;
        place->bytes = bytes;
        p->at += (size_t)bytes;
    }
    return ARIL_OK;
}

aril_status aril__pytorch_open_legacy(checkpoint *c)
{
    pickle *p = &c->pickle;
    const pickle_value *number = aril__pickle_load(p),
                       *version = number ? aril__pickle_load(p) : NULL;
    const pickle_value *system = version ? aril__pickle_load(p) : NULL;
    if (!system) return p->status;
    if (version->kind != PICKLE_INT || version->u.i != VERSION)
        return aril__weights_malformed(c->w, "its version is not %d", VERSION);
    aril_status s = read_order(c, system);
    const pickle_value *v = s == ARIL_OK ? aril__pickle_load(p) : NULL;
    const pickle_value *keys = v ? aril__pickle_load(p) : NULL;
    if (s < 0) return s;
    if (!keys) return p->status;
    s = aril__pytorch_number(c);
    if (s == ARIL_OK) s = read_storages(c, keys);
    return s == ARIL_OK ? aril__pytorch_list(c, v) : s;
}
