/* Queues are streams; events, and ranges of the profiler. */
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
    aril_status s = aril_cuda_not_recording("waiting for the device");
    if (s < 0) return s;
    aril_cuda_use(self);
    return aril_cuda_late(self, cudaStreamSynchronize(aril_cuda_queue_stream(queue)));
}

/* Queue by queue: cudaDeviceSynchronize would break a recording of another thread. */
aril_status aril_cuda_synchronize(void *self)
{
    aril_cuda_device *d = self;
    aril_status s = aril_cuda_not_recording("waiting for the device");
    if (s < 0) return s;
    cudaError_t e = cudaSuccess;
    aril_cuda_use(d);
    pthread_mutex_lock(&d->lock);
    for (const aril_queue *q = d->queues; q && e == cudaSuccess; q = q->next)
        e = cudaStreamSynchronize(q->stream);
    pthread_mutex_unlock(&d->lock);
    return aril_cuda_late(d, e);
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
    aril_status s = aril_cuda_not_recording("an event");
    if (s < 0) return s;
    aril_cuda_use(self);
    return aril_cuda_expect(cudaEventRecord(event->event, aril_cuda_queue_stream(queue)),
                            "cudaEventRecord");
}

aril_status aril_cuda_event_wait(void *self, aril_event *event, aril_queue *queue)
{
    aril_status s = aril_cuda_not_recording("an event");
    if (s < 0) return s;
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
