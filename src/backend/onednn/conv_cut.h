/* A convolution cut into pieces, with a primitive for each kind of piece. */
#ifndef ARIL_BACKEND_ONEDNN_CONV_CUT_H
#define ARIL_BACKEND_ONEDNN_CONV_CUT_H

#include "backend/onednn/conv_split.h"
#include "backend/onednn/onednn.h"

/* One piece: samples [batch0, batch0 + batch), a range of the first spatial dimension, and a range
 * of the channels of x and y. */
typedef struct aril__conv_piece {
    int64_t batch0, batch;
    int64_t in0, in, out0, out, begin, end; /* ranges, and the padding before and after */
    int64_t groups, x0, xc, y0, yc;         /* first channel and count, of x and y */
    int part;                               /* index of the part of the channels */
    int partial;                            /* index of the partial sum over samples and rows */
    int kind;                               /* the primitive that runs it */
    bool untouched; /* weight gradient: some kernel position reads only padding */
} aril__conv_piece;

/* One way to cut the work; depends on the number of threads. */
typedef struct aril__conv_cut {
    int64_t wanted;
    int n, n_kinds, n_parts, n_partials;
    aril__dnn *kind;       /* [n_kinds] */
    aril__dnn_order order; /* weights from the tensor's format to the primitives', or back */
    size_t *part_at;       /* [n_parts]: byte offset of the weights of each part */
    size_t w_bytes;        /* of the weights in the primitives' format */
    size_t space;          /* maximum bytes of scratch memory per piece */
    aril__conv_piece at[];
} aril__conv_cut;

typedef struct aril__conv_plan {
    const aril__op *op;
    enum aril__conv_role role;
    aril__conv d;
    int spatial;           /* number of spatial dimensions; the first is cut */
    dnnl_data_type_t type; /* of images and weights */
    int64_t size;          /* bytes per element */
    bool bias;
    bool adds;    /* input 3 is added to y */
    bool widened; /* operands in f16 or bf16 are converted to f32 */
    int64_t
        after; /* the activation when oneDNN's turns NaN into 0: Aril applies it to each piece */
    aril__conv_cut *cut;
    size_t pieces_at; /* where the scratch memory of the pieces begins in the workspace */
    int slots;        /* parts of it, of cut->space bytes: one for each piece or thread */
} aril__conv_plan;

/* The cut into about `wanted` pieces: the cheapest for which every piece has a fast oneDNN kernel.
 * NULL, with the reason, when there is none even for a single piece. */
aril__conv_cut *aril__conv_cut_new(const aril__conv_plan *p, int64_t wanted, const char **why);
void aril__conv_cut_free(aril__conv_cut *c);

/* Scratch bytes that a piece needs besides the primitive's scratchpad: contiguous copies of its
 * part of x and y; 0 when that part is contiguous already. */
size_t aril__conv_staged_x(const aril__conv_plan *p, const aril__conv_piece *s);
size_t aril__conv_staged_y(const aril__conv_plan *p, const aril__conv_piece *s);

/* Rounds up to whole cache lines. */
static inline size_t aril__conv_lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

#endif
