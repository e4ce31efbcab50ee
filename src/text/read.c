/* Reading vocab.json, merges.txt and tokenizer.json.
 *
 *     vocab.json      {"!":0,"\"":1, ... "\u0120the":262, ...}
 *     merges.txt      a line for each merge, "\u0120 t", after one that begins with #version
 *     tokenizer.json  {"added_tokens":[{"id":50256,"content":"<|endoftext|>","special":true, ...}],
 *                      "pre_tokenizer":{"type":"ByteLevel", ...},
 *                      "model":{"type":"BPE","vocab":{...},"merges":["\u0120 t", ...]}, ...} */
#include "core/error.h"
#include "core/memory.h"
#include "formats/json.h"
#include "text/alphabet.h"
#include "text/read.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LONGEST_FILE = 1 << 29, HOLES = 4096 };

bool aril__read_wrong(aril__reading *r, const char *fmt, ...)
{
    if (r->status != ARIL_OK) return false;
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    r->status = aril__fail(ARIL_ERR_FORMAT, "%s: %s", r->name, text);
    r->j.wrong = "stopped"; /* ends all loops */
    return false;
}

bool aril__read_failed(aril__reading *r, aril_status status)
{
    if (r->status == ARIL_OK) r->status = status;
    r->j.wrong = "stopped";
    return false;
}

/* The bytes of a token's text in r->bytes, and whether it is spelled in the alphabet. */
static bool to_bytes(aril__reading *r, const char *text, size_t n, bool *spelled)
{
    r->bytes.n = 0;
    unsigned char *to = aril__bytes_add(&r->bytes, NULL, n);
    if (!to) return aril__read_failed(r, aril__fail(ARIL_ERR_MEMORY, "out of memory for a token"));
    int64_t size = r->t->kind->spelled ? aril__alphabet_to_bytes(text, n, to) : -1;
    *spelled = size >= 0;
    if (size < 0) memcpy(to, text, n);
    r->bytes.n = size < 0 ? n : (size_t)size;
    return true;
}

bool aril__read_bool(aril__reading *r)
{
    bool yes = aril__json_peek(&r->j) == 't';
    if (!yes && aril__json_peek(&r->j) != 'f')
        return aril__json_wrong(&r->j, "true or false was expected");
    aril__json_skip(&r->j);
    return yes;
}

bool aril__read_null(aril__reading *r)
{
    if (aril__json_peek(&r->j) != 'n') return false;
    aril__json_skip(&r->j);
    return true;
}

/* ---- vocabularies ---- */

bool aril__read_token(aril__reading *r, const char *text, uint64_t id, unsigned kind)
{
    bool spelled;
    if (!to_bytes(r, text, strlen(text), &spelled)) return false;
    /* An entry takes at least 5 characters ("a":0), so that ids far beyond are refused. */
    if (id > r->j.size / 5 + HOLES)
        return aril__read_wrong(r, "the id %llu of '%.40s' is too large for a file of %zu bytes",
                                (unsigned long long)id, text, r->j.size);
    aril_status s = aril__token_add(r->t, r->name, (int64_t)id, r->bytes.at, r->bytes.n,
                                    kind | (spelled ? ARIL__TOKEN_BYTES : 0));
    return s == ARIL_OK || aril__read_failed(r, s);
}

void aril__read_vocab(aril__reading *r)
{
    aril__json *j = &r->j;
    for (bool more = aril__json_enter(j, '{'); more; more = aril__json_more(j, '}')) {
        char *text = aril__json_key(j);
        uint64_t id;
        if (text && aril__json_unsigned(j, &id)) aril__read_token(r, text, id, ARIL__TOKEN_MODEL);
        free(text);
    }
    r->has_vocab = true;
}

/* ---- merges ---- */

static int64_t token_of(aril__reading *r, const char *text, size_t n)
{
    bool spelled;
    if (!to_bytes(r, text, n, &spelled)) return -1;
    return aril__token_find(r->t, r->bytes.at, r->bytes.n, spelled);
}

static bool add_merge(aril__reading *r, const char *left, size_t n_left, const char *right,
                      size_t n_right)
{
    int64_t a = token_of(r, left, n_left), b = token_of(r, right, n_right);
    if (r->status != ARIL_OK) return false;
    if (a < 0 || b < 0)
        return aril__read_wrong(r,
                                "merge %lld names the token '%.*s', which is not in the vocabulary",
                                (long long)r->t->merges + 1,
                                a < 0 ? (int)(n_left < 80 ? n_left : 80)
                                      : (int)(n_right < 80 ? n_right : 80),
                                a < 0 ? left : right);
    const aril__token *x = &r->t->token[a], *y = &r->t->token[b];
    r->bytes.n = 0;
    aril__bytes_add(&r->bytes, r->t->text.at + x->at, x->size);
    if (!aril__bytes_add(&r->bytes, r->t->text.at + y->at, y->size))
        return aril__read_failed(r, aril__fail(ARIL_ERR_MEMORY, "out of memory for a token"));
    bool spelled = x->kind & y->kind & ARIL__TOKEN_BYTES;
    int64_t c = aril__token_find(r->t, r->bytes.at, r->bytes.n, spelled);
    if (c < 0)
        return aril__read_wrong(
            r, "merge %lld makes the token '%.*s%.*s', which is not in the vocabulary",
            (long long)r->t->merges + 1, (int)(n_left < 80 ? n_left : 80), left,
            (int)(n_right < 80 ? n_right : 80), right);
    aril_status s = aril__merge_add(r->t, (uint32_t)a, (uint32_t)b, (uint32_t)c);
    return s == ARIL_OK || aril__read_failed(r, s);
}

/* A merge as text: two tokens with a space between them. */
static bool add_merge_line(aril__reading *r, const char *line, size_t n)
{
    const char *space = memchr(line, ' ', n);
    size_t left = space ? (size_t)(space - line) : 0;
    if (!space || left == 0 || left + 1 == n || memchr(space + 1, ' ', n - left - 1))
        return aril__read_wrong(r,
                                "merge %lld: expected two tokens with a space between, got '%.*s'",
                                (long long)r->t->merges + 1, (int)(n < 80 ? n : 80), line);
    return add_merge(r, line, left, space + 1, n - left - 1);
}

static void read_pair(aril__reading *r)
{
    aril__json *j = &r->j;
    char *part[2] = { NULL, NULL };
    int n = 0;
    for (bool more = aril__json_enter(j, '['); more; more = aril__json_more(j, ']')) {
        if (n == 2) {
            aril__json_wrong(j, "a merge of two tokens was expected");
            break;
        }
        part[n++] = aril__json_string(j);
    }
    if (!j->wrong && n < 2) aril__json_wrong(j, "a merge of two tokens was expected");
    if (!j->wrong && part[0] && part[1])
        add_merge(r, part[0], strlen(part[0]), part[1], strlen(part[1]));
    free(part[0]);
    free(part[1]);
}

static void read_merges(aril__reading *r)
{
    aril__json *j = &r->j;
    for (bool more = aril__json_enter(j, '['); more; more = aril__json_more(j, ']')) {
        if (aril__json_peek(j) == '[') {
            read_pair(r);
            continue;
        }
        char *line = aril__json_string(j);
        if (line) add_merge_line(r, line, strlen(line));
        free(line);
    }
    r->has_merges = true;
}

static void read_merge_lines(aril__reading *r, const char *text, size_t size)
{
    static const char version[] = "#version";
    for (size_t at = 0; at < size && r->status == ARIL_OK;) {
        const char *line = text + at, *end = memchr(line, '\n', size - at);
        size_t n = end ? (size_t)(end - line) : size - at;
        bool first = at == 0;
        at += n + 1;
        if (n > 0 && line[n - 1] == '\r') n--;
        if (n == 0 || (first && n >= 8 && memcmp(line, version, 8) == 0)) continue;
        add_merge_line(r, line, n);
    }
}

/* ---- tokenizer.json ---- */

void aril__read_refuse(aril__reading *r, const char *what, const char *got)
{
    if (r->status == ARIL_OK)
        aril__read_failed(r, aril__fail(ARIL_ERR_UNSUPPORTED, "%s: expected %s, but %s is %s",
                                        r->name, r->format->expected, what, got));
}

/* A value that must be null or an empty string, or false. */
static void expect_nothing(aril__reading *r, const char *what)
{
    char c = aril__json_peek(&r->j);
    if (c == 'n' || c == 'f') {
        aril__json_skip(&r->j);
    } else if (c == '"') {
        char *text = aril__json_string(&r->j);
        if (text && *text) aril__read_refuse(r, what, text);
        free(text);
    } else if (c) {
        aril__read_refuse(r, what, "given");
    }
}

/* A string that must be this one. */
void aril__read_expect(aril__reading *r, const char *what, const char *wanted)
{
    char *text = aril__json_string(&r->j);
    if (text && strcmp(text, wanted) != 0) aril__read_refuse(r, what, text);
    free(text);
}

static void read_bpe(aril__reading *r)
{
    aril__json *j = &r->j;
    for (bool more = aril__json_enter(j, '{'); more; more = aril__json_more(j, '}')) {
        char *key = aril__json_key(j);
        if (!key) break;
        if (strcmp(key, "vocab") == 0 && !r->has_vocab)
            aril__read_vocab(r);
        else if (strcmp(key, "merges") == 0 && r->has_vocab && !r->has_merges)
            read_merges(r);
        else if (strcmp(key, "merges") == 0 && !r->has_merges && !r->merges_at)
            aril__json_peek(j), r->merges_at = j->at, aril__json_skip(j);
        else if (strcmp(key, "unk_token") == 0 && !r->unknown && !aril__read_null(r))
            r->unknown = aril__json_string(j);
        else if (strcmp(key, "dropout") == 0 || strcmp(key, "continuing_subword_prefix") == 0 ||
                 strcmp(key, "end_of_word_suffix") == 0 || strcmp(key, "fuse_unk") == 0 ||
                 strcmp(key, "byte_fallback") == 0 || strcmp(key, "ignore_merges") == 0)
            expect_nothing(r, key);
        else if (strcmp(key, "unk_token") != 0 || r->unknown)
            aril__json_skip(j);
        free(key);
    }
    if (!j->wrong && r->merges_at && !r->has_merges) { /* they came before the vocabulary */
        aril__json after = *j;
        j->at = r->merges_at;
        read_merges(r);
        if (!j->wrong) *j = after;
    }
    if (!j->wrong && (!r->has_vocab || !r->has_merges))
        aril__read_wrong(r, "the model has no %s", r->has_vocab ? "merges" : "vocab");
}

/* What text goes through before or after BPE: only ByteLevel with its regular expression. */
static void read_byte_level(aril__reading *r, const char *what, bool before)
{
    aril__json *j = &r->j;
    if (aril__read_null(r)) {
        aril__read_refuse(r, what, "missing");
        return;
    }
    for (bool more = aril__json_enter(j, '{'); more; more = aril__json_more(j, '}')) {
        char *key = aril__json_key(j);
        if (!key) break;
        if (strcmp(key, "type") == 0)
            aril__read_expect(r, what, "ByteLevel");
        else if (strcmp(key, "add_prefix_space") == 0 && before)
            r->t->prefix_space = aril__read_bool(r);
        else if (strcmp(key, "use_regex") == 0 && before) {
            if (!aril__read_bool(r)) aril__read_refuse(r, "its regular expression", "another");
        } else
            aril__json_skip(j);
        free(key);
    }
}

typedef struct added {
    char *content;
    uint64_t id;
    unsigned kind;
    bool has_id, single_word;
} added;

static void add_added(aril__reading *r, const added *a)
{
    if (r->j.wrong) return;
    if (!a->content || !a->has_id) {
        aril__json_wrong(&r->j, "an added token needs an id and a content");
        return;
    }
    if (a->single_word) {
        aril__read_refuse(r, a->content, "a token of single words (single_word)");
        return;
    }
    /* A text that reads otherwise than it is spelled ("\u0120") may be a token of the
     * vocabulary, or another token of that text. */
    size_t n = strlen(a->content);
    bool spelled;
    if (!to_bytes(r, a->content, n, &spelled)) return;
    int64_t id = spelled ? aril__token_find(r->t, r->bytes.at, r->bytes.n, true) : -1;
    spelled &= r->bytes.n == n && memcmp(r->bytes.at, a->content, n) == 0;
    if (!spelled && (id < 0 || (uint64_t)id != a->id))
        id = aril__token_find(r->t, a->content, n, false);
    if (id >= 0 && (uint64_t)id != a->id) {
        aril__read_wrong(r, "the added token '%.80s' has the id %llu, but %lld in the vocabulary",
                         a->content, (unsigned long long)a->id, (long long)id);
        return;
    }
    aril_status s = ARIL_OK;
    if (id < 0) {
        if (a->id > r->j.size / 5 + HOLES) {
            aril__read_wrong(r, "the id %llu of '%.40s' is too large for a file of %zu bytes",
                             (unsigned long long)a->id, a->content, r->j.size);
            return;
        }
        s = aril__token_add(r->t, r->name, id = (int64_t)a->id, a->content, n,
                            spelled ? ARIL__TOKEN_BYTES : 0);
    }
    if (s == ARIL_OK) s = aril__token_mark(r->t, id, a->kind);
    if (s != ARIL_OK) aril__read_failed(r, s);
}

static void read_added(aril__reading *r)
{
    aril__json *j = &r->j;
    for (bool more = aril__json_enter(j, '['); more; more = aril__json_more(j, ']')) {
        added a = { 0 };
        for (bool field = aril__json_enter(j, '{'); field; field = aril__json_more(j, '}')) {
            char *key = aril__json_key(j);
            if (!key) break;
            if (strcmp(key, "content") == 0 && !a.content)
                a.content = aril__json_string(j);
            else if (strcmp(key, "id") == 0)
                a.has_id = aril__json_unsigned(j, &a.id);
            else if (strcmp(key, "special") == 0)
                a.kind |= aril__read_bool(r) ? ARIL__TOKEN_SPECIAL : 0;
            else if (strcmp(key, "lstrip") == 0)
                a.kind |= aril__read_bool(r) ? ARIL__TOKEN_LEFT : 0;
            else if (strcmp(key, "rstrip") == 0)
                a.kind |= aril__read_bool(r) ? ARIL__TOKEN_RIGHT : 0;
            else if (strcmp(key, "normalized") == 0)
                a.kind |= aril__read_bool(r) ? ARIL__TOKEN_LATER : 0;
            else if (strcmp(key, "single_word") == 0)
                a.single_word = aril__read_bool(r);
            else
                aril__json_skip(j);
            free(key);
        }
        add_added(r, &a);
        free(a.content);
    }
}

static void read_pre_tokenizer(aril__reading *r)
{
    read_byte_level(r, "the pre_tokenizer", true);
}

static void read_decoder(aril__reading *r)
{
    read_byte_level(r, "the decoder", false);
}

static void read_normalizer(aril__reading *r)
{
    expect_nothing(r, "the normalizer");
}

static const aril__tokenizer_format bpe = { .kind = &aril__tokenizer_bpe,
                                            .expected = "a byte-level BPE as GPT-2's",
                                            .model = read_bpe,
                                            .pre_tokenizer = read_pre_tokenizer,
                                            .decoder = read_decoder,
                                            .normalizer = read_normalizer };
static const aril__tokenizer_format *const formats[] = { &bpe, &aril__wordpiece_format };

enum { MODEL, ADDED, PRE_TOKENIZER, DECODER, NORMALIZER, PARTS };

/* The positions of the values of the outermost object that are read; 0: missing. */
static void find_parts(aril__reading *r, size_t at[PARTS])
{
    static const char *const keys[PARTS] = { "model", "added_tokens", "pre_tokenizer", "decoder",
                                             "normalizer" };
    aril__json *j = &r->j;
    for (bool more = aril__json_enter(j, '{'); more; more = aril__json_more(j, '}')) {
        char *key = aril__json_key(j);
        aril__json_peek(j);
        for (int i = 0; i < PARTS && key; i++)
            if (strcmp(key, keys[i]) == 0) at[i] = j->at;
        free(key);
        aril__json_skip(j);
    }
    aril__json_end(j);
}

/* Finds the format by the type of the model, which files without one need not name. */
static void find_format(aril__reading *r)
{
    aril__json j = r->j;
    char *type = NULL;
    for (bool more = aril__json_enter(&j, '{'); more; more = aril__json_more(&j, '}')) {
        char *key = aril__json_key(&j);
        if (key && strcmp(key, "type") == 0 && !type)
            type = aril__json_string(&j);
        else
            aril__json_skip(&j);
        free(key);
    }
    size_t i = 0, n = sizeof formats / sizeof *formats;
    while (type && i < n && strcmp(type, formats[i]->kind->model) != 0) i++;
    if (i < n) {
        r->format = formats[i];
        r->t->kind = r->format->kind;
    } else {
        aril__read_refuse(r, "the type of the model", type);
    }
    free(type);
}

/* Added tokens may be in the vocabulary of the model, which is read first. */
static void read_parts(aril__reading *r)
{
    size_t at[PARTS] = { 0 };
    find_parts(r, at);
    if (!r->j.wrong && !at[MODEL])
        aril__read_wrong(r, "it has no model: expected a tokenizer.json");
    for (int i = 0; i < PARTS && !r->j.wrong; i++) {
        if (i > MODEL && !at[PRE_TOKENIZER]) aril__read_refuse(r, "the pre_tokenizer", "missing");
        if (!at[i]) continue;
        r->j.at = at[i];
        r->j.depth = 0;
        if (i == MODEL) find_format(r);
        aril__tokenizer_part *const part[PARTS] = { r->format->model, read_added,
                                                    r->format->pre_tokenizer, r->format->decoder,
                                                    r->format->normalizer };
        if (!r->j.wrong) part[i](r);
    }
    if (!r->j.wrong && r->format->finish) r->format->finish(r);
}

/* ---- whole files ---- */

/* Reports what is wrong, if anything, and completes the tokenizer. */
aril_tokenizer *aril__read_finish(aril__reading *r)
{
    if (r->status == ARIL_OK && r->j.wrong)
        r->status = aril__fail(r->j.memory ? ARIL_ERR_MEMORY : ARIL_ERR_FORMAT,
                               "%s: %s at character %zu", r->name, r->j.wrong, r->j.at);
    if (r->status == ARIL_OK && r->unknown && r->t->unknown < 0) {
        r->t->unknown = aril_tokenizer_id(r->t, r->unknown);
        if (r->t->unknown < 0)
            aril__read_wrong(r, "the unknown token '%.80s' is not in the vocabulary", r->unknown);
    }
    if (r->status == ARIL_OK) r->status = aril__tokenizer_ready(r->t);
    aril__bytes_free(&r->bytes);
    free(r->unknown);
    if (r->status == ARIL_OK) return r->t;
    aril_tokenizer_free(r->t);
    return NULL;
}

aril_tokenizer *aril__tokenizer_of_json(const char *path, const char *text, size_t size)
{
    aril__reading r = { .t = aril__tokenizer_new(),
                        .j = { .text = text, .size = size },
                        .name = path,
                        .format = &bpe };
    if (!r.t) return NULL;
    read_parts(&r);
    return aril__read_finish(&r);
}

/* Reads {"token":id, ...}; whatever follows is an error. */
static void read_vocab_file(aril__reading *r, const char *name, const aril__bytes *file, bool extra)
{
    if (r->status != ARIL_OK || r->j.wrong) return;
    r->name = name;
    r->j = (aril__json){ .text = (const char *)file->at, .size = file->n };
    if (!extra) aril__read_vocab(r);
    if (extra)
        for (bool more = aril__json_enter(&r->j, '{'); more; more = aril__json_more(&r->j, '}')) {
            added a = { .content = aril__json_key(&r->j), .kind = ARIL__TOKEN_SPECIAL };
            a.has_id = aril__json_unsigned(&r->j, &a.id);
            add_added(r, &a);
            free(a.content);
        }
    aril__json_end(&r->j);
}

aril_tokenizer *aril__tokenizer_of_files(const char *folder, const aril__bytes *vocab,
                                         const aril__bytes *merges, const aril__bytes *extra)
{
    aril__reading r = { .t = aril__tokenizer_new(), .name = folder, .format = &bpe };
    if (!r.t) return NULL;
    read_vocab_file(&r, "vocab.json", vocab, false);
    if (r.status == ARIL_OK && !r.j.wrong) {
        r.name = "merges.txt";
        read_merge_lines(&r, (const char *)merges->at, merges->n);
    }
    if (extra) read_vocab_file(&r, "added_tokens.json", extra, true);
    int64_t end = r.status == ARIL_OK ? aril_tokenizer_id(r.t, "<|endoftext|>") : -1;
    if (end >= 0) {
        aril_status s = aril__token_mark(r.t, end, ARIL__TOKEN_SPECIAL);
        if (s != ARIL_OK) aril__read_failed(&r, s);
    }
    return aril__read_finish(&r);
}

/* ---- paths ---- */

static char *joined(const char *folder, const char *name)
{
    aril__bytes b = { 0 };
    aril__bytes_print(&b, "%s/%s", folder, name);
    if (b.failed) {
        aril__bytes_free(&b);
        aril__fail(ARIL_ERR_MEMORY, "out of memory for a path");
    }
    return (char *)b.at;
}

static bool exists(const char *folder, const char *name)
{
    struct stat st;
    char *path = joined(folder, name);
    bool yes = path && stat(path, &st) == 0;
    free(path);
    return yes;
}

/* Reads a file of a folder (NULL: the path alone). */
static aril_status read_file(const char *folder, const char *name, aril__bytes *to)
{
    char *path = folder ? joined(folder, name) : aril__strdup(name);
    if (!path) return aril__fail(ARIL_ERR_MEMORY, "out of memory for a path");
    aril_status status = aril__read_file("tokenizer", path, LONGEST_FILE, to);
    free(path);
    return status;
}

static aril_tokenizer *load_files(const char *folder)
{
    aril__bytes vocab = { 0 }, merges = { 0 }, more = { 0 };
    bool extra = exists(folder, "added_tokens.json");
    aril_tokenizer *t = NULL;
    if (read_file(folder, "vocab.json", &vocab) == ARIL_OK &&
        read_file(folder, "merges.txt", &merges) == ARIL_OK &&
        (!extra || read_file(folder, "added_tokens.json", &more) == ARIL_OK))
        t = aril__tokenizer_of_files(folder, &vocab, &merges, extra ? &more : NULL);
    aril__bytes_free(&vocab);
    aril__bytes_free(&merges);
    aril__bytes_free(&more);
    return t;
}

static aril_tokenizer *load_lines(const char *folder, const char *name)
{
    aril__bytes vocab = { 0 }, config = { 0 };
    bool has_config = folder && exists(folder, "tokenizer_config.json");
    aril_tokenizer *t = NULL;
    if (read_file(folder, name, &vocab) == ARIL_OK &&
        (!has_config || read_file(folder, "tokenizer_config.json", &config) == ARIL_OK))
        t = aril__tokenizer_of_lines(name, &vocab, has_config ? &config : NULL);
    aril__bytes_free(&vocab);
    aril__bytes_free(&config);
    return t;
}

static aril_tokenizer *load_json(const char *folder, const char *name)
{
    aril__bytes text = { 0 };
    aril_tokenizer *t = NULL;
    if (read_file(folder, name, &text) == ARIL_OK)
        t = aril__tokenizer_of_json(name, (const char *)text.at, text.n);
    aril__bytes_free(&text);
    return t;
}

aril_tokenizer *aril_tokenizer_load(const char *path)
{
    struct stat st;
    if (!path) {
        aril__fail(ARIL_ERR_ARG, "tokenizer_load: the path is NULL");
        return NULL;
    }
    bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    if (!folder) {
        size_t n = strlen(path);
        bool lines = n > 4 && strcmp(path + n - 4, ".txt") == 0;
        return (lines ? load_lines : load_json)(NULL, path);
    }
    if (exists(path, "tokenizer.json")) return load_json(path, "tokenizer.json");
    if (exists(path, "vocab.json")) return load_files(path);
    if (exists(path, "vocab.txt")) return load_lines(path, "vocab.txt");
    aril__fail(ARIL_ERR_IO,
               "%s: expected tokenizer.json, or vocab.json and merges.txt, or vocab.txt", path);
    return NULL;
}
