#include "backend/cpu/linalg/cdist.h"

#include "core/parallel.h"
#include "ops/linalg/cdist.h"

#include <math.h>
#include <string.h>

#define TEMPLATE "backend/cpu/linalg/cdist.inc"
#include "core/vector/each_target.inc"

enum {
    WIDEST = 4 * 64,   /* bytes of a row of the largest tile */
    GRAIN = 256 * 1024 /* differences of elements */
};

typedef struct job {
    const char *a, *b, *g, *y;
    char *out;
    int64_t rows_a, rows_b, size;
    size_t bytes;  /* of an element */
    int order;     /* 0: infinity */
    char *scratch; /* tile_bytes for each slot */
} job;

/* Rows begin .. end - 1 of all matrices of a, in parts that belong to the same matrix. */
typedef void part_fn(job *j, int64_t row, int64_t n, const char *b, void *buffer);

static void by_matrix(job *j, int64_t begin, int64_t end, part_fn *part, void *buffer)
{
    while (begin < end) {
        int64_t matrix = begin / j->rows_a, stop = (matrix + 1) * j->rows_a;
        if (stop > end) stop = end;
        part(j, begin, stop - begin, j->b + (size_t)(matrix * j->rows_b * j->size) * j->bytes,
             buffer);
        begin = stop;
    }
}

static void distances_part(job *j, int64_t row, int64_t n, const char *b, void *buffer)
{
    ARIL__PICK(distances, j->bytes == 8)
    (j->a + (size_t)(row * j->size) * j->bytes, n, b, j->rows_b, j->size, j->order, buffer,
     j->out + (size_t)(row * j->rows_b) * j->bytes);
}

/* A tile of rows, transposed. */
static size_t tile_bytes(int64_t size)
{
    return (size_t)(size ? size : 1) * WIDEST;
}

static void distances_range(void *ctx, int64_t begin, int64_t end, int slot)
{
    job *j = ctx;
    by_matrix(j, begin, end, distances_part, j->scratch + (size_t)slot * tile_bytes(j->size));
}

static void gradients_part(job *j, int64_t row, int64_t n, const char *b, void *buffer)
{
    (void)buffer;
    size_t pairs = (size_t)(row * j->rows_b) * j->bytes;
    ARIL__PICK(gradients, j->bytes == 8)
    (j->a + (size_t)(row * j->size) * j->bytes, n, b, j->rows_b, j->size, j->g + pairs,
     j->y + pairs, j->out + (size_t)(row * j->size) * j->bytes);
}

static void gradients_range(void *ctx, int64_t begin, int64_t end)
{
    by_matrix(ctx, begin, end, gradients_part, NULL);
}

static double order_of(const aril__run *r)
{
    return ((const struct cdist_attrs *)r->attrs)->p[0];
}

static job job_of(const aril__run *r, const aril_tensor *a, const aril_tensor *b)
{
    return (job){ .a = aril__ptr(a),
                  .b = aril__ptr(b),
                  .rows_a = a->dim[a->ndim - 2],
                  .rows_b = b->dim[b->ndim - 2],
                  .size = a->dim[a->ndim - 1],
                  .bytes = aril__dtypes[a->dtype].bits / 8,
                  .order = order_of(r) == INFINITY ? 0 : (int)order_of(r) };
}

/* At least 64 rows, for which a tile is transposed. */
static int64_t rows_at_once(const job *j)
{
    return 64 + GRAIN / (j->rows_b * j->size + 1);
}

/* Rows of all matrices of a. */
static int64_t rows_of(const aril__run *r, const job *j)
{
    return j->rows_b ? r->out[0]->numel / j->rows_b : 0;
}

const char *aril__cpu_cdist_prepare(const aril__run *r, aril__plan *plan)
{
    double p = order_of(r);
    if (p != 1 && p != 2 && p != INFINITY) return "norms of order 1, 2 and infinity only";
    job j = job_of(r, r->in[0], r->in[1]);
    plan->workspace =
        (size_t)aril__parallel_slots(rows_of(r, &j), rows_at_once(&j)) * tile_bytes(j.size);
    return NULL;
}

aril_status aril__cpu_cdist(aril__run *r)
{
    job j = job_of(r, r->in[0], r->in[1]);
    j.out = aril__ptr(r->out[0]);
    j.scratch = r->workspace;
    aril__parallel_for_slots(rows_of(r, &j), rows_at_once(&j),
                             (int)(r->workspace_bytes / tile_bytes(j.size)), distances_range, &j);
    return ARIL_OK;
}

const char *aril__cpu_cdist_grad_prepare(const aril__run *r, aril__plan *plan)
{
    (void)plan;
    return order_of(r) == 2 ? NULL : "the Euclidean norm only";
}

aril_status aril__cpu_cdist_grad(aril__run *r)
{
    job j = job_of(r, r->in[1], r->in[2]);
    j.g = aril__ptr(r->in[0]);
    j.y = aril__ptr(r->in[3]);
    j.out = aril__ptr(r->out[0]);
    int64_t n = j.size ? r->out[0]->numel / j.size : 0;
    aril__parallel_for(n, rows_at_once(&j), gradients_range, &j);
    return ARIL_OK;
}
