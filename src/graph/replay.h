/* Replaying: the work of a program on a device as one recording of that device (a CUDA graph).
 *
 * Where the time to queue the nodes of a program exceeds the time that the device needs for them, a
 * run records its work once (capture_begin ... of aril/plugin.h), and later runs replay it. A graph
 * is divided into the nodes of the host, which every run executes first, and those of one device,
 * which are recorded. Values that pass from the first to the second (learning rate, step count,
 * random keys) are numbers; in a recording they are tensors of the device, which each run sets.
 *
 * A recording refers to memory by address: inputs are copied to tensors of its own, outputs from
 * such tensors, and states are used where they are. So it holds for one set of sizes and of
 * addresses of states; others are recorded anew, up to a few at a time. */
#ifndef ARIL_GRAPH_REPLAY_H
#define ARIL_GRAPH_REPLAY_H

#include "graph/exec.h"

typedef struct aril__replay aril__replay;

/* For a graph, which must outlive it. NULL, without an error, if the program cannot be replayed:
 * the log (ARIL_LOG=trace) says why. */
aril__replay *aril__replay_new(const aril__graph *g);
void aril__replay_free(aril__replay *r);

/* aril__exec_run(x, in, out) of the executor of the whole graph, replayed where that is possible
 * and pays off. r may be NULL. */
aril_status aril__replay_run(aril__replay *r, const aril__exec *x, aril_tensor *const *in,
                             aril_tensor **out);

#endif
