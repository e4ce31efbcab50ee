/* A network with two inputs and two outputs, as with Keras's functional API: from an image and the
 * brightness at which it was taken, it predicts which of two shapes is in it, and how large it
 * is. */
#include <aril/aril.h>

#include <stdlib.h>

enum { SIZE = 16 };

struct net {
    aril_module *image, *light, *kind, *edge;
};

/* in: images [N,1,16,16], brightness [N,1]; out: scores [N,2], edge [N,1] */
static void net_forward(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                        aril_tensor **out)
{
    struct net *m = aril_module_data(self);
    aril_tensor *h = aril_forward(m->image, in[0]);
    if (n_in > 1 && in[1] != NULL) h = aril_add(h, aril_forward(m->light, in[1])); /* [N,32] */
    h = aril_relu(h);
    out[0] = aril_forward(m->kind, h);
    if (n_out > 1) out[1] = aril_forward(m->edge, h);
}

static aril_module *net_new(void)
{
    static const aril_module_class type = { .type = "TwoHeads",
                                            .size = sizeof(struct net),
                                            .forward = net_forward,
                                            .inputs = 2,
                                            .outputs = 2 };
    aril_module *self = aril_module_make(&type);
    struct net *m = aril_module_data(self);
    m->image = aril_module_add(self, "image",
                               aril_nn_sequential(aril_nn_conv2d(1, 8, 3), aril_nn_relu(),
                                                  aril_nn_max_pool2d(2), aril_nn_flatten(),
                                                  aril_nn_linear(0, 32)));
    m->light = aril_module_add(self, "light", aril_nn_linear(1, 32));
    m->kind = aril_module_add(self, "kind", aril_nn_linear(32, 2));
    m->edge = aril_module_add(self, "edge", aril_nn_linear(32, 1));
    return self;
}

typedef struct samples {
    aril_tensor *image, *light, *kind, *edge;
} samples;

/* Squares (kind 0) and their outlines (kind 1), of 3 to 12 pixels. */
static samples make_samples(int64_t n)
{
    samples s = { .image = aril_zeros(ARIL_SHAPE(n, 1, SIZE, SIZE), ARIL_F32, aril_cpu()),
                  .light = aril_add_scalar(aril_rand(ARIL_SHAPE(n, 1), ARIL_F32, aril_cpu()), 0.5),
                  .kind = aril_randint(0, 2, ARIL_SHAPE(n), ARIL_I64, aril_cpu()) };
    aril_tensor *edges = aril_randint(3, 13, ARIL_SHAPE(n, 1), ARIL_I64, aril_cpu());
    const int64_t *kind = aril_data(s.kind), *edge = aril_data(edges);
    for (int64_t i = 0; i < n; i++) {
        ARIL_SCOPE;
        aril_tensor *image = aril_select(aril_select(s.image, 0, i), 0, 0);
        aril_fill_(aril_narrow(aril_narrow(image, 0, 1, edge[i]), 1, 1, edge[i]), 1);
        if (kind[i] == 1)
            aril_fill_(aril_narrow(aril_narrow(image, 0, 2, edge[i] - 2), 1, 2, edge[i] - 2), 0);
    }
    s.image = aril_mul(s.image, aril_reshape(s.light, ARIL_SHAPE(n, 1, 1, 1)));
    s.edge = aril_div_scalar(aril_cast(edges, ARIL_F32), SIZE);
    return s;
}

int main(void)
{
    bool quick = getenv("ARIL_EXAMPLE_QUICK") != NULL;
    aril_seed(0);
    samples train = make_samples(quick ? 128 : 2048), held = make_samples(64);

    aril_model *model = aril_model_new(net_new(), ARIL_SHAPE()); /* built on the first batch */
    aril_model_compile(
        model, (aril_model_opts){
                   .outputs = { { .name = "kind", .loss = "cross_entropy", .metrics = "accuracy" },
                                { .name = "edge", .loss = "mse", .weight = 10, .metrics = "mae" } },
                   .optimizer = aril_adam(NULL, (aril_adam_opts){ .lr = 1e-3 }) });
    aril_model_fit_n(model, ARIL_LIST(train.image, train.light), ARIL_LIST(train.kind, train.edge),
                     (aril_fit_opts){ .epochs = quick ? 2 : 10,
                                      .validation_n = { ARIL_LIST(held.image, held.light),
                                                        ARIL_LIST(held.kind, held.edge) } });

    aril_tensor *out[2];
    if (aril_model_predict_all(model, ARIL_LIST(held.image, held.light), 2, out,
                               (aril_eval_opts){ 0 }) == ARIL_OK) {
        printf("accuracy %.3f; the first image: %s of %.1f pixels, in truth %.1f\n",
               aril_model_value(model, "kind_accuracy"),
               aril_item_int(aril_argmax(aril_select(out[0], 0, 0), ARIL_ALL)) ? "an outline"
                                                                               : "a square",
               SIZE * aril_item(aril_select(out[1], 0, 0)),
               SIZE * aril_item(aril_select(held.edge, 0, 0)));
    }
    aril_model_free(model);
    return aril_report(stderr);
}
