/* Cases that are programs of their own (`task NAME` in bench/cases): what takes a loader, an
 * optimizer or files. */
#ifndef ARIL_BENCH_TASKS_H
#define ARIL_BENCH_TASKS_H

typedef struct bench_task {
    const char *name;
    void *(*begin)(void); /* NULL, with an error of Aril's, on failure */
    void (*step)(void *state);
    void (*end)(void *state);
} bench_task;

/* The task of a name, NULL where there is none. */
const bench_task *bench_task_find(const char *name);

#endif
