/* The inside of values. */
#ifndef ARIL_GRAPH_VALUE_H
#define ARIL_GRAPH_VALUE_H

#include "aril/value.h"

/* A text from strings that may contain any bytes. */
typedef struct aril__string {
    const char *at;
    size_t n;
} aril__string;
aril_value *aril__value_strings(aril_shape shape, size_t n, const aril__string *strings);
/* String i of a text, which exists. */
aril__string aril__value_string(const aril_value *v, int64_t i);

/* How many strings are interned now; for tests. */
size_t aril__interned(void);

#endif
