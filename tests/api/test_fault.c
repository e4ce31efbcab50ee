/* Out of memory: every allocation of a training step fails in turn. Nothing may crash or leak, and
 * the next step gives the numbers of an undisturbed run. */
#include "aril/aril.h"
#include "core/tensor.h"
#include "support/test.h"

#include <stdio.h>
#include <string.h>

enum { PARAMS = 5, MAX_NUMEL = 4 * 8 * 32, BATCH = 4, CLASSES = 3 };

/* A small network's parameters: convolution, two linear layers. */
typedef struct net {
    aril_tensor *param[PARAMS];
    float initial[PARAMS][MAX_NUMEL];
    aril_tensor *x, *y, *seen; /* data, classes, and a buffer that is written through a view */
} net;

static aril_tensor *parameter(aril_shape shape)
{
    return aril_parameter(aril_mul_scalar(aril_randn(shape, ARIL_F32, aril_cpu()), 0.3));
}

static void net_init(net *m)
{
    ARIL_SCOPE;
    static const int64_t classes[BATCH] = { 0, 2, 1, 2 };
    aril_seed(7);
    m->param[0] = parameter(ARIL_SHAPE(2, 1, 3, 3));
    m->param[1] = parameter(ARIL_SHAPE(8, 32)); /* 2 channels of 4 x 4 */
    m->param[2] = parameter(ARIL_SHAPE(8));
    m->param[3] = parameter(ARIL_SHAPE(CLASSES, 8));
    m->param[4] = parameter(ARIL_SHAPE(CLASSES));
    m->x = aril_keep(aril_randn(ARIL_SHAPE(BATCH, 1, 6, 6), ARIL_F32, aril_cpu()));
    m->y = aril_keep(aril_from(classes, ARIL_SHAPE(BATCH), ARIL_I64, aril_cpu()));
    m->seen = aril_keep(aril_zeros(ARIL_SHAPE(2, CLASSES), ARIL_F32, aril_cpu()));
    for (int i = 0; i < PARAMS; i++) aril_read(m->param[i], m->initial[i]);
}

static void net_free(net *m)
{
    for (int i = 0; i < PARAMS; i++) aril_release(m->param[i]);
    aril_release(m->x);
    aril_release(m->y);
    aril_release(m->seen);
}

static void net_reset(net *m)
{
    static const float zeros[2 * CLASSES];
    for (int i = 0; i < PARAMS; i++) {
        aril_write(m->param[i], m->initial[i]);
        aril_zero_grad(m->param[i]);
    }
    aril_write(m->seen, zeros);
}

/* Forward, with a write through a view in the graph; backward; in-place updates. Returns the
 * loss. */
static double net_step(net *m)
{
    ARIL_SCOPE;
    aril_tensor **w = m->param;
    aril_tensor *h =
        aril_relu(aril_conv2d(m->x, w[0], NULL, (aril_conv_opts){ 0 })); /* [4,2,4,4] */
    h = aril_relu(aril_linear(aril_flatten(h, 1, -1), w[1], w[2]));      /* [4,8] */
    h = aril_mul_scalar(h, 2); /* a copy that relu's gradient does not need */
    aril_mul_scalar_(aril_slice(h, 0, 1, 3, 1), 0.5);
    aril_tensor *scores = aril_linear(h, w[3], w[4]); /* [4,3] */
    aril_tensor *loss =
        aril_add(aril_cross_entropy(scores, m->y), aril_l2_penalty(ARIL_LIST(w[1], w[3]), 0.01));
    if (aril_backward(loss) == ARIL_OK) {
        ARIL_NO_GRAD;
        for (int i = 0; i < PARAMS; i++)
            if (aril_has_grad(w[i])) aril_sub_(w[i], aril_mul_scalar(aril_grad(w[i]), 0.1));
        aril_copy_(aril_select(m->seen, 0, 1), aril_mean(scores, ARIL_AXES(0)));
    }
    for (int i = 0; i < PARAMS; i++) aril_zero_grad(w[i]);
    return aril_item(loss);
}

typedef struct outcome {
    double loss;
    float param[PARAMS][MAX_NUMEL];
    float seen[2 * CLASSES];
} outcome;

static outcome net_outcome(net *m)
{
    static outcome o;
    memset(&o, 0, sizeof o);
    net_reset(m);
    o.loss = net_step(m);
    for (int i = 0; i < PARAMS; i++) aril_read(m->param[i], o.param[i]);
    aril_read(m->seen, o.seen);
    return o;
}

TEST(every_allocation_of_a_training_step_fails_in_turn)
{
    static net m;
    static outcome want, got;
    net_init(&m);
    want = net_outcome(&m);
    want = net_outcome(&m); /* caches are warm now */
    CHECK_MSG(aril_ok(), "%s", aril_error());
    CHECK(want.loss > 0.1 && want.seen[CLASSES] != 0);

    int failures = 0, reported = 0;
    for (int64_t n = 1;; n++) {
        net_reset(&m);
        int64_t blocks = aril__live_blocks(), bytes = aril_memory(aril_cpu()).live;
        aril_fail_allocation(n);
        double loss = net_step(&m);
        bool failed = aril_allocation_failed();
        aril_fail_allocation(0);
        if (!failed) {
            CHECK(aril_ok());
            CHECK_NEAR(loss, want.loss, 0);
            break;
        }
        failures++;
        if (!aril_ok()) {
            reported++;
            CHECK_MSG(aril_error_code() == ARIL_ERR_MEMORY, "allocation %lld: %s", (long long)n,
                      aril_error());
        } else { /* the allocation was optional, and the result is right */
            CHECK_MSG(loss == want.loss, "allocation %lld failed without a word", (long long)n);
        }
        aril_clear_error();
        for (int i = 0; i < PARAMS; i++) aril_zero_grad(m.param[i]);
        CHECK_MSG(aril__live_blocks() == blocks, "allocation %lld: %lld blocks leaked",
                  (long long)n, (long long)(aril__live_blocks() - blocks));
        CHECK_MSG(aril_memory(aril_cpu()).live == bytes, "allocation %lld: %lld bytes leaked",
                  (long long)n, (long long)(aril_memory(aril_cpu()).live - bytes));
        got = net_outcome(&m);
        CHECK_MSG(aril_ok(), "after allocation %lld: %s", (long long)n, aril_error());
        CHECK_MSG(memcmp(&got, &want, sizeof got) == 0, "other numbers after allocation %lld",
                  (long long)n);
        CHECK(n < 100000);
    }
    printf("      %d allocations, %d of them reported\n", failures, reported);
    CHECK_MSG(failures > 100 && reported > failures / 2, "%d failures, %d reported", failures,
              reported);
    net_free(&m);
}

/* The same for a second derivative, whose graph is recorded during backward. */
static double second_order(aril_tensor *x)
{
    ARIL_SCOPE;
    static const int64_t classes[2] = { 1, 0 };
    aril_tensor *g = NULL, *y = aril_from(classes, ARIL_SHAPE(2), ARIL_I64, aril_cpu());
    aril_tensor *loss = aril_cross_entropy(aril_tanh(x), y);
    if (aril_gradients(loss, ARIL_LIST(x), &g, (aril_grad_opts){ .create_graph = true }) < 0)
        return 0;
    if (aril_backward(aril_sum(aril_square(g), ARIL_ALL)) < 0) return 0;
    double sum = aril_item(aril_sum(aril_grad(x), ARIL_ALL));
    aril_zero_grad(x);
    return sum;
}

TEST(every_allocation_of_a_second_derivative_fails_in_turn)
{
    aril_tensor *x;
    {
        ARIL_SCOPE;
        static const double values[6] = { 0.3, -0.2, 0.9, 1.2, -0.7, 0.1 };
        x = aril_parameter(aril_from(values, ARIL_SHAPE(2, 3), ARIL_F64, aril_cpu()));
    }
    double want = second_order(x);
    CHECK_MSG(aril_ok() && want != 0, "%s", aril_error());
    int failures = 0;
    for (int64_t n = 1;; n++, failures++) {
        int64_t blocks = aril__live_blocks(), bytes = aril_memory(aril_cpu()).live;
        aril_fail_allocation(n);
        double sum = second_order(x);
        bool failed = aril_allocation_failed();
        aril_fail_allocation(0);
        CHECK_MSG(failed || aril_ok(), "%s", aril_error());
        CHECK_MSG(!aril_ok() || sum == want, "allocation %lld failed without a word", (long long)n);
        if (!failed) break;
        aril_clear_error();
        aril_zero_grad(x);
        CHECK_MSG(aril__live_blocks() == blocks, "allocation %lld: %lld blocks leaked",
                  (long long)n, (long long)(aril__live_blocks() - blocks));
        CHECK_INT(aril_memory(aril_cpu()).live, bytes);
        CHECK_NEAR(second_order(x), want, 0);
    }
    printf("      %d allocations\n", failures);
    CHECK(failures > 50);
    aril_release(x);
}

/* Ops of every family, forward and backward. */
static double many_ops(aril_tensor *x, aril_tensor *table)
{
    ARIL_SCOPE;
    static const int64_t words[6] = { 3, 0, 2, 2, 1, 4 };
    aril_device cpu = aril_cpu();
    aril_tensor *index = aril_from(words, ARIL_SHAPE(2, 3), ARIL_I64, cpu);
    aril_tensor *at = NULL, *order = NULL;
    aril_seed(3);
    /* x [2,2,6,6] */
    aril_tensor *h = aril_batch_norm(x, NULL, NULL, NULL, NULL, (aril_batch_norm_opts){ 0 });
    h = aril_max_pool2d(h, (aril_pool_opts){ .kernel = { 2 } }, &at); /* [2,2,3,3] */
    h = aril_dropout(aril_transpose(h, 1, 3), 0.2, (aril_dropout_opts){ 0 });
    h = aril_layer_norm(aril_reshape(h, ARIL_SHAPE(2, 18)), NULL, NULL, ARIL_SHAPE(18),
                        (aril_norm_opts){ 0 });
    aril_tensor *e = aril_embedding(index, table, (aril_embedding_opts){ 0 }); /* [2,3,4] */
    aril_tensor *bag = aril_embedding_bag(index, table, NULL, (aril_embedding_bag_opts){ 0 });
    aril_tensor *all = aril_cat(ARIL_LIST(h, aril_flatten(e, 1, -1), bag), 1); /* [2,34] */
    all = aril_add(all, aril_flip(aril_cumsum(all, 1), ARIL_AXES(1)));
    all = aril_sort(all, 1, (aril_sort_opts){ 0 }, &order);
    all = aril_softmax(aril_matmul(aril_t(all), all), 1); /* [34,34] */
    aril_tensor *top = aril_max(all, ARIL_AXES(1), NULL);
    aril_tensor *loss = aril_add(aril_mean(top, ARIL_ALL), aril_norm(all, ARIL_ALL, 2));
    aril_tensor *picked =
        aril_gather(e, aril_unsqueeze(aril_clamp_max(index, 3), 2), 2); /* [2,3,1] */
    loss = aril_add(loss, aril_var(picked, ARIL_ALL, 1));
    if (aril_backward(loss) < 0) return 0;
    double sum = aril_item(loss) + aril_item(aril_sum(aril_grad(x), ARIL_ALL)) +
                 aril_item(aril_sum(aril_square(aril_grad(table)), ARIL_ALL));
    aril_zero_grad(x);
    aril_zero_grad(table);
    return sum;
}

TEST(every_allocation_of_many_ops_fails_in_turn)
{
    aril_tensor *x, *table;
    {
        ARIL_SCOPE;
        aril_seed(5);
        x = aril_parameter(aril_randn(ARIL_SHAPE(2, 2, 6, 6), ARIL_F32, aril_cpu()));
        table = aril_parameter(aril_randn(ARIL_SHAPE(5, 4), ARIL_F32, aril_cpu()));
    }
    double want = many_ops(x, table);
    want = many_ops(x, table);
    CHECK_MSG(aril_ok() && want != 0, "%s", aril_error());
    int failures = 0;
    for (int64_t n = 1;; n++, failures++) {
        int64_t blocks = aril__live_blocks(), bytes = aril_memory(aril_cpu()).live;
        aril_fail_allocation(n);
        double sum = many_ops(x, table);
        bool failed = aril_allocation_failed();
        aril_fail_allocation(0);
        CHECK_MSG(failed || aril_ok(), "%s", aril_error());
        CHECK_MSG(!aril_ok() || sum == want, "allocation %lld failed without a word", (long long)n);
        if (!failed) break;
        aril_clear_error();
        aril_zero_grad(x);
        aril_zero_grad(table);
        CHECK_MSG(aril__live_blocks() == blocks, "allocation %lld: %lld blocks leaked",
                  (long long)n, (long long)(aril__live_blocks() - blocks));
        CHECK_INT(aril_memory(aril_cpu()).live, bytes);
        CHECK_NEAR(many_ops(x, table), want, 0);
    }
    printf("      %d allocations\n", failures);
    CHECK(failures > 100);
    aril_release(x);
    aril_release(table);
}
