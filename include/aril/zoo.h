/* The zoo: networks by name, made with fresh weights for a shape of input and a number of
 * classes. */
#ifndef ARIL_ZOO_H
#define ARIL_ZOO_H

#include "aril/module.h"

ARIL_C_BEGIN

typedef struct aril_zoo_opts {
    aril_shape
        input; /* of one sample, such as [1,28,28]; no dimensions: what the network was made for */
    int64_t classes; /* results; 0: what it was made for */
} aril_zoo_opts;

/* A network of the zoo. */
typedef struct aril_zoo_entry {
    const char *name;  /* "lenet5" */
    const char *about; /* one line */
    aril_shape input;  /* what it was made for */
    int64_t classes;
    aril_module *(*make)(aril_shape input, int64_t classes);
} aril_zoo_entry;

/* How many there are, and the i-th; NULL where there is none. */
ARIL_API int aril_zoo_count(void);
ARIL_API const aril_zoo_entry *aril_zoo_at(int i);
/* The one of a name; NULL, with an error that names the nearest, where there is none. */
ARIL_API const aril_zoo_entry *aril_zoo_find(const char *name);

/* A network by name, built: all parameters have their sizes. The caller owns it. NULL, with an
 * error, when the name is unknown or the input does not fit. */
ARIL_API aril_module *aril_zoo_make(const char *name, aril_zoo_opts opts);

ARIL_C_END

#endif
