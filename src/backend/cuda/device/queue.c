/* Queues are streams; events, recordings of a queue (CUDA graphs), and ranges of the profiler. */
#include "backend/cuda/device/device.h"

#include <nvtx3/nvToolsExt.h>
#include <stdlib.h>

/* ---- queues ---- */

aril_queue *aril_cuda_queue_new(void *self)
{
    aril_cuda_device *d = self;
    aril_queue *q = calloc(1, sizeof *q);
    if (!q) return NULL;
    aril_cuda_use(d);
    q->device = d;
    pthread_mutex_init(&q->reading, NULL);
    if (aril_cuda_expect(cudaStreamCreateWithFlags(&q->stream, cudaStreamNonBlocking),
                         "cudaStreamCreate") < 0) {
        free(q);
        return NULL;
    }
    pthread_mutex_lock(&d->lock);
    q->next = d->queues;
    d->queues = q;
    pthread_mutex_unlock(&d->lock);
    return q;
}

void aril_cuda_queue_free(void *self, aril_queue *queue)
{
    aril_cuda_device *d = self;
    aril_cuda_use(d);
    cudaStreamSynchronize(queue->stream);
    aril_cuda_pool_forget(d->pool, queue);
    aril_cuda_staging_forget(d->staging, queue);
    aril_cuda_buffers_delete(queue);
    pthread_mutex_destroy(&queue->reading);
    pthread_mutex_lock(&d->lock);
    aril_queue **at = &d->queues;
    while (*at && *at != queue) at = &(*at)->next;
    if (*at) *at = queue->next;
    pthread_mutex_unlock(&d->lock);
    cudaStreamDestroy(queue->stream);
    free(queue);
}

aril_status aril_cuda_queue_wait(void *self, aril_queue *queue)
{
    aril_cuda_use(self);
    return aril_cuda_late(self, cudaStreamSynchronize(aril_cuda_queue_stream(queue)));
}

aril_status aril_cuda_synchronize(void *self)
{
    aril_cuda_use(self);
    return aril_cuda_late(self, cudaDeviceSynchronize());
}

/* ---- events ---- */

struct aril_event {
    cudaEvent_t event;
};

aril_event *aril_cuda_event_new(void *self)
{
    aril_event *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    aril_cuda_use(self);
    if (cudaEventCreateWithFlags(&e->event, cudaEventDisableTiming) == cudaSuccess) return e;
    free(e);
    return NULL;
}

void aril_cuda_event_free(void *self, aril_event *event)
{
    aril_cuda_use(self);
    cudaEventDestroy(event->event);
    free(event);
}

aril_status aril_cuda_event_record(void *self, aril_event *event, aril_queue *queue)
{
    aril_cuda_use(self);
    return aril_cuda_expect(cudaEventRecord(event->event, aril_cuda_queue_stream(queue)),
                            "cudaEventRecord");
}

aril_status aril_cuda_event_wait(void *self, aril_event *event, aril_queue *queue)
{
    aril_cuda_use(queue ? queue->device : self);
    return aril_cuda_expect(cudaStreamWaitEvent(aril_cuda_queue_stream(queue), event->event, 0),
                            "cudaStreamWaitEvent");
}

int aril_cuda_event_query(void *self, aril_event *event)
{
    aril_cuda_use(self);
    cudaError_t e = cudaEventQuery(event->event);
    if (e == cudaErrorNotReady) cudaGetLastError();
    return e != cudaErrorNotReady; /* a failed device does no more work */
}

/* ---- recordings ---- */

struct aril_recording {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
};

/* Relaxed: memory may be allocated meanwhile, which is not part of the recording. */
aril_status aril_cuda_capture_begin(void *self, aril_queue *queue)
{
    aril_cuda_use(self);
    return aril_cuda_expect(cudaStreamBeginCapture(queue->stream, cudaStreamCaptureModeRelaxed),
                            "cudaStreamBeginCapture");
}

aril_recording *aril_cuda_capture_end(void *self, aril_queue *queue)
{
    aril_cuda_use(self);
    aril_recording *r = calloc(1, sizeof *r);
    cudaGraph_t graph = NULL;
    aril_status s =
        aril_cuda_expect(cudaStreamEndCapture(queue->stream, &graph), "cudaStreamEndCapture");
    if (r && s == ARIL_OK) {
        r->graph = graph;
        s = aril_cuda_expect(cudaGraphInstantiate(&r->exec, graph, 0), "cudaGraphInstantiate");
        if (s == ARIL_OK) return r;
    }
    if (graph) cudaGraphDestroy(graph);
    free(r);
    return NULL;
}

aril_status aril_cuda_replay(void *self, aril_queue *queue, aril_recording *recording)
{
    aril_cuda_use(self);
    return aril_cuda_expect(cudaGraphLaunch(recording->exec, queue->stream), "cudaGraphLaunch");
}

void aril_cuda_recording_free(void *self, aril_recording *recording)
{
    aril_cuda_use(self);
    cudaGraphExecDestroy(recording->exec);
    cudaGraphDestroy(recording->graph);
    free(recording);
}

/* ---- ranges ---- */

void aril_cuda_range_begin(void *self, const char *name)
{
    (void)self;
    nvtxRangePushA(name);
}

void aril_cuda_range_end(void *self)
{
    (void)self;
    nvtxRangePop();
}
