/* Running a graph.
 *
 * An executor is made for the outputs and effects that a run wants, and knows which nodes those
 * need, where each value is used last, and which values are computed in the memory of the tensor
 * that they are written to. It is not changed by runs, so that several threads can run it. */
#ifndef ARIL_GRAPH_EXEC_H
#define ARIL_GRAPH_EXEC_H

#include "aril/graph.h"
#include "graph/graph.h"

typedef struct aril__exec aril__exec;

/* For these outputs and effects (numbers in g->effects) of the graph, which must outlive it, and
 * may grow. NULL with an error. */
aril__exec *aril__exec_new(const aril__graph *g, uint32_t n_out, const aril__value_id *out,
                           uint32_t n_effects, const uint32_t *effects);
void aril__exec_free(aril__exec *x);

/* Whether it reads the value: whether an input has to be given. */
bool aril__exec_needs(const aril__exec *x, aril__value_id v);

/* The number of outputs, and of nodes that a run executes. */
uint32_t aril__exec_results(const aril__exec *x);
uint32_t aril__exec_steps(const aril__exec *x);

/* Runs: in[i] is input i of the graph, NULL where it is not needed. out[] gets a reference to a new
 * tensor for each output: later runs do not change it. On failure out[] is left alone; tensors that
 * the program changes may have been changed, as in eager mode. */
aril_status aril__exec_run(const aril__exec *x, aril_tensor *const *in, aril_tensor **out);

/* Random numbers of the thread's generator in a run: where it is in comparison with the trace, and
 * how many loops have drawn more than the trace did, which went through each body once. */
typedef struct aril__drawing {
    bool known;    /* otherwise the numbers of calls are not those of the trace */
    int64_t shift; /* from a call of the trace to that of the run */
    int64_t more;
} aril__drawing;

/* The same for a body: `size` has the unknown sizes that the run around it knows already (-1: not
 * known). d->more is increased; keys among the inputs change with that. */
aril_status aril__exec_run_body(const aril__exec *x, aril_tensor *const *in, const int64_t *size,
                                aril_tensor **out, aril__drawing *d);

/* From now on, no memory stays allocated between runs: for runs that are recorded, whose memory
 * belongs to the recording. */
void aril__exec_keep_nothing(aril__exec *x);

/* Frees the memory that stayed allocated for the next run. */
void aril__exec_trim(const aril__exec *x);

/* Whether there is memory for a run with these inputs, beside what results take: it is allocated
 * and freed. Otherwise an error. */
aril_status aril__exec_fits(const aril__exec *x, aril_tensor *const *in);

/* The memory plan of the latest instance that no run uses now; zeros if there is none. */
aril_memory_plan aril__exec_memory(const aril__exec *x, const aril__device *device);

/* Lets every value have memory of its own, up to some MB, so that a device can run steps side by
 * side. Before the first run. */
void aril__exec_keep_apart(aril__exec *x);

/* An executor for all outputs and effects of a graph. */
aril__exec *aril__exec_whole(const aril__graph *g);

/* The same for runs that allocate at most max_memory bytes on a device: changes the graph to
 * recompute values where that is not enough with these inputs. NULL, with an error that tells how
 * much is missing, if that does not help. */
aril__exec *aril__exec_within(aril__graph *g, aril_tensor *const *in, int64_t max_memory);

#endif
