/* What the layers over sequences share. */
#ifndef ARIL_NN_SEQUENCE_SHARED_H
#define ARIL_NN_SEQUENCE_SHARED_H

#include "aril/module.h"

/* aril_module_add for a child that is made when sizes are known: it takes over the mode of m, its
 * dtype and its device. NULL, with an error, on failure. */
aril_module *aril__add_late(aril_module *m, const char *name, aril_module *child);

#endif
