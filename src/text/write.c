/* Writing vocab.json, merges.txt and tokenizer.json. */
#include "core/error.h"
#include "formats/atomic_file.h"
#include "text/alphabet.h"
#include "text/tokenizer.h"

#include <stdlib.h>

static void add_spelled(aril__bytes *to, const aril_tokenizer *t, int64_t id)
{
    const aril__token *k = &t->token[id];
    const unsigned char *p = t->text.at + k->at;
    if (k->kind & ARIL__TOKEN_BYTES)
        aril__alphabet_add(to, p, k->size);
    else
        aril__bytes_add(to, p, k->size);
}

static void add_quoted(aril__bytes *to, const aril_tokenizer *t, int64_t id)
{
    aril__bytes text = { 0 };
    aril__bytes_add(&text, "", 0);
    add_spelled(&text, t, id);
    if (text.failed)
        to->failed = true;
    else
        aril__bytes_json(to, (const char *)text.at);
    aril__bytes_free(&text);
}

/* {"token":id, ...} for the tokens of the model, or for the others. */
static void add_vocab(aril__bytes *to, const aril_tokenizer *t, bool model)
{
    bool first = true;
    aril__bytes_add(to, "{", 1);
    for (int64_t i = 0; i < t->n; i++) {
        if (!t->token[i].kind || !(t->token[i].kind & ARIL__TOKEN_MODEL) == model) continue;
        if (!first) aril__bytes_add(to, ",", 1);
        first = false;
        add_quoted(to, t, i);
        aril__bytes_print(to, ":%lld", (long long)i);
    }
    aril__bytes_add(to, "}", 1);
}

static void add_merge_lines(aril__bytes *to, const aril_tokenizer *t)
{
    aril__bytes_print(to, "#version: 0.2\n");
    for (int64_t i = 0; i < t->merges; i++) {
        add_spelled(to, t, t->merge[i].left);
        aril__bytes_add(to, " ", 1);
        add_spelled(to, t, t->merge[i].right);
        aril__bytes_add(to, "\n", 1);
    }
}

static const char *yes(unsigned flag)
{
    return flag ? "true" : "false";
}

static void add_added(aril__bytes *to, const aril_tokenizer *t)
{
    bool first = true;
    for (int64_t i = 0; i < t->n; i++) {
        unsigned kind = t->token[i].kind;
        if (!(kind & ARIL__TOKEN_ADDED)) continue;
        aril__bytes_print(to, "%s\n    {\"id\": %lld, \"content\": ", first ? "" : ",",
                          (long long)i);
        first = false;
        add_quoted(to, t, i);
        aril__bytes_print(to,
                          ", \"single_word\": false, \"lstrip\": %s, \"rstrip\": %s, "
                          "\"normalized\": %s, \"special\": %s}",
                          yes(kind & ARIL__TOKEN_LEFT), yes(kind & ARIL__TOKEN_RIGHT),
                          yes(kind & ARIL__TOKEN_LATER), yes(kind & ARIL__TOKEN_SPECIAL));
    }
}

static void add_tokenizer(aril__bytes *to, const aril_tokenizer *t)
{
    aril__bytes_print(to,
                      "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,"
                      "\n  \"added_tokens\": [");
    add_added(to, t);
    aril__bytes_print(to,
                      "\n  ],\n  \"normalizer\": null,\n  \"pre_tokenizer\": {\"type\": "
                      "\"ByteLevel\", \"add_prefix_space\": %s, \"trim_offsets\": true, "
                      "\"use_regex\": true},\n",
                      yes(t->prefix_space));
    for (int i = 0; i < 2; i++)
        aril__bytes_print(to,
                          "  \"%s\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
                          "\"trim_offsets\": %s, \"use_regex\": true},\n",
                          i ? "decoder" : "post_processor", yes((unsigned)i));
    aril__bytes_print(to, "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    "
                          "\"unk_token\": ");
    if (t->unknown >= 0)
        add_quoted(to, t, t->unknown);
    else
        aril__bytes_print(to, "null");
    aril__bytes_print(to,
                      ",\n    \"continuing_subword_prefix\": \"\",\n    \"end_of_word_suffix\": "
                      "\"\",\n    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n    "
                      "\"ignore_merges\": false,\n    \"vocab\": ");
    add_vocab(to, t, true);
    aril__bytes_print(to, ",\n    \"merges\": [");
    for (int64_t i = 0; i < t->merges; i++) {
        aril__bytes_print(to, "%s\n      [", i ? "," : "");
        add_quoted(to, t, t->merge[i].left);
        aril__bytes_print(to, ", ");
        add_quoted(to, t, t->merge[i].right);
        aril__bytes_print(to, "]");
    }
    aril__bytes_print(to, "\n    ]\n  }\n}\n");
}

/* Writes a file of the folder, and frees the text. */
static aril_status write_file(const char *folder, const char *name, aril__bytes *text)
{
    aril__bytes path = { 0 };
    aril__bytes_print(&path, "%s/%s", folder, name);
    aril_status status = path.failed || text->failed
                             ? aril__fail(ARIL_ERR_MEMORY, "out of memory saving a tokenizer")
                             : aril__file_replace((const char *)path.at, text->at, text->n);
    aril__bytes_free(&path);
    aril__bytes_free(text);
    return status;
}

aril_status aril_tokenizer_save(const aril_tokenizer *t, const char *folder)
{
    if (!t || !folder)
        return aril__fail(ARIL_ERR_ARG, "tokenizer_save: expected a tokenizer and a folder");
    aril_status status = aril__folder_create("tokenizer_save", folder);
    bool extra = false;
    for (int64_t i = 0; i < t->n; i++)
        extra |= t->token[i].kind && !(t->token[i].kind & ARIL__TOKEN_MODEL);
    aril__bytes text = { 0 };
    if (status == ARIL_OK) {
        add_vocab(&text, t, true);
        status = write_file(folder, "vocab.json", &text);
    }
    if (status == ARIL_OK) {
        add_merge_lines(&text, t);
        status = write_file(folder, "merges.txt", &text);
    }
    if (status == ARIL_OK && extra) {
        add_vocab(&text, t, false);
        status = write_file(folder, "added_tokens.json", &text);
    }
    if (status == ARIL_OK) {
        add_tokenizer(&text, t);
        status = write_file(folder, "tokenizer.json", &text);
    }
    return status;
}
