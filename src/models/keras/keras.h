/* Networks of Keras: layers as the configuration describes them, and the modules they become. */
#ifndef ARIL_MODELS_KERAS_KERAS_H
#define ARIL_MODELS_KERAS_KERAS_H

#include "aril/graph.h"
#include "aril/keras.h"
#include "formats/bytes.h"
#include "formats/hdf5.h"
#include "formats/json_tree.h"
#include "nn/module.h"

typedef aril__json_node json;

/* ---- values between layers ---- */

/* How a value lies, of which Keras' own order is channels-last: [N,H,W,C]. */
typedef enum keras_order {
    KERAS_ORDER,   /* as Keras has it */
    KERAS_FIRST,   /* channels moved to axis 1: [N,C,H,W] */
    KERAS_FLATTEN, /* [N,F]: a value in the order above, flattened */
} keras_order;

/* A value while a network is planned. */
typedef struct keras_value {
    aril_tensor *tensor; /* symbolic: it has a shape only */
    keras_order order;
    aril_shape flat; /* KERAS_FLATTEN: the sizes before, in Keras' order, without N */
    int mask;        /* the value that masks its steps; -1: none */
} keras_value;

/* ---- layers ---- */

/* A variable of a layer. */
typedef struct keras_variable {
    char name[32]; /* "kernel" */
    char path[64]; /* the part of the layer that it belongs to: "", "cell", "query_dense" */
    int index;     /* among the variables of that part */
    bool fixed;    /* never trained: a moving average */
    int array;     /* in the file; -1: not found */
} keras_variable;

enum { KERAS_VARIABLES = 16 };

/* A reference to the result of a call. */
typedef struct keras_ref {
    struct keras_layer *layer;
    int node, tensor;
} keras_ref;

/* An argument of a call: a value, or a constant of the configuration. */
typedef struct keras_argument {
    const char *role; /* its keyword; NULL: by position */
    keras_ref ref;    /* layer NULL: a constant */
    const json *constant;
} keras_argument;

/* A call of a layer. */
typedef struct keras_node {
    keras_argument *in;
    int n_in, cap;
    const json *args;     /* its arguments by position, as Keras 3 writes them; NULL: unknown */
    const json *keywords; /* its keyword arguments; NULL: none */
    int *value;           /* the values of its results, once planned */
    int n_values, state;  /* 0: not visited, 1: on the way, 2: planned */
} keras_node;

typedef struct keras_layer {
    const struct keras_kind *kind;
    const char *name, *class;
    const json *config;
    bool trainable;
    keras_variable variable[KERAS_VARIABLES];
    int n_variables;
    char *part;                 /* of its parent, in the file: "layers/dense_1", "forward_layer" */
    struct keras_layer *parent; /* NULL: the network itself */
    struct keras_layer **inner; /* the layers of a network; the layer of a wrapper */
    int n_inner, cap_inner;
    keras_node *node;
    int n_nodes;
    int first_node[2];   /* what references call the first node: those of arguments, of outputs */
    keras_ref *in, *out; /* inputs and outputs of a network */
    int n_in, n_out;
    bool ordered;          /* a network whose results are in Keras' order */
    aril_module *module;   /* once planned; belongs to its parent's module */
    keras_order orders[8]; /* of the inputs that the module was made for */
    keras_value *results;  /* of a network */
} keras_layer;

/* ---- loading ---- */

typedef struct keras_loader {
    const char *path;
    aril__hdf5 *weights; /* NULL: none, only the configuration is checked */
    bool legacy;         /* weights of Keras 2's files: lists by layer */
    int version;         /* Keras 2 or 3 */
    bool first;          /* layers of the network are channels-first in Keras itself */
    bool as_keras;       /* inputs and outputs in Keras' order */
    aril__bytes unknown; /* layers that are not supported */
    int n_unknown, n_layers;
    aril_graph *graph; /* of the symbolic values */
    keras_layer *root;
} keras_loader;

/* layers.c: the tree of layers; NULL with an error. One error lists all layers that are unknown. */
keras_layer *aril__keras_layers(keras_loader *l, const json *config);
void aril__keras_free(keras_layer *layer);

/* nodes.c: the calls between the layers of a network. */
aril_status aril__keras_nodes(keras_loader *l, keras_layer *network);

/* weights.c: finds the arrays of all variables. */
aril_status aril__keras_bind(keras_loader *l);

/* plan.c: the module of a network, for inputs of these values (n_in of them); sets those of its
 * outputs. */
aril_module *aril__keras_plan(keras_loader *l, keras_layer *network, const keras_value *in,
                              keras_value *out);

/* The same for a layer alone, which has no calls; its input and result are in Keras' order. */
aril_module *aril__keras_plan_layer(keras_loader *l, keras_layer *layer, keras_value in);

/* ---- making modules ---- */

/* What the module of a layer is made from. */
typedef struct keras_make {
    keras_loader *loader;
    keras_layer *layer;
    const json *config, *keywords;
    const keras_node *node; /* the first call */
    const keras_value *in;  /* its inputs, in the order that the layer wants */
    int n_in;               /* those by position, */
    int n_all;              /* and by keyword */
    int rank;               /* of the first input */
    keras_order order;      /* of the first input */
} keras_make;

/* The order in which a layer takes its inputs. */
typedef enum keras_want {
    KERAS_WANT_ANY,     /* any, the same for all of its inputs */
    KERAS_WANT_AXIS,    /* any, but its module is for that one */
    KERAS_WANT_FLAT,    /* Keras' or flattened */
    KERAS_WANT_SPATIAL, /* channels first */
    KERAS_WANT_KERAS,   /* Keras' */
} keras_want;

/* What becomes of the mask of an input. */
typedef enum keras_mask {
    KERAS_MASK_STOP,  /* the result has none */
    KERAS_MASK_PASS,  /* it is that of the result */
    KERAS_MASK_TAKE,  /* an input of the layer, after the others; the result has none */
    KERAS_MASK_BOTH,  /* an input, and that of the result */
    KERAS_MASK_ALONE, /* the same; in Keras 3 an input only if the layer has no other than one */
    KERAS_MASK_MAKE,  /* the module's second result is one */
} keras_mask;

/* The order of its results. */
typedef enum keras_gives {
    KERAS_GIVES_SAME,  /* that of the first input */
    KERAS_GIVES_KERAS, /* Keras' */
    KERAS_GIVES_FLAT,  /* it flattens */
} keras_gives;

/* A class of layers. */
typedef struct keras_kind {
    const char *name;
    /* Its variables, by name: "bias?use_bias" only where the configuration says so, "cell/kernel"
     * of a part, "moving_mean!" never trained. */
    const char *variables;
    keras_want want;
    keras_mask mask;
    int spatial; /* dimensions of an image: 1 to 3; 0: any or none */
    aril_module *(*make)(keras_make *k);
    keras_gives gives;
} keras_kind;

/* kinds.c: the class with that name; NULL: not supported. */
const keras_kind *aril__keras_kind(const char *name);
/* ops.c: the same of an operation; the name of the kind of a layer, "op:Add" for operations. */
const keras_kind *aril__keras_op_kind(const char *name);
const char *aril__keras_op_name(const json *layer, char *text, size_t size);

/* Whether the configuration of a layer is a network: Sequential or Functional. */
bool aril__keras_is_network(const char *class);

/* Data that all modules of layers begin with. */
typedef struct keras_base {
    char *text; /* for print */
} keras_base;

/* A module of a layer, named as Keras names its class. `class.size` includes a keras_base at the
 * beginning of the data. */
aril_module *aril__keras_module(keras_make *k, const aril__layer *class);
/* Ends a `make`: m, or NULL after releasing it if `s` is an error. */
aril_module *aril__keras_made(aril_module *m, aril_status s);

/* Fails with a message that begins with the layer's name and class. */
aril_status aril__keras_fail(const keras_make *k, aril_status code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The i-th variable of the layer, or of one of its parts, as it is stored; f32 unless it holds f64.
 * NULL with an error. Owned by the scope. */
aril_tensor *aril__keras_variable(keras_make *k, const char *name);
bool aril__keras_has(const keras_make *k, const char *name);
/* Registers the variable `name`, or t if it is not NULL, as the module's parameter (or buffer) of
 * that name. A variable that the layer does not have is registered as missing. */
aril_status aril__keras_own(keras_make *k, aril_module *m, const char *name, aril_tensor *t);
/* A variable that must have this shape (-1: any size). */
aril_status aril__keras_own_shaped(keras_make *k, aril_module *m, const char *name,
                                   aril_shape shape);
/* Fails unless the shape of a variable is this one. */
aril_status aril__keras_check(const keras_make *k, const char *name, const aril_tensor *t,
                              aril_shape shape);

/* ---- reading a configuration ---- */

/* One integer for each of n dimensions, within limits; a single one is for all. */
aril_status aril__keras_sizes(const keras_make *k, const char *key, int n, int64_t otherwise,
                              int64_t least, int64_t *out);
aril_status aril__keras_integer(const keras_make *k, const char *key, int64_t otherwise,
                                int64_t least, int64_t *out);
/* An axis of Keras' order, as one of the first input's order (from 0). */
aril_status aril__keras_axis(const keras_make *k, int64_t axis, int *out);
int aril__keras_turn_axis(int axis, int rank, keras_order order);
bool aril__keras_channels_first(const json *config);

/* ---- activations ---- */

/* A function, and its numbers; fn NULL: none (linear). */
typedef struct keras_activation {
    aril_tensor *(*fn)(const struct keras_activation *a, aril_tensor *x);
    double a, b, c;
    int axis;              /* of softmax, of the value's order, */
    aril_axes axes;        /* or several, kept as 1; none: `axis` */
    bool old;              /* of Keras 2 */
    aril_activation fused; /* the same for ops that take one; 0: none */
} keras_activation;

/* The activation that a configuration names; an error that says which is unknown. */
aril_status aril__keras_activation(const keras_make *k, const json *config, keras_activation *out);
aril_tensor *aril__keras_activate(const keras_activation *a, aril_tensor *x);
/* The activation that a module applies, if other ops can fuse it; 0: none. */
aril_activation aril__keras_fused(const aril_module *m);

/* ---- families ---- */

aril_module *aril__keras_conv(keras_make *k);
aril_module *aril__keras_depthwise(keras_make *k);
aril_module *aril__keras_separable(keras_make *k);
aril_module *aril__keras_conv_transpose(keras_make *k);
aril_module *aril__keras_max_pool(keras_make *k);
aril_module *aril__keras_avg_pool(keras_make *k);
aril_module *aril__keras_global_avg_pool(keras_make *k);
aril_module *aril__keras_global_max_pool(keras_make *k);
aril_module *aril__keras_adaptive_avg_pool(keras_make *k);
aril_module *aril__keras_adaptive_max_pool(keras_make *k);
aril_module *aril__keras_zero_padding(keras_make *k);
aril_module *aril__keras_cropping(keras_make *k);
aril_module *aril__keras_center_crop(keras_make *k);
aril_module *aril__keras_up_sampling(keras_make *k);
aril_module *aril__keras_resizing(keras_make *k);
aril_module *aril__keras_dense(keras_make *k);
aril_module *aril__keras_einsum_dense(keras_make *k);
aril_module *aril__keras_embedding(keras_make *k);
aril_module *aril__keras_batch_norm(keras_make *k);
aril_module *aril__keras_layer_norm(keras_make *k);
aril_module *aril__keras_rms_norm(keras_make *k);
aril_module *aril__keras_group_norm(keras_make *k);
aril_module *aril__keras_unit_norm(keras_make *k);
aril_module *aril__keras_normalization(keras_make *k);
aril_module *aril__keras_rescaling(keras_make *k);
aril_module *aril__keras_layer_scale(keras_make *k);
aril_module *aril__keras_activation_layer(keras_make *k);
aril_module *aril__keras_prelu(keras_make *k);
aril_module *aril__keras_dropout(keras_make *k);
aril_module *aril__keras_spatial_dropout(keras_make *k);
aril_module *aril__keras_alpha_dropout(keras_make *k);
aril_module *aril__keras_gaussian_dropout(keras_make *k);
aril_module *aril__keras_gaussian_noise(keras_make *k);
aril_module *aril__keras_identity(keras_make *k);
aril_module *aril__keras_merge(keras_make *k);
aril_module *aril__keras_concatenate(keras_make *k);
aril_module *aril__keras_dot(keras_make *k);
aril_module *aril__keras_flatten(keras_make *k);
aril_module *aril__keras_reshape(keras_make *k);
aril_module *aril__keras_permute(keras_make *k);
aril_module *aril__keras_repeat_vector(keras_make *k);
aril_module *aril__keras_masking(keras_make *k);
aril_module *aril__keras_recurrent(keras_make *k);
aril_module *aril__keras_bidirectional(keras_make *k);
aril_module *aril__keras_time_distributed(keras_make *k);
aril_module *aril__keras_spectral(keras_make *k);
aril_module *aril__keras_attention(keras_make *k);
aril_module *aril__keras_multi_head(keras_make *k);
aril_module *aril__keras_op(keras_make *k);
aril_module *aril__keras_op_activation(keras_make *k);
aril_module *aril__keras_get_item(keras_make *k);
aril_module *aril__keras_split(keras_make *k);
aril_module *aril__keras_stack(keras_make *k);
aril_module *aril__keras_where(keras_make *k);
aril_module *aril__keras_clip(keras_make *k);
aril_module *aril__keras_cast(keras_make *k);
aril_module *aril__keras_pad(keras_make *k);
aril_module *aril__keras_normalize(keras_make *k);
aril_module *aril__keras_einsum(keras_make *k);
aril_module *aril__keras_arg_max(keras_make *k);

#endif
