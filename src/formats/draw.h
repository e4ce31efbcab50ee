/* A vector drawing: a list of lines, rectangles, texts and images, saved as SVG or PNG. */
#ifndef ARIL_FORMATS_DRAW_H
#define ARIL_FORMATS_DRAW_H

#include "aril/base.h"
#include "formats/bytes.h"

typedef struct aril__drawing aril__drawing;

/* Colours are 0xRRGGBB. */
aril__drawing *aril__drawing_new(double width, double height);
void aril__drawing_free(aril__drawing *d);

/* All accept a NULL drawing; a failure to add a shape is remembered and reported on save. */
void aril__draw_rect(aril__drawing *d, double x, double y, double w, double h, uint32_t color);
/* A polyline through n points (x, y, x, y ...). */
void aril__draw_line(aril__drawing *d, int n, const double *xy, double width, uint32_t color);
/* align -1: the text starts at x, 0: centered, 1: ends at x. y is its baseline. */
void aril__draw_text(aril__drawing *d, double x, double y, double size, int align, uint32_t color,
                     const char *text);
/* An image [ph,pw,3], which is copied; each pixel becomes a square. */
void aril__draw_pixels(aril__drawing *d, double x, double y, double w, double h,
                       const uint8_t *pixels, int64_t pw, int64_t ph);

/* The width of a text in the raster font. */
double aril__text_width(const char *text, double size);

/* Saves in the format of the path's suffix: .svg, or .png with `scale` pixels per unit. */
aril_status aril__drawing_save(aril__drawing *d, const char *what, const char *path, double scale);

/* ---- internals ---- */

typedef enum aril__shape_kind {
    ARIL__RECT,
    ARIL__LINE,
    ARIL__TEXT,
    ARIL__PIXELS,
} aril__shape_kind;

typedef struct aril__shape {
    aril__shape_kind kind;
    uint32_t color;
    double x, y, w, h; /* of a line: w is its width; of a text: h is its size */
    int n;             /* number of points, or the text's alignment */
    double *xy;
    char *text;
    uint8_t *pixels;
    int64_t pw, ph;
} aril__shape;

struct aril__drawing {
    double width, height;
    aril__shape *at;
    size_t n, capacity;
    bool failed;
};

/* Rasterizes the drawing to [h,w,3]; free with free(). */
uint8_t *aril__drawing_raster(const aril__drawing *d, double scale, int64_t *width,
                              int64_t *height);

#endif
