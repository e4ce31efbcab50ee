/* Checkpoints of TensorFlow (V2), and the variables of SavedModels, which are such checkpoints:
 *
 *     NAME.index                  a sorted table of LevelDB: keys, and where their tensors are
 *     NAME.data-00000-of-00002    their bytes
 *
 * The table is blocks of entries; the last 48 bytes say where the block is that lists the others.
 * An entry begins with as many bytes of the key before it as it says. */
#include "core/error.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "formats/crc32c.h"
#include "formats/schemas.h"
#include "formats/weights/weights.h"

#include <stdlib.h>
#include <string.h>

enum { FOOTER = 48, TRAILER = 5, MOST_SHARDS = 1000 };

static const char graph_key[] = "_CHECKPOINTABLE_OBJECT_GRAPH";

/* An entry that becomes a tensor of the list. */
typedef struct found {
    int shard;
    uint64_t offset, size;
    uint32_t crc;
} found;

/* What a key is called by the objects that it belongs to. */
typedef struct known {
    const char *key, *name;
    bool shared; /* by several keys */
} known;

typedef struct checkpoint {
    aril__mapped **shard;
    int shards;
    bool big, has_header;
    found *at;
    int n, capacity;
    uint64_t used, keys; /* bytes of blocks and of keys that were read */
    aril__message *graph;
    known *names; /* sorted by key */
    size_t n_names;
} checkpoint;

/* ---- numbers ---- */

/* A part of the file that is being read. */
typedef struct cursor {
    const unsigned char *at, *end;
} cursor;

/* A number in groups of seven bits, the lowest first; false at the end of the part. */
static bool read_varint(cursor *c, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 64 && c->at < c->end; shift += 7) {
        unsigned char byte = *c->at++;
        *value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return true;
    }
    return false;
}

/* ---- tables ---- */

static int probe(aril_weights *w)
{
    static const unsigned char magic[] = { 0x57, 0xfb, 0x80, 0x8b, 0x24, 0x75, 0x47, 0xdb };
    return w->size >= FOOTER && memcmp(w->data + w->size - 8, magic, 8) == 0;
}

/* The entries of the block that a handle names, without what is behind them. */
static aril_status find_block(aril_weights *w, cursor *handle, cursor *block)
{
    checkpoint *c = w->reader;
    uint64_t offset, size;
    if (!read_varint(handle, &offset) || !read_varint(handle, &size))
        return aril__weights_malformed(w, "the position of a block is cut");
    if (size > w->size || offset > w->size - size || w->size - size - offset < TRAILER || size < 4)
        return aril__weights_malformed(w, "a block lies outside of the file");
    c->used += size + TRAILER; /* blocks do not overlap */
    if (c->used > w->size) return aril__weights_malformed(w, "blocks overlap");
    const unsigned char *at = w->data + offset, *end = at + size;
    if (*end != 0)
        return aril__fail(ARIL_ERR_UNSUPPORTED,
                          "%s: a compressed table (type %d) cannot be read; expected one as "
                          "TensorFlow writes it, without compression",
                          w->path, *end);
    if (aril__masked_crc32c(at, (size_t)size + 1) != aril__le32(end + 1))
        return aril__weights_malformed(w, "the checksum of the block at byte %llu does not match",
                                       (unsigned long long)offset);
    uint64_t restarts = aril__le32(end - 4);
    if (restarts > (size - 4) / 4)
        return aril__weights_malformed(w, "the block at byte %llu is cut",
                                       (unsigned long long)offset);
    *block = (cursor){ at, end - 4 - 4 * restarts };
    return ARIL_OK;
}

/* Reads the next entry of a block: completes the key, which ends with a NUL. At least every 16th
 * key is stored as a whole, so that a small file cannot have many long ones. */
static aril_status next_entry(aril_weights *w, cursor *block, aril__bytes *key, cursor *value)
{
    enum { WHOLE_EVERY = 16, FREE = 1 << 16 };
    checkpoint *c = w->reader;
    uint64_t shared, own, size;
    bool good =
        read_varint(block, &shared) && read_varint(block, &own) && read_varint(block, &size);
    uint64_t left = (uint64_t)(block->end - block->at);
    if (!good || shared > key->n || own > left || size > left - own)
        return aril__weights_malformed(w, "an entry is cut");
    key->n = (size_t)shared;
    aril__bytes_add(key, block->at, (size_t)own);
    if (key->failed) return aril__weights_no_memory(w);
    c->keys += key->n;
    if (c->keys > WHOLE_EVERY * (uint64_t)w->size + FREE)
        return aril__weights_malformed(w, "its names take more memory than such files need");
    block->at += own;
    *value = (cursor){ block->at, block->at + size };
    block->at += size;
    return ARIL_OK;
}

typedef aril_status entry_fn(aril_weights *w, const aril__bytes *key, cursor *value);

static aril_status each_entry(aril_weights *w, cursor *handle, entry_fn *fn)
{
    cursor block = { 0 }, value;
    aril__bytes key = { 0 };
    aril_status s = find_block(w, handle, &block);
    aril__bytes_add(&key, "", 0);
    while (s == ARIL_OK && block.at < block.end) {
        s = next_entry(w, &block, &key, &value);
        if (s == ARIL_OK) s = fn(w, &key, &value);
    }
    aril__bytes_free(&key);
    return s;
}

/* ---- shards ---- */

/* The path of the index is NAME.index. */
static aril_status open_shards(aril_weights *w, int64_t n)
{
    checkpoint *c = w->reader;
    size_t length = strlen(w->path);
    if (n < 1 || n > MOST_SHARDS)
        return aril__weights_malformed(w, "it names %lld files of data; expected 1 to %d",
                                       (long long)n, MOST_SHARDS);
    if (length > 6 && strcmp(w->path + length - 6, ".index") == 0) length -= 6;
    c->shard = aril__calloc((size_t)n * sizeof(aril__mapped *));
    if (!c->shard) return aril__weights_no_memory(w);
    for (; c->shards < n; c->shards++) {
        aril__bytes path = { 0 };
        aril__bytes_print(&path, "%.*s.data-%05d-of-%05d", (int)length, w->path, c->shards, (int)n);
        c->shard[c->shards] =
            path.failed ? NULL : aril__mapped_open("weights", (const char *)path.at);
        bool failed = path.failed;
        aril__bytes_free(&path);
        if (failed) return aril__weights_no_memory(w);
        if (!c->shard[c->shards]) return aril__latest_status();
    }
    return ARIL_OK;
}

/* The header has the empty key, which is the first. */
static aril_status read_header(aril_weights *w, const cursor *value)
{
    checkpoint *c = w->reader;
    aril__message *m = aril__message_read(&aril__tensorflow_BundleHeaderProto, value->at,
                                          (size_t)(value->end - value->at),
                                          (aril__message_opts){ .name = w->path });
    if (!m) return aril__latest_status();
    c->has_header = true;
    c->big = aril__message_int(m, "endianness") != 0;
    aril_status s = open_shards(w, aril__message_int(m, "num_shards"));
    aril__message_free(m);
    return s;
}

/* ---- entries ---- */

/* TensorFlow's DataType. */
static const struct {
    int code;
    aril_dtype dtype;
} dtypes[] = {
    { 1, ARIL_F32 },   { 2, ARIL_F64 },     { 3, ARIL_I32 },       { 4, ARIL_U8 },
    { 5, ARIL_I16 },   { 6, ARIL_I8 },      { 9, ARIL_I64 },       { 10, ARIL_BOOL },
    { 14, ARIL_BF16 }, { 17, ARIL_U16 },    { 19, ARIL_F16 },      { 22, ARIL_U32 },
    { 23, ARIL_U64 },  { 24, ARIL_F8E5M2 }, { 25, ARIL_F8E4M3FN },
};

static bool dtype_of(int64_t code, aril_dtype *dtype)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (dtypes[i].code != code) continue;
        *dtype = dtypes[i].dtype;
        return true;
    }
    return false;
}

/* Fills in the shape; false if it has too many dimensions. */
static bool shape_of(const aril__message *m, aril_shape *shape)
{
    size_t n = aril__message_count(m, "dim");
    *shape = (aril_shape){ 0 };
    if (n > ARIL_MAX_DIMS) return false;
    shape->ndim = (int)n;
    for (size_t i = 0; i < n; i++)
        shape->dim[i] = aril__message_int(aril__message_sub_at(m, "dim", i), "size");
    return true;
}

static bool grow(checkpoint *c)
{
    if (c->n < c->capacity) return true;
    int capacity = 2 * c->capacity + 64;
    found *more = aril__realloc(c->at, (size_t)capacity * sizeof *more);
    if (!more) return false;
    c->at = more;
    c->capacity = capacity;
    return true;
}

/* Where the bytes of an entry are, which must be within a shard. */
static aril_status locate(aril_weights *w, const char *key, const aril__message *m, found *f)
{
    const checkpoint *c = w->reader;
    int64_t shard = aril__message_int(m, "shard_id"), offset = aril__message_int(m, "offset");
    int64_t size = aril__message_int(m, "size");
    if (shard < 0 || shard >= c->shards)
        return aril__weights_malformed(w, "%s is in file %lld of %d", key, (long long)shard,
                                       c->shards);
    uint64_t all = aril__mapped_size(c->shard[shard]);
    if (offset < 0 || size < 0 || (uint64_t)size > all || (uint64_t)offset > all - (uint64_t)size)
        return aril__weights_malformed(w, "%s lies outside of its file", key);
    *f = (found){ (int)shard, (uint64_t)offset, (uint64_t)size,
                  (uint32_t)aril__message_int(m, "crc32c") };
    return ARIL_OK;
}

/* A variable's key without what TensorFlow appends: "net/w/.ATTRIBUTES/VARIABLE_VALUE". */
static void cut_suffix(char *name)
{
    char *suffix = strstr(name, "/.ATTRIBUTES/");
    if (suffix && suffix > name && strcmp(suffix, "/.ATTRIBUTES/VARIABLE_VALUE") == 0)
        *suffix = '\0';
}

static aril_status add(aril_weights *w, const char *key, const aril__message *m)
{
    checkpoint *c = w->reader;
    aril_dtype dtype = ARIL_U8;
    aril_shape shape;
    found f;
    int64_t code = aril__message_int(m, "dtype");
    bool known_type = dtype_of(code, &dtype), sliced = aril__message_count(m, "slices") > 0;
    bool fits = shape_of(aril__message_sub(m, "shape"), &shape);
    aril_status s = locate(w, key, m, &f);
    uint64_t bytes;
    if (s != ARIL_OK) return s;
    bool whole = known_type && fits && !sliced;
    if (whole && (!aril__weights_bytes(shape, dtype, f.size, &bytes) || bytes != f.size))
        return aril__weights_malformed(w, "%s has %llu bytes, which is not what its shape takes",
                                       key, (unsigned long long)f.size);
    if (!grow(c)) return aril__weights_no_memory(w);
    aril__weights_entry *e = aril__weights_add(w, key, dtype, shape, (uint64_t)c->n);
    if (!e) return ARIL_ERR_MEMORY;
    c->at[c->n++] = f;
    if (sliced) return aril__weights_refuse(e, "it is stored in slices");
    if (!fits) return aril__weights_refuse(e, "more than %d dimensions", ARIL_MAX_DIMS);
    if (known_type) return ARIL_OK;
    enum { STRING = 7 };
    return code == STRING ? aril__weights_refuse(e, "text")
                          : aril__weights_refuse(e, "dtype %lld of TensorFlow", (long long)code);
}

/* ---- names ---- */

static int by_key(const void *a, const void *b)
{
    return strcmp(((const known *)a)->key, ((const known *)b)->key);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const known *)a)->name, ((const known *)b)->name);
}

/* The names that the objects have in TensorFlow: "dense/kernel" instead of "variables/3". */
static aril_status list_names(aril_weights *w)
{
    checkpoint *c = w->reader;
    size_t n = 0, nodes = aril__message_count(c->graph, "nodes");
    for (size_t i = 0; i < nodes; i++)
        n += aril__message_count(aril__message_sub_at(c->graph, "nodes", i), "attributes");
    c->names = aril__calloc((n + 1) * sizeof *c->names);
    if (!c->names) return aril__weights_no_memory(w);
    for (size_t i = 0; i < nodes; i++) {
        const aril__message *node = aril__message_sub_at(c->graph, "nodes", i);
        for (size_t k = 0; k < aril__message_count(node, "attributes"); k++) {
            const aril__message *a = aril__message_sub_at(node, "attributes", k);
            const char *key = aril__message_text(a, "checkpoint_key");
            const char *name = aril__message_text(a, "full_name");
            if (*key && *name) c->names[c->n_names++] = (known){ .key = key, .name = name };
        }
    }
    qsort(c->names, c->n_names, sizeof *c->names, by_name);
    for (size_t i = 1; i < c->n_names; i++)
        if (by_name(&c->names[i - 1], &c->names[i]) == 0)
            c->names[i - 1].shared = c->names[i].shared = true;
    qsort(c->names, c->n_names, sizeof *c->names, by_key);
    return ARIL_OK;
}

/* Text in a file: the length of each, their checksum, the bytes. */
static aril_status read_graph(aril_weights *w, const aril__message *m)
{
    checkpoint *c = w->reader;
    found f;
    uint64_t length;
    aril_status s = locate(w, graph_key, m, &f);
    if (s != ARIL_OK) return s;
    const unsigned char *at = aril__mapped_data(c->shard[f.shard]);
    cursor text = { at + f.offset, at + f.offset + f.size };
    if (!read_varint(&text, &length) || text.end - text.at < 4 ||
        (uint64_t)(text.end - text.at) - 4 != length)
        return aril__weights_malformed(w, "the names of its objects are cut");
    if (c->graph) return aril__weights_malformed(w, "it lists its objects twice");
    c->graph = aril__message_read(&aril__tensorflow_TrackableObjectGraph, text.at + 4,
                                  (size_t)length, (aril__message_opts){ .name = w->path });
    return c->graph ? list_names(w) : aril__latest_status();
}

/* Gives entries the names of their objects, where those are unique; otherwise the keys without the
 * suffix. */
static aril_status rename_all(aril_weights *w)
{
    const checkpoint *c = w->reader;
    for (int i = 0; i < w->n; i++) {
        char **name = &w->entry[i].name;
        const known wanted = { .key = *name };
        const known *k =
            c->n_names ? bsearch(&wanted, c->names, c->n_names, sizeof wanted, by_key) : NULL;
        if (!k || k->shared) {
            cut_suffix(*name);
            continue;
        }
        char *copy = aril__strdup(k->name);
        if (!copy) return aril__weights_no_memory(w);
        free(*name);
        *name = copy;
    }
    return ARIL_OK;
}

/* ---- the kind ---- */

static aril_status read_entry(aril_weights *w, const aril__bytes *key, cursor *value)
{
    const checkpoint *c = w->reader;
    const char *text = (const char *)key->at;
    if (!c->has_header) {
        if (key->n > 0) return aril__weights_malformed(w, "it has no header");
        return read_header(w, value);
    }
    if (key->n == 0) return aril__weights_malformed(w, "it has two headers");
    if (*text == '\0') return ARIL_OK; /* a slice of a tensor */
    if (memchr(text, '\0', key->n)) return aril__weights_malformed(w, "a name has a NUL character");
    aril__message *m = aril__message_read(&aril__tensorflow_BundleEntryProto, value->at,
                                          (size_t)(value->end - value->at),
                                          (aril__message_opts){ .name = w->path });
    if (!m) return aril__latest_status();
    aril_status s = strcmp(text, graph_key) == 0 ? read_graph(w, m) : add(w, text, m);
    aril__message_free(m);
    return s;
}

static aril_status read_block(aril_weights *w, const aril__bytes *key, cursor *value)
{
    (void)key; /* the last one of the block, or beyond it */
    return each_entry(w, value, read_entry);
}

static aril_status open_file(aril_weights *w)
{
    w->kernels_turned = true;
    w->reader = aril__calloc(sizeof(checkpoint));
    if (!w->reader) return aril__weights_no_memory(w);
    checkpoint *c = w->reader;
    cursor footer = { w->data + w->size - FOOTER, w->data + w->size - 8 };
    uint64_t other;
    if (!read_varint(&footer, &other) || !read_varint(&footer, &other))
        return aril__weights_malformed(w, "its end is cut");
    aril_status s = each_entry(w, &footer, read_block);
    if (s == ARIL_OK && !c->has_header) s = aril__weights_malformed(w, "it has no header");
    return s == ARIL_OK ? rename_all(w) : s;
}

static aril_tensor *tensor(aril_weights *w, int i)
{
    const checkpoint *c = w->reader;
    const aril__weights_entry *e = &w->entry[i];
    const found *f = &c->at[e->at];
    const unsigned char *at =
        (const unsigned char *)aril__mapped_data(c->shard[f->shard]) + f->offset;
    if (aril__masked_crc32c(at, (size_t)f->size) != f->crc) {
        aril__weights_malformed(w, "the checksum of %s does not match", e->name);
        return aril__poison();
    }
    return aril__weights_map_in(w, c->shard[f->shard], at, e->shape, e->dtype, c->big);
}

static aril_status check(const aril_weights *w)
{
    const checkpoint *c = w->reader;
    aril_status s = ARIL_OK;
    for (int i = 0; i < c->shards && s == ARIL_OK; i++) s = aril__mapped_check(c->shard[i]);
    return s;
}

static void close_file(aril_weights *w)
{
    checkpoint *c = w->reader;
    if (!c) return;
    for (int i = 0; i < c->shards; i++) aril__mapped_close(c->shard[i]);
    aril__message_free(c->graph);
    free(c->shard);
    free(c->names);
    free(c->at);
    free(c);
}

const aril__weights_kind aril__tensorflow_weights = { .name = "TensorFlow",
                                                      .id = "tensorflow",
                                                      .probe = probe,
                                                      .open = open_file,
                                                      .tensor = tensor,
                                                      .check = check,
                                                      .close = close_file };
