/* Creating and rearranging elements. */
#ifndef ARIL_CPU_SHAPE_H
#define ARIL_CPU_SHAPE_H

#include "ops/table/op.h"

aril_status aril__cpu_arange(aril__run *r);
aril_status aril__cpu_linspace(aril__run *r);
aril_status aril__cpu_roll(aril__run *r);
aril_status aril__cpu_tril(aril__run *r);
aril_status aril__cpu_triu(aril__run *r);
aril_status aril__cpu_unfold_view_grad(aril__run *r);

#endif
