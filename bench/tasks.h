/* Cases with code of their own (`task NAME` in bench/cases): those that need a loader, an optimizer
 * or files. */
#ifndef ARIL_BENCH_TASKS_H
#define ARIL_BENCH_TASKS_H

#include <aril/aril.h>

typedef struct bench_task {
    const char *name;
    /* NULL, with an Aril error, on failure */
    void *(*begin)(const char *name, aril_device device);
    void (*step)(void *state);
    void (*end)(void *state);
    bool on_devices; /* runs elsewhere than on the CPU, too */
} bench_task;

/* Finds a task by name; NULL if there is none. */
const bench_task *bench_task_find(const char *name);

#endif
