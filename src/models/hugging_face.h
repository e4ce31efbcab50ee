/* Folders as Hugging Face has them: config.json and weights, in one file or in parts. */
#ifndef ARIL_MODELS_HUGGING_FACE_H
#define ARIL_MODELS_HUGGING_FACE_H

#include "aril/module.h"
#include "aril/weights.h"

/* A key of config.json with a number, and where it goes in the options of the network. */
typedef enum aril__config_kind {
    ARIL__CONFIG_SIZE,     /* an int64_t from 1 to 2^31 - 1; null: left as it is */
    ARIL__CONFIG_FALLBACK, /* the same, where no other key has set it */
    ARIL__CONFIG_COUNT,    /* the same for an int */
    ARIL__CONFIG_NUMBER,   /* a double */
    ARIL__CONFIG_RATE,     /* a double from 0 to 1, where 0 is ARIL_ZERO */
} aril__config_kind;

typedef struct aril__config_key {
    const char *key;
    aril__config_kind kind;
    size_t offset;
} aril__config_key;

/* A key whose value, as JSON text, must be one of two. */
typedef struct aril__config_fixed {
    const char *key, *value, *or_value;
} aril__config_fixed;

/* A kind of network, in tables that end with { 0 }. */
typedef struct aril__config {
    const char *model; /* for messages: "GPT-2" */
    const aril__config_key *keys;
    const aril__config_fixed *fixed;
} aril__config;

/* Reads config.json of a folder into options. */
aril_status aril__config_read(const char *folder, const aril__config *config, void *opts);

/* Makes the tensors of a folder's weights, renamed by the rules, those of m, which must match all
 * of them in name and shape: there are never two copies of them. What the rules leave out is not
 * read. `folder` is a folder, or a file of weights of any kind. */
aril_status aril__take_weights(aril_module *m, const char *folder, const aril_rename *rules);

#endif
