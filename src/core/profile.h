/* Records what runs while a profile is on: nested spans on each thread.
 *
 * Whether a profile is on is a bit of the log mask, so that a fast path tests both at once. */
#ifndef ARIL_CORE_PROFILE_H
#define ARIL_CORE_PROFILE_H

#include "aril/profile.h"
#include "core/log.h"

static inline bool aril__profiling(void)
{
    return aril__log_on(ARIL__LOG_PROFILE);
}

typedef struct aril__span {
    int depth; /* -1: not recorded */
    unsigned profile;
} aril__span;

/* The name of time that the host spends waiting for devices. */
extern const char aril__waiting[];

/* Begins a span of the calling thread. `key` names its line in the table and `label` its bar in the
 * trace; both must stay valid. The thread that begins a span must end it. */
aril__span aril__span_begin(const char *key, const char *label);
void aril__span_finish(aril__span span);

static inline void aril__span_end(aril__span span)
{
    if (span.depth >= 0) aril__span_finish(span);
}

/* Whether to record input shapes: formatting them takes longer than the rest. */
bool aril__profile_wants_shapes(void);

/* How much work a kernel has to do. */
typedef struct aril__work {
    double bytes, flop;
    double least; /* seconds that its device needs at least, by the device's limits; 0: unknown */
} aril__work;

/* Records what the innermost span runs; only the first call counts. */
void aril__span_note(const char *kernel, const char *shapes, aril__work work);

/* Called when devices have been registered: a profile that is running measures them too. */
void aril__profile_devices_added(void);

/* Called by src/init.c and at process exit, for ARIL_PROFILE. */
void aril__profile_start(void);
void aril__profile_shutdown(void);

#endif
