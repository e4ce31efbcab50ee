/* Tensors in files beside a model. Data that are aligned are used where they lie. */
#include "core/dtype.h"
#include "formats/mapped_file.h"
#include "onnx/onnx.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNED = 64 };

struct onnx_file {
    char *path;
    aril__mapped *mapped;
    bool in_place; /* tensors use its memory */
};

static const char *entry(const aril__message *tensor, const char *key)
{
    for (size_t i = 0; i < aril__message_count(tensor, "external_data"); i++) {
        const aril__message *e = aril__message_sub_at(tensor, "external_data", i);
        if (strcmp(aril__message_text(e, "key"), key) == 0) return aril__message_text(e, "value");
    }
    return NULL;
}

static bool entry_number(const aril__message *tensor, const char *key, uint64_t *out)
{
    const char *text = entry(tensor, key);
    *out = 0;
    if (!text) return true;
    char *end;
    if (*text < '0' || *text > '9') return false;
    *out = strtoull(text, &end, 10);
    return !*end && *out < INT64_MAX;
}

/* The path of a file in the model's folder or below it; NULL with an error. To be freed. */
static char *external_path(const aril__message *tensor, const char *folder)
{
    const char *location = entry(tensor, "location");
    char *path = NULL, *real = NULL, *base = NULL;
    if (!location || !*location) {
        aril__onnx_malformed(tensor, "external data without a location");
    } else if (!folder) {
        aril__onnx_malformed(tensor, "external data in a model that was not read from a file");
    } else if (*location == '/' || asprintf(&path, "%s/%s", folder, location) < 0) {
        aril__onnx_malformed(tensor, "the location of external data leaves the model's folder");
    } else if (!(base = realpath(folder, NULL)) || !(real = realpath(path, NULL))) {
        aril__fail(ARIL_ERR_IO, "tensor %s: cannot find %s", aril__onnx_tensor_name(tensor), path);
    } else {
        size_t n = strlen(base);
        if (strncmp(real, base, n) != 0 || (real[n] != '/' && n > 1)) {
            aril__onnx_malformed(tensor, "the location of external data leaves the model's folder");
            free(real);
            real = NULL;
        }
    }
    if (!real) path = (free(path), NULL);
    free(path);
    free(base);
    return real;
}

/* The file at a path, which becomes the list's; NULL with an error. */
static struct onnx_file *file_at(onnx_files *files, char *path)
{
    for (size_t i = 0; i < files->n; i++)
        if (strcmp(files->at[i].path, path) == 0) {
            free(path);
            return &files->at[i];
        }
    struct onnx_file *grown = aril__realloc(files->at, (files->n + 1) * sizeof *grown);
    if (grown) files->at = grown;
    aril__mapped *mapped = grown ? aril__mapped_open("external data", path) : NULL;
    if (!grown) aril__fail(ARIL_ERR_MEMORY, "onnx: out of memory");
    if (!mapped) {
        free(path);
        return NULL;
    }
    grown[files->n] = (struct onnx_file){ .path = path, .mapped = mapped };
    return &grown[files->n++];
}

static void release_file(void *data, void *ctx)
{
    (void)data;
    aril__mapped_close(ctx);
}

/* Whether a tensor can be the memory of a file: C cannot read a bool other than 0 and 1, and
 * elements of less than a byte have a form of their own. */
static bool is_usable(const unsigned char *at, aril_dtype dtype, size_t bytes)
{
    bool clean = aril_dtype_size(dtype) > 0 && bytes > 0 && (uintptr_t)at % ALIGNED == 0;
    for (size_t i = 0; clean && dtype == ARIL_BOOL && i < bytes; i++) clean = at[i] <= 1;
    return clean;
}

aril_status aril__onnx_external(onnx_files *files, const aril__message *tensor, aril_dtype dtype,
                                aril_shape shape, aril_tensor **out)
{
    uint64_t offset, length;
    int64_t n = 1;
    for (int d = 0; d < shape.ndim; d++) n *= shape.dim[d];
    size_t bytes = aril__dtype_bytes(dtype, n);
    if (!entry_number(tensor, "offset", &offset) || !entry_number(tensor, "length", &length))
        return aril__onnx_malformed(tensor, "offset or length of external data is not a number");
    char *path = external_path(tensor, files->folder);
    struct onnx_file *file = path ? file_at(files, path) : NULL;
    if (!file) return aril__latest_status();
    size_t size = aril__mapped_size(file->mapped);
    if ((length && length != bytes) || offset > size || bytes > size - offset)
        return aril__onnx_malformed(tensor, "external data are not as long as its sizes say");
    const unsigned char *at = (const unsigned char *)aril__mapped_data(file->mapped) + offset;
    if (files->in_place && is_usable(at, dtype, bytes)) {
        file->in_place = true;
        *out = aril_borrow((void *)(uintptr_t)at, shape, dtype, release_file,
                           aril__mapped_keep(file->mapped));
    } else {
        *out = aril_from(at, shape, dtype, aril_cpu());
    }
    return aril_tensor_status(*out);
}

aril_status aril__onnx_files_check(const onnx_files *files)
{
    aril_status s = ARIL_OK;
    for (size_t i = 0; i < files->n && s == ARIL_OK; i++)
        s = aril__mapped_check(files->at[i].mapped);
    return s;
}

void aril__onnx_files_rest(onnx_files *files, bool loaded)
{
    size_t kept = 0;
    for (size_t i = 0; i < files->n; i++) {
        aril__mapped_rest(files->at[i].mapped);
        if (loaded && !files->at[i].in_place) {
            aril__mapped_close(files->at[i].mapped);
            free(files->at[i].path);
        } else {
            files->at[kept++] = files->at[i];
        }
    }
    files->n = kept;
}

void aril__onnx_files_free(onnx_files *files)
{
    for (size_t i = 0; i < files->n; i++) {
        aril__mapped_close(files->at[i].mapped);
        free(files->at[i].path);
    }
    free(files->at);
    *files = (onnx_files){ 0 };
}
