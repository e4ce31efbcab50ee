/* Safetensors as weights. */
#include "formats/safetensors.h"

#include "core/error.h"
#include "formats/weights/weights.h"

/* The 8 bytes of the header's length may be those of another format's magic number, but only here a
 * JSON object follows. */
static int probe(aril_weights *w)
{
    if (w->size < 10 || aril__le64(w->data) > w->size - 8 || w->data[8] != '{') return 0;
    return w->data[9] == '"' || w->data[9] == '}' || w->data[9] <= ' ';
}

static aril_status open_file(aril_weights *w)
{
    aril_safetensors *f = aril__safetensors_open_named(w->path, w->data, w->size);
    w->reader = f;
    if (!f) return aril__latest_status();
    for (int i = 0; i < aril_safetensors_count(f); i++)
        if (!aril__weights_add(w, aril_safetensors_name(f, i), aril_safetensors_dtype(f, i),
                               aril_safetensors_shape(f, i), aril__safetensors_at(f, i)))
            return ARIL_ERR_MEMORY;
    aril_metadata m = aril_safetensors_metadata(f);
    aril_status status = ARIL_OK;
    for (int i = 0; i < m.n && status == ARIL_OK; i++)
        status = aril__weights_note(w, m.key[i], m.value[i]);
    return status;
}

static aril_tensor *tensor(aril_weights *w, int i)
{
    const aril__weights_entry *e = &w->entry[i];
    return aril__weights_map(w, w->data + e->at, e->shape, e->dtype, false);
}

static void close_file(aril_weights *w)
{
    aril_safetensors_close(w->reader);
}

const aril__weights_kind aril__safetensors_weights = { .name = "safetensors",
                                                       .id = "safetensors",
                                                       .extensions = ".safetensors",
                                                       .probe = probe,
                                                       .open = open_file,
                                                       .tensor = tensor,
                                                       .close = close_file,
                                                       .save = aril_safetensors_save,
                                                       .save_part = aril__safetensors_save_part };
