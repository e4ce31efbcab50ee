/* The pages of LMDB files, for the reader and the writer. */
#ifndef ARIL_FORMATS_LMDB_PAGES_H
#define ARIL_FORMATS_LMDB_PAGES_H

#include <stdint.h>

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
#define LMDB_MAGIC   UINT32_C(0xbeefc0de)
#define LMDB_NO_PAGE UINT64_MAX

#endif
