/* Text as sequences of characters or words; the target is the sequence shifted by one. */
#include "aril/datasets.h"

#include "aril/device.h"
#include "aril/create.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "data/dataset.h"
#include "data/open.h"
#include "data/words.h"
#include "formats/bytes.h"
#include "formats/gzip.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char unknown[] = "<unk>";

struct text {
    bool words, lower;
    int64_t length, step;
    aril__words vocabulary;
    aril_tensor *token; /* i64 [T] */
};

/* ---- tokens ---- */

static bool is_letter(unsigned char c)
{
    return isalnum(c) || c == '\'' || c == '_' || c >= 0x80;
}

/* The length of the next token in n bytes, after skipping *blank separator bytes; 0 at the end.
 * Characters are UTF-8; an invalid byte is its own character. A word is a run of letters and
 * digits; punctuation marks are single tokens. */
static size_t next_token(const struct text *t, const char *p, size_t n, size_t *blank)
{
    *blank = 0;
    if (!t->words) {
        int length = aril__utf8_length((const unsigned char *)p, n);
        return length > 0 ? (size_t)length : n > 0;
    }
    while (*blank < n && isspace((unsigned char)p[*blank])) ++*blank;
    size_t k = *blank;
    if (k < n && !is_letter((unsigned char)p[k])) return 1;
    while (k < n && is_letter((unsigned char)p[k])) k++;
    return k - *blank;
}

/* Calls fn for each token until it returns an error. A NUL byte is passed as an empty token. */
static aril_status each_token(const struct text *t, char *p, size_t n,
                              aril_status (*fn)(void *ctx, const char *, size_t), void *ctx)
{
    for (size_t blank; n > 0;) {
        size_t length = next_token(t, p, n, &blank);
        if (length == 0) break;
        p += blank;
        if (t->lower)
            for (size_t i = 0; i < length; i++) p[i] = (char)tolower((unsigned char)p[i]);
        aril_status status = fn(ctx, p, *p ? length : 0);
        if (status != ARIL_OK) return status;
        p += length;
        n -= blank + length;
    }
    return ARIL_OK;
}

struct collecting {
    struct text *t;
    aril__bytes *to; /* int64_t */
    bool fixed;      /* the vocabulary is given */
};

static aril_status collect(void *ctx, const char *token, size_t n)
{
    struct collecting *c = ctx;
    aril__words *v = &c->t->vocabulary;
    int64_t number = c->fixed ? aril__words_find(v, token, n) : aril__words_add(v, token, n);
    if (number < 0 && c->fixed) {
        if (!c->t->words)
            return aril__fail(ARIL_ERR_ARG, "character \"%.*s\" is not in the vocabulary", (int)n,
                              token);
        number = 0; /* <unk> */
    }
    if (number < 0) return (aril_status)number;
    if (!aril__bytes_add(c->to, &number, sizeof number))
        return aril__fail(ARIL_ERR_MEMORY, "out of memory for a text");
    return ARIL_OK;
}

/* ---- vocabularies ---- */

static int by_code(const aril__words *w, int64_t a, int64_t b)
{
    return strcmp(w->text.at[a], w->text.at[b]); /* UTF-8 sorts as its characters do */
}

/* Most frequent first; the unknown token is number 0. */
static int by_count(const aril__words *w, int64_t a, int64_t b)
{
    if ((a == 0) != (b == 0)) return a == 0 ? -1 : 1;
    return (w->count[a] < w->count[b]) - (w->count[a] > w->count[b]);
}

/* Renumbers the words by order and keeps `limit` of them (0: all). */
static aril_status settle(struct text *t, int64_t limit, aril__bytes *tokens)
{
    aril__words *v = &t->vocabulary;
    int64_t n = v->text.n, *number = aril__malloc(((size_t)n + 1) * sizeof *number);
    if (!number)
        return aril__fail(ARIL_ERR_MEMORY, "out of memory for a vocabulary of %lld", (long long)n);
    aril_status status = aril__words_sort(v, t->words ? by_count : by_code, number);
    int64_t *token = (int64_t *)(void *)tokens->at;
    for (size_t i = 0; i < tokens->n / sizeof *token && status == ARIL_OK; i++) {
        token[i] = number[token[i]];
        if (limit > 0 && token[i] >= limit) token[i] = 0;
    }
    free(number);
    if (status != ARIL_OK || limit <= 0 || n <= limit) return status;
    aril__words kept = { 0 };
    for (int64_t i = 0; i < limit && status == ARIL_OK; i++) {
        int64_t k = aril__words_add(&kept, v->text.at[i], strlen(v->text.at[i]));
        if (k < 0) status = (aril_status)k;
    }
    aril__words_free(v);
    *v = kept;
    return status;
}

/* ---- the dataset ---- */

static int64_t text_size(aril_dataset *self)
{
    const struct text *t = aril_dataset_data(self);
    int64_t n = aril_numel(t->token);
    return n > t->length ? (n - t->length - 1) / t->step + 1 : 0;
}

static aril_status text_get(aril_dataset *self, int64_t i, aril_sample *s)
{
    const struct text *t = aril_dataset_data(self);
    const int64_t *from = (const int64_t *)aril__ptr(t->token) + i * t->step;
    s->x = aril_from(from, ARIL_SHAPE(t->length), ARIL_I64, aril_cpu());     /* [length] */
    s->y = aril_from(from + 1, ARIL_SHAPE(t->length), ARIL_I64, aril_cpu()); /* [length] */
    return aril_tensor_status(s->x) != ARIL_OK ? aril_tensor_status(s->x)
                                               : aril_tensor_status(s->y);
}

static aril_status text_get_batch(aril_dataset *self, int64_t n, const int64_t *index,
                                  aril_batch *b)
{
    const struct text *t = aril_dataset_data(self);
    aril_tensor *x = aril_batch_buffer(&b->x, ARIL_I64, ARIL_SHAPE(n, t->length));
    aril_tensor *y = aril_batch_buffer(&b->y, ARIL_I64, ARIL_SHAPE(n, t->length));
    if (!x || !y) return ARIL_ERR_MEMORY;
    int64_t *to_x = aril__ptr(x), *to_y = aril__ptr(y);
    const int64_t *token = aril__ptr(t->token);
    for (int64_t r = 0; r < n; r++) {
        const int64_t *from = token + index[r] * t->step;
        memcpy(to_x + r * t->length, from, (size_t)t->length * sizeof *from);
        memcpy(to_y + r * t->length, from + 1, (size_t)t->length * sizeof *from);
    }
    return ARIL_OK;
}

static void text_destroy(aril_dataset *self)
{
    struct text *t = aril_dataset_data(self);
    aril__words_free(&t->vocabulary);
    aril_release(t->token);
}

static const aril_dataset_class text_class = {
    .type = "Text",
    .data_size = sizeof(struct text),
    .size = text_size,
    .get = text_get,
    .get_batch = text_get_batch,
    .destroy = text_destroy,
};

/* The text dataset beneath maps, subsets and the like; NULL, with an error, if there is none. */
static struct text *text_of(const char *what, const aril_dataset *d)
{
    while (d && d->type != &text_class) d = d->source;
    if (!d) aril__fail(ARIL_ERR_ARG, "%s: expected a text dataset", what);
    return d ? aril_dataset_data(d) : NULL;
}

static aril_status take_vocabulary(struct text *t, const struct text *from)
{
    t->words = from->words;
    t->lower = from->lower;
    for (int64_t i = 0; i < from->vocabulary.text.n; i++) {
        const char *word = from->vocabulary.text.at[i];
        int64_t number = aril__words_add(&t->vocabulary, word, strlen(word));
        if (number < 0) return (aril_status)number;
    }
    return ARIL_OK;
}

static aril_status read_text(aril_dataset *self, const char *name, char *data, size_t size,
                             aril_text_opts o)
{
    struct text *t = aril_dataset_data(self);
    const struct text *like = o.like ? text_of("aril_dataset_text", o.like) : NULL;
    aril_status status = o.like && !like ? ARIL_ERR_ARG : ARIL_OK;
    t->words = o.words;
    t->lower = o.lower;
    t->length = o.length ? o.length : 64;
    t->step = o.step ? o.step : t->length;
    if (status == ARIL_OK && (t->length < 1 || t->step < 1 || o.limit < 0))
        status = aril__fail(
            ARIL_ERR_ARG,
            "aril_dataset_text: expected a positive length, step and limit, got %lld, %lld, %lld",
            (long long)t->length, (long long)t->step, (long long)o.limit);
    if (status == ARIL_OK && like)
        status = take_vocabulary(t, like);
    else if (status == ARIL_OK && t->words &&
             aril__words_add(&t->vocabulary, unknown, strlen(unknown)) < 0)
        status = ARIL_ERR_MEMORY;
    aril__bytes tokens = { 0 };
    struct collecting c = { t, &tokens, like != NULL };
    if (status == ARIL_OK) status = each_token(t, data, size, collect, &c);
    if (status == ARIL_OK && !like) status = settle(t, t->words ? o.limit : 0, &tokens);
    if (status == ARIL_OK) {
        ARIL_SCOPE;
        int64_t n = (int64_t)(tokens.n / sizeof(int64_t));
        if (n <= t->length)
            status =
                aril__fail(ARIL_ERR_FORMAT,
                           "%s has %lld %s; a sequence of %lld needs one more than that", name,
                           (long long)n, t->words ? "words" : "characters", (long long)t->length);
        aril_tensor *token = aril_from(tokens.at ? tokens.at : (unsigned char *)"", ARIL_SHAPE(n),
                                       ARIL_I64, aril_cpu());
        if (status == ARIL_OK) status = aril_tensor_status(token);
        if (status == ARIL_OK) t->token = aril_keep(token);
    }
    aril__bytes_free(&tokens);
    if (status == ARIL_OK)
        status = aril_dataset_set_classes(self, (int)t->vocabulary.text.n,
                                          (const char *const *)t->vocabulary.text.at);
    return status;
}

static aril_dataset *make(const char *name, char *data, size_t size, aril_text_opts opts)
{
    aril_dataset *self = aril_dataset_make(&text_class);
    if (self && read_text(self, name, data, size, opts) != ARIL_OK) {
        aril_dataset_release(self);
        self = NULL;
    }
    return self;
}

aril_dataset *aril_dataset_text(const char *path, aril_text_opts opts)
{
    aril__bytes b = { 0 };
    if (aril__read_unpacked("text", path, &b) != ARIL_OK) return NULL;
    aril_dataset *d = make(path, (char *)b.at, b.n, opts);
    aril__bytes_free(&b);
    return d;
}

aril_dataset *aril_dataset_text_from(const char *text, aril_text_opts opts)
{
    aril__bytes b = { 0 };
    aril__bytes_add(&b, text, text ? strlen(text) : 0);
    if (b.failed) aril__fail(ARIL_ERR_MEMORY, "out of memory for a text");
    aril_dataset *d = b.failed ? NULL : make("the text", (char *)b.at, b.n, opts);
    aril__bytes_free(&b);
    return d;
}

/* ---- encoding and decoding ---- */

aril_tensor *aril_text_encode(const aril_dataset *d, const char *text)
{
    struct text *t = text_of("aril_text_encode", d);
    if (!t || !text) {
        if (t) aril__fail(ARIL_ERR_ARG, "aril_text_encode: the text is NULL");
        return aril__poison();
    }
    aril__bytes copy = { 0 }, tokens = { 0 };
    aril__bytes_add(&copy, text, strlen(text));
    aril__bytes_add(&tokens, "", 0);
    struct collecting c = { t, &tokens, true };
    aril_status status = copy.failed || tokens.failed
                             ? aril__fail(ARIL_ERR_MEMORY, "out of memory for a text")
                             : each_token(t, (char *)copy.at, copy.n, collect, &c);
    aril_tensor *x = status == ARIL_OK
                         ? aril_from(tokens.at, ARIL_SHAPE((int64_t)(tokens.n / sizeof(int64_t))),
                                     ARIL_I64, aril_cpu())
                         : aril__poison();
    aril__bytes_free(&copy);
    aril__bytes_free(&tokens);
    return x;
}

size_t aril_text_decode(const aril_dataset *d, aril_tensor *tokens, char *buf, size_t size)
{
    ARIL_SCOPE;
    struct text *t = text_of("aril_text_decode", d);
    if (!t || aril__check_value("aril_text_decode", tokens) != ARIL_OK) return 0;
    const int64_t *token = aril_data(aril_cast(tokens, ARIL_I64));
    if (!token) return 0;
    size_t n = 0;
    for (int64_t i = 0; i < aril_numel(tokens); i++) {
        bool there = token[i] >= 0 && token[i] < t->vocabulary.text.n;
        const char *word = there ? t->vocabulary.text.at[token[i]] : unknown;
        if (t->words && i > 0) {
            if (n + 1 < size) buf[n] = ' ';
            n++;
        }
        for (; *word; word++, n++)
            if (n + 1 < size) buf[n] = *word;
    }
    if (size > 0) buf[n < size ? n : size - 1] = 0;
    return n;
}

aril_dataset *aril__open_text(const char *path, const char *split, const aril_open_opts *opts)
{
    (void)split, (void)opts;
    return aril_dataset_text(path, (aril_text_opts){ 0 });
}
