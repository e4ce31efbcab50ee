/* aril show of Caffe's nets: layers with the sizes of their outputs and their parameters. */
#include "caffe.h"
#include "commands.h"

#include <stdlib.h>
#include <string.h>

static bool has_data_layers(const aril_module *net)
{
    for (int i = 0; i < aril_caffe_layers(net); i++) {
        aril_caffe_layer l = aril_caffe_layer_at(net, i);
        if (l.is_data || strcmp(l.type, "DummyData") == 0) return true;
    }
    return false;
}

/* Without a phase that of the training, unless the net has no data layers. */
static aril_module *open_net(const char *path, aril_caffe_opts opts, const char *phase)
{
    aril_module *net = aril_caffe_net(path, opts);
    if (phase || (net && !has_data_layers(net))) return net;
    aril_module_release(net);
    aril_clear_error(); /* the data layers may be those of the training alone */
    opts.phase = ARIL_CAFFE_TRAIN;
    return aril_caffe_net(path, opts);
}

/* Sizes that the file does not give come from the first batch, if its data are there. */
static void build_from_data(const char *path, aril_module *net)
{
    enum { MOST_INPUTS = 64 };
    char folder[4096];
    aril_tensor *in[MOST_INPUTS];
    int n = aril_caffe_inputs(net);
    if (aril_module_built(net) || n > MOST_INPUTS) return;
    aril_caffe_feed_opts opts = { .root = caffe_folder(path, folder, sizeof folder) };
    aril_caffe_feed *feed = aril_caffe_feed_new(net, opts);
    if (feed && aril_caffe_feed_next(feed, in) == ARIL_OK)
        aril_module_build_n(net, (aril_list){ .n = n, .at = in });
    aril_caffe_feed_free(feed);
}

/* "[64,20,24,24]" of each top. */
static const char *outputs_text(const aril_module *net, int layer, char *buf, size_t size)
{
    size_t used = 0;
    aril_caffe_blob top;
    buf[0] = '\0';
    for (int k = 0; (top = aril_caffe_top(net, layer, k)).name && used < size; k++) {
        used += (size_t)snprintf(buf + used, size - used, "%s[", k ? " " : "");
        for (int i = 0; i < top.shape.ndim && used < size; i++)
            used += (size_t)snprintf(buf + used, size - used, "%s%lld", i ? "," : "",
                                     (long long)top.shape.dim[i]);
        if (used < size) used += (size_t)snprintf(buf + used, size - used, "]");
    }
    return buf;
}

/* Elements of all tops; of the blobs of one layer, where shared ones count with their first
 * owner. */
static int64_t count_tops(const aril_module *net, int layer)
{
    int64_t sum = 0;
    aril_caffe_blob top;
    for (int k = 0; (top = aril_caffe_top(net, layer, k)).name; k++) {
        int64_t n = 1;
        for (int i = 0; i < top.shape.ndim; i++) n *= top.shape.dim[i] < 0 ? 0 : top.shape.dim[i];
        sum += n;
    }
    return sum;
}

static int64_t count_params(const aril_module *net, int layer)
{
    int64_t sum = 0;
    for (int i = 0; i < aril_caffe_params(net); i++) {
        aril_caffe_param p = aril_caffe_param_at(net, i);
        if (p.layer == layer) sum += aril_numel(p.tensor);
    }
    return sum;
}

static void print_blobs(int n, const char *const *names)
{
    for (int i = 0; i < n; i++) {
        printf("%s", i ? ", " : "");
        print_text(stdout, names[i]);
    }
}

static int widest(int width, const char *text)
{
    int n = printed_width(text);
    return n > width ? n : width;
}

static void print_net(const aril_module *net, const char *phase)
{
    char text[512], bytes[2][32];
    int n = aril_caffe_layers(net), type = 4, name = 5, output = 6;
    int64_t params = 0, data = 0;
    for (int i = 0; i < n; i++) {
        aril_caffe_layer l = aril_caffe_layer_at(net, i);
        type = widest(type, l.type);
        name = widest(name, l.name);
        output = widest(output, outputs_text(net, i, text, sizeof text));
    }
    printf("Caffe net ");
    print_text(stdout, aril_caffe_name(net));
    printf(": %d layers in phase %s\n\n", n, phase);
    printf("%-*s  %-*s  %-*s  %10s  blobs\n", type, "type", name, "layer", output, "output",
           "parameters");
    for (int i = 0; i < n; i++) {
        aril_caffe_layer l = aril_caffe_layer_at(net, i);
        int64_t own = count_params(net, i);
        params += own;
        data += count_tops(net, i);
        print_padded(l.type, type + 2);
        print_padded(l.name, name + 2);
        print_padded(outputs_text(net, i, text, sizeof text), output);
        printf("  %10lld  ", (long long)own);
        print_blobs(l.n_bottoms, l.bottoms);
        printf("%s-> ", l.n_bottoms ? " " : "");
        print_blobs(l.n_tops, l.tops);
        puts("");
    }
    printf("\n%lld parameters (%s); %s for the outputs of all layers\n", (long long)params,
           bytes_text((double)params * 4, bytes[0], sizeof bytes[0]),
           bytes_text((double)data * 4, bytes[1], sizeof bytes[1]));
}

/* What the file says alone, for all phases, and why there is no more. */
static void describe(const char *path)
{
    char why[512];
    snprintf(why, sizeof why, "%s", aril_ok() ? "" : aril_error());
    aril_clear_error();
    if (aril_describe_file(path, stdout) != ARIL_OK) return;
    printf("\nThese are the layers of all phases. Sizes of outputs depend on the data%s",
           *why ? ": " : "");
    print_text(stdout, why);
    puts("");
}

/* The layers of a net with a mistake, and what is wrong; -1 for a solver. */
static int show_wrong(const char *path)
{
    char why[512];
    snprintf(why, sizeof why, "%s", aril_error());
    aril_clear_error();
    if (strstr(why, " is a solver; expected ")) return -1;
    if (aril_describe_file(path, stdout) != ARIL_OK) return report("show");
    printf("\nThese are the layers of all phases, without sizes: ");
    print_text(stdout, why);
    puts("");
    return EXIT_DONE;
}

int caffe_show(const char *path, const caffe_state *state)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    caffe_stages stages;
    aril_caffe_opts opts = { 0 };
    if (!caffe_state_opts(state, ARIL_CAFFE_TEST, &stages, &opts)) return report("show");
    aril_module *net = open_net(path, opts, state->phase);
    if (net) build_from_data(path, net);
    bool built = net && aril_module_built(net);
    if (built) {
        bool test = state->phase ? opts.phase == ARIL_CAFFE_TEST : !has_data_layers(net);
        print_net(net, test ? "TEST" : "TRAIN");
    } else if (net) {
        describe(path);
    }
    aril_module_release(net);
    if (!net) return show_wrong(path);
    return built || aril_ok() ? EXIT_DONE : report("show");
}
