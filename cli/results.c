#include "results.h"

#include "commands.h"

#include <aril/draw.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the best weights ---- */

typedef struct keeper {
    model_file *m;
    char path[4096];
    double lr;
    bool quiet;
    best_epoch *best;
} keeper;

/* The monitored value: validation accuracy, else validation mean absolute error, else validation
 * loss; *more says whether larger is better. */
static const char *watched(const char *const *names, bool *more)
{
    const char *found = "val_loss";
    *more = false;
    for (; *names; names++) {
        if (strcmp(*names, "val_accuracy") == 0) return *more = true, *names;
        if (strcmp(*names, "val_mae") == 0) found = *names;
    }
    return found;
}

static aril_status remember(aril_callback *cb, const char *name, double value)
{
    return aril_callback_set(cb, name, aril_full(ARIL_SHAPE(), value, ARIL_F64, aril_cpu()));
}

static double remembered(aril_callback *cb, const char *name)
{
    aril_tensor *t = aril_callback_get(cb, name);
    return t ? aril_item(t) : (double)NAN;
}

/* A resumed training keeps the checkpoint's learning rate, unless the user asks for another one
 * than it was started with. */
static aril_status choose_rate(aril_callback *cb, aril_fit *fit)
{
    const keeper *k = aril_callback_data(cb);
    aril_optim *opt = aril_model_optim(aril_fit_model(fit));
    double had = remembered(cb, "lr"), rate = aril_item(aril_optim_lr(opt));
    bool other = aril_fit_resumed(fit) && !isnan(k->lr) && !isnan(had) && k->lr != had;
    aril_status s = ARIL_OK;
    if (other) s = aril_optim_set_lr(opt, k->lr);
    if (aril_fit_resumed(fit) && !k->quiet && s == ARIL_OK) {
        printf("resumed in epoch %d, learning rate %g: ", aril_fit_epoch(fit) + 1,
               aril_item(aril_optim_lr(opt)));
        if (other)
            printf("by --lr; the checkpoint had %g\n", rate);
        else
            printf("the checkpoint's\n");
        fflush(stdout);
    }
    if (other || isnan(had)) s = remember(cb, "lr", other || !isnan(k->lr) ? k->lr : rate);
    return s;
}

static aril_status keep_begin(aril_callback *cb, aril_fit *fit)
{
    ARIL_SCOPE;
    const keeper *k = aril_callback_data(cb);
    bool more;
    double epoch = remembered(cb, "epoch");
    *k->best =
        (best_epoch){ .epoch = isnan(epoch) ? -1 : (int)epoch, .value = remembered(cb, "best") };
    snprintf(k->best->name, sizeof k->best->name, "%s", watched(aril_fit_names(fit), &more));
    return choose_rate(cb, fit);
}

static aril_status keep_if_best(aril_callback *cb, aril_fit *fit)
{
    ARIL_SCOPE;
    const keeper *k = aril_callback_data(cb);
    bool more;
    double value = aril_fit_value(fit, watched(aril_fit_names(fit), &more)), held = k->best->value;
    /* NaN weights may still have an accuracy: that of the first class. */
    bool good = isfinite(value) && isfinite(aril_fit_value(fit, "loss")) &&
                isfinite(aril_fit_value(fit, "val_loss"));
    if (!good || (!isnan(held) && !(more ? value > held : value < held))) return ARIL_OK;
    aril_status s = model_save(k->m, k->path);
    if (s == ARIL_OK) s = remember(cb, "best", value);
    if (s == ARIL_OK) s = remember(cb, "epoch", aril_fit_epoch(fit));
    k->best->epoch = aril_fit_epoch(fit);
    k->best->value = value;
    return s;
}

aril_callback *results_keep_best(model_file *m, const char *path, double lr, bool quiet,
                                 best_epoch *best)
{
    static const aril_callback_class type = {
        .name = "keep_best", .size = sizeof(keeper), .begin = keep_begin, .epoch_end = keep_if_best
    };
    aril_callback *cb = aril_callback_make(&type);
    if (!cb) return NULL;
    keeper *k = aril_callback_data(cb);
    *k = (keeper){ .m = m, .lr = lr, .quiet = quiet, .best = best };
    snprintf(k->path, sizeof k->path, "%s", path);
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
    static const char *const metrics[] = { "loss", "accuracy" };
    aril_status s = aril_tensorboard_hparams(l->tb, hparams, 4, metrics, l->m->regression ? 1 : 2);
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
        aril_transform *normalise = model_normalise(m);
        if (normalise) aril_transform_batch(normalise, &b, NULL);
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
        aril_transform_free(normalise);
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
                        (aril_loader_opts){ .batch = 256, .batch_transform = model_normalise(m) });
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
    aril_load_weights(m->net, path, (aril_load_state_opts){ 0 });
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
static void tell_test(const model_file *m, aril_dataset *test)
{
    aril_model *model = aril_model_new(aril_module_keep(m->scaled), m->input);
    aril_loader *l =
        aril_loader_new(aril_dataset_keep(test),
                        (aril_loader_opts){ .batch = 256, .batch_transform = model_normalise(m) });
    model_compile(m, model, NULL, NULL, (aril_model_opts){ 0 });
    double loss = aril_model_evaluate_loader(model, l, (aril_eval_opts){ .verbose = ARIL_SILENT });
    if (aril_ok()) {
        char names[512], text[1024] = "test:", *rest = NULL;
        snprintf(names, sizeof names, "%s", model_metrics(m, NULL));
        add_value(text, sizeof text, "loss", loss);
        for (char *name = strtok_r(names, ", ", &rest); name; name = strtok_r(NULL, ", ", &rest))
            add_value(text, sizeof text, name, aril_model_value(model, name));
        size_t n = strlen(text);
        snprintf(text + n, sizeof text - n, " on the %lld test samples",
                 (long long)aril_dataset_size(test));
        print_wrapped(stdout, text, 6);
    }
    aril_loader_free(l);
    aril_model_free(model);
}

static void tell_best(const best_epoch *best, const measured_on *on)
{
    char text[512];
    long long n = aril_dataset_size(on->val);
    snprintf(text, sizeof text, "best: epoch %d,", best->epoch + 1);
    add_value(text, sizeof text, best->name + 4, best->value);
    size_t used = strlen(text);
    if (on->by_test)
        snprintf(text + used, sizeof text - used,
                 " on the test samples, by which it was chosen: new data may do worse "
                 "(--validation-split 0.1 chooses by training samples)");
    else
        snprintf(text + used, sizeof text - used, " on the %lld samples %s, by which it was chosen",
                 n, on->kept > 0 ? "held out" : "of val");
    print_wrapped(stdout, text, 6);
}

static void tell_file(const char *name, const char *what)
{
    char line[256];
    snprintf(line, sizeof line, "  %-18s  %s", name, what);
    print_wrapped(stdout, line, 22);
}

void results_tell(const model_file *m, const best_epoch *best, const measured_on *on,
                  const char *folder, bool no_images)
{
    char text[96];
    printf("\n");
    tell_best(best, on);
    if (on->test && !on->by_test) tell_test(m, on->test);
    printf("%s/\n", folder);
    snprintf(text, sizeof text, "the network of that epoch, %lld parameters",
             (long long)aril_parameter_count(m->net));
    tell_file("model.safetensors", text);
    tell_file("history.csv", "figures of each epoch");
    if (no_images) return;
    tell_file("curves.svg, .png", "the same, drawn");
    if (m->regression) return;
    if (m->classes <= 200) tell_file("confusion.png", "which classes are taken for which");
    if (m->input.ndim == 3) tell_file("predictions.png", "what it says of the first test images");
}
