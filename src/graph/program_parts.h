/* What program.c and signature.c share: programs, their traces, and what decides whether a trace
 * serves a call. */
#ifndef ARIL_GRAPH_PROGRAM_PARTS_H
#define ARIL_GRAPH_PROGRAM_PARTS_H

#include "graph/program.h"

#include "autograd/node.h"
#include "graph/gradient.h"
#include "graph/passed_on.h"
#include "graph/replay.h"

#include <pthread.h>

enum { MAX_PARTS = 8 };

enum { INPUT_WORDS = 5 + 2 * ARIL_MAX_DIMS, MODE_WORDS = 3 };

/* What a run needs to find of a state as the trace found it. */
typedef struct state_guard {
    aril__device *device;
    aril__storage *storage;
    const aril__node *node;
    int64_t dim[ARIL_MAX_DIMS], stride[ARIL_MAX_DIMS], offset;
    uint32_t twin; /* the first state with the same storage */
    uint8_t dtype, ndim;
} state_guard;

/* One trace: the program for one signature. Not changed once it is in the list. */
typedef struct trace {
    atomic_int refs;
    struct trace *next; /* older */
    int64_t *signature;
    size_t n_words;
    aril__graph *g;
    aril__exec *x;
    aril__replay *replay;     /* or NULL */
    aril__gradient *gradient; /* of calls that autograd records; NULL: of others */
    aril__watches watches;
    state_guard *guards;
    int *joined; /* for each input: the first state with the same storage, or -1 */
    bool *whole; /* for each input: whether a run gets its whole memory */
    int n_in, n_out;
    bool frozen; /* it reads nothing but its inputs */
    /* C code asked for unknown sizes: what it does with them was compared for the sizes of these
     * calls, and is for other ones, since a condition may hold for some only. NULL: it did not.
     * Guarded by the lock of the program. */
    aril__compared_sizes *compared;
} trace;

struct aril_program {
    char *name;
    aril_fn *fn;
    void *ctx;
    aril_shape *sizes;
    int n_sizes, max_results, max_traces;
    int64_t max_memory;
    bool freeze;
    pthread_mutex_t lock; /* guards the list */
    trace *traces;        /* latest first */
    int n_traces;
    /* How many traces were made, the number of results of the latest, and the smallest one. */
    atomic_int made, n_out, least_out;
    /* Of a program of a defined graph, instead of a function: */
    const aril__graph *g;
    aril__request of;
    aril__part *part[MAX_PARTS]; /* one for each device that inputs were on, first one used first */
    aril__device *device[MAX_PARTS];
    int n_parts;
    bool *placed; /* by input of g */
    uint32_t *inputs;
    int n_in;
    void *owner; /* of g */
    void (*release)(void *owner);
    const aril__program_kind *kind; /* of a function that belongs to the program, or NULL */
};

/* The first input with the same storage. */
int aril__input_twin(aril_list in, int i);
/* Whether another input has the same storage. */
bool aril__input_shared(aril_list in, int i);
/* The sizes as the trace knows them: negative where they may differ. */
void aril__input_sizes(const aril_program *p, aril_list in, int i, int64_t *dim);
/* Whether signatures contain the values of small inputs. */
bool aril__is_by_value(const aril_program *p);
/* word[MODE_WORDS + in.n * INPUT_WORDS]: the signature of a call. */
void aril__describe_call(const aril_program *p, aril_list in, bool recorded, int64_t *word);
/* The first state with the same storage. */
uint32_t aril__state_twin(const aril__graph *g, uint32_t i);
/* The first state with the same storage as an input, or -1. */
int aril__state_in(const aril__graph *g, const aril_tensor *t);
/* NULL if the trace serves the call, else why not. */
typedef struct difference {
    int input; /* that differs; -1: something else does */
    int depth; /* how much was alike */
} difference;
const char *aril__other_than(const trace *t, aril_list in, const int64_t *word, size_t n,
                             difference *d);

#endif
