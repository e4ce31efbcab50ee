/* Files with the state of a solver, as Caffe writes them: SolverState in wire form, or HDF5. */
#ifndef ARIL_TRAIN_CAFFE_SOLVERSTATE_H
#define ARIL_TRAIN_CAFFE_SOLVERSTATE_H

#include "formats/hdf5.h"
#include "formats/proto.h"

typedef struct aril__solverstate {
    int64_t iter, step;
    char *net;              /* the file of the weights; NULL: none */
    int n;                  /* tensors of the history */
    aril__message *message; /* while it is read: one of these */
    aril__hdf5 *file;
} aril__solverstate;

/* Appends a file to *to. The history has one f32 or f64 tensor for each of `n`. */
aril_status aril__solverstate_write(const aril__solverstate *s, aril_tensor *const *history,
                                    bool hdf5, aril__bytes *to);

/* Reads a file from memory, which must stay unchanged until it is freed; `path` is for messages.
 * The form is found by the contents. */
aril_status aril__solverstate_read(const char *path, const aril__bytes *from, aril__solverstate *s);
void aril__solverstate_free(aril__solverstate *s);

/* Tensor i of the history, f32 [numel], owned by the scope; poison if it is missing or has another
 * size. */
aril_tensor *aril__solverstate_history(const aril__solverstate *s, const char *path, int i,
                                       int64_t numel);

#endif
