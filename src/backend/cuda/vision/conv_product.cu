/* x [N,C,in...], w [K,C], y [N,K,out...]. With channels last, x is a matrix [N in,C] and y one
 * [N out,K]: y = x w', x = y w, w = y' x. With samples first there is such a product for each
 * sample, and the gradient of the weights is the sum over samples, which a second kernel adds in
 * their order. Windows that are apart read a packed copy of the elements they meet.
 *
 * cuBLASLt's matrices are column-major: a row-major [rows,columns] is column-major
 * [columns,rows]. */
#include "backend/cuda/vision/conv_product.cuh"

#include "aril/activation.h"
#include "backend/cuda/vision/conv_parts.cuh"

#include <pthread.h>
#include <string.h>

static const size_t MAX_ALGORITHM = (size_t)64 << 20, MAX_PARTS = (size_t)64 << 20;

static size_t rounded(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

bool aril_cuda_conv_is_product(const aril_cuda_conv &d)
{
    if (d.groups != 1 || aril_cuda_area(d.w) != 1) return false;
    for (int i = 0; i < 3; i++)
        if (d.begin[i] || (d.y.dim[2 + i] - 1) * d.stride[i] >= d.x.dim[2 + i]) return false;
    return true;
}

/* ---- descriptors ---- */

/* Column-major factors and result of one call. */
struct matrix {
    int64_t rows, columns, ld; /* ld: elements from one column to the next */
    int64_t step;              /* from one sample to the next */
};

struct sizes {
    matrix first, second, result;
    bool first_t, second_t;
};

static sizes sizes_of(const aril_cuda_conv &d, bool last, int64_t x_pitch, int64_t y_pitch)
{
    int64_t area = aril_cuda_area(d.y), m = d.y.dim[0] * area, c = d.x.dim[1], k = d.y.dim[1];
    matrix w = { c, k, c, 0 };
    if (last) {
        matrix x = { c, m, x_pitch, 0 }, y = { k, m, y_pitch, 0 };
        if (d.role == ARIL_CUDA_CONV_Y) return { w, x, y, true, false };
        if (d.role == ARIL_CUDA_CONV_X) return { w, y, x, false, false };
        return { x, y, w, false, true };
    }
    matrix x = { area, c, area, c * area }, y = { area, k, area, k * area };
    if (d.role == ARIL_CUDA_CONV_Y) return { x, w, y, false, false };
    if (d.role == ARIL_CUDA_CONV_X) return { y, w, x, false, true };
    w.step = c * k;
    return { x, y, w, true, false };
}

static cudaDataType_t data_type(aril_dtype t)
{
    return t == ARIL_F64    ? CUDA_R_64F
           : t == ARIL_F16  ? CUDA_R_16F
           : t == ARIL_BF16 ? CUDA_R_16BF
                            : CUDA_R_32F;
}

static bool lay_out(const aril_cuda_conv_product *p, cublasLtMatrixLayout_t to, const matrix &m)
{
    int32_t count = (int32_t)p->images;
    const aril_cuda_blas *lt = p->lt;
    return lt->cublasLtMatrixLayoutInit_internal(to, sizeof *to, data_type(p->type),
                                                 (uint64_t)m.rows, (uint64_t)m.columns,
                                                 m.ld) == CUBLAS_STATUS_SUCCESS &&
           lt->cublasLtMatrixLayoutSetAttribute(to, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                                sizeof count) == CUBLAS_STATUS_SUCCESS &&
           lt->cublasLtMatrixLayoutSetAttribute(to, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                &m.step, sizeof m.step) == CUBLAS_STATUS_SUCCESS;
}

/* What cuBLASLt does with the sums: a bias has one element per row of the column-major result. */
static cublasLtEpilogue_t epilogue_of(aril_cuda_conv_product *p, const aril_cuda_conv &d, bool relu)
{
    bool forward = d.role == ARIL_CUDA_CONV_Y && p->type != ARIL_F64;
    p->added = d.has_z && !(d.role == ARIL_CUDA_CONV_X && p->strided);
    p->biased = forward && p->last && d.has_bias;
    p->activated = relu && forward && d.activation == ARIL_RELU && p->biased == d.has_bias;
    return p->biased      ? p->activated ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS
           : p->activated ? CUBLASLT_EPILOGUE_RELU
                          : CUBLASLT_EPILOGUE_DEFAULT;
}

static bool describe(aril_cuda_conv_product *p, const aril_cuda_conv &d, const sizes &s, bool relu)
{
    cublasLtEpilogue_t epilogue = epilogue_of(p, d, relu);
    const aril_cuda_blas *lt = p->lt;
    cublasOperation_t first = s.first_t ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = s.second_t ? CUBLAS_OP_T : CUBLAS_OP_N;
    bool wide = p->type == ARIL_F64, fast = p->type == ARIL_F32 && aril_cuda_tf32();
    cublasComputeType_t compute = wide   ? CUBLAS_COMPUTE_64F
                                  : fast ? CUBLAS_COMPUTE_32F_FAST_TF32
                                         : CUBLAS_COMPUTE_32F;
    return lt->cublasLtMatmulDescInit_internal(&p->task, sizeof p->task, compute,
                                               wide ? CUDA_R_64F : CUDA_R_32F) ==
               CUBLAS_STATUS_SUCCESS &&
           lt->cublasLtMatmulDescSetAttribute(&p->task, CUBLASLT_MATMUL_DESC_TRANSA, &first,
                                              sizeof first) == CUBLAS_STATUS_SUCCESS &&
           lt->cublasLtMatmulDescSetAttribute(&p->task, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                              sizeof second) == CUBLAS_STATUS_SUCCESS &&
           lt->cublasLtMatmulDescSetAttribute(&p->task, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                              sizeof epilogue) == CUBLAS_STATUS_SUCCESS &&
           lay_out(p, &p->first, s.first) && lay_out(p, &p->second, s.second) &&
           lay_out(p, &p->result, s.result);
}

/* Algorithm number `choice` of those whose sums are made in the compute type, always in the same
 * order. */
static bool choose(aril_cuda_conv_product *p, int choice)
{
    const aril_cuda_blas *lt = p->lt;
    cublasLtMatmulPreferenceOpaque_t want;
    cublasLtMatmulHeuristicResult_t found[ARIL_CUDA_CONV_ALGORITHMS] = {};
    uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, alignment = 16;
    int n = 0;
    static const cublasLtMatmulPreferenceAttributes_t aligned[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES
    };
    if (choice < 0 || choice >= ARIL_CUDA_CONV_ALGORITHMS ||
        lt->cublasLtMatmulPreferenceInit_internal(&want, sizeof want) != CUBLAS_STATUS_SUCCESS)
        return false;
    lt->cublasLtMatmulPreferenceSetAttribute(&want, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &MAX_ALGORITHM, sizeof MAX_ALGORITHM);
    lt->cublasLtMatmulPreferenceSetAttribute(&want, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                             &reduction, sizeof reduction);
    for (cublasLtMatmulPreferenceAttributes_t which : aligned)
        lt->cublasLtMatmulPreferenceSetAttribute(&want, which, &alignment, sizeof alignment);
    if (lt->cublasLtMatmulAlgoGetHeuristic(p->handle, &p->task, &p->first, &p->second, &p->result,
                                           &p->result, &want, ARIL_CUDA_CONV_ALGORITHMS, found,
                                           &n) != CUBLAS_STATUS_SUCCESS ||
        choice >= n || found[choice].state != CUBLAS_STATUS_SUCCESS)
        return false;
    p->algorithm = found[choice].algo;
    p->algorithm_bytes = rounded(found[choice].workspaceSize);
    return true;
}

/* ---- ReLU of NaN ---- */

/* Some of cuBLASLt's kernels make 0 of NaN. Each algorithm is asked once. */
struct asked {
    cublasLtMatmulAlgo_t algorithm;
    aril_dtype type;
    bool keeps;
};
enum { MAX_ASKED = 256 };
static asked answers[MAX_ASKED];
static int n_answers;
static pthread_mutex_t answers_lock = PTHREAD_MUTEX_INITIALIZER;

static matrix cut(matrix m, int64_t columns)
{
    if (m.columns > columns) m.columns = columns;
    return m;
}

/* Multiplies NaN by 0 for a few of the pixels, on a stream of its own. */
static bool ask_algorithm(const aril_cuda_conv_product *p, const sizes &s)
{
    enum { PIXELS = 256, ROOM = 256 };
    aril_cuda_conv_product q = *p;
    matrix x = p->last ? cut(s.second, PIXELS) : s.first;
    matrix y = p->last ? cut(s.result, PIXELS) : s.result, w = p->last ? s.first : s.second;
    size_t element = (size_t)aril_cuda_size(p->type);
    size_t x_bytes = rounded((size_t)(x.ld * x.columns) * element);
    size_t w_bytes = rounded((size_t)(w.ld * w.columns) * element);
    size_t y_bytes = rounded((size_t)(y.ld * y.columns) * element), b_bytes = y_bytes;
    size_t bytes = x_bytes + w_bytes + y_bytes + b_bytes + p->algorithm_bytes;
    static const float one = 1;
    char *memory = nullptr;
    uint32_t nan = ~0u, got = 0;
    cudaStream_t stream = nullptr;
    q.images = 1;
    bool ok = lay_out(&q, &q.first, p->last ? w : x) && lay_out(&q, &q.second, p->last ? x : w) &&
              lay_out(&q, &q.result, y) &&
              cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess &&
              cudaMalloc(reinterpret_cast<void **>(&memory), bytes + ROOM) == cudaSuccess;
    if (ok) {
        char *to_w = memory + x_bytes, *to_y = to_w + w_bytes, *bias = to_y + y_bytes;
        cudaMemsetAsync(memory, 0, bytes, stream);
        cudaMemcpyAsync(memory, &nan, element, cudaMemcpyHostToDevice, stream);
        if (p->biased)
            q.lt->cublasLtMatmulDescSetAttribute(&q.task, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                                 sizeof bias);
        ok = q.lt->cublasLtMatmul(q.handle, &q.task, &one, p->last ? to_w : memory, &q.first,
                                  p->last ? memory : to_w, &q.second, &one, to_y, &q.result, to_y,
                                  &q.result, &q.algorithm, bias + b_bytes, q.algorithm_bytes,
                                  stream) == CUBLAS_STATUS_SUCCESS &&
             cudaMemcpyAsync(&got, to_y, element, cudaMemcpyDeviceToHost, stream) == cudaSuccess &&
             cudaStreamSynchronize(stream) == cudaSuccess;
    }
    if (memory) cudaFree(memory);
    if (stream) cudaStreamDestroy(stream);
    cudaGetLastError();
    return ok && (got & (element == 2 ? 0x7fffu : 0x7fffffffu)) != 0; /* not a zero */
}

static bool relu_keeps_nan(const aril_cuda_conv_product *p, const sizes &s)
{
    bool known = false, keeps = false;
    pthread_mutex_lock(&answers_lock);
    for (int i = 0; i < n_answers && !known; i++) {
        known = answers[i].type == p->type &&
                memcmp(&answers[i].algorithm, &p->algorithm, sizeof p->algorithm) == 0;
        keeps = answers[i].keeps;
    }
    if (!known && n_answers < MAX_ASKED) {
        cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed; /* others may be recording */
        cudaThreadExchangeStreamCaptureMode(&mode);
        keeps = ask_algorithm(p, s);
        cudaThreadExchangeStreamCaptureMode(&mode);
        answers[n_answers++] = { p->algorithm, p->type, keeps };
        known = true;
    }
    pthread_mutex_unlock(&answers_lock);
    return known && keeps;
}

/* ---- making ---- */

bool aril_cuda_conv_product_make(aril_cuda_device *device, const aril_cuda_conv &d, aril_dtype type,
                                 bool last, int64_t x_pitch, int64_t y_pitch, int choice,
                                 aril_cuda_conv_product *p)
{
    *p = {};
    p->lt = aril_cuda_blas_library(nullptr);
    p->handle = p->lt ? aril_cuda_blas_handle(device) : nullptr;
    if (!p->handle) return false;
    size_t element = (size_t)aril_cuda_size(type);
    int64_t count = d.x.dim[1] * aril_cuda_area(d.x), weights = d.w.dim[0] * d.w.dim[1];
    if (d.x.dim[0] * count > ARIL_CUDA_MAX_POSITIONS)
        return false; /* the copies count in 32 bits */
    bool parts = !last && d.role == ARIL_CUDA_CONV_W;
    size_t part_bytes = (size_t)weights * element;
    if (parts && element == 2) return false; /* sums of rounded parts */
    p->type = type;
    p->last = last;
    p->images = last ? 1 : d.y.dim[0];
    if (parts && (size_t)p->images > MAX_PARTS / part_bytes)
        p->images = (int64_t)(MAX_PARTS / part_bytes ? MAX_PARTS / part_bytes : 1);
    while (d.y.dim[0] % p->images && !last) p->images--; /* calls of one size */
    for (int i = 0; i < 3; i++) p->strided = p->strided || d.y.dim[2 + i] != d.x.dim[2 + i];
    if (p->strided && last && x_pitch != d.x.dim[1]) return false; /* packed by a copy first */
    sizes s = sizes_of(d, last, x_pitch, y_pitch);
    if (!describe(p, d, s, true) || !choose(p, choice)) return false;
    if (p->activated && !relu_keeps_nan(p, s) && (!describe(p, d, s, false) || !choose(p, choice)))
        return false;
    if (p->strided)
        p->packed_bytes =
            rounded((size_t)(d.x.dim[0] * d.x.dim[1] * aril_cuda_area(d.y)) * element);
    if (parts && d.y.dim[0] > 1) p->parts_bytes = rounded((size_t)p->images * part_bytes);
    p->workspace = p->algorithm_bytes + p->packed_bytes + p->parts_bytes;
    return true;
}

/* ---- kernels ---- */

/* Where windows begin. */
struct steps {
    uint32_t stride[3], in[3], out[3];
};

/* One item is a vector of V channels with channels last, else an element. */
template <typename V>
static __global__ void __launch_bounds__(ARIL_CUDA_THREADS)
    pack(aril_cuda_walk walk, steps s, uint32_t channels, const V *x, V *packed, uint32_t n)
{
    ARIL_CUDA_LOOP(i, n)
    {
        uint32_t sample, channel, o[3];
        walk.split(i, &sample, &channel, o);
        uint32_t at =
            (o[0] * s.stride[0] * s.in[1] + o[1] * s.stride[1]) * s.in[2] + o[2] * s.stride[2];
        uint32_t area = s.in[0] * s.in[1] * s.in[2];
        packed[i] = walk.inner ? x[(sample * area + at) * channels + channel]
                               : x[(sample * channels + channel) * area + at];
    }
}

/* The reverse: elements that no window meets are 0. */
template <typename V>
static __global__ void __launch_bounds__(ARIL_CUDA_THREADS)
    unpack(aril_cuda_walk walk, steps s, uint32_t channels, const V *packed, V *x, uint32_t n)
{
    ARIL_CUDA_LOOP(i, n)
    {
        uint32_t sample, channel, o[3], at = 0;
        bool met = true;
        walk.split(i, &sample, &channel, o);
        for (int j = 0; j < 3; j++) {
            uint32_t window = o[j] / s.stride[j];
            met = met && window * s.stride[j] == o[j] && window < s.out[j];
            at = at * s.out[j] + window;
        }
        uint32_t area = s.out[0] * s.out[1] * s.out[2];
        V v = {};
        if (met)
            v = walk.inner ? packed[(sample * area + at) * channels + channel]
                           : packed[(sample * channels + channel) * area + at];
        x[i] = v;
    }
}

/* ---- running ---- */

static steps steps_of(const aril_cuda_conv &d)
{
    steps s;
    for (int i = 0; i < 3; i++) {
        s.stride[i] = (uint32_t)d.stride[i];
        s.in[i] = (uint32_t)d.x.dim[2 + i];
        s.out[i] = (uint32_t)d.y.dim[2 + i];
    }
    return s;
}

/* Copies between x and its packed form, in items of V. */
template <typename V>
static void move(const aril_run *r, const aril_cuda_conv_product *p, const aril_cuda_conv &d,
                 uint32_t per_item, void *packed)
{
    uint32_t channels = (uint32_t)d.x.dim[1] / per_item;
    bool out = d.role == ARIL_CUDA_CONV_X;
    const aril_cuda_image &over = out ? d.x : d.y;
    aril_cuda_walk walk = aril_cuda_walk_of(over, channels);
    walk.inner = p->last;
    uint32_t n = (uint32_t)(over.dim[0] * aril_cuda_area(over)) * channels;
    unsigned blocks = aril_cuda_blocks(r, n, ARIL_CUDA_THREADS, 8);
    cudaStream_t stream = aril_cuda_stream(r);
    if (out)
        unpack<V><<<blocks, ARIL_CUDA_THREADS, 0, stream>>>(walk, steps_of(d), channels,
                                                            static_cast<const V *>(packed),
                                                            static_cast<V *>(d.x.data), n);
    else
        pack<V><<<blocks, ARIL_CUDA_THREADS, 0, stream>>>(walk, steps_of(d), channels,
                                                          static_cast<const V *>(d.x.data),
                                                          static_cast<V *>(packed), n);
}

static void move_as(const aril_run *r, const aril_cuda_conv_product *p, const aril_cuda_conv &d,
                    void *packed)
{
    int64_t element = aril_cuda_size(p->type), vector = 16 / element;
    if (p->last && d.x.dim[1] % vector == 0)
        move<uint4>(r, p, d, (uint32_t)vector, packed);
    else if (element == 8)
        move<uint64_t>(r, p, d, 1, packed);
    else if (element == 4)
        move<uint32_t>(r, p, d, 1, packed);
    else
        move<uint16_t>(r, p, d, 1, packed);
}

static void add_up(const aril_run *r, const aril_cuda_conv_product *p, const aril_cuda_conv &d,
                   const void *parts, bool add)
{
    int64_t n = d.w.dim[0] * d.w.dim[1];
    if (p->type == ARIL_F64)
        aril_cuda_parts_run<double>(r, parts, d.w.data, p->images, n, add);
    else
        aril_cuda_parts_run<float>(r, parts, d.w.data, p->images, n, add);
}

/* z: what is added, in the order of the result, or NULL. */
static const char *multiply(const aril_run *r, const aril_cuda_conv_product *p, const void *first,
                            const void *second, const void *bias, const void *z, void *result,
                            void *workspace)
{
    static const float one = 1, zero = 0;
    static const double wide_one = 1, wide_zero = 0;
    bool wide = p->type == ARIL_F64;
    const void *alpha = wide ? (const void *)&wide_one : (const void *)&one;
    const void *none = wide ? (const void *)&wide_zero : (const void *)&zero;
    aril_cuda_conv_product q = *p; /* its descriptors are not const */
    if (p->biased)
        q.lt->cublasLtMatmulDescSetAttribute(&q.task, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                             sizeof bias);
    cublasStatus_t s =
        q.lt->cublasLtMatmul(q.handle, &q.task, alpha, first, &q.first, second, &q.second,
                             z ? alpha : none, z ? z : result, &q.result, result, &q.result,
                             &q.algorithm, workspace, q.algorithm_bytes, aril_cuda_stream(r));
    return s == CUBLAS_STATUS_SUCCESS ? nullptr : "cublasLtMatmul failed";
}

const char *aril_cuda_conv_product_run(const aril_run *r, const aril_cuda_conv_product *p,
                                       const aril_cuda_conv &d, void *workspace)
{
    char *memory = static_cast<char *>(workspace), *packed = memory + p->algorithm_bytes;
    char *parts = packed + p->packed_bytes;
    int64_t element = aril_cuda_size(p->type), area = aril_cuda_area(d.y);
    char *x = p->strided ? packed : static_cast<char *>(d.x.data);
    char *y = static_cast<char *>(d.y.data), *w = static_cast<char *>(d.w.data);
    const char *z = p->added ? static_cast<const char *>(d.z.data) : nullptr;
    int64_t calls = p->last ? 1 : d.y.dim[0] / p->images;
    int64_t x_step = p->images * d.x.dim[1] * area * element;
    int64_t y_step = p->images * d.y.dim[1] * area * element;
    const char *why = nullptr;
    if (p->strided && d.role != ARIL_CUDA_CONV_X) move_as(r, p, d, packed);
    for (int64_t i = 0; i < calls && !why; i++, x += x_step, y += y_step) {
        if (d.role == ARIL_CUDA_CONV_Y)
            why = multiply(r, p, p->last ? w : x, p->last ? x : w, d.bias,
                           z ? z + i * y_step : nullptr, y, memory);
        else if (d.role == ARIL_CUDA_CONV_X)
            why = multiply(r, p, p->last ? w : y, p->last ? y : w, nullptr,
                           z ? z + i * x_step : nullptr, x, memory);
        else
            why = multiply(r, p, x, y, nullptr, nullptr, p->parts_bytes ? parts : w, memory);
        if (!why && p->parts_bytes) add_up(r, p, d, parts, i > 0);
    }
    if (!why && p->strided && d.role == ARIL_CUDA_CONV_X) move_as(r, p, d, packed);
    return why;
}
