/* TensorBoard writer internals. */
#ifndef ARIL_FORMATS_TENSORBOARD_H
#define ARIL_FORMATS_TENSORBOARD_H

#include "aril/tensorboard.h"
#include "formats/proto.h"

#include <stdio.h>

struct aril_tensorboard {
    char *folder, *path;
    FILE *file;
    aril__message *event;     /* the current event */
    aril__bytes bytes;        /* in wire form */
    aril__message *projector; /* configuration of the projector, with all embeddings; NULL: none */
    double flushed;           /* when the file was last written */
    bool failed;              /* a write failed: reported once */
};

/* Begins an event with one summary value, whose fields the caller then sets, and writes it. False,
 * with an error, if the log is NULL or the tag is empty. */
bool aril__tb_begin(aril_tensorboard *tb, const char *what, const char *tag, int64_t step,
                    aril__message **value);
aril_status aril__tb_end(aril_tensorboard *tb, const char *what);

/* Sets the metadata of a TensorBoard plug-in, with its own message or NULL. */
aril_status aril__tb_plugin(aril__message *value, const char *plugin, aril__message *content);

/* Writes an event with a graph. */
aril_status aril__tb_graph(aril_tensorboard *tb, const char *what, aril__message *graph);

#endif
