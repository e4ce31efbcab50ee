/* Streams: several queues of work on one device, which may be done at the same time.
 *
 * Operations are queued in the order in which a thread calls them, and a device works through its
 * default queue one by one. A stream is a further queue: small kernels of two streams share a GPU,
 * and copies pass beside kernels. ARIL_STREAM selects it for a block:
 *
 *     aril_stream *side = aril_stream_new(device);
 *     {
 *         ARIL_STREAM(side);
 *         y = aril_keep(aril_forward(net, x));
 *     }
 *     z = aril_add(y, y);          the default queue waits for y, not the program
 *
 * No event is needed for tensors: work on a tensor waits, on the device, for work of other streams
 * that uses it, and memory is reused only after it. Reading a value waits as always. The CPU has no
 * queues: there, streams change nothing. */
#ifndef ARIL_STREAM_H
#define ARIL_STREAM_H

#include "aril/base.h"
#include "aril/scope.h"

ARIL_C_BEGIN

typedef struct aril_stream aril_stream;

/* A new stream of a device; any thread may use it, also several at a time. NULL, with an error,
 * when the device has as many as it can (31), or does not support them. aril_stream_free waits for
 * its work; tensors stay valid. Free it where no ARIL_STREAM selects it any more: a thread that
 * selects it gets an error, and nothing is freed; other threads are not checked. */
ARIL_API aril_stream *aril_stream_new(aril_device device);
ARIL_API void aril_stream_free(aril_stream *stream);

/* From here to the closing brace, operations of this thread on the stream's device are queued in
 * the stream. One stream is selected at a time: within another ARIL_STREAM, that one. */
#define ARIL_STREAM(stream) ARIL__GUARD_OF(aril_stream_begin(stream))
/* The function behind it; end it with aril_guard_end. */
ARIL_API aril_guard aril_stream_begin(aril_stream *stream);

/* Waits for the work of the stream; returns any error that occurred on its device. */
ARIL_API aril_status aril_stream_synchronize(aril_stream *stream);

/* Events, for what Aril does not see: files, other libraries, the time that something is done. */
typedef struct aril_stream_event aril_stream_event;

/* Marks the work that a stream was given so far; NULL is the stream selected on this thread, or
 * else the default queue of `device`. NULL, with an error, on failure. */
ARIL_API aril_stream_event *aril_stream_record(aril_device device, aril_stream *stream);
ARIL_API void aril_stream_event_free(aril_stream_event *event);

/* Makes work that the stream is given later wait, on the device, for the event; NULL as above. The
 * event may be another device's of the same kind. */
ARIL_API aril_status aril_stream_wait(aril_stream *stream, aril_stream_event *event);

/* True when the marked work is done; waits until it is, and returns any error of the device. */
ARIL_API bool aril_stream_event_done(aril_stream_event *event);
ARIL_API aril_status aril_stream_event_synchronize(aril_stream_event *event);

ARIL_C_END

#endif
