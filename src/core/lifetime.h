/* Whether an object still exists, for those that read it later without keeping it. */
#ifndef ARIL_CORE_LIFETIME_H
#define ARIL_CORE_LIFETIME_H

#include "aril/rng.h"

#include <stdatomic.h>
#include <stdbool.h>

typedef struct aril__lifetime {
    atomic_int refs;
    atomic_bool ended;
    char what[64]; /* for errors */
} aril__lifetime;

/* Where an object has its lifetime; NULL until somebody asks for it. */
typedef _Atomic(aril__lifetime *) aril__lifetime_slot;

/* The lifetime of an object, created on first use: a reference. NULL with an error. */
aril__lifetime *aril__lifetime_of(aril__lifetime_slot *of, const char *what);
void aril__lifetime_release(aril__lifetime *l);
/* The object is about to be freed. */
void aril__lifetime_end(aril__lifetime_slot *of);

/* That of a generator that aril_generator_new returned. */
aril__lifetime_slot *aril__generator_life(aril_generator *g);

#endif
