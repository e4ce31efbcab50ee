/* In-place parameter updates: one op for a list of parameters. */
#ifndef ARIL_OPS_UPDATE_H
#define ARIL_OPS_UPDATE_H

#include "ops/update/rules.h"

/* Ops that other files name. */
extern const aril__op aril__op_update;

/* Inputs of the op `update`: lr, step?, factor?, momentum?, norms?, then for each parameter p,
 * grad, the slots of its rule, master?. It writes to p, to the slots and to the master, and has no
 * results. The parameters have one dtype and one device.
 *
 * lr, step (i64, incremented before the update), factor and momentum are scalars: numbers of the
 * host, which the kernel gets by value, or values on the parameters' device, which it reads there.
 * The gradient is multiplied by factor; a negative factor skips the update. momentum replaces the
 * option momentum or beta1, whichever the rule has. norms: the result of update_norms, for rules
 * that need it.
 *
 * master: the parameter in f32, for parameters in f16 or bf16. The update starts from it, and p
 * becomes its rounding. Where p is not the rounding of the master, something else wrote to p: the
 * update of that element starts from p.
 *
 * Inputs of update_norms: step?, factor?, momentum?, then the same for each parameter. The result
 * [n,2] f64 has the norms of each parameter and of its direction; nothing is changed. */
enum {
    ARIL__UPDATE_LR,
    ARIL__UPDATE_STEP,
    ARIL__UPDATE_FACTOR,
    ARIL__UPDATE_MOMENTUM,
    ARIL__UPDATE_NORMS,
    ARIL__UPDATE_FIXED
};
enum { ARIL__NORMS_STEP, ARIL__NORMS_FACTOR, ARIL__NORMS_MOMENTUM, ARIL__NORMS_FIXED };
enum {
    ARIL__ITEM_P,
    ARIL__ITEM_GRAD,
    ARIL__ITEM_SLOT,
    ARIL__ITEM_MASTER = ARIL__ITEM_SLOT + ARIL__MASTER_SLOT,
    ARIL__ITEM = ARIL__ITEM_SLOT + ARIL__UPDATE_SLOTS
};

/* What a kernel reads from a run of either op: the values for the constants of parameter i, and
 * the mask of the rule's slots that it has. */
aril__update_values aril__update_values_of(const aril__run *r, int i);
unsigned aril__update_present(aril_tensor *const *item);

/* Stores the norms of parameter i in the result of update_norms. */
void aril__update_put_norms(aril__run *r, int i, double of_p, double of_d);

/* One parameter's update in a step. */
typedef struct aril__update {
    aril_tensor *p, *grad, *lr, *step, *factor, *momentum;
    aril_tensor *slot[ARIL__UPDATE_SLOTS];
    const struct update_attrs *attrs;
    int param; /* the caller's number of the parameter */
    bool done; /* made by a call that then failed: the next one skips it */
    /* Of aril__update_all, in the first update of a list. */
    aril_tensor *norms;
    void *reserved;
    size_t reserved_bytes;
} aril__update;

/* Performs n updates: one call of the op for all parameters with the same options, dtype and
 * device. Runs in the caller's scope. buffer: aril__update_buffer(n) bytes, needed only during the
 * call. All or nothing where memory runs out: norms are computed, and the memory of all kernels is
 * reserved, before the first update. */
size_t aril__update_buffer(int n);
aril_status aril__update_all(int n, aril__update *u, void *buffer);

#endif
