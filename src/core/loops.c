#include "core/loops.h"

static void swap(int64_t *a, int64_t *b)
{
    int64_t t = *a;
    *a = *b;
    *b = t;
}

static int64_t magnitude(int64_t v)
{
    return v < 0 ? -v : v;
}

int aril__strides_merge(int ndim, int64_t *dim, int n, int64_t (*stride)[ARIL_MAX_DIMS], int by)
{
    const int64_t *key = stride[by];
    int kept = 0;
    for (int i = 1; i < ndim; i++)
        for (int d = i; d > 0 && magnitude(key[d]) > magnitude(key[d - 1]); d--) {
            swap(&dim[d], &dim[d - 1]);
            for (int k = 0; k < n; k++) swap(&stride[k][d], &stride[k][d - 1]);
        }
    for (int i = 0; i < ndim; i++) {
        if (dim[i] == 1) continue;
        bool merges = kept > 0;
        for (int k = 0; k < n && merges; k++) merges = stride[k][kept - 1] == dim[i] * stride[k][i];
        int to = merges ? kept - 1 : kept++;
        dim[to] = merges ? dim[to] * dim[i] : dim[i];
        for (int k = 0; k < n; k++) stride[k][to] = stride[k][i];
    }
    return kept;
}

void aril__loops_merge(aril__loops *n, int by)
{
    n->ndim = aril__strides_merge(n->ndim, n->dim, n->n, n->stride, by);
}

void aril__loops_swap(aril__loops *n, int d, int e)
{
    swap(&n->dim[d], &n->dim[e]);
    for (int k = 0; k < n->n; k++) swap(&n->stride[k][d], &n->stride[k][e]);
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
