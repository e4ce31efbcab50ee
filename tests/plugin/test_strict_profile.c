/* Profiles of a device that does its work later: times of the device itself, by op and kernel. */
#include "aril/aril.h"
#include "ops/table/rows.h"
#include "plugin/strict.h"
#include "support/test.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static aril_device strict(int index)
{
    static bool added;
    if (!added) added = aril__plugin_add("strict", strict_open) == ARIL_OK;
    return aril_device_named(index ? "strict:1" : "strict:0");
}

static const aril_profile_row *row(const char *name)
{
    const aril_profile_row *rows;
    int n = aril_profile_rows(&rows);
    for (int i = 0; i < n; i++)
        if (strcmp(rows[i].name, name) == 0) return &rows[i];
    return NULL;
}

static const aril_profile_kernel *kernel(const char *name, const char *op)
{
    const aril_profile_kernel *k;
    int n = aril_profile_kernels(&k);
    for (int i = 0; i < n; i++)
        if (strcmp(k[i].name, name) == 0 && strcmp(k[i].op, op) == 0) return &k[i];
    return NULL;
}

/* The queue works 20 ms after the host has queued everything. */
static void held_step(aril_tensor *a, aril_tensor *b)
{
    ARIL_SCOPE;
    strict_hold(0, true);
    for (int i = 0; i < 4; i++) aril_matmul(a, b);
    aril_exp(a);
    usleep(20000);
    strict_hold(0, false);
}

static void profile_step(aril_profile_opts opts)
{
    ARIL_SCOPE;
    aril_tensor *a = aril_ones(ARIL_SHAPE(200, 300), ARIL_F32, strict(0));
    aril_tensor *b = aril_ones(ARIL_SHAPE(300, 100), ARIL_F32, strict(0));
    aril_synchronize(strict(0));
    CHECK_INT(aril_profile_begin(opts), ARIL_OK);
    held_step(a, b);
    float got[200];
    aril_read(aril_sum(a, ARIL_AXES(1)), got);
    CHECK_INT(aril_profile_end(), ARIL_OK);
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

TEST(work_is_attributed_to_the_op_that_queued_it)
{
    profile_step((aril_profile_opts){ 0 });
    const aril_profile_row *m = row("matmul"), *e = row("exp"), *w = row("(waiting)");
    const aril_profile_kernel *k = kernel("strict kernel", "matmul");
    CHECK(m && e && w && k);
    CHECK_INT(m->calls, 4);
    CHECK_INT(k->calls, 4);
    CHECK(m->device_seconds > 0 && e->device_seconds > 0);
    CHECK_NEAR(m->device_seconds, k->seconds, 1e-9);
    CHECK(kernel("strict kernel", "exp") && kernel("strict kernel", "sum"));
    CHECK(kernel("copy to host", "(waiting)"));
    CHECK(aril_device_equal(k->device, strict(0)));
    /* Least times are by the limits of the device: 10^12 bytes and operations per second. */
    CHECK_NEAR(m->least_seconds, m->flop * 1e-12, 1e-15);
    CHECK_NEAR(e->least_seconds, e->bytes * 1e-12, 1e-15);
}

TEST(rows_are_sorted_by_the_time_of_devices)
{
    profile_step((aril_profile_opts){ 0 });
    const aril_profile_row *rows;
    int n = aril_profile_rows(&rows);
    for (int i = 1; i < n; i++) CHECK(rows[i].device_seconds <= rows[i - 1].device_seconds);
    const aril_profile_kernel *k;
    n = aril_profile_kernels(&k);
    CHECK(n >= 4);
    for (int i = 1; i < n; i++) CHECK(k[i].seconds <= k[i - 1].seconds);
}

TEST(idle_time_of_devices)
{
    profile_step((aril_profile_opts){ 0 });
    const aril_profile_device *d;
    double sum = 0;
    const aril_profile_kernel *k;
    int n = aril_profile_kernels(&k);
    for (int i = 0; i < n; i++) sum += k[i].seconds;
    CHECK_INT(aril_profile_devices(&d), 2);
    CHECK_STR(d[0].missing, "");
    CHECK(d[0].busy_seconds > 0 && d[0].seconds - d[0].busy_seconds > 0.02); /* it was held */
    CHECK_NEAR(d[0].busy_seconds, sum, 1e-9);                                /* one queue */
    CHECK_NEAR(d[1].busy_seconds, 0, 0);
}

static void *run_tanh(void *arg)
{
    for (int i = 0; i < 50; i++) {
        ARIL_SCOPE;
        aril_tanh(arg);
    }
    return NULL;
}

TEST(work_of_two_threads_is_kept_apart)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_ones(ARIL_SHAPE(50), ARIL_F32, strict(0));
    pthread_t other;
    CHECK_INT(aril_profile_begin((aril_profile_opts){ 0 }), ARIL_OK);
    CHECK_INT(pthread_create(&other, NULL, run_tanh, x), 0);
    for (int i = 0; i < 40; i++) aril_exp(x);
    pthread_join(other, NULL);
    CHECK_INT(aril_profile_end(), ARIL_OK);
    const aril_profile_kernel *t = kernel("strict kernel", "tanh"),
                              *e = kernel("strict kernel", "exp");
    CHECK(t && e);
    CHECK_INT(t->calls, 50);
    CHECK_INT(e->calls, 40);
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

/* Text that printing a profile writes; free it. */
static char *printed(void)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    aril_profile_print(f);
    fclose(f);
    return text;
}

TEST(the_table_shows_kernels_and_idle_time)
{
    profile_step((aril_profile_opts){ 0 });
    char *text = printed();
    CHECK_MSG(strstr(text, "device ms") && strstr(text, "host ms") && strstr(text, "limit"), "%s",
              text);
    CHECK(strstr(text, "\nkernel ") && strstr(text, "\nstrict kernel"));
    CHECK(strstr(text, "strict:0: busy for ") && strstr(text, ", idle for "));
    CHECK(strstr(text, "strict:0: limits: 1000 GB/s, 1.0 TFLOP/s in f32 (invented)\n"));
    CHECK(!strstr(text, "peak")); /* the CPU's is not the device's */
    free(text);
}

TEST(a_device_that_cannot_be_measured_says_why)
{
    strict(0);
    strict_refuse_profiles(true);
    profile_step((aril_profile_opts){ 0 });
    strict_refuse_profiles(false);
    CHECK(row("matmul") && row("matmul")->device_seconds == 0);
    CHECK_INT(aril_profile_kernels(NULL), 0);
    char *text = printed();
    CHECK(strstr(text, "strict:0: its own times were not measured: it does not feel like it\n"));
    CHECK(!strstr(text, "device ms"));
    free(text);
}

TEST(queues_are_rows_of_the_trace)
{
    char path[] = "/tmp/aril-trace-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);
    profile_step((aril_profile_opts){ .trace = path });
    FILE *f = fopen(path, "r");
    char *text = calloc(1, 1 << 20);
    CHECK(f && text && fread(text, 1, (1 << 20) - 1, f) > 0);
    fclose(f);
    unlink(path);
    CHECK(strstr(text, "\"process_name\",\"ph\":\"M\",\"pid\":2,\"tid\":0,\"args\":{\"name\":"
                       "\"strict:0\"}"));
    const char *queue = strstr(text, "{\"name\":\"queue 7\"}");
    CHECK(queue && !strstr(queue + 1, "{\"name\":\"queue 7\"}"));
    CHECK(strstr(text, "{\"name\":\"strict kernel\",\"cat\":\"kernel\",\"ph\":\"X\",\"pid\":2,"
                       "\"tid\":7,"));
    CHECK(strstr(text, "\"args\":{\"op\":\"matmul\"}"));
    CHECK(strstr(text, "{\"name\":\"memory\",\"ph\":\"C\",\"pid\":2,"));
    CHECK(strstr(text, "\"args\":{\"op\":\"(waiting)\",\"bytes\":800}"));
    free(text);
}

TEST(limits_of_devices)
{
    aril_limits l = aril_device_limits(strict(1));
    CHECK_NEAR(l.bytes, 1e12, 0);
    CHECK_STR(l.source, "invented");
    l = aril_device_limits(aril_cpu());
    CHECK_NEAR(l.f32, aril_machine_peak(), 0.5 * aril_machine_peak());
    CHECK(l.f32 > 0 && l.bytes == 0);
    l = aril_device_limits((aril_device){ 0, 9 });
    CHECK(l.f32 == 0 && !aril_ok());
    aril_clear_error();
}
