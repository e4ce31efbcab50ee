/* HDF5 files as weights: arrays under their full names, "group/x". Of Keras' files, those of the
 * model: without the optimizer's, and for .h5 by layer, without "model_weights/". */
#include "formats/hdf5.h"

#include "aril/scope.h"
#include "core/error.h"
#include "core/memory.h"
#include "formats/keras.h"
#include "formats/weights/weights.h"

#include <stdlib.h>
#include <string.h>

static int probe_hdf5(aril_weights *w)
{
    static const char mark[] = "\211HDF\r\n\032\n";
    if (w->size >= 8 && memcmp(w->data, mark, 8) == 0) return 1;
    aril_status status;
    const aril__zip *z = aril__weights_zip(w, &status);
    for (int i = 0; z && i < z->n; i++)
        if (strcmp(z->member[i].name, "model.weights.h5") == 0) return 1;
    return z ? 0 : status;
}

/* The name of an array below a part of the file; NULL: it is not in it. */
static const char *below(const char *name, const char *root)
{
    size_t n = strlen(root);
    if (n == 0) return name;
    return strncmp(name, root, n) == 0 && name[n] == '/' ? name + n + 1 : NULL;
}

static bool is_model(const aril__hdf5 *h, aril__hdf5_texts *layers)
{
    return aril__hdf5_attribute(h, "model_weights", "layer_names", layers) == ARIL_OK &&
           layers->n > 0;
}

static aril_status list(aril_weights *w, const aril__hdf5 *h)
{
    bool all = w->root_wanted && !*w->root_wanted;
    const char *root = w->root ? w->root : "";
    for (int i = 0; i < aril__hdf5_count(h); i++) {
        const char *full = aril__hdf5_array_name(h, i), *name = below(full, root);
        bool optimizer = below(full, "optimizer") || below(full, "optimizer_weights");
        if (!name || (optimizer && !all && !*root)) continue;
        if (!aril__weights_add(w, name, aril__hdf5_array_dtype(h, i), aril__hdf5_array_shape(h, i),
                               (uint64_t)i))
            return ARIL_ERR_MEMORY;
    }
    if (w->n || !w->root_wanted || all) return ARIL_OK;
    return aril__fail(ARIL_ERR_ARG, "%s has no arrays below \"%s\"", w->path, w->root_wanted);
}

static aril_status open_hdf5(aril_weights *w)
{
    aril__keras_file *f = aril__calloc(sizeof *f);
    if (!f) return aril__weights_no_memory(w);
    aril_status s = aril__keras_open(f, w->path);
    if (s < 0) {
        free(f);
        return s;
    }
    w->reader = f;
    aril__hdf5_texts layers = { 0 };
    const char *root = w->root_wanted;
    if (!root && is_model(f->arrays, &layers)) root = "model_weights";
    aril__hdf5_texts_free(&layers);
    if (root && *root) {
        w->root = aril__strdup(root);
        if (!w->root) return aril__weights_no_memory(w);
    }
    if (f->version) s = aril__weights_note(w, "keras_version", f->version);
    return s == ARIL_OK ? list(w, f->arrays) : s;
}

static aril_tensor *hdf5_tensor(aril_weights *w, int i)
{
    const aril__keras_file *f = w->reader;
    return aril__hdf5_array(f->arrays, (int)w->entry[i].at);
}

static void close_hdf5(aril_weights *w)
{
    if (w->reader) aril__keras_close(w->reader);
    free(w->reader);
}

static aril_status save_hdf5(const char *path, const aril_named *tensors,
                             const aril_metadata *metadata)
{
    (void)metadata; /* arrays only */
    return aril_hdf5_write(path, tensors);
}

const aril__weights_kind aril__hdf5_weights = { .name = "HDF5",
                                                .id = "hdf5",
                                                .extensions = ".h5 .hdf5",
                                                .probe = probe_hdf5,
                                                .open = open_hdf5,
                                                .tensor = hdf5_tensor,
                                                .close = close_hdf5,
                                                .save = save_hdf5 };
