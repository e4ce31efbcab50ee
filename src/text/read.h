/* Reading tokenizers: what all kinds have in common. */
#ifndef ARIL_TEXT_READ_H
#define ARIL_TEXT_READ_H

#include "formats/json.h"
#include "text/tokenizer.h"

/* What is being read. */
typedef struct aril__reading {
    const struct aril__tokenizer_format *format;
    aril_tokenizer *t;
    aril__json j;
    const char *name; /* of the file */
    aril_status status;
    aril__bytes bytes; /* scratch memory */
    size_t merges_at;  /* where the merges begin, if they come before the vocabulary */
    char *unknown;     /* the text of the unknown token */
    bool has_vocab, has_merges, has_type;
} aril__reading;

/* How the parts of a tokenizer.json are read, each with r->j at its value. */
typedef void aril__tokenizer_part(aril__reading *r);
typedef struct aril__tokenizer_format {
    const aril__tokenizer_kind *kind;
    const char *expected; /* for messages: "a byte-level BPE as GPT-2's" */
    aril__tokenizer_part *model, *pre_tokenizer, *decoder, *normalizer;
    aril__tokenizer_part *finish; /* after all of them; NULL: nothing is left to do */
} aril__tokenizer_format;

extern const aril__tokenizer_format aril__wordpiece_format;

/* Errors, which end all loops over r->j: what is wrong in the file; a status; that a part of it is
 * not one that is supported. The first two return false. */
bool aril__read_wrong(aril__reading *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool aril__read_failed(aril__reading *r, aril_status status);
void aril__read_refuse(aril__reading *r, const char *what, const char *got);

/* Reads true or false; reads null, if it is there; reads a string that must be this one. */
bool aril__read_bool(aril__reading *r);
bool aril__read_null(aril__reading *r);
void aril__read_expect(aril__reading *r, const char *what, const char *wanted);

/* Adds a token of the vocabulary; reads all of {"token":id, ...}. */
bool aril__read_token(aril__reading *r, const char *text, uint64_t id, unsigned kind);
void aril__read_vocab(aril__reading *r);

/* Frees all but the tokenizer, and completes that; NULL, with the error. */
aril_tokenizer *aril__read_finish(aril__reading *r);

#endif
