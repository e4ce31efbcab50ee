/* Head and backbone of a network: what depends on the number of classes, and the rest. */
#include "aril/zoo.h"

#include "core/error.h"
#include "models/pretrained.h"
#include "nn/module.h"

#include <string.h>

enum { HEAD = 1024 }; /* characters of all names */

/* The layer of a parameter: "fc" of "fc.weight". */
static size_t layer_length(const char *parameter)
{
    const char *dot = strrchr(parameter, '.');
    return dot ? (size_t)(dot - parameter) : 0;
}

/* The parameters of a network without memory for them. */
static const aril_named *sketch(const aril_zoo_entry *e, int64_t classes, aril_module **m)
{
    aril_zoo_opts opts = { .input = e->input, .classes = classes, .aux = true };
    *m = e->make(e, &opts);
    return *m && aril_module_build(*m, opts.input) == ARIL_OK ? aril_parameters(*m) : NULL;
}

/* The layers whose parameters have other shapes with one class more. */
static aril_status compare(const aril_named *a, const aril_named *b, char *buf, size_t size)
{
    size_t used = 0;
    buf[0] = '\0';
    for (int i = 0; i < a->n && i < b->n; i++) {
        aril_shape x = aril_shape_of(a->at[i]), y = aril_shape_of(b->at[i]);
        size_t n = layer_length(a->name[i]);
        bool same = x.ndim == y.ndim && memcmp(x.dim, y.dim, (size_t)x.ndim * sizeof *x.dim) == 0;
        if (same || aril__is_listed(buf, a->name[i], n)) continue;
        if (used + n + 2 > size)
            return aril__fail(ARIL_ERR_ARG, "zoo_head: the names do not fit into %zu characters",
                              size);
        if (used) buf[used++] = ' ';
        memcpy(buf + used, a->name[i], n);
        used += n;
        buf[used] = '\0';
    }
    return ARIL_OK;
}

aril_status aril_zoo_head(const aril_zoo_entry *e, char *buf, size_t size)
{
    aril_module *m[2] = { NULL, NULL };
    if (!e || !buf || size == 0)
        return aril__fail(ARIL_ERR_ARG, "zoo_head: the %s is NULL", e ? "buffer" : "entry");
    bool before = aril__sketch(true);
    const aril_named *a = sketch(e, e->classes, &m[0]);
    const aril_named *b = a ? sketch(e, e->classes + 1, &m[1]) : NULL;
    aril_status status = b ? compare(a, b, buf, size) : aril__last_status();
    aril_module_release(m[0]);
    aril_module_release(m[1]);
    aril__sketch(before);
    return status;
}

static void unfreeze_head(aril_module *m, const char *path, void *ctx)
{
    if (!aril__is_listed(ctx, path, strlen(path))) return;
    aril_module_unfreeze(m);
    aril_module_unfreeze_stats(m);
}

aril_status aril_zoo_freeze_backbone(const aril_zoo_entry *e, aril_module *m)
{
    char head[HEAD];
    if (!m) return aril__fail(ARIL_ERR_ARG, "zoo_freeze_backbone: the module is NULL");
    aril_status status = aril_zoo_head(e, head, sizeof head);
    if (status != ARIL_OK) return status;
    aril_module_freeze(m);
    aril_module_freeze_stats(m);
    status = aril_module_visit(m, unfreeze_head, head);
    if (status != ARIL_OK || aril_trainable_count(m) > 0) return status;
    return aril__fail(
        ARIL_ERR_ARG,
        "zoo_freeze_backbone: the module has none of the layers '%s' of the head of %s", head,
        e->name);
}
