/* The tokenizer beside the package tokenizers; files, streams, and what is refused. */
#include "aril/aril.h"
#include "core/tensor.h"
#include "formats/bytes.h"
#include "support/temp.h"
#include "support/test.h"
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "text/tokens.inc"

enum { EXPECTED = sizeof expected / sizeof *expected };
static const char *const special[] = { "<|endoftext|>" };

static aril_tokenizer *trained(void)
{
    return aril_tokenizer_train(corpus, strlen(corpus),
                                (aril_tokenizer_opts){
                                    .size = TOKENS, .special = special, .n_special = 1 });
}

/* Whether a tokenizer gives the expected tokens, and the texts back. */
static void check(const aril_tokenizer *t, const char *what)
{
    CHECK_MSG(t, "%s: %s", what, aril_error());
    CHECK_INT(aril_tokenizer_size(t), TOKENS);
    for (int i = 0; i < EXPECTED; i++) {
        ARIL_SCOPE;
        const struct tokens *e = &expected[i];
        aril_tensor *ids = aril_tokenizer_encode(t, e->text, (aril_encode_opts){ .size = e->size });
        const int64_t *id = aril_data(ids);
        bool same = aril_numel(ids) == e->n && memcmp(id, e->id, (size_t)e->n * 8) == 0;
        CHECK_MSG(same, "%s: other tokens for %s", what, e->text);
        size_t size;
        char *text = aril_tokenizer_decode(t, ids, (aril_decode_opts){ .size = &size });
        same = text && size == e->size && memcmp(text, e->text, size) == 0;
        free(text);
        CHECK_MSG(same, "%s: another text for %s", what, e->text);
    }
}

TEST(learns_the_tokens_that_others_learn)
{
    aril_tokenizer *t = trained();
    check(t, "trained");
    aril_tokenizer_free(t);
}

static void copy_file(const char *from, const char *to)
{
    aril__bytes b = { 0 };
    CHECK_INT(aril__read_file("tokenizer", temp_path(from), 0, &b), ARIL_OK);
    FILE *f = fopen(temp_path(to), "wb");
    fwrite(b.at, 1, b.n, f);
    fclose(f);
    aril__bytes_free(&b);
}

TEST(files_hold_the_same_tokenizer)
{
    aril_tokenizer *t = trained(), *read;
    CHECK_INT(aril_tokenizer_save(t, temp_path("saved")), ARIL_OK);
    aril_tokenizer_free(t);
    check(read = aril_tokenizer_load(temp_path("saved")), "a folder with tokenizer.json");
    aril_tokenizer_free(read);
    check(read = aril_tokenizer_load(temp_path("saved/tokenizer.json")), "tokenizer.json");
    aril_tokenizer_free(read);
    CHECK_INT(aril_folder_create(temp_path("pair")), ARIL_OK);
    copy_file("saved/vocab.json", "pair/vocab.json");
    copy_file("saved/merges.txt", "pair/merges.txt");
    check(read = aril_tokenizer_load(temp_path("pair")), "vocab.json and merges.txt");
    CHECK(aril_tokenizer_is_special(read, 0));
    CHECK_INT(aril_tokenizer_add_special(read, "<|pad|>"), TOKENS);
    CHECK_INT(aril_tokenizer_save(read, temp_path("pair")), ARIL_OK);
    aril_tokenizer_free(read);
    CHECK_INT(remove(temp_path("pair/tokenizer.json")), 0);
    read = aril_tokenizer_load(temp_path("pair"));
    CHECK_MSG(read, "%s", aril_error());
    CHECK_INT(aril_tokenizer_id(read, "<|pad|>"), TOKENS); /* from added_tokens.json */
    CHECK(aril_tokenizer_is_special(read, TOKENS));
    aril_tokenizer_free(read);
    CHECK(aril_ok());
}

TEST(tokens_have_texts_and_numbers)
{
    aril_tokenizer *t = trained();
    size_t size;
    int64_t the = aril_tokenizer_id(t, " the");
    CHECK(the > 256);
    CHECK_STR(aril_tokenizer_token(t, the, &size), " the");
    CHECK_INT(size, 4);
    CHECK_INT(aril_tokenizer_id(t, "<|endoftext|>"), 0);
    CHECK_INT(aril_tokenizer_id(t, "no such token"), -1);
    CHECK(aril_tokenizer_token(t, TOKENS, NULL) == NULL);
    CHECK(aril_tokenizer_token(t, -1, NULL) == NULL);
    CHECK(aril_tokenizer_is_special(t, 0));
    CHECK(!aril_tokenizer_is_special(t, the));
    aril_tokenizer_free(t);
}

TEST(special_tokens_can_be_ordinary_text)
{
    ARIL_SCOPE;
    aril_tokenizer *t = trained();
    const char *text = "a<|endoftext|>b";
    aril_tensor *ids = aril_tokenizer_encode(t, text, (aril_encode_opts){ 0 });
    CHECK_INT(aril_numel(ids), 3);
    CHECK_INT(((const int64_t *)aril_data(ids))[1], 0);
    char *skipped = aril_tokenizer_decode(t, ids, (aril_decode_opts){ .skip_special = true });
    CHECK_STR(skipped, "ab");
    free(skipped);
    ids = aril_tokenizer_encode(t, text, (aril_encode_opts){ .plain = true });
    CHECK(aril_numel(ids) > 5);
    char *whole = aril_tokenizer_decode(t, ids, (aril_decode_opts){ .skip_special = true });
    CHECK_STR(whole, text);
    free(whole);
    aril_tokenizer_free(t);
}

TEST(any_bytes_survive)
{
    aril_tokenizer *t = trained();
    unsigned char bytes[512];
    uint64_t state = 3;
    for (int round = 0; round < 300; round++) {
        ARIL_SCOPE;
        size_t n = 1 + (size_t)round % sizeof bytes, size;
        for (size_t i = 0; i < n; i++) {
            state = state * UINT64_C(6364136223846793005) + 1;
            bytes[i] = (unsigned char)(round % 3 ? state >> 40 : 0xc0 | state >> 58);
        }
        aril_tensor *ids =
            aril_tokenizer_encode(t, (const char *)bytes, (aril_encode_opts){ .size = n });
        char *text =
            aril_tokenizer_decode(t, ids, (aril_decode_opts){ .raw = true, .size = &size });
        bool same = text && size == n && memcmp(text, bytes, n) == 0;
        free(text);
        CHECK(same);
        text = aril_tokenizer_decode(t, ids, (aril_decode_opts){ .size = &size });
        same = text != NULL;
        for (size_t i = 0; i < size && same;) { /* what is printed is UTF-8 */
            int k = aril__utf8_length((const unsigned char *)text + i, size - i);
            same = k > 0;
            i += (size_t)k;
        }
        free(text);
        CHECK(same);
    }
    aril_tokenizer_free(t);
}

TEST(streams_give_whole_characters)
{
    aril_tokenizer *t = trained();
    aril_text_stream *s = aril_text_stream_new(t, (aril_decode_opts){ 0 });
    for (int i = 0; i < EXPECTED; i++) {
        const struct tokens *e = &expected[i];
        aril__bytes all = { 0 };
        for (int k = 0; k < e->n; k++) {
            const char *part = aril_text_stream_add(s, e->id[k]);
            CHECK(part);
            for (const char *p = part; *p;) {
                int n = aril__utf8_length((const unsigned char *)p, strlen(p));
                CHECK(n > 0);
                p += n;
            }
            aril__bytes_add(&all, part, strlen(part));
        }
        CHECK_STR(aril_text_stream_end(s), "");
        if (strlen(e->text) == e->size) CHECK_STR((const char *)all.at, e->text);
        aril__bytes_free(&all);
    }
    CHECK_STR(aril_text_stream_add(s, aril_tokenizer_id(t, "\xf0")), "");
    CHECK_STR(aril_text_stream_add(s, aril_tokenizer_id(t, "\x9f")), "");
    CHECK_STR(aril_text_stream_add(s, aril_tokenizer_id(t, "a")), "\xef\xbf\xbd"
                                                                  "a");
    CHECK_STR(aril_text_stream_add(s, aril_tokenizer_id(t, "\xf0")), "");
    CHECK_STR(aril_text_stream_end(s), "\xef\xbf\xbd");
    CHECK_STR(aril_text_stream_end(s), "");
    CHECK(aril_text_stream_add(s, TOKENS) == NULL);
    CHECK(strstr(aril_error(), "no token"));
    aril_clear_error();
    aril_text_stream_free(s);
    aril_tokenizer_free(t);
}

TEST(long_words_take_time_by_their_length)
{
    ARIL_SCOPE;
    enum { LONG = 1 << 20 };
    aril_tokenizer *t = trained();
    char *text = malloc(LONG + 1);
    for (int i = 0; i < LONG; i++) text[i] = "thenthrough"[i % 11];
    text[LONG] = '\0';
    aril_tensor *ids = aril_tokenizer_encode(t, text, (aril_encode_opts){ 0 });
    CHECK(aril_numel(ids) > LONG / 11 && aril_numel(ids) < LONG);
    char *back = aril_tokenizer_decode(t, ids, (aril_decode_opts){ 0 });
    bool same = back && strcmp(back, text) == 0;
    free(back);
    free(text);
    aril_tokenizer_free(t);
    CHECK(same);
}

/* ---- what is refused ---- */

#define BPE(vocab, merges) "\"model\":{\"type\":\"BPE\",\"vocab\":" vocab ",\"merges\":" merges "}"
#define BYTE_LEVEL         "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"

static const struct {
    const char *text, *says;
} refused[] = {
    { "", "expected" },
    { "{}", "no model" },
    { "[]", "object was expected" },
    { "{" BPE("{\"a\":0}", "[]") "}", "pre_tokenizer is missing" },
    { "{" BPE("{\"a\":0}", "[]") ",\"pre_tokenizer\":null}", "pre_tokenizer is missing" },
    { "{" BPE("{\"a\":0}", "[]") ",\"pre_tokenizer\":{\"type\":\"Whitespace\"}}", "Whitespace" },
    { "{" BYTE_LEVEL ",\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", "Unigram" },
    { "{" BYTE_LEVEL "," BPE("{\"a\":0,\"b\":0}", "[]") "}", "two tokens have the id 0" },
    { "{" BYTE_LEVEL "," BPE("{\"a\":0,\"a\":1}", "[]") "}", "are the same" },
    { "{" BYTE_LEVEL "," BPE("{\"a\":4000000000}", "[]") "}", "too large" },
    { "{" BYTE_LEVEL "," BPE("{\"a\":-1}", "[]") "}", "integer was expected" },
    { "{" BYTE_LEVEL "," BPE("{\"a\":0}", "[\"a b\"]") "}", "'b', which is not in the vocab" },
    { "{" BYTE_LEVEL "," BPE("{\"a\":0,\"b\":1}", "[\"a b\"]") "}", "makes the token 'ab'" },
    { "{" BYTE_LEVEL "," BPE("{\"a\":0}", "[\"a\"]") "}", "two tokens with a space" },
    { "{" BYTE_LEVEL "," BPE("{\"a\":0}", "[\"a a a\"]") "}", "two tokens with a space" },
    { "{" BYTE_LEVEL "," BPE("{\"a\":0}", "[[\"a\"]]") "}", "a merge of two tokens" },
    { "{" BYTE_LEVEL "," BPE("{\"a\":0}", "[[\"a\",\"a\",\"a\"]]") "}", "a merge of two tokens" },
    { "{" BYTE_LEVEL ",\"model\":{\"vocab\":{\"a\":0}}}", "no merges" },
    { "{" BYTE_LEVEL ",\"model\":{\"merges\":[]}}", "no vocab" },
    { "{" BYTE_LEVEL ",\"normalizer\":{\"type\":\"NFC\"}," BPE("{\"a\":0}", "[]") "}",
      "the normalizer is" },
    { "{" BYTE_LEVEL ",\"added_tokens\":[{\"id\":1}]," BPE("{\"a\":0}", "[]") "}", "a content" },
    { "{" BYTE_LEVEL ",\"added_tokens\":[{\"id\":1,\"content\":\"a\"}]," BPE("{\"a\":0}", "[]") "}",
      "but 0 in the vocabulary" },
    { "{" BYTE_LEVEL
      ",\"added_tokens\":[{\"id\":99999,\"content\":\"x\"}]," BPE("{\"a\":0}", "[]") "}",
      "too large" },
    { "{" BYTE_LEVEL "," BPE("{\"a\":0}", "[]") ",}", "string was expected" },
};

TEST(malformed_files_are_refused)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const char *text = refused[i].text;
        aril_tokenizer *t = aril__tokenizer_of_json("file", text, strlen(text));
        CHECK_MSG(!t, "read: %s", text);
        CHECK_MSG(strstr(aril_error(), refused[i].says), "%s: %s", text, aril_error());
        aril_clear_error();
    }
    CHECK(aril_tokenizer_load(temp_path("none")) == NULL);
    CHECK_INT(aril_error_code(), ARIL_ERR_IO);
    aril_clear_error();
    CHECK(aril_tokenizer_load(temp_path("")) == NULL);
    CHECK(strstr(aril_error(), "expected tokenizer.json, or vocab.json and merges.txt"));
    aril_clear_error();
}

TEST(merges_may_come_before_the_vocabulary)
{
    ARIL_SCOPE;
    static const char text[] =
        "{" BYTE_LEVEL ",\"model\":{\"merges\":[\"a b\"],\"unk_token\":\"?\","
        "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"?\":3}}}";
    aril_tokenizer *t = aril__tokenizer_of_json("file", text, strlen(text));
    CHECK_MSG(t, "%s", aril_error());
    aril_tensor *ids = aril_tokenizer_encode(t, "abac", (aril_encode_opts){ 0 });
    CHECK_INT(aril_numel(ids), 3);
    const int64_t *id = aril_data(ids);
    CHECK(id[0] == 2 && id[1] == 0 && id[2] == 3); /* c is unknown */
    aril_tokenizer_free(t);
}

static void add_added(aril__bytes *to, const char *first, const char *second, bool normalized)
{
    const char *const content[] = { first, second };
    for (int i = 0; i < 2 && content[i]; i++)
        aril__bytes_print(to, "%s{\"id\":%d,\"content\":\"%s\",\"rstrip\":%s,\"normalized\":%s}",
                          i ? "," : "", 5 + i, content[i], i ? "false" : "true",
                          normalized ? "true" : "false");
}

/* All added tokens are found before the first takes the white space behind it. The ids are those of
 * the package tokenizers. */
TEST(added_tokens_share_white_space)
{
    static const struct {
        const char *added[2]; /* 5, which takes the white space behind it, and 6, which does not */
        const char *text;
        int n;
        int64_t id[5];
    } cases[] = {
        { { " K" }, " K K", 2, { 5, 5 } },
        { { " K" }, "a K  K b", 4, { 0, 5, 5, 1 } },
        { { "\\n" }, "a\n\nb", 4, { 0, 5, 5, 1 } },
        { { "\\n" }, " \n \n ", 3, { 3, 5, 5 } },
        { { "  " }, "a     b", 4, { 0, 5, 5, 1 } },
        { { "  " }, "   a", 2, { 5, 0 } },
        { { "K", "  " }, "K   a", 4, { 5, 6, 3, 0 } },
        { { "K", "  " }, "K    ", 3, { 5, 6, 6 } },
        { { "K", "  " }, "aK  b", 4, { 0, 5, 6, 1 } },
        { { "K", "\\n " }, "K\n \na", 4, { 5, 6, 4, 0 } },
    };
    for (size_t i = 0; i < 2 * (sizeof cases / sizeof *cases); i++) {
        ARIL_SCOPE;
        aril__bytes b = { 0 };
        aril__bytes_print(&b, "{" BYTE_LEVEL ",\"added_tokens\":[");
        add_added(&b, cases[i / 2].added[0], cases[i / 2].added[1], i % 2);
        aril__bytes_print(&b, "]," BPE("{\"a\":0,\"b\":1,\"k\":2,\"\\u0120\":3,\"\\u010a\":4}",
                                       "[]") "}");
        aril_tokenizer *t = aril__tokenizer_of_json("file", (char *)b.at, b.n);
        aril__bytes_free(&b);
        CHECK_MSG(t, "%s", aril_error());
        aril_tensor *ids = aril_tokenizer_encode(t, cases[i / 2].text, (aril_encode_opts){ 0 });
        aril_tokenizer_free(t);
        CHECK_INT(aril_numel(ids), cases[i / 2].n);
        for (int k = 0; k < cases[i / 2].n; k++)
            CHECK_INT(((const int64_t *)aril_data(ids))[k], cases[i / 2].id[k]);
    }
}

/* Long white space of which tokens consist and which each of them takes: one reading of it. */
TEST(white_space_is_read_once)
{
    ARIL_SCOPE;
    enum { N = 1 << 22 };
    aril__bytes b = { 0 };
    aril__bytes_print(&b, "{" BYTE_LEVEL ",\"added_tokens\":[");
    add_added(&b, "  ", NULL, false);
    aril__bytes_print(&b, "]," BPE("{\"\\u0120\":3}", "[]") "}");
    aril_tokenizer *t = aril__tokenizer_of_json("file", (char *)b.at, b.n);
    aril__bytes_free(&b);
    CHECK_MSG(t, "%s", aril_error());
    char *text = malloc(N);
    if (text) memset(text, ' ', N);
    aril_tensor *ids = aril_tokenizer_encode(t, text, (aril_encode_opts){ .size = N });
    free(text);
    aril_tokenizer_free(t);
    CHECK_INT(aril_numel(ids), N / 2);
}

/* ---- letters of the alphabet that spells bytes ---- */

static int64_t only_id(const aril_tokenizer *t, const char *text)
{
    ARIL_SCOPE;
    aril_tensor *ids = aril_tokenizer_encode(t, text, (aril_encode_opts){ 0 });
    return aril_numel(ids) == 1 ? *(const int64_t *)aril_data(ids) : -1;
}

/* A special token that is spelled as one of bytes is that token. */
TEST(special_tokens_may_be_spelled_as_bytes)
{
    static const char *const marks[] = { "<e>", "\u00e9", "\u0120", "\u0120t" };
    static const char text[] = "the tea \u00e9t\u00e9 a tea the tea";
    aril_tokenizer *t = aril_tokenizer_train(
        text, strlen(text), (aril_tokenizer_opts){ .size = 270, .special = marks, .n_special = 4 });
    CHECK_MSG(t, "%s", aril_error());
    CHECK(aril_tokenizer_save(t, temp_path("letters")) == ARIL_OK);
    aril_tokenizer *read = aril_tokenizer_load(temp_path("letters"));
    CHECK_MSG(read, "%s", aril_error());
    for (int i = 0; i < 2; i++) {
        const aril_tokenizer *k = i ? read : t;
        CHECK_INT(aril_tokenizer_size(k), aril_tokenizer_size(t));
        for (int id = 0; id < 4; id++) {
            CHECK_INT(only_id(k, marks[id]), id);
            CHECK_INT(aril_tokenizer_id(k, marks[id]), id);
            CHECK(aril_tokenizer_is_special(k, id));
        }
        CHECK_STR(aril_tokenizer_token(k, 1, NULL), "\xe9");
        CHECK_STR(aril_tokenizer_token(k, 3, NULL), " t");
        CHECK_STR(aril_tokenizer_token(k, 4, NULL), "!");
        CHECK_INT(only_id(k, " "), 2);
    }
    aril_tokenizer_free(t);
    aril_tokenizer_free(read);

    t = aril_tokenizer_train("", 0, (aril_tokenizer_opts){ .size = 256 });
    CHECK_INT(aril_tokenizer_add_special(t, "\u00e9"), 165); /* as the package tokenizers does */
    CHECK_INT(aril_tokenizer_add_special(t, " t"), 256);
    CHECK(aril_tokenizer_save(t, temp_path("added")) == ARIL_OK);
    read = aril_tokenizer_load(temp_path("added"));
    CHECK_MSG(read, "%s", aril_error());
    CHECK(only_id(read, "\u00e9") == 165 && only_id(t, "\u00e9") == 165);
    CHECK(only_id(read, " t") == 256 && only_id(t, " t") == 256);
    aril_tokenizer_free(t);
    aril_tokenizer_free(read);
}

TEST(wrong_calls_are_errors)
{
    ARIL_SCOPE;
    aril_tokenizer *t = trained();
    aril_tensor *bad = aril_scalar(0.5);
    CHECK(aril_tokenizer_decode(t, bad, (aril_decode_opts){ 0 }) == NULL);
    CHECK(strstr(aril_error(), "expected integers"));
    aril_clear_error();
    int64_t id = TOKENS;
    bad = aril_from(&id, ARIL_SHAPE(1), ARIL_I64, aril_cpu());
    CHECK(aril_tokenizer_decode(t, bad, (aril_decode_opts){ 0 }) == NULL);
    CHECK_INT(aril_error_code(), ARIL_ERR_INDEX);
    aril_clear_error();
    CHECK(aril_tokenizer_train("x", 1, (aril_tokenizer_opts){ .size = 10 }) == NULL);
    CHECK(strstr(aril_error(), "from 256"));
    aril_clear_error();
    CHECK(aril_tensor_status(aril_tokenizer_encode(NULL, "x", (aril_encode_opts){ 0 })) < 0);
    aril_clear_error();
    aril_tokenizer_free(t);
    t = aril_tokenizer_train("", 0, (aril_tokenizer_opts){ .size = 300 });
    CHECK_INT(aril_tokenizer_size(t), 256); /* nothing to merge */
    CHECK_INT(aril_numel(aril_tokenizer_encode(t, "", (aril_encode_opts){ 0 })), 0);
    aril_tokenizer_free(t);
}

/* ---- out of memory, and damaged files ---- */

static bool use_all(void)
{
    ARIL_SCOPE;
    aril_tokenizer *t =
        aril_tokenizer_train("the then there", 14, (aril_tokenizer_opts){ .size = 262 });
    bool good = t != NULL;
    if (good) good = aril_tokenizer_add_special(t, "<|x|>") >= 0;
    if (good) good = aril_tokenizer_save(t, temp_path("fault")) == ARIL_OK;
    aril_tokenizer *read = good ? aril_tokenizer_load(temp_path("fault")) : NULL;
    good = read != NULL;
    aril_tensor *ids =
        good ? aril_tokenizer_encode(read, "the<|x|> then", (aril_encode_opts){ 0 }) : NULL;
    char *text = good ? aril_tokenizer_decode(read, ids, (aril_decode_opts){ 0 }) : NULL;
    good = text && strcmp(text, "the<|x|> then") == 0;
    free(text);
    aril_text_stream *s = good ? aril_text_stream_new(read, (aril_decode_opts){ 0 }) : NULL;
    good = s && aril_text_stream_add(s, 70) && aril_text_stream_end(s);
    aril_text_stream_free(s);
    aril_tokenizer_free(t);
    aril_tokenizer_free(read);
    return good;
}

TEST(every_allocation_may_fail)
{
    CHECK(use_all());
    for (int n = 1; n < 5000; n++) {
        aril_fail_allocation(n);
        bool good = use_all(), failed = aril_allocation_failed();
        aril_fail_allocation(0);
        if (!failed) {
            CHECK(good);
            return;
        }
        CHECK_MSG(good || aril_error_code() == ARIL_ERR_MEMORY, "allocation %d: %s", n,
                  aril_error());
        aril_clear_error();
    }
    CHECK(!"more allocations than expected");
}

static uint64_t state;

static size_t draw(size_t below)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (size_t)((state >> 33) % below);
}

static void damage(const aril__bytes *from, aril__bytes *to)
{
    to->n = 0;
    aril__bytes_add(to, from->at, from->n);
    for (size_t times = 1 + draw(4); times > 0 && to->n > 0; times--) {
        size_t at = draw(to->n);
        switch (draw(5)) {
        case 0: to->at[at] = (unsigned char)draw(256); break;
        case 1: to->at[at] = (unsigned char)"0123456789-{}[](),:\"'\n\\. "[draw(26)]; break;
        case 2: to->n = at; break;
        default: {
            size_t other = draw(to->n), n = to->n - (at > other ? at : other);
            memmove(to->at + at, to->at + other, n < 24 ? n : 24);
            break;
        }
        }
    }
}

TEST(damaged_files_are_read_or_refused)
{
    const char *times = getenv("ARIL_FUZZ_TIMES");
    int rounds = 600 * (times ? atoi(times) : 1), good = 0;
    aril_tokenizer *t = trained();
    CHECK_INT(aril_tokenizer_save(t, temp_path("whole")), ARIL_OK);
    aril_tokenizer_free(t);
    aril__bytes json = { 0 }, vocab = { 0 }, merges = { 0 }, bad = { 0 };
    aril__read_file("x", temp_path("whole/tokenizer.json"), 0, &json);
    aril__read_file("x", temp_path("whole/vocab.json"), 0, &vocab);
    aril__read_file("x", temp_path("whole/merges.txt"), 0, &merges);
    state = 1;
    for (int i = 0; i < rounds && !test_failed(); i++) {
        ARIL_SCOPE;
        int kind = i % 3;
        damage(kind == 0 ? &json : kind == 1 ? &vocab : &merges, &bad);
        t = kind == 0 ? aril__tokenizer_of_json("file", (const char *)bad.at, bad.n)
                      : aril__tokenizer_of_files("folder", kind == 1 ? &bad : &vocab,
                                                 kind == 2 ? &bad : &merges, NULL);
        aril_status code = aril_error_code();
        if (!t && code != ARIL_ERR_FORMAT && code != ARIL_ERR_UNSUPPORTED)
            test_fail(__FILE__, __LINE__, "round %d: %s", i, aril_error());
        aril_clear_error();
        if (t) aril_tokenizer_encode(t, corpus, (aril_encode_opts){ 0 }); /* or an error */
        aril_clear_error();
        good += t != NULL;
        aril_tokenizer_free(t);
    }
    aril__bytes_free(&json);
    aril__bytes_free(&vocab);
    aril__bytes_free(&merges);
    aril__bytes_free(&bad);
    CHECK(good > 0 && good < rounds);
}
