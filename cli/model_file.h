/* A trained network in a file: weights as safetensors, and beside them what is needed to use it:
 * which network of the zoo it is, for what inputs and classes, and how inputs are sized and
 * normalised. */
#ifndef ARIL_CLI_MODEL_FILE_H
#define ARIL_CLI_MODEL_FILE_H

#include <aril/aril.h>
#include <aril/datasets.h>

enum { MOST_CHANNELS = 4 };

typedef struct model_file {
    aril_module *net;
    aril_module *scaled; /* the network with columns and target scaled: what is trained and used */
    char *path;          /* of the file; NULL: it has fresh weights */
    char *name;          /* of the zoo */
    char *data;          /* what it was trained on, "" */
    aril_shape input;
    int64_t classes;      /* results */
    char **class_name;    /* NULL: they have none */
    bool regression;      /* results are numbers, not classes */
    char *loss, *metrics; /* by which it was trained; NULL: the usual ones */
    char *target;         /* of a table: the target's column; NULL: not known */
    int n_columns;        /* of a table: the columns of x */
    char **column;        /* their names; NULL: they have none */
    double *column_scale; /* mean and deviation of each input of a network of one dimension: 2 x
                              input.dim[0] of them; NULL: as they are */
    double
        target_scale[2]; /* mean and deviation of the targets of a regression; 0, 0: as they are */
    int n_channels;      /* that are normalised: 0, 1 or the input's */
    double mean[MOST_CHANNELS], std[MOST_CHANNELS];
    bool sized;    /* images are brought to the input's size */
    double kept;   /* the share of the training samples that was held out; 0: none */
    uint64_t seed; /* by which that share was drawn */
} model_file;

/* Opens a file, or a folder that `aril train` made, with its weights. False after an error. */
bool model_open(const char *file, model_file *m);

/* A network of the zoo with fresh weights. input.ndim 0 and classes 0: what it is made for. */
bool model_make(const char *name, aril_shape input, int64_t classes, model_file *m);

/* Does it look like a file or a folder? And: is it a name of the zoo? */
bool model_is_file(const char *file);
bool model_is_name(const char *file);

/* Gives it names of classes, which are copied; n is its number of classes. */
bool model_set_classes(model_file *m, int n, const char *const *names);

aril_status model_save(const model_file *m, const char *path);
void model_close(model_file *m);

/* "Sneaker", or the number, as it may be printed, in buf. */
const char *model_class(const model_file *m, int64_t i, char *buf, size_t size);

/* How a dataset is opened as the network was trained on it: its target, columns, classes. */
aril_open_opts model_open_opts(const model_file *m);

/* Remembers the columns of a table. False when memory is out. */
bool model_set_columns(model_file *m, int n, const char *const *names, const char *target);

/* Makes m->scaled of the network and its scales. False after an error. */
bool model_scale(model_file *m);

/* Compiles a model by a loss and metrics (NULL: those of its training, or the usual ones). A
 * regression's loss is that of targets of deviation 1, so that learning rates are the same for
 * prices and for shares; metrics are in the target's own units. */
aril_status model_compile(const model_file *m, aril_model *model, const char *loss,
                          const char *metrics, aril_model_opts opts);
const char *model_loss(const model_file *m, const char *loss);
const char *model_metrics(const model_file *m, const char *metrics);

/* The transform for batches that normalises; NULL where there is nothing to do (or an error). */
aril_transform *model_normalise(const model_file *m);

/* "1x28x28" */
const char *shape_text(aril_shape shape, char *buf, size_t size);
/* From "1x28x28" or "1,28,28". */
bool shape_read(const char *text, aril_shape *shape);

/* The names of the zoo, NULL after the last: for completion. */
const char *const *model_names(void);

#endif
