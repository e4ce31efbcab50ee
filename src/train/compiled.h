/* Compiled steps of a model: one batch of training, of evaluation and of prediction as programs. */
#ifndef ARIL_TRAIN_COMPILED_H
#define ARIL_TRAIN_COMPILED_H

#include "train/model.h"

typedef enum aril__step_kind {
    ARIL__TRAIN_STEP,   /* forward, loss, backward and, with `update`, the optimizer's step */
    ARIL__MEASURE_STEP, /* forward and loss */
    ARIL__PREDICT_STEP, /* forward */
    ARIL__STEP_KINDS
} aril__step_kind;

/* What a step does besides reading its batch. */
typedef struct aril__step_plan {
    int n_out;                 /* outputs of the module */
    bool update;               /* whether the optimizer steps */
    double share;              /* of the gradient in an update: 1 / accumulated batches */
    aril_tensor *class_weight; /* or NULL */
} aril__step_plan;

/* Runs a step on a batch. */
aril_status aril__model_step(aril_model *m, aril__step_kind kind, const aril_batch *b,
                             aril__step_plan plan, aril__results *r);

/* Drops the programs: before what they refer to ends. */
void aril__model_drop_programs(aril_model *m);
/* Steps that could not be traced are tried again. */
void aril__model_try_again(aril_model *m);

/* How often steps of a kind were traced. */
int aril__model_traces(const aril_model *m, aril__step_kind kind);

#endif
