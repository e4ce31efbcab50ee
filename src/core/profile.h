/* Notes what runs, while a profile is on: spans, one inside the other, on each thread.
 *
 * Whether one is on is a bit of the log's mask, so that a fast path asks both at once. */
#ifndef ARIL_CORE_PROFILE_H
#define ARIL_CORE_PROFILE_H

#include "aril/profile.h"
#include "core/log.h"

static inline bool aril__profiling(void)
{
    return aril__log_on(ARIL__LOG_PROFILE);
}

typedef struct aril__span {
    int depth; /* -1: not noted */
    unsigned profile;
} aril__span;

/* Begins a span of the calling thread. `key` names its line in the table and `label` its bar in the
 * trace; both must stay where they are. Every span is ended by the thread that began it. */
aril__span aril__span_begin(const char *key, const char *label);
void aril__span_finish(aril__span span);

static inline void aril__span_end(aril__span span)
{
    if (span.depth >= 0) aril__span_finish(span);
}

/* Whether the shapes of inputs are looked at: making their text takes longer than the rest. */
bool aril__profile_wants_shapes(void);

/* Says of the innermost span what it runs: the first time counts. */
void aril__span_note(const char *kernel, const char *shapes, double bytes, double flop);

/* From src/init.c and the end of the process: ARIL_PROFILE. */
void aril__profile_start(void);
void aril__profile_shutdown(void);

/* Operations a second in f32 that the machine reaches with the threads in use; measured, in some
 * 20 ms, when it is first asked for. */
double aril__machine_peak(void);

#endif
