/* The inside of a net: layers connected by values. */
#ifndef ARIL_MODELS_CAFFE_INSIDE_H
#define ARIL_MODELS_CAFFE_INSIDE_H

#include "models/caffe/layer.h"
#include "models/caffe/net.h"

enum { CAFFE_MAX_LAYERS = 20000 }; /* of a net, from a file */

/* A value of a blob. Layers that compute in place make a new value of the same name. */
typedef struct caffe_value {
    const char *name;
    int writer;        /* the node that computes it */
    int readers, last; /* how many nodes read it, and the last of them; -1 */
    int input;         /* its number among the inputs; -1 */
    bool automatic;    /* a loss that the file gives no name */
    double loss_weight;
    aril_shape shape; /* when the net was built */
    bool known;
} caffe_value;

/* A layer. */
typedef struct caffe_node {
    aril_module *module; /* a child of the net, or of nothing if its tops are inputs */
    const caffe_row *row;
    const aril__message *message;
    const char *name;
    int *in, *out; /* values */
    int n_in, n_out, n_tops;
    const char **bottoms, **tops;
    bool *detached; /* bottoms through which no gradient flows; NULL: none */
    int first_input;
    bool found;  /* the file of weights that is being read has its blobs */
    bool loaded; /* a file of weights had its blobs */
    int fused;   /* the node whose activation this one can apply; -1: none */
    int applier; /* the node that can apply this one's; -1: none */
} caffe_node;

/* A distinct blob of a layer. */
typedef struct caffe_weight {
    int node, index;
    bool has_lr, has_decay;
    double lr, decay;
} caffe_weight;

typedef struct caffe_net {
    aril__message *message; /* NetParameter, upgraded and filtered, without weights */
    char *file, *root;
    aril_shape *shapes; /* of inputs, instead of the file's */
    int n_shapes;
    caffe_node *node;
    caffe_value *value;
    int n_nodes, n_values, cap_values;
    int *inputs, *outputs; /* values; after the outputs those that HDF5Output layers write */
    int n_inputs, n_outputs, n_written;
    int most_in, most_out; /* of any node */
    bool has_loss, has_python;
    bool train;                     /* its phase */
    bool trained;                   /* a solver holds its blobs */
    const aril__message **excluded; /* layers of other phases, levels or stages, for errors */
    int n_excluded;
    caffe_weight *weight;
    int n_weights;
    aril__caffe_watcher *watcher; /* NULL: none */
    void *watcher_ctx;
    char *pending;  /* weights to be read when the net is built */
    char **ignored; /* layers of the last file of weights that the net does not have */
    int n_ignored;
} caffe_net;

/* The data of a net; NULL with an error if m is none. */
caffe_net *aril__caffe_data(const char *what, const aril_module *m);

/* ---- names ---- */

typedef struct caffe_map {
    struct {
        const char *name; /* borrowed */
        int value;
    } * at;
    size_t n, capacity;
} caffe_map;

/* The value of a name; -1: none. */
int aril__caffe_map_get(const caffe_map *map, const char *name);
aril_status aril__caffe_map_set(caffe_map *map, const char *name, int value);
void aril__caffe_map_free(caffe_map *map);

/* The layers of a net by name, for blobs that come by name. Layers of the same name take them in
 * order, of which those without blobs are left out unless a name has no others. */
typedef struct caffe_names {
    caffe_map at;  /* the first layer of a name */
    int *next;     /* the next one of the same name; -1: none */
    int *position; /* of each layer with blobs among those of its name, from 1; 0: without blobs */
} caffe_names;

aril_status aril__caffe_names(const caffe_net *net, caffe_names *to);
/* The layer of a name, each time the next one; -1: no more. */
int aril__caffe_names_take(caffe_names *names, const char *name);
void aril__caffe_names_free(caffe_names *names);

/* ---- the parts of making a net ---- */

/* Connects the nodes: creates values, inputs, outputs, loss weights. */
aril_status aril__caffe_wire(caffe_net *net);

/* Creates the blobs of all layers for inputs of these shapes, and what follows from that: sharing,
 * multipliers, weights that wait. */
aril_status aril__caffe_build(aril_module *self, caffe_net *net, const aril_shape *shapes);

/* Runs the nodes that the wanted values need, and the total loss unless that is NULL. Inputs that
 * are not needed may be NULL. */
aril_status aril__caffe_run(caffe_net *net, int n_in, aril_tensor *const *in, int n_wanted,
                            const int *wanted, aril_tensor **out, aril_tensor **loss);

/* Connects shared blobs and lists the distinct ones. */
aril_status aril__caffe_bind_weights(caffe_net *net);

/* Blob `index` of a node. */
static inline aril_tensor *aril__caffe_weight_at(const caffe_net *net, int node, int index)
{
    return aril__own_at(net->node[node].module, index);
}

static inline caffe_layer *aril__caffe_layer_of(const caffe_node *node)
{
    return aril_module_data(node->module);
}

/* What a file holds for the blobs of a net. All of it is read before the first blob changes, so
 * that a load that fails changes nothing. Tensors belong to the scope of the caller. */
typedef struct caffe_copies {
    struct {
        aril_tensor *to, *from; /* of the same dtype and device */
        const void *raw;        /* instead of `from`: values of that dtype, for a blob on the CPU */
    } * at;
    int n;
} caffe_copies;

aril_status aril__caffe_copies_open(caffe_copies *c, const caffe_net *net);
/* Converts the values to the form of the blob. */
aril_status aril__caffe_copies_add(caffe_copies *c, aril_tensor *to, aril_tensor *values);
/* Copies all if s is no error. */
aril_status aril__caffe_copies_finish(caffe_copies *c, aril_status s);

/* Copies the blobs of a message to the layers of the same name. */
aril_status aril__caffe_weights_from(caffe_net *net, const char *path);

/* The number of blob k of a node among the distinct ones; -1: it is not built. */
int aril__caffe_weight_number(const caffe_net *net, int node, int k);

/* An error if a file has weights for none of the layers (n 0) of a net that has blobs. */
aril_status aril__caffe_weights_found(const caffe_net *net, const char *path, int n);

/* The layers of a file of weights that the net does not have. */
void aril__caffe_ignored_clear(caffe_net *net);
aril_status aril__caffe_ignored_add(caffe_net *net, const char *name, size_t length);

/* The shape and the values of a blob of a file (BlobProto); `what` begins the message of an error.
 * Old files have four sizes. */
aril_status aril__caffe_stored_shape(const char *what, const aril__message *blob, aril_shape *to);
aril_tensor *aril__caffe_stored_values(const aril__message *blob, aril_shape shape);

/* The same from an HDF5 file, and to one. */
aril_status aril__caffe_weights_from_hdf5(caffe_net *net, const char *path);
aril_status aril__caffe_weights_to_hdf5(const caffe_net *net, aril_tensor *const *diffs,
                                        aril__file *file);
/* The blobs of a NetParameter to such a file. */
aril_status aril__caffe_message_to_hdf5(const aril__message *net, const char *path);

#endif
