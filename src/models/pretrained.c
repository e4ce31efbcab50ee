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

static bool is_same(aril_shape a, aril_shape b)
{
    return a.ndim == b.ndim && memcmp(a.dim, b.dim, (size_t)a.ndim * sizeof *a.dim) == 0;
}

/* The number of classes that a file has by a parameter of another shape; 0: something else than the
 * classes differs. */
static int64_t classes_of(const aril_weights_line *line, int64_t classes)
{
    for (int i = 0; i < line->shape.ndim && i < line->file_shape.ndim; i++) {
        int64_t here = line->shape.dim[i], there = line->file_shape.dim[i];
        if (here != there) return here == classes && there > 0 ? there : 0;
    }
    return 0;
}

/* Whether the parameters of other shapes, and no others, are those of the network with so many
 * classes. */
static bool are_with_classes(const aril_weights_lines *lines, const aril_named *state,
                             const aril_named *other)
{
    int differing = 0, found = 0;
    for (int k = 0; k < other->n; k++) {
        aril_shape want = aril_shape_of(other->at[k]);
        if (k < state->n && !is_same(aril_shape_of(state->at[k]), want)) differing++;
        for (int i = 0; i < lines->n; i++)
            found += strcmp(lines->at[i].name, other->name[k]) == 0 &&
                     is_same(lines->at[i].file_shape, want);
    }
    return differing == found && found == lines->n;
}

/* The number of classes of a network that has the parameters of other shapes as the file does, and
 * all others as m; 0: there is none. */
static int64_t classes_in_file(const aril_zoo_entry *e, aril_module *m, const aril_zoo_opts *opts,
                               const aril_weights_lines *lines)
{
    aril_zoo_opts with = *opts;
    with.classes = lines->n ? classes_of(&lines->at[0], opts->classes) : 0;
    if (with.classes == 0) return 0;
    bool before = aril__sketch(true);
    aril_module *other = e->make(e, &with);
    const aril_named *s =
        other && aril_module_build(other, with.input) == ARIL_OK ? aril_state(other) : NULL;
    const aril_named *state = s ? aril_state(m) : NULL;
    bool fits = state && are_with_classes(lines, state, s);
    aril_module_release(other);
    aril__sketch(before);
    return fits ? with.classes : 0;
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

/* What a file has that differs in allowed ways. */
typedef struct difference {
    int64_t classes; /* of the file, if its head is for others; else 0 */
    bool auxiliary;  /* the file has auxiliary heads, and m none */
} difference;

static difference compare(const aril_zoo_entry *e, aril_module *m, const aril_zoo_opts *opts,
                          const aril_weights_report *r)
{
    return (difference){ .classes = classes_in_file(e, m, opts, &r->other_shape),
                         .auxiliary = r->missing.n == 0 && r->left_over.n > 0 &&
                                      are_auxiliary(&r->left_over, e) };
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

/* The part of a file where a parameter that is missing is: "ema.model" of "ema.model.conv1.weight".
 * Written to `part`, empty if there is none. */
static void find_part(const aril_weights_report *r, char *part, size_t size)
{
    const char *name = r->missing.n ? r->missing.at[0].name : "";
    size_t n = strlen(name);
    part[0] = '\0';
    for (int i = 0; i < r->left_over.n && n; i++) {
        const char *other = r->left_over.at[i].file_name;
        size_t length = strlen(other);
        if (length <= n + 1 || strcmp(other + length - n, name) != 0 ||
            other[length - n - 1] != '.')
            continue;
        snprintf(part, size, "%.*s", (int)(length - n - 1), other);
        return;
    }
}

/* The same with the part that was read, as a root; empty if a file has long names, but no parts. */
static void find_root(const char *path, const aril_zoo_opts *zoo, const char *part, char *root,
                      size_t size)
{
    aril_weights *w =
        *part ? aril_weights_open(path, (aril_weights_opts){ .root = zoo->root }) : NULL;
    const char *read = w ? aril_weights_root(w) : "";
    snprintf(root, size, "%s%s%s", read, *read ? "." : "", part);
    aril_weights_close(w);
    w = *root ? aril_weights_open(path, (aril_weights_opts){ .root = root }) : NULL;
    if (!w) root[0] = '\0';
    aril_weights_close(w);
}

/* The error of aril_load_weights, without its advice to set options that there are none of here.
 * `root`: where the weights are instead; empty: unknown. */
static void does_not_fit(const aril_zoo_entry *e, aril__error *error, const char *root)
{
    static const char prefix[] = "load_weights: ";
    const char *text = error->message, *advice = strstr(text, "; set .");
    if (!advice) {
        aril__adopt_error(error);
        return;
    }
    if (strncmp(text, prefix, sizeof prefix - 1) == 0) text += sizeof prefix - 1;
    aril__fail(error->code, "the weights do not fit %s: %.*s%s%s%s%s%s", e->name,
               (int)(advice - text), text, *root ? "; the file has them in its part '" : "", root,
               *root ? "': select it as the root (--root " : "", root, *root ? ")" : "");
}

aril_status aril__zoo_load(const aril_zoo_entry *e, aril_module *m, const aril_zoo_opts *zoo,
                           bool new_head)
{
    char path[PATH_MAX];
    const char *weights = zoo->weights;
    if (strcmp(weights, "default") == 0) {
        if (!aril_zoo_weights_path(e, path, sizeof path)) return no_default(e);
        weights = path;
    }
    aril_weights_report report = { 0 };
    difference d = { 0 };
    char part[256], root[512] = "";
    aril_load_weights_opts opts = { .root = zoo->root, .rename = rename_of(e), .report = &report };
    aril__saved_errors before = aril__errors_begin_quiet();
    aril_status status = aril_load_weights(m, weights, opts);
    if (status != ARIL_OK) {
        d = compare(e, m, zoo, &report);
        find_part(&report, part, sizeof part);
        find_root(weights, zoo, part, root, sizeof root);
    }
    aril__error *error = aril__errors_end(&before);
    aril_weights_report_free(&report);
    opts.report = NULL;
    opts.other_shapes = d.classes > 0;
    opts.partial = d.auxiliary;
    if (d.classes > 0 && !new_head)
        status = aril__fail(ARIL_ERR_SHAPE,
                            "%s: the weights are for %lld classes, %s has %lld; create it with "
                            "%lld classes to use them",
                            weights, (long long)d.classes, e->name, (long long)zoo->classes,
                            (long long)d.classes);
    else if (opts.other_shapes || opts.partial)
        status = aril_load_weights(m, weights, opts);
    else if (status != ARIL_OK && error)
        does_not_fit(e, error, root);
    aril__error_release(error);
    return status;
}
