#include "train/history.h"

#include "aril/device.h"
#include "aril/draw.h"
#include "aril/create.h"
#include "aril/scope.h"
#include "core/error.h"
#include "core/memory.h"
#include "formats/atomic_file.h"
#include "train/terminal.h"

#include <math.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static aril_status no_memory(void)
{
    return aril__fail(ARIL_ERR_MEMORY, "out of memory for the history of a fit");
}

aril_history *aril__history_new(void)
{
    aril_history *h = aril__calloc(sizeof *h);
    if (h != NULL) h->name = aril__calloc(sizeof *h->name);
    if (h != NULL && h->name != NULL) return h;
    free(h);
    no_memory();
    return NULL;
}

void aril__history_free(aril_history *h)
{
    if (h == NULL) return;
    for (int i = 0; i < h->columns; i++) {
        free(h->name[i]);
        free(h->value[i]);
    }
    free(h->name);
    free(h->value);
    free(h->smaller);
    free(h->epoch);
    free(h);
}

int aril__history_find(const aril_history *h, const char *name)
{
    for (int i = 0; i < h->columns; i++)
        if (strcmp(h->name[i], name) == 0) return i;
    return -1;
}

aril_status aril__history_add_column(aril_history *h, const char *name)
{
    if (aril__history_find(h, name) >= 0) return ARIL_OK;
    char **names = aril__realloc(h->name, (size_t)(h->columns + 2) * sizeof *names);
    if (names == NULL) return no_memory();
    h->name = names;
    h->name[h->columns] = NULL;
    double **values = aril__realloc(h->value, (size_t)(h->columns + 1) * sizeof *values);
    if (values == NULL) return no_memory();
    h->value = values;
    bool *smaller = aril__realloc(h->smaller, (size_t)(h->columns + 1) * sizeof *smaller);
    if (smaller == NULL) return no_memory();
    h->smaller = smaller;
    char *copy = aril__strdup(name);
    double *column = aril__malloc((size_t)(h->row_cap + 1) * sizeof *column);
    if (copy == NULL || column == NULL) {
        free(copy);
        free(column);
        return no_memory();
    }
    for (int i = 0; i < h->rows; i++) column[i] = NAN;
    h->name[h->columns] = copy;
    h->name[h->columns + 1] = NULL;
    h->smaller[h->columns] = false;
    h->value[h->columns++] = column;
    return ARIL_OK;
}

void aril__history_direction(aril_history *h, const char *name, bool smaller)
{
    int column = aril__history_find(h, name);
    if (column >= 0) h->smaller[column] = smaller;
}

static aril_status more_rows(aril_history *h)
{
    int cap = h->row_cap > 0 ? 2 * h->row_cap : 16;
    int *epoch = aril__realloc(h->epoch, (size_t)cap * sizeof *epoch);
    if (epoch == NULL) return no_memory();
    h->epoch = epoch;
    for (int i = 0; i < h->columns; i++) {
        double *column = aril__realloc(h->value[i], (size_t)cap * sizeof *column);
        if (column == NULL) return no_memory();
        h->value[i] = column;
    }
    h->row_cap = cap;
    return ARIL_OK;
}

aril_status aril__history_add_row(aril_history *h, int epoch, int n, const char *const *name,
                                  const double *value)
{
    aril_status status;
    for (int i = 0; i < n; i++)
        if ((status = aril__history_add_column(h, name[i])) != ARIL_OK) return status;
    if (h->rows == h->row_cap && (status = more_rows(h)) != ARIL_OK) return status;
    for (int i = 0; i < h->columns; i++) h->value[i][h->rows] = NAN;
    for (int i = 0; i < n; i++) h->value[aril__history_find(h, name[i])][h->rows] = value[i];
    h->epoch[h->rows++] = epoch;
    return ARIL_OK;
}

/* ---- queries ---- */

int aril_history_epochs(const aril_history *h)
{
    return h != NULL ? h->rows : 0;
}

int aril_history_columns(const aril_history *h)
{
    return h != NULL ? h->columns : 0;
}

const char *aril_history_name(const aril_history *h, int column)
{
    return h != NULL && column >= 0 && column < h->columns ? h->name[column] : NULL;
}

int aril_history_epoch(const aril_history *h, int row)
{
    return h != NULL && row >= 0 && row < h->rows ? h->epoch[row] : -1;
}

int aril_history_signal(const aril_history *h)
{
    return h != NULL ? h->signal : 0;
}

bool aril_history_diverged(const aril_history *h)
{
    return h != NULL && h->diverged;
}

/* The column, or -1 with an error. */
static int column_of(const aril_history *h, const char *name)
{
    if (h == NULL || name == NULL) {
        aril__fail(ARIL_ERR_ARG, "expected %s, got NULL", h == NULL ? "a history" : "a name");
        return -1;
    }
    int column = aril__history_find(h, name);
    if (column >= 0) return column;
    const char *near = aril_nearest(name, (const char *const *)h->name, h->columns);
    aril__fail(ARIL_ERR_ARG, "the history has no '%s'%s%s%s", name,
               near != NULL ? "; did you mean " : "", near != NULL ? near : "",
               near != NULL ? "?" : "");
    return -1;
}

double aril_history_at(const aril_history *h, const char *name, int row)
{
    int column = column_of(h, name);
    if (column < 0) return NAN;
    int at = row < 0 ? h->rows + row : row;
    if (at >= 0 && at < h->rows) return h->value[column][at];
    aril__fail(ARIL_ERR_INDEX, "the history has %d rows, got row %d", h->rows, row);
    return NAN;
}

int aril_history_best(const aril_history *h, const char *name)
{
    int column = column_of(h, name), best = -1;
    if (column < 0) return -1;
    const double *v = h->value[column];
    bool smaller = h->smaller[column];
    for (int i = 0; i < h->rows; i++)
        if (!isnan(v[i]) && (best < 0 || (smaller ? v[i] < v[best] : v[i] > v[best]))) best = i;
    return best;
}

aril_tensor *aril_history_tensor(const aril_history *h, const char *name)
{
    int column = column_of(h, name);
    if (column < 0) return NULL;
    static const double none = 0;
    return aril_from(h->rows > 0 ? h->value[column] : &none, ARIL_SHAPE(h->rows), ARIL_F64,
                     aril_cpu());
}

/* ---- files ---- */

static aril_status write_text(aril__file *f, const char *text)
{
    return aril__file_write(f, text, strlen(text));
}

aril_status aril_history_csv(const aril_history *h, const char *path)
{
    if (h == NULL || path == NULL)
        return aril__fail(ARIL_ERR_ARG, "expected %s, got NULL",
                          h == NULL ? "a history" : "a path");
    aril__file *f = aril__file_begin(path);
    if (f == NULL) return aril__latest_status();
    char text[64];
    write_text(f, "epoch");
    for (int i = 0; i < h->columns; i++) {
        write_text(f, ",");
        write_text(f, h->name[i]);
    }
    write_text(f, "\n");
    for (int row = 0; row < h->rows; row++) {
        snprintf(text, sizeof text, "%d", h->epoch[row] + 1);
        write_text(f, text);
        for (int i = 0; i < h->columns; i++) {
            write_text(f, ",");
            if (isnan(h->value[i][row])) continue;
            aril__number_text(text, sizeof text, 'g', 9, h->value[i][row]);
            write_text(f, text);
        }
        write_text(f, "\n");
    }
    return aril__file_commit(f);
}

/* A constant learning rate is not worth plotting. */
static bool changes(const double *v, int n)
{
    for (int i = 1; i < n; i++)
        if (v[i] != v[0]) return true;
    return false;
}

aril_status aril_history_draw(const aril_history *h, const char *path)
{
    if (h == NULL || path == NULL)
        return aril__fail(ARIL_ERR_ARG, "expected %s, got NULL",
                          h == NULL ? "a history" : "a path");
    if (h->rows == 0) return aril__fail(ARIL_ERR_STATE, "the history has no epoch to draw");
    aril_series *series = aril__calloc((size_t)(h->columns + 1) * sizeof *series);
    double *x = aril__malloc((size_t)h->rows * sizeof *x);
    aril_status status = series == NULL || x == NULL ? no_memory() : ARIL_OK;
    if (status == ARIL_OK) {
        for (int i = 0; i < h->rows; i++) x[i] = h->epoch[i] + 1;
        int n = 0;
        for (int i = 0; i < h->columns; i++)
            if (strcmp(h->name[i], "lr") != 0 || changes(h->value[i], h->rows))
                series[n++] =
                    (aril_series){ .name = h->name[i], .n = h->rows, .x = x, .y = h->value[i] };
        status = aril_draw_curves(path, series, n, (aril_draw_opts){ 0 });
    }
    free(series);
    free(x);
    return status;
}

/* ---- checkpoints: "epoch" [rows] and "column.NAME" [rows]; "names" has the column order ---- */

aril_status aril__history_save(const aril_history *h, aril__states *to)
{
    int64_t *epoch = aril__malloc((size_t)(h->rows + 1) * sizeof *epoch);
    if (epoch == NULL) return no_memory();
    for (int i = 0; i < h->rows; i++) epoch[i] = h->epoch[i];
    aril_status status = aril__states_set_ints(to, "history.epoch", h->rows, epoch);
    free(epoch);
    for (int i = 0; i < h->columns && status == ARIL_OK; i++) {
        size_t size = strlen(h->name[i]) + 32;
        char *key = aril__malloc(size);
        if (key == NULL) return no_memory();
        snprintf(key, size, "history.%d.%s", i, h->name[i]);
        static const double none = 0;
        status = aril__states_set_reals(to, key, h->rows, h->rows > 0 ? h->value[i] : &none);
        free(key);
    }
    return status;
}

aril_status aril__history_load(aril_history *h, const aril__states *from)
{
    aril_tensor *epochs = aril__states_get(from, "history.epoch");
    if (epochs == NULL || aril_ndim(epochs) != 1 || aril_numel(epochs) > 1 << 24)
        return aril__fail(ARIL_ERR_FORMAT, "the checkpoint has no history");
    int rows = (int)aril_numel(epochs);
    int64_t *epoch = aril__malloc((size_t)(rows + 1) * sizeof *epoch);
    double *column = aril__malloc((size_t)(rows + 1) * sizeof *column);
    if (epoch == NULL || column == NULL) {
        free(epoch);
        free(column);
        return no_memory();
    }
    aril_status status = ARIL_OK;
    if (!aril__states_ints(from, "history.epoch", rows, epoch))
        status = aril__fail(ARIL_ERR_FORMAT, "the checkpoint's history is malformed");
    for (int i = 0; i < rows && status == ARIL_OK; i++) {
        if (epoch[i] < 0 || epoch[i] >= INT_MAX)
            status = aril__fail(ARIL_ERR_FORMAT, "the checkpoint's history has an epoch %lld",
                                (long long)epoch[i]);
        else
            status = aril__history_add_row(h, (int)epoch[i], 0, NULL, NULL);
    }
    for (int i = 0, found = 1; found && status == ARIL_OK; i++) {
        char prefix[32];
        int n = snprintf(prefix, sizeof prefix, "history.%d.", i);
        found = 0;
        for (int k = 0; k < from->n && !found; k++) {
            if (strncmp(from->name[k], prefix, (size_t)n) != 0) continue;
            found = 1;
            const char *name = from->name[k] + n;
            if (!aril__states_reals(from, from->name[k], rows, column))
                status = aril__fail(ARIL_ERR_FORMAT, "the checkpoint's history of %s is malformed",
                                    name);
            if (status == ARIL_OK) status = aril__history_add_column(h, name);
            if (status == ARIL_OK && rows > 0)
                memcpy(h->value[aril__history_find(h, name)], column,
                       (size_t)rows * sizeof *column);
        }
    }
    free(epoch);
    free(column);
    return status;
}
