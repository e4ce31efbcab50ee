#include "commands.h"

#include "run.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

typedef struct options {
    int64_t threads;
    double seconds, memory;
    const char *cases, *json, *device;
    aril_device on; /* what `device` names */
    bool list, serve, check, profile, shapes, jit;
    char **pattern;
    int n_patterns;
} options;

/* ---- the cases ---- */

static char *read_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    char *text = NULL;
    size_t n = 0, capacity = 0;
    while (f && !feof(f) && !ferror(f)) {
        if (n + 1 >= capacity) {
            capacity = capacity ? 2 * capacity : 1 << 16;
            char *wider = realloc(text, capacity);
            if (!wider) break;
            text = wider;
        }
        n += fread(text + n, 1, capacity - n - 1, f);
        text[n] = '\0';
    }
    if (f) fclose(f);
    return text;
}

static bench_cases *open_cases(const char *path)
{
    char error[256] = "";
    char *text = path ? read_file(path) : NULL;
    bench_cases *c = NULL;
    if (path && !text)
        snprintf(error, sizeof error, "cannot read '%s'", path);
    else
        c = bench_cases_read(path ? text : bench_cases_text, path ? path : "bench/cases", error,
                             sizeof error);
    if (!c) fprintf(stderr, "aril bench: %s\n", error);
    free(text);
    return c;
}

static bool chosen(const options *o, const bench_case *c)
{
    for (int i = 0; i < o->n_patterns; i++)
        if (fnmatch(o->pattern[i], c->name, 0) == 0) return true;
    return o->n_patterns == 0;
}

static bool all_found(const options *o, const bench_cases *cases)
{
    for (int i = 0; i < o->n_patterns; i++) {
        bool found = false;
        for (int k = 0; k < cases->n_cases && !found; k++)
            found = fnmatch(o->pattern[i], cases->at[k]->name, 0) == 0;
        if (!found) {
            fprintf(stderr, "aril bench: no case matches '%s'; --list lists them\n", o->pattern[i]);
            return false;
        }
    }
    return true;
}

static int print_list(const options *o, const bench_cases *cases)
{
    for (int i = 0; i < cases->n_cases; i++)
        if (chosen(o, cases->at[i])) printf("%-26s %s\n", cases->at[i]->name, cases->at[i]->about);
    return EXIT_DONE;
}

/* ---- one case ---- */

typedef struct session {
    bench_run run;
    int together; /* steps timed together */
    double before, peak_mb;
} session;

/* Kernels are timed during the warm-up, not for the small batches of setting up. ARIL_TUNING=0 and
 * =1 decide otherwise. */
static void allow_tuning(bool on)
{
    const char *fixed = getenv("ARIL_TUNING");
    if (!fixed || !*fixed) aril_set_tuning(on);
}

/* Creates the case and warms it up. */
static bool load(session *s, const bench_case *c, const options *o)
{
    aril_device on = o->on;
    bench_memory_reset(on);
    s->before = bench_memory_now(on);
    allow_tuning(false);
    if (!bench_run_begin(&s->run, c, on, false)) return false;
    if (o->jit && !bench_run_compile(&s->run, o->memory / 100)) return false;
    allow_tuning(true);
    bench_memory_reset(on); /* ignore temporary memory of creating the tensors */
    s->together = bench_warm_up(&s->run);
    double peak = bench_memory_peak(on);
    s->peak_mb = peak > s->before ? peak - s->before : 0;
    return aril_ok();
}

static void unload(session *s)
{
    bench_run_end(&s->run);
    *s = (session){ 0 };
}

static void measure(session *s, double seconds, int min, bench_samples *samples, double *faults)
{
    int64_t before = bench_faults();
    int had = samples->n;
    bench_measure(&s->run, s->together, seconds, min, samples);
    int steps = (samples->n - had) * s->together;
    *faults = steps ? (double)(bench_faults() - before) / steps : 0;
}

/* The device's peak in GFLOP/s for products of a case; 0 if it is unknown. */
static double peak_of(const bench_case *c, const aril_limits *l)
{
    double peak = c->dtype == ARIL_BF16 ? l->bf16 : c->tf32 ? l->tf32 : l->f32;
    return 1e-9 * (peak > 0 ? peak : l->f32);
}

static void print_head(const options *o, const aril_limits *l)
{
    char name[48];
    double launch = aril_launch_time(o->on);
    if (aril_device_equal(o->on, aril_cpu()))
        printf("%d threads, peak %.0f GFLOP/s in f32\n", aril_threads(), 1e-9 * l->f32);
    else if (l->f32 > 0)
        printf("%s, peak %.0f GFLOP/s in f32, %.0f in TF32, %.0f in bf16 (%s)\n",
               aril_device_name(o->on, name, sizeof name), 1e-9 * l->f32, 1e-9 * l->tf32,
               1e-9 * l->bf16, l->source);
    else
        printf("%s, peak unknown\n", aril_device_name(o->on, name, sizeof name));
    if (launch > 0) printf("a bare kernel launch takes %.2f us\n", 1e6 * launch);
    printf("\n");
    printf("%-26s %9s %9s %9s %9s %6s %8s %8s %8s\n", "case", "median", "quarter", "3/4", "GFLOP/s",
           "peak", "GB/s", "faults", "MB");
}

/* A time with a suitable unit. */
static const char *time_text(double ms, char *buf, size_t size)
{
    static const struct {
        const char *unit;
        double scale;
    } units[] = { { "s", 1e-3 }, { "ms", 1 }, { "us", 1e3 }, { "ns", 1e6 } };
    int i = 0;
    while (i < 3 && ms * units[i].scale < 1) i++;
    double value = ms * units[i].scale;
    snprintf(buf, size, value < 1000 ? "%.3g %s" : "%.0f %s", value, units[i].unit);
    return buf;
}

static void print_row(const session *s, bench_samples *samples, double faults, double peak)
{
    const bench_run *r = &s->run;
    double ms = bench_quantile(samples, 0.5), gflops = r->flops / ms * 1e-6;
    char text[3][24], rate[24] = "", share[24] = "", bandwidth[24] = "";
    for (int i = 0; i < 3; i++)
        time_text(bench_quantile(samples, (double[]){ 0.5, 0.25, 0.75 }[i]), text[i], sizeof *text);
    if (r->flops > 0) {
        snprintf(rate, sizeof rate, "%.1f", gflops);
        if (peak > 0) snprintf(share, sizeof share, "%.0f%%", 100 * gflops / peak);
    } else {
        snprintf(bandwidth, sizeof bandwidth, "%.1f", r->bytes / ms * 1e-6);
    }
    printf("%-26s %9s %9s %9s %9s %6s %8s %8.0f %8.1f\n", r->at->name, text[0], text[1], text[2],
           rate, share, bandwidth, faults, s->peak_mb);
    fflush(stdout);
}

static void json_row(FILE *f, bool first, const session *s, bench_samples *samples, double faults,
                     double peak)
{
    const bench_run *r = &s->run;
    double ms = bench_quantile(samples, 0.5), gflops = r->flops / ms * 1e-6;
    fprintf(f,
            "%s {\"case\": \"%s\", \"threads\": %d, \"aril_ms\": %.6g, \"low_ms\": %.6g, "
            "\"high_ms\": %.6g, \"gflops\": %.6g, \"share\": %.4g, \"bytes\": %.6g, \"faults\": "
            "%.4g, \"peak_mb\": %.1f}",
            first ? "" : ",\n", r->at->name, aril_threads(), ms, bench_quantile(samples, 0.25),
            bench_quantile(samples, 0.75), gflops, peak > 0 ? gflops / peak : 0, r->bytes, faults,
            s->peak_mb);
}

/* Profiles a few more steps. */
static void print_profile(session *s, bench_samples *samples, bool shapes)
{
    samples->n = 0;
    aril_profile_begin((aril_profile_opts){ .by_shape = shapes });
    bench_measure(&s->run, s->together, 0.2, 2, samples);
    aril_profile_end();
    puts("");
    aril_profile_print(stdout);
    puts("");
}

static int run_all(const options *o, const bench_cases *cases)
{
    FILE *json = o->json ? fopen(o->json, "w") : NULL;
    if (o->json && !json) {
        fprintf(stderr, "aril bench: cannot write '%s'\n", o->json);
        return EXIT_FAILED;
    }
    aril_limits limits = aril_device_limits(o->on);
    bool first = true;
    print_head(o, &limits);
    if (json) fputs("[", json);
    for (int i = 0; i < cases->n_cases && aril_ok(); i++) {
        if (!chosen(o, cases->at[i])) continue;
        session s = { 0 };
        bench_samples samples = { 0 };
        double faults, peak = peak_of(cases->at[i], &limits);
        if (load(&s, cases->at[i], o)) {
            measure(&s, o->seconds, 3, &samples, &faults);
            print_row(&s, &samples, faults, peak);
            if (json) json_row(json, first, &s, &samples, faults, peak);
            first = false;
            if (o->profile) print_profile(&s, &samples, o->shapes);
        }
        free(samples.ms);
        unload(&s);
    }
    if (json) fputs("]\n", json);
    if (json && fclose(json) != 0) {
        fprintf(stderr, "aril bench: cannot write '%s'\n", o->json);
        return EXIT_FAILED;
    }
    return aril_ok() ? EXIT_DONE : aril_report(stderr);
}

/* Results and gradients for small batches, one line of JSON per case. */
static int check_all(const options *o, const bench_cases *cases)
{
    for (int i = 0; i < cases->n_cases && aril_ok(); i++) {
        if (!chosen(o, cases->at[i]) || cases->at[i]->task[0]) continue;
        bench_run r;
        if (bench_run_begin(&r, cases->at[i], o->on, true)) bench_run_print(&r, stdout);
        bench_run_end(&r);
    }
    return aril_ok() ? EXIT_DONE : aril_report(stderr);
}

/* ---- server mode, for bench/compare ---- */

/* One request per line, answered by one line of JSON:
 *     peak             {"gflops": the device's peak in f32, 0 if it is unknown}
 *     load CASE        {"flops": per step, "bytes": ..., "peak_mb": ..., "peak": GFLOP/s that the
 *                       device reaches at most in the case's dtype, 0 if that is unknown}
 *     run SECONDS      {"ms": [samples], "faults": page faults per step}
 *     drop             {}
 * Errors are answered by {"error": text}. */
static void answer_error(const char *text)
{
    fputs("{\"error\": \"", stdout);
    for (; *text; text++)
        if (*text == '"' || *text == '\\')
            printf("\\%c", *text);
        else
            putchar(*text >= 0 && *text < ' ' ? ' ' : *text);
    puts("\"}");
}

static void serve_load(session *s, const bench_cases *cases, const char *name, const options *o)
{
    aril_limits limits = aril_device_limits(o->on);
    unload(s);
    for (int i = 0; i < cases->n_cases; i++) {
        if (strcmp(cases->at[i]->name, name) != 0) continue;
        if (load(s, cases->at[i], o))
            printf("{\"flops\": %.6g, \"bytes\": %.6g, \"peak_mb\": %.1f, \"peak\": %.6g}\n",
                   s->run.flops, s->run.bytes, s->peak_mb, peak_of(cases->at[i], &limits));
        return;
    }
    answer_error("no such case");
}

static void serve_run(session *s, double seconds)
{
    if (!s->run.at) {
        answer_error("no case is loaded");
        return;
    }
    bench_samples samples = { 0 };
    double faults;
    measure(s, seconds, 1, &samples, &faults);
    if (aril_ok()) {
        fputs("{\"ms\": [", stdout);
        for (int i = 0; i < samples.n; i++) printf("%s%.6g", i ? ", " : "", samples.ms[i]);
        printf("], \"faults\": %.6g}\n", faults);
    }
    free(samples.ms);
}

static int serve(const bench_cases *cases, const options *o)
{
    char line[256], word[256];
    session s = { 0 };
    while (fgets(line, sizeof line, stdin)) {
        double seconds;
        if (sscanf(line, "load %255s", word) == 1)
            serve_load(&s, cases, word, o);
        else if (sscanf(line, "run %lf", &seconds) == 1)
            serve_run(&s, seconds);
        else if (strcmp(line, "peak\n") == 0)
            printf("{\"gflops\": %.6g}\n", 1e-9 * aril_device_limits(o->on).f32);
        else if (strcmp(line, "drop\n") == 0)
            unload(&s), puts("{}");
        else
            answer_error("no such request");
        if (!aril_ok()) {
            answer_error(aril_error());
            aril_clear_error();
            unload(&s);
        }
        fflush(stdout);
    }
    unload(&s);
    return EXIT_DONE;
}

/* ---- the command ---- */

static int run(void *values, int n, char **argument)
{
    options *o = values;
    o->pattern = argument;
    o->n_patterns = n;
    if (o->shapes) o->profile = true;
    if (!check_device(o->device)) return report("bench");
    if (o->device) o->on = aril_device_named(o->device);
    bench_cases *cases = open_cases(o->cases);
    if (!cases) return EXIT_FAILED;
    int status = EXIT_USAGE;
    if (all_found(o, cases)) {
        use_threads(o->threads);
        status = o->list    ? print_list(o, cases)
                 : o->check ? check_all(o, cases)
                 : o->serve ? serve(cases, o)
                            : run_all(o, cases);
    }
    bench_cases_free(cases);
    return status;
}

static const option table[] = {
    { .name = "list", OPTION_AT(list), .help = "list the cases" },
    OPTION_THREADS,
    { .name = "device",
      .value = "NAME",
      OPTION_AT(device),
      .kind = OPTION_STRING,
      .by_default = "cpu",
      .help = "measure on this device" },
    { .name = "seconds",
      .value = "S",
      .kind = OPTION_FLOAT,
      OPTION_AT(seconds),
      .help = "measure each case for this many seconds after its warm-up" },
    { .name = "json",
      .value = "FILE",
      .kind = OPTION_FILE,
      OPTION_AT(json),
      .help = "write the results to this file, too" },
    { .name = "jit",
      OPTION_AT(jit),
      .help = "compile each step by aril_jit; tasks run as they are" },
    { .name = "memory",
      .value = "PERCENT",
      .kind = OPTION_FLOAT,
      OPTION_AT(memory),
      .help = "with --jit: compute values again where that saves memory, in this share of it" },
    { .name = "profile", OPTION_AT(profile), .help = "profile each case: time by operation" },
    { .name = "shapes", OPTION_AT(shapes), .help = "profile by operation and shape" },
    { .name = "cases",
      .value = "FILE",
      .kind = OPTION_FILE,
      OPTION_AT(cases),
      .by_default = "bench/cases, which is built in",
      .help = "read the cases from this file" },
    { .name = "check",
      OPTION_AT(check),
      .help = "print results and gradients instead, to compare them with other frameworks" },
    { .name = "serve", OPTION_AT(serve), .help = "answer requests on stdin, for bench/compare" },
    { 0 },
};

const command command_bench = {
    .name = "bench",
    .summary = "benchmark networks and operations",
    .arguments = "[CASE...]",
    .about =
        "CASE may contain the wildcards * and ?; by default all cases are run. Prints for each "
        "the median time of a step and its quartiles, FLOP/s and their share of the device's "
        "peak (or the memory bandwidth), page faults per step, and peak memory.",
    .options = table,
    .size = sizeof(options),
    .defaults = &(const options){ .seconds = 1, .memory = 100 },
    .max = -1,
    .run = run
};
