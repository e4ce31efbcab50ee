#include "train/owned.h"

#include "aril/error.h"
#include "aril/formats.h"
#include "core/error.h"
#include "core/memory.h"
#include "formats/atomic_file.h"
#include "formats/bytes.h"
#include "train/digest.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char list_name[] = ".checkpoint-files";
enum { DIGITS = 16, LONGEST_LIST = 1 << 20 };

static bool path_of(char path[PATH_MAX], const char *dir, const char *name)
{
    return snprintf(path, PATH_MAX, "%s/%s", dir, name) < PATH_MAX;
}

bool aril__is_weights_name(const char *name)
{
    size_t n = strlen(name), tail = strlen(".safetensors");
    return strncmp(name, "weights-", 8) == 0 && n > tail && n <= NAME_MAX &&
           strcmp(name + n - tail, ".safetensors") == 0 && strchr(name, '/') == NULL;
}

aril_status aril__owned_add(aril__owned *list, const char *name, uint64_t digest)
{
    if (list->n == list->capacity) {
        int capacity = list->capacity > 0 ? list->capacity * 2 : 4;
        struct aril__owned_file *at = aril__realloc(list->at, (size_t)capacity * sizeof *at);
        if (at == NULL) return aril__fail(ARIL_ERR_MEMORY, "out of memory saving a checkpoint");
        list->at = at;
        list->capacity = capacity;
    }
    struct aril__owned_file *f = &list->at[list->n++];
    snprintf(f->name, sizeof f->name, "%s", name);
    f->digest = digest;
    return ARIL_OK;
}

void aril__owned_free(aril__owned *list)
{
    free(list->at);
    *list = (aril__owned){ 0 };
}

/* ---- the list: one line "DIGEST NAME" per file ---- */

/* Ignores invalid lines: nothing is removed because of them. */
static aril_status add_line(aril__owned *list, const char *line)
{
    char *end;
    uint64_t digest = strtoull(line, &end, 16);
    if (end != line + DIGITS || *end != ' ' || !aril__is_weights_name(end + 1)) return ARIL_OK;
    return aril__owned_add(list, end + 1, digest);
}

aril_status aril__owned_read(const char *dir, aril__owned *list)
{
    char path[PATH_MAX];
    if (!path_of(path, dir, list_name) || access(path, F_OK) != 0) return ARIL_OK;
    aril__bytes b = { 0 };
    aril_status status = aril__read_file("checkpoint", path, LONGEST_LIST, &b);
    char *rest = (char *)b.at;
    for (char *line; status == ARIL_OK && rest && (line = strsep(&rest, "\n"));)
        status = add_line(list, line);
    aril__bytes_free(&b);
    return status;
}

aril_status aril__owned_write(const char *dir, const aril__owned *list)
{
    char path[PATH_MAX];
    if (!path_of(path, dir, list_name))
        return aril__fail(ARIL_ERR_ARG, "the path of the checkpoint '%.80s...' is too long", dir);
    aril__bytes b = { 0 };
    for (int i = 0; i < list->n; i++)
        aril__bytes_print(&b, "%016llx %s\n", (unsigned long long)list->at[i].digest,
                          list->at[i].name);
    aril_status status = b.failed ? aril__fail(ARIL_ERR_MEMORY, "out of memory saving a checkpoint")
                                  : aril__file_replace(path, b.at, b.n);
    aril__bytes_free(&b);
    return status;
}

/* ---- the files ---- */

static bool has_digest(aril_safetensors *f, uint64_t digest)
{
    const char *stored = aril_safetensors_get(f, ARIL__OWNED_DIGEST);
    uint64_t is = 0;
    if (stored != NULL) return strtoull(stored, NULL, 16) == digest;
    /* Earlier versions did not store the digest in the file. */
    const aril_named *all = aril_safetensors_all(f);
    return all != NULL && aril__digest_named(all, &is) == ARIL_OK && is == digest;
}

/* Whether the file with that name is the listed one. */
static bool is_listed(const char *dir, const struct aril__owned_file *file)
{
    char path[PATH_MAX];
    struct stat st;
    if (!path_of(path, dir, file->name) || lstat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return false;
    bool clean = aril_ok(); /* an unreadable file is not ours; not an error */
    aril_safetensors *f = aril_safetensors_open(path);
    bool listed = f != NULL && has_digest(f, file->digest);
    aril_safetensors_close(f);
    if (clean) aril_clear_error();
    return listed;
}

bool aril__owned_may_write(const char *dir, const aril__owned *list, const char *name)
{
    char path[PATH_MAX];
    struct stat st;
    if (!path_of(path, dir, name)) return true; /* writing will fail and report it */
    if (lstat(path, &st) != 0) return errno == ENOENT;
    for (int i = 0; i < list->n; i++)
        if (strcmp(list->at[i].name, name) == 0 && is_listed(dir, &list->at[i])) return true;
    return false;
}

/* Whether it is a partial file ".NAME.newN" left by a killed writer. */
static bool is_half(const char *entry, const char *name)
{
    size_t n = strlen(name);
    if (entry[0] != '.' || strncmp(entry + 1, name, n) != 0) return false;
    const char *tail = entry + 1 + n;
    return strncmp(tail, ".new", 4) == 0 && tail[4] != '\0' &&
           strspn(tail + 4, "0123456789") == strlen(tail + 4);
}

static void remove_halves(const char *dir, const aril__owned *list)
{
    DIR *d = opendir(dir);
    if (d == NULL) return;
    char path[PATH_MAX];
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        bool half = false;
        for (int i = 0; i < list->n && !half; i++) half = is_half(e->d_name, list->at[i].name);
        if (half && path_of(path, dir, e->d_name)) unlink(path);
    }
    closedir(d);
}

void aril__owned_remove(const char *dir, const aril__owned *list, const char *keep)
{
    char path[PATH_MAX];
    for (int i = 0; i < list->n; i++)
        if (strcmp(list->at[i].name, keep) != 0 && is_listed(dir, &list->at[i]) &&
            path_of(path, dir, list->at[i].name))
            unlink(path);
    remove_halves(dir, list);
    if (path_of(path, dir, list_name)) unlink(path);
}
