/* The most memory that one training step takes beyond what is there before it.
 *
 *     build/bench/memory        prints a line a case: name and megabytes
 *
 * bench/memory.py runs the same steps with PyTorch and prints both side by side. Each case runs
 * twice, and the second step is measured, by the process's own high-water mark. */
#include <aril/aril.h>

#include <string.h>

static double status_mb(const char *key)
{
    char line[256];
    double kb = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0) sscanf(line + strlen(key), ": %lf", &kb);
    if (f) fclose(f);
    return kb / 1024;
}

static void reset_peak(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (f) {
        fputs("5", f);
        fclose(f);
    }
}

enum { MAX_PARAMS = 32 };

typedef struct net {
    aril_tensor *param[MAX_PARAMS];
    int n;
    aril_tensor *x, *y;
    aril_tensor *(*forward)(struct net *n);
} net;

static aril_tensor *add_param(net *n, aril_shape shape)
{
    ARIL_SCOPE;
    aril_tensor *p = aril_mul_scalar(aril_randn(shape, ARIL_F32, aril_cpu()), 0.02);
    return n->param[n->n++] = aril_parameter(p);
}

static void step(net *n)
{
    ARIL_SCOPE;
    aril_backward(n->forward(n));
    ARIL_NO_GRAD;
    for (int i = 0; i < n->n; i++) {
        aril_sub_(n->param[i], aril_mul_scalar(aril_grad(n->param[i]), 1e-3));
        aril_zero_grad(n->param[i]);
    }
}

static void measure(const char *name, net *n)
{
    aril_memory_reset_peak(aril_cpu()); /* the cache may grow to the peak: not to other cases' */
    step(n);
    aril_memory_trim(aril_cpu());
    double before = status_mb("VmRSS");
    reset_peak();
    step(n);
    printf("%-12s %8.1f MB\n", name, status_mb("VmHWM") - before);
    fflush(stdout);
    for (int i = 0; i < n->n; i++) aril_release(n->param[i]);
    aril_memory_trim(aril_cpu());
}

/* ---- mlp: [4096,1024] through 8 layers of relu(linear) ---- */

/* A layer has a scope of its own, so that what it makes in between goes at once. */
static aril_tensor *dense(aril_tensor *x, aril_tensor *w, aril_tensor *b, bool last)
{
    ARIL_SCOPE;
    aril_tensor *h = aril_linear(x, w, b);
    return aril_escape(last ? h : aril_relu(h));
}

static aril_tensor *mlp_forward(net *n)
{
    ARIL_SCOPE;
    aril_tensor *h = n->x;
    for (int i = 0; i < n->n; i += 2) h = dense(h, n->param[i], n->param[i + 1], i + 2 == n->n);
    return aril_escape(aril_mse_loss(h, n->y));
}

static void mlp(void)
{
    ARIL_SCOPE;
    net n = { .forward = mlp_forward };
    n.x = aril_randn(ARIL_SHAPE(4096, 1024), ARIL_F32, aril_cpu());
    n.y = aril_randn(ARIL_SHAPE(4096, 1024), ARIL_F32, aril_cpu());
    for (int i = 0; i < 8; i++) {
        add_param(&n, ARIL_SHAPE(1024, 1024));
        add_param(&n, ARIL_SHAPE(1024));
    }
    measure("mlp", &n);
}

/* ---- elementwise: a long formula on 4 million elements ---- */

static aril_tensor *turn(aril_tensor *h, aril_tensor *w)
{
    ARIL_SCOPE;
    return aril_escape(aril_tanh(aril_add(aril_mul(h, w), aril_sigmoid(h))));
}

static aril_tensor *formula_forward(net *n)
{
    ARIL_SCOPE;
    aril_tensor *h = aril_mul(n->x, n->param[0]);
    for (int i = 0; i < 4; i++) h = turn(h, n->param[0]);
    return aril_escape(aril_mean(aril_square(aril_sub(h, n->y)), ARIL_ALL));
}

static void formula(void)
{
    ARIL_SCOPE;
    net n = { .forward = formula_forward };
    n.x = aril_randn(ARIL_SHAPE(2048, 2048), ARIL_F32, aril_cpu());
    n.y = aril_randn(ARIL_SHAPE(2048, 2048), ARIL_F32, aril_cpu());
    add_param(&n, ARIL_SHAPE(2048));
    measure("elementwise", &n);
}

/* ---- convnet: [16,3,64,64], batch norm, relu, pooling, linear, cross-entropy ---- */

static aril_tensor *block(aril_tensor *x, aril_tensor *const *p, bool pool)
{
    ARIL_SCOPE;
    aril_tensor *h = aril_conv2d(x, p[0], NULL, (aril_conv_opts){ .padding = { 1, 1 } });
    h = aril_relu(aril_batch_norm(h, p[1], p[2], NULL, NULL, (aril_batch_norm_opts){ 0 }));
    return aril_escape(pool ? aril_max_pool2d(h, (aril_pool_opts){ .kernel = { 2 } }, NULL) : h);
}

static aril_tensor *convnet_forward(net *n)
{
    ARIL_SCOPE;
    aril_tensor *h = n->x;
    for (int i = 0; i < 4; i++) h = block(h, &n->param[3 * i], i % 2);
    h = aril_linear(aril_flatten(h, 1, -1), n->param[12], n->param[13]);
    return aril_escape(aril_cross_entropy(h, n->y));
}

static void convnet(void)
{
    ARIL_SCOPE;
    net n = { .forward = convnet_forward };
    n.x = aril_randn(ARIL_SHAPE(16, 3, 64, 64), ARIL_F32, aril_cpu());
    n.y = aril_randint(0, 10, ARIL_SHAPE(16), ARIL_I64, aril_cpu());
    for (int i = 0; i < 4; i++) {
        add_param(&n, ARIL_SHAPE(32, i ? 32 : 3, 3, 3));
        add_param(&n, ARIL_SHAPE(32));
        add_param(&n, ARIL_SHAPE(32));
    }
    add_param(&n, ARIL_SHAPE(10, 32 * 16 * 16));
    add_param(&n, ARIL_SHAPE(10));
    measure("convnet", &n);
}

int main(void)
{
    aril_seed(0);
    mlp();
    formula();
    convnet();
    return aril_ok() ? 0 : aril_report(stderr);
}
