#ifndef ARIL_CPU_NORM_ROWS_H
#define ARIL_CPU_NORM_ROWS_H

#include "ops/table/rows.h"

extern const aril__row aril__cpu_norm_rows[];

#endif
