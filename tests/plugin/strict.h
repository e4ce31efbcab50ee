/* A test device that punishes every assumption that its memory is the host's: see strict.c. */
#ifndef ARIL_TESTS_PLUGIN_STRICT_H
#define ARIL_TESTS_PLUGIN_STRICT_H

#include "aril/plugin.h"

/* Registers the kind "strict" with two devices: aril__plugin_add("strict", strict_open). With
 * ARIL_STRICT_ROWS=some in the environment a part of the ops has no row, so that they are
 * decomposed or fall back to the CPU. */
aril_plugin_open_fn strict_open;

/* For tests: the functions of the devices, the device of an index, and what they counted. */
typedef struct strict_counts {
    int64_t copies_async; /* from pinned memory */
    int64_t copies_between;
    int64_t compiled, recorded, replayed;
    int64_t small; /* runs that were recorded together */
    int ranges;    /* open ones */
} strict_counts;
const aril_device_ops *strict_ops(void);
void *strict_device(int index);
strict_counts strict_count(void);

/* Queues work that fails when its turn comes, as if a kernel of `op` had. */
void strict_fail_later(int index, const char *op, const char *text);

/* While held, the device's queue does nothing. */
void strict_hold(int index, bool held);

/* Whether the devices refuse to be profiled. */
void strict_refuse_profiles(bool refuse);

#endif
