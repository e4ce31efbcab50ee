/* The CPU's kernel rows by oneDNN. */
#ifndef ARIL_BACKEND_ONEDNN_ROWS_H
#define ARIL_BACKEND_ONEDNN_ROWS_H

#include "aril/base.h"

#if ARIL_HAVE_ONEDNN
/* Registers the rows, ahead of the CPU's own; ends what was started, after the last plan is gone. */
aril_status aril__dnn_start(void);
void aril__dnn_end(void);
#else
static inline aril_status aril__dnn_start(void)
{
    return ARIL_OK;
}
static inline void aril__dnn_end(void)
{
}
#endif

#endif
