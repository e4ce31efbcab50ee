#include "core/loops.h"

static void swap_dims(aril__loops *n, int a, int b)
{
    int64_t t = n->dim[a];
    n->dim[a] = n->dim[b];
    n->dim[b] = t;
    for (int k = 0; k < n->n; k++) {
        t = n->stride[k][a];
        n->stride[k][a] = n->stride[k][b];
        n->stride[k][b] = t;
    }
}

static int64_t magnitude(int64_t v)
{
    return v < 0 ? -v : v;
}

void aril__loops_merge(aril__loops *n, int by)
{
    const int64_t *key = n->stride[by];
    int kept = 0;
    for (int i = 1; i < n->ndim; i++)
        for (int k = i; k > 0 && magnitude(key[k]) > magnitude(key[k - 1]); k--)
            swap_dims(n, k, k - 1);
    for (int i = 0; i < n->ndim; i++) {
        if (n->dim[i] == 1) continue;
        bool merges = kept > 0;
        for (int k = 0; k < n->n && merges; k++)
            merges = n->stride[k][kept - 1] == n->dim[i] * n->stride[k][i];
        int to = merges ? kept - 1 : kept++;
        n->dim[to] = merges ? n->dim[to] * n->dim[i] : n->dim[i];
        for (int k = 0; k < n->n; k++) n->stride[k][to] = n->stride[k][i];
    }
    n->ndim = kept;
}

void aril__loops_seek(const aril__loops *n, aril__loops_at *p, int64_t at, const int64_t *base)
{
    for (int k = 0; k < n->n; k++) p->offset[k] = base[k];
    for (int d = n->ndim - 1; d >= 0; d--) {
        p->index[d] = at % n->dim[d];
        at /= n->dim[d];
        for (int k = 0; k < n->n; k++) p->offset[k] += p->index[d] * n->stride[k][d];
    }
}
