/* Profiling: where the time of a program goes, op by op.
 *
 *     aril_profile_begin((aril_profile_opts){ .trace = "step.json" });
 *     train_one_step();
 *     aril_profile_end();
 *     aril_profile_print(stdout);
 *
 * ARIL_PROFILE=FILE in the environment profiles a whole program: the trace goes to FILE, and the
 * table to stderr when the program ends. docs/profiling.md reads a table. */
#ifndef ARIL_PROFILE_H
#define ARIL_PROFILE_H

#include "aril/base.h"

#include <stdio.h>

ARIL_C_BEGIN

typedef struct aril_profile_opts {
    bool by_shape;     /* a row for each op and shapes of its inputs, not for each op */
    const char *trace; /* a file for chrome://tracing or ui.perfetto.dev; NULL: none */
} aril_profile_opts;

/* Begins to note every op of every thread; what an earlier profile noted is dropped. ARIL_ERR_STATE
 * when one has begun already. Each op takes a tenth of a microsecond longer meanwhile, and half a
 * one where shapes are noted: by_shape, or for a trace. */
ARIL_API aril_status aril_profile_begin(aril_profile_opts opts);

/* Ends the profile and writes its trace. ARIL_ERR_STATE when none has begun, ARIL_ERR_IO when the
 * trace could not be written; the table is there in that case too. */
ARIL_API aril_status aril_profile_end(void);

/* One line of the table. Times are those of the op itself: ops that it is made of have lines of
 * their own. Lines in brackets are no ops: "(backward)" is what the walk back spends between ops,
 * "(outside)" what the program spends between calls of Aril. Times add up to the whole. */
typedef struct aril_profile_row {
    const char *name;
    const char *shapes; /* of the inputs: "[64,784] [784,100]"; "" unless by_shape */
    const char *kernel; /* the row that ran; of several, the one that took longest; "" when none */
    int kernels;        /* how many different ones ran */
    int64_t calls;
    double seconds;
    double bytes; /* read and written, each tensor counted once */
    double flop;  /* 2 for a multiply-add of a product, 1 for an element of others */
} aril_profile_row;

/* The lines of the last profile that has ended, greatest time first; their number. They are valid
 * until the next begins. */
ARIL_API int aril_profile_rows(const aril_profile_row **rows);

/* What its times add up to: from begin to end, and for each further thread that ran ops, from its
 * first to the end of its last. */
ARIL_API double aril_profile_seconds(void);

/* Prints the table: calls, milliseconds, share of the whole, microseconds a call, GB/s, GFLOP/s,
 * and the latter as a share of what the machine reaches in f32 with the threads in use, which is
 * measured (20 ms) when it is first needed. */
ARIL_API aril_status aril_profile_print(FILE *to);

ARIL_C_END

#endif
