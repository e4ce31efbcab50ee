#include "formats/zip.h"

#include "core/error.h"
#include "core/memory.h"
#include "formats/gzip.h"

#include <stdlib.h>
#include <string.h>

enum {
    END_SIZE = 22,     /* end of central directory record, without a comment */
    LOCATOR_SIZE = 20, /* zip64 locator, before it: holds the offset of END64 */
    END64_SIZE = 56,
    MEMBER_SIZE = 46, /* central directory entry, without name and extra fields */
    HEAD_SIZE = 30,   /* local header, without name and extra fields */
    LONGEST_PAD = 2 * 64,
};

static const unsigned char end_mark[] = "PK\5\6", locator_mark[] = "PK\6\7",
                           end64_mark[] = "PK\6\6";
static const unsigned char member_mark[] = "PK\1\2", head_mark[] = "PK\3\4";

static aril_status malformed(const aril__zip *z, const char *what)
{
    return aril__fail(ARIL_ERR_FORMAT, "%s is not a valid zip archive: %s", z->source.name, what);
}

static aril_status no_memory(const aril__zip *z)
{
    return aril__fail(ARIL_ERR_MEMORY, "out of memory reading %s", z->source.name);
}

/* Offset, size and number of entries of the central directory. */
struct list {
    uint64_t at, size, n;
};

static aril_status find_list(const aril__zip *z, struct list *list)
{
    enum { LONGEST_COMMENT = 65535 };
    uint64_t size = z->source.size;
    if (size < END_SIZE) return malformed(z, "it is too short for one");
    size_t tail = size < END_SIZE + LONGEST_COMMENT ? (size_t)size : END_SIZE + LONGEST_COMMENT;
    unsigned char *b = aril__malloc(tail);
    if (!b) return no_memory(z);
    aril_status status = aril__source_read(&z->source, size - tail, b, tail);
    size_t at = tail - END_SIZE;
    while (status == ARIL_OK && at > 0 && memcmp(b + at, end_mark, 4) != 0) at--;
    if (status == ARIL_OK && memcmp(b + at, end_mark, 4) != 0)
        status = malformed(z, "its end is missing; it may be truncated");
    if (status == ARIL_OK) {
        const unsigned char *end = b + at;
        *list = (struct list){ aril__le32(end + 16), aril__le32(end + 12), aril__le16(end + 10) };
    }
    uint64_t end_at = size - tail + at;
    free(b);
    if (status != ARIL_OK || end_at < LOCATOR_SIZE) return status;
    unsigned char locator[LOCATOR_SIZE], end64[END64_SIZE];
    status = aril__source_read(&z->source, end_at - LOCATOR_SIZE, locator, sizeof locator);
    if (status != ARIL_OK || memcmp(locator, locator_mark, 4) != 0) return status;
    status = aril__source_read(&z->source, aril__le64(locator + 8), end64, sizeof end64);
    if (status != ARIL_OK) return status;
    if (memcmp(end64, end64_mark, 4) != 0) return malformed(z, "its 64-bit end is missing");
    *list = (struct list){ aril__le64(end64 + 48), aril__le64(end64 + 40), aril__le64(end64 + 32) };
    return ARIL_OK;
}

/* Sizes beyond 32 bits are in the zip64 extra field, which holds only those that need it, in
 * order. */
static bool wide_sizes(aril__zip_member *m, const unsigned char *extra, size_t n)
{
    bool need[3] = { m->size == UINT32_MAX, m->packed == UINT32_MAX, m->head == UINT32_MAX };
    uint64_t *to[3] = { &m->size, &m->packed, &m->head };
    while (n >= 4) {
        size_t size = aril__le16(extra + 2);
        if (size > n - 4) return false;
        if (aril__le16(extra) == 1) {
            const unsigned char *p = extra + 4;
            for (int i = 0; i < 3; i++) {
                if (!need[i]) continue;
                if (size < 8) return false;
                *to[i] = aril__le64(p);
                p += 8;
                size -= 8;
            }
            return true;
        }
        extra += 4 + size;
        n -= 4 + size;
    }
    return !need[0] && !need[1] && !need[2];
}

static aril_status read_list(aril__zip *z, const struct list *list, const unsigned char *b)
{
    size_t at = 0;
    for (uint64_t i = 0; i < list->n; i++) {
        if (list->size - at < MEMBER_SIZE || memcmp(b + at, member_mark, 4) != 0)
            return malformed(z, "its list of members is broken");
        const unsigned char *p = b + at;
        size_t name = aril__le16(p + 28), extra = aril__le16(p + 30), comment = aril__le16(p + 32);
        size_t entry = MEMBER_SIZE + name + extra + comment;
        if (entry > list->size - at) return malformed(z, "its list of members is broken");
        aril__zip_member *m = &z->member[z->n];
        *m = (aril__zip_member){ .method = aril__le16(p + 10),
                                 .crc = aril__le32(p + 16),
                                 .packed = aril__le32(p + 20),
                                 .size = aril__le32(p + 24),
                                 .head = aril__le32(p + 42) };
        if (!wide_sizes(m, p + MEMBER_SIZE + name, extra))
            return malformed(z, "a member's sizes are broken");
        if (memchr(p + MEMBER_SIZE, 0, name)) return malformed(z, "a member's name is broken");
        if (aril__le16(p + 8) & 1)
            return aril__fail(ARIL_ERR_UNSUPPORTED, "%s: its members are encrypted",
                              z->source.name);
        m->name = aril__malloc(name + 1);
        if (!m->name) return no_memory(z);
        memcpy(m->name, p + MEMBER_SIZE, name);
        m->name[name] = 0;
        z->n++;
        /* A deflate byte expands to at most 1032 bytes. */
        if (m->packed > z->source.size || m->size / 1032 > m->packed ||
            (m->method == 0 && m->size != m->packed))
            return malformed(z, "a member is larger than the archive can hold");
        at += entry;
    }
    return ARIL_OK;
}

aril_status aril__zip_open(aril__zip *z, aril__source source)
{
    *z = (aril__zip){ .source = source };
    struct list list = { 0 };
    aril_status status = find_list(z, &list);
    if (status == ARIL_OK && (list.size > source.size || list.at > source.size - list.size ||
                              list.n > list.size / MEMBER_SIZE || list.n > INT32_MAX))
        status = malformed(z, "its list of members lies outside of it");
    if (status == ARIL_OK) {
        unsigned char *b = aril__malloc((size_t)list.size + 1);
        z->member = aril__calloc(((size_t)list.n + 1) * sizeof *z->member);
        if (!b || !z->member)
            status = no_memory(z);
        else
            status = aril__source_read(&z->source, list.at, b, (size_t)list.size);
        if (b && status == ARIL_OK) status = read_list(z, &list, b);
        free(b);
    }
    if (status != ARIL_OK) aril__zip_close(z);
    return status;
}

void aril__zip_close(aril__zip *z)
{
    for (int i = 0; i < z->n; i++) free(z->member[i].name);
    free(z->member);
    aril__source_close(&z->source);
    z->member = NULL;
    z->n = 0;
}

aril_status aril__zip_data(const aril__zip *z, int i, uint64_t *at)
{
    const aril__zip_member *m = &z->member[i];
    unsigned char head[HEAD_SIZE];
    aril_status status = aril__source_read(&z->source, m->head, head, sizeof head);
    if (status != ARIL_OK) return status;
    if (memcmp(head, head_mark, 4) != 0) return malformed(z, "a member is not where the list says");
    if (m->method != 0 && m->method != 8)
        return aril__fail(
            ARIL_ERR_UNSUPPORTED,
            "%s: member %s has compression method %d; expected 0 (stored) or 8 (deflate)",
            z->source.name, m->name, m->method);
    *at = m->head + HEAD_SIZE + aril__le16(head + 26) + aril__le16(head + 28);
    if (*at > z->source.size || m->packed > z->source.size - *at)
        return malformed(z, "a member is truncated");
    return ARIL_OK;
}

aril_status aril__zip_first(const aril__zip *z, int i, void *to, size_t want, size_t *got)
{
    const aril__zip_member *m = &z->member[i];
    uint64_t at;
    aril_status status = aril__zip_data(z, i, &at);
    if (status != ARIL_OK) return status;
    *got = want < m->size ? want : (size_t)m->size;
    if (m->method == 0) return aril__source_read(&z->source, at, to, *got);
    unsigned char *packed = aril__malloc((size_t)m->packed + 1);
    if (!packed) return no_memory(z);
    status = aril__source_read(&z->source, at, packed, (size_t)m->packed);
    if (status == ARIL_OK)
        status =
            aril__inflate_first("zip", z->source.name, packed, (size_t)m->packed, to, *got, got);
    free(packed);
    return status;
}

aril_status aril__zip_read(const aril__zip *z, int i, aril__bytes *out)
{
    const aril__zip_member *m = &z->member[i];
    uint64_t at;
    aril_status status = aril__zip_data(z, i, &at);
    if (status != ARIL_OK) return status;
    unsigned char *to = aril__bytes_add(out, NULL, (size_t)m->size);
    unsigned char *packed = m->method == 8 ? aril__malloc((size_t)m->packed + 1) : to;
    if (!to || !packed) {
        if (m->method == 8) free(packed);
        return no_memory(z);
    }
    status = aril__source_read(&z->source, at, packed, (size_t)m->packed);
    if (m->method == 8) {
        if (status == ARIL_OK)
            status = aril__inflate("zip", z->source.name, packed, (size_t)m->packed, to,
                                   (size_t)m->size);
        free(packed);
    }
    if (status == ARIL_OK && aril__crc32(0, to, (size_t)m->size) != m->crc)
        status =
            aril__fail(ARIL_ERR_FORMAT, "%s: member %s is corrupt: its checksum does not match",
                       z->source.name, m->name);
    return status;
}

/* ---- writing ---- */

/* Writes the fields shared by local headers and central directory entries, from the version on. */
static void fields(unsigned char *p, uint32_t crc, uint64_t size, size_t name, size_t extra)
{
    aril__put_le16(p, size >= UINT32_MAX ? 45 : 20);
    aril__put_le16(p + 2, 0x800); /* names are UTF-8 */
    aril__put_le16(p + 4, 0);     /* stored */
    aril__put_le16(p + 6, 0);
    aril__put_le16(p + 8, 0x21); /* zip's earliest date: files do not depend on the clock */
    aril__put_le32(p + 10, crc);
    uint32_t narrow = size >= UINT32_MAX ? UINT32_MAX : (uint32_t)size;
    aril__put_le32(p + 14, narrow);
    aril__put_le32(p + 18, narrow);
    aril__put_le16(p + 22, (uint16_t)name);
    aril__put_le16(p + 24, (uint16_t)extra);
}

/* One member: its local header with `pad` bytes of an extra field that means nothing. */
static aril_status add_member(aril__zip_writer *w, const char *name, const void *head,
                              size_t head_size, const void *data, size_t data_size, size_t pad)
{
    size_t length = strlen(name);
    uint64_t size = (uint64_t)head_size + data_size, at = aril__file_size(w->file);
    bool wide = size >= UINT32_MAX, far = at >= UINT32_MAX;
    uint32_t crc = aril__crc32(aril__crc32(0, head, head_size), data, data_size);
    unsigned char local[HEAD_SIZE] = { 'P', 'K', 3, 4 },
                  entry[MEMBER_SIZE] = { 'P', 'K', 1, 2, 45, 3 };
    unsigned char extra[4 + 24] = { 1, 0 }, padding[4 + LONGEST_PAD] = { 'F', 'B' };
    size_t n_local = wide ? 20 : 0,
           n_entry = (wide || far ? 4u : 0u) + (wide ? 16u : 0u) + (far ? 8u : 0u);

    fields(local + 4, crc, size, length, n_local + pad);
    aril__file_write(w->file, local, sizeof local);
    aril__file_write(w->file, name, length);
    aril__put_le64(extra + 4, size);
    aril__put_le64(extra + 12, size);
    aril__put_le16(extra + 2, 16);
    aril__file_write(w->file, extra, n_local);
    aril__put_le16(padding + 2, (uint16_t)(pad < 4 ? 0 : pad - 4));
    aril__file_write(w->file, padding, pad);
    aril__file_write(w->file, head, head_size);
    aril_status status = aril__file_write(w->file, data, data_size);

    fields(entry + 6, crc, size, length, n_entry);
    aril__put_le32(entry + 42, far ? UINT32_MAX : (uint32_t)at);
    aril__bytes_add(&w->list, entry, sizeof entry);
    aril__bytes_add(&w->list, name, length);
    aril__put_le16(extra + 2, (uint16_t)(n_entry > 4 ? n_entry - 4 : 0));
    if (far) aril__put_le64(extra + (wide ? 20 : 4), at);
    aril__bytes_add(&w->list, extra, n_entry);
    w->n++;
    return status;
}

static aril_status check_length(const char *name)
{
    if (strlen(name) <= 60000) return ARIL_OK;
    return aril__fail(ARIL_ERR_ARG, "a name of %zu bytes is too long for a zip archive",
                      strlen(name));
}

aril_status aril__zip_add(aril__zip_writer *w, const char *name, const void *head, size_t head_size,
                          const void *data, size_t data_size)
{
    aril_status status = check_length(name);
    if (status < 0) return status;
    return add_member(w, name, head, head_size, data, data_size, 0);
}

aril_status aril__zip_add_aligned(aril__zip_writer *w, const char *name, const void *data,
                                  size_t size, size_t alignment)
{
    aril_status status = check_length(name);
    if (status < 0) return status;
    uint64_t at = aril__file_size(w->file) + HEAD_SIZE + strlen(name);
    if (size >= UINT32_MAX) at += 20;
    size_t pad = (size_t)(alignment - at % alignment) % alignment;
    while (pad && pad < 4) pad += alignment; /* a field has 4 bytes at least */
    return add_member(w, name, NULL, 0, data, size, pad);
}

aril_status aril__zip_finish(aril__zip_writer *w)
{
    if (w->list.failed) {
        aril__bytes_free(&w->list);
        return aril__fail(ARIL_ERR_MEMORY, "out of memory writing a zip archive");
    }
    uint64_t at = aril__file_size(w->file), size = w->list.n, n = (uint64_t)w->n;
    aril__file_write(w->file, w->list.at, w->list.n);
    if (at >= UINT32_MAX || size >= UINT32_MAX || n >= 0xffff) {
        unsigned char end64[END64_SIZE] = { 'P', 'K', 6, 6 },
                      locator[LOCATOR_SIZE] = { 'P', 'K', 6, 7 };
        aril__put_le64(end64 + 4, END64_SIZE - 12);
        aril__put_le16(end64 + 12, 45);
        aril__put_le16(end64 + 14, 45);
        aril__put_le64(end64 + 24, n);
        aril__put_le64(end64 + 32, n);
        aril__put_le64(end64 + 40, size);
        aril__put_le64(end64 + 48, at);
        aril__put_le64(locator + 8, at + size);
        aril__put_le32(locator + 16, 1);
        aril__file_write(w->file, end64, sizeof end64);
        aril__file_write(w->file, locator, sizeof locator);
    }
    unsigned char end[END_SIZE] = { 'P', 'K', 5, 6 };
    aril__put_le16(end + 8, n < 0xffff ? (uint16_t)n : 0xffff);
    aril__put_le16(end + 10, n < 0xffff ? (uint16_t)n : 0xffff);
    aril__put_le32(end + 12, size < UINT32_MAX ? (uint32_t)size : UINT32_MAX);
    aril__put_le32(end + 16, at < UINT32_MAX ? (uint32_t)at : UINT32_MAX);
    aril__bytes_free(&w->list);
    return aril__file_write(w->file, end, sizeof end);
}
