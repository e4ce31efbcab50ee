#include "results.h"

#include "commands.h"

#include <aril/draw.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the best weights ---- */

static aril_status save_best(aril_fit *fit, void *ctx)
{
    const best_model *b = ctx;
    (void)fit;
    return model_save(b->m, b->path);
}

/* The column that selects the best epoch. */
static void monitored(const char *metrics, char *column, size_t size)
{
    bool found = false;
    snprintf(column, size, "val_loss");
    for (aril_metric *m; !found && (m = next_metric(&metrics)); aril_metric_free(m)) {
        found = aril_metric_selects_best(m);
        if (found) snprintf(column, size, "val_%s", aril_metric_label(m));
    }
}

aril_callback *results_keep_best(best_model *b)
{
    char column[128];
    monitored(model_metrics(b->m, NULL), column, sizeof column);
    aril_keep_best_opts opts = {
        .monitor = { .name = column }, .save = save_best, .ctx = b, .best = &b->best
    };
    return aril_keep_best(opts);
}

/* ---- the learning rate of a resumed training ---- */

typedef struct chosen_lr {
    double lr; /* NAN: none was asked for */
    bool quiet;
} chosen_lr;

static aril_status choose_lr(aril_callback *cb, aril_fit *fit)
{
    ARIL_SCOPE;
    const chosen_lr *c = aril_callback_data(cb);
    aril_optim *opt = aril_model_optim(aril_fit_model(fit));
    aril_tensor *state = aril_callback_get(cb, "lr");
    double had = state ? aril_item(state) : (double)NAN, lr = aril_item(aril_optim_lr(opt));
    bool other = aril_fit_resumed(fit) && !isnan(c->lr) && !isnan(had) && c->lr != had;
    aril_status s = ARIL_OK;
    if (other) s = aril_optim_set_lr(opt, c->lr);
    if (aril_fit_resumed(fit) && !c->quiet && s == ARIL_OK) {
        printf("resumed in epoch %d with learning rate %g", aril_fit_epoch(fit) + 1,
               aril_item(aril_optim_lr(opt)));
        if (other)
            printf(" (--lr; the checkpoint had %g)\n", lr);
        else
            printf(" (of the checkpoint)\n");
        fflush(stdout);
    }
    if (s != ARIL_OK || !(other || isnan(had))) return s;
    double asked = other || !isnan(c->lr) ? c->lr : lr;
    return aril_callback_set(cb, "lr", aril_full(ARIL_SHAPE(), asked, ARIL_F64, aril_cpu()));
}

aril_callback *results_choose_lr(double lr, bool quiet)
{
    static const aril_callback_class type = { .name = "choose_lr",
                                              .size = sizeof(chosen_lr),
                                              .begin = choose_lr };
    aril_callback *cb = aril_callback_make(&type);
    if (cb) *(chosen_lr *)aril_callback_data(cb) = (chosen_lr){ .lr = lr, .quiet = quiet };
    return cb;
}

/* ---- TensorBoard ---- */

typedef struct logger {
    aril_tensorboard *tb;
    model_file *m;
    char folder[4096], optimizer[32];
    double lr, batch;
} logger;

static aril_status log_begin(aril_callback *cb, aril_fit *fit)
{
    (void)fit;
    logger *l = aril_callback_data(cb);
    l->tb = aril_tensorboard_new(l->folder);
    if (!l->tb) return aril_error_code();
    const aril_hparam hparams[] = { { .name = "model", .text = l->m->name },
                                    { .name = "optimizer", .text = l->optimizer },
                                    { .name = "lr", .number = l->lr },
                                    { .name = "batch", .number = l->batch } };
    enum { MAX_METRICS = 16 };
    const char *names[1 + MAX_METRICS] = { "loss" }, *list = model_metrics(l->m, NULL);
    aril_metric *metric[MAX_METRICS];
    int n = 0;
    while (n < MAX_METRICS && (metric[n] = next_metric(&list))) {
        names[n + 1] = aril_metric_label(metric[n]);
        n++;
    }
    aril_status s = aril_tensorboard_hparams(l->tb, hparams, 4, names, 1 + n);
    while (n > 0) aril_metric_free(metric[--n]);
    if (s == ARIL_OK) s = aril_tensorboard_text(l->tb, "data", l->m->data, 0);
    return s;
}

static aril_status log_end(aril_callback *cb, aril_fit *fit)
{
    (void)fit;
    logger *l = aril_callback_data(cb);
    return aril_tensorboard_hparams_end(l->tb, true);
}

static void log_destroy(aril_callback *cb)
{
    logger *l = aril_callback_data(cb);
    aril_tensorboard_free(l->tb);
}

aril_callback *results_hparams(const char *folder, model_file *m, const char *optimizer, double lr,
                               int64_t batch)
{
    static const aril_callback_class type = { .name = "hparams",
                                              .size = sizeof(logger),
                                              .begin = log_begin,
                                              .end = log_end,
                                              .destroy = log_destroy };
    aril_callback *cb = aril_callback_make(&type);
    if (!cb) return NULL;
    logger *l = aril_callback_data(cb);
    l->m = m;
    l->lr = lr;
    l->batch = (double)batch;
    snprintf(l->folder, sizeof l->folder, "%s/val", folder); /* where the metrics to compare are */
    snprintf(l->optimizer, sizeof l->optimizer, "%s", optimizer);
    return cb;
}

/* ---- images ---- */

/* The first test images with their predictions. */
static void draw_predictions(const model_file *m, aril_dataset *test, const char *path,
                             const char *title)
{
    enum { SHOWN = 40 };
    ARIL_SCOPE;
    ARIL_INFERENCE;
    aril_batch b;
    aril_loader *raw =
        aril_loader_new(aril_dataset_keep(test), (aril_loader_opts){ .batch = SHOWN });
    aril_module_eval(m->scaled);
    if (raw && aril_loader_next(raw, &b)) {
        aril_caption caption[SHOWN] = { { 0 } };
        char text[SHOWN][96], is[256], says[256];
        aril_tensor *which, *shown = aril_copy(b.x), *labels = aril_copy(b.y);
        aril_transform *normalize = model_normalize(m);
        if (normalize) aril_transform_batch(normalize, &b, NULL);
        aril_tensor *x = aril_to(b.x, aril_device_of(aril_parameters(m->net)->at[0]));
        aril_tensor *best =
            aril_to(aril_max(aril_softmax(aril_forward(m->scaled, x), 1), ARIL_AXES(1), &which),
                    aril_cpu());
        const float *share = aril_data(best);
        const int64_t *said = aril_data(aril_to(which, aril_cpu())),
                      *right = aril_data(aril_cast(labels, ARIL_I64));
        for (int64_t i = 0; share && said && right && i < b.n; i++) {
            caption[i] = (aril_caption){ .text = text[i], .wrong = said[i] != right[i] };
            if (caption[i].wrong)
                snprintf(text[i], sizeof text[i], "%.40s, not %.40s",
                         model_class(m, said[i], says, sizeof says),
                         model_class(m, right[i], is, sizeof is));
            else
                snprintf(text[i], sizeof text[i], "%.60s %.0f %%",
                         model_class(m, said[i], says, sizeof says), 100 * (double)share[i]);
        }
        aril_transform_free(normalize);
        if (aril_ok()) aril_draw_sheet(path, shown, caption, 8, (aril_draw_opts){ .title = title });
    }
    aril_loader_free(raw);
}

static void draw_confusion(const model_file *m, aril_dataset *test, const char *path,
                           const char *title)
{
    ARIL_SCOPE;
    aril_model *model = aril_model_new(aril_module_keep(m->scaled), m->input);
    aril_loader *l =
        aril_loader_new(aril_dataset_keep(test),
                        (aril_loader_opts){ .batch = 256, .batch_transform = model_normalize(m) });
    aril_model_compile(model, (aril_model_opts){ .loss = "cross_entropy", .metrics = "confusion" });
    aril_model_evaluate_loader(model, l, (aril_eval_opts){ .verbose = ARIL_SILENT });
    if (aril_ok())
        aril_draw_confusion(path, aril_metric_table(aril_model_metric(model, "confusion")),
                            (const char *const *)m->class_name, (aril_draw_opts){ .title = title });
    aril_loader_free(l);
    aril_model_free(model);
}

void results_load_best(model_file *m, const char *folder)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    aril_load_weights(m->net, path, (aril_load_weights_opts){ 0 });
}

void results_draw(model_file *m, const aril_history *h, aril_dataset *test, const char *folder,
                  const char *data)
{
    char path[4096], title[256];
    snprintf(path, sizeof path, "%s/curves.svg", folder);
    aril_history_draw(h, path);
    snprintf(path, sizeof path, "%s/curves.png", folder);
    aril_history_draw(h, path);
    if (!aril_ok() || m->regression) return;
    if (m->classes <= 200) {
        snprintf(path, sizeof path, "%s/confusion.png", folder);
        snprintf(title, sizeof title, "%s on %s", m->name, data);
        draw_confusion(m, test, path, title);
    }
    if (m->input.ndim == 3 && aril_dataset_has_images(test)) {
        snprintf(path, sizeof path, "%s/predictions.png", folder);
        snprintf(title, sizeof title, "%s on test images of %s", m->name, data);
        draw_predictions(m, test, path, title);
    }
}

/* ---- console output ---- */

/* Appends " accuracy 0.8912", " mae 6254.38". */
static void add_value(char *text, size_t size, const char *name, double v)
{
    size_t n = strlen(text);
    snprintf(text + n, size - n, fabs(v) < 10 ? " %s %.4f" : " %s %.6g", name, v);
}

/* Tests the best weights on samples that were not used to select them. */
static void print_test(const model_file *m, aril_dataset *test)
{
    aril_model *model = aril_model_new(aril_module_keep(m->scaled), m->input);
    aril_loader *l =
        aril_loader_new(aril_dataset_keep(test),
                        (aril_loader_opts){ .batch = 256, .batch_transform = model_normalize(m) });
    model_compile(m, model, NULL, NULL, (aril_model_opts){ 0 });
    double loss = aril_model_evaluate_loader(model, l, (aril_eval_opts){ .verbose = ARIL_SILENT });
    if (aril_ok()) {
        char text[1024] = "test:";
        const char *list = model_metrics(m, NULL);
        add_value(text, sizeof text, "loss", loss);
        for (aril_metric *k; (k = next_metric(&list)); aril_metric_free(k)) {
            const char *name = aril_metric_label(k);
            add_value(text, sizeof text, name, aril_model_value(model, name));
        }
        size_t n = strlen(text);
        snprintf(text + n, sizeof text - n, " on the %lld test samples",
                 (long long)aril_dataset_size(test));
        print_wrapped(stdout, text, 6);
    }
    aril_loader_free(l);
    aril_model_free(model);
}

static void print_best(const aril_best_epoch *best, const evaluated_on *on)
{
    char text[512];
    long long n = aril_dataset_size(on->val);
    snprintf(text, sizeof text, "best: epoch %d,", best->epoch + 1);
    add_value(text, sizeof text, best->name + 4, best->value);
    size_t used = strlen(text);
    if (on->val_is_test)
        snprintf(text + used, sizeof text - used,
                 " on the test split, which also selected it: expect less on new data "
                 "(--validation-split 0.1 selects on training samples)");
    else
        snprintf(text + used, sizeof text - used, " on the %lld %s samples that selected it", n,
                 on->held_out > 0 ? "held-out" : "validation");
    print_wrapped(stdout, text, 6);
}

static void print_file(const char *name, const char *what)
{
    char line[256];
    snprintf(line, sizeof line, "  %-18s  %s", name, what);
    print_wrapped(stdout, line, 22);
}

void results_print(const model_file *m, const aril_best_epoch *best, const evaluated_on *on,
                   const char *folder, bool no_images)
{
    char text[96];
    printf("\n");
    print_best(best, on);
    if (on->test && !on->val_is_test) print_test(m, on->test);
    printf("%s/\n", folder);
    snprintf(text, sizeof text, "the model of that epoch, %lld parameters",
             (long long)aril_parameter_count(m->net));
    print_file("model.safetensors", text);
    print_file("history.csv", "loss and metrics of each epoch");
    if (no_images) return;
    print_file("curves.svg, .png", "learning curves");
    if (m->regression) return;
    if (m->classes <= 200) print_file("confusion.png", "confusion matrix");
    if (m->input.ndim == 3) print_file("predictions.png", "predictions for the first test images");
}
