#include "formats/draw.h"

#include "core/error.h"
#include "core/memory.h"
#include "formats/atomic_file.h"
#include "formats/png_write.h"

#include <stdlib.h>
#include <string.h>

aril__drawing *aril__drawing_new(double width, double height)
{
    aril__drawing *d = aril__calloc(sizeof *d);
    if (!d) {
        aril__fail(ARIL_ERR_MEMORY, "draw: out of memory for a drawing");
        return NULL;
    }
    d->width = width;
    d->height = height;
    return d;
}

void aril__drawing_free(aril__drawing *d)
{
    for (size_t i = 0; d && i < d->n; i++) {
        free(d->at[i].xy);
        free(d->at[i].text);
        free(d->at[i].pixels);
    }
    if (d) free(d->at);
    free(d);
}

/* Adds a zero-initialized shape; NULL when out of memory. */
static aril__shape *add(aril__drawing *d, aril__shape_kind kind, uint32_t color)
{
    if (!d || d->failed) return NULL;
    if (d->n == d->capacity) {
        size_t capacity = d->capacity ? 2 * d->capacity : 64;
        aril__shape *wider = aril__realloc(d->at, capacity * sizeof *wider);
        if (!wider) return d->failed = true, NULL;
        d->at = wider;
        d->capacity = capacity;
    }
    d->at[d->n] = (aril__shape){ .kind = kind, .color = color };
    return &d->at[d->n++];
}

void aril__draw_rect(aril__drawing *d, double x, double y, double w, double h, uint32_t color)
{
    aril__shape *s = add(d, ARIL__RECT, color);
    if (!s) return;
    s->x = x;
    s->y = y;
    s->w = w;
    s->h = h;
}

void aril__draw_line(aril__drawing *d, int n, const double *xy, double width, uint32_t color)
{
    aril__shape *s = n > 0 ? add(d, ARIL__LINE, color) : NULL;
    if (!s) return;
    s->w = width;
    s->xy = aril__malloc(2 * (size_t)n * sizeof *xy);
    if (!s->xy) {
        d->failed = true;
        return;
    }
    memcpy(s->xy, xy, 2 * (size_t)n * sizeof *xy);
    s->n = n;
}

void aril__draw_text(aril__drawing *d, double x, double y, double size, int align, uint32_t color,
                     const char *text)
{
    aril__shape *s = add(d, ARIL__TEXT, color);
    if (!s) return;
    s->x = x;
    s->y = y;
    s->h = size;
    s->n = align;
    s->text = aril__strdup(text);
    if (!s->text) d->failed = true;
}

void aril__draw_pixels(aril__drawing *d, double x, double y, double w, double h,
                       const uint8_t *pixels, int64_t pw, int64_t ph)
{
    aril__shape *s = add(d, ARIL__PIXELS, 0);
    if (!s) return;
    *s = (aril__shape){ .kind = ARIL__PIXELS, .x = x, .y = y, .w = w, .h = h, .pw = pw, .ph = ph };
    s->pixels = aril__malloc((size_t)(3 * pw * ph));
    if (s->pixels)
        memcpy(s->pixels, pixels, (size_t)(3 * pw * ph));
    else
        d->failed = true;
}

/* ---- SVG ---- */

static void xml(aril__bytes *b, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            aril__bytes_print(b, "&lt;");
        else if (*text == '&')
            aril__bytes_print(b, "&amp;");
        else if (*text == '"')
            aril__bytes_print(b, "&quot;");
        else if ((unsigned char)*text >= 32)
            aril__bytes_add(b, text, 1);
    }
}

static void base64(aril__bytes *b, const unsigned char *p, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        unsigned v = (unsigned)p[i] << 16 | (i + 1 < n ? (unsigned)p[i + 1] << 8 : 0) |
                     (i + 2 < n ? p[i + 2] : 0);
        char four[4] = { digits[v >> 18], digits[v >> 12 & 63], digits[v >> 6 & 63],
                         digits[v & 63] };
        if (i + 1 >= n) four[2] = '=';
        if (i + 2 >= n) four[3] = '=';
        aril__bytes_add(b, four, 4);
    }
}

static void svg_shape(aril__bytes *b, const aril__shape *s)
{
    static const char *const anchors[] = { "start", "middle", "end" };
    aril__bytes png = { 0 };
    switch (s->kind) {
    case ARIL__RECT:
        aril__bytes_print(b,
                          "<rect x=\"%.6g\" y=\"%.6g\" width=\"%.6g\" height=\"%.6g\""
                          " fill=\"#%06x\"/>\n",
                          s->x, s->y, s->w, s->h, s->color);
        break;
    case ARIL__LINE:
        aril__bytes_print(
            b, "<polyline fill=\"none\" stroke=\"#%06x\" stroke-width=\"%.3g\" points=\"", s->color,
            s->w);
        for (int i = 0; i < s->n; i++)
            aril__bytes_print(b, "%s%.6g,%.6g", i ? " " : "", s->xy[2 * i], s->xy[2 * i + 1]);
        aril__bytes_print(b, "\"/>\n");
        break;
    case ARIL__TEXT:
        aril__bytes_print(b,
                          "<text x=\"%.6g\" y=\"%.6g\" font-size=\"%.3g\" fill=\"#%06x\""
                          " text-anchor=\"%s\">",
                          s->x, s->y, s->h, s->color, anchors[s->n + 1]);
        xml(b, s->text);
        aril__bytes_print(b, "</text>\n");
        break;
    case ARIL__PIXELS:
        if (aril__png_encode("draw", s->pixels, s->pw, s->ph, 3, 3 * s->pw, &png) < 0)
            b->failed = true;
        aril__bytes_print(b,
                          "<image x=\"%.6g\" y=\"%.6g\" width=\"%.6g\" height=\"%.6g\""
                          " style=\"image-rendering:pixelated\" preserveAspectRatio=\"none\""
                          " href=\"data:image/png;base64,",
                          s->x, s->y, s->w, s->h);
        base64(b, png.at, png.n);
        aril__bytes_print(b, "\"/>\n");
        aril__bytes_free(&png);
        break;
    }
}

static void svg(const aril__drawing *d, aril__bytes *b)
{
    aril__bytes_print(b,
                      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.6g\" height=\"%.6g\""
                      " viewBox=\"0 0 %.6g %.6g\" font-family=\"Helvetica, Arial, sans-serif\""
                      " stroke-linejoin=\"round\" stroke-linecap=\"round\">\n"
                      "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
                      d->width, d->height, d->width, d->height);
    for (size_t i = 0; i < d->n; i++) svg_shape(b, &d->at[i]);
    aril__bytes_print(b, "</svg>\n");
}

/* ---- saving ---- */

static bool ends_in(const char *path, const char *suffix)
{
    size_t n = strlen(path), m = strlen(suffix);
    return n > m && strcmp(path + n - m, suffix) == 0;
}

/* Limits beyond what viewers show, and far below overflow. */
enum { MAX_SIDE = 100000, MAX_PIXELS = 1 << 28 };

aril_status aril__drawing_save(aril__drawing *d, const char *what, const char *path, double scale)
{
    if (!d) return aril_error_code();
    if (!path || !(ends_in(path, ".svg") || ends_in(path, ".png")))
        return aril__fail(ARIL_ERR_ARG, "%s: expected a name that ends in .svg or .png, got '%s'",
                          what, path ? path : "");
    if (!(d->width * scale <= MAX_SIDE && d->height * scale <= MAX_SIDE &&
          d->width * d->height * scale * scale <= MAX_PIXELS))
        return aril__fail(
            ARIL_ERR_ARG,
            "%s: a drawing of %g x %g is too large; the limits are %d per side and %g pixels", what,
            d->width * scale, d->height * scale, MAX_SIDE, (double)MAX_PIXELS);
    aril__bytes b = { 0 };
    aril_status s = ARIL_OK;
    if (!d->failed && ends_in(path, ".svg")) {
        svg(d, &b);
    } else if (!d->failed) {
        int64_t width, height;
        uint8_t *pixels = aril__drawing_raster(d, scale, &width, &height);
        if (!pixels)
            b.failed = true;
        else
            s = aril__png_encode(what, pixels, width, height, 3, 3 * width, &b);
        free(pixels);
    }
    if (d->failed || b.failed)
        s = aril__fail(ARIL_ERR_MEMORY, "%s: out of memory for a drawing", what);
    if (s == ARIL_OK) s = aril__file_replace(path, b.at, b.n);
    aril__bytes_free(&b);
    return s;
}
