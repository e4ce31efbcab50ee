/* The CPU's kernel rows. */
#ifndef ARIL_CPU_ROWS_H
#define ARIL_CPU_ROWS_H

#include "aril/base.h"

aril_status aril__cpu_start(void);
void aril__cpu_end(void);

#endif
