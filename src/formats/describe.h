/* Printing what files of models contain: the kinds of files, and text for all of them. */
#ifndef ARIL_FORMATS_DESCRIBE_H
#define ARIL_FORMATS_DESCRIBE_H

#include "aril/base.h"
#include "formats/proto.h"

#include <stdio.h>

typedef struct aril__describer {
    const char *ending; /* of the names of its files; NULL: known by their contents */
    bool (*is)(const char *path);
    aril_status (*describe)(const char *path, FILE *out);
} aril__describer;

/* Up to NULL. Defined in src/init.c. */
extern const aril__describer *const aril__describers[];

extern const aril__describer aril__caffemodel_describer, aril__binaryproto_describer,
    aril__solverstate_describer, aril__solverstate_hdf5_describer, aril__prototxt_describer,
    aril__onnx_describer;

/* Prints text of a file: control characters, which could change a terminal, become '?'. */
void aril__put_text(FILE *out, const char *text, size_t n);
/* "1,234 nodes" */
void aril__put_count(FILE *out, uint64_t n, const char *one, const char *many);

#endif
