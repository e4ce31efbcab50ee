/* B-trees of HDF5 files, of both versions. Levels decrease from node to node, so that walks end;
 * nodes that are shared by many others are limited by the steps of the file. */
#include "formats/hdf5/inside.h"

enum { MAX_LEVELS = 32 };

/* ---- version 1 ---- */

typedef struct old_tree {
    const aril__hdf5 *file;
    int type;
    size_t key_size;
    h5_each_child *each;
    void *ctx;
} old_tree;

static h5_problem old_node(const old_tree *t, uint64_t address, int parent)
{
    h5_cursor c = aril__h5_from(t->file, address);
    if (!aril__h5_mark(&c, "TREE")) return H5_TREE;
    int type = (int)aril__h5_number(&c, 1), level = (int)aril__h5_number(&c, 1);
    uint64_t n = aril__h5_number(&c, 2);
    aril__h5_bytes(&c, 2 * (size_t)t->file->offset_size); /* siblings */
    if (c.bad || type != t->type || level >= parent) return H5_TREE;
    if (!aril__h5_step(t->file, n + 1)) return H5_ENDLESS;
    h5_problem p = H5_FINE;
    for (uint64_t i = 0; p == H5_FINE && i < n; i++) {
        h5_cursor key = { .left = t->key_size };
        key.at = aril__h5_bytes(&c, t->key_size);
        uint64_t child = aril__h5_offset(t->file, &c);
        if (c.bad) return H5_SHORT;
        p = level > 0 ? old_node(t, child, level) : t->each(t->ctx, key, child);
    }
    return p;
}

h5_problem aril__h5_leaves(const aril__hdf5 *f, uint64_t address, int type, size_t key_size,
                           h5_each_child *each, void *ctx)
{
    old_tree t = { .file = f, .type = type, .key_size = key_size, .each = each, .ctx = ctx };
    return address == H5_NOWHERE ? H5_FINE : old_node(&t, address, MAX_LEVELS);
}

/* ---- version 2 ---- */

typedef struct tree {
    const aril__hdf5 *file;
    int type;
    uint64_t node_size, record_size;
    int count_size;                /* of the number of records of a child */
    int total_size[MAX_LEVELS];    /* of the number of records below a child at that level */
    uint64_t capacity[MAX_LEVELS]; /* records in a node of that level */
    h5_each_record *each;
    void *ctx;
} tree;

enum { NODE_BYTES = 10 }; /* mark, version, type, checksum */

static h5_problem node(const tree *t, uint64_t address, uint64_t n, int level)
{
    h5_cursor c, records;
    if (n > t->capacity[level]) return H5_TREE;
    /* The checksum follows the last entry, wherever the node ends. */
    uint64_t used = NODE_BYTES + n * t->record_size;
    if (level > 0)
        used += (n + 1) * (uint64_t)(t->file->offset_size + t->count_size +
                                     (level > 1 ? t->total_size[level - 1] : 0));
    h5_problem p = aril__h5_block(t->file, address, used, level ? "BTIN" : "BTLF", &c);
    if (p != H5_FINE) return p;
    aril__h5_bytes(&c, 1);
    if ((int)aril__h5_number(&c, 1) != t->type) return H5_TREE;
    if (!aril__h5_step(t->file, n + 1)) return H5_ENDLESS;
    records = c;
    for (uint64_t i = 0; p == H5_FINE && i < n; i++) {
        h5_cursor record = { .left = (size_t)t->record_size };
        record.at = aril__h5_bytes(&records, t->record_size);
        p = records.bad ? H5_SHORT : t->each(t->ctx, record);
    }
    for (uint64_t i = 0; p == H5_FINE && level > 0 && i <= n; i++) {
        uint64_t child = aril__h5_offset(t->file, &records),
                 count = aril__h5_number(&records, t->count_size);
        if (level > 1) aril__h5_number(&records, t->total_size[level - 1]);
        p = records.bad ? H5_SHORT : node(t, child, count, level - 1);
    }
    return p;
}

/* Nodes have a fixed size, from which follow the widths of the numbers in them. */
static h5_problem levels(tree *t, int depth)
{
    if (t->record_size == 0 || t->node_size < NODE_BYTES + t->record_size) return H5_TREE;
    t->capacity[0] = (t->node_size - NODE_BYTES) / t->record_size;
    t->count_size = aril__h5_width(t->capacity[0]);
    uint64_t below = t->capacity[0];
    for (int i = 1; i <= depth; i++) {
        uint64_t pointer = (uint64_t)(t->file->offset_size + t->count_size + t->total_size[i - 1]);
        if (t->node_size < NODE_BYTES + pointer) return H5_TREE;
        t->capacity[i] = (t->node_size - NODE_BYTES - pointer) / (t->record_size + pointer);
        if (t->capacity[i] == 0 || __builtin_mul_overflow(below, t->capacity[i] + 1, &below) ||
            __builtin_add_overflow(below, t->capacity[i], &below))
            return H5_TREE;
        t->total_size[i] = aril__h5_width(below);
    }
    return H5_FINE;
}

h5_problem aril__h5_records(const aril__hdf5 *f, uint64_t address, int type, h5_each_record *each,
                            void *ctx)
{
    tree t = { .file = f, .type = type, .each = each, .ctx = ctx };
    if (address == H5_NOWHERE) return H5_FINE;
    uint64_t size =
        4 + 2 + 4 + 2 + 2 + 2 + (uint64_t)f->offset_size + 2 + (uint64_t)f->length_size + 4;
    h5_cursor c;
    h5_problem p = aril__h5_block(f, address, size, "BTHD", &c);
    if (p != H5_FINE) return p;
    aril__h5_bytes(&c, 1);
    int its_type = (int)aril__h5_number(&c, 1);
    t.node_size = aril__h5_number(&c, 4);
    t.record_size = aril__h5_number(&c, 2);
    int depth = (int)aril__h5_number(&c, 2);
    aril__h5_bytes(&c, 2);
    uint64_t root = aril__h5_offset(f, &c), n = aril__h5_number(&c, 2);
    if (c.bad || its_type != type || depth >= MAX_LEVELS) return H5_TREE;
    if (root == H5_NOWHERE) return H5_FINE;
    p = levels(&t, depth);
    return p == H5_FINE ? node(&t, root, n, depth) : p;
}
