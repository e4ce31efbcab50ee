/* What a trace has to know of aril_set; set by src/init.c. */
#ifndef ARIL_CORE_REPLACED_H
#define ARIL_CORE_REPLACED_H

#include "core/tensor.h"

/* In a trace, aril_set put a symbolic tensor in the place of `before`. */
extern void (*aril__replaced_hook)(aril_tensor *before, aril_tensor *now);

#endif
