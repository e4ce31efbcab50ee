/* A device kind and kernels from a plugin. Uses only public functions, so that the same program is
 * linked once with libaril.a and once with libaril.so. */
#include <aril/aril.h>

#include "support/test.h"

#include <stdlib.h>
#include <string.h>

static const char *plugin_path(void)
{
    static char path[4096];
    const char *dir = getenv("ARIL_TEST_PLUGINS");
    snprintf(path, sizeof path, "%s/mirror.so", dir ? dir : "build/plugins");
    return path;
}

/* The device, loaded once; tests share the process. */
static aril_device mirror(void)
{
    static bool loaded;
    if (!loaded) loaded = aril_plugin_load(plugin_path()) == ARIL_OK;
    return aril_device_named("mirror:0");
}

TEST(loads_and_names_its_device)
{
    aril_device d = mirror();
    char text[100];
    CHECK(aril_ok());
    CHECK(aril_device_available(d));
    CHECK_STR(aril_device_name(d, text, sizeof text), "mirror:0");
    CHECK(strstr(aril_device_describe(d, text, sizeof text), "an example"));
    CHECK_INT(aril_device_count(), 2);
}

/* Three steps of each optimizer, on parameters on that device or on the CPU. */
static void train_on(aril_device d, const char *name, float *to)
{
    static const float v[4] = { 1, -2, 3, 0.5f };
    ARIL_SCOPE;
    aril_tensor *p = aril_parameter(aril_from(v, ARIL_SHAPE(2, 2), ARIL_F32, d));
    aril_optim *o = aril_optim_new(name, ARIL_TENSORS(p),
                                   (aril_optim_opts){ .lr = 0.1, .clip_norm = 2, .loss_scale = 4 });
    for (int t = 0; t < 3; t++) {
        ARIL_SCOPE;
        aril_backward(aril_scale_loss(o, aril_sum(aril_square(p), ARIL_ALL)));
        aril_step(o);
    }
    aril_read(p, to);
    aril_optim_free(o);
    aril_release(p);
}

TEST(optimizers_work_on_the_device)
{
    const char *const *names = aril_optim_names();
    for (int i = 0; names[i]; i++) {
        if (strcmp(names[i], "lbfgs") == 0) continue;
        float here[4], there[4];
        train_on(aril_cpu(), names[i], here);
        train_on(mirror(), names[i], there);
        CHECK_MSG(aril_ok(), "%s: %s", names[i], aril_error());
        for (int k = 0; k < 4; k++) CHECK_NEAR(there[k], here[k], 1e-6);
        CHECK(here[0] < 1);
    }
}

TEST(optimizer_state_moves_with_parameters)
{
    static const float v[2] = { 1, -2 };
    float here[2], there[2];
    for (int k = 0; k < 2; k++) {
        ARIL_SCOPE;
        aril_module *net = aril_nn_linear(2, 1);
        aril_optim *o = aril_nadam(aril_parameters(net), (aril_nadam_opts){ .lr = 0.1 });
        aril_write(aril_module_tensor(net, "weight"), v);
        for (int t = 0; t < 6; t++) {
            ARIL_SCOPE;
            if (t == 3 && k == 1) CHECK_INT(aril_module_to(net, mirror()), ARIL_OK);
            aril_backward(aril_sum(aril_square(aril_module_tensor(net, "weight")), ARIL_ALL));
            CHECK_MSG(aril_step(o) == ARIL_OK, "%s", aril_error());
        }
        aril_read(aril_module_tensor(net, "weight"), k ? there : here);
        aril_optim_free(o);
        aril_module_release(net);
    }
    CHECK_NEAR(there[0], here[0], 1e-6);
    CHECK_NEAR(there[1], here[1], 1e-6);
    CHECK(here[0] < 0.6f);
}

TEST(computes_on_the_device)
{
    ARIL_SCOPE;
    aril_device d = mirror();
    float v[6] = { -1, 2, -3, 4, -5, 6 };
    aril_tensor *x = aril_from(v, ARIL_SHAPE(2, 3), ARIL_F32, d);
    CHECK(aril_device_equal(aril_device_of(x), d));
    aril_tensor *y = aril_relu(aril_add(x, x));                   /* two of the plugin's rows */
    CHECK_NEAR(aril_item(aril_sum(y, ARIL_ALL)), 24, 0);          /* a third, with a workspace */
    aril_tensor *t = aril_sum(aril_exp(aril_t(x)), ARIL_AXES(0)); /* falls back to the CPU */
    CHECK(aril_device_equal(aril_device_of(t), d));
    float got[2];
    CHECK_INT(aril_read(t, got), ARIL_OK);
    CHECK_NEAR(got[0], 0.36788f + 7.38906f + 0.049787f, 1e-4);
    aril_mul_scalar_(aril_slice(x, 1, 0, ARIL_END, 2), 10); /* a write through a strided view */
    CHECK_NEAR(aril_item(aril_sum(x, ARIL_ALL)), -10 + 2 - 30 + 40 - 5 + 60, 0);
    CHECK(aril_ok());
}

/* The kernel that ran an op between profile_begin and profile_end. */
static const char *kernel_of(const char *op)
{
    const aril_profile_row *rows;
    int n = aril_profile_rows(&rows);
    for (int i = 0; i < n; i++)
        if (strcmp(rows[i].name, op) == 0) return rows[i].kernel;
    return "";
}

TEST(numbers_reach_its_kernels_by_value)
{
    ARIL_SCOPE;
    float v[2] = { 1, -2 }, got[2];
    aril_tensor *x = aril_from(v, ARIL_SHAPE(2), ARIL_F32, mirror()), *y = x;
    aril_profile_begin((aril_profile_opts){ 0 });
    for (int i = 1; i <= 3; i++) y = aril_add_scalar(y, i); /* one plan, other values */
    y = aril_add(aril_scalar(0.5), y);
    aril_profile_end();
    CHECK_STR(kernel_of("add"), "mirror_add");
    CHECK_INT(aril_read(y, got), ARIL_OK);
    CHECK_NEAR(got[0], 7.5, 0);
    CHECK_NEAR(got[1], 4.5, 0);
    /* a 0-d tensor of the device is not a number, and that row declines it */
    y = aril_add(x, aril_to(aril_scalar(2.0), mirror()));
    CHECK_INT(aril_read(y, got), ARIL_OK);
    CHECK_NEAR(got[1], 0, 0);
    CHECK(aril_ok());
}

TEST(differentiates_on_the_device)
{
    ARIL_SCOPE;
    float v[3] = { 1, -2, 3 };
    aril_tensor *x = aril_parameter(aril_from(v, ARIL_SHAPE(3), ARIL_F32, mirror()));
    aril_backward(aril_sum(aril_square(aril_relu(aril_add(x, x))), ARIL_ALL));
    float g[3];
    CHECK_INT(aril_read(aril_grad(x), g), ARIL_OK);
    CHECK_NEAR(g[0], 8, 0);
    CHECK_NEAR(g[1], 0, 0);
    CHECK_NEAR(g[2], 24, 0);
    /* and from the CPU through a move */
    aril_tensor *w = aril_parameter(aril_from(v, ARIL_SHAPE(3), ARIL_F32, aril_cpu()));
    aril_backward(aril_sum(aril_square(aril_to(w, mirror())), ARIL_ALL));
    CHECK(aril_device_equal(aril_device_of(aril_grad(w)), aril_cpu()));
    CHECK_NEAR(aril_item(aril_sum(aril_grad(w), ARIL_ALL)), 4, 0);
    CHECK(aril_ok());
    aril_release(x);
    aril_release(w);
}

/* The gradients of an LSTM's weights, computed on a device. */
static void lstm_on(aril_device d, float *to)
{
    enum { T = 3, N = 2, I = 4, H = 3 };
    static const int64_t count[5] = { T * N * I, 4 * H * I, 4 * H * H, 4 * H, 4 * H };
    ARIL_SCOPE;
    float v[T * N * I + 4 * H * (I + H)];
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) v[i] = (float)(i * 7 % 11) / 8 - 0.6f;
    aril_tensor *x = aril_from(v, ARIL_SHAPE(T, N, I), ARIL_F32, d);
    aril_tensor *w[4] = { aril_parameter(aril_from(v + 3, ARIL_SHAPE(4 * H, I), ARIL_F32, d)),
                          aril_parameter(aril_from(v + 5, ARIL_SHAPE(4 * H, H), ARIL_F32, d)),
                          aril_parameter(aril_from(v + 7, ARIL_SHAPE(4 * H), ARIL_F32, d)),
                          aril_parameter(aril_from(v + 9, ARIL_SHAPE(4 * H), ARIL_F32, d)) };
    aril_tensor *y =
        aril_lstm(x, NULL, NULL, (aril_list){ 4, w }, (aril_rnn_opts){ 0 }, NULL, NULL);
    aril_backward(aril_sum(aril_square(y), ARIL_ALL));
    for (int i = 0; i < 4; i++) {
        CHECK(aril_device_equal(aril_device_of(aril_grad(w[i])), d));
        CHECK_INT(aril_read(aril_grad(w[i]), to), ARIL_OK);
        to += count[i + 1];
        aril_release(w[i]);
    }
}

/* The device has no row for them: what the CPU's row keeps for the gradient is moved along, and
 * nothing on the device reads it. */
TEST(recurrent_layers_differentiate_on_the_device)
{
    enum { GRADS = 12 * (4 + 3 + 2) };
    float here[GRADS], there[GRADS];
    lstm_on(aril_cpu(), here);
    lstm_on(mirror(), there);
    for (int i = 0; i < GRADS; i++) CHECK_NEAR(there[i], here[i], 1e-5);
    CHECK(aril_ok());
}

TEST(anomaly_mode_works_on_the_device)
{
    ARIL_SCOPE;
    float v[2] = { -1, 1 };
    aril_tensor *x = aril_from(v, ARIL_SHAPE(2), ARIL_F32, mirror());
    aril_set_anomaly(true);
    CHECK_INT(aril_tensor_status(aril_exp(x)), ARIL_OK);
    CHECK_INT(aril_tensor_status(aril_cast(x, ARIL_F8E5M2)), ARIL_OK);
    CHECK_INT(aril_tensor_status(aril_log(x)), ARIL_ERR_NUMBER);
    CHECK(strstr(aril_error(), "log: produced a NaN"));
    aril_set_anomaly(false);
    aril_clear_error();
}

TEST(devices_do_not_mix)
{
    ARIL_SCOPE;
    float v[3] = { 1, -2, 3 };
    aril_tensor *x = aril_from(v, ARIL_SHAPE(3), ARIL_F32, mirror());
    aril_tensor *w = aril_from(v, ARIL_SHAPE(3), ARIL_F32, aril_cpu());
    CHECK_INT(aril_tensor_status(aril_add(x, w)), ARIL_ERR_DEVICE);
    CHECK(strstr(aril_error(), "mirror:0") && strstr(aril_error(), "cpu"));
    aril_clear_error();
    CHECK_NEAR(aril_item(aril_sum(aril_mul(x, aril_scalar(2)), ARIL_ALL)), 4, 0);
    CHECK(aril_ok());
}

TEST(rejects_files_that_are_not_plugins)
{
    mirror();
    CHECK_INT(aril_plugin_load("/nowhere/none.so"), ARIL_ERR_PLUGIN);
    CHECK(strstr(aril_error(), "none.so"));
    aril_clear_error();
    CHECK_INT(aril_plugin_load("libm.so.6"), ARIL_ERR_PLUGIN);
    CHECK(strstr(aril_error(), "aril_plugin_open"));
    aril_clear_error();
    CHECK_INT(aril_plugin_load(plugin_path()), ARIL_ERR_PLUGIN); /* devices exist already */
    aril_clear_error();
    CHECK_INT(aril_plugin_load(NULL), ARIL_ERR_ARG);
    aril_clear_error();
    CHECK_INT(aril_device_count(), 2);
}

TEST(gradients_of_views_and_writes_stay_on_the_device)
{
    ARIL_SCOPE;
    float v[4] = { 1, 2, 3, 4 }, g[4];
    aril_tensor *x = aril_parameter(aril_from(v, ARIL_SHAPE(4), ARIL_F32, mirror()));
    aril_tensor *h = aril_mul_scalar(x, 1);
    aril_mul_scalar_(aril_slice(h, 0, 1, 3, 1), 5); /* zeros that are only needed as a shape */
    aril_backward(aril_sum(aril_mul(h, h), ARIL_ALL));
    CHECK(aril_ok());
    CHECK(aril_device_equal(aril_device_of(aril_grad(x)), mirror()));
    CHECK_INT(aril_read(aril_grad(x), g), ARIL_OK);
    CHECK_NEAR(g[0], 2, 0);
    CHECK_NEAR(g[1], 100, 0);
    CHECK_NEAR(g[2], 150, 0);
    CHECK_NEAR(g[3], 8, 0);
    aril_release(x);
}

TEST(sub_byte_views_are_copied)
{
    ARIL_SCOPE;
    float v[9] = { 1, 2, 3, 4, 5, 6, 7, 1, 2 }, got[9];
    aril_tensor *x = aril_cast(aril_from(v, ARIL_SHAPE(9), ARIL_F32, aril_cpu()), ARIL_I4);
    aril_tensor *part = aril_to(aril_slice(x, 0, 1, 6, 1), mirror());
    CHECK_INT(aril_read(aril_cast(part, ARIL_F32), got), ARIL_OK);
    for (int i = 0; i < 5; i++) CHECK_NEAR(got[i], v[1 + i], 0);
    aril_tensor *y = aril_to(x, mirror());
    aril_copy_(aril_slice(y, 0, 1, 4, 1), aril_slice(x, 0, 4, 7, 1));
    CHECK_INT(aril_read(aril_cast(y, ARIL_F32), got), ARIL_OK);
    for (int i = 0; i < 9; i++) CHECK_NEAR(got[i], i >= 1 && i < 4 ? v[i + 3] : v[i], 0);
    const unsigned char *data = aril_data(aril_slice(x, 0, 1, 4, 1));
    CHECK(data && data[0] == 0x32);
    CHECK(aril_ok());
}

/* Runs a network there, moves it back, runs it here: the tensors stay the same objects. */
TEST(modules_move_to_the_device_and_back)
{
    ARIL_SCOPE;
    aril_device d = mirror();
    aril_module *m = aril_nn_sequential(aril_nn_conv2d(1, 3, 3), aril_nn_batch_norm2d(3),
                                        aril_nn_relu(), aril_nn_flatten(), aril_nn_linear(12, 2));
    aril_module *late = aril_nn_linear(0, 2); /* created on the device of its first input */
    aril_tensor *x = aril_randn(ARIL_SHAPE(2, 1, 4, 4), ARIL_F32, aril_cpu());
    aril_tensor *w = aril_module_tensor(m, "0.weight"), *before = aril_copy(w);
    aril_module_eval(m);
    aril_tensor *here = aril_forward(m, x);
    aril_backward(aril_sum(here, ARIL_ALL));
    CHECK_INT(aril_module_to(m, d), ARIL_OK);
    CHECK(aril_module_tensor(m, "0.weight") == w && aril_requires_grad(w));
    CHECK(aril_device_equal(aril_device_of(w), d) &&
          aril_device_equal(aril_device_of(aril_grad(w)), d));
    aril_module_zero_grad(m);
    aril_tensor *there = aril_forward(m, aril_to(x, d));
    CHECK(aril_device_equal(aril_device_of(there), d));
    aril_tensor *off = aril_abs(aril_sub(aril_to(there, aril_cpu()), here));
    CHECK_NEAR(aril_item(aril_amax(off, ARIL_ALL)), 0, 1e-5);
    CHECK_INT(aril_backward(aril_sum(there, ARIL_ALL)), ARIL_OK);
    CHECK_INT(aril_load_state(m, aril_state(m), (aril_load_state_opts){ 0 }), ARIL_OK);
    CHECK_INT(aril_module_to(m, aril_cpu()), ARIL_OK);
    CHECK(aril_item_int(aril_all(aril_eq(w, before), ARIL_ALL)));
    CHECK(aril_device_equal(aril_device_of(aril_forward(late, aril_to(x, d))), d));
    aril_module_release(m);
    aril_module_release(late);
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

TEST(datasets_are_in_host_memory)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_ones(ARIL_SHAPE(4, 3), ARIL_F32, mirror());
    CHECK(!aril_dataset_tensors(x, NULL));
    CHECK_MSG(strstr(aril_error(), "x is on mirror:0, but a dataset is kept in host memory"), "%s",
              aril_error());
    aril_clear_error();
}
