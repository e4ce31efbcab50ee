#include "train/progress.h"

#include "core/clock.h"
#include "core/units.h"
#include "train/terminal.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

enum { BAR_MAX = 30, BAR_MIN = 10, ITEMS_MAX = 64 };

/* ---- pieces of the line ---- */

/* Text with a column count: color sequences take no column, other characters one each. */
typedef struct line {
    char *buf;
    size_t size, used;
    int columns;
} line;

static void put(line *l, const char *text)
{
    for (const char *c = text; *c != '\0';) {
        size_t n = 1;
        bool color = *c == '\033';
        if (color)
            n = strcspn(c, "m") + 1;
        else
            while (((unsigned char)c[n] & 0xc0) == 0x80) n++;
        if (l->used + n >= l->size) return;
        memcpy(l->buf + l->used, c, n);
        l->used += n;
        l->columns += !color;
        c += n;
    }
}

static void finish(line *l)
{
    l->buf[l->used] = '\0';
}

__attribute__((format(printf, 2, 3))) static void putf(line *l, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    put(l, text);
}

static int columns_of(const char *text)
{
    int n = 0;
    for (; *text != '\0'; text++) n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static void time_text(char *buf, size_t size, double seconds)
{
    if (!(seconds < 359999)) seconds = 359999; /* the limit is 99:59:59, also for NaN */
    long s = lround(seconds);
    if (s >= 3600)
        snprintf(buf, size, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(buf, size, "%ld:%02ld", s / 60, s % 60);
}

static void rate_text(const aril__progress *p, char *buf, size_t size, double rate)
{
    const char *factor = "";
    if (p->bytes) {
        char bytes[32];
        snprintf(buf, size, "%s/s", aril__bytes_text(bytes, sizeof bytes, rate));
        return;
    }
    if (rate >= 999.5e3) {
        rate /= 1e6;
        factor = "M";
    } else if (rate >= 999.5) {
        rate /= 1e3;
        factor = "k";
    }
    char number[32];
    int digits = rate < 10 ? (*factor != '\0' || rate >= 1 ? 1 : 2)
                           : (*factor != '\0' && rate < 100 ? 1 : 0);
    aril__number_text(number, sizeof number, 'f', digits, rate);
    snprintf(buf, size, "%s%s %s", number, factor, p->unit);
}

static void bar(const aril__progress *p, line *l, int width, double share)
{
    if (!(share > 0)) share = 0;
    if (share > 1) share = 1;
    if (!p->utf8) {
        int inside = width - 2, full = (int)(share * inside);
        put(l, "[");
        for (int i = 0; i < inside; i++) put(l, i < full ? "=" : i == full ? ">" : ".");
        put(l, "]");
        return;
    }
    int full = (int)(share * width);
    if (p->color) put(l, full == width ? "\033[32m" : "\033[36m");
    for (int i = 0; i < full; i++) put(l, "━");
    if (p->color) put(l, "\033[0m\033[2m");
    for (int i = full; i < width; i++) put(l, "─");
    if (p->color) put(l, "\033[0m");
}

/* ---- layout of the line ---- */

typedef struct layout {
    int bar; /* its width; 0: none */
    bool count, rate, time;
    int items;
} layout;

typedef struct pieces {
    char count[64], rate[64], time[48];
    int n;
    char item[ITEMS_MAX][80];
} pieces;

static int width_of(const aril__progress *p, const pieces *t, const layout *how)
{
    int w = columns_of(p->title);
    if (how->bar > 0) w += 2 + how->bar;
    if (how->count) w += (how->bar > 0 ? 1 : 2) + columns_of(t->count);
    if (how->rate) w += 2 + columns_of(t->rate);
    if (how->time) w += 2 + columns_of(t->time);
    for (int i = 0; i < how->items; i++) w += 2 + columns_of(t->item[i]);
    if (how->items < t->n) w += p->utf8 ? 2 : 4; /* " …" */
    return w;
}

/* Drops the least important pieces until the line fits: shrinks the bar, then drops trailing
 * metrics (while an epoch runs; at its end they matter most), the rate, the bar, the rest. */
static layout choose(const aril__progress *p, const pieces *t, bool finished, int width)
{
    layout how = { .bar = p->total > 0 && p->mode == ARIL__PROGRESS_BAR ? BAR_MAX : 0,
                   .count = true,
                   .rate = t->rate[0] != '\0',
                   .time = t->time[0] != '\0',
                   .items = t->n };
    int dear = finished || t->n < 2 ? t->n : 2;
    if (width <= 0) return how;
    int over = width_of(p, t, &how) - width;
    if (over <= 0) return how;
    if (how.bar > 0) {
        how.bar = how.bar - over > BAR_MIN ? how.bar - over : BAR_MIN;
        if (width_of(p, t, &how) <= width) return how;
    }
    while (how.items > dear) {
        how.items--;
        if (width_of(p, t, &how) <= width) goto widen;
    }
    how.rate = false;
    if (width_of(p, t, &how) <= width) goto widen;
    how.bar = 0;
    if (width_of(p, t, &how) <= width) return how;
    if (finished) {
        how.count = false;
        if (width_of(p, t, &how) <= width) return how;
        how.time = false;
        if (width_of(p, t, &how) <= width) return how;
    }
    while (how.items > 1) {
        how.items--;
        if (width_of(p, t, &how) <= width) return how;
    }
    how.time = false;
    if (width_of(p, t, &how) <= width) return how;
    how.count = finished ? false : how.count;
    return how;

widen: /* give the space of dropped pieces to the bar */
    over = width - width_of(p, t, &how);
    if (how.bar > 0) how.bar = how.bar + over < BAR_MAX ? how.bar + over : BAR_MAX;
    return how;
}

static void cut(line *l, int width)
{
    int columns = 0;
    for (size_t i = 0; i < l->used; i++) {
        if (l->buf[i] == '\033') { /* color sequences take no column; the kept text must end them */
            while (i < l->used && l->buf[i] != 'm') i++;
            continue;
        }
        if (((unsigned char)l->buf[i] & 0xc0) == 0x80) continue;
        if (columns++ == width) {
            l->used = i;
            l->columns = width;
            return;
        }
    }
}

static void make_pieces(const aril__progress *p, const aril__progress_at *at, double seconds,
                        bool finished, pieces *t)
{
    char text[32], total[32];
    *t = (pieces){ 0 };
    if (p->bytes)
        snprintf(t->count, sizeof t->count, "%s%s%s",
                 aril__bytes_text(text, sizeof text, (double)at->batch), p->total > 0 ? "/" : "",
                 p->total > 0 ? aril__bytes_text(total, sizeof total, (double)p->total) : "");
    else if (p->total > 0)
        snprintf(t->count, sizeof t->count, "%lld/%lld", (long long)at->batch, (long long)p->total);
    else
        snprintf(t->count, sizeof t->count, "%lld batches", (long long)at->batch);
    int64_t batches = at->batch - p->skipped, samples = at->samples - p->skipped_samples;
    if (samples > 0 && seconds > 0)
        rate_text(p, t->rate, sizeof t->rate, (double)samples / seconds);
    if (finished || p->total <= 0) {
        bool tenths = seconds < 9.95;
        if (tenths)
            aril__number_text(text, sizeof text, 'f', 1, seconds);
        else
            time_text(text, sizeof text, seconds);
        snprintf(t->time, sizeof t->time, "took %s%s", text, tenths ? "s" : "");
    } else if (batches > 0) {
        time_text(text, sizeof text, seconds * (double)(p->total - at->batch) / (double)batches);
        snprintf(t->time, sizeof t->time, "eta %s", text);
    }
    for (int i = 0; i < at->n && t->n < ITEMS_MAX; i++) {
        aril__value_text(text, sizeof text, at->value[i]);
        snprintf(t->item[t->n++], sizeof t->item[0], "%.40s %s", at->name[i], text);
    }
    if (at->note != NULL && t->n < ITEMS_MAX)
        snprintf(t->item[t->n++], sizeof t->item[0], "%.60s", at->note);
}

/* One line; true when all values are in it. */
static bool put_line(const aril__progress *p, const pieces *t, double share, bool finished,
                     int width, line *l)
{
    layout how = choose(p, t, finished, width);
    put(l, p->title);
    if (how.bar > 0) {
        put(l, "  ");
        bar(p, l, how.bar, share);
    }
    if (how.count) putf(l, "%s%s", how.bar > 0 ? " " : "  ", t->count);
    if (how.rate) putf(l, "  %s", t->rate);
    if (how.time) putf(l, "  %s", t->time);
    for (int i = 0; i < how.items; i++) putf(l, "  %s", t->item[i]);
    if (how.items < t->n) put(l, p->utf8 ? " …" : " ...");
    bool complete = how.items == t->n && (width <= 0 || l->columns <= width);
    if (width > 0 && l->columns > width) cut(l, width);
    return complete;
}

static double share_of(const aril__progress *p, const aril__progress_at *at)
{
    return (double)at->batch / (double)p->total;
}

int aril__progress_line(const aril__progress *p, const aril__progress_at *at, double seconds,
                        bool finished, int width, char *buf, size_t size)
{
    pieces t;
    line l = { .buf = buf, .size = size };
    make_pieces(p, at, seconds, finished, &t);
    put_line(p, &t, share_of(p, at), finished, width, &l);
    finish(&l);
    return l.columns;
}

/* Values [from, to) on separate, indented lines. */
static void put_values(const pieces *t, int from, int to, int width, line *l)
{
    int column = width; /* full: the first value starts a line */
    for (int i = from; i < to; i++) {
        int n = 2 + columns_of(t->item[i]);
        size_t begin = l->used;
        if (column + n > width) put(l, "\n"), begin++, column = 0;
        putf(l, "  %s", t->item[i]);
        if (n > width) { /* wider than the terminal on its own */
            line one = { .buf = l->buf + begin, .used = l->used - begin };
            cut(&one, width);
            l->used = begin + one.used;
        }
        column += n;
    }
}

void aril__progress_result(const aril__progress *p, const aril__progress_at *at, double seconds,
                           int width, char *buf, size_t size)
{
    pieces t;
    line l = { .buf = buf, .size = size };
    make_pieces(p, at, seconds, true, &t);
    int n = t.n, val = 0;
    while (val < at->n && strncmp(at->name[val], "val_", 4) != 0) val++;
    if (val == at->n) val = n;
    if (!put_line(p, &t, share_of(p, at), true, width, &l)) {
        /* Use as many lines as needed: training values on the first if they fit, validation
         * below. */
        l.used = 0, l.columns = 0;
        t.n = val;
        if (val == n || !put_line(p, &t, share_of(p, at), true, width, &l)) {
            l.used = 0, l.columns = 0;
            t.n = 0;
            put_line(p, &t, share_of(p, at), true, width, &l);
            put_values(&t, 0, val, width, &l);
        }
        put_values(&t, val, n, width, &l);
    }
    finish(&l);
}

/* ---- drawing ---- */

void aril__progress_start(aril__progress *p, FILE *to, int verbose, bool images)
{
    *p = (aril__progress){ .to = to != NULL ? to : stdout };
    p->unit = images ? "img/s" : "samples/s";
    if (verbose == ARIL_ZERO || verbose < 0) return;
    bool terminal = aril__is_terminal(p->to);
    p->mode = terminal && verbose < 2 ? ARIL__PROGRESS_BAR : ARIL__PROGRESS_LINES;
    p->utf8 = aril__utf8_locale();
    p->color = p->mode == ARIL__PROGRESS_BAR && aril__wants_color(p->to);
}

void aril__progress_begin(aril__progress *p, const char *title, int64_t total, int64_t batch,
                          int64_t samples)
{
    snprintf(p->title, sizeof p->title, "%s", title);
    p->total = total;
    p->skipped = batch;
    p->skipped_samples = samples;
    p->started = aril__seconds();
    p->next = p->started; /* immediately: shows that a slow first batch has started */
    p->open = false;
}

bool aril__progress_due(aril__progress *p)
{
    if (p->mode != ARIL__PROGRESS_BAR) return false;
    p->asked = aril__seconds();
    return p->asked >= p->next;
}

/* Leaves the cursor in the first column: when a narrower terminal wraps the line, the cursor is
 * still before all of it, and everything after it can be cleared. */
static void show(aril__progress *p, const aril__progress_at *at, double seconds, bool finished)
{
    char text[4096];
    int width = aril__terminal_width(p->to);
    if (width <= 0) width = 80;
    const char *clear = p->open && width != p->width ? "\033[J" : "";
    if (finished)
        aril__progress_result(p, at, seconds, width - 1, text, sizeof text);
    else
        aril__progress_line(p, at, seconds, false, width - 1, text, sizeof text);
    size_t first = strcspn(text, "\n"); /* only the first line overwrites an older one */
    fprintf(p->to, "\r%s%.*s\033[K%s%s", clear, (int)first, text, text + first,
            finished ? "\n" : "\r");
    fflush(p->to);
    p->width = width;
    p->open = !finished;
}

void aril__progress_draw(aril__progress *p, const aril__progress_at *at)
{
    if (p->mode != ARIL__PROGRESS_BAR) return;
    show(p, at, p->asked - p->started, false);
    /* At most ten times a second, and at most 1% of the time, including the computation of
     * values. */
    double after = aril__seconds(), pause = 100 * (after - p->asked);
    p->next = after + (pause > 0.1 ? pause : 0.1);
}

void aril__progress_end(aril__progress *p, const aril__progress_at *at, double seconds)
{
    if (p->mode == ARIL__PROGRESS_BAR) show(p, at, seconds, true);
    if (p->mode == ARIL__PROGRESS_LINES) {
        char text[4096];
        aril__progress_line(p, at, seconds, true, 0, text, sizeof text);
        fprintf(p->to, "%s\n", text);
        fflush(p->to);
    }
}

void aril__progress_break(aril__progress *p)
{
    if (!p->open) return;
    fputc('\n', p->to);
    fflush(p->to);
    p->open = false;
}

void aril__progress_note(aril__progress *p, const char *format, ...)
{
    if (p->mode == ARIL__PROGRESS_NONE) return;
    aril__progress_break(p);
    va_list args;
    va_start(args, format);
    vfprintf(p->to, format, args);
    va_end(args);
    fputc('\n', p->to);
    fflush(p->to);
}
