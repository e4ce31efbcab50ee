#include "backend/cuda/index/picked.cuh"

#include <string.h>

/* ---- shapes ---- */

aril_cuda_picked aril_cuda_picked_of(const aril_run *r, const aril_tensor *x, int64_t mask,
                                     int first, int n_index)
{
    aril_cuda_picked p = {};
    int64_t b[ARIL_MAX_DIMS] = {};
    const int64_t *size = aril_cuda_host->dims(x);
    int ndim = aril_cuda_host->ndim(x);
    p.mask = mask;
    p.n = n_index;
    for (int k = 0; k < p.n; k++) {
        int n = aril_cuda_host->ndim(aril_cuda_in(r, first + k));
        if (n > p.nb) p.nb = n;
    }
    for (int d = 0; d < p.nb; d++) b[d] = 1;
    for (int k = 0; k < p.n; k++) {
        const aril_tensor *t = aril_cuda_in(r, first + k);
        int lead = p.nb - aril_cuda_host->ndim(t);
        for (int d = lead; d < p.nb; d++)
            if (aril_cuda_host->dims(t)[d - lead] != 1) b[d] = aril_cuda_host->dims(t)[d - lead];
    }
    p.ndim = ndim - p.n + p.nb;
    int lowest = 0;
    while (mask && !(mask >> lowest & 1)) lowest++;
    int64_t run = mask >> lowest;
    p.at = (run & (run + 1)) == 0 ? lowest : 0; /* adjacent axes; otherwise in front */
    p.count = p.rows = 1;
    for (int d = 0; d < p.nb; d++) p.count *= b[d];
    for (int d = 0; d < ndim; d++)
        if (mask >> d & 1) p.rows *= size[d];
    for (int d = 0, kept = 0; d < p.ndim; d++) {
        if (d >= p.at && d < p.at + p.nb) {
            p.dim[d] = b[d - p.at];
            continue;
        }
        while (mask >> kept & 1) kept++;
        p.dim[d] = size[kept++];
    }
    return p;
}

void aril_cuda_kept_strides(const aril_tensor *x, const aril_cuda_picked &p, int64_t *stride)
{
    for (int d = 0, kept = 0; d < p.ndim; d++) {
        stride[d] = 0;
        if (d >= p.at && d < p.at + p.nb) continue;
        while (p.mask >> kept & 1) kept++;
        stride[d] = aril_cuda_host->strides(x)[kept++];
    }
}

void aril_cuda_position_strides(const aril_cuda_picked &p, int64_t *stride)
{
    int64_t step = 1;
    for (int d = p.ndim - 1; d >= 0; d--) {
        bool own = d >= p.at && d < p.at + p.nb;
        stride[d] = own ? step : 0;
        if (own) step *= p.dim[d];
    }
}

/* ---- locating ---- */

aril_cuda_locator aril_cuda_locator_of(const aril_run *r, const aril_tensor *x,
                                       const aril_cuda_picked &p, int first)
{
    aril_cuda_locator l = {};
    l.n = p.n;
    l.from_end = true;
    l.padding = -1;
    l.report = aril_cuda_report_of(r);
    for (int k = 0, axis = 0; k < p.n; k++, axis++) {
        while (!(p.mask >> axis & 1)) axis++;
        l.index[k] = aril_cuda_indices_of(r, first + k);
        l.spread[k] = aril_cuda_spread_of(aril_cuda_in(r, first + k), p.nb, p.dim + p.at);
        l.size[k] = aril_cuda_host->dims(x)[axis];
        l.stride[k] = aril_cuda_host->strides(x)[axis];
        l.axis[k] = axis;
    }
    return l;
}

static __global__ void locate(const __grid_constant__ aril_cuda_locator l, int64_t n,
                              int64_t *offset, uint64_t *key, int64_t rows)
{
    ARIL_CUDA_LOOP(b, n)
    {
        int64_t row, at = aril_cuda_locate(l, b, &row);
        offset[b] = at;
        if (key) key[b] = (uint64_t)(at == ARIL_CUDA_SKIP ? rows : row);
    }
}

aril_status aril_cuda_locate_all(const aril_run *r, const aril_cuda_locator &l, int64_t n,
                                 int64_t *offset, uint64_t *key, int64_t rows)
{
    if (n == 0) return ARIL_OK;
    locate<<<aril_cuda_blocks(r, n, 256), 256, 0, aril_cuda_stream(r)>>>(l, n, offset, key, rows);
    return aril_cuda_launched(r);
}

/* ---- moving ---- */

/* A mover on the device. */
struct mover {
    aril_cuda_nest<3> nest;
    uint32_t n;
    int axis;
    bool from_end;
    const int64_t *offset;
    aril_cuda_indices index;
    int64_t first; /* index position of the piece's first element */
    int64_t size, along;
    aril_cuda_report report;
};

static __device__ __forceinline__ int64_t offset_at(const mover &m, int32_t position)
{
    if (m.offset) return m.offset[m.first + position];
    int64_t i = m.index[m.first + position], w = i < 0 && m.from_end ? i + m.size : i;
    if (w >= 0 && w < m.size) return w * m.along;
    aril_cuda_fail(m.report, ARIL_CUDA_BAD_INDEX, i, m.size, m.axis);
    return ARIL_CUDA_SKIP;
}

/* Several elements per thread, all of whose loads come first. */
template <typename U, bool In>
static __global__ void move(const __grid_constant__ mover m, U *__restrict__ other,
                            U *__restrict__ x)
{
    const int most = 4;
    const uint32_t step = gridDim.x * blockDim.x;
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < m.n; i += most * step) {
        U v[most];
        U *to[most];
#pragma unroll
        for (int k = 0; k < most; k++) {
            uint32_t e = i + k * step;
            to[k] = nullptr;
            if (e >= m.n) continue;
            int32_t at[3];
            m.nest.offsets(e, at);
            int64_t base = offset_at(m, at[2]);
            v[k] = U();
            if (In) {
                if (base == ARIL_CUDA_SKIP) continue;
                to[k] = x + (at[1] + base);
                v[k] = other[at[0]];
            } else {
                to[k] = other + at[0];
                if (base != ARIL_CUDA_SKIP) v[k] = x[at[1] + base];
            }
        }
#pragma unroll
        for (int k = 0; k < most; k++)
            if (to[k]) *to[k] = v[k];
    }
}

template <typename U, bool In>
static aril_status launch(const aril_run *r, const aril_cuda_mover &m)
{
    return aril_cuda_each_piece(&m.loops, [&](const aril_cuda_loops &piece) {
        mover d = {};
        d.nest = aril_cuda_nest_of<3>(piece);
        d.n = (uint32_t)aril_cuda_loops_numel(&piece);
        d.axis = m.axis;
        d.from_end = m.from_end;
        d.offset = m.offset;
        d.index = m.index;
        d.first = piece.offset[2];
        d.size = m.size;
        d.along = m.along;
        d.report = m.report;
        move<U, In><<<aril_cuda_blocks(r, d.n, 1024), 256, 0, aril_cuda_stream(r)>>>(
            d, static_cast<U *>(m.other) + piece.offset[0],
            static_cast<U *>(m.x) + piece.offset[1]);
        return aril_cuda_launched(r);
    });
}

template <bool In> static aril_status move_by_size(const aril_run *r, const aril_cuda_mover &m)
{
    aril_status s = ARIL_OK;
    if (m.bytes == 16) return launch<uint4, In>(r, m);
    ARIL_CUDA_SWITCH_SIZE(m.bytes, U, (s = launch<U, In>(r, m)));
    return s;
}

aril_status aril_cuda_move_out(const aril_run *r, const aril_cuda_mover &m)
{
    return move_by_size<false>(r, m);
}

aril_status aril_cuda_move_in(const aril_run *r, const aril_cuda_mover &m)
{
    return move_by_size<true>(r, m);
}

void aril_cuda_mover_widen(aril_cuda_mover *m, int n, const int64_t *stride)
{
    aril_cuda_loops *l = &m->loops;
    int last = l->ndim - 1;
    m->unit = 1;
    if (last < 0 || l->stride[0][last] != 1 || l->stride[1][last] != 1 || l->stride[2][last] != 0)
        return;
    for (int64_t wide = 16; wide > m->bytes; wide /= 2) {
        int64_t unit = wide / m->bytes;
        bool fits = l->dim[last] % unit == 0 && (uintptr_t)m->other % (uintptr_t)wide == 0 &&
                    (uintptr_t)m->x % (uintptr_t)wide == 0;
        for (int d = 0; d < last; d++)
            fits = fits && l->stride[0][d] % unit == 0 && l->stride[1][d] % unit == 0;
        for (int k = 0; k < n; k++) fits = fits && stride[k] % unit == 0;
        if (!fits) continue;
        l->dim[last] /= unit;
        for (int d = 0; d < last; d++) {
            l->stride[0][d] /= unit;
            l->stride[1][d] /= unit;
        }
        m->unit = unit;
        m->bytes = wide;
        return;
    }
}

/* ---- numbers ---- */

static __global__ void poke(unsigned char *to, uint64_t bits, int bytes)
{
    if ((int)threadIdx.x < bytes) to[threadIdx.x] = (unsigned char)(bits >> 8 * threadIdx.x);
}

aril_status aril_cuda_poke(const aril_run *r, void *to, const void *from, int bytes)
{
    uint64_t bits = 0;
    memcpy(&bits, from, (size_t)bytes);
    poke<<<1, 8, 0, aril_cuda_stream(r)>>>(static_cast<unsigned char *>(to), bits, bytes);
    return aril_cuda_launched(r);
}
