/* SIGINT and SIGTERM as a flag, between begin and end; end restores the program's own handlers. */
#ifndef ARIL_TRAIN_SIGNALS_H
#define ARIL_TRAIN_SIGNALS_H

#include "aril/base.h"

/* Several fits may wait concurrently, in threads: the signal reaches all of them. */
aril_status aril__signals_begin(void);
void aril__signals_end(void);

/* The signal received since begin; 0: none. */
int aril__signals_caught(void);

#endif
