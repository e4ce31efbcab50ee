/* Tensors as text, in PyTorch's layout: numbers of one width, at most 80 columns, only the edges of
 * large tensors, and a suffix for non-default properties. */
#include "aril/create.h"
#include "core/sizes.h"
#include "core/tensor.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

enum { PRECISION = 4, THRESHOLD = 1000, EDGE = 3, LINE = 80 };

/* Where the text goes: a file, or a buffer that may be too small. */
typedef struct sink {
    FILE *file;
    char *buf;
    size_t size, length; /* of the buffer, of the text so far */
    size_t column;       /* characters since the last newline */
} sink;

static void emit(sink *s, const char *text, size_t n)
{
    if (s->file) fwrite(text, 1, n, s->file);
    for (size_t i = 0; i < n; i++) {
        if (!s->file && s->length + i + 1 < s->size) s->buf[s->length + i] = text[i];
        s->column = text[i] == '\n' ? 0 : s->column + 1;
    }
    s->length += n;
}

static void put(sink *s, const char *text)
{
    emit(s, text, strlen(text));
}

static void spaces(sink *s, int n)
{
    for (int i = 0; i < n; i++) emit(s, " ", 1);
}

/* ---- one number ---- */

enum { NUMBER = 64 }; /* bytes of text per number: below 1e8, or in scientific notation */

typedef struct style {
    bool real, integral, scientific;
    int width;
} style;

static bool is_real(const aril_tensor *t)
{
    return aril__is_float((aril_dtype)t->dtype);
}

static double load_real(const aril_tensor *t, int64_t offset)
{
    double v;
    aril__dtypes[t->dtype].load[ARIL__C_F64](&v, aril__base(t), offset, 1, 1);
    return v;
}

/* Returns the length. */
static int real_text(char text[NUMBER], const style *y, double v)
{
    if (isnan(v)) return snprintf(text, NUMBER, "nan");
    if (isinf(v)) return snprintf(text, NUMBER, v < 0 ? "-inf" : "inf");
    int n = y->scientific ? snprintf(text, NUMBER, "%.*e", PRECISION, v)
            : y->integral ? snprintf(text, NUMBER, "%.0f.", v)
                          : snprintf(text, NUMBER, "%.*f", PRECISION, v);
    for (int i = 0; i < n; i++) /* some locales use another decimal point */
        if (!strchr("0123456789+-e", text[i])) text[i] = '.';
    return n;
}

static int number_text(char text[NUMBER], const style *y, const aril_tensor *t, int64_t offset)
{
    if (y->real) return real_text(text, y, load_real(t, offset));
    if (t->dtype == ARIL_U64) {
        uint64_t v;
        aril__dtypes[t->dtype].load[ARIL__C_U64](&v, aril__base(t), offset, 1, 1);
        return snprintf(text, NUMBER, "%llu", (unsigned long long)v);
    }
    int64_t v;
    aril__dtypes[t->dtype].load[ARIL__C_I64](&v, aril__base(t), offset, 1, 1);
    return t->dtype == ARIL_BOOL ? snprintf(text, NUMBER, v ? "True" : "False")
                                 : snprintf(text, NUMBER, "%lld", (long long)v);
}

/* ---- the common format of all numbers shown ---- */

typedef struct survey {
    style y;
    bool measuring; /* the second pass: widths, once the format is decided */
    double min, max;
    bool any;
} survey;

static void look_at(survey *s, const aril_tensor *t, int64_t offset)
{
    char text[NUMBER];
    if (s->y.real) {
        double v = load_real(t, offset), size = fabs(v);
        if (!isfinite(v) || v == 0) return; /* not measured: padded to the width of the others */
        if (!s->measuring) {
            s->min = s->any && s->min < size ? s->min : size;
            s->max = s->any && s->max > size ? s->max : size;
            s->any = true;
            s->y.integral = s->y.integral && v == ceil(v);
            return;
        }
    }
    int n = number_text(text, &s->y, t, offset);
    if (n > s->y.width) s->y.width = n;
}

static bool is_cut(bool summarised, int64_t n)
{
    return summarised && n > 2 * EDGE;
}

static void walk(survey *s, const aril_tensor *t, int d, int64_t offset, bool summarised)
{
    if (d == t->ndim) {
        look_at(s, t, offset);
        return;
    }
    int64_t n = t->dim[d];
    for (int64_t i = 0; i < n; i++) {
        if (is_cut(summarised, n) && i == EDGE) i = n - EDGE;
        walk(s, t, d + 1, offset + i * t->stride[d], summarised);
    }
}

static style style_of(const aril_tensor *t, bool summarised)
{
    survey s = { .y = { .real = is_real(t), .integral = true, .width = 1 } };
    if (s.y.real) {
        walk(&s, t, 0, t->offset, summarised);
        s.y.scientific = s.any && (s.max / s.min > 1000.0 || s.max > 1.0e8 || s.min < 1.0e-4);
    }
    s.measuring = true;
    walk(&s, t, 0, t->offset, summarised);
    return s.y;
}

/* ---- all numbers ---- */

static void number(sink *s, const style *y, const aril_tensor *t, int64_t offset)
{
    char text[NUMBER];
    int n = number_text(text, y, t, offset);
    spaces(s, y->width - n);
    emit(s, text, (size_t)n);
}

static void numbers(sink *s, const style *y, const aril_tensor *t, int d, int64_t offset,
                    int indent, bool summarised)
{
    if (d == t->ndim) {
        number(s, y, t, offset);
        return;
    }
    int64_t n = t->dim[d];
    bool row = d == t->ndim - 1, cut = is_cut(summarised, n);
    int per_line = (LINE - indent) / (y->width + 2), placed = 0;
    per_line = per_line > 1 ? per_line : 1;
    put(s, "[");
    for (int64_t i = 0; i < n; i++) {
        bool dots = cut && i == EDGE;
        if (i > 0 && row && placed % per_line == 0) {
            put(s, ",\n");
            spaces(s, indent + 1);
        } else if (i > 0 && row) {
            put(s, ", ");
        } else if (i > 0) {
            put(s, ",");
            for (int k = d; k < t->ndim - 1; k++) put(s, "\n");
            spaces(s, indent + 1);
        }
        placed++;
        if (dots) {
            put(s, row ? " ..." : "...");
            i = n - EDGE - 1;
            continue;
        }
        numbers(s, y, t, d + 1, offset + i * t->stride[d], indent + 1, summarised);
    }
    put(s, "]");
}

/* ---- suffixes ---- */

__attribute__((format(printf, 3, 4))) static void suffix(sink *s, int indent, const char *format,
                                                         ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (s->column + 2 + strlen(text) + 2 > LINE) {
        put(s, ",\n");
        spaces(s, indent);
        s->column -= 2; /* PyTorch counts a line started by a suffix this way */
    } else {
        put(s, ", ");
    }
    put(s, text);
}

static void size_suffix(sink *s, int indent, const aril_tensor *t)
{
    char text[ARIL_MAX_DIMS * 24];
    int n = 0;
    for (int d = 0; d < t->ndim; d++) {
        n += snprintf(text + n, sizeof text - (size_t)n, d ? ", " : "");
        n += t->dim[d] < 0
                 ? snprintf(text + n, sizeof text - (size_t)n, "%s",
                            aril__size_name(aril__self()->sizes, t->dim[d]))
                 : snprintf(text + n, sizeof text - (size_t)n, "%lld", (long long)t->dim[d]);
    }
    suffix(s, indent, t->ndim == 1 ? "size=(%s,)" : "size=(%s)", t->ndim ? text : "");
}

static void show(sink *s, aril_tensor *t)
{
    const int indent = 7; /* of "tensor(" */
    if (!t) {
        put(s, "NULL");
        return;
    }
    put(s, "tensor(");
    if (aril__is_poison(t)) {
        put(s, "poisoned: ");
        put(s, t->u.error->message);
        put(s, ")");
        return;
    }
    ARIL_SCOPE;
    ARIL_INFERENCE;
    /* In a trace, only a run knows values. */
    bool traced = aril__self()->tracer && !(t->flags & ARIL__CONSTANT);
    bool empty = t->numel == 0, unknown = !t->storage || traced;
    if (unknown) {
        put(s, "...");
    } else if (empty) {
        put(s, "[]");
    } else {
        aril_tensor *host = aril_to(t, aril_cpu());
        if (host->flags & ARIL__POISON) {
            put(s, "unreadable: ");
            put(s, host->u.error->message);
        } else {
            bool summarised = host->numel > THRESHOLD;
            style y = style_of(host, summarised);
            numbers(s, &y, host, 0, host->offset, indent, summarised);
        }
    }
    if (t->storage && t->storage->device->id.kind != ARIL__CPU) {
        char name[48];
        suffix(s, indent, "device='%s'",
               aril_device_name(t->storage->device->id, name, sizeof name));
    }
    if (unknown || (empty && t->ndim != 1)) size_suffix(s, indent, t);
    bool is_default = t->dtype == ARIL_F32 ||
                      (!empty && !unknown && (t->dtype == ARIL_I64 || t->dtype == ARIL_BOOL));
    if (!is_default) suffix(s, indent, "dtype=%s", aril__dtypes[t->dtype].name);
    if (t->node) {
        const char *name = aril__hook.node_name ? aril__hook.node_name(t->node) : NULL;
        if (name)
            suffix(s, indent, "grad_fn=<%s>", name);
        else
            suffix(s, indent, "requires_grad=True");
    }
    put(s, ")");
}

/* ---- public ---- */

void aril_fprint(FILE *to, aril_tensor *t)
{
    sink s = { .file = to };
    if (to) show(&s, t);
}

void aril_print(aril_tensor *t)
{
    aril_fprint(stdout, t);
    fputc('\n', stdout);
}

size_t aril_format(char *buf, size_t size, aril_tensor *t)
{
    sink s = { .buf = buf, .size = buf ? size : 0 };
    show(&s, t);
    if (s.size) buf[s.length < s.size ? s.length : s.size - 1] = 0;
    return s.length;
}
