/* Networks of the zoo with weights made elsewhere, and the images that they expect. */
#include "commands.h"
#include "model_file.h"

#include <stdlib.h>
#include <string.h>

/* ---- preparing images ---- */

static aril_status swap_red_and_blue(aril_sample *s, void *ctx)
{
    (void)ctx;
    if (aril_ndim(s->x) == 3 && aril_size(s->x, 0) == 3)
        s->x = aril_contiguous(aril_flip(s->x, ARIL_AXES(0)));
    return aril_tensor_status(s->x);
}

static aril_status three_channels(aril_sample *s, void *ctx)
{
    (void)ctx;
    s->x =
        aril_contiguous(aril_expand(s->x, ARIL_SHAPE(3, aril_size(s->x, 1), aril_size(s->x, 2))));
    return aril_tensor_status(s->x);
}

aril_transform *model_prepare(const model_file *m)
{
    if (!m->prepared || m->input.ndim != 3) return NULL;
    const aril_zoo_entry *e = model_is_name(m->name) ? aril_zoo_find(m->name) : NULL;
    const aril_preprocess none = { 0 }, *p = e ? &e->preprocess : &none;
    aril_resize_opts resize = { .filter = p->filter };
    int64_t height = m->input.dim[1], width = m->input.dim[2];
    /* The crop is that of the published size; other sizes see all of an image. */
    bool published = e && height == e->input.dim[1] && width == e->input.dim[2];
    int64_t to[2] = { published ? p->resize : 0, 0 };
    for (int d = 0; d < m->resize.ndim; d++) to[d] = m->resize.dim[d];
    bool bgr = m->bgr || (p->bgr && !m->in_graph);
    aril_transform *list[3];
    int n = 0;
    list[n++] = to[0] ? aril_transform_resize(to[0], to[1], resize)
                      : aril_transform_resize(height, width, resize);
    if (to[0]) list[n++] = aril_transform_center_crop(height, width);
    if (bgr) list[n++] = aril_transform_function(swap_red_and_blue, NULL, NULL);
    return aril_transform_list(n, list);
}

aril_dataset *prepare_images(aril_dataset *d, const model_file *m)
{
    aril_transform *prepare = model_prepare(m);
    aril_shape shape = d ? aril_dataset_shape(d) : (aril_shape){ 0 };
    bool gray = shape.ndim == 3 && shape.dim[0] == 1 && m->input.dim[0] == 3;
    if (d && prepare && gray) {
        aril_transform *list[] = { aril_transform_function(three_channels, NULL, NULL), prepare };
        prepare = aril_transform_list(2, list);
    }
    if (d && prepare) return aril_dataset_transform(d, prepare);
    aril_transform_free(prepare);
    if (d && aril_ok()) return d;
    aril_dataset_release(d);
    return NULL;
}

void model_set_preprocess(model_file *m, const aril_zoo_entry *e)
{
    const aril_preprocess *p = &e->preprocess;
    double scale = p->scale > 0 ? p->scale : 1;
    int64_t channels = m->input.ndim == 3 ? m->input.dim[0] : 0;
    if (channels != 1 && channels != 3) return;
    m->n_channels = (int)channels;
    for (int i = 0; i < m->n_channels; i++) {
        m->mean[i] = p->mean[i] / scale;
        m->std[i] = (p->std[i] > 0 ? p->std[i] : 1) / scale;
    }
}

/* ---- networks by name ---- */

/* Class names, if the network has the classes that its weights were published for. */
static bool name_classes(model_file *m, const aril_zoo_entry *e)
{
    if (m->classes != e->classes || !aril_zoo_class_name(e, 0)) return true;
    const char **names = malloc((size_t)m->classes * sizeof *names);
    bool ok = names != NULL;
    for (int64_t i = 0; ok && i < m->classes; i++)
        ok = (names[i] = aril_zoo_class_name(e, i)) != NULL;
    ok = ok && model_set_classes(m, (int)m->classes, names);
    free(names);
    return ok;
}

static aril_weights *open_weights(const aril_zoo_entry *e, const char *file, const char *root)
{
    char path[4096];
    if (strcmp(file, "default") == 0) {
        if (!aril_zoo_weights_path(e, path, sizeof path)) return NULL;
        file = path;
    }
    return aril_weights_open(file, (aril_weights_opts){ .root = root, .unwrap = true });
}

int64_t model_weights_classes(const aril_zoo_entry *e, const char *file, const char *root)
{
    char head[1024], name[1100];
    int64_t classes = 0;
    aril_weights *w = open_weights(e, file, root);
    const char *kind = w ? aril_weights_kind(w) : "";
    /* Those may have kernels as [in,out]. */
    bool turned = strcmp(kind, "HDF5") == 0 || strcmp(kind, "TensorFlow") == 0;
    if (w && !turned && aril_zoo_head(e, head, sizeof head) == ARIL_OK)
        for (const char *at = head; *at && !classes;) {
            int n = (int)strcspn(at, " ");
            snprintf(name, sizeof name, "%.*s.weight", n, at);
            int i = aril_weights_find(w, name);
            aril_shape shape = aril_weights_shape(w, i);
            if (i >= 0 && shape.ndim > 0) classes = shape.dim[0];
            at += n + (at[n] == ' ');
        }
    aril_weights_close(w);
    return classes;
}

/* Whether a file was written by `aril train` for this network. */
static bool is_trained(const char *name, const char *file)
{
    aril_weights *w = aril_weights_open(file, (aril_weights_opts){ 0 });
    aril_metadata m = aril_weights_metadata(w);
    bool is = false;
    for (int i = 0; i < m.n; i++)
        is |= strcmp(m.key[i], "aril.model") == 0 && strcmp(m.value[i], name) == 0;
    aril_weights_close(w);
    return is;
}

/* The weights of another number of classes would leave the head random. */
static bool check_count(const model_weights *w, int64_t classes)
{
    if (!w->classes || !classes || w->classes == classes) return true;
    aril_fail(ARIL_ERR_SHAPE, "%s: the weights are for %lld classes, not %lld", w->file,
              (long long)classes, (long long)w->classes);
    return false;
}

static bool open_trained(const model_weights *w, model_file *m)
{
    if (!model_open(w->file, m)) return false;
    if (check_count(w, m->classes)) return true;
    model_close(m);
    return false;
}

/* Sets the number of classes: of the option, of the weights, of the labels. */
static bool count_classes(const aril_zoo_entry *e, const model_weights *w, int64_t *classes)
{
    int64_t there = w->file ? model_weights_classes(e, w->file, w->root) : 0;
    *classes = w->classes ? w->classes : there;
    if (!*classes && w->file && w->labels) *classes = model_count_labels(w->labels);
    return aril_ok() && check_count(w, there);
}

bool model_open_zoo(const char *name, const model_weights *w, model_file *m)
{
    const aril_zoo_entry *e = aril_zoo_find(name);
    int64_t classes;
    *m = (model_file){ 0 };
    if (!e) return false;
    if (!w->file && !e->weights.url) {
        aril_fail(ARIL_ERR_ARG,
                  "%s is a network of the zoo, without weights; expected a file written by `aril "
                  "train %s --data DATASET`, or weights for it (--weights FILE)",
                  name, name);
        return false;
    }
    if (w->file && !w->root && strcmp(w->file, "default") != 0 && is_trained(name, w->file))
        return open_trained(w, m);
    if (!aril_ok() || !count_classes(e, w, &classes)) return false;
    m->weights = w->file ? w->file : "default";
    m->root = w->root;
    m->by_index = true;
    m->prepared = e->input.ndim == 3;
    if (model_create(name, (aril_shape){ 0 }, classes, m) && name_classes(m, e)) {
        model_set_preprocess(m, e);
        if (model_scale(m)) return true;
    }
    model_close(m);
    return false;
}

bool model_open_with(const char *model, const model_weights *w, model_file *m)
{
    if ((w->classes || w->root) && !w->file) {
        aril_fail(ARIL_ERR_ARG, "--%s is for networks of the zoo with --weights FILE",
                  w->classes ? "classes" : "root");
        return false;
    }
    if (!w->file) return model_open(model, m);
    if (model_is_name(model)) return model_open_zoo(model, w, m);
    if (model_is_file(model))
        aril_fail(ARIL_ERR_ARG,
                  "--weights is for networks of the zoo, by name; '%s' has weights of its own",
                  model);
    else
        aril_zoo_find(model); /* says which name is near */
    return false;
}

bool model_check_classes(const model_file *m, aril_dataset *d)
{
    const char *const *names;
    int n = m->by_index ? aril_dataset_classes(d, &names) : 0;
    if (n == 0 || n == m->classes) return true;
    aril_fail(ARIL_ERR_SHAPE,
              "%s has %lld classes, the dataset has %d; classes are matched by number, so that it "
              "needs all of them",
              m->name, (long long)m->classes, n);
    return false;
}
