/* Reading a WordPiece:
 *
 *     vocab.txt              one token a line: the first has the id 0
 *     tokenizer_config.json  {"do_lower_case":true, ...}
 *     tokenizer.json         {"normalizer":{"type":"BertNormalizer","lowercase":true, ...},
 *                             "pre_tokenizer":{"type":"BertPreTokenizer"},
 *                             "decoder":{"type":"WordPiece", ...},
 *                             "model":{"type":"WordPiece","unk_token":"[UNK]","vocab":{...}}} */
#include "core/error.h"
#include "core/memory.h"
#include "text/read.h"

#include <stdlib.h>
#include <string.h>

/* A field with true, false or null. */
typedef struct flag {
    const char *key;
    int value; /* 1, 0; -1: null, or missing */
} flag;

static bool read_flag(aril__reading *r, flag *flags, int n, const char *key)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(key, flags[i].key) != 0) continue;
        flags[i].value = aril__read_null(r) ? -1 : aril__read_bool(r);
        return true;
    }
    return false;
}

/* Accents are removed together with capitals, unless told otherwise. */
static void set_normalizer(aril__reading *r, int clean, int chinese, int accents, int lower)
{
    r->t->normalizer = (aril__normalizer){ .keep_controls = clean == 0,
                                           .keep_chinese = chinese == 0,
                                           .keep_case = lower == 0,
                                           .keep_accents = accents < 0 ? lower == 0 : !accents };
}

/* ---- tokenizer.json ---- */

/* Keeps the prefix of tokens within words, of which there is one. */
static void read_prefix(aril__reading *r)
{
    char *text = aril__json_string(&r->j);
    if (text && r->t->part && strcmp(r->t->part, text) != 0)
        aril__read_wrong(r, "the prefix of tokens is '%.20s' and '%.20s'", r->t->part, text);
    free(r->t->part);
    r->t->part = text;
}

static void read_model(aril__reading *r)
{
    aril__json *j = &r->j;
    for (bool more = aril__json_enter(j, '{'); more; more = aril__json_more(j, '}')) {
        char *key = aril__json_key(j);
        uint64_t limit;
        if (!key) break;
        if (strcmp(key, "vocab") == 0 && !r->has_vocab)
            aril__read_vocab(r);
        else if (strcmp(key, "unk_token") == 0 && !r->unknown)
            r->unknown = aril__json_string(j);
        else if (strcmp(key, "continuing_subword_prefix") == 0)
            read_prefix(r);
        else if (strcmp(key, "max_input_chars_per_word") != 0)
            aril__json_skip(j);
        else if (aril__json_unsigned(j, &limit))
            r->t->word_limit = limit < INT32_MAX ? (int64_t)limit : INT32_MAX;
        free(key);
    }
    if (!j->wrong && !r->has_vocab) aril__read_wrong(r, "the model has no vocab");
}

static void read_normalizer(aril__reading *r)
{
    aril__json *j = &r->j;
    flag flags[] = { { "clean_text", -1 },
                     { "handle_chinese_chars", -1 },
                     { "strip_accents", -1 },
                     { "lowercase", -1 } };
    if (aril__read_null(r)) {
        set_normalizer(r, 0, 0, 0, 0);
        return;
    }
    for (bool more = aril__json_enter(j, '{'); more; more = aril__json_more(j, '}')) {
        char *key = aril__json_key(j);
        if (!key) break;
        if (strcmp(key, "type") == 0)
            aril__read_expect(r, "the normalizer", "BertNormalizer");
        else if (!read_flag(r, flags, 4, key))
            aril__json_skip(j);
        free(key);
    }
    set_normalizer(r, flags[0].value, flags[1].value, flags[2].value, flags[3].value);
}

static void read_pre_tokenizer(aril__reading *r)
{
    aril__json *j = &r->j;
    if (aril__read_null(r)) {
        aril__read_refuse(r, "the pre_tokenizer", "missing");
        return;
    }
    for (bool more = aril__json_enter(j, '{'); more; more = aril__json_more(j, '}')) {
        char *key = aril__json_key(j);
        if (!key) break;
        if (strcmp(key, "type") == 0)
            aril__read_expect(r, "the pre_tokenizer", "BertPreTokenizer");
        else
            aril__json_skip(j);
        free(key);
    }
}

static void read_decoder(aril__reading *r)
{
    aril__json *j = &r->j;
    flag cleanup = { "cleanup", 1 };
    if (aril__read_null(r)) return;
    for (bool more = aril__json_enter(j, '{'); more; more = aril__json_more(j, '}')) {
        char *key = aril__json_key(j);
        if (!key) break;
        if (strcmp(key, "type") == 0)
            aril__read_expect(r, "the decoder", "WordPiece");
        else if (strcmp(key, "prefix") == 0)
            read_prefix(r);
        else if (!read_flag(r, &cleanup, 1, key))
            aril__json_skip(j);
        free(key);
    }
    r->t->spaces_stay = cleanup.value == 0;
}

static void finish(aril__reading *r)
{
    aril_status status = aril__wordpiece_ready(r->t, r->name, r->unknown);
    if (status != ARIL_OK) aril__read_failed(r, status);
}

const aril__tokenizer_format aril__wordpiece_format = { .kind = &aril__tokenizer_wordpiece,
                                                        .expected = "a WordPiece as BERT's",
                                                        .model = read_model,
                                                        .pre_tokenizer = read_pre_tokenizer,
                                                        .decoder = read_decoder,
                                                        .normalizer = read_normalizer,
                                                        .finish = finish };

/* ---- vocab.txt ---- */

static void read_lines(aril__reading *r, const aril__bytes *file)
{
    uint64_t id = 0;
    aril__bytes line = { 0 };
    for (size_t at = 0; at < file->n && r->status == ARIL_OK; id++) {
        const unsigned char *begin = file->at + at, *end = memchr(begin, '\n', file->n - at);
        size_t n = end ? (size_t)(end - begin) : file->n - at;
        at += n + 1;
        if (n > 0 && begin[n - 1] == '\r') n--;
        if (n == 0) continue;
        line.n = 0;
        aril__bytes_add(&line, begin, n);
        if (line.failed)
            aril__read_failed(r, aril__fail(ARIL_ERR_MEMORY, "out of memory for a token"));
        else if (memchr(begin, '\0', n))
            aril__read_wrong(r, "line %llu has a NUL character", (unsigned long long)id + 1);
        else
            aril__read_token(r, (const char *)line.at, id, ARIL__TOKEN_MODEL);
    }
    aril__bytes_free(&line);
}

static void read_config(aril__reading *r, const aril__bytes *file)
{
    aril__json *j = &r->j;
    flag flags[] = { { "do_lower_case", -1 },
                     { "tokenize_chinese_chars", -1 },
                     { "strip_accents", -1 } };
    r->name = "tokenizer_config.json";
    *j = (aril__json){ .text = (const char *)file->at, .size = file->n };
    for (bool more = aril__json_enter(j, '{'); more; more = aril__json_more(j, '}')) {
        char *key = aril__json_key(j);
        if (!key) break;
        if (!read_flag(r, flags, 3, key)) aril__json_skip(j);
        free(key);
    }
    aril__json_end(j);
    set_normalizer(r, 1, flags[1].value, flags[2].value, flags[0].value);
}

aril_tokenizer *aril__tokenizer_of_lines(const char *path, const aril__bytes *vocab,
                                         const aril__bytes *config)
{
    aril__reading r = { .t = aril__tokenizer_new(),
                        .j = { .size = vocab->n },
                        .name = path,
                        .format = &aril__wordpiece_format };
    if (!r.t) return NULL;
    r.t->kind = r.format->kind;
    r.j.size *= 5; /* a line takes at least one character, an entry of JSON five */
    read_lines(&r, vocab);
    if (r.status == ARIL_OK) finish(&r);
    if (r.status == ARIL_OK && config) read_config(&r, config);
    return aril__read_finish(&r);
}
