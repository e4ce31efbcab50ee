/* Callbacks: what else happens during a fit.
 *
 *     aril_model_fit(model, x, y, (aril_fit_opts){ .epochs = 100, .validation = { xv, yv },
 *         .callbacks = ARIL_CALLBACKS(
 *             aril_early_stop((aril_early_stop_opts){ .patience = 5, .restore_best = true }),
 *             aril_csv_log("log.csv"), aril_save_best("best.safetensors", (aril_monitor){ 0 })) });
 *
 * A fit takes its callbacks over and frees them when it ends. They are called in their order. What
 * they remember by aril_callback_set is kept in checkpoints, so that a resumed fit goes on as if it
 * had never stopped. */
#ifndef ARIL_CALLBACKS_H
#define ARIL_CALLBACKS_H

#include "aril/named.h"
#include "aril/optim.h"

ARIL_C_BEGIN

typedef struct aril_model aril_model;
typedef struct aril_callback aril_callback;

/* Some callbacks: ARIL_CALLBACKS(a, b). Counted rather than ended by NULL, so that one that could
 * not be made is noticed. */
#define ARIL_MAX_CALLBACKS 24
typedef struct aril_callback_list {
    int n;
    aril_callback *at[ARIL_MAX_CALLBACKS];
} aril_callback_list;
typedef struct aril_fit aril_fit; /* a running fit, as callbacks see it */

/* ---- the ones in the box; NULL, with an error, when memory is out ---- */

/* A value to watch. */
typedef struct aril_monitor {
    const char *name; /* NULL: "val_loss", or "loss" without validation */
    bool largest;     /* more is better. Without either, losses and metrics say which */
    bool smallest;    /* less is better; one of the two at most */
    double min_delta; /* smaller changes for the better do not count */
} aril_monitor;

/* Stops when the value has not become better for `patience` epochs. */
typedef struct aril_early_stop_opts {
    aril_monitor monitor;
    int patience;      /* 0: stops at the first epoch that is no better */
    bool restore_best; /* the weights of the best epoch are put back at the end */
    bool verbose;      /* says so on stdout */
} aril_early_stop_opts;
ARIL_API aril_callback *aril_early_stop(aril_early_stop_opts opts);

/* Saves the weights (safetensors) after each epoch that is the best so far; after every n-th epoch
 * (0: 1) and at the end. "{epoch}" in the path becomes the epoch's number, from 1. Folders that
 * are missing are made. */
ARIL_API aril_callback *aril_save_best(const char *path, aril_monitor monitor);
ARIL_API aril_callback *aril_save_last(const char *path, int every);

/* The learning rate of each epoch by a function of the epoch (from 0) and of the rate so far. */
typedef double aril_lr_fn(int epoch, double lr, void *ctx);
ARIL_API aril_callback *aril_lr_callback(aril_lr_fn *fn, void *ctx);

/* Writes a line of comma-separated values after each epoch; a resumed fit goes on with the file. */
ARIL_API aril_callback *aril_csv_log(const char *path);

/* Ends the fit when the loss of a batch, or val_loss, is not finite, and says so below the progress.
 * aril_history_diverged tells; that epoch is then the best of no callback that comes after this one,
 * and no checkpoint is written. Looks at every batch's loss, for which a device has to be waited
 * for. */
ARIL_API aril_callback *aril_stop_on_nan(void);

/* Logs for TensorBoard: each column of the history after each epoch, in DIR/train and DIR/val, so
 * that its page shows both in one chart; and what the options ask for. */
typedef struct aril_tensorboard_opts {
    /* loss and rate also after so many batches, as batch_loss and batch_lr; 0: not */
    int64_t every_batches;
    int histograms_every; /* the parameters, as "parameters/NAME", after so many epochs; 0: not */
    bool graph; /* the module's graph, by one run on zeros in f32 of the model's input shape */
} aril_tensorboard_opts;
ARIL_API aril_callback *aril_tensorboard_log(const char *dir, aril_tensorboard_opts opts);

/* Calls fn after each epoch, or after each batch. A negative result ends the fit as failed. */
typedef aril_status aril_callback_fn(aril_fit *fit, void *ctx);
ARIL_API aril_callback *aril_on_epoch(aril_callback_fn *fn, void *ctx);
ARIL_API aril_callback *aril_on_batch(aril_callback_fn *fn, void *ctx);

/* ---- your own ---- */

/* A kind of callback; it must outlive its callbacks. Each function may be NULL, and ends the fit as
 * failed when it gives a negative status. */
typedef struct aril_callback_class {
    const char *name; /* tells its state apart in checkpoints */
    size_t size;      /* bytes of data of its own, zeros at the start: aril_callback_data */
    aril_status (*begin)(aril_callback *cb,
                         aril_fit *fit); /* after a resumed fit's state was loaded */
    aril_status (*epoch_begin)(aril_callback *cb, aril_fit *fit);
    aril_status (*batch_end)(aril_callback *cb, aril_fit *fit);
    aril_status (*epoch_end)(aril_callback *cb, aril_fit *fit); /* after validation */
    aril_status (*end)(aril_callback *cb, aril_fit *fit);       /* not after a failure */
    void (*destroy)(aril_callback *cb);
} aril_callback_class;
/* A callback of a class, or NULL with an error; and its own data, `size` bytes. */
ARIL_API aril_callback *aril_callback_make(const aril_callback_class *type);
ARIL_API void *aril_callback_data(aril_callback *cb);
/* For one that no fit has taken over. */
ARIL_API void aril_callback_free(aril_callback *cb);

/* A tensor that the callback remembers, and that checkpoints keep: NULL where it was not set. */
ARIL_API aril_tensor *aril_callback_get(aril_callback *cb, const char *name);
ARIL_API aril_status aril_callback_set(aril_callback *cb, const char *name, aril_tensor *value);

/* ---- what a callback can ask ---- */

/* The model that is being trained. */
ARIL_API aril_model *aril_fit_model(const aril_fit *fit);
/* The epoch, from 0, and how many there are. */
ARIL_API int aril_fit_epoch(const aril_fit *fit);
ARIL_API int aril_fit_epochs(const aril_fit *fit);
/* Batches done in this epoch, batches in an epoch (0: not known), batches done since the very
 * start. */
ARIL_API int64_t aril_fit_batch(const aril_fit *fit);
ARIL_API int64_t aril_fit_batches(const aril_fit *fit);
ARIL_API int64_t aril_fit_step(const aril_fit *fit);
/* True when this fit went on from a checkpoint. */
ARIL_API bool aril_fit_resumed(const aril_fit *fit);

/* "loss" or a metric over the epoch so far, "val_..." once it was measured in this epoch, "lr",
 * "batch_loss". NaN for what is not there. */
ARIL_API double aril_fit_value(const aril_fit *fit, const char *name);
/* The names of all columns of the history, ended by NULL. */
ARIL_API const char *const *aril_fit_names(const aril_fit *fit);

/* Ends the fit after this batch or epoch. */
ARIL_API void aril_fit_stop(aril_fit *fit);

ARIL_C_END

/* Callbacks for aril_fit_opts. NULL among them, one that could not be made, ends the fit before it
 * begins. */
#ifdef __cplusplus
template <class... C> inline aril_callback_list aril__make_callbacks(C... c)
{
    static_assert(sizeof...(c) <= ARIL_MAX_CALLBACKS, "at most ARIL_MAX_CALLBACKS callbacks");
    return { int(sizeof...(c)), { c... } };
}
#define ARIL_CALLBACKS(...) aril__make_callbacks(__VA_ARGS__)
#else
#define ARIL_CALLBACKS(...)                                                          \
    ((aril_callback_list){                                                           \
        (int)(sizeof((aril_callback *[]){ __VA_ARGS__ }) / sizeof(aril_callback *)), \
        { __VA_ARGS__ } })
#endif

#endif
