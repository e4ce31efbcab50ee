/* The loop that all reductions share: rows of outputs, or runs of inputs, of any strides and dtype.
 * Work is split by size alone, so results do not depend on the number of threads. */
#ifndef ARIL_CPU_REDUCE_LOOP_H
#define ARIL_CPU_REDUCE_LOOP_H

#include "ops/table/op.h"

/* Parameters that a reducer's functions may need. */
typedef struct aril__reduce_params {
    double p;      /* the order of a norm, the correction of a variance */
    int64_t count; /* elements reduced into each output */
} aril__reduce_params;

/* A fold of elements: see `across` and `along` of aril__reducer. */
typedef void aril__fold_fn(const aril__reduce_params *p, void *s, int64_t plane, const void *x,
                           int64_t pitch, int64_t n, int64_t m, int64_t at);

/* Folds of elements that need no conversion (backend/cpu/reduce/reduce_native.h). */
typedef enum aril__native_fold {
    ARIL__NATIVE_NONE,
    ARIL__NATIVE_SUM,
    ARIL__NATIVE_PROD,
    ARIL__NATIVE_MAX,
    ARIL__NATIVE_MIN,
    ARIL__NATIVE_COUNT,
    ARIL__NATIVE_FOLDS
} aril__native_fold;

typedef struct aril__reduce_native {
    aril__fold_fn *across, *along;
} aril__reduce_native;

/* Folds elements into states of `planes` 8-byte numbers: number k of state i is at s[k * plane +
 * i]. Elements are passed as the ctype `in`. */
typedef struct aril__reducer {
    int planes;
    aril__ctype in;
    aril__ctype out[2]; /* after `finish`: ctypes of planes 0 and 1, which are results 0 and 1 */
    /* Initializes m empty states; positions start at `at`. */
    void (*start)(const aril__reduce_params *p, void *s, int64_t plane, int64_t m, int64_t at);
    /* State i of m (at most ARIL__REDUCE_ROW) accumulates x[k * pitch + i] for k in [0, n), which
     * is at position at + k. */
    aril__fold_fn *across;
    /* State i of m accumulates x[i * pitch + k] for k in [0, n), which is at position at + k. */
    aril__fold_fn *along;
    /* Merges state i of `later` into state i. */
    void (*merge)(const aril__reduce_params *p, void *s, int64_t plane, const void *later,
                  int64_t later_plane, int64_t m);
    /* Turns states into results; NULL if they already are. */
    void (*finish)(const aril__reduce_params *p, void *s, int64_t plane, int64_t m);
    bool ordered;             /* uses positions: elements must come with their own */
    int weight;               /* cost of an element, in additions; 0 counts as 1 */
    aril__native_fold native; /* gives the same states from elements as they are */
} aril__reducer;

enum { ARIL__REDUCE_ROW = 1024, ARIL__REDUCE_PLANES = 3 };

/* Reduces `in` to out[0] (and out[1] of the same shape if n_out is 2) over the axes of the mask,
 * which have size 1 in the outputs or are missing there. Fills in params.count. `scratch`: as many
 * bytes as aril__reduce_scratch says. */
aril_status aril__reduce_run(const aril__reducer *how, aril__reduce_params params,
                             const aril_tensor *in, unsigned mask, int n_out,
                             aril_tensor *const *out, void *scratch);
size_t aril__reduce_scratch(const aril__reducer *how, const aril_tensor *in, unsigned mask,
                            int n_out, aril_tensor *const *out);

#endif
