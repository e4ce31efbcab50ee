/* Text to tokens: added tokens are found first; what is between them is normalized, searched for
 * the added tokens of normalized text, and cut into words. */
#include "aril/create.h"
#include "aril/device.h"
#include "core/error.h"
#include "core/tensor.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

#include <string.h>

/* ---- added tokens ---- */

/* A text on its way to tokens. */
typedef struct encoding {
    const aril_tokenizer *t;
    aril__bpe bpe;
    aril__bytes ids; /* int64_t */
    bool plain;
} encoding;

/* The added token at p, the longest of several, and its length there; -1: none. */
static int64_t added_at(const aril_tokenizer *t, const unsigned char *p, size_t n, bool plain,
                        size_t *length)
{
    if (!t->starts_added[*p]) return -1;
    for (int64_t i = 0; i < t->n_added; i++) {
        const aril__form *f = &t->added[i];
        unsigned kind = t->token[f->id].kind;
        if (kind & ARIL__TOKEN_LATER || (plain && kind & ARIL__TOKEN_SPECIAL)) continue;
        if (f->size == 0 || f->size > n || memcmp(t->text.at + f->at, p, f->size) != 0) continue;
        *length = f->size;
        return f->id;
    }
    return -1;
}

/* The same in normalized text, of the tokens that are found later. */
static int64_t later_at(const aril_tokenizer *t, const unsigned char *p, size_t n, bool plain,
                        size_t *length)
{
    if (!t->starts_later[*p]) return -1;
    for (int64_t i = 0; i < t->n_later; i++) {
        const aril__form *f = &t->later[i];
        if (plain && t->token[f->id].kind & ARIL__TOKEN_SPECIAL) continue;
        if (f->size > n || memcmp(t->forms.at + f->at, p, f->size) != 0) continue;
        *length = f->size;
        return f->id;
    }
    return -1;
}

/* The end of p[0..n) without the white space it ends with. */
static size_t without_spaces(const unsigned char *p, size_t n)
{
    size_t end = 0, length;
    for (size_t at = 0; at < n; at += length)
        if (aril__next_char(p + at, n - at, &length) != ARIL__CHAR_SPACE) end = at + length;
    return end;
}

static size_t leading_spaces(const unsigned char *p, size_t n)
{
    size_t at = 0, length;
    while (at < n && aril__next_char(p + at, n - at, &length) == ARIL__CHAR_SPACE) at += length;
    return at;
}

static aril_status encode_text(encoding *e, const unsigned char *p, size_t n, bool later);

/* Text between the added tokens of the first search: normalized, then searched for the others. */
static aril_status encode_rest(encoding *e, const unsigned char *p, size_t n)
{
    const aril_tokenizer *t = e->t;
    if (!t->kind->normalize) return encode_text(e, p, n, true);
    aril__bytes text = { 0 };
    aril__bytes_add(&text, "", 0);
    t->kind->normalize(t, p, n, &text);
    aril_status status = text.failed ? aril__fail(ARIL_ERR_MEMORY, "out of memory for a text")
                                     : encode_text(e, text.at, text.n, true);
    aril__bytes_free(&text);
    return status;
}

static aril_status encode_part(encoding *e, const unsigned char *p, size_t n, bool later)
{
    return later ? e->t->kind->encode(e->t, &e->bpe, p, n, &e->ids) : encode_rest(e, p, n);
}

/* Added tokens are found first, each behind the one before it; then they take white space, which
 * may be that of which the next one consists. */
static aril_status encode_text(encoding *e, const unsigned char *p, size_t n, bool later)
{
    const aril_tokenizer *t = e->t;
    bool none = (later ? t->n_later : t->n_added) == 0;
    if (later && none) return t->kind->encode(t, &e->bpe, p, n, &e->ids);
    aril_status status = ARIL_OK;
    size_t begin = 0, spaces_end = 0;
    for (size_t at = 0; at < n && !none && status == ARIL_OK;) {
        size_t length = 0;
        int64_t id = later ? later_at(t, p + at, n - at, e->plain, &length)
                           : added_at(t, p + at, n - at, e->plain, &length);
        if (id < 0) {
            at++;
            continue;
        }
        size_t end = at;
        if (t->token[id].kind & ARIL__TOKEN_LEFT && begin < at)
            end = begin + without_spaces(p + begin, at - begin);
        if (begin < end) status = encode_part(e, p + begin, end - begin, later);
        aril__bytes_add(&e->ids, &id, sizeof id);
        begin = at += length;
        if (t->token[id].kind & ARIL__TOKEN_RIGHT) {
            if (at >= spaces_end) spaces_end = at + leading_spaces(p + at, n - at);
            begin = spaces_end;
        }
    }
    return begin < n && status == ARIL_OK ? encode_part(e, p + begin, n - begin, later) : status;
}

aril_tensor *aril_tokenizer_encode(const aril_tokenizer *t, const char *text, aril_encode_opts o)
{
    if (!t || !text) {
        aril__fail(ARIL_ERR_ARG, "tokenizer_encode: expected a tokenizer and a text, got NULL");
        return aril__poison();
    }
    encoding e = { .t = t, .plain = o.plain };
    aril__bytes_add(&e.ids, "", 0);
    if (o.framed && t->before >= 0) aril__bytes_add(&e.ids, &t->before, sizeof t->before);
    aril_status status =
        encode_text(&e, (const unsigned char *)text, o.size ? o.size : strlen(text), false);
    if (o.framed && t->after >= 0) aril__bytes_add(&e.ids, &t->after, sizeof t->after);
    if (status == ARIL_OK && e.ids.failed)
        status = aril__fail(ARIL_ERR_MEMORY, "out of memory for the tokens of a text");
    aril_tensor *y = status == ARIL_OK
                         ? aril_from(e.ids.at, ARIL_SHAPE((int64_t)(e.ids.n / sizeof(int64_t))),
                                     ARIL_I64, aril_cpu()) /* [n] */
                         : aril__poison();
    aril__bpe_free(&e.bpe);
    aril__bytes_free(&e.ids);
    return y;
}
