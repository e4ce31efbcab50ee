/* The loop that all reductions share: rows of outputs, or runs of inputs, of any strides and
 * dtype. Work is cut by size alone, so results do not depend on the number of threads. */
#ifndef ARIL_OPS_REDUCE_LOOP_H
#define ARIL_OPS_REDUCE_LOOP_H

#include "ops/table/op.h"

/* Numbers that a reducer's functions may need. */
typedef struct aril__reduce_params {
    double p;      /* the order of a norm, the correction of a variance */
    int64_t count; /* elements that fall to each output */
} aril__reduce_params;

/* How elements are folded into a state of `planes` numbers of 8 bytes: number k of state i lies at
 * s[k * plane + i]. Elements come in the ctype `in`. */
typedef struct aril__reducer {
    int planes;
    aril__ctype in;
    aril__ctype out[2]; /* after `finish`: what planes 0 and 1 hold, results 0 and 1 */
    /* m states of nothing; positions begin with `at`. */
    void (*start)(const aril__reduce_params *p, void *s, int64_t plane, int64_t m, int64_t at);
    /* State i, of m at most ARIL__REDUCE_ROW, takes x[k * pitch + i] for k in [0, n), which is at
     * position at + k. */
    void (*across)(const aril__reduce_params *p, void *s, int64_t plane, const void *x,
                   int64_t pitch, int64_t n, int64_t m, int64_t at);
    /* State i of m takes x[i * pitch + k] for k in [0, n), which is at position at + k. */
    void (*along)(const aril__reduce_params *p, void *s, int64_t plane, const void *x,
                  int64_t pitch, int64_t n, int64_t m, int64_t at);
    /* State i takes all that state i of `later` has taken. */
    void (*merge)(const aril__reduce_params *p, void *s, int64_t plane, const void *later,
                  int64_t later_plane, int64_t m);
    /* Turns states into results; NULL where they are. */
    void (*finish)(const aril__reduce_params *p, void *s, int64_t plane, int64_t m);
    bool ordered; /* looks at positions: elements must come with those they have */
    int weight;   /* what an element costs, in additions; 0 counts as 1 */
} aril__reducer;

enum { ARIL__REDUCE_ROW = 1024, ARIL__REDUCE_PLANES = 3 };

/* Reduces `in` to out[0] (and out[1] where n_out is 2, of the same shape) over the axes of the
 * mask, which the outputs have with size 1 or not at all. params.count is filled in here. */
aril_status aril__reduce_run(const aril__reducer *how, aril__reduce_params params,
                             const aril_tensor *in, unsigned mask, int n_out,
                             aril_tensor *const *out);

#endif
