/* WindowData layers: windows of images with objects (foreground) and without (background), as for
 * the training of R-CNN. The file of windows has for each image
 *     # INDEX
 *     PATH
 *     CHANNELS HEIGHT WIDTH
 *     NUMBER
 *     LABEL OVERLAP X1 Y1 X2 Y2        NUMBER times
 * where the corners belong to the window. */
#include "aril/create.h"
#include "aril/device.h"
#include "aril/dtype.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "data/caffe/source.h"
#include "data/files.h"
#include "data/image/resize.h"
#include "data/transform.h"
#include "formats/bytes.h"
#include "formats/image.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    COLORS = 3,               /* images are read as B, G, R */
    FARTHEST = 1 << 20,       /* coordinates of windows */
    MOST_WINDOWS = INT32_MAX, /* of all images */
};

typedef struct window {
    int32_t image, label;
    int32_t x1, y1, x2, y2;
} window;

typedef struct windows {
    window *at;
    int64_t n, capacity;
} windows;

typedef struct window_layer {
    aril__texts path;
    aril__bytes *file; /* those of the images, with cache_images; NULL: read each time */
    windows all[2];    /* background and foreground */
    int64_t batch, n_background;
    int64_t crop, pad;
    bool square;
    float scale, bg_below, fg_from;
    aril__caffe_transform t;
} window_layer;

/* ---- the file ---- */

typedef struct reader {
    const char *path, *layer;
    const char *root, *folder; /* of the images; see aril__caffe_listed_path */
    char *at;
    int64_t line;
} reader;

/* The next word, which ends with NUL; NULL at the end of the file. */
static char *word(reader *r)
{
    while (*r->at == ' ' || *r->at == '\t' || *r->at == '\r' || *r->at == '\n')
        r->line += *r->at++ == '\n';
    if (!*r->at) return NULL;
    char *from = r->at;
    r->at += strcspn(r->at, " \t\r\n");
    if (*r->at) {
        r->line += *r->at == '\n';
        *r->at++ = '\0';
    }
    return from;
}

static aril_status expected(const reader *r, const char *what, const char *got)
{
    return aril__fail(ARIL_ERR_FORMAT, "%s, line %lld: expected %s, got %s%.40s%s", r->path,
                      (long long)r->line, what, got ? "'" : "", got ? got : "the end of the file",
                      got ? "'" : "");
}

static aril_status integer(reader *r, const char *what, int64_t low, int64_t high, int64_t *to)
{
    char *text = word(r), *end = NULL;
    errno = 0;
    *to = text ? strtoll(text, &end, 10) : 0;
    return text && end != text && !*end && !errno && *to >= low && *to <= high
               ? ARIL_OK
               : expected(r, what, text);
}

static aril_status add(windows *to, window w)
{
    if (to->n == to->capacity) {
        int64_t capacity = to->capacity ? 2 * to->capacity : 1024;
        window *more = aril__realloc(to->at, (size_t)capacity * sizeof *more);
        if (!more) return aril__fail(ARIL_ERR_MEMORY, "out of memory for the windows of a layer");
        to->at = more;
        to->capacity = capacity;
    }
    to->at[to->n++] = w;
    return ARIL_OK;
}

/* Windows between the thresholds belong to neither list. */
static aril_status read_window(reader *r, int64_t image, window_layer *m)
{
    int64_t label, corner[4];
    aril_status status = integer(r, "the label of a window", INT32_MIN, INT32_MAX, &label);
    if (status != ARIL_OK) return status;
    char *text = word(r), *end = NULL;
    float overlap = text ? strtof(text, &end) : 0;
    if (!text || end == text || *end || isnan(overlap))
        return expected(r, "the overlap of a window", text);
    for (int i = 0; i < 4 && status == ARIL_OK; i++)
        status = integer(r, "a coordinate of a window", -FARTHEST, FARTHEST, &corner[i]);
    if (status != ARIL_OK) return status;
    if (corner[2] < corner[0] || corner[3] < corner[1])
        return aril__fail(ARIL_ERR_FORMAT, "%s, line %lld: the window ends before it begins",
                          r->path, (long long)r->line);
    bool object = overlap >= m->fg_from;
    if (object && label <= 0)
        return aril__fail(ARIL_ERR_FORMAT,
                          "%s, line %lld: a window with the overlap %g, which is an "
                          "object, has the label %lld; expected at least 1",
                          r->path, (long long)r->line, (double)overlap, (long long)label);
    if (!object && overlap >= m->bg_below) return ARIL_OK;
    window w = { .image = (int32_t)image,
                 .label = object ? (int32_t)label : 0,
                 .x1 = (int32_t)corner[0],
                 .y1 = (int32_t)corner[1],
                 .x2 = (int32_t)corner[2],
                 .y2 = (int32_t)corner[3] };
    return add(&m->all[object], w);
}

static aril_status read_path(reader *r, window_layer *m)
{
    const char *name = word(r);
    if (!name) return expected(r, "the path of an image", NULL);
    char *path = aril__caffe_listed_path(r->root, r->folder, name);
    aril_status status = path ? aril__texts_add(&m->path, path) : aril__latest_status();
    free(path);
    return status;
}

/* The part of an image after its '#'. */
static aril_status read_image(reader *r, window_layer *m)
{
    int64_t index, size, n;
    aril_status status = integer(r, "the index of an image", 0, INT32_MAX, &index);
    if (status == ARIL_OK && index != m->path.n)
        status = aril__fail(ARIL_ERR_FORMAT,
                            "%s, line %lld: the image has the index %lld, but is "
                            "number %lld; expected indices from 0 in ascending order",
                            r->path, (long long)r->line, (long long)index, (long long)m->path.n);
    if (status == ARIL_OK) status = read_path(r, m);
    for (int i = 0; i < 3 && status == ARIL_OK; i++)
        status = integer(r, "channels, height and width of the image", 1, INT32_MAX, &size);
    if (status == ARIL_OK)
        status = integer(r, "the number of windows of the image", 0, MOST_WINDOWS, &n);
    for (int64_t i = 0; status == ARIL_OK && i < n; i++) status = read_window(r, index, m);
    return status;
}

static aril_status read_text(reader *r, window_layer *m)
{
    aril_status status = ARIL_OK;
    for (char *mark; status == ARIL_OK && (mark = word(r));)
        status = strcmp(mark, "#") == 0 ? read_image(r, m)
                                        : expected(r, "'#' and the index of the next image", mark);
    if (status != ARIL_OK) return status;
    static const char *const names[] = { "background", "foreground" };
    for (int k = 0; k < 2; k++)
        if (m->all[k].n == 0 && (k ? m->n_background < m->batch : m->n_background > 0))
            return aril__fail(ARIL_ERR_FORMAT, "%s has no %s windows (%s %g)", r->path, names[k],
                              k ? "overlap from" : "overlap below",
                              (double)(k ? m->fg_from : m->bg_below));
    return m->path.n ? ARIL_OK : aril__fail(ARIL_ERR_FORMAT, "%s lists no images", r->path);
}

static aril_status read_windows(reader *r, window_layer *m)
{
    aril__bytes b = { 0 };
    aril_status status = aril__read_file("window file", r->path, 0, &b);
    if (status == ARIL_OK && b.n && memchr(b.at, 0, b.n))
        status = aril__fail(ARIL_ERR_FORMAT, "%s is not a text file", r->path);
    if (status == ARIL_OK) aril__bytes_add(&b, "", 1);
    if (b.failed) status = aril__fail(ARIL_ERR_MEMORY, "out of memory reading %s", r->path);
    r->at = (char *)b.at;
    if (status == ARIL_OK) status = read_text(r, m);
    aril__bytes_free(&b);
    return status;
}

/* cache_images: the files stay in memory as they are. */
static aril_status read_files(window_layer *m)
{
    m->file = aril__calloc((size_t)m->path.n * sizeof *m->file);
    if (!m->file) return aril__fail(ARIL_ERR_MEMORY, "out of memory");
    aril_status status = ARIL_OK;
    for (int64_t i = 0; i < m->path.n && status == ARIL_OK; i++)
        status = aril__read_file("image", m->path.at[i], 0, &m->file[i]);
    return status;
}

/* ---- a window as an image of crop_size ---- */

/* What part of the image is resized to what part of the result. */
typedef struct placement {
    int64_t x, y, width, height; /* in the image */
    int64_t left, top;           /* in the result, as the size that follows */
    int64_t to_width, to_height;
} placement;

static int64_t rounded(float v)
{
    return (int64_t)roundf(v);
}

static int64_t at_least_0(int64_t v)
{
    return v > 0 ? v : 0;
}

/* One axis of a window that is expanded by context_pad or to a square: pixels outside of the image
 * become padding, in proportion. In floats, as Caffe computes it. */
static void expand(float center, float half, float scale, int64_t size, int64_t crop, int64_t *from,
                   int64_t *length, int64_t *before, int64_t *after, int64_t *to)
{
    int64_t first = rounded(center - half * scale), last = rounded(center + half * scale);
    float unit = (float)crop / (float)(last - first + 1);
    int64_t cut = at_least_0(-first), past = at_least_0(last - size + 1);
    *from = first + cut;
    *length = last - past - *from + 1;
    *to = rounded((float)*length * unit);
    *before = rounded((float)cut * unit);
    *after = rounded((float)past * unit);
}

static placement place(const window_layer *m, const window *w, int64_t height, int64_t width,
                       bool mirror)
{
    placement p = { .x = w->x1,
                    .y = w->y1,
                    .width = (int64_t)w->x2 - w->x1 + 1,
                    .height = (int64_t)w->y2 - w->y1 + 1,
                    .to_width = m->crop,
                    .to_height = m->crop };
    if (m->pad == 0 && !m->square) return p;
    float scale = (float)m->crop / (float)(m->crop - 2 * m->pad);
    float half_width = (float)p.width / 2, half_height = (float)p.height / 2;
    float x = (float)w->x1 + half_width, y = (float)w->y1 + half_height;
    if (m->square) half_width = half_height = fmaxf(half_width, half_height);
    int64_t after, bottom;
    expand(x, half_width, scale, width, m->crop, &p.x, &p.width, &p.left, &after, &p.to_width);
    expand(y, half_height, scale, height, m->crop, &p.y, &p.height, &p.top, &bottom, &p.to_height);
    if (mirror) p.left = after; /* the padding is mirrored too */
    /* Rounding may have made it too large. */
    if (p.left + p.to_width > m->crop) p.to_width = m->crop - p.left;
    if (p.top + p.to_height > m->crop) p.to_height = m->crop - p.top;
    return p;
}

/* Copies the resized window, u8 [C,height,width] in R, G, B, to its part of to[], f32
 * [C,crop,crop] in B, G, R. */
static void copy(const window_layer *m, const placement *p, const unsigned char *from, bool mirror,
                 float *to)
{
    int64_t crop = m->crop, width = p->to_width;
    const aril_tensor *mean = m->t.mean;
    int64_t off = mean ? (mean->dim[2] - crop) / 2 : 0;
    for (int64_t c = 0; c < COLORS; c++) {
        float value = m->t.n_values ? m->t.value[m->t.n_values > 1 ? c : 0] : 0;
        for (int64_t y = 0; y < p->to_height; y++) {
            const unsigned char *row = from + ((COLORS - 1 - c) * p->to_height + y) * width;
            float *out = to + (c * crop + p->top + y) * crop + p->left;
            const float *less = mean ? (const float *)aril__ptr(mean) +
                                           (c * mean->dim[1] + off + p->top + y) * mean->dim[2] +
                                           off + p->left
                                     : NULL;
            for (int64_t x = 0; x < width; x++)
                out[x] =
                    ((float)row[mirror ? width - 1 - x : x] - (less ? less[x] : value)) * m->scale;
        }
    }
}

/* Image i, as stored: R, G, B. */
static aril_status decode(const window_layer *m, int64_t i, aril__caffe_image *v)
{
    const char *path = m->path.at[i];
    aril__bytes b = { 0 };
    const aril__bytes *file = m->file ? &m->file[i] : &b;
    aril_status status = m->file ? ARIL_OK : aril__read_file("image", path, 0, &b);
    if (status == ARIL_OK) {
        aril__image_want want = { .opts = { .channels = COLORS }, .name = path };
        aril_tensor *x =
            aril_permute(aril__image_decode(file->at, file->n, &want), ARIL_AXES(2, 0, 1));
        status = aril_tensor_status(x);
        if (status == ARIL_OK && aril_dtype_of(x) != ARIL_U8)
            status = aril__fail(ARIL_ERR_FORMAT, "%s: an image of 8 bits was expected", path);
        if (status == ARIL_OK) *v = aril__caffe_image_of(x, false);
    }
    aril__bytes_free(&b);
    return status;
}

static aril_status crop_window(const window_layer *m, const window *w, bool mirror, float *to)
{
    ARIL_SCOPE;
    aril__caffe_image v;
    aril_status status = decode(m, w->image, &v);
    if (status != ARIL_OK) return status;
    placement p = place(m, w, v.height, v.width, mirror);
    if (p.x < 0 || p.y < 0 || p.width < 1 || p.height < 1 || p.x + p.width > v.width ||
        p.y + p.height > v.height)
        return aril__fail(ARIL_ERR_SHAPE,
                          "the window (%d, %d) to (%d, %d) is not inside of the image "
                          "%s of %lld x %lld",
                          w->x1, w->y1, w->x2, w->y2, m->path.at[w->image], (long long)v.width,
                          (long long)v.height);
    memset(to, 0, (size_t)(COLORS * m->crop * m->crop) * sizeof *to);
    if (p.to_width < 1 || p.to_height < 1) return ARIL_OK; /* all of it is padding */
    aril_tensor *part =
        aril_empty(ARIL_SHAPE(COLORS, p.to_height, p.to_width), ARIL_U8, aril_cpu());
    if (aril_tensor_status(part) != ARIL_OK) return aril_tensor_status(part);
    aril__pixels_view from = { .data = (const unsigned char *)v.data + p.y * v.row + p.x * v.pixel,
                               .channels = COLORS,
                               .height = p.height,
                               .width = p.width,
                               .plane = v.plane,
                               .row = v.row,
                               .pixel = v.pixel };
    aril__box all = { 0, 0, (double)p.width, (double)p.height };
    status = aril__resize(&from, all, p.to_height, p.to_width,
                          (aril_resize_opts){ .no_antialias = true }, aril__ptr(part));
    if (status == ARIL_OK) copy(m, &p, aril__ptr(part), mirror, to);
    return status;
}

/* ---- the dataset: sample i is at position i of a batch, its window drawn ---- */

static int64_t size_of(aril_dataset *self)
{
    return ((window_layer *)aril_dataset_data(self))->batch;
}

static aril_status get(aril_dataset *self, int64_t i, aril_sample *s)
{
    const window_layer *m = aril_dataset_data(self);
    const windows *from = &m->all[i >= m->n_background];
    const window *w = &from->at[aril__draw_below(s->random, from->n)];
    bool mirror = m->t.mirror && aril__draw_below(s->random, 2) == 1;
    s->name = m->path.at[w->image];
    aril_tensor *x = aril_empty(ARIL_SHAPE(COLORS, m->crop, m->crop), ARIL_F32, aril_cpu());
    aril_status status = aril_tensor_status(x);
    if (status == ARIL_OK) status = crop_window(m, w, mirror, aril__ptr(x));
    if (status != ARIL_OK) return status;
    float label = (float)w->label;
    aril__caffe_source_set(s, 0, x);
    aril__caffe_source_set(s, 1, aril_from(&label, ARIL_SHAPE(), ARIL_F32, aril_cpu()));
    return aril_tensor_status(s->y);
}

static void destroy(aril_dataset *self)
{
    window_layer *m = aril_dataset_data(self);
    for (int64_t i = 0; m->file && i < m->path.n; i++) aril__bytes_free(&m->file[i]);
    free(m->file);
    free(m->all[0].at);
    free(m->all[1].at);
    aril__texts_free(&m->path);
    aril__caffe_transform_free(&m->t);
}

static const aril_dataset_class windows_class = {
    .type = "WindowData layer",
    .data_size = sizeof(window_layer),
    .size = size_of,
    .get = get,
    .destroy = destroy,
};

/* ---- opening ---- */

static aril_status check_mean(const window_layer *m)
{
    const aril_tensor *mean = m->t.mean;
    if (m->t.n_values > 1 && m->t.n_values != COLORS)
        return aril__fail(ARIL_ERR_ARG,
                          "%d values of mean_value for %d channels; give one, or one "
                          "for each channel",
                          m->t.n_values, COLORS);
    if (!mean || (mean->dim[0] == COLORS && mean->dim[1] >= m->crop && mean->dim[2] >= m->crop &&
                  (mean->dim[2] - m->crop) / 2 + m->crop <= mean->dim[1]))
        return ARIL_OK;
    return aril__fail(ARIL_ERR_SHAPE,
                      "the mean has the shape [%lld,%lld,%lld]; expected %d channels "
                      "and at least the crop_size, %lld",
                      (long long)mean->dim[0], (long long)mean->dim[1], (long long)mean->dim[2],
                      COLORS, (long long)m->crop);
}

static aril_status read_settings(const aril__message *p, window_layer *m)
{
    enum { LARGEST = 1 << 14 };
    const char *mode = aril__message_text(p, "crop_mode");
    float fraction = (float)aril__message_number(p, "fg_fraction");
    /* The scale of transform_param has no effect in Caffe. */
    m->scale = (float)aril__message_number(p, "scale");
    m->fg_from = (float)aril__message_number(p, "fg_threshold");
    m->bg_below = (float)aril__message_number(p, "bg_threshold");
    m->pad = aril__message_int(p, "context_pad");
    m->crop = m->t.crop;
    m->square = strcmp(mode, "square") == 0;
    if (m->crop < 1 || m->crop > LARGEST)
        return aril__fail(ARIL_ERR_ARG,
                          "expected a crop_size from 1 to %d in "
                          "transform_param, got %lld",
                          LARGEST, (long long)m->crop);
    if (!m->square && strcmp(mode, "warp") != 0)
        return aril__fail(ARIL_ERR_ARG, "unknown crop_mode '%s'; expected warp or square", mode);
    if (2 * m->pad >= m->crop)
        return aril__fail(ARIL_ERR_ARG, "context_pad %lld leaves nothing of crop_size %lld",
                          (long long)m->pad, (long long)m->crop);
    if (!(fraction >= 0 && fraction <= 1))
        return aril__fail(ARIL_ERR_ARG, "fg_fraction must be from 0 to 1, got %g",
                          (double)fraction);
    m->n_background = m->batch - (int64_t)((float)m->batch * fraction);
    return check_mean(m);
}

aril_status aril__caffe_open_windows(const aril__message *layer,
                                     const aril__caffe_source_opts *opts, aril__caffe_source *s)
{
    const aril__message *p = aril__message_sub(layer, "window_data_param");
    s->batch = aril__caffe_batch_size(p);
    if (s->batch < 0) return (aril_status)s->batch;
    s->dataset = aril_dataset_make(&windows_class);
    if (!s->dataset) return aril__latest_status();
    window_layer *m = aril_dataset_data(s->dataset);
    m->batch = s->batch;
    aril_status status = aril__caffe_transform_read(layer, opts->train, opts->root, &m->t);
    if (status == ARIL_OK) status = read_settings(p, m);
    if (status != ARIL_OK) return status;
    char *path = aril__caffe_source_path(opts->root, aril__message_text(p, "source"));
    if (!path) return aril__latest_status();
    reader r = {
        .path = path, .root = opts->root, .folder = aril__message_text(p, "root_folder"), .line = 1
    };
    status = read_windows(&r, m);
    free(path);
    return status == ARIL_OK && aril__message_int(p, "cache_images") ? read_files(m) : status;
}
