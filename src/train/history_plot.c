/* Plots of a history in text: Braille dots when the locale supports them, otherwise letters. */
#include "aril/history.h"
#include "core/error.h"
#include "core/memory.h"
#include "train/history.h"
#include "train/terminal.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A grid of dots: each character holds `across` x `down` dots. */
typedef struct grid {
    int width, height; /* in characters */
    int across, down;
    unsigned char *dot; /* [height * down][width * across]: a bit for each curve */
} grid;

static void set_dot(grid *g, int x, int y, int curve)
{
    if (x < 0 || y < 0 || x >= g->width * g->across || y >= g->height * g->down) return;
    g->dot[y * g->width * g->across + x] |= (unsigned char)(1 << curve);
}

/* A line of dots; the second curve gets every other dot. */
static void stroke(grid *g, double x0, double y0, double x1, double y1, int curve)
{
    int n = (int)fmax(fabs(x1 - x0), fabs(y1 - y0)) + 1;
    for (int i = 0; i <= n; i++) {
        double s = (double)i / n;
        int x = (int)lround(x0 + s * (x1 - x0)), y = (int)lround(y0 + s * (y1 - y0));
        if (curve == 0 || (x + y) % 2 == 0) set_dot(g, x, y, curve);
    }
}

static void trace(grid *g, const double *v, int n, double low, double high, int curve)
{
    double last_x = 0, last_y = 0;
    bool has_last = false;
    double right = g->width * g->across - 1, bottom = g->height * g->down - 1;
    for (int i = 0; i < n; i++) {
        if (!isfinite(v[i])) {
            has_last = false;
            continue;
        }
        double x = n > 1 ? right * i / (n - 1) : right / 2;
        double y = bottom * ((high / 2 - v[i] / 2) / (high / 2 - low / 2)); /* no overflow */
        if (has_last) stroke(g, last_x, last_y, x, y, curve);
        set_dot(g, (int)lround(x), (int)lround(y), curve);
        last_x = x;
        last_y = y;
        has_last = true;
    }
}

/* The character of a cell; returns which curves pass through it. */
static int glyph(const grid *g, int column, int row, char *text)
{
    static const int bit[4][2] = { { 0, 3 }, { 1, 4 }, { 2, 5 }, { 6, 7 } }; /* Braille bits */
    int curves = 0, dots = 0;
    for (int y = 0; y < g->down; y++)
        for (int x = 0; x < g->across; x++) {
            int d = g->dot[(row * g->down + y) * g->width * g->across + column * g->across + x];
            curves |= d;
            if (d != 0 && g->down == 4) dots |= 1 << bit[y][x];
        }
    if (g->down == 1) {
        text[0] = " *o#"[curves & 3];
        text[1] = '\0';
    } else if (dots == 0) {
        text[0] = ' ';
        text[1] = '\0';
    } else { /* U+2800 + dots */
        text[0] = (char)0xe2;
        text[1] = (char)(0xa0 | dots >> 6);
        text[2] = (char)(0x80 | (dots & 0x3f));
        text[3] = '\0';
    }
    return curves;
}

static void paint(const grid *g, FILE *to, int row, bool color)
{
    int last = g->width;
    char text[8];
    while (last > 0 && glyph(g, last - 1, row, text) == 0) last--;
    for (int i = 0; i < last; i++) {
        int curves = glyph(g, i, row, text);
        if (color && curves != 0)
            fprintf(to, "\033[%dm%s\033[0m", curves == 1 ? 36 : curves == 2 ? 33 : 37, text);
        else
            fputs(text, to);
    }
}

aril_status aril_history_plot(const aril_history *h, FILE *to, aril_plot_opts opts)
{
    if (h == NULL || to == NULL)
        return aril__fail(ARIL_ERR_ARG, "expected %s, got NULL",
                          h == NULL ? "a history" : "a file");
    const char *name = opts.name != NULL ? opts.name : "loss";
    int column = aril__history_find(h, name);
    if (column < 0) return aril__fail(ARIL_ERR_ARG, "the history has no '%s'", name);
    char val[128];
    snprintf(val, sizeof val, "val_%s", name);
    int other = aril__history_find(h, val);

    const double *curve[2] = { h->value[column], other >= 0 ? h->value[other] : NULL };
    double low = INFINITY, high = -INFINITY;
    for (int c = 0; c < 2; c++)
        for (int i = 0; curve[c] != NULL && i < h->rows; i++) {
            if (!isfinite(curve[c][i])) continue;
            low = fmin(low, curve[c][i]);
            high = fmax(high, curve[c][i]);
        }
    if (low > high) return aril__fail(ARIL_ERR_STATE, "'%s' has no values to draw", name);
    if (low == high) {
        double pad = low != 0 ? fabs(low) * 0.1 : 1;
        low = fmax(low - pad, -DBL_MAX);
        high = fmin(high + pad, DBL_MAX);
    }

    bool utf8 = !opts.ascii && aril__utf8_locale(), color = aril__wants_color(to);
    int width = opts.width > 0 ? opts.width : aril__terminal_width(to);
    if (width <= 0) width = 72;
    if (opts.width <= 0 && width > 100) width = 100;
    int height = opts.height > 0 ? opts.height : 12;
    if (height > 1000) height = 1000;
    char top[32], bottom[32], middle[32];
    aril__value_text(top, sizeof top, high);
    aril__value_text(middle, sizeof middle, low / 2 + high / 2);
    aril__value_text(bottom, sizeof bottom, low);
    int labels = (int)strlen(top);
    if ((int)strlen(bottom) > labels) labels = (int)strlen(bottom);
    if ((int)strlen(middle) > labels) labels = (int)strlen(middle);
    grid g = {
        .width = width - labels - 3, .height = height, .across = utf8 ? 2 : 1, .down = utf8 ? 4 : 1
    };
    if (g.width < 8) g.width = 8;
    if (g.width > 4096) g.width = 4096;
    g.dot = aril__calloc((size_t)(g.width * g.across) * (size_t)(g.height * g.down));
    if (g.dot == NULL) return aril__fail(ARIL_ERR_MEMORY, "out of memory for a plot");
    for (int c = 1; c >= 0; c--)
        if (curve[c] != NULL) trace(&g, curve[c], h->rows, low, high, c);

    for (int row = 0; row < height; row++) {
        const char *label = row == 0            ? top
                            : row == height - 1 ? bottom
                            : row == height / 2 ? middle
                                                : "";
        const char *edge = utf8 ? (*label != '\0' ? "┤" : "│") : (*label != '\0' ? "+" : "|");
        fprintf(to, "%*s %s", labels, label, edge);
        paint(&g, to, row, color);
        fputc('\n', to);
    }
    fprintf(to, "%*s %s", labels, "", utf8 ? "└" : "+");
    for (int i = 0; i < g.width; i++) fputs(utf8 ? "─" : "-", to);
    char first[16], last[16];
    snprintf(first, sizeof first, "%d", h->epoch[0] + 1);
    snprintf(last, sizeof last, "%d", h->epoch[h->rows - 1] + 1);
    fprintf(to, "\n%*s  %s%*s\n", labels, "", first, g.width - (int)strlen(first),
            h->rows > 1 ? last : "");
    if (color)
        fprintf(to, "%*s  \033[36m%s %s\033[0m", labels, "", utf8 ? "━━" : "**", name);
    else
        fprintf(to, "%*s  %s %s", labels, "", utf8 ? "━━" : "**", name);
    if (curve[1] != NULL)
        fprintf(to, color ? "   \033[33m%s %s\033[0m" : "   %s %s", utf8 ? "╌╌" : "oo", val);
    fputs("   by epoch\n", to);
    free(g.dot);
    return ferror(to) ? aril__fail(ARIL_ERR_IO, "cannot write the plot") : ARIL_OK;
}
