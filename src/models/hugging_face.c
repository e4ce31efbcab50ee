#include "models/hugging_face.h"

#include "aril/create.h"
#include "aril/dtype.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/shape.h"
#include "core/tensor.h"
#include "formats/bytes.h"
#include "formats/json.h"
#include "formats/weights/weights.h"
#include "nn/module.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_CONFIG = 1 << 20, LONGEST_NAME = 4096 };

/* ---- config.json ---- */

static void read_number(aril__json *j, const aril__config_key *key, void *to)
{
    double value;
    if (aril__json_peek(j) == 'n') { /* null: the default */
        aril__json_skip(j);
        return;
    }
    if (!aril__json_number(j, &value)) return;
    bool rate = key->kind == ARIL__CONFIG_RATE;
    if (rate && !(value >= 0 && value <= 1))
        aril__json_wrong(j, "a number from 0 to 1 was expected");
    else if (!(value >= 0 && isfinite(value)))
        aril__json_wrong(j, "a finite number that is not negative was expected");
    else
        memcpy(to, &(double){ rate && value == 0 ? ARIL_ZERO : value }, sizeof value);
}

static void read_size(aril__json *j, const aril__config_key *key, void *to)
{
    uint64_t value;
    int64_t now = 0;
    if (aril__json_peek(j) == 'n') {
        aril__json_skip(j);
        return;
    }
    if (!aril__json_unsigned(j, &value)) return;
    if (value > INT32_MAX || value == 0) {
        aril__json_wrong(j, "a size from 1 to 2147483647 was expected");
        return;
    }
    int64_t size = (int64_t)value;
    int count = (int)value;
    if (key->kind == ARIL__CONFIG_FALLBACK) memcpy(&now, to, sizeof now);
    if (key->kind == ARIL__CONFIG_COUNT)
        memcpy(to, &count, sizeof count);
    else if (now == 0)
        memcpy(to, &size, sizeof size);
}

/* A key with a number; false: another key. */
static bool read_key(aril__json *j, const aril__config *config, const char *name, void *opts)
{
    for (const aril__config_key *k = config->keys; k->key; k++) {
        if (strcmp(name, k->key) != 0) continue;
        void *to = (char *)opts + k->offset;
        if (k->kind == ARIL__CONFIG_NUMBER || k->kind == ARIL__CONFIG_RATE)
            read_number(j, k, to);
        else
            read_size(j, k, to);
        return true;
    }
    return false;
}

/* A key whose value must be a certain one; false: another key. */
static bool read_fixed(aril__json *j, const char *path, const aril__config *config,
                       const char *name, aril_status *status)
{
    for (const aril__config_fixed *f = config->fixed; f->key; f++) {
        if (strcmp(name, f->key) != 0) continue;
        aril__json_peek(j);
        const char *text = j->text + j->at;
        if (!aril__json_skip(j)) return true;
        size_t n = (size_t)(j->text + j->at - text);
        const char *wanted[] = { f->value, f->or_value };
        for (int k = 0; k < 2; k++)
            if (wanted[k] && strlen(wanted[k]) == n && memcmp(wanted[k], text, n) == 0) return true;
        *status = aril__fail(ARIL_ERR_UNSUPPORTED, "%s: expected %s %s of a %s, got %.*s", path,
                             name, f->value, config->model, (int)(n < 80 ? n : 80), text);
        return true;
    }
    return false;
}

static aril_status parse(const char *path, const aril__bytes *text, const aril__config *config,
                         void *opts)
{
    aril_status status = ARIL_OK;
    char latest[40] = "";
    aril__json j = { .text = (const char *)text->at, .size = text->n };
    for (bool more = aril__json_enter(&j, '{'); more && status == ARIL_OK;
         more = aril__json_more(&j, '}')) {
        char *key = aril__json_key(&j);
        if (!key) break;
        snprintf(latest, sizeof latest, "%s", key);
        if (!read_key(&j, config, key, opts) && !read_fixed(&j, path, config, key, &status))
            aril__json_skip(&j);
        free(key);
    }
    if (status != ARIL_OK || aril__json_end(&j)) return status;
    return aril__fail(j.memory ? ARIL_ERR_MEMORY : ARIL_ERR_FORMAT, "%s: %s%s%s at character %zu",
                      path, latest, *latest ? ": " : "", j.wrong, j.at);
}

aril_status aril__config_read(const char *folder, const aril__config *config, void *opts)
{
    aril__bytes path = { 0 }, text = { 0 };
    aril__bytes_print(&path, "%s/config.json", folder);
    const char *name = (const char *)path.at;
    aril_status status = path.failed ? aril__fail(ARIL_ERR_MEMORY, "out of memory for a path")
                                     : aril__read_file("config", name, LONGEST_CONFIG, &text);
    if (status == ARIL_OK) status = parse(name, &text, config, opts);
    aril__bytes_free(&path);
    aril__bytes_free(&text);
    return status;
}

/* ---- weights ---- */

/* Puts tensor i of the file in the place of the parameter `now`. */
static aril_status take(aril_module *m, aril_weights *w, int i, const char *path, const char *name,
                        const aril_tensor *now)
{
    ARIL_SCOPE;
    aril_shape shape = aril_weights_shape(w, i);
    if (shape.ndim != now->ndim ||
        memcmp(shape.dim, now->dim, (size_t)now->ndim * sizeof *now->dim) != 0) {
        char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_SHAPE, "%s: %s has the shape %s, expected %s by config.json",
                          path, name, aril__shape_text(a, shape.ndim, shape.dim),
                          aril__text(b, now));
    }
    if (!aril_dtype_is_float(aril_weights_dtype(w, i)))
        return aril__fail(ARIL_ERR_DTYPE, "%s: %s has the dtype %s, expected floats", path, name,
                          aril_dtype_name(aril_weights_dtype(w, i)));
    aril_tensor *t = aril_contiguous(aril_cast(aril_weights_tensor(w, i), ARIL_F32));
    if (aril_tensor_status(t) < 0) return aril_tensor_status(t);
    aril_tensor *mine = aril_parameter(t); /* kept */
    aril_status status = aril_module_share(m, name, mine);
    aril_release(mine);
    return status;
}

/* The parameters of m, whose list changes meanwhile. */
typedef struct wanted {
    int n;
    char **name;
    bool *taken;
} wanted;

static aril_status list_wanted(aril_module *m, wanted *list)
{
    const aril_named *state = aril_state(m);
    if (!state) return aril__last_status();
    list->name = aril__calloc(((size_t)state->n + 1) * sizeof *list->name);
    list->taken = aril__calloc((size_t)state->n + 1);
    bool good = list->name && list->taken;
    for (; good && list->n < state->n; list->n++)
        good = (list->name[list->n] = aril__strdup(state->name[list->n])) != NULL;
    return good ? ARIL_OK : aril__fail(ARIL_ERR_MEMORY, "out of memory");
}

static int find(const wanted *list, const char *name)
{
    for (int i = 0; i < list->n; i++)
        if (list->name[i] && strcmp(list->name[i], name) == 0) return i;
    return -1;
}

static aril_status take_all(aril_module *m, aril_weights *w, const char *path,
                            const aril_rename *rules, const wanted *list)
{
    aril_status status = ARIL_OK;
    for (int i = 0; i < aril_weights_count(w) && status == ARIL_OK; i++) {
        char buf[LONGEST_NAME];
        const char *in_file = aril_weights_name(w, i);
        status = aril__rename(in_file, rules, buf, sizeof buf);
        if (status != ARIL_OK || !*buf) continue;
        int k = find(list, buf);
        if (k < 0)
            status = aril__fail(ARIL_ERR_FORMAT, "%s: the network has no place for the tensor %s",
                                path, in_file);
        else if (list->taken[k])
            status = aril__fail(ARIL_ERR_FORMAT, "%s: two tensors have the place of %s", path,
                                list->name[k]);
        else
            status = take(m, w, i, path, list->name[k], aril_module_tensor(m, list->name[k]));
        if (status == ARIL_OK) list->taken[k] = true;
    }
    for (int k = 0; k < list->n && status == ARIL_OK; k++)
        if (!list->taken[k])
            status = aril__fail(ARIL_ERR_FORMAT, "%s has no tensor %s, which the network needs",
                                path, list->name[k]);
    return status == ARIL_OK ? aril_weights_check(w) : status;
}

aril_status aril__take_weights(aril_module *m, const char *folder, const aril_rename *rules)
{
    wanted list = { 0 };
    aril_weights *w =
        aril_weights_open(folder, (aril_weights_opts){ .unwrap = true, .verify = true });
    if (!w) return aril__last_status();
    aril_status status = list_wanted(m, &list);
    if (status == ARIL_OK) status = take_all(m, w, folder, rules, &list);
    for (int i = 0; i < list.n; i++) free(list.name[i]);
    free(list.name);
    free(list.taken);
    aril_weights_close(w);
    return status;
}
