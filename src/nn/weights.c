/* Loading and saving weights. */
#include "nn/module.h"

#include "aril/formats.h"

aril_status aril_save(aril_module *m, const char *path)
{
    /* Tools of the PyTorch ecosystem require this key before they read a file. */
    static const char *const key[] = { "format" }, *const value[] = { "pt" };
    const aril_named *state = aril_state(m);
    if (!state) return aril__last_status();
    return aril_safetensors_save(path, state, &(aril_metadata){ 1, key, value });
}

aril_status aril_load_weights(aril_module *m, const char *path, aril_load_state_opts opts)
{
    if (!m) return aril__fail(ARIL_ERR_ARG, "load_weights: the module is NULL");
    aril_safetensors *f = aril_safetensors_open(path);
    if (!f) return aril__last_status();
    ARIL_SCOPE;
    const aril_named *all = aril_safetensors_all(f);
    aril_status s = all ? aril_load_state(m, all, opts) : aril__last_status();
    aril_safetensors_close(f);
    return s;
}
