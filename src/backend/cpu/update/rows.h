#ifndef ARIL_CPU_UPDATE_ROWS_H
#define ARIL_CPU_UPDATE_ROWS_H

#include "ops/table/rows.h"

extern const aril__row aril__cpu_update_rows[];

#endif
