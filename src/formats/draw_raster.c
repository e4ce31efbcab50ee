/* Rasterizes drawings, with a stroke font. */
#include "core/memory.h"
#include "formats/draw.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- font ---- */

/* The strokes of ' ' to '~': each point is a digit (x, to the right) and a letter (y, down: 'a' is
 * the top of a capital, 'd' that of a small letter, 'j' the baseline, 'm' the descender of a g). A
 * stroke after ~ is a curve through its points. */
static const char *const letters[] = {
    "",                                       /* space */
    "0a0g 0i0j",                              /* ! */
    "0a0c 2a2c",                              /* " */
    "2b1i 5b4i 0d6d 0g6g",                    /* # */
    "~5c4b1b0d3e5g4i1i0h 3a3j",               /* $ */
    "6a0j ~1a0b1d2b1a ~5g4h5j6h5g",           /* % */
    "~6j1c1b2a4b4c0g1i2j4i6f",                /* & */
    "0a0c",                                   /* ' */
    "~2a0d0h2l",                              /* ( */
    "~0a2d2h0l",                              /* ) */
    "2b2f 0c4e 4c0e",                         /* * */
    "3c3i 0f6f",                              /* + */
    "1i0l",                                   /* , */
    "0f4f",                                   /* - */
    "0i0j",                                   /* . */
    "4a0l",                                   /* / */
    "~2a0c0h2j3j5h5c3a2a",                    /* 0 */
    "0c2a2j",                                 /* 1 */
    "~0c1a4a5c4f 4f0j5j",                     /* 2 */
    "~0b2a4a5c3e ~3e5f5i3j1j0i",              /* 3 */
    "4j4a0g6g",                               /* 4 */
    "5a1a0e ~0e2d4d5g4j1j0i",                 /* 5 */
    "~5b3a1b0f0h2j4j5h5f3e1e0g",              /* 6 */
    "0a5a2j",                                 /* 7 */
    "~2a0b0d2e4f5h4j1j0h1f3e5d5b3a2a",        /* 8 */
    "~5d4f2f0d0b2a3a5b5f4i2j0i",              /* 9 */
    "0d0e 0i0j",                              /* : */
    "1d1e 1i0l",                              /* ; */
    "5c0f5i",                                 /* < */
    "0e5e 0h5h",                              /* = */
    "0c5f0i",                                 /* > */
    "~0b1a4a5c2f 2f2g 2i2j",                  /* ? */
    "~5d3d2f3h5f5d 5d6h ~6h8g8c5a2a0d0h3k6k", /* @ */
    "0j3a6j 1g5g",                            /* A */
    "0e0a3a ~3a5b5d3e 0e3e ~3e6f6i3j 3j0j0e", /* B */
    "~6b4a2a0c0h2j4j6i",                      /* C */
    "0j0a3a ~3a6c6h3j 3j0j",                  /* D */
    "6a0a0j6j 0e5e",                          /* E */
    "6a0a0j 0e5e",                            /* F */
    "~6b4a2a0c0h2j4j6h 6h6f4f",               /* G */
    "0a0j 6a6j 0e6e",                         /* H */
    "0a0j",                                   /* I */
    "4a4g ~4g3j1j0h",                         /* J */
    "0a0j 6a0f 2d6j",                         /* K */
    "0a0j5j",                                 /* L */
    "0j0a4f8a8j",                             /* M */
    "0j0a6j6a",                               /* N */
    "~3a1a0c0h1j3j5j6h6c5a3a",                /* O */
    "0j0a3a ~3a6b6d3f 3f0f",                  /* P */
    "~3a1a0c0h1j3j5j6h6c5a3a 4h6k",           /* Q */
    "0j0a3a ~3a6b6d3f 3f0f 3f6j",             /* R */
    "~6b4a2a0b0d3e6f6i4j2j0i",                /* S */
    "0a6a 3a3j",                              /* T */
    "0a0g ~0g1j3j5j6g 6g6a",                  /* U */
    "0a3j6a",                                 /* V */
    "0a2j4c6j8a",                             /* W */
    "0a6j 6a0j",                              /* X */
    "0a3e6a 3e3j",                            /* Y */
    "0a6a0j6j",                               /* Z */
    "2a0a0l2l",                               /* [ */
    "0a4l",                                   /* \ */
    "0a2a2l0l",                               /* ] */
    "0d2a4d",                                 /* ^ */
    "0l6l",                                   /* _ */
    "0a1b",                                   /* ` */
    "5d5j ~5f3d2d0f0h2j3j5h",                 /* a */
    "0a0j ~0f2d3d5f5h3j2j0h",                 /* b */
    "~5e3d2d0f0h2j3j5i",                      /* c */
    "5a5j ~5f3d2d0f0h2j3j5h",                 /* d */
    "0g5g ~5g5e3d2d0f0h2j4j5i",               /* e */
    "~4a3a2b2d 2d2j 0d4d",                    /* f */
    "5d5k ~5k4m1m0l ~5f3d2d0f0h2j3j5h",       /* g */
    "0a0j ~0f2d3d5f 5f5j",                    /* h */
    "0d0j 0a0b",                              /* i */
    "2d2k ~2k1m0m 2a2b",                      /* j */
    "0a0j 4d0g 1f5j",                         /* k */
    "0a0j",                                   /* l */
    "0d0j ~0f1d3d4f 4f4j ~4f5d7d8f 8f8j",     /* m */
    "0d0j ~0f2d3d5f 5f5j",                    /* n */
    "~2d0f0h2j3j5h5f3d2d",                    /* o */
    "0d0m ~0f2d3d5f5h3j2j0h",                 /* p */
    "5d5m ~5f3d2d0f0h2j3j5h",                 /* q */
    "0d0j ~0f2d4d",                           /* r */
    "~4e3d1d0e1g3g4h3j1j0i",                  /* s */
    "1b1h ~1h2j4j 0d4d",                      /* t */
    "0d0h ~0h2j3j5h 5d5j",                    /* u */
    "0d3j6d",                                 /* v */
    "0d2j4e6j8d",                             /* w */
    "0d5j 5d0j",                              /* x */
    "0d3j 6d2m",                              /* y */
    "0d5d0j5j",                               /* z */
    "~3a1b1e0f1g1k3l",                        /* { */
    "0a0l",                                   /* | */
    "~0a2b2e3f2g2k0l",                        /* } */
    "~0f1e2e4g5g6f",                          /* ~ */
};
static const char unknown[] = "0a0j5j5a0a", sharp_s[] = "~0j0c1a3a4c3e2e ~2e4f5h4j2j";

/* Base letters of U+00C0 to U+00FF, without accents. */
static const char plain[] = "AAAAAAACEEEEIIIIDNOOOOOxOUUUUYPsaaaaaaaceeeeiiiidnooooo/ouuuuypy";

enum { FOOT = 9, SPACE = 3, GAP = 3, STEPS = 6, MAX_POINTS = 32 };

/* The strokes of the character at *p; advances *p. */
static const char *letter(const char **p)
{
    unsigned char c = (unsigned char)*(*p)++;
    if (c >= ' ' && c <= '~') return letters[c - ' '];
    if (c == 0xc3 && (**p & 0xc0) == 0x80) {
        unsigned char low = (unsigned char)*(*p)++;
        return low == 0x9f ? sharp_s : letters[plain[low - 0x80] - ' '];
    }
    while ((**p & 0xc0) == 0x80) (*p)++;
    return unknown;
}

static int letter_width(const char *strokes)
{
    int widest = *strokes ? 0 : SPACE - GAP + 1;
    for (const char *s = strokes; *s; s++)
        if (*s >= '0' && *s <= '9' && *s - '0' > widest) widest = *s - '0';
    return widest;
}

static double unit_of(double size)
{
    return 0.72 * size / FOOT;
}

double aril__text_width(const char *text, double size)
{
    int width = 0;
    for (const char *p = text; *p;) width += letter_width(letter(&p)) + GAP;
    return width > GAP ? (width - GAP) * unit_of(size) : 0;
}

/* ---- pixels ---- */

typedef struct canvas {
    int64_t w, h;
    uint8_t *rgb;
    float *cover; /* coverage of the current shape */
} canvas;

static void blend(canvas *c, int64_t x, int64_t y, uint32_t color, float share)
{
    uint8_t *p = c->rgb + 3 * (y * c->w + x);
    for (int k = 0; k < 3; k++) {
        float to = (float)(color >> (16 - 8 * k) & 255);
        p[k] = (uint8_t)((float)p[k] + (to - (float)p[k]) * share + 0.5f);
    }
}

typedef struct box {
    int64_t x0, y0, x1, y1;
} box;

static box clip(const canvas *c, double x0, double y0, double x1, double y1)
{
    double w = (double)c->w, h = (double)c->h; /* clamp as doubles: coordinates may be infinite */
    box b = { (int64_t)fmin(w, fmax(0, floor(x0))), (int64_t)fmin(h, fmax(0, floor(y0))),
              (int64_t)fmax(0, fmin(w, ceil(x1))), (int64_t)fmax(0, fmin(h, ceil(y1))) };
    return b;
}

static float overlap(double a0, double a1, double b0, double b1)
{
    return (float)fmax(0, fmin(a1, b1) - fmax(a0, b0));
}

static void fill_rect(canvas *c, double x, double y, double w, double h, uint32_t color)
{
    box b = clip(c, x, y, x + w, y + h);
    for (int64_t j = b.y0; j < b.y1; j++)
        for (int64_t i = b.x0; i < b.x1; i++)
            blend(c, i, j, color,
                  overlap((double)i, (double)i + 1, x, x + w) *
                      overlap((double)j, (double)j + 1, y, y + h));
}

/* Adds the coverage of a segment from a to b of the given width. */
static void cover_segment(canvas *c, const double *a, const double *b, double width)
{
    double r = width / 2, dx = b[0] - a[0], dy = b[1] - a[1], length2 = dx * dx + dy * dy;
    box k = clip(c, fmin(a[0], b[0]) - r - 1, fmin(a[1], b[1]) - r - 1, fmax(a[0], b[0]) + r + 1,
                 fmax(a[1], b[1]) + r + 1);
    for (int64_t j = k.y0; j < k.y1; j++) {
        for (int64_t i = k.x0; i < k.x1; i++) {
            double px = (double)i + 0.5 - a[0], py = (double)j + 0.5 - a[1];
            double t = length2 > 0 ? fmin(1, fmax(0, (px * dx + py * dy) / length2)) : 0;
            double distance = hypot(px - t * dx, py - t * dy);
            float share = (float)fmin(1, fmax(0, r + 0.5 - distance));
            if (width < 1) share *= (float)width;
            float *at = &c->cover[j * c->w + i];
            if (share > *at) *at = share;
        }
    }
}

/* Blends the covered pixels of a box with the colour, and clears their coverage. */
static void paint(canvas *c, box b, uint32_t color)
{
    for (int64_t j = b.y0; j < b.y1; j++)
        for (int64_t i = b.x0; i < b.x1; i++) {
            float *at = &c->cover[j * c->w + i];
            if (*at > 0) blend(c, i, j, color, *at);
            *at = 0;
        }
}

static void stroke(canvas *c, int n, const double *xy, double scale, double width, uint32_t color)
{
    double x0 = INFINITY, y0 = INFINITY, x1 = -INFINITY, y1 = -INFINITY;
    double a[2] = { xy[0] * scale, xy[1] * scale };
    for (int i = 0; i < n; i++) {
        double b[2] = { xy[2 * i] * scale, xy[2 * i + 1] * scale };
        cover_segment(c, a, b, width * scale);
        memcpy(a, b, sizeof a);
        x0 = fmin(x0, b[0]), x1 = fmax(x1, b[0]), y0 = fmin(y0, b[1]), y1 = fmax(y1, b[1]);
    }
    double r = width * scale / 2 + 2;
    paint(c, clip(c, x0 - r, y0 - r, x1 + r, y1 + r), color);
}

/* A point on the Catmull-Rom spline through p, at t between point i and the next. */
static void curve_at(const double *p, int n, int i, double t, double *to)
{
    for (int k = 0; k < 2; k++) {
        double b = p[2 * i + k], c = p[2 * (i + 1) + k];
        double a = i > 0 ? p[2 * (i - 1) + k] : b, d = i + 2 < n ? p[2 * (i + 2) + k] : c;
        to[k] = b + 0.5 * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)));
    }
}

static void draw_stroke(canvas *c, int n, const double *p, bool curved, double scale, double width,
                        uint32_t color)
{
    double smooth[2 * MAX_POINTS * STEPS];
    if (!curved || n < 3) {
        stroke(c, n, p, scale, width, color);
        return;
    }
    int m = 0;
    for (int i = 0; i + 1 < n; i++)
        for (int k = 0; k < STEPS; k++) curve_at(p, n, i, (double)k / STEPS, smooth + 2 * m++);
    smooth[2 * m] = p[2 * (n - 1)];
    smooth[2 * m + 1] = p[2 * (n - 1) + 1];
    stroke(c, m + 1, smooth, scale, width, color);
}

static void draw_letter(canvas *c, const char *s, double x, double y, double unit, double scale,
                        double width, uint32_t color)
{
    while (*s) {
        double p[2 * MAX_POINTS];
        int n = 0;
        bool curved = *s == '~';
        for (s += curved; *s && *s != ' '; s += 2) {
            if (n == MAX_POINTS) continue;
            p[2 * n] = x + (s[0] - '0') * unit;
            p[2 * n++ + 1] = y + (s[1] - 'a' - FOOT) * unit;
        }
        if (n) draw_stroke(c, n, p, curved, scale, width, color);
        s += *s == ' ';
    }
}

static void draw_text(canvas *c, const aril__shape *s, double scale)
{
    double unit = unit_of(s->h), x = s->x;
    if (s->n >= 0) x -= aril__text_width(s->text, s->h) * (s->n ? 1 : 0.5);
    for (const char *p = s->text; *p;) {
        const char *strokes = letter(&p);
        draw_letter(c, strokes, x, s->y, unit, scale, s->h * 0.085, s->color);
        x += (letter_width(strokes) + GAP) * unit;
    }
}

static void draw_pixels(canvas *c, const aril__shape *s, double scale)
{
    box b = clip(c, s->x * scale, s->y * scale, (s->x + s->w) * scale, (s->y + s->h) * scale);
    for (int64_t j = b.y0; j < b.y1; j++) {
        for (int64_t i = b.x0; i < b.x1; i++) {
            int64_t px =
                (int64_t)(((double)i + 0.5 - s->x * scale) / (s->w * scale) * (double)s->pw);
            int64_t py =
                (int64_t)(((double)j + 0.5 - s->y * scale) / (s->h * scale) * (double)s->ph);
            if (px < 0 || py < 0 || px >= s->pw || py >= s->ph) continue;
            memcpy(c->rgb + 3 * (j * c->w + i), s->pixels + 3 * (py * s->pw + px), 3);
        }
    }
}

uint8_t *aril__drawing_raster(const aril__drawing *d, double scale, int64_t *width, int64_t *height)
{
    canvas c = { .w = (int64_t)ceil(d->width * scale), .h = (int64_t)ceil(d->height * scale) };
    size_t n = (size_t)(c.w * c.h);
    c.rgb = aril__malloc(3 * n + 1);
    c.cover = aril__calloc(n * sizeof *c.cover + 1);
    if (!c.rgb || !c.cover) {
        free(c.rgb);
        free(c.cover);
        return NULL;
    }
    memset(c.rgb, 255, 3 * n);
    for (size_t i = 0; i < d->n; i++) {
        const aril__shape *s = &d->at[i];
        if (s->kind == ARIL__RECT)
            fill_rect(&c, s->x * scale, s->y * scale, s->w * scale, s->h * scale, s->color);
        else if (s->kind == ARIL__LINE)
            stroke(&c, s->n, s->xy, scale, s->w, s->color);
        else if (s->kind == ARIL__TEXT)
            draw_text(&c, s, scale);
        else
            draw_pixels(&c, s, scale);
    }
    free(c.cover);
    *width = c.w;
    *height = c.h;
    return c.rgb;
}
