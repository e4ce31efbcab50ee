#include "ops/linalg/lapack.h"

#include "core/memory.h"
#include "core/parallel.h"
#include "ops/table/apply.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum kind {
    INVERSE,
    DET,
    SLOGDET,
    SOLVE,
    TRIANGULAR_SOLVE,
    CHOLESKY,
    QR,
    SVD,
    EIGH,
    PINV,
    LU,
    EIG,
} kind;

#if ARIL_HAVE_LAPACK

extern int openblas_get_num_threads(void);
extern void openblas_set_num_threads(int n);

enum { BLOCK = 32, GRAIN = 32 * 1024 };

typedef struct job job;

/* Processes one matrix; returns 0, or LAPACK's info. */
typedef int one_fn(const job *j, const void *const *in, void *const *out, void *scratch);

struct job {
    kind kind;
    one_fn *one;
    int m, n; /* sizes of the matrix, or of the matrix and the right-hand side */
    bool upper, transpose, unit;
    double rcond;
    size_t work, scratch; /* LAPACK workspace in elements; all scratch in bytes */
    int64_t grain;
    bool empty; /* all results are */
    int n_in, n_out;
    /* For each input and output: the first matrix, bytes per matrix, and batch strides. */
    char *in[2], *out[3];
    int ndim;
    int64_t dim[ARIL_MAX_DIMS], in_step[2][ARIL_MAX_DIMS];
    size_t out_bytes[3];
    atomic_llong bad; /* the first matrix that failed; LLONG_MAX: none */
    char *memory;     /* a slot of `scratch` bytes for each thread */
};

#define T       float
#define EPSILON 1.1920928955078125e-07f
#define NAME(x) x##_f32
#define F(x)    s##x##_
#include "ops/linalg/lapack.inc"
#define T       double
#define EPSILON 2.220446049250313e-16
#define NAME(x) x##_f64
#define F(x)    d##x##_
#include "ops/linalg/lapack.inc"

static void run_some(void *ctx, int64_t begin, int64_t end, int slot)
{
    job *j = ctx;
    void *scratch = j->memory + (size_t)slot * j->scratch;
    for (int64_t b = begin; b < end; b++) {
        const void *in[2] = { NULL, NULL };
        void *out[3] = { NULL, NULL, NULL };
        for (int i = 0; i < j->n_in; i++) {
            int64_t at = 0, rest = b;
            for (int d = j->ndim - 1; d >= 0; d--) {
                at += rest % j->dim[d] * j->in_step[i][d];
                rest /= j->dim[d];
            }
            in[i] = j->in[i] + at;
        }
        for (int i = 0; i < j->n_out; i++) out[i] = j->out[i] + (size_t)b * j->out_bytes[i];
        if (j->one(j, in, out, scratch)) {
            long long first = atomic_load(&j->bad);
            while (b < first && !atomic_compare_exchange_weak(&j->bad, &first, b))
                ;
        }
    }
}

static aril_status answer(const aril__run *r, const job *j, int64_t batch)
{
    static const char *const wrong[] = {
        [INVERSE] = "is singular",
        [SOLVE] = "is singular",
        [TRIANGULAR_SOLVE] = "is singular",
        [CHOLESKY] = "is not positive definite",
        [QR] = "has no factorization",
        [SVD] = "is not finite, or the algorithm did not converge",
        [EIGH] = "is not finite, or the algorithm did not converge",
        [PINV] = "is not finite, or the algorithm did not converge",
        [LU] = "has no factorization",
        [EIG] = "is not finite, or the algorithm did not converge"
    };
    long long bad = atomic_load(&j->bad);
    if (bad == LLONG_MAX) return ARIL_OK;
    if (batch == 1)
        return aril__fail(ARIL_ERR_NUMBER, "%s: the matrix %s", r->op->name, wrong[j->kind]);
    return aril__fail(ARIL_ERR_NUMBER, "%s: matrix %lld of the batch %s", r->op->name, bad,
                      wrong[j->kind]);
}

/* Dimensions per matrix of each result. */
static int own_dims(kind k, int i)
{
    switch (k) {
    case DET:
    case SLOGDET: return 0;
    case SVD: return i == 1 ? 1 : 2;
    case EIGH: return i == 0 ? 1 : 2;
    case EIG: return i == 0 ? 2 : 3; /* pairs of real and imaginary parts */
    default: return 2;
    }
}

static void read_attrs(const aril__run *r, job *j)
{
    if (j->kind == CHOLESKY) {
        j->upper = ((const struct cholesky_attrs *)r->attrs)->upper[0];
    } else if (j->kind == TRIANGULAR_SOLVE) {
        const struct triangular_solve_attrs *a = r->attrs;
        j->upper = a->upper[0];
        j->transpose = a->transpose[0];
        j->unit = a->unit[0];
    } else if (j->kind == PINV) {
        j->rcond = ((const struct pinv_attrs *)r->attrs)->rcond[0];
    }
}

/* The sizes of the matrices and of the memory that one needs; false if they are too large for
 * LAPACK. */
static bool size_job(const aril__run *r, job *j)
{
    const aril_tensor *a = r->in[0], *last = r->in[r->n_in - 1];
    if (a->dim[a->ndim - 2] > INT_MAX / BLOCK || a->dim[a->ndim - 1] > INT_MAX / BLOCK ||
        last->dim[last->ndim - 1] > INT_MAX / BLOCK)
        return false;
    j->m = (int)a->dim[a->ndim - 2];
    j->n = (int)last->dim[last->ndim - 1];
    for (int i = 0; i < r->n_out; i++) j->empty = (i == 0 || j->empty) && !r->out[i]->numel;
    if (j->empty) return true;
    j->scratch = (r->type == ARIL_F64 ? scratch_of_f64(j) : scratch_of_f32(j)) + 64;
    j->scratch = (j->scratch + 63) / 64 * 64;
    int64_t work = (int64_t)j->m * j->m * (j->n > j->m ? j->n : j->m) + 1;
    j->grain = work < GRAIN ? GRAIN / work : 1;
    return j->work <= INT_MAX;
}

static int64_t batch_of(const aril__run *r, kind which)
{
    const aril_tensor *y = r->out[0];
    return aril__count(y->ndim - own_dims(which, 0), y->dim);
}

static size_t scratch_for(const aril__run *r, kind which)
{
    job j = { .kind = which };
    if (!size_job(r, &j) || j.empty) return 0;
    return (size_t)aril__parallel_slots(batch_of(r, which), j.grain) * j.scratch;
}

static aril_status run(aril__run *r, kind which)
{
    job work_on = { .kind = which, .memory = r->workspace }, *j = &work_on;
    const aril_tensor *y = r->out[0];
    bool wide = r->type == ARIL_F64;
    if (!size_job(r, j))
        return aril__fail(ARIL_ERR_UNSUPPORTED, "%s: too large for LAPACK", r->op->name);
    if (j->empty) return ARIL_OK;
    read_attrs(r, j);
    j->one = wide ? one_f64[which] : one_f32[which];
    j->n_in = r->n_in;
    j->n_out = r->n_out;
    j->ndim = y->ndim - own_dims(which, 0);
    memcpy(j->dim, y->dim, sizeof j->dim);
    int64_t batch = batch_of(r, which);
    for (int i = 0; i < r->n_out; i++) {
        const aril_tensor *t = r->out[i];
        int own = own_dims(which, i);
        j->out[i] = aril__ptr(t);
        j->out_bytes[i] = aril__dtype_bytes(r->type, aril__count(own, t->dim + t->ndim - own));
    }
    for (int i = 0; i < r->n_in; i++) {
        const aril_tensor *t = r->in[i];
        int lead = j->ndim - (t->ndim - 2);
        j->in[i] = aril__ptr(t);
        for (int d = 0; d < j->ndim; d++)
            j->in_step[i][d] = d >= lead && t->dim[d - lead] != 1
                                   ? (int64_t)aril__dtype_bytes(r->type, t->stride[d - lead])
                                   : 0;
    }
    /* Each of Aril's threads processes a matrix; OpenBLAS's own threads would oversubscribe. */
    if (openblas_get_num_threads() != 1) openblas_set_num_threads(1);
    atomic_init(&j->bad, LLONG_MAX);
    aril__parallel_for_slots(batch, j->grain, (int)(r->workspace_bytes / j->scratch), run_some, j);
    return answer(r, j, batch);
}

#else

static aril_status run(aril__run *r, kind which)
{
    (void)which;
    return aril__fail(
        ARIL_ERR_UNSUPPORTED,
        "%s: Aril was built without LAPACK; install libopenblas-dev and build it again",
        r->op->name);
}

static size_t scratch_for(const aril__run *r, kind which)
{
    (void)r, (void)which;
    return 0;
}

#endif

#define REFERENCE_OF(op_, kind_)                            \
    aril_status aril__lapack_##op_(aril__run *r)            \
    {                                                       \
        return run(r, kind_);                               \
    }                                                       \
    size_t aril__lapack_##op_##_scratch(const aril__run *r) \
    {                                                       \
        return scratch_for(r, kind_);                       \
    }
REFERENCE_OF(inverse, INVERSE)
REFERENCE_OF(det, DET)
REFERENCE_OF(slogdet, SLOGDET)
REFERENCE_OF(solve, SOLVE)
REFERENCE_OF(triangular_solve, TRIANGULAR_SOLVE)
REFERENCE_OF(cholesky, CHOLESKY)
REFERENCE_OF(qr, QR)
REFERENCE_OF(svd, SVD)
REFERENCE_OF(eigh, EIGH)
REFERENCE_OF(pinv, PINV)
REFERENCE_OF(lu, LU)
REFERENCE_OF(eig, EIG)
