#include "core/lifetime.h"

#include "core/error.h"
#include "core/memory.h"

#include <stdio.h>
#include <stdlib.h>

aril__lifetime *aril__lifetime_of(aril__lifetime_slot *of, const char *what)
{
    aril__lifetime *l = atomic_load(of);
    if (!l) {
        aril__lifetime *made = aril__calloc(sizeof *made);
        if (!made) {
            aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", what);
            return NULL;
        }
        atomic_init(&made->refs, 1); /* of the object */
        snprintf(made->what, sizeof made->what, "%s", what);
        if (atomic_compare_exchange_strong(of, &l, made))
            l = made;
        else
            free(made); /* another thread was first */
    }
    atomic_fetch_add(&l->refs, 1);
    return l;
}

void aril__lifetime_release(aril__lifetime *l)
{
    if (l && atomic_fetch_sub(&l->refs, 1) == 1) free(l);
}

void aril__lifetime_end(aril__lifetime_slot *of)
{
    aril__lifetime *l = atomic_exchange(of, NULL);
    if (!l) return;
    atomic_store(&l->ended, true);
    aril__lifetime_release(l);
}
