/* Inside a tokenizer: its tokens, its merges, and tables to find them. */
#ifndef ARIL_TEXT_TOKENIZER_H
#define ARIL_TEXT_TOKENIZER_H

#include "aril/tokenizer.h"
#include "formats/bytes.h"
#include "text/normalize.h"

#include <stdatomic.h>

enum { ARIL__MAX_TOKENS = 1 << 24 };

/* What a token is. */
enum {
    ARIL__TOKEN_USED = 1,    /* there is a token of this id */
    ARIL__TOKEN_BYTES = 2,   /* spelled in GPT-2's alphabet: text becomes such tokens */
    ARIL__TOKEN_ADDED = 4,   /* stands for itself in a text */
    ARIL__TOKEN_SPECIAL = 8, /* and can be skipped when decoding */
    ARIL__TOKEN_LEFT = 16,   /* takes the white space before it, */
    ARIL__TOKEN_RIGHT = 32,  /* and that after it */
    ARIL__TOKEN_MODEL = 64,  /* stands in the vocabulary of the model */
    ARIL__TOKEN_LATER = 128, /* found in the normalized text that the other added tokens leave */
};

typedef struct aril__token {
    size_t at; /* its bytes begin here in `text`, with a NUL after them */
    uint32_t size;
    uint8_t kind;
} aril__token;

/* What an added token looks like: in a text, or, if it is found later, in normalized text. */
typedef struct aril__form {
    size_t at; /* its bytes begin here in `text` or `forms` */
    uint32_t size, id;
} aril__form;

/* A merge: two tokens that become one. Its rank is its index. */
typedef struct aril__merge {
    uint32_t left, right, result;
} aril__merge;

/* What merging the bytes of a token gives: found out when it first occurs as a word. */
enum { ARIL__UNKNOWN, ARIL__WHOLE, ARIL__IN_PARTS };

struct aril__bpe;

/* A kind of tokenizer. */
typedef struct aril__tokenizer_kind {
    const char *model; /* in tokenizer.json: "BPE" */
    bool spelled;      /* its vocabulary is spelled in GPT-2's alphabet of bytes */
    /* Appends the normalized text. NULL: text stays as it is. */
    void (*normalize)(const aril_tokenizer *t, const unsigned char *p, size_t n, aril__bytes *to);
    /* Appends the tokens, int64_t, of a normalized text without added tokens. */
    aril_status (*encode)(const aril_tokenizer *t, struct aril__bpe *b, const unsigned char *p,
                          size_t n, aril__bytes *to);
    /* Appends the text of a token, which may depend on whether it is the first. */
    void (*decode)(const aril_tokenizer *t, int64_t id, bool first, aril__bytes *to);
    /* Writes its own files to a folder, all but tokenizer.json. */
    aril_status (*save)(const aril_tokenizer *t, const char *folder);
    /* Appends the parts of tokenizer.json behind "added_tokens". */
    void (*write)(const aril_tokenizer *t, aril__bytes *to);
} aril__tokenizer_kind;

extern const aril__tokenizer_kind aril__tokenizer_bpe, aril__tokenizer_wordpiece;

struct aril_tokenizer {
    const aril__tokenizer_kind *kind;
    aril__bytes text;
    aril__token *token;
    int64_t n; /* 1 + the largest id */
    size_t token_room;
    _Atomic uint8_t *whole; /* [n], or NULL before aril__tokenizer_ready */
    size_t longest;         /* bytes of the longest token */
    uint32_t *slot;         /* hash table of tokens by bytes: id + 1, 0 if free */
    size_t slots;
    aril__merge *merge;
    int64_t merges;
    size_t merge_room;
    uint32_t *pair; /* hash table of merges by pair: rank + 1, 0 if free */
    size_t pairs;
    int64_t byte[256]; /* the token of each byte, -1: none */
    aril__form *added; /* the added tokens as files spell them, the longest first */
    int64_t n_added;
    size_t added_room;
    bool starts_added[256]; /* bytes that an added token begins with */
    aril__bytes forms;      /* texts of the added tokens that are found later, */
    aril__form *later;      /* the longest first */
    int64_t n_later;
    bool starts_later[256]; /* bytes that such a text begins with */
    bool prefix_space;      /* text gets a space in front */
    int64_t unknown;        /* the token of bytes that have none; -1: they are an error */

    /* WordPiece: */
    aril__normalizer normalizer;
    char *part;            /* what tokens within a word begin with; NULL: "##" */
    int64_t word_limit;    /* characters of a word; longer ones are unknown */
    int64_t before, after; /* tokens of a framed text; -1: none */
    bool spaces_stay;      /* before punctuation, in decoded text */
};

/* A tokenizer without tokens; NULL, with an error, when out of memory. */
aril_tokenizer *aril__tokenizer_new(void);

/* Adds a token of a new id; `what` names where it came from in errors. */
aril_status aril__token_add(aril_tokenizer *t, const char *what, int64_t id, const void *bytes,
                            size_t size, unsigned kind);

/* Marks a token as added. */
aril_status aril__token_mark(aril_tokenizer *t, int64_t id, unsigned kind);

/* The token of these bytes: one of those spelled as bytes, or any other; -1: none. */
int64_t aril__token_find(const aril_tokenizer *t, const void *bytes, size_t size, bool spelled);

/* The token that files spell like this; -1: none. */
int64_t aril__token_spelled(const aril_tokenizer *t, const char *text, size_t size);

/* Adds the merge of the lowest rank so far. */
aril_status aril__merge_add(aril_tokenizer *t, uint32_t left, uint32_t right, uint32_t result);

/* The rank of a pair; -1: it is not merged. */
int64_t aril__merge_find(const aril_tokenizer *t, uint32_t left, uint32_t right);

/* Prepares a tokenizer that has all its tokens and merges for use. */
aril_status aril__tokenizer_ready(aril_tokenizer *t);

/* ---- merging the bytes of a word ---- */

/* Memory for it: begin with { 0 }, free at the end. */
typedef struct aril__bpe {
    struct aril__symbol *symbol;
    uint64_t *heap;
    size_t room;
} aril__bpe;

void aril__bpe_free(aril__bpe *b);

/* Appends the tokens of a word, int64_t, to `to`. */
aril_status aril__bpe_word(const aril_tokenizer *t, aril__bpe *b, const unsigned char *word,
                           size_t n, aril__bytes *to);

aril_status aril__bpe_save(const aril_tokenizer *t, const char *folder);
void aril__bpe_write(const aril_tokenizer *t, aril__bytes *to);

/* ---- WordPiece ---- */

/* What tokens within a word begin with. */
const char *aril__wordpiece_part(const aril_tokenizer *t);

/* Completes a tokenizer that has its vocabulary: its unknown token (NULL: "[UNK]"), and those of a
 * frame. */
aril_status aril__wordpiece_ready(aril_tokenizer *t, const char *what, const char *unknown);

/* ---- files ---- */

/* Reads the text of a vocab.txt, and of a tokenizer_config.json (NULL: none). */
aril_tokenizer *aril__tokenizer_of_lines(const char *path, const aril__bytes *vocab,
                                         const aril__bytes *config);

/* Writes a file of a folder, and frees its text. */
aril_status aril__tokenizer_write(const char *folder, const char *name, aril__bytes *text);

/* Appends a token as files spell it; the same as JSON; {"token":id, ...} of the tokens of the
 * model, or of the others. */
void aril__token_spell(aril__bytes *to, const aril_tokenizer *t, int64_t id);
void aril__token_json(aril__bytes *to, const aril_tokenizer *t, int64_t id);
void aril__vocab_json(aril__bytes *to, const aril_tokenizer *t, bool model);

/* Reads the text of a tokenizer.json, or of a vocab.json and a merges.txt (and added_tokens.json,
 * NULL: none). */
aril_tokenizer *aril__tokenizer_of_json(const char *path, const char *text, size_t size);
aril_tokenizer *aril__tokenizer_of_files(const char *folder, const aril__bytes *vocab,
                                         const aril__bytes *merges, const aril__bytes *added);

#endif
