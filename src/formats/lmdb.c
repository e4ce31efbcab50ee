#include "formats/lmdb.h"

#include "core/error.h"
#include "core/memory.h"
#include "formats/atomic_file.h"

#include <stdlib.h>
#include <string.h>

/* A page begins with its number (8 bytes), 2 bytes of padding, its flags (2), and the start and end
 * of its free space (2 and 2; of an overflow page: how many pages it spans). The offsets of its
 * nodes follow, 2 bytes each. */
enum {
    PAGE_HEAD = 16,
    BRANCH = 1,
    LEAF = 2,
    OVERFLOW = 4,
    META = 8,
    /* A node: the size of its value in two halves, flags, the size of its key; then the key and the
     * value. In a branch, the first three fields are the number of the child page. */
    NODE_HEAD = 8,
    BIG = 1,           /* the value is stored on the overflow page of that number */
    NOT_PLAIN = 2 | 4, /* nested databases, duplicate keys */
    /* A meta page: magic number, version, an address, the map size, two databases (of free pages,
     * and the main one), the last page, the transaction number. */
    META_MAP = PAGE_HEAD + 16,
    META_FREE = PAGE_HEAD + 24,
    META_MAIN = META_FREE + 48,
    META_LAST = META_MAIN + 48,
    META_TXN = META_LAST + 8,
    META_END = META_TXN + 8,
    /* A database: page size (in the first one), flags, depth, counts of branch, leaf and overflow
     * pages and of entries, the root page. */
    DB_FLAGS = 4,
    DB_DEPTH = 6,
    DB_BRANCHES = 8,
    DB_LEAVES = 16,
    DB_OVERFLOWS = 24,
    DB_ENTRIES = 32,
    DB_ROOT = 40,
    LONGEST_KEY = 511,
    DEEPEST = 32,
};
static const uint32_t magic = 0xbeefc0de;
static const uint64_t no_page = UINT64_MAX;

/* ---- reading ---- */

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
        good[i] = aril__le32(meta[i] + PAGE_HEAD) == magic && aril__le16(meta[i] + 10) & META;
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
    uint64_t root = no_page, entries = 0;
    aril_status status = read_meta(f, &root, &entries);
    if (status == ARIL_OK && root != no_page) status = walk(f, root, 0);
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

/* ---- writing: leaf pages are filled in order, then the levels above them ---- */

enum { PAGE = 4096, LARGEST_NODE = 2038 };

struct level {
    unsigned char page[PAGE];
    unsigned lower, upper;
    uint64_t pages; /* pages written so far */
};

struct writing {
    aril__file *file;
    uint64_t next; /* number of the next page */
    uint64_t overflows;
    struct level *level[DEEPEST]; /* from the leaves upward */
    int depth;
    bool failed;
};

static void put_page_head(unsigned char *page, uint64_t number, unsigned flags, unsigned lower,
                          unsigned upper)
{
    aril__put_le64(page, number);
    aril__put_le16(page + 8, 0);
    aril__put_le16(page + 10, (uint16_t)flags);
    aril__put_le16(page + 12, (uint16_t)lower);
    aril__put_le16(page + 14, (uint16_t)upper);
}

static void add_node(struct writing *w, int depth, const unsigned char head[NODE_HEAD],
                     const void *key, size_t key_size, const void *value, size_t value_size);

/* Writes the page of a level, and adds a node for it to the level above, under its first key. */
static uint64_t end_page(struct writing *w, int depth, bool last)
{
    struct level *l = w->level[depth];
    uint64_t number = w->next++;
    put_page_head(l->page, number, depth ? BRANCH : LEAF, l->lower, l->upper);
    aril__file_write(w->file, l->page, PAGE);
    l->pages++;
    if (!last) {
        const unsigned char *first = l->page + aril__le16(l->page + PAGE_HEAD);
        unsigned char key[LONGEST_KEY], head[NODE_HEAD];
        size_t n = aril__le16(first + 6);
        memcpy(key, first + NODE_HEAD, n);
        aril__put_le16(head, (uint16_t)number);
        aril__put_le16(head + 2, (uint16_t)(number >> 16));
        aril__put_le16(head + 4, (uint16_t)(number >> 32));
        add_node(w, depth + 1, head, key, n, NULL, 0);
    }
    memset(l->page, 0, PAGE);
    l->lower = PAGE_HEAD;
    l->upper = PAGE;
    return number;
}

static void add_node(struct writing *w, int depth, const unsigned char head[NODE_HEAD],
                     const void *key, size_t key_size, const void *value, size_t value_size)
{
    if (depth == w->depth) {
        struct level *l = depth < DEEPEST ? aril__calloc(sizeof *l) : NULL;
        if (!l) {
            w->failed = true;
            return;
        }
        l->lower = PAGE_HEAD;
        l->upper = PAGE;
        w->level[w->depth++] = l;
    }
    struct level *l = w->level[depth];
    unsigned size = (unsigned)((NODE_HEAD + key_size + value_size + 1) & ~(size_t)1);
    if (l->lower + 2 + size > l->upper) end_page(w, depth, false);
    if (w->failed) return;
    l->upper -= size;
    unsigned char *node = l->page + l->upper;
    memcpy(node, head, NODE_HEAD);
    aril__put_le16(node + 6, (uint16_t)key_size);
    memcpy(node + NODE_HEAD, key, key_size);
    if (value_size) memcpy(node + NODE_HEAD + key_size, value, value_size);
    aril__put_le16(l->page + l->lower, (uint16_t)l->upper);
    l->lower += 2;
}

static void add_pair(struct writing *w, const aril__lmdb_pair *p)
{
    unsigned char head[NODE_HEAD] = { 0 }, number[8];
    aril__put_le16(head, (uint16_t)p->value_size);
    aril__put_le16(head + 2, (uint16_t)(p->value_size >> 16));
    if (NODE_HEAD + p->key_size + p->value_size <= LARGEST_NODE) {
        add_node(w, 0, head, p->key, p->key_size, p->value, p->value_size);
        return;
    }
    static const unsigned char zeros[PAGE];
    unsigned char first[PAGE_HEAD];
    uint64_t pages = (PAGE_HEAD + p->value_size + PAGE - 1) / PAGE;
    put_page_head(first, w->next, OVERFLOW, 0, 0);
    aril__put_le32(first + 12, (uint32_t)pages);
    aril__file_write(w->file, first, PAGE_HEAD);
    aril__file_write(w->file, p->value, p->value_size);
    aril__file_write(w->file, zeros, (size_t)(pages * PAGE - PAGE_HEAD - p->value_size));
    aril__put_le64(number, w->next);
    aril__put_le16(head + 4, BIG);
    w->next += pages;
    w->overflows += pages;
    add_node(w, 0, head, p->key, p->key_size, number, sizeof number);
}

static void put_meta(unsigned char *page, uint64_t number, uint64_t last, const struct writing *w,
                     uint64_t root, int64_t n)
{
    memset(page, 0, PAGE);
    put_page_head(page, number, META, 0, 0);
    aril__put_le32(page + PAGE_HEAD, magic);
    aril__put_le32(page + PAGE_HEAD + 4, 1);
    aril__put_le64(page + META_MAP, (last + 1) * PAGE);
    aril__put_le32(page + META_FREE, PAGE);
    aril__put_le16(page + META_FREE + DB_FLAGS, 8); /* integer keys */
    aril__put_le64(page + META_FREE + DB_ROOT, no_page);
    uint64_t branches = 0;
    for (int i = 1; i < w->depth; i++) branches += w->level[i]->pages;
    aril__put_le16(page + META_MAIN + DB_DEPTH, (uint16_t)w->depth);
    aril__put_le64(page + META_MAIN + DB_BRANCHES, branches);
    aril__put_le64(page + META_MAIN + DB_LEAVES, w->depth ? w->level[0]->pages : 0);
    aril__put_le64(page + META_MAIN + DB_OVERFLOWS, w->overflows);
    aril__put_le64(page + META_MAIN + DB_ENTRIES, (uint64_t)n);
    aril__put_le64(page + META_MAIN + DB_ROOT, root);
    aril__put_le64(page + META_LAST, last);
    aril__put_le64(page + META_TXN, number);
}

/* Called twice: the first pass discards its output and only finds the root page, which the file
 * stores at its start. */
static aril_status write_pages(struct writing *w, int64_t n, const aril__lmdb_pair *pair,
                               uint64_t *root)
{
    w->next = 2;
    for (int64_t i = 0; i < n && !w->failed; i++) add_pair(w, &pair[i]);
    for (int depth = 0; depth < w->depth && !w->failed; depth++)
        *root = end_page(w, depth, depth + 1 == w->depth);
    return w->failed ? aril__fail(ARIL_ERR_MEMORY, "out of memory writing an LMDB file") : ARIL_OK;
}

static void free_levels(struct writing *w)
{
    for (int i = 0; i < w->depth; i++) free(w->level[i]);
    w->depth = 0;
}

aril_status aril__lmdb_write(const char *path, int64_t n, const aril__lmdb_pair *pair)
{
    for (int64_t i = 0; i < n; i++) {
        const aril__lmdb_pair *p = &pair[i], *q = i ? p - 1 : NULL;
        int order =
            q ? memcmp(q->key, p->key, q->key_size < p->key_size ? q->key_size : p->key_size) : -1;
        if (order == 0 && q && q->key_size < p->key_size) order = -1;
        if (p->key_size < 1 || p->key_size > LONGEST_KEY || order >= 0 || p->value_size > INT32_MAX)
            return aril__fail(ARIL_ERR_ARG,
                              "%s: key %lld does not have 1 to 511 bytes, is not sorted, or its "
                              "value is too large",
                              path, (long long)i);
    }
    unsigned char meta[2 * PAGE];
    uint64_t root = no_page;
    struct writing trial = { .file = aril__file_begin("/dev/null") }, w = { 0 };
    if (!trial.file) return aril__latest_status();
    aril_status status = write_pages(&trial, n, pair, &root);
    for (uint64_t i = 0; i < 2; i++) put_meta(meta + i * PAGE, i, trial.next - 1, &trial, root, n);
    free_levels(&trial);
    aril__file_abandon(trial.file);
    if (status == ARIL_OK && !(w.file = aril__file_begin(path))) status = aril__latest_status();
    if (status != ARIL_OK) return status;
    aril__file_write(w.file, meta, sizeof meta);
    status = write_pages(&w, n, pair, &root);
    free_levels(&w);
    if (status == ARIL_OK) return aril__file_commit(w.file);
    aril__file_abandon(w.file);
    return status;
}
