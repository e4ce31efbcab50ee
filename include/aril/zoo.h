/* Model zoo: networks by name, created with newly initialized weights for an input shape and a
 * number of classes. */
#ifndef ARIL_ZOO_H
#define ARIL_ZOO_H

#include "aril/module.h"

ARIL_C_BEGIN

typedef struct aril_zoo_opts {
    aril_shape
        input; /* shape of one sample, such as [1,28,28]; no dimensions: the network's default */
    int64_t classes; /* number of outputs; 0: the network's default */
} aril_zoo_opts;

/* A network of the zoo. */
typedef struct aril_zoo_entry {
    const char *name;  /* "lenet5" */
    const char *about; /* one line */
    aril_shape input;  /* default input shape */
    int64_t classes;
    aril_module *(*make)(aril_shape input, int64_t classes);
    aril_dtype dtype; /* of its inputs: ARIL_I64 for tokens; 0: that of the parameters */
} aril_zoo_entry;

/* The number of networks, and the i-th one; NULL if there is none. */
ARIL_API int aril_zoo_count(void);
ARIL_API const aril_zoo_entry *aril_zoo_at(int i);
/* Finds a network by name; NULL, with an error that suggests the closest name, if there is none. */
ARIL_API const aril_zoo_entry *aril_zoo_find(const char *name);

/* Creates a network by name, built: all parameters have their sizes. The caller owns it. NULL, with
 * an error, if the name is unknown or the input does not fit. */
ARIL_API aril_module *aril_zoo_make(const char *name, aril_zoo_opts opts);

ARIL_C_END

#endif
