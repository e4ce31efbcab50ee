/* Pooling by indices: max_pool_grad, max_pool_pick, max_unpool.
 *
 * The gradient adds all elements with the same index. A chain of positions is linked for each
 * element of the result, by integer exchanges whose order does not matter: the sum follows the
 * positions from first to last. */
#include "backend/cuda/vision/pool.cuh"

#include "backend/cuda/device/errors.cuh"

/* Entries of the workspace: parts of this size stay in the L2 cache. */
static const int64_t MOST_ENTRIES = 8 << 20;

/* `whole` are the images that indices point into, `picked` those of the positions. */
struct job {
    aril_cuda_image whole, picked, indices; /* of one part */
    aril_cuda_walk walk;                    /* over what the kernel iterates over */
    aril_cuda_walk of_picked;               /* from a position in an image to its indices */
    int *head, *next;
    uint32_t n, channels, area, positions;
    bool inner, none; /* channels are innermost in the workspace; -1 is allowed */
    aril_cuda_report report;
};

/* Where the workspace keeps element k, of `size`, of an image. */
static __device__ __forceinline__ int64_t slot(const job &j, uint32_t n, uint32_t c, uint32_t k,
                                               uint32_t size)
{
    if (j.inner) return ((int64_t)n * size + k) * j.channels + c;
    return ((int64_t)n * j.channels + c) * size + k;
}

static __device__ __forceinline__ int64_t place(const aril_cuda_image &m, uint32_t n, uint32_t c,
                                                const uint32_t o[3])
{
    return n * m.stride[0] + c * m.stride[1] + o[0] * m.stride[2] + o[1] * m.stride[3] +
           o[2] * m.stride[4];
}

/* The index of position o of an image: -1 for none, and for a wrong one, which is reported. */
static __device__ __forceinline__ int64_t index_at(const job &j, uint32_t n, uint32_t c,
                                                   const uint32_t o[3])
{
    int64_t k = static_cast<const int64_t *>(j.indices.data)[place(j.indices, n, c, o)];
    if (k >= 0 && k < j.area) return k;
    if (k != -1 || !j.none) aril_cuda_fail(j.report, ARIL_CUDA_BAD_ELEMENT, k, j.area);
    return -1;
}

static __device__ __forceinline__ uint32_t flat(const aril_cuda_image &m, const uint32_t o[3])
{
    return (uint32_t)((o[0] * m.dim[3] + o[1]) * m.dim[4] + o[2]);
}

/* ---- kernels ---- */

/* Links each position into the chain of its index; or, with `LAST`, keeps the last position. */
template <bool LAST>
static __global__ void __launch_bounds__(ARIL_CUDA_THREADS) link_positions(job j)
{
    ARIL_CUDA_LOOP(i, j.n)
    {
        uint32_t n, c, o[3];
        j.walk.split(i, &n, &c, o);
        int64_t k = index_at(j, n, c, o);
        if (k < 0) continue;
        uint32_t position = flat(j.picked, o);
        int *head = j.head + slot(j, n, c, (uint32_t)k, j.area);
        if (LAST)
            atomicMax(head, (int)position);
        else
            j.next[slot(j, n, c, position, j.positions)] = atomicExch(head, (int)position);
    }
}

/* The offset in memory of a position of an image. */
static __device__ __forceinline__ int64_t offset_of(const job &j, uint32_t n, uint32_t c,
                                                    uint32_t position)
{
    uint32_t o[3], rest = j.of_picked.d2.split(position, &o[2]);
    o[0] = j.of_picked.d1.split(rest, &o[1]);
    return place(j.picked, n, c, o);
}

/* Each element of the result adds its chain, from the first position to the last. */
template <typename S> static __global__ void __launch_bounds__(ARIL_CUDA_THREADS) add_chains(job j)
{
    typedef typename aril_cuda_type<S>::compute C;
    const S *g = static_cast<const S *>(j.picked.data);
    ARIL_CUDA_LOOP(i, j.n)
    {
        uint32_t n, c, p[3];
        j.walk.split(i, &n, &c, p);
        int head = j.head[slot(j, n, c, flat(j.whole, p), j.area)];
        C sum = 0;
        bool one = head >= 0 && j.next[slot(j, n, c, (uint32_t)head, j.positions)] < 0;
        if (one) sum = aril_cuda_to<C>(g[offset_of(j, n, c, (uint32_t)head)]);
        for (int last = -1; head >= 0 && !one;) {
            int least = INT32_MAX;
            for (int at = head; at >= 0; at = j.next[slot(j, n, c, (uint32_t)at, j.positions)])
                if (at > last && at < least) least = at;
            if (least == INT32_MAX) break;
            sum += aril_cuda_to<C>(g[offset_of(j, n, c, (uint32_t)least)]);
            last = least;
        }
        static_cast<S *>(j.whole.data)[place(j.whole, n, c, p)] = aril_cuda_from<S>(sum);
    }
}

/* The sum of one chain, given its links and the elements of its image, from the first position to
 * the last. */
template <typename S, typename C>
static __device__ __forceinline__ C sum_of(int head, const int *next, const S *g)
{
    C sum = 0;
    if (head < 0) return sum;
    if (next[head] < 0) return aril_cuda_to<C>(g[head]);
    for (int last = -1;;) {
        int least = INT32_MAX;
        for (int at = head; at >= 0; at = next[at])
            if (at > last && at < least) least = at;
        if (least == INT32_MAX) return sum;
        sum += aril_cuda_to<C>(g[least]);
        last = least;
    }
}

/* The same for contiguous images, one per block at a time, with the chains in shared memory. */
template <typename S>
static __global__ void __launch_bounds__(512) add_in_block(job j, uint32_t images)
{
    typedef typename aril_cuda_type<S>::compute C;
    extern __shared__ int shared[];
    int *head = shared, *next = shared + j.area;
    for (uint32_t image = blockIdx.x; image < images; image += gridDim.x) {
        int64_t n = image / j.channels, c = image % j.channels;
        const int64_t *indices = static_cast<const int64_t *>(j.indices.data) +
                                 n * j.indices.stride[0] + c * j.indices.stride[1];
        const S *g =
            static_cast<const S *>(j.picked.data) + n * j.picked.stride[0] + c * j.picked.stride[1];
        S *to = static_cast<S *>(j.whole.data) + n * j.whole.stride[0] + c * j.whole.stride[1];
        for (uint32_t k = threadIdx.x; k < j.area; k += blockDim.x) head[k] = -1;
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < j.positions; i += blockDim.x) {
            int64_t k = indices[i];
            if (k >= 0 && k < j.area)
                next[i] = atomicExch(&head[k], (int)i);
            else if (k != -1)
                aril_cuda_fail(j.report, ARIL_CUDA_BAD_ELEMENT, k, j.area);
        }
        __syncthreads();
        for (uint32_t k = threadIdx.x; k < j.area; k += blockDim.x)
            to[k] = aril_cuda_from<S>(sum_of<S, C>(head[k], next, g));
        __syncthreads();
    }
}

/* Each element of the result takes that of the last position, or 0. */
template <typename S> static __global__ void __launch_bounds__(ARIL_CUDA_THREADS) take_last(job j)
{
    const S *x = static_cast<const S *>(j.picked.data);
    ARIL_CUDA_LOOP(i, j.n)
    {
        uint32_t n, c, p[3];
        j.walk.split(i, &n, &c, p);
        int at = j.head[slot(j, n, c, flat(j.whole, p), j.area)];
        static_cast<S *>(j.whole.data)[place(j.whole, n, c, p)] =
            at < 0 ? S(0) : x[offset_of(j, n, c, (uint32_t)at)];
    }
}

/* picked = whole[index], 0 for -1 */
template <typename S> static __global__ void __launch_bounds__(ARIL_CUDA_THREADS) pick(job j)
{
    const S *x = static_cast<const S *>(j.whole.data);
    ARIL_CUDA_LOOP(i, j.n)
    {
        uint32_t n, c, o[3], p[3], k;
        j.walk.split(i, &n, &c, o);
        int64_t index = index_at(j, n, c, o);
        k = j.of_picked.d2.split((uint32_t)(index < 0 ? 0 : index), &p[2]);
        p[0] = j.of_picked.d1.split(k, &p[1]);
        static_cast<S *>(j.picked.data)[place(j.picked, n, c, o)] =
            index < 0 ? S(0) : x[place(j.whole, n, c, p)];
    }
}

/* ---- preparing ---- */

static const char *sizes_fit(const aril_run *r, aril_plan *plan)
{
    const char *why = aril_cuda_image_fits(aril_cuda_out(r, 0));
    plan->in[1].dtype = 1 + ARIL_I64;
    return why ? why : aril_cuda_image_fits(aril_cuda_in(r, 0));
}

/* Entries for one part: of images of `each`. */
static int64_t entries(const aril_cuda_image &m, int64_t each)
{
    int64_t all = m.dim[0] * m.dim[1] * each, most = each > MOST_ENTRIES ? each : MOST_ENTRIES;
    return all < most ? all : most;
}

static const char *prepare(const aril_run *r, aril_plan *plan, bool chains)
{
    aril_cuda_image whole = aril_cuda_image_of(aril_cuda_out(r, 0));
    int64_t positions = aril_cuda_area(aril_cuda_image_of(aril_cuda_in(r, 0)));
    int64_t each = aril_cuda_area(whole) + (chains ? positions : 0);
    const char *why = sizes_fit(r, plan);
    plan->workspace = (size_t)entries(whole, each) * sizeof(int);
    return why;
}

const char *aril_cuda_pool_index_prepare(const aril_run *r, aril_plan *plan)
{
    return sizes_fit(r, plan);
}

const char *aril_cuda_max_pool_grad_prepare(const aril_run *r, aril_plan *plan)
{
    return aril_cuda_pool_windows_known(r) ? sizes_fit(r, plan) : prepare(r, plan, true);
}

const char *aril_cuda_max_unpool_prepare(const aril_run *r, aril_plan *plan)
{
    return prepare(r, plan, false);
}

/* ---- running ---- */

static unsigned blocks_of(const aril_run *r, uint32_t n)
{
    return aril_cuda_blocks(r, n, ARIL_CUDA_THREADS, 16);
}

/* The job of one part: all addresses are of its first sample and channel. */
static job part_of(const job &all, const aril_cuda_part &p, int bytes)
{
    job j = all;
    j.whole.data = aril_cuda_part_of(all.whole, p, bytes);
    j.picked.data = aril_cuda_part_of(all.picked, p, bytes);
    j.indices.data = aril_cuda_part_of(all.indices, p, 8);
    j.channels = (uint32_t)p.c;
    j.next = j.head + p.n * p.c * j.area;
    return j;
}

static void walk_over(job *j, const aril_cuda_image &m, const aril_cuda_part &p)
{
    j->walk = aril_cuda_walk_of(m, p.c);
    j->n = (uint32_t)(p.n * p.c * aril_cuda_area(m));
}

static void launch_sums(aril_run *r, const job &j, aril_dtype type)
{
    cudaStream_t s = aril_cuda_stream(r);
    unsigned blocks = blocks_of(r, j.n);
    if (type == ARIL_I64)
        add_chains<int64_t><<<blocks, ARIL_CUDA_THREADS, 0, s>>>(j);
    else if (type == ARIL_U64)
        add_chains<uint64_t><<<blocks, ARIL_CUDA_THREADS, 0, s>>>(j);
    else
        ARIL_CUDA_SWITCH_FLOAT(type, S, (add_chains<S><<<blocks, ARIL_CUDA_THREADS, 0, s>>>(j)));
}

/* Whether each image is contiguous by itself. */
static bool is_packed(const aril_cuda_image &m)
{
    int64_t step = 1;
    for (int d = 4; d >= 2; d--) {
        if (m.dim[d] != 1 && m.stride[d] != step) return false;
        step *= m.dim[d];
    }
    return true;
}

/* Chains fit in the shared memory of a block, of which two or more are resident. */
static bool fits_in_block(const aril_run *r, const job &j)
{
    size_t bytes = ((size_t)j.area + j.positions) * sizeof(int);
    return bytes <= aril_cuda_device_of(r)->shared_per_block / 2 && j.area >= 32 &&
           is_packed(j.whole) && is_packed(j.picked) && is_packed(j.indices);
}

template <typename S> static aril_status launch_blocks(aril_run *r, const job &j, uint32_t images)
{
    size_t bytes = ((size_t)j.area + j.positions) * sizeof(int);
    aril_status s = aril_cuda_allow_shared(r, add_in_block<S>, bytes);
    if (s < 0) return s;
    unsigned threads = j.area > 2048 ? 512 : 128, most = (unsigned)aril_cuda_sms(r) * 32;
    unsigned blocks = images < most ? images : most;
    add_in_block<S><<<blocks, threads, bytes, aril_cuda_stream(r)>>>(j, images);
    return aril_cuda_launched(r);
}

static aril_status sum_in_blocks(aril_run *r, job j, aril_dtype type)
{
    int64_t images = j.whole.dim[0] * j.whole.dim[1];
    aril_status s = ARIL_OK;
    j.channels = (uint32_t)j.whole.dim[1];
    if (images == 0) return ARIL_OK;
    if (type == ARIL_I64) return launch_blocks<int64_t>(r, j, (uint32_t)images);
    if (type == ARIL_U64) return launch_blocks<uint64_t>(r, j, (uint32_t)images);
    ARIL_CUDA_SWITCH_FLOAT(type, S, s = launch_blocks<S>(r, j, (uint32_t)images));
    return s;
}

/* Into the images of the result: sums, or the last of each. */
static aril_status spread(aril_run *r, bool sums)
{
    aril_dtype type = aril_cuda_host->dtype(aril_cuda_out(r, 0));
    int bytes = aril_cuda_size(type);
    job all = {};
    all.whole = aril_cuda_image_at(aril_cuda_out(r, 0));
    all.picked = aril_cuda_image_at(aril_cuda_in(r, 0));
    all.indices = aril_cuda_image_at(aril_cuda_in(r, 1));
    all.area = (uint32_t)aril_cuda_area(all.whole);
    all.positions = (uint32_t)aril_cuda_area(all.picked);
    all.inner = aril_cuda_channels_inner(all.whole);
    all.none = sums;
    all.report = aril_cuda_report_of(r);
    all.head = static_cast<int *>(aril_cuda_host->workspace(r));
    if (all.area == 0) return ARIL_OK;
    if (all.positions) all.of_picked = aril_cuda_walk_of(all.picked, 1);
    if (sums && all.whole.dim[0] * all.whole.dim[1] < ARIL_CUDA_MAX_POSITIONS &&
        fits_in_block(r, all))
        return sum_in_blocks(r, all, type);
    int64_t each = (int64_t)all.area + (sums ? all.positions : 0);
    int64_t most = each > MOST_ENTRIES ? each : MOST_ENTRIES;
    return aril_cuda_each_part(
        all.whole.dim[0], all.whole.dim[1], each, most, [&](const aril_cuda_part &p) {
            cudaStream_t s = aril_cuda_stream(r);
            job j = part_of(all, p, bytes);
            aril_status status = aril_cuda_check(
                r, cudaMemsetAsync(j.head, 0xff, (size_t)(p.n * p.c * j.area) * sizeof(int), s),
                "cudaMemsetAsync");
            if (status < 0) return status;
            if (all.positions) {
                walk_over(&j, all.indices, p);
                if (sums)
                    link_positions<false><<<blocks_of(r, j.n), ARIL_CUDA_THREADS, 0, s>>>(j);
                else
                    link_positions<true><<<blocks_of(r, j.n), ARIL_CUDA_THREADS, 0, s>>>(j);
            }
            walk_over(&j, all.whole, p);
            if (sums)
                launch_sums(r, j, type);
            else
                ARIL_CUDA_SWITCH_SIZE(
                    bytes, S, (take_last<S><<<blocks_of(r, j.n), ARIL_CUDA_THREADS, 0, s>>>(j)));
            return aril_cuda_launched(r);
        });
}

aril_status aril_cuda_max_pool_grad_run(aril_run *r)
{
    return aril_cuda_pool_windows_known(r) ? aril_cuda_pool_gather_run(r) : spread(r, true);
}

aril_status aril_cuda_max_unpool_run(aril_run *r)
{
    return spread(r, false);
}

aril_status aril_cuda_max_pool_pick_run(aril_run *r)
{
    int bytes = aril_cuda_size(aril_cuda_host->dtype(aril_cuda_out(r, 0)));
    job all = {};
    all.whole = aril_cuda_image_at(aril_cuda_in(r, 0));
    all.picked = aril_cuda_image_at(aril_cuda_out(r, 0));
    all.indices = aril_cuda_image_at(aril_cuda_in(r, 1));
    all.area = (uint32_t)aril_cuda_area(all.whole);
    all.none = true;
    all.report = aril_cuda_report_of(r);
    if (all.area) all.of_picked = aril_cuda_walk_of(all.whole, 1); /* of the images picked from */
    int64_t positions = aril_cuda_area(all.picked);
    return aril_cuda_each_part(
        all.picked.dim[0], all.picked.dim[1], positions, ARIL_CUDA_MAX_POSITIONS,
        [&](const aril_cuda_part &p) {
            cudaStream_t s = aril_cuda_stream(r);
            job j = part_of(all, p, bytes);
            walk_over(&j, all.picked, p);
            ARIL_CUDA_SWITCH_SIZE(bytes, S,
                                  (pick<S><<<blocks_of(r, j.n), ARIL_CUDA_THREADS, 0, s>>>(j)));
            return aril_cuda_launched(r);
        });
}
