/* index, index_select, embedding and gather: elements of x at index positions. */
#include "backend/cuda/attrs.cuh"
#include "backend/cuda/index/picked.cuh"
#include "ops/index/gather.h"
#include "ops/index/index.h"

static aril_cuda_mover mover_of(const aril_run *r, aril_tensor *out, const aril_tensor *x)
{
    aril_cuda_mover m = {};
    m.loops = aril_cuda_loops_of(out);
    aril_cuda_loops_add(&m.loops, out);
    m.other = aril_cuda_data(out);
    m.x = aril_cuda_data(x);
    m.bytes = aril_cuda_size(aril_cuda_host->dtype(x));
    m.from_end = true;
    m.report = aril_cuda_report_of(r);
    return m;
}

/* One index tensor is read by the kernel that moves elements; of several, or none, a first kernel
 * makes offsets in the workspace. */
static aril_status read_picked(aril_run *r, int64_t mask, bool from_end)
{
    const aril_tensor *x = aril_cuda_in(r, 0);
    aril_tensor *out = aril_cuda_out(r, 0);
    if (aril_cuda_host->numel(out) == 0) return ARIL_OK;
    aril_cuda_picked p = aril_cuda_picked_of(r, x, mask, 1, aril_cuda_host->n_in(r) - 1);
    aril_cuda_mover m = mover_of(r, out, x);
    aril_cuda_kept_strides(x, p, m.loops.stride[1]);
    aril_cuda_position_strides(p, m.loops.stride[2]);
    m.loops.n = 3;
    aril_cuda_loops_merge(&m.loops, 0);
    aril_cuda_locator l = aril_cuda_locator_of(r, x, p, 1);
    aril_cuda_mover_widen(&m, l.n, l.stride);
    for (int k = 0; k < l.n; k++) l.stride[k] /= m.unit;
    m.from_end = l.from_end = from_end;
    if (p.n == 1) {
        m.index = l.index[0];
        m.size = l.size[0];
        m.along = l.stride[0];
        m.axis = l.axis[0];
        return aril_cuda_move_out(r, m);
    }
    aril_cuda_carver w = aril_cuda_carver_of(r);
    int64_t *offset = w.take<int64_t>(p.count);
    m.offset = offset;
    aril_status s = aril_cuda_locate_all(r, l, p.count, offset, nullptr, 0);
    return s < 0 ? s : aril_cuda_move_out(r, m);
}

static int64_t mask_of(const aril_run *r)
{
    return aril_cuda_attrs<index_attrs>(r)->mask[0];
}

size_t aril_cuda_index_bytes(const aril_run *r)
{
    const aril_tensor *x = aril_cuda_in(r, 0);
    aril_cuda_picked p = aril_cuda_picked_of(r, x, mask_of(r), 1, aril_cuda_host->n_in(r) - 1);
    aril_cuda_carver w = {};
    if (p.n != 1) w.take<int64_t>(p.count);
    return w.used;
}

aril_status aril_cuda_index_run(aril_run *r)
{
    return read_picked(r, mask_of(r), true);
}

aril_status aril_cuda_index_select_run(aril_run *r)
{
    return read_picked(r, (int64_t)1 << aril_cuda_attrs<index_select_attrs>(r)->axis[0], true);
}

aril_status aril_cuda_embedding_run(aril_run *r)
{
    return read_picked(r, 1, false);
}

/* A number to gather from. */
size_t aril_cuda_gather_bytes(const aril_run *r)
{
    aril_host_number n;
    return aril_cuda_host->number(r, 0, &n) ? sizeof(uint64_t) : 0;
}

aril_status aril_cuda_gather_run(aril_run *r)
{
    int axis = (int)aril_cuda_attrs<gather_attrs>(r)->axis[0];
    const aril_tensor *x = aril_cuda_in(r, 0);
    aril_tensor *out = aril_cuda_out(r, 0);
    if (aril_cuda_host->numel(out) == 0) return ARIL_OK;
    aril_cuda_mover m = mover_of(r, out, x);
    bool scalar = aril_cuda_host->ndim(x) == 0; /* counts as having size 1 */
    int64_t step = 1;
    for (int d = m.loops.ndim - 1; d >= 0; d--) {
        m.loops.stride[1][d] = scalar || d == axis ? 0 : aril_cuda_host->strides(x)[d];
        m.loops.stride[2][d] = step;
        step *= m.loops.dim[d];
    }
    m.loops.n = 3;
    aril_cuda_loops_merge(&m.loops, 0);
    const void *from;
    aril_status s = aril_cuda_values(r, 0, aril_cuda_host->workspace(r), &from);
    if (s < 0) return s;
    m.x = const_cast<void *>(from);
    m.unit = 1;
    m.index = aril_cuda_indices_of(r, 1);
    m.size = scalar ? 1 : aril_cuda_host->dims(x)[axis];
    m.along = scalar ? 0 : aril_cuda_host->strides(x)[axis];
    m.axis = axis;
    return aril_cuda_move_out(r, m);
}
