/* The summary table of a module, in Keras's format. */
#include "aril/summary.h"

#include "aril/create.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "core/units.h"
#include "nn/cost.h"
#include "nn/module.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { COLUMNS = 4, TEXT = 192, MIN_NAME = 16, PLAIN_WIDTH = 100 };

typedef struct line {
    char text[COLUMNS][TEXT];
} line;

/* The characters that draw a box. */
typedef struct box {
    const char *thick, *thin, *side, *thick_side, *cut;
    const char *top[3], *head[3], *foot[3]; /* left, between columns, right */
} box;

static const box utf8_box = { .thick = "━",
                              .thin = "─",
                              .side = "│",
                              .thick_side = "┃",
                              .cut = "…",
                              .top = { "┏", "┳", "┓" },
                              .head = { "┡", "╇", "┩" },
                              .foot = { "└", "┴", "┘" } };
static const box ascii_box = { .thick = "=",
                               .thin = "-",
                               .side = "|",
                               .thick_side = "|",
                               .cut = "~",
                               .top = { "+", "+", "+" },
                               .head = { "+", "+", "+" },
                               .foot = { "+", "+", "+" } };

/* ---- numbers ---- */

/* 1199882 as "1,199,882". */
static char *commas(char *text, size_t size, int64_t n)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%" PRId64, n);
    size_t length = strlen(digits), at = 0;
    for (size_t i = 0; i < length && at + 2 < size; i++) {
        if (i > 0 && (length - i) % 3 == 0) text[at++] = ',';
        text[at++] = digits[i];
    }
    text[at] = 0;
    return text;
}

/* [32,10] with a batch of 32 as "(None, 10)". */
static void shape_text(char *text, size_t size, aril_shape s, int64_t batch)
{
    size_t n = (size_t)snprintf(text, size, "(");
    for (int i = 0; i < s.ndim && n < size; i++) {
        const char *between = i ? ", " : "";
        int k = i == 0 && s.dim[0] == batch
                    ? snprintf(text + n, size - n, "None")
                    : snprintf(text + n, size - n, "%s%" PRId64, between, s.dim[i]);
        n += k > 0 ? (size_t)k : 0;
    }
    if (n < size) snprintf(text + n, size - n, s.ndim == 1 ? ",)" : ")");
}

/* ---- lines ---- */

static bool has_children(const aril__costs *c, int i)
{
    return i + 1 < c->n && c->row[i + 1].depth > c->row[i].depth;
}

/* The line of row i; when its children are not shown, their costs are added to it. */
static void fill_line(const aril__costs *c, int i, int depth, line *l)
{
    const aril__cost_row *row = &c->row[i];
    double flop = row->flop;
    int64_t parameters = row->parameters;
    bool holds = has_children(c, i), shown = holds && row->depth < depth;
    for (int k = i + 1; holds && !shown && k < c->n && c->row[k].depth > row->depth; k++) {
        parameters += c->row[k].parameters;
        flop += c->row[k].flop;
    }
    memset(l, 0, sizeof *l);
    int indent = row->depth > 1 ? 2 * (row->depth - 1) : 0;
    if (row->depth == 0)
        snprintf(l->text[0], TEXT, "(%s)", row->name);
    else
        snprintf(l->text[0], TEXT, "%*s%s (%s)", indent, "", row->name,
                 aril_module_type(row->module));
    const aril__cost_row *seen = row->first >= 0 ? &c->row[row->first] : row;
    if (seen->ran)
        shape_text(l->text[1], TEXT, seen->out, c->batch);
    else
        snprintf(l->text[1], TEXT, "-");
    if (row->first >= 0) {
        snprintf(l->text[2], TEXT, "shared");
        return;
    }
    if (parameters || !shown) commas(l->text[2], TEXT, parameters);
    double n = c->batch > 0 ? (double)c->batch : 1;
    if (flop > 0 || !shown) aril__count_text(l->text[3], TEXT, flop / n);
}

/* Whether a row gets a line. Not the root, which is in the title, unless it has costs of its own;
 * no row deeper than requested, and no row below a module that was already shown. */
static bool is_shown(const aril__costs *c, int i, int depth)
{
    const aril__cost_row *row = &c->row[i];
    if (row->depth == 0) return c->n == 1 || row->parameters > 0 || row->flop > 0;
    if (row->depth > depth) return false;
    int below = row->depth;
    for (int k = i - 1; k >= 0 && below > 1; k--) {
        if (c->row[k].depth >= below) continue;
        below = c->row[k].depth;
        if (c->row[k].first >= 0) return false;
    }
    return true;
}

/* ---- drawing ---- */

static void rule(FILE *to, const int *width, const char *const *joints, const char *piece)
{
    for (int k = 0; k < COLUMNS; k++) {
        fputs(joints[k ? 1 : 0], to);
        for (int i = 0; i < width[k] + 2; i++) fputs(piece, to);
    }
    fprintf(to, "%s\n", joints[2]);
}

static void draw_line(FILE *to, const int *width, const line *l, const char *side, const box *b)
{
    for (int k = 0; k < COLUMNS; k++) {
        const char *text = l->text[k];
        int n = (int)strlen(text), columns = width[k];
        bool cut = n > columns;
        fprintf(to, "%s ", side);
        if (k >= 2 && !cut) fprintf(to, "%*s", columns - n, "");
        fprintf(to, "%.*s%s", cut ? columns - 1 : n, text, cut ? b->cut : "");
        if (k < 2 && !cut) fprintf(to, "%*s", columns - n, "");
        fputs(" ", to);
    }
    fprintf(to, "%s\n", side);
}

/* Fits the columns to the texts, within `most` as far as long names and shapes can be truncated. */
static void fit(int *width, const line *lines, int n, int max)
{
    int all = 3 * COLUMNS + 1;
    for (int k = 0; k < COLUMNS; k++) {
        width[k] = 0;
        for (int i = 0; i < n; i++) {
            int length = (int)strlen(lines[i].text[k]);
            if (length > width[k]) width[k] = length;
        }
        all += width[k];
    }
    for (int k = 0; k < 2 && all > max; k++) {
        int less = all - max, spare = width[k] - MIN_NAME;
        if (spare < 0) spare = 0;
        if (less > spare) less = spare;
        width[k] -= less;
        all -= less;
    }
}

static bool is_utf8(void)
{
    static const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };
    for (int i = 0; i < 3; i++) {
        const char *v = getenv(names[i]);
        if (v && *v) return strstr(v, "UTF-8") || strstr(v, "utf8") || strstr(v, "UTF8");
    }
    return false;
}

static int width_of(FILE *to)
{
    struct winsize size;
    int fd = fileno(to);
    if (fd >= 0 && isatty(fd) && ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return PLAIN_WIDTH;
}

static void draw_totals(const aril_cost *t, int64_t batch, FILE *to)
{
    const struct {
        const char *name;
        int64_t n;
        double bytes;
    } counts[] = {
        { "Total params", t->parameters, t->parameter_bytes },
        { "Trainable params", t->trainable, t->trainable_bytes },
        { "Non-trainable params", t->parameters - t->trainable,
          t->parameter_bytes - t->trainable_bytes },
        { "Buffers", t->buffers, t->buffer_bytes },
    };
    char a[32], b[32];
    for (int i = 0; i < 4; i++)
        if (i < 3 || counts[i].n > 0)
            fprintf(to, " %s: %s (%s)\n", counts[i].name, commas(a, sizeof a, counts[i].n),
                    aril__bytes_text(b, sizeof b, counts[i].bytes));
    fprintf(to, " FLOPs of a forward pass, batch of 1: %s\n",
            aril__count_text(a, sizeof a, t->flop));
    fprintf(to, " Memory to train a batch of %" PRId64 ": %s (activations %s)\n", batch,
            aril__bytes_text(a, sizeof a, aril_cost_training(t, batch)),
            aril__bytes_text(b, sizeof b, (double)batch * t->activation_bytes));
}

static aril_status draw(const aril__costs *c, FILE *to, aril_summary_opts opts)
{
    static const line head = { { "Layer (type)", "Output Shape", "Param #", "FLOPs" } };
    const box *b = !opts.ascii && is_utf8() ? &utf8_box : &ascii_box;
    int depth = opts.depth > 0 ? opts.depth : INT32_MAX, n = 1, width[COLUMNS];
    line *lines = aril__malloc(((size_t)c->n + 1) * sizeof *lines);
    if (!lines) return aril__fail(ARIL_ERR_MEMORY, "summary: out of memory");
    lines[0] = head;
    for (int i = 0; i < c->n; i++)
        if (is_shown(c, i, depth)) fill_line(c, i, depth, &lines[n++]);
    fit(width, lines, n, opts.width > 0 ? opts.width : width_of(to));
    fprintf(to, "Model: \"%s\"\n", c->row[0].name);
    rule(to, width, b->top, b->thick);
    draw_line(to, width, &lines[0], b->thick_side, b);
    rule(to, width, b->head, b->thick);
    for (int i = 1; i < n; i++) draw_line(to, width, &lines[i], b->side, b);
    rule(to, width, b->foot, b->thin);
    draw_totals(&c->total, opts.batch > 0 ? opts.batch : 32, to);
    free(lines);
    return ferror(to) ? aril__fail(ARIL_ERR_IO, "summary: cannot write") : ARIL_OK;
}

/* ---- public functions ---- */

static aril_status check(FILE *to, const aril_summary_opts *opts)
{
    if (to && opts->batch >= 0 && opts->width >= 0 && opts->depth >= 0) return ARIL_OK;
    return aril__fail(ARIL_ERR_ARG,
                      to ? "summary: batch %lld, width %d, depth %d; expected 0 (default) or more"
                         : "summary: the file is NULL",
                      (long long)opts->batch, opts->width, opts->depth);
}

aril_status aril_summary_n(aril_module *m, aril_list in, FILE *to, aril_summary_opts opts)
{
    aril_status s = check(to, &opts);
    if (s < 0) return s;
    aril__costs c;
    s = aril__costs_measure(m, in, &c);
    if (s == ARIL_OK) s = draw(&c, to, opts);
    aril__costs_free(&c);
    return s;
}

aril_status aril__summary_sketch(aril_module *m, aril_shape input, FILE *to, aril_summary_opts opts,
                                 bool *guessed)
{
    *guessed = false;
    aril_status s = check(to, &opts);
    if (s < 0) return s;
    aril__costs c;
    s = aril__costs_sketch(m, input, opts.dtype ? opts.dtype : m->dtype, &c);
    *guessed = s == ARIL_OK && c.guessed;
    if (s == ARIL_OK && !c.guessed) s = draw(&c, to, opts);
    aril__costs_free(&c);
    return s;
}

aril_status aril_summary_with(aril_module *m, aril_shape x, FILE *to, aril_summary_opts opts)
{
    if (!m)
        return aril_ok() ? aril__fail(ARIL_ERR_ARG, "summary: the module is NULL")
                         : aril_error_code();
    if (x.ndim < 0 || x.ndim >= ARIL_MAX_DIMS)
        return aril__fail(ARIL_ERR_SHAPE, "summary: %d dimensions without the batch", x.ndim);
    aril_shape one = { .ndim = x.ndim + 1, .dim = { 1 } };
    memcpy(one.dim + 1, x.dim, (size_t)x.ndim * sizeof *x.dim);
    ARIL_SCOPE;
    aril_tensor *zeros =
        aril_zeros(one, opts.dtype ? opts.dtype : m->dtype, aril__module_device(m));
    return aril_summary_n(m, (aril_list){ 1, &zeros }, to, opts);
}

aril_status aril_summary(aril_module *m, aril_shape x, FILE *to)
{
    return aril_summary_with(m, x, to, (aril_summary_opts){ 0 });
}
