/* Shared by the sequence layers. */
#ifndef ARIL_NN_SEQUENCE_SHARED_H
#define ARIL_NN_SEQUENCE_SHARED_H

#include "aril/module.h"

/* aril_module_add for a child created once sizes are known: the child takes m's mode, dtype and
 * device. NULL, with an error, on failure. */
aril_module *aril__add_late(aril_module *m, const char *name, aril_module *child);

#endif
