/* Writing tokenizers: what all kinds have in common. */
#include "core/error.h"
#include "formats/atomic_file.h"
#include "text/alphabet.h"
#include "text/tokenizer.h"

#include <stdlib.h>

void aril__token_spell(aril__bytes *to, const aril_tokenizer *t, int64_t id)
{
    const aril__token *k = &t->token[id];
    const unsigned char *p = t->text.at + k->at;
    if (k->kind & ARIL__TOKEN_BYTES)
        aril__alphabet_add(to, p, k->size);
    else
        aril__bytes_add(to, p, k->size);
}

void aril__token_json(aril__bytes *to, const aril_tokenizer *t, int64_t id)
{
    aril__bytes text = { 0 };
    aril__bytes_add(&text, "", 0);
    aril__token_spell(&text, t, id);
    if (text.failed)
        to->failed = true;
    else
        aril__bytes_json(to, (const char *)text.at);
    aril__bytes_free(&text);
}

void aril__vocab_json(aril__bytes *to, const aril_tokenizer *t, bool model)
{
    bool first = true;
    aril__bytes_add(to, "{", 1);
    for (int64_t i = 0; i < t->n; i++) {
        if (!t->token[i].kind || !(t->token[i].kind & ARIL__TOKEN_MODEL) == model) continue;
        if (!first) aril__bytes_add(to, ",", 1);
        first = false;
        aril__token_json(to, t, i);
        aril__bytes_print(to, ":%lld", (long long)i);
    }
    aril__bytes_add(to, "}", 1);
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
        aril__token_json(to, t, i);
        aril__bytes_print(to,
                          ", \"single_word\": false, \"lstrip\": %s, \"rstrip\": %s, "
                          "\"normalized\": %s, \"special\": %s}",
                          yes(kind & ARIL__TOKEN_LEFT), yes(kind & ARIL__TOKEN_RIGHT),
                          yes(kind & ARIL__TOKEN_LATER), yes(kind & ARIL__TOKEN_SPECIAL));
    }
}

aril_status aril__tokenizer_write(const char *folder, const char *name, aril__bytes *text)
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
    if (status == ARIL_OK) status = t->kind->save(t, folder);
    if (status != ARIL_OK) return status;
    aril__bytes text = { 0 };
    aril__bytes_print(&text,
                      "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,"
                      "\n  \"added_tokens\": [");
    add_added(&text, t);
    aril__bytes_print(&text, "\n  ],\n");
    t->kind->write(t, &text);
    aril__bytes_print(&text, "\n}\n");
    return aril__tokenizer_write(folder, "tokenizer.json", &text);
}
