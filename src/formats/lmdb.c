#include "formats/lmdb.h"

#include "core/error.h"
#include "core/memory.h"
#include "formats/lmdb_pages.h"

#include <stdlib.h>
#include <string.h>

struct value {
    uint64_t at, size;
    size_t key; /* offset in `keys` */
};

struct aril__lmdb {
    aril__source source;
    uint32_t page_size;
    uint64_t pages;   /* number of pages in the file */
    uint64_t seen;    /* pages visited: more than exist means a cycle */
    uint64_t spanned; /* pages used by overflow values: more than exist means an overlap */
    int64_t n, capacity;
    struct value *value;
    aril__bytes keys; /* NUL-terminated, one after the other */
};

static aril_status malformed(const aril__lmdb *f, const char *what)
{
    return aril__fail(ARIL_ERR_FORMAT, "%s is not a valid LMDB file: %s", f->source.name, what);
}

static aril_status no_memory(const aril__lmdb *f)
{
    return aril__fail(ARIL_ERR_MEMORY, "out of memory reading %s", f->source.name);
}

static aril_status read_page(aril__lmdb *f, uint64_t number, unsigned char *page)
{
    if (number >= f->pages || f->seen++ > f->pages)
        return malformed(f, "a page is outside the file, or pages form a cycle");
    return aril__source_read(&f->source, number * f->page_size, page, f->page_size);
}

static aril_status add_value(aril__lmdb *f, const unsigned char *key, size_t key_size, uint64_t at,
                             uint64_t size)
{
    if (at > f->source.size || size > f->source.size - at)
        return malformed(f, "a value is truncated");
    if (f->n == f->capacity) {
        int64_t capacity = f->capacity ? f->capacity * 2 : 256;
        struct value *more = aril__realloc(f->value, (size_t)capacity * sizeof *more);
        if (!more) return no_memory(f);
        f->value = more;
        f->capacity = capacity;
    }
    f->value[f->n++] = (struct value){ at, size, f->keys.n };
    aril__bytes_add(&f->keys, key, key_size);
    aril__bytes_add(&f->keys, "", 1);
    return f->keys.failed ? no_memory(f) : ARIL_OK;
}

static uint64_t value_bytes(const unsigned char *node)
{
    return aril__le16(node) | (uint64_t)aril__le16(node + 2) << 16;
}

/* The bytes that a node takes in its page. */
static uint64_t node_bytes(const unsigned char *node, unsigned kind)
{
    uint64_t value = kind == BRANCH ? 0 : aril__le16(node + 4) & BIG ? 8 : value_bytes(node);
    return NODE_HEAD + aril__le16(node + 6) + value;
}

static aril_status leaf_node(aril__lmdb *f, uint64_t page_number, const unsigned char *page,
                             size_t at)
{
    const unsigned char *node = page + at;
    uint64_t size = value_bytes(node);
    unsigned flags = aril__le16(node + 4);
    size_t key = aril__le16(node + 6), data = at + NODE_HEAD + key;
    if (flags & NOT_PLAIN)
        return aril__fail(ARIL_ERR_UNSUPPORTED,
                          "%s: it has several databases, or several values for a key",
                          f->source.name);
    uint64_t where = page_number * f->page_size + data;
    if (flags & BIG) {
        uint64_t number = aril__le64(page + data);
        if (number >= f->pages) return malformed(f, "a page is outside the file");
        where = number * f->page_size + PAGE_HEAD;
        f->spanned += (PAGE_HEAD + size + f->page_size - 1) / f->page_size;
        if (f->spanned > f->pages) return malformed(f, "its values overlap");
    }
    return add_value(f, node + NODE_HEAD, key, where, size);
}

static aril_status walk(aril__lmdb *f, uint64_t number, int depth)
{
    if (depth > DEEPEST) return malformed(f, "its tree is too deep");
    unsigned char *page = aril__malloc(f->page_size);
    if (!page) return no_memory(f);
    aril_status status = read_page(f, number, page);
    unsigned kind = 0, nodes = 0, lower = 0;
    if (status == ARIL_OK) {
        lower = aril__le16(page + 12);
        kind = aril__le16(page + 10) & (BRANCH | LEAF | OVERFLOW | META);
        if ((kind != BRANCH && kind != LEAF) || lower < PAGE_HEAD || lower > f->page_size)
            status = malformed(f, "a page is broken");
        else
            nodes = (lower - PAGE_HEAD) / 2;
    }
    uint64_t used = lower; /* bytes used; overlapping nodes would sum up to more than a page */
    for (unsigned i = 0; i < nodes && status == ARIL_OK; i++) {
        size_t at = aril__le16(page + PAGE_HEAD + 2 * i);
        uint64_t size = at + NODE_HEAD > f->page_size ? 0 : node_bytes(page + at, kind);
        if (at < lower || size == 0 || at + size > f->page_size) {
            status = malformed(f, "a node is outside its page");
        } else if ((used += size) > f->page_size) {
            status = malformed(f, "its nodes overlap");
        } else if (kind == LEAF) {
            status = leaf_node(f, number, page, at);
        } else {
            const unsigned char *node = page + at;
            uint64_t below = aril__le16(node) | (uint64_t)aril__le16(node + 2) << 16 |
                             (uint64_t)aril__le16(node + 4) << 32;
            status = walk(f, below, depth + 1);
        }
    }
    free(page);
    return status;
}

/* Reads the newer of the two meta pages: the root page and the page size. */
static aril_status read_meta(aril__lmdb *f, uint64_t *root, uint64_t *entries)
{
    unsigned char meta[2][META_END];
    bool good[2] = { false };
    for (int i = 0; i < 2; i++) {
        uint64_t at = i ? f->page_size : 0;
        if (at + META_END > f->source.size) return malformed(f, "it is too short for one");
        aril_status status = aril__source_read(&f->source, at, meta[i], META_END);
        if (status != ARIL_OK) return status;
        good[i] = aril__le32(meta[i] + PAGE_HEAD) == LMDB_MAGIC && aril__le16(meta[i] + 10) & META;
        if (i > 0) break;
        if (!good[0]) return malformed(f, "it does not begin as one of a 64-bit machine");
        if (aril__le32(meta[0] + PAGE_HEAD + 4) != 1)
            return aril__fail(ARIL_ERR_UNSUPPORTED, "%s: unknown LMDB version %u", f->source.name,
                              aril__le32(meta[0] + PAGE_HEAD + 4));
        f->page_size = aril__le32(meta[0] + META_FREE);
        if (f->page_size < 512 || f->page_size > 65536 || f->page_size & (f->page_size - 1))
            return malformed(f, "its size of pages is none");
    }
    const unsigned char *newer =
        good[1] && aril__le64(meta[1] + META_TXN) > aril__le64(meta[0] + META_TXN) ? meta[1]
                                                                                   : meta[0];
    f->pages = f->source.size / f->page_size;
    if (aril__le64(newer + META_LAST) >= f->pages) return malformed(f, "it is truncated");
    if (aril__le16(newer + META_MAIN + DB_FLAGS) != 0)
        return aril__fail(ARIL_ERR_UNSUPPORTED, "%s: expected a database of keys and values",
                          f->source.name);
    *root = aril__le64(newer + META_MAIN + DB_ROOT);
    *entries = aril__le64(newer + META_MAIN + DB_ENTRIES);
    return ARIL_OK;
}

aril__lmdb *aril__lmdb_open(aril__source source)
{
    aril__lmdb *f = aril__calloc(sizeof *f);
    if (!f) {
        aril__fail(ARIL_ERR_MEMORY, "out of memory reading %s", source.name);
        aril__source_close(&source);
        return NULL;
    }
    f->source = source;
    uint64_t root = LMDB_NO_PAGE, entries = 0;
    aril_status status = read_meta(f, &root, &entries);
    if (status == ARIL_OK && root != LMDB_NO_PAGE) status = walk(f, root, 0);
    if (status == ARIL_OK && (uint64_t)f->n != entries)
        status = malformed(f, "its tree has lost entries");
    if (status == ARIL_OK) return f;
    aril__lmdb_close(f);
    return NULL;
}

void aril__lmdb_close(aril__lmdb *f)
{
    if (!f) return;
    aril__source_close(&f->source);
    aril__bytes_free(&f->keys);
    free(f->value);
    free(f);
}

int64_t aril__lmdb_count(const aril__lmdb *f)
{
    return f->n;
}

const char *aril__lmdb_key(const aril__lmdb *f, int64_t i)
{
    return (const char *)f->keys.at + f->value[i].key;
}

aril_status aril__lmdb_read(const aril__lmdb *f, int64_t i, aril__bytes *out)
{
    const struct value *v = &f->value[i];
    unsigned char *to = aril__bytes_add(out, NULL, (size_t)v->size);
    return to ? aril__source_read(&f->source, v->at, to, (size_t)v->size) : no_memory(f);
}
