/* Caffe's nets as modules: read from a prototxt, with the weights of a caffemodel.
 *
 *     aril_module *net = aril_caffe_net("deploy.prototxt",
 *                                       (aril_caffe_opts){ .weights = "net.caffemodel" });
 *     aril_tensor *prob = aril_forward(net, x);
 *
 * A net is an ordinary module: it is trained, compiled, exported, saved and moved like others. Its
 * children are the layers, under Caffe's names; a '.' in a name becomes '_', and a second layer of
 * the same name gets the suffix "#2". Parameters are named LAYER.weight and LAYER.bias; what other
 * layers keep is listed in docs/caffe-nets.md. Statistics of BatchNorm are buffers.
 *
 * The inputs of a net are the tops of its Input layers (or `input` fields) and of its data layers,
 * in the order of the file: data, label. Its results are the blobs that no layer reads, sorted by
 * name as Caffe does, then the total loss. Labels may have any dtype.
 *
 * Parameters are created when the sizes of all inputs are known: with the net, if the file or
 * .shapes gives them, otherwise in the first run. A net of the training phase starts in training
 * mode, one of the test phase in evaluation mode; modes are changed as for other modules. */
#ifndef ARIL_CAFFE_H
#define ARIL_CAFFE_H

#include "aril/module.h"

#include <stdio.h>

ARIL_C_BEGIN

/* ---- nets ---- */

typedef enum aril_caffe_phase { ARIL_CAFFE_TEST = 0, ARIL_CAFFE_TRAIN } aril_caffe_phase;

typedef struct aril_caffe_opts {
    aril_caffe_phase phase;
    int level;                 /* for the rules min_level and max_level of layers */
    const char *const *stages; /* for the rules stage and not_stage */
    int n_stages;
    const char *weights; /* a caffemodel to be loaded; NULL: initialized by the fillers */
    const char *root;    /* where relative paths in the net start; NULL: the current folder */
    /* Shapes of the inputs, in order, instead of those in the file; one without dimensions keeps
     * the file's. */
    const aril_shape *shapes;
    int n_shapes;
} aril_caffe_opts;

/* Reads a net in text form, current or older (V1, V0), which is upgraded as Caffe's tools do. The
 * caller owns it. NULL with an error that names line and layer if the file is malformed, or has a
 * layer that is not supported. */
ARIL_API aril_module *aril_caffe_net(const char *path, aril_caffe_opts opts);
/* The same for text in memory; `name` is that of the file, for errors (NULL: "prototxt"). */
ARIL_API aril_module *aril_caffe_net_parse(const char *text, size_t size, const char *name,
                                           aril_caffe_opts opts);

/* True for a module made by these functions. The functions below fail for others. */
ARIL_API bool aril_caffe_is_net(const aril_module *net);

/* The net's name in the file; "" if it has none. */
ARIL_API const char *aril_caffe_name(const aril_module *net);

/* Writes the net as it runs, after filters and upgrades, as prototxt, without weights. */
ARIL_API aril_status aril_caffe_print(const aril_module *net, FILE *to);

/* Draws the net by its layers, with their outputs, kernels and strides: to a path that ends in .dot
 * (Graphviz's language), or in .svg, .png or .pdf, for which the program `dot` must be installed
 * (otherwise ARIL_ERR_UNSUPPORTED). */
ARIL_API aril_status aril_caffe_draw(const aril_module *net, const char *path);

/* Reads a net of any form (.prototxt or binary), filters nothing, and writes it in the current form
 * to a file, as text or, with `binary`, in wire form with its weights; to a path that ends with
 * ".h5": its weights as HDF5. A solver is written as text, with the nets within it. */
ARIL_API aril_status aril_caffe_upgrade(const char *from, const char *to, bool binary);

/* ---- inputs, outputs, blobs ---- */

/* A blob of a net. The name belongs to the net. */
typedef struct aril_caffe_blob {
    const char *name;
    aril_shape shape;   /* no dimensions: not known yet */
    bool known;         /* the shape is known */
    double loss_weight; /* of this blob in the total loss; 0: none */
    int layer;          /* the layer that computes it, or the data layer that provides it */
} aril_caffe_blob;

/* The number of inputs and of outputs (without the total loss), and the i-th. All zero if there is
 * none. */
ARIL_API int aril_caffe_inputs(const aril_module *net);
ARIL_API int aril_caffe_outputs(const aril_module *net);
ARIL_API aril_caffe_blob aril_caffe_input(const aril_module *net, int i);
ARIL_API aril_caffe_blob aril_caffe_output(const aril_module *net, int i);

/* Runs the net up to the blobs of these names (of intermediate ones too, to extract features) and
 * returns their values in out[]. A blob that layers change in place has its last value. */
ARIL_API aril_status aril_caffe_blobs(aril_module *net, aril_list in, int n,
                                      const char *const *names, aril_tensor **out);

/* Runs the net and returns the total loss, to be differentiated: the sum over all blobs of the
 * loss weight times the sum of the blob ([]; zero if there are none). outputs[] (may be NULL) gets
 * the outputs. The same as asking aril_forward_all for one result more than there are outputs. */
ARIL_API aril_tensor *aril_caffe_loss(aril_module *net, aril_list in, aril_tensor **outputs);

/* ---- layers and parameters ---- */

/* A layer of a net. Strings and lists belong to the net. */
typedef struct aril_caffe_layer {
    const char *name, *type;
    int n_bottoms, n_tops;
    const char *const *bottoms, *const *tops;
    aril_module *module; /* the child that computes it; NULL: its tops are inputs of the net */
    bool is_data;        /* reads data from files (Data, ImageData, HDF5Data ...) */
    int first_input;     /* its first top among the inputs of the net; -1: none */
} aril_caffe_layer;

/* The number of layers that run, and the i-th, in order. */
ARIL_API int aril_caffe_layers(const aril_module *net);
ARIL_API aril_caffe_layer aril_caffe_layer_at(const aril_module *net, int i);

/* Top i of a layer. Layers that compute in place have tops of their own. All zero if there is
 * none. */
ARIL_API aril_caffe_blob aril_caffe_top(const aril_module *net, int layer, int i);

/* A blob of a layer as solvers see it. Shared ones are listed once, with their first owner. */
typedef struct aril_caffe_param {
    aril_tensor *tensor; /* a parameter, or a buffer (statistics of BatchNorm); borrowed */
    int layer, index;    /* which blob of which layer */
    double lr_mult, decay_mult;
} aril_caffe_param;

/* The number of distinct blobs, in Caffe's order (that of a solver's history); -1 with an error if
 * the net is not built. And the i-th. */
ARIL_API int aril_caffe_params(const aril_module *net);
ARIL_API aril_caffe_param aril_caffe_param_at(const aril_module *net, int i);

/* ---- weights ---- */

/* Copies the blobs of a caffemodel (any form; .h5: HDF5) to the layers of the same name. Layers
 * that the file does not have keep their values, and those that the net does not have are skipped,
 * as in Caffe; a file with none of the net's layers, or a blob of another shape, is an error, and
 * nothing changes. Layers of the same name take the blobs of that name in order. If the net is not
 * built yet, the file is read when it is. */
ARIL_API aril_status aril_caffe_weights_load(aril_module *net, const char *path);
/* What was not copied: the i-th layer with blobs in the last file that the net does not have, and
 * the i-th layer of the net with blobs that no file had, which stay as they were initialized. NULL:
 * there are no more. The former belongs to the net until it reads another file. */
ARIL_API const char *aril_caffe_weights_ignored(const aril_module *net, int i);
ARIL_API const char *aril_caffe_weights_missing(const aril_module *net, int i);
/* Writes the net with its weights in wire form, readable by Caffe; a path that ends with ".h5":
 * as HDF5. Atomic. */
ARIL_API aril_status aril_caffe_weights_save(aril_module *net, const char *path);

/* Makes the layers of `net` use the parameters and statistics of the layers of the same name in
 * `from`: a test net that follows a net in training. Both are built. */
ARIL_API aril_status aril_caffe_share(aril_module *net, aril_module *from);

/* A single blob, such as the mean of a dataset (.binaryproto): f32, or f64 where it is so stored.
 * Older files give [num,channels,height,width]. */
ARIL_API aril_tensor *aril_caffe_blob_load(const char *path);
ARIL_API aril_status aril_caffe_blob_save(const char *path, aril_tensor *t);

/* ---- layers of the user's own ---- */

/* Computes a Python layer's tops from its bottoms: sets out[0] .. out[n_out - 1]. param_str is the
 * layer's. Written with Aril's functions, it is differentiable. It is called once in each run of
 * the net, which is never compiled, and when the net is built, with bottoms that may have no
 * values. */
typedef void aril_caffe_layer_fn(const char *param_str, aril_list in, int n_out, aril_tensor **out,
                                 void *ctx);

/* Registers the function for layers of type Python with this module and layer: "module.layer". It
 * replaces an earlier one; NULL removes it. */
ARIL_API aril_status aril_caffe_register(const char *name, aril_caffe_layer_fn *fn, void *ctx);

ARIL_C_END

#endif
