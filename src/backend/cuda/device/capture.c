/* Recordings: CUDA graphs.
 *
 * A thread that records sends its work for a queue to a stream of the recording, which is captured;
 * other threads go on using the queue. Memory that it allocates meanwhile comes from a shelf of the
 * recording, so that replays find it at the same addresses and unused by others. */
#include "backend/cuda/device/device.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of the host that replays read. */
typedef struct kept {
    struct kept *next;
    void *memory; /* pinned */
    size_t bytes;
} kept;

struct aril_recording {
    aril_cuda_device *device;
    const aril_queue *queue; /* whose work it records */
    cudaStream_t stream;     /* while it records */
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    aril_cuda_shelf *shelf;
    kept *kept;
};

static _Thread_local aril_recording *now; /* what this thread records */

cudaStream_t aril_cuda_queue_stream(const aril_queue *q)
{
    if (now && now->queue == q) return now->stream;
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
    r->device = d;
    r->queue = queue;
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
    now = NULL;
    aril_cuda_use(self);
    aril_status s =
        aril_cuda_expect(cudaStreamEndCapture(r->stream, &r->graph), "cudaStreamEndCapture");
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
