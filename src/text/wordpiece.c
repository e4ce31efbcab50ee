/* WordPiece (Schuster, Nakajima: Japanese and Korean Voice Search, 2012; Wu et al., 2016) as BERT
 * uses it: text is normalized and cut into words; from the left, a word is cut into the longest
 * tokens that there are. Those behind the first begin with "##". */
#include "core/error.h"
#include "text/tokenizer.h"

#include <string.h>

const char *aril__wordpiece_part(const aril_tokenizer *t)
{
    return t->part ? t->part : "##";
}

/* ---- encoding ---- */

static int64_t characters(const unsigned char *p, size_t n)
{
    int64_t count = 0;
    for (size_t i = 0; i < n; i++) count += (p[i] & 0xc0) != 0x80;
    return count;
}

/* The longest token that p[0..n) begins with, and its length; -1: none. With `piece`, tokens behind
 * the first of a word: that holds the prefix of those. */
static int64_t longest(const aril_tokenizer *t, const unsigned char *p, size_t n,
                       aril__bytes *piece, size_t *length)
{
    size_t prefix = piece ? piece->n : 0, most = t->longest > prefix ? t->longest - prefix : 0;
    for (size_t k = n < most ? n : most; k > 0; k--) {
        if (k < n && (p[k] & 0xc0) == 0x80) continue; /* within a character */
        const void *bytes = p;
        if (piece) {
            piece->n = prefix;
            aril__bytes_add(piece, p, k);
            piece->n = prefix;
            bytes = piece->at;
            if (piece->failed) return -1;
        }
        int64_t id = aril__token_find(t, bytes, prefix + k, false);
        if (id < 0 || !(t->token[id].kind & ARIL__TOKEN_MODEL)) continue;
        *length = k;
        return id;
    }
    return -1;
}

static void encode_word(const aril_tokenizer *t, const unsigned char *p, size_t n,
                        aril__bytes *piece, aril__bytes *to)
{
    size_t before = to->n, length = 0;
    bool known = characters(p, n) <= t->word_limit;
    for (size_t at = 0; at < n && known; at += length) {
        int64_t id = longest(t, p + at, n - at, at ? piece : NULL, &length);
        known = id >= 0;
        if (known) aril__bytes_add(to, &id, sizeof id);
    }
    if (known) return;
    to->n = before;
    aril__bytes_add(to, &t->unknown, sizeof t->unknown);
}

static void normalize(const aril_tokenizer *t, const unsigned char *p, size_t n, aril__bytes *to)
{
    aril__normalize(&t->normalizer, p, n, to);
}

static aril_status encode(const aril_tokenizer *t, aril__bpe *b, const unsigned char *p, size_t n,
                          aril__bytes *to)
{
    (void)b;
    aril__bytes piece = { 0 };
    const char *part = aril__wordpiece_part(t);
    aril__bytes_add(&piece, part, strlen(part));
    for (size_t at = 0, word; !piece.failed && at < n; at += word) {
        at += aril__next_word(p + at, n - at, &word);
        if (word > 0) encode_word(t, p + at, word, &piece, to);
    }
    bool failed = piece.failed;
    aril__bytes_free(&piece);
    return failed ? aril__fail(ARIL_ERR_MEMORY, "out of memory for a text") : ARIL_OK;
}

/* ---- decoding ---- */

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* What stands directly behind a word. */
static bool sticks(const char *token)
{
    static const char *const list[] = { ".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re" };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (begins(token, list[i])) return true;
    return false;
}

static void decode(const aril_tokenizer *t, int64_t id, bool first, aril__bytes *to)
{
    const aril__token *k = &t->token[id];
    const char *text = (const char *)t->text.at + k->at, *part = aril__wordpiece_part(t);
    size_t size = k->size;
    if (!first && begins(text, part)) {
        text += strlen(part);
        size -= strlen(part);
    } else if (!first && (t->spaces_stay || !sticks(text))) {
        aril__bytes_add(to, " ", 1);
    }
    aril__bytes_add(to, text, size);
}

/* ---- files ---- */

aril_status aril__wordpiece_ready(aril_tokenizer *t, const char *what, const char *unknown)
{
    static const char *const special[] = { "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]" };
    if (!unknown) unknown = "[UNK]";
    t->unknown = aril__token_find(t, unknown, strlen(unknown), false);
    if (t->unknown < 0)
        return aril__fail(ARIL_ERR_FORMAT, "%s: the unknown token '%.80s' is not in the vocabulary",
                          what, unknown);
    aril_status status = ARIL_OK;
    for (size_t i = 0; i < sizeof special / sizeof *special && status == ARIL_OK; i++) {
        int64_t id = aril__token_find(t, special[i], strlen(special[i]), false);
        if (id >= 0) status = aril__token_mark(t, id, ARIL__TOKEN_SPECIAL);
    }
    t->before = aril__token_find(t, "[CLS]", 5, false);
    t->after = aril__token_find(t, "[SEP]", 5, false);
    return status;
}

/* One token a line, of which the number is the id. Numbers without a token are empty lines. */
static aril_status save(const aril_tokenizer *t, const char *folder)
{
    aril__bytes text = { 0 };
    int64_t n = t->n;
    while (n > 0 && !(t->token[n - 1].kind & ARIL__TOKEN_MODEL)) n--;
    for (int64_t i = 0; i < n; i++) {
        const aril__token *k = &t->token[i];
        if (k->kind & ARIL__TOKEN_MODEL) aril__bytes_add(&text, t->text.at + k->at, k->size);
        aril__bytes_add(&text, "\n", 1);
    }
    return aril__tokenizer_write(folder, "vocab.txt", &text);
}

static const char *no(bool flag)
{
    return flag ? "false" : "true";
}

static void write(const aril_tokenizer *t, aril__bytes *to)
{
    const aril__normalizer *how = &t->normalizer;
    aril__bytes_print(to,
                      "  \"normalizer\": {\"type\": \"BertNormalizer\", \"clean_text\": %s, "
                      "\"handle_chinese_chars\": %s, \"strip_accents\": %s, \"lowercase\": %s},\n"
                      "  \"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"},\n",
                      no(how->keep_controls), no(how->keep_chinese), no(how->keep_accents),
                      no(how->keep_case));
    if (t->before >= 0 && t->after >= 0)
        aril__bytes_print(to,
                          "  \"post_processor\": {\"type\": \"BertProcessing\", \"sep\": "
                          "[\"[SEP]\", %lld], \"cls\": [\"[CLS]\", %lld]},\n",
                          (long long)t->after, (long long)t->before);
    aril__bytes_print(to, "  \"decoder\": {\"type\": \"WordPiece\", \"prefix\": ");
    aril__bytes_json(to, aril__wordpiece_part(t));
    aril__bytes_print(to,
                      ", \"cleanup\": %s},\n  \"model\": {\n    \"type\": \"WordPiece\",\n    "
                      "\"unk_token\": ",
                      no(t->spaces_stay));
    aril__token_json(to, t, t->unknown);
    aril__bytes_print(to, ",\n    \"continuing_subword_prefix\": ");
    aril__bytes_json(to, aril__wordpiece_part(t));
    aril__bytes_print(to, ",\n    \"max_input_chars_per_word\": %lld,\n    \"vocab\": ",
                      (long long)t->word_limit);
    aril__vocab_json(to, t, true);
    aril__bytes_print(to, "\n  }");
}

const aril__tokenizer_kind aril__tokenizer_wordpiece = { .model = "WordPiece",
                                                         .normalize = normalize,
                                                         .encode = encode,
                                                         .decode = decode,
                                                         .save = save,
                                                         .write = write };
