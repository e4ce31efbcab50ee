/* A GPT-2 from a folder as Hugging Face has it: config.json and model.safetensors. */
#include "aril/create.h"
#include "aril/dtype.h"
#include "aril/formats.h"
#include "aril/generate.h"
#include "aril/scope.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/shape.h"
#include "core/tensor.h"
#include "formats/bytes.h"
#include "formats/json.h"
#include "models/gpt2.h"
#include "nn/module.h"

#include <stdlib.h>
#include <string.h>

enum { LONGEST_CONFIG = 1 << 20 };
static const char prefix[] = "transformer.";

/* ---- config.json ---- */

/* A key with a number. */
static bool read_size(aril__json *j, const char *key, aril_gpt2_opts *o)
{
    static const char *const names[] = { "vocab_size", "n_positions", "n_ctx",  "n_embd",
                                         "n_head",     "n_layer",     "n_inner" };
    uint64_t value;
    for (int i = 0; i < 7; i++) {
        if (strcmp(key, names[i]) != 0) continue;
        if (aril__json_peek(j) == 'n') return aril__json_skip(j); /* null: the default */
        if (!aril__json_unsigned(j, &value)) return true;
        if (value > INT32_MAX || value == 0) {
            aril__json_wrong(j, "a size from 1 to 2147483647 was expected");
            return true;
        }
        int64_t n = (int64_t)value;
        switch (i) {
        case 0: o->vocabulary = n; break;
        case 1: o->context = n; break;
        case 2: o->context = o->context ? o->context : n; break;
        case 3: o->width = n; break;
        case 4: o->heads = n; break;
        case 5: o->layers = (int)n; break;
        default: o->inner = n; break;
        }
        return true;
    }
    return false;
}

/* A key whose value must be a certain one; false: another key, or it is as it must be. */
static bool read_fixed(aril__json *j, const char *path, const char *key, aril_status *status)
{
    static const struct {
        const char *key, *value, *or_value;
    } fixed[] = {
        { "model_type", "\"gpt2\"", NULL },
        { "activation_function", "\"gelu_new\"", "\"gelu_pytorch_tanh\"" },
        { "scale_attn_weights", "true", NULL },
        { "scale_attn_by_inverse_layer_idx", "false", NULL },
        { "add_cross_attention", "false", NULL },
        { "tie_word_embeddings", "true", NULL },
    };
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        if (strcmp(key, fixed[i].key) != 0) continue;
        aril__json_peek(j);
        const char *text = j->text + j->at;
        if (!aril__json_skip(j)) return true;
        size_t n = (size_t)(j->text + j->at - text);
        const char *wanted[] = { fixed[i].value, fixed[i].or_value };
        for (int k = 0; k < 2; k++)
            if (wanted[k] && strlen(wanted[k]) == n && memcmp(wanted[k], text, n) == 0) return true;
        *status = aril__fail(ARIL_ERR_UNSUPPORTED, "%s: expected %s %s of a GPT-2, got %.*s", path,
                             key, fixed[i].value, (int)(n < 80 ? n : 80), text);
        return true;
    }
    return false;
}

static aril_status read_config(const char *path, aril_gpt2_opts *o)
{
    aril__bytes text = { 0 };
    aril_status status = aril__read_file("config", path, LONGEST_CONFIG, &text);
    if (status != ARIL_OK) return status;
    aril__json j = { .text = (const char *)text.at, .size = text.n };
    for (bool more = aril__json_enter(&j, '{'); more && status == ARIL_OK;
         more = aril__json_more(&j, '}')) {
        char *key = aril__json_key(&j);
        if (!key) break;
        if (strcmp(key, "layer_norm_epsilon") == 0)
            aril__json_number(&j, &o->eps);
        else if (!read_size(&j, key, o) && !read_fixed(&j, path, key, &status))
            aril__json_skip(&j);
        free(key);
    }
    if (status == ARIL_OK && !aril__json_end(&j))
        status = aril__fail(j.memory ? ARIL_ERR_MEMORY : ARIL_ERR_FORMAT, "%s: %s at character %zu",
                            path, j.wrong, j.at);
    aril__bytes_free(&text);
    return status;
}

/* ---- model.safetensors ---- */

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}

/* What published files hold besides parameters: masks of attention, and the tied last layer. */
static bool is_extra(const char *name)
{
    return ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias") ||
           strcmp(name, "lm_head.weight") == 0;
}

static int find(const aril_safetensors *f, const char *name)
{
    aril__bytes full = { 0 };
    int i = aril_safetensors_find(f, name);
    if (i >= 0) return i;
    aril__bytes_print(&full, "%s%s", prefix, name);
    if (!full.failed) i = aril_safetensors_find(f, (const char *)full.at);
    aril__bytes_free(&full);
    return i;
}

/* Puts a tensor of the file in the place of a parameter: there are never two of them, but for
 * one. */
static aril_status take(aril_module *m, aril_safetensors *f, const char *path, const char *name,
                        const aril_tensor *now)
{
    ARIL_SCOPE;
    int i = find(f, name);
    if (i < 0)
        return aril__fail(ARIL_ERR_FORMAT, "%s has no tensor %s, which the network needs", path,
                          name);
    aril_shape shape = aril_safetensors_shape(f, i);
    if (shape.ndim != now->ndim ||
        memcmp(shape.dim, now->dim, (size_t)now->ndim * sizeof *now->dim) != 0) {
        char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_SHAPE, "%s: %s has the shape %s, expected %s by config.json",
                          path, name, aril__shape_text(a, shape.ndim, shape.dim),
                          aril__text(b, now));
    }
    if (!aril_dtype_is_float(aril_safetensors_dtype(f, i)))
        return aril__fail(ARIL_ERR_DTYPE, "%s: %s has the dtype %s, expected floats", path, name,
                          aril_dtype_name(aril_safetensors_dtype(f, i)));
    aril_tensor *t = aril_cast(aril_safetensors_tensor(f, i), ARIL_F32);
    if (aril_tensor_status(t) < 0) return aril_tensor_status(t);
    aril_tensor *mine = aril_parameter(t); /* kept */
    aril_status status = aril_module_share(m, name, mine);
    aril_release(mine);
    return status;
}

static aril_status take_all(aril_module *m, aril_safetensors *f, const char *path)
{
    const aril_named *state = aril_state(m);
    if (!state) return aril__last_status();
    int n = state->n;
    char **names = aril__calloc((size_t)n * sizeof *names); /* the list changes meanwhile */
    aril_status status = ARIL_OK;
    for (int i = 0; names && i < n; i++)
        if (!(names[i] = aril__strdup(state->name[i]))) status = ARIL_ERR_MEMORY;
    if (!names || status != ARIL_OK) status = aril__fail(ARIL_ERR_MEMORY, "out of memory");
    for (int i = 0; i < n && status == ARIL_OK; i++)
        status = take(m, f, path, names[i], aril_module_tensor(m, names[i]));
    for (int i = 0; i < aril_safetensors_count(f) && status == ARIL_OK; i++) {
        const char *name = aril_safetensors_name(f, i);
        if (is_extra(name)) continue;
        if (strncmp(name, prefix, strlen(prefix)) == 0) name += strlen(prefix);
        if (aril__find_own(m, name)) continue;
        status = aril__fail(ARIL_ERR_FORMAT, "%s: the network has no place for the tensor %s", path,
                            aril_safetensors_name(f, i));
    }
    for (int i = 0; names && i < n; i++) free(names[i]);
    free(names);
    return status;
}

aril_module *aril_gpt2_load(const char *folder)
{
    if (!folder) {
        aril__fail(ARIL_ERR_ARG, "gpt2_load: the folder is NULL");
        return NULL;
    }
    ARIL_SCOPE;
    aril_gpt2_opts o = { 0 };
    aril__bytes config = { 0 }, weights = { 0 };
    aril__bytes_print(&config, "%s/config.json", folder);
    aril__bytes_print(&weights, "%s/model.safetensors", folder);
    aril_status status = config.failed || weights.failed
                             ? aril__fail(ARIL_ERR_MEMORY, "out of memory for a path")
                             : read_config((const char *)config.at, &o);
    const char *path = (const char *)weights.at;
    aril_safetensors *f = status == ARIL_OK ? aril_safetensors_open(path) : NULL;
    aril_module *m = f ? aril__gpt2_empty(o) : NULL;
    if (m && take_all(m, f, path) < 0) {
        aril_module_release(m);
        m = NULL;
    }
    if (m) aril_module_eval(m);
    aril_safetensors_close(f);
    aril__bytes_free(&config);
    aril__bytes_free(&weights);
    return m;
}
