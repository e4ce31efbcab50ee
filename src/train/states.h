/* Named tensors, held by reference: the state of metrics and callbacks, and parts of a
 * checkpoint. */
#ifndef ARIL_TRAIN_STATES_H
#define ARIL_TRAIN_STATES_H

#include "aril/named.h"

typedef struct aril__states {
    int n, cap;
    aril_tensor **at;
    char **name;
    aril_named view;
} aril__states;

/* The tensor with that name, NULL if missing. */
aril_tensor *aril__states_get(const aril__states *s, const char *name);

/* Adds `value` under a name that must be new: it is not searched for, so that adding the many names
 * of a file takes linear time. On failure nothing changes. */
aril_status aril__states_add(aril__states *s, const char *name, aril_tensor *value);

/* The same, replacing an existing value. */
aril_status aril__states_set(aril__states *s, const char *name, aril_tensor *value);

/* Adds `value` to the sum under a name, which exists. It moves to the device of the value: one from
 * a checkpoint is on the CPU. */
aril_status aril__states_accumulate(aril__states *s, const char *name, aril_tensor *value);

/* All of them, borrowed, valid until the next change. */
const aril_named *aril__states_view(aril__states *s);

/* Copies all tensors, each under prefix + its name. */
aril_status aril__states_copy(aril__states *to, const char *prefix, const aril_named *from);

/* Adds those whose name starts with the prefix, with the prefix removed. Not copied. */
aril_status aril__states_part(aril__states *to, const aril__states *from, const char *prefix);

/* Small values as tensors: i64 and f64 vectors. Reading returns false if the name is missing or has
 * another type or length. */
aril_status aril__states_set_ints(aril__states *s, const char *name, int n, const int64_t *v);
aril_status aril__states_set_reals(aril__states *s, const char *name, int n, const double *v);
aril_status aril__states_set_text(aril__states *s, const char *name, const char *text);
bool aril__states_ints(const aril__states *s, const char *name, int n, int64_t *v);
bool aril__states_reals(const aril__states *s, const char *name, int n, double *v);
char *aril__states_text(const aril__states *s, const char *name); /* caller frees; NULL: missing */

/* Swaps the contents. */
void aril__states_swap(aril__states *a, aril__states *b);

/* Releases all tensors; the structure can be reused. */
void aril__states_clear(aril__states *s);

#endif
