#include "model_file.h"

#include "commands.h"

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
    static const char *names[256];
    int n = 0;
    for (; n < aril_zoo_count() && n < 255; n++) names[n] = aril_zoo_at(n)->name;
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

/* ---- creating and freeing ---- */

static void free_names(char **name, int64_t n)
{
    for (int64_t i = 0; name && i < n; i++) free(name[i]);
    free(name);
}

static char **copy_names(int64_t n, const char *const *names)
{
    char **copy = calloc((size_t)n + 1, sizeof *copy);
    bool ok = copy != NULL;
    for (int64_t i = 0; ok && i < n; i++) ok = (copy[i] = strdup(names[i])) != NULL;
    if (ok) return copy;
    free_names(copy, n);
    return NULL;
}

void model_close(model_file *m)
{
    aril_module_release(m->scaled);
    aril_module_release(m->net);
    free_names(m->class_name, m->classes);
    free_names(m->column, m->n_columns);
    free(m->column_scale);
    free(m->target);
    free(m->loss);
    free(m->metrics);
    free(m->name);
    free(m->data);
    free(m->path);
    *m = (model_file){ 0 };
}

bool model_create(const char *name, aril_shape input, int64_t classes, model_file *m)
{
    const aril_zoo_entry *e = aril_zoo_find(name);
    char text[128];
    if (!e) return false;
    m->input = input.ndim ? input : e->input;
    m->classes = classes ? classes : e->classes;
    m->net = aril_zoo_make(name, (aril_zoo_opts){ .input = m->input,
                                                  .classes = classes,
                                                  .weights = m->weights,
                                                  .root = m->root });
    bool flat = input.ndim && input.ndim < e->input.ndim;
    if (!m->net && flat && aril_error_code() != ARIL_ERR_MEMORY) {
        aril_clear_error(); /* from a layer, less specific */
        aril_fail(ARIL_ERR_SHAPE, "%s expects images of shape CxHxW; the samples here are %s", name,
                  shape_text(input, text, sizeof text));
    }
    free(m->name);
    m->name = strdup(name);
    if (!m->data) m->data = strdup("");
    return m->net && m->name && m->data;
}

/* Model files hold UTF-8 text only. */
static bool check_utf8(const char *what, int n, const char *const *names)
{
    char text[256];
    for (int i = 0; i < n; i++) {
        if (is_utf8(names[i])) continue;
        aril_fail(ARIL_ERR_ARG, "the %s '%s' is not UTF-8 text; rename it, or convert the file",
                  what, printable(names[i], text, sizeof text));
        return false;
    }
    return true;
}

bool model_set_classes(model_file *m, int n, const char *const *names)
{
    if (!check_utf8("class name", n, names)) return false;
    m->class_name = copy_names(n, names);
    return m->class_name != NULL;
}

int64_t model_count_labels(const char *path)
{
    FILE *f = fopen(path, "r");
    char *line = NULL;
    size_t capacity = 0;
    int64_t n = 0;
    while (f && getline(&line, &capacity, f) >= 0) n += line[strspn(line, "\r\n")] != '\0';
    free(line);
    if (f) fclose(f);
    return n;
}

bool model_read_labels(model_file *m, const char *path)
{
    if (m->regression) {
        aril_fail(ARIL_ERR_ARG, "--labels is for classification; this network is a regression");
        return false;
    }
    FILE *f = fopen(path, "r");
    if (!f) {
        aril_fail(ARIL_ERR_IO, "cannot read the labels in %s: %s", path, strerror(errno));
        return false;
    }
    char **name = calloc((size_t)m->classes + 1, sizeof *name), *line = NULL;
    size_t capacity = 0;
    int64_t n = 0;
    bool good = name != NULL;
    for (ssize_t k; good && (k = getline(&line, &capacity, f)) >= 0;) {
        while (k > 0 && (line[k - 1] == '\n' || line[k - 1] == '\r')) line[--k] = '\0';
        if (k == 0) continue;
        if (strlen(line) != (size_t)k) {
            aril_fail(ARIL_ERR_FORMAT, "%s: label %lld has a NUL byte", path, (long long)n + 1);
            break;
        }
        if (n < m->classes) good = (name[n] = strdup(line)) != NULL;
        n++;
    }
    if (!good)
        aril_fail(ARIL_ERR_MEMORY, "out of memory");
    else if (ferror(f))
        aril_fail(ARIL_ERR_IO, "cannot read the labels in %s: %s", path, strerror(errno));
    else if (aril_ok() && n != m->classes)
        aril_fail(ARIL_ERR_ARG, "%s has %lld labels, but the net has %lld classes", path,
                  (long long)n, (long long)m->classes);
    if (aril_ok()) {
        free_names(m->class_name, m->classes);
        m->class_name = NULL;
        m->by_index = false;
        model_set_classes(m, (int)n, (const char *const *)name);
    }
    free_names(name, m->classes);
    free(line);
    fclose(f);
    return aril_ok();
}

bool model_set_columns(model_file *m, int n, const char *const *names, const char *target)
{
    if (!check_utf8("column name", n, names) || (target && !check_utf8("column name", 1, &target)))
        return false;
    m->column = copy_names(n, names);
    m->n_columns = m->column ? n : 0;
    m->target = target ? strdup(target) : NULL;
    return m->column && (m->target || !target);
}

const char *model_class(const model_file *m, int64_t i, char *buf, size_t size)
{
    if (m->class_name && i >= 0 && i < m->classes && m->class_name[i])
        return printable(m->class_name[i], buf, size);
    snprintf(buf, size, "%lld", (long long)i);
    return buf;
}

aril_open_opts model_open_opts(const model_file *m)
{
    bool by_name = m->class_name && !m->by_index;
    return (aril_open_opts){ .target = m->target,
                             .real_target = m->regression,
                             .n_columns = m->n_columns,
                             .columns = (const char *const *)m->column,
                             .n_classes = by_name ? (int)m->classes : 0,
                             .classes = by_name ? (const char *const *)m->class_name : NULL };
}

/* ---- scales ---- */

typedef struct scales {
    bool columns; /* inputs are standardized by own tensors 0 and 1: mean, standard deviation */
    double mean, deviation;
} scales;

static aril_tensor *scaled_forward(aril_module *self, aril_tensor *x)
{
    const scales *s = aril_module_data(self);
    if (s->columns)
        x = aril_div(aril_sub(x, aril_module_own(self, 0)), aril_module_own(self, 1)); /* [N,F] */
    aril_tensor *y = aril_forward(aril_module_child(self, 0), x);
    return s->deviation > 0 ? aril_add_scalar(aril_mul_scalar(y, s->deviation), s->mean) : y;
}

bool model_scale(model_file *m)
{
    ARIL_SCOPE;
    int64_t n = m->input.dim[0];
    if (!m->column_scale && m->target_scale[1] <= 0) {
        m->scaled = aril_module_keep(m->net);
        return true;
    }
    m->scaled = aril_module_new("Scaled", sizeof(scales), scaled_forward);
    if (!m->scaled) return false;
    scales *s = aril_module_data(m->scaled);
    *s = (scales){ .columns = m->column_scale != NULL,
                   .mean = m->target_scale[0],
                   .deviation = m->target_scale[1] };
    if (s->columns) {
        aril_tensor *both =
            aril_cast(aril_from(m->column_scale, ARIL_SHAPE(2, n), ARIL_F64, aril_cpu()), ARIL_F32);
        aril_module_scratch(m->scaled, "mean", aril_copy(aril_select(both, 0, 0)));
        aril_module_scratch(m->scaled, "deviation", aril_copy(aril_select(both, 0, 1)));
    }
    aril_module_add(m->scaled, "net", aril_module_keep(m->net));
    return aril_ok();
}

/* Own tensors 0 and 1: mean and standard deviation of each channel, or none. */
static aril_tensor *normalized_forward(aril_module *self, aril_tensor *x)
{
    if (*(const bool *)aril_module_data(self)) x = aril_flip(x, ARIL_AXES(1));
    aril_tensor *mean = aril_module_own(self, 0), *deviation = aril_module_own(self, 1);
    if (mean) x = aril_div(aril_sub(x, mean), deviation); /* [N,C,H,W] */
    return aril_forward(aril_module_child(self, 0), x);
}

aril_module *model_whole(const model_file *m)
{
    ARIL_SCOPE;
    const aril_zoo_entry *e = m->prepared ? aril_zoo_find(m->name) : NULL;
    bool flips = e && e->preprocess.bgr;
    if (m->input.ndim != 3 || !(m->n_channels || flips)) return aril_module_keep(m->scaled);
    aril_module *whole = aril_module_new("Normalized", sizeof(bool), normalized_forward);
    if (!whole) return NULL;
    *(bool *)aril_module_data(whole) = flips;
    if (m->n_channels) {
        aril_shape all = ARIL_SHAPE(m->n_channels, 1, 1);
        aril_tensor *mean = aril_from(m->mean, all, ARIL_F64, aril_cpu()),
                    *std = aril_from(m->std, all, ARIL_F64, aril_cpu());
        aril_module_scratch(whole, "mean", aril_copy(aril_cast(mean, ARIL_F32)));
        aril_module_scratch(whole, "deviation", aril_copy(aril_cast(std, ARIL_F32)));
    }
    aril_module_add(whole, "net", aril_module_keep(m->scaled));
    aril_module_eval(whole);
    return whole;
}

static aril_tensor *scaled_loss(aril_module *self, aril_list in)
{
    double by = 1 / *(const double *)aril_module_data(self);
    aril_tensor *both[2] = { aril_mul_scalar(in.at[0], by), aril_mul_scalar(in.at[1], by) };
    return aril_forward_n(aril_module_child(self, 0), (aril_list){ 2, both });
}

static aril_module *loss_of_scaled(const char *name, double deviation)
{
    aril_module *m = aril_module_new_n("ScaledLoss", sizeof deviation, scaled_loss);
    if (!m) return NULL;
    *(double *)aril_module_data(m) = deviation;
    if (aril_module_add(m, "loss", aril_nn_loss(name))) return m;
    aril_module_release(m);
    return NULL;
}

const char *model_loss(const model_file *m, const char *loss)
{
    return loss ? loss : m->loss ? m->loss : m->regression ? "mse" : "cross_entropy";
}

const char *model_metrics(const model_file *m, const char *metrics)
{
    return metrics ? metrics : m->metrics ? m->metrics : m->regression ? "mae" : "accuracy";
}

bool model_check_measures(const model_file *m, const char *loss, const char *metrics)
{
    const char *have = m->regression ? "numbers" : "classes";
    const char *other = m->regression ? "classes" : "numbers";
    loss = model_loss(m, loss);
    metrics = model_metrics(m, metrics);
    if (m->regression ? aril_nn_loss_is_of_classes(loss) : aril_nn_loss_is_difference(loss))
        aril_fail(
            ARIL_ERR_ARG,
            "the loss %s is for targets that are %s, but here they are %s; set another --loss",
            loss, other, have);
    for (aril_metric *k; aril_ok() && (k = next_metric(&metrics)); aril_metric_free(k))
        if (!(m->regression ? aril_metric_fits_values(k) : aril_metric_fits_classes(k)))
            aril_fail(ARIL_ERR_ARG,
                      "the metric %s is for targets that are %s, but here they are %s; set other "
                      "--metrics",
                      aril_metric_label(k), other, have);
    return aril_ok();
}

aril_status model_compile(const model_file *m, aril_model *model, const char *loss,
                          const char *metrics, aril_model_opts opts)
{
    opts.metrics = model_metrics(m, metrics);
    opts.loss = model_loss(m, loss);
    if (m->regression && m->target_scale[1] > 0) {
        opts.loss_module = loss_of_scaled(opts.loss, m->target_scale[1]);
        opts.loss = NULL;
    }
    return aril_model_compile(model, opts);
}

aril_transform *model_normalize(const model_file *m)
{
    return m->n_channels ? aril_transform_normalize(m->n_channels, m->mean, m->std) : NULL;
}

/* ---- files ---- */

static void numbers_text(int n, const double *x, char *buf, size_t size)
{
    size_t used = 0;
    buf[0] = '\0';
    for (int i = 0; i < n && used < size; i++)
        used += (size_t)snprintf(buf + used, size - used, "%s%.9g", i ? "," : "", x[i]);
}

static int numbers_read(const char *text, int max, double *x)
{
    int n = 0;
    while (text && *text && n < max) {
        char *end;
        x[n] = strtod(text, &end);
        if (end == text) return 0;
        n++;
        text = *end == ',' ? end + 1 : end;
        if (*end && *end != ',') return 0;
    }
    return n;
}

static char *scale_text(const model_file *m)
{
    size_t n = m->column_scale ? 2 * (size_t)m->input.dim[0] : 0, size = 32 * n + 1;
    char *text = malloc(size);
    if (text) numbers_text((int)n, m->column_scale, text, size);
    return text;
}

static bool read_scale(model_file *m, const char *text)
{
    if (!text || !*text || m->input.ndim != 1) return true;
    int n = 2 * (int)m->input.dim[0];
    m->column_scale = malloc((size_t)n * sizeof *m->column_scale);
    if (!m->column_scale) return false;
    if (numbers_read(text, n, m->column_scale) == n) return true;
    aril_fail(ARIL_ERR_FORMAT, "'%s': aril.column_scale: expected %d numbers", m->path, n);
    return false;
}

/* Names joined by line breaks; a line break within a name is written \\n. NULL when out of
 * memory. */
static char *join_names(char *const *name, int64_t n)
{
    size_t size = 1;
    for (int64_t i = 0; name && i < n; i++) size += 2 * strlen(name[i]) + 1;
    char *text = malloc(size), *to = text;
    if (!text) return NULL;
    for (int64_t i = 0; name && i < n; i++) {
        if (i) *to++ = '\n';
        for (const char *c = name[i]; *c; c++) {
            if (*c == '\\' || *c == '\n') *to++ = '\\';
            *to++ = *c == '\n' ? 'n' : *c;
        }
    }
    *to = '\0';
    return text;
}

static char **split_names(const char *text, int64_t n)
{
    char **name = calloc((size_t)n + 1, sizeof *name);
    for (int64_t i = 0; name && i < n; i++) {
        size_t length = strcspn(text, "\n");
        char *to = name[i] = strndup(text, length);
        if (!to) {
            free_names(name, n);
            return NULL;
        }
        for (const char *c = name[i]; *c; c++) {
            bool escaped = *c == '\\' && (c[1] == '\\' || c[1] == 'n');
            if (escaped) c++;
            *to++ = (char)(escaped && *c == 'n' ? '\n' : *c);
        }
        *to = '\0';
        text += length + (text[length] == '\n');
    }
    return name;
}

/* What a file tells of the network besides its weights, as text. */
typedef struct description {
    char input[128], mean[128], std[128], classes[32], held_out[32], seed[32], target[64];
    char *names, *columns, *scale;
    const char *key[24], *value[24];
    aril_metadata all;
} description;

static void describe(description *d, const char *key, const char *value)
{
    if (!value || !*value) return;
    d->key[d->all.n] = key;
    d->value[d->all.n++] = value;
}

static bool describe_all(const model_file *m, bool onnx, description *d)
{
    *d = (description){ .names = join_names(m->class_name, m->classes),
                        .columns = join_names(m->column, m->n_columns),
                        .scale = scale_text(m) };
    d->all = (aril_metadata){ .key = d->key, .value = d->value };
    if (!d->names || !d->columns || !d->scale) return false;
    shape_text(m->input, d->input, sizeof d->input);
    snprintf(d->classes, sizeof d->classes, "%lld", (long long)m->classes);
    numbers_text(m->n_channels, m->mean, d->mean, sizeof d->mean);
    numbers_text(m->n_channels, m->std, d->std, sizeof d->std);
    numbers_text(2, m->target_scale, d->target, sizeof d->target);
    snprintf(d->held_out, sizeof d->held_out, "%.17g", m->held_out);
    snprintf(d->seed, sizeof d->seed, "%llu", (unsigned long long)m->seed);
    describe(d, "aril.model", m->name);
    describe(d, "aril.input", d->input);
    describe(d, "aril.classes", d->classes);
    describe(d, "aril.class_names", d->names);
    describe(d, "aril.task", m->regression ? "regression" : "classification");
    describe(d, "aril.loss", m->loss);
    describe(d, "aril.metrics", m->metrics);
    describe(d, "aril.target", m->target);
    describe(d, "aril.target_scale", d->target);
    describe(d, "aril.columns", d->columns);
    if (onnx) { /* normalization is in the graph, and paths are nobody's business */
        if (m->input.ndim == 3) describe(d, "aril.pixels", "RGB or gray, from 0 to 1");
    } else {
        describe(d, "aril.data", m->data);
        describe(d, "aril.held_out", d->held_out);
        describe(d, "aril.seed", d->seed);
        describe(d, "format", "pt");
        describe(d, "aril.column_scale", d->scale);
        describe(d, "aril.mean", d->mean);
        describe(d, "aril.std", d->std);
    }
    describe(d, "aril.sized", m->sized ? "1" : "0");
    describe(d, "aril.prepared", m->prepared ? "1" : "0");
    return true;
}

static void free_description(description *d)
{
    free(d->names);
    free(d->columns);
    free(d->scale);
}

aril_status model_save(const model_file *m, const char *path)
{
    description d;
    const aril_named *state = aril_state(m->net);
    aril_status s = state ? ARIL_ERR_MEMORY : aril_error_code();
    if (describe_all(m, false, &d) && state) s = aril_safetensors_save(path, state, &d.all);
    free_description(&d);
    return s;
}

aril_status model_export(const model_file *m, aril_list in, const char *path, aril_export_opts opts)
{
    description d;
    aril_module *whole = model_whole(m);
    aril_status s = whole ? ARIL_ERR_MEMORY : aril_error_code();
    if (describe_all(m, true, &d) && whole) {
        opts.metadata = &d.all;
        opts.name = m->name;
        s = aril_module_export(whole, in, path, opts);
    }
    free_description(&d);
    aril_module_release(whole);
    return s;
}

static const char *told(const aril_metadata *from, const char *key)
{
    for (int i = 0; i < from->n; i++)
        if (strcmp(from->key[i], key) == 0) return from->value[i];
    return NULL;
}

static bool read_string(const aril_metadata *from, const char *key, char **to)
{
    const char *text = told(from, key);
    *to = text && *text ? strdup(text) : NULL;
    return !text || !*text || *to;
}

static bool read_names(const aril_metadata *from, const char *key, int64_t n, char ***to)
{
    const char *text = told(from, key);
    if (!text || !*text) return true;
    int64_t lines = 1;
    for (const char *c = text; *c; c++) lines += *c == '\n';
    if (lines == n) return (*to = split_names(text, n)) != NULL;
    aril_fail(ARIL_ERR_FORMAT, "%s: expected %lld names, got %lld", key, (long long)n,
              (long long)lines);
    return false;
}

/* Reads the training metadata stored with the weights. */
bool model_read_metadata(const aril_metadata *f, model_file *m)
{
    const char *task = told(f, "aril.task");
    m->regression = task && strcmp(task, "regression") == 0;
    if (!read_names(f, "aril.class_names", m->classes, &m->class_name)) return false;
    const char *columns = told(f, "aril.columns");
    int n_columns = columns && *columns ? 1 : 0;
    for (const char *c = columns; n_columns && *c; c++) n_columns += *c == '\n';
    if (!read_names(f, "aril.columns", n_columns, &m->column)) return false;
    m->n_columns = n_columns;
    if (!read_string(f, "aril.loss", &m->loss) || !read_string(f, "aril.metrics", &m->metrics) ||
        !read_string(f, "aril.target", &m->target) || !read_scale(m, told(f, "aril.column_scale")))
        return false;
    double target[2];
    if (numbers_read(told(f, "aril.target_scale"), 2, target) == 2 && target[1] > 0)
        memcpy(m->target_scale, target, sizeof target);
    m->n_channels = numbers_read(told(f, "aril.mean"), MAX_CHANNELS, m->mean);
    if (numbers_read(told(f, "aril.std"), MAX_CHANNELS, m->std) != m->n_channels) m->n_channels = 0;
    const char *sized = told(f, "aril.sized");
    const char *held_out = told(f, "aril.held_out");
    const char *seed = told(f, "aril.seed");
    m->sized = sized && strcmp(sized, "1") == 0 && m->input.ndim == 3;
    const char *prepared = told(f, "aril.prepared");
    m->prepared = prepared && strcmp(prepared, "1") == 0 && m->input.ndim == 3;
    m->held_out = held_out ? strtod(held_out, NULL) : 0;
    if (!(m->held_out > 0 && m->held_out < 1)) m->held_out = 0;
    m->seed = seed ? strtoull(seed, NULL, 10) : 0;
    return true;
}

static double count_weights(const aril_safetensors *f)
{
    double weights = 0;
    for (int i = 0; i < aril_safetensors_count(f); i++) {
        aril_shape s = aril_safetensors_shape(f, i);
        double n = 1;
        for (int d = 0; d < s.ndim; d++) n *= (double)s.dim[d];
        weights += n;
    }
    return weights;
}

/* Each class has a row of weights. */
static bool has_rows(const aril_safetensors *f, int64_t classes)
{
    for (int i = 0; i < aril_safetensors_count(f); i++) {
        aril_shape s = aril_safetensors_shape(f, i);
        if (s.ndim > 0 && s.dim[0] == classes) return true;
    }
    return false;
}

/* The network is created before its weights are read: a file that describes a network too large
 * for its own tensors is rejected before that takes memory. */
static bool create_for_file(const aril_safetensors *f, const char *name, aril_shape input,
                            int64_t classes, model_file *m)
{
    /* Bytes to create a network and run it once, for each weight, and for a small one. */
    const double each = 32, base = 64 << 20;
    double weights = count_weights(f), bytes = each * weights + base;
    char text[128];
    bool ok = has_rows(f, classes);
    if (ok) {
        if (bytes < 0x1p62)
            aril_memory_set_limit(aril_cpu(), aril_memory(aril_cpu()).live + (int64_t)bytes);
        ok = model_create(name, input, classes, m);
        aril_memory_set_limit(aril_cpu(), 0);
        if (ok || aril_error_code() != ARIL_ERR_MEMORY) return ok;
        aril_clear_error();
    }
    aril_fail(
        ARIL_ERR_FORMAT,
        "'%s' claims %lld classes for inputs %s, but has %.0f weights, which do not match such a "
        "network",
        m->path, (long long)classes, shape_text(input, text, sizeof text), weights);
    return false;
}

static bool read_file(aril_safetensors *f, model_file *m)
{
    ARIL_SCOPE;
    const char *name = aril_safetensors_get(f, "aril.model");
    const char *input = aril_safetensors_get(f, "aril.input");
    const char *classes = aril_safetensors_get(f, "aril.classes");
    const char *data = aril_safetensors_get(f, "aril.data");
    aril_metadata told_ = aril_safetensors_metadata(f);
    aril_shape shape;
    if (!name || !input || !classes || !shape_read(input, &shape) || atoll(classes) < 1) {
        aril_fail(ARIL_ERR_FORMAT,
                  "'%s' has weights, but no description of the network; expected a file written by "
                  "`aril train`",
                  m->path);
        return false;
    }
    if (data) m->data = strdup(data);
    if (!create_for_file(f, name, shape, atoll(classes), m) || !model_read_metadata(&told_, m))
        return false;
    const aril_named *all = aril_safetensors_all(f);
    return all && aril_load_state(m->net, all, (aril_load_state_opts){ 0 }) == ARIL_OK &&
           model_scale(m);
}

/* What a file can be as a model; NO_MODEL, with an error, if it holds something else. */
typedef enum file_kind { NO_MODEL, TRAINED, KERAS } file_kind;

static file_kind kind_of(const char *path)
{
    aril_weights *w = aril_weights_open(path, (aril_weights_opts){ 0 });
    if (!w) return NO_MODEL;
    const char *name = aril_weights_kind(w);
    aril_metadata m = aril_weights_metadata(w);
    file_kind kind = strcmp(name, "HDF5") == 0                                    ? KERAS
                     : strcmp(name, "safetensors") == 0 && told(&m, "aril.model") ? TRAINED
                                                                                  : NO_MODEL;
    if (kind == NO_MODEL)
        aril_fail(ARIL_ERR_FORMAT,
                  "'%s' holds weights (%s), but no network; name a network of the zoo and set "
                  "--weights %s",
                  path, name, path);
    aril_weights_close(w);
    return kind;
}

static bool read_trained(model_file *m)
{
    aril_safetensors *f = aril_safetensors_open(m->path);
    bool good = f && read_file(f, m);
    aril_safetensors_close(f);
    return good;
}

bool model_open(const char *file, model_file *m)
{
    struct stat st;
    *m = (model_file){ 0 };
    if (model_is_name(file)) return model_open_zoo(file, &(model_weights){ 0 }, m);
    size_t size = strlen(file) + 32;
    m->path = malloc(size);
    if (!m->path) return false;
    snprintf(m->path, size, "%s", file);
    if (stat(file, &st) == 0 && S_ISDIR(st.st_mode))
        snprintf(m->path, size, "%s/model.safetensors", file);
    if (stat(m->path, &st) != 0) {
        const char *near = aril_nearest(file, model_names(), aril_zoo_count());
        if (near)
            aril_fail(ARIL_ERR_IO, "no model '%s'; did you mean %s?", file, near);
        else
            aril_fail(ARIL_ERR_IO, "no model '%s': %s", m->path, strerror(errno));
        model_close(m);
        return false;
    }
    file_kind kind = model_is_onnx(m->path) ? NO_MODEL : kind_of(m->path);
    bool ok = aril_ok() && (kind == TRAINED ? read_trained(m)
                            : kind == KERAS ? model_read_keras(m)
                                            : model_read_onnx(m));
    if (!ok) model_close(m);
    return ok;
}
