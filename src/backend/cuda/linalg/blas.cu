/* Matrix products by cuBLASLt. `prepare` makes the descriptors and takes the heuristic's first
 * algorithm; `run` only launches.
 *
 * cuBLASLt's matrices are column-major. Row-major c = a b is column-major c' = b' a', so the
 * operands change places, and no one is copied. */
#include "backend/cuda/linalg/blas.cuh"

#include "backend/cuda/dtype.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/linalg/epilogue.cuh"

#include <new>

/* A run's product, and what else the op does. */
struct prepared {
    aril_cuda_gemm gemm;
    aril_cuda_padded *padded; /* the same with aligned rows; NULL: not needed */
    aril_cuda_product_op op;
    int activation;
};

/* ---- shapes ---- */

aril_cuda_stored aril_cuda_stored_as(int64_t rows, int64_t columns, int64_t row, int64_t column)
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
    return aril_cuda_stored_as(p.m, p.k, p.a_row, p.a_col).fits && steps_fit(p.ndim, p.a_step);
}

static bool b_fits(const aril__product &p)
{
    return aril_cuda_stored_as(p.k, p.n, p.b_row, p.b_col).fits && steps_fit(p.ndim, p.b_step);
}

static bool c_fits(const aril__product &p)
{
    aril_cuda_stored c = aril_cuda_stored_as(p.m, p.n, p.c_row, p.c_col);
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
static void take_batch(aril_cuda_gemm *g)
{
    aril__product *p = &g->p;
    int at = 0;
    g->count = 1;
    if (p->ndim == 0) return;
    for (int d = 1; d < p->ndim; d++)
        if (p->dim[d] > p->dim[at]) at = d;
    g->count = p->dim[at];
    g->a_step = p->a_step[at];
    g->b_step = p->b_step[at];
    g->c_step = p->c_step[at];
    p->ndim--;
    for (int d = at; d < p->ndim; d++) {
        p->dim[d] = p->dim[d + 1];
        p->a_step[d] = p->a_step[d + 1];
        p->b_step[d] = p->b_step[d + 1];
        p->c_step[d] = p->c_step[d + 1];
    }
    p->batch /= g->count;
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
static bool lay_out(const aril_cuda_gemm *g, cublasLtMatrixLayout_t m, int64_t rows,
                    int64_t columns, int64_t ld, int64_t step)
{
    const aril_cuda_blas *lt = g->lt;
    int32_t count = (int32_t)g->count;
    return lt->cublasLtMatrixLayoutInit_internal(m, sizeof *m, data_type(g->type), (uint64_t)rows,
                                                 (uint64_t)columns, ld) == CUBLAS_STATUS_SUCCESS &&
           lt->cublasLtMatrixLayoutSetAttribute(m, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                                sizeof count) == CUBLAS_STATUS_SUCCESS &&
           lt->cublasLtMatrixLayoutSetAttribute(m, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                &step, sizeof step) == CUBLAS_STATUS_SUCCESS;
}

static bool set(const aril_cuda_gemm *g, cublasLtMatmulDesc_t task,
                cublasLtMatmulDescAttributes_t what, const void *value, size_t bytes)
{
    return g->lt->cublasLtMatmulDescSetAttribute(task, what, value, bytes) == CUBLAS_STATUS_SUCCESS;
}

/* False if a descriptor cannot be made. */
static bool describe(aril_cuda_gemm *g)
{
    const aril__product &p = g->p;
    aril_cuda_stored a = aril_cuda_stored_as(p.m, p.k, p.a_row, p.a_col),
                     b = aril_cuda_stored_as(p.k, p.n, p.b_row, p.b_col);
    aril_cuda_stored c = aril_cuda_stored_as(p.m, p.n, p.c_row, p.c_col);
    /* cuBLASLt's first factor is b', its second a'. */
    cublasOperation_t first = b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t bias = CUBLASLT_EPILOGUE_BIAS;
    cudaDataType_t scale = g->type == ARIL_F64 ? CUDA_R_64F : CUDA_R_32F;
    bool ok =
        g->lt->cublasLtMatmulDescInit_internal(&g->task, sizeof g->task, compute_type(g->type),
                                               scale) == CUBLAS_STATUS_SUCCESS &&
        set(g, &g->task, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first) &&
        set(g, &g->task, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second) &&
        lay_out(g, &g->b, b.transposed ? p.k : p.n, b.transposed ? p.n : p.k, b.ld, g->b_step) &&
        lay_out(g, &g->a, a.transposed ? p.m : p.k, a.transposed ? p.k : p.m, a.ld, g->a_step) &&
        lay_out(g, &g->c, p.n, p.m, c.ld, g->c_step);
    g->task_with_bias = g->task;
    return ok && set(g, &g->task_with_bias, CUBLASLT_MATMUL_DESC_EPILOGUE, &bias, sizeof bias);
}

/* ---- algorithms ---- */

/* The bytes that addresses are multiples of, for each variant. */
static uint32_t alignment_of(const aril_cuda_gemm *g, int i)
{
    return i == 0 ? 256 : i == 1 ? 16 : g->type == ARIL_F64 ? 8 : g->type == ARIL_F32 ? 4 : 2;
}

static bool ask_heuristic(const aril_cuda_gemm *g, cublasLtMatmulDesc_t task, uint32_t alignment,
                          size_t workspace, cublasLtMatmulHeuristicResult_t *best)
{
    return aril_cuda_blas_choose(g->lt, g->handle, { *task, g->b, g->a, g->c }, alignment,
                                 workspace, best);
}

/* The algorithm for one alignment; *workspace is the most it may use, then what it uses. */
static void make_variant(aril_cuda_gemm *g, int i, size_t *workspace)
{
    aril_cuda_gemm_variant *v = &g->at[i];
    uint32_t alignment = alignment_of(g, i);
    cublasLtMatmulHeuristicResult_t best = {};
    if (g->has_bias && g->type != ARIL_F64) {
        const void *like = reinterpret_cast<const void *>((uintptr_t)alignment);
        cublasLtMatmulDescOpaque_t task = g->task_with_bias;
        v->bias = set(g, &task, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &like, sizeof like) &&
                  ask_heuristic(g, &task, alignment, *workspace, &best);
    }
    v->found = v->bias || ask_heuristic(g, &g->task, alignment, *workspace, &best);
    if (v->found) {
        v->algorithm = best.algo;
        *workspace = best.workspaceSize;
    }
    __atomic_store_n(&v->made, 1, __ATOMIC_RELEASE);
}

const aril_cuda_gemm_variant *aril_cuda_gemm_for(aril_cuda_gemm *g, uintptr_t addresses)
{
    int i = addresses % 256 == 0 ? 0 : addresses % 16 == 0 ? 1 : 2;
    if (!__atomic_load_n(&g->at[i].made, __ATOMIC_ACQUIRE)) {
        size_t workspace = g->workspace;
        pthread_mutex_lock(&g->lock);
        if (!g->at[i].made) make_variant(g, i, &workspace);
        pthread_mutex_unlock(&g->lock);
    }
    return &g->at[i];
}

const char *aril_cuda_gemm_begin(aril_cuda_gemm *g)
{
    size_t workspace = 32 << 20; /* the most that an algorithm may ask for */
    if (!describe(g)) return "cuBLASLt cannot describe it";
    make_variant(g, 0, &workspace);
    if (!g->at[0].found) return "cuBLASLt has no algorithm";
    g->workspace = workspace;
    return nullptr;
}

void aril_cuda_gemm_end(aril_cuda_gemm *g)
{
    pthread_mutex_destroy(&g->lock);
}

aril_status aril_cuda_gemm_run(aril_run *r, aril_cuda_gemm *g, const aril_cuda_gemm_variant *v,
                               const aril_cuda_gemm_call &at)
{
    static const float one = 1, zero = 0;
    static const double wide_one = 1, wide_zero = 0;
    bool wide = g->type == ARIL_F64;
    cublasLtMatmulDescOpaque_t task = v->bias ? g->task_with_bias : g->task;
    cublasLtMatrixLayoutOpaque_t a = g->a, b = g->b, c = g->c;
    if (v->bias) set(g, &task, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &at.bias, sizeof at.bias);
    cublasStatus_t s = g->lt->cublasLtMatmul(
        g->handle, &task, wide ? (const void *)&wide_one : (const void *)&one, at.b, &b, at.a, &a,
        wide ? (const void *)&wide_zero : (const void *)&zero, at.c, &c, at.c, &c, &v->algorithm,
        aril_cuda_host->workspace(r), g->workspace, aril_cuda_stream(r));
    if (s == CUBLAS_STATUS_SUCCESS) return ARIL_OK;
    return aril_cuda_host->fail(ARIL_ERR_DEVICE, "%s: cublasLtMatmul failed with status %d",
                                aril_cuda_host->op(r), (int)s);
}

/* ---- rows ---- */

void aril_cuda_blas_destroy(void *given)
{
    prepared *q = static_cast<prepared *>(given);
    aril_cuda_padded_free(q->padded);
    aril_cuda_gemm_end(&q->gemm);
    delete q;
}

/* Finds algorithms: also for aligned rows, where that pays. */
static const char *finish(prepared *q, aril_plan *plan)
{
    aril_cuda_gemm *g = &q->gemm;
    size_t workspace = 0;
    merge_steps(&g->p);
    if (g->p.k > 0) q->padded = aril_cuda_padded_new(g, &workspace);
    take_batch(g);
    if (g->count > INT32_MAX) return "a batch of 2^31 products";
    if (g->p.k > 0) {
        const char *why = aril_cuda_gemm_begin(g);
        if (why) return why;
        plan->workspace = g->workspace > workspace ? g->workspace : workspace;
    }
    plan->prepared = q;
    return nullptr;
}

/* Whether the plain kernel is done before cuBLASLt is called, as for steps of small recurrent
 * networks. */
static bool is_tiny(const aril_run *r, aril_cuda_product_op op)
{
    const bool as_is[3] = { false, false, false };
    aril__product p;
    return aril_cuda_product_of(r, op, as_is, &p) && p.k <= 64 && p.batch * p.m * p.n <= 4096;
}

static const char *prepare(const aril_run *r, aril_plan *plan, aril_cuda_product_op op)
{
    const char *why = nullptr;
    const aril_cuda_blas *lt = aril_cuda_blas_library(&why);
    if (!lt) return why;
    if (aril_cuda_host->numel(aril_cuda_out(r, 0)) == 0) return "an empty result";
    if (is_tiny(r, op)) return "a product of a few thousand elements";
    aril_cuda_use(aril_cuda_device_of(r));
    prepared *q = new (std::nothrow) prepared();
    if (!q) return "out of memory";
    aril_cuda_gemm *g = &q->gemm;
    pthread_mutex_init(&g->lock, nullptr);
    g->lt = lt;
    g->handle = aril_cuda_blas_handle(aril_cuda_device_of(r));
    g->type = aril_cuda_host->type(r);
    g->has_bias = aril_cuda_product_bias(r, op) != nullptr;
    q->op = op;
    q->activation = aril_cuda_product_activation(r, op);
    if (g->has_bias) plan->in[2].order = ARIL_ORDER_CONTIGUOUS;
    bool follows = g->has_bias || q->activation || aril_cuda_dim(aril_cuda_in(r, 0), -1) == 0;
    if (op == ARIL_CUDA_OUTER_SUM) follows = aril_cuda_host->numel(aril_cuda_in(r, 0)) == 0;
    if (!g->handle)
        why = "cuBLASLt cannot start";
    else if (!choose_orders(r, op, follows, &g->p, plan))
        why = "strides that cuBLASLt cannot read";
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

/* What the algorithm did not do, over the packed result. */
static aril_status follow(aril_run *r, const prepared *q, const aril_cuda_gemm_call &at,
                          bool bias_done)
{
    aril_cuda_epilogue e = {};
    e.y = at.c;
    e.bias = bias_done ? nullptr : at.bias;
    e.bias_stride = 1;
    e.channels = q->gemm.p.n;
    e.outer = aril_cuda_host->numel(aril_cuda_out(r, 0)) / q->gemm.p.n;
    e.inner = 1;
    e.dtype = q->gemm.type;
    e.activation = q->activation;
    e.clear = q->gemm.p.k == 0;
    return aril_cuda_epilogue_run(r, &e);
}

/* For addresses that no algorithm takes. */
static aril_status run_plain(aril_run *r, aril_cuda_product_op op)
{
    if (op == ARIL_CUDA_MATMUL) return aril_cuda_matmul_run(r);
    return op == ARIL_CUDA_LINEAR ? aril_cuda_linear_run(r) : aril_cuda_outer_sum_run(r);
}

/* The product as it is stored, one call for each batch that cuBLASLt does not walk itself. */
static aril_status run_stored(aril_run *r, prepared *q, const aril_cuda_gemm_call &base)
{
    aril_cuda_gemm *g = &q->gemm;
    int64_t size = aril_cuda_size(g->type);
    /* One variant for all calls, so that all or none add the bias. */
    uintptr_t bits =
        (uintptr_t)base.a | (uintptr_t)base.b | (uintptr_t)base.c | (uintptr_t)base.bias;
    for (int d = 0; d < g->p.ndim; d++)
        bits |= (uintptr_t)((g->p.a_step[d] | g->p.b_step[d] | g->p.c_step[d]) * size);
    const aril_cuda_gemm_variant *v = aril_cuda_gemm_for(g, bits);
    if (!v->found) return run_plain(r, q->op);
    aril_status s = ARIL_OK;
    for (int64_t i = 0; i < g->p.batch && s == ARIL_OK; i++) {
        int64_t at[3];
        aril__product_at(&g->p, i, at);
        aril_cuda_gemm_call one = { base.a + at[0] * size, base.b + at[1] * size, base.bias,
                                    base.c + at[2] * size };
        s = aril_cuda_gemm_run(r, g, v, one);
    }
    if (s == ARIL_OK && ((g->has_bias && !v->bias) || q->activation))
        s = follow(r, q, base, v->bias);
    return s;
}

aril_status aril_cuda_blas_run(aril_run *r)
{
    prepared *q = static_cast<prepared *>(aril_cuda_host->prepared(r));
    aril_cuda_gemm_call base = { static_cast<const char *>(aril_cuda_data(aril_cuda_in(r, 0))),
                                 static_cast<const char *>(aril_cuda_data(aril_cuda_in(r, 1))),
                                 nullptr,
                                 static_cast<char *>(aril_cuda_data(aril_cuda_out(r, 0))) };
    if (q->gemm.has_bias) base.bias = static_cast<const char *>(aril_cuda_data(aril_cuda_in(r, 2)));
    if (q->gemm.p.k == 0) return follow(r, q, base, false);
    bool done = false;
    aril_status s = q->padded ? aril_cuda_padded_run(r, q->padded, base, &done) : ARIL_OK;
    if (s == ARIL_OK && done && q->activation) s = follow(r, q, base, true);
    if (s == ARIL_OK && !done) s = run_stored(r, q, base);
    return s == ARIL_OK ? aril_cuda_launched(r) : s;
}
