/* Published weights in the cache. */
#include "aril/zoo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool aril_zoo_weights_path(const aril_zoo_entry *e, char *buf, size_t size)
{
    const char *named = getenv("ARIL_CACHE"), *user = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    const char *slash = e && e->weights.url ? strrchr(e->weights.url, '/') : NULL;
    int n = -1;
    if (!slash || !buf || !size) return false;
    if (named && *named)
        n = snprintf(buf, size, "%s%s", named, slash);
    else if (user && *user)
        n = snprintf(buf, size, "%s/aril%s", user, slash);
    else if (home && *home)
        n = snprintf(buf, size, "%s/.cache/aril%s", home, slash);
    return n > 0 && (size_t)n < size && access(buf, R_OK) == 0;
}
