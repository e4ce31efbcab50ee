/* What the networks of Inception blocks share: convolutions, and auxiliary classifiers. */
#ifndef ARIL_MODELS_INCEPTION_H
#define ARIL_MODELS_INCEPTION_H

#include "models/build.h"

/* A convolution, batch norm and ReLU: children conv, bn, relu. The kernel is in opts. */
aril_module *aril__inception_conv(int64_t in, int64_t out, aril_nn_conv_opts opts);

/* A module that runs its children one after the other, as Sequential does, and has 1 or 2 `heads`:
 * auxiliary classifiers, which give more results, in training and where they are asked for. */
enum { ARIL__MAX_HEADS = 2 };
aril_module *aril__with_auxiliary(int heads);
/* Head `head` reads what the latest child gives. Nothing in modules of another kind. Returns m. */
aril_module *aril__auxiliary_after(aril_module *m, int head);
/* Adds the head: a child that is not one of the sequence. */
aril_module *aril__with_head(aril_module *m, const char *name, int head, aril_module *child);

#endif
