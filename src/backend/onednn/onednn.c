#include "backend/onednn/onednn.h"

#include "backend/onednn/rows.h"
#include "core/cpu.h"
#include "backend/activation.h"

#include <stdlib.h>
#include <string.h>

/* Declared here because omp.h belongs to the compiler's own OpenMP. */
#if ARIL_ONEDNN_OPENMP
void omp_set_num_threads(int n);
int omp_get_max_threads(void);
#endif

int aril__dnn_enter(void)
{
#if ARIL_ONEDNN_OPENMP
    int threads = omp_get_max_threads(); /* a per-thread setting that belongs to the program */
    if (threads != 1) omp_set_num_threads(1);
    return threads;
#else
    return 1;
#endif
}

void aril__dnn_leave(int threads)
{
#if ARIL_ONEDNN_OPENMP
    if (threads != 1) omp_set_num_threads(threads);
#else
    (void)threads;
#endif
}

/* ---- the engine ---- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static dnnl_engine_t engine;

static void start_engine(void)
{
    /* ARIL_CPU limits the instruction set here as it does in Aril's own kernels. */
    if (aril__cpu() < ARIL__CPU_AVX512)
        dnnl_set_max_cpu_isa(aril__cpu() < ARIL__CPU_AVX2 ? dnnl_cpu_isa_sse41 : dnnl_cpu_isa_avx2);
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success) engine = NULL;
}

dnnl_engine_t aril__dnn_engine(void)
{
    pthread_once(&once, start_engine);
    return engine;
}

void aril__dnn_end(void)
{
    if (engine) dnnl_engine_destroy(engine);
    engine = NULL;
}

const char *aril__dnn_text(dnnl_status_t s)
{
    switch (s) {
    case dnnl_success: return "done";
    case dnnl_out_of_memory: return "out of memory";
    case dnnl_invalid_arguments: return "oneDNN does not support these sizes";
    case dnnl_unimplemented: return "oneDNN has no kernel for this on this CPU";
    case dnnl_last_impl_reached: return "oneDNN has no other kernel for this";
    case dnnl_runtime_error: return "oneDNN failed at run time";
    case dnnl_not_required: return "oneDNN does not implement this";
    default: return "oneDNN failed";
    }
}

aril_status aril__dnn_status(const char *op, dnnl_status_t s)
{
    if (aril__likely(s == dnnl_success)) return ARIL_OK;
    return aril__fail(s == dnnl_out_of_memory ? ARIL_ERR_MEMORY : ARIL_ERR_INTERNAL, "%s: %s", op,
                      aril__dnn_text(s));
}

/* ---- memory descriptors ---- */

dnnl_data_type_t aril__dnn_type(aril_dtype t)
{
    switch (t) {
    case ARIL_F32: return dnnl_f32;
    case ARIL_BF16: return dnnl_bf16;
    case ARIL_F16: return dnnl_f16;
    case ARIL_F64: return dnnl_f64;
    case ARIL_I32: return dnnl_s32;
    case ARIL_I8: return dnnl_s8;
    case ARIL_U8: return dnnl_u8;
    default: return dnnl_data_type_undef;
    }
}

dnnl_memory_desc_t aril__dnn_strided(dnnl_data_type_t type, int ndim, const int64_t *dim,
                                     const int64_t *stride)
{
    dnnl_memory_desc_t md = NULL;
    dnnl_dims_t d, s; /* the library's arrays are longer */
    if (ndim > ARIL_MAX_DIMS) return NULL;
    for (int i = 0; i < ndim; i++) {
        d[i] = dim[i];
        s[i] = stride[i];
    }
    if (dnnl_memory_desc_create_with_strides(&md, ndim, d, type, s) != dnnl_success) return NULL;
    return md;
}

dnnl_memory_desc_t aril__dnn_desc(const aril_tensor *t)
{
    return aril__dnn_strided(aril__dnn_type((aril_dtype)t->dtype), t->ndim, t->dim, t->stride);
}

dnnl_memory_desc_t aril__dnn_dense(dnnl_data_type_t type, int ndim, const int64_t *dim)
{
    int64_t stride[ARIL_MAX_DIMS], step = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        stride[i] = step;
        step *= dim[i] > 0 ? dim[i] : 1;
    }
    return aril__dnn_strided(type, ndim, dim, stride);
}

dnnl_memory_desc_t aril__dnn_last(dnnl_data_type_t type, int ndim, const int64_t *dim)
{
    int64_t stride[ARIL_MAX_DIMS];
    aril__channels_last_strides(ndim, dim, stride);
    return aril__dnn_strided(type, ndim, dim, stride);
}

bool aril__dnn_takes_last(const aril_tensor *x, const aril_tensor *y)
{
    return !aril__is_dense(x) && (aril_is_channels_last(x) || !aril__is_dense(y));
}

dnnl_memory_desc_t aril__dnn_any(dnnl_data_type_t type, int ndim, const int64_t *dim)
{
    dnnl_memory_desc_t md = NULL;
    dnnl_dims_t d;
    if (ndim > ARIL_MAX_DIMS) return NULL;
    for (int i = 0; i < ndim; i++) d[i] = dim[i];
    if (dnnl_memory_desc_create_with_tag(&md, ndim, d, type, dnnl_format_tag_any) != dnnl_success)
        return NULL;
    return md;
}

/* ---- attributes ---- */

static dnnl_status_t append_activation(dnnl_post_ops_t ops, int64_t act)
{
    switch (act) {
    case ARIL_RELU: return dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_relu, 0, 0);
    case ARIL_RELU6: return dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_clip, 0, 6);
    case ARIL_LEAKY_RELU:
        return dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_relu, (float)ARIL__LEAKY_SLOPE, 0);
    case ARIL_SIGMOID: return dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_logistic, 0, 0);
    case ARIL_TANH: return dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_tanh, 0, 0);
    default: return dnnl_success;
    }
}

dnnl_primitive_attr_t aril__dnn_attr(int64_t act)
{
    return aril__dnn_attr_adding(false, act);
}

dnnl_primitive_attr_t aril__dnn_attr_adding(bool adds, int64_t act)
{
    dnnl_primitive_attr_t attr = NULL;
    if (dnnl_primitive_attr_create(&attr) != dnnl_success) return NULL;
    dnnl_status_t s = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (s == dnnl_success && (adds || act != ARIL_NO_ACTIVATION)) {
        dnnl_post_ops_t ops = NULL;
        s = dnnl_post_ops_create(&ops);
        if (s == dnnl_success && adds)
            s = dnnl_post_ops_append_sum(ops, 1, 0, dnnl_data_type_undef);
        if (s == dnnl_success) s = append_activation(ops, act);
        if (s == dnnl_success) s = dnnl_primitive_attr_set_post_ops(attr, ops);
        if (ops) dnnl_post_ops_destroy(ops);
    }
    if (s == dnnl_success) return attr;
    dnnl_primitive_attr_destroy(attr);
    return NULL;
}

/* Converts to f32 and back, block by block. */
static void activate_half(dnnl_data_type_t type, int64_t act, int64_t n, uint16_t *y)
{
    enum { BLOCK = 256 };
    float wide[BLOCK];
    for (int64_t from = 0; from < n; from += BLOCK, y += BLOCK) {
        int64_t m = n - from < BLOCK ? n - from : BLOCK;
        for (int64_t i = 0; i < m; i++)
            wide[i] = type == dnnl_bf16 ? aril__bf16_to_f32(y[i]) : aril__f16_to_f32(y[i]);
        aril__activation_run(ARIL_F32, act, m, wide);
        for (int64_t i = 0; i < m; i++)
            y[i] = type == dnnl_bf16 ? aril__f32_to_bf16(wide[i]) : aril__f32_to_f16(wide[i]);
    }
}

void aril__dnn_activate(dnnl_data_type_t type, int64_t act, int64_t n, void *y)
{
    if (type == dnnl_f32) {
        aril__activation_run(ARIL_F32, act, n, y);
        return;
    }
    if (act != ARIL_RELU && act != ARIL_RELU6) {
        activate_half(type, act, n, y);
        return;
    }
    /* Positive f16 and bf16 values sort like their bits; 0x40c0 and 0x4600 are 6. */
    uint16_t *v = y, inf = type == dnnl_bf16 ? 0x7f80 : 0x7c00;
    uint16_t max = act == ARIL_RELU ? inf : type == dnnl_bf16 ? 0x40c0 : 0x4600;
    for (int64_t i = 0; i < n; i++) {
        uint16_t size = v[i] & 0x7fff, clipped = size > max ? max : size;
        v[i] = size > inf ? v[i] : v[i] & 0x8000 ? 0 : clipped;
    }
}

/* ---- primitives ---- */

/* Memory handles for one run at a time: creating them costs more than running a small primitive. */
typedef struct aril__dnn_set {
    dnnl_stream_t stream;
    int n;
    dnnl_exec_arg_t arg[ARIL__DNN_ARGS + 1]; /* and the scratchpad */
} set;

static void free_set(set *s)
{
    for (int i = 0; i < s->n; i++) dnnl_memory_destroy(s->arg[i].memory);
    if (s->stream) dnnl_stream_destroy(s->stream);
    free(s);
}

static set *new_set(const aril__dnn *d)
{
    aril__allocations_allow(); /* cached with the primitive */
    set *s = aril__calloc(sizeof *s);
    aril__allocations_allow_end();
    if (!s) return NULL;
    bool ok = dnnl_stream_create(&s->stream, engine, dnnl_stream_default_flags) == dnnl_success;
    for (int i = 0; ok && i < d->n + (d->scratch > 0); i++) {
        int arg = i < d->n ? d->arg[i] : DNNL_ARG_SCRATCHPAD;
        s->arg[i].arg = arg;
        ok = dnnl_memory_create(&s->arg[i].memory, aril__dnn_md(d, arg), engine,
                                DNNL_MEMORY_NONE) == dnnl_success;
        s->n += ok;
    }
    if (ok) return s;
    free_set(s);
    return NULL;
}

const_dnnl_memory_desc_t aril__dnn_md(const aril__dnn *d, int arg)
{
    if (arg == DNNL_ARG_SCRATCHPAD)
        return dnnl_primitive_desc_query_md(d->desc, dnnl_query_scratchpad_md, 0);
    return dnnl_primitive_desc_query_md(d->desc, dnnl_query_exec_arg_md, arg);
}

size_t aril__dnn_bytes(const aril__dnn *d, int arg)
{
    return dnnl_memory_desc_get_size(aril__dnn_md(d, arg));
}

_Thread_local void (*aril__dnn_made)(const char *name);

/* "brgconv:avx2", "ref:any"; for a composite op, the names of all its parts. */
static const char *kernel_name(const_dnnl_primitive_desc_t pd)
{
    const char *name = NULL;
    if (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) != dnnl_success || !name)
        return "";
    return name;
}

const char *aril__dnn_make_any(aril__dnn *d, dnnl_status_t made, dnnl_primitive_desc_t pd, int n,
                               const int *arg)
{
    memset(d, 0, sizeof *d);
    if (made != dnnl_success) return aril__dnn_text(made);
    dnnl_status_t s = aril__dnn_serially(dnnl_primitive_create(&d->primitive, pd));
    dnnl_primitive_desc_destroy(pd);
    if (s == dnnl_success) s = dnnl_primitive_get_primitive_desc(d->primitive, &d->desc);
    if (s != dnnl_success) {
        aril__dnn_destroy(d);
        return aril__dnn_text(s);
    }
    if (aril__dnn_made) aril__dnn_made(kernel_name(d->desc));
    d->n = n;
    memcpy(d->arg, arg, (size_t)n * sizeof *arg);
    d->scratch = aril__dnn_bytes(d, DNNL_ARG_SCRATCHPAD);
    return NULL;
}

const char *aril__dnn_make(aril__dnn *d, dnnl_status_t made, dnnl_primitive_desc_t pd, int n,
                           const int *arg)
{
    if (made == dnnl_success && strstr(kernel_name(pd), "ref")) {
        memset(d, 0, sizeof *d);
        dnnl_primitive_desc_destroy(pd);
        return "oneDNN has only a reference kernel for this";
    }
    return aril__dnn_make_any(d, made, pd, n, arg);
}

const char *aril__dnn_make_reorder(aril__dnn *d, const_dnnl_memory_desc_t from,
                                   const_dnnl_memory_desc_t to)
{
    memset(d, 0, sizeof *d);
    dnnl_primitive_attr_t attr = aril__dnn_attr(ARIL_NO_ACTIVATION);
    if (!attr) return aril__dnn_text(dnnl_out_of_memory);
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t s =
        aril__dnn_serially(dnnl_reorder_primitive_desc_create(&pd, from, engine, to, engine, attr));
    dnnl_primitive_attr_destroy(attr);
    return aril__dnn_make(d, s, pd, 2, (int[]){ DNNL_ARG_FROM, DNNL_ARG_TO });
}

/* The slot where the calling thread looks first: a slot per thread holds handles that no other
 * thread has touched. */
static unsigned thread_slot(void)
{
    static atomic_uint threads;
    static _Thread_local unsigned slot; /* starts at 1 */
    if (!slot) slot = atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) + 1;
    return slot;
}

static set *take_set(aril__dnn *d)
{
    unsigned first = thread_slot();
    for (unsigned i = 0; i < ARIL__DNN_SETS; i++) {
        _Atomic(set *) *at = &d->set[(first + i) % ARIL__DNN_SETS];
        if (!atomic_load_explicit(at, memory_order_relaxed)) continue;
        set *s = atomic_exchange_explicit(at, NULL, memory_order_acquire);
        if (s) return s;
    }
    return new_set(d);
}

static void keep_set(aril__dnn *d, set *s)
{
    unsigned first = thread_slot();
    for (unsigned i = 0; i < ARIL__DNN_SETS; i++) {
        set *none = NULL;
        if (atomic_compare_exchange_strong_explicit(&d->set[(first + i) % ARIL__DNN_SETS], &none, s,
                                                    memory_order_release, memory_order_relaxed))
            return;
    }
    free_set(s);
}

dnnl_status_t aril__dnn_run(aril__dnn *d, void *const *data, void *scratch)
{
    set *s = take_set(d);
    if (!s) return dnnl_out_of_memory;
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < s->n && status == dnnl_success; i++)
        status = dnnl_memory_set_data_handle(s->arg[i].memory, i < d->n ? data[i] : scratch);
    if (status == dnnl_success)
        status = aril__dnn_serially(dnnl_primitive_execute(d->primitive, s->stream, s->n, s->arg));
    keep_set(d, s);
    return status;
}

void aril__dnn_destroy(aril__dnn *d)
{
    for (int i = 0; i < ARIL__DNN_SETS; i++) {
        set *s = atomic_exchange_explicit(&d->set[i], NULL, memory_order_acquire);
        if (s) free_set(s);
    }
    if (d->primitive) dnnl_primitive_destroy(d->primitive);
    d->primitive = NULL;
}
