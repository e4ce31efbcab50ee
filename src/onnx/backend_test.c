/* ONNX's backend tests: models with inputs and the outputs that are expected. */
#include "formats/schemas.h"
#include "onnx/program.h"
#include "onnx/rules.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

typedef struct testing {
    FILE *to;
    aril_onnx_test_opts opts;
    aril_onnx_results *results;
    bool found;
} testing;

static bool exists(const char *path, bool folder)
{
    struct stat st;
    return stat(path, &st) == 0 && (folder ? S_ISDIR(st.st_mode) : S_ISREG(st.st_mode));
}

/* ---- comparing ---- */

static bool differ(char *why, size_t size, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static bool differ(char *why, size_t size, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, size, fmt, args);
    va_end(args);
    return false;
}

static bool differ_by_error(char *why, size_t size)
{
    aril__error_text(why, size);
    return false;
}

static const char *shape_text(aril_shape s, char *buf, size_t size)
{
    size_t n = (size_t)snprintf(buf, size, "[");
    for (int i = 0; i < s.ndim && n < size; i++)
        n += (size_t)snprintf(buf + n, size - n, "%s%" PRId64, i ? "," : "", s.dim[i]);
    if (n < size) snprintf(buf + n, size - n, "]");
    return buf;
}

static bool same_shape(aril_shape a, aril_shape b)
{
    return a.ndim == b.ndim && memcmp(a.dim, b.dim, (size_t)a.ndim * sizeof *a.dim) == 0;
}

/* Two numbers that differ, with as many digits as it takes to see that. */
static void two_numbers(double a, double b, char is[32], char must[32])
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(is, 32, "%.*g", digits, a);
        snprintf(must, 32, "%.*g", digits, b);
        if (strcmp(is, must) != 0) return;
    }
}

static bool same_tensor(const testing *t, aril_tensor *got, aril_tensor *want, bool values,
                        char *why, size_t size)
{
    char a[200], b[200];
    if (!same_shape(aril_shape_of(got), aril_shape_of(want)))
        return differ(why, size, "sizes %s, expected %s",
                      shape_text(aril_shape_of(got), a, sizeof a),
                      shape_text(aril_shape_of(want), b, sizeof b));
    if (aril_dtype_of(got) != aril_dtype_of(want))
        return differ(why, size, "dtype %s, expected %s", aril_dtype_name(aril_dtype_of(got)),
                      aril_dtype_name(aril_dtype_of(want)));
    if (!values) return true;
    ARIL_SCOPE;
    int64_t n = aril_numel(got);
    bool wide = aril_dtype_of(got) == ARIL_I64 || aril_dtype_of(got) == ARIL_U64;
    aril_dtype as = wide ? aril_dtype_of(got) : ARIL_F64;
    const void *x = aril_data(aril_cast(aril_to(got, aril_cpu()), as)),
               *y = aril_data(aril_cast(want, as));
    if (n && (!x || !y)) return differ_by_error(why, size);
    for (int64_t i = 0; i < n; i++) {
        if (wide && ((const int64_t *)x)[i] != ((const int64_t *)y)[i])
            return differ(why, size, "element %" PRId64 " is %" PRId64 ", expected %" PRId64, i,
                          ((const int64_t *)x)[i], ((const int64_t *)y)[i]);
        if (wide) continue;
        double g = ((const double *)x)[i], w = ((const double *)y)[i];
        bool close = g == w || (isnan(g) && isnan(w)) ||
                     fabs(g - w) <= t->opts.atol + t->opts.rtol * fabs(w);
        if (!close) {
            char is[32], must[32];
            two_numbers(g, w, is, must);
            return differ(why, size, "element %" PRId64 " is %s, expected %s", i, is, must);
        }
    }
    return true;
}

static bool same_text(const aril_value *got, const aril_value *want, char *why, size_t size)
{
    char a[200], b[200];
    if (!same_shape(aril_value_shape(got), aril_value_shape(want)))
        return differ(why, size, "sizes %s, expected %s",
                      shape_text(aril_value_shape(got), a, sizeof a),
                      shape_text(aril_value_shape(want), b, sizeof b));
    for (int64_t i = 0; i < aril_value_count(got); i++) /* equal strings are one */
        if (aril_value_string(got, i) != aril_value_string(want, i))
            return differ(why, size, "element %" PRId64 " is \"%s\", expected \"%s\"", i,
                          aril_value_string(got, i), aril_value_string(want, i));
    return true;
}

/* An optional with a value is that value. */
static const aril_value *inside(const aril_value *v)
{
    while (aril_value_kind_of(v) == ARIL_VALUE_OPTIONAL && aril_value_count(v))
        v = aril_value_at(v, 0);
    return v;
}

static bool same_value(const testing *t, const aril_value *got, const aril_value *want, bool values,
                       char *why, size_t size)
{
    got = inside(got);
    want = inside(want);
    aril_value_kind kind = aril_value_kind_of(got);
    if (kind != aril_value_kind_of(want))
        return differ(why, size, "another kind of value than expected");
    if (kind == ARIL_VALUE_TENSOR)
        return same_tensor(t, aril_value_tensor(got), aril_value_tensor(want), values, why, size);
    if (kind == ARIL_VALUE_TEXT) return same_text(got, want, why, size);
    if (aril_value_count(got) != aril_value_count(want))
        return differ(why, size, "%" PRId64 " values, expected %" PRId64, aril_value_count(got),
                      aril_value_count(want));
    if (kind == ARIL_VALUE_MAP &&
        !same_value(t, aril_value_keys(got), aril_value_keys(want), true, why, size))
        return false;
    for (int64_t i = 0; i < aril_value_count(got); i++)
        if (!same_value(t, aril_value_at(got, i), aril_value_at(want, i), values, why, size))
            return false;
    return true;
}

/* ---- running ---- */

static bool is_random(const onnx_body *body)
{
    for (size_t i = 0; i < body->n_nodes; i++) {
        const onnx_node *n = &body->node[i];
        if (n->rule && (n->rule->flags & ONNX_RANDOM ||
                        (strcmp(n->rule->name, "Dropout") == 0 && n->n_in > 2)))
            return true;
        for (size_t k = 0; k < n->n_bodies; k++)
            if (is_random(&n->body[k])) return true;
    }
    return false;
}

static aril_status run_case(aril_program *p, const onnx_model *m, size_t n, const onnx_value *in,
                            aril_value **out)
{
    aril_value **given = aril__calloc((n + 1) * sizeof *given);
    aril_status s = given ? ARIL_OK : aril__fail(ARIL_ERR_MEMORY, "onnx: out of memory");
    for (size_t i = 0; i < n && s == ARIL_OK; i++) {
        onnx_value v = in[i];
        if (v.kind == ONNX_TENSOR) v.tensor = aril_to(v.tensor, m->device);
        if (!(given[i] = aril__onnx_to_value(&v))) s = aril__latest_status();
    }
    if (s == ARIL_OK) s = aril_program_run_values(p, (aril_values){ (int)n, given }, out);
    free(given);
    return s;
}

static const aril__proto_type *type_of(const onnx_port *port)
{
    if (aril__message_has(port->type, "sequence_type")) return &aril__onnx_SequenceProto;
    if (aril__message_has(port->type, "optional_type")) return &aril__onnx_OptionalProto;
    return &aril__onnx_TensorProto;
}

/* Reads a value; optionals may be stored as what they hold. */
static aril_status read_value(onnx_arena *a, const char *path, const onnx_port *port,
                              onnx_value *out)
{
    aril__message *m = aril__message_load(type_of(port), path);
    if (!m) return aril__latest_status();
    aril_status s = aril__onnx_value_of(a, m, out);
    aril__message_free(m);
    return s;
}

/* The input of the file input_k.pb: the model's list has the required ones first. */
static int port_of(const onnx_model *m, int k)
{
    for (int i = 0; i < m->n_in; i++)
        if (m->in[i].slot == m->main.in[k]) return i;
    return 0;
}

static aril_status read_inputs(onnx_model *m, onnx_arena *a, const char *folder, onnx_value *in,
                               size_t *n)
{
    *n = 0;
    for (int k = 0; k < m->n_in; k++) {
        char path[4096];
        int i = port_of(m, k);
        snprintf(path, sizeof path, "%.4000s/input_%d.pb", folder, k);
        if (!exists(path, false)) continue;
        aril_status s = read_value(a, path, &m->in[i], &in[i]);
        if (s < 0) return s;
        if ((size_t)i >= *n) *n = (size_t)i + 1;
    }
    return ARIL_OK;
}

/* One set of data. False with the reason. */
static bool run_set(const testing *t, aril_program *p, onnx_model *m, const char *folder,
                    bool *random, char *why, size_t size)
{
    ARIL_SCOPE;
    onnx_arena arena = { 0 };
    onnx_value *in = aril__onnx_alloc(&arena, (size_t)m->n_in + 1, sizeof *in);
    aril_value **out = aril__onnx_alloc(&arena, (size_t)m->n_out + 1, sizeof *out);
    size_t n = 0;
    aril_status s = in && out ? read_inputs(m, &arena, folder, in, &n) : ARIL_ERR_MEMORY;
    if (s == ARIL_OK) s = run_case(p, m, n, in, out);
    bool good = s == ARIL_OK || differ_by_error(why, size);
    for (int i = 0; i < m->n_out && good; i++) {
        char path[4096];
        onnx_value read;
        aril_value *want = NULL;
        snprintf(path, sizeof path, "%.4000s/output_%d.pb", folder, i);
        if (!exists(path, false)) continue;
        if (read_value(&arena, path, &m->out[i], &read) < 0 ||
            !(want = aril__onnx_to_value(&read))) {
            good = differ_by_error(why, size);
            continue;
        }
        good = same_value(t, out[i], want, true, why, size);
        if (!good && is_random(&m->main)) {
            *random = true;
            good = same_value(t, out[i], want, false, why, size);
        }
        if (!good) {
            char text[600];
            snprintf(text, sizeof text, "%.599s", why);
            differ(why, size, "output %s: %s", m->out[i].name, text);
        }
    }
    aril__onnx_arena_free(&arena);
    return good;
}

static void count(testing *t, const char *name, bool good, bool random, const char *why)
{
    t->found = true;
    if (good) {
        t->results->passed++;
        t->results->random += random;
        if (t->opts.verbose)
            fprintf(t->to, "PASS %s%s\n", name, random ? " (shape and dtype)" : "");
    } else {
        t->results->failed++;
        fprintf(t->to, "FAIL %s: %s\n", name, why);
    }
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* A folder with model.onnx. */
static void run_folder(testing *t, const char *folder)
{
    char path[4096], why[1000] = "no test data";
    snprintf(path, sizeof path, "%.4000s/model.onnx", folder);
    aril_clear_error();
    onnx_model *m =
        aril__onnx_model_load(path, (aril_load_opts){ .device = t->opts.device }, false);
    if (!m) {
        aril__error_text(why, sizeof why);
        count(t, last_part(folder), false, false, why);
        aril_clear_error();
        return;
    }
    aril_program *p = aril__onnx_program(m);
    bool good = true, random = false;
    int sets = 0;
    for (; good; sets++) {
        snprintf(path, sizeof path, "%.4000s/test_data_set_%d", folder, sets);
        if (!exists(path, true)) break;
        good = p && run_set(t, p, m, path, &random, why, sizeof why);
    }
    if (good && !sets) {
        t->results->skipped++;
        t->found = true;
        fprintf(t->to, "SKIP %s: %s\n", last_part(folder), why);
    } else {
        count(t, last_part(folder), good, random, why);
    }
    aril_program_free(p);
    aril_clear_error();
}

/* ---- light_X.onnx ---- */

/* arange(n) / n in the shape of the input. */
static aril_tensor *light_input(const aril_program *p, int i, aril_device device)
{
    aril_shape shape = aril_program_input_shape(p, i);
    int64_t n = 1;
    for (int d = 0; d < shape.ndim; d++) {
        if (shape.dim[d] < 0) shape.dim[d] = 1;
        n *= shape.dim[d];
    }
    aril_tensor *x = aril_arange(0, n, 1, ARIL_F32, device);
    return aril_cast(aril_reshape(aril_div_scalar(x, (double)n), shape),
                     aril_program_input_dtype(p, i));
}

static void run_light(testing *t, const char *folder, const char *file)
{
    ARIL_SCOPE;
    char path[4096], why[1000] = "";
    int stem = (int)strlen(file) - 5;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    aril_clear_error();
    onnx_model *m =
        aril__onnx_model_load(path, (aril_load_opts){ .device = t->opts.device }, false);
    aril_program *p = m ? aril__onnx_program(m) : NULL;
    onnx_arena arena = { 0 };
    aril_tensor *in[16], *out[16];
    bool good = p && m->n_required <= 16 && m->n_out <= 16;
    for (int i = 0; good && i < m->n_required; i++) in[i] = light_input(p, i, t->opts.device);
    good = good && aril_program_run(p, (aril_list){ m->n_required, in }, out) == ARIL_OK;
    if (!good) differ_by_error(why, sizeof why);
    for (int i = 0; good && i < m->n_out; i++) {
        onnx_value want;
        snprintf(path, sizeof path, "%.3000s/%.*s_output_%d.pb", folder, stem, file, i);
        if (!exists(path, false)) continue;
        if (read_value(&arena, path, &m->out[i], &want) < 0)
            good = differ_by_error(why, sizeof why);
        else
            good = want.kind == ONNX_TENSOR &&
                   same_tensor(t, out[i], want.tensor, true, why, sizeof why);
    }
    char name[256];
    snprintf(name, sizeof name, "%.*s", stem, file);
    count(t, name, good, false, why);
    aril__onnx_arena_free(&arena);
    aril_program_free(p);
    aril_clear_error();
}

/* ---- folders ---- */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static char **list_folder(const char *folder, size_t *n)
{
    DIR *d = opendir(folder);
    char **names = NULL;
    *n = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        char **grown = aril__realloc(names, (*n + 1) * sizeof *names);
        if (!grown) break;
        names = grown;
        if (e->d_name[0] != '.' && (names[*n] = aril__strdup(e->d_name))) ++*n;
    }
    if (d) closedir(d);
    if (*n) qsort(names, *n, sizeof *names, by_text);
    return names;
}

static bool is_light(const char *folder, const char *file)
{
    char path[4096];
    size_t n = strlen(file);
    if (n < 6 || strcmp(file + n - 5, ".onnx") != 0) return false;
    snprintf(path, sizeof path, "%s/%.*s_output_0.pb", folder, (int)n - 5, file);
    return exists(path, false);
}

static void run_tree(testing *t, const char *folder, int depth)
{
    char path[4096];
    snprintf(path, sizeof path, "%.4000s/model.onnx", folder);
    if (exists(path, false)) {
        run_folder(t, folder);
        return;
    }
    size_t n;
    char **names = list_folder(folder, &n);
    for (size_t i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (is_light(folder, names[i]))
            run_light(t, folder, names[i]);
        else if (depth < 3 && exists(path, true))
            run_tree(t, path, depth + 1);
        free(names[i]);
    }
    free(names);
}

static double tolerance(double given, double otherwise)
{
    return given == 0 ? otherwise : given == ARIL_ZERO ? 0 : given;
}

aril_status aril_onnx_test(const char *folder, FILE *to, aril_onnx_test_opts opts,
                           aril_onnx_results *results)
{
    if (!folder || !to || !results)
        return aril__fail(ARIL_ERR_ARG, "onnx_test: an argument is NULL");
    opts.rtol = tolerance(opts.rtol, 1e-3);
    opts.atol = tolerance(opts.atol, 1e-5);
    testing t = { to, opts, results, false };
    *results = (aril_onnx_results){ 0 };
    if (!exists(folder, true))
        return aril__fail(ARIL_ERR_IO, "onnx_test: %s is not a folder", folder);
    run_tree(&t, folder, 0);
    if (t.found) return ARIL_OK;
    return aril__fail(ARIL_ERR_ARG,
                      "onnx_test: %s holds neither model.onnx with test_data_set_0, nor "
                      "folders with it, nor light_X.onnx",
                      folder);
}
