/* Optimizer updates: from a run to launches. All parameters of a list go through few launches, and
 * nothing waits for the device: constants come from numbers of the host, or a small kernel makes
 * them from values on the device. */
#include "backend/cuda/block.cuh"
#include "backend/cuda/index/index.cuh"
#include "backend/cuda/update/update.cuh"

#include <math.h>

/* ---- constants, on the host and on the device ---- */

#define UPDATE_FUNCTION static __host__ __device__
#include "ops/update/constants.inc"

/* Each switch below has a case for each rule. */
#define RETURN_FACTS(rule, facts) \
    case ARIL__RULE_##rule: return facts;

static __host__ __device__ unsigned facts_of(int64_t rule)
{
    switch (rule) {
#define RULE_ROW(rule, facts, ...) RETURN_FACTS(rule, facts)
#include "ops/update/optimizers.def"
    default: return 0;
    }
}

#define IS_SCALAR(i, slot) BY_KIND(IS_SCALAR, i, slot)
#define IS_SCALAR_SLOT(i, ...)
#define IS_SCALAR_OPTIONAL(i, ...)
#define IS_SCALAR_SCALAR(i, ...) | 1u << i
#define IS_SCALAR_NONE(i, ...)

/* 1 << i: slot i of the rule is one f64. */
static unsigned scalar_slots_of(int64_t rule)
{
    switch (rule) {
#define RULE_ROW(rule, facts, slots, ...) \
    case ARIL__RULE_##rule:               \
        return 0 EACH(IS_SCALAR, PART(slots));
#include "ops/update/optimizers.def"
    default: return 0;
    }
}

static __host__ __device__ void rule_constants(const update_attrs *a, const aril__update_values *v,
                                               aril__update_constants *k)
{
    switch (a->rule[0]) {
#define RULE_ROW(rule, ...)        \
    case ARIL__RULE_##rule:        \
        rule##_constants(a, v, k); \
        break;
#include "ops/update/optimizers.def"
    default: break;
    }
}

/* As aril__update_constants_of. */
static __host__ __device__ void constants_of(update_attrs *a, const aril__update_values *v,
                                             aril__update_constants *k)
{
    shared_constants(a, v, facts_of(a->rule[0]), k);
    if (k->skip) return;
    if (!isnan(v->momentum)) a->momentum[0] = a->beta1[0] = v->momentum; /* no rule reads both */
    rule_constants(a, v, k);
}

/* What constants are made from. */
struct sources {
    update_attrs attrs;
    aril_cuda_scalar<double> lr, step, factor, momentum; /* momentum: NaN if there is none */
    bool has_step;
    bool on_device, has_norms; /* also known before a run, when nothing has an address */
    const double *norms;       /* two per parameter; NULL: none */
    int64_t norms_row, norms_column;
};

/* Scalar slots of the parameters of a launch. */
struct scalar_slots {
    double *at[ARIL_CUDA_UPDATE_ITEMS];
    int number; /* of the slot; -1: the rule has none */
};

/* The values of all sources but norms and slots; `read` reads one. */
template <typename Read>
static __host__ __device__ aril__update_values values_of(const sources &s, const Read &read)
{
    aril__update_values v = {};
    v.lr = read(s.lr);
    v.t = s.has_step ? read(s.step) - (double)s.attrs.missed[0] : 2;
    v.factor = read(s.factor);
    v.momentum = read(s.momentum);
    return v;
}

struct read_on_host {
    __host__ __device__ double operator()(const aril_cuda_scalar<double> &x) const
    {
        return x.value;
    }
};
struct read_on_device {
    __host__ __device__ double operator()(const aril_cuda_scalar<double> &x) const
    {
        return x.at ? aril_cuda_load<double>(x.at, 0, x.dtype) : x.value;
    }
};

/* A thread per parameter. */
static __global__ void make_constants(const __grid_constant__ sources s,
                                      const __grid_constant__ scalar_slots slots, int n,
                                      int64_t first, aril__update_constants *to)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n) return;
    update_attrs a = s.attrs;
    aril__update_values v = values_of(s, read_on_device());
    if (s.norms) {
        v.norm_p = s.norms[(first + i) * s.norms_row];
        v.norm_d = s.norms[(first + i) * s.norms_row + s.norms_column];
    }
    if (slots.number >= 0) v.slot[slots.number] = slots.at[i];
    aril__update_constants k;
    constants_of(&a, &v, &k);
    to[i] = k;
}

static bool is_on_device(const aril_run *r, int i)
{
    aril_host_number n;
    return aril_cuda_in(r, i) && !aril_cuda_host->number(r, i, &n);
}

static sources sources_of(const aril_run *r, bool norms)
{
    sources s = {};
    int step = norms ? (int)ARIL__NORMS_STEP : (int)ARIL__UPDATE_STEP;
    int factor = norms ? (int)ARIL__NORMS_FACTOR : (int)ARIL__UPDATE_FACTOR;
    int momentum = norms ? (int)ARIL__NORMS_MOMENTUM : (int)ARIL__UPDATE_MOMENTUM;
    s.attrs = *aril_cuda_attrs<update_attrs>(r);
    if (!norms) s.lr = aril_cuda_scalar_of<double>(r, ARIL__UPDATE_LR);
    s.step = aril_cuda_scalar_of<double>(r, step);
    s.has_step = aril_cuda_in(r, step) != nullptr;
    s.factor = aril_cuda_scalar_of<double>(r, factor, 1);
    s.momentum = aril_cuda_scalar_of<double>(r, momentum, (double)NAN);
    const aril_tensor *t = norms ? nullptr : aril_cuda_in(r, ARIL__UPDATE_NORMS);
    s.on_device = (!norms && is_on_device(r, ARIL__UPDATE_LR)) || is_on_device(r, step) ||
                  is_on_device(r, factor) || is_on_device(r, momentum);
    s.has_norms = t != nullptr;
    if (t) {
        s.norms = static_cast<const double *>(aril_cuda_data(t));
        s.norms_row = aril_cuda_host->strides(t)[0];
        s.norms_column = aril_cuda_host->strides(t)[1];
    }
    return s;
}

/* Whether constants are the same for all parameters, and known on the host. */
static bool are_shared(const sources &s)
{
    return !s.has_norms && !scalar_slots_of(s.attrs.rule[0]);
}
static bool are_on_host(const sources &s)
{
    return are_shared(s) && !s.on_device;
}

/* ---- the table of a launch ---- */

static size_t rounded(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static int items_of(const aril_run *r, int fixed)
{
    return (aril_cuda_host->n_in(r) - fixed) / ARIL__ITEM;
}

/* Whether the gradient of parameter i is a number, as that of a 0-d parameter may be. */
static bool grad_is_number(const aril_run *r, int fixed, int i)
{
    aril_host_number n;
    return aril_cuda_host->number(r, fixed + i * ARIL__ITEM + ARIL__ITEM_GRAD, &n);
}

/* Bytes for numbers on the device: 8 for every parameter, if there is any. */
static size_t numbers_bytes(const aril_run *r, int fixed)
{
    int n = items_of(r, fixed);
    for (int i = 0; i < n; i++)
        if (grad_is_number(r, fixed, i)) return rounded((size_t)n * sizeof(uint64_t));
    return 0;
}

/* Parameter number i; its loops, which are one contiguous run for all operands unless `strided`. */
static aril_cuda_update_item item_of(const aril_run *r, int fixed, int i, unsigned scalars,
                                     aril_cuda_loops *loops, bool *strided)
{
    aril_cuda_update_item u = {};
    int first = fixed + i * ARIL__ITEM;
    const aril_tensor *p = aril_cuda_in(r, first);
    u.n = aril_cuda_host->numel(p);
    u.vectors = 1;
    *loops = aril_cuda_loops_of(p);
    for (int k = 0; k < ARIL__ITEM; k++) {
        const aril_tensor *t = aril_cuda_in(r, first + k);
        int slot = k - ARIL__ITEM_SLOT;
        bool of_rule = slot >= 0 && slot < ARIL__RULE_SLOTS;
        if (of_rule && scalars >> slot & 1) t = nullptr;
        aril_cuda_loops_add(loops, t);
        if (!t) continue;
        if (of_rule) u.present |= (uint8_t)(1u << slot);
        u.at[k] = aril_cuda_data(t);
        u.dtype[k] = (uint8_t)aril_cuda_host->dtype(t);
        if ((uintptr_t)u.at[k] % (4 * (uintptr_t)aril_cuda_size(u.dtype[k]))) u.vectors = 0;
    }
    aril_cuda_loops_merge(loops, ARIL__ITEM_P);
    *strided = loops->ndim > 1;
    for (int k = 0; k < ARIL__ITEM; k++)
        if (u.at[k] && loops->ndim == 1 && loops->stride[k][0] != 1) *strided = true;
    return u;
}

static uint32_t blocks_of(int64_t n)
{
    return (uint32_t)((n + ARIL_CUDA_UPDATE_CHUNK - 1) / ARIL_CUDA_UPDATE_CHUNK);
}

/* One pass over all parameters: what it launches, and the table that is being filled. */
struct pass {
    aril_run *r;
    const void *kernel;
    bool norms;
    aril_cuda_update_numbers numbers;
    aril__update_constants *made; /* on the device; NULL: none */
    double *sums;                 /* of the next block, for norms */
    uint64_t *spare;              /* for gradients that are numbers */
    int first;                    /* parameter of the table's first item */
    aril_cuda_update_table table;
};

static void add_item(pass *p, const aril_cuda_update_item &u)
{
    aril_cuda_update_table *t = &p->table;
    t->item[t->n] = u;
    t->first[t->n + 1] = t->first[t->n] + blocks_of(u.n);
    t->n++;
}

/* Launches the kernel for the items of the table, and starts anew with parameter `next`. */
static aril_status flush(pass *p, int next)
{
    aril_cuda_update_table *t = &p->table;
    uint32_t blocks = t->first[t->n];
    if (blocks) {
        aril_cuda_update_numbers numbers = p->numbers;
        if (numbers.device && numbers.each) numbers.device = p->made + p->first;
        void *args[] = { t, &numbers, &p->sums };
        cudaLaunchKernel(p->kernel, dim3(blocks), dim3(ARIL_CUDA_UPDATE_THREADS), args, 0,
                         aril_cuda_stream(p->r));
    }
    if (p->norms) p->sums += 2 * (int64_t)blocks;
    t->n = t->strided = 0;
    p->first = next;
    return aril_cuda_launched(p->r);
}

/* A parameter with strides, alone; in pieces where 32-bit offsets do not suffice. */
static aril_status add_strided(pass *p, const aril_cuda_update_item &u, int i,
                               const aril_cuda_loops &loops)
{
    aril_status s = flush(p, i);
    if (s < 0) return s;
    return aril_cuda_each_piece(&loops, [&](const aril_cuda_loops &piece) {
        aril_cuda_update_item part = u;
        part.n = aril_cuda_loops_numel(&piece);
        part.vectors = 0;
        for (int k = 0; k < ARIL__ITEM; k++)
            if (part.at[k])
                part.at[k] = static_cast<char *>(part.at[k]) +
                             piece.offset[k] * aril_cuda_size(part.dtype[k]);
        p->table.strided = 1;
        p->table.nest = aril_cuda_nest_of<ARIL__ITEM>(piece);
        add_item(p, part);
        return flush(p, i);
    });
}

static aril_status run_items(pass *p, int fixed, unsigned scalars)
{
    int n = items_of(p->r, fixed);
    for (int i = 0; i < n; i++) {
        aril_cuda_loops loops;
        bool strided;
        aril_cuda_update_item u = item_of(p->r, fixed, i, scalars, &loops, &strided);
        aril_status s = ARIL_OK;
        if (grad_is_number(p->r, fixed, i)) {
            s = aril_cuda_poke(p->r, p->spare + i, u.at[ARIL__ITEM_GRAD],
                               aril_cuda_size(u.dtype[ARIL__ITEM_GRAD]));
            u.at[ARIL__ITEM_GRAD] = p->spare + i;
            u.vectors = 0;
        }
        if (s == ARIL_OK && p->table.n == ARIL_CUDA_UPDATE_ITEMS) s = flush(p, i);
        if (s == ARIL_OK && strided)
            s = add_strided(p, u, i, loops);
        else if (s == ARIL_OK)
            add_item(p, u);
        if (s < 0) return s;
        if (strided) p->first = i + 1;
    }
    return flush(p, n);
}

/* Constants of all parameters into p->made, unless the host has them. */
static aril_status prepare_constants(pass *p, const sources &s, int fixed)
{
    unsigned scalars = scalar_slots_of(s.attrs.rule[0]);
    int n = are_shared(s) ? 1 : items_of(p->r, fixed);
    if (are_on_host(s)) {
        update_attrs a = s.attrs;
        aril__update_values v = values_of(s, read_on_host());
        constants_of(&a, &v, &p->numbers.host);
        return ARIL_OK;
    }
    p->numbers.device = p->made;
    p->numbers.each = !are_shared(s);
    for (int first = 0; first < n; first += ARIL_CUDA_UPDATE_ITEMS) {
        int m = n - first < ARIL_CUDA_UPDATE_ITEMS ? n - first : ARIL_CUDA_UPDATE_ITEMS;
        scalar_slots slots = {};
        slots.number = -1;
        for (int k = 0; k < ARIL__RULE_SLOTS; k++)
            if (scalars >> k & 1) slots.number = k;
        for (int i = 0; i < m && slots.number >= 0; i++) {
            int at = fixed + (first + i) * ARIL__ITEM + ARIL__ITEM_SLOT + slots.number;
            slots.at[i] = static_cast<double *>(aril_cuda_data(aril_cuda_in(p->r, at)));
        }
        make_constants<<<(unsigned)(m + 31) / 32, 32, 0, aril_cuda_stream(p->r)>>>(s, slots, m,
                                                                                   first,
                                                                                   p->made + first);
    }
    return aril_cuda_launched(p->r);
}

/* Bytes of constants on the device. */
static size_t constants_bytes(const aril_run *r, const sources &s, int fixed)
{
    if (are_on_host(s)) return 0;
    size_t n = are_shared(s) ? 1 : (size_t)items_of(r, fixed);
    return rounded(n * sizeof(aril__update_constants));
}

/* ---- update ---- */

size_t aril_cuda_update_bytes(const aril_run *r)
{
    return constants_bytes(r, sources_of(r, false), ARIL__UPDATE_FIXED) +
           numbers_bytes(r, ARIL__UPDATE_FIXED);
}

aril_status aril_cuda_update_run(aril_run *r)
{
    sources s = sources_of(r, false);
    int64_t rule = s.attrs.rule[0];
    pass p = {};
    p.r = r;
    p.kernel = aril_cuda_host->type(r) == ARIL_F64 ? aril_cuda_update_f64[rule]
                                                   : aril_cuda_update_f32[rule];
    char *memory = static_cast<char *>(aril_cuda_host->workspace(r));
    p.made = reinterpret_cast<aril__update_constants *>(memory);
    p.spare = reinterpret_cast<uint64_t *>(memory + constants_bytes(r, s, ARIL__UPDATE_FIXED));
    aril_status status = prepare_constants(&p, s, ARIL__UPDATE_FIXED);
    if (status < 0 || p.numbers.host.skip) return status;
    return run_items(&p, ARIL__UPDATE_FIXED, scalar_slots_of(rule));
}

/* ---- update_norms ---- */

/* A block per parameter: the roots of the sums of its blocks, from `first` on. */
static __global__ void finish_norms(const double *sums, const int64_t *first, double *out,
                                    int64_t row, int64_t column)
{
    const double *from = sums + 2 * first[blockIdx.x], *end = sums + 2 * first[blockIdx.x + 1];
    double of_p = 0, of_d = 0;
    for (const double *at = from + 2 * threadIdx.x; at < end; at += 2 * blockDim.x) {
        of_p += at[0];
        of_d += at[1];
    }
    of_p = aril_cuda_block_sum(of_p);
    of_d = aril_cuda_block_sum(of_d);
    if (threadIdx.x == 0) {
        out[blockIdx.x * row] = sqrt(of_p);
        out[blockIdx.x * row + column] = sqrt(of_d);
    }
}

/* The first blocks of parameters, copied to the device in pieces that fit into arguments. */
struct block_starts {
    int64_t at[ARIL_CUDA_UPDATE_ITEMS];
};
static __global__ void put_starts(const __grid_constant__ block_starts s, int n, int64_t *to)
{
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) to[i] = s.at[i];
}

/* The blocks of parameter i: pieces of one with strides have their own. */
static int64_t norm_blocks(const aril_run *r, int i)
{
    aril_cuda_loops loops;
    bool strided;
    aril_cuda_update_item u = item_of(r, ARIL__NORMS_FIXED, i, 0, &loops, &strided);
    if (!strided) return blocks_of(u.n);
    int64_t n = 0;
    aril_cuda_each_piece(&loops, [&](const aril_cuda_loops &piece) {
        n += blocks_of(aril_cuda_loops_numel(&piece));
        return (aril_status)ARIL_OK;
    });
    return n;
}

size_t aril_cuda_update_norms_bytes(const aril_run *r)
{
    int n = items_of(r, ARIL__NORMS_FIXED);
    int64_t blocks = 0;
    for (int i = 0; i < n; i++) blocks += norm_blocks(r, i);
    return constants_bytes(r, sources_of(r, true), ARIL__NORMS_FIXED) +
           numbers_bytes(r, ARIL__NORMS_FIXED) + rounded((size_t)(n + 1) * sizeof(int64_t)) +
           (size_t)blocks * 2 * sizeof(double);
}

static aril_status send_starts(aril_run *r, int n, int64_t *to)
{
    int64_t next = 0;
    for (int first = 0; first <= n; first += ARIL_CUDA_UPDATE_ITEMS) {
        block_starts s;
        int m = 0;
        for (; m < ARIL_CUDA_UPDATE_ITEMS && first + m <= n; m++) {
            s.at[m] = next;
            if (first + m < n) next += norm_blocks(r, first + m);
        }
        put_starts<<<1, 256, 0, aril_cuda_stream(r)>>>(s, m, to + first);
    }
    return aril_cuda_launched(r);
}

aril_status aril_cuda_update_norms_run(aril_run *r)
{
    sources s = sources_of(r, true);
    int64_t rule = s.attrs.rule[0];
    int n = items_of(r, ARIL__NORMS_FIXED);
    aril_tensor *out = aril_cuda_out(r, 0);
    char *memory = static_cast<char *>(aril_cuda_host->workspace(r));
    pass p = {};
    p.r = r;
    p.norms = true;
    p.kernel =
        aril_cuda_host->type(r) == ARIL_F64 ? aril_cuda_norms_f64[rule] : aril_cuda_norms_f32[rule];
    if (!p.kernel)
        return aril_cuda_host->fail(ARIL_ERR_ARG, "update_norms: rule %lld has no norms",
                                    (long long)rule);
    p.made = reinterpret_cast<aril__update_constants *>(memory);
    memory += constants_bytes(r, s, ARIL__NORMS_FIXED);
    p.spare = reinterpret_cast<uint64_t *>(memory);
    memory += numbers_bytes(r, ARIL__NORMS_FIXED);
    int64_t *starts = reinterpret_cast<int64_t *>(memory);
    double *sums = reinterpret_cast<double *>(memory + rounded((size_t)(n + 1) * sizeof(int64_t)));
    p.sums = sums;
    aril_status status = prepare_constants(&p, s, ARIL__NORMS_FIXED);
    if (status == ARIL_OK) status = send_starts(r, n, starts);
    if (status == ARIL_OK) status = run_items(&p, ARIL__NORMS_FIXED, scalar_slots_of(rule));
    if (status < 0) return status;
    finish_norms<<<(unsigned)n, 256, 0, aril_cuda_stream(r)>>>(
        sums, starts, static_cast<double *>(aril_cuda_data(out)), aril_cuda_host->strides(out)[0],
        aril_cuda_host->strides(out)[1]);
    return aril_cuda_launched(r);
}
