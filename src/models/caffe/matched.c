/* Which layers a file of weights and a net do not have in common. */
#include "models/caffe/inside.h"

#include <stdlib.h>

void aril__caffe_ignored_clear(caffe_net *net)
{
    for (int i = 0; i < net->n_ignored; i++) free(net->ignored[i]);
    free(net->ignored);
    net->ignored = NULL;
    net->n_ignored = 0;
}

aril_status aril__caffe_ignored_add(caffe_net *net, const char *name, size_t length)
{
    char **more = aril__realloc(net->ignored, ((size_t)net->n_ignored + 1) * sizeof *more);
    if (more) net->ignored = more;
    char *copy = more ? aril__malloc(length + 1) : NULL;
    if (!copy) return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", net->file);
    memcpy(copy, name, length);
    copy[length] = '\0';
    net->ignored[net->n_ignored++] = copy;
    return ARIL_OK;
}

const char *aril_caffe_weights_ignored(const aril_module *m, int i)
{
    const caffe_net *net = aril__caffe_data("caffe_weights_ignored", m);
    return net && i >= 0 && i < net->n_ignored ? net->ignored[i] : NULL;
}

/* Whether a node has a blob of its own: not one that it shares with a node before it. */
static bool owns_blob(const caffe_net *net, int node)
{
    for (int i = 0; i < net->n_weights; i++)
        if (net->weight[i].node == node) return true;
    return false;
}

const char *aril_caffe_weights_missing(const aril_module *m, int i)
{
    const caffe_net *net = aril__caffe_data("caffe_weights_missing", m);
    for (int k = 0; net && i >= 0 && k < net->n_nodes; k++)
        if (!net->node[k].loaded && owns_blob(net, k) && i-- == 0) return net->node[k].name;
    return NULL;
}
