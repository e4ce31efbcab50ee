/* Tables of numbers in text, one row a line: values separated by commas, semicolons or tabs. */
#include "aril/datasets.h"

#include "aril/device.h"
#include "aril/make.h"
#include "aril/scope.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "data/open.h"
#include "data/words.h"
#include "formats/gzip.h"
#include "formats/number.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A value of a row, without its quotes. */
struct field {
    const char *at;
    size_t n;
    bool quoted;
};

struct table {
    const char *path;
    aril_csv_opts opts;
    char *at, *end; /* what is left; quoted values are rewritten in place */
    char separator;
    int64_t line, row_line; /* the line after the row, and its first */
    struct field *field;    /* the row */
    int n, room;
    int columns, target; /* target: -1 where there is none */
    aril__texts head;    /* names of columns; none without a header */
    bool *skip;          /* columns that are left out */
    aril__bytes x;       /* f32, row after row */
    aril__bytes y;       /* f64, or int64_t numbers of words */
    bool text_target;
    aril__words labels;
    int64_t rows;
};

static aril_status wrong(const struct table *t, int column, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static aril_status wrong(const struct table *t, int column, const char *fmt, ...)
{
    char text[256], name[96] = "";
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (column < 0)
        return aril__fail(ARIL_ERR_FORMAT, "%s:%lld: %s", t->path, (long long)t->row_line, text);
    if (column < t->head.n) snprintf(name, sizeof name, " (%.80s)", t->head.at[column]);
    return aril__fail(ARIL_ERR_FORMAT, "%s:%lld: column %d%s: %s", t->path, (long long)t->row_line,
                      column + 1, name, text);
}

static aril_status no_memory(const struct table *t)
{
    return aril__fail(ARIL_ERR_MEMORY, "no memory to read %s", t->path);
}

/* ---- rows ---- */

static aril_status add_field(struct table *t, struct field f)
{
    if (t->n == t->room) {
        int room = t->room ? t->room * 2 : 32;
        struct field *more = aril__realloc(t->field, (size_t)room * sizeof *more);
        if (!more) return no_memory(t);
        t->field = more;
        t->room = room;
    }
    t->field[t->n++] = f;
    return ARIL_OK;
}

/* A value in quotes, in which "" stands for one; the closing one is at *to's end. */
static aril_status quoted_field(struct table *t, struct field *f)
{
    char *from = ++t->at, *to = from;
    f->at = from;
    f->quoted = true;
    for (;; t->at++) {
        if (t->at == t->end) return wrong(t, t->n, "a quote is opened and not closed");
        if (*t->at == '\n') t->line++;
        if (*t->at == '"') {
            if (t->at + 1 == t->end || t->at[1] != '"') break;
            t->at++;
        }
        *to++ = *t->at;
    }
    f->n = (size_t)(to - from);
    t->at++;
    if (t->at < t->end && *t->at != t->separator && *t->at != '\n' && *t->at != '\r')
        return wrong(t, t->n, "text follows a closing quote");
    return ARIL_OK;
}

/* The next row that is not empty. 1, 0 at the end, or a negative status. */
static int next_row(struct table *t)
{
    t->n = 0;
    while (t->at < t->end && (*t->at == '\n' || *t->at == '\r')) t->line += *t->at++ == '\n';
    if (t->at == t->end) return 0;
    t->row_line = t->line;
    for (;;) {
        struct field f = { .at = t->at };
        aril_status status = ARIL_OK;
        if (*t->at == '"') {
            status = quoted_field(t, &f);
        } else {
            while (t->at < t->end && *t->at != t->separator && *t->at != '\n') t->at++;
            f.n = (size_t)(t->at - f.at);
            if (f.n > 0 && f.at[f.n - 1] == '\r') f.n--;
        }
        if (status == ARIL_OK) status = add_field(t, f);
        if (status != ARIL_OK) return status;
        while (t->at < t->end && *t->at == '\r') t->at++;
        if (t->at == t->end) return 1;
        if (*t->at++ == '\n') {
            t->line++;
            return 1;
        }
        if (t->at == t->end) { /* a separator at the very end: an empty value */
            status = add_field(t, (struct field){ .at = t->at });
            return status == ARIL_OK ? 1 : status;
        }
    }
}

/* ---- the header and the columns ---- */

static bool is_number(const struct field *f)
{
    double v;
    return aril__parse_number(f->at, f->n, &v);
}

static char guess_separator(const struct table *t)
{
    static const char candidates[] = ",;\t|";
    size_t ends = strcspn(t->at, "\n");
    char best = ',';
    size_t most = 0;
    for (const char *c = candidates; *c; c++) {
        size_t n = 0;
        for (size_t i = 0; i < ends; i++) n += t->at[i] == *c;
        if (n > most) {
            most = n;
            best = *c;
        }
    }
    return best;
}

static int column_named(const struct table *t, const char *name, size_t n)
{
    for (int i = 0; i < t->head.n; i++)
        if (strlen(t->head.at[i]) == n && strncmp(t->head.at[i], name, n) == 0) return i;
    return -1;
}

static aril_status no_column(const struct table *t, const char *name)
{
    const char *near = aril_nearest(name, (const char *const *)t->head.at, (int)t->head.n);
    return aril__fail(ARIL_ERR_ARG, "%s has no column \"%s\"%s%s%s", t->path, name,
                      t->head.n == 0 ? ": it has no header"
                      : near         ? "; did you mean "
                                     : "",
                      near ? near : "", near ? "?" : "");
}

static aril_status choose_columns(struct table *t)
{
    const aril_csv_opts *o = &t->opts;
    t->skip = aril__calloc((size_t)t->columns + 1);
    if (!t->skip) return no_memory(t);
    t->target = t->columns - 1;
    if (o->no_target) {
        t->target = -1;
    } else if (o->target) {
        t->target = column_named(t, o->target, strlen(o->target));
        if (t->target < 0) return no_column(t, o->target);
    } else if (o->target_column) {
        t->target = o->target_column > 0 ? o->target_column - 1 : t->columns + o->target_column;
        if (t->target < 0 || t->target >= t->columns)
            return aril__fail(ARIL_ERR_ARG, "%s has %d columns, and no column %d", t->path,
                              t->columns, o->target_column);
    }
    for (const char *p = o->skip; p && *p;) {
        size_t n = strcspn(p, ",");
        char name[128];
        int column = column_named(t, p, n);
        snprintf(name, sizeof name, "%.*s", (int)(n < 127 ? n : 127), p);
        if (column < 0) return no_column(t, name);
        t->skip[column] = true;
        p += n + (p[n] == ',');
    }
    if (t->target >= 0) t->skip[t->target] = true;
    return ARIL_OK;
}

/* Takes the first row as names or leaves it to be read as values. */
static aril_status read_head(struct table *t)
{
    int row = next_row(t);
    if (row == 0) return aril__fail(ARIL_ERR_FORMAT, "%s is empty", t->path);
    if (row < 0) return row;
    t->columns = t->n;
    bool head = t->opts.header == ARIL_CSV_HEADER;
    if (t->opts.header == ARIL_CSV_GUESS_HEADER) {
        head = true;
        for (int i = 0; i < t->n; i++) head &= !is_number(&t->field[i]);
    }
    for (int i = 0; i < t->n && head; i++) {
        char name[256];
        const char *p = t->field[i].at;
        size_t n = t->field[i].n;
        while (n > 0 && *p == ' ') p++, n--;
        while (n > 0 && p[n - 1] == ' ') n--;
        snprintf(name, sizeof name, "%.*s", (int)(n < 255 ? n : 255), p);
        aril_status status = aril__texts_add(&t->head, name);
        if (status != ARIL_OK) return status;
    }
    aril_status status = choose_columns(t);
    if (status == ARIL_OK && head) t->n = 0;
    return status;
}

/* ---- values ---- */

static bool is_missing(const struct field *f)
{
    size_t n = f->n;
    const char *p = f->at;
    while (n > 0 && *p == ' ') p++, n--;
    while (n > 0 && p[n - 1] == ' ') n--;
    return n == 0 || (n == 1 && *p == '?') || (n == 2 && !strncasecmp(p, "na", 2)) ||
           (n == 3 && !strncasecmp(p, "n/a", 3)) || (n == 4 && !strncasecmp(p, "null", 4));
}

/* From the first label that is no number on, labels are words: those before it too. */
static aril_status labels_are_words(struct table *t)
{
    const double *value = (const double *)(const void *)t->y.at;
    aril__bytes y = { 0 };
    t->text_target = true;
    for (int64_t i = 0; i < t->rows; i++) {
        char text[40];
        snprintf(text, sizeof text, "%.15g", value[i]);
        int64_t number = aril__words_add(&t->labels, text, strlen(text));
        if (number < 0 || !aril__bytes_add(&y, &number, sizeof number)) {
            aril__bytes_free(&y);
            return no_memory(t);
        }
    }
    aril__bytes_free(&t->y);
    t->y = y;
    return ARIL_OK;
}

static aril_status read_target(struct table *t, const struct field *f)
{
    double v;
    bool number = aril__parse_number(f->at, f->n, &v);
    if (is_missing(f)) return wrong(t, t->target, "the target is missing");
    if (!number && t->opts.real_target)
        return wrong(t, t->target, "\"%.*s\" is no number", (int)(f->n < 60 ? f->n : 60), f->at);
    if (!t->text_target && (!number || t->opts.classes)) {
        aril_status status = labels_are_words(t);
        if (status != ARIL_OK) return status;
    }
    if (!t->text_target) return aril__bytes_add(&t->y, &v, sizeof v) ? ARIL_OK : no_memory(t);
    const char *p = f->at;
    size_t n = f->n;
    while (n > 0 && *p == ' ' && !f->quoted) p++, n--;
    while (n > 0 && p[n - 1] == ' ' && !f->quoted) n--;
    if (memchr(p, 0, n)) return wrong(t, t->target, "a label with a 0 byte");
    int64_t label = aril__words_add(&t->labels, p, n);
    if (label < 0) return (aril_status)label;
    return aril__bytes_add(&t->y, &label, sizeof label) ? ARIL_OK : no_memory(t);
}

static aril_status read_row(struct table *t)
{
    if (t->n != t->columns)
        return wrong(t, -1, "%d values, and %d in the first row", t->n, t->columns);
    for (int i = 0; i < t->n; i++) {
        if (t->skip[i]) continue;
        double v = (double)NAN;
        const struct field *f = &t->field[i];
        if (!aril__parse_number(f->at, f->n, &v)) {
            if (!is_missing(f))
                return wrong(t, i, "\"%.*s\" is no number", (int)(f->n < 60 ? f->n : 60), f->at);
            if (!t->opts.allow_missing)
                return wrong(t, i, "the value is missing (.allow_missing makes it NaN)");
        }
        float narrow = (float)v;
        if (!aril__bytes_add(&t->x, &narrow, sizeof narrow)) return no_memory(t);
    }
    aril_status status = t->target >= 0 ? read_target(t, &t->field[t->target]) : ARIL_OK;
    t->rows++;
    return status;
}

/* ---- targets ---- */

static int by_text(const aril__words *w, int64_t a, int64_t b)
{
    return strcmp(w->text.at[a], w->text.at[b]);
}

/* Labels as numbers of the given classes, or of the words in alphabetical order. */
static aril_status number_labels(struct table *t, int64_t *number)
{
    if (!t->opts.classes) return aril__words_sort(&t->labels, by_text, number);
    for (int64_t i = 0; i < t->labels.text.n; i++) {
        number[i] = -1;
        for (int k = 0; k < t->opts.n_classes; k++)
            if (strcmp(t->labels.text.at[i], t->opts.classes[k]) == 0) number[i] = k;
        if (number[i] < 0)
            return aril__fail(ARIL_ERR_FORMAT, "%s: label \"%s\" is none of the %d classes",
                              t->path, t->labels.text.at[i], t->opts.n_classes);
    }
    return ARIL_OK;
}

/* i64 [N] of classes, or f32 [N]. */
static aril_tensor *targets(struct table *t)
{
    const double *value = (const double *)(const void *)t->y.at;
    bool whole = !t->text_target && !t->opts.real_target;
    for (int64_t i = 0; i < t->rows && whole; i++)
        whole = value[i] >= 0 && value[i] < 1e9 && value[i] == floor(value[i]);
    aril_dtype dtype = t->text_target || whole ? ARIL_I64 : ARIL_F32;
    aril_tensor *y = aril_empty(ARIL_SHAPE(t->rows), dtype, aril_cpu());
    if (aril_tensor_status(y) != ARIL_OK) return y;
    if (!t->text_target) {
        for (int64_t i = 0; i < t->rows; i++) {
            if (whole)
                ((int64_t *)aril__ptr(y))[i] = (int64_t)value[i];
            else
                ((float *)aril__ptr(y))[i] = (float)value[i];
        }
        return y;
    }
    const int64_t *label = (const int64_t *)(const void *)t->y.at;
    int64_t *number = aril__malloc(((size_t)t->labels.text.n + 1) * sizeof *number);
    aril_status status = number ? number_labels(t, number) : no_memory(t);
    for (int64_t i = 0; i < t->rows && status == ARIL_OK; i++)
        ((int64_t *)aril__ptr(y))[i] = number[label[i]];
    free(number);
    return status == ARIL_OK ? y : aril__poison();
}

static aril_dataset *make(struct table *t)
{
    ARIL_SCOPE;
    int64_t features = 0;
    for (int i = 0; i < t->columns; i++) features += !t->skip[i];
    aril_tensor *x = aril_empty(ARIL_SHAPE(t->rows, features), ARIL_F32, aril_cpu()); /* [N,F] */
    if (aril_tensor_status(x) != ARIL_OK) return NULL;
    if (t->x.n) memcpy(aril__ptr(x), t->x.at, t->x.n);
    aril_tensor *y = t->target >= 0 ? targets(t) : NULL;
    if (y && aril_tensor_status(y) != ARIL_OK) return NULL;
    aril_dataset *d = aril_dataset_tensors(x, y);
    if (!t->text_target) return d;
    if (t->opts.classes) return aril__with_classes(d, t->opts.n_classes, t->opts.classes);
    return aril__with_classes(d, (int)t->labels.text.n, (const char *const *)t->labels.text.at);
}

aril_dataset *aril_dataset_csv(const char *path, aril_csv_opts opts)
{
    aril__bytes b = { 0 };
    if (aril__read_unpacked("CSV", path, 0, &b) != ARIL_OK) return NULL;
    struct table t = {
        .path = path, .opts = opts, .at = (char *)b.at, .end = (char *)b.at + b.n, .line = 1
    };
    if (b.n >= 3 && memcmp(b.at, "\xef\xbb\xbf", 3) == 0) t.at += 3; /* a byte order mark */
    t.separator = opts.separator ? opts.separator : guess_separator(&t);
    aril_status status = read_head(&t);
    if (status == ARIL_OK && t.n > 0) status = read_row(&t);
    while (status == ARIL_OK) {
        int row = next_row(&t);
        if (row <= 0) {
            status = row;
            break;
        }
        status = read_row(&t);
    }
    if (status == ARIL_OK && t.rows == 0)
        status = aril__fail(ARIL_ERR_FORMAT, "%s has a header and no rows", path);
    aril_dataset *d = status == ARIL_OK ? make(&t) : NULL;
    aril__bytes_free(&b);
    aril__bytes_free(&t.x);
    aril__bytes_free(&t.y);
    aril__words_free(&t.labels);
    aril__texts_free(&t.head);
    free(t.field);
    free(t.skip);
    return d;
}

aril_dataset *aril__open_csv(const char *path, const char *split)
{
    if (split && strcmp(split, "train") != 0)
        return aril__no_split(path, split, "no parts: all of it is \"train\"");
    return aril_dataset_csv(path, (aril_csv_opts){ 0 });
}
