#include "run.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void steps(bench_run *r, int n)
{
    for (int i = 0; i < n; i++) bench_run_step(r);
}

static double time_steps(bench_run *r, int n)
{
    double start = bench_now();
    if (r->at->infer) {
        ARIL_INFERENCE;
        steps(r, n);
    } else {
        steps(r, n);
    }
    aril_synchronize(r->maker.device);
    return bench_now() - start;
}

/* Short steps are timed in groups of about two milliseconds. */
int bench_warm_up(bench_run *r)
{
    const double group = 2e-3, long_enough = 0.1;
    int together = 1;
    double took = time_steps(r, 1);
    for (double spent = took; spent < long_enough && aril_ok(); spent += took) {
        took = time_steps(r, together);
        if (took < group) together = took < group / 8 ? together * 4 : together * 2;
    }
    if (took > long_enough) time_steps(r, 1);
    return together;
}

void bench_measure(bench_run *r, int together, double seconds, int min, bench_samples *s)
{
    double end = bench_now() + seconds;
    for (int n = 0; (n < min || bench_now() < end) && aril_ok(); n++) {
        if (s->n == s->capacity) {
            int capacity = s->capacity ? 2 * s->capacity : 64;
            double *wider = realloc(s->ms, sizeof *wider * (size_t)capacity);
            if (!wider) return;
            s->ms = wider;
            s->capacity = capacity;
        }
        s->ms[s->n++] = time_steps(r, together) / together * 1e3;
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_quantile(bench_samples *s, double q)
{
    if (s->n == 0) return 0;
    qsort(s->ms, (size_t)s->n, sizeof *s->ms, by_value);
    double position = q * (s->n - 1);
    int low = (int)position, high = low + 1 < s->n ? low + 1 : low;
    return s->ms[low] + (position - low) * (s->ms[high] - s->ms[low]);
}

int64_t bench_faults(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? u.ru_minflt : 0;
}

static double status_mb(const char *key)
{
    char line[256];
    double kb = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0) sscanf(line + strlen(key), ": %lf", &kb);
    if (f) fclose(f);
    return kb / 1024;
}

static bool is_cpu(aril_device device)
{
    return aril_device_equal(device, aril_cpu());
}

double bench_memory_now(aril_device device)
{
    return is_cpu(device) ? status_mb("VmRSS") : (double)aril_memory(device).live * 0x1p-20;
}

double bench_memory_peak(aril_device device)
{
    return is_cpu(device) ? status_mb("VmHWM") : (double)aril_memory(device).peak * 0x1p-20;
}

void bench_memory_reset(aril_device device)
{
    aril_memory_trim(device);
    aril_memory_reset_peak(device);
    if (!is_cpu(device)) return;
#ifdef __GLIBC__
    malloc_trim(0); /* return cached memory, whose reuse would not be counted */
#endif
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (!f) return;
    fputs("5", f);
    fclose(f);
}
