/* TensorBoard logging: writes event files without depending on TensorBoard.
 *
 *     aril_tensorboard *tb = aril_tensorboard_new("logs/run1");
 *     for (...) aril_tensorboard_scalar(tb, "loss/train", loss, step);
 *     aril_tensorboard_free(tb);                    then: tensorboard --logdir logs
 *
 * Slashes in a tag create groups. Only one thread may use a writer at a time. Logged data reaches
 * the file within about a second, and all of it after aril_tensorboard_flush or _free. Functions
 * return ARIL_OK or a negative status, and accept NULL for a writer that could not be created. */
#ifndef ARIL_TENSORBOARD_H
#define ARIL_TENSORBOARD_H

#include "aril/module.h"

ARIL_C_BEGIN

typedef struct aril_tensorboard aril_tensorboard;

/* Starts a new event file in `folder`, which is created with its parents if missing. NULL, with an
 * error, on failure. */
ARIL_API aril_tensorboard *aril_tensorboard_new(const char *folder);

/* Flushes pending events to disk. */
ARIL_API aril_status aril_tensorboard_flush(aril_tensorboard *tb);

/* Flushes, closes the file and frees the writer; a write failure is recorded as this thread's
 * error. */
ARIL_API void aril_tensorboard_free(aril_tensorboard *tb);

/* Logs a scalar. */
ARIL_API aril_status aril_tensorboard_scalar(aril_tensorboard *tb, const char *tag, double value,
                                             int64_t step);

/* Logs a histogram of the finite elements of a tensor of any shape. */
ARIL_API aril_status aril_tensorboard_histogram(aril_tensorboard *tb, const char *tag,
                                                aril_tensor *values, int64_t step);

/* Logs an image [C,H,W] or [H,W], C 1, 3 or 4: u8, or floats, clamped to 0..1. A batch [N,C,H,W]
 * becomes an image grid. */
ARIL_API aril_status aril_tensorboard_image(aril_tensorboard *tb, const char *tag,
                                            aril_tensor *image, int64_t step);

/* Logs a text, shown as Markdown. */
ARIL_API aril_status aril_tensorboard_text(aril_tensorboard *tb, const char *tag, const char *text,
                                           int64_t step);

/* Logs a precision-recall curve: labels [N] (0 or 1) and scores [N] between 0 and 1, at
 * `thresholds` thresholds (0 means 127). */
ARIL_API aril_status aril_tensorboard_pr_curve(aril_tensorboard *tb, const char *tag,
                                               aril_tensor *labels, aril_tensor *scores,
                                               int thresholds, int64_t step);

typedef struct aril_tensorboard_embedding_opts {
    const char *const *labels; /* NULL, or a text for each point */
    aril_tensor *images;       /* NULL, or [N,C,H,W]: an image for each point */
} aril_tensorboard_embedding_opts;

/* Writes points [N,D] for the embedding projector, in files next to the events. */
ARIL_API aril_status aril_tensorboard_embedding(aril_tensorboard *tb, const char *tag,
                                                aril_tensor *points,
                                                aril_tensorboard_embedding_opts opts);

/* One hyperparameter of a run: a text, or a number. */
typedef struct aril_hparam {
    const char *name;
    const char *text; /* NULL: use `number` */
    double number;
} aril_hparam;

/* Logs the hyperparameters of the run, and the tags of the scalars that are its metrics. Once per
 * run. */
ARIL_API aril_status aril_tensorboard_hparams(aril_tensorboard *tb, const aril_hparam *hparams,
                                              int n, const char *const *metrics, int n_metrics);
/* Marks the run as finished, successfully or with an error. */
ARIL_API aril_status aril_tensorboard_hparams_end(aril_tensorboard *tb, bool well);

/* One node of a graph. */
typedef struct aril_tensorboard_node {
    const char *name; /* "layer1/conv": slashes create groups */
    const char *op;   /* "Conv2d" */
    int n_inputs;
    const char *const *input; /* names of nodes */
    aril_shape shape;         /* of its result; -1 for unknown sizes */
    const char *text;         /* NULL, or a description */
} aril_tensorboard_node;

/* Logs a graph of such nodes. Once per run. */
ARIL_API aril_status aril_tensorboard_graph(aril_tensorboard *tb, const aril_tensorboard_node *node,
                                            int n);

/* Logs the graph of a module: every operation of one run in evaluation mode on a sample of shape x,
 * grouped by module. Lazily sized parameters are created; nothing else changes. */
ARIL_API aril_status aril_tensorboard_module(aril_tensorboard *tb, aril_module *m, aril_shape x);

ARIL_C_END

#endif
