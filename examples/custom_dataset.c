/* A custom dataset is two functions: how many samples there are, and sample i. Here sample i is a
 * point on one of three spiral arms, created on demand; a small network learns to tell them
 * apart. */
#include <aril/aril.h>

#include <math.h>
#include <stdlib.h>

enum { ARMS = 3, POINTS = 300 };

struct spiral {
    double noise;
};

static int64_t spiral_size(aril_dataset *self)
{
    (void)self;
    return ARMS * POINTS;
}

/* Random numbers come from the sample's own generator: the same point in every run, for any number
 * of workers, and a new one in each epoch. */
static aril_status spiral_get(aril_dataset *self, int64_t i, aril_sample *s)
{
    const struct spiral *d = aril_dataset_data(self);
    int64_t arm = i / POINTS;
    double along = (double)(i % POINTS) / POINTS;
    double noise = aril_item(aril_randn_from(s->random, ARIL_SHAPE(), ARIL_F64, aril_cpu()));
    double angle = 4 * along + 2.1 * (double)arm + d->noise * noise;
    float point[2] = { (float)(along * cos(angle)), (float)(along * sin(angle)) };
    s->x = aril_from(point, ARIL_SHAPE(2), ARIL_F32, aril_cpu());
    s->y = aril_from(&arm, ARIL_SHAPE(), ARIL_I64, aril_cpu());
    return ARIL_OK;
}

static aril_dataset *spiral_new(double noise)
{
    aril_dataset *d = aril_dataset_new("Spiral", sizeof(struct spiral), spiral_size, spiral_get);
    struct spiral *data = aril_dataset_data(d);
    if (data) data->noise = noise;
    return d;
}

static double accuracy(aril_module *net, aril_loader *batches)
{
    ARIL_NO_GRAD;
    aril_module_eval(net);
    int64_t right = 0, all = 0;
    for (aril_batch b; aril_loader_next(batches, &b);) {
        ARIL_SCOPE;
        aril_tensor *guess = aril_argmax(aril_forward(net, b.x), ARIL_AXES(1)); /* [n] */
        right += aril_item_int(aril_sum(aril_eq(guess, b.y), ARIL_ALL));
        all += b.n;
    }
    aril_module_train(net);
    return (double)right / (double)all;
}

int main(void)
{
    int epochs = getenv("ARIL_EXAMPLE_QUICK") ? 10 : 60;
    aril_seed(0);
    aril_dataset *part[2]; /* 80% for training, 20% for testing */
    if (aril_dataset_split(spiral_new(0.2), 2, (const double[]){ 0.8, 0.2 }, 1, part) < 0)
        return aril_report(stderr);
    aril_loader *train =
        aril_loader_new(part[0], (aril_loader_opts){ .batch = 32, .shuffle = true, .workers = 2 });
    aril_loader *test = aril_loader_new(part[1], (aril_loader_opts){ .batch = 32 });

    aril_module *net =
        aril_nn_sequential(aril_nn_linear(2, 64), aril_nn_relu(), aril_nn_linear(64, 64),
                           aril_nn_relu(), aril_nn_linear(64, ARMS));
    aril_optim *opt = aril_adam(aril_parameters(net), (aril_adam_opts){ .lr = 0.01 });
    for (int epoch = 0; epoch < epochs; epoch++) {
        double sum = 0;
        for (aril_batch b; aril_loader_next(train, &b);) {
            ARIL_SCOPE;
            aril_tensor *loss = aril_cross_entropy(aril_forward(net, b.x), b.y);
            aril_backward(loss);
            aril_step(opt);
            sum += aril_item(loss);
        }
        if (epoch % 10 == 9)
            printf("epoch %d: loss %.3f, accuracy %.3f\n", epoch + 1,
                   sum / (double)aril_loader_length(train), accuracy(net, test));
    }
    double reached = aril_ok() ? accuracy(net, test) : 0;
    aril_loader_free(train);
    aril_loader_free(test);
    aril_optim_free(opt);
    aril_module_release(net);
    if (!aril_ok()) return aril_report(stderr);
    return reached > 0.8 ? 0 : 1;
}
