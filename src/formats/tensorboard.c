/* Event files: checksummed records of protocol buffers, one per logged value. */
#include "formats/tensorboard.h"

#include "aril/device.h"
#include "aril/create.h"
#include "aril/scope.h"
#include "core/error.h"
#include "core/memory.h"
#include "formats/atomic_file.h"
#include "formats/crc32c.h"
#include "formats/schemas.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { DT_FLOAT = 1, DT_STRING = 7 }; /* TensorFlow's DataType */

/* ---- records ---- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static aril_status io_error(aril_tensorboard *tb, const char *what)
{
    tb->failed = true;
    return aril__fail(ARIL_ERR_IO, "%s: cannot write '%s': %s", what, tb->path, strerror(errno));
}

/* Writes the current event as a record. */
static aril_status write_event(aril_tensorboard *tb, const char *what)
{
    tb->bytes.n = 0;
    aril_status s = aril__message_write(tb->event, &tb->bytes);
    if (s != ARIL_OK) return s;
    uint8_t head[12], foot[4];
    aril__put_le64(head, tb->bytes.n);
    aril__put_le32(head + 8, aril__masked_crc32c(head, 8));
    aril__put_le32(foot, aril__masked_crc32c(tb->bytes.at, tb->bytes.n));
    if (fwrite(head, sizeof head, 1, tb->file) != 1 ||
        fwrite(tb->bytes.at, tb->bytes.n, 1, tb->file) != 1 ||
        fwrite(foot, sizeof foot, 1, tb->file) != 1)
        return io_error(tb, what);
    double t = now();
    if (fabs(t - tb->flushed) < 1) return ARIL_OK;
    tb->flushed = t;
    return fflush(tb->file) == 0 ? ARIL_OK : io_error(tb, what);
}

/* The current event, empty but for its time. */
static aril__message *new_event(aril_tensorboard *tb)
{
    aril__message_reset(tb->event);
    tb->bytes.failed = false;
    aril__message_set_number(tb->event, "wall_time", now());
    return tb->event;
}

aril_status aril__tb_graph(aril_tensorboard *tb, const char *what, aril__message *graph)
{
    if (!tb) return aril__fail(ARIL_ERR_ARG, "%s: the log is NULL", what);
    aril__bytes b = { 0 };
    aril_status s = aril__message_write(graph, &b);
    if (s == ARIL_OK) {
        aril__message_refer_bytes(new_event(tb), "graph_def", b.at, b.n);
        s = write_event(tb, what);
    }
    aril__message_reset(tb->event);
    aril__bytes_free(&b);
    return s;
}

bool aril__tb_begin(aril_tensorboard *tb, const char *what, const char *tag, int64_t step,
                    aril__message **value)
{
    if (!tb) return aril__fail(ARIL_ERR_ARG, "%s: the log is NULL", what), false;
    if (!tag || !*tag) return aril__fail(ARIL_ERR_ARG, "%s: expected a tag", what), false;
    aril__message *event = new_event(tb);
    aril__message_set_int(event, "step", step);
    *value = aril__message_add_sub(aril__message_set_sub(event, "summary"), "value");
    aril__message_set_text(*value, "tag", tag);
    return true;
}

aril_status aril__tb_end(aril_tensorboard *tb, const char *what)
{
    return write_event(tb, what);
}

aril_status aril__tb_plugin(aril__message *value, const char *plugin, aril__message *content)
{
    aril__bytes b = { 0 };
    aril__message *data =
        aril__message_set_sub(aril__message_set_sub(value, "metadata"), "plugin_data");
    aril__message_set_text(data, "plugin_name", plugin);
    aril_status s = content ? aril__message_write(content, &b) : ARIL_OK;
    if (content && s == ARIL_OK) aril__message_set_bytes(data, "content", b.at, b.n);
    aril__bytes_free(&b);
    return s;
}

/* ---- the file ---- */

static void forget(aril_tensorboard *tb)
{
    if (tb->file) fclose(tb->file);
    aril__message_free(tb->event);
    aril__message_free(tb->projector);
    aril__bytes_free(&tb->bytes);
    free(tb->folder);
    free(tb->path);
    free(tb);
}

aril_tensorboard *aril_tensorboard_new(const char *folder)
{
    static const char what[] = "tensorboard";
    static atomic_uint files; /* distinguishes logs of the same second and process */
    if (!folder || !*folder) {
        aril__fail(ARIL_ERR_ARG, "%s: expected a folder", what);
        return NULL;
    }
    if (aril__folder_create(what, folder) < 0) return NULL;
    char host[256] = "localhost";
    gethostname(host, sizeof host - 1);
    size_t capacity = strlen(folder) + sizeof host + 96;
    aril_tensorboard *tb = aril__calloc(sizeof *tb);
    if (tb) tb->folder = aril__strdup(folder);
    if (tb) tb->path = aril__malloc(capacity);
    if (tb) tb->event = aril__message_new(&aril__tensorboard_Event);
    if (!tb || !tb->folder || !tb->path || !tb->event) {
        if (tb) forget(tb);
        aril__fail(ARIL_ERR_MEMORY, "%s: out of memory for a log", what);
        return NULL;
    }
    double t = now();
    snprintf(tb->path, capacity, "%s/events.out.tfevents.%010" PRId64 ".%s.%ld.%u", folder,
             (int64_t)t, host, (long)getpid(), atomic_fetch_add(&files, 1));
    tb->file = fopen(tb->path, "wb");
    if (!tb->file) {
        io_error(tb, what);
        forget(tb);
        return NULL;
    }
    aril__message_set_text(new_event(tb), "file_version", "brain.Event:2");
    aril_status s = write_event(tb, what);
    if (s < 0) {
        forget(tb);
        return NULL;
    }
    return tb;
}

aril_status aril_tensorboard_flush(aril_tensorboard *tb)
{
    if (!tb) return aril__fail(ARIL_ERR_ARG, "tensorboard: the log is NULL");
    if (fflush(tb->file) != 0 || (fsync(fileno(tb->file)) != 0 && errno != EINVAL))
        return io_error(tb, "tensorboard");
    return ARIL_OK;
}

void aril_tensorboard_free(aril_tensorboard *tb)
{
    if (!tb) return;
    FILE *f = tb->file;
    tb->file = NULL;
    if (fclose(f) != 0 && !tb->failed) io_error(tb, "tensorboard");
    forget(tb);
}

/* ---- scalars and text ---- */

aril_status aril_tensorboard_scalar(aril_tensorboard *tb, const char *tag, double value,
                                    int64_t step)
{
    aril__message *v;
    if (!aril__tb_begin(tb, "tensorboard_scalar", tag, step, &v)) return aril_error_code();
    aril__message_set_number(v, "simple_value", value);
    return aril__tb_end(tb, "tensorboard_scalar");
}

/* Sets the tensor of a value, without its elements. */
static aril__message *set_tensor(aril__message *value, int dtype, aril_shape shape)
{
    aril__message *tensor = aril__message_set_sub(value, "tensor");
    aril__message_set_int(tensor, "dtype", dtype);
    aril__message *sizes = aril__message_set_sub(tensor, "tensor_shape");
    for (int d = 0; d < shape.ndim; d++)
        aril__message_set_int(aril__message_add_sub(sizes, "dim"), "size", shape.dim[d]);
    return tensor;
}

aril_status aril_tensorboard_text(aril_tensorboard *tb, const char *tag, const char *text,
                                  int64_t step)
{
    aril__message *v;
    if (!text) return aril__fail(ARIL_ERR_ARG, "tensorboard_text: the text is NULL");
    if (!aril__tb_begin(tb, "tensorboard_text", tag, step, &v)) return aril_error_code();
    aril__message_add_text(set_tensor(v, DT_STRING, ARIL_SHAPE(1)), "string_val", text);
    aril__tb_plugin(v, "text", NULL);
    return aril__tb_end(tb, "tensorboard_text");
}

/* ---- histograms ---- */

enum { BUCKETS = 64 };

/* The elements of t as doubles, which the caller frees; NULL after an error. */
static double *doubles_of(const char *what, aril_tensor *t, int64_t *n)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    if (!t) {
        aril__fail(ARIL_ERR_ARG, "%s: the tensor is NULL", what);
        return NULL;
    }
    aril_tensor *x = aril_to(aril_cast(t, ARIL_F64), aril_cpu());
    *n = aril_numel(x);
    double *all = aril__malloc((*n > 0 ? (size_t)*n : 1) * sizeof *all);
    if (!all) aril__fail(ARIL_ERR_MEMORY, "%s: out of memory for %" PRId64 " numbers", what, *n);
    if (all && aril_read(x, all) < 0) {
        free(all);
        return NULL;
    }
    return all;
}

aril_status aril_tensorboard_histogram(aril_tensorboard *tb, const char *tag, aril_tensor *values,
                                       int64_t step)
{
    static const char what[] = "tensorboard_histogram";
    int64_t n = 0, kept = 0;
    double *x = doubles_of(what, values, &n);
    if (!x) return aril_error_code();
    double sum = 0, squares = 0, min = INFINITY, max = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) continue;
        x[kept++] = x[i];
        sum += x[i];
        squares += x[i] * x[i];
        min = fmin(min, x[i]);
        max = fmax(max, x[i]);
    }
    if (!kept) min = max = 0;
    double limit[BUCKETS], count[BUCKETS] = { 0 };
    int buckets = max > min ? BUCKETS : 1;
    /* Halve the values if the range would overflow. */
    double unit = isfinite(max - min) ? 1 : 0.5;
    double width = (max * unit - min * unit) / buckets;
    for (int b = 0; b < buckets; b++) limit[b] = (min * unit + width * (b + 1)) / unit;
    limit[buckets - 1] = max > min ? max : min + 1e-12 + fabs(min) * 1e-12;
    for (int64_t i = 0; i < kept; i++) {
        int b = width > 0 ? (int)((x[i] * unit - min * unit) / width) : 0;
        count[b < buckets ? b : buckets - 1]++;
    }
    free(x);
    aril__message *v;
    if (!aril__tb_begin(tb, what, tag, step, &v)) return aril_error_code();
    aril__message *histogram = aril__message_set_sub(v, "histo");
    aril__message_set_number(histogram, "min", min);
    aril__message_set_number(histogram, "max", max);
    aril__message_set_number(histogram, "num", (double)kept);
    aril__message_set_number(histogram, "sum", sum);
    aril__message_set_number(histogram, "sum_squares", squares);
    aril__message_set_doubles(histogram, "bucket_limit", limit, (size_t)buckets);
    aril__message_set_doubles(histogram, "bucket", count, (size_t)buckets);
    return aril__tb_end(tb, what);
}

/* ---- precision and recall ---- */

enum { PR_DEFAULT = 127, PR_MAX = 10000 };

/* The six rows of a curve. [6,m] */
static aril_status write_curve(aril_tensorboard *tb, const char *what, const char *tag,
                               int64_t step, const float *table, int m)
{
    aril__message *v, *content = aril__message_new(&aril__tensorboard_PrCurvePluginData);
    if (!content || !aril__tb_begin(tb, what, tag, step, &v)) {
        aril__message_free(content);
        return aril_error_code();
    }
    aril__message_set_int(content, "num_thresholds", m);
    aril__message_set_floats(set_tensor(v, DT_FLOAT, ARIL_SHAPE(6, m)), "float_val", table,
                             6 * (size_t)m);
    aril_status s = aril__tb_plugin(v, "pr_curves", content);
    aril__message_free(content);
    return s == ARIL_OK ? aril__tb_end(tb, what) : s;
}

aril_status aril_tensorboard_pr_curve(aril_tensorboard *tb, const char *tag, aril_tensor *labels,
                                      aril_tensor *scores, int thresholds, int64_t step)
{
    static const char what[] = "tensorboard_pr_curve";
    int m = thresholds ? thresholds : PR_DEFAULT;
    if (m < 2 || m > PR_MAX)
        return aril__fail(ARIL_ERR_ARG, "%s: got %d thresholds, expected 2 to %d", what, m, PR_MAX);
    int64_t n = 0, n_scores = 0;
    double *y = doubles_of(what, labels, &n), *p = doubles_of(what, scores, &n_scores);
    float *table = aril__calloc(6 * (size_t)m * sizeof *table);
    aril_status s = ARIL_OK;
    if (!y || !p)
        s = aril_error_code();
    else if (!table)
        s = aril__fail(ARIL_ERR_MEMORY, "%s: out of memory for its table", what);
    else if (n != n_scores)
        s = aril__fail(ARIL_ERR_SHAPE, "%s: %" PRId64 " labels and %" PRId64 " scores", what, n,
                       n_scores);
    for (int64_t i = 0; s == ARIL_OK && i < n; i++)
        if (!(p[i] >= 0 && p[i] <= 1))
            s = aril__fail(ARIL_ERR_NUMBER, "%s: score %" PRId64 " is %g; expected 0 to 1", what, i,
                           p[i]);
    if (s == ARIL_OK) {
        /* Rows: true and false positives, true and false negatives, precision, recall. */
        float *tp = table, *fp = table + m, *tn = table + 2 * m, *fn = table + 3 * m;
        double positives = 0;
        for (int64_t i = 0; i < n; i++) { /* count each score at the highest threshold it reaches */
            int at = (int)(p[i] * (m - 1));
            (y[i] > 0.5 ? tp : fp)[at < m ? at : m - 1]++;
            positives += y[i] > 0.5;
        }
        for (int k = m - 1; k > 0; k--) tp[k - 1] += tp[k], fp[k - 1] += fp[k];
        for (int k = 0; k < m; k++) {
            fn[k] = (float)positives - tp[k];
            tn[k] = (float)((double)n - positives) - fp[k];
            table[4 * m + k] = tp[k] / fmaxf(tp[k] + fp[k], 1e-7f);
            table[5 * m + k] = tp[k] / fmaxf((float)positives, 1e-7f);
        }
        s = write_curve(tb, what, tag, step, table, m);
    }
    free(y);
    free(p);
    free(table);
    return s;
}
