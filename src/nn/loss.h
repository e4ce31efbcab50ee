/* Losses by name, for training code. */
#ifndef ARIL_NN_LOSS_TABLE_H
#define ARIL_NN_LOSS_TABLE_H

#include "aril/nn_loss.h"

/* What a loss says of itself. */
enum {
    ARIL__LOSS_CLASSES = 1,   /* the target holds class indices */
    ARIL__LOSS_LOGITS = 2,    /* predictions are binary scores around 0, not probabilities */
    ARIL__LOSS_LABELS = 4,    /* each score of [N,C] is a binary prediction of its own */
    ARIL__LOSS_BATCHMEAN = 8, /* supports ARIL_BATCHMEAN */
    /* depends on the difference between prediction and target: aril_nn_loss_is_difference */
    ARIL__LOSS_DIFFERENCE = 16,
};

typedef struct aril__loss {
    const char *name; /* "cross_entropy" */
    const char *also; /* another name; NULL: none */
    const char *type; /* "CrossEntropyLoss" */
    int inputs;       /* number of inputs; 2: a prediction and its target */
    unsigned is;      /* mask of the above */
    unsigned takes;   /* mask of the options it supports */
    aril_tensor *(*run)(aril_tensor *const *in, const aril_nn_loss_opts *opts);
} aril__loss;

/* The loss with that name; NULL, with an error that suggests the closest name. */
const aril__loss *aril__loss_find(const char *name);

/* ARIL_OK when the loss supports all options that are set; otherwise the error names the first
 * unsupported one. */
aril_status aril__loss_check(const aril__loss *loss, const aril_nn_loss_opts *opts);

/* One value per sample, regardless of the reduction option: [N]. When the loss has several elements
 * per sample, they are averaged. Used for sample weights. */
aril_tensor *aril__loss_per_sample(const aril__loss *loss, aril_tensor *const *in,
                                   const aril_nn_loss_opts *opts);

#endif
