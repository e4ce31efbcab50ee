/* Nets of Caffe, for other parts of Aril that run them: solvers, data layers. */
#ifndef ARIL_MODELS_CAFFE_NET_H
#define ARIL_MODELS_CAFFE_NET_H

#include "aril/caffe.h"
#include "formats/atomic_file.h"
#include "formats/caffe/net.h"

/* Creates a net from a message, of which it takes a copy: NetParameter in any form. `name` is the
 * file's, for errors. The `state` that the net itself has (level, stages) adds to that of opts. */
aril_module *aril__caffe_net_from(const aril__message *net, const char *name, aril_caffe_opts opts);

/* The upgraded message of layer i (LayerParameter), which belongs to the net: a data layer's
 * data_param, transform_param and so on. NULL if there is none. */
const aril__message *aril__caffe_layer_message(const aril_module *net, int i);

/* The name of the net's file, for errors. */
const char *aril__caffe_net_file(const aril_module *net);

/* Whether a solver holds the blobs of the net, which then share with no other net's. */
void aril__caffe_set_trained(aril_module *net, bool trained);

/* Writes what aril_caffe_weights_save does, in either form, to a file that is being written; its
 * commit reports errors of writing. `diffs`: one for each of aril_caffe_params, of its shape, or
 * NULL. */
aril_status aril__caffe_weights_put(aril_module *net, bool hdf5, aril_tensor *const *diffs,
                                    aril__file *to);

/* The state of the net: `force_backward`, `debug_info`. The upgraded NetParameter after filters,
 * which belongs to the net. */
const aril__message *aril__caffe_net_message(const aril_module *net);

/* Blob k of layer i, shared or not; NULL: there is none. Borrowed. */
aril_tensor *aril__caffe_layer_blob(const aril_module *net, int i, int k);

/* Calls fn in each run, after each layer, with its bottoms and tops, which belong to the run; NULL:
 * no longer. No layer is fused with another then, and each bottom is a tensor of its own: its
 * gradient is that of this layer alone. */
typedef void aril__caffe_watcher(void *ctx, int layer, aril_list bottoms, aril_list tops);
void aril__caffe_watch(aril_module *net, aril__caffe_watcher *fn, void *ctx);

#endif
