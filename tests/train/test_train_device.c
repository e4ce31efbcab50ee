/* Training on a device: it agrees with the CPU, recovers from running out of memory, and waits for
 * no value, with a loss scale neither. For devices; on the CPU these tests say nothing. */
#include <aril/aril.h>

#include "core/device.h"
#include "support/device.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 64, FEATURES = 12, CLASSES = 5, STEPS = 20 };

static bool on_strict(void)
{
    char name[32];
    return strncmp(aril_device_name(test_device(), name, sizeof name), "strict", 6) == 0;
}

static aril_module *small_net(aril_device device)
{
    aril_seed(11);
    aril_module *net =
        aril_nn_sequential(aril_nn_linear(FEATURES, 32), aril_nn_batch_norm1d(32), aril_nn_relu(),
                           aril_nn_dropout(0.25), aril_nn_linear(32, CLASSES));
    aril_module_to(net, device);
    return net;
}

static double fit_with_batch(aril_model *m, aril_tensor *x, aril_tensor *y, int64_t batch)
{
    aril_history *h =
        aril_model_fit(m, x, y,
                       (aril_fit_opts){ .epochs = 1, .batch_size = batch, .verbose = ARIL_SILENT });
    return h && aril_history_epochs(h) ? aril_history_at(h, "loss", 0) : NAN;
}

/* ---- agreement ---- */

/* The loss of each step of training, always from the same weights and on the same samples. */
static void losses_on(aril_device device, aril_module *net, aril_optim *opt, double *loss)
{
    aril_seed(5);
    aril_tensor *x = aril_randn(ARIL_SHAPE(SAMPLES, FEATURES), ARIL_F32, aril_cpu());
    aril_tensor *y = aril_randint(0, CLASSES, ARIL_SHAPE(SAMPLES), ARIL_I64, aril_cpu());
    x = aril_to(x, device);
    y = aril_to(y, device);
    aril_seed(6); /* of dropout */
    for (int i = 0; i < STEPS; i++) {
        ARIL_SCOPE;
        aril_tensor *l = aril_cross_entropy(aril_forward(net, x), y);
        aril_backward(l);
        aril_step(opt);
        loss[i] = aril_item(l);
    }
}

TEST(losses_agree_with_the_cpu)
{
    double here[STEPS], there[STEPS];
    for (int k = 0; k < 2; k++) {
        ARIL_SCOPE;
        aril_device device = k ? test_device() : aril_cpu();
        aril_module *net = small_net(device);
        aril_optim *opt =
            aril_sgd(aril_parameters(net), (aril_sgd_opts){ .lr = 0.1, .momentum = 0.9 });
        losses_on(device, net, opt, k ? there : here);
        aril_optim_free(opt);
        aril_module_release(net);
    }
    CHECK(aril_ok());
    CHECK(here[STEPS - 1] < 0.8 * here[0]);
    for (int i = 0; i < STEPS; i++) CHECK_NEAR(there[i], here[i], 2e-4 * here[i] + 1e-5);
}

/* A network whose sizes are still unknown trains on the device that it was moved to; samples are on
 * the CPU. */
TEST(a_lazy_network_trains_where_it_was_moved)
{
    for (int inner = 0; inner < 2; inner++) { /* moved as a whole, or only its first layer */
        ARIL_SCOPE;
        aril_seed(3);
        aril_tensor *x = aril_randn(ARIL_SHAPE(SAMPLES, FEATURES), ARIL_F32, aril_cpu());
        aril_tensor *y = aril_randint(0, CLASSES, ARIL_SHAPE(SAMPLES), ARIL_I64, aril_cpu());
        aril_module *first = aril_nn_linear(0, 8);
        aril_module *net = aril_nn_sequential(first, aril_nn_relu(), aril_nn_linear(0, CLASSES));
        CHECK_INT(aril_module_to(inner ? first : net, test_device()), ARIL_OK);
        aril_model *m = aril_model_new(net, ARIL_SHAPE());
        aril_optim *opt = aril_sgd(NULL, (aril_sgd_opts){ .lr = 0.1 });
        aril_model_compile(m, (aril_model_opts){ .loss = "cross_entropy", .optimizer = opt });
        double loss = fit_with_batch(m, x, y, 16);
        CHECK_MSG(aril_ok(), "%s", aril_error());
        CHECK(isfinite(loss));
        CHECK(aril_device_equal(aril_device_of(aril_parameters(net)->at[0]), test_device()));
        aril_model_free(m);
    }
}

/* ---- memory ---- */

/* Whether a fit works with so many bytes beside the parameters. */
static bool fits_within(int64_t room, bool eager)
{
    ARIL_SCOPE;
    enum { N = 256, WIDE = 256, FEW = 64 };
    aril_device device = test_device();
    aril_seed(1);
    aril_tensor *x = aril_randn(ARIL_SHAPE(N, 16), ARIL_F32, aril_cpu());
    aril_tensor *y = aril_randint(0, 3, ARIL_SHAPE(N), ARIL_I64, aril_cpu());
    aril_module *net =
        aril_nn_sequential(aril_nn_linear(16, WIDE), aril_nn_relu(), aril_nn_linear(WIDE, 3));
    aril_module_to(net, device);
    aril_model *m = aril_model_new(net, ARIL_SHAPE(16));
    aril_optim *opt = aril_sgd(aril_parameters(net), (aril_sgd_opts){ .lr = 0.01 });
    aril_model_compile(m, (aril_model_opts){
                              .loss = "cross_entropy", .optimizer = opt, .eager = eager });
    aril_memory_set_limit(device, aril_memory(device).live + room);
    fit_with_batch(m, x, y, FEW);
    aril_memory_set_limit(device, 0);
    bool ok = aril_error_code() != ARIL_ERR_MEMORY;
    aril_clear_error();
    aril_model_free(m);
    return ok;
}

/* Where single operations have enough memory, compiled steps do: what is recorded takes more, and
 * is not recorded then. */
TEST(compiled_steps_need_no_more_memory)
{
    if (!on_strict()) SKIP("about the test device, whose kernels need no memory");
    int64_t room = 100000;
    while (room < 1000000 && !fits_within(room, true)) room += 10000;
    for (int i = 0; i < 16; i++)
        CHECK_MSG(fits_within(room + 10000 * i, false), "%lld bytes", (long long)room + 10000 * i);
}

/* A batch that is too large fails the fit with an error, and a smaller one works. */
TEST(a_fit_that_runs_out_of_memory)
{
    if (test_on_cpu()) SKIP("about devices");
    ARIL_SCOPE;
    enum { N = 2048, FEW = 64 };
    /* One layer needs 2 MB for a batch of N; on a GPU 128 MB, since kernels may need some tens of
     * MB beside it. */
    int64_t wide = on_strict() ? 256 : 1 << 14, room = wide * N * 3;
    aril_device device = test_device();
    aril_tensor *x = aril_randn(ARIL_SHAPE(N, 16), ARIL_F32, aril_cpu());
    aril_tensor *y = aril_randint(0, 3, ARIL_SHAPE(N), ARIL_I64, aril_cpu());
    aril_seed(1);
    aril_module *net =
        aril_nn_sequential(aril_nn_linear(16, wide), aril_nn_relu(), aril_nn_linear(wide, 3));
    aril_module_to(net, device);
    aril_model *m = aril_model_new(net, ARIL_SHAPE(16));
    aril_optim *opt = aril_sgd(aril_parameters(net), (aril_sgd_opts){ .lr = 0.01 });
    aril_model_compile(m, (aril_model_opts){ .loss = "cross_entropy", .optimizer = opt });
    int64_t live = aril_memory(device).live;
    aril_memory_set_limit(device, live + room);
    fit_with_batch(m, x, y, N);
    CHECK_INT(aril_error_code(), ARIL_ERR_MEMORY);
    CHECK(strstr(aril_error(), "out of memory"));
    aril_clear_error();
    x = aril_slice(x, 0, 0, 2 * FEW, 1);
    y = aril_slice(y, 0, 0, 2 * FEW, 1);
    double loss = fit_with_batch(m, x, y, FEW);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    CHECK(isfinite(loss));
    aril_memory_set_limit(device, 0);
    aril_model_free(m);
}

/* ---- waiting ---- */

static struct {
    aril__device_ops ops; /* the device's own */
    int waits;
} counted;

static aril_status counted_to_host(void *self, aril_queue *queue, void *dst, const void *src,
                                   size_t bytes, bool async)
{
    counted.waits += !async;
    return counted.ops.to_host(self, queue, dst, src, bytes, async);
}

static aril_status counted_queue_wait(void *self, aril_queue *queue)
{
    counted.waits++;
    return counted.ops.queue_wait(self, queue);
}

static aril_status counted_synchronize(void *self)
{
    counted.waits++;
    return counted.ops.synchronize(self);
}

/* Counts how often the host waits for the device from here on. */
static void count_waits(aril__device *d)
{
    counted.ops = d->ops;
    counted.waits = 0;
    d->ops.to_host = counted_to_host;
    d->ops.queue_wait = counted_queue_wait;
    d->ops.synchronize = counted_synchronize;
}

/* Steps in f16 with a dynamic loss scale, one of which overflows: the host learns of it only when
 * it asks. */
TEST(a_loss_scale_waits_for_nothing)
{
    if (test_on_cpu()) SKIP("about devices");
    ARIL_SCOPE;
    aril_device device = test_device();
    aril__device *d = aril__device_find(device);
    aril_module *net = small_net(device);
    const double high = 0x1p26;
    aril_optim *opt =
        aril_adam(aril_parameters(net), (aril_adam_opts){ .lr = 0.01, .loss_scale = high });
    aril_tensor *x = aril_randn(ARIL_SHAPE(SAMPLES, FEATURES), ARIL_F32, device);
    aril_tensor *y = aril_randint(0, CLASSES, ARIL_SHAPE(SAMPLES), ARIL_I64, device);
    aril_tensor *sum = aril_zeros(ARIL_SHAPE(), ARIL_F32, device);
    CHECK_INT(aril_synchronize(device), ARIL_OK);
    count_waits(d);
    for (int i = 0; i < STEPS; i++) {
        ARIL_SCOPE;
        ARIL_AUTOCAST_ON(device, ARIL_F16);
        aril_tensor *loss = aril_cross_entropy(aril_forward(net, x), y);
        aril_backward(aril_scale_loss(opt, loss));
        aril_step(opt);
        aril_add_(sum, aril_detach(loss));
    }
    int waits = counted.waits;
    d->ops = counted.ops;
    CHECK_INT(waits, 0);
    CHECK(isfinite(aril_item(sum)));
    CHECK(aril_item(aril_optim_loss_scale(opt)) < high); /* the first steps overflowed */
    CHECK_MSG(aril_ok(), "%s", aril_error());
    aril_optim_free(opt);
    aril_module_release(net);
}

/* ---- LeNet-5 ---- */

/* The split of MNIST on the host; NULL if it is not there. */
static aril_dataset *mnist(const char *split)
{
    char path[512];
    const char *data = getenv("ARIL_TEST_DATA");
    snprintf(path, sizeof path, "%s/mnist", data ? data : "../shared/data");
    return aril_dataset_open(path, split);
}

TEST(lenet5_learns_mnist)
{
    if (test_on_cpu()) SKIP("bench/accuracy does it on the CPU");
    if (on_strict()) SKIP("the strict device is slow");
    aril_dataset *train = mnist("train"), *test = mnist("test");
    if (!train || !test) {
        aril_clear_error();
        aril_dataset_release(train);
        aril_dataset_release(test);
        SKIP("no MNIST");
    }
    aril_seed(1);
    aril_module *net = aril_zoo_make("lenet5", (aril_zoo_opts){ 0 });
    aril_module_to(net, test_device());
    aril_model *m = aril_model_new(net, ARIL_SHAPE(1, 28, 28));
    aril_optim *opt = aril_adam(aril_parameters(net), (aril_adam_opts){ .lr = 2e-3 });
    aril_model_compile(m, (aril_model_opts){
                              .loss = "cross_entropy", .optimizer = opt, .metrics = "accuracy" });
    aril_loader *l = aril_loader_new(
        train,
        (aril_loader_opts){ .batch = 128, .shuffle = true, .workers = 2, .device = test_device() });
    aril_model_fit_loader(m, l, (aril_fit_opts){ .epochs = 2, .verbose = ARIL_SILENT });
    aril_loader *t =
        aril_loader_new(test, (aril_loader_opts){ .batch = 1000, .device = test_device() });
    aril_model_evaluate_loader(m, t, (aril_eval_opts){ .verbose = ARIL_SILENT });
    double accuracy = aril_model_value(m, "accuracy");
    printf("      accuracy %.4f\n", accuracy);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    CHECK(accuracy > 0.98);
    aril_loader_free(l);
    aril_loader_free(t);
    aril_model_free(m);
}
