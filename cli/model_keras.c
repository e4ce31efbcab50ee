/* Networks that Keras saved, with their configuration. */
#include "commands.h"
#include "model_file.h"

#include <aril/keras.h>

#include <stdlib.h>
#include <string.h>

bool model_is_keras(const model_file *m)
{
    return m->name && strcmp(m->name, "keras") == 0;
}

/* One input of known sizes, but for the batch. */
static bool read_shape(model_file *m)
{
    aril_shape shape = aril_keras_input_shape(m->net, 0);
    bool fits = aril_keras_inputs(m->net) == 1 && shape.ndim >= 2;
    for (int d = 1; d < shape.ndim && fits; d++) fits = shape.dim[d] > 0;
    if (!fits) {
        aril_fail(ARIL_ERR_UNSUPPORTED,
                  "'%s': expected a network with one input [batch, ...] of known sizes", m->path);
        return false;
    }
    m->input.ndim = shape.ndim - 1;
    memcpy(m->input.dim, shape.dim + 1, (size_t)m->input.ndim * sizeof *shape.dim);
    return true;
}

bool model_read_keras(model_file *m)
{
    m->net = aril_keras_load(m->path, (aril_keras_opts){ 0 });
    if (!m->net || !read_shape(m)) return false;
    aril_module_eval(m->net);
    m->scaled = aril_module_keep(m->net);
    m->sized = m->input.ndim == 3;
    m->name = strdup("keras");
    m->data = strdup("");
    return m->name && m->data;
}

bool model_score_keras(model_file *m)
{
    ARIL_SCOPE;
    ARIL_INFERENCE;
    if (!model_is_keras(m)) return true;
    aril_shape one = { .ndim = m->input.ndim + 1, .dim = { 1 } };
    memcpy(one.dim + 1, m->input.dim, (size_t)m->input.ndim * sizeof *one.dim);
    aril_tensor *y = aril_forward(m->net, aril_zeros(one, ARIL_F32, aril_cpu()));
    m->classes = aril_ok() && aril_ndim(y) == 2 ? aril_size(y, 1) : 0;
    if (aril_ok() && m->classes < 1)
        aril_fail(ARIL_ERR_UNSUPPORTED, "'%s': expected a result [batch, classes]", m->path);
    return aril_ok() && model_set_scores(m, y);
}
