/* Runs as the strict device queues them: nothing of the program is read when they are executed. */
#ifndef TESTS_PLUGIN_STRICT_RUN_H
#define TESTS_PLUGIN_STRICT_RUN_H

#include "ops/table/apply.h"
#include "ops/table/rows.h"

/* A run with headers, attributes and numbers of its own, in one block. */
typedef struct strict_run {
    aril__run run;
    aril_status status;
    char text[256];
    aril_tensor **in, *out[ARIL__MAX_OUT];
    aril_tensor *header;
    aril__storage *storage;
    int n_headers;
} strict_run;

/* Describes r for a device whose addresses begin at `forbidden`, and whose memory is at `memory`.
 * free() releases it. */
strict_run *strict_run_new(const void *device, const char *forbidden, char *memory,
                           const aril__run *r);

#endif
