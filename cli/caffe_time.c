/* aril time of Caffe's nets: hooks tell the layers of a pass apart. */
#include "caffe.h"
#include "commands.h"
#include "run.h"

#include <stdlib.h>
#include <string.h>

enum { HOOKS = 3 };

typedef struct layer_time {
    struct timing *all;
    int layer, hook[HOOKS];
    double began, forward, backward;
} layer_time;

/* Seconds of whole passes. */
typedef struct passes {
    double forward, backward;
    int64_t n;
} passes;

typedef struct timing {
    aril_module *net;
    aril_caffe_feed *feed;
    char folder[4096]; /* of the net's file */
    int n_in, n_out, n_layers;
    aril_tensor *in[64];
    layer_time *layer;
    int current; /* the layer whose backward pass is running; -1: none yet */
    double since;
    passes hooked, plain; /* with layers told apart, and without */
} timing;

/* ---- hooks ---- */

static void before(aril_module *m, int n_in, aril_tensor **in, void *ctx)
{
    (void)m, (void)n_in, (void)in;
    layer_time *l = ctx;
    l->began = bench_now();
}

static void after(aril_module *m, int n_in, aril_tensor *const *in, int n_out, aril_tensor **out,
                  void *ctx)
{
    (void)m, (void)n_in, (void)in, (void)n_out, (void)out;
    layer_time *l = ctx;
    l->forward += bench_now() - l->began;
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
    end_layer(l->all, bench_now());
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
    aril_tensor *loss = aril_caffe_loss(t->net, in, out);
    bool has = false;
    for (int i = 0; i < t->n_out; i++) has |= aril_caffe_output(t->net, i).loss_weight != 0;
    if (has) return loss;
    for (int i = 0; i < t->n_out; i++) loss = aril_add(loss, aril_sum(out[i], ARIL_ALL));
    return loss;
}

static void pass(timing *t, passes *to)
{
    ARIL_SCOPE;
    double start = bench_now();
    aril_tensor *loss = loss_of(t, (aril_list){ .n = t->n_in, .at = t->in });
    double middle = bench_now();
    t->current = -1;
    t->since = middle;
    if (aril_ok()) aril_backward(loss);
    double end = bench_now();
    end_layer(t, end);
    to->forward += middle - start;
    to->backward += end - middle;
    to->n++;
    aril_module_zero_grad(t->net);
}

static void clear(timing *t)
{
    t->hooked = t->plain = (passes){ 0 };
    for (int i = 0; i < t->n_layers; i++) t->layer[i] = (layer_time){ .all = t, .layer = i };
}

/* Passes with and without hooks in turn, so that other load on the machine slows both. */
static void run_passes(timing *t, double seconds)
{
    double end = 0;
    clear(t);
    for (int64_t n = 0; aril_ok() && (n <= 3 || bench_now() < end); n++) {
        pass(t, &t->plain);
        add_hooks(t);
        pass(t, &t->hooked);
        remove_hooks(t);
        if (n > 0) continue; /* the first ones prepare */
        clear(t);
        end = bench_now() + seconds;
    }
}

/* Forward and backward as one program. */
static void traced(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    timing *t = ctx;
    const aril_named *p = aril_parameters(t->net);
    out[0] = loss_of(t, (aril_list){ .n = t->n_in, .at = in });
    if (p)
        aril_gradients(out[0], (aril_list){ .n = p->n, .at = p->at }, out + 1,
                       (aril_grad_opts){ .allow_unused = true });
}

/* Seconds of a compiled pass. */
static double compiled(timing *t, double seconds)
{
    const aril_named *p = aril_parameters(t->net);
    aril_program *program = aril_jit(traced, t, (aril_jit_opts){ .max_results = p ? p->n + 1 : 1 });
    aril_tensor **out = calloc(p ? (size_t)p->n + 1 : 1, sizeof *out);
    double start = 0;
    int64_t n = -1;
    for (double end = 0; program && out && aril_ok() && (n < 3 || bench_now() < end); n++) {
        ARIL_SCOPE;
        aril_program_run(program, (aril_list){ .n = t->n_in, .at = t->in }, out);
        if (n < 0) {
            start = bench_now();
            end = start + seconds;
        }
    }
    double took = n > 0 ? (bench_now() - start) / (double)n : 0;
    aril_program_free(program);
    free(out);
    return took;
}

/* ---- the net and its inputs ---- */

static bool open_inputs(timing *t)
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
        t->feed =
            aril_caffe_feed_new(t->net, (aril_caffe_feed_opts){ .train = true, .root = t->folder });
        return t->feed && aril_caffe_feed_next(t->feed, t->in) == ARIL_OK;
    }
    for (int i = 0; i < t->n_in; i++)
        t->in[i] = aril_zeros(aril_caffe_input(t->net, i).shape, ARIL_F32, aril_cpu());
    return aril_ok();
}

static void print_times(const timing *t)
{
    double share = 1e3 / (double)t->hooked.n, forward = 0, back = 0;
    printf("%-28s %-20s %11s %11s\n", "layer", "type", "forward ms", "backward ms");
    for (int i = 0; i < t->n_layers; i++) {
        aril_caffe_layer l = aril_caffe_layer_at(t->net, i);
        print_padded(l.name, 28);
        putchar(' ');
        print_padded(l.type, 20);
        printf(" %11.3f %11.3f\n", t->layer[i].forward * share, t->layer[i].backward * share);
        forward += t->layer[i].forward;
        back += t->layer[i].backward;
    }
    printf("%-49s %11.3f %11.3f  %.3f ms\n", "sum of the layers", forward * share, back * share,
           (forward + back) * share);
}

static void print_passes(const char *what, const passes *p)
{
    double share = 1e3 / (double)p->n;
    printf("%-49s %11.3f %11.3f  %.3f ms\n", what, p->forward * share, p->backward * share,
           (p->forward + p->backward) * share);
}

static void print_whole(const timing *t, double program)
{
    print_passes("the same passes as a whole", &t->hooked);
    print_passes("whole, layers not told apart", &t->plain);
    if (program > 0) printf("%-49s %11s %11s  %.3f ms\n", "whole, compiled", "", "", program * 1e3);
}

int caffe_time(const char *path, const char *weights, int64_t batch, double seconds)
{
    ARIL_SCOPE;
    timing t = { .net = caffe_open(path, weights, batch, ARIL_CAFFE_TRAIN) };
    caffe_folder(path, t.folder, sizeof t.folder);
    if (t.net && open_inputs(&t)) {
        aril_module_train(t.net);
        if (!aril_module_built(t.net))
            aril_module_build_n(t.net, (aril_list){ .n = t.n_in, .at = t.in });
        if (aril_ok()) run_passes(&t, 2 * seconds / 3);
        double program = aril_ok() ? compiled(&t, seconds / 3) : 0;
        if (aril_ok()) print_times(&t);
        if (aril_ok()) print_whole(&t, program);
    }
    aril_caffe_feed_free(t.feed);
    aril_module_release(t.net);
    free(t.layer);
    return aril_ok() ? EXIT_DONE : report("time");
}
