/* The files of a checkpoint. resume.c defines which state of a fit goes into them. */
#ifndef ARIL_TRAIN_CHECKPOINT_H
#define ARIL_TRAIN_CHECKPOINT_H

#include "aril/checkpoint.h"
#include "aril/formats.h"
#include "train/states.h"

/* A checkpoint in memory: its weights, and its state by name:
 *     optimizer/NAME     gradient/NAME     rng [2]     loader [3]     extra/NAME     fit/... */
typedef struct aril__checkpoint {
    aril_safetensors *weights;
    aril__states state;
    int64_t step;
    char optimizer[32]; /* its name; "": none */
} aril__checkpoint;

/* Adds the state of model, optimizer and loader (which may be NULL) to `state`, and writes both
 * files. */
aril_status aril__checkpoint_write(const char *dir, aril_module *model, aril_optim *opt,
                                   aril_loader *loader, aril__states *state, int64_t step);

/* Reads and checks both files. */
aril_status aril__checkpoint_open(const char *dir, aril__checkpoint *c);
void aril__checkpoint_close(aril__checkpoint *c);

/* Restores model, optimizer, loader (which may be NULL) and the thread's random generator; on
 * failure none of them has changed. */
aril_status aril__checkpoint_apply(const char *dir, aril__checkpoint *c, aril_module *model,
                                   aril_optim *opt, aril_loader *loader);

#endif
