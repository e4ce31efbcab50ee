#include "model_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- shapes as text ---- */

const char *shape_text(aril_shape shape, char *buf, size_t size)
{
    size_t n = 0;
    buf[0] = '\0';
    for (int i = 0; i < shape.ndim && n < size; i++)
        n += (size_t)snprintf(buf + n, size - n, "%s%lld", i ? "x" : "", (long long)shape.dim[i]);
    return buf;
}

bool shape_read(const char *text, aril_shape *shape)
{
    *shape = (aril_shape){ 0 };
    while (shape->ndim < ARIL_MAX_DIMS) {
        char *end;
        errno = 0;
        long long n = strtoll(text, &end, 10);
        if (end == text || n < 1 || errno) return false;
        shape->dim[shape->ndim++] = n;
        if (!*end) return true;
        if (*end != 'x' && *end != ',') return false;
        text = end + 1;
    }
    return false;
}

const char *const *model_names(void)
{
    static const char *names[64];
    int n = 0;
    for (; n < aril_zoo_count() && n < 63; n++) names[n] = aril_zoo_at(n)->name;
    names[n] = NULL;
    return names;
}

bool model_is_file(const char *file)
{
    struct stat st;
    return strpbrk(file, "./") || stat(file, &st) == 0;
}

bool model_is_name(const char *file)
{
    if (model_is_file(file)) return false;
    for (const char *const *n = model_names(); *n; n++)
        if (strcmp(*n, file) == 0) return true;
    return false;
}

/* ---- making and freeing ---- */

void model_close(model_file *m)
{
    aril_module_release(m->net);
    for (int64_t i = 0; m->class_name && i < m->classes; i++) free(m->class_name[i]);
    free(m->class_name);
    free(m->name);
    free(m->data);
    free(m->path);
    *m = (model_file){ 0 };
}

bool model_make(const char *name, aril_shape input, int64_t classes, model_file *m)
{
    const aril_zoo_entry *e = aril_zoo_find(name);
    char text[128];
    if (!e) return false;
    m->input = input.ndim ? input : e->input;
    m->classes = classes ? classes : e->classes;
    m->net = aril_zoo_make(name, (aril_zoo_opts){ .input = m->input, .classes = m->classes });
    if (!m->net && input.ndim && input.ndim < e->input.ndim) {
        aril_clear_error(); /* of a layer, which says less */
        aril_fail(ARIL_ERR_SHAPE, "%s takes pictures, as CxHxW; a sample here is %s", name,
                  shape_text(input, text, sizeof text));
    }
    m->name = strdup(name);
    if (!m->data) m->data = strdup("");
    return m->net && m->name && m->data;
}

bool model_set_classes(model_file *m, int n, const char *const *names)
{
    char **copy = calloc((size_t)n + 1, sizeof *copy);
    for (int i = 0; copy && i < n; i++) copy[i] = strdup(names[i]);
    m->class_name = copy;
    return copy != NULL;
}

const char *model_class(const model_file *m, int64_t i, char *buf, size_t size)
{
    if (m->class_name && i >= 0 && i < m->classes && m->class_name[i]) return m->class_name[i];
    snprintf(buf, size, "%lld", (long long)i);
    return buf;
}

aril_transform *model_normalise(const model_file *m)
{
    return m->n_channels ? aril_transform_normalise(m->n_channels, m->mean, m->std) : NULL;
}

/* ---- files ---- */

static void numbers_text(int n, const double *x, char *buf, size_t size)
{
    size_t used = 0;
    buf[0] = '\0';
    for (int i = 0; i < n && used < size; i++)
        used += (size_t)snprintf(buf + used, size - used, "%s%.9g", i ? "," : "", x[i]);
}

static int numbers_read(const char *text, int most, double *x)
{
    int n = 0;
    while (text && *text && n < most) {
        char *end;
        x[n] = strtod(text, &end);
        if (end == text) return 0;
        n++;
        text = *end == ',' ? end + 1 : end;
        if (*end && *end != ',') return 0;
    }
    return n;
}

/* The names with line breaks between them; NULL when memory is out. */
static char *join_classes(const model_file *m)
{
    size_t n = 1;
    for (int64_t i = 0; m->class_name && i < m->classes; i++) n += strlen(m->class_name[i]) + 1;
    char *text = malloc(n), *to = text;
    if (!text) return NULL;
    *to = '\0';
    for (int64_t i = 0; m->class_name && i < m->classes; i++)
        to += sprintf(to, "%s%s", i ? "\n" : "", m->class_name[i]);
    return text;
}

aril_status model_save(const model_file *m, const char *path)
{
    char input[128], mean[128], std[128], classes[32], kept[32], seed[32], *names = join_classes(m);
    const aril_named *state = aril_state(m->net);
    if (!names || !state) {
        free(names);
        return aril_ok() ? ARIL_ERR_MEMORY : aril_error_code();
    }
    shape_text(m->input, input, sizeof input);
    snprintf(classes, sizeof classes, "%lld", (long long)m->classes);
    numbers_text(m->n_channels, m->mean, mean, sizeof mean);
    numbers_text(m->n_channels, m->std, std, sizeof std);
    snprintf(kept, sizeof kept, "%.17g", m->kept);
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)m->seed);
    const char *key[] = { "aril.model", "aril.input", "aril.classes", "aril.class_names",
                          "aril.mean",  "aril.std",   "aril.data",    "aril.sized",
                          "aril.kept",  "aril.seed",  "format" };
    const char *value[] = { m->name, input, classes, names,
                            mean,    std,   m->data, m->sized ? "1" : "0",
                            kept,    seed,  "pt" };
    aril_metadata metadata = { .n = sizeof key / sizeof *key, .key = key, .value = value };
    aril_status s = aril_safetensors_save(path, state, &metadata);
    free(names);
    return s;
}

static bool read_classes(model_file *m, const char *text)
{
    if (!text || !*text) return true;
    m->class_name = calloc((size_t)m->classes + 1, sizeof *m->class_name);
    for (int64_t i = 0; m->class_name && i < m->classes; i++) {
        size_t n = strcspn(text, "\n");
        m->class_name[i] = strndup(text, n);
        if (!m->class_name[i]) return false;
        text += n + (text[n] == '\n');
    }
    return m->class_name != NULL;
}

static bool read_file(aril_safetensors *f, model_file *m)
{
    ARIL_SCOPE;
    const char *name = aril_safetensors_get(f, "aril.model");
    const char *input = aril_safetensors_get(f, "aril.input");
    const char *classes = aril_safetensors_get(f, "aril.classes");
    const char *data = aril_safetensors_get(f, "aril.data");
    aril_shape shape;
    if (!name || !input || !classes || !shape_read(input, &shape) || atoll(classes) < 1) {
        aril_fail(ARIL_ERR_FORMAT,
                  "'%s' holds weights, but does not say of which network; a file that `aril train` "
                  "has written does",
                  m->path);
        return false;
    }
    if (data) m->data = strdup(data);
    if (!model_make(name, shape, atoll(classes), m)) return false;
    if (!read_classes(m, aril_safetensors_get(f, "aril.class_names"))) return false;
    m->n_channels = numbers_read(aril_safetensors_get(f, "aril.mean"), MOST_CHANNELS, m->mean);
    if (numbers_read(aril_safetensors_get(f, "aril.std"), MOST_CHANNELS, m->std) != m->n_channels)
        m->n_channels = 0;
    const char *sized = aril_safetensors_get(f, "aril.sized");
    const char *kept = aril_safetensors_get(f, "aril.kept");
    const char *seed = aril_safetensors_get(f, "aril.seed");
    m->sized = sized && strcmp(sized, "1") == 0;
    m->kept = kept ? strtod(kept, NULL) : 0;
    if (!(m->kept > 0 && m->kept < 1)) m->kept = 0;
    m->seed = seed ? strtoull(seed, NULL, 10) : 0;
    const aril_named *all = aril_safetensors_all(f);
    return all && aril_load_state(m->net, all, (aril_load_state_opts){ 0 }) == ARIL_OK;
}

bool model_open(const char *file, model_file *m)
{
    struct stat st;
    *m = (model_file){ 0 };
    if (model_is_name(file)) {
        aril_fail(ARIL_ERR_ARG,
                  "%s is the name of a network without weights; `aril train %s --data D` trains it "
                  "and writes a file",
                  file, file);
        return false;
    }
    size_t room = strlen(file) + 32;
    m->path = malloc(room);
    if (!m->path) return false;
    snprintf(m->path, room, "%s", file);
    if (stat(file, &st) == 0 && S_ISDIR(st.st_mode))
        snprintf(m->path, room, "%s/model.safetensors", file);
    if (stat(m->path, &st) != 0) {
        const char *near = aril_nearest(file, model_names(), aril_zoo_count());
        if (near)
            aril_fail(ARIL_ERR_IO, "no model '%s'; did you mean %s?", file, near);
        else
            aril_fail(ARIL_ERR_IO, "no model '%s': %s", m->path, strerror(errno));
        model_close(m);
        return false;
    }
    aril_safetensors *f = aril_safetensors_open(m->path);
    bool ok = f && read_file(f, m);
    aril_safetensors_close(f);
    if (!ok) model_close(m);
    return ok;
}
