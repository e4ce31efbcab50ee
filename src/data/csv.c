/* CSV: tables of numbers in text, one row per line, separated by commas, semicolons or tabs. */
#include "aril/datasets.h"

#include "aril/device.h"
#include "aril/create.h"
#include "aril/scope.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "data/dataset.h"
#include "data/open.h"
#include "data/words.h"
#include "formats/gzip.h"
#include "formats/number.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* One value of a row, without its quotes. */
struct field {
    const char *at;
    size_t n;
    bool quoted;
};

struct table {
    const char *path;
    aril_csv_opts opts;
    char *at, *end; /* the unread rest; quoted values are rewritten in place */
    char separator;
    int64_t line, row_line; /* line number after the row, and of its first line */
    struct field *field;    /* values of the current row */
    int n, capacity;
    int columns, target; /* target: -1 if there is none */
    aril__texts head;    /* column names; empty without a header */
    aril__words names;   /* the distinct column names */
    int *named;          /* name index to the first column with that name */
    int *take, n_take;   /* columns that make up x, in order */
    aril__bytes x;       /* f32, row-major */
    aril__bytes y;       /* f64 values, or int64_t word indices */
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
    return aril__fail(ARIL_ERR_MEMORY, "out of memory reading %s", t->path);
}

/* ---- rows ---- */

static aril_status add_field(struct table *t, struct field f)
{
    if (t->n == t->capacity) {
        int capacity = t->capacity ? t->capacity * 2 : 32;
        struct field *more = aril__realloc(t->field, (size_t)capacity * sizeof *more);
        if (!more) return no_memory(t);
        t->field = more;
        t->capacity = capacity;
    }
    t->field[t->n++] = f;
    return ARIL_OK;
}

/* A quoted value, in which "" is an escaped quote. */
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

/* Reads the next non-empty row. Returns 1, 0 at the end, or a negative status. */
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
        if (t->at == t->end) { /* a trailing separator: an empty value */
            status = add_field(t, (struct field){ .at = t->at });
            return status == ARIL_OK ? 1 : status;
        }
    }
}

/* ---- header and columns ---- */

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
    size_t max = 0;
    for (const char *c = candidates; *c; c++) {
        size_t n = 0;
        for (size_t i = 0; i < ends; i++) n += t->at[i] == *c;
        if (n > max) {
            max = n;
            best = *c;
        }
    }
    return best;
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

static aril_status column_numbered(const struct table *t, int64_t number, int *column)
{
    int64_t at = number > 0 ? number - 1 : t->columns + number;
    if (number == 0 || at < 0 || at >= t->columns)
        return aril__fail(ARIL_ERR_ARG, "%s has %d columns, and no column %lld", t->path,
                          t->columns, (long long)number);
    *column = (int)at;
    return ARIL_OK;
}

/* Finds a column by its name, or by its number if no column has that name. */
static aril_status find_column(const struct table *t, const char *name, size_t n, int *column)
{
    char text[128], *end;
    snprintf(text, sizeof text, "%.*s", (int)(n < sizeof text ? n : sizeof text - 1), name);
    int64_t named = aril__words_find(&t->names, name, n);
    if (named >= 0 && t->names.count[named] > 1)
        return aril__fail(ARIL_ERR_ARG, "%s has %lld columns called \"%s\": give a number instead",
                          t->path, (long long)t->names.count[named], text);
    if (named >= 0) {
        *column = t->named[named];
        return ARIL_OK;
    }
    long number = strtol(text, &end, 10);
    if (end == text || *end) return no_column(t, text);
    return column_numbered(t, number, column);
}

/* Selects the columns of x by name; without a header, takes all columns in order if their count
 * matches. */
static aril_status take_columns(struct table *t)
{
    const aril_csv_opts *o = &t->opts;
    bool as_they_are = t->head.n == 0 && t->target < 0 && t->columns == o->n_columns;
    for (int i = 0; i < o->n_columns; i++) {
        const char *name = o->columns[i] ? o->columns[i] : "";
        aril_status status = ARIL_OK;
        t->take[i] = i;
        if (!as_they_are) status = find_column(t, name, strlen(name), &t->take[i]);
        if (status != ARIL_OK) return status;
    }
    t->n_take = o->n_columns;
    return ARIL_OK;
}

/* Selects all columns except the target and the skipped ones. */
static aril_status take_rest(struct table *t)
{
    bool *skip = aril__calloc((size_t)t->columns + 1);
    aril_status status = skip ? ARIL_OK : no_memory(t);
    for (const char *p = t->opts.skip; status == ARIL_OK && p && *p;) {
        size_t n = strcspn(p, ",");
        int column = 0;
        status = find_column(t, p, n, &column);
        if (status == ARIL_OK) skip[column] = true;
        p += n + (p[n] == ',');
    }
    for (int i = 0; i < t->columns && status == ARIL_OK; i++)
        if (!skip[i] && i != t->target) t->take[t->n_take++] = i;
    free(skip);
    return status;
}

static aril_status choose_columns(struct table *t)
{
    const aril_csv_opts *o = &t->opts;
    int capacity = t->columns > o->n_columns ? t->columns : o->n_columns;
    aril_status status = ARIL_OK;
    t->take = aril__malloc(((size_t)capacity + 1) * sizeof *t->take);
    if (!t->take) return no_memory(t);
    t->target = t->columns - 1;
    if (o->no_target)
        t->target = -1;
    else if (o->target)
        status = find_column(t, o->target, strlen(o->target), &t->target);
    else if (o->target_column)
        status = column_numbered(t, o->target_column, &t->target);
    if (status == ARIL_OK) status = o->columns ? take_columns(t) : take_rest(t);
    bool chosen = o->skip || o->target || o->columns; /* without options, x may be empty */
    if (status != ARIL_OK || t->n_take > 0 || !chosen) return status;
    return aril__fail(ARIL_ERR_FORMAT, "%s has %d columns, and none remains for the inputs%s",
                      t->path, t->columns, t->target >= 0 ? " beside the target" : "");
}

static aril_status add_name(struct table *t, const char *p, size_t n)
{
    char name[256];
    while (n > 0 && *p == ' ') p++, n--;
    while (n > 0 && p[n - 1] == ' ') n--;
    snprintf(name, sizeof name, "%.*s", (int)(n < 255 ? n : 255), p);
    int64_t different = t->names.text.n, number = aril__words_add(&t->names, name, strlen(name));
    if (number < 0) return (aril_status)number;
    if (number == different) t->named[number] = (int)t->head.n;
    return aril__texts_add(&t->head, name);
}

/* Uses the first row as the header, or leaves it to be read as values. */
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
    t->named = aril__malloc((size_t)t->n * sizeof *t->named);
    aril_status status = t->named ? ARIL_OK : no_memory(t);
    for (int i = 0; i < t->n && head && status == ARIL_OK; i++)
        status = add_name(t, t->field[i].at, t->field[i].n);
    if (status == ARIL_OK) status = choose_columns(t);
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

/* Switches labels from numbers to words at the first non-numeric label, converting earlier ones. */
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
        return wrong(t, t->target, "\"%.*s\" is not a number", (int)(f->n < 60 ? f->n : 60), f->at);
    if (!t->text_target && (!number || t->opts.classes || t->opts.class_target)) {
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
    for (int k = 0; k < t->n_take; k++) {
        int i = t->take[k];
        double v = (double)NAN;
        const struct field *f = &t->field[i];
        if (!aril__parse_number(f->at, f->n, &v)) {
            if (!is_missing(f))
                return wrong(t, i,
                             "\"%.*s\" is not a number: skip the column, or make it the target",
                             (int)(f->n < 60 ? f->n : 60), f->at);
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

/* Sorts "2" before "10". Only if all labels are numbers: mixed labels have no consistent order. */
static int by_number(const aril__words *w, int64_t a, int64_t b)
{
    double x = 0, y = 0;
    aril__parse_number(w->text.at[a], strlen(w->text.at[a]), &x);
    aril__parse_number(w->text.at[b], strlen(w->text.at[b]), &y);
    return x < y ? -1 : x > y ? 1 : by_text(w, a, b);
}

static bool all_numbers(const aril__words *w)
{
    double v;
    for (int64_t i = 0; i < w->text.n; i++)
        if (!aril__parse_number(w->text.at[i], strlen(w->text.at[i]), &v) || isnan(v)) return false;
    return true;
}

/* Maps labels to indices of the given classes, or of the words in alphabetical order. */
static aril_status number_labels(struct table *t, int64_t *number)
{
    if (!t->opts.classes)
        return aril__words_sort(&t->labels, all_numbers(&t->labels) ? by_number : by_text, number);
    for (int64_t i = 0; i < t->labels.text.n; i++) {
        number[i] = -1;
        for (int k = 0; k < t->opts.n_classes; k++)
            if (strcmp(t->labels.text.at[i], t->opts.classes[k]) == 0) number[i] = k;
        if (number[i] < 0)
            return aril__fail(ARIL_ERR_FORMAT, "%s: label \"%s\" is not one of the %d classes",
                              t->path, t->labels.text.at[i], t->opts.n_classes);
    }
    return ARIL_OK;
}

/* Do the values look like class indices? Small integers with few distinct values do; prices, years
 * and counts do not. */
static bool look_like_classes(const double *value, int64_t n)
{
    enum { BELOW = 100, DIFFERENT = 32 };
    bool seen[BELOW] = { false };
    int different = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!(value[i] >= 0 && value[i] < BELOW) || value[i] != floor(value[i])) return false;
        different += !seen[(int)value[i]];
        seen[(int)value[i]] = true;
    }
    return different <= DIFFERENT;
}

/* i64 [N] class indices, or f32 [N]. */
static aril_tensor *targets(struct table *t)
{
    const double *value = (const double *)(const void *)t->y.at;
    bool integral = !t->text_target && !t->opts.real_target && look_like_classes(value, t->rows);
    aril_dtype dtype = t->text_target || integral ? ARIL_I64 : ARIL_F32;
    aril_tensor *y = aril_empty(ARIL_SHAPE(t->rows), dtype, aril_cpu());
    if (aril_tensor_status(y) != ARIL_OK) return y;
    if (!t->text_target) {
        for (int64_t i = 0; i < t->rows; i++) {
            if (integral)
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

/* A column's name, or its number as text if it has no name of its own. */
static const char *column_name(const struct table *t, int column, char number[16])
{
    const char *name = column < t->head.n ? t->head.at[column] : "";
    if (*name && t->names.count[aril__words_find(&t->names, name, strlen(name))] == 1) return name;
    snprintf(number, 16, "%d", column + 1);
    return number;
}

static aril_dataset *with_columns(const struct table *t, aril_dataset *d)
{
    const char **name = aril__malloc(((size_t)t->n_take + 1) * sizeof *name);
    char(*number)[16] = aril__malloc(((size_t)t->n_take + 1) * sizeof *number), own[16];
    aril_status status = name && number && d ? ARIL_OK : no_memory(t);
    for (int i = 0; i < t->n_take && status == ARIL_OK; i++)
        name[i] = column_name(t, t->take[i], number[i]);
    if (status == ARIL_OK)
        status = aril__dataset_set_columns(d, t->n_take, name,
                                           t->target >= 0 ? column_name(t, t->target, own) : NULL);
    free(name);
    free(number);
    if (status == ARIL_OK) return d;
    aril_dataset_release(d);
    return NULL;
}

static aril_dataset *make(struct table *t)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_empty(ARIL_SHAPE(t->rows, t->n_take), ARIL_F32, aril_cpu()); /* [N,F] */
    if (aril_tensor_status(x) != ARIL_OK) return NULL;
    if (t->x.n) memcpy(aril__ptr(x), t->x.at, t->x.n);
    aril_tensor *y = t->target >= 0 ? targets(t) : NULL;
    if (y && aril_tensor_status(y) != ARIL_OK) return NULL;
    aril_dataset *d = aril_dataset_tensors(x, y);
    if (d) d = with_columns(t, d);
    if (!t->text_target) return d;
    if (t->opts.classes) return aril__with_classes(d, t->opts.n_classes, t->opts.classes);
    return aril__with_classes(d, (int)t->labels.text.n, (const char *const *)t->labels.text.at);
}

aril_dataset *aril_dataset_csv(const char *path, aril_csv_opts opts)
{
    aril__bytes b = { 0 };
    if (aril__read_unpacked("CSV", path, &b) != ARIL_OK) return NULL;
    struct table t = {
        .path = path, .opts = opts, .at = (char *)b.at, .end = (char *)b.at + b.n, .line = 1
    };
    if (b.n >= 3 && memcmp(b.at, "\xef\xbb\xbf", 3) == 0) t.at += 3; /* skip the byte order mark */
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
        status = aril__fail(ARIL_ERR_FORMAT, "%s has a header but no rows", path);
    aril_dataset *d = status == ARIL_OK ? make(&t) : NULL;
    aril__bytes_free(&b);
    aril__bytes_free(&t.x);
    aril__bytes_free(&t.y);
    aril__words_free(&t.labels);
    aril__texts_free(&t.head);
    aril__words_free(&t.names);
    free(t.named);
    free(t.field);
    free(t.take);
    return d;
}

aril_dataset *aril__open_csv(const char *path, const char *split, const aril_open_opts *o)
{
    (void)split;
    return aril_dataset_csv(path, (aril_csv_opts){ .target = o->target,
                                                   .skip = o->skip,
                                                   .no_target = o->no_target,
                                                   .real_target = o->real_target,
                                                   .class_target = o->class_target,
                                                   .n_columns = o->n_columns,
                                                   .columns = o->columns,
                                                   .n_classes = o->n_classes,
                                                   .classes = o->classes });
}
