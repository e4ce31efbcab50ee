#include "results.h"

#include <aril/draw.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the best weights ---- */

typedef struct keeper {
    model_file *m;
    char path[4096];
} keeper;

/* What is watched: the test's accuracy, else its loss; *more says whether larger is better. */
static const char *watched(const char *const *names, bool *more)
{
    *more = false;
    for (; *names; names++)
        if (strcmp(*names, "val_accuracy") == 0) return *more = true, *names;
    return "val_loss";
}

static aril_status keep_if_best(aril_callback *cb, aril_fit *fit)
{
    ARIL_SCOPE;
    keeper *k = aril_callback_data(cb);
    bool more;
    double value = aril_fit_value(fit, watched(aril_fit_names(fit), &more));
    aril_tensor *best = aril_callback_get(cb, "best");
    double held = best ? aril_item(best) : NAN; /* what is no number is better than nothing only */
    if (!isnan(held) && !(more ? value > held : value < held)) return ARIL_OK;
    aril_status s = model_save(k->m, k->path);
    if (s == ARIL_OK)
        s = aril_callback_set(cb, "best", aril_full(ARIL_SHAPE(), value, ARIL_F64, aril_cpu()));
    return s;
}

aril_callback *results_keep_best(model_file *m, const char *path)
{
    static const aril_callback_class type = { .name = "keep_best",
                                              .size = sizeof(keeper),
                                              .epoch_end = keep_if_best };
    aril_callback *cb = aril_callback_make(&type);
    if (!cb) return NULL;
    keeper *k = aril_callback_data(cb);
    k->m = m;
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
    static const char *const metrics[] = { "accuracy", "loss" };
    aril_status s = aril_tensorboard_hparams(l->tb, hparams, 4, metrics, 2);
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
    snprintf(l->folder, sizeof l->folder, "%s/val", folder); /* where the figures to compare are */
    snprintf(l->optimizer, sizeof l->optimizer, "%s", optimizer);
    return cb;
}

/* ---- pictures ---- */

/* The first test pictures with what the network says of them. */
static void draw_predictions(const model_file *m, aril_dataset *test, const char *path,
                             const char *title)
{
    enum { SHOWN = 40 };
    ARIL_SCOPE;
    ARIL_INFERENCE;
    aril_batch b;
    aril_loader *raw =
        aril_loader_new(aril_dataset_keep(test), (aril_loader_opts){ .batch = SHOWN });
    aril_module_eval(m->net);
    if (raw && aril_loader_next(raw, &b)) {
        aril_caption caption[SHOWN] = { { 0 } };
        char text[SHOWN][96], is[32], says[32];
        aril_tensor *which, *shown = aril_copy(b.x), *labels = aril_copy(b.y);
        aril_transform *normalise = model_normalise(m);
        if (normalise) aril_transform_batch(normalise, &b, NULL);
        aril_tensor *x = aril_to(b.x, aril_device_of(aril_parameters(m->net)->at[0]));
        aril_tensor *best =
            aril_to(aril_max(aril_softmax(aril_forward(m->net, x), 1), ARIL_AXES(1), &which),
                    aril_cpu());
        const float *share = aril_data(best);
        const int64_t *said = aril_data(aril_to(which, aril_cpu())),
                      *right = aril_data(aril_cast(labels, ARIL_I64));
        for (int64_t i = 0; share && said && right && i < b.n; i++) {
            caption[i] = (aril_caption){ .text = text[i], .wrong = said[i] != right[i] };
            if (caption[i].wrong)
                snprintf(text[i], sizeof text[i], "%s, not %s",
                         model_class(m, said[i], says, sizeof says),
                         model_class(m, right[i], is, sizeof is));
            else
                snprintf(text[i], sizeof text[i], "%s %.0f %%",
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
    aril_model *model = aril_model_new(aril_module_keep(m->net), m->input);
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

void results_draw(model_file *m, const aril_history *h, aril_dataset *test, const char *folder,
                  const char *data, bool classes)
{
    char path[4096], title[256];
    snprintf(path, sizeof path, "%s/curves.svg", folder);
    aril_history_draw(h, path);
    snprintf(path, sizeof path, "%s/curves.png", folder);
    aril_history_draw(h, path);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    if (aril_ok()) aril_load_weights(m->net, path, (aril_load_state_opts){ 0 });
    if (!aril_ok() || !classes) return;
    if (m->classes <= 200) {
        snprintf(path, sizeof path, "%s/confusion.png", folder);
        snprintf(title, sizeof title, "%s on %s", m->name, data);
        draw_confusion(m, test, path, title);
    }
    if (m->input.ndim == 3 && aril_dataset_has_pictures(test)) {
        snprintf(path, sizeof path, "%s/predictions.png", folder);
        snprintf(title, sizeof title, "%s on test pictures of %s", m->name, data);
        draw_predictions(m, test, path, title);
    }
}

/* ---- words ---- */

void results_tell(const model_file *m, const aril_history *h, const char *folder, bool classes,
                  bool no_pictures)
{
    const char *name = "val_loss"; /* or what else watched() finds */
    for (int i = 0; i < aril_history_columns(h); i++)
        if (strcmp(aril_history_name(h, i), "val_accuracy") == 0) name = "val_accuracy";
    int best = aril_history_best(h, name);
    printf("\n");
    if (best >= 0)
        printf("best: epoch %d, %s %.4f on the test samples\n", aril_history_epoch(h, best) + 1,
               name + 4, aril_history_at(h, name, best));
    printf("%s/\n  model.safetensors   the network of that epoch, %lld parameters\n  history.csv   "
           "      figures of each epoch\n",
           folder, (long long)aril_parameter_count(m->net));
    if (no_pictures) return;
    printf("  curves.svg, .png    the same, drawn\n");
    if (classes && m->classes <= 200)
        printf("  confusion.png       which classes are taken for which\n");
    if (classes && m->input.ndim == 3)
        printf("  predictions.png     what it says of the first test pictures\n");
}
