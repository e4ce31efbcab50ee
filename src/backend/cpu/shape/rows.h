#ifndef ARIL_CPU_SHAPE_ROWS_H
#define ARIL_CPU_SHAPE_ROWS_H

#include "ops/table/rows.h"

extern const aril__row aril__cpu_shape_rows[];

#endif
