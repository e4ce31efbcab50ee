/* aril time of Caffe's nets: hooks tell the layers of a pass apart. */
#include "caffe.h"
#include "commands.h"
#include "run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HOOKS = 3 };

typedef struct layer_time {
    struct timing *all;
    int layer, hook[HOOKS];
    double began, forward, backward;
} layer_time;

/* A pass: its seconds, and those of each layer, forward and backward. */
typedef struct one_pass {
    double forward, backward;
    double *layer;
} one_pass;

/* Passes of one kind. What is reported is the mean of the fastest quarter of them: the layers of
 * the same passes add up to the whole, and passes that other load on the machine slowed do not
 * count, so that passes with and without hooks agree on a busy machine too. */
enum { MOST_PASSES = 10001 };
typedef struct passes {
    one_pass at[MOST_PASSES];
    int n;
} passes;

typedef struct timing {
    aril_module *net;
    aril_caffe_feed *feed;
    char folder[4096]; /* of the net's file */
    aril_device device;
    bool on_device;     /* not the CPU: work is done later */
    int64_t iterations; /* 0: by time */
    int n_in, n_out, n_layers;
    aril_tensor *in[64];
    aril_tensor **trained; /* the parameters that require a gradient */
    int n_trained;
    layer_time *layer;
    int current; /* the layer whose backward pass is running; -1: none yet */
    double since;
    passes *hooked, *plain; /* with layers told apart, and without */
} timing;

/* The time when what was started has been done. */
static double tick(const timing *t)
{
    if (t->on_device) aril_synchronize(t->device);
    return bench_now();
}

/* ---- hooks ---- */

static void before(aril_module *m, int n_in, aril_tensor **in, void *ctx)
{
    (void)m, (void)n_in, (void)in;
    layer_time *l = ctx;
    l->began = tick(l->all);
}

static void after(aril_module *m, int n_in, aril_tensor *const *in, int n_out, aril_tensor **out,
                  void *ctx)
{
    (void)m, (void)n_in, (void)in, (void)n_out, (void)out;
    layer_time *l = ctx;
    l->forward += tick(l->all) - l->began;
}

static void end_layer(timing *t, double now)
{
    if (t->current >= 0) t->layer[t->current].backward += now - t->since;
    t->since = now;
}

/* The gradient of a layer's result is there: the backward pass of the layer begins. */
static aril_tensor *backward(aril_module *m, int out, aril_tensor *grad, void *ctx)
{
    (void)m, (void)out, (void)grad;
    layer_time *l = ctx;
    end_layer(l->all, tick(l->all));
    l->all->current = l->layer;
    return NULL;
}

static void add_hooks(timing *t)
{
    for (int i = 0; i < t->n_layers && aril_ok(); i++) {
        aril_module *m = aril_caffe_layer_at(t->net, i).module;
        layer_time *l = &t->layer[i];
        if (!m) continue;
        l->hook[0] = aril_module_hook_before(m, before, l);
        l->hook[1] = aril_module_hook_after(m, after, l);
        l->hook[2] = aril_module_hook_backward(m, backward, l);
    }
}

static void remove_hooks(timing *t)
{
    for (int i = 0; i < t->n_layers; i++)
        for (int k = 0; k < HOOKS; k++) {
            int id = t->layer[i].hook[k];
            if (id > 0) aril_module_unhook(aril_caffe_layer_at(t->net, i).module, id);
            t->layer[i].hook[k] = 0;
        }
}

/* ---- passes ---- */

/* The loss; of a net without one, the sum of its outputs. */
static aril_tensor *loss_of(const timing *t, aril_list in)
{
    aril_tensor *out[64];
    aril_tensor *loss = aril_caffe_loss(t->net, in, out), *sum = NULL;
    bool has = false;
    for (int i = 0; i < t->n_out; i++) has |= aril_caffe_output(t->net, i).loss_weight != 0;
    for (int i = 0; i < t->n_out && !has; i++) {
        aril_tensor *one = aril_sum(out[i], ARIL_ALL);
        sum = sum ? aril_add(sum, one) : one;
    }
    return sum ? sum : loss;
}

static void pass(timing *t, passes *to)
{
    ARIL_SCOPE;
    double start = tick(t);
    aril_tensor *loss = loss_of(t, (aril_list){ .n = t->n_in, .at = t->in });
    double middle = tick(t);
    t->current = -1;
    t->since = middle;
    /* Nothing to do without a trainable blob: its layers take no time backward. */
    if (aril_ok() && aril_requires_grad(loss)) aril_backward(loss);
    double end = tick(t);
    end_layer(t, end);
    to->at[to->n++] = (one_pass){ .forward = middle - start, .backward = end - middle };
    aril_module_zero_grad(t->net);
}

static void pass_with_hooks(timing *t)
{
    for (int i = 0; i < t->n_layers; i++) t->layer[i] = (layer_time){ .all = t, .layer = i };
    add_hooks(t);
    pass(t, t->hooked);
    remove_hooks(t);
    double *times = calloc(2 * (size_t)t->n_layers + 1, sizeof *times);
    for (int i = 0; times && i < t->n_layers; i++) {
        times[2 * i] = t->layer[i].forward;
        times[2 * i + 1] = t->layer[i].backward;
    }
    t->hooked->at[t->hooked->n - 1].layer = times;
    if (!times) aril_fail(ARIL_ERR_MEMORY, "out of memory");
}

static void clear(passes *p)
{
    for (int i = 0; i < p->n; i++) free(p->at[i].layer);
    p->n = 0;
}

/* Whether pass n is made, after pass 0, which prepares. */
static bool goes_on(const timing *t, int n, double end)
{
    return t->iterations ? n <= t->iterations : n <= 4 || bench_now() < end;
}

/* Passes with and without hooks in turn, in changing order, so that other load on the machine slows
 * both. */
static void run_passes(timing *t, double seconds)
{
    double end = 0;
    for (int n = 0; aril_ok() && n < MOST_PASSES && goes_on(t, n, end); n++) {
        if (n % 2) pass_with_hooks(t);
        pass(t, t->plain);
        if (n % 2 == 0) pass_with_hooks(t);
        if (n > 0) continue; /* the first ones prepare */
        clear(t->plain);
        clear(t->hooked);
        end = bench_now() + seconds;
    }
}

static int by_time(const void *a, const void *b)
{
    const one_pass *x = a, *y = b;
    double u = x->forward + x->backward, v = y->forward + y->backward;
    return u < v ? -1 : u > v;
}

/* Sorts the passes; returns how many are the fastest quarter. */
static int fastest_of(passes *p)
{
    qsort(p->at, (size_t)p->n, sizeof *p->at, by_time);
    return (p->n + 3) / 4;
}

/* Forward and backward as one program. */
static void traced(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    timing *t = ctx;
    out[0] = loss_of(t, (aril_list){ .n = t->n_in, .at = in });
    if (t->n_trained && aril_requires_grad(out[0]))
        aril_gradients(out[0], (aril_list){ .n = t->n_trained, .at = t->trained }, out + 1,
                       (aril_grad_opts){ .allow_unused = true });
}

static bool find_trained(timing *t)
{
    const aril_named *p = aril_parameters(t->net);
    t->trained = calloc(p ? (size_t)p->n + 1 : 1, sizeof(aril_tensor *));
    if (!t->trained) return aril_fail(ARIL_ERR_MEMORY, "out of memory"), false;
    for (int i = 0; p && i < p->n; i++)
        if (aril_requires_grad(p->at[i])) t->trained[t->n_trained++] = p->at[i];
    return true;
}

/* Seconds of a compiled pass. */
static double compiled(timing *t, double seconds)
{
    if (!find_trained(t)) return 0;
    aril_program *program = aril_jit(traced, t, (aril_jit_opts){ .max_results = t->n_trained + 1 });
    aril_tensor **out = calloc((size_t)t->n_trained + 1, sizeof *out);
    passes *runs = t->plain;
    clear(runs);
    double end = 0;
    for (int n = 0; program && out && aril_ok() && n < MOST_PASSES && goes_on(t, n, end); n++) {
        ARIL_SCOPE;
        double start = tick(t);
        aril_program_run(program, (aril_list){ .n = t->n_in, .at = t->in }, out);
        double now = tick(t);
        if (n == 0)
            end = now + seconds;
        else
            runs->at[runs->n++] = (one_pass){ .forward = now - start };
    }
    int count = fastest_of(runs);
    double took = 0;
    for (int i = 0; i < count; i++) took += runs->at[i].forward / count;
    aril_program_free(program);
    free(out);
    return took;
}

/* ---- the net and its inputs ---- */

static bool open_inputs(timing *t, bool train)
{
    t->n_in = aril_caffe_inputs(t->net);
    t->n_out = aril_caffe_outputs(t->net);
    t->n_layers = aril_caffe_layers(t->net);
    t->layer = calloc((size_t)t->n_layers + 1, sizeof *t->layer);
    if (t->n_in > 64 || t->n_out > 64 || !t->layer)
        return aril_fail(ARIL_ERR_UNSUPPORTED, "a net with more than 64 inputs or outputs"), false;
    bool known = true;
    for (int i = 0; i < t->n_in; i++) known &= aril_caffe_input(t->net, i).known;
    if (!known) {
        t->feed = aril_caffe_feed_new(t->net, (aril_caffe_feed_opts){ .train = train,
                                                                      .root = t->folder,
                                                                      .device = t->device });
        return t->feed && aril_caffe_feed_next(t->feed, t->in) == ARIL_OK;
    }
    for (int i = 0; i < t->n_in; i++)
        t->in[i] = aril_zeros(aril_caffe_input(t->net, i).shape, ARIL_F32, t->device);
    return aril_ok();
}

/* ---- output ---- */

/* The columns of the table: of a terminal as wide as that, otherwise as wide as the names. */
typedef struct columns {
    int name, type, label; /* type 0: left out; label: both */
} columns;

enum { NUMBERS = 24, TOTAL = 15 };

static columns columns_of(const timing *t)
{
    columns c = { .name = 28, .type = 20 };
    for (int i = 0; i < t->n_layers; i++) {
        int n = printed_width(aril_caffe_layer_at(t->net, i).name);
        if (n > c.name) c.name = n;
    }
    if (isatty(STDOUT_FILENO)) {
        int room = terminal_width(stdout) - NUMBERS - TOTAL;
        if (room < 17) room = 17;  /* "sum of the layers" */
        if (room < 36) c.type = 0; /* names are more telling */
        if (room < c.name + c.type + 1) c.name = c.type ? room - c.type - 1 : room;
    }
    c.label = c.type ? c.name + 1 + c.type : c.name;
    return c;
}

static void print_label(columns c, const char *name, const char *type)
{
    print_padded(name, c.name);
    if (c.type) putchar(' ');
    if (c.type) print_padded(type, c.type);
}

static void print_sum(columns c, const char *what, double forward, double back)
{
    print_padded(what, c.label);
    printf(" %11.3f %11.3f  %.3f ms\n", forward, back, forward + back);
}

/* Returns the sum of the layers, in ms. */
static double print_times(const timing *t, columns c)
{
    int n = fastest_of(t->hooked);
    double share = 1e3 / n, sum[2] = { 0 };
    print_label(c, "layer", "type");
    printf(" %11s %11s\n", "forward ms", "backward ms");
    for (int i = 0; i < t->n_layers; i++) {
        aril_caffe_layer l = aril_caffe_layer_at(t->net, i);
        double took[2] = { 0 };
        for (int k = 0; k < n; k++)
            for (int way = 0; way < 2; way++)
                took[way] += t->hooked->at[k].layer[2 * i + way] * share;
        print_label(c, l.name, l.type);
        printf(" %11.3f %11.3f\n", took[0], took[1]);
        for (int way = 0; way < 2; way++) sum[way] += took[way];
    }
    print_sum(c, "sum of the layers", sum[0], sum[1]);
    return sum[0] + sum[1];
}

/* Returns their mean, in ms. */
static double print_passes(columns c, const char *what, passes *p)
{
    int n = fastest_of(p);
    double forward = 0, back = 0;
    for (int i = 0; i < n; i++) {
        forward += p->at[i].forward * 1e3 / n;
        back += p->at[i].backward * 1e3 / n;
    }
    print_sum(c, what, forward, back);
    return forward + back;
}

static void print_busy(double percent)
{
    char text[256];
    snprintf(
        text, sizeof text,
        "The layers and the whole differ by %.0f %%: the machine is probably busy, or the net so "
        "small that the time between layers counts.",
        percent);
    print_wrapped(stdout, text, 0);
}

static void print_all(timing *t, double seconds)
{
    columns c = columns_of(t);
    double sum = print_times(t, c);
    print_passes(c, "the same passes as a whole", t->hooked);
    double whole = print_passes(c, "whole, layers not told apart", t->plain);
    double program = compiled(t, seconds);
    if (program > 0) {
        print_padded("whole, compiled", c.label);
        printf(" %11s %11s  %.3f ms\n", "", "", program * 1e3);
    }
    if (aril_ok() && fabs(sum - whole) > 0.05 * whole) print_busy(100 * fabs(sum - whole) / whole);
}

int caffe_time(const char *path, const caffe_time_options *o)
{
    ARIL_SCOPE;
    caffe_stages stages;
    aril_caffe_opts opts = { .weights = o->weights };
    timing t = { .device = device_option(o->device), .iterations = o->iterations };
    t.on_device = !aril_device_equal(t.device, aril_cpu());
    if (caffe_state_opts(&o->state, ARIL_CAFFE_TRAIN, &stages, &opts))
        t.net = caffe_open(path, opts, o->batch);
    bool train = opts.phase == ARIL_CAFFE_TRAIN;
    caffe_folder(path, t.folder, sizeof t.folder);
    t.hooked = calloc(1, sizeof *t.hooked);
    t.plain = calloc(1, sizeof *t.plain);
    if (!t.hooked || !t.plain) aril_fail(ARIL_ERR_MEMORY, "out of memory");
    if (t.net && t.on_device) aril_module_to(t.net, t.device);
    if (t.net && aril_ok() && open_inputs(&t, train)) {
        if (train) aril_module_train(t.net);
        if (!aril_module_built(t.net))
            aril_module_build_n(t.net, (aril_list){ .n = t.n_in, .at = t.in });
        if (aril_ok()) run_passes(&t, 2 * o->seconds / 3);
        if (aril_ok()) print_all(&t, o->seconds / 3);
    }
    if (t.hooked) clear(t.hooked);
    free(t.hooked);
    free(t.plain);
    aril_caffe_feed_free(t.feed);
    aril_module_release(t.net);
    free(t.layer);
    free(t.trained);
    return aril_ok() ? EXIT_DONE : report("time");
}
