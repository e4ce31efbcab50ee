#ifndef ARIL_CPU_VISION_ROWS_H
#define ARIL_CPU_VISION_ROWS_H

#include "ops/table/rows.h"

extern const aril__row aril__cpu_vision_rows[];

#endif
