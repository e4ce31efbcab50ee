#include "train/caffe/solverstate.h"

#include "aril/create.h"
#include "aril/device.h"
#include "aril/dtype.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "formats/array.h"
#include "formats/schemas.h"

#include <stdlib.h>
#include <string.h>

static aril_status no_memory(const char *path)
{
    return aril__fail(ARIL_ERR_MEMORY, "out of memory for the solverstate%s%s", path ? " " : "",
                      path ? path : "");
}

static aril_status malformed(const char *path, const char *what)
{
    return aril__fail(ARIL_ERR_FORMAT, "%s is not the state of a solver: %s", path, what);
}

/* An error for a file of weights, which is given for a state by mistake. */
static aril_status is_weights(const char *path)
{
    return aril__fail(
        ARIL_ERR_FORMAT,
        "%s is a caffemodel, not the state of a solver, which ends with .solverstate; "
        "to start from its weights, give it as weights",
        path);
}

/* ---- wire form ---- */

static aril_status add_history(aril__message *m, aril_tensor *t)
{
    ARIL_SCOPE;
    const float *data = aril_data(aril_cast(t, ARIL_F32));
    if (!data && aril_numel(t) > 0) return aril__latest_status();
    aril__message *blob = aril__message_add_sub(m, "history");
    aril_shape shape = aril_shape_of(t);
    aril__message_set_ints(aril__message_set_sub(blob, "shape"), "dim", shape.dim,
                           (size_t)shape.ndim);
    aril__message_set_floats(blob, "data", data, (size_t)aril_numel(t));
    return ARIL_OK;
}

static aril_status write_wire(const aril__solverstate *s, aril_tensor *const *history,
                              aril__bytes *to)
{
    aril__message *m = aril__message_new(&aril__caffe_SolverState);
    if (!m) return aril__latest_status();
    aril_status status = ARIL_OK;
    for (int i = 0; i < s->n && status == ARIL_OK; i++) status = add_history(m, history[i]);
    aril__message_set_int(m, "iter", s->iter);
    aril__message_set_text(m, "learned_net", s->net);
    aril__message_set_int(m, "current_step", s->step);
    if (status == ARIL_OK) status = aril__message_write(m, to);
    aril__message_free(m);
    return status;
}

/* Whether the file is a net with layers. */
static bool holds_net(const aril__bytes *from)
{
    aril__saved_errors before = aril__errors_begin_quiet();
    aril__message *m = aril__message_read(&aril__caffe_NetParameter, from->at, from->n,
                                          (aril__message_opts){ .partial = true });
    bool is = m && (aril__message_count(m, "layer") > 0 || aril__message_count(m, "layers") > 0);
    aril__error_release(aril__errors_end(&before));
    aril__message_free(m);
    return is;
}

static aril_status read_wire(const char *path, const aril__bytes *from, aril__solverstate *s)
{
    s->message = aril__message_read(&aril__caffe_SolverState, from->at, from->n,
                                    (aril__message_opts){ .name = path });
    if (!s->message) return aril__latest_status();
    if (!aril__message_has(s->message, "iter") && holds_net(from)) return is_weights(path);
    s->iter = aril__message_int(s->message, "iter");
    s->step = aril__message_int(s->message, "current_step");
    s->n = (int)aril__message_count(s->message, "history");
    if (!aril__message_has(s->message, "learned_net")) return ARIL_OK;
    s->net = aril__strdup(aril__message_text(s->message, "learned_net"));
    return s->net ? ARIL_OK : no_memory(path);
}

static aril_tensor *wire_history(const aril__solverstate *s, int i)
{
    const aril__message *blob = aril__message_sub_at(s->message, "history", (size_t)i);
    aril__proto_array f = aril__message_array(blob, "data"),
                      d = aril__message_array(blob, "double_data");
    bool wide = !f.n && d.n;
    int64_t n = (int64_t)(wide ? d.n : f.n);
    aril_tensor *t = aril_empty(ARIL_SHAPE(n), wide ? ARIL_F64 : ARIL_F32, aril_cpu());
    if (aril_tensor_status(t) != ARIL_OK || n == 0) return t;
    size_t size = wide ? 8 : 4;
    memcpy(aril__ptr(t), wide ? d.at : f.at, (size_t)n * size); /* it may not be aligned */
    aril__to_host_order(aril__ptr(t), size, n, false);
    return t;
}

/* ---- HDF5: iter and current_step, i32 [1]; learned_net; history/0, history/1 ... ---- */

enum { NUMBERS = 2 };
static const char *const number_name[NUMBERS] = { "iter", "current_step" };

static aril_status write_hdf5(const aril__solverstate *s, aril_tensor *const *history,
                              aril__bytes *to)
{
    ARIL_SCOPE;
    static const char text_name[] = "learned_net", group[] = "history";
    size_t most = (size_t)s->n + NUMBERS;
    const int64_t number[NUMBERS] = { s->iter, s->step };
    char(*names)[32] = aril__malloc(most * sizeof *names);
    const char **name = aril__malloc(most * sizeof *name);
    aril_tensor **at = aril__malloc(most * sizeof *at);
    aril_status status = names && name && at ? ARIL_OK : no_memory(NULL);
    for (int i = 0; i < NUMBERS && status == ARIL_OK; i++) {
        name[i] = number_name[i];
        at[i] = aril_cast(aril_from(&number[i], ARIL_SHAPE(1), ARIL_I64, aril_cpu()), ARIL_I32);
        status = aril_tensor_status(at[i]);
    }
    for (int i = 0; i < s->n && status == ARIL_OK; i++) {
        snprintf(names[i], sizeof *names, "history/%d", i);
        name[NUMBERS + i] = names[i];
        at[NUMBERS + i] = history[i];
    }
    if (status == ARIL_OK)
        status = aril__hdf5_image(
            &(aril__hdf5_contents){ .arrays = { .n = s->n + NUMBERS, .at = at, .name = name },
                                    .n_texts = 1,
                                    .text_name = (const char *const[]){ text_name },
                                    .text = (const char *const[]){ s->net },
                                    .n_groups = 1,
                                    .group = (const char *const[]){ group } },
            to);
    free(names);
    free(name);
    free(at);
    return status;
}

static aril_status read_number(const char *path, const aril__hdf5 *file, const char *name,
                               int64_t *to)
{
    ARIL_SCOPE;
    int i = aril__hdf5_find(file, name);
    if (i == ARIL_ERR_MEMORY) return ARIL_ERR_MEMORY;
    aril_shape shape = i < 0 ? (aril_shape){ 0 } : aril__hdf5_array_shape(file, i);
    if (i < 0 || shape.ndim > 1 || (shape.ndim == 1 && shape.dim[0] != 1) ||
        aril_dtype_is_float(aril__hdf5_array_dtype(file, i))) {
        char what[64];
        snprintf(what, sizeof what, "it has no integer '%s'", name);
        return malformed(path, what);
    }
    aril_tensor *t = aril__hdf5_array(file, i);
    if (aril_tensor_status(t) == ARIL_OK) *to = aril_item_int(t);
    return aril_tensor_status(t);
}

static aril_status read_hdf5(const char *path, const aril__bytes *from, aril__solverstate *s)
{
    aril__hdf5_texts net = { 0 }, history = { 0 };
    s->file = aril__hdf5_open_memory(from->at, from->n, path);
    if (!s->file) return aril__latest_status();
    if (aril__hdf5_find(s->file, number_name[0]) < 0) {
        int weights = aril__hdf5_group(s->file, "data", &net);
        aril__hdf5_texts_free(&net);
        if (weights == 0) return is_weights(path);
    }
    aril_status status = read_number(path, s->file, number_name[0], &s->iter);
    if (status == ARIL_OK) status = read_number(path, s->file, number_name[1], &s->step);
    if (status == ARIL_OK) status = aril__hdf5_text_array(s->file, "learned_net", &net);
    if (status == ARIL_OK && net.n > 0 && !(s->net = aril__strdup(net.at[0])))
        status = no_memory(path);
    int is_there = status == ARIL_OK ? aril__hdf5_group(s->file, "history", &history) : 0;
    if (is_there < 0) status = (aril_status)is_there;
    if (is_there == 1) status = malformed(path, "it has no group 'history'");
    s->n = history.n;
    aril__hdf5_texts_free(&net);
    aril__hdf5_texts_free(&history);
    return status;
}

static aril_tensor *hdf5_history(const aril__solverstate *s, int i)
{
    char name[32];
    snprintf(name, sizeof name, "history/%d", i);
    int at = aril__hdf5_find(s->file, name);
    if (at == ARIL_ERR_MEMORY) return aril__poison();
    return at < 0 ? NULL : aril__hdf5_array(s->file, at);
}

/* ---- either ---- */

aril_status aril__solverstate_write(const aril__solverstate *s, aril_tensor *const *history,
                                    bool hdf5, aril__bytes *to)
{
    return (hdf5 ? write_hdf5 : write_wire)(s, history, to);
}

aril_status aril__solverstate_read(const char *path, const aril__bytes *from, aril__solverstate *s)
{
    static const char mark[8] = "\211HDF\r\n\032\n";
    *s = (aril__solverstate){ 0 };
    bool hdf5 = from->n >= sizeof mark && memcmp(from->at, mark, sizeof mark) == 0;
    aril_status status = (hdf5 ? read_hdf5 : read_wire)(path, from, s);
    if (status == ARIL_OK && s->iter < 0)
        status = aril__fail(ARIL_ERR_FORMAT, "%s is at iteration %lld, which is negative", path,
                            (long long)s->iter);
    if (status == ARIL_OK && s->iter > INT32_MAX)
        status = aril__fail(ARIL_ERR_FORMAT, "%s is at iteration %lld; Caffe counts up to %d", path,
                            (long long)s->iter, INT32_MAX);
    if (status != ARIL_OK) aril__solverstate_free(s);
    return status;
}

void aril__solverstate_free(aril__solverstate *s)
{
    aril__message_free(s->message);
    aril__hdf5_close(s->file);
    free(s->net);
    *s = (aril__solverstate){ 0 };
}

aril_tensor *aril__solverstate_history(const aril__solverstate *s, const char *path, int i,
                                       int64_t numel)
{
    aril_tensor *t = s->file ? hdf5_history(s, i) : wire_history(s, i);
    if (!t || (aril_tensor_status(t) == ARIL_OK && aril_numel(t) != numel)) {
        aril__fail(ARIL_ERR_FORMAT,
                   "%s: blob %d of its history has %lld values, the net's %lld; it is of another "
                   "net",
                   path, i, t ? (long long)aril_numel(t) : 0LL, (long long)numel);
        return aril__poison();
    }
    return aril_reshape(aril_cast(t, ARIL_F32), ARIL_SHAPE(numel));
}
