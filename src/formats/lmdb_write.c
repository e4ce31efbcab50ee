/* Writes LMDB files in one pass: leaf pages are filled in order, then the levels above them; the
 * pages of facts at the start of the file are written last. */
#include "formats/lmdb.h"

#include "core/error.h"
#include "core/memory.h"
#include "formats/atomic_file.h"
#include "formats/lmdb_pages.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096, LARGEST_NODE = 2038 };

struct level {
    unsigned char page[PAGE];
    unsigned lower, upper;
    uint64_t pages; /* pages written so far */
};

struct aril__lmdb_writer {
    aril__file *file;
    char *path;
    uint64_t next; /* number of the next page */
    uint64_t overflows;
    struct level *level[DEEPEST]; /* from the leaves upward */
    int depth;
    int64_t n;
    unsigned char last[LONGEST_KEY]; /* the key added last */
    size_t last_size;
    aril_status status;
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

static void add_node(aril__lmdb_writer *w, int depth, const unsigned char head[NODE_HEAD],
                     const void *key, size_t key_size, const void *value, size_t value_size);

/* Adds a node for page `number`, whose first key is that of the node `first`, to a level. */
static void add_child(aril__lmdb_writer *w, int depth, uint64_t number, const unsigned char *first)
{
    unsigned char key[LONGEST_KEY], head[NODE_HEAD];
    size_t n = aril__le16(first + 6);
    memcpy(key, first + NODE_HEAD, n);
    aril__put_le16(head, (uint16_t)number);
    aril__put_le16(head + 2, (uint16_t)(number >> 16));
    aril__put_le16(head + 4, (uint16_t)(number >> 32));
    add_node(w, depth, head, key, n, NULL, 0);
}

static void start_page(struct level *l)
{
    memset(l->page, 0, PAGE);
    l->lower = PAGE_HEAD;
    l->upper = PAGE;
}

/* Writes the page of a level, and adds a node for it to the level above, under its first key. */
static uint64_t end_page(aril__lmdb_writer *w, int depth, bool root)
{
    struct level *l = w->level[depth];
    uint64_t number = w->next++;
    put_page_head(l->page, number, depth ? BRANCH : LEAF, l->lower, l->upper);
    aril__file_write(w->file, l->page, PAGE);
    l->pages++;
    if (!root) add_child(w, depth + 1, number, l->page + aril__le16(l->page + PAGE_HEAD));
    start_page(l);
    return number;
}

/* A branch page must have two children, so the last node of a full one begins the next page. */
static void end_full_page(aril__lmdb_writer *w, int depth)
{
    struct level *l = w->level[depth];
    unsigned char node[NODE_HEAD + LONGEST_KEY];
    size_t key_size = 0;
    if (depth > 0) {
        l->lower -= 2;
        const unsigned char *last = l->page + aril__le16(l->page + l->lower);
        key_size = aril__le16(last + 6);
        memcpy(node, last, NODE_HEAD + key_size);
        unsigned size = (unsigned)((NODE_HEAD + key_size + 1) & ~(size_t)1);
        memset(l->page + l->upper, 0, size);
        memset(l->page + l->lower, 0, 2);
        l->upper += size;
    }
    end_page(w, depth, false);
    if (depth > 0) add_node(w, depth, node, node + NODE_HEAD, key_size, NULL, 0);
}

static void add_node(aril__lmdb_writer *w, int depth, const unsigned char head[NODE_HEAD],
                     const void *key, size_t key_size, const void *value, size_t value_size)
{
    if (w->status != ARIL_OK) return;
    if (depth == w->depth) {
        struct level *l = depth < DEEPEST ? aril__calloc(sizeof *l) : NULL;
        if (!l) {
            w->status = aril__fail(ARIL_ERR_MEMORY, "out of memory writing %s", w->path);
            return;
        }
        start_page(l);
        w->level[w->depth++] = l;
    }
    struct level *l = w->level[depth];
    unsigned size = (unsigned)((NODE_HEAD + key_size + value_size + 1) & ~(size_t)1);
    if (l->lower + 2 + size > l->upper) end_full_page(w, depth);
    if (w->status != ARIL_OK) return;
    l->upper -= size;
    unsigned char *node = l->page + l->upper;
    memcpy(node, head, NODE_HEAD);
    aril__put_le16(node + 6, (uint16_t)key_size);
    memcpy(node + NODE_HEAD, key, key_size);
    if (value_size) memcpy(node + NODE_HEAD + key_size, value, value_size);
    aril__put_le16(l->page + l->lower, (uint16_t)l->upper);
    l->lower += 2;
}

static void add_pair(aril__lmdb_writer *w, const void *key, size_t key_size, const void *value,
                     size_t value_size)
{
    unsigned char head[NODE_HEAD] = { 0 }, number[8];
    aril__put_le16(head, (uint16_t)value_size);
    aril__put_le16(head + 2, (uint16_t)(value_size >> 16));
    if (NODE_HEAD + key_size + value_size <= LARGEST_NODE) {
        add_node(w, 0, head, key, key_size, value, value_size);
        return;
    }
    static const unsigned char zeros[PAGE];
    unsigned char first[PAGE_HEAD];
    uint64_t pages = (PAGE_HEAD + value_size + PAGE - 1) / PAGE;
    put_page_head(first, w->next, OVERFLOW, 0, 0);
    aril__put_le32(first + 12, (uint32_t)pages);
    aril__file_write(w->file, first, PAGE_HEAD);
    aril__file_write(w->file, value, value_size);
    aril__file_write(w->file, zeros, (size_t)(pages * PAGE - PAGE_HEAD - value_size));
    aril__put_le64(number, w->next);
    aril__put_le16(head + 4, BIG);
    w->next += pages;
    w->overflows += pages;
    add_node(w, 0, head, key, key_size, number, sizeof number);
}

static void put_meta(unsigned char *page, uint64_t number, const aril__lmdb_writer *w,
                     uint64_t root)
{
    put_page_head(page, number, META, 0, 0);
    aril__put_le32(page + PAGE_HEAD, LMDB_MAGIC);
    aril__put_le32(page + PAGE_HEAD + 4, 1);
    aril__put_le64(page + META_MAP, w->next * PAGE);
    aril__put_le32(page + META_FREE, PAGE);
    aril__put_le16(page + META_FREE + DB_FLAGS, 8); /* integer keys */
    aril__put_le64(page + META_FREE + DB_ROOT, LMDB_NO_PAGE);
    uint64_t branches = 0;
    for (int i = 1; i < w->depth; i++) branches += w->level[i]->pages;
    aril__put_le16(page + META_MAIN + DB_DEPTH, (uint16_t)w->depth);
    aril__put_le64(page + META_MAIN + DB_BRANCHES, branches);
    aril__put_le64(page + META_MAIN + DB_LEAVES, w->depth ? w->level[0]->pages : 0);
    aril__put_le64(page + META_MAIN + DB_OVERFLOWS, w->overflows);
    aril__put_le64(page + META_MAIN + DB_ENTRIES, (uint64_t)w->n);
    aril__put_le64(page + META_MAIN + DB_ROOT, root);
    aril__put_le64(page + META_LAST, w->next - 1);
    aril__put_le64(page + META_TXN, number);
}

aril__lmdb_writer *aril__lmdb_begin(const char *path)
{
    static const unsigned char zeros[2 * PAGE];
    aril__file *file = aril__file_begin(path);
    if (!file) return NULL;
    aril__lmdb_writer *w = aril__calloc(sizeof *w);
    char *copy = aril__strdup(path);
    if (!w || !copy) {
        aril__fail(ARIL_ERR_MEMORY, "out of memory writing %s", path);
        aril__file_abandon(file);
        free(copy);
        free(w);
        return NULL;
    }
    *w = (aril__lmdb_writer){ .file = file, .path = copy, .next = 2 };
    aril__file_write(file, zeros, sizeof zeros);
    return w;
}

void aril__lmdb_only_new(aril__lmdb_writer *w)
{
    aril__file_only_new(w->file);
}

static bool is_after(const unsigned char *last, size_t last_size, const void *key, size_t size)
{
    int order = memcmp(last, key, last_size < size ? last_size : size);
    return order < 0 || (order == 0 && last_size < size);
}

aril_status aril__lmdb_add(aril__lmdb_writer *w, const void *key, size_t key_size,
                           const void *value, size_t value_size)
{
    if (w->status != ARIL_OK) return w->status;
    if (key_size < 1 || key_size > LONGEST_KEY || value_size > INT32_MAX ||
        (w->n > 0 && !is_after(w->last, w->last_size, key, key_size)))
        return w->status = aril__fail(
                   ARIL_ERR_ARG,
                   "%s: key %lld does not have 1 to 511 bytes, is not sorted, or its value is too "
                   "large",
                   w->path, (long long)w->n);
    memcpy(w->last, key, key_size);
    w->last_size = key_size;
    w->n++;
    add_pair(w, key, key_size, value, value_size);
    /* A full disk is noticed at the first record that does not fit. */
    if (w->status == ARIL_OK) w->status = aril__file_write(w->file, "", 0);
    return w->status;
}

static void writer_free(aril__lmdb_writer *w)
{
    for (int i = 0; i < w->depth; i++) free(w->level[i]);
    free(w->path);
    free(w);
}

aril_status aril__lmdb_commit(aril__lmdb_writer *w)
{
    unsigned char meta[2 * PAGE] = { 0 };
    uint64_t root = LMDB_NO_PAGE;
    for (int depth = 0; depth < w->depth && w->status == ARIL_OK; depth++)
        root = end_page(w, depth, depth + 1 == w->depth);
    aril_status status = w->status;
    if (status == ARIL_OK) {
        for (uint64_t i = 0; i < 2; i++) put_meta(meta + i * PAGE, i, w, root);
        aril__file_overwrite(w->file, 0, meta, sizeof meta);
        status = aril__file_commit(w->file);
    } else {
        aril__file_abandon(w->file);
    }
    writer_free(w);
    return status;
}

void aril__lmdb_abandon(aril__lmdb_writer *w)
{
    if (!w) return;
    aril__file_abandon(w->file);
    writer_free(w);
}

aril_status aril__lmdb_write(const char *path, int64_t n, const aril__lmdb_pair *pair)
{
    aril__lmdb_writer *w = aril__lmdb_begin(path);
    if (!w) return aril__latest_status();
    aril_status status = ARIL_OK;
    for (int64_t i = 0; i < n && status == ARIL_OK; i++)
        status =
            aril__lmdb_add(w, pair[i].key, pair[i].key_size, pair[i].value, pair[i].value_size);
    if (status == ARIL_OK) return aril__lmdb_commit(w);
    aril__lmdb_abandon(w);
    return status;
}
