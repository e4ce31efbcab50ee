/* The CPU's kernel rows. */
#ifndef ARIL_CPU_ROWS_H
#define ARIL_CPU_ROWS_H

#include "aril/base.h"

/* aril__cpu_start_ahead registers the rows that are faster than a library's, aril__cpu_start the
 * others. */
aril_status aril__cpu_start_ahead(void);
aril_status aril__cpu_start(void);
void aril__cpu_end(void);

#endif
