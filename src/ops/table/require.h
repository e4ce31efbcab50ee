/* Requirements: what a function demands of the sizes of its inputs beyond what the shape rules of
 * its ops check.
 *
 * A rule runs again for the sizes of each run. A check in a function that is composed of ops runs
 * once, when the function is called; in a trace with unknown sizes that is too early, since unknown
 * sizes fit any. A check that is written as a requirement is recorded by the tracer, and is
 * repeated as soon as a run knows the sizes. */
#ifndef ARIL_OPS_REQUIRE_H
#define ARIL_OPS_REQUIRE_H

#include "core/sizes.h"
#include "core/tensor.h"

enum { ARIL__REQUIRE_SHAPES = 4, ARIL__REQUIRE_NUMBERS = 8, ARIL__REQUIRE_TEXT = 56 };

typedef struct aril__requirement aril__requirement;

/* ARIL_OK or an error, from q->shape and q->number alone. Unknown sizes (negative) fit any. */
typedef aril_status aril__size_check(const aril__requirement *q);

struct aril__requirement {
    aril__size_check *check;
    int n_shapes, n_numbers;
    char what[ARIL__REQUIRE_TEXT]; /* the function, or the expression, for messages */
    aril_shape shape[ARIL__REQUIRE_SHAPES];
    int64_t number[ARIL__REQUIRE_NUMBERS]; /* may be unknown sizes, too */
};

/* Checks the shapes of tensors, of which none is NULL, and records the requirement if some size is
 * unknown. Without a check (ARIL_OK) if a tensor is poison, which the op that uses it reports. */
aril_status aril__require(const char *what, aril__size_check *check, int n, aril_tensor *const *of,
                          int n_numbers, const int64_t *number);

/* The same for tensors only: aril__require_of("bmm", same_batch, a, b). */
#define aril__require_of(what, check, ...)                                                 \
    aril__require((what), (check),                                                         \
                  (int)(sizeof((aril_tensor *[]){ __VA_ARGS__ }) / sizeof(aril_tensor *)), \
                  (aril_tensor *[]){ __VA_ARGS__ }, 0, NULL)

/* Checks and records a requirement whose shapes are filled in already. `of` are tensors of the
 * call, by which the tracer is found. */
aril_status aril__require_now(const aril__requirement *q, int n, aril_tensor *const *of);

/* ---- checks ---- */

/* Whether two shapes are equal, or may be because sizes are unknown. */
bool aril__shapes_fit(const aril_shape *a, const aril_shape *b);

/* Whether b broadcasts to a without enlarging it, or may do so. */
bool aril__broadcasts_to(const aril_shape *b, const aril_shape *a);

/* ---- sizes in composed functions ---- */

/* The size to which two sizes of symbolic or other tensors broadcast: an unknown one if only the
 * run can tell. -1 if that cannot be expressed, or if they do not broadcast. */
int64_t aril__broadcast_size(int64_t a, int64_t b, const aril_tensor *of);

/* x expanded along an axis to that size; x itself if it has it. */
aril_tensor *aril__expand_axis(aril_tensor *x, int axis, int64_t size);

/* What a size of x was when it was traced: itself if it is known; -1 if that is not known. */
int64_t aril__traced_size(const aril_tensor *x, int axis);

#endif
