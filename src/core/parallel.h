/* The one parallel loop. No other file of Aril knows threads, apart from those that start one for
 * a purpose of its own (loaders, servers): such a thread calls aril__thread_set_serial(true).
 *
 * The loop cuts work by size, never by the number of threads: chunk k is [k * grain, (k + 1) *
 * grain) cut at n. Only who runs a chunk, and when, depends on threads. A reduction that keeps one
 * partial result for each chunk and adds them in order therefore gives the same bits on any
 * machine. A kernel that chooses its grain by aril__parallel_pieces gives the same bits for the
 * same number of threads, or for any number where the user asked for that. */
#ifndef ARIL_CORE_PARALLEL_H
#define ARIL_CORE_PARALLEL_H

#include "aril/parallel.h"

typedef void aril__range_fn(void *ctx, int64_t begin, int64_t end);

/* The number of chunks that aril__parallel_for makes: the size of an array of partial results. */
static inline int64_t aril__parallel_chunks(int64_t n, int64_t grain)
{
    if (n <= 0) return 0;
    return grain < 1 ? n : (n - 1) / grain + 1;
}

/* Calls fn(ctx, begin, end) once for each chunk of 0 .. n, in any order and possibly at once, and
 * returns when all are done; chunk number begin / grain. With n <= grain it is a plain call, with
 * n <= 0 nothing happens; a grain below 1 counts as 1.
 *
 * Runs serially (the same chunks, in order) inside another parallel loop, in threads marked serial,
 * in a child forked after the first parallel loop, and while another thread holds the workers.
 * fn must return: leaving it by longjmp or ending the thread breaks the pool. */
void aril__parallel_for(int64_t n, int64_t grain, aril__range_fn *fn, void *ctx);

/* Into how many pieces a job of `units` (samples, rows) should be cut, each of at least `least`
 * units; at least 1. For kernels that do better with few large pieces, one a thread, than with
 * chunks of a fixed size: those that call a library for each, or keep a large partial result. The
 * number is that of the threads a loop begun here would use, so that results which depend on the
 * cut are the same for the same number of threads; under ARIL_ANY_THREADS it follows from the size
 * alone. Piece k of n is [units * k / n, units * (k + 1) / n). */
int64_t aril__parallel_pieces(int64_t units, int64_t least);

/* Marks the calling thread: its parallel loops run serially (true), or normally again (false). */
void aril__thread_set_serial(bool serial);

/* True when a parallel loop begun here and now would run serially whatever its size. */
bool aril__parallel_is_serial(void);

/* For rows that call a library with OpenMP threads of its own, before the call: makes the library's
 * number of threads agree with aril_threads(), or 1 where Aril runs serially. Does
 * nothing without OpenMP. */
void aril__parallel_sync_library(void);

/* Ends and joins the workers; the next parallel loop starts new ones. For the end of the process.
 * Leaves them alone when a loop is running, or in a forked child, where there are none. */
void aril__parallel_shutdown(void);

#endif
