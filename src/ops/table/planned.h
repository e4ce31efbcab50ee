/* Planned calls: for programs that find out once what aril__apply would do, and then run the
 * kernels themselves. */
#ifndef ARIL_OPS_PLANNED_H
#define ARIL_OPS_PLANNED_H

#include "ops/table/plans.h"
#include "ops/table/stage.h"

/* ---- calls: apply.c ---- */

/* Infers the call op, attrs, n_in, in: its device, its dtype and the shapes of its results. Inputs
 * may have storages without memory. `dest`: the tensor that result 0 is written to, or NULL.
 * False, without an error, if aril__apply would fail, or would do more than run kernels. */
bool aril__call_infer(aril__call *c, const aril_tensor *dest);

/* A header for FRESH result i in the op's default order, without memory; NULL with an error. */
aril_tensor *aril__call_result(aril__thread *th, const aril__call *c, int i);

/* Whether the row that runs gives results their memory order: they get their storages when it is
 * chosen. */
bool aril__call_is_late(const aril__call *c);

/* Whether aril__run.alike holds for result 0, which may be in any memory. */
bool aril__call_is_alike(const aril__op *op, int n_in, aril_tensor *const *in,
                         const aril_tensor *out);

/* Anomaly mode: fails if the results of a run, or inputs that it changed, contain a NaN. */
aril_status aril__check_results(const aril__op *op, int n_in, aril_tensor *const *in,
                                aril_tensor **out);

/* ---- choices: plans.c ---- */

/* The choice for this call with a reference for the caller; NULL, with an error, when out of
 * memory. */
const aril__choice *aril__choice_hold(const aril__run *r);
void aril__choice_release(const aril__choice *c);

/* All that choices depend on besides the call: they stay valid while it is the same. */
typedef struct aril__surroundings {
    uint64_t word[2];
} aril__surroundings;
aril__surroundings aril__surroundings_now(void);

/* ---- kernels: dispatch.c, stage.c ---- */

/* The kernel that dispatch runs for a choice: that of its row, or the reference. False if there is
 * none: dispatch decomposes the op, takes it to the CPU, or fails. */
bool aril__choice_kernel(const aril__run *r, const aril__choice *c, aril__kernel *k);

/* Writes to the log, the profile and the thread's meter that the choice is about to run; called if
 * one of them is on. */
aril__cold void aril__choice_note(const aril__run *r, const aril__choice *c);

/* What a kernel asks of the operands of a run, which have storages. */
typedef struct aril__asked {
    bool as_is; /* takes the operand as it is; else a copy with this dtype and order */
    aril_dtype dtype;
    int order;
} aril__asked;
/* The dtype that the kernel computes in. */
aril_dtype aril__asked_type(const aril__kernel *k, const aril__run *r);
aril__asked aril__asked_in(const aril__kernel *k, const aril__run *r, int i);
aril__asked aril__asked_out(const aril__kernel *k, const aril__run *r, int i);

/* Gives a packed header the strides of an order; ARIL_ORDER_ANY keeps those it has. */
void aril__set_order(aril_tensor *t, int order);

#endif
