#include "data/words.h"

#include "core/error.h"
#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

void aril__words_free(aril__words *w)
{
    aril__texts_free(&w->text);
    free(w->count);
    free(w->slot);
    *w = (aril__words){ 0 };
}

static uint64_t hash(const char *p, size_t n)
{
    uint64_t h = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)p[i]) * UINT64_C(1099511628211);
    return h ^ h >> 29;
}

/* The hash slot of a word: where it is, or where it would be inserted. */
static size_t slot_of(const aril__words *w, const char *word, size_t n)
{
    size_t at = hash(word, n) & (w->slots - 1);
    for (; w->slot[at]; at = (at + 1) & (w->slots - 1)) {
        const char *there = w->text.at[w->slot[at] - 1];
        if (strncmp(there, word, n) == 0 && !there[n]) break;
    }
    return at;
}

int64_t aril__words_find(const aril__words *w, const char *word, size_t n)
{
    return w->slots ? w->slot[slot_of(w, word, n)] - 1 : -1;
}

static void fill_slots(aril__words *w)
{
    memset(w->slot, 0, w->slots * sizeof *w->slot);
    for (int64_t i = 0; i < w->text.n; i++)
        w->slot[slot_of(w, w->text.at[i], strlen(w->text.at[i]))] = i + 1;
}

static bool grow(aril__words *w)
{
    size_t slots = w->slots ? w->slots * 2 : 256;
    int64_t *slot = aril__malloc(slots * sizeof *slot);
    int64_t *count = aril__realloc(w->count, slots / 2 * sizeof *count);
    if (count) w->count = count;
    if (!slot || !count) {
        free(slot);
        return false;
    }
    free(w->slot);
    w->slot = slot;
    w->slots = slots;
    fill_slots(w);
    return true;
}

int64_t aril__words_add(aril__words *w, const char *word, size_t n)
{
    if ((size_t)w->text.n + 1 > w->slots / 2 && !grow(w))
        return aril__fail(ARIL_ERR_MEMORY, "out of memory for %lld words", (long long)w->text.n);
    size_t at = slot_of(w, word, n);
    if (!w->slot[at]) {
        char small[128], *copy = n < sizeof small ? small : aril__malloc(n + 1);
        if (!copy) return aril__fail(ARIL_ERR_MEMORY, "out of memory for a word of %zu bytes", n);
        memcpy(copy, word, n);
        copy[n] = 0;
        aril_status status = aril__texts_add(&w->text, copy);
        if (copy != small) free(copy);
        if (status != ARIL_OK) return status;
        w->slot[at] = w->text.n;
        w->count[w->text.n - 1] = 0;
    }
    w->count[w->slot[at] - 1]++;
    return w->slot[at] - 1;
}

struct sorting {
    const aril__words *w;
    int (*order)(const aril__words *w, int64_t a, int64_t b);
};

static int compare(const void *a, const void *b, void *ctx)
{
    const struct sorting *s = ctx;
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    int order = s->order(s->w, x, y);
    return order ? order : (x > y) - (x < y);
}

aril_status aril__words_sort(aril__words *w,
                             int (*order)(const aril__words *w, int64_t a, int64_t b),
                             int64_t *number)
{
    size_t n = (size_t)w->text.n;
    if (n == 0) return ARIL_OK;
    int64_t *sorted = aril__malloc(n * sizeof *sorted),
            *count = aril__malloc(w->slots / 2 * sizeof *count);
    char **text = aril__malloc((size_t)w->text.capacity * sizeof *text);
    if (!sorted || !count || !text) {
        free(sorted);
        free(count);
        free(text);
        return aril__fail(ARIL_ERR_MEMORY, "out of memory sorting %zu words", n);
    }
    for (size_t i = 0; i < n; i++) sorted[i] = (int64_t)i;
    struct sorting s = { w, order };
    qsort_r(sorted, n, sizeof *sorted, compare, &s);
    for (size_t i = 0; i < n; i++) {
        text[i] = w->text.at[sorted[i]];
        count[i] = w->count[sorted[i]];
        number[sorted[i]] = (int64_t)i;
    }
    free(sorted);
    free(w->text.at);
    free(w->count);
    w->text.at = text;
    w->count = count;
    fill_slots(w);
    return ARIL_OK;
}
