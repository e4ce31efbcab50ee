/* The results of a training: the best weights, logs, images, and a short report. */
#ifndef ARIL_CLI_RESULTS_H
#define ARIL_CLI_RESULTS_H

#include "model_file.h"

/* The datasets that a training is evaluated on, as the report names them ("test samples"). */
typedef struct evaluated_on {
    aril_dataset *val, *test; /* test NULL: there is none */
    double held_out;          /* fraction of the training samples used as val */
    bool val_is_test;
} evaluated_on;

/* The model of the best epoch, as a file; lives as long as the fit. */
typedef struct best_model {
    model_file *m;
    char path[4096];
    aril_best_epoch best;
} best_model;

/* Saves the model after each epoch that is the best so far: by the validation value of the first
 * metric that selects (accuracy, mae), otherwise by the loss. b->best says which epoch, also after
 * resuming. */
aril_callback *results_keep_best(best_model *b);

/* The learning rate of a resumed training: the checkpoint's, unless the user asks for another one
 * than it was started with. lr: the one that the user asked for; NAN: none. Prints which one it is
 * unless `quiet`. */
aril_callback *results_choose_lr(double lr, bool quiet);

/* Logs the hyperparameters of the run for TensorBoard. */
aril_callback *results_hparams(const char *folder, model_file *m, const char *optimizer, double lr,
                               int64_t batch);

/* Writes curves, confusion matrix and sample predictions to the folder. The model must have its
 * best weights (results_load_best). */
void results_draw(model_file *m, const aril_history *h, aril_dataset *test, const char *folder,
                  const char *data);

/* Restores the best weights of the model. */
void results_load_best(model_file *m, const char *folder);

/* Prints which epoch was best, how it was selected, its results on a separate test set, and the
 * contents of the folder. */
void results_print(const model_file *m, const aril_best_epoch *best, const evaluated_on *on,
                   const char *folder, bool no_images);

#endif
