/* Fine-tuning by `aril train`: starting from weights, training the head alone. */
#ifndef ARIL_CLI_FINE_TUNE_H
#define ARIL_CLI_FINE_TUNE_H

#include "model_file.h"

/* Whether --weights and --freeze suit a model: false after an error. */
bool fine_tune_check(const char *model, const model_weights *w, const char *freeze);

/* model_open of a model that the command can train. False after an error. */
bool fine_tune_open(model_file *m, const char *name);

/* Has model_create load weights, if there are any. Unless a size was chosen, images are prepared as
 * the zoo tells of the network. */
bool fine_tune_begin(model_file *m, const char *name, const model_weights *w, bool sized);

/* Freezes the backbone, if that is wanted. */
bool fine_tune_freeze(const model_file *m, const char *freeze);

/* Prints where the weights come from, and what is trained. */
void fine_tune_print(const model_file *m, const char *freeze);

#endif
