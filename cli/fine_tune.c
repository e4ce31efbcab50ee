#include "fine_tune.h"

#include "commands.h"

#include <aril/published.h>

#include <stdlib.h>
#include <string.h>

bool fine_tune_check(const char *model, const model_weights *w, const char *freeze)
{
    bool file = model_is_file(model);
    if (w->root && !w->file)
        aril_fail(ARIL_ERR_ARG, "--root is for networks of the zoo with --weights FILE");
    else if (w->file && file)
        aril_fail(ARIL_ERR_ARG,
                  "--weights is for networks of the zoo, by name; '%s' has weights of its own",
                  model);
    else if (freeze && !w->file && !file)
        aril_fail(ARIL_ERR_ARG,
                  "--freeze %s is for weights that were trained before: set --weights FILE, or "
                  "--weights default for the published ones",
                  freeze);
    return aril_ok();
}

bool fine_tune_open(model_file *m, const char *name)
{
    bool onnx = model_is_onnx(name);
    if (!onnx && !model_open(name, m)) return false;
    if (!onnx && !model_is_keras(m)) return true;
    aril_fail(ARIL_ERR_UNSUPPORTED, "'%s': models of %s are trained by a program (%s)", name,
              onnx ? "ONNX" : "Keras", onnx ? "aril_module_load" : "aril_keras_load");
    return false;
}

bool fine_tune_begin(model_file *m, const char *name, const model_weights *w, bool sized)
{
    const aril_zoo_entry *e = w->file ? aril_zoo_find(name) : NULL;
    if (!w->file || !e) return !w->file;
    m->weights = w->file;
    m->root = w->root;
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

void fine_tune_print(const model_file *m, const char *freeze)
{
    char line[2048], file[512], head[1024];
    const aril_zoo_entry *e = m->weights || freeze ? aril_zoo_find(m->name) : NULL;
    if (!e || aril_zoo_head(e, head, sizeof head) != ARIL_OK) return;
    if (m->weights) {
        int64_t before = model_weights_classes(e, m->weights, m->root);
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
