/* The CPU's kernel rows by oneDNN. */
#ifndef ARIL_BACKEND_ONEDNN_ROWS_H
#define ARIL_BACKEND_ONEDNN_ROWS_H

#include "aril/base.h"

#if ARIL_HAVE_ONEDNN
/* Registers the rows that are faster than the CPU's own, ahead of those, and the others behind them;
 * ends what was started, after the last plan is gone. */
aril_status aril__dnn_start(void);
aril_status aril__dnn_start_behind(void);
void aril__dnn_end(void);

/* For tests: called with the name of the kernel of each primitive that is made in this thread. */
extern _Thread_local void (*aril__dnn_made)(const char *name);
#else
static inline aril_status aril__dnn_start(void)
{
    return ARIL_OK;
}
static inline aril_status aril__dnn_start_behind(void)
{
    return ARIL_OK;
}
static inline void aril__dnn_end(void)
{
}
#endif

#endif
