/* Loading values into modules, from named tensors and from files of weights. */
#include "nn/module.h"

#include "aril/create.h"
#include "aril/view.h"
#include "formats/bytes.h"
#include "formats/weights/weights.h"

#include <stdlib.h>
#include <string.h>

enum { STATE = 1u << ARIL__PARAMETER | 1u << ARIL__BUFFER };

/* One tensor of the source. */
typedef struct pair {
    char *name;       /* after renaming; NULL: left out */
    const char *from; /* in the source */
    char number[16];
    aril_shape shape;   /* in the source */
    aril_shape as;      /* the same, or what a kernel is turned to */
    aril_tensor *to;    /* in the module; NULL: none */
    aril_tensor *value; /* converted for its destination; holds a reference */
    bool fits;          /* `to` has its shape */
    bool turned;        /* a kernel in the order of Keras */
    bool depthwise;     /* of a depthwise convolution */
} pair;

typedef struct loading {
    const char *what; /* for messages */
    aril_module *m;
    const aril_named *named; /* the source: tensors, or if it is NULL, a file */
    aril_weights *file;
    const aril_rename *rename;
    bool partial, other_shapes;
    bool kernels_turned; /* kernels of the source are in the order of Keras */

    aril__gathered state;
    int n;
    pair *pair;
    bool *missing; /* for each of state: the source has no such tensor */
    int n_missing, n_left, n_other;
} loading;

static aril_status no_memory(const loading *l)
{
    return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", l->what);
}

/* ---- names ---- */

static aril_tensor *own_tensor(aril_module *m, const char *name)
{
    aril__own_tensor *own = aril__find_own(m, name);
    return own && own->kind != ARIL__SCRATCH ? own->tensor : NULL;
}

/* Sets p->name to `name` after the rules, and looks it up in the module. */
static aril_status look_up(loading *l, pair *p, const char *name)
{
    char buf[4096];
    if (l->rename) {
        aril_status s = aril__rename(name, l->rename, buf, sizeof buf);
        if (s < 0 || !*buf) return s;
        name = buf;
    }
    p->to = own_tensor(l->m, name);
    free(p->name);
    p->name = aril__strdup(name);
    return p->name ? ARIL_OK : no_memory(l);
}

/* The same without what wrappers add, if that fits better. */
static aril_status look_up_unwrapped(loading *l, pair *p)
{
    char *plain = aril__strdup(p->from);
    if (!plain) return no_memory(l);
    aril_status s = ARIL_OK;
    aril__unwrap_compiled(plain);
    if (strcmp(plain, p->from) != 0) s = look_up(l, p, plain);
    if (s == ARIL_OK && !p->to && aril__unwrap_parallel(plain)) s = look_up(l, p, plain);
    free(plain);
    return s == ARIL_OK && !p->to ? look_up(l, p, p->from) : s;
}

static int by_name(const void *a, const void *b)
{
    const pair *x = *(const pair *const *)a, *y = *(const pair *const *)b;
    return strcmp(x->name, y->name);
}

/* Only rules and wrappers can make two names equal. */
static aril_status check_unique(loading *l)
{
    pair **sorted = aril__malloc(((size_t)l->n + 1) * sizeof *sorted);
    int n = 0;
    if (!sorted) return no_memory(l);
    for (int i = 0; i < l->n; i++)
        if (l->pair[i].name) sorted[n++] = &l->pair[i];
    qsort(sorted, (size_t)n, sizeof(pair *), by_name);
    aril_status s = ARIL_OK;
    for (int i = 1; i < n && s == ARIL_OK; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            s = aril__fail(ARIL_ERR_ARG, "%s: \"%s\" and \"%s\" would both be loaded as \"%s\"",
                           l->what, sorted[i - 1]->from, sorted[i]->from, sorted[i]->name);
    free(sorted);
    return s;
}

/* ---- kernels in the order of Keras ---- */

/* [...,in,out] as [out,in,...], or for a depthwise convolution [...,in,multiplier] as
 * [in * multiplier,1,...]. */
static void turn_shape(pair *p)
{
    aril_shape from = p->shape, to = { .ndim = from.ndim };
    int n = from.ndim;
    to.dim[0] = from.dim[n - 1];
    to.dim[1] = from.dim[n - 2];
    for (int i = 2; i < n; i++) to.dim[i] = from.dim[i - 2];
    bool fits = aril__same_dims(p->to->ndim, p->to->dim, n, to.dim);
    p->depthwise = n > 2 && !fits && p->to->dim[1] == 1 &&
                   !__builtin_mul_overflow(to.dim[0], to.dim[1], &from.dim[0]) &&
                   from.dim[0] == p->to->dim[0];
    if (p->depthwise) {
        to.dim[0] = from.dim[0];
        to.dim[1] = 1;
    }
    p->as = to;
    p->turned = true;
}

static bool is_kernel(const loading *l, const pair *p)
{
    const aril_module *owner = aril__find_owner(l->m, p->name);
    const char *dot = strrchr(p->name, '.');
    return p->to->ndim >= 2 && p->to->ndim == p->shape.ndim && owner->layer &&
           owner->layer->has_kernel && strcmp(dot ? dot + 1 : p->name, "weight") == 0;
}

static aril_tensor *turn(const pair *p, aril_tensor *v)
{
    int n = aril_ndim(v);
    aril_axes order = { .n = n, .axis = { n - 1, n - 2 } };
    if (p->depthwise) order.axis[0] = n - 2, order.axis[1] = n - 1;
    for (int i = 2; i < n; i++) order.axis[i] = i - 2;
    return aril_reshape(aril_permute(v, order), p->as);
}

/* ---- pairing ---- */

static int by_address(const void *a, const void *b)
{
    const aril_tensor *x = *(aril_tensor *const *)a, *y = *(aril_tensor *const *)b;
    return (x > y) - (x < y);
}

/* Finds the tensors of the module that get no value. */
static aril_status find_missing(loading *l)
{
    aril_tensor **there = aril__malloc(((size_t)l->n + 1) * sizeof *there);
    size_t n = 0;
    if (!there) return no_memory(l);
    for (int i = 0; i < l->n; i++)
        if (l->pair[i].to) there[n++] = l->pair[i].to;
    qsort(there, n, sizeof *there, by_address);
    for (int i = 0; i < l->state.n; i++) {
        aril_tensor *t = l->state.tensor[i];
        l->missing[i] = !bsearch(&t, there, n, sizeof *there, by_address) &&
                        !aril__find_own(l->m, l->state.name[i])->optional;
        l->n_missing += l->missing[i];
    }
    free(there);
    return ARIL_OK;
}

static aril_status pair_up(loading *l)
{
    aril_status s = ARIL_OK;
    for (int i = 0; i < l->n && s == ARIL_OK; i++) {
        pair *p = &l->pair[i];
        snprintf(p->number, sizeof p->number, "%d", i);
        p->from = l->file                               ? aril_weights_name(l->file, i)
                  : l->named->name && l->named->name[i] ? l->named->name[i]
                                                        : p->number;
        if (!l->file) s = aril__check_value(l->what, l->named->at[i]);
        if (s < 0) break;
        p->shape = l->file ? aril_weights_shape(l->file, i) : aril_shape_of(l->named->at[i]);
        s = look_up(l, p, p->from);
        if (s == ARIL_OK && p->name && !p->to && l->file) s = look_up_unwrapped(l, p);
        p->as = p->shape;
        if (s == ARIL_OK && p->to && l->kernels_turned && is_kernel(l, p)) turn_shape(p);
        p->fits = p->to && aril__same_dims(p->to->ndim, p->to->dim, p->as.ndim, p->as.dim);
        l->n_left += p->name && !p->to;
        l->n_other += p->to && !p->fits;
    }
    if (s == ARIL_OK && l->file) s = check_unique(l);
    return s == ARIL_OK ? find_missing(l) : s;
}

/* ---- what was found ---- */

/* Appends names for a message, as many as are readable. */
static void list(aril__bytes *b, int *n, const char *name)
{
    enum { MOST_NAMES = 8, LONGEST = 80 };
    if (*n < MOST_NAMES)
        aril__bytes_print(b, "%s%.*s", *n ? ", " : "", LONGEST, name);
    else if (*n == MOST_NAMES)
        aril__bytes_print(b, ", ...");
    (*n)++;
}

static aril_status complain_of_shapes(const loading *l)
{
    for (int i = 0; i < l->n; i++) {
        const pair *p = &l->pair[i];
        char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT], more[64] = "";
        if (!p->to || p->fits) continue;
        if (l->n_other > 1)
            snprintf(more, sizeof more, " (and %d more differ in shape)", l->n_other - 1);
        return aril__fail(
            ARIL_ERR_SHAPE, "%s: \"%s\" is %s in the module, but %s in the %s%s%s%s", l->what,
            p->name, aril__text(a, p->to), aril__shape_text(b, p->as.ndim, p->as.dim),
            l->file ? "file" : "loaded state",
            p->turned ? " after turning it from Keras' order (.order = ARIL_ORDER_SAME keeps it)"
                      : "",
            more, l->file ? "; set .other_shapes to skip such tensors" : "");
    }
    return ARIL_OK;
}

static aril_status complain_of_names(const loading *l)
{
    aril__bytes missing = { 0 }, left = { 0 };
    int n_missing = 0, n_left = 0;
    for (int i = 0; i < l->state.n; i++)
        if (l->missing[i]) list(&missing, &n_missing, l->state.name[i]);
    for (int i = 0; i < l->n; i++)
        if (l->pair[i].name && !l->pair[i].to) list(&left, &n_left, l->pair[i].name);
    aril_status s =
        missing.failed || left.failed
            ? no_memory(l)
            : aril__fail(ARIL_ERR_ARG,
                         "%s: %d missing%s%s%s; %d unknown%s%s%s; set .partial to ignore them",
                         l->what, n_missing, n_missing ? " (" : "",
                         n_missing ? (char *)missing.at : "", n_missing ? ")" : "", n_left,
                         n_left ? " (" : "", n_left ? (char *)left.at : "", n_left ? ")" : "");
    aril__bytes_free(&missing);
    aril__bytes_free(&left);
    return s;
}

/* That nothing fits is a mistake, whatever may be skipped. */
static aril_status complain_of_all(const loading *l)
{
    const char *name = NULL;
    for (int i = 0; i < l->n; i++) {
        if (l->pair[i].to) return ARIL_OK;
        if (!name) name = l->pair[i].name;
    }
    if (!name || l->state.n == 0) return ARIL_OK;
    return aril__fail(ARIL_ERR_ARG,
                      "%s: no tensor of the %s is in the module, whose names are as \"%s\", not "
                      "\"%s\"%s",
                      l->what, l->file ? "file" : "loaded state", l->state.name[0], name,
                      l->file ? "; .rename changes names" : "");
}

static aril_status check_fit(const loading *l)
{
    if (l->partial) {
        aril_status s = complain_of_all(l);
        if (s < 0) return s;
    }
    if (l->n_other && !l->other_shapes) return complain_of_shapes(l);
    if (!l->partial && (l->n_missing || l->n_left)) return complain_of_names(l);
    return ARIL_OK;
}

/* ---- values ---- */

/* Converts values where needed, so that writing cannot fail halfway. */
static aril_status prepare(loading *l, int i)
{
    pair *p = &l->pair[i];
    if (!p->fits) return ARIL_OK;
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_tensor *v = l->file ? aril_weights_tensor(l->file, i) : l->named->at[i];
    if (p->turned) v = turn(p, v);
    v = aril_cast(v, (aril_dtype)p->to->dtype);
    v = aril_contiguous(aril_to(v, aril_device_of(p->to)));
    p->value = aril_keep(v);
    return aril_tensor_status(v);
}

static aril_status write_value(const pair *p)
{
    if (!p->fits) return ARIL_OK;
    if (p->to->storage->device->host_memory && aril__is_dense(p->to)) {
        memmove(aril__ptr(p->to), aril__ptr(p->value),
                aril__dtype_bytes((aril_dtype)p->to->dtype, p->to->numel));
        aril__bump_version(p->to);
        return ARIL_OK;
    }
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    return aril_tensor_status(aril_copy_(p->to, p->value));
}

static aril_status load_values(loading *l)
{
    aril_status s = ARIL_OK;
    for (int i = 0; i < l->n && s == ARIL_OK; i++) s = prepare(l, i);
    if (s == ARIL_OK && l->file) s = aril_weights_check(l->file);
    for (int i = 0; i < l->n && s == ARIL_OK; i++) s = write_value(&l->pair[i]);
    if (s == ARIL_OK && l->file) s = aril_weights_check(l->file);
    return s;
}

/* ---- the report ---- */

typedef struct report_writer {
    aril_weights_line *line;
    char *text;
} report_writer;

static const char *put_text(report_writer *w, const char *text)
{
    size_t n = strlen(text) + 1;
    char *at = memcpy(w->text, text, n);
    w->text += n;
    return at;
}

static void put_pairs(report_writer *w, const loading *l, bool other, aril_weights_lines *lines)
{
    lines->at = w->line;
    for (int i = 0; i < l->n; i++) {
        const pair *p = &l->pair[i];
        if (!p->name || (other ? !p->to || p->fits : p->to != NULL)) continue;
        *w->line = (aril_weights_line){ .name = put_text(w, p->name),
                                        .file_name = put_text(w, p->from),
                                        .file_shape = p->shape };
        if (other) w->line->shape = aril__shape(p->to);
        if (!other) w->line->name = NULL;
        w->line++;
        lines->n++;
    }
}

static void put_missing(report_writer *w, const loading *l, aril_weights_lines *lines)
{
    lines->at = w->line;
    for (int i = 0; i < l->state.n; i++) {
        if (!l->missing[i]) continue;
        *w->line++ = (aril_weights_line){ .name = put_text(w, l->state.name[i]),
                                          .shape = aril__shape(l->state.tensor[i]) };
        lines->n++;
    }
}

static aril_status make_report(const loading *l, aril_weights_report *report)
{
    size_t n = (size_t)l->n_missing + (size_t)l->n_left + (size_t)l->n_other, text = 1;
    for (int i = 0; i < l->state.n; i++)
        if (l->missing[i]) text += strlen(l->state.name[i]) + 1;
    for (int i = 0; i < l->n; i++)
        if (l->pair[i].name && !l->pair[i].fits)
            text += strlen(l->pair[i].name) + strlen(l->pair[i].from) + 2;
    report->memory = aril__malloc((n + 1) * sizeof(aril_weights_line) + text);
    if (!report->memory) return no_memory(l);
    report_writer w = { report->memory, (char *)((aril_weights_line *)report->memory + n + 1) };
    put_missing(&w, l, &report->missing);
    put_pairs(&w, l, false, &report->left_over);
    put_pairs(&w, l, true, &report->other_shape);
    return ARIL_OK;
}

void aril_weights_report_free(aril_weights_report *report)
{
    if (!report) return;
    free(report->memory);
    *report = (aril_weights_report){ 0 };
}

static void print_lines(const aril_weights_lines *lines, const char *title, FILE *to, int max)
{
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    if (!lines->n) return;
    fprintf(to, "%d %s:\n", lines->n, title);
    for (int i = 0; i < lines->n && (max < 0 || i < max); i++) {
        const aril_weights_line *l = &lines->at[i];
        aril__shape_text(a, l->shape.ndim, l->shape.dim);
        aril__shape_text(b, l->file_shape.ndim, l->file_shape.dim);
        fprintf(to, "  %s %s", l->name ? l->name : l->file_name, l->name ? a : b);
        if (l->name && l->file_name) fprintf(to, ", in the file %s", b);
        fputc('\n', to);
    }
    if (max >= 0 && lines->n > max) fprintf(to, "  and %d more\n", lines->n - max);
}

void aril_weights_report_print(const aril_weights_report *report, FILE *to, int max)
{
    if (!report || !to) return;
    if (max == 0) max = 10;
    fprintf(to, "%d loaded", report->loaded);
    if (report->turned) fprintf(to, ", %d of them turned from Keras' order", report->turned);
    fputc('\n', to);
    print_lines(&report->missing, "missing", to, max);
    print_lines(&report->left_over, "left over", to, max);
    print_lines(&report->other_shape, "of another shape", to, max);
}

/* ---- loading ---- */

static void clean(loading *l)
{
    for (int i = 0; l->pair && i < l->n; i++) {
        aril_release(l->pair[i].value);
        free(l->pair[i].name);
    }
    free(l->pair);
    free(l->missing);
    aril__gathered_free(&l->state);
}

static aril_status load(loading *l, aril_weights_report *report)
{
    if (!l->m) return aril__fail(ARIL_ERR_ARG, "%s: the module is NULL", l->what);
    if (!aril_state(l->m)) return aril__last_status(); /* sizes are unknown: the error says which */
    aril_status s = aril__gather(l->m, STATE, &l->state);
    if (s < 0) return s;
    l->pair = aril__calloc(((size_t)l->n + 1) * sizeof *l->pair);
    l->missing = aril__calloc((size_t)l->state.n + 1);
    s = l->pair && l->missing ? pair_up(l) : no_memory(l);
    if (s == ARIL_OK && report) s = make_report(l, report);
    if (s == ARIL_OK) s = check_fit(l);
    if (s == ARIL_OK) s = load_values(l);
    for (int i = 0; s == ARIL_OK && report && i < l->n; i++) {
        report->loaded += l->pair[i].fits;
        report->turned += l->pair[i].fits && l->pair[i].turned;
    }
    clean(l);
    return s;
}

aril_status aril_load_state(aril_module *m, const aril_named *from, aril_load_state_opts opts)
{
    loading l = { .what = "load_state", .m = m, .named = from, .partial = opts.partial };
    if (m && (!from || from->n < 0 || (from->n > 0 && !from->at)))
        return aril__fail(ARIL_ERR_ARG, "load_state: the state is NULL");
    l.n = from ? from->n : 0;
    return load(&l, NULL);
}

aril_status aril_load_weights_from(aril_module *m, aril_weights *w, aril_load_weights_opts opts)
{
    loading l = { .what = "load_weights",
                  .m = m,
                  .file = w,
                  .rename = opts.rename,
                  .partial = opts.partial,
                  .other_shapes = opts.other_shapes,
                  .n = aril_weights_count(w) };
    if (opts.report) *opts.report = (aril_weights_report){ 0 };
    if (!w) return aril__fail(ARIL_ERR_ARG, "load_weights: no file");
    if ((unsigned)opts.order > ARIL_ORDER_KERAS)
        return aril__fail(ARIL_ERR_ARG, "load_weights: no order of kernels has the number %d",
                          (int)opts.order);
    l.kernels_turned =
        opts.order == ARIL_ORDER_KERAS || (opts.order == ARIL_ORDER_OF_FILE && w->kernels_turned);
    return load(&l, opts.report);
}

aril_status aril_load_weights(aril_module *m, const char *path, aril_load_weights_opts opts)
{
    if (opts.report) *opts.report = (aril_weights_report){ 0 };
    if (!m) return aril__fail(ARIL_ERR_ARG, "load_weights: the module is NULL");
    aril_weights *w =
        aril_weights_open(path, (aril_weights_opts){ .root = opts.root, .verify = true });
    if (!w) return aril__last_status();
    aril_status s = aril_load_weights_from(m, w, opts);
    aril_weights_close(w);
    return s;
}

aril_status aril_save(aril_module *m, const char *path)
{
    /* Tools of the PyTorch ecosystem require this key before they read a file. */
    static const char *const key[] = { "format" }, *const value[] = { "pt" };
    aril_metadata metadata = { 1, key, value };
    const aril_named *state = aril_state(m);
    if (!state) return aril__last_status();
    const aril__weights_kind *kind = aril__weights_kind_for(path);
    bool safetensors = !kind || kind == &aril__safetensors_weights;
    return aril_weights_save(path, state,
                             (aril_weights_save_opts){ .kind = kind ? kind->id : "safetensors",
                                                       .metadata =
                                                           safetensors ? &metadata : NULL });
}
