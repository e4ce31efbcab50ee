/* What a training leaves behind: the best weights, logs, pictures, and a few lines for the person
 * who waited. */
#ifndef ARIL_CLI_RESULTS_H
#define ARIL_CLI_RESULTS_H

#include "model_file.h"

/* Saves the model after each epoch that tests best so far. */
aril_callback *results_keep_best(model_file *m, const char *path);

/* Says in the logs for TensorBoard what the run was made with. */
aril_callback *results_hparams(const char *folder, model_file *m, const char *optimizer, double lr,
                               int64_t batch);

/* Curves, confusion matrix and a sheet of predictions, in the folder. The model gets its best
 * weights back. */
void results_draw(model_file *m, const aril_history *h, aril_dataset *test, const char *folder,
                  const char *data, bool classes);

void results_tell(const model_file *m, const aril_history *h, const char *folder, bool classes,
                  bool no_pictures);

#endif
