/* Weights in several files, with an index as Hugging Face writes it:
 *
 *     {"metadata": {"total_size": 123}, "weight_map": {"w": "model-00001-of-00002.safetensors"}} */
#include "aril/dtype.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "formats/atomic_file.h"
#include "formats/json.h"
#include "formats/weights/weights.h"

#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

typedef struct part {
    char *file; /* its name in the folder of the index */
    aril_weights *w;
    int *entry; /* the entry of each of its tensors, -1: not in the index */
} part;

typedef struct parts {
    part *at;
    int n, capacity;
} parts;

/* Whether the text is a JSON object with the key "weight_map". */
static int probe(aril_weights *w)
{
    aril__json j = { .text = (const char *)w->data, .size = w->size };
    bool found = false;
    if (w->is_part || aril__json_peek(&j) != '{') return 0;
    for (bool more = aril__json_enter(&j, '{'); more && !found; more = aril__json_more(&j, '}')) {
        char *key = aril__json_key(&j);
        found = key && strcmp(key, "weight_map") == 0;
        free(key);
        if (!found) aril__json_skip(&j);
    }
    return j.memory ? aril__weights_no_memory(w) : found;
}

static aril_status wrong_json(const aril_weights *w, const aril__json *j)
{
    if (j->memory) return aril__weights_no_memory(w);
    return aril__weights_malformed(w, "it is wrong at byte %zu: %s", j->at, j->wrong);
}

/* A file of an index lies beside it: a name with a folder could lead anywhere. */
static aril_status check_name(const aril_weights *w, const char *file)
{
    if (*file && *file != '.' && !strchr(file, '/') && !strchr(file, '\\')) return ARIL_OK;
    return aril__weights_malformed(
        w, "it names the file \"%.100s\"; expected one in its own folder, without a path", file);
}

static aril_status open_part(aril_weights *w, part *p)
{
    const char *slash = strrchr(w->path, '/');
    size_t folder = slash ? (size_t)(slash - w->path) + 1 : 0, n = strlen(p->file);
    char *path = aril__malloc(folder + n + 1);
    if (!path) return aril__weights_no_memory(w);
    memcpy(path, w->path, folder);
    memcpy(path + folder, p->file, n + 1);
    p->w = aril__weights_open_part(path, w->copy);
    free(path);
    if (!p->w) return aril__latest_status();
    p->entry = aril__malloc(((size_t)p->w->n + 1) * sizeof *p->entry);
    if (!p->entry) return aril__weights_no_memory(w);
    for (int i = 0; i < p->w->n; i++) p->entry[i] = -1;
    return ARIL_OK;
}

/* The index of the part with that file, opened on first use; negative after an error. */
static int part_for(aril_weights *w, const char *file)
{
    parts *all = w->reader;
    for (int i = all->n - 1; i >= 0; i--)
        if (strcmp(all->at[i].file, file) == 0) return i;
    enum { MOST = 1000 }; /* files that can be mapped at a time */
    aril_status s = check_name(w, file);
    if (s == ARIL_OK && all->n == MOST)
        s = aril__weights_malformed(w, "it names more than %d files", MOST);
    if (s < 0) return s;
    if (all->n == all->capacity) {
        int capacity = all->n ? 2 * all->n : 8;
        part *grown = aril__realloc(all->at, (size_t)capacity * sizeof *grown);
        if (!grown) return aril__weights_no_memory(w);
        all->at = grown;
        all->capacity = capacity;
    }
    char *copy = aril__strdup(file);
    if (!copy) return aril__weights_no_memory(w);
    all->at[all->n] = (part){ .file = copy };
    s = open_part(w, &all->at[all->n++]);
    return s < 0 ? s : all->n - 1;
}

static aril_status add_tensor(aril_weights *w, const char *name, const char *file)
{
    int k = part_for(w, file);
    if (k < 0) return k;
    part *p = &((parts *)w->reader)->at[k];
    int i = aril_weights_find(p->w, name);
    if (i < 0) return aril__weights_malformed(w, "%s has no tensor %s", file, name);
    if (p->entry[i] >= 0) return aril__weights_malformed(w, "it names %s twice", name);
    const aril__weights_entry *e = &p->w->entry[i];
    aril__weights_entry *added =
        aril__weights_add(w, name, e->dtype, e->shape, (uint64_t)k << 32 | (uint32_t)i);
    if (!added) return ARIL_ERR_MEMORY;
    p->entry[i] = w->n - 1;
    return e->problem ? aril__weights_refuse(added, "%s", e->problem) : ARIL_OK;
}

static aril_status read_map(aril_weights *w, aril__json *j)
{
    aril_status s = ARIL_OK;
    for (bool more = aril__json_enter(j, '{'); more && s == ARIL_OK;
         more = s == ARIL_OK && aril__json_more(j, '}')) {
        char *name = aril__json_key(j), *file = name ? aril__json_string(j) : NULL;
        if (file) s = add_tensor(w, name, file);
        free(name);
        free(file);
        if (!file) break;
    }
    return s;
}

/* Tensors that share memory are in one part; the first of them there may not be in the index. */
static void find_shared(aril_weights *w)
{
    const parts *all = w->reader;
    for (int i = 0; i < w->n; i++) {
        const part *p = &all->at[w->entry[i].at >> 32];
        int first = p->entry[p->w->entry[(uint32_t)w->entry[i].at].shared];
        if (first >= 0 && first < i) w->entry[i].shared = first;
    }
}

static aril_status open_file(aril_weights *w)
{
    aril__json j = { .text = (const char *)w->data, .size = w->size };
    aril_status s = ARIL_OK;
    w->reader = aril__calloc(sizeof(parts));
    if (!w->reader) return aril__weights_no_memory(w);
    for (bool more = aril__json_enter(&j, '{'); more && s == ARIL_OK;
         more = s == ARIL_OK && aril__json_more(&j, '}')) {
        char *key = aril__json_key(&j);
        if (key && strcmp(key, "weight_map") == 0)
            s = read_map(w, &j);
        else if (key)
            aril__json_skip(&j);
        free(key);
        if (!key) break;
    }
    if (s < 0) return s;
    if (!aril__json_end(&j)) return wrong_json(w, &j);
    find_shared(w);
    return ARIL_OK;
}

static aril_tensor *tensor(aril_weights *w, int i)
{
    uint64_t at = w->entry[i].at;
    return aril_weights_tensor(((parts *)w->reader)->at[at >> 32].w, (int)(uint32_t)at);
}

static aril_status check(const aril_weights *w)
{
    const parts *all = w->reader;
    aril_status s = ARIL_OK;
    for (int i = 0; i < all->n && s == ARIL_OK; i++) s = aril_weights_check(all->at[i].w);
    return s;
}

static void close_file(aril_weights *w)
{
    parts *all = w->reader;
    for (int i = 0; all && i < all->n; i++) {
        aril_weights_close(all->at[i].w);
        free(all->at[i].file);
        free(all->at[i].entry);
    }
    if (all) free(all->at);
    free(all);
}

const aril__weights_kind aril__parts_weights = { .name = "index of parts",
                                                 .id = "parts",
                                                 .probe = probe,
                                                 .open = open_file,
                                                 .tensor = tensor,
                                                 .check = check,
                                                 .close = close_file };

/* ---- writing ---- */

typedef struct split {
    const char *path;
    const aril_named *t;
    int *in; /* of each tensor, from 0 */
    int n;   /* parts */
    uint64_t bytes;
} split;

/* Assigns tensors in order: a part ends before it would become larger than `most`. */
static aril_status assign(split *s, int64_t most)
{
    uint64_t used = 0;
    s->in = aril__malloc(((size_t)s->t->n + 1) * sizeof *s->in);
    if (!s->in) return aril__fail(ARIL_ERR_MEMORY, "out of memory saving %s", s->path);
    s->n = 1;
    for (int i = 0; i < s->t->n; i++) {
        const aril_tensor *t = s->t->at[i];
        uint64_t bytes = aril__dtype_bytes(aril_dtype_of(t), aril_numel(t));
        if (used && used + bytes > (uint64_t)most) {
            s->n++;
            used = 0;
        }
        used += bytes;
        s->bytes += bytes;
        s->in[i] = s->n - 1;
    }
    return ARIL_OK;
}

/* Appends the path of a part to *b: NAME-00001-of-00003.EXT. */
static void put_path(aril__bytes *b, const split *s, int k)
{
    const char *slash = strrchr(s->path, '/'), *dot = strrchr(s->path, '.');
    if (!dot || (slash && dot < slash)) dot = s->path + strlen(s->path);
    aril__bytes_add(b, s->path, (size_t)(dot - s->path));
    aril__bytes_print(b, "-%05d-of-%05d%s", k + 1, s->n, dot);
}

static aril_status write_part(const split *s, int k, const aril__weights_kind *kind,
                              const aril_metadata *metadata)
{
    size_t room = (size_t)s->t->n + 1;
    aril__bytes path = { 0 };
    aril_tensor **at = aril__malloc(room * sizeof *at);
    const char **name = aril__malloc(room * sizeof *name);
    aril_status status = ARIL_OK;
    put_path(&path, s, k);
    if (!at || !name || path.failed) {
        status = aril__fail(ARIL_ERR_MEMORY, "out of memory saving %s", s->path);
    } else {
        int n = 0;
        for (int i = 0; i < s->t->n; i++)
            if (s->in[i] == k) at[n] = s->t->at[i], name[n++] = s->t->name[i];
        status = kind->save((const char *)path.at, &(aril_named){ n, at, name }, metadata);
    }
    aril__bytes_free(&path);
    free(at);
    free(name);
    return status;
}

static aril_status write_index(const split *s)
{
    aril__bytes b = { 0 }, path = { 0 };
    aril__bytes_print(&b,
                      "{\n  \"metadata\": {\n    \"total_size\": %llu\n  },\n  \"weight_map\": {",
                      (unsigned long long)s->bytes);
    for (int i = 0; i < s->t->n; i++) {
        path.n = 0;
        put_path(&path, s, s->in[i]);
        if (path.failed) break;
        const char *slash = strrchr((const char *)path.at, '/');
        aril__bytes_print(&b, "%s\n    ", i ? "," : "");
        aril__bytes_json(&b, s->t->name[i]);
        aril__bytes_print(&b, ": ");
        aril__bytes_json(&b, slash ? slash + 1 : (const char *)path.at);
    }
    aril__bytes_print(&b, "\n  }\n}\n");
    bool failed = path.failed;
    path.n = 0;
    aril__bytes_print(&path, "%s.index.json", s->path);
    aril_status status = b.failed || failed || path.failed
                             ? aril__fail(ARIL_ERR_MEMORY, "out of memory saving %s", s->path)
                             : aril__file_replace((const char *)path.at, b.at, b.n);
    aril__bytes_free(&b);
    aril__bytes_free(&path);
    return status;
}

aril_status aril__weights_save_parts(const char *path, const aril_named *tensors,
                                     const aril__weights_kind *kind, const aril_metadata *metadata,
                                     int64_t most)
{
    split s = { .path = path, .t = tensors };
    aril_status status = assign(&s, most);
    for (int i = 0; i < s.n && status == ARIL_OK; i++) status = write_part(&s, i, kind, metadata);
    if (status == ARIL_OK) status = write_index(&s);
    free(s.in);
    return status;
}
