/* Strings. */
#include "onnx/regex.h"
#include "onnx/rules.h"

#include <ctype.h>
#include <stdlib.h>
#include <strings.h>

static const onnx_text *text_in(onnx_call *c, int i)
{
    if (given(c, i) && c->in[i].kind == ONNX_TEXT) return c->in[i].text;
    aril__onnx_fail(c, ARIL_ERR_DTYPE, "input %d is not a tensor of strings", i);
    return NULL;
}

static onnx_text *new_text(onnx_call *c, aril_shape shape)
{
    onnx_text *t = aril__onnx_alloc(&c->run->arena, 1, sizeof *t);
    size_t n = 1;
    for (int i = 0; i < shape.ndim; i++) n *= (size_t)shape.dim[i];
    if (!t || !(t->at = aril__onnx_alloc(&c->run->arena, n, sizeof *t->at))) return NULL;
    for (size_t i = 0; i < n; i++) t->at[i].at = "";
    t->n = n;
    t->shape = shape;
    return t;
}

static aril_status give_text(onnx_call *c, int i, const onnx_text *t)
{
    return give_value(c, i, (onnx_value){ .kind = ONNX_TEXT, .text = t });
}

/* ---- StringConcat ---- */

/* The position in a tensor that is broadcast, of element k of `shape`. */
static size_t broadcast_at(aril_shape shape, const onnx_text *t, size_t k)
{
    size_t at = 0, stride = 1;
    for (int i = shape.ndim - 1, j = t->shape.ndim - 1; i >= 0; i--, j--) {
        size_t index = k % (size_t)shape.dim[i];
        k /= (size_t)shape.dim[i];
        if (j < 0) continue;
        if (t->shape.dim[j] != 1) at += index * stride;
        stride *= (size_t)t->shape.dim[j];
    }
    return at;
}

static aril_status concat(onnx_call *c)
{
    const onnx_text *a = text_in(c, 0), *b = text_in(c, 1);
    if (!a || !b) return ARIL_ERR_DTYPE;
    aril_shape shape = a->shape.ndim >= b->shape.ndim ? a->shape : b->shape,
               other = a->shape.ndim >= b->shape.ndim ? b->shape : a->shape;
    for (int i = 1; i <= other.ndim; i++) {
        int64_t *to = &shape.dim[shape.ndim - i], d = other.dim[other.ndim - i];
        if (*to == 1)
            *to = d;
        else if (d != 1 && d != *to)
            return aril__onnx_fail(c, ARIL_ERR_SHAPE, "sizes do not fit");
    }
    onnx_text *y = new_text(c, shape);
    if (!y) return ARIL_ERR_MEMORY;
    for (size_t i = 0; i < y->n; i++) {
        aril__slice p = a->at[broadcast_at(shape, a, i)], q = b->at[broadcast_at(shape, b, i)];
        char *both = aril__onnx_alloc(&c->run->arena, p.n + q.n, 1);
        if (!both) return ARIL_ERR_MEMORY;
        if (p.n) memcpy(both, p.at, p.n);
        if (q.n) memcpy(both + p.n, q.at, q.n);
        y->at[i] = (aril__slice){ both, p.n + q.n };
    }
    return give_text(c, 0, y);
}

/* ---- StringSplit ---- */

/* The next part of a text; advances *at. False at the end. */
static bool next_part(const char **at, const char *end, const char *by, int64_t left,
                      aril__slice *part)
{
    size_t n = strlen(by);
    if (!n) { /* white space */
        while (*at < end && isspace((unsigned char)**at)) (*at)++;
        if (*at >= end) return false;
        const char *start = *at, *stop = start;
        if (!left) {
            stop = end;
            while (stop > start && isspace((unsigned char)stop[-1])) stop--;
            *at = end;
        } else {
            while (stop < end && !isspace((unsigned char)*stop)) stop++;
            *at = stop;
        }
        *part = (aril__slice){ start, (size_t)(stop - start) };
        return true;
    }
    if (!*at) return false;
    const char *start = *at, *stop = left ? memmem(start, (size_t)(end - start), by, n) : NULL;
    *part = (aril__slice){ start, (size_t)((stop ? stop : end) - start) };
    *at = stop ? stop + n : NULL;
    return true;
}

static int64_t split_into(aril__slice text, const char *by, int64_t most, aril__slice *to)
{
    const char *at = text.at, *end = (const char *)text.at + text.n;
    aril__slice part;
    int64_t n = 0;
    if (!text.n) return 0;
    for (; next_part(&at, end, by, most - n, &part); n++)
        if (to) to[n] = part;
    return n;
}

static aril_status split(onnx_call *c)
{
    const onnx_text *x = text_in(c, 0);
    if (!x) return ARIL_ERR_DTYPE;
    const char *by = aril__onnx_attr_text(c, "delimiter", "");
    int64_t most = aril__onnx_attr_int(c, "maxsplit", INT64_MAX), widest = 0;
    int64_t *n = aril__onnx_alloc(&c->run->arena, x->n, sizeof *n);
    if (!n) return ARIL_ERR_MEMORY;
    if (most < 0) most = INT64_MAX;
    for (size_t i = 0; i < x->n; i++) {
        n[i] = split_into(x->at[i], by, most, NULL);
        if (n[i] > widest) widest = n[i];
    }
    aril_shape shape = x->shape;
    if (shape.ndim == ARIL_MAX_DIMS)
        return aril__onnx_fail(c, ARIL_ERR_UNSUPPORTED, "too many dimensions");
    shape.dim[shape.ndim++] = widest;
    onnx_text *y = new_text(c, shape);
    if (!y) return ARIL_ERR_MEMORY;
    for (size_t i = 0; i < x->n; i++) split_into(x->at[i], by, most, y->at + i * (size_t)widest);
    aril_status s = give_text(c, 0, y);
    return s < 0
               ? s
               : give(c, 1, aril_from(x->n ? (const void *)n : "", x->shape, ARIL_I64, aril_cpu()));
}

/* ---- StringNormalizer ---- */

/* Only letters of ASCII change their case. */
static aril_status change_case(onnx_call *c, aril__slice *s, bool upper)
{
    char *copy = aril__onnx_alloc(&c->run->arena, s->n, 1);
    if (!copy) return ARIL_ERR_MEMORY;
    for (size_t i = 0; i < s->n; i++) {
        char ch = ((const char *)s->at)[i];
        copy[i] = upper && ch >= 'a' && ch <= 'z'    ? (char)(ch - 32)
                  : !upper && ch >= 'A' && ch <= 'Z' ? (char)(ch + 32)
                                                     : ch;
    }
    s->at = copy;
    return ARIL_OK;
}

static bool is_stopword(const aril__message *words, aril__slice s, bool exact)
{
    for (size_t i = 0; words && i < aril__message_count(words, "strings"); i++) {
        aril__slice w = aril__message_bytes_at(words, "strings", i);
        if (w.n == s.n && (exact ? memcmp(w.at, s.at, s.n) : strncasecmp(w.at, s.at, s.n)) == 0)
            return true;
    }
    return false;
}

static aril_status normalize(onnx_call *c)
{
    const onnx_text *x = text_in(c, 0);
    if (!x) return ARIL_ERR_DTYPE;
    const char *action = aril__onnx_attr_text(c, "case_change_action", "NONE");
    bool exact = aril__onnx_attr_int(c, "is_case_sensitive", 0) != 0;
    const aril__message *words = aril__onnx_attribute(c, "stopwords");
    onnx_text *y = new_text(c, ARIL_SHAPE((int64_t)(x->n ? x->n : 1)));
    if (!y) return ARIL_ERR_MEMORY;
    size_t n = 0;
    for (size_t i = 0; i < x->n; i++) {
        if (is_stopword(words, x->at[i], exact)) continue;
        y->at[n] = x->at[i];
        if (strcmp(action, "NONE") != 0 &&
            change_case(c, &y->at[n], strcmp(action, "UPPER") == 0) < 0)
            return ARIL_ERR_MEMORY;
        n++;
    }
    y->n = n ? n : 1; /* nothing is left: one empty string */
    y->shape = x->shape.ndim == 2 ? ARIL_SHAPE(1, (int64_t)y->n) : ARIL_SHAPE((int64_t)y->n);
    return give_text(c, 0, y);
}

/* ---- RegexFullMatch ---- */

static aril_status full_match(onnx_call *c)
{
    const onnx_text *x = text_in(c, 0);
    const aril__message *a = aril__onnx_attribute(c, "pattern");
    if (!x) return ARIL_ERR_DTYPE;
    if (!a) return aril__onnx_fail(c, ARIL_ERR_FORMAT, "the attribute pattern is missing");
    aril__slice pattern = aril__message_bytes(a, "s");
    const char *why;
    bool *match = aril__onnx_alloc(&c->run->arena, x->n, 1);
    if (!match) return ARIL_ERR_MEMORY;
    aril__regex *r = aril__regex_new(pattern.n ? (const char *)pattern.at : "", pattern.n, &why);
    if (!r && !why) return aril__onnx_fail(c, ARIL_ERR_MEMORY, "out of memory for the pattern");
    if (!r) return aril__onnx_fail(c, ARIL_ERR_FORMAT, "the pattern is not understood: %s", why);
    for (size_t i = 0; i < x->n; i++)
        match[i] = aril__regex_matches(r, (const char *)x->at[i].at, x->at[i].n);
    aril__regex_free(r);
    return give(c, 0, aril_from(x->n ? (const void *)match : "", x->shape, ARIL_BOOL, aril_cpu()));
}

/* ---- Tokenizer of com.microsoft ---- */

typedef struct tokens {
    aril__slice *at;
    size_t n, capacity;
} tokens;

static aril_status add_token(onnx_call *c, tokens *t, const char *at, size_t n)
{
    if (t->n == t->capacity) {
        size_t more = 2 * t->capacity + 16;
        aril__slice *grown = aril__onnx_alloc(&c->run->arena, more, sizeof *grown);
        if (!grown) return ARIL_ERR_MEMORY;
        if (t->n) memcpy(grown, t->at, t->n * sizeof *grown);
        t->at = grown;
        t->capacity = more;
    }
    t->at[t->n++] = (aril__slice){ at, n };
    return ARIL_OK;
}

/* The bytes of the character at the start of a text that is not empty. */
static size_t character(const char *text, size_t n)
{
    size_t size = 1;
    while (size < n && ((unsigned char)text[size] & 0xc0) == 0x80) size++;
    return size;
}

static size_t characters(aril__slice s)
{
    size_t n = 0;
    for (size_t at = 0; at < s.n; n++) at += character((const char *)s.at + at, s.n - at);
    return n;
}

/* The pieces of a text: each character (r NULL), the matches of an expression, or with `between`
 * what is between them. */
static aril_status cut(onnx_call *c, aril__regex *r, bool between, aril__slice text, tokens *to)
{
    const char *start = text.n ? text.at : "";
    size_t at = 0, begin = 0;
    aril_status s = ARIL_OK;
    while (at < text.n && s == ARIL_OK) {
        size_t one = character(start + at, text.n - at);
        ptrdiff_t match = r ? aril__regex_longest(r, start, text.n, at) : (ptrdiff_t)one;
        if (match <= 0) {
            at += one;
            continue;
        }
        if (!between) s = add_token(c, to, start + at, (size_t)match);
        if (between && at > begin) s = add_token(c, to, start + begin, at - begin);
        at += (size_t)match;
        begin = at;
    }
    if (between && s == ARIL_OK && begin < text.n)
        s = add_token(c, to, start + begin, text.n - begin);
    return s;
}

/* The tokens of all strings, one expression after the other: end[i] is the number up to i. */
static aril_status cut_all(onnx_call *c, aril__slice pattern, bool between, tokens *all,
                           size_t *end, size_t n)
{
    const char *why = NULL;
    bool single = !pattern.n || (!between && pattern.n == 1 && *(const char *)pattern.at == '.');
    aril__regex *r = single ? NULL : aril__regex_new(pattern.at, pattern.n, &why);
    tokens made = { 0 };
    aril_status s = ARIL_OK;
    if (!single && !r)
        return aril__onnx_fail(c, why ? ARIL_ERR_FORMAT : ARIL_ERR_MEMORY,
                               "the pattern is not understood: %s", why ? why : "out of memory");
    for (size_t i = 0, k = 0; i < n; i++) {
        for (; k < end[i] && s == ARIL_OK; k++)
            s = cut(c, r, between && !single, all->at[k], &made);
        k = end[i];
        end[i] = made.n;
    }
    aril__regex_free(r);
    *all = made;
    return s;
}

/* Drops the tokens with fewer characters. */
static void drop_short(tokens *all, size_t *end, size_t n, int64_t least)
{
    size_t kept = 0;
    for (size_t i = 0, k = 0; i < n; i++) {
        for (; k < end[i]; k++)
            if ((int64_t)characters(all->at[k]) >= least) all->at[kept++] = all->at[k];
        end[i] = kept;
    }
}

static aril_status tokenize(onnx_call *c)
{
    static const char first[] = "\x02", last[] = "\x03";
    const onnx_text *x = text_in(c, 0);
    if (!x) return ARIL_ERR_DTYPE;
    const aril__message *expression = aril__onnx_attribute(c, "tokenexp"),
                        *separators = aril__onnx_attribute(c, "separators"),
                        *pad = aril__onnx_attribute(c, "pad_value");
    size_t n_separators = separators ? aril__message_count(separators, "strings") : 0;
    if (!expression == !n_separators || x->shape.ndim < 1 || x->shape.ndim > 2)
        return aril__onnx_fail(c, ARIL_ERR_ARG,
                               "expected [C] or [N,C], and either tokenexp or separators");
    bool mark = aril__onnx_attr_int(c, "mark", 0) != 0;
    tokens all = { x->at, x->n, x->n };
    size_t *end = aril__onnx_alloc(&c->run->arena, x->n, sizeof *end), most = 0;
    if (!end) return ARIL_ERR_MEMORY;
    for (size_t i = 0; i < x->n; i++) end[i] = i + 1;
    aril_status s = ARIL_OK;
    if (expression) s = cut_all(c, aril__message_bytes(expression, "s"), false, &all, end, x->n);
    for (size_t i = 0; i < n_separators && s == ARIL_OK; i++)
        s = cut_all(c, aril__message_bytes_at(separators, "strings", i), true, &all, end, x->n);
    if (s < 0) return s;
    drop_short(&all, end, x->n, aril__onnx_attr_int(c, "mincharnum", 1));
    for (size_t i = 0; i < x->n; i++)
        if (end[i] - (i ? end[i - 1] : 0) > most) most = end[i] - (i ? end[i - 1] : 0);
    size_t width = most && mark ? most + 2 : most;
    aril_shape shape = x->shape;
    if (x->n) shape.dim[shape.ndim++] = (int64_t)width;
    onnx_text *y = new_text(c, shape);
    if (!y) return ARIL_ERR_MEMORY;
    for (size_t i = 0, k = 0; i < x->n && width; i++) {
        aril__slice *to = y->at + i * width, *after = to + width;
        if (mark) *to++ = (aril__slice){ first, 1 };
        for (; k < end[i]; k++) *to++ = all.at[k];
        if (mark) *to++ = (aril__slice){ last, 1 };
        while (to < after && pad) *to++ = aril__message_bytes(pad, "s");
    }
    return give_text(c, 0, y);
}

/* ---- TfIdfVectorizer ---- */

/* Items of the input or of the pool: integers or strings. */
typedef struct items {
    int64_t n;
    const int64_t *number;
    aril__slice *text;
} items;

static bool same_item(const items *a, int64_t i, const items *b, int64_t k)
{
    if (a->text && b->text)
        return a->text[i].n == b->text[k].n &&
               memcmp(a->text[i].at, b->text[k].at, a->text[i].n) == 0;
    return a->number && b->number && a->number[i] == b->number[k];
}

typedef struct grams {
    items pool;
    onnx_ints counts, indexes;
    int64_t shortest, longest, skips;
} grams;

/* Counts the n-grams of a row of n items. */
static void count_grams(const grams *g, const items *x, int64_t from, int64_t n, double *to)
{
    int64_t entry = 0;
    for (int64_t length = 1; length <= g->counts.n; length++) {
        int64_t start = g->counts.at[length - 1],
                end = length < g->counts.n ? g->counts.at[length] : g->pool.n;
        if (start < 0 || end > g->pool.n || end < start) return;
        for (int64_t gram = start; gram + length <= end; gram += length, entry++) {
            if (length < g->shortest || length > g->longest || entry >= g->indexes.n) continue;
            /* From the last step on, the items of a gram lie beyond the end of the row. */
            int64_t steps = length == 1 ? 1 : (n - 1) / (length - 1);
            if (length > 1 && steps - 1 > g->skips) steps = g->skips + 1;
            for (int64_t step = 1; step <= steps; step++)
                for (int64_t i = 0; i + (length - 1) * step < n; i++) {
                    bool same = true;
                    for (int64_t k = 0; k < length && same; k++)
                        same = same_item(x, from + i + k * step, &g->pool, gram + k);
                    if (same) to[g->indexes.at[entry]] += 1;
                }
        }
    }
}

static aril_status read_items(onnx_call *c, items *x, aril_shape *shape)
{
    onnx_ints numbers;
    if (c->in[0].kind == ONNX_TEXT) {
        *x = (items){ (int64_t)c->in[0].text->n, NULL, c->in[0].text->at };
        *shape = c->in[0].text->shape;
        return ARIL_OK;
    }
    aril_status s = aril__onnx_ints(c, 0, &numbers);
    *x = (items){ numbers.n, numbers.at, NULL };
    *shape = s == ARIL_OK ? aril_shape_of(c->in[0].tensor) : ARIL_SHAPE();
    return s;
}

static aril_status tf_idf(onnx_call *c)
{
    items x;
    aril_shape shape;
    aril_status s = c->n_in ? read_items(c, &x, &shape) : ARIL_ERR_ARG;
    if (s != ARIL_OK) return s;
    onnx_ints pool = aril__onnx_attr_ints(c, "pool_int64s");
    const aril__message *words = aril__onnx_attribute(c, "pool_strings");
    grams g = { .pool = { pool.n, pool.at, NULL },
                .counts = aril__onnx_attr_ints(c, "ngram_counts"),
                .indexes = aril__onnx_attr_ints(c, "ngram_indexes"),
                .shortest = aril__onnx_attr_int(c, "min_gram_length", 1),
                .longest = aril__onnx_attr_int(c, "max_gram_length", 1),
                .skips = aril__onnx_attr_int(c, "max_skip_count", 0) };
    if (words) {
        size_t n = aril__message_count(words, "strings");
        g.pool =
            (items){ (int64_t)n, NULL, aril__onnx_alloc(&c->run->arena, n, sizeof(aril__slice)) };
        if (!g.pool.text) return ARIL_ERR_MEMORY;
        for (size_t i = 0; i < n; i++) g.pool.text[i] = aril__message_bytes_at(words, "strings", i);
    }
    int64_t width = 0, rows = shape.ndim == 2 ? shape.dim[0] : 1,
            n = shape.ndim == 2 ? shape.dim[1] : x.n;
    for (int64_t i = 0; i < g.indexes.n; i++) {
        if (g.indexes.at[i] < 0 || g.indexes.at[i] > 1 << 28)
            return aril__onnx_fail(c, ARIL_ERR_ARG, "an index is out of range");
        if (g.indexes.at[i] >= width) width = g.indexes.at[i] + 1;
    }
    double *y = aril__onnx_alloc(&c->run->arena, (size_t)rows, (size_t)width * sizeof *y);
    if (!y) return ARIL_ERR_MEMORY;
    const char *mode = aril__onnx_attr_text(c, "mode", "TF");
    onnx_floats weights = aril__onnx_attr_floats(c, "weights");
    for (int64_t r = 0; r < rows; r++) {
        double *row = y + r * width;
        count_grams(&g, &x, r * n, n, row);
        if (strcmp(mode, "IDF") == 0)
            for (int64_t i = 0; i < width; i++) row[i] = row[i] > 0;
        for (int64_t i = 0; i < g.indexes.n && i < weights.n && strcmp(mode, "TF") != 0; i++)
            row[g.indexes.at[i]] *= weights.at[i];
    }
    aril_tensor *all = aril__onnx_numbers(c, y, rows * width, ARIL_F32);
    return give(c, 0, shape.ndim == 2 ? aril_reshape(all, ARIL_SHAPE(rows, width)) : all);
}

/* ---- strings where a rule only moves elements ---- */

/* Output i of a rule that moved positions: the strings there. */
static aril_status take(onnx_call *c, int i, aril_tensor *at, const aril__slice *all, int64_t n)
{
    const void *position;
    aril_status s = aril__onnx_host(c, at, ARIL_I64, &position);
    if (s != ARIL_OK) return s;
    onnx_text *t = aril__onnx_alloc(&c->run->arena, 1, sizeof *t);
    size_t count = (size_t)aril_numel(at);
    if (!t || !(t->at = aril__onnx_alloc(&c->run->arena, count, sizeof *t->at)))
        return ARIL_ERR_MEMORY;
    t->n = count;
    t->shape = aril_shape_of(at);
    for (size_t k = 0; k < count; k++) {
        int64_t p = ((const int64_t *)position)[k];
        if (p >= 0 && p < n) t->at[k] = all[p];
    }
    return give_value(c, i, (onnx_value){ .kind = ONNX_TEXT, .text = t });
}

static int by_bytes(const void *a, const void *b)
{
    const aril__slice *x = a, *y = b;
    size_t n = x->n < y->n ? x->n : y->n;
    int order = n ? memcmp(x->at, y->at, n) : 0;
    return order ? order : x->n < y->n ? -1 : x->n > y->n;
}

/* The strings of all inputs, sorted, each once. */
static aril_status list_strings(onnx_call *c, aril__slice **all, size_t *n)
{
    size_t total = 0, kept = 0;
    for (int i = 0; i < c->n_in; i++)
        if (c->in[i].kind == ONNX_TEXT) total += c->in[i].text->n;
    aril__slice *list = *all = aril__onnx_alloc(&c->run->arena, total, sizeof *list);
    if (!list) return ARIL_ERR_MEMORY;
    for (int i = 0; i < c->n_in; i++)
        for (size_t k = 0; c->in[i].kind == ONNX_TEXT && k < c->in[i].text->n; k++)
            list[kept++] = c->in[i].text->at[k];
    if (total) qsort(list, total, sizeof *list, by_bytes);
    *n = 0;
    for (size_t k = 0; k < total; k++)
        if (!k || by_bytes(&list[k], &list[*n - 1])) list[(*n)++] = list[k];
    return ARIL_OK;
}

/* The places of strings in the list, as a tensor. */
static aril_status number_strings(onnx_call *c, const onnx_text *t, const aril__slice *all,
                                  size_t n, onnx_value *to)
{
    int64_t *number = aril__onnx_alloc(&c->run->arena, t->n, sizeof *number);
    if (!number) return ARIL_ERR_MEMORY;
    for (size_t k = 0; k < t->n; k++) {
        const aril__slice *at = bsearch(&t->at[k], all, n, sizeof *all, by_bytes);
        number[k] = at ? at - all : 0;
    }
    aril_tensor *at = aril__onnx_index(c, number, (int64_t)t->n);
    *to = (onnx_value){ .kind = ONNX_TENSOR, .known = true, .tensor = aril_reshape(at, t->shape) };
    return aril_tensor_status(to->tensor);
}

aril_status aril__onnx_move_texts(onnx_call *c)
{
    onnx_value *v = aril__onnx_alloc(&c->run->arena, (size_t)(c->n_in + c->n_out), sizeof *v);
    aril__slice *all;
    size_t n;
    if (!v) return ARIL_ERR_MEMORY;
    if (!attr_is(c, "reduction", "none", "none"))
        return aril__onnx_fail(c, ARIL_ERR_DTYPE, "strings cannot be combined by a reduction");
    aril_status s = list_strings(c, &all, &n);
    onnx_call moved = *c;
    moved.in = v;
    moved.out = v + c->n_in;
    for (int i = 0; i < c->n_in && s == ARIL_OK; i++) {
        v[i] = c->in[i];
        if (v[i].kind == ONNX_TEXT) s = number_strings(c, v[i].text, all, n, &v[i]);
    }
    if (s == ARIL_OK) s = c->node->rule->convert(&moved);
    bool first = c->node->rule->flags & ONNX_MOVES_FIRST;
    for (int i = 0; i < c->n_out && s == ARIL_OK; i++) {
        if (moved.out[i].kind != ONNX_TENSOR) continue;
        aril_tensor *t = moved.out[i].tensor;
        bool numbers = (first && i > 0) || aril_dtype_of(t) == ARIL_BOOL;
        s = numbers ? give(c, i, t) : take(c, i, t, all, (int64_t)n);
    }
    return s;
}

const onnx_rule aril__onnx_text_rules[] = {
    RULE("StringConcat", 20, concat),
    RULE("StringSplit", 20, split),
    RULE("StringNormalizer", 10, normalize),
    RULE("RegexFullMatch", 20, full_match),
    RULE("TfIdfVectorizer", 9, tf_idf),
    RULE_OF("com.microsoft", "Tokenizer", 1, tokenize),
    { 0 },
};
