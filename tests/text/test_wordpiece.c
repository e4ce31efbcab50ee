/* WordPiece beside the package tokenizers; files, streams, and what is refused. */
#include "aril/aril.h"
#include "support/temp.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

#include "text/wordpiece_tokens.inc"

enum { EXPECTED = sizeof expected[0] / sizeof *expected[0] };

static void write_text(const char *name, const char *text)
{
    FILE *f = fopen(temp_path(name), "wb");
    fputs(text, f);
    fclose(f);
}

/* Whether a tokenizer gives the expected tokens and texts; frees it. */
static void check(aril_tokenizer *t, bool cased, const char *what)
{
    CHECK_MSG(t, "%s: %s", what, aril_error());
    for (int i = 0; i < EXPECTED; i++) {
        ARIL_SCOPE;
        const struct expected *e = &expected[cased][i];
        aril_tensor *ids =
            aril_tokenizer_encode(t, e->text,
                                  (aril_encode_opts){ .framed = true, .size = e->size });
        const int64_t *id = aril_data(ids);
        bool same = aril_numel(ids) == e->n && memcmp(id, e->id, (size_t)e->n * 8) == 0;
        CHECK_MSG(same, "%s: other tokens for string %d", what, i);
        char *text = aril_tokenizer_decode(t, ids, (aril_decode_opts){ 0 });
        CHECK_STR(text, e->decoded);
        free(text);
        aril_text_stream *stream = aril_text_stream_new(t, (aril_decode_opts){ 0 });
        char all[1024] = "";
        for (int k = 0; k < e->n; k++) strcat(all, aril_text_stream_add(stream, id[k]));
        CHECK_STR(all, e->decoded);
        aril_text_stream_free(stream);
    }
    aril_tokenizer_free(t);
    CHECK(aril_ok());
}

TEST(tokens_are_those_of_others)
{
    CHECK_INT(aril_folder_create(temp_path("bert")), ARIL_OK);
    write_text("bert/vocab.txt", vocabulary);
    check(aril_tokenizer_load(temp_path("bert/vocab.txt")), false, "vocab.txt");
    check(aril_tokenizer_load(temp_path("bert")), false, "a folder with vocab.txt");
    write_text("bert/tokenizer_config.json", "{\"do_lower_case\": false, \"model_max_length\": 8}");
    check(aril_tokenizer_load(temp_path("bert")), true, "with tokenizer_config.json");
    for (int cased = 0; cased < 2; cased++) {
        write_text("bert/tokenizer_config.json",
                   cased ? "{\"do_lower_case\": false}" : "{\"strip_accents\": null}");
        aril_tokenizer *t = aril_tokenizer_load(temp_path("bert"));
        CHECK_INT(aril_tokenizer_save(t, temp_path("saved")), ARIL_OK);
        aril_tokenizer_free(t);
        check(aril_tokenizer_load(temp_path("saved")), cased, "tokenizer.json");
    }
    CHECK_INT(remove(temp_path("saved/tokenizer.json")), 0);
    check(aril_tokenizer_load(temp_path("saved")), false, "a saved vocab.txt");
}

TEST(tokens_have_names)
{
    ARIL_SCOPE;
    write_text("vocab.txt", vocabulary);
    aril_tokenizer *t = aril_tokenizer_load(temp_path("vocab.txt"));
    CHECK_INT(aril_tokenizer_id(t, "##ing"), 7);
    CHECK(aril_tokenizer_is_special(t, aril_tokenizer_id(t, "[MASK]")));
    CHECK(!aril_tokenizer_is_special(t, 7));
    int64_t more = aril_tokenizer_add_special(t, "[E1]");
    CHECK_INT(more, aril_tokenizer_size(t) - 1);
    aril_tensor *ids = aril_tokenizer_encode(t, "hello[E1]", (aril_encode_opts){ 0 });
    CHECK_INT(aril_numel(ids), 2);
    CHECK_INT(((const int64_t *)aril_data(ids))[1], more);
    char *text = aril_tokenizer_decode(t, ids, (aril_decode_opts){ .skip_special = true });
    CHECK_STR(text, "hello");
    free(text);
    /* Brackets and a word that is not known, where special tokens are ordinary text. */
    ids = aril_tokenizer_encode(t, "[MASK]", (aril_encode_opts){ .plain = true });
    CHECK_INT(aril_numel(ids), 3);
    CHECK_INT(((const int64_t *)aril_data(ids))[1], 1);
    aril_tokenizer_free(t);
}

/* Bytes that are not UTF-8 read as U+FFFD, which is removed. */
TEST(any_bytes_have_tokens)
{
    ARIL_SCOPE;
    write_text("vocab.txt", vocabulary);
    aril_tokenizer *t = aril_tokenizer_load(temp_path("vocab.txt"));
    aril_tensor *ids = aril_tokenizer_encode(t, "a\xff\xe4\xf0\x9f", (aril_encode_opts){ 0 });
    CHECK_INT(aril_numel(ids), 1);
    uint32_t state = 1;
    for (int i = 0; i < 2000; i++) {
        ARIL_SCOPE;
        char text[40];
        for (int k = 0; k < 39; k++) text[k] = (char)((state = state * 1664525 + 1013904223) >> 24);
        ids = aril_tokenizer_encode(t, text, (aril_encode_opts){ .size = 39 });
        CHECK_INT(aril_tensor_status(ids), ARIL_OK);
    }
    aril_tokenizer_free(t);
}

/* Added tokens that are "normalized" are found in normalized text, in their normalized form; the
 * tokens are those of the package tokenizers. */
TEST(added_tokens_are_found_in_normalized_text)
{
    static const char file[] =
        "{\"added_tokens\":[{\"content\":\"[MASK]\",\"id\":1,\"special\":true,\"normalized"
        "\":false},{\"content\":\"covid\",\"id\":10,\"normalized\":true},{\"content\":\"Caf"
        "\303\251\",\"id\":11,\"normalized\":true,\"lstrip\":true},{\"content\":\"RAW\",\"id\":12,"
        "\""
        "normalized\":false},{\"content\":\"a b\",\"id\":13,\"normalized\":true,\"rstrip\""
        ":true},{\"content\":\"\345\244\251\",\"id\":14,\"normalized\":true}],\"normalizer\":{"
        "\"type\""
        ":\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_chars\":true,\"strip"
        "_accents\":null,\"lowercase\":true},\"pre_tokenizer\":{\"type\":\"BertPreToken"
        "izer\"},\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"continuing_sub"
        "word_prefix\":\"##\",\"max_input_chars_per_word\":100,\"vocab\":{\"[UNK]\":0,\"["
        "MASK]\":1,\"a\":2,\"c\":3,\"##o\":4,\"##v\":5,\"##i\":6,\"##d\":7,\"x\":8,\"y\":9}}}";
    static const struct {
        const char *text;
        int n;
        int64_t id[6];
    } cases[] = {
        { "a covid", 2, { 2, 10 } },
        { "a COVID", 2, { 2, 10 } },
        { "COVID-19 cafe", 4, { 10, 0, 0, 11 } },
        { "x CAF\303\211 y", 3, { 8, 11, 9 } },
        { "x cafe\314\201y", 3, { 8, 11, 9 } },
        { "raw RAW", 2, { 0, 12 } },
        { "xCoVidy", 3, { 8, 10, 9 } },
        { "A  B  c", 3, { 2, 0, 3 } },
        { "a\011b x", 2, { 13, 8 } },
        { "x\345\244\251y", 3, { 8, 14, 9 } },
        { "\345\244\251\345\234\260", 2, { 14, 0 } },
        { "[MASK] covid[MASK]Caf\303\251", 4, { 1, 10, 1, 11 } },
        { "[mask] co vid", 6, { 0, 0, 0, 3, 4, 0 } },
        { "", 0, { 0 } },
        { "covidcovid", 2, { 10, 10 } },
    };
    write_text("tokenizer.json", file);
    aril_tokenizer *t = aril_tokenizer_load(temp_path("tokenizer.json"));
    for (int again = 0; again < 2; again++) {
        CHECK_MSG(t, "%s", aril_error());
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            ARIL_SCOPE;
            aril_tensor *ids = aril_tokenizer_encode(t, cases[i].text, (aril_encode_opts){ 0 });
            bool same = aril_numel(ids) == cases[i].n;
            for (int k = 0; k < cases[i].n && same; k++)
                same = ((const int64_t *)aril_data(ids))[k] == cases[i].id[k];
            CHECK_MSG(same, "other tokens for '%s'", cases[i].text);
        }
        if (again) break;
        CHECK_INT(aril_tokenizer_add_special(t, "[E1]"), 15);
        CHECK_INT(aril_tokenizer_save(t, temp_path("saved")), ARIL_OK);
        aril_tokenizer_free(t);
        t = aril_tokenizer_load(temp_path("saved"));
    }
    aril_tokenizer_free(t);
}

TEST(what_is_no_wordpiece_is_refused)
{
    static const struct {
        const char *file, *text, *says;
    } wrong[] = {
        { "vocab.txt", "a\nb\n", "the unknown token '[UNK]' is not in the vocabulary" },
        { "vocab.txt", "[UNK]\na\na\n", "the tokens 1 and 2 are the same" },
        { "tokenizer.json", "{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}",
          "the type of the model is Unigram" },
        { "tokenizer.json",
          "{\"pre_tokenizer\":{\"type\":\"Whitespace\"},\"model\":{\"type\":\"WordPiece\","
          "\"vocab\":{\"[UNK]\":0}}}",
          "expected a WordPiece as BERT's, but the pre_tokenizer is Whitespace" },
        { "tokenizer.json",
          "{\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},\"normalizer\":{\"type\":\"NFKC\"},"
          "\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"[UNK]\":0}}}",
          "the normalizer is NFKC" },
        { "tokenizer.json",
          "{\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},\"model\":{\"type\":\"WordPiece\"}}",
          "the model has no vocab" },
        { "tokenizer.json", "{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"[UNK]\":0}}}",
          "the pre_tokenizer is missing" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        write_text(wrong[i].file, wrong[i].text);
        CHECK_MSG(!aril_tokenizer_load(temp_path(wrong[i].file)), "row %zu", i);
        CHECK_MSG(strstr(aril_error(), wrong[i].says), "%s", aril_error());
        aril_clear_error();
    }
}

static bool all(void)
{
    ARIL_SCOPE;
    aril_tokenizer *t = aril_tokenizer_load(temp_path("bert"));
    aril_tensor *ids =
        t ? aril_tokenizer_encode(t, "unaffable caf\xc3\xa9", (aril_encode_opts){ .framed = true })
          : NULL;
    char *text = ids ? aril_tokenizer_decode(t, ids, (aril_decode_opts){ 0 }) : NULL;
    bool good = text && aril_tokenizer_save(t, temp_path("saved")) == ARIL_OK;
    free(text);
    aril_tokenizer_free(t);
    return good && aril_ok();
}

TEST(every_allocation_may_fail)
{
    CHECK_INT(aril_folder_create(temp_path("bert")), ARIL_OK);
    write_text("bert/vocab.txt", vocabulary);
    write_text("bert/tokenizer_config.json", "{\"do_lower_case\": true}");
    int64_t n = 1;
    for (; n < 5000; n++) {
        aril_fail_allocation(n);
        bool good = all(), failed = aril_allocation_failed();
        aril_fail_allocation(0);
        CHECK_MSG(good || failed, "%s", aril_error());
        aril_clear_error();
        if (!failed) break;
    }
    CHECK(n > 20 && n < 5000);
}
