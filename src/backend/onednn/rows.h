/* The CPU's oneDNN kernel rows. */
#ifndef ARIL_BACKEND_ONEDNN_ROWS_H
#define ARIL_BACKEND_ONEDNN_ROWS_H

#include "aril/base.h"

#if ARIL_HAVE_ONEDNN
/* aril__dnn_start registers the rows that are faster than the CPU's own, ahead of those;
 * aril__dnn_start_behind registers the others. aril__dnn_end cleans up, after the last plan is
 * destroyed. */
aril_status aril__dnn_start(void);
aril_status aril__dnn_start_behind(void);
void aril__dnn_end(void);

/* For tests: called with the kernel name of each primitive that this thread creates. */
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
