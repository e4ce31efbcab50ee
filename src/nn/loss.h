/* Losses by name, for training code. */
#ifndef ARIL_NN_LOSS_TABLE_H
#define ARIL_NN_LOSS_TABLE_H

#include "aril/nn_loss.h"

typedef struct aril__loss {
    const char *name; /* "cross_entropy" */
    const char *type; /* "CrossEntropyLoss" */
    int inputs;       /* how many it takes; 2: a prediction and its target */
    bool classes;     /* the target is made of class indices */
    unsigned takes;   /* the options it knows, a mask */
    aril_tensor *(*run)(aril_tensor *const *in, const aril_nn_loss_opts *opts);
} aril__loss;

/* The loss of that name; NULL, with an error that names what was probably meant. */
const aril__loss *aril__loss_find(const char *name);

/* ARIL_OK when the loss knows all options that are set; else an error names the first it does
 * not. */
aril_status aril__loss_check(const aril__loss *loss, const aril_nn_loss_opts *opts);

/* One value for each sample, whatever the reduction says: [N]. Elements of a sample, where the loss
 * gives several, are averaged. For sample weights. */
aril_tensor *aril__loss_per_sample(const aril__loss *loss, aril_tensor *const *in,
                                   const aril_nn_loss_opts *opts);

#endif
