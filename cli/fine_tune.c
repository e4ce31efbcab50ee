#include "fine_tune.h"

#include "commands.h"

#include <aril/published.h>
#include <aril/weights.h>

#include <stdlib.h>
#include <string.h>

bool fine_tune_check(const char *model, const char *weights, const char *freeze)
{
    bool file = model_is_file(model);
    if (weights && file)
        aril_fail(ARIL_ERR_ARG,
                  "--weights is for networks of the zoo, by name; '%s' has weights of its own",
                  model);
    else if (freeze && !weights && !file)
        aril_fail(ARIL_ERR_ARG,
                  "--freeze %s is for weights that were trained before: set --weights FILE, or "
                  "--weights default for the published ones",
                  freeze);
    return aril_ok();
}

bool fine_tune_begin(model_file *m, const char *name, const char *weights, bool sized)
{
    const aril_zoo_entry *e = weights ? aril_zoo_find(name) : NULL;
    if (!weights || !e) return !weights;
    m->weights = weights;
    m->name = strdup(name);
    m->input = e->input;
    m->prepared = !sized && e->input.ndim == 3;
    return m->name != NULL;
}

bool fine_tune_freeze(const model_file *m, const char *freeze)
{
    const aril_zoo_entry *e = freeze ? aril_zoo_find(m->name) : NULL;
    return !freeze || (e && aril_zoo_freeze_backbone(e, m->net) == ARIL_OK);
}

/* The number of classes of the weights in a file, by its first layer of the head; 0: unknown. */
static int64_t classes_of(const model_file *m, const char *head)
{
    char path[4096], name[1024];
    const char *file = m->weights;
    if (strcmp(file, "default") == 0) {
        if (!aril_zoo_weights_path(aril_zoo_find(m->name), path, sizeof path)) return 0;
        file = path;
    }
    aril_weights *w =
        aril_weights_open(file, (aril_weights_opts){ .unwrap = true, .verify = true });
    snprintf(name, sizeof name, "%.*s.weight", (int)strcspn(head, " "), head);
    int i = w ? aril_weights_find(w, name) : -1;
    aril_shape shape = aril_weights_shape(w, i);
    aril_weights_close(w);
    return i >= 0 && shape.ndim > 0 ? shape.dim[0] : 0;
}

void fine_tune_print(const model_file *m, const char *freeze)
{
    char line[2048], file[512], head[1024];
    const aril_zoo_entry *e = m->weights || freeze ? aril_zoo_find(m->name) : NULL;
    if (!e || aril_zoo_head(e, head, sizeof head) != ARIL_OK) return;
    if (m->weights) {
        int64_t before = classes_of(m, head);
        bool published = strcmp(m->weights, "default") == 0;
        int n = snprintf(line, sizeof line, "weights from %s",
                         published ? "the cache" : printable(m->weights, file, sizeof file));
        if (before && before != m->classes)
            snprintf(line + n, sizeof line - (size_t)n,
                     "; the head (%s) is new: %lld %s instead of %lld", head, (long long)m->classes,
                     m->regression ? "outputs" : "classes", (long long)before);
        print_wrapped(stdout, line, 2);
    }
    if (freeze) {
        snprintf(line, sizeof line,
                 "the backbone is frozen: %lld of %lld parameters are trained, those of %s",
                 (long long)aril_trainable_count(m->net), (long long)aril_parameter_count(m->net),
                 head);
        print_wrapped(stdout, line, 2);
    }
}
