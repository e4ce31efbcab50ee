#include "ops/index/index.h"

#include "backend/cpu/index/indexing.h"
#include "backend/cpu/index/kernels.h"
#include "ops/shape/copy.h"

#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

static aril_status read_picked(aril__run *r, int64_t mask)
{
    aril__indexing p;
    int64_t *offsets;
    aril_status s = aril__indexing_shape(r->op->name, r->in[0], mask, r->n_in - 1, r->in + 1, &p);
    if (s == ARIL_OK)
        s = aril__indexing_offsets(r->op->name, r->in[0], &p, r->n_in - 1, r->in + 1, &offsets);
    if (s < 0) return s;
    aril__indexing_read(r->out[0], r->in[0], &p, offsets);
    free(offsets);
    return ARIL_OK;
}

aril_status aril__cpu_index(aril__run *r)
{
    return read_picked(r, ((const struct index_attrs *)r->attrs)->mask[0]);
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
    int64_t *offsets;
    aril_status s = aril__indexing_shape(r->op->name, out, a->mask[0], r->n_in - 2, r->in + 2, &p);
    if (s == ARIL_OK)
        s = aril__indexing_offsets(r->op->name, out, &p, r->n_in - 2, r->in + 2, &offsets);
    if (s < 0) return s;
    if (out != r->in[0]) aril__copy_elements(out, r->in[0]);
    s = aril__indexing_write(out, r->in[1], &p, offsets, add);
    free(offsets);
    return s;
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
    int64_t *offsets;
    aril_status s = aril__indexing_shape("embedding_grad", out, 1, 1, r->in + 1, &p);
    if (s == ARIL_OK)
        s = aril__cpu_check_indices("embedding_grad", r->in[1], out->dim[0], 0, false);
    if (s == ARIL_OK) s = aril__indexing_offsets("embedding_grad", out, &p, 1, r->in + 1, &offsets);
    if (s < 0) return s;
    const int64_t *index = aril__ptr(r->in[1]);
    for (int64_t i = 0; i < r->in[1]->numel && padding >= 0; i++)
        if (index[i] == padding) offsets[i] = ARIL__FETCH_SKIP;
    memset(aril__ptr(out), 0, aril__dtype_bytes((aril_dtype)out->dtype, out->numel));
    s = aril__indexing_write(out, r->in[0], &p, offsets, true);
    free(offsets);
    return s;
}
