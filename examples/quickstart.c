/* The first thing to run: trains a two-layer network on random data, then a small network on
 * Fashion-MNIST, with autograd, and tells how well it does on pictures it has not seen.
 *
 *     build/examples/quickstart [FOLDER]
 *
 * FOLDER holds the four IDX files, plain or gzipped; by default where Debian's package
 * dataset-fashion-mnist puts them. */
#include <aril/aril.h>

#include <math.h>
#include <stdlib.h>
#include <time.h>

#ifdef ARIL_HAVE_ZLIB
#include <zlib.h>
#endif

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- random data: does the machinery work? ---- */

static void two_layer(int steps)
{
    enum { N = 64, D = 1000, H = 100 };
    aril_device dev = aril_cpu();
    ARIL_SCOPE;
    printf("A two-layer network on random data, %d steps of gradient descent:\n", steps);
    aril_tensor *x = aril_randn(ARIL_SHAPE(N, D), ARIL_F32, dev);
    aril_tensor *y = aril_randn(ARIL_SHAPE(N, D), ARIL_F32, dev);
    aril_tensor *w1 = aril_parameter(aril_randn(ARIL_SHAPE(D, H), ARIL_F32, dev));
    aril_tensor *w2 = aril_parameter(aril_randn(ARIL_SHAPE(H, D), ARIL_F32, dev));
    for (int t = 0; t < steps; t++) {
        ARIL_SCOPE;
        aril_tensor *y_pred = aril_matmul(aril_relu(aril_matmul(x, w1)), w2);
        aril_tensor *error = aril_square(aril_sub(y_pred, y));
        aril_tensor *loss = aril_mean(aril_sum(error, ARIL_AXES(1)), ARIL_ALL);
        aril_backward(loss);
        if (t % (steps / 5) == steps / 5 - 1)
            printf("  step %3d  loss %.1f\n", t + 1, aril_item(loss));
        ARIL_NO_GRAD;
        aril_sub_(w1, aril_mul_scalar(aril_grad(w1), 1e-6));
        aril_sub_(w2, aril_mul_scalar(aril_grad(w2), 1e-6));
        aril_zero_grad(w1);
        aril_zero_grad(w2);
    }
    aril_release(w1);
    aril_release(w2);
}

/* ---- pictures ---- */

/* A whole file, gunzipped where zlib is there; NULL when it cannot be read. */
static unsigned char *read_file(const char *path, size_t *size)
{
    size_t cap = 64 << 20, n = 0;
    unsigned char *data = malloc(cap);
#ifdef ARIL_HAVE_ZLIB
    gzFile f = gzopen(path, "rb");
    int got = 0;
    while (data && f && n < cap && (got = gzread(f, data + n, (unsigned)(cap - n))) > 0)
        n += (size_t)got;
    bool ok = f && got >= 0;
    if (f) gzclose(f);
#else
    FILE *f = fopen(path, "rb");
    if (data && f) n = fread(data, 1, cap, f);
    bool ok = f && !ferror(f);
    if (f) fclose(f);
#endif
    if (!data || !ok || n < 8) {
        free(data);
        return NULL;
    }
    *size = n;
    return data;
}

static int64_t big_endian(const unsigned char *p)
{
    return (int64_t)p[0] << 24 | (int64_t)p[1] << 16 | (int64_t)p[2] << 8 | p[3];
}

/* An IDX file of bytes as a u8 tensor of its shape; NULL when there is none. */
static aril_tensor *read_idx(const char *folder, const char *name)
{
    char path[4096];
    size_t size = 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unsigned char *data = read_file(path, &size);
    if (!data) {
        snprintf(path, sizeof path, "%s/%s.gz", folder, name);
        data = read_file(path, &size);
    }
    if (!data) return NULL;
    aril_shape shape = { .ndim = data[3] };
    int64_t count = 1;
    size_t head = 4 + 4 * (size_t)data[3];
    for (int i = 0; i < shape.ndim && i < 3 && head <= size; i++) {
        shape.dim[i] = big_endian(data + 4 + 4 * i);
        count *= shape.dim[i];
    }
    bool ok = data[2] == 8 && shape.ndim >= 1 && shape.ndim <= 3 && count >= 0 &&
              head + (size_t)count == size;
    aril_tensor *t = ok ? aril_from(data + head, shape, ARIL_U8, aril_cpu()) : NULL;
    free(data);
    return t;
}

typedef struct pictures {
    aril_tensor *x; /* [N,784] f32 in 0..1 */
    aril_tensor *y; /* [N] i64 */
} pictures;

static bool load(const char *folder, const char *images, const char *labels, pictures *out)
{
    aril_tensor *x = read_idx(folder, images), *y = read_idx(folder, labels);
    if (!x || !y) return false;
    aril_tensor *flat = aril_reshape(aril_cast(x, ARIL_F32), ARIL_SHAPE(aril_size(x, 0), -1));
    out->x = aril_div_scalar(flat, 255);
    out->y = aril_cast(y, ARIL_I64);
    return aril_ok() && aril_size(out->x, 0) == aril_size(out->y, 0);
}

/* ---- a small network ---- */

enum { HIDDEN = 256, CLASSES = 10 };

typedef struct mlp {
    aril_tensor *w1, *b1, *w2, *b2;
} mlp;

static aril_tensor *weights(int64_t out, int64_t in)
{
    double bound = 1 / sqrt((double)in);
    aril_tensor *w = aril_empty(ARIL_SHAPE(out, in), ARIL_F32, aril_cpu());
    return aril_parameter(aril_uniform_(w, -bound, bound));
}

static mlp mlp_new(int64_t inputs)
{
    ARIL_SCOPE;
    return (mlp){ .w1 = weights(HIDDEN, inputs),
                  .b1 = aril_parameter(aril_zeros(ARIL_SHAPE(HIDDEN), ARIL_F32, aril_cpu())),
                  .w2 = weights(CLASSES, HIDDEN),
                  .b2 = aril_parameter(aril_zeros(ARIL_SHAPE(CLASSES), ARIL_F32, aril_cpu())) };
}

static aril_tensor *mlp_forward(const mlp *m, aril_tensor *x) /* [N,784] -> [N,10] */
{
    ARIL_SCOPE;
    aril_tensor *h = aril_relu(aril_linear(x, m->w1, m->b1)); /* [N,256] */
    return aril_escape(aril_linear(h, m->w2, m->b2));
}

static double accuracy(const mlp *m, const pictures *data)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_tensor *guess = aril_argmax(mlp_forward(m, data->x), ARIL_AXES(1));
    aril_tensor *right = aril_cast(aril_eq(guess, data->y), ARIL_F32);
    return aril_item(aril_mean(right, ARIL_ALL));
}

/* Gradient descent with momentum. */
static void update(aril_tensor *const *params, aril_tensor *const *velocity, int n, double lr)
{
    ARIL_NO_GRAD;
    for (int i = 0; i < n; i++) {
        aril_add_(aril_mul_scalar_(velocity[i], 0.9), aril_grad(params[i]));
        aril_sub_(params[i], aril_mul_scalar(velocity[i], lr));
        aril_zero_grad(params[i]);
    }
}

static void train(mlp *m, const pictures *data, const pictures *test, int epochs, int64_t batch)
{
    aril_tensor *params[] = { m->w1, m->b1, m->w2, m->b2 }, *velocity[4];
    int64_t n = aril_size(data->x, 0);
    for (int i = 0; i < 4; i++) velocity[i] = aril_zeros_like(params[i]);
    for (int e = 0; e < epochs && aril_ok(); e++) {
        ARIL_SCOPE;
        double t0 = seconds(), total = 0;
        int64_t done = 0;
        aril_tensor *order = aril_randperm(n, ARIL_I64, aril_cpu());
        for (int64_t at = 0; at + batch <= n; at += batch) {
            ARIL_SCOPE;
            aril_tensor *pick = aril_slice(order, 0, at, at + batch, 1);
            aril_tensor *x = aril_index_select(data->x, pick, 0);
            aril_tensor *y = aril_index_select(data->y, pick, 0);
            aril_tensor *loss = aril_cross_entropy(mlp_forward(m, x), y);
            aril_backward(loss);
            update(params, velocity, 4, 0.02);
            total += aril_item(loss) * (double)batch;
            done += batch;
        }
        double took = seconds() - t0;
        printf("  epoch %d/%d  loss %.4f  test accuracy %.4f  %.1f s  %.0f pictures/s\n", e + 1,
               epochs, total / (double)done, accuracy(m, test), took, (double)done / took);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    bool quick = getenv("ARIL_EXAMPLE_QUICK") != NULL;
    const char *folder = argc > 1 ? argv[1] : "/usr/share/datasets/fashion-mnist";
    char device[128];
    printf("Aril %s on %s\n\n", aril_version(),
           aril_device_describe(aril_cpu(), device, sizeof device));
    aril_seed(0);
    two_layer(quick ? 20 : 500);

    pictures all, test;
    if (!load(folder, "train-images-idx3-ubyte", "train-labels-idx1-ubyte", &all) ||
        !load(folder, "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", &test)) {
        if (!aril_ok()) return aril_report(stderr);
        printf("\nNo Fashion-MNIST in %s: install Debian's dataset-fashion-mnist, or give the "
               "folder.\n",
               folder);
#ifndef ARIL_HAVE_ZLIB
        printf("This was built without zlib (Debian's zlib1g-dev), so gzipped files can't be "
               "read.\n");
#endif
        return quick ? 77 : argc > 1;
    }
    if (quick) {
        all.x = aril_narrow(all.x, 0, 0, 2000);
        all.y = aril_narrow(all.y, 0, 0, 2000);
    }
    printf("\nA network 784-%d-%d on Fashion-MNIST, %lld pictures:\n", HIDDEN, CLASSES,
           (long long)aril_size(all.x, 0));
    mlp m = mlp_new(aril_size(all.x, 1));
    train(&m, &all, &test, quick ? 1 : 5, 64);

    ARIL_SCOPE;
    static const char *const names[CLASSES] = { "T-shirt", "trouser", "pullover", "dress", "coat",
                                                "sandal",  "shirt",   "sneaker",  "bag",   "boot" };
    printf("\nThe first test pictures:\n");
    ARIL_NO_GRAD;
    aril_tensor *x = aril_narrow(test.x, 0, 0, 6);
    aril_tensor *p = aril_softmax(mlp_forward(&m, x), 1), *which;
    aril_tensor *best = aril_max(p, ARIL_AXES(1), &which);
    for (int i = 0; i < 6 && aril_ok(); i++) {
        int64_t said = aril_item_int(aril_select(which, 0, i));
        int64_t is = aril_item_int(aril_select(test.y, 0, i));
        printf("  %-9s %3.0f %%  %s\n", names[said], 100 * aril_item(aril_select(best, 0, i)),
               said == is ? "right" : "wrong");
    }
    aril_tensor *params[] = { m.w1, m.b1, m.w2, m.b2 };
    for (int i = 0; i < 4; i++) aril_release(params[i]);
    return aril_ok() ? 0 : aril_report(stderr);
}
