/* Writing vocab.json, merges.txt, and what tokenizer.json says of a BPE. */
#include "core/error.h"
#include "text/alphabet.h"
#include "text/tokenizer.h"

static void add_merge_lines(aril__bytes *to, const aril_tokenizer *t)
{
    aril__bytes_print(to, "#version: 0.2\n");
    for (int64_t i = 0; i < t->merges; i++) {
        aril__token_spell(to, t, t->merge[i].left);
        aril__bytes_add(to, " ", 1);
        aril__token_spell(to, t, t->merge[i].right);
        aril__bytes_add(to, "\n", 1);
    }
}

aril_status aril__bpe_save(const aril_tokenizer *t, const char *folder)
{
    bool extra = false;
    for (int64_t i = 0; i < t->n; i++)
        extra |= t->token[i].kind && !(t->token[i].kind & ARIL__TOKEN_MODEL);
    aril__bytes text = { 0 };
    aril__vocab_json(&text, t, true);
    aril_status status = aril__tokenizer_write(folder, "vocab.json", &text);
    if (status == ARIL_OK) {
        add_merge_lines(&text, t);
        status = aril__tokenizer_write(folder, "merges.txt", &text);
    }
    if (status == ARIL_OK && extra) {
        aril__vocab_json(&text, t, false);
        status = aril__tokenizer_write(folder, "added_tokens.json", &text);
    }
    return status;
}

void aril__bpe_write(const aril_tokenizer *t, aril__bytes *to)
{
    aril__bytes_print(to,
                      "  \"normalizer\": null,\n  \"pre_tokenizer\": {\"type\": "
                      "\"ByteLevel\", \"add_prefix_space\": %s, \"trim_offsets\": true, "
                      "\"use_regex\": true},\n",
                      t->prefix_space ? "true" : "false");
    for (int i = 0; i < 2; i++)
        aril__bytes_print(to,
                          "  \"%s\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
                          "\"trim_offsets\": %s, \"use_regex\": true},\n",
                          i ? "decoder" : "post_processor", i ? "true" : "false");
    aril__bytes_print(to, "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    "
                          "\"unk_token\": ");
    if (t->unknown >= 0)
        aril__token_json(to, t, t->unknown);
    else
        aril__bytes_print(to, "null");
    aril__bytes_print(to,
                      ",\n    \"continuing_subword_prefix\": \"\",\n    \"end_of_word_suffix\": "
                      "\"\",\n    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n    "
                      "\"ignore_merges\": false,\n    \"vocab\": ");
    aril__vocab_json(to, t, true);
    aril__bytes_print(to, ",\n    \"merges\": [");
    for (int64_t i = 0; i < t->merges; i++) {
        aril__bytes_print(to, "%s\n      [", i ? "," : "");
        aril__token_json(to, t, t->merge[i].left);
        aril__bytes_print(to, ", ");
        aril__token_json(to, t, t->merge[i].right);
        aril__bytes_print(to, "]");
    }
    aril__bytes_print(to, "\n    ]\n  }");
}
