/* Profiling: where a program spends its time, by op, and what its devices do meanwhile.
 *
 *     aril_profile_begin((aril_profile_opts){ .trace = "step.json" });
 *     train_one_step();
 *     aril_profile_end();
 *     aril_profile_print(stdout);
 *
 * ARIL_PROFILE=FILE in the environment profiles a whole program: the trace goes to FILE, and the
 * table to stderr when the program ends. docs/profiling.md explains the table. */
#ifndef ARIL_PROFILE_H
#define ARIL_PROFILE_H

#include "aril/base.h"
#include "aril/device.h"

#include <stdio.h>

ARIL_C_BEGIN

typedef struct aril_profile_opts {
    bool by_shape;     /* a row for each op and input shapes, not just for each op */
    const char *trace; /* a trace file for chrome://tracing or ui.perfetto.dev; NULL: none */
} aril_profile_opts;

/* Starts profiling every op of every thread; discards an earlier profile. ARIL_ERR_STATE if a
 * profile is already running. The overhead per op is 0.1 microseconds, or 0.5 when shapes are
 * recorded: by_shape, or for a trace. */
ARIL_API aril_status aril_profile_begin(aril_profile_opts opts);

/* Ends the profile and writes its trace. ARIL_ERR_STATE if none is running, ARIL_ERR_IO if the
 * trace could not be written; the table is available even then. */
ARIL_API aril_status aril_profile_end(void);

/* One row of the table. Times are self times: ops that an op calls have rows of their own. Rows in
 * parentheses are not ops: "(backward)" is the time the backward pass spends between ops,
 * "(outside)" the time the program spends between calls of Aril. Times add up to the total. */
typedef struct aril_profile_row {
    const char *name;
    const char *shapes; /* of the inputs: "[64,784] [784,100]"; "" unless by_shape */
    const char *kernel; /* the kernel that ran; if several did, the one that took longest; "" if
                           none */
    int kernels;        /* the number of different kernels that ran */
    int64_t calls;
    double seconds;
    double bytes;          /* read and written, each tensor counted once */
    double flop;           /* 2 for a multiply-add of a product, 1 for an element of others */
    double device_seconds; /* that devices with a queue worked for it; 0 if that was not measured */
    double least_seconds;  /* that they need at least, by their limits; 0 if those are unknown */
} aril_profile_row;

/* The rows of the last finished profile, longest time first: that of devices if they were measured,
 * that of the host otherwise. Returns how many there are. They are valid until the next profile
 * starts. */
ARIL_API int aril_profile_rows(const aril_profile_row **rows);

/* What a device ran for an op, by the name of its kernel (or "copy to device" and the like). */
typedef struct aril_profile_kernel {
    const char *name, *op; /* op: "(outside)" for what no op has queued */
    aril_device device;
    int64_t calls;
    double seconds;
} aril_profile_kernel;

/* The kernels of the last finished profile, longest time first, in the same way. */
ARIL_API int aril_profile_kernels(const aril_profile_kernel **kernels);

/* A device with a queue that was there during the last profile. */
typedef struct aril_profile_device {
    aril_device device;
    double busy_seconds; /* that it did any work; the rest of the time it was idle */
    double seconds;      /* from begin to end */
    const char *missing; /* why it could not be measured; "" if it was */
} aril_profile_device;

/* The devices of the last finished profile, in the same way. */
ARIL_API int aril_profile_devices(const aril_profile_device **devices);

/* The total time: from begin to end, plus, for each other thread that ran ops, from the start of
 * its first op to the end of its last. */
ARIL_API double aril_profile_seconds(void);

/* Prints the table: calls, milliseconds, share of the total, microseconds per call, GB/s, GFLOP/s,
 * and GFLOP/s relative to aril_machine_peak. If devices were measured, these are times of the
 * devices, the last figure is relative to aril_device_limits, and a table of their kernels and the
 * share of idle time follow. */
ARIL_API aril_status aril_profile_print(FILE *to);

/* The machine's peak with the current number of threads: f32 FLOP/s of fused multiply-adds on
 * registers, which kernels can approach but not exceed. Measured on first use, in about 20 ms, and
 * again when the number of threads has changed. */
ARIL_API double aril_machine_peak(void);

/* The seconds that the host takes to queue one empty kernel on a GPU, which no operation there can
 * undercut. Measured in each call, in about 20 ms. 0 on the CPU, and with an error on failure. */
ARIL_API double aril_launch_time(aril_device device);

ARIL_C_END

#endif
