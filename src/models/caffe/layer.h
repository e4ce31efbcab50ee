/* A layer of a Caffe net: a module whose class is a row of a table. */
#ifndef ARIL_MODELS_CAFFE_LAYER_H
#define ARIL_MODELS_CAFFE_LAYER_H

#include "aril/aril.h"
#include "core/error.h"
#include "core/memory.h"
#include "formats/caffe/net.h"
#include "nn/module.h"

#include <limits.h>
#include <string.h>

typedef struct caffe_row caffe_row;

enum {
    CAFFE_BLOBS = 8,
    CAFFE_ANY = INT_MAX,       /* any number of bottoms or tops */
    CAFFE_MAX_BOTTOMS = 65536, /* of one layer, from a file */
};

/* The data of a layer's module; a row with more puts this first. */
typedef struct caffe_layer {
    const caffe_row *row;
    const aril__message *message; /* LayerParameter, of the net */
    const aril__message *param;   /* the parameters of this type, empty if they are not set */
    const char *file, *root;      /* of the net */
    int n_bottoms, n_tops;
    int n_blobs;
    bool always_train, always_test; /* by the layer's own phase */
    aril_shape shape[CAFFE_BLOBS];  /* of the layer's blobs; a shared one may have another */
    const aril__message *filler[CAFFE_BLOBS]; /* NULL: `initial` */
    double initial[CAFFE_BLOBS];
} caffe_layer;

enum {
    CAFFE_LOSS = 1,        /* the first top has loss weight 1 unless the layer says otherwise */
    CAFFE_DATA = 2,        /* the tops are inputs of the net, filled from files */
    CAFFE_INPUT = 4,       /* the tops are inputs of the net */
    CAFFE_AUTO_TOP = 8,    /* a top may be omitted */
    CAFFE_SINK = 16,       /* writes its bottoms to a file: computes nothing */
    CAFFE_STATISTICS = 32, /* blobs are buffers, which no solver changes */
};

/* A blob as files store it. */
typedef struct caffe_stored {
    const char *name;
    int axes;        /* of files with four sizes, the first of which are 1; 0: four */
    bool optional;   /* missing where a layer has fewer blobs */
    bool one_bottom; /* missing where a bottom takes its place */
} caffe_stored;

struct caffe_row {
    aril__layer layer;
    const char *param; /* the field of LayerParameter; NULL: none */
    int min_bottoms, max_bottoms, min_tops, max_tops;
    unsigned flags;
    caffe_stored blob[CAFFE_BLOBS]; /* all that it may have, in order */
    /* Of a top that is an input of the net: its shape, if the file gives it. NULL: never. */
    bool (*top_shape)(const caffe_layer *l, int i, aril_shape *shape);
    /* Reads and checks parameters, which need no sizes; NULL: none. */
    aril_status (*check)(aril_module *m, caffe_layer *l);
    /* Creates the blobs for these bottoms; NULL: none. */
    aril_status (*build)(aril_module *m, caffe_layer *l, aril_tensor *const *in);
    /* Computes the tops: sets out[0] .. out[n_tops - 1]. */
    void (*forward)(aril_module *m, caffe_layer *l, aril_tensor *const *in, aril_tensor **out);
    /* What the layer applies to each element and others can fuse; NULL: nothing. */
    aril_activation (*activation)(const caffe_layer *l);
};

/* How errors name a layer: "net.prototxt: layer 'conv1' (Convolution) at line 12: ". */
void aril__caffe_where(const aril_module *self, char *text, size_t size);

/* The beginning of a row: the name of the type and of the struct of its data. */
#define CAFFE_ROW(name, data)                         \
    .layer.base = { .type = name,                     \
                    .size = sizeof(data),             \
                    .forward = aril__caffe_run_layer, \
                    .build = aril__caffe_build_layer, \
                    .describe = aril__caffe_describe, \
                    .reset = aril__caffe_reset_layer, \
                    .inputs = -1,                     \
                    .outputs = -1,                    \
                    .inputless = true },              \
    .layer.where = aril__caffe_where
#define CAFFE_WEIGHT_AND_BIAS(weight_axes) \
    .blob = { { "weight", .axes = (weight_axes) }, { "bias", .axes = 1, .optional = true } }
#define CAFFE_COUNTS(b0, b1, t0, t1) \
    .min_bottoms = (b0), .max_bottoms = (b1), .min_tops = (t0), .max_tops = (t1)

void aril__caffe_run_layer(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                           aril_tensor **out);
aril_status aril__caffe_build_layer(aril_module *self, int n_in, aril_tensor *const *in);
void aril__caffe_reset_layer(aril_module *self);
void aril__caffe_describe(const aril_module *self, char *text, size_t size);

/* The row of a type; NULL without an error. */
const caffe_row *aril__caffe_row_of(const char *type);
/* The name that is closest to a type, for messages; NULL: none is close. */
const char *aril__caffe_closest(const char *type);

/* The groups, each up to a row without a type. */
extern const caffe_row aril__caffe_conv_rows[], aril__caffe_pool_rows[], aril__caffe_linear_rows[],
    aril__caffe_norm_rows[], aril__caffe_activation_rows[], aril__caffe_shape_rows[],
    aril__caffe_select_rows[], aril__caffe_loss_rows[], aril__caffe_class_rows[],
    aril__caffe_recurrent_rows[], aril__caffe_data_rows[], aril__caffe_python_rows[];

/* ---- for rows ---- */

/* An error in the parameters of a layer: names the file, the layer, its type and its line. */
aril__cold aril_status aril__caffe_bad(const caffe_layer *l, aril_status code, const char *format,
                                       ...) __attribute__((format(printf, 3, 4)));

/* An error if a number of the layer's message is NaN, or is infinite where that makes no sense. */
aril_status aril__caffe_check_numbers(const caffe_layer *l);

/* Sets all tops to poison. For a forward function that found an error. */
void aril__caffe_failed(const caffe_layer *l, aril_tensor **out);

/* Whether the layer behaves as in the training phase. */
bool aril__caffe_trains(const aril_module *m, const caffe_layer *l);

/* An axis that may count from the end, as 0 .. ndim - 1; also ndim with `end`. */
aril_status aril__caffe_axis(const char *what, const aril_tensor *x, int64_t axis, bool end,
                             int *to);

/* Adds the next blob, as a parameter or buffer, initialized by the filler, or if that is NULL with
 * a number. */
aril_status aril__caffe_add_blob(aril_module *m, const char *name, aril_shape shape,
                                 const aril__message *filler, double initial);

/* Blob k of the layer, in the layer's shape; NULL if there is none. */
aril_tensor *aril__caffe_blob(const aril_module *m, int k);

/* Fills t by a FillerParameter. */
aril_status aril__caffe_fill(aril_tensor *t, const aril__message *filler);
/* An error if a filler's type is unknown, or its numbers make no sense. */
aril_status aril__caffe_check_filler(const caffe_layer *l, const aril__message *filler);

/* x as [outer,n,inner], where n is the size of an axis. */
aril_tensor *aril__caffe_around(aril_tensor *x, int axis);

/* Labels or indices as i64, in their shape: NaN is none (-2^31, as in Caffe), not 0. */
aril_tensor *aril__caffe_integers(aril_tensor *x);

/* The value `exact` with the gradient of `smooth`. */
aril_tensor *aril__caffe_straight(aril_tensor *exact, aril_tensor *smooth);

/* A BlobShape as a shape: an error if it is too long or large. */
aril_status aril__caffe_shape(const caffe_layer *l, const aril__message *shape, aril_shape *to);

/* A path in the net's text, from the net's root; the caller frees it. NULL when out of memory. */
char *aril__caffe_path(const caffe_layer *l, const char *path);

#endif
