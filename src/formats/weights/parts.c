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

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_PARTS = 1000 }; /* files that can be mapped at a time */

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
    p->w =
        aril__weights_open_part(path, (aril_weights_opts){ .copy = w->copy, .verify = w->verify });
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
    aril_status s = check_name(w, file);
    if (s == ARIL_OK && all->n == MOST_PARTS)
        s = aril__weights_malformed(w, "it names more than %d files", MOST_PARTS);
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
    char **paths, *index_path;
    aril__file *index;
} split;

static aril_status out_of_memory(const split *s)
{
    return aril__fail(ARIL_ERR_MEMORY, "out of memory saving %s", s->path);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Assigns tensors in order: a part ends before it would become larger than `most`. */
static aril_status assign(split *s, int64_t most)
{
    uint64_t used = 0;
    s->in = aril__malloc(((size_t)s->t->n + 1) * sizeof *s->in);
    if (!s->in) return out_of_memory(s);
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
    if (s->n <= MOST_PARTS) return ARIL_OK;
    return aril__fail(ARIL_ERR_ARG,
                      "%s: parts of at most %lld bytes would be %d files; expected at most %d",
                      s->path, (long long)most, s->n, MOST_PARTS);
}

/* Where NAME ends and EXT begins in the path. */
static size_t stem_length(const char *path)
{
    const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
    return !dot || (slash && dot < slash) ? strlen(path) : (size_t)(dot - path);
}

/* NAME-00001-of-00003.EXT for each part; NAME.2-00001-of-00003.EXT in the second generation. */
static aril_status make_paths(split *s, int generation)
{
    size_t stem = stem_length(s->path), size = strlen(s->path) + 32;
    char number[16] = "";
    if (generation > 1) snprintf(number, sizeof number, ".%d", generation);
    for (int k = 0; k < s->n; k++) {
        if (!s->paths[k]) s->paths[k] = aril__malloc(size);
        if (!s->paths[k]) return out_of_memory(s);
        snprintf(s->paths[k], size, "%.*s%s-%05d-of-%05d%s", (int)stem, s->path, number, k + 1,
                 s->n, s->path + stem);
    }
    return ARIL_OK;
}

/* The parts of the first generation, and NAME.EXT.index.json. */
static aril_status first_paths(split *s)
{
    size_t size = strlen(s->path) + 32;
    s->paths = aril__calloc((size_t)s->n * sizeof *s->paths);
    s->index_path = aril__malloc(size);
    if (!s->paths || !s->index_path) return out_of_memory(s);
    snprintf(s->index_path, size, "%s.index.json", s->path);
    return make_paths(s, 1);
}

/* Whether no file has the name of a part. */
static bool are_free(const split *s)
{
    struct stat st;
    for (int k = 0; k < s->n; k++)
        if (lstat(s->paths[k], &st) == 0) return false;
    return true;
}

static aril_status write_part(const split *s, int k, const aril__weights_kind *kind,
                              const aril_metadata *metadata)
{
    size_t room = (size_t)s->t->n + 1;
    aril_tensor **at = aril__malloc(room * sizeof *at);
    const char **name = aril__malloc(room * sizeof *name);
    aril_status status = at && name ? ARIL_OK : out_of_memory(s);
    if (status == ARIL_OK) {
        int n = 0;
        for (int i = 0; i < s->t->n; i++)
            if (s->in[i] == k) at[n] = s->t->at[i], name[n++] = s->t->name[i];
        status = kind->save_part(s->index, s->paths[k], &(aril_named){ n, at, name }, metadata);
    }
    free(at);
    free(name);
    return status;
}

static aril_status write_index(const split *s)
{
    aril__bytes b = { 0 };
    aril__bytes_print(&b,
                      "{\n  \"metadata\": {\n    \"total_size\": %llu\n  },\n  \"weight_map\": {",
                      (unsigned long long)s->bytes);
    for (int i = 0; i < s->t->n; i++) {
        aril__bytes_print(&b, "%s\n    ", i ? "," : "");
        aril__bytes_json(&b, s->t->name[i]);
        aril__bytes_print(&b, ": ");
        aril__bytes_json(&b, base_name(s->paths[s->in[i]]));
    }
    aril__bytes_print(&b, "\n  }\n}\n");
    aril_status status = b.failed ? out_of_memory(s) : aril__file_write(s->index, b.at, b.n);
    aril__bytes_free(&b);
    return status;
}

/* Whether a file is named like a part of the same NAME.EXT, of any generation. */
static bool is_part_name(const split *s, const char *file)
{
    const char *own = base_name(s->path), pattern[] = "-00001-of-00003";
    size_t stem = stem_length(own), digits;
    if (strncmp(file, own, stem) != 0) return false;
    const char *at = file + stem;
    if (*at == '.') {
        digits = strspn(at + 1, "0123456789");
        if (digits == 0 || digits > 10 || at[1] == '0') return false;
        at += 1 + digits;
    }
    for (const char *c = pattern; *c; c++, at++)
        if (*c >= '0' && *c <= '9' ? *at < '0' || *at > '9' : *at != *c) return false;
    return strcmp(at, own + stem) == 0;
}

/* Lists of names: each with its 0. */
static bool has_name(const aril__bytes *list, const char *name)
{
    for (size_t i = 0; i < list->n; i += strlen((const char *)list->at + i) + 1)
        if (strcmp((const char *)list->at + i, name) == 0) return true;
    return false;
}

/* Appends the parts that an index names. False: it is no index, or cannot be read in full. */
static bool list_parts(const split *s, const char *index, aril__bytes *list)
{
    enum { LARGEST = 1 << 28 };
    aril__bytes text = { 0 };
    struct stat st;
    aril__saved_errors before = aril__errors_begin_quiet();
    bool good = stat(index, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= LARGEST &&
                aril__read_file("weights", index, 0, &text) == ARIL_OK;
    aril__error_release(aril__errors_end(&before));
    if (!good) {
        aril__bytes_free(&text);
        return false;
    }
    aril__json j = { .text = (const char *)text.at, .size = text.n };
    for (bool more = aril__json_enter(&j, '{'); more; more = aril__json_more(&j, '}')) {
        char *key = aril__json_key(&j);
        bool map = key && strcmp(key, "weight_map") == 0;
        free(key);
        if (!map) aril__json_skip(&j);
        for (more = map && aril__json_enter(&j, '{'); more; more = aril__json_more(&j, '}')) {
            char *name = aril__json_key(&j), *file = name ? aril__json_string(&j) : NULL;
            if (file && is_part_name(s, file) && !has_name(list, file))
                aril__bytes_add(list, file, strlen(file) + 1);
            free(name);
            free(file);
        }
    }
    good = aril__json_end(&j) && !list->failed;
    aril__bytes_free(&text);
    return good;
}

/* The path of a file in the folder of the parts. */
static bool path_of(const split *s, const char *file, char path[PATH_MAX])
{
    size_t folder = (size_t)(base_name(s->path) - s->path);
    int n = snprintf(path, PATH_MAX, "%.*s%s", (int)folder, s->path, file);
    return n > 0 && n < PATH_MAX;
}

/* Appends the parts that the indexes in the folder name, but for the own one if `others`. False: an
 * index cannot be read, and any part may be in use. */
static bool list_used(const split *s, bool others, aril__bytes *list)
{
    const char end[] = ".index.json", *own = base_name(s->index_path);
    char path[PATH_MAX];
    bool good = path_of(s, ".", path);
    DIR *dir = good ? opendir(path) : NULL;
    good = dir != NULL;
    for (struct dirent *e; good && (e = readdir(dir));) {
        size_t n = strlen(e->d_name);
        if (n < sizeof end || strcmp(e->d_name + n - (sizeof end - 1), end) != 0) continue;
        if (others && strcmp(e->d_name, own) == 0) continue;
        good = path_of(s, e->d_name, path) && list_parts(s, path, list);
    }
    if (dir) closedir(dir);
    return good;
}

/* Removes the parts of `old`, and those that killed processes left, unless an index names them. */
static void remove_unused(const split *s, const aril__bytes *old)
{
    aril__bytes used = { 0 };
    char path[PATH_MAX];
    DIR *dir = path_of(s, ".", path) && list_used(s, false, &used) ? opendir(path) : NULL;
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (is_part_name(s, e->d_name) && !has_name(&used, e->d_name) &&
            path_of(s, e->d_name, path) &&
            (has_name(old, e->d_name) || aril__file_is_unfinished(path)))
            unlink(path);
    if (dir) closedir(dir);
    aril__bytes_free(&used);
}

/* Marks the parts of the old index that no other names: should the process be killed once the new
 * index is there, the next one removes them. */
static void mark_old(const split *s, const aril__bytes *old, bool unfinished)
{
    aril__bytes used = { 0 };
    char path[PATH_MAX];
    bool known = list_used(s, true, &used);
    for (size_t i = 0; known && i < old->n; i += strlen((const char *)old->at + i) + 1) {
        const char *file = (const char *)old->at + i;
        if (!has_name(&used, file) && path_of(s, file, path)) aril__file_mark(path, unfinished);
    }
    aril__bytes_free(&used);
}

/* Replaces the set of before, while no other writer does so in the folder. */
static aril_status replace_parts(split *s)
{
    aril__bytes old = { 0 };
    aril_status status = ARIL_OK;
    int lock = aril__folder_lock(s->path);
    remove_unused(s, &old);
    list_parts(s, s->index_path, &old);
    for (int g = 2; status == ARIL_OK && !are_free(s); g++) status = make_paths(s, g);
    if (status == ARIL_OK) status = write_index(s);
    if (status == ARIL_OK) {
        mark_old(s, &old, true);
        status = aril__file_commit_parts(s->index, s->n, s->paths);
        if (status == ARIL_OK)
            remove_unused(s, &old);
        else
            mark_old(s, &old, false);
    } else {
        aril__file_abandon(s->index);
    }
    aril__folder_unlock(lock);
    aril__bytes_free(&old);
    return status;
}

aril_status aril__weights_save_parts(const char *path, const aril_named *tensors,
                                     const aril__weights_kind *kind, const aril_metadata *metadata,
                                     int64_t most)
{
    split s = { .path = path, .t = tensors };
    aril_status status = assign(&s, most);
    if (status == ARIL_OK) status = first_paths(&s);
    if (status == ARIL_OK) {
        s.index = aril__file_begin(s.index_path);
        if (!s.index) status = aril__latest_status();
    }
    for (int i = 0; i < s.n && status == ARIL_OK; i++) status = write_part(&s, i, kind, metadata);
    if (status == ARIL_OK)
        status = replace_parts(&s);
    else
        aril__file_abandon(s.index);
    for (int i = 0; s.paths && i < s.n; i++) free(s.paths[i]);
    free(s.paths);
    free(s.index_path);
    free(s.in);
    return status;
}
