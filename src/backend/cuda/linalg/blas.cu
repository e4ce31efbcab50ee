/* Matrix products by cuBLASLt. `prepare` makes the descriptors and takes the heuristic's first
 * algorithm; `run` only launches.
 *
 * cuBLASLt's matrices are column-major. Row-major c = a b is column-major c' = b' a', so the
 * operands change places, and no one is copied. */
#include "backend/cuda/linalg/product.cuh"

#include "backend/cuda/device/library.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/linalg/epilogue.cuh"

#include <new>

enum { VARIANTS = 3 };
static const size_t WORKSPACE = 32 << 20; /* the most that an algorithm may ask for */

/* What one alignment of addresses allows. */
struct variant {
    int made;         /* atomic: the rest is valid */
    bool found, bias; /* bias: the algorithm adds it */
    cublasLtMatmulAlgo_t algorithm;
};

struct prepared {
    const aril_cuda_blas *lt;
    cublasLtHandle_t handle;
    aril__product p; /* its batch dimensions without that of `count` */
    aril_cuda_product_op op;
    aril_dtype type;
    bool has_bias;
    int activation;
    int64_t count, a_step, b_step, c_step; /* the batch of one call */
    cublasLtMatmulDescOpaque_t task, task_with_bias;
    cublasLtMatrixLayoutOpaque_t a, b, c;
    size_t workspace;
    pthread_mutex_t lock; /* guards making variants */
    variant at[VARIANTS];
};

/* ---- shapes ---- */

/* A row-major matrix [rows, columns] in memory as a column-major one. */
struct stored {
    bool fits, transposed; /* transposed: as [rows, columns] itself */
    int64_t ld;
};

static stored stored_as(int64_t rows, int64_t columns, int64_t row, int64_t column)
{
    int64_t ld = rows == 1 ? columns : row;
    if ((column == 1 || columns == 1) && ld >= columns) return { true, false, ld };
    ld = columns == 1 ? rows : column;
    if ((row == 1 || rows == 1) && ld >= rows) return { true, true, ld };
    return { false, false, 0 };
}

static bool steps_fit(int n, const int64_t *step)
{
    for (int d = 0; d < n; d++)
        if (step[d] < 0) return false;
    return true;
}

static bool a_fits(const aril__product &p)
{
    return stored_as(p.m, p.k, p.a_row, p.a_col).fits && steps_fit(p.ndim, p.a_step);
}

static bool b_fits(const aril__product &p)
{
    return stored_as(p.k, p.n, p.b_row, p.b_col).fits && steps_fit(p.ndim, p.b_step);
}

static bool c_fits(const aril__product &p)
{
    stored c = stored_as(p.m, p.n, p.c_row, p.c_col);
    return c.fits && !c.transposed && steps_fit(p.ndim, p.c_step);
}

/* The product as cuBLASLt can take it: operands that it cannot read are asked for contiguous. */
static bool choose_orders(const aril_run *r, aril_cuda_product_op op, bool follows,
                          aril__product *p, aril_plan *plan)
{
    bool contiguous[3] = { false, false, follows }; /* the epilogue runs over packed results */
    if (!aril_cuda_product_of(r, op, contiguous, p)) contiguous[0] = contiguous[1] = true;
    if (contiguous[0]) aril_cuda_product_of(r, op, contiguous, p);
    contiguous[0] = contiguous[0] || !a_fits(*p);
    contiguous[1] = contiguous[1] || !b_fits(*p);
    contiguous[2] = contiguous[2] || !c_fits(*p);
    aril_cuda_product_of(r, op, contiguous, p);
    /* Merged dimensions may differ now: an operand that fitted may fit no more. */
    contiguous[0] = contiguous[0] || !a_fits(*p);
    contiguous[1] = contiguous[1] || !b_fits(*p);
    contiguous[2] = contiguous[2] || !c_fits(*p);
    bool fits = aril_cuda_product_of(r, op, contiguous, p);
    for (int i = 0; i < 2; i++)
        if (contiguous[i]) plan->in[i].order = ARIL_ORDER_CONTIGUOUS;
    if (contiguous[2]) plan->out[0].order = ARIL_ORDER_CONTIGUOUS;
    return fits && a_fits(*p) && b_fits(*p) && c_fits(*p);
}

/* Drops batch dimensions of size 1 and merges those that all operands walk with one stride. */
static void merge_steps(aril__product *p)
{
    int n = 0;
    for (int d = 0; d < p->ndim; d++) {
        if (p->dim[d] == 1) continue;
        int64_t size = p->dim[d];
        bool follows = n > 0 && p->a_step[n - 1] == p->a_step[d] * size &&
                       p->b_step[n - 1] == p->b_step[d] * size &&
                       p->c_step[n - 1] == p->c_step[d] * size;
        int to = follows ? n - 1 : n++;
        p->dim[to] = follows ? p->dim[to] * size : size;
        p->a_step[to] = p->a_step[d];
        p->b_step[to] = p->b_step[d];
        p->c_step[to] = p->c_step[d];
    }
    p->ndim = n;
}

/* Takes the largest batch dimension out of the product, as the batch of one call. */
static void take_batch(prepared *q)
{
    aril__product *p = &q->p;
    int at = 0;
    q->count = 1;
    merge_steps(p);
    if (p->ndim == 0) return;
    for (int d = 1; d < p->ndim; d++)
        if (p->dim[d] > p->dim[at]) at = d;
    q->count = p->dim[at];
    q->a_step = p->a_step[at];
    q->b_step = p->b_step[at];
    q->c_step = p->c_step[at];
    p->ndim--;
    for (int d = at; d < p->ndim; d++) {
        p->dim[d] = p->dim[d + 1];
        p->a_step[d] = p->a_step[d + 1];
        p->b_step[d] = p->b_step[d + 1];
        p->c_step[d] = p->c_step[d + 1];
    }
    p->batch /= q->count;
}

/* ---- descriptors ---- */

static cudaDataType_t data_type(aril_dtype t)
{
    return t == ARIL_F64    ? CUDA_R_64F
           : t == ARIL_F16  ? CUDA_R_16F
           : t == ARIL_BF16 ? CUDA_R_16BF
                            : CUDA_R_32F;
}

static cublasComputeType_t compute_type(aril_dtype t)
{
    if (t == ARIL_F64) return CUBLAS_COMPUTE_64F;
    return t == ARIL_F32 && aril_cuda_tf32() ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

/* A matrix whose rows x columns are stored column-major, and its batch. */
static bool lay_out(const prepared *q, cublasLtMatrixLayout_t m, int64_t rows, int64_t columns,
                    int64_t ld, int64_t step)
{
    const aril_cuda_blas *lt = q->lt;
    int32_t count = (int32_t)q->count;
    return lt->cublasLtMatrixLayoutInit_internal(m, sizeof *m, data_type(q->type), (uint64_t)rows,
                                                 (uint64_t)columns, ld) == CUBLAS_STATUS_SUCCESS &&
           lt->cublasLtMatrixLayoutSetAttribute(m, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                                sizeof count) == CUBLAS_STATUS_SUCCESS &&
           lt->cublasLtMatrixLayoutSetAttribute(m, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                &step, sizeof step) == CUBLAS_STATUS_SUCCESS;
}

static bool set(const prepared *q, cublasLtMatmulDesc_t task, cublasLtMatmulDescAttributes_t what,
                const void *value, size_t bytes)
{
    return q->lt->cublasLtMatmulDescSetAttribute(task, what, value, bytes) == CUBLAS_STATUS_SUCCESS;
}

/* False if a descriptor cannot be made. */
static bool describe(prepared *q)
{
    const aril__product &p = q->p;
    stored a = stored_as(p.m, p.k, p.a_row, p.a_col), b = stored_as(p.k, p.n, p.b_row, p.b_col);
    stored c = stored_as(p.m, p.n, p.c_row, p.c_col);
    /* cuBLASLt's first factor is b', its second a'. */
    cublasOperation_t first = b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t bias = CUBLASLT_EPILOGUE_BIAS;
    cudaDataType_t scale = q->type == ARIL_F64 ? CUDA_R_64F : CUDA_R_32F;
    bool ok =
        q->lt->cublasLtMatmulDescInit_internal(&q->task, sizeof q->task, compute_type(q->type),
                                               scale) == CUBLAS_STATUS_SUCCESS &&
        set(q, &q->task, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first) &&
        set(q, &q->task, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second) &&
        lay_out(q, &q->b, b.transposed ? p.k : p.n, b.transposed ? p.n : p.k, b.ld, q->b_step) &&
        lay_out(q, &q->a, a.transposed ? p.m : p.k, a.transposed ? p.k : p.m, a.ld, q->a_step) &&
        lay_out(q, &q->c, p.n, p.m, c.ld, q->c_step);
    q->task_with_bias = q->task;
    return ok && set(q, &q->task_with_bias, CUBLASLT_MATMUL_DESC_EPILOGUE, &bias, sizeof bias);
}

/* ---- algorithms ---- */

/* The bytes that addresses are multiples of, for each variant. */
static uint32_t alignment_of(const prepared *q, int i)
{
    return i == 0 ? 256 : i == 1 ? 16 : q->type == ARIL_F64 ? 8 : q->type == ARIL_F32 ? 4 : 2;
}

static int variant_for(uintptr_t addresses)
{
    return addresses % 256 == 0 ? 0 : addresses % 16 == 0 ? 1 : 2;
}

/* The heuristic's first choice whose sums are made in the compute type, always in the same
 * order. */
static bool ask_heuristic(const prepared *q, cublasLtMatmulDesc_t task, uint32_t alignment,
                          size_t workspace, cublasLtMatmulHeuristicResult_t *best)
{
    const aril_cuda_blas *lt = q->lt;
    cublasLtMatmulPreferenceOpaque_t want;
    uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    static const cublasLtMatmulPreferenceAttributes_t aligned[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES
    };
    if (lt->cublasLtMatmulPreferenceInit_internal(&want, sizeof want) != CUBLAS_STATUS_SUCCESS)
        return false;
    lt->cublasLtMatmulPreferenceSetAttribute(&want, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &workspace, sizeof workspace);
    lt->cublasLtMatmulPreferenceSetAttribute(&want, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                             &reduction, sizeof reduction);
    for (cublasLtMatmulPreferenceAttributes_t which : aligned)
        lt->cublasLtMatmulPreferenceSetAttribute(&want, which, &alignment, sizeof alignment);
    int n = 0;
    cublasLtMatmulDescOpaque_t described = *task;
    cublasLtMatrixLayoutOpaque_t a = q->a, b = q->b, c = q->c;
    cublasStatus_t s = lt->cublasLtMatmulAlgoGetHeuristic(q->handle, &described, &b, &a, &c, &c,
                                                          &want, 1, best, &n);
    return s == CUBLAS_STATUS_SUCCESS && n > 0 && best->state == CUBLAS_STATUS_SUCCESS;
}

/* The algorithm for one alignment; *workspace is the most it may use, then what it uses. */
static void make_variant(prepared *q, int i, size_t *workspace)
{
    variant *v = &q->at[i];
    uint32_t alignment = alignment_of(q, i);
    cublasLtMatmulHeuristicResult_t best = {};
    if (q->has_bias && q->type != ARIL_F64) {
        const void *like = reinterpret_cast<const void *>((uintptr_t)alignment);
        cublasLtMatmulDescOpaque_t task = q->task_with_bias;
        v->bias = set(q, &task, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &like, sizeof like) &&
                  ask_heuristic(q, &task, alignment, *workspace, &best);
    }
    v->found = v->bias || ask_heuristic(q, &q->task, alignment, *workspace, &best);
    if (v->found) {
        v->algorithm = best.algo;
        *workspace = best.workspaceSize;
    }
    __atomic_store_n(&v->made, 1, __ATOMIC_RELEASE);
}

static const variant *variant_of(prepared *q, int i)
{
    if (!__atomic_load_n(&q->at[i].made, __ATOMIC_ACQUIRE)) {
        size_t workspace = q->workspace;
        pthread_mutex_lock(&q->lock);
        if (!q->at[i].made) make_variant(q, i, &workspace);
        pthread_mutex_unlock(&q->lock);
    }
    return &q->at[i];
}

/* ---- rows ---- */

void aril_cuda_blas_destroy(void *given)
{
    prepared *q = static_cast<prepared *>(given);
    pthread_mutex_destroy(&q->lock);
    delete q;
}

static const char *finish(prepared *q, aril_plan *plan)
{
    if (q->p.k > 0) {
        size_t workspace = WORKSPACE;
        if (!describe(q)) return "cuBLASLt cannot describe it";
        make_variant(q, 0, &workspace);
        if (!q->at[0].found) return "cuBLASLt has no algorithm";
        q->workspace = plan->workspace = workspace;
    }
    plan->prepared = q;
    return nullptr;
}

static const char *prepare(const aril_run *r, aril_plan *plan, aril_cuda_product_op op)
{
    const char *why = nullptr;
    const aril_cuda_blas *lt = aril_cuda_blas_library(&why);
    if (!lt) return why;
    if (aril_cuda_host->numel(aril_cuda_out(r, 0)) == 0) return "an empty result";
    aril_cuda_use(aril_cuda_device_of(r));
    prepared *q = new (std::nothrow) prepared();
    if (!q) return "out of memory";
    pthread_mutex_init(&q->lock, nullptr);
    q->lt = lt;
    q->handle = aril_cuda_blas_handle(aril_cuda_device_of(r));
    q->op = op;
    q->type = aril_cuda_host->type(r);
    q->activation = aril_cuda_product_activation(r, op);
    q->has_bias = aril_cuda_product_bias(r, op) != nullptr;
    if (q->has_bias) plan->in[2].order = ARIL_ORDER_CONTIGUOUS;
    bool follows = q->has_bias || q->activation || aril_cuda_dim(aril_cuda_in(r, 0), -1) == 0;
    if (op == ARIL_CUDA_OUTER_SUM) follows = aril_cuda_host->numel(aril_cuda_in(r, 0)) == 0;
    if (!q->handle)
        why = "cuBLASLt cannot start";
    else if (!choose_orders(r, op, follows, &q->p, plan))
        why = "strides that cuBLASLt cannot read";
    if (!why) take_batch(q);
    if (!why && q->count > INT32_MAX) why = "a batch of 2^31 products";
    if (!why) why = finish(q, plan);
    if (why) aril_cuda_blas_destroy(q);
    return why;
}

const char *aril_cuda_blas_matmul_prepare(const aril_run *r, aril_plan *plan)
{
    return prepare(r, plan, ARIL_CUDA_MATMUL);
}

const char *aril_cuda_blas_linear_prepare(const aril_run *r, aril_plan *plan)
{
    return prepare(r, plan, ARIL_CUDA_LINEAR);
}

const char *aril_cuda_blas_outer_sum_prepare(const aril_run *r, aril_plan *plan)
{
    return prepare(r, plan, ARIL_CUDA_OUTER_SUM);
}

/* ---- running ---- */

/* Addresses of one call. */
struct call {
    const char *a, *b, *bias;
    char *c;
};

static aril_status multiply(aril_run *r, prepared *q, const variant *v, const call &at)
{
    static const float one = 1, zero = 0;
    static const double wide_one = 1, wide_zero = 0;
    bool wide = q->type == ARIL_F64;
    cublasLtMatmulDescOpaque_t task = v->bias ? q->task_with_bias : q->task;
    cublasLtMatrixLayoutOpaque_t a = q->a, b = q->b, c = q->c;
    if (v->bias) set(q, &task, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &at.bias, sizeof at.bias);
    cublasStatus_t s = q->lt->cublasLtMatmul(
        q->handle, &task, wide ? (const void *)&wide_one : (const void *)&one, at.b, &b, at.a, &a,
        wide ? (const void *)&wide_zero : (const void *)&zero, at.c, &c, at.c, &c, &v->algorithm,
        aril_cuda_host->workspace(r), q->workspace, aril_cuda_stream(r));
    if (s == CUBLAS_STATUS_SUCCESS) return ARIL_OK;
    return aril_cuda_host->fail(ARIL_ERR_DEVICE, "%s: cublasLtMatmul failed with status %d",
                                aril_cuda_host->op(r), (int)s);
}

/* What the algorithm did not do, over the packed result. */
static aril_status follow(aril_run *r, const prepared *q, const call &at, bool bias_done)
{
    aril_cuda_epilogue e = {};
    e.y = at.c;
    e.bias = bias_done ? nullptr : at.bias;
    e.bias_stride = 1;
    e.channels = q->p.n;
    e.outer = aril_cuda_host->numel(aril_cuda_out(r, 0)) / q->p.n;
    e.inner = 1;
    e.dtype = q->type;
    e.activation = q->activation;
    e.clear = q->p.k == 0;
    return aril_cuda_epilogue_run(r, &e);
}

/* For addresses that no algorithm takes. */
static aril_status run_plain(aril_run *r, aril_cuda_product_op op)
{
    if (op == ARIL_CUDA_MATMUL) return aril_cuda_matmul_run(r);
    return op == ARIL_CUDA_LINEAR ? aril_cuda_linear_run(r) : aril_cuda_outer_sum_run(r);
}

aril_status aril_cuda_blas_run(aril_run *r)
{
    prepared *q = static_cast<prepared *>(aril_cuda_host->prepared(r));
    int64_t size = q->type == ARIL_F64 ? 8 : q->type == ARIL_F32 ? 4 : 2;
    call base = { static_cast<const char *>(aril_cuda_data(aril_cuda_in(r, 0))),
                  static_cast<const char *>(aril_cuda_data(aril_cuda_in(r, 1))), nullptr,
                  static_cast<char *>(aril_cuda_data(aril_cuda_out(r, 0))) };
    if (q->has_bias) base.bias = static_cast<const char *>(aril_cuda_data(aril_cuda_in(r, 2)));
    if (q->p.k == 0) return follow(r, q, base, false);
    /* One variant for all calls, so that all or none add the bias. */
    uintptr_t bits =
        (uintptr_t)base.a | (uintptr_t)base.b | (uintptr_t)base.c | (uintptr_t)base.bias;
    for (int d = 0; d < q->p.ndim; d++)
        bits |= (uintptr_t)((q->p.a_step[d] | q->p.b_step[d] | q->p.c_step[d]) * size);
    const variant *v = variant_of(q, variant_for(bits));
    if (!v->found) return run_plain(r, q->op);
    aril_status s = ARIL_OK;
    for (int64_t i = 0; i < q->p.batch && s == ARIL_OK; i++) {
        int64_t at[3];
        aril__product_at(&q->p, i, at);
        call one = { base.a + at[0] * size, base.b + at[1] * size, base.bias,
                     base.c + at[2] * size };
        s = multiply(r, q, v, one);
    }
    if (s == ARIL_OK && ((q->has_bias && !v->bias) || q->activation))
        s = follow(r, q, base, v->bias);
    return s == ARIL_OK ? aril_cuda_launched(r) : s;
}
