/* NumPy's archives (.npz) and arrays (.npy) as weights. */
#include "formats/npy.h"

#include "aril/scope.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "formats/weights/weights.h"

#include <stdlib.h>
#include <string.h>

/* Lists an array by the first n bytes of its file. */
static aril_status add_array(aril_weights *w, const char *file, const char *name,
                             const unsigned char *first, size_t n, uint64_t size, uint64_t at)
{
    aril__npy_info info;
    aril__saved_errors saved = aril__errors_begin_quiet();
    aril_status status = aril__npy_head_of(file, first, n, size, &info);
    aril__error *error = aril__errors_end(&saved);
    bool other = status == ARIL_ERR_UNSUPPORTED;
    if (error && !other) aril__adopt_error(error);
    if (error) aril__error_release(error);
    if (status != ARIL_OK && !other) return status;
    aril__weights_entry *e = aril__weights_add(w, name, info.dtype, info.shape, at);
    if (!e) return ARIL_ERR_MEMORY;
    return other ? aril__weights_refuse(e, "dtype %s", *info.descr ? info.descr : "of records")
                 : ARIL_OK;
}

/* Elements as the file has them, if they can be used so. */
static aril_tensor *mapped(aril_weights *w, const char *file, const unsigned char *data,
                           uint64_t size)
{
    aril__npy_info info;
    if (aril__npy_head_of(file, data, (size_t)size, size, &info) != ARIL_OK) return aril__poison();
    if (info.fortran && info.shape.ndim > 1) return aril__npy_decode(file, data, (size_t)size);
    return aril__weights_map(w, data + info.data, info.shape, info.dtype, info.big);
}

/* ---- .npz ---- */

static int probe_archive(aril_weights *w)
{
    aril_status status;
    const aril__zip *z = aril__weights_zip(w, &status);
    if (!z) return status; /* 0: no archive */
    for (int i = 0; i < z->n; i++)
        if (!aril__ends_with(z->member[i].name, ".npy")) return 0;
    return 1; /* also of no arrays */
}

static aril_status open_archive(aril_weights *w)
{
    enum { MOST = 1 << 16 }; /* NumPy's headers are a few hundred bytes */
    aril_status status = ARIL_OK;
    unsigned char *first = aril__malloc(MOST);
    aril__bytes text = { 0 };
    if (!first) return aril__weights_no_memory(w);
    for (int i = 0; i < w->zip->n && status == ARIL_OK; i++) {
        const aril__zip_member *m = &w->zip->member[i];
        size_t n = 0;
        text.n = 0;
        aril__bytes_add(&text, m->name, strlen(m->name) - 4); /* without ".npy" */
        if (text.failed) {
            status = aril__weights_no_memory(w);
            break;
        }
        status = aril__zip_first(w->zip, i, first, MOST, &n);
        if (status == ARIL_OK)
            status = add_array(w, w->path, (const char *)text.at, first, n, m->size, (uint64_t)i);
    }
    aril__bytes_free(&text);
    free(first);
    return status;
}

static aril_tensor *archive_tensor(aril_weights *w, int i)
{
    int member = (int)w->entry[i].at;
    const aril__zip_member *m = &w->zip->member[member];
    char file[512];
    snprintf(file, sizeof file, "%s in %s", w->entry[i].name, w->path);
    if (m->method == 0) {
        uint64_t at;
        if (aril__zip_data(w->zip, member, &at) != ARIL_OK) return aril__poison();
        if (aril__crc32(0, w->data + at, (size_t)m->size) == m->crc)
            return mapped(w, file, w->data + at, m->size);
        aril__weights_malformed(w, "the checksum of %s does not match", w->entry[i].name);
        return aril__poison();
    }
    aril__bytes b = { 0 };
    aril_tensor *t = aril__zip_read(w->zip, member, &b) == ARIL_OK
                         ? aril__npy_decode(file, b.at, b.n)
                         : aril__poison();
    aril__bytes_free(&b);
    return t;
}

static aril_status save_archive(const char *path, const aril_named *tensors,
                                const aril_metadata *metadata)
{
    (void)metadata; /* an archive holds arrays only */
    return aril_npz_write(path, tensors);
}

const aril__weights_kind aril__npz_weights = { .name = "NumPy",
                                               .id = "npz",
                                               .extensions = ".npz",
                                               .probe = probe_archive,
                                               .open = open_archive,
                                               .tensor = archive_tensor,
                                               .save = save_archive };

/* ---- .npy ---- */

static int probe_array(aril_weights *w)
{
    return w->size >= 6 && memcmp(w->data, "\x93NUMPY", 6) == 0;
}

static aril_status open_array(aril_weights *w)
{
    return add_array(w, w->path, "arr_0", w->data, w->size, w->size, 0);
}

static aril_tensor *array_tensor(aril_weights *w, int i)
{
    (void)i;
    return mapped(w, w->path, w->data, w->size);
}

const aril__weights_kind aril__npy_weights = {
    .name = "NumPy", .id = "npy", .probe = probe_array, .open = open_array, .tensor = array_tensor
};
