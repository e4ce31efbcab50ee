#ifndef ARIL_CPU_INDEX_ROWS_H
#define ARIL_CPU_INDEX_ROWS_H

#include "ops/table/rows.h"

extern const aril__row aril__cpu_index_rows[];

#endif
