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
#include "text/tokenizer.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LONGEST_FILE = 1 << 29, HOLES = 4096 };

/* What is being read. */
typedef struct reading {
    aril_tokenizer *t;
    aril__json j;
    const char *name; /* of the file */
    aril_status status;
    aril__bytes bytes; /* scratch memory */
    size_t merges_at;  /* where the merges begin, if they come before the vocabulary */
    char *unknown;     /* the text of the unknown token */
    bool has_vocab, has_merges, has_type;
} reading;

__attribute__((format(printf, 2, 3))) static bool wrong(reading *r, const char *fmt, ...)
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

static bool failed(reading *r, aril_status status)
{
    if (r->status == ARIL_OK) r->status = status;
    r->j.wrong = "stopped";
    return false;
}

/* The bytes of a token's text in r->bytes, and whether it is spelled in the alphabet. */
static bool to_bytes(reading *r, const char *text, size_t n, bool *spelled)
{
    r->bytes.n = 0;
    unsigned char *to = aril__bytes_add(&r->bytes, NULL, n);
    if (!to) return failed(r, aril__fail(ARIL_ERR_MEMORY, "out of memory for a token"));
    int64_t size = aril__alphabet_to_bytes(text, n, to);
    *spelled = size >= 0;
    if (size < 0) memcpy(to, text, n);
    r->bytes.n = size < 0 ? n : (size_t)size;
    return true;
}

static bool read_bool(reading *r)
{
    bool yes = aril__json_peek(&r->j) == 't';
    if (!yes && aril__json_peek(&r->j) != 'f')
        return aril__json_wrong(&r->j, "true or false was expected");
    aril__json_skip(&r->j);
    return yes;
}

static bool is_null(reading *r)
{
    if (aril__json_peek(&r->j) != 'n') return false;
    aril__json_skip(&r->j);
    return true;
}

/* ---- vocabularies ---- */

static bool add_vocab_token(reading *r, const char *text, uint64_t id, unsigned kind)
{
    bool spelled;
    if (!to_bytes(r, text, strlen(text), &spelled)) return false;
    /* An entry takes at least 5 characters ("a":0), so that ids far beyond are refused. */
    if (id > r->j.size / 5 + HOLES)
        return wrong(r, "the id %llu of '%.40s' is too large for a file of %zu bytes",
                     (unsigned long long)id, text, r->j.size);
    aril_status s = aril__token_add(r->t, r->name, (int64_t)id, r->bytes.at, r->bytes.n,
                                    kind | (spelled ? ARIL__TOKEN_BYTES : 0));
    return s == ARIL_OK || failed(r, s);
}

static void read_vocab(reading *r)
{
    aril__json *j = &r->j;
    for (bool more = aril__json_enter(j, '{'); more; more = aril__json_more(j, '}')) {
        char *text = aril__json_key(j);
        uint64_t id;
        if (text && aril__json_unsigned(j, &id)) add_vocab_token(r, text, id, ARIL__TOKEN_MODEL);
        free(text);
    }
    r->has_vocab = true;
}

/* ---- merges ---- */

static int64_t token_of(reading *r, const char *text, size_t n)
{
    bool spelled;
    if (!to_bytes(r, text, n, &spelled)) return -1;
    return aril__token_find(r->t, r->bytes.at, r->bytes.n, spelled);
}

static bool add_merge(reading *r, const char *left, size_t n_left, const char *right,
                      size_t n_right)
{
    int64_t a = token_of(r, left, n_left), b = token_of(r, right, n_right);
    if (r->status != ARIL_OK) return false;
    if (a < 0 || b < 0)
        return wrong(r, "merge %lld names the token '%.*s', which is not in the vocabulary",
                     (long long)r->t->merges + 1,
                     a < 0 ? (int)(n_left < 80 ? n_left : 80) : (int)(n_right < 80 ? n_right : 80),
                     a < 0 ? left : right);
    const aril__token *x = &r->t->token[a], *y = &r->t->token[b];
    r->bytes.n = 0;
    aril__bytes_add(&r->bytes, r->t->text.at + x->at, x->size);
    if (!aril__bytes_add(&r->bytes, r->t->text.at + y->at, y->size))
        return failed(r, aril__fail(ARIL_ERR_MEMORY, "out of memory for a token"));
    bool spelled = x->kind & y->kind & ARIL__TOKEN_BYTES;
    int64_t c = aril__token_find(r->t, r->bytes.at, r->bytes.n, spelled);
    if (c < 0)
        return wrong(r, "merge %lld makes the token '%.*s%.*s', which is not in the vocabulary",
                     (long long)r->t->merges + 1, (int)(n_left < 80 ? n_left : 80), left,
                     (int)(n_right < 80 ? n_right : 80), right);
    aril_status s = aril__merge_add(r->t, (uint32_t)a, (uint32_t)b, (uint32_t)c);
    return s == ARIL_OK || failed(r, s);
}

/* A merge as text: two tokens with a space between them. */
static bool add_merge_line(reading *r, const char *line, size_t n)
{
    const char *space = memchr(line, ' ', n);
    size_t left = space ? (size_t)(space - line) : 0;
    if (!space || left == 0 || left + 1 == n || memchr(space + 1, ' ', n - left - 1))
        return wrong(r, "merge %lld: expected two tokens with a space between, got '%.*s'",
                     (long long)r->t->merges + 1, (int)(n < 80 ? n : 80), line);
    return add_merge(r, line, left, space + 1, n - left - 1);
}

static void read_pair(reading *r)
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

static void read_merges(reading *r)
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

static void read_merge_lines(reading *r, const char *text, size_t size)
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

static void refuse(reading *r, const char *what, const char *got)
{
    if (r->status == ARIL_OK)
        failed(r, aril__fail(ARIL_ERR_UNSUPPORTED,
                             "%s: expected a byte-level BPE as GPT-2's, but %s is %s", r->name,
                             what, got));
}

/* A value that must be null or an empty string, or false. */
static void expect_nothing(reading *r, const char *what)
{
    char c = aril__json_peek(&r->j);
    if (c == 'n' || c == 'f') {
        aril__json_skip(&r->j);
    } else if (c == '"') {
        char *text = aril__json_string(&r->j);
        if (text && *text) refuse(r, what, text);
        free(text);
    } else if (c) {
        refuse(r, what, "given");
    }
}

/* A string that must be this one. */
static void expect_text(reading *r, const char *what, const char *wanted)
{
    char *text = aril__json_string(&r->j);
    if (text && strcmp(text, wanted) != 0) refuse(r, what, text);
    free(text);
}

static void read_model(reading *r)
{
    aril__json *j = &r->j;
    for (bool more = aril__json_enter(j, '{'); more; more = aril__json_more(j, '}')) {
        char *key = aril__json_key(j);
        if (!key) break;
        if (strcmp(key, "type") == 0)
            expect_text(r, "the type of the model", "BPE");
        else if (strcmp(key, "vocab") == 0 && !r->has_vocab)
            read_vocab(r);
        else if (strcmp(key, "merges") == 0 && r->has_vocab && !r->has_merges)
            read_merges(r);
        else if (strcmp(key, "merges") == 0 && !r->has_merges && !r->merges_at)
            aril__json_peek(j), r->merges_at = j->at, aril__json_skip(j);
        else if (strcmp(key, "unk_token") == 0 && !r->unknown && !is_null(r))
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
        wrong(r, "the model has no %s", r->has_vocab ? "merges" : "vocab");
}

/* What text goes through before or after BPE: only ByteLevel with its regular expression. */
static void read_byte_level(reading *r, const char *what, bool before)
{
    aril__json *j = &r->j;
    if (is_null(r)) {
        refuse(r, what, "missing");
        return;
    }
    for (bool more = aril__json_enter(j, '{'); more; more = aril__json_more(j, '}')) {
        char *key = aril__json_key(j);
        if (!key) break;
        if (strcmp(key, "type") == 0)
            expect_text(r, what, "ByteLevel");
        else if (strcmp(key, "add_prefix_space") == 0 && before)
            r->t->prefix_space = read_bool(r);
        else if (strcmp(key, "use_regex") == 0 && before) {
            if (!read_bool(r)) refuse(r, "its regular expression", "another");
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

static void add_added(reading *r, const added *a)
{
    if (r->j.wrong) return;
    if (!a->content || !a->has_id) {
        aril__json_wrong(&r->j, "an added token needs an id and a content");
        return;
    }
    if (a->single_word) {
        refuse(r, a->content, "a token of single words (single_word)");
        return;
    }
    /* Text that is spelled otherwise than it reads (a space) is no token of the vocabulary. */
    size_t n = strlen(a->content);
    bool spelled;
    if (!to_bytes(r, a->content, n, &spelled)) return;
    spelled &= r->bytes.n == n && memcmp(r->bytes.at, a->content, n) == 0;
    int64_t id = aril__token_find(r->t, a->content, n, spelled);
    if (id >= 0 && (uint64_t)id != a->id) {
        wrong(r, "the added token '%.80s' has the id %llu, but %lld in the vocabulary", a->content,
              (unsigned long long)a->id, (long long)id);
        return;
    }
    aril_status s = ARIL_OK;
    if (id < 0) {
        if (a->id > r->j.size / 5 + HOLES) {
            wrong(r, "the id %llu of '%.40s' is too large for a file of %zu bytes",
                  (unsigned long long)a->id, a->content, r->j.size);
            return;
        }
        s = aril__token_add(r->t, r->name, id = (int64_t)a->id, a->content, n,
                            spelled ? ARIL__TOKEN_BYTES : 0);
    }
    if (s == ARIL_OK) s = aril__token_mark(r->t, id, a->kind);
    if (s != ARIL_OK) failed(r, s);
}

static void read_added(reading *r)
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
                a.kind |= read_bool(r) ? ARIL__TOKEN_SPECIAL : 0;
            else if (strcmp(key, "lstrip") == 0)
                a.kind |= read_bool(r) ? ARIL__TOKEN_LEFT : 0;
            else if (strcmp(key, "rstrip") == 0)
                a.kind |= read_bool(r) ? ARIL__TOKEN_RIGHT : 0;
            else if (strcmp(key, "normalized") == 0)
                a.kind |= read_bool(r) ? ARIL__TOKEN_LATER : 0;
            else if (strcmp(key, "single_word") == 0)
                a.single_word = read_bool(r);
            else
                aril__json_skip(j);
            free(key);
        }
        add_added(r, &a);
        free(a.content);
    }
}

enum { MODEL, ADDED, PRE_TOKENIZER, DECODER, NORMALIZER, PARTS };

/* The positions of the values of the outermost object that are read; 0: missing. */
static void find_parts(reading *r, size_t at[PARTS])
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

/* Added tokens may be in the vocabulary of the model, which is read first. */
static void read_parts(reading *r)
{
    size_t at[PARTS] = { 0 };
    find_parts(r, at);
    if (!r->j.wrong && !at[MODEL]) wrong(r, "it has no model: expected a tokenizer.json");
    if (!r->j.wrong && !at[PRE_TOKENIZER]) refuse(r, "the pre_tokenizer", "missing");
    for (int i = 0; i < PARTS && !r->j.wrong; i++) {
        if (!at[i]) continue;
        r->j.at = at[i];
        r->j.depth = 0;
        switch (i) {
        case MODEL: read_model(r); break;
        case ADDED: read_added(r); break;
        case PRE_TOKENIZER: read_byte_level(r, "the pre_tokenizer", true); break;
        case DECODER: read_byte_level(r, "the decoder", false); break;
        default: expect_nothing(r, "the normalizer"); break;
        }
    }
}

/* ---- whole files ---- */

/* Reports what is wrong, if anything, and completes the tokenizer. */
static aril_tokenizer *finish(reading *r)
{
    if (r->status == ARIL_OK && r->j.wrong)
        r->status = aril__fail(r->j.memory ? ARIL_ERR_MEMORY : ARIL_ERR_FORMAT,
                               "%s: %s at character %zu", r->name, r->j.wrong, r->j.at);
    if (r->status == ARIL_OK && r->unknown) {
        r->t->unknown = aril_tokenizer_id(r->t, r->unknown);
        if (r->t->unknown < 0)
            wrong(r, "the unknown token '%.80s' is not in the vocabulary", r->unknown);
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
    reading r = { .t = aril__tokenizer_new(), .j = { .text = text, .size = size }, .name = path };
    if (!r.t) return NULL;
    read_parts(&r);
    return finish(&r);
}

/* Reads {"token":id, ...}; whatever follows is an error. */
static void read_vocab_file(reading *r, const char *name, const aril__bytes *file, bool extra)
{
    if (r->status != ARIL_OK || r->j.wrong) return;
    r->name = name;
    r->j = (aril__json){ .text = (const char *)file->at, .size = file->n };
    if (!extra) read_vocab(r);
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
    reading r = { .t = aril__tokenizer_new(), .name = folder };
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
        if (s != ARIL_OK) failed(&r, s);
    }
    return finish(&r);
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
    if (!folder) return load_json(NULL, path);
    if (exists(path, "tokenizer.json")) return load_json(path, "tokenizer.json");
    if (exists(path, "vocab.json")) return load_files(path);
    aril__fail(ARIL_ERR_IO, "%s: expected tokenizer.json, or vocab.json and merges.txt", path);
    return NULL;
}
