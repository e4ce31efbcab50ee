/* Kept tensors with names: what metrics and callbacks remember, and the parts of a checkpoint. */
#ifndef ARIL_TRAIN_STATES_H
#define ARIL_TRAIN_STATES_H

#include "aril/named.h"

typedef struct aril__states {
    int n, cap;
    aril_tensor **at;
    char **name;
    aril_named view;
} aril__states;

/* The tensor of a name, NULL where there is none. */
aril_tensor *aril__states_get(const aril__states *s, const char *name);

/* Keeps `value` under a name that is not there: it is not looked for, so that many names, as a file
 * may have, take no time that grows with their square. On failure nothing changes. */
aril_status aril__states_add(aril__states *s, const char *name, aril_tensor *value);

/* The same in place of what was there. */
aril_status aril__states_set(aril__states *s, const char *name, aril_tensor *value);

/* All of them, borrowed, valid until the next change. */
const aril_named *aril__states_view(aril__states *s);

/* Copies of all tensors, each under prefix + its name. */
aril_status aril__states_copy(aril__states *to, const char *prefix, const aril_named *from);

/* Those whose name begins with the prefix, under the rest of their name. Not copied. */
aril_status aril__states_part(aril__states *to, const aril__states *from, const char *prefix);

/* Small values as tensors: i64 and f64 vectors. Reading gives false where the name is missing or
 * has another type or length. */
aril_status aril__states_set_ints(aril__states *s, const char *name, int n, const int64_t *v);
aril_status aril__states_set_reals(aril__states *s, const char *name, int n, const double *v);
aril_status aril__states_set_text(aril__states *s, const char *name, const char *text);
bool aril__states_ints(const aril__states *s, const char *name, int n, int64_t *v);
bool aril__states_reals(const aril__states *s, const char *name, int n, double *v);
char *aril__states_text(const aril__states *s, const char *name); /* to be freed; NULL: not there */

/* Each gets what the other held. */
void aril__states_swap(aril__states *a, aril__states *b);

/* Lets go of all tensors; the structure can be used again. */
void aril__states_clear(aril__states *s);

#endif
