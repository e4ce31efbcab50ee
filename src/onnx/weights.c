/* The initializers of ONNX models as weights. Messages have no mark at their beginning: these files
 * are known by their names. */
#include "core/tensor.h"
#include "formats/schemas.h"
#include "formats/weights/weights.h"
#include "onnx/onnx.h"

#include <stdlib.h>
#include <string.h>

typedef struct onnx_weights {
    aril__message *model;
    char *folder; /* of external data */
} onnx_weights;

static int probe(aril_weights *w)
{
    return aril__ends_with(w->path, ".onnx");
}

static const aril__message *initializer(const onnx_weights *o, uint64_t i)
{
    return aril__message_sub_at(aril__message_sub(o->model, "graph"), "initializer", (size_t)i);
}

static aril_status add(aril_weights *w, size_t i, const aril__message *tensor)
{
    int64_t type = aril__message_int(tensor, "data_type");
    size_t ndim = aril__message_count(tensor, "dims");
    aril_dtype dtype = ARIL_F32;
    aril_shape shape = { 0 };
    bool deep = ndim > ARIL_MAX_DIMS, known = aril__onnx_dtype(type, &dtype);
    for (size_t d = 0; d < ndim && !deep; d++)
        shape.dim[shape.ndim++] = aril__message_int_at(tensor, "dims", d);
    for (int d = 0; d < shape.ndim; d++)
        if (shape.dim[d] < 0)
            return aril__weights_malformed(w, "a size of initializer %zu is negative", i);
    aril__weights_entry *e =
        aril__weights_add(w, aril__message_text(tensor, "name"), dtype, shape, i);
    if (!e) return ARIL_ERR_MEMORY;
    if (deep) return aril__weights_refuse(e, "it has %zu dimensions", ndim);
    return known ? ARIL_OK : aril__weights_refuse(e, "dtype %s", aril__onnx_dtype_name(type));
}

static aril_status open_file(aril_weights *w)
{
    onnx_weights *o = aril__calloc(sizeof *o);
    if (!o) return aril__weights_no_memory(w);
    w->reader = o;
    const char *slash = strrchr(w->path, '/');
    o->folder = aril__strdup(slash ? w->path : ".");
    if (!o->folder) return aril__weights_no_memory(w);
    if (slash) o->folder[slash > w->path ? slash - w->path : 1] = '\0';
    o->model = aril__message_read(&aril__onnx_ModelProto, w->data, w->size,
                                  (aril__message_opts){ .name = w->path });
    if (!o->model) return aril__latest_status();
    size_t n = aril__message_count(aril__message_sub(o->model, "graph"), "initializer");
    aril_status s = ARIL_OK;
    for (size_t i = 0; i < n && s == ARIL_OK; i++) s = add(w, i, initializer(o, i));
    return s;
}

static aril_tensor *tensor(aril_weights *w, int i)
{
    const onnx_weights *o = w->reader;
    onnx_arena arena = { 0 };
    onnx_value v;
    aril_status s = aril__onnx_tensor(&arena, initializer(o, w->entry[i].at), o->folder, &v);
    aril__onnx_arena_free(&arena);
    if (s < 0) aril__fail_about(s, w->path);
    return s == ARIL_OK ? v.tensor : aril__poison();
}

static void close_file(aril_weights *w)
{
    onnx_weights *o = w->reader;
    if (!o) return;
    if (o->model) aril__message_free(o->model);
    free(o->folder);
    free(o);
}

const aril__weights_kind aril__onnx_weights = { .name = "ONNX",
                                                .id = "onnx",
                                                .probe = probe,
                                                .open = open_file,
                                                .tensor = tensor,
                                                .close = close_file };
