/* Scopes: who owns a tensor, and how it outlives the block that made it.
 *
 * Every result belongs to the calling thread's innermost scope and is released when that scope
 * ends; outside any scope it belongs to the thread and lives until the thread ends (of more than
 * 10,000 such tensors the library warns once). Arguments are borrowed: no function takes a tensor
 * away from you unless it says so. A tensor used after it ended is an error: ARIL_ERR_STATE. */
#ifndef ARIL_SCOPE_H
#define ARIL_SCOPE_H

#include "aril/base.h"

ARIL_C_BEGIN

/* The depth of the guard stack before a guard was opened. */
typedef struct aril_guard {
    uint32_t depth;
} aril_guard;

/* What the macros below call, for compilers without the cleanup attribute: opens a scope; stops the
 * recording of gradients, starts it again, or stops it for good. Each is ended by
 * aril_guard_end. */
ARIL_API aril_guard aril_scope_begin(void);
ARIL_API aril_guard aril_no_grad_begin(void);
ARIL_API aril_guard aril_enable_grad_begin(void);
ARIL_API aril_guard aril_inference_begin(void);

/* Ends a guard, and with it every guard opened after it and left open. */
ARIL_API void aril_guard_end(aril_guard *g);

#define ARIL__JOIN2(a, b) a##b
#define ARIL__JOIN(a, b)  ARIL__JOIN2(a, b)
#define ARIL__GUARD(begin)                                                              \
    __attribute__((cleanup(aril_guard_end), unused)) aril_guard ARIL__JOIN(aril_guard_, \
                                                                           __COUNTER__) = begin()

/* What is made from here to the closing brace is released there, however the block is left. */
#define ARIL_SCOPE       ARIL__GUARD(aril_scope_begin)
/* No gradient is recorded from here to the closing brace. */
#define ARIL_NO_GRAD     ARIL__GUARD(aril_no_grad_begin)
/* Gradients are recorded again, inside an ARIL_NO_GRAD. */
#define ARIL_ENABLE_GRAD ARIL__GUARD(aril_enable_grad_begin)
/* Like ARIL_NO_GRAD and cheaper still: what is made here can never take part in a gradient. */
#define ARIL_INFERENCE   ARIL__GUARD(aril_inference_begin)

/* True while operations on this thread are recorded for gradients. */
ARIL_API bool aril_grad_enabled(void);

/* Moves `t` from the innermost scope to the one around it, for `return`. Does nothing to a tensor
 * that the innermost scope does not own. Returns `t`. */
ARIL_API aril_tensor *aril_escape(aril_tensor *t);

/* Takes a counted reference: `t` lives until aril_release, whatever happens to its scope.
 * Returns `t`. */
ARIL_API aril_tensor *aril_keep(aril_tensor *t);

/* Drops a reference that aril_keep took. NULL is allowed. One release too many is an error, and
 * nothing is released: of a tensor that has ended, or that only its scope holds. */
ARIL_API void aril_release(aril_tensor *t);

/* Replaces the kept value *place by `t`: keeps `t`, then releases what was there (NULL is
 * allowed). For state carried round a loop. */
ARIL_API void aril_set(aril_tensor **place, aril_tensor *t);

/* Hands a kept reference to the innermost scope (of this thread: a way to pass tensors between
 * threads). Returns `t`. An error where there is none to hand over: only its scope holds it. */
ARIL_API aril_tensor *aril_adopt(aril_tensor *t);

/* Ends a temporary of the innermost scope before the scope does. Does nothing to other tensors, and
 * is an error for one that has ended. */
ARIL_API void aril_drop(aril_tensor *t);

ARIL_C_END

#endif
