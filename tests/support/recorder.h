/* A recorder in place of a tracer: it records the ops that a piece of code applies, with shapes
 * that may be unknown, and replays them on real tensors of another size. */
#ifndef ARIL_TESTS_RECORDER_H
#define ARIL_TESTS_RECORDER_H

#include "ops/table/apply.h"

typedef struct recorder recorder;

recorder *recorder_new(void);
void recorder_free(recorder *r);

/* Ops of this thread are recorded between these. */
void recorder_begin(recorder *r);
void recorder_end(recorder *r);

/* A new unknown size, for the shapes of inputs; the name may be NULL. */
int64_t recorder_size(recorder *r, const char *name);

/* A symbolic input; -1 is an unknown size that no other equals. Owned by the recorder. */
aril_tensor *recorder_input(recorder *r, aril_shape shape, aril_dtype dtype);

/* The same with the dtype, device and memory order of another tensor. */
aril_tensor *recorder_input_like(recorder *r, aril_shape shape, aril_tensor *like);

/* Replays the record with real tensors for the inputs, in the order of their creation, and checks
 * that sizes recorded as equal are. Returns the
 * value of the symbolic tensor `of`, owned by the scope. Also performs the recorded in-place
 * writes. */
aril_tensor *recorder_play(recorder *r, aril_list inputs, aril_tensor *of);

/* The same for several values. */
aril_status recorder_values(recorder *r, aril_list inputs, aril_list of, aril_tensor **out);

/* How many numbers of a kind (ARIL__CONSTANT ...) the record refers to; 0: how many other tensors,
 * its state. */
int recorder_numbers(const recorder *r, unsigned kind);

/* How many ops were recorded, and the name of the i-th. */
int recorder_count(const recorder *r);
const char *recorder_name(const recorder *r, int i);

#endif
