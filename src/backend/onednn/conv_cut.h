/* A convolution cut into pieces, with a primitive for each kind of piece. */
#ifndef ARIL_BACKEND_ONEDNN_CONV_CUT_H
#define ARIL_BACKEND_ONEDNN_CONV_CUT_H

#include "backend/onednn/conv_split.h"
#include "backend/onednn/onednn.h"

/* One piece: samples [batch0, batch0 + batch), a range of the first spatial dimension, and a range
 * of the channels of x and y. */
typedef struct aril__conv_piece {
    int64_t batch0, batch;
    int64_t in0, in, out0, out, begin, end; /* positions, and the padding before and after them */
    int64_t groups, x0, xc, y0, yc;         /* channels: the first, and how many */
    int part;                               /* of the channels: which */
    int partial;                            /* of the sum over samples and rows: which */
    int kind;                               /* the primitive that runs it */
    bool untouched; /* a gradient of weights: some position of the kernel meets padding alone */
} aril__conv_piece;

/* The work cut in one way: depends on the number of threads. */
typedef struct aril__conv_cut {
    struct aril__conv_cut *next;
    int64_t wanted;
    int n, n_kinds, n_parts, n_partials;
    aril__dnn *kind;       /* [n_kinds] */
    aril__dnn_order order; /* weights from the tensor's order to the primitives', or back */
    size_t *part_at;       /* [n_parts]: where each part of the channels has its weights */
    size_t w_bytes;        /* of the weights in the primitives' order */
    size_t space;          /* bytes that a piece takes while it runs, at most */
    aril__conv_piece at[];
} aril__conv_cut;

/* What does not depend on the number of threads. */
typedef struct aril__conv_plan {
    const aril__op *op;
    enum aril__conv_role role;
    aril__conv d;
    int spatial;           /* dimensions, of which the first is cut */
    dnnl_data_type_t type; /* of images and weights, */
    int64_t size;          /* and the bytes of an element */
    bool bias;
    int64_t
        after; /* the activation, where oneDNN would make 0 of NaN: Aril applies it to each piece */
    pthread_mutex_t lock; /* of the list */
    aril__conv_cut *cuts;
} aril__conv_plan;

/* The cut for so many pieces: the cheapest one for which oneDNN has fast kernels throughout. NULL,
 * with the reason, where it has none even for the whole. */
aril__conv_cut *aril__conv_cut_new(const aril__conv_plan *p, int64_t wanted, const char **why);
void aril__conv_cut_free(aril__conv_cut *c);

/* What a piece keeps beside a primitive's working memory: contiguous copies of its part of x and y,
 * in bytes; 0 where the images are contiguous as they are. */
size_t aril__conv_staged_x(const aril__conv_plan *p, const aril__conv_piece *s);
size_t aril__conv_staged_y(const aril__conv_plan *p, const aril__conv_piece *s);

/* Bytes on whole cache lines. */
static inline size_t aril__conv_lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

#endif
