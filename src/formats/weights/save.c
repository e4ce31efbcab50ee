/* Writing weights: the kind of file, and checks that all kinds share. */
#include "formats/weights/weights.h"

#include "core/error.h"
#include "core/memory.h"
#include "core/tensor.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Whether one of the words in `list`, separated by blanks, is `word`. */
static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; n && at && (at = strstr(at, word)); at += n)
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return true;
    return false;
}

const aril__weights_kind *aril__weights_kind_for(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL, *name = slash ? slash + 1 : path;
    const char *dot = name ? strrchr(name, '.') : NULL;
    for (int i = 0; dot && aril__weights_kinds[i]; i++) {
        const aril__weights_kind *k = aril__weights_kinds[i];
        if (k->save && has_word(k->extensions, dot)) return k;
    }
    return NULL;
}

static const aril__weights_kind *kind_named(const char *id)
{
    for (int i = 0; aril__weights_kinds[i]; i++)
        if (aril__weights_kinds[i]->save && strcmp(aril__weights_kinds[i]->id, id) == 0)
            return aril__weights_kinds[i];
    return NULL;
}

static aril_status no_kind(const char *path, const char *id)
{
    char text[256] = "";
    for (int i = 0; aril__weights_kinds[i]; i++) {
        const aril__weights_kind *k = aril__weights_kinds[i];
        size_t n = strlen(text);
        if (k->save)
            snprintf(text + n, sizeof text - n, "%s%s", n ? ", " : "", id ? k->id : k->extensions);
    }
    return id ? aril__fail(ARIL_ERR_ARG, "%s: no weights are written as \"%s\"; expected one of %s",
                           path, id, text)
              : aril__fail(ARIL_ERR_ARG,
                           "%s: its extension names no kind of weights that can be written; "
                           "expected one of %s",
                           path, text);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static aril_status check_names(const char *path, const aril_named *t)
{
    for (int i = 0; i < t->n; i++)
        if (!t->name[i]) return aril__fail(ARIL_ERR_ARG, "%s: tensor %d has no name", path, i);
    const char **sorted = aril__malloc(((size_t)t->n + 1) * sizeof *sorted);
    if (!sorted) return aril__fail(ARIL_ERR_MEMORY, "out of memory saving %s", path);
    for (int i = 0; i < t->n; i++) sorted[i] = t->name[i];
    qsort(sorted, (size_t)t->n, sizeof *sorted, by_text);
    aril_status s = ARIL_OK;
    for (int i = 1; i < t->n && s == ARIL_OK; i++)
        if (strcmp(sorted[i - 1], sorted[i]) == 0)
            s = aril__fail(ARIL_ERR_ARG, "%s: two tensors are named %s", path, sorted[i]);
    free(sorted);
    return s;
}

/* Gives unnamed tensors the names "0", "1" ... in memory that the caller frees. */
static aril_status with_names(const char *path, const aril_named *t, aril_named *named,
                              void **memory)
{
    enum { LONGEST = 12 };
    *named = *t;
    *memory = NULL;
    if (t->name || !t->n) return ARIL_OK;
    *memory = aril__malloc((size_t)t->n * (sizeof(char *) + LONGEST));
    if (!*memory) return aril__fail(ARIL_ERR_MEMORY, "out of memory saving %s", path);
    const char **name = *memory;
    char *text = (char *)(name + t->n);
    for (int i = 0; i < t->n; i++, text += LONGEST) {
        snprintf(text, LONGEST, "%d", i);
        name[i] = text;
    }
    named->name = name;
    return ARIL_OK;
}

/* Readers of weights need to seek; and a pipe would wait for one. */
static aril_status check_file(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0 || S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) return ARIL_OK;
    return aril__fail(ARIL_ERR_IO, "cannot write weights to %s: it is not a regular file", path);
}

aril_status aril_weights_save(const char *path, const aril_named *tensors,
                              aril_weights_save_opts opts)
{
    bool none = !tensors || tensors->n < 0 || (tensors->n > 0 && !tensors->at);
    if (!path || !*path || none)
        return aril__fail(ARIL_ERR_ARG, "weights_save: no %s", none ? "tensors" : "file name");
    if (opts.max_part < 0)
        return aril__fail(ARIL_ERR_ARG,
                          "%s: parts of at most %lld bytes; expected a positive number, or 0 for "
                          "one file",
                          path, (long long)opts.max_part);
    const aril__weights_kind *kind =
        opts.kind ? kind_named(opts.kind) : aril__weights_kind_for(path);
    if (!kind) return no_kind(path, opts.kind);
    aril_named named;
    void *memory = NULL;
    aril_status s = check_file(path);
    if (s != ARIL_OK) return s;
    s = with_names(path, tensors, &named, &memory);
    if (s == ARIL_OK && named.name) s = check_names(path, &named);
    for (int i = 0; i < named.n && s == ARIL_OK; i++)
        s = aril__check_value(named.name[i], named.at[i]);
    if (s == ARIL_OK && opts.max_part > 0 && !kind->save_part)
        s = aril__fail(ARIL_ERR_ARG, "%s: only safetensors and PyTorch's files have parts", path);
    if (s == ARIL_OK)
        s = opts.max_part > 0
                ? aril__weights_save_parts(path, &named, kind, opts.metadata, opts.max_part)
                : kind->save(path, &named, opts.metadata);
    free(memory);
    return s;
}
