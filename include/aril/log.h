/* Diagnostic logging to stderr. */
#ifndef ARIL_LOG_H
#define ARIL_LOG_H

#include "aril/base.h"

ARIL_C_BEGIN

/* Selects the log categories, as a comma-separated list of these names, or "all":
 *
 *   dispatch   which kernel ran for an op, and why faster ones declined
 *   memory     allocations, reuse and memory returned to the system
 *   autograd   ops recorded on the tape and run by the backward pass
 *   trace      ops recorded in a trace and the result of each pass
 *   plugin     which plug-ins were loaded or rejected, and why
 *   tuning     which kernels were timed, and whether the file of their times can be used
 *   passes     what each pass changed in a program
 *
 * The list replaces the previous one; NULL or "" logs nothing. The default is the environment
 * variable ARIL_LOG. An unknown name is an error (ARIL_ERR_ARG) and changes nothing.
 * Thread-safe. */
ARIL_API aril_status aril_set_log(const char *list);

ARIL_C_END

#endif
