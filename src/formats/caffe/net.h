/* Caffe's nets as messages: reading, upgrading older forms, filtering. */
#ifndef ARIL_FORMATS_CAFFE_NET_H
#define ARIL_FORMATS_CAFFE_NET_H

#include "formats/schemas.h"

/* Reads a NetParameter from a file, in text form, or in wire form if it is a .caffemodel or
 * .binaryproto, and upgrades it. NULL with an error. The caller frees it. */
aril__message *aril__caffe_net_load(const char *path);

/* Reads a SolverParameter from a file in text form, as it is. NULL with an error. */
aril__message *aril__caffe_solver_load(const char *path);

/* Whether a file is a solver, and not a net. */
bool aril__caffe_is_solver(const char *path);

/* Whether a file of that name is in wire form. */
bool aril__caffe_is_binary(const char *path);

/* Upgrades a NetParameter in place, as Caffe's upgrade_net_proto tools do: V0 and V1 layers, data
 * transformations, `input` fields, multipliers of BatchNorm. */
aril_status aril__caffe_net_upgrade(aril__message *net, const char *name);

/* Upgrades a SolverParameter in place: solver_type to type, solver_mode and nested nets. */
aril_status aril__caffe_solver_upgrade(aril__message *solver, const char *name);

/* The state that the rules of layers are compared with. */
typedef struct aril__caffe_state {
    bool train;
    int level;
    const char *const *stages;
    int n_stages;
} aril__caffe_state;

/* Whether a layer's include and exclude rules let it be in a net of that state: 1, 0, or a negative
 * status with an error if it has both kinds. */
int aril__caffe_layer_included(const aril__message *layer, const aril__caffe_state *state,
                               const char *name);

#endif
