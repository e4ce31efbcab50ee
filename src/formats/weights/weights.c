/* An open file of weights: its list of tensors, and what all kinds share. */
#include "formats/weights/weights.h"

#include "aril/create.h"
#include "aril/dtype.h"
#include "aril/scope.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "formats/array.h"
#include "formats/gzip.h"

#include <dirent.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- for readers ---- */

aril_status aril__weights_malformed(const aril_weights *w, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return aril__fail(ARIL_ERR_FORMAT, "%s is not a valid %s file: %s", w->path, w->kind->name,
                      text);
}

aril_status aril__weights_no_memory(const aril_weights *w)
{
    return aril__fail(ARIL_ERR_MEMORY, "out of memory reading %s", w->path);
}

/* Grows an array of n elements for one more, if needed. */
static bool grow(void *at, int n, int *capacity, size_t size)
{
    if (n < *capacity) return true;
    if (n > INT_MAX / 2) return false;
    int more = n ? 2 * n : 16;
    void *p = aril__realloc(*(void **)at, (size_t)more * size);
    if (!p) return false;
    *(void **)at = p;
    *capacity = more;
    return true;
}

aril__weights_entry *aril__weights_add(aril_weights *w, const char *name, aril_dtype dtype,
                                       aril_shape shape, uint64_t at)
{
    char *copy = aril__strdup(name);
    if (!copy || !grow(&w->entry, w->n, &w->capacity, sizeof *w->entry)) {
        free(copy);
        aril__weights_no_memory(w);
        return NULL;
    }
    aril__weights_entry *e = &w->entry[w->n];
    *e = (aril__weights_entry){ copy, dtype, shape, NULL, w->n, at };
    w->n++;
    return e;
}

aril_status aril__weights_refuse(aril__weights_entry *e, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    free(e->problem);
    e->problem = aril__strdup(text);
    return e->problem ? ARIL_OK
                      : aril__fail(ARIL_ERR_MEMORY, "out of memory listing tensor %s", e->name);
}

aril_status aril__weights_note(aril_weights *w, const char *key, const char *value)
{
    int capacity = w->meta_capacity;
    char *k = aril__strdup(key), *v = aril__strdup(value);
    bool good = k && v && grow(&w->key, w->n_meta, &capacity, sizeof *w->key) &&
                grow(&w->value, w->n_meta, &w->meta_capacity, sizeof *w->value);
    if (!good) {
        free(k);
        free(v);
        return aril__weights_no_memory(w);
    }
    w->key[w->n_meta] = k;
    w->value[w->n_meta++] = v;
    return ARIL_OK;
}

/* An archive may unpack to as much as other compressed files may: a small one cannot exhaust
 * memory. */
static aril_status check_unpacked(const aril_weights *w)
{
    uint64_t most = (uint64_t)w->size * ARIL__UNPACKED_TIMES + ARIL__UNPACKED_FREE, all = 0;
    for (int i = 0; i < w->zip->n; i++) {
        if (w->zip->member[i].method == 0) continue;
        if (__builtin_add_overflow(all, w->zip->member[i].size, &all) || all > most)
            return aril__fail(
                ARIL_ERR_FORMAT,
                "%s unpacks to more than the %llu bytes expected for its size; if that "
                "is intended, save it without compression",
                w->path, (unsigned long long)most);
    }
    return ARIL_OK;
}

const aril__zip *aril__weights_zip(aril_weights *w, aril_status *status)
{
    *status = ARIL_OK;
    /* An archive without members is only its end. */
    bool is_zip =
        w->size >= 4 && (memcmp(w->data, "PK\3\4", 4) == 0 || memcmp(w->data, "PK\5\6", 4) == 0);
    if (!is_zip || w->zip) return w->zip;
    aril__source source;
    w->zip = aril__calloc(sizeof *w->zip);
    *status = w->zip ? aril__source_named(&source, w->path, w->data, w->size)
                     : aril__weights_no_memory(w);
    if (*status == ARIL_OK) *status = aril__zip_open(w->zip, source);
    if (*status == ARIL_OK) {
        *status = check_unpacked(w);
        if (*status == ARIL_OK) return w->zip;
        aril__zip_close(w->zip);
    }
    free(w->zip);
    w->zip = NULL;
    return NULL;
}

bool aril__weights_bytes(aril_shape shape, aril_dtype dtype, uint64_t most, uint64_t *bytes)
{
    uint64_t bits = (uint64_t)aril_dtype_bits(dtype), n;
    if (bits >= 8) return aril__array_bytes(shape, bits / 8, most, bytes);
    if (most > UINT64_MAX / 8 || !aril__array_bytes(shape, 1, most * (8 / bits), &n)) return false;
    *bytes = (n * bits + 7) / 8;
    return *bytes <= most;
}

bool aril__ends_with(const char *text, const char *suffix)
{
    size_t n = strlen(text), k = strlen(suffix);
    return n >= k && strcmp(text + n - k, suffix) == 0;
}

/* ---- tensors ---- */

static void release_file(void *data, void *ctx)
{
    (void)data;
    aril__mapped_close(ctx);
}

/* C cannot read a bool other than 0 and 1. */
static bool is_clean(const unsigned char *at, aril_dtype dtype, uint64_t bytes)
{
    for (uint64_t i = 0; dtype == ARIL_BOOL && i < bytes; i++)
        if (at[i] > 1) return false;
    return true;
}

aril_tensor *aril__weights_map_in(const aril_weights *w, aril__mapped *file,
                                  const unsigned char *at, aril_shape shape, aril_dtype dtype,
                                  bool big)
{
    const uint16_t one = 1;
    unsigned char low;
    memcpy(&low, &one, 1);
    size_t size = aril_dtype_size(dtype);
    const unsigned char *data = aril__mapped_data(file);
    uint64_t bytes = 0;
    aril__weights_bytes(shape, dtype, UINT64_MAX, &bytes);
    bool inside = at >= data && at < data + aril__mapped_size(file);
    bool direct =
        inside && !w->copy && bytes > 0 && (size < 2 || ((uintptr_t)at % size == 0 && big != low));
    if (direct && is_clean(at, dtype, bytes))
        return aril_borrow((void *)(uintptr_t)at, shape, dtype, release_file,
                           aril__mapped_keep(file));
    aril_tensor *t = aril_empty(shape, dtype, aril_cpu());
    if (aril_tensor_status(t) != ARIL_OK || bytes == 0) return t;
    unsigned char *to = aril__ptr(t);
    memcpy(to, at, (size_t)bytes);
    if (size > 1) aril__to_host_order(to, size, aril_numel(t), big);
    for (uint64_t i = 0; dtype == ARIL_BOOL && i < bytes; i++) to[i] = to[i] != 0;
    return t;
}

aril_tensor *aril__weights_map(aril_weights *w, const unsigned char *at, aril_shape shape,
                               aril_dtype dtype, bool big)
{
    return aril__weights_map_in(w, w->file, at, shape, dtype, big);
}

aril_tensor *aril_weights_tensor(aril_weights *w, int i)
{
    if (!w || i < 0 || i >= w->n) {
        if (w)
            aril__fail(ARIL_ERR_INDEX, "%s has no tensor %d", w->path, i);
        else
            aril__fail(ARIL_ERR_ARG, "weights_tensor: no file");
        return aril__poison();
    }
    if (w->entry[i].problem) {
        aril__fail(ARIL_ERR_UNSUPPORTED, "%s: tensor %s cannot be read: %s", w->path,
                   w->entry[i].name, w->entry[i].problem);
        return aril__poison();
    }
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    return aril_escape(w->kind->tensor(w, i));
}

const aril_named *aril_weights_all(aril_weights *w)
{
    if (!w) {
        aril__fail(ARIL_ERR_ARG, "weights_all: no file");
        return NULL;
    }
    if (w->all.at) return &w->all;
    aril_tensor **at = aril__calloc(((size_t)w->n + 1) * sizeof *at);
    const char **name = aril__malloc(((size_t)w->n + 1) * sizeof *name);
    int n = 0;
    bool good = at && name;
    if (!good) aril__weights_no_memory(w);
    for (; good && n < w->n; n++) {
        ARIL_SCOPE;
        aril_tensor *t = aril_weights_tensor(w, n);
        good = aril_tensor_status(t) == ARIL_OK;
        if (!good) break;
        at[n] = aril_keep(t);
        name[n] = w->entry[n].name;
    }
    if (good) {
        w->all = (aril_named){ w->n, at, name };
        return &w->all;
    }
    while (n-- > 0) aril_release(at[n]);
    free(at);
    free(name);
    return NULL;
}

/* ---- opening ---- */

void aril_weights_close(aril_weights *w)
{
    if (!w) return;
    if (w->kind && w->kind->close) w->kind->close(w);
    for (int i = 0; w->all.at && i < w->n; i++) aril_release(w->all.at[i]);
    free((void *)(uintptr_t)w->all.at);
    free((void *)(uintptr_t)w->all.name);
    for (int i = 0; i < w->n; i++) {
        free(w->entry[i].name);
        free(w->entry[i].problem);
    }
    for (int i = 0; i < w->n_meta; i++) {
        free(w->key[i]);
        free(w->value[i]);
    }
    if (w->zip) aril__zip_close(w->zip);
    free(w->zip);
    aril__mapped_close(w->file);
    free(w->entry);
    free(w->sorted);
    free(w->key);
    free(w->value);
    free(w->root);
    free(w->path);
    free(w);
}

/* What is looked for in a folder. */
static const char *const in_folder[] = {
    "/model.safetensors",         "/model.safetensors.index.json",
    "/pytorch_model.bin",         "/pytorch_model.bin.index.json",
    "/variables/variables.index", /* a SavedModel */
    "/variables.index",
};

static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && !S_ISDIR(st.st_mode);
}

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static void no_weights(const char *folder)
{
    char text[256] = "";
    for (size_t i = 0; i < sizeof in_folder / sizeof *in_folder; i++) {
        size_t n = strlen(text);
        snprintf(text + n, sizeof text - n, "%s%s", n ? ", " : "", in_folder[i] + 1);
    }
    aril__fail(ARIL_ERR_IO,
               "the folder %s has no weights; expected one of %s, or a single *.index.json", folder,
               text);
}

/* The index of the latest checkpoint of a folder, by its file "checkpoint", which names it in the
 * first line: model_checkpoint_path: "ckpt-7". Written to `found`; false: there is none. */
static bool latest_in(const char *folder, char *found, size_t size)
{
    char line[1024] = "";
    snprintf(found, size, "%s/checkpoint", folder);
    FILE *f = is_file(found) ? fopen(found, "r") : NULL;
    bool good = f && fgets(line, sizeof line, f);
    if (f) fclose(f);
    char *name = good ? strchr(line, '"') : NULL, *end = name ? strrchr(line, '"') : NULL;
    if (!good || strncmp(line, "model_checkpoint_path:", 22) != 0 || !name || end <= name)
        return false;
    *end = '\0';
    char *slash = strrchr(++name, '/'); /* also where the folder was when it was written */
    int n = snprintf(found, size, "%s/%s.index", folder, slash ? slash + 1 : name);
    return n > 0 && (size_t)n < size && is_file(found);
}

static bool is_index(const char *name)
{
    size_t n = strlen(name);
    return n > 11 && strcmp(name + n - 11, ".index.json") == 0;
}

/* The only index of parts in a folder. Written to `found`; false: there is none, or several. */
static bool index_in(const char *folder, char *found, size_t size)
{
    int indices = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!is_index(e->d_name)) continue;
        indices++;
        snprintf(found, size, "%s/%s", folder, e->d_name);
    }
    if (d) closedir(d);
    return indices == 1 && is_file(found);
}

/* The file to open for a path, which the caller frees; NULL when out of memory. */
static char *resolve(const char *path)
{
    bool folder = is_folder(path);
    size_t size = strlen(path) + 1100;
    char *found = aril__malloc(size);
    if (!found) return NULL;
    for (size_t i = 0; folder && i < sizeof in_folder / sizeof *in_folder; i++) {
        snprintf(found, size, "%s%s", path, in_folder[i]);
        if (is_file(found)) return found;
    }
    if (folder && (index_in(path, found, size) || latest_in(path, found, size))) return found;
    /* A checkpoint of TensorFlow is known by the name that its files begin with. */
    snprintf(found, size, "%s.index", path);
    if (!folder && !is_file(path) && is_file(found)) return found;
    snprintf(found, size, "%s", path);
    return found;
}

static aril_status no_kind(const aril_weights *w)
{
    char text[256] = "";
    size_t length = strlen(w->path);
    if (aril__mapped_is_other(w->file, w->path, "a file of weights")) return aril__latest_status();
    if (length > 12 && strcmp(w->path + length - 12, ".safetensors") == 0) {
        aril_safetensors_close(aril_safetensors_open(w->path)); /* says what is wrong with it */
        if (!aril_ok()) return aril__latest_status();
    }
    for (int i = 0; aril__weights_kinds[i]; i++) {
        size_t n = strlen(text);
        const char *name = aril__weights_kinds[i]->name;
        bool again = false;
        for (int k = 0; k < i; k++) again |= strcmp(aril__weights_kinds[k]->name, name) == 0;
        if (!again) snprintf(text + n, sizeof text - n, "%s%s", n ? ", " : "", name);
    }
    return aril__fail(ARIL_ERR_FORMAT, "%s is a file of no known kind; expected weights of: %s",
                      w->path, text);
}

static aril_status find_kind(aril_weights *w)
{
    for (int i = 0; aril__weights_kinds[i]; i++) {
        w->kind = aril__weights_kinds[i];
        int is = w->kind->probe(w);
        if (is > 0) return ARIL_OK;
        w->kind = NULL;
        if (is < 0) return is;
    }
    return no_kind(w);
}

static int by_name(const void *a, const void *b, void *ctx)
{
    const aril_weights *w = ctx;
    return strcmp(w->entry[*(const int *)a].name, w->entry[*(const int *)b].name);
}

static aril_status sort_names(aril_weights *w)
{
    w->sorted = aril__malloc(((size_t)w->n + 1) * sizeof *w->sorted);
    if (!w->sorted) return aril__weights_no_memory(w);
    for (int i = 0; i < w->n; i++) w->sorted[i] = i;
    qsort_r(w->sorted, (size_t)w->n, sizeof *w->sorted, by_name, w);
    for (int i = 1; i < w->n; i++)
        if (by_name(&w->sorted[i - 1], &w->sorted[i], w) == 0)
            return aril__weights_malformed(w, "two tensors are called %s",
                                           w->entry[w->sorted[i]].name);
    return ARIL_OK;
}

static void unwrap(aril_weights *w)
{
    bool all = true;
    for (int i = 0; i < w->n; i++) {
        aril__unwrap_compiled(w->entry[i].name);
        all &= strncmp(w->entry[i].name, "module.", 7) == 0;
    }
    for (int i = 0; i < w->n && all; i++) aril__unwrap_parallel(w->entry[i].name);
}

static aril_weights *open_path(const char *path, aril_weights_opts opts, bool is_part)
{
    aril_weights *w = aril__calloc(sizeof *w);
    if (!w) {
        aril__fail(ARIL_ERR_MEMORY, "out of memory reading %s", path);
        return NULL;
    }
    w->copy = opts.copy;
    w->verify = opts.verify || opts.copy;
    w->is_part = is_part;
    w->root_wanted = opts.root;
    w->path = is_part ? aril__strdup(path) : resolve(path);
    if (!w->path) aril__fail(ARIL_ERR_MEMORY, "out of memory reading %s", path);
    if (w->path && is_folder(w->path))
        no_weights(w->path);
    else if (w->path)
        w->file = aril__mapped_open("weights", w->path);
    aril_status status = w->file ? ARIL_OK : aril__latest_status();
    if (status == ARIL_OK) {
        w->data = aril__mapped_data(w->file);
        w->size = aril__mapped_size(w->file);
        status = find_kind(w);
    }
    if (status == ARIL_OK) status = w->kind->open(w);
    if (status == ARIL_OK && opts.root && *opts.root && !w->root)
        status = aril__fail(ARIL_ERR_ARG, "%s has no part \"%s\": a file of %s has no parts",
                            w->path, opts.root, w->kind->name);
    if (status == ARIL_OK && opts.unwrap) unwrap(w);
    if (status == ARIL_OK) status = sort_names(w);
    if (status == ARIL_OK) status = aril_weights_check(w);
    w->root_wanted = NULL;
    if (status == ARIL_OK) return w;
    aril_weights_close(w);
    return NULL;
}

aril_weights *aril_weights_open(const char *path, aril_weights_opts opts)
{
    if (path) return open_path(path, opts, false);
    aril__fail(ARIL_ERR_ARG, "weights_open: no file name");
    return NULL;
}

aril_weights *aril__weights_open_part(const char *path, aril_weights_opts opts)
{
    return open_path(path, opts, true);
}

/* ---- what a file holds ---- */

static const aril__weights_entry *entry_at(const aril_weights *w, int i)
{
    return w && i >= 0 && i < w->n ? &w->entry[i] : NULL;
}

const char *aril_weights_kind(const aril_weights *w)
{
    return w ? w->kind->name : "";
}

const char *aril_weights_root(const aril_weights *w)
{
    return w && w->root ? w->root : "";
}

int aril_weights_count(const aril_weights *w)
{
    return w ? w->n : 0;
}

const char *aril_weights_name(const aril_weights *w, int i)
{
    const aril__weights_entry *e = entry_at(w, i);
    return e ? e->name : NULL;
}

aril_dtype aril_weights_dtype(const aril_weights *w, int i)
{
    const aril__weights_entry *e = entry_at(w, i);
    return e ? e->dtype : ARIL_F32;
}

aril_shape aril_weights_shape(const aril_weights *w, int i)
{
    const aril__weights_entry *e = entry_at(w, i);
    return e ? e->shape : (aril_shape){ 0 };
}

const char *aril_weights_problem(const aril_weights *w, int i)
{
    const aril__weights_entry *e = entry_at(w, i);
    return e ? e->problem : NULL;
}

int aril_weights_shared(const aril_weights *w, int i)
{
    const aril__weights_entry *e = entry_at(w, i);
    return e ? e->shared : i;
}

int aril_weights_find(const aril_weights *w, const char *name)
{
    if (!w || !name) return -1;
    int low = 0, high = w->n;
    while (low < high) {
        int middle = low + (high - low) / 2, i = w->sorted[middle];
        int order = strcmp(name, w->entry[i].name);
        if (order == 0) return i;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return -1;
}

aril_status aril_weights_check(const aril_weights *w)
{
    if (!w) return aril__fail(ARIL_ERR_ARG, "weights_check: no file");
    aril_status s = aril__mapped_check(w->file);
    return s == ARIL_OK && w->kind->check ? w->kind->check(w) : s;
}

aril_metadata aril_weights_metadata(const aril_weights *w)
{
    if (!w) return (aril_metadata){ 0 };
    return (aril_metadata){ w->n_meta, (const char *const *)w->key, (const char *const *)w->value };
}
