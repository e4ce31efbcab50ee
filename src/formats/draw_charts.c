/* Charts: curves, confusion matrices and image grids. */
#include "aril/device.h"
#include "aril/draw.h"
#include "aril/create.h"
#include "aril/view.h"
#include "aril/scope.h"
#include "core/error.h"
#include "core/memory.h"
#include "formats/draw.h"
#include "formats/image_of.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { INK = 0x1f2933, FAINT = 0x7b8794, GRID = 0xe4e7eb, GOOD = 0x1b7f4b, BAD = 0xc81e1e };
static const uint32_t palette[] = { 0x2563eb, 0xea580c, 0x16a34a, 0x9333ea, 0xdc2626, 0x0891b2 };
enum { COLOURS = sizeof palette / sizeof *palette };

enum { SCALE = 2 }; /* PNG pixels per unit */

/* Truncates a text with "..." if it is wider than `width`. */
static const char *fit(const char *text, double size, double width, char *buf, size_t capacity)
{
    snprintf(buf, capacity, "%s", text);
    size_t n = strlen(buf);
    while (n > 1 && aril__text_width(buf, size) > width) {
        while (n > 1 && (buf[--n] & 0xc0) == 0x80) {
        }
        snprintf(buf + n, capacity - n, "...");
    }
    return buf;
}

/* ---- curves ---- */

/* A round step that divides a range into about n intervals. */
static double round_step(double range, int n)
{
    double raw = range / n, power = pow(10, floor(log10(raw))), lead = raw / power;
    return power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
}

static bool same_panel(const aril_series *a, const aril_series *b)
{
    const char *x = a->panel ? a->panel : a->name, *y = b->panel ? b->panel : b->name;
    if (!a->panel && strncmp(x, "val_", 4) == 0) x += 4;
    if (!b->panel && strncmp(y, "val_", 4) == 0) y += 4;
    return strcmp(x, y) == 0;
}

typedef struct axes {
    double left, top, width, height;
    double x0, x1, y0, y1;
    double step; /* distance between horizontal grid lines */
} axes;

static double series_x(const aril_series *s, int i)
{
    return s->x ? s->x[i] : i + 1;
}

static double to_x(const axes *a, double x)
{
    return a->left + (x - a->x0) / (a->x1 - a->x0) * a->width;
}

static double to_y(const axes *a, double y)
{
    return a->top + a->height - (y - a->y0) / (a->y1 - a->y0) * a->height;
}

static void widen(double *low, double *high, double v)
{
    if (!isfinite(v)) return;
    *low = fmin(*low, v);
    *high = fmax(*high, v);
}

static void set_ranges(axes *a, const aril_series *series, int n, int first)
{
    a->x0 = a->y0 = INFINITY;
    a->x1 = a->y1 = -INFINITY;
    for (int k = first; k < n; k++) {
        if (!same_panel(&series[first], &series[k])) continue;
        for (int i = 0; i < series[k].n; i++) {
            if (!isfinite(series[k].y[i])) continue;
            widen(&a->x0, &a->x1, series_x(&series[k], i));
            widen(&a->y0, &a->y1, series[k].y[i]);
        }
    }
    if (!(a->x0 <= a->x1)) a->x0 = 0, a->x1 = 1;
    if (!(a->y0 <= a->y1)) a->y0 = 0, a->y1 = 1;
    if (a->x0 == a->x1) a->x0 -= 0.5, a->x1 += 0.5;
    if (a->y0 == a->y1) {
        double margin = a->y0 != 0 ? fabs(a->y0) * 0.1 : 1;
        a->y0 -= margin;
        a->y1 += margin;
    }
    a->step = round_step(a->y1 - a->y0, 5);
    a->y0 = floor(a->y0 / a->step + 1e-9) * a->step;
    a->y1 = ceil(a->y1 / a->step - 1e-9) * a->step;
}

static void draw_grid(aril__drawing *d, const axes *a)
{
    char text[32];
    double step = a->step;
    for (int i = 0; a->y0 + i * step <= a->y1 + step * 1e-6; i++) {
        double v = a->y0 + i * step, y = to_y(a, v);
        if (fabs(v) < step * 1e-6) v = 0;
        aril__draw_rect(d, a->left, y - 0.5, a->width, 1, GRID);
        snprintf(text, sizeof text, "%.6g", v);
        aril__draw_text(d, a->left - 8, y + 4, 11, 1, FAINT, text);
    }
    double wide = round_step(a->x1 - a->x0, 8);
    if (wide < 1 && a->x0 == floor(a->x0) && a->x1 == floor(a->x1)) wide = 1; /* whole epochs */
    for (double v = ceil(a->x0 / wide - 1e-9) * wide; v <= a->x1 + wide * 1e-6; v += wide) {
        snprintf(text, sizeof text, "%.6g", fabs(v) < wide * 1e-6 ? 0 : v);
        aril__draw_text(d, to_x(a, v), a->top + a->height + 17, 11, 0, FAINT, text);
        aril__draw_rect(d, to_x(a, v) - 0.5, a->top + a->height, 1, 4, FAINT);
    }
    aril__draw_rect(d, a->left, a->top + a->height - 0.5, a->width, 1, FAINT);
}

/* One line per run of finite values; an isolated value is a dot. */
static bool draw_series(aril__drawing *d, const axes *a, const aril_series *s, uint32_t color)
{
    double *xy = aril__malloc(2 * (size_t)(s->n + 1) * sizeof *xy);
    int m = 0;
    if (!xy) return false;
    for (int i = 0; i <= s->n; i++) {
        if (i < s->n && isfinite(s->y[i])) {
            xy[2 * m] = to_x(a, series_x(s, i));
            xy[2 * m++ + 1] = to_y(a, s->y[i]);
        } else if (m) {
            aril__draw_line(d, m, xy, m == 1 ? 5 : 2, color);
            m = 0;
        }
    }
    free(xy);
    return true;
}

static bool draw_panel(aril__drawing *d, const aril_series *series, int n, int first, double left,
                       double top, double width, double height, const char *x_name)
{
    axes a = { .left = left + 58, .top = top + 44, .width = width - 78, .height = height - 92 };
    char text[96], name[64];
    set_ranges(&a, series, n, first);
    draw_grid(d, &a);
    double x = a.left;
    int color = 0;
    for (int k = first; k < n; k++) {
        const aril_series *s = &series[k];
        if (!same_panel(&series[first], s)) continue;
        uint32_t c = palette[color++ % COLOURS];
        if (!draw_series(d, &a, s, c)) return false;
        int last = s->n - 1;
        while (last >= 0 && !isfinite(s->y[last])) last--;
        fit(s->name, 12, 110, name, sizeof name);
        double shown = last >= 0 ? s->y[last] : 0;
        bool large = fabs(shown) >= 1e4 && fabs(shown) < 1e8; /* 25706, not 2.571e+04 */
        if (last >= 0)
            snprintf(text, sizeof text, large ? "%s  %.0f" : "%s  %.4g", name, shown);
        else
            snprintf(text, sizeof text, "%s", name);
        aril__draw_rect(d, x, top + 20, 14, 3, c);
        aril__draw_text(d, x + 20, top + 26, 12, -1, INK, text);
        x += 40 + aril__text_width(text, 12);
    }
    aril__draw_text(d, a.left + a.width / 2, top + height - 12, 11, 0, FAINT, x_name);
    return true;
}

aril_status aril_draw_curves(const char *path, const aril_series *series, int n,
                             aril_draw_opts opts)
{
    static const char what[] = "draw_curves";
    if (n < 1 || !series) return aril__fail(ARIL_ERR_ARG, "%s: expected at least one series", what);
    int panels = 0;
    for (int i = 0; i < n; i++) {
        if (!series[i].name || series[i].n < 0 || (series[i].n && !series[i].y))
            return aril__fail(ARIL_ERR_ARG, "%s: series %d has no name or no values", what, i);
        int first = 0;
        while (!same_panel(&series[first], &series[i])) first++;
        panels += first == i;
    }
    double width = opts.width > 0 ? opts.width : 460, height = opts.height > 0 ? opts.height : 300;
    int columns = panels < 3    ? panels
                  : panels == 4 ? 2
                                : 3,
        rows = (panels + columns - 1) / columns;
    double head = opts.title ? 40 : 0;
    aril__drawing *d = aril__drawing_new(columns * width, rows * height + head);
    if (opts.title) aril__draw_text(d, columns * width / 2, 28, 16, 0, INK, opts.title);
    bool ok = d != NULL;
    for (int i = 0, at = 0; ok && i < n; i++) {
        int first = 0;
        while (!same_panel(&series[first], &series[i])) first++;
        if (first != i) continue;
        ok = draw_panel(d, series, n, i, at % columns * width, head + at / columns * height, width,
                        height, opts.x_name ? opts.x_name : "epoch");
        at++;
    }
    aril_status s = !d    ? aril_error_code()
                    : !ok ? aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", what)
                          : aril__drawing_save(d, what, path, SCALE);
    aril__drawing_free(d);
    return s;
}

/* ---- confusion matrix ---- */

/* A colour from white to dark blue. */
static uint32_t shade(double share)
{
    static const int light[] = { 0xf7, 0xfa, 0xfc }, dark[] = { 0x1e, 0x40, 0xaf };
    double t = sqrt(fmin(1, fmax(0, share))); /* sqrt makes small shares visible */
    uint32_t color = 0;
    for (int k = 0; k < 3; k++)
        color = color << 8 | (uint32_t)lround(light[k] + t * (dark[k] - light[k]));
    return color;
}

enum { NUMBER = 24 }; /* buffer size for a class number */

typedef struct table {
    int64_t n;
    double *count;
    const char *const *names;
    bool numbered; /* names do not fit columns: label columns by number, rows by both */
    double cell, left, top;
} table;

static const char *class_name(const table *t, int64_t i, char *buf, size_t size)
{
    if (t->names && t->names[i])
        fit(t->names[i], 11, 110, buf, size);
    else
        snprintf(buf, size, "%" PRId64, i);
    return buf;
}

static void draw_cells(aril__drawing *d, const table *t)
{
    char text[64];
    for (int64_t i = 0; i < t->n; i++) {
        double y = t->top + (double)i * t->cell, all = 0;
        for (int64_t j = 0; j < t->n; j++) all += t->count[i * t->n + j];
        for (int64_t j = 0; j < t->n; j++) {
            double x = t->left + (double)j * t->cell, v = t->count[i * t->n + j];
            double share = all > 0 ? v / all : 0;
            aril__draw_rect(d, x, y, t->cell - 1, t->cell - 1, shade(share));
            if (t->n > 30 || v == 0) continue;
            snprintf(text, sizeof text, "%.6g", v);
            double size =
                fmin(12, t->cell * 0.8 * 12 / fmax(t->cell * 0.8, aril__text_width(text, 12)));
            aril__draw_text(d, x + t->cell / 2, y + t->cell / 2 + size * 0.36, size, 0,
                            share > 0.3 ? 0xffffff : INK, text);
        }
    }
}

/* The label above a column. */
static const char *column_name(const table *t, int64_t i, char *buf, size_t size)
{
    if (t->numbered)
        snprintf(buf, size, "%" PRId64, i);
    else
        class_name(t, i, buf, size);
    return buf;
}

/* Draws row and column labels and each class's recall. With many classes, row labels shrink and the
 * columns, which are narrower, have none. */
static void draw_names(aril__drawing *d, const table *t, double side)
{
    enum { MIN_SIZE = 6 }; /* smaller text cannot be read */
    double size = fmin(11, t->cell * 0.9);
    bool columns = t->n <= 40;
    char text[64];
    if (size < MIN_SIZE) return;
    aril__draw_text(d, t->left + side + 8, t->top - 8, 11, -1, FAINT, "recall");
    for (int64_t i = 0; i < t->n; i++) {
        double middle = (double)i * t->cell + t->cell / 2, all = 0;
        double line = t->top + middle + size * 0.36;
        column_name(t, i, text, sizeof text);
        if (columns) aril__draw_text(d, t->left + middle, t->top - 8, 11, 0, INK, text);
        if (t->numbered) aril__draw_text(d, t->left - 8, line, size, 1, FAINT, text);
        class_name(t, i, text, sizeof text);
        aril__draw_text(d, t->left - (t->numbered ? 8 + NUMBER : 8), line, size, 1, INK, text);
        for (int64_t j = 0; j < t->n; j++) all += t->count[i * t->n + j];
        if (all == 0) continue;
        snprintf(text, sizeof text, "%.1f %%", 100 * t->count[i * t->n + i] / all);
        aril__draw_text(d, t->left + side + 8, line, size, -1, FAINT, text);
    }
}

aril_status aril_draw_confusion(const char *path, aril_tensor *counts, const char *const *names,
                                aril_draw_opts opts)
{
    static const char what[] = "draw_confusion";
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    if (!counts || aril_ndim(counts) != 2 || aril_size(counts, 0) != aril_size(counts, 1) ||
        aril_size(counts, 0) < 1)
        return aril__fail(ARIL_ERR_SHAPE, "%s: expected counts [C,C] of C classes", what);
    table t = { .n = aril_size(counts, 0), .names = names };
    t.count = aril__malloc((size_t)(t.n * t.n) * sizeof *t.count);
    if (!t.count) return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", what);
    aril_status s = aril_read(aril_to(aril_cast(counts, ARIL_F64), aril_cpu()), t.count);
    if (s < 0) {
        free(t.count);
        return s;
    }
    char text[64];
    double name = 0, widest = aril__text_width("true class", 11), head = opts.title ? 36 : 12;
    for (int64_t i = 0; i < t.n; i++)
        name = fmax(name, aril__text_width(class_name(&t, i, text, sizeof text), 11));
    widest = fmax(widest, name);
    t.cell = t.n <= 12 ? fmax(44, widest + 10) : t.n <= 30 ? 30 : fmax(3, 900.0 / (double)t.n);
    t.numbered = t.n <= 40 && name > t.cell - 2;
    t.left = widest + 34 + (t.numbered ? NUMBER : 0);
    t.top = head + 42;
    double side = (double)t.n * t.cell;
    aril__drawing *d = aril__drawing_new(t.left + side + 70, t.top + side + 16);
    if (opts.title) aril__draw_text(d, (t.left + side + 70) / 2, 25, 16, 0, INK, opts.title);
    aril__draw_text(d, t.left + side / 2, head + 14, 11, 0, FAINT, "predicted class");
    aril__draw_text(d, t.left - 8, t.top - 8, 11, 1, FAINT, "true class");
    draw_cells(d, &t);
    draw_names(d, &t, side);
    s = d ? aril__drawing_save(d, what, path, SCALE) : aril_error_code();
    aril__drawing_free(d);
    free(t.count);
    return s;
}

/* ---- image grids ---- */

/* Converts the i-th image of [N,C,H,W] to RGB pixels, which the caller frees. */
static aril_status rgb_of(const char *what, aril_tensor *images, int64_t i, aril__pixels *out)
{
    ARIL_SCOPE;
    aril_status s = aril__pixels_of(what, aril_select(images, 0, i), 0, out);
    if (s < 0 || out->channels == 3) return s;
    int64_t n = out->width * out->height;
    uint8_t *rgb = aril__malloc((size_t)(3 * n));
    for (int64_t k = 0; rgb && k < n; k++)
        for (int c = 0; c < 3; c++)
            rgb[3 * k + c] = out->at[k * out->channels + (out->channels > 1 ? c : 0)];
    free(out->at);
    out->at = rgb;
    return rgb ? ARIL_OK : aril__fail(ARIL_ERR_MEMORY, "%s: out of memory for an image", what);
}

aril_status aril_draw_sheet(const char *path, aril_tensor *images, const aril_caption *captions,
                            int columns, aril_draw_opts opts)
{
    static const char what[] = "draw_sheet";
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    if (!images || aril_ndim(images) != 4 || aril_size(images, 0) < 1)
        return aril__fail(ARIL_ERR_SHAPE, "%s: expected images [N,C,H,W]", what);
    int64_t n = aril_size(images, 0), h = aril_size(images, 2), w = aril_size(images, 3);
    int64_t across = columns > 0 ? columns : (int64_t)ceil(sqrt((double)n * 1.5));
    if (across > n) across = n;
    int64_t down = (n + across - 1) / across;
    /* Enlarge small images, shrink large ones. */
    double large = (double)(h > w ? h : w), zoom = 96 / fmax(1, large);
    double pw = (double)w * zoom, ph = (double)h * zoom, gap = 12;
    double text = captions ? 20 : 0, head = opts.title ? 36 : 0;
    double cell = fmax(pw, captions ? 96 : 0);
    for (int64_t i = 0; captions && i < n; i++) /* wider for long captions, up to a limit */
        if (captions[i].text)
            cell = fmin(fmax(cell, aril__text_width(captions[i].text, 10)), fmax(pw, 140));
    aril__drawing *d = aril__drawing_new((double)across * (cell + gap) + gap,
                                         (double)down * (ph + text + gap) + gap + head);
    if (opts.title) aril__draw_text(d, gap, 25, 15, -1, INK, opts.title);
    aril_status s = d ? ARIL_OK : aril_error_code();
    for (int64_t i = 0; s == ARIL_OK && i < n; i++) {
        double x = gap + (double)(i % across) * (cell + gap);
        double y = gap + head + (double)(i / across) * (ph + text + gap);
        aril__pixels p = { 0 };
        s = rgb_of(what, images, i, &p);
        if (s == ARIL_OK)
            aril__draw_pixels(d, x + (cell - pw) / 2, y, pw, ph, p.at, p.width, p.height);
        free(p.at);
        if (!captions || !captions[i].text) continue;
        char line[96];
        aril__draw_text(d, x + cell / 2, y + ph + 14, 10, 0, captions[i].wrong ? BAD : GOOD,
                        fit(captions[i].text, 10, cell + gap - 4, line, sizeof line));
    }
    if (s == ARIL_OK) s = aril__drawing_save(d, what, path, SCALE);
    aril__drawing_free(d);
    return s;
}
