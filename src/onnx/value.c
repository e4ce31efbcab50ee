/* Memory of a run, and values from tensors in files. */
#include "core/dtype.h"
#include "formats/schemas.h"
#include "onnx/onnx.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

void *aril__onnx_alloc(onnx_arena *a, size_t n, size_t size)
{
    size_t bytes;
    onnx_chunk *chunk = NULL;
    bool fits = !__builtin_mul_overflow(n, size, &bytes) && bytes < SIZE_MAX / 2;
    if (fits && (!a->limit || bytes <= a->limit - a->used))
        chunk = aril__calloc(sizeof *chunk + bytes + 1);
    if (!chunk) {
        aril__fail(ARIL_ERR_MEMORY, "onnx: out of memory");
        return NULL;
    }
    a->used += a->limit ? bytes : 0;
    chunk->next = a->chunks;
    a->chunks = chunk;
    return chunk->at;
}

bool aril__onnx_keep(onnx_arena *a, aril_tensor *t)
{
    enum { HEADER = 256 }; /* bytes of a small tensor, which limits of tensor data do not count */
    if (a->limit && a->limit - a->used < HEADER) {
        aril__fail(ARIL_ERR_MEMORY, "onnx: out of memory: the run keeps %zu tensors", a->n_kept);
        return false;
    }
    a->used += a->limit ? HEADER : 0;
    if (a->n_kept == a->cap_kept) {
        size_t cap = 2 * a->cap_kept + 8;
        aril_tensor **grown = aril__realloc(a->kept, cap * sizeof *grown);
        if (!grown) {
            aril__fail(ARIL_ERR_MEMORY, "onnx: out of memory");
            return false;
        }
        a->kept = grown;
        a->cap_kept = cap;
    }
    a->kept[a->n_kept++] = aril_keep(t);
    return true;
}

onnx_mark aril__onnx_mark(const onnx_arena *a)
{
    return (onnx_mark){ a->chunks, a->n_kept, a->used };
}

void aril__onnx_return_to(onnx_arena *a, onnx_mark mark)
{
    while (a->n_kept > mark.n_kept) aril_release(a->kept[--a->n_kept]);
    for (onnx_chunk *next; a->chunks != mark.chunks; a->chunks = next) {
        next = a->chunks->next;
        free(a->chunks);
    }
    a->used = mark.used;
}

void aril__onnx_arena_free(onnx_arena *a)
{
    aril__onnx_return_to(a, (onnx_mark){ 0 });
    free(a->kept);
    *a = (onnx_arena){ 0 };
}

/* ---- dtypes ---- */

/* By ONNX's number: the dtype, and the field of typed data. */
static const struct {
    const char *name;
    int dtype; /* -1: none */
    const char *field;
} dtypes[] = {
    [0] = { "undefined", -1, NULL },
    [1] = { "float", ARIL_F32, "float_data" },
    [2] = { "uint8", ARIL_U8, "int32_data" },
    [3] = { "int8", ARIL_I8, "int32_data" },
    [4] = { "uint16", ARIL_U16, "int32_data" },
    [5] = { "int16", ARIL_I16, "int32_data" },
    [6] = { "int32", ARIL_I32, "int32_data" },
    [7] = { "int64", ARIL_I64, "int64_data" },
    [8] = { "string", -1, "string_data" },
    [9] = { "bool", ARIL_BOOL, "int32_data" },
    [10] = { "float16", ARIL_F16, "int32_data" },
    [11] = { "double", ARIL_F64, "double_data" },
    [12] = { "uint32", ARIL_U32, "uint64_data" },
    [13] = { "uint64", ARIL_U64, "uint64_data" },
    [14] = { "complex64", -1, "float_data" },
    [15] = { "complex128", -1, "double_data" },
    [16] = { "bfloat16", ARIL_BF16, "int32_data" },
    [17] = { "float8e4m3fn", ARIL_F8E4M3FN, "int32_data" },
    [18] = { "float8e4m3fnuz", ARIL_F8E4M3FNUZ, "int32_data" },
    [19] = { "float8e5m2", ARIL_F8E5M2, "int32_data" },
    [20] = { "float8e5m2fnuz", ARIL_F8E5M2FNUZ, "int32_data" },
    [21] = { "uint4", ARIL_U4, "int32_data" },
    [22] = { "int4", ARIL_I4, "int32_data" },
    [23] = { "float4e2m1", ARIL_F4E2M1, "int32_data" },
    [24] = { "float8e8m0", ARIL_F8E8M0, "int32_data" },
    [25] = { "uint2", ARIL_U2, "int32_data" },
    [26] = { "int2", ARIL_I2, "int32_data" },
};
enum { DTYPES = sizeof dtypes / sizeof *dtypes, STRING = 8 };

bool aril__onnx_dtype(int64_t number, aril_dtype *out)
{
    if (number < 0 || number >= DTYPES || dtypes[number].dtype < 0) return false;
    *out = (aril_dtype)dtypes[number].dtype;
    return true;
}

int aril__onnx_dtype_number(aril_dtype dtype)
{
    for (int i = 0; i < DTYPES; i++)
        if (dtypes[i].dtype == (int)dtype) return i;
    return 0;
}

const char *aril__onnx_dtype_name(int64_t number)
{
    return number < 0 || number >= DTYPES ? "an unknown type" : dtypes[number].name;
}

/* ---- tensors ---- */

const char *aril__onnx_tensor_name(const aril__message *tensor)
{
    if (tensor->type == &aril__onnx_SparseTensorProto) tensor = aril__message_sub(tensor, "values");
    const char *name = aril__message_text(tensor, "name");
    return *name ? name : "(unnamed)";
}

aril_status aril__onnx_malformed(const aril__message *tensor, const char *what)
{
    char place[64];
    return aril__fail(ARIL_ERR_FORMAT, "tensor %s at %s: %s", aril__onnx_tensor_name(tensor),
                      aril__message_place(tensor, place, sizeof place), what);
}

/* The sizes, and in *n the number of elements. */
static aril_status read_shape(const aril__message *m, aril_shape *shape, int64_t *n)
{
    size_t ndim = aril__message_count(m, "dims");
    bool empty = false;
    *n = 1;
    if (ndim > ARIL_MAX_DIMS)
        return aril__fail(ARIL_ERR_UNSUPPORTED,
                          "a tensor has %zu dimensions, at most %d can be used", ndim,
                          ARIL_MAX_DIMS);
    shape->ndim = (int)ndim;
    for (size_t i = 0; i < ndim; i++) {
        shape->dim[i] = aril__message_int_at(m, "dims", i);
        if (shape->dim[i] < 0) return aril__onnx_malformed(m, "a size is negative");
        if (shape->dim[i] == 0) /* the others are not too large either */
            empty = true;
        else if (__builtin_mul_overflow(*n, shape->dim[i], n) || *n > INT64_MAX / 16)
            return aril__onnx_malformed(m, "its sizes are too large");
    }
    if (empty) *n = 0;
    return ARIL_OK;
}

static aril_status read_text(onnx_arena *a, const aril__message *tensor, onnx_value *out)
{
    onnx_text *t = aril__onnx_alloc(a, 1, sizeof *t);
    if (!t) return ARIL_ERR_MEMORY;
    int64_t n;
    aril_status s = read_shape(tensor, &t->shape, &n);
    if (s < 0) return s;
    t->n = aril__message_count(tensor, "string_data");
    if ((int64_t)t->n != n)
        return aril__onnx_malformed(tensor, "the number of strings is not that of its sizes");
    if (!(t->at = aril__onnx_alloc(a, t->n, sizeof *t->at))) return ARIL_ERR_MEMORY;
    for (size_t i = 0; i < t->n; i++) {
        aril__slice from = aril__message_bytes_at(tensor, "string_data", i);
        char *copy = aril__onnx_alloc(a, from.n, 1);
        if (!copy) return ARIL_ERR_MEMORY;
        if (from.n) memcpy(copy, from.at, from.n);
        t->at[i] = (aril__slice){ copy, from.n };
    }
    *out = (onnx_value){ .kind = ONNX_TEXT, .known = true, .text = t };
    return ARIL_OK;
}

/* Typed data: each element in a number that may be wider. */
static aril_status read_typed(const aril__message *tensor, int64_t type, aril_shape shape,
                              int64_t n, onnx_value *out)
{
    aril_dtype dtype = (aril_dtype)dtypes[type].dtype;
    const char *field = dtypes[type].field;
    size_t bytes = aril__dtype_bytes(dtype, n), width = aril_dtype_size(dtype);
    size_t stored = width ? width : 1, count = bytes / stored;
    if (aril__message_count(tensor, field) != count)
        return aril__onnx_malformed(tensor, "the number of values is not that of its sizes");
    aril__proto_array from = aril__message_array(tensor, field);
    unsigned char *buf = aril__malloc(bytes + 1);
    if (!buf) return aril__fail(ARIL_ERR_MEMORY, "onnx: out of memory");
    for (size_t i = 0; i < count; i++) /* little-endian: the low bytes come first */
        memcpy(buf + i * stored, (const char *)from.at + i * from.width, stored);
    out->tensor = aril_from(buf, shape, dtype, aril_cpu());
    free(buf);
    return aril_tensor_status(out->tensor);
}

/* ---- all forms ---- */

/* External data by a file that is closed again. */
static aril_status read_once(const aril__message *tensor, aril_dtype dtype, aril_shape shape,
                             const char *folder, aril_tensor **out)
{
    onnx_files files = { .folder = folder };
    aril_status s = aril__onnx_external(&files, tensor, dtype, shape, out);
    if (s == ARIL_OK) s = aril__onnx_files_check(&files);
    aril__onnx_files_free(&files);
    return s;
}

/* With `files`, external data is read through them; else from the folder. */
static aril_status read_tensor(onnx_arena *a, const aril__message *tensor, const char *folder,
                               onnx_files *files, onnx_value *out)
{
    int64_t type = aril__message_int(tensor, "data_type"), n;
    aril_shape shape = { 0 };
    aril_dtype dtype;
    *out = (onnx_value){ 0 };
    if (type == STRING) return read_text(a, tensor, out);
    if (!aril__onnx_dtype(type, &dtype))
        return aril__fail(ARIL_ERR_UNSUPPORTED, "tensor %s: type %s is not supported",
                          aril__onnx_tensor_name(tensor), aril__onnx_dtype_name(type));
    aril_status s = read_shape(tensor, &shape, &n);
    if (s < 0) return s;
    *out = (onnx_value){ .kind = ONNX_TENSOR, .known = true };
    if (aril__message_int(tensor, "data_location") == 1)
        return files ? aril__onnx_external(files, tensor, dtype, shape, &out->tensor)
                     : read_once(tensor, dtype, shape, folder, &out->tensor);
    if (!aril__message_has(tensor, "raw_data")) return read_typed(tensor, type, shape, n, out);
    aril__slice raw = aril__message_bytes(tensor, "raw_data");
    if (raw.n != aril__dtype_bytes(dtype, n))
        return aril__onnx_malformed(tensor, "its data are not as long as its sizes say");
    out->tensor = aril_from(raw.n ? raw.at : "", shape, dtype, aril_cpu());
    return aril_tensor_status(out->tensor);
}

aril_status aril__onnx_tensor(onnx_arena *a, const aril__message *tensor, const char *folder,
                              onnx_value *out)
{
    return read_tensor(a, tensor, folder, NULL, out);
}

aril_status aril__onnx_initializer(onnx_arena *a, const aril__message *tensor, onnx_files *files,
                                   onnx_value *out)
{
    return read_tensor(a, tensor, NULL, files, out);
}

/* ---- sparse tensors ---- */

/* The positions of n values in the dense tensor: [n], or coordinates [n,dimensions]. */
static aril_status read_positions(const aril__message *sparse, aril_tensor *indices,
                                  aril_shape shape, int64_t n, int64_t elements, int64_t *to)
{
    int64_t columns = aril_ndim(indices) == 2 ? shape.ndim : 1, size = aril_numel(indices);
    bool fits = aril_ndim(indices) == 1 || aril_ndim(indices) == 2;
    if (aril_dtype_of(indices) != ARIL_I64)
        return aril__onnx_malformed(sparse, "its indices are not of type int64");
    if (!fits || aril_size(indices, 0) != n || size != n * columns)
        return aril__onnx_malformed(sparse, "its indices do not fit its values and sizes");
    const int64_t *at = aril_data(indices);
    if (size && !at) return aril__latest_status();
    for (int64_t i = 0; i < n; i++) {
        to[i] = columns == 1 && aril_ndim(indices) == 1 ? at[i] : 0;
        for (int64_t d = 0; d < columns && aril_ndim(indices) == 2; d++) {
            int64_t k = at[i * columns + d];
            if (k < 0 || k >= shape.dim[d])
                return aril__onnx_malformed(sparse, "an index is outside of its sizes");
            to[i] = to[i] * shape.dim[d] + k;
        }
        if (to[i] < 0 || to[i] >= elements)
            return aril__onnx_malformed(sparse, "an index is outside of its sizes");
        if (i && to[i] <= to[i - 1])
            return aril__onnx_malformed(sparse, "its indices are not in ascending order");
    }
    return ARIL_OK;
}

/* A few bytes of a file must not take all memory: dense tensors may have FREELY bytes, or EXPANSION
 * times those of the file. */
enum { FREELY = 256 << 20, EXPANSION = 4096 };

aril_status aril__onnx_sparse(onnx_arena *a, const aril__message *sparse, const char *folder,
                              onnx_value *out)
{
    onnx_value values, indices;
    aril_shape shape = { 0 };
    int64_t elements, *at = NULL;
    aril_status s = aril__onnx_tensor(a, aril__message_sub(sparse, "values"), folder, &values);
    if (s == ARIL_OK)
        s = aril__onnx_tensor(a, aril__message_sub(sparse, "indices"), folder, &indices);
    if (s == ARIL_OK) s = read_shape(sparse, &shape, &elements);
    if (s < 0) return s;
    if (values.kind != ONNX_TENSOR || indices.kind != ONNX_TENSOR || aril_ndim(values.tensor) != 1)
        return aril__onnx_malformed(sparse, "a sparse tensor needs numbers in one dimension");
    int64_t n = aril_size(values.tensor, 0);
    size_t stored =
               (size_t)n * (sizeof(int64_t) + aril__dtype_bytes(aril_dtype_of(values.tensor), 1)),
           bytes = aril__dtype_bytes(aril_dtype_of(values.tensor), elements);
    if (bytes > FREELY && bytes / EXPANSION > stored) {
        char why[160];
        snprintf(why, sizeof why,
                 "it would take %zu bytes for %" PRId64
                 " values, more than %d times what they take "
                 "in the file",
                 bytes, n, EXPANSION);
        return aril__onnx_malformed(sparse, why);
    }
    if (!(at = aril__malloc((size_t)(n + 1) * sizeof *at)))
        return aril__fail(ARIL_ERR_MEMORY, "onnx: out of memory");
    s = read_positions(sparse, indices.tensor, shape, n, elements, at);
    aril_tensor *flat = s == ARIL_OK ? aril_from(at, ARIL_SHAPE(n), ARIL_I64, aril_cpu()) : NULL;
    free(at);
    if (s < 0) return s;
    aril_tensor *dense = aril_zeros(ARIL_SHAPE(elements), aril_dtype_of(values.tensor), aril_cpu());
    if (n) dense = aril_index_copy(dense, flat, values.tensor, 0);
    dense = aril_reshape(dense, shape);
    *out = (onnx_value){ .kind = ONNX_TENSOR, .known = true, .tensor = dense };
    return aril_tensor_status(dense);
}

/* ---- test data ---- */

static aril_status read_sequence(onnx_arena *a, const aril__message *m, onnx_value *out)
{
    static const char *const fields[] = { "tensor_values", "sequence_values", "optional_values" };
    onnx_sequence *q = aril__onnx_alloc(a, 1, sizeof *q);
    if (!q) return ARIL_ERR_MEMORY;
    for (int f = 0; f < 3; f++) {
        size_t n = aril__message_count(m, fields[f]);
        if (!n) continue;
        if (!(q->at = aril__onnx_alloc(a, n, sizeof *q->at))) return ARIL_ERR_MEMORY;
        for (q->n = 0; q->n < n; q->n++) {
            aril_status s =
                aril__onnx_value_of(a, aril__message_sub_at(m, fields[f], q->n), &q->at[q->n]);
            if (s < 0) return s;
        }
        break;
    }
    *out = (onnx_value){ .kind = ONNX_SEQUENCE, .known = true, .sequence = q };
    return ARIL_OK;
}

aril_status aril__onnx_value_of(onnx_arena *a, const aril__message *m, onnx_value *out)
{
    if (m->type == &aril__onnx_SequenceProto) return read_sequence(a, m, out);
    if (m->type == &aril__onnx_OptionalProto) {
        static const char *const fields[] = { "tensor_value", "sequence_value", "optional_value" };
        for (int f = 0; f < 3; f++)
            if (aril__message_has(m, fields[f]))
                return aril__onnx_value_of(a, aril__message_sub(m, fields[f]), out);
        *out = (onnx_value){ .kind = ONNX_OPTIONAL, .known = true };
        return ARIL_OK;
    }
    aril_status s = aril__onnx_tensor(a, m, NULL, out);
    if (s == ARIL_OK && out->kind == ONNX_TENSOR && !aril__onnx_keep(a, out->tensor))
        s = ARIL_ERR_MEMORY;
    return s;
}
