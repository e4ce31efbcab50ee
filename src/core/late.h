/* Errors of queued work, which a device reports when the host next waits for it. */
#ifndef ARIL_CORE_LATE_H
#define ARIL_CORE_LATE_H

/* How many of them the calling thread was told of so far: whoever waited may have ignored one. */
unsigned aril__late_errors(void);

#endif
