/* Decoders from inside. */
#ifndef ARIL_MODELS_DECODER_H
#define ARIL_MODELS_DECODER_H

#include "aril/generate.h"

struct aril_decoder {
    const aril_decoder_class *type;
    int64_t max_length; /* 0: any */
    max_align_t data[];
};

/* The sequences of one call of aril_generate. Tokens of sequence i: its prompt, then those that are
 * new. */
typedef struct aril__sequence {
    int64_t *token; /* room for `most` of them */
    int64_t n, prompt, most;
    double score;
    bool done;
} aril__sequence;

typedef struct aril__generation {
    aril_decoder *d;
    const aril_generate_opts *o;
    int64_t prompts, results; /* results: for each prompt */
    aril__sequence *sequence; /* [prompts * results] */
    const aril_list *in;
    int64_t vocabulary;
    float *score; /* [rows,vocabulary]: room for the scores of a step */
    size_t score_room;
} aril__generation;

/* Reads tokens [n,t] for the sequences row .. row + n - 1 and stores the scores of what follows
 * from g->score[row * vocabulary] on, where there are `rows` sequences in all. */
aril_status aril__read_tokens(aril__generation *g, int64_t rows, int64_t row, int64_t n, int64_t t,
                              const int64_t *token);

/* Reads all prompts: the scores of prompt i are in row i. */
aril_status aril__read_prompts(aril__generation *g);

/* Changes the scores of a row for the tokens that occurred. */
void aril__penalize(const aril__generation *g, float *score, const aril__sequence *s);

bool aril__is_stop(const aril_generate_opts *o, int64_t token);

/* Fills the sequences. */
aril_status aril__generate_beams(aril__generation *g);

#endif
