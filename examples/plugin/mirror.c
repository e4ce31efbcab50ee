/* A plug-in in one file: a kind of device called "mirror", with memory of its own and three
 * kernels. Every other op still works on it, by falling back to the CPU.
 *
 * It does not link against Aril: it calls Aril through the host's function table. */
#include <aril/plugin.h>

#include <stdlib.h>
#include <string.h>

static const aril_host *host;

/* ---- the device: memory that the host cannot access ---- */

typedef struct mirror {
    size_t in_use;
} mirror;

static void *mirror_alloc(void *self, aril_queue *queue, size_t bytes)
{
    (void)queue; /* the device has no queues: work is done when a call returns */
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (p) ((mirror *)self)->in_use += bytes;
    return p;
}

static void mirror_free(void *self, aril_queue *queue, void *p, size_t bytes)
{
    (void)queue;
    ((mirror *)self)->in_use -= bytes;
    free(p);
}

static aril_status mirror_copy(void *self, aril_queue *queue, void *dst, const void *src,
                               size_t bytes)
{
    (void)self;
    (void)queue;
    memcpy(dst, src, bytes);
    return 0;
}

/* To and from the host. Finished on return, which is allowed for asynchronous copies too. */
static aril_status mirror_transfer(void *self, aril_queue *queue, void *dst, const void *src,
                                   size_t bytes, bool async)
{
    (void)async;
    return mirror_copy(self, queue, dst, src, bytes);
}

static void mirror_describe(void *self, char *buf, size_t size)
{
    snprintf(buf, size, "an example, %zu bytes in use", ((mirror *)self)->in_use);
}

/* ---- kernels ---- */

/* add: contiguous f32 of one shape, or a number in place of one; other cases fall back. Whether an
 * input is a number is part of what `prepare` may depend on, its value is not. */
static const char *add_prepare(const aril_run *r, aril_plan *plan)
{
    (void)plan;
    aril_host_number value;
    for (int i = 0; i < 2; i++)
        if (!host->number(r, i, &value) &&
            (host->dtype(host->in(r, i)) != ARIL_F32 ||
             host->numel(host->in(r, i)) != host->numel(host->out(r, 0))))
            return "needs two f32 tensors of one shape, or one and a number";
    return NULL;
}

/* The elements of input i; of a number, *value, which is read again at each step. */
static const float *elements(const aril_run *r, int i, float *value, int64_t *step)
{
    aril_host_number number;
    bool is_number = host->number(r, i, &number);
    *step = !is_number;
    if (!is_number) return host->data(host->in(r, i));
    *value = (float)number.f64;
    return value;
}

static aril_status add_run(aril_run *r)
{
    float value[2];
    int64_t step[2];
    const float *a = elements(r, 0, &value[0], &step[0]), *b = elements(r, 1, &value[1], &step[1]);
    float *y = host->data(host->out(r, 0));
    for (int64_t i = 0, n = host->numel(host->out(r, 0)); i < n; i++)
        y[i] = a[i * step[0]] + b[i * step[1]];
    return 0;
}

static aril_status relu_run(aril_run *r)
{
    const float *a = host->data(host->in(r, 0));
    float *y = host->data(host->out(r, 0));
    for (int64_t i = 0, n = host->numel(host->out(r, 0)); i < n; i++) y[i] = a[i] < 0 ? 0 : a[i];
    return 0;
}

/* sum over all elements, in two steps through a workspace: partial sums, then their sum. */
enum { PARTS = 8 };

typedef struct sum_plan {
    int64_t n;
} sum_plan;

static const char *sum_prepare(const aril_run *r, aril_plan *plan)
{
    const int64_t *mask = host->attr_i64(r, "mask");
    if (!mask || mask[0] != (1 << host->ndim(host->in(r, 0))) - 1) return "sums over all axes only";
    sum_plan *p = malloc(sizeof *p);
    if (!p) return "out of memory";
    p->n = host->numel(host->in(r, 0));
    plan->prepared = p;
    plan->workspace = PARTS * sizeof(double);
    return NULL;
}

static aril_status sum_run(aril_run *r)
{
    const sum_plan *p = host->prepared(r);
    const float *x = host->data(host->in(r, 0));
    double *part = host->workspace(r), total = 0;
    memset(part, 0, PARTS * sizeof *part);
    for (int64_t i = 0; i < p->n; i++) part[i % PARTS] += x[i];
    for (int i = 0; i < PARTS; i++) total += part[i];
    *(float *)host->data(host->out(r, 0)) = (float)total;
    return 0;
}

/* ---- the one exported symbol ---- */

__attribute__((visibility("default"))) aril_plugin_open_fn aril_plugin_open;

aril_status aril_plugin_open(const aril_host *given, aril_plugin *out)
{
    static const aril_device_ops ops = { .size = sizeof ops,
                                         .alloc = mirror_alloc,
                                         .free = mirror_free,
                                         .from_host = mirror_transfer,
                                         .to_host = mirror_transfer,
                                         .copy = mirror_copy,
                                         .describe = mirror_describe };
    static const aril_row rows[] = {
        { .op = "add",
          .name = "mirror_add",
          .dtypes = 1u << ARIL_F32,
          .prepare = add_prepare,
          .run = add_run },
        { .op = "relu", .name = "mirror_relu", .dtypes = 1u << ARIL_F32, .run = relu_run },
        { .op = "sum",
          .name = "mirror_sum",
          .dtypes = 1u << ARIL_F32,
          .prepare = sum_prepare,
          .run = sum_run,
          .destroy = free,
          .layout = "mask I64 1; keep I64 1; " }
    };
    static mirror device;
    static void *const devices[] = { &device };

    host = given;
    *out = (aril_plugin){ .size = sizeof *out,
                          .version = ARIL_PLUGIN_VERSION,
                          .name = "mirror",
                          .kind = "mirror",
                          .n_devices = 1,
                          .device_ops = &ops,
                          .devices = devices,
                          .n_rows = sizeof rows / sizeof *rows,
                          .rows = rows };
    host->log("mirror: hello from Aril %s", host->aril_version);
    return 0;
}
