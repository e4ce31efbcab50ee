/* .npy: a magic number, a version, the length of a header and the header, which is a dictionary as
 * Python writes it:
 *
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } */
#include "formats/npy.h"

#include "aril/device.h"
#include "aril/dtype.h"
#include "aril/formats.h"
#include "aril/create.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "core/tensor.h"
#include "formats/array.h"
#include "formats/atomic_file.h"

#include <string.h>

static const char magic[] = "\x93NUMPY";

/* Element types: a letter and a size in bytes. */
static const struct {
    char letter;
    int size;
    aril_dtype dtype;
} types[] = {
    { 'b', 1, ARIL_BOOL }, { 'u', 1, ARIL_U8 },  { 'u', 2, ARIL_U16 }, { 'u', 4, ARIL_U32 },
    { 'u', 8, ARIL_U64 },  { 'i', 1, ARIL_I8 },  { 'i', 2, ARIL_I16 }, { 'i', 4, ARIL_I32 },
    { 'i', 8, ARIL_I64 },  { 'f', 2, ARIL_F16 }, { 'f', 4, ARIL_F32 }, { 'f', 8, ARIL_F64 },
};
enum { TYPES = sizeof types / sizeof *types };

/* ---- the header's dictionary ---- */

struct header {
    const char *at, *end;
    const char *name; /* file name */
    char descr[16];
    bool fortran;
    aril_shape shape;
};

static aril_status malformed(const char *name, const char *what)
{
    return aril__fail(ARIL_ERR_FORMAT, "%s is not a valid .npy file: %s", name, what);
}

static char peek(struct header *h)
{
    while (h->at < h->end && memchr(" \t\r\n", *h->at, 4)) h->at++;
    return h->at < h->end ? *h->at : 0;
}

static bool take(struct header *h, char c)
{
    if (peek(h) != c) return false;
    h->at++;
    return true;
}

/* Reads a quoted string, truncated to fit. */
static bool quoted(struct header *h, char *to, size_t capacity)
{
    char quote = peek(h);
    if (quote != '\'' && quote != '"') return false;
    const char *begin = ++h->at;
    while (h->at < h->end && *h->at != quote) h->at++;
    if (h->at == h->end) return false;
    size_t n = (size_t)(h->at - begin);
    h->at++;
    if (n >= capacity) n = capacity - 1;
    memcpy(to, begin, n);
    to[n] = 0;
    return true;
}

static bool keyword(struct header *h, const char *text)
{
    size_t n = strlen(text);
    peek(h);
    if ((size_t)(h->end - h->at) < n || memcmp(h->at, text, n) != 0) return false;
    h->at += n;
    return true;
}

static bool shape(struct header *h)
{
    if (!take(h, '(')) return false;
    h->shape.ndim = 0;
    while (!take(h, ')')) {
        int64_t size = 0;
        int digits = 0;
        for (peek(h); h->at < h->end && *h->at >= '0' && *h->at <= '9' && digits < 18;
             h->at++, digits++)
            size = size * 10 + (*h->at - '0');
        if (digits == 0 || h->shape.ndim == ARIL_MAX_DIMS) return false;
        h->shape.dim[h->shape.ndim++] = size;
        keyword(h, "L"); /* long suffix of Python 2 */
        if (!take(h, ',') && peek(h) != ')') return false;
    }
    return true;
}

static aril_status read_header(struct header *h)
{
    bool seen[3] = { false };
    if (!take(h, '{')) return malformed(h->name, "its header is no dictionary");
    while (!take(h, '}')) {
        char key[16];
        if (!quoted(h, key, sizeof key) || !take(h, ':'))
            return malformed(h->name, "its header is broken");
        if (strcmp(key, "descr") == 0) {
            if (peek(h) == '[')
                return aril__fail(ARIL_ERR_UNSUPPORTED, "%s has records, not numbers", h->name);
            if (!quoted(h, h->descr, sizeof h->descr))
                return malformed(h->name, "its dtype is broken");
            seen[0] = true;
        } else if (strcmp(key, "fortran_order") == 0) {
            h->fortran = keyword(h, "True");
            if (!h->fortran && !keyword(h, "False"))
                return malformed(h->name, "its order is broken");
            seen[1] = true;
        } else if (strcmp(key, "shape") == 0) {
            if (!shape(h))
                return malformed(h->name, "its shape is broken, or has more than 8 dimensions");
            seen[2] = true;
        } else {
            return malformed(h->name, "its header has a key that is not known");
        }
        if (!take(h, ',') && peek(h) != '}') return malformed(h->name, "its header is broken");
    }
    return seen[0] && seen[1] && seen[2] ? ARIL_OK : malformed(h->name, "its header lacks a key");
}

bool aril__npy_dtype(const char *descr, aril_dtype *dtype, bool *big)
{
    const char *d = descr;
    *big = false;
    if (*d && strchr("<>=|", *d)) {
        const uint16_t one = 1;
        unsigned char low;
        memcpy(&low, &one, 1);
        *big = *d == '>' || (*d == '=' && !low);
        d++;
    }
    int size = d[0] && d[1] >= '1' && d[1] <= '9' && !d[2] ? d[1] - '0' : 0;
    if (strcmp(d, "?") == 0) d = "b", size = 1;
    for (int i = 0; i < TYPES; i++)
        if (types[i].letter == *d && types[i].size == size) {
            *dtype = types[i].dtype;
            return true;
        }
    return false;
}

static aril_status read_dtype(const struct header *h, aril_dtype *dtype, bool *big)
{
    if (aril__npy_dtype(h->descr, dtype, big)) return ARIL_OK;
    return aril__fail(
        ARIL_ERR_UNSUPPORTED,
        "%s: dtype '%s' is not supported; expected integers, bool, or floats of 16, 32 or 64 bits",
        h->name, h->descr);
}

/* ---- reading ---- */

aril_status aril__npy_head_of(const char *name, const unsigned char *first, size_t n, uint64_t size,
                              aril__npy_info *info)
{
    size_t at = n >= 10 && first[6] == 1 ? 10 : 12, length = 0;
    struct header h = { .name = name };
    *info = (aril__npy_info){ .dtype = ARIL_F32 };
    if (n < 12 || memcmp(first, magic, 6) != 0) return malformed(name, "it does not begin as one");
    if (first[6] < 1 || first[6] > 3) return malformed(name, "its version is not known");
    length = at == 10 ? aril__le16(first + 8) : aril__le32(first + 8);
    if (length > n - at)
        return malformed(name, length > size - at ? "it ends within its header"
                                                  : "its header is longer than is allowed");
    h.at = (const char *)first + at;
    h.end = h.at + length;
    aril_status status = read_header(&h);
    if (status != ARIL_OK) return status;
    info->shape = h.shape;
    info->fortran = h.fortran;
    info->data = at + length;
    memcpy(info->descr, h.descr, sizeof info->descr);
    status = read_dtype(&h, &info->dtype, &info->big);
    if (status != ARIL_OK) return status;
    uint64_t bytes, there = size - info->data;
    bool fits = aril__array_bytes(h.shape, aril_dtype_size(info->dtype), there, &bytes);
    if (fits && bytes == there) return ARIL_OK;
    char text[ARIL__SHAPE_TEXT];
    return aril__fail(
        ARIL_ERR_FORMAT,
        "%s is not a valid .npy file: %llu bytes of data, %s than its shape %s of %s needs", name,
        (unsigned long long)there, fits ? "more" : "fewer",
        aril__shape_text(text, h.shape.ndim, h.shape.dim), aril_dtype_name(info->dtype));
}

static aril_tensor *elements(const aril__npy_info *info, const unsigned char *data)
{
    aril_shape stored = info->shape;
    if (info->fortran)
        for (int i = 0; i < stored.ndim; i++) stored.dim[i] = info->shape.dim[stored.ndim - 1 - i];
    aril_tensor *t = aril_empty(stored, info->dtype, aril_cpu());
    if (aril_tensor_status(t) != ARIL_OK || aril_numel(t) == 0) return t;
    size_t size = aril_dtype_size(info->dtype);
    unsigned char *to = aril__ptr(t);
    memcpy(to, data, size * (size_t)aril_numel(t));
    aril__to_host_order(to, size, aril_numel(t), info->big);
    if (info->dtype == ARIL_BOOL)
        for (int64_t i = 0; i < aril_numel(t); i++) to[i] = to[i] != 0;
    return t;
}

aril_tensor *aril__npy_decode(const char *name, const unsigned char *data, size_t size)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril__npy_info info;
    if (aril__npy_head_of(name, data, size, size, &info) != ARIL_OK)
        return aril_escape(aril__poison());
    aril_tensor *t = elements(&info, data + info.data);
    if (info.fortran && info.shape.ndim > 1) {
        aril_axes reversed = { .n = info.shape.ndim };
        for (int i = 0; i < reversed.n; i++) reversed.axis[i] = reversed.n - 1 - i;
        t = aril_contiguous(aril_permute(t, reversed));
    }
    return aril_escape(t);
}

aril_tensor *aril_npy_read(const char *path)
{
    aril__bytes b = { 0 };
    if (aril__read_file("NumPy", path, 0, &b) != ARIL_OK) return aril__poison();
    aril_tensor *t = aril__npy_decode(path, b.at, b.n);
    aril__bytes_free(&b);
    return t;
}

/* ---- writing ---- */

aril_status aril__npy_head(const char *name, const aril_tensor *t, aril__bytes *out)
{
    aril_status status = aril__check_value(name, t);
    if (status != ARIL_OK) return status;
    aril_dtype dtype = aril_dtype_of(t);
    int type = -1;
    for (int i = 0; i < TYPES; i++)
        if (types[i].dtype == dtype) type = i;
    if (type < 0)
        return aril__fail(ARIL_ERR_DTYPE,
                          "%s: NumPy has no dtype %s; cast to f32, or save as safetensors", name,
                          aril_dtype_name(dtype));
    const uint16_t one = 1;
    unsigned char low;
    memcpy(&low, &one, 1);
    size_t begin = out->n;
    aril__bytes_add(out, "\x93NUMPY\1\0\0\0", 10);
    aril__bytes_print(out, "{'descr': '%c%c%d', 'fortran_order': False, 'shape': (",
                      types[type].size == 1 ? '|'
                      : low                 ? '<'
                                            : '>',
                      types[type].letter, types[type].size);
    aril_shape s = aril_shape_of(t);
    for (int i = 0; i < s.ndim; i++)
        aril__bytes_print(out, "%s%lld%s", i ? ", " : "", (long long)s.dim[i],
                          s.ndim == 1 ? "," : "");
    aril__bytes_print(out, "), }");
    while ((out->n - begin + 1) % 64 && !out->failed) aril__bytes_add(out, " ", 1);
    aril__bytes_add(out, "\n", 1);
    if (out->failed) return aril__fail(ARIL_ERR_MEMORY, "out of memory writing %s", name);
    aril__put_le16(out->at + begin + 8, (uint16_t)(out->n - begin - 10));
    return ARIL_OK;
}

aril_status aril_npy_write(const char *path, aril_tensor *t)
{
    if (!path || !*path) return aril__fail(ARIL_ERR_ARG, "aril_npy_write: expected a file name");
    ARIL_SCOPE;
    aril__bytes head = { 0 };
    aril_status status = aril__npy_head(path, t, &head);
    const void *data = status == ARIL_OK ? aril_data(t) : NULL;
    if (status == ARIL_OK && !data && aril_numel(t) > 0) status = aril__latest_status();
    aril__file *f = status == ARIL_OK ? aril__file_begin(path) : NULL;
    if (f) {
        aril__file_write(f, head.at, head.n);
        aril__file_write(f, data, aril_dtype_size(aril_dtype_of(t)) * (size_t)aril_numel(t));
        status = aril__file_commit(f);
    } else if (status == ARIL_OK) {
        status = aril__latest_status();
    }
    aril__bytes_free(&head);
    return status;
}
