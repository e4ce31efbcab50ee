/* What timing kernels on a device has shown, kept in a file for later processes.
 *
 * A row that has several ways to do a call asks for the recorded choice under a key that names
 * everything the times depend on: op, shapes, dtypes, memory orders, settings, device, versions of
 * libraries. If there is none and aril_tuning() is true, it times its ways and records the
 * best. */
#ifndef ARIL_OPS_TUNING_H
#define ARIL_OPS_TUNING_H

#include "aril/base.h"

enum {
    ARIL__TUNING_KEY = 256,      /* most bytes of a key, with the final 0 */
    ARIL__TUNING_VALUE = 256,    /* and of a choice */
    ARIL__TUNING_RECORDS = 4096, /* most records; the oldest are dropped */
};

/* Copies the choice that is recorded under `key`; false if there is none. */
bool aril__tuned(const char *key, char *value, size_t size);

/* Records a choice, replacing that of before, and saves it. Keys and choices are printable text
 * without tabs; others are ignored. A file that cannot be written is no error: the process still
 * has the choice, and the log (`tuning`) says why. */
void aril__tune(const char *key, const char *value);

/* Frees all records; the next call reads the file again. */
void aril__tuning_shutdown(void);

#endif
