/* HDF5Output layers: what comes to them, collected and written to their files. */
#include "aril/caffe_solver.h"
#include "aril/create.h"
#include "aril/formats.h"
#include "aril/index.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "core/memory.h"
#include "models/caffe/net.h"
#include "train/caffe/solver.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { BOTTOMS = 2 };

typedef struct output {
    char *file;
    int n;
    aril_tensor **part[BOTTOMS];
} output;

struct aril_caffe_sink {
    aril_module *net;
    int n, n_values; /* files; values that they get in each run */
    output *out;
    int64_t batches, capacity;
};

aril_caffe_sink *aril_caffe_sink_new(aril_module *net)
{
    if (!net || !aril_caffe_is_net(net)) {
        aril__fail(ARIL_ERR_ARG, "caffe_sink: expected a net of Caffe");
        return NULL;
    }
    int layers = aril_caffe_layers(net);
    aril_caffe_sink *s = aril__calloc(sizeof *s);
    output *out = aril__calloc((size_t)(layers + 1) * sizeof *out);
    if (!s || !out) {
        aril__fail(ARIL_ERR_MEMORY, "caffe_sink: out of memory");
        free(s);
        free(out);
        return NULL;
    }
    *s = (aril_caffe_sink){ .net = net, .out = out };
    for (int i = 0; i < layers; i++) {
        aril_caffe_layer l = aril_caffe_layer_at(net, i);
        if (strcmp(l.type, "HDF5Output") != 0) continue;
        output *o = &out[s->n++];
        o->n = l.n_bottoms; /* one or two */
        s->n_values += o->n;
        o->file = aril__strdup(aril__message_text(
            aril__message_sub(aril__caffe_layer_message(net, i), "hdf5_output_param"),
            "file_name"));
        if (o->file) continue;
        aril__fail(ARIL_ERR_MEMORY, "caffe_sink: out of memory");
        aril_caffe_sink_free(s);
        return NULL;
    }
    return s;
}

void aril__caffe_sink_clear(aril_caffe_sink *s)
{
    for (int i = 0; s && i < s->n; i++)
        for (int k = 0; k < BOTTOMS; k++)
            for (int64_t b = 0; b < s->batches && s->out[i].part[k]; b++) {
                aril_release(s->out[i].part[k][b]);
                s->out[i].part[k][b] = NULL;
            }
    if (s) s->batches = 0;
}

void aril_caffe_sink_free(aril_caffe_sink *s)
{
    if (!s) return;
    aril__caffe_sink_clear(s);
    for (int i = 0; i < s->n; i++) {
        for (int k = 0; k < BOTTOMS; k++) free(s->out[i].part[k]);
        free(s->out[i].file);
    }
    free(s->out);
    free(s);
}

int aril_caffe_sink_files(const aril_caffe_sink *s)
{
    return s ? s->n : 0;
}

/* Makes room for another batch; new places are NULL. */
static aril_status reserve(aril_caffe_sink *s)
{
    if (s->batches < s->capacity) return ARIL_OK;
    int64_t capacity = s->capacity ? 2 * s->capacity : 64;
    for (int i = 0; i < s->n; i++)
        for (int k = 0; k < s->out[i].n; k++) {
            aril_tensor **more = aril__realloc(s->out[i].part[k], (size_t)capacity * sizeof *more);
            if (!more) return aril__fail(ARIL_ERR_MEMORY, "caffe_sink: out of memory");
            memset(more + s->capacity, 0, (size_t)(capacity - s->capacity) * sizeof *more);
            s->out[i].part[k] = more;
        }
    s->capacity = capacity;
    return ARIL_OK;
}

static aril_status keep(aril_tensor *value, aril_tensor **to)
{
    ARIL_SCOPE;
    aril_tensor *t = aril_contiguous(aril_to(aril_cast(value, ARIL_F32), aril_cpu()));
    if (aril_tensor_status(t) == ARIL_OK && aril_ndim(t) == 0) t = aril_reshape(t, ARIL_SHAPE(1));
    t = aril_copy(t); /* a program may use its memory again */
    if (aril_tensor_status(t) == ARIL_OK) *to = aril_keep(t);
    return aril_tensor_status(t);
}

int aril__caffe_sink_values(const aril_caffe_sink *s)
{
    return s ? s->n_values : 0;
}

aril_status aril__caffe_sink_keep(aril_caffe_sink *s, aril_tensor *const *value)
{
    if (!s || s->n == 0) return ARIL_OK;
    ARIL_NO_GRAD;
    aril_status status = reserve(s);
    for (int i = 0; i < s->n && status == ARIL_OK; i++) {
        output *o = &s->out[i];
        for (int k = 0; k < o->n && status == ARIL_OK; k++)
            status = keep(*value++, &o->part[k][s->batches]);
    }
    /* Also after a failure: what was kept is released with the sink. */
    s->batches += s->capacity > s->batches;
    return status;
}

aril_status aril_caffe_sink_add(aril_caffe_sink *s, aril_list in, aril_tensor **out)
{
    if (!s) return aril__fail(ARIL_ERR_ARG, "caffe_sink_add: the sink is NULL");
    int n = aril_caffe_outputs(s->net) + 1;
    aril_tensor **all = aril__calloc((size_t)(n + s->n_values) * sizeof *all);
    if (!all) return aril__fail(ARIL_ERR_MEMORY, "caffe_sink: out of memory");
    aril_status status = aril_forward_all(s->net, in, n + s->n_values, all);
    if (status == ARIL_OK) status = aril__caffe_sink_keep(s, all + n);
    for (int i = 0; i < n && out; i++) out[i] = all[i];
    free(all);
    return status;
}

aril_status aril__caffe_sink_place(aril_caffe_sink *s, const aril_caffe_solver *solver)
{
    for (int i = 0; s && i < s->n; i++) {
        char *path = aril__caffe_output_path(solver, s->out[i].file);
        if (!path) return aril__latest_status();
        free(s->out[i].file);
        s->out[i].file = path;
    }
    return ARIL_OK;
}

aril_status aril_caffe_sink_write(aril_caffe_sink *s)
{
    static const char *const names[BOTTOMS] = { "data", "label" };
    if (!s || s->batches > INT_MAX)
        return aril__fail(ARIL_ERR_ARG, "caffe_sink_write: %s",
                          s ? "too many batches" : "the sink is NULL");
    aril_status status = ARIL_OK;
    for (int i = 0; i < s->n && s->batches > 0 && status == ARIL_OK; i++) {
        ARIL_SCOPE;
        aril_tensor *all[BOTTOMS];
        output *o = &s->out[i];
        for (int k = 0; k < o->n && status == ARIL_OK; k++) {
            all[k] = aril_cat((aril_list){ .n = (int)s->batches, .at = o->part[k] }, 0);
            status = aril_tensor_status(all[k]);
        }
        if (status == ARIL_OK)
            status = aril_hdf5_write(o->file, &(aril_named){ .n = o->n, .at = all, .name = names });
    }
    aril__caffe_sink_clear(s);
    return status;
}
