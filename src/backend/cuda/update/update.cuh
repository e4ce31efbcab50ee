/* Optimizer updates: what the kernels take, and the tables in which they are found. */
#ifndef ARIL_CUDA_UPDATE_CUH
#define ARIL_CUDA_UPDATE_CUH

#include "backend/cuda/attrs.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/loops.cuh"
#include "ops/update/update.h"

enum {
    ARIL_CUDA_UPDATE_ITEMS = 200, /* parameters of a launch: its arguments are below 32 KB */
    ARIL_CUDA_UPDATE_THREADS = 256,
    ARIL_CUDA_UPDATE_CHUNK = 4096 /* elements of a block */
};

/* One parameter: p, grad, the slots of its rule, master; as in ops/update/update.h. */
struct aril_cuda_update_item {
    void *at[ARIL__ITEM]; /* NULL: absent, or a scalar slot */
    int64_t n;
    uint8_t dtype[ARIL__ITEM];
    uint8_t present; /* 1 << i: slot i of the rule is there */
    uint8_t vectors; /* all are aligned to 4 elements */
};

/* The parameters of a launch. Item i has the blocks first[i] .. first[i + 1] - 1. */
struct aril_cuda_update_table {
    int n;
    int strided; /* the only item has strides: `nest` */
    uint32_t first[ARIL_CUDA_UPDATE_ITEMS + 1];
    aril_cuda_update_item item[ARIL_CUDA_UPDATE_ITEMS];
    aril_cuda_nest<ARIL__ITEM> nest;
};

/* Constants: by value, or made on the device, there one for each item or one for all. */
struct aril_cuda_update_numbers {
    aril__update_constants host;
    const aril__update_constants *device; /* NULL: `host` */
    int each;
};

/* Arguments of the kernels: (table, numbers), and for norms a double * for two sums per block. */
extern const void *const aril_cuda_update_f32[ARIL__RULES];
extern const void *const aril_cuda_update_f64[ARIL__RULES];
extern const void *const aril_cuda_norms_f32[ARIL__RULES]; /* NULL: a rule without norms */
extern const void *const aril_cuda_norms_f64[ARIL__RULES];

aril_status aril_cuda_update_run(aril_run *r);
size_t aril_cuda_update_bytes(const aril_run *r);
aril_status aril_cuda_update_norms_run(aril_run *r);
size_t aril_cuda_update_norms_bytes(const aril_run *r);

#endif
