/* Logs for TensorBoard: event files that its page shows, written without any part of it.
 *
 *     aril_tensorboard *tb = aril_tensorboard_new("logs/run1");
 *     for (...) aril_tensorboard_scalar(tb, "loss/train", loss, step);
 *     aril_tensorboard_free(tb);                    then: tensorboard --logdir logs
 *
 * A tag with slashes is shown in groups. A writer belongs to one thread at a time. What was logged
 * is in the file about a second later, and all of it after aril_tensorboard_flush or _free.
 * Functions return ARIL_OK or a negative status, and take NULL for a log that could not be made. */
#ifndef ARIL_TENSORBOARD_H
#define ARIL_TENSORBOARD_H

#include "aril/module.h"

ARIL_C_BEGIN

typedef struct aril_tensorboard aril_tensorboard;

/* Starts a new event file in `folder`, which is made with all above it where it is missing. NULL,
 * with an error, when that fails. */
ARIL_API aril_tensorboard *aril_tensorboard_new(const char *folder);

/* Writes what is waiting, to the disk. */
ARIL_API aril_status aril_tensorboard_flush(aril_tensorboard *tb);

/* Flushes, closes the file and frees the writer; a failure to write is this thread's error. */
ARIL_API void aril_tensorboard_free(aril_tensorboard *tb);

/* One number. */
ARIL_API aril_status aril_tensorboard_scalar(aril_tensorboard *tb, const char *tag, double value,
                                             int64_t step);

/* How the finite elements of a tensor of any shape are spread. */
ARIL_API aril_status aril_tensorboard_histogram(aril_tensorboard *tb, const char *tag,
                                                aril_tensor *values, int64_t step);

/* An image [C,H,W] or [H,W], C 1, 3 or 4: u8, or floats that are held between 0 and 1. A batch
 * [N,C,H,W] becomes a sheet. */
ARIL_API aril_status aril_tensorboard_image(aril_tensorboard *tb, const char *tag,
                                            aril_tensor *image, int64_t step);

/* A text, shown as Markdown. */
ARIL_API aril_status aril_tensorboard_text(aril_tensorboard *tb, const char *tag, const char *text,
                                           int64_t step);

/* Precision over recall: labels [N] (0 or 1) and scores [N] between 0 and 1, at `thresholds` values
 * (0: 127). */
ARIL_API aril_status aril_tensorboard_pr_curve(aril_tensorboard *tb, const char *tag,
                                               aril_tensor *labels, aril_tensor *scores,
                                               int thresholds, int64_t step);

typedef struct aril_tensorboard_embedding_opts {
    const char *const *labels; /* NULL, or a text for each point */
    aril_tensor *images;       /* NULL, or [N,C,H,W]: an image for each point */
} aril_tensorboard_embedding_opts;

/* Points [N,D] for the projector, in files beside the events. */
ARIL_API aril_status aril_tensorboard_embedding(aril_tensorboard *tb, const char *tag,
                                                aril_tensor *points,
                                                aril_tensorboard_embedding_opts opts);

/* One hyper-parameter of a run: a text, or a number. */
typedef struct aril_hparam {
    const char *name;
    const char *text; /* NULL: `number` counts */
    double number;
} aril_hparam;

/* What the run was made with, and the tags of the scalars that tell how good it was. Once for a
 * run. */
ARIL_API aril_status aril_tensorboard_hparams(aril_tensorboard *tb, const aril_hparam *hparams,
                                              int n, const char *const *metrics, int n_metrics);
/* Says that the run has ended; well, or with an error. */
ARIL_API aril_status aril_tensorboard_hparams_end(aril_tensorboard *tb, bool well);

/* One node of a graph. */
typedef struct aril_tensorboard_node {
    const char *name; /* "layer1/conv": slashes make groups */
    const char *op;   /* "Conv2d" */
    int n_inputs;
    const char *const *input; /* names of nodes */
    aril_shape shape;         /* of its result; -1 where a size is not known */
    const char *text;         /* NULL, or more about it */
} aril_tensorboard_node;

/* A graph of such nodes. Once for a run. */
ARIL_API aril_status aril_tensorboard_graph(aril_tensorboard *tb, const aril_tensorboard_node *node,
                                            int n);

/* The graph of a module: every operation of one run in evaluation mode on a sample of shape x, in
 * groups by the modules that made them. Parameters are made where their sizes were not known;
 * nothing else changes. */
ARIL_API aril_status aril_tensorboard_module(aril_tensorboard *tb, aril_module *m, aril_shape x);

ARIL_C_END

#endif
