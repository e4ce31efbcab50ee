/* Nets and solvers from files. */
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

/* Whether the text is one of that type; its errors are not reported. */
static bool parses_as(const aril__proto_type *type, const char *path)
{
    aril__saved_errors before = aril__errors_begin_quiet();
    aril__message *m = aril__message_load_text(type, path);
    aril__error_release(aril__errors_end(&before));
    aril__message_free(m);
    return m != NULL;
}

/* Reads text of a type; a file that is the other one is an error that says so. */
static aril__message *load_text(const aril__proto_type *type, const aril__proto_type *other,
                                const char *path)
{
    bool net = type == &aril__caffe_NetParameter;
    aril__saved_errors before = aril__errors_begin_quiet();
    aril__message *m = aril__message_load_text(type, path);
    aril__error *e = aril__errors_end(&before);
    if (m || !e) return m;
    if (e->code == ARIL_ERR_FORMAT && parses_as(other, path))
        aril__fail(ARIL_ERR_FORMAT, "%s is a %s; expected a %s", path, net ? "solver" : "net",
                   net ? "net" : "solver");
    else
        aril__raise_error(e);
    aril__error_release(e);
    return NULL;
}

bool aril__caffe_is_solver(const char *path)
{
    return path && !aril__caffe_is_binary(path) && !parses_as(&aril__caffe_NetParameter, path) &&
           parses_as(&aril__caffe_SolverParameter, path);
}

aril__message *aril__caffe_net_load(const char *path)
{
    if (!path) {
        aril__fail(ARIL_ERR_ARG, "caffe: the path of the net is NULL");
        return NULL;
    }
    aril__message *net =
        aril__caffe_is_binary(path)
            ? aril__message_load(&aril__caffe_NetParameter, path)
            : load_text(&aril__caffe_NetParameter, &aril__caffe_SolverParameter, path);
    if (!net || aril__caffe_net_upgrade(net, path) == ARIL_OK) return net;
    aril__message_free(net);
    return NULL;
}

aril__message *aril__caffe_solver_load(const char *path)
{
    return load_text(&aril__caffe_SolverParameter, &aril__caffe_NetParameter, path);
}
