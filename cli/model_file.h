/* A trained network in a file: weights as safetensors, and the metadata needed to use it: which
 * network of the zoo it is, for which inputs and classes, and how inputs are resized and
 * normalized. */
#ifndef ARIL_CLI_MODEL_FILE_H
#define ARIL_CLI_MODEL_FILE_H

#include <aril/aril.h>
#include <aril/datasets.h>

enum { MAX_CHANNELS = 4 };

typedef struct model_file {
    aril_module *net;
    aril_module *scaled; /* the network with scaled columns and target: the one trained and used */
    char *path;          /* of the file; NULL: newly initialized weights */
    char *name;          /* in the zoo */
    char *data;          /* dataset it was trained on, "" */
    aril_shape input;
    int64_t classes;        /* number of outputs */
    char **class_name;      /* NULL: unnamed */
    bool regression;        /* outputs are numbers, not classes */
    char *loss, *metrics;   /* used in training; NULL: the defaults */
    char *target;           /* for a table: the target column; NULL: unknown */
    int n_columns;          /* for a table: the columns of x */
    char **column;          /* their names; NULL: unnamed */
    double *column_scale;   /* mean and std of each 1-d input, 2 x input.dim[0]; NULL: unscaled */
    double target_scale[2]; /* mean and standard deviation of regression targets; 0, 0: unscaled */
    int n_channels;         /* normalized channels: 0, 1 or the input's */
    double mean[MAX_CHANNELS], std[MAX_CHANNELS];
    bool sized;          /* images are resized to the input size */
    bool prepared;       /* images are resized and cropped as the zoo tells of the network */
    bool in_graph;       /* the network itself normalizes images and orders their channels */
    bool bgr;            /* images have their channels in the order blue, green, red */
    aril_shape resize;   /* of images before the crop to the input size; ndim 0: as prepared */
    bool by_index;       /* classes have the numbers of a dataset's, whatever their names */
    const char *weights; /* for model_create: a file, "default", or NULL; not owned */
    const char *root;    /* the part of that file; NULL: the weights of its model; not owned */
    double held_out;     /* fraction of the training samples held out; 0: none */
    uint64_t seed;       /* for drawing the held-out samples */
} model_file;

/* Opens a file, or a folder created by `aril train`, with its weights. False after an error. */
bool model_open(const char *file, model_file *m);

/* Weights for a network of the zoo. */
typedef struct model_weights {
    const char *file; /* or "default"; NULL: the published ones */
    const char *root; /* the part of the file; NULL: the weights of its model */
    const char
        *labels;     /* a file of class names, to count them if the weights do not say; or NULL */
    int64_t classes; /* 0: those of the weights */
} model_weights;

/* A network of the zoo by its name, with weights, and with its preprocessing and class names, or
 * those of its training if `aril train` wrote the file. False after an error. */
bool model_open_zoo(const char *name, const model_weights *w, model_file *m);

/* model_open, or model_open_zoo if a file of weights is given, which a file has no use for. */
bool model_open_with(const char *model, const model_weights *w, model_file *m);

/* The number of classes of the weights in a file, by the layers of a network's head; 0: unknown. */
int64_t model_weights_classes(const aril_zoo_entry *e, const char *file, const char *root);

/* Whether the classes of a dataset can be matched by number, if they have to be. False after an
 * error. */
bool model_check_classes(const model_file *m, aril_dataset *d);

/* The transform that resizes and crops images as the network expects them, before they are
 * normalized; NULL if they stay as they are, or after an error. */
aril_transform *model_prepare(const model_file *m);
/* Takes ownership of a dataset and returns it with images prepared that way; gray ones get three
 * channels where the network expects them. */
aril_dataset *prepare_images(aril_dataset *d, const model_file *m);
/* Sets the normalization that the zoo tells of the network. */
void model_set_preprocess(model_file *m, const aril_zoo_entry *e);

/* A network of the zoo, newly initialized or with m->weights. input.ndim 0 and classes 0: the
 * defaults of the network. */
bool model_create(const char *name, aril_shape input, int64_t classes, model_file *m);

/* Whether it looks like a file or folder; whether it is a name in the zoo. */
bool model_is_file(const char *file);
bool model_is_name(const char *file);
/* Whether it is a file of ONNX, by its name. */
bool model_is_onnx(const char *path);
/* Reads the model at m->path: one input [batch, ...], and scores of classes, unless its metadata
 * say otherwise, as those of `aril convert` do. False after an error. */
bool model_read_onnx(model_file *m);
/* Reads a network of Keras at m->path, with one input; whether m is one. False after an error. */
bool model_read_keras(model_file *m);
bool model_is_keras(const model_file *m);
/* Prepares one for predictions: its result are scores of classes. Others stay as they are. */
bool model_score_keras(model_file *m);
/* Sets m->scaled to the network, with logarithms after it if its result y are probabilities. */
bool model_set_scores(model_file *m, aril_tensor *y);
/* The network with what comes before it: takes images of pixels from 0 to 1, of which it normalizes
 * the channels. A reference; NULL after an error. */
aril_module *model_whole(const model_file *m);
/* Writes that as a model of ONNX, with the names of classes and what else a file tells. */
aril_status model_export(const model_file *m, aril_list in, const char *path,
                         aril_export_opts opts);
/* Reads what a file tells of the network besides its weights. False after an error. */
bool model_read_metadata(const aril_metadata *from, model_file *m);

/* Sets the class names, which are copied; n is the number of classes. */
bool model_set_classes(model_file *m, int n, const char *const *names);
/* Sets them to the lines of a file, instead of those that the model has. Empty lines are skipped.
 * False after an error. */
bool model_read_labels(model_file *m, const char *path);
/* How many it has; 0 if it cannot be read. */
int64_t model_count_labels(const char *path);

/* Its option. */
#define OPTION_LABELS(field)                                                                     \
    {                                                                                            \
        .name = "labels", .value = "FILE", .kind = OPTION_FILE, OPTION_AT(field),                \
        .by_default = "the names in the model", .help = "names of the classes, one in each line" \
    }

aril_status model_save(const model_file *m, const char *path);
void model_close(model_file *m);

/* "Sneaker", or the class index, safe to print, in buf. */
const char *model_class(const model_file *m, int64_t i, char *buf, size_t size);

/* Options that open a dataset as it was in training: its target, columns, classes. */
aril_open_opts model_open_opts(const model_file *m);

/* Stores the columns of a table. False when out of memory. */
bool model_set_columns(model_file *m, int n, const char *const *names, const char *target);

/* How images are prepared for a net that does not say so: one of Caffe or ONNX. */
typedef struct image_options {
    const char *mean, *std, *resize;
    double scale; /* 0: not given */
    bool bgr;
} image_options;

/* Its options, in a struct `options` that has it as `field`. */
#define OPTION_RESIZE(field)                                                              \
    {                                                                                     \
        .name = "resize", .value = "HxW", .kind = OPTION_STRING, OPTION_AT(field.resize), \
        .by_default = "that of the input",                                                \
        .help = "size to which images are resized before the center is cropped to the "   \
                "input's size; of a single number the shorter side, for ONNX"             \
    }
#define OPTION_MEAN(field)                                                                 \
    {                                                                                      \
        .name = "mean", .value = "MEAN", .kind = OPTION_STRING, OPTION_AT(field.mean),     \
        .help = "mean to subtract from pixels in 0..255: a number for each channel, such " \
                "as 104,117,123, or for Caffe a file with an array: .binaryproto, .npy, "  \
                ".npz or .h5"                                                              \
    }
#define OPTION_STD(field)                                                           \
    {                                                                               \
        .name = "std", .value = "STD", .kind = OPTION_STRING, OPTION_AT(field.std), \
        .help = "numbers to divide by, after the mean, such as 58.395,57.12,57.375" \
    }
#define OPTION_BGR(field)                                                                   \
    {                                                                                       \
        .name = "bgr", OPTION_AT(field.bgr),                                                \
        .help = "channels in the order blue, green, red, as most nets of Caffe expect them" \
    }
#define OPTION_SCALE(field)                                                          \
    {                                                                                \
        .name = "scale", .value = "X", .kind = OPTION_FLOAT, OPTION_AT(field.scale), \
        .by_default = "1, or 1/255 for ONNX without --mean and --std",               \
        .help = "factor for pixels, after the mean"                                  \
    }
/* Whether any is given; sets them for a model of ONNX, false after an error. */
bool image_options_given(const image_options *o);
bool model_set_images(model_file *m, const image_options *o);
/* The same, and an error for a network that tells itself how images are prepared. */
bool model_images_from(model_file *m, bool is_caffe, const image_options *o);
/* "104,117,123" as a number for each channel, or one for all. False after an error. */
bool read_channels(const char *name, const char *text, int64_t channels, double *to);

/* Creates m->scaled from the network and its scales. False after an error. */
bool model_scale(model_file *m);

/* Compiles a model with a loss and metrics (NULL: those of its training, or the defaults). For
 * regression the loss uses targets scaled to standard deviation 1, so that the same learning rates
 * suit targets of any magnitude; metrics are in the target's own units. */
aril_status model_compile(const model_file *m, aril_model *model, const char *loss,
                          const char *metrics, aril_model_opts opts);
const char *model_loss(const model_file *m, const char *loss);
/* Whether the loss and the metrics suit the targets, classes or numbers. False after an error. */
bool model_check_measures(const model_file *m, const char *loss, const char *metrics);
const char *model_metrics(const model_file *m, const char *metrics);

/* The batch transform that normalizes inputs; NULL when there is nothing to do (or after an
 * error). */
aril_transform *model_normalize(const model_file *m);

/* "1x28x28" */
const char *shape_text(aril_shape shape, char *buf, size_t size);
/* Parses "1x28x28" or "1,28,28". */
bool shape_read(const char *text, aril_shape *shape);

/* The names in the zoo, NULL-terminated: for completion. */
const char *const *model_names(void);

#endif
