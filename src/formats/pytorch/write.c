/* Writing checkpoints: zip archives as torch.save writes them, of a dict of tensors. */
#include "aril/create.h"
#include "aril/device.h"
#include "aril/dtype.h"
#include "aril/scope.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "formats/pytorch/checkpoint.h"

#include <stdlib.h>
#include <string.h>

/* ---- element types ---- */

/* By storage class, or, for those that came later, by dtype over untyped bytes. */
static const struct {
    const char *storage, *dtype;
} types[ARIL__DTYPE_COUNT] = {
    [ARIL_BOOL] = { "BoolStorage", NULL },
    [ARIL_U8] = { "ByteStorage", NULL },
    [ARIL_I8] = { "CharStorage", NULL },
    [ARIL_I16] = { "ShortStorage", NULL },
    [ARIL_I32] = { "IntStorage", NULL },
    [ARIL_I64] = { "LongStorage", NULL },
    [ARIL_F16] = { "HalfStorage", NULL },
    [ARIL_BF16] = { "BFloat16Storage", NULL },
    [ARIL_F32] = { "FloatStorage", NULL },
    [ARIL_F64] = { "DoubleStorage", NULL },
    [ARIL_U16] = { NULL, "uint16" },
    [ARIL_U32] = { NULL, "uint32" },
    [ARIL_U64] = { NULL, "uint64" },
    [ARIL_F8E4M3FN] = { NULL, "float8_e4m3fn" },
    [ARIL_F8E4M3FNUZ] = { NULL, "float8_e4m3fnuz" },
    [ARIL_F8E5M2] = { NULL, "float8_e5m2" },
    [ARIL_F8E5M2FNUZ] = { NULL, "float8_e5m2fnuz" },
    [ARIL_F8E8M0] = { NULL, "float8_e8m0fnu" },
};

static aril_status check_tensors(const char *path, const aril_named *t)
{
    for (int i = 0; i < t->n; i++) {
        aril_dtype d = aril_dtype_of(t->at[i]);
        if (!*t->name[i])
            return aril__fail(ARIL_ERR_ARG, "%s: tensor %d has an empty name", path, i);
        if (!types[d].storage && !types[d].dtype)
            return aril__fail(ARIL_ERR_DTYPE,
                              "%s: PyTorch has no dtype %s, which %s has; cast it to i8 or u8",
                              path, aril_dtype_name(d), t->name[i]);
    }
    return ARIL_OK;
}

/* ---- storages ---- */

/* One tensor, and the storage that it is written in. */
typedef struct saved {
    const aril_tensor *t;
    int i;              /* index in the list */
    int storage;        /* number in the file */
    bool leads;         /* it is the first of its storage */
    bool shared;        /* the storage has several tensors: its memory is written as it lies */
    int64_t begin, end; /* elements of t's storage that the tensors of it use */
} saved;

/* The last element of a tensor, plus 1, counted from the first. */
static int64_t reach(const aril_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++) {
        if (t->dim[i] == 0) return 0;
        n += (t->dim[i] - 1) * t->stride[i];
    }
    return n;
}

/* By memory and dtype, then in the order of the list. */
static int by_memory(const void *a, const void *b)
{
    const saved *x = a, *y = b;
    if (x->t->storage != y->t->storage) return x->t->storage < y->t->storage ? -1 : 1;
    if (x->t->dtype != y->t->dtype) return x->t->dtype < y->t->dtype ? -1 : 1;
    return (x->i > y->i) - (x->i < y->i);
}

static int by_index(const void *a, const void *b)
{
    const saved *x = a, *y = b;
    return (x->i > y->i) - (x->i < y->i);
}

static bool can_share(const aril_tensor *t)
{
    return t->storage && t->numel > 0 && t->storage->device->host_memory &&
           aril__dtypes[t->dtype].bits >= 8;
}

/* Finds which tensors share memory; s is in the order of the list again at the end. */
static void group(saved *s, int n)
{
    qsort(s, (size_t)n, sizeof *s, by_memory);
    for (int i = 0, end; i < n; i = end) {
        int64_t low = INT64_MAX, high = 0;
        for (end = i;
             end < n && (end == i || (can_share(s[i].t) && s[end].t->storage == s[i].t->storage &&
                                      s[end].t->dtype == s[i].t->dtype && can_share(s[end].t)));
             end++) {
            if (s[end].t->offset < low) low = s[end].t->offset;
            if (s[end].t->offset + reach(s[end].t) > high)
                high = s[end].t->offset + reach(s[end].t);
        }
        for (int k = i; k < end; k++) {
            s[k].leads = k == i;
            s[k].shared = end - i > 1;
            s[k].storage = s[i].i; /* the leader's index; below, its storage */
            s[k].begin = low;
            s[k].end = high;
        }
    }
    qsort(s, (size_t)n, sizeof *s, by_index);
    int count = 0;
    for (int i = 0; i < n; i++) s[i].storage = s[i].leads ? count++ : s[s[i].storage].storage;
}

/* ---- the pickle ---- */

enum { DICT, REBUILD, REBUILD_UNTYPED, UNTYPED, STORAGE, CPU, FIRST_TYPE };

typedef struct pickler {
    aril__bytes b;
    bool memo[FIRST_TYPE + 2 * ARIL__DTYPE_COUNT];
} pickler;

/* What comes next was put on the stack before: takes it from the memo. */
static bool again(pickler *k, int number)
{
    if (!k->memo[number]) return false;
    unsigned char get[2] = { 'h', (unsigned char)number };
    aril__bytes_add(&k->b, get, 2);
    return true;
}

static void remember(pickler *k, int number)
{
    unsigned char put[2] = { 'q', (unsigned char)number };
    aril__bytes_add(&k->b, put, 2);
    k->memo[number] = true;
}

static void put_class(pickler *k, int number, const char *module, const char *name)
{
    if (again(k, number)) return;
    aril__bytes_print(&k->b, "c%s\n%s\n", module, name);
    remember(k, number);
}

static void put_text(pickler *k, const char *text)
{
    unsigned char head[5] = { 'X' };
    size_t n = strlen(text);
    aril__put_le32(head + 1, (uint32_t)n);
    aril__bytes_add(&k->b, head, 5);
    aril__bytes_add(&k->b, text, n);
}

static void put_known_text(pickler *k, int number, const char *text)
{
    if (again(k, number)) return;
    put_text(k, text);
    remember(k, number);
}

static void put_int(pickler *k, int64_t value)
{
    unsigned char b[10] = { 'J' };
    if (value >= 0 && value <= INT32_MAX) {
        aril__put_le32(b + 1, (uint32_t)value);
        aril__bytes_add(&k->b, b, 5);
    } else {
        b[0] = 0x8a;
        b[1] = 8;
        aril__put_le64(b + 2, (uint64_t)value);
        aril__bytes_add(&k->b, b, 10);
    }
}

static void put_sizes(pickler *k, int n, const int64_t *at)
{
    aril__bytes_add(&k->b, "(", 1);
    for (int i = 0; i < n; i++) put_int(k, at[i]);
    aril__bytes_add(&k->b, "t", 1);
}

static void put_empty_dict(pickler *k)
{
    put_class(k, DICT, "collections", "OrderedDict");
    aril__bytes_add(&k->b, ")R", 2);
}

/* _rebuild_tensor_v2(storage, offset, size, stride, False, OrderedDict()), or _v3 with a dtype. */
static void put_tensor(pickler *k, const saved *s)
{
    const aril_tensor *t = s->t;
    bool untyped = !types[t->dtype].storage;
    int64_t n = s->shared ? s->end - s->begin : t->numel, stride[ARIL_MAX_DIMS];
    char key[16];
    snprintf(key, sizeof key, "%d", s->storage);
    put_class(k, untyped ? REBUILD_UNTYPED : REBUILD, "torch._utils",
              untyped ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
    aril__bytes_add(&k->b, "((", 2);
    put_known_text(k, STORAGE, "storage");
    if (untyped)
        put_class(k, UNTYPED, "torch.storage", "UntypedStorage");
    else
        put_class(k, FIRST_TYPE + t->dtype, "torch", types[t->dtype].storage);
    put_text(k, key);
    put_known_text(k, CPU, "cpu");
    put_int(k, untyped ? n * (int64_t)aril_dtype_size((aril_dtype)t->dtype) : n);
    aril__bytes_add(&k->b, "tQ", 2);
    put_int(k, s->shared ? t->offset - s->begin : 0);
    aril__dense_strides(t->ndim, t->dim, stride);
    put_sizes(k, t->ndim, t->dim);
    put_sizes(k, t->ndim, s->shared ? t->stride : stride);
    aril__bytes_add(&k->b, "\x89", 1);
    put_empty_dict(k);
    if (untyped) {
        put_class(k, FIRST_TYPE + ARIL__DTYPE_COUNT + t->dtype, "torch", types[t->dtype].dtype);
        put_empty_dict(k); /* metadata */
    }
    aril__bytes_add(&k->b, "tR", 2);
}

static void put_all(pickler *k, const aril_named *t, const saved *s)
{
    aril__bytes_add(&k->b, "\x80\x02", 2);
    put_empty_dict(k);
    if (t->n) aril__bytes_add(&k->b, "(", 1);
    for (int i = 0; i < t->n; i++) {
        put_text(k, t->name[i]);
        put_tensor(k, &s[i]);
    }
    aril__bytes_add(&k->b, t->n ? "u." : ".", t->n ? 2 : 1);
}

/* ---- the archive ---- */

static aril_status put_member(aril__zip_writer *w, const char *name, const void *data, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "archive/%s", name);
    return aril__zip_add_aligned(w, path, data, size, 64);
}

static aril_status put_storage(aril__zip_writer *w, const saved *s, aril_tensor *t)
{
    ARIL_SCOPE;
    char name[24];
    size_t size = aril_dtype_size((aril_dtype)t->dtype);
    snprintf(name, sizeof name, "data/%d", s->storage);
    if (s->shared)
        return put_member(w, name, aril__base(t) + (size_t)s->begin * size,
                          (size_t)(s->end - s->begin) * size);
    const void *data = aril_data(t);
    if (!data && t->numel > 0) return aril__latest_status();
    return put_member(w, name, data, (size_t)t->numel * size);
}

static aril_status put_archive(aril__zip_writer *w, const char *path, const aril_named *t,
                               const saved *s)
{
    const uint16_t one = 1;
    unsigned char low;
    memcpy(&low, &one, 1);
    pickler k = { 0 };
    put_all(&k, t, s);
    aril_status status = k.b.failed ? aril__fail(ARIL_ERR_MEMORY, "out of memory saving %s", path)
                                    : put_member(w, "data.pkl", k.b.at, k.b.n);
    aril__bytes_free(&k.b);
    const char *order = low ? "little" : "big";
    if (status == ARIL_OK) status = put_member(w, "byteorder", order, strlen(order));
    for (int i = 0; i < t->n && status == ARIL_OK; i++)
        if (s[i].leads) status = put_storage(w, &s[i], t->at[i]);
    if (status == ARIL_OK) status = put_member(w, "version", "3\n", 2);
    return status == ARIL_OK ? aril__zip_finish(w) : status;
}

aril_status aril__pytorch_save_part(aril__file *index, const char *path, const aril_named *tensors,
                                    const aril_metadata *metadata)
{
    (void)metadata;
    aril_status status = check_tensors(path, tensors);
    if (status < 0) return status;
    saved *s = aril__calloc(((size_t)tensors->n + 1) * sizeof *s);
    if (!s) return aril__fail(ARIL_ERR_MEMORY, "out of memory saving %s", path);
    for (int i = 0; i < tensors->n; i++) s[i] = (saved){ .t = tensors->at[i], .i = i };
    group(s, tensors->n);
    aril__zip_writer w = { .file = index ? aril__file_begin_part(index, path)
                                         : aril__file_begin(path) };
    status = w.file ? put_archive(&w, path, tensors, s) : aril__latest_status();
    aril__bytes_free(&w.list);
    free(s);
    if (!w.file) return status;
    if (status == ARIL_OK) return aril__file_commit(w.file);
    aril__file_abandon(w.file);
    return status;
}

aril_status aril__pytorch_save(const char *path, const aril_named *tensors,
                               const aril_metadata *metadata)
{
    return aril__pytorch_save_part(NULL, path, tensors, metadata);
}
