/* One network or more of each family beside torchvision and transformers: from the same weights, by
 * a formula that tests/peers/networks.py has too, the same results and gradients. That script
 * compares all networks, and wrote the values of golden.inc. ARIL_TEST_PART=1/3 runs a third of
 * them. */
#include "support/test.h"

#include <aril/aril.h>
#include <aril/zoo.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CLASSES = 10 };

static const struct golden {
    const char *name;
    int side;
    bool aux;
    double result[CLASSES];
    struct {
        const char *name;
        double norm, first;
    } gradient[3];
} cases[] = {
#include "golden.inc"
};

/* ---- the formula ---- */

static uint32_t scramble(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352dU;
    x ^= x >> 15;
    x *= 0x846ca68bU;
    return x ^ (x >> 16);
}

/* Numbers around `center`, at most `scale` away, that follow from the key. */
static aril_tensor *numbers(uint32_t key, aril_shape shape, double center, double scale)
{
    aril_tensor *t = aril_empty(shape, ARIL_F32, aril_cpu());
    float *to = aril_data_strided(t);
    int64_t n = aril_numel(t);
    uint32_t first = scramble(key);
    for (int64_t i = 0; to && i < n; i++) {
        double u = (double)(scramble((uint32_t)i + first) >> 8) * 0x1p-23 - 1;
        to[i] = (float)(center + scale * u);
    }
    return t;
}

static bool ends(const char *text, const char *with)
{
    size_t n = strlen(text), m = strlen(with);
    return n >= m && strcmp(text + n - m, with) == 0;
}

static aril_tensor *weight(uint32_t key, const char *path, aril_shape shape)
{
    const char *dot = strrchr(path, '.'), *name = dot ? dot + 1 : path;
    if (strcmp(name, "running_var") == 0) return numbers(key, shape, 1, 0.5);
    if (strcmp(name, "running_mean") == 0 || ends(name, "bias")) return numbers(key, shape, 0, 0.1);
    if (ends(name, "weight") && shape.ndim > 1) {
        double fan = 1;
        for (int i = 1; i < shape.ndim; i++) fan *= (double)shape.dim[i];
        return numbers(key, shape, 0, sqrt(6 / fan));
    }
    return strcmp(name, "weight") == 0 ? numbers(key, shape, 0.7, 0.3)
                                       : numbers(key, shape, 0, 0.5);
}

static void set_weights(aril_module *m)
{
    const aril_named *state = aril_state(m);
    for (int i = 0; i < state->n; i++) {
        ARIL_SCOPE;
        ARIL_NO_GRAD;
        if (ends(state->name[i], "num_batches_tracked")) continue;
        aril_copy_(state->at[i], weight((uint32_t)i, state->name[i], aril_shape_of(state->at[i])));
    }
}

enum { INPUT = 100000, TARGET = 100001 }; /* keys */

/* ---- comparing ---- */

static void check_results(const struct golden *g, aril_module *m, aril_tensor *x)
{
    ARIL_SCOPE;
    ARIL_INFERENCE;
    double got[CLASSES], largest = 0;
    aril_tensor *y = aril_flatten(aril_forward(m, x), 0, -1);
    aril_read(aril_cast(aril_narrow(y, 0, 0, CLASSES), ARIL_F64), got);
    CHECK_MSG(aril_ok(), "%s: %s", g->name, aril_error());
    for (int i = 0; i < CLASSES; i++) largest = fmax(largest, fabs(g->result[i]));
    for (int i = 0; i < CLASSES; i++)
        CHECK_MSG(fabs(got[i] - g->result[i]) <= 1e-4 * largest, "%s: result %d is %.7g, not %.7g",
                  g->name, i, got[i], g->result[i]);
}

static void check_gradients(const struct golden *g, aril_module *m, aril_tensor *x)
{
    ARIL_SCOPE;
    aril_tensor *out[3], *loss = NULL;
    /* The largest networks stay in f32, for the memory and the time that they need. */
    bool small = aril_parameter_count(m) < 25000000;
    double near = small ? 1e-6 : 1e-3;
    aril_module_train(m);
    if (small && aril_dtype_is_float(aril_dtype_of(x))) x = aril_cast(x, ARIL_F64);
    if (small) aril_module_cast(m, ARIL_F64);
    CHECK_INT(aril_forward_all(m, ARIL_LIST(x), g->aux ? 3 : 1, out), ARIL_OK);
    for (int k = 0; k < (g->aux ? 3 : 1); k++) {
        aril_tensor *w = aril_cast(numbers(TARGET + (uint32_t)k, aril_shape_of(out[k]), 0, 1),
                                   aril_dtype_of(out[k]));
        aril_tensor *part = aril_mean(aril_mul(out[k], w), ARIL_ALL);
        loss = loss ? aril_add(loss, part) : part;
    }
    CHECK_MSG(aril_backward(loss) == ARIL_OK, "%s: %s", g->name, aril_error());
    for (int i = 0; i < 3; i++) {
        aril_tensor *grad = aril_grad(aril_module_tensor(m, g->gradient[i].name));
        double norm = sqrt(aril_item(aril_sum(aril_square(grad), ARIL_ALL)));
        double first = aril_item(aril_select(aril_flatten(grad, 0, -1), 0, 0));
        CHECK_MSG(aril_ok(), "%s: %s", g->name, aril_error());
        CHECK_MSG(fabs(norm - g->gradient[i].norm) <= near * norm &&
                      fabs(first - g->gradient[i].first) <= near * norm,
                  "%s: gradient of %s has norm %.9g and begins with %.9g, not %.9g and %.9g",
                  g->name, g->gradient[i].name, norm, first, g->gradient[i].norm,
                  g->gradient[i].first);
    }
}

static void check(const struct golden *g)
{
    ARIL_SCOPE;
    const aril_zoo_entry *e = aril_zoo_find(g->name);
    CHECK_MSG(e, "%s", aril_error());
    bool tokens = e->dtype == ARIL_I64;
    aril_shape side = tokens ? ARIL_SHAPE(g->side) : ARIL_SHAPE(3, g->side, g->side);
    aril_module *m = aril_zoo_make(
        g->name,
        (aril_zoo_opts){ .input = side, .classes = CLASSES, .aux = g->aux, .no_dropout = true });
    CHECK_MSG(m, "%s: %s", g->name, aril_error());
    set_weights(m);
    aril_shape batch = tokens ? ARIL_SHAPE(2, g->side) : ARIL_SHAPE(2, 3, g->side, g->side);
    aril_tensor *x = numbers(INPUT, batch, 0, 1);
    if (tokens)
        x = aril_cast(aril_mul_scalar(aril_add_scalar(aril_cast(x, ARIL_F64), 1), CLASSES * 0.5),
                      ARIL_I64);
    aril_module_eval(m);
    check_results(g, m, x);
    if (!test_failed() && g->gradient[0].name) check_gradients(g, m, x);
    aril_module_release(m);
}

TEST(networks_have_the_results_and_gradients_of_pytorch)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases && !test_failed(); i++)
        if (test_part((int)i)) check(&cases[i]);
}
