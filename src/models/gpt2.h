/* GPT-2 from inside, for those that generate with it or read its files. */
#ifndef ARIL_MODELS_GPT2_H
#define ARIL_MODELS_GPT2_H

#include "aril/generate.h"
#include "aril/weights.h"

/* Where attention puts the keys (0) and values (1) of new tokens, [N,heads,T,E], and gets all of
 * them so far, [N,heads,S,E]. */
typedef struct aril__gpt2_cache {
    aril_tensor *(*extend)(void *ctx, int which, aril_tensor *t);
    void *ctx;
    aril_tensor *mask; /* of attention; NULL: none */
    bool causal;
} aril__gpt2_cache;

/* A block with a cache: x [N,T,width] to the same. */
aril_tensor *aril__gpt2_block(aril_module *block, aril_tensor *x, const aril__gpt2_cache *cache);

/* The sizes of a GPT-2; NULL: it is another kind of module. */
const aril_gpt2_opts *aril__gpt2_opts_of(const aril_module *m);

/* What published files call their tensors. */
extern const aril_rename aril__gpt2_names[];

/* A GPT-2 whose matrices are not initialized. */
aril_module *aril__gpt2_empty(aril_gpt2_opts opts);

#endif
