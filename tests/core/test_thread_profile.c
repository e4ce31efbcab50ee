/* The profiler: counts, times that add up, the table, and a trace that other programs can read. */
#include "core/clock.h"
#include "support/test.h"

#include <aril/aril.h>

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static aril_tensor *ones(int64_t n, int64_t m)
{
    return aril_ones(ARIL_SHAPE(n, m), ARIL_F32, aril_cpu());
}

static const aril_profile_row *row(const char *name, const char *shapes)
{
    const aril_profile_row *rows;
    int n = aril_profile_rows(&rows);
    for (int i = 0; i < n; i++)
        if (strcmp(rows[i].name, name) == 0 && strcmp(rows[i].shapes, shapes) == 0) return &rows[i];
    return NULL;
}

static double sum_of_rows(void)
{
    const aril_profile_row *rows;
    int n = aril_profile_rows(&rows);
    double s = 0;
    for (int i = 0; i < n; i++) s += rows[i].seconds;
    return s;
}

/* A training step, and something that is not an op. */
static void step(void)
{
    ARIL_SCOPE;
    aril_tensor *w = aril_parameter(ones(40, 30)), *x = ones(20, 40);
    for (int i = 0; i < 3; i++) {
        ARIL_SCOPE;
        aril_backward(aril_sum(aril_tanh(aril_matmul(x, w)), ARIL_ALL));
        aril_zero_grad(w);
    }
    usleep(20000);
    aril_release(w);
}

TEST(times_add_up)
{
    double start = aril__seconds();
    CHECK_INT(aril_profile_begin((aril_profile_opts){ 0 }), ARIL_OK);
    step();
    CHECK_INT(aril_profile_end(), ARIL_OK);
    double wall = aril__seconds() - start, full = aril_profile_seconds();
    CHECK(full <= wall && full >= 0.02);
    CHECK_NEAR(sum_of_rows(), full, 1e-9);
    const aril_profile_row *rows;
    int n = aril_profile_rows(&rows);
    for (int i = 0; i < n; i++) CHECK(rows[i].seconds >= 0);
    for (int i = 1; i < n; i++) CHECK(rows[i].seconds <= rows[i - 1].seconds);
    CHECK(row("(outside)", "") && row("(outside)", "")->seconds >= 0.02);
    CHECK(row("(backward)", "") && row("(backward)", "")->calls > 0);
}

TEST(calls_are_counted)
{
    CHECK_INT(aril_profile_begin((aril_profile_opts){ 0 }), ARIL_OK);
    {
        ARIL_SCOPE;
        aril_tensor *a = ones(20, 30), *b = ones(30, 10);
        for (int i = 0; i < 5; i++) aril_matmul(a, b);
        aril_exp(a);
        aril_reshape(a, ARIL_SHAPE(600)); /* a view moves no data */
    }
    CHECK_INT(aril_profile_end(), ARIL_OK);
    const aril_profile_row *m = row("matmul", ""), *e = row("exp", ""), *v = row("reshape", "");
    CHECK(m && e && v);
    CHECK_INT(m->calls, 5);
    CHECK_NEAR(m->flop, 5 * 2.0 * 20 * 30 * 10, 0);
    CHECK_NEAR(m->bytes, 5 * 4.0 * (20 * 30 + 30 * 10 + 20 * 10), 0);
    CHECK(m->kernel[0] && m->kernels == 1);
    CHECK_INT(e->calls, 1);
    CHECK_NEAR(e->flop, 600, 0);
    CHECK_NEAR(e->bytes, 4.0 * 1200, 0);
    CHECK_NEAR(v->bytes, 0, 0);
    CHECK(!row("matmul", "[20,30] [30,10]"));
}

TEST(rows_by_shape)
{
    CHECK_INT(aril_profile_begin((aril_profile_opts){ .by_shape = true }), ARIL_OK);
    {
        ARIL_SCOPE;
        aril_matmul(ones(2, 3), ones(3, 4));
        aril_matmul(ones(2, 3), ones(3, 5));
        aril_matmul(ones(2, 3), ones(3, 5));
    }
    CHECK_INT(aril_profile_end(), ARIL_OK);
    CHECK(row("matmul", "[2,3] [3,4]") && row("matmul", "[2,3] [3,5]"));
    CHECK_INT(row("matmul", "[2,3] [3,5]")->calls, 2);
    CHECK_NEAR(sum_of_rows(), aril_profile_seconds(), 1e-9);
}

TEST(convolutions_and_their_gradients_count_the_same)
{
    CHECK_INT(aril_profile_begin((aril_profile_opts){ 0 }), ARIL_OK);
    {
        ARIL_SCOPE;
        aril_tensor *x = aril_ones(ARIL_SHAPE(2, 6, 9, 9), ARIL_F32, aril_cpu());
        aril_tensor *w = aril_ones(ARIL_SHAPE(8, 6, 3, 3), ARIL_F32, aril_cpu());
        aril_set_requires_grad(x, true);
        aril_set_requires_grad(w, true);
        aril_backward(aril_sum(aril_conv2d(x, w, NULL, (aril_conv_opts){ 0 }), ARIL_ALL));
    }
    CHECK_INT(aril_profile_end(), ARIL_OK);
    double flop = 2.0 * (2 * 8 * 7 * 7) * (6 * 3 * 3);
    CHECK(row("conv", "") && row("conv_dgrad", "") && row("conv_wgrad", ""));
    CHECK_NEAR(row("conv", "")->flop, flop, 0);
    CHECK_NEAR(row("conv_dgrad", "")->flop, flop, 0);
    CHECK_NEAR(row("conv_wgrad", "")->flop, flop, 0);
}

TEST(nothing_is_recorded_when_disabled)
{
    CHECK_INT(aril_profile_begin((aril_profile_opts){ 0 }), ARIL_OK);
    CHECK_INT(aril_profile_end(), ARIL_OK);
    {
        ARIL_SCOPE;
        aril_exp(ones(2, 2));
    }
    CHECK_INT(aril_profile_rows(NULL), 1); /* all the time was outside ops */
    CHECK_NEAR(sum_of_rows(), aril_profile_seconds(), 1e-9);
}

TEST(calls_in_wrong_order)
{
    CHECK_INT(aril_profile_end(), ARIL_ERR_STATE);
    CHECK_INT(aril_profile_begin((aril_profile_opts){ 0 }), ARIL_OK);
    CHECK_INT(aril_profile_begin((aril_profile_opts){ 0 }), ARIL_ERR_STATE);
    CHECK_INT(aril_profile_end(), ARIL_OK);
    CHECK_INT(aril_profile_print(NULL), ARIL_ERR_ARG);
    CHECK_INT(aril_profile_begin((aril_profile_opts){ .trace = "/nowhere/at/all.json" }), ARIL_OK);
    step();
    CHECK_INT(aril_profile_end(), ARIL_ERR_IO);
    CHECK(row("matmul", "") != NULL);
    aril_clear_error();
}

TEST(logging_does_not_disable_profiling)
{
    CHECK_INT(aril_profile_begin((aril_profile_opts){ 0 }), ARIL_OK);
    CHECK_INT(aril_set_log("plugin"), ARIL_OK);
    CHECK_INT(aril_set_log(""), ARIL_OK);
    {
        ARIL_SCOPE;
        aril_exp(ones(2, 2));
    }
    CHECK_INT(aril_profile_end(), ARIL_OK);
    CHECK(row("exp", "") != NULL);
}

TEST(table_output)
{
    CHECK_INT(aril_profile_begin((aril_profile_opts){ 0 }), ARIL_OK);
    step();
    CHECK_INT(aril_profile_end(), ARIL_OK);
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    CHECK_INT(aril_profile_print(f), ARIL_OK);
    fclose(f);
    CHECK(strncmp(text, "op ", 3) == 0 && strstr(text, "GFLOP/s") && strstr(text, "kernel"));
    const char *all = strstr(text, "\nall ");
    CHECK(all && strstr(all, " 100.0%") && strstr(all, "peak: "));
    /* Columns are aligned with their headings. */
    const char *line = strchr(text, '\n') + 1;
    size_t column = (size_t)(strstr(text, "share") + 5 - text);
    for (; *line && strncmp(line, "peak:", 5) != 0; line = strchr(line, '\n') + 1)
        CHECK(line[column - 1] == '%');
    free(text);
}

/* ---- the trace ---- */

/* A strict JSON parser: returns the end of one value, or NULL. */
static const char *json(const char *p);

static const char *blank(const char *p)
{
    return p + strspn(p, " \t\r\n");
}

static const char *json_text(const char *p)
{
    for (p++; *p && *p != '"'; p++) {
        if ((unsigned char)*p < 32) return NULL;
        if (*p == '\\' && !*++p) return NULL;
    }
    return *p ? p + 1 : NULL;
}

static const char *json_list(const char *p, char end)
{
    p = blank(p + 1);
    if (*p == end) return p + 1;
    for (;;) {
        if (end == '}') {
            if (*p != '"' || !(p = json_text(p))) return NULL;
            p = blank(p);
            if (*p++ != ':') return NULL;
        }
        p = json(blank(p));
        if (!p) return NULL;
        p = blank(p);
        if (*p == end) return p + 1;
        if (*p++ != ',') return NULL;
        p = blank(p);
    }
}

static const char *json(const char *p)
{
    if (*p == '{') return json_list(p, '}');
    if (*p == '[') return json_list(p, ']');
    if (*p == '"') return json_text(p);
    char *end;
    double v = strtod(p, &end);
    return end != p && isfinite(v) ? end : NULL;
}

static double number_after(const char *p, const char *key)
{
    const char *at = strstr(p, key);
    return at ? strtod(at + strlen(key), NULL) : NAN;
}

static char *traced(void)
{
    char path[] = "/tmp/aril-trace-XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0) return NULL;
    close(fd);
    aril_profile_begin((aril_profile_opts){ .trace = path });
    step();
    aril_profile_end();
    FILE *f = fopen(path, "r");
    char *text = calloc(1, 1 << 20);
    if (f && text) text[fread(text, 1, (1 << 20) - 1, f)] = 0;
    if (f) fclose(f);
    unlink(path);
    return text;
}

TEST(trace_is_json)
{
    char *text = traced();
    CHECK(text != NULL);
    const char *end = json(blank(text));
    CHECK(end && !*blank(end));
    CHECK(strstr(text, "\"traceEvents\":[") && strstr(text, "\"thread_name\""));
    CHECK(strstr(text, "\"name\":\"matmul\",\"cat\":\"op\",\"ph\":\"X\""));
    CHECK(strstr(text, "\"inputs\":\"[20,40] [40,30]\""));
    CHECK(strstr(text, "\"name\":\"memory\",\"ph\":\"C\""));
    CHECK(strstr(text, "\"lost_events\":0"));
    free(text);
}

/* An op in backward is inside its node's bar, and that inside backward's. Inner bars are written
 * first. */
TEST(trace_is_nested)
{
    char *text = traced();
    CHECK(text != NULL);
    const char *grad = strstr(text, "\"name\":\"tanh_grad\""), *node = NULL, *walk = NULL;
    CHECK(grad != NULL);
    node = strstr(grad, "\"name\":\"tanh\",\"cat\":\"span\"");
    walk = strstr(grad, "\"name\":\"backward\"");
    CHECK(node && walk);
    const char *bar[] = { grad, node, walk };
    for (int i = 0; i < 2; i++) {
        double begin = number_after(bar[i], "\"ts\":"), outer = number_after(bar[i + 1], "\"ts\":");
        double end = begin + number_after(bar[i], "\"dur\":");
        CHECK(begin >= outer && end <= outer + number_after(bar[i + 1], "\"dur\":") + 0.002);
    }
    free(text);
}

/* ---- threads ---- */

static void *work(void *arg)
{
    for (int i = 0; i < 200; i++) {
        ARIL_SCOPE;
        aril_exp(ones(10, 10));
    }
    return arg;
}

TEST(ops_of_all_threads_count)
{
    pthread_t thread[3];
    int n = 0;
    CHECK_INT(aril_profile_begin((aril_profile_opts){ 0 }), ARIL_OK);
    while (n < 3 && pthread_create(&thread[n], NULL, work, NULL) == 0) n++;
    work(NULL);
    for (int i = 0; i < n; i++) pthread_join(thread[i], NULL);
    CHECK_INT(aril_profile_end(), ARIL_OK);
    CHECK_INT(n, 3);
    CHECK(row("exp", "") != NULL);
    CHECK_INT(row("exp", "")->calls, 800);
    CHECK_NEAR(sum_of_rows(), aril_profile_seconds(), 1e-9);
}

static void *work_long(void *arg)
{
    for (int i = 0; i < 3000; i++) {
        ARIL_SCOPE;
        aril_exp(ones(10, 10));
    }
    return arg;
}

TEST(profiles_begin_and_end_while_others_work)
{
    pthread_t thread[2];
    int n = 0;
    while (n < 2 && pthread_create(&thread[n], NULL, work_long, NULL) == 0) n++;
    for (int i = 0; i < 20; i++) {
        CHECK_INT(aril_profile_begin((aril_profile_opts){ .by_shape = i % 2 }), ARIL_OK);
        work(NULL);
        CHECK_INT(aril_profile_end(), ARIL_OK);
        CHECK(sum_of_rows() > 0);
    }
    for (int i = 0; i < n; i++) pthread_join(thread[i], NULL);
}

/* The peak follows the number of threads, and no product of matrices exceeds it. */
TEST(machine_peak_bounds_a_matrix_product)
{
    aril_set_threads(1);
    double peak = aril_machine_peak(), best = 0;
    CHECK(peak > 1e8);
    CHECK(aril_machine_peak() == peak);
    aril_tensor *a = ones(256, 256), *b = ones(256, 256);
    for (int i = 0; i < 20; i++) {
        ARIL_SCOPE;
        double start = aril__seconds();
        aril_matmul(a, b);
        double rate = 2.0 * 256 * 256 * 256 / (aril__seconds() - start);
        if (rate > best) best = rate;
    }
    aril_set_threads(0);
    CHECK_MSG(best < 1.1 * peak, "%g FLOP/s of %g", best, peak);
}
