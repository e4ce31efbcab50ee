/* Determinism: the bits of a training step under ARIL_ANY_THREADS for one, two and three threads,
 * and under ARIL_SAME_THREADS from run to run. */
#include "support/test.h"

#include <aril/aril.h>

#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 1 << 22 };

/* The results of one run: outputs and gradients, concatenated. */
typedef struct bits {
    size_t n;
    unsigned char at[MAX_BYTES];
} bits;

static void add_bits(bits *b, aril_tensor *t)
{
    aril_tensor *dense = aril_contiguous(t);
    size_t n = (size_t)aril_numel(dense) * sizeof(float);
    if (aril_tensor_status(dense) < 0 || b->n + n > sizeof b->at) {
        test_fail(__FILE__, __LINE__, "%s", aril_error());
        return;
    }
    memcpy(b->at + b->n, aril_data(dense), n);
    b->n += n;
}

static aril_tensor *random_parameter(aril_shape shape)
{
    return aril_parameter(aril_mul_scalar(aril_randn(shape, ARIL_F32, aril_cpu()), 0.1));
}

/* A step of a small convolutional network. */
static void network(bits *b)
{
    ARIL_SCOPE;
    aril_seed(5);
    b->n = 0;
    aril_tensor *x = aril_randn(ARIL_SHAPE(12, 3, 30, 30), ARIL_F32, aril_cpu());
    aril_tensor *w1 = random_parameter(ARIL_SHAPE(16, 3, 5, 5));
    aril_tensor *b1 = random_parameter(ARIL_SHAPE(16));
    aril_tensor *w2 = random_parameter(ARIL_SHAPE(24, 16, 3, 3));
    aril_tensor *w3 = random_parameter(ARIL_SHAPE(10, 24 * 14 * 14));
    aril_tensor *scale = random_parameter(ARIL_SHAPE(24)),
                *shift = random_parameter(ARIL_SHAPE(24));
    aril_tensor *h = aril_relu(aril_conv2d(x, w1, b1, (aril_conv_opts){ .padding = { 2, 2 } }));
    h = aril_max_pool2d(h, (aril_pool_opts){ .kernel = { 2, 2 }, .stride = { 2, 2 } }, NULL);
    h = aril_conv2d(h, w2, NULL, (aril_conv_opts){ .padding = { 1, 1 } });
    h = aril_batch_norm(h, scale, shift, NULL, NULL, (aril_batch_norm_opts){ 0 });
    h = aril_gelu(aril_slice(aril_slice(h, 2, 0, 14, 1), 3, 0, 14, 1));
    h = aril_dropout(h, 0.2, (aril_dropout_opts){ 0 });
    h = aril_linear(aril_flatten(h, 1, -1), w3, NULL);
    aril_tensor *loss = aril_mean(aril_square(aril_log_softmax(h, 1)), ARIL_ALL);
    aril_backward(loss);
    add_bits(b, h);
    add_bits(b, loss);
    aril_tensor *all[] = { w1, b1, w2, w3, scale, shift };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        add_bits(b, aril_grad(all[i]));
        aril_release(all[i]);
    }
}

/* Products, sums and norms whose sizes are not multiples of any block. */
static void mixture(bits *b)
{
    ARIL_SCOPE;
    aril_seed(6);
    b->n = 0;
    aril_tensor *x = random_parameter(ARIL_SHAPE(301, 517)),
                *y = random_parameter(ARIL_SHAPE(517, 203));
    aril_tensor *bias = random_parameter(ARIL_SHAPE(203));
    aril_tensor *z = aril_add(aril_matmul(x, y), bias); /* [301,203] */
    aril_tensor *n = aril_layer_norm(z, NULL, NULL, ARIL_SHAPE(203), (aril_norm_opts){ 0 });
    aril_tensor *loss = aril_sum(aril_tanh(aril_mul(n, aril_softmax(z, 0))), ARIL_ALL);
    aril_backward(loss);
    add_bits(b, aril_sum(z, ARIL_AXES(0)));
    add_bits(b, aril_sum(aril_randn(ARIL_SHAPE(1 << 20), ARIL_F32, aril_cpu()), ARIL_ALL));
    add_bits(b, loss);
    aril_tensor *image = aril_randn(ARIL_SHAPE(2, 24, 90, 77), ARIL_F32, aril_cpu());
    image = aril_group_norm(aril_channels_last(image), NULL, NULL, 3, (aril_norm_opts){ 0 });
    add_bits(b, aril_slice(image, 3, 0, 77, 19));
    aril_tensor *all[] = { x, y, bias };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        add_bits(b, aril_grad(all[i]));
        aril_release(all[i]);
    }
}

static void same_for_any_number(void (*run)(bits *))
{
    bits *first = calloc(1, sizeof *first), *now = calloc(1, sizeof *now);
    aril_set_deterministic(ARIL_ANY_THREADS);
    aril_set_threads(1);
    run(first);
    for (int threads = 1; threads <= 3; threads++) {
        aril_set_threads(threads);
        run(now);
        if (now->n != first->n || !first->n || memcmp(now->at, first->at, now->n) != 0)
            test_fail(__FILE__, __LINE__, "other bits with %d threads", threads);
    }
    aril_set_deterministic(ARIL_SAME_THREADS);
    for (int threads = 1; threads <= 3; threads++) {
        aril_set_threads(threads);
        run(first);
        for (int again = 0; again < 3; again++) {
            run(now);
            if (now->n != first->n || memcmp(now->at, first->at, now->n) != 0)
                test_fail(__FILE__, __LINE__, "other bits in another run, %d threads", threads);
        }
    }
    aril_set_threads(0);
    free(first);
    free(now);
}

TEST(bits_of_a_network)
{
    same_for_any_number(network);
}

TEST(bits_of_products_sums_and_norms)
{
    same_for_any_number(mixture);
}
