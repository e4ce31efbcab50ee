#include "data/files.h"

#include "core/error.h"
#include "core/memory.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

aril_status aril__texts_add(aril__texts *to, const char *name)
{
    if (to->n == to->capacity) {
        int64_t capacity = to->capacity ? to->capacity * 2 : 16;
        char **at = aril__realloc(to->at, (size_t)capacity * sizeof *at);
        if (!at)
            return aril__fail(ARIL_ERR_MEMORY, "out of memory for a list of %lld names",
                              (long long)capacity);
        to->at = at;
        to->capacity = capacity;
    }
    char *copy = aril__strdup(name);
    if (!copy) return aril__fail(ARIL_ERR_MEMORY, "out of memory for a name");
    to->at[to->n++] = copy;
    return ARIL_OK;
}

void aril__texts_free(aril__texts *n)
{
    for (int64_t i = 0; i < n->n; i++) free(n->at[i]);
    free(n->at);
    *n = (aril__texts){ 0 };
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

aril_status aril__list_folder(const char *path, aril__texts *to)
{
    DIR *folder = opendir(path);
    if (!folder) return aril__fail(ARIL_ERR_IO, "cannot read folder %s: %s", path, strerror(errno));
    int64_t begin = to->n;
    aril_status status = ARIL_OK;
    for (struct dirent *e; status == ARIL_OK && (e = readdir(folder));)
        if (e->d_name[0] != '.') status = aril__texts_add(to, e->d_name);
    closedir(folder);
    if (to->n > begin) qsort(to->at + begin, (size_t)(to->n - begin), sizeof *to->at, by_text);
    return status;
}

static mode_t kind(const char *folder, const char *name)
{
    char path[PATH_MAX];
    struct stat st;
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return n > 0 && (size_t)n < sizeof path && stat(path, &st) == 0 ? st.st_mode : 0;
}

bool aril__is_folder(const char *folder, const char *name)
{
    return S_ISDIR(kind(folder, name));
}

bool aril__is_file(const char *folder, const char *name)
{
    return S_ISREG(kind(folder, name));
}

aril_dataset *aril__no_split(const char *what, const char *split, const char *has)
{
    aril__fail(ARIL_ERR_ARG, "%s has no split \"%s\"; it has %s", what, split, has);
    return NULL;
}

aril_dataset *aril__with_classes(aril_dataset *d, int n, const char *const *names)
{
    if (!d || aril_dataset_set_classes(d, n, names) == ARIL_OK) return d;
    aril_dataset_release(d);
    return NULL;
}
