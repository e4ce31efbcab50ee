/* The one parallel loop. No other file of Aril deals with threads, except those that start one for
 * a special purpose (loaders, servers): such a thread calls aril__thread_set_serial(true).
 *
 * The loop splits work by size, never by the number of threads: chunk k is [k * grain, (k + 1) *
 * grain) clipped to n. Only which thread runs a chunk, and when, depends on the threads. A
 * reduction that keeps one partial result for each chunk and adds them in order therefore gives the
 * same bits on any machine. A kernel that chooses its grain by aril__parallel_pieces gives the same
 * bits for the same number of threads, or for any number where the user asked for that. */
#ifndef ARIL_CORE_PARALLEL_H
#define ARIL_CORE_PARALLEL_H

#include "aril/parallel.h"

#include <signal.h>

typedef void aril__range_fn(void *ctx, int64_t begin, int64_t end);

/* The number of chunks in aril__parallel_for: the size of an array of partial results. */
static inline int64_t aril__parallel_chunks(int64_t n, int64_t grain)
{
    if (n <= 0) return 0;
    return grain < 1 ? n : (n - 1) / grain + 1;
}

/* Calls fn(ctx, begin, end) once for each chunk of 0 .. n, in any order and possibly concurrently,
 * and returns when all are done; begin / grain is the chunk number. With n <= grain it is a plain
 * call, with n <= 0 a no-op; a grain below 1 counts as 1.
 *
 * Runs serially (the same chunks, in order) inside another parallel loop, in threads marked serial,
 * in a child forked after the first parallel loop, and while another thread holds the workers. fn
 * must return: leaving it by longjmp or exiting the thread breaks the pool. */
void aril__parallel_for(int64_t n, int64_t grain, aril__range_fn *fn, void *ctx);

/* The number of pieces to split a job of `units` (samples, rows) into, each of at least `least`
 * units; at least 1. For kernels that do better with few large pieces, one per thread, than with
 * chunks of a fixed size: those that call a library for each, or keep a large partial result. The
 * result is the number of threads that a loop started here would use, so that results that depend
 * on the split are the same for the same number of threads; under ARIL_ANY_THREADS it depends on
 * the size alone. Piece k of n is [units * k / n, units * (k + 1) / n). */
int64_t aril__parallel_pieces(int64_t units, int64_t min);

/* Scratch memory of a loop, for chunks that run concurrently: one slot for each thread that takes
 * part. A kernel asks for aril__parallel_slots(...) times the bytes of a slot before it runs, and
 * passes to the loop as many slots as it got, so that a change of the number of threads in between
 * does no harm. `slot`, in 0 .. slots - 1, is the thread's own while fn runs; results must not
 * depend on it. Otherwise like aril__parallel_for. */
typedef void aril__slot_fn(void *ctx, int64_t begin, int64_t end, int slot);
int aril__parallel_slots(int64_t n, int64_t grain);
void aril__parallel_for_slots(int64_t n, int64_t grain, int slots, aril__slot_fn *fn, void *ctx);

/* Blocks signals while a thread is started, which inherits that: they are for the program's own
 * threads. Not those that a memory access or an instruction raises in the thread itself, such as
 * SIGBUS (formats/mapped_file.h): if they are blocked, the kernel ends the process without calling
 * its handler. pthread_sigmask restores *before. */
void aril__block_signals(sigset_t *before);

/* Marks the calling thread: its parallel loops run serially (true), or normally again (false). */
void aril__thread_set_serial(bool serial);

/* True if a parallel loop started now would run serially regardless of its size. */
bool aril__parallel_is_serial(void);

/* For rows that call a library with OpenMP threads of its own, before the call: sets the library's
 * number of threads to aril_threads(), or to 1 where Aril runs serially. A no-op without OpenMP. */
void aril__parallel_sync_library(void);

/* Stops and joins the workers; the next parallel loop starts new ones. For the end of the process.
 * Leaves them alone when a loop is running, or in a forked child, where there are none. */
void aril__parallel_shutdown(void);

#endif
