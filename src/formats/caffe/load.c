/* Nets from files. */
#include "formats/caffe/net.h"

#include "core/error.h"

#include <string.h>

static bool ends(const char *path, const char *ending)
{
    size_t n = strlen(path), m = strlen(ending);
    return n >= m && strcmp(path + n - m, ending) == 0;
}

bool aril__caffe_is_binary(const char *path)
{
    return ends(path, ".caffemodel") || ends(path, ".binaryproto") || ends(path, ".pb");
}

aril__message *aril__caffe_net_load(const char *path)
{
    if (!path) {
        aril__fail(ARIL_ERR_ARG, "caffe: the path of the net is NULL");
        return NULL;
    }
    aril__message *net = aril__caffe_is_binary(path)
                             ? aril__message_load(&aril__caffe_NetParameter, path)
                             : aril__message_load_text(&aril__caffe_NetParameter, path);
    if (!net || aril__caffe_net_upgrade(net, path) == ARIL_OK) return net;
    aril__message_free(net);
    return NULL;
}
