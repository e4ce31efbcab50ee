/* Kernels of ops that index. */
#ifndef ARIL_CPU_INDEX_KERNELS_H
#define ARIL_CPU_INDEX_KERNELS_H

#include "ops/table/op.h"

aril_status aril__cpu_gather(aril__run *r);
aril_status aril__cpu_scatter(aril__run *r);
aril_status aril__cpu_scatter_add(aril__run *r);
aril_status aril__cpu_scatter_mul(aril__run *r);
aril_status aril__cpu_scatter_max(aril__run *r);
aril_status aril__cpu_scatter_min(aril__run *r);
aril_status aril__cpu_index(aril__run *r);
aril_status aril__cpu_index_select(aril__run *r);
aril_status aril__cpu_index_put(aril__run *r);
aril_status aril__cpu_index_put_add(aril__run *r);
aril_status aril__cpu_embedding(aril__run *r);
aril_status aril__cpu_embedding_grad(aril__run *r);
aril_status aril__cpu_nonzero(aril__run *r);
aril_status aril__cpu_masked_select(aril__run *r);
aril_status aril__cpu_masked_scatter(aril__run *r);
aril_status aril__cpu_masked_scatter_grad(aril__run *r);
aril_status aril__cpu_embedding_bag(aril__run *r);
aril_status aril__cpu_embedding_bag_grad(aril__run *r);
aril_status aril__cpu_embedding_bag_scale_grad(aril__run *r);
aril_status aril__cpu_embedding_bag_argmax(aril__run *r);

/* Bytes of memory that they need. */
size_t aril__cpu_index_scratch(const aril__run *r);
size_t aril__cpu_index_select_scratch(const aril__run *r); /* also embedding and its gradient */
size_t aril__cpu_index_put_scratch(const aril__run *r);    /* also index_put_add */
size_t aril__cpu_nonzero_scratch(const aril__run *r);
size_t aril__cpu_masked_scatter_scratch(const aril__run *r);

#endif
