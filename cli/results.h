/* The results of a training: the best weights, logs, images, and a short report. */
#ifndef ARIL_CLI_RESULTS_H
#define ARIL_CLI_RESULTS_H

#include "model_file.h"

/* The best epoch so far: its index (from 0; -1: no good one), its value, the monitored metric. */
typedef struct best_epoch {
    int epoch;
    double value;
    char name[64];
} best_epoch;

/* The datasets that a training is evaluated on, as the report names them ("test samples"). */
typedef struct measured_on {
    aril_dataset *val, *test; /* test NULL: there is none */
    double kept;              /* fraction of the training samples used as val */
    bool by_test;             /* val is the test split */
} measured_on;

/* Saves the model after each epoch that is the best so far; *best says which, also after resuming.
 * If `lr` is a number, it is the learning rate that the user asked for: a resumed training that had
 * another one continues with it; NAN: with its own. Prints which epoch is best unless `quiet`. */
aril_callback *results_keep_best(model_file *m, const char *path, double lr, bool quiet,
                                 best_epoch *best);

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
void results_tell(const model_file *m, const best_epoch *best, const measured_on *on,
                  const char *folder, bool no_images);

#endif
