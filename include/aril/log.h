/* What Aril tells about itself on stderr while it runs. */
#ifndef ARIL_LOG_H
#define ARIL_LOG_H

#include "aril/base.h"

ARIL_C_BEGIN

/* Chooses the subjects that are logged, as a comma list of these names, or "all":
 *
 *   dispatch   which kernel ran for an op, and why faster ones declined
 *   memory     what was allocated, reused and given back
 *   autograd   what the tape recorded and what the backward pass ran
 *   trace      what a trace recorded and what the passes made of it
 *   plugin     which plug-ins were opened or refused, and why
 *
 * The list replaces the former one; NULL or "" logs nothing. At start the list is that of the
 * environment variable ARIL_LOG. An unknown name is an error (ARIL_ERR_ARG), and the former choice
 * stays. May be called from any thread at any time. */
ARIL_API aril_status aril_set_log(const char *list);

ARIL_C_END

#endif
