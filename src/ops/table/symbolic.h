/* Symbolic tensors: what a trace knows of a value before it runs. That is its dtype, its sizes
 * (core/sizes.h: unknown ones have an identity), its device, and the order of its dimensions in
 * memory: strides are those of nominal sizes, in the order that the result has if its op keeps that
 * of its inputs, and contiguous otherwise. A program may choose other orders for its values, as
 * long as views stay views. */
#ifndef ARIL_OPS_SYMBOLIC_H
#define ARIL_OPS_SYMBOLIC_H

#include "core/sizes.h"
#include "ops/table/op.h"

/* What u.symbol of a symbolic tensor points to, the beginning of a larger struct of the tracer.
 * Symbols are allocated by their owner, which counts the headers that refer to them and so outlives
 * the tracer where a program keeps a symbolic tensor. */
typedef struct aril__symbols {
    aril__tracer *tracer; /* which records calls; NULL: only while it is the thread's, or ended */
    atomic_long refs;     /* 1 + the number of headers */
    void (*free)(struct aril__symbols *s);
} aril__symbols;
typedef aril__symbol_head aril__symbol;

/* Counts headers: called by core, and by tracers for each new header. */
void *aril__symbol_keep(void *symbol);
void aril__symbol_release(void *symbol);

/* A symbolic tensor on the CPU, contiguous; an unknown size (-1) is a new one. One reference, owned
 * by the caller. */
aril_tensor *aril__symbolic_new(aril__thread *th, aril_dtype dtype, int ndim, const int64_t *dim,
                                void *symbol);

/* The same with the dtype, device and order of dimensions of `like`, whose sizes `dim` replaces. */
aril_tensor *aril__symbolic_like(aril__thread *th, const aril_tensor *like, const int64_t *dim,
                                 void *symbol);

/* Result i of a call, for outputs that are FRESH or a VIEW. */
aril_tensor *aril__symbolic_out(aril__thread *th, const aril__call *c, int i, void *symbol);

/* The tracer that owns a symbolic tensor among the operands of a call; NULL if it has ended. */
aril__tracer *aril__symbolic_tracer(int n_in, aril_tensor *const *in, const aril_tensor *dest);
/* That of the defined graph whose sizes are among the attributes of a call; NULL: there are
 * none. */
aril__tracer *aril__symbolic_sizes_of(const aril__op *op, const void *attrs);
/* An error if an attribute looks as if C code had computed it from a size of a defined graph. */
aril_status aril__symbolic_attrs_computed(const aril__op *op, const void *attrs);
/* The same of numbers that are NaN, in a graph that C code has asked for a size. */
aril_status aril__symbolic_roots_computed(const aril__call *c);
/* Gives a call the device of its symbolic inputs; returns another one if they are on two. */
aril__device *aril__symbolic_device(aril__call *c);

/* Gives the anonymous sizes that a shape rule inferred an identity: the same call on the same sizes
 * gives the same unknown. */
void aril__symbolic_sizes(aril__thread *th, aril__call *c);

/* Replaces unknown sizes in the attributes of a recorded call by those of a run, in which an
 * unknown that some tensor has is size(ctx, unknown). */
void aril__symbolic_attrs(const aril__sizes *s, const aril__op *op, void *attrs,
                          int64_t (*size)(void *ctx, int64_t unknown), void *ctx);

#endif
