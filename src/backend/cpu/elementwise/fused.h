/* The kernel of fused ops: a tile interpreter.
 *
 * The loop of a recipe is cut into tiles of some thousand elements. For each tile, the vector
 * kernels of the steps run one after the other, from one buffer in L1 to the next; only inputs and
 * results go through memory. What a tile does is a program, made once for each set of shapes. */
#ifndef ARIL_CPU_FUSED_H
#define ARIL_CPU_FUSED_H

#include "backend/cpu/elementwise/elementwise.h"
#include "ops/elementwise/fused.h"
#include "ops/table/rows.h"

/* ---- programs ---- */

enum { ARIL__TILE_BYTES = 4096 }; /* of a buffer: several of them stay in L1 */

/* Where the elements of a place are. */
enum aril__place_kind {
    ARIL__PLACE_BUFFER, /* at `offset` in the thread's buffers */
    ARIL__PLACE_FIXED,  /* the same, filled before the first tile: `fill` says with what */
    ARIL__PLACE_INPUT,  /* in the memory of input `index` */
    ARIL__PLACE_OUTPUT, /* in the memory of output `index` */
};

enum aril__place_fill {
    ARIL__FILL_NUMBER, /* constant `index` of the recipe */
    ARIL__FILL_ONE,    /* the one element of input `index` */
    ARIL__FILL_ROW,    /* a row of input `index`, repeated */
};

/* m elements of one dtype, contiguous: a value of the recipe in one of its forms. By rows: an
 * element for each row of the tile. */
typedef struct aril__place {
    uint8_t kind, dtype, index, fill;
    bool by_row;
    uint32_t offset;
} aril__place;

enum aril__tile_kind {
    ARIL__TILE_GATHER, /* reads input `index`, with any strides, into `to` */
    ARIL__TILE_KERNEL, /* to = fn(in) */
    ARIL__TILE_LOAD,   /* to = in[0] in a compute type */
    ARIL__TILE_STORE,  /* to = in[0], which is in a compute type, rounded to a dtype; or the same
                          in the compute type again */
    ARIL__TILE_WRITE,  /* copies in[0] to output `index`, which is contiguous */
    ARIL__TILE_SPREAD, /* writes in[0], in a compute type, to output `index`, with any strides */
    ARIL__TILE_REDUCE, /* adds in[0], float or double, to the accumulators of output `index` */
    ARIL__TILE_ROWS,   /* to = each row of in[0], float or double, reduced as `index` says */
    ARIL__TILE_REPEAT, /* to = in[0], which is by rows, for each element */
    ARIL__TILE_FIRST,  /* to = the first element of each row of in[0] */
    ARIL__TILE_DRAW,   /* to = random numbers from 0 to 1, f32, by the key that is input `index` */
    ARIL__TILE_DROP,   /* to = in[1] * p1 + p2 where in[0] >= p0, else 0 */
    ARIL__TILE_SET,    /* writes in[0], which is by rows, to output `index` */
};

enum { ARIL__NO_PLACE = 0xffff };

typedef struct aril__tile_step {
    uint8_t kind, ctype, index, n_in;
    uint8_t step; /* of the recipe, for errors */
    bool by_row;  /* computes an element for each row */
    uint16_t to, in[ARIL_FUSED_OPERANDS];
    union {
        aril__ew_fn *kernel;
        aril__load_fn *load;
        aril__store_fn *store;
    } fn;
    double p[3];
} aril__tile_step;

/* An input that steps read where it is: bytes of a tile, and the part of them that is requested
 * during each step of the tile before. */
typedef struct aril__direct {
    uint16_t place;
    uint32_t bytes, part;
} aril__direct;

/* A reduced output. */
typedef struct aril__tile_reduce {
    uint8_t reduce;
    bool wide;      /* accumulates double, not float */
    size_t offset;  /* of its accumulators, in those of a chunk: doubles */
    int64_t n, per; /* accumulators; elements of the loop for each */
} aril__tile_reduce;

enum { ARIL__TILE_OPERANDS = ARIL_FUSED_INPUTS + ARIL_FUSED_OUTPUTS };

typedef struct aril__tile_program {
    int n_in, n_out, n_places, n_steps, n_reduces, n_direct;
    int64_t n, tile, inner; /* elements of the loop, of a tile, of the innermost dimension */
    int64_t grain;          /* of the parallel loop */
    size_t buffers;         /* bytes for each thread */
    size_t accumulators;    /* doubles for each chunk */
    bool streams;           /* outputs are so large that they bypass the caches */
    bool prefetches;        /* inputs are so large that they come from memory */
    bool rows;              /* tiles are whole rows of the innermost dimension */
    int ndim;
    int64_t dim[ARIL_MAX_DIMS];
    /* Of inputs, then outputs; of a reduced output, the strides of its accumulators. */
    int64_t stride[ARIL__TILE_OPERANDS][ARIL_MAX_DIMS];
    aril__tile_reduce reduce[ARIL_FUSED_OUTPUTS];
    aril__direct direct[ARIL_FUSED_INPUTS];
    aril_fused_constant constant[ARIL_FUSED_CONSTANTS];
    const char *name[ARIL_FUSED_STEPS]; /* of the ops */
    aril__place *place;
    aril__tile_step *step;
} aril__tile_program;

/* The program of a run; NULL when out of memory. One block: free it. */
aril__tile_program *aril__tile_program_new(const aril__run *r, const aril_fused *f);

/* Which inputs result 0 may overwrite: bit i. */
uint32_t aril__tile_overlay(const aril__tile_program *p, const aril__run *r);

/* Rounds contiguous elements of a compute type to values of a dtype; NULL if there is none. */
aril__store_fn *aril__tile_round(aril_dtype to, aril__ctype c);

/* ---- the row ---- */

const char *aril__cpu_fused_prepare(const aril__run *r, aril_plan *plan);
aril_status aril__cpu_fused(aril__run *r);

#endif
