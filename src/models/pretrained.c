#include "models/pretrained.h"

#include "aril/published.h"
#include "aril/weights.h"
#include "core/error.h"
#include "models/bert.h"
#include "models/gpt2.h"
#include "nn/module.h"

#include <limits.h>
#include <string.h>

/* ---- names in files ---- */

/* Files that were published before their networks' layers got the names of today. */
static const aril_rename densenet[] = { { "*.norm.1.*", "*.norm1.*" },
                                        { "*.norm.2.*", "*.norm2.*" },
                                        { "*.conv.1.*", "*.conv1.*" },
                                        { "*.conv.2.*", "*.conv2.*" },
                                        { 0 } };
static const aril_rename vit[] = { { "*.mlp.linear_1.*", "*.mlp.0.*" },
                                   { "*.mlp.linear_2.*", "*.mlp.3.*" },
                                   { 0 } };
static const struct {
    const char *family;
    const aril_rename *rename;
} publishers[] = { { "densenet", densenet },
                   { "vit", vit },
                   { "gpt2", aril__gpt2_names },
                   { "bert", aril__bert_names } };

static const aril_rename *rename_of(const aril_zoo_entry *e)
{
    for (size_t i = 0; i < sizeof publishers / sizeof *publishers; i++)
        if (e->family && strcmp(e->family, publishers[i].family) == 0) return publishers[i].rename;
    return NULL;
}

/* ---- what may differ ---- */

bool aril__is_listed(const char *names, const char *name, size_t n)
{
    while (*names) {
        size_t length = strcspn(names, " ");
        if (length == n && memcmp(names, name, n) == 0) return true;
        names += length + (names[length] == ' ');
    }
    return false;
}

/* Whether all lines are parameters of the head. */
static bool are_in_head(const aril_weights_lines *lines, const char *head)
{
    for (int i = 0; i < lines->n; i++) {
        const char *name = lines->at[i].name, *dot = strrchr(name, '.');
        if (!aril__is_listed(head, name, dot ? (size_t)(dot - name) : 0)) return false;
    }
    return true;
}

/* Whether all lines are of auxiliary heads: in the network that has them. */
static bool are_auxiliary(const aril_weights_lines *lines, const aril_zoo_entry *e)
{
    if (lines->n == 0) return true;
    aril_zoo_opts opts = { .input = e->input, .classes = e->classes, .aux = true };
    bool before = aril__sketch(true), all = true;
    aril_module *m = e->make(e, &opts);
    const aril_named *s = m && aril_module_build(m, opts.input) == ARIL_OK ? aril_state(m) : NULL;
    for (int i = 0; i < lines->n && all; i++) {
        bool found = false;
        for (int k = 0; s && k < s->n; k++)
            found |= strcmp(s->name[k], lines->at[i].file_name) == 0;
        all = found;
    }
    aril_module_release(m);
    aril__sketch(before);
    return all;
}

/* Allows what may differ. Returns whether that is anything. */
static bool allow(const aril_zoo_entry *e, const aril_weights_report *r,
                  aril_load_weights_opts *opts)
{
    char head[1024];
    opts->other_shapes = r->other_shape.n > 0 && aril_zoo_head(e, head, sizeof head) == ARIL_OK &&
                         are_in_head(&r->other_shape, head);
    opts->partial = r->missing.n == 0 && r->left_over.n > 0 && are_auxiliary(&r->left_over, e);
    return opts->other_shapes || opts->partial;
}

/* ---- loading ---- */

static aril_status no_default(const aril_zoo_entry *e)
{
    aril_published_file file;
    if (aril_published_count(e) == 0)
        return aril__fail(ARIL_ERR_ARG,
                          "no weights are published for %s; expected a file of weights", e->name);
    aril_status status = aril_published_at(e, 0, &file);
    if (status != ARIL_OK) return status;
    return aril__fail(
        ARIL_ERR_IO,
        "the published weights of %s are not in the cache; `aril zoo get %s` downloads "
        "them to %s",
        e->name, e->name, file.path);
}

/* The error of aril_load_weights, without its advice to set options that there are none of here. */
static void does_not_fit(const aril_zoo_entry *e, aril__error *error)
{
    static const char prefix[] = "load_weights: ";
    const char *text = error->message, *advice = strstr(text, "; set .");
    if (!advice) {
        aril__adopt_error(error);
        return;
    }
    if (strncmp(text, prefix, sizeof prefix - 1) == 0) text += sizeof prefix - 1;
    aril__fail(error->code, "the weights do not fit %s: %.*s", e->name, (int)(advice - text), text);
}

aril_status aril__zoo_load(const aril_zoo_entry *e, aril_module *m, const char *weights)
{
    char path[PATH_MAX];
    if (strcmp(weights, "default") == 0) {
        if (!aril_zoo_weights_path(e, path, sizeof path)) return no_default(e);
        weights = path;
    }
    aril_weights_report report = { 0 };
    aril_load_weights_opts opts = { .rename = rename_of(e), .report = &report };
    aril__saved_errors before = aril__errors_begin_quiet();
    aril_status status = aril_load_weights(m, weights, opts);
    bool again = status != ARIL_OK && allow(e, &report, &opts);
    aril__error *error = aril__errors_end(&before);
    aril_weights_report_free(&report);
    opts.report = NULL;
    if (again) {
        status = aril_load_weights(m, weights, opts);
    } else if (status != ARIL_OK && error) {
        does_not_fit(e, error);
    }
    aril__error_release(error);
    return status;
}
