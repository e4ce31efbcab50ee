/* The trace of a profile: a timeline of every thread and of every queue of a device. */
#include "core/profile_parts.h"

#include "core/error.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static void write_text(FILE *f, const char *text)
{
    fputc('"', f);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') fputc('\\', f);
        if ((unsigned char)*text >= 32) fputc(*text, f);
    }
    fputc('"', f);
}

static void write_name(FILE *f, const char *what, int process, int row, const char *name)
{
    fprintf(f, ",\n{\"name\":\"%s\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":", what,
            process, row);
    write_text(f, name);
    fputs("}}", f);
}

/* A bar of the timeline, without its arguments and the closing brace. */
static void write_bar(FILE *f, const char *name, const char *category, int process, int row,
                      int64_t begin, int64_t ns)
{
    fputs(",\n{\"name\":", f);
    write_text(f, name);
    fprintf(f, ",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f",
            category, process, row, (double)begin * 1e-3, (double)ns * 1e-3);
}

static void write_event(FILE *f, int thread, const aril__span_event *e, int64_t origin)
{
    write_bar(f, e->label, e->kernel ? "op" : "span", 1, thread, e->begin - origin, e->ns);
    if (e->kernel || e->shapes) {
        fputs(",\"args\":{\"kernel\":", f);
        write_text(f, e->kernel ? e->kernel : "");
        fputs(",\"inputs\":", f);
        write_text(f, e->shapes ? e->shapes : "");
        fprintf(f, ",\"bytes\":%.0f,\"flop\":%.0f}", e->bytes, e->flop);
    }
    fputc('}', f);
}

/* A point of a curve of memory in use. */
static void write_memory(FILE *f, int process, int64_t at, int64_t live)
{
    fprintf(
        f,
        ",\n{\"name\":\"memory\",\"ph\":\"C\",\"pid\":%d,\"ts\":%.3f,\"args\":{\"live\":%" PRId64
        "}}",
        process, (double)at * 1e-3, live);
}

static void write_track(FILE *f, const aril__profile *p, const aril__track *t)
{
    char name[64];
    snprintf(name, sizeof name, "thread %d%s", t->number,
             t->number == (int)p->owner ? " (began the profile)" : "");
    write_name(f, "thread_name", 1, t->number, name);
    for (int64_t i = 0; i < t->n_events; i++) {
        const aril__span_event *e = &t->events[i];
        write_event(f, t->number, e, p->begin);
        if (i == 0 || e->live != t->events[i - 1].live)
            write_memory(f, 1, e->begin + e->ns - p->begin, e->live);
    }
    for (int64_t i = 0; i < t->n_memory; i++)
        write_memory(f, 2 + t->memory[i].device, t->memory[i].at - p->begin, t->memory[i].live);
}

/* The queues that have a name in the trace. */
typedef struct named_queues {
    int n;
    struct {
        int device, queue;
    } at[256];
} named_queues;

static void name_queue(FILE *f, named_queues *named, const aril__work_event *e)
{
    char text[32];
    for (int i = 0; i < named->n; i++)
        if (named->at[i].device == e->device && named->at[i].queue == e->queue) return;
    if (named->n == (int)(sizeof named->at / sizeof *named->at)) return;
    named->at[named->n].device = e->device;
    named->at[named->n++].queue = e->queue;
    snprintf(text, sizeof text, "queue %d", e->queue);
    write_name(f, "thread_name", 2 + e->device, e->queue, text);
}

/* Devices follow the program as processes 2, 3 ..., with a row for each queue. */
static void write_devices(FILE *f, const aril__profile *p)
{
    const aril_profile_device *devices;
    const aril__work_event *e;
    named_queues named = { 0 };
    char name[64];
    int n = aril__profile_devices_of(&devices);
    for (int i = 0; i < n; i++)
        write_name(f, "process_name", 2 + i, 0,
                   aril_device_name(devices[i].device, name, sizeof name));
    int64_t n_events = aril__profile_work_events(&e);
    for (int64_t i = 0; i < n_events; i++, e++) {
        name_queue(f, &named, e);
        write_bar(f, e->name, "kernel", 2 + e->device, e->queue, e->begin - p->begin, e->ns);
        fputs(",\"args\":{\"op\":", f);
        write_text(f, e->op);
        if (e->bytes > 0) fprintf(f, ",\"bytes\":%.0f", e->bytes);
        fputs("}}", f);
    }
}

aril_status aril__profile_write_trace(const aril__profile *p)
{
    FILE *f = fopen(p->trace, "w");
    if (!f)
        return aril__fail(ARIL_ERR_IO, "profile: cannot write '%s': %s", p->trace, strerror(errno));
    int64_t lost = 0;
    fputs(
        "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
        "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"tid\":0,\"args\":{\"name\":\"aril\"}}",
        f);
    for (const aril__track *t = p->tracks; t; t = t->next) {
        if (t->profile != p->number) continue;
        write_track(f, p, t);
        lost += t->lost;
    }
    write_devices(f, p);
    fprintf(f, "\n],\"otherData\":{\"lost_events\":%" PRId64 "}}\n", lost);
    bool bad = ferror(f) != 0;
    if (fclose(f) || bad) return aril__fail(ARIL_ERR_IO, "profile: writing '%s' failed", p->trace);
    return ARIL_OK;
}
