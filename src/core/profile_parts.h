/* What the files of the profiler share: records of threads (profile.c), of devices
 * (profile_device.c), the table (profile_table.c) and the trace (profile_trace.c). */
#ifndef ARIL_CORE_PROFILE_PARTS_H
#define ARIL_CORE_PROFILE_PARTS_H

#include "core/device.h"
#include "core/profile.h"

#include <pthread.h>

enum {
    ARIL__SPANS = 64,       /* maximum nesting of spans; deeper ones count towards their parent */
    ARIL__SPAN_SHAPES = 160 /* bytes of text for shapes */
};

/* The name of time, and of work of devices, between calls of Aril. */
extern const char aril__outside_ops[];

/* Totals of one kernel under one key (and shapes). */
typedef struct aril__sum {
    const char *key, *kernel;
    char *shapes;
    int64_t calls, ns, device_ns;
    double bytes, flop;
    double least; /* seconds that the device needs at least */
} aril__sum;

typedef struct aril__open_span {
    const char *key, *label, *kernel;
    int64_t begin, inside; /* `inside`: time of nested spans */
    int64_t mark;          /* of work that devices do for it; 0: none */
    double bytes, flop, least;
    bool noted;
    char shapes[ARIL__SPAN_SHAPES];
} aril__open_span;

typedef struct aril__span_event {
    const char *label, *kernel;
    char *shapes;
    int64_t begin, ns, live;
    double bytes, flop;
} aril__span_event;

/* Memory in use on a device that is measured, after an op. */
typedef struct aril__memory_event {
    int device;
    int64_t at, live;
} aril__memory_event;

/* The record of one thread. Other threads take its lock only when a profile begins or ends. */
typedef struct aril__track {
    struct aril__track *next;
    pthread_mutex_t lock;
    int number;
    unsigned profile; /* the profile that the rest belongs to */
    int depth;
    aril__open_span open[ARIL__SPANS];
    int64_t first, last; /* begin of its first span and end of its last one */
    aril__sum *sums;
    int *recent; /* indices of sums, those in frequent use first */
    int n_sums, cap_sums;
    int32_t *of_span; /* if devices are measured: the sum of each span, or -1 */
    int64_t n_spans, cap_spans;
    aril__span_event *events;
    int64_t n_events, cap_events, lost;
    int64_t live[ARIL__MAX_DEVICES]; /* memory in use on devices, as recorded last; -1: never */
    aril__memory_event *memory;
    int64_t n_memory, cap_memory;
} aril__track;

/* The profile that is running or was the last. */
typedef struct aril__profile {
    pthread_mutex_t lock; /* guards what follows */
    aril__track *tracks;
    int n_tracks;
    bool on;
    char *trace;
    int64_t begin, end;
    unsigned number; /* of the profile */
    unsigned owner;  /* number of the track that started it */
} aril__profile;

extern aril__profile aril__the_profile;

/* Doubles the capacity of a list that is full. False when out of memory, which is not an error
 * here: the profile is merely incomplete. */
bool aril__profile_room(void **list, int64_t n, int64_t *capacity, size_t size);

/* The index of the sum that work with this mark belongs to; -1: to none of this track. */
int aril__profile_sum_of(const aril__track *t, uint64_t mark);

/* ---- devices: profile_device.c ---- */

/* What a device did, in the order of the device. */
typedef struct aril__work_event {
    const char *name, *op;
    int device, queue; /* `device`: index of aril__profile_device_at */
    int64_t begin, ns;
    double bytes;
} aril__work_event;

/* Begins to measure the devices that are registered; forgets what was measured before. */
void aril__profile_devices_begin(void);
/* Those that were registered since. */
void aril__profile_devices_join(void);
/* Tells the devices that work which this thread queues belongs to `mark`. */
void aril__profile_devices_mark(uint64_t mark);
bool aril__profile_devices_on(void);
/* Records how much memory of each device is in use, where that has changed. */
void aril__profile_devices_memory(aril__track *t, int64_t now);
/* Waits for the devices that are measured. */
void aril__profile_devices_wait(void);
/* Ends measuring, and adds what was measured to the sums of the tracks, which are locked. */
void aril__profile_devices_end(aril__profile *p);
void aril__profile_devices_drop(void);
/* Time and bytes of work that no span has queued. */
aril__sum aril__profile_outside_work(void);
int64_t aril__profile_work_events(const aril__work_event **events); /* by device and begin */
int aril__profile_devices_of(const aril_profile_device **devices);  /* with the lock held */

/* ---- the table and the trace ---- */

/* Makes the rows of a profile whose tracks are locked. */
aril_status aril__profile_make_rows(const aril__profile *p);
void aril__profile_drop_rows(void);
aril_status aril__profile_write_trace(const aril__profile *p);

#endif
