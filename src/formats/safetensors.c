/* Safetensors: 8 bytes of length, a JSON header of that length, then the tensors' bytes without a
 * gap.
 *
 *     {"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}} */
#include "formats/safetensors.h"

#include "aril/device.h"
#include "aril/dtype.h"
#include "aril/create.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/shape.h"
#include "core/tensor.h"
#include "formats/atomic_file.h"
#include "formats/bytes.h"
#include "formats/json.h"
#include "formats/source.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char metadata_key[] = "__metadata__";
enum { LONGEST_HEADER = 100000000 }; /* the limit of the format's own library */

/* The format's dtype names; NULL if it has none. */
static const char *const dtype_names[ARIL__DTYPE_COUNT] = {
    [ARIL_BOOL] = "BOOL",      [ARIL_U8] = "U8",
    [ARIL_U16] = "U16",        [ARIL_U32] = "U32",
    [ARIL_U64] = "U64",        [ARIL_I8] = "I8",
    [ARIL_I16] = "I16",        [ARIL_I32] = "I32",
    [ARIL_I64] = "I64",        [ARIL_F16] = "F16",
    [ARIL_BF16] = "BF16",      [ARIL_F32] = "F32",
    [ARIL_F64] = "F64",        [ARIL_F8E4M3FN] = "F8_E4M3",
    [ARIL_F8E5M2] = "F8_E5M2", [ARIL_F8E4M3FNUZ] = "F8_E4M3FNUZ",
    [ARIL_F8E8M0] = "F8_E8M0", [ARIL_F8E5M2FNUZ] = "F8_E5M2FNUZ",
    [ARIL_F4E2M1] = "F4",
};

/* ---- writing ---- */

/* Calls fn for the tensors in file order: wider elements first, so that each tensor is aligned to
 * its element size. */
static bool each_in_file(const aril_named *t, bool (*fn)(int i, void *ctx), void *ctx)
{
    static const int widths[] = { 64, 32, 16, 8, 4 };
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
        for (int i = 0; i < t->n; i++)
            if (aril_dtype_bits(aril_dtype_of(t->at[i])) == widths[w] && !fn(i, ctx)) return false;
    return true;
}

struct save {
    const aril_named *t;
    uint64_t *begin; /* offset of the i-th tensor, and the end of the last */
    uint64_t end;
    aril__file *file;
};

static size_t tensor_bytes(const aril_tensor *t)
{
    return aril__dtype_bytes(aril_dtype_of(t), aril_numel(t));
}

static bool assign_offset(int i, void *ctx)
{
    struct save *s = ctx;
    s->begin[i] = s->end;
    s->end += tensor_bytes(s->t->at[i]);
    return true;
}

static bool write_tensor(int i, void *ctx)
{
    struct save *s = ctx;
    ARIL_SCOPE;
    const void *data = aril_data(s->t->at[i]);
    if (!data && aril_numel(s->t->at[i]) > 0) return false;
    return aril__file_write(s->file, data, tensor_bytes(s->t->at[i])) == ARIL_OK;
}

static const char *name_of(const aril_named *t, int i, char number[16])
{
    if (t->name) return t->name[i];
    snprintf(number, 16, "%d", i);
    return number;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A string that occurs twice, NULL if all are unique; sets *failed when out of memory. */
static const char *twice(int n, const char *const *text, bool *failed)
{
    *failed = false;
    if (n < 2 || !text) return NULL;
    const char **sorted = aril__malloc((size_t)n * sizeof *sorted);
    if (!sorted) {
        *failed = true;
        return NULL;
    }
    memcpy(sorted, text, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_text);
    const char *found = NULL;
    for (int i = 1; i < n && !found; i++)
        if (strcmp(sorted[i - 1], sorted[i]) == 0) found = sorted[i];
    free(sorted);
    return found;
}

static bool is_text(const char *text)
{
    if (!text) return false;
    size_t n = strlen(text);
    for (size_t i = 0; i < n;) {
        int length = aril__utf8_length((const unsigned char *)text + i, n - i);
        if (length == 0) return false;
        i += (size_t)length;
    }
    return true;
}

static aril_status check_tensors(const char *path, const aril_named *t)
{
    char number[16];
    for (int i = 0; i < t->n; i++) {
        const char *name = name_of(t, i, number);
        if (!is_text(name))
            return aril__fail(ARIL_ERR_ARG, "%s: the name of tensor %d is not UTF-8 text", path, i);
        if (strcmp(name, metadata_key) == 0)
            return aril__fail(ARIL_ERR_ARG, "%s: a tensor cannot be named %s", path, name);
        aril_status status = aril__check_value(name, t->at[i]);
        if (status != ARIL_OK) return status;
        aril_dtype dtype = aril_dtype_of(t->at[i]);
        if (!dtype_names[dtype])
            return aril__fail(ARIL_ERR_DTYPE,
                              "%s: safetensors has no dtype %s, which %s has; cast it to i8 or u8",
                              path, aril_dtype_name(dtype), name);
        if (aril__dtypes[dtype].bits < 8 && aril_numel(t->at[i]) % 2)
            return aril__fail(ARIL_ERR_SHAPE,
                              "%s: %s has %lld elements of 4 bits; expected an even number", path,
                              name, (long long)aril_numel(t->at[i]));
    }
    bool failed;
    const char *name = twice(t->n, t->name, &failed);
    if (failed) return aril__fail(ARIL_ERR_MEMORY, "out of memory saving %s", path);
    if (name) return aril__fail(ARIL_ERR_ARG, "%s: two tensors are named %s", path, name);
    return ARIL_OK;
}

static aril_status check_metadata(const char *path, const aril_metadata *m)
{
    if (m->n < 0 || (m->n > 0 && (!m->key || !m->value)))
        return aril__fail(ARIL_ERR_ARG, "%s: metadata of %d pairs has NULL for the %s", path, m->n,
                          m->key ? "values" : "keys");
    for (int i = 0; i < m->n; i++)
        if (!is_text(m->key[i]) || !is_text(m->value[i]))
            return aril__fail(ARIL_ERR_ARG, "%s: pair %d of the metadata is not UTF-8 text", path,
                              i);
    bool failed;
    const char *key = twice(m->n, m->key, &failed);
    if (failed) return aril__fail(ARIL_ERR_MEMORY, "out of memory saving %s", path);
    if (key) return aril__fail(ARIL_ERR_ARG, "%s: two metadata keys are %s", path, key);
    return ARIL_OK;
}

/* Writes the header with its length in front, padded so that the data begins at a multiple of 8. */
static void write_header(aril__bytes *b, const struct save *s, const aril_metadata *m)
{
    aril__bytes_add(b, "\0\0\0\0\0\0\0\0{", 9);
    const char *comma = "";
    if (m && m->n > 0) {
        aril__bytes_print(b, "\"%s\":{", metadata_key);
        for (int i = 0; i < m->n; i++) {
            if (i > 0) aril__bytes_add(b, ",", 1);
            aril__bytes_json(b, m->key[i]);
            aril__bytes_add(b, ":", 1);
            aril__bytes_json(b, m->value[i]);
        }
        aril__bytes_add(b, "}", 1);
        comma = ",";
    }
    for (int i = 0; i < s->t->n; i++, comma = ",") {
        char number[16];
        const aril_tensor *t = s->t->at[i];
        aril_shape shape = aril_shape_of(t);
        aril__bytes_print(b, "%s", comma);
        aril__bytes_json(b, name_of(s->t, i, number));
        aril__bytes_print(b, ":{\"dtype\":\"%s\",\"shape\":[", dtype_names[aril_dtype_of(t)]);
        for (int d = 0; d < shape.ndim; d++)
            aril__bytes_print(b, "%s%lld", d ? "," : "", (long long)shape.dim[d]);
        aril__bytes_print(b, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)s->begin[i],
                          (unsigned long long)(s->begin[i] + tensor_bytes(t)));
    }
    aril__bytes_add(b, "}", 1);
    while (b->n % 8 && !b->failed) aril__bytes_add(b, " ", 1);
    if (!b->failed) aril__put_le64(b->at, b->n - 8);
}

/* Writes to a file that is open, or creates a part of the set that `index` completes, or, if both
 * are NULL, a file. */
static aril_status save(const char *path, aril__file *open, aril__file *index,
                        const aril_named *tensors, const aril_metadata *metadata)
{
    aril_status status = check_tensors(path, tensors);
    if (status == ARIL_OK && metadata) status = check_metadata(path, metadata);
    if (status != ARIL_OK) return status;

    struct save s = { .t = tensors };
    aril__bytes header = { 0 };
    s.begin = aril__malloc(((size_t)tensors->n + 1) * sizeof *s.begin);
    if (s.begin) {
        each_in_file(tensors, assign_offset, &s);
        write_header(&header, &s, metadata);
    }
    if (!s.begin || header.failed) {
        status = aril__fail(ARIL_ERR_MEMORY, "out of memory saving %s", path);
    } else if (header.n - 8 > LONGEST_HEADER) {
        status =
            aril__fail(ARIL_ERR_ARG, "%s: names and metadata take %zu bytes; the format allows %d",
                       path, header.n - 8, LONGEST_HEADER);
    } else if (!(s.file = open    ? open
                          : index ? aril__file_begin_part(index, path)
                                  : aril__file_begin(path))) {
        status = aril__latest_status();
    } else {
        aril__file_write(s.file, header.at, header.n);
        if (!each_in_file(tensors, write_tensor, &s)) status = aril__latest_status();
        if (!open && status == ARIL_OK)
            status = aril__file_commit(s.file);
        else if (!open)
            aril__file_abandon(s.file);
    }
    aril__bytes_free(&header);
    free(s.begin);
    return status;
}

aril_status aril_safetensors_save(const char *path, const aril_named *tensors,
                                  const aril_metadata *metadata)
{
    if (!path || !tensors || tensors->n < 0)
        return aril__fail(ARIL_ERR_ARG, "aril_safetensors_save: %s",
                          path ? "no tensors" : "no file name");
    return save(path, NULL, NULL, tensors, metadata);
}

aril_status aril__safetensors_put(const char *path, const aril_named *tensors, aril__file *to)
{
    return save(path, to, NULL, tensors, NULL);
}

aril_status aril__safetensors_save_part(struct aril__file *index, const char *path,
                                        const aril_named *tensors, const aril_metadata *metadata)
{
    return save(path, NULL, index, tensors, metadata);
}

/* ---- reading ---- */

struct entry {
    char *name;
    aril_dtype dtype;
    aril_shape shape;
    uint64_t begin, end; /* offsets from the end of the header */
};

struct aril_safetensors {
    aril__source source;
    uint64_t data; /* offset of the data after the header */
    int n, capacity, n_meta, meta_capacity;
    struct entry *entry;
    int *sorted; /* entries sorted by name */
    char **key, **value;
    aril_named all; /* cached result of aril_safetensors_all; `at` is NULL until then */
};

static aril_status malformed(const aril_safetensors *f, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static aril_status malformed(const aril_safetensors *f, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return aril__fail(ARIL_ERR_FORMAT, "%s is not a valid safetensors file: %s", f->source.name,
                      text);
}

static aril_status no_memory(const aril_safetensors *f)
{
    return aril__fail(ARIL_ERR_MEMORY, "out of memory reading %s", f->source.name);
}

/* Grows an array of n elements for one more, if needed. */
static bool grow(void *at, int n, int *capacity, size_t size)
{
    if (n < *capacity) return true;
    int more = *capacity ? (*capacity > INT32_MAX / 2 ? INT32_MAX : *capacity * 2) : 16;
    if (n >= more) return false;
    void *p = aril__realloc(*(void **)at, (size_t)more * size);
    if (!p) return false;
    *(void **)at = p;
    *capacity = more;
    return true;
}

static bool read_metadata(aril_safetensors *f, aril__json *j)
{
    int capacity = f->meta_capacity;
    for (bool more = aril__json_enter(j, '{'); more; more = aril__json_more(j, '}')) {
        char *key = aril__json_key(j), *value = key ? aril__json_string(j) : NULL;
        int value_capacity = f->meta_capacity;
        if (!value || !grow(&f->key, f->n_meta, &capacity, sizeof *f->key) ||
            !grow(&f->value, f->n_meta, &value_capacity, sizeof *f->value)) {
            if (value) j->memory = !aril__json_wrong(j, "memory is out");
            free(key);
            free(value);
            return false;
        }
        f->meta_capacity = capacity;
        f->key[f->n_meta] = key;
        f->value[f->n_meta++] = value;
    }
    return !j->wrong;
}

static bool read_dtype(aril__json *j, aril_dtype *dtype, char other[24])
{
    char *name = aril__json_string(j);
    if (!name) return false;
    int found = -1;
    for (int i = 0; i < ARIL__DTYPE_COUNT; i++)
        if (dtype_names[i] && strcmp(dtype_names[i], name) == 0) found = i;
    *dtype = found < 0 ? ARIL_F32 : (aril_dtype)found;
    if (found < 0) snprintf(other, 24, "%s", *name ? name : "\"\"");
    free(name);
    return true;
}

/* Reads {"dtype": ..., "shape": ..., "data_offsets": ...}, in any order, each once. */
static bool read_entry(struct entry *e, aril__json *j, char other[24])
{
    int seen[3] = { 0 };
    for (bool more = aril__json_enter(j, '{'); more; more = aril__json_more(j, '}')) {
        char *key = aril__json_key(j);
        if (!key) return false;
        int which = strcmp(key, "dtype") == 0          ? 0
                    : strcmp(key, "shape") == 0        ? 1
                    : strcmp(key, "data_offsets") == 0 ? 2
                                                       : -1;
        free(key);
        if (which < 0)
            return aril__json_wrong(j, "a tensor has dtype, shape and data_offsets, nothing else");
        if (seen[which]++) return aril__json_wrong(j, "a key stands twice in one tensor");
        if (which == 0) {
            if (!read_dtype(j, &e->dtype, other)) return false;
            continue;
        }
        uint64_t number[ARIL_MAX_DIMS];
        int n = 0, max = which == 1 ? ARIL_MAX_DIMS : 2;
        for (bool next = aril__json_enter(j, '['); next; next = aril__json_more(j, ']')) {
            if (n == max)
                return aril__json_wrong(j, which == 1 ? "a tensor of more than 8 dimensions"
                                                      : "data_offsets are two numbers");
            if (!aril__json_unsigned(j, &number[n++])) return false;
        }
        if (j->wrong) return false;
        if (which == 2) {
            if (n != 2) return aril__json_wrong(j, "data_offsets are two numbers");
            e->begin = number[0];
            e->end = number[1];
            continue;
        }
        e->shape.ndim = n;
        for (int i = 0; i < n; i++) {
            if (number[i] > INT64_MAX) return aril__json_wrong(j, "a size is too large");
            e->shape.dim[i] = (int64_t)number[i];
        }
    }
    if (j->wrong) return false;
    return (seen[0] && seen[1] && seen[2]) ||
           aril__json_wrong(j, "a tensor lacks dtype, shape or data_offsets");
}

static aril_status read_header(aril_safetensors *f, const char *text, size_t size)
{
    aril__json j = { .text = text, .size = size };
    bool metadata = false;
    for (bool more = aril__json_enter(&j, '{'); more; more = aril__json_more(&j, '}')) {
        char *name = aril__json_key(&j), other[24] = "";
        if (!name) break;
        if (strcmp(name, metadata_key) == 0) {
            free(name);
            if (metadata) return malformed(f, "%s stands twice in its header", metadata_key);
            metadata = true;
            if (!read_metadata(f, &j)) break;
            continue;
        }
        struct entry e = { .name = name };
        if (!read_entry(&e, &j, other) || !grow(&f->entry, f->n, &f->capacity, sizeof *f->entry)) {
            if (!j.wrong) j.memory = !aril__json_wrong(&j, "memory is out");
            free(name);
            break;
        }
        f->entry[f->n++] = e;
        if (*other)
            return aril__fail(ARIL_ERR_UNSUPPORTED, "%s: tensor %s has the unknown dtype %s",
                              f->source.name, name, other);
    }
    if (aril__json_end(&j)) return ARIL_OK;
    if (j.memory) return no_memory(f);
    return malformed(f, "its header is wrong at byte %zu: %s", j.at + 8, j.wrong);
}

static int by_name(const void *a, const void *b, void *ctx)
{
    const aril_safetensors *f = ctx;
    return strcmp(f->entry[*(const int *)a].name, f->entry[*(const int *)b].name);
}

static int by_offset(const void *a, const void *b, void *ctx)
{
    const aril_safetensors *f = ctx;
    const struct entry *x = &f->entry[*(const int *)a], *y = &f->entry[*(const int *)b];
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* Checks that each tensor has the size of its shape, and that together they fill `size` bytes
 * without gaps or overlaps. */
static aril_status check_offsets(aril_safetensors *f, uint64_t size)
{
    for (int i = 0; i < f->n; i++) {
        const struct entry *e = &f->entry[i];
        uint64_t bits = (uint64_t)aril_dtype_bits(e->dtype);
        bool empty = false, huge = false;
        for (int d = 0; d < e->shape.ndim; d++) empty |= e->shape.dim[d] == 0;
        for (int d = 0; d < e->shape.ndim && !empty; d++)
            huge |= __builtin_mul_overflow(bits, (uint64_t)e->shape.dim[d], &bits);
        if (empty) bits = 0;
        char shape[ARIL__SHAPE_TEXT];
        if (huge || e->end < e->begin || bits % 8 || bits / 8 != e->end - e->begin)
            return malformed(f, "tensor %s of shape %s and dtype %s has bytes %llu to %llu",
                             e->name, aril__shape_text(shape, e->shape.ndim, e->shape.dim),
                             dtype_names[e->dtype], (unsigned long long)e->begin,
                             (unsigned long long)e->end);
    }
    for (int i = 0; i < f->n; i++) f->sorted[i] = i;
    qsort_r(f->sorted, (size_t)f->n, sizeof *f->sorted, by_offset, f);
    uint64_t at = 0;
    for (int i = 0; i < f->n; i++) {
        const struct entry *e = &f->entry[f->sorted[i]];
        if (e->begin != at)
            return malformed(f, "tensor %s begins at byte %llu of the data, %s %llu", e->name,
                             (unsigned long long)e->begin,
                             e->begin < at ? "inside another, which ends at" : "after a gap from",
                             (unsigned long long)at);
        at = e->end;
    }
    if (at > size)
        return malformed(f, "it is truncated: its tensors have %llu bytes, of which %llu are there",
                         (unsigned long long)at, (unsigned long long)size);
    if (at < size)
        return malformed(f, "%llu bytes follow its last tensor", (unsigned long long)(size - at));
    return ARIL_OK;
}

static aril_status check_names(aril_safetensors *f)
{
    for (int i = 0; i < f->n; i++) f->sorted[i] = i;
    qsort_r(f->sorted, (size_t)f->n, sizeof *f->sorted, by_name, f);
    for (int i = 1; i < f->n; i++)
        if (by_name(&f->sorted[i - 1], &f->sorted[i], f) == 0)
            return malformed(f, "two tensors are called %s", f->entry[f->sorted[i]].name);
    bool failed;
    const char *key = twice(f->n_meta, (const char *const *)f->key, &failed);
    if (failed) return no_memory(f);
    return key ? malformed(f, "its metadata has two pairs called %s", key) : ARIL_OK;
}

/* `first` holds up to the first 9 bytes; `size` is that of the whole file. */
static aril_status header_length(aril_safetensors *f, const unsigned char *first, uint64_t size,
                                 uint64_t *length)
{
    if (size < 8)
        return malformed(f, "it has %llu bytes, too few for one", (unsigned long long)size);
    *length = aril__le64(first);
    /* The length may look like another format's magic: 128 begins like a pickle. If a header
     * follows, the file is safetensors. */
    bool foreign = first[8] != '{';
    if (foreign && first[0] == 'P' && first[1] == 'K')
        return malformed(f,
                         "it is a zip archive, as torch.save writes; aril_weights_open reads it");
    if (foreign && first[0] == 0x80 && first[1] <= 5)
        return malformed(f, "it is a Python pickle; aril_weights_open reads those of PyTorch");
    if (*length > LONGEST_HEADER)
        return malformed(
            f,
            "its first 8 bytes say that %llu bytes of header follow, more than the format allows",
            (unsigned long long)*length);
    if (*length > size - 8)
        return malformed(f, "its header has %llu bytes, of which %llu are there",
                         (unsigned long long)*length, (unsigned long long)(size - 8));
    return ARIL_OK;
}

static aril_status read_all(aril_safetensors *f, const char *header, size_t length, uint64_t size)
{
    aril_status status = read_header(f, header, length);
    if (status != ARIL_OK) return status;
    f->sorted = aril__malloc(((size_t)f->n + 1) * sizeof *f->sorted);
    if (!f->sorted) return no_memory(f);
    f->data = 8 + length;
    status = check_offsets(f, size - f->data);
    return status == ARIL_OK ? check_names(f) : status;
}

static aril_safetensors *open_source(aril_status status, aril__source source)
{
    if (status != ARIL_OK) return NULL;
    aril_safetensors *f = aril__calloc(sizeof *f);
    if (!f) {
        aril__fail(ARIL_ERR_MEMORY, "out of memory reading %s", source.name);
        aril__source_close(&source);
        return NULL;
    }
    f->source = source;
    unsigned char first[9] = { 0 };
    uint64_t length = 0;
    status = aril__source_read(&source, 0, first, source.size < 9 ? (size_t)source.size : 9);
    if (status == ARIL_OK) status = header_length(f, first, source.size, &length);
    char *header = status == ARIL_OK ? aril__malloc((size_t)length + 1) : NULL;
    if (status == ARIL_OK)
        status = header ? aril__source_read(&source, 8, header, (size_t)length) : no_memory(f);
    if (status == ARIL_OK) status = read_all(f, header, (size_t)length, source.size);
    free(header);
    if (status == ARIL_OK) return f;
    aril_safetensors_close(f);
    return NULL;
}

aril_safetensors *aril_safetensors_open(const char *path)
{
    aril__source s;
    aril_status status = aril__source_open(&s, "safetensors", path);
    return open_source(status, s);
}

aril_safetensors *aril_safetensors_open_memory(const void *data, size_t size)
{
    if (!data) {
        aril__fail(ARIL_ERR_ARG, "aril_safetensors_open_memory: no data");
        return NULL;
    }
    aril__source s;
    aril_status status = aril__source_memory(&s, data, size);
    return open_source(status, s);
}

aril_safetensors *aril__safetensors_open_named(const char *name, const void *data, size_t size)
{
    aril__source s;
    aril_status status = aril__source_named(&s, name, data, size);
    return open_source(status, s);
}

void aril_safetensors_close(aril_safetensors *f)
{
    if (!f) return;
    aril__source_close(&f->source);
    for (int i = 0; i < f->n; i++) free(f->entry[i].name);
    for (int i = 0; i < f->n_meta; i++) {
        free(f->key[i]);
        free(f->value[i]);
    }
    for (int i = 0; f->all.at && i < f->n; i++) aril_release(f->all.at[i]);
    free((void *)(uintptr_t)f->all.at);
    free((void *)(uintptr_t)f->all.name);
    free(f->entry);
    free(f->sorted);
    free(f->key);
    free(f->value);
    free(f);
}

static const struct entry *entry_at(const aril_safetensors *f, int i)
{
    return f && i >= 0 && i < f->n ? &f->entry[i] : NULL;
}

int aril_safetensors_count(const aril_safetensors *f)
{
    return f ? f->n : 0;
}

const char *aril_safetensors_name(const aril_safetensors *f, int i)
{
    const struct entry *e = entry_at(f, i);
    return e ? e->name : NULL;
}

aril_dtype aril_safetensors_dtype(const aril_safetensors *f, int i)
{
    const struct entry *e = entry_at(f, i);
    return e ? e->dtype : ARIL_F32;
}

aril_shape aril_safetensors_shape(const aril_safetensors *f, int i)
{
    const struct entry *e = entry_at(f, i);
    return e ? e->shape : (aril_shape){ 0 };
}

uint64_t aril__safetensors_at(const aril_safetensors *f, int i)
{
    return f->data + f->entry[i].begin;
}

int aril_safetensors_find(const aril_safetensors *f, const char *name)
{
    if (!f || !name) return -1;
    int low = 0, high = f->n;
    while (low < high) {
        int middle = low + (high - low) / 2, i = f->sorted[middle];
        int order = strcmp(name, f->entry[i].name);
        if (order == 0) return i;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return -1;
}

aril_tensor *aril_safetensors_tensor(aril_safetensors *f, int i)
{
    const struct entry *e = entry_at(f, i);
    if (!e) {
        aril__fail(f ? ARIL_ERR_INDEX : ARIL_ERR_ARG, f ? "%s has no tensor %d" : "%s: no file%.0d",
                   f ? f->source.name : "aril_safetensors_tensor", i);
        return aril__poison();
    }
    aril_tensor *t = aril_empty(e->shape, e->dtype, aril_cpu());
    if (aril_tensor_status(t) != ARIL_OK || e->begin == e->end) return t;
    size_t size = (size_t)(e->end - e->begin);
    if (aril__source_read(&f->source, f->data + e->begin, aril__ptr(t), size) != ARIL_OK) {
        aril_drop(t);
        return aril__poison();
    }
    if (e->dtype == ARIL_BOOL) { /* C cannot read a bool other than 0 and 1 */
        unsigned char *b = aril__ptr(t);
        for (size_t k = 0; k < size; k++) b[k] = b[k] != 0;
    }
    return t;
}

const aril_named *aril_safetensors_all(aril_safetensors *f)
{
    if (!f) {
        aril__fail(ARIL_ERR_ARG, "aril_safetensors_all: no file");
        return NULL;
    }
    if (f->all.at) return &f->all;
    aril_tensor **at = aril__calloc(((size_t)f->n + 1) * sizeof *at);
    const char **name = aril__malloc(((size_t)f->n + 1) * sizeof *name);
    int n = 0;
    bool good = at && name;
    if (!good) no_memory(f);
    for (; good && n < f->n; n++) {
        ARIL_SCOPE;
        aril_tensor *t = aril_safetensors_tensor(f, n);
        good = aril_tensor_status(t) == ARIL_OK;
        if (!good) break;
        at[n] = aril_keep(t);
        name[n] = f->entry[n].name;
    }
    if (good) {
        f->all = (aril_named){ f->n, at, name };
        return &f->all;
    }
    while (n-- > 0) aril_release(at[n]);
    free(at);
    free(name);
    return NULL;
}

aril_metadata aril_safetensors_metadata(const aril_safetensors *f)
{
    if (!f) return (aril_metadata){ 0 };
    return (aril_metadata){ f->n_meta, (const char *const *)f->key, (const char *const *)f->value };
}

const char *aril_safetensors_get(const aril_safetensors *f, const char *key)
{
    for (int i = 0; f && key && i < f->n_meta; i++)
        if (strcmp(f->key[i], key) == 0) return f->value[i];
    return NULL;
}
