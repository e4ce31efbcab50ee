/* Finds the closest known word, for messages that ask "did you mean ...?". */
#include "aril/error.h"

#include <string.h>

enum { LONGEST = 62 };

/* Edit distance: letters changed, inserted, deleted or swapped with a neighbor. */
static int distance(const char *a, const char *b)
{
    int rows[3][LONGEST + 1];
    int n = (int)strlen(b), m = (int)strlen(a);
    if (n > LONGEST || m > LONGEST) return LONGEST + 1;
    for (int k = 0; k <= n; k++) rows[0][k] = k;
    for (int i = 1; i <= m; i++) {
        int *row = rows[i % 3];
        const int *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        row[0] = i;
        for (int k = 1; k <= n; k++) {
            int best = last[k - 1] + (a[i - 1] != b[k - 1]);
            if (last[k] + 1 < best) best = last[k] + 1;
            if (row[k - 1] + 1 < best) best = row[k - 1] + 1;
            if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1] &&
                before[k - 2] + 1 < best)
                best = before[k - 2] + 1;
            row[k] = best;
        }
    }
    return rows[m % 3][n];
}

const char *aril_nearest(const char *word, const char *const *words, int n)
{
    if (!word || !words) return NULL;
    size_t length = strlen(word);
    /* A typo in a short word easily gives another word; a long word tolerates more. */
    int allowed = length < 4 ? 1 : length < 8 ? 2 : 3;
    const char *near = NULL;
    for (int i = 0; i < n; i++) {
        int d = words[i] ? distance(word, words[i]) : LONGEST + 1;
        if (d > allowed) continue;
        allowed = d - 1;
        near = words[i];
    }
    if (near || length < 3) return near;
    for (int i = 0; i < n && !near; i++) /* it may be a prefix of one */
        if (words[i] && strncmp(words[i], word, length) == 0) near = words[i];
    return near;
}
