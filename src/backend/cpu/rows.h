/* The CPU's kernel rows. */
#ifndef ARIL_CPU_ROWS_H
#define ARIL_CPU_ROWS_H

#include "aril/base.h"

/* Those that are faster than a library's, and all others. */
aril_status aril__cpu_start_ahead(void);
aril_status aril__cpu_start(void);
void aril__cpu_end(void);

#endif
