/* Writing a model node by node in another operator set. */
#ifndef ARIL_ONNX_REWRITE_H
#define ARIL_ONNX_REWRITE_H

#include "onnx/rules.h"

typedef struct rewriting {
    const onnx_rewriting *to;
    onnx_model *m;          /* read again: its file is changed */
    const onnx_model *from; /* as it was loaded, with its values */
    bool ran;               /* for types */
    onnx_types types;
    int *elem; /* of each slot, ONNX's number of its dtype, also where its sizes are not known */
    const aril__message **visited; /* graphs and functions */
    size_t n_visited, cap_visited;
    const char *prefix; /* that no value's name begins with */
    int n_new;
} rewriting;

/* rewrite_nodes.c: rewrites the nodes of all graphs and functions. */
aril_status aril__onnx_rewrite_nodes(rewriting *r);

#endif
