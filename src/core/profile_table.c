/* The table of a profile: its rows, and how they are printed. */
#include "core/profile_parts.h"

#include "core/error.h"
#include "core/parallel.h"

#include <stdlib.h>
#include <string.h>

enum { SHOWN_KERNELS = 40, NAME = 72 /* bytes of a kernel's name that are printed */ };

static struct { /* guarded by the profile's lock */
    aril_profile_row *rows;
    int n_rows;
    double seconds;
} all;

/* ---- rows ---- */

void aril__profile_drop_rows(void)
{
    for (int i = 0; i < all.n_rows; i++) free((void *)(uintptr_t)all.rows[i].shapes);
    free(all.rows);
    all.rows = NULL;
    all.n_rows = 0;
    all.seconds = 0;
    aril__profile_devices_drop();
}

static int by_time(const void *a, const void *b)
{
    const aril_profile_row *x = a, *y = b;
    if (x->device_seconds != y->device_seconds)
        return x->device_seconds < y->device_seconds ? 1 : -1;
    return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

static int sums_by_time(const void *a, const void *b)
{
    const aril__sum *x = a, *y = b;
    if (x->device_ns != y->device_ns) return x->device_ns < y->device_ns ? 1 : -1;
    return (x->ns < y->ns) - (x->ns > y->ns);
}

static void add_row(const aril__sum *s)
{
    aril_profile_row *r = all.rows, *end = all.rows + all.n_rows;
    while (r < end && (r->name != s->key || strcmp(r->shapes, s->shapes) != 0)) r++;
    if (r == end) {
        char *shapes = strdup(s->shapes);
        if (!shapes) return;
        *r = (aril_profile_row){ .name = s->key, .shapes = shapes, .kernel = "" };
        all.n_rows++;
    }
    r->calls += s->calls;
    r->seconds += (double)s->ns * 1e-9;
    r->bytes += s->bytes;
    r->flop += s->flop;
    r->device_seconds += (double)s->device_ns * 1e-9;
    r->least_seconds += s->least;
    r->kernels += s->kernel != NULL;
    if (!r->kernel[0] && s->kernel) r->kernel = s->kernel;
}

/* Merges the sums of several threads that have the same key, shapes and kernel. */
static int join_sums(aril__sum *s, int n)
{
    int kept = 0;
    for (int i = 0; i < n; i++) {
        int at = 0;
        while (at < kept && !(s[at].key == s[i].key && s[at].kernel == s[i].kernel &&
                              strcmp(s[at].shapes, s[i].shapes) == 0))
            at++;
        if (at == kept) {
            s[kept++] = s[i];
            continue;
        }
        s[at].calls += s[i].calls;
        s[at].ns += s[i].ns;
        s[at].device_ns += s[i].device_ns;
        s[at].bytes += s[i].bytes;
        s[at].flop += s[i].flop;
        s[at].least += s[i].least;
    }
    return kept;
}

aril_status aril__profile_make_rows(const aril__profile *p)
{
    int n = 1, filled = 0;
    int64_t total = p->end - p->begin, in_spans = 0;
    for (aril__track *t = p->tracks; t; t = t->next) n += t->profile == p->number ? t->n_sums : 0;
    aril__sum *sums = calloc((size_t)n, sizeof *sums);
    all.rows = calloc((size_t)n, sizeof *all.rows);
    if (!sums || !all.rows) {
        free(sums);
        return aril__fail(ARIL_ERR_MEMORY, "profile: out of memory for its table");
    }
    for (aril__track *t = p->tracks; t; t = t->next) {
        if (t->profile != p->number) continue;
        if (t->n_sums) memcpy(sums + filled, t->sums, (size_t)t->n_sums * sizeof *sums);
        filled += t->n_sums;
        for (int i = 0; i < t->n_sums; i++) in_spans += t->sums[i].ns;
        if (t->number != (int)p->owner) total += t->last > t->first ? t->last - t->first : 0;
    }
    filled = join_sums(sums, filled);
    sums[filled] = aril__profile_outside_work();
    sums[filled].key = aril__outside_ops;
    sums[filled].shapes = "";
    sums[filled++].ns = total - in_spans;
    qsort(sums, (size_t)filled, sizeof *sums, sums_by_time);
    for (int i = 0; i < filled; i++) add_row(&sums[i]);
    free(sums);
    qsort(all.rows, (size_t)all.n_rows, sizeof *all.rows, by_time);
    all.seconds = (double)total * 1e-9;
    return ARIL_OK;
}

int aril_profile_rows(const aril_profile_row **rows)
{
    pthread_mutex_lock(&aril__the_profile.lock);
    int n = all.n_rows;
    if (rows) *rows = all.rows;
    pthread_mutex_unlock(&aril__the_profile.lock);
    return n;
}

double aril_profile_seconds(void)
{
    pthread_mutex_lock(&aril__the_profile.lock);
    double s = all.seconds;
    pthread_mutex_unlock(&aril__the_profile.lock);
    return s;
}

/* ---- printing ---- */

/* A figure as text, "" if there is no value. */
typedef struct figure {
    char text[24];
} figure;

static figure shown(double value, const char *unit)
{
    figure f = { "" };
    if (value > 0 && value < 1e15)
        snprintf(f.text, sizeof f.text, unit[0] ? "%.1f%s" : "%.2f%s", value, unit);
    return f;
}

static figure count_shown(int64_t n)
{
    figure f = { "" };
    if (n > 0) snprintf(f.text, sizeof f.text, "%lld", (long long)n);
    return f;
}

/* What the shares of the table are of. */
typedef struct whole {
    int name;      /* width of the first column */
    double host;   /* seconds of the profile */
    double device; /* that devices worked; 0: none was measured */
    double peak;   /* FLOP/s of the CPU */
} whole;

static void print_row(FILE *to, const aril_profile_row *r, const whole *w)
{
    bool device = w->device > 0;
    double seconds = device ? r->device_seconds : r->seconds;
    double total = device ? w->device : w->host;
    double share = total > 0 ? seconds / total * 100 : 0;
    double limit = device ? r->least_seconds / seconds : r->flop / seconds / w->peak;
    char more[32] = "", host[24] = "";
    if (r->kernels > 1) snprintf(more, sizeof more, " and %d more", r->kernels - 1);
    if (device) snprintf(host, sizeof host, " %11.3f", r->seconds * 1e3);
    fprintf(to, "%-*s %8s%s %11.3f %6.1f%% %11s %8s %9s %6s%s%s%s%s%s\n", w->name, r->name,
            count_shown(r->calls).text, host, seconds * 1e3, share,
            shown(r->calls ? seconds / (double)r->calls * 1e6 : 0, "").text,
            shown(r->bytes / seconds * 1e-9, "").text, shown(r->flop / seconds * 1e-9, "").text,
            shown(limit * 100, "%").text, r->kernel[0] ? "  " : "", r->kernel, more,
            r->shapes[0] ? " " : "", r->shapes);
}

static void print_kernels(FILE *to, const whole *w)
{
    const aril_profile_kernel *k;
    int n = aril_profile_kernels(&k), width = 6;
    if (!n) return;
    for (int i = 0; i < n && i < SHOWN_KERNELS; i++) {
        int length = (int)strlen(k[i].name);
        if (length > width) width = length < NAME ? length : NAME;
    }
    fprintf(to, "\n%-*s %8s %11s %7s %11s  %s\n", width, "kernel", "calls", "ms", "share",
            "us/call", "op");
    double rest = 0;
    for (int i = 0; i < n; i++) {
        if (i >= SHOWN_KERNELS) {
            rest += k[i].seconds;
            continue;
        }
        fprintf(to, "%-*.*s %8lld %11.3f %6.1f%% %11.2f  %s\n", width, width, k[i].name,
                (long long)k[i].calls, k[i].seconds * 1e3, k[i].seconds / w->device * 100,
                k[i].seconds / (double)k[i].calls * 1e6, k[i].op);
    }
    if (n > SHOWN_KERNELS)
        fprintf(to, "%-*s %8s %11.3f %6.1f%%\n", width, "others", "", rest * 1e3,
                rest / w->device * 100);
}

static void print_limits(FILE *to, const char *device, const aril_limits *l)
{
    const struct {
        const char *dtype;
        double rate;
    } rates[] = { { "f64", l->f64 },
                  { "f32", l->f32 },
                  { "tf32", l->tf32 },
                  { "f16", l->f16 },
                  { "bf16", l->bf16 } };
    if (!(l->bytes > 0)) return;
    fprintf(to, "%s: limits: %.0f GB/s", device, l->bytes * 1e-9);
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        if (rates[i].rate > 0)
            fprintf(to, ", %.1f TFLOP/s in %s", rates[i].rate * 1e-12, rates[i].dtype);
    fprintf(to, " (%s)\n", l->source);
}

static void print_devices(FILE *to)
{
    const aril_profile_device *d;
    char name[48];
    int n = aril_profile_devices(&d);
    for (int i = 0; i < n; i++) {
        aril_device_name(d[i].device, name, sizeof name);
        if (d[i].missing[0]) {
            fprintf(to, "%s: its own times were not measured: %s\n", name, d[i].missing);
            continue;
        }
        fprintf(to, "%s: busy for %.3f of %.3f ms, idle for %.1f%%\n", name,
                d[i].busy_seconds * 1e3, d[i].seconds * 1e3,
                d[i].seconds > 0 ? 100 - d[i].busy_seconds / d[i].seconds * 100 : 0);
        aril_limits limits = aril_device_limits(d[i].device);
        print_limits(to, name, &limits);
    }
}

aril_status aril_profile_print(FILE *to)
{
    const aril_profile_row *rows;
    int n = aril_profile_rows(&rows);
    if (!to) return aril__fail(ARIL_ERR_ARG, "profile_print: the file is NULL");
    if (!n) return aril__fail(ARIL_ERR_STATE, "profile_print: no finished profile");
    whole w = { .name = 9, .host = aril_profile_seconds(), .peak = aril_machine_peak() };
    aril_profile_row sum = { .name = "all", .shapes = "", .kernel = "" };
    for (int i = 0; i < n; i++) {
        if ((int)strlen(rows[i].name) > w.name) w.name = (int)strlen(rows[i].name);
        sum.calls += rows[i].calls;
        sum.seconds += rows[i].seconds;
        sum.bytes += rows[i].bytes;
        sum.flop += rows[i].flop;
        sum.device_seconds += rows[i].device_seconds;
        sum.least_seconds += rows[i].least_seconds;
    }
    w.device = sum.device_seconds;
    fprintf(to, "%-*s %8s%s %11s %7s %11s %8s %9s %6s  %s\n", w.name, "op", "calls",
            w.device > 0 ? "     host ms" : "", w.device > 0 ? "device ms" : "ms", "share",
            "us/call", "GB/s", "GFLOP/s", w.device > 0 ? "limit" : "peak", "kernel");
    for (int i = 0; i < n; i++) print_row(to, &rows[i], &w);
    print_row(to, &sum, &w);
    if (w.device > 0)
        print_kernels(to, &w);
    else
        fprintf(to, "peak: %.0f GFLOP/s in f32, measured with %d thread%s\n", w.peak * 1e-9,
                aril_threads(), aril_threads() == 1 ? "" : "s");
    print_devices(to);
    return ferror(to) ? aril__fail(ARIL_ERR_IO, "profile_print: writing failed") : ARIL_OK;
}
