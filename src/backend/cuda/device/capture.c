/* Recordings: CUDA graphs.
 *
 * A thread that records sends its work for a queue to a stream of the recording, which is captured;
 * other threads go on using the queue. Memory that it allocates meanwhile comes from a shelf of the
 * recording, so that replays find it at the same addresses and unused by others.
 *
 * Ops are recorded one after the other, but each waits only for those whose memory it uses: so a
 * replay runs independent ones side by side. An op waits for earlier ones that wrote what it reads
 * or writes, and for those that read what it writes. That is decided by addresses, so that memory
 * that was freed and allocated again needs no attention.
 *
 * Small runs wait until something else is put into the queue: then one kernel computes all of them
 * (backend/cuda/small). */
#include "backend/cuda/device/device.h"
#include "backend/cuda/small/small.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of the host that replays read. */
typedef struct kept {
    struct kept *next;
    void *memory; /* pinned */
    size_t bytes;
} kept;

/* Addresses that an op uses. */
typedef struct use {
    const char *begin, *end;
    bool writes;
    cudaGraphNode_t node; /* the op's last */
} use;

typedef struct uses {
    use *at;
    size_t n, room;
} uses;

/* Small runs that wait for their kernel. */
typedef struct small_runs {
    aril_cuda_small_step *steps;
    int n, room, shared; /* steps, and the bytes of shared memory that they need */
    bool shares;         /* a run since the last wait has values there */
    size_t since;        /* `uses` from here on are of steps after the last wait */
    uses uses;
} small_runs;

/* Steps in the memory of the device. */
typedef struct stored {
    struct stored *next;
    void *steps;
} stored;

struct aril_recording {
    aril_cuda_device *device;
    const aril_queue *queue; /* whose work it records */
    cudaStream_t stream;     /* while it records */
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    aril_cuda_shelf *shelf;
    kept *kept;
    stored *stored;
    small_runs small;
    bool in_order;       /* ARIL_CUDA_GRAPHS=serial: every op waits for the one before */
    bool failed;         /* dependencies are not known */
    uses earlier, own;   /* of the ops before, and of the present one */
    uint64_t op;         /* tells the present op from others */
    cudaGraphNode_t *on; /* what the present op waits for */
    size_t n_on, on_room;
};

static _Thread_local aril_recording *now; /* what this thread records */

/* ---- dependencies ---- */

static void add_use(aril_recording *r, uses *u, use x)
{
    if (!x.begin || x.begin == x.end) return;
    if (u->n == u->room) {
        size_t room = 2 * u->room + 64;
        use *wider = realloc(u->at, room * sizeof *wider);
        if (!wider) {
            r->failed = true;
            return;
        }
        u->at = wider;
        u->room = room;
    }
    u->at[u->n++] = x;
}

static bool conflict(const use *a, const use *b)
{
    return (a->writes || b->writes) && a->begin < b->end && b->begin < a->end;
}

/* The nodes that the next one would wait for. */
static size_t last_nodes(aril_recording *r, const cudaGraphNode_t **nodes)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    size_t n = 0;
#if CUDART_VERSION >= 13000
    const cudaGraphEdgeData *edges; /* asked for, since libraries may launch kernels early */
    cudaError_t e = cudaStreamGetCaptureInfo(r->stream, &status, NULL, NULL, nodes, &edges, &n);
#else
    cudaError_t e = cudaStreamGetCaptureInfo_v2(r->stream, &status, NULL, NULL, nodes, &n);
#endif
    if (e != cudaSuccess || status != cudaStreamCaptureStatusActive) r->failed = true;
    return r->failed ? 0 : n;
}

/* The next node waits for those of r->on. */
static void set_nodes(aril_recording *r)
{
#if CUDART_VERSION >= 13000
    cudaError_t e = cudaStreamUpdateCaptureDependencies(r->stream, r->on, NULL, r->n_on,
                                                        cudaStreamSetCaptureDependencies);
#else
    cudaError_t e = cudaStreamUpdateCaptureDependencies(r->stream, r->on, r->n_on,
                                                        cudaStreamSetCaptureDependencies);
#endif
    if (e != cudaSuccess) r->failed = true;
}

static void wait_for(aril_recording *r, cudaGraphNode_t node)
{
    for (size_t i = 0; i < r->n_on; i++)
        if (r->on[i] == node) return;
    if (r->n_on == r->on_room) {
        size_t room = 2 * r->on_room + 64;
        cudaGraphNode_t *wider = realloc(r->on, room * sizeof *wider);
        if (!wider) {
            r->failed = true;
            return;
        }
        r->on = wider;
        r->on_room = room;
    }
    r->on[r->n_on++] = node;
}

/* Drops earlier uses of addresses that the present op writes: whoever waits for it waits for
 * them. */
static void replace_uses(uses *e, const use *by)
{
    size_t n = 0;
    for (size_t i = 0; i < e->n; i++)
        if (e->at[i].begin < by->begin || e->at[i].end > by->end) e->at[n++] = e->at[i];
    e->n = n;
}

/* The present op has queued all its work. */
static void end_op(aril_recording *r)
{
    const cudaGraphNode_t *nodes = NULL;
    size_t n = last_nodes(r, &nodes);
    bool worked = n != r->n_on || (n && memcmp(nodes, r->on, n * sizeof *nodes) != 0);
    for (size_t k = 0; k < r->own.n && worked; k++)
        if (r->own.at[k].writes) replace_uses(&r->earlier, &r->own.at[k]);
    for (size_t k = 0; k < r->own.n && worked; k++)
        for (size_t i = 0; i < n; i++) {
            use u = r->own.at[k];
            u.node = nodes[i];
            add_use(r, &r->earlier, u);
        }
    r->own.n = 0;
    r->op = 0;
}

/* The present op waits for earlier ones that conflict with it. */
static void begin_op(aril_recording *r)
{
    r->n_on = 0;
    for (size_t k = 0; k < r->own.n; k++)
        for (size_t i = 0; i < r->earlier.n; i++) {
            const use *a = &r->own.at[k], *b = &r->earlier.at[i];
            if (conflict(a, b)) wait_for(r, b->node);
        }
    set_nodes(r);
}

/* At the end, everything is before what would follow. */
static void join(aril_recording *r)
{
    if (r->in_order) return;
    end_op(r);
    r->n_on = 0;
    for (size_t i = 0; i < r->earlier.n; i++) wait_for(r, r->earlier.at[i].node);
    set_nodes(r);
}

static int64_t element_bytes(aril_dtype dtype)
{
    switch (dtype) {
    case ARIL_F64:
    case ARIL_I64:
    case ARIL_U64: return 8;
    case ARIL_F32:
    case ARIL_I32:
    case ARIL_U32: return 4;
    case ARIL_F16:
    case ARIL_BF16:
    case ARIL_I16:
    case ARIL_U16: return 2;
    default: return 1;
    }
}

/* The addresses from the first element of a tensor to the end of its last. */
static use use_of(const aril_tensor *t, bool writes)
{
    const aril_host *h = aril_cuda_host;
    const int64_t *dim = h->dims(t), *stride = h->strides(t);
    const char *data = h->data(t);
    int64_t low = 0, high = 1, bytes = element_bytes(h->dtype(t));
    for (int d = 0; d < h->ndim(t); d++) {
        if (dim[d] == 0) return (use){ .begin = NULL };
        *(stride[d] < 0 ? &low : &high) += (dim[d] - 1) * stride[d];
    }
    return (use){ data + low * bytes, data + high * bytes, writes, NULL };
}

static uint64_t mixed(uint64_t h, const void *p)
{
    return (h ^ (uint64_t)(uintptr_t)p) * 0x9e3779b97f4a7c15u;
}

/* A number for the op of a run with its operands; not 0. */
static uint64_t op_number(const aril_run *run)
{
    const aril_host *h = aril_cuda_host;
    uint64_t op = mixed(mixed(1, run), h->op(run));
    for (int i = 0; i < h->n_in(run); i++)
        if (h->access(run, i) != ARIL_ACCESS_NONE) op = mixed(op, h->data(h->in(run, i)));
    for (int i = 0; i < h->n_out(run); i++)
        if (h->out(run, i)) op = mixed(op, h->data(h->out(run, i)));
    return op | 1;
}

/* The operands of a run. */
static void add_uses(aril_recording *r, uses *to, const aril_run *run)
{
    const aril_host *h = aril_cuda_host;
    for (int i = 0; i < h->n_in(run); i++) {
        aril_access a = h->access(run, i);
        if (a != ARIL_ACCESS_NONE) add_use(r, to, use_of(h->in(run, i), a == ARIL_ACCESS_CHANGE));
    }
    for (int i = 0; i < h->n_out(run); i++)
        if (h->out(run, i)) add_use(r, to, use_of(h->out(run, i), true));
}

static void record_op(aril_recording *r, const aril_run *run)
{
    uint64_t op = op_number(run);
    if (op == r->op) return;
    end_op(r);
    add_uses(r, &r->own, run);
    const char *workspace = aril_cuda_host->workspace(run);
    size_t bytes = aril_cuda_host->workspace_bytes(run);
    add_use(r, &r->own, (use){ workspace, workspace + bytes, true, NULL });
    r->op = op;
    begin_op(r);
}

/* ---- small runs ---- */

/* Whether one of the uses from `first` on conflicts with one since the last wait, up to `last`. */
static bool must_wait(const small_runs *s, size_t first, size_t last)
{
    for (size_t k = first; k < s->uses.n; k++)
        for (size_t i = s->since; i < last; i++)
            if (conflict(&s->uses.at[k], &s->uses.at[i])) return true;
    return false;
}

static bool make_room(small_runs *s)
{
    if (s->n + ARIL_CUDA_SMALL_STEPS <= s->room) return true;
    int room = 2 * s->room + 4 * ARIL_CUDA_SMALL_STEPS;
    aril_cuda_small_step *wider = realloc(s->steps, aril_cuda_small_bytes(room));
    if (!wider) return false;
    s->steps = wider;
    s->room = room;
    return true;
}

/* Copies the steps to memory of the device that the recording keeps. By a stream of its own: they
 * are the same in each replay. */
static const aril_cuda_small_step *store_steps(aril_recording *r)
{
    size_t bytes = aril_cuda_small_bytes(r->small.n);
    stored *to = calloc(1, sizeof *to);
    cudaStream_t stream = NULL;
    if (!to) return NULL;
    cudaError_t e = cudaMalloc(&to->steps, bytes);
    if (e != cudaSuccess) {
        free(to);
        return NULL;
    }
    to->next = r->stored;
    r->stored = to;
    e = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (e == cudaSuccess)
        e = cudaMemcpyAsync(to->steps, r->small.steps, bytes, cudaMemcpyHostToDevice, stream);
    if (e == cudaSuccess) e = cudaStreamSynchronize(stream);
    if (stream) cudaStreamDestroy(stream);
    return e == cudaSuccess ? to->steps : NULL;
}

/* Records the kernel of the small runs that wait. */
static void end_small(aril_recording *r)
{
    int n = r->small.n;
    if (n == 0) return;
    const aril_cuda_small_step *steps = store_steps(r);
    r->small.n = 0;
    if (!r->in_order) {
        end_op(r);
        for (size_t i = 0; i < r->small.uses.n; i++) add_use(r, &r->own, r->small.uses.at[i]);
        begin_op(r);
    }
    if (!steps || aril_cuda_small_launch(steps, n, r->small.shared, r->stream) != cudaSuccess)
        r->failed = true;
    aril_cuda_host->log("cuda:%d: one kernel for small runs of %d steps", r->device->index, n);
    r->small.uses.n = r->small.since = 0;
    r->small.shared = 0;
    r->small.shares = false;
}

/* Without a recording: products and sums are computed as in one, so that a program gives the same
 * bits before it is recorded. */
static aril_status run_small(aril_cuda_device *d, const aril_run *run, bool *done)
{
    const aril_cuda_small_step *step = aril_cuda_small_product(run);
    if (!step) return ARIL_OK;
    aril_cuda_use(d);
    aril_cuda_small_launch_one(step, aril_cuda_run_stream(run));
    *done = true;
    d->last_op = aril_cuda_host->op(run);
    return aril_cuda_check_launch(d, aril_cuda_host->queue(run), d->last_op);
}

aril_status aril_cuda_record_small(void *self, const aril_run *run, bool *recorded)
{
    aril_recording *r = now;
    *recorded = false;
    if (!r || r->queue != aril_cuda_host->queue(run)) return run_small(self, run, recorded);
    if (r->small.n + ARIL_CUDA_SMALL_STEPS > ARIL_CUDA_SMALL_MOST) end_small(r);
    if (!make_room(&r->small))
        return aril_cuda_host->fail(ARIL_ERR_MEMORY, "cuda: out of memory for a recording");
    int first = r->small.n, shared = 0;
    int n = aril_cuda_small_describe(run, r->small.steps, first, &shared);
    if (n == 0) return ARIL_OK;
    size_t before = r->small.uses.n;
    add_uses(r, &r->small.uses, run);
    /* The last use before is the result of the run before. */
    bool waits = must_wait(&r->small, before, before) || (shared && r->small.shares);
    bool follows = waits && n == 1 && !shared && before > r->small.since &&
                   !must_wait(&r->small, before, before - 1) &&
                   aril_cuda_small_follows(r->small.steps, first);
    if (waits && !follows) {
        aril_cuda_small_wait(r->small.steps, first);
        r->small.since = before;
        r->small.shares = false;
    }
    r->small.shares = r->small.shares || shared;
    if (shared > r->small.shared) r->small.shared = shared;
    r->small.n += n;
    *recorded = true;
    return ARIL_OK;
}

/* ---- what is put into the queue ---- */

cudaStream_t aril_cuda_run_stream(const aril_run *r)
{
    const aril_queue *queue = aril_cuda_host->queue(r);
    if (now && now->queue == queue) {
        end_small(now);
        if (!now->in_order) record_op(now, r);
    }
    return aril_cuda_queue_stream(queue);
}

void aril_cuda_record_copy(const void *to, const void *from, size_t bytes)
{
    if (now) end_small(now);
    if (!now || now->in_order) return;
    end_op(now);
    add_use(now, &now->own, (use){ to, (const char *)to + bytes, true, NULL });
    if (from) add_use(now, &now->own, (use){ from, (const char *)from + bytes, false, NULL });
    begin_op(now);
}

/* ---- the thread that records ---- */

cudaStream_t aril_cuda_queue_stream(const aril_queue *q)
{
    if (now && now->queue == q) {
        end_small(now);
        return now->stream;
    }
    return q ? q->stream : (cudaStream_t)0;
}

aril_cuda_shelf *aril_cuda_recorded_shelf(const aril_queue *queue)
{
    return now && now->queue == queue ? now->shelf : NULL;
}

aril_status aril_cuda_not_recording(const char *what)
{
    if (!now) return ARIL_OK;
    return aril_cuda_host->fail(ARIL_ERR_UNSUPPORTED, "cuda: %s cannot be recorded", what);
}

aril_status aril_cuda_keep_for_replay(void *self, const void **src, size_t bytes)
{
    if (!now) return ARIL_OK;
    kept *k = calloc(1, sizeof *k);
    if (k) k->memory = aril_cuda_pinned_alloc(self, bytes);
    if (!k || !k->memory) {
        free(k);
        return aril_cuda_host->fail(ARIL_ERR_MEMORY, "cuda: out of memory for a recording");
    }
    k->bytes = bytes;
    k->next = now->kept;
    now->kept = k;
    *src = memcpy(k->memory, *src, bytes);
    return ARIL_OK;
}

/* ---- the interface ---- */

/* What a recording holds; the work that uses it is done. */
static void release(aril_recording *r)
{
    if (r->exec) cudaGraphExecDestroy(r->exec);
    if (r->graph) cudaGraphDestroy(r->graph);
    if (r->stream) cudaStreamDestroy(r->stream);
    free(r->earlier.at);
    free(r->own.at);
    free(r->on);
    free(r->small.steps);
    free(r->small.uses.at);
    for (stored *s = r->stored, *next; s; s = next) {
        next = s->next;
        cudaFree(s->steps);
        free(s);
    }
    for (kept *k = r->kept, *next; k; k = next) {
        next = k->next;
        aril_cuda_pinned_free(r->device, k->memory, k->bytes);
        free(k);
    }
    if (r->shelf) aril_cuda_shelf_end(r->device->pool, r->shelf);
    free(r);
}

/* Relaxed: the driver may allocate memory meanwhile, which is not part of the recording. */
aril_status aril_cuda_capture_begin(void *self, aril_queue *queue)
{
    aril_cuda_device *d = self;
    aril_status s = aril_cuda_not_recording("a recording");
    if (s < 0) return s;
    if (aril_cuda_sync)
        return aril_cuda_host->fail(ARIL_ERR_UNSUPPORTED,
                                    "cuda: nothing is recorded with ARIL_SYNC=1");
    aril_recording *r = calloc(1, sizeof *r);
    if (!r) return aril_cuda_host->fail(ARIL_ERR_MEMORY, "cuda: out of memory for a recording");
    aril_cuda_use(d);
    const char *setting = getenv("ARIL_CUDA_GRAPHS");
    r->device = d;
    r->queue = queue;
    r->in_order = setting && strcmp(setting, "serial") == 0;
    r->shelf = aril_cuda_shelf_new(d->pool);
    s = r->shelf ? ARIL_OK : ARIL_ERR_UNSUPPORTED;
    if (s == ARIL_OK)
        s = aril_cuda_expect(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking),
                             "cudaStreamCreate");
    if (s == ARIL_OK)
        s = aril_cuda_expect(cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeRelaxed),
                             "cudaStreamBeginCapture");
    if (s == ARIL_OK)
        now = r;
    else
        release(r);
    return s;
}

aril_recording *aril_cuda_capture_end(void *self, aril_queue *queue)
{
    aril_recording *r = now;
    size_t n = 0;
    if (!r || r->queue != queue) {
        aril_cuda_host->fail(ARIL_ERR_STATE, "cuda: nothing is being recorded");
        return NULL;
    }
    aril_cuda_use(self);
    end_small(r);
    join(r);
    now = NULL;
    aril_status s =
        aril_cuda_expect(cudaStreamEndCapture(r->stream, &r->graph), "cudaStreamEndCapture");
    if (s == ARIL_OK && r->failed)
        s = aril_cuda_host->fail(ARIL_ERR_DEVICE, "cuda: a recording failed");
    if (s == ARIL_OK)
        s = aril_cuda_expect(cudaGraphInstantiate(&r->exec, r->graph, 0), "cudaGraphInstantiate");
    if (s < 0) {
        cudaGetLastError();
        release(r);
        return NULL;
    }
    cudaGraphUpload(r->exec, r->stream);
    cudaGraphGetNodes(r->graph, NULL, &n);
    cudaStreamSynchronize(r->stream);
    cudaStreamDestroy(r->stream);
    r->stream = NULL;
    aril_cuda_host->log("cuda:%d: recorded %zu kernels and copies", r->device->index, n);
    return r;
}

aril_status aril_cuda_replay(void *self, aril_queue *queue, aril_recording *recording)
{
    aril_cuda_use(self);
    return aril_cuda_expect(cudaGraphLaunch(recording->exec, queue->stream), "cudaGraphLaunch");
}

void aril_cuda_recording_free(void *self, aril_recording *recording)
{
    aril_cuda_synchronize(self); /* replays may still run */
    release(recording);
}
