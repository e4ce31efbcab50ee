/* MATLAB's .mat files of version 5 (save -v6, -v7; SciPy; Octave): a header of 128 bytes, and then
 * elements, each a type, a size and data. A matrix is an element whose data are elements: flags,
 * sizes, name, numbers; with -v7 it is compressed. Numbers are stored by columns. Files of version
 * 7.3 are HDF5. */
#include "aril/create.h"
#include "aril/dtype.h"
#include "aril/view.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "formats/array.h"
#include "formats/gzip.h"
#include "formats/weights/weights.h"

#include <stdlib.h>
#include <string.h>

enum { HEADER = 128, INT8 = 1, INT32 = 5, UINT32 = 6, MATRIX = 14, COMPRESSED = 15 };

/* The types of stored numbers, and the classes of matrices. */
typedef struct number {
    uint32_t code;
    aril_dtype dtype;
    const char *other; /* what a class is that has no numbers; NULL: it has */
} number;

static const number types[] = {
    { 1, ARIL_I8, NULL },
    { 2, ARIL_U8, NULL },
    { 3, ARIL_I16, NULL },
    { 4, ARIL_U16, NULL },
    { 5, ARIL_I32, NULL },
    { 6, ARIL_U32, NULL },
    { 7, ARIL_F32, NULL },
    { 9, ARIL_F64, NULL },
    { 12, ARIL_I64, NULL },
    { 13, ARIL_U64, NULL },
    { 0 },
};
static const number classes[] = {
    { 1, ARIL_U8, "a cell array" },
    { 2, ARIL_U8, "a struct" },
    { 3, ARIL_U8, "an object" },
    { 4, ARIL_U8, "text" },
    { 5, ARIL_F64, "a sparse matrix" },
    { 6, ARIL_F64, NULL },
    { 7, ARIL_F32, NULL },
    { 8, ARIL_I8, NULL },
    { 9, ARIL_U8, NULL },
    { 10, ARIL_I16, NULL },
    { 11, ARIL_U16, NULL },
    { 12, ARIL_I32, NULL },
    { 13, ARIL_U32, NULL },
    { 14, ARIL_I64, NULL },
    { 15, ARIL_U64, NULL },
    { 16, ARIL_U8, "a function" },
    { 17, ARIL_U8, "an object" },
    { 0 },
};

static const number *find(const number *list, uint32_t code)
{
    for (; list->code; list++)
        if (list->code == code) return list;
    return NULL;
}

/* ---- elements ---- */

typedef struct element {
    uint32_t type;
    const unsigned char *at;
    uint64_t size;  /* bytes of data */
    uint64_t whole; /* and of all that it takes */
} element;

static bool is_big(const aril_weights *w)
{
    return w->data[126] == 'M';
}

static uint32_t word(const aril_weights *w, const unsigned char *p)
{
    return is_big(w) ? aril__be32(p) : aril__le32(p);
}

/* The element at p, of which `have` bytes of `left` are there; false if it is cut. Small ones have
 * their size and up to four bytes of data beside the type. */
static bool read_element(const aril_weights *w, const unsigned char *p, uint64_t have,
                         uint64_t left, element *e)
{
    if (have < 8) return false;
    uint32_t first = word(w, p);
    if (first >> 16) {
        *e = (element){ first & 0xffff, p + 4, first >> 16, 8 };
        return e->size <= 4;
    }
    *e = (element){ first, p + 8, word(w, p + 4), 0 };
    e->whole = 8 + (e->type == COMPRESSED ? e->size : (e->size + 7) / 8 * 8);
    if (e->whole > left && e->size + 8 <= left) e->whole = left; /* the last is not always padded */
    return e->size + 8 <= left;
}

/* ---- matrices ---- */

typedef struct matrix {
    const char *name;
    size_t name_size;
    const number *class;
    bool complex, logical;
    aril_shape shape;
    int dims;
    uint64_t numbers; /* the offset of the numbers */
} matrix;

/* Reads sizes, which are at least two. */
static bool read_sizes(const aril_weights *w, const element *e, matrix *m)
{
    m->dims = (int)(e->size / 4);
    if (e->type != INT32 || e->size % 4 || m->dims < 2 || e->size > 4 * 64) return false;
    m->shape.ndim = m->dims < ARIL_MAX_DIMS ? m->dims : ARIL_MAX_DIMS;
    for (int i = 0; i < m->dims; i++) {
        int64_t size = (int32_t)word(w, e->at + 4 * i);
        if (size < 0) return false;
        if (i < ARIL_MAX_DIMS) m->shape.dim[i] = size;
    }
    return true;
}

/* Reads what is before the numbers of a matrix: `have` bytes at p of `left` are there. */
static aril_status read_matrix(const aril_weights *w, const unsigned char *p, uint64_t have,
                               uint64_t left, matrix *m)
{
    enum { FLAGS, SIZES, NAME, PARTS };
    element e[PARTS];
    uint64_t at = 0;
    *m = (matrix){ 0 };
    for (int i = 0; i < PARTS; i++) {
        if (at > have || !read_element(w, p + at, have - at, left - at, &e[i]) ||
            e[i].whole > have - at)
            return aril__weights_malformed(w, "a matrix is cut, or its name too long");
        at += e[i].whole;
    }
    if (e[FLAGS].type != UINT32 || e[FLAGS].size < 8 || !read_sizes(w, &e[SIZES], m) ||
        e[NAME].type != INT8 || memchr(e[NAME].at, '\0', (size_t)e[NAME].size))
        return aril__weights_malformed(w, "a matrix does not begin with flags, sizes and a name");
    uint32_t flags = word(w, e[FLAGS].at);
    m->class = find(classes, flags & 0xff);
    m->complex = flags >> 8 & 8;
    m->logical = flags >> 8 & 2;
    m->name = (const char *)e[NAME].at;
    m->name_size = (size_t)e[NAME].size;
    m->numbers = at;
    if (m->class) return ARIL_OK;
    return aril__weights_malformed(w, "a matrix has the class %u, which there is not",
                                   flags & 0xff);
}

static aril_dtype dtype_of(const matrix *m)
{
    return m->logical ? ARIL_BOOL : m->class->dtype;
}

/* ---- compression ---- */

/* A stream of zlib has two bytes before and a checksum behind that gzip's inflate does not read. */
enum { ZLIB_BEFORE = 2, ZLIB_AFTER = 4, INNER = 8 };

/* The first bytes of what is compressed. */
static aril_status inflate_first(const aril_weights *w, const element *e, unsigned char *to,
                                 size_t want, size_t *got)
{
    bool is_zlib = e->size > ZLIB_BEFORE + ZLIB_AFTER && (e->at[0] & 15) == 8 &&
                   (e->at[0] << 8 | e->at[1]) % 31 == 0 && !(e->at[1] & 32);
    if (!is_zlib) return aril__weights_malformed(w, "a compressed matrix is no stream of zlib");
    return aril__inflate_first("weights", w->path, e->at + ZLIB_BEFORE,
                               (size_t)e->size - ZLIB_BEFORE - ZLIB_AFTER, to, want, got);
}

static uint32_t adler32(const unsigned char *p, size_t n)
{
    enum { BASE = 65521, BLOCK = 5552 }; /* the sums of a block fit into 32 bits */
    uint32_t a = 1, b = 0;
    while (n > 0) {
        size_t k = n < BLOCK ? n : BLOCK;
        for (n -= k; k > 0; k--) b += a += *p++;
        a %= BASE;
        b %= BASE;
    }
    return b << 16 | a;
}

/* All that is compressed, of a size that was checked, in memory that the caller frees. */
static aril_status inflate_all(const aril_weights *w, const element *e, uint64_t size,
                               unsigned char **to)
{
    *to = aril__malloc((size_t)size + 1);
    if (!*to) return aril__weights_no_memory(w);
    aril_status s = aril__inflate("weights", w->path, e->at + ZLIB_BEFORE,
                                  (size_t)e->size - ZLIB_BEFORE - ZLIB_AFTER, *to, (size_t)size);
    if (s == ARIL_OK && adler32(*to, (size_t)size) != aril__be32(e->at + e->size - ZLIB_AFTER))
        s = aril__weights_malformed(w, "the checksum of a compressed matrix does not match");
    return s;
}

/* ---- the kind ---- */

static int probe(aril_weights *w)
{
    static const unsigned char little[] = { 0, 1, 'I', 'M' }, big[] = { 1, 0, 'M', 'I' };
    return w->size >= HEADER && memcmp(w->data, "MATLAB", 6) == 0 &&
           (memcmp(w->data + 124, little, 4) == 0 || memcmp(w->data + 124, big, 4) == 0);
}

static aril_status add(aril_weights *w, const matrix *m, uint64_t at)
{
    aril__bytes name = { 0 };
    aril__bytes_add(&name, m->name, m->name_size);
    if (name.failed) return aril__weights_no_memory(w);
    aril__weights_entry *e = aril__weights_add(w, (const char *)name.at, dtype_of(m), m->shape, at);
    aril__bytes_free(&name);
    if (!e) return ARIL_ERR_MEMORY;
    if (m->class->other) return aril__weights_refuse(e, "%s", m->class->other);
    if (m->complex) return aril__weights_refuse(e, "complex numbers");
    if (m->dims > ARIL_MAX_DIMS)
        return aril__weights_refuse(e, "more than %d dimensions", ARIL_MAX_DIMS);
    return ARIL_OK;
}

/* Lists a compressed matrix; *all is the sum of what they unpack to. */
static aril_status add_compressed(aril_weights *w, const element *e, uint64_t at,
                                  unsigned char *first, uint64_t *all)
{
    enum { MOST = 1 << 12 };
    size_t got = 0;
    matrix m;
    element inner = { 0 };
    aril_status s = inflate_first(w, e, first, MOST, &got);
    if (s != ARIL_OK) return s;
    if (!read_element(w, first, got, UINT64_MAX, &inner) || inner.type != MATRIX)
        return aril__weights_malformed(w, "what is compressed is no matrix");
    *all += inner.size;
    if (*all > (uint64_t)w->size * ARIL__UNPACKED_TIMES + ARIL__UNPACKED_FREE)
        return aril__weights_malformed(
            w, "it unpacks to more than %d times its size; if that is intended, save it with -v6",
            ARIL__UNPACKED_TIMES);
    s = read_matrix(w, first + INNER, got - INNER, inner.size, &m);
    return s == ARIL_OK ? add(w, &m, at) : s;
}

static aril_status open_file(aril_weights *w)
{
    enum { MOST = 1 << 12 };
    uint64_t all = 0;
    aril_status s = ARIL_OK;
    unsigned char *first = aril__malloc(MOST);
    if (!first) return aril__weights_no_memory(w);
    for (uint64_t at = HEADER, left; at < w->size && s == ARIL_OK;) {
        element e;
        matrix m;
        left = w->size - at;
        if (!read_element(w, w->data + at, left, left, &e))
            s = aril__weights_malformed(w, "it is cut at byte %llu", (unsigned long long)at);
        else if (e.type == COMPRESSED)
            s = add_compressed(w, &e, at, first, &all);
        else if (e.type == MATRIX && e.size > 0 &&
                 (s = read_matrix(w, e.at, e.size, e.size, &m)) == ARIL_OK && m.name_size > 0)
            s = add(w, &m, at); /* one without a name belongs to MATLAB itself */
        if (s == ARIL_OK) at += e.whole;
    }
    free(first);
    return s;
}

/* Numbers that are stored by columns, as they are stored, which may take less room than their
 * class. */
static aril_tensor *numbers(aril_weights *w, const char *name, const matrix *m,
                            const unsigned char *p, uint64_t size)
{
    element e;
    uint64_t bytes;
    const number *type = NULL;
    if (m->numbers < size &&
        read_element(w, p + m->numbers, size - m->numbers, size - m->numbers, &e))
        type = find(types, e.type);
    aril_shape stored = { .ndim = m->shape.ndim };
    int axis[ARIL_MAX_DIMS];
    for (int i = 0; i < stored.ndim; i++) {
        axis[i] = stored.ndim - 1 - i;
        stored.dim[i] = m->shape.dim[axis[i]];
    }
    if (!type || !aril__weights_bytes(stored, type->dtype, e.size, &bytes) || bytes != e.size) {
        aril__weights_malformed(w, "%s has other numbers than its sizes tell", name);
        return aril__poison();
    }
    aril_tensor *t = aril__weights_map(w, e.at, stored, type->dtype, is_big(w));
    aril_axes order = { .n = stored.ndim };
    memcpy(order.axis, axis, sizeof axis);
    return aril_contiguous(aril_permute(aril_cast(t, dtype_of(m)), order));
}

static aril_tensor *tensor(aril_weights *w, int i)
{
    uint64_t at = w->entry[i].at, left = w->size - at;
    element e, inner;
    matrix m;
    unsigned char *unpacked = NULL;
    aril_status s = ARIL_OK;
    if (!read_element(w, w->data + at, left, left, &e)) { /* it was there when it was listed */
        aril__weights_malformed(w, "it is cut");
        return aril__poison();
    }
    const unsigned char *p = e.at;
    uint64_t size = e.size;
    if (e.type == COMPRESSED) {
        unsigned char head[INNER];
        size_t got;
        s = inflate_first(w, &e, head, INNER, &got);
        if (s == ARIL_OK && !read_element(w, head, got, UINT64_MAX, &inner))
            s = aril__weights_malformed(w, "what is compressed is no matrix");
        if (s == ARIL_OK) s = inflate_all(w, &e, inner.size + INNER, &unpacked);
        if (s == ARIL_OK) p = unpacked + INNER;
        if (s == ARIL_OK) size = inner.size;
    }
    if (s == ARIL_OK) s = read_matrix(w, p, size, size, &m);
    aril_tensor *t = s == ARIL_OK ? numbers(w, w->entry[i].name, &m, p, size) : aril__poison();
    free(unpacked);
    return t;
}

const aril__weights_kind aril__matlab_weights = {
    .name = "MATLAB", .id = "matlab", .probe = probe, .open = open_file, .tensor = tensor
};
