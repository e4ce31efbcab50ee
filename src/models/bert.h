/* BERT from inside, for those that read its files. */
#ifndef ARIL_MODELS_BERT_H
#define ARIL_MODELS_BERT_H

#include "aril/bert.h"
#include "aril/weights.h"

/* What published files call the tensors of a BERT without the head for masked tokens. */
extern const aril_rename aril__bert_names[];

/* A BERT whose matrices are not initialized. */
aril_module *aril__bert_empty(aril_bert_opts opts);

#endif
