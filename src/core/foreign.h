/* What comes from plug-ins: devices, which are registered together, and statuses, which may have no
 * message. */
#ifndef ARIL_CORE_FOREIGN_H
#define ARIL_CORE_FOREIGN_H

#include "core/device.h"
#include "core/error.h"

/* Registers devices 0 to n-1 of the kind with that name, all or none, and returns its number. -1,
 * with an error, when there is no room, one is already registered, or a queue cannot be created. */
int aril__devices_register(const char *kind_name, int n, const aril__device_ops *ops,
                           void *const *selves, bool host_memory);

/* A status other than ARIL_OK that a function of a plug-in returned, as an error with a message: a
 * plug-in may forget to record one, or return a code of its own library. Returns one of Aril's
 * codes. */
aril__cold aril_status aril__foreign_error(aril_status s, const char *who, const char *function);

/* The code itself if it is one of Aril's errors, else `other`. */
aril_status aril__foreign_code(aril_status s, aril_status other);

#endif
