/* Direct convolution: plain kernels for any strides, sizes and groups. */
#include "backend/cuda/vision/conv.cuh"

#include "backend/cuda/block.cuh"
#include "backend/cuda/linalg/epilogue.cuh"

/* ---- geometry ---- */

/* The padding of spatial dimension i, which `same` derives from the sizes. */
static aril__slide window_of(const conv_attrs *a, int i, int64_t kernel, int64_t in)
{
    aril__slide w = {};
    w.kernel = kernel;
    w.stride = a->stride[i];
    w.begin = a->pad[2 * i];
    w.end = a->pad[2 * i + 1];
    w.dilation = a->dilation[i];
    if (a->same[0]) aril__slide_same(&w, in, a->same[0]);
    return w;
}

/* The attributes of the convolution whose data gradient a transposed convolution is. */
static conv_attrs forward_attrs(const conv_transpose_attrs *a)
{
    conv_attrs f = {};
    f.groups[0] = a->groups[0];
    f.activation[0] = a->activation[0];
    for (int i = 0; i < 3; i++) {
        f.stride[i] = a->stride[i];
        f.dilation[i] = a->dilation[i];
        f.pad[2 * i] = a->pad[2 * i];
        f.pad[2 * i + 1] = a->pad[2 * i + 1] - a->output_padding[i];
    }
    return f;
}

aril_cuda_conv aril_cuda_conv_of(const aril_run *r, aril_cuda_conv_role role, bool transposed)
{
    aril_cuda_conv d = {};
    conv_attrs a = transposed ? forward_attrs(aril_cuda_attrs<conv_transpose_attrs>(r))
                              : *aril_cuda_attrs<conv_attrs>(r);
    const aril_tensor *in0 = aril_cuda_in(r, 0), *in1 = aril_cuda_in(r, 1);
    const aril_tensor *out = aril_cuda_out(r, 0);
    bool forward = role == ARIL_CUDA_CONV_Y || transposed;
    const aril_tensor *bias = forward && aril_cuda_host->n_in(r) > 2 ? aril_cuda_in(r, 2) : nullptr;
    d.role = role;
    d.x = aril_cuda_image_of(role == ARIL_CUDA_CONV_Y ? in0 : role == ARIL_CUDA_CONV_X ? out : in1);
    d.w = aril_cuda_image_of(role == ARIL_CUDA_CONV_W ? out : in1);
    d.y = aril_cuda_image_of(role == ARIL_CUDA_CONV_Y ? out : in0);
    d.spatial = aril_cuda_host->ndim(in0) - 2;
    d.groups = a.groups[0];
    d.c = d.w.dim[1];
    d.k = d.w.dim[0] / d.groups;
    d.has_bias = bias != nullptr;
    d.bias_stride = bias ? aril_cuda_host->strides(bias)[0] : 0;
    d.has_z = aril_cuda_host->n_in(r) > 3; /* ops that add have so many inputs */
    if (d.has_z) d.z = aril_cuda_image_of(aril_cuda_in(r, 3));
    d.activation = forward ? (int)a.activation[0] : 0;
    for (int i = 0; i < 3; i++) {
        int at = i - (3 - d.spatial);
        aril__slide w = {};
        w.stride = w.dilation = 1;
        if (at >= 0) w = window_of(&a, at, d.w.dim[2 + i], d.x.dim[2 + i]);
        d.stride[i] = w.stride;
        d.begin[i] = w.begin;
        d.end[i] = w.end;
        d.dilation[i] = w.dilation;
    }
    return d;
}

void aril_cuda_conv_addresses(const aril_run *r, aril_cuda_conv *d)
{
    void *in0 = aril_cuda_data(aril_cuda_in(r, 0)), *in1 = aril_cuda_data(aril_cuda_in(r, 1));
    void *out = aril_cuda_data(aril_cuda_out(r, 0));
    d->x.data = d->role == ARIL_CUDA_CONV_Y ? in0 : d->role == ARIL_CUDA_CONV_X ? out : in1;
    d->w.data = d->role == ARIL_CUDA_CONV_W ? out : in1;
    d->y.data = d->role == ARIL_CUDA_CONV_Y ? out : in0;
    if (d->has_bias) d->bias = aril_cuda_data(aril_cuda_in(r, 2));
    if (d->has_z) d->z.data = aril_cuda_data(aril_cuda_in(r, 3));
}

/* ---- kernels ---- */

/* Indices of element `at` of an image, in its memory order if that has channels innermost. */
static __device__ __forceinline__ void split(const aril_cuda_image &m, bool inner, int64_t at,
                                             int64_t *n, int64_t *c, int64_t o[3])
{
    if (inner) {
        *c = at % m.dim[1];
        at /= m.dim[1];
    }
    for (int i = 2; i >= 0; i--) {
        o[i] = at % m.dim[2 + i];
        at /= m.dim[2 + i];
    }
    if (!inner) {
        *c = at % m.dim[1];
        at /= m.dim[1];
    }
    *n = at;
}

static __device__ __forceinline__ int64_t place(const aril_cuda_image &m, int64_t n, int64_t c,
                                                const int64_t o[3])
{
    return n * m.stride[0] + c * m.stride[1] + o[0] * m.stride[2] + o[1] * m.stride[3] +
           o[2] * m.stride[4];
}

/* One element of y per thread. */
template <typename S>
static __global__ void __launch_bounds__(ARIL_CUDA_THREADS)
    forward(aril_cuda_conv d, bool inner, int64_t total)
{
    typedef typename aril_cuda_type<S>::compute C;
    ARIL_CUDA_LOOP(at, total)
    {
        int64_t n, k, o[3], start[3];
        int from[3], to[3];
        split(d.y, inner, at, &n, &k, o);
        for (int i = 0; i < 3; i++) { /* kernel positions [from, to) are within the input */
            start[i] = o[i] * d.stride[i] - d.begin[i];
            int64_t left = d.x.dim[2 + i] - start[i];
            int64_t reach = left > 0 ? (left + d.dilation[i] - 1) / d.dilation[i] : 0;
            from[i] = start[i] < 0 ? (int)((d.dilation[i] - 1 - start[i]) / d.dilation[i]) : 0;
            to[i] = (int)(reach < d.w.dim[2 + i] ? reach : d.w.dim[2 + i]);
        }
        const S *x =
            static_cast<const S *>(d.x.data) + n * d.x.stride[0] + k / d.k * d.c * d.x.stride[1];
        const S *w = static_cast<const S *>(d.w.data) + k * d.w.stride[0];
        int64_t step = d.dilation[2] * d.x.stride[4];
        C sum = 0;
        for (int64_t c = 0; c < d.c; c++, x += d.x.stride[1], w += d.w.stride[1]) {
            C part = 0;
            for (int a = from[0]; a < to[0]; a++)
                for (int b = from[1]; b < to[1]; b++) {
                    const S *xr = x + (start[0] + a * d.dilation[0]) * d.x.stride[2] +
                                  (start[1] + b * d.dilation[1]) * d.x.stride[3] +
                                  start[2] * d.x.stride[4];
                    const S *wr = w + a * d.w.stride[2] + b * d.w.stride[3];
                    for (int e = from[2]; e < to[2]; e++)
                        part +=
                            aril_cuda_to<C>(xr[e * step]) * aril_cuda_to<C>(wr[e * d.w.stride[4]]);
                }
            sum += part;
        }
        if (d.bias) sum += aril_cuda_to<C>(static_cast<const S *>(d.bias)[k * d.bias_stride]);
        if (d.has_z) sum += aril_cuda_to<C>(static_cast<const S *>(d.z.data)[place(d.z, n, k, o)]);
        static_cast<S *>(d.y.data)[place(d.y, n, k, o)] =
            aril_cuda_from<S>(aril_cuda_activate(d.activation, sum));
    }
}

/* The position of y that reads position p of x through kernel position q, or -1. */
static __device__ __forceinline__ int64_t reader(const aril_cuda_conv &d, int i, int64_t p, int q)
{
    int64_t from = p + d.begin[i] - q * d.dilation[i], at = from / d.stride[i];
    return from >= 0 && at * d.stride[i] == from && at < d.y.dim[2 + i] ? at : -1;
}

/* One element of x per thread: gathers from the windows that contain it. */
template <typename S>
static __global__ void __launch_bounds__(ARIL_CUDA_THREADS)
    data(aril_cuda_conv d, bool inner, int64_t total)
{
    typedef typename aril_cuda_type<S>::compute C;
    ARIL_CUDA_LOOP(at, total)
    {
        int64_t n, c, p[3];
        split(d.x, inner, at, &n, &c, p);
        int64_t group = c / d.c;
        const S *y =
            static_cast<const S *>(d.y.data) + n * d.y.stride[0] + group * d.k * d.y.stride[1];
        const S *w = static_cast<const S *>(d.w.data) + group * d.k * d.w.stride[0] +
                     c % d.c * d.w.stride[1];
        C sum = 0;
        for (int a = 0; a < d.w.dim[2]; a++) {
            int64_t o0 = reader(d, 0, p[0], a);
            if (o0 < 0) continue;
            for (int b = 0; b < d.w.dim[3]; b++) {
                int64_t o1 = reader(d, 1, p[1], b);
                if (o1 < 0) continue;
                for (int e = 0; e < d.w.dim[4]; e++) {
                    int64_t o2 = reader(d, 2, p[2], e);
                    if (o2 < 0) continue;
                    const S *yr = y + o0 * d.y.stride[2] + o1 * d.y.stride[3] + o2 * d.y.stride[4];
                    const S *wr = w + a * d.w.stride[2] + b * d.w.stride[3] + e * d.w.stride[4];
                    C part = 0;
                    for (int64_t k = 0; k < d.k; k++)
                        part += aril_cuda_to<C>(yr[k * d.y.stride[1]]) *
                                aril_cuda_to<C>(wr[k * d.w.stride[0]]);
                    sum += part;
                }
            }
        }
        if (d.bias) sum += aril_cuda_to<C>(static_cast<const S *>(d.bias)[c * d.bias_stride]);
        if (d.has_z) sum += aril_cuda_to<C>(static_cast<const S *>(d.z.data)[place(d.z, n, c, p)]);
        static_cast<S *>(d.x.data)[place(d.x, n, c, p)] =
            aril_cuda_from<S>(aril_cuda_activate(d.activation, sum));
    }
}

/* One element of w per block: its threads share the positions of y, and a fixed tree adds their
 * sums. */
template <typename S>
static __global__ void __launch_bounds__(128)
    weights(aril_cuda_conv d, aril_cuda_walk walk, int64_t total, uint32_t positions)
{
    typedef typename aril_cuda_type<S>::compute C;
    for (int64_t at = blockIdx.x; at < total; at += gridDim.x) {
        int64_t k, c, q[3];
        split(d.w, false, at, &k, &c, q);
        const S *x = static_cast<const S *>(d.x.data) + (k / d.k * d.c + c) * d.x.stride[1];
        const S *y = static_cast<const S *>(d.y.data) + k * d.y.stride[1];
        int64_t first[3];
        for (int i = 0; i < 3; i++) first[i] = q[i] * d.dilation[i] - d.begin[i];
        C sum = 0;
        for (uint32_t t = threadIdx.x; t < positions; t += blockDim.x) {
            uint32_t n, none, o[3];
            int64_t from = 0;
            bool inside = true;
            walk.split(t, &n, &none, o);
            for (int i = 0; i < 3; i++) {
                int64_t p = o[i] * d.stride[i] + first[i];
                inside = inside && p >= 0 && p < d.x.dim[2 + i];
                from += p * d.x.stride[2 + i];
            }
            if (!inside) continue;
            int64_t of_y = n * d.y.stride[0] + o[0] * d.y.stride[2] + o[1] * d.y.stride[3] +
                           o[2] * d.y.stride[4];
            sum += aril_cuda_to<C>(y[of_y]) * aril_cuda_to<C>(x[n * d.x.stride[0] + from]);
        }
        sum = aril_cuda_block_sum(sum);
        if (threadIdx.x == 0)
            static_cast<S *>(d.w.data)[place(d.w, k, c, q)] = aril_cuda_from<S>(sum);
    }
}

/* ---- rows ---- */

const char *aril_cuda_conv_prepare(const aril_run *r, aril_plan *)
{
    const aril_tensor *a = aril_cuda_in(r, 0), *b = aril_cuda_in(r, 1);
    const aril_tensor *out = aril_cuda_out(r, 0);
    for (const aril_tensor *t : { a, b, out })
        if (aril_cuda_area(aril_cuda_image_of(t)) * aril_cuda_dim(t, 0) > ARIL_CUDA_MAX_POSITIONS)
            return "2^31 positions";
    return nullptr;
}

template <typename S> static void launch(aril_run *r, const aril_cuda_conv &d, int64_t n)
{
    cudaStream_t stream = aril_cuda_stream(r);
    const aril_cuda_image &to = d.role == ARIL_CUDA_CONV_Y ? d.y : d.x;
    unsigned blocks = aril_cuda_blocks(r, n, ARIL_CUDA_THREADS, 16);
    bool inner = aril_cuda_channels_inner(to);
    if (d.role == ARIL_CUDA_CONV_Y) {
        forward<S><<<blocks, ARIL_CUDA_THREADS, 0, stream>>>(d, inner, n);
    } else if (d.role == ARIL_CUDA_CONV_X) {
        data<S><<<blocks, ARIL_CUDA_THREADS, 0, stream>>>(d, inner, n);
    } else {
        int64_t positions = d.y.dim[0] * aril_cuda_area(d.y);
        aril_cuda_image none = d.y; /* an empty batch gives zeros */
        for (int i = 0; i < 5; i++) none.dim[i] = none.dim[i] ? none.dim[i] : 1;
        aril_cuda_walk walk = aril_cuda_walk_of(none, 1);
        walk.inner = false;
        blocks = aril_cuda_blocks(r, n, 1, 16);
        weights<S><<<blocks, 128, 0, stream>>>(d, walk, n, (uint32_t)positions);
    }
}

static aril_status run_as(aril_run *r, aril_cuda_conv_role role, bool transposed)
{
    int64_t n = aril_cuda_host->numel(aril_cuda_out(r, 0));
    if (n == 0) return ARIL_OK;
    aril_cuda_conv d = aril_cuda_conv_of(r, role, transposed);
    aril_cuda_conv_addresses(r, &d);
    ARIL_CUDA_SWITCH_FLOAT(aril_cuda_host->type(r), S, launch<S>(r, d, n));
    return aril_cuda_launched(r);
}

aril_status aril_cuda_conv_run(aril_run *r)
{
    return run_as(r, ARIL_CUDA_CONV_Y, false);
}

aril_status aril_cuda_conv_dgrad_run(aril_run *r)
{
    return run_as(r, ARIL_CUDA_CONV_X, false);
}

aril_status aril_cuda_conv_wgrad_run(aril_run *r)
{
    return run_as(r, ARIL_CUDA_CONV_W, false);
}

aril_status aril_cuda_conv_transpose_run(aril_run *r)
{
    return run_as(r, ARIL_CUDA_CONV_X, true);
}
