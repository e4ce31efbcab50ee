/* Names of tensors: rules that change them, and the prefixes of wrappers. */
#include "formats/weights/weights.h"

#include "core/error.h"

#include <string.h>

enum { MOST_STARS = 16 };

/* What a '*' of a pattern matched. */
typedef struct piece {
    const char *at;
    size_t n;
} piece;

/* Matches all of `name`. Each '*' takes as little text as possible, the last one what is left. This
 * is linear in each '*': going back to the latest one is enough. */
static bool match(const char *pattern, const char *name, piece *pieces, int *n)
{
    const char *star = NULL, *resume = NULL;
    *n = 0;
    while (*name || *pattern) {
        if (*pattern == '*') {
            if (*n == MOST_STARS) return false;
            pieces[(*n)++] = (piece){ name, 0 };
            star = ++pattern;
            resume = name;
        } else if (*pattern && *pattern == *name) {
            pattern++;
            name++;
        } else if (star && *resume) {
            piece *p = &pieces[*n - 1];
            pattern = star;
            name = ++resume;
            p->n = (size_t)(name - p->at);
        } else {
            return false;
        }
    }
    return true;
}

/* Writes `to` with the pieces for its '*'. False if it does not fit. */
static bool fill(const char *to, const piece *pieces, int n, char *buf, size_t size)
{
    size_t used = 0;
    int star = 0;
    for (; *to; to++) {
        piece p = { to, 1 };
        if (*to == '*') p = star < n ? pieces[star++] : (piece){ to, 0 };
        if (p.n >= size - used) return false;
        memcpy(buf + used, p.at, p.n);
        used += p.n;
    }
    buf[used] = '\0';
    return true;
}

enum { LONGEST = 4096 };

static aril_status too_long(const char *name)
{
    return aril__fail(ARIL_ERR_ARG, "the name %.60s... becomes too long", name);
}

aril_status aril__rename(const char *name, const aril_rename *rules, char *buf, size_t size)
{
    char other[LONGEST];
    if (size > LONGEST) size = LONGEST;
    if (strlen(name) >= size) return too_long(name);
    memcpy(buf, name, strlen(name) + 1);
    for (; rules && rules->from && *buf; rules++) {
        piece pieces[MOST_STARS];
        int n;
        if (!match(rules->from, buf, pieces, &n)) continue;
        if (!fill(rules->to ? rules->to : "", pieces, n, other, size)) return too_long(name);
        memcpy(buf, other, strlen(other) + 1);
    }
    return ARIL_OK;
}

const char *aril_renamed(const char *name, const aril_rename *rules, char *buf, size_t size)
{
    if (!name || !buf || size == 0) {
        aril__fail(ARIL_ERR_ARG, "renamed: no name");
        return NULL;
    }
    return aril__rename(name, rules, buf, size) == ARIL_OK && *buf ? buf : NULL;
}

void aril__unwrap_compiled(char *name)
{
    static const char compiled[] = "_orig_mod.";
    const size_t n = sizeof compiled - 1;
    for (char *at = name; (at = strstr(at, compiled));) {
        if (at == name || at[-1] == '.')
            memmove(at, at + n, strlen(at + n) + 1);
        else
            at += n;
    }
}

bool aril__unwrap_parallel(char *name)
{
    static const char parallel[] = "module.";
    const size_t n = sizeof parallel - 1;
    if (strncmp(name, parallel, n) != 0) return false;
    memmove(name, name + n, strlen(name + n) + 1);
    return true;
}
