/* What one eager operation costs beside its work: add of one element, end to end.
 *
 *     build/bench/overhead [--json]
 *
 * Prints nanoseconds for the median of several runs: the operation alone, recorded for a gradient,
 * and recorded with its backward pass, each inside a scope that frees what was made. */
#include <aril/aril.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LOOPS = 200000, RUNS = 9 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void add_once(aril_tensor *a, aril_tensor *b)
{
    ARIL_SCOPE;
    aril_add(a, b);
}

static void add_backward(aril_tensor *a, aril_tensor *b)
{
    ARIL_SCOPE;
    aril_backward(aril_add(a, b));
    aril_zero_grad(a);
}

/* Nanoseconds of one call, the median of several runs. */
static double measure(void (*fn)(aril_tensor *, aril_tensor *), aril_tensor *a, aril_tensor *b)
{
    double times[RUNS];
    for (int r = 0; r < RUNS; r++) {
        double t0 = now();
        for (int i = 0; i < LOOPS; i++) fn(a, b);
        times[r] = (now() - t0) / LOOPS;
    }
    qsort(times, RUNS, sizeof *times, by_value);
    return times[RUNS / 2];
}

static double start_up(void)
{
    double t0 = now();
    aril_item(aril_add(aril_scalar(1.0), aril_scalar(2.0)));
    return (now() - t0) / 1e6;
}

int main(int argc, char **argv)
{
    bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
    double start_ms = start_up();
    float one = 1;
    aril_tensor *x = aril_from(&one, ARIL_SHAPE(1), ARIL_F32, aril_cpu());
    aril_tensor *w = aril_parameter(aril_copy(x));
    double plain = measure(add_once, x, x), recorded = measure(add_once, w, x);
    double backward = measure(add_backward, w, x);
    if (json) {
        printf("[{\"case\": \"add of 1 element\", \"aril_ns\": %.1f},\n"
               " {\"case\": \"add recorded\", \"aril_ns\": %.1f},\n"
               " {\"case\": \"add recorded + backward\", \"aril_ns\": %.1f},\n"
               " {\"case\": \"start-up\", \"aril_ns\": %.0f}]\n",
               plain, recorded, backward, start_ms * 1e6);
    } else {
        printf("add of 1 element            %7.1f ns\n", plain);
        printf("  recorded                  %7.1f ns\n", recorded);
        printf("  recorded, with backward   %7.1f ns\n", backward);
        printf("start-up of the library     %7.3f ms\n", start_ms);
    }
    aril_release(w);
    return aril_ok() ? 0 : aril_report(stderr);
}
