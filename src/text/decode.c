/* Tokens to text, all at once or as they arrive. */
#include "aril/device.h"
#include "aril/dtype.h"
#include "aril/scope.h"
#include "aril/create.h"
#include "core/error.h"
#include "core/dtype.h"
#include "core/memory.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

#include <stdlib.h>
#include <string.h>

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

/* Appends p[0..n) with U+FFFD for what is not UTF-8. Unless it is the end, leaves out the beginning
 * of a character at the end. Returns the number of bytes used. */
static size_t add_text(aril__bytes *to, const unsigned char *p, size_t n, bool end)
{
    size_t at = 0, done = 0, size;
    while (at < n) {
        size_t k = aril__utf8_part(p + at, n - at, &size);
        if (size == k) {
            at += k;
            continue;
        }
        if (!end && size > k) break; /* p ends here, and more bytes may follow */
        aril__bytes_add(to, p + done, at - done);
        aril__bytes_add(to, replacement, 3);
        done = at += k;
    }
    aril__bytes_add(to, p + done, at - done);
    return at;
}

/* Appends the text of a token, behind others unless *first. */
static aril_status add_token(const aril_tokenizer *t, int64_t id, bool skip, bool *first,
                             aril__bytes *to)
{
    if (!aril_tokenizer_token(t, id, NULL))
        return aril__fail(ARIL_ERR_INDEX, "the tokenizer has no token %lld: its ids are below %lld",
                          (long long)id, (long long)t->n);
    if (skip && aril_tokenizer_is_special(t, id)) return ARIL_OK;
    t->kind->decode(t, id, *first, to);
    *first = false;
    return ARIL_OK;
}

static aril_status add_tokens(const aril_tokenizer *t, const aril_tensor *ids, bool skip,
                              aril__bytes *to)
{
    ARIL_SCOPE;
    if (!ids) return aril__fail(ARIL_ERR_ARG, "tokenizer_decode: expected tokens, got NULL");
    aril_status status = aril_tensor_status(ids);
    if (status != ARIL_OK) return status;
    if (!aril__is_int(aril_dtype_of(ids)))
        return aril__fail(ARIL_ERR_DTYPE, "tokenizer_decode: expected integers, got %s",
                          aril_dtype_name(aril_dtype_of(ids)));
    int64_t n = aril_numel(ids), *id = aril__malloc(((size_t)n + 1) * sizeof *id);
    if (!id) return aril__fail(ARIL_ERR_MEMORY, "out of memory for %lld tokens", (long long)n);
    aril_tensor *wide = aril_cast((aril_tensor *)ids, ARIL_I64);
    status = aril_read(wide, id);
    bool first = true;
    for (int64_t i = 0; i < n && status == ARIL_OK; i++)
        status = add_token(t, id[i], skip, &first, to);
    free(id);
    return status;
}

char *aril_tokenizer_decode(const aril_tokenizer *t, const aril_tensor *ids, aril_decode_opts o)
{
    if (o.size) *o.size = 0;
    if (!t) {
        aril__fail(ARIL_ERR_ARG, "tokenizer_decode: the tokenizer is NULL");
        return NULL;
    }
    aril__bytes raw = { 0 }, text = { 0 };
    aril__bytes_add(&raw, "", 0);
    aril_status status = add_tokens(t, ids, o.skip_special, &raw);
    if (status == ARIL_OK && !o.raw && !raw.failed) {
        add_text(&text, raw.at, raw.n, true);
        aril__bytes_free(&raw);
        raw = text;
    }
    if (status == ARIL_OK && !raw.failed) {
        if (o.size) *o.size = raw.n;
        return (char *)raw.at;
    }
    if (status == ARIL_OK) aril__fail(ARIL_ERR_MEMORY, "out of memory for a text");
    aril__bytes_free(&raw);
    return NULL;
}

/* ---- streams ---- */

struct aril_text_stream {
    const aril_tokenizer *t;
    aril_decode_opts opts;
    bool begun;                /* it has had a token */
    aril__bytes waiting, text; /* bytes of an incomplete character; what was returned last */
};

aril_text_stream *aril_text_stream_new(const aril_tokenizer *t, aril_decode_opts o)
{
    if (!t) {
        aril__fail(ARIL_ERR_ARG, "text_stream_new: the tokenizer is NULL");
        return NULL;
    }
    aril_text_stream *s = aril__calloc(sizeof *s);
    if (!s) {
        aril__fail(ARIL_ERR_MEMORY, "out of memory for a stream of text");
        return NULL;
    }
    s->t = t;
    s->opts = o;
    return s;
}

void aril_text_stream_free(aril_text_stream *s)
{
    if (!s) return;
    aril__bytes_free(&s->waiting);
    aril__bytes_free(&s->text);
    free(s);
}

/* Moves what is complete from `waiting` to `text`. */
static const char *flush(aril_text_stream *s, bool end)
{
    aril__bytes *w = &s->waiting;
    s->text.n = 0;
    aril__bytes_add(&s->text, "", 0);
    size_t used = w->n;
    if (s->opts.raw)
        aril__bytes_add(&s->text, w->at, w->n);
    else if (w->n > 0)
        used = add_text(&s->text, w->at, w->n, end);
    if (w->failed || s->text.failed) {
        aril__fail(ARIL_ERR_MEMORY, "out of memory for a text");
        w->failed = s->text.failed = false;
        return NULL;
    }
    if (used > 0) memmove(w->at, w->at + used, w->n - used);
    w->n -= used;
    return (const char *)s->text.at;
}

const char *aril_text_stream_add(aril_text_stream *s, int64_t id)
{
    if (!s) {
        aril__fail(ARIL_ERR_ARG, "text_stream_add: the stream is NULL");
        return NULL;
    }
    bool first = !s->begun;
    aril_status status = add_token(s->t, id, s->opts.skip_special, &first, &s->waiting);
    s->begun = !first;
    return status == ARIL_OK ? flush(s, false) : NULL;
}

const char *aril_text_stream_end(aril_text_stream *s)
{
    if (!s) {
        aril__fail(ARIL_ERR_ARG, "text_stream_end: the stream is NULL");
        return NULL;
    }
    s->begun = false;
    return flush(s, true);
}
