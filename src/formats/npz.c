/* .npz: a zip archive of .npy files. */
#include "aril/formats.h"

#include "aril/dtype.h"
#include "aril/scope.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "formats/npy.h"
#include "formats/zip.h"

#include <stdlib.h>
#include <string.h>

struct aril_npz {
    aril__zip zip;
};

static aril_npz *open_source(aril_status status, aril__source source)
{
    if (status != ARIL_OK) return NULL;
    aril_npz *f = aril__calloc(sizeof *f);
    if (!f) {
        aril__fail(ARIL_ERR_MEMORY, "out of memory reading %s", source.name);
        aril__source_close(&source);
        return NULL;
    }
    if (aril__zip_open(&f->zip, source) != ARIL_OK) {
        free(f);
        return NULL;
    }
    for (int i = 0; i < f->zip.n; i++) { /* strip the suffix: "x.npy" becomes "x" */
        char *name = f->zip.member[i].name;
        size_t n = strlen(name);
        if (n > 4 && strcmp(name + n - 4, ".npy") == 0) name[n - 4] = 0;
    }
    return f;
}

aril_npz *aril_npz_open(const char *path)
{
    aril__source s;
    aril_status status = aril__source_open(&s, "NumPy", path);
    return open_source(status, s);
}

aril_npz *aril_npz_open_memory(const void *data, size_t size)
{
    aril__source s;
    if (!data) {
        aril__fail(ARIL_ERR_ARG, "aril_npz_open_memory: no data");
        return NULL;
    }
    aril_status status = aril__source_memory(&s, data, size);
    return open_source(status, s);
}

void aril_npz_close(aril_npz *f)
{
    if (!f) return;
    aril__zip_close(&f->zip);
    free(f);
}

int aril_npz_count(const aril_npz *f)
{
    return f ? f->zip.n : 0;
}

const char *aril_npz_name(const aril_npz *f, int i)
{
    return f && i >= 0 && i < f->zip.n ? f->zip.member[i].name : NULL;
}

int aril_npz_find(const aril_npz *f, const char *name)
{
    for (int i = 0; f && name && i < f->zip.n; i++)
        if (strcmp(f->zip.member[i].name, name) == 0) return i;
    return -1;
}

aril_tensor *aril_npz_tensor(aril_npz *f, int i)
{
    if (!aril_npz_name(f, i)) {
        aril__fail(ARIL_ERR_INDEX, "%s has no array %d", f ? f->zip.source.name : "no file", i);
        return aril__poison();
    }
    char name[512];
    snprintf(name, sizeof name, "%s in %s", f->zip.member[i].name, f->zip.source.name);
    aril__bytes b = { 0 };
    aril_tensor *t = aril__zip_read(&f->zip, i, &b) == ARIL_OK ? aril__npy_decode(name, b.at, b.n)
                                                               : aril__poison();
    aril__bytes_free(&b);
    return t;
}

static aril_status add_array(aril__zip_writer *w, const char *name, aril_tensor *t)
{
    ARIL_SCOPE;
    aril__bytes head = { 0 }, file = { 0 };
    aril_status status = aril__npy_head(name, t, &head);
    const void *data = status == ARIL_OK ? aril_data(t) : NULL;
    if (status == ARIL_OK && !data && aril_numel(t) > 0) status = aril__latest_status();
    aril__bytes_print(&file, "%s.npy", name);
    if (status == ARIL_OK && file.failed)
        status = aril__fail(ARIL_ERR_MEMORY, "out of memory writing %s", name);
    if (status == ARIL_OK)
        status = aril__zip_add(w, (char *)file.at, head.at, head.n, data,
                               aril_dtype_size(aril_dtype_of(t)) * (size_t)aril_numel(t));
    aril__bytes_free(&head);
    aril__bytes_free(&file);
    return status;
}

aril_status aril_npz_write(const char *path, const aril_named *tensors)
{
    bool none = !tensors || (tensors->n > 0 && !tensors->at);
    if (!path || !*path || none)
        return aril__fail(ARIL_ERR_ARG, "aril_npz_write: no %s", none ? "tensors" : "file name");
    for (int i = 0; i < tensors->n && tensors->name; i++)
        if (!tensors->name[i]) return aril__fail(ARIL_ERR_ARG, "%s: array %d has no name", path, i);
    aril__zip_writer w = { .file = aril__file_begin(path) };
    if (!w.file) return aril__latest_status();
    aril_status status = ARIL_OK;
    for (int i = 0; i < tensors->n && status == ARIL_OK; i++) {
        char number[24];
        snprintf(number, sizeof number, "arr_%d", i); /* NumPy's default names */
        const char *name = tensors->name ? tensors->name[i] : number;
        for (int k = 0; k < i && tensors->name; k++)
            if (strcmp(tensors->name[k], name) == 0)
                status = aril__fail(ARIL_ERR_ARG, "%s: two arrays are named %s", path, name);
        if (status == ARIL_OK) status = add_array(&w, name, tensors->at[i]);
    }
    if (status == ARIL_OK) status = aril__zip_finish(&w);
    aril__bytes_free(&w.list);
    if (status == ARIL_OK) return aril__file_commit(w.file);
    aril__file_abandon(w.file);
    return status;
}
