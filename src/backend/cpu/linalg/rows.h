#ifndef ARIL_CPU_LINALG_ROWS_H
#define ARIL_CPU_LINALG_ROWS_H

#include "ops/table/rows.h"

extern const aril__row aril__cpu_linalg_rows[];

#endif
