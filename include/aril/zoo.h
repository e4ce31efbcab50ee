/* Model zoo: networks by name, created with newly initialized or with published weights, for an
 * input shape and a number of classes.
 *
 *     aril_module *m = aril_zoo_make("resnet50", (aril_zoo_opts){ .classes = 10 });
 *
 * Networks that torchvision or transformers have too have the same parameters under the same names,
 * so that weights made there load here. */
#ifndef ARIL_ZOO_H
#define ARIL_ZOO_H

#include "aril/module.h"
#include "aril/summary.h"
#include "aril/transform.h"

ARIL_C_BEGIN

typedef struct aril_zoo_opts {
    aril_shape
        input; /* shape of one sample, such as [1,28,28]; no dimensions: the network's default */
    int64_t classes; /* number of outputs; 0: the network's default */
    /* A file with the network's weights, or "default": the published weights, from the cache.
     * NULL: newly initialized weights. If `classes` is set and the weights are for another number
     * of classes, the head (aril_zoo_head) keeps new weights; nothing else may differ. */
    const char *weights;
    const char *root; /* the part of the file with the weights, as in aril_weights_opts */
    /* With the auxiliary classifiers of the networks that have them (GoogLeNet, Inception v3): they
     * are results 1 and 2 of aril_forward_all in training. */
    bool aux;
    /* Without dropout and without stochastic depth, so that training repeats elsewhere. */
    bool no_dropout;
} aril_zoo_opts;

/* How images are prepared for a network: resized, cropped at the center to the input's size, and
 * normalized. */
typedef struct aril_preprocess {
    int64_t resize; /* length of the shorter side; 0: all of the image is resized to the input */
    aril_filter filter;
    /* Each channel becomes (x - mean) / std, with x from 0 to `scale`, 1 or 255; default 1. */
    double scale, mean[3], std[3];
    bool bgr; /* channels in the order blue, green, red */
} aril_preprocess;

/* A file that a network needs beside its weights, such as a vocabulary. */
typedef struct aril_zoo_file {
    const char *name;
    const char *sha256; /* as that of the weights */
} aril_zoo_file;

/* Published weights. */
typedef struct aril_zoo_weights {
    const char *url; /* NULL: none */
    /* SHA-256 of the file in hexadecimal digits, or the first of them. NULL: the server tells. */
    const char *sha256;
    /* Files from the same folder of the server, up to one without a name. In the cache, all of them
     * are in a folder of the network's name. NULL: the weights are one file. */
    const aril_zoo_file *files;
} aril_zoo_weights;

/* Whose classes a network has. */
typedef enum aril_zoo_classes {
    ARIL_CLASSES_UNNAMED,
    ARIL_CLASSES_DIGITS,
    ARIL_CLASSES_CIFAR10,
    ARIL_CLASSES_CIFAR100,
    ARIL_CLASSES_IMAGENET,
} aril_zoo_classes;

/* A network of the zoo. */
typedef struct aril_zoo_entry {
    const char *name;   /* "lenet5" */
    const char *about;  /* one line */
    const char *family; /* networks built of the same parts: "resnet" */
    const char *paper;  /* title of the publication; NULL: none */
    int year;           /* of the publication; 0: none */
    aril_shape input;   /* default input shape */
    int64_t classes;
    aril_dtype dtype; /* of its inputs: ARIL_I64 for tokens; 0: that of the parameters */
    aril_preprocess preprocess;
    aril_zoo_classes names;   /* of the classes, if there are as many as by default */
    aril_zoo_weights weights; /* for the default input and classes */
    bool generates;           /* a language model: the files of its weights have a tokenizer */
    /* Creates it from options that have an input shape and a number of classes. */
    aril_module *(*make)(const struct aril_zoo_entry *self, const aril_zoo_opts *opts);
    const void *config; /* for `make` */
} aril_zoo_entry;

/* The number of networks, and the i-th one; NULL if there is none. Networks of a family are next to
 * each other. */
ARIL_API int aril_zoo_count(void);
ARIL_API const aril_zoo_entry *aril_zoo_at(int i);
/* Finds a network by name; NULL, with an error that suggests the closest name, if there is none. */
ARIL_API const aril_zoo_entry *aril_zoo_find(const char *name);

/* Creates a network by name, built: all parameters have their sizes. The caller owns it. NULL, with
 * an error, if the name is unknown, the input does not fit, or the weights cannot be loaded. */
ARIL_API aril_module *aril_zoo_make(const char *name, aril_zoo_opts opts);

/* The cost of a network as aril_module_cost tells it, from shapes alone: no memory is allocated for
 * weights, and nothing is computed. Bytes of activations are not counted. The input and the classes
 * of opts count, and `aux`. */
ARIL_API aril_status aril_zoo_cost(const aril_zoo_entry *e, aril_zoo_opts opts, aril_cost *cost);

/* Prints what aril_summary_with and aril_module_print do, also from shapes alone: a network that
 * would not fit in memory needs a few megabytes. The summary of a network with recurrent layers
 * does run it, since their kernels decide how much they keep for backward. */
ARIL_API aril_status aril_zoo_summary(const aril_zoo_entry *e, aril_zoo_opts opts, FILE *to,
                                      aril_summary_opts how);
ARIL_API aril_status aril_zoo_print(const aril_zoo_entry *e, aril_zoo_opts opts, FILE *to);

/* The transform that prepares an image as a network expects it for inputs of this shape (no
 * dimensions: the default). The caller frees it. NULL, with an error, if its inputs are not
 * images. */
ARIL_API aril_transform *aril_zoo_transform(const aril_zoo_entry *e, aril_shape input);

/* The head of a network: the layers that have parameters for each class, by their full names,
 * separated by spaces, such as "fc", or "classifier.6". Written to buf. The other layers are its
 * backbone. */
ARIL_API aril_status aril_zoo_head(const aril_zoo_entry *e, char *buf, size_t size);

/* Prepares a network of the zoo for training its head alone: freezes the parameters of its
 * backbone, and keeps the backbone's batch norms in evaluation mode (aril_module_freeze_stats).
 * aril_module_unfreeze and aril_module_unfreeze_stats undo it. */
ARIL_API aril_status aril_zoo_freeze_backbone(const aril_zoo_entry *e, aril_module *m);

/* The path of a network's published weights in the cache, written to buf; false if they are not
 * there. Sets no error. `published.h` tells where the cache is, and downloads to it. */
ARIL_API bool aril_zoo_weights_path(const aril_zoo_entry *e, char *buf, size_t size);

/* The name of class i, such as "Samoyed"; NULL if it has none. */
ARIL_API const char *aril_zoo_class_name(const aril_zoo_entry *e, int64_t i);

ARIL_C_END

#endif
