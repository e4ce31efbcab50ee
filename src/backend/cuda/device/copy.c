/* Copies between the host, the device, and other devices.
 *
 * Pageable memory passes through pinned buffers. Writing goes through a ring of chunks: the host
 * fills a chunk and returns while the device still copies from it; a chunk is reused after the
 * event that was recorded when it was left. Reading goes through two buffers of the queue, one of
 * which is filled while the other is emptied. */
#include "backend/cuda/device/device.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNKS = 8 };
static const size_t chunk_bytes = (size_t)4 << 20, line = 256;

typedef struct chunk {
    char *memory;
    cudaEvent_t left; /* recorded when the ring moved on */
    bool pending;
} chunk;

struct aril_cuda_staging {
    pthread_mutex_t lock;
    chunk chunk[CHUNKS];
    int at;
    size_t used;       /* of the current chunk */
    aril_queue *queue; /* whose copies read from it; NULL: none yet */
};

static aril_status pin(char **memory, cudaEvent_t *event)
{
    void *p = NULL;
    if (*memory) return ARIL_OK;
    aril_status s =
        aril_cuda_expect(cudaHostAlloc(&p, chunk_bytes, cudaHostAllocPortable), "cudaHostAlloc");
    if (s == ARIL_OK)
        s = aril_cuda_expect(cudaEventCreateWithFlags(event, cudaEventDisableTiming),
                             "cudaEventCreate");
    if (s < 0 && p) cudaFreeHost(p);
    if (s == ARIL_OK) *memory = p;
    return s;
}

/* ---- writing ---- */

aril_cuda_staging *aril_cuda_staging_new(void)
{
    aril_cuda_staging *s = calloc(1, sizeof *s);
    if (s) pthread_mutex_init(&s->lock, NULL);
    return s;
}

void aril_cuda_staging_delete(aril_cuda_staging *s)
{
    if (!s) return;
    for (int i = 0; i < CHUNKS; i++) {
        if (!s->chunk[i].memory) continue;
        cudaEventDestroy(s->chunk[i].left);
        cudaFreeHost(s->chunk[i].memory);
    }
    pthread_mutex_destroy(&s->lock);
    free(s);
}

void aril_cuda_staging_forget(aril_cuda_staging *s, aril_queue *queue)
{
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    if (s->queue == queue) { /* its work is done: the chunk may be reused at once */
        s->queue = NULL;
        s->used = 0;
    }
    pthread_mutex_unlock(&s->lock);
}

/* Marks the current chunk as read by the queue so far, and goes on to the next, which may still
 * have to be read. */
static aril_status next_chunk(aril_cuda_staging *s)
{
    chunk *c = &s->chunk[s->at];
    aril_status status = ARIL_OK;
    if (s->queue && s->used) {
        status = aril_cuda_expect(cudaEventRecord(c->left, s->queue->stream), "cudaEventRecord");
        c->pending = status == ARIL_OK;
    }
    s->at = (s->at + 1) % CHUNKS;
    s->used = 0;
    c = &s->chunk[s->at];
    if (status == ARIL_OK && c->pending)
        status = aril_cuda_expect(cudaEventSynchronize(c->left), "cudaEventSynchronize");
    c->pending = false;
    return status;
}

static aril_status write_staged(aril_cuda_staging *s, aril_queue *queue, char *dst, const char *src,
                                size_t bytes)
{
    aril_status status = ARIL_OK;
    if (s->queue != queue && s->used) status = next_chunk(s);
    s->queue = queue;
    while (bytes && status == ARIL_OK) {
        if (s->used == chunk_bytes) status = next_chunk(s);
        chunk *c = &s->chunk[s->at];
        if (status == ARIL_OK) status = pin(&c->memory, &c->left);
        if (status < 0) break;
        size_t n = chunk_bytes - s->used < bytes ? chunk_bytes - s->used : bytes;
        memcpy(c->memory + s->used, src, n);
        status = aril_cuda_expect(cudaMemcpyAsync(dst, c->memory + s->used, n,
                                                  cudaMemcpyHostToDevice, queue->stream),
                                  "cudaMemcpyAsync");
        s->used += (n + line - 1) / line * line;
        if (s->used > chunk_bytes) s->used = chunk_bytes;
        dst += n;
        src += n;
        bytes -= n;
    }
    return status;
}

aril_status aril_cuda_from_host(void *self, aril_queue *queue, void *dst, const void *src,
                                size_t bytes, bool async)
{
    aril_cuda_device *d = self;
    if (!bytes) return ARIL_OK;
    aril_cuda_use(d);
    const void *given = src;
    aril_status s = aril_cuda_keep_for_replay(self, &src, bytes);
    if (s < 0) return s;
    aril_cuda_record_copy(dst, NULL, bytes);
    if (async || src != given)
        return aril_cuda_expect(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice,
                                                aril_cuda_queue_stream(queue)),
                                "cudaMemcpyAsync");
    pthread_mutex_lock(&d->staging->lock);
    s = write_staged(d->staging, queue, dst, src, bytes);
    pthread_mutex_unlock(&d->staging->lock);
    return s;
}

/* ---- reading ---- */

void aril_cuda_buffers_delete(aril_queue *queue)
{
    for (int i = 0; i < 2; i++) {
        if (!queue->buffer[i]) continue;
        cudaEventDestroy(queue->filled[i]);
        cudaFreeHost(queue->buffer[i]);
        queue->buffer[i] = NULL;
    }
}

/* Bytes of piece k of a read, 0 beyond its end. */
static size_t piece(size_t bytes, size_t k)
{
    size_t begin = k * chunk_bytes;
    return begin >= bytes ? 0 : bytes - begin < chunk_bytes ? bytes - begin : chunk_bytes;
}

/* Queues the copy of piece k to its buffer. */
static cudaError_t fetch(aril_queue *q, const char *src, size_t bytes, size_t k)
{
    size_t n = piece(bytes, k);
    if (!n) return cudaSuccess;
    cudaError_t e = cudaMemcpyAsync(q->buffer[k % 2], src + k * chunk_bytes, n,
                                    cudaMemcpyDeviceToHost, q->stream);
    return e == cudaSuccess ? cudaEventRecord(q->filled[k % 2], q->stream) : e;
}

static aril_status read_staged(aril_cuda_device *d, aril_queue *q, char *dst, const char *src,
                               size_t bytes)
{
    aril_status s = pin(&q->buffer[0], &q->filled[0]);
    if (s == ARIL_OK && bytes > chunk_bytes) s = pin(&q->buffer[1], &q->filled[1]);
    if (s < 0) return s;
    cudaError_t e = fetch(q, src, bytes, 0);
    if (e == cudaSuccess) e = fetch(q, src, bytes, 1);
    for (size_t k = 0; piece(bytes, k) && e == cudaSuccess; k++) {
        e = cudaEventSynchronize(q->filled[k % 2]);
        if (e != cudaSuccess) break;
        memcpy(dst + k * chunk_bytes, q->buffer[k % 2], piece(bytes, k));
        e = fetch(q, src, bytes, k + 2);
    }
    return aril_cuda_late(d, e);
}

aril_status aril_cuda_to_host(void *self, aril_queue *queue, void *dst, const void *src,
                              size_t bytes, bool async)
{
    aril_cuda_device *d = self;
    aril_status s = aril_cuda_not_recording("reading a value");
    if (s < 0) return s;
    aril_cuda_use(d);
    if (!bytes) return async ? ARIL_OK : aril_cuda_queue_wait(self, queue);
    if (async)
        return aril_cuda_expect(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost,
                                                queue->stream),
                                "cudaMemcpyAsync");
    pthread_mutex_lock(&queue->reading);
    s = read_staged(d, queue, dst, src, bytes);
    pthread_mutex_unlock(&queue->reading);
    return s;
}

/* ---- on devices ---- */

aril_status aril_cuda_copy(void *self, aril_queue *queue, void *dst, const void *src, size_t bytes)
{
    if (!bytes) return ARIL_OK;
    aril_cuda_use(self);
    aril_cuda_record_copy(dst, src, bytes);
    return aril_cuda_expect(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice,
                                            aril_cuda_queue_stream(queue)),
                            "cudaMemcpyAsync");
}

aril_status aril_cuda_copy_from(void *self, aril_queue *queue, void *dst, void *other,
                                const void *src, size_t bytes)
{
    const aril_cuda_device *to = self, *from = other;
    if (!bytes) return ARIL_OK;
    aril_status s = aril_cuda_not_recording("a copy from another device");
    if (s < 0) return s;
    aril_cuda_use(self);
    return aril_cuda_expect(cudaMemcpyPeerAsync(dst, to->index, src, from->index, bytes,
                                                queue->stream),
                            "cudaMemcpyPeerAsync");
}
