/* Kernel rows: how a backend offers its kernels. A row takes part by being listed, fastest first;
 * no switch names it. The form of a row is public, for plug-ins: aril/plugin.h. */
#ifndef ARIL_OPS_ROWS_H
#define ARIL_OPS_ROWS_H

#include "aril/plugin.h"
#include "ops/table/op.h"

typedef aril_plan aril__plan;
typedef aril_row aril__row;

/* Adds rows of a device kind, behind those it has. Rows must stay in memory. */
aril_status aril__rows_register(int kind, const aril__row *rows, int n);

/* Adds rows behind the reference: other ways to do the same that are not the fastest. They run
 * where a row is forced alone, and are tested like the others. */
aril_status aril__rows_register_behind(int kind, const aril__row *rows, int n);

/* The rows of an op in the order in which they are asked, those behind the reference last: their
 * number, of which the first `n` go to `to`. *usual: how many stand before the reference. */
int aril__rows_of(int kind, const aril__op *op, int n, const aril__row **to, int *usual);

/* Whether a row of the device wants results of the op channels-last. */
bool aril__rows_make_last(const aril__device *d, const aril__op *op, aril_dtype type);

/* Whether a row that takes this call wants its result in the order spatial, C, N. */
typedef bool aril__samples_fn(const aril__call *c);
aril_status aril__rows_want_samples(int kind, const char *op, aril__samples_fn *fn);
bool aril__rows_make_samples(const aril__call *c);

/* For tests: runs with the k-th row of the op that takes the call (the reference counts last);
 * false when there are no more. -1 means the usual choice. */
extern _Thread_local int aril__force_row;

/* An op's attributes as text, "stride I64 3; pad I64 6; ", and a hash over those of all ops. */
const char *aril__layout_text(const aril__op *op, char *buf, size_t size);
uint64_t aril__layout_hash(void);

/* Opens the plug-ins that ARIL_PLUGINS names; failures are reported to stderr. */
void aril__plugins_start(void);

void aril__rows_shutdown(void);
void aril__plans_shutdown(void);

#define KERNEL(op_, dtypes_, prepare_, run_)                                                 \
    {                                                                                        \
        .op = #op_, .name = #run_, .dtypes = (dtypes_), .prepare = (prepare_), .run = (run_) \
    }

#endif
