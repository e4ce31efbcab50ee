/* The program of a network: calls of its layers, and changes of order between them. */
#ifndef ARIL_MODELS_KERAS_MODEL_H
#define ARIL_MODELS_KERAS_MODEL_H

#include "models/keras/keras.h"

typedef enum keras_action {
    KERAS_CALL,
    KERAS_PERMUTE,
    KERAS_UNFLATTEN, /* axis 1 into `shape` */
    KERAS_FLAT,      /* axes 1 to the last into one */
} keras_action;

typedef struct keras_step {
    keras_action action;
    aril_module *module;    /* KERAS_CALL: a child */
    aril_module *activates; /* a child that follows it, fused into it unless there are hooks */
    aril_activation activation;
    aril_axes axes;
    aril_shape shape;
    int n_in, n_out;
    int *in, *out; /* values; -1: an input that is omitted */
} keras_step;

typedef struct keras_program {
    keras_step *step;
    int n_steps, cap_steps;
    int n_values;
    int *in, *out; /* values; the inputs are the first ones */
    int n_in, n_out;
    int *last;         /* of each value: the step after which it is not needed; -1: it stays */
    char **name;       /* of inputs, for messages */
    aril_shape *shape; /* of inputs; -1: any size */
} keras_program;

/* A module that runs a program, which it takes over by aril__keras_program. */
aril_module *aril__keras_network(const char *name);
keras_program *aril__keras_program(aril_module *m);
/* Fuses steps and notes what is used last, once the program is complete. */
aril_status aril__keras_finish(aril_module *m);

#endif
