/* Logging by subject: off by default, when it costs one relaxed load and a branch.
 *
 *     if (aril__log_on(ARIL__LOG_DISPATCH))
 *         aril__log(ARIL__LOG_DISPATCH, "%s: row %s", op, row);
 *
 * writes "aril: dispatch: conv: row onednn" and a newline to stderr. */
#ifndef ARIL_CORE_LOG_H
#define ARIL_CORE_LOG_H

#include "aril/log.h"

enum {
    ARIL__LOG_DISPATCH = 1,
    ARIL__LOG_MEMORY = 2,
    ARIL__LOG_AUTOGRAD = 4,
    ARIL__LOG_TRACE = 8,
    ARIL__LOG_PLUGIN = 16,
    ARIL__LOG_TUNING = 32,
    ARIL__LOG_PASSES = 64,
    ARIL__LOG_METER = 1 << 29,   /* no subject: a thread has a meter (ops/table/flops.h) */
    ARIL__LOG_PROFILE = 1 << 30, /* no subject: a profile is on (core/profile.h) */
};

/* The subjects that are on. Other threads may change it: read it through aril__log_on. */
extern unsigned aril__log_mask;

static inline bool aril__log_on(unsigned what)
{
    return (__atomic_load_n(&aril__log_mask, __ATOMIC_RELAXED) & what) != 0;
}

/* Writes one line when `what` is on: prefix, message and newline in a single write, so that lines
 * of several threads do not interleave. A message longer than a line buffer ends in "...". Keeps
 * errno. */
__attribute__((format(printf, 2, 3))) void aril__log(unsigned what, const char *fmt, ...);

/* Takes the subjects from ARIL_LOG; unknown names give one warning, known ones still apply. */
void aril__log_init(void);

#endif
