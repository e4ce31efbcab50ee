/* Compiled steps of models: the numbers of single operations, and no silent fallback. */
#include "aril/aril.h"
#include "support/compare.h"
#include "support/test.h"
#include "train/compiled.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 44, D = 6, C = 3 };

typedef struct data {
    aril_tensor *x, *y, *weight, *x_val, *y_val;
} data;

static data make_data(void)
{
    aril_generator *g = aril_generator_new(5);
    data d = { .x = aril_randn_from(g, ARIL_SHAPE(N, D), ARIL_F32, aril_cpu()),
               .x_val = aril_randn_from(g, ARIL_SHAPE(9, D), ARIL_F32, aril_cpu()),
               .weight = aril_rand_from(g, ARIL_SHAPE(N), ARIL_F32, aril_cpu()) };
    aril_generator_free(g);
    d.y = aril_argmax(aril_narrow(d.x, 1, 0, C), ARIL_AXES(1));
    d.y_val = aril_argmax(aril_narrow(d.x_val, 1, 0, C), ARIL_AXES(1));
    return d;
}

/* Dropout, and statistics that change: what a program has to repeat in each run. */
static aril_module *net_new(void)
{
    aril_seed(3);
    return aril_nn_sequential(aril_nn_linear(0, 16), aril_nn_batch_norm1d(0), aril_nn_relu(),
                              aril_nn_dropout(0.3), aril_nn_linear(0, C));
}

/* What a callback sees of each batch. */
typedef struct seen {
    double loss[256], mean[256], lr[256];
    int n;
} seen;

static aril_status look(aril_callback *self, aril_fit *f)
{
    seen *s = *(seen **)aril_callback_data(self);
    if (s->n >= 256) return ARIL_OK;
    s->loss[s->n] = aril_fit_value(f, "batch_loss");
    s->mean[s->n] = aril_fit_value(f, "loss");
    s->lr[s->n++] = aril_fit_value(f, "lr");
    return ARIL_OK;
}

static aril_callback *look_new(seen *s)
{
    static const aril_callback_class type = { .name = "look",
                                              .size = sizeof(seen *),
                                              .batch_end = look };
    aril_callback *c = aril_callback_make(&type);
    *(seen **)aril_callback_data(c) = s;
    return c;
}

/* Variants of training. */
typedef struct variant {
    const char *name;
    aril_sgd_opts sgd;
    aril_dtype autocast;
    int accumulate;
    bool class_weight, sample_weight, schedule, adam;
} variant;

static void train(const variant *v, bool eager, seen *s, aril_model **made)
{
    ARIL_SCOPE;
    data d = make_data();
    aril_model *m = *made = aril_model_new(net_new(), ARIL_SHAPE());
    aril_optim *opt = v->adam ? aril_adam(NULL, (aril_adam_opts){ .lr = 0.02, .clip_norm = 0.5 })
                              : aril_sgd(NULL, v->sgd);
    aril_model_opts opts = { .loss = "cross_entropy",
                             .metrics = "accuracy, topk",
                             .optimizer = opt,
                             .autocast = v->autocast,
                             .eager = eager };
    if (v->schedule)
        opts.schedule =
            aril_cosine_schedule((aril_schedule_opts){ .per_batch = true, .total = 12 });
    CHECK_INT(aril_model_compile(m, opts), ARIL_OK);
    const float per_class[C] = { 1, 2, 0.5f };
    aril_fit_opts fit = { .batch_size = 8, /* the last batch has 4 samples */
                          .epochs = 3,
                          .verbose = ARIL_SILENT,
                          .accumulate = v->accumulate,
                          .validation = { d.x_val, d.y_val },
                          .callbacks = ARIL_CALLBACKS(look_new(s)) };
    if (v->class_weight)
        fit.class_weight = aril_from(per_class, ARIL_SHAPE(C), ARIL_F32, aril_cpu());
    if (v->sample_weight) fit.sample_weight = d.weight;
    CHECK_MSG(aril_model_fit(m, d.x, d.y, fit) != NULL, "%s: %s", v->name, aril_error());
}

static void check_same(const char *name, aril_model *a, aril_model *b)
{
    const aril_named *p = aril_state(aril_model_module(a)), *q = aril_state(aril_model_module(b));
    for (int i = 0; i < p->n; i++) {
        char *why = test_difference_in_value(p->at[i], q->at[i], 0, 0);
        CHECK_MSG(!why, "%s: %s: %s", name, p->name[i], why);
    }
}

static const variant variants[] = {
    { .name = "plain", .sgd = { .lr = 0.1, .momentum = 0.9 } },
    { .name = "adam, clipped", .adam = true },
    { .name = "accumulated", .sgd = { .lr = 0.1 }, .accumulate = 4 },
    { .name = "weights", .sgd = { .lr = 0.1 }, .class_weight = true, .sample_weight = true },
    { .name = "schedule", .sgd = { .lr = 0.2, .momentum = 0.9 }, .schedule = true },
    { .name = "loss scale",
      .sgd = { .lr = 0.1, .loss_scale = 1024, .loss_scale_growth = 3 },
      .autocast = ARIL_F16 },
    { .name = "bf16", .sgd = { .lr = 0.1, .weight_decay = 0.01 }, .autocast = ARIL_BF16 },
    { .name = "optimizer accumulates", .sgd = { .lr = 0.1, .accumulate = 2 } },
};

TEST(fits_have_the_numbers_of_single_operations)
{
    for (size_t i = 0; i < sizeof variants / sizeof *variants && !test_failed(); i++) {
        ARIL_SCOPE;
        const variant *v = &variants[i];
        static seen s[2];
        s[0].n = s[1].n = 0;
        aril_model *a, *b;
        train(v, false, &s[0], &a);
        train(v, true, &s[1], &b);
        CHECK_MSG(aril_ok(), "%s: %s", v->name, aril_error());
        check_same(v->name, a, b);
        CHECK_INT(s[0].n, 18);
        CHECK_INT(s[1].n, 18);
        for (int k = 0; k < s[0].n && !test_failed(); k++) {
            CHECK_MSG(s[0].loss[k] == s[1].loss[k] && s[0].mean[k] == s[1].mean[k] &&
                          s[0].lr[k] == s[1].lr[k],
                      "%s: batch %d has loss %.9g and %.9g", v->name, k, s[0].loss[k],
                      s[1].loss[k]);
        }
        const char *columns[] = { "loss", "accuracy", "topk", "val_loss", "val_accuracy", "lr" };
        for (int k = 0; k < 6; k++)
            CHECK_MSG(aril_history_at(a->history, columns[k], -1) ==
                          aril_history_at(b->history, columns[k], -1),
                      "%s: %s", v->name, columns[k]);
        CHECK_MSG(!aril_model_eager_reason(a), "%s: %s", v->name, aril_model_eager_reason(a));
        CHECK(aril__model_traces(a, ARIL__TRAIN_STEP) >= 2); /* two batch sizes */
        CHECK(aril__model_traces(a, ARIL__MEASURE_STEP) >= 1);
        CHECK_INT(aril__model_traces(b, ARIL__TRAIN_STEP), 0);
        CHECK(aril_model_eager_reason(b) != NULL);
        data d = make_data();
        aril_eval_opts few = { .batch_size = 4, .verbose = ARIL_SILENT };
        char *why = test_difference_in_value(aril_model_predict(a, d.x, few),
                                             aril_model_predict(b, d.x, few), 0, 0);
        CHECK_MSG(!why, "%s: predictions: %s", v->name, why);
        CHECK_INT(aril__model_traces(a, ARIL__PREDICT_STEP), 1);
        aril_model_free(a);
        aril_model_free(b);
    }
}

/* Between two fits the optimizer's state is replaced by a saved one. */
TEST(a_loaded_state_is_used)
{
    double loss[2];
    for (int eager = 0; eager < 2; eager++) {
        ARIL_SCOPE;
        seen s = { .n = 0 };
        data d = make_data();
        aril_model *m;
        train(&variants[0], eager, &s, &m);
        aril_fit_opts fit = { .batch_size = 8, .verbose = ARIL_SILENT };
        const aril_named *now = aril_optim_state(aril_model_optim(m));
        aril_tensor *at[32];
        for (int i = 0; i < now->n; i++) at[i] = aril_copy(now->at[i]);
        aril_named was = { now->n, at, now->name };
        CHECK(aril_model_fit(m, d.x, d.y, fit) != NULL);
        CHECK_INT(aril_optim_load_state(aril_model_optim(m), &was), ARIL_OK);
        CHECK(aril_model_fit(m, d.x, d.y, fit) != NULL);
        CHECK_MSG(aril_ok(), "%s", aril_error());
        loss[eager] = aril_history_at(m->history, "loss", -1);
        aril_model_free(m);
    }
    CHECK_NEAR(loss[0], loss[1], 0);
}

/* ---- sizes that change ---- */

static aril_tensor *mean_token(aril_module *self, aril_tensor *x)
{
    aril_tensor *h = aril_forward(aril_module_child(self, 0), x); /* [N,T,8] */
    return aril_forward(aril_module_child(self, 1), aril_mean(h, ARIL_AXES(1)));
}

TEST(sizes_that_keep_changing_become_unknown)
{
    double loss[2];
    for (int eager = 0; eager < 2; eager++) {
        ARIL_SCOPE;
        aril_seed(2);
        aril_module *net = aril_module_new("Bag", 0, mean_token);
        aril_module_add(net, "embed", aril_nn_embedding(11, 8));
        aril_module_add(net, "out", aril_nn_linear(8, C));
        aril_model *m = aril_model_new(net, ARIL_SHAPE());
        aril_model_compile(m, (aril_model_opts){ .loss = "cross_entropy",
                                                 .optimizer =
                                                     aril_sgd(NULL, (aril_sgd_opts){ .lr = 0.1 }),
                                                 .eager = eager });
        for (int64_t i = 0; i < 30; i++) {
            aril_generator *g = aril_generator_new((uint64_t)i);
            aril_tensor *x =
                aril_randint_from(g, 0, 11, ARIL_SHAPE(4 + i % 2, 3 + i), ARIL_I64, aril_cpu());
            aril_tensor *y =
                aril_randint_from(g, 0, C, ARIL_SHAPE(4 + i % 2), ARIL_I64, aril_cpu());
            aril_generator_free(g);
            loss[eager] = aril_model_train_on_batch(m, x, y, NULL);
        }
        CHECK_MSG(aril_ok(), "%s", aril_error());
        if (!eager) {
            CHECK_MSG(!aril_model_eager_reason(m), "%s", aril_model_eager_reason(m));
            CHECK_INT(aril__model_traces(m, ARIL__TRAIN_STEP), 1);
        }
        aril_model_free(m);
    }
    CHECK_NEAR(loss[0], loss[1], 0);
}

/* ---- what cannot be traced ---- */

static aril_tensor *reads_forward(aril_module *self, aril_tensor *x)
{
    aril_tensor *y = aril_forward(aril_module_child(self, 0), x);
    return aril_item(aril_sum(y, ARIL_ALL)) > 0 ? y : aril_mul_scalar(y, 0.5);
}

typedef struct counter {
    int calls;
} counter;

static aril_tensor *counts_forward(aril_module *self, aril_tensor *x)
{
    counter *c = aril_module_data(self);
    aril_tensor *y = aril_forward(aril_module_child(self, 0), x);
    return aril_mul_scalar(y, 1.0 / ++c->calls);
}

static void no_hook(aril_module *m, int n_in, aril_tensor *const *in, int n_out, aril_tensor **out,
                    void *ctx)
{
    (void)m, (void)n_in, (void)in, (void)n_out, (void)out;
    ++*(int *)ctx;
}

static void falls_back(aril_module *net, const char *why, aril_optim *opt, int batch)
{
    ARIL_SCOPE;
    data d = make_data();
    aril_model *m = aril_model_new(net, ARIL_SHAPE(D));
    aril_model_compile(m, (aril_model_opts){ .loss = "cross_entropy", .optimizer = opt });
    aril_history *h =
        aril_model_fit(m, d.x, d.y,
                       (aril_fit_opts){ .batch_size = batch, .epochs = 3, .verbose = ARIL_SILENT });
    CHECK_MSG(h && aril_ok(), "%s: %s", why, aril_error());
    CHECK(h && aril_history_at(h, "loss", -1) < aril_history_at(h, "loss", 0));
    const char *reason = aril_model_eager_reason(m);
    CHECK_MSG(reason && strstr(reason, why), "%s: %s", why, reason ? reason : "compiled");
    CHECK_INT(aril__model_traces(m, ARIL__TRAIN_STEP), 0);
    aril_model_free(m);
}

static aril_module *wrapped(aril_tensor *(*forward)(aril_module *self, aril_tensor *x))
{
    aril_seed(1);
    aril_module *net = aril_module_new("Wrapped", sizeof(counter), forward);
    aril_module_add(net, "inner", aril_nn_linear(D, C));
    return net;
}

static void count_errors(aril_status s, const char *message, void *ctx)
{
    (void)s, (void)message;
    ++*(int *)ctx;
}

TEST(what_cannot_be_traced_runs_as_it_is)
{
    int calls = 0, errors = 0;
    aril_sgd_opts lr = { .lr = 0.1 };
    aril_set_error_handler(count_errors, &errors);
    falls_back(wrapped(reads_forward), "item: a traced function", aril_sgd(NULL, lr), 8);
    falls_back(wrapped(counts_forward), "changed the data of a module", aril_sgd(NULL, lr), 8);
    aril_module *net = net_new();
    aril_module_hook_after(net, no_hook, &calls);
    falls_back(net, "hooks", aril_sgd(NULL, lr), 8);
    CHECK_INT(calls, 1 + 18); /* to build it, and for each batch */
    aril_seed(1);
    falls_back(aril_nn_linear(D, C),
               "several times in a step", /* which needs all samples at once */
               aril_lbfgs(NULL, (aril_lbfgs_opts){ .lr = 0.1 }), 64);
    aril_set_error_handler(NULL, NULL);
    CHECK_INT(errors, 0); /* the failures were only tried */
}

/* A batch that is wrong is the caller's error, and no reason to stop compiling. */
TEST(a_wrong_batch_is_an_error)
{
    ARIL_SCOPE;
    data d = make_data();
    aril_model *m = aril_model_new(net_new(), ARIL_SHAPE(D));
    aril_model_compile(m, (aril_model_opts){ .loss = "cross_entropy",
                                             .optimizer =
                                                 aril_sgd(NULL, (aril_sgd_opts){ .lr = 0.1 }) });
    aril_tensor *x = aril_narrow(d.x, 0, 0, 8), *y = aril_narrow(d.y, 0, 0, 8);
    CHECK(isfinite(aril_model_train_on_batch(m, x, y, NULL)));
    for (int i = 0; i < 2; i++) {
        CHECK(isnan(aril_model_train_on_batch(m, aril_narrow(x, 1, 0, 4), y, NULL)));
        CHECK_MSG(strstr(aril_error(), "linear"), "%s", aril_error());
        aril_clear_error();
    }
    CHECK(isfinite(aril_model_train_on_batch(m, x, y, NULL)));
    CHECK(!aril_model_eager_reason(m));
    CHECK_INT(aril__model_traces(m, ARIL__TRAIN_STEP), 1);
    aril_model_free(m);
}
