/* Scopes: who owns a tensor, and how it can outlive the block that created it.
 *
 * Every result belongs to the calling thread's innermost scope and is released when that scope
 * ends; outside any scope it belongs to the thread and lives until the thread ends (the library
 * warns once when there are more than 10,000). Arguments are borrowed: no function takes ownership
 * of a tensor unless documented. Using a tensor after it was released is an error:
 * ARIL_ERR_STATE. */
#ifndef ARIL_SCOPE_H
#define ARIL_SCOPE_H

#include "aril/base.h"

ARIL_C_BEGIN

/* The depth of the guard stack before a guard was opened. */
typedef struct aril_guard {
    uint32_t depth;
} aril_guard;

/* The functions behind the macros below, for compilers without the cleanup attribute: open a scope;
 * disable gradient recording; enable it again; enter inference mode. End each with
 * aril_guard_end. */
ARIL_API aril_guard aril_scope_begin(void);
ARIL_API aril_guard aril_no_grad_begin(void);
ARIL_API aril_guard aril_enable_grad_begin(void);
ARIL_API aril_guard aril_inference_begin(void);

/* Ends a guard, and with it every guard opened after it that is still open. */
ARIL_API void aril_guard_end(aril_guard *g);

#define ARIL__JOIN2(a, b) a##b
#define ARIL__JOIN(a, b)  ARIL__JOIN2(a, b)
#define ARIL__GUARD_OF(call)                                                            \
    __attribute__((cleanup(aril_guard_end), unused)) aril_guard ARIL__JOIN(aril_guard_, \
                                                                           __COUNTER__) = call
#define ARIL__GUARD(begin) ARIL__GUARD_OF(begin())

/* Tensors created from here to the closing brace are released there, however the block exits. */
#define ARIL_SCOPE       ARIL__GUARD(aril_scope_begin)
/* No gradient is recorded from here to the closing brace. */
#define ARIL_NO_GRAD     ARIL__GUARD(aril_no_grad_begin)
/* Re-enables gradient recording inside an ARIL_NO_GRAD. */
#define ARIL_ENABLE_GRAD ARIL__GUARD(aril_enable_grad_begin)
/* Like ARIL_NO_GRAD but cheaper: tensors created here can never take part in a gradient. */
#define ARIL_INFERENCE   ARIL__GUARD(aril_inference_begin)

/* True while operations on this thread are recorded for gradients. */
ARIL_API bool aril_grad_enabled(void);

/* Moves `t` from the innermost scope to the enclosing one, for `return`. A no-op if the innermost
 * scope does not own it. Returns `t`. */
ARIL_API aril_tensor *aril_escape(aril_tensor *t);

/* Takes a reference: `t` stays valid until aril_release, even after its scope ends. Returns `t`. */
ARIL_API aril_tensor *aril_keep(aril_tensor *t);

/* Drops a reference that aril_keep took. NULL is allowed. Releasing a tensor once too often
 * (already freed, or owned only by its scope or graph) is an error, and releases nothing. */
ARIL_API void aril_release(aril_tensor *t);

/* Replaces the kept tensor *place with `t`: keeps `t`, then releases the old value (NULL is
 * allowed). For state carried across loop iterations. */
ARIL_API void aril_set(aril_tensor **to, aril_tensor *t);

/* Transfers a kept reference to the innermost scope of this thread, for example to pass tensors
 * between threads. Returns `t`. An error if there is no kept reference: only its scope owns it. */
ARIL_API aril_tensor *aril_adopt(aril_tensor *t);

/* Releases a temporary of the innermost scope early. A no-op for other tensors, and an error for
 * one already released. */
ARIL_API void aril_drop(aril_tensor *t);

ARIL_C_END

#endif
