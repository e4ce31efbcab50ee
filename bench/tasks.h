/* Cases with code of their own (`task NAME` in bench/cases): those that need a loader, an optimizer
 * or files. */
#ifndef ARIL_BENCH_TASKS_H
#define ARIL_BENCH_TASKS_H

typedef struct bench_task {
    const char *name;
    void *(*begin)(const char *name); /* NULL, with an Aril error, on failure */
    void (*step)(void *state);
    void (*end)(void *state);
} bench_task;

/* Finds a task by name; NULL if there is none. */
const bench_task *bench_task_find(const char *name);

#endif
