/* SIGINT and SIGTERM as a flag, between begin and end; then the program's own handlers are back. */
#ifndef ARIL_TRAIN_SIGNALS_H
#define ARIL_TRAIN_SIGNALS_H

#include "aril/base.h"

/* Several fits may wait at once, in threads: the signal reaches all of them. */
aril_status aril__signals_begin(void);
void aril__signals_end(void);

/* The signal that came since begin; 0: none. */
int aril__signals_caught(void);

#endif
