/* TensorBoard writer internals. */
#ifndef ARIL_FORMATS_TENSORBOARD_H
#define ARIL_FORMATS_TENSORBOARD_H

#include "aril/tensorboard.h"
#include "formats/proto.h"

#include <stdio.h>

struct aril_tensorboard {
    char *folder, *path;
    FILE *file;
    aril__proto event; /* buffer of the current event */
    double flushed;    /* when the file was last written */
    bool failed;       /* a write failed: reported once */
    int n_embeddings;
    char **embeddings; /* tags of the embeddings in the projector */
};

/* Begins an event with one summary value, and ends and writes it. In between, the fields of
 * Summary.Value are written to tb->event: 2 scalar, 4 image, 5 histogram, 8 tensor, 9 metadata. */
typedef struct aril__tb_value {
    size_t summary, value;
} aril__tb_value;

/* False, with an error, if the log is NULL or the tag is empty. */
bool aril__tb_begin(aril_tensorboard *tb, const char *what, const char *tag, int64_t step,
                    aril__tb_value *v);
aril_status aril__tb_end(aril_tensorboard *tb, const char *what, aril__tb_value v);

/* Writes the metadata of a TensorBoard plug-in, with its own message. */
void aril__tb_plugin(aril_tensorboard *tb, const char *plugin, const aril__proto *content);

/* Writes an event other than a summary: `content` as field `field` of Event. */
aril_status aril__tb_event(aril_tensorboard *tb, const char *what, uint32_t field,
                           const aril__proto *content);

#endif
