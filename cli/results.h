/* What a training leaves behind: the best weights, logs, images, and a few lines for the person
 * who waited. */
#ifndef ARIL_CLI_RESULTS_H
#define ARIL_CLI_RESULTS_H

#include "model_file.h"

/* The best epoch so far: which one (from 0; -1: none is good), what was watched, its value there. */
typedef struct best_epoch {
    int epoch;
    double value;
    char name[64];
} best_epoch;

/* What a training is measured on, for a person: "test samples" and the like. */
typedef struct measured_on {
    aril_dataset *val, *test; /* test NULL: there is none */
    double kept;              /* the share of the training samples that val is */
    bool by_test;             /* val is the part called test */
} measured_on;

/* Saves the model after each epoch that is the best so far; *best says which that is, also after a
 * resumed training. Where `lr` is a number, it is the learning rate that was asked for: a resumed
 * training that had another one goes on with this; NAN: with what it had. Tells which unless
 * `quiet`. */
aril_callback *results_keep_best(model_file *m, const char *path, double lr, bool quiet,
                                 best_epoch *best);

/* Says in the logs for TensorBoard what the run was made with. */
aril_callback *results_hparams(const char *folder, model_file *m, const char *optimizer, double lr,
                               int64_t batch);

/* Curves, confusion matrix and a sheet of predictions, in the folder. The model has its best weights
 * (results_load_best). */
void results_draw(model_file *m, const aril_history *h, aril_dataset *test, const char *folder,
                  const char *data);

/* Gives the model its best weights back. */
void results_load_best(model_file *m, const char *folder);

/* Which epoch was best, by what it was chosen, how it does on a test set of its own, and what lies
 * in the folder. */
void results_tell(const model_file *m, const best_epoch *best, const measured_on *on,
                  const char *folder, bool no_images);

#endif
