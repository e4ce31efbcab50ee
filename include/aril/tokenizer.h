/* Tokenizers: text as the numbers of tokens, and back, by byte-level BPE as GPT-2 uses it, or by
 * WordPiece as BERT does.
 *
 *     aril_tokenizer *t = aril_tokenizer_load("gpt2");        a folder with tokenizer.json, or
 *     aril_tensor *ids = aril_tokenizer_encode(t, "Hello!", (aril_encode_opts){ 0 });
 *     char *text = aril_tokenizer_decode(t, ids, (aril_decode_opts){ 0 });
 *     ...
 *     free(text);
 *     aril_tokenizer_free(t);
 *
 * BPE cuts a text into words (a regular expression of letters, numbers, other characters and white
 * space), the bytes of a word are tokens, and the two neighboring tokens that stand first in a list
 * of merges become one, again and again. Every text, in any language, has tokens; valid UTF-8 or
 * not, decoding them gives the same bytes.
 *
 * WordPiece cleans a text, perhaps puts it in lower case without accents, and cuts it into words
 * and punctuation marks. From the left, a word is cut into the longest tokens that there are, the
 * later ones of which begin with "##"; a word that cannot be cut is "[UNK]". Decoding gives the
 * words, with spaces between.
 *
 * Special tokens ("<|endoftext|>", "[MASK]") stand for themselves.
 *
 * Several threads may use a tokenizer at once, unless one of them adds tokens. */
#ifndef ARIL_TOKENIZER_H
#define ARIL_TOKENIZER_H

#include "aril/tensor.h"

ARIL_C_BEGIN

typedef struct aril_tokenizer aril_tokenizer;

/* ---- files ---- */

/* Reads a tokenizer of GPT-2's or of BERT's kind: a tokenizer.json, or a folder that has one, or a
 * folder with vocab.json and merges.txt (and perhaps added_tokens.json), where "<|endoftext|>" is
 * special, or one with vocab.txt (and perhaps tokenizer_config.json), or a vocab.txt alone. The
 * caller frees it. NULL, with an error that says what is wrong, if a file cannot be read or is of
 * another kind of tokenizer. */
ARIL_API aril_tokenizer *aril_tokenizer_load(const char *path);

/* Writes vocab.json and merges.txt, or vocab.txt, and tokenizer.json to a folder, which is created
 * if missing. */
ARIL_API aril_status aril_tokenizer_save(const aril_tokenizer *t, const char *folder);

ARIL_API void aril_tokenizer_free(aril_tokenizer *t); /* NULL is allowed */

/* ---- training ---- */

typedef struct aril_tokenizer_opts {
    int64_t size;      /* tokens in all, at least 256 and the special ones; default 30000 */
    int64_t min_count; /* a pair that occurs less often is not merged; default 2 */
    const char *const *special; /* special tokens: ids 0 .. n_special - 1 */
    int n_special;
} aril_tokenizer_opts;

/* Learns a tokenizer from a text of `size` bytes: the most frequent pair of tokens within words is
 * merged, again and again, until there are opts.size tokens or no pair occurs often enough. Of
 * pairs that occur equally often, the one with the smallest ids comes first. Ids: special tokens,
 * the 256 bytes, merges in order. The caller frees it; NULL, with an error, on failure. */
ARIL_API aril_tokenizer *aril_tokenizer_train(const char *text, size_t size,
                                              aril_tokenizer_opts opts);

/* ---- tokens ---- */

/* 1 + the largest id: the size of an embedding for them. */
ARIL_API int64_t aril_tokenizer_size(const aril_tokenizer *t);

/* The id of a token given by its text ("<|endoftext|>", " the"); -1: there is none. */
ARIL_API int64_t aril_tokenizer_id(const aril_tokenizer *t, const char *token);

/* The bytes of a token, NUL-terminated, which may be part of a character; *size (unless NULL) is
 * their number. Belongs to t. NULL if there is no such token. */
ARIL_API const char *aril_tokenizer_token(const aril_tokenizer *t, int64_t id, size_t *size);

/* Whether a token is special: it stands for itself in a text. */
ARIL_API bool aril_tokenizer_is_special(const aril_tokenizer *t, int64_t id);

/* Makes a text a special token and returns its id: that of the token that files spell like this, or
 * the next free one. A negative status on failure. Letters of GPT-2's alphabet of bytes spell those
 * bytes: "\xc3\xa9" (U+00E9) becomes the token of the byte 0xe9, as in the package tokenizers. */
ARIL_API int64_t aril_tokenizer_add_special(aril_tokenizer *t, const char *token);

/* ---- text to tokens and back ---- */

typedef struct aril_encode_opts {
    bool plain;  /* special tokens in the text are ordinary text: for text from outside */
    bool framed; /* between the tokens that a BERT expects around a text: [CLS] and [SEP] */
    size_t size; /* bytes of text, which may contain NUL characters; 0: up to the first of them */
} aril_encode_opts;

/* The tokens of a text: i64 [n]. */
ARIL_API aril_tensor *aril_tokenizer_encode(const aril_tokenizer *t, const char *text,
                                            aril_encode_opts opts);

typedef struct aril_decode_opts {
    bool skip_special; /* leave out special tokens */
    bool raw;          /* the bytes as they are; default: invalid UTF-8 becomes U+FFFD */
    size_t *size;      /* NULL, or receives the number of bytes of the text */
} aril_decode_opts;

/* The text of tokens, integers of any shape, NUL-terminated: the caller frees it with free(). NULL,
 * with an error, if there is no such token. */
ARIL_API char *aril_tokenizer_decode(const aril_tokenizer *t, const aril_tensor *ids,
                                     aril_decode_opts opts);

/* Text as its tokens arrive: characters appear once all their bytes are there. */
typedef struct aril_text_stream aril_text_stream;

/* A stream for a tokenizer, which must outlive it; `opts.size` is not used. The caller frees it.
 * NULL, with an error, when out of memory. */
ARIL_API aril_text_stream *aril_text_stream_new(const aril_tokenizer *t, aril_decode_opts opts);
/* The text that is complete after one more token: "" if none is. Belongs to s, until its next call.
 * NULL, with an error, if there is no such token. */
ARIL_API const char *aril_text_stream_add(aril_text_stream *s, int64_t id);
/* What is left at the end: "" or U+FFFD for a character that was not completed. The stream can then
 * begin again. */
ARIL_API const char *aril_text_stream_end(aril_text_stream *s);
ARIL_API void aril_text_stream_free(aril_text_stream *s); /* NULL is allowed */

ARIL_C_END

#endif
