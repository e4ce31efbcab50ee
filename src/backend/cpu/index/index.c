#include "ops/index/index.h"

#include "backend/cpu/index/indexing.h"
#include "backend/cpu/index/kernels.h"
#include "ops/shape/copy.h"

#include <string.h>

/* ---- reading ---- */

static aril_status read_picked(aril__run *r, int64_t mask)
{
    aril__indexing p;
    int64_t *offsets = r->workspace;
    aril_status s = aril__indexing_shape(r->op->name, r->in[0], mask, r->n_in - 1, r->in + 1, &p);
    if (s == ARIL_OK)
        s = aril__indexing_offsets(r->op->name, r->in[0], &p, r->n_in - 1, r->in + 1, offsets);
    if (s < 0) return s;
    aril__indexing_read(r->out[0], r->in[0], &p, offsets);
    return ARIL_OK;
}

/* Bytes of an offset for each position of the index dimensions. */
static size_t offsets_bytes(const aril__run *r, const aril_tensor *x, int64_t mask, int first)
{
    aril__indexing p;
    if (aril__indexing_shape(r->op->name, x, mask, r->n_in - first, r->in + first, &p) < 0)
        return 0;
    return (size_t)aril__count(p.nb, p.dim + p.at) * sizeof(int64_t);
}

aril_status aril__cpu_index(aril__run *r)
{
    return read_picked(r, ((const struct index_attrs *)r->attrs)->mask[0]);
}

size_t aril__cpu_index_scratch(const aril__run *r)
{
    return offsets_bytes(r, r->in[0], ((const struct index_attrs *)r->attrs)->mask[0], 1);
}

/* index_select, embedding and its gradient: an offset for each index. */
size_t aril__cpu_index_select_scratch(const aril__run *r)
{
    return (size_t)r->in[1]->numel * sizeof(int64_t);
}

aril_status aril__cpu_index_select(aril__run *r)
{
    return read_picked(r, 1 << ((const struct index_select_attrs *)r->attrs)->axis[0]);
}

aril_status aril__cpu_embedding(aril__run *r)
{
    aril_status s = aril__cpu_check_indices("embedding", r->in[1], r->in[0]->dim[0], 0, false);
    return s < 0 ? s : read_picked(r, 1);
}

/* ---- writing ---- */

static aril_status write_picked(aril__run *r, bool add)
{
    const struct index_attrs *a = r->attrs;
    aril_tensor *out = r->out[0];
    aril__indexing p;
    int64_t *offsets = r->workspace;
    aril_status s = aril__indexing_shape(r->op->name, out, a->mask[0], r->n_in - 2, r->in + 2, &p);
    if (s == ARIL_OK)
        s = aril__indexing_offsets(r->op->name, out, &p, r->n_in - 2, r->in + 2, offsets);
    if (s < 0) return s;
    if (out != r->in[0]) aril__copy_elements(out, r->in[0]);
    int64_t *spare = offsets + aril__count(p.nb, p.dim + p.at);
    aril__indexing_write(out, r->in[1], &p, offsets, add, spare);
    return ARIL_OK;
}

/* The offsets of both tensors. */
size_t aril__cpu_index_put_scratch(const aril__run *r)
{
    return 2 * offsets_bytes(r, r->out[0], ((const struct index_attrs *)r->attrs)->mask[0], 2);
}

aril_status aril__cpu_index_put(aril__run *r)
{
    return write_picked(r, false);
}

aril_status aril__cpu_index_put_add(aril__run *r)
{
    return write_picked(r, true);
}

aril_status aril__cpu_embedding_grad(aril__run *r)
{
    int64_t padding = ((const struct embedding_attrs *)r->attrs)->padding[0];
    aril_tensor *out = r->out[0];
    aril__indexing p;
    int64_t *offsets = r->workspace;
    aril_status s = aril__indexing_shape("embedding_grad", out, 1, 1, r->in + 1, &p);
    if (s == ARIL_OK)
        s = aril__cpu_check_indices("embedding_grad", r->in[1], out->dim[0], 0, false);
    if (s == ARIL_OK) s = aril__indexing_offsets("embedding_grad", out, &p, 1, r->in + 1, offsets);
    if (s < 0) return s;
    const int64_t *index = aril__ptr(r->in[1]);
    for (int64_t i = 0; i < r->in[1]->numel && padding >= 0; i++)
        if (index[i] == padding) offsets[i] = ARIL__FETCH_SKIP;
    memset(aril__ptr(out), 0, aril__dtype_bytes((aril_dtype)out->dtype, out->numel));
    aril__indexing_write(out, r->in[0], &p, offsets, true, NULL); /* of a contiguous gradient */
    return ARIL_OK;
}
